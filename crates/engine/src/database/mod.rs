//! One concurrent database in this process: its shared memory, log and hidden base connection,
//! shared by all connections of the process.
//!
//! Lock order: lifecycle byte -> `base` -> commit mutex; see docs/locks.md. attach.rs says how a
//! process joins and leaves.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub use self::following::StillFollows;
use self::following::Warrant;
use self::generations::Generations;
use self::notify::Notifier;
use self::right::Right;
use self::slots::Slots;
use self::turns::Turns;
use crate::base::{Base, BaseHeader, BaseOpener};
use crate::error::{Error, Result, SQLITE_IOERR_FSYNC};
use crate::ids::ProcessIndex;
use crate::log::{AppendError, BaseFile, BaseWal, Log, LogShared, LogStatus, Ring};
use crate::session;
use crate::shm::fork::{self, LockFile};
use crate::shm::layout::{Control, GapTable};
use crate::shm::process;
use crate::shm::read_marks::ReadMarks;
use crate::shm::region::{BaseIdentity, Region};
use crate::storage::Storage as _;
use crate::storage::names::suffixed;
pub use crate::storage::names::{log_path, shm_path};
use crate::storage::os::OsStorage;
use crate::sync::caller;
use crate::sync::caller::Uncancelled;
use crate::sync::mutex::{Identity, Party};
use crate::sync::worker::Worker;
use crate::sync::yielding::Yielding;

pub mod boundaries;
pub mod changed;
mod following;
pub(crate) mod gaps;
pub(crate) mod generations;
pub mod happenings;
pub(crate) mod learned;
pub(crate) mod listed;
pub(crate) mod lock;
pub(crate) mod merge_right;
mod notify;
pub(crate) mod orphans;
mod own_log;
#[cfg(test)]
mod pin_model;
pub(crate) mod right;
#[cfg(test)]
mod right_model;
pub mod shipping;
mod slots;
pub mod status;
mod turns;
mod visibility;

/// One concurrent database in this process.
pub struct Database {
    // Fields are dropped in this order: ring and log use the region.
    ring: Ring,
    log: OnceLock<Log>,
    log_claim: OnceLock<Arc<LockFile>>,
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
    fork_generation: u64,
    worker: Worker,
    notifier: Notifier,
    yielding: Yielding,
    turns: Turns,
    /// What its follower in this process follows by.
    warrant: Warrant,
    /// This process has noted that the log has stopped.
    is_stop_noted: AtomicBool,
    pub(crate) slots: Arc<Slots>,
    pub(crate) right: Right,
    pub(crate) generations: Generations,
}

impl Database {
    /// The `Database` of the process `me`, which has just joined the session.
    pub(crate) fn new(
        region: Arc<Region>,
        me: Identity,
        path: &Path,
        identity: BaseIdentity,
        opener: Arc<dyn BaseOpener>,
        mut base: Option<Box<dyn Base>>,
        forks: u64,
    ) -> Database {
        let process = me.index();
        let read_marks = Arc::new(ReadMarks::new(region.clone(), process));
        if let Some(base) = &mut base {
            base.use_read_marks(&read_marks);
        }
        // Relaxed: this process has written it.
        let pid_namespace =
            region.layout().processes[process.0 as usize].pid_namespace.load(Relaxed);
        let slots = Arc::new(Slots::new(region.clone(), process, pid_namespace));
        Database {
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
            pid_namespace,
            path: path.to_owned(),
            identity,
            fork_generation: forks,
            worker: Worker::default(),
            notifier: Notifier::default(),
            yielding: Yielding::default(),
            turns: Turns::default(),
            warrant: Warrant::default(),
            is_stop_noted: AtomicBool::new(false),
            generations: Generations::new(region.clone(), slots.clone()),
            right: Right::new(region.clone(), slots.clone()),
            slots,
        }
    }

