//! Which transactions go straight to the base because they are large and nobody else is there.
//!
//! On the concurrent path a row is copied into the write set, the ring, a memtable, the log and, by a merge, into the base.
//! That pays when many write, or little at a time. A lone bulk load pays it for nothing: its transactions become
//! exclusive early, and SQLite's own code puts the rows where they belong at once.
//!
//! What counts as large is entries or bytes, whichever comes first: a dozen long values are copied as often as many short rows.
//!
//! The price is paid by others: a transaction that began to read the same tables meanwhile and then wants to write conflicts (EXCL-3), and all
//! who write wait. So it is done only where nobody else is seen to be. And it is paid in pages: rows at random places change a page each, which
//! goes whole to the WAL and to the file with every transaction. A merge gathers the rows of many transactions first, and changes
//! each page once for all of them. So a large transaction whose rows were *scattered* is followed by others on the concurrent path.
//!
//! | transaction | previous one that wrote | asked at | goes straight to the base if alone, and if |
//! |---|---|---|---|
//! | queued | large | [`EARLY`] | what is in memory can be merged without waiting |
//! | queued | small, or none | [`LARGE`] | nothing is in memory |
//! | optimistic | large, up to [`SHORT`] | [`EARLY`] | as the first, and nobody has committed since it began |
//! | optimistic | any other | - | never: others may write beside it for as long as it takes |
//!
//! *Alone*: no other connection of any process has a transaction, none has begun one but for single reading statements since this connection's
//! previous large transaction (or since it was opened), and it has seen so for long enough: after somebody has come while a transaction
//! was on the direct path, [`HOLD`] large transactions in a row have to pass undisturbed. As many pass on the concurrent path after a direct
//! one that was scattered.
//!
//! Invariants
//! - BULK-1 It is a choice, never a must: whatever is missing, the transaction stays on the concurrent path, and is not asked
//!   again. It waits for nobody and cannot fail with BUSY (`reserve_exclusive`).
//! - BULK-2 A transaction of less than [`EARLY`], in entries and in bytes, stays on the concurrent path; so does one of a single entry.
//! - BULK-3 An optimistic transaction takes the writer's right for this only if it is expected to end soon, and nothing
//!   has been committed since its snapshot: there is nothing to validate.
//!
//! Everything but the count of transactions begun is private to the connection. It decides about speed alone, so
//! that the count may be read without an order.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::{Conn, WriteMode};
use crate::database::Database;
use crate::ids::SlotIndex;
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
/// Large transactions that pass on the concurrent path after one should not have been direct: one that is scattered takes as long as some
/// fifty that are gathered, with the merge before it, and one that somebody has come to refuses him. One that should have been direct takes a
/// third longer at most.
const HOLD: u32 = 4096;
/// Bytes of pages that are cheaper written at once than an entry, or its bytes, by way of memory, log and merge. Measured with rows of
/// 100 bytes in pages of 4 KiB: both ways take as much processor time where a page gets three or four of them.
const PAGE_BYTES: Size = Size { entries: 1024, bytes: 8 };

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

    /// It was written to so many bytes of pages that it had better been gathered with others.
    fn is_scattered(self, page_bytes: u64) -> bool {
        page_bytes > (self.entries * PAGE_BYTES.entries).max(self.bytes * PAGE_BYTES.bytes)
    }

    pub(super) fn plus(self, other: Size) -> Size {
        Size { entries: self.entries + other.entries, bytes: self.bytes + other.bytes }
    }
}

/// How many large transactions still have to pass on the concurrent path.
#[derive(Debug, Default, PartialEq, Eq)]
struct Hold {
    left: u32,
}

impl Hold {
    fn is_over(&self) -> bool {
        self.left == 0
    }

