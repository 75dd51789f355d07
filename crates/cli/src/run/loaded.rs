//! What the loader would take in for a program, told by the loader itself.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::installation::SONAME;

/// Shared objects that `interpreter` would load for `program` in this environment, without those of SQLite.
///
/// Empty when the loader cannot tell: then there is nothing to say about them.
pub fn libraries(
    interpreter: &str,
    program: &Path,
    environment: &[(&str, OsString)],
) -> Vec<PathBuf> {
    let said = Command::new(interpreter)
        .arg("--list")
        .arg(program)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .output();
    said.map(|said| parse(&String::from_utf8_lossy(&said.stdout))).unwrap_or_default()
}

/// Lines are `name => path (address)`, or `path (address)` for what was preloaded.
fn parse(listing: &str) -> Vec<PathBuf> {
    listing
        .lines()
        .filter_map(|line| line.split_once(" => "))
        .filter_map(|(_, found)| found.rsplit_once(" ("))
        .map(|(path, _)| PathBuf::from(path))
        .filter(|path| path.is_absolute() && path.file_name().is_some_and(|name| name != SONAME))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_listing_is_understood() {
        let listing = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                       \t/opt/plait/lib/libsqlite3.so.0 (0x00007f10)\n\
                       \tlibnode.so.108 => /lib/x86_64-linux-gnu/libnode.so.108 (0x00007f11)\n\
                       \tlibmissing.so => not found\n\
                       \tlibsqlite3.so.0 => /opt/plait/lib/libsqlite3.so.0 (0x00007f12)\n\
                       \t/lib64/ld-linux-x86-64.so.2 (0x00007f13)\n";
        assert_eq!(parse(listing), [PathBuf::from("/lib/x86_64-linux-gnu/libnode.so.108")]);
    }
}
