//! The right to merge or to be exclusive: an owner word, not a mutex, because an
//! exclusive transaction may last for many calls and change threads.
//!
//! Invariants
//! - MERGE-1 Whoever takes it has a [`MergeRight`], which gives it back whatever ends the work. A transaction that goes on after
//!   the call keeps it instead ([`MergeRight::keep`]), and its connection gives it back at its end (`Conn::abandon` after a
//!   panic).
//! - MERGE-2 A panic with the right held poisons the database before the right is free: what was half done nobody may
//!   build on, and nobody waits for it.
//! - MERGE-3 A merge is waited for whatever the busy timeout: a program that is alone, and so meets none in stock SQLite, does not fail for the
//!   merges of its own process. For those outside of transactions, in which no code of the application's runs, it waits until they end; for
//!   others, who may be stopped, and for whoever has the right in a transaction, which may have reserved it, three seconds at least; for
//!   exclusive transactions as long as its timeout says.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use crate::database::Database;
use crate::error::{Error, Result};
use crate::ids::SlotIndex;
use crate::sync::futex;
use crate::sync::wait::{Awaited, Patience, TICK, Wait};

/// Between two looks at a lock of the base, which nobody gives a sign of giving back.
pub(crate) const BASE_NAP: Duration = Duration::from_millis(10);

/// The right to merge of one slot, given back when this is dropped (MERGE-1).
#[must_use = "the right is given back at once"]
pub(crate) struct MergeRight<'a> {
    pub(crate) db: &'a Database,
    slot: SlotIndex,
}

impl MergeRight<'_> {
    /// The slot has the right until `disown_merge`.
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }

    /// Somebody has to settle what this has done to the base, before it is written to again.
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
    /// Takes the right to merge if it is free, or has it already.
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

    /// As [`Database::own_merge`], for a wait that has begun.
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

    /// What has to end before whoever has the right gives it back.
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
            // Acquire pairs with the Release in `wake_merge_waiters`: no wake is lost between the look and the wait.
            let seen = word.load(Acquire);
            if let Some(right) = self.try_own_merge(slot)? {
                return Ok(right);
            }
            let holder = self.control().merge_owner.load(Relaxed);
            if over {
                self.control().counters.busy.fetch_add(1, Relaxed);
                return Err(self.unsettled_or(Error::Busy(format!(
                    "{} is merging or runs an exclusive transaction; retry or raise the busy timeout",
                    self.say_owner(holder)
                ))));
            }
            self.slots.at(slot).waiting_for.store(self.slots.who_owns(holder).pid, Relaxed);
            patience.awaits(self.awaited_of(holder));
            patience.sleep(word, seen, TICK)?;
            self.reap_dead()?;
            over = patience.is_over();
        }
    }

    /// Does `work`, and again while somebody has a lock of the base that it needs, as long as `patience` lasts. `work` holds
    /// nothing when it returns.
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
                    // What `work` has given back has changed the word: looked at before that, it would let nobody sleep.
                    let seen = word.load(Acquire);
                    patience.sleep(word, seen, BASE_NAP)?;
                }
                other => return other,
            }
        }
    }

    /// Gives the right to merge back.
    pub(crate) fn disown_merge(&self, slot: SlotIndex) {
        let owner = &self.control().merge_owner;
        // In this order: who finds the estate left finds the other word.
        if !self.slots.at(slot).owes_an_estate() && owner.load(Relaxed) == slot.word() {
            // Release: what the merge did is visible to the next owner.
            owner.store(0, Release);
            self.wake_merge_waiters();
        }
    }

    /// Wakes those who wait for a merge to end or for an arena.
    pub(crate) fn wake_merge_waiters(&self) {
        // Release pairs with the Acquire of the waiters.
        self.control().merge_word.fetch_add(1, Release);
        futex::wake_all(&self.control().merge_word);
    }
}
