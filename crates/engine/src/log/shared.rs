//! State of the log in shared memory: all that a process needs to go on after another is killed.
//!
//! | field | changed by | read by |
//! |---|---|---|
//! | `log_end`, `reserved_end`, `segments` | owner of the commit mutex | any process |
//! | `run` of `group` | owner of the sync mutex | any process |
//! | `slot_owner` | owner of the commit mutex | owner of the commit mutex |
//! | `written_through` | a writer of the file; only grows | any process |
//! | `writing` | each process its own word | owner of the commit mutex |
//! | `durable_through` | a process that has synced; only grows | any process |
//! | `first_live_segment`, `retired_generation` | a merger, lock-free; only grow | any process |
//! | `base` | see `before.rs` | any process |
//! | `ring_space` | a process that has allocated disk space; only grows | any process |
//! | `filled_bytes` | owner of the grow mutex | owner of the grow mutex |
//! | `prepared_bytes` | a process that has synced filled bytes; only grows | any process |
//! | `poison` | the first failure; lost or failed may still become in doubt | any process |
//! | `file_dev`, `file_ino` | the creator of the file, before the base is fenced | any process |
//! | `hold` | see `hold.rs` | any process |
//!
//! The ring's bytes are elsewhere in the same region. [`LogShared::init`] sets the fields through
//! `first_lsn` once, under the lifecycle lock, before any other process may read them.
//!
//! # The segment table
//!
//! The table says which generation a stretch of the stream belongs to, and which slot holds it.
//!
//! A committer makes an entry under the commit mutex, before it publishes the frame that enters the
//! segment. An entry is meaningful only for a segment that starts before `log_end`: a committer
//! killed before publishing leaves one that the next committer writes again. With its entry a
//! segment is given its slot of the file. A slot given to a segment below `first_live_segment` is
//! free again, unless a hold needs it (hold.rs), so giving segments back is one store. But a free
//! slot is not used while a process may still be writing to it (write.rs).
#![allow(unsafe_code)]

use std::mem::offset_of;
use std::path::Path;
use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

use super::error::{INTERNAL, LogError};
use super::file::slot_offset;
use super::hold::HoldState;
use crate::crash_point;
use crate::ids::{Generation, Lsn, PROCESS_SLOTS, ProcessIndex};
use crate::storage::FileIdentity;
use crate::sync::mutex::SharedMutex;

/// Bytes of the stream in one segment, in a real database.
pub const SEGMENT_BYTES: u64 = 4 << 20;
/// Partner of [`PUBLISHES`](super::ring::PUBLISHES).
pub(super) const SEES_PUBLISHED: Ordering = Acquire;
/// Partner of [`WRITES_THROUGH`](super::write::WRITES_THROUGH).
pub(super) const SEES_WRITTEN: Ordering = Acquire;
/// Slots that the file may have if not configured otherwise: 256 MiB.
pub const DEFAULT_SLOT_LIMIT: u32 = 64;
/// Largest limit that can be configured: 4 GiB.
pub const MAX_SLOTS: u32 = 1024;
/// A session's stream starts with this segment, so that position 0 means "none".
pub const FIRST_SEGMENT: u64 = 1;
/// In `poison`: the log's file is not where the next opening looks for it. Shared memory is in
/// order.
const LOST: u32 = u32::MAX;
/// Added to the errno in `poison`: shared memory may be damaged, or what it relies on not on disk.
const IN_DOUBT: u32 = 1 << 31;
/// Entries of the segment table: the segments with slots, and those that are only in the ring.
pub(super) const SEGMENT_ENTRIES: usize = MAX_SLOTS as usize + 64;
/// One segment of the stream, at entry `segment % SEGMENT_ENTRIES`.
#[repr(C)]
#[derive(Debug)]
pub struct SegmentEntry {
    /// Number of the segment. The entry is meaningless for any other number.
    pub(super) segment: AtomicU64,
    /// First position of its generation.
    pub(super) generation_start: AtomicU64,
    /// End of the last frame of the generation before.
    pub(super) previous_end: AtomicU64,
    /// Generation of its frames.
    pub(super) generation: AtomicU32,
    /// The previous generation that has frames, 0 if none has.
    pub(super) previous_generation: AtomicU32,
    /// Slot of the file.
    pub(super) slot: AtomicU32,
    pad: AtomicU32,
}

