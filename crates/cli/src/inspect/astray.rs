//! Files that programs have open as those of a database and that do not stand under their names any more: removed, renamed or replaced beside
//! living programs.
//!
//! | told by | which |
//! |---|---|
//! | shared memory of a session, which remembers its log and its WAL-index by inode | `-plait`, `-shm` |
//! | the kernel, which names what a process has open, and says whether that name is gone | all, of processes that may be looked into |
//!
//! A process counts if it has the database file open that stands there, and none of that name which was removed: what a deleted database
//! has left is its own. The last to close removes files that it has open, and new ones may come: so the same file, of the same process or session, is
//! looked for again and again for [`STAY`].

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::memory::Memory;
use super::moment::PAUSE;
use super::{Inspection, beside, openers};

/// What a living program needs where it is.
const KEPT: [&str; 4] = ["-plait", "-plait-shm", "-shm", "-wal"];
/// How long it is so before it is believed: the last to close has its files a little longer than their names.
const STAY: Duration = Duration::from_millis(500);
/// What the kernel puts behind the name of a file that has lost it.
const DELETED: &[u8] = b" (deleted)";

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Astray {
    /// What its name ended in.
    pub suffix: &'static str,
    /// Where it stood.
    pub path: PathBuf,
    /// Another file stands there now.
    pub is_replaced: bool,
    /// Who has it open, as far as that can be told.
    pub pids: Vec<u32>,
}

/// What tells of one: a process that has such a file, or a session (by its salt) that remembers it.
type Witness = (&'static str, Who, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Process(u32),
    Session(u32),
}

/// Looks for all of them.
pub fn look(state: &Inspection) -> Vec<Astray> {
    let start = Instant::now();
    let mut found = witnesses(&state.path, state.memory.as_ref());
    while !found.is_empty() && start.elapsed() < STAY {
        std::thread::sleep(PAUSE);
        // With memory as it is by now: the session may be another one.
        let now = witnesses(&state.path, state.memory_now().as_ref());
        found.retain(|witness| now.contains(witness));
    }
    told(&state.path, &found, state.alive())
}

fn witnesses(path: &Path, memory: Option<&Memory>) -> BTreeSet<Witness> {
    let mut found = by_the_kernel(path);
    let Some(memory) = memory.filter(|m| m.in_use && m.is_trusted()) else { return found };
    let now = |suffix: &str| openers::identity(&beside(path, suffix));
    let (session, log, index) =
        (Who::Session(memory.salt), memory.log_file, memory.wal_index_inode);
    if memory.is_fenced && log != (0, 0) && now("-plait") != Some(log) {
        found.insert(("-plait", session, log.1));
    }
    if index != 0 && now("-shm").map(|(_, inode)| inode) != Some(index) {
        found.insert(("-shm", session, index));
    }
    found
}

/// By their names, with who has them open: `members` are those of the session.
fn told(path: &Path, found: &BTreeSet<Witness>, members: &[u32]) -> Vec<Astray> {
    let mut by_name = BTreeMap::<_, BTreeSet<u32>>::new();
    for &(suffix, who, _) in found {
        let pids = by_name.entry(suffix).or_default();
        match who {
            Who::Process(pid) => drop(pids.insert(pid)),
            Who::Session(_) => pids.extend(members),
        }
    }
    let astray = |(suffix, pids): (&'static str, BTreeSet<u32>)| {
        let path = beside(path, suffix);
        let is_replaced = std::fs::symlink_metadata(&path).is_ok();
        Astray { suffix, path, is_replaced, pids: pids.into_iter().collect() }
    };
    by_name.into_iter().map(astray).collect()
}

/// Who has which of them open under a name that is gone.
fn by_the_kernel(path: &Path) -> BTreeSet<Witness> {
    let mut found = BTreeSet::new();
    let Some(base) = openers::identity(path) else { return found };
    for pid in openers::of(&[base]).pids {
        let gone = gone(pid);
        if gone.iter().any(|(name, _)| name == path) {
            continue;
        }
        for (name, inode) in gone {
            let suffix = KEPT.into_iter().find(|suffix| name == beside(path, suffix));
            found.extend(suffix.map(|suffix| (suffix, Who::Process(pid), inode)));
        }
    }
    found
}

/// The names that files had which a process has open, and which have lost them, with their inodes.
fn gone(pid: u32) -> Vec<(PathBuf, u64)> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let names = descriptors.filter_map(|descriptor| {
        let text = std::fs::read_link(descriptor.path()).ok()?;
        let name = text.as_os_str().as_bytes().strip_suffix(DELETED)?.to_vec();
        let meta = std::fs::metadata(descriptor.path()).ok()?;
        // A name may end so as well.
        (meta.nlink() == 0).then(|| (PathBuf::from(OsString::from_vec(name)), meta.ino()))
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_file_that_was_removed_under_a_process_is_found_while_the_database_stands_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("a.db");
        let wal = beside(&path, "-wal");
        let file = std::fs::File::create(&path).unwrap();
        let side = std::fs::File::create(&wal).unwrap();
        let mut reader = Command::new("cat");
        let mut reader = reader.stdin(Stdio::piped()).stdout(file).stderr(side).spawn().unwrap();
        assert!(by_the_kernel(&path).is_empty());
        std::fs::remove_file(&wal).unwrap();
        let find = || told(&path, &witnesses(&path, None), &[]);
        let found = find();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].suffix, found[0].is_replaced), ("-wal", false));
        // Programs that other tests start have it too, between fork and exec.
        assert!(found[0].pids.contains(&reader.id()));
        std::fs::write(&wal, b"another").unwrap();
        assert!(find()[0].is_replaced);
        // Of a database that was deleted.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, b"another").unwrap();
        assert!(by_the_kernel(&path).is_empty());
        reader.kill().unwrap();
        reader.wait().unwrap();
    }
}
