//! Commits of the base that may not be on disk yet, and their order before later frames (FILE-4).
//!
//! Under NORMAL and OFF an exclusive transaction's commit is only in the base's WAL and in the page
//! cache. Later frames rely on it: after a power cut that took the commit and left the frames, they
//! would be replayed over an older base. So a process syncs the base's WAL before it writes to the
//! log's file.
//!
//! Shared memory has two counters: `commits` made without a sync, and `durable`, how many of them
//! are known to be on disk. After the sync the log's file notes the generation through which the
//! base is complete (file.rs). Recovery refuses an older base.
//!
//! ```text
//! exclusive transaction  stock commit -> synced: note; else commits += 1 -> both rights given back
//! writer of the log      frames until now -> n = commits; if durable < n: fdatasync the WAL, note,
//!                        durable = n -> write those frames
//! merge                  n = commits -> synced commit to the same WAL -> note, durable = n ->
//!                        log space reused, checkpoint
//! ```
//!
//! Invariants
//! - BEFORE-1 `commits` counts a commit before any process can append a frame after it. Until then
//!   its author, or the process that settles it after the author's death, holds the writer's right.
//! - BEFORE-2 No byte of a frame is handed to the file before `durable` has reached the value that
//!   `commits` had when the frame was published, or later.
//! - BEFORE-3 A failed sync of the WAL while `durable < commits` stops the log (COMMIT-4): what was
//!   lost is unknown, and no later sync would report it.
//! - BEFORE-4 A process that cannot open the WAL leaves the sync to one that can: it has tried
//!   nothing.
//! - BEFORE-5 The note says nothing that is not on disk. Before a byte of a frame is handed to the
//!   file, or a segment given back, the note says what that relies on. Of two parallel writes of
//!   the note the one that demands less may come last, for a while.
//! - BEFORE-6 A process that syncs the WAL also syncs its name, since the creator of the file may
//!   have been killed before it did. SQLite does so with the first sync of each handle. A writer of
//!   the log does so with its first sync, unless the folder was synced since the WAL exists, by the
//!   creator of the log or by another such writer. A process that syncs nothing need not, so
//!   processes that only visit do not wait for it.
//!
//! A WAL that is gone was brought into the database file with syncs before it was removed. A
//! restarted WAL was too, before its old content is overwritten: SQLite syncs both files in every
//! checkpoint under NORMAL.
//!
//! Killed processes lose nothing: the page cache stays.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, PoisonError};

use super::error::{LogError, OPEN};
use super::file::LogFile;
use super::group::Log;
use super::shared::LogShared;
use crate::ids::Generation;
use crate::storage::{FileIdentity, Folder, Storage, StorageFile};

/// Returns an open file by its name, if another part of this process has it open.
type Borrow = dyn Fn(&Path) -> Option<Box<dyn StorageFile>> + Send + Sync;

/// A part of this process that may have the WAL open.
#[derive(Clone)]
struct Lender(Arc<Borrow>);

impl fmt::Debug for Lender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lender")
    }
}

/// The WAL of the base: its path and the file through which it is synced.
#[derive(Debug)]
pub struct BaseWal {
    storage: Arc<dyn Storage>,
    lender: Option<Lender>,
    path: PathBuf,
    /// Kept open: a process without a free descriptor must find out before its commit counts, not
    /// when others rely on its sync.
    kept: Mutex<Option<Kept>>,
}

/// The file that was at the path at the last look.
#[derive(Debug)]
struct Kept {
    file: Box<dyn StorageFile>,
    identity: FileIdentity,
    /// Open until the file's name is durable (BEFORE-6).
    folder: Option<Box<dyn Folder>>,
}

impl BaseWal {
    /// The WAL at `path`, which may not be there.
    pub fn new(storage: Arc<dyn Storage>, path: PathBuf) -> BaseWal {
        BaseWal { storage, lender: None, path, kept: Mutex::default() }
    }

    /// Adds a source of an open file: `borrow` returns the WAL if that has it open.
    #[must_use]
    pub fn borrowed(
        mut self,
        borrow: impl Fn(&Path) -> Option<Box<dyn StorageFile>> + Send + Sync + 'static,
    ) -> BaseWal {
        self.lender = Some(Lender(Arc::new(borrow)));
        self
    }

    fn open(&self) -> io::Result<Box<dyn StorageFile>> {
        match self.lender.as_ref().and_then(|Lender(borrow)| borrow(&self.path)) {
            Some(lent) => Ok(lent),
            None => self.storage.open(&self.path),
        }
    }

