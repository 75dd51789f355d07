//! Transactions of some reads and some updates on a table of keys and values: what `advise` and `quick` measure.
//!
//! Rows are filled with random bytes behind a counter of 8 bytes. An update reads the row, raises its counter and
//! replaces the rest. Afterwards the counters of all rows must add up to the updates that were acknowledged: a lost
//! update, a doubled one and a dropped row all break the sum.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::crew::{self, Hire, Place, Shift, Worker};
use super::dice::Dice;
use super::{Measured, Site, Workload};
use crate::engines::{Begin, Failure, Key, KeyKind, KeyValue, Outcome, Store, Table, Waits};

/// Sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Load {
    /// Rows in the table.
    pub rows: u64,
    /// Bytes of each value, 8 at least.
    pub value_bytes: usize,
    /// Rows that each transaction reads.
    pub reads: u32,
    /// Rows that each transaction updates.
    pub updates: u32,
    /// How transactions begin.
    pub begin: Begin,
    /// Who works and for how long.
    pub shift: Shift,
    /// In threads or processes.
    pub place: Place,
}

/// Rows in a transaction while the table is filled.
const FILL: u64 = 1000;
/// Length of the counter at the beginning of each value.
const COUNTER_BYTES: usize = 8;

fn tables() -> Vec<Table> {
    vec![Table { name: "data".to_owned(), keys: KeyKind::Int, without_rowid: false }]
}

impl Load {
    /// Fills the table, lets the crew work and adds up the counters.
    pub(super) fn run(&self, site: &Site<'_>) -> Outcome<Measured> {
        if self.value_bytes < COUNTER_BYTES {
            return Err(Failure::broken(format!(
                "values need {COUNTER_BYTES} bytes for their counter"
            )));
        }
        let store = site.engine.open(&site.directory, site.settings)?;
        store.create(&tables())?;
        self.fill(store.as_ref(), site.seed)?;
        let workload = Workload::Transactions(self.clone());
        let done = crew::run_in(self.place, site, &workload, store.as_ref(), &self.shift)?;
        let phase = done.whole("transactions");
        let verified = self.verify(store.as_ref(), phase.acknowledged())?;
        let settings = store.settings()?;
        store.close()?;
        Ok(Measured {
            phases: vec![phase],
            settings,
            verified: vec![verified],
            ..Measured::default()
        })
    }

    /// The workers, for the trial's process or one of their own.
    pub(super) fn hire<'a>(&'a self, site: &'a Site<'a>) -> Box<Hire<'a>> {
        Box::new(|store, index| Ok(Box::new(Client::new(self, store, site.seed, index)?)))
    }

    fn fill(&self, store: &dyn Store, seed: u64) -> Outcome<()> {
        let mut connection = store.key_value(&tables())?;
        let mut dice = Dice::new(seed, u64::MAX);
        let mut value = vec![0; self.value_bytes];
        for first in (0..self.rows).step_by(usize::try_from(FILL).expect("a small constant")) {
            connection.begin(Begin::Immediate)?;
            for key in first..self.rows.min(first + FILL) {
                dice.fill(&mut value);
                value[..COUNTER_BYTES].fill(0);
                connection.insert(0, Key::Int(key.cast_signed()), &value)?;
            }
            connection.commit()?;
        }
        Ok(())
    }

    fn verify(&self, store: &dyn Store, commits: u64) -> Outcome<String> {
        let (mut rows, mut sum) = (0_u64, 0_u64);
        store.key_value(&tables())?.scan(0, None, u64::MAX, &mut |value| {
            rows += 1;
            sum += counter(value);
        })?;
        let expected = commits * u64::from(self.updates);
        if (rows, sum) != (self.rows, expected) {
            return Err(Failure::broken(format!(
                "{} rows with {expected} acknowledged updates became {rows} rows with {sum}",
                self.rows
            )));
        }
        Ok(format!("{rows} rows hold the {sum} updates that were acknowledged"))
    }
}

fn counter(value: &[u8]) -> u64 {
    value.first_chunk().map_or(u64::MAX >> 32, |bytes| u64::from_le_bytes(*bytes))
}

/// Reads and updates random rows.
struct Client<'a> {
    load: &'a Load,
    connection: Box<dyn KeyValue + 'a>,
    dice: Dice,
    /// The chosen keys: those to be read, then those to be updated.
    keys: Vec<i64>,
    value: Vec<u8>,
    filling: Vec<u8>,
}