/// The log's part of the shared memory.
#[repr(C, align(64))]
pub struct LogShared {
    pub(super) salt: AtomicU32,
    pub(super) segment_shift: AtomicU32,
    pub(super) ring_bytes: AtomicU64,
    pub(super) window_min: AtomicU64,
    pub(super) first_lsn: AtomicU64,
    pub(super) slot_limit: AtomicU32,
    /// 0, [`LOST`], or 1 + errno of the failed write or sync that stopped the log (COMMIT-4), with
    /// or without [`IN_DOUBT`].
    pub(super) poison: AtomicU32,
    /// Bytes of the ring, from its start, that have disk space behind them.
    pub(super) ring_space: AtomicU64,

    pub(super) commit: CommitState,
    pub(super) group: GroupState,
    pub(super) base: BaseState,

    pub(super) sync_mutex: SharedMutex,
    pub(super) write_mutex: SharedMutex,
    pub(super) grow_mutex: SharedMutex,
    /// Stream bytes that are filled with zeros in the file's slots, counted from the first slot.
    pub(super) filled_bytes: AtomicU64,
    /// Filled bytes whose space is allocated and durable. They may end inside the last slot.
    pub(super) prepared_bytes: AtomicU64,
    /// Oldest segment whose slot may not be reused.
    pub(super) first_live_segment: AtomicU64,
    /// Generation through which segments have been given back.
    pub(super) retired_generation: AtomicU32,
    pad: AtomicU32,
    /// Segment that each slot was given to last, 0 if none; free if below `first_live_segment`.
    pub(super) slot_owner: [AtomicU64; MAX_SLOTS as usize],
    pub(super) segments: [SegmentEntry; SEGMENT_ENTRIES],
    /// For each process slot 1 + the file slot that the process may be writing to, or 0 (write.rs).
    pub(super) writing: [AtomicU32; PROCESS_SLOTS],
    /// Device and inode of this session's log file, 0 before there is one.
    file_dev: AtomicU64,
    file_ino: AtomicU64,
    /// The timestamp that represents the base as it was when the session began.
    first_ts: AtomicU64,
    /// Commits through this timestamp are on disk (txn/tickets.rs).
    durable_ts: AtomicU64,
    pub(super) hold: HoldState,
}

/// Written under the commit mutex; on a cache line of its own.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct CommitState {
    /// The commit point: frames before it are committed.
    pub log_end: AtomicU64,
    /// End of the frame being copied, or `log_end`. Ring bytes a window's length or more before it
    /// are gone.
    pub reserved_end: AtomicU64,
    /// Bytes of the ring that are in use (the window).
    pub window_bytes: AtomicU64,
    /// `log_end` at the last change of `window_bytes`. Ring bytes before it are gone.
    pub window_start: AtomicU64,
    /// Timestamp of the newest commit, stored after `log_end`, or after the count of the base's
    /// commits (txn/tickets.rs).
    pub newest_ts: AtomicU64,
}

/// Written by processes that write and sync; on a cache line of its own.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct GroupState {
    pub written_through: AtomicU64,
    pub durable_through: AtomicU64,
    /// The running or last group: the position that it makes durable, plus its parity in bit 0.
    pub run: AtomicU64,
    /// Futex words of the groups of each parity, changed and woken when a group ends.
    pub words: [AtomicU32; 2],
    /// Sleepers on each word. May be too high after a killed sleeper, never too low.
    pub sleepers: [AtomicU32; 2],
    /// Counters for status: syncs, and writes of stretches.
    pub syncs: AtomicU64,
    pub writes: AtomicU64,
    /// Counts the syncs that began in parallel with a leader.
    pub beside: AtomicU32,
    /// Counts the owners of the write mutex.
    pub write_turns: AtomicU32,
}

