//! LMDB, a memory-mapped copy-on-write B-tree, through the crate heed.
//!
//! | setting | default | what |
//! |---|---|---|
//! | `map_size` | 1 GiB | bytes of address space, the most the file can grow to; LMDB's own 10 MiB hold no study |
//! | `sync` | `full` | `full`: data with fdatasync, then the meta page through a descriptor with O_DSYNC; `nometasync`: without the latter, the last commit may be lost; `nosync`: neither |
//! | `write_map` | `false` | changes pages in the map (and syncs by msync) instead of writing them |
//! | `map_async` | `false` | with `write_map`: msync does not wait |
//! | `no_readahead` | `false` | tells the kernel that reads are random |
//!
//! One transaction writes at a time, among all processes: to begin is to wait for the last one. Keys have at most 511
//! bytes and are in the order of bytes.

#![allow(unsafe_code)]

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, RoTxn, RwTxn, WithTls};

use super::keys::KeyOrder;
use super::{Begin, Connection, Engine, Failure, Key, KeyValue, Outcome, Settings, Store, Table};

/// The engine.
pub struct LmdbEngine;

/// The version, as the library tells it.
#[must_use]
pub fn version() -> String {
    let version = heed::lmdb_version();
    format!("{}.{}.{}", version.major, version.minor, version.patch)
}

/// Flags by their settings.
const SWITCHES: &[(&str, EnvFlags)] = &[
    ("write_map", EnvFlags::WRITE_MAP),
    ("map_async", EnvFlags::MAP_ASYNC),
    ("no_readahead", EnvFlags::NO_READ_AHEAD),
];

impl Engine for LmdbEngine {
    fn open(&self, directory: &Path, settings: &Settings) -> Outcome<Box<dyn Store>> {
        settings.only(&["map_size", "sync", "write_map", "map_async", "no_readahead"])?;
        let mut flags = match settings.get("sync").unwrap_or("full") {
            "full" => EnvFlags::empty(),
            "nometasync" => EnvFlags::NO_META_SYNC,
            "nosync" => EnvFlags::NO_SYNC,
            other => {
                return Err(Failure::broken(format!("sync={other}: full, nometasync or nosync")));
            }
        };
        for (name, flag) in SWITCHES {
            flags.set(*flag, settings.parse(name)?.unwrap_or(false));
        }
        let mut options = EnvOpenOptions::new();
        options.map_size(settings.parse("map_size")?.unwrap_or(1 << 30)).max_dbs(8);
        // SAFETY: the flags weaken what survives a power cut, as asked; a trial's directory is never opened after one.
        unsafe { options.flags(flags) };
        // SAFETY: only trials use their directory, and through LMDB alone.
        let env = unsafe { options.open(directory) }.map_err(broken)?;
        Ok(Box::new(LmdbStore { env, opened: Mutex::default() }))
    }
}

fn broken(error: heed::Error) -> Failure {
    Failure::Broken(anyhow::Error::new(error).context("LMDB"))
}

type Rows = Database<Bytes, Bytes>;

struct LmdbStore {
    env: Env,
    /// Tables by name: LMDB wants a table opened once in a process, and by one thread at a time.
    opened: Mutex<Vec<(String, Rows)>>,
}

impl LmdbStore {
    /// A table that [`Store::create`] has made, here or in another process.
    fn table(&self, name: &str) -> Outcome<Rows> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, rows)) = opened.iter().find(|(known, _)| known == name) {
            return Ok(*rows);
        }
        let transaction = self.env.read_txn().map_err(broken)?;
        let rows = self.env.open_database(&transaction, Some(name)).map_err(broken)?;
        // A table opened in a transaction that is not committed is closed with it.
        transaction.commit().map_err(broken)?;
        let rows = rows.ok_or_else(|| Failure::broken(format!("there is no table {name}")))?;
        opened.push((name.to_owned(), rows));
        Ok(rows)
    }
}

impl Store for LmdbStore {
    fn create(&self, tables: &[Table]) -> Outcome<()> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let mut transaction = self.env.write_txn().map_err(broken)?;
        for Table { name, .. } in tables {
            let rows = self.env.create_database(&mut transaction, Some(name)).map_err(broken)?;
            opened.push((name.clone(), rows));
        }
        transaction.commit().map_err(broken)
    }

    fn key_value(&self, tables: &[Table]) -> Outcome<Box<dyn KeyValue + '_>> {
        let tables = tables.iter().map(|t| self.table(&t.name)).collect::<Outcome<_>>()?;
        Ok(Box::new(LmdbConnection { store: self, tables, state: State::Idle }))
    }

    fn settings(&self) -> Outcome<Settings> {
        let flags = EnvFlags::from_bits_truncate(self.env.get_flags().map_err(broken)?);
        let sync = if flags.contains(EnvFlags::NO_SYNC) {
            "nosync"
        } else if flags.contains(EnvFlags::NO_META_SYNC) {
            "nometasync"
        } else {
            "full"
        };
        let mut told = Settings::default()
            .with("version", version())
            .with("map_size", self.env.info().map_size)
            .with("page_size", self.env.stat().page_size)
            .with("sync", sync);
        for (name, flag) in SWITCHES {
            told.set(name, flags.contains(*flag));
        }
        Ok(told)
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        self.env.force_sync().map_err(broken)
    }
}

