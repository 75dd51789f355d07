//! A log beside a database file at rest that is not its own: it gets another name, and the program goes on with the file.
//!
//! That is what a restore leaves: the program is killed, `-wal` and `-shm` are removed, a backup is copied into place, and the log of the
//! session that was killed still stands there. Also beside a new file, or one that comes into the mode, after its predecessor was deleted.
//!
//! | file, at rest | log, which nobody uses | shared memory of dead processes | |
//! |---|---|---|---|
//! | of another session, or marked just now | with commits | any | log, and memory that is not the file's, get other names |
//! | of another session | none, or without commits | of another session, with commits that the base of that one had not | memory gets another name |
//! | of this very session, and lacks commits of it | - | - | refused (session.rs): it was a database of these until somebody changed it, or is a copy from behind a checkpoint (merge/fence.rs) |
//! | - | with an undecided transaction over several files | - | refused: what decides it is beside other files |
//!
//! Invariants
//! - B1 Nothing here is ever removed or written. With the names given back, and the database file that they belong to in its place,
//!   everything is there.
//! - B2 A file at rest is never the one whose commits are in that log: before the first of them the fence is in the file itself (Y3), and
//!   it goes when all of them are in the file: from the base (Y1), or while it is lowered from the file alone (L1 in merge/fence.rs). So what
//!   stands there is another file, or an older copy, or was at rest before the log began. Its own log, behind a lowered fence, has its salt.
//! - B3 The log last: whoever is killed before leaves it in the way, and the next to open puts it aside as well. Without it memory would
//!   count for nothing, and what that has under NORMAL would be gone.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::{claim_log, restore};
use crate::base::BaseHeader;
use crate::crash_point;
use crate::error::{Error, Result};
use crate::ids::Generation;
use crate::log::LogScan;
use crate::pages;
use crate::several;
use crate::shm::region::Region;
use crate::storage::Storage as _;
use crate::storage::names::{log_path, suffixed};
use crate::storage::os::OsStorage;

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
    // B3. The last goes with the log that names it.
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