/// Commits of the base that frames rely on; on a cache line of its own.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct BaseState {
    /// Made without a sync.
    pub commits: AtomicU64,
    /// How many of `commits` are known to be on disk.
    pub durable: AtomicU64,
    /// Counter for status: syncs of the base's WAL ahead of the log.
    pub syncs: AtomicU64,
    /// The newest generation that one of `commits` brought into the base.
    pub generation: AtomicU32,
    /// The note of the base in the log's file names this generation or a newer one.
    pub noted: AtomicU32,
    /// Inode of the base's WAL whose name is known to be on disk, 0 for none.
    pub named: AtomicU64,
}

const _: () = assert!(size_of::<SegmentEntry>() == 40);
const _: () = assert!(size_of::<CommitState>() == 64);
const _: () = assert!(size_of::<GroupState>() == 64);
const _: () = assert!(size_of::<BaseState>() == 64);
const _: () = assert!(align_of::<LogShared>() == 64);
const _: () = assert!(size_of::<LogShared>() < 64 << 10);

/// Sizes of a session's log.
#[derive(Debug, Clone, Copy)]
pub struct LogParams {
    /// Salt of the base and the log.
    pub salt: u32,
    /// Bytes of the ring, a power of two.
    pub ring_bytes: u64,
    /// Bytes of the ring in use while frames are at most half as long; a power of two.
    pub window_bytes: u64,
    /// Bytes of a segment, here and in the file: a power of two, at most half of the ring.
    pub segment_bytes: u64,
    /// Bytes of the ring, from its start, that have disk space behind them.
    pub ring_space: u64,
    /// Stream bytes that the file has room for, or will have when it is created before the first
    /// commit.
    pub prepared_bytes: u64,
    /// Slots that the file may have, at most [`MAX_SLOTS`].
    pub slot_limit: u32,
}

impl LogShared {
    /// Offsets that the header of shared memory tells later versions (shm/region/left.rs).
    pub(crate) const SALT_AT: usize = offset_of!(LogShared, salt);
    pub(crate) const LOG_END_AT: usize =
        offset_of!(LogShared, commit) + offset_of!(CommitState, log_end);
    pub(crate) const WRITTEN_AT: usize =
        offset_of!(LogShared, group) + offset_of!(GroupState, written_through);
    pub(crate) const DURABLE_TS_AT: usize = offset_of!(LogShared, durable_ts);

    /// Starts an empty stream. The memory may hold anything.
    ///
    /// # Safety
    /// `this` points to writable, aligned memory of the region that no other thread uses during
    /// this.
    pub unsafe fn init(this: *mut LogShared, params: &LogParams) {
        assert!(params.ring_bytes.is_power_of_two() && params.segment_bytes.is_power_of_two());
        assert!(params.window_bytes.is_power_of_two() && params.window_bytes <= params.ring_bytes);
        assert!(params.segment_bytes * 2 <= params.ring_bytes);
        assert!((1..=MAX_SLOTS).contains(&params.slot_limit));
        assert!(
            params.ring_bytes / params.segment_bytes + 2
                <= (SEGMENT_ENTRIES - MAX_SLOTS as usize) as u64
        );
        // SAFETY: the caller hands over the memory. All fields are valid when zero, and zero
        // mutexes are free.
        unsafe { this.write_bytes(0, 1) };
        // SAFETY: every field is initialised, and changes only through atomics from here on.
        let shared = unsafe { &*this };
        // Relaxed throughout: the session's state word publishes them to other processes, with
        // Release.
        let first_lsn = FIRST_SEGMENT * params.segment_bytes;
        shared.salt.store(params.salt, Relaxed);
        shared.segment_shift.store(params.segment_bytes.trailing_zeros(), Relaxed);
        shared.ring_bytes.store(params.ring_bytes, Relaxed);
        shared.window_min.store(params.window_bytes, Relaxed);
        shared.commit.window_bytes.store(params.window_bytes, Relaxed);
        shared.commit.window_start.store(first_lsn, Relaxed);
        shared.first_lsn.store(first_lsn, Relaxed);
        shared.slot_limit.store(params.slot_limit, Relaxed);
        shared.ring_space.store(params.ring_space, Relaxed);
        shared.filled_bytes.store(params.prepared_bytes, Relaxed);
        shared.prepared_bytes.store(params.prepared_bytes, Relaxed);
        shared.first_live_segment.store(FIRST_SEGMENT, Relaxed);
        shared.commit.log_end.store(first_lsn, Relaxed);
        shared.commit.reserved_end.store(first_lsn, Relaxed);
        shared.group.written_through.store(first_lsn, Relaxed);
        shared.group.durable_through.store(first_lsn, Relaxed);
        shared.group.run.store(first_lsn, Relaxed);
    }

