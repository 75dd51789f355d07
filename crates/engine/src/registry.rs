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
//! - REGISTRY-1 The mutex is held for a look and a store: nothing is waited for under it, no file is touched, no other lock taken. So a database
//!   that is slow to open or to close (a recovery, the last merge, a disk that does not answer, a process that is stopped) keeps
//!   nobody from another.
//! - REGISTRY-2 A database is opened once in a process, and closed before it is opened again: its locks on files are those of one region.
//! - REGISTRY-3 Whatever ends an opening or a closing, an error or a panic too, ends the entry's change.
//! - REGISTRY-4 What a child finds after fork() belongs to its parent, whose locks and slots must not be touched, and whose threads may have held the
//!   mutex: it begins a registry of its own.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::attach;
use crate::base::BaseOpener;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::shm::fork;
use crate::shm::read_marks;
use crate::shm::region::BaseIdentity;
use crate::txn::Conn;

enum Entry {
    Changing,
    Open { database: Arc<Database>, connections: usize },
    Leaving { database: Arc<Database> },
}

type Registry = HashMap<BaseIdentity, Entry>;

/// The registry of a process, behind that of its parent (REGISTRY-4).
struct Own {
    fork_generation: u64,
    mutex: Mutex<Registry>,
    of_child: OnceLock<Box<Own>>,
}

impl Own {
    fn new(fork_generation: u64) -> Own {
        Own { fork_generation, mutex: Mutex::default(), of_child: OnceLock::new() }
    }
}

fn mutex() -> &'static Mutex<Registry> {
    static FIRST: OnceLock<Own> = OnceLock::new();
    let fork_generation = fork::fork_generation();
    // What is put in place is made before: a child would wait for ever for a thread of its parent that was in the middle of it.
    let mut own = FIRST.get().unwrap_or_else(|| {
        let new = Own::new(fork_generation);
        FIRST.get_or_init(|| new)
    });
    while own.fork_generation != fork_generation {
        let new = Box::new(Own::new(fork_generation));
        own = own.of_child.get_or_init(|| new);
    }
    &own.mutex
}

fn lock() -> MutexGuard<'static, Registry> {
    // REGISTRY-1: there is nothing that can panic in between.
    mutex().lock().unwrap_or_else(PoisonError::into_inner)
}

/// An entry that this thread has made changing (REGISTRY-3).
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
pub(crate) fn try_attach(
    path: &Path,
    wal_index: u64,
    opener: &Arc<dyn BaseOpener>,
) -> Result<Option<Conn>> {
    let fork_generation = fork::fork_generation();
    let identity = BaseIdentity::of(path)?;
    let mut registry = lock();
    match registry.get_mut(&identity) {
        Some(Entry::Changing | Entry::Leaving { .. }) => Ok(None),
        Some(Entry::Open { database, connections }) => {
            *connections += 1;
            let database = database.clone();
            drop(registry);
            join(&database, path, wal_index).map(Some)
        }
        None => {
            registry.insert(identity, Entry::Changing);
            drop(registry);
            open(Change(identity), path, wal_index, opener, fork_generation)
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
fn join(database: &Arc<Database>, path: &Path, wal_index: u64) -> Result<Conn> {
    let own = Some(database.process());
    let joined = refuse_second_name(database.path(), path)
        .and_then(|()| read_marks::agree(database.region(), own, wal_index, path))
        .and_then(|()| Conn::new(database.clone()));
    if joined.is_err() {
        release(database);
    }
    joined
}

fn open(
    change: Change,
    path: &Path,
    wal_index: u64,
    opener: &Arc<dyn BaseOpener>,
    fork_generation: u64,
) -> Result<Option<Conn>> {
    let opened = attach::open(path, change.0, wal_index, opener.clone(), fork_generation)?;
    let Some(database) = opened else {
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
    let registry = lock();
    let open = registry.values().filter_map(|entry| match entry {
        Entry::Open { database, .. } => Some(database.clone()),
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
        Entry::Changing => false,
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
        Some(Entry::Changing) | None => return,
    }
    let open = registry.insert(identity, Entry::Changing);
    drop(registry);
    drop(open);
    let _change = Change(identity);
    attach::close(database);
}
