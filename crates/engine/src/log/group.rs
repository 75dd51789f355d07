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
//! Writing (write.rs) and syncing are apart. Bytes go from the ring to the file under the write mutex, which nobody holds during a
//! sync: so a commit under NORMAL that needs room in the ring writes for itself, whatever a leader waits for. The sync mutex
//! only says who leads.
//!
//! Stopped leader: who has watched one group for [`BESIDE_AFTER`] without its end syncs beside it, without the sync mutex,
//! one for each such period and one at a time in each process; while that group stays, its process goes on so at once. Two syncs of
//! one file at once are harmless, since each makes durable only what was written before it began. Neither is a leader waited for that
//! stands still in its write (INTENT-1 in write.rs).
//!
//! Killed leader: the mutex survives it and sleepers look again every [`LOOK_AGAIN`], so one of them takes
//! over and writes again from `written_through` (LOG-2 makes that harmless). After it,
//! everybody is woken, since members of the dead group sleep on either word.
//!
//! The kernel tells each open file once that a page was lost. So the syncs of one process, which share theirs, exclude each
//! other, and a failed one has poisoned the log before the next begins.
//!
//! Failure (COMMIT-4): a failed write or sync poisons the log for every process. It is not retried, since after a
//! failed sync nobody knows what is on disk. Space for everything published was allocated beforehand
//! (LOG-3), so a full disk shows in [`Log::make_room`], where nothing is at risk.
//!
//! Whoever has synced looks whether the file is still under its name ([`Log::look`]), before anybody is told.
//!
//! A failure of the sync of the base's WAL before a write is one of the log's.
//!
//! What only this process cannot do (no descriptor for the base's WAL, a limit of file sizes) is left to others and stops nothing. A
//! commit that needs it fails before its commit point if that is known by then ([`Log::prepare`]).
//!
//! What was acknowledged under NORMAL is in the memtables. A failure of the log's file does not touch those, and so they are brought into
//! the base before shared memory is given up (session/restore.rs), unless what they rely on is in doubt (`LogShared::is_in_doubt`).
//!
//! Lock order: a leader takes the write mutex under the sync mutex. The write mutex and the grow mutex are leaves; none of the
//! three is taken while the commit mutex is held.

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
use crate::sync::wait::{self, Stands, Watch};
use crate::sync::yielding::Yielding;

/// How long a sleeper trusts that somebody leads.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How long a waiter watches one group before it syncs by itself: longer than a sync takes on a disk that is well.
pub(super) const BESIDE_AFTER: Duration = Duration::from_millis(250);
/// How often a leader lets others run before it starts, at most.
const YIELDS_MAX: u32 = 4;
/// Of who falls asleep: first the number of sleepers, then the look at the word. Of who ends a group: first the words, then the look at
/// the number. In one order of all four, so that one of the two sees the other.
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
    /// Held by the thread of this process that writes to the file, with room for what it writes.
    pub(super) writing: Mutex<Vec<u8>>,
    /// The owner of the write mutex that this process has found standing still, 0 for none (write.rs).
    pub(super) standing: AtomicU64,
    /// The group whose leader this process has found standing still, 0 for none.
    standing_run: AtomicU64,
}

