//! One database, and two that would follow with it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use plait_replicate::following::Live;
use plait_replicate::following::mark::Mark;
use plait_replicate::ids::RecordNumber;

#[cfg(feature = "crash-points")]
use crate::following::LOCK;
use crate::following::{PATIENCE, agrees, begun, beside, follower, is_told, nap, replica, says};
#[cfg(feature = "crash-points")]
use crate::model::rows_of;
use crate::processes::{Process, open};
use crate::stage::Stage;

// holds REPLICA-6
#[test]
fn a_follower_that_may_not_be_the_only_one_puts_no_copy_in_place() {
    let stage = Stage::new();
    let path = &stage.database;
    stage.execute("INSERT INTO t VALUES(1, 'own')");
    let copy = stage.folder.path().join("copy.db");
    open(path).execute(&format!("VACUUM INTO '{}'", copy.display())).expect("a copy");
    stage.execute("INSERT INTO t VALUES(2, 'later')");
    let mut mark = Mark::of_nothing("/mnt/place");
    mark.record = RecordNumber(1);
    mark.write(path, true).expect("it is written");
    let is_alone = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&is_alone);
    let live = Live::join(path, (7, 0), Box::new(move || asked.load(Ordering::Relaxed)));
    let live = live.expect("it joins");
    is_alone.store(false, Ordering::Relaxed);
    let why = live.copy_from(&copy).expect_err("it would take back what another has written");
    assert!(why.contains("another follower may have"), "{why}");
    assert_eq!(open(path).integer("SELECT count(*) FROM t"), Ok(2));
    let why = Live::join(path, (7, 0), Box::new(|| false)).err();
    assert!(why.is_some(), "nor does it join");
    is_alone.store(true, Ordering::Relaxed);
    drop(live);
    let live = Live::join(path, (7, 0), Box::new(|| true)).expect("it joins");
    live.copy_from(&copy).expect("it is alone again");
    assert_eq!(open(path).integer("SELECT count(*) FROM t"), Ok(1));
}

