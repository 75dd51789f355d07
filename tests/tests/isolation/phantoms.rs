//! That nothing was there has been read as well: every shape of read over every way in which a b-tree can hold no row where
//! it looks, against rows that another transaction puts there.
//!
//! What must conflict is not written down case by case. The other transaction runs the same read before and after its change; where the
//! answers differ, a reader that saw the first and wrote what the other had read cannot commit after it.

use plait_tests::actor::Actor;
use plait_tests::in_threads_and_processes;
use plait_tests::place::Place;
use plait_tests::sqlite::BUSY_SNAPSHOT;
use plait_tests::subject::{Fixture, Subject, real_plait};

/// Kinds of tables; `$` is the table's name.
const ROWID: &str = "
    CREATE TABLE $(id INTEGER PRIMARY KEY, a, b, c UNIQUE);
    CREATE INDEX $_ab ON $(a, b);
    CREATE INDEX $_down ON $(a DESC, b DESC);";
const WITHOUT_ROWID: &str = "CREATE TABLE $(id INTEGER, a, b, c, PRIMARY KEY(a, b)) WITHOUT ROWID;";

/// Where the rows are, each by its number. The reader sees `base` (unless it is `emptied`) and `added` without `removed` and
/// `own_removed`.
#[derive(Clone, Copy)]
struct State {
    name: &'static str,
    base: &'static [i64],
    /// The rows of the base were deleted and that was merged as well.
    emptied: bool,
    /// Committed since the merge.
    added: &'static [i64],
    removed: &'static [i64],
    /// By the reading transaction itself.
    own_removed: &'static [i64],
    /// Inserted by the reading transaction and rolled back to a savepoint.
    own_undone: &'static [i64],
}

const ALL: &[i64] = &[10, 20, 30, 40];
const NOTHING: State = State {
    name: "never a row",
    base: &[],
    emptied: false,
    added: &[],
    removed: &[],
    own_removed: &[],
    own_undone: &[],
};

const STATES: &[State] = &[
    NOTHING,
    State { name: "one row in the base", base: &[10], ..NOTHING },
    State { name: "one row above the base", added: &[10], ..NOTHING },
    State { name: "the base alone", base: ALL, ..NOTHING },
    State { name: "all above an empty base", added: ALL, ..NOTHING },
    State { name: "half and half", base: &[10, 30], added: &[20, 40], ..NOTHING },
    State { name: "the base hidden by tombstones", base: ALL, removed: ALL, ..NOTHING },
    State { name: "half of the base hidden", base: ALL, removed: &[20, 30], ..NOTHING },
    State { name: "emptied and merged", base: ALL, emptied: true, ..NOTHING },
    State { name: "emptied before it was merged", added: ALL, removed: ALL, ..NOTHING },
    State { name: "the base hidden by own deletes", base: ALL, own_removed: ALL, ..NOTHING },
    State { name: "own deletes above an empty base", added: ALL, own_removed: ALL, ..NOTHING },
    State { name: "own inserts undone", own_undone: &[15, 35], ..NOTHING },
];

impl State {
    fn sees(&self, row: i64) -> bool {
        ((self.base.contains(&row) && !self.emptied) || self.added.contains(&row))
            && !self.removed.contains(&row)
            && !self.own_removed.contains(&row)
    }

    fn is_own(&self) -> bool {
        !self.own_removed.is_empty() || !self.own_undone.is_empty()
    }
}

/// How much else a read covers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Its keys and nothing else.
    Keys,
    /// No further than the rows around row 25.
    Neighbours,
    /// Perhaps everything.
    Whatever,
}
use Extent::{Keys, Neighbours, Whatever};

