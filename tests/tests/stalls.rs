//! Who waits for readers or for a process that does not run holds up nobody else, and waits no longer than its busy timeout.

use plait_tests::actor::Actor;
use plait_tests::in_threads_and_processes;
use plait_tests::place::Place;
use plait_tests::sqlite::INTERRUPT;
use plait_tests::subject::{Fixture, Subject, real_plait};
use plait_tests::value::Value;
use std::time::{Duration, Instant};

const SCHEMA: &str =
    "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO t VALUES(1, 0), (2, 0)";
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
            promptly(&mut other, "BEGIN EXCLUSIVE; UPDATE t SET n=n+1 WHERE id=2; COMMIT");
            promptly(&mut other, "PRAGMA page_count");
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
            assert_eq!(wal == 0, how == "TRUNCATE", "{wal} bytes after {how}");
        }
    }

    fn a_reader_that_a_checkpoint_waits_for_can_write(place) {
        let Some(subject) = real_plait("a waiting checkpoint") else { return };
        for how in CHECKPOINTS {
            let mut kept = Kept::by_a_reader(&subject, place);
            kept.reader.ok("COMMIT; BEGIN; SELECT sum(n) FROM t");
            kept.writer.ok("UPDATE later SET a=1; PRAGMA page_count");
            kept.writer.ok("INSERT INTO later VALUES(1); PRAGMA page_count");
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
    let mut kept = Kept::by_a_reader(&subject, Place::Threads);
    let mut passive = kept.start(Place::Threads, "checkpoint");
    promptly(&mut passive, "PRAGMA wal_checkpoint");
    kept.writer.ok("BEGIN EXCLUSIVE");
    let reply = passive.run("PRAGMA wal_checkpoint");
    assert!(reply.took < PROMPT, "{:?}", reply.took);
    assert_eq!(reply.rows[0][0], Value::Integer(1), "an exclusive transaction is open");
    kept.writer.ok("COMMIT");
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
