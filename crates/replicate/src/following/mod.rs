//! A database that follows a chain while programs read it.
//!
//! ```text
//!            ┌── no database, or the chain leads no further ──► copy: restore the newest record
//!            │                                                   beside it, then its pages in one
//!  mark ─────┤                                                   transaction
//!            └── records ──► gather frames ──► until ──► commit ──► mark
//! ```
//!
//! The database is no copy of the primary's file, byte for byte (CHAIN-7): it has the primary's trees, with the
//! same roots, and merges as its own session does. So a MERGE says nothing here; and pages of an exclusive
//! transaction, or a break, need a copy anew.
//!
//! - TRAIL-1 A commit has whole commits of the primary, in their order, without a gap: all frames from
//!   the mark's `stream` on through another one. Readers see some commit of the primary's, and later ones
//!   as time goes on.
//! - TRAIL-2 A commit announces how far it will come (NOTED-1). Behind a crash the first commit reaches
//!   that, or the copy does.
//! - TRAIL-3 A copy takes the place of what is there in one transaction, and only if it is of a later
//!   record of the same chain.
//! - TRAIL-4 One follower works on a database: it holds a lock for as long as it lives.

mod live;
pub mod mark;

use std::any::Any;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use plait_engine::storage::names::follows_lock_path;
use plait_engine::txn::NODE_OVERHEAD_BYTES;

pub use self::live::Live;
use self::mark::Mark;
use crate::apply::{Progress, frame_at, opened_at};
use crate::chain::{Flow, Found, Link, Reader};
use crate::error::{Error, Result};
use crate::ids::{ChainId, CommitTs, Generation, Hash, Lsn, Position, RecordNumber};
use crate::library;
use crate::new_file::NewFile;
use crate::record::{Follows, Frames, Header, Item, Record, header_of};
use crate::restore::{Restored, Stop, restore};
use crate::store::Backoff;
use crate::world::{Patience, World};

/// What one commit weighs, at most, unless one of the primary's weighs more: bytes of its frames, and for each
/// row what a memtable adds. A transaction of 7 MiB fits into one.
const COMMIT_BYTES: usize = 4 << 20;
/// Records behind an OPEN in which the first commit is looked for.
const FIRST_RECORDS: u32 = 8;
/// Failures in a row of the database itself, behind which a copy is tried.
const FAILURES: u32 = 3;
/// Looks for a copy, behind each of which it is tried once more to go on record by record.
const LOOKS: u32 = 20;
/// Whoever asks whether a follower runs has its lock for a moment.
const LOCK_TRIES: u32 = 10;
const LOCK_NAP: Duration = Duration::from_millis(50);
/// How often a store is asked for a copy before that is begun anew.
const TRIES: u32 = 6;

/// How a database follows.
pub struct Settings {
    /// The place, as the user names it.
    pub place: String,
    /// The database.
    pub database: PathBuf,
    /// Time from one look for the next record to the next.
    pub poll: Duration,
}

/// What a step has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The database is as it was at a record: copied anew, or for the first time.
    Copied(RecordNumber),
    /// Records through this one are applied.
    Applied(RecordNumber),
    /// There is nothing new.
    Waited,
    /// The chain leads no further, for a reason; a copy of a later moment is waited for.
    Stuck(String),
}

/// A follower.
pub struct Following {
    world: World,
    settings: Settings,
    mark: Option<Mark>,
    live: Option<Live>,
    reader: Reader,
    /// Of what was taken; none before the first record.
    flow: Option<Flow>,
    stuck: Option<Stuck>,
    /// A copy that the database did not take yet.
    made: Option<Made>,
    /// Failures of the database in a row.
    failures: u32,
    /// The last trouble that was told.
    told: Option<String>,
    backoff: Backoff,
    // Held for as long as this lives (TRAIL-4).
    _lock: File,
}

/// Why records lead no further, and what does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stuck {
    /// It begins anew there, by what the primary did: a snapshot of later.
    Begins,
    /// A record is missing or damaged: a snapshot of later, or the same record, sound. So often was looked.
    Damaged(u32),
    /// The database does not take it: any later record.
    Refused,
}

/// A copy of a record.
struct Made {
    file: Box<NewFile>,
    mark: Mark,
}

/// Frames that are gathered for one commit, and where they lead to.
struct Batch {
    mark: Mark,
    /// What they weigh ([`COMMIT_BYTES`]).
    weight: usize,
    /// What comes next does not follow.
    ends: Option<(Error, Stuck)>,
    /// More is known to be there.
    is_full: bool,
}

