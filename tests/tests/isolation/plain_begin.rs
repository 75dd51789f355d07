//! A plain BEGIN that adapts: who was refused for what it had read is served next, and so is who is
//! met for the first time.

use plait_tests::actor::Actor;
use plait_tests::in_threads_and_processes;
use plait_tests::place::Place;
use plait_tests::sqlite::{BUSY, BUSY_SNAPSHOT, Connection, ERROR, TransactionState};
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const SCHEMA: &str = "
    CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER);
    INSERT INTO t VALUES(1, 0), (2, 0), (3, 0);
";
const READ: &str = "BEGIN; SELECT n FROM t WHERE id=1";
const WRITE: &str = "UPDATE t SET n=n+1 WHERE id=1";
const SHORT: Duration = Duration::from_millis(300);

fn stage(place: Place) -> Option<(Fixture, Actor, Actor)> {
    let fixture = Fixture::new(real_plait("a plain BEGIN that adapts")?, SCHEMA);
    let start = |name: &str| {
        let mut actor = Actor::start(place, name, &fixture.subject, &fixture.database());
        actor.ok("PRAGMA plait_begin=adaptive");
        actor
    };
    let (one, other) = (start("one"), start("other"));
    Some((fixture, one, other))
}

/// `one` is refused after `READ`, of which it is known before that it may be without the right, and
/// rolls back.
#[track_caller]
fn refused(one: &mut Actor, other: &mut Actor) {
    only_reads(one, READ);
    one.ok(READ);
    other.ok("UPDATE t SET n=n+1 WHERE id=1");
    let error = one.run(WRITE).error.expect("what it has read has changed");
    assert_eq!(error.extended, BUSY_SNAPSHOT, "{error}");
    one.ok("ROLLBACK");
}

/// Whether anybody has the writer's right; asked by `other`, who does not.
fn has_right(other: &mut Actor) -> bool {
    let has_it = "state IN ('writing', 'reading, next to write')";
    other.integer(&format!("SELECT count(*) FROM plait_transactions WHERE {has_it}")) > 0
}

/// Transactions that begin with `read` only read, until that is known.
fn only_reads(one: &mut Actor, read: &str) {
    for _ in 0..8 {
        one.ok(read);
        one.ok("COMMIT");
    }
}

fn begun_early(connection: &Connection) -> i64 {
    let sql = "SELECT value FROM plait_status WHERE name='begun_early'";
    connection.integer(sql).expect("plait_status")
}

