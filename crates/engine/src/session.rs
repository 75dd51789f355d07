//! Beginning and ending a live session on a base file.
//!
//! What the first process finds, and what it does (the table of docs/recovery.md). "Newer" means frames of a
//! generation above the base's; fenced is bytes 18/19 of the base = 3; trusted memory is no older copy of itself (moment.rs).
//!
//! | base | shared memory | log | done |
//! |---|---|---|---|
//! | older than the log's note of it says | any | same salt | error: its WAL, or the file itself, was removed or replaced by an older one (moment.rs) |
//! | fenced, same salt | trusted, resting | empty | the session goes on: the author of its fence died before it said so |
//! | fenced, same salt | trusted, lowered | its own, or none | it has everything: unfenced, and the log removed; new session (upkeep/fence.rs) |
//! | fenced, same salt | trusted, not poisoned | its own | the session goes on: nothing is lost, under NORMAL too (FILE-6) |
//! | fenced, same salt | trusted, not in doubt, or for a log that is lost or has failed | any other, or none; any, if it has failed | what is only in memory is merged, the base unfenced in the same transaction (restore.rs), and then as for a resting one |
//! | resting | not trusted | in use by a process | error: its database file was deleted or replaced |
//! | resting | not trusted | absent | new session |
//! | resting | not trusted | no newer frames, or empty | stale log removed, new session |
//! | resting | not trusted | newer frames, same salt | error: it is an older copy, from behind a checkpoint (upkeep/fence.rs), or was unfenced by someone else |
//! | resting | not trusted | frames, other salt | it is put aside, with memory that is its own, and the opening begun anew (aside.rs, FILE-3) |
//! | fenced | not trusted | absent | error naming `plait recover --accept-base` (FILE-3) |
//! | fenced | not trusted | other salt | error: foreign log (FILE-3) |
//! | fenced | not trusted | damaged before something synced | error: corrupt (FILE-5) |
//! | fenced | not trusted | same salt | newer frames, and what a ring of the same salt continues them with (log/moment.rs), merged, base unfenced, log removed, new session |
//!
//! Invariants
//! - SESSION-1 (FILE-2) The base is unfenced only in a transaction after the one that merged the last frame of a log, or in the one that merges what
//!   only memory has.
//! - SESSION-2 (FILE-4) Recovery may be cut off at any point, any number of times, and what the last of them leaves is what the
//!   first would have left, had it not been cut off.
//! - SESSION-3 (FILE-2) Before a commit can lie in the log alone the fence is on disk in the database file itself, and not only in its
//!   WAL; and it is raised there only when the log and the fence in the WAL are on disk. So the file without the
//!   others is refused, and no crash leaves a fence in the file without a log or a WAL that goes with it. It stays there until the log has
//!   nothing that the base lacks.
//!
//! Why SESSION-2 holds. Recovery writes nothing to the log; it commits to the base twice and removes the log at last, each
//! durably before the next is begun, and a commit of the base is there after a crash or is not. So a crash leaves one of
//!
//! | base | log | the next opening |
//! |---|---|---|
//! | as it was | as it was | does the same: what it does depends on these two, and on a ring that is as it was, or is gone |
//! | *stamped*: fenced, with the number of the newest generation of which anything lies in the log | as it was | finds nothing above the base's generation, anywhere in the file, and goes on with the unfencing |
//! | *resting*: as stamped, without the fence | as it was, or its removal is not on disk | finds nothing above the base's generation, and removes it |
//! | resting | removed | begins a session |
//!
//! The stamp is what matters: the log may hold more than what is replayed. Of a group that was never synced and is torn in
//! one generation, whole segments of later generations may stand. If only the generation of the last frame replayed were
//! stamped, the next opening would take those for the beginning of the log, over a base that lacks what was torn. Stamped
//! with the newest of all, everything in the file counts as merged, what was dropped as well as what was
//! replayed. That does not rest on reading the same bytes twice: of a sector that reads differently later every frame and every
//! segment is still of a generation that counts as merged, as long as the first reading saw one of that generation or a
//! later one. Frames of the next session lie under another salt.
//!
//! A commit of the base that is *unseen* is neither. SQLite writes all frames of a commit to the WAL before it says in the WAL-index that
//! they count. Who is killed, or fails, in between leaves a commit that nobody sees as long as somebody has the WAL-index, and
//! that is there when it is made anew. A fence that comes or goes then, behind what was done since, is the end of the database:
//!
//! | unseen | what it would do later | so it is written over by a transaction that changes nothing (`bury_unseen`) |
//! |---|---|---|
//! | a fence taken down | commits of the session that went on lie in the log of a resting base | before a session goes on that somebody else had begun to end, or that itself could not end |
//! | a fence raised | a base is fenced whose session is over, and its log removed | by who settles what a dead merger left, before a log is removed from a resting base, and by its author if that failed |
//! | a merge | nothing: what it brings was committed, and the next merge goes over it | with the others |
//! | an exclusive transaction | one that was refused, or never ended, counts | `database/orphans.rs` |
//!
//! Where the log ends with a prepared exclusive transaction that was committed, the stamped base has its pages in place of rows (pages.rs): they are
//! put into the base in the transaction that stamps it, and only over a base that has everything before them. Their file goes after
//! the log.

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
use crate::sync::clock::unix_ms;
use crate::sync::wait;

