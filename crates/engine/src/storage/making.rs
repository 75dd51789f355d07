//! Files that are to become a database, or are copies to be put into one, beside it: their names, and what killed processes have
//! left of them.
//!
//! Such a file is locked (`flock`) for as long as the process that works on it lives. So what has its name, is a regular file and
//! is not locked was left, and nobody has a use for it.

use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::names::suffixed;

/// Stands between the destination's name and something random.
pub const INFIX: &str = ".plait-replica-";
/// Hexadecimal digits of the random end.
pub const RANDOM_DIGITS: usize = 8;
/// Behind the name of a database: what copies that are put into it would become.
pub const COPIED: &str = ".copied";
/// What SQLite and the library put beside a database while it is worked on, and the sample of rights.
pub const BESIDE: [&str; 4] = ["-wal", "-shm", "-journal", "-rights"];

/// The name of a file that is to become `destination`.
pub fn in_the_making(destination: &Path, random: u32) -> PathBuf {
    suffixed(destination, &format!("{INFIX}{random:0RANDOM_DIGITS$x}"))
}

/// Removes a file in the making, with those beside it. It goes last itself: by it they are found, if this process is killed here.
pub fn remove(path: &Path) {
    BESIDE.iter().for_each(|suffix| drop(std::fs::remove_file(suffixed(path, suffix))));
    let _ = std::fs::remove_file(path);
}

/// Removes what killed processes have left that were to make `destination`, and nothing else.
pub fn remove_left(destination: &Path) {
    let (Some(folder), Some(name)) = (destination.parent(), destination.file_name()) else {
        return;
    };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let prefix = [name.as_bytes(), INFIX.as_bytes()].concat();
    let is_named = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().as_bytes();
        let random = name.strip_prefix(&*prefix).unwrap_or_default();
        random.len() == RANDOM_DIGITS
            && random.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()).filter(is_named) {
        // The lock is held until the file is gone.
        if let Some(_locked) = lock_left(&path) {
            remove(&path);
        }
    }
}

/// Removes what killed followers of a database have left of copies: of the first one, and of those that were to be put into it.
pub fn remove_copies(database: &Path) {
    remove_left(database);
    remove_left(&suffixed(database, COPIED));
}

/// Opens and locks a regular file that nobody works on.
fn lock_left(path: &Path) -> Option<File> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let file = File::options().read(true).custom_flags(flags.bits() as i32).open(path).ok()?;
    let is_regular = file.metadata().is_ok_and(|meta| meta.is_file());
    (is_regular && file.try_lock().is_ok() && leads_to(path, &file)).then_some(file)
}

/// True if a name leads to an open file, not over a symbolic link.
pub fn leads_to(path: &Path, file: &File) -> bool {
    let same =
        |a: &std::fs::Metadata, b: &std::fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    match (std::fs::symlink_metadata(path), file.metadata()) {
        (Ok(named), Ok(open)) => same(&named, &open),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_killed_followers_have_left_goes_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let of = |end: &str| suffixed(&database, end);
        let left = [".plait-replica-0123abcd", ".copied.plait-replica-89ef0000"].map(of);
        let locked = of(".copied.plait-replica-00000001");
        let others = [
            "",
            "-plait",
            ".copied",
            ".plait-replica-ABCDEF01",
            ".copied.plait-replica-ABCDEF01",
            ".plait-replica-0123abc",
            ".plait-replica-0123abcd0",
            ".copied.plait-replica-0123abcdmynotes",
            "x.plait-replica-0123abcd",
        ]
        .map(of);
        for path in left.iter().chain(&others).chain([&locked]) {
            std::fs::write(path, b"bytes").unwrap();
        }
        for path in &left {
            BESIDE.iter().for_each(|end| std::fs::write(suffixed(path, end), b"").unwrap());
        }
        let link = of(".plait-replica-00000002");
        std::os::unix::fs::symlink(of("-plait"), &link).unwrap();
        let pipe = of(".plait-replica-00000003");
        let kind = rustix::fs::FileType::Fifo;
        let rights = rustix::fs::Mode::from(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, rights, 0).unwrap();
        let works = File::open(&locked).unwrap();
        works.try_lock().unwrap();
        remove_copies(&database);
        let there = |path: &PathBuf| std::fs::symlink_metadata(path).is_ok();
        for path in &left {
            assert!(!there(path) && BESIDE.iter().all(|end| !there(&suffixed(path, end))));
        }
        for path in others.iter().chain([&locked, &link, &pipe]) {
            assert!(there(path), "{}", path.display());
        }
        drop(works);
        remove_copies(&database);
        assert!(!there(&locked));
    }
}
