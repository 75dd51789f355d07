//! COMMIT, as its connection sees it: what comes before, and what follows.
//!
//! ```text
//! room in memtable, ring and log file; the right;     may merge, write or wait; no mutex
//!     large read sets validated once
//! the commit itself                                   commit/pipeline.rs
//! readers of this connection continue after it; the transaction's state is forgotten
//! ```
//!
//! What a COMMIT takes before its commit point is given back as follows. *Optimistic* and *queued*
//! as in [`state`](super::state); the table of the surrounding calls is at the head of
//! `csrc/transaction.c`.
//!
//! | exit | the right of an optimistic one | its snapshot | what was read |
//! |---|---|---|---|
//! | `commit_prepare`: Ok | taken | at now, or to be renewed | validated and kept (1) |
//! | Busy, Interrupted, Full, Io | given back, or never had | where it was, or at now | kept |
//! | Conflict | given back | where it was | kept; doomed |
//! | `RenewSnapshot`, of any | kept if it was taken (2) | about to be newer (PIN-6) | (3) |
//! | `commit`: Ok | passed on | at the commit, if a statement reads on | forgotten |
//! | `commit`: Busy, ... Io before the commit point | given back (4) | where it was | kept |
//! | `commit`: Io after the commit point | passed on | at the commit | forgotten |
//! | `commit_undo` (5) | given back | where it is | kept |
//!
//! 1. Through the snapshot. It may have to be validated again (CONN-1).
//! 2. Until the next call ends.
//! 3. Validated by the renewal.
//! 4. Whether `commit_prepare` took it, this call, or one before a renewal.
//! 5. After anything else that kept the COMMIT from being made.
//!
//! A queued transaction had the right before, and keeps it at all exits but those that pass it on.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::room::RoomWait;
use super::{Conn, Sync, WriteMode};
use crate::commit::pipeline::{Blocked, Committed, How};
use crate::error::{Error, Result};
use crate::ids::CommitTs;
use crate::log::AppendError;
use crate::shm::process;
use crate::sync::wait::Wait;

/// Validations without the mutex, before the transaction takes the right for the next.
const PASSES_BEFORE_RIGHT: u32 = 2;
/// Writes of the log for one commit, before others wait. They are for a ring that is full, or that
/// is not written as far as a long frame needs.
const WRITES_BEFORE_RIGHT: u32 = 8;

impl Conn {
    /// Takes the right and validates, so that the commit that follows cannot conflict.
    pub fn commit_prepare(&mut self, wait: &mut Wait<'_>) -> Result<()> {
        if self.writes.is_empty() {
            return Ok(());
        }
        self.commit_prepare_always(wait)
    }

    /// As [`Conn::commit_prepare`], also for a transaction that has written nothing yet.
    pub(crate) fn commit_prepare_always(&mut self, wait: &mut Wait<'_>) -> Result<()> {
        self.state.permits_commit()?;
        self.refuse_doomed()?;
        if self.state.has_right() {
            return Ok(());
        }
        self.take_right_to_commit(wait)?;
        self.go_on_from_now()
    }

    /// Gives back what a COMMIT has taken that was not made, because of this file or another: what
    /// [`Conn::part_begin`] took, and the right of an optimistic transaction, which must not keep
    /// it while its caller thinks. The transaction goes on in the snapshot that it has now.
    pub fn commit_undo(&mut self) {
        if self.part.is_some_and(|part| part.is_prepared) {
            return;
        }
        self.part_undo();
        self.give_back_for_commit();
    }

    fn give_back_for_commit(&mut self) {
        if self.state.mode() == Some(WriteMode::Optimistic) {
            self.give_right_back();
            self.relax_pin();
        }
    }

    /// Commits. `keep_reading`: open readers go on in a snapshot that includes this commit.
    ///
    /// # Errors
    /// Busy and Interrupted may be repeated, and `RenewSnapshot` must be; Conflict dooms the
    /// transaction; Full wrote nothing; I/O errors after the commit point poison the database.
    pub fn commit(&mut self, sync: Sync, keep_reading: bool, wait: &mut Wait<'_>) -> Result<()> {
        self.state.permits_commit()?;
        self.refuse_doomed()?;
        self.db.check_fork()?;
        self.judge_early();
        if self.writes.is_empty() {
            return self.commit_nothing(sync);
        }
        let committed = match self.commit_writes(sync, keep_reading, wait) {
            Ok(committed) => committed,
            Err(e) => {
                if matches!(e, Error::RenewSnapshot) {
                    self.view = self.view.wrapping_add(1);
                } else {
                    self.large_wait = None;
                }
                if !self.renews {
                    self.relax_pin();
                }
                return Err(self.note_conflict(e));
            }
        };
        self.large_wait = None;
        committed.wake_next(&self.db);
        self.note_release();
        self.state.set_right(false);
        if self.state.mode() == Some(WriteMode::Optimistic) {
            self.note_turn_committed();
        }
        self.note_own_commit(committed.ts, Some(committed.end), 1);
        let written = self.written();
        self.note_size(written, None);
        self.unpaced += written.bytes;
        self.writes.clear();
        let ts = committed.ts;
        let synced = committed.finish(&self.db, sync);
        // All of it is older than the own commit.
        self.shown = super::snapshot::Shown::default();
        self.end_writing();
        if keep_reading {
            self.continue_reading_at(ts);
        }
        synced
    }

