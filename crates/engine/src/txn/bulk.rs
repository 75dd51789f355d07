//! Chooses the transactions that go straight to the base: large ones, while no other connection is
//! active.
//!
//! On the concurrent path a row is copied into the write set, the ring, a memtable, the log and, by
//! a merge, into the base. That pays with many writers, or with little at a time. A lone bulk load
//! pays it for nothing: its transactions become exclusive early, and SQLite's own code puts the
//! rows where they belong at once.
//!
//! A transaction is large by its entries or its bytes, whichever comes first: a dozen long values
//! are copied as often as many short rows.
//!
//! Others pay the price: a transaction that has read the same tables and then wants to write
//! conflicts (EXCL-3), and all writers wait. So it is done only if no others are seen. The price is
//! also paid in pages: rows at random places change a page each, which goes whole to the WAL and to
//! the file with every transaction. A merge gathers the rows of many transactions first, and
//! changes each page once for all of them. So a large transaction whose rows were *scattered* is
//! followed by others on the concurrent path.
//!
//! | transaction | previous writer | decided at | goes straight to the base if alone, and if |
//! |---|---|---|---|
//! | queued | large | [`EARLY`] | what is in memory can be merged without waiting |
//! | queued | small, or none | [`LARGE`] | nothing is in memory |
//! | optimistic | large, up to [`SHORT`] | [`EARLY`] | as the first, and no commit since it began |
//! | optimistic | any other | - | never: others may write for as long as it takes |
//!
//! *Alone*: no other connection of any process has a transaction; none has begun one since this
//! connection's previous large transaction (or since it was opened), except single reading
//! statements; and that has been so for long enough. If another transaction began while one was on
//! the direct path, [`HOLD`] large transactions in a row have to pass undisturbed. As many take the
//! concurrent path after a direct one that was scattered.
//!
//! Invariants
//! - BULK-1 It is a choice, never a must: if anything is missing, the transaction stays on the
//!   concurrent path, and the choice is not made again. It does not wait and cannot fail with BUSY
//!   (`reserve_exclusive`).
//! - BULK-2 A transaction of less than [`EARLY`], in entries and in bytes, stays on the concurrent
//!   path; so does one of a single entry.
//! - BULK-3 An optimistic transaction takes the writer's right for this only if it is expected to
//!   end soon and nothing has been committed since its snapshot: there is nothing to validate.
//! - BULK-4 While a shipper holds the log, every transaction stays on the concurrent path.
//!
//! Everything but the count of transactions begun is private to the connection. The count affects
//! speed alone, so it may be read without an order.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::{Conn, WriteMode};
use crate::database::Database;
use crate::ids::SlotIndex;
use crate::shm::layout::{NO_PIN, txn_state};

/// From so many entries on, or so many bytes, a transaction is large: they outweigh the cost of
/// becoming exclusive, a few system calls and the entries written so far once more.
const LARGE: Size = Size { entries: 256, bytes: 128 << 10 };
/// With fewer entries a transaction is not large, however long they are: a document with its index
/// entries, say.
const FEWEST: u64 = 8;
/// The choice is made this early after a large transaction: small ones are left alone, and little
/// is written twice.
const EARLY: Size = Size { entries: 16, bytes: 16 << 10 };
/// A large transaction of at most this size ends soon, in some ten milliseconds, and so, probably,
/// does the next.
const SHORT: Size = Size { entries: 16_384, bytes: 8 << 20 };
/// Large transactions that take the concurrent path after one that should not have been direct. A
/// scattered direct one, with the merge before it, takes as long as some fifty gathered ones; a
/// direct one that another transaction meets makes that one fail. A transaction that should have
/// been direct takes a third longer at most.
const HOLD: u32 = 4096;
/// Bytes of pages that cost less to write at once than an entry, or its bytes, by way of memory,
/// log and merge. Measured with rows of 100 bytes in pages of 4 KiB: both ways take the same
/// processor time if a page gets three or four of them.
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
    /// True if it has as many entries as `other`, or as many bytes.
    fn reaches(self, other: Size) -> bool {
        self.entries >= other.entries || self.bytes >= other.bytes
    }

    fn is_large(self) -> bool {
        self.entries >= FEWEST && self.reaches(LARGE)
    }

    /// True if it has no more of either than `other`.
    fn is_within(self, other: Size) -> bool {
        self.entries <= other.entries && self.bytes <= other.bytes
    }

    /// True if `page_bytes`, the pages it was written to, are so many that it should have been
    /// gathered.
    fn is_scattered(self, page_bytes: u64) -> bool {
        page_bytes > (self.entries * PAGE_BYTES.entries).max(self.bytes * PAGE_BYTES.bytes)
    }

    pub(super) fn plus(self, other: Size) -> Size {
        Size { entries: self.entries + other.entries, bytes: self.bytes + other.bytes }
    }
}

