//! A copy that is made takes the place of what the database has, and is noted (TRAIL-3).
//!
//! The name may get another file meanwhile, with the mark of that one beside it: so no mark is written behind a copy before the file
//! that has the copy is seen under the name. A copy that is in its place and could not be noted is noted by the next step, which
//! would else make all of it again.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::mark::Mark;
use super::{Done, Following, Live, target, unseen};
use crate::chain::Reader;
use crate::error::{Error, Result};
use crate::ids::{ChainId, RecordNumber};
use crate::new_file::NewFile;

/// A copy of a record.
pub(super) struct Made {
    pub file: Box<NewFile>,
    pub mark: Mark,
    /// The newest snapshot when it was made.
    pub snapshot: RecordNumber,
    /// The name that the file would get.
    pub destination: PathBuf,
}

/// A copy in its place.
pub(super) struct Put {
    mark: Mark,
    /// The change counter of the file, if that has got the name.
    counter: Option<u32>,
}

/// What has a name, not over a symbolic link; `None` if nothing has.
pub(super) fn entry_of(path: &Path) -> Result<Option<Metadata>> {
    match std::fs::symlink_metadata(path) {
        Ok(there) => Ok(Some(there)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(unseen(path, &e)),
    }
}

impl Following {
    /// False if the database was removed while a copy was made to be put into it: that is begun anew.
    pub(super) fn still_has_place(&mut self, made: &Made) -> Result<bool> {
        self.look_at_file()?;
        let database = &self.settings.database;
        Ok(made.destination == *database || entry_of(database)?.is_some())
    }

    /// Notes that a copy is about to take the place of what is there.
    pub(super) fn begin_to_put(&mut self, made: &Made) -> Result<()> {
        self.refuse_foreign(made)?;
        let before = self.mark.clone().unwrap_or_else(|| made.mark.clone());
        // Another one may have been put before.
        let seeding = before.seeding.max(Some(made.mark.record));
        self.note(Mark { seeding, chain: made.mark.chain, ..before }, true)
    }

    /// Fails if a program that had the name open before this began has made a database of its own there. From
    /// then on none can (REPLICA-3).
    fn refuse_foreign(&mut self, made: &Made) -> Result<()> {
        let is_new = self.mark.as_ref().is_some_and(|mark| mark.chain == ChainId::default());
        let database = self.settings.database.clone();
        if !is_new || entry_of(&database)?.is_none() {
            return Ok(());
        }
        let number = made.mark.record;
        let failed = |why: String| target(number, why);
        let is_taken = Live::is_taken(&database).map_err(|why| self.unjoined(number, why))?;
        let is_foreign = is_taken || {
            Live::found(&database, made.file.path()).map_err(failed)?;
            self.live()?.has_tables().map_err(failed)?
        };
        match is_foreign {
            true => Err(Error::Replaced(format!(
                "a program has made {} a database of its own meanwhile",
                database.display()
            ))),
            false => Ok(()),
        }
    }

    /// Gives the database the pages of a copy, or the copy the database's name. What it does not take is
    /// kept for another try. `None`: the database was removed, and the file of the copy is to get another name.
    pub(super) fn put(&mut self, made: Made) -> Result<Option<Put>> {
        let database = self.settings.database.clone();
        let there = match self.keep_lock().and_then(|()| entry_of(&database)) {
            Ok(there) => there,
            Err(error) => {
                self.made = Some(made);
                return Err(error);
            }
        };
        match there {
            Some(there) => {
                if let Err(error) = self.put_into(&made, &there) {
                    self.made = Some(made);
                    return Err(error);
                }
                Ok(Some(Put { mark: made.mark, counter: None }))
            }
            None if made.destination == database => self.name(made).map(Some),
            None => Ok(None),
        }
    }

    fn put_into(&mut self, made: &Made, there: &Metadata) -> Result<()> {
        let number = made.mark.record;
        let failed = |why: String| target(number, why);
        if there.len() == 0 {
            Live::found(&self.settings.database, made.file.path()).map_err(failed)?;
        }
        self.live()?.copy_from(made.file.path()).map_err(failed)
    }

    fn name(&mut self, made: Made) -> Result<Put> {
        let Made { file, mark, .. } = made;
        let ready = || {
            file.make_read_only()?;
            Ok((file.identity()?, file.counter()?))
        };
        let failed = |e: std::io::Error| target(mark.record, e);
        let (identity, counter) = ready().map_err(failed)?;
        file.publish().map_err(failed)?;
        self.file = Some(identity);
        Ok(Put { mark, counter: Some(counter) })
    }

    /// Notes a copy that is in its place, or leaves that to the next step.
    pub(super) fn note_put(&mut self, put: Put) -> Result<Done> {
        let noted = self.try_to_note(&put);
        if let Err(Error::Target { .. } | Error::Unseen(_)) = noted {
            self.put = Some(put);
        }
        noted
    }

    fn try_to_note(&mut self, put: &Put) -> Result<Done> {
        let number = put.mark.record;
        self.look_at_file()?;
        if self.file.is_none() {
            // It was removed, and is begun anew.
            return Ok(Done::Waited);
        }
        let counter = match put.counter {
            Some(counter) => counter,
            None => self.counter_on_disk(number)?,
        };
        self.note(Mark { counter, ..put.mark.clone() }, true)?;
        self.leave();
        self.reader = Reader::new(&self.world);
        self.follow_again();
        Ok(Done::Copied(number))
    }

    /// The counter of the base (NOTED-3), 0 where a reader keeps that from the disk.
    fn counter_on_disk(&mut self, number: RecordNumber) -> Result<u32> {
        let live = self.live()?;
        let counter = match live.rests() {
            Ok(true) => live.counter(),
            Ok(false) => Ok(0),
            Err(why) => Err(why),
        };
        counter.map_err(|why| target(number, why))
    }
}
