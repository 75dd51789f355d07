//! Where a database is to be, and the file beside that which becomes it.
//!
//! - PLACE-1 Nothing stands at the destination unless it is whole and on disk: the last step is a
//!   rename that replaces nothing.
//! - PLACE-2 What a restore works on is locked (`flock`) for as long as its process lives. So the next
//!   restore to this destination, a follower that starts and `plait promote` remove what a killed one has left, and nothing
//!   else: a regular file of such a name that nobody has locked (the engine's `storage/making.rs`).
//! - PLACE-3 Nobody but its owner can read a file in the making. It gets the rights of a new file
//!   when it becomes the destination; kept under its own name, it stays private.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use plait_engine::crash_point;
use plait_engine::storage::making::{
    BESIDE, INFIX, RANDOM_DIGITS, in_the_making, leads_to, remove, remove_left,
};

/// Bytes of a file's name.
const FILE_NAME_BYTES_MAX: usize = 255;

/// Says why no copy can be made under a name, if its file, with a suffix before that of this module, would have a name that no file
/// system takes.
pub fn refuse_long_name(destination: &Path, suffix: &str) -> Option<String> {
    let bytes = destination.file_name().unwrap_or_default().len() + suffix.len();
    let beside = BESIDE.iter().map(|suffix| suffix.len()).max().unwrap_or_default();
    let most = FILE_NAME_BYTES_MAX - INFIX.len() - RANDOM_DIGITS - beside;
    (bytes > most).then(|| {
        format!(
            "its name is too long: it may have {} bytes, since files beside it get longer ones",
            most - suffix.len()
        )
    })
}

/// Rights of a file in the making (PLACE-3).
const PRIVATE: u32 = 0o600;
/// What makes a file at rest another database than it looks, if it stands beside it.
const BELONGS: [&str; 6] = ["-wal", "-journal", "-shm", "-plait", "-plait-pages", "-plait-super"];

/// Names another file beside a database.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// A file in the making; removed when dropped, unless it became the destination.
#[derive(Debug)]
pub struct Place {
    destination: PathBuf,
    /// The file in the making.
    pub path: PathBuf,
    /// Open until the end: closing it would take the locks of others of this process from it.
    pub file: File,
    is_kept: bool,
}

impl Place {
    /// Begins beside a destination, where nothing may be.
    ///
    /// # Errors
    /// `AlreadyExists` if something stands there, or belongs to what stood there; the system's.
    pub fn begin(destination: &Path, random: u32) -> io::Result<Place> {
        let folder = match destination.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let folder = folder.canonicalize()?;
        let name = destination.file_name().ok_or_else(|| {
            io::Error::new(ErrorKind::InvalidInput, "it is the name of a directory")
        })?;
        let destination = folder.join(name);
        if let Some(why) = refuse_long_name(&destination, "") {
            return Err(io::Error::new(ErrorKind::InvalidFilename, why));
        }
        refuse_occupied(&destination)?;
        remove_left(&destination);
        let path = in_the_making(&destination, random);
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).mode(PRIVATE).open(&path)?;
        let place = Place { destination, path, file, is_kept: false };
        place.file.try_lock().map_err(|error| match error {
            TryLockError::Error(error) => error,
            TryLockError::WouldBlock => ErrorKind::WouldBlock.into(),
        })?;
        // Before it was locked, another restore may have taken it for one that was left.
        if !leads_to(&place.path, &place.file) {
            let what = "another restore to this place began at the same time: start again";
            return Err(io::Error::new(ErrorKind::WouldBlock, what));
        }
        crash_point!("replica.begun");
        Ok(place)
    }

    /// Names another file beside the one in the making.
    pub fn beside(&self, suffix: &str) -> PathBuf {
        beside(&self.path, suffix)
    }

    /// Keeps the file, under its own name, which it returns.
    pub fn keep(mut self) -> PathBuf {
        self.is_kept = true;
        self.path.clone()
    }

    /// Makes the file the destination. It is whole, on disk, and closed by everybody else.
    ///
    /// # Errors
    /// `AlreadyExists` if something stands there by now; the system's.
    pub fn publish(mut self) -> io::Result<()> {
        refuse_occupied(&self.destination)?;
        give_rights_of_new(&self.path)?;
        self.file.sync_all()?;
        crash_point!("replica.naming");
        let (from, to) = (&self.path, &self.destination);
        let cwd = rustix::fs::CWD;
        match rustix::fs::renameat_with(cwd, from, cwd, to, rustix::fs::RenameFlags::NOREPLACE) {
            // Not every file system has it: a second name replaces nothing either.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                std::fs::hard_link(from, to)?;
                std::fs::remove_file(from)?;
            }
            other => other?,
        }
        crash_point!("replica.named");
        self.is_kept = true;
        let folder = self.destination.parent().unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_kept {
            remove(&self.path);
        }
    }
}

