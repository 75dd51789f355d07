//! Berkeley DB 5.3 by keys, each table a btree.
//!
//! | setting | default | what |
//! |---|---|---|
//! | `environment` | `transactional` | `transactional`: lock, log, memory pool and transactions; `none`: just tables, for one connection at a time |
//! | `file` | `disk` | `disk`, or `temporary` without an environment (no file name) |
//! | `sync` | `sync` | a commit: `sync` waits for the disk; `write_nosync` hands the log to the kernel; `nosync` leaves it in memory |
//! | `recover` | `none` | on opening: `none` makes or joins the environment, as published; `alone` recovers it; `register` recovers it if a registered process has died |
//! | `cache_size` | Berkeley DB's (256 KiB) | bytes: of the environment, or of each table without one |
//! | `page_size` | the file system's block | bytes |
//! | `log_buffer` | Berkeley DB's | bytes of log in memory |
//! | `max_locks` | Berkeley DB's, which grow | locks, lockers and locked objects |
//! | `int_keys` | `numeric` | bytes of an integer key: `numeric` in the order of numbers, for scans; `native` as in memory, as published |
//!
//! Transactions begun immediate or exclusive read with DB_RMW, which locks for writing at once; others can deadlock
//! when they write what they have read. A deadlock is found when a lock is waited for (DB_LOCK_DEFAULT) and refused.

mod api;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use api::{Api, Buffer, Environment, EnvironmentSettings, TableSettings, Transaction};

use super::keys::{KeyBytes, KeyOrder};
use super::{Begin, Connection, Engine, Failure, Key, KeyValue, Outcome, Settings, Store, Table};

const KNOWN: &[&str] = &[
    "environment",
    "file",
    "sync",
    "recover",
    "cache_size",
    "page_size",
    "log_buffer",
    "max_locks",
    "int_keys",
];

/// The loaded library.
pub struct BdbEngine {
    api: Arc<Api>,
}

impl BdbEngine {
    /// Loads it.
    ///
    /// # Errors
    /// If it cannot be loaded or is no Berkeley DB 5.3.
    pub fn load(library: &Path) -> Outcome<Self> {
        Ok(Self { api: Arc::new(Api::load(library)?) })
    }

    /// The version, as the library tells it.
    #[must_use]
    pub fn version(&self) -> String {
        self.api.version()
    }
}

/// The place of a setting's value among its words, the first one being the default.
fn word(settings: &Settings, name: &str, words: &[&str]) -> Outcome<u32> {
    let value = settings.get(name).unwrap_or(words[0]);
    match (0..).zip(words).find(|(_, word)| **word == value) {
        Some((place, _)) => Ok(place),
        None => Err(Failure::broken(format!("{name}={value}: one of {}", words.join(", ")))),
    }
}

const SYNC: &[&str] = &["sync", "write_nosync", "nosync"];
const RECOVER: &[&str] = &["none", "alone", "register"];
const INT_KEYS: &[&str] = &["numeric", "native"];

impl Engine for BdbEngine {
    fn open(&self, directory: &Path, settings: &Settings) -> Outcome<Box<dyn Store>> {
        settings.only(KNOWN)?;
        let transactional = word(settings, "environment", &["transactional", "none"])? == 0;
        let temporary = word(settings, "file", &["disk", "temporary"])? == 1;
        let int_keys = [KeyOrder::Numeric, KeyOrder::Native];
        let cache_bytes = settings.parse("cache_size")?.unwrap_or(0);
        let how = EnvironmentSettings {
            cache_bytes,
            log_buffer_bytes: settings.parse("log_buffer")?.unwrap_or(0),
            max_locks: settings.parse("max_locks")?.unwrap_or(0),
            sync: word(settings, "sync", SYNC)?,
            recover: word(settings, "recover", RECOVER)?,
        };
        if transactional && temporary {
            return Err(Failure::unsupported("temporary tables in a transactional environment"));
        }
        let environment =
            transactional.then(|| Environment::open(&self.api, directory, &how)).transpose()?;
        Ok(Box::new(BdbStore {
            opened: Mutex::default(),
            environment,
            api: Arc::clone(&self.api),
            directory: (!temporary).then(|| directory.to_owned()),
            page_bytes: settings.parse("page_size")?.unwrap_or(0),
            cache_bytes,
            key_order: int_keys[word(settings, "int_keys", INT_KEYS)? as usize],
            taken: AtomicBool::new(false),
        }))
    }
}

/// Fields are dropped in this order: tables before their environment, and the library last.
struct BdbStore {
    /// Tables by name: all connections share their handles.
    opened: Mutex<Vec<(String, Arc<api::Table>)>>,
    environment: Option<Environment>,
    api: Arc<Api>,
    /// None if tables are temporary.
    directory: Option<PathBuf>,
    page_bytes: u32,
    cache_bytes: u64,
    key_order: KeyOrder,
    /// Whether there is a connection, which is then the only one; used without an environment.
    taken: AtomicBool,
}

impl BdbStore {
    fn table(&self, name: &str) -> Outcome<Arc<api::Table>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, table)) = opened.iter().find(|(known, _)| known == name) {
            return Ok(Arc::clone(table));
        }
        let file = self.directory.as_ref().map(|folder| match self.environment {
            // Below the environment's home.
            Some(_) => PathBuf::from(format!("{name}.db")),
            None => folder.join(format!("{name}.db")),
        });
        let how = TableSettings {
            environment: self.environment.as_ref(),
            file: file.as_deref(),
            page_bytes: self.page_bytes,
            cache_bytes: if self.environment.is_some() { 0 } else { self.cache_bytes },
        };
        let table = Arc::new(api::Table::open(&self.api, how)?);
        opened.push((name.to_owned(), Arc::clone(&table)));
        Ok(table)
    }
}

