//! What a dead holder of the right to merge leaves behind: a merge or an exclusive transaction that may be in the base or not.
//!
//! Only the base tells, and looking there, or burying what must never count, may fail: another process has a lock, the disk is
//! full, a process has no descriptor left. None of that says anything about the database. So what is left keeps the rights
//! that belong to it until somebody has settled it, and whoever needs one of these rights tries.
//!
//! | `merge_owner` | `right_owner` | meaning |
//! |---|---|---|
//! | a dead slot | that slot, or not | not looked at yet; the next reaper turns it into one of the next two lines |
//! | `UNSETTLED_MERGE` | `UNSETTLED`, or not | a merge, to be settled |
//! | `UNSETTLED_EXCLUSIVE` | `UNSETTLED` | an exclusive transaction, to be settled; if one is prepared, by the table in prepared_pages.rs |
//! | a living slot | that slot, or not | its owner settles it, or has made it |
//! | any | `UNSETTLED_PREPARED` | a prepared transaction, to be resolved (prepared.rs) |
//!
//! Invariants
//! - N1 The right to merge changes last when it is left behind and first when it is inherited: whoever dies in between leaves a state
//!   of the table, with the kind of what is left in the word or in the state of the slot.
//! - N2 While `UNSETTLED` stands in `right_owner` nobody commits, and while a word of `merge_owner` says unsettled nobody
//!   writes to the base but who settles. So doing it again after a failure meets the same base.
//! - N3 Readers need none of it and go on, but for what is known to be committed, or prepared and about to be resolved (K9, K10 in prepared.rs).
//! - N4 A failure stops the log only if nobody can tell what is on disk: a failed sync.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::prepared_pages::Known;
use crate::base::BaseHeader;
use crate::database::Database;
use crate::database::changed::Changed;
use crate::error::{Error, Result, leaves_doubt};
use crate::ids::SlotIndex;
use crate::session;
use crate::shm::layout::{fence, owes, owner, txn_state};

/// A slot of this process that settles. Whatever ends it, what is not settled is left for the next.
struct Settler<'a> {
    db: &'a Database,
    slot: SlotIndex,
}

impl Drop for Settler<'_> {
    fn drop(&mut self) {
        self.db.leave_behind(self.slot);
        self.db.slots.free(self.slot);
    }
}

impl Database {
    /// Settles what a dead process left, if there is something and nobody else is at it.
    ///
    /// # Errors
    /// What kept it from being settled; the next may try.
    pub(crate) fn settle_estate(&self) -> Result<()> {
        // The one says nothing about the other.
        let prepared = self.settle_prepared();
        self.settle_base_estate().and(prepared)
    }

    fn settle_base_estate(&self) -> Result<()> {
        let word = &self.control().merge_owner;
        // Relaxed: looked at again under the commit mutex.
        if !owner::is_unsettled(word.load(Relaxed)) {
            return Ok(());
        }
        let settler = Settler { db: self, slot: self.slots.claim()? };
        if !self.inherit(settler.slot)? {
            return Ok(());
        }
        let settled = self.settle_dead_merge(settler.slot);
        if settled.as_ref().is_err_and(leaves_doubt) {
            self.poison();
        }
        if settled.is_ok() || self.log_shared().is_in_doubt() {
            self.disown_merge(settler.slot);
            self.release_right(settler.slot);
        }
        settled
    }

    /// Makes `mine` the owner of what is to be settled; false if there is nothing any more.
    fn inherit(&self, mine: SlotIndex) -> Result<bool> {
        let _guard = self.lock_commit_even_if_poisoned()?;
        let c = self.control();
        let word = c.merge_owner.load(Relaxed);
        if !owner::is_unsettled(word) {
            return Ok(false);
        }
        let exclusive = word == owner::UNSETTLED_EXCLUSIVE;
        let state = if exclusive { txn_state::EXCLUSIVE } else { txn_state::IDLE };
        // The state first: with the word it says what is left, should this process die here (N1).
        self.slots.at(mine).state.store(state, Relaxed);
        c.merge_owner.store(mine.word(), Relaxed);
        if c.right_owner.load(Relaxed) == owner::UNSETTLED {
            c.right_owner.store(mine.word(), Relaxed);
        }
        Ok(true)
    }

    /// Leaves the rights of `slot` to whoever settles what it was doing; nothing if it does not hold the right to merge.
    pub(crate) fn leave_behind(&self, slot: SlotIndex) {
        if self.control().merge_owner.load(Relaxed) != slot.word() {
            return;
        }
        let exclusive = self.is_exclusive(slot);
        match self.lock_commit_to_give_back() {
            Some(_guard) => _ = self.leave_behind_as(slot, exclusive),
            None => self.slots.owe(slot, if exclusive { owes::EXCLUSIVE } else { owes::MERGE }),
        }
    }

