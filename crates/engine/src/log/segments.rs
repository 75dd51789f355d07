//! The segment table: which generation each stretch of the stream belongs to, and which slot holds it.
//!
//! Entries are made under the commit mutex, before the frame that enters the segment is published, and
//! are meaningful only for segments that start before `log_end`. A committer killed before publishing
//! leaves an entry that the next one writes again. With its entry a segment is given its slot of the file; one given to a segment
//! below `first_live_segment` is free again, so giving segments back is one store. But a free slot is not used while
//! a process may still be writing to it what it held before (write.rs).

use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use super::shared::{LogShared, SEGMENT_ENTRIES, SegmentEntry};
use crate::crash_point;
use crate::ids::{Generation, Lsn, ProcessIndex};

/// Fences (D2 in write.rs): of who intends to write, between the intent and the second look at `written_through`; of who
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
