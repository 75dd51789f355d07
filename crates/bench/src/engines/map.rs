//! Ordered maps in memory behind one mutex: the ceiling of what a store could do, and no durability at all.
//!
//! It has no settings. A transaction holds the mutex from its begin to its end; one that is rolled back puts back what
//! it has changed. The maps belong to the opened store: another process that opens the same directory has its own.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::keys::{KeyBytes, KeyOrder};
use super::{Begin, Connection, Engine, Failure, Key, KeyValue, Outcome, Settings, Store, Table};

/// The engine.
pub struct MapEngine;

impl Engine for MapEngine {
    fn open(&self, _directory: &Path, settings: &Settings) -> Outcome<Box<dyn Store>> {
        settings.only(&[])?;
        Ok(Box::new(MapStore(Mutex::default())))
    }
}

/// A table's rows.
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Tables by their names, in the order in which they were made.
type Tables = Vec<(String, Rows)>;

struct MapStore(Mutex<Tables>);

impl MapStore {
    /// A thread that panics ends the trial, so what it left half done is never used.
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MapStore {
    fn create(&self, tables: &[Table]) -> Outcome<()> {
        self.lock().extend(tables.iter().map(|t| (t.name.clone(), Rows::new())));
        Ok(())
    }

    fn key_value(&self, tables: &[Table]) -> Outcome<Box<dyn KeyValue + '_>> {
        let made = self.lock();
        let place = |table: &Table| {
            let place = made.iter().position(|(name, _)| *name == table.name);
            place.ok_or_else(|| Failure::broken(format!("there is no table {}", table.name)))
        };
        let places = tables.iter().map(place).collect::<Outcome<_>>()?;
        Ok(Box::new(MapConnection { store: self, places, transaction: None }))
    }

    fn settings(&self) -> Outcome<Settings> {
        Ok(Settings::default())
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        Ok(())
    }
}

/// A transaction that holds the mutex.
struct Transaction<'a> {
    tables: MutexGuard<'a, Tables>,
    /// Places of tables, keys, and the values there were before.
    undo: Vec<(usize, Vec<u8>, Option<Vec<u8>>)>,
}

struct MapConnection<'a> {
    store: &'a MapStore,
    /// Where the connection's tables are among those of the store.
    places: Vec<usize>,
    transaction: Option<Transaction<'a>>,
}

impl MapConnection<'_> {
    fn read<T>(&self, table: usize, look: impl FnOnce(&Rows) -> T) -> T {
        let place = self.places[table];
        match &self.transaction {
            Some(transaction) => look(&transaction.tables[place].1),
            None => look(&self.store.lock()[place].1),
        }
    }

    /// Gives a key another value or none; tells whether it had one.
    fn put(&mut self, table: usize, key: Key<'_>, value: Option<&[u8]>) -> bool {
        let place = self.places[table];
        let key = key_bytes(key);
        let change = |rows: &mut Rows| match value {
            // What is there already is overwritten in place, without looking for it twice.
            Some(value) => match rows.get_mut(&*key) {
                Some(old) => Some(std::mem::replace(old, value.to_vec())),
                None => rows.insert(key.to_vec(), value.to_vec()),
            },
            None => rows.remove(&*key),
        };
        match &mut self.transaction {
            Some(transaction) => {
                let before = change(&mut transaction.tables[place].1);
                let was_there = before.is_some();
                transaction.undo.push((place, key.to_vec(), before));
                was_there
            }
            None => change(&mut self.store.lock()[place].1).is_some(),
        }
    }
}

fn key_bytes(key: Key<'_>) -> KeyBytes<'_> {
    KeyOrder::Numeric.bytes(key)
}

impl Connection for MapConnection<'_> {
    fn begin(&mut self, _begin: Begin) -> Outcome<()> {
        self.transaction = Some(Transaction { tables: self.store.lock(), undo: Vec::new() });
        Ok(())
    }

    fn commit(&mut self) -> Outcome<()> {
        self.transaction = None;
        Ok(())
    }

    fn rollback(&mut self) -> Outcome<()> {
        let Some(Transaction { mut tables, undo }) = self.transaction.take() else {
            return Ok(());
        };
        for (place, key, before) in undo.into_iter().rev() {
            let rows = &mut tables[place].1;
            match before {
                Some(value) => drop(rows.insert(key, value)),
                None => drop(rows.remove(&key)),
            }
        }
        Ok(())
    }
}

impl KeyValue for MapConnection<'_> {
    fn get(&mut self, table: usize, key: Key<'_>, found: &mut dyn FnMut(&[u8])) -> Outcome<bool> {
        Ok(self.read(table, |rows| rows.get(&*key_bytes(key)).map(|v| found(v)).is_some()))
    }

    fn insert(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        self.put(table, key, Some(value));
        Ok(())
    }

    fn update(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        self.put(table, key, Some(value));
        Ok(())
    }

    fn delete(&mut self, table: usize, key: Key<'_>) -> Outcome<bool> {
        Ok(self.put(table, key, None))
    }

    fn scan(
        &mut self,
        table: usize,
        from: Option<Key<'_>>,
        count: u64,
        found: &mut dyn FnMut(&[u8]),
    ) -> Outcome<u64> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let first = from.map(|key| key_bytes(key).to_vec()).unwrap_or_default();
        let mut values = 0;
        self.read(table, |rows| {
            for value in rows.range(first..).map(|(_, value)| value).take(count) {
                found(value);
                values += 1;
            }
        });
        Ok(values)
    }
}
