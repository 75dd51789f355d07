//! Every wait of a statement asks the application: its busy handler or its busy timeout ends it, and `sqlite3_interrupt` does. Here the
//! waits that stock SQLite does not know: for room in shared memory, for a session, and for a recovery of the base at opening.
//! Those for the writer's right are in interfaces.rs, for readers in exclusive.rs, for the commit mutex in stopped.rs.

use plait_tests::actor::Actor;
use plait_tests::os;
use plait_tests::place::Place;
use plait_tests::sqlite::{BUSY, Connection, FULL, INTERRUPT, SqlError};
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SCHEMA: &str =
    "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB); INSERT INTO t VALUES(1, NULL)";
/// The lifecycle byte of `-plait-shm`.
const LIFECYCLE: i64 = 1 << 40;
/// SQLite's bytes of `-shm`.
const WAL_WRITER: i64 = 120;
const WAL_RECOVERY: i64 = 122;
/// Longer than a wait that nobody ends may take where it is to be ended.
const PROMPT: Duration = Duration::from_secs(20);

/// A process that stands still while it holds bytes of a file.
fn held(path: &Path, bytes: &[i64]) -> Vec<File> {
    let hold = |&byte: &i64| {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.expect("the file");
        assert!(os::lock_byte(&file, byte), "byte {byte} of {} is free", path.display());
        file
    };
    bytes.iter().map(hold).collect()
}

/// A statement that waits for what others hold, until it is let go.
struct Wait<'a> {
    connection: Connection,
    sql: &'a str,
    /// What its end is where nobody lets go.
    ends_in: i32,
}

impl Wait<'_> {
    fn refused(&self) -> (SqlError, Duration) {
        let begun = Instant::now();
        let error = self.connection.execute(self.sql).expect_err("it waits in vain");
        assert!(begun.elapsed() < PROMPT, "{}: {:?}", self.sql, begun.elapsed());
        if !self.connection.autocommit() {
            self.connection.execute("ROLLBACK").expect("nothing keeps that");
        }
        (error, begun.elapsed())
    }

    /// The handler is asked with 0, 1, 2 and so on, and is obeyed.
    fn is_ended_by_the_handler(&self) {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let seen = calls.clone();
        let handler = move |prior| {
            seen.lock().expect("one thread").push(prior);
            prior < 4
        };
        self.connection.busy_handler(handler).expect("a handler");
        let (error, _) = self.refused();
        assert_eq!(error.code, self.ends_in, "{}: {error}", self.sql);
        assert_eq!(*calls.lock().expect("one thread"), [0, 1, 2, 3, 4], "{}: {error}", self.sql);
    }

    fn is_ended_by_the_timeout(&self, timeout: Duration) {
        self.connection.busy_timeout(timeout).expect("a timeout");
        let (error, took) = self.refused();
        assert_eq!(error.code, self.ends_in, "{}: {error}", self.sql);
        assert!(took >= timeout, "{}: {took:?}", self.sql);
    }

    fn is_ended_by_an_interrupt(&self) {
        self.connection.busy_timeout(PROMPT * 4).expect("a timeout");
        let (interrupter, over) = (self.connection.clone(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    std::thread::sleep(Duration::from_millis(50));
                    interrupter.interrupt();
                }
            });
            let (error, _) = self.refused();
            over.store(true, Relaxed);
            assert_eq!(error.code, INTERRUPT, "{}: {error}", self.sql);
        });
    }

    /// The handler may let others go on, and then it is no error.
    fn goes_on_when(&self, release: impl FnOnce() + Send + 'static) {
        let calls = Arc::new(AtomicI32::new(0));
        let (seen, mut release) = (calls.clone(), Some(release));
        let handler = move |_| {
            seen.fetch_add(1, Relaxed);
            if let Some(release) = release.take() {
                release();
            }
            true
        };
        self.connection.busy_handler(handler).expect("a handler");
        self.connection.execute(self.sql).expect("nobody is in the way any more");
        assert!(calls.load(Relaxed) > 0, "{}: the handler was asked", self.sql);
    }
}

/// Commits of almost the largest size that does not run exclusively, until one is refused.
fn fill(connection: &Connection) {
    connection.busy_timeout(Duration::ZERO).expect("a timeout");
    let error = (0..100)
        .find_map(|_| connection.execute("INSERT INTO t(v) VALUES(randomblob(6000000))").err());
    let error = error.expect("shared memory is full some time");
    assert_eq!(error.code, FULL, "{error}");
}

