//! Increments rows as fast as it can and measures how long each commit took.

use crate::job::{Job, Reporter};
use crate::sqlite::{Connection, SqlError};
use crate::subject::{Begin, Synchronous};
use hdrhistogram::Histogram;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::time::{Duration, Instant};

/// The table that is counted in.
pub const SCHEMA: &str =
    "CREATE TABLE counters(id INTEGER PRIMARY KEY, n INTEGER NOT NULL, note TEXT);";

/// A worker that increments.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Counter {
    /// Seed for its choice of rows.
    pub seed: u64,
    /// How each increment begins; `None` is autocommit.
    pub begin: Option<Begin>,
    /// Read the row before writing it.
    pub read_first: bool,
    /// Rows `1..=rows` are chosen from.
    pub rows: i64,
    /// Durability.
    pub synchronous: Synchronous,
    /// For how long.
    pub time: Duration,
    /// Busy timeout of its connection.
    pub busy_timeout: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Counted {
    /// Increments that were committed.
    pub commits: u64,
    /// SQLITE_BUSY other than conflicts, as seen by the caller.
    pub busy: u64,
    /// SQLITE_BUSY_SNAPSHOT as seen by the caller.
    pub conflicts: u64,
    /// What the last of them said.
    pub last_conflict: String,
    /// Median time of a committed increment, retries included.
    pub median: Duration,
    /// Longest time of a committed increment, retries included.
    pub max: Duration,
}

impl Counter {
    pub(crate) fn run(&self, job: &Job, reporter: &Reporter) -> anyhow::Result<Json> {
        let connection = job.subject.open(&job.database)?;
        connection.busy_timeout(self.busy_timeout)?;
        connection.execute(&format!("PRAGMA synchronous={}", self.synchronous.number()))?;
        let mut random = StdRng::seed_from_u64(self.seed);
        let mut times = Histogram::<u64>::new(3)?;
        let mut counted = Counted {
            commits: 0,
            busy: 0,
            conflicts: 0,
            last_conflict: String::new(),
            median: Duration::ZERO,
            max: Duration::ZERO,
        };
        let begin = self.begin.map(|begin| job.subject.begin(begin));
        let end = Instant::now() + self.time;
        while Instant::now() < end && !reporter.should_stop() {
            let row = random.random_range(1..=self.rows);
            let start = Instant::now();
            while let Err(error) = self.increment(&connection, begin, row) {
                anyhow::ensure!(error.is_busy(), "an increment failed: {error}");
                if error.is_conflict() {
                    counted.last_conflict = error.to_string();
                    counted.conflicts += 1;
                } else {
                    counted.busy += 1;
                }
                if !connection.autocommit() {
                    connection.execute("ROLLBACK")?;
                }
            }
            counted.commits += 1;
            times.record(u64::try_from(start.elapsed().as_nanos())?)?;
        }
        counted.median = Duration::from_nanos(times.value_at_quantile(0.5));
        counted.max = Duration::from_nanos(times.max());
        Ok(serde_json::to_value(counted)?)
    }

    fn increment(
        &self,
        connection: &Connection,
        begin: Option<&str>,
        row: i64,
    ) -> Result<(), SqlError> {
        let update = format!("UPDATE counters SET n=n+1 WHERE id={row}");
        let Some(begin) = begin else {
            return connection.execute(&update);
        };
        connection.execute(begin)?;
        if self.read_first {
            connection.integer(&format!("SELECT n FROM counters WHERE id={row}"))?;
        }
        connection.execute(&update)?;
        connection.execute("COMMIT")
    }
}
