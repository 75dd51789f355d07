//! State of the log in shared memory: all that any process needs to go on after any other is killed.
//!
//! | field | changed by | read by |
//! |---|---|---|
//! | `log_end`, `reserved_end`, `segments` | holder of the commit mutex | anybody |
//! | `run` of `group` | holder of the sync mutex | anybody |
//! | `slot_owner` | holder of the commit mutex | the same |
//! | `written_through` | whoever has written; it only grows | anybody |
//! | `writing` | each process its own word | holder of the commit mutex |
//! | `durable_through` | whoever has synced; it only grows | anybody |
//! | `first_live_segment`, `retired_generation` | whoever merged, without a lock; they only grow | anybody |
//! | `base` | see `before.rs` | anybody |
//! | `ring_space` | whoever has allocated disk space; it only grows | anybody |
//! | `filled_bytes` | holder of the grow mutex | the same |
//! | `prepared_bytes` | whoever has synced filled ones; it only grows | anybody |
//! | `poison` | whoever fails first; what is lost or has failed may still come into doubt | anybody |
//! | `file_dev`, `file_ino` | who makes the log's file, before the base is fenced | anybody |
//!
//! The ring's bytes lie elsewhere in the same region. Everything before the mutexes is set once by
//! [`LogShared::init`], under the lifecycle lock, before any other process may look.
//!
//! # The segment table
//!
//! The segment table: which generation each stretch of the stream belongs to, and which slot holds it.
//!
//! Entries are made under the commit mutex, before the frame that enters the segment is published, and
//! are meaningful only for segments that start before `log_end`. A committer killed before publishing
//! leaves an entry that the next one writes again. With its entry a segment is given its slot of the file; one given to a segment
//! below `first_live_segment` is free again, so giving segments back is one store. But a free slot is not used while
//! a process may still be writing to it what it held before (write.rs).
#![allow(unsafe_code)]

use std::path::Path;
use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

use super::error::{INTERNAL, LogError};
use super::file::slot_offset;
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
/// In `poison`: the log's file is not where the next opening looks for it. What is in shared memory is in order.
const LOST: u32 = u32::MAX;
/// Added to the errno in `poison`: what is in shared memory need not be in order, or what it relies on need not be on disk.
const IN_DOUBT: u32 = 1 << 31;
/// Entries of the segment table: every segment with a slot, and those that are only in the ring.
pub(super) const SEGMENT_ENTRIES: usize = MAX_SLOTS as usize + 64;
/// What is known of one segment of the stream; entry `segment % SEGMENT_ENTRIES`.
#[repr(C)]
#[derive(Debug)]
pub struct SegmentEntry {
    /// Number of the segment; the entry is meaningless for any other.
    pub(super) segment: AtomicU64,
    /// First position of its generation.
    pub(super) generation_start: AtomicU64,
    /// End of the last frame of the generation before.
    pub(super) previous_end: AtomicU64,
    /// Generation of its frames.
    pub(super) generation: AtomicU32,
    /// The generation before that has frames, 0 if none has.
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
    /// 0, or 1 + errno of the first failed write or sync (COMMIT-4), or [`LOST`].
    pub(super) poison: AtomicU32,
    /// Bytes of the ring, from its start, that have disk space behind them.
    pub(super) ring_space: AtomicU64,

    pub(super) commit: CommitState,
    pub(super) group: GroupState,
    pub(super) base: BaseState,

    pub(super) sync_mutex: SharedMutex,
    pub(super) write_mutex: SharedMutex,
    pub(super) grow_mutex: SharedMutex,
    /// Stream bytes of the file's slots, one slot after the other, that have been filled with zeros.
    pub(super) filled_bytes: AtomicU64,
    /// Those of them whose space is allocated and durable. Of the last slot that may be a part.
    pub(super) prepared_bytes: AtomicU64,
    /// Oldest segment whose slot may not be reused.
    pub(super) first_live_segment: AtomicU64,
    /// Generation through which segments have been given back.
    pub(super) retired_generation: AtomicU32,
    pad: AtomicU32,
    /// Segment that each slot was given to last, 0 if none; free if below `first_live_segment`.
    pub(super) slot_owner: [AtomicU64; MAX_SLOTS as usize],
    pub(super) segments: [SegmentEntry; SEGMENT_ENTRIES],
    /// For each process slot 1 + the slot of the file that the process may be writing to, 0 for none (write.rs).
    pub(super) writing: [AtomicU32; PROCESS_SLOTS],
    /// Which file the log of this session is: device and inode; 0 before there is one.
    file_dev: AtomicU64,
    file_ino: AtomicU64,
    /// The timestamp that stands for what was in the base when the session began.
    first_ts: AtomicU64,
    /// Commits through this timestamp are on disk (tickets.rs).
    durable_ts: AtomicU64,
}