// holds TRAIL-1, REPLICA-6
#[cfg(feature = "crash-points")]
#[test]
fn a_follower_that_lost_its_lock_behind_its_last_look_takes_nothing_back() {
    let (stage, sidecar) = begun();
    let before = follower(&stage);
    agrees(&stage);
    assert_eq!(before.terminated(), 0);
    stage.execute("UPDATE t SET v = 'old' WHERE id = 10");
    stage.agrees();
    // It has looked at its lock, and is about to commit.
    let log = stage.folder.path().join("said");
    let said = std::fs::File::create(&log).expect("a file");
    let stalled =
        Process::follower_stopped(&stage.url, &replica(&stage), "follower.announced", said);
    let begun = Instant::now();
    while !stalled.is_stopped() {
        assert!(begun.elapsed() < PATIENCE, "it does not come so far");
        nap(20);
    }
    std::fs::remove_file(beside(&stage, LOCK)).expect("it is there");
    let second = follower(&stage);
    stage.execute("UPDATE t SET v = 'new' WHERE id = 10");
    agrees(&stage);
    stalled.signal(rustix::process::Signal::CONT);
    assert_eq!(stalled.ended().code(), Some(2), "another one may have it");
    let said = std::fs::read_to_string(&log).expect("it is read");
    let is_one = said.matches("plait-replicate: ").count() == 1;
    assert!(is_one && said.contains("lock was removed while "), "{said}");
    assert_eq!(rows_of(&replica(&stage)), stage.rows(), "readers have seen it");
    stage.execute("UPDATE t SET v = 'newest' WHERE id = 11");
    agrees(&stage);
    assert_eq!(second.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

// holds REPLICA-3
#[test]
fn a_replica_whose_mark_was_deleted_is_not_begun_anew_over_what_its_readers_have() {
    let (stage, sidecar) = begun();
    let first = follower(&stage);
    stage.agrees();
    agrees(&stage);
    // A copy alone needs no session: what is committed behind it does.
    stage.execute("UPDATE t SET v = 'new' WHERE id = 10");
    agrees(&stage);
    let reader = open(&replica(&stage));
    let rows = reader.integer("SELECT count(*) FROM t").expect("it is read");
    first.kill();
    std::fs::remove_file(beside(&stage, "-plait-follows")).expect("it is there");
    let follow = [std::path::Path::new("follow"), &stage.url, &replica(&stage)];
    // Its session tells what it was; at rest nobody knows.
    let said = says(&follow, 2);
    assert!(said.contains("is a replica, and its mark was deleted"), "{said}");
    assert!(said.contains("`plait promote ") && said.contains("follow anew"), "{said}");
    assert_eq!(reader.integer("SELECT count(*) FROM t"), Ok(rows));
    drop(reader);
    let said = says(&follow, 2);
    assert!(said.contains("follows nothing: choose a name that is free"), "{said}");
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn who_cannot_follow_is_refused_at_once_and_leaves_nothing() {
    let (stage, sidecar) = begun();
    stage.agrees();
    let says_of = |place: &Path, database: &Path| says(&[Path::new("follow"), place, database], 2);
    let said = says_of(&stage.url, &stage.database);
    assert!(said.contains("follows nothing: choose a name that is free"), "{said}");
    assert!(
        !plait_engine::storage::names::follows_lock_path(&stage.database).exists(),
        "it is no replica"
    );
    let file = stage.folder.path().join("file");
    std::fs::write(&file, b"no place").expect("a file");
    let said = says_of(&file, &replica(&stage));
    assert!(said.contains("/file is no folder: name the folder that has the replica"), "{said}");
    assert!(!replica(&stage).exists());
    assert_eq!(sidecar.terminated(), 0);
}

/// Waits for something, looking all the time.
fn awaits(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

/// Runs a sidecar, until it says that it ships; returns it, and how to read what it says.
fn heard(stage: &Stage, more: &[&str]) -> (Process, impl Fn() -> String + use<>) {
    let (sidecar, heard) = hearing(stage, more);
    awaits("that it ships", || heard().starts_with("shipping "));
    (sidecar, heard)
}

/// The same, as soon as it runs.
fn hearing(stage: &Stage, more: &[&str]) -> (Process, impl Fn() -> String + use<>) {
    let path = stage.folder.path().join("said");
    let said = std::fs::File::create(&path).expect("a file");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_plait-replicate"));
    command.arg("run").arg(&stage.url).arg(&stage.database).args(more);
    command.stdout(said.try_clone().expect("the same file")).stderr(said);
    let sidecar = Process::of(command.spawn().expect("it runs"));
    (sidecar, move || std::fs::read_to_string(&path).expect("it is read"))
}

#[test]
fn a_sidecar_says_why_it_ends_with_0() {
    let stage = Stage::new();
    let (sidecar, said) = heard(&stage, &["--interval", "50ms"]);
    let record = stage.agrees().record;
    assert_eq!(sidecar.terminated(), 0);
    let last = format!("everything is shipped, through record {record}\n");
    assert!(said().ends_with(&last), "{}", said());
    let (sidecar, said) = heard(&stage, &["--interval", "50ms"]);
    std::fs::rename(&stage.database, stage.folder.path().join("moved.db")).expect("it goes");
    assert_eq!(sidecar.ended().code(), Some(0));
    assert!(
        said().contains("app.db was deleted or moved away: where it was moved, "),
        "{}",
        said()
    );
}

#[test]
fn a_copy_is_made_once_where_nobody_can_tell_whether_its_name_is_taken() {
    let stage = Stage::new();
    let first = follower(&stage);
    is_told(&stage, "there is no folder ");
    // A program's own, which keeps everybody else out, comes under the name.
    let other = stage.folder.path().join("other.db");
    open(&other).execute("PRAGMA journal_mode = wal; CREATE TABLE t(a)").expect("a database");
    let keeper = Process::in_role("keeper", &[other.to_str().expect("UTF-8"), "600"], None);
    let locked = || {
        let db = plait_client::Library::linked().open(&other).expect("it opens");
        db.query("SELECT count(*) FROM t").is_err()
    };
    while !locked() {
        nap(20);
    }
    std::fs::rename(&other, replica(&stage)).expect("it comes");
    let sidecar = stage.sidecar(&[]);
    let copies = || {
        let entries = std::fs::read_dir(stage.folder.path()).expect("a folder").flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let copy = |name: &String| name.contains(".plait-replica-") && !name.ends_with("-wal");
        names.filter(copy).collect::<Vec<_>>()
    };
    is_told(&stage, "locked by process ");
    let copy = copies();
    assert_eq!(copy.len(), 1, "{copy:?}");
    // It is tried again, twice at least.
    nap(14_000);
    assert_eq!(copies(), copy, "a copy costs all that was shipped");
    keeper.kill();
    assert_eq!(first.ended().code(), Some(2), "the name has a database of its own");
    assert_eq!(copies(), [""; 0]);
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn an_end_ships_the_snapshot_that_it_needs_however_long_the_interval_is() {
    let stage = Stage::new();
    let (sidecar, _) = heard(&stage, &["--interval", "1h"]);
    stage.agrees();
    stage.execute("CREATE TABLE another(a)");
    stage.execute("INSERT INTO t VALUES(7, 'behind it')");
    assert_eq!(sidecar.terminated(), 0);
    stage.agrees();
}

#[test]
fn a_sidecar_that_waits_for_the_database_says_for_whom() {
    let stage = Stage::new();
    let alone = open(&stage.database);
    alone.execute("BEGIN IMMEDIATE; INSERT INTO t VALUES(7, 'alone')").expect("it is alone");
    let (sidecar, said) = hearing(&stage, &["--interval", "50ms"]);
    let what =
        format!("process {}, which works alone or in WAL mode, is writing", std::process::id());
    awaits(&what, || said().contains(&what));
    alone.execute("COMMIT").expect("it commits");
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn a_folder_for_copies_that_is_none_is_refused_before_anything_is_shipped() {
    let stage = Stage::new();
    let run = |database: &Path, scratch: &Path, code| {
        says(&[Path::new("run"), &stage.url, database, Path::new("--scratch"), scratch], code)
    };
    // Its disk may be mounted later.
    let said = run(&stage.database, &stage.folder.path().join("none"), 1);
    assert!(said.contains("cannot make a copy of the database in ") && said.contains("--scratch"));
    let said = run(&stage.database, &stage.database, 2);
    assert!(said.contains("it is no folder"), "{said}");
    let said = run(stage.folder.path(), stage.folder.path(), 2);
    assert!(said.contains("it is a folder: name the database in it"), "{said}");
    assert!(!stage.url.exists());
}

#[test]
fn what_is_changed_past_the_log_is_told_as_behind() {
    let stage = Stage::new();
    let keeper = open(&stage.database);
    let sidecar = stage.sidecar(&[]);
    keeper.execute("INSERT INTO t VALUES(1, 'first')").expect("it commits");
    stage.agrees();
    let status = |name: &str| {
        let sql = format!("SELECT value FROM plait_status WHERE name = 'replication_{name}'");
        keeper.integer(&sql).expect("it is told")
    };
    let behind = || (status("lag_changes"), status("lag_ms") > 0);
    awaits("nothing is behind", || behind() == (0, false));
    sidecar.kill();
    keeper.execute("CREATE TABLE another(a)").expect("it commits");
    nap(5);
    assert_eq!(behind(), (1, true));
    let again = stage.sidecar(&[]);
    let error = || {
        let sql = "SELECT value FROM plait_status WHERE name = 'replication_error'";
        keeper.text(sql).expect("it is told")
    };
    // At no moment is more told as there than can be restored.
    for _ in 0..3 {
        awaits("all is there", || behind() == (0, false) && error().is_empty());
        stage.restored().expect("it is told as there");
        keeper
            .execute("CREATE TABLE IF NOT EXISTS one_more(a); DROP TABLE one_more")
            .expect("it commits");
    }
    stage.agrees();
    assert_eq!(again.terminated(), 0);
}
