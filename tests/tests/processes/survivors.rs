//! The death of a process at a bad moment, and what one process cannot do, cost the others nothing.

use plait_tests::actor::Actor;
use plait_tests::crash::disk::SmallDisk;
use plait_tests::os::{self, Limited};
use plait_tests::place::Place;
use plait_tests::sqlite::{BUSY, CANTOPEN, Connection, FULL, IOERR};
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

const SCHEMA: &str =
    "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO t VALUES(1, 0)";
const POISONED: &str = "SELECT value FROM plait_status WHERE name='poisoned'";
/// Byte of the WAL-index that is SQLite's lock of the WAL's writer.
const WAL_WRITER: i64 = 120;
/// Descriptors of a process that can open none.
const NO_MORE: u64 = 3;
/// Far more than a statement needs that waits for nobody.
const PROMPT: Duration = Duration::from_secs(5);

fn process(name: &str, subject: &Subject, database: &Path) -> Actor {
    Actor::start(Place::Processes, name, subject, database)
}

/// A process that is inside an exclusive transaction, with a row of its own.
fn exclusive(subject: &Subject, database: &Path) -> Actor {
    let mut actor = process("exclusive", subject, database);
    actor.ok("BEGIN IMMEDIATE; PRAGMA application_id=7; INSERT INTO t VALUES(666, 0)");
    actor
}

#[track_caller]
fn goes_on(witness: &Connection, rows: i64) {
    let begun = Instant::now();
    witness.execute("INSERT INTO t(n) VALUES(0)").expect("it goes on");
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    assert_eq!(witness.integer(POISONED), Ok(0));
    assert_eq!(witness.integer("SELECT count(*) FROM t"), Ok(rows));
    assert_eq!(witness.integer("SELECT count(*) FROM t WHERE id=666"), Ok(0), "it never committed");
}

