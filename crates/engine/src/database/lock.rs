//! The commit mutex (COMMIT-1), the wait for it, and the repair of what its dead owner left
//! (COMMIT-2).
//!
//! The owner of the mutex finds every frame before `log_end` in the memtables, each generation in
//! one of its states, and nothing owed (below). A dead owner may have left
//! - a frame in the ring that `log_end` does not cover: it never happened;
//! - a frame that `log_end` covers but whose nodes are missing: they are inserted now;
//! - a switch of generations half done: it is finished or undone;
//! - gaps (gaps/) that do not fit what it has committed: all are forgotten.
//!
//! Once others use more of shared memory than a process has mapped, the process maps the rest when
//! it takes the mutex (MAPPING-3).
//!
//! An owner that lives and does not run, such as a stopped process, cannot be helped: it may
//! continue at any time in the middle of a change. So a waiter gives up: when nothing has moved for
//! [`caller::AT_LEAST`], but not before its busy timeout; when its busy handler, called while
//! nothing moves, returns false; and when it is interrupted. While commits go on no waiter gives
//! up, however long it takes. What must be given back is owed.
//!
//! # What is owed
//!
//! What a living connection could not give back, because the owner of the commit mutex does not
//! run.
//!
//! Giving back cannot fail and must not hang: it is part of a ROLLBACK, of the end of a wait, of a
//! close. So the connection waits for the mutex for a moment only; then it records in its slot what
//! it owes, and goes on. The next owner of the mutex does what is owed before anything else.
//!
//! | `TxnSlot.owes` | the next owner of the commit mutex |
//! |---|---|
//! | 0 | has nothing to do |
//! | `WITHDRAWAL` | takes the slot out of the queue; passes the right on if the slot has it |
//! | `MERGE`, `EXCLUSIVE` | before that, leaves both rights to be settled (orphans.rs) |
//! | `SLOT`, with one of these | frees the slot at the end |
//!
//! Invariants
//! - OWED-1 A slot's connection sets its bits without the mutex. The owner of the mutex clears them
//!   after it has done what they say, which may be done twice.
//! - OWED-2 `Control.owed` is set after the bits and cleared before they are read. If the owner
//!   dies between clearing it and reading all slots, the next owner reads them.
//! - OWED-3 A connection whose slot owes something has no place in the queue and, as far as it is
//!   concerned, no right: to get either it needs the mutex, and with the mutex it owes nothing any
//!   more. A slot that owes is not free.
//! - OWED-4 A connection that waits for a right reads `owed` every TICK, so what is owed is done
//!   soon after the mutex is free.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use super::slots::Slots;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::fault;
use crate::ids::{Lsn, SlotIndex};
use crate::log::{Frame, OpKind, damaged_ring};
use crate::memtable::EntryKind;
use crate::shm::layout::{ARENAS, TxnSlot, owes};
use crate::shm::process;
use crate::sync::caller;
use crate::sync::mutex::{Guard, Identity};
use crate::sync::wait::{self, GaveUpWaiting};

/// How often a waiter checks whether anything has moved.
const LOOK: Duration = Duration::from_millis(100);

/// Poisons the database on a panic. It is dropped before the commit mutex is unlocked: a panic
/// under the mutex must not look like a finished commit.
pub(crate) struct PoisonOnPanic<'a>(pub(crate) &'a Database);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison();
        }
    }
}

