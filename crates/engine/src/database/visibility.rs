//! What readers may see, and from when on.
//!
//! A commit can be seen by writers as soon as its nodes are in the memtable (`visible_ts`). Readers see those through
//! `readable_ts`. A commit is *settled* once `readable_ts` has reached it: whoever begins afterwards sees it.
//!
//! | who | settles | when | waits for the disk |
//! |---|---|---|---|
//! | COMMIT under FULL | itself | when it is on disk, or could not be brought there | yes |
//! | COMMIT under NORMAL or OFF | itself | when it is in shared memory | no |
//! | any end of a transaction that was shown commits which are not settled | those | before it returns | under FULL, for what of them is FULL |
//! | a merge | what it merges | before the base shows it | yes |
//! | whoever finds a dead process, or attaches, or reads | what the dead one has published, or prepared (orphans.rs) | before it reads, or frees the slot | for what of it is FULL |
//!
//! A NORMAL commit that is settled takes every earlier commit with it, and one of those may be a FULL one that is not on
//! disk yet. So there goes a position of the log with it (`readable_needs`): how far the log has to be on disk before
//! anybody reads at that timestamp. A reader that finds the log shorter syncs it, or waits for who does. Where all
//! are FULL nothing is settled before it is on disk, and where all are NORMAL nothing needs to be: there nobody waits.
//!
//! The other ways would be worse. A reader that took an older timestamp instead would miss a commit that was acknowledged.
//! A NORMAL commit that waited for the FULL ones before it would be none. And a reader that took the FULL ones as they are
//! would act on what a power cut may still undo.
//!
//! Who has died can have left commits that it settles no more, and someone may know of its death: by waiting for it, by its
//! closed pipe, a moment ago. So each read looks, but only while something is published and not settled, and only for the
//! processes that have published it (`ProcessSlot.commit_ts`). An answer cannot be kept: the next read may come after a
//! death, and after someone has told its program. But it can be read in shared memory: whoever commits leaves a word there that the
//! kernel changes when his thread ends (VISIBLE-5). Only where that says nothing, or says for long that he lives, the kernel
//! is asked for the lock of the process, which costs a system call for each.
//!
//! Invariants
//! - VISIBLE-1 What a COMMIT has acknowledged, and what a transaction was shown that has ended in whatever way, is settled. Reads of
//!   one connection therefore never go back.
//! - VISIBLE-2 No reader sees a FULL commit that is not on disk: `readable_needs` is raised before `readable_ts`, and read after it.
//! - VISIBLE-3 `commit_ts` of a process is at least every timestamp that it has published and not settled; it is raised
//!   before the frame is published, and a dead process's slot is freed only when they are settled.
//! - VISIBLE-4 `full_end` is at least the end of every FULL frame through `visible_ts`. A frame whose author died before he
//!   could say what it is counts as FULL.
//! - VISIBLE-5 `author` of a process leads to the word of a thread that has published the newest of these, or was about to: it
//!   is filled before `commit_ts` is raised and emptied when the commit is settled, or was not published. A thread that has ended
//!   leaves a commit to be settled also where its process lives on.
//!
//! # Durable timestamps
//!
//! Bringing commits to disk by their timestamps. What those tell, and TICKET-1 to TICKET-3: txn/tickets.rs.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::Instant;

use super::Database;
use crate::error::{Error, Result};
use crate::fault;
use crate::ids::{Lsn, ProcessIndex, SlotIndex, SnapshotTs};
use crate::shm::layout::ProcessSlot;
use crate::shm::process;
use crate::shm::process::Said;
use crate::sync::caller::Uncancelled;

impl Database {
    /// The newest commit, for who may write, and the end of the newest FULL frame through it.
    pub(crate) fn newest(&self) -> Result<(SnapshotTs, Lsn)> {
        let c = self.control();
        self.settle_prepared_of_dead()?;
        // In this order: should the author of a frame be dead and another be applying it, then one of the two tells.
        let applying = self.is_applying();
        // Acquire pairs with the Release of the committer: nodes up to this timestamp are there.
        let mut visible = c.visible_ts.load(Acquire);
        if applying {
            self.settle_dead(visible)?;
            visible = c.visible_ts.load(Acquire);
        }
        Ok((SnapshotTs::new(visible), self.full_end()))
    }

    /// The newest commit that a reader may see who begins now (VISIBLE-1, VISIBLE-2).
    pub(crate) fn readable(&self) -> Result<SnapshotTs> {
        let c = self.control();
        self.settle_prepared_of_dead()?;
        // In this order, as above.
        let applying = self.is_applying();
        let visible = c.visible_ts.load(Acquire);
        let known = c.readable_ts.load(Acquire);
        if applying || visible > known {
            self.settle_dead(known)?;
        }
        // Only now: what others have settled for the dead meanwhile is included. Acquire pairs with the Release in `settle`.
        let readable = c.readable_ts.load(Acquire);
        let needs = Lsn::new(c.readable_needs.load(Acquire));
        self.bring_to_disk(needs)?;
        debug_assert!(self.log_shared().durable_through() >= needs, "VISIBLE-2");
        if fault::is_planted("readers.lag") {
            return Ok(SnapshotTs::new(readable.saturating_sub(1)));
        }
        Ok(SnapshotTs::new(readable))
    }

