//! Snapshots have changed pages alone, where the sums of the newest one are there.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use plait_replicate::replicas::{Replicas, Snapshot};
use plait_replicate::store::objects::{self, Missing};
use plait_replicate::world::Patience;

use crate::processes::Process;
use crate::real;
use crate::stage::Stage;

/// Rows of 500 random bytes, which nothing compresses: 10 MB.
const FILL: &str = "INSERT INTO t WITH RECURSIVE n(i) AS
    (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
    SELECT i + 900000000, hex(randomblob(500)) FROM n";
const DATABASE_BYTES: u64 = 10_000_000;

pub fn snapshots(stage: &Stage) -> Vec<Snapshot> {
    // The sidecar makes it.
    let Ok(store) = objects::open(stage.url.to_str().expect("UTF-8"), Missing::Refuse) else {
        return Vec::new();
    };
    let world = real::world(store, Patience::Tries(3));
    real::block_on(Replicas::look(&world)).map(|found| found.snapshots).unwrap_or_default()
}

/// Waits for a snapshot behind so many, and for the rows.
fn next(stage: &Stage, known: usize) -> Snapshot {
    let begun = Instant::now();
    loop {
        if let Some(newest) = snapshots(stage).get(known) {
            stage.agrees();
            return newest.clone();
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "there is no snapshot {known}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn sums(stage: &Stage) -> PathBuf {
    let entries = std::fs::read_dir(stage.folder.path()).expect("a folder").flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.to_string_lossy().contains("-plait-sums-"));
    assert_eq!(paths.len(), 1, "{paths:?}");
    paths.remove(0)
}

fn begun() -> (Stage, Process) {
    let stage = Stage::new();
    stage.execute(FILL);
    let sidecar = stage.sidecar(&[]);
    let first = next(&stage, 0);
    assert!(first.is_whole && first.stored_bytes > DATABASE_BYTES / 2, "{first:?}");
    (stage, sidecar)
}

fn is_change(snapshot: &Snapshot) {
    assert!(!snapshot.is_whole, "{snapshot:?} has all pages");
    assert!(snapshot.stored_bytes < DATABASE_BYTES / 50, "{snapshot:?}");
}

// holds LINEAGE-1
#[test]
fn a_change_of_the_schema_uploads_the_pages_that_it_changed() {
    let (stage, sidecar) = begun();
    stage.execute("CREATE TABLE u(a)");
    is_change(&next(&stage, 1));
    stage.execute("CREATE INDEX i ON u(a)");
    is_change(&next(&stage, 2));
    stage.writer(1, Some(50), "FULL").ended();
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
}

// holds SUMS-1, SUMS-2
#[test]
fn a_new_start_and_a_new_session_upload_what_has_changed() {
    let (stage, sidecar) = begun();
    sidecar.kill();
    // In a session of its own.
    stage.writer(1, Some(50), "FULL").ended();
    let sidecar = stage.sidecar(&[]);
    is_change(&next(&stage, 1));
    assert_eq!(sidecar.terminated(), 0);
    // What is shorter than it was, and longer again.
    stage.execute("DELETE FROM t WHERE id > 900000100; VACUUM");
    let sidecar = stage.sidecar(&[]);
    next(&stage, 2);
    stage.execute(&FILL.replace("900000000", "800000000"));
    next(&stage, 3);
    assert_eq!(sidecar.terminated(), 0);
}

// holds SUMS-1
#[test]
fn sums_of_an_earlier_snapshot_do_not_count_and_nor_do_those_that_are_gone() {
    let (stage, sidecar) = begun();
    let of_first = std::fs::read(sums(&stage)).expect("sums");
    stage.execute("CREATE TABLE u(a)");
    is_change(&next(&stage, 1));
    assert_eq!(sidecar.terminated(), 0);
    // As after a backup of the machine.
    std::fs::write(sums(&stage), of_first).expect("a file");
    let sidecar = stage.sidecar(&[]);
    let whole = next(&stage, 2);
    assert!(whole.is_whole, "{whole:?}");
    assert_eq!(sidecar.terminated(), 0);
    std::fs::remove_file(sums(&stage)).expect("it goes");
    let sidecar = stage.sidecar(&[]);
    let whole = next(&stage, 3);
    assert!(whole.is_whole, "{whole:?}");
    assert_eq!(sidecar.terminated(), 0);
}

// holds LINEAGE-1
#[test]
fn a_snapshot_whose_parts_were_removed_is_not_built_upon() {
    let (stage, sidecar) = begun();
    assert_eq!(sidecar.terminated(), 0);
    for part in std::fs::read_dir(stage.url.join("part")).expect("parts").flatten().take(1) {
        std::fs::remove_file(part.path()).expect("it goes");
    }
    let sidecar = stage.sidecar(&[]);
    let whole = next(&stage, 1);
    assert!(whole.is_whole, "{whole:?}");
    assert_eq!(sidecar.terminated(), 0);
}
