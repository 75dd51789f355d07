//! How much of the address space of a process an open database takes, and a process that has no more of it.

use plait_tests::actor::Actor;
use plait_tests::os::{self, Limited, mapped_bytes};
use plait_tests::place::Place;
use plait_tests::sqlite::Connection;
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::time::Duration;

const MIB: u64 = 1 << 20;
const NOMEM: i32 = 7;
const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, val)";
const COUNT: &str = "SELECT count(*) FROM t";

/// Commits so many rows of 300 kB: more than small memtables take.
fn load(connection: &Connection, rows: u32) {
    for _ in 0..rows {
        connection
            .execute("BEGIN CONCURRENT; INSERT INTO t(val) VALUES(randomblob(300000)); COMMIT")
            .expect("a row");
    }
}

/// Lets the process have little more address space than it has.
fn leave_little(actor: &Actor) {
    let status = std::fs::read_to_string(format!("/proc/{}/statm", actor.pid())).expect("there");
    let pages: u64 = status.split(' ').next().and_then(|n| n.parse().ok()).expect("a size");
    os::limit(actor.pid(), Limited::Memory, Some(pages * 4096 + 24 * MIB)).expect("a limit");
}

fn give_back(actor: &Actor) {
    os::limit(actor.pid(), Limited::Memory, None).expect("no limit");
}

fn poor(fixture: &Fixture, subject: &Subject) -> Actor {
    let mut poor = Actor::start(Place::Processes, "poor", subject, &fixture.database());
    poor.busy_timeout(Duration::from_millis(300));
    poor.ok("INSERT INTO t(val) VALUES(0)");
    leave_little(&poor);
    poor
}

