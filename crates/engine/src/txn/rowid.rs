//! Automatic rowids from a shared counter per table (T3).
//!
//! Stock SQLite gives the largest rowid plus one. Concurrent transactions would all
//! get the same one, so the counter remembers the largest rowid handed out, too. It only
//! counts while some other transaction is writing or has committed since the snapshot: otherwise, after a
//! rollback or a delete at the end, the next rowid is the one that stock SQLite would give.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::Conn;
use crate::ids::Root;
use crate::shm::layout::{ROWID_SLOTS, RowidSlot, txn_state};

impl Conn {
    /// The next automatic rowid of table `root`. `visible_max` is the largest in this transaction's view, `None` for
    /// an empty table; the result exceeds `floor`. `None` when the largest integer is taken.
    pub fn new_rowid(
        &self,
        root: Root,
        visible_max: Option<i64>,
        floor: Option<i64>,
    ) -> Option<i64> {
        let stock = match (visible_max, floor) {
            (None, None) => 1,
            (None, Some(floor)) => floor.checked_add(1)?.max(1),
            (Some(max), None) => max.checked_add(1)?,
            (Some(max), Some(floor)) => max.max(floor).checked_add(1)?,
        };
        let Some(counter) = self.rowid_counter(root) else { return Some(stock) };
        let mut high = counter.high.load(Acquire);
        loop {
            let next = match high.checked_add(1) {
                Some(after)
                    if after > stock && (self.snapshot_is_old() || self.others_are_writing()) =>
                {
                    after
                }
                _ => stock,
            };
            // AcqRel: two transactions never get the same rowid from one value of the counter.
            match counter.high.compare_exchange_weak(high, next, AcqRel, Acquire) {
                Ok(_) => return Some(next),
                Err(now) => high = now,
            }
        }
    }

    /// An explicit rowid was inserted: automatic ones continue behind it.
    pub fn note_rowid(&self, root: Root, rowid: i64) {
        if let Some(counter) = self.rowid_counter(root) {
            counter.high.fetch_max(rowid, AcqRel);
        }
    }

    /// Rows may have been added that this transaction does not see.
    fn snapshot_is_old(&self) -> bool {
        self.snapshot
            .as_ref()
            .is_some_and(|s| s.ts.get() < self.db.control().visible_ts.load(Acquire))
    }

    fn others_are_writing(&self) -> bool {
        self.db.slots_in_use().any(|(i, s)| {
            i != self.slot
                && matches!(
                    s.state.load(Acquire),
                    txn_state::OPTIMISTIC
                        | txn_state::QUEUED
                        | txn_state::WRITER
                        | txn_state::EXCLUSIVE
                )
        })
    }

    /// The counter of `root`; `None` when all are taken by other tables.
    fn rowid_counter(&self, root: Root) -> Option<&RowidSlot> {
        let slots = &self.db.control().rowids;
        let start = root.get().wrapping_mul(0x9e37_79b1) as usize % ROWID_SLOTS;
        for step in 0..ROWID_SLOTS {
            let slot = &slots[(start + step) % ROWID_SLOTS];
            let owner = slot.root.load(Acquire);
            if owner == root.get() {
                return Some(slot);
            }
            if owner == 0 {
                match slot.root.compare_exchange(0, root.get(), AcqRel, Acquire) {
                    Ok(_) => return Some(slot),
                    Err(now) if now == root.get() => return Some(slot),
                    Err(_) => {}
                }
            }
        }
        None
    }
}

/// Forgets all counters: after a schema change a root page may belong to another table. The caller is
/// exclusive.
pub(crate) fn forget_all(slots: &[RowidSlot]) {
    for slot in slots {
        // Relaxed: ordered by the commit mutex that ends the exclusive transaction.
        slot.root.store(0, Relaxed);
        slot.high.store(0, Relaxed);
    }
}
