//! Counters raised in transactions: study B's work. Each transaction reads a counter and writes it one higher.
//!
//! Afterwards all counters must add up to the commits that were acknowledged, and there must be as many as were to be
//! made: an increment that is lost or done twice, and a counter that is dropped, all break that.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::crew::{self, Amount, Shift, Worker};
use super::dice::Dice;
use super::{Measured, Site};
use crate::engines::{
    Begin, Failure, Key, KeyKind, KeyValue, Outcome, Store, Table, Waits, dict, files,
};
use crate::measure::phase::Phase;
use crate::measure::usage;

/// Which counter a transaction raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Keys {
    /// One that is not there yet, and which it creates.
    New,
    /// A random one of so many that are there; with 1 it is always the same.
    Existing(u64),
}

/// Sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Load {
    /// Which counters.
    pub keys: Keys,
    /// How transactions begin.
    pub begin: Begin,
    /// Seconds that a transaction sleeps between its read and its write.
    pub hold_s: f64,
    /// Who works and for how long.
    pub shift: Shift,
}

/// The name of the phase.
pub const PHASE: &str = "transactions";

fn tables() -> Vec<Table> {
    vec![Table { name: "counters".to_owned(), keys: KeyKind::Int, without_rowid: false }]
}

impl Load {
    /// Makes the counters, lets the crew raise them and adds them up.
    pub(super) fn run(&self, site: &Site<'_>) -> Outcome<Measured> {
        if let Some(python) = site.engine.python() {
            return self.run_in_python(python);
        }
        let store = site.engine.open(&site.directory, site.settings)?;
        store.create(&tables())?;
        let settings = store.settings()?;
        if let Some(why) = site.settings.not_taken(&settings) {
            return Err(Failure::unsupported(why));
        }
        if settings.get(files::TRANSACTIONS) == Some("none") && self.keys != Keys::New {
            return Err(Failure::unsupported("without transactions increments get lost"));
        }
        self.fill(store.as_ref())?;
        let phase = crew::run(PHASE, store.as_ref(), &self.shift, &|store, index| {
            Ok(Box::new(Client::new(self, store, site.seed, index)?))
        })?;
        let mut counters = Vec::new();
        store.key_value(&tables())?.scan(0, None, u64::MAX, &mut |v| counters.push(count(v)))?;
        let counters = counters.into_iter().collect::<Outcome<Vec<u64>>>()?;
        let found = (counters.len() as u64, counters.iter().sum());
        let verified = self.verify(found, phase.acknowledged())?;
        store.close()?;
        Ok(Measured { phases: vec![phase], settings, verified, ..Measured::default() })
    }

    /// Makes the counters that must be there.
    fn fill(&self, store: &dyn Store) -> Outcome<()> {
        let Keys::Existing(keys) = self.keys else { return Ok(()) };
        let mut connection = store.key_value(&tables())?;
        connection.begin(Begin::Immediate)?;
        for key in 0..keys {
            connection.insert(0, Key::Int(key.cast_signed()), &0_u64.to_le_bytes())?;
        }
        connection.commit()
    }

    /// Compares number and sum of the counters with the commits.
    fn verify(&self, (keys, sum): (u64, u64), commits: u64) -> Outcome<Vec<String>> {
        let expected = match self.keys {
            Keys::New => commits,
            Keys::Existing(keys) => keys,
        };
        if keys != expected {
            return Err(Failure::broken(format!("{keys} counters are left of {expected}")));
        }
        if sum != commits {
            let text = format!("{commits} commits left counters that add up to {sum}");
            return Err(Failure::broken(text));
        }
        Ok(vec![format!("{keys} counters that add up to the {commits} commits")])
    }

    /// The same loop in a process of another language.
    fn run_in_python(&self, python: &std::path::Path) -> Outcome<Measured> {
        let transactions = match self.shift.amount {
            Amount::Together(all) => all,
            Amount::Each(each) => each * u64::from(self.shift.workers),
            Amount::Seconds(_) | Amount::Steady { .. } => {
                return Err(Failure::unsupported(
                    "a dictionary counts to a number, not for a time",
                ));
            }
        };
        let distinct_keys = match self.keys {
            Keys::New => true,
            Keys::Existing(1) => false,
            Keys::Existing(_) => {
                return Err(Failure::unsupported("a dictionary has one key or new ones"));
            }
        };
        let load = dict::Counters {
            threads: self.shift.workers,
            transactions,
            distinct_keys,
            hold_s: self.hold_s,
        };
        let before = usage::so_far();
        let counted = dict::run(python, load)?;
        let usage = usage::between(before, usage::so_far());
        let verified = self.verify((counted.keys, counted.sum), transactions)?;
        let phase = Phase {
            name: PHASE.to_owned(),
            operations: transactions,
            commits: transactions,
            seconds: counted.seconds,
            usage,
            ..Phase::default()
        };
        Ok(Measured { phases: vec![phase], verified, ..Measured::default() })
    }
}

/// The counter in a value.
fn count(value: &[u8]) -> Outcome<u64> {
    let bytes = value
        .try_into()
        .map_err(|_| Failure::broken(format!("a counter of {} bytes instead of 8", value.len())))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Raises counters.
struct Client<'a> {
    load: &'a Load,
    connection: Box<dyn KeyValue + 'a>,
    dice: Dice,
    /// Of the last transaction.
    key: i64,
    /// The key of this worker's next transaction with [`Keys::New`].
    next_new: i64,
}

impl<'a> Client<'a> {
    fn new(load: &'a Load, store: &'a dyn Store, seed: u64, index: u32) -> Outcome<Self> {
        Ok(Self {
            load,
            connection: store.key_value(&tables())?,
            dice: Dice::new(seed, u64::from(index)),
            key: 0,
            next_new: i64::from(index),
        })
    }
}

impl Worker for Client<'_> {
    /// New keys of all workers interleave, as those of a common counter would.
    fn choose(&mut self) {
        self.key = match self.load.keys {
            Keys::Existing(keys) => self.dice.below(keys).cast_signed(),
            Keys::New => {
                let key = self.next_new;
                self.next_new += i64::from(self.load.shift.workers);
                key
            }
        };
    }

    fn attempt(&mut self) -> Outcome<()> {
        let key = Key::Int(self.key);
        self.connection.begin(self.load.begin)?;
        let mut counter = None;
        self.connection.get(0, key, &mut |value| counter = Some(count(value)))?;
        if self.load.hold_s > 0.0 {
            std::thread::sleep(std::time::Duration::from_secs_f64(self.load.hold_s));
        }
        match counter {
            Some(counter) => self.connection.update(0, key, &(counter? + 1).to_le_bytes())?,
            None => self.connection.insert(0, key, &1_u64.to_le_bytes())?,
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
