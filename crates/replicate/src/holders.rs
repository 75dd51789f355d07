//! Who keeps everybody else out of a database file.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Who has locks of SQLite's on a database file, in words; empty if that cannot be told. The kernel's own list
/// is read: to open the file here, and close it, would end the locks of this process.
pub fn named(path: &Path) -> String {
    let Ok(meta) = std::fs::metadata(path) else { return String::new() };
    let inode = meta.ino();
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let own = std::process::id();
    let mut pids: Vec<u32> = locks
        .lines()
        .filter_map(|line| {
            // 1: POSIX  ADVISORY  WRITE 4711 08:01:123456 1073741826 1073742335
            let words: Vec<&str> = line.split_whitespace().collect();
            let at = words.iter().position(|word| word.ends_with(&format!(":{inode}")))?;
            words.get(at.checked_sub(1)?)?.parse().ok()
        })
        .filter(|pid| *pid != own && *pid != 0)
        .collect();
    pids.sort_unstable();
    pids.dedup();
    let name = |pid: &u32| match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("process {pid} ({})", name.trim_end()),
        Err(_) => format!("process {pid}"),
    };
    match pids.is_empty() {
        true => String::new(),
        false => format!(
            "; it is locked by {}: with PRAGMA locking_mode=exclusive a program keeps everybody else out until it closes \
             the database",
            pids.iter().map(name).collect::<Vec<_>>().join(", ")
        ),
    }
}
