//! Giving way: a thread that waits for others lets them run first, where that is cheaper than sleeping.
//!
//! Beside threads that commit, which run for microseconds, it is. Beside threads that compute it costs a time slice of
//! each of them, milliseconds in which nothing is committed. So every yield is judged by how long it took and by how much was
//! appended to the log meanwhile, and one that was not worth it ends the yielding of this process for a while.
//!
//! Nothing depends on it but speed: whoever is told not to yield sleeps, or goes on.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::ids::Lsn;
use crate::sync::clock;

/// A yield shorter than this is always worth it: half of a time slice, which is about 3 ms.
const SHORT_NS: u64 = 1_500_000;
/// What must have been appended in a longer one: a byte in so many nanoseconds, some two thousand small commits a second.
const NS_PER_BYTE: u64 = 1_000;
/// How long a process does not yield after one that was not worth it.
const PAUSE_NS: u64 = 100_000_000;

/// What one process knows of the company on its processors.
#[derive(Debug, Default)]
pub(crate) struct Yielding {
    not_before_ns: AtomicU64,
}

impl Yielding {
    /// Lets others run once; `log_end` tells how far the log is. False: it is not worth it now.
    pub(crate) fn once(&self, log_end: impl Fn() -> Lsn) -> bool {
        let begin_ns = clock::monotonic_ns();
        // Relaxed, here and below: a hint.
        if begin_ns < self.not_before_ns.load(Relaxed) {
            return false;
        }
        let before = log_end();
        std::thread::yield_now();
        let end_ns = clock::monotonic_ns();
        let is_worth = is_worth(end_ns - begin_ns, log_end() - before);
        if !is_worth {
            self.not_before_ns.store(end_ns + PAUSE_NS, Relaxed);
        }
        is_worth
    }
}

fn is_worth(took_ns: u64, appended_bytes: u64) -> bool {
    took_ns < SHORT_NS || appended_bytes.saturating_mul(NS_PER_BYTE) >= took_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_yield_is_worth_it_if_others_committed_meanwhile() {
        assert!(is_worth(1_000, 0));
        assert!(!is_worth(3_000_000, 0));
        assert!(!is_worth(3_000_000, 1_500));
        assert!(is_worth(2_000_000, 50_000));
    }

    #[test]
    fn after_one_that_was_not_worth_it_none_is_made_for_a_while() {
        let yielding = Yielding::default();
        // However long it takes, so much is appended meanwhile that it was worth it.
        let end = std::cell::Cell::new(64);
        assert!(yielding.once(|| Lsn::new(end.replace(1 << 40))));
        yielding.not_before_ns.store(clock::monotonic_ns() + PAUSE_NS, Relaxed);
        assert!(!yielding.once(|| unreachable!("it does not come to that")));
    }
}