pub mod aside;
pub mod moment;
pub(crate) mod restore;

/// Default cost of a slow reader before commits fail, in bytes of the base's WAL.
pub const DEFAULT_WAL_LIMIT_BYTES: u64 = 1 << 30;
/// How long a process that was killed may still have the log when it is no member any more: the kernel takes its files from it
/// one after the other, and may be held up in between.
pub const DEATH_MAX: Duration = Duration::from_millis(500);
const DEATH_NAP: Duration = Duration::from_millis(5);
/// Stream bytes that a new log file has room for.
const FIRST_LOG_BYTES: u64 = 32 << 10;

/// Makes the shared memory ready for use. The caller holds the lifecycle lock and no other process is alive.
/// `trusted`: the shared memory was left by processes of this boot that all died. Answers with the salt of a base at rest that is none of what
/// stands beside it, which is to be put aside before ([`aside::put`]).
pub(crate) fn begin(
    region: &Region,
    identity: BaseIdentity,
    path: &Path,
    base: &mut dyn Base,
    trusted: bool,
) -> Result<Option<u32>> {
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
    let mut header = header;
    if trusted && continues(region, base, &header)? {
        bury_or_leave(region, base)?;
        if moment::has_its_log(layout, &log, header.generation) {
            return Ok(None);
        }
        restore::restore(region, path, base)?;
        header = base.header()?;
    }
    if trusted && said == fence::LOWERED && restore::has_it_all(region, &header) {
        // It is not gone on with, and needs no log (FENCE-1 in upkeep/fence.rs).
        bury_or_leave(region, base)?;
        restore::restore(region, path, base)?;
        header = base.header()?;
    }
    if trusted && is_fenced && restore::has_ended(region, &header) {
        // Settling would refuse what is left of a log that was damaged.
        restore::remove_own_log(region, path, None)?;
    }
    if !header.marked {
        return Err(Error::Left);
    }
    check_generation(path, header.generation)?;
    let tail = if header.fenced { region.tail(header.salt) } else { None };
    let is_alone = !aside::is_of_another(region, &header);
    let Some(at_rest) = (if is_alone { bring_to_rest(path, base, header, tail)? } else { None })
    else {
        refuse_used_log(path)?;
        return Ok(Some(header.salt));
    };
    set_up(region, &at_rest)?;
    region.publish(identity)?;
    Ok(None)
}

