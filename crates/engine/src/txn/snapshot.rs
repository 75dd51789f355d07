//! Snapshots: what a transaction sees.
//!
//! A snapshot is a read transaction on the base, the memtable generations that the base does not
//! include yet, and a timestamp.
//!
//! ```text
//! pin (pin_low = base generation now, pin_high = all)  keeps every generation
//! base read transaction starts                         fixes the base; its header says which
//!                                                      generations it includes
//! take: timestamp, then the generations above the header's; pins tightened
//! ```
//!
//! Invariants
//! - PIN-1 (SNAP-1) The base read transaction starts after the pin. Either the merger's scan saw
//!   the pin, or its transaction was committed before the base was read; so every generation that
//!   is missing in the base is still in memory.
//! - PIN-2 The timestamp is read after the base: it is at least the largest timestamp that the base
//!   includes, because a merge raises `readable_ts` before it commits to the base.
//! - PIN-6 (SNAP-6) A transaction that waits for memory held by snapshots holds none by its own, or
//!   two could wait for each other. In its COMMIT it takes a newer snapshot, over a base that has
//!   what it held. With the right nothing has changed since it was validated. Without the right the
//!   pin stays until what was read is validated up to the newer timestamp, and the maxima are
//!   raised: by the history above the *older* base, all of which is in memory. Later validations
//!   begin at the newer timestamp. The same holds for the base's WAL; there a snapshot over the
//!   newest base may be in the way, too, by an older read mark (`WalWait` in room.rs).
//! - PIN-3 (SNAP-3) `pin_low < generation <= pin_high` is needed to read; generations above
//!   `pin_high` hold only commits newer than the snapshot and matter for validation alone.
//!
//! # What a transaction was shown
//!
//! A transaction may be shown commits before readers may see them; its end settles these
//! (database/visibility.rs VISIBLE-1).

use std::cell::RefCell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::fence as memory_fence;

use super::{Conn, Sync};
use crate::base::BaseHeader;
use crate::commit::Snapshot;
use crate::commit::validate::Base;
use crate::database::generations::{PINS_AND_FREES, UNPINS};
use crate::error::{Error, Result};
use crate::ids::{Lsn, SnapshotTs};
use crate::shm::layout::{NO_PIN, fence, txn_state};

/// Result of [`Conn::take`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// The snapshot is taken.
    Yes,
    /// The base moved on in a way that needs a new base read transaction.
    Retry,
}

impl Conn {
    /// Announces a snapshot. Then start the base read transaction and call [`Conn::take`].
    /// `lone_read`: for one statement that reads, outside of a transaction.
    pub fn pin(&mut self, lone_read: bool) -> Result<()> {
        self.db.check_fork()?;
        if self.start_transaction() && lone_read {
            self.note_lone_read();
        }
        let slot = self.db.slots.at(self.slot);
        // Relaxed: this connection has stored it.
        self.db.look_for_long(slot.started_ms.load(Relaxed));
        slot.pin_high.store(NO_PIN, Relaxed);
        if !self.renews {
            let base = self.db.control().base_generation.load(Acquire);
            slot.pin_low.store(base, Release);
        }
        // Partner: the fence in `free_merged` (PIN-1).
        memory_fence(PINS_AND_FREES);
        Ok(())
    }

    /// Takes the snapshot over the base read transaction that was started after [`Conn::pin`].
    /// `newest`: the newest visible commit instead of the newest that readers may see
    /// (visibility.rs), which may have to be brought to disk.
    ///
    /// # Errors
    /// I/O error when the database is poisoned; `Left` when the base left concurrent mode.
    pub fn take(&mut self, base: &BaseHeader, newest: bool) -> Result<Taken> {
        self.db.check_poison()?;
        if !base.marked {
            return Err(Error::Left);
        }
        if base.generation.get() < self.db.slots.at(self.slot).pin_low.load(Relaxed) {
            // The base is older than the pin: only a replaced file explains that twice in a row.
            return Ok(Taken::Retry);
        }
        if self.db.settle_base_of_dead(base.generation) {
            return Ok(Taken::Retry);
        }
        let ts = if newest {
            self.await_turn();
            let (ts, needs) = self.db.newest()?;
            self.note_shown(ts.get(), needs);
            ts
        } else {
            self.db.readable()?
        };
        // Acquire pairs with the Release in `settle_base`. What an exclusive transaction changed is
        // in no memtable: a base read before its commit does not fit a timestamp after it.
        if self.db.control().exclusive_generation.load(Acquire) > base.generation.get() {
            return Ok(Taken::Retry);
        }
        // After the timestamp, so that all of its generations are among them. Before anything
        // changes, since this may fail.
        let last = std::mem::take(&mut self.listed);
        let memtables = self.db.generations.memtables_again(last, base.generation)?;
        if self.renews {
            self.carry_over().map_err(|e| self.note_conflict(e))?;
            self.renews = false;
            // What was found out in the older view is looked up again.
            self.view = self.view.wrapping_add(1);
        }
        let (c, slot) = (self.db.control(), self.db.slots.at(self.slot));
        slot.pin_low.store(base.generation.get(), UNPINS);
        let snapshot = Snapshot {
            ts,
            base_generation: base.generation,
            base_cookie: base.cookie,
            resting: c.fence.load(Acquire) == fence::RESTING || !base.fenced,
            fenced: base.fenced,
            memtables,
            last_nodes: RefCell::default(),
        };
        slot.snapshot.store(ts.get(), Relaxed);
        slot.pin_high.store(snapshot.newest_generation().get(), Release);
        if !self.state.has_right() {
            let state = if self.state.mode().is_some() {
                txn_state::OPTIMISTIC
            } else {
                txn_state::READING
            };
            slot.state.store(state, Relaxed);
        }
        self.count_view(ts.get(), snapshot.resting.then_some(snapshot.base_cookie));
        self.snapshot = Some(snapshot);
        Ok(Taken::Yes)
    }

