//! Staying awake for what comes at once.
//!
//! Waking a sleeper takes longer than many a transaction: on a virtual machine an idle processor is left to
//! the host and must be fetched back. A waiter who expects its turn within microseconds spins first, at most
//! [`LONGEST`], and then sleeps as everybody else.
//!
//! Whether that is worth it shows in a word of shared memory, the misses of late: it counts up with every spin that was
//! in vain, and goes to zero with one that was not. Past [`MISSES_MAX`] only every [`PROBE`]-th tries again. With a single
//! processor nobody spins.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Longest time that a waiter keeps a processor busy.
pub const LONGEST: Duration = Duration::from_micros(50);
/// Spins in vain, one after the other, before most waiters stop trying.
const MISSES_MAX: u32 = 8;
/// One in so many waiters tries all the same.
const PROBE: u32 = 32;
/// Looks between two looks at the clock.
const LOOKS: u32 = 32;

/// More than one processor: whom a spinner waits for can run meanwhile.
pub fn has_company() -> bool {
    processors() > 1
}

/// Processors that this process may use.
pub fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Whether spinning on something with these misses has been worth it.
pub fn is_promising(misses: &AtomicU32) -> bool {
    // Relaxed: a hint.
    let n = misses.load(Relaxed);
    has_company() && (n <= MISSES_MAX || n.is_multiple_of(PROBE))
}

/// Spins until `done` says so or it takes too long; true if it is done.
pub fn until(misses: &AtomicU32, done: impl Fn() -> bool) -> bool {
    if done() {
        return true;
    }
    if !is_promising(misses) {
        misses.fetch_add(1, Relaxed);
        return false;
    }
    let start = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if done() {
                // Relaxed: a hint.
                misses.store(0, Relaxed);
                return true;
            }
            std::hint::spin_loop();
        }
        if start.elapsed() >= LONGEST {
            misses.fetch_add(1, Relaxed);
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn spinning_in_vain_ends_and_is_given_up_after_some_misses() {
        let misses = AtomicU32::new(0);
        let looks = Cell::new(0u32);
        let start = Instant::now();
        for _ in 0..1000 {
            assert!(!until(&misses, || {
                looks.set(looks.get() + 1);
                false
            }));
        }
        assert_eq!(misses.load(Relaxed), 1000);
        assert!(start.elapsed() < Duration::from_secs(10), "at most one in {PROBE} spins for long");
        assert!(looks.get() >= 1000, "everybody looks once");
    }

    #[test]
    fn one_success_makes_spinning_promising_again() {
        let misses = AtomicU32::new(MISSES_MAX + 1);
        assert!(!is_promising(&misses));
        misses.store(PROBE, Relaxed);
        let looks = Cell::new(0u32);
        let done = until(&misses, || {
            looks.set(looks.get() + 1);
            looks.get() > 5
        });
        assert_eq!(done, has_company());
        assert_eq!(is_promising(&misses), has_company());
    }
}
