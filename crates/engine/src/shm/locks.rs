//! Locks on single bytes of the shared memory file.
//!
//! Open-file-description locks belong to the open file, not to the process:
//! they vanish when the last process that shares the description dies, survive
//! the closing of unrelated descriptors, and conflict between two copies of the
//! library in one process. The bytes lie far past the end of the file.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

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

/// Takes the lock on `byte` if it is free; a dead holder's lock is already gone. Whoever wants to wait looks again: the kernel's own
/// wait has no end when the holder is stopped.
pub fn try_lock(file: &File, byte: i64) -> io::Result<bool> {
    match fcntl(file, libc::F_OFD_SETLK, &mut request(libc::F_WRLCK, byte)) {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Takes a shared lock on `byte` if nobody holds it exclusively.
pub fn try_lock_shared(file: &File, byte: i64) -> io::Result<bool> {
    match fcntl(file, libc::F_OFD_SETLK, &mut request(libc::F_RDLCK, byte)) {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Gives the lock on `byte` back.
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
}
