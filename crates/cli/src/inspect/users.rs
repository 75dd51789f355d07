//! Who has a database open that is to be replaced, or to be used without its WAL or log: by what the kernel tells of descriptors, and by locks.

use std::fs::{File, Metadata};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use plait_engine::session::DEATH_MAX;
use plait_engine::shm::locks;

use super::moment::PAUSE;
use super::{SIDE_FILES, beside, openers};
use crate::failure::{Failure, Result};
use crate::status::people;

/// Fails if a process has the database at `path` open.
pub fn refuse_any(path: &Path) -> Result<()> {
    let all = [""].into_iter().chain(SIDE_FILES).map(|suffix| beside(path, suffix));
    refuse(path, &all.collect::<Vec<_>>())
}

/// Fails if a process has one of these files open, of the database that is to be at `path`.
pub fn refuse(path: &Path, files: &[PathBuf]) -> Result<()> {
    refuse_since(path, files, Instant::now())
}

fn refuse_since(path: &Path, files: &[PathBuf], since: Instant) -> Result<()> {
    let is_file =
        |path: &&PathBuf| std::fs::symlink_metadata(path).is_ok_and(|m: Metadata| m.is_file());
    let there: Vec<_> = files.iter().filter(is_file).collect();
    let identities: Vec<_> = there.iter().filter_map(|path| openers::identity(path)).collect();
    let openers = openers::of(&identities);
    if !openers.pids.is_empty() {
        return Err(Failure::new(
            format!("{} is open in {}", path.display(), people(&openers.pids)),
            "close these programs and run the command again; nothing was changed",
        ));
    }
    let Some(locked) = there.iter().find(|path| is_locked(path)) else { return Ok(()) };
    if since.elapsed() < DEATH_MAX {
        // It comes or goes right now, or dies.
        std::thread::sleep(PAUSE);
        return refuse_since(path, files, since);
    }
    Err(Failure::new(
        format!(
            "{} is open in a process that cannot be seen from here, of another user or outside of this container: it has a lock on {}",
            path.display(),
            locked.display()
        ),
        "close all programs that use the database and run the command again; nothing was changed",
    ))
}

/// Somebody has a lock on any byte of it. Who may not look cannot put it aside either.
fn is_locked(path: &Path) -> bool {
    let opened =
        File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path);
    // A length of 0 reaches to the end of all files.
    opened.is_ok_and(|file| locks::is_range_locked_elsewhere(&file, 0, 0).unwrap_or(false))
}
