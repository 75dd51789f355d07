//! Slots of attached connections, and cleaning up after dead processes.
//!
//! Invariants
//! - SLOT-1 A slot belongs to the process whose index + 1 is in `process`. Only that process
//!   changes the slot, or its reaper once it is dead.
//! - SLOT-2 Whatever a slot can hold (the right, the right to merge, a place in the queue, pins) is
//!   given back before the slot is free.
//! - SLOT-3 A dead holder of the right to merge may have committed to the base or not: only the
//!   base's header tells. Until that is read no other connection gets the right (orphans.rs).
//! - SLOT-4 Before anything of a dead process is given back, what it has committed is settled
//!   (VISIBLE-3 in visibility.rs).

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::happenings::Held;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::ids::{ProcessIndex, SlotIndex, TXN_SLOTS};
use crate::shm::layout::{NO_PIN, TxnSlot, owner, txn_state};
use crate::shm::process::{self, Who};
use crate::shm::region::Region;
use crate::sync::caller;
use crate::sync::clock::unix_ms;

impl TxnSlot {
    /// The state of this slot without the writer's right.
    pub(crate) fn resting_state(&self) -> u32 {
        if self.pin_low.load(Relaxed) == NO_PIN { txn_state::IDLE } else { txn_state::READING }
    }

    pub(crate) fn clear(&self) {
        self.state.store(txn_state::IDLE, Relaxed);
        self.pin_high.store(NO_PIN, Relaxed);
        self.snapshot.store(u64::MAX, Relaxed);
        self.txn.store(0, Relaxed);
        self.waiting_for.store(0, Relaxed);
        self.granted.store(0, Relaxed);
        self.author.store(0, Relaxed);
        self.early_until_ns.store(0, Relaxed);
        // Release: a process that sees the pin gone knows that nothing uses the memory now.
        self.pin_low.store(NO_PIN, Release);
    }
}

/// The slots of all connections, as this process sees them.
pub(crate) struct Slots {
    pub(super) region: Arc<Region>,
    process: ProcessIndex,
    pid_namespace: u64,
}

impl Slots {
    pub(crate) fn new(region: Arc<Region>, process: ProcessIndex, pid_namespace: u64) -> Slots {
        Slots { region, process, pid_namespace }
    }

    pub(crate) fn at(&self, index: SlotIndex) -> &TxnSlot {
        &self.region.layout().slots[index.0 as usize]
    }

    pub(crate) fn claim(&self) -> Result<SlotIndex> {
        let mine = self.process.0 + 1;
        let high_water = &self.region.control().slots_high_water;
        for (i, slot) in self.region.layout().slots.iter().enumerate() {
            // Acquire: the process that raised it has allocated what is below.
            if high_water.load(Acquire) <= i as u32 {
                self.region.allocate_slot(i)?;
                // Before the slot is taken: a reaper searches below this mark.
                high_water.fetch_max(i as u32 + 1, AcqRel);
            }
            // The first is not looked at before: to a process that joins a read is a fault that maps
            // sixteen pages, and the write another. AcqRel: the connection that freed the slot has
            // stopped using it (SLOT-2).
            if (i == 0 || slot.process.load(Relaxed) == 0)
                && slot.process.compare_exchange(0, mine, AcqRel, Relaxed).is_ok()
            {
                slot.clear();
                return Ok(SlotIndex(i as u32));
            }
        }
        Err(Error::Full(format!("more than {TXN_SLOTS} connections have the database open")))
    }

    /// As [`Slots::claim`], and counts the connection, which is one of a handle: other processes go
    /// by the count (WALINDEX-1 in shm/read_marks.rs).
    pub(crate) fn claim_counted(&self) -> Result<SlotIndex> {
        let index = self.claim()?;
        process::count_connection(&self.region, self.process, 1);
        Ok(index)
    }

