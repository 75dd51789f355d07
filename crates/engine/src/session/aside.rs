//! A log beside a database file at rest that is not its own: it gets another name, and the program goes on with the file.
//!
//! That is what a restore leaves: the program is killed, `-wal` and `-shm` are removed, a backup is copied into place, and the log of the
//! session that was killed still stands there. Also beside a new file, or one that comes into the mode, after its predecessor was deleted.
//!
//! | file, at rest | log, which nobody uses | shared memory of dead processes | |
//! |---|---|---|---|
//! | of another session, or marked just now | with commits | any | log, and memory that is not the file's, get other names |
//! | of another session | none, or without commits | of another session, with commits that the base of that one had not | memory gets another name |
//! | of this very session, and lacks commits of it | - | - | refused (session.rs): it was a database of these until somebody changed it, or is a copy from behind a checkpoint (upkeep/fence.rs) |
//! | - | with an undecided transaction over several files | - | refused: what decides it is beside other files |
//!
//! Invariants
//! - ASIDE-1 Nothing here is ever removed or written. With the names given back, and the database file that they belong to in its place,
//!   everything is there.
//! - ASIDE-2 A file at rest is never the one whose commits are in that log: before the first of them the fence is in the file itself (SESSION-3), and
//!   it goes when all of them are in the file: from the base (SESSION-1), or while it is lowered from the file alone (FENCE-1 in upkeep/fence.rs). So what
//!   stands there is another file, or an older copy, or was at rest before the log began. Its own log, behind a lowered fence, has its salt.
//! - ASIDE-3 The log last: whoever is killed before leaves it in the way, and the next to open puts it aside as well. Without it memory would
//!   count for nothing, and what that has under NORMAL would be gone.
//!
//! # Deleted databases
//!
//! What a deleted database has left beside the name that it had.
//!
//! Programs delete a database file and make a new one of the same name, with a connection to the old one still open somewhere, or after
//! a process that never closed its own. SQLite goes on there: it removes the WAL of an empty file. The log goes by the name
//! as well, so:
//!
//! | beside a new, empty file | done |
//! |---|---|
//! | a log that this process uses for a file without any name | the names beside it are let go of |
//! | a log that others use | refused (`session::refuse_used_log`) |
//! | a log that nobody uses, when the new file is to be concurrent | it gets another name (`session/aside.rs`) |
//!
//! Invariants
//! - DELETED-1 Names are let go of only while the file at the path is empty, which the caller keeps so by a lock on it: then nothing
//!   beside it is its own. SQLite concludes the same.
//! - DELETED-2 And only if the database that they are of has no name left, by the count in its inode: nobody comes to need them any more. Who has it open goes on
//!   with the files that they were names of, to read and to copy what is there; nothing is opened, claimed or removed by the path any more (`Database::check_place`).
//! - DELETED-3 A log of which that is not known is never removed. It gets another name, by one who has claimed it (ASIDE-1 in `session/aside.rs`).

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

/// Names that are looked through.
const NAMES_MAX: u32 = 1000;

fn set_aside_name(path: &Path, n: u32) -> PathBuf {
    suffixed(path, &format!("-given-up-{n}"))
}

/// Whether shared memory holds commits of another session than that of this file at rest, which its base lacks.
pub(super) fn is_of_another(region: &Region, header: &BaseHeader) -> bool {
    let c = region.control();
    region.was_left()
        && !header.fenced
        && header.salt != c.salt.load(Relaxed)
        && restore::has_unmerged(region, Generation::new(c.base_generation.load(Relaxed)))
}

/// Gives the log beside `path` another name, and shared memory that is not of the file; says what was done. The caller has the
/// lifecycle lock, nobody is alive, and the file is at rest and none of this log's.
///
/// # Errors
/// `CantOpen` if the log is in use, or if its last transaction is decided elsewhere; I/O errors.
pub(crate) fn put(path: &Path, region: &Region, own_salt: u32) -> Result<String> {
    let log = log_path(path);
    let claim = claim_log(path, true)?;
    if let Some(super_journal) = several::named_beside(path) {
        return Err(Error::CantOpen(format!(
            "{} belongs to another database file than the one that stands there, and {} decides whether its last transaction happened: \
             put back the file that they belong to, or use this one without them: `plait recover --accept-base {}` (it asks; --yes answers)",
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
    // ASIDE-3. The last goes with the log that names it.
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
        "{} is at rest, and the log beside it, with commits, is that of another file or of a later state of this one: it was put aside, and nothing \
         of it is lost ({}); to have it, close the database, put the file that it belongs to back, and give all of them their names back",
        path.display(),
        put.iter().map(|name| name.display().to_string()).collect::<Vec<_>>().join(", ")
    ))
}

fn is_there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

/// Logs that were put aside beside `path`, oldest first.
pub fn logs(path: &Path) -> Vec<PathBuf> {
    let log = log_path(path);
    let names = (1..NAMES_MAX).map(|n| set_aside_name(&log, n));
    names.take_while(|name| is_there(name)).collect()
}

/// The one with this salt.
pub(super) fn of_salt(path: &Path, salt: u32) -> Option<PathBuf> {
    let is_its = |log: &PathBuf| LogScan::salt_of(&OsStorage, log).is_ok_and(|of| of == salt);
    logs(path).into_iter().find(is_its)
}

/// Whether a file that this process has open has lost its last name; false of one that it has not open. Looks at every descriptor of the process, which
/// is well for a question that is asked where a new file stands in the place of one that was deleted (DELETED-1).
pub(crate) fn is_nameless(file: BaseIdentity) -> bool {
    let Ok(open) = std::fs::read_dir(OWN_DESCRIPTORS) else { return false };
    open.flatten()
        .filter_map(|entry| std::fs::metadata(entry.path()).ok())
        .any(|meta| (meta.dev(), meta.ino()) == (file.dev, file.ino) && meta.nlink() == 0)
}

fn is_empty(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() == 0)
}

/// Looks at what stands beside a file that is not concurrent and on which the caller has a lock. `let_go` removes the names of what this
/// process uses for one that was deleted; true if there was any.
///
/// # Errors
/// `CantOpen` if processes use a log there for the database file that stood here before.
pub(crate) fn check_beside(path: &Path, let_go: impl Fn(&Path) -> bool) -> Result<()> {
    if is_empty(path) && let_go(path) {
        // SQLite's own, of the same database (DELETED-1).
        remove_wal(path)?;
    }
    session::refuse_used_log(path)
}

/// Removes SQLite's WAL of another file than this one, and its index.
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
