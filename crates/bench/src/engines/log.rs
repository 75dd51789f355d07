//! A bare log, the limit of durable writes: what the ordered map of [`map`](super::map) does, behind a real
//! log.
//!
//! A transaction gathers the bytes of the keys and values that it writes. Its commit gives the map free, then
//! appends them to the log and waits for the sync of its group ([`BareLog`]). So it is put to the proof like
//! any store that claims to survive a power cut, and does no more than any of these has to do.
//!
//! It is a limit and no store, so it is shown in charts of durable writes and never ranked
//! ([`catalogue::is_limit`](super::catalogue::is_limit)). Deliberately absent: recovery, since nobody reads
//! the log again; settings; a second process, since the map belongs to one.

use std::path::Path;

use plait_bare_log::{BareLog, ROOM_BYTES};

use super::keys::KeyOrder;
use super::map::MapEngine;
use super::{Begin, Connection, Engine, Key, KeyValue, Outcome, Settings, Store, Table};

/// Its name in the catalogue and in results.
pub const NAME: &str = "log";
/// What it is called in tables.
pub const TITLE: &str = "bare log, the limit";

/// The engine.
pub struct LogEngine;

impl Engine for LogEngine {
    fn open(&self, directory: &Path, settings: &Settings) -> Outcome<Box<dyn Store>> {
        let map = MapEngine.open(directory, settings)?;
        let log = BareLog::create(&directory.join("log"), ROOM_BYTES)?;
        Ok(Box::new(LogStore { map, log }))
    }
}

struct LogStore {
    map: Box<dyn Store>,
    log: BareLog,
}

impl Store for LogStore {
    fn create(&self, tables: &[Table]) -> Outcome<()> {
        self.map.create(tables)
    }

    fn key_value(&self, tables: &[Table]) -> Outcome<Box<dyn KeyValue + '_>> {
        let map = self.map.key_value(tables)?;
        Ok(Box::new(LogConnection { log: &self.log, map, record: Vec::new(), is_begun: false }))
    }

    fn settings(&self) -> Outcome<Settings> {
        self.map.settings()
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        self.map.close()
    }
}

struct LogConnection<'a> {
    log: &'a BareLog,
    map: Box<dyn KeyValue + 'a>,
    /// What the transaction has written so far.
    record: Vec<u8>,
    is_begun: bool,
}

impl LogConnection<'_> {
    /// Gathers a write that the map has done, and commits it if it is a transaction of its own.
    fn write(&mut self, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        self.record.extend_from_slice(&KeyOrder::Numeric.bytes(key));
        self.record.extend_from_slice(value);
        if self.is_begun { Ok(()) } else { self.log_commit() }
    }

    /// A transaction that only read has nothing to wait for.
    fn log_commit(&mut self) -> Outcome<()> {
        if !self.record.is_empty() {
            self.log.commit(&self.record)?;
            self.record.clear();
        }
        Ok(())
    }
}

impl Connection for LogConnection<'_> {
    fn begin(&mut self, begin: Begin) -> Outcome<()> {
        self.map.begin(begin)?;
        self.is_begun = true;
        Ok(())
    }

    fn commit(&mut self) -> Outcome<()> {
        self.map.commit()?;
        self.is_begun = false;
        self.log_commit()
    }

    fn rollback(&mut self) -> Outcome<()> {
        self.record.clear();
        self.is_begun = false;
        self.map.rollback()
    }
}

impl KeyValue for LogConnection<'_> {
    fn get(&mut self, table: usize, key: Key<'_>, found: &mut dyn FnMut(&[u8])) -> Outcome<bool> {
        self.map.get(table, key, found)
    }

    fn insert(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        self.map.insert(table, key, value)?;
        self.write(key, value)
    }

    fn update(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        self.map.update(table, key, value)?;
        self.write(key, value)
    }

    fn delete(&mut self, table: usize, key: Key<'_>) -> Outcome<bool> {
        let was_there = self.map.delete(table, key)?;
        if was_there {
            self.write(key, &[])?;
        }
        Ok(was_there)
    }

    fn scan(
        &mut self,
        table: usize,
        from: Option<Key<'_>>,
        count: u64,
        found: &mut dyn FnMut(&[u8]),
    ) -> Outcome<u64> {
        self.map.scan(table, from, count, found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::KeyKind;

    fn tables() -> [Table; 1] {
        [Table { name: "t".to_owned(), keys: KeyKind::Int, without_rowid: false }]
    }

    #[test]
    fn a_commit_has_its_keys_and_values_in_the_log_and_nothing_else_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = LogEngine.open(folder.path(), &Settings::default()).expect("a log");
        store.create(&tables()).expect("a table");
        {
            let mut connection = store.key_value(&tables()).expect("a connection");
            connection.insert(0, Key::Int(1), b"alone").expect("an insert");
            connection.begin(Begin::Immediate).expect("begin");
            connection.update(0, Key::Int(1), b"lost").expect("an update");
            connection.rollback().expect("rollback");
            connection.begin_read().expect("begin");
            assert!(connection.get(0, Key::Int(1), &mut |_| {}).expect("a read"));
            connection.commit().expect("commit");
            connection.begin(Begin::Concurrent).expect("begin");
            connection.update(0, Key::Int(1), b"first").expect("an update");
            assert!(connection.delete(0, Key::Int(1)).expect("a delete"));
            connection.commit().expect("commit");
        }
        store.close().expect("close");
        let key = KeyOrder::Numeric.bytes(Key::Int(1)).to_vec();
        let expected = [&key[..], b"alone", &key, b"first", &key].concat();
        let file = std::fs::read(folder.path().join("log")).expect("the log");
        assert_eq!(file[..expected.len()], expected);
        assert!(file[expected.len()..].iter().all(|byte| *byte == 0));
    }
}
