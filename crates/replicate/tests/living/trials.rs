//! What happens to a database and its sidecar, and that the replica has it.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use rustix::process::Signal;

use crate::model::restored;
use crate::processes::open;
use crate::stage::Stage;

fn nap(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

// holds SHIP-1, SHIP-2
#[test]
fn writers_in_several_processes_are_shipped() {
    let stage = Stage::new();
    let sidecar = stage.sidecar(&[]);
    let writers: Vec<_> = (1..=3).map(|name| stage.writer(name, Some(3000), "NORMAL")).collect();
    for writer in writers {
        assert!(writer.ended().success());
    }
    let restored = stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
    assert!(restored.position.commit.0 > 0);
    // What was committed to the sidecar's last moment is there.
    stage.agrees();
}

#[test]
fn merges_are_shipped_with_their_sums() {
    let stage = Stage::new();
    let sidecar = stage.sidecar(&[]);
    let before = stage.agrees().position.base;
    for round in 0..4 {
        stage.writer(1 + round, Some(400), "NORMAL").ended();
        stage.execute("PRAGMA wal_checkpoint");
    }
    let after = stage.agrees();
    assert!(after.position.base > before, "{after:?}");
    let first = after.snapshot;
    assert_eq!(stage.agrees().snapshot, first, "merges need no snapshot");
    assert_eq!(sidecar.terminated(), 0);
}

// holds SHIP-6
#[test]
fn what_nobody_syncs_is_shipped_too() {
    let stage = Stage::new();
    let _sidecar = stage.sidecar(&[]);
    stage.agrees();
    let db = open(&stage.database);
    db.execute("PRAGMA synchronous = NORMAL").expect("a level");
    db.execute("INSERT INTO t VALUES(5, 'acknowledged')").expect("a commit");
    stage.agrees();
}

// holds SHIP-4
#[test]
fn a_sidecar_that_was_killed_goes_on_where_it_was() {
    let stage = Stage::new();
    let sidecar = stage.sidecar(&[]);
    let writer = stage.writer(1, None, "FULL");
    nap(1500);
    let first = stage.restored().expect("a snapshot").1.snapshot;
    sidecar.kill();
    for _ in 0..3 {
        // The log of this session still has what comes next.
        nap(100);
        let sidecar = stage.sidecar(&[]);
        nap(200);
        sidecar.kill();
    }
    let sidecar = stage.sidecar(&[]);
    nap(500);
    writer.kill();
    let restored = stage.agrees();
    assert_eq!(restored.snapshot, first, "it needed no other snapshot");
    assert_eq!(sidecar.terminated(), 0);
}

// holds SHIP-4, SHIP-5, BOUND-1
#[test]
fn kills_of_writers_and_sidecars_lose_nothing_that_was_shipped() {
    let stage = Stage::new();
    let mut random = 7u64;
    let mut next = |bound: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    let mut sidecar = Some(stage.sidecar(&[]));
    for round in 0..8 {
        let levels = ["FULL", "NORMAL"];
        let mut writers: Vec<_> = (0..3)
            .map(|n| stage.writer(1 + round * 3 + n, None, levels[next(2) as usize]))
            .collect();
        nap(200 + next(600));
        if next(2) == 0 {
            sidecar.take().into_iter().for_each(crate::processes::Process::kill);
        }
        nap(next(200));
        while let Some(writer) = writers.pop() {
            writer.kill();
            nap(next(50));
        }
        sidecar.get_or_insert_with(|| stage.sidecar(&[]));
        if round % 3 == 2 {
            stage.agrees();
        }
    }
    stage.agrees();
    assert_eq!(sidecar.expect("one").terminated(), 0);
}

// holds HELD-2, SHIP-5
#[test]
fn a_sidecar_that_stands_still_past_its_limit_bridges_what_it_missed() {
    let stage = Stage::new();
    let sidecar = stage.sidecar(&["--max-lag", "4MiB"]);
    stage.writer(1, Some(100), "NORMAL").ended();
    let first = stage.agrees().snapshot;
    sidecar.signal(Signal::STOP);
    for round in 0..12 {
        assert!(stage.writer(2 + round, Some(300), "NORMAL").ended().success());
        stage.execute("PRAGMA wal_checkpoint");
    }
    sidecar.signal(Signal::CONT);
    let restored = stage.agrees();
    assert!(restored.snapshot > first, "a snapshot bridges what is missing");
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn transactions_of_their_own_kind_are_bridged() {
    let stage = Stage::new();
    let sidecar = stage.sidecar(&[]);
    let writer = stage.writer(1, None, "NORMAL");
    nap(300);
    stage.execute("CREATE TABLE u(a, b)");
    nap(300);
    stage.execute("CREATE INDEX i ON t(v)");
    nap(100);
    stage.execute("VACUUM");
    stage.execute(
        "INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
         SELECT i + 500000000, hex(randomblob(100)) FROM n",
    );
    nap(300);
    writer.kill();
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
}

// holds SHIP-4
#[test]
fn what_a_program_does_while_no_sidecar_lives_is_bridged() {
    let stage = Stage::new();
    let sidecar = stage.sidecar(&[]);
    stage.writer(1, Some(50), "FULL").ended();
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
    // Alone with the file, in no session, and in sessions of its own.
    stage.execute("UPDATE t SET v = 'alone'");
    stage.writer(2, Some(50), "FULL").ended();
    stage.execute("DELETE FROM t WHERE id % 2");
    let sidecar = stage.sidecar(&[]);
    stage.agrees();
    stage.writer(3, Some(50), "FULL").ended();
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
}

// holds SCRATCH-1
#[test]
fn a_store_that_is_away_holds_nothing_up() {
    let stage = Stage::new();
    let sidecar = stage.sidecar(&["--max-lag", "8MiB"]);
    stage.writer(1, Some(100), "FULL").ended();
    stage.agrees();
    // Root may write where it has not the right to: the folder goes away instead.
    let elsewhere = stage.folder.path().join("elsewhere");
    std::fs::rename(&stage.url, &elsewhere).expect("it goes");
    std::fs::write(&stage.url, b"no folder").expect("something in its place");
    for round in 0..8 {
        assert!(stage.writer(2 + round, Some(300), "NORMAL").ended().success());
        stage.execute("PRAGMA wal_checkpoint");
    }
    let wal = stage.folder.path().join("app.db-wal");
    let wal_bytes = std::fs::metadata(&wal).map_or(0, |m| m.len());
    assert!(wal_bytes < 32 << 20, "the WAL is used again: {wal_bytes}");
    let log = stage.folder.path().join("app.db-plait");
    let log_bytes = std::fs::metadata(&log).map_or(0, |m| m.len());
    assert!(log_bytes < 64 << 20, "the log is bounded: {log_bytes}");
    std::fs::remove_file(&stage.url).expect("it goes");
    std::fs::rename(&elsewhere, &stage.url).expect("it comes back");
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
    let mode = std::fs::metadata(&stage.url).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o700, 0o700);
}

#[test]
fn a_second_sidecar_fences_the_first() {
    let stage = Stage::new();
    let first = stage.sidecar(&[]);
    stage.writer(1, Some(50), "FULL").ended();
    stage.agrees();
    let second = stage.sidecar(&[]);
    stage.writer(2, Some(200), "FULL").ended();
    assert_eq!(first.ended().code(), Some(3), "do not start it again");
    stage.agrees();
    assert_eq!(second.terminated(), 0);
}

#[test]
fn a_copy_of_the_machine_is_no_silent_fork() {
    let stage = Stage::new();
    let sidecar = stage.sidecar(&["--machine", "one"]);
    stage.writer(1, Some(50), "FULL").ended();
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
    // The same files elsewhere, with another history from here on.
    let other = Stage { url: stage.url.clone(), ..Stage::new() };
    std::fs::copy(&stage.database, &other.database).expect("a copy");
    other.writer(7, Some(50), "FULL").ended();
    let refused = other.sidecar(&["--machine", "two"]);
    assert_eq!(refused.ended().code(), Some(2), "it takes --take-over");
    // Even then it goes on from nothing: its rows come by a snapshot of its own.
    let taker = other.sidecar(&["--machine", "two", "--take-over"]);
    other.agrees();
    let owner = stage.sidecar(&["--machine", "one"]);
    assert_eq!(owner.ended().code(), Some(2));
    other.writer(8, Some(50), "FULL").ended();
    other.agrees();
    assert_eq!(taker.terminated(), 0);
}

#[test]
fn a_database_in_another_mode_is_refused_as_usage() {
    let stage = Stage::new();
    stage.execute("PRAGMA journal_mode = delete");
    assert_eq!(stage.sidecar(&[]).ended().code(), Some(2));
}

#[test]
fn a_deleted_database_ends_its_sidecar() {
    let stage = Stage::new();
    let sidecar = stage.sidecar(&[]);
    stage.writer(1, Some(50), "FULL").ended();
    let rows = stage.rows();
    stage.has(&rows);
    std::fs::remove_file(&stage.database).expect("it goes");
    assert_eq!(sidecar.ended().code(), Some(0));
    let stop = plait_replicate::restore::Stop::Newest;
    let (found, _) =
        restored(&stage.url, stage.folder.path(), stop).expect("what was shipped stays");
    assert_eq!(found, rows);
}

// holds CHAIN-2
#[test]
fn a_sidecar_that_is_told_to_end_ends_behind_the_snapshot_that_is_needed() {
    let stage = Stage::new();
    stage.execute(
        "INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
         SELECT i + 500000000, hex(randomblob(200)) FROM n",
    );
    let sidecar = stage.sidecar(&[]);
    stage.agrees();
    stage.execute("INSERT INTO t VALUES(5, 'before'); CREATE TABLE later(a); INSERT INTO t VALUES(6, 'behind')");
    let rows = stage.rows();
    assert_eq!(sidecar.terminated(), 0);
    assert_eq!(stage.restored().expect("the newest can be restored").0, rows);
    // Before the first snapshot of a place it is the same.
    let other = Stage { url: stage.folder.path().join("another"), ..Stage::new() };
    other.execute("INSERT INTO t VALUES(5, 'first')");
    let sidecar = other.sidecar(&[]);
    while !other.url.join("chain").exists() {
        nap(5);
    }
    nap(50);
    assert_eq!(sidecar.terminated(), 0);
    assert_eq!(other.restored().expect("it can be restored").0, other.rows());
}

#[test]
fn a_place_that_has_lost_what_was_shipped_is_told() {
    let stage = Stage::new();
    let keeper = open(&stage.database);
    keeper.query("SELECT count(*) FROM plait_status").expect("it is asked");
    keeper.execute("INSERT INTO t VALUES(3, 'a session that stays')").expect("a commit");
    let sidecar = stage.sidecar(&[]);
    stage.agrees();
    // As where another disk is mounted there; an empty folder is waited for.
    let away = stage.folder.path().join("away");
    std::fs::rename(&stage.url, &away).expect("it goes");
    std::fs::create_dir_all(stage.url.join("something")).expect("another folder");
    stage.writer(1, Some(50), "FULL").ended();
    assert_eq!(sidecar.ended().code(), Some(1), "within its idle time");
    std::fs::remove_dir_all(&stage.url).expect("what it has left");
    std::fs::create_dir_all(stage.url.join("something")).expect("another folder");
    assert_eq!(stage.sidecar(&[]).ended().code(), Some(2), "it was shipped there before");
    std::fs::remove_dir_all(&stage.url).expect("what it has left");
    std::fs::rename(&away, &stage.url).expect("it is mounted again");
    let sidecar = stage.sidecar(&[]);
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
    std::fs::remove_dir_all(&stage.url).expect("it goes for good");
    let sidecar = stage.sidecar(&["--take-over"]);
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn a_database_that_was_made_anew_under_its_name_is_not_shipped_on_unasked() {
    let stage = Stage::new();
    if std::fs::metadata(&stage.database).and_then(|there| there.created()).is_err() {
        eprintln!("this file system does not tell when a file was made");
        return;
    }
    stage.execute("INSERT INTO t VALUES(1, 'first')");
    let first = stage.sidecar(&[]);
    let restored = stage.agrees();
    assert_eq!(first.terminated(), 0);
    // The same file goes on in another session.
    let second = stage.sidecar(&[]);
    stage.execute("INSERT INTO t VALUES(2, 'second')");
    stage.agrees();
    assert_eq!(second.terminated(), 0);
    nap(20);
    std::fs::remove_file(&stage.database).expect("it goes");
    let anew = Stage::in_folder(stage.folder);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_plait-replicate"));
    let refused = command.arg("run").arg(&anew.url).arg(&anew.database).output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("it is another database") && said.contains("--take-over"), "{said}");
    let third = anew.sidecar(&["--take-over"]);
    assert_ne!(anew.agrees().record, restored.record);
    assert_eq!(third.terminated(), 0);
    let fourth = anew.sidecar(&[]);
    anew.execute("INSERT INTO t VALUES(3, 'third')");
    anew.agrees();
    assert_eq!(fourth.terminated(), 0);
}
