//! Exclusive transactions: schema changes, VACUUM, bulk writes past the budget (T7).
//!
//! ```text
//! the right, with validation -> the right to merge -> everything merged ->
//! own writes replayed on SQLite's own path -> header stamped with the empty
//! active generation -> SQLite's commit -> a new generation starts
//! ```
//!
//! Invariants
//! - E1 While a transaction is exclusive nobody else commits or merges, and every
//!   memtable is merged: the base alone is the database.
//! - E2 (F4) The stamp is part of SQLite's own transaction: if the process dies around its commit, the
//!   base's header tells the next process whether it happened.
//! - E3 Snapshots of an older base conflict with it when they write: what it changed is in no memtable.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::right::Wait;
use super::write_set::{Step, WriteKind};
use super::{Conn, WriteMode};
use crate::crash_point;
use crate::error::Result;
use crate::ids::{Generation, Root};
use crate::merge::BaseHeader;
use crate::shm::layout::{generation, txn_state};

/// A step of replaying a transaction's own writes.
#[derive(Debug, Clone, Copy)]
pub enum Replay<'a> {
    /// Open savepoints until this many are open.
    Savepoint(usize),
    /// Insert or replace.
    Put(Root, &'a [u8], &'a [u8]),
    /// Delete; the last slice is the deleted record of an index.
    Delete(Root, &'a [u8], &'a [u8]),
}

impl Conn {
    /// Becomes exclusive. Then end the base read transaction, start a stock write transaction and replay.
    ///
    /// # Errors
    /// As for [`Conn::write_begin`], and Full when something old still needs all memtables. The transaction is
    /// then what it was before.
    pub fn exclusive_begin(&mut self, wait: &mut Wait<'_>) -> Result<()> {
        if self.exclusive {
            return Ok(());
        }
        let before = self.mode;
        let had_right = self.has_right;
        self.become_writer(wait)?;
        if let Err(e) = self.become_exclusive(wait) {
            // What was read has been validated up to the snapshot, which has moved with it.
            self.mode = before;
            if !had_right {
                self.give_right_back()?;
            }
            self.relax_pin();
            return Err(e);
        }
        self.exclusive = true;
        self.stamped = false;
        if let Some(snapshot) = &mut self.snapshot {
            // E1: the base alone is the database.
            snapshot.memtables.clear();
            snapshot.last_nodes.get_mut().clear();
        }
        self.view = self.view.wrapping_add(1);
        crash_point!("exclusive.begun");
        Ok(())
    }

    /// Takes the right, turning an optimistic transaction into a queued one.
    fn become_writer(&mut self, wait: &mut Wait<'_>) -> Result<()> {
        if self.mode != Some(WriteMode::Optimistic) {
            return self.write_begin(WriteMode::Queued, wait);
        }
        self.commit_prepare_always(wait)?;
        self.mode = Some(WriteMode::Queued);
        Ok(())
    }

    /// The right to merge, and with it an empty overlay.
    fn become_exclusive(&mut self, wait: &mut Wait<'_>) -> Result<()> {
        // Opened now, so that the end of the transaction needs nothing that may be lacking.
        self.db.with_base(|_| Ok(()))?;
        self.db.own_merge(self.slot, wait)?;
        self.db.slot(self.slot).state.store(txn_state::EXCLUSIVE, Relaxed);
        let merged = self.merge_everything();
        if merged.is_err() {
            self.db.slot(self.slot).state.store(txn_state::WRITER, Relaxed);
            self.db.disown_merge(self.slot);
        }
        merged
    }

    fn merge_everything(&self) -> Result<()> {
        // At most two rounds: the first may find no free arena to freeze the active generation into.
        for _ in 0..3 {
            self.db.merge_owned(false)?;
            let active = self.db.memtable(self.db.active_arena());
            let frozen = self
                .db
                .control()
                .generations
                .iter()
                .any(|g| g.state.load(Relaxed) == generation::FROZEN);
            if active.is_empty() && !frozen && self.db.prepare_arena()? {
                return Ok(());
            }
        }
        Err(self.db.no_room("an exclusive transaction finds no free memtable"))
    }

    /// The transaction's own writes in order, savepoint by savepoint; they leave the write set.
    pub fn exclusive_replay<E>(
        &mut self,
        mut step: impl FnMut(Replay<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.writes.replay(|s| {
            step(match s {
                Step::Savepoint(n) => Replay::Savepoint(n),
                Step::Write(root, key, w) if w.kind() == WriteKind::Tombstone => {
                    Replay::Delete(root, key, w.rec())
                }
                Step::Write(root, key, w) => Replay::Put(root, key, w.rec()),
            })
        })?;
        self.writes.clear();
        Ok(())
    }

    /// What has to be stamped into the header before the stock commit (E2).
    pub fn exclusive_header(&mut self) -> BaseHeader {
        self.stamped = true;
        let c = self.db.control();
        BaseHeader {
            marked: true,
            fenced: true,
            salt: c.salt.load(Relaxed),
            generation: Generation::new(self.db.active_generation().number.load(Acquire)),
            cookie: 0,
        }
    }

    /// After the stock commit or rollback: lets the others go on. Whether it was a commit the header of the
    /// base says (E2); a stamped transaction that is not there is buried.
    pub fn exclusive_end(&mut self, committed: bool) {
        if !std::mem::take(&mut self.exclusive) {
            return;
        }
        crash_point!("exclusive.committed");
        if std::mem::take(&mut self.stamped) && self.settle_exclusive(committed).is_err() {
            // Nobody can tell whether it counts: recovery from disk will.
            self.db.poison();
        }
        crash_point!("exclusive.settled");
        self.db.disown_merge(self.slot);
        self.writes.clear();
        self.end_writing();
        self.view = self.view.wrapping_add(1);
        // On failure (a poisoned commit mutex) the next reaper gives the right back.
        let _ = self.give_right_back();
    }

    fn settle_exclusive(&mut self, committed: bool) -> Result<()> {
        let header = self.db.with_base(|base| base.header())?;
        let stamp = self.db.active_generation().number.load(Acquire);
        if header.marked && header.generation.get() < stamp {
            debug_assert!(!committed, "a commit of SQLite's that its own header does not show");
            return self.db.bury_unfinished_commit();
        }
        {
            let _guard = self.db.lock_commit_even_if_poisoned()?;
            self.db.settle_base(&header, true);
        }
        self.own_commits += 1;
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.base_generation = header.generation;
            snapshot.ts = crate::ids::SnapshotTs::new(self.db.control().visible_ts.load(Acquire));
            snapshot.resting = false;
        }
        Ok(())
    }
}
