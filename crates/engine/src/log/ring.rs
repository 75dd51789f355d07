//! The log's ring: the newest bytes of the stream, in memory that all processes share.
//!
//! Stream position `p` is at ring offset `p % window_bytes` (the window). A committer copies its
//! frame behind `log_end` and then publishes the new end, both under the commit mutex and without a
//! system call. A frame that was copied but not published never happened, and the next frame
//! overwrites it (COMMIT-2).
//!
//! Which bytes may be read
//! 1. `written_through..log_end` never changes. Any process may copy it, then looks at
//!    `written_through` again, and discards the copy if that has moved.
//! 2. `oldest()..log_end` does not change while the commit mutex is held.
//!
//! The caller applies each frame to the memtables before it appends the next. So after a kill at
//! most one frame has to be redone, and it is always in the ring.
//!
//! # The window
//!
//! The window is the part of the ring that is in use.
//!
//! The ring must hold the longest frame, yet most frames are short. A small window stays in the
//! processors' caches, and every process soon has all of its pages mapped. So the window is the
//! whole ring only while there are long frames.
//!
//! How it moves (always under the commit mutex, in `append`)
//!
//! | window | frame | everything written to the file | what is done |
//! |---|---|---|---|
//! | small | short | - | nothing |
//! | small | long | yes | becomes the whole ring |
//! | small | long | no | `RingFull`: the caller writes the ring to the file and retries |
//! | whole ring | long | - | nothing |
//! | whole ring | short | yes | becomes small |
//! | whole ring | short | no | nothing |
//!
//! Invariants
//! - RING-1 The window moves only while `written_through == log_end`. Then no process reads the
//!   ring to write it to the file, and a later reader has seen a `log_end` that was published after
//!   the move.
//! - RING-2 Nothing before `window_start` may be read, except the checksum of the last frame, which
//!   the next frame continues.
//! - RING-3 A kill between any two stores of a move leaves a window in which that checksum is in
//!   its place.
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

/// A reader that sees the end sees the frame and its segments. Partner of
/// [`SEES_PUBLISHED`](super::shared::SEES_PUBLISHED).
pub(super) const PUBLISHES: Ordering = Release;
/// Fence of a committer between its load of `written_through` and its first byte in the ring. Its
/// partner is the fence in `intend`, after a writer's copy: a writer that copied one of these bytes
/// then sees that it was overtaken (rule 1).
pub(super) const OVERWRITES: Ordering = Release;

/// The ring's bytes, as far as this process has them mapped.
pub trait RingMemory: Send + Sync {
    /// The ring's first byte, where [`RingMemory::first_bytes`] are mapped.
    fn first(&self) -> NonNull<u8>;
    /// Bytes mapped there, at least the small window. It does not trust shared memory.
    fn first_bytes(&self) -> u64;
    /// The ring's first byte where all of the ring is mapped, or None.
    fn whole(&self) -> Option<NonNull<u8>>;
    /// Copies bytes of the ring that are not mapped.
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

// SAFETY: the pointers are to process-shared memory: atomics, mutexes, and ring bytes that every
// thread accesses by the rules of the module header.
unsafe impl Send for Ring {}
// SAFETY: as for Send: every access through `&Ring` follows the rules of the module header.
unsafe impl Sync for Ring {}

/// What a frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose<'a> {
    /// A transaction of this file alone.
    Commit,
    /// A transaction that is prepared (`several.rs`). The file must have space for this many more
    /// bytes behind its frame.
    Prepare(Mark<'a>, u64),
    /// The outcome of the prepared transaction. The prepared frame is the last one and stays
    /// readable in the ring.
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
    /// [`LogShared::init`] has initialised `memory.shared`. `memory.ring` has as many bytes as
    /// `init` was given, for the small window and for the whole. `memory.commit_mutex` is an
    /// initialised mutex. All of it stays mapped, and nothing else writes to it, as long as the
    /// result lives.
    pub unsafe fn new(memory: LogMemory) -> Ring {
        Ring { memory }
    }

    /// The state in shared memory.
    pub fn shared(&self) -> &LogShared {
        // SAFETY: initialised and mapped while `self` lives, by the contract of `new`; shared
        // access is through atomics and mutexes only.
        unsafe { self.memory.shared.as_ref() }
    }

    /// Start of the ring, in a mapping of at least `window` bytes. None while this process has not
    /// mapped that much.
    fn base(&self, window: u64) -> Option<NonNull<u8>> {
        assert!(window <= self.shared().ring_bytes());
        if window <= self.memory.ring.first_bytes() {
            Some(self.memory.ring.first())
        } else {
            self.memory.ring.whole()
        }
    }

    /// (M) or alone: the window is mapped (MAPPING-3 in shm/mapping.rs).
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
        // Relaxed: it changes under the commit mutex only, which the reader holds.
        let reserved = shared.commit.reserved_end.load(Relaxed);
        let start = shared.commit.window_start.load(Relaxed);
        Lsn::new(reserved.saturating_sub(shared.window_bytes()).max(start))
    }