in_threads_and_processes! {
    fn who_begins_as_one_did_that_was_refused_takes_the_right_at_its_first_statement(place) {
        let Some((fixture, mut one, mut other)) = stage(place) else { return };
        only_reads(&mut one, READ);
        one.ok(READ);
        assert!(!has_right(&mut other), "nobody was refused yet");
        one.ok("COMMIT");
        refused(&mut one, &mut other);
        let before = begun_early(&fixture.open());
        for read in [READ, "BEGIN; /* again */ SELECT n  FROM t WHERE id=2"] {
            one.ok(read);
            assert!(has_right(&mut other), "{read}");
            one.ok(WRITE);
            one.ok("COMMIT");
        }
        other.ok(READ);
        assert!(has_right(&mut one), "it is known to all");
        other.ok("COMMIT");
        let another = "BEGIN; SELECT n, id FROM t WHERE id=1";
        only_reads(&mut one, another);
        one.ok(another);
        assert!(!has_right(&mut other), "another statement");
        one.ok("COMMIT");
        assert_eq!(begun_early(&fixture.open()) - before, 3 + 8);
    }

    fn who_is_met_for_the_first_time_takes_the_right_until_it_has_only_read_for_a_while(place) {
        let Some((_fixture, mut one, mut other)) = stage(place) else { return };
        let mut early = 0;
        for _ in 0..20 {
            one.ok(READ);
            early += u32::from(has_right(&mut other));
            one.ok("COMMIT");
        }
        assert_eq!(early, 8);
    }

    fn of_two_that_are_met_for_the_first_time_together_the_second_reads_what_the_first_wrote(place) {
        let Some((_fixture, mut one, mut other)) = stage(place) else { return };
        // A machine that stands still for the time that a trial waits lets the second begin.
        let waited = (0..10).any(|nth| {
            let read = format!("BEGIN; SELECT n, {} FROM t WHERE id=1", "n, ".repeat(nth) + "n");
            let before = one.ok(&read)[0][0].clone();
            other.send(&read);
            one.ok(WRITE);
            one.ok("COMMIT");
            let waited = other.finish().rows[0][0] != before;
            if waited {
                other.ok(WRITE);
                other.ok("COMMIT");
            } else {
                other.ok("ROLLBACK");
            }
            waited
        });
        assert!(waited, "the second began beside the first, ten times");
    }

    fn a_trial_waits_for_a_writer_for_a_moment_and_then_reads(place) {
        let Some((_fixture, mut one, mut other)) = stage(place) else { return };
        other.ok("BEGIN IMMEDIATE; UPDATE t SET n=40 WHERE id=1");
        let reply = one.run(READ);
        assert_eq!((reply.error, reply.rows), (None, vec![vec![0.into()]]));
        assert!(reply.took < Duration::from_secs(10), "{:?}", reply.took);
        other.ok("COMMIT");
        one.ok("COMMIT");
    }

    // holds RIGHT-10
    fn no_writer_is_refused_for_who_has_the_right_early_and_has_not_written(place) {
        let Some((_fixture, mut one, mut other)) = stage(place) else { return };
        for (patience, nth) in [(Duration::ZERO, 1), (Duration::from_secs(60), 2)] {
            let read = format!("BEGIN; SELECT n{} FROM t WHERE id=1", ", n".repeat(nth));
            one.ok(&read);
            assert!(has_right(&mut other));
            other.busy_timeout(patience);
            let before = one.integer("SELECT n FROM t WHERE id=1");
            let reply = other.run(WRITE);
            assert_eq!(reply.error, None);
            assert!(reply.took < Duration::from_secs(10), "{:?}", reply.took);
            assert_eq!(one.integer("SELECT n FROM t WHERE id=1"), before, "at the same snapshot");
            assert_eq!(one.run("UPDATE t SET n=9 WHERE id=3").error.map(|error| error.extended), Some(BUSY_SNAPSHOT));
            one.ok("ROLLBACK");
            // Where nothing was changed that it has read it goes on.
            other.busy_timeout(Duration::from_secs(60));
            let read = format!("BEGIN; SELECT n{}, id FROM t WHERE id=1", ", n".repeat(nth));
            one.ok(&read);
            other.busy_timeout(patience);
            other.ok("BEGIN IMMEDIATE; UPDATE t SET n=50 WHERE id=2");
            one.send("UPDATE t SET n=9 WHERE id=3");
            assert!(one.still_waits_after(SHORT), "for the right that it has lost");
            other.ok("COMMIT");
            assert_eq!(one.finish().error, None);
            other.busy_timeout(Duration::ZERO);
            assert_eq!(other.run(WRITE).error.map(|error| error.code), Some(BUSY), "it has written");
            one.ok("COMMIT");
            one.ok("UPDATE t SET n=0 WHERE id=3");
        }
    }

    // holds RIGHT-10
    fn who_has_lost_the_right_and_only_reads_ends_as_one_that_reads(place) {
        let Some((_fixture, mut one, mut other)) = stage(place) else { return };
        for (end, nth) in [("COMMIT", 1), ("ROLLBACK", 2), ("PRAGMA integrity_check; COMMIT", 3)] {
            let read = format!("BEGIN; SELECT n{} FROM t WHERE id=1", ", n".repeat(nth));
            one.ok(&read);
            assert!(has_right(&mut other));
            other.busy_timeout(Duration::ZERO);
            other.ok("BEGIN IMMEDIATE; UPDATE t SET n=n+1 WHERE id=1");
            one.ok(end);
            assert!(has_right(&mut one), "it is not given away: {end}");
            other.ok("COMMIT");
            one.ok(&read);
            assert!(!has_right(&mut other), "tried in vain: {end}");
            one.ok("COMMIT");
        }
    }

    // holds RIGHT-10
    fn who_is_refused_behind_a_lost_right_is_not_served_next(place) {
        let Some((_fixture, mut one, mut other)) = stage(place) else { return };
        one.ok(READ);
        other.ok("BEGIN IMMEDIATE; UPDATE t SET n=7 WHERE id=1");
        one.busy_timeout(Duration::ZERO);
        assert_eq!(one.run(WRITE).error.map(|error| error.extended), Some(BUSY));
        other.ok("COMMIT");
        assert_eq!(one.run(WRITE).error.map(|error| error.extended), Some(BUSY_SNAPSHOT));
        one.ok("ROLLBACK");
        one.ok(READ);
        assert!(!has_right(&mut other), "it would lose the right again");
        one.ok("COMMIT");
    }

    fn who_waits_to_read_is_as_old_as_its_wait(place) {
        let Some((_fixture, mut one, mut other)) = stage(place) else { return };
        refused(&mut one, &mut other);
        other.ok("BEGIN IMMEDIATE");
        one.send(READ);
        assert!(one.still_waits_after(SHORT));
        let oldest = other.integer("SELECT max(age_ms) FROM plait_transactions");
        assert!((0..60_000).contains(&oldest), "{oldest} ms");
        other.ok("COMMIT");
        one.finish();
        one.ok("COMMIT");
    }

    // holds RIGHT-10
    fn a_writer_takes_the_right_before_those_that_wait_to_read_with_it(place) {
        let Some((fixture, mut one, mut other)) = stage(place) else { return };
        let mut waiting: Vec<Actor> = (0..3)
            .map(|nth| {
                let name = format!("waiting {nth}");
                let mut actor = Actor::start(place, &name, &fixture.subject, &fixture.database());
                actor.ok("PRAGMA plait_begin=adaptive");
                actor
            })
            .collect();
        for _ in 0..5 {
            refused(&mut one, &mut other);
            one.ok(READ);
            assert!(has_right(&mut other));
            waiting.iter_mut().for_each(|actor| actor.send(READ));
            other.busy_timeout(Duration::ZERO);
            assert_eq!(other.run("UPDATE t SET n=n+1 WHERE id=2").error, None);
            one.ok("ROLLBACK");
            for actor in &mut waiting {
                assert_eq!(actor.finish().error, None);
                actor.ok("ROLLBACK");
            }
            other.busy_timeout(Duration::from_secs(30));
        }
    }

    /// It has nothing to commit.
    fn who_takes_the_right_to_read_leaves_a_resting_file_as_it_is(place) {
        let Some((fixture, mut one, _)) = stage(place) else { return };
        one.ok("PRAGMA wal_checkpoint(TRUNCATE)");
        let before = std::fs::read(fixture.database()).expect("the file");
        assert_eq!(before[18..20], [2, 2], "it is at rest");
        one.ok(READ);
        assert_eq!(std::fs::read(fixture.database()).expect("the file"), before);
        one.ok("COMMIT");
    }

    fn who_has_the_right_to_read_does_not_keep_the_file_from_coming_to_rest(place) {
        let Some((fixture, mut one, mut other)) = stage(place) else { return };
        other.ok(WRITE);
        other.ok("PRAGMA wal_checkpoint(PASSIVE)");
        one.ok(READ);
        assert!(has_right(&mut other));
        other.ok("PRAGMA wal_checkpoint(TRUNCATE)");
        assert_eq!(std::fs::read(fixture.database()).expect("the file")[18..20], [2, 2]);
        one.ok("COMMIT");
    }

    fn who_thinks_long_between_reading_and_writing_is_not_refused_for_other_rows(place) {
        let Some((_fixture, mut one, mut other)) = stage(place) else { return };
        for _ in 0..3 {
            one.ok(READ);
            other.ok("UPDATE t SET n=n+1 WHERE id=2");
            one.ok(WRITE);
            one.ok("COMMIT");
        }
        assert_eq!(other.integer("SELECT sum(n) FROM t"), 6);
    }

    fn who_waits_for_the_right_at_its_first_statement_reads_what_was_committed_meanwhile(place) {
        let Some((_fixture, mut one, mut other)) = stage(place) else { return };
        refused(&mut one, &mut other);
        other.ok("BEGIN IMMEDIATE; UPDATE t SET n=40 WHERE id=1");
        one.send(READ);
        assert!(one.still_waits_after(SHORT), "for the right");
        other.ok("COMMIT");
        assert_eq!(one.finish().rows, [[40.into()]]);
        one.ok(WRITE);
        one.ok("COMMIT");
        assert_eq!(other.integer("SELECT n FROM t WHERE id=1"), 41);
    }

    fn who_begins_as_one_did_that_changes_the_schema_waits_for_it(place) {
        let Some((_fixture, mut one, mut other)) = stage(place) else { return };
        let look = "BEGIN; SELECT count(*) FROM sqlite_schema WHERE name='made'";
        only_reads(&mut one, look);
        for (change, made) in [("CREATE TABLE made(x)", 1), ("DROP TABLE made", 0)] {
            one.ok(look);
            assert!(!has_right(&mut other), "it has only read: {change}");
            one.ok(change);
            other.send(look);
            assert!(other.still_waits_after(SHORT), "{change}");
            one.ok("COMMIT");
            assert_eq!(other.finish().rows, [[made.into()]], "{change}");
            other.ok("COMMIT");
            // What was learned is forgotten.
            only_reads(&mut one, look);
        }
        for elsewhere in [
            "CREATE TABLE IF NOT EXISTS t(x)",
            "CREATE TEMP TABLE one(x)",
            "EXPLAIN CREATE TABLE made(x)",
            "PRAGMA user_version=7",
        ] {
            one.ok(look);
            one.ok(elsewhere);
            one.ok("COMMIT");
            one.ok(look);
            assert!(!has_right(&mut other), "{elsewhere}");
            one.ok("COMMIT");
        }
    }

    // holds BEGIN-3
    fn who_does_not_get_the_right_within_the_busy_timeout_begins_as_one_that_reads(place) {
        let Some((_fixture, mut one, mut other)) = stage(place) else { return };
        refused(&mut one, &mut other);
        other.ok("BEGIN IMMEDIATE; UPDATE t SET n=40 WHERE id=1");
        one.busy_timeout(SHORT);
        let reply = one.run(READ);
        assert_eq!((reply.error, reply.rows), (None, vec![vec![1.into()]]));
        assert!(reply.took >= SHORT, "{:?}", reply.took);
        other.ok("COMMIT");
        assert_eq!(one.run(WRITE).error.map(|error| error.extended), Some(BUSY_SNAPSHOT));
        one.ok("ROLLBACK");
    }

    fn where_reads_alone_follow_the_right_is_soon_not_taken_any_more(place) {
        let Some((_fixture, mut one, mut other)) = stage(place) else { return };
        refused(&mut one, &mut other);
        let mut early = 0;
        for _ in 0..20 {
            one.ok(READ);
            early += u32::from(has_right(&mut other));
            one.ok("COMMIT");
        }
        assert_eq!(early, 8);
        refused(&mut one, &mut other);
        one.ok(READ);
        assert!(has_right(&mut other), "refused again, served again");
        one.ok("ROLLBACK");
    }

    // holds BEGIN-1
    fn the_right_is_taken_where_a_write_could_begin_and_nowhere_else(place) {
        let Some((fixture, mut one, mut other)) = stage(place) else { return };
        refused(&mut one, &mut other);
        let aside = fixture.path("aside.db");
        let attach = format!("ATTACH '{}' AS aside", aside.display());
        for (before, begin, after) in [
            ("", "BEGIN DEFERRED; SELECT n FROM t WHERE id=1", "COMMIT"),
            ("", "SAVEPOINT s; SELECT n FROM t WHERE id=1", "RELEASE s"),
            ("PRAGMA query_only=1", READ, "COMMIT; PRAGMA query_only=0"),
            ("PRAGMA plait_begin=deferred", READ, "COMMIT; PRAGMA plait_begin=adaptive"),
            (&attach, READ, "COMMIT; DETACH aside"),
        ] {
            one.ok(before);
            one.ok(begin);
            assert!(!has_right(&mut other), "{before} {begin}");
            one.ok(after);
        }
        for begin in [READ, "BEGIN; SAVEPOINT s; SELECT n FROM t WHERE id=1"] {
            one.ok(begin);
            assert!(has_right(&mut other), "{begin}");
            one.ok(WRITE);
            one.ok("COMMIT");
        }
        one.ok("BEGIN; SAVEPOINT s; SELECT n FROM t WHERE id=1; UPDATE t SET n=7 WHERE id=2; ROLLBACK TO s");
        assert!(has_right(&mut other), "as after any write");
        one.ok("COMMIT");
        assert_eq!(other.integer("SELECT n FROM t WHERE id=2"), 0);
    }

    fn a_look_at_pages_in_a_transaction_that_took_the_right_early_is_one_of_a_reader(place) {
        let Some((_fixture, mut one, mut other)) = stage(place) else { return };
        refused(&mut one, &mut other);
        one.ok(READ);
        assert!(has_right(&mut other));
        assert_eq!(one.ok("PRAGMA integrity_check"), [["ok".into()]]);
        assert_eq!(one.integer("SELECT n FROM t WHERE id=1"), 1, "at the same snapshot");
        other.busy_timeout(Duration::ZERO);
        other.ok(WRITE);
        assert_eq!(one.run(WRITE).error.map(|error| error.extended), Some(BUSY_SNAPSHOT), "it has read everything");
        one.ok("ROLLBACK");
    }

    fn a_plain_begin_may_mean_begin_immediate(place) {
        let Some((_fixture, mut one, mut other)) = stage(place) else { return };
        one.ok("PRAGMA plait_begin=immediate");
        one.ok("BEGIN");
        assert!(has_right(&mut other), "at BEGIN");
        other.busy_timeout(Duration::ZERO);
        other.ok("PRAGMA plait_begin=immediate");
        assert_eq!(other.run("BEGIN").error.map(|error| error.code), Some(BUSY));
        other.ok("BEGIN DEFERRED; SELECT * FROM t; COMMIT");
        one.ok("COMMIT");
        other.ok("BEGIN; COMMIT; VACUUM");
    }
}

