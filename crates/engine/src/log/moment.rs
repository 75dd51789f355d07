//! Whether a log's file and the shared memory next to it are of one moment, when no process uses
//! either.
//!
//! A frame is published in memory before it is written to the file, and what memory counts as
//! written is in the file. So if the file has frames after memory's end, memory is an older copy;
//! if it lacks what was written, the file is. Either copy was put there after all processes had
//! died. A crash produces neither: the page cache outlives processes.
//!
//! # The tail in the ring
//!
//! The tail is the end of the log that its file lacks, from shared memory that is not trusted.
//!
//! Under NORMAL and OFF the newest commits are in the ring and not yet in the file. A copy of all
//! files, made after the processes have died, includes shared memory, but recovery trusts nothing
//! of it. It need not: a frame has checksums over itself and over what came before it. So ring
//! bytes that continue the file's frames are the log, wherever they come from.
//!
//! | what is read from memory | if it is wrong |
//! |---|---|
//! | salt, end of the file, end of the ring, sizes | the bytes continue nothing, and are left out |
//! | the segments after the file's last | the bytes continue nothing; or TAIL-1 |
//!
//! Invariants
//! - TAIL-1 A frame counts only over a base that has what the frame relies on. For frames of the
//!   file it has: what the base lacked was synced before they were written (before.rs). Frames of a
//!   ring may follow an exclusive transaction that a power cut has taken from the base's WAL. Such
//!   a transaction leaves a generation without rows: one without frames
//!   ([`Tail::relies_on_more_than`]), or one with frames only of a transaction over several files
//!   that was rolled back (`follow` in scan.rs). No frame after such a generation is taken. A
//!   generation that was frozen without rows, because a transaction found it too small, looks
//!   alike; what follows it is in the file (`Generations::must_write`).
//! - TAIL-2 A tail takes nothing away: if the log with its tail is not longer, or not sound, it is
//!   read without the tail ([`LogScan::open_continued`](super::LogScan::open_continued)).

use std::path::Path;

use super::error::LogError;
use super::file::{FileHeader, open_error};
use super::frame::{self, FRAME_HEADER_BYTES};
use super::ring::Ring;
use super::scan::Stream;
use super::shared::{LogShared, Segment};
use crate::ids::{Generation, Lsn};
use crate::storage::Storage;

/// How a log compares with the shared memory next to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// As memory left it.
    Same,
    /// The log has commits that memory does not know.
    LogIsNewer,
    /// The log lacks commits that memory counts as written.
    LogIsOlder,
}

impl LogShared {
    /// Compares with the log at `path`, for a base that is complete through `merged`.
    ///
    /// # Errors
    /// As [`LogScan::salt_of`](super::LogScan::salt_of); [`LogError::Foreign`];
    /// [`LogError::Corrupt`] if the log contradicts itself.
    pub fn compare(
        &self,
        storage: &dyn Storage,
        path: &Path,
        merged: Generation,
    ) -> Result<Moment, LogError> {
        let file = storage.open_read_only(path).map_err(|e| open_error(path, &e))?;
        let header = FileHeader::read(&*file, path)?;
        if header.salt != self.salt() {
            return Err(LogError::Foreign {
                path: path.to_owned(),
                log_salt: header.salt,
                base_salt: self.salt(),
                has_frames: true,
            });
        }
        let mut stream = Stream::open(file, path, &header)?;
        if stream.last_segment() > self.segment_before(self.log_end()).map_or(0, |s| s.number) {
            return Ok(Moment::LogIsNewer);
        }
        stream.sort(merged)?;
        let mut bytes = Vec::new();
        if stream.frame(self.log_end(), &mut bytes)?.is_ok() {
            return Ok(Moment::LogIsNewer);
        }
        let is_whole = self.holds_what_was_written(&mut stream, merged)?;
        Ok(if is_whole { Moment::Same } else { Moment::LogIsOlder })
    }

