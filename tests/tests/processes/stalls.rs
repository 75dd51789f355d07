//! Who waits for readers or for a process that does not run holds up nobody else, and waits no longer than its busy timeout.

use plait_tests::actor::Actor;
use plait_tests::in_threads_and_processes;
use plait_tests::os;
use plait_tests::place::Place;
use plait_tests::sqlite::{BUSY, INTERRUPT};
use plait_tests::subject::{Fixture, Subject, real_plait};
use plait_tests::value::Value;
use std::time::{Duration, Instant};

const SCHEMA: &str =
    "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO t VALUES(1, 0), (2, 0)";
/// Byte of `-plait-shm` that whoever opens or closes a session locks.
const LIFECYCLE: i64 = 1 << 40;
/// Byte of the WAL-index that is SQLite's lock of the WAL's writer.
const WAL_WRITER: i64 = 120;
/// Modes that wait for readers.
const CHECKPOINTS: [&str; 3] = ["FULL", "RESTART", "TRUNCATE"];
/// Far less than anybody's busy timeout here, and far more than any statement needs.
const PROMPT: Duration = Duration::from_secs(5);

/// A database whose WAL holds frames that a reader with an older snapshot keeps there.
struct Kept {
    fixture: Fixture,
    reader: Actor,
    writer: Actor,
}

impl Kept {
    fn by_a_reader(subject: &Subject, place: Place) -> Self {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        let start = |name: &str| Actor::start(place, name, &fixture.subject, &fixture.database());
        let (mut reader, mut writer) = (start("reader"), start("writer"));
        writer.ok("UPDATE t SET n=1 WHERE id=1");
        reader.ok("BEGIN");
        assert_eq!(reader.integer("SELECT sum(n) FROM t"), 1);
        writer.ok("UPDATE t SET n=2 WHERE id=2; CREATE TABLE later(a)");
        Self { fixture, reader, writer }
    }

    fn start(&self, place: Place, name: &str) -> Actor {
        let mut actor = Actor::start(place, name, &self.fixture.subject, &self.fixture.database());
        actor.busy_timeout(Duration::from_secs(40));
        actor
    }
}

#[track_caller]
fn promptly(actor: &mut Actor, sql: &str) {
    let reply = actor.run(sql);
    assert_eq!(reply.error, None, "{sql}");
    assert!(reply.took < PROMPT, "{sql} took {:?}", reply.took);
}

in_threads_and_processes! {
    // holds CKPT-1
    fn a_checkpoint_that_waits_for_a_reader_holds_nobody_up(place) {
        let Some(subject) = real_plait("a waiting checkpoint") else { return };
        for how in CHECKPOINTS {
            let mut kept = Kept::by_a_reader(&subject, place);
            let mut checkpoint = kept.start(place, "checkpoint");
            checkpoint.send(&format!("PRAGMA wal_checkpoint({how})"));
            assert!(checkpoint.still_waits_after(Duration::from_millis(300)), "{how}");
            let mut other = kept.start(place, "other");
            promptly(&mut kept.writer, "CREATE TABLE z(a); INSERT INTO z VALUES(1)");
            promptly(&mut other, "UPDATE t SET n=n+1 WHERE id=2");
            promptly(&mut other, "BEGIN IMMEDIATE; PRAGMA application_id=7; UPDATE t SET n=n+1 WHERE id=2; COMMIT");
            promptly(&mut other, "PRAGMA quick_check");
            // One that waits as well, and so is not in the way of the first.
            let mut second = kept.start(place, "second checkpoint");
            second.send(&format!("PRAGMA wal_checkpoint({how})"));
            assert!(second.still_waits_after(Duration::from_millis(50)), "{how}");
            promptly(&mut kept.writer, "INSERT INTO z VALUES(2); DROP TABLE z");
            assert!(checkpoint.still_waits_after(Duration::from_millis(50)), "{how}");
            assert_eq!(kept.reader.integer("SELECT sum(n) FROM t"), 1, "{how}");
            kept.reader.ok("COMMIT");
            for waiting in [&mut checkpoint, &mut second] {
                let reply = waiting.finish();
                assert_eq!(reply.error, None, "{how}");
                assert_eq!(reply.rows[0][0], Value::Integer(0), "{how}: {:?}", reply.rows);
            }
            let wal = std::fs::metadata(kept.fixture.side_file("-wal")).expect("a WAL").len();
            // Its header stays there, by which stock programs come to the WAL-index.
            assert_eq!(wal <= 32, how == "TRUNCATE", "{wal} bytes after {how}");
        }
    }

    fn a_reader_that_a_checkpoint_waits_for_can_write(place) {
        let Some(subject) = real_plait("a waiting checkpoint") else { return };
        for how in CHECKPOINTS {
            let mut kept = Kept::by_a_reader(&subject, place);
            kept.reader.ok("COMMIT; BEGIN; SELECT sum(n) FROM t");
            kept.writer.ok("UPDATE later SET a=1; PRAGMA quick_check");
            kept.writer.ok("INSERT INTO later VALUES(1); PRAGMA quick_check");
            let mut checkpoint = kept.start(place, "checkpoint");
            checkpoint.send(&format!("PRAGMA wal_checkpoint({how})"));
            assert!(checkpoint.still_waits_after(Duration::from_millis(300)), "{how}");
            promptly(&mut kept.reader, "UPDATE t SET n=7 WHERE id=1");
            promptly(&mut kept.reader, "COMMIT");
            assert_eq!(checkpoint.finish().rows[0][0], Value::Integer(0), "{how}");
        }
    }
}