const ROWID_READS: &[(&str, Extent)] = &[
    ("SELECT * FROM $ WHERE id=25", Keys),
    ("SELECT * FROM $ WHERE id IN (3, 25, 28)", Keys),
    ("SELECT * FROM $ WHERE id BETWEEN 22 AND 28", Neighbours),
    ("SELECT * FROM $ WHERE id BETWEEN 22 AND 28 ORDER BY id DESC", Neighbours),
    ("SELECT * FROM $ WHERE id>22 AND id<28", Neighbours),
    ("SELECT * FROM $ WHERE id>22 AND id<28 ORDER BY id DESC", Neighbours),
    ("SELECT * FROM $ WHERE id>24.5 AND id<25.5", Neighbours),
    ("SELECT * FROM $ WHERE id>=22 ORDER BY id LIMIT 1", Neighbours),
    ("SELECT * FROM $ WHERE id<=28 ORDER BY id DESC LIMIT 1", Neighbours),
    ("SELECT * FROM $ WHERE id>22", Whatever),
    ("SELECT * FROM $ WHERE id>22 ORDER BY id DESC", Whatever),
    ("SELECT * FROM $ WHERE id<28", Neighbours),
    ("SELECT * FROM $ WHERE id<28 ORDER BY id DESC", Neighbours),
    ("SELECT * FROM $ WHERE id<'x'", Whatever),
    ("SELECT * FROM $ WHERE id<='x' ORDER BY id DESC", Whatever),
    ("SELECT * FROM $", Whatever),
    ("SELECT * FROM $ ORDER BY id DESC", Whatever),
    ("SELECT count(*) FROM $", Whatever),
    ("SELECT count(*) FROM $ WHERE id BETWEEN 22 AND 28", Neighbours),
    ("SELECT max(id) FROM $", Whatever),
    ("SELECT min(id) FROM $", Neighbours),
    ("SELECT (SELECT max(id) FROM $ WHERE id<28)", Neighbours),
    ("SELECT EXISTS(SELECT 1 FROM $ WHERE id BETWEEN 22 AND 28)", Neighbours),
    ("SELECT id FROM own WHERE NOT EXISTS(SELECT 1 FROM $ x WHERE x.id=own.id+24)", Keys),
    ("SELECT x.id FROM own LEFT JOIN $ x ON x.id=own.id+24", Keys),
    ("SELECT x.id FROM own LEFT JOIN $ x ON x.id>own.id+21 AND x.id<own.id+27", Neighbours),
    ("SELECT x.id FROM own RIGHT JOIN $ x ON x.id=own.id", Whatever),
    ("SELECT x.id FROM own JOIN $ x ON x.a=own.id+24", Keys),
    ("SELECT id FROM $ INDEXED BY $_ab WHERE a=25", Keys),
    ("SELECT id FROM $ INDEXED BY $_ab WHERE a=25 AND b=5", Keys),
    ("SELECT id FROM $ INDEXED BY $_ab WHERE a=25 AND b>1", Neighbours),
    ("SELECT id FROM $ INDEXED BY $_ab WHERE a=25 AND b>1 ORDER BY b DESC", Neighbours),
    ("SELECT id FROM $ INDEXED BY $_ab WHERE a=25 ORDER BY b DESC LIMIT 1", Keys),
    ("SELECT id FROM $ INDEXED BY $_ab WHERE a=20 AND b>5", Neighbours),
    ("SELECT id FROM $ INDEXED BY $_ab WHERE a=20 AND b IN (4, 6)", Keys),
    ("SELECT id FROM $ INDEXED BY $_ab WHERE a IN (3, 25)", Keys),
    ("SELECT id FROM $ INDEXED BY $_ab WHERE a IN (3, 25) AND b IN (5, 6)", Keys),
    ("SELECT id FROM $ INDEXED BY $_ab WHERE a IN (3, 25) AND b>1", Neighbours),
    ("SELECT id FROM $ INDEXED BY $_ab WHERE a IS NULL", Keys),
    ("SELECT id FROM $ INDEXED BY $_ab WHERE a IS NULL AND b IN (4, 5)", Keys),
    ("SELECT id FROM $ INDEXED BY $_ab WHERE a IS NOT NULL", Whatever),
    ("SELECT id FROM $ INDEXED BY $_ab WHERE a BETWEEN 22 AND 28", Neighbours),
    ("SELECT id FROM $ INDEXED BY $_ab WHERE a BETWEEN 22 AND 28 ORDER BY a DESC", Neighbours),
    ("SELECT id FROM $ INDEXED BY $_ab WHERE a>22 ORDER BY a LIMIT 1", Neighbours),
    ("SELECT id FROM $ INDEXED BY $_ab WHERE a<28 ORDER BY a DESC LIMIT 1", Neighbours),
    ("SELECT id FROM $ INDEXED BY $_ab WHERE b=6", Whatever),
    ("SELECT max(a) FROM $ INDEXED BY $_ab", Whatever),
    ("SELECT min(a) FROM $ INDEXED BY $_ab", Neighbours),
    ("SELECT DISTINCT a FROM $ INDEXED BY $_ab", Whatever),
    ("SELECT count(*) FROM $ INDEXED BY $_ab WHERE a>22", Whatever),
    ("SELECT id FROM $ INDEXED BY $_down WHERE a=25", Keys),
    ("SELECT id FROM $ INDEXED BY $_down WHERE a=20 AND b>5", Neighbours),
    ("SELECT id FROM $ INDEXED BY $_down WHERE a BETWEEN 22 AND 28", Neighbours),
    ("SELECT id FROM $ INDEXED BY $_down WHERE a BETWEEN 22 AND 28 ORDER BY a DESC", Neighbours),
    ("SELECT id FROM $ INDEXED BY $_down WHERE a<28 ORDER BY a DESC LIMIT 1", Neighbours),
    ("SELECT id FROM $ WHERE c=25", Keys),
    ("SELECT id FROM $ WHERE c IN (24, 25)", Keys),
    ("SELECT c FROM $ WHERE c>22 ORDER BY c LIMIT 1", Neighbours),
    ("SELECT id FROM own WHERE 25 IN (SELECT c FROM $)", Whatever),
    ("SELECT id FROM own WHERE 25 NOT IN (SELECT c FROM $)", Whatever),
];

