//! Exclusive transactions (schema changes, values of the header) beside readers that hold memtables: they wait for them as
//! for a lock, and end in BUSY, never in FULL.

use plait_tests::actor::Actor;
use plait_tests::in_threads_and_processes;
use plait_tests::place::Place;
use plait_tests::sqlite::{BUSY, BUSY_SNAPSHOT};
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER, filler BLOB);
    INSERT INTO t VALUES(1, 0, NULL)";
/// More readers than there are memtables.
const READERS: usize = 16;
/// Statements that make a transaction exclusive.
const EXCLUSIVE: [&str; 2] =
    ["PRAGMA user_version=7", "CREATE INDEX IF NOT EXISTS t_n ON t(n); DROP INDEX t_n"];

/// Readers, each with a snapshot of another generation, so many that an exclusive transaction has to wait.
struct Crowd {
    fixture: Fixture,
    readers: Vec<Actor>,
    writer: Actor,
}

impl Crowd {
    fn gather(subject: &Subject, place: Place) -> Self {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        let start =
            |name: String| Actor::start(place, &name, &fixture.subject, &fixture.database());
        let mut writer = start("writer".to_owned());
        let mut readers = Vec::new();
        writer.busy_timeout(Duration::ZERO);
        loop {
            assert!(readers.len() < READERS, "{READERS} snapshots do not hold every memtable");
            writer.ok("INSERT INTO t(n) VALUES(0)");
            let mut reader = start(format!("reader {}", readers.len()));
            reader.ok("BEGIN; SELECT count(*) FROM t");
            readers.push(reader);
            let reply = writer.run(EXCLUSIVE[0]);
            match reply.error {
                None => {}
                Some(error) if error.code == BUSY => break,
                Some(error) => panic!("beside {} readers: {error}", readers.len()),
            }
        }
        Self { fixture, readers, writer }
    }

    fn start(&self, place: Place, name: &str) -> Actor {
        Actor::start(place, name, &self.fixture.subject, &self.fixture.database())
    }
}