impl Store for BdbStore {
    fn create(&self, tables: &[Table]) -> Outcome<()> {
        tables.iter().try_for_each(|table| self.table(&table.name).map(drop))
    }

    fn key_value(&self, tables: &[Table]) -> Outcome<Box<dyn KeyValue + '_>> {
        let tables = tables.iter().map(|t| self.table(&t.name)).collect::<Outcome<_>>()?;
        // Acquire and, where it is given back, Release: the next connection sees what the last one left.
        if self.environment.is_none() && self.taken.swap(true, Ordering::Acquire) {
            return Err(Failure::unsupported("a second connection without an environment"));
        }
        Ok(Box::new(BdbConnection {
            transaction: None,
            tables,
            store: self,
            key: Buffer::new(),
            value: Buffer::new(),
            locks_what_it_reads: false,
        }))
    }

    fn settings(&self) -> Outcome<Settings> {
        let mut told = Settings::default().with("version", self.api.version());
        told.set("int_keys", INT_KEYS[usize::from(self.key_order == KeyOrder::Native)]);
        if let Some(environment) = &self.environment {
            let has = environment.settings(&self.api)?;
            told.set("environment", "transactional");
            told.set("cache_size", has.cache_bytes);
            told.set("log_buffer", has.log_buffer_bytes);
            told.set("max_locks", has.max_locks);
            told.set("sync", SYNC[has.sync as usize]);
            told.set("recover", RECOVER[has.recover as usize]);
        } else {
            told.set("environment", "none");
            told.set("file", if self.directory.is_some() { "disk" } else { "temporary" });
        }
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, table)) = opened.first() {
            told.set("page_size", table.page_bytes(&self.api)?);
            if self.environment.is_none() {
                told.set("cache_size", table.cache_bytes(&self.api)?);
            }
        }
        Ok(told)
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        let opened =
            std::mem::take(&mut *self.opened.lock().unwrap_or_else(PoisonError::into_inner));
        for (name, table) in opened {
            let table = Arc::into_inner(table)
                .ok_or_else(|| Failure::broken(format!("a connection still uses {name}")))?;
            table.close(&self.api)?;
        }
        Ok(())
    }
}

/// Fields are dropped in this order: a transaction before the tables it uses.
struct BdbConnection<'a> {
    transaction: Option<Transaction>,
    tables: Vec<Arc<api::Table>>,
    store: &'a BdbStore,
    key: Buffer,
    value: Buffer,
    /// Whether the transaction asked for the right to write when it began.
    locks_what_it_reads: bool,
}

impl BdbConnection<'_> {
    fn key_bytes<'k>(&self, key: Key<'k>) -> KeyBytes<'k> {
        self.store.key_order.bytes(key)
    }
}

impl Drop for BdbConnection<'_> {
    fn drop(&mut self) {
        self.store.taken.store(false, Ordering::Release);
    }
}

impl Connection for BdbConnection<'_> {
    /// Without an environment there are no transactions, and nothing is begun.
    fn begin(&mut self, begin: Begin) -> Outcome<()> {
        if let Some(environment) = &self.store.environment {
            self.transaction = Some(environment.begin(&self.store.api)?);
            self.locks_what_it_reads = matches!(begin, Begin::Immediate | Begin::Exclusive);
        }
        Ok(())
    }

    fn commit(&mut self) -> Outcome<()> {
        self.locks_what_it_reads = false;
        match self.transaction.take() {
            Some(transaction) => transaction.commit(&self.store.api),
            None => Ok(()),
        }
    }

    fn rollback(&mut self) -> Outcome<()> {
        self.locks_what_it_reads = false;
        match self.transaction.take() {
            Some(transaction) => transaction.abort(&self.store.api),
            None if self.store.environment.is_some() => Ok(()),
            None => Err(Failure::unsupported("a rollback without an environment")),
        }
    }
}

impl KeyValue for BdbConnection<'_> {
    fn get(&mut self, table: usize, key: Key<'_>, found: &mut dyn FnMut(&[u8])) -> Outcome<bool> {
        let key = self.key_bytes(key);
        let (api, rmw) = (&self.store.api, self.locks_what_it_reads);
        let there =
            self.tables[table].get(api, self.transaction.as_ref(), &key, &mut self.value, rmw)?;
        if there {
            found(self.value.bytes());
        }
        Ok(there)
    }

    fn insert(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        let key = self.key_bytes(key);
        self.tables[table].put(&self.store.api, self.transaction.as_ref(), &key, value)
    }

    fn update(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        self.insert(table, key, value)
    }

    fn delete(&mut self, table: usize, key: Key<'_>) -> Outcome<bool> {
        let key = self.key_bytes(key);
        self.tables[table].delete(&self.store.api, self.transaction.as_ref(), &key)
    }

    fn scan(
        &mut self,
        table: usize,
        from: Option<Key<'_>>,
        count: u64,
        found: &mut dyn FnMut(&[u8]),
    ) -> Outcome<u64> {
        let from = from.map(|key| self.key_bytes(key));
        let api = &self.store.api;
        let mut cursor = self.tables[table].cursor(api, self.transaction.as_ref())?;
        let mut values = 0;
        while values < count {
            let (key, value) = (&mut self.key, &mut self.value);
            let there = match &from {
                Some(from) if values == 0 => cursor.seek(api, from, key, value)?,
                _ => cursor.next(api, key, value)?,
            };
            if !there {
                break;
            }
            found(self.value.bytes());
            values += 1;
        }
        Ok(values)
    }
}
