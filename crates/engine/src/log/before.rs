//! Commits of the base that may not be on disk yet, and their order before later frames (FILE-4).
//!
//! Under NORMAL and OFF an exclusive transaction's commit lies in the base's WAL and in the page cache alone. Frames
//! that come after it rely on it: after a power cut that took the commit and left the frames, they would be replayed over an
//! older base. So whoever is about to write to the log's file syncs the base's WAL first.
//!
//! Two counters in shared memory: `commits` made without a sync, and `durable`, how many of them are known to be on disk. What is on
//! disk is then noted in the log's file: which generation the base includes at least (file.rs). Recovery refuses a base that does not.
//!
//! ```text
//! exclusive transaction   stock commit -> synced: note; else commits += 1 -> both rights given back
//! who writes to the log   frames until now -> n = commits; if durable < n: fdatasync the WAL, note, durable = n -> write those frames
//! merge                   n = commits -> synced commit to the same WAL -> note, durable = n -> log space used again, checkpoint
//! ```
//!
//! Invariants
//! - BEFORE-1 `commits` counts a commit before anybody can append a frame after it: its author, or who settles it after his
//!   death, holds the writer's right until then.
//! - BEFORE-2 No byte of a frame is handed to the file before `durable` has reached what `commits` was when, or after, the frame was
//!   published.
//! - BEFORE-3 A failed sync of the WAL while `durable < commits` stops the log (COMMIT-4): what was lost is not known, and no later
//!   sync would tell.
//! - BEFORE-4 A process that cannot open the WAL leaves the sync to one that can: nothing was tried.
//! - BEFORE-5 The note says nothing that is not on disk; and before a byte of a frame is handed to the file, or a segment given back, it says
//!   what that relies on. Of two who write it at the same time the one that asks for less may come last, for a while.
//! - BEFORE-6 Who syncs the WAL brings its name to disk with it: whoever created the file may have been killed before. SQLite does so with the first sync
//!   of each handle, and whoever writes to the log with his first, unless the folder was synced since the WAL is there: by who has made the log, or one
//!   of those. Who syncs nothing need not, so those that only visit do not wait for it.
//!
//! A WAL that is gone was brought into the database file with syncs before it was removed. So is one that was restarted
//! before its old content is overwritten: SQLite syncs both files in every checkpoint under NORMAL.
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

/// Asks for a file that somebody else in this process has open, by its name.
type Borrow = dyn Fn(&Path) -> Option<Box<dyn StorageFile>> + Send + Sync;

/// Who may have the WAL open already.
#[derive(Clone)]
struct Lender(Arc<Borrow>);

impl fmt::Debug for Lender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lender")
    }
}

/// The WAL of the base, where it is and through what it is synced.
#[derive(Debug)]
pub struct BaseWal {
    storage: Arc<dyn Storage>,
    lender: Option<Lender>,
    path: PathBuf,
    /// Kept open: who has no descriptor left must find out before its commit counts, not when others rely on its sync.
    kept: Mutex<Option<Kept>>,
}

/// The file that stood at the path when it was looked at last.
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

    /// With somebody who may have it open already: `borrow` asks him for it.
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

    /// Opens it, and its folder, so that a sync will need nothing that may be lacking then. A WAL that is not there yet is no error.
    ///
    /// # Errors
    /// Those of opening them, which say nothing about what is on disk.
    pub(super) fn prepare(&self, shared: &LogShared) -> Result<(), LogError> {
        self.look(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner), shared)
    }

    /// Makes `kept` the file at the path, if there is one: whoever created the last one may be gone, and another stand there now.
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

    /// Everything written to it before is on disk when this returns, its name too.
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

    /// Makes earlier commits of the base durable, and notes them, before bytes are written to the log (BEFORE-2, BEFORE-5). The caller has decided before which
    /// frames it will write, and holds no mutex of the log's.
    pub(super) fn sync_before(&self, shared: &LogShared, log: &LogFile) -> Result<(), LogError> {
        // Acquire pairs with the Release of `note_base_commit`: its pages have been written.
        let commits = shared.base.commits.load(Acquire);
        // Acquire pairs with the Release of whoever synced.
        if shared.base.durable.load(Acquire) >= commits {
            return Ok(());
        }
        // Relaxed: stored before `commits`.
        let generation = Generation::new(shared.base.generation.load(Relaxed));
        self.sync(shared).inspect_err(|e| shared.stop_after_base(e))?;
        // Before others find that nothing is left to be done.
        shared.note_base(log, generation)?;
        shared.note_base_durable(commits);
        // Relaxed: a counter.
        shared.base.syncs.fetch_add(1, Relaxed);
        Ok(())
    }
}