    /// Prepares PIN-6: the next snapshot replaces the present one. Returns the error for the
    /// caller.
    pub(super) fn renew(&mut self) -> Error {
        self.renews = !self.state.has_right();
        // With the right nothing that was read can change. But others have raised maxima before,
        // and the newer base hides by how much.
        if !self.renews
            && let Err(e) = self.candidate().resolve_maxima()
        {
            return e;
        }
        Error::RenewSnapshot
    }

    /// As [`Conn::renew`], if what was read is not validated yet, with the right or without it.
    pub(super) fn renew_and_validate(&mut self) -> Error {
        self.renews = true;
        Error::RenewSnapshot
    }

    /// PIN-6: checks that what was read is unchanged up to the timestamp loaded for the next
    /// snapshot.
    fn carry_over(&mut self) -> Result<()> {
        debug_assert!(self.snapshot.is_some(), "PIN-6: without it nothing would be validated");
        self.candidate().pin_history()?;
        self.candidate().validate_all()?;
        let db = self.db.clone();
        let _guard = db.lock_commit()?;
        self.candidate().resolve_maxima()?;
        Ok(())
    }

    /// Prepares for a wait after [`Conn::take`] returned Busy; then the caller pins and takes
    /// again. A renewal keeps its pin and its older snapshot to validate its reads: even with the
    /// right, which it may give back (PIN-6).
    pub fn put_off(&mut self) {
        if self.snapshot.is_none() {
            self.snapshot_end();
        }
    }

    /// Ends the snapshot, or a lone pin, and settles what it has shown (VISIBLE-1 in
    /// visibility.rs).
    pub fn snapshot_end(&mut self) {
        self.end_early();
        if let Some(snapshot) = self.snapshot.take() {
            self.listed = snapshot.memtables;
        }
        self.renews = false;
        self.wal_wait.end();
        self.large_wait = None;
        if self.state.mode().is_none() {
            self.reads.clear();
            self.txn = crate::ids::TxnId::ZERO;
        }
        self.end_turn();
        let slot = self.db.slots.at(self.slot);
        slot.pin_high.store(NO_PIN, Relaxed);
        slot.snapshot.store(u64::MAX, Relaxed);
        slot.pin_low.store(NO_PIN, UNPINS);
        if !self.state.has_right() && self.state.mode().is_none() {
            slot.state.store(txn_state::IDLE, Relaxed);
        }
        // If this fails for good, the database is poisoned, and the next call reports it.
        let _ = self.settle_shown();
    }

    /// Validates what was read and moves the snapshot to the newest commit. The right is held. The
    /// base read transaction stays; generations frozen or merged since are read from memory.
    ///
    /// # Errors
    /// Conflict; `RenewSnapshot` if an exclusive transaction has changed something else: the right
    /// stays, and nothing can change.
    pub(crate) fn move_snapshot_to_now(&mut self) -> Result<()> {
        let base = self.candidate().pin_history()?;
        self.candidate().validate_all()?;
        self.candidate().resolve_maxima()?;
        if base == Base::Older {
            // From now on the transaction has to read a newer base.
            self.view = self.view.wrapping_add(1);
            return Err(self.renew());
        }
        let Some(base) = self.snapshot.as_ref().map(|own| own.base_generation) else {
            return Ok(());
        };
        let memtables = self.db.generations.memtables_above(base)?;
        let Some(mut snapshot) = self.snapshot.take() else { return Ok(()) };
        snapshot.memtables = memtables.into();
        snapshot.last_nodes.get_mut().clear();
        // No other transaction commits while the right is held, so this is the newest commit
        // (CONN-2).
        snapshot.ts = SnapshotTs::new(self.db.control().visible_ts.load(Acquire));
        self.note_shown(snapshot.ts.get(), self.db.full_end());
        let slot = self.db.slots.at(self.slot);
        slot.snapshot.store(snapshot.ts.get(), Relaxed);
        slot.pin_high.store(snapshot.newest_generation().get(), Release);
        self.snapshot = Some(snapshot);
        // The read set is kept (CONN-1): if the right is given back before the end, others may
        // change what was read.
        self.view = self.view.wrapping_add(1);
        Ok(())
    }