    /// Opens the WAL and its folder, so that a sync will lack nothing later. A WAL that does not
    /// exist yet is no error.
    ///
    /// # Errors
    /// Those of opening the two, which say nothing about what is on disk.
    pub(super) fn prepare(&self, shared: &LogShared) -> Result<(), LogError> {
        self.look(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner), shared)
    }

    /// Makes `kept` the file at the path, if there is one. An earlier file may be gone and another
    /// in its place.
    fn look(&self, kept: &mut Option<Kept>, shared: &LogShared) -> Result<(), LogError> {
        let cannot_open = |e: &io::Error| LogError::io(OPEN, &self.path, e);
        let is_known = match &*kept {
            Some(known) => known.file.is_at(&self.path).map_err(|e| cannot_open(&e))?,
            None => false,
        };
        if !is_known {
            *kept = match self.open() {
                Err(e) if e.kind() == io::ErrorKind::NotFound => None,
                Err(e) => return Err(cannot_open(&e)),
                Ok(file) => {
                    let identity = file.identity().map_err(|e| cannot_open(&e))?;
                    let folder = match shared.is_wal_named(identity) {
                        true => None,
                        false => {
                            let folder = self.storage.open_dir_of(&self.path);
                            Some(folder.map_err(|e| cannot_open(&e))?)
                        }
                    };
                    Some(Kept { file, identity, folder })
                }
            };
        }
        Ok(())
    }

    /// Returns when everything written to the WAL before, and its name, is on disk.
    fn sync(&self, shared: &LogShared) -> Result<(), LogError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        self.look(&mut kept, shared)?;
        let Some(known) = &mut *kept else { return Ok(()) };
        known.file.sync_data().map_err(|e| LogError::io("sync", &self.path, &e))?;
        if let Some(folder) = &known.folder {
            folder.sync().map_err(|e| LogError::io("sync the folder of", &self.path, &e))?;
            known.folder = None;
            shared.note_wal_named(known.identity);
        }
        Ok(())
    }

    /// Makes earlier commits of the base durable and notes them, before bytes are written to the
    /// log (BEFORE-2, BEFORE-5). The caller has already decided which frames it will write, and
    /// holds no mutex of the log's.
    pub(super) fn sync_before(&self, shared: &LogShared, log: &LogFile) -> Result<(), LogError> {
        // Acquire pairs with the Release of `note_base_commit`: its pages have been written.
        let commits = shared.base.commits.load(Acquire);
        // Acquire pairs with the Release in `note_base_durable`.
        if shared.base.durable.load(Acquire) >= commits {
            return Ok(());
        }
        // Relaxed: stored before `commits`.
        let generation = Generation::new(shared.base.generation.load(Relaxed));
        self.sync(shared).inspect_err(|e| shared.stop_after_base(e))?;
        // Before other processes find nothing left to sync.
        shared.note_base(log, generation)?;
        shared.note_base_durable(commits);
        // Relaxed: a counter.
        shared.base.syncs.fetch_add(1, Relaxed);
        Ok(())
    }
}

impl LogShared {
    /// Counts a commit to the base without a sync, which makes the base complete through
    /// `generation`. The caller holds the writer's right (BEFORE-1).
    pub(crate) fn note_base_commit(&self, generation: Generation) {
        // Relaxed: published by the counter.
        self.base.generation.fetch_max(generation.get(), Relaxed);
        // Release pairs with the Acquire of a process that syncs.
        self.base.commits.fetch_add(1, Release);
    }

    /// Notes in the log's file that the base on disk is complete through `generation` (BEFORE-5).
    fn note_base(&self, log: &LogFile, generation: Generation) -> Result<(), LogError> {
        // Relaxed: saves a write, and orders nothing.
        if generation.get() <= self.base.noted.load(Relaxed) {
            return Ok(());
        }
        log.write_note(generation)?;
        self.base.noted.fetch_max(generation.get(), Relaxed);
        Ok(())
    }

    /// Returns how many commits of the base were made without a sync.
    pub(crate) fn base_commits(&self) -> u64 {
        self.base.commits.load(Acquire)
    }

    /// Notes a sync of the WAL, or a synced commit, after [`LogShared::base_commits`] had returned
    /// `commits`.
    pub(crate) fn note_base_durable(&self, commits: u64) {
        // Release pairs with the Acquire in `sync_before`.
        self.base.durable.fetch_max(commits, Release);
    }

    /// Notes that the folder was synced while this file was the WAL there (BEFORE-6).
    pub(crate) fn note_wal_named(&self, (_, inode): FileIdentity) {
        // Relaxed: what was synced is on disk, whenever a process reads this.
        self.base.named.store(inode, Relaxed);
    }

    /// Forgets the noted WAL: another file may have its inode number by now.
    pub(crate) fn forget_named_wal(&self) {
        self.base.named.store(0, Relaxed);
    }

    /// True if this file's name, the WAL's, is known to be on disk.
    fn is_wal_named(&self, (_, inode): FileIdentity) -> bool {
        // Relaxed: see `note_wal_named`.
        self.base.named.load(Relaxed) == inode
    }

    /// True while a commit of the base may not be on disk.
    pub(crate) fn base_is_unsynced(&self) -> bool {
        self.base.durable.load(Acquire) < self.base_commits()
    }

    /// Returns how often the base's WAL was synced ahead of the log.
    pub fn base_syncs(&self) -> u64 {
        // Relaxed: a counter.
        self.base.syncs.load(Relaxed)
    }

    /// Notes that a sync of the base's files has failed, in any connection (BEFORE-3).
    pub(crate) fn note_base_sync_failed(&self, errno: i32) {
        if self.base_is_unsynced() {
            self.set_in_doubt(errno);
        }
    }
}

impl Log {
    /// Notes in the file that the base on disk is complete through `generation` (BEFORE-5).
    pub(crate) fn note_base(&self, generation: Generation) -> Result<(), LogError> {
        let noted = self.shared().note_base(&self.file, generation);
        if let Err(e) = &noted {
            self.shared().stop_after(e);
        }
        noted.map_err(|e| self.fatal(&e))
    }
}