    /// The end of the newest FULL frame, for who has loaded `visible_ts` before.
    pub(crate) fn full_end(&self) -> Lsn {
        // Acquire: see VISIBLE-4.
        Lsn::new(self.control().full_end.load(Acquire))
    }

    /// The shared words of this process.
    pub(crate) fn process_slot(&self) -> &ProcessSlot {
        &self.region().layout().processes[self.process().0 as usize]
    }

    /// A frame is published whose nodes are not all inserted: by one who is at it, or who has died in it.
    fn is_applying(&self) -> bool {
        // The applied position first: it only follows the other. Acquire: `visible_ts` was raised before it.
        let applied = self.control().applied_lsn.load(Acquire);
        applied != self.log_shared().log_end().get()
    }

    /// Whoever begins from now on sees the commits through `ts`, for which the log must be on disk through `needs`.
    pub(crate) fn settle(&self, ts: u64, needs: Lsn) {
        let c = self.control();
        if self.log_shared().durable_through() < needs {
            c.readable_needs.fetch_max(needs.get(), AcqRel);
        }
        // AcqRel: whoever finds the timestamp finds the nodes, and what has to be on disk for it (VISIBLE-2).
        c.readable_ts.fetch_max(ts, AcqRel);
    }

    pub(crate) fn bring_to_disk(&self, needs: Lsn) -> Result<()> {
        if self.log_shared().durable_through() >= needs {
            return Ok(());
        }
        let _uncancelled = Uncancelled::begin();
        self.log()?.sync_through(needs).map_err(Error::from)
    }

    /// Settles what the dead have left that is newer than `known`.
    fn settle_dead(&self, known: u64) -> Result<()> {
        let slots = &self.region().layout().processes;
        // Acquire: a process that has published anything has raised it before.
        let used = self.control().processes_high_water.load(Acquire) as usize;
        for (i, slot) in slots.iter().enumerate().take(used) {
            // Acquire pairs with the Release of those who clear it: what it stood for is settled.
            let newest = slot.commit_ts.load(Acquire);
            let index = ProcessIndex(i as u32);
            let is_ignored = fault::is_planted("dead.unsettled");
            if newest > known && !is_ignored && !self.has_living_author(index) {
                self.settle_commits_of(index)?;
            }
        }
        Ok(())
    }

    /// Whether who has published the newest commit of the process in slot `index` is there to settle it.
    fn has_living_author(&self, index: ProcessIndex) -> bool {
        match self.say_of_author(index) {
            Said::Lives => true,
            Said::Ended => false,
            Said::Nothing => process::is_alive(self.region(), self.process(), index),
        }
    }

    /// What can be told of it without asking the kernel (VISIBLE-5).
    fn say_of_author(&self, index: ProcessIndex) -> Said {
        let process = &self.region().layout().processes[index.0 as usize];
        // Relaxed, both: the caller has loaded `commit_ts`, before which they were stored. What is newer tells as much.
        let Some(slot) = SlotIndex::from_word(process.author.load(Relaxed)) else {
            return Said::Nothing;
        };
        let slot = self.slots.at(slot);
        let said = process::read(&slot.author);
        // After the word: it was believable when it was read.
        let age = process::now_ms().wrapping_sub(process.author_ms.load(Relaxed));
        let is_of_it = slot.process.load(Acquire) == index.0 + 1;
        let is_believed = is_of_it && (said == Said::Ended || age < process::BELIEVED_MS);
        if is_believed { said } else { Said::Nothing }
    }

    /// Settles whatever the process of slot `index` has published (VISIBLE-3), which is dead, or whose thread has ended in its commit.
    pub(crate) fn settle_commits_of(&self, index: ProcessIndex) -> Result<()> {
        let c = self.control();
        let newest = &self.region().layout().processes[index.0 as usize].commit_ts;
        if newest.load(Acquire) <= c.readable_ts.load(Acquire) {
            return Ok(());
        }
        let (visible, needs) = {
            // What it had published and not applied is applied by this.
            let _guard = self.lock_commit()?;
            (c.visible_ts.load(Relaxed), Lsn::new(c.full_end.load(Relaxed)))
        };
        self.bring_to_disk(needs)?;
        self.settle(visible, needs);
        Ok(())
    }
}

impl Database {
    /// Commits through this timestamp are on disk.
    pub(crate) fn durable_ts(&self) -> u64 {
        self.log_shared().durable_ts()
    }

    /// Brings everything to disk that has been committed before this was called.
    pub(crate) fn sync_commits(&self) -> Result<()> {
        let newest = self.log_shared().newest_ts();
        if self.durable_ts() >= newest || !self.is_fenced() {
            return Ok(());
        }
        self.check_poison()?;
        self.bring_ticket_to_disk(newest, None, None, &mut || false).map(drop)
    }

    /// Returns true when the commit of `ticket`, of this session, is on disk; false if it is not at `until`. `end`: where it ends, if it is in the
    /// log and that is known.
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
            // What lies before it in the base was synced before its frame was written (BEFORE-2 in log/before.rs).
            shared.note_durable_ts(ticket);
        } else if shared.durable_ts() < ticket {
            log.sync_base_commits()?;
            shared.note_durable_ts(newest);
        }
        Ok(true)
    }
}
