//! Which transactions go straight to the base because they are large and nobody else is there.
//!
//! On the concurrent path a row is copied into the write set, the ring, a memtable, the log and, by a merge, into the base.
//! That pays when many write, or little at a time. A lone bulk load pays it for nothing: its transactions become
//! exclusive early, and SQLite's own code puts the rows where they belong at once.
//!
//! What counts as large is entries or bytes, whichever comes first: a dozen long values are copied as often as many short rows.
//!
//! The price is paid by others: a transaction that began to read meanwhile and then wants to write conflicts (E3).
//! So it is done only where nobody else is seen to be.
//!
//! | transaction | previous one that wrote | asked at | goes straight to the base if alone, and if |
//! |---|---|---|---|
//! | queued | large | [`EARLY`] | what is in memory can be merged without waiting |
//! | queued | small, or none | [`LARGE`] | nothing is in memory |
//! | optimistic | large, up to [`SHORT`] | [`EARLY`] | as the first, and nobody has committed since it began |
//! | optimistic | any other | - | never: others may write beside it for as long as it takes |
//!
//! *Alone*: no other connection of any process has a transaction, none has begun one since this connection's
//! previous large transaction (or since it was opened), and it has seen so for long enough: whoever came while a transaction
//! was on the direct path doubles the number of large transactions that have to pass undisturbed.
//!
//! Invariants
//! - D1 It is a choice, never a must: whatever is missing, the transaction stays on the concurrent path, and is not asked
//!   again. It waits for nobody and cannot fail with BUSY (`reserve_exclusive`).
//! - D2 A transaction of less than [`EARLY`], in entries and in bytes, stays on the concurrent path; so does one of a single entry.
//! - D3 An optimistic transaction takes the writer's right for this only if it is expected to end soon, and nothing
//!   has been committed since its snapshot: there is nothing to validate.
//!
//! Everything but the count of transactions begun is private to the connection. It decides about speed alone, so
//! that the count may be read without an order.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::{Conn, WriteMode};
use crate::shm::layout::{NO_PIN, txn_state};

/// From so many entries on, or so many bytes, a transaction is large: they outweigh what becoming exclusive costs, a few system
/// calls and the entries written so far once more.
const LARGE: Size = Size { entries: 256, bytes: 128 << 10 };
/// A transaction of fewer entries is not large, however long they are: a document with its index entries, say.
const FEWEST: u64 = 8;
/// A transaction that follows a large one is asked this early, which leaves small ones alone. Little is written twice.
const EARLY: Size = Size { entries: 16, bytes: 16 << 10 };
/// A large transaction of at most so much ends soon, some ten milliseconds, and so, probably, does the one after it.
const SHORT: Size = Size { entries: 16_384, bytes: 8 << 20 };
/// Large transactions that have to pass undisturbed after somebody came, the first time and at most.
const QUIET: std::ops::RangeInclusive<u32> = 8..=4096;

/// What a transaction has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Rows and index entries.
    pub entries: u64,
    /// Their keys and records.
    pub bytes: u64,
}

impl Size {
    /// It has as many entries as `other`, or as many bytes.
    fn reaches(self, other: Size) -> bool {
        self.entries >= other.entries || self.bytes >= other.bytes
    }

    fn is_large(self) -> bool {
        self.entries >= FEWEST && self.reaches(LARGE)
    }

    /// It has no more of either.
    fn is_within(self, other: Size) -> bool {
        self.entries <= other.entries && self.bytes <= other.bytes
    }

    pub(super) fn plus(self, other: Size) -> Size {
        Size { entries: self.entries + other.entries, bytes: self.bytes + other.bytes }
    }
}

/// What a connection remembers of its large transactions.
#[derive(Debug, Default)]
pub(crate) struct Bulk {
    /// Transactions that it has begun.
    pub(super) begun: u64,
    /// Transactions that others had begun by the end of its previous large one.
    others: u64,
    /// The previous transaction that wrote was large.
    after_large: bool,
    /// And not so large that the next one may take long.
    after_short: bool,
    /// The previous large one went straight to the base.
    was_direct: bool,
    /// Large transactions in a row beside which nobody began one.
    quiet: u32,
    /// How many there have to be.
    quiet_needed: u32,
    /// The running transaction was asked and stays on the concurrent path.
    declined: bool,
}

impl Bulk {
    pub(super) fn new(others: u64) -> Bulk {
        Bulk { others, ..Bulk::default() }
    }

    /// A transaction begins.
    pub(super) fn begin(&mut self) {
        self.begun += 1;
        self.declined = false;
    }

    /// A transaction of this size was committed.
    fn ended(&mut self, size: Size, direct: bool, others: u64) {
        self.after_large = size.is_large();
        self.after_short = size.is_within(SHORT);
        if !self.after_large {
            return;
        }
        if others == self.others {
            self.quiet = self.quiet.saturating_add(1);
        } else {
            self.quiet = 0;
            if self.was_direct || direct {
                self.quiet_needed = (self.quiet_needed * 2).clamp(*QUIET.start(), *QUIET.end());
            }
        }
        self.others = others;
        self.was_direct = direct;
    }
}