    pub(super) fn commit_nothing(&mut self, sync: Sync) -> Result<()> {
        self.give_right_back();
        self.end_writing();
        self.settle_shown_as(sync)
    }

    fn commit_writes(
        &mut self,
        sync: Sync,
        keep_reading: bool,
        wait: &mut Wait<'_>,
    ) -> Result<Committed> {
        self.start_transaction();
        // Whatever can fail about the log file fails before the commit point.
        self.db.log()?;
        process::prepare();
        let mut room = None;
        let is_queued = self.state.mode() == Some(WriteMode::Queued);
        let is_follower = self.is_follower;
        let in_a_run = self.is_in_a_run(sync);
        let mut how =
            How { is_queued, is_follower, sync, in_a_run, keep_reading, first_pass: None };
        let mut passes = 0;
        let result = loop {
            match self.candidate().commit(how) {
                Ok(Ok(committed)) => break Ok(committed),
                Ok(Err(blocked)) => {
                    let room = room.get_or_insert_with(RoomWait::begin);
                    let unblocked = self.unblock(blocked, &mut how, &mut passes, room, wait);
                    if let Err(e) = unblocked {
                        break Err(e);
                    }
                }
                Err(e) => break Err(e),
            }
        };
        if result.as_ref().is_err_and(|e| !matches!(e, Error::RenewSnapshot)) {
            self.give_back_for_commit();
        }
        result
    }

    fn unblock(
        &mut self,
        blocked: Blocked,
        how: &mut How,
        passes: &mut u32,
        room: &mut RoomWait,
        wait: &mut Wait<'_>,
    ) -> Result<()> {
        match blocked {
            Blocked::RightTaken => self.take_right_to_commit(wait),
            Blocked::BaseIsOlder => Err(self.renew_and_validate()),
            Blocked::FenceLowered => self.db.ensure_fenced(self.slot, wait),
            Blocked::ValidateAgain => {
                self.pass_again(passes, PASSES_BEFORE_RIGHT, wait)?;
                how.first_pass = Some(self.candidate().first_pass()?);
                Ok(())
            }
            Blocked::Log(AppendError::RingFull) => {
                self.pass_again(passes, WRITES_BEFORE_RIGHT, wait)?;
                self.db.log()?.make_room(AppendError::RingFull).map_err(Error::from)
            }
            Blocked::Log(e) => self.make_log_room(e, room, wait),
            Blocked::MemtableFull { generation, bytes } => {
                self.make_memtable_room(generation, bytes, room, wait)
            }
            Blocked::Unallocated { arena, reach } => self.db.region().grow_arena(arena, reach),
        }
    }

    /// Counts a failed try. If others commit faster than this transaction gets through, it takes
    /// the right: others wait while it holds that.
    fn pass_again(&mut self, passes: &mut u32, most: u32, wait: &mut Wait<'_>) -> Result<()> {
        *passes += 1;
        if *passes > most && !self.state.has_right() {
            self.take_right_to_commit(wait)?;
        }
        Ok(())
    }

    /// Lets open readers of this connection continue at `ts`: everything that they have read is
    /// unchanged.
    pub(super) fn continue_reading_at(&mut self, ts: CommitTs) {
        let Some(mut snapshot) = self.snapshot.take() else { return };
        let slot = self.db.slots.at(self.slot);
        // The pin has covered everything above the base's generation, so nothing that is needed is
        // gone.
        let memtables = self.db.generations.memtables_that_can_be_mapped(snapshot.base_generation);
        snapshot.memtables = memtables.into();
        snapshot.last_nodes.get_mut().clear();
        snapshot.ts = ts.snapshot();
        snapshot.resting = false;
        slot.snapshot.store(ts.get(), Relaxed);
        self.snapshot = Some(snapshot);
        self.relax_pin();
        self.view = self.view.wrapping_add(1);
    }

    /// Narrows the pin to what is needed to read (SNAP-4).
    pub(crate) fn relax_pin(&self) {
        if let Some(snapshot) = &self.snapshot {
            let high = snapshot.newest_generation().get();
            // Release: nothing above is used after this.
            self.db.slots.at(self.slot).pin_high.store(high, Release);
        }
    }
}
