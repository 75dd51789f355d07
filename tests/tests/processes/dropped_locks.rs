//! POSIX gives up a process's locks on a file when any descriptor of it is closed there: by a second copy of SQLite, or by a program that
//! archives its own folder. Nobody takes the WAL and its index for left over because of that.

use plait_tests::actor::Actor;
use plait_tests::os;
use plait_tests::place::Place;
use plait_tests::sqlite::Connection;
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::os::unix::fs::MetadataExt;

/// The dead-man byte of a WAL-index.
const DEAD_MAN: i64 = 128;
const INSERT: &str = "INSERT INTO t(val) VALUES('new')";
const COUNT: &str = "SELECT count(*) FROM t";
const BESIDE: [&str; 2] = ["-wal", "-shm"];

fn fixture() -> Option<Fixture> {
    os::allow_alone();
    let rows =
        "CREATE TABLE t(id INTEGER PRIMARY KEY, val TEXT); INSERT INTO t(val) VALUES('first')";
    real_plait("dropped locks").map(|subject| Fixture::new(subject, rows))
}

fn rows(connection: &Connection) -> i64 {
    connection.integer(COUNT).expect("it is counted")
}

/// Which files these are.
fn beside(fixture: &Fixture) -> [Option<u64>; 2] {
    BESIDE.map(|suffix| std::fs::metadata(fixture.side_file(suffix)).ok().map(|file| file.ino()))
}

/// As an archiver does.
fn read_all(fixture: &Fixture) {
    std::fs::read(fixture.database()).expect("the database");
    for suffix in BESIDE {
        std::fs::read(fixture.side_file(suffix)).expect("a file beside it");
    }
}

/// Another process opens the database, uses it and closes it.
fn elsewhere(fixture: &Fixture, sql: &str) {
    let mut other =
        Actor::start(Place::Processes, "elsewhere", &fixture.subject, &fixture.database());
    other.ok(sql);
    other.close().expect("it closes");
}

fn is_sound(fixture: &Fixture, expected: i64) {
    let rest = fixture.open();
    assert_eq!(rows(&rest), expected);
    assert_eq!(rest.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

// holds DEADMAN-2
#[test]
fn a_program_that_archives_its_own_folder_goes_on_and_loses_nothing() {
    for is_member in [false, true] {
        let Some(fixture) = fixture() else { return };
        let connection = fixture.open();
        let mut expected = 1;
        let write = || {
            if is_member {
                connection.execute("BEGIN CONCURRENT").expect("it begins");
            }
            connection.execute(INSERT).expect("a row");
            if is_member {
                connection.execute("COMMIT").expect("it commits");
            }
        };
        write();
        assert_eq!(fixture.side_file("-plait-shm").exists(), is_member);
        let files = beside(&fixture);
        for other in [COUNT, INSERT, COUNT] {
            read_all(&fixture);
            let index = fixture.side_file("-shm");
            assert!(
                os::is_locked(&index, DEAD_MAN).expect("it can be asked"),
                "{is_member}: who comes would cut it"
            );
            elsewhere(&fixture, other);
            assert_eq!(beside(&fixture), files, "{is_member}, {other}: they are in use");
            write();
            expected += 1 + i64::from(other == INSERT);
        }
        assert_eq!(rows(&connection), expected + 1);
        read_all(&fixture);
        connection.close().expect("it closes");
        assert_eq!(beside(&fixture), [None; 2], "{is_member}: it was the last");
        is_sound(&fixture, expected + 1);
    }
}

// holds ALONE-4, DEADMAN-2
#[test]
fn a_lone_connection_whose_locks_another_copy_has_dropped_goes_on_and_nothing_is_lost() {
    let Some(fixture) = fixture() else { return };
    let stock = Subject::stock();
    // Before the next transaction; and before close, which would bring its WAL into the file.
    for closes in [false, true] {
        let before = rows(&fixture.open());
        let lone = fixture.open();
        lone.execute(INSERT).expect("it is alone");
        assert!(!fixture.side_file("-plait-shm").exists());
        let other = stock.open(&fixture.database()).expect("it is a resting file");
        assert_eq!(rows(&other), before + 1);
        other.close().expect("it closes");
        elsewhere(&fixture, INSERT);
        if !closes {
            lone.execute(INSERT).expect("it has locks again");
            elsewhere(&fixture, INSERT);
            assert_eq!(rows(&lone), before + 4);
        }
        lone.close().expect("it closes");
        is_sound(&fixture, before + if closes { 2 } else { 4 });
    }
}
