//! The start and the end of a session on a base file.
//!
//! The first process decides by what it finds (all of it: docs/recovery.md). A frame is newer if
//! its generation is above the base's. A base is fenced if its bytes 18 and 19 are 3. Memory is
//! trusted if it is not an older copy of itself (moment.rs).
//!
//! Any base:
//! - Older than the note of it in a log of its salt: error. Its WAL, or the file itself, was
//!   removed or replaced by an older one (moment.rs).
//!
//! A fenced base and trusted memory, both of one salt:
//! - Memory resting, log empty: the session continues. The author of its fence died before it
//!   recorded the fence in memory.
//! - Memory lowered, its own log or none: the base has everything. It is unfenced, the log is
//!   removed, a new session begins (upkeep/fence.rs).
//! - Memory not poisoned, its own log: the session continues. Nothing is lost, under NORMAL too
//!   (FILE-6).
//! - Memory not in doubt (a lost or failed log leaves no doubt); another log, none, or a failed
//!   one: one transaction merges what only memory has and unfences the base (restore.rs). Then as
//!   for a resting base.
//!
//! A resting base, memory not trusted:
//! - Log in use by a process: error. The database file of that process was deleted or replaced.
//! - No log: new session.
//! - Log without newer frames, or empty: the stale log is removed; new session.
//! - Log of the same salt with newer frames: error. The file is an older copy, made while the fence
//!   was lowered (upkeep/fence.rs), or another program unfenced it.
//! - Log of another salt with frames: it is put aside, with memory that is its own, and the opening
//!   starts again (aside.rs, FILE-3).
//!
//! A fenced base, memory not trusted:
//! - No log: error that names `plait recover --accept-base` (FILE-3).
//! - Log of another salt: error, a foreign log (FILE-3).
//! - Log damaged before synced bytes: error, corrupt (FILE-5).
//! - Log of the same salt: its newer frames are merged, with the frames of a ring of that salt that
//!   continue them (log/moment.rs). The base is unfenced, the log removed, a new session begins.
//!
//! Invariants
//! - SESSION-1 (FILE-2) The base is unfenced only in a transaction after the one that merged the
//!   last frame of a log, or in the one that merges what only memory has.
//! - SESSION-2 (FILE-4) Recovery may be cut off at any point, any number of times. The last
//!   recovery leaves what the first would have left without the cut.
//! - SESSION-3 (FILE-2) Before a commit can be in the log alone, the fence is on disk in the
//!   database file itself, not only in its WAL. It is raised in the file only when the log, and the
//!   fence in the WAL, are on disk. So the file without log and WAL is refused, and no crash leaves
//!   a fence in the file without a log or a WAL that goes with it. The fence stays in the file
//!   until the log has nothing that the base lacks.
//!
//! Why SESSION-2 holds. Recovery writes nothing to the log. It commits to the base twice, then
//! removes the log. Each step is durable before the next begins, and after a crash a commit of the
//! base is there or is not. So a crash leaves the next opening one of these states:
//! - Base and log as they were: it does the same, which depends on these two, and on a ring that is
//!   unchanged or gone.
//! - Base *stamped* (fenced, with the number of the newest generation of which the log has
//!   anything), log as it was: it finds nothing above the base's generation, anywhere in the file,
//!   and continues with the unfencing.
//! - Base *resting* (stamped, without the fence), log as it was, or its removal not on disk: it
//!   finds nothing above the base's generation, and removes the log.
//! - Base resting, log removed: it begins a session.
//!
//! The stamp is the newest generation of all because the log may hold more than is replayed. If a
//! group that was never synced is torn in one generation, whole segments of later generations may
//! be intact. With only the generation of the last replayed frame stamped, the next opening would
//! take those segments for the start of the log, over a base that lacks the torn frames. With the
//! newest generation stamped, everything in the file counts as merged, whether replayed or dropped.
//! This does not rely on reading the same bytes twice: in a sector that reads differently later,
//! every frame and every segment still has a generation that counts as merged, as long as the first
//! reading saw that generation or a later one. Frames of the next session have another salt.
//!
//! An *unseen* commit of the base neither counts nor is gone. SQLite writes all frames of a commit
//! to the WAL before it records in the WAL-index that they count. A process that dies or fails in
//! between leaves a commit that no connection sees while the WAL-index exists, and that appears
//! when the WAL-index is made anew. A fence that comes or goes at that moment, behind later work,
//! destroys the database. So a transaction that changes nothing overwrites an unseen commit
//! (`bury_unseen`):
//! - A fence taken down would put commits of the continued session into the log of a resting base.
//!   Overwritten before a session continues that another process had begun to end, or that could
//!   not end itself.
//! - A fence raised would fence a base whose session is over and whose log is removed. Overwritten
//!   by the process that settles what a dead merger left, before a log is removed from a resting
//!   base, and by its author if raising it failed.
//! - A merge would do nothing: its rows were committed, and the next merge overwrites it.
//!   Overwritten with the others.
//! - An exclusive transaction that was refused, or never ended, would count: see
//!   `database/orphans.rs`.
//!
//! If the log ends with a prepared exclusive transaction that was committed, the base gets its
//! pages in place of rows (pages.rs). The pages go into the base in the transaction that stamps it,
//! and only over a base that has everything before them. Their file is removed after the log.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use crate::base::{Base, BaseHeader, Checkpoint};
use crate::crash_point;