in_threads_and_processes! {
    fn begin_exclusive_waits_for_no_reader_as_in_wal_mode(place) {
        let Some(subject) = real_plait("BEGIN EXCLUSIVE") else { return };
        let mut crowd = Crowd::gather(&subject, place);
        crowd.writer.ok("BEGIN EXCLUSIVE; INSERT INTO t VALUES(1000, 7, NULL)");
        let mut other = crowd.start(place, "other");
        other.busy_timeout(Duration::ZERO);
        other.fails("BEGIN EXCLUSIVE", BUSY);
        other.fails("INSERT INTO t(n) VALUES(1)", BUSY);
        assert_eq!(other.integer("SELECT count(*) FROM t WHERE id=1000"), 0);
        crowd.writer.ok("COMMIT");
        assert_eq!(other.integer("SELECT n FROM t WHERE id=1000"), 7);
        other.ok("BEGIN EXCLUSIVE; UPDATE t SET n=n+1 WHERE id=1000; COMMIT");
        assert_eq!(crowd.writer.integer("SELECT n FROM t WHERE id=1000"), 8);
    }

    fn an_exclusive_transaction_waits_for_readers_that_hold_every_memtable(place) {
        let Some(subject) = real_plait("waiting for readers") else { return };
        for sql in EXCLUSIVE {
            let mut crowd = Crowd::gather(&subject, place);
            crowd.writer.busy_timeout(Duration::from_secs(30));
            crowd.writer.send(sql);
            std::thread::sleep(Duration::from_millis(300));
            // Readers come and go while it waits.
            let mut late = crowd.start(place, "late reader");
            late.busy_timeout(Duration::ZERO);
            assert!(late.integer("SELECT count(*) FROM t") > 1);
            let begun = Instant::now();
            for mut reader in crowd.readers.drain(..2) {
                reader.ok("COMMIT");
            }
            let reply = crowd.writer.finish();
            assert_eq!(reply.error, None, "{sql}");
            assert!(reply.took >= Duration::from_millis(250), "it waited: {:?}", reply.took);
            assert!(begun.elapsed() < Duration::from_secs(2), "and went on soon: {:?}", begun.elapsed());
            late.ok("INSERT INTO t(n) VALUES(0)");
        }
    }

    fn an_exclusive_transaction_gives_up_with_busy_when_its_timeout_ends(place) {
        let Some(subject) = real_plait("giving up") else { return };
        for sql in EXCLUSIVE {
            let mut crowd = Crowd::gather(&subject, place);
            crowd.writer.busy_timeout(Duration::from_millis(300));
            let reply = crowd.writer.run(sql);
            let error = reply.error.expect("readers hold every memtable");
            assert_eq!(error.code, BUSY, "{sql}: {error}");
            assert!(error.message.contains("reader"), "it says for whom it waited: {error}");
            let took = reply.took;
            assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(3), "{took:?}");
            assert!(!reply.in_transaction, "{sql}");
            // Nothing is left behind: others go on, and it succeeds when the readers are gone.
            let mut other = crowd.start(place, "other");
            other.busy_timeout(Duration::ZERO);
            other.ok("INSERT INTO t(n) VALUES(0); BEGIN IMMEDIATE; UPDATE t SET n=n+1; COMMIT");
            for reader in &mut crowd.readers {
                reader.ok("COMMIT");
            }
            crowd.writer.ok(sql);
            assert_eq!(other.ok("PRAGMA integrity_check"), [[plait_tests::value::Value::Text("ok".into())]]);
        }
    }

    fn an_open_select_stays_in_the_state_that_an_exclusive_commit_leaves(place) {
        let Some(subject) = real_plait("an open SELECT") else { return };
        let fixture = Fixture::new(subject, "CREATE TABLE r(id INTEGER PRIMARY KEY, n INTEGER);
            WITH RECURSIVE i(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM i WHERE x<300) INSERT INTO r SELECT x, 0 FROM i");
        let start = |name: &str| Actor::start(place, name, &fixture.subject, &fixture.database());
        let mut exclusive = start("exclusive");
        let mut others = [start("first other"), start("second other")];
        for round in 1..400 {
            exclusive.ok("BEGIN IMMEDIATE");
            exclusive.open_cursor("open", "SELECT n FROM r ORDER BY id");
            let mut seen = exclusive.step_cursor("open", 5).rows;
            exclusive.ok(&format!("PRAGMA application_id={round}"));
            for other in &mut others {
                other.send("UPDATE r SET n=n+1");
            }
            std::thread::sleep(Duration::from_millis(2));
            exclusive.ok(if round % 5 == 0 { "ROLLBACK" } else { "COMMIT" });
            // What comes after it can only be seen if they have committed.
            for other in &mut others {
                assert_eq!(other.finish().error, None);
            }
            seen.extend(exclusive.step_cursor("open", 300).rows);
            exclusive.close_cursor("open");
            let first = seen[0].clone();
            assert!(seen.iter().all(|row| *row == first), "round {round}: two states in one SELECT");
            assert_eq!(seen.len(), 300, "round {round}");
        }
    }

    // holds STOCK-1
    fn a_transaction_that_cannot_become_exclusive_stays_as_it_was(place) {
        let Some(subject) = real_plait("escalation that fails") else { return };
        for begin in ["BEGIN", "BEGIN IMMEDIATE", "BEGIN CONCURRENT"] {
            let mut crowd = Crowd::gather(&subject, place);
            crowd.writer.busy_timeout(Duration::from_millis(100));
            crowd.writer.ok(begin);
            crowd.writer.ok("SELECT count(*) FROM t; INSERT INTO t(id, n) VALUES(1000, 7)");
            crowd.writer.fails("CREATE TABLE other(a)", BUSY);
            assert_eq!(crowd.writer.integer("SELECT n FROM t WHERE id=1000"), 7, "{begin}");
            crowd.writer.ok("UPDATE t SET n=8 WHERE id=1000; COMMIT");
            let mut other = crowd.start(place, "other");
            assert_eq!(other.integer("SELECT n FROM t WHERE id=1000"), 8, "{begin}");
        }
    }

    // holds EXCL-4, RIGHT-5
    fn a_reader_that_wants_to_write_behind_a_waiting_exclusive_transaction_is_refused_at_once(place) {
        let Some(subject) = real_plait("deadlock with a reader") else { return };
        let mut crowd = Crowd::gather(&subject, place);
        crowd.writer.busy_timeout(Duration::from_secs(30));
        crowd.writer.send(EXCLUSIVE[0]);
        std::thread::sleep(Duration::from_millis(200));
        // All wait for the writer's right with a snapshot for whose end its holder waits.
        for reader in &mut crowd.readers {
            let reply = reader.run("UPDATE t SET n=n+1 WHERE id=2");
            let error = reply.error.expect("both would wait for each other");
            assert_eq!(error.code, BUSY, "{error}");
            assert!(reply.took < Duration::from_secs(2), "{:?}", reply.took);
            reader.ok("ROLLBACK");
            if !crowd.writer.still_waits_after(Duration::from_millis(100)) {
                return;
            }
        }
        panic!("the exclusive transaction still waits");
    }

    fn a_snapshot_of_its_own_does_not_keep_a_transaction_from_becoming_exclusive(place) {
        let Some(subject) = real_plait("own snapshot") else { return };
        let mut became = 0;
        for (begin, generations) in [("BEGIN", 7), ("BEGIN", 8), ("BEGIN CONCURRENT", 8), ("BEGIN", 9)] {
            let fixture = Fixture::new(subject.clone(), SCHEMA);
            let start = |name: &str| Actor::start(place, name, &subject, &fixture.database());
            let (mut old, mut other) = (start("old"), start("other"));
            other.ok("CREATE TABLE big(id INTEGER PRIMARY KEY, filler BLOB); INSERT INTO big(filler) VALUES(1)");
            // Merges may take their time; a wait for itself would have no end.
            old.busy_timeout(Duration::from_secs(10));
            old.ok(begin);
            old.ok("SELECT n FROM t WHERE id=1");
            // As many generations as there are memtables, all kept for the old transaction's validation.
            for _ in 0..generations {
                for _ in 0..2 {
                    other.ok("INSERT INTO big(filler) VALUES(zeroblob(4500000))");
                }
            }
            other.ok("INSERT INTO big(filler) VALUES(1)");
            old.open_cursor("scan", "SELECT id FROM t ORDER BY id");
            let first = old.step_cursor("scan", 1);
            assert_eq!(first.error, None);
            let reply = old.run("INSERT INTO t(id, n) VALUES(1000, 1); CREATE TABLE made(a)");
            if let Some(error) = reply.error {
                // Its history may be gone, which is a conflict, but there is nobody to wait for.
                assert_eq!(error.extended, BUSY_SNAPSHOT, "{begin}: {error}");
                old.close_cursor("scan");
                old.ok("ROLLBACK");
                continue;
            }
            assert_eq!(old.integer("SELECT count(*) FROM big"), 2 + 2 * generations, "{begin}");
            assert_eq!(old.step_cursor("scan", 10).error, None, "{begin}: an open statement goes on");
            old.close_cursor("scan");
            old.ok("COMMIT");
            became += 1;
            assert_eq!(other.integer("SELECT count(*) FROM t WHERE id=1000"), 1);
            assert_eq!(other.integer("SELECT count(*) FROM made"), 0);
        }
        assert!(became >= 2, "{became} of 4 became exclusive");
    }
}

