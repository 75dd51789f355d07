//! How a process joins the session of a database, and leaves it; who of the process has which open: registry.rs.
//!
//! Life of a session (under the lifecycle lock, one byte of the shared memory file)
//!
//! | event | what happens |
//! |---|---|
//! | first process attaches | recovery if needed (session.rs), shared memory set up, base resting |
//! | another process attaches | maps the shared memory |
//! | first write | log created, base fenced (upkeep/fence.rs) |
//! | last process detaches | everything merged, base unfenced, log and shared memory removed (FILE-1) |
//! | all processes die | shared memory survives; the next to attach goes on with it (FILE-6) |
//! | the only connection leaves the mode | the lock is held from when it is known to be the only one until the session is closed ([`begin_leaving`]) |
//!
//! - JOIN-1 Nobody is a member of a session whose base has lost its mark, or got another one: who comes while it is taken away waits, and finds
//!   the file without it. A member would know neither the new mark nor the generations behind it, and take the file for an older one.

use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::base::{Base, BaseOpener};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::random;
use crate::registry;
use crate::session;
use crate::session::aside;
use crate::shm::fork::LockFile;
use crate::shm::layout::{LIFECYCLE_LOCK, fence, generation};
use crate::shm::region::{BaseIdentity, Region, say_in_use};
use crate::shm::{locks, process, read_marks};
use crate::storage::names::{log_path, shm_path};
use crate::storage::side;
use crate::sync::caller;
use crate::sync::wait::{self, Patience, Wait};
use crate::txn::Conn;

/// Between two looks at the lifecycle lock, at most.
const LIFECYCLE_NAP_MAX: Duration = Duration::from_millis(10);
/// How long the last connection of a process waits for others who open or close.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
/// How long accepting the base waits for them.
const ACCEPT_PATIENCE: Duration = Duration::from_secs(5);
fn nonce() -> u64 {
    static NONCE: OnceLock<u64> = OnceLock::new();
    if let Some(nonce) = NONCE.get() {
        return *nonce;
    }
    // As in shm/process.rs.
    let number = random::number();
    *NONCE.get_or_init(|| number)
}

/// Attaches a connection to the database at `path`, which is in concurrent mode. `wal_index`: the inode of the WAL-index that it has open, 0 if
/// it has none.
///
/// # Errors
/// Busy while another process opens, recovers or closes the database for longer than `wait` lasts; Interrupted; `CantOpen` and
/// `Corrupt` from recovery, `Misuse` for a second copy of the library, I/O errors.
pub fn attach(
    path: &Path,
    wal_index: u64,
    opener: &Arc<dyn BaseOpener>,
    wait: &mut Wait<'_>,
) -> Result<Conn> {
    let mut patience = Patience::of_those_who_expect_no_wait(wait);
    for looks in 1u32.. {
        // In a busy handler this thread may want the same database.
        match caller::unasked(|| registry::try_attach(path, wal_index, opener)) {
            // Who seems to have it may be dying.
            Err(Error::StrangeIndex(_)) if patience.elapsed() < session::DEATH_MAX => {}
            Err(e) => return Err(e),
            Ok(Some(conn)) => return Ok(conn),
            Ok(None) => {}
        }
        if patience.is_over() {
            return Err(being_opened_or_closed(path, patience.elapsed()));
        }
        patience.nap(LIFECYCLE_NAP_MAX.min(Duration::from_millis(looks.into())))?;
    }
    unreachable!("the loop ends by returning")
}

fn being_opened_or_closed(path: &Path, waited: Duration) -> Error {
    Error::Busy(format!(
        "another process opens, recovers or closes {} (waited {} ms); retry, raise the busy timeout, or see whether that \
         process is stopped",
        path.display(),
        waited.as_millis()
    ))
}

/// Detaches a connection whose handle keeps its WAL open for as long.
pub fn detach(conn: Conn) {
    leave(end(conn));
}

/// Ends a connection: it is not counted any more, and its handle may close its WAL (WALINDEX-1 in shm/read_marks.rs). [`leave`] has to follow.
pub fn end(conn: Conn) -> Arc<Database> {
    conn.db.clone()
}

