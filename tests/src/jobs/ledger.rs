//! Transfers between accounts, numbered and entered in a book: what any crash leaves behind can be audited.
//!
//! Entry `n` of worker `w` is one transaction. Triggers move its amount and advance its worker's total, so that even a single
//! statement must happen in all its parts or not at all. [`crate::crash::audit`] holds the book against the balances.
//! In an ordered book each entry also takes the next tick of one clock: a surviving prefix of the order of commits
//! is then a run of ticks without a gap.

use crate::job::{Job, Reporter};
use crate::os::monotonic_ns;
use crate::sqlite::{Connection, SqlError};
use crate::subject::{Begin, Synchronous};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How many accounts there are.
pub const ACCOUNTS: i64 = 40;
/// What each holds at first.
pub const BALANCE: i64 = 1000;

/// Rows that an entry made in bulk has beside it.
pub const ATTACHMENTS: i64 = 400;

/// The tables; `ordered`: every entry takes a tick of one clock.
#[must_use]
pub fn schema(ordered: bool) -> String {
    let tick = if ordered {
        "UPDATE clock SET tick=tick+1; UPDATE entry SET tick=(SELECT tick FROM clock) WHERE id=new.id;"
    } else {
        ""
    };
    format!(
        "CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<{ACCOUNTS}) INSERT INTO account SELECT i, {BALANCE} FROM n;
         CREATE TABLE entry(id INTEGER PRIMARY KEY, worker INTEGER NOT NULL, seq INTEGER NOT NULL, source INTEGER, target INTEGER,
           amount INTEGER, tick INTEGER, filler BLOB, UNIQUE(worker, seq));
         CREATE INDEX entry_target ON entry(target);
         CREATE TABLE total(worker INTEGER PRIMARY KEY, entries INTEGER NOT NULL) WITHOUT ROWID;
         CREATE TABLE clock(tick INTEGER NOT NULL); INSERT INTO clock VALUES(0);
         CREATE TABLE attachment(worker, seq, n, PRIMARY KEY(worker, seq, n)) WITHOUT ROWID;
         CREATE INDEX attachment_n ON attachment(n);
         CREATE TRIGGER post AFTER INSERT ON entry BEGIN
           UPDATE account SET balance=balance-new.amount WHERE id=new.source;
           UPDATE account SET balance=balance+new.amount WHERE id=new.target;
           INSERT INTO total VALUES(new.worker, 1) ON CONFLICT DO UPDATE SET entries=entries+1;
           {tick}
         END;"
    )
}

/// How an entry is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A single statement.
    Autocommit,
    /// A transaction that begins in this way.
    Begin(Begin),
    /// A transaction that also creates or drops a table.
    Ddl,
    /// A transaction that also writes [`ATTACHMENTS`] rows, enough to be a bulk load.
    Bulk,
}

/// A worker that keeps the book.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ledger {
    /// Its number; no two at a time may share it.
    pub worker: i64,
    /// Seed of its choices.
    pub seed: u64,
    /// Ways of making entries, to choose from.
    pub kinds: Vec<Kind>,
    /// Durability.
    pub synchronous: Synchronous,
    /// Stop after so many entries, if given.
    pub commits: Option<u64>,
    /// Bytes of filler in each entry.
    pub filler_bytes: usize,
    /// Ask for a merge after every so many entries; never when 0.
    pub merge_every: u64,
    /// By a checkpoint that empties the WAL, behind which the fence is lowered.
    pub truncates: bool,
    /// Close and reopen after every so many entries; never when 0.
    pub reopen_every: u64,
    /// Leave concurrent mode and come back after every so many entries; never when 0.
    pub convert_every: u64,
    /// Switch concurrent mode on when opening.
    pub convert: bool,
    /// Pause between entries.
    pub pause: Duration,
    /// After opening and reading, wait until this file is there.
    pub gate: Option<PathBuf>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            worker: 1,
            seed: 1,
            kinds: vec![
                Kind::Autocommit,
                Kind::Begin(Begin::Deferred),
                Kind::Begin(Begin::Immediate),
                Kind::Begin(Begin::Concurrent),
            ],
            synchronous: Synchronous::Full,
            commits: None,
            filler_bytes: 60,
            merge_every: 0,
            truncates: false,
            reopen_every: 0,
            convert_every: 0,
            convert: false,
            pause: Duration::ZERO,
            gate: None,
        }
    }
}

/// What a bookkeeper reports.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Line {
    /// The database is open and has been read.
    Attached,
    /// Entries of this worker that were there when it opened.
    Found {
        /// Which worker.
        worker: i64,
        /// How many.
        seq: i64,
    },
    /// The commit of this entry was acknowledged.
    Committed {
        /// Which worker.
        worker: i64,
        /// Its number.
        seq: i64,
        /// When the commit was asked for the last time, in nanoseconds since boot.
        from_ns: u64,
    },
}

/// Several bookkeepers in threads of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Crew(pub Vec<Ledger>);