#[test]
fn a_checkpoint_gives_up_at_its_busy_timeout_and_reports_what_stock_sqlite_reports() {
    let Some(subject) = real_plait("a checkpoint that gives up") else { return };
    for how in CHECKPOINTS {
        for timeout in [Duration::ZERO, Duration::from_millis(400)] {
            let [ours, stocks] = [subject.clone(), Subject::stock()].map(|subject| {
                let mut kept = Kept::by_a_reader(&subject, Place::Threads);
                kept.writer.busy_timeout(timeout);
                let reply = kept.writer.run(&format!("PRAGMA wal_checkpoint({how})"));
                assert_eq!(reply.error, None, "{how}");
                assert!(reply.took >= timeout && reply.took < PROMPT, "{how}: {:?}", reply.took);
                let row = reply.rows[0].iter().map(|value| value.as_i64().expect("an integer"));
                row.collect::<Vec<_>>()
            });
            // Busy; and there are frames, of which not all are in the file. How many pages a merge writes is its own affair.
            for row in [&ours, &stocks] {
                assert_eq!(row[0], 1, "{how}: {row:?}");
                assert!(row[1] > row[2] && row[2] >= 0, "{how}: {row:?}");
            }
        }
    }
}

#[test]
fn a_passive_checkpoint_waits_for_nobody() {
    let Some(subject) = real_plait("a passive checkpoint") else { return };
    for subject in [Subject::stock(), subject] {
        let mut kept = Kept::by_a_reader(&subject, Place::Threads);
        let mut passive = kept.start(Place::Threads, "checkpoint");
        promptly(&mut passive, "PRAGMA wal_checkpoint");
        kept.writer.ok("BEGIN IMMEDIATE; PRAGMA application_id=7");
        let reply = passive.run("PRAGMA wal_checkpoint");
        assert!(reply.took < PROMPT, "{:?}", reply.took);
        assert_eq!(reply.rows[0][0], Value::Integer(0), "neither was in its way");
        kept.writer.ok("COMMIT");
    }
}

#[test]
fn a_checkpoint_that_waits_can_be_interrupted() {
    let Some(subject) = real_plait("a checkpoint that is interrupted") else { return };
    let mut kept = Kept::by_a_reader(&subject, Place::Threads);
    let connection = kept.fixture.open();
    connection.execute("SELECT * FROM t").expect("it joins");
    for mode in 1..=3 {
        let waiting = connection.clone();
        let thread = std::thread::spawn(move || waiting.checkpoint(mode));
        std::thread::sleep(Duration::from_millis(200));
        let asked = Instant::now();
        connection.interrupt();
        let error = thread.join().expect("no panic").expect_err("a reader is in the way");
        assert_eq!(error.code, INTERRUPT, "{error}");
        assert!(asked.elapsed() < PROMPT, "{:?}", asked.elapsed());
    }
    kept.reader.ok("COMMIT");
    connection.checkpoint(3).expect("nobody is in the way");
}

/// A process that stands still while it holds one byte of a file, as a stopped one does.
fn held(path: &std::path::Path, byte: i64) -> std::fs::File {
    let file = std::fs::File::options().read(true).write(true).open(path).expect("the file");
    assert!(os::lock_byte(&file, byte), "byte {byte} of {} is free", path.display());
    file
}

