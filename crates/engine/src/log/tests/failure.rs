//! Full disks, failing disks, full logs (COMMIT-4): what was committed stays, the error is clear,
//! and a group shares the failure of its leader.

use super::*;
use crate::storage::sim::SimOp;

// holds LOG-3
#[test]
fn at_its_limit_the_log_refuses_before_the_commit_and_goes_on_after_a_merge() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, Sizes { limit: 4, ..SMALL });
    let mut ts = 0;
    let error = loop {
        let generation = 1 + (ts / 4) as u32;
        match bench.try_commit(ts + 1, generation, 400) {
            Ok(_) => ts += 1,
            Err(e) => break e,
        }
    };
    match &error {
        LogError::Full { limit_bytes, .. } => assert_eq!(*limit_bytes, 4 * SEGMENT),
        other => panic!("{other}"),
    }
    assert!(error.to_string().contains("limit of 4096 bytes"), "{error}");
    bench.log.sync_through(bench.shared_end()).expect("a sync");
    assert_eq!(recovered(&storage, 0), Ok((1..=ts).collect()));
    bench.log.retire(Generation::new(1));
    bench.commit_durably(ts + 1, 1 + (ts / 4) as u32, 400);
    assert_eq!(recovered(&storage, 1), Ok((5..=ts + 1).collect()));
}

// holds LOG-3
#[test]
fn a_full_disk_is_an_error_before_the_commit_and_loses_nothing() {
    for extra in 0..12 {
        let storage = SimStorage::new();
        let bench = Bench::new(&storage, SMALL);
        storage.set_capacity(Some(bench.log.status().file_bytes + extra * 777));
        let (mut ts, mut refused) = (0, 0);
        for round in 0..60 {
            match bench.try_commit(ts + 1, 1, 300) {
                Ok(_) => ts += 1,
                Err(LogError::NoSpace { .. }) => refused += 1,
                Err(e) => panic!("{extra}: {e}"),
            }
            bench.log.prepare_spare().expect("a missing spare is no error");
            bench.log.relaxed_commit(bench.shared_end()).expect("acknowledged commits stay safe");
            if round % 7 == 0 {
                bench.log.sync_through(bench.shared_end()).expect("acknowledged commits stay safe");
            }
        }
        assert!(refused > 0);
        bench.log.sync_through(bench.shared_end()).expect("acknowledged commits stay safe");
        assert_eq!(recovered(&storage.crash(extra), 0), Ok((1..=ts).collect()));
        storage.set_capacity(None);
        bench.commit_durably(ts + 1, 1, 300);
        assert_eq!(recovered(&storage.crash(extra), 0), Ok((1..=ts + 1).collect()));
    }
}

// holds LOG-5, COMMIT-4
#[test]
fn a_failed_write_of_committed_frames_stops_the_log_and_keeps_what_was_synced() {
    for nth in 1..12 {
        for errno in [libc::ENOSPC, libc::EIO] {
            let storage = SimStorage::new();
            let bench = Bench::new(&storage, Sizes { slots: 20, ..SMALL });
            storage.fail(SimOp::Write, nth, errno, false);
            let mut synced = 0;
            for ts in 1..=20 {
                let done = bench.try_commit(ts, 1, 300).and_then(|end| bench.log.sync_through(end));
                match done {
                    Ok(()) => synced = ts,
                    Err(LogError::Io { errno: e, .. } | LogError::Poisoned { errno: e }) => {
                        assert_eq!(e, errno)
                    }
                    Err(e) => panic!("{e}"),
                }
            }
            assert!(synced < 20);
            assert_eq!(bench.log.shared().poisoned(), Some(errno));
            for seed in 0..10 {
                let found = recovered(&storage.crash(seed), 0).expect("a sound log").len() as u64;
                assert!(found == synced || found == synced + 1, "write {nth} seed {seed}");
            }
        }
    }
}

// holds LOG-5, COMMIT-4
#[test]
fn after_a_failed_sync_nothing_is_acknowledged_any_more() {
    for nth in 1..8 {
        let storage = SimStorage::new();
        let bench = Bench::new(&storage, SMALL);
        storage.fail(SimOp::Sync, nth, libc::EIO, false);
        let mut acknowledged = 0;
        for ts in 1..=30 {
            let done = bench.try_commit(ts, 1, 200).and_then(|end| bench.log.sync_through(end));
            match done {
                Ok(()) => {
                    assert_eq!(acknowledged + 1, ts, "acknowledged after a failure");
                    acknowledged = ts;
                }
                Err(LogError::Io { errno, .. } | LogError::Poisoned { errno }) => {
                    assert_eq!(errno, libc::EIO);
                }
                Err(e) => panic!("{e}"),
            }
        }
        assert!(acknowledged < 30, "sync {nth} never failed");
        assert_eq!(bench.log.shared().poisoned(), Some(libc::EIO));
        assert!(bench.log.relaxed_commit(bench.shared_end()).is_err());
        for seed in 0..20 {
            let found = recovered(&storage.crash(seed), 0).expect("a sound log").len() as u64;
            assert!(found >= acknowledged, "sync {nth} seed {seed}");
        }
    }
}

#[test]
fn a_log_that_cannot_be_created_leaves_nothing_behind() {
    for op in [SimOp::Write, SimOp::Sync, SimOp::Dir] {
        for nth in 1..4 {
            let storage = SimStorage::new();
            storage.fail(op, nth, libc::ENOSPC, false);
            if let Err(e) = Bench::try_new(storage.clone(), &path(), SMALL) {
                assert!(matches!(e, LogError::NoSpace { .. } | LogError::Io { .. }), "{e}");
                storage.heal();
                drop(Bench::new(&storage, SMALL));
            }
            assert_eq!(recovered(&storage, 0), Ok(vec![]));
        }
    }
}

#[test]
fn a_frame_longer_than_half_the_ring_is_refused() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SMALL);
    assert!(matches!(
        bench.try_commit(1, 1, RING as usize / 2),
        Err(LogError::TooLong { max_bytes: 4096, .. })
    ));
    bench.commit_durably(1, 1, RING as usize / 2 - 200);
    assert_eq!(recovered(&storage, 0), Ok(vec![1]));
}