#[test]
fn a_commit_that_waits_for_readers_of_all_memory_asks_the_handler() {
    let Some(subject) = real_plait("full memory") else { return };
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let connection = fixture.open();
    connection.execute("PRAGMA synchronous=NORMAL; INSERT INTO t(v) VALUES(0)").expect("a session");
    let mut readers = Vec::new();
    for i in 0..30 {
        let mut reader =
            Actor::start(Place::Threads, &format!("reader {i}"), &subject, &fixture.database());
        reader.ok("BEGIN; SELECT count(*) FROM t");
        readers.push(reader);
        if (0..3)
            .any(|_| connection.execute("INSERT INTO t(v) VALUES(randomblob(6000000))").is_err())
        {
            break;
        }
    }
    fill(&connection);
    let wait =
        Wait { connection, sql: "INSERT INTO t(v) VALUES(randomblob(6000000))", ends_in: FULL };
    wait.is_ended_by_the_handler();
    wait.is_ended_by_the_timeout(Duration::from_millis(300));
    wait.is_ended_by_an_interrupt();
    wait.goes_on_when(move || readers.iter_mut().for_each(|reader| drop(reader.ok("COMMIT"))));
}

#[test]
fn a_commit_that_waits_for_a_merge_asks_the_handler() {
    let Some(subject) = real_plait("full memory") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let connection = fixture.open();
    connection
        .execute("PRAGMA synchronous=NORMAL; INSERT INTO t(v) VALUES(0); PRAGMA page_count")
        .expect("a session");
    let keeper = fixture.open();
    keeper.execute("SELECT count(*) FROM t").expect("it is there, so nothing runs exclusively");
    let stopped = held(&fixture.side_file("-shm"), &[WAL_WRITER]);
    fill(&connection);
    let wait =
        Wait { connection, sql: "INSERT INTO t(v) VALUES(randomblob(6000000))", ends_in: FULL };
    wait.is_ended_by_the_handler();
    wait.is_ended_by_the_timeout(Duration::from_millis(5500));
    wait.is_ended_by_an_interrupt();
    wait.goes_on_when(move || drop(stopped));
}

#[test]
fn opening_behind_another_that_opens_asks_the_handler() {
    let Some(subject) = real_plait("a stopped opener") else { return };
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let mut member = Actor::start(Place::Processes, "member", &subject, &fixture.database());
    member.ok("INSERT INTO t(v) VALUES(0)");
    let stopped = held(&fixture.side_file("-plait-shm"), &[LIFECYCLE]);
    let wait = Wait { connection: fixture.open(), sql: "SELECT count(*) FROM t", ends_in: BUSY };
    wait.is_ended_by_the_handler();
    wait.is_ended_by_the_timeout(Duration::from_millis(3500));
    wait.is_ended_by_an_interrupt();
    wait.goes_on_when(move || drop(stopped));
}

#[test]
fn opening_behind_a_recovery_of_the_base_asks_the_handler() {
    let Some(subject) = real_plait("a stopped recovery") else { return };
    for (fenced, sql) in [
        (true, "SELECT count(*) FROM t"),
        (true, "INSERT INTO t(v) VALUES(1)"),
        (true, "BEGIN CONCURRENT; INSERT INTO t(v) VALUES(1); COMMIT"),
        (false, "SELECT count(*) FROM t"),
        (false, "INSERT INTO t(v) VALUES(1)"),
        (false, "BEGIN CONCURRENT; INSERT INTO t(v) VALUES(1); COMMIT"),
    ] {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        // Who has the WAL-index open, so that the next does not make it anew.
        let library = if fenced { subject.clone() } else { Subject::stock() };
        let mut keeper = Actor::start(Place::Processes, "keeper", &library, &fixture.database());
        keeper.ok("INSERT INTO t(v) VALUES(0); SELECT count(*) FROM t");
        if fenced {
            keeper.ok("BEGIN CONCURRENT; INSERT INTO t(v) VALUES(0); COMMIT");
        }
        let index = fixture.side_file("-shm");
        let stopped = held(&index, &[WAL_WRITER, WAL_RECOVERY]);
        // As one that is stopped in the middle has it.
        stopped[0].write_all_at(&[0; 96], 0).expect("both copies of its header");
        let wait = Wait { connection: fixture.open(), sql, ends_in: BUSY };
        wait.is_ended_by_the_handler();
        wait.is_ended_by_the_timeout(Duration::from_millis(500));
        wait.goes_on_when(move || drop(stopped));
        assert_eq!(wait.connection.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    }
}
