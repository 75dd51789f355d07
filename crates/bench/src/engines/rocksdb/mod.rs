//! RocksDB, a log-structured merge tree, by the pessimistic transactions of its C interface.
//!
//! | setting | default | what |
//! |---|---|---|
//! | `sync` | `false` | whether a commit waits for the disk (`WriteOptions.sync`); RocksDB's own default is not to |
//! | `wal` | `true` | whether a commit is written to the log at all |
//! | `block_cache` | RocksDB's (8 MiB) | bytes of memory for blocks |
//! | `bloom_bits` | none | bits of a Bloom filter for each key |
//! | `write_buffer_size` | RocksDB's (64 MiB) | bytes of a table's write buffer |
//! | `parallelism` | RocksDB's | threads for flushes and compactions |
//!
//! A table is a column family. A transaction locks every key that it reads or writes, and waits a second for a lock;
//! deadlocks are found. A store belongs to one process, and to the opening that has made its tables.

mod api;
mod database;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use api::Api;
use database::{Database, Family, Snapshot, Transaction};

use super::keys::KeyOrder;
use super::{Begin, Connection, Engine, Failure, Key, KeyValue, Outcome, Settings, Store, Table};

const KNOWN: &[&str] =
    &["sync", "wal", "block_cache", "bloom_bits", "write_buffer_size", "parallelism"];

/// What the options file of an opened database is asked for.
const TOLD: &[&str] = &["rocksdb_version", "write_buffer_size", "compression", "filter_policy"];

/// The loaded library.
pub struct RocksdbEngine {
    api: Arc<Api>,
    library: PathBuf,
}

impl RocksdbEngine {
    /// Loads it.
    ///
    /// # Errors
    /// If it cannot be loaded or lacks a function.
    pub fn load(library: &Path) -> Outcome<Self> {
        Ok(Self { api: Arc::new(Api::load(library)?), library: library.to_owned() })
    }

    /// The version, by the name of the file: the C interface does not tell it.
    #[must_use]
    pub fn version(&self) -> String {
        let file = self.library.canonicalize().unwrap_or_else(|_| self.library.clone());
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.split_once(".so.").map_or(name.clone(), |(_, version)| version.to_owned())
    }
}

impl Engine for RocksdbEngine {
    fn open(&self, directory: &Path, settings: &Settings) -> Outcome<Box<dyn Store>> {
        settings.only(KNOWN)?;
        Ok(Box::new(RocksdbStore {
            families: Mutex::default(),
            database: Database::open(&self.api, directory, settings)?,
            directory: directory.to_owned(),
            asked: settings.clone(),
        }))
    }
}

/// Fields are dropped in this order: families before their database.
struct RocksdbStore {
    families: Mutex<Vec<(String, Arc<Family>)>>,
    database: Database,
    directory: PathBuf,
    asked: Settings,
}

impl RocksdbStore {
    fn family(&self, name: &str) -> Outcome<Arc<Family>> {
        let families = self.families.lock().unwrap_or_else(PoisonError::into_inner);
        let found = families.iter().find(|(known, _)| known == name);
        let (_, family) =
            found.ok_or_else(|| Failure::broken(format!("there is no table {name}")))?;
        Ok(Arc::clone(family))
    }
}

impl Store for RocksdbStore {
    fn create(&self, tables: &[Table]) -> Outcome<()> {
        let mut families = self.families.lock().unwrap_or_else(PoisonError::into_inner);
        for Table { name, .. } in tables {
            families.push((name.clone(), Arc::new(self.database.create(name)?)));
        }
        Ok(())
    }

    fn key_value(&self, tables: &[Table]) -> Outcome<Box<dyn KeyValue + '_>> {
        let families = tables.iter().map(|t| self.family(&t.name)).collect::<Outcome<_>>()?;
        Ok(Box::new(RocksdbConnection { spare: None, state: State::Idle, families, store: self }))
    }

    /// From the options for writing, and from the file in which RocksDB keeps those of the database.
    fn settings(&self) -> Outcome<Settings> {
        let (sync, wal) = self.database.sync_and_wal();
        let mut told = Settings::default().with("sync", sync).with("wal", wal);
        let mut files: Vec<PathBuf> = std::fs::read_dir(&self.directory)?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| {
                path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("OPTIONS-"))
            })
            .collect();
        files.sort();
        let text = files.last().map(std::fs::read_to_string).transpose()?.unwrap_or_default();
        for (name, value) in text.lines().filter_map(|line| line.trim().split_once('=')) {
            if TOLD.contains(&name) {
                told.set(name, value);
            }
        }
        if let Some(bytes) = self.asked.get("block_cache") {
            told.set("block_cache", bytes);
        }
        Ok(told)
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        Ok(())
    }
}

