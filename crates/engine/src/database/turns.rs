//! Turns for the connections of a process that lose against each other. txn/begin.rs says which
//! connections take one, and has TURN-1 and TURN-2.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use crate::sync::futex;

/// Longest wait for a turn: many short transactions, and no more than a slow sync.
const PATIENCE: Duration = Duration::from_millis(5);
/// How often a waiter yields before it sleeps.
const YIELDS_BEFORE_SLEEP: u32 = 8;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and a waiter may sleep.
const AWAITED: u32 = 2;

/// The turn that the connections of one process take on one database. Not in shared memory.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    word: AtomicU32,
}

impl Turns {
    /// Waits for the turn; returns false if it did not come. `gives_way` lets others run, or
    /// returns false if that is not worth it.
    pub(crate) fn take(&self, mut gives_way: impl FnMut() -> bool) -> bool {
        for _ in 0..YIELDS_BEFORE_SLEEP {
            if self.word.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok() {
                return true;
            }
            if !gives_way() {
                break;
            }
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            // This waiter cannot know whether others sleep too.
            if self.word.swap(AWAITED, Acquire) == FREE {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            futex::wait(&self.word, AWAITED, Some(left));
        }
    }

    pub(crate) fn give_back(&self) {
        // Release pairs with the Acquire of the next owner.
        if self.word.swap(FREE, Release) == AWAITED {
            futex::wake_one(&self.word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_one_connections_and_goes_to_the_next_when_it_is_given_back() {
        let turns = Turns::default();
        let counted = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        if turns.take(|| false) {
                            assert_eq!(counted.fetch_add(1, Relaxed), 0, "TURN-1");
                            counted.fetch_sub(1, Relaxed);
                            turns.give_back();
                        }
                    }
                });
            }
        });
        assert!(turns.take(|| false), "nobody has it");
    }

    #[test]
    fn who_waits_behind_a_turn_that_does_not_end_goes_on_without() {
        let turns = Turns::default();
        assert!(turns.take(|| false));
        for _ in 0..3 {
            assert!(!turns.take(|| true), "TURN-2");
        }
        turns.give_back();
        assert!(turns.take(|| false));
    }
}
