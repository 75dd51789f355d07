//! Automatic rowids from a shared counter per table (TXN-3).
//!
//! Stock SQLite gives the largest rowid plus one. Concurrent transactions would all get the same
//! one, so the counter also remembers the largest rowid given out. It counts only while another
//! transaction is writing or has committed since the snapshot. Otherwise, after a rollback or a
//! delete at the end, the next rowid is the one that stock SQLite would give.
//!
//! # The greatest rowid
//! A transaction finds the greatest rowid in its view by a search in base and overlay, past what
//! was deleted there. So it remembers the greatest rowid of the table to which it last gave one.
//!
//! - ROWID-1 What is remembered is valid for one table in one view: snapshot, and own writes by
//!   their version (WRITES-3). The transaction's own puts raise it. A delete of that very row ends
//!   it, and so does any other change of the view or of those writes.
//! - ROWID-2 Nothing is remembered without own writes in the table: so it ends with the
//!   transaction.

use std::sync::atomic::Ordering::{AcqRel, Acquire};

use super::Conn;
use crate::commit::writes::WriteSet;
use crate::error::Result;
use crate::ids::Root;
use crate::shm::layout::{ROWID_SLOTS, RowidSlot, txn_state};

/// Key of a table's row.
pub type TableKey = [u8; 8];

/// The greatest key of a table in a view (ROWID-1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Greatest {
    view: View,
    /// None: the table has no row.
    key: Option<TableKey>,
}

/// What a greatest key is valid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct View {
    root: Root,
    number: u32,
    ts: u64,
    own: u64,
}

impl Conn {
    fn table_view(&self, root: Root) -> Option<View> {
        let snapshot = self.snapshot.as_ref().filter(|_| !self.state.is_exclusive())?;
        self.writes.has_root(root).then(|| View {
            root,
            number: self.view,
            ts: snapshot.ts.get(),
            own: self.writes.root_version(root),
        })
    }

    /// Returns the greatest key of a table in this transaction's view, if it is known;
    /// `Some(None)`: there is no row.
    pub fn greatest_key(&self, root: Root) -> Option<Option<TableKey>> {
        let known = self.greatest.as_ref().filter(|known| known.view.root == root)?;
        (Some(known.view) == self.table_view(root)).then_some(known.key)
    }

    /// Remembers the result of a search for the greatest key.
    pub fn note_greatest_key(&mut self, root: Root, key: Option<TableKey>) {
        self.greatest = self.table_view(root).map(|view| Greatest { view, key });
    }

    /// Makes a write, and updates the greatest key.
    pub(super) fn write_noting_greatest(
        &mut self,
        root: Root,
        key: &[u8],
        is_put: bool,
        write: impl FnOnce(&mut WriteSet) -> Result<()>,
    ) -> Result<()> {
        let before = self.greatest_key(root);
        write(&mut self.writes)?;
        let Some(before) = before else { return Ok(()) };
        // Such a key is of no table: its view has changed by now.
        let Ok(key) = TableKey::try_from(key) else { return Ok(()) };
        match is_put {
            true => self.note_greatest_key(root, before.max(Some(key))),
            false if before == Some(key) => self.greatest = None,
            false => self.note_greatest_key(root, before),
        }
        Ok(())
    }

    /// Returns the next automatic rowid of table `root`: at least `stock`, which SQLite would give
    /// in this transaction's view.
    pub fn new_rowid(&self, root: Root, stock: i64) -> i64 {
        let Some(counter) = self.rowid_counter(root) else { return stock };
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
                Ok(_) => return next,
                Err(now) => high = now,
            }
        }
    }

    /// Notes an explicit rowid that was inserted: automatic ones continue after it.
    pub fn note_rowid(&self, root: Root, rowid: i64) {
        if let Some(counter) = self.rowid_counter(root) {
            counter.high.fetch_max(rowid, AcqRel);
        }
    }

    /// True if rows may have been added that this transaction does not see.
    fn snapshot_is_old(&self) -> bool {
        self.snapshot
            .as_ref()
            .is_some_and(|s| s.ts.get() < self.db.control().visible_ts.load(Acquire))
    }

    fn others_are_writing(&self) -> bool {
        self.db.slots.in_use().any(|(i, s)| {
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

    /// Returns the counter of `root`; `None` when all are taken by other tables.
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
