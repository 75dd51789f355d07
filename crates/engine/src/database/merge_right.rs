//! The right to merge or to be exclusive: an owner word, not a mutex, because an exclusive
//! transaction may last for many calls and change threads.
//!
//! Invariants
//! - MERGE-1 A holder has a [`MergeRight`], which gives the right back whatever ends the work. A
//!   transaction that goes on after the call keeps the right ([`MergeRight::keep`]), and its
//!   connection gives it back at its end (`Conn::abandon` after a panic).
//! - MERGE-2 A panic with the right held poisons the database before the right is free: nothing may
//!   build on what was half done, and no connection waits for it.
//! - MERGE-3 A wait for a merge may outlast the busy timeout: a program that is alone meets no
//!   merge in stock SQLite, so the merges of its own process must not make it fail. A wait for one
//!   of these that runs outside a transaction, where no code of the application runs, lasts until
//!   it ends. A wait for another process, which may be stopped, or for a transaction that has the
//!   right, which may have reserved it, lasts three seconds at least; a wait for an exclusive
//!   transaction, as long as the timeout.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use crate::database::Database;
use crate::error::{Error, Result};
use crate::ids::SlotIndex;
use crate::sync::futex;
use crate::sync::wait::{Awaited, Patience, TICK, Wait};

/// Nap between two checks of a lock of the base, whose release wakes no waiter.
pub(crate) const BASE_NAP: Duration = Duration::from_millis(10);

/// The right to merge of one slot. Dropping it gives the right back (MERGE-1).
#[must_use = "the right is given back at once"]
pub(crate) struct MergeRight<'a> {
    pub(crate) db: &'a Database,
    slot: SlotIndex,
}

impl MergeRight<'_> {
    /// Leaves the right with the slot until `disown_merge`.
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }

    /// Leaves the right to be settled: what was done to the base must be settled before the base is
    /// written to again.
    pub(crate) fn leave_behind(&self) {
        self.db.leave_behind(self.slot);
    }
}

impl Drop for MergeRight<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.db.poison();
        }
        self.db.disown_merge(self.slot);
    }
}

impl Database {
    /// Takes the right to merge for `slot` if it is free or `slot` has it already.
    pub(crate) fn try_own_merge(&self, slot: SlotIndex) -> Result<Option<MergeRight<'_>>> {
        let _guard = self.lock_commit()?;
        let owner = &self.control().merge_owner;
        let holder = owner.load(Relaxed);
        if holder != 0 && holder != slot.word() {
            return Ok(None);
        }
        if holder == 0 {
            // PACE-2 in upkeep/pressure.rs.
            self.control().work_due_ns.store(0, Relaxed);
        }
        owner.store(slot.word(), Relaxed);
        Ok(Some(MergeRight { db: self, slot }))
    }

    /// Takes the right to merge, waiting for a running merge as `wait` allows.
    pub(crate) fn own_merge(&self, slot: SlotIndex, wait: &mut Wait<'_>) -> Result<MergeRight<'_>> {
        self.own_merge_patiently(slot, &mut Patience::new(wait))
    }

    /// As [`Database::own_merge`], in a wait that has begun.
    pub(crate) fn own_merge_patiently(
        &self,
        slot: SlotIndex,
        patience: &mut Patience<'_, '_>,
    ) -> Result<MergeRight<'_>> {
        let owned = self.own_merge_while(slot, patience);
        patience.awaits(Awaited::Others);
        self.slots.at(slot).waiting_for.store(0, Relaxed);
        owned
    }

    /// Returns what must end before the holder gives the right back.
    pub(crate) fn awaited_of(&self, holder: u32) -> Awaited {
        match SlotIndex::from_word(holder) {
            Some(slot) if self.is_exclusive(slot) => Awaited::Others,
            Some(slot) if self.slots.is_mine_at_rest(slot) => Awaited::OwnWork,
            _ => Awaited::Work,
        }
    }

    fn own_merge_while(
        &self,
        slot: SlotIndex,
        patience: &mut Patience<'_, '_>,
    ) -> Result<MergeRight<'_>> {
        let word = &self.control().merge_word;
        let mut over = false;
        loop {
            // Acquire pairs with the Release in `wake_merge_waiters`: no wake is lost between this
            // load and the sleep.
            let seen = word.load(Acquire);
            if let Some(right) = self.try_own_merge(slot)? {
                return Ok(right);
            }
            let holder = self.control().merge_owner.load(Relaxed);
            if over {
                self.control().counters.busy.fetch_add(1, Relaxed);
                return Err(self.unsettled_or(Error::Busy(format!(
                    "{} is merging or runs an exclusive transaction; retry or raise the busy timeout",
                    self.describe_owner(holder)
                ))));
            }
            self.slots.at(slot).waiting_for.store(self.slots.who_owns(holder).pid, Relaxed);
            patience.awaits(self.awaited_of(holder));
            patience.sleep(word, seen, TICK)?;
            self.reap_dead()?;
            over = patience.is_over();
        }
    }

    /// Does `work`, and again while another connection has a lock of the base that it needs, for as
    /// long as `patience` lasts. `work` holds nothing when it returns.
    pub(crate) fn while_base_is_busy<T>(
        &self,
        patience: &mut Patience<'_, '_>,
        mut work: impl FnMut(&mut Patience<'_, '_>) -> Result<T>,
    ) -> Result<T> {
        let word = &self.control().merge_word;
        loop {
            match work(patience) {
                Err(e) if matches!(e, Error::Base { .. }) && e.is_busy() => {
                    if patience.is_over() {
                        return Err(e.after_waiting(patience.elapsed()));
                    }
                    // Read only now: giving back what `work` held changes the word, and an older
                    // value would end the sleep at once.
                    let seen = word.load(Acquire);
                    patience.sleep(word, seen, BASE_NAP)?;
                }
                other => return other,
            }
        }
    }

    pub(crate) fn disown_merge(&self, slot: SlotIndex) {
        let owner = &self.control().merge_owner;
        // In this order: if the slot no longer owes the estate, the word is the one that the
        // payment stored.
        if !self.slots.at(slot).owes_unsettled_work() && owner.load(Relaxed) == slot.word() {
            // Release: what the merge did is visible to the next owner.
            owner.store(0, Release);
            self.wake_merge_waiters();
        }
    }

    /// Wakes the connections that wait for a merge to end or for an arena.
    pub(crate) fn wake_merge_waiters(&self) {
        // Release pairs with the Acquire of the waiters.
        self.control().merge_word.fetch_add(1, Release);
        futex::wake_all(&self.control().merge_word);
    }
}