const WITHOUT_ROWID_READS: &[(&str, Extent)] = &[
    ("SELECT id FROM $ WHERE a=25 AND b=5", Keys),
    ("SELECT id FROM $ WHERE a=25", Keys),
    ("SELECT id FROM $ WHERE a=25 AND b>1", Neighbours),
    ("SELECT id FROM $ WHERE a=25 AND b<9 ORDER BY b DESC", Neighbours),
    ("SELECT id FROM $ WHERE a=20 AND b>5", Neighbours),
    ("SELECT id FROM $ WHERE a IN (3, 25) AND b IN (5, 6)", Keys),
    ("SELECT id FROM $ WHERE a BETWEEN 22 AND 28", Neighbours),
    ("SELECT id FROM $ WHERE a BETWEEN 22 AND 28 ORDER BY a DESC", Neighbours),
    ("SELECT id FROM $ WHERE a>22 ORDER BY a, b LIMIT 1", Neighbours),
    ("SELECT id FROM $ WHERE a<28 ORDER BY a DESC, b DESC LIMIT 1", Neighbours),
    ("SELECT * FROM $", Whatever),
    ("SELECT count(*) FROM $", Whatever),
    ("SELECT max(a) FROM $", Whatever),
    ("SELECT min(a) FROM $", Neighbours),
    ("SELECT EXISTS(SELECT 1 FROM $ WHERE a=25)", Keys),
    ("SELECT x.id FROM own LEFT JOIN $ x ON x.a=own.id+24", Keys),
    ("SELECT x.id FROM own LEFT JOIN $ x ON x.a>own.id+21 AND x.a<own.id+27", Neighbours),
];

const INSERT_25: &str = "INSERT INTO $ VALUES(25, 25, 5, 25)";

