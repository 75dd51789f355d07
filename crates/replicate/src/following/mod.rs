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

pub use self::live::Live;
use self::mark::Mark;
use crate::apply::{Progress, frame_at};
use crate::chain::{Flow, Found, Link, Reader};
use crate::error::{Error, Result};
use crate::ids::{CommitTs, Generation, Hash, Lsn, Position, RecordNumber};
use crate::library;
use crate::new_file::NewFile;
use crate::record::{Follows, Frames, Item, Record, header_of};
use crate::restore::{Restored, Stop, restore};
use crate::store::Backoff;
use crate::world::{Patience, World};

/// Frames of one commit, at most, unless one of the primary's is longer. A transaction of 7 MiB fits into a
/// memtable.
const COMMIT_BYTES: usize = 4 << 20;
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
    /// Why the chain leads no further.
    stuck: Option<Error>,
    backoff: Backoff,
    // Held for as long as this lives (TRAIL-4).
    _lock: File,
}

/// Frames that are gathered for one commit, and where they lead to.
struct Batch {
    mark: Mark,
    bytes: usize,
    /// What comes next does not follow.
    ends: Option<Error>,
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
        let lock = lock(&settings.database)?;
        let shown = settings.database.display();
        let mark = Mark::read(&settings.database)?;
        let is_there = std::fs::symlink_metadata(&settings.database).is_ok();
        match &mark {
            None if is_there => {
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
        let mark = mark.filter(|_| is_there);
        let reader = Reader::new(&world);
        Ok(Following {
            world,
            settings,
            mark,
            live: None,
            reader,
            flow: None,
            stuck: None,
            backoff: Backoff::default(),
            _lock: lock,
        })
    }

    /// Applies what is new, or copies the database anew, or waits.
    ///
    /// # Errors
    /// What a new start does not mend: [`Error::OtherChain`]. Anything else is noted as trouble, and
    /// tried again.
    pub async fn step(&mut self) -> Result<Done> {
        let needs_copy = self.mark.as_ref().is_none_or(|mark| mark.seeding) || self.stuck.is_some();
        let done = match needs_copy {
            true => self.copy().await,
            false => self.follow().await,
        };
        match done {
            Ok(Done::Waited) => {
                self.world.clock().sleep(self.settings.poll).await;
                Ok(Done::Waited)
            }
            Ok(done) => {
                self.backoff = Backoff::default();
                self.world.note_no_trouble();
                Ok(done)
            }
            Err(error @ Error::OtherChain { .. }) => Err(error),
            Err(error) => {
                self.world.note_trouble(&error);
                if let Error::Target { .. } = error {
                    // Whatever it is, a member of the session that comes anew knows more.
                    self.leave();
                }
                let is_new = self.stuck.is_none();
                if !matches!(error, Error::Store { .. } | Error::Target { .. } | Error::Empty)
                    && is_new
                {
                    self.stuck = Some(error.clone());
                }
                let pause = self.backoff.next(self.world.random()).max(self.settings.poll);
                self.world.clock().sleep(pause).await;
                Ok(match is_new {
                    true => Done::Stuck(error.to_string()),
                    false => Done::Waited,
                })
            }
        }
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
        }
        Ok(self.live.as_mut().expect("it was made"))
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
        let Batch { mark: reached, bytes, ends, is_full } = batch;
        let must = mark.until.is_some_and(|until| reached.stream < until);
        if must && ends.is_none() {
            // The store does not show what it had: it comes back, or a copy does.
            self.leave();
            return Ok(Done::Waited);
        }
        if must {
            let why = "it ends before what a commit here may have had".to_owned();
            return Err(ends.unwrap_or(Error::Disorder { number: reached.record, why }));
        }
        if bytes > 0 {
            self.note(Mark { until: Some(reached.stream), ..mark.clone() }, true)?;
            let number = reached.record;
            self.live()?.commit().map_err(|why| target(number, why))?;
        }
        if reached != mark {
            self.note(Mark { until: None, ..reached.clone() }, false)?;
        }
        if let Some(ends) = ends {
            self.stuck = Some(ends.clone());
            return Ok(Done::Stuck(ends.to_string()));
        }
        Ok(match is_full || reached.record > before {
            true => Done::Applied(reached.record),
            false => Done::Waited,
        })
    }