/// Written under the commit mutex; on a cache line of its own.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct CommitState {
    /// The commit point: frames before it are committed.
    pub log_end: AtomicU64,
    /// End of the frame being copied, or `log_end`: ring bytes older than this by the window's length are gone.
    pub reserved_end: AtomicU64,
    /// Bytes of the ring that are in use (the window).
    pub window_bytes: AtomicU64,
    /// `log_end` when that was changed last: ring bytes before it are gone.
    pub window_start: AtomicU64,
    /// Timestamp of the newest commit; stored after `log_end`, or after the count of the base's commits (tickets.rs).
    pub newest_ts: AtomicU64,
}

/// Written by those who write and sync; on a cache line of its own.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct GroupState {
    pub written_through: AtomicU64,
    pub durable_through: AtomicU64,
    /// The running or last group: the position that it makes durable, plus its parity in bit 0.
    pub run: AtomicU64,
    /// Futex words of the groups of either parity; changed and woken when a group ends.
    pub words: [AtomicU32; 2],
    /// Sleepers on each word. May be too high after a killed sleeper, never too low.
    pub sleepers: [AtomicU32; 2],
    /// Counters for status: groups synced, frames' bytes written.
    pub syncs: AtomicU64,
    pub writes: AtomicU64,
    /// Counts those who began to sync beside a leader.
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
    /// Of them, known to be on disk.
    pub durable: AtomicU64,
    /// Counter for status: syncs of the base's WAL ahead of the log.
    pub syncs: AtomicU64,
    /// The newest generation that one of `commits` has brought into the base.
    pub generation: AtomicU32,
    /// What the note of the base in the log's file says at least.
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
    /// Bytes of it that are used while frames are at most half as long; a power of two.
    pub window_bytes: u64,
    /// Bytes of a segment, a power of two, at most half of the ring; the log file's.
    pub segment_bytes: u64,
    /// Bytes of it, from its start, that have disk space behind them.
    pub ring_space: u64,
    /// Stream bytes that the file has room for, or will have when it is created before the first commit.
    pub prepared_bytes: u64,
    /// Slots that the file may have, at most [`MAX_SLOTS`].
    pub slot_limit: u32,
}