    /// True if the file has the frames of the generation that was written last, without a break and
    /// as far as it was written.
    fn holds_what_was_written(
        &self,
        stream: &mut Stream,
        merged: Generation,
    ) -> Result<bool, LogError> {
        let written = self.written_through();
        let Some(last) = self.segment_before(written).filter(|last| last.generation > merged)
        else {
            // Nothing was written, or its slots may have been reused since.
            return Ok(true);
        };
        let mut at = last.generation_start;
        let mut bytes = Vec::new();
        while at < written {
            let end = match stream.frame(at, &mut bytes)? {
                Ok(frame) if frame.generation == last.generation => Some(frame.end()),
                Ok(_) => None,
                // Its writer was killed between two stretches of it.
                Err(_) => begun_before(&bytes, at, written),
            };
            match end {
                Some(end) => at = end,
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// Returns the end of a frame at `at` of which less was written.
fn begun_before(bytes: &[u8], at: Lsn, written: Lsn) -> Option<Lsn> {
    if written - at < FRAME_HEADER_BYTES as u64 {
        return Some(written);
    }
    let len = frame::stated_len(bytes, at).ok()?;
    Some(at + len as u64).filter(|end| *end > written)
}

/// Bytes of a ring that were not in the file.
#[derive(Debug, Clone)]
pub struct Tail {
    pub(super) salt: u32,
    pub(super) segment_bytes: u64,
    pub(super) from: Lsn,
    pub(super) bytes: Vec<u8>,
    pub(super) segments: Vec<Segment>,
}

impl Tail {
    /// Copies the tail of a ring of these sizes that no process uses and any may have written;
    /// `None` if there is none, or it cannot be copied.
    pub(crate) fn copy_from(ring: &Ring, segment_bytes: u64, ring_bytes: u64) -> Option<Tail> {
        let shared = ring.shared();
        let window = shared.window_bytes();
        let fits = shared.has_segments_of(segment_bytes)
            && shared.ring_bytes() == ring_bytes
            && window.is_power_of_two()
            && window <= ring_bytes;
        if !fits {
            return None;
        }
        let end = shared.log_end();
        // Between generations nothing is in the ring up to the next segment: content and gap
        // together may be longer than the window.
        let from = shared.skip_gap(shared.written_through(), end);
        let len = end.get().checked_sub(from.get())?;
        if len == 0 || end.get() > u64::MAX / 2 {
            return None;
        }
        let mut bytes = Vec::new();
        if !ring.copy_unwritten(from, end, &mut bytes) {
            return None;
        }
        let numbers = from.get() / segment_bytes..=(end.get() - 1) / segment_bytes;
        let segments = numbers.filter_map(|number| shared.segment(number)).collect();
        Some(Tail { salt: shared.salt(), segment_bytes, from, bytes, segments })
    }

    /// TAIL-1, for a segment that is not in the file and a base that is complete through `base`.
    pub(super) fn relies_on_more_than(base: Generation, segment: &Segment) -> bool {
        let before = segment.generation.get().saturating_sub(1);
        segment.previous_generation.get() != before && base.get() < before
    }

    /// Copies the tail's bytes of segment `number` into `segment`.
    pub(super) fn patch(&self, number: u64, segment: &mut Vec<u8>) {
        let start = number.saturating_mul(self.segment_bytes);
        let from = self.from.get().max(start);
        let end = (self.from.get() + self.bytes.len() as u64)
            .min(start.saturating_add(self.segment_bytes));
        if from >= end {
            return;
        }
        let (to_from, to_end) = ((from - start) as usize, (end - start) as usize);
        if segment.len() < to_end {
            segment.resize(to_end, 0);
        }
        let (at, until) = ((from - self.from.get()) as usize, (end - self.from.get()) as usize);
        segment[to_from..to_end].copy_from_slice(&self.bytes[at..until]);
    }
}
