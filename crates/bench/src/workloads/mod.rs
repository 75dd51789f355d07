//! What is done to a store in a trial.
//!
//! | module | work | study |
//! |---|---|---|
//! | [`proof`] | one-row commits for the traced pass that counts sync calls | all |
//! | [`counter`] | counters raised in transactions | B |
//! | [`records`] | inserts, one by one or by many writers | C |
//! | [`tasks`] | tasks created, changed and deleted | C |
//! | [`key_value`] | inserts, selects, scans, mixes and deletes of keys and values | A |
//! | [`writers`] | one random select and one random update, and other loads of many writers | D |
//! | [`behaviour`] | what an engine does when transactions meet | D |
//! | [`transactions`] | reads and updates of a table of keys and values | advise, quick |
//!
//! [`dice`] makes keys and values, [`crew`] lets workers work at the same time.

pub mod behaviour;
pub mod counter;
pub mod crew;
pub mod dice;
pub mod key_value;
pub mod proof;
pub mod records;
pub mod tasks;
pub mod transactions;
pub mod writers;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engines::catalogue::Kind;
use crate::engines::{Engine, Failure, Outcome, Settings};
use crate::measure::phase::Phase;

/// The work of a trial, with all its sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "workload")]
pub enum Workload {
    /// See [`proof`].
    Proof(proof::Load),
    /// See [`counter`].
    Counter(counter::Load),
    /// See [`records`].
    Records(records::Load),
    /// See [`tasks`].
    Tasks(tasks::Load),
    /// See [`key_value`].
    KeyValue(key_value::Load),
    /// See [`transactions`].
    Transactions(transactions::Load),
    /// See [`writers`].
    Writers(writers::Load),
    /// See [`behaviour`].
    Behaviour(behaviour::Load),
}

/// Where and with what a workload runs.
pub struct Site<'a> {
    /// The engine, loaded.
    pub engine: &'a dyn Engine,
    /// How other processes of the trial load it; none for an engine that exists only in this one.
    pub kind: Option<&'a Kind>,
    /// How it is set up.
    pub settings: &'a Settings,
    /// An empty directory on the medium that is measured.
    pub directory: PathBuf,
    /// Seed of keys, values and order.
    pub seed: u64,
}

/// What came of a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// The figures, part by part.
    pub phases: Vec<Phase>,
    /// The settings as the engine told them.
    pub settings: Settings,
    /// What was verified afterwards, in words: a trial whose verification fails is a failed trial.
    pub verified: Vec<String>,
    /// Answers to questions that are no figures.
    pub findings: Vec<Finding>,
    /// Size of all files in the directory when the store was closed.
    pub file_bytes: u64,
}

/// What an engine did in a behaviour test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The test: "two immediate transactions on different tables".
    pub question: String,
    /// What happened.
    pub answer: String,
}

impl Workload {
    /// Does the work and verifies what is left.
    ///
    /// # Errors
    /// See [`Failure`](crate::engines::Failure); a verification that fails is one that is broken.
    pub fn run(&self, site: &Site<'_>) -> Outcome<Measured> {
        match self {
            Self::Proof(load) => load.run(site),
            Self::Counter(load) => load.run(site),
            Self::Records(load) => load.run(site),
            Self::Tasks(load) => load.run(site),
            Self::Transactions(load) => load.run(site),
            Self::KeyValue(load) => load.run(site),
            Self::Writers(load) => load.run(site, self),
            Self::Behaviour(load) => load.run(site),
        }
    }

    /// The workers of its crew, for a process that is one of them.
    ///
    /// # Errors
    /// [`Failure::Unsupported`](crate::engines::Failure) where the workers need the trial's own process.
    pub fn hire<'a>(&'a self, site: &'a Site<'a>) -> Outcome<Box<crew::Hire<'a>>> {
        match self {
            Self::Writers(load) => {
                Ok(Box::new(move |store, index| load.client(site, store, index)))
            }
            Self::Transactions(load) => Ok(load.hire(site)),
            Self::KeyValue(load) => load.hire(site),
            _ => Err(Failure::unsupported("this work is done by threads only")),
        }
    }
}