    /// Frees a slot, whose connection no longer holds anything (SLOT-2).
    pub(crate) fn free(&self, index: SlotIndex) {
        let slot = self.at(index);
        slot.clear();
        // What the slot owes is in words that name the slot (OWED-3 in lock.rs).
        if !self.owe_slot(index) {
            slot.process.store(0, Release);
        }
    }

    /// All slots that have ever been in use.
    pub(crate) fn ever_used(&self) -> impl Iterator<Item = (SlotIndex, &TxnSlot)> {
        let n = self.region.control().slots_high_water.load(Acquire) as usize;
        let slots = &self.region.layout().slots[..n.min(TXN_SLOTS)];
        slots.iter().enumerate().map(|(i, s)| (SlotIndex(i as u32), s))
    }

    pub(crate) fn in_use(&self) -> impl Iterator<Item = (SlotIndex, &TxnSlot)> {
        self.ever_used().filter(|(_, s)| s.process.load(Acquire) != 0)
    }

    /// The process behind an owner word, for texts.
    pub(crate) fn who_owns(&self, word: u32) -> Who {
        SlotIndex::from_word(word).map_or_else(Who::default, |i| self.who_has(i))
    }

    /// The process that has a slot, for texts.
    pub(crate) fn who_has(&self, index: SlotIndex) -> Who {
        match self.at(index).process.load(Acquire) {
            0 => Who::default(),
            p => process::who(&self.region, ProcessIndex(p - 1), self.pid_namespace),
        }
    }

    /// True if this process has the slot, and no transaction is in it.
    pub(crate) fn is_mine_at_rest(&self, index: SlotIndex) -> bool {
        let slot = self.at(index);
        // Relaxed: a caller that goes on waiting calls this again.
        slot.process.load(Acquire) == self.process.0 + 1 && slot.txn.load(Relaxed) == 0
    }

    /// False if the process behind an owner word is known to be dead, or has left something
    /// unsettled.
    pub(crate) fn is_owner_alive(&self, word: u32) -> bool {
        if owner::is_unsettled(word) {
            return false;
        }
        let Some(slot) = SlotIndex::from_word(word) else { return true };
        match self.at(slot).process.load(Acquire) {
            0 => true,
            p => process::is_alive(&self.region, self.process, ProcessIndex(p - 1)),
        }
    }

    /// The process of the oldest snapshot and the age of its transaction in milliseconds, for error
    /// texts and status.
    pub(crate) fn oldest_reader(&self) -> Option<(Who, u64)> {
        self.oldest_of(|s| s.pin_low.load(Acquire) != NO_PIN)
    }

    pub(crate) fn oldest_of(&self, is_meant: impl Fn(&TxnSlot) -> bool) -> Option<(Who, u64)> {
        let now = unix_ms();
        self.in_use()
            .filter(|(_, s)| is_meant(s))
            .map(|(i, s)| (self.who_has(i), now.saturating_sub(s.started_ms.load(Relaxed))))
            .max_by_key(|&(_, age)| age)
    }

    /// Names the oldest reader, for error texts; empty if there is none.
    pub(crate) fn say_oldest_reader(&self) -> String {
        say_oldest(self.oldest_reader())
    }

    /// The error of a commit that finds no room because old rows are still being read.
    pub(crate) fn no_room(&self, what: &str) -> Error {
        let who = self.say_oldest_reader();
        Error::Full(format!("{what}{who}; end long transactions and retry"))
    }
}

pub(crate) fn say_oldest(oldest: Option<(Who, u64)>) -> String {
    oldest.map_or_else(String::new, |(pid, age)| {
        format!("; oldest reader: process {pid}, {} s", age / 1000)
    })
}

/// A slot whose connection has ended, or never was. Dropped, by an error or a panic too, it is
/// given back with all that it holds (SLOT-2).
pub(crate) struct BorrowedSlot<'a> {
    db: &'a Database,
    index: SlotIndex,
    is_counted: bool,
}