impl Database {
    /// Takes the commit mutex.
    ///
    /// # Errors
    /// Those of a poisoned database (COMMIT-4); Busy and Interrupted if its owner does not run;
    /// NoMemory (MAPPING-3).
    pub(crate) fn lock_commit(&self) -> Result<Guard<'_>> {
        let guard = self.lock_commit_even_if_poisoned()?;
        self.check_poison()?;
        Ok(guard)
    }

    /// Takes the commit mutex to give something back. `None` if its owner does not run, or what it
    /// guards cannot be mapped: then the caller owes it.
    pub(crate) fn lock_commit_to_give_back(&self) -> Option<Guard<'_>> {
        loop {
            let end = Some(Instant::now() + caller::A_MOMENT);
            let locked = self.control().commit_mutex.lock_until(self.party(), end, &mut || false);
            let reached = self.reach_used(locked.ok()?).ok()?;
            // A failed repair has poisoned the database: the next turn of the loop repairs nothing.
            if let Ok(guard) = self.repair_and_collect(reached) {
                return Some(guard);
            }
        }
    }

    /// Takes the commit mutex if it is free and the database is well. Does not wait.
    pub(crate) fn try_lock_commit(&self) -> Option<Guard<'_>> {
        let guard = self.control().commit_mutex.try_lock(self.party())?;
        let guard = self.repair_and_collect(self.reach_used(guard).ok()?).ok()?;
        self.check_poison().ok()?;
        Some(guard)
    }

    /// As [`Database::try_lock_commit`], also if the owner is dead. `None` while it lives, running or
    /// stopped.
    pub(crate) fn try_lock_commit_of_dead(&self) -> Option<Guard<'_>> {
        let guard = self.control().commit_mutex.try_lock_from_dead(self.party())?;
        self.repair_and_collect(self.reach_used(guard).ok()?).ok()
    }

    /// As [`Database::lock_commit`], also of a poisoned database.
    pub(crate) fn lock_commit_even_if_poisoned(&self) -> Result<Guard<'_>> {
        let guard = match self.control().commit_mutex.try_lock(self.party()) {
            Some(guard) => guard,
            None => self.wait_for_commit_mutex()?,
        };
        self.repair_and_collect(self.reach_used(guard)?)
    }

    /// MAPPING-3: maps what the session uses, before any of it is read.
    fn reach_used<'a>(&self, guard: Guard<'a>) -> Result<Guard<'a>> {
        match self.region().reach_used() {
            Ok(()) => Ok(guard),
            Err(e) => {
                if guard.previous_owner_died {
                    guard.leave_to_repair();
                }
                Err(e)
            }
        }
    }

    fn wait_for_commit_mutex(&self) -> Result<Guard<'_>> {
        let c = self.control();
        let mutex = &c.commit_mutex;
        let look = || (mutex.holder(), self.log_shared().log_end(), c.visible_ts.load(Relaxed));
        wait::lock_while_progressing(mutex, self.party(), LOOK, look).map_err(|e| match e {
            GaveUpWaiting::Interrupted => Error::Interrupted,
            GaveUpWaiting::Stalled { seen: (holder, ..), waited } => {
                c.counters.busy.fetch_add(1, Relaxed);
                self.stalled_owner_error(holder, "the commit mutex", waited)
            }
        })
    }

    /// The error of a waiter for `what`, which `holder` holds, after nothing has moved for
    /// `waited`.
    pub(crate) fn stalled_owner_error(
        &self,
        holder: Option<Identity>,
        what: &str,
        waited: Duration,
    ) -> Error {
        let who = holder.map_or_else(process::Who::default, |holder| {
            process::who(self.region(), holder.index(), self.pid_namespace())
        });
        self.note_stall(who, what, waited);
        Error::Busy(format!(
            "process {who} holds {what} and has made no progress for {} ms: it is stopped or gets \
             no processor time; resume or end it, then retry",
            waited.as_millis()
        ))
    }

    /// Does what is owed, and repairs what the last owner left if it died.
    fn repair_and_collect<'a>(&'a self, guard: Guard<'a>) -> Result<Guard<'a>> {
        self.do_what_is_owed(&guard);
        let c = self.control();
        // The positions also show that an owner has left without applying what it had published
        // (COMMIT-2).
        let half_done = c.applied_lsn.load(Relaxed) != self.log_shared().log_end().get();
        // A poisoned database is not repaired; rights are still given back to it, and nothing else
        // is done.
        if (guard.previous_owner_died || half_done) && !self.log_shared().is_in_doubt() {
            self.repair_after_death(&guard)?;
        }
        Ok(guard)
    }

    fn repair_after_death(&self, guard: &Guard<'_>) -> Result<()> {
        // Before the redo, which may insert a put that was not cut out of the gaps (GAP-3).
        self.gaps().forget();
        self.generations.repair_generations();
        let repaired = self.redo(guard);
        if repaired.is_err() {
            // No process may use half-repaired state: recovery from disk is the way out.
            self.log_shared().set_broken();
        }
        repaired
    }

    /// (M) Inserts the nodes of frames that are committed but not applied (COMMIT-2).
    fn redo(&self, guard: &Guard<'_>) -> Result<()> {
        let c = self.control();
        let from = Lsn::new(c.applied_lsn.load(Relaxed));
        let to = self.log_shared().log_end();
        if from >= to {
            return Ok(());
        }
        // It is unknown whether the author was going to wait for the disk (VISIBLE-4). Release:
        // before `visible_ts`.
        c.full_end.fetch_max(to.get(), Release);
        let mut failed = None;
        let read = self.ring().for_each_frame(guard, from, to, |frame| {
            if failed.is_none() {
                failed = self.apply_frame(frame).err();
                if frame.prepared().is_none() {
                    // PREP-3: a prepared frame makes nothing visible.
                    c.visible_ts.fetch_max(frame.commit_ts.get(), Release);
                }
            }
        });
        read.map_err(|(at, why)| damaged_ring(at, why))?;
        match failed {
            Some(e) => Err(e),
            None => {
                self.log_shared().note_newest_ts(c.visible_ts.load(Relaxed));
                // Release: after everything that was redone, in program order too, since this owner
                // may die here.
                if !self.region().layout().has_unresolved() {
                    c.prepared_end.store(0, Release);
                }
                c.applied_lsn.store(to.get(), Release);
                Ok(())
            }
        }
    }

    fn apply_frame(&self, frame: &Frame<'_>) -> Result<()> {
        let gens = &self.control().generations;
        let arena = (0..ARENAS)
            .find(|&i| gens[i].number.load(Acquire) == frame.generation.get())
            .ok_or_else(|| {
            Error::Corrupt(format!("no memtable for generation {}", frame.generation))
        })?;
        let memtable = self.generations.memtable_in_use(arena);
        for op in frame.ops() {
            let kind =
                if op.kind == OpKind::Tombstone { EntryKind::Tombstone } else { EntryKind::Put };
            memtable.insert(op.root, op.key, frame.commit_ts, kind, op.rec).map_err(|_| {
                Error::Corrupt("a committed transaction does not fit its memtable".into())
            })?;
            if fault::is_planted("dead.half_redone") {
                break;
            }
        }
        if frame.prepared().is_none() {
            gens[arena].max_ts.fetch_max(frame.commit_ts.get(), Release);
        }
        gens[arena].log_end.fetch_max(frame.end().get(), Relaxed);
        Ok(())
    }

    /// (M) Remembers the author of a commit for conflict reports.
    pub(crate) fn remember_author(&self, ts: u64, txn: u64) {
        let Some(entry) = self.region().recent(ts) else { return };
        entry.ts.store(0, Relaxed);
        entry.txn.store(txn, Relaxed);
        entry.pid.store(self.pid(), Relaxed);
        entry.namespace.store(self.pid_namespace() as u32, Relaxed);
        // Release pairs with the Acquire of the process that reports a conflict with `ts`.
        entry.ts.store(ts, Release);
    }
}

