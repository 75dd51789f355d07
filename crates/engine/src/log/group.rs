//! Group commit: from the ring to the file, and one sync for everyone who waits.
//!
//! Whoever needs a position on disk and finds the sync mutex free leads: it writes everything published
//! and not yet written, syncs once, moves `durable_through`, and wakes. Everyone else sleeps.
//!
//! Groups alternate between two futex words by parity, so that a finished sync wakes the members of its
//! own group and just one of those who came too late, who leads the next. `run` states the running (or
//! last) group as one atomic word: the position that it makes durable and its parity. A waiter that is
//! covered by it sleeps on that parity's word, any other on the other word; both words change when a
//! group ends, so a waiter that decided by an old state does not fall asleep.
//!
//! A leader that has company lets others run first, as long as that brings frames: the members of the last group
//! have just been woken and are about to commit again, and without this two half groups would take turns.
//!
//! Killed leader: the mutex survives it and sleepers look again every [`LOOK_AGAIN`], so one of them takes
//! over and writes again from `written_through` (invariant 2 of the log makes that harmless). After it,
//! everybody is woken, since members of the dead group sleep on either word.
//!
//! Failure (C4): a failed write or sync poisons the log for every process. It is not retried, since after a
//! failed sync nobody knows what is on disk. Space for everything published was allocated beforehand
//! (invariant 3 of the log), so a full disk shows in [`Log::make_room`], where nothing is at risk.
//!
//! Before the first byte of a write the base's WAL is synced if frames may rely on a commit in it that is not on disk
//! (before.rs). A failure of that sync is one of the log's.
//!
//! What was acknowledged under NORMAL is in the ring and in the memtables; a poisoned log does not touch
//! those, so a merge may still save them before the shared memory is given up.
//!
//! Lock order: the sync mutex and the grow mutex are leaves; neither is taken while the commit mutex is held.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::Duration;

use super::before::BaseWal;
use super::error::{AppendError, LogError};
use super::file::{LogFile, slot_offset};
use super::ring::Ring;
use super::shared::LogShared;
use crate::crash_point;
use crate::ids::{Generation, Lsn};
use crate::shm::futex::{self, WaitResult};
use crate::shm::mutex::{Guard, Party};
use crate::yielding::Yielding;

/// How long a sleeper trusts that somebody leads.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How often a leader lets others run before it starts, at most.
const YIELDS_MAX: u32 = 4;
/// Positions are multiples of 8, so the parity of a group fits into the lowest bit.
const PARITY: u64 = 1;

/// The log of one live session, as one process sees it.
#[derive(Debug)]
pub struct Log {
    ring: Ring,
    file: LogFile,
    base_wal: BaseWal,
    yielding: Yielding,
    party: Arc<Party>,
}

/// A snapshot of the log's state, for `plait_status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogStatus {
    /// The commit point.
    pub log_end: Lsn,
    /// In the file.
    pub written_through: Lsn,
    /// On disk.
    pub durable_through: Lsn,
    /// Segments that hold unmerged generations.
    pub live_segments: u64,
    /// Slots of the file.
    pub slots: u32,
    /// Slots that the file may have.
    pub slot_limit: u32,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Syncs so far.
    pub syncs: u64,
    /// Writes so far.
    pub writes: u64,
    /// The errno that stopped the log.
    pub poisoned: Option<i32>,
}

impl Log {
    /// Puts the ring and the file of one session together; `base_wal` is what its frames rely on, `party` who takes its locks.
    pub fn new(ring: Ring, file: LogFile, base_wal: BaseWal, party: Arc<Party>) -> Log {
        assert_eq!(ring.shared().segment_bytes(), file.header().segment_bytes);
        assert_eq!(ring.shared().salt(), file.header().salt);
        Log { ring, file, base_wal, yielding: Yielding::default(), party }
    }

    /// The ring, for committers and for redo.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The file.
    pub fn file(&self) -> &LogFile {
        &self.file
    }

    /// The state in shared memory.
    pub fn shared(&self) -> &LogShared {
        self.ring.shared()
    }

