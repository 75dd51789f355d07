//! The files of a database whose processes have died, copied or moved elsewhere together: what was acknowledged goes with them, also what
//! NORMAL and OFF had not written to the log yet.

use plait_tests::actor::Actor;
use plait_tests::place::Place;
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::path::{Path, PathBuf};

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, v); CREATE INDEX v ON t(v)";
const SUFFIXES: [&str; 4] = ["", "-wal", "-plait", "-plait-shm"];

/// Copies what is there, and nothing else; returns the copy of the database file.
fn copied(fixture: &Fixture, folder: &Path, suffixes: &[&str]) -> PathBuf {
    for suffix in suffixes {
        let from = fixture.side_file(suffix);
        if from.exists() {
            std::fs::copy(from, folder.join(format!("app.db{suffix}"))).expect("a copy");
        }
    }
    folder.join("app.db")
}

/// The numbers of the rows, when the database rests, as stock SQLite reads them.
#[track_caller]
fn rows(subject: &Subject, database: &Path) -> Vec<i64> {
    let opened = subject.open(database).expect("it opens");
    opened.execute("INSERT INTO t VALUES(-1, 0); DELETE FROM t WHERE id=-1").expect("it goes on");
    opened.close().expect("it closes");
    let stock = Subject::stock().open(database).expect("stock opens it");
    assert_eq!(stock.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    let rows = stock.query("SELECT id FROM t ORDER BY id").expect("rows");
    rows.iter().map(|row| row[0].as_i64().expect("a number")).collect()
}

/// What a process has written in many transactions of many sizes when it is killed: rows `0..`, so many.
fn killed(subject: &Subject, fixture: &Fixture, synchronous: &str, sizes: &[i64]) -> i64 {
    let mut actor = Actor::start(Place::Processes, "writer", subject, &fixture.database());
    actor.ok(&format!("PRAGMA synchronous={synchronous}"));
    let mut written = 0;
    for (i, &size) in sizes.iter().enumerate() {
        let begin = ["BEGIN CONCURRENT", "BEGIN IMMEDIATE"][i % 2];
        actor.ok(&format!(
            "{begin}; WITH RECURSIVE n(i) AS (VALUES({written}) UNION ALL SELECT i+1 FROM n WHERE i<{written}+{size}-1) \
             INSERT INTO t SELECT i, hex(randomblob(i%200)) FROM n; COMMIT"
        ));
        written += size;
        if i == sizes.len() / 2 {
            // Frames behind it rely on the file, or on its WAL.
            actor.ok("CREATE TABLE IF NOT EXISTS other(a)");
        }
    }
    actor.kill();
    written
}

#[test]
fn all_of_it_is_in_a_copy_of_all_files() {
    let Some(subject) = real_plait("moved files") else { return };
    for synchronous in ["OFF", "NORMAL", "FULL"] {
        for sizes in [&[1, 1, 1][..], &[5; 100], &[1, 300, 2, 3000, 1, 1], &[40_000, 1, 7]] {
            let fixture = Fixture::new(subject.clone(), SCHEMA);
            let written = killed(&subject, &fixture, synchronous, sizes);
            let folder = tempfile::tempdir().expect("a folder");
            let copy = copied(&fixture, folder.path(), &SUFFIXES);
            let expected: Vec<i64> = (0..written).collect();
            assert!(rows(&subject, &copy) == expected, "{synchronous}, {sizes:?}");
            // The copying has changed nothing where it came from.
            assert!(rows(&subject, &fixture.database()) == expected, "{synchronous}, {sizes:?}");
        }
    }
}

/// As after a power cut: the beginning of the order of commits.
#[test]
fn without_shared_memory_a_copy_has_what_the_log_had() {
    let Some(subject) = real_plait("moved files without shared memory") else { return };
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let written = killed(&subject, &fixture, "NORMAL", &[5; 100]);
    let folder = tempfile::tempdir().expect("a folder");
    let copy = copied(&fixture, folder.path(), &SUFFIXES[..3]);
    let found = rows(&subject, &copy);
    assert_eq!(found, (0..found.len() as i64).collect::<Vec<_>>());
    assert!(found.len() as i64 <= written && found.len().is_multiple_of(5), "{}", found.len());
}

/// Files of two moments are no worse than the older of them.
#[test]
fn files_that_were_copied_while_others_wrote_hold_a_state_that_was_once_there() {
    let Some(subject) = real_plait("files copied beside writers") else { return };
    for order in [["", "-wal", "-plait", "-plait-shm"], ["-plait-shm", "", "-wal", "-plait"]] {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        let mut actor = Actor::start(Place::Processes, "writer", &subject, &fixture.database());
        actor.ok("PRAGMA synchronous=NORMAL; INSERT INTO t VALUES(0, 0)");
        let folder = tempfile::tempdir().expect("a folder");
        let mut next = 1;
        for suffix in order {
            copied(&fixture, folder.path(), &[suffix]);
            for _ in 0..50 {
                actor.ok(&format!("INSERT INTO t VALUES({next}, {next})"));
                next += 1;
            }
        }
        let found = rows(&subject, &folder.path().join("app.db"));
        assert_eq!(found, (0..found.len() as i64).collect::<Vec<_>>(), "{order:?}");
        actor.kill();
    }
}
