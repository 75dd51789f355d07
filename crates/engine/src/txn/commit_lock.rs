//! The commit mutex (C1), and the repair of what its dead owner left (C2).
//!
//! Whoever holds it finds: every frame before `log_end` is applied to the memtables, and
//! generations are in one of their states. A dead owner may have left
//! - a frame in the ring that `log_end` does not cover: it never happened;
//! - a frame that `log_end` covers but whose nodes are missing: they are inserted now;
//! - a switch of generations half done: it is finished or undone.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::database::Database;
use crate::error::{Error, Result};
use crate::ids::Lsn;
use crate::log::frame::BadFrame;
use crate::log::{Frame, OpKind};
use crate::memtable::EntryKind;
use crate::shm::layout::{ARENAS, RECENT_COMMITS};
use crate::shm::mutex::Guard;

impl Database {
    /// Takes the commit mutex; an error when the database is poisoned (C4).
    pub(crate) fn lock_commit(&self) -> Result<Guard<'_>> {
        let guard = self.lock_commit_even_if_poisoned()?;
        self.check_poison()?;
        Ok(guard)
    }

    /// Takes the commit mutex to give something back, which cannot fail: a repair that does has poisoned the database, and
    /// then nothing is repaired any more.
    pub(crate) fn lock_commit_to_give_back(&self) -> Guard<'_> {
        loop {
            if let Ok(guard) = self.lock_commit_even_if_poisoned() {
                return guard;
            }
        }
    }

    /// Takes the commit mutex although the database may be poisoned.
    pub(crate) fn lock_commit_even_if_poisoned(&self) -> Result<Guard<'_>> {
        let guard = self.control().commit_mutex.lock(self.party());
        let c = self.control();
        // So do the positions, of whoever left without applying what it had published (C2).
        let half_done = c.applied_lsn.load(Relaxed) != self.log_shared().log_end().get();
        // Without repair a poisoned database can still be given things back; nothing else is done with it.
        if (guard.previous_owner_died || half_done) && self.log_shared().poisoned().is_none() {
            self.repair_after_death(&guard)?;
        }
        Ok(guard)
    }

    fn repair_after_death(&self, guard: &Guard<'_>) -> Result<()> {
        self.repair_generations();
        let repaired = self.redo(guard);
        if repaired.is_err() {
            // Half-repaired state must not be used by anyone: recovery from disk is the way out.
            self.log_shared().set_poison(libc::EIO);
        }
        repaired
    }

    /// (M) Inserts the nodes of frames that are committed but not applied (C2).
    fn redo(&self, guard: &Guard<'_>) -> Result<()> {
        let c = self.control();
        let from = Lsn::new(c.applied_lsn.load(Relaxed));
        let to = self.log_shared().log_end();
        if from >= to {
            return Ok(());
        }
        // Nobody can tell whether its author was going to wait for the disk (V4). Release: before `visible_ts`.
        c.full_end.fetch_max(to.get(), Release);
        let mut failed = None;
        let read = self.ring().for_each_frame(guard, from, to, |frame| {
            if failed.is_none() {
                failed = self.apply_frame(frame).err();
                c.visible_ts.fetch_max(frame.commit_ts.get(), Release);
            }
        });
        read.map_err(|(at, why)| damaged_ring(at, why))?;
        match failed {
            Some(e) => Err(e),
            None => {
                // Release: after everything that was redone, also in program order, for the next to die here.
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
        let memtable = self.memtable(arena);
        for op in frame.ops() {
            let kind =
                if op.kind == OpKind::Tombstone { EntryKind::Tombstone } else { EntryKind::Put };
            memtable.insert(op.root, op.key, frame.commit_ts, kind, op.rec).map_err(|_| {
                Error::Corrupt("a committed transaction does not fit its memtable".into())
            })?;
        }
        gens[arena].max_ts.fetch_max(frame.commit_ts.get(), Release);
        gens[arena].log_end.fetch_max(frame.end().get(), Relaxed);
        Ok(())
    }

    /// (M) Remembers the author of a commit for conflict reports.
    pub(crate) fn remember_author(&self, ts: u64, txn: u64) {
        let entry = &self.control().recent[ts as usize % RECENT_COMMITS];
        entry.ts.store(0, Relaxed);
        entry.txn.store(txn, Relaxed);
        entry.pid.store(self.pid(), Relaxed);
        entry.namespace.store(self.pid_namespace() as u32, Relaxed);
        // Release pairs with the Acquire of whoever reports a conflict with `ts`.
        entry.ts.store(ts, Release);
    }
}

/// The error of a ring that does not hold what it must: shared memory was overwritten by someone else.
pub(crate) fn damaged_ring(at: Lsn, why: BadFrame) -> Error {
    Error::Corrupt(format!(
        "the log ring in shared memory is damaged at position {at}: {}",
        why.why()
    ))
}
