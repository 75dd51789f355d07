//! The swap: a new database file in the place of another one and all that stands beside that, which is kept under other names.
//!
//! A file system renames one name at a time, and no order of renames is harmless: the old file without its `-wal` is an older state of itself,
//! the new file beside the old `-wal` is a mixture of two databases (`docs/recovery.md`, "Another file in its place"), and
//! where there is no file a program makes an empty one. So a barrier stands under the name meanwhile, which nothing opens
//! (`inspect/barrier.rs`).
//!
//! | step | then | who dies before the next step leaves |
//! |---|---|---|
//! | 0 the new file is whole, checked and on the disk, under a temporary name | | everything as it was, and that file, which the next restore tells of |
//! | 1 the old file gets a second name, `FILE-before-restore-N` | | the same; the next restore uses that name again, since it is that of the same file |
//! | 2 a barrier is made under a temporary name | | the same, and a link, which the next restore removes |
//! | 3 the barrier is renamed over FILE, and the folder synced | nobody comes in any more | the barrier before the files: B |
//! | 4 who has come in before is looked for | if there is anybody, the old file is renamed over the barrier | B, or everything as it was |
//! | 5 each file beside it is renamed to stand beside the second name, and the folder synced | the old database is whole there | the barrier before some of the files: B |
//! | 6 the new file is renamed over the barrier, and the folder synced | the new database is there, alone | the restored database |
//!
//! B: programs fail with SQLITE_CANTOPEN and change nothing, each command says what happened, and a restore ends what was begun: it moves what
//! still stands beside the barrier under the names of the first time, and puts its own new file there. A power cut may take back steps
//! that were not synced, of those between two syncs any: these are the states of the same lines.
//!
//! Invariants
//! - SWAP-1 FILE is at any moment the old file, a barrier, or the new file; where there was none, also nothing.
//! - SWAP-2 The old file has a name at any moment, and nothing is ever removed but barriers and temporary names.
//! - SWAP-3 While the old file stands under its name all that belongs to it stands beside it. The new file stands there alone.
//! - SWAP-4 At step 5 nobody has the old file open whom this process can see, or who has a lock on any of its files.
//!
//! Deliberately absent: programs that cannot be seen (of another user, or outside of this container) and have a file in a rollback mode open
//! without a transaction. They have no lock. They go on with the old file under its new name, as after any rename.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use plait_engine::storage::Storage as _;
use plait_engine::storage::os::OsStorage;

use crate::copy::{WholeCopy, leftovers};
use crate::failure::{Failure, Result};
use crate::inspect::{SIDE_FILES, barrier, beside, openers, users};

/// Names that are tried.
const NAMES_MAX: u32 = 1000;
/// What the name of a barrier ends in before it has its place.
const BARRIER: &str = ".plait-restore-barrier";

/// Puts `new` in the place of the database at `path`: the names that what stood there has now.
pub fn swap(path: &Path, new: WholeCopy) -> Result<Vec<PathBuf>> {
    let placed = |e: io::Error| failed("put the copy in the place of", path, &e);
    let is_there = |suffix: &str| is_there(&beside(path, suffix));
    if !is_there("") && !SIDE_FILES.iter().any(|suffix| is_there(suffix)) {
        new.rename(path, false).map_err(placed)?;
        sync(path)?;
        return Ok(Vec::new());
    }
    let aside = match barrier::aside(path) {
        Some(aside) => aside,
        None => close_off(path)?,
    };
    let mut moved = Vec::new();
    let done = refuse_users(path, &aside)
        .and_then(|()| move_beside(path, &aside, &mut moved))
        .and_then(|()| new.rename(path, true).map_err(placed));
    if let Err(e) = done {
        take_back(path, &aside, &moved);
        return Err(e);
    }
    sync(path)?;
    Ok(kept(&aside, &moved))
}

/// Steps 1 to 3: the name that the old file has then.
fn close_off(path: &Path) -> Result<PathBuf> {
    let (aside, is_named) = free_name(path)?;
    if is_there(path) && !is_named {
        std::fs::hard_link(path, &aside).map_err(|e| failed("give another name to", path, &e))?;
    }
    let draft = beside(path, BARRIER);
    match std::fs::remove_file(&draft) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(failed("remove", &draft, &e)),
        _ => {}
    }
    let name = |path: &Path| path.file_name().map_or_else(OsString::new, OsStr::to_owned);
    let made = barrier::put(&draft, &name(path), &name(&aside));
    let placed = made.and_then(|()| std::fs::rename(&draft, path));
    if let Err(e) = placed {
        // As it was: the second name is no more than that, and a name that was free before.
        let _ = std::fs::remove_file(&draft);
        if is_there(path) {
            let _ = std::fs::remove_file(&aside);
        }
        return Err(failed("put a barrier in the place of", path, &e));
    }
    sync(path)?;
    Ok(aside)
}

