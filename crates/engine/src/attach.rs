//! How a process joins the session of a database, and leaves it. Which databases the process has
//! open: registry.rs.
//!
//! The life of a session, under the lifecycle lock, one byte of the shared memory file:
//! - The first process attaches: recovery if needed (session.rs), shared memory set up, base
//!   resting.
//! - Another process attaches: shared memory mapped.
//! - First write: log created, base fenced (upkeep/fence.rs).
//! - The last process detaches: everything merged, base unfenced, log and shared memory removed
//!   (FILE-1).
//! - All processes die: shared memory survives; the next to attach continues with it (FILE-6).
//! - The only connection leaves the mode: it holds the lock from when it is known to be the only
//!   one until the session is closed ([`begin_leaving`]).
//!
//! - JOIN-1 No connection is a member of a session whose base has lost its mark, or got another
//!   one: a process that comes while the mark is taken away waits, and finds the file without it. A
//!   member would know neither the new mark nor the generations behind it, and take the file for an
//!   older one.
//! - JOIN-2 No process joins a session without a counted connection, whose fence is lowered over a
//!   base that is at rest to the process: the last member has closed the WAL, and is about to end
//!   the session. A process that comes waits for that. As a member it could not write, since stock
//!   programs may.

use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::base::{Base, BaseOpener};
use crate::database::Database;
use crate::database::happenings::note_begin;
use crate::error::{Error, Result};
use crate::events::{self, Event};
use crate::random;
use crate::registry;
use crate::session::aside;
use crate::session::{self, Begun};
use crate::shm::fork::LockFile;
use crate::shm::layout::{LIFECYCLE_LOCK, fence, generation};
use crate::shm::region::{BaseIdentity, Region, say_in_use};
use crate::shm::{locks, process, read_marks};
use crate::storage::names::{log_path, shm_path};
use crate::storage::side;
use crate::sync::caller;
use crate::sync::wait::{self, Patience, Wait};
use crate::txn::Conn;

/// Longest sleep between two looks at the lifecycle lock.
const LIFECYCLE_NAP_MAX: Duration = Duration::from_millis(10);
/// How long the last connection of a process waits for others that open or close.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
/// How long accepting the base waits for them.
const ACCEPT_PATIENCE: Duration = Duration::from_secs(5);
fn nonce() -> u64 {
    static NONCE: OnceLock<u64> = OnceLock::new();
    if let Some(nonce) = NONCE.get() {
        return *nonce;
    }
    // Not inside `get_or_init`, where a fork() could catch it (shm/process.rs).
    let number = random::number();
    *NONCE.get_or_init(|| number)
}

/// Attaches a connection to the database at `path`, which is in concurrent mode. `named`: the file to
/// which the path has just led, if the caller has looked. `wal_index`: the inode of the WAL-index that
/// the connection has open, 0 if it has none.
///
/// # Errors
/// Busy while another process opens, recovers or closes the database for longer than `wait` lasts;
/// Interrupted; `CantOpen` and `Corrupt` from recovery, `Misuse` for a second copy of the library,
/// I/O errors.
pub fn attach(
    path: &Path,
    mut named: Option<BaseIdentity>,
    wal_index: u64,
    opener: &Arc<dyn BaseOpener>,
    wait: &mut Wait<'_>,
) -> Result<Conn> {
    let mut patience = Patience::with_minimum(wait);
    let mut busy = None;
    for looks in 1u32.. {
        // A busy handler called here might use the same database on this thread.
        match caller::unasked(|| registry::try_attach(path, named.take(), wal_index, opener)) {
            // The process that seems to have the other WAL-index may be dying.
            Err(Error::StrangeIndex(_)) if patience.elapsed() < session::DEATH_MAX => {}
            // Another program is in the middle of a commit, which lasts as long as its sync.
            Err(e) if e.is_busy() => busy = Some(e),
            Err(e) => return Err(e),
            Ok(Some(conn)) => return Ok(conn),
            Ok(None) => busy = None,
        }
        if patience.is_over() {
            return Err(busy.unwrap_or_else(|| being_opened_or_closed(path, patience.elapsed())));
        }
        patience.nap(LIFECYCLE_NAP_MAX.min(Duration::from_millis(looks.into())))?;
    }
    unreachable!("the loop ends by returning")
}

fn being_opened_or_closed(path: &Path, waited: Duration) -> Error {
    Error::Busy(format!(
        "another process is opening, recovering or closing {} (waited {} ms); retry, raise the \
         busy timeout, or check whether that process is stopped",
        path.display(),
        waited.as_millis()
    ))
}

/// Detaches a connection. Its handle keeps its WAL open during the call.
pub fn detach(conn: Conn) {
    leave(end(conn));
}

/// Ends a connection: it is no longer counted, and its handle may close its WAL (WALINDEX-1 in
/// shm/read_marks.rs). [`leave`] has to follow.
pub fn end(conn: Conn) -> Arc<Database> {
    conn.db.clone()
}