impl<'a> Client<'a> {
    fn new(load: &'a Load, store: &'a dyn Store, seed: u64, index: u32) -> Outcome<Self> {
        Ok(Self {
            load,
            connection: store.key_value(&tables())?,
            dice: Dice::new(seed, u64::from(index)),
            keys: Vec::new(),
            value: Vec::with_capacity(load.value_bytes),
            filling: vec![0; load.value_bytes - COUNTER_BYTES],
        })
    }

    /// Brings a row into `value`.
    fn read(&mut self, key: i64) -> Outcome<()> {
        let value = &mut self.value;
        let there = self.connection.get(0, Key::Int(key), &mut |bytes| {
            value.clear();
            value.extend_from_slice(bytes);
        })?;
        if there && self.value.len() == self.load.value_bytes {
            return Ok(());
        }
        Err(Failure::broken(format!("row {key} is not there, or not as it was written")))
    }

    fn update(&mut self, key: i64) -> Outcome<()> {
        self.read(key)?;
        let raised = counter(&self.value) + 1;
        let (head, tail) = self.value.split_at_mut(COUNTER_BYTES);
        head.copy_from_slice(&raised.to_le_bytes());
        tail.copy_from_slice(&self.filling);
        self.connection.update(0, Key::Int(key), &self.value)
    }
}

impl Worker for Client<'_> {
    fn choose(&mut self) {
        let count = self.load.reads + self.load.updates;
        self.keys.clear();
        for _ in 0..count {
            self.keys.push(self.dice.below(self.load.rows).cast_signed());
        }
        self.dice.fill(&mut self.filling);
    }

    fn attempt(&mut self) -> Outcome<()> {
        self.connection.begin(self.load.begin)?;
        let reads = usize::try_from(self.load.reads).unwrap_or(usize::MAX);
        for index in 0..self.keys.len() {
            let key = self.keys[index];
            if index < reads { self.read(key)? } else { self.update(key)? }
        }
        self.connection.commit()
    }

    fn give_up(&mut self) -> Outcome<()> {
        self.connection.rollback()
    }

    fn waits(&self) -> Waits {
        self.connection.waits()
    }
}

#[cfg(test)]
mod tests {
    use super::super::crew::Amount;
    use super::*;
    use crate::engines::{Settings, catalogue};

    fn load(workers: u32) -> Load {
        let amount = Amount::Each(20);
        let shift = Shift { workers, amount, due_per_second: None, count_start_and_stop: false };
        Load {
            rows: 10,
            value_bytes: 16,
            reads: 1,
            updates: 2,
            begin: Begin::Immediate,
            shift,
            place: Place::Threads,
        }
    }

    fn on_stock(act: impl FnOnce(&Site<'_>)) {
        let entries = catalogue::all(&[]).unwrap();
        let stock = entries.iter().find(|e| e.name == "stock").unwrap();
        let kind = stock.engine().expect("the stock library: run `make dist`");
        let engine = kind.load().unwrap();
        let settings = Settings::default().with("journal_mode", "wal").with("synchronous", "off");
        let folder = tempfile::tempdir().unwrap();
        act(&Site {
            engine: engine.as_ref(),
            kind: Some(kind),
            settings: &settings,
            directory: folder.path().to_owned(),
            seed: 1,
        });
    }

    #[test]
    fn every_acknowledged_update_is_found_in_the_rows() {
        on_stock(|site| {
            let measured = Workload::Transactions(load(4)).run(site).unwrap();
            assert_eq!(measured.phases[0].commits, 80);
            assert!(measured.verified[0].contains("160 updates"), "{:?}", measured.verified);
        });
    }

    #[test]
    fn an_update_that_is_missing_fails_the_trial() {
        on_stock(|site| {
            let load = load(1);
            let store = site.engine.open(&site.directory, site.settings).unwrap();
            store.create(&tables()).unwrap();
            load.fill(store.as_ref(), 1).unwrap();
            Client::new(&load, store.as_ref(), 1, 0).unwrap().update(3).unwrap();
            let error = load.verify(store.as_ref(), 1).expect_err("two updates were acknowledged");
            assert!(error.to_string().contains("2 acknowledged updates became 10 rows with 1"));
        });
    }
}