/// The database file that the log stands beside.
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
    /// Puts the ring and the file of one session together; `base_wal` is what its frames rely on, `party` who takes its locks.
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

    /// What a sync for this process or others may need later, while a commit can still fail for the lack of it.
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

    /// Looks whether the file is where the next opening looks for it, whole. If not, a power cut would take what is
    /// written to it, and so would the next opening if shared memory were gone by then: the log stops for everybody (COMMIT-4).
    ///
    /// Where the database file is not under its name either nothing is concluded: the folder may have another name now, and whoever
    /// has moved both away is told when it writes (`fits.c`).
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

    /// With the database file beside it.
    #[must_use]
    pub fn beside(mut self, base: BaseFile) -> Log {
        self.base_file = Some(base);
        self
    }

    /// Returns when every frame that ends at or before `lsn` is on disk. `lsn` is published.
    ///
    /// # Errors
    /// The failure that poisoned the log: it is then not known whether the frames are on disk.
    pub fn sync_through(&self, lsn: Lsn) -> Result<(), LogError> {
        self.sync_while(lsn, |_| true).map(drop)
    }

    /// The same for as long as `goes_on` says before each sleep and each sync, and may shorten; false if it has
    /// ended without. A sync that has begun is not given up.
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
            // Acquire pairs with the leader's Release: see the module header for why the order of these loads and the
            // second look at `run` suffice.
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
            // Either who ends the group sees this sleeper, or the word has changed.
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
        // Relaxed: changes under the sync mutex only, which is held.
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

    /// Syncs what is written. It was before this began, through `target` at least (LOG-4); `newest` was loaded before that.
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

    /// The one sync of the file that this process has running.
    fn sync_file(&self, one: MutexGuard<'_, ()>) -> Result<(), LogError> {
        self.check_poison()?;
        let is_synced = fault::is_planted("log.unsynced");
        let synced = if is_synced { Ok(()) } else { self.file.sync() };
        if let Err(e) = &synced {
            // It may have been told of a page that another group or thread wrote, which would not be told again.
            self.shared().set_failed(e.errno());
        }
        let synced = synced.and_then(|()| self.look());
        drop(one);
        // What another open file was told of may concern this one.
        synced.and_then(|()| self.check_poison())
    }

    /// Syncs by itself beside a leader who does not come to an end; false if another is at it, whom `seen` precedes.
    fn sync_beside(&self, seen: u32) -> Result<bool, LogError> {
        let shared = self.shared();
        let group = &shared.group;
        let one = match self.syncing.try_lock() {
            Ok(one) => one,
            Err(TryLockError::Poisoned(e)) => e.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(false),
        };
        // Relaxed: it only chooses one of those who come here together.
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

    /// Lets others append while that brings anything. Bounded (COMMIT-5), and no
    /// yield at all for a lone writer, whom busy readers would otherwise keep from its processor.
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

    /// A failure with published frames at stake: however it looks, it is not one that may be repeated.
    pub(super) fn fatal(&self, e: &LogError) -> LogError {
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

    /// Does what an append lacked, without the commit mutex; then append again.
    ///
    /// # Errors
    /// [`LogError::Full`] at the configured limit and [`LogError::NoSpace`] on a full disk: nothing happened, and
    /// the commit may be tried again when a merge has freed segments, or when there is space.
    pub fn make_room(&self, lacking: AppendError) -> Result<(), LogError> {
        let shared = self.shared();
        match lacking {
            AppendError::RingFull => self.write_through(shared.log_end()),
            AppendError::NeedsSlots(slots) => self.grow(u64::from(slots) * shared.segment_bytes()),
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

    /// Prepares one slot ahead of need if none is left and the limit allows; for moments when nobody waits.
    /// A full disk is no error here: it is reported when a slot is really needed.
    pub fn prepare_spare(&self) -> Result<(), LogError> {
        let shared = self.shared();
        if !shared.prepared_bytes().is_multiple_of(shared.segment_bytes()) {
            // A session that has written little so far.
            return Ok(());
        }
        self.prepare_next_segment()
    }

    /// The same, however little was written: the next generation is about to begin beside this one.
    pub fn prepare_next_segment(&self) -> Result<(), LogError> {
        let shared = self.shared();
        let wanted = self.live_segments() + 1;
        if wanted <= u64::from(shared.prepared_slots()) || wanted > u64::from(shared.slot_limit()) {
            return Ok(());
        }
        let wanted = wanted * shared.segment_bytes();
        let Some(grow) = shared.grow_mutex.try_lock(&self.party) else {
            return Ok(());
        };
        if wanted <= shared.filled_bytes.load(Relaxed) {
            // Who has filled it syncs it, or whoever needs it.
            return Ok(());
        }
        match self.fill(grow, wanted).and_then(|filled| self.prepare_filled(filled)) {
            Err(LogError::NoSpace { .. }) => Ok(()),
            other => other,
        }
    }

    /// Room for so many bytes and as many again, but for no more than the slot in which they end.
    fn worth_preparing(&self, bytes: u64) -> u64 {
        let whole = bytes.next_multiple_of(self.shared().segment_bytes());
        (2 * bytes).next_power_of_two().min(whole)
    }

    /// Extends the file until it has prepared room for so many bytes.
    fn grow(&self, bytes: u64) -> Result<(), LogError> {
        let grow = self.lock_grow()?;
        let filled = self.fill(grow, bytes)?;
        self.prepare_filled(filled)
    }

    /// A filler that does not run cannot be helped: its zeros may come at any time. Nothing has happened yet to who gives up.
    fn lock_grow(&self) -> Result<Guard<'_>, LogError> {
        let mutex = &self.shared().grow_mutex;
        let look = || mutex.holder();
        wait::lock_while_it_gets_on(mutex, &self.party, LOOK_AGAIN, look).map_err(|e| match e {
            Stands::Interrupted => LogError::Interrupted,
            Stands::Still { seen: who, waited } => LogError::GrowerStands { who, waited },
        })
    }

    /// Fills the file with zeros until it has room for `bytes`; returns for how many it has. A place is filled once: its filler has
    /// the mutex until it is done, so that no late zero meets a slot in use.
    fn fill(&self, grow: Guard<'_>, bytes: u64) -> Result<u64, LogError> {
        let shared = self.shared();
        debug_assert!(grow.holds(&shared.grow_mutex));
        self.check_poison()?;
        // A file that was cut short would be long enough again, with a hole where frames were.
        self.look()?;
        // Relaxed: changes under the grow mutex only, which is held.
        let have = shared.filled_bytes.load(Relaxed);
        self.file.fill(have, bytes)?;
        crash_point!("log.grow.filled");
        let filled = have.max(bytes);
        shared.filled_bytes.store(filled, Relaxed);
        Ok(filled)
    }

    /// Makes the space of what is filled durable. Without the grow mutex: who waits for room waits for nobody else's sync.
    fn prepare_filled(&self, filled: u64) -> Result<(), LogError> {
        let shared = self.shared();
        if shared.prepared_bytes() >= filled {
            return Ok(());
        }
        self.sync_file(one_at_a_time(&self.syncing))?;
        // Of two that come together the later one may say less, which asks for less.
        self.file.write_room(filled)?;
        // Release pairs with the Acquire in `prepared_bytes` (LOG-3).
        shared.prepared_bytes.fetch_max(filled, Release);
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
    /// Only after the base durably states that it includes them (FILE-4). Segments that are not written to the file yet
    /// stay; call [`Log::sync_through`] before the merge.
    pub fn retire(&self, generation: Generation) {
        self.shared().give_back(generation);
    }

    /// The state now; the parts are read one after the other.
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

/// The turn of this thread among those of its process. What it orders is in shared memory: a panic leaves nothing half done here.
pub(super) fn one_at_a_time<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