use crate::error::{Error, Result, leaves_doubt};
use crate::fault;
use crate::ids::{Generation, Root};
use crate::log::{
    DEFAULT_SLOT_LIMIT, Frame, LogError, LogFile, LogFileParams, LogParams, LogScan, OpKind, Ops,
    PagesId, SEGMENT_BYTES, Tail, slot_offset,
};
use crate::pages::{self, Pages};
use crate::random;
use crate::several::{self, Verdict};
use crate::shm::fork::{LockFile, Locked, NO_PROC};
use crate::shm::layout::{
    ARENA_BYTES, FIRST_RECENT, LOG_IN_USE_LOCK, RECENT_COMMITS, RING_BYTES, WINDOW_BYTES, fence,
    generation, owner,
};
use crate::shm::locks;
use crate::shm::region::{BaseIdentity, Region};
use crate::storage::names::{NAME_BYTES_MAX, log_path, suffixed};
use crate::storage::os::{OsFile, OsStorage};
use crate::storage::{FileIdentity, Storage as _, side};
use crate::sync::clock::exact_unix_ms;
use crate::sync::wait;

pub mod aside;
pub mod moment;
pub(crate) mod restore;

/// Default limit of the base's WAL, in bytes, at which a slow reader makes commits fail.
pub const DEFAULT_WAL_LIMIT_BYTES: u64 = 1 << 30;
/// How long a killed process may still have the log after it is no longer a member: the kernel
/// closes its files one after the other, and may be delayed in between.
pub const DEATH_MAX: Duration = Duration::from_millis(500);
const DEATH_NAP: Duration = Duration::from_millis(5);
/// Bytes of the log stream that a new log file has room for.
const FIRST_LOG_BYTES: u64 = 32 << 10;

/// How a session has begun, or why it has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    /// The base was at rest.
    AtRest,
    /// The base was not at rest; what had been committed was in the log, or else in shared memory.
    Recovered { from_log: bool },
    /// It has not. The files next to a resting base of this salt do not belong to it: the caller
    /// first puts them aside ([`aside::put`]).
    IsAnothers { salt: u32 },
}

