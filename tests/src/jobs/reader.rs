//! Reads an invariant over and over; any error, BUSY included, and any wrong answer fails the job.

use crate::job::{Job, Reporter};
use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::time::{Duration, Instant};

/// A worker that reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reader {
    /// A query for one integer.
    pub sql: String,
    /// What it must answer; anything goes when `None`.
    pub expected: Option<i64>,
    /// For how long.
    pub time: Duration,
    /// Open a fresh connection for every read.
    pub reopen: bool,
    /// Busy timeout: zero shows every BUSY.
    pub busy_timeout: Duration,
}

impl Reader {
    pub(crate) fn run(&self, job: &Job, reporter: &Reporter) -> anyhow::Result<Json> {
        let end = Instant::now() + self.time;
        let mut reads = 0u64;
        let mut connection = None;
        while Instant::now() < end && !reporter.should_stop() {
            if self.reopen {
                connection = None;
            }
            let current = match connection.take() {
                Some(current) => current,
                None => {
                    let opened = job.subject.open(&job.database)?;
                    opened.busy_timeout(self.busy_timeout)?;
                    opened
                }
            };
            let answer =
                current.integer(&self.sql).with_context(|| format!("read {reads} failed"))?;
            if let Some(expected) = self.expected {
                ensure!(answer == expected, "read {reads}: {answer} instead of {expected}");
            }
            reads += 1;
            connection = Some(current);
        }
        Ok(json!({ "reads": reads }))
    }
}