enum State<'a> {
    Idle,
    Reading(RoTxn<'a, WithTls>),
    Writing(RwTxn<'a>),
}

struct LmdbConnection<'a> {
    store: &'a LmdbStore,
    tables: Vec<Rows>,
    state: State<'a>,
}

impl<'a> LmdbConnection<'a> {
    /// Reads in the transaction there is, or in one of its own.
    fn read<T>(&self, look: impl FnOnce(&RoTxn<'_>) -> Result<T, heed::Error>) -> Outcome<T> {
        match &self.state {
            State::Idle => {
                let transaction = self.store.env.read_txn().map_err(broken)?;
                look(&transaction)
            }
            State::Reading(transaction) => look(transaction),
            State::Writing(transaction) => look(transaction),
        }
        .map_err(broken)
    }

    /// Writes in the transaction there is, or in one of its own.
    fn write<T>(
        &mut self,
        change: impl FnOnce(&mut RwTxn<'a>) -> Result<T, heed::Error>,
    ) -> Outcome<T> {
        match &mut self.state {
            State::Reading(_) => Err(Failure::broken("a write in a transaction that only reads")),
            State::Writing(transaction) => change(transaction).map_err(broken),
            State::Idle => {
                let mut transaction = self.store.env.write_txn().map_err(broken)?;
                let result = change(&mut transaction).map_err(broken)?;
                transaction.commit().map_err(broken)?;
                Ok(result)
            }
        }
    }
}

impl Connection for LmdbConnection<'_> {
    fn begin(&mut self, _begin: Begin) -> Outcome<()> {
        self.state = State::Writing(self.store.env.write_txn().map_err(broken)?);
        Ok(())
    }

    fn begin_read(&mut self) -> Outcome<()> {
        self.state = State::Reading(self.store.env.read_txn().map_err(broken)?);
        Ok(())
    }

    fn commit(&mut self) -> Outcome<()> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Writing(transaction) => transaction.commit().map_err(broken),
            State::Idle | State::Reading(_) => Ok(()),
        }
    }

    fn rollback(&mut self) -> Outcome<()> {
        if let State::Writing(transaction) = std::mem::replace(&mut self.state, State::Idle) {
            transaction.abort();
        }
        Ok(())
    }
}

impl KeyValue for LmdbConnection<'_> {
    fn get(&mut self, table: usize, key: Key<'_>, found: &mut dyn FnMut(&[u8])) -> Outcome<bool> {
        let rows = self.tables[table];
        self.read(|txn| Ok(rows.get(txn, &KeyOrder::Numeric.bytes(key))?.map(found).is_some()))
    }

    fn insert(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        let rows = self.tables[table];
        self.write(|txn| rows.put(txn, &KeyOrder::Numeric.bytes(key), value))
    }

    fn update(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        self.insert(table, key, value)
    }

    fn delete(&mut self, table: usize, key: Key<'_>) -> Outcome<bool> {
        let rows = self.tables[table];
        self.write(|txn| rows.delete(txn, &KeyOrder::Numeric.bytes(key)))
    }

    fn scan(
        &mut self,
        table: usize,
        from: Option<Key<'_>>,
        count: u64,
        found: &mut dyn FnMut(&[u8]),
    ) -> Outcome<u64> {
        let rows = self.tables[table];
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let first = from.map(|key| KeyOrder::Numeric.bytes(key).to_vec());
        self.read(|txn| {
            let mut values = 0;
            let mut take = |row: Result<(&[u8], &[u8]), heed::Error>| {
                found(row?.1);
                values += 1;
                Ok::<(), heed::Error>(())
            };
            match &first {
                None => rows.iter(txn)?.take(count).try_for_each(&mut take)?,
                Some(key) => rows
                    .range(
                        txn,
                        &(std::ops::Bound::Included(key.as_slice()), std::ops::Bound::Unbounded),
                    )?
                    .take(count)
                    .try_for_each(&mut take)?,
            }
            Ok(values)
        })
    }
}