#[test]
fn opening_and_closing_beside_a_process_that_is_stopped_while_it_opens_end_in_time() {
    let Some(subject) = real_plait("a stopped opener") else { return };
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let connection = fixture.open();
    connection.execute("UPDATE t SET n=1 WHERE id=1").expect("an update");
    let start = |name| {
        let mut actor = Actor::idle(Place::Processes, name, &subject);
        actor.open(&fixture.database()).expect("opening looks at nothing yet");
        actor
    };
    let (mut patient, mut hasty, mut leaving) =
        (start("patient"), start("hasty"), start("leaving"));
    leaving.ok("SELECT * FROM t");
    let stopped = held(&fixture.side_file("-plait-shm"), LIFECYCLE);
    for (timeout, longest) in [(0, 4000), (1, 4000), (4500, 6000)] {
        hasty.busy_timeout(Duration::from_millis(timeout));
        let reply = hasty.run("SELECT * FROM t");
        let error = reply.error.expect("it cannot join");
        assert_eq!(error.code, BUSY, "{error}");
        assert!(reply.took >= Duration::from_millis(timeout), "{:?}", reply.took);
        assert!(reply.took < Duration::from_millis(longest + 2000), "{timeout}: {:?}", reply.took);
    }
    // Members notice nothing, and one leaves as if it had been killed.
    let begun = Instant::now();
    connection.execute("UPDATE t SET n=2 WHERE id=1").expect("an update");
    leaving.close().expect("it closes");
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    patient.busy_timeout(Duration::from_secs(40));
    patient.send("SELECT sum(n) FROM t");
    assert!(patient.still_waits_after(Duration::from_millis(300)));
    drop(stopped);
    assert_eq!(patient.finish().rows, [[Value::Integer(2)]]);
    hasty.ok("UPDATE t SET n=3 WHERE id=1");
    drop((patient, hasty));
    connection.close().expect("it closes");
    let stock = Subject::stock().open(&fixture.database()).expect("a plain file");
    assert_eq!(stock.integer("SELECT n FROM t WHERE id=1"), Ok(3));
}

#[test]
fn a_thread_that_waits_to_join_one_database_keeps_no_other_from_another() {
    let Some(subject) = real_plait("a stopped opener") else { return };
    let (one, other) =
        (Fixture::new(subject.clone(), SCHEMA), Fixture::new(subject.clone(), SCHEMA));
    let keeper = Actor::start(Place::Processes, "keeper", &subject, &one.database());
    let mut keeper = keeper;
    keeper.ok("SELECT * FROM t");
    let stopped = held(&one.side_file("-plait-shm"), LIFECYCLE);
    let mut waiting = Actor::idle(Place::Threads, "waiting", &subject);
    waiting.open(&one.database()).expect("opening looks at nothing yet");
    waiting.busy_timeout(Duration::from_secs(40));
    waiting.send("SELECT sum(n) FROM t");
    assert!(waiting.still_waits_after(Duration::from_millis(200)));
    let begun = Instant::now();
    other.open().execute("UPDATE t SET n=1").expect("another database");
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    drop(stopped);
    assert_eq!(waiting.finish().error, None);
}

#[test]
fn a_merge_that_meets_a_stopped_process_in_the_base_ends_with_the_busy_timeout() {
    let Some(subject) = real_plait("a locked base") else { return };
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let mut actor = Actor::start(Place::Threads, "merging", &subject, &fixture.database());
    let mut other = Actor::start(Place::Processes, "other", &subject, &fixture.database());
    actor.ok("UPDATE t SET n=1 WHERE id=1; PRAGMA quick_check; UPDATE t SET n=2 WHERE id=1");
    let stopped = held(&fixture.side_file("-shm"), WAL_WRITER);
    for timeout in [Duration::ZERO, Duration::from_millis(700)] {
        actor.busy_timeout(timeout);
        for sql in ["PRAGMA wal_checkpoint(FULL)", "CREATE TABLE z(a)", "PRAGMA user_version=7"] {
            let reply = actor.run(sql);
            match reply.error {
                Some(error) => assert_eq!(error.code, BUSY, "{sql}: {error}"),
                None => assert_eq!(reply.rows[0][0], Value::Integer(1), "{sql}"),
            }
            assert!(reply.took >= timeout && reply.took < PROMPT, "{sql}: {:?}", reply.took);
            promptly(&mut other, "UPDATE t SET n=n+1 WHERE id=2");
        }
    }
    drop(stopped);
    actor.ok("CREATE TABLE z(a); DROP TABLE z");
}
