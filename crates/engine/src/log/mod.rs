//! The log: redo-only frames, one per transaction, through a ring in shared memory into a file.
//!
//! ```text
//! commit mutex held            write mutex, if it can be had       recovery
//! ring::append  -> publish  -> write, then group: one fdatasync -> scan
//!   frame into the ring          ring -> file slots (file)           file -> frames, end or damage
//! ```
//!
//! The log is one byte stream addressed by [`Lsn`](crate::ids::Lsn). It never restarts within a
//! live session. The stream is cut into segments. A segment belongs to one generation, and each
//! generation starts on a segment boundary, so a durably merged generation frees whole segments.
//! The byte layouts are at the heads of [`frame`] (frames) and [`file`] (segments and the file
//! header).
//!
//! Invariants
//! - LOG-1 `durable_through <= written_through <= log_end <= reserved_end`. Each only grows, except
//!   `reserved_end` when the window moves ([`ring`]). Bytes of the ring at or after
//!   `written_through` are never overwritten.
//! - LOG-2 A stream position has one content for ever: only published frames are written to the
//!   file, and a published frame never changes. So writing a range twice, or late, is harmless
//!   ([`write`]).
//! - LOG-3 A frame is published only if its segments have slots in the file, with space allocated
//!   as far as the frame reaches. So running out of disk, or of the configured limit, is an error
//!   before the commit, never after it.
//! - LOG-4 `durable_through` moves only after a successful sync that began after the bytes were
//!   written.
//! - LOG-5 After a failed write or sync nothing is appended, written or acknowledged until recovery
//!   (COMMIT-4).
//! - LOG-6 Nothing is written to the file before the base commits that it relies on are on disk
//!   ([`before`], BEFORE-2).
//! - LOG-7 No commit is acknowledged or counted as durable unless the file was under its name after
//!   the sync ([`Log::look`]).
//! - LOG-8 No byte of the ring is written without disk space behind it: the ring begins small, and
//!   grows before the frame that needs more.
//! - LOG-9 [`LogShared`] has everything that is needed to go on after a process was killed. The
//!   file handle is the only process-private state.
//!
//! Deliberately absent: undo, compression.

mod before;
mod error;
pub mod file;
mod follow;
pub mod frame;
mod group;
#[cfg(test)]
mod group_model;
mod hold;
mod moment;
pub mod ring;
#[cfg(test)]
mod ring_model;
pub mod scan;
pub mod shared;
mod write;

#[cfg(test)]
pub(crate) mod tests;

pub use before::BaseWal;
pub(crate) use error::damaged_ring;
pub use error::{AppendError, LogError};
pub(crate) use file::slot_offset;
pub use file::{FILE_MAGIC, LogFile, LogFileParams};
pub use follow::{Stretch, Unread};
pub use frame::{Frame, FrameHead, Mark, Op, OpKind, Ops, PAGES_ID_BYTES, PagesId, frame_len};
pub use group::{BaseFile, Log, LogStatus};
pub use hold::HoldToken;
pub use moment::Moment;
pub use moment::Tail;
pub use ring::{LogMemory, Ring, RingMemory};
pub use scan::{LogScan, LogSummary};
pub use shared::{
    DEFAULT_SLOT_LIMIT, FIRST_SEGMENT, LogParams, LogShared, MAX_SLOTS, SEGMENT_BYTES,
};
