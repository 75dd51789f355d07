//! Runs cases of the suite of failing calls, in a process whose library is told which of them fail.

use crate::job::{Job, Reporter};
use crate::subject::Subject;
use crate::wholeness::Case;
use crate::wholeness::generate::generate;
use crate::wholeness::model::Bench;
use crate::wholeness::switch::Switch;
use crate::wholeness::trial::{Tally, run};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::time::{Duration, Instant};

/// Which cases.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Source {
    /// Those of consecutive seeds, until the time is over.
    Seeds {
        /// The first.
        first: u64,
        /// For how long.
        time: Duration,
    },
    /// This one.
    Case(Box<Case>),
}

/// Cases to run. The job's own subject is the library under test, with crash points, its database a scratch directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cases {
    /// The oracle.
    pub stock: Subject,
    /// The cases.
    pub source: Source,
}

/// What is reported: a seed that was begun, so that a crash names it, then what came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Report {
    /// This seed is running now.
    Running(u64),
    /// This many trials went well.
    Sound(Tally),
    /// Something is wrong.
    Failed(String),
}

impl Cases {
    pub(crate) fn run(&self, job: &Job, reporter: &Reporter) -> anyhow::Result<Json> {
        let switch = Switch::of_this_process()?;
        let scratch = tempfile::Builder::new().prefix("cases-").tempdir_in(&job.database)?;
        let bench = Bench {
            plait: &job.subject,
            stock: &self.stock,
            switch: &switch,
            scratch: scratch.path(),
        };
        let one = |case: &Case| {
            reporter.line(Report::Running(case.seed));
            let report = match run(&bench, case) {
                Ok(tally) => Report::Sound(tally),
                Err(error) => Report::Failed(format!("{error:#}")),
            };
            let is_sound = matches!(report, Report::Sound(_));
            reporter.line(report);
            is_sound
        };
        match &self.source {
            Source::Case(case) => drop(one(case)),
            Source::Seeds { first, time } => {
                let end = Instant::now() + *time;
                let mut seeds = *first..;
                let more = || !reporter.should_stop() && Instant::now() < end;
                while more() && seeds.next().is_some_and(|seed| one(&generate(seed))) {}
            }
        }
        Ok(Json::Null)
    }
}
