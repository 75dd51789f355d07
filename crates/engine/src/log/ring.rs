//! The log's ring: the newest bytes of the stream, in memory that all processes share.
//!
//! Stream position `p` is at ring offset `p % window_bytes` (the window). A committer copies its frame
//! behind `log_end` and then publishes the new end, both under the commit mutex and without a system call; a frame that
//! was copied but not published never happened and is overwritten by the next one (COMMIT-2).
//!
//! Which bytes may be read
//! 1. `written_through..log_end` never changes: anybody may copy it who looks afterwards whether it has become written
//!    meanwhile, and then throws the copy away.
//! 2. `oldest()..log_end` does not change while the commit mutex is held.
//!
//! The caller applies each frame to the memtables before it appends the next, so what has to be redone
//! after a killed committer is at most one frame and always in the ring.
//!
//! # The window
//!
//! The ring's window: the part of the ring that frames take turns in.
//!
//! A ring must be long enough for the longest frame, yet most frames are short, and what they take turns in had better be
//! small: it stays in the processors' caches, and every process soon has all of its pages mapped. So stream position `p` is
//! at ring offset `p % window_bytes`, and the window is the whole ring only while there are long frames.
//!
//! Moving it (all under the commit mutex, in `append`)
//!
//! | window | frame | everything written to the file | what is done |
//! |---|---|---|---|
//! | small | short | - | nothing |
//! | small | long | yes | becomes the whole ring |
//! | small | long | no | `RingFull`: the caller has it written and comes again |
//! | whole ring | long | - | nothing |
//! | whole ring | short | yes | becomes small |
//! | whole ring | short | no | nothing |
//!
//! Invariants
//! - RING-1 The window moves only while `written_through == log_end`: nobody reads the ring to write it then, and who reads it
//!   later has seen a `log_end` that was published behind the move.
//! - RING-2 Nothing before `window_start` may be read, but for the checksum of the last frame, which the next one continues.
//! - RING-3 A kill between any two stores of a move leaves a window in which that checksum is in its place.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};
use std::{fmt, io};

use super::error::AppendError;
use super::frame::{self, BadFrame, Frame, FrameHead, Mark, Op, Placement};
use super::shared::LogShared;
use super::shared::Segment;
use crate::crash_point;
use crate::ids::{Generation, Lsn};
use crate::sync::mutex::{Guard, SharedMutex};

/// Whoever sees the end sees the frame and its segments: partner of [`SEES_PUBLISHED`](super::shared::SEES_PUBLISHED).
pub(super) const PUBLISHES: Ordering = Release;
/// Fence of who overwrites bytes of the ring, between what it has seen of `written_through` and the bytes. Its partner stands behind the copy
/// of who writes to the file (`intend`): a copy that has one of these bytes then finds itself overtaken (rule 1).
pub(super) const OVERWRITES: Ordering = Release;

/// The ring's bytes, as far as this process has them mapped.
pub trait RingMemory: Send + Sync {
    /// The ring's first byte, where [`RingMemory::first_bytes`] are mapped.
    fn first(&self) -> NonNull<u8>;
    /// So many, the small window at least. By this process's own knowledge: what shared memory says need not be trusted.
    fn first_bytes(&self) -> u64;
    /// The ring's first byte, where all of it is; None while it is not.
    fn whole(&self) -> Option<NonNull<u8>>;
    /// Copies bytes of the ring without having them mapped.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
}

/// Where the log's shared memory is mapped in this process.
#[derive(Clone)]
pub struct LogMemory {
    /// Initialised state.
    pub shared: NonNull<LogShared>,
    /// The ring.
    pub ring: Arc<dyn RingMemory>,
    /// The mutex that orders commits.
    pub commit_mutex: NonNull<SharedMutex>,
}

impl fmt::Debug for LogMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogMemory").field("shared", &self.shared).finish_non_exhaustive()
    }
}

/// The ring as mapped by this process.
#[derive(Debug)]
pub struct Ring {
    memory: LogMemory,
}

// SAFETY: the pointers are to process-shared memory whose parts are atomics, mutexes, and ring bytes that are
// accessed by the rules of the module header, from whatever thread.
unsafe impl Send for Ring {}
// SAFETY: as for Send: every access through `&Ring` follows the rules of the module header.
unsafe impl Sync for Ring {}