/// What SQLite calls a read transaction stays one: no commit hook, no rollback hook.
// holds BEGIN-2
#[test]
fn a_transaction_that_took_the_right_and_only_read_is_one_that_reads_for_the_application() {
    let Some((fixture, mut one, mut other)) = stage(Place::Threads) else { return };
    refused(&mut one, &mut other);
    let connection = fixture.open();
    connection.execute("PRAGMA plait_begin=adaptive").expect("a setting");
    let counted = Arc::new(AtomicU32::new(0));
    let count = counted.clone();
    connection.commit_hook(move || {
        count.fetch_add(1, Relaxed);
        true
    });
    for (end, commits) in
        [("COMMIT", 0), ("ROLLBACK", 0), ("UPDATE t SET n=n WHERE id=2; COMMIT", 1)]
    {
        connection.execute(READ).expect("it begins");
        assert!(has_right(&mut other), "{end}");
        assert_eq!(connection.transaction_state(), TransactionState::Read, "{end}");
        connection.execute(end).expect("it ends");
        assert!(!has_right(&mut other), "{end}");
        assert_eq!(counted.swap(0, Relaxed), commits, "{end}");
    }
}

#[test]
fn what_was_learned_outlasts_the_session_in_the_processes_that_know_it() {
    let Some((fixture, mut one, mut other)) = stage(Place::Processes) else { return };
    refused(&mut one, &mut other);
    one.close().expect("it closes");
    other.close().expect("it closes");
    assert!(!fixture.side_file("-plait-shm").exists(), "the session has ended");
    let start = |name| {
        let mut actor = Actor::start(Place::Processes, name, &fixture.subject, &fixture.database());
        actor.ok("PRAGMA plait_begin=adaptive");
        actor
    };
    let mut stranger = start("stranger");
    stranger.ok(READ);
    let mut reader = start("reader");
    assert!(has_right(&mut reader), "it knows nothing");
    stranger.ok("COMMIT");
    only_reads(&mut stranger, READ);
    reader.close().expect("it closes");
    stranger.close().expect("it closes");
    stranger.open(&fixture.database()).expect("it opens");
    stranger.ok("PRAGMA plait_begin=adaptive");
    stranger.ok(READ);
    let mut reader = start("reader");
    assert!(!has_right(&mut reader), "it began the session, and knew");
    stranger.ok("COMMIT");
}

