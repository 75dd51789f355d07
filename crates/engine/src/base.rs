//! What the engine needs of the base database: a hidden connection to an
//! ordinary SQLite file, seen through a trait so that the engine knows no SQLite.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::ids::{Generation, Root};
use crate::shm::read_marks::ReadMarks;
use crate::storage::StorageFile;

/// What the base's header says about the mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BaseHeader {
    /// The file is in concurrent mode (its salt is not 0).
    pub marked: bool,
    /// Stock SQLite refuses the file (FILE-2).
    pub fenced: bool,
    /// Ties the file to its log (FILE-3); 0 means not in concurrent mode.
    pub salt: u32,
    /// Everything through this generation is in the file (FILE-4).
    pub generation: Generation,
    /// Changes whenever a transaction was committed to the file; comparable
    /// only between values read in one boot.
    pub cookie: u64,
    /// The base is fenced, but the database file itself does not say so: its WAL alone does. Read only, never stamped.
    pub fence_in_wal_alone: bool,
}

/// How far a checkpoint goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkpoint {
    /// As far as readers allow, waiting for nobody.
    Passive,
    /// Everything, and the WAL is emptied.
    Truncate,
}

/// What a checkpoint left behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WalState {
    /// Pages in the WAL.
    pub log_pages: u32,
    /// Pages of them already in the database file.
    pub checkpointed_pages: u32,
    /// Size of a page in bytes.
    pub page_bytes: u32,
}

impl WalState {
    /// Bytes of the WAL as long as not all of it is in the file: it cannot begin anew.
    pub(crate) fn bytes_to_bring(self) -> u64 {
        match self.log_pages == self.checkpointed_pages {
            true => 0,
            false => u64::from(self.log_pages) * u64::from(self.page_bytes),
        }
    }
}

/// A hidden connection to the base that stays on SQLite's own path.
///
/// `begin` .. `commit`/`rollback` bracket one write transaction; `put`, `delete`, what replaces pages,
/// and `stamp` are only called inside it. A failed call leaves the transaction
/// to be rolled back.
pub trait Base: Send {
    /// From now on the locks on read marks are those of the session. Outside any transaction.
    fn use_read_marks(&mut self, marks: &Arc<ReadMarks>);
    /// Reads the header; inside a write transaction, as that transaction sees it.
    fn header(&mut self) -> Result<BaseHeader>;
    /// True if the WAL holds a whole transaction that its index does not show. Outside any transaction.
    fn has_unseen_commit(&mut self) -> Result<bool> {
        Ok(false)
    }
    /// Starts a write transaction at the newest state.
    fn begin(&mut self) -> Result<()>;
    /// Waits no longer for locks of the file; `None`: as long as at first, a tenth of a second.
    fn wait_at_most(&mut self, _longest: Option<Duration>) {}
    /// Inserts or replaces an entry.
    fn put(&mut self, root: Root, key: &[u8], rec: &[u8]) -> Result<()>;
    /// Deletes an entry; `rec` is the deleted record of an index. Absent is fine (SNAP-5).
    fn delete(&mut self, root: Root, key: &[u8], rec: &[u8]) -> Result<()>;
    /// Says that the transaction is to replace whole pages (`pages.rs`).
    ///
    /// # Errors
    /// `Replaced` unless the pages of this base have so many bytes, and its change counter is this. A base that is not made of
    /// pages has none to replace.
    fn replace_pages(&mut self, _page_bytes: u32, _change_counter: u32) -> Result<()> {
        Err(Error::Misuse("a base without pages".into()))
    }
    /// Gives page `number`, from 1, this content. Only after `replace_pages`.
    fn put_page(&mut self, _number: u32, _content: &[u8]) -> Result<()> {
        Err(Error::Misuse("a base without pages".into()))
    }
    /// Makes the database so many pages long. Only after its last page was put.
    fn set_page_count(&mut self, _count: u32) -> Result<()> {
        Err(Error::Misuse("a base without pages".into()))
    }
    /// Writes the mode into the header.
    fn stamp(&mut self, header: &BaseHeader) -> Result<()>;
    /// Commits; the transaction is on disk when this returns. After a failure it has been rolled back.
    fn commit(&mut self) -> Result<()>;
    /// Abandons the transaction.
    fn rollback(&mut self);
    /// Raises the fence in the database file itself, which its WAL says already; on disk when this returns. Waits for a
    /// running checkpoint, for no reader, and does nothing if the file has it on disk.
    fn raise_fence(&mut self) -> Result<()>;
    /// Takes the fence from the database file itself, and from nothing else: `header` says as before that the base is fenced. The WAL
    /// is empty, and `raise_fence` raises it again. It need not be on disk. A base that is not a file has none there. False: it stays, since
    /// nothing else would keep others off.
    ///
    /// # Errors
    /// Busy while the WAL is not empty, or a checkpoint runs.
    fn lower_fence(&mut self) -> Result<bool> {
        Ok(true)
    }
    /// Moves pages from the WAL into the database file.
    fn checkpoint(&mut self, how: Checkpoint) -> Result<WalState>;
}

/// Opens hidden connections.
pub trait BaseOpener: Send + Sync {
    /// Opens one to the database at `path`.
    fn open(&self, path: &Path) -> Result<Box<dyn Base>>;
    /// A file of the base's that a connection of this process has open already, if it can be used as well.
    fn borrow(&self, _path: &Path) -> Option<Box<dyn StorageFile>> {
        None
    }
    /// Tells the error log what nobody has asked for.
    fn tell(&self, _text: &str) {}
}