/// What is left to do for one that has ended. The last one of the last process leaves a plain SQLite file behind (FILE-1); if that
/// fails, everything stays for the next to attach.
pub fn leave(database: Arc<Database>) {
    if database.check_fork().is_err() {
        std::mem::forget(database);
        return;
    }
    registry::release(&database);
}

/// Keeps everybody else from coming while the caller, in an exclusive transaction of the only connection, takes the database out of
/// concurrent mode: until [`stay`], or until that connection is detached (JOIN-1).
///
/// # Errors
/// Busy if others have the database open, or come at this moment.
pub fn begin_leaving(database: &Arc<Database>) -> Result<()> {
    if !lock_lifecycle(database) {
        return Err(being_opened_or_closed(database.path(), CLOSE_PATIENCE));
    }
    let others = process::live_others(database.region(), database.process());
    if others == 0 && registry::begin_leaving(database) {
        return Ok(());
    }
    unlock_lifecycle(database);
    Err(Error::Busy(
        "other connections have the database open; close them before leaving concurrent mode"
            .into(),
    ))
}

/// The database stays in concurrent mode; nothing if it was not about to leave.
pub fn stay(database: &Arc<Database>) {
    if registry::stay(database) {
        unlock_lifecycle(database);
    }
}

fn unlock_lifecycle(database: &Database) {
    // The lock ends with the open file at the latest.
    let _ = locks::unlock(database.region().file(), LIFECYCLE_LOCK);
}

/// Looks at what stands beside a file that is not concurrent and on which the caller has a lock.
///
/// # Errors
/// `CantOpen` if processes use a log there for the database file that stood here before.
pub fn check_beside(path: &Path) -> Result<()> {
    aside::check_beside(path, let_go_of_deleted)
}

/// Of databases that this process has open by this path and that have no name any more: removes the names of log and shared memory
/// (DELETED-2 in session/aside.rs). True if there was one.
fn let_go_of_deleted(path: &Path) -> bool {
    let mut found = false;
    for database in registry::open_databases() {
        if database.path() != path || !database.is_deleted() {
            continue;
        }
        found = true;
        database.let_go_of_names();
    }
    found
}

/// Accepts the base as it is, giving up commits that are only in the log or in shared memory.
///
/// # Errors
/// Busy when a process has the database open; what opening and unfencing report.
pub fn accept_base(path: &Path, open: &mut dyn FnMut() -> Result<Box<dyn Base>>) -> Result<()> {
    let shm = shm_path(path);
    let is_new = std::fs::symlink_metadata(&shm).is_err();
    let file = wait::until(ACCEPT_PATIENCE, LIFECYCLE_NAP_MAX, || open_locked(&shm))?
        .ok_or_else(|| being_opened_or_closed(path, ACCEPT_PATIENCE))?;
    let accepted = accept_locked(path, &file, open);
    if accepted.is_err() && is_new {
        // Left behind, one that its owner may not use would keep him out.
        let _ = side::remove(&file, &shm);
    }
    accepted
}

/// The caller has the lifecycle lock on `file`, the shared memory.
fn accept_locked(
    path: &Path,
    file: &Arc<LockFile>,
    open: &mut dyn FnMut() -> Result<Box<dyn Base>>,
) -> Result<()> {
    let shm = shm_path(path);
    let region = Region::map(file.clone(), &shm)?;
    let readable = region.is_trusted(BaseIdentity::of(path)?);
    if process::any_alive(&region, readable) {
        return Err(Error::Busy(
            "the database is open in a process; nothing needs recovering".into(),
        ));
    }
    let _alone = session::claim_log(path, true)?;
    let mut base = open()?;
    let is_replaced = match base.header() {
        Err(Error::Replaced(_)) => true,
        other => other.map(|_| false)?,
    };
    if is_replaced {
        drop(base);
        aside::remove_wal(path)?;
        base = open()?;
    }
    session::accept_base(path, base.as_mut(), is_replaced)?;
    region.invalidate();
    side::remove(region.file(), &shm)
        .map_err(|e| Error::io(format!("cannot remove {}", shm.display()), &e))
}