    /// Begins the session with the timestamp that represents the base.
    pub(crate) fn begin_timestamps(&self, first: u64) {
        // Relaxed: as in `init`. The base may not be on disk, so `durable_ts` stays below.
        self.first_ts.store(first, Relaxed);
        self.commit.newest_ts.store(first, Relaxed);
    }

    /// Returns the timestamp that represents the base as it was when the session began.
    pub(crate) fn first_ts(&self) -> u64 {
        // Relaxed: constant since the session began.
        self.first_ts.load(Relaxed)
    }

    /// (M) Notes that the commit at `ts` is in the log before `log_end`, or in the base and counted
    /// there.
    pub(crate) fn note_newest_ts(&self, ts: u64) {
        // Release pairs with the Acquire in `newest_ts`.
        self.commit.newest_ts.store(ts, Release);
    }

    /// Timestamp of the newest commit. Commits through it are before any `log_end` loaded
    /// afterwards, or counted among the base's.
    pub(crate) fn newest_ts(&self) -> u64 {
        self.commit.newest_ts.load(Acquire)
    }

    /// Returns the timestamp through which commits are on disk.
    pub(crate) fn durable_ts(&self) -> u64 {
        // Acquire pairs with the Release in `note_durable_ts`.
        self.durable_ts.load(Acquire)
    }

    /// Notes that commits through `ts` are on disk.
    pub(crate) fn note_durable_ts(&self, ts: u64) {
        debug_assert!(ts <= self.newest_ts(), "TICKET-1: what nobody has committed is not on disk");
        // Release: after the sync.
        self.durable_ts.fetch_max(ts, Release);
    }

    /// The commit point: every frame before it is committed. Pairs with the Release of
    /// `publish_end`.
    pub fn log_end(&self) -> Lsn {
        Lsn::new(self.commit.log_end.load(SEES_PUBLISHED))
    }

    /// Every byte before it is in the file, synced or not.
    pub fn written_through(&self) -> Lsn {
        // The ring's bytes before it may be overwritten.
        Lsn::new(self.group.written_through.load(SEES_WRITTEN))
    }

    /// Every byte before it is on disk.
    pub fn durable_through(&self) -> Lsn {
        // Acquire pairs with the leader's Release after its sync.
        Lsn::new(self.group.durable_through.load(Acquire))
    }

    /// Syncs so far.
    pub fn syncs(&self) -> u64 {
        // Relaxed, here and below: a counter, and a hint.
        self.group.syncs.load(Relaxed)
    }

    /// Counts one more sync.
    pub(crate) fn note_sync(&self) {
        self.group.syncs.fetch_add(1, Relaxed);
    }

