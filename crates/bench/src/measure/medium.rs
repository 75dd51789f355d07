//! The file system below a directory, and the device below that.

use std::fs;
use std::path::Path;

use nix::sys::stat::{major, minor, stat};
use nix::sys::statvfs::statvfs;

use super::machine::Medium;

/// File systems that are memory.
const MEMORY: &[&str] = &["tmpfs", "ramfs", "devtmpfs"];

/// File systems over a network: what a sync means is up to the other side.
const NETWORK: &[&str] = &[
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "ceph",
    "glusterfs",
    "fuse.glusterfs",
    "fuse.sshfs",
    "afs",
    "lustre",
    "beegfs",
    "ocfs2",
    "gfs2",
    "virtiofs",
];

/// Whether a type of file system is memory.
#[must_use]
pub fn is_memory(file_system: &str) -> bool {
    MEMORY.contains(&file_system)
}

/// Describes the medium of a directory, without probing it.
#[must_use]
pub fn describe(directory: &Path) -> Medium {
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let device = stat(&directory).map(|s| (major(s.st_dev), minor(s.st_dev))).ok();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mount = mount_in(&mounts, &directory).unwrap_or_default();
    let caution = if is_memory(&mount.file_system) {
        Some(format!("{}: memory, nothing on it survives a power cut", mount.file_system))
    } else if NETWORK.contains(&mount.file_system.as_str()) {
        Some(format!(
            "{}: over a network, a sync means what the server makes of it",
            mount.file_system
        ))
    } else if mount.file_system.starts_with("fuse") || mount.file_system == "overlay" {
        Some(format!("{}: a layer above another file system, which decides", mount.file_system))
    } else {
        None
    };
    Medium {
        free_bytes: free_bytes(&directory).unwrap_or(0),
        rotational: device.and_then(|(major, minor)| rotational(major, minor)),
        directory,
        file_system: mount.file_system,
        device: mount.device,
        options: mount.options,
        caution,
        probes: Vec::new(),
    }
}

/// Bytes that an ordinary user may still write below a directory.
#[must_use]
pub fn free_bytes(directory: &Path) -> Option<u64> {
    let space = statvfs(directory).ok()?;
    Some(space.blocks_available() as u64 * space.fragment_size() as u64)
}

/// A line of /proc/self/mountinfo.
#[derive(Debug, Default, PartialEq, Eq)]
struct Mount {
    file_system: String,
    device: String,
    options: String,
}

/// The mount that a directory is on: the last of those with the longest path above it, since a later one covers an
/// earlier. The fields are `id parent major:minor root path options [tags…] - type device super-options`.
fn mount_in(mount_info: &str, directory: &Path) -> Option<Mount> {
    let mut best: Option<(usize, Mount)> = None;
    for line in mount_info.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        let ([_, _, _, _, path, options, ..], [file_system, device, ..]) = (&left[..], &right[..])
        else {
            continue;
        };
        let path = unescaped(path);
        let is_longest = best.as_ref().is_none_or(|(length, _)| path.len() >= *length);
        if directory.starts_with(&path) && is_longest {
            let mount = Mount {
                file_system: (*file_system).to_owned(),
                device: unescaped(device),
                options: (*options).to_owned(),
            };
            best = Some((path.len(), mount));
        }
    }
    best.map(|(_, mount)| mount)
}

/// Blanks in paths are written `\040`.
fn unescaped(path: &str) -> String {
    path.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
}

/// What the device says, or for a partition the device it is on.
fn rotational(major: u64, minor: u64) -> Option<bool> {
    let device = format!("/sys/dev/block/{major}:{minor}");
    [format!("{device}/queue/rotational"), format!("{device}/../queue/rotational")]
        .iter()
        .find_map(|path| fs::read_to_string(path).ok())
        .map(|text| text.trim() == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
        30 22 0:24 / /data rw - tmpfs tmpfs rw,size=1k\n\
        31 22 8:1 / /data rw,noatime - xfs /dev/sda1 rw\n\
        32 22 0:50 / /mnt/a\\040b rw - nfs4 server:/x rw\n";

    #[test]
    fn a_directory_is_on_the_last_mount_above_it() {
        let mount = |path| mount_in(MOUNTS, Path::new(path)).unwrap();
        assert_eq!(mount("/home/x").device, "/dev/vda");
        assert_eq!(mount("/data/x").file_system, "xfs", "a later mount covers an earlier one");
        assert_eq!(mount("/data/x").options, "rw,noatime");
        assert_eq!(mount("/database").file_system, "ext4", "a name is no path above");
        assert_eq!(mount("/mnt/a b/c").file_system, "nfs4");
    }

    #[test]
    fn memory_is_named_as_memory() {
        let shm = Path::new("/dev/shm");
        if fs::read_to_string("/proc/self/mountinfo").unwrap().contains(" /dev/shm ") {
            let medium = describe(shm);
            assert!(medium.is_memory() && medium.caution.is_some(), "{medium:?}");
        }
        assert!(is_memory("tmpfs") && !is_memory("ext4"));
    }
}
