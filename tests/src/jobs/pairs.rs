//! Numbered commits with an outside record of which were acknowledged.
//!
//! Transaction `n` of worker `w` inserts `(w, n)` into two tables and sets `pair_totals` of `w` to `n`, so that whatever a crash
//! leaves behind can be checked: both tables hold exactly `1..=total` of each worker, no total is behind what was
//! acknowledged, and none is more than one ahead (the one commit that was under way).

use crate::job::{Job, Reporter};
use crate::os::monotonic_ns;
use crate::sqlite::{Connection, SqlError};
use crate::subject::{Begin, Subject, Synchronous};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Tables of the pairs.
pub const SCHEMA: &str = "
    CREATE TABLE pair_a(worker INTEGER, seq INTEGER, filler BLOB, PRIMARY KEY(worker, seq)) WITHOUT ROWID;
    CREATE TABLE pair_b(id INTEGER PRIMARY KEY, worker INTEGER, seq INTEGER, filler BLOB);
    CREATE UNIQUE INDEX pair_b_seq ON pair_b(worker, seq);
    CREATE TABLE pair_totals(worker INTEGER PRIMARY KEY, total INTEGER NOT NULL);
";

/// A worker that commits pairs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pairs {
    /// Its number; no two at a time may share it.
    pub worker: i64,
    /// How each transaction begins.
    pub begin: Begin,
    /// Durability of its connection.
    pub synchronous: Synchronous,
    /// Stop after so many commits, if given.
    pub commits: Option<u64>,
    /// Bytes of filler in each row.
    pub filler_bytes: usize,
    /// Ask for a merge after every so many commits; never when 0.
    pub merge_every: u64,
    /// Close and reopen the connection after every so many commits; never when 0.
    pub reopen_every: u64,
    /// Pause between commits.
    pub pause: Duration,
}

impl Default for Pairs {
    fn default() -> Self {
        Self {
            worker: 1,
            begin: Begin::Concurrent,
            synchronous: Synchronous::Full,
            commits: None,
            filler_bytes: 100,
            merge_every: 0,
            reopen_every: 0,
            pause: Duration::ZERO,
        }
    }
}

/// The record of one acknowledged commit.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Acknowledged {
    /// Which worker.
    pub worker: i64,
    /// Its transaction's number.
    pub seq: i64,
    /// When COMMIT returned, in nanoseconds since boot.
    pub at_ns: u64,
}

impl Pairs {
    pub(crate) fn run(&self, job: &Job, reporter: &Reporter) -> anyhow::Result<Json> {
        let mut connection = self.connect(job)?;
        let mut seq = self.last_committed(&connection)?;
        let mut done = 0;
        while !reporter.should_stop() && self.commits.is_none_or(|limit| done < limit) {
            seq += 1;
            commit_pair(&connection, &job.subject, self, seq)?;
            done += 1;
            reporter.line(Acknowledged { worker: self.worker, seq, at_ns: monotonic_ns() });
            if self.merge_every > 0 && done % self.merge_every == 0 {
                connection.execute("PRAGMA wal_checkpoint")?;
            }
            if self.reopen_every > 0 && done % self.reopen_every == 0 {
                connection.close()?;
                connection = self.connect(job)?;
            }
            if !self.pause.is_zero() {
                std::thread::sleep(self.pause);
            }
        }
        connection.close()?;
        Ok(json!({ "commits": done }))
    }

    fn connect(&self, job: &Job) -> Result<Connection, SqlError> {
        let connection = job.subject.open(&job.database)?;
        connection.execute(&format!("PRAGMA synchronous={}", self.synchronous.number()))?;
        Ok(connection)
    }

    fn last_committed(&self, connection: &Connection) -> Result<i64, SqlError> {
        let worker = self.worker;
        connection.integer(&format!(
            "SELECT coalesce((SELECT total FROM pair_totals WHERE worker={worker}), 0)"
        ))
    }
}

fn commit_pair(
    connection: &Connection,
    subject: &Subject,
    pairs: &Pairs,
    seq: i64,
) -> Result<(), SqlError> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match try_pair(connection, subject, pairs, seq) {
            Ok(()) => return Ok(()),
            Err(error) => {
                if !connection.autocommit() {
                    connection.execute("ROLLBACK")?;
                }
                if !error.is_busy() || Instant::now() > deadline {
                    return Err(error);
                }
            }
        }
    }
}

fn try_pair(
    connection: &Connection,
    subject: &Subject,
    pairs: &Pairs,
    seq: i64,
) -> Result<(), SqlError> {
    let (worker, filler) = (pairs.worker, pairs.filler_bytes);
    connection.execute(subject.begin(pairs.begin))?;
    connection.execute(&format!(
        "INSERT INTO pair_a VALUES({worker}, {seq}, randomblob({filler}));
         INSERT INTO pair_b(worker, seq, filler) VALUES({worker}, {seq}, randomblob({filler}));
         INSERT INTO pair_totals VALUES({worker}, {seq}) ON CONFLICT DO UPDATE SET total=excluded.total;"
    ))?;
    connection.execute("COMMIT")
}

/// Checks the tables against the acknowledged commits of each worker; the error says what is wrong.
pub fn verify(connection: &Connection, acknowledged: &BTreeMap<i64, i64>) -> anyhow::Result<()> {
    use anyhow::ensure;
    let check = connection.query("PRAGMA integrity_check")?;
    ensure!(check == [vec!["ok".into()]], "integrity_check: {check:?}");
    let totals = connection.query("SELECT worker, total FROM pair_totals ORDER BY worker")?;
    let totals: BTreeMap<i64, i64> = totals
        .iter()
        .map(|row| (row[0].as_i64().unwrap_or(-1), row[1].as_i64().unwrap_or(-1)))
        .collect();
    for (worker, acknowledged) in acknowledged {
        let total = totals.get(worker).copied().unwrap_or(0);
        ensure!(
            total >= *acknowledged,
            "worker {worker}: commit {acknowledged} was acknowledged, but only {total} are there"
        );
        ensure!(
            total <= acknowledged + 1,
            "worker {worker}: {total} commits are there, but only {acknowledged} were acknowledged and one under way"
        );
    }
    for (worker, total) in &totals {
        for table in ["pair_a", "pair_b"] {
            let row = connection.query(&format!(
                "SELECT count(*), coalesce(min(seq),1), coalesce(max(seq),0) FROM {table} WHERE worker={worker}"
            ))?;
            let expected = [vec![(*total).into(), 1.into(), (*total).into()]];
            ensure!(row == expected, "{table} of worker {worker}: {row:?}, but total {total}");
        }
    }
    let strangers = connection.integer(
        "SELECT count(*) FROM pair_b WHERE NOT EXISTS
           (SELECT 1 FROM pair_a WHERE pair_a.worker=pair_b.worker AND pair_a.seq=pair_b.seq)",
    )?;
    ensure!(strangers == 0, "{strangers} rows have only half of their pair");
    Ok(())
}
