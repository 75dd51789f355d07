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
//! - TRAIL-4 One follower works on a database: it holds a lock for as long as it lives. A lock that lost its name,
//!   by `rm`, keeps nobody else away: it is looked at in each step, before the mark is written, and in the critical
//!   section of each commit (REPLICA-6), and taken anew only where the whole replica was removed. What a replica has left
//!   whose file alone was removed goes under it, too. While it cannot be
//!   looked at nothing is committed, and nothing is taken for removed.
//!
//! Behind that last look a second follower may take a new lock. It finds `until` or `seeding` in the mark, joins the
//! session, and commits when this one has given the writer's right back: then it reaches `until`, or copies the database.
//! It notes its own marks behind this one's, for which both take the commit mutex. Before the first session there
//! is none: a name is given once, to the first copy, and the loser's mark is replaced by the winner's next one.

mod copying;
mod counter;
mod failed;
mod gathering;
mod keeping;
mod live;
pub mod mark;
mod place;
mod putting;
mod stuck;
mod taken;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plait_engine::storage::making::{COPIED, remove_copies};
use plait_engine::storage::names::follows_lock_path;

use self::failed::Failed;
use self::gathering::Batch;
pub use self::live::{Live, Unjoined};
use self::mark::Mark;
use self::putting::{Made, Put};
pub use self::stuck::said;
use self::stuck::{By, Stuck, is_said};
use self::taken::refuse_taken;
use crate::chain::{Flow, Reader};
use crate::error::{Error, Result};
use crate::ids::RecordNumber;
use crate::new_file::refuse_long_name;
use crate::store::Backoff;
use crate::world::{Patience, World};

/// Between two tries of what the database did not take.
const TARGET_PAUSE: Duration = Duration::from_secs(1);
/// Between two tries of what failed, however rarely it is looked for what is new.
const POLL_MAX: Duration = Duration::from_secs(10);
/// Between two looks for a folder that is not there.
const GONE_PAUSE: Duration = Duration::from_millis(500);
/// Whoever asks whether a follower runs has its lock for a moment.
const LOCK_TRIES: u32 = 10;
const LOCK_NAP: Duration = Duration::from_millis(50);
/// How often a store is asked for a copy before that is begun anew.
const TRIES: u32 = 6;

/// What a replica has beside its file, apart from its mark and its lock. A journal is none of it.
const BESIDE: [&str; 7] =
    ["-wal", "-shm", "-plait", "-plait-shm", "-plait-pages", "-plait-super", "-plait-new"];

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
    /// What was said last is still in the way.
    StillStuck,
}

/// A follower.
pub struct Following {
    world: World,
    settings: Settings,
    mark: Option<Mark>,
    live: Option<Live>,
    /// The file of the database, as it was seen last: device and inode.
    file: Option<(u64, u64)>,
    /// The counter of its base when it was last looked at, 0 if that was not on disk.
    counter: u32,
    reader: Reader,
    /// Of what was taken; none before the first record.
    flow: Option<Flow>,
    stuck: Option<Stuck>,
    /// The place has its chain, as it was seen since the start.
    has_looked: bool,
    /// A copy that the database did not take yet.
    made: Option<Made>,
    /// A copy that is in its place, and could not be noted.
    put: Option<Put>,
    /// The last copy that could not be made.
    failed: Option<Failed>,
    /// Failures of the database in a row.
    failures: u32,
    /// An object that the store does not give, and since when.
    unanswered: Option<(String, Duration)>,
    /// Objects that it has not given for long, while it gave others.
    silent: BTreeSet<String>,
    /// The last trouble that was told.
    told: Option<Error>,
    backoff: Backoff,
    /// Between looks for a snapshot, each of which asks for more than the next record.
    rarely: Backoff,
    // Held for as long as this lives (TRAIL-4).
    lock: Arc<File>,
}

fn target(number: RecordNumber, why: impl std::fmt::Display) -> Error {
    Error::Target { number, why: why.to_string(), is_full: false }
}