/// How many large transactions have yet to pass on the concurrent path.
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

    /// Starts again, unless it is over.
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
    /// And so small that the next one will not take long.
    after_short: bool,
    /// The previous large one went straight to the base.
    was_direct: bool,
    /// Undisturbed ones in a row, since another transaction began during a direct one.
    quiet: Hold,
    /// Those since a direct one was scattered.
    gathered: Hold,
    /// The choice was made: the running transaction stays on the concurrent path.
    declined: bool,
    /// The running one counts as a lone read: a statement outside of BEGIN that will not write.
    is_lone_read: bool,
}

impl Bulk {
    pub(super) fn new(others: u64) -> Bulk {
        Bulk { others, ..Bulk::default() }
    }

    /// Notes that a transaction begins.
    pub(super) fn begin(&mut self) {
        self.begun += 1;
        self.declined = false;
        self.is_lone_read = false;
    }

    /// Notes that a transaction of this size was committed; `direct`: straight to so many bytes of
    /// pages.
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
    /// Called at every write. True if the transaction is to go on exclusively: it has both rights
    /// then, and nothing is left in memory.
    pub(super) fn try_become_exclusive(&mut self) -> bool {
        let size = self.written();
        let is_enough = size.is_large() || (self.bulk.after_large && size.reaches(EARLY));
        if self.bulk.declined || !is_enough {
            return false;
        }
        let may = self.bulk.gathered.is_over() && !self.is_shipped() && self.is_alone();
        self.bulk.declined = !(may && self.reserve_both_rights());
        !self.bulk.declined
    }

    /// Pages of an exclusive transaction are not in the log: behind each, all of the database would have to
    /// be shipped again (BULK-4).
    fn is_shipped(&self) -> bool {
        self.db.log_shared().is_held()
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
        // While the right is held both stay equal (BULK-3, CONN-2).
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

    /// Transactions that all other connections have begun in this session and that might have
    /// written.
    fn others_begun(&self) -> u64 {
        begun_in(&self.db, self.slot).wrapping_sub(self.bulk.begun)
    }

    /// Notes that the transaction that has just begun cannot be harmed by another connection's
    /// large one.
    pub(super) fn note_lone_read(&mut self) {
        self.bulk.is_lone_read = true;
        // Relaxed, here and below: like the count of transactions. The slot is its own.
        self.db.slots.at(self.slot).lone_reads.fetch_add(1, Relaxed);
    }

    /// Takes the note back: another statement of the connection writes while the first is still
    /// stepped.
    pub(super) fn take_back_lone_read(&mut self) {
        if std::mem::take(&mut self.bulk.is_lone_read) {
            self.db.slots.at(self.slot).lone_reads.fetch_sub(1, Relaxed);
        }
    }

    /// Size of the write set.
    pub(super) fn written(&self) -> Size {
        Size { entries: self.writes.len() as u64, bytes: self.writes.frame_bytes() as u64 }
    }

    /// Remembers the size of a committed transaction, and the bytes of pages that a direct one
    /// wrote.
    pub(super) fn note_size(&mut self, size: Size, direct: Option<u64>) {
        // Counted for large ones alone: it looks at every slot.
        let others = if size.is_large() { self.others_begun() } else { 0 };
        self.bulk.ended(size, direct, others);
    }
}

/// Transactions begun in this session, without the lone reads of slots other than `mine`. A slot
/// keeps their number for its next owner. The counts are read one after the other; a difference
/// that comes of that counts as another transaction.
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
            // Of 2 KB, each next to others of its page.
            (100, 200_000, 200, false),
        ] {
            let size = Size { entries, bytes };
            assert_eq!(size.is_scattered(pages * 4_096), scattered, "{size:?} in {pages} pages");
        }
    }
}
