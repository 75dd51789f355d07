//! The online backup interface.

use crate::api::RawBackup;
use crate::connection::Connection;
use crate::error::Result;

/// How a backup step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupProgress {
    /// Pages are left.
    More,
    /// All pages are copied.
    Done,
}

/// A running backup from one main database to another.
pub struct Backup {
    source: Connection,
    destination: Connection,
    raw: *mut RawBackup,
}

impl Backup {
    /// Starts a backup of `source` into `destination`, both of the same library.
    pub fn start(source: &Connection, destination: &Connection) -> Result<Self> {
        assert_eq!(source.library().path(), destination.library().path(), "one library copies");
        let main = c"main".as_ptr();
        let (from, to) = (source.inner.raw, destination.inner.raw);
        // SAFETY: both connections are open and belong to the same library.
        let raw = unsafe { (source.more().backup_init)(to, main, from, main) };
        if raw.is_null() {
            return Err(destination.inner.error(destination.extended_errcode(), "backup_init"));
        }
        Ok(Self { source: source.clone(), destination: destination.clone(), raw })
    }

    /// Copies `pages` pages; all that are left when negative.
    pub fn step(&mut self, pages: i32) -> Result<BackupProgress> {
        // SAFETY: the backup is running.
        match unsafe { (self.source.more().backup_step)(self.raw, pages) } {
            0 => Ok(BackupProgress::More),
            101 => Ok(BackupProgress::Done),
            code => Err(self.destination.inner.error(code, "backup_step")),
        }
    }

    /// Pages that are still to be copied.
    #[must_use]
    pub fn remaining(&self) -> i32 {
        // SAFETY: the backup is running.
        unsafe { (self.source.more().backup_remaining)(self.raw) }
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        // SAFETY: finished once; both connections are still open because the backup owns shares of them.
        unsafe { (self.source.more().backup_finish)(self.raw) };
    }
}

impl Connection {
    /// Copies the whole database into `destination` in one step.
    pub fn backup_to(&self, destination: &Connection) -> Result<()> {
        let mut backup = Backup::start(self, destination)?;
        while backup.step(-1)? == BackupProgress::More {}
        Ok(())
    }
}
