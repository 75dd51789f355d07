//! fjall, a log-structured merge tree in Rust, by its serializable optimistic transactions.
//!
//! | setting | default | what |
//! |---|---|---|
//! | `persist` | `buffer` | at each commit: `buffer`, handed to the kernel (fjall's own default); `sync-data`, fdatasync; `sync-all`, fsync |
//! | `cache_size` | fjall's (32 MiB) | bytes of memory for blocks |
//! | `max_memtable_size` | fjall's (64 MiB) | bytes of a table's write buffer |
//!
//! A table is a keyspace. Transactions write beside each other; one that has read what another has changed since is
//! refused at its commit. A single read outside a transaction needs no snapshot. A store belongs to one process.

use std::path::Path;

use fjall::{
    Keyspace, KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, OptimisticWriteTx,
    PersistMode, Readable, Snapshot,
};

use super::keys::KeyOrder;
use super::{
    Begin, Connection, Engine, Failure, Key, KeyValue, Outcome, Refusal, Settings, Store, Table,
};

/// The version of the crate, which does not tell it itself; a test compares it with Cargo.lock.
pub const VERSION: &str = "3.1.13";

/// The engine.
pub struct FjallEngine;

impl Engine for FjallEngine {
    fn open(&self, directory: &Path, settings: &Settings) -> Outcome<Box<dyn Store>> {
        settings.only(&["persist", "cache_size", "max_memtable_size"])?;
        let persist = match settings.get("persist").unwrap_or("buffer") {
            "buffer" => PersistMode::Buffer,
            "sync-data" => PersistMode::SyncData,
            "sync-all" => PersistMode::SyncAll,
            other => {
                return Err(Failure::broken(format!(
                    "persist={other}: buffer, sync-data or sync-all"
                )));
            }
        };
        let mut builder = OptimisticTxDatabase::builder(directory.join("bench.fjall"));
        if let Some(bytes) = settings.parse("cache_size")? {
            builder = builder.cache_size(bytes);
        }
        let database = builder.open().map_err(|error| match error {
            fjall::Error::Locked => Failure::unsupported("a store of fjall belongs to one process"),
            other => broken(other),
        })?;
        Ok(Box::new(FjallStore {
            database,
            persist,
            max_memtable_size: settings.parse("max_memtable_size")?,
        }))
    }
}

fn broken(error: fjall::Error) -> Failure {
    Failure::Broken(anyhow::Error::new(error).context("fjall"))
}

struct FjallStore {
    database: OptimisticTxDatabase,
    persist: PersistMode,
    max_memtable_size: Option<u64>,
}

impl FjallStore {
    fn keyspace(&self, name: &str) -> Outcome<OptimisticTxKeyspace> {
        let options = || match self.max_memtable_size {
            Some(bytes) => KeyspaceCreateOptions::default().max_memtable_size(bytes),
            None => KeyspaceCreateOptions::default(),
        };
        self.database.keyspace(name, options).map_err(broken)
    }

    fn begin(&self) -> Outcome<OptimisticWriteTx> {
        Ok(self.database.write_tx().map_err(broken)?.durability(Some(self.persist)))
    }
}

impl Store for FjallStore {
    fn create(&self, tables: &[Table]) -> Outcome<()> {
        tables.iter().try_for_each(|table| self.keyspace(&table.name).map(drop))
    }

    fn key_value(&self, tables: &[Table]) -> Outcome<Box<dyn KeyValue + '_>> {
        let tables = tables.iter().map(|t| self.keyspace(&t.name)).collect::<Outcome<_>>()?;
        Ok(Box::new(FjallConnection { store: self, tables, state: State::Idle }))
    }

    /// What can be asked back is; fjall does not tell how a transaction persists.
    fn settings(&self) -> Outcome<Settings> {
        let persist = match self.persist {
            PersistMode::Buffer => "buffer",
            PersistMode::SyncData => "sync-data",
            PersistMode::SyncAll => "sync-all",
        };
        let mut told = Settings::default()
            .with("version", VERSION)
            .with("persist", persist)
            .with("cache_size", self.database.inner().cache_capacity());
        if let Some(bytes) = self.max_memtable_size {
            told.set("max_memtable_size", bytes);
        }
        Ok(told)
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        self.database.persist(PersistMode::SyncAll).map_err(broken)
    }
}

enum State {
    Idle,
    Reading(Snapshot),
    Writing(OptimisticWriteTx),
}

