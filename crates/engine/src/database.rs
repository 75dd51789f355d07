//! One concurrent database in this process: its shared memory, log and hidden
//! base connection, shared by all connections of the process.
//!
//! Life of a session (under the lifecycle lock, one byte of the shared memory file)
//!
//! | event | what happens |
//! |---|---|
//! | first process attaches | recovery if needed (recovery.rs), shared memory set up, base resting |
//! | another process attaches | maps the shared memory |
//! | first write | log created, base fenced (merge/run.rs) |
//! | last process detaches | everything merged, base unfenced, log and shared memory removed (F1) |
//! | all processes die | shared memory survives; the next to attach goes on with it (F6) |
//!
//! Lock order: lifecycle byte -> `base` -> commit mutex; see docs/locks.md. Which databases are open: registry.rs.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::base::{Base, BaseHeader, BaseOpener};
use crate::deleted;
use crate::error::{Error, Result};
use crate::ids::ProcessIndex;
use crate::log::{AppendError, BaseFile, BaseWal, Log, LogShared, LogStatus, Ring};
use crate::memtable::Share;
use crate::merge::due::DiskSpace;
use crate::notify::Notifier;
use crate::registry;
use crate::session;
use crate::shm::fork::{self, LockFile};
use crate::shm::layout::{Control, LIFECYCLE_LOCK, fence};
use crate::shm::read_marks::ReadMarks;
use crate::shm::region::{BaseIdentity, Region};
use crate::shm::{locks, process};
use crate::storage::Storage as _;
use crate::storage::names::suffixed;
pub use crate::storage::names::{log_path, shm_path};
use crate::storage::os::OsStorage;
use crate::storage::side;
use crate::sync::caller;
use crate::sync::cancel::Uncancelled;
use crate::sync::mutex::{Guard, Party};
use crate::sync::wait::{Patience, Wait};
use crate::sync::yielding::Yielding;
use crate::txn::{Conn, Turns};

mod own_log;

/// One concurrent database in this process.
pub struct Database {
    // Fields are dropped in this order: ring and log use the region.
    ring: Ring,
    log: OnceLock<Log>,
    log_claim: OnceLock<LockFile>,
    /// The log file that `log` has open was removed.
    log_retired: AtomicBool,
    base: Mutex<Option<Box<dyn Base>>>,
    opener: Arc<dyn BaseOpener>,
    region: Arc<Region>,
    process: ProcessIndex,
    party: Arc<Party>,
    read_marks: Arc<ReadMarks>,
    pid: u32,
    pid_namespace: u64,
    path: PathBuf,
    identity: BaseIdentity,
    /// The database file, to look at.
    itself: Option<File>,
    fork_generation: u64,
    background: crate::background::Background,
    notifier: Notifier,
    yielding: Yielding,
    turns: Turns,
    disk_space: DiskSpace,
    share: Mutex<Share>,
}

/// Between two looks at the lifecycle lock, at most.
const LIFECYCLE_NAP_MAX: Duration = Duration::from_millis(10);
/// How long the last connection of a process waits for others who open or close.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
/// How long accepting the base waits for them.
const ACCEPT_PATIENCE: Duration = Duration::from_secs(5);
/// SQLite's extended code of a failed sync.
pub(crate) const SQLITE_IOERR_FSYNC: i32 = 10 | 4 << 8;

fn nonce() -> u64 {
    static NONCE: OnceLock<u64> = OnceLock::new();
    *NONCE
        .get_or_init(|| u64::from(session::random_salt()) << 32 | u64::from(session::random_salt()))
}

