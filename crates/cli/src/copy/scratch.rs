//! A private copy of a database that must not be opened where it is, because opening would change it.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use indicatif::ProgressBar;
use plait_engine::log::{LogError, LogScan};
use plait_engine::several::{self, Verdict};
use plait_engine::storage::os::OsStorage;
use plait_engine::storage::side;
use tempfile::TempDir;

use crate::console;
use crate::failure::{Failure, Result, quoted};
use crate::inspect::outlook::Outlook;
use crate::inspect::{Inspection, beside};
use crate::os::FileSystem;
use crate::quantity::bytes;

/// Files that make up a database without its shared memory.
pub const ON_DISK: Wanted = Wanted {
    suffixes: &["", "-wal", "-journal", "-plait", "-plait-pages"],
    doing: "check a copy of",
    advice: "set TMPDIR to a directory with more room, or open the database once to let it recover",
};
/// The same with it, which may continue the log.
pub const ALL: Wanted = Wanted {
    suffixes: &["", "-wal", "-journal", "-plait", "-plait-pages", "-plait-shm"],
    doing: "recover a private copy of",
    advice: "set TMPDIR to a directory with more room",
};
/// The file without anything that stands beside it.
pub const FILE_ALONE: Wanted = Wanted { suffixes: &[""], ..ON_DISK };
/// Folders around the copy.
const DEPTH: usize = 8;
/// Bytes copied between two looks at the progress.
const CHUNK_BYTES: usize = 1 << 20;

/// What is copied, and what to say where there is no room.
pub struct Wanted {
    suffixes: &'static [&'static str],
    doing: &'static str,
    advice: &'static str,
}

/// The copy; removed when dropped.
pub struct Scratch {
    directory: TempDir,
}

impl Scratch {
    /// Copies the database at `path`. When that changed meanwhile, which the caller finds out, the copy is no state of it.
    pub fn copy(path: &Path, wanted: &Wanted) -> Result<Scratch> {
        // Shared memory is mostly holes.
        let size = |suffix: &&str| {
            std::fs::metadata(beside(path, suffix)).map_or(0, |m| m.len().min(m.blocks() * 512))
        };
        let total: u64 = wanted.suffixes.iter().map(size).sum();
        let place = std::env::temp_dir();
        let room = FileSystem::of(&place).map_or(u64::MAX, |fs| fs.free_bytes);
        // Recovery writes to the copy: the log's content once more into its WAL and into the file.
        let needed = total + total / 2;
        if room < needed {
            return Err(Failure::new(
                format!(
                    "cannot {} {}: it takes {} in {}, which has {}",
                    wanted.doing,
                    path.display(),
                    bytes(needed),
                    place.display(),
                    bytes(room)
                ),
                wanted.advice,
            ));
        }
        let directory = tempfile::Builder::new()
            .prefix("plait-copy-")
            .tempdir()
            .map_err(|e| Failure::io("make a directory in", &place, &e))?;
        let scratch = Scratch { directory };
        let copy = scratch.database();
        let folder = copy.parent().unwrap_or(&copy);
        std::fs::create_dir_all(folder)
            .map_err(|e| Failure::io("make a directory in", &place, &e))?;
        let bar = console::progress("copying", total);
        for suffix in wanted.suffixes {
            let from = beside(path, suffix);
            copy_file(&from, &beside(&scratch.database(), suffix), &bar)?;
        }
        place_decision(path, &scratch.database())?;
        bar.finish_and_clear();
        Ok(scratch)
    }

    /// The database file of the copy: deep enough for a super-journal's relative name to stay within the directory.
    pub fn database(&self) -> PathBuf {
        let folder = (0..DEPTH).fold(self.directory.path().to_owned(), |path, _| path.join("d"));
        folder.join("copy.db")
    }
}

/// A private copy of a database with files beside it, which opening would bring into it and remove.
pub fn recovered(database: &Inspection, shown: &Path) -> Result<Scratch> {
    if matches!(database.outlook(), Outlook::Restores(_)) {
        return Err(Failure::new(
            format!(
                "the log of {} is missing, and shared memory, which no copy can go on with, has what was committed",
                shown.display()
            ),
            format!(
                "bring that into the file first, and do not restart the machine before: plait recover {}",
                quoted(shown)
            ),
        ));
    }
    Scratch::copy(&database.path, &ALL)
}

/// If the log ends with an undecided transaction over several files, gives the copy what the original is decided by.
fn place_decision(original: &Path, copy: &Path) -> Result<()> {
    let Some(name) = undecided(&beside(copy, "-plait")) else { return Ok(()) };
    let Ok(verdict) = several::verdict(original, &name) else { return Ok(()) };
    let relative = Path::new(std::ffi::OsStr::from_bytes(&name));
    let ups = relative.components().take_while(|part| *part == Component::ParentDir).count();
    let super_journal = copy.parent().unwrap_or(copy).join(relative);
    if ups > DEPTH {
        return Ok(());
    }
    let make = |path: &Path| {
        let folder = path.parent().unwrap_or(path);
        std::fs::create_dir_all(folder)
            .and_then(|()| File::options().append(true).create(true).open(path))
            .map_err(|e| Failure::io("write", path, &e))
    };
    make(&several::named_after(&super_journal))?;
    if verdict == Verdict::RolledBack {
        make(&super_journal)?;
    }
    Ok(())
}

/// The super-journal of the transaction that a log ends with, if it is prepared and not resolved.
fn undecided(log: &Path) -> Option<Vec<u8>> {
    let salt = LogScan::salt_of(&OsStorage, log).ok()?;
    // The oldest base that it may stand beside.
    let base = LogScan::noted(&OsStorage, log, salt).ok()?;
    let mut scan = LogScan::open(&OsStorage, log, salt, base).ok()?;
    let mut last = None;
    let replayed = scan.replay(|frame| {
        last = frame.prepared().map(|(mark, _)| mark.name.to_vec());
        Ok::<(), LogError>(())
    });
    replayed.ok().and(last)
}

/// Copies a file that is there.
fn copy_file(from: &Path, to: &Path, bar: &ProgressBar) -> Result<()> {
    let mut source = match side::open(from, false) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(|e| Failure::io("read", from, &e))?,
    };
    let mut target = File::create(to).map_err(|e| Failure::io("write", to, &e))?;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let n = source.read(&mut chunk).map_err(|e| Failure::io("read", from, &e))?;
        if n == 0 {
            let end = target.stream_position();
            let ended = end.and_then(|end| target.set_len(end));
            return ended.map_err(|e| Failure::io("write", to, &e));
        }
        let written = if chunk[..n].iter().all(|byte| *byte == 0) {
            target.seek_relative(n as i64)
        } else {
            bar.inc(n as u64);
            target.write_all(&chunk[..n])
        };
        written.map_err(|e| Failure::io("write", to, &e))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_files_that_are_there_and_goes_away() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        std::fs::write(&path, b"base").unwrap();
        std::fs::write(beside(&path, "-plait"), b"log").unwrap();
        let scratch = Scratch::copy(&path, &ON_DISK).unwrap();
        let copy = scratch.database();
        assert_eq!(std::fs::read(&copy).unwrap(), b"base");
        assert_eq!(std::fs::read(beside(&copy, "-plait")).unwrap(), b"log");
        assert!(!beside(&copy, "-wal").exists());
        drop(scratch);
        assert!(!copy.exists());
    }
}