/// What a frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose<'a> {
    /// A transaction of this file alone.
    Commit,
    /// A transaction that is prepared (`several.rs`); space in the file for so many more bytes behind it
    /// has to be there.
    Prepare(Mark<'a>, u64),
    /// What came of the prepared transaction, whose frame is the last one and stays readable in the ring.
    Resolve,
}

/// Where an append goes.
struct Plan {
    start: Lsn,
    end: Lsn,
    prev_crc: u32,
}

impl Ring {
    /// Uses mapped memory.
    ///
    /// # Safety
    /// `memory.shared` was initialised by [`LogShared::init`], `memory.ring` has as many mapped bytes as that was told for
    /// the small window and for the whole, `memory.commit_mutex` is an initialised mutex; all of it stays mapped, and
    /// nothing else writes to it, as long as the result lives.
    pub unsafe fn new(memory: LogMemory) -> Ring {
        Ring { memory }
    }

    /// The state in shared memory.
    pub fn shared(&self) -> &LogShared {
        // SAFETY: initialised and mapped while `self` lives, by the contract of `new`; shared access is
        // through atomics and mutexes only.
        unsafe { self.memory.shared.as_ref() }
    }

    /// Start of the ring where a window of so many bytes is mapped; None while this process has not mapped so much.
    fn base(&self, window: u64) -> Option<NonNull<u8>> {
        assert!(window <= self.shared().ring_bytes());
        if window <= self.memory.ring.first_bytes() {
            Some(self.memory.ring.first())
        } else {
            self.memory.ring.whole()
        }
    }

    /// (M) or alone: it is mapped (MAPPING-3 in shm/mapping.rs).
    fn mapped_base(&self, window: u64) -> NonNull<u8> {
        self.base(window).expect("whoever has the commit mutex has the window mapped")
    }

    fn assert_committing(&self, commit: &Guard<'_>) {
        // SAFETY: an initialised mutex, mapped while `self` lives, by the contract of `new`.
        let mutex = unsafe { self.memory.commit_mutex.as_ref() };
        assert!(commit.holds(mutex), "the commit mutex must be held");
    }

    /// Oldest position that is still in the ring, for a reader that holds the commit mutex.
    pub fn oldest(&self) -> Lsn {
        let shared = self.shared();
        // Relaxed: the reader holds the commit mutex, under which it changes.
        let reserved = shared.commit.reserved_end.load(Relaxed);
        let start = shared.commit.window_start.load(Relaxed);
        Lsn::new(reserved.saturating_sub(shared.window_bytes()).max(start))
    }