    /// True if a process leads a group now, or was killed while it led one.
    pub(crate) fn is_syncing(&self) -> bool {
        self.sync_mutex.holder().is_some()
    }

    /// Returns how many threads sleep until the log is synced. A hint: killed sleepers stay
    /// counted.
    pub(crate) fn count_sleepers(&self) -> u32 {
        self.group.sleepers.iter().map(|sleepers| sleepers.load(Relaxed)).sum()
    }

    /// First position of the session's stream.
    pub fn first_lsn(&self) -> Lsn {
        // Relaxed: constant since init.
        Lsn::new(self.first_lsn.load(Relaxed))
    }

    /// Salt of the session.
    pub fn salt(&self) -> u32 {
        // Relaxed: constant since init.
        self.salt.load(Relaxed)
    }

    /// Bytes of a segment.
    pub fn segment_bytes(&self) -> u64 {
        // Relaxed: constant since init.
        1 << self.segment_shift.load(Relaxed)
    }

    /// True if a segment has `bytes` bytes. The word may hold anything.
    pub(super) fn has_segments_of(&self, bytes: u64) -> bool {
        // Relaxed: constant since init.
        1u64.checked_shl(self.segment_shift.load(Relaxed)) == Some(bytes)
    }

    /// Bytes of the ring.
    pub fn ring_bytes(&self) -> u64 {
        // Relaxed: constant since init.
        self.ring_bytes.load(Relaxed)
    }

    /// Bytes of the ring, from its start, that have disk space behind them.
    pub fn ring_space(&self) -> u64 {
        // Acquire pairs with the Release in `note_ring_space`.
        self.ring_space.load(Acquire)
    }

    /// Notes that the first `bytes` bytes of the ring have disk space behind them.
    pub fn note_ring_space(&self, bytes: u64) {
        // Release pairs with the Acquire of the committer that writes there.
        self.ring_space.fetch_max(bytes, Release);
    }

    /// Stream bytes that the file's slots have durable space for, counted from the first slot.
    pub(super) fn prepared_bytes(&self) -> u64 {
        // Acquire pairs with the Release in `prepare_filled` (LOG-3).
        self.prepared_bytes.load(Acquire)
    }

    /// Usable slots of the file, the last of them perhaps in part.
    pub(super) fn prepared_slots(&self) -> u32 {
        self.prepared_bytes().div_ceil(self.segment_bytes()) as u32
    }

    /// Bytes of the ring that are in use.
    pub fn window_bytes(&self) -> u64 {
        // Relaxed: a reader of ring bytes has loaded, with Acquire, a `log_end` published after the
        // window moved (RING-1).
        self.commit.window_bytes.load(Relaxed)
    }

    /// Bytes of a small window.
    pub(super) fn window_min(&self) -> u64 {
        // Relaxed: constant since init.
        self.window_min.load(Relaxed)
    }

    /// Bytes of the window for frames of this length. It is one of two, and at least twice as long.
    pub(super) fn window_of(&self, frame_len: u64) -> u64 {
        let min = self.window_min();
        if frame_len <= min / 2 { min } else { self.ring_bytes() }
    }

    /// Longest frame: half of the ring.
    pub fn max_frame_bytes(&self) -> u64 {
        self.ring_bytes() / 2
    }

    /// Returns the errno of the failure that stopped the log (COMMIT-4), 0 for an error inside the
    /// engine.
    pub fn poisoned(&self) -> Option<i32> {
        // Acquire pairs with the Release in `stop`.
        match self.poison.load(Acquire) {
            0 => None,
            LOST => Some(libc::ENOENT),
            n => Some((n & !IN_DOUBT) as i32 - 1),
        }
    }

    /// True if the log stopped because its file is gone, and no other failure is known.
    pub fn is_lost(&self) -> bool {
        self.poison.load(Acquire) == LOST
    }

    /// True if the log stopped, and shared memory may be damaged, or rely on what is not on disk.
    pub fn is_in_doubt(&self) -> bool {
        let word = self.poison.load(Acquire);
        word != LOST && word & IN_DOUBT != 0
    }

