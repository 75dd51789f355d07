//! A copy of one committed state of the base.
//!
//! It is read in one read transaction into a file without a name, by a thread of its own, and handed
//! on from there. So the base's WAL is held for as long as a disk takes to copy the database, not
//! for as long as it takes to upload it; the file goes with its process, whatever ends that; and
//! there is at most one.
//!
//! - SCRATCH-1 Everything in the copy is on disk: what SQLite has committed without a sync is synced
//!   before it is handed on.
//! - SCRATCH-2 Its generation is what the header of that state says, and `stream` is where frames of
//!   later generations begin. Whether the merge that made it is settled does not matter.
//! - SCRATCH-3 It is made only where the disk has room for it and [`SPARE_BYTES`] more, for
//!   commits. It is given up where less than half of them is left later, while it is made and while
//!   it is read.
//! - SCRATCH-4 It is given up while it is made if the base's WAL, which it holds, grows to half of
//!   its limit: past the limit commits would have to wait.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use rustix::fs::{Mode, OFlags};

use super::Shipper;
use crate::base::{Base, PagesRead};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::ids::{Generation, Lsn};

/// Bytes that stay free beside a copy.
const SPARE_BYTES: u64 = 256 << 20;
/// Pages between two looks at what the copy costs others.
const PAGES_A_LOOK: u32 = 256;
const BUFFER_BYTES: usize = 1 << 20;

/// A copy of the base.
#[derive(Debug)]
pub struct Copied {
    /// Generation through which it is complete.
    pub generation: Generation,
    /// The session.
    pub salt: u32,
    /// Position at which frames of later generations begin.
    pub stream: Lsn,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages.
    pub page_count: u32,
    file: Arc<File>,
}

/// The file of a copy, for whoever looks after the disk that it is on.
#[derive(Debug, Clone, Default)]
pub struct Scratch(Weak<File>);

impl Scratch {
    /// Gives the copy up, if it is there and its disk is short of space (SCRATCH-3): what reads it
    /// fails then.
    pub fn spare_the_disk(&self) {
        self.spare(free_bytes);
    }

    fn spare(&self, free: impl FnOnce(&File) -> u64) {
        let Some(file) = self.0.upgrade() else { return };
        if is_short(free(&file)) {
            // If it cannot be, the disk stays as full as it is.
            let _ = file.set_len(0);
        }
    }
}

/// Bytes that are left where a file is. An error does not prove that space is short.
fn free_bytes(file: &File) -> u64 {
    rustix::fs::fstatvfs(file).map_or(u64::MAX, |fs| fs.f_bavail.saturating_mul(fs.f_frsize))
}

fn is_short(free: u64) -> bool {
    free < SPARE_BYTES / 2
}

fn given_up() -> Error {
    Error::Full(
        "the copy of the database was given up: its disk (--scratch) ran out of space".into(),
    )
}

/// A copy that is being made. Dropped, it ends: nothing of it is left when its process leaves the
/// session.
pub(super) struct Copying {
    thread: Option<JoinHandle<Result<Copied>>>,
    is_given_up: Arc<AtomicBool>,
}

impl Copying {
    fn begin(db: &Arc<Database>, scratch: &Path) -> Result<Copying> {
        let is_given_up = Arc::new(AtomicBool::new(false));
        let (db, scratch, ends) = (db.clone(), scratch.to_owned(), is_given_up.clone());
        let thread = std::thread::Builder::new().name("plait-copy".to_owned());
        let started = thread.spawn(move || copy(&db, &scratch, &ends));
        let started = started.map_err(|e| Error::io("cannot start a thread", &e))?;
        Ok(Copying { thread: Some(started), is_given_up })
    }

    fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn join(mut self) -> Result<Copied> {
        let thread = self.thread.take().expect("it is joined once");
        let panicked = || Error::Misuse("the copy of the database has panicked".to_owned());
        thread.join().map_err(|_| panicked())?
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        // Relaxed: the thread is joined.
        self.is_given_up.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // What it says is of no use any more.
            let _ = thread.join();
        }
    }
}

impl Copied {
    /// Reads page `number`, counted from 1, into `page`, which has `page_bytes` bytes.
    ///
    /// # Errors
    /// I/O errors.
    pub fn read(&self, number: u32, page: &mut [u8]) -> Result<()> {
        let at = u64::from(number - 1) * u64::from(self.page_bytes);
        let read = self.file.read_exact_at(page, at);
        read.map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => given_up(),
            _ => Error::io("cannot read the copy of the database", &e),
        })
    }

    /// Its file.
    pub fn scratch(&self) -> Scratch {
        Scratch(Arc::downgrade(&self.file))
    }
}

impl Shipper {
    /// Returns a copy of a base that is complete through `at_least`, made in `scratch`. `None`: it is
    /// being made, or there is no such base yet.
    ///
    /// # Errors
    /// Full if there is no room for it; those of the copy.
    pub fn copy(&mut self, at_least: Generation, scratch: &Path) -> Result<Option<Copied>> {
        let Some(copying) = self.copying.take() else {
            if self.base_generation() >= at_least {
                self.copying = Some(Copying::begin(&self.db, scratch)?);
            }
            return Ok(None);
        };
        if !copying.is_finished() {
            self.copying = Some(copying);
            return Ok(None);
        }
        let copied = copying.join()?;
        Ok((copied.generation >= at_least).then_some(copied))
    }

    /// Generation through which the base is complete.
    pub fn base_generation(&self) -> Generation {
        let settled = &self.db.control().base_generation;
        Generation::new(settled.load(Acquire))
    }