/// Makes the shared memory ready for use. The caller holds the lifecycle lock and no other process
/// is alive. `trusted`: processes of this boot left the shared memory, and all of them died.
pub(crate) fn begin(
    region: &Region,
    identity: BaseIdentity,
    path: &Path,
    base: &mut dyn Base,
    trusted: bool,
) -> Result<Begun> {
    let header = base.header()?;
    let said = region.control().fence.load(Acquire);
    let is_fenced = said != fence::RESTING;
    if trusted && said == fence::FENCED && header.fence_in_wal_alone {
        return Err(Error::Replaced(path.to_owned()));
    }
    moment::refuse_older_base(path, &header)?;
    let (layout, log) = (region.layout(), log_path(path));
    let is_outdated =
        header.fenced && moment::is_outdated(layout, &log, header.salt, header.generation);
    let trusted = trusted && !is_outdated;
    let (mut header, mut is_restored) = (header, false);
    if trusted && continues(region, base, &header)? {
        bury_or_leave(region, base)?;
        region.note_burial(header.generation);
        if moment::has_its_log(layout, &log, header.generation) {
            return Ok(Begun::Recovered { from_log: false });
        }
        restore::restore(region, path, base)?;
        is_restored = true;
        header = base.header()?;
    }
    if trusted && said == fence::LOWERED && restore::has_it_all(region, &header) {
        // A lowered session is not continued, and needs no log (FENCE-1 in upkeep/fence.rs).
        bury_or_leave(region, base)?;
        restore::restore(region, path, base)?;
        header = base.header()?;
    }
    if trusted && is_fenced && restore::has_ended(region, &header) {
        // Settling would refuse the remains of a damaged log.
        base.sync_lowered()?;
        restore::remove_own_log(region, path, None)?;
    }
    if !header.marked {
        return Err(Error::Left);
    }
    check_generation(path, header.generation)?;
    if header.fenced {
        region.refuse_left_by_another(identity, header.salt)?;
    }
    let tail = if header.fenced { region.tail(header.salt) } else { None };
    let is_alone = !aside::is_of_another(region, &header);
    let Some(at_rest) = (if is_alone { bring_to_rest(path, base, header, tail)? } else { None })
    else {
        refuse_used_log(path)?;
        return Ok(Begun::IsAnothers { salt: header.salt });
    };
    set_up(region, &at_rest)?;
    region.publish(identity)?;
    let was_open = is_restored || header.fenced;
    Ok(if was_open { Begun::Recovered { from_log: !is_restored } } else { Begun::AtRest })
}

/// Refuses a generation that no file reaches: such a number was forged, and others would follow it.
fn check_generation(path: &Path, generation: Generation) -> Result<()> {
    if generation.get() <= u32::MAX >> 1 {
        return Ok(());
    }
    let text = format!("{} states generation {generation}, which cannot be", path.display());
    Err(Error::Corrupt(text))
}

/// True if surviving shared memory goes with the base as it is.
fn continues(region: &Region, base: &mut dyn Base, header: &BaseHeader) -> Result<bool> {
    let c = region.control();
    let resting = c.fence.load(Acquire) == fence::RESTING;
    let same = header.salt == c.salt.load(Relaxed);
    if resting {
        // Nothing was committed in this session. If its author died before it recorded the fence,
        // the fence is the session's own.
        let own = header.marked && same && header.fenced;
        if own {
            base.raise_fence()?;
            // As in `Database::note_fence`.
            region.layout().gaps.forget();
            region.log().forget_named_wal();
            c.fence_cookie.store(header.cookie, Relaxed);
            c.fence.store(fence::FENCED, Release);
        }
        return Ok(own);
    }
    if region.log().is_in_doubt() {
        return Ok(false);
    }
    if header.fenced && same && header.generation.get() >= c.base_generation.load(Relaxed) {
        // A lowered session has nothing that the base lacks (FENCE-1 in upkeep/fence.rs), and does
        // not know what others have done since its processes died.
        return Ok(c.fence.load(Acquire) == fence::FENCED);
    }
    // A resting base too: a copy made while the fence was lowered earlier (upkeep/fence.rs).
    let is_older = header.generation.get() < c.base_generation.load(Relaxed);
    if same && (is_older || restore::has_unmerged(region, header.generation)) {
        return Err(Error::CantOpen(
            "the database file is an older state of itself: the file or its -wal was removed, \
             emptied or replaced while it, or the -plait and -plait-shm files, held its last \
             commits; put back the newest file and its -wal, or accept the older state with \
             `plait recover --accept-base` (it asks; --yes answers)"
                .into(),
        ));
    }
    Ok(false)
}