/// A name for the old file, beside which nothing stands; and whether it is one of the old file already.
fn free_name(path: &Path) -> Result<(PathBuf, bool)> {
    let own = openers::identity(path);
    for n in 1..NAMES_MAX {
        let aside = beside(path, &format!("-before-restore-{n}"));
        let has_neighbours = SIDE_FILES.iter().any(|suffix| is_there(&beside(&aside, suffix)));
        let is_own = own.is_some() && openers::identity(&aside) == own;
        if !has_neighbours && (is_own || !is_there(&aside)) {
            return Ok((aside, is_own));
        }
    }
    let e = io::Error::from(ErrorKind::AlreadyExists);
    Err(failed("find a name for", path, &e))
}

/// Step 4.
fn refuse_users(path: &Path, aside: &Path) -> Result<()> {
    let files = SIDE_FILES.iter().map(|suffix| beside(path, suffix));
    users::refuse(path, &files.chain([aside.to_owned()]).collect::<Vec<_>>())
}

/// Step 5. Each file with the name that it had and the one that it has then.
fn move_beside(path: &Path, aside: &Path, moved: &mut Vec<(PathBuf, PathBuf)>) -> Result<()> {
    for suffix in SIDE_FILES {
        let from = beside(path, suffix);
        if !is_there(&from) {
            continue;
        }
        // It has moved already, and another one has come since: from somebody who was not seen.
        let others = (1..NAMES_MAX).map(|n| beside(path, &format!("-before-restore-{n}{suffix}")));
        let names = [beside(aside, suffix)].into_iter().chain(others);
        let Some(to) = names.into_iter().find(|to| !is_there(to)) else {
            return Err(failed("find a name for", &from, &ErrorKind::AlreadyExists.into()));
        };
        std::fs::rename(&from, &to).map_err(|e| failed("put aside", &from, &e))?;
        moved.push((from, to));
    }
    sync(path)
}

/// Everything as it was, behind a barrier that this process has put there or found.
fn take_back(path: &Path, aside: &Path, moved: &[(PathBuf, PathBuf)]) {
    let is_back = moved.iter().rev().all(|(from, to)| std::fs::rename(to, from).is_ok());
    // What stays behind the barrier is told by whoever meets that.
    if !is_back || SIDE_FILES.iter().any(|suffix| is_there(&beside(aside, suffix))) {
        return;
    }
    let _ = if is_there(aside) { std::fs::rename(aside, path) } else { std::fs::remove_file(path) };
    let _ = sync(path);
}

/// What has a name of a database that was put aside: now, or by a restore that was cut off.
fn kept(aside: &Path, moved: &[(PathBuf, PathBuf)]) -> Vec<PathBuf> {
    let all = [""].into_iter().chain(SIDE_FILES);
    let mut kept: Vec<_> =
        all.map(|suffix| beside(aside, suffix)).filter(|to| is_there(to)).collect();
    let others = moved.iter().map(|(_, to)| to).filter(|to| !kept.contains(to)).cloned();
    let others: Vec<_> = others.collect();
    kept.extend(others);
    kept
}

fn failed(what: &str, path: &Path, e: &io::Error) -> Failure {
    let failure = Failure::io(what, path, e);
    match e.raw_os_error() {
        Some(libc::EXDEV | libc::EBUSY) => Failure {
            advice: "if it is mounted by itself, as containers do it, mount its folder instead; nothing was changed".into(),
            ..failure
        },
        Some(libc::EPERM | libc::EOPNOTSUPP) => Failure {
            advice: "run the command as the owner of the file, on a file system that has hard and symbolic links; nothing was changed".into(),
            ..failure
        },
        _ => failure,
    }
}

fn is_there(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

fn sync(path: &Path) -> Result<()> {
    OsStorage.sync_dir_of(path).map_err(|e| Failure::io("sync the folder of", path, &e))
}

/// Other restores of the same file that are at work.
pub fn refuse_others(path: &Path, own: &WholeCopy) -> Result<()> {
    if !leftovers::is_another_at_work(path, leftovers::RESTORE, own.path()) {
        return Ok(());
    }
    Err(Failure::new(
        format!("another `plait restore` of {} is at work", path.display()),
        "wait for its end, and run the command again if you still want this backup",
    ))
}
