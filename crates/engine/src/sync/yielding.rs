//! Yielding: a thread that waits for others lets them run first, where that costs less than
//! sleeping.
//!
//! A yield to threads that commit costs microseconds. A yield to threads that compute costs a time
//! slice of each of them, milliseconds without a commit. So each yield is judged by its length and
//! by how much others appended to the log during it. After a yield that was not worth it, this
//! process does not yield for a while.
//!
//! Only speed depends on it: a thread that does not yield sleeps, or goes on.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::ids::Lsn;
use crate::sync::clock;

/// A yield shorter than this is always worth it: half of a time slice, which is about 3 ms.
const SHORT_NS: u64 = 1_500_000;
/// A longer one is worth it if the log grew by a byte per this many nanoseconds: some two thousand
/// small commits a second.
const NS_PER_BYTE: u64 = 1_000;
/// How long a process does not yield after a yield that was not worth it.
const PAUSE_NS: u64 = 100_000_000;

/// What this process has learned from its yields.
#[derive(Debug, Default)]
pub(crate) struct Yielding {
    not_before_ns: AtomicU64,
}

impl Yielding {
    /// Yields once, and judges the yield by `log_end`, the end of the log. False if yielding is not
    /// worth it now.
    pub(crate) fn once(&self, log_end: impl Fn() -> Lsn) -> bool {
        let begin_ns = clock::monotonic_ns();
        // Relaxed, both accesses: a hint.
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
        // The log grows by so much that the yield was worth it, however long it took.
        let end = std::cell::Cell::new(64);
        assert!(yielding.once(|| Lsn::new(end.replace(1 << 40))));
        yielding.not_before_ns.store(clock::monotonic_ns() + PAUSE_NS, Relaxed);
        assert!(!yielding.once(|| unreachable!("it does not come to that")));
    }
}
