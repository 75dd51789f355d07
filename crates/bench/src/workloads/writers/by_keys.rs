//! The table by keys: a row's id is its key, and its value begins with counter and tag, 8 bytes each.

use super::rows::Rows;
use crate::engines::{Begin, Failure, Key, KeyKind, KeyValue, Outcome, Store, Table, Waits};

/// Counter and tag.
const HEAD_BYTES: usize = 16;
/// Ids of rows that a worker inserts begin with its number, so that no two choose the same.
const WORKER_SHIFT: u32 = 32;

fn tables() -> Vec<Table> {
    vec![Table { name: "records".to_owned(), keys: KeyKind::Int, without_rowid: false }]
}

/// A connection.
pub struct ByKeys<'a> {
    connection: Box<dyn KeyValue + 'a>,
    is_begun: bool,
    /// The id of the next row that is inserted.
    next: i64,
    value: Vec<u8>,
}

impl<'a> ByKeys<'a> {
    pub fn create(store: &'a dyn Store, index: bool) -> Outcome<Self> {
        if index {
            return Err(Failure::unsupported("a table by keys has no index on its tags"));
        }
        store.create(&tables())?;
        Self::with_next(store, 1)
    }

    pub fn open(store: &'a dyn Store, worker: u32) -> Outcome<Self> {
        Self::with_next(store, (i64::from(worker) + 1) << WORKER_SHIFT)
    }

    fn with_next(store: &'a dyn Store, next: i64) -> Outcome<Self> {
        let connection = store.key_value(&tables())?;
        Ok(Self { connection, is_begun: false, next, value: Vec::new() })
    }
}

/// The counter of a row; none of one that is too short to have been written here.
fn counter(value: &[u8]) -> Option<i64> {
    let bytes = value.first_chunk().filter(|_| value.len() >= HEAD_BYTES)?;
    Some(i64::from_le_bytes(*bytes))
}

impl Rows for ByKeys<'_> {
    fn begin(&mut self, begin: Begin) -> Outcome<()> {
        self.connection.begin(begin)?;
        self.is_begun = true;
        Ok(())
    }

    fn commit(&mut self) -> Outcome<()> {
        self.is_begun = false;
        self.connection.commit()
    }

    fn rollback(&mut self) -> Outcome<()> {
        self.is_begun = false;
        self.connection.rollback()
    }

    fn waits(&self) -> Waits {
        self.connection.waits()
    }

    fn select(&mut self, id: i64) -> Outcome<Option<usize>> {
        let mut bytes = None;
        self.connection.get(0, Key::Int(id), &mut |value| {
            bytes = value.len().checked_sub(HEAD_BYTES);
        })?;
        Ok(bytes)
    }

    fn update(&mut self, id: i64, v: &[u8]) -> Outcome<u64> {
        if !self.is_begun {
            return Err(Failure::unsupported("by keys a counter is raised in a transaction only"));
        }
        let row = &mut self.value;
        let is_there = self.connection.get(0, Key::Int(id), &mut |value| {
            row.clear();
            row.extend_from_slice(value);
        })?;
        let Some(n) = counter(row).filter(|_| is_there) else { return Ok(0) };
        row.truncate(HEAD_BYTES);
        row[..8].copy_from_slice(&(n + 1).to_le_bytes());
        row.extend_from_slice(v);
        self.connection.update(0, Key::Int(id), row)?;
        Ok(1)
    }

    fn insert(&mut self, n: i64, tag: i64, v: &[u8]) -> Outcome<u64> {
        self.value.clear();
        self.value.extend_from_slice(&n.to_le_bytes());
        self.value.extend_from_slice(&tag.to_le_bytes());
        self.value.extend_from_slice(v);
        self.connection.insert(0, Key::Int(self.next), &self.value)?;
        self.next += 1;
        Ok(1)
    }

    fn sums(&mut self) -> Outcome<(i64, i64)> {
        let (mut rows, mut sum, mut damaged) = (0, 0, 0);
        self.connection.scan(0, None, u64::MAX, &mut |value| {
            rows += 1;
            match counter(value) {
                Some(n) => sum += n,
                None => damaged += 1,
            }
        })?;
        if damaged > 0 {
            return Err(Failure::broken(format!("{damaged} rows have no counter")));
        }
        Ok((rows, sum))
    }

    fn ids(&mut self) -> Outcome<(i64, i64)> {
        // Those of rows that were inserted here, which begin with 1 while the table is filled.
        Ok((1, self.next - 1))
    }

    fn tagged(&mut self, _tag: i64) -> Outcome<u64> {
        Err(Failure::unsupported("a table by keys has no index on its tags"))
    }
}