#[test]
fn the_kind_is_said_by_pragma_and_environment_and_is_adaptive_for_programs_that_know_wal_alone() {
    let Some(subject) = real_plait("plait_begin") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let asks = |environment: &[(&str, &str)]| {
        let mut actor = Actor::in_process_with("asks", &fixture.subject, environment);
        actor.open(&fixture.database()).expect("it opens");
        let kind = actor.ok("PRAGMA plait_begin").remove(0).remove(0);
        for kind in ["deferred", "adaptive", "immediate", "concurrent"] {
            assert_eq!(actor.ok(&format!("PRAGMA plait_begin={kind}")), [[kind.into()]]);
        }
        let error = actor.fails("PRAGMA plait_begin=never", ERROR);
        assert!(error.message.contains("deferred, adaptive, immediate or concurrent"), "{error}");
        actor.close().expect("it closes");
        kind
    };
    let concurrent = ("PLAIT_JOURNAL_MODE", "concurrent");
    assert_eq!(asks(&[]), "deferred".into());
    assert_eq!(asks(&[concurrent]), "adaptive".into());
    assert_eq!(asks(&[concurrent, ("PLAIT_BEGIN", "deferred")]), "deferred".into());
    for kind in ["adaptive", "immediate", "concurrent"] {
        assert_eq!(asks(&[("PLAIT_BEGIN", kind)]), kind.into());
    }
}