#[test]
fn a_custom_busy_handler_decides_how_long_an_exclusive_transaction_waits_for_readers() {
    let Some(subject) = real_plait("busy handler") else { return };
    let mut crowd = Crowd::gather(&subject, Place::Threads);
    let connection = crowd.fixture.open();
    let calls = std::sync::Arc::new(AtomicU64::new(0));
    let seen = calls.clone();
    connection
        .busy_handler(move |prior| {
            seen.fetch_add(1, Relaxed);
            std::thread::sleep(Duration::from_millis(5));
            prior < 9
        })
        .expect("a handler");
    let error = connection.execute(EXCLUSIVE[0]).expect_err("readers hold every memtable");
    assert_eq!((error.code, calls.load(Relaxed)), (BUSY, 10), "{error}");
    for reader in &mut crowd.readers {
        reader.ok("COMMIT");
    }
    connection.execute(EXCLUSIVE[0]).expect("nobody is in the way");
}

#[test]
fn what_was_read_before_becoming_exclusive_was_busy_is_checked_all_the_same() {
    let Some(subject) = real_plait("conflicts") else { return };
    let mut crowd = Crowd::gather(&subject, Place::Threads);
    let mut actor = crowd.start(Place::Threads, "optimist");
    actor.busy_timeout(Duration::ZERO);
    actor.ok("BEGIN CONCURRENT; SELECT n FROM t WHERE id=1");
    actor.fails("CREATE TABLE made(x)", BUSY);
    crowd.writer.ok("UPDATE t SET n=n+1 WHERE id=1");
    actor.ok("INSERT INTO t(n) VALUES(7)");
    actor.fails("COMMIT", BUSY_SNAPSHOT);
    actor.ok("ROLLBACK");
}

