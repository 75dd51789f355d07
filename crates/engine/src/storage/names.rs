//! Names of the files next to a database, and their first bytes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;

/// Returns the name of the database's log.
pub fn log_path(base: &Path) -> PathBuf {
    suffixed(base, "-plait")
}

/// Returns the name of the database's shared memory file.
pub fn shm_path(base: &Path) -> PathBuf {
    suffixed(base, "-plait-shm")
}

/// Returns the name of the mark that makes a database a replica.
pub fn follows_path(base: &Path) -> PathBuf {
    suffixed(base, FOLLOWS)
}

/// Returns the name of the file that has room for the next mark.
pub fn follows_new_path(base: &Path) -> PathBuf {
    suffixed(base, "-plait-follows.new")
}

/// Returns the name of the file that a follower of the database holds locked (`flock`) while it
/// lives.
pub fn follows_lock_path(base: &Path) -> PathBuf {
    suffixed(base, "-plait-follows.lock")
}

/// The first of the database's own file and those beside it that is there and that this process may not write. SQLite makes
/// the others with the rights of the first, as it is then.
pub fn unwritable(base: &Path) -> Option<PathBuf> {
    let files = ["", "-journal", "-wal", "-shm", "-plait", "-plait-shm"];
    let mut files = files.into_iter().map(|suffix| suffixed(base, suffix));
    files.find(|file| {
        let may = rustix::fs::accessat(CWD, file, Access::WRITE_OK, AtFlags::empty());
        may.is_err_and(|e| [Errno::ACCESS, Errno::PERM, Errno::ROFS].contains(&e))
    })
}

/// What the name of a mark ends in.
pub const FOLLOWS: &str = "-plait-follows";

pub(crate) fn suffixed(base: &Path, suffix: &str) -> PathBuf {
    let base = base.as_os_str();
    let mut name = OsString::with_capacity(base.len() + suffix.len() + 1);
    name.push(base);
    name.push(suffix);
    PathBuf::from(name)
}

/// Longest name of a database file that leaves room for the longest suffix, which is a restore's: 255
/// bytes in all.
pub const NAME_BYTES_MAX: usize = 255 - ".plait-restore-barrier".len();

/// First bytes of a log.
pub const LOG_MAGIC: [u8; 8] = *b"PlaitLog";
/// First bytes of a file with changed pages.
pub const PAGES_MAGIC: [u8; 8] = *b"PlaitPgs";
/// First word of a shared memory file.
pub const SHARED_MEMORY_MAGIC: u64 = u64::from_le_bytes(*b"plaitshm");
/// Size of a shared memory file, which no other file has.
pub const SHARED_MEMORY_BYTES: u64 = 190_840_832;
