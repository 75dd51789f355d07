//! Runs scripts of the differential suite, in a process that may crash without taking the suite along.

use crate::differential::Script;
use crate::differential::generate::generate;
use crate::differential::run::{Mismatch, run};
use crate::job::{Job, Reporter};
use crate::subject::Subject;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// Which scripts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Source {
    /// Scripts generated from consecutive seeds.
    Seeds {
        /// First seed.
        first: u64,
        /// How many.
        count: u64,
        /// Steps of each.
        length: usize,
    },
    /// Given scripts.
    Scripts(Vec<Script>),
}

/// Scripts to run against an oracle. The job's own subject is the library under test, its database a scratch directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seeds {
    /// The oracle.
    pub stock: Subject,
    /// The scripts.
    pub source: Source,
}

/// What is reported: a seed that was begun, so that a crash names it, then perhaps its mismatch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Report {
    /// This seed is running now.
    Running(u64),
    /// This seed failed so.
    Failed(u64, Mismatch),
}

impl Seeds {
    pub(crate) fn run(&self, job: &Job, reporter: &Reporter) -> anyhow::Result<Json> {
        match &self.source {
            Source::Scripts(scripts) => {
                for script in scripts {
                    self.one(script, job, reporter)?;
                }
            }
            Source::Seeds { first, count, length } => {
                for seed in *first..first + count {
                    if reporter.should_stop() {
                        break;
                    }
                    self.one(&generate(seed, *length), job, reporter)?;
                }
            }
        }
        Ok(Json::Null)
    }

    fn one(&self, script: &Script, job: &Job, reporter: &Reporter) -> anyhow::Result<()> {
        reporter.line(Report::Running(script.seed));
        let directory = tempfile::Builder::new().prefix("seed-").tempdir_in(&job.database)?;
        if let Some(mismatch) = run(script, &self.stock, &job.subject, directory.path())? {
            reporter.line(Report::Failed(script.seed, mismatch));
        }
        Ok(())
    }
}