struct FjallConnection<'a> {
    store: &'a FjallStore,
    tables: Vec<OptimisticTxKeyspace>,
    state: State,
}

impl FjallConnection<'_> {
    /// Writes in the transaction there is, or in one of its own.
    fn write<T>(
        &mut self,
        table: usize,
        change: impl FnOnce(&mut OptimisticWriteTx, &Keyspace) -> Outcome<T>,
    ) -> Outcome<T> {
        let rows = self.tables[table].inner();
        match &mut self.state {
            State::Reading(_) => Err(Failure::broken("a write in a transaction that only reads")),
            State::Writing(transaction) => change(transaction, rows),
            State::Idle => {
                let mut transaction = self.store.begin()?;
                let result = change(&mut transaction, rows)?;
                commit(transaction)?;
                Ok(result)
            }
        }
    }
}

fn commit(transaction: OptimisticWriteTx) -> Outcome<()> {
    match transaction.commit().map_err(broken)? {
        Ok(()) => Ok(()),
        Err(conflict) => Err(Failure::Refused(Refusal::Conflict, conflict.to_string())),
    }
}

impl Connection for FjallConnection<'_> {
    fn begin(&mut self, _begin: Begin) -> Outcome<()> {
        self.state = State::Writing(self.store.begin()?);
        Ok(())
    }

    fn begin_read(&mut self) -> Outcome<()> {
        self.state = State::Reading(self.store.database.read_tx());
        Ok(())
    }

    fn commit(&mut self) -> Outcome<()> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Writing(transaction) => commit(transaction),
            State::Idle | State::Reading(_) => Ok(()),
        }
    }

    fn rollback(&mut self) -> Outcome<()> {
        if let State::Writing(transaction) = std::mem::replace(&mut self.state, State::Idle) {
            transaction.rollback();
        }
        Ok(())
    }
}

/// Gives the first values from a key on.
fn scan(
    reader: &impl Readable,
    rows: &Keyspace,
    from: &[u8],
    count: usize,
    found: &mut dyn FnMut(&[u8]),
) -> Outcome<u64> {
    let mut values = 0;
    for row in reader.range(rows, from..).take(count) {
        found(&row.value().map_err(broken)?);
        values += 1;
    }
    Ok(values)
}

impl KeyValue for FjallConnection<'_> {
    fn get(&mut self, table: usize, key: Key<'_>, found: &mut dyn FnMut(&[u8])) -> Outcome<bool> {
        let rows = &self.tables[table];
        let key = KeyOrder::Numeric.bytes(key);
        let value = match &self.state {
            State::Idle => rows.get(&*key),
            State::Reading(snapshot) => snapshot.get(rows, &*key),
            State::Writing(transaction) => transaction.get(rows, &*key),
        };
        Ok(value.map_err(broken)?.map(|value| found(&value)).is_some())
    }

    fn insert(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        self.write(table, |transaction, rows| {
            transaction.insert(rows, &*KeyOrder::Numeric.bytes(key), value);
            Ok(())
        })
    }

    fn update(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        self.insert(table, key, value)
    }

    /// Looks first: fjall removes without telling whether there was something.
    fn delete(&mut self, table: usize, key: Key<'_>) -> Outcome<bool> {
        self.write(table, |transaction, rows| {
            let key = KeyOrder::Numeric.bytes(key);
            let there = transaction.contains_key(rows, &*key).map_err(broken)?;
            if there {
                transaction.remove(rows, &*key);
            }
            Ok(there)
        })
    }

    fn scan(
        &mut self,
        table: usize,
        from: Option<Key<'_>>,
        count: u64,
        found: &mut dyn FnMut(&[u8]),
    ) -> Outcome<u64> {
        let rows = self.tables[table].inner();
        let first = from.map(|key| KeyOrder::Numeric.bytes(key).to_vec()).unwrap_or_default();
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        match &self.state {
            State::Idle => scan(&self.store.database.read_tx(), rows, &first, count, found),
            State::Reading(snapshot) => scan(snapshot, rows, &first, count, found),
            State::Writing(transaction) => scan(transaction, rows, &first, count, found),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_version_that_is_told_is_the_one_that_was_built() {
        let lock = include_str!("../../../../Cargo.lock");
        let entry = format!("name = \"fjall\"\nversion = \"{}\"", super::VERSION);
        assert!(lock.contains(&entry), "{entry} is not in Cargo.lock");
    }
}
