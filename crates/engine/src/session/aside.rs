//! A log next to a database file at rest to which it does not belong: the log gets another name,
//! and the program continues with the file.
//!
//! A restore leaves this state: the program is killed, `-wal` and `-shm` are removed, a backup is
//! copied into place, and the log of the killed session is still there. So does a new file, or one
//! that enters the mode, after its predecessor was deleted. The file is at rest, and no process
//! uses the log:
//! - The file is of another session, or was marked just now; the log has commits: the log, and
//!   memory that is not the file's, get other names.
//! - The file is of another session; there is no log, or one without commits; memory is of another
//!   session and has commits that the base of that session lacks: the memory gets another name.
//! - The file is of the session of the log, and lacks commits of it: refused (session.rs). It was a
//!   database of these files until somebody changed it, or is a copy made while the fence was
//!   lowered (upkeep/fence.rs).
//! - The log has an undecided transaction over several files: refused. What decides it is next to
//!   other files.
//!
//! Invariants
//! - ASIDE-1 Nothing here is ever removed or written. With the names given back, and the database
//!   file that they belong to in its place, everything is there.
//! - ASIDE-2 A file at rest is never the one whose commits are in that log. Before the first of
//!   them the fence is in the file itself (SESSION-3), and it goes when all of them are in the
//!   file: from the base (SESSION-1), or while it is lowered from the file alone (FENCE-1 in
//!   upkeep/fence.rs). So the file is another one, or an older copy, or was at rest before the log
//!   began. Its own log, behind a lowered fence, has its salt.
//! - ASIDE-3 The log is renamed last: a process that is killed before that leaves it in the way,
//!   and the next to open puts it aside as well. Without the log the memory would count for
//!   nothing, and its commits under NORMAL would be lost.
//!
//! # Deleted databases
//!
//! The files that a deleted database has left next to its former name.
//!
//! Programs delete a database file and make a new one of the same name while a connection to the
//! old one is still open, or after a process that never closed its own. SQLite continues there: it
//! removes the WAL of an empty file. The log goes by the name as well. Next to a new, empty file:
//! - A log that this process uses for a file without any name: the names next to the new file are
//!   removed.
//! - A log that other processes use: refused (`session::refuse_used_log`).
//! - A log that no process uses, when the new file is to be concurrent: it gets another name.
//!
//! Invariants
//! - DELETED-1 Names are removed only while the file at the path is empty, which the caller ensures
//!   by a lock on it: then nothing next to it is its own. SQLite concludes the same.
//! - DELETED-2 Names are removed only if the database that they are of has no name left, by the
//!   count in its inode: no process will need them. A process that has the database open continues
//!   with the files, to read and to copy what is there; it no longer opens, claims or removes
//!   anything by the path (`Database::check_place`).
//! - DELETED-3 A log whose database is not known to be deleted is never removed. A process that has
//!   claimed the log gives it another name (ASIDE-1).

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::{claim_log, restore};
use crate::base::BaseHeader;
use crate::error::{Error, Result};
use crate::ids::Generation;
use crate::log::LogScan;
use crate::shm::fork::OWN_DESCRIPTORS;
use crate::shm::region::{BaseIdentity, Region};
use crate::storage::Storage as _;
use crate::storage::names::{log_path, suffixed};
use crate::storage::os::OsStorage;
use crate::{crash_point, pages, session, several};

/// Most names that are tried.
const NAMES_MAX: u32 = 1000;

fn set_aside_name(path: &Path, n: u32) -> PathBuf {
    suffixed(path, &format!("-given-up-{n}"))
}

/// True if shared memory holds commits that its base lacks, and is of another session than this
/// file at rest.
pub(super) fn is_of_another(region: &Region, header: &BaseHeader) -> bool {
    let c = region.control();
    region.was_left()
        && !header.fenced
        && header.salt != c.salt.load(Relaxed)
        && restore::has_unmerged(region, Generation::new(c.base_generation.load(Relaxed)))
}

