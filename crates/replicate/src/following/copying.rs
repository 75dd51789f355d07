//! A copy of the newest record, in the place of what the database has (TRAIL-3).

use std::any::Any;
use std::path::Path;

use super::failed::{Failed, lies_there};
use super::mark::Mark;
use super::{Done, Following, Live, Stuck, target, with_suffix};
use crate::apply::Progress;
use crate::chain::{Found, Link, Reader, Tip};
use crate::error::{Error, Result};
use crate::ids::{ChainId, CommitTs, Hash, Position, RecordNumber};
use crate::library;
use crate::new_file::NewFile;
use crate::record::{Header, Item, Record, header_of};
use crate::restore::{Restored, Stop, restore};
use crate::snapshots::lineage_of;

/// Records behind an OPEN in which the first commit is looked for.
const FIRST_RECORDS: u32 = 8;

/// Behind the name of a copy that is made beside a database.
pub(super) const COPIED: &str = ".copied";

/// A copy of a record.
pub(super) struct Made {
    file: Box<NewFile>,
    mark: Mark,
}

impl Following {
    /// Makes the database as it was at the newest record, if that is a later one (TRAIL-3).
    pub(super) async fn copy(&mut self) -> Result<Done> {
        if self.reads_on().await? {
            // What was copied is no later than what follows.
            (self.stuck, self.made) = (None, None);
            self.reader = Reader::new(&self.world);
            return self.follow().await;
        }
        let made = match self.made.take() {
            Some(made) if self.may_take(&made) => Some(made),
            // The place may be put back while one is made.
            _ => self.make().await?.filter(|made| self.may_take(made)),
        };
        let Some(made) = made else { return Ok(Done::Waited) };
        let (mark, number) = (made.mark.clone(), made.mark.record);
        if let Err(error) = self.begin_to_put(&made) {
            self.made = Some(made);
            return Err(error);
        }
        self.put(made)?;
        self.note(mark, true)?;
        self.leave();
        self.reader = Reader::new(&self.world);
        self.stuck = None;
        Ok(Done::Copied(number))
    }

    /// Notes that a copy is about to take the place of what is there.
    fn begin_to_put(&mut self, made: &Made) -> Result<()> {
        self.refuse_foreign(made)?;
        let before = self.mark.clone().unwrap_or_else(|| made.mark.clone());
        self.note(Mark { seeding: true, chain: made.mark.chain, ..before }, true)
    }

