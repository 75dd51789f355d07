//! Copying outputs to the directory that the user sees.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context as _, Result};

/// Copies a file into a directory under the given name, replacing what is there in one step.
pub fn file(from: &Path, directory: &Path, name: &str) -> Result<()> {
    replace(directory, name, |temporary| fs::copy(from, temporary).map(drop))
        .with_context(|| format!("cannot install {}", from.display()))
}

/// Writes a text file into a directory.
pub fn text(contents: &str, directory: &Path, name: &str) -> Result<()> {
    replace(directory, name, |temporary| fs::write(temporary, contents))
}

/// Makes a symbolic link in a directory.
pub fn link(target: &str, directory: &Path, name: &str) -> Result<()> {
    replace(directory, name, |temporary| symlink(target, temporary))
}

fn replace(
    directory: &Path,
    name: &str,
    make: impl FnOnce(&Path) -> std::io::Result<()>,
) -> Result<()> {
    let path = directory.join(name);
    let temporary = directory.join(temporary_name(OsStr::new(name)));
    let _ = fs::remove_file(&temporary);
    fs::create_dir_all(directory)
        .and_then(|()| make(&temporary))
        .and_then(|()| fs::rename(&temporary, &path))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn temporary_name(name: &OsStr) -> std::ffi::OsString {
    let mut temporary = OsStr::new(".new-").to_owned();
    temporary.push(name);
    temporary
}