impl TxnSlot {
    /// True if the slot owes both rights, as an estate to be settled: they are not free.
    pub(crate) fn owes_unsettled_work(&self) -> bool {
        // Acquire pairs with the AcqRel in `do_what_is_owed`: if nothing is owed, the owner words
        // are read as they are now.
        self.owes.load(Acquire) & (owes::MERGE | owes::EXCLUSIVE) != 0
    }
}

impl Slots {
    /// Records what `slot` could not give back.
    pub(crate) fn owe(&self, slot: SlotIndex, what: u32) {
        self.at(slot).owes.fetch_or(what, AcqRel);
        // Release: the bits are there (OWED-2).
        self.region.control().owed.store(1, Release);
    }

    /// If `slot` owes something, records that it is to be freed, and returns true. Else the caller
    /// may free it now.
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
    /// Does what is owed, if the commit mutex is free, for a connection that waits for a right
    /// (OWED-4).
    pub(crate) fn collect(&self) {
        if self.control().owed.load(Relaxed) != 0 {
            drop(self.lock_commit_to_give_back());
        }
    }

    /// (M) Does what living connections owe. Wakes no waiter: one that was called looks within a
    /// TICK.
    pub(crate) fn do_what_is_owed(&self, guard: &Guard<'_>) {
        let c = self.control();
        // Relaxed: what is recorded now is for the next owner.
        if c.owed.load(Relaxed) == 0 && !guard.previous_owner_died {
            return;
        }
        // AcqRel: the bits are read after this (OWED-2).
        c.owed.swap(0, AcqRel);
        for (i, slot) in self.slots.in_use() {
            let mut bits = slot.owes.load(Acquire);
            while bits != 0 {
                self.give_back_for(i, bits);
                // Release: done. After a death in between it is done again (OWED-1).
                match slot.owes.compare_exchange(bits, 0, AcqRel, Acquire) {
                    Ok(_) if bits & owes::SLOT != 0 => {
                        // Only now: a free slot owes nothing.
                        slot.process.store(0, Release);
                        break;
                    }
                    Ok(_) => break,
                    Err(more) => bits = more,
                }
            }
        }
    }

    /// (M) Does what the dead connection of `slot` owed, whether or not it lived to set `owed`
    /// (OWED-2).
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
            self.right.pass(false)
        } else {
            self.right.call_first()
        };
    }
}
