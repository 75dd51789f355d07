//! What stands under the names of a database's side files and is none: links, pipes, folders, devices; and what is none for its owner.
//!
//! Asked before anything is opened. A pipe would keep whoever opens it waiting, and what a link leads to is not the database's:
//! neither this program nor the library goes on past one of those that opening a database needs.

use std::fs::FileType;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use plait_engine::storage::side;

use super::beside;
use crate::failure::{Failure, Result, quoted};

/// Opened whenever the database is.
const NEEDED: &[&str] = &["-wal", "-shm", "-journal", "-plait", "-plait-shm"];
/// Opened or made by some transactions only.
const SPARE: &[&str] = &["-plait-new", "-plait-super", "-plait-pages"];

/// Fails if one of the files that belong to opening the database is something else, or belongs to somebody whom nobody trusts with it.
pub fn refuse(path: &Path) -> Result<()> {
    if let Some((side, user)) = NEEDED.iter().find_map(|suffix| of_another_user(path, suffix)) {
        return Err(Failure::new(
            format!(
                "cannot use {}: it belongs to user {user}, who may not write the database, so nothing opens the database beside it",
                side.display()
            ),
            format!(
                "if a program of this database has made it, it may hold the newest commits: give it to the owner of the database, \
                 `chown --reference={} {}`; else move it away",
                quoted(path),
                quoted(&side)
            ),
        ));
    }
    let Some((stranger, kind)) = find(path, NEEDED)?.into_iter().next() else { return Ok(()) };
    Err(Failure::new(
        format!("cannot use {}: it is {kind}", stranger.display()),
        "nothing opens the database beside that: remove it if it is not yours, and if it stands for a file of the database, put \
         that file there",
    ))
}

/// The others that are something else, in words.
pub fn spare(path: &Path) -> Result<Vec<String>> {
    let found = find(path, SPARE)?;
    let told = |(path, kind): (PathBuf, _)| {
        format!("{} is {kind}: remove it, some transactions fail because of it", path.display())
    };
    Ok(found.into_iter().map(told).collect())
}

/// A side file that is refused for its owner, and that user.
fn of_another_user(path: &Path, suffix: &str) -> Option<(PathBuf, u32)> {
    let side = beside(path, suffix);
    let refused = side::open(&side, false).err().is_some_and(|e| side::refusal(&e).is_some());
    let meta = std::fs::symlink_metadata(&side).ok().filter(|meta| refused && meta.is_file())?;
    let owner = std::fs::metadata(path).ok()?.uid();
    (meta.uid() != owner).then_some((side, meta.uid()))
}

fn find(path: &Path, suffixes: &[&str]) -> Result<Vec<(PathBuf, &'static str)>> {
    let mut found = Vec::new();
    for suffix in suffixes {
        let side = beside(path, suffix);
        match std::fs::symlink_metadata(&side) {
            Ok(meta) => {
                let kind = strange(meta.file_type()).or_else(|| foreign(&side));
                found.extend(kind.map(|kind| (side, kind)));
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(Failure::io("look at", &side, &e)),
        }
    }
    Ok(found)
}

/// A regular file with something in it that no file of the library's holds. One that cannot be looked at is told of elsewhere.
fn foreign(side: &Path) -> Option<&'static str> {
    let file = side::open(side, false).ok()?;
    (!side::is_ours(&file, side).ok()?).then_some("a file that holds something else")
}

fn strange(kind: FileType) -> Option<&'static str> {
    match kind {
        _ if kind.is_file() => None,
        _ if kind.is_symlink() => Some("a symbolic link, which is not followed"),
        _ if kind.is_dir() => Some("a directory"),
        _ if kind.is_fifo() => Some("a pipe"),
        _ if kind.is_socket() => Some("a socket"),
        _ => Some("a device"),
    }
}