/// No file grows this old: such a number was put there, and others are counted on from it.
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
        // Nothing was committed in it. A fence whose author died before saying so is the session's own.
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
        // A lowered one has nothing that the base lacks (FENCE-1 in upkeep/fence.rs), and does not know what others have done while nobody was here.
        return Ok(c.fence.load(Acquire) == fence::FENCED);
    }
    // Resting as well: a copy from behind an earlier checkpoint (upkeep/fence.rs).
    let is_older = header.generation.get() < c.base_generation.load(Relaxed);
    if same && (is_older || restore::has_unmerged(region, header.generation)) {
        return Err(Error::CantOpen(
            "the database file is an older state of itself: it, or its -wal, was removed, emptied or replaced while its last commits \
             were there or in the -plait and -plait-shm files; put back the newest file and its -wal, or accept the older state with \
             `plait recover --accept-base` (it asks; --yes answers)"
                .into(),
        ));
    }
    Ok(false)
}

/// Brings base and log to rest: what the table says for shared memory that is not trusted. `None`: the base is, and the log, which has
/// commits, is not its own.
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
        // Nothing is lost with it.
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
                    "{} holds {newer} commits that are not in the database, which is an older copy of itself, from behind a checkpoint, or \
                     was unfenced by another program; put back the newest database file and its -wal, or accept this one as it is with \
                     `plait recover --accept-base {}` (it asks; --yes answers)",
                    log.display(),
                    path.display()
                )));
            }
        }
    }
    bury_unseen(base)?;
    remove_log(path, there)?;
    Ok(Some(header))
}

/// A file without a byte stands there, of somebody who may write the database.
fn is_empty(log: &Path) -> bool {
    side::open(log, false).and_then(|file| file.metadata()).is_ok_and(|meta| meta.len() == 0)
}

/// The file that stands at a path.
fn at(path: &Path) -> Result<Option<FileIdentity>> {
    OsStorage
        .identity_at(path)
        .map_err(|e| Error::io(format!("cannot look at {}", path.display()), &e))
}

/// Which file this is; `None` if that cannot be told.
pub(crate) fn identity_of(file: &LockFile) -> Option<FileIdentity> {
    file.metadata().ok().map(|m| (m.dev(), m.ino()))
}

/// Says that this process uses the log, until the returned file is closed; `exclusive`: that nobody else does.
///
/// A live session keeps it shared. So a recovery that would run beside one, because the shared memory file was
/// removed under it, finds the lock taken, and not only for as long as a process takes to die.
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
    // Members ask wherever they need the log, with locks in hand: they do not wait.
    let locked = if exclusive {
        outlasts_deaths(|| locks::try_lock(&file, LOG_IN_USE_LOCK))
    } else {
        locks::try_lock_shared(&file, LOG_IN_USE_LOCK)
    };
    if locked.map_err(|e| say(&e))? {
        return Ok(Some(file));
    }
    Err(Error::CantOpen(format!(
        "{} is in use, but its shared memory file is not: it was removed or replaced while processes have the database \
         open; close them, then open the database again",
        log.display()
    )))
}

/// Asks whether a lock is free until it is, or has been taken for longer than by a process that dies.
fn outlasts_deaths(mut is_free: impl FnMut() -> std::io::Result<bool>) -> std::io::Result<bool> {
    let ask = || is_free().map(|free| free.then_some(()));
    wait::until(DEATH_MAX, DEATH_NAP, ask).map(|free| free.is_some())
}

/// Fails if processes use a log beside a base that needs none: theirs is the database file that stood here before.
///
/// # Errors
/// `CantOpen`, in words.
pub fn refuse_used_log(path: &Path) -> Result<()> {
    let log = log_path(path);
    let free = side::open(&log, false).and_then(|file| {
        outlasts_deaths(|| locks::is_locked_elsewhere(&file, LOG_IN_USE_LOCK).map(|used| !used))
    });
    // Where it cannot be read, reading it tells why.
    if free.unwrap_or(true) {
        return Ok(());
    }
    Err(Error::CantOpen(format!(
        "{} is in use by processes that still have the database file open which stood here before it was deleted or \
         replaced; leave the log alone, close those processes, then try again",
        log.display()
    )))
}

