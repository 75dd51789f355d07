//! Claims: who has a concurrent database open, also without a session.
//!
//! A connection that works alone on a resting file is in no session, where others would see it. So each process locks a
//! byte of the base's WAL-index, named after its id, before it works alone or joins; the byte lies behind everything that SQLite locks.
//!
//! - Q1 The lock belongs to the open file that SQLite itself has of the WAL-index, one per process and copy of the library: it lasts
//!   as long as that, and two copies in one process, to which SQLite's own locks mean nothing, see each other.
//! - Q2 Being wrong about company is harmless: who finds a claim joins a session, which was right before too. A child that has
//!   inherited the open file, or an equal id in another pid namespace, is company.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use super::fork::fork_generation;
use super::locks;

/// The first byte of the claims.
const CLAIMS: i64 = 1 << 40;
/// Ids of processes are smaller.
const CLAIMS_LEN: i64 = 1 << 23;

/// Claims the database for this process: false if that has been done through another open file.
///
/// # Errors
/// The file system has no locks, or the file is open for reading only.
pub fn claim(wal_index: &File) -> io::Result<bool> {
    // From the first use of a database on, not from the first session: that may begin in one thread just when another forks, and the child
    // would wait for ever for who was at it.
    fork_generation();
    locks::try_lock(wal_index, CLAIMS + i64::from(std::process::id()))
}

/// Whether another open file has a claim on the database.
///
/// # Errors
/// The file system has no locks.
pub fn is_claimed_elsewhere(wal_index: &File) -> io::Result<bool> {
    locks::is_range_locked_elsewhere(wal_index, CLAIMS, CLAIMS_LEN)
}

/// Whether this process has the file open a second time: by another copy of the library.
///
/// # Errors
/// `/proc` cannot be read.
pub fn is_open_twice(wal_index: &File) -> io::Result<bool> {
    let own = wal_index.metadata()?;
    let mut times = 0;
    for entry in std::fs::read_dir("/proc/self/fd")? {
        // One that was closed meanwhile is none.
        let Ok(other) = std::fs::metadata(entry?.path()) else { continue };
        times += usize::from(other.dev() == own.dev() && other.ino() == own.ino());
    }
    Ok(times > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_seen_through_every_other_open_file_and_ends_with_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("app.db-shm");
        let open =
            || File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let first = open().unwrap();
        assert!(claim(&first).unwrap());
        assert!(claim(&first).unwrap(), "again by the same");
        assert!(!is_claimed_elsewhere(&first).unwrap(), "its own claim is no company");
        assert!(!is_open_twice(&first).unwrap());
        let second = open().unwrap();
        assert!(!claim(&second).unwrap());
        assert!(is_claimed_elsewhere(&second).unwrap());
        assert!(is_open_twice(&second).unwrap());
        drop(first);
        assert!(!is_claimed_elsewhere(&second).unwrap());
        assert!(!is_open_twice(&second).unwrap());
        assert!(claim(&second).unwrap());
    }
}
