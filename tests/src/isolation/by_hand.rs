//! Histories that are written by hand, for tests of the checker.

use super::history::{Operation, Row, Seen, Status, Transaction, TransactionName};

/// It begins and ends at these times, and commits just behind its begin.
pub fn transaction(number: u32, time: (u64, u64), operations: Vec<Operation>) -> Transaction {
    Transaction {
        start_ns: time.0,
        commit_ns: time.0 + 1,
        end_ns: time.1,
        status: Status::Committed,
        operations,
        ..Transaction::begun_now(TransactionName { worker: 1, number })
    }
}

/// A row is read.
pub fn read(key: i64, version: i64) -> Operation {
    Operation::Read { key, seen: Seen::Value(version) }
}

/// A row is looked for, and is not there.
pub fn absent(key: i64) -> Operation {
    Operation::Read { key, seen: Seen::Absent }
}

/// A row is made or changed.
pub fn write(key: i64, before: Option<i64>, version: i64) -> Operation {
    Operation::Write { key, before, after: Some(Row { version, group: version }) }
}

/// A row is deleted.
pub fn delete(key: i64, before: i64) -> Operation {
    Operation::Write { key, before: Some(before), after: None }
}
