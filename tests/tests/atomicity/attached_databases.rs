//! Several databases in one connection: a transaction commits in all of them or in none, or is refused at once.

use plait_tests::actor::Actor;
use plait_tests::in_threads_and_processes;
use plait_tests::sqlite::{BUSY_SNAPSHOT, Connection};
use plait_tests::subject::{Begin, Fixture, Subject};

const TABLE: &str =
    "CREATE TABLE t(id INTEGER PRIMARY KEY, val TEXT); INSERT INTO t VALUES(1, 'a'), (2, 'b');";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    Concurrent,
    Wal,
    Delete,
    Memory,
}

impl Other {
    const ALL: [Self; 4] = [Self::Concurrent, Self::Wal, Self::Delete, Self::Memory];
}

fn database(other: Other) -> (Fixture, Connection) {
    let fixture = Fixture::new(Subject::plait(), TABLE);
    let path = fixture.path("other.db");
    match other {
        Other::Memory => {}
        Other::Concurrent => {
            let connection = fixture.subject.create(&path).expect("it opens");
            connection.execute(TABLE).expect("rows");
        }
        Other::Wal | Other::Delete => {
            let connection = fixture.subject.open(&path).expect("it opens");
            let mode = if other == Other::Wal { "wal" } else { "delete" };
            connection.execute(&format!("PRAGMA journal_mode={mode}; {TABLE}")).expect("rows");
        }
    }
    let connection = fixture.open();
    attach(&fixture, &connection, other);
    (fixture, connection)
}

fn attach(fixture: &Fixture, connection: &Connection, other: Other) {
    if other == Other::Memory {
        connection.execute("ATTACH ':memory:' AS other; CREATE TABLE other.t(id INTEGER PRIMARY KEY, val TEXT); INSERT INTO other.t VALUES(1, 'a'), (2, 'b');").expect("attach");
    } else {
        let path = fixture.path("other.db");
        connection.execute(&format!("ATTACH '{}' AS other", path.display())).expect("attach");
    }
}

/// Counts of new rows in both databases, read through a fresh connection where the other is a file.
fn new_rows(fixture: &Fixture, connection: &Connection, other: Other) -> (i64, i64) {
    let main = fixture.open().integer("SELECT count(*) FROM t WHERE id>2").expect("a count");
    let sql = "SELECT count(*) FROM t WHERE id>2";
    let second = match other {
        Other::Memory => connection.integer("SELECT count(*) FROM other.t WHERE id>2"),
        _ => fixture
            .subject
            .open(&fixture.path("other.db"))
            .and_then(|connection| connection.integer(sql)),
    };
    (main, second.expect("a count"))
}

#[test]
fn a_transaction_over_two_databases_commits_in_both_or_in_none() {
    for other in Other::ALL {
        for begin in Begin::ALL {
            for main_first in [true, false] {
                let (fixture, connection) = database(other);
                connection.execute(fixture.subject.begin(begin)).expect("it begins");
                let mut statements =
                    ["INSERT INTO main.t VALUES(10, 'm')", "INSERT INTO other.t VALUES(10, 'o')"];
                if !main_first {
                    statements.reverse();
                }
                let outcome = statements
                    .iter()
                    .try_for_each(|sql| connection.execute(sql))
                    .and_then(|()| connection.execute("COMMIT"));
                let expected = match &outcome {
                    Ok(()) => (1, 1),
                    Err(error) => {
                        assert!(!error.message.is_empty());
                        if !connection.autocommit() {
                            connection.execute("ROLLBACK").expect("it rolls back");
                        }
                        (0, 0)
                    }
                };
                let got = new_rows(&fixture, &connection, other);
                assert_eq!(
                    got, expected,
                    "{other:?} {begin:?} main first {main_first}: {outcome:?}"
                );
                if other == Other::Memory {
                    assert_eq!(outcome, Ok(()), "a database in memory needs no second commit");
                }
            }
        }
    }
}

