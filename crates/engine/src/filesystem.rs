//! Which file systems concurrent mode accepts.
//!
//! Shared memory mappings, futexes and open-file locks mean nothing
//! between machines, so network file systems are refused by name.

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
