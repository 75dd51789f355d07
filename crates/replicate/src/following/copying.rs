//! A copy of the newest record, in the place of what the database has (TRAIL-3).

use std::any::Any;
use std::collections::BTreeSet;
use std::path::Path;

use super::failed::{Failed, is_of_disk, lies_there};
use super::mark::Mark;
use super::putting::{Made, entry_of};
use super::{By, Done, Following, said, target, with_suffix};
use plait_engine::storage::making::COPIED;

use crate::apply::{Progress, open_of};
use crate::chain::{Found, Reader, Tip};
use crate::error::{Error, Result};
use crate::ids::{ChainId, CommitTs, Lsn, Position, RecordNumber, Salt};
use crate::library;
use crate::new_file::{NewFile, is_full};
use crate::record::{Header, Item, Record};
use crate::restore::{Restored, Stop, restore};
use crate::snapshots::lineage_of;
use crate::target::TargetError;
use crate::world::{Patience, World};

/// Records behind an OPEN in which the first commit is looked for.
const FIRST_RECORDS: u32 = 8;

/// How often that OPEN is asked for, half a minute in all where each try fails at once: tickets of the session are known by it.
const FIRST_TRIES: u32 = 10;

/// What became of records that the database had refused.
enum Taken {
    /// They were taken, or something else is in the way.
    Done(Result<Done>),
    /// They are refused again, for a reason.
    Refused(String),
    NotTried,
}

impl Following {
    /// Makes the database as it was at the newest record, if that is a later one (TRAIL-3).
    pub(super) async fn copy(&mut self) -> Result<Done> {
        if let Some(put) = self.put.take() {
            return self.note_put(put);
        }
        if self.reads_on().await {
            // What was copied is no later than what follows.
            (self.made, self.failed) = (None, None);
            // What is not given later is another silence.
            (self.unanswered, self.silent) = (None, BTreeSet::new());
            self.follow_again();
            self.reader = Reader::new(&self.world);
            return self.follow().await;
        }
        let refused = match self.take_again().await {
            Taken::Done(done) => return done,
            Taken::Refused(why) => Some(why),
            Taken::NotTried => None,
        };
        let made = match self.made.take() {
            Some(made) if self.may_take(&made) => Ok(Some(made)),
            // The place may be put back while one is made.
            _ => self.make().await.map(|made| made.filter(|made| self.may_take(made))),
        };
        let made = match (made, &refused) {
            (Ok(Some(made)), _) => made,
            (Ok(None), None) => return Ok(Done::Waited),
            (Err(error), None) => return Err(error),
            (unmade, Some(why)) => return Err(self.unmade(why, unmade.err())),
        };
        match self.still_has_place(&made) {
            Ok(true) => {}
            Ok(false) => return Ok(Done::Waited),
            Err(error) => {
                self.made = Some(made);
                return Err(error);
            }
        }
        if let Err(error) = self.begin_to_put(&made) {
            match refused.is_some() && is_of_disk(&error) {
                // The room that it has may be what records lack.
                true => self.give_up(made, &error).await,
                false => self.made = Some(made),
            }
            return Err(error);
        }
        self.failed = None;
        match self.put(made)? {
            Some(put) => self.note_put(put),
            None => Ok(Done::Waited),
        }
    }

    /// Removes a copy for which the disk has too little room, and remembers that.
    async fn give_up(&mut self, made: Made, error: &Error) {
        let snapshot = made.snapshot;
        drop(made);
        let (before, room) = (self.failed.take(), self.room());
        self.failed = Failed::of(&self.world, before, snapshot, error, (room, &self.silent)).await;
    }