impl LogShared {
    /// Starts an empty stream. The memory may hold anything.
    ///
    /// # Safety
    /// `this` points to writable, aligned memory of the region that nobody else uses while this runs.
    pub unsafe fn init(this: *mut LogShared, params: &LogParams) {
        assert!(params.ring_bytes.is_power_of_two() && params.segment_bytes.is_power_of_two());
        assert!(params.window_bytes.is_power_of_two() && params.window_bytes <= params.ring_bytes);
        assert!(params.segment_bytes * 2 <= params.ring_bytes);
        assert!((1..=MAX_SLOTS).contains(&params.slot_limit));
        assert!(
            params.ring_bytes / params.segment_bytes + 2
                <= (SEGMENT_ENTRIES - MAX_SLOTS as usize) as u64
        );
        // SAFETY: the caller hands over the memory; all fields are valid when zero, and the mutexes free.
        unsafe { this.write_bytes(0, 1) };
        // SAFETY: every field is initialised now and only changed through atomics from here on.
        let shared = unsafe { &*this };
        // Relaxed throughout: the session is published to other processes by its state word, with Release.
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

    /// The session begins, with this timestamp for what is in the base.
    pub(crate) fn begin_timestamps(&self, first: u64) {
        // Relaxed: as in `init`. Whether what is in the base is on disk is not known: `durable_ts` stays below.
        self.first_ts.store(first, Relaxed);
        self.commit.newest_ts.store(first, Relaxed);
    }

    /// The timestamp that stands for what was in the base when the session began.
    pub(crate) fn first_ts(&self) -> u64 {
        // Relaxed: constant since the session began.
        self.first_ts.load(Relaxed)
    }

    /// (M) The commit with this timestamp is in the log before `log_end`, or in the base and counted there.
    pub(crate) fn note_newest_ts(&self, ts: u64) {
        // Release pairs with the Acquire in `newest_ts`.
        self.commit.newest_ts.store(ts, Release);
    }

    /// The newest commit. Everything through it lies before any `log_end` that is loaded afterwards, or is counted among the commits
    /// of the base.
    pub(crate) fn newest_ts(&self) -> u64 {
        self.commit.newest_ts.load(Acquire)
    }

    /// Commits through this timestamp are on disk.
    pub(crate) fn durable_ts(&self) -> u64 {
        // Acquire pairs with the Release in `note_durable_ts`.
        self.durable_ts.load(Acquire)
    }

    /// Commits through `ts` are on disk.
    pub(crate) fn note_durable_ts(&self, ts: u64) {
        debug_assert!(ts <= self.newest_ts(), "TICKET-1: what nobody has committed is not on disk");
        // Release: after the sync.
        self.durable_ts.fetch_max(ts, Release);
    }

    /// The commit point: everything before it is committed. Pairs with the Release of `publish_end`.
    pub fn log_end(&self) -> Lsn {
        Lsn::new(self.commit.log_end.load(SEES_PUBLISHED))
    }

    /// Everything before it is in the file, synced or not.
    pub fn written_through(&self) -> Lsn {
        // What it wrote may be overwritten in the ring.
        Lsn::new(self.group.written_through.load(SEES_WRITTEN))
    }

    /// Everything before it is on disk.
    pub fn durable_through(&self) -> Lsn {
        // Acquire pairs with the leader's Release after its sync.
        Lsn::new(self.group.durable_through.load(Acquire))
    }

    /// Syncs so far.
    pub fn syncs(&self) -> u64 {
        // Relaxed, here and below: a counter, and a hint.
        self.group.syncs.load(Relaxed)
    }

    /// One more.
    pub(crate) fn note_sync(&self) {
        self.group.syncs.fetch_add(1, Relaxed);
    }

    /// Somebody leads a group at this moment, or has died over it.
    pub(crate) fn is_syncing(&self) -> bool {
        self.sync_mutex.holder().is_some()
    }

    /// How many sleep until the log is synced; a hint, in which whoever was killed in his sleep stays.
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

    /// Whether they are so many; the word may say anything.
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

    /// So much of the ring has disk space behind it.
    pub fn note_ring_space(&self, bytes: u64) {
        // Release pairs with the Acquire of the committer that writes there.
        self.ring_space.fetch_max(bytes, Release);
    }

    /// Stream bytes that the file's slots have durable space for, one slot after the other.
    pub(super) fn prepared_bytes(&self) -> u64 {
        // Acquire pairs with the Release of who prepared them (LOG-3).
        self.prepared_bytes.load(Acquire)
    }

    /// Slots of the file that can be used, the last of them perhaps in part.
    pub(super) fn prepared_slots(&self) -> u32 {
        self.prepared_bytes().div_ceil(self.segment_bytes()) as u32
    }

    /// Bytes of the ring that are in use.
    pub fn window_bytes(&self) -> u64 {
        // Relaxed: whoever reads ring bytes has loaded a `log_end` with Acquire that was published behind it (RING-1).
        self.commit.window_bytes.load(Relaxed)
    }

    /// Bytes of a small window.
    pub(super) fn window_min(&self) -> u64 {
        // Relaxed: constant since init.
        self.window_min.load(Relaxed)
    }

    /// Bytes of the window for frames of this length: one of two, at least twice as long.
    pub(super) fn window_of(&self, frame_len: u64) -> u64 {
        let min = self.window_min();
        if frame_len <= min / 2 { min } else { self.ring_bytes() }
    }

    /// Longest frame: half of the ring.
    pub fn max_frame_bytes(&self) -> u64 {
        self.ring_bytes() / 2
    }

    /// The errno of the failure that stopped the log, if one did (COMMIT-4); 0 for an error inside the engine.
    pub fn poisoned(&self) -> Option<i32> {
        // Acquire pairs with the Release of whoever has stopped it.
        match self.poison.load(Acquire) {
            0 => None,
            LOST => Some(libc::ENOENT),
            n => Some((n & !IN_DOUBT) as i32 - 1),
        }
    }

    /// The log stopped because its file is gone, and nothing else is known to be wrong.
    pub fn is_lost(&self) -> bool {
        self.poison.load(Acquire) == LOST
    }

    /// The log stopped, and what is in shared memory need not be in order, or relies on what need not be on disk.
    pub fn is_in_doubt(&self) -> bool {
        let word = self.poison.load(Acquire);
        word != LOST && word & IN_DOUBT != 0
    }

    /// The log stopped because of its file, and shared memory says what is committed.
    pub fn is_replaced_by_memory(&self) -> bool {
        self.poisoned().is_some() && !self.is_in_doubt()
    }

    /// Fails if the log, which is at `path`, has stopped.
    pub(crate) fn check(&self, path: &Path) -> Result<(), LogError> {
        match self.poisoned() {
            None => Ok(()),
            Some(_) if self.is_lost() => Err(LogError::Lost { path: path.to_owned() }),
            Some(errno) => Err(LogError::Poisoned { errno }),
        }
    }

    /// Stops the log for every process after a write or sync of its file that failed. The first failure is kept, unless it says less.
    pub(super) fn set_failed(&self, errno: i32) {
        self.stop(errno.max(0) as u32 + 1, |before| before == 0 || before == LOST);
    }

    /// Stops the log for every process, and says that shared memory is not to be relied on.
    pub(super) fn set_in_doubt(&self, errno: i32) {
        let is_less = |before| before == LOST || before & IN_DOUBT == 0;
        self.stop(IN_DOUBT | (errno.max(0) as u32 + 1), is_less);
    }

    /// The same after an error inside the engine.
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

    /// Notes which file the log is. The base is not fenced yet.
    pub(crate) fn note_file(&self, (dev, ino): FileIdentity) {
        // Relaxed: published by the fence.
        self.file_dev.store(dev, Relaxed);
        self.file_ino.store(ino, Relaxed);
    }

    /// Which file the log is.
    pub fn file_identity(&self) -> FileIdentity {
        // Relaxed: the caller has found the fence raised.
        (self.file_dev.load(Relaxed), self.file_ino.load(Relaxed))
    }

    /// Length that its file has at least.
    pub fn file_bytes(&self) -> u64 {
        let (prepared, segment) = (self.prepared_bytes(), self.segment_bytes());
        let slots = prepared.div_ceil(segment);
        slot_offset(slots as u32, segment) - (slots * segment - prepared)
    }

    /// Stops the log after a failure that leaves in doubt what is on disk (COMMIT-4); one that only this process meets does not.
    pub(super) fn stop_after(&self, failure: &LogError) {
        match failure {
            LogError::Lost { .. } => self.set_lost(),
            _ if failure.is_of_this_process() => {}
            _ => self.set_failed(failure.errno()),
        }
    }

    /// The same where it was the base that could not be brought to disk: memory relies on that, too.
    pub(super) fn stop_after_base(&self, failure: &LogError) {
        match failure {
            LogError::Io { errno, .. } if !failure.is_of_this_process() => {
                self.set_in_doubt(*errno);
            }
            _ => self.stop_after(failure),
        }
    }

    /// Changes how many slots the file may have; fewer than it has take effect as slots are freed.
    pub fn set_slot_limit(&self, slots: u32) {
        // Relaxed: a bound that orders nothing.
        self.slot_limit.store(slots.clamp(2, MAX_SLOTS), Relaxed);
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

    /// Nothing of the segment in which the frame before `end` ends is in the file.
    pub(crate) fn begins_unwritten(&self, end: Lsn) -> bool {
        let segment = self.segment_of(Lsn::new(end.get() - 1));
        self.written_through() <= self.segment_start(segment)
    }

    pub(super) fn segment_start(&self, segment: u64) -> Lsn {
        Lsn::new(segment << self.segment_shift.load(Relaxed))
    }
}

/// Fences (INTENT-2 in write.rs): of who intends to write, between the intent and the second look at `written_through`; of who
/// takes a slot that was given back, between its new owner and the look at the intents.
pub(super) const INTENDS_AND_ASSIGNS: Ordering = SeqCst;
/// Who has withdrawn an intent has written what it wrote.
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

    /// The entry of a segment that starts before `log_end`, unless it was forgotten long ago.
    pub(super) fn segment(&self, number: u64) -> Option<Segment> {
        let e = self.entry(number);
        // Acquire pairs with the Release in `record_segment`: the other fields belong to this number.
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

    /// Makes the entry of a segment that no published frame has entered. Commit mutex.
    pub(super) fn record_segment(&self, s: &Segment, slot: u32) {
        let e = self.entry(s.number);
        // Release: a reader that still sees the old number sees no new field mixed in afterwards, because
        // entries are reused only long after their segment stopped being asked for.
        e.segment.store(0, Release);
        e.generation.store(s.generation.get(), Relaxed);
        e.generation_start.store(s.generation_start.get(), Relaxed);
        e.previous_generation.store(s.previous_generation.get(), Relaxed);
        e.previous_end.store(s.previous_end.get(), Relaxed);
        e.slot.store(slot, Relaxed);
        // Pairs with the Acquire in `segment`.
        e.segment.store(s.number, Release);
        crash_point!("log.generation.recorded");
    }

    /// The segment of the last byte before `end`; none at the start of the stream.
    pub(super) fn segment_before(&self, end: Lsn) -> Option<Segment> {
        if end <= self.first_lsn() {
            return None;
        }
        self.segment(self.segment_of(Lsn::new(end.get() - 1)))
    }

    /// If `at` is where a generation ended and another follows before `end`: where that one starts.
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

    /// The next stretch of `from..end` that holds frames; `end` is at most `log_end`.
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

    /// The slot of a published segment, unless it was forgotten long ago.
    pub(super) fn slot_of(&self, number: u64) -> Option<u32> {
        let e = self.entry(number);
        // Acquire pairs with the Release in `record_segment`.
        (e.segment.load(Acquire) == number).then(|| e.slot.load(Relaxed))
    }

    /// (M) A slot for a segment that no published frame has entered; `None` if none is free. One that was given to it before, by a
    /// committer that was killed then, is.
    pub(super) fn assign_slot(&self, number: u64) -> Option<u32> {
        // Acquire pairs with the Release in `give_back`: the merge is durable before its slots are used again.
        let first_live = self.first_live_segment.load(Acquire);
        let prepared = self.prepared_slots() as usize;
        let owners = &self.slot_owner[..prepared];
        // Relaxed on owners: they change under the commit mutex only, which is held.
        let given = (0..prepared).filter(|&i| owners[i].load(Relaxed) == number);
        let free = (0..prepared).filter(|&i| owners[i].load(Relaxed) < first_live);
        for slot in given.chain(free) {
            owners[slot].store(number, Relaxed);
            crash_point!("log.segment.assigned");
            fence(INTENDS_AND_ASSIGNS);
            if !self.is_written_to(slot as u32) {
                return Some(slot as u32);
            }
            // Free, and somebody who does not run keeps it from being used.
            owners[slot].store(0, Relaxed);
        }
        None
    }

    /// An intent stands in `slot`.
    fn is_written_to(&self, slot: u32) -> bool {
        self.writing.iter().any(|word| word.load(SEES_ENDED) == slot + 1)
    }

    /// Notes that `process` is about to write to `slot`, before it makes sure that it may (step 3 in write.rs).
    pub(super) fn intend(&self, process: ProcessIndex, slot: u32) {
        self.writing[process.0 as usize].store(slot + 1, Relaxed);
        fence(INTENDS_AND_ASSIGNS);
    }

    /// `process` writes nothing any more.
    pub fn forget_writer(&self, process: ProcessIndex) {
        self.writing[process.0 as usize].store(0, ENDS);
    }

    /// Gives back every fully written segment of the generations through `through`. Needs no lock: what it
    /// reads only grows, and so does what it writes.
    pub(super) fn give_back(&self, through: Generation) {
        // `written` first: the bytes of a segment that ends at or before it are written whatever `end` says.
        let written = self.written_through();
        let end = self.log_end();
        // Relaxed: a value that is too old only means that more segments are looked at.
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