    /// True if the log stopped because of its file, and shared memory has all that is committed.
    pub fn is_replaced_by_memory(&self) -> bool {
        self.poisoned().is_some() && !self.is_in_doubt()
    }

    /// Fails if the log at `path` has stopped.
    pub(crate) fn check(&self, path: &Path) -> Result<(), LogError> {
        match self.poisoned() {
            None => Ok(()),
            Some(_) if self.is_lost() => Err(LogError::Lost { path: path.to_owned() }),
            Some(errno) => Err(LogError::Poisoned { errno }),
        }
    }

    /// Stops the log for every process after a failed write or sync of its file. The first failure
    /// is kept, unless it says less.
    pub(super) fn set_failed(&self, errno: i32) {
        self.stop(errno.max(0) as u32 + 1, |before| before == 0 || before == LOST);
    }

    /// Stops the log for every process, and marks shared memory as unreliable.
    pub(crate) fn set_in_doubt(&self, errno: i32) {
        let is_less = |before| before == LOST || before & IN_DOUBT == 0;
        self.stop(IN_DOUBT | (errno.max(0) as u32 + 1), is_less);
    }

    /// As [`LogShared::set_in_doubt`], after an error inside the engine.
    pub fn set_broken(&self) {
        self.set_in_doubt(INTERNAL);
    }

    fn stop(&self, word: u32, is_less: impl Fn(u32) -> bool) {
        let update = |before| is_less(before).then_some(word);
        let _ = self.poison.fetch_update(Release, Relaxed, update);
    }

    /// Stops the log for every process because its file is gone.
    pub(crate) fn set_lost(&self) {
        let _ = self.poison.compare_exchange(0, LOST, Release, Relaxed);
    }

    /// Notes which file the log is, before the base is fenced.
    pub(crate) fn note_file(&self, (dev, ino): FileIdentity) {
        // Relaxed: published by the fence.
        self.file_dev.store(dev, Relaxed);
        self.file_ino.store(ino, Relaxed);
    }

    /// Device and inode of the log's file.
    pub fn file_identity(&self) -> FileIdentity {
        // Relaxed: the caller has found the fence raised.
        (self.file_dev.load(Relaxed), self.file_ino.load(Relaxed))
    }

    /// The least length of the log's file.
    pub fn file_bytes(&self) -> u64 {
        let (prepared, segment) = (self.prepared_bytes(), self.segment_bytes());
        let slots = prepared.div_ceil(segment);
        slot_offset(slots as u32, segment) - (slots * segment - prepared)
    }

    /// Stops the log after a failure that leaves in doubt what is on disk (COMMIT-4). A failure
    /// that only this process meets does not stop it.
    pub(super) fn stop_after(&self, failure: &LogError) {
        match failure {
            LogError::Lost { .. } => self.set_lost(),
            _ if failure.is_of_this_process() => {}
            _ => self.set_failed(failure.errno()),
        }
    }

    /// As [`LogShared::stop_after`], where the base could not be brought to disk: memory relies on
    /// that too.
    pub(super) fn stop_after_base(&self, failure: &LogError) {
        match failure {
            LogError::Io { errno, .. } if !failure.is_of_this_process() => {
                self.set_in_doubt(*errno);
            }
            _ => self.stop_after(failure),
        }
    }

    /// Slots that the file may have.
    pub fn slot_limit(&self) -> u32 {
        // Relaxed: a bound that orders nothing.
        self.slot_limit.load(Relaxed)
    }

    /// Generation through which segments have been given back.
    pub fn retired_generation(&self) -> Generation {
        // Relaxed: used for an assertion and for status only.
        Generation::new(self.retired_generation.load(Relaxed))
    }

    pub(super) fn segment_of(&self, lsn: Lsn) -> u64 {
        lsn.get() >> self.segment_shift.load(Relaxed)
    }