impl LogShared {
    /// A transaction was committed to the base without a sync, which is complete through `generation` with it. The caller holds the
    /// writer's right (BEFORE-1).
    pub(crate) fn note_base_commit(&self, generation: Generation) {
        // Relaxed: published by the counter.
        self.base.generation.fetch_max(generation.get(), Relaxed);
        // Release pairs with the Acquires of those who sync.
        self.base.commits.fetch_add(1, Release);
    }

    /// Notes in the log's file that the base, on disk, includes everything through `generation` (BEFORE-5).
    fn note_base(&self, log: &LogFile, generation: Generation) -> Result<(), LogError> {
        // Relaxed: saves a write, and orders nothing.
        if generation.get() <= self.base.noted.load(Relaxed) {
            return Ok(());
        }
        log.write_note(generation)?;
        self.base.noted.fetch_max(generation.get(), Relaxed);
        Ok(())
    }

    /// Commits of the base so far that were made without a sync.
    pub(crate) fn base_commits(&self) -> u64 {
        self.base.commits.load(Acquire)
    }

    /// The WAL was synced, or a synced commit made, after [`LogShared::base_commits`] had returned `commits`.
    pub(crate) fn note_base_durable(&self, commits: u64) {
        // Release pairs with the Acquire in `sync_before`.
        self.base.durable.fetch_max(commits, Release);
    }

    /// The folder was synced while this was the WAL's file there (BEFORE-6).
    pub(crate) fn note_wal_named(&self, (_, inode): FileIdentity) {
        // Relaxed: what was synced is on disk, whoever reads of it when.
        self.base.named.store(inode, Relaxed);
    }

    /// The WAL may be another one by now, with the same number.
    pub(crate) fn forget_named_wal(&self) {
        self.base.named.store(0, Relaxed);
    }

    /// Whether the name of this file, which is the WAL's, is known to be on disk.
    fn is_wal_named(&self, (_, inode): FileIdentity) -> bool {
        // Relaxed: as above.
        self.base.named.load(Relaxed) == inode
    }

    /// True while a commit of the base may not be on disk.
    pub(crate) fn base_is_unsynced(&self) -> bool {
        self.base.durable.load(Acquire) < self.base_commits()
    }

    /// How often the base's WAL was synced ahead of the log.
    pub(crate) fn base_syncs(&self) -> u64 {
        // Relaxed: a counter.
        self.base.syncs.load(Relaxed)
    }

    /// A sync of the base's files has failed, in whichever connection (BEFORE-3).
    pub(crate) fn note_base_sync_failed(&self, errno: i32) {
        if self.base_is_unsynced() {
            self.set_in_doubt(errno);
        }
    }
}

impl Log {
    /// Notes in the file that the base, on disk, includes everything through `generation` (BEFORE-5).
    pub(crate) fn note_base(&self, generation: Generation) -> Result<(), LogError> {
        let noted = self.shared().note_base(&self.file, generation);
        if let Err(e) = &noted {
            self.shared().stop_after(e);
        }
        noted.map_err(|e| self.fatal(&e))
    }
}
