//! What readers may see, and from when on.
//!
//! Writers see a commit as soon as its nodes are in the memtable (`visible_ts`). Readers see
//! commits through `readable_ts`. A commit is *settled* once `readable_ts` has reached it: every
//! transaction that begins afterwards sees it.
//!
//! | settled by | commits | when | waits for disk |
//! |---|---|---|---|
//! | COMMIT, FULL | its own | it is on disk, or cannot be brought there | yes |
//! | COMMIT, NORMAL or OFF | its own | it is in shared memory | no |
//! | a transaction's end | those it was shown | before it returns | under FULL, for FULL ones |
//! | a merge | those it merges | before the base shows them | yes |
//! | a reader, a reaper | those of the dead | before it reads, or frees the slot | for FULL ones |
//!
//! A process that attaches also settles what the dead have left, published or prepared
//! (orphans.rs).
//!
//! A NORMAL commit that is settled takes every earlier commit with it, and one of these may be a
//! FULL commit that is not on disk yet. So a position of the log goes with it (`readable_needs`):
//! how far the log must be on disk before a reader reads at that timestamp. A reader that finds the
//! log shorter syncs it, or waits for the thread that does. Where all commits are FULL none is
//! settled before it is on disk, and where all are NORMAL none needs to be: there no reader waits.
//!
//! The alternatives are worse. A reader that took an older timestamp would miss a commit that was
//! acknowledged. A NORMAL commit that waited for the FULL ones before it would not be NORMAL. A
//! reader that took the FULL ones as they are would act on what a power cut may still undo.
//!
//! A process may die before it has settled its commits, and another may know of the death: by
//! waiting for the process, or by its closed pipe, a moment ago. So each read looks for dead
//! authors, but only while something is published and not settled, and only among the processes
//! that have published it (`ProcessSlot.commit_ts`). The result cannot be cached: the next read may
//! follow a death of which its program has heard. But it can be read in shared memory: a committer
//! leaves a word there that the kernel changes when the committing thread ends (VISIBLE-5). Only if
//! the word says nothing, or has long said that the thread lives, does the reader probe the lock of
//! the process, with a system call each.
//!
//! Invariants
//! - VISIBLE-1 What a COMMIT has acknowledged is settled, and so is what a transaction was shown
//!   that has ended, in whatever way. So reads of one connection never go back.
//! - VISIBLE-2 No reader sees a FULL commit that is not on disk: `readable_needs` is raised before
//!   `readable_ts`, and read after it.
//! - VISIBLE-3 `commit_ts` of a process is at least every timestamp that it has published and not
//!   settled. It is raised before the frame is published, and a dead process's slot is freed only
//!   when these commits are settled.
//! - VISIBLE-4 `full_end` is at least the end of every FULL frame through `visible_ts`. A frame
//!   whose author died before it recorded the level counts as FULL.
//! - VISIBLE-5 `author` of a process leads to the word of a thread that has published the newest of
//!   these commits, or was about to. The word is filled before `commit_ts` is raised, and emptied
//!   when the commit is settled or was not published. A thread that has ended leaves its commit for
//!   others to settle, even if its process lives on.
//!
//! # Durable timestamps
//!
//! Bringing commits to disk by their timestamps. For these, and TICKET-1 to TICKET-3, see
//! txn/tickets.rs.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::Instant;

use super::Database;
use crate::error::{Error, Result};
use crate::fault;
use crate::ids::{Generation, Lsn, ProcessIndex, SlotIndex, SnapshotTs};
use crate::shm::layout::ProcessSlot;
use crate::shm::process;
use crate::shm::process::Said;
use crate::sync::caller::Uncancelled;
use crate::sync::clock::tick_ms;

impl Database {
    /// Returns the newest commit, for a transaction that may write, and the end of the newest FULL
    /// frame through it.
    pub(crate) fn newest(&self) -> Result<(SnapshotTs, Lsn)> {
        let c = self.control();
        self.settle_prepared_of_dead()?;
        // In this order: if the author of a frame is dead and another process applies it,
        // `applying` or `visible` shows it.
        let applying = self.is_applying();
        // Acquire pairs with the Release of the committer: nodes up to this timestamp are there.
        let mut visible = c.visible_ts.load(Acquire);
        if applying {
            self.settle_dead(visible)?;
            visible = c.visible_ts.load(Acquire);
        }
        Ok((SnapshotTs::new(visible), self.full_end()))
    }