    /// True if the file has nothing of the segment in which the frame before `end` ends.
    pub(crate) fn begins_unwritten(&self, end: Lsn) -> bool {
        let segment = self.segment_of(Lsn::new(end.get() - 1));
        self.written_through() <= self.segment_start(segment)
    }

    pub(super) fn segment_start(&self, segment: u64) -> Lsn {
        Lsn::new(segment << self.segment_shift.load(Relaxed))
    }
}

/// The two fences of INTENT-2 in write.rs. A writer's is between its intent and its second look at
/// `written_through`. A committer's is between the new owner of a slot and its look at the intents.
pub(super) const INTENDS_AND_ASSIGNS: Ordering = SeqCst;
/// A process that has withdrawn an intent has finished its write.
pub(super) const ENDS: Ordering = Release;
/// Partner of [`ENDS`].
pub(super) const SEES_ENDED: Ordering = Acquire;

/// A segment's entry, copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub number: u64,
    pub generation: Generation,
    pub generation_start: Lsn,
    pub previous_generation: Generation,
    pub previous_end: Lsn,
}

/// A stretch of the stream inside one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub segment: Segment,
    pub from: Lsn,
    pub to: Lsn,
}

impl LogShared {
    fn entry(&self, segment: u64) -> &SegmentEntry {
        &self.segments[(segment % SEGMENT_ENTRIES as u64) as usize]
    }

    /// Returns the entry of a segment that starts before `log_end`, unless the entry was reused
    /// long ago.
    pub(super) fn segment(&self, number: u64) -> Option<Segment> {
        let e = self.entry(number);
        // Acquire pairs with the Release in `record_segment`: the other fields belong to this
        // number.
        if e.segment.load(Acquire) != number {
            return None;
        }
        Some(Segment {
            number,
            generation: Generation::new(e.generation.load(Relaxed)),
            generation_start: Lsn::new(e.generation_start.load(Relaxed)),
            previous_generation: Generation::new(e.previous_generation.load(Relaxed)),
            previous_end: Lsn::new(e.previous_end.load(Relaxed)),
        })
    }

    /// (M) Makes the entry of a segment that no published frame has entered.
    pub(super) fn record_segment(&self, s: &Segment, slot: u32) {
        let e = self.entry(s.number);
        // Relaxed: no reader asks for a segment whose entry is reused. An author that dies in here
        // leaves no number over the fields of two segments.
        e.segment.store(0, Relaxed);
        e.generation.store(s.generation.get(), Relaxed);
        e.generation_start.store(s.generation_start.get(), Relaxed);
        e.previous_generation.store(s.previous_generation.get(), Relaxed);
        e.previous_end.store(s.previous_end.get(), Relaxed);
        e.slot.store(slot, Relaxed);
        // Pairs with the Acquire in `segment`.
        e.segment.store(s.number, Release);
        crash_point!("log.generation.recorded");
    }

    /// Returns the segment of the last byte before `end`, none at the start of the stream.
    pub(super) fn segment_before(&self, end: Lsn) -> Option<Segment> {
        if end <= self.first_lsn() {
            return None;
        }
        self.segment(self.segment_of(Lsn::new(end.get() - 1)))
    }

    /// Returns the start of the next generation if one ended at `at` and the next begins before
    /// `end`, else `at`.
    pub(super) fn skip_gap(&self, at: Lsn, end: Lsn) -> Lsn {
        let boundary = self.segment_start(self.segment_of(at) + u64::from(!self.is_boundary(at)));
        if boundary == at || boundary >= end {
            return at;
        }
        match self.segment(self.segment_of(boundary)) {
            Some(s) if s.generation_start == boundary && s.previous_end == at => boundary,
            _ => at,
        }
    }

    fn is_boundary(&self, at: Lsn) -> bool {
        self.segment_start(self.segment_of(at)) == at
    }