    /// An exclusive transaction of somebody who lives has the right to merge.
    pub(crate) fn has_exclusive(&self) -> bool {
        let word = self.control().merge_owner.load(Acquire);
        SlotIndex::from_word(word).is_some_and(|slot| self.is_exclusive(slot))
    }

    pub(crate) fn is_exclusive(&self, slot: SlotIndex) -> bool {
        self.slots.at(slot).state.load(Relaxed) == txn_state::EXCLUSIVE
    }

    /// (M) An exclusive transaction is at work, or has left something to settle (G4).
    pub(crate) fn is_base_being_changed(&self) -> bool {
        let holder = self.control().merge_owner.load(Relaxed);
        let is_exclusive = |index| self.slots.at(index).state.load(Relaxed) == txn_state::EXCLUSIVE;
        owner::is_unsettled(holder) || SlotIndex::from_word(holder).is_some_and(is_exclusive)
    }

    /// (M) As [`Database::leave_behind`]; true if there was something.
    pub(crate) fn leave_behind_locked(&self, slot: SlotIndex) -> bool {
        self.leave_behind_as(slot, self.is_exclusive(slot))
    }

    /// (M) The same, of a merge or an exclusive transaction.
    pub(crate) fn leave_behind_as(&self, slot: SlotIndex, exclusive: bool) -> bool {
        let c = self.control();
        if c.merge_owner.load(Relaxed) != slot.word() {
            return false;
        }
        if c.right_owner.load(Relaxed) == slot.word() {
            c.right_owner.store(owner::UNSETTLED, Relaxed);
        }
        let word = if exclusive { owner::UNSETTLED_EXCLUSIVE } else { owner::UNSETTLED_MERGE };
        // Last (N1).
        c.merge_owner.store(word, Relaxed);
        true
    }

    /// The answer to somebody who has waited for a right in vain: why what a dead process left cannot be settled, or else `busy`.
    pub(crate) fn unsettled_or(&self, busy: Error) -> Error {
        match self.settle_estate() {
            Err(e) if self.is_withheld() && !e.is_busy() => self.say_withheld(Some(e)),
            Err(e) if !e.is_busy() => e,
            _ => busy,
        }
    }

    /// Who holds the right in an owner word, for error texts.
    pub(crate) fn say_owner(&self, word: u32) -> String {
        if owner::is_unsettled(word) {
            return "a process that died and is being cleaned up after".into();
        }
        format!("process {}", self.slots.who_owns(word))
    }

    /// The header of the base tells what became of a merge or an exclusive transaction.
    fn settle_dead_merge(&self, mine: SlotIndex) -> Result<()> {
        // The dead process's locks on the base are gone with it, so the header is settled.
        let header = self.with_base(|base| base.header())?;
        let active = self.generations.active_generation().number.load(Acquire);
        let exclusive = self.is_exclusive(mine);
        if exclusive && self.region().layout().has_unresolved() {
            return self.settle_prepared_pages(Known::Nothing).map(drop);
        }
        if exclusive && header.generation.get() < active {
            self.bury_unfinished_commit()?;
        } else {
            // A fence that its author did not finish to raise, too.
            self.with_base(session::bury_unseen)?;
            if header.generation.get() > self.control().base_generation.load(Acquire) {
                // It may have been made without a sync, and is not noted (B1, B5 in log/before.rs).
                self.log_shared().note_base_commit(header.generation);
            }
        }
        let _guard = self.lock_commit_even_if_poisoned()?;
        let exclusive = exclusive && header.generation.get() == active;
        self.generations.settle_base(&header, exclusive.then_some(&Changed::ANYTHING));
        // A fence that the dead process did not finish is finished by whoever writes next.
        self.note_rest(&header);
        Ok(())
    }

    /// (M) Notes that the base is at rest although whoever unfenced it did not live to say so here.
    pub(crate) fn note_rest(&self, header: &BaseHeader) {
        if !header.fenced {
            // Relaxed: a session at rest promises nothing.
            self.control().fence.store(fence::RESTING, Relaxed);
        }
    }

    /// Makes sure that an exclusive transaction which did not commit never will.
    ///
    /// SQLite writes all frames of a commit to the WAL and syncs them before it says in the WAL-index that they
    /// count. Killed, or failed, in between it leaves a complete commit that nobody sees, until the WAL-index is
    /// rebuilt and takes it for real, over whatever was committed since. A small transaction of our own goes over the same
    /// frames. The caller has the right to merge, and leaves it behind if this fails: until it is done nobody commits,
    /// and a commit that comes back then is one that was made.
    pub(crate) fn bury_unfinished_commit(&self) -> Result<()> {
        self.with_base(session::bury)
    }
}
