//! Locks on single bytes of the shared memory file.
//!
//! Open-file-description locks belong to the open file, not to the process: they vanish when the
//! last process that shares the description dies, survive the closing of unrelated descriptors, and
//! conflict between two copies of the library in one process. The bytes lie far past the end of the
//! file.
//!
//! # Claims
//!
//! A claim shows that a process has a concurrent database open, with or without a session.
//!
//! A connection that works alone on a file at rest is in no session, where others would see it. So
//! each process locks a byte of the base's WAL-index, at the offset of its id, before it works
//! alone or joins. The byte lies behind all that SQLite locks.
//!
//! - CLAIM-1 The lock belongs to SQLite's own open file of the WAL-index, one per process and copy
//!   of the library. It lasts as long as that file is open, and two copies in one process, which do
//!   not see each other's SQLite locks, see each other's claims.
//! - CLAIM-2 Being wrong about company is harmless: a connection that finds a claim joins a
//!   session, which is always right. A child that has inherited the open file, or an equal id in
//!   another pid namespace, is company.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use super::fork::fork_generation;

fn request(kind: libc::c_int, byte: i64) -> libc::flock {
    request_range(kind, byte, 1)
}

fn request_range(kind: libc::c_int, byte: i64, len: i64) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte,
        l_len: len,
        l_pid: 0,
    }
}

fn fcntl(file: &File, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    loop {
        // SAFETY: the descriptor is open and `lock` is a valid flock that outlives the call.
        let rc = unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) };
        if rc != -1 {
            return Ok(());
        }
        let e = io::Error::last_os_error();
        if e.raw_os_error() != Some(libc::EINTR) {
            return Err(e);
        }
    }
}

/// Takes the lock on `byte` if it is free; a dead holder's lock is already gone. A caller that
/// wants to wait polls: the kernel's own wait does not end while the holder is stopped.
pub fn try_lock(file: &File, byte: i64) -> io::Result<bool> {
    match fcntl(file, libc::F_OFD_SETLK, &mut request(libc::F_WRLCK, byte)) {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Takes a shared lock on `byte` if no other open file holds it exclusively.
pub fn try_lock_shared(file: &File, byte: i64) -> io::Result<bool> {
    match fcntl(file, libc::F_OFD_SETLK, &mut request(libc::F_RDLCK, byte)) {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Releases the lock on `byte`.
pub fn unlock(file: &File, byte: i64) -> io::Result<()> {
    fcntl(file, libc::F_OFD_SETLK, &mut request(libc::F_UNLCK, byte))
}

/// True if another open file holds the lock on `byte`.
pub fn is_locked_elsewhere(file: &File, byte: i64) -> io::Result<bool> {
    is_range_locked_elsewhere(file, byte, 1)
}

/// True if another open file holds a lock on any of `len` bytes from `byte` on.
pub fn is_range_locked_elsewhere(file: &File, byte: i64, len: i64) -> io::Result<bool> {
    let mut lock = request_range(libc::F_WRLCK, byte, len);
    fcntl(file, libc::F_OFD_GETLK, &mut lock)?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

/// The process with a lock on `byte` through another open file: 0 if the lock belongs to an open file description, or to a process
/// of another pid namespace. `None`: nobody has one.
///
/// # Errors
/// The file system has no locks.
pub fn holder_elsewhere(file: &File, byte: i64) -> io::Result<Option<u32>> {
    let mut lock = request(libc::F_WRLCK, byte);
    fcntl(file, libc::F_OFD_GETLK, &mut lock)?;
    let is_free = i32::from(lock.l_type) == libc::F_UNLCK;
    Ok((!is_free).then(|| u32::try_from(lock.l_pid).unwrap_or(0)))
}

/// The first byte of the claims.
const CLAIMS: i64 = 1 << 40;
/// Ids of processes are smaller.
const CLAIMS_LEN: i64 = 1 << 23;

/// Claims the database for this process; false if it was claimed through another open file.
///
/// # Errors
/// The file system has no locks, or the file is open for reading only.
pub fn claim(wal_index: &File) -> io::Result<bool> {
    // The hooks are set at the first use of a database. The first session may begin in one thread
    // just when another forks, and the child would wait for ever for the initialisation.
    fork_generation();
    try_lock(wal_index, CLAIMS + i64::from(std::process::id()))
}

/// True if another open file has a claim on the database.
///
/// # Errors
/// The file system has no locks.
pub fn is_claimed_elsewhere(wal_index: &File) -> io::Result<bool> {
    is_range_locked_elsewhere(wal_index, CLAIMS, CLAIMS_LEN)
}

/// True if this process has the file open a second time, by another copy of the library.
///
/// # Errors
/// `/proc` cannot be read.
pub fn is_open_twice(wal_index: &File) -> io::Result<bool> {
    let own = wal_index.metadata()?;
    let mut times = 0;
    for entry in std::fs::read_dir("/proc/self/fd")? {
        // A descriptor that was closed since does not count.
        let Ok(other) = std::fs::metadata(entry?.path()) else { continue };
        times += usize::from(other.dev() == own.dev() && other.ino() == own.ino());
    }
    Ok(times > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_locked_through_one_open_file_is_seen_through_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let a = File::create(&path).unwrap();
        let b = File::options().write(true).open(&path).unwrap();
        assert!(try_lock(&a, 7).unwrap());
        assert!(is_locked_elsewhere(&b, 7).unwrap());
        assert!(!is_locked_elsewhere(&b, 8).unwrap());
        assert!(!try_lock(&b, 7).unwrap());
        drop(a);
        assert!(!is_locked_elsewhere(&b, 7).unwrap(), "closing the file ends the lock");
    }

    // holds CLAIM-1
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
