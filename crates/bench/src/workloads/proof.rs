//! Commits of one row each, for the pass that counts sync calls.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::crew::{self, Amount, Shift, Worker};
use super::dice::Dice;
use super::{Measured, Site};
use crate::engines::{Begin, Failure, Key, KeyKind, KeyValue, Outcome, Store, Table, Waits};

/// Sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Load {
    /// Threads.
    pub workers: u32,
    /// Commits of each.
    pub commits_each: u64,
    /// How transactions begin.
    pub begin: Begin,
}

/// Length of the values.
const VALUE_BYTES: usize = 100;

fn tables() -> Vec<Table> {
    vec![Table { name: "proof".to_owned(), keys: KeyKind::Int, without_rowid: false }]
}

impl Load {
    /// Commits, then counts the rows.
    pub(super) fn run(&self, site: &Site<'_>) -> Outcome<Measured> {
        let store = site.engine.open(&site.directory, site.settings)?;
        store.create(&tables())?;
        let shift = Shift {
            workers: self.workers,
            amount: Amount::Each(self.commits_each),
            due_per_second: None,
            count_start_and_stop: false,
        };
        let phase = crew::run("commits", store.as_ref(), &shift, &|store, index| {
            Ok(Box::new(Inserter::new(store, self.begin, site.seed, index)?))
        })?;
        let mut rows = 0;
        store.key_value(&tables())?.scan(0, None, u64::MAX, &mut |_| rows += 1)?;
        if rows != phase.acknowledged() {
            return Err(Failure::broken(format!(
                "{} commits left {rows} rows",
                phase.acknowledged()
            )));
        }
        let settings = store.settings()?;
        store.close()?;
        let verified = vec![format!("{rows} rows, one of each commit")];
        Ok(Measured { phases: vec![phase], settings, verified, ..Measured::default() })
    }
}

/// Inserts rows with keys of its own.
struct Inserter<'a> {
    connection: Box<dyn KeyValue + 'a>,
    begin: Begin,
    dice: Dice,
    key: i64,
    value: [u8; VALUE_BYTES],
}

impl<'a> Inserter<'a> {
    fn new(store: &'a dyn Store, begin: Begin, seed: u64, index: u32) -> Outcome<Self> {
        Ok(Self {
            connection: store.key_value(&tables())?,
            begin,
            dice: Dice::new(seed, u64::from(index)),
            key: i64::from(index) << 32,
            value: [0; VALUE_BYTES],
        })
    }
}

impl Worker for Inserter<'_> {
    fn choose(&mut self) {
        self.key += 1;
        self.dice.fill(&mut self.value);
    }

    fn attempt(&mut self) -> Outcome<()> {
        self.connection.begin(self.begin)?;
        self.connection.insert(0, Key::Int(self.key), &self.value)?;
        self.connection.commit()
    }

    fn give_up(&mut self) -> Outcome<()> {
        self.connection.rollback()
    }

    fn waits(&self) -> Waits {
        self.connection.waits()
    }
}