fn say_missing(path: &Path, log: &Path, salt: u32) -> Error {
    let (log, path_shown) = (log.display(), path.display());
    if let Some(aside) = aside::of_salt(path, salt) {
        return Error::CantOpen(format!(
            "{log} is missing: it was put aside as {} when another file stood here, and holds commits that are not in the database file \
             yet; give it its name back, and what was put aside with it, or accept the database as it is with `plait recover \
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

/// Merges the log's newer frames into the fenced base, and those that continue it.
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
    // SESSION-3: before anything was committed the fence stood in the file, until all of that was in the base.
    if header.fence_in_wal_alone && scan.summary().newest > header.generation {
        return Err(Error::Replaced(path.to_owned()));
    }
    // What the log holds beyond its end is given up with the same stamp.
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

/// The newest record of each key, and whether that is a deletion.
type Newest = BTreeMap<(Root, Vec<u8>), (bool, Vec<u8>)>;

/// What frames, read one after the other, leave.
#[derive(Default)]
struct Redone {
    newest: Newest,
    /// The last one, if it is prepared.
    undecided: Option<Undecided>,
}

/// A prepared transaction: the name of its super-journal, and what it would leave.
struct Undecided {
    name: Vec<u8>,
    generation: Generation,
    rows: Newest,
    pages: Option<PagesId>,
}

/// What goes into the base: rows, or the pages of an exclusive transaction.
struct Decided {
    rows: Newest,
    pages: Option<Pages>,
}

impl Redone {
    fn note(&mut self, frame: &Frame<'_>) {
        // Whatever follows a prepared transaction has resolved it.
        self.undecided = frame.prepared().map(|(mark, rows)| {
            let mut would = Newest::new();
            note_rows(&mut would, rows);
            let (name, generation) = (mark.name.to_vec(), frame.generation);
            Undecided { name, generation, rows: would, pages: mark.pages }
        });
        note_rows(&mut self.newest, frame.ops());
    }

    /// With what a super-journal decides about the last one, over a base with this header.
    fn decided(self, path: &Path, base: &BaseHeader) -> Result<Decided> {
        let mut decided = Decided { rows: self.newest, pages: None };
        // Of an exclusive one the base tells, if it has it (EXCL-2).
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
    /// Into a base in whose transaction this is called.
    fn put(&self, path: &Path, base: &mut dyn Base) -> Result<()> {
        match &self.pages {
            None => put_all(base, &self.rows),
            Some(pages) if self.rows.is_empty() => pages.put(path, base),
            // They were made over a base with all rows: it has been replaced by an older one.
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

fn note_rows(newest: &mut Newest, rows: Ops<'_>) {
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

/// Makes sure that what the WAL holds beyond its index never counts: a transaction that changes nothing goes over the same frames.
pub(crate) fn bury(base: &mut dyn Base) -> Result<()> {
    in_transaction(base, |base| {
        let header = base.header()?;
        base.stamp(&header)
    })
}

/// The same, if there is something. Nobody else of a session writes to the base.
pub(crate) fn bury_unseen(base: &mut dyn Base) -> Result<()> {
    if fault::is_planted("fence.unseen") || !base.has_unseen_commit()? {
        return Ok(());
    }
    bury(base)
}

/// The same before a session goes on. Where that is not to be had, on a full disk say, it is left to be settled (database/orphans.rs): until
/// then others may read, and nobody commits, or writes to the base.
fn bury_or_leave(region: &Region, base: &mut dyn Base) -> Result<()> {
    let Err(e) = bury_unseen(base) else { return Ok(()) };
    let c = region.control();
    let right = c.right_owner.load(Relaxed);
    if leaves_doubt(&e) || (right != 0 && right != owner::UNSETTLED) {
        return Err(e);
    }
    c.right_owner.store(owner::UNSETTLED, Relaxed);
    // Last (ESTATE-1). What a dead one has is settled with the same.
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

/// As [`unfence`], and says that the base is complete through this generation.
fn unfence_through(base: &mut dyn Base, through: Generation) -> Result<()> {
    rest(base, through, |_| Ok(()))
}

/// The same, with what `complete` puts into the base in the same transaction.
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
    match base.checkpoint(Checkpoint::Truncate) {
        // A stock program reads it already. The WAL is its business then, as that of any database.
        Err(e) if e.is_busy() => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Removes the log of a base that needs it no more: the file `meant`, if it still stands there.
pub(crate) fn remove_log(path: &Path, meant: Option<FileIdentity>) -> Result<()> {
    LogFile::remove(&OsStorage, &log_path(path), meant).map_err(Error::from)?;
    // Whatever was prepared in it is resolved, or given up.
    several::forget(path);
    Ok(())
}

/// Accepts the base as it is: gives up commits that are only in the log. No process has the database open.
/// `is_replaced`: the file is none of this session, and may be anything.
pub fn accept_base(path: &Path, base: &mut dyn Base, is_replaced: bool) -> Result<()> {
    let header = base.header()?;
    if !header.marked && !is_replaced {
        return Err(Error::CantOpen(format!("{} is not in concurrent mode", path.display())));
    }
    // With the stamp the log is a stale one. One that cannot be read, or is not of this base, is given up unseen: should the
    // removal not come to pass, the next opening refuses it as before, and this is done again.
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
/// The least that a commit takes of a memtable.
const LEAST_COMMIT_BYTES: u64 = 32;
const _: () = assert!(ARENA_BYTES as u64 / LEAST_COMMIT_BYTES < TIMESTAMPS_PER_GENERATION / 16);

/// Timestamps of a millisecond: so many commits a session cannot make on average.
const TIMESTAMPS_PER_MILLISECOND: u64 = 1 << 10;

/// The timestamp that stands for what is in the base when a session begins now whose first generation is `first`: above those of all
/// earlier sessions as long as the clock goes on, and on machines without one, above those that have left a generation behind.
fn first_timestamp(first: Generation) -> u64 {
    let by_generation = u64::from(first.get()) * TIMESTAMPS_PER_GENERATION + 1;
    by_generation.max(unix_ms().saturating_mul(TIMESTAMPS_PER_MILLISECOND))
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
    // Another than the last, so that a leftover log is never taken for the one of this session.
    let salt = std::iter::repeat_with(random::salt).find(|salt| *salt != header.salt);
    let salt = salt.expect("an endless iterator");
    let first = header.generation.get() + 1;
    c.salt.store(salt, Relaxed);
    c.base_generation.store(header.generation.get(), Relaxed);
    // It stands for everything that is in the base.
    let first_ts = first_timestamp(Generation::new(first));
    c.visible_ts.store(first_ts, Relaxed);
    c.readable_ts.store(first_ts, Relaxed);
    c.first_ts.store(first_ts, Relaxed);
    // Where zeros were written for the ring they were written for these too (`Region::reset`).
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

/// Creates the log file of the session, replacing one that holds nothing.
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
        // The folder was synced, for the sake of the log's name.
        region.log().note_wal_named(wal);
    }
    Ok(created)
}

/// Opens the log file of a session that has one: through the claim on it, if that is of the file under its name.
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

/// Fails if no session can be had beside `path`, which one who works alone at first would hear of when somebody comes: on a network file
/// system, for a file that is mounted without its folder, for the length of the name, for the limits of this process, without /proc.
pub fn refuse_place(path: &Path) -> Result<()> {
    crate::filesystem::refuse_network(path)?;
    crate::filesystem::refuse_lone_mount(path)?;
    if path.file_name().is_some_and(|name| name.len() > NAME_BYTES_MAX) {
        return Err(Error::CantOpen(format!(
            "the name of {} has more than {NAME_BYTES_MAX} bytes: those of the files beside it would be too long",
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

/// What a conversion to concurrent mode has to know: a salt, or why not.
pub fn enable_check(path: &Path) -> Result<u32> {
    refuse_place(path)?;
    refuse_used_log(path)?;
    let log = log_path(path);
    match LogScan::open(&OsStorage, &log, 0, Generation::ZERO) {
        Err(LogError::Missing { .. }) | Err(LogError::Foreign { has_frames: false, .. }) => {
            Ok(random::salt())
        }
        // Of another database file, or of this one from before it left the mode by other means: it is put aside as the session begins.
        Err(LogError::Foreign { .. }) | Ok(_) => Ok(random::salt()),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests;