    /// Fails if a program that had the name open before this began has made a database of its own there. From
    /// then on none can (REPLICA-3).
    fn refuse_foreign(&mut self, made: &Made) -> Result<()> {
        let is_new = self.mark.as_ref().is_some_and(|mark| mark.chain == ChainId::default());
        let database = self.settings.database.clone();
        if !is_new || std::fs::symlink_metadata(&database).is_err() {
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

    /// True if a copy is later than what is here, or what is here is of another history, or half a copy (TRAIL-3).
    fn may_take(&self, made: &Made) -> bool {
        self.mark.as_ref().is_none_or(|mark| {
            let is_put_back = self.stuck == Some(Stuck::PutBack);
            mark.seeding
                || made.mark.record > mark.record
                || (is_put_back && made.mark.record == mark.record)
        })
    }

    /// True if the record that was damaged or missing reads well, behind the one before it: it was read badly, or came back.
    async fn reads_on(&self) -> Result<bool> {
        let Some(mark) = self.mark.as_ref().filter(|mark| !mark.seeding) else { return Ok(false) };
        let Some(Stuck::Damaged(Some(number))) = self.stuck else { return Ok(false) };
        let number = number.max(mark.record.next());
        let mut reader = Reader::new(&self.world);
        let mut hash = (number == mark.record.next()).then_some(mark.hash);
        for of in [number.before(), number] {
            if of == mark.record {
                continue;
            }
            let bytes = match reader.object(of, true).await {
                Ok(Found::Object(bytes)) => bytes,
                Err(error @ Error::Store { .. }) if !error.is_refusal() => return Err(error),
                Ok(Found::Nothing) | Err(_) => return Ok(false),
            };
            let mut link = Link { chain: Some(mark.chain), number: of.before(), hash };
            if link.follow(&bytes).is_err() {
                return Ok(false);
            }
            hash = Some(Hash::of(&bytes));
        }
        Ok(true)
    }

    /// Gives the database the pages of a copy, or the copy the database's name. What it does not take is
    /// kept for another try.
    fn put(&mut self, made: Made) -> Result<()> {
        let number = made.mark.record;
        let database = self.settings.database.clone();
        if let Err(error) = self.keep_lock() {
            self.made = Some(made);
            return Err(error);
        }
        let Ok(there) = std::fs::symlink_metadata(&database) else {
            let named = made.file.make_read_only().and_then(|()| made.file.publish());
            return named.map_err(|why| target(number, why));
        };
        let put = match there.len() {
            0 => Live::found(&database, made.file.path()).map_err(|why| target(number, why)),
            _ => Ok(()),
        };
        let put = put.and_then(|()| {
            let live = self.live()?;
            live.copy_from(made.file.path()).map_err(|why| target(number, why))
        });
        if put.is_err() {
            self.made = Some(made);
        }
        put
    }

    /// Restores the newest record beside the database, or what is before damage, where that is more than it has; `None` if that
    /// is no later one than it has, or what led no further would be in the way of that, too.
    async fn make(&mut self) -> Result<Option<Made>> {
        let has = self.mark.as_ref().map_or(RecordNumber::NONE, |mark| mark.record);
        let (snapshot, damage) = match self.tip().await {
            Ok(tip) if !self.leads_on(&tip, has).await? => return Ok(None),
            Ok(tip) => (tip.record.header.snapshot, None),
            // What it has it need not copy again.
            Err(damage) if damage.damaged().is_some() && has == RecordNumber::NONE => {
                (RecordNumber::NONE, Some(damage))
            }
            Err(error) => return Err(error),
        };
        self.refuse_again(snapshot).await?;
        let database = &self.settings.database;
        let beside = match std::fs::symlink_metadata(database).is_ok() {
            true => with_suffix(database, COPIED),
            false => database.clone(),
        };
        let mut made = match damage {
            Some(damage) => Err(damage),
            None => self.restored(&beside, Stop::Newest).await,
        };
        if let Err(damage) = &made
            && let Some(damaged) = damage.damaged().filter(|damaged| damaged.before() > has)
            && !self.may_show_more()
        {
            let before = self.restored(&beside, Stop::Record(damaged.before())).await;
            // That nothing leads to what is before is no news.
            if before.as_ref().map_or_else(|error| !lies_there(error), |_| true) {
                made = before;
            }
        }
        self.failed = match &made {
            Ok(_) => None,
            Err(error) => Failed::of(&self.world, self.failed.take(), snapshot, error).await,
        };
        let (restored, mut file) = made?;
        let mark = self.mark_of(&restored).await?;
        self.refuse_another_chain(mark.chain)?;
        if let Some(before) = &self.mark
            && before.salt == mark.salt
            && before.until.is_some_and(|until| until > mark.stream)
        {
            return Ok(None);
        }
        let folder = beside.parent().unwrap_or(&beside);
        let failed = |why: &dyn std::fmt::Display| target(restored.record, made_in(folder, why));
        file.settle().map_err(|why| failed(&why))?;
        if restored.differs {
            file.verify().map_err(|why| failed(&why))?;
        }
        Ok(Some(Made { file, mark }))
    }

    /// True if a copy of the newest record is of use behind what a database has, and can be had as far as headers tell.
    async fn leads_on(&self, tip: &Tip, has: RecordNumber) -> Result<bool> {
        let header = &tip.record.header;
        self.refuse_another_chain(header.chain)?;
        let is_half = self.mark.as_ref().is_none_or(|mark| mark.seeding);
        let leads_on = match self.stuck {
            _ if is_half => true,
            None | Some(Stuck::Refused) => true,
            Some(Stuck::Begins | Stuck::Damaged(_)) => header.snapshot > has,
            Some(Stuck::PutBack) => header.snapshot > header.broken,
        };
        if header.number < has {
            return Err(Error::Behind { number: has, newest: header.number });
        }
        if header.number == has || !leads_on {
            return Ok(false);
        }
        // Another snapshot than the newest one leads nowhere from here.
        if is_half || !matches!(self.stuck, Some(Stuck::Begins | Stuck::Damaged(_))) {
            return Ok(true);
        }
        let mut reader = Reader::with(&self.world, tip.listing.clone());
        Ok(lineage_of(&mut reader, header.snapshot, header.chain).await?.is_some())
    }

    /// Fails as the last copy has, if the next one would.
    async fn refuse_again(&mut self, snapshot: RecordNumber) -> Result<()> {
        let Some(failed) = &mut self.failed else { return Ok(()) };
        if failed.stands(&self.world, snapshot).await? {
            return Err(failed.error.clone());
        }
        Ok(())
    }

    /// True if readers may have seen a later record than the mark says: of a copy that was being put, or of a commit that was
    /// announced.
    fn may_show_more(&self) -> bool {
        self.mark.as_ref().is_some_and(|mark| {
            mark.until.is_some() || (mark.seeding && mark.chain != ChainId::default())
        })
    }

    /// Restores a record into a new file for `beside`.
    async fn restored(&self, beside: &Path, stop: Stop) -> Result<(Restored, Box<NewFile>)> {
        let has = self.mark.as_ref().map_or(RecordNumber::NONE, |mark| mark.record);
        let opener = library::opener().ok_or_else(|| target(has, "out of memory"))?;
        let file = NewFile::begin(beside, opener, self.world.random().number() as u32)
            .map_err(|e| {
                let why = match e.kind() {
                    std::io::ErrorKind::AlreadyExists => format!(
                        "{e}, of a database that was removed or moved away: remove what that has left, which are all files {}-* but \
                         its -plait-follows and -plait-follows.lock",
                        beside.display()
                    ),
                    _ => e.to_string(),
                };
                target(has, format!("cannot make {}: {why}", beside.display()))
            })?;
        let versions = library::versions();
        let ignored = &mut |_: Progress| {};
        let folder = beside.parent().unwrap_or(beside);
        let restored = restore(&self.world, Box::new(file), stop, &versions, ignored).await;
        let (restored, made) = restored.map_err(|error| match error {
            Error::Target { number, why } => target(number, made_in(folder, &why)),
            other => other,
        })?;
        let made: Box<dyn Any> = made;
        let file = made.downcast::<NewFile>().map_err(|_| target(has, "another target"))?;
        Ok((restored, file))
    }

    /// The mark behind a copy.
    async fn mark_of(&self, restored: &Restored) -> Result<Mark> {
        let number = restored.record;
        let mut reader = Reader::new(&self.world);
        let name = || crate::names::record(number);
        let Found::Object(object) = reader.object(number, true).await? else {
            return Err(Error::Missing { number, name: name() });
        };
        let header =
            header_of(&object).map_err(|why| Error::Record { number, name: name(), why })?;
        let Position { salt, commit, .. } = restored.position;
        let first = match &self.mark {
            Some(before) if before.salt == salt && before.record > RecordNumber::NONE => {
                before.first
            }
            _ => self.first_of(&mut reader, &header).await?.unwrap_or_else(|| {
                let before = self.mark.as_ref().map_or(CommitTs(0), |before| before.commit);
                CommitTs(commit.max(before).0 + 1)
            }),
        };
        Ok(Mark {
            place: self.settings.place.clone(),
            chain: header.chain,
            record: number,
            salt,
            first,
            commit,
            written_ms: header.written_ms,
            hash: Hash::of(&object),
            stream: restored.position.stream,
            crc: restored.position.crc,
            counter: 0,
            until: None,
            seeding: false,
            trouble: None,
        })
    }

    /// The first known commit of the session of a record: the newest when the sidecar began, or the first since, if
    /// one of the next records has it. Those before may be of another session.
    async fn first_of(&self, reader: &mut Reader, header: &Header) -> Result<Option<CommitTs>> {
        let mut number = header.opened;
        for _ in 0..=FIRST_RECORDS {
            if number > header.number {
                break;
            }
            let object = match reader.object(number, true).await {
                Ok(Found::Object(object)) => object,
                Err(error @ Error::Store { .. }) if !error.is_refusal() => return Err(error),
                Ok(Found::Nothing) => break,
                // Retention leaves an OPEN apart, and removes what is behind it: the next one that is there tells as much.
                Err(_) => {
                    number = number.next();
                    continue;
                }
            };
            let Ok(record) = Record::decode(&object) else { break };
            if let Some(first) = first_in(&record) {
                return Ok(Some(first));
            }
            number = number.next();
        }
        Ok(None)
    }
}

/// The first commit that a record tells of: an OPEN, and a break, of the newest that the base had.
fn first_in(record: &Record) -> Option<CommitTs> {
    let known = record.items.iter().map(|item| match item {
        Item::Open(_) => record.header.position.commit,
        Item::Frames(frames) => frames.first_commit,
        Item::Break(gap) => gap.commit,
        Item::Merge(_) | Item::Pages(_) | Item::Snapshot(_) => CommitTs(0),
    });
    known.into_iter().find(|first| *first > CommitTs(0))
}

/// Why a copy cannot be made, with the disk that it needs.
fn made_in(folder: &Path, why: &dyn std::fmt::Display) -> String {
    format!("{why} (a copy is made in {})", folder.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Generation, Lsn};
    use crate::record::{Break, Frames};

    #[test]
    fn a_break_that_names_no_commit_hides_none_behind_it() {
        let gap = |commit| {
            let (stream, base, why) = (Lsn(8), Generation(2), String::new());
            Item::Break(Break { stream, base, incomplete: base, commit: CommitTs(commit), why })
        };
        let (first_commit, last_commit) = (CommitTs(7), CommitTs(9));
        let (generation, from, bytes) = (Generation(3), Lsn(8), vec![0; 8].into());
        let frames = Item::Frames(Frames { generation, from, first_commit, last_commit, bytes });
        let first = |items| first_in(&Record { header: Header::default(), items });
        assert_eq!(first(vec![gap(0), frames.clone()]), Some(CommitTs(7)));
        assert_eq!(first(vec![gap(5), frames]), Some(CommitTs(5)));
        assert_eq!(first(vec![gap(0)]), None);
    }
}