#[test]
fn reading_one_database_while_writing_the_other_works() {
    for other in Other::ALL {
        // The last one changes the main database as it begins.
        for begin in Begin::ALL.into_iter().filter(|&begin| begin != Begin::OnPages) {
            let (fixture, connection) = database(other);
            let begin = fixture.subject.begin(begin);
            connection.execute(begin).expect("it begins");
            connection
                .execute("INSERT INTO main.t SELECT id+100, val FROM other.t; COMMIT")
                .unwrap_or_else(|error| panic!("{other:?} {begin}: {error}"));
            connection.execute(begin).expect("it begins");
            connection
                .execute("INSERT INTO other.t SELECT id+200, val FROM main.t WHERE id<3; COMMIT")
                .unwrap_or_else(|error| panic!("{other:?} {begin}: {error}"));
            assert_eq!(new_rows(&fixture, &connection, other), (2, 2), "{other:?} {begin}");
            assert_eq!(
                connection.integer("SELECT count(*) FROM main.t JOIN other.t USING(val)"),
                Ok(8)
            );
        }
    }
}

#[test]
fn autocommit_writes_to_an_attached_database_are_seen_outside() {
    for other in [Other::Concurrent, Other::Wal, Other::Delete] {
        let (fixture, connection) = database(other);
        let outside = fixture.subject.open(&fixture.path("other.db")).expect("it opens");
        connection
            .execute("INSERT INTO other.t VALUES(10, 'o'); UPDATE other.t SET val='x' WHERE id=1")
            .expect("writes");
        assert_eq!(outside.integer("SELECT count(*) FROM t"), Ok(3), "{other:?}");
        outside.execute("INSERT INTO t VALUES(11, 'outside')").expect("an insert");
        assert_eq!(connection.integer("SELECT count(*) FROM other.t"), Ok(4));
        connection.execute("DETACH other").expect("detach");
        connection.execute("INSERT INTO t VALUES(12, 'm')").expect("main goes on");
        outside.execute("INSERT INTO t VALUES(13, 'still')").expect("so does the other");
        attach(&fixture, &connection, other);
        assert_eq!(connection.integer("SELECT count(*) FROM other.t"), Ok(5));
    }
}

#[test]
fn temp_triggers_and_views_span_databases() {
    let (fixture, connection) = database(Other::Concurrent);
    connection
        .execute("CREATE TEMP VIEW both AS SELECT * FROM main.t UNION ALL SELECT * FROM other.t")
        .expect("a view");
    assert_eq!(connection.integer("SELECT count(*) FROM both"), Ok(4));
    fixture.open().execute("INSERT INTO t VALUES(10, 'x')").expect("an insert");
    assert_eq!(connection.integer("SELECT count(*) FROM both"), Ok(5));
}

in_threads_and_processes! {
    fn a_conflict_in_one_database_commits_in_none(place) {
        let subject = Subject::plait();
        if !subject.is_concurrent() {
            eprintln!("skipped: stock SQLite has no optimistic transactions");
            return;
        }
        let (fixture, connection) = database(Other::Concurrent);
        drop(connection);
        let other = fixture.path("other.db");
        let mut first = Actor::start(place, "first", &subject, &fixture.database());
        let mut second = Actor::start(place, "second", &subject, &other);
        first.ok(&format!("ATTACH '{}' AS other", other.display()));
        first.ok("BEGIN CONCURRENT; SELECT val FROM other.t WHERE id=1; INSERT INTO main.t VALUES(10, 'm')");
        second.ok("UPDATE t SET val='changed' WHERE id=1");
        let reply = first.run("COMMIT");
        if let Some(error) = reply.error {
            assert_eq!(error.extended, BUSY_SNAPSHOT, "{error}");
            first.ok("ROLLBACK");
            assert_eq!(first.integer("SELECT count(*) FROM main.t"), 2);
        } else {
            // What was only read may be a snapshot of its own, as between databases in stock SQLite.
            assert_eq!(first.integer("SELECT count(*) FROM main.t"), 3);
        }
        assert_eq!(second.integer("SELECT count(*) FROM t WHERE val='changed'"), 1);
    }
}
