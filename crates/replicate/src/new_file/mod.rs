//! A target that is a new plain SQLite file: what a restore makes.
//!
//! | step | the file in the making |
//! |---|---|
//! | `begin`, `base_pages`, `complete` | pages of snapshots, as they come, by a thread (`writing.rs`) |
//! | `frames` | nothing: rows that are not merged are in memory (`plait_engine::replay`) |
//! | `merge` | a transaction of a hidden connection, and a checkpoint |
//! | `begin_pages`, `pages`, `commit_pages` | the connection is closed; pages, as they come |
//! | [`NewFile::finish`] | what is left merged, at rest, checked, under its name |
//!
//! No step but the last one has to be atomic: nobody opens the file before, and a restore that fails
//! or is killed begins anew (PLACE-1, PLACE-2). So pages are written where they belong, and
//! [`Target::state`] always tells that nothing is there.
//!
//! - NEWFILE-1 Behind each merge the base is the primary's, byte for byte but for the salt and the
//!   fence: the pages that it has written have the primary's sum. How often the primary raised its fence or came to
//!   rest is not in the chain, but counted in page 1; so higher counts are tried against the sum, and
//!   the one that fits is written.
//! - NEWFILE-2 A merge with another sum ends the restore, unless the caller accepts it; then no pages
//!   may follow (`apply.rs`).
//! - NEWFILE-3 Pages of an exclusive transaction go over a base that lacks no frame.
//!
//! The restored file is the primary's base at rest, with the frames behind the last merge merged too:
//! in concurrent mode as the primary's was, without the fence, with a salt of its own, and with
//! another count of transactions.

mod base;
mod place;
mod verify;
mod writing;
mod written;

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use plait_engine::base::{Base, BaseOpener, Checkpoint};
use plait_engine::crash_point;
use plait_engine::error::Error as EngineError;
use plait_engine::ids as engine;
use plait_engine::replay::{Replay, rest};

use crate::ids::{Generation, Lsn};
use crate::record::{Frames, Merge, PageSet};
use crate::target::{Applied, Birth, Target, TargetError};
pub use base::is_full;
use base::{Pages, io};
use place::Place;
pub use place::{beside, give_rights_of_new, refuse_long_name};
use writing::Writing;
pub use written::{Written, last_transaction};

/// A file in the making.
pub struct NewFile {
    /// Closed before the file under it changes, and before that is closed.
    base: Option<Box<dyn Base>>,
    opener: Box<dyn BaseOpener>,
    place: Place,
    replay: Replay,
    /// Pages of snapshots that are being written.
    writing: Option<Writing>,
    pages: Pages,
    page_count: u32,
    /// Pages of the base before those of a transaction.
    there: u32,
    /// The generation that these stamp.
    through: Generation,
    /// It has all pages of a snapshot.
    is_whole: bool,
}

fn bad(why: impl Into<TargetError>) -> TargetError {
    why.into()
}

/// SQLite's codes for a full disk.
const FULL: i32 = 13;

fn of_engine(error: &EngineError) -> TargetError {
    match error {
        EngineError::Base { code, .. } if code & 0xff == FULL => {
            io(&std::io::ErrorKind::StorageFull.into())
        }
        EngineError::Io { errno, .. } if is_full(&std::io::Error::from_raw_os_error(*errno)) => {
            io(&std::io::Error::from_raw_os_error(*errno))
        }
        EngineError::Full(why) => TargetError { why: why.clone(), is_full: true },
        other => bad(other.to_string()),
    }
}

impl NewFile {
    /// Begins a file beside a destination, where nothing may be. `random` tells it from others.
    ///
    /// # Errors
    /// In words.
    pub fn begin(
        destination: &Path,
        opener: Box<dyn BaseOpener>,
        random: u32,
    ) -> std::io::Result<NewFile> {
        Ok(NewFile {
            base: None,
            opener,
            place: Place::begin(destination, random)?,
            replay: Replay::new(0),
            writing: None,
            pages: Pages::new(0),
            page_count: 0,
            there: 0,
            through: Generation(0),
            is_whole: false,
        })
    }

    /// The file in the making.
    pub fn path(&self) -> &Path {
        &self.place.path
    }

    /// The stream ends in the middle of a commit over several files, which is left out.
    pub fn is_undecided(&self) -> bool {
        self.replay.is_undecided()
    }