/// Brings base and log to rest, as the list above says for memory that is not trusted. `None`: the
/// base is at rest, and the log has commits and is of another file.
fn bring_to_rest(
    path: &Path,
    base: &mut dyn Base,
    header: BaseHeader,
    tail: Option<Tail>,
) -> Result<Option<BaseHeader>> {
    if header.fenced {
        let alone = claim_log(path, true)?;
        let header = replay(path, base, header, tail)?;
        crash_point!("recovery.merged");
        if fault::is_planted("log.removed_early") {
            remove_log(path, alone.as_ref().and_then(identity_of))?;
        }
        unfence(base)?;
        crash_point!("recovery.unfenced");
        remove_log(path, alone.as_ref().and_then(identity_of))?;
        crash_point!("recovery.log_removed");
        return Ok(Some(BaseHeader { fenced: false, ..header }));
    }
    let log = log_path(path);
    refuse_used_log(path)?;
    let there = at(&log)?;
    match LogScan::open(&OsStorage, &log, header.salt, header.generation) {
        Err(LogError::Missing { .. }) | Err(LogError::Foreign { has_frames: false, .. }) => {}
        // Removing an empty file loses nothing.
        Err(LogError::NotALog { .. }) if is_empty(&log) => {}
        Err(LogError::Foreign { .. }) => return Ok(None),
        Err(e) => return Err(e.into()),
        Ok(mut scan) => {
            let mut newer = 0u64;
            scan.replay(|_| {
                newer += 1;
                Ok::<(), Error>(())
            })?;
            if newer > 0 {
                return Err(Error::CantOpen(format!(
                    "{} holds {newer} commits that are not in the database file: the file is an \
                     older copy of itself, from before a checkpoint, or another program has \
                     changed its journal mode; put back the newest database file and its -wal, or \
                     accept this one as it is with `plait recover --accept-base {}` (it asks; \
                     --yes answers)",
                    log.display(),
                    path.display()
                )));
            }
        }
    }
    bury_unseen(base)?;
    if there.is_some() {
        // It may be the log of a session that had lowered its fence (FENCE-7).
        base.sync_lowered()?;
    }
    remove_log(path, there)?;
    Ok(Some(header))
}

/// True if the log is an empty file of an owner that may write the database.
fn is_empty(log: &Path) -> bool {
    side::open(log, false).and_then(|file| file.metadata()).is_ok_and(|meta| meta.len() == 0)
}

/// Returns the identity of the file at a path.
fn at(path: &Path) -> Result<Option<FileIdentity>> {
    OsStorage
        .identity_at(path)
        .map_err(|e| Error::io(format!("cannot look at {}", path.display()), &e))
}

/// Returns the identity of an open file; `None` if it cannot be read.
pub(crate) fn identity_of(file: &LockFile) -> Option<FileIdentity> {
    file.metadata().ok().map(|m| (m.dev(), m.ino()))
}

/// Records that this process uses the log, until the returned file is closed. `exclusive`: no other
/// process may use it.
///
/// A live session holds the lock shared. So a recovery next to a session whose shared memory file
/// was removed finds it taken, for longer than a process takes to die.
pub(crate) fn claim_log(path: &Path, exclusive: bool) -> Result<Option<LockFile>> {
    let log = log_path(path);
    let say = |e: &std::io::Error| Error::io(format!("cannot lock the log {}", log.display()), e);
    let file = match LockFile::open(|| side::open(&log, true)) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => {
            return Err(match side::refusal(&e) {
                Some(why) => LogError::NotALog { path: log, why }.into(),
                None => say(&e),
            });
        }
        Ok(file) => file,
    };
    // Members call this wherever they need the log, with locks held: they do not wait.
    let locked = if exclusive {
        outlasts_deaths(|| locks::try_lock(&file, LOG_IN_USE_LOCK))
    } else {
        locks::try_lock_shared(&file, LOG_IN_USE_LOCK)
    };
    if locked.map_err(|e| say(&e))? {
        return Ok(Some(file));
    }
    Err(Error::CantOpen(format!(
        "{} is in use, but its shared memory file is not: that file was removed or replaced while \
         processes have the database open; close them, then open the database again",
        log.display()
    )))
}

/// Waits until a lock is free; false if it stays taken for longer than a process takes to die.
fn outlasts_deaths(mut is_free: impl FnMut() -> std::io::Result<bool>) -> std::io::Result<bool> {
    let ask = || is_free().map(|free| free.then_some(()));
    wait::until(DEATH_MAX, DEATH_NAP, ask).map(|free| free.is_some())
}