    fn pass(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    fn begin(&mut self) {
        self.left = HOLD;
    }

    /// From the beginning, unless it is over.
    fn again(&mut self) {
        if !self.is_over() {
            self.begin();
        }
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
    /// In a row beside which nobody begins one, since somebody did beside a direct one.
    quiet: Hold,
    /// Since a direct one was scattered.
    gathered: Hold,
    /// The running transaction was asked and stays on the concurrent path.
    declined: bool,
    /// The running one counts as a lone read: of a statement outside of BEGIN, which will not write.
    is_lone_read: bool,
}

impl Bulk {
    pub(super) fn new(others: u64) -> Bulk {
        Bulk { others, ..Bulk::default() }
    }

    /// A transaction begins.
    pub(super) fn begin(&mut self) {
        self.begun += 1;
        self.declined = false;
        self.is_lone_read = false;
    }

    /// A transaction of this size was committed, straight to so many bytes of the base's pages if it was direct.
    fn ended(&mut self, size: Size, direct: Option<u64>, others: u64) {
        self.after_large = size.is_large();
        self.after_short = size.is_within(SHORT);
        if !self.after_large {
            return;
        }
        if others == self.others {
            self.quiet.pass();
        } else if self.was_direct || direct.is_some() {
            self.quiet.begin();
        } else {
            self.quiet.again();
        }
        match direct {
            None => self.gathered.pass(),
            Some(page_bytes) if size.is_scattered(page_bytes) => self.gathered.begin(),
            Some(_) => self.gathered = Hold::default(),
        }
        self.others = others;
        self.was_direct = direct.is_some();
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
        let may = self.bulk.gathered.is_over() && self.is_alone();
        self.bulk.declined = !(may && self.reserve_both_rights());
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
        // With the right held both stay equal (BULK-3, CONN-2).
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
            && self.bulk.quiet.is_over()
            && (self.bulk.after_large || self.db.generations.is_memory_empty());
        undisturbed
            && !self.db.slots.in_use().any(|(i, s)| {
                let busy = s.state.load(Relaxed) != txn_state::IDLE;
                i != self.slot && (busy || s.pin_low.load(Relaxed) != NO_PIN)
            })
    }

    /// Transactions that all other connections have begun in this session and that might have come to write.
    fn others_begun(&self) -> u64 {
        begun_in(&self.db, self.slot).wrapping_sub(self.bulk.begun)
    }

    /// The transaction that has just begun is one of those that nobody's large transaction can harm.
    pub(super) fn note_lone_read(&mut self) {
        self.bulk.is_lone_read = true;
        // Relaxed, here and below: as the count of transactions. Its slot is its own.
        self.db.slots.at(self.slot).lone_reads.fetch_add(1, Relaxed);
    }

    /// It writes after all: another statement of its connection, while the first is still stepped through.
    pub(super) fn take_back_lone_read(&mut self) {
        if std::mem::take(&mut self.bulk.is_lone_read) {
            self.db.slots.at(self.slot).lone_reads.fetch_sub(1, Relaxed);
        }
    }

    /// What is in the write set.
    pub(super) fn written(&self) -> Size {
        Size { entries: self.writes.len() as u64, bytes: self.writes.frame_bytes() as u64 }
    }

    /// Remembers the size of a transaction that was committed, and the bytes of pages that one wrote which was direct.
    pub(super) fn note_size(&mut self, size: Size, direct: Option<u64>) {
        // Counted for large ones alone: it looks at every slot.
        let others = if size.is_large() { self.others_begun() } else { 0 };
        self.bulk.ended(size, direct, others);
    }
}

/// Transactions begun in this session, but for the lone reads of other slots than `mine`. A slot keeps their number for whoever has it
/// next. A difference that comes of looking at one after the other counts as somebody.
pub(super) fn begun_in(db: &Database, mine: SlotIndex) -> u64 {
    let lone = db.slots.ever_used().filter(|(i, _)| *i != mine);
    let lone: u64 = lone.map(|(_, s)| u64::from(s.lone_reads.load(Relaxed))).sum();
    db.control().counters.next_txn.load(Relaxed).wrapping_sub(lone)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENSE: Option<u64> = Some(LARGE.bytes);

    #[test]
    fn somebody_who_comes_beside_a_direct_one_is_given_time() {
        let mut bulk = Bulk::new(5);
        bulk.ended(LARGE, DENSE, 5);
        assert!(bulk.quiet.is_over());
        bulk.ended(LARGE, DENSE, 6);
        for left in (1..HOLD).rev() {
            bulk.ended(LARGE, None, 6);
            assert_eq!(bulk.quiet.left, left);
        }
        bulk.ended(LARGE, None, 7);
        assert_eq!(bulk.quiet.left, HOLD, "he came again");
        (0..HOLD).for_each(|_| bulk.ended(LARGE, None, 7));
        assert!(bulk.quiet.is_over());
    }

    #[test]
    fn somebody_who_came_while_nothing_went_straight_to_the_base_costs_one_transaction() {
        let mut bulk = Bulk::new(0);
        bulk.ended(LARGE, None, 3);
        bulk.ended(LARGE, None, 9);
        assert_eq!((bulk.quiet, bulk.others), (Hold::default(), 9));
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
            bulk.ended(Size { entries, bytes }, None, 0);
            assert_eq!((bulk.after_large, bulk.after_short), (large, short), "{entries}, {bytes}");
        }
    }

    #[test]
    fn a_small_transaction_ends_a_run_of_large_ones() {
        let mut bulk = Bulk::new(0);
        bulk.ended(LARGE, DENSE, 0);
        assert!(bulk.after_large);
        bulk.ended(Size { entries: LARGE.entries - 1, bytes: LARGE.bytes - 1 }, DENSE, 0);
        assert!(!bulk.after_large);
    }

    #[test]
    fn scattered_rows_are_gathered_for_a_while_until_they_are_dense() {
        let mut bulk = Bulk::new(0);
        let thousand = Size { entries: 1_000, bytes: 120_000 };
        for _ in 0..2 {
            bulk.ended(thousand, Some(4_096 * 900), 0);
            for _ in 0..HOLD {
                assert!(!bulk.gathered.is_over());
                bulk.ended(thousand, None, 0);
            }
            assert!(bulk.gathered.is_over());
        }
        bulk.ended(thousand, Some(4_096 * 40), 0);
        assert!(bulk.gathered.is_over());
    }

    #[test]
    fn what_is_scattered_has_pages_of_few_entries_and_of_few_of_their_bytes() {
        for (entries, bytes, pages, scattered) in [
            (1_000, 120_000, 1_000, true),
            (1_000, 120_000, 200, false),
            // Index entries, twenty or three to a page.
            (1_000, 30_000, 50, false),
            (1_000, 30_000, 330, true),
            // Values of 8 KB, which fill their pages.
            (100, 800_000, 300, false),
            // Of 2 KB, each at the side of others of its page.
            (100, 200_000, 200, false),
        ] {
            let size = Size { entries, bytes };
            assert_eq!(size.is_scattered(pages * 4_096), scattered, "{size:?} in {pages} pages");
        }
    }
}
