//! Workers whose every call is a transaction of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::crew::Worker;
use super::super::dice::Dice;
use super::data::{Data, RowKey};
use crate::engines::{Failure, KeyValue, Outcome, Waits};

/// Which table, and what is known of its rows.
#[derive(Clone)]
pub struct Rows {
    pub data: Data,
    /// The connection's number of the table.
    pub table: usize,
    /// The version of each row, raised by whoever updates it. A process knows those of its own rows alone.
    pub versions: Arc<Vec<AtomicU64>>,
}

impl Rows {
    /// The rows as one of several processes finds them: it looks at those that it will update.
    pub fn of_one(
        connection: &mut dyn KeyValue,
        data: Data,
        count: u64,
        own: impl Iterator<Item = u64>,
    ) -> Outcome<Self> {
        let versions: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::default()).collect();
        let mut scratch = Vec::new();
        for row in own {
            let mut version = None;
            connection.get(0, data.key(row).key(), &mut |value| {
                version = data.version(row, value, &mut scratch);
            })?;
            let Some(version) = version else { return Err(lost(row)) };
            // Relaxed: nobody else has them yet.
            versions[usize::try_from(row).unwrap_or(usize::MAX)].store(version, Ordering::Relaxed);
        }
        Ok(Self { data, table: 0, versions: Arc::new(versions) })
    }
}

fn lost(row: u64) -> Failure {
    Failure::broken(format!("row {row} is not there, or damaged"))
}

/// Adds one row after the other.
pub struct Inserter<'a> {
    pub connection: Box<dyn KeyValue + 'a>,
    pub data: Data,
    pub table: usize,
    /// How many rows there are, those of this worker among them.
    pub count: &'a AtomicU64,
    pub value: Vec<u8>,
    pub key: Option<RowKey>,
}

impl Worker for Inserter<'_> {
    fn choose(&mut self) {
        // Relaxed: there is one such worker, and its thread is joined before anybody else looks.
        let row = self.count.load(Ordering::Relaxed);
        self.key = Some(self.data.key(row));
        self.data.fill(row, 0, &mut self.value);
    }

    fn attempt(&mut self) -> Outcome<()> {
        let key = self.key.expect("a row is chosen before it is inserted");
        self.connection.insert(self.table, key.key(), &self.value)?;
        // Relaxed: as above.
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn give_up(&mut self) -> Outcome<()> {
        self.connection.rollback()
    }

    fn waits(&self) -> Waits {
        self.connection.waits()
    }
}

/// Reads any row or updates one of its own: with `workers` of them, every so manieth row belongs to each.
pub struct Mixer<'a> {
    pub connection: Box<dyn KeyValue + 'a>,
    pub rows: Rows,
    pub read_percent: u64,
    pub index: u64,
    pub workers: u64,
    pub dice: Dice,
    /// The row that is next, and whether it is only read.
    pub chosen: (u64, bool),
    pub value: Vec<u8>,
    pub scratch: Vec<u8>,
}

impl Mixer<'_> {
    /// What the chosen row will be after its update.
    fn next_version(&self) -> u64 {
        // Relaxed: only this worker changes the versions of its own rows.
        self.rows.versions[usize::try_from(self.chosen.0).unwrap_or(usize::MAX)]
            .load(Ordering::Relaxed)
            + 1
    }
}

impl Worker for Mixer<'_> {
    fn choose(&mut self) {
        let count = self.rows.versions.len() as u64;
        let only_read = self.dice.below(100) < self.read_percent;
        let row = if only_read {
            self.dice.below(count)
        } else {
            let own = (count - self.index).div_ceil(self.workers);
            self.dice.below(own) * self.workers + self.index
        };
        self.chosen = (row, only_read);
        if !only_read {
            self.rows.data.fill(row, self.next_version(), &mut self.value);
        }
    }

    fn attempt(&mut self) -> Outcome<()> {
        let (row, only_read) = self.chosen;
        let key = self.rows.data.key(row);
        if !only_read {
            self.connection.update(self.rows.table, key.key(), &self.value)?;
            let version = self.next_version();
            // Relaxed: as above; readers compare with nothing but the value itself.
            self.rows.versions[usize::try_from(row).unwrap_or(usize::MAX)]
                .store(version, Ordering::Relaxed);
            return Ok(());
        }
        let (data, scratch) = (self.rows.data, &mut self.scratch);
        let mut good = false;
        self.connection.get(self.rows.table, key.key(), &mut |value| {
            good = data.version(row, value, scratch).is_some();
        })?;
        if good { Ok(()) } else { Err(lost(row)) }
    }

    fn give_up(&mut self) -> Outcome<()> {
        self.connection.rollback()
    }

    fn waits(&self) -> Waits {
        self.connection.waits()
    }

    fn writes(&self) -> bool {
        !self.chosen.1
    }
}