/// Attaches a connection to the database at `path`, which is in concurrent mode.
///
/// # Errors
/// Busy while another process opens, recovers or closes the database for longer than `wait` lasts; Interrupted; `CantOpen` and
/// `Corrupt` from recovery, `Misuse` for a second copy of the library, I/O errors.
pub fn attach(path: &Path, opener: &Arc<dyn BaseOpener>, wait: &mut Wait<'_>) -> Result<Conn> {
    let mut patience = Patience::of_those_who_expect_no_wait(wait);
    for looks in 1u32.. {
        // In a busy handler this thread may want the same database.
        if let Some(conn) = caller::unasked(|| registry::try_attach(path, opener))? {
            return Ok(conn);
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

/// Detaches a connection. The last one of the last process leaves a plain SQLite file behind (F1); if that
/// fails, everything stays for the next to attach.
pub fn detach(conn: Conn) {
    let database = conn.db.clone();
    drop(conn);
    if database.check_fork().is_err() {
        std::mem::forget(database);
        return;
    }
    registry::release(&database);
}

/// Of databases that this process has open by this path and that have no name any more: removes the names of log and shared memory
/// (H2 in deleted.rs). True if there was one.
pub(crate) fn let_go_of_deleted(path: &Path) -> bool {
    let mut found = false;
    for database in registry::open_databases() {
        if database.path != path || !database.itself.as_ref().is_some_and(deleted::is_nameless) {
            continue;
        }
        found = true;
        // A name that stays is met again by the caller, who looks for a log that is in use.
        let region = database.region.file();
        let _ = side::remove(region, database.region.path());
        if let Some(log) = database.log_claim.get() {
            let _ = side::remove(log, &log_path(path));
        }
    }
    found
}

/// Accepts the base as it is, giving up commits that are only in the log or in shared memory.
///
/// # Errors
/// Busy when a process has the database open; what opening and unfencing report.
pub fn accept_base(path: &Path, open: &mut dyn FnMut() -> Result<Box<dyn Base>>) -> Result<()> {
    let shm = shm_path(path);
    let start = Instant::now();
    let is_new = std::fs::symlink_metadata(&shm).is_err();
    let file = loop {
        match open_locked(&shm)? {
            Some(file) => break file,
            None if start.elapsed() < ACCEPT_PATIENCE => std::thread::sleep(LIFECYCLE_NAP_MAX),
            None => return Err(being_opened_or_closed(path, start.elapsed())),
        }
    };
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
    let readable = region.is_trusted(identity_of(path)?);
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
        deleted::remove_wal(path)?;
        base = open()?;
    }
    session::accept_base(path, base.as_mut(), is_replaced)?;
    region.invalidate();
    side::remove(region.file(), &shm)
        .map_err(|e| Error::io(format!("cannot remove {}", shm.display()), &e))
}

/// Fails if one file is opened by two names: the WAL and the log go by the name, and are not beside the second.
pub(crate) fn refuse_second_name(first: &Path, second: &Path) -> Result<()> {
    let folder = |path: &Path| path.parent().map(identity_of).transpose();
    if first == second
        || (first.file_name() == second.file_name() && folder(first)? == folder(second)?)
    {
        return Ok(());
    }
    Err(Error::CantOpen(format!(
        "{} is open under another name, {}: use it under that one",
        second.display(),
        first.display()
    )))
}

pub(crate) fn identity_of(path: &Path) -> Result<BaseIdentity> {
    let meta = std::fs::metadata(path)
        .map_err(|e| Error::io(format!("cannot look at {}", path.display()), &e))?;
    Ok(BaseIdentity { dev: meta.dev(), ino: meta.ino() })
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
        process::unregister(&database.region, database.process);
        let _ = locks::unlock(database.region.file(), LIFECYCLE_LOCK);
    }
}

impl Database {
    /// Opens it for this process; `None` if another process has the lifecycle lock.
    pub(crate) fn open(
        path: &Path,
        identity: BaseIdentity,
        opener: Arc<dyn BaseOpener>,
        forks: u64,
    ) -> Result<Option<Database>> {
        let shm = shm_path(path);
        let Some(file) = open_locked(&shm)? else { return Ok(None) };
        let created = file.metadata().is_ok_and(|m| m.len() == 0);
        // Shares the lock: it is held until this, too, is closed.
        let locked = file.clone();
        match Database::open_in(file, path, identity, opener, forks) {
            Ok(database) => {
                locks::unlock(&locked, LIFECYCLE_LOCK)
                    .map_err(|e| Error::io("cannot release the lifecycle lock", &e))?;
                if let Err(e) = database.reap_dead() {
                    database.close();
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
        opener: Arc<dyn BaseOpener>,
        forks: u64,
    ) -> Result<Database> {
        let region = Arc::new(Region::map(file, &shm_path(path))?);
        let trusted = region.is_trusted(identity);
        let alive = process::any_alive(&region, trusted);
        if alive && !trusted {
            return Err(Error::CantOpen(format!(
                "{} is in use by processes with another version of the library or another database file; close them first",
                region.path().display()
            )));
        }
        let mut base = None;
        if !alive {
            let mut opened = opener.open(path)?;
            session::begin(&region, identity, path, opened.as_mut(), trusted)?;
            base = Some(opened);
        }
        let me = process::register(&region, nonce())?;
        let process = me.index();
        let read_marks = Arc::new(ReadMarks::new(region.clone(), process));
        if let Some(base) = &mut base {
            base.use_read_marks(&read_marks);
        }
        Ok(Database {
            ring: region.ring(),
            log: OnceLock::new(),
            log_claim: OnceLock::new(),
            log_retired: AtomicBool::new(false),
            base: Mutex::new(base),
            opener,
            region: region.clone(),
            process,
            party: Arc::new(process::party(region.clone(), me)),
            read_marks,
            pid: process::pid(),
            pid_namespace: process::pid_namespace(),
            path: path.to_owned(),
            identity,
            itself: deleted::open_to_look(path).filter(|file| {
                file.metadata().is_ok_and(|m| (m.dev(), m.ino()) == (identity.dev, identity.ino))
            }),
            fork_generation: forks,
            background: crate::background::Background::default(),
            notifier: Notifier::default(),
            yielding: Yielding::default(),
            turns: Turns::default(),
            disk_space: DiskSpace::default(),
            share: Mutex::default(),
        })
    }

    /// The last connection of this process is gone.
    pub(crate) fn close(&self) {
        self.background.stop();
        if !self.lock_lifecycle() {
            // Whoever has it joins the session, or continues it after us, as if this process had been killed.
            drop(self.take_base());
            process::unregister(&self.region, self.process);
            return;
        }
        let _leaving = Leaving(self);
        // Failures leave a consistent session behind, which the next to attach continues.
        let last = process::live_others(&self.region, self.process) == 0;
        // Whoever has deleted the database wants nothing of it; what another file was put in place of stays.
        let may_end = last && (!self.path.exists() || self.check_place().is_ok());
        let may_end = may_end && self.reap_dead().is_ok();
        if may_end && self.finish_session().is_ok() {
            self.region.invalidate();
            drop(self.take_base());
            // Not that of another session, whose name it may be by now.
            let _ = side::remove(self.region.file(), self.region.path());
        }
    }

    /// Closing has no busy timeout: a process that is stopped while it opens is not waited for. False without the lock.
    fn lock_lifecycle(&self) -> bool {
        let start = Instant::now();
        loop {
            match locks::try_lock(self.region.file(), LIFECYCLE_LOCK) {
                Ok(true) => return true,
                Ok(false) if start.elapsed() < CLOSE_PATIENCE => {
                    std::thread::sleep(LIFECYCLE_NAP_MAX);
                }
                _ => return false,
            }
        }
    }

    /// Brings everything to rest. Without the log, if that is lost: then from memory alone (restore.rs).
    fn finish_session(&self) -> Result<()> {
        let finished = self.finish_with_log();
        if !self.log_shared().is_lost() {
            return finished;
        }
        self.with_base(|base| session::restore::restore(&self.region, &self.path, base))?;
        self.remove_log()
    }

    fn finish_with_log(&self) -> Result<()> {
        if self.control().fence.load(Acquire) == fence::RESTING && !self.finish_fence()? {
            return Ok(());
        }
        self.check_poison()?;
        if self.has_unresolved() {
            return Err(Error::Busy("a prepared transaction is not resolved".into()));
        }
        let slot = self.borrow_slot()?;
        let mut wait = Wait { timeout: CLOSE_PATIENCE, busy: None, interrupted: &mut || false };
        let _right = self.own_merge(slot.index(), &mut wait)?;
        let newest = self.newest_generation()?;
        self.merge_owned(false)?;
        if !self.is_merged_through(newest) {
            // Every memtable was in use, after the death of who was to merge: there was none to go on in, and now there is.
            self.merge_owned(false)?;
        }
        self.rest_base()
    }

    /// A session that never got to write: removes what a killed author of its fence left. True if the base is fenced.
    fn finish_fence(&self) -> Result<bool> {
        if !log_path(&self.path).exists() {
            return Ok(false);
        }
        let header = self.with_base(|base| base.header())?;
        if !header.fenced {
            self.remove_log()?;
            return Ok(false);
        }
        if header.salt == self.control().salt.load(Relaxed) {
            self.finish_own_fence(&header)?;
        }
        Ok(self.control().fence.load(Acquire) == fence::FENCED)
    }

    /// Unfences the base; everything is merged.
    fn rest_base(&self) -> Result<()> {
        let unmerged = self
            .control()
            .generations
            .iter()
            .any(|g| g.state.load(Relaxed) == crate::shm::layout::generation::FROZEN)
            || !self.memtable(self.active_arena()).is_empty();
        if unmerged {
            return Err(Error::Full("not everything could be merged".into()));
        }
        crate::crash_point!("close.merged");
        self.with_base(|base| {
            self.refuse_older_base(base)?;
            session::unfence(base)
        })?;
        crate::crash_point!("close.unfenced");
        self.remove_log()?;
        crate::crash_point!("close.log_removed");
        Ok(())
    }

    fn take_base(&self) -> Option<Box<dyn Base>> {
        self.base.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Runs `f` on the hidden connection, opening it when needed.
    pub(crate) fn with_base<T>(&self, f: impl FnOnce(&mut dyn Base) -> Result<T>) -> Result<T> {
        // Another connection of this thread, in a busy handler, would find the hidden connection taken.
        caller::unasked(|| self.with_base_unasked(f))
    }

    fn with_base_unasked<T>(&self, f: impl FnOnce(&mut dyn Base) -> Result<T>) -> Result<T> {
        let mut place = self.base.lock().unwrap_or_else(PoisonError::into_inner);
        let mut base = match place.take() {
            Some(base) => base,
            None => {
                let mut opened = self.opener.open(&self.path)?;
                self.check_place()?;
                opened.use_read_marks(&self.read_marks);
                opened
            }
        };
        // A panic drops the connection, and with it the transaction and the locks on the file that it had.
        let result = f(base.as_mut());
        *place = Some(base);
        if let Err(Error::Base { code: SQLITE_IOERR_FSYNC, .. }) = &result {
            self.base_sync_failed();
        }
        result
    }

    /// A sync of the base's files has failed. That stops the log if it leaves in doubt what frames rely on (C4).
    pub fn base_sync_failed(&self) {
        self.log_shared().note_base_sync_failed(libc::EIO);
    }

    /// Fails if the file of this session is not the one at its path any more. What is open of it goes on to be readable, but nothing
    /// may be opened by the path, nor removed beside it.
    fn check_place(&self) -> Result<()> {
        match identity_of(&self.path) {
            Ok(identity) if identity == self.identity => Ok(()),
            _ => Err(Error::Replaced(self.path.clone())),
        }
    }

    /// Reads the base's header.
    pub fn base_header(&self) -> Result<BaseHeader> {
        self.with_base(|base| base.header())
    }

    /// The base's file.
    pub(crate) fn base_identity(&self) -> BaseIdentity {
        self.identity
    }

    /// How often the process had forked when it opened the database.
    pub(crate) fn fork_generation(&self) -> u64 {
        self.fork_generation
    }

    /// Fails in the child of a fork, whose connections are its parent's.
    pub(crate) fn check_fork(&self) -> Result<()> {
        if fork::fork_generation() == self.fork_generation {
            return Ok(());
        }
        Err(Error::Misuse(
            "this connection was opened before fork(): a child must open its own connection".into(),
        ))
    }

    /// True in the child of a fork.
    pub fn is_forked(&self) -> bool {
        fork::fork_generation() != self.fork_generation
    }

    /// The descriptors of this process that tell of syncs.
    pub(crate) fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// Whose turn it is among the connections of this process.
    pub(crate) fn turns(&self) -> &Turns {
        &self.turns
    }

    pub(crate) fn yielding(&self) -> &Yielding {
        &self.yielding
    }

    pub(crate) fn disk_space(&self) -> &DiskSpace {
        &self.disk_space
    }

    /// This process's share of a memtable; see [`Database::enter_memtable`].
    pub(crate) fn share(&self, _: &Guard<'_>) -> MutexGuard<'_, Share> {
        // A panic left at worst some space unused: the share gives it away before anything leads there (A1).
        self.share.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    pub(crate) fn shared_region(&self) -> &Arc<Region> {
        &self.region
    }

    pub(crate) fn control(&self) -> &Control {
        self.region.control()
    }

    /// The ring of the log, for committers and redo.
    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// State of the log in shared memory.
    pub(crate) fn log_shared(&self) -> &LogShared {
        self.region.log()
    }

    /// The log with its file. The file exists from the fencing on.
    pub(crate) fn log(&self) -> Result<&Log> {
        if self.log_retired.load(Acquire) {
            return Err(Error::CantOpen(
                "this process has tried to leave concurrent mode; close its connections and open them again".into(),
            ));
        }
        if let Some(log) = self.log.get() {
            return Ok(log);
        }
        let _uncancelled = Uncancelled::begin();
        self.claim_log()?;
        let file = self.open_log()?;
        let base_file =
            BaseFile { path: self.path.clone(), identity: (self.identity.dev, self.identity.ino) };
        let log = Log::new(self.region.ring(), file, self.base_wal(), self.party.clone());
        let log = log.beside(base_file);
        if let Err(e) = log.prepare(OsStorage.file_size_limit()) {
            if !e.is_of_this_process() {
                self.base_sync_failed();
            }
            return Err(e.into());
        }
        Ok(self.log.get_or_init(|| log))
    }

    /// The locks on the base's read marks; `None` while they are only taken by fcntl (W3 in read_marks.rs).
    pub fn read_marks(&self) -> Option<&ReadMarks> {
        // Acquire: see `ensure_fenced`.
        let is_fenced =
            self.control().fence.load(Acquire) == fence::FENCED && !self.log_retired.load(Acquire);
        // Without a claim everything works, only slower; why there is none is told where the log is needed.
        (is_fenced && matches!(self.claim_log(), Ok(true))).then(|| &*self.read_marks)
    }

    fn base_wal(&self) -> BaseWal {
        BaseWal::new(Arc::new(OsStorage), suffixed(&self.path, "-wal"))
    }

    /// Does what an append lacked.
    pub(crate) fn make_room_in_log(&self, lacking: AppendError) -> Result<()> {
        if let AppendError::NeedsRing(bytes) = lacking {
            return self.region.grow_ring(bytes);
        }
        self.log()?.make_room(lacking).map_err(Error::from)
    }

    /// Has the segment of the generation that is about to begin ready in the log file.
    pub(crate) fn prepare_next_segment(&self) -> Result<()> {
        Ok(self.log()?.prepare_next_segment()?)
    }

    /// Has a segment of the log file ready before a commit needs it.
    pub(crate) fn prepare_log_space(&self) -> Result<()> {
        if self.control().fence.load(Acquire) == fence::FENCED {
            self.log()?.prepare_spare()?;
        }
        Ok(())
    }

    /// State of the log for `plait_status`; `None` before the first write.
    pub(crate) fn log_status(&self) -> Option<LogStatus> {
        if self.control().fence.load(Acquire) == fence::RESTING {
            return None;
        }
        self.log().ok().map(Log::status)
    }

    /// Fails when a write or sync of the log has failed in any process (C4).
    pub(crate) fn check_poison(&self) -> Result<()> {
        // Asked by every snapshot: the path is for the error alone.
        if self.log_shared().poisoned().is_none() {
            return Ok(());
        }
        self.log_shared().check(&log_path(&self.path)).map_err(Error::from)
    }

    /// Who this process is to the mutexes.
    pub(crate) fn party(&self) -> &Party {
        &self.party
    }

    pub(crate) fn process(&self) -> ProcessIndex {
        self.process
    }

    /// Id of the process that opened the database: of this one, except after a fork.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The pid namespace of that process, 0 if unknown.
    pub(crate) fn pid_namespace(&self) -> u64 {
        self.pid_namespace
    }

    /// The number of a pid namespace that is not this process's, else 0; both as far as 32 bits go, which is all that there are.
    pub(crate) fn foreign_namespace(&self, namespace: u32) -> u32 {
        if namespace == self.pid_namespace as u32 { 0 } else { namespace }
    }

    /// Device and inode of the database file: an order of files that is the same in every process.
    pub fn identity(&self) -> (u64, u64) {
        self.region.identity()
    }

    /// Path of the database file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Attached connections, all processes together.
    pub fn connections(&self) -> u32 {
        process::connections(&self.region)
    }

    /// Creates the log file of this session; the base is resting, so an old one holds nothing.
    pub(crate) fn create_log(&self) -> Result<()> {
        session::create_log(&self.region, &self.path).map(drop)
    }

    /// Stops the database for every process: something impossible happened (C4).
    pub fn poison(&self) {
        self.log_shared().set_poison(libc::EIO);
    }

    /// Cleans up after dead processes, so that their connections do not count.
    pub fn forget_dead(&self) -> Result<()> {
        self.reap_dead().map(drop)
    }

    /// Before the base leaves concurrent mode, in an exclusive transaction: unfences it and removes the log, so that every
    /// state in between is one that start-up knows. Everything is merged.
    pub fn retire_log(&self) -> Result<()> {
        {
            let _guard = self.lock_commit()?;
            // From here on nobody commits: optimistic transactions find out in their critical section, others
            // when they become writers.
            self.control().fence.store(fence::RESTING, std::sync::atomic::Ordering::Release);
        }
        crate::crash_point!("disable.resting");
        self.log_retired.store(true, std::sync::atomic::Ordering::Release);
        if let Err(e) = self.with_base(session::unfence) {
            self.stay_fenced()?;
            return Err(e);
        }
        crate::crash_point!("disable.unfenced");
        self.remove_log()?;
        crate::crash_point!("disable.log_removed");
        Ok(())
    }

    /// The base could not be unfenced. If it still is fenced the session goes on as it was.
    fn stay_fenced(&self) -> Result<()> {
        let header = self.with_base(|base| base.header())?;
        if header.fenced {
            let _guard = self.lock_commit()?;
            self.log_retired.store(false, std::sync::atomic::Ordering::Release);
            self.settle_fence(&header);
        }
        Ok(())
    }

    /// Whether merges run in a background thread; `Some` sets it.
    pub fn background_merge(&self, set: Option<bool>) -> bool {
        let word = &self.control().background_merge;
        if let Some(on) = set {
            word.store(u32::from(on), Relaxed);
        }
        word.load(Relaxed) != 0
    }

    /// Configured cost of a slow reader in bytes of the base's WAL; `Some` sets it.
    pub fn wal_limit_bytes(&self, set: Option<u64>) -> u64 {
        let word = &self.control().wal_limit_bytes;
        if let Some(bytes) = set {
            word.store(bytes, Relaxed);
        }
        word.load(Relaxed)
    }

    /// Has a merge made beside, if one is due that nobody makes; false if it cannot be.
    pub(crate) fn merge_beside(self: &Arc<Self>) -> bool {
        let is_made = self.control().merge_owner.load(Relaxed) != 0;
        is_made || !self.merge_is_due() || self.background.call(self)
    }
}