    /// Copies a frame of `frame_len` bytes (see [`frame::frame_len`]) behind the log's end, without publishing it.
    ///
    /// Returns the frame's start and end. On an error nothing happened: let go of the commit mutex, call
    /// [`Log::make_room`](super::Log::make_room), and start over.
    ///
    /// A generation higher than the last frame's starts on the next segment boundary. Every published frame
    /// must have been applied already.
    pub fn append<'a>(
        &self,
        commit: &Guard<'_>,
        head: &FrameHead,
        frame_len: u64,
        ops: impl IntoIterator<Item = Op<'a>>,
    ) -> Result<(Lsn, Lsn), AppendError> {
        self.append_for(commit, Purpose::Commit, head, frame_len, ops)
    }

    /// As [`Ring::append`], for a purpose.
    pub fn append_for<'a>(
        &self,
        commit: &Guard<'_>,
        purpose: Purpose<'_>,
        head: &FrameHead,
        frame_len: u64,
        ops: impl IntoIterator<Item = Op<'a>>,
    ) -> Result<(Lsn, Lsn), AppendError> {
        self.assert_committing(commit);
        let shared = self.shared();
        let plan = self.claim_place(purpose, head.generation, frame_len)?;
        // Before the bytes: should this process be killed while copying, the next holder of the mutex knows what is
        // gone. It only grows, since a killed committer may have copied a longer frame than this one.
        shared.commit.reserved_end.fetch_max(plan.end.get(), SeqCst);
        fence(OVERWRITES);
        let durable_lsn = shared.durable_through();
        let place = Placement {
            lsn: plan.start,
            durable_lsn,
            durable_generation: shared
                .segment_before(durable_lsn)
                .map_or(Generation::ZERO, |s| s.generation),
            prev_crc: plan.prev_crc,
            salt: shared.salt(),
        };
        // SAFETY: `plan` found `start..end` free: not between `written_through` and `log_end` in the ring, so that
        // nobody's copy of it counts (rule 1), and the commit mutex is held, so that nobody else reads or writes it (rule 2).
        let (first, second) = unsafe { self.bytes_mut(plan.start, plan.end) };
        let mark = match purpose {
            Purpose::Prepare(mark, _) => Some(mark),
            Purpose::Commit | Purpose::Resolve => None,
        };
        frame::encode(head, &place, mark, ops, first, second);
        crash_point!("log.frame.copied");
        Ok((plan.start, plan.end))
    }

    /// The commit point: makes the frame that ends at `end` part of the log.
    pub fn publish_end(&self, commit: &Guard<'_>, end: Lsn) {
        self.assert_committing(commit);
        let commit_state = &self.shared().commit;
        // Relaxed: changes under the commit mutex only, which is held.
        debug_assert!(commit_state.reserved_end.load(Relaxed) >= end.get());
        commit_state.log_end.store(end.get(), PUBLISHES);
        crash_point!("log.frame.published");
    }

    /// (M) Fails if there is no space in the file for so many bytes more of the generation that takes commits.
    pub fn check_space(&self, generation: Generation, bytes: u64) -> Result<(), AppendError> {
        let shared = self.shared();
        let log_end = shared.log_end();
        let start = match shared.segment_before(log_end) {
            Some(last) if last.generation == generation => log_end.get(),
            _ => log_end.get().next_multiple_of(shared.segment_bytes()),
        };
        self.check_slots(shared.segment_of(Lsn::new(start + bytes - 1)))?;
        self.check_whole()
    }

    /// Fails if the file's last slot is prepared in part only.
    fn check_whole(&self) -> Result<(), AppendError> {
        let shared = self.shared();
        let prepared = shared.prepared_bytes();
        let whole = prepared.next_multiple_of(shared.segment_bytes());
        if prepared == whole { Ok(()) } else { Err(AppendError::NeedsBytes(whole)) }
    }

    /// Finds a place for a frame and makes the segments and the window ready for it.
    fn claim_place(
        &self,
        purpose: Purpose<'_>,
        generation: Generation,
        frame_len: u64,
    ) -> Result<Plan, AppendError> {
        let shared = self.shared();
        if let Some(errno) = shared.poisoned() {
            return Err(AppendError::Poisoned(errno));
        }
        if frame_len > shared.max_frame_bytes() {
            return Err(AppendError::TooLong);
        }
        let log_end = shared.log_end();
        let last = shared.segment_before(log_end);
        let newest = last.map_or(Generation::ZERO, |s| s.generation);
        assert!(generation >= newest, "generations only grow");
        assert!(generation > shared.retired_generation(), "a merged generation takes no commits");
        let last_crc = last.map(|_| self.crc_before(log_end));
        let (start, prev_crc) = match (last, last_crc) {
            (Some(last), Some(crc)) if last.generation == generation => {
                assert!(self.keeps_crc(log_end), "a generation goes on after its successor began");
                (log_end, u32::from_le_bytes(crc))
            }
            _ => {
                let start = log_end.get().next_multiple_of(shared.segment_bytes());
                (Lsn::new(start), 0)
            }
        };
        let end = start + frame_len;
        let window = match purpose {
            // It is no longer than the prepared one, which fits into half of the window that there is.
            Purpose::Resolve => self.window_kept(start + frame_len)?,
            Purpose::Commit | Purpose::Prepare(..) => self.window_for(frame_len, start, log_end)?,
        };
        if let Purpose::Prepare(_, behind) = purpose {
            self.check_slots(shared.segment_of(Lsn::new(end.get() + behind - 1)))?;
            self.check_whole()?;
        }
        self.check_ring(purpose, start, end, window)?;
        let last_segment = shared.segment_of(Lsn::new(end.get() - 1));
        self.check_slots(last_segment)?;
        self.record_segments(generation, start, log_end, last, last_segment)?;
        self.check_prepared(start, end)?;
        self.move_window(window, log_end, last_crc);
        Ok(Plan { start, end, prev_crc })
    }

    /// LOG-3: no frame is published without allocated space in the file.
    fn check_slots(&self, last_segment: u64) -> Result<(), AppendError> {
        let shared = self.shared();
        // Acquire pairs with the Release in `give_back`.
        let live = last_segment + 1 - shared.first_live_segment.load(Acquire);
        if live <= u64::from(shared.prepared_slots()) {
            return Ok(());
        }
        if live > u64::from(shared.slot_limit()) {
            return Err(AppendError::LimitReached);
        }
        Err(AppendError::NeedsSlots(live as u32))
    }

    /// The same for a slot that is prepared in part: the stretch `start..end` lies in segments that have slots.
    fn check_prepared(&self, start: Lsn, end: Lsn) -> Result<(), AppendError> {
        let shared = self.shared();
        let (prepared, segment) = (shared.prepared_bytes(), shared.segment_bytes());
        if prepared.is_multiple_of(segment) {
            return Ok(());
        }
        let in_part = prepared / segment;
        for number in shared.segment_of(start)..=shared.segment_of(Lsn::new(end.get() - 1)) {
            let is_it = shared.slot_of(number).is_some_and(|slot| u64::from(slot) == in_part);
            let through = end.min(shared.segment_start(number + 1)) - shared.segment_start(number);
            if is_it && through > prepared % segment {
                return Err(AppendError::NeedsBytes(in_part * segment + through));
            }
        }
        Ok(())
    }

    /// LOG-8: no byte of the ring is written that has no disk space behind it, nor one that is not mapped. What
    /// resolves a prepared transaction finds all of the window there.
    fn check_ring(
        &self,
        purpose: Purpose<'_>,
        start: Lsn,
        end: Lsn,
        window: u64,
    ) -> Result<(), AppendError> {
        let through = (start.get() & (window - 1)) + (end - start);
        let in_parts = window == self.shared().window_min() && purpose == Purpose::Commit;
        let needed = if in_parts { through.min(window) } else { window };
        if needed <= self.shared().ring_space() && self.base(window).is_some() {
            return Ok(());
        }
        Err(AppendError::NeedsRing(needed))
    }

    fn record_segments(
        &self,
        generation: Generation,
        start: Lsn,
        log_end: Lsn,
        last: Option<Segment>,
        last_segment: u64,
    ) -> Result<(), AppendError> {
        let shared = self.shared();
        let continued = last.filter(|s| s.generation == generation);
        let first_new = match continued {
            Some(s) => s.number + 1,
            None => shared.segment_of(start),
        };
        for number in first_new..=last_segment {
            let slot = shared.assign_slot(number).ok_or_else(|| self.lacks_a_slot())?;
            let segment = Segment {
                number,
                generation,
                generation_start: continued.map_or(start, |s| s.generation_start),
                previous_generation: match (continued, last) {
                    (Some(s), _) => s.previous_generation,
                    (None, Some(s)) => s.generation,
                    (None, None) => Generation::ZERO,
                },
                previous_end: continued.map_or(log_end, |s| s.previous_end),
            };
            shared.record_segment(&segment, slot);
        }
        Ok(())
    }

    /// There are as many prepared slots as live segments, but some cannot be used yet (INTENT-2 in write.rs).
    fn lacks_a_slot(&self) -> AppendError {
        let prepared = self.shared().prepared_slots();
        if prepared < self.shared().slot_limit() {
            AppendError::NeedsSlots(prepared + 1)
        } else {
            AppendError::LimitReached
        }
    }

    /// Calls `visit` for each frame that starts in `from..to`, in order. `from` is a frame's start, or the end of one;
    /// `to` is at most `log_end`.
    ///
    /// # Errors
    /// A frame that is not in the ring any more or not valid, with its position.
    pub fn for_each_frame(
        &self,
        commit: &Guard<'_>,
        from: Lsn,
        to: Lsn,
        visit: impl FnMut(&Frame<'_>),
    ) -> Result<(), (Lsn, BadFrame)> {
        self.assert_committing(commit);
        self.each_frame(from, to, visit)
    }

    /// As [`Ring::for_each_frame`], for who begins or ends a session: nobody else uses the ring.
    pub(crate) fn each_frame_left(
        &self,
        from: Lsn,
        to: Lsn,
        visit: impl FnMut(&Frame<'_>),
    ) -> Result<(), (Lsn, BadFrame)> {
        self.each_frame(from, to, visit)
    }

    /// (M) or alone.
    fn each_frame(
        &self,
        from: Lsn,
        to: Lsn,
        mut visit: impl FnMut(&Frame<'_>),
    ) -> Result<(), (Lsn, BadFrame)> {
        let shared = self.shared();
        assert!(to <= shared.log_end());
        let mut at = shared.skip_gap(from, to);
        if at < to && at < self.oldest() {
            return Err((at, BadFrame::OtherPlace));
        }
        let mut joined = Vec::new();
        while at < to {
            // SAFETY: `oldest() <= at` and `to <= log_end`, and nobody commits: the commit mutex is held (rule 2), or nobody is there.
            let (first, second) = unsafe { self.bytes(at, to) };
            let bytes = if second.is_empty() {
                first
            } else {
                joined.clear();
                joined.extend_from_slice(first);
                joined.extend_from_slice(second);
                &joined
            };
            let frame = Frame::parse(bytes, shared.salt(), at).map_err(|why| (at, why))?;
            visit(&frame);
            at = shared.skip_gap(frame.end(), to);
        }
        Ok(())
    }

    /// Copies published bytes that were unwritten a moment ago; false if they are gone for sure. If they have been written by the end of it
    /// the copy is worth nothing: others have perhaps put newer bytes there meanwhile.
    pub(super) fn copy_unwritten(&self, from: Lsn, to: Lsn, copy: &mut Vec<u8>) -> bool {
        const WORD: usize = size_of::<u64>();
        let shared = self.shared();
        let (window, len) = (shared.window_bytes(), to.get().saturating_sub(from.get()));
        assert!(window <= shared.ring_bytes());
        if len > window
            || !from.get().is_multiple_of(WORD as u64)
            || !len.is_multiple_of(WORD as u64)
        {
            return false;
        }
        copy.resize(len as usize, 0);
        let Some(base) = self.base(window) else {
            return self.read_unwritten(from, window, copy);
        };
        for (i, bytes) in copy.chunks_exact_mut(WORD).enumerate() {
            let offset = (from.get() + (i * WORD) as u64) & (window - 1);
            // SAFETY: `offset` is within the window, a power of two, and so within the ring; 8 bytes follow, since it is a multiple of 8.
            let at = unsafe { base.as_ptr().add(offset as usize) };
            // SAFETY: mapped while `self` lives, and aligned as the ring is. Whoever writes there meanwhile has made the copy worthless.
            let word = unsafe { AtomicU64::from_ptr(at.cast()) };
            // Relaxed: the caller's fence, before its second look, orders them.
            bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
        }
        true
    }

    /// The same by the file: this process has not mapped the window, or cannot. A copy that is not of one moment is worth nothing
    /// here either.
    fn read_unwritten(&self, from: Lsn, window: u64, copy: &mut [u8]) -> bool {
        let offset = from.get() & (window - 1);
        let first = copy.len().min((window - offset) as usize);
        let (a, b) = copy.split_at_mut(first);
        self.memory.ring.read(offset, a).and_then(|()| self.memory.ring.read(0, b)).is_ok()
    }

    /// (M) The checksum at the end of the last frame.
    fn crc_before(&self, log_end: Lsn) -> [u8; CRC_BYTES as usize] {
        // SAFETY: they are in the ring, wherever the window starts (RING-3), and the commit mutex is held.
        let (crc, _) = unsafe { self.bytes(Lsn::new(log_end.get() - CRC_BYTES), log_end) };
        crc.try_into().expect("frames are 8-aligned and so is the window")
    }

    /// (M) False if a killed committer may have overwritten that: one whose frame was to begin the next generation.
    fn keeps_crc(&self, log_end: Lsn) -> bool {
        let shared = self.shared();
        // Relaxed: changes under the commit mutex only, which is held.
        let reserved = shared.commit.reserved_end.load(Relaxed);
        reserved.saturating_sub(shared.window_bytes()) <= log_end.get() - CRC_BYTES
    }

    /// (M) Puts the checksum of the last frame where it is in a window of `window` bytes. Everything is written to the file,
    /// and nothing in the ring may be read any more (RING-1, RING-2).
    pub(super) fn put_crc(&self, window: u64, log_end: Lsn, crc: [u8; CRC_BYTES as usize]) {
        let base = self.mapped_base(window);
        let offset = (log_end.get() - CRC_BYTES) & (window - 1);
        fence(OVERWRITES);
        // SAFETY: `offset` is within the window, and so within the ring; 4 bytes follow, since frames are 8-aligned.
        let at = unsafe { base.as_ptr().add(offset as usize) };
        // SAFETY: as above; nobody reads or writes it meanwhile: the commit mutex is held and nobody has anything to write.
        unsafe { at.copy_from_nonoverlapping(crc.as_ptr(), crc.len()) };
    }

    /// Where the bytes of `from..to` are: the start of the ring, the offset of the first part, the lengths of both.
    fn split(&self, from: Lsn, to: Lsn) -> (*mut u8, usize, usize, usize) {
        // Read once: the bytes must lie in what is mapped for this very window.
        let window_bytes = self.shared().window_bytes();
        let len = (to - from) as usize;
        assert!(len as u64 <= window_bytes && window_bytes <= self.shared().ring_bytes());
        let offset = (from.get() & (window_bytes - 1)) as usize;
        let first = len.min(window_bytes as usize - offset);
        (self.mapped_base(window_bytes).as_ptr(), offset, first, len - first)
    }

    /// # Safety
    /// The bytes of `from..to` are not written to while the result lives: see the rules in the module header.
    unsafe fn bytes(&self, from: Lsn, to: Lsn) -> (&[u8], &[u8]) {
        let (base, offset, first, second) = self.split(from, to);
        // SAFETY: `offset` is within the ring.
        let start = unsafe { base.add(offset) };
        // SAFETY: `offset + first` is within the ring, which is mapped while `self` lives; unchanging by the caller's promise.
        let a = unsafe { std::slice::from_raw_parts(start, first) };
        // SAFETY: `second <= len - first` is within the ring from its start; unchanging by the caller's promise.
        let b = unsafe { std::slice::from_raw_parts(base, second) };
        (a, b)
    }

    /// # Safety
    /// Nobody else reads or writes the bytes of `from..to` while the result lives.
    #[allow(clippy::mut_from_ref)]
    unsafe fn bytes_mut(&self, from: Lsn, to: Lsn) -> (&mut [u8], &mut [u8]) {
        let (base, offset, first, second) = self.split(from, to);
        // SAFETY: `offset` is within the ring.
        let start = unsafe { base.add(offset) };
        // SAFETY: within the ring, mapped while `self` lives; exclusive by the caller's promise.
        let a = unsafe { std::slice::from_raw_parts_mut(start, first) };
        // SAFETY: within the ring and before `offset`, so disjoint from `a`; exclusive by the caller's promise.
        let b = unsafe { std::slice::from_raw_parts_mut(base, second) };
        (a, b)
    }
}

/// Bytes of a frame's checksum, its last.
pub(super) const CRC_BYTES: u64 = 4;

impl Ring {
    /// (M) Bytes of the window in which a frame of `frame_len` bytes can go, at `start` behind `log_end`.
    pub(super) fn window_for(
        &self,
        frame_len: u64,
        start: Lsn,
        log_end: Lsn,
    ) -> Result<u64, AppendError> {
        let shared = self.shared();
        // Between generations nothing is in the ring, and so nothing unwritten.
        let written = shared.skip_gap(shared.written_through(), log_end);
        let is_written = written >= log_end;
        let now = shared.window_bytes();
        let wanted = shared.window_of(frame_len);
        if wanted > now && !is_written {
            return Err(AppendError::RingFull);
        }
        let window = if is_written { wanted } else { now };
        // LOG-1: the bytes that this frame overwrites are in the file.
        let is_free =
            is_written || (start + frame_len).get().saturating_sub(window) <= written.get();
        if is_free { Ok(window) } else { Err(AppendError::RingFull) }
    }

    /// (M) The window as it is, if what a frame through `end` overwrites is in the file.
    pub(super) fn window_kept(&self, end: Lsn) -> Result<u64, AppendError> {
        let now = self.shared().window_bytes();
        let written = self.shared().written_through();
        let is_free = end.get().saturating_sub(now) <= written.get();
        if is_free { Ok(now) } else { Err(AppendError::RingFull) }
    }

    /// (M) Makes the window that many bytes, as [`Ring::window_for`] found.
    pub(super) fn move_window(&self, bytes: u64, log_end: Lsn, last_crc: Option<[u8; 4]>) {
        let commit = &self.shared().commit;
        // Relaxed: changes under the commit mutex only, which is held.
        if bytes == commit.window_bytes.load(Relaxed) {
            return;
        }
        // Release throughout: should this process be killed, the next holder of the mutex finds these in this order (RING-3).
        commit.window_start.store(log_end.get(), Release);
        if let Some(crc) = last_crc {
            self.put_crc(bytes, log_end, crc);
        }
        crash_point!("log.window.copied");
        // A killed committer's frame went to the old place: it keeps nothing from being read here.
        commit.reserved_end.store(log_end.get(), Release);
        commit.window_bytes.store(bytes, Release);
        crash_point!("log.window.moved");
    }
}
