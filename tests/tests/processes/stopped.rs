//! A process is stopped at each named step of the engine. Nobody hangs: what others call ends in success or in a documented error, and
//! when the process goes on, or is killed, everything goes on; nothing acknowledged is lost, and nothing refused is there.
//!
//! PLAIT_TEST_POINT=commit runs the steps whose names begin so.

use plait_tests::actor::Actor;
use plait_tests::os;
use plait_tests::place::Place;
use plait_tests::sqlite::{BUSY, FULL};
use plait_tests::stopped::{Ending, Role, points, stop_at};
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const ROLES: [Role; 3] = [Role::Normal, Role::Full, Role::Reader];
/// They mostly sleep.
const AT_A_TIME: usize = 8;

fn stop_at_each(ending: Ending) {
    if real_plait("stopped processes").is_none() {
        return;
    }
    let subject = Subject::plait_with_crash_points();
    let only = std::env::var("PLAIT_TEST_POINT").unwrap_or_default();
    let points: Vec<_> =
        points().into_iter().filter(|(point, _)| point.starts_with(&only)).collect();
    let next = AtomicUsize::new(0);
    let complaints = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some((point, passage)) = points.get(next.fetch_add(1, Relaxed)) {
                    let report = stop_at(&subject, point, *passage, &ROLES, ending);
                    let mut all = complaints.lock().expect("no panic");
                    all.extend(report.complaints.iter().map(|what| format!("{point}: {what}")));
                }
            });
        }
    });
    let complaints = complaints.into_inner().expect("no panic");
    assert!(complaints.is_empty(), "{ending:?}:\n{}", complaints.join("\n"));
}

#[test]
fn nobody_hangs_beside_a_process_that_is_stopped_at_any_step_and_goes_on_later() {
    stop_at_each(Ending::Continued);
}

// holds COMMIT-5
#[test]
fn nobody_hangs_beside_a_process_that_is_stopped_at_any_step_and_killed_later() {
    stop_at_each(Ending::Killed);
}

/// Far less than any busy timeout here, and far more than what does not wait needs.
const PROMPT: Duration = Duration::from_secs(5);

/// What waits for the right in the process that is stopped.
const WAITING: [&str; 4] = [
    "INSERT INTO t VALUES(2)",
    "BEGIN IMMEDIATE",
    "CREATE TABLE u(x)",
    "BEGIN; SELECT * FROM o; INSERT INTO t VALUES(2)",
];

/// Who waits is not given the right while he stands still, and keeps his place.
// holds RIGHT-9
#[test]
fn a_stopped_process_in_the_queue_holds_nobody_up() {
    let Some(subject) = real_plait("a stopped process in the queue") else { return };
    for (sql, stopped_first) in WAITING.into_iter().flat_map(|sql| [(sql, true), (sql, false)]) {
        let fixture = Fixture::new(
            subject.clone(),
            "CREATE TABLE t(id INTEGER PRIMARY KEY); CREATE TABLE o(x)",
        );
        let start = |name| {
            let mut actor =
                Actor::start(Place::Processes, name, &fixture.subject, &fixture.database());
            actor.busy_timeout(Duration::from_secs(40));
            actor.ok("SELECT * FROM t");
            actor
        };
        let (mut holder, mut stopped, mut behind, mut late) =
            (start("holder"), start("stopped"), start("behind"), start("late"));
        holder.ok("BEGIN IMMEDIATE; INSERT INTO t VALUES(1)");
        stopped.send(sql);
        assert!(stopped.still_waits_after(Duration::from_millis(100)), "{sql}");
        if stopped_first {
            os::suspend(stopped.pid()).expect("it is stopped");
        }
        behind.send("INSERT INTO t VALUES(3)");
        assert!(behind.still_waits_after(Duration::from_millis(100)), "{sql}");
        if !stopped_first {
            os::suspend(stopped.pid()).expect("it is stopped");
        }
        let begun = Instant::now();
        holder.ok("COMMIT");
        assert_eq!(behind.finish_within(PROMPT).expect("it is passed by").error, None, "{sql}");
        for id in 10..40 {
            late.ok(&format!("BEGIN IMMEDIATE; INSERT INTO t VALUES({id}); COMMIT"));
        }
        assert!(begun.elapsed() < PROMPT, "{sql}: {:?}", begun.elapsed());
        // It is the first of all who wait when it goes on.
        late.ok("BEGIN IMMEDIATE");
        behind.send("INSERT INTO t VALUES(4)");
        assert!(behind.still_waits_after(Duration::from_millis(100)), "{sql}");
        os::resume(stopped.pid()).expect("it goes on");
        assert!(stopped.still_waits_after(Duration::from_millis(200)), "{sql}");
        late.ok("COMMIT");
        assert_eq!(stopped.finish_within(PROMPT).expect("its turn comes").error, None, "{sql}");
        if sql.starts_with("BEGIN") {
            assert!(behind.still_waits_after(Duration::from_millis(50)), "{sql}: it has the right");
            stopped.ok("COMMIT");
        }
        assert_eq!(behind.finish_within(PROMPT).expect("its turn comes").error, None, "{sql}");
    }
}