fn refuse_occupied(destination: &Path) -> io::Result<()> {
    for suffix in [""].into_iter().chain(BELONGS) {
        let path = beside(destination, suffix);
        if std::fs::symlink_metadata(&path).is_ok() {
            let what = format!("{} is there", path.display());
            return Err(io::Error::new(ErrorKind::AlreadyExists, what));
        }
    }
    Ok(())
}

/// Gives a file the rights of a new one beside it: they follow the umask, and where a folder has
/// them, its default rights.
///
/// # Errors
/// The system's.
pub fn give_rights_of_new(path: &Path) -> io::Result<()> {
    let sample = beside(path, "-rights");
    let made = File::options().write(true).create_new(true).open(&sample)?;
    let rights = made.metadata().map(|meta| meta.permissions());
    std::fs::remove_file(sample)?;
    std::fs::set_permissions(path, rights?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("a folder").flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    // holds PLACE-1
    #[test]
    fn a_file_becomes_the_destination_where_nothing_is() {
        let dir = tempfile::tempdir().expect("a folder");
        let to = dir.path().join("new.db");
        Place::begin(&to, 1).expect("nothing is there").publish().expect("it is renamed");
        assert_eq!(names(dir.path()), ["new.db"]);
        let refused = Place::begin(&to, 2).expect_err("it is there");
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
        std::fs::remove_file(&to).expect("it is removed");
        let late = Place::begin(&to, 3).expect("nothing is there");
        std::fs::write(&to, b"somebody else's").expect("a file");
        assert_eq!(late.publish().expect_err("it is there").kind(), ErrorKind::AlreadyExists);
        assert_eq!(names(dir.path()), ["new.db"]);
        assert_eq!(std::fs::read(&to).expect("a file"), b"somebody else's");
    }

    #[test]
    fn a_log_that_stands_there_is_no_log_of_the_new_file() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("new.db-plait"), b"of what stood there").expect("a file");
        let refused = Place::begin(&dir.path().join("new.db"), 1).expect_err("it is there");
        assert!(refused.to_string().contains("new.db-plait"), "{refused}");
    }

    // holds PLACE-2
    #[test]
    fn the_next_restore_removes_what_a_killed_one_has_left() {
        let dir = tempfile::tempdir().expect("a folder");
        let to = dir.path().join("new.db");
        let killed = Place::begin(&to, 1).expect("nothing is there");
        std::fs::write(killed.beside("-wal"), b"").expect("a file");
        let left = killed.keep();
        let at_work = Place::begin(&to, 2).expect("nothing is there");
        assert!(!left.exists() && at_work.path.exists());
        let third = Place::begin(&to, 3).expect("nothing is there");
        assert!(at_work.path.exists(), "a process works on it");
        drop((at_work, third));
        assert!(names(dir.path()).is_empty(), "{:?}", names(dir.path()));
    }

    // holds PLACE-2
    #[test]
    fn what_no_restore_has_made_is_left_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let to = dir.path().join("new.db");
        let others = ["new.db.plait-replica-mynotes1", "new.db.plait-replica-ABCDEF01"];
        for name in others {
            std::fs::write(dir.path().join(name), b"somebody's").expect("a file");
        }
        let target = dir.path().join("target");
        std::fs::write(&target, b"somebody's").expect("a file");
        let link = dir.path().join("new.db.plait-replica-00000001");
        std::os::unix::fs::symlink(&target, &link).expect("a link");
        let folder = dir.path().join("new.db.plait-replica-00000002");
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::write(dir.path().join("new.db.plait-replica-00000002-wal"), b"").expect("a file");
        let before = names(dir.path());
        drop(Place::begin(&to, 3).expect("nothing is there"));
        assert_eq!(names(dir.path()), before);
    }

    // holds PLACE-3
    #[test]
    fn a_file_in_the_making_is_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("a folder");
        let mode =
            |path: &Path| std::fs::metadata(path).expect("a file").permissions().mode() & 0o7777;
        let sample = dir.path().join("sample");
        File::create(&sample).expect("a file");
        let to = dir.path().join("new.db");
        let place = Place::begin(&to, 1).expect("nothing is there");
        assert_eq!(mode(&place.path), 0o600);
        place.publish().expect("it is renamed");
        assert_eq!(mode(&to), mode(&sample));
        assert_eq!(names(dir.path()), ["new.db", "sample"]);
    }
}
