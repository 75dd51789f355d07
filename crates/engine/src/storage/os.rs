//! The real file system.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};

use super::{FileIdentity, Folder, Storage, StorageFile, side};

/// Returns a file's identity and length, for the log after each of its syncs. It does not read the
/// file's times: Linux 6.13 and newer give a file whose times were read new times at the next
/// write. They have to be stored, and a sync takes half as long again.
fn glance(folder: impl AsFd, path: &Path, how: AtFlags) -> io::Result<(FileIdentity, u64)> {
    let is = statx(folder, path, how, StatxFlags::INO | StatxFlags::SIZE)?;
    Ok(((makedev(is.stx_dev_major, is.stx_dev_minor), is.stx_ino), is.stx_size))
}

/// The operating system's files.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsStorage;

/// A file that its owner keeps open.
pub trait Kept: Deref<Target = File> + Debug + Send + Sync {
    /// Returns when everything written to the file before is on disk.
    ///
    /// # Errors
    /// It may not be on disk.
    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

impl Kept for Box<File> {}

/// An open file of the operating system's, however it is kept.
#[derive(Debug)]
pub struct OsFile<F>(pub F);

#[derive(Debug)]
struct OsFolder(File);

impl Storage for OsStorage {
    fn open(&self, path: &Path) -> io::Result<Box<dyn StorageFile>> {
        Ok(Box::new(OsFile(Box::new(side::open(path, true)?))))
    }

    fn open_read_only(&self, path: &Path) -> io::Result<Box<dyn StorageFile>> {
        Ok(Box::new(OsFile(Box::new(side::open(path, false)?))))
    }

    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn StorageFile>> {
        side::remove_draft(path)?;
        Ok(Box::new(OsFile(Box::new(side::create(path, mode)?))))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn identity_at(&self, path: &Path) -> io::Result<Option<FileIdentity>> {
        match std::fs::symlink_metadata(path) {
            Ok(there) => Ok(Some((there.dev(), there.ino()))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if side::is_draft(path) { side::remove_draft(path) } else { std::fs::remove_file(path) }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    #[allow(unsafe_code)]
    fn file_size_limit(&self) -> Option<u64> {
        let mut limit =
            libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: `limit` is a valid place. If the process may not read its limit, no limit is
        // known.
        let asked = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
        (asked == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
    }

    fn open_dir_of(&self, path: &Path) -> io::Result<Box<dyn Folder>> {
        let dir = match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        Ok(Box::new(OsFolder(File::open(dir)?)))
    }
}

impl Folder for OsFolder {
    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

impl<F: Kept> StorageFile for OsFile<F> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.0.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(buf, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn len_at(&self, path: &Path) -> io::Result<Option<u64>> {
        let (mine, len) = glance(&*self.0, Path::new(""), AtFlags::EMPTY_PATH)?;
        match glance(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok((there, _)) => Ok((there == mine).then_some(len)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        let mine = self.0.metadata()?;
        Ok((mine.dev(), mine.ino()))
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}