#[test]
fn exclusive_transactions_and_schema_changes_go_on_beside_readers_and_writers() {
    let subject = Subject::plait();
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let over = AtomicBool::new(false);
    let (begun, exclusives) = (Instant::now(), AtomicU64::new(0));
    let expired = || over.load(Relaxed) || begun.elapsed() > Duration::from_secs(6);
    /// Ends the others when its thread fails.
    struct EndAll<'a>(&'a AtomicBool);
    impl Drop for EndAll<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.store(true, Relaxed);
            }
        }
    }
    std::thread::scope(|scope| {
        for reader in 0..14u64 {
            let (fixture, expired, over) = (&fixture, &expired, &over);
            scope.spawn(move || {
                let _end = EndAll(over);
                let connection = fixture.open();
                // Ten short ones and four long ones.
                let hold = if reader < 10 { 5 + 7 * reader } else { 300 + 50 * reader };
                while !expired() {
                    connection.execute("BEGIN; SELECT sum(n) FROM t").expect("readers never fail");
                    std::thread::sleep(Duration::from_millis(hold));
                    connection
                        .execute("SELECT count(*) FROM t; COMMIT")
                        .expect("readers never fail");
                }
            });
        }
        for writer in 0..3 {
            let (fixture, expired, over) = (&fixture, &expired, &over);
            scope.spawn(move || {
                let _end = EndAll(over);
                let connection = fixture.open();
                connection.execute("PRAGMA synchronous=NORMAL").expect("a pragma");
                let sql = format!("INSERT INTO t(n, filler) VALUES({writer}, zeroblob(100000))");
                while !expired() {
                    connection.execute(&sql).expect("a queued write does not fail");
                    // While readers overlap the WAL only grows: at full speed to its limit.
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
        }
        let connection = fixture.open();
        let _end = EndAll(&over);
        for round in 0.. {
            if expired() {
                break;
            }
            let sql = match round % 3 {
                0 => EXCLUSIVE[0],
                1 => EXCLUSIVE[1],
                _ => "ALTER TABLE t ADD COLUMN extra; ALTER TABLE t DROP COLUMN extra",
            };
            connection.execute(sql).unwrap_or_else(|error| panic!("round {round}: {error}"));
            exclusives.fetch_add(1, Relaxed);
            connection.execute("DELETE FROM t WHERE id>100").expect("a bulk delete");
        }
    });
    assert!(exclusives.load(Relaxed) >= 3, "{} exclusive rounds in 6 s", exclusives.load(Relaxed));
    assert_eq!(fixture.open().text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

/// System calls so far with which a process has read files.
fn reads_of(process: u32) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{process}/io")).expect("it runs");
    let line = io.lines().find_map(|line| line.strip_prefix("syscr: ")).expect("a count");
    line.parse().expect("a number")
}

#[test]
fn an_exclusive_transaction_costs_the_same_however_many_came_before_it() {
    let Some(subject) = real_plait("exclusive transactions") else { return };
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let mut writer = Actor::start(Place::Processes, "writer", &subject, &fixture.database());
    let keeper = fixture.open();
    assert_eq!(keeper.integer("SELECT count(*) FROM t"), Ok(1));
    writer.ok("PRAGMA wal_autocheckpoint=0; PRAGMA cache_size=100");
    let mut costs = [0, 0];
    for round in 0..400 {
        let before = reads_of(writer.pid());
        writer.ok(&format!("PRAGMA user_version={round}"));
        let cost = reads_of(writer.pid()) - before;
        costs[usize::from(round >= 200)] += cost;
        if round == 300 {
            // A reader holds back what a checkpoint brings into the file, and its page 1 with it.
            keeper.execute("BEGIN; SELECT * FROM t").expect("a reader");
            writer.ok("PRAGMA wal_checkpoint");
        }
    }
    assert!(costs[1] < 2 * costs[0], "reads of the first and the last two hundred: {costs:?}");
    assert_eq!(keeper.integer("PRAGMA user_version"), Ok(300));
}

/// Small exclusive transactions, each of which writes page 1, until the tables of the WAL-index that lead to it are full of it.
#[test]
fn page_1_is_found_among_thousands_of_its_versions() {
    let Some(subject) = real_plait("exclusive transactions") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let writers = [fixture.open(), fixture.open()];
    for writer in &writers {
        writer
            .execute(
                "PRAGMA wal_autocheckpoint=0; PRAGMA synchronous=NORMAL; PRAGMA cache_size=1000",
            )
            .expect("pragmas");
    }
    let keeper = fixture.open();
    let mut old: Option<i64> = None;
    // Page 1 and another page each: more than two tables of 4,096 frames.
    for round in 1..=5_000i64 {
        let writer = &writers[usize::from(round % 7 == 0)];
        if round % 50 == 0 {
            // Frames that are in the index already, and are taken out of it again.
            writer
                .execute("BEGIN IMMEDIATE; PRAGMA user_version=-1; UPDATE t SET n=-1, filler=zeroblob(20000)")
                .expect("a transaction");
            writer.cache_flush().expect("it spills");
            writer.execute("ROLLBACK").expect("a rollback");
        }
        writer
            .execute(&format!(
                "BEGIN IMMEDIATE; PRAGMA user_version={round}; UPDATE t SET n={round}; COMMIT"
            ))
            .expect("a transaction");
        if round % 97 == 0 {
            let newest = fixture.open();
            assert_eq!(newest.integer("PRAGMA user_version"), Ok(round));
            assert_eq!(newest.integer("SELECT n FROM t"), Ok(round));
            if let Some(begun) = old.take() {
                assert_eq!(keeper.integer("PRAGMA user_version"), Ok(begun));
                assert_eq!(keeper.integer("SELECT n FROM t"), Ok(begun));
                keeper.execute("COMMIT").expect("the end of a reader");
            }
            keeper.execute("BEGIN; SELECT * FROM t").expect("a reader");
            old = Some(round);
        }
    }
    assert_eq!(keeper.text("PRAGMA integrity_check"), Ok("ok".to_owned()));
}

/// Whoever waits his turn to write finds that others have changed the schema meanwhile, and is prepared anew; SQLite does that 25 times.
#[test]
fn a_write_is_prepared_anew_as_often_as_others_change_the_schema_before_its_turn() {
    let Some(subject) = real_plait("changes of the schema") else { return };
    let fixture = Fixture::new(subject, "CREATE TABLE t(n INTEGER PRIMARY KEY)");
    let (connection, other) = (fixture.open(), fixture.open());
    connection.execute("INSERT INTO t VALUES(1)").expect("a row");
    let mut changes = 0;
    connection
        .authorizer(move |_, _| {
            // In the middle of being prepared.
            if changes < 100 {
                changes += 1;
                other.execute("CREATE TABLE d(a); DROP TABLE d").expect("a change");
            }
            0
        })
        .expect("an authorizer");
    connection.execute("INSERT INTO t VALUES(2)").expect("it is prepared anew");
    assert_eq!(fixture.open().integer("SELECT count(*) FROM t").expect("a count"), 2);
}

// holds EXCL-6
#[test]
fn a_merge_of_an_exclusive_transaction_that_died_in_it_is_no_change() {
    let Some(_) = real_plait("a merge that dies") else { return };
    let crash = Subject::plait_with_crash_points();
    for point in ["exclusive.begun", "merge.applied", "merge.committed", "merge.settled"] {
        let schema = "CREATE TABLE t(a); CREATE TABLE w(a); INSERT INTO t VALUES(1)";
        let fixture = Fixture::new(crash.clone(), schema);
        let other = fixture.open();
        other.execute("PRAGMA plait_background_merge=off; INSERT INTO t VALUES(2)").expect("rows");
        let reader = fixture.open();
        reader.execute("BEGIN CONCURRENT; SELECT * FROM t; INSERT INTO w VALUES(1)").expect("rows");
        let mut victim = Actor::start_with_environment(
            "victim",
            &crash,
            &fixture.database(),
            ("PLAIT_CRASH_AT", point),
        );
        victim.send("BEGIN EXCLUSIVE; CREATE TABLE made(a); COMMIT");
        victim.await_death();
        other.execute("BEGIN IMMEDIATE; ROLLBACK").expect("it settles what is left");
        reader.execute("COMMIT").unwrap_or_else(|error| panic!("{point}: {error}"));
        let commits = "SELECT value FROM plait_status WHERE name='exclusive_commits'";
        assert_eq!(other.integer(commits), Ok(0), "{point}");
        assert_eq!(other.integer("SELECT count(*) FROM t, w"), Ok(2), "{point}");
    }
}

/// A generation without rows is brought in like any other: here the one that a large transaction has frozen,
/// whose author died before it wrote.
// holds EXCL-6
#[test]
fn a_merge_of_nothing_by_an_exclusive_transaction_that_died_in_it_is_no_change() {
    let Some(_) = real_plait("a merge that dies") else { return };
    let crash = Subject::plait_with_crash_points();
    let schema = "CREATE TABLE t(id INTEGER PRIMARY KEY, n); CREATE TABLE big(b);
        INSERT INTO t VALUES(1, 0), (2, 0)";
    let fixture = Fixture::new(crash.clone(), schema);
    let [reader, other] = [fixture.open(), fixture.open()];
    let update = |id| format!("BEGIN CONCURRENT; UPDATE t SET n=n+1 WHERE id={id}; COMMIT");
    reader.execute(&update(1)).expect("it joins");
    other.execute(&update(2)).expect("it joins");
    other.execute("PRAGMA wal_checkpoint(FULL)").expect("all is merged");
    let dies = |point, sql: &str| {
        let at = ("PLAIT_CRASH_AT", point);
        let mut victim = Actor::start_with_environment("victim", &crash, &fixture.database(), at);
        victim.send(sql);
        victim.await_death();
    };
    dies(
        "commit.memory_grown",
        "BEGIN CONCURRENT; INSERT INTO big VALUES(randomblob(4000000)); COMMIT",
    );
    reader
        .execute("BEGIN CONCURRENT; SELECT n FROM t WHERE id=2; UPDATE t SET n=n+10 WHERE id=1")
        .expect("it writes");
    let version = other.integer("PRAGMA data_version");
    dies("merge.committed", "BEGIN IMMEDIATE; CREATE TABLE made(a); COMMIT");
    assert_eq!(other.integer("SELECT count(*) FROM t, sqlite_schema"), Ok(4));
    assert_eq!(other.integer("PRAGMA data_version"), version);
    reader.execute("COMMIT").expect("nothing has changed");
    let commits = "SELECT value FROM plait_status WHERE name='exclusive_commits'";
    assert_eq!(other.integer(commits), Ok(0));
    assert_eq!(other.integer("SELECT sum(n) FROM t"), Ok(12));
}