/// Opens the shared memory file and takes the lifecycle lock on it; `None` if another process has that.
fn open_locked(path: &Path) -> Result<Option<Arc<LockFile>>> {
    let say = |e: &std::io::Error| {
        Error::io(
            format!(
                "cannot open shared memory {} (concurrent mode writes beside the database)",
                path.display()
            ),
            e,
        )
    };
    loop {
        let file =
            LockFile::open(|| side::open_or_create(path)).map_err(|e| match side::refusal(&e) {
                Some(why) => Error::CantOpen(format!(
                    "{} cannot be used as shared memory: {why}; if it is none of yours, remove it",
                    path.display()
                )),
                None => say(&e),
            })?;
        if !locks::try_lock(&file, LIFECYCLE_LOCK).map_err(|e| say(&e))? {
            return Ok(None);
        }
        // The last one out may have removed the file before we had the lock.
        if side::is_named(&file, path) {
            return Ok(Some(Arc::new(file)));
        }
    }
}

/// A process that leaves the session: whatever ends that, an error or a panic too, nobody waits for it afterwards.
struct Leaving<'a>(&'a Database);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let Leaving(database) = self;
        if std::thread::panicking() {
            database.poison();
        }
        drop(database.take_base());
        process::unregister(database.region(), database.process());
        unlock_lifecycle(database);
    }
}

/// Opens it for this process; `None` if it is to be tried again: another process has the lifecycle lock, or something was put aside.
pub(crate) fn open(
    path: &Path,
    identity: BaseIdentity,
    wal_index: u64,
    opener: Arc<dyn BaseOpener>,
    forks: u64,
) -> Result<Option<Database>> {
    let shm = shm_path(path);
    let Some(file) = open_locked(&shm)? else { return Ok(None) };
    let created = file.metadata().is_ok_and(|m| m.len() == 0);
    // Shares the lock: it is held until this, too, is closed.
    let locked = file.clone();
    match open_in(file, path, identity, wal_index, opener, forks) {
        // What was in the way has another name now: whoever looks again finds none of it.
        Ok(None) => Ok(None),
        Ok(Some(database)) => {
            locks::unlock(&locked, LIFECYCLE_LOCK)
                .map_err(|e| Error::io("cannot release the lifecycle lock", &e))?;
            if let Err(e) = database.reap_dead() {
                close(&database);
                return Err(e);
            }
            Ok(Some(database))
        }
        Err(e) => {
            if created {
                // Its content was never LIVE, and whoever waits for the lock looks at the path again.
                let _ = side::remove(&locked, &shm);
            }
            Err(e)
        }
    }
}

fn open_in(
    file: Arc<LockFile>,
    path: &Path,
    identity: BaseIdentity,
    wal_index: u64,
    opener: Arc<dyn BaseOpener>,
    forks: u64,
) -> Result<Option<Database>> {
    let region = Arc::new(Region::map(file, &shm_path(path))?);
    let trusted = region.is_trusted(identity);
    let alive = process::any_alive(&region, trusted);
    if alive && !trusted {
        return Err(Error::CantOpen(say_in_use(region.path())));
    }
    let mut base = None;
    let begins = !alive;
    if begins {
        let mut opened = opener.open(path)?;
        if let Some(salt) = session::begin(&region, identity, path, opened.as_mut(), trusted)? {
            opener.tell(&session::aside::put(path, &region, salt)?);
            return Ok(None);
        }
        base = Some(opened);
    }
    read_marks::agree(&region, None, wal_index, path)?;
    let me = process::register(&region, nonce())?;
    let database = Database::new(region, me, path, identity, opener, base, forks);
    if begins {
        database.recall_learned();
    }
    Ok(Some(database))
}