    /// Fails if the base's name has another file, or the file was written over since: with another database, with an older
    /// copy of itself, or with what is no database. Whoever reads the log alone does not see that.
    ///
    /// # Errors
    /// `Replaced`; anything else says nothing about the file.
    pub fn check_base(&self) -> Result<()> {
        let db = &self.db;
        db.check_place()?;
        // Before the header is read: a merge may come between.
        let at_least = self.base_generation();
        // A connection of its own: those that stay have page 1 in their caches.
        let mut base = db.opener().open(db.path())?;
        db.check_place()?;
        base.use_read_marks(db.shared_read_marks());
        let replaced = || Error::Replaced(db.path().to_owned());
        let found = base.header();
        let is = found.map_err(|e| if e.finds_no_database() { replaced() } else { e })?;
        let is_ours = is.fenced && is.salt == db.control().salt.load(Relaxed);
        if is_ours && is.generation >= at_least { Ok(()) } else { Err(replaced()) }
    }
}

fn copy(db: &Arc<Database>, scratch: &Path, is_given_up: &AtomicBool) -> Result<Copied> {
    let mut base = db.opener().open(db.path())?;
    db.check_place()?;
    base.use_read_marks(db.shared_read_marks());
    let read = base.begin_read()?;
    let copied = copy_state(db, base.as_mut(), &read, scratch, is_given_up);
    base.end_read();
    copied
}

fn copy_state(
    db: &Arc<Database>,
    base: &mut dyn Base,
    read: &PagesRead,
    scratch: &Path,
    is_given_up: &AtomicBool,
) -> Result<Copied> {
    let PagesRead { header, page_bytes, page_count } = *read;
    let salt = db.control().salt.load(Relaxed);
    if !header.fenced || header.salt != salt {
        return Err(Error::Replaced(db.path().to_owned()));
    }
    let log = db.log()?;
    // SCRATCH-1.
    log.sync_base_commits()?;
    let too_long = || Error::Busy("the copy of the database took too long".to_owned());
    // SCRATCH-2.
    let stream = log.start_above(header.generation).ok_or_else(too_long)?;
    let file = Arc::new(nameless(scratch, u64::from(page_bytes) * u64::from(page_count))?);
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, &*file);
    let mut page = vec![0; page_bytes as usize];
    let written = |e| Error::io(format!("cannot write into {}", scratch.display()), &e);
    for number in 1..=page_count {
        if is_given_up.load(Relaxed) {
            return Err(Error::Interrupted);
        }
        let looks = number % PAGES_A_LOOK == 0;
        if looks && is_short(free_bytes(&file)) {
            return Err(given_up());
        }
        if looks && db.is_wal_half_full() {
            return Err(Error::Busy(format!(
                "the copy for a snapshot was given up at page {number} of {page_count}: beside it the \
                 database's WAL had grown to half of its limit; put --scratch on a faster disk, or \
                 raise the limit (PRAGMA plait_wal_limit)"
            )));
        }
        base.read_page(number, &mut page)?;
        out.write_all(&page).map_err(written)?;
    }
    out.flush().map_err(written)?;
    drop(out);
    let generation = header.generation;
    Ok(Copied { generation, salt, stream, page_bytes, page_count, file })
}

/// A file without a name, in a folder with room for `bytes` (SCRATCH-3).
fn nameless(folder: &Path, bytes: u64) -> Result<File> {
    let say = |e: rustix::io::Errno| {
        Error::io(format!("cannot make a file in {}", folder.display()), &e.into())
    };
    let space = rustix::fs::statvfs(folder).map_err(say)?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    if free < bytes.saturating_add(SPARE_BYTES) {
        return Err(Error::Full(format!(
            "{} has {free} bytes left, and a copy of the database takes {bytes} and {SPARE_BYTES} to \
             spare: free some, or name another folder with --scratch",
            folder.display()
        )));
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(file.into()),
        // A file system that knows no such files.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => unlinked(folder),
        Err(e) => Err(say(e)),
    }
}

fn unlinked(folder: &Path) -> Result<File> {
    let name: PathBuf = folder.join(format!(".plait-copy-{}", std::process::id()));
    let say = |e| Error::io(format!("cannot make {}", name.display()), &e);
    let _ = std::fs::remove_file(&name);
    let mut options = File::options();
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(&name).map_err(say)?;
    std::fs::remove_file(&name).map_err(say)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds SCRATCH-3
    #[test]
    fn a_copy_is_given_up_where_its_disk_is_short_of_space() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = nameless(folder.path(), 2).expect("room");
        file.write_all_at(&[7; 1024], 0).expect("it is written");
        let copied = Copied {
            generation: Generation::ZERO,
            salt: 1,
            stream: Lsn::new(0),
            page_bytes: 512,
            page_count: 2,
            file: Arc::new(file),
        };
        let scratch = copied.scratch();
        let mut page = [0; 512];
        scratch.spare(|_| SPARE_BYTES / 2);
        copied.read(2, &mut page).expect("it is there");
        assert_eq!(page, [7; 512]);
        scratch.spare(|_| SPARE_BYTES / 2 - 1);
        let gone = copied.read(1, &mut page).expect_err("it is not");
        assert!(matches!(gone, Error::Full(_)), "{gone}");
        drop(copied);
        scratch.spare(|_| panic!("nobody has it any more"));
    }

    // holds SCRATCH-3
    #[test]
    fn no_copy_is_begun_where_it_would_take_what_commits_need() {
        let folder = tempfile::tempdir().expect("a folder");
        let refused =
            nameless(folder.path(), u64::MAX - SPARE_BYTES).expect_err("no disk has that");
        assert!(matches!(refused, Error::Full(_)), "{refused}");
    }
}
