//! A database that a chain is applied to: a follower's, or one that is being restored.
//!
//! Invariants of whoever implements it
//! - TARGET-1 Behind each call base and stream are the primary's at that place of the chain
//!   (CHAIN-7): the very frames in the log, the very generations merged, the very pages.
//! - TARGET-2 [`Target::state`] tells what is there after any end of the process: the newest note
//!   that was made durable, and a position at or behind that of the note. A base that is not
//!   complete counts as nothing.
//! - TARGET-3 A call that fails has changed nothing, or what the next [`Target::state`] tells.
//! - TARGET-4 A merge whose sum is another than the primary's is not committed, unless the caller
//!   accepts it. So no crash leaves a base that differs and is gone on with.
//! - TARGET-5 Readers see no more than what was applied, and never less than they have seen, but
//!   where a snapshot of a chain that was broken off makes the database another one.

use bytes::Bytes;

use crate::ids::{ChainId, Hash, Lsn, Position, RecordNumber};
use crate::record::{Frames, Merge, PageSet, SnapshotRef};

/// Why a target cannot be applied to. Calls are repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct TargetError {
    /// In words.
    pub why: String,
    /// Its disk has no space left.
    pub is_full: bool,
}

impl<T: Into<String>> From<T> for TargetError {
    fn from(why: T) -> TargetError {
        TargetError { why: why.into(), is_full: false }
    }
}

/// Through where a chain is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The chain.
    pub chain: ChainId,
    /// The last record of which everything is applied.
    pub number: RecordNumber,
    /// Its hash; `None` behind a snapshot, whose record was not the last one.
    pub hash: Option<Hash>,
    /// When it was written.
    pub written_ms: u64,
    /// Where base and stream are.
    pub position: Position,
    /// Bytes of a segment of the stream.
    pub segment_bytes: u32,
    /// The record that completes the base with which it began: before it the stream is one of
    /// which the base has a part already.
    pub as_of: RecordNumber,
}

/// What a snapshot begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Birth {
    /// The snapshot; one of several where some have a parent, the newest.
    pub snapshot: SnapshotRef,
    /// The chain.
    pub chain: ChainId,
    /// Versions of the primary's library.
    pub library: String,
    /// Bytes of a segment of the stream.
    pub segment_bytes: u32,
}

/// A database that a chain is applied to.
pub trait Target: std::any::Any {
    /// Returns what is there; `None` if it is nothing that a chain could go on from.
    ///
    /// # Errors
    /// [`TargetError`].
    fn state(&mut self) -> Result<Option<Applied>, TargetError>;

    /// Begins a base anew. What is there stays, for readers, until [`Target::complete`].
    ///
    /// # Errors
    /// [`TargetError`].
    fn begin(&mut self, birth: &Birth) -> Result<(), TargetError>;

    /// Takes pages of the new base, as `record::item::each_page` lists them. A later one replaces
    /// an earlier one of its number.
    ///
    /// # Errors
    /// [`TargetError`].
    fn base_pages(&mut self, pages: &Bytes) -> Result<(), TargetError>;

    /// The new base has all its pages: it takes the place of what is there, durably.
    ///
    /// # Errors
    /// [`TargetError`].
    fn complete(&mut self, applied: &Applied) -> Result<(), TargetError>;

    /// Takes frames. `from` is the end of the stream: what is before it in these frames is there.
    ///
    /// # Errors
    /// [`TargetError`].
    fn frames(&mut self, frames: &Frames, from: Lsn) -> Result<(), TargetError>;

    /// Merges exactly these generations, and returns the checksum over the pages that it wrote.
    /// Where that is not the merge's own, nothing is committed, unless `accepts` says so (TARGET-4).
    ///
    /// # Errors
    /// [`TargetError`].
    fn merge(&mut self, merge: &Merge, accepts: bool) -> Result<u32, TargetError>;

    /// Begins to take pages of an exclusive transaction.
    ///
    /// # Errors
    /// [`TargetError`].
    fn begin_pages(&mut self, set: &PageSet) -> Result<(), TargetError>;

    /// Takes some of them.
    ///
    /// # Errors
    /// [`TargetError`].
    fn pages(&mut self, pages: &[u8]) -> Result<(), TargetError>;

    /// Commits them to the base, all or none.
    ///
    /// # Errors
    /// [`TargetError`].
    fn commit_pages(&mut self) -> Result<(), TargetError>;

    /// Goes on in a new session over the same base, in which everything is.
    ///
    /// # Errors
    /// [`TargetError`].
    fn renew(&mut self, position: &Position) -> Result<(), TargetError>;

    /// Notes that everything through a record is applied.
    ///
    /// # Errors
    /// [`TargetError`].
    fn note(&mut self, applied: &Applied) -> Result<(), TargetError>;
}