/// The right of one who gives it back while the commit mutex is held by a process that is stopped goes to the next all the same.
// holds OWED-1
#[test]
fn what_is_given_back_behind_a_stopped_process_is_there_when_it_goes_on_or_dies() {
    if real_plait("a right given back behind a stopped process").is_none() {
        return;
    }
    for (closes, dies) in [(false, false), (true, false), (false, true), (true, true)] {
        let subject = Subject::plait_with_crash_points();
        let fixture = Fixture::new(subject, "CREATE TABLE t(id INTEGER PRIMARY KEY)");
        let start =
            |name| Actor::start(Place::Processes, name, &fixture.subject, &fixture.database());
        let (mut holder, mut waiting, mut late) =
            (start("holder"), start("waiting"), start("late"));
        late.ok("SELECT * FROM t");
        holder.ok("BEGIN IMMEDIATE; INSERT INTO t VALUES(1)");
        waiting.busy_timeout(Duration::from_secs(40));
        waiting.send("INSERT INTO t VALUES(2)");
        assert!(waiting.still_waits_after(Duration::from_millis(100)));
        let at = ("PLAIT_STOP_AT", "right.queued");
        let mut stopped =
            Actor::start_with_environment("stopped", &fixture.subject, &fixture.database(), at);
        stopped.busy_timeout(Duration::from_secs(40));
        stopped.send("INSERT INTO t VALUES(3)");
        stopped.await_stop();

        let begun = Instant::now();
        match closes {
            true => holder.close().expect("it closes"),
            false => drop(holder.ok("ROLLBACK; SELECT * FROM t")),
        }
        assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
        late.busy_timeout(Duration::from_millis(100));
        let error = late.fails("INSERT INTO t VALUES(4)", BUSY);
        let pid = format!("process {} holds the commit mutex", stopped.pid());
        assert!(error.message.contains(&pid), "{error}");
        assert!(waiting.still_waits_after(Duration::from_millis(10)));

        let begun = Instant::now();
        if dies {
            stopped.kill();
        } else {
            os::resume(stopped.pid()).expect("it goes on");
            assert_eq!(stopped.finish().error, None);
        }
        assert_eq!(waiting.finish().error, None);
        late.busy_timeout(Duration::from_secs(40));
        late.ok("INSERT INTO t VALUES(5)");
        if !closes {
            holder.ok("INSERT INTO t VALUES(6)");
        }
        assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
        let all = late.integer(
            "SELECT CAST(group_concat(id, '') AS INTEGER) FROM (SELECT id FROM t ORDER BY id)",
        );
        let expected = match (closes, dies) {
            (true, true) => 25,
            (true, false) => 235,
            (false, true) => 256,
            (false, false) => 2356,
        };
        assert_eq!(all, expected);
    }
}

/// Where the engine would wait for three seconds a busy handler is asked, and ends the wait.
#[test]
fn a_busy_handler_is_asked_about_what_a_stopped_process_holds() {
    if real_plait("a busy handler behind a stopped process").is_none() {
        return;
    }
    let subject = Subject::plait_with_crash_points();
    let fixture = Fixture::new(subject, "CREATE TABLE t(id INTEGER PRIMARY KEY)");
    let connection = fixture.open();
    connection.execute("INSERT INTO t VALUES(1)").expect("it has joined");
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = calls.clone();
    connection.busy_handler(move |_| seen.fetch_add(1, Relaxed) < 2).expect("a handler");
    let at = ("PLAIT_STOP_AT", "commit.locked");
    let mut stopped =
        Actor::start_with_environment("stopped", &fixture.subject, &fixture.database(), at);
    stopped.send("BEGIN CONCURRENT; INSERT INTO t VALUES(2); COMMIT");
    stopped.await_stop();
    let error = connection
        .execute("BEGIN CONCURRENT; INSERT INTO t VALUES(3); COMMIT")
        .expect_err("the commit mutex is held");
    assert_eq!((error.code, calls.load(Relaxed)), (BUSY, 3), "{error}");
    assert!(error.message.contains("holds the commit mutex"), "{error}");
    os::resume(stopped.pid()).expect("it goes on");
    assert_eq!(stopped.finish().error, None);
    connection.execute("COMMIT").expect("nobody is in the way");
    assert_eq!(connection.integer("SELECT count(*) FROM t"), Ok(3));
}

