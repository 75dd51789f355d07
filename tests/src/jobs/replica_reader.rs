//! Random transactions on a replica, each written down as a part of the primary's history; now and then its process commits something on the
//! primary, waits for that on the replica, and reads there.

use super::history::Run;
use crate::isolation::history::{Status, TransactionName};
use crate::job::{Job, Reporter};
use crate::sqlite::{Connection, MISUSE, SqlError};
use anyhow::Context as _;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Ways to begin on a replica; an empty one is a statement of its own.
const BEGINS: [&str; 4] = ["BEGIN", "BEGIN CONCURRENT", "BEGIN IMMEDIATE", ""];
/// Ways to begin on the primary: with a ticket that the replica can tell of (docs/sql.md).
const BEGINS_ON_PRIMARY: [&str; 3] = ["BEGIN", "BEGIN CONCURRENT", "BEGIN IMMEDIATE"];
/// So often it writes on the primary, and waits for that: by then the others have read many times.
const WRITE_ONE_IN: u32 = 16;
/// Between two looks of one transaction, now and then; a follower commits meanwhile.
const PAUSE_MS: u64 = 40;
/// Between two transactions, at most.
const NAP_MS: u64 = 5;

/// A worker whose database is the replica.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplicaReader {
    /// Seed.
    pub seed: u64,
    /// Its number, which no other worker has.
    pub worker: u32,
    /// Keys are `1..=keys`.
    pub keys: i64,
    /// Read registers too.
    pub registers: bool,
    /// The primary.
    pub primary: PathBuf,
    /// How long to wait for a commit.
    pub patience: Duration,
    /// Stop after this time.
    pub time: Duration,
    /// Where the history is written.
    pub file: PathBuf,
}

/// What it came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Transactions that were read on the replica.
    pub reads: u64,
    /// Statements in them.
    pub statements: u64,
    /// Own commits that were waited for until they were there.
    pub waits: u64,
    /// Those that did not come in time, or whose session has ended.
    pub waits_in_vain: u64,
}

impl std::ops::AddAssign for Seen {
    fn add_assign(&mut self, more: Self) {
        self.reads += more.reads;
        self.statements += more.statements;
        self.waits += more.waits;
        self.waits_in_vain += more.waits_in_vain;
    }
}

impl ReplicaReader {
    pub(crate) fn run(&self, job: &Job, reporter: &Reporter) -> anyhow::Result<Json> {
        let mut file = File::create(&self.file)?;
        let mut random = StdRng::seed_from_u64(self.seed);
        let end = Instant::now() + self.time;
        let mut seen = Seen::default();
        let mut replica = job.subject.open(&job.database)?;
        for number in 1.. {
            if reporter.should_stop() || Instant::now() >= end {
                break;
            }
            let name = TransactionName { worker: self.worker, number };
            if random.random_range(0..WRITE_ONE_IN) == 0 {
                let written = self.write(job, name, &mut random, &mut file);
                if let Some(ticket) = written.with_context(|| format!("{name} on the primary"))? {
                    let patience = end.saturating_duration_since(Instant::now());
                    if wait(&replica, ticket, patience.min(self.patience))? {
                        seen.waits += 1;
                        let behind = TransactionName { number: number | BEHIND, ..name };
                        self.read(&replica, behind, Some(name), &mut random, &mut file, &mut seen)?;
                    } else {
                        seen.waits_in_vain += 1;
                    }
                }
            } else {
                self.read(&replica, name, None, &mut random, &mut file, &mut seen)?;
            }
            if random.random_range(0..40) == 0 {
                replica.close()?;
                replica = job.subject.open(&job.database)?;
            }
            std::thread::sleep(Duration::from_millis(random.random_range(0..NAP_MS)));
        }
        replica.close()?;
        Ok(serde_json::to_value(seen)?)
    }

    /// Reads in one transaction. Nothing on a replica is ever busy for a reader, and nothing fails.
    fn read(
        &self,
        replica: &Connection,
        name: TransactionName,
        waited_for: Option<TransactionName>,
        random: &mut StdRng,
        file: &mut File,
        seen: &mut Seen,
    ) -> anyhow::Result<()> {
        let mut run = Run::new(replica, name, self.keys);
        run.transaction.on_replica = true;
        run.transaction.waited_for = waited_for;
        let outcome = self.look(&mut run, random);
        let said = || format!("{name} on the replica: {}", run.transaction.statements.join("\n"));
        outcome.with_context(said)?;
        seen.reads += 1;
        seen.statements += run.transaction.statements.len() as u64;
        run.write_down(file, Status::Committed)?;
        Ok(())
    }

    fn look(&self, run: &mut Run<'_>, random: &mut StdRng) -> Result<(), SqlError> {
        let begin = BEGINS[random.random_range(0..BEGINS.len())];
        if begin.is_empty() {
            return run.random_read(random);
        }
        begin.clone_into(&mut run.transaction.begin);
        run.connection.execute(begin)?;
        for _ in 0..random.random_range(1..6) {
            if self.registers && random.random_range(0..4) == 0 {
                run.register_read(random)?;
            } else {
                run.random_read(random)?;
            }
            if random.random_range(0..4) == 0 {
                std::thread::sleep(Duration::from_millis(random.random_range(0..PAUSE_MS)));
            }
        }
        let end = if random.random_bool(0.5) { "COMMIT" } else { "ROLLBACK" };
        run.connection.execute(end)
    }

    /// A transaction on the primary, over a connection that is closed again: it keeps no session. Returns its ticket if it has changed something
    /// and is committed.
    fn write(
        &self,
        job: &Job,
        name: TransactionName,
        random: &mut StdRng,
        file: &mut File,
    ) -> anyhow::Result<Option<i64>> {
        let primary = job.subject.open(&self.primary)?;
        let mut run = Run::new(&primary, name, self.keys);
        run.has_registers = self.registers;
        let begin = BEGINS_ON_PRIMARY[random.random_range(0..BEGINS_ON_PRIMARY.len())];
        let outcome = run.perform(Some(begin), random, file);
        if let Err(error) = &outcome
            && !error.is_busy()
        {
            return Err(error.clone().into());
        }
        let is_committed = outcome.is_ok() && !run.given_up;
        let status = if is_committed { Status::Committed } else { Status::Aborted };
        run.conclude(&outcome, file, status)?;
        let ticket = match is_committed && run.has_written() {
            true => Some(primary.integer("SELECT plait_ticket()")?),
            false => None,
        };
        primary.close()?;
        Ok(ticket)
    }
}

/// Marks the number of what is read behind a wait for the transaction of that number.
const BEHIND: u32 = 1 << 31;

/// Waits for a commit of the primary; false if it is not there in time, or its session has ended.
pub fn wait(replica: &Connection, ticket: i64, patience: Duration) -> Result<bool, SqlError> {
    let sql = format!("SELECT plait_wait({ticket}, {})", patience.as_millis());
    match replica.integer(&sql) {
        Err(error) if error.code == MISUSE => Ok(false),
        answer => Ok(answer? == 1),
    }
}
