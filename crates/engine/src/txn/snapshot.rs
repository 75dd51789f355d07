//! Snapshots: what a transaction sees.
//!
//! A snapshot is a read transaction on the base, the memtable generations that
//! the base does not include yet, and a timestamp.
//!
//! ```text
//! pin (pin_low = base generation now, pin_high = all)   keeps every generation
//! base read transaction starts                             fixes the base; its header says which generations it includes
//! take: timestamp, then the generations above the header's; pins tightened
//! ```
//!
//! Invariants
//! - PIN-1 (SNAP-1) The base read transaction starts after the pin. Either the merger's scan saw the pin, or its
//!   transaction was committed before the base was read; so every generation that is missing in the base
//!   is still in memory.
//! - PIN-2 The timestamp is read after the base: it is at least the largest timestamp the base includes,
//!   because a merge raises `readable_ts` before it commits to the base.
//! - PIN-6 (SNAP-6) Who waits for memory that snapshots hold holds none by an own snapshot, or two could wait for each other. A transaction in its COMMIT takes
//!   a newer one, over a base that has what it held. With the right nothing has changed since it was validated. Without it the pin stays
//!   until what was read is validated up to the newer timestamp, and the maxima are raised: by the history above the *older* base, all of
//!   which is in memory. Later validations begin at the newer timestamp.
//!   The same with the base's WAL; there a snapshot over the newest base may be in the way too, by an older read mark (`WalWait` in room.rs).
//! - PIN-3 (SNAP-3) `pin_low < generation <= pin_high` is needed to read; generations above `pin_high` hold
//!   only commits newer than the snapshot and matter for validation alone.
//!
//! # What a transaction was shown
//!
//! What a transaction was shown before readers may see it, and who settles that (database/visibility.rs VISIBLE-1).

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

/// Whether a snapshot could be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It is taken.
    Yes,
    /// The base moved on in a way that needs a new base read transaction.
    Retry,
}

impl Conn {
    /// Announces a snapshot. Then start the base read transaction and call [`Conn::take`]. `lone_read`: for one statement that reads,
    /// outside of a transaction.
    pub fn pin(&mut self, lone_read: bool) -> Result<()> {
        self.db.check_fork()?;
        if self.start_transaction() && lone_read {
            self.note_lone_read();
        }
        let slot = self.db.slots.at(self.slot);
        slot.pin_high.store(NO_PIN, Relaxed);
        if !self.renews {
            let base = self.db.control().base_generation.load(Acquire);
            slot.pin_low.store(base, Release);
        }
        // Its partner is in `free_merged` (PIN-1).
        memory_fence(PINS_AND_FREES);
        Ok(())
    }