enum State<'a> {
    Idle,
    Reading(Snapshot<'a>),
    Writing(Transaction<'a>),
}

/// Fields are dropped in this order: transactions before the families they use.
struct RocksdbConnection<'a> {
    /// Of the last transaction, for the next.
    spare: Option<Transaction<'a>>,
    state: State<'a>,
    families: Vec<Arc<Family>>,
    store: &'a RocksdbStore,
}

impl RocksdbConnection<'_> {
    /// Ends the transaction there is.
    fn end(&mut self, how: impl FnOnce(&mut Transaction<'_>) -> Outcome<()>) -> Outcome<()> {
        if let State::Writing(mut transaction) = std::mem::replace(&mut self.state, State::Idle) {
            let ended = how(&mut transaction);
            // One that has failed is destroyed, which gives it up.
            if ended.is_ok() {
                self.spare = Some(transaction);
            }
            return ended;
        }
        Ok(())
    }
}

impl Connection for RocksdbConnection<'_> {
    fn begin(&mut self, _begin: Begin) -> Outcome<()> {
        self.state = State::Writing(match self.spare.take() {
            Some(mut spare) => {
                spare.begin_again();
                spare
            }
            None => Transaction::begin(&self.store.database),
        });
        Ok(())
    }

    fn begin_read(&mut self) -> Outcome<()> {
        self.state = State::Reading(Snapshot::new(&self.store.database));
        Ok(())
    }

    fn commit(&mut self) -> Outcome<()> {
        self.end(|transaction| transaction.commit())
    }

    fn rollback(&mut self) -> Outcome<()> {
        self.end(|transaction| transaction.rollback())
    }
}

impl KeyValue for RocksdbConnection<'_> {
    fn get(&mut self, table: usize, key: Key<'_>, found: &mut dyn FnMut(&[u8])) -> Outcome<bool> {
        let (family, key) = (&self.families[table], KeyOrder::Numeric.bytes(key));
        match &self.state {
            State::Idle => self.store.database.get(None, family, &key, found),
            State::Reading(snapshot) => {
                self.store.database.get(Some(snapshot), family, &key, found)
            }
            State::Writing(transaction) => transaction.get(family, &key, found),
        }
    }

    fn insert(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        let (family, key) = (&self.families[table], KeyOrder::Numeric.bytes(key));
        match &self.state {
            State::Idle => self.store.database.put(family, &key, value),
            State::Reading(_) => Err(Failure::broken("a write in a transaction that only reads")),
            State::Writing(transaction) => transaction.put(family, &key, value),
        }
    }

    fn update(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        self.insert(table, key, value)
    }

    /// Looks first: RocksDB removes without telling whether there was something.
    fn delete(&mut self, table: usize, key: Key<'_>) -> Outcome<bool> {
        if matches!(self.state, State::Idle) {
            self.begin(Begin::Immediate)?;
            let result = self.delete(table, key);
            match result {
                Ok(_) => self.commit()?,
                Err(_) => self.rollback()?,
            }
            return result;
        }
        let State::Writing(transaction) = &self.state else {
            return Err(Failure::broken("a write in a transaction that only reads"));
        };
        let (family, key) = (&self.families[table], KeyOrder::Numeric.bytes(key));
        let there = transaction.get(family, &key, &mut |_| ())?;
        if there {
            transaction.delete(family, &key)?;
        }
        Ok(there)
    }

    fn scan(
        &mut self,
        table: usize,
        from: Option<Key<'_>>,
        count: u64,
        found: &mut dyn FnMut(&[u8]),
    ) -> Outcome<u64> {
        let family = &self.families[table];
        let from = from.map(|key| KeyOrder::Numeric.bytes(key));
        let first: &[u8] = from.as_deref().unwrap_or_default();
        match &self.state {
            State::Idle => self.store.database.scan(None, family, first, count, found),
            State::Reading(snapshot) => {
                self.store.database.scan(Some(snapshot), family, first, count, found)
            }
            State::Writing(transaction) => transaction.scan(family, first, count, found),
        }
    }
}
