//! A process whose log cannot be written any more, as on a disk that fails.

use crate::job::{Job, Reporter};
use crate::os;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::time::Duration;

/// How such a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ends {
    /// Its connections are closed.
    Closed,
    /// By SIGKILL.
    Killed,
}

/// Inserts rows into `t(id)` until COMMIT fails, from some row on without a log that can be written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FailingLog {
    /// The value of the pragma.
    pub synchronous: String,
    /// Rows that are written before.
    pub before: u32,
    /// How it ends.
    pub ends: Ends,
}

/// Rows that are tried without a log.
const MOST_ROWS: u32 = 1_000_000;
/// Between one of them and the next: a few are committed before the log is written again without a sync.
const NAP: Duration = Duration::from_millis(1);

/// What [`FailingLog`] has met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Met {
    /// Rows whose COMMIT succeeded.
    pub acknowledged: u32,
    /// The first error.
    pub error: String,
    /// Its code.
    pub code: i32,
    /// What the other connection of the process is told afterwards.
    pub other: String,
}

impl FailingLog {
    pub(crate) fn run(&self, job: &Job, reporter: &Reporter) -> anyhow::Result<Json> {
        let connection = job.subject.open(&job.database)?;
        let other = job.subject.open(&job.database)?;
        connection.execute(&format!("PRAGMA synchronous={}", self.synchronous))?;
        let insert = |row| connection.execute(&format!("INSERT INTO t VALUES({row})"));
        (0..self.before).try_for_each(insert)?;
        anyhow::ensure!(os::fail_writes_to("-plait")? > 0, "the log is open");
        let failed = (self.before..MOST_ROWS).find_map(|row| {
            std::thread::sleep(NAP);
            Some((row, insert(row).err()?))
        });
        let (acknowledged, error) =
            failed.ok_or_else(|| anyhow::anyhow!("no COMMIT of {MOST_ROWS} fails"))?;
        let told = other.integer("SELECT count(*) FROM t").err();
        reporter.line(Met {
            acknowledged,
            error: error.message,
            code: error.code,
            other: told.map(|e| e.message).unwrap_or_default(),
        });
        if self.ends == Ends::Killed {
            os::signal(std::process::id(), libc::SIGKILL)?;
        }
        connection.close()?;
        other.close()?;
        Ok(json!(null))
    }
}
