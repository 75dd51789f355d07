//! The snapshot of a transaction stays where its first read has put it, as in stock SQLite, whatever looks at the pages of the file
//! later; also where nothing but the schema was read so far, or the header. And who has read nothing gets the newest state.

use plait_tests::sqlite::{Connection, Result, Step};
use plait_tests::subject::{Fixture, Subject, real_plait};
use plait_tests::value::Value;

const SCHEMA: &str = "CREATE TABLE t(a, b); INSERT INTO t VALUES('merged', 0)";
/// What the reader asks for, once before and once after.
const ALL: &str = "SELECT (SELECT count(*) FROM sqlite_schema), (SELECT count(*) FROM t), (SELECT user_version FROM pragma_user_version)";
/// First reads, none of which opens a table.
const FIRST: [&str; 6] = [
    "SELECT count(*) FROM sqlite_schema",
    "SELECT name FROM sqlite_schema LIMIT 1",
    "PRAGMA table_info(t)",
    "SELECT count(*) FROM pragma_table_info('t')",
    "PRAGMA user_version",
    "PRAGMA schema_version",
];
const CHANGES: [&str; 3] = [
    "INSERT INTO t VALUES('new', 0)",
    "PRAGMA user_version=7",
    "CREATE TABLE z(a); INSERT INTO z VALUES(1); INSERT INTO t VALUES('new', 0)",
];

/// Ways to look at pages.
#[derive(Clone, Copy, Debug)]
enum Look {
    Sql(&'static str),
    Serialize,
    Backup,
}

const LOOKS: [Look; 10] = [
    Look::Sql("PRAGMA integrity_check"),
    Look::Sql("PRAGMA quick_check"),
    Look::Sql("PRAGMA page_count"),
    Look::Sql("PRAGMA freelist_count"),
    Look::Sql("SELECT * FROM pragma_page_count"),
    Look::Sql("SELECT pgno FROM sqlite_dbpage WHERE pgno=1"),
    Look::Sql("SELECT count(*) FROM dbstat"),
    Look::Sql("PRAGMA max_page_count"),
    Look::Serialize,
    Look::Backup,
];

impl Look {
    fn at(self, connection: &Connection) -> Result<()> {
        match self {
            Look::Sql(sql) => connection.query(sql).map(drop),
            Look::Serialize => connection.serialize().map(drop),
            Look::Backup => connection.backup_to(&connection.library().open(":memory:")?),
        }
    }

    /// Its pages are all that is committed.
    fn copies(self) -> bool {
        match self {
            Look::Sql(sql) => sql.contains("sqlite_dbpage"),
            Look::Serialize | Look::Backup => true,
        }
    }
}

fn begins(subject: &Subject) -> &'static [&'static str] {
    if subject.is_concurrent() { &["BEGIN", "BEGIN CONCURRENT", "SAVEPOINT s"] } else { &["BEGIN"] }
}

/// Runs `with` for each combination of a transaction, a first read and a change that another connection has made since.
fn each_reader(with: &mut dyn FnMut(&str, &Connection, &str)) {
    let Some(plait) = real_plait("repeatable reads") else { return };
    for subject in [Subject::stock(), plait] {
        for begin in begins(&subject) {
            for first in FIRST {
                for change in CHANGES {
                    let fixture = Fixture::new(subject.clone(), SCHEMA);
                    let (reader, other) = (fixture.open(), fixture.open());
                    other.execute("INSERT INTO t VALUES('not merged', 0)").expect("a row");
                    reader.execute(begin).expect("it begins");
                    reader.query(first).expect("the first read");
                    other.execute(change).expect("a change");
                    with(&format!("{begin}; {first}; others {change}"), &reader, first);
                }
            }
        }
    }
}

fn state(of: &Connection) -> Vec<Vec<Value>> {
    of.query(ALL).expect("the state")
}

fn before() -> Vec<Vec<Value>> {
    vec![vec![1.into(), 2.into(), 0.into()]]
}

#[test]
fn a_look_at_pages_moves_no_transaction_that_has_read_the_schema_alone() {
    each_reader(&mut |what, reader, _| {
        for look in LOOKS.into_iter().filter(|look| !look.copies()) {
            look.at(reader).unwrap_or_else(|e| panic!("{what}; {look:?}: {e}"));
            assert_eq!(state(reader), before(), "{what}; {look:?}");
        }
    });
}