/// Who comes while the only connection leaves the mode was a member of a session that its file had left, and took the file for an older one.
// holds JOIN-1
#[test]
fn who_comes_while_the_mode_is_left_waits_for_it() {
    if real_plait("stopped").is_none() {
        return;
    }
    for point in ["disable.resting", "disable.unfenced", "disable.log_removed"] {
        for dies in [false, true] {
            let subject = Subject::plait_with_crash_points();
            let fixture = Fixture::new(subject, "CREATE TABLE t(id INTEGER PRIMARY KEY)");
            let at = ("PLAIT_STOP_AT", point);
            let mut leaving =
                Actor::start_with_environment("leaving", &fixture.subject, &fixture.database(), at);
            leaving.ok("INSERT INTO t VALUES(1)");
            leaving.send("PRAGMA journal_mode=delete");
            leaving.await_stop();
            let mut other =
                Actor::start(Place::Processes, "other", &fixture.subject, &fixture.database());
            other.busy_timeout(Duration::from_millis(100));
            let error = other.fails("SELECT * FROM t", BUSY);
            assert!(error.message.contains("another process is opening"), "{point}: {error}");
            other.busy_timeout(Duration::from_secs(40));
            other.send("SELECT count(*) FROM t");
            assert!(other.still_waits_after(Duration::from_millis(100)), "{point}");
            if dies {
                leaving.kill();
                assert_eq!(other.finish().error, None, "{point}");
            } else {
                os::resume(leaving.pid()).expect("it goes on");
                let left = leaving.finish().error;
                assert!(left.as_ref().is_none_or(|e| e.is_busy()), "{point}: {left:?}");
                assert_eq!(other.finish().error, None, "{point}");
                leaving.ok("INSERT INTO t VALUES(2)");
                leaving.close().expect("it closes");
            }
            other.ok("INSERT INTO t VALUES(3)");
            assert_eq!(
                other.integer("SELECT count(*) FROM t"),
                if dies { 2 } else { 3 },
                "{point}"
            );
            other.close().expect("it closes");
            let connection = fixture.open();
            assert_eq!(connection.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
            assert_eq!(connection.integer("SELECT max(id) FROM t"), Ok(3), "{point}");
        }
    }
}

/// What is read between the fence of a session and its author's saying so is what the fence found, and conflicts with nothing.
#[test]
fn who_reads_before_a_fence_is_known_conflicts_with_nobody() {
    if real_plait("a reader beside a fence that nobody knows of").is_none() {
        return;
    }
    for dies in [false, true] {
        let subject = Subject::plait_with_crash_points();
        let fixture = Fixture::new(subject, "CREATE TABLE t(id INTEGER PRIMARY KEY)");
        let connection = fixture.open();
        connection.execute("SELECT * FROM t").expect("it has joined");
        let at = ("PLAIT_STOP_AT", "fence.committed");
        let mut stopped =
            Actor::start_with_environment("stopped", &fixture.subject, &fixture.database(), at);
        stopped.send("INSERT INTO t VALUES(1)");
        stopped.await_stop();
        connection
            .execute("BEGIN CONCURRENT; SELECT * FROM t WHERE id=7")
            .expect("nobody is in the way");
        if dies {
            stopped.kill();
            fixture.open().execute("INSERT INTO t VALUES(1)").expect("it finishes the fence");
        } else {
            os::resume(stopped.pid()).expect("it goes on");
            assert_eq!(stopped.finish().error, None);
        }
        connection
            .execute("INSERT INTO t VALUES(2); COMMIT")
            .expect("nothing that it read has changed");
        assert_eq!(connection.integer("SELECT count(*) FROM t"), Ok(2));
    }
}

/// Who finds no room behind a merge that stands still is told whose that is, and of no reader.
#[test]
fn a_commit_without_room_names_the_process_that_is_stopped_in_a_merge() {
    if real_plait("no room behind a stopped merge").is_none() {
        return;
    }
    let subject = Subject::plait_with_crash_points();
    let fixture = Fixture::new(subject, "CREATE TABLE t(id INTEGER PRIMARY KEY, b BLOB)");
    let connection = fixture.open();
    connection.execute("PRAGMA synchronous=NORMAL; INSERT INTO t VALUES(1, NULL)").expect("a row");
    let at = ("PLAIT_STOP_AT", "merge.frozen");
    let mut stopped =
        Actor::start_with_environment("stopped", &fixture.subject, &fixture.database(), at);
    stopped.send("SELECT count(*) FROM t; PRAGMA wal_checkpoint");
    stopped.await_stop();
    connection.busy_timeout(Duration::from_millis(50)).expect("a timeout");
    let mut rows = 1;
    let refused = loop {
        assert!(rows < 1000, "there is room for ever");
        match connection.execute("INSERT INTO t(b) VALUES(randomblob(1000000))") {
            Ok(()) => rows += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.code, FULL, "{refused}");
    let who = format!("process {} is merging", stopped.pid());
    assert!(refused.message.contains(&who), "{refused}");
    assert!(!refused.message.contains("reader"), "{refused}");
    os::resume(stopped.pid()).expect("it goes on");
    assert_eq!(stopped.finish().error, None);
    connection.busy_timeout(Duration::from_secs(40)).expect("a timeout");
    connection.execute("INSERT INTO t(b) VALUES(1)").expect("there is room again");
    assert_eq!(connection.integer("SELECT count(*) FROM t"), Ok(rows + 1));
}
