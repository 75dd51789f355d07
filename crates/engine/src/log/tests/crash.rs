//! Power cuts in the middle of everything, with sectors kept, lost or torn at random.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

/// What is promised at one moment.
#[derive(Default)]
struct Promise {
    acknowledged: AtomicU64,
    merged: AtomicU32,
    /// First commit of each generation, by generation; index 0 is unused.
    firsts: Mutex<Vec<u64>>,
}

fn check(after: &SimStorage, merged: u32, acknowledged: u64, firsts: &[u64], context: &str) {
    let found = match recovered(after, merged) {
        Ok(found) => found,
        Err(e) => panic!("{context}: {e}"),
    };
    // Commits of merged generations are in the base, and must not come back.
    let first = firsts.get(merged as usize + 1).copied().unwrap_or(u64::MAX);
    if let Some(oldest) = found.first() {
        assert_eq!(*oldest, first, "{context}: merged commits came back or unmerged ones are gone");
        let expected: Vec<u64> = (first..first + found.len() as u64).collect();
        assert_eq!(found, expected, "{context}: not a prefix");
    }
    let newest = found.last().copied().unwrap_or(0);
    assert!(
        newest >= acknowledged || (first == u64::MAX || acknowledged < first),
        "{context}: commit {acknowledged} was acknowledged, found through {newest}"
    );
}

fn run(seed: u64, steps: usize) {
    let mut rng = StdRng::seed_from_u64(seed);
    let storage = SimStorage::new();
    let sizes = Sizes { limit: 12, ..SMALL };
    let bench = Bench::new(&storage, sizes);
    let promise = Arc::new(Promise::default());
    promise.firsts.lock().expect("lock").extend([0, 1]);
    let watched = Arc::clone(&promise);
    let mut crashes = 0;
    let looks = rng.random_range(1..4);
    storage.watch(move |storage| {
        let acknowledged = watched.acknowledged.load(Ordering::SeqCst);
        let merged = watched.merged.load(Ordering::SeqCst);
        let firsts = watched.firsts.lock().expect("lock").clone();
        for _ in 0..looks {
            crashes += 1;
            let after = storage.crash(seed * 1_000_003 + crashes);
            check(&after, merged, acknowledged, &firsts, &format!("seed {seed} crash {crashes}"));
        }
    });
    let (mut ts, mut generation) = (0, 1);
    for _ in 0..steps {
        match rng.random_range(0..10) {
            0..6 => {
                let len = if rng.random_range(0..8) == 0 {
                    rng.random_range(0..3000)
                } else {
                    rng.random_range(0..200)
                };
                match bench.try_commit(ts + 1, generation, len) {
                    Ok(_) => ts += 1,
                    Err(LogError::Full { .. }) => {}
                    Err(e) => panic!("seed {seed}: {e}"),
                }
            }
            6 | 7 => {
                bench.log.sync_through(bench.shared_end()).expect("a sync");
                promise.acknowledged.store(ts, Ordering::SeqCst);
            }
            8 => bench.log.relaxed_commit(bench.shared_end()).expect("a write"),
            _ => {
                if promise.firsts.lock().expect("lock")[generation as usize] <= ts {
                    promise.firsts.lock().expect("lock").push(ts + 1);
                    generation += 1;
                }
                let merged = promise.merged.load(Ordering::SeqCst);
                if merged + 2 < generation && rng.random() {
                    // A merge makes its generation durable in the log first, then in the base.
                    bench.log.sync_through(bench.shared_end()).expect("a sync");
                    promise.acknowledged.store(ts, Ordering::SeqCst);
                    promise.merged.store(merged + 1, Ordering::SeqCst);
                    bench.log.retire(Generation::new(merged + 1));
                }
            }
        }
    }
    storage.unwatch();
}

// holds LOG-4, COMMIT-3
#[test]
fn everything_acknowledged_survives_a_power_cut_at_every_step() {
    let seeds = std::env::var("PLAIT_TEST_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(60);
    for seed in 0..seeds {
        run(seed, 250);
    }
}