    /// Takes records again which the database has refused: from a disk that was full it may take them by now. But not over a copy
    /// that may be there (NOTED-1).
    async fn take_again(&mut self) -> Taken {
        let is_whole = self.mark.as_ref().is_some_and(|mark| mark.seeding.is_none());
        if self.stuck_by() != Some(By::Refused) || !is_whole || self.made.is_some() {
            return Taken::NotTried;
        }
        match self.follow().await {
            // A copy would have to join as well.
            Err(Error::Target { why, .. }) if self.live.is_some() => {
                self.leave();
                Taken::Refused(why)
            }
            Ok(done) => {
                self.failed = None;
                if self.stuck_by() == Some(By::Refused) {
                    self.follow_again();
                }
                Taken::Done(Ok(done))
            }
            Err(error) => {
                if !matches!(error, Error::Target { .. }) {
                    self.follow_again();
                }
                Taken::Done(Err(error))
            }
        }
    }

    /// Why nothing leads on: records are refused, and there is no copy, perhaps for another reason.
    fn unmade(&self, refused: &str, copy: Option<Error>) -> Error {
        let number = self.mark.as_ref().map_or(RecordNumber::FIRST, |mark| mark.record.next());
        match copy {
            // What ends this says so itself.
            Some(error @ (Error::OtherChain { .. } | Error::Replaced(_) | Error::Taken(_))) => {
                error
            }
            Some(copy) => target(number, format!("{refused}; {}", said(&copy))),
            None => target(number, refused),
        }
    }

    /// True if a copy is later than what is here, or what is here is half a copy (TRAIL-3), and it reaches what was announced
    /// (TRAIL-2).
    fn may_take(&self, made: &Made) -> bool {
        let Mark { record, salt, stream, .. } = made.mark;
        self.mark.as_ref().is_none_or(|mark| match mark.seeding {
            _ if announces_more(mark, salt, stream) => false,
            Some(copied) => record >= copied.max(mark.record),
            None => record > mark.record,
        })
    }

    /// Restores the newest record beside the database, or what is before damage, where that is more than it has; `None` if that
    /// is no later one than it has, or what led no further would be in the way of that, too. What the store has not answered
    /// for in long is as damaged.
    async fn make(&mut self) -> Result<Option<Made>> {
        self.ask_for_silent().await;
        let given = self.world.without(&self.silent);
        let world = std::mem::replace(&mut self.world, given);
        let made = self.make_of_what_is_given().await;
        self.world = world;
        made
    }

    async fn make_of_what_is_given(&mut self) -> Result<Option<Made>> {
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
        let room = self.room();
        let database = &self.settings.database;
        let beside = match entry_of(database)? {
            Some(_) => with_suffix(database, COPIED),
            None => database.clone(),
        };
        let mut made = match damage {
            Some(damage) => Err(damage),
            None => self.settled(self.begun(&beside)?, Stop::Newest).await,
        };
        if let Err(damage) = &made
            && let Some(damaged) = damage.damaged().filter(|damaged| damaged.before() > has)
            && !self.may_show_more(damaged.before())
        {
            let stop = Stop::Record(damaged.before());
            let before = self.settled(self.begun(&beside)?, stop).await;
            // That nothing leads to what is before is no news.
            if before.as_ref().map_or_else(|error| !lies_there(error), |_| true) {
                made = before;
            }
        }
        if let Err(error) = &made {
            let (before, room) = (self.failed.take(), room.max(self.room()));
            self.failed =
                Failed::of(&self.world, before, snapshot, error, (room, &self.silent)).await;
        }
        let (restored, file) = made?;
        self.refuse_another_chain(restored.header.chain)?;
        let mark = self.mark_of(&restored).await;
        Ok(Some(Made { file, mark, snapshot, destination: beside }))
    }

