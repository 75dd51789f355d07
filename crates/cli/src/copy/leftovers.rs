//! Temporary files of copies that were cut off: by a kill, or by a machine that went down.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{BESIDE, RANDOM};
use crate::console;
use crate::failure::quoted;
use crate::inspect::beside;
use crate::quantity::bytes;

/// Files that are named in the command which removes them.
const NAMED_MAX: usize = 4;

/// What `plait backup` puts between the name of its target and something random.
pub const BACKUP: &str = ".plait-backup-";
/// The same of `plait restore`.
pub const RESTORE: &str = ".plait-restore-";

/// Those that were to become `target`, and that no process works on (COPY-2 of the parent).
pub fn of(target: &Path, infix: &str) -> Vec<PathBuf> {
    named(target, infix).into_iter().filter(|path| !is_worked_on(path)).collect()
}

/// Another process than this, which works on `own`, makes a copy that is to become `target`.
pub fn is_another_at_work(target: &Path, infix: &str, own: &Path) -> bool {
    named(target, infix).iter().any(|path| path != own && is_worked_on(path))
}

fn named(target: &Path, infix: &str) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (target.parent(), target.file_name()) else {
        return Vec::new();
    };
    let prefix = [name.as_bytes(), infix.as_bytes()].concat();
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries
        .map(|entry| entry.path())
        .filter(|path| path.file_name().unwrap_or_default().as_bytes().starts_with(&prefix));
    // Also one of which only SQLite's files beside it are there.
    let mut named: Vec<_> = names.filter_map(|path| temporary_of(&path)).collect();
    named.sort();
    named.dedup();
    named
}

/// The temporary file that this is, or that it stands beside.
pub fn temporary_of(path: &Path) -> Option<PathBuf> {
    let bytes = path.as_os_str().as_bytes();
    let end = [BACKUP, RESTORE].iter().find_map(|infix| {
        let at = bytes.windows(infix.len()).rposition(|part| part == infix.as_bytes())?;
        let end = at + infix.len() + RANDOM;
        let rest = bytes.get(end..)?;
        let is_its = rest.is_empty() || BESIDE.iter().any(|suffix| rest == suffix.as_bytes());
        is_its.then_some(end)
    })?;
    Some(PathBuf::from(OsStr::from_bytes(&bytes[..end])))
}

/// All that stands there of a temporary file, and the command that removes it.
pub fn all_of(temporary: &Path) -> (Vec<PathBuf>, String) {
    let all = [""].iter().chain(BESIDE).map(|suffix| beside(temporary, suffix));
    let there = all.filter(|file| std::fs::symlink_metadata(file).is_ok()).collect();
    (there, format!("rm {}*", quoted(temporary)))
}

fn is_worked_on(path: &Path) -> bool {
    let opened =
        File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path);
    opened.is_ok_and(|file| matches!(file.try_lock(), Err(std::fs::TryLockError::WouldBlock)))
}

/// Says what was left behind, with the command that removes it.
pub fn warn(target: &Path, infix: &str) {
    let left = of(target, infix);
    let Some(first) = left.first() else { return };
    let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |meta| meta.len());
    let sum = bytes(left.iter().map(size).sum());
    let what = match left.len() {
        1 => format!("{} was left by a command that was killed ({sum})", first.display()),
        n => format!(
            "{} and {} more were left by commands that were killed ({sum})",
            first.display(),
            n - 1
        ),
    };
    let names = left.iter().take(NAMED_MAX).map(|path| format!("{}*", quoted(path)));
    let names: Vec<_> = names.collect();
    console::warn(&what, &format!("nothing needs that: rm {}", names.join(" ")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_works_on_is_not_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("b.db");
        let make = |name: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, b"part of a copy").unwrap();
            path
        };
        let left = make("b.db.plait-backup-abcdef");
        let busy = make("b.db.plait-backup-ghijkl");
        for other in [
            "b.db.plait-restore-abcdef",
            "b.db.plait-backup-abcdef-wal",
            "c.db.plait-backup-abcdef",
        ] {
            make(other);
        }
        let worked_on = File::open(&busy).unwrap();
        worked_on.try_lock().unwrap();
        assert_eq!(of(&target, BACKUP), std::slice::from_ref(&left));
        drop(worked_on);
        assert_eq!(of(&target, BACKUP), [left, busy]);
    }
}