fn target(number: RecordNumber, why: impl std::fmt::Display) -> Error {
    Error::Target { number, why: why.to_string() }
}

impl Following {
    /// Takes the lock of a database, and reads how far it has come.
    ///
    /// # Errors
    /// In words: another follower works on it, a database without a mark stands there, or it follows
    /// another place.
    pub fn begin(world: World, settings: Settings) -> Result<Following, String> {
        let settings = Settings { database: resolved(&settings.database)?, ..settings };
        let lock = lock(&settings.database)?;
        let shown = settings.database.display();
        let mark = Mark::read(&settings.database)?;
        let there = std::fs::metadata(&settings.database).map(|meta| meta.len()).ok();
        let is_there = there.is_some();
        match &mark {
            // SQLite makes an empty file where a program opens the name too early.
            None if there.is_some_and(|bytes| bytes > 0) => {
                return Err(format!(
                    "{shown} is there, and follows nothing: choose a name that is free, so that no data is lost"
                ));
            }
            Some(mark) if mark.place != settings.place && is_there => {
                return Err(format!(
                    "{shown} follows {}: name that place, or choose another database",
                    mark.place
                ));
            }
            _ => {}
        }
        let reader = Reader::new(&world);
        // Behind a removal a program that opens the name leaves an empty file.
        let has_bytes = there.is_some_and(|bytes| bytes > 0);
        let mut following = Following {
            world,
            settings,
            mark: mark.filter(|mark| has_bytes || (is_there && mark.record == RecordNumber::NONE)),
            live: None,
            reader,
            flow: None,
            stuck: None,
            made: None,
            failures: 0,
            told: None,
            backoff: Backoff::default(),
            _lock: lock,
        };
        if following.mark.is_none() {
            following.begin_anew().map_err(|e| e.to_string())?;
        }
        Ok(following)
    }

    /// Nothing is there yet: whoever opens the name too early finds a replica, which is empty (NOTED-2).
    fn begin_anew(&mut self) -> Result<()> {
        self.leave();
        self.note(Mark::of_nothing(&self.settings.place), true)
    }

    /// Applies what is new, or copies the database anew, or waits.
    ///
    /// # Errors
    /// What a new start does not mend: [`Error::OtherChain`], [`Error::Replaced`]. Anything else is noted as trouble, and
    /// tried again.
    pub async fn step(&mut self) -> Result<Done> {
        self.look_at_file()?;
        let needs_copy = self.mark.as_ref().is_none_or(|mark| mark.seeding) || self.stuck.is_some();
        let done = match needs_copy {
            true => self.copy().await,
            false => self.follow().await,
        };
        match done {
            Ok(Done::Waited) => {
                let mut pause = self.settings.poll;
                if self.stuck.is_some() {
                    // Each look asks for more than the next record.
                    pause = pause.max(self.backoff.next(self.world.random()));
                }
                self.world.clock().sleep(pause).await;
                Ok(Done::Waited)
            }
            Ok(done) => {
                (self.backoff, self.failures, self.told) = (Backoff::default(), 0, None);
                self.world.note_no_trouble();
                Ok(done)
            }
            Err(error @ (Error::OtherChain { .. } | Error::Replaced(_))) => Err(error),
            Err(error) => {
                self.note_failure(&error);
                let pause = self.backoff.next(self.world.random()).max(self.settings.poll);
                self.world.clock().sleep(pause).await;
                let text = error.to_string();
                Ok(match self.told.replace(text.clone()) {
                    Some(told) if told == text => Done::Waited,
                    _ => Done::Stuck(text),
                })
            }
        }
    }

    /// Begins anew where the database was removed, and nowhere else.
    fn look_at_file(&mut self) -> Result<()> {
        let database = &self.settings.database;
        let is_gone = std::fs::metadata(database).map_or(true, |there| there.len() == 0);
        let has_any = self.mark.as_ref().is_some_and(|mark| mark.record > RecordNumber::NONE);
        if is_gone && has_any {
            return self.begin_anew();
        }
        match &self.live {
            Some(live) if !live.is_named(database) => Err(Error::Replaced(format!(
                "{} is another file than the one that followed",
                database.display()
            ))),
            _ => Ok(()),
        }
    }