    /// Bytes of the file.
    ///
    /// # Errors
    /// The system's.
    pub fn len_bytes(&self) -> std::io::Result<u64> {
        Ok(self.place.file.metadata()?.len())
    }

    /// Merges what is left and makes it a plain file at rest, on disk.
    ///
    /// # Errors
    /// In words; the file is of no use then.
    pub fn settle(&mut self) -> Result<(), TargetError> {
        if !self.is_whole {
            return Err(bad("it has no base"));
        }
        let base = opened(&mut self.base, &*self.opener, &self.place.path)?;
        self.replay.settle(base).map_err(|e| of_engine(&e))?;
        rest(base).map_err(|e| of_engine(&e))?;
        self.close()?;
        crash_point!("replica.settled");
        self.place.file.sync_all().map_err(|e| io(&e))
    }

    /// Makes the file, which is settled, a replica at rest, on disk: SQLite without Plait reads it, and
    /// does not write it.
    ///
    /// # Errors
    /// The system's.
    pub fn make_read_only(&self) -> std::io::Result<()> {
        base::set_read_only(&self.place.file)?;
        self.place.file.sync_all()
    }

    /// Device and inode, which it keeps when it gets its name.
    ///
    /// # Errors
    /// The system's.
    pub fn identity(&self) -> std::io::Result<(u64, u64)> {
        self.place.file.metadata().map(|meta| (meta.dev(), meta.ino()))
    }

    /// The count of transactions in page 1 of the file, which is settled.
    ///
    /// # Errors
    /// The system's.
    pub fn counter(&self) -> std::io::Result<u32> {
        base::counter(&self.place.file)
    }

    /// Checks the file, which is settled, with SQLite's own check.
    ///
    /// # Errors
    /// In words.
    pub fn verify(&self) -> Result<(), TargetError> {
        verify::check(&self.place.path).map_err(bad)
    }

    /// Keeps the file under the name that it has, which it returns, for somebody to move.
    pub fn keep(self) -> PathBuf {
        self.place.keep()
    }

    /// Gives the file its name, where nothing may be by now.
    ///
    /// # Errors
    /// The system's.
    pub fn publish(self) -> std::io::Result<()> {
        self.place.publish()
    }

    /// Brings the WAL into the file: it is empty then.
    fn checkpoint(&mut self) -> Result<(), TargetError> {
        let Some(base) = &mut self.base else { return Ok(()) };
        base.checkpoint(Checkpoint::Truncate).map(|_| ()).map_err(|e| of_engine(&e))
    }

    /// Closes the hidden connection. Everything is in the file then.
    fn close(&mut self) -> Result<(), TargetError> {
        self.checkpoint()?;
        self.base = None;
        // What is left has nothing that the file lacks.
        for suffix in ["-wal", "-shm"] {
            match std::fs::remove_file(self.place.beside(suffix)) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(io(&e)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Compares what a merge has written with what the primary has, and takes over its count of
    /// transactions (NEWFILE-1). Returns the sum that a MERGE would have here.
    fn compare(&mut self, merge: &Merge) -> Result<u32, TargetError> {
        let wal = File::open(self.place.beside("-wal")).map_err(|e| io(&e))?;
        let written = last_transaction(&wal).map_err(|e| io(&e))?;
        let written = written.ok_or_else(|| bad("the merge has left no WAL"))?;
        let (sum, untold) = written.compare(merge.sum, merge.page_count).map_err(|e| io(&e))?;
        match untold {
            Some(0) => Ok(merge.sum),
            Some(untold) => {
                self.close()?;
                base::raise_counter(&self.place.file, untold).map_err(|e| io(&e))?;
                Ok(merge.sum)
            }
            // Another length with the same sum is another base.
            None if sum == merge.sum => Ok(!merge.sum),
            None => Ok(sum),
        }
    }
}

fn opened<'a>(
    base: &'a mut Option<Box<dyn Base>>,
    opener: &dyn BaseOpener,
    path: &Path,
) -> Result<&'a mut dyn Base, TargetError> {
    if base.is_none() {
        *base = Some(opener.open(path).map_err(|e| of_engine(&e))?);
    }
    Ok(&mut **base.as_mut().expect("it was opened"))
}

impl Target for NewFile {
    fn state(&mut self) -> Result<Option<Applied>, TargetError> {
        Ok(None)
    }

