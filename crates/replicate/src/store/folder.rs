//! A folder as a store: the one that has its name when a call begins, and never a new one.
//!
//! `object_store` makes all folders that a new object lacks, the outermost too: under the name of a place that was moved
//! away it would begin an empty one, which looks like a replica. So each call opens the folder first, and works below
//! what it has opened. Nothing is held between two calls, so that a disk can be unmounted.
//!
//! - FOLDER-1 No call makes the folder. Where it is missing the call fails, and says so ([`StoreError::Gone`]).
//! - FOLDER-2 What has made a record makes and deletes nothing in another folder of this name that has not that record:
//!   that place was moved, replaced or is not mounted. Reads are answered: they tell what is there.

use std::io::ErrorKind;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::prefix::PrefixStore;
use rustix::fs::{AtFlags, Mode, OFlags, fstat, open, statat};

use super::StoreError;
use crate::names;

/// A folder.
pub struct Folder {
    path: PathBuf,
    last: Mutex<Option<Made>>,
}

/// The last record that was made.
struct Made {
    folder: Identity,
    name: String,
}

/// Device and inode.
type Identity = (u64, u64);

/// The folder that had the name when a call began.
pub struct Opened {
    pub store: Arc<dyn ObjectStore>,
    /// What the store calls it.
    alias: String,
    path: String,
    identity: Identity,
    // A call that was given up may go on in another thread, and means this folder by the number: it stays open then.
    file: ManuallyDrop<OwnedFd>,
}

impl Opened {
    /// The call has ended.
    pub fn close(self) {
        drop(ManuallyDrop::into_inner(self.file));
    }

    /// An error of the store's, with the folder's own name.
    pub fn named(&self, text: &str) -> String {
        let text = text.strip_prefix("Generic LocalFileSystem error: ").unwrap_or(text);
        let text = text.replace(&self.alias, &self.path);
        match text.contains(&self.path) {
            true => text,
            false => format!("{text}, in the folder {}", self.path),
        }
    }
}

impl Folder {
    pub fn new(path: PathBuf) -> Folder {
        Folder { path, last: Mutex::default() }
    }

    /// Opens it for a call. `changes`: the call makes or deletes objects.
    pub fn open(&self, changes: bool) -> Result<Opened, StoreError> {
        let path = self.path.display().to_string();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = open(&self.path, flags, Mode::empty()).map_err(std::io::Error::from);
        let file = opened.map_err(|e| match e.kind() {
            ErrorKind::NotFound => StoreError::Gone(format!("there is no folder {path}")),
            ErrorKind::NotADirectory => StoreError::Gone(format!("{path} is no folder")),
            ErrorKind::PermissionDenied => StoreError::Denied(format!("cannot open {path}: {e}")),
            _ => StoreError::Unavailable(format!("cannot open {path}: {e}")),
        })?;
        let stat = fstat(&file).map_err(|e| {
            let e = std::io::Error::from(e);
            StoreError::Unavailable(format!("cannot look at {path}: {e}"))
        })?;
        let identity = (stat.st_dev, stat.st_ino);
        if changes {
            self.refuse_another(&file, identity)?;
        }
        let alias = format!("/proc/self/fd/{}", file.as_raw_fd());
        let whole = LocalFileSystem::new().with_fsync(true);
        let store = Arc::new(PrefixStore::new(whole, &alias[1..]));
        Ok(Opened { store, alias, path, identity, file: ManuallyDrop::new(file) })
    }

    /// FOLDER-2.
    fn refuse_another(&self, file: &OwnedFd, identity: Identity) -> Result<(), StoreError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *last {
            Some(made) if made.folder != identity => {
                // A disk that comes back may have another number.
                if statat(file, &*made.name, AtFlags::empty()).is_err() {
                    return Err(StoreError::Gone(format!(
                        "{} is another folder than before, without what was shipped",
                        self.path.display()
                    )));
                }
                made.folder = identity;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// An object was made in the folder that was opened.
    pub fn note_made(&self, opened: &Opened, name: &str) {
        if names::parse_record(name).is_some() {
            let made = Made { folder: opened.identity, name: name.to_owned() };
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
        }
    }
}