/// Fails if processes use a log next to a base that needs none: they have the database file that
/// was here before.
///
/// # Errors
/// `CantOpen`, in words.
pub fn refuse_used_log(path: &Path) -> Result<()> {
    let log = log_path(path);
    let free = side::open(&log, false).and_then(|file| {
        outlasts_deaths(|| locks::is_locked_elsewhere(&file, LOG_IN_USE_LOCK).map(|used| !used))
    });
    // If the log cannot be read, the caller that reads it reports why.
    if free.unwrap_or(true) {
        return Ok(());
    }
    Err(Error::CantOpen(format!(
        "{} is in use by processes that still have the former database file open, which was \
         deleted or replaced; leave the log alone, close those processes, then try again",
        log.display()
    )))
}

fn say_missing(path: &Path, log: &Path, salt: u32) -> Error {
    let (log, path_shown) = (log.display(), path.display());
    if let Some(aside) = aside::of_salt(path, salt) {
        return Error::CantOpen(format!(
            "{log} is missing: it was renamed to {} when another database file was found here, \
             and holds commits that are not in the database file yet; rename it back, with the \
             files that were renamed with it, or accept the database as it is with `plait recover \
             --accept-base {path_shown}` (it asks; --yes answers)",
            aside.display()
        ));
    }
    Error::CantOpen(format!(
        "{log} is missing: it holds commits that are not in the database file yet; put it back, or accept the \
         database as it is with `plait recover --accept-base {path_shown}` (it asks; --yes answers). If the file is a copy or a second name of a database in \
         use: use the database under its first name, and copy it with .backup or VACUUM INTO, or with its -wal and -plait \
         from one snapshot"
    ))
}

/// Merges the newer frames of the log, and the tail that continues them, into the fenced base.
fn replay(
    path: &Path,
    base: &mut dyn Base,
    header: BaseHeader,
    tail: Option<Tail>,
) -> Result<BaseHeader> {
    let log = log_path(path);
    let (salt, merged) = (header.salt, header.generation);
    let mut scan = match LogScan::open_continued(&OsStorage, &log, salt, merged, tail) {
        Err(LogError::Missing { .. }) => return Err(say_missing(path, &log, salt)),
        other => other?,
    };
    // SESSION-3: the file has the fence from before the first commit until the base has them all.
    if header.fence_in_wal_alone && scan.summary().newest > header.generation {
        return Err(Error::Replaced(path.to_owned()));
    }
    // The same stamp gives up what the log holds beyond its end.
    let through = header.generation.max(scan.summary().newest);
    let mut redone = Redone::default();
    scan.replay(|frame| {
        redone.note(frame);
        Ok::<(), Error>(())
    })?;
    let decided = redone.decided(path, &header)?;
    if through == header.generation {
        return Ok(header);
    }
    check_generation(&log, through)?;
    let merged = BaseHeader { generation: through, ..header };
    in_transaction(base, |base| {
        decided.put(path, base)?;
        crash_point!("recovery.applied");
        base.stamp(&merged)
    })?;
    Ok(merged)
}

/// The newest record of each key; true if it is a deletion.
pub(crate) type Newest = BTreeMap<(Root, Vec<u8>), (bool, Vec<u8>)>;

/// The result of frames read one after the other.
#[derive(Default)]
struct Redone {
    newest: Newest,
    /// The last frame, if it is prepared.
    undecided: Option<Undecided>,
}

/// A prepared transaction: the name of its super-journal, and its rows or pages.
struct Undecided {
    name: Vec<u8>,
    generation: Generation,
    rows: Newest,
    pages: Option<PagesId>,
}

/// The content that goes into the base: rows, or the pages of an exclusive transaction.
struct Decided {
    rows: Newest,
    pages: Option<Pages>,
}

impl Redone {
    fn note(&mut self, frame: &Frame<'_>) {
        // A frame that follows a prepared transaction has resolved it.
        self.undecided = frame.prepared().map(|(mark, rows)| {
            let mut would = Newest::new();
            note_rows(&mut would, rows);
            let (name, generation) = (mark.name.to_vec(), frame.generation);
            Undecided { name, generation, rows: would, pages: mark.pages }
        });
        note_rows(&mut self.newest, frame.ops());
    }