    /// Gathers frames for one commit, and hands them to the database.
    async fn gather(&mut self, from: &Mark) -> Result<Batch> {
        let until = from.until.unwrap_or(Lsn(0));
        let mark = Mark { until: None, ..from.clone() };
        let mut batch = Batch { mark, bytes: 0, ends: None, is_full: false };
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
            if batch.bytes >= COMMIT_BYTES && batch.mark.stream >= until {
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
        let ends = |why: &str| Some(Error::Disorder { number, why: why.to_owned() });
        for item in &record.items {
            match item {
                Item::Open(open) if open.follows == Follows::Stream => {}
                Item::Open(open) if open.follows == Follows::Base && batch.bytes > 0 => {
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
        (batch.mark.salt, batch.mark.stream, batch.mark.crc) = (position.salt, position.stream, 0);
        batch.mark.commit = batch.mark.commit.max(position.commit);
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
            let (fits, commits) = fitting(&rest, from, until, batch.bytes).ok_or_else(damaged)?;
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
            batch.bytes += fits;
            (batch.mark.stream, batch.mark.commit, batch.mark.crc) = (stream, commit, crc);
            from = stream;
        }
        Ok(true)
    }

    /// Makes the database as it was at the newest record, if that is a later one (TRAIL-3).
    async fn copy(&mut self) -> Result<Done> {
        let before = self.mark.clone();
        let has = before.as_ref().map_or(RecordNumber::NONE, |mark| mark.record);
        let database = self.settings.database.clone();
        let is_there = std::fs::symlink_metadata(&database).is_ok();
        let beside = match is_there {
            true => with_suffix(&database, ".copied"),
            false => database.clone(),
        };
        if is_there {
            // Of a follower that was killed.
            let _ = std::fs::remove_file(&beside);
        }
        let (restored, file) = self.restored(&beside, has).await?;
        let Some((restored, mut file)) = restored.zip(file) else { return Ok(Done::Waited) };
        let mark = self.mark_of(&restored).await?;
        if let Some(before) = &before
            && before.chain != mark.chain
        {
            return Err(Error::OtherChain { found: mark.chain, expected: before.chain });
        }
        let failed = |why: &dyn std::fmt::Display| target(restored.record, why);
        file.settle().map_err(|why| failed(&why))?;
        if restored.differs {
            file.verify().map_err(|why| failed(&why))?;
        }
        let announced = Mark { seeding: true, ..before.unwrap_or_else(|| mark.clone()) };
        self.note(announced, true)?;
        if is_there {
            let made = file.keep();
            let copied =
                self.live().and_then(|live| live.copy_from(&made).map_err(|why| failed(&why)));
            let _ = std::fs::remove_file(&made);
            copied?;
        } else {
            file.make_read_only().map_err(|why| failed(&why))?;
            file.publish().map_err(|why| failed(&why))?;
        }
        self.note(mark, true)?;
        self.leave();
        self.reader = Reader::new(&self.world);
        self.stuck = None;
        Ok(Done::Copied(restored.record))
    }

    /// Restores the newest record beside the database; nothing, if that is no later one than it has.
    async fn restored(
        &self,
        beside: &Path,
        has: RecordNumber,
    ) -> Result<(Option<Restored>, Option<Box<NewFile>>)> {
        let world = self.world.with(Patience::Tries(TRIES));
        let tip = crate::chain::find_tip(&world).await?.ok_or(Error::Empty)?;
        let is_later = tip.record.header.number > has;
        // What is in the way of the newest record may be in the way of a copy, too: it is not begun
        // before a snapshot leads on from there.
        let leads_on = self.stuck.is_none() || tip.record.header.snapshot > has;
        if !is_later || !leads_on {
            return Ok((None, None));
        }
        let opener = library::opener().ok_or_else(|| target(has, "out of memory"))?;
        let file = NewFile::begin(beside, opener, self.world.random().number() as u32)
            .map_err(|e| target(has, format!("cannot make {}: {e}", beside.display())))?;
        let versions = library::versions();
        let ignored = &mut |_: Progress| {};
        let (restored, made) =
            restore(&world, Box::new(file), Stop::Newest, &versions, ignored).await?;
        let made: Box<dyn Any> = made;
        let file = made.downcast::<NewFile>().map_err(|_| target(has, "another target"))?;
        Ok((Some(restored), Some(file)))
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
        Ok(Mark {
            place: self.settings.place.clone(),
            chain: header.chain,
            record: number,
            salt: restored.position.salt,
            // A snapshot names none.
            commit: restored.position.commit.max(header.position.commit),
            written_ms: header.written_ms,
            hash: Hash::of(&object),
            stream: restored.position.stream,
            crc: restored.position.crc,
            until: None,
            seeding: false,
        })
    }
}

/// How many bytes of whole frames fit into a commit that has `bytes` already, with the first and the last
/// commit in them. All through `until` do.
fn fitting(
    frames: &Bytes,
    from: Lsn,
    until: Lsn,
    bytes: usize,
) -> Option<(usize, (CommitTs, CommitTs))> {
    let (mut end, mut commits) = (0, (CommitTs(0), CommitTs(0)));
    while end < frames.len() {
        let (length, commit) = frame_at(&frames[end..])?;
        let is_announced = Lsn(from.0 + (end + length) as u64) <= until;
        let all = bytes + end + length;
        if all > COMMIT_BYTES && bytes + end > 0 && !is_announced {
            break;
        }
        commits = (if end == 0 { commit } else { commits.0 }, commit);
        end += length;
    }
    Some((end, commits))
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