impl Crew {
    pub(crate) fn run(&self, job: &Job, reporter: &Reporter) -> anyhow::Result<Json> {
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                self.0.iter().map(|ledger| scope.spawn(|| ledger.run(job, reporter))).collect();
            let results = threads.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|_| anyhow::bail!("a thread of the crew panicked"))
            });
            results.collect::<anyhow::Result<Vec<Json>>>().map(Json::from)
        })
    }
}

impl Ledger {
    pub(crate) fn run(&self, job: &Job, reporter: &Reporter) -> anyhow::Result<Json> {
        let mut random = StdRng::seed_from_u64(self.seed);
        let mut connection = self.connect(job)?;
        let mut seq = self.found(&connection)?;
        reporter.line(Line::Found { worker: self.worker, seq });
        reporter.line(Line::Attached);
        while self.gate.as_ref().is_some_and(|gate| !gate.exists()) && !reporter.should_stop() {
            std::thread::sleep(Duration::from_micros(500));
        }
        let mut done = 0;
        while !reporter.should_stop() && self.commits.is_none_or(|limit| done < limit) {
            seq += 1;
            let from_ns = self.enter(&connection, job, seq, &mut random)?;
            done += 1;
            reporter.line(Line::Committed { worker: self.worker, seq, from_ns });
            if due(self.merge_every, done) {
                let mode = if self.truncates { "TRUNCATE" } else { "PASSIVE" };
                connection.execute(&format!("PRAGMA wal_checkpoint({mode})"))?;
            }
            if due(self.convert_every, done) {
                persist(|| connection.text("PRAGMA journal_mode=delete").map(drop))?;
                persist(|| job.subject.convert(&connection))?;
            }
            if due(self.reopen_every, done) {
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

    /// Entries of this worker that count. Asked as a writer: what a killed predecessor had under way may be completed
    /// on its behalf until the next writer begins. One that waits at a gate must not write yet, and has no predecessor.
    fn found(&self, connection: &Connection) -> Result<i64, SqlError> {
        let begin = if self.gate.is_none() { "BEGIN IMMEDIATE" } else { "BEGIN" };
        persist(|| connection.execute(begin))?;
        let entries = connection.integer(&format!(
            "SELECT coalesce((SELECT entries FROM total WHERE worker={}), 0)",
            self.worker
        ))?;
        connection.execute("COMMIT")?;
        Ok(entries)
    }

    fn connect(&self, job: &Job) -> Result<Connection, SqlError> {
        let connection = job.subject.open(&job.database)?;
        connection.execute(&format!("PRAGMA synchronous={}", self.synchronous.number()))?;
        if self.convert {
            persist(|| job.subject.convert(&connection))?;
        }
        Ok(connection)
    }

    /// Makes one entry, however often it takes; returns when the commit that succeeded was asked for.
    fn enter(
        &self,
        connection: &Connection,
        job: &Job,
        seq: i64,
        random: &mut StdRng,
    ) -> Result<u64, SqlError> {
        let kind = self.kinds[random.random_range(0..self.kinds.len())];
        let source = random.random_range(1..=ACCOUNTS);
        let target = random.random_range(1..=ACCOUNTS);
        let (worker, amount, filler) =
            (self.worker, random.random_range(1..100), self.filler_bytes);
        let insert = format!(
            "INSERT INTO entry(worker, seq, source, target, amount, filler)
             VALUES({worker}, {seq}, {source}, {target}, {amount}, randomblob({filler}))"
        );
        let mut from_ns = 0;
        persist(|| {
            from_ns = monotonic_ns();
            let outcome = match kind {
                Kind::Autocommit => connection.execute(&insert),
                Kind::Begin(begin) => {
                    connection.execute(&format!("{}; {insert}; COMMIT", job.subject.begin(begin)))
                }
                Kind::Bulk => connection.execute(&format!(
                    "BEGIN IMMEDIATE; {insert};
                     WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<{ATTACHMENTS})
                     INSERT INTO attachment SELECT {worker}, {seq}, i FROM n; COMMIT"
                )),
                Kind::Ddl if seq % 2 == 0 => connection.execute(&format!(
                    "BEGIN; DROP TABLE IF EXISTS side_{worker}; {insert}; COMMIT"
                )),
                Kind::Ddl => connection.execute(&format!(
                    "BEGIN; CREATE TABLE IF NOT EXISTS side_{worker}(a PRIMARY KEY);
                     INSERT OR REPLACE INTO side_{worker} VALUES({seq}); {insert}; COMMIT"
                )),
            };
            if outcome.is_err() && !connection.autocommit() {
                connection.execute("ROLLBACK")?;
            }
            outcome
        })?;
        Ok(from_ns)
    }
}

fn due(every: u64, done: u64) -> bool {
    every > 0 && done.is_multiple_of(every)
}

/// Repeats while the answer is BUSY, for a minute.
fn persist<T>(mut attempt: impl FnMut() -> Result<T, SqlError>) -> Result<T, SqlError> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match attempt() {
            Err(error) if error.is_busy() && Instant::now() < deadline => {}
            other => return other,
        }
    }
}