    /// Copies a frame of `frame_len` bytes (see [`frame::frame_len`]) behind the log's end, without
    /// publishing it.
    ///
    /// Returns the frame's start and end. An error means that nothing happened: release the commit
    /// mutex, call [`Log::make_room`](super::Log::make_room), and start over.
    ///
    /// A frame of a new generation starts on the next segment boundary. Every published frame must
    /// have been applied already.
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
        // Before the bytes: if this process is killed while copying, the next owner of the mutex
        // knows which bytes are gone. The word only grows, since a killed committer may have copied
        // a longer frame than this one.
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
        // SAFETY: `plan` found `start..end` free: it is not between `written_through` and `log_end`
        // in the ring, so no copy of it counts (rule 1). The commit mutex is held, so no other
        // thread uses it (rule 2).
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
        // Relaxed: it changes under the commit mutex only, which is held.
        debug_assert!(commit_state.reserved_end.load(Relaxed) >= end.get());
        commit_state.log_end.store(end.get(), PUBLISHES);
        crash_point!("log.frame.published");
    }

    /// (M) Fails if the file lacks space for `bytes` more bytes of the generation that takes
    /// commits, or if its last slot is prepared in part only.
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
            // The frame is no longer than the prepared one, which fits into half of the present
            // window.
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

    /// Fails if the file has too few slots for a frame that ends in `last_segment` (LOG-3). A hold
    /// that asks for more than it may have is broken first (HELD-2).
    fn check_slots(&self, last_segment: u64) -> Result<(), AppendError> {
        let shared = self.shared();
        // Acquire pairs with the Release in `give_back`.
        let first_live = shared.first_live_segment.load(Acquire);
        let live = last_segment + 1 - first_live;
        if live > u64::from(shared.slot_limit()) {
            return Err(AppendError::LimitReached);
        }
        let prepared = u64::from(shared.prepared_slots());
        // A merge may have given segments back since.
        let needed = last_segment + 1 - shared.first_needed_segment().min(first_live);
        let wanted = match shared.may_hold(needed - live, needed) {
            true => needed,
            false => {
                shared.break_hold();
                live
            }
        };
        if wanted <= prepared { Ok(()) } else { Err(AppendError::NeedsSlots(wanted as u32)) }
    }

    /// LOG-3 for a slot that is prepared in part: fails if `start..end` needs more of it. The
    /// segments of `start..end` have their slots.
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

    /// LOG-8: fails if a frame at `start..end` needs ring bytes without disk space, or a window
    /// that is not mapped. A prepared frame needs all of the window, which the frame that resolves
    /// it then finds there.
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

    /// There are as many prepared slots as needed segments, but some of the slots cannot be used yet
    /// (INTENT-2 in write.rs). Where there may be no more, a hold gives up its own (HELD-2).
    fn lacks_a_slot(&self) -> AppendError {
        let prepared = self.shared().prepared_slots();
        if prepared < self.shared().slots_allowed() || self.shared().break_hold() {
            AppendError::NeedsSlots(prepared + 1)
        } else {
            AppendError::LimitReached
        }
    }

    /// Calls `visit` for each frame that starts in `from..to`, in order. `from` is the start or the
    /// end of a frame. `to` is at most `log_end`.
    ///
    /// # Errors
    /// The position of a frame that is no longer in the ring or not valid, and the reason.
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

    /// As [`Ring::for_each_frame`], at the start or end of a session, when no other process uses
    /// the ring.
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
            // SAFETY: `oldest() <= at` and `to <= log_end`, and nothing is committed: the commit
            // mutex is held (rule 2), or no other process is there.
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

    /// Copies published bytes that were unwritten a moment ago; false if they are certainly gone.
    /// If they are written when this returns the copy is worthless: a committer may have
    /// overwritten them.
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
            // SAFETY: `offset` is within the window, a power of two, and so within the ring. It is
            // a multiple of 8, so 8 bytes follow.
            let at = unsafe { base.as_ptr().add(offset as usize) };
            // SAFETY: mapped while `self` lives, and aligned as the ring is. A write during this
            // load only makes the copy worthless.
            let word = unsafe { AtomicU64::from_ptr(at.cast()) };
            // Relaxed: the fence in `intend`, before the caller's second look, orders them.
            bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
        }
        true
    }

    /// As [`Ring::copy_unwritten`], through the file: this process has not mapped the window, or
    /// cannot. A copy of mixed moments is as worthless here.
    fn read_unwritten(&self, from: Lsn, window: u64, copy: &mut [u8]) -> bool {
        let offset = from.get() & (window - 1);
        let first = copy.len().min((window - offset) as usize);
        let (a, b) = copy.split_at_mut(first);
        self.memory.ring.read(offset, a).and_then(|()| self.memory.ring.read(0, b)).is_ok()
    }

    /// (M) The checksum at the end of the last frame.
    fn crc_before(&self, log_end: Lsn) -> [u8; CRC_BYTES as usize] {
        // SAFETY: these bytes are in the ring wherever the window starts (RING-3), and the commit
        // mutex is held.
        let (crc, _) = unsafe { self.bytes(Lsn::new(log_end.get() - CRC_BYTES), log_end) };
        crc.try_into().expect("frames are 8-aligned and so is the window")
    }

    /// (M) False if a killed committer may have overwritten the last frame's checksum with a frame
    /// that was to begin the next generation.
    fn keeps_crc(&self, log_end: Lsn) -> bool {
        let shared = self.shared();
        // Relaxed: changes under the commit mutex only, which is held.
        let reserved = shared.commit.reserved_end.load(Relaxed);
        reserved.saturating_sub(shared.window_bytes()) <= log_end.get() - CRC_BYTES
    }

    /// (M) Puts the checksum of the last frame into its place in a window of `window` bytes. All
    /// bytes are written to the file, and no byte of the ring may still be read (RING-1, RING-2).
    pub(super) fn put_crc(&self, window: u64, log_end: Lsn, crc: [u8; CRC_BYTES as usize]) {
        let base = self.mapped_base(window);
        let offset = (log_end.get() - CRC_BYTES) & (window - 1);
        fence(OVERWRITES);
        // SAFETY: `offset` is within the window, and so within the ring. Frames are 8-aligned, so 4
        // bytes follow.
        let at = unsafe { base.as_ptr().add(offset as usize) };
        // SAFETY: within the ring. No other thread uses these bytes: the commit mutex is held, and
        // nothing is left to write to the file.
        unsafe { at.copy_from_nonoverlapping(crc.as_ptr(), crc.len()) };
    }

    /// Where the bytes of `from..to` are: the start of the ring, the offset of the first part, the
    /// lengths of both.
    fn split(&self, from: Lsn, to: Lsn) -> (*mut u8, usize, usize, usize) {
        // Read once: the bytes must be in what is mapped for this very window.
        let window_bytes = self.shared().window_bytes();
        let len = (to - from) as usize;
        assert!(len as u64 <= window_bytes && window_bytes <= self.shared().ring_bytes());
        let offset = (from.get() & (window_bytes - 1)) as usize;
        let first = len.min(window_bytes as usize - offset);
        (self.mapped_base(window_bytes).as_ptr(), offset, first, len - first)
    }

    /// # Safety
    /// The bytes of `from..to` do not change while the result lives: see the rules in the module
    /// header.
    unsafe fn bytes(&self, from: Lsn, to: Lsn) -> (&[u8], &[u8]) {
        let (base, offset, first, second) = self.split(from, to);
        // SAFETY: `offset` is within the ring.
        let start = unsafe { base.add(offset) };
        // SAFETY: `offset + first` is within the ring, which is mapped while `self` lives.
        // Unchanging by the caller's promise.
        let a = unsafe { std::slice::from_raw_parts(start, first) };
        // SAFETY: `second <= len - first` is within the ring from its start. Unchanging by the
        // caller's promise.
        let b = unsafe { std::slice::from_raw_parts(base, second) };
        (a, b)
    }

    /// # Safety
    /// No other thread reads or writes the bytes of `from..to` while the result lives.
    #[allow(clippy::mut_from_ref)]
    unsafe fn bytes_mut(&self, from: Lsn, to: Lsn) -> (&mut [u8], &mut [u8]) {
        let (base, offset, first, second) = self.split(from, to);
        // SAFETY: `offset` is within the ring.
        let start = unsafe { base.add(offset) };
        // SAFETY: within the ring, mapped while `self` lives. Exclusive by the caller's promise.
        let a = unsafe { std::slice::from_raw_parts_mut(start, first) };
        // SAFETY: within the ring and before `offset`, so disjoint from `a`. Exclusive by the
        // caller's promise.
        let b = unsafe { std::slice::from_raw_parts_mut(base, second) };
        (a, b)
    }
}