impl Conn {
    /// Asked at every write: true if the transaction shall go on exclusively. Then it has both rights, and nothing is
    /// left in memory.
    pub(super) fn try_become_exclusive(&mut self) -> bool {
        let size = self.written();
        let is_enough = size.is_large() || (self.bulk.after_large && size.reaches(EARLY));
        if self.bulk.declined || !is_enough {
            return false;
        }
        self.bulk.declined = !(self.is_alone() && self.reserve_both_rights());
        !self.bulk.declined
    }

    /// Keeps the running transaction on the concurrent path, as far as its size allows.
    pub fn stay_concurrent(&mut self) {
        self.bulk.declined = true;
    }

    fn reserve_both_rights(&mut self) -> bool {
        if self.state.mode() == Some(WriteMode::Queued) {
            return self.state.has_right() && self.reserve_exclusive();
        }
        let soon_over = self.bulk.after_large && self.bulk.after_short;
        if !soon_over || !self.take_right_at_once() {
            return false;
        }
        // With the right held both stay equal (D3, X2).
        let newest = self.db.control().visible_ts.load(Acquire);
        let is_newest = self.snapshot.as_ref().is_some_and(|s| s.ts.get() == newest);
        if is_newest && self.reserve_exclusive() {
            self.state.become_writer(WriteMode::Queued);
            return true;
        }
        self.give_right_back();
        false
    }

    fn is_alone(&self) -> bool {
        let undisturbed = self.others_begun() == self.bulk.others
            && self.bulk.quiet >= self.bulk.quiet_needed
            && (self.bulk.after_large || self.db.generations.is_memory_empty());
        undisturbed
            && !self.db.slots.in_use().any(|(i, s)| {
                let busy = s.state.load(Relaxed) != txn_state::IDLE;
                i != self.slot && (busy || s.pin_low.load(Relaxed) != NO_PIN)
            })
    }

    /// Transactions that all other connections have begun in this session.
    fn others_begun(&self) -> u64 {
        // Relaxed: nothing is read on the strength of it.
        let all = self.db.control().counters.next_txn.load(Relaxed);
        all.saturating_sub(self.bulk.begun)
    }

    /// What is in the write set.
    pub(super) fn written(&self) -> Size {
        Size { entries: self.writes.len() as u64, bytes: self.writes.frame_bytes() as u64 }
    }

    /// Remembers the size of a transaction that was committed.
    pub(super) fn note_size(&mut self, size: Size, direct: bool) {
        let others = self.others_begun();
        self.bulk.ended(size, direct, others);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_who_comes_again_and_again_is_given_more_and_more_time() {
        let mut bulk = Bulk::new(5);
        bulk.ended(LARGE, true, 5);
        assert_eq!((bulk.quiet, bulk.quiet_needed), (1, 0));
        let mut others = 5;
        let mut needed = Vec::new();
        for _ in 0..12 {
            others += 1;
            bulk.ended(LARGE, true, others);
            assert_eq!(bulk.quiet, 0);
            needed.push(bulk.quiet_needed);
        }
        assert_eq!(needed, [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 4096, 4096]);
        for n in 1..=4096 {
            bulk.ended(LARGE, false, others);
            assert_eq!(bulk.quiet, n);
        }
    }

    #[test]
    fn somebody_who_came_while_nothing_went_straight_to_the_base_costs_one_transaction() {
        let mut bulk = Bulk::new(0);
        bulk.ended(LARGE, false, 3);
        bulk.ended(LARGE, false, 9);
        assert_eq!((bulk.quiet, bulk.quiet_needed, bulk.others), (0, 0, 9));
    }

    #[test]
    fn few_long_values_are_as_large_as_many_short_ones() {
        let mut bulk = Bulk::new(0);
        for (entries, bytes, large, short) in [
            (FEWEST, LARGE.bytes, true, true),
            (FEWEST - 1, LARGE.bytes, false, true),
            (FEWEST, LARGE.bytes - 1, false, true),
            (LARGE.entries, 1, true, true),
            (FEWEST, SHORT.bytes + 1, true, false),
            (SHORT.entries + 1, 1, true, false),
        ] {
            bulk.ended(Size { entries, bytes }, false, 0);
            assert_eq!((bulk.after_large, bulk.after_short), (large, short), "{entries}, {bytes}");
        }
    }

    #[test]
    fn a_small_transaction_ends_a_run_of_large_ones() {
        let mut bulk = Bulk::new(0);
        bulk.ended(LARGE, true, 0);
        assert!(bulk.after_large);
        bulk.ended(Size { entries: LARGE.entries - 1, bytes: LARGE.bytes - 1 }, true, 0);
        assert!(!bulk.after_large);
    }
}
