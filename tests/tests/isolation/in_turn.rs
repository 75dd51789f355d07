//! A statement outside of a transaction is never refused for what another connection has committed, whatever it does: it waits its turn with
//! nothing read, also where it begins by reading and has another statement run in its middle.

use plait_tests::actor::Actor;
use plait_tests::in_threads_and_processes;
use plait_tests::place::Place;
use plait_tests::sqlite::BUSY_SNAPSHOT;
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::time::Duration;

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, who, n); CREATE INDEX i ON t(who, n); INSERT INTO t VALUES(1, 1, 1), (2, 1, 2);
    CREATE TABLE u(id INTEGER PRIMARY KEY, a UNIQUE, b REFERENCES t); INSERT INTO u VALUES(1, 'a', 1), (2, 'b', 1);
    CREATE INDEX j ON u(b);
    CREATE TABLE k(id INTEGER PRIMARY KEY AUTOINCREMENT, at); INSERT INTO k(at) VALUES(1);
    CREATE TRIGGER g AFTER UPDATE OF b ON u BEGIN INSERT INTO k(at) SELECT count(*) FROM t; END;
    CREATE VIRTUAL TABLE f5 USING fts5(words); INSERT INTO f5 VALUES('one two'), ('three');
    CREATE VIRTUAL TABLE f4 USING fts4(words); INSERT INTO f4 VALUES('one two'), ('three');
    CREATE VIRTUAL TABLE r USING rtree(id, a, b); INSERT INTO r VALUES(1, 0, 1);
    CREATE TABLE gone(a); INSERT INTO gone VALUES(zeroblob(100000)); DROP TABLE gone;";
/// What somebody else commits while the statement waits: something in all that a statement may read.
const OTHERS: &str = "BEGIN IMMEDIATE; INSERT INTO t(who, n) VALUES(7, 7); UPDATE u SET a=a||'x', b=2; INSERT INTO k(at) VALUES(2);
    INSERT INTO f5 VALUES('four'); INSERT INTO f4 VALUES('four'); INSERT INTO r VALUES(7, 0, 1)";
/// Each begins anew, in a database of its own.
const STATEMENTS: [&str; 35] = [
    "ANALYZE",
    "ANALYZE t",
    "PRAGMA optimize",
    "PRAGMA optimize=0x10002",
    "PRAGMA main.optimize",
    "REINDEX",
    "REINDEX i",
    "VACUUM",
    "PRAGMA incremental_vacuum",
    "PRAGMA user_version=7",
    "PRAGMA application_id=7",
    "CREATE TABLE n AS SELECT * FROM t JOIN u",
    "CREATE TABLE n(a, b AS (a+1) STORED)",
    "CREATE TABLE n(id INTEGER PRIMARY KEY AUTOINCREMENT)",
    "CREATE INDEX n ON t(n, who)",
    "CREATE UNIQUE INDEX n ON u(a, id) WHERE id>0",
    "CREATE VIRTUAL TABLE n USING fts5(a)",
    "CREATE VIEW n AS SELECT * FROM t",
    "DROP TABLE k",
    "DROP TABLE f5",
    "ALTER TABLE t ADD COLUMN more CHECK (n>0)",
    "ALTER TABLE t RENAME COLUMN n TO m",
    "ALTER TABLE k DROP COLUMN at",
    "INSERT INTO t(who, n) SELECT sum(n), count(*) FROM t",
    "INSERT INTO t(who, n) SELECT who, n FROM t WHERE id=(SELECT max(id) FROM t) RETURNING id",
    "INSERT INTO u(a, b) VALUES('a', (SELECT min(id) FROM t)) ON CONFLICT(a) DO UPDATE SET b=excluded.b",
    "REPLACE INTO u(id, a) SELECT id, n FROM t",
    "UPDATE t SET n=(SELECT count(*) FROM u)",
    "DELETE FROM t WHERE id NOT IN (SELECT b FROM u)",
    "INSERT INTO f5(f5) VALUES('rebuild')",
    "INSERT INTO f5(f5, rank) VALUES('merge', 500)",
    "INSERT INTO f5(f5) VALUES('integrity-check')",
    "INSERT INTO f4(f4) VALUES('optimize')",
    "UPDATE r SET b=(SELECT max(b)+1 FROM r)",
    "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i<400) INSERT INTO t(who, n) SELECT i, n FROM c, t WHERE t.id=1",
];

/// With pages that `PRAGMA incremental_vacuum` can give back.
fn fixture(subject: &Subject) -> Fixture {
    let fixture = Fixture::empty(subject.clone());
    let connection = subject.open(&fixture.database()).expect("it opens");
    connection.execute(&format!("PRAGMA auto_vacuum=INCREMENTAL; {SCHEMA}")).expect("the schema");
    subject.convert(&connection).expect("the mode");
    fixture
}

fn start(place: Place, name: &str, fixture: &Fixture) -> Actor {
    Actor::start(place, name, &fixture.subject, &fixture.database())
}

