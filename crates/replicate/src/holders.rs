//! Who keeps everybody else out of a database file.

use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{major, minor};

/// SQLite's bytes for locks. Whoever has all of them for writing keeps everybody else out; those of a reader, or the one of a
/// writer whom readers may still see, keep nobody from joining.
const PENDING: u64 = 0x4000_0000;
const SHARED: RangeInclusive<u64> = PENDING + 2..=PENDING + 511;

/// Who has locks of SQLite's on a database file that keep everybody else out, in words; empty if that cannot be told. The
/// kernel's own list is read: to open the file here, and close it, would end the locks of this process.
pub fn named(path: &Path) -> String {
    let Ok(meta) = std::fs::metadata(path) else { return String::new() };
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let device = (major(meta.dev()), minor(meta.dev()));
    let mut pids = holders(&locks, device, meta.ino());
    let own = std::process::id();
    pids.retain(|pid| *pid != own && *pid != 0);
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

/// A lock of a process, as /proc/locks tells of it.
struct Lock {
    pid: u32,
    device: (u32, u32),
    inode: u64,
    keeps_out: bool,
}

impl Lock {
    /// `None` for what waits for a lock, and for locks of no one process.
    fn parse(line: &str) -> Option<Lock> {
        // 1: POSIX  ADVISORY  WRITE 4711 08:01:123456 1073741826 1073742335
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "POSIX", _, access, pid, file, first, last] = words[..] else { return None };
        let mut parts = file.split(':');
        let mut number = || u32::from_str_radix(parts.next()?, 16).ok();
        let device = (number()?, number()?);
        let first: u64 = first.parse().ok()?;
        // "EOF" is the end of any file.
        let last: u64 = last.parse().unwrap_or(u64::MAX);
        let has = |bytes: RangeInclusive<u64>| first <= *bytes.end() && *bytes.start() <= last;
        Some(Lock {
            pid: pid.parse().ok()?,
            device,
            inode: parts.next()?.parse().ok()?,
            keeps_out: access == "WRITE" && (has(PENDING..=PENDING) || has(SHARED)),
        })
    }
}

/// Processes that keep others out of a file. Some file systems, as btrfs and overlays, tell of another device here than `stat`
/// does: where no lock is on the file's own, those with its inode count.
fn holders(locks: &str, device: (u32, u32), inode: u64) -> Vec<u32> {
    let of_inode = locks.lines().filter_map(Lock::parse).filter(|lock| lock.inode == inode);
    let mut found: Vec<Lock> = of_inode.collect();
    if found.iter().any(|lock| lock.device == device) {
        found.retain(|lock| lock.device == device);
    }
    found.iter().filter(|lock| lock.keeps_out).map(|lock| lock.pid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str = "\
1: POSIX  ADVISORY  WRITE 10 08:01:77 1073741824 1073742335
2: POSIX  ADVISORY  WRITE 11 fd:0a:77 1073741826 1073742335
3: POSIX  ADVISORY  READ 12 08:01:77 1073741826 1073742335
4: POSIX  ADVISORY  WRITE 13 08:01:77 1073741825 1073741825
5: POSIX  ADVISORY  WRITE 14 08:01:77 120 120
5: -> POSIX  ADVISORY  WRITE 15 08:01:77 1073741824 1073742335
6: OFDLCK ADVISORY  WRITE -1 08:01:77 0 EOF
7: POSIX  ADVISORY  WRITE 16 08:01:177 0 EOF
8: FLOCK  ADVISORY  WRITE 17 08:01:77 0 EOF
9: POSIX  ADVISORY  WRITE 18 08:01:77 0 EOF
";

    #[test]
    fn those_are_named_that_keep_others_out_of_this_file_and_nobody_else() {
        assert_eq!(holders(LOCKS, (8, 1), 77), [10, 18]);
        assert_eq!(holders(LOCKS, (0xfd, 10), 77), [11]);
        // An inode of its own, on a device that goes by another number.
        assert_eq!(holders(LOCKS, (0, 40), 177), [16]);
        assert_eq!(holders(LOCKS, (8, 1), 78), [0; 0]);
    }
}