    /// Finds out what leads on behind an error.
    fn note_failure(&mut self, error: &Error) {
        self.world.note_trouble(error);
        let stuck = match error {
            Error::Store { .. } | Error::Empty => return,
            Error::Target { .. } => {
                // A member of the session that comes anew knows more.
                self.leave();
                self.failures += 1;
                if self.failures < FAILURES {
                    return;
                }
                Stuck::Refused
            }
            _ => Stuck::Damaged(0),
        };
        self.stuck.get_or_insert(stuck);
    }

    /// Where the database is.
    pub fn mark(&self) -> Option<&Mark> {
        self.mark.as_ref()
    }

    fn live(&mut self) -> Result<&mut Live> {
        if self.live.is_none() {
            let number = self.mark.as_ref().map_or(RecordNumber::NONE, |mark| mark.record);
            let mark = self.mark.as_ref();
            let live =
                Live::join(&self.settings.database, mark.map_or((0, 0), |m| (m.salt.0, m.crc)));
            self.live = Some(live.map_err(|why| target(number, why))?);
            self.note_counter()?;
        }
        Ok(self.live.as_mut().expect("it was made"))
    }

    /// Compares the counter of the file with the mark's (NOTED-3), and notes it.
    fn note_counter(&mut self) -> Result<()> {
        let Some((live, mark)) = self.live.as_ref().zip(self.mark.clone()) else { return Ok(()) };
        if mark.seeding {
            return Ok(());
        }
        let counter = live.counter().map_err(|why| target(mark.record, why))?;
        if counter < mark.counter {
            return Err(Error::Replaced(format!(
                "{} is an older state of the replica than its mark tells of",
                self.settings.database.display()
            )));
        }
        // Behind a power cut it is not lower than the mark's.
        let is_on_disk = live.rests().map_err(|why| target(mark.record, why))?;
        let counter = if is_on_disk { counter } else { 0 };
        match counter == mark.counter {
            true => Ok(()),
            false => self.note(Mark { counter, ..mark }, false),
        }
    }

    /// Ends, so that the next start can tell whether it finds the same file.
    ///
    /// # Errors
    /// [`Error::Target`], [`Error::Replaced`].
    pub fn end(mut self) -> Result<()> {
        self.look_at_file()?;
        self.note_counter()
    }

    /// Leaves the session: what was taken and not committed is taken again.
    fn leave(&mut self) {
        (self.live, self.flow) = (None, None);
    }

    fn note(&mut self, mark: Mark, durably: bool) -> Result<()> {
        let number = mark.record;
        let written = mark.write(&self.settings.database, durably);
        written.map_err(|e| target(number, format!("cannot write its mark: {e}")))?;
        self.mark = Some(mark);
        Ok(())
    }

    async fn follow(&mut self) -> Result<Done> {
        let Some(mark) = self.mark.clone() else { return Ok(Done::Waited) };
        let before = mark.record;
        self.live()?;
        let batch = match self.gather(&mark).await {
            Ok(batch) => batch,
            Err(error) => {
                // What was taken is taken again.
                self.leave();
                return Err(error);
            }
        };
        let Batch { mark: reached, weight, ends, is_full } = batch;
        let must = mark.until.is_some_and(|until| reached.stream < until);
        if must && ends.is_none() {
            // The store does not show what it had: it comes back, or a copy does.
            self.leave();
            return Ok(Done::Waited);
        }
        if must {
            let (error, stuck) = ends.expect("it ends");
            self.stuck = Some(stuck);
            return Err(error);
        }
        if weight > 0 {
            self.note(Mark { until: Some(reached.stream), ..mark.clone() }, true)?;
            let number = reached.record;
            self.live()?.commit().map_err(|why| target(number, why))?;
        }
        if reached != mark {
            self.note(Mark { until: None, ..reached.clone() }, false)?;
        }
        if let Some((error, stuck)) = ends {
            self.stuck = Some(stuck);
            self.told = Some(error.to_string());
            return Ok(Done::Stuck(error.to_string()));
        }
        if is_full || reached.record > before {
            return Ok(Done::Applied(reached.record));
        }
        self.refuse_another_place().await?;
        Ok(Done::Waited)
    }

    /// Where the place has no record as late as the mark's, it was emptied, or is another one's.
    async fn refuse_another_place(&self) -> Result<()> {
        let Some(mark) = &self.mark else { return Ok(()) };
        if self.reader.listing().is_none_or(|listing| listing.highest() >= mark.record) {
            return Ok(());
        }
        let world = self.world.with(Patience::Tries(TRIES));
        let tip = crate::chain::find_tip(&world).await?.ok_or(Error::Empty)?;
        self.refuse_another_chain(tip.record.header.chain)?;
        let number = mark.record;
        if tip.record.header.number >= number {
            return Ok(());
        }
        Err(Error::Missing { number, name: crate::names::record(number) })
    }