    /// Adds the last transaction if its super-journal says that it was committed, over a base with
    /// this header.
    fn decided(self, path: &Path, base: &BaseHeader) -> Result<Decided> {
        let mut decided = Decided { rows: self.newest, pages: None };
        // For an exclusive transaction the base shows that it has it (EXCL-2).
        let is_there =
            |last: &Undecided| last.pages.is_some() && base.generation >= last.generation;
        if let Some(last) = self.undecided.filter(|last| !is_there(last))
            && several::verdict(path, &last.name)? == Verdict::Committed
        {
            decided.rows.extend(last.rows);
            if let Some(id) = last.pages {
                decided.pages = Some(pages::open(path, &id, base.salt, last.generation)?);
            }
        }
        Ok(decided)
    }
}

impl Decided {
    /// Writes into a base that is in a write transaction.
    fn put(&self, path: &Path, base: &mut dyn Base) -> Result<()> {
        match &self.pages {
            None => put_all(base, &self.rows),
            Some(pages) if self.rows.is_empty() => pages.put(path, base),
            // The pages were made over a base with all rows, which an older one has replaced.
            Some(_) => Err(Error::Replaced(path.to_owned())),
        }
    }
}

fn put_all(base: &mut dyn Base, newest: &Newest) -> Result<()> {
    for ((root, key), (is_tombstone, rec)) in newest {
        if *is_tombstone {
            base.delete(*root, key, rec)?;
        } else {
            base.put(*root, key, rec)?;
        }
    }
    Ok(())
}

pub(crate) fn note_rows(newest: &mut Newest, rows: Ops<'_>) {
    for op in rows {
        let record = (op.kind == OpKind::Tombstone, op.rec.to_vec());
        newest.insert((op.root, op.key.to_vec()), record);
    }
}

pub(crate) fn in_transaction<T>(
    base: &mut dyn Base,
    f: impl FnOnce(&mut dyn Base) -> Result<T>,
) -> Result<T> {
    base.begin()?;
    match f(base) {
        Ok(value) => base.commit().map(|()| value),
        Err(e) => {
            base.rollback();
            Err(e)
        }
    }
}

/// Overwrites what the WAL holds beyond its index, so that it never counts: a transaction that
/// changes nothing takes the same frames.
pub(crate) fn bury(base: &mut dyn Base) -> Result<()> {
    in_transaction(base, |base| {
        let header = base.header()?;
        base.stamp(&header)
    })
}

/// Buries an unseen commit if the WAL has one. No other process of a session writes to the base.
pub(crate) fn bury_unseen(base: &mut dyn Base) -> Result<()> {
    if fault::is_planted("fence.unseen") || !base.has_unseen_commit()? {
        return Ok(());
    }
    bury(base)
}

/// Buries an unseen commit before a session continues. If that fails, on a full disk for example,
/// the commit is left to be settled (database/orphans.rs): until then others may read, but no
/// connection commits or writes to the base.
fn bury_or_leave(region: &Region, base: &mut dyn Base) -> Result<()> {
    let Err(e) = bury_unseen(base) else { return Ok(()) };
    let c = region.control();
    let right = c.right_owner.load(Relaxed);
    if leaves_doubt(&e) || (right != 0 && right != owner::UNSETTLED) {
        return Err(e);
    }
    c.right_owner.store(owner::UNSETTLED, Relaxed);
    // Last (ESTATE-1). Settling what a dead holder left buries this commit too.
    if c.merge_owner.load(Relaxed) == 0 {
        c.merge_owner.store(owner::UNSETTLED_MERGE, Relaxed);
    }
    Ok(())
}

/// Makes the base an ordinary SQLite file again. Everything is merged (SESSION-1).
pub(crate) fn unfence(base: &mut dyn Base) -> Result<()> {
    let through = base.header()?.generation;
    unfence_through(base, through)
}

/// Unfences the base and stamps it as complete through this generation.
fn unfence_through(base: &mut dyn Base, through: Generation) -> Result<()> {
    rest(base, through, |_| Ok(()))
}