    /// True if a copy of the newest record is of use behind what a database has, and can be had as far as headers tell.
    async fn leads_on(&self, tip: &Tip, has: RecordNumber) -> Result<bool> {
        let header = &tip.record.header;
        self.refuse_another_chain(header.chain)?;
        let half = self.mark.as_ref().map_or(Some(RecordNumber::NONE), |mark| mark.seeding);
        // Readers may have seen what was being put.
        let shown = half.unwrap_or_default().max(has);
        if header.number < shown {
            return Err(Error::Behind { number: shown, newest: header.number });
        }
        let position = &header.position;
        let is_short = |mark: &Mark| announces_more(mark, position.salt, position.stream);
        if self.mark.as_ref().is_some_and(is_short) {
            return Ok(false);
        }
        if half.is_some() {
            return Ok(true);
        }
        let leads_on = match self.stuck_by() {
            None | Some(By::Refused) => true,
            Some(By::Begins | By::Damaged(_)) => header.snapshot > has,
            Some(By::PutBack) => header.snapshot > header.broken,
        };
        if header.number == has || !leads_on {
            return Ok(false);
        }
        // Another snapshot than the newest one leads nowhere from here.
        if !matches!(self.stuck_by(), Some(By::Begins | By::Damaged(_))) {
            return Ok(true);
        }
        let mut reader = Reader::with(&self.world, tip.listing.clone());
        Ok(lineage_of(&mut reader, header.snapshot, header.chain).await?.is_some())
    }

    /// Fails as the last copy has, if the next one would.
    async fn refuse_again(&mut self, snapshot: RecordNumber) -> Result<()> {
        let room = self.room();
        let Some(failed) = &mut self.failed else { return Ok(()) };
        if failed.stands(&self.world, snapshot, (room, &self.silent)).await? {
            return Err(failed.error.clone());
        }
        Ok(())
    }

