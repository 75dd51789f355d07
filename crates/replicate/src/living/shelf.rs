//! The sidecar's shelf: a file in the folder for copies, of one database and place of it.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use plait_engine::crash_point;
use plait_replicate::ids::Instance;
use plait_replicate::notes::note;
use plait_replicate::shelf::{Draft, Shelf};
use rustix::fs::OFlags;

/// A file, in a folder that others may use as well.
pub struct InFolder {
    path: PathBuf,
}

impl InFolder {
    /// The shelf of the database at `database`, whose name it has, and its instance's beginning.
    pub fn new(folder: &Path, database: &Path, instance: Instance) -> InFolder {
        let mut name = database.file_name().unwrap_or_default().to_owned();
        let instance: String = instance.to_string().chars().take(8).collect();
        name.push(format!("-plait-sums-{instance}"));
        InFolder { path: folder.join(name) }
    }

    fn told(&self, error: io::Error) -> io::Error {
        note(&format!(
            "plait-replicate: cannot keep {}: {error}; the next snapshot has all pages",
            self.path.display()
        ));
        error
    }

    /// Opens the file, if it is of this user: whoever else has put one into a folder that all may write
    /// to could leave changed pages out of the replica by it.
    fn open(&self) -> io::Result<Option<File>> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = File::options().read(true).custom_flags(flags.bits() as i32).open(&self.path)?;
        let meta = file.metadata()?;
        let is_own = meta.is_file() && meta.uid() == rustix::process::geteuid().as_raw();
        Ok(is_own.then_some(file))
    }

    fn make(&self) -> io::Result<OnDisk> {
        let mut path = self.path.clone().into_os_string();
        path.push("-new");
        let path = PathBuf::from(path);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // The sums' key is nobody else's business.
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        let becomes = self.path.clone();
        Ok(OnDisk { file: Some(BufWriter::new(file)), path, becomes })
    }
}

impl Shelf for InFolder {
    fn read(&self) -> io::Result<Option<Box<dyn Read>>> {
        match self.open() {
            Ok(file) => Ok(file.map(|file| Box::new(file) as Box<dyn Read>)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.told(error)),
        }
    }

    fn begin(&self) -> io::Result<Box<dyn Draft>> {
        let draft = self.make().map_err(|error| self.told(error))?;
        Ok(Box::new(draft))
    }
}

struct OnDisk {
    /// `None` once it is put.
    file: Option<BufWriter<File>>,
    path: PathBuf,
    becomes: PathBuf,
}

impl Write for OnDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.as_mut().map_or(Ok(0), |file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), BufWriter::flush)
    }
}

impl Draft for OnDisk {
    fn put(mut self: Box<Self>) -> io::Result<()> {
        self.flush()?;
        let Some(file) = self.file.take() else { return Ok(()) };
        // SHELF-1. A name that a power cut takes back leads to the file before, which does not count.
        file.get_ref().sync_all()?;
        crash_point!("shelf.written");
        std::fs::rename(&self.path, &self.becomes)?;
        crash_point!("shelf.renamed");
        Ok(())
    }
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("a folder").flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    fn content(shelf: &InFolder) -> Option<String> {
        let mut text = String::new();
        let mut file = shelf.read().expect("it is read")?;
        file.read_to_string(&mut text).expect("it is read");
        Some(text)
    }

    // holds SHELF-1
    #[test]
    fn what_is_not_put_leaves_what_was_put_before() {
        let dir = tempfile::tempdir().expect("a folder");
        let shelf = InFolder::new(dir.path(), Path::new("/srv/app.db"), Instance([7; 16]));
        assert_eq!(content(&shelf), None);
        let write = |text: &str| {
            let mut draft = shelf.begin().expect("it is begun");
            draft.write_all(text.as_bytes()).expect("it is written");
            draft
        };
        write("one").put().expect("it is put");
        drop(write("two"));
        assert_eq!(content(&shelf).as_deref(), Some("one"));
        // A sidecar that was killed has left its own.
        std::mem::forget(write("three"));
        write("four").put().expect("it is put");
        assert_eq!(content(&shelf).as_deref(), Some("four"));
        assert_eq!(names(dir.path()), ["app.db-plait-sums-07070707"]);
    }

    // holds SHELF-2
    #[test]
    fn what_others_have_put_there_counts_as_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        let shelf = InFolder::new(dir.path(), Path::new("/srv/app.db"), Instance([7; 16]));
        let elsewhere = dir.path().join("elsewhere");
        std::fs::write(&elsewhere, b"sums").expect("a file");
        std::os::unix::fs::symlink(&elsewhere, &shelf.path).expect("a link");
        assert!(shelf.read().is_err());
        std::fs::remove_file(&shelf.path).expect("it goes");
        std::fs::rename(&elsewhere, &shelf.path).expect("it comes");
        assert_eq!(content(&shelf).as_deref(), Some("sums"));
        if std::os::unix::fs::chown(&shelf.path, Some(65534), None).is_ok() {
            assert_eq!(content(&shelf), None, "it is somebody else's");
        }
    }
}