#[track_caller]
fn sound_at_rest(database: &Path, rows: i64) {
    let stock = Subject::stock().open(database).expect("stock opens it");
    assert_eq!(stock.integer("SELECT count(*) FROM t"), Ok(rows));
    assert_eq!(stock.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

#[test]
fn who_dies_in_an_exclusive_transaction_beside_a_waiting_checkpoint_stops_nobody() {
    let Some(subject) = real_plait("a death beside a checkpoint") else { return };
    for how in ["FULL", "RESTART", "TRUNCATE"] {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        let witness = fixture.open();
        witness.execute("PRAGMA synchronous=NORMAL").expect("a pragma");
        let mut reader = process("reader", &subject, &fixture.database());
        reader.ok("BEGIN; SELECT * FROM t");
        witness.execute("INSERT INTO t VALUES(2, 0); PRAGMA quick_check").expect("a merge");
        let mut checkpoint = process("checkpoint", &subject, &fixture.database());
        checkpoint.send(&format!("PRAGMA wal_checkpoint({how})"));
        assert!(checkpoint.still_waits_after(Duration::from_millis(200)));
        exclusive(&subject, &fixture.database()).kill();
        goes_on(&witness, 3);
        reader.ok("COMMIT");
        assert_eq!(checkpoint.finish().error, None);
        drop((reader, checkpoint));
        witness.close().expect("it closes");
        sound_at_rest(&fixture.database(), 3);
    }
}

#[test]
fn the_last_to_close_brings_everything_to_rest_though_who_merged_died_and_memory_is_full() {
    let Some(subject) = real_plait("a dead merger") else { return };
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let witness = fixture.open();
    witness.execute("PRAGMA synchronous=NORMAL; CREATE TABLE b(data)").expect("a table");
    witness.busy_timeout(Duration::from_millis(500)).expect("a timeout");
    let mut victim = process("victim", &subject, &fixture.database());
    victim.ok("PRAGMA synchronous=NORMAL");
    let is_merging = |pid| os::thread_names(pid).iter().any(|name| name == "plait-merge");
    let mut rows = 0;
    while !is_merging(victim.pid()) {
        victim.ok("INSERT INTO b VALUES(randomblob(1000000))");
        rows += 1;
        assert!(rows < 1000, "it never merges");
    }
    os::suspend(victim.pid()).expect("it is ours");
    while rows < 2000 && witness.execute("INSERT INTO b VALUES(randomblob(1000000))").is_ok() {
        rows += 1;
    }
    victim.kill();
    witness.close().expect("it closes");
    for left in ["-plait", "-plait-shm", "-wal"] {
        assert!(!fixture.side_file(left).exists(), "{left}");
    }
    let stock = Subject::stock().open(&fixture.database()).expect("stock opens it");
    assert_eq!(stock.integer("SELECT count(*) FROM b"), Ok(rows));
    assert_eq!(stock.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

// holds ESTATE-2, ESTATE-3, SLOT-3
#[test]
fn what_a_dead_process_left_is_settled_when_the_base_is_no_longer_locked() {
    let Some(subject) = real_plait("a locked base") else { return };
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let witness = fixture.open();
    witness.execute("PRAGMA page_count").expect("a merge");
    witness.busy_timeout(Duration::from_millis(500)).expect("a timeout");
    let victim = exclusive(&subject, &fixture.database());
    victim.kill();
    // As a process does that is stopped in the middle of something.
    let index = File::options().read(true).write(true).open(fixture.side_file("-shm"));
    let index = index.expect("the WAL-index");
    assert!(os::lock_byte(&index, WAL_WRITER));
    for _ in 0..3 {
        let begun = Instant::now();
        let error = witness.execute("INSERT INTO t VALUES(2, 0)").expect_err("it is locked");
        assert_eq!(error.code, BUSY, "{error}");
        assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
        // Readers need none of it, nor do those who come.
        assert_eq!(witness.integer("SELECT count(*) FROM t"), Ok(1));
        let mut other = process("other", &subject, &fixture.database());
        assert_eq!(other.integer("SELECT count(*) FROM t"), 1);
        assert_eq!(other.integer(POISONED), 0);
    }
    drop(index);
    goes_on(&witness, 2);
    witness.close().expect("it closes");
    sound_at_rest(&fixture.database(), 2);
}

// holds ESTATE-4
#[test]
fn what_a_dead_process_left_on_a_full_disk_is_settled_when_there_is_space() {
    let Some(subject) = real_plait("a full disk") else { return };
    let Some(disk) = SmallDisk::mount(160) else { return };
    let witness = subject.create(&disk.database()).expect("there is space");
    witness.execute(SCHEMA).expect("a table");
    witness.execute("PRAGMA synchronous=NORMAL").expect("a pragma");
    witness.busy_timeout(Duration::from_millis(500)).expect("a timeout");
    let victim = exclusive(&subject, &disk.database());
    disk.fill_but(0);
    victim.kill();
    let mut rows = 1;
    for _ in 0..3 {
        match witness.execute("INSERT INTO t(n) VALUES(0)") {
            Ok(()) => rows += 1,
            Err(error) => assert_eq!(error.code, FULL, "{error}"),
        }
        assert_eq!(witness.integer("SELECT count(*) FROM t"), Ok(rows));
        assert_eq!(witness.integer(POISONED), Ok(0));
    }
    disk.empty();
    goes_on(&witness, rows + 1);
    witness.close().expect("it closes");
    sound_at_rest(&disk.database(), rows + 1);
}

// holds LENT-2
#[test]
fn a_process_that_can_open_no_file_settles_what_a_dead_one_has_left() {
    let Some(subject) = real_plait("descriptors") else { return };
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let first = fixture.open();
    first.execute("INSERT INTO t(n) VALUES(0)").expect("the first write");
    let mut poor = process("poor", &subject, &fixture.database());
    poor.busy_timeout(Duration::from_millis(300));
    poor.ok("INSERT INTO t(n) VALUES(0)");
    let victim = exclusive(&subject, &fixture.database());
    os::limit(poor.pid(), Limited::Descriptors, Some(NO_MORE)).expect("a limit");
    victim.kill();
    // For that it reads the base, through what its connection has open (lent.c).
    poor.ok("INSERT INTO t(n) VALUES(0)");
    assert_eq!(poor.integer("SELECT count(*) FROM t"), 4);
    poor.ok("PRAGMA wal_checkpoint(TRUNCATE); CREATE TABLE more(a)");
    goes_on(&first, 5);
    os::limit(poor.pid(), Limited::Descriptors, None).expect("no limit");
    poor.ok("INSERT INTO t(n) VALUES(0)");
    poor.close().expect("it closes");
    first.close().expect("it closes");
    sound_at_rest(&fixture.database(), 6);
}

// holds PIPE-2, BEFORE-4
#[test]
fn a_process_that_can_open_no_file_fails_before_its_commit_counts_or_not_at_all() {
    let Some(subject) = real_plait("descriptors") else { return };
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let other = fixture.open();
    other.execute("PRAGMA synchronous=NORMAL").expect("a pragma");
    let start = |name| process(name, &subject, &fixture.database());
    // One has the log open, and the base's WAL with it; one was there before the log was.
    let (mut prepared, mut late) = (start("prepared"), start("late"));
    late.ok("SELECT * FROM t");
    prepared.ok("INSERT INTO t(n) VALUES(0)");
    for actor in [&prepared, &late] {
        os::limit(actor.pid(), Limited::Descriptors, Some(NO_MORE)).expect("a limit");
    }
    // Whoever writes next to the log has to sync the base's WAL first.
    other.execute("CREATE TABLE unsynced(a)").expect("an exclusive commit");
    late.run("INSERT INTO t(n) VALUES(0)").error.expect("it can open nothing");
    assert_eq!(other.integer("SELECT count(*) FROM t"), Ok(2), "it failed as a whole");
    prepared.ok("INSERT INTO t(n) VALUES(0)");
    goes_on(&other, 4);
    for actor in [&mut prepared, &mut late] {
        os::limit(actor.pid(), Limited::Descriptors, None).expect("no limit");
        actor.ok("INSERT INTO t(n) VALUES(0)");
        actor.close().expect("it closes");
    }
    other.close().expect("it closes");
    sound_at_rest(&fixture.database(), 6);
}

#[test]
fn whatever_a_process_cannot_open_the_text_says_once_what_where_and_what_to_do() {
    let Some(subject) = real_plait("descriptors") else { return };
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let first = fixture.open();
    first.execute("INSERT INTO t(n) VALUES(0)").expect("the first write");
    let mut told = BTreeSet::new();
    let mut more = 0;
    let last = loop {
        let mut poor = Actor::idle(Place::Processes, "poor", &subject);
        poor.open(Path::new(":memory:")).expect("the library is loaded");
        let open = std::fs::read_dir(format!("/proc/{}/fd", poor.pid())).expect("its files");
        let open: BTreeSet<u64> =
            open.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect();
        // So that there are `more` free numbers below it.
        let limit = (0..).filter(|number| !open.contains(number)).nth(more).expect("a number");
        os::limit(poor.pid(), Limited::Descriptors, Some(limit)).expect("a limit");
        let outcome = poor.open(&fixture.database());
        let error = match outcome {
            Ok(()) => poor.run("INSERT INTO t(n) VALUES(0)").error,
            Err(error) => Some(error),
        };
        let Some(error) = error else { break more };
        more += 1;
        assert!(more < 40, "{error}");
        // The rest is SQLite's own.
        if error.message == "unable to open database file" {
            continue;
        }
        let text = error.message.to_lowercase();
        let times = |part: &str| text.matches(part).count();
        let database = fixture.database().display().to_string().to_lowercase();
        for part in ["too many open files", "raise the limit of open files", "cannot ", &database] {
            assert_eq!(times(part), 1, "{part}: {error}");
        }
        told.insert(error.message);
    };
    assert!(told.len() > 1, "{last}: {told:?}");
    first.close().expect("it closes");
}

#[test]
fn a_process_with_a_small_file_size_limit_stops_nobody() {
    let Some(subject) = real_plait("the limit of file sizes") else { return };
    os::ignore_file_size_signal();
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let other = fixture.open();
    let start = |name| process(name, &subject, &fixture.database());
    let (mut early, mut late) = (start("early"), start("late"));
    early.ok("INSERT INTO t(n) VALUES(0)");
    late.ok("SELECT * FROM t");
    for actor in [&early, &late] {
        os::limit(actor.pid(), Limited::FileSize, Some(4096)).expect("a limit");
    }
    // Known before the commit counts: it says so and nothing happens.
    let error = late.run("INSERT INTO t(n) VALUES(0)").error.expect("it may not write the log");
    assert_eq!(error.code, FULL, "{error}");
    assert!(error.message.contains("RLIMIT_FSIZE"), "{error}");
    assert_eq!(other.integer("SELECT count(*) FROM t"), Ok(2));
    // Met at the sync: the commit is there, and on disk with the next that another process makes or reads.
    let error = early.run("INSERT INTO t(n) VALUES(0)").error.expect("it cannot write the log");
    assert!(error.message.contains("look before you repeat it"), "{error}");
    // Who cannot bring it to disk does not see an older state, in which it is missing.
    let error = early.run("SELECT count(*) FROM t").error.expect("it cannot write the log");
    assert_eq!(error.code, IOERR, "{error}");
    assert_eq!(other.integer("SELECT count(*) FROM t"), Ok(3));
    assert_eq!(early.integer("SELECT count(*) FROM t"), 3);
    goes_on(&other, 4);
    for actor in [&mut early, &mut late] {
        os::limit(actor.pid(), Limited::FileSize, None).expect("no limit");
        actor.ok("INSERT INTO t(n) VALUES(0)");
        actor.close().expect("it closes");
    }
    other.close().expect("it closes");
    sound_at_rest(&fixture.database(), 6);
}

/// Growing a file past the limit is answered by a signal that kills: nothing grows.
#[test]
fn a_process_with_a_small_file_size_limit_begins_no_session() {
    let Some(subject) = real_plait("the limit of file sizes") else { return };
    os::ignore_file_size_signal();
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let mut limited = process("limited", &subject, &fixture.database());
    os::limit(limited.pid(), Limited::FileSize, Some(1 << 20)).expect("a limit");
    for sql in ["INSERT INTO t(n) VALUES(0)", "BEGIN; SELECT * FROM t; COMMIT"] {
        if let Some(error) = limited.run(sql).error {
            assert_eq!(error.code, CANTOPEN, "{error}");
            assert!(error.message.contains("RLIMIT_FSIZE"), "{error}");
        }
        let _ = limited.run("ROLLBACK");
        let shm = fixture.path("app.db-plait-shm");
        assert_eq!(std::fs::metadata(shm).map_or(0, |meta| meta.len()), 0, "{sql}");
    }
    os::limit(limited.pid(), Limited::FileSize, None).expect("no limit");
    limited.ok("INSERT INTO t(n) VALUES(0)");
    limited.close().expect("it closes");
}

/// Under NORMAL and OFF a commit counts when it is in memory: that this process cannot write it fails none that counts, and others write it.
#[test]
fn a_relaxed_commit_that_its_process_cannot_write_counts_or_fails_as_it_says() {
    let Some(subject) = real_plait("limits and relaxed commits") else { return };
    os::ignore_file_size_signal();
    for synchronous in ["NORMAL", "OFF"] {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        let other = fixture.open();
        other.execute("INSERT INTO t(n) VALUES(0)").expect("a commit");
        let mut poor = process("poor", &subject, &fixture.database());
        poor.ok(&format!("PRAGMA synchronous={synchronous}; INSERT INTO t(n) VALUES(0)"));
        os::limit(poor.pid(), Limited::FileSize, Some(4096)).expect("a limit");
        // Once a second one of them writes for all.
        std::thread::sleep(Duration::from_millis(1100));
        let before = other.integer("SELECT count(*) FROM t").expect("it is counted");
        let mut counted = before;
        let failed = (0..50_000).find_map(|_| {
            let error = poor.run("INSERT INTO t(n) VALUES(zeroblob(300))").error;
            counted += i64::from(error.is_none());
            error
        });
        assert!(counted > before, "{synchronous}: none counted: {failed:?}");
        let found = other.integer("SELECT count(*) FROM t");
        assert_eq!(found, Ok(counted), "{synchronous}: {failed:?}");
        assert!(failed.is_some(), "{synchronous}: it has written past its limit");
        goes_on(&other, counted + 1);
        os::limit(poor.pid(), Limited::FileSize, None).expect("no limit");
        poor.ok("INSERT INTO t(n) VALUES(0)");
        poor.close().expect("it closes");
        other.close().expect("it closes");
        sound_at_rest(&fixture.database(), counted + 2);
    }
}

/// What it has prepared in one file, and cannot bring to disk, it takes back; others go on, also over both files.
#[test]
fn a_process_that_fails_in_a_commit_over_two_files_stops_nobody() {
    let Some(subject) = real_plait("limits in a commit over two files") else { return };
    os::ignore_file_size_signal();
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let second = fixture.path("second.db");
    subject.create(&second).expect("a second file").execute(SCHEMA).expect("its table");
    let attach = format!("ATTACH '{}' AS second", second.display());
    let both = "BEGIN IMMEDIATE; INSERT INTO main.t(n) VALUES(0); INSERT INTO second.t(n) VALUES(0); COMMIT";
    let count = "SELECT (SELECT count(*) FROM main.t) * 1000 + (SELECT count(*) FROM second.t)";
    let other = fixture.open();
    other.execute(&attach).expect("it is attached");
    other.execute(both).expect("a commit over both");
    let mut poor = process("poor", &subject, &fixture.database());
    poor.ok(&attach);
    poor.ok(both);
    let before = other.integer(count).expect("it is counted");
    for what in [Limited::FileSize, Limited::Descriptors] {
        // Nothing that is new can be opened; nothing can be written but the small files of such a commit.
        let most = if what == Limited::FileSize { 4096 } else { NO_MORE };
        os::limit(poor.pid(), what, Some(most)).expect("a limit");
        let error = poor.run(both).error.expect("it may not write the log");
        assert!([FULL, IOERR, CANTOPEN].contains(&error.code), "{error}");
        poor.run("ROLLBACK");
        assert_eq!(other.integer(count), Ok(before), "{error}: it failed as a whole");
        assert_eq!(other.integer(POISONED), Ok(0), "{error}");
        os::limit(poor.pid(), what, None).expect("no limit");
    }
    other.execute(both).expect("a commit of another over both");
    poor.ok(both);
    assert_eq!(other.integer(count), Ok(before + 2 * 1001));
    poor.close().expect("it closes");
    other.close().expect("it closes");
    for file in [&fixture.database(), &second] {
        assert!(!file.with_extension("db-plait-super").exists(), "{}", file.display());
    }
    sound_at_rest(&fixture.database(), before / 1000 + 2);
}

/// Log and memory of a session begin small. Who may not make them longer fails before its commit counts, and nobody else.
#[test]
fn a_process_that_may_not_make_the_log_longer_fails_before_its_commit_counts() {
    let Some(subject) = real_plait("limits while the log grows") else { return };
    os::ignore_file_size_signal();
    let large = |bytes: u32| format!("INSERT INTO t(n) VALUES(zeroblob({bytes}))");
    for synchronous in ["NORMAL", "FULL"] {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        let other = fixture.open();
        let mut poor = process("poor", &subject, &fixture.database());
        poor.ok(&format!("PRAGMA synchronous={synchronous}; INSERT INTO t(n) VALUES(0)"));
        goes_on(&other, 3);
        os::limit(poor.pid(), Limited::FileSize, Some(200 << 10)).expect("a limit");
        let error = poor.run(&large(400_000)).error.expect("it may not make the log longer");
        assert!(error.message.contains("-plait"), "{error}");
        assert_eq!(
            other.integer("SELECT count(*) FROM t"),
            Ok(3),
            "{synchronous}: it failed as a whole"
        );
        assert_eq!(other.integer(POISONED), Ok(0));
        other.execute(&large(700_000)).expect("others make it longer");
        // Now the log is long enough, and its place in it is one that the poor process may not write to: so others do.
        let beyond = poor.run("INSERT INTO t(n) VALUES(0)").error.is_some();
        goes_on(&other, 6);
        assert!(synchronous == "NORMAL" || beyond, "it has written past its limit");
        os::limit(poor.pid(), Limited::FileSize, None).expect("no limit");
        poor.ok(&large(900_000));
        // No descriptor is needed for growth.
        os::limit(poor.pid(), Limited::Descriptors, Some(NO_MORE)).expect("a limit");
        poor.ok(&large(2_000_000));
        poor.close().expect("it closes");
        goes_on(&other, 9);
        other.close().expect("it closes");
        sound_at_rest(&fixture.database(), 9);
    }
}

// holds EXCL-6
#[test]
fn a_fence_whose_author_died_before_the_first_write_of_a_session_is_raised_by_the_next() {
    let Some(_) = real_plait("a fence of the dead") else { return };
    let crash = Subject::plait_with_crash_points();
    for point in
        ["log.create.written", "log.create.renamed", "fence.log_created", "fence.committed"]
    {
        let fixture = Fixture::new(crash.clone(), SCHEMA);
        let witness = fixture.open();
        witness.execute("BEGIN CONCURRENT; SELECT * FROM t; COMMIT").expect("a member, at rest");
        let mut victim = Actor::start_with_environment(
            "victim",
            &crash,
            &fixture.database(),
            ("PLAIT_CRASH_AT", point),
        );
        victim.send("BEGIN CONCURRENT; INSERT INTO t VALUES(666, 0); COMMIT");
        victim.await_death();
        goes_on(&witness, 2);
        witness.close().expect("it closes");
        sound_at_rest(&fixture.database(), 2);
    }
}
