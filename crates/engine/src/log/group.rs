//! Group commit: from the ring to the file, and one sync for all waiters.
//!
//! A thread that needs a position on disk and finds the sync mutex free leads: it writes everything
//! published and not yet written, syncs once, moves `durable_through`, and wakes the waiters. All
//! other threads sleep.
//!
//! Groups alternate between two futex words by parity, so that a finished sync wakes the members of
//! its own group and just one waiter that came too late, which leads the next. `run` is one atomic
//! word for the running (or last) group: the position that it makes durable and its parity. A
//! waiter that this position covers sleeps on that parity's word, any other on the other word. Both
//! words change when a group ends, so a waiter that decided by an old state does not fall asleep.
//!
//! A leader that has company lets other threads run first, as long as that brings frames: the
//! members of the last group were just woken and are about to commit again. Without this two half
//! groups would take turns.
//!
//! Writing (write.rs) and syncing are apart. Bytes go from the ring to the file under the write
//! mutex, which no thread holds during a sync. So a commit under NORMAL that needs room in the ring
//! writes for itself, whatever a leader waits for. The sync mutex only says who leads.
//!
//! Stopped leader: a waiter that has watched one group for [`BESIDE_AFTER`] syncs in parallel,
//! without the sync mutex. One waiter does so in each such period, and one at a time in each
//! process. While that group lasts, later waiters of the same process do so at once. Parallel syncs
//! of one file are harmless, since each makes durable only what was written before it began. Nor
//! does a leader that is stopped in its write hold up the others (INTENT-1 in write.rs).
//!
//! Killed leader: the mutex survives it, and sleepers look again every [`LOOK_AGAIN`]. So one of
//! them takes over and writes again from `written_through` (LOG-2 makes that harmless). It then
//! wakes every sleeper, since members of the dead group sleep on either word.
//!
//! The kernel reports a lost page once to each open file. The threads of a process share one, so
//! their syncs exclude each other, and a failed sync has poisoned the log before the next begins.
//!
//! Failure (COMMIT-4): a failed write or sync poisons the log for every process. It is not retried,
//! since after a failed sync it is unknown what is on disk. Space for everything published was
//! allocated beforehand (LOG-3), so a full disk shows in [`Log::make_room`], where nothing is at
//! risk.
//!
//! After a sync, before any waiter returns, the syncing thread checks that the file is still under
//! its name ([`Log::look`]).
//!
//! A failed sync of the base's WAL before a write is a failure of the log.
//!
//! What only this process cannot do (no descriptor for the base's WAL, a limit of file sizes) is
//! left to others and stops nothing. A commit that needs it fails before its commit point if the
//! lack is known by then ([`Log::prepare`]).
//!
//! What was acknowledged under NORMAL is in the memtables, which a failure of the log's file does
//! not touch. They are brought into the base before shared memory is given up (session/restore.rs),
//! unless what they rely on is in doubt (`LogShared::is_in_doubt`).
//!
//! Lock order: a leader takes the write mutex under the sync mutex. The write mutex and the grow
//! mutex are leaves. None of the three is taken while the commit mutex is held.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release, SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use super::before::BaseWal;
use super::error::{AppendError, LogError};
use super::file::{LogFile, slot_offset};
use super::ring::Ring;
use super::shared::LogShared;
use crate::crash_point;
use crate::fault;
use crate::ids::{Generation, Lsn};
use crate::storage::FileIdentity;
use crate::sync::futex::{self, WaitResult};
use crate::sync::mutex::{Guard, Party};
use crate::sync::wait::{self, GaveUpWaiting, Watch};
use crate::sync::yielding::Yielding;