    /// Bytes that are free where a copy is made.
    fn room(&self) -> u64 {
        let folder = self.settings.database.parent().unwrap_or(Path::new("/"));
        rustix::fs::statvfs(folder).map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// True if readers may have seen a later record than this: of a copy that was being put, or of a commit that was announced.
    fn may_show_more(&self, record: RecordNumber) -> bool {
        self.mark.as_ref().is_some_and(|mark| {
            // An earlier build's mark has 1 for any.
            let is_untold =
                mark.seeding == Some(RecordNumber::FIRST) && mark.chain != ChainId::default();
            is_untold || mark.until.is_some() || mark.seeding.is_some_and(|copied| copied > record)
        })
    }

    /// Begins a new file for `beside`.
    fn begun(&self, beside: &Path) -> Result<NewFile> {
        let failed = |why: String, is_full| Error::Uncopied { why, is_full };
        let opener = library::opener().ok_or_else(|| failed("out of memory".to_owned(), false))?;
        NewFile::begin(beside, opener, self.world.random().number() as u32).map_err(|e| {
            let why = match e.kind() {
                std::io::ErrorKind::AlreadyExists if beside != self.settings.database => {
                    format!("{e}, under the name that a copy has in the making: move it away, or remove it")
                }
                std::io::ErrorKind::AlreadyExists => format!(
                    "{e}, of a database that was removed or moved away: remove what that has left, which are all files {}-* but \
                     its -plait-follows and -plait-follows.lock",
                    beside.display()
                ),
                _ => e.to_string(),
            };
            failed(format!("cannot make {}: {why}", beside.display()), is_full(&e))
        })
    }

    /// Restores a record into a file: it is at rest, and on disk.
    async fn settled(&self, file: NewFile, stop: Stop) -> Result<(Restored, Box<NewFile>)> {
        let folder = file.path().parent().unwrap_or(file.path()).to_owned();
        let failed = |why: TargetError| uncopied(&folder, why);
        let versions = library::versions();
        let ignored = &mut |_: Progress| {};
        let restored = restore(&self.world, Box::new(file), stop, &versions, ignored).await;
        let (restored, made) = restored.map_err(|error| match error {
            Error::Target { why, is_full, .. } => failed(TargetError { why, is_full }),
            other => other,
        })?;
        let made: Box<dyn Any> = made;
        let mut file = made.downcast::<NewFile>().map_err(|_| failed("another target".into()))?;
        file.settle().map_err(failed)?;
        if restored.differs {
            file.verify().map_err(failed)?;
        }
        Ok((restored, file))
    }

    /// The mark behind a copy.
    async fn mark_of(&self, restored: &Restored) -> Mark {
        let Restored { header, hash, .. } = restored;
        let Position { salt, commit, stream, crc, .. } = restored.position;
        let first = match &self.mark {
            Some(before) if before.salt == salt && before.record > RecordNumber::NONE => {
                before.first
            }
            _ => first_of(&self.world, header).await.unwrap_or_else(|| {
                let before = self.mark.as_ref().map_or(CommitTs(0), |before| before.commit);
                CommitTs(commit.max(before).0 + 1)
            }),
        };
        Mark {
            place: self.settings.place.clone(),
            chain: header.chain,
            record: header.number,
            salt,
            first,
            commit,
            written_ms: header.written_ms,
            hash: *hash,
            stream,
            crc,
            counter: 0,
            until: None,
            seeding: None,
            trouble: None,
        }
    }
}

/// True if a commit was announced that comes behind this end of the same session's frames.
fn announces_more(mark: &Mark, salt: Salt, stream: Lsn) -> bool {
    mark.salt == salt && mark.until.is_some_and(|until| until > stream)
}

/// The first known commit of the session of a record: the newest when the sidecar began, or the first since, if
/// one of the next records has it. Those before may be of another session. What cannot be read now tells of none.
async fn first_of(world: &World, header: &Header) -> Option<CommitTs> {
    let patient = world.with(Patience::Tries(FIRST_TRIES));
    let open = open_of(&patient, header).await.ok().flatten();
    if let Some(first) = open.as_ref().and_then(first_in) {
        return Some(first);
    }
    let mut reader = Reader::new(world);
    let mut number = header.opened;
    for _ in 0..FIRST_RECORDS {
        number = number.next();
        if number > header.number {
            break;
        }
        // Retention leaves an OPEN apart, and removes what is behind it: the next one that is there tells as much.
        let Ok(Found::Object(object)) = reader.object(number, true).await else { continue };
        if let Some(first) = Record::decode(&object).ok().as_ref().and_then(first_in) {
            return Some(first);
        }
    }
    None
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
fn uncopied(folder: &Path, TargetError { why, is_full }: TargetError) -> Error {
    let next = match is_full {
        true => "the next one is begun when there is more room, and within ten minutes",
        false => "the next one is begun from a snapshot of later, or after some minutes",
    };
    let why = format!("{why} (a copy is made in {}; {next})", folder.display());
    Error::Uncopied { why, is_full }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ids::Generation;
    use crate::names;
    use crate::primary::Settings;
    use crate::record::{Break, Frames};
    use crate::simulation::run::settings;
    use crate::simulation::stage::{Stage, live};

    #[test]
    fn the_first_commit_of_a_session_is_known_from_its_open_whatever_retention_has_removed() {
        let stage = Stage::default();
        let database = stage.database("alpha");
        database.borrow_mut().commit(true);
        database.borrow_mut().freeze();
        database.borrow_mut().merge(true);
        let pack_every = Duration::from_secs(1);
        let settings = Settings { pack_every, pack_records: 4, ..settings(false) };
        let mut sidecar = stage.open(&database, settings).expect("an empty place");
        live(&stage, &database, &mut sidecar, 30).expect("a quiet world");
        let (world, clock) = stage.world(Patience::Tries(1));
        let header = sidecar.0.tip().clone();
        let first = || stage.block(&clock, first_of(&world, &header));
        let known = first();
        assert!(known.is_some_and(|first| first < header.position.commit), "{known:?}");
        let mut packs = stage.objects.names_with(names::PACKS);
        packs.pop();
        assert!(packs.len() > 3);
        packs.iter().for_each(|pack| stage.objects.damage(pack, None));
        assert_eq!(first(), known);
        // What is not to be had tells of none, and is in nobody's way.
        stage.objects.withhold(|_| true);
        assert_eq!(first(), None);
    }

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