/// Changes that fall into what some of the reads have looked at. Moving row 40 changes nothing where it is not.
const CHANGES: &[&str] = &[
    INSERT_25,
    "INSERT INTO $ VALUES(5, 5, 5, 5)",
    "INSERT INTO $ VALUES(45, 45, 5, 45)",
    "INSERT INTO $ VALUES(26, 20, 6, 26)",
    "UPDATE $ SET id=25, a=25, c=25 WHERE a=40 AND b=5",
];
const INSERT_NULL: &str = "INSERT INTO $ VALUES(27, NULL, 5, 27)";
/// A change that is far from what any of the reads but those of everything have looked at.
const FAR: &str = "INSERT INTO $ VALUES(1000, 1000, 5, 1000)";

/// Statements of the reader that find nothing to write, or write elsewhere, because there is no row 25.
const WRITES_THAT_LOOK: &[&str] = &[
    "DELETE FROM $ WHERE id BETWEEN 22 AND 28",
    "DELETE FROM $ WHERE a=25",
    "DELETE FROM $",
    "UPDATE $ SET b=9 WHERE id>22 AND id<28",
    "UPDATE $ SET b=9 WHERE a=25 AND b<9",
    "UPDATE OR IGNORE $ SET b=9 WHERE c=25",
    "INSERT OR IGNORE INTO $ VALUES(25, 50, 50, 50)",
    "INSERT OR IGNORE INTO $ VALUES(50, 50, 50, 25)",
    "INSERT INTO $ VALUES(50, 50, 50, 25) ON CONFLICT(c) DO NOTHING",
    "INSERT INTO $ VALUES(25, 50, 50, 50) ON CONFLICT(id) DO UPDATE SET b=9",
    "REPLACE INTO $ VALUES(50, 50, 50, 25)",
    "INSERT INTO sink SELECT id FROM $",
    "INSERT INTO sink SELECT id FROM $ WHERE id BETWEEN 22 AND 28",
    "INSERT INTO $ SELECT 50, 50, 50, 50 WHERE NOT EXISTS(SELECT 1 FROM $ WHERE a=25)",
];

/// One table and what happens to it.
struct Case {
    table: String,
    read: &'static str,
    change: &'static str,
    /// The change is [`FAR`] and the read must not have covered it.
    is_outside: bool,
}

impl Case {
    fn sql(&self, template: &str) -> String {
        template.replace('$', &self.table)
    }
}

/// A database with a table for each case, all of them in one state.
struct Scene {
    _fixture: Fixture,
    reader: Actor,
    other: Actor,
    state: State,
    is_rowid: bool,
    cases: Vec<Case>,
    wrong: Vec<String>,
}

impl Scene {
    fn set(
        place: Place,
        subject: &Subject,
        state: State,
        is_rowid: bool,
        mut cases: Vec<Case>,
    ) -> Scene {
        let mut schema =
            "PRAGMA synchronous=OFF; BEGIN; CREATE TABLE own(id INTEGER PRIMARY KEY, val INTEGER);
             INSERT INTO own VALUES(1, 0); CREATE TABLE sink(id INTEGER);"
                .to_owned();
        for (number, case) in cases.iter_mut().enumerate() {
            case.table = format!("t{number}");
            schema += &case.sql(if is_rowid { ROWID } else { WITHOUT_ROWID });
        }
        schema += "COMMIT";
        let fixture = Fixture::new(subject.clone(), &schema);
        let start = |name| Actor::start(place, name, &fixture.subject, &fixture.database());
        let (reader, mut other) = (start("reader"), start("other"));
        let mut base = "PRAGMA synchronous=OFF;".to_owned();
        let mut above = String::new();
        for case in &cases {
            state.base.iter().for_each(|row| base += &case.sql(&insert(*row)));
            if state.emptied {
                state.base.iter().for_each(|row| base += &case.sql(&delete(is_rowid, *row)));
            }
            state.added.iter().for_each(|row| above += &case.sql(&insert(*row)));
            state.removed.iter().for_each(|row| above += &case.sql(&delete(is_rowid, *row)));
        }
        other.ok(&base);
        other.ok("PRAGMA wal_checkpoint");
        let mut unmerged =
            || other.integer("SELECT value FROM plait_status WHERE name='memtable_bytes'");
        assert_eq!(unmerged(), 0, "{}: everything is in the base", state.name);
        other.ok(&above);
        if !above.is_empty() {
            let mut unmerged =
                || other.integer("SELECT value FROM plait_status WHERE name='memtable_bytes'");
            assert!(unmerged() > 0, "{}: not everything is in the base", state.name);
        }
        Scene { _fixture: fixture, reader, other, state, is_rowid, cases, wrong: Vec::new() }
    }