/// The last connection of this process is gone.
pub(crate) fn close(db: &Database) {
    db.worker().stop();
    db.keep_learned();
    if !lock_lifecycle(db) {
        // Whoever has it joins the session, or continues it after us, as if this process had been killed.
        drop(db.take_base());
        process::unregister(db.region(), db.process());
        return;
    }
    let _leaving = Leaving(db);
    // Failures leave a consistent session behind, which the next to attach continues.
    let last = process::live_others(db.region(), db.process()) == 0;
    // Whoever has deleted the database wants nothing of it; what another file was put in place of stays.
    let may_end = last && (!db.path().exists() || db.check_place().is_ok());
    let may_end = may_end && db.reap_dead().is_ok();
    if may_end && finish_session(db).is_ok() {
        db.region().invalidate();
        drop(db.take_base());
        // Not that of another session, whose name it may be by now.
        let _ = side::remove(db.region().file(), db.region().path());
    }
}

/// Closing has no busy timeout: a process that is stopped while it opens is not waited for. False without the lock.
fn lock_lifecycle(db: &Database) -> bool {
    let file = db.region().file();
    let ask = || locks::try_lock(file, LIFECYCLE_LOCK).map(|locked| locked.then_some(()));
    matches!(wait::until(CLOSE_PATIENCE, LIFECYCLE_NAP_MAX, ask), Ok(Some(())))
}

/// Brings everything to rest. Without the log, if that has stopped: then from memory alone (restore.rs).
fn finish_session(db: &Database) -> Result<()> {
    let finished = finish_with_log(db);
    if !db.log_shared().is_replaced_by_memory() {
        return finished;
    }
    db.with_base(|base| {
        // FENCE-3 in upkeep/fence.rs; the right may not have been had, and nobody else is there.
        if db.control().fence.load(Acquire) == fence::LOWERED {
            base.raise_fence()?;
        }
        session::restore::restore(db.region(), db.path(), base)
    })?;
    db.remove_log()
}

fn finish_with_log(db: &Database) -> Result<()> {
    if db.control().fence.load(Acquire) == fence::RESTING && !finish_fence(db)? {
        return Ok(());
    }
    db.check_poison()?;
    if db.region().layout().has_unresolved() {
        return Err(Error::Busy("a prepared transaction is not resolved".into()));
    }
    let slot = db.borrow_slot()?;
    let mut wait = Wait { timeout: CLOSE_PATIENCE, busy: None, interrupted: &mut || false };
    let right = db.own_merge(slot.index(), &mut wait)?;
    let newest = db.newest_generation()?;
    right.merge(false)?;
    if !db.generations.is_merged_through(newest) {
        // Every memtable was in use, after the death of who was to merge: there was none to go on in, and now there is.
        right.merge(false)?;
    }
    // FENCE-3 in upkeep/fence.rs.
    right.raise_lowered()?;
    rest_base(db)
}

/// A session that never got to write: removes what a killed author of its fence left. True if the base is fenced.
fn finish_fence(db: &Database) -> Result<bool> {
    if !log_path(db.path()).exists() {
        return Ok(false);
    }
    let header = db.with_base(|base| base.header())?;
    if !header.fenced {
        db.with_base(session::bury_unseen)?;
        db.remove_log()?;
        return Ok(false);
    }
    if header.salt == db.control().salt.load(Relaxed) {
        db.finish_own_fence(&header)?;
    }
    Ok(db.control().fence.load(Acquire) == fence::FENCED)
}

/// Unfences the base; everything is merged.
fn rest_base(db: &Database) -> Result<()> {
    let unmerged =
        db.control().generations.iter().any(|g| g.state.load(Relaxed) == generation::FROZEN)
            || !db.generations.memtable(db.generations.active_arena())?.is_empty();
    if unmerged {
        return Err(Error::Full("not everything could be merged".into()));
    }
    crate::crash_point!("close.merged");
    db.with_base(|base| {
        db.refuse_older_base(base)?;
        session::unfence(base)
    })?;
    crate::crash_point!("close.unfenced");
    db.remove_log()?;
    crate::crash_point!("close.log_removed");
    Ok(())
}