impl Following {
    /// Takes the lock of a database, and reads how far it has come.
    ///
    /// # Errors
    /// [`Error::Taken`]: another follower works on it, a database without a mark stands there, or it follows
    /// another place. [`Error::Target`]: its lock or its mark cannot be written. [`Error::Unseen`].
    pub fn begin(world: World, settings: Settings) -> Result<Following> {
        let refused = Error::Taken;
        let settings =
            Settings { database: resolved(&settings.database).map_err(refused)?, ..settings };
        // A database of somebody else's gets no lock beside it.
        refuse_taken(&settings)?;
        let lock = lock(&settings.database)?;
        let mark = refuse_taken(&settings)?;
        remove_copies(&settings.database);
        let there = bytes_of(&settings.database)?;
        let is_there = there.is_some();
        // Behind so many failures it is said, and tried again.
        let world = world.with(Patience::Tries(TRIES));
        let reader = Reader::new(&world);
        // Behind a removal a program that opens the name leaves an empty file.
        let has_bytes = there.is_some_and(|bytes| bytes > 0);
        let is_new = !mark
            .as_ref()
            .is_some_and(|mark| has_bytes || (is_there && mark.record == RecordNumber::NONE));
        let has_any = mark.as_ref().is_some_and(|mark| mark.record > RecordNumber::NONE);
        let database = &settings.database;
        let named = std::fs::metadata(database).map_err(|e| unseen(database, &e));
        let file = (has_any && has_bytes).then_some(named).transpose()?.as_ref().map(of);
        let mut following = Following {
            world,
            settings,
            mark,
            live: None,
            file,
            counter: 0,
            reader,
            flow: None,
            stuck: None,
            has_looked: false,
            made: None,
            put: None,
            failed: None,
            failures: 0,
            unanswered: None,
            silent: BTreeSet::new(),
            told: None,
            backoff: Backoff::default(),
            rarely: Backoff::rare(),
            lock: Arc::new(lock),
        };
        if is_new {
            following.begin_anew()?;
        }
        Ok(following)
    }