#[test]
fn a_database_takes_little_address_space_until_there_is_load() {
    let Some(subject) = real_plait("address space") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let memory = format!("{}-plait-shm", fixture.database().display());
    let mapped = || mapped_bytes(&memory).expect("a list");
    let connections = [(); 3].map(|()| fixture.open());
    for round in 0..20 {
        for connection in &connections {
            connection
                .execute("BEGIN CONCURRENT; INSERT INTO t(val) VALUES(1); COMMIT")
                .expect("a row");
        }
        // Merges take turns with two memtables.
        if round % 5 == 0 {
            connections[0].execute("PRAGMA wal_checkpoint").expect("a merge");
        }
    }
    assert!(mapped() < 8 * MIB, "{} bytes without load", mapped());
    load(&connections[0], 30);
    assert!(mapped() > 160 * MIB, "{} bytes under load", mapped());
    assert_eq!(connections[1].integer(COUNT), Ok(90));
    assert_eq!(connections[2].text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

// holds MAPPING-3
#[test]
fn a_process_without_address_space_is_told_so_and_stops_nobody() {
    let Some(subject) = real_plait("address space") else { return };
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let other = fixture.open();
    let mut poor = poor(&fixture, &subject);
    poor.ok("BEGIN; SELECT count(*) FROM t");
    load(&other, 30);
    assert_eq!(poor.integer(COUNT), 1, "what it has begun to read it can read on");
    poor.ok("COMMIT");
    // What was committed meanwhile is in memtables that it cannot map.
    for sql in [COUNT, "INSERT INTO t(val) VALUES(0)", "DELETE FROM t", "PRAGMA wal_checkpoint"] {
        poor.fails(sql, NOMEM);
    }
    poor.fails("BEGIN IMMEDIATE", NOMEM);
    load(&other, 30);
    assert_eq!(other.integer(COUNT), Ok(61));
    give_back(&poor);
    poor.ok("BEGIN IMMEDIATE; INSERT INTO t(val) VALUES(0); COMMIT");
    assert_eq!(poor.integer(COUNT), 62);
    poor.close().expect("it closes");
    assert_eq!(other.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

#[test]
fn a_transaction_that_would_need_more_of_it_fails_as_a_whole() {
    let Some(subject) = real_plait("address space") else { return };
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let other = fixture.open();
    let mut poor = poor(&fixture, &subject);
    let large = "INSERT INTO t(val) VALUES(zeroblob(3000000))";
    poor.fails(large, NOMEM);
    poor.ok("BEGIN CONCURRENT; INSERT INTO t(val) VALUES(1)");
    poor.ok(large);
    poor.fails("COMMIT", NOMEM);
    poor.run("ROLLBACK");
    assert_eq!(other.integer(COUNT), Ok(1));
    // Small ones go on.
    poor.ok("INSERT INTO t(val) VALUES(0)");
    assert_eq!(other.integer(COUNT), Ok(2));
    give_back(&poor);
    poor.ok(large);
    assert_eq!(other.integer(COUNT), Ok(3));
    poor.close().expect("it closes");
    assert_eq!(other.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

#[test]
fn what_a_dead_process_has_left_is_repaired_by_the_next_that_can() {
    let Some(subject) = real_plait("crash points") else { return };
    for point in ["commit.locked", "commit.published", "commit.inserted"] {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        let other = fixture.open();
        let mut poor = poor(&fixture, &subject);
        load(&other, 20);
        let crashing = Subject::plait_with_crash_points();
        let at = [("PLAIT_CRASH_AT", point)];
        let mut victim = Actor::in_process_with("victim", &crashing, &at);
        victim.open(&fixture.database()).expect("it opens");
        victim.send("INSERT INTO t(val) VALUES(-1)");
        victim.await_death();
        for _ in 0..2 {
            poor.fails("INSERT INTO t(val) VALUES(0)", NOMEM);
        }
        let rows = 21 + i64::from(point != "commit.locked");
        assert_eq!(other.integer(COUNT), Ok(rows), "{point}");
        load(&other, 20);
        assert_eq!(other.text("PRAGMA integrity_check").as_deref(), Ok("ok"), "{point}");
        give_back(&poor);
        poor.ok("INSERT INTO t(val) VALUES(0)");
        assert_eq!(other.integer(COUNT), Ok(rows + 21), "{point}");
    }
}

#[test]
fn a_process_without_address_space_that_is_alone_goes_on_with_small_memtables() {
    let Some(subject) = real_plait("address space") else { return };
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let mut poor = poor(&fixture, &subject);
    for _ in 0..400 {
        poor.ok("BEGIN CONCURRENT; INSERT INTO t(val) VALUES(randomblob(20000)); COMMIT");
    }
    poor.ok("PRAGMA wal_checkpoint");
    assert_eq!(poor.integer(COUNT), 401);
    poor.close().expect("it closes");
    assert!(!fixture.path("app.db-plait").exists(), "the file is at rest");
    let other = fixture.open();
    assert_eq!(other.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

/// One small memtable is frozen and the other one has little: to merge the first is what makes room.
#[test]
fn a_process_without_address_space_merges_changes_the_schema_and_comes_to_rest() {
    let Some(subject) = real_plait("address space") else { return };
    for rows in [7, 11] {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        let mut poor = poor(&fixture, &subject);
        for _ in 0..rows {
            poor.ok("BEGIN CONCURRENT; INSERT INTO t(val) VALUES(randomblob(300000)); COMMIT");
        }
        for sql in ["CREATE TABLE more(a)", "PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM"] {
            poor.ok(sql);
            poor.ok("BEGIN CONCURRENT; INSERT INTO more VALUES(1); COMMIT");
        }
        assert_eq!(poor.integer(COUNT), rows + 1);
        poor.close().expect("it closes");
        assert!(!fixture.path("app.db-plait").exists(), "the file is at rest");
        let other = fixture.open();
        assert_eq!(other.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    }
}

/// It stops where its part is about to be prepared, and where it has been; then the file has load.
#[test]
fn a_commit_over_two_files_without_address_space_ends_and_leaves_the_rest_to_others() {
    if real_plait("crash points").is_none() {
        return;
    }
    let subject = Subject::plait_with_crash_points();
    for (point, decided) in [("several.referenced", false), ("several.decided", true)] {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        let second = fixture.path("second.db");
        subject.create(&second).expect("a second file").execute(SCHEMA).expect("its table");
        let other = fixture.open();
        other.busy_timeout(Duration::from_secs(10)).expect("a timeout");
        load(&other, 2);
        let at = ("PLAIT_STOP_AT", point);
        let mut poor = Actor::start_with_environment("poor", &subject, &fixture.database(), at);
        poor.ok(&format!("ATTACH '{}' AS second", second.display()));
        poor.ok(
            "BEGIN CONCURRENT; INSERT INTO t VALUES(70, 1); INSERT INTO second.t VALUES(70, 1)",
        );
        poor.send("COMMIT");
        poor.await_stop();
        leave_little(&poor);
        // A merge has a large memtable ready behind one that had more than a little.
        other.execute("PRAGMA wal_checkpoint").expect("an attempt");
        os::resume(poor.pid()).expect("it goes on");
        let error = poor.finish_within(Duration::from_secs(10)).expect("it ends").error;
        assert!(
            decided || error.is_none() || error.as_ref().is_some_and(|e| e.code == NOMEM),
            "{error:?}"
        );
        let committed = error.is_none() || decided;
        load(&other, 20);
        assert_eq!(other.integer(COUNT), Ok(22 + i64::from(committed)), "{point}: {error:?}");
        give_back(&poor);
        poor.run("ROLLBACK");
        let second = subject.open(&second).expect("it opens");
        assert_eq!(second.integer(COUNT), Ok(i64::from(committed)), "{point}");
        poor.close().expect("it closes");
        assert_eq!(other.text("PRAGMA integrity_check").as_deref(), Ok("ok"), "{point}");
    }
}