    /// The reader begins and makes the state's own part of it.
    fn begin(&mut self, begin: &str, case: usize) {
        let case = &self.cases[case];
        let mut sql = format!("{begin};");
        for row in self.state.own_removed {
            sql += &case.sql(&delete(self.is_rowid, *row));
        }
        if !self.state.own_undone.is_empty() {
            sql += "SAVEPOINT s;";
            self.state.own_undone.iter().for_each(|row| sql += &case.sql(&insert(*row)));
            sql += "ROLLBACK TO s; RELEASE s";
        }
        self.reader.ok(&sql);
    }

    /// The other reads what the reader is going to write, and changes what it has read. Whether that changes the read's answer.
    fn change(&mut self, case: usize) -> bool {
        let (read, change) = (
            self.cases[case].sql(self.cases[case].read),
            self.cases[case].sql(self.cases[case].change),
        );
        self.other.ok("BEGIN CONCURRENT; SELECT val FROM own WHERE id=1");
        let is_read = read.starts_with("SELECT");
        let before = if is_read { self.other.ok(&read) } else { Vec::new() };
        self.other.ok(&change);
        let after = if is_read { self.other.ok(&read) } else { Vec::new() };
        self.other.ok("COMMIT");
        !is_read || before != after
    }

    fn run(&mut self, begin: &str, case: usize) {
        self.begin(begin, case);
        let read = self.cases[case].sql(self.cases[case].read);
        self.reader.ok(&read);
        let differs = self.change(case);
        let write = self.reader.run("UPDATE own SET val=val+1 WHERE id=1");
        let error = write.error.or_else(|| self.reader.run("COMMIT").error);
        let told = error.as_ref().map_or(String::new(), ToString::to_string);
        if let Some(error) = &error {
            assert_eq!(error.extended, BUSY_SNAPSHOT, "{told}");
            self.reader.ok("ROLLBACK");
        }
        let Case { read, change, is_outside, .. } = &self.cases[case];
        let shown = format!("{begin}, {}: {read} against {change}", self.state.name);
        if *is_outside && error.is_some() {
            self.wrong.push(format!("a conflict outside of what was read: {shown}: {told}"));
        } else if !*is_outside && differs && error.is_none() {
            self.wrong.push(format!("no conflict: {shown}"));
        }
    }

    /// Runs all cases; what went wrong comes back.
    fn run_all(mut self, begin: &str) -> Vec<String> {
        for case in 0..self.cases.len() {
            self.run(begin, case);
        }
        self.wrong
    }
}

fn insert(row: i64) -> String {
    format!("INSERT INTO $ VALUES({row}, {row}, 5, {row});")
}

fn delete(is_rowid: bool, row: i64) -> String {
    if is_rowid {
        format!("DELETE FROM $ WHERE id={row};")
    } else {
        format!("DELETE FROM $ WHERE a={row} AND b=5;")
    }
}

fn case(read: &'static str, change: &'static str, is_outside: bool) -> Case {
    Case { table: String::new(), read, change, is_outside }
}

/// Every read against every change, and where the read is known to end before it, against the far one.
fn cases(state: &State, is_rowid: bool) -> Vec<Case> {
    let reads = if is_rowid { ROWID_READS } else { WITHOUT_ROWID_READS };
    let mut cases = Vec::new();
    for (read, extent) in reads {
        for change in CHANGES {
            cases.push(case(read, change, false));
        }
        if is_rowid {
            cases.push(case(read, INSERT_NULL, false));
        }
        let bounded = state.sees(20) && state.sees(30) && *extent == Neighbours;
        if bounded || *extent == Keys {
            cases.push(case(read, FAR, true));
        }
    }
    cases
}

