//! redb, a copy-on-write B-tree in Rust.
//!
//! | setting | default | what |
//! |---|---|---|
//! | `durability` | `immediate` | `immediate`: a commit is synced; `none`: kept in memory until the next one that is |
//! | `cache_size` | redb's (1 GiB) | bytes of memory for pages |
//! | `two_phase_commit` | `false` | a sync before and after the commit slot is turned over |
//! | `quick_repair` | `false` | the allocator's state is saved with every commit |
//!
//! Keys are kept as bytes. One transaction writes at a time: to begin is to wait for the last one. Tables are opened
//! once in a transaction, as its documentation shows. A store belongs to one process.

use std::path::Path;

use redb::{
    Builder, Database, DatabaseError, Durability, ReadOnlyTable, ReadableDatabase as _,
    ReadableTable, Table as WriteTable, TableDefinition, WriteTransaction,
};
use self_cell::self_cell;

use super::keys::KeyOrder;
use super::{Begin, Connection, Engine, Failure, Key, KeyValue, Outcome, Settings, Store, Table};

/// The version of the crate, which does not tell it itself; a test compares it with Cargo.lock.
pub const VERSION: &str = "4.4.0";

/// The engine.
pub struct RedbEngine;

impl Engine for RedbEngine {
    fn open(&self, directory: &Path, settings: &Settings) -> Outcome<Box<dyn Store>> {
        settings.only(&["durability", "cache_size", "two_phase_commit", "quick_repair"])?;
        let durability = match settings.get("durability").unwrap_or("immediate") {
            "immediate" => Durability::Immediate,
            "none" => Durability::None,
            other => return Err(Failure::broken(format!("durability={other}: immediate or none"))),
        };
        let mut builder = Builder::new();
        if let Some(bytes) = settings.parse("cache_size")? {
            builder.set_cache_size(bytes);
        }
        let database =
            builder.create(directory.join("bench.redb")).map_err(|error| match error {
                DatabaseError::DatabaseAlreadyOpen => {
                    Failure::unsupported("a store of redb belongs to one process")
                }
                other => broken(other),
            })?;
        Ok(Box::new(RedbStore {
            database,
            durability,
            two_phase_commit: settings.parse("two_phase_commit")?.unwrap_or(false),
            quick_repair: settings.parse("quick_repair")?.unwrap_or(false),
            cache_size: settings.get("cache_size").map(str::to_owned),
        }))
    }
}

fn broken(error: impl Into<redb::Error>) -> Failure {
    Failure::Broken(anyhow::Error::new(error.into()).context("redb"))
}

type Bytes = &'static [u8];

fn definition(name: &str) -> TableDefinition<'_, Bytes, Bytes> {
    TableDefinition::new(name)
}

struct RedbStore {
    database: Database,
    durability: Durability,
    two_phase_commit: bool,
    quick_repair: bool,
    cache_size: Option<String>,
}

impl RedbStore {
    fn begin_write(&self) -> Outcome<WriteTransaction> {
        let mut transaction = self.database.begin_write().map_err(broken)?;
        transaction.set_durability(self.durability).map_err(broken)?;
        transaction.set_two_phase_commit(self.two_phase_commit);
        transaction.set_quick_repair(self.quick_repair);
        Ok(transaction)
    }
}

impl Store for RedbStore {
    fn create(&self, tables: &[Table]) -> Outcome<()> {
        let transaction = self.begin_write()?;
        for table in tables {
            transaction.open_table(definition(&table.name)).map_err(broken)?;
        }
        transaction.commit().map_err(broken)
    }

    fn key_value(&self, tables: &[Table]) -> Outcome<Box<dyn KeyValue + '_>> {
        let names = tables.iter().map(|table| table.name.clone()).collect();
        Ok(Box::new(RedbConnection { store: self, names, state: State::Idle }))
    }

    /// redb tells none of its settings: these are those that it was given and did not refuse.
    fn settings(&self) -> Outcome<Settings> {
        let mut told = Settings::default()
            .with("version", VERSION)
            .with("durability", format!("{:?}", self.durability).to_lowercase())
            .with("two_phase_commit", self.two_phase_commit)
            .with("quick_repair", self.quick_repair);
        if let Some(bytes) = &self.cache_size {
            told.set("cache_size", bytes);
        }
        Ok(told)
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        Ok(())
    }
}

/// The tables of a transaction that writes.
type WriteTables<'t> = Vec<WriteTable<'t, Bytes, Bytes>>;

self_cell!(
    /// A transaction that writes, with its tables opened.
    struct Writing {
        owner: WriteTransaction,
        #[not_covariant]
        dependent: WriteTables,
    }
);

enum State {
    Idle,
    Reading(Vec<ReadOnlyTable<Bytes, Bytes>>),
    Writing(Writing),
}

struct RedbConnection<'a> {
    store: &'a RedbStore,
    names: Vec<String>,
    state: State,
}