/// How long a sleeper trusts that a leader is at work.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How long a waiter watches one group before it syncs by itself: longer than a sync takes on a
/// healthy disk.
pub(super) const BESIDE_AFTER: Duration = Duration::from_millis(250);
/// How often a leader yields before it starts, at most.
const YIELDS_MAX: u32 = 4;
/// A sleeper first counts itself, then reads the word. A leader that ends a group first changes the
/// words, then reads the count. All four are in one order, so that one of the two sees the other.
pub(super) const SLEEPS_AND_WAKES: Ordering = SeqCst;
/// Positions are multiples of 8, so the parity of a group fits into the lowest bit.
pub(super) const PARITY: u64 = 1;

/// The log of one live session, as one process sees it.
#[derive(Debug)]
pub struct Log {
    pub(super) ring: Ring,
    pub(super) file: LogFile,
    pub(super) base_wal: BaseWal,
    base_file: Option<BaseFile>,
    yielding: Yielding,
    pub(super) party: Arc<Party>,
    /// Held by the thread of this process that syncs the file.
    syncing: Mutex<()>,
    /// Held by the thread of this process that syncs the base's WAL.
    pub(super) syncing_base: Mutex<()>,
    /// Held by the thread of this process that writes to the file; the buffer of that thread.
    pub(super) writing: Mutex<Vec<u8>>,
    /// The owner of the write mutex that this process has found stopped, 0 for none (write.rs).
    pub(super) standing: AtomicU64,
    /// The group whose leader this process has found stopped, 0 for none.
    standing_run: AtomicU64,
}

/// The database file of the log.
#[derive(Debug)]
pub struct BaseFile {
    /// Its name.
    pub path: PathBuf,
    /// Which file it is.
    pub identity: FileIdentity,
}