    /// Returns the next stretch of `from..end` that holds frames. `end` is at most `log_end`.
    pub(super) fn piece(&self, from: Lsn, end: Lsn) -> Option<Piece> {
        let from = self.skip_gap(from, end);
        if from >= end {
            return None;
        }
        let number = self.segment_of(from);
        let segment = self.segment(number)?;
        let boundary = self.segment_start(number + 1);
        let mut to = boundary.min(end);
        if boundary < end
            && let Some(next) = self.segment(number + 1)
            && next.generation_start == boundary
        {
            to = next.previous_end.min(to);
        }
        Some(Piece { segment, from, to })
    }

    /// Returns the slot of a published segment, unless its entry was reused long ago.
    pub(super) fn slot_of(&self, number: u64) -> Option<u32> {
        let e = self.entry(number);
        // Acquire pairs with the Release in `record_segment`.
        (e.segment.load(Acquire) == number).then(|| e.slot.load(Relaxed))
    }

    /// (M) Returns a slot for a segment that no published frame has entered, `None` if none is
    /// free. A slot that a killed committer gave to this segment counts as free.
    pub(super) fn assign_slot(&self, number: u64) -> Option<u32> {
        let first_needed = self.first_needed_segment();
        let prepared = self.prepared_slots() as usize;
        let owners = &self.slot_owner[..prepared];
        // Relaxed on owners: they change under the commit mutex only, which is held.
        let given = (0..prepared).filter(|&i| owners[i].load(Relaxed) == number);
        let free = (0..prepared).filter(|&i| owners[i].load(Relaxed) < first_needed);
        for slot in given.chain(free) {
            owners[slot].store(number, Relaxed);
            crash_point!("log.segment.assigned");
            fence(INTENDS_AND_ASSIGNS);
            if !self.is_written_to(slot as u32) {
                return Some(slot as u32);
            }
            // Free, but the intent of a stopped process keeps it from being used.
            owners[slot].store(0, Relaxed);
        }
        None
    }

    /// True if a process has an intent for `slot`.
    fn is_written_to(&self, slot: u32) -> bool {
        self.writing.iter().any(|word| word.load(SEES_ENDED) == slot + 1)
    }

    /// Notes that `process` is about to write to `slot`, before it checks that it may (step 3 in
    /// write.rs).
    pub(super) fn intend(&self, process: ProcessIndex, slot: u32) {
        self.writing[process.0 as usize].store(slot + 1, Relaxed);
        fence(INTENDS_AND_ASSIGNS);
    }

    /// Withdraws the intent of `process`, which has ended, or is the caller's.
    pub fn withdraw_intent(&self, process: ProcessIndex) {
        let intent = &self.writing[process.0 as usize];
        // Relaxed: nobody else gives it an intent. Most have none, and a first store to a page costs
        // a process that joins a fault.
        if intent.load(Relaxed) != 0 {
            intent.store(0, ENDS);
        }
    }

    /// Gives back every fully written segment of the generations through `through`. It needs no
    /// lock: what it reads and what it writes only grow.
    pub(super) fn give_back(&self, through: Generation) {
        // `written` first: a segment that ends at or before it is written, whatever `end` is.
        let written = self.written_through();
        let end = self.log_end();
        // Relaxed: with an old value it only looks at more segments.
        let mut first = self.first_live_segment.load(Relaxed);
        self.retired_generation.fetch_max(through.get(), Relaxed);
        while self.segment_start(first) < end {
            let Some(segment) = self.segment(first) else {
                break;
            };
            let piece = self.piece(self.segment_start(first), end);
            let used_end = piece.map_or(end, |p| p.to);
            if segment.generation > through || used_end > written {
                break;
            }
            first += 1;
        }
        // Release pairs with the Acquire in `check_slots`, which then counts the slots as free.
        self.first_live_segment.fetch_max(first, Release);
        crash_point!("log.retire.done");
    }
}