impl RedbConnection<'_> {
    fn read_tables(&self) -> Outcome<Vec<ReadOnlyTable<Bytes, Bytes>>> {
        let transaction = self.store.database.begin_read().map_err(broken)?;
        let open = |name: &String| transaction.open_table(definition(name)).map_err(broken);
        self.names.iter().map(open).collect()
    }

    /// Reads in the transaction there is, or in one of its own that opens only this table.
    fn read<T>(&self, table: usize, look: impl FnOnce(&dyn Look) -> Outcome<T>) -> Outcome<T> {
        match &self.state {
            State::Idle => {
                let transaction = self.store.database.begin_read().map_err(broken)?;
                look(&transaction.open_table(definition(&self.names[table])).map_err(broken)?)
            }
            State::Reading(tables) => look(&tables[table]),
            State::Writing(writing) => writing.with_dependent(|_, tables| look(&tables[table])),
        }
    }

    /// Writes in the transaction there is, or in one of its own.
    fn write<T>(
        &mut self,
        table: usize,
        change: impl FnOnce(&mut WriteTable<'_, Bytes, Bytes>) -> Outcome<T>,
    ) -> Outcome<T> {
        match &mut self.state {
            State::Reading(_) => Err(Failure::broken("a write in a transaction that only reads")),
            State::Writing(writing) => {
                writing.with_dependent_mut(|_, tables| change(&mut tables[table]))
            }
            State::Idle => {
                let transaction = self.store.begin_write()?;
                let result = {
                    let name = definition(&self.names[table]);
                    change(&mut transaction.open_table(name).map_err(broken)?)?
                };
                transaction.commit().map_err(broken)?;
                Ok(result)
            }
        }
    }
}

/// What both kinds of tables can do.
trait Look {
    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Outcome<bool>;
    fn scan(&self, from: &[u8], count: usize, found: &mut dyn FnMut(&[u8])) -> Outcome<u64>;
}

impl<T: ReadableTable<Bytes, Bytes>> Look for T {
    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Outcome<bool> {
        let value = ReadableTable::get(self, key).map_err(broken)?;
        Ok(value.map(|guard| found(guard.value())).is_some())
    }

    fn scan(&self, from: &[u8], count: usize, found: &mut dyn FnMut(&[u8])) -> Outcome<u64> {
        let mut values = 0;
        for row in self.range(from..).map_err(broken)?.take(count) {
            found(row.map_err(broken)?.1.value());
            values += 1;
        }
        Ok(values)
    }
}

impl Connection for RedbConnection<'_> {
    fn begin(&mut self, _begin: Begin) -> Outcome<()> {
        let names = &self.names;
        let writing = Writing::try_new(self.store.begin_write()?, |transaction| {
            let open = |name: &String| transaction.open_table(definition(name)).map_err(broken);
            names.iter().map(open).collect()
        })?;
        self.state = State::Writing(writing);
        Ok(())
    }

    fn begin_read(&mut self) -> Outcome<()> {
        self.state = State::Reading(self.read_tables()?);
        Ok(())
    }

    fn commit(&mut self) -> Outcome<()> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Writing(writing) => writing.into_owner().commit().map_err(broken),
            State::Idle | State::Reading(_) => Ok(()),
        }
    }

    fn rollback(&mut self) -> Outcome<()> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Writing(writing) => writing.into_owner().abort().map_err(broken),
            State::Idle | State::Reading(_) => Ok(()),
        }
    }
}

impl KeyValue for RedbConnection<'_> {
    fn get(&mut self, table: usize, key: Key<'_>, found: &mut dyn FnMut(&[u8])) -> Outcome<bool> {
        self.read(table, |rows| rows.get(&KeyOrder::Numeric.bytes(key), found))
    }

    fn insert(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        self.write(table, |rows| {
            rows.insert(&*KeyOrder::Numeric.bytes(key), value).map(drop).map_err(broken)
        })
    }

    fn update(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        self.insert(table, key, value)
    }

    fn delete(&mut self, table: usize, key: Key<'_>) -> Outcome<bool> {
        self.write(table, |rows| {
            let old = rows.remove(&*KeyOrder::Numeric.bytes(key)).map_err(broken)?;
            Ok(old.is_some())
        })
    }

    fn scan(
        &mut self,
        table: usize,
        from: Option<Key<'_>>,
        count: u64,
        found: &mut dyn FnMut(&[u8]),
    ) -> Outcome<u64> {
        let first = from.map(|key| KeyOrder::Numeric.bytes(key).to_vec()).unwrap_or_default();
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        self.read(table, |rows| rows.scan(&first, count, found))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_version_that_is_told_is_the_one_that_was_built() {
        let lock = include_str!("../../../../Cargo.lock");
        let entry = format!("name = \"redb\"\nversion = \"{}\"", super::VERSION);
        assert!(lock.contains(&entry), "{entry} is not in Cargo.lock");
    }
}
