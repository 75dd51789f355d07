//! Runs: transactions of one connection, one right behind the other, while others wait for the writer's right.
//!
//! A release calls the first waiter (database/right.rs). Where a processor is idle that one comes before the
//! connection that released the right has begun its next transaction, so that each transaction costs a wake-up, and
//! finds the caches of another process. Where none is, the connection overtakes, and the waiter was woken in
//! vain. So a connection that is known to come back at once makes a *run*: it calls nobody until the waiters have been
//! overtaken for long enough (RIGHT-6).
//!
//! | a connection whose release kept others waiting | its next releases |
//! |---|---|
//! | comes back within [`QUICK_NS`] | are a run, when it has done so [`PROOFS`] times |
//! | comes back later | are none before it has done so [`PROOFS`] times again |
//!
//! The waiter is called when a transaction of a run has just taken the right, and comes in vain: then it looks
//! by itself every [`VAIN`](crate::database::right::VAIN).
//!
//! Invariants
//! - RUN-1 A release that calls nobody leaves a first waiter that looks by itself: the right lies free for as
//!   long at most when the connection does not come back (RIGHT-11).
//! - RUN-2 What waits for the disk behind its release is in no run: others commit meanwhile, and share the sync.

use super::Conn;
use crate::commit::Sync;
use crate::sync::clock;

/// A connection that comes back within this time is faster than a wake-up, or nearly so.
const QUICK_NS: u64 = 200_000;
/// How often it has to be before it is relied on. One release too many costs others a millisecond.
const PROOFS: u8 = 64;

/// What a connection knows of how soon it comes back.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// When it released the right last, while others waited; 0: they did not, or it has come back.
    released_ns: u64,
    proofs: u8,
}

impl Runs {
    fn released(&mut self, now_ns: u64) {
        self.released_ns = now_ns;
    }

    fn comes_back(&mut self, now_ns: impl FnOnce() -> u64) {
        let released_ns = std::mem::take(&mut self.released_ns);
        if released_ns != 0 {
            let is_quick = now_ns().saturating_sub(released_ns) < QUICK_NS;
            self.proofs = if is_quick { self.proofs.saturating_add(1).min(PROOFS) } else { 0 };
        }
    }

    fn is_one(&self) -> bool {
        self.proofs == PROOFS
    }
}

impl Conn {
    /// Before it asks for the right.
    pub(super) fn comes_back(&mut self) {
        self.runs.comes_back(clock::monotonic_ns);
    }

    /// True if the connection comes back at once behind a commit at this level (RUN-2).
    pub(super) fn is_in_a_run(&self, sync: Sync) -> bool {
        self.runs.is_one() && sync != Sync::Full
    }

    /// When it has taken the right.
    pub(super) fn begins_in_a_run(&self) {
        if self.is_in_a_run(self.level) {
            self.db.call_in_vain(self.slot);
        }
    }

    /// When it has committed, and others may have the right.
    pub(super) fn note_release(&mut self) {
        if self.db.right.has_waiters() {
            self.runs.released(clock::monotonic_ns());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds RUN-1
    #[test]
    fn who_comes_back_at_once_again_and_again_makes_a_run_and_who_stays_away_once_does_not() {
        let mut runs = Runs::default();
        let mut now = 1;
        let mut comes = |runs: &mut Runs, gap| {
            runs.released(now);
            now += gap;
            runs.comes_back(|| now);
            runs.is_one()
        };
        for _ in 1..PROOFS {
            assert!(!comes(&mut runs, QUICK_NS - 1));
        }
        assert!(comes(&mut runs, QUICK_NS - 1));
        assert!(!comes(&mut runs, QUICK_NS));
        for _ in 1..PROOFS {
            assert!(!comes(&mut runs, 0));
        }
        assert!(comes(&mut runs, 0));
        // Without waiters nothing is learned, and no clock is read.
        runs.comes_back(|| panic!("nobody waited"));
        assert!(runs.is_one());
    }
}