/// Bytes of a frame's checksum, which ends the frame.
pub(super) const CRC_BYTES: u64 = 4;

impl Ring {
    /// (M) Bytes of the window for a frame of `frame_len` bytes at `start`, after `log_end`.
    pub(super) fn window_for(
        &self,
        frame_len: u64,
        start: Lsn,
        log_end: Lsn,
    ) -> Result<u64, AppendError> {
        let shared = self.shared();
        // The gap between two generations has no bytes in the ring, so it counts as written.
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

    /// (M) Returns the present window if the bytes that a frame through `end` overwrites are in the
    /// file.
    pub(super) fn window_kept(&self, end: Lsn) -> Result<u64, AppendError> {
        let now = self.shared().window_bytes();
        let written = self.shared().written_through();
        let is_free = end.get().saturating_sub(now) <= written.get();
        if is_free { Ok(now) } else { Err(AppendError::RingFull) }
    }

    /// (M) Changes the window to `bytes`, as [`Ring::window_for`] returned.
    pub(super) fn move_window(&self, bytes: u64, log_end: Lsn, last_crc: Option<[u8; 4]>) {
        let commit = &self.shared().commit;
        // Relaxed: it changes under the commit mutex only, which is held.
        if bytes == commit.window_bytes.load(Relaxed) {
            return;
        }
        // Release throughout: if this process is killed, the next owner of the mutex finds these
        // stores in this order (RING-3).
        commit.window_start.store(log_end.get(), Release);
        if let Some(crc) = last_crc {
            self.put_crc(bytes, log_end, crc);
        }
        crash_point!("log.window.copied");
        // A killed committer's frame went to the old window: it makes no byte here unreadable.
        commit.reserved_end.store(log_end.get(), Release);
        commit.window_bytes.store(bytes, Release);
        crash_point!("log.window.moved");
    }
}
