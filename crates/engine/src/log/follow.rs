//! Reading the stream of a living log: whole frames, from the file's slots.
//!
//! The reader is a holder (hold.rs), a little behind the newest commits. It reads what is on disk
//! alone, from the file and not from the ring, and takes no lock.
//!
//! Invariants
//! - TAILING-1 What is given ends at or before `durable_through`, as the caller has loaded it.
//! - TAILING-2 What is given are whole frames of one generation, each behind the one before, as the
//!   stream has them: position, checksum, the checksum of the frame before, and generation are
//!   checked. So bytes of a slot that is used again, or was never written, are no frames, whatever
//!   became of the hold in between.
//! - TAILING-3 A prepared frame (`several.rs`) is given together with the one behind it, which says
//!   what became of it. Alone it would be a commit to whoever has no super-journal.

use super::error::LogError;
use super::frame::{BadFrame, Frame};
use super::group::Log;
use super::shared::{FIRST_SEGMENT, Piece};
use crate::ids::{CommitTs, Generation, Lsn};

/// Bytes that are read at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// What is read beyond what may be given: a prepared frame and the one behind it are shorter.
const READ_BYTES_MAX: usize = 15 << 20;

/// Frames of one generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    /// Their generation.
    pub generation: Generation,
    /// Position of the first byte.
    pub from: Lsn,
    /// The first commit.
    pub first_commit: CommitTs,
    /// The last commit.
    pub last_commit: CommitTs,
    /// Checksum of the last frame.
    pub crc: u32,
    /// The frames.
    pub bytes: Vec<u8>,
}

impl Stretch {
    /// Position behind the last byte.
    pub fn end(&self) -> Lsn {
        self.from + self.bytes.len() as u64
    }
}

/// Why frames cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unread {
    /// The log's slots have something else there: the hold was broken, or bytes are damaged.
    Gone(Lsn, BadFrame),
    /// The file cannot be read.
    Failed(LogError),
}

/// A stretch that grows.
struct Growing {
    stretch: Stretch,
    /// Bytes that are frames.
    whole: usize,
    /// Bytes that may be given (TAILING-3).
    given: usize,
    /// The last whole frame, a prepared one or not.
    last: Option<(CommitTs, u32)>,
}

impl Growing {
    /// Takes the whole frames among the bytes that were added.
    fn parse(&mut self, salt: u32) -> Result<(), Unread> {
        loop {
            let at = self.stretch.from + self.whole as u64;
            let rest = &self.stretch.bytes[self.whole..];
            let frame = match Frame::parse(rest, salt, at) {
                Ok(frame) => frame,
                Err(BadFrame::Short) => return Ok(()),
                Err(why) => return Err(Unread::Gone(at, why)),
            };
            let follows = match self.last {
                Some((ts, crc)) => frame.commit_ts > ts && frame.prev_crc == crc,
                None => true,
            };
            if frame.generation != self.stretch.generation || !follows {
                return Err(Unread::Gone(at, BadFrame::OtherPlace));
            }
            let (commit, crc) = (frame.commit_ts, frame.crc);
            let is_prepared = frame.prepared().is_some();
            self.whole += frame.len_bytes() as usize;
            if self.last.is_none() {
                self.stretch.first_commit = commit;
            }
            self.last = Some((commit, crc));
            if !is_prepared {
                self.given = self.whole;
                (self.stretch.last_commit, self.stretch.crc) = (commit, crc);
            }
        }
    }

    fn finish(mut self) -> Option<Stretch> {
        self.stretch.bytes.truncate(self.given);
        (self.given > 0).then_some(self.stretch)
    }
}

