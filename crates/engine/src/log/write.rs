//! From the ring to the file, by any thread that needs it, and in parallel with a stopped writer.
//!
//! Normally one thread writes at a time, under the write mutex. But its owner may be stopped
//! anywhere. So only speed relies on that mutex: a thread that has waited for [`BESIDE_AFTER`]
//! while nothing was written writes without it. The other threads of its process then do so too,
//! until the mutex has another owner.
//!
//! A stretch of the stream, within one segment, is written in these steps. A writer that is stopped
//! after one of them may go on at any time.
//!
//! | step | what | going on late is harmless because |
//! |---|---|---|
//! | 1 | read `written_through`, the next segment and its slot | step 4 looks again |
//! | 2 | copy the bytes out of the ring | the copy may be torn; step 4 looks again |
//! | 3 | *intent*: the slot, in this process's word | it only keeps the slot from being reused |
//! | 4 | if `written_through` has moved: withdraw the intent, back to 1 | - |
//! | 5 | write the slot's header, if the segment begins here, and the copy | INTENT-1, INTENT-2 |
//! | 6 | withdraw the intent | - |
//! | 7 | raise `written_through` to the end of the stretch, unless it is higher | INTENT-3 |
//!
//! Invariants
//! - INTENT-1 What is written is right whenever it is written. Bytes of a stream never change
//!   (LOG-2), and at step 4 the copy was not torn, since ring bytes after `written_through` are not
//!   overwritten.
//! - INTENT-2 A slot for which an intent is stored is given to no other segment
//!   ([`LogShared::assign_slot`]). At step 4 the segment was not fully written, so its slot was not
//!   free. A committer that takes the slot later has seen the segment written, and looks for
//!   intents after taking the slot. Both sides have a fence between their store and their look, so
//!   one of them sees the other.
//! - INTENT-3 Everything before `written_through` is in the file. A writer that raises it has
//!   written from its old value on.
//! - INTENT-4 A process has one intent: its threads take turns (`writing`). The owner of the write
//!   mutex may wait for a turn. A thread that has a turn waits for no other.
//! - INTENT-5 The intent of a dead process remains until its process slot is reaped or taken.
//!   Nothing of it is being written then: the kernel releases the lock that shows the process alive
//!   after the last system call of the process.
//!
//! So a process that is stopped for good costs a slot of the file, and others a quarter of a second
//! each now and then.
//!
//! Before the first byte of a write the base's WAL is synced, if frames may rely on a commit in it
//! that is not on disk (before.rs). The call then writes only what was published before that sync
//! (BEFORE-2).

use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use std::sync::atomic::fence;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use super::error::LogError;
use super::group::{BESIDE_AFTER, Log, one_at_a_time};
use super::shared::LogShared;
use super::shared::Segment;
use crate::crash_point;
use crate::fault;
use crate::ids::{Lsn, ProcessIndex};
use crate::sync::wait::{self, Watch};

/// Bytes that are copied and written at a time; a multiple of 8, as positions are.
const STRETCH_BYTES: u64 = 256 << 10;
/// Least size of a stretch, when memory is short.
const STRETCH_BYTES_MIN: u64 = 4 << 10;
/// How often a waiter for the write mutex checks whether anything is written.
const LOOK: Duration = Duration::from_millis(50);
/// How often a waiter for a turn among the threads of this process tries.
const TURN_NAP: Duration = Duration::from_millis(1);

/// Partner of [`SEES_WRITTEN`](super::shared::SEES_WRITTEN): the ring's bytes have been copied.
pub(super) const WRITES_THROUGH: Ordering = Release;

/// The result of steps 1 and 2. The bytes are in the copy.
struct Stretch {
    segment: Segment,
    slot: u32,
    from: Lsn,
    to: Lsn,
}

/// An intent (step 3), until it is dropped.
struct Intent<'a> {
    shared: &'a LogShared,
    process: ProcessIndex,
}

impl Drop for Intent<'_> {
    fn drop(&mut self) {
        self.shared.withdraw_intent(self.process);
    }
}

impl Log {
    /// Moves published bytes before `target` from the ring to the file, without syncing.
    pub(super) fn write_to(&self, target: Lsn) -> Result<(), LogError> {
        let shared = self.shared();
        if shared.written_through() >= target {
            return Ok(());
        }
        self.sync_base_commits()?;
        let mut watch = Watch::begin();
        watch.look(shared.written_through());
        loop {
            let end = Some(Instant::now() + LOOK);
            let locked = match self.write_owner_is_stalled() {
                true => shared.write_mutex.try_lock_from_dead(&self.party),
                false => shared.write_mutex.lock_until(&self.party, end, &mut || false).ok(),
            };
            if let Some(_write) = locked {
                // Relaxed: changes under the write mutex only, which is held.
                shared.group.write_turns.fetch_add(1, Relaxed);
                return self.write_in_turn(one_at_a_time(&self.writing), target);
            }
            let now = shared.written_through();
            if now >= target {
                return self.check_poison();
            }
            self.check_poison()?;
            let stands = watch.look(now).is_some_and(|stood| stood >= BESIDE_AFTER);
            if stands {
                // Relaxed: a hint.
                self.standing.store(turn_word(shared), Relaxed);
            }
            if stands || self.write_owner_is_stalled() {
                // Another thread of this process may have the turn.
                if let Some(turn) = wait::lock_within(&self.writing, LOOK, TURN_NAP) {
                    return self.write_in_turn(turn, target);
                }
            }
        }
    }

    /// True if this process has already written in parallel with the present owner of the write
    /// mutex.
    fn write_owner_is_stalled(&self) -> bool {
        // Relaxed: a hint.
        self.standing.load(Relaxed) == turn_word(self.shared())
    }