    fn refuse_another_chain(&self, found: ChainId) -> Result<()> {
        match &self.mark {
            Some(mark) if mark.record > RecordNumber::NONE && mark.chain != found => {
                Err(Error::OtherChain { found, expected: mark.chain })
            }
            _ => Ok(()),
        }
    }

    /// Gathers frames for one commit, and hands them to the database.
    async fn gather(&mut self, from: &Mark) -> Result<Batch> {
        let until = from.until.unwrap_or(Lsn(0));
        let mark = Mark { until: None, ..from.clone() };
        let mut batch = Batch { mark, weight: 0, ends: None, is_full: false };
        loop {
            let number = batch.mark.record.next();
            let mut link = Link {
                chain: Some(from.chain),
                number: batch.mark.record,
                hash: Some(batch.mark.hash),
            };
            // Where later ones were listed, this one was removed.
            let is_sure = self.reader.listing().is_some_and(|listing| listing.highest() > number);
            let Found::Object(object) = self.reader.object(number, is_sure).await? else { break };
            let record = link.follow(&object)?;
            let is_whole = self.gather_record(&record, until, &mut batch)?;
            if batch.ends.is_some() || !is_whole {
                break;
            }
            let header = &record.header;
            batch.mark.record = number;
            batch.mark.hash = Hash::of(&object);
            batch.mark.written_ms = header.written_ms;
            batch.mark.commit = batch.mark.commit.max(header.position.commit);
            if batch.weight >= COMMIT_BYTES && batch.mark.stream >= until {
                batch.is_full = true;
                break;
            }
        }
        Ok(batch)
    }