/// Such a transaction becomes exclusive where something is not merged. It then goes on with the newest state, in which what it has read is
/// the same, or it is refused.
#[test]
fn a_copy_by_pages_leaves_what_was_read_as_it_was_or_it_is_refused() {
    each_reader(&mut |what, reader, first| {
        let read = reader.query(first);
        for look in LOOKS.into_iter().filter(|look| look.copies()) {
            if let Err(error) = look.at(reader) {
                assert!(error.is_busy(), "{what}; {look:?}: {error}");
            }
            assert_eq!(reader.query(first), read, "{what}; {look:?}");
        }
    });
}

#[test]
fn who_has_read_the_schema_and_looked_at_pages_since_does_not_write_behind_a_change_of_others() {
    let Some(subject) = real_plait("repeatable reads") else { return };
    for begin in begins(&subject) {
        for look in LOOKS {
            for first in FIRST {
                let fixture = Fixture::new(subject.clone(), SCHEMA);
                let (reader, other) = (fixture.open(), fixture.open());
                other.execute("INSERT INTO t VALUES('not merged', 0)").expect("a row");
                reader.execute(begin).expect("it begins");
                reader.query(first).expect("the first read");
                other.execute("CREATE TABLE z(a)").expect("a table");
                let outcome = look.at(&reader).and_then(|()| {
                    reader.execute("INSERT INTO t VALUES('by the reader', 1); COMMIT")
                });
                let refused = outcome.expect_err("it has read what was changed");
                assert!(refused.is_conflict(), "{begin}; {first}; {look:?}: {refused}");
            }
        }
    }
}

#[test]
fn a_look_at_pages_beside_an_open_statement_on_the_schema_moves_nothing() {
    let Some(plait) = real_plait("repeatable reads") else { return };
    for subject in [Subject::stock(), plait] {
        for look in LOOKS.into_iter().filter(|look| !look.copies()) {
            let fixture = Fixture::new(subject.clone(), SCHEMA);
            let (reader, other) = (fixture.open(), fixture.open());
            other.execute("INSERT INTO t VALUES('not merged', 0)").expect("a row");
            let mut open = reader.prepare("SELECT name FROM sqlite_schema").expect("a statement");
            assert_eq!(open.step().expect("a row"), Step::Row);
            other.execute("CREATE TABLE z(a)").expect("a table");
            look.at(&reader).expect("a look");
            assert_eq!(state(&reader)[0][0], 1.into(), "{look:?}");
            assert_eq!(open.step().expect("its end"), Step::Done, "{look:?}: there was one table");
            drop(open);
            assert_eq!(state(&reader)[0][0], 2.into(), "{look:?}: behind it");
        }
    }
}

/// Also where the statement has to be prepared again, since others have changed the schema, and where SQLite has to load that first.
#[test]
fn a_transaction_that_begins_with_a_look_at_pages_sees_the_newest_state_in_them() {
    let Some(subject) = real_plait("repeatable reads") else { return };
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<200) INSERT INTO t SELECT zeroblob(3000), i FROM n";
    let looks = ["SELECT sum(pgsize)>400000 FROM dbstat", "SELECT count(*)>100 FROM sqlite_dbpage"];
    for begin in begins(&subject) {
        for look in looks {
            for change in ["", "CREATE TABLE z(a)", "CREATE TABLE y(b); ANALYZE"] {
                for used_before in [true, false] {
                    let fixture = Fixture::new(subject.clone(), SCHEMA);
                    let (reader, other) = (fixture.open(), fixture.open());
                    if used_before {
                        reader.query(look).expect("it knows the schema");
                    }
                    other.execute(change).expect("a change of the schema");
                    reader.execute(begin).expect("it begins");
                    // Not merged, unless a look does it.
                    other.execute(&format!("INSERT INTO t VALUES(0, 0); {rows}")).expect("rows");
                    let what = format!("{begin}; {look}; behind {change:?}, {used_before}");
                    assert_eq!(reader.integer(look), Ok(1), "{what}");
                    let count = reader.integer("SELECT count(*) FROM t").expect("a count");
                    assert_eq!(count, 202, "{what}: the rows that the pages hold");
                }
            }
        }
    }
}
