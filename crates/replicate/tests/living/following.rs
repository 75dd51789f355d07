//! A database follows a replica while programs read it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::missed::copies_begun_in;
use crate::model::{Rows, rows_of};
use crate::processes::{Process, open};
use crate::stage::Stage;

/// How long a follower may be behind on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn nap(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

pub fn replica(stage: &Stage) -> PathBuf {
    stage.folder.path().join("elsewhere.db")
}

pub fn follower(stage: &Stage) -> Process {
    Process::follower(&stage.url, &replica(stage), None)
}

fn pairs(stage: &Stage, first: i64) -> Process {
    let database = stage.database.to_str().expect("UTF-8");
    Process::in_role("pairs", &[database, &first.to_string()], None)
}

fn reader(stage: &Stage, seconds: u64) -> Process {
    let replica = replica(stage);
    let words = [replica.to_str().expect("UTF-8"), &seconds.to_string()];
    Process::in_role("reader", &words, None)
}

/// Waits until the replica's database has these rows.
fn has(stage: &Stage, expected: &Rows) {
    let begun = Instant::now();
    let found = || replica(stage).exists().then(|| rows_of(&replica(stage)));
    while found().as_ref() != Some(expected) {
        assert!(begun.elapsed() < PATIENCE, "the follower does not come so far");
        nap(50);
    }
}

pub fn agrees(stage: &Stage) {
    has(stage, &stage.rows());
    let db = open(&replica(stage));
    assert_eq!(db.text("PRAGMA integrity_check").expect("a check"), "ok");
}

/// The last number of a writer of pairs that was killed.
fn last_of(stage: &Stage) -> i64 {
    let db = open(&stage.database);
    db.integer("SELECT max(id) - 1000000000 FROM t").expect("a number")
}

pub fn begun() -> (Stage, Process) {
    let stage = Stage::new();
    stage.execute("INSERT INTO t VALUES(10, 0), (11, 0), (1000000000, 'x')");
    let sidecar = stage.sidecar(&[]);
    (stage, sidecar)
}

