//! Snapshots of changed pages: which sums count, and that there is an end to what builds on what.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::primary::Database;
use super::run::settings;
use super::stage::Stage;
use super::time::TaskClock;
use crate::fault::{Fault, plant};
use crate::ids::RecordNumber;
use crate::primary::{Settings, Sidecar};
use crate::record::{Item, Record, SnapshotRef};
use crate::restore::Stop;

const SECOND: Duration = Duration::from_secs(1);

/// Nothing is packed or deleted, and no snapshot is due for its age alone.
fn calm() -> Settings {
    let long = Duration::from_secs(1 << 20);
    Settings { pack_every: long, sweep_every: long, snapshot_every: long, ..settings(false) }
}

/// The snapshots of a chain.
fn snapshots(stage: &Stage) -> Vec<(RecordNumber, SnapshotRef)> {
    let mut found = Vec::new();
    for (number, bytes) in stage.objects.ledger() {
        let record = Record::decode(&bytes).expect("it is sound");
        for item in record.items {
            if let Item::Snapshot(snapshot) = item {
                found.push((number, snapshot));
            }
        }
    }
    found
}

/// Works until there is one more.
fn next(stage: &Stage, sidecar: &mut (Sidecar, TaskClock)) -> SnapshotRef {
    let before = snapshots(stage).len();
    for _ in 0..100 {
        stage.work(sidecar, SECOND).expect("a quiet world");
        if let Some((_, snapshot)) = snapshots(stage).get(before) {
            return snapshot.clone();
        }
    }
    panic!("there is no snapshot behind {before} others")
}

fn open(stage: &Stage, database: &Rc<RefCell<Database>>) -> (Sidecar, TaskClock) {
    stage.open(database, calm()).expect("its own place")
}

/// A backup of all files is put back, with sums of a snapshot that is not the newest any more. Returns
/// what is wrong then.
fn put_back_with_its_sums() -> Option<String> {
    let stage = Stage::default();
    let database = stage.database("alpha");
    database.borrow_mut().exclusive_with(30);
    let mut sidecar = open(&stage, &database);
    next(&stage, &mut sidecar);
    database.borrow_mut().save();
    database.borrow_mut().commit(true);
    database.borrow_mut().exclusive_with(30);
    next(&stage, &mut sidecar);
    drop(sidecar);
    database.borrow_mut().put_back();
    let mut sidecar = open(&stage, &database);
    next(&stage, &mut sidecar);
    match stage.restore(Stop::Newest) {
        Ok(_) => stage.oracle.violation(),
        Err(error) => Some(error.to_string()),
    }
}

// holds SUMS-1
#[test]
fn sums_of_another_snapshot_do_not_count_and_who_counts_them_is_found_out() {
    assert_eq!(put_back_with_its_sums(), None);
    plant(Some(Fault::SumsOfAnother));
    let wrong = put_back_with_its_sums();
    plant(None);
    assert!(wrong.is_some());
}

// holds LINEAGE-1, LINEAGE-2
#[test]
fn a_restore_never_reads_much_more_than_a_whole_snapshot() {
    let stage = Stage::default();
    let database = stage.database("alpha");
    database.borrow_mut().exclusive_with(30);
    let mut sidecar = open(&stage, &database);
    next(&stage, &mut sidecar);
    for round in 0..60 {
        if round % 5 == 0 {
            drop(sidecar);
            database.borrow_mut().change_at_rest();
            sidecar = open(&stage, &database);
        } else {
            database.borrow_mut().commit(true);
            database.borrow_mut().need_a_break();
        }
        next(&stage, &mut sidecar);
    }
    let bytes = |snapshot: &SnapshotRef| -> u64 {
        snapshot.parts.each.iter().map(|part| u64::from(part.raw_bytes)).sum()
    };
    let (mut whole, mut changed, mut changes) = (0, 0, 0);
    let mut before = RecordNumber::NONE;
    for (number, snapshot) in snapshots(&stage) {
        if snapshot.parent == RecordNumber::NONE {
            (whole, changed) = (bytes(&snapshot), 0);
        } else {
            assert_eq!(snapshot.parent, before, "the newest");
            assert!(changed < whole / 2, "{changed} bytes of changes of {whole}");
            changed += bytes(&snapshot);
            changes += 1;
        }
        before = number;
    }
    assert!(changes > 20, "{changes} of 61 snapshots have changed pages alone");
    stage.restore(Stop::Newest).expect("what is there now");
    assert_eq!(stage.oracle.violation(), None);
}

// holds LINEAGE-2
#[test]
fn a_snapshot_is_whole_where_the_last_whole_one_is_old_or_many_build_on_it() {
    let stage = Stage::default();
    let database = stage.database("alpha");
    database.borrow_mut().exclusive_with(400);
    let daily = Settings { snapshot_every: Duration::from_secs(100_000), ..calm() };
    let mut sidecar = stage.open(&database, daily).expect("an empty place");
    assert_eq!(next(&stage, &mut sidecar).parent, RecordNumber::NONE);
    let mut change = || {
        database.borrow_mut().commit(true);
        database.borrow_mut().need_a_break();
        next(&stage, &mut sidecar).parent != RecordNumber::NONE
    };
    assert!((0..32).all(|_| change()), "32 build on it");
    assert!(!change(), "and no more");
    assert!(change());
    stage.time.advance_to(stage.time.now() + Duration::from_secs(100_000));
    assert!(!change(), "it is as old as one may become");
    assert!(change());
    stage.restore(Stop::Newest).expect("what is there now");
    assert_eq!(stage.oracle.violation(), None);
}

#[test]
fn a_base_that_the_newest_snapshot_has_is_not_copied_again() {
    let stage = Stage::default();
    let database = stage.database("alpha");
    let often = Settings { log_bytes_least: 500, ..calm() };
    let mut sidecar = stage.open(&database, often).expect("an empty place");
    next(&stage, &mut sidecar);
    for _ in 0..60 {
        database.borrow_mut().commit(true);
        stage.work(&mut sidecar, SECOND).expect("a quiet world");
    }
    assert_eq!(snapshots(&stage).len(), 1, "the log is long, and nothing was merged");
    database.borrow_mut().merge_everything();
    next(&stage, &mut sidecar);
    assert_eq!(stage.oracle.violation(), None);
}

#[test]
fn a_snapshot_that_is_needed_does_not_wait_for_a_long_interval() {
    let interval = SECOND * 3600;
    let stage = Stage::default();
    let database = stage.database("alpha");
    database.borrow_mut().exclusive_with(30);
    let settings = Settings { interval, ..calm() };
    let mut sidecar = stage.open(&database, settings).expect("its own place");
    stage.work(&mut sidecar, SECOND * 10).expect("a quiet world");
    assert!(sidecar.0.is_restorable());
    for is_last in [false, true] {
        database.borrow_mut().commit(true);
        database.borrow_mut().need_a_break();
        match is_last {
            false => stage.work(&mut sidecar, interval + SECOND * 10).expect("a quiet world"),
            true => {
                let begun = stage.time.now();
                stage.block(&sidecar.1, sidecar.0.finish()).expect("a quiet world");
                assert!(stage.time.now() - begun < SECOND * 5, "{:?}", stage.time.now() - begun);
            }
        }
        assert!(sidecar.0.is_restorable());
        let (restored, _) = stage.restore(Stop::Newest).expect("a snapshot leads there");
        assert_eq!(restored.record, sidecar.0.tip().number);
    }
    assert_eq!(stage.oracle.violation(), None);
}