    fn begin(&mut self, birth: &Birth) -> Result<(), TargetError> {
        self.close()?;
        self.writing = None;
        self.place.file.set_len(0).map_err(|e| io(&e))?;
        let page_bytes = birth.snapshot.page_bytes;
        self.writing = Some(Writing::begin(&self.place.file, page_bytes).map_err(bad)?);
        self.is_whole = false;
        self.page_count = birth.snapshot.page_count;
        self.replay = Replay::new(birth.snapshot.salt.0);
        Ok(())
    }

    fn base_pages(&mut self, pages: &Bytes) -> Result<(), TargetError> {
        self.writing.as_mut().ok_or_else(|| bad("it has not begun"))?.put(pages).map_err(bad)
    }

    fn complete(&mut self, applied: &Applied) -> Result<(), TargetError> {
        let writing = self.writing.take();
        self.pages = writing.ok_or_else(|| bad("it has not begun"))?.end().map_err(bad)?;
        if let Some(missing) = self.pages.missing(0, self.page_count) {
            return Err(bad(format!("the snapshot lacks page {missing}")));
        }
        let page_bytes = self.pages.page_bytes();
        let first = base::complete(&self.place.file, page_bytes, self.page_count).map_err(bad)?;
        let position = &applied.position;
        if (first.salt, first.generation) != (position.salt, position.base) {
            return Err(bad(format!(
                "the snapshot's pages are of session {} and generation {}, and it says {} and {}",
                first.salt, first.generation, position.salt, position.base
            )));
        }
        self.place.file.sync_all().map_err(|e| io(&e))?;
        crash_point!("replica.based");
        self.is_whole = true;
        Ok(())
    }

    fn frames(&mut self, frames: &Frames, _: Lsn) -> Result<(), TargetError> {
        let from = engine::Lsn::new(frames.from.0);
        self.replay.take(&frames.bytes, from).map_err(|e| of_engine(&e))
    }

    fn merge(&mut self, merge: &Merge, accepts: bool) -> Result<u32, TargetError> {
        self.is_whole = false;
        let through = engine::Generation::new(merge.through.0);
        let base = opened(&mut self.base, &*self.opener, &self.place.path)?;
        self.replay.merge(base, through).map_err(|e| of_engine(&e))?;
        crash_point!("replica.merging");
        let sum = self.compare(merge)?;
        self.checkpoint()?;
        crash_point!("replica.merged");
        // A base that differs is of no use to who does not accept it (NEWFILE-2).
        self.is_whole = accepts || sum == merge.sum;
        Ok(sum)
    }

    fn begin_pages(&mut self, set: &PageSet) -> Result<(), TargetError> {
        self.replay.pass(engine::Generation::new(set.through.0)).map_err(|e| of_engine(&e))?;
        if set.page_bytes != self.pages.page_bytes() {
            return Err(bad("the pages have another size"));
        }
        self.close()?;
        self.is_whole = false;
        self.there = (self.len_bytes().map_err(|e| io(&e))? / u64::from(set.page_bytes)) as u32;
        self.pages = Pages::new(set.page_bytes);
        self.page_count = set.page_count;
        self.through = Generation(set.through.0);
        Ok(())
    }

    fn pages(&mut self, pages: &[u8]) -> Result<(), TargetError> {
        self.pages.write(&self.place.file, pages).map_err(bad)
    }

    fn commit_pages(&mut self) -> Result<(), TargetError> {
        let page_bytes = self.pages.page_bytes();
        if let Some(missing) = self.pages.missing(self.there, self.page_count) {
            return Err(bad(format!("the pages of the transaction lack page {missing}")));
        }
        let first = base::complete(&self.place.file, page_bytes, self.page_count).map_err(bad)?;
        if first.generation != self.through {
            return Err(bad(format!(
                "the pages of the transaction are of generation {}, and it says {}",
                first.generation, self.through
            )));
        }
        crash_point!("replica.pages_committed");
        self.is_whole = true;
        Ok(())
    }

    fn renew(&mut self, position: &crate::ids::Position) -> Result<(), TargetError> {
        self.replay.renew(position.salt.0).map_err(|e| of_engine(&e))?;
        // On the primary the transaction that raises the fence does this.
        self.close()?;
        base::set_salt(&self.place.file, position.salt).map_err(|e| io(&e))
    }

    fn note(&mut self, _: &Applied) -> Result<(), TargetError> {
        Ok(())
    }
}