impl BorrowedSlot<'_> {
    pub(crate) fn index(&self) -> SlotIndex {
        self.index
    }
}

impl Drop for BorrowedSlot<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.db.poison();
        }
        self.db.disown_merge(self.index);
        self.db.release_right(self.index);
        self.db.slots.free(self.index);
        if self.is_counted {
            process::count_connection(self.db.region(), self.db.process(), -1);
        }
    }
}

impl Database {
    /// Claims a slot for the engine's own work.
    pub(crate) fn borrow_slot(&self) -> Result<BorrowedSlot<'_>> {
        self.slots.claim().map(|index| BorrowedSlot { db: self, index, is_counted: false })
    }

    /// Takes over `index`, which a connection has claimed; dropping the result frees it.
    pub(crate) fn give_back_later(&self, index: SlotIndex) -> BorrowedSlot<'_> {
        BorrowedSlot { db: self, index, is_counted: true }
    }

    /// Cleans up after dead processes, so that no connection waits for them (COMMIT-5, SNAP-3).
    /// Returns their number.
    pub(crate) fn reap_dead(&self) -> Result<usize> {
        // A failure to settle is reported to a connection that needs the rights.
        self.reap_and_settle().map(|(reaped, _)| reaped)
    }

    /// The same; also returns whether what they left is settled.
    pub(crate) fn reap_and_settle(&self) -> Result<(usize, Result<()>)> {
        caller::briefly(|| {
            let mut reaped = 0;
            for index in process::dead(self.region(), self.process()) {
                match self.reap(index) {
                    Ok(true) => {
                        reaped += 1;
                        self.control().counters.reaped.fetch_add(1, Relaxed);
                    }
                    Ok(false) => {}
                    // The owner of the commit mutex does not run. Until it does only the dead are
                    // held up.
                    Err(e) if e.is_busy() => {}
                    Err(e) => return Err(e),
                }
            }
            Ok((reaped, self.settle_dead_work()))
        })
    }

    fn reap(&self, index: ProcessIndex) -> Result<bool> {
        let generation = &self.region().layout().processes[index.0 as usize].generation;
        let who = generation.load(Acquire);
        match self.settle_commits_of(index) {
            // Once the log has stopped nothing is read any more, but what the dead process held is
            // given back.
            Err(_) if self.log_shared().poisoned().is_some() => {}
            settled => settled?,
        }
        let mut wake = Vec::new();
        let mut held = Held::default();
        {
            let _guard = self.lock_commit_even_if_poisoned()?;
            // Checked again under the mutex: another process may have cleaned up since, and a new
            // one may have taken the slot. If that one is dead too it waits for the next call: its
            // commits are not settled.
            let gone =
                process::pid_of(self.region(), index) == 0 || generation.load(Acquire) != who;
            if gone || process::is_alive(self.region(), self.process(), index) {
                return Ok(false);
            }
            let c = self.control();
            held.who = process::who(self.region(), index, self.pid_namespace());
            for (i, slot) in self.slots.ever_used() {
                if slot.process.load(Acquire) != index.0 + 1 {
                    continue;
                }
                let has = |owner: &AtomicU32| owner.load(Relaxed) == i.word();
                held.add(slot, has(&c.right_owner), has(&c.merge_owner));
                self.give_back_for_dead(i);
                self.right.drop_from_queue(i);
                // SLOT-3: a merge or an exclusive transaction keeps its rights until the base has
                // been read.
                if !self.leave_behind_locked(i) && c.right_owner.load(Relaxed) == i.word() {
                    wake.extend(self.right.pass(false));
                }
                slot.clear();
                slot.process.store(0, Release);
            }
            // The waiter that was called may be one of the dead.
            wake.extend(self.right.call_first());
            debug_assert!(self.right.is_settled(), "RIGHT-1");
            process::clear_dead(self.region(), index);
        }
        self.right.wake(wake);
        self.note_death(&held);
        Ok(true)
    }
}
