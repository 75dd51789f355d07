//! Files that programs have open as those of a database and that do not stand under their names any more: removed, renamed or replaced beside
//! living programs.
//!
//! | told by | which |
//! |---|---|
//! | shared memory of a session, which remembers its log and its WAL-index by inode | `-plait`, `-shm` |
//! | the kernel, which names what a process has open, and says whether that name is gone | all, of processes that may be looked into |
//!
//! A process counts if it has the database file open that stands there, and none of that name which was removed: what a deleted database
//! has left is its own. The last to close removes files that it has open, and new ones may come: so what is found is looked for twice.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::memory::Memory;
use super::moment::PAUSE;
use super::{Inspection, beside, openers};

/// What a living program needs where it is.
const KEPT: [&str; 4] = ["-plait", "-plait-shm", "-shm", "-wal"];
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

/// Looks for all of them.
pub fn look(state: &Inspection) -> Vec<Astray> {
    let first = find(&state.path, state.memory.as_ref());
    if first.is_empty() {
        return first;
    }
    std::thread::sleep(2 * PAUSE);
    // With memory as it is by now: the session may be another one.
    let now = state.memory_now();
    let second = find(&state.path, now.as_ref());
    second.into_iter().filter(|one| first.iter().any(|other| other.suffix == one.suffix)).collect()
}

fn find(path: &Path, memory: Option<&Memory>) -> Vec<Astray> {
    let mut found = by_the_kernel(path);
    if let Some(memory) = memory.filter(|m| m.in_use && m.is_trusted()) {
        let now = |suffix: &str| openers::identity(&beside(path, suffix));
        let is_log_gone =
            memory.is_fenced && memory.log_file != (0, 0) && now("-plait") != Some(memory.log_file);
        let index = memory.wal_index_inode;
        let is_index_gone = index != 0 && now("-shm").map(|(_, inode)| inode) != Some(index);
        for (suffix, _) in [("-plait", is_log_gone), ("-shm", is_index_gone)].iter().filter(|g| g.1)
        {
            found.entry(suffix).or_default().extend(&memory.alive);
        }
    }
    let astray = |(suffix, mut pids): (&'static str, Vec<u32>)| {
        pids.sort_unstable();
        pids.dedup();
        let path = beside(path, suffix);
        let is_replaced = std::fs::symlink_metadata(&path).is_ok();
        Astray { suffix, path, is_replaced, pids }
    };
    found.into_iter().map(astray).collect()
}

/// Who has which of them open under a name that is gone.
fn by_the_kernel(path: &Path) -> BTreeMap<&'static str, Vec<u32>> {
    let mut found = BTreeMap::<_, Vec<u32>>::new();
    let Some(base) = openers::identity(path) else { return found };
    for pid in openers::of(&[base]).pids {
        let gone = gone(pid);
        if gone.iter().any(|name| name == path) {
            continue;
        }
        for suffix in KEPT.into_iter().filter(|suffix| gone.contains(&beside(path, suffix))) {
            found.entry(suffix).or_default().push(pid);
        }
    }
    found
}

/// The names that files had which a process has open, and which have lost them.
fn gone(pid: u32) -> Vec<PathBuf> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let names = descriptors.filter_map(|descriptor| {
        let text = std::fs::read_link(descriptor.path()).ok()?;
        let name = text.as_os_str().as_bytes().strip_suffix(DELETED)?.to_vec();
        // A name may end so as well.
        let has_name = std::fs::metadata(descriptor.path()).ok()?.nlink() > 0;
        (!has_name).then(|| PathBuf::from(OsString::from_vec(name)))
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
        let found = find(&path, None);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].suffix, found[0].is_replaced), ("-wal", false));
        assert_eq!(found[0].pids, [reader.id()]);
        std::fs::write(&wal, b"another").unwrap();
        assert!(find(&path, None)[0].is_replaced);
        // Of a database that was deleted.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, b"another").unwrap();
        assert!(by_the_kernel(&path).is_empty());
        reader.kill().unwrap();
        reader.wait().unwrap();
    }
}