    /// Takes what fits of a record; false if that is not all of it.
    fn gather_record(&mut self, record: &Record, until: Lsn, batch: &mut Batch) -> Result<bool> {
        let number = record.header.number;
        let segment_bytes = record.header.segment_bytes;
        let ends =
            |why: &str| Some((Error::Disorder { number, why: why.to_owned() }, Stuck::Begins));
        for item in &record.items {
            match item {
                Item::Open(open) if open.follows == Follows::Stream => {}
                Item::Open(open) if open.follows == Follows::Base && batch.weight > 0 => {
                    // Of another session: a commit of its own.
                    batch.is_full = true;
                    return Ok(false);
                }
                Item::Open(open) if open.follows == Follows::Base => self.renew(record, batch)?,
                Item::Open(_) | Item::Break(_) => {
                    batch.ends = ends("it begins anew there, and a snapshot is waited for");
                    return Ok(false);
                }
                Item::Pages(_) => {
                    batch.ends =
                        ends("it has pages of a transaction, and a snapshot is waited for");
                    return Ok(false);
                }
                Item::Merge(_) | Item::Snapshot(_) => {}
                Item::Frames(frames) => {
                    if !self.gather_frames((number, segment_bytes), frames, until, batch)? {
                        batch.is_full = true;
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Goes on in another session of the primary, over the same rows.
    fn renew(&mut self, record: &Record, batch: &mut Batch) -> Result<()> {
        let position = record.header.position;
        if position.salt == batch.mark.salt {
            return Ok(());
        }
        let stream = opened_at(&record.header);
        (batch.mark.salt, batch.mark.stream, batch.mark.crc) = (position.salt, stream, 0);
        batch.mark.commit = batch.mark.commit.max(position.commit);
        // Commits that were not shipped may lie between that and the first of this session.
        batch.mark.first = CommitTs(batch.mark.commit.0 + 1);
        self.leave();
        let live = Live::join(&self.settings.database, (position.salt.0, 0));
        self.live = Some(live.map_err(|why| target(record.header.number, why))?);
        Ok(())
    }

    fn gather_frames(
        &mut self,
        (number, segment_bytes): (RecordNumber, u32),
        frames: &Frames,
        until: Lsn,
        batch: &mut Batch,
    ) -> Result<bool> {
        if frames.end() <= batch.mark.stream {
            return Ok(true);
        }
        let there = batch.mark.stream.0.saturating_sub(frames.from.0) as usize;
        let mut rest = frames.bytes.slice(there..);
        let mut from = Lsn(frames.from.0 + there as u64);
        while !rest.is_empty() {
            let damaged = || target(number, "its frames have no lengths");
            let fitting = fitting(&rest, from, until, batch.weight).ok_or_else(damaged)?;
            let Fitting { bytes: fits, weight, commits } = fitting;
            if fits == 0 {
                return Ok(false);
            }
            let taken = Frames {
                generation: frames.generation,
                from,
                first_commit: commits.0,
                last_commit: commits.1,
                bytes: rest.split_to(fits),
            };
            let flow = self.flow.get_or_insert_with(|| flow_behind(&batch.mark, segment_bytes));
            flow.take(number, &Item::Frames(taken.clone()))?;
            let Position { stream, commit, crc, .. } = flow.position;
            self.live()?.take(&taken).map_err(|why| target(number, why))?;
            batch.weight += weight;
            if batch.mark.first > batch.mark.commit {
                batch.mark.first = commits.0;
            }
            (batch.mark.stream, batch.mark.commit, batch.mark.crc) = (stream, commit, crc);
            from = stream;
        }
        Ok(true)
    }

    /// Makes the database as it was at the newest record, if that is a later one (TRAIL-3).
    async fn copy(&mut self) -> Result<Done> {
        let made = match self.made.take() {
            Some(made) => Some(made),
            None => self.make().await?,
        };
        let Some(made) = made else {
            self.look_again();
            return Ok(Done::Waited);
        };
        let (mark, number) = (made.mark.clone(), made.mark.record);
        self.refuse_foreign()?;
        let before = self.mark.clone().unwrap_or_else(|| mark.clone());
        self.note(Mark { seeding: true, chain: mark.chain, ..before }, true)?;
        self.put(made)?;
        self.note(mark, true)?;
        self.leave();
        self.reader = Reader::new(&self.world);
        self.stuck = None;
        Ok(Done::Copied(number))
    }

    /// A program had the name open before this began, and has made a database of its own there.
    fn refuse_foreign(&self) -> Result<()> {
        let is_new = self.mark.as_ref().is_some_and(|mark| mark.chain == ChainId::default());
        let database = &self.settings.database;
        match std::fs::metadata(database) {
            Ok(there) if is_new && there.len() > 0 => Err(Error::Replaced(format!(
                "a program has made {} a database of its own meanwhile",
                database.display()
            ))),
            _ => Ok(()),
        }
    }

    /// A record that was damaged or missing may have been read badly.
    fn look_again(&mut self) {
        match &mut self.stuck {
            Some(Stuck::Damaged(looks)) if *looks == LOOKS => self.stuck = None,
            Some(Stuck::Damaged(looks)) => *looks += 1,
            _ => {}
        }
    }

    /// Gives the database the pages of a copy, or the copy the database's name. What it does not take is
    /// kept for another try.
    fn put(&mut self, made: Made) -> Result<()> {
        let number = made.mark.record;
        let database = self.settings.database.clone();
        let Ok(there) = std::fs::symlink_metadata(&database) else {
            return made.file.publish().map_err(|why| target(number, why));
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

    /// Restores the newest record beside the database; `None` if that is no later one than it has, or what
    /// led no further would be in the way of that, too.
    async fn make(&self) -> Result<Option<Made>> {
        let has = self.mark.as_ref().map_or(RecordNumber::NONE, |mark| mark.record);
        let world = self.world.with(Patience::Tries(TRIES));
        let tip = crate::chain::find_tip(&world).await?.ok_or(Error::Empty)?;
        let header = &tip.record.header;
        self.refuse_another_chain(header.chain)?;
        let leads_on = match self.stuck {
            None | Some(Stuck::Refused) => true,
            Some(Stuck::Begins | Stuck::Damaged(_)) => header.snapshot > has,
        };
        if header.number <= has || !leads_on {
            return Ok(None);
        }
        let database = &self.settings.database;
        let beside = match std::fs::symlink_metadata(database).is_ok() {
            true => with_suffix(database, ".copied"),
            false => database.clone(),
        };
        let opener = library::opener().ok_or_else(|| target(has, "out of memory"))?;
        let file = NewFile::begin(&beside, opener, self.world.random().number() as u32)
            .map_err(|e| target(has, format!("cannot make {}: {e}", beside.display())))?;
        let versions = library::versions();
        let ignored = &mut |_: Progress| {};
        let (restored, made) =
            restore(&world, Box::new(file), Stop::Newest, &versions, ignored).await?;
        let made: Box<dyn Any> = made;
        let mut file = made.downcast::<NewFile>().map_err(|_| target(has, "another target"))?;
        let mark = self.mark_of(&restored).await?;
        self.refuse_another_chain(mark.chain)?;
        if let Some(before) = &self.mark
            && before.salt == mark.salt
            && before.until.is_some_and(|until| until > mark.stream)
        {
            return Ok(None);
        }
        let failed = |why: &dyn std::fmt::Display| target(restored.record, why);
        file.settle().map_err(|why| failed(&why))?;
        if restored.differs {
            file.verify().map_err(|why| failed(&why))?;
        }
        Ok(Some(Made { file, mark }))
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
        // A snapshot names none.
        let commit = restored.position.commit.max(header.position.commit);
        let salt = restored.position.salt;
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
        })
    }

    /// The first commit since the sidecar began in the session of a record, if one of the next records
    /// has it. Those before may be of another session.
    async fn first_of(&self, reader: &mut Reader, header: &Header) -> Result<Option<CommitTs>> {
        let mut number = header.opened.next();
        for _ in 0..FIRST_RECORDS {
            if number > header.number {
                break;
            }
            let Found::Object(object) = reader.object(number, true).await? else { break };
            let Ok(record) = Record::decode(&object) else { break };
            let first = record.items.iter().find_map(|item| match item {
                Item::Frames(frames) => Some(frames.first_commit),
                _ => None,
            });
            if first.is_some() {
                return Ok(first);
            }
            number = number.next();
        }
        Ok(None)
    }
}

/// Whole frames that fit into a commit.
struct Fitting {
    bytes: usize,
    weight: usize,
    /// The first and the last.
    commits: (CommitTs, CommitTs),
}

/// What fits into a commit that weighs so much already. All frames through `until` do.
fn fitting(frames: &Bytes, from: Lsn, until: Lsn, weight: usize) -> Option<Fitting> {
    let mut fits = Fitting { bytes: 0, weight: 0, commits: (CommitTs(0), CommitTs(0)) };
    while fits.bytes < frames.len() {
        let (length, rows, commit) = frame_at(&frames[fits.bytes..])?;
        let is_announced = Lsn(from.0 + (fits.bytes + length) as u64) <= until;
        let heavier = fits.weight + length + rows as usize * NODE_OVERHEAD_BYTES;
        if weight + heavier > COMMIT_BYTES && weight + fits.weight > 0 && !is_announced {
            break;
        }
        fits.commits = (if fits.bytes == 0 { commit } else { fits.commits.0 }, commit);
        (fits.bytes, fits.weight) = (fits.bytes + length, heavier);
    }
    Some(fits)
}

/// The order of frames behind a mark. Generations of merges are not known here.
fn flow_behind(mark: &Mark, segment_bytes: u32) -> Flow {
    let &Mark { salt, stream, commit, crc, .. } = mark;
    Flow::new(Position { salt, base: Generation(0), stream, commit, crc }, segment_bytes)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The database under its own name, as the library names the files beside it.
fn resolved(database: &Path) -> Result<PathBuf, String> {
    let failed = |e: std::io::Error| format!("cannot follow in {}: {e}", database.display());
    if std::fs::symlink_metadata(database).is_ok() {
        return std::fs::canonicalize(database).map_err(failed);
    }
    let database = std::path::absolute(database).map_err(failed)?;
    let name = database.file_name().ok_or_else(|| "that is no name of a file".to_owned())?;
    let folder = database.parent().unwrap_or(Path::new("/"));
    Ok(std::fs::canonicalize(folder).map_err(failed)?.join(name))
}

/// TRAIL-4.
fn lock(database: &Path) -> Result<File, String> {
    let path = follows_lock_path(database);
    let say = |e: &dyn std::fmt::Display| format!("cannot lock {}: {e}", path.display());
    let options = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = options.map_err(|e| say(&e))?;
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_named(&file, &path) => return Ok(file),
            // A promotion has removed it, or a look at it is under way.
            Ok(()) => return Err(format!("{} was promoted just now", database.display())),
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_NAP),
            Err(e) => return Err(say(&e)),
        }
    }
    Err(format!("another process lets {} follow already: end that first", database.display()))
}

fn is_named(file: &File, path: &Path) -> bool {
    let own = file.metadata().map(|meta| (meta.dev(), meta.ino())).ok();
    own.is_some() && own == std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok()
}
