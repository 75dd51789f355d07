//! [`Connection`]: one that this crate has opened, and [`Options`], how.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::database::{Database, Shared};
use crate::error::{Error, Result};
use crate::ffi;
use crate::session::Session;
use crate::transaction::{self, Runs, Snapshot, Transaction};

/// Between two looks at a new file that others open too.
const PAUSE: Duration = Duration::from_millis(5);

/// When a commit returns; `PRAGMA synchronous`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synchronous {
    /// When it is on disk.
    Full,
    /// When it is safe from the death of processes. Its ticket tells when it is on disk.
    Normal,
    /// As `Normal`, and the disk is never waited for.
    Off,
}

/// How a database is opened.
///
/// ```no_run
/// # fn main() -> plait::Result<()> {
/// use plait::{Options, Synchronous};
/// let database = Options::new().synchronous(Synchronous::Normal).open("app.db")?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    is_created: bool,
    is_read_only: bool,
    keeps_mode: bool,
    synchronous: Synchronous,
    busy_timeout: Duration,
    runs: Runs,
    pub(crate) idle_max: usize,
    on_open: String,
}

impl Default for Options {
    fn default() -> Self {
        Options::new()
    }
}

impl Options {
    /// A file that is created if it is missing and put into concurrent mode, durable commits, a busy timeout of ten seconds.
    pub fn new() -> Options {
        Options {
            is_created: true,
            is_read_only: false,
            keeps_mode: false,
            synchronous: Synchronous::Full,
            busy_timeout: Duration::from_secs(10),
            runs: Runs::default(),
            idle_max: 8,
            on_open: String::new(),
        }
    }

    /// Whether a missing file is created.
    pub fn create(self, is_created: bool) -> Options {
        Options { is_created, ..self }
    }

    /// The file must exist and is not written; its journal mode stays.
    pub fn read_only(self) -> Options {
        Options { is_read_only: true, ..self }
    }

    /// The file's journal mode stays, whichever it is.
    pub fn keep_journal_mode(self) -> Options {
        Options { keeps_mode: true, ..self }
    }

    /// When commits return.
    pub fn synchronous(self, synchronous: Synchronous) -> Options {
        Options { synchronous, ..self }
    }

    /// How long one call waits for others before it fails.
    pub fn busy_timeout(self, busy_timeout: Duration) -> Options {
        Options { busy_timeout, ..self }
    }

    /// How often transactions are run.
    pub fn runs(self, runs: Runs) -> Options {
        Options { runs, ..self }
    }

    /// How many connections a [`Database`] keeps open that nobody uses; 8 if nothing is said.
    pub fn idle_connections(self, idle_max: usize) -> Options {
        Options { idle_max, ..self }
    }

    /// SQL that is run on each connection when it has been opened: pragmas, ATTACH, temporary tables.
    pub fn on_open(self, sql: impl Into<String>) -> Options {
        Options { on_open: sql.into(), ..self }
    }

    /// Opens a database for any number of threads.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Database> {
        Database::with(path.as_ref(), self)
    }

    /// Opens one connection.
    pub fn connect(self, path: impl AsRef<Path>) -> Result<Connection> {
        let session = self.session(&c_path(path.as_ref())?, true)?;
        Ok(Connection::new(session, self.runs, None))
    }

    /// Opens a connection, and with `sets_mode` puts the file into concurrent mode unless it is to keep its own.
    pub(crate) fn session(&self, path: &CStr, sets_mode: bool) -> Result<Session> {
        let flags = match (self.is_read_only, self.is_created) {
            (true, _) => ffi::OPEN_READONLY,
            (false, true) => ffi::OPEN_READWRITE | ffi::OPEN_CREATE,
            (false, false) => ffi::OPEN_READWRITE,
        };
        let opening = || format!("opening {}", path.to_string_lossy());
        let mut raw = ptr::null_mut();
        // SAFETY: the path is a C string, `raw` takes the handle, and no name of a VFS means the default one.
        let code = unsafe {
            ffi::sqlite3_open_v2(
                path.as_ptr(),
                &raw mut raw,
                flags | ffi::OPEN_NOMUTEX,
                ptr::null(),
            )
        };
        let raw = NonNull::new(raw).ok_or_else(|| Error::of_code(code, opening()))?;
        // SAFETY: a handle that was opened just now, if only to be asked for the error and closed.
        let session = unsafe { Session::new(raw, true) };
        session.check(code, opening)?;
        // SAFETY: the connection is open.
        unsafe { ffi::sqlite3_extended_result_codes(session.raw(), 1) };
        let ms = i32::try_from(self.busy_timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the connection is open.
        session.check(unsafe { ffi::sqlite3_busy_timeout(session.raw(), ms) }, opening)?;
        // Whatever a file or the options have wrong shows in the first statement, which knows no file.
        self.settle(&session, sets_mode && !self.keeps_mode && !self.is_read_only)
            .map_err(|error| error.while_doing(&opening()))?;
        Ok(session)
    }

    fn settle(&self, session: &Session, sets_mode: bool) -> Result<()> {
        session.execute_batch(match self.synchronous {
            Synchronous::Full => "PRAGMA synchronous=FULL",
            Synchronous::Normal => "PRAGMA synchronous=NORMAL",
            Synchronous::Off => "PRAGMA synchronous=OFF",
        })?;
        if sets_mode {
            self.make_concurrent(session)?;
        } else {
            session.note_mode()?;
        }
        session.execute_batch(&self.on_open)
    }

    /// Who is first changes the file. Others who open it at that moment are told that it is locked, whatever their timeout is, and look again.
    fn make_concurrent(&self, session: &Session) -> Result<()> {
        let begun = Instant::now();
        loop {
            match set_mode(session) {
                Err(error) if error.code() == ffi::BUSY && begun.elapsed() < self.busy_timeout => {
                    thread::sleep(PAUSE);
                }
                done => return done,
            }
        }
    }

    pub(crate) fn runs_of_each(&self) -> Runs {
        self.runs
    }
}