// holds TRAIL-1, FOLLOW-2
#[test]
fn readers_see_whole_transactions_and_never_older_ones() {
    let (stage, sidecar) = begun();
    let writer = pairs(&stage, 1);
    let follower = follower(&stage);
    while !replica(&stage).exists() {
        nap(20);
    }
    let readers = [reader(&stage, 6), reader(&stage, 6)];
    nap(1000);
    stage.execute("CREATE TABLE u(a, b)");
    nap(1000);
    stage.execute("VACUUM");
    nap(1000);
    stage.execute("CREATE INDEX i ON t(v)");
    for reader in readers {
        assert!(reader.ended().success());
    }
    writer.kill();
    agrees(&stage);
    assert_eq!(follower.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

// holds NOTED-1, TRAIL-2
#[test]
fn a_follower_that_is_killed_goes_on_where_it_was() {
    let (stage, sidecar) = begun();
    let mut writer = pairs(&stage, 1);
    let mut now = follower(&stage);
    while !replica(&stage).exists() {
        nap(20);
    }
    let reader = reader(&stage, 12);
    for round in 0..30 {
        nap(100 + round * 37 % 250);
        now.kill();
        if round % 10 == 5 {
            writer.kill();
            writer = pairs(&stage, last_of(&stage) + 1);
            stage.execute(&format!("CREATE TABLE u{round}(a)"));
        }
        now = follower(&stage);
    }
    assert!(reader.ended().success());
    writer.kill();
    agrees(&stage);
    assert_eq!(now.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

// holds NOTED-1, TRAIL-2, TRAIL-3
#[cfg(feature = "crash-points")]
#[test]
fn a_follower_that_dies_at_any_step_shows_nothing_older() {
    let (stage, sidecar) = begun();
    let first = follower(&stage);
    stage.agrees();
    agrees(&stage);
    first.kill();
    let points = [
        "follower.announced",
        "follower.announced:2",
        "follower.committed",
        "follower.committed:2",
        "exclusive.begun",
        "exclusive.committed",
        "exclusive.switched",
        "exclusive.visible",
        "merge.committed",
    ];
    let reader = reader(&stage, 10);
    for (round, point) in points.iter().enumerate() {
        let writer = pairs(&stage, last_of(&stage) + 1);
        nap(200);
        if point.starts_with("exclusive") {
            stage.execute(&format!("CREATE TABLE u{round}(a)"));
        }
        let dies = Process::follower(&stage.url, &replica(&stage), Some(point));
        if point.starts_with("merge") {
            nap(500);
            dies.kill();
        } else {
            use std::os::unix::process::ExitStatusExt as _;
            assert_eq!(dies.ended().signal(), Some(9), "{point}");
        }
        writer.kill();
        let next = follower(&stage);
        agrees(&stage);
        next.kill();
    }
    assert!(reader.ended().success());
    let last = follower(&stage);
    // It has to come to where it hears of signals.
    nap(500);
    agrees(&stage);
    assert_eq!(last.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn a_follower_whose_next_record_is_gone_copies_the_database_anew() {
    let (stage, sidecar) = begun();
    let before = follower(&stage);
    stage.writer(1, Some(100), "NORMAL").ended();
    agrees(&stage);
    assert_eq!(before.terminated(), 0);
    let next = mark(&stage).record.next();
    for round in 0..2 {
        stage.writer(2 + round, Some(300), "NORMAL").ended();
        stage.execute(&format!("CREATE TABLE u{round}(a)"));
        stage.agrees();
    }
    // As retention removes it, or a rule of a bucket.
    let object = stage.url.join(plait_replicate::names::record(next));
    std::fs::remove_file(object).expect("it was there");
    let after = follower(&stage);
    agrees(&stage);
    assert_eq!(after.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

/// Bytes 18 and 19 of the replica's file.
fn versions(stage: &Stage) -> [u8; 2] {
    let bytes = std::fs::read(replica(stage)).expect("it is read");
    bytes[18..20].try_into().expect("two bytes")
}

// holds FOLLOWS-5, NOTED-4
#[test]
fn at_rest_it_can_be_read_by_sqlite_and_not_written() {
    let (stage, sidecar) = begun();
    stage.agrees();
    let first = follower(&stage);
    while !replica(&stage).exists() {
        nap(1);
    }
    assert_eq!(versions(&stage)[0], 3, "nobody else may write it from its first moment on");
    agrees(&stage);
    assert_eq!(first.terminated(), 0);
    assert_eq!(versions(&stage), [3, 2]);
    // One of before, without anything new to apply; its follower ends, or is killed, and a reader is the last.
    for kills in [false, true] {
        let file = std::fs::OpenOptions::new().write(true).open(replica(&stage)).expect("it opens");
        std::os::unix::fs::FileExt::write_all_at(&file, &[2], 18).expect("it is written");
        drop(file);
        let next = follower(&stage);
        nap(1000);
        match kills {
            true => next.kill(),
            false => assert_eq!(next.terminated(), 0),
        }
        assert_eq!(rows_of(&replica(&stage)), stage.rows());
        assert_eq!(versions(&stage), [3, 2], "{kills}");
    }
    stage.writer(1, Some(100), "NORMAL").ended();
    stage.execute("CREATE TABLE w(a)");
    let third = follower(&stage);
    agrees(&stage);
    assert_eq!(third.terminated(), 0);
    assert_eq!(versions(&stage), [3, 2]);
    assert_eq!(sidecar.terminated(), 0);
}

// holds TRAIL-4
#[test]
fn what_follows_nothing_and_a_second_follower_are_refused() {
    let (stage, sidecar) = begun();
    stage.agrees();
    let other = stage.folder.path().join("app.db");
    assert_eq!(Process::follower(&stage.url, &other, None).ended().code(), Some(2));
    let first = follower(&stage);
    agrees(&stage);
    assert_eq!(follower(&stage).ended().code(), Some(2), "one is there");
    assert_eq!(first.terminated(), 0);
    let elsewhere = stage.folder.path().join("another place");
    std::fs::create_dir(&elsewhere).expect("a folder");
    let refused = Process::follower(&elsewhere, &replica(&stage), None);
    assert_eq!(refused.ended().code(), Some(2), "it follows another place");
    assert_eq!(sidecar.terminated(), 0);
}

/// Nothing of a copy is left beside the replica.
fn is_tidy(stage: &Stage) {
    let names = std::fs::read_dir(stage.folder.path()).expect("a folder").flatten();
    let names: Vec<_> =
        names.map(|entry| entry.file_name().into_string().expect("UTF-8")).collect();
    assert!(
        !names.iter().any(|name| name.contains("copied") || name.contains("replica-")),
        "{names:?}"
    );
}

pub fn mark(stage: &Stage) -> plait_replicate::following::mark::Mark {
    let mark = plait_replicate::following::mark::Mark::read(&replica(stage));
    mark.expect("it can be read").expect("it is there")
}

#[test]
fn a_backlog_of_many_short_rows_is_applied() {
    let (stage, sidecar) = begun();
    stage.execute("CREATE TABLE s(a INTEGER PRIMARY KEY, b INT); CREATE INDEX i ON s(b)");
    let before = follower(&stage);
    stage.agrees();
    agrees(&stage);
    let record = mark(&stage).record;
    assert_eq!(before.terminated(), 0);
    let db = open(&stage.database);
    for n in 0..1500 {
        db.execute(&format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<200)
             INSERT INTO s SELECT {n} * 200 + i, i % 7 FROM n"
        ))
        .expect("it commits");
    }
    stage.execute("INSERT INTO t VALUES(77, 'last')");
    stage.agrees();
    let after = follower(&stage);
    agrees(&stage);
    let count = |db: &plait_client::Connection| db.integer("SELECT count(*) FROM s WHERE b < 9");
    assert_eq!(count(&open(&replica(&stage))), Ok(300_000));
    assert!(mark(&stage).record > record);
    assert_eq!(after.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
    is_tidy(&stage);
}

// holds BULK-4
#[test]
fn large_transactions_of_a_lone_writer_come_as_rows() {
    let (stage, sidecar) = begun();
    let follower = follower(&stage);
    stage.agrees();
    agrees(&stage);
    let version = || open(&replica(&stage)).integer("PRAGMA schema_version").expect("a number");
    let before = version();
    for n in 1..4 {
        stage.execute(&format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<5000)
             INSERT INTO t SELECT {n} * 100000 + i, 'large' FROM n"
        ));
    }
    agrees(&stage);
    assert_eq!(version(), before, "no copy was needed");
    assert_eq!(follower.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

// holds FOLLOWS-4
#[test]
fn a_program_that_has_opened_the_name_before_the_follower_can_only_read() {
    for transactions in [0, 1] {
        let stage = Stage::new();
        stage.execute("INSERT INTO t VALUES(1, 'first')");
        let early = open(&replica(&stage));
        if transactions == 1 {
            assert_eq!(early.integer("SELECT count(*) FROM sqlite_schema"), Ok(0));
        }
        let sidecar = stage.sidecar(&[]);
        stage.agrees();
        let follower = follower(&stage);
        let begun = Instant::now();
        while early.integer("SELECT count(*) FROM t") != Ok(1) {
            assert!(begun.elapsed() < PATIENCE, "nothing comes");
            nap(20);
        }
        for sql in [
            "INSERT INTO t VALUES(5, 'own')",
            "BEGIN IMMEDIATE; UPDATE t SET v = 'own'",
            "CREATE TABLE own(a)",
        ] {
            assert!(early.execute(sql).is_err(), "{sql}");
            let _ = early.execute("ROLLBACK");
        }
        agrees(&stage);
        assert_eq!(follower.terminated(), 0);
        assert_eq!(sidecar.terminated(), 0);
    }
}

fn refused(db: &plait_client::Connection, sql: &str, says: &str) {
    let error = db.execute(sql).expect_err(sql);
    assert_eq!(error.code, plait_client::READONLY, "{sql}: {}", error.said());
    assert!(
        error.said().contains(says) && error.said().contains("plait promote"),
        "{}",
        error.said()
    );
}

// holds REPLICA-3, FOLLOWS-4
#[test]
fn who_had_the_database_open_before_the_follower_writes_no_more() {
    let stage = Stage::new();
    let path = &stage.database;
    stage.execute("INSERT INTO t VALUES(1, 'own')");
    let mut open_ones = [open(path), open(path), open(path)];
    for (db, begin) in open_ones.iter_mut().zip(["BEGIN CONCURRENT", "BEGIN", "SELECT 1"]) {
        db.execute(begin).expect("it begins");
    }
    let [optimistic, reads, idle] = open_ones;
    optimistic.execute("INSERT INTO t VALUES(2, 'own')").expect("it is not committed");
    for member in [&reads, &idle] {
        assert_eq!(member.integer("SELECT count(*) FROM t"), Ok(1), "a member of the session");
    }
    let place = PathBuf::from(format!("{}-plait-follows", path.display()));
    let mut mark = plait_replicate::following::mark::Mark::of_nothing("/mnt/place");
    mark.record = plait_replicate::ids::RecordNumber(1);
    mark.write(path, true).expect("it is written");
    // It waits for who has the writer's right, as exclusive transactions do.
    idle.execute("BEGIN IMMEDIATE; INSERT INTO t VALUES(9, 'own')").expect("nobody follows yet");
    let live = std::thread::scope(|scope| {
        let joins =
            scope.spawn(|| plait_replicate::following::Live::join(path, (7, 0), Box::new(|| true)));
        nap(300);
        assert!(!joins.is_finished(), "a transaction has the right");
        idle.execute("COMMIT").expect("it was before");
        joins.join().expect("no panic").expect("it joins")
    });
    refused(&optimistic, "COMMIT", "follows /mnt/place");
    refused(&reads, "INSERT INTO t VALUES(3, 'own')", "follows /mnt/place");
    for sql in [
        "INSERT INTO t VALUES(3, 'own')",
        "BEGIN IMMEDIATE",
        "BEGIN CONCURRENT; UPDATE t SET v = 'own'",
        "CREATE TABLE own(a)",
        "VACUUM",
    ] {
        refused(&idle, sql, "follows /mnt/place");
        let _ = idle.execute("ROLLBACK");
    }
    // Nor does who comes when the mark was deleted, also behind the follower's end.
    std::fs::remove_file(place).expect("it is there");
    refused(&open(path), "INSERT INTO t VALUES(3, 'own')", "was removed");
    drop(live);
    refused(&open(path), "INSERT INTO t VALUES(3, 'own')", "was removed");
    assert_eq!(idle.integer("SELECT count(*) FROM t"), Ok(2));
    let told = "SELECT value FROM plait_status WHERE name = 'replica_error'";
    assert!(idle.text(told).is_ok_and(|text| text.contains("was removed")));
}

// holds REPLICA-3
#[test]
fn a_mark_that_is_deleted_under_its_follower_is_made_anew_and_nobody_writes_meanwhile() {
    let (stage, sidecar) = begun();
    let follower = follower(&stage);
    stage.agrees();
    agrees(&stage);
    // A copy alone needs no session: what is committed behind it does.
    stage.execute("UPDATE t SET v = 'new' WHERE id = 10");
    agrees(&stage);
    let path = PathBuf::from(format!("{}-plait-follows", replica(&stage).display()));
    let kept = open(&replica(&stage));
    kept.integer("SELECT count(*) FROM t").expect("it is read");
    for _ in 0..20 {
        let _ = std::fs::remove_file(&path);
        let own = open(&replica(&stage)).execute("INSERT INTO t VALUES(5, 'own')");
        assert_eq!(own.expect_err("a replica").code, plait_client::READONLY);
    }
    let begun = Instant::now();
    while !path.exists() {
        assert!(begun.elapsed() < PATIENCE, "the mark is not made anew");
        nap(20);
    }
    stage.execute("INSERT INTO t VALUES(6, 'of the primary')");
    agrees(&stage);
    assert_eq!(follower.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

pub fn beside(stage: &Stage, end: &str) -> PathBuf {
    PathBuf::from(format!("{}{end}", replica(stage).display()))
}

pub const LOCK: &str = "-plait-follows.lock";

// holds TRAIL-4
#[test]
fn a_follower_whose_lock_was_removed_ends_and_commits_no_more() {
    let (stage, sidecar) = begun();
    let first = follower(&stage);
    stage.agrees();
    agrees(&stage);
    std::fs::remove_file(beside(&stage, LOCK)).expect("it is there");
    assert_eq!(first.ended().code(), Some(2), "another one may have it");
    stage.execute("INSERT INTO t VALUES(2, 'later')");
    let second = follower(&stage);
    agrees(&stage);
    assert_eq!(second.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

// holds TRAIL-4
#[test]
fn a_replica_that_was_removed_with_all_its_files_is_made_anew_under_its_lock() {
    let (stage, sidecar) = begun();
    let mut first = follower(&stage);
    stage.agrees();
    agrees(&stage);
    // In the order of `rm replica.db*`, and mostly between two of its steps.
    first.signal(rustix::process::Signal::STOP);
    for end in ["", "-plait", "-plait-follows", LOCK, "-plait-shm", "-shm", "-wal"] {
        let _ = std::fs::remove_file(beside(&stage, end));
    }
    first.signal(rustix::process::Signal::CONT);
    stage.execute("INSERT INTO t VALUES(2, 'later')");
    let begun = Instant::now();
    while !beside(&stage, LOCK).exists() {
        assert!(begun.elapsed() < PATIENCE, "the lock is not taken anew");
        if let Some(code) = first.code() {
            // It was within a step, and had made a file anew before it missed its lock: it is to be started again.
            assert_eq!(code, 2);
            first = follower(&stage);
        }
        nap(20);
    }
    agrees(&stage);
    assert_eq!(follower(&stage).ended().code(), Some(2), "one is there");
    assert_eq!(first.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

// holds NOTED-2
#[test]
fn a_name_that_a_program_opens_too_early_becomes_the_replica() {
    let stage = Stage::new();
    let follower = follower(&stage);
    let marked = PathBuf::from(format!("{}-plait-follows", replica(&stage).display()));
    std::fs::create_dir_all(&stage.url).expect("a folder");
    while !marked.exists() {
        nap(20);
    }
    // It makes an empty file.
    let early = open(&replica(&stage));
    assert!(early.execute("CREATE TABLE own(a)").is_err(), "it is a replica");
    assert_eq!(std::fs::metadata(replica(&stage)).expect("a file").len(), 0);
    stage.execute("INSERT INTO t VALUES(1, 'first')");
    let sidecar = stage.sidecar(&[]);
    let begun = Instant::now();
    while early.integer("SELECT count(*) FROM t") != Ok(1) {
        assert!(begun.elapsed() < PATIENCE, "nothing comes");
        nap(20);
    }
    agrees(&stage);
    assert!(early.execute("INSERT INTO t VALUES(2, 'own')").is_err(), "it is a replica");
    stage.execute("CREATE TABLE u(a); INSERT INTO t VALUES(2, 'second')");
    agrees(&stage);
    assert_eq!(early.integer("SELECT count(*) FROM t"), Ok(2));
    assert_eq!(follower.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
    is_tidy(&stage);
}

#[test]
fn a_database_that_a_program_has_made_meanwhile_is_left_alone() {
    let stage = Stage::new();
    let early = open(&replica(&stage));
    let follower = follower(&stage);
    let marked = PathBuf::from(format!("{}-plait-follows", replica(&stage).display()));
    std::fs::create_dir_all(&stage.url).expect("a folder");
    while !marked.exists() {
        nap(20);
    }
    early.execute("CREATE TABLE own(a); INSERT INTO own VALUES(1)").expect("it was there first");
    let sidecar = stage.sidecar(&[]);
    assert_eq!(follower.ended().code(), Some(2));
    assert_eq!(early.integer("SELECT count(*) FROM own"), Ok(1));
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn a_place_of_another_database_is_refused() {
    let (stage, sidecar) = begun();
    let first = follower(&stage);
    stage.execute("INSERT INTO t VALUES(2, 'a')");
    stage.agrees();
    agrees(&stage);
    assert_eq!(sidecar.terminated(), 0);
    let elsewhere = stage.folder.path().join("moved");
    std::fs::rename(&stage.url, &elsewhere).expect("it goes");
    let other = Stage::new();
    let sidecar = Process::sidecar(&stage.url, &other.database, &[], None);
    // An idle sidecar would come to the record that the follower awaits in its own time.
    let writer = other.writer(1, None, "NORMAL");
    assert_eq!(first.ended().code(), Some(2), "while it runs");
    assert_eq!(follower(&stage).ended().code(), Some(2), "when it begins");
    writer.kill();
    assert_eq!(sidecar.terminated(), 0);
    // A replica is not shipped to the place that it follows.
    let itself = Process::sidecar(&stage.url, &replica(&stage), &["--take-over"], None);
    assert_eq!(itself.ended().code(), Some(2));
    let marked = format!("{}-plait-follows", replica(&stage).display());
    std::fs::write(marked, "plait replica 1\n").expect("a damaged mark");
    let unknown = Process::sidecar(&elsewhere, &replica(&stage), &["--take-over"], None);
    assert_eq!(unknown.ended().code(), Some(2), "where it follows is not known");
}

#[test]
fn another_page_size_is_said_to_need_a_new_start() {
    let (stage, sidecar) = begun();
    let first = follower(&stage);
    agrees(&stage);
    assert_eq!(first.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
    stage.execute("PRAGMA journal_mode = delete; PRAGMA page_size = 8192; VACUUM; PRAGMA journal_mode = concurrent");
    stage.execute("INSERT INTO t VALUES(2, 'larger')");
    let sidecar = stage.sidecar(&[]);
    stage.agrees();
    let (path, said) = (replica(&stage), stage.folder.path().join("said"));
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_plait-replicate"));
    command.arg("follow").arg(&stage.url).arg(&path).args(["--interval", "20ms"]);
    let log = std::fs::File::create(&said).expect("a file");
    let mut second =
        command.stdout(std::process::Stdio::null()).stderr(log).spawn().expect("it runs");
    let begun = Instant::now();
    let text = || std::fs::read_to_string(&said).expect("it is read");
    while !text().contains("8192 bytes now, and those here 4096: end this, remove") {
        assert!(begun.elapsed() < PATIENCE, "{}", text());
        nap(20);
    }
    second.kill().expect("it runs");
    second.wait().expect("it ended");
    for end in ["", "-wal", "-shm", "-plait", "-plait-shm"] {
        let _ = std::fs::remove_file(format!("{}{end}", path.display()));
    }
    let third = follower(&stage);
    agrees(&stage);
    assert_eq!(third.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

// holds REPLICA-2
#[test]
fn a_commit_that_was_lost_with_the_primary_is_not_said_to_be_there() {
    let (stage, sidecar) = begun();
    let follows = follower(&stage);
    stage.agrees();
    agrees(&stage);
    sidecar.kill();
    let db = open(&stage.database);
    db.execute("INSERT INTO t VALUES(5, 'lost')").expect("it commits");
    let lost = db.integer("SELECT plait_ticket()").expect("a ticket") as u64;
    let (restored, _) = stage.restored().expect("it is restored");
    assert!(!restored.contains_key(&5));
    drop(db);
    let new = stage.folder.path().join("new.db");
    let mut cli = std::process::Command::new(env!("CARGO_BIN_EXE_plait-replicate"));
    let made = cli.arg("restore").arg(&stage.url).arg("-o").arg(&new).output();
    assert!(made.as_ref().is_ok_and(|made| made.status.success()), "{made:?}");
    let sidecar = Process::sidecar(&stage.url, &new, &["--take-over"], None);
    open(&new).execute("INSERT INTO t VALUES(6, 'new')").expect("it commits");
    has(&stage, &rows_of(&new));
    open(&new).execute("INSERT INTO t VALUES(7, 'new')").expect("it commits");
    has(&stage, &rows_of(&new));
    let mark = mark(&stage);
    assert!(mark.first.0 > lost && mark.commit >= mark.first, "{lost}: {mark:?}");
    assert_eq!(follows.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

/// Waits on the replica for the newest commit of the primary, which is of its own kind; returns its ticket.
fn waits_for(stage: &Stage, sql: &str) -> u64 {
    let db = open(&stage.database);
    db.execute(sql).unwrap_or_else(|e| panic!("{sql}: {}", e.said()));
    let ticket = db.integer("SELECT plait_ticket()").expect("a ticket");
    is_reached(stage, ticket as u64, sql);
    ticket as u64
}

/// Waits until the replica says that it has the commit of this ticket.
fn is_reached(stage: &Stage, ticket: u64, what: &str) {
    let here = open(&replica(stage));
    let waits = format!("SELECT plait_wait({ticket}, {})", 60_000);
    assert_eq!(here.integer(&waits), Ok(1), "{what}: {ticket} of {:?}", mark(stage));
}

#[test]
fn the_ticket_of_a_change_of_the_schema_is_there_with_its_snapshot() {
    let (stage, sidecar) = begun();
    // Keeps the session.
    let db = open(&stage.database);
    let newest = db.integer("SELECT plait_ticket()").expect("a ticket");
    let follows = follower(&stage);
    agrees(&stage);
    // The follower notes what it has applied a moment after its readers see it.
    is_reached(&stage, newest as u64, "what was there before");
    waits_for(&stage, "CREATE TABLE u(a)");
    waits_for(&stage, "INSERT INTO t VALUES(20, 'rows')");
    let last = waits_for(&stage, "DROP TABLE u");
    // Nothing was behind them when they were shipped, so they can be restored by their numbers.
    for (ticket, rows) in [(newest as u64, 3), (last, 4)] {
        let out = stage.folder.path().join(format!("{ticket}.db"));
        let mut cli = std::process::Command::new(env!("CARGO_BIN_EXE_plait-replicate"));
        cli.arg("restore").arg(&stage.url).args(["--commit", &ticket.to_string(), "-o"]).arg(&out);
        let made = cli.output().expect("it runs");
        assert!(made.status.success(), "{made:?}");
        assert_eq!(open(&out).integer("SELECT count(*) FROM sqlite_schema"), Ok(1));
        assert_eq!(open(&out).integer("SELECT count(*) FROM t"), Ok(rows));
    }
    assert_eq!(follows.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn a_store_that_is_away_is_waited_for() {
    let (stage, sidecar) = begun();
    let follower = follower(&stage);
    agrees(&stage);
    let elsewhere = stage.folder.path().join("moved");
    std::fs::rename(&stage.url, &elsewhere).expect("it goes");
    std::fs::write(&stage.url, b"no folder").expect("something in its place");
    stage.writer(2, Some(100), "FULL").ended();
    is_told(&stage, "");
    std::fs::remove_file(&stage.url).expect("it goes");
    std::fs::rename(&elsewhere, &stage.url).expect("it comes back");
    agrees(&stage);
    is_told_nothing(&stage);
    assert_eq!(follower.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

/// Waits until the mark says that something is in the way, and what.
pub fn is_told(stage: &Stage, says: &str) {
    let begun = Instant::now();
    let path = PathBuf::from(format!("{}-plait-follows", replica(stage).display()));
    while !path.exists() {
        nap(20);
    }
    while !mark(stage).trouble.is_some_and(|trouble| trouble.what.contains(says)) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", mark(stage).trouble);
        nap(50);
    }
}

pub fn is_told_nothing(stage: &Stage) {
    let begun = Instant::now();
    while mark(stage).trouble.is_some() {
        assert!(begun.elapsed() < PATIENCE, "{:?}", mark(stage).trouble);
        nap(50);
    }
}

#[test]
fn a_reader_that_locks_everybody_out_is_named() {
    let (stage, sidecar) = begun();
    let first = follower(&stage);
    agrees(&stage);
    assert_eq!(first.terminated(), 0);
    let path = replica(&stage);
    let keeper = Process::in_role("keeper", &[path.to_str().expect("UTF-8"), "600"], None);
    // It has come so far when others are locked out.
    let locked = || {
        let db = plait_client::Library::linked().open(&path).expect("it opens");
        db.query("SELECT count(*) FROM t").is_err()
    };
    while !locked() {
        nap(20);
    }
    stage.execute("INSERT INTO t VALUES(5, 'later')");
    let second = follower(&stage);
    is_told(&stage, "locking_mode=exclusive");
    assert!(
        mark(&stage).trouble.is_some_and(|trouble| trouble.what.contains("locked by process "))
    );
    keeper.kill();
    agrees(&stage);
    is_told_nothing(&stage);
    assert_eq!(second.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn a_replica_that_was_locked_is_joined_again_without_a_copy_also_where_nothing_is_new() {
    let (stage, sidecar) = begun();
    let first = follower(&stage);
    stage.agrees();
    agrees(&stage);
    assert_eq!((sidecar.terminated(), first.terminated()), (0, 0));
    let path = replica(&stage);
    let keeper = Process::in_role("keeper", &[path.to_str().expect("UTF-8"), "600"], None);
    let locked = || {
        let db = plait_client::Library::linked().open(&path).expect("it opens");
        db.query("SELECT count(*) FROM t").is_err()
    };
    while !locked() {
        nap(20);
    }
    let second = follower(&stage);
    is_told(&stage, "locked by process ");
    // Three tries to join, and more.
    assert_eq!(copies_begun_in(&stage, Duration::from_secs(25)), 0);
    keeper.kill();
    is_told_nothing(&stage);
    assert_eq!(second.terminated(), 0);
}

#[test]
fn a_program_that_locks_a_sidecar_out_is_named() {
    let stage = Stage::new();
    let path = stage.database.to_str().expect("UTF-8");
    let keeper = Process::in_role("keeper", &[path, "600"], None);
    let locked = || {
        let db = plait_client::Library::linked().open(&stage.database).expect("it opens");
        db.query("SELECT count(*) FROM t").is_err()
    };
    while !locked() {
        nap(20);
    }
    let said = says(&["run".as_ref(), &stage.url, &stage.database], 1);
    assert!(said.contains("locked by process ") && said.contains("locking_mode"), "{said}");
    keeper.kill();
    let sidecar = stage.sidecar(&[]);
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
}

/// What the program says that ends with this code.
pub fn says(arguments: &[&std::path::Path], code: i32) -> String {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_plait-replicate"));
    let output = command.args(arguments).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}
