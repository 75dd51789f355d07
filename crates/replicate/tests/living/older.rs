//! The file of a replica that was removed, or replaced by an older one.

use std::time::Duration;

use plait_replicate::error::Error;
use plait_replicate::following::Done;

#[cfg(feature = "crash-points")]
use crate::following::{PATIENCE, nap};
use crate::following::{agrees, begun, beside, follower, is_told, is_told_nothing, mark, replica};
#[cfg(feature = "crash-points")]
use crate::missed::copies_begun_in;
use crate::model::rows_of;
#[cfg(feature = "crash-points")]
use crate::processes::Process;
use crate::processes::open;
use crate::silent::{Follows, MINUTE, ships};
use crate::stage::Stage;

/// An older copy under the replica's name is refused; puts back what was there, and returns it.
fn refuses(stage: &Stage, old: &[u8]) -> Vec<u8> {
    let path = replica(stage);
    let new = std::fs::read(&path).expect("a file");
    std::fs::write(&path, old).expect("it is put back");
    assert_eq!(follower(stage).ended().code(), Some(2));
    is_told(stage, "is an older state of the replica than its mark tells of");
    std::fs::write(&path, &new).expect("it is put back");
    new
}

// holds NOTED-3, FOLLOWS-7
#[test]
fn an_older_copy_under_the_replicas_name_is_not_gone_on_with() {
    let (stage, sidecar) = begun();
    let first = follower(&stage);
    agrees(&stage);
    assert_eq!(first.terminated(), 0);
    let (path, old) = (replica(&stage), std::fs::read(replica(&stage)).expect("a file"));
    let second = follower(&stage);
    stage.execute("INSERT INTO t VALUES(2, 'second')");
    agrees(&stage);
    assert_eq!(second.terminated(), 0);
    let new = refuses(&stage, &old);
    let third = follower(&stage);
    stage.execute("INSERT INTO t VALUES(3, 'third')");
    agrees(&stage);
    is_told_nothing(&stage);
    // While it runs: another file under the name, and none.
    std::fs::write(path.with_extension("moved"), &new).expect("a file");
    std::fs::rename(path.with_extension("moved"), &path).expect("it moves");
    assert_eq!(third.ended().code(), Some(2));
    is_told(&stage, "is another file than the one that followed: move it");
    stage.execute("INSERT INTO t VALUES(4, 'fourth')");
    let old = open(&path);
    old.integer("SELECT count(*) FROM t").expect("it is read");
    for end in ["", "-wal", "-shm", "-plait", "-plait-shm"] {
        let _ = std::fs::remove_file(format!("{}{end}", path.display()));
    }
    let fourth = follower(&stage);
    agrees(&stage);
    // What the new mark tells is not told to who has the old file open.
    assert!(
        old.integer("SELECT count(*) FROM t").is_ok_and(|rows| rows < stage.rows().len() as i64)
    );
    let waits = format!("SELECT plait_wait({})", mark(&stage).commit);
    for asked in ["SELECT plait_replica_time()", &waits, "SELECT plait_ticket()"] {
        assert!(old.integer(asked).is_err_and(|e| e.said().contains("open it again")), "{asked}");
    }
    drop(old);
    assert_eq!(fourth.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

// holds NOTED-3
#[test]
fn an_older_copy_is_not_gone_on_with_where_a_reader_has_closed_behind_a_killed_follower() {
    let (stage, sidecar) = begun();
    let writer = open(&stage.database);
    writer.execute("INSERT INTO t VALUES(1, 'first')").expect("a row");
    let (path, first) = (replica(&stage), follower(&stage));
    agrees(&stage);
    assert_eq!(first.terminated(), 0);
    let old = std::fs::read(&path).expect("a file");
    let second = follower(&stage);
    // Nothing that changes anything is shipped, and then a row.
    std::thread::sleep(Duration::from_secs(2));
    writer.execute("INSERT INTO t VALUES(2, 'second')").expect("a row");
    agrees(&stage);
    let reader = open(&path);
    reader.integer("SELECT count(*) FROM t").expect("it is read");
    second.kill();
    reader.close().expect("it brings all of the log into the file");
    assert!(!beside(&stage, "-plait").exists(), "it is at rest");
    refuses(&stage, &old);
    let third = follower(&stage);
    writer.execute("INSERT INTO t VALUES(3, 'third')").expect("a row");
    agrees(&stage);
    is_told_nothing(&stage);
    assert_eq!(third.terminated(), 0);
    drop(writer);
    assert_eq!(sidecar.terminated(), 0);
}

// holds NOTED-3
#[test]
fn an_older_copy_beside_the_log_of_a_killed_follower_is_refused() {
    let (stage, sidecar) = begun();
    let writer = open(&stage.database);
    let (path, first) = (replica(&stage), follower(&stage));
    agrees(&stage);
    assert_eq!(first.terminated(), 0);
    let old = std::fs::read(&path).expect("a file");
    let second = follower(&stage);
    writer.execute("INSERT INTO t VALUES(2, 'second')").expect("a row");
    agrees(&stage);
    open(&path).query("PRAGMA wal_checkpoint(TRUNCATE)").expect("a merge");
    writer.execute("INSERT INTO t VALUES(3, 'third')").expect("a row");
    agrees(&stage);
    second.kill();
    assert!(beside(&stage, "-plait").exists(), "it is not at rest");
    std::fs::write(path.with_extension("moved"), &old).expect("a file");
    std::fs::rename(path.with_extension("moved"), &path).expect("it moves");
    let third = follower(&stage);
    assert_eq!(third.ended().code(), Some(2));
    is_told(&stage, "move it, its mark and the files beside it away");
    drop(writer);
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn an_empty_file_in_a_removed_replicas_place_is_filled() {
    let (stage, sidecar) = begun();
    let writer = open(&stage.database);
    let (path, first) = (replica(&stage), follower(&stage));
    agrees(&stage);
    writer.execute("INSERT INTO t VALUES(2, 'second')").expect("a row");
    agrees(&stage);
    first.kill();
    assert!(beside(&stage, "-plait").exists(), "it has left a log");
    std::fs::remove_file(&path).expect("it is there");
    // A program opens the name, and reads.
    let early = open(&path);
    let tables = || early.integer("SELECT count(*) FROM sqlite_schema").expect("it is read");
    assert_eq!((tables(), std::fs::metadata(&path).map(|there| there.len()).ok()), (0, Some(0)));
    let second = follower(&stage);
    let begun = std::time::Instant::now();
    while tables() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "it is not filled");
        std::thread::sleep(Duration::from_millis(20));
    }
    agrees(&stage);
    assert_eq!(second.terminated(), 0);
    drop((writer, early));
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn a_replica_whose_file_alone_was_removed_is_made_anew() {
    let (stage, sidecar) = begun();
    // In a session that lasts what is committed comes as rows, which lie in the log of the replica.
    let writer = open(&stage.database);
    writer.execute("INSERT INTO t VALUES(1, 'first')").expect("a row");
    let path = replica(&stage);
    let first = follower(&stage);
    agrees(&stage);
    writer.execute("INSERT INTO t VALUES(2, 'second')").expect("a row");
    agrees(&stage);
    // Killed, it leaves a log.
    first.kill();
    assert!(beside(&stage, "-wal").exists());
    std::fs::remove_file(&path).expect("it is there");
    let third = follower(&stage);
    writer.execute("INSERT INTO t VALUES(3, 'third')").expect("a row");
    agrees(&stage);
    // And under a follower that runs.
    std::fs::remove_file(&path).expect("it is there");
    writer.execute("INSERT INTO t VALUES(4, 'fourth')").expect("a row");
    agrees(&stage);
    assert_eq!(third.terminated(), 0);
    drop(writer);
    assert_eq!(sidecar.terminated(), 0);
}

// holds TRAIL-1, NOTED-3
#[test]
fn an_older_file_that_comes_while_records_are_read_keeps_its_own_mark() {
    for moves in [true, false] {
        let (stage, sidecar) = begun();
        let first = follower(&stage);
        agrees(&stage);
        assert_eq!(first.terminated(), 0);
        let (path, at) = (replica(&stage), beside(&stage, "-plait-follows"));
        let (older, its) = (path.with_extension("older"), path.with_extension("mark"));
        std::fs::copy(&path, &older).expect("a copy");
        std::fs::copy(&at, &its).expect("a copy");
        let had = std::fs::read(&its).expect("a mark");
        let second = follower(&stage);
        ships(&stage, 2);
        agrees(&stage);
        assert_eq!(second.terminated(), 0);
        let last = ships(&stage, 3);
        let mut follows = Follows::begin(&stage, &[]);
        if !moves {
            // What is removed then is begun anew.
            let done =
                follows.step_while(move || std::fs::remove_file(&path).expect("it is there"));
            assert_eq!(done, Ok(Done::Waited));
            follows.reaches(last);
            assert_eq!(rows_of(&replica(&stage)), stage.rows());
            assert_eq!(sidecar.terminated(), 0);
            continue;
        }
        let done = follows.step_while(move || {
            std::fs::rename(&older, &path).expect("it comes");
            std::fs::rename(&its, &at).expect("it comes");
        });
        assert!(matches!(done, Err(Error::Replaced(_))), "{done:?}");
        assert_eq!(std::fs::read(beside(&stage, "-plait-follows")).expect("a mark"), had);
        drop(follows);
        for end in ["-plait", "-plait-shm", "-shm", "-wal"] {
            let _ = std::fs::remove_file(beside(&stage, end));
        }
        let third = follower(&stage);
        agrees(&stage);
        assert_eq!((third.terminated(), sidecar.terminated()), (0, 0));
    }
}

/// A replica at rest that needs a copy; and its follower, stopped at a step of that, with what it says.
#[cfg(feature = "crash-points")]
fn stopped_at(point: &str) -> (Stage, [Process; 2], std::path::PathBuf) {
    let (stage, sidecar) = begun();
    let first = follower(&stage);
    agrees(&stage);
    assert_eq!(first.terminated(), 0);
    std::fs::copy(replica(&stage), stage.folder.path().join("older.db")).expect("a copy");
    std::fs::copy(beside(&stage, MARK), stage.folder.path().join("older.mark")).expect("a copy");
    let at = stage.agrees().record;
    stage.execute("INSERT INTO t VALUES(2, 'behind it'); CREATE TABLE another(a)");
    let begun = std::time::Instant::now();
    while stage.agrees().snapshot <= at {
        assert!(begun.elapsed() < PATIENCE, "a snapshot leads there");
        nap(50);
    }
    let log = stage.folder.path().join("said");
    let said = std::fs::File::create(&log).expect("a file");
    let stalled = Process::follower_stopped(&stage.url, &replica(&stage), point, said);
    while !stalled.is_stopped() {
        assert!(begun.elapsed() < PATIENCE, "it does not come so far");
        nap(20);
    }
    (stage, [sidecar, stalled], log)
}

#[cfg(feature = "crash-points")]
const MARK: &str = "-plait-follows";

// holds TRAIL-1, NOTED-3, REPLICA-2
#[cfg(feature = "crash-points")]
#[test]
fn an_older_copy_that_comes_while_the_newest_record_is_put_keeps_its_own_mark() {
    for point in ["replica.settled", "exclusive.begun", "exclusive.committed", "exclusive.visible"]
    {
        let (stage, [sidecar, stalled], log) = stopped_at(point);
        let older = |name: &str| stage.folder.path().join(name);
        let had = std::fs::read(older("older.mark")).expect("a mark");
        std::fs::rename(older("older.db"), replica(&stage)).expect("it comes");
        std::fs::rename(older("older.mark"), beside(&stage, MARK)).expect("it comes");
        stalled.signal(rustix::process::Signal::CONT);
        assert_eq!(stalled.ended().code(), Some(2), "{point}");
        let said = std::fs::read_to_string(&log).expect("it is read");
        assert!(said.contains("is another file than the one that followed: move it"), "{said}");
        assert!(!said.contains("code ") && !said.contains("is at record"), "{point}: {said}");
        assert_eq!(std::fs::read(beside(&stage, MARK)).expect("a mark"), had, "{point}");
        for end in ["-plait", "-plait-shm", "-shm", "-wal"] {
            let _ = std::fs::remove_file(beside(&stage, end));
        }
        let second = follower(&stage);
        agrees(&stage);
        assert_eq!((second.terminated(), sidecar.terminated()), (0, 0));
    }
}

#[cfg(feature = "crash-points")]
#[test]
fn a_database_that_is_removed_while_its_copy_is_made_is_made_anew_under_its_own_name() {
    let (stage, [sidecar, stalled], log) = stopped_at("replica.settled");
    std::fs::remove_file(replica(&stage)).expect("it is there");
    stalled.signal(rustix::process::Signal::CONT);
    agrees(&stage);
    assert!(!beside(&stage, ".copied").exists(), "nobody reads that");
    // Somebody's file is in the way of the next copy.
    std::fs::write(beside(&stage, ".copied"), b"somebody's").expect("a file");
    stage.execute("CREATE TABLE more(a)");
    is_told(&stage, ".copied is there, under the name that a copy has in the making: move it away");
    std::fs::remove_file(beside(&stage, ".copied")).expect("it is there");
    agrees(&stage);
    assert_eq!(stalled.terminated(), 0);
    let said = std::fs::read_to_string(&log).expect("it is read");
    assert!(!said.contains("was removed or moved away"), "{said}");
    assert_eq!(sidecar.terminated(), 0);
}

// holds NOTED-3
#[cfg(feature = "crash-points")]
#[test]
fn an_older_copy_that_comes_while_a_copy_is_waited_for_keeps_its_own_mark() {
    let (stage, [sidecar, dies], _) = stopped_at("exclusive.visible");
    dies.kill();
    assert_eq!(sidecar.terminated(), 0);
    std::fs::rename(&stage.url, stage.folder.path().join("away")).expect("it goes");
    let follows = follower(&stage);
    is_told(&stage, "there is no folder ");
    let older = |name: &str| stage.folder.path().join(name);
    let had = std::fs::read(older("older.mark")).expect("a mark");
    std::fs::rename(older("older.db"), replica(&stage)).expect("it comes");
    std::fs::rename(older("older.mark"), beside(&stage, MARK)).expect("it comes");
    assert_eq!(follows.ended().code(), Some(2));
    assert_eq!(std::fs::read(beside(&stage, MARK)).expect("a mark"), had);
}

// holds TRAIL-3
#[cfg(feature = "crash-points")]
#[test]
fn a_copy_that_is_in_its_place_and_cannot_be_noted_is_not_made_again() {
    let (stage, [sidecar, stalled], log) = stopped_at("exclusive.visible");
    let new = beside(&stage, "-plait-follows.new");
    std::fs::remove_file(&new).expect("room for the next one");
    std::fs::create_dir(&new).expect("a folder in the way of the mark");
    let had = mark(&stage);
    stalled.signal(rustix::process::Signal::CONT);
    let said = || std::fs::read_to_string(&log).expect("it is read");
    let begun = std::time::Instant::now();
    while !said().contains("-plait-follows.new: Is a directory (os error 21): move it away") {
        assert!(begun.elapsed() < PATIENCE, "{}", said());
        nap(20);
    }
    assert_eq!(copies_begun_in(&stage, Duration::from_secs(8)), 0);
    assert_eq!(mark(&stage), had);
    std::fs::remove_dir(&new).expect("it is away");
    agrees(&stage);
    while mark(&stage).seeding.is_some() || mark(&stage).record <= had.record {
        assert!(begun.elapsed() < PATIENCE, "{:?}", mark(&stage));
        nap(20);
    }
    assert_eq!(copies_begun_in(&stage, Duration::from_secs(1)), 0);
    is_told_nothing(&stage);
    assert!(mark(&stage).counter > 0, "nobody reads there");
    assert_eq!((stalled.terminated(), sidecar.terminated()), (0, 0));
}

// holds TRAIL-3
#[test]
fn a_copy_in_place_of_refused_records_is_kept_until_it_can_be_noted() {
    let (stage, sidecar) = begun();
    let first = follower(&stage);
    agrees(&stage);
    assert_eq!(first.terminated(), 0);
    ships(&stage, 2);
    let last = ships(&stage, 3);
    assert_eq!(sidecar.terminated(), 0);
    let new = beside(&stage, "-plait-follows.new");
    let _ = std::fs::remove_file(&new);
    std::fs::create_dir(&new).expect("a folder in the way of the mark");
    let mut follows = Follows::begin(&stage, &[]);
    follows.works_for(MINUTE * 2);
    assert!(follows.said.contains("Is a directory"), "{}", follows.said);
    let made = follows.parts();
    assert!(made > 0, "a copy is made in their place");
    follows.works_for(MINUTE * 10);
    assert_eq!(follows.parts(), made, "and no other one");
    std::fs::remove_dir(&new).expect("it is away");
    follows.reaches(last);
    assert_eq!((rows_of(&replica(&stage)), follows.parts()), (stage.rows(), made));
}
