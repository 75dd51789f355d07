//! The sidecar's shelf: a file in the folder for copies, of one database and place of it.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use plait_engine::crash_point;
use plait_replicate::ids::Instance;
use plait_replicate::shelf::{Draft, Shelf};

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
        eprintln!(
            "plait-replicate: cannot keep {}: {error}; the next snapshot has all pages",
            self.path.display()
        );
        error
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
        match File::open(&self.path) {
            Ok(file) => Ok(Some(Box::new(file))),
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