/// Releases the database of a connection that has ended. The last one of the last process leaves a
/// plain SQLite file behind (FILE-1); if that fails, everything stays for the next to attach.
pub fn leave(database: Arc<Database>) {
    if database.check_fork().is_err() {
        std::mem::forget(database);
        return;
    }
    registry::release(&database);
}

/// Keeps others from attaching while the caller, in an exclusive transaction of the only
/// connection, takes the database out of concurrent mode: until [`stay`], or until that connection
/// is detached (JOIN-1).
///
/// # Errors
/// Busy if others have the database open, or are opening it.
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

/// Keeps the database in concurrent mode after all. Does nothing if it was not leaving.
pub fn stay(database: &Arc<Database>) {
    if registry::stay(database) {
        unlock_lifecycle(database);
    }
}

fn unlock_lifecycle(database: &Database) {
    // If unlocking fails, closing the file ends the lock.
    let _ = locks::unlock(database.region().file(), LIFECYCLE_LOCK);
}

/// Looks at the files next to one that is not concurrent and that the caller has locked.
///
/// # Errors
/// `CantOpen` if processes use a log there for the database file that was here before.
pub fn check_beside(path: &Path) -> Result<()> {
    aside::check_beside(path, let_go_of_deleted)
}

/// Removes the names of log and shared memory of databases that this process has open by this path
/// and that no longer have a name (DELETED-2 in session/aside.rs). True if there was one.
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

/// Accepts the base as it is and gives up commits that are only in the log or in shared memory.
///
/// # Errors
/// Busy when a process has the database open; what opening and unfencing report.
pub fn accept_base(path: &Path, open: &mut dyn FnMut() -> Result<Box<dyn Base>>) -> Result<()> {
    let shm = shm_path(path);
    let is_new = std::fs::symlink_metadata(&shm).is_err();
    let (file, len) = wait::until(ACCEPT_PATIENCE, LIFECYCLE_NAP_MAX, || open_locked(&shm))?
        .ok_or_else(|| being_opened_or_closed(path, ACCEPT_PATIENCE))?;
    let accepted = accept_locked(path, (&file, len), open);
    if accepted.is_err() && is_new {
        // A file left behind that the database's owner may not use would keep him out.
        let _ = side::remove(&file, &shm);
    }
    accepted
}

