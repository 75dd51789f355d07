//! Transactions that a round makes itself, beside its workers: the first rows, looks from outside, and the end.

use super::history::{GROUPS, Run};
use crate::isolation::history::{Status, Transaction, TransactionName};
use crate::sqlite::Connection;
use std::fs::File;
use std::path::Path;

/// Writes the initial rows, if there are to be some, as transaction `T0.0` and its history.
pub fn write_initial(
    connection: &Connection,
    keys: i64,
    empty: bool,
    has_second: bool,
    file: &Path,
) -> anyhow::Result<()> {
    let mut run = Run::new(connection, TransactionName { worker: 0, number: 0 }, keys);
    connection.execute("BEGIN IMMEDIATE")?;
    for second in [false, true].into_iter().take(1 + usize::from(has_second)) {
        run.in_second = second;
        for key in (1..=keys).filter(|key| !empty && key % 2 == 0) {
            run.put(key, key % GROUPS)?;
        }
    }
    connection.execute("COMMIT")?;
    run.write_down(&mut File::create(file)?, Status::Committed)?;
    Ok(())
}

/// Reads all keys as transaction `T0.1` and writes down what is there at the end.
pub fn write_final(
    connection: &Connection,
    keys: i64,
    has_second: bool,
    has_registers: bool,
    file: &Path,
) -> anyhow::Result<()> {
    let mut run = Run::new(connection, TransactionName { worker: 0, number: 1 }, keys);
    for second in [false, true].into_iter().take(1 + usize::from(has_second)) {
        run.in_second = second;
        run.range(1, keys, false)?;
    }
    if has_registers {
        run.in_second = false;
        run.register_rows()?;
    }
    run.write_down(&mut File::create(file)?, Status::Committed)?;
    Ok(())
}

/// Puts one key in a transaction of its own, and returns its ticket.
pub fn write_one(
    connection: &Connection,
    name: TransactionName,
    file: &mut File,
) -> anyhow::Result<i64> {
    let mut run = Run::new(connection, name, 1);
    connection.execute("BEGIN IMMEDIATE")?;
    run.put(1, 0)?;
    run.commit(file)?;
    run.write_down(file, Status::Committed)?;
    Ok(connection.integer("SELECT plait_ticket()")?)
}

/// A look at all keys that takes longer than a transaction: what it finds is from one moment of the time.
pub struct Look(Transaction);

impl Look {
    /// It begins now, by these means.
    #[must_use]
    pub fn begin(how: &str, number: u32) -> Self {
        // 0 and 1 are what a round begins and ends with.
        let name = TransactionName { worker: 0, number: number + 2 };
        Self(Transaction { begin: how.to_owned(), ..Transaction::begun_now(name) })
    }

    /// It ends with what this connection shows.
    pub fn end(self, connection: &Connection, keys: i64, file: &mut File) -> anyhow::Result<()> {
        let mut run = Run::new(connection, self.0.name, keys);
        run.transaction = self.0;
        run.range(1, keys, false)?;
        run.write_down(file, Status::Committed)?;
        Ok(())
    }
}

/// Reads everything on the replica behind a wait for what another worker has committed.
///
/// # Errors
/// What is read, or written down, fails.
pub fn read_all(
    replica: &Connection,
    (name, waited_for): (TransactionName, TransactionName),
    (keys, registers): (i64, bool),
    file: &mut File,
) -> anyhow::Result<()> {
    let mut run = Run::new(replica, name, keys);
    run.transaction.on_replica = true;
    run.transaction.waited_for = Some(waited_for);
    replica.execute("BEGIN")?;
    run.range(1, keys, false)?;
    if registers {
        run.register_rows()?;
    }
    replica.execute("COMMIT")?;
    run.write_down(file, Status::Committed)?;
    Ok(())
}
