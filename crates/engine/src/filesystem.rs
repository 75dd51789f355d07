//! The file systems that concurrent mode accepts, and what the kernel is asked for beyond files.
//!
//! Shared memory mappings, futexes and open-file locks mean nothing between machines, so network
//! file systems are refused by name. A file that is a mount of its own, as in containers, is
//! refused too: the files next to it do not last as long, and the log would be lost with the
//! container.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::error::{Error, Result};

/// Magic numbers of `statfs(2)` and the common names.
const NETWORK: &[(i64, &str)] = &[
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x517b, "SMB"),
    (0x0102_1997, "9P"),
    (0x5346_414f, "AFS"),
    (0x7375_7245, "Coda"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x6573_5546, "FUSE"),
];

/// Lets the kernel begin to write `len` bytes at `at` to the disk, if it can. Waits for nothing but a full queue of
/// the disk's, and promises nothing.
#[allow(unsafe_code)]
pub fn begin_write_out(file: &File, at: u64, len: u64) {
    // SAFETY: a file that is open; no memory is passed.
    unsafe {
        libc::sync_file_range(file.as_raw_fd(), at as i64, len as i64, libc::SYNC_FILE_RANGE_WRITE)
    };
}

/// Fails if `path` is on a network file system (or on FUSE, which may hide one).
pub fn refuse_network(path: &Path) -> Result<()> {
    let stat = rustix::fs::statfs(path).map_err(|e| {
        Error::io(format!("cannot look at the file system of {}", path.display()), &e.into())
    })?;
    let kind = stat.f_type & 0xffff_ffff;
    match NETWORK.iter().find(|&&(magic, _)| magic == kind) {
        None => Ok(()),
        Some((_, name)) => Err(Error::CantOpen(format!(
            "{} lies on a network file system ({name}): concurrent mode needs shared memory and locks of one machine; \
             use a local disk, or another journal mode",
            path.display()
        ))),
    }
}

/// Fails if the file at `path` is mounted by itself, apart from its folder.
pub fn refuse_lone_mount(path: &Path) -> Result<()> {
    let mount = |path: &Path| {
        let is = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
        // Linux before 5.8 does not report the mount.
        (is.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(is.stx_mnt_id)
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match (mount(path), mount(folder.unwrap_or(Path::new(".")))) {
        (Some(file), Some(folder)) if file != folder => Err(Error::CantOpen(format!(
            "{} is mounted by itself, as a single file, and its folder is on another file system \
             or goes with the container: concurrent mode keeps commits in files next to it, which \
             would be lost; mount the folder instead",
            path.display()
        ))),
        _ => Ok(()),
    }
}
