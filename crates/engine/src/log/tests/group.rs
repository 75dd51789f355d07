//! Many threads wait for the disk at once, on real files.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::storage::os::OsStorage;

const REAL: Sizes = Sizes { segment: SEGMENT_BYTES, ring: 16 << 20, slots: 4, part: 0, limit: 64 };

/// Appends with the next timestamp.
fn commit_next(bench: &Bench, next: &AtomicU64, rec: &[u8]) -> Lsn {
    loop {
        let guard = bench.lock_commit();
        let ts = next.load(Ordering::Relaxed) + 1;
        let key = ts.to_be_bytes();
        let op = Op { root: Root::new(2), kind: OpKind::Put, key: &key, rec };
        let head = FrameHead { commit_ts: CommitTs::new(ts), generation: Generation::new(1) };
        match bench.log.ring().append(&guard, &head, frame_len([op]), [op]) {
            Ok((_, end)) => {
                bench.log.ring().publish_end(&guard, end);
                next.store(ts, Ordering::Relaxed);
                return end;
            }
            Err(lacking) => {
                drop(guard);
                bench.log.make_room(lacking).expect("room");
            }
        }
    }
}

struct Outcome {
    commits: u64,
    syncs: u64,
    worst: Duration,
}

fn storm(bench: &Bench, threads: usize, how_long: Duration) -> Outcome {
    let next = AtomicU64::new(bench_last_ts(bench));
    let first = next.load(Ordering::Relaxed);
    let stop = AtomicBool::new(false);
    let syncs = bench.log.status().syncs;
    let worst = std::sync::Mutex::new(Duration::ZERO);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let rec = [0u8; 370];
                let mut mine = Duration::ZERO;
                while !stop.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    let end = commit_next(bench, &next, &rec);
                    bench.log.sync_through(end).expect("a sync");
                    assert!(bench.log.shared().durable_through() >= end);
                    mine = mine.max(start.elapsed());
                }
                let mut worst = worst.lock().expect("no panic");
                *worst = (*worst).max(mine);
            });
        }
        std::thread::sleep(how_long);
        stop.store(true, Ordering::Relaxed);
    });
    Outcome {
        commits: next.load(Ordering::Relaxed) - first,
        syncs: bench.log.status().syncs - syncs,
        worst: worst.into_inner().expect("no panic"),
    }
}

fn bench_last_ts(bench: &Bench) -> u64 {
    let guard = bench.lock_commit();
    let mut last = 0;
    let ring = bench.log.ring();
    let from = bench.log.shared().first_lsn();
    let _ = ring.for_each_frame(&guard, from, bench.shared_end(), |f| last = f.commit_ts.get());
    last
}

#[test]
fn every_thread_finds_its_commit_on_disk_and_groups_form() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("app.db-plait");
    let bench = Bench::try_new(OsStorage, &path, REAL).expect("a log");
    let outcome = storm(&bench, 64, Duration::from_millis(700));
    assert!(outcome.commits > 64);
    assert!(outcome.syncs * 3 < outcome.commits, "{} syncs for {}", outcome.syncs, outcome.commits);
    let mut scan = LogScan::open(&OsStorage, &path, SALT, Generation::ZERO).expect("a sound log");
    assert_eq!(scan.summary().frames, outcome.commits);
    let mut expected = 0;
    scan.replay(|frame| {
        expected += 1;
        assert_eq!(frame.commit_ts.get(), expected);
        Ok::<(), LogError>(())
    })
    .expect("a replay");
}

#[test]
fn a_failing_leader_fails_its_whole_group_and_hangs_nobody() {
    use crate::storage::sim::SimOp;
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, REAL);
    storage.fail(SimOp::Sync, 20, libc::EIO, false);
    let next = AtomicU64::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                loop {
                    let guard = bench.lock_commit();
                    let poisoned = bench.log.shared().poisoned().is_some();
                    drop(guard);
                    if poisoned {
                        return;
                    }
                    let rec = [0; 10];
                    let ts = next.fetch_add(1, Ordering::Relaxed);
                    let key = ts.to_be_bytes();
                    let op = Op { root: Root::new(2), kind: OpKind::Put, key: &key, rec: &rec };
                    let head =
                        FrameHead { commit_ts: CommitTs::new(ts), generation: Generation::new(1) };
                    let guard = bench.lock_commit();
                    let end = match bench.log.ring().append(&guard, &head, frame_len([op]), [op]) {
                        Ok((_, end)) => end,
                        Err(AppendError::Poisoned(_)) => return,
                        Err(e) => panic!("{e:?}"),
                    };
                    bench.log.ring().publish_end(&guard, end);
                    drop(guard);
                    if bench.log.sync_through(end).is_err() {
                        assert!(bench.log.shared().poisoned().is_some());
                        return;
                    }
                }
            });
        }
    });
    assert!(start.elapsed() < Duration::from_secs(5));
}

/// Prints the cost of a sync and of group commit on the disk of the temporary folder:
/// `cargo test --release -p plait-engine --lib -- --ignored --nocapture group_commit_throughput`.
#[test]
#[ignore = "a measurement"]
fn group_commit_throughput() {
    let dir = tempfile::tempdir().expect("a folder");
    for threads in [1, 2, 5, 10, 20, 50, 100] {
        let path = dir.path().join(format!("{threads}.db-plait"));
        let sizes = Sizes { slots: 40, limit: 200, ..REAL };
        let bench = Bench::try_new(OsStorage, &path, sizes).expect("a log");
        let how_long = Duration::from_secs(2);
        let o = storm(&bench, threads, how_long);
        let secs = how_long.as_secs_f64();
        println!(
            "{threads:4} threads: {:8.0} commits/s, {:6.0} syncs/s, {:5.1} per sync, {:6.1} us per sync, worst {:?}",
            o.commits as f64 / secs,
            o.syncs as f64 / secs,
            o.commits as f64 / o.syncs as f64,
            secs * 1e6 / o.syncs as f64,
            o.worst,
        );
        std::fs::remove_file(&path).expect("removal");
    }
}