/// Gives the log next to `path`, and shared memory that is not of the file, another name. Returns
/// what was done, as a text. The caller has the lifecycle lock, no other process is alive, and the
/// file is at rest and not of this log.
///
/// # Errors
/// `CantOpen` if the log is in use, or if its last transaction is decided elsewhere; I/O errors.
pub(crate) fn put(path: &Path, region: &Region, own_salt: u32) -> Result<String> {
    let log = log_path(path);
    let claim = claim_log(path, true)?;
    if let Some(super_journal) = several::named_beside(path) {
        return Err(Error::CantOpen(format!(
            "{} belongs to another database file than the one that is there, and {} decides \
             whether its last transaction happened: put back the file that they belong to, or use \
             this one without them: `plait recover --accept-base {}` (it asks; --yes answers)",
            log.display(),
            super_journal.display(),
            path.display()
        )));
    }
    let say =
        |what: &Path, e: &std::io::Error| Error::io(format!("cannot rename {}", what.display()), e);
    let is_memory_own = region.control().salt.load(Relaxed) == own_salt;
    let memory = (region.was_left() && !is_memory_own).then_some(region.path());
    let pages = pages::pages_path(path);
    let n = (1..NAMES_MAX).find(|&n| {
        let are_free = [log.as_path(), &pages].iter().all(|of| !is_there(&set_aside_name(of, n)));
        are_free && memory.is_none_or(|of| !is_there(&set_aside_name(of, n)))
    });
    let n = n.ok_or_else(|| say(&log, &Errno::EXIST.into()))?;
    let mut put = Vec::new();
    // ASIDE-3: the log comes last. The pages go with the log, which names them.
    for beside in [memory, Some(pages.as_path()), claim.as_ref().map(|_| log.as_path())] {
        let Some(beside) = beside else { continue };
        let name = set_aside_name(beside, n);
        match renameat_with(CWD, beside, CWD, &name, RenameFlags::NOREPLACE) {
            Ok(()) => put.push(name),
            Err(Errno::NOENT) => {}
            Err(e) => return Err(say(beside, &e.into())),
        }
        crash_point!("aside.renamed");
    }
    OsStorage.sync_dir_of(&log).map_err(|e| say(&log, &e))?;
    Ok(format!(
        "{} needs no log, and the log next to it, which holds commits, belongs to another file or \
         to a later state of this one: it was renamed, and nothing of it is lost ({}); to use it, \
         close the database, put the file that it belongs to back, and rename all of them back",
        path.display(),
        put.iter().map(|name| name.display().to_string()).collect::<Vec<_>>().join(", ")
    ))
}

fn is_there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

/// Returns the logs that were put aside for `path`, oldest first. Numbers may be missing: of memory
/// that was put aside without a log, or of what the user has removed.
pub fn logs(path: &Path) -> Vec<PathBuf> {
    let log = log_path(path);
    let names = (1..NAMES_MAX).map(|n| set_aside_name(&log, n));
    names.filter(|name| is_there(name)).collect()
}

/// Returns the log with this salt that was put aside for `path`.
pub(super) fn of_salt(path: &Path, salt: u32) -> Option<PathBuf> {
    let is_its = |log: &PathBuf| LogScan::salt_of(&OsStorage, log).is_ok_and(|of| of == salt);
    logs(path).into_iter().find(is_its)
}

/// True if this process has the file open and the file has lost its last name. Reads every
/// descriptor of the process; the caller has found a new file in place of a deleted one
/// (DELETED-1).
pub(crate) fn is_nameless(file: BaseIdentity) -> bool {
    let Ok(open) = std::fs::read_dir(OWN_DESCRIPTORS) else { return false };
    open.flatten()
        .filter_map(|entry| std::fs::metadata(entry.path()).ok())
        .any(|meta| (meta.dev(), meta.ino()) == (file.dev, file.ino) && meta.nlink() == 0)
}

fn is_empty(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() == 0)
}

/// Looks at the files next to one that is not concurrent and that the caller has locked. `let_go`
/// removes the names of what this process uses for a deleted file; true if there was any.
///
/// # Errors
/// `CantOpen` if processes use a log there for the database file that was here before.
pub(crate) fn check_beside(path: &Path, let_go: impl Fn(&Path) -> bool) -> Result<()> {
    if is_empty(path) && let_go(path) {
        // SQLite's files of the deleted database (DELETED-1).
        remove_wal(path)?;
    }
    session::refuse_used_log(path)
}

/// True if the file is another one than its WAL belongs to, whose fence is up there: by memory (`is_up`), or because the log has
/// commits that the WAL has not (SESSION-3).
pub(crate) fn lacks_fence(path: &Path, header: &BaseHeader, is_up: bool) -> bool {
    let has_more = || {
        LogScan::open(&OsStorage, &log_path(path), header.salt, header.generation)
            .is_ok_and(|scan| scan.summary().newest > header.generation)
    };
    header.fence_in_wal_alone && (is_up || has_more())
}

/// Removes the WAL and WAL-index that SQLite left for another file.
pub(crate) fn remove_wal(path: &Path) -> Result<()> {
    for suffix in ["-wal", "-shm"] {
        let path = suffixed(path, suffix);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io(format!("cannot remove {}", path.display()), &e));
            }
            _ => {}
        }
    }
    OsStorage
        .sync_dir_of(path)
        .map_err(|e| Error::io(format!("cannot sync the folder of {}", path.display()), &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_that_were_put_aside_are_found_though_a_number_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let names = [2, 5].map(|n| set_aside_name(&log_path(&path), n));
        for name in &names {
            std::fs::write(name, b"a log").unwrap();
        }
        assert_eq!(logs(&path), names);
    }
}