    /// Returns the newest commit that a reader may see if it begins now (VISIBLE-1, VISIBLE-2).
    pub(crate) fn readable(&self) -> Result<SnapshotTs> {
        let c = self.control();
        self.settle_prepared_of_dead()?;
        // In the order of `newest`.
        let applying = self.is_applying();
        let visible = c.visible_ts.load(Acquire);
        let known = c.readable_ts.load(Acquire);
        if applying || visible > known {
            self.settle_dead(known)?;
        }
        // Only now, to include what other processes have settled for the dead. Acquire pairs with
        // the Release in `settle`.
        let readable = c.readable_ts.load(Acquire);
        let needs = Lsn::new(c.readable_needs.load(Acquire));
        self.bring_to_disk(needs)?;
        debug_assert!(self.log_shared().durable_through() >= needs, "VISIBLE-2");
        if fault::is_planted("readers.lag") {
            return Ok(SnapshotTs::new(readable.saturating_sub(1)));
        }
        Ok(SnapshotTs::new(readable))
    }

    /// The end of the newest FULL frame. The caller has loaded `visible_ts` before.
    pub(crate) fn full_end(&self) -> Lsn {
        // Acquire: see VISIBLE-4.
        Lsn::new(self.control().full_end.load(Acquire))
    }

    /// The shared words of this process.
    pub(crate) fn process_slot(&self) -> &ProcessSlot {
        &self.region().layout().processes[self.process().0 as usize]
    }

    /// True if a frame is published and not all its nodes are inserted: its author is at work, or
    /// has died.
    fn is_applying(&self) -> bool {
        // The applied position first: it only follows the end of the log. Acquire: `visible_ts` was
        // raised before it.
        let applied = self.control().applied_lsn.load(Acquire);
        applied != self.log_shared().log_end().get()
    }

    /// Makes the commits through `ts` readable for all that begin from now on. For that the log
    /// must be on disk through `needs`.
    pub(crate) fn settle(&self, ts: u64, needs: Lsn) {
        let c = self.control();
        if self.log_shared().durable_through() < needs {
            c.readable_needs.fetch_max(needs.get(), AcqRel);
        }
        // AcqRel: with the timestamp a reader finds the nodes, and what must be on disk for it
        // (VISIBLE-2).
        c.readable_ts.fetch_max(ts, AcqRel);
    }

    pub(crate) fn bring_to_disk(&self, needs: Lsn) -> Result<()> {
        if self.log_shared().durable_through() >= needs {
            return Ok(());
        }
        let _uncancelled = Uncancelled::begin();
        self.log()?.sync_through(needs).map_err(Error::from)
    }

    /// Settles what dead processes have left that is newer than `known`.
    fn settle_dead(&self, known: u64) -> Result<()> {
        let slots = &self.region().layout().processes;
        // Acquire: a process raises it before it publishes anything.
        let used = self.control().processes_high_water.load(Acquire) as usize;
        for (i, slot) in slots.iter().enumerate().take(used) {
            // Acquire pairs with the Release of the process that clears it: those commits are
            // settled.
            let newest = slot.commit_ts.load(Acquire);
            let index = ProcessIndex(i as u32);
            let is_ignored = fault::is_planted("dead.unsettled");
            if newest > known && !is_ignored && !self.has_living_author(index) {
                self.settle_commits_of(index)?;
            }
        }
        Ok(())
    }

    /// Settles a commit of the base whose author is dead, before a reader looks at it: without its
    /// timestamp the reader would not know a new state from the old one. True if that changed
    /// anything. A reader that cannot settle it goes on (ESTATE-3).
    pub(crate) fn settle_base_of_dead(&self, seen: Generation) -> bool {
        // Acquire pairs with the SeqCst of `settle_base`: equal but for the moment between a commit
        // and that.
        let is_settled = || self.control().base_generation.load(Acquire) >= seen.get();
        if is_settled() || self.slots.is_owner_alive(self.control().merge_owner.load(Acquire)) {
            return false;
        }
        // The owner of the commit mutex may be stopped: the next read tries again.
        if self.try_lock_commit_of_dead().is_none() {
            return false;
        }
        self.reap_and_settle().is_ok_and(|(_, settled)| settled.is_ok()) && is_settled()
    }

