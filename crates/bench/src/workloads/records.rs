//! Records added one by one, each a transaction of its own: study C's linear and concurrent inserts.
//!
//! A record begins with its key; the rest is made from seed and key, so that afterwards every record can be compared
//! with what was written, and what each writer was told is there must be there without a gap.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::crew::{self, Shift, Worker};
use super::dice::Dice;
use super::{Measured, Site};
use crate::engines::{Failure, Key, KeyKind, KeyValue, Outcome, Store, Table, Waits};

/// Sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Load {
    /// Bytes of each record, 8 at least.
    pub value_bytes: usize,
    /// Runs after each other in the same store, each adding records.
    pub runs: u32,
    /// The writers of each run, and how much they write.
    pub shift: Shift,
}

/// The name of a run's phase; the first is 1.
#[must_use]
pub fn phase_name(run: u32) -> String {
    format!("run {run}")
}

/// Bytes of the key at the beginning of a record.
const KEY_BYTES: usize = 8;
/// Where a key's number of the record ends and that of the writer begins.
const WRITER_SHIFT: u32 = 32;
/// Where that of the run begins.
const RUN_SHIFT: u32 = 48;

fn tables() -> Vec<Table> {
    vec![Table { name: "records".to_owned(), keys: KeyKind::Int, without_rowid: false }]
}

/// The record of a key.
fn make(record: &mut [u8], seed: u64, key: i64) {
    Dice::new(seed, key.cast_unsigned()).fill(record);
    record[..KEY_BYTES].copy_from_slice(&key.to_le_bytes());
}

impl Load {
    /// Adds the records and reads all of them back.
    pub(super) fn run(&self, site: &Site<'_>) -> Outcome<Measured> {
        if self.value_bytes < KEY_BYTES {
            return Err(Failure::broken(format!("records need {KEY_BYTES} bytes for their key")));
        }
        let store = site.engine.open(&site.directory, site.settings)?;
        store.create(&tables())?;
        let settings = store.settings()?;
        if let Some(why) = site.settings.not_taken(&settings) {
            return Err(Failure::unsupported(why));
        }
        // Held from the first run to the last: SQLite would take its log away with the last connection.
        let mut keeper = store.key_value(&tables())?;
        let mut phases = Vec::new();
        for run in 1..=self.runs {
            let name = phase_name(run);
            phases.push(crew::run(&name, store.as_ref(), &self.shift, &|store, index| {
                Ok(Box::new(Writer::new(self, store, site.seed, run, index)?))
            })?);
        }
        let written = phases.iter().map(|phase| phase.acknowledged()).sum();
        let verified = vec![self.verify(keeper.as_mut(), site.seed, written)?];
        drop(keeper);
        store.close()?;
        Ok(Measured { phases, settings, verified, ..Measured::default() })
    }

    fn verify(&self, connection: &mut dyn KeyValue, seed: u64, written: u64) -> Outcome<String> {
        let mut wrong = None;
        let mut expected = vec![0; self.value_bytes];
        // Of each writer in each run: how many records there are, and the highest number among them.
        let mut found: HashMap<i64, (i64, i64)> = HashMap::new();
        let records = connection.scan(0, None, u64::MAX, &mut |record| {
            let Some(Ok(key)) = record.get(..KEY_BYTES).map(TryInto::try_into) else {
                wrong = Some(format!("a record of {} bytes", record.len()));
                return;
            };
            let key = i64::from_le_bytes(key);
            make(&mut expected, seed, key);
            if record != expected {
                wrong = Some(format!("record {key} is not what was written"));
            }
            let (count, highest) = found.entry(key >> WRITER_SHIFT).or_default();
            *count += 1;
            *highest = (*highest).max(key & ((1 << WRITER_SHIFT) - 1));
        })?;
        if let Some(wrong) = wrong {
            return Err(Failure::broken(wrong));
        }
        if records != written {
            return Err(Failure::broken(format!("{records} records are left of {written}")));
        }
        if found.values().any(|(count, highest)| count != highest) {
            return Err(Failure::broken("records are missing between others of their writer"));
        }
        Ok(format!("{records} records read back and compared"))
    }
}

/// Adds records with keys of its own.
struct Writer<'a> {
    connection: Box<dyn KeyValue + 'a>,
    seed: u64,
    key: i64,
    record: Vec<u8>,
}

impl<'a> Writer<'a> {
    fn new(load: &Load, store: &'a dyn Store, seed: u64, run: u32, index: u32) -> Outcome<Self> {
        Ok(Self {
            connection: store.key_value(&tables())?,
            seed,
            key: i64::from(run) << RUN_SHIFT | i64::from(index) << WRITER_SHIFT,
            record: vec![0; load.value_bytes],
        })
    }
}

impl Worker for Writer<'_> {
    fn choose(&mut self) {
        self.key += 1;
        make(&mut self.record, self.seed, self.key);
    }

    fn attempt(&mut self) -> Outcome<()> {
        self.connection.insert(0, Key::Int(self.key), &self.record)
    }

    fn give_up(&mut self) -> Outcome<()> {
        self.connection.rollback()
    }

    fn waits(&self) -> Waits {
        self.connection.waits()
    }
}
