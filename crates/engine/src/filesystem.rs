//! Which file systems concurrent mode accepts.
//!
//! Shared memory mappings, robust mutexes and open-file locks mean nothing
//! between machines, so network file systems are refused by name.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::{Error, Result};

/// Magic numbers of `statfs(2)` and the names people know.
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

/// Fails if `path` lies on a network file system (or on FUSE, which may hide one).
pub fn refuse_network(path: &Path) -> Result<()> {
    let Ok(c_path) = CString::new(path.as_os_str().as_bytes()) else {
        return Err(Error::CantOpen("the path of the database holds a zero byte".into()));
    };
    let mut stat = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the path is a C string and `stat` has room for the answer.
    let rc = unsafe { libc::statfs(c_path.as_ptr(), stat.as_mut_ptr()) };
    if rc != 0 {
        return Err(Error::io(
            format!("cannot look at the file system of {}", path.display()),
            &std::io::Error::last_os_error(),
        ));
    }
    // SAFETY: statfs succeeded, so it filled the struct.
    let kind = unsafe { stat.assume_init() }.f_type & 0xffff_ffff;
    match NETWORK.iter().find(|&&(magic, _)| magic == kind) {
        None => Ok(()),
        Some((_, name)) => Err(Error::CantOpen(format!(
            "{} lies on a network file system ({name}): concurrent mode needs shared memory and locks of one machine; \
             use a local disk, or another journal mode",
            path.display()
        ))),
    }
}
