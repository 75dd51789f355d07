//! The base database as the engine sees it: a hidden connection to an ordinary SQLite file, as a
//! trait, so that the engine knows no SQLite.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::ids::{Generation, Root};
use crate::shm::read_marks::ReadMarks;
pub use crate::shm::shipping::Written;
use crate::storage::StorageFile;

/// The base's header, as far as the mode needs it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BaseHeader {
    /// The file is in concurrent mode (its salt is not 0).
    pub marked: bool,
    /// Stock SQLite refuses the file (FILE-2).
    pub fenced: bool,
    /// Ties the file to its log (FILE-3); 0 means not in concurrent mode.
    pub salt: u32,
    /// The file is complete through this generation (FILE-4).
    pub generation: Generation,
    /// Changes with every transaction that is committed to the file; comparable only between values
    /// read in one boot.
    pub cookie: u64,
    /// Only the WAL says that the base is fenced, not the database file itself. Read, never
    /// stamped.
    pub fence_in_wal_alone: bool,
}

/// How far a checkpoint goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkpoint {
    /// As far as readers allow, without waiting.
    Passive,
    /// To the end; the WAL is emptied.
    Truncate,
}

/// The WAL after a checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WalState {
    /// Pages in the WAL.
    pub log_pages: u32,
    /// Of these, pages already in the database file.
    pub checkpointed_pages: u32,
    /// Size of a page in bytes.
    pub page_bytes: u32,
}

impl WalState {
    /// Returns the bytes of the WAL if not all of it is in the file, so that it cannot start over;
    /// else 0.
    pub(crate) fn bytes_to_bring(self) -> u64 {
        match self.log_pages == self.checkpointed_pages {
            true => 0,
            false => u64::from(self.log_pages) * u64::from(self.page_bytes),
        }
    }
}

/// Where page 1 has the salt.
const SALT: std::ops::Range<usize> = 72..76;

/// Adds page `number` to the sum of pages with smaller numbers, which is 0 before the first (see
/// [`Written::sum`]).
pub fn sum_page(sum: u32, number: u32, page: &[u8]) -> u32 {
    let sum = crc32c::crc32c_append(sum, &number.to_le_bytes());
    if number != 1 || page.len() < SALT.end {
        return crc32c::crc32c_append(sum, page);
    }
    let sum = crc32c::crc32c_append(sum, &page[..SALT.start]);
    let sum = crc32c::crc32c_append(sum, &[0; 4]);
    crc32c::crc32c_append(sum, &page[SALT.end..])
}

/// What a copy of the base is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PagesRead {
    /// Its header.
    pub header: BaseHeader,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages.
    pub page_count: u32,
}

/// A hidden connection to the base that stays on SQLite's own path.
///
/// `begin` and `commit` or `rollback` enclose one write transaction; `put`, `delete`, `stamp` and
/// the calls that replace pages are only made inside it. After a failed call the transaction is to
/// be rolled back.
pub trait Base: Send {
    /// Uses the session's locks on read marks from now on. Outside any transaction.
    fn use_read_marks(&mut self, marks: &Arc<ReadMarks>);
    /// Reads the header; in a write transaction, as that transaction sees it.
    fn header(&mut self) -> Result<BaseHeader>;
    /// True if the WAL holds a whole transaction that its index does not show. Outside any
    /// transaction.
    fn has_unseen_commit(&mut self) -> Result<bool> {
        Ok(false)
    }
    /// Starts a write transaction at the newest state.
    fn begin(&mut self) -> Result<()>;
    /// Bounds the waits for locks of the file; `None` restores the first bound, a tenth of a
    /// second.
    fn wait_at_most(&mut self, _longest: Option<Duration>) {}
    /// Inserts or replaces an entry.
    fn put(&mut self, root: Root, key: &[u8], rec: &[u8]) -> Result<()>;
    /// Deletes an entry; `rec` is the deleted record of an index. An absent entry is no error
    /// (SNAP-5).
    fn delete(&mut self, root: Root, key: &[u8], rec: &[u8]) -> Result<()>;
    /// Prepares the transaction to replace pages (`pages.rs`).
    ///
    /// # Errors
    /// `Replaced` unless this base has pages of this size and this change counter. A base that is
    /// not made of pages has none to replace.
    fn replace_pages(&mut self, _page_bytes: u32, _change_counter: u32) -> Result<()> {
        Err(Error::Misuse("a base without pages".into()))
    }
    /// Writes the content of page `number`, counted from 1. Only after `replace_pages`.
    fn put_page(&mut self, _number: u32, _content: &[u8]) -> Result<()> {
        Err(Error::Misuse("a base without pages".into()))
    }
    /// Sets the length of the database in pages. Only after its last page was put.
    fn set_page_count(&mut self, _count: u32) -> Result<()> {
        Err(Error::Misuse("a base without pages".into()))
    }
    /// Writes the mode into the header.
    fn stamp(&mut self, header: &BaseHeader) -> Result<()>;
    /// Commits; the transaction is on disk when this returns. After a failure it has been rolled
    /// back.
    fn commit(&mut self) -> Result<()>;
    /// As `commit`, and says what the transaction has written; `None`: this base cannot tell.
    ///
    /// # Errors
    /// As `commit`.
    fn commit_and_sum(&mut self) -> Result<Option<Written>> {
        self.commit().map(|()| None)
    }
    /// Starts a read transaction at the newest state, and says what that is.
    ///
    /// # Errors
    /// `Replaced`; a base that is not made of pages has none to read.
    fn begin_read(&mut self) -> Result<PagesRead> {
        Err(Error::Misuse("a base without pages".into()))
    }
    /// Reads page `number`, counted from 1, in a read transaction.
    ///
    /// # Errors
    /// I/O errors.
    fn read_page(&mut self, _number: u32, _content: &mut [u8]) -> Result<()> {
        Err(Error::Misuse("a base without pages".into()))
    }
    /// Ends the read transaction.
    fn end_read(&mut self) {}
    /// Rolls the transaction back.
    fn rollback(&mut self);
    /// Raises the fence in the database file itself, which its WAL already says; on disk when this
    /// returns. Waits for a running checkpoint, for no reader. Does nothing if the file has the
    /// fence on disk.
    fn raise_fence(&mut self) -> Result<()>;
    /// Takes the fence from the database file alone: `header` still says that the base is fenced.
    /// The WAL is empty, and `raise_fence` raises the fence again. It need not be on disk. A base
    /// without a file has no fence there. False if the fence stays, since nothing else would keep
    /// others off.
    ///
    /// # Errors
    /// Busy while the WAL is not empty, or a checkpoint runs.
    fn lower_fence(&mut self) -> Result<bool> {
        Ok(true)
    }
    /// Brings a lowered fence to the disk, with the truncation of the WAL before it. The base is at
    /// rest. A base without a file has no fence there.
    fn sync_lowered(&mut self) -> Result<()> {
        Ok(())
    }
    /// Moves pages from the WAL into the database file.
    fn checkpoint(&mut self, how: Checkpoint) -> Result<WalState>;
}

/// Opens hidden connections.
pub trait BaseOpener: Send + Sync {
    /// Opens a hidden connection to the database at `path`.
    fn open(&self, path: &Path) -> Result<Box<dyn Base>>;
    /// Returns a file of the base that a connection of this process has open already, if it can be
    /// used as well.
    fn borrow(&self, _path: &Path) -> Option<Box<dyn StorageFile>> {
        None
    }
    /// Writes to SQLite's error log, with this code, what no caller asked for.
    fn tell(&self, _code: i32, _text: &str) {}
}
