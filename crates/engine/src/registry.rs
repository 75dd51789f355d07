//! The databases that this process has open, and the number of connections to each.
//!
//! - No entry: a thread that wants the database makes the entry *changing*, and opens the database.
//! - Changing: one thread opens or closes the database. A thread that wants it waits, with nothing
//!   held.
//! - Open, with n connections: the thread that takes the last one away makes the entry changing,
//!   and closes the database.
//! - Leaving: the only connection takes the database out of the mode (`begin_leaving` in
//!   attach.rs). A thread that wants it waits, as for changing.
//!
//! Invariants
//! - REGISTRY-1 The mutex is held for a look and a store: under it no thread waits, touches a file
//!   or takes another lock. So a database that is slow to open or to close (a recovery, the last
//!   merge, a disk that does not answer, a stopped process) keeps no thread from another database.
//! - REGISTRY-2 A database is opened once in a process, and closed before it is opened again: its
//!   locks on files are those of one region.
//! - REGISTRY-3 Whatever ends an opening or a closing, an error or a panic too, ends the entry's
//!   change.
//! - REGISTRY-4 The registry after fork() belongs to the parent, whose locks and slots the child
//!   must not touch, and whose threads may have held the mutex: the child begins its own.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::attach;
use crate::base::BaseOpener;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::shm::fork::{self, PerFork};
use crate::shm::read_marks;
use crate::shm::region::BaseIdentity;
use crate::txn::Conn;

enum Entry {
    Changing,
    Open { database: Arc<Database>, connections: usize },
    Leaving { database: Arc<Database> },
}

type Registry = HashMap<BaseIdentity, Entry>;

/// REGISTRY-4.
static REGISTRY: PerFork<Mutex<Registry>> = PerFork::new();

fn lock() -> MutexGuard<'static, Registry> {
    // REGISTRY-1: nothing under the mutex can panic.
    REGISTRY.get().lock().unwrap_or_else(PoisonError::into_inner)
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

/// Tries once to attach; `None` while a thread or another process opens or closes the database.
/// `named`: the file that the path has just led to, if the caller has looked.
pub(crate) fn try_attach(
    path: &Path,
    named: Option<BaseIdentity>,
    wal_index: u64,
    opener: &Arc<dyn BaseOpener>,
) -> Result<Option<Conn>> {
    let fork_generation = fork::fork_generation();
    let identity = named.map_or_else(|| BaseIdentity::of(path), Ok)?;
    let mut registry = lock();
    match registry.get_mut(&identity) {
        Some(Entry::Changing | Entry::Leaving { .. }) => Ok(None),
        Some(Entry::Open { database, connections }) => {
            *connections += 1;
            let database = database.clone();
            drop(registry);
            join(&database, path, wal_index)
        }
        None => {
            registry.insert(identity, Entry::Changing);
            drop(registry);
            open(Change(identity), path, wal_index, opener, fork_generation)
        }
    }
}

/// Fails if one file is opened by two names: the WAL and the log go by the first name, and are not
/// next to the second.
fn refuse_second_name(first: &Path, second: &Path) -> Result<()> {
    let folder = |path: &Path| path.parent().map(BaseIdentity::of).transpose();
    if first == second
        || (first.file_name() == second.file_name() && folder(first)? == folder(second)?)
    {
        return Ok(());
    }
    Err(Error::CantOpen(format!(
        "{} is open under another name, {}; open it by that name",
        second.display(),
        first.display()
    )))
}

/// Adds a connection to an open database, which already counts it. `None`: a thread is about to close
/// the database.
fn join(database: &Arc<Database>, path: &Path, wal_index: u64) -> Result<Option<Conn>> {
    let own = Some(database.process());
    let joined = refuse_second_name(database.path(), path)
        .and_then(|()| read_marks::agree(database.region(), own, wal_index, path))
        .and_then(|()| attach::is_ending(database))
        .and_then(|ends| if ends { Ok(None) } else { Conn::new(database.clone()).map(Some) });
    if !matches!(joined, Ok(Some(_))) {
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

/// Returns the databases that this process, not its parent, has open.
pub(crate) fn open_databases() -> Vec<Arc<Database>> {
    let registry = lock();
    let open = registry.values().filter_map(|entry| match entry {
        Entry::Open { database, .. } => Some(database.clone()),
        _ => None,
    });
    open.collect()
}

/// Keeps other connections of this process away. False if the caller's is not the only one.
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

/// Admits other connections again; false if the database was not leaving.
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

/// Takes away one connection; the last one closes the database.
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
