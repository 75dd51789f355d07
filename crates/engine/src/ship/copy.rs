//! A copy of one committed state of the base.
//!
//! It is read in one read transaction into a file without a name, by a thread of its own, and handed
//! on from there. So the base's WAL is held for as long as a disk takes to copy the database, not
//! for as long as it takes to upload it; the file goes with its process, whatever ends that; and
//! there is at most one.
//!
//! - COPY-1 Everything in the copy is on disk: what SQLite has committed without a sync is synced
//!   before it is handed on.
//! - COPY-2 Its generation is what the header of that state says, and `stream` is where frames of
//!   later generations begin. Whether the merge that made it is settled does not matter.
//! - COPY-3 It is made only where the disk has room for it and as much again as is left for commits.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::fs::{Mode, OFlags};

use super::Shipper;
use crate::base::{Base, PagesRead};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::ids::{Generation, Lsn};

/// Bytes that stay free beside a copy.
const SPARE_BYTES: u64 = 256 << 20;
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
    file: File,
}

/// A copy that is being made.
pub(super) struct Copying(JoinHandle<Result<Copied>>);

impl Copied {
    /// Reads page `number`, counted from 1, into `page`, which has `page_bytes` bytes.
    ///
    /// # Errors
    /// I/O errors.
    pub fn read(&self, number: u32, page: &mut [u8]) -> Result<()> {
        let at = u64::from(number - 1) * u64::from(self.page_bytes);
        let read = self.file.read_exact_at(page, at);
        read.map_err(|e| Error::io("cannot read the copy of the database", &e))
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
                let (db, scratch) = (self.db.clone(), scratch.to_owned());
                let thread = std::thread::Builder::new().name("plait-copy".to_owned());
                let started = thread.spawn(move || copy(&db, &scratch));
                let started = started.map_err(|e| Error::io("cannot start a thread", &e))?;
                self.copying = Some(Copying(started));
            }
            return Ok(None);
        };
        if !copying.0.is_finished() {
            self.copying = Some(copying);
            return Ok(None);
        }
        let copied = copying.0.join().map_err(|_| {
            self.db.poison();
            Error::Corrupt("the copy of the database has panicked".to_owned())
        })??;
        Ok((copied.generation >= at_least).then_some(copied))
    }

    /// Generation through which the base is complete.
    pub fn base_generation(&self) -> Generation {
        let settled = &self.db.control().base_generation;
        Generation::new(settled.load(std::sync::atomic::Ordering::Acquire))
    }
}

fn copy(db: &Arc<Database>, scratch: &Path) -> Result<Copied> {
    let mut base = db.opener().open(db.path())?;
    db.check_place()?;
    base.use_read_marks(db.shared_read_marks());
    let read = base.begin_read()?;
    let copied = copy_state(db, base.as_mut(), &read, scratch);
    base.end_read();
    copied
}

fn copy_state(
    db: &Arc<Database>,
    base: &mut dyn Base,
    read: &PagesRead,
    scratch: &Path,
) -> Result<Copied> {
    let PagesRead { header, page_bytes, page_count } = *read;
    let salt = db.control().salt.load(std::sync::atomic::Ordering::Relaxed);
    if !header.fenced || header.salt != salt {
        return Err(Error::Replaced(db.path().to_owned()));
    }
    let log = db.log()?;
    // COPY-1.
    log.sync_base_commits()?;
    let too_long = || Error::Busy("the copy of the database took too long".to_owned());
    // COPY-2.
    let stream = log.start_above(header.generation).ok_or_else(too_long)?;
    let file = nameless(scratch, u64::from(page_bytes) * u64::from(page_count))?;
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, &file);
    let mut page = vec![0; page_bytes as usize];
    let written = |e| Error::io(format!("cannot write into {}", scratch.display()), &e);
    for number in 1..=page_count {
        base.read_page(number, &mut page)?;
        out.write_all(&page).map_err(written)?;
    }
    out.flush().map_err(written)?;
    drop(out);
    let generation = header.generation;
    Ok(Copied { generation, salt, stream, page_bytes, page_count, file })
}

/// A file without a name, in a folder with room for `bytes` (COPY-3).
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
    let file = options.read(true).write(true).create_new(true).open(&name).map_err(say)?;
    std::fs::remove_file(&name).map_err(say)?;
    Ok(file)
}