    /// Takes the snapshot over the base read transaction that was started after [`Conn::pin`].
    /// `newest`: the newest visible commit instead of the newest that readers may see (visibility.rs), which may have to be
    /// brought to disk.
    ///
    /// # Errors
    /// I/O error when the database is poisoned; `Left` when the base left concurrent mode.
    pub fn take(&mut self, base: &BaseHeader, newest: bool) -> Result<Taken> {
        self.db.check_poison()?;
        if !base.marked {
            return Err(Error::Left);
        }
        if base.generation.get() < self.db.slots.at(self.slot).pin_low.load(Relaxed) {
            // An older base than the one pinned for: only a replaced file explains it twice in a row.
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
        // Acquire pairs with the Release in `settle_base`. What an exclusive transaction changed is in no memtable: a base
        // read before its commit does not go with a timestamp after it.
        if self.db.control().exclusive_generation.load(Acquire) > base.generation.get() {
            return Ok(Taken::Retry);
        }
        // After the timestamp, so that all of its generations are among them; before anything changes, since it may fail.
        let memtables = self.db.generations.memtables_above(base.generation)?;
        if self.renews {
            self.carry_over().map_err(|e| self.note_conflict(e))?;
            self.renews = false;
            // Whatever was found out in the older view is found out anew.
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

    /// PIN-6: the next snapshot goes on for the one there is.
    pub(super) fn renew(&mut self) -> Error {
        self.renews = !self.state.has_right();
        // With the right nothing that was read changes any more, but maxima were raised by others before: the newer base hides by how much.
        if !self.renews
            && let Err(e) = self.candidate().resolve_maxima()
        {
            return e;
        }
        Error::RenewSnapshot
    }

    /// The same where what was read is not validated yet, right or not.
    pub(super) fn renew_and_validate(&mut self) -> Error {
        self.renews = true;
        Error::RenewSnapshot
    }

    /// PIN-6: what was read before is still so at the timestamp that was loaded for the next snapshot.
    fn carry_over(&mut self) -> Result<()> {
        debug_assert!(self.snapshot.is_some(), "PIN-6: without it nothing would be validated");
        self.candidate().pin_history()?;
        self.candidate().validate_all()?;
        let db = self.db.clone();
        let _guard = db.lock_commit()?;
        self.candidate().resolve_maxima()?;
        Ok(())
    }

    /// [`Conn::take`] said Busy, and the caller waits before it pins and takes again. A renewal keeps its pin and its older snapshot: by
    /// that it validates what it read, also where it has the right, which it may give back (PIN-6).
    pub fn put_off(&mut self) {
        if self.snapshot.is_none() {
            self.snapshot_end();
        }
    }

    /// Ends the snapshot, or a lone pin, and settles what it has shown (VISIBLE-1 in visibility.rs).
    pub fn snapshot_end(&mut self) {
        self.snapshot = None;
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
        // If this fails for good the database is poisoned, and the next call says so.
        let _ = self.settle_shown();
    }

    /// With the right held: validates what was read and moves the snapshot to the newest commit. The base
    /// read transaction stays; generations frozen or merged meanwhile are read from memory.
    ///
    /// # Errors
    /// Conflict; `RenewSnapshot` where an exclusive transaction has changed something else: the right stays, and nothing changes any more.
    pub(crate) fn move_snapshot_to_now(&mut self) -> Result<()> {
        let base = self.candidate().pin_history()?;
        self.candidate().validate_all()?;
        self.candidate().resolve_maxima()?;
        if base == Base::Older {
            // What has to be read from now on is in a newer base alone.
            self.view = self.view.wrapping_add(1);
            return Err(self.renew());
        }
        let Some(base) = self.snapshot.as_ref().map(|own| own.base_generation) else {
            return Ok(());
        };
        let memtables = self.db.generations.memtables_above(base)?;
        let Some(mut snapshot) = self.snapshot.take() else { return Ok(()) };
        snapshot.memtables = memtables;
        snapshot.last_nodes.get_mut().clear();
        // Nobody else commits while the right is held, so this is the newest commit (CONN-2).
        snapshot.ts = SnapshotTs::new(self.db.control().visible_ts.load(Acquire));
        self.note_shown(snapshot.ts.get(), self.db.full_end());
        let slot = self.db.slots.at(self.slot);
        slot.snapshot.store(snapshot.ts.get(), Relaxed);
        slot.pin_high.store(snapshot.newest_generation().get(), Release);
        self.snapshot = Some(snapshot);
        // What was read stays known (CONN-1): should the right be given back before the end, others may change it after all.
        self.view = self.view.wrapping_add(1);
        Ok(())
    }

    /// Goes on from what the handle answered before it was attached: `version`, with the base at rest as `resting` says, or
    /// fenced by somebody, which it has counted already. To be called right after attaching.
    pub fn data_version_from(&mut self, version: u32, resting: Option<u64>) {
        let c = self.db.control();
        // A fence that was raised meanwhile has commits behind it that this look comes too late for: no number of commits is this one.
        let missed = resting.is_some() && self.has_fence();
        let readable = c.readable_ts.load(Acquire).wrapping_sub(self.own_timestamps);
        let foreign_commits = if missed { u64::MAX } else { readable };
        self.data_version = version;
        self.seen = Some(Seen { foreign_commits, resting });
    }

    /// A number that changes when a snapshot, or who asks with `now` outside of one, finds a commit of another connection that
    /// the one before did not have in view.
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

    /// What is in view now: commits through `ts`, and a base at rest if `resting` names one.
    fn count_view(&mut self, ts: u64, resting: Option<u64>) {
        let now = Seen { foreign_commits: ts.wrapping_sub(self.own_timestamps), resting };
        let Some(then) = self.seen.replace(now) else { return };
        // A file at rest may be written by stock programs. Who fenced it first says what it was then.
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
    /// Commits that came into view, but for those of this connection.
    foreign_commits: u64,
    /// The cookie of a base at rest.
    resting: Option<u64>,
}

/// The newest commits that a transaction was shown.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Shown {
    ts: u64,
    /// How far the log has to be on disk for the FULL ones of them.
    needs: u64,
}

impl Conn {
    /// The transaction is shown commits through `ts`, perhaps newer than readers see.
    pub(crate) fn note_shown(&mut self, ts: u64, needs: Lsn) {
        self.shown.ts = self.shown.ts.max(ts);
        self.shown.needs = self.shown.needs.max(needs.get());
    }

    /// The transaction has ended, though statements may go on reading in its snapshot: settles what it was shown (VISIBLE-1).
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
        // Also after a failure: then those who read next sync, or fail.
        if shown.ts > self.db.control().readable_ts.load(Acquire) {
            self.db.settle(shown.ts, needs);
        }
        synced
    }

    /// How durable is what this connection reports, from its next transaction on.
    pub fn set_level(&mut self, level: Sync) {
        self.level = level;
    }
}