/// The caller has the lifecycle lock on `file`, the shared memory, which has `len` bytes.
fn accept_locked(
    path: &Path,
    (file, len): (&Arc<LockFile>, u64),
    open: &mut dyn FnMut() -> Result<Box<dyn Base>>,
) -> Result<()> {
    let shm = shm_path(path);
    let region = Region::map(file.clone(), len, &shm)?;
    let readable = region.is_trusted(BaseIdentity::of(path)?);
    if process::any_alive(&region, readable) {
        return Err(Error::Busy(
            "the database is open in a process; nothing needs recovering".into(),
        ));
    }
    let _alone = session::claim_log(path, true)?;
    let mut base = open()?;
    let is_up = readable && region.control().fence.load(Acquire) == fence::FENCED;
    let is_replaced = match base.header() {
        Err(Error::Replaced(_)) => true,
        header => aside::lacks_fence(path, &header?, is_up),
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

/// Opens the shared memory file and takes the lifecycle lock on it; `None` if another process has
/// the lock. Also returns the bytes that the file has then.
fn open_locked(path: &Path) -> Result<Option<(Arc<LockFile>, u64)>> {
    let say = |e: &std::io::Error| {
        Error::io(
            format!(
                "cannot open shared memory {} (concurrent mode keeps files next to the database)",
                path.display()
            ),
            e,
        )
    };
    loop {
        let file =
            LockFile::open(|| side::open_or_create(path)).map_err(|e| match side::refusal(&e) {
                Some(why) => Error::CantOpen(format!(
                    "{} cannot be used as shared memory: {why}; if none of your programs made it, \
                     remove it",
                    path.display()
                )),
                None => say(&e),
            })?;
        if !locks::try_lock(&file, LIFECYCLE_LOCK).map_err(|e| say(&e))? {
            return Ok(None);
        }
        // The last process out may have removed the file before this one had the lock.
        if let Some(meta) = side::named(&file, path) {
            return Ok(Some((Arc::new(file), meta.len())));
        }
    }
}

/// A process that leaves the session. Even after an error or a panic no process waits for it.
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

/// True if the session in `region` has ended but for its files: the fence was lowered, and the last
/// handle of all has closed the WAL, so that nothing but the file says what it is.
fn has_ended(region: &Region, base: &mut dyn Base) -> Result<bool> {
    let is_lowered = region.control().fence.load(Acquire) == fence::LOWERED;
    Ok(is_lowered && session::restore::has_ended(region, &base.header()?))
}

/// True if an open database must not be joined (JOIN-2).
pub(crate) fn is_ending(db: &Database) -> Result<bool> {
    if db.control().fence.load(Acquire) != fence::LOWERED
        || process::any_connected(db.region(), Some(db.process()))
    {
        return Ok(false);
    }
    db.with_base(|base| has_ended(db.region(), base))
}

/// Opens the database for this process. `None`: another process has the lifecycle lock, or is about
/// to end the session, or files were put aside; the caller tries again.
pub(crate) fn open(
    path: &Path,
    identity: BaseIdentity,
    wal_index: u64,
    opener: Arc<dyn BaseOpener>,
    forks: u64,
) -> Result<Option<Database>> {
    let shm = shm_path(path);
    let Some((file, len)) = open_locked(&shm)? else { return Ok(None) };
    // Shares the lock, which is held until this is closed too.
    let locked = file.clone();
    let mapped = Region::map(file, len, &shm);
    match mapped.and_then(|region| open_in(region, path, identity, wal_index, opener, forks)) {
        // The files in the way have other names now, or are about to go: the next try finds none.
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
            if len == 0 {
                // It was never LIVE, and a process that waits for the lock looks at the path again.
                let _ = side::remove(&locked, &shm);
            }
            Err(e)
        }
    }
}

fn open_in(
    region: Region,
    path: &Path,
    identity: BaseIdentity,
    wal_index: u64,
    opener: Arc<dyn BaseOpener>,
    forks: u64,
) -> Result<Option<Database>> {
    let region = Arc::new(region);
    let trusted = region.is_trusted(identity);
    let alive = process::any_alive(&region, trusted);
    if alive && !trusted {
        return Err(Error::CantOpen(say_in_use(region.path())));
    }
    let mut base = None;
    let begins = !alive;
    if begins {
        let mut opened = opener.open(path)?;
        let begun = session::begin(&region, identity, path, opened.as_mut(), trusted)?;
        if let Begun::IsAnothers { salt } = begun {
            let text = aside::put(path, &region, salt)?;
            Event::new(&events::LOG_PUT_ASIDE, path, &opener, text).note();
            return Ok(None);
        }
        note_begin(begun, path, &opener);
        base = Some(opened);
    }
    read_marks::agree(&region, None, wal_index, path)?;
    let is_lowered = region.control().fence.load(Acquire) == fence::LOWERED;
    if alive && is_lowered && !process::any_connected(&region, None) {
        let mut opened = opener.open(path)?;
        if has_ended(&region, opened.as_mut())? {
            return Ok(None);
        }
    }
    let me = process::register(&region, nonce())?;
    let database = Database::new(region, me, path, identity, opener, base, forks);
    if begins {
        database.recall_learned();
    }
    Ok(Some(database))
}

/// Closes the database: the last connection of this process is gone.
pub(crate) fn close(db: &Database) {
    db.worker().stop();
    db.keep_learned();
    if !lock_lifecycle(db) {
        // The holder of the lock joins or continues the session, as if this process were killed.
        drop(db.take_base());
        process::unregister(db.region(), db.process());
        return;
    }
    let _leaving = Leaving(db);
    // After a failure the next process to attach continues the session.
    let last = process::live_others(db.region(), db.process()) == 0;
    // A deleted database may end. If another file replaced it, everything stays.
    let may_end = last && (!db.path().exists() || db.check_place().is_ok());
    let may_end = may_end && db.reap_dead().is_ok();
    if !may_end {
        return;
    }
    match finish_session(db) {
        Ok(()) => {
            db.region().invalidate();
            drop(db.take_base());
            // Removes the file only if it still has the name, which may be another session's by
            // now.
            let _ = side::remove(db.region().file(), db.region().path());
            let text = "the last process has closed the database, which is at rest";
            db.event(&events::SESSION_ENDED, text).note();
        }
        Err(e) => db.note_left_open(&e),
    }
}

/// Takes the lifecycle lock; false if that takes too long. Closing has no busy timeout: it does not
/// wait for a stopped process.
fn lock_lifecycle(db: &Database) -> bool {
    let file = db.region().file();
    let ask = || locks::try_lock(file, LIFECYCLE_LOCK).map(|locked| locked.then_some(()));
    matches!(wait::until(CLOSE_PATIENCE, LIFECYCLE_NAP_MAX, ask), Ok(Some(())))
}

/// Brings everything to rest; from memory alone if the log has stopped (restore.rs).
fn finish_session(db: &Database) -> Result<()> {
    if is_ending(db)? {
        // A process that has opened no hidden connection closes the WAL before this.
        db.with_base(|base| base.sync_lowered())?; // FENCE-7 in upkeep/fence.rs
        return db.remove_log();
    }
    let finished = finish_with_log(db);
    if !db.log_shared().is_replaced_by_memory() {
        return finished;
    }
    db.with_base(|base| {
        // FENCE-3 in upkeep/fence.rs. The right may be missing, but no other process is there.
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
        // After the death of a merging process every memtable may be in use. The first merge freed
        // one.
        right.merge(false)?;
    }
    // FENCE-3 in upkeep/fence.rs.
    right.raise_lowered()?;
    rest_base(db)
}

/// Ends a session that never wrote: removes what a killed author of its fence left. True if the
/// base is fenced.
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

/// Unfences the base. Everything is merged.
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
