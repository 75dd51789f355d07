//! What the log needs of a file system, behind one trait.
//!
//! [`os`] is the real file system; [`side`] is how it opens files. The simulated one (`sim`, tests
//! only) defines what a crash may keep, lose or tear, and fails on demand. Nothing of the base goes
//! through here: that is SQLite's own VFS.
//!
//! Deliberately absent: asynchronous operations, memory mapping, locks.

use std::fmt::Debug;
use std::io;
use std::path::Path;

pub mod making;
pub mod names;
pub mod os;
pub mod side;
#[cfg(test)]
pub mod sim;

/// Device and inode.
pub type FileIdentity = (u64, u64);

/// A file system.
pub trait Storage: Debug + Send + Sync {
    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Box<dyn StorageFile>>;

    /// Opens an existing file for reading; writes to it fail.
    fn open_read_only(&self, path: &Path) -> io::Result<Box<dyn StorageFile>>;

    /// Creates an empty file with the permission bits `mode`, in place of one that exists.
    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn StorageFile>>;

    /// True if something exists at `path`.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Returns the identity of the file at `path`, as [`StorageFile::identity`] does. A link is not
    /// followed.
    fn identity_at(&self, path: &Path) -> io::Result<Option<FileIdentity>>;

    /// Removes a file; the removal is durable after [`Storage::sync_dir_of`].
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Renames a file over another; durable after [`Storage::sync_dir_of`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Longest file that this process may write, if there is a limit.
    fn file_size_limit(&self) -> Option<u64> {
        None
    }

    /// Opens the folder of `path`, so that it can be synced when nothing can be opened any longer.
    fn open_dir_of(&self, path: &Path) -> io::Result<Box<dyn Folder>>;

    /// Makes the creations, removals and renames in the folder of `path` durable.
    fn sync_dir_of(&self, path: &Path) -> io::Result<()> {
        self.open_dir_of(path)?.sync()
    }
}

/// An open folder.
pub trait Folder: Debug + Send + Sync {
    /// Makes the creations, removals and renames in it durable.
    fn sync(&self) -> io::Result<()>;
}

/// An open file. Its methods may be called from many threads at once.
pub trait StorageFile: Debug + Send + Sync {
    /// Reads at `offset` until `buf` is full or the file ends; returns the bytes read.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `buf` at `offset`, or fails with an unknown part of it written.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Returns when everything written before, and the length needed to read it, is on disk.
    fn sync_data(&self) -> io::Result<()>;

    /// Returns the file's length in bytes, if the file is at `path` now.
    fn len_at(&self, path: &Path) -> io::Result<Option<u64>>;

    /// True if the file is at `path` now.
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        self.len_at(path).map(|len| len.is_some())
    }

    /// Returns what tells the file from every other file that exists at the same time.
    fn identity(&self) -> io::Result<FileIdentity>;

    /// Length in bytes.
    fn len_bytes(&self) -> io::Result<u64>;
}