/// Some repeat what was refused with SQLITE_BUSY alone.
#[test]
fn programs_that_know_wal_alone_are_told_a_conflict_as_busy_unless_they_want_its_code() {
    let Some(subject) = real_plait("PLAIT_BUSY_SNAPSHOT") else { return };
    let told = |subject: &Subject, environment: &[(&str, &str)]| {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        let start = |name| {
            let mut actor = Actor::in_process_with(name, subject, environment);
            actor.open(&fixture.database()).expect("it opens");
            actor
        };
        let (mut one, mut other) = (start("one"), start("other"));
        one.ok("PRAGMA plait_begin=deferred; BEGIN; SELECT n FROM t WHERE id=1");
        other.ok(WRITE);
        let error = one.run(WRITE).error.expect("it is refused");
        let again = one.run(WRITE).error.expect("and again");
        assert_eq!(error, again);
        one.ok(
            "ROLLBACK; BEGIN CONCURRENT; SELECT n FROM t WHERE id=1; UPDATE t SET n=0 WHERE id=1",
        );
        other.ok(WRITE);
        let commit = one.run("COMMIT").error.expect("it is refused");
        assert_eq!((commit.code, commit.extended), (error.code, error.extended));
        let doomed = one.run("COMMIT").error.expect("and stays so");
        assert_eq!((commit.extended, &commit.message), (doomed.extended, &doomed.message));
        one.ok("ROLLBACK");
        assert_eq!(one.integer("SELECT n FROM t WHERE id=1"), 2);
        (error.extended, error.message)
    };
    let concurrent = ("PLAIT_JOURNAL_MODE", "concurrent");
    let locked = "database is locked".to_owned();
    assert_eq!(told(&subject, &[concurrent]), (BUSY, locked.clone()));
    let wants = [concurrent, ("PLAIT_BUSY_SNAPSHOT", "snapshot")];
    assert_eq!(told(&subject, &wants), (BUSY_SNAPSHOT, locked));
    let (code, text) = told(&subject, &[("PLAIT_BUSY_SNAPSHOT", "busy")]);
    assert_eq!(code, BUSY);
    assert!(text.contains("conflict on table \"t\", rowid 1: row was changed"), "{text}");
    assert!(text.ends_with("ROLLBACK and retry; BEGIN IMMEDIATE avoids this"), "{text}");
    assert_eq!(told(&subject, &[]).0, BUSY_SNAPSHOT);
}

#[test]
fn a_row_that_many_conflicts_are_on_is_called_hot() {
    let Some(subject) = real_plait("hot rows") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let (one, other) = (fixture.open(), fixture.open());
    for n in 1..=5 {
        one.execute("BEGIN; SELECT n FROM t WHERE id=1").expect("it reads");
        other.execute(WRITE).expect("it writes");
        let error = one.execute(WRITE).expect_err("it is refused");
        let hot = format!("rowid 1, a hot row ({n} of the last {n} conflicts): row was changed");
        assert_eq!(error.message.contains(&hot), n >= 4, "{error}");
        one.execute("ROLLBACK").expect("it ends");
    }
}