/// Unfences the base in one transaction with what `complete` puts into it.
fn rest(
    base: &mut dyn Base,
    through: Generation,
    complete: impl FnOnce(&mut dyn Base) -> Result<()>,
) -> Result<()> {
    in_transaction(base, |base| {
        complete(base)?;
        let header = base.header()?;
        let generation = header.generation.max(through);
        base.stamp(&BaseHeader { fenced: false, generation, ..header })
    })?;
    crash_point!("rest.committed");
    // The last close empties the WAL, alone with the file (belongs.rs), or leaves it to the next who opens it.
    match base.checkpoint(Checkpoint::Passive) {
        Err(e) if e.spares_wal() => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Removes the log of a base that no longer needs it: the file `meant`, if that is still at its
/// path.
pub(crate) fn remove_log(path: &Path, meant: Option<FileIdentity>) -> Result<()> {
    LogFile::remove(&OsStorage, &log_path(path), meant).map_err(Error::from)?;
    // Everything prepared in the log is resolved, or given up.
    several::forget(path);
    Ok(())
}

/// Accepts the base as it is and gives up commits that are only in the log. No process has the
/// database open. `is_replaced`: the file is not of this session, and may be anything.
pub fn accept_base(path: &Path, base: &mut dyn Base, is_replaced: bool) -> Result<()> {
    let header = base.header()?;
    if !header.marked && !is_replaced {
        return Err(Error::CantOpen(format!("{} is not in concurrent mode", path.display())));
    }
    // The stamp makes the log stale. A log that cannot be read, or is not of this base, is given up
    // unread: if its removal fails, the next opening refuses it as before, and accepting is
    // repeated.
    let there = at(&log_path(path))?;
    let through = LogScan::newest_generation(&OsStorage, &log_path(path), header.salt)
        .unwrap_or(Generation::ZERO);
    if header.fenced || through > header.generation {
        unfence_through(base, through)?;
    }
    remove_log(path, there)
}

/// Timestamps that one generation can use.
const TIMESTAMPS_PER_GENERATION: u64 = 1 << 24;
/// Least bytes of a memtable that a commit takes.
const LEAST_COMMIT_BYTES: u64 = 32;
const _: () = assert!(ARENA_BYTES as u64 / LEAST_COMMIT_BYTES < TIMESTAMPS_PER_GENERATION / 16);

/// Timestamps of a millisecond: more commits than a session can make in one on average.
const TIMESTAMPS_PER_MILLISECOND: u64 = 1 << 10;

/// Returns the timestamp of the base's content for a session that begins now with generation
/// `first`: above those of all earlier sessions while the clock advances, two of one tick too; on
/// machines without a clock, above those that have left a generation behind.
fn first_timestamp(first: Generation) -> u64 {
    let by_generation = u64::from(first.get()) * TIMESTAMPS_PER_GENERATION + 1;
    by_generation.max(exact_unix_ms().saturating_mul(TIMESTAMPS_PER_MILLISECOND))
}

/// Fills the shared memory of a new session over a resting base.
fn set_up(region: &Region, header: &BaseHeader) -> Result<()> {
    region.reset()?;
    let ring_space = region.allocate_ring()?;
    if !region.allocate_arena(0)? {
        return Err(Error::Busy(
            "a process is still making the shared memory of an earlier session".into(),
        ));
    }
    let c = region.control();
    // Differs from the last salt, so that a leftover log is never taken for the log of this
    // session.
    let salt = std::iter::repeat_with(random::salt).find(|salt| *salt != header.salt);
    let salt = salt.expect("an endless iterator");
    let first = header.generation.get() + 1;
    c.salt.store(salt, Relaxed);
    c.base_generation.store(header.generation.get(), Relaxed);
    // The timestamp of everything in the base.
    let first_ts = first_timestamp(Generation::new(first));
    c.visible_ts.store(first_ts, Relaxed);
    c.readable_ts.store(first_ts, Relaxed);
    c.first_ts.store(first_ts, Relaxed);
    // If zeros were written for the whole ring, they were written for these entries too
    // (`Region::reset`).
    let is_whole = ring_space == RING_BYTES as u64;
    let recent = if is_whole { RECENT_COMMITS } else { FIRST_RECENT };
    c.recent_allocated.store(recent as u32, Relaxed);
    c.wal_limit_bytes.store(DEFAULT_WAL_LIMIT_BYTES, Relaxed);
    c.background_merge.store(1, Relaxed);
    let slot = &c.generations[0];
    region.format_arena(0);
    slot.number.store(first, Relaxed);
    slot.state.store(generation::ACTIVE, Relaxed);
    region.init_log(&LogParams {
        salt,
        ring_bytes: RING_BYTES as u64,
        window_bytes: WINDOW_BYTES,
        segment_bytes: SEGMENT_BYTES,
        ring_space,
        prepared_bytes: FIRST_LOG_BYTES,
        slot_limit: DEFAULT_SLOT_LIMIT,
    });
    region.log().begin_timestamps(first_ts);
    c.applied_lsn.store(region.log().log_end().get(), Relaxed);
    Ok(())
}

/// Creates the log file of the session. It replaces a log that holds nothing.
pub(crate) fn create_log(region: &Region, path: &Path) -> Result<LogFile> {
    let meta = std::fs::metadata(path)
        .map_err(|e| Error::io(format!("cannot look at {}", path.display()), &e))?;
    let params = LogFileParams {
        salt: region.log().salt(),
        base_identity: (meta.dev(), meta.ino()),
        mode: meta.mode() & 0o777,
        prepared_bytes: FIRST_LOG_BYTES,
        segment_bytes: SEGMENT_BYTES,
    };
    let note = |file| region.log().note_file(file);
    let wal = OsStorage.identity_at(&suffixed(path, "-wal")).ok().flatten();
    let created = LogFile::create(&OsStorage, &log_path(path), &params, note)?;
    if let Some(wal) = wal {
        // Creating the log synced the folder, which has both names.
        region.log().note_wal_named(wal);
    }
    Ok(created)
}

/// Opens the log file of a session that has one. It uses the claim on the log if the claimed file
/// is the one at the path.
pub(crate) fn open_log(
    region: &Region,
    path: &Path,
    claim: Option<&Arc<LockFile>>,
) -> Result<LogFile, LogError> {
    let path = log_path(path);
    let salt = region.log().salt();
    let file = match claim.filter(|claim| side::is_named(claim, &path)) {
        Some(claim) => LogFile::opened(Box::new(OsFile(Locked(claim.clone()))), &path, salt)?,
        None => LogFile::open(&OsStorage, &path, salt)?,
    };
    if file.identity()? != region.log().file_identity() {
        return Err(LogError::Lost { path });
    }
    Ok(file)
}

/// Fails if `path` lies on a network file system.
pub fn refuse_network(path: &Path) -> Result<()> {
    crate::filesystem::refuse_network(path)
}

/// Fails if `path` cannot have a session, which a process that works alone would learn only when
/// another comes: on a network file system, for a file mounted without its folder, for too long a
/// name, for the limits of this process, or without /proc.
pub fn refuse_place(path: &Path) -> Result<()> {
    crate::filesystem::refuse_network(path)?;
    crate::filesystem::refuse_lone_mount(path)?;
    if path.file_name().is_some_and(|name| name.len() > NAME_BYTES_MAX) {
        return Err(Error::CantOpen(format!(
            "the name of {} has more than {NAME_BYTES_MAX} bytes: the names of the files next to \
             it would be too long",
            path.display()
        )));
    }
    let needed_bytes = slot_offset(DEFAULT_SLOT_LIMIT, SEGMENT_BYTES);
    if let Some(limit_bytes) = OsStorage.file_size_limit().filter(|&limit| limit < needed_bytes) {
        let path = log_path(path);
        return Err(Error::CantOpen(
            LogError::FileSizeLimit { path, limit_bytes, needed_bytes }.to_string(),
        ));
    }
    if !LockFile::can_reopen() {
        return Err(Error::CantOpen(NO_PROC.into()));
    }
    Ok(())
}

/// Returns the salt for a conversion to concurrent mode, or why it is refused.
pub fn enable_check(path: &Path) -> Result<u32> {
    refuse_place(path)?;
    refuse_used_log(path)?;
    let log = log_path(path);
    match LogScan::open(&OsStorage, &log, 0, Generation::ZERO) {
        Err(LogError::Missing { .. }) | Err(LogError::Foreign { has_frames: false, .. }) => {
            Ok(random::salt())
        }
        // The log is of another database file, or of this one from before it left the mode by other
        // means: it is put aside when the session begins.
        Err(LogError::Foreign { .. }) | Ok(_) => Ok(random::salt()),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests;
