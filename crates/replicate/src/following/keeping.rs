//! What has the database's name, its mark's and its lock's: nothing is noted beside another file, nor without the lock (TRAIL-4).

use std::io::ErrorKind;
use std::path::Path;

use plait_engine::storage::names::{follows_lock_path, follows_path};

use super::mark::{Mark, Trouble};
use super::{Following, bytes_of, has_name, is_named, target, unseen};
use crate::error::{Error, Result, line, printable};
use crate::ids::RecordNumber;
use crate::new_file::is_full;
use crate::notes::note;

impl Following {
    /// Notes in the mark what keeps this from going on, for those who ask the database; `None`: nothing does.
    pub(super) fn tell(&mut self, what: Option<&str>) {
        let database = &self.settings.database;
        let Some(mark) = self.mark.clone() else { return };
        // What stands under the name may be another's by now.
        if !self.has_file().unwrap_or(false) || plait_engine::replica::look(database) != Some(true)
        {
            return;
        }
        let (before, what) = (mark.trouble.as_ref(), what.map(line));
        if before.map(|trouble| &trouble.what) == what.as_ref() {
            return;
        }
        let since_ms = before.map_or(self.world.clock().wall_ms(), |trouble| trouble.since_ms);
        let trouble = what.map(|what| Trouble { what, since_ms });
        // Where the mark cannot be written the error tells of that, or the next one.
        let _ = self.note(Mark { trouble, ..mark }, false);
    }

    /// Notes that another file has the name, if the mark beside it is still this one's: with that file another mark may have come.
    pub(super) fn tell_replaced(&mut self, error: Option<&Error>) {
        let (Some(error @ Error::Replaced(_)), Some(mark)) = (error, self.mark.clone()) else {
            return;
        };
        if Mark::read(&self.settings.database).is_ok_and(|there| there.as_ref() == Some(&mark)) {
            let what = line(&error.to_string());
            let trouble = Some(Trouble { what, since_ms: self.world.clock().wall_ms() });
            // It ends, and says so itself.
            let _ = self.note_beside(Mark { trouble, ..mark }, false, |_| Ok(()));
        }
    }

    /// Makes a mark anew that was deleted while this follows. The session refuses writes meanwhile (REPLICA-3).
    pub(super) fn look_at_mark(&mut self) -> Result<()> {
        let database = &self.settings.database;
        match &self.mark {
            Some(mark)
                if self.live.is_some() && plait_engine::replica::look(database) == Some(false) =>
            {
                let path = plait_engine::storage::names::follows_path(database);
                self.note(mark.clone(), true)?;
                note(&format!(
                    "plait-replicate: {} was deleted, and is made anew: `plait promote` is what makes a replica a \
                     database of its own",
                    printable(&path.to_string_lossy())
                ));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Begins anew where the database was removed, and nowhere else.
    pub(super) fn look_at_file(&mut self) -> Result<()> {
        let has_any = self.mark.as_ref().is_some_and(|mark| mark.record > RecordNumber::NONE);
        if self.is_gone() && (has_any || self.file.is_some() || !self.has_lock()?) {
            return self.begin_anew();
        }
        match self.keep_lock().and_then(|()| self.keep_file()) {
            // It was removed since the look above.
            Err(Error::Replaced(_) | Error::Taken(_)) if self.is_gone() => {
                return self.begin_anew();
            }
            kept => kept?,
        }
        match &self.live {
            Some(live) if live.was_promoted() => Err(self.promoted()),
            _ => self.look_at_mark(),
        }
    }

    /// Nothing has the name, or an empty file. What cannot be looked at is not gone.
    pub(super) fn is_gone(&self) -> bool {
        bytes_of(&self.settings.database).is_ok_and(|there| there.is_none_or(|bytes| bytes == 0))
    }

    /// The file that was seen last still has the name, if one was.
    pub(super) fn has_file(&self) -> Result<bool> {
        let database = &self.settings.database;
        let Some(file) = self.file else { return Ok(true) };
        has_name(database, file).map_err(|e| unseen(database, &e))
    }

    /// Fails if another file has the name: the mark beside it is that one's.
    pub(super) fn keep_file(&self) -> Result<()> {
        match self.has_file()? {
            true => Ok(()),
            false => Err(self.another_file()),
        }
    }

    pub(super) fn another_file(&self) -> Error {
        Error::Replaced(format!(
            "{} is another file than the one that followed",
            self.settings.database.display()
        ))
    }

    pub(super) fn has_lock(&self) -> Result<bool> {
        let path = follows_lock_path(&self.settings.database);
        is_named(&self.lock, &path).map_err(|e| unseen(&path, &e))
    }

    /// Fails if the lock keeps nobody away any more (TRAIL-4).
    pub(super) fn keep_lock(&self) -> Result<()> {
        if self.has_lock()? {
            return Ok(());
        }
        Err(self.lost_lock())
    }

    /// Why this one has the database no more, if it is known to have lost it.
    pub(super) fn lost_database(&self) -> Option<Error> {
        match self.keep_lock().and_then(|()| self.keep_file()) {
            Err(error @ Error::Taken(_)) => Some(error),
            // What was removed the next step makes anew.
            Err(error @ Error::Replaced(_)) if !self.is_gone() => Some(error),
            _ => self.live.as_ref().filter(|live| live.was_promoted()).map(|_| self.promoted()),
        }
    }

    pub(super) fn lost_lock(&self) -> Error {
        let database = &self.settings.database;
        Error::Taken(format!(
            "{} was removed while {} followed, so that another follower or `plait promote` may have it by now: this \
             one ends, and has left the database as it was; start it again if nothing else works on it",
            follows_lock_path(database).display(),
            database.display()
        ))
    }

    pub(super) fn promoted(&self) -> Error {
        let shown = self.settings.database.display();
        Error::Taken(format!(
            "{shown} was promoted while it followed, and is a database of its own: to follow again, choose another name"
        ))
    }

    /// Writes the next mark beside the file that follows, and beside no other one: an older state of it may have got the name, with
    /// the mark of that beside it.
    pub(super) fn note(&mut self, mark: Mark, durably: bool) -> Result<()> {
        self.note_beside(mark, durably, Following::keep_file)
    }

    /// Writes the next mark beside whatever file has the name, if `may` says so.
    fn note_beside(
        &mut self,
        mark: Mark,
        durably: bool,
        may: fn(&Following) -> Result<()>,
    ) -> Result<()> {
        let may = || self.keep_lock().and_then(|()| may(self));
        may()?;
        let number = mark.record;
        // In a session nobody commits meanwhile, nor notes another mark.
        let write = || may().map(|()| mark.write(&self.settings.database, durably));
        let written = match &self.live {
            None => write(),
            Some(live) => match live.unless_promoted(write).map_err(|why| target(number, why))? {
                Some(written) => written,
                None => return Err(self.promoted()),
            },
        };
        written?.map_err(|e| Error::Target {
            number,
            why: unwritten(&self.settings.database, &e),
            is_full: is_full(&e),
        })?;
        self.mark = Some(mark);
        Ok(())
    }
}

/// Why a mark cannot be written, and what to do.
fn unwritten(database: &Path, error: &std::io::Error) -> String {
    let advice = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ": free some space on that disk",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            ": give the file and its folder to the user of the follower"
        }
        _ => "",
    };
    format!("cannot write its mark {}: {error}{advice}", follows_path(database).display())
}