    pub(crate) fn take_base(&self) -> Option<Box<dyn Base>> {
        self.base.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Runs `f` on the hidden connection, opening it when needed.
    pub(crate) fn with_base<T>(&self, f: impl FnOnce(&mut dyn Base) -> Result<T>) -> Result<T> {
        // The busy handler may use another connection of this thread, which would find the hidden
        // one taken.
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
        // A panic drops the connection, and with it its transaction and its locks on the file.
        let result = f(base.as_mut());
        *place = Some(base);
        if let Err(Error::Base { code: SQLITE_IOERR_FSYNC, .. }) = &result {
            self.base_sync_failed();
        }
        result
    }

    /// Records that a sync of the base's files has failed: the log stops if frames rely on what is
    /// in doubt now (COMMIT-4).
    pub fn base_sync_failed(&self) {
        self.log_shared().note_base_sync_failed(libc::EIO);
    }

    /// Fails if the file of this session is no longer at its path. What is open of it remains
    /// readable, but nothing may be opened by the path or removed next to it.
    pub(crate) fn check_place(&self) -> Result<()> {
        match BaseIdentity::of(&self.path) {
            Ok(identity) if identity == self.identity => Ok(()),
            _ => Err(Error::Replaced(self.path.clone())),
        }
    }

    /// Reads the base's header.
    pub fn base_header(&self) -> Result<BaseHeader> {
        self.with_base(|base| base.header())
    }

    pub(crate) fn base_identity(&self) -> BaseIdentity {
        self.identity
    }

    /// Fails in the child of a fork, whose connections are its parent's.
    ///
    /// # Errors
    /// Misuse.
    pub fn check_fork(&self) -> Result<()> {
        if fork::fork_generation() == self.fork_generation {
            return Ok(());
        }
        Err(Error::Misuse(
            "this connection was opened before fork(); open a new one in the child process".into(),
        ))
    }

    /// True in the child of a fork.
    pub fn is_forked(&self) -> bool {
        fork::fork_generation() != self.fork_generation
    }

    pub(crate) fn opener(&self) -> &Arc<dyn BaseOpener> {
        &self.opener
    }

    pub(crate) fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    pub(crate) fn worker(&self) -> &Worker {
        &self.worker
    }

    pub(crate) fn turns(&self) -> &Turns {
        &self.turns
    }

    pub(crate) fn yielding(&self) -> &Yielding {
        &self.yielding
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

    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    pub(crate) fn gaps(&self) -> &GapTable {
        &self.region.layout().gaps
    }

    /// State of the log in shared memory.
    pub(crate) fn log_shared(&self) -> &LogShared {
        self.region.log()
    }

    /// The log, whose file is opened on the first call. The file exists once the base is fenced.
    pub(crate) fn log(&self) -> Result<&Log> {
        if self.log_retired.load(Acquire) {
            return Err(Error::Left);
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
        log.prepare(OsStorage.file_size_limit())?;
        Ok(self.log.get_or_init(|| log))
    }

    /// The locks on the base's read marks in shared memory; `None` while they are taken by fcntl
    /// alone (MARK-3 in read_marks.rs).
    pub fn read_marks(&self) -> Option<&ReadMarks> {
        let is_fenced = self.is_fenced() && !self.log_retired.load(Acquire);
        // Without a claim everything works, only slower. Whatever needs the log reports why there
        // is none.
        (is_fenced && matches!(self.claim_log(), Ok(true))).then(|| &*self.read_marks)
    }

    /// The locks of this process on the base's read marks, for one more hidden connection.
    pub(crate) fn shared_read_marks(&self) -> &Arc<ReadMarks> {
        &self.read_marks
    }

    fn base_wal(&self) -> BaseWal {
        let opener = self.opener.clone();
        BaseWal::new(Arc::new(OsStorage), suffixed(&self.path, "-wal"))
            .borrowed(move |path| opener.borrow(path))
    }

    /// Provides what an append lacked.
    pub(crate) fn make_room_in_log(&self, lacking: AppendError) -> Result<()> {
        if let AppendError::NeedsRing(bytes) = lacking {
            return self.region.grow_ring(bytes);
        }
        if self.gives_up_hold(&lacking) {
            return Ok(());
        }
        self.log()?.make_room(lacking).map_err(Error::from)
    }

    /// True if the append that lacked this may find it now: the disk is short of space, which is for
    /// commits, and a hold had kept slots from them (HELD-2).
    pub(crate) fn gives_up_hold(&self, lacking: &AppendError) -> bool {
        matches!(lacking, AppendError::NeedsSlots(_)) && self.ends_hold_where_space_is_short()
    }

    fn ends_hold_where_space_is_short(&self) -> bool {
        self.log_shared().is_held()
            && !self.region.has_space_to_spare()
            && self.log_shared().break_hold()
    }

    /// Prepares the segment of the next generation in the log file.
    pub(crate) fn prepare_next_segment(&self) -> Result<()> {
        self.ends_hold_where_space_is_short();
        Ok(self.log()?.prepare_next_segment()?)
    }

    /// True if [`Database::prepare_log_space`] would find something to do, or fail.
    pub(crate) fn is_log_space_wanted(&self) -> bool {
        let is_open_and_has_it = || {
            !self.log_retired.load(Acquire) && self.log.get().is_some_and(|log| !log.wants_spare())
        };
        self.is_fenced() && !is_open_and_has_it()
    }

    /// Prepares a segment of the log file before a commit needs it.
    pub(crate) fn prepare_log_space(&self) -> Result<()> {
        if self.is_fenced() {
            self.log()?.prepare_spare()?;
        }
        Ok(())
    }

    /// State of the log for `plait_status`; `None` before the first write.
    pub(crate) fn log_status(&self) -> Option<LogStatus> {
        if !self.is_fenced() {
            return None;
        }
        self.log().ok().map(Log::status)
    }

    /// Fails when a write or sync of the log has failed in any process (COMMIT-4).
    pub(crate) fn check_poison(&self) -> Result<()> {
        // For every snapshot: the path is built for the error alone.
        if self.log_shared().poisoned().is_none() {
            return Ok(());
        }
        self.log_shared().check(&log_path(&self.path)).map_err(Error::from)
    }

    /// This process as the shared mutexes know it.
    pub(crate) fn party(&self) -> &Party {
        &self.party
    }

    pub(crate) fn process(&self) -> ProcessIndex {
        self.process
    }

    /// Id of the process that opened the database: this one, or its parent after a fork.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The pid namespace of that process; 0 if it is unknown.
    pub(crate) fn pid_namespace(&self) -> u64 {
        self.pid_namespace
    }

    /// `namespace` if it is not this process's, else 0. The low 32 bits are compared: there are no
    /// more.
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

    /// Attached connections of all processes.
    pub fn connections(&self) -> u32 {
        process::connections(&self.region)
    }

    /// Creates the log file of this session. The base is at rest, so an older log holds nothing.
    pub(crate) fn create_log(&self) -> Result<()> {
        session::create_log(&self.region, &self.path).map(drop)
    }

    /// Stops the database for every process after an internal error (COMMIT-4).
    pub fn poison(&self) {
        self.log_shared().set_broken();
    }

    /// Stops the database for every process after a failed sync of the base: only a recovery from
    /// disk can tell what is committed.
    pub(crate) fn stop_in_doubt(&self) {
        // SQLite does not say what the system's error was.
        self.log_shared().set_in_doubt(libc::EIO);
    }

    /// Cleans up after dead processes, so that their connections do not count.
    pub fn forget_dead(&self) -> Result<()> {
        self.reap_dead().map(drop)
    }

    /// True if merges run in a background thread; `Some` sets it.
    pub fn background_merge(&self, set: Option<bool>) -> bool {
        let word = &self.control().background_merge;
        if let Some(on) = set {
            word.store(u32::from(on), Relaxed);
        }
        word.load(Relaxed) != 0
    }

    /// The configured cost of a slow reader, in bytes of the base's WAL; `Some` sets it.
    pub fn wal_limit_bytes(&self, set: Option<u64>) -> u64 {
        let word = &self.control().wal_limit_bytes;
        if let Some(bytes) = set {
            word.store(bytes, Relaxed);
        }
        word.load(Relaxed)
    }
}