    fn check_poison(&self) -> Result<(), LogError> {
        match self.shared().poisoned() {
            Some(errno) => Err(LogError::Poisoned { errno }),
            None => Ok(()),
        }
    }

    /// Returns when every frame that ends at or before `lsn` is on disk. `lsn` is published.
    ///
    /// # Errors
    /// The failure that poisoned the log: it is then not known whether the frames are on disk.
    pub fn sync_through(&self, lsn: Lsn) -> Result<(), LogError> {
        let shared = self.shared();
        debug_assert!(lsn <= shared.log_end(), "only published positions can become durable");
        let group = &shared.group;
        let (mut slept, mut unanswered) = (false, false);
        loop {
            // Acquire pairs with the leader's Release: see the module header for why the order of these loads and the
            // second look at `run` suffice.
            let run = group.run.load(Acquire);
            let parity = (run & PARITY) as usize;
            let covered = lsn.get() <= run & !PARITY;
            let mine = if covered { parity } else { 1 - parity };
            let seen = group.words[mine].load(Acquire);
            if shared.durable_through() >= lsn {
                return Ok(());
            }
            self.check_poison()?;
            if group.run.load(Acquire) != run {
                continue;
            }
            // Nobody has answered for a while: the leader may be dead.
            let free = if unanswered {
                shared.sync_mutex.try_lock_from_dead(&self.party)
            } else {
                shared.sync_mutex.try_lock(&self.party)
            };
            if let Some(sync) = free {
                self.lead(sync, slept)?;
                continue;
            }
            // SeqCst pairs with the SeqCst in `end_group`: either it sees this sleeper, or the word has changed.
            group.sleepers[mine].fetch_add(1, SeqCst);
            let ended = futex::wait(&group.words[mine], seen, Some(LOOK_AGAIN));
            slept = true;
            unanswered = ended == WaitResult::TimedOut;
            group.sleepers[mine].fetch_sub(1, Relaxed);
        }
    }

    /// Writes and syncs everything published, as one group.
    fn lead(&self, sync: Guard<'_>, company: bool) -> Result<(), LogError> {
        let shared = self.shared();
        let inherited = sync.previous_owner_died;
        if let Err(e) = self.check_poison() {
            self.end_group(sync, inherited);
            return Err(e);
        }
        let target = self.gather(company);
        // Relaxed: changes under the sync mutex only, which is held.
        let parity = (shared.group.run.load(Relaxed) & PARITY) ^ PARITY;
        // Release pairs with the Acquire in `sync_through`.
        shared.group.run.store(target.get() | parity, Release);
        crash_point!("log.lead.begun");
        let outcome = self.write_range(&sync, target).and_then(|()| {
            crash_point!("log.lead.written");
            self.file.sync()
        });
        match &outcome {
            Ok(()) => {
                crash_point!("log.lead.synced");
                // Relaxed: a counter.
                shared.group.syncs.fetch_add(1, Relaxed);
                // Release pairs with the Acquire in `durable_through` (invariant 4 of the log).
                shared.group.durable_through.fetch_max(target.get(), Release);
            }
            Err(e) => shared.set_poison(e.errno()),
        }
        self.end_group(sync, inherited || outcome.is_err());
        outcome.map_err(|e| self.fatal(&e))
    }

    /// Lets others append while that brings anything; returns the end of what the group takes. Bounded (C5), and no
    /// yield at all for a lone writer, whom busy readers would otherwise keep from its processor.
    fn gather(&self, company: bool) -> Lsn {
        let shared = self.shared();
        let mut end = shared.log_end();
        // Relaxed: a hint.
        if !company && shared.group.sleepers.iter().all(|s| s.load(Relaxed) == 0) {
            return end;
        }
        for _ in 0..YIELDS_MAX {
            if !self.yielding.once(|| shared.log_end()) {
                return shared.log_end();
            }
            let now = shared.log_end();
            if now == end {
                break;
            }
            end = now;
        }
        end
    }

