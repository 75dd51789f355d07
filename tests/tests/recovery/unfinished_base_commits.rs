//! Commits of the base that its WAL has and the WAL-index does not show, since their author died in between, never count later: what
//! others committed after that is not lost, and they are not refused.

use plait_tests::actor::Actor;
use plait_tests::os;
use plait_tests::place::Place;
use plait_tests::planted::must_be_reported;
use plait_tests::sqlite::Connection;
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::time::Duration;

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY); INSERT INTO t VALUES(1)";
/// Passages of `wal.written` in the first transaction of a session and its last close.
const FENCE_RAISED: &str = "wal.written:1";
const FENCE_TAKEN_DOWN: &str = "wal.written:3";

/// A process that stands still at a passage of that point.
fn stopping(fixture: &Fixture, at: &str) -> Actor {
    let subject = Subject::plait_with_crash_points();
    let at = ("PLAIT_STOP_AT", at);
    let mut actor = Actor::start_with_environment("stopped", &subject, &fixture.database(), at);
    actor.ok("BEGIN CONCURRENT; SELECT * FROM t");
    actor
}

#[track_caller]
fn has(connection: &Connection, rows: i64) {
    assert_eq!(connection.integer("SELECT count(*) FROM t"), Ok(rows), "acknowledged rows");
    assert_eq!(connection.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

/// The files at rest, as stock SQLite has them.
#[track_caller]
fn rests_with(fixture: Fixture, rows: i64) {
    let last = fixture.subject.open(&fixture.database());
    let last = last.expect("what was killed is settled, and nothing of it comes later");
    has(&last, rows);
    last.execute("INSERT INTO t VALUES(1000)").expect("it goes on");
    last.close().expect("it closes");
    has(&Subject::stock().open(&fixture.database()).expect("stock opens it"), rows + 1);
}

#[test]
fn a_fence_that_was_being_taken_down_is_up_for_who_goes_on() {
    os::allow_alone();
    let Some(subject) = real_plait("a fence not taken down") else { return };
    for ends_well in [false, true] {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        let mut first = stopping(&fixture, FENCE_TAKEN_DOWN);
        first.ok("INSERT INTO t VALUES(2); COMMIT");
        first.send_close();
        first.await_stop();
        // It has the WAL-index, and waits for who is at the last close.
        let mut second = Actor::start(Place::Processes, "second", &subject, &fixture.database());
        second.busy_timeout(Duration::from_secs(30));
        second.send("BEGIN CONCURRENT; INSERT INTO t VALUES(3); COMMIT; INSERT INTO t VALUES(4)");
        assert!(second.still_waits_after(Duration::from_millis(300)));
        first.kill();
        assert_eq!(second.finish().error, None);
        match ends_well {
            true => second.close().expect("it closes"),
            false => second.kill(),
        }
        rests_with(fixture, 4);
    }
}

#[test]
fn a_fence_that_was_being_raised_does_not_outlive_its_session() {
    os::allow_alone();
    let Some(subject) = real_plait("a fence not raised") else { return };
    for reads in [false, true] {
        for others_end_well in [false, true] {
            let fixture = Fixture::new(subject.clone(), SCHEMA);
            let start = |name| Actor::start(Place::Processes, name, &subject, &fixture.database());
            // Who was alone joins as soon as it is no more, and is then the only member.
            let mut second = start("second");
            second.ok("SELECT * FROM t");
            let mut third = start("third");
            third.ok("SELECT * FROM t");
            let mut first = stopping(&fixture, FENCE_RAISED);
            first.send("INSERT INTO t VALUES(2); COMMIT");
            first.await_stop();
            first.kill();
            if reads {
                assert_eq!(second.integer("SELECT count(*) FROM t"), 1);
            }
            second.close().expect("it closes");
            match others_end_well {
                true => third.close().expect("it closes"),
                false => third.kill(),
            }
            rests_with(fixture, 1);
        }
    }
}

#[test]
fn a_library_that_lets_them_count_is_caught() {
    for test in [
        "a_fence_that_was_being_taken_down_is_up_for_who_goes_on",
        "a_fence_that_was_being_raised_does_not_outlive_its_session",
    ] {
        must_be_reported("fence.unseen", test, &["nothing of it comes later", "acknowledged rows"]);
    }
}
