//! Which databases this process has open, and for how many connections.
//!
//! | an entry is | then |
//! |---|---|
//! | absent | whoever wants the database makes the entry *changing*, and opens it |
//! | changing | one thread opens or closes the database; who wants it waits, with nothing held |
//! | open, with n connections | n grows and shrinks; whoever takes the last one away makes the entry changing, and closes |
//! | leaving | its only connection takes it out of the mode (`begin_leaving` in attach.rs): who wants it waits as for changing |
//!
//! Invariants
//! - O1 The mutex is held for a look and a store: nothing is waited for under it, no file is touched, no other lock taken. So a database
//!   that is slow to open or to close (a recovery, the last merge, a disk that does not answer, a process that is stopped) keeps
//!   nobody from another.
//! - O2 A database is opened once in a process, and closed before it is opened again: its locks on files are those of one region.
//! - O3 Whatever ends an opening or a closing, an error or a panic too, ends the entry's change.
//! - O4 What a child finds after fork() belongs to its parent, whose locks and slots must not be touched: it is forgotten.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::attach;
use crate::base::BaseOpener;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::shm::fork;
use crate::shm::region::BaseIdentity;
use crate::sync::wait;
use crate::txn::Conn;

/// Longest wait for the mutex itself; then it is waited for as for another thread's opening.
const MUTEX_MAX: Duration = Duration::from_millis(1);
const MUTEX_NAP: Duration = Duration::from_micros(20);

enum Entry {
    Changing { fork_generation: u64 },
    Open { database: Arc<Database>, connections: usize },
    Leaving { database: Arc<Database> },
}

impl Entry {
    fn fork_generation(&self) -> u64 {
        match self {
            Entry::Changing { fork_generation } => *fork_generation,
            Entry::Open { database, .. } | Entry::Leaving { database } => {
                database.fork_generation()
            }
        }
    }
}

type Registry = HashMap<BaseIdentity, Entry>;

fn mutex() -> &'static Mutex<Registry> {
    static REGISTRY: OnceLock<Mutex<Registry>> = OnceLock::new();
    REGISTRY.get_or_init(Mutex::default)
}

fn lock() -> MutexGuard<'static, Registry> {
    // O1: there is nothing that can panic in between.
    mutex().lock().unwrap_or_else(PoisonError::into_inner)
}

/// `None` if it is held for long: in a child of fork() for ever, if another thread of the parent had it at that moment.
fn try_lock() -> Option<MutexGuard<'static, Registry>> {
    wait::lock_within(mutex(), MUTEX_MAX, MUTEX_NAP)
}

/// An entry that this thread has made changing (O3).
struct Change(BaseIdentity);

impl Change {
    fn ends_open(self, database: Arc<Database>) {
        lock().insert(self.0, Entry::Open { database, connections: 1 });
        std::mem::forget(self);
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        lock().remove(&self.0);
    }
}

/// One look; `None` if somebody opens or closes the database, in this process or in another one.
pub(crate) fn try_attach(path: &Path, opener: &Arc<dyn BaseOpener>) -> Result<Option<Conn>> {
    let fork_generation = fork::fork_generation();
    let identity = BaseIdentity::of(path)?;
    let Some(mut registry) = try_lock() else { return Ok(None) };
    if registry.get(&identity).is_some_and(|e| e.fork_generation() != fork_generation) {
        std::mem::forget(registry.remove(&identity));
    }
    match registry.get_mut(&identity) {
        Some(Entry::Changing { .. } | Entry::Leaving { .. }) => Ok(None),
        Some(Entry::Open { database, connections }) => {
            *connections += 1;
            let database = database.clone();
            drop(registry);
            join(&database, path).map(Some)
        }
        None => {
            registry.insert(identity, Entry::Changing { fork_generation });
            drop(registry);
            open(Change(identity), path, opener, fork_generation)
        }
    }
}

/// Fails if one file is opened by two names: the WAL and the log go by the name, and are not beside the second.
fn refuse_second_name(first: &Path, second: &Path) -> Result<()> {
    let folder = |path: &Path| path.parent().map(BaseIdentity::of).transpose();
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

/// Another connection to a database, for which it is counted already.
fn join(database: &Arc<Database>, path: &Path) -> Result<Conn> {
    let joined =
        refuse_second_name(database.path(), path).and_then(|()| Conn::new(database.clone()));
    if joined.is_err() {
        release(database);
    }
    joined
}

fn open(
    change: Change,
    path: &Path,
    opener: &Arc<dyn BaseOpener>,
    fork_generation: u64,
) -> Result<Option<Conn>> {
    let Some(database) = attach::open(path, change.0, opener.clone(), fork_generation)? else {
        return Ok(None);
    };
    let database = Arc::new(database);
    match Conn::new(database.clone()) {
        Ok(conn) => {
            change.ends_open(database);
            Ok(Some(conn))
        }
        Err(e) => {
            attach::close(&database);
            Err(e)
        }
    }
}

/// The databases that this process, not its parent, has open now.
pub(crate) fn open_databases() -> Vec<Arc<Database>> {
    let fork_generation = fork::fork_generation();
    let Some(registry) = try_lock() else { return Vec::new() };
    let open = registry.values().filter_map(|entry| match entry {
        Entry::Open { database, .. } if database.fork_generation() == fork_generation => {
            Some(database.clone())
        }
        _ => None,
    });
    open.collect()
}

/// Keeps other connections of this process away, if there is one alone.
pub(crate) fn begin_leaving(database: &Arc<Database>) -> bool {
    let mut registry = lock();
    match registry.get_mut(&database.base_identity()) {
        Some(entry @ Entry::Open { connections: 1, .. }) if is_of(entry, database) => {
            *entry = Entry::Leaving { database: database.clone() };
            true
        }
        _ => false,
    }
}

/// Lets them come again; false if it did not leave.
pub(crate) fn stay(database: &Arc<Database>) -> bool {
    let mut registry = lock();
    match registry.get_mut(&database.base_identity()) {
        Some(entry @ Entry::Leaving { .. }) if is_of(entry, database) => {
            *entry = Entry::Open { database: database.clone(), connections: 1 };
            true
        }
        _ => false,
    }
}

fn is_of(entry: &Entry, database: &Arc<Database>) -> bool {
    match entry {
        Entry::Changing { .. } => false,
        Entry::Open { database: there, .. } | Entry::Leaving { database: there } => {
            Arc::ptr_eq(there, database)
        }
    }
}

/// A connection less; with the last one the database is closed.
pub(crate) fn release(database: &Arc<Database>) {
    let identity = database.base_identity();
    let mut registry = lock();
    match registry.get_mut(&identity) {
        Some(entry) if !is_of(entry, database) => return,
        Some(Entry::Open { connections, .. }) if *connections > 1 => {
            *connections -= 1;
            return;
        }
        Some(Entry::Open { .. } | Entry::Leaving { .. }) => {}
        Some(Entry::Changing { .. }) | None => return,
    }
    let fork_generation = database.fork_generation();
    let open = registry.insert(identity, Entry::Changing { fork_generation });
    drop(registry);
    drop(open);
    let _change = Change(identity);
    attach::close(database);
}
