//! Commits that wait for the base's WAL: who waits reads nothing that it could not read at the WAL's end.

use plait_tests::actor::Actor;
use plait_tests::in_threads_and_processes;
use plait_tests::place::Place;
use plait_tests::sqlite::{BUSY_SNAPSHOT, FULL};
use plait_tests::subject::{Fixture, real_plait};
use std::time::Duration;

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER, filler BLOB);
    INSERT INTO t VALUES(1, 0, NULL), (2, 0, NULL)";
/// Small enough for the memtables.
const COMMIT: &str = "INSERT INTO t(filler) VALUES(zeroblob(100000))";
/// The WAL-index has five marks of how far readers read, and one of them is for those who read the file alone.
const MARKS: usize = 4;
/// Much more than it takes to merge what fills the memory.
const SOON: Duration = Duration::from_secs(30);
/// More than that.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Commits until there is room neither in memory nor in the WAL.
fn fill(filler: &mut Actor) {
    let refused = (0..5000).find_map(|_| filler.run(COMMIT).error);
    assert_eq!(refused.map(|e| e.code), Some(FULL), "there is room for everything");
}

in_threads_and_processes! {
    fn who_reads_the_newest_state_at_an_older_mark_lets_the_wal_begin_anew(place) {
        let Some(subject) = real_plait("marks of the WAL") else { return };
        let fixture = Fixture::new(subject, SCHEMA);
        let start = |name: &str| Actor::start(place, name, &fixture.subject, &fixture.database());
        let mut filler = start("filler");
        filler.ok("PRAGMA plait_background_merge=0");
        let mut readers: Vec<Actor> = Vec::new();
        for mark in 0..=MARKS {
            filler.ok(&format!("UPDATE t SET n=n+1 WHERE id=1; {COMMIT}; PRAGMA wal_checkpoint"));
            let mut reader = start(&format!("reader {mark}"));
            reader.ok("BEGIN; SELECT n FROM t WHERE id=1");
            readers.push(reader);
        }
        filler.ok("UPDATE t SET n=n+1 WHERE id=1; PRAGMA wal_checkpoint");
        filler.ok("PRAGMA plait_wal_limit=10000");
        filler.busy_timeout(Duration::ZERO);
        fill(&mut filler);
        // No mark is left for what the last merge wrote: who begins now reads it all, at the last reader's mark.
        let mut members: Vec<Actor> = (0..2).map(|number| start(&format!("member {number}"))).collect();
        for (id, member) in (1..).zip(&mut members) {
            member.busy_timeout(TIMEOUT);
            member.ok(&format!("BEGIN CONCURRENT; UPDATE t SET n=n+100, filler=zeroblob(110000) WHERE id={id}"));
        }
        for reader in &mut readers {
            reader.ok("COMMIT");
        }
        fill(&mut filler);
        for member in &mut members {
            member.send("COMMIT");
        }
        for member in &mut members {
            let reply = member.finish_within(SOON).expect("they hold the WAL themselves");
            assert_eq!(reply.error, None);
        }
        assert_eq!(filler.integer("SELECT sum(n) FROM t"), 206);
    }

    // holds RIGHT-8
    fn who_is_sent_away_in_his_commit_keeps_his_place(place) {
        let Some(subject) = real_plait("marks of the WAL") else { return };
        let fixture = Fixture::new(subject, SCHEMA);
        let start = |name: &str| Actor::start(place, name, &fixture.subject, &fixture.database());
        let (mut loader, mut first, mut second) = (start("loader"), start("first"), start("second"));
        loader.ok("PRAGMA plait_wal_limit=10000");
        for actor in [&mut loader, &mut first, &mut second] {
            actor.busy_timeout(TIMEOUT);
        }
        first.ok("BEGIN CONCURRENT; UPDATE t SET n=n+1 WHERE id=1");
        // The WAL comes to its limit, and cannot begin anew for the snapshot of the first.
        for _ in 0..2 {
            loader.ok(&format!("{COMMIT}; PRAGMA wal_checkpoint"));
        }
        loader.ok("BEGIN IMMEDIATE");
        first.send("COMMIT");
        assert!(first.still_waits_after(Duration::from_millis(200)), "for the right");
        second.send("BEGIN IMMEDIATE");
        assert!(second.still_waits_after(Duration::from_millis(200)), "behind the first");
        let busy = "SELECT value FROM plait_status WHERE name='busy'";
        let refused = loader.integer(busy);
        loader.ok("PRAGMA application_id=7");
        assert_eq!(loader.integer(busy), refused + 1, "the first was sent away");
        std::thread::sleep(Duration::from_millis(200));
        loader.ok("COMMIT");
        assert_eq!(second.finish_within(SOON).expect("its turn comes").error, None);
        let error = first.finish_within(Duration::from_secs(5)).expect("its turn was before").error;
        assert_eq!(error.map(|e| e.extended), Some(BUSY_SNAPSHOT), "a value of the header was changed");
        second.ok("COMMIT");
    }
}

/// The last of them reads the newest base, at a mark of the WAL behind which a frame was put to bury what the killed one may have left.
#[test]
fn who_is_next_behind_a_killed_one_does_not_wait_for_who_waits_for_him() {
    let Some(subject) = real_plait("marks of the WAL") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let start = |name: &str| {
        let mut actor = Actor::start(Place::Processes, name, &fixture.subject, &fixture.database());
        actor.busy_timeout(TIMEOUT);
        actor
    };
    let large = "UPDATE t SET filler=zeroblob(7400000) WHERE id=2";
    let (mut reader, mut killed, mut next, mut last) =
        (start("reader"), start("killed"), start("next"), start("last"));
    reader.ok("PRAGMA plait_wal_limit=10000");
    next.ok(large);
    reader.ok("BEGIN; SELECT count(*) FROM t");
    next.ok(large);
    killed.send(large);
    assert!(killed.still_waits_after(Duration::from_millis(100)), "for the reader");
    last.ok("BEGIN CONCURRENT; UPDATE t SET n=n+1 WHERE id=1");
    next.send(large);
    assert!(next.still_waits_after(Duration::from_millis(100)), "for the right");
    last.send("COMMIT");
    assert!(last.still_waits_after(Duration::from_millis(100)), "for the right, too");
    killed.kill();
    assert!(next.still_waits_after(Duration::from_millis(300)), "for the reader");
    reader.ok("COMMIT");
    assert_eq!(next.finish_within(SOON).expect("nobody reads any more").error, None);
    let error = last.finish_within(SOON).expect("its turn comes").error;
    assert_eq!(error.map(|e| e.extended), Some(BUSY_SNAPSHOT), "it was changed in bulk");
}
