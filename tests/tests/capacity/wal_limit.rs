//! Past the limit of the base's WAL what needs everything in the file waits for the reader who is in the way, and no longer than it is to.

use plait_tests::actor::Actor;
use plait_tests::in_threads_and_processes;
use plait_tests::place::Place;
use plait_tests::sqlite::{BUSY, Connection};
use plait_tests::subject::{Fixture, real_plait};
use std::time::{Duration, Instant};

const SCHEMA: &str =
    "CREATE TABLE t(id INTEGER PRIMARY KEY, data BLOB); INSERT INTO t VALUES(1, NULL)";
/// More than a transaction may have on the concurrent path: it goes to the base directly.
const LARGE: &str = "INSERT INTO t(data) SELECT zeroblob(1000000) FROM (VALUES(1),(2),(3),(4),(5),(6),(7),(8),(9),(10))";
/// A reader ends after so long, and nobody waits much longer.
const READER_LASTS: Duration = Duration::from_millis(400);
const PATIENT: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(20);

/// What is exclusive, or copies the file.
const EXCLUSIVE: [&str; 6] = [
    "CREATE TABLE made(x); DROP TABLE made",
    "BEGIN IMMEDIATE; PRAGMA application_id=7; INSERT INTO t(data) VALUES('exclusive'); COMMIT",
    "BEGIN; SELECT count(*) FROM t; CREATE TABLE made(x); ROLLBACK",
    "VACUUM",
    "PRAGMA user_version=5",
    LARGE,
];

/// A reader, and a WAL past its limit, all of it written by transactions that change the base directly.
fn past_the_limit(place: Place, fixture: &Fixture) -> (Actor, Connection) {
    let writer = fixture.open();
    writer.execute("PRAGMA synchronous=NORMAL; PRAGMA plait_wal_limit=4000000").expect("settings");
    let mut reader = Actor::start(place, "reader", &fixture.subject, &fixture.database());
    reader.ok("BEGIN");
    reader.integer("SELECT count(*) FROM t");
    writer.execute(LARGE).expect("below the limit");
    (reader, writer)
}

fn status(connection: &Connection, name: &str) -> i64 {
    connection
        .integer(&format!("SELECT value FROM plait_status WHERE name='{name}'"))
        .expect("it is a row of plait_status")
}

in_threads_and_processes! {
    fn exclusive_transactions_wait_for_the_reader_who_holds_the_wal(place) {
        let Some(subject) = real_plait("the limit of the WAL") else { return };
        for sql in EXCLUSIVE {
            let fixture = Fixture::new(subject.clone(), SCHEMA);
            let (mut reader, writer) = past_the_limit(place, &fixture);
            assert!(status(&writer, "base_wal_bytes") > 4_000_000, "what they have written counts");
            let mut other = Actor::start(place, "other", &fixture.subject, &fixture.database());
            other.busy_timeout(PATIENT);
            other.send(sql);
            assert!(other.still_waits_after(READER_LASTS), "{sql} does not wait");
            reader.ok("COMMIT");
            let reply = other.finish_within(SOON).unwrap_or_else(|| panic!("{sql} waits for nobody"));
            assert_eq!(reply.error, None, "{sql}");
            assert_eq!(writer.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
        }
    }

    fn without_patience_they_are_busy_and_say_who_is_in_the_way(place) {
        let Some(subject) = real_plait("the limit of the WAL") else { return };
        let fixture = Fixture::new(subject, SCHEMA);
        let (mut reader, writer) = past_the_limit(place, &fixture);
        writer.busy_timeout(Duration::ZERO).expect("a timeout");
        for sql in ["CREATE TABLE made(x)", "PRAGMA user_version=7", LARGE] {
            let error = writer.execute(sql).expect_err("the reader is in the way");
            assert_eq!(error.code, BUSY, "{sql}: {error}");
            for word in ["plait_wal_limit", "oldest reader"] {
                assert!(error.message.contains(word), "{sql} does not name {word}: {error}");
            }
            assert!(writer.autocommit(), "{sql} leaves a transaction");
        }
        writer.execute("INSERT INTO t(data) VALUES('small')").expect("there is room in memory");
        reader.ok("COMMIT");
        writer.execute("CREATE TABLE made(x)").expect("nobody is in the way");
        assert_eq!(writer.integer("SELECT count(*) FROM t"), Ok(12));
    }

    fn their_waits_take_one_timeout_together(place) {
        let Some(subject) = real_plait("the limit of the WAL") else { return };
        let fixture = Fixture::new(subject, SCHEMA);
        let (mut reader, writer) = past_the_limit(place, &fixture);
        let mut holder = Actor::start(place, "holder", &fixture.subject, &fixture.database());
        for sql in ["CREATE TABLE made(x)", "PRAGMA user_version=7"] {
            holder.ok("BEGIN IMMEDIATE");
            writer.busy_timeout(Duration::from_secs(6)).expect("a timeout");
            let begun = Instant::now();
            std::thread::scope(|scope| {
                let refused = scope.spawn(|| writer.execute(sql));
                // Most of the time passes in the wait for the writer's right, which then is there.
                std::thread::sleep(Duration::from_secs(4));
                holder.ok("COMMIT");
                let error = refused.join().expect("no panic").expect_err("the reader is in the way");
                assert_eq!(error.code, BUSY, "{sql}: {error}");
            });
            // With a timeout for each it were ten seconds.
            assert!(begun.elapsed() < Duration::from_secs(9), "{sql} has waited {:?}", begun.elapsed());
        }
        reader.ok("COMMIT");
        writer.execute("CREATE TABLE made(x)").expect("nobody is in the way");
    }

    fn a_transaction_that_holds_the_wal_itself_becomes_exclusive_all_the_same(place) {
        let Some(subject) = real_plait("the limit of the WAL") else { return };
        let fixture = Fixture::new(subject, SCHEMA);
        let (mut reader, writer) = past_the_limit(place, &fixture);
        writer.execute("INSERT INTO t(data) VALUES('small')").expect("there is room in memory");
        reader.busy_timeout(PATIENT);
        reader.send("CREATE TABLE made(x)");
        let reply = reader.finish_within(SOON).expect("it waits for itself");
        // What it has read has changed: that is said, and not that somebody is in the way.
        assert!(reply.error.is_some_and(|e| e.extended == plait_tests::sqlite::BUSY_SNAPSHOT));
        reader.ok("ROLLBACK");
        writer.execute("CREATE TABLE aside(x)").expect("nobody holds the WAL");
    }
}

#[test]
fn copies_wait_for_the_reader_as_well() {
    let Some(subject) = real_plait("the limit of the WAL") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let (mut reader, writer) = past_the_limit(Place::Threads, &fixture);
    writer.execute("INSERT INTO t(data) VALUES('small')").expect("there is room in memory");
    let path = fixture.database();
    let target = fixture.subject.open(&path.with_extension("copy")).expect("a file for the copy");
    std::thread::scope(|scope| {
        let copy = scope.spawn(|| writer.backup_to(&target));
        std::thread::sleep(READER_LASTS);
        assert!(!copy.is_finished(), "it does not wait");
        reader.ok("COMMIT");
        assert_eq!(copy.join().expect("no panic"), Ok(()));
    });
    assert_eq!(target.integer("SELECT count(*) FROM t"), Ok(12));
}
