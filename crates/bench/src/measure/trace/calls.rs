//! Which system calls wait for the disk.
//!
//! | call | waits |
//! |---|---|
//! | fsync, fdatasync | for a file |
//! | sync, syncfs | for everything |
//! | msync | with `MS_SYNC` |
//! | `sync_file_range` | with `SYNC_FILE_RANGE_WAIT_AFTER`; it does not empty the disk's own cache |
//! | write, pwrite64, writev, pwritev, pwritev2, sendfile, splice, `copy_file_range` | to a descriptor opened with `O_DSYNC` or `O_SYNC` |
//! | pwritev2 | with `RWF_DSYNC` or `RWF_SYNC` |
//!
//! A descriptor's flags and path are read from /proc when the call is made: so it does not matter who opened it, when,
//! or through how many dups and forks. A call counts if its file is in the trial's directory.

use std::path::{Path, PathBuf};

use syscalls::Sysno;

/// What a call will have shown if it succeeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It waited for the disk; what to count it as.
    Sync(String),
    /// It waited for a file that is not in the trial's directory.
    Elsewhere(&'static str),
    /// What it did cannot be seen from outside.
    Hidden(&'static str),
}

/// A call as the tracer sees it when it is made.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The thread.
    pub thread: i32,
    /// Which call.
    pub name: Sysno,
    /// Its arguments.
    pub arguments: [u64; 6],
}

impl Call {
    /// Whether the call waits for the disk; none for the many that do not.
    pub fn wait(&self, directory: &Path) -> Option<Wait> {
        let name = self.name.name();
        match self.name {
            Sysno::fsync | Sysno::fdatasync => Some(self.of_file(0, name, "", directory)),
            Sysno::sync | Sysno::syncfs => Some(Wait::Sync(name.to_owned())),
            Sysno::msync => {
                let synchronous = self.arguments[2] & bits(libc::MS_SYNC) != 0;
                let place = self.mapped(self.arguments[0]);
                synchronous.then(|| inside(place.as_deref(), name, "", directory))
            }
            Sysno::sync_file_range => {
                let waits = self.arguments[3] & u64::from(libc::SYNC_FILE_RANGE_WAIT_AFTER) != 0;
                waits.then(|| self.of_file(0, name, "", directory))
            }
            Sysno::write | Sysno::pwrite64 | Sysno::writev | Sysno::pwritev | Sysno::sendfile => {
                self.write(0, directory)
            }
            Sysno::pwritev2 => match self.arguments[5] {
                flags if flags & bits(libc::RWF_SYNC) != 0 => {
                    Some(self.of_file(0, name, " (RWF_SYNC)", directory))
                }
                flags if flags & bits(libc::RWF_DSYNC) != 0 => {
                    Some(self.of_file(0, name, " (RWF_DSYNC)", directory))
                }
                _ => self.write(0, directory),
            },
            Sysno::splice | Sysno::copy_file_range => self.write(2, directory),
            Sysno::io_uring_enter | Sysno::io_uring_setup => {
                Some(Wait::Hidden("io_uring was used: what it writes and syncs cannot be counted"))
            }
            Sysno::io_submit => {
                Some(Wait::Hidden("io_submit was used: what it writes and syncs cannot be counted"))
            }
            _ => None,
        }
    }

    /// A write-like call, if its descriptor was opened to wait.
    fn write(&self, argument: usize, directory: &Path) -> Option<Wait> {
        let flags = self.flags(argument)?;
        // O_SYNC holds the bit of O_DSYNC.
        let how = if flags & libc::O_SYNC == libc::O_SYNC {
            " (O_SYNC)"
        } else if flags & libc::O_DSYNC != 0 {
            " (O_DSYNC)"
        } else {
            return None;
        };
        Some(self.of_file(argument, self.name.name(), how, directory))
    }

    fn of_file(&self, argument: usize, name: &'static str, how: &str, directory: &Path) -> Wait {
        let link = format!("/proc/{}/fd/{}", self.thread, self.arguments[argument] as i32);
        inside(std::fs::read_link(link).ok().as_deref(), name, how, directory)
    }

    /// The flags with which a descriptor was opened.
    fn flags(&self, argument: usize) -> Option<i32> {
        let file = format!("/proc/{}/fdinfo/{}", self.thread, self.arguments[argument] as i32);
        flags_in(&std::fs::read_to_string(file).ok()?)
    }

    /// The file that is mapped at an address.
    fn mapped(&self, address: u64) -> Option<PathBuf> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.thread)).ok()?;
        mapped_in(&maps, address)
    }
}

fn bits(flags: i32) -> u64 {
    u64::try_from(flags).unwrap_or(0)
}

fn inside(file: Option<&Path>, name: &'static str, how: &str, directory: &Path) -> Wait {
    match file {
        Some(file) if file.starts_with(directory) => Wait::Sync(format!("{name}{how}")),
        _ => Wait::Elsewhere(name),
    }
}

/// The octal number after `flags:` in a file of /proc/PID/fdinfo.
fn flags_in(text: &str) -> Option<i32> {
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
    i32::from_str_radix(flags.trim(), 8).ok()
}

/// The file of the mapping with an address in a /proc/PID/maps: `from-to rights offset device inode path`.
fn mapped_in(maps: &str, address: u64) -> Option<PathBuf> {
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    maps.lines().find_map(|line| {
        let (from, rest) = line.split_once('-')?;
        let (to, rest) = rest.split_once(' ')?;
        let path = &rest[rest.find('/')?..];
        (hexadecimal(from)? <= address && address < hexadecimal(to)?).then(|| path.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_of_a_descriptor_are_octal() {
        let text = "pos:\t0\nflags:\t0110002\nmnt_id:\t30\nino:\t5\n";
        let flags = flags_in(text).unwrap();
        assert_eq!(flags & libc::O_DSYNC, libc::O_DSYNC);
        assert_ne!(flags & libc::O_SYNC, libc::O_SYNC);
    }

    #[test]
    fn a_mapping_is_found_by_an_address_in_it() {
        let maps = "7f0000000000-7f0000001000 rw-s 00000000 fe:00 12 /data/a b.mdb\n\
                    7f0000001000-7f0000002000 rw-p 00000000 00:00 0 \n";
        assert_eq!(mapped_in(maps, 0x7f00_0000_0fff), Some("/data/a b.mdb".into()));
        assert_eq!(mapped_in(maps, 0x7f00_0000_1000), None);
    }

    #[test]
    fn a_file_outside_of_the_directory_proves_nothing() {
        let directory = Path::new("/data/trial");
        let wait = |file| inside(Some(Path::new(file)), "fsync", "", directory);
        assert_eq!(wait("/data/trial/x.db"), Wait::Sync("fsync".to_owned()));
        assert_eq!(wait("/data/trial-of-another/x.db"), Wait::Elsewhere("fsync"));
    }
}