in_threads_and_processes! {
    fn a_statement_outside_of_a_transaction_waits_its_turn_and_is_not_refused_for_what_others_commit_meanwhile(place) {
        let Some(subject) = real_plait("statements in their turn") else { return };
        for sql in STATEMENTS {
            let fixture = fixture(&subject);
            let (mut other, mut asker) = (start(place, "other", &fixture), start(place, "asker", &fixture));
            other.ok("PRAGMA synchronous=NORMAL; UPDATE k SET at=0");
            // Without these optimize finds nothing to do.
            asker.ok("SELECT count(*) FROM t WHERE who=1; SELECT count(*) FROM u WHERE b=1");
            other.ok(OTHERS);
            asker.send(sql);
            let waited = asker.still_waits_after(Duration::from_millis(60));
            other.ok("COMMIT");
            let reply = asker.finish();
            assert_eq!(reply.error, None, "{sql}");
            assert!(waited, "{sql} did not wait");
            assert_eq!(other.ok("PRAGMA integrity_check"), [vec!["ok".into()]], "{sql}");
        }
    }
}

#[test]
fn optimize_is_not_refused_for_what_was_changed_while_it_waited_and_looks_again_if_that_was_the_schema()
 {
    let Some(subject) = real_plait("statements in their turn") else { return };
    let changes = [
        "INSERT INTO t(who, n) VALUES(3, 3)",
        "DROP TABLE t",
        "ALTER TABLE t RENAME TO s",
        "CREATE INDEX j ON t(n)",
        "DROP INDEX i; CREATE INDEX i ON t(who)",
        "CREATE TABLE b(x); INSERT INTO b VALUES(1)",
        "VACUUM",
    ];
    for change in changes {
        // One table to look at: with two of them it would be written from the beginning.
        let schema = "CREATE TABLE t(id INTEGER PRIMARY KEY, who, n); CREATE INDEX i ON t(who, n); INSERT INTO t VALUES(1, 1, 1)";
        let fixture = Fixture::new(subject.clone(), schema);
        let start = |name| start(Place::Threads, name, &fixture);
        let (mut other, mut changer, mut asker) =
            (start("other"), start("changer"), start("asker"));
        asker.ok("SELECT count(*) FROM t WHERE who=1");
        other.ok("BEGIN IMMEDIATE; INSERT INTO t(who, n) VALUES(2, 2)");
        // The queue is served in the order of coming.
        changer.send(change);
        assert!(changer.still_waits_after(Duration::from_millis(60)), "{change}");
        asker.send("PRAGMA optimize");
        assert!(asker.still_waits_after(Duration::from_millis(60)), "{change}");
        other.ok("COMMIT");
        assert_eq!(changer.finish().error, None, "{change}");
        assert_eq!(asker.finish().error, None, "{change}");
        if !change.contains(" TABLE t") {
            assert_eq!(
                asker.integer("SELECT count(*)>0 FROM sqlite_stat1 WHERE tbl='t'"),
                1,
                "{change}"
            );
        }
        assert_eq!(asker.ok("PRAGMA integrity_check"), [vec!["ok".into()]], "{change}");
    }
}

#[test]
fn optimize_answers_in_a_transaction_and_beside_an_open_statement_as_in_stock() {
    for subject in [Subject::stock(), Subject::plait()] {
        let fixture = Fixture::new(subject, SCHEMA);
        let connection = fixture.open();
        connection.query("SELECT count(*) FROM t WHERE who=1").expect("a search");
        let mut open = connection.prepare("SELECT id FROM t ORDER BY id").expect("a statement");
        open.step().expect("a row");
        connection.execute("PRAGMA optimize").expect("beside a statement");
        assert_eq!(open.column_i64(0), 1);
        open.step().expect("the next row");
        assert_eq!(open.column_i64(0), 2);
        drop(open);
        connection
            .execute("BEGIN; SELECT * FROM t; PRAGMA optimize; COMMIT")
            .expect("in a transaction");
        assert_eq!(connection.integer("SELECT count(*)>0 FROM sqlite_stat1"), Ok(1));
        connection.execute("PRAGMA optimize(-1)").expect("what would be done");
    }
}

/// What nobody can run again, since its functions were called, is told: as in WAL mode.
#[test]
fn a_write_beside_an_open_statement_whose_rows_have_changed_is_refused_as_in_wal_mode() {
    for subject in [Subject::stock(), Subject::plait()] {
        let fixture = Fixture::new(subject, SCHEMA);
        let (connection, other) = (fixture.open(), fixture.open());
        other.execute("UPDATE t SET n=0 WHERE id=1").expect("a write");
        let mut open = connection.prepare("SELECT id FROM t").expect("a statement");
        open.step().expect("a row");
        other.execute("UPDATE t SET n=5 WHERE id=1").expect("a write");
        let refused = connection.execute("INSERT INTO k(at) VALUES(1)").expect_err("t was read");
        assert_eq!(refused.extended, BUSY_SNAPSHOT, "{refused}");
    }
}