    /// A failure with published frames at stake: however it looks, it is not one that may be repeated.
    fn fatal(&self, e: &LogError) -> LogError {
        match e {
            LogError::NoSpace { path } => {
                LogError::Io { what: "write", path: path.clone(), errno: libc::ENOSPC }
            }
            other => other.clone(),
        }
    }

    /// Lets go of the sync mutex and wakes: first one who may lead the next group, then the members of this one.
    fn end_group(&self, sync: Guard<'_>, everybody: bool) {
        let group = &self.shared().group;
        // Relaxed: changes under the sync mutex only, which is still held.
        let parity = (group.run.load(Relaxed) & PARITY) as usize;
        drop(sync);
        crash_point!("log.lead.unlocked");
        let next = 1 - parity;
        // SeqCst pairs with the sleepers' SeqCst in `sync_through`.
        group.words[next].fetch_add(1, SeqCst);
        group.words[parity].fetch_add(1, SeqCst);
        if group.sleepers[next].load(SeqCst) > 0 {
            if everybody {
                futex::wake_all(&group.words[next]);
            } else {
                futex::wake_one(&group.words[next]);
            }
        }
        if group.sleepers[parity].load(SeqCst) > 0 {
            futex::wake_all(&group.words[parity]);
        }
    }

    /// Moves published bytes before `target` from the ring to the file, without syncing.
    fn write_range(&self, sync: &Guard<'_>, target: Lsn) -> Result<(), LogError> {
        let shared = self.shared();
        let mut at = shared.written_through();
        if at < target {
            self.base_wal.sync_before(shared, sync)?;
        }
        while at < target {
            let Some(piece) = shared.piece(at, target) else {
                unreachable!("published bytes at {at} belong to no segment");
            };
            let number = piece.segment.number;
            let Some(slot) = shared.slot_of(number, sync) else {
                unreachable!("segment {number} was published without a prepared slot");
            };
            if piece.from == shared.segment_start(number) {
                self.file.write_slot_header(slot, &piece.segment)?;
            }
            let (first, second) = self.ring.unwritten(sync, piece.from, piece.to);
            self.file.write_stream(slot, piece.from, first)?;
            if !second.is_empty() {
                self.file.write_stream(slot, piece.from + first.len() as u64, second)?;
            }
            // Relaxed: a counter.
            shared.group.writes.fetch_add(1, Relaxed);
            at = piece.to;
            // Release pairs with the Acquire in `written_through`: after it the ring's bytes may be overwritten.
            shared.group.written_through.fetch_max(at.get(), Release);
        }
        Ok(())
    }

    fn write_locked(&self, sync: Guard<'_>, target: Lsn) -> Result<(), LogError> {
        let inherited = sync.previous_owner_died;
        let outcome = self.check_poison().and_then(|()| self.write_range(&sync, target));
        if let Err(e) = &outcome {
            self.shared().set_poison(e.errno());
        }
        self.end_group(sync, inherited || outcome.is_err());
        outcome.map_err(|e| self.fatal(&e))
    }

    /// Returns when everything before `lsn` is in the file, synced or not.
    pub fn write_through(&self, lsn: Lsn) -> Result<(), LogError> {
        let shared = self.shared();
        if shared.written_through() >= lsn {
            return self.check_poison();
        }
        let sync = shared.sync_mutex.lock(&self.party);
        self.write_locked(sync, shared.log_end())
    }

    /// What a commit under NORMAL or OFF does instead of waiting: nothing, or one write when a quarter of the window waits.
    pub fn relaxed_commit(&self, end: Lsn) -> Result<(), LogError> {
        let shared = self.shared();
        let waiting = end.get().saturating_sub(shared.written_through().get());
        if waiting <= shared.window_bytes() / 4 {
            return self.check_poison();
        }
        match shared.sync_mutex.try_lock(&self.party) {
            Some(sync) => self.write_locked(sync, shared.log_end()),
            None => self.check_poison(),
        }
    }

