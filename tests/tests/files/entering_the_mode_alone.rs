//! Who brings a file into concurrent mode that nobody else has open goes on alone, as who opens a resting one.

use plait_tests::actor::Actor;
use plait_tests::os::{self, Limited};
use plait_tests::sqlite::{CANTOPEN, Connection};
use plait_tests::subject::{Fixture, Subject, real_plait};

const TABLE: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, val TEXT)";
const INSERT: &str = "INSERT INTO t(val) VALUES('new')";
const CONVERT: &str = "PRAGMA journal_mode=concurrent";
const MODES: [&str; 4] = ["delete", "persist", "memory", "wal"];

/// A file that is in `mode`, with one row.
fn fixture(mode: &str) -> Option<Fixture> {
    os::allow_alone();
    let fixture = Fixture::empty(real_plait("conversion")?);
    let sql = format!("PRAGMA journal_mode={mode}; {TABLE}; {INSERT}");
    fixture.open().execute(&sql).expect("a file of another mode");
    Some(fixture)
}

fn has_session(fixture: &Fixture) -> bool {
    ["-plait", "-plait-shm", "-plait-new"].iter().any(|suffix| fixture.side_file(suffix).exists())
}

fn rows(connection: &Connection) -> i64 {
    connection.integer("SELECT count(*) FROM t").expect("they are counted")
}

#[track_caller]
fn is_plain_at_rest(fixture: &Fixture, expected: i64) {
    assert!(!has_session(fixture), "nothing is left");
    let stock = Subject::stock().open(&fixture.database()).expect("stock opens it");
    assert_eq!(rows(&stock), expected);
    assert_eq!(stock.text("PRAGMA journal_mode").as_deref(), Ok("wal"));
    assert_eq!(stock.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    stock.close().expect("it closes");
    assert_eq!(fixture.open().text("PRAGMA journal_mode").as_deref(), Ok("concurrent"));
}

#[test]
fn a_file_that_nobody_else_has_open_needs_no_session() {
    for mode in MODES {
        let Some(fixture) = fixture(mode) else { return };
        let lone = fixture.open();
        assert_eq!(lone.text(CONVERT).as_deref(), Ok("concurrent"), "{mode}");
        assert_eq!(lone.text("PRAGMA journal_mode").as_deref(), Ok("concurrent"), "{mode}");
        lone.execute(INSERT).expect("it inserts");
        assert!(!has_session(&fixture), "{mode}");
        // And back.
        assert_eq!(lone.text("PRAGMA journal_mode=delete").as_deref(), Ok("delete"), "{mode}");
        assert_eq!(lone.text(CONVERT).as_deref(), Ok("concurrent"), "{mode}");
        lone.execute(INSERT).expect("it inserts");
        lone.close().expect("it closes");
        is_plain_at_rest(&fixture, 3);
    }
}

#[test]
fn a_new_file_needs_no_session() {
    os::allow_alone();
    let Some(subject) = real_plait("conversion") else { return };
    let fixture = Fixture::empty(subject);
    let lone = fixture.open();
    assert_eq!(lone.text(CONVERT).as_deref(), Ok("concurrent"));
    lone.execute(&format!("{TABLE}; {INSERT}; {INSERT}")).expect("it writes");
    assert!(!has_session(&fixture));
    lone.close().expect("it closes");
    is_plain_at_rest(&fixture, 2);
}

#[test]
fn who_comes_then_begins_it_with_them() {
    for mode in MODES {
        let Some(fixture) = fixture(mode) else { return };
        let first = fixture.open();
        first.execute(CONVERT).expect("it converts");
        first.execute(INSERT).expect("it inserts alone");
        let second = fixture.open();
        assert_eq!(rows(&second), 2, "{mode}");
        second.execute("BEGIN CONCURRENT; SELECT count(*) FROM t").expect("it begins");
        second.execute(INSERT).expect("it inserts");
        first.execute(INSERT).expect("neither waits for the other");
        assert!(has_session(&fixture), "{mode}");
        second.execute("ROLLBACK").expect("it ends");
        for connection in [&first, &second] {
            connection.execute(INSERT).expect("it inserts");
        }
        assert_eq!((rows(&first), rows(&second)), (5, 5), "{mode}");
        first.close().expect("it closes");
        second.close().expect("it closes");
        is_plain_at_rest(&fixture, 5);
    }
}

/// Where no session can be had the file stays what it is, and a program that asks for WAL gets that.
#[test]
fn where_nobody_could_join_a_file_is_not_brought_into_the_mode() {
    os::allow_alone();
    let Some(subject) = real_plait("conversion") else { return };
    let fixture = Fixture::empty(subject.clone());
    let environment = [("PLAIT_JOURNAL_MODE", "concurrent"), ("PLAIT_JOIN", "when needed")];
    let mut actor = Actor::in_process_with("converter", &subject, &environment);
    let mut try_it = |name: &str, words: &str, limit: Option<u64>| {
        os::limit(actor.pid(), Limited::FileSize, limit).expect("a limit");
        actor.open(&fixture.path(name)).expect("it opens");
        let error = actor.run(CONVERT).error.expect("it is refused");
        assert_eq!(error.code, CANTOPEN, "{error}");
        assert!(error.message.contains(words), "{error}");
        assert_eq!(actor.ok("PRAGMA journal_mode"), [["delete".into()]]);
        assert_eq!(actor.ok("PRAGMA journal_mode=wal"), [["wal".into()]]);
        actor.ok(&format!("{TABLE}; {INSERT}"));
        actor.close().expect("it closes");
    };
    try_it(&"n".repeat(234), "more than 233 bytes", None);
    try_it("limited.db", "RLIMIT_FSIZE", Some(100 << 20));
    os::limit(actor.pid(), Limited::FileSize, None).expect("no limit");
    actor.open(&fixture.path(&"n".repeat(233))).expect("it opens");
    assert_eq!(actor.ok(CONVERT), [["concurrent".into()]]);
    actor.ok(&format!("{TABLE}; BEGIN CONCURRENT; {INSERT}; COMMIT"));
    actor.close().expect("it closes");
}

#[test]
fn those_who_have_it_open_in_wal_mode_go_on() {
    let Some(fixture) = fixture("wal") else { return };
    let (idle, reader, converter) = (fixture.open(), fixture.open(), fixture.open());
    for connection in [&idle, &converter] {
        assert_eq!(rows(connection), 1);
    }
    reader.execute("BEGIN; SELECT count(*) FROM t").expect("it reads");
    assert_eq!(converter.text(CONVERT).as_deref(), Ok("concurrent"));
    converter.execute(INSERT).expect("it inserts");
    idle.execute(INSERT).expect("it inserts");
    assert_eq!(rows(&reader), 1, "its snapshot");
    reader.execute("COMMIT").expect("it ends");
    for connection in [&idle, &reader, &converter] {
        assert_eq!(rows(connection), 3);
        assert_eq!(connection.text("PRAGMA journal_mode").as_deref(), Ok("concurrent"));
    }
    converter.execute("BEGIN CONCURRENT; DELETE FROM t WHERE id=1").expect("it deletes");
    idle.execute("UPDATE t SET val='changed' WHERE id=2").expect("beside it");
    converter.execute("COMMIT").expect("it commits");
    assert_eq!(rows(&reader), 2);
    for connection in [idle, reader, converter] {
        connection.close().expect("it closes");
    }
    is_plain_at_rest(&fixture, 2);
}
