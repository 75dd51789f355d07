//! Taking turns: optimistic transactions that keep losing against each other begin one after the other.
//!
//! Transactions of BEGIN CONCURRENT that change the same row are refused but for one of those that overlap, and each refused one is work for
//! nothing. A connection that has lost so waits, before it takes the snapshot of its next transactions, until those of its
//! process that have lost as well are through: a *turn*, from the snapshot to the commit point, or to the transaction's end.
//!
//! A turn is a courtesy and no lock. Nobody who has it keeps anybody from reading, writing or committing; who has waited for
//! [`PATIENCE`] goes on without and does not ask again before it loses again; and validation decides, as always. So it does not matter
//! that only one process knows of it, or how long a transaction lasts.
//!
//! | event | the connection asks for a turn in its next |
//! |---|---|
//! | it is refused for a change of others | [`GRANTS`] transactions, four times as many each time |
//! | it commits without a turn | that number is halved for the next time |
//! | it has waited in vain | none |
//!
//! Invariants
//! - U1 A connection has at most one turn, and gives it back at its commit point, when it is refused, and at the end of its snapshot.
//! - U2 Waiting for one ends after [`PATIENCE`], whatever the one who has it does, and holds nothing but a pin.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use super::Conn;
use crate::sync::futex;

/// Longest wait for a turn: many short transactions, and no more than a slow sync.
const PATIENCE: Duration = Duration::from_millis(5);
/// For how many transactions turns are asked for after a conflict, at first and at most.
const GRANTS: std::ops::RangeInclusive<u32> = 32..=512;
/// How often one who waits lets others run before it sleeps.
const YIELDS_BEFORE_SLEEP: u32 = 8;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and somebody may sleep.
const AWAITED: u32 = 2;

/// Whose turn it is among the connections of one process to one database. Not in shared memory.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    word: AtomicU32,
}

impl Turns {
    /// Waits for a turn; false if it did not come. `gives_way` lets others run, or says that it is not worth it.
    fn take(&self, mut gives_way: impl FnMut() -> bool) -> bool {
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
            // Others may sleep as well, which this one cannot know.
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

    fn give_back(&self) {
        // Release pairs with the Acquire of the next.
        if self.word.swap(FREE, Release) == AWAITED {
            futex::wake_one(&self.word);
        }
    }
}

/// What a connection knows of how often it loses.
#[derive(Debug, Default)]
pub(crate) struct Contention {
    /// Transactions that still ask for a turn.
    due: u32,
    /// How many they were at first, or would be.
    grant: u32,
    has_turn: bool,
}

impl Contention {
    fn lost(&mut self) {
        self.grant = (self.grant * 4).clamp(*GRANTS.start(), *GRANTS.end());
        self.due = self.grant;
    }

    fn committed(&mut self, had_turn: bool) {
        if had_turn {
            self.due = self.due.saturating_sub(1);
        } else {
            self.grant /= 2;
        }
    }

    fn waited_in_vain(&mut self) {
        self.due = 0;
    }
}

impl Conn {
    /// Before an optimistic transaction takes its snapshot.
    pub(crate) fn await_turn(&mut self) {
        if self.contention.due == 0 || self.contention.has_turn || self.has_right {
            return;
        }
        let db = &self.db;
        self.contention.has_turn =
            db.turns().take(|| db.yielding().once(|| db.log_shared().log_end()));
        if !self.contention.has_turn {
            self.contention.waited_in_vain();
        }
    }

    /// U1. True if there was one.
    pub(crate) fn end_turn(&mut self) -> bool {
        let had = std::mem::take(&mut self.contention.has_turn);
        if had {
            self.db.turns().give_back();
        }
        had
    }

    /// An optimistic transaction is behind its commit point.
    pub(crate) fn note_turn_committed(&mut self) {
        let had_turn = self.end_turn();
        self.contention.committed(had_turn);
    }

    /// An optimistic transaction was refused for a change of others.
    pub(crate) fn note_turn_lost(&mut self) {
        self.end_turn();
        self.contention.lost();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_loses_again_and_again_asks_for_more_and_more_turns_and_who_does_not_for_fewer() {
        let mut contention = Contention::default();
        let mut grants = Vec::new();
        for _ in 0..4 {
            contention.lost();
            grants.push(contention.due);
        }
        assert_eq!(grants, [32, 128, 512, 512]);
        for _ in 0..512 {
            assert!(contention.due > 0);
            contention.committed(true);
        }
        assert_eq!(contention.due, 0);
        for _ in 0..20 {
            contention.committed(false);
        }
        contention.lost();
        assert_eq!(contention.due, 32);
        contention.waited_in_vain();
        assert_eq!(contention.due, 0);
    }

    #[test]
    fn a_turn_is_one_connections_and_goes_to_the_next_when_it_is_given_back() {
        let turns = Turns::default();
        let counted = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        if turns.take(|| false) {
                            assert_eq!(counted.fetch_add(1, Relaxed), 0, "U1");
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
            assert!(!turns.take(|| true), "U2");
        }
        turns.give_back();
        assert!(turns.take(|| false));
    }
}
