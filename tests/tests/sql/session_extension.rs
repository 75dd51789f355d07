//! The session extension across journal modes: what is recorded in one applies in the other.

use plait_tests::sqlite::{Connection, Session};
use plait_tests::subject::{Begin, Fixture, Subject};
use plait_tests::value::Value;

const SCHEMA: &str = "
    CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, data BLOB);
    CREATE TABLE pairs(a INTEGER, b TEXT, n, PRIMARY KEY(a, b)) WITHOUT ROWID;
    CREATE INDEX t_name ON t(name);
    INSERT INTO t VALUES(1, 'one', x'01'), (2, 'two', NULL), (3, 'three', x'0303');
    INSERT INTO pairs VALUES(1, 'x', 1.5), (2, 'y', NULL);
";
const CHANGES: [&str; 4] = [
    "INSERT INTO t VALUES(10, 'ten', randomblob(5000)); UPDATE t SET name='zwei' WHERE id=2",
    "DELETE FROM t WHERE id=3; INSERT INTO pairs VALUES(3, 'z', 'text')",
    "UPDATE pairs SET n=n+1 WHERE a=1; UPDATE t SET data=NULL WHERE id=1; DELETE FROM pairs WHERE a=2",
    "INSERT INTO t SELECT id+100, name||'!', data FROM t; UPDATE t SET id=1000 WHERE id=101",
];

fn contents(connection: &Connection) -> Vec<Vec<Value>> {
    connection
        .query("SELECT * FROM t ORDER BY id; SELECT * FROM pairs ORDER BY a, b")
        .expect("rows")
}

/// Changes in transactions of one kind, or without one.
fn change(connection: &Connection, subject: &Subject, begin: Option<Begin>) {
    for sql in CHANGES {
        match begin {
            None => connection.execute(sql),
            Some(begin) => connection.execute(&format!("{}; {sql}; COMMIT", subject.begin(begin))),
        }
        .unwrap_or_else(|error| panic!("{begin:?}: {error}"));
    }
}

#[test]
fn a_changeset_recorded_in_one_mode_applies_in_the_other() {
    let subjects = || [Subject::stock(), Subject::plait_in_wal_mode(), Subject::plait()];
    let kinds = [
        None,
        Some(Begin::Deferred),
        Some(Begin::Immediate),
        Some(Begin::Exclusive),
        Some(Begin::OnPages),
        Some(Begin::Concurrent),
    ];
    for source in subjects() {
        for begin in kinds {
            let from = Fixture::new(source.clone(), SCHEMA);
            let recorder = from.open();
            let session = Session::start(&recorder).expect("a session");
            change(&recorder, &from.subject, begin);
            let changeset = session.changeset().expect("a changeset");
            assert!(!changeset.0.is_empty());
            for target in subjects() {
                let to = Fixture::new(target.clone(), SCHEMA);
                let connection = to.open();
                connection.apply(&changeset).unwrap_or_else(|error| {
                    panic!("{:?} to {:?}, {begin:?}: {error}", source.mode, target.mode)
                });
                let seen = contents(&to.open());
                assert_eq!(
                    seen,
                    contents(&recorder),
                    "{:?} to {:?}, {begin:?}",
                    source.mode,
                    target.mode
                );
                assert_eq!(connection.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
            }
        }
    }
}

#[test]
fn a_session_records_its_own_connection_alone_and_no_transaction_that_was_rolled_back() {
    let fixture = Fixture::new(Subject::plait(), SCHEMA);
    let (recorder, other) = (fixture.open(), fixture.open());
    let session = Session::start(&recorder).expect("a session");
    other.execute("UPDATE t SET name='other' WHERE id=1").expect("another's change");
    recorder.execute("BEGIN; DELETE FROM t; ROLLBACK").expect("nothing");
    let begin = fixture.subject.begin(Begin::Concurrent);
    recorder
        .execute(&format!("{begin}; UPDATE t SET name='lost' WHERE id=2; ROLLBACK"))
        .expect("nothing");
    assert!(session.changeset().expect("a changeset").0.is_empty());
    recorder.execute("UPDATE t SET name='mine' WHERE id=2").expect("a change");
    let copy = Fixture::new(Subject::stock(), SCHEMA);
    let connection = copy.open();
    connection.apply(&session.changeset().expect("a changeset")).expect("it applies");
    assert_eq!(
        connection
            .text("SELECT group_concat(name) FROM (SELECT name FROM t ORDER BY id)")
            .as_deref(),
        Ok("one,mine,three")
    );
}

#[test]
fn a_recording_session_goes_on_while_the_journal_mode_changes() {
    let fixture = Fixture::new(Subject::plait(), SCHEMA);
    let recorder = fixture.open();
    let session = Session::start(&recorder).expect("a session");
    for (mode, sql) in ["delete", "concurrent", "truncate", "concurrent"].iter().zip(CHANGES) {
        assert_eq!(recorder.text(&format!("PRAGMA journal_mode={mode}")).as_deref(), Ok(*mode));
        recorder.execute(sql).unwrap_or_else(|error| panic!("in {mode}: {error}"));
    }
    let copy = Fixture::new(Subject::stock(), SCHEMA);
    let connection = copy.open();
    connection.apply(&session.changeset().expect("a changeset")).expect("it applies");
    assert_eq!(contents(&connection), contents(&recorder));
}