    /// Continues from the last answer before the handle was attached, `version`. That answer
    /// counted a base at rest as `resting` says, or one that was already fenced. Called right after
    /// attaching.
    pub fn data_version_from(&mut self, version: u32, resting: Option<u64>) {
        let c = self.db.control();
        // If the fence was raised since, commits may have followed that this look has missed: no
        // number of commits equals this one.
        let missed = resting.is_some() && self.has_fence();
        let readable = c.readable_ts.load(Acquire).wrapping_sub(self.own_timestamps);
        let foreign_commits = if missed { u64::MAX } else { readable };
        self.data_version = version;
        self.seen = Some(Seen { foreign_commits, resting });
    }

    /// Returns a number that changes when a snapshot, or a call with `now` outside of one, sees a
    /// commit of another connection that was not in view before.
    pub fn data_version(&mut self, now: bool) -> u32 {
        if let Some(snapshot) = &self.snapshot {
            let (ts, resting) =
                (snapshot.ts.get(), snapshot.resting.then_some(snapshot.base_cookie));
            self.count_view(ts, resting);
        } else if now {
            // Without a snapshot nothing is known of a base at rest.
            let resting = self.seen.and_then(|then| then.resting);
            let ts = self.db.control().readable_ts.load(Acquire);
            self.count_view(ts, resting);
        }
        self.data_version
    }

    /// Counts what is in view now: commits through `ts`, and a base at rest if `resting` names one.
    fn count_view(&mut self, ts: u64, resting: Option<u64>) {
        let now = Seen { foreign_commits: ts.wrapping_sub(self.own_timestamps), resting };
        let Some(then) = self.seen.replace(now) else { return };
        // Stock programs may write a file at rest. The process that fenced it first recorded its
        // content then.
        let base_is_other = match (then.resting, resting) {
            (Some(then), Some(now)) => then != now,
            // Relaxed: stored before the commit that made this view one of a fenced file.
            (Some(then), None) => then != self.db.control().fence_cookie.load(Relaxed),
            _ => false,
        };
        if base_is_other || then.foreign_commits != now.foreign_commits {
            self.data_version = self.data_version.wrapping_add(1);
        }
    }
}

/// What was in view when [`Conn::data_version`] was counted last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// Commits that came into view, without those of this connection.
    foreign_commits: u64,
    /// The cookie of a base at rest.
    resting: Option<u64>,
}

/// The newest commits that a transaction was shown.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Shown {
    ts: u64,
    /// How far the log has to be on disk for the FULL commits among them.
    needs: u64,
}

impl Conn {
    /// Notes that the transaction is shown commits through `ts`, perhaps newer than readers see.
    pub(crate) fn note_shown(&mut self, ts: u64, needs: Lsn) {
        self.shown.ts = self.shown.ts.max(ts);
        self.shown.needs = self.shown.needs.max(needs.get());
    }

    /// Settles what the transaction was shown (VISIBLE-1). It has ended, though statements may read
    /// on in its snapshot.
    ///
    /// # Errors
    /// The failure of a sync, which poisons the database.
    pub fn settle_shown(&mut self) -> Result<()> {
        self.settle_shown_as(self.level)
    }

    pub(crate) fn settle_shown_as(&mut self, level: Sync) -> Result<()> {
        let shown = std::mem::take(&mut self.shown);
        let needs = Lsn::new(shown.needs);
        // What was reported as read must not be lost.
        let synced = if level == Sync::Full { self.db.bring_to_disk(needs) } else { Ok(()) };
        // Also after a failure: the next readers sync then, or fail.
        if shown.ts > self.db.control().readable_ts.load(Acquire) {
            self.db.settle(shown.ts, needs);
        }
        synced
    }

    /// Sets how durable this connection's results are, from its next transaction on.
    pub fn set_level(&mut self, level: Sync) {
        self.level = level;
    }
}
