//! [`Database`]: a file for any number of threads. It opens connections, keeps those that nobody uses, and has the thread that futures
//! of tickets wait for.

use std::ffi::CString;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::connection::{Connection, Options, c_path};
use crate::durable::{Durable, Watch};
use crate::error::{Error, Result};
use crate::session::Session;
use crate::ticket::Ticket;
use crate::transaction::{Snapshot, Transaction};

/// A file. Clones are the same one; all may be used by all threads.
///
/// Each call takes a connection for itself: one that is idle, or a new one. So threads never wait for a connection, and as many are open as were used
/// at the same time; [`Options::idle_connections`] says how many stay. The file is closed when the database with all
/// its clones, its connections and its futures are gone.
#[derive(Clone)]
pub struct Database {
    shared: Arc<Shared>,
}

/// What the clones of a database share.
pub(crate) struct Shared {
    path: CString,
    pub(crate) options: Options,
    idle: Mutex<Vec<Session>>,
    watch: Mutex<Option<Watch>>,
}

impl Database {
    /// Opens a file: creates it if it is missing, and puts it into concurrent mode. [`Options`] has other ways.
    pub fn open(path: impl AsRef<Path>) -> Result<Database> {
        Options::new().open(path)
    }

    pub(crate) fn with(path: &Path, options: Options) -> Result<Database> {
        let path = c_path(path)?;
        let first = options.session(&path, true)?;
        let idle = Mutex::new(vec![first]);
        Ok(Database { shared: Arc::new(Shared { path, options, idle, watch: Mutex::new(None) }) })
    }

    /// A connection for a thread of its own, or for as long as it is needed.
    pub fn connect(&self) -> Result<Connection> {
        let idle = lock(&self.shared.idle).pop();
        let session = idle.map_or_else(|| self.shared.session(), Ok)?;
        let runs = self.shared.options.runs_of_each();
        Ok(Connection::new(session, runs, Some(Arc::clone(&self.shared))))
    }

    /// Runs a transaction that writes; see [`Connection::write`].
    pub fn write<T>(&self, run: impl FnMut(&Transaction<'_>) -> Result<T>) -> Result<T> {
        self.connect()?.write(run)
    }

    /// The same for closures that have errors of their own.
    pub fn try_write<T, E: From<Error>>(
        &self,
        run: impl FnMut(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.connect()?.try_write(run)
    }

    /// Runs a transaction that reads; see [`Connection::read`].
    pub fn read<T>(&self, run: impl FnOnce(&Snapshot<'_>) -> Result<T>) -> Result<T> {
        self.connect()?.read(run)
    }

    /// The same for closures that have errors of their own.
    pub fn try_read<T, E: From<Error>>(
        &self,
        run: impl FnOnce(&Snapshot<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.connect()?.try_read(run)
    }

    /// A future that is ready when the commit with that ticket is on disk; see [`Durable`].
    pub fn durable_future(&self, ticket: Ticket) -> Durable {
        Durable::new(Arc::clone(&self.shared), ticket)
    }
}

impl Shared {
    /// Opens another connection.
    pub(crate) fn session(&self) -> Result<Session> {
        self.options.session(&self.path, false)
    }

    /// Keeps a connection that nobody uses any more, if it is as it was.
    pub(crate) fn give_back(&self, session: Session) {
        if !session.is_autocommit() && session.execute_batch("ROLLBACK").is_err() {
            return;
        }
        if session.in_use.get() > 0 || session.is_loading.get() {
            return;
        }
        let mut idle = lock(&self.idle);
        if idle.len() < self.options.idle_max {
            idle.push(session);
        } else {
            drop(idle);
            drop(session);
        }
    }

    /// The thread that futures wait for: the one that runs, or a new one.
    pub(crate) fn watch(self: &Arc<Shared>) -> Result<Watch> {
        let mut watch = lock(&self.watch);
        match &*watch {
            Some(running) if !running.has_ended() => Ok(running.clone()),
            _ => {
                let options = self.options.clone();
                let path = self.path.clone();
                Ok(watch.insert(Watch::start(move || options.session(&path, false))?).clone())
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(watch) = lock(&self.watch).take() {
            watch.stop();
        }
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Database({})", self.shared.path.to_string_lossy())
    }
}

/// What is behind these mutexes is whole at every instruction, also where a panic has passed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