/// Puts the file into concurrent mode, unless it is.
fn set_mode(session: &Session) -> Result<()> {
    if session.note_mode()? == "concurrent" {
        return Ok(());
    }
    session.execute_batch("PRAGMA main.journal_mode=concurrent")?;
    match session.note_mode()?.as_str() {
        "concurrent" => Ok(()),
        mode => Err(Error::Refused(format!(
            "the file stays in journal mode {mode}, and should be in concurrent mode; keep_journal_mode() leaves it as it is"
        ))),
    }
}

/// The path as the library takes it: absolute, so that it means the same file when connections are opened later.
pub(crate) fn c_path(path: &Path) -> Result<CString> {
    if path.as_os_str() == ":memory:" {
        return Err(Error::Refused(
            "\":memory:\" would be a file of that name: Connection::open_in_memory() is a database in memory, ./:memory: such a file".into(),
        ));
    }
    let refused = |why: &dyn std::fmt::Display| {
        Error::Refused(format!("opening {}: the path is none: {why}", path.display()))
    };
    let absolute = std::path::absolute(path).map_err(|error| refused(&error))?;
    CString::new(absolute.as_os_str().as_bytes()).map_err(|error| refused(&error))
}

/// A connection: what a [`Session`] can do, and transactions.
///
/// It goes from thread to thread, and is used by one at a time:
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>(_: &T) {}
/// shared(&plait::Connection::open_in_memory().unwrap());
/// ```
///
/// One that comes from a [`Database`] goes back to it when it is dropped; a transaction that was left open is rolled back. What its
/// program has set on it (pragmas, temporary tables, attached files) stays set for the next that it is handed to.
pub struct Connection {
    session: ManuallyDrop<Session>,
    runs: Runs,
    home: Option<Arc<Shared>>,
}

impl Connection {
    /// Opens a file as [`Options::new`] says.
    pub fn open(path: impl AsRef<Path>) -> Result<Connection> {
        Options::new().connect(path)
    }

    /// A database in memory, of this connection alone.
    pub fn open_in_memory() -> Result<Connection> {
        let options = Options::new().keep_journal_mode();
        Ok(Connection::new(options.session(c":memory:", false)?, options.runs, None))
    }

    pub(crate) fn new(session: Session, runs: Runs, home: Option<Arc<Shared>>) -> Connection {
        Connection { session: ManuallyDrop::new(session), runs, home }
    }

    /// How often its transactions are run.
    pub fn set_runs(&mut self, runs: Runs) {
        self.runs = runs;
    }

    /// Runs a transaction that writes, again if it meets a conflict, as often as [`Runs`] says.
    ///
    /// What `run` answers is the answer, if the transaction has committed; an error, or a panic, rolls it back. `run` may be called several
    /// times, each time in a new transaction: what it changes outside of the database it should set anew.
    ///
    /// ```
    /// # fn main() -> plait::Result<()> {
    /// use plait::{Connection, MapDefinition, params};
    /// const MONEY: MapDefinition<&str, i64> = MapDefinition::new("money");
    /// let mut connection = Connection::open_in_memory()?;
    /// connection.map(MONEY)?.put("ada", 10)?;
    /// let left = connection.write(|tx| {
    ///     let mut money = tx.map(MONEY)?;
    ///     let left = money.add("ada", -3)?;
    ///     money.add("alan", 3)?;
    ///     tx.execute("DELETE FROM money WHERE v=?1", params![0])?;
    ///     Ok(left)
    /// })?;
    /// assert_eq!(left, 7);
    /// # Ok(()) }
    /// ```
    pub fn write<T>(&mut self, run: impl FnMut(&Transaction<'_>) -> Result<T>) -> Result<T> {
        self.try_write(run)
    }

    /// The same for closures that have errors of their own.
    pub fn try_write<T, E: From<Error>>(
        &mut self,
        run: impl FnMut(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        transaction::write(&self.session, self.runs, run)
    }

    /// Runs a transaction that reads.
    pub fn read<T>(&mut self, run: impl FnOnce(&Snapshot<'_>) -> Result<T>) -> Result<T> {
        self.try_read(run)
    }

    /// The same for closures that have errors of their own.
    pub fn try_read<T, E: From<Error>>(
        &mut self,
        run: impl FnOnce(&Snapshot<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        transaction::read(&self.session, run)
    }
}

impl Deref for Connection {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: it is not used after this.
        let session = unsafe { ManuallyDrop::take(&mut self.session) };
        if let Some(home) = self.home.take() {
            home.give_back(session);
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}