    /// True if the thread that published the newest commit of the process in slot `index` lives to
    /// settle it.
    fn has_living_author(&self, index: ProcessIndex) -> bool {
        match self.say_of_author(index) {
            Said::Lives => true,
            Said::Ended => false,
            Said::Nothing => process::is_alive(self.region(), self.process(), index),
        }
    }

    /// What shared memory says of that thread, without a system call (VISIBLE-5).
    fn say_of_author(&self, index: ProcessIndex) -> Said {
        let process = &self.region().layout().processes[index.0 as usize];
        // Relaxed, both: stored before `commit_ts`, which the caller has loaded. Newer values say
        // as much.
        let Some(slot) = SlotIndex::from_word(process.author.load(Relaxed)) else {
            return Said::Nothing;
        };
        let slot = self.slots.at(slot);
        let said = process::read(&slot.author);
        // After the word: if the age is within bounds now, it was when the word was read.
        let age = tick_ms().wrapping_sub(process.author_ms.load(Relaxed));
        let is_of_it = slot.process.load(Acquire) == index.0 + 1;
        let is_believed = is_of_it && (said == Said::Ended || age < process::BELIEVED_MS);
        if is_believed { said } else { Said::Nothing }
    }

    /// Settles what the process of slot `index` has published (VISIBLE-3): the process is dead, or
    /// its thread has ended in its commit.
    pub(crate) fn settle_commits_of(&self, index: ProcessIndex) -> Result<()> {
        let c = self.control();
        let newest = &self.region().layout().processes[index.0 as usize].commit_ts;
        if newest.load(Acquire) <= c.readable_ts.load(Acquire) {
            return Ok(());
        }
        let (visible, needs) = {
            // Taking the mutex applies what was published and not applied.
            let _guard = self.lock_commit()?;
            (c.visible_ts.load(Relaxed), Lsn::new(c.full_end.load(Relaxed)))
        };
        self.bring_to_disk(needs)?;
        self.settle(visible, needs);
        Ok(())
    }
}

impl Database {
    /// Commits through the returned timestamp are on disk.
    pub(crate) fn durable_ts(&self) -> u64 {
        self.log_shared().durable_ts()
    }

    /// Brings to disk all that was committed before the call.
    pub(crate) fn sync_commits(&self) -> Result<()> {
        let newest = self.log_shared().newest_ts();
        if self.durable_ts() >= newest || !self.is_fenced() {
            return Ok(());
        }
        self.check_poison()?;
        self.bring_ticket_to_disk(newest, None, None, &mut || false).map(drop)
    }

    /// Returns true once the commit of `ticket`, of this session, is on disk; false if it is not by
    /// `until`. `end`: the end of its frame, if it is in the log and the end is known.
    pub(crate) fn bring_ticket_to_disk(
        &self,
        ticket: u64,
        end: Option<Lsn>,
        until: Option<Instant>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<bool> {
        let shared = self.log_shared();
        let log = self.log()?;
        // In this order (TICKET-2).
        let newest = shared.newest_ts();
        let through = end.unwrap_or_else(|| shared.log_end());
        let mut is_interrupted = false;
        let is_synced = log.sync_while(through, |longest| {
            is_interrupted = interrupted();
            if let Some(until) = until {
                let left = until.saturating_duration_since(Instant::now());
                *longest = left.min(*longest);
                return !is_interrupted && !left.is_zero() && shared.durable_ts() < ticket;
            }
            !is_interrupted && shared.durable_ts() < ticket
        })?;
        if !is_synced {
            return if is_interrupted {
                Err(Error::Interrupted)
            } else {
                Ok(shared.durable_ts() >= ticket)
            };
        }
        if end.is_some() {
            // Commits to the base that precede the frame were synced before the frame was written
            // (BEFORE-2 in log/before.rs).
            shared.note_durable_ts(ticket);
        } else if shared.durable_ts() < ticket {
            log.sync_base_commits()?;
            shared.note_durable_ts(newest);
        }
        Ok(true)
    }
}
