//! The table of a load, as its engine speaks: in SQL, or by keys where there is no SQL.

use super::by_keys::ByKeys;
use super::in_sql::InSql;
use crate::engines::{Begin, Failure, Outcome, Store, Waits};

/// A connection to the table. A row has an id, a counter `n`, a `tag` and random bytes `v`.
pub trait Rows {
    /// As [`Connection::begin`](crate::engines::Connection::begin).
    fn begin(&mut self, begin: Begin) -> Outcome<()>;
    /// As [`Connection::commit`](crate::engines::Connection::commit).
    fn commit(&mut self) -> Outcome<()>;
    /// As [`Connection::rollback`](crate::engines::Connection::rollback).
    fn rollback(&mut self) -> Outcome<()>;
    /// As [`Connection::waits`](crate::engines::Connection::waits).
    fn waits(&self) -> Waits;

    /// How long the bytes of a row are; none without the row.
    fn select(&mut self, id: i64) -> Outcome<Option<usize>>;
    /// Adds 1 to the counter of a row and gives it other bytes; tells how many rows were changed.
    fn update(&mut self, id: i64, v: &[u8]) -> Outcome<u64>;
    /// Adds a row, whose id is chosen here; tells how many were added.
    fn insert(&mut self, n: i64, tag: i64, v: &[u8]) -> Outcome<u64>;
    /// The number of all rows and the sum of their counters.
    fn sums(&mut self) -> Outcome<(i64, i64)>;
    /// The least and the greatest id.
    fn ids(&mut self) -> Outcome<(i64, i64)>;
    /// The number of rows with a tag, by the index.
    fn tagged(&mut self, tag: i64) -> Outcome<u64>;
}

/// Makes the table, with the index on `tag` if there is one.
pub fn create(store: &dyn Store, index: bool) -> Outcome<Box<dyn Rows + '_>> {
    match store.sql() {
        Ok(sql) => Ok(Box::new(InSql::create(sql, index)?)),
        Err(Failure::Unsupported(_)) => Ok(Box::new(ByKeys::create(store, index)?)),
        Err(other) => Err(other),
    }
}

/// A connection for a worker to the table that is there.
pub fn open(store: &dyn Store, worker: u32) -> Outcome<Box<dyn Rows + '_>> {
    match store.sql() {
        Ok(sql) => Ok(Box::new(InSql::open(sql)?)),
        Err(Failure::Unsupported(_)) => Ok(Box::new(ByKeys::open(store, worker)?)),
        Err(other) => Err(other),
    }
}