impl BaseFile {
    fn is_in_place(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == self.identity)
    }
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
    /// Joins ring and file of one session. Its frames rely on `base_wal`, and `party` takes its
    /// locks.
    pub fn new(ring: Ring, file: LogFile, base_wal: BaseWal, party: Arc<Party>) -> Log {
        assert_eq!(ring.shared().segment_bytes(), file.header().segment_bytes);
        assert_eq!(ring.shared().salt(), file.header().salt);
        Log {
            ring,
            file,
            base_wal,
            base_file: None,
            yielding: Yielding::default(),
            party,
            syncing: Mutex::default(),
            syncing_base: Mutex::default(),
            writing: Mutex::default(),
            standing: AtomicU64::new(0),
            standing_run: AtomicU64::new(0),
        }
    }

    /// Prepares what a later sync may need, for this process or another, while a commit can still
    /// fail for the lack of it.
    ///
    /// # Errors
    /// [`LogError::FileSizeLimit`]; those of opening the base's WAL.
    pub fn prepare(&self, file_size_limit: Option<u64>) -> Result<(), LogError> {
        let needed_bytes = slot_offset(self.shared().slot_limit(), self.shared().segment_bytes());
        if let Some(limit_bytes) = file_size_limit.filter(|&limit| limit < needed_bytes) {
            let path = self.file.path().to_owned();
            return Err(LogError::FileSizeLimit { path, limit_bytes, needed_bytes });
        }
        self.base_wal.prepare(self.shared())
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

    pub(super) fn check_poison(&self) -> Result<(), LogError> {
        self.shared().check(self.file.path())
    }

    /// Checks that the whole file is where the next opening looks for it. If not, a power cut would
    /// take what is written to it, or the next opening if shared memory is gone by then: the log
    /// stops for every process (COMMIT-4).
    ///
    /// If the database file is not under its name either, nothing is concluded: the folder may have
    /// been renamed, and a process that moved both files away fails when it writes (`fits.c`).
    ///
    /// # Errors
    /// [`LogError::Lost`].
    pub fn look(&self) -> Result<(), LogError> {
        let is_base_there = || self.base_file.as_ref().is_none_or(BaseFile::is_in_place);
        if self.file.is_whole(self.shared().file_bytes()) || !is_base_there() {
            return Ok(());
        }
        let lost = LogError::Lost { path: self.file.path().to_owned() };
        self.shared().stop_after(&lost);
        Err(lost)
    }

    /// Adds the database file.
    #[must_use]
    pub fn beside(mut self, base: BaseFile) -> Log {
        self.base_file = Some(base);
        self
    }

    /// Returns when every frame that ends at or before `lsn` is on disk. `lsn` is published.
    ///
    /// # Errors
    /// The failure that poisoned the log. Whether the frames are on disk is then unknown.
    pub fn sync_through(&self, lsn: Lsn) -> Result<(), LogError> {
        self.sync_while(lsn, |_| true).map(drop)
    }

    /// As [`Log::sync_through`], while `goes_on` agrees. It is called before each sleep and each
    /// sync, and may shorten the sleep. Returns false if it ended the wait. A sync that has begun
    /// is not given up.
    ///
    /// # Errors
    /// As [`Log::sync_through`].
    pub(crate) fn sync_while(
        &self,
        lsn: Lsn,
        mut goes_on: impl FnMut(&mut Duration) -> bool,
    ) -> Result<bool, LogError> {
        let shared = self.shared();
        debug_assert!(lsn <= shared.log_end(), "only published positions can become durable");
        let group = &shared.group;
        let (mut slept, mut unanswered) = (false, false);
        let mut watch = Watch::begin();
        loop {
            // Acquire pairs with the leader's Release. The module header says why the order of
            // these loads and the second look at `run` suffice.
            let run = group.run.load(Acquire);
            let parity = (run & PARITY) as usize;
            let covered = lsn.get() <= run & !PARITY;
            let mine = if covered { parity } else { 1 - parity };
            let seen = group.words[mine].load(Acquire);
            if shared.durable_through() >= lsn {
                return Ok(true);
            }
            self.check_poison()?;
            if group.run.load(Acquire) != run {
                continue;
            }
            let mut longest = LOOK_AGAIN;
            if !goes_on(&mut longest) {
                return Ok(false);
            }
            // No leader has woken this thread for a while: the leader may be dead.
            let free = if unanswered {
                shared.sync_mutex.try_lock_from_dead(&self.party)
            } else {
                shared.sync_mutex.try_lock(&self.party)
            };
            if let Some(sync) = free {
                self.lead(sync, slept)?;
                continue;
            }
            // Relaxed: a counter.
            let state = (run, group.beside.load(Relaxed));
            if let Some(stood) = watch.look(state) {
                // Relaxed: a hint.
                let stands = self.standing_run.load(Relaxed) == run;
                if (stands || stood >= BESIDE_AFTER) && self.sync_beside(state.1)? {
                    self.standing_run.store(run, Relaxed);
                    continue;
                }
            }
            // Either the leader sees this sleeper when it ends the group, or the word has changed.
            group.sleepers[mine].fetch_add(1, SLEEPS_AND_WAKES);
            let ended = futex::wait(&group.words[mine], seen, Some(longest));
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
        self.gather(company);
        // In this order: see `newest_ts`.
        let newest = shared.newest_ts();
        let target = shared.log_end();
        // Relaxed: it changes under the sync mutex only, which is held.
        let parity = (shared.group.run.load(Relaxed) & PARITY) ^ PARITY;
        // Release pairs with the Acquire in `sync_through`.
        shared.group.run.store(target.get() | parity, Release);
        crash_point!("log.lead.begun");
        let outcome = self.write_to(target).and_then(|()| {
            crash_point!("log.lead.written");
            self.make_durable(one_at_a_time(&self.syncing), target, newest)
        });
        self.end_group(sync, inherited || outcome.is_err());
        outcome.map_err(|e| self.fatal(&e))
    }

    /// Syncs the file. Everything before `target` was written before this began (LOG-4), and
    /// `newest` was loaded before that.
    fn make_durable(
        &self,
        one: MutexGuard<'_, ()>,
        target: Lsn,
        newest: u64,
    ) -> Result<(), LogError> {
        let shared = self.shared();
        let group = &shared.group;
        self.sync_file(one)?;
        crash_point!("log.lead.synced");
        shared.note_sync();
        // Release pairs with the Acquire in `durable_through`.
        group.durable_through.fetch_max(target.get(), Release);
        if !shared.base_is_unsynced() {
            shared.note_durable_ts(newest);
        }
        Ok(())
    }

    /// Syncs the file. `one` makes this the only such sync of this process.
    fn sync_file(&self, one: MutexGuard<'_, ()>) -> Result<(), LogError> {
        self.check_poison()?;
        let is_synced = fault::is_planted("log.unsynced");
        let synced = if is_synced { Ok(()) } else { self.file.sync() };
        if let Err(e) = &synced {
            // The kernel may have reported a page that another group or thread wrote, and will not
            // report it again.
            self.shared().set_failed(e.errno());
        }
        let synced = synced.and_then(|()| self.look());
        drop(one);
        // What the kernel reported to another open file may concern this one.
        synced.and_then(|()| self.check_poison())
    }

    /// Syncs in parallel with a leader that does not finish. Returns false if another thread of
    /// this process does, or another process since `beside` was `seen`.
    fn sync_beside(&self, seen: u32) -> Result<bool, LogError> {
        let shared = self.shared();
        let group = &shared.group;
        let one = match self.syncing.try_lock() {
            Ok(one) => one,
            Err(TryLockError::Poisoned(e)) => e.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(false),
        };
        // Relaxed: it only chooses one of the waiters that come here together.
        if group.beside.compare_exchange(seen, seen.wrapping_add(1), Relaxed, Relaxed).is_err() {
            return Ok(false);
        }
        let newest = shared.newest_ts();
        let target = shared.log_end();
        let outcome = self.write_to(target).and_then(|()| self.make_durable(one, target, newest));
        for i in 0..2 {
            group.words[i].fetch_add(1, SLEEPS_AND_WAKES);
            futex::wake_all(&group.words[i]);
        }
        outcome.map(|()| true).map_err(|e| self.fatal(&e))
    }

    /// Yields to other threads as long as that brings frames, but a bounded number of times
    /// (COMMIT-5). A lone writer does not yield at all: busy readers would keep it from its
    /// processor.
    fn gather(&self, company: bool) {
        let shared = self.shared();
        let mut end = shared.log_end();
        // Relaxed: a hint.
        if !company && shared.count_sleepers() == 0 {
            return;
        }
        for _ in 0..YIELDS_MAX {
            if !self.yielding.once(|| shared.log_end()) {
                return;
            }
            let now = shared.log_end();
            if now == end {
                break;
            }
            end = now;
        }
    }

    /// Makes an error of a failure with published frames at stake, which must not invite a retry.
    pub(super) fn fatal(&self, e: &LogError) -> LogError {
        match e {
            LogError::NoSpace { path } => {
                LogError::Io { what: "write", path: path.clone(), errno: libc::ENOSPC }
            }
            other => other.clone(),
        }
    }

    /// Releases the sync mutex and wakes: first a waiter that may lead the next group, then the
    /// members of this one.
    fn end_group(&self, sync: Guard<'_>, everybody: bool) {
        let group = &self.shared().group;
        // Relaxed: it changes under the sync mutex only, which is still held.
        let parity = (group.run.load(Relaxed) & PARITY) as usize;
        drop(sync);
        crash_point!("log.lead.unlocked");
        let next = 1 - parity;
        group.words[next].fetch_add(1, SLEEPS_AND_WAKES);
        group.words[parity].fetch_add(1, SLEEPS_AND_WAKES);
        if group.sleepers[next].load(SLEEPS_AND_WAKES) > 0 {
            if everybody {
                futex::wake_all(&group.words[next]);
            } else {
                futex::wake_one(&group.words[next]);
            }
        }
        if group.sleepers[parity].load(SLEEPS_AND_WAKES) > 0 {
            futex::wake_all(&group.words[parity]);
        }
    }

    /// Does what an append lacked, without the commit mutex. Then append again.
    ///
    /// # Errors
    /// [`LogError::Full`] at the configured limit, [`LogError::NoSpace`] on a full disk. Nothing
    /// happened, and the commit may be retried when a merge has freed segments, or when there is
    /// space.
    pub fn make_room(&self, lacking: AppendError) -> Result<(), LogError> {
        let shared = self.shared();
        match lacking {
            AppendError::RingFull => self.write_through(shared.log_end()),
            AppendError::NeedsSlots(slots) => self.grow_or_break_hold(slots),
            AppendError::NeedsBytes(bytes) => self.grow(self.worth_preparing(bytes)),
            AppendError::NeedsRing(_) => unreachable!("shared memory is its owner's to allocate"),
            AppendError::LimitReached => Err(LogError::Full {
                path: self.file.path().to_owned(),
                limit_bytes: u64::from(shared.slot_limit()) * shared.segment_bytes(),
            }),
            AppendError::TooLong => {
                Err(LogError::TooLong { len_bytes: 0, max_bytes: shared.max_frame_bytes() })
            }
            AppendError::Poisoned(errno) => {
                self.check_poison().and(Err(LogError::Poisoned { errno }))
            }
        }
    }

    /// Extends the file to so many slots. If it cannot have them, and a hold is why it needs so many,
    /// there is room once that is broken (HELD-2).
    fn grow_or_break_hold(&self, slots: u32) -> Result<(), LogError> {
        let shared = self.shared();
        match self.grow(u64::from(slots) * shared.segment_bytes()) {
            Ok(()) => Ok(()),
            Err(LogError::Interrupted) => Err(LogError::Interrupted),
            Err(_) if shared.break_hold() => Ok(()),
            failed => failed,
        }
    }

    /// Prepares one slot ahead of need if none is left and the limit allows it. For moments when no
    /// commit waits. A full disk is no error here: it is reported when a slot is really needed.
    pub fn prepare_spare(&self) -> Result<(), LogError> {
        if self.wants_spare() { self.prepare_next_segment() } else { Ok(()) }
    }

    /// True if [`Log::prepare_spare`] would prepare a slot, if it can.
    pub(crate) fn wants_spare(&self) -> bool {
        let shared = self.shared();
        // If not, it is a session that has written little so far.
        let is_whole = shared.prepared_bytes().is_multiple_of(shared.segment_bytes());
        is_whole && self.wants_slots().is_some()
    }

    /// Slots with one more than the log needs now, if that is more than it has and may have.
    fn wants_slots(&self) -> Option<u64> {
        let shared = self.shared();
        let wanted = self.segments_from(shared.first_needed_segment()) + 1;
        let allowed = u64::from(shared.slots_allowed());
        (u64::from(shared.prepared_slots()) < wanted && wanted <= allowed).then_some(wanted)
    }

    /// As [`Log::prepare_spare`], however little was written: the next generation is about to
    /// begin, in a slot of its own.
    pub fn prepare_next_segment(&self) -> Result<(), LogError> {
        let shared = self.shared();
        let Some(wanted) = self.wants_slots() else { return Ok(()) };
        let wanted = wanted * shared.segment_bytes();
        let Some(grow) = shared.grow_mutex.try_lock(&self.party) else {
            return Ok(());
        };
        if wanted <= shared.filled_bytes.load(Relaxed) {
            // The process that filled it syncs it, or a process that needs it.
            return Ok(());
        }
        match self.fill(grow, wanted).and_then(|filled| self.prepare_filled(filled)) {
            Err(LogError::NoSpace { .. }) => Ok(()),
            other => other,
        }
    }

    /// Room for `bytes` bytes and as many again, but for no more than the slot in which they end.
    fn worth_preparing(&self, bytes: u64) -> u64 {
        let whole = bytes.next_multiple_of(self.shared().segment_bytes());
        (2 * bytes).next_power_of_two().min(whole)
    }

    /// Extends the file until it has prepared room for `bytes` bytes.
    fn grow(&self, bytes: u64) -> Result<(), LogError> {
        let grow = self.lock_grow()?;
        let filled = self.fill(grow, bytes)?;
        self.prepare_filled(filled)
    }

    /// Takes the grow mutex. A stopped filler cannot be helped, since its zeros may come at any
    /// time. A caller that gives up has changed nothing.
    fn lock_grow(&self) -> Result<Guard<'_>, LogError> {
        let mutex = &self.shared().grow_mutex;
        let look = || mutex.holder();
        wait::lock_while_progressing(mutex, &self.party, LOOK_AGAIN, look).map_err(|e| match e {
            GaveUpWaiting::Interrupted => LogError::Interrupted,
            GaveUpWaiting::Stalled { seen: who, waited } => LogError::GrowerStalled { who, waited },
        })
    }

    /// Fills the file with zeros until it has room for `bytes`, and returns its room. A place is
    /// filled once: its filler owns the mutex until it is done, so no late zero meets a slot in
    /// use.
    fn fill(&self, grow: Guard<'_>, bytes: u64) -> Result<u64, LogError> {
        let shared = self.shared();
        debug_assert!(grow.holds(&shared.grow_mutex));
        self.check_poison()?;
        // A file that was cut short would get its length back, with a hole where frames were.
        self.look()?;
        // Relaxed: it changes under the grow mutex only, which is held.
        let have = shared.filled_bytes.load(Relaxed);
        self.file.fill(have, bytes)?;
        crash_point!("log.grow.filled");
        let filled = have.max(bytes);
        shared.filled_bytes.store(filled, Relaxed);
        Ok(filled)
    }

    /// Makes the space of filled bytes durable. Not under the grow mutex: a process that waits for
    /// room waits for no other process's sync.
    fn prepare_filled(&self, filled: u64) -> Result<(), LogError> {
        let shared = self.shared();
        if shared.prepared_bytes() >= filled {
            return Ok(());
        }
        self.sync_file(one_at_a_time(&self.syncing))?;
        // Of two parallel writes the later one may note less room, which is the weaker claim.
        self.file.write_room(filled)?;
        // Release pairs with the Acquire in `prepared_bytes` (LOG-3).
        shared.prepared_bytes.fetch_max(filled, Release);
        Ok(())
    }

    fn live_segments(&self) -> u64 {
        self.segments_from(self.shared().first_live_segment.load(Acquire))
    }

    fn segments_from(&self, first: u64) -> u64 {
        let shared = self.shared();
        match shared.segment_before(shared.log_end()) {
            Some(last) => (last.number + 1).saturating_sub(first),
            None => 0,
        }
    }

    /// Lets the segments of all generations through `generation` be reused.
    ///
    /// Only after the base durably states that it includes them (FILE-4). Segments that are not yet
    /// in the file stay: call [`Log::sync_through`] before the merge.
    pub fn retire(&self, generation: Generation) {
        self.shared().give_back(generation);
    }

    /// The present state. Its parts are read one after the other.
    pub fn status(&self) -> LogStatus {
        let shared = self.shared();
        LogStatus {
            durable_through: shared.durable_through(),
            written_through: shared.written_through(),
            log_end: shared.log_end(),
            live_segments: self.live_segments(),
            slots: shared.prepared_slots(),
            slot_limit: shared.slot_limit(),
            file_bytes: shared.file_bytes(),
            syncs: shared.syncs(),
            writes: shared.group.writes.load(Relaxed),
            poisoned: shared.poisoned(),
        }
    }
}

/// Takes this thread's turn among those of its process. It orders work on shared memory, so a panic
/// leaves nothing half done here.
pub(super) fn one_at_a_time<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
