//! What stands under the name of a database while `plait restore` moves the files beside it: a symbolic link that leads through itself.
//!
//! Nothing opens such a link, nor makes a file behind it: not stock SQLite, which would take a file without its `-wal` for an older state, nor a
//! program that makes its database where there is none. Its text says to whoever lists the folder what happened: `app.db ->
//! app.db/a-restore-was-cut-off,run-plait-restore-again/app.db-before-restore-1`. The last part is the name that the database file has got.

use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::failure::{Failure, quoted};

/// The part in the middle.
const SAYS: &str = "a-restore-was-cut-off,run-plait-restore-again";

/// Puts one at `at`, for the database named `name`, whose file has the name `aside` meanwhile. Fails if something stands there.
pub fn put(at: &Path, name: &OsStr, aside: &OsStr) -> io::Result<()> {
    std::os::unix::fs::symlink(Path::new(name).join(SAYS).join(aside), at)
}

/// The path of the database file, if what stands at `path` is such a link.
pub fn aside(path: &Path) -> Option<PathBuf> {
    let text = std::fs::read_link(path).ok()?;
    let parts: Vec<_> = text.components().collect();
    let [Component::Normal(name), Component::Normal(says), Component::Normal(aside)] = parts[..]
    else {
        return None;
    };
    (says == SAYS && path.file_name() == Some(name)).then(|| path.with_file_name(aside))
}

/// What to say to who wants to use the database.
pub fn refusal(shown: &Path, aside: &Path) -> Failure {
    let what = format!(
        "a restore of {} was cut off, and nothing opens it until it has been ended",
        shown.display()
    );
    let kept = if aside.exists() {
        format!("; what stood there is {}", aside.display())
    } else {
        String::new()
    };
    Failure::new(what, format!("run `plait restore BACKUP {}` again{kept}", quoted(shown)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_barrier_is_known_and_neither_opened_nor_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a b;c.db");
        put(&path, path.file_name().unwrap(), OsStr::new("a b;c.db-before-restore-1")).unwrap();
        assert_eq!(aside(&path), Some(dir.path().join("a b;c.db-before-restore-1")));
        let opened = std::fs::File::options().write(true).create(true).truncate(false).open(&path);
        assert_eq!(opened.unwrap_err().raw_os_error(), Some(libc::ELOOP));
        // Under another name it leads nowhere, and is somebody's link.
        let other = dir.path().join("b.db");
        std::fs::rename(&path, &other).unwrap();
        assert_eq!(aside(&other), None);
        std::os::unix::fs::symlink("c.db", dir.path().join("d.db")).unwrap();
        assert_eq!(aside(&dir.path().join("d.db")), None);
    }
}