    /// Does what an append lacked, without the commit mutex; then append again.
    ///
    /// # Errors
    /// [`LogError::Full`] at the configured limit and [`LogError::NoSpace`] on a full disk: nothing happened, and
    /// the commit may be tried again when a merge has freed segments, or when there is space.
    pub fn make_room(&self, lacking: AppendError) -> Result<(), LogError> {
        let shared = self.shared();
        match lacking {
            AppendError::RingFull => self.write_through(shared.log_end()),
            AppendError::NeedsSlots(slots) => self.grow(slots),
            AppendError::LimitReached => Err(LogError::Full {
                path: self.file.path().to_owned(),
                limit_bytes: u64::from(shared.slot_limit()) * shared.segment_bytes(),
            }),
            AppendError::TooLong => {
                Err(LogError::TooLong { len_bytes: 0, max_bytes: shared.max_frame_bytes() })
            }
            AppendError::Poisoned(errno) => Err(LogError::Poisoned { errno }),
        }
    }

    /// Prepares one slot ahead of need if none is left and the limit allows; for moments when nobody waits.
    /// A full disk is no error here: it is reported when a slot is really needed.
    pub fn prepare_spare(&self) -> Result<(), LogError> {
        let shared = self.shared();
        let wanted = self.live_segments() + 1;
        if wanted <= u64::from(shared.prepared_slots.load(Acquire))
            || wanted > u64::from(shared.slot_limit())
        {
            return Ok(());
        }
        let Some(grow) = shared.grow_mutex.try_lock(&self.party) else {
            return Ok(());
        };
        match self.grow_locked(&grow, wanted as u32) {
            Err(LogError::NoSpace { .. }) => Ok(()),
            other => other,
        }
    }

    /// Extends the file until it has `slots` prepared slots.
    fn grow(&self, slots: u32) -> Result<(), LogError> {
        let grow = self.shared().grow_mutex.lock(&self.party);
        self.grow_locked(&grow, slots)
    }

    fn grow_locked(&self, grow: &Guard<'_>, slots: u32) -> Result<(), LogError> {
        let shared = self.shared();
        debug_assert!(grow.holds(&shared.grow_mutex));
        self.check_poison()?;
        // Relaxed: changes under the grow mutex only, which is held.
        let have = shared.prepared_slots.load(Relaxed);
        if have >= slots {
            return Ok(());
        }
        for slot in have..slots {
            self.file.fill_slot(slot)?;
        }
        crash_point!("log.grow.filled");
        if let Err(e) = self.file.sync() {
            // The sync may have been told of a lost page that a group wrote, and the group's own would not be.
            shared.set_poison(e.errno());
            return Err(e);
        }
        // Release pairs with the Acquire in `check_slots` and `slot_of` (invariant 3 of the log).
        shared.prepared_slots.store(slots, Release);
        Ok(())
    }

    fn live_segments(&self) -> u64 {
        let shared = self.shared();
        let first = shared.first_live_segment.load(Acquire);
        match shared.segment_before(shared.log_end()) {
            Some(last) => (last.number + 1).saturating_sub(first),
            None => 0,
        }
    }

    /// Lets the segments of all generations through `generation` be used again.
    ///
    /// Only after the base durably states that it includes them (F4). Segments that are not written to the file yet
    /// stay; call [`Log::sync_through`] before the merge.
    pub fn retire(&self, generation: Generation) {
        self.shared().give_back(generation);
    }

    /// The state now; the parts are read one after the other.
    pub fn status(&self) -> LogStatus {
        let shared = self.shared();
        let slots = shared.prepared_slots.load(Acquire);
        LogStatus {
            durable_through: shared.durable_through(),
            written_through: shared.written_through(),
            log_end: shared.log_end(),
            live_segments: self.live_segments(),
            slots,
            slot_limit: shared.slot_limit(),
            file_bytes: slot_offset(slots, shared.segment_bytes()),
            syncs: shared.group.syncs.load(Relaxed),
            writes: shared.group.writes.load(Relaxed),
            poisoned: shared.poisoned(),
        }
    }
}