    /// Brings earlier commits of the base to disk, if they are not known to be there.
    pub(crate) fn sync_base_commits(&self) -> Result<(), LogError> {
        if !self.shared().base_is_unsynced() {
            return Ok(());
        }
        self.sync_base(one_at_a_time(&self.syncing_base))
    }

    /// Comes before any byte is written, and before the write mutex: what was published until now
    /// relies on no later commits (BEFORE-2).
    fn sync_base(&self, one: MutexGuard<'_, ()>) -> Result<(), LogError> {
        let synced = self.base_wal.sync_before(self.shared(), &self.file);
        if let Err(e) = &synced {
            self.shared().stop_after(e);
        }
        drop(one);
        synced
    }

    fn write_in_turn(
        &self,
        mut turn: MutexGuard<'_, Vec<u8>>,
        target: Lsn,
    ) -> Result<(), LogError> {
        self.check_poison()?;
        let written = self.write_range(&mut turn, target);
        if let Err(e) = &written {
            // Before another thread of this process can write.
            self.shared().stop_after(e);
        }
        written
    }

    fn write_range(&self, copy: &mut Vec<u8>, target: Lsn) -> Result<(), LogError> {
        let shared = self.shared();
        loop {
            let at = shared.written_through();
            if at >= target {
                return Ok(());
            }
            let Some(stretch) = self.look_at_stretch(at, target, copy) else {
                // Acquire: after the loads of `look_at_stretch`.
                fence(Acquire);
                let has_moved = shared.written_through() != at;
                assert!(has_moved, "published bytes at {at} are in no segment that has a slot");
                continue;
            };
            let intent = self.intend(stretch.slot);
            if shared.written_through() != at {
                continue;
            }
            crash_point!("log.write.intended");
            if stretch.from == shared.segment_start(stretch.segment.number) {
                self.file.write_slot_header(stretch.slot, &stretch.segment)?;
            }
            if !fault::is_planted("log.unwritten") {
                self.file.write_stream(stretch.slot, stretch.from, copy)?;
            }
            crash_point!("log.write.written");
            drop(intent);
            // Relaxed: a counter.
            shared.group.writes.fetch_add(1, Relaxed);
            // From here on a committer may overwrite the ring's bytes.
            shared.group.written_through.fetch_max(stretch.to.get(), WRITES_THROUGH);
        }
    }

    /// Steps 1 and 2. If other processes have written in between, it returns nothing, or anything.
    fn look_at_stretch(&self, at: Lsn, target: Lsn, copy: &mut Vec<u8>) -> Option<Stretch> {
        let shared = self.shared();
        let piece = shared.piece(at, target)?;
        let slot = shared.slot_of(piece.segment.number)?;
        let to = piece.to.min(piece.from + room_for_stretch(copy));
        let is_there = self.ring.copy_unwritten(piece.from, to, copy);
        is_there.then_some(Stretch { segment: piece.segment, slot, from: piece.from, to })
    }

    /// Step 3. What follows sees all that a committer that takes the slot has seen, or that
    /// committer sees the intent (INTENT-2).
    fn intend(&self, slot: u32) -> Intent<'_> {
        let process = self.party.index();
        self.shared().intend(process, slot);
        Intent { shared: self.shared(), process }
    }

    /// Returns when everything before `lsn` is in the file, synced or not.
    pub fn write_through(&self, lsn: Lsn) -> Result<(), LogError> {
        let shared = self.shared();
        if shared.written_through() >= lsn {
            return self.check_poison();
        }
        self.check_poison()?;
        self.write_to(shared.log_end()).map_err(|e| self.fatal(&e))
    }

    /// As [`Log::write_through`], unless another thread or process is writing.
    pub fn write_if_free(&self) -> Result<(), LogError> {
        let shared = self.shared();
        self.check_poison()?;
        let target = shared.log_end();
        if shared.base_is_unsynced() {
            match try_lock(&self.syncing_base) {
                Some(one) => self.sync_base(one).map_err(|e| self.fatal(&e))?,
                None => return Ok(()),
            }
        }
        let write = shared.write_mutex.try_lock(&self.party);
        if write.is_none() && !self.write_owner_is_stalled() {
            return Ok(());
        }
        if write.is_some() {
            // Relaxed: changes under the write mutex only, which is held.
            shared.group.write_turns.fetch_add(1, Relaxed);
        }
        match try_lock(&self.writing) {
            Some(turn) => self.write_in_turn(turn, target).map_err(|e| self.fatal(&e)),
            None => Ok(()),
        }
    }

    /// What a commit under NORMAL or OFF does instead of waiting: nothing, or one write when a
    /// quarter of the window is unwritten.
    pub fn relaxed_commit(&self, end: Lsn) -> Result<(), LogError> {
        let shared = self.shared();
        let waiting = end.get().saturating_sub(shared.written_through().get());
        if waiting <= shared.window_bytes() / 4 {
            return self.check_poison();
        }
        self.write_if_free()
    }
}

/// `None` if another thread has the mutex. As in [`one_at_a_time`] a panic under it means nothing.
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Bytes of a stretch. What is published must be written with whatever memory there is.
fn room_for_stretch(copy: &mut Vec<u8>) -> u64 {
    let mut bytes = STRETCH_BYTES;
    copy.clear();
    while bytes > STRETCH_BYTES_MIN && copy.try_reserve_exact(bytes as usize).is_err() {
        bytes /= 2;
    }
    bytes
}

/// Names the present or last owner of the write mutex; never 0.
fn turn_word(shared: &LogShared) -> u64 {
    // Relaxed: a hint. A thread that takes a new owner for the old one writes in parallel, which is
    // harmless.
    u64::from(shared.group.write_turns.load(Relaxed)) | 1 << 32
}