impl Log {
    /// Returns frames from `from` on, the start or the end of one, and before `through`, which was
    /// loaded from `durable_through`: of one generation, and of about `bytes` bytes. None: there is
    /// nothing yet. The caller has a hold from `from` on.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn read_durable(
        &self,
        from: Lsn,
        through: Lsn,
        bytes: usize,
    ) -> Result<Option<Stretch>, Unread> {
        let shared = self.shared();
        let Some(first) = shared.piece(from, through) else {
            return if shared.skip_gap(from, through) < through {
                Err(Unread::Gone(from, BadFrame::OtherPlace))
            } else {
                Ok(None)
            };
        };
        let generation = first.segment.generation;
        let none = CommitTs::new(0);
        let (first_commit, last_commit) = (none, none);
        let from = first.from;
        // All at once: it would move as it grows.
        let most = (through - from).min((bytes as u64).saturating_add(PIECE_BYTES));
        let bytes_so_far = Vec::with_capacity(most as usize);
        let stretch =
            Stretch { generation, from, first_commit, last_commit, crc: 0, bytes: bytes_so_far };
        let mut growing = Growing { stretch, whole: 0, given: 0, last: None };
        let mut at = from;
        loop {
            let piece = shared.piece(at, through);
            let goes_on =
                |piece: &Piece| piece.from == at && piece.segment.generation == generation;
            let Some(piece) = piece.filter(goes_on) else {
                // The last byte of a generation, and of what is on disk, ends a frame.
                if growing.given == 0 && growing.whole < growing.stretch.bytes.len() {
                    let at = from + growing.whole as u64;
                    return Err(Unread::Gone(at, BadFrame::Short));
                }
                break;
            };
            let to = piece.to.min(at + PIECE_BYTES);
            self.read_piece(piece.segment.number, at, to, &mut growing.stretch.bytes)?;
            at = to;
            growing.parse(shared.salt())?;
            let is_long = growing.given > 0 && growing.stretch.bytes.len() > READ_BYTES_MAX;
            if growing.given >= bytes || is_long {
                break;
            }
        }
        Ok(growing.finish())
    }

    fn read_piece(
        &self,
        segment: u64,
        from: Lsn,
        to: Lsn,
        bytes: &mut Vec<u8>,
    ) -> Result<(), Unread> {
        let gone = Unread::Gone(from, BadFrame::OtherPlace);
        let slot = self.shared().slot_of(segment).ok_or(gone)?;
        let had = bytes.len();
        bytes.resize(had + (to - from) as usize, 0);
        let read =
            self.file().read_stream(slot, from, &mut bytes[had..]).map_err(Unread::Failed)?;
        if had + read < bytes.len() {
            return Err(Unread::Gone(from, BadFrame::Short));
        }
        Ok(())
    }

    /// Returns the checksum that ends the frame before `end`; none if the log no longer has it. The
    /// caller has a hold from `end` on.
    ///
    /// # Errors
    /// The file's.
    pub fn crc_of_frame_before(&self, end: Lsn) -> Result<Option<u32>, LogError> {
        let shared = self.shared();
        if end > shared.durable_through() {
            return Ok(None);
        }
        let Some(slot) =
            shared.segment_before(end).and_then(|segment| shared.slot_of(segment.number))
        else {
            return Ok(None);
        };
        let mut crc = [0; 4];
        let at = Lsn::new(end.get() - crc.len() as u64);
        let read = self.file().read_stream(slot, at, &mut crc)?;
        Ok((read == crc.len()).then(|| u32::from_le_bytes(crc)))
    }

    /// Returns the generation of the frame that ends at `end`, which is published; 0 if none does.
    pub fn generation_before(&self, end: Lsn) -> Generation {
        self.shared().segment_before(end).map_or(Generation::ZERO, |segment| segment.generation)
    }

    /// Returns where frames of generations above `base` begin, or will begin: the same for the rest
    /// of the session once `base` takes no more commits. None: that was too long ago.
    pub fn start_above(&self, base: Generation) -> Option<Lsn> {
        let shared = self.shared();
        let end = shared.log_end();
        let mut start = Lsn::new(end.get().next_multiple_of(shared.segment_bytes()));
        let Some(last) = shared.segment_before(end) else { return Some(start) };
        // Backwards: a merge may give segments above `base` back meanwhile, and their entries stay.
        for number in (FIRST_SEGMENT..=last.number).rev() {
            if shared.segment(number)?.generation <= base {
                break;
            }
            start = shared.segment_start(number);
        }
        Some(start)
    }
}
