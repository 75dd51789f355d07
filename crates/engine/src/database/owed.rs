//! What a living connection could not give back, because the owner of the commit mutex does not run.
//!
//! Giving back cannot fail, and nobody may hang in it: a ROLLBACK, a wait that is over, a close. So it waits for the mutex for a moment only; then
//! the connection notes in its slot what it owes, and goes on. The next owner of the mutex does it before anything else.
//!
//! | `TxnSlot.owes` | the next owner of the commit mutex |
//! |---|---|
//! | 0 | has nothing to do |
//! | `WITHDRAWAL` | takes the slot out of the queue, and passes the right on if the slot has it |
//! | `MERGE`, `EXCLUSIVE` | before that leaves both rights to whoever settles what was being done with them (estate.rs) |
//! | `SLOT`, with one of these | frees the slot at the end |
//!
//! Invariants
//! - Z1 A slot's connection sets its bits, without the mutex; the owner of the mutex clears them after it has done what they say,
//!   which may be done twice.
//! - Z2 `Control.owed` is set after the bits and cleared before they are looked at. If who has cleared it dies before it has looked
//!   at all slots, the next owner of the mutex does.
//! - Z3 While its slot owes something a connection has neither a place in the queue nor, as far as it is concerned, a right: for
//!   either it needs the mutex, and before it gets that nothing is owed any more. A slot that owes is not free.
//! - Z4 Whoever waits for a right looks at `owed` every TICK, so that what is owed is done soon after the mutex is free.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::slots::Slots;
use crate::database::Database;
use crate::ids::SlotIndex;
use crate::shm::layout::{TxnSlot, owes};
use crate::sync::mutex::Guard;

impl TxnSlot {
    /// It owes both rights to whoever settles: they are not free.
    pub(crate) fn owes_an_estate(&self) -> bool {
        // Acquire pairs with the AcqRel in `do_what_is_owed`: who finds it paid finds whose the rights are now.
        self.owes.load(Acquire) & (owes::MERGE | owes::EXCLUSIVE) != 0
    }
}

impl Slots {
    /// Notes what `slot` could not give back.
    pub(crate) fn owe(&self, slot: SlotIndex, what: u32) {
        self.at(slot).owes.fetch_or(what, AcqRel);
        // Release: the bits are there (Z2).
        self.region.control().owed.store(1, Release);
    }

    /// Notes that `slot` is to be freed, if it owes something; false if it does not, and may be freed now.
    pub(crate) fn owe_slot(&self, slot: SlotIndex) -> bool {
        let add = |bits| (bits != 0).then_some(bits | owes::SLOT);
        let owes_something = self.at(slot).owes.fetch_update(AcqRel, Acquire, add).is_ok();
        if owes_something {
            self.region.control().owed.store(1, Release);
        }
        owes_something
    }
}

impl Database {
    /// Does what is owed, if the commit mutex is free; for those who wait for a right (Z4).
    pub(crate) fn collect(&self) {
        if self.control().owed.load(Relaxed) != 0 {
            drop(self.lock_commit_to_give_back());
        }
    }

    /// (M) Does what living connections owe. Nobody is woken: who has got the right looks within a TICK.
    pub(crate) fn do_what_is_owed(&self, guard: &Guard<'_>) {
        let c = self.control();
        // Relaxed: whoever notes something now is looked after by the next.
        if c.owed.load(Relaxed) == 0 && !guard.previous_owner_died {
            return;
        }
        // AcqRel: the bits are looked at after this (Z2).
        c.owed.swap(0, AcqRel);
        for (i, slot) in self.slots.in_use() {
            let mut bits = slot.owes.load(Acquire);
            while bits != 0 {
                self.give_back_for(i, bits);
                // Release: done. A death in between does it again (Z1).
                match slot.owes.compare_exchange(bits, 0, AcqRel, Acquire) {
                    Ok(_) if bits & owes::SLOT != 0 => {
                        // Only now: whoever claims it owes nothing.
                        slot.process.store(0, Release);
                        break;
                    }
                    Ok(_) => break,
                    Err(more) => bits = more,
                }
            }
        }
    }

    /// (M) What the dead connection of `slot` had noted, whether it lived to say so or not (Z2).
    pub(crate) fn give_back_for_dead(&self, slot: SlotIndex) {
        let word = &self.slots.at(slot).owes;
        let bits = word.load(Acquire);
        if bits != 0 {
            self.give_back_for(slot, bits);
            word.store(0, Release);
        }
    }

    /// (M)
    fn give_back_for(&self, slot: SlotIndex, bits: u32) {
        if bits & (owes::MERGE | owes::EXCLUSIVE) != 0 {
            self.leave_behind_as(slot, bits & owes::EXCLUSIVE != 0);
        }
        self.right.drop_from_queue(slot);
        let _ = if self.control().right_owner.load(Relaxed) == slot.word() {
            self.right.pass()
        } else {
            self.right.call_first()
        };
    }
}