fn in_every_state(place: Place, is_rowid: bool, begin: &str) {
    let Some(subject) = real_plait("phantoms") else { return };
    let mut wrong = Vec::new();
    for state in STATES {
        if state.is_own() && begin == "BEGIN" {
            // With its first write it holds the writer's right, and nobody else commits.
            continue;
        }
        let cases = cases(state, is_rowid);
        wrong.extend(Scene::set(place, &subject, *state, is_rowid, cases).run_all(begin));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

in_threads_and_processes! {
    fn an_optimistic_transaction_has_read_that_nothing_was_there(place) {
        in_every_state(place, true, "BEGIN CONCURRENT");
    }

    fn an_optimistic_transaction_has_read_that_a_table_without_rowids_had_nothing_there(place) {
        in_every_state(place, false, "BEGIN CONCURRENT");
    }

    fn a_deferred_transaction_has_read_that_nothing_was_there(place) {
        in_every_state(place, true, "BEGIN");
        in_every_state(place, false, "BEGIN");
    }

    fn a_write_that_found_nothing_has_read_that_nothing_was_there(place) {
        let Some(subject) = real_plait("phantoms") else { return };
        let mut wrong = Vec::new();
        for state in STATES {
            let cases = WRITES_THAT_LOOK.iter().map(|read| case(read, INSERT_25, false)).collect();
            wrong.extend(Scene::set(place, &subject, *state, true, cases).run_all("BEGIN CONCURRENT"));
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    fn deleting_a_parent_has_read_that_it_has_no_child(place) {
        let Some(subject) = real_plait("phantoms") else { return };
        let children = ["", "INSERT INTO child VALUES(1, 2); DELETE FROM child; PRAGMA wal_checkpoint",
            "INSERT INTO child VALUES(1, 2); PRAGMA wal_checkpoint; DELETE FROM child", "INSERT INTO child VALUES(1, 2), (2, 0)"];
        for index in ["", "CREATE INDEX child_p ON child(p);"] {
            for before in children {
                let schema = format!("CREATE TABLE parent(id INTEGER PRIMARY KEY); INSERT INTO parent VALUES(0), (1), (2);
                    CREATE TABLE child(id INTEGER PRIMARY KEY, p REFERENCES parent(id)); {index}");
                let fixture = Fixture::new(subject.clone(), &schema);
                let start = |name| Actor::start(place, name, &fixture.subject, &fixture.database());
                let (mut reader, mut other) = (start("reader"), start("other"));
                other.ok(&format!("PRAGMA wal_checkpoint; {before}"));
                reader.ok("PRAGMA foreign_keys=1; BEGIN CONCURRENT; DELETE FROM parent WHERE id=1");
                other.ok("PRAGMA foreign_keys=1; INSERT INTO child VALUES(10, 1)");
                reader.fails("COMMIT", BUSY_SNAPSHOT);
            }
        }
    }

    fn a_full_text_search_has_read_that_no_document_matched(place) {
        let Some(subject) = real_plait("phantoms") else { return };
        for searched_before in [false, true] {
            let fixture = Fixture::new(subject.clone(), "CREATE VIRTUAL TABLE text USING fts5(body);
                CREATE TABLE own(id INTEGER PRIMARY KEY, val); INSERT INTO own VALUES(1, 0);
                INSERT INTO text VALUES('apple'), ('plum');");
            let start = |name| Actor::start(place, name, &fixture.subject, &fixture.database());
            let (mut reader, mut other) = (start("reader"), start("other"));
            let search = "SELECT rowid FROM text WHERE text MATCH 'pear'";
            if searched_before {
                assert!(reader.ok(search).is_empty());
            }
            reader.ok("BEGIN CONCURRENT");
            assert!(reader.ok(search).is_empty());
            other.ok("BEGIN CONCURRENT; SELECT val FROM own WHERE id=1; INSERT INTO text VALUES('pear'); COMMIT");
            reader.ok("UPDATE own SET val=1 WHERE id=1");
            reader.fails("COMMIT", BUSY_SNAPSHOT);
        }
    }
}