    /// Removes what a replica has left whose file alone was removed: its mark and its lock are there, so all of it was made
    /// by followers, from what is at their place. A mark of nothing does not tell whose it is.
    fn remove_left(&self) -> Result<()> {
        let database = &self.settings.database;
        let had_any = self.mark.as_ref().is_some_and(|mark| mark.record > RecordNumber::NONE);
        if !(had_any || self.file.is_some())
            || plait_engine::replica::look(database) != Some(true)
            || bytes_of(database)?.is_some()
        {
            return Ok(());
        }
        for suffix in BESIDE {
            let path = with_suffix(database, suffix);
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    let why = format!("cannot remove {}: {e}", path.display());
                    return Err(target(RecordNumber::NONE, why));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Nothing is there yet: whoever opens the name too early finds a replica, which is empty (NOTED-2).
    fn begin_anew(&mut self) -> Result<()> {
        self.leave();
        // It was made beside the file that is gone, under another name.
        (self.made, self.put, self.failed) = (None, None, None);
        self.follow_again();
        if !self.has_lock()? {
            // It was removed with the rest.
            self.lock = Arc::new(lock(&self.settings.database)?);
        }
        self.remove_left()?;
        self.file = None;
        self.note(Mark::of_nothing(&self.settings.place), true)
    }

    /// Applies what is new, or copies the database anew, or waits.
    ///
    /// # Errors
    /// What a new start does not mend: [`Error::OtherChain`], [`Error::Replaced`], [`Error::Taken`]. Anything else is
    /// noted as trouble, and tried again.
    pub async fn step(&mut self) -> Result<Done> {
        let done = self.step_on().await;
        self.tell_replaced(done.as_ref().err());
        done
    }

    async fn step_on(&mut self) -> Result<Done> {
        let done = match self.try_step().await {
            // The database refuses whoever has lost it: that is said once, as what it is.
            Err(error @ Error::Target { .. }) => Err(self.lost_database().unwrap_or(error)),
            done => done,
        };
        match done {
            Ok(Done::Waited) => {
                // What fails next is new, also where it has failed so before.
                (self.told, self.unanswered) = (None, None);
                let mut pause = self.settings.poll;
                let done = match self.stuck.as_ref().map(|stuck| stuck.why.clone()) {
                    None => {
                        self.tell(None);
                        (self.backoff, self.rarely) = (Backoff::default(), Backoff::rare());
                        Done::Waited
                    }
                    Some(why) => {
                        // What was told last may be over, as an outage of the store.
                        self.tell(Some(&why));
                        pause = pause.max(self.rarely.next(self.world.random()));
                        Done::StillStuck
                    }
                };
                self.world.clock().sleep(pause).await;
                Ok(done)
            }
            Ok(done) => {
                match &done {
                    Done::Stuck(why) => self.tell(Some(&why.clone())),
                    _ => self.tell(None),
                }
                (self.backoff, self.rarely) = (Backoff::default(), Backoff::rare());
                (self.failures, self.unanswered, self.told) = (0, None, None);
                Ok(done)
            }
            // The mark beside the name may be another file's.
            Err(error @ (Error::Replaced(_) | Error::Taken(_))) => Err(error),
            Err(error @ Error::OtherChain { .. }) => {
                self.tell(Some(&said(&error)));
                Err(error)
            }
            Err(error) => {
                self.note_failure(&error).await;
                let text = said(&error);
                self.tell(Some(&text));
                let pause = match error {
                    // Each look whether a copy can be made asks for some objects.
                    Error::Uncopied { .. } | Error::Moment(_) => {
                        self.rarely.next(self.world.random())
                    }
                    Error::Target { .. } if self.lacks_copy() => {
                        self.rarely.next(self.world.random())
                    }
                    // Nothing is asked of the store.
                    Error::Target { .. } | Error::Unseen(_) => TARGET_PAUSE,
                    // Nor of a folder that is not there.
                    _ if error.is_gone() => GONE_PAUSE,
                    // Records are waited for that come one by one.
                    Error::Behind { .. } => self.rarely.next(self.world.random()),
                    _ => self.backoff.next(self.world.random()),
                };
                self.world.clock().sleep(pause.max(self.settings.poll.min(POLL_MAX))).await;
                Ok(match self.told.replace(error) {
                    Some(told) if is_said(&told, self.told.as_ref()) => Done::StillStuck,
                    _ => Done::Stuck(text),
                })
            }
        }
    }

    async fn try_step(&mut self) -> Result<Done> {
        self.look_at_file()?;
        let done = match self.needs_copy() {
            true => self.copy().await,
            false => self.follow().await,
        };
        match done {
            // It was removed meanwhile, and no other file has come: the next step begins it anew.
            Err(Error::Replaced(_)) if self.is_gone() => Ok(Done::Waited),
            done => done,
        }
    }

    fn needs_copy(&self) -> bool {
        self.mark.as_ref().is_none_or(|mark| mark.seeding.is_some()) || self.stuck.is_some()
    }

    fn lacks_copy(&self) -> bool {
        self.needs_copy() && self.made.is_none() && self.put.is_none()
    }

    /// Where the database is.
    pub fn mark(&self) -> Option<&Mark> {
        self.mark.as_ref()
    }

    fn join(&mut self, number: RecordNumber, behind: (u32, u32)) -> Result<()> {
        let (lock, path) = (Arc::clone(&self.lock), follows_lock_path(&self.settings.database));
        let still = Box::new(move || is_named(&lock, &path).unwrap_or(false));
        let live = Live::join(&self.settings.database, behind, still);
        let live = live.map_err(|why| self.unjoined(number, why))?;
        // Another file may have come since the last look.
        if self.file.is_some_and(|file| file != live.file()) {
            return Err(self.another_file());
        }
        self.file = Some(live.file());
        self.live = Some(live);
        Ok(())
    }

    fn unjoined(&self, number: RecordNumber, why: Unjoined) -> Error {
        match why {
            Unjoined::Promoted => self.promoted(),
            Unjoined::Apart => Error::Replaced(format!(
                "{} and the files beside it do not belong together: an older copy of it was put there, or another file, or one of \
                 those beside it was removed",
                self.settings.database.display()
            )),
            Unjoined::Failed(why) => target(number, why),
        }
    }

    fn live(&mut self) -> Result<&mut Live> {
        if self.live.is_none() {
            let number = self.mark.as_ref().map_or(RecordNumber::NONE, |mark| mark.record);
            let behind = self.mark.as_ref().map_or((0, 0), |mark| (mark.salt.0, mark.crc));
            self.join(number, behind)?;
            self.note_counter()?;
        }
        Ok(self.live.as_mut().expect("it was made"))
    }

    /// Ends, so that the next start can tell whether it finds the same file.
    ///
    /// # Errors
    /// [`Error::Target`], [`Error::Replaced`].
    pub fn end(mut self) -> Result<()> {
        let ended = self.look_at_file().and_then(|()| self.note_counter());
        self.tell_replaced(ended.as_ref().err());
        ended
    }

    /// Leaves the session: what was taken and not committed is taken again.
    fn leave(&mut self) {
        (self.live, self.flow) = (None, None);
    }

    /// Forgets what was taken and not committed, and stays in the session: it is taken again.
    fn forget(&mut self) {
        self.flow = None;
        if let Some((live, mark)) = self.live.as_mut().zip(self.mark.as_ref()) {
            live.forget((mark.salt.0, mark.crc));
        }
    }

    async fn follow(&mut self) -> Result<Done> {
        // It may note the file's counter.
        self.live()?;
        let Some(mark) = self.mark.clone() else { return Ok(Done::Waited) };
        let before = mark.record;
        let batch = match self.gather(&mark).await {
            Ok(batch) => batch,
            Err(error) => {
                self.forget();
                return Err(match error {
                    Error::Unlinked { .. } if self.is_forked(&mark).await? => {
                        Error::Forked { number: before }
                    }
                    error => error,
                });
            }
        };
        let Batch { mark: reached, weight, ends, is_full } = batch;
        let must = mark.until.is_some_and(|until| reached.stream < until);
        if must && ends.is_none() {
            // The store does not show what it had: it comes back, or a copy does.
            self.forget();
            self.look_at_place(mark.record).await?;
            let number = reached.record.next();
            return Err(Error::Withheld { number, name: crate::names::record(number) });
        }
        if must {
            self.forget();
            let (error, by) = ends.expect("it ends");
            self.stuck = Some(Stuck { by, why: error.to_string() });
            return Err(error);
        }
        let mut counter = reached.counter;
        if weight > 0 {
            self.note(Mark { until: Some(reached.stream), ..mark.clone() }, true)?;
            let number = reached.record;
            self.keep_lock()?;
            self.live()?.commit().map_err(|why| target(number, why))?;
            if !self.has_file().unwrap_or(false) {
                // The next step says so. The mark beside that name is not of this file.
                return Ok(Done::Waited);
            }
            counter = self.counter_to_be(&mark)?;
        }
        if reached != mark {
            self.note(Mark { until: None, counter, ..reached.clone() }, false)?;
        }
        if let Some((error, by)) = ends {
            let why = error.to_string();
            self.stuck = Some(Stuck { by, why: why.clone() });
            return Ok(Done::Stuck(why));
        }
        if is_full || reached.record > before {
            return Ok(Done::Applied(reached.record));
        }
        self.refuse_another_place().await?;
        Ok(Done::Waited)
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Bytes of a file, `None` if nothing has the name. Where that cannot be found out, something may have it.
fn bytes_of(database: &Path) -> Result<Option<u64>> {
    match std::fs::metadata(database) {
        Ok(there) => Ok(Some(there.len())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(unseen(database, &e)),
    }
}

fn unseen(path: &Path, error: &std::io::Error) -> Error {
    Error::Unseen(format!("{}: {error}", path.display()))
}

/// The database under its own name, as the library names the files beside it.
fn resolved(database: &Path) -> Result<PathBuf, String> {
    let failed = |e: std::io::Error| format!("cannot follow in {}: {e}", database.display());
    if let Ok(there) = std::fs::symlink_metadata(database) {
        return std::fs::canonicalize(database).map_err(|e| match there.is_symlink() {
            true if e.kind() == std::io::ErrorKind::NotFound => format!(
                "{} is a symbolic link to what is not there: name the database itself, or remove the link",
                database.display()
            ),
            _ => failed(e),
        });
    }
    let database = std::path::absolute(database).map_err(failed)?;
    let name = database.file_name().ok_or_else(|| "that is no name of a file".to_owned())?;
    if let Some(why) = refuse_long_name(&database, COPIED) {
        return Err(format!("cannot follow in {}: {why}", database.display()));
    }
    let folder = database.parent().unwrap_or(Path::new("/"));
    Ok(std::fs::canonicalize(folder).map_err(failed)?.join(name))
}

/// TRAIL-4.
fn lock(database: &Path) -> Result<File> {
    let path = follows_lock_path(database);
    // What the disk did not take it may take later.
    let say = |e: &dyn std::fmt::Display| {
        target(RecordNumber::NONE, format!("cannot lock {}: {e}", path.display()))
    };
    let taken = |what| Err(Error::Taken(format!("{} {what}", database.display())));
    let options = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = options.map_err(|e| say(&e))?;
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => match is_named(&file, &path) {
                Ok(true) => return Ok(file),
                // A promotion has removed it, or a look at it is under way.
                Ok(false) => return taken("was promoted just now"),
                Err(e) => return Err(unseen(&path, &e)),
            },
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_NAP),
            Err(e) => return Err(say(&e)),
        }
    }
    taken("follows already, by another process: end that first")
}

/// False if another file has the name, or none has. Where that cannot be found out, it may have it still.
fn is_named(file: &File, path: &Path) -> std::io::Result<bool> {
    has_name(path, of(&file.metadata()?))
}

/// Device and inode.
fn of(file: &std::fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

fn has_name(path: &Path, file: (u64, u64)) -> std::io::Result<bool> {
    match std::fs::metadata(path) {
        Ok(there) => Ok(of(&there) == file),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::stage::Stage;

    #[test]
    fn what_cannot_be_looked_at_is_not_taken_for_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.db");
        assert_eq!(bytes_of(&file), Ok(None));
        let lock = File::create(folder.path().join("lock")).expect("a file");
        assert!(!is_named(&lock, &file).expect("there is none"));
        std::fs::write(&file, b"bytes").expect("a file");
        assert_eq!(bytes_of(&file), Ok(Some(5)));
        // As for a folder that may not be searched, which root may: other errors than that there is nothing.
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&link, &link).expect("a link");
        for other in [file.join("below"), link, folder.path().join("a".repeat(300))] {
            let error = bytes_of(&other).expect_err("something else").to_string();
            assert!(error.contains("cannot look at "), "{error}");
            assert!(is_named(&lock, &other).is_err(), "nobody knows");
        }
    }

    #[test]
    fn what_a_replica_has_left_whose_file_was_removed_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let database = folder.path().join("a.db");
        let left = || BESIDE.map(|suffix| with_suffix(&database, suffix).exists());
        let begin = |record| {
            let mark = Mark { record: RecordNumber(record), ..Mark::of_nothing("/mnt/place") };
            mark.write(&database, false).expect("a mark");
            for suffix in BESIDE.into_iter().chain(["-journal"]) {
                std::fs::write(with_suffix(&database, suffix), b"of before").expect("a file");
            }
            let (world, _clock) = Stage::default().world(Patience::Tries(3));
            let settings = Settings {
                place: "/mnt/place".to_owned(),
                database: database.clone(),
                poll: TARGET_PAUSE,
            };
            Following::begin(world, settings).expect("it begins")
        };
        // Nothing tells whose they are.
        drop(begin(0));
        assert_eq!(left(), [true; 7]);
        // While the file is there they are its own.
        std::fs::write(&database, b"bytes").expect("a file");
        let mut following = begin(7);
        assert_eq!(left(), [true; 7]);
        // As when it is removed under a follower that runs.
        std::fs::remove_file(&database).expect("it is there");
        following.look_at_file().expect("it begins anew");
        assert_eq!(left(), [false; 7]);
        drop(following);
        let following = begin(7);
        assert_eq!(left(), [false; 7]);
        assert!(with_suffix(&database, "-journal").exists(), "no replica has one");
        assert_eq!(following.mark().map(|mark| mark.record), Some(RecordNumber::NONE));
    }

    #[test]
    fn a_lock_that_cannot_be_made_is_tried_again_and_nobody_elses() {
        let folder = tempfile::tempdir().expect("a folder");
        for database in [folder.path().join("nowhere/a.db"), folder.path().join("a".repeat(250))] {
            let error = lock(&database).expect_err("there is no place for it");
            assert!(matches!(error, Error::Target { .. }), "{error}");
        }
    }
}
