//! Who has a file open, as far as the kernel tells this process: `/proc` knows every descriptor of the processes that it may look into.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Processes that have a file open.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Openers {
    /// Those that could be seen, but for this one.
    pub pids: Vec<u32>,
    /// Processes that could not be looked into.
    pub unseen: usize,
}

/// Who has one of these files open, by device and inode.
pub fn of(files: &[(u64, u64)]) -> Openers {
    let mut openers = Openers::default();
    let own = std::process::id();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if pid == own {
            continue;
        }
        match has_open(pid, files) {
            Some(true) => openers.pids.push(pid),
            Some(false) => {}
            None => openers.unseen += 1,
        }
    }
    openers.pids.sort_unstable();
    openers
}

/// `None`: it cannot be looked into.
fn has_open(pid: u32, files: &[(u64, u64)]) -> Option<bool> {
    let folder = format!("/proc/{pid}/fd");
    let descriptors = match std::fs::read_dir(&folder) {
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => return None,
        // It has ended.
        Err(_) => return Some(false),
        Ok(descriptors) => descriptors,
    };
    Some(descriptors.flatten().any(|d| {
        // Of the open file, whatever names it still has.
        std::fs::metadata(d.path()).is_ok_and(|meta| files.contains(&(meta.dev(), meta.ino())))
    }))
}

/// Device and inode of what stands at a path; links are not followed.
pub fn identity(path: &Path) -> Option<(u64, u64)> {
    let meta = std::fs::symlink_metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_that_has_a_file_open_is_found_also_when_the_file_has_lost_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        // Held to the end: without it, the next file that anybody makes may get the same inode.
        let file = std::fs::File::create(&path).unwrap();
        let meta = file.metadata().unwrap();
        // Programs that other tests start have it too, between fork and exec.
        let has_it = |pid: u32| of(&[(meta.dev(), meta.ino())]).pids.contains(&pid);
        let stdout = file.try_clone().unwrap();
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(stdout).spawn().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(has_it(child.id()));
        assert!(!has_it(std::process::id()), "this process does not count");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!has_it(child.id()));
    }
}
