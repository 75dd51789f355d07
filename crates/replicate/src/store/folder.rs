//! A folder as a store: the one that has its name when a call begins, and never a new one.
//!
//! `object_store` makes all folders that a new object lacks, the outermost too: under the name of a place that was moved
//! away it would begin an empty one, which looks like a replica. So each call opens the folder first, and works below
//! what it has opened. Nothing is held between two calls, so that a disk can be unmounted; a call that is dropped closes
//! the folder when it has come to its end (`objects.rs`).
//!
//! - FOLDER-1 No call makes the folder. Where it is missing the call fails, and says so ([`StoreError::Gone`]).
//! - FOLDER-2 What has made a record makes and deletes nothing in a folder of this name that has neither that record nor
//!   a pack of that number or a later one: that place was moved, emptied, replaced or is not mounted. Device and inode do
//!   not tell: a file system gives a new folder the numbers of one that was removed just now. Reads are answered: they tell
//!   what is there.
//! - FOLDER-3 Where something was shipped, an empty folder is the one below a disk that is not mounted: each call fails as
//!   where there is none, and none writes into it.
//! - FOLDER-4 What has the name of an object and is no file looks like nothing, as a folder does, and is not opened: whoever
//!   opens a pipe waits until somebody writes into it.

use std::io::ErrorKind;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::prefix::PrefixStore;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, open, openat, statat};
use rustix::io::Errno;

use super::StoreError;
use crate::ids::RecordNumber;
use crate::names;

/// How a folder is opened whose entries are read.
const LISTED: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A folder.
pub struct Folder {
    path: PathBuf,
    /// Something was shipped there before.
    is_filled: bool,
    /// The last record that was made.
    last: Mutex<Option<RecordNumber>>,
}

/// The folder that had the name when a call began.
pub struct Opened {
    /// What is in it.
    pub store: Arc<dyn ObjectStore>,
    /// What the store calls it.
    alias: String,
    path: String,
    // A call that was given up with its runtime may go on in another thread, and means this folder by the number: it
    // stays open then.
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
    /// One of this path. `is_filled`: something was shipped there before (FOLDER-3).
    pub fn new(path: PathBuf, is_filled: bool) -> Folder {
        Folder { path, is_filled, last: Mutex::default() }
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
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_filled || last.is_some() {
            self.refuse_empty(&file)?;
        }
        if let Some(last) = last.filter(|_| changes) {
            self.refuse_another(&file, last)?;
        }
        let alias = format!("/proc/self/fd/{}", file.as_raw_fd());
        let whole = LocalFileSystem::new().with_fsync(true);
        let store = Arc::new(PrefixStore::new(whole, &alias[1..]));
        Ok(Opened { store, alias, path, file: ManuallyDrop::new(file) })
    }

    /// FOLDER-3.
    fn refuse_empty(&self, file: &OwnedFd) -> Result<(), StoreError> {
        let path = self.path.display();
        match is_empty(file) {
            Ok(false) => Ok(()),
            Ok(true) => Err(StoreError::Gone(format!(
                "{path} is empty, and the database was shipped there before (if it was emptied on purpose, start once with \
                 --take-over)"
            ))),
            Err(e) => {
                let e = std::io::Error::from(e);
                Err(StoreError::Unavailable(format!("cannot look into {path}: {e}")))
            }
        }
    }

    /// FOLDER-2.
    fn refuse_another(&self, file: &OwnedFd, last: RecordNumber) -> Result<(), StoreError> {
        let (path, name) = (self.path.display(), names::record(last));
        let is_there = match statat(file, &*name, AtFlags::empty()) {
            Ok(_) => Ok(true),
            // Another writer, which fences this one, has packed it.
            Err(Errno::NOENT | Errno::NOTDIR) => has_pack_of(file, last),
            Err(e) => Err(e),
        };
        match is_there {
            Ok(true) => Ok(()),
            Ok(false) => Err(StoreError::Gone(format!(
                "{path} is without {name}, the last record that was made there: it is another folder, or was emptied"
            ))),
            Err(e) => {
                let e = std::io::Error::from(e);
                Err(StoreError::Unavailable(format!("cannot look at {name} in {path}: {e}")))
            }
        }
    }

    /// What has the name of an object is to be opened: nothing, or a file (FOLDER-4).
    pub fn opens(&self, name: &str) -> bool {
        let found = std::fs::metadata(self.path.join(name));
        found.map_or(true, |found| found.is_file() || found.is_dir())
    }

    /// An object was made.
    pub fn note_made(&self, name: &str) {
        if let Some(number) = names::parse_record(name) {
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(number);
        }
    }

    /// Objects were deleted.
    pub fn note_deleted(&self, names: &[String]) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| names.contains(&names::record(last))) {
            *last = None;
        }
    }
}

fn is_empty(file: &OwnedFd) -> Result<bool, Errno> {
    if statat(file, names::CHAIN, AtFlags::empty()).is_ok() {
        return Ok(false);
    }
    let folder = openat(file, ".", LISTED, Mode::empty())?;
    for entry in Dir::read_from(folder)? {
        if ![&b"."[..], b".."].contains(&entry?.file_name().to_bytes()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A folder has a pack of this number, or of a later one.
fn has_pack_of(file: &OwnedFd, number: RecordNumber) -> Result<bool, Errno> {
    let packs = match openat(file, names::PACKS, LISTED, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(false),
        packs => packs?,
    };
    for entry in Dir::read_from(packs)? {
        let name = format!("{}{}", names::PACKS, entry?.file_name().to_string_lossy());
        if names::parse_pack(&name).is_some_and(|(_, last)| last >= number) {
            return Ok(true);
        }
    }
    Ok(false)
}
