//! The loop of a worker that empties a queue: the oldest job by an index, deleted in the same transaction.

use super::case::{Load, Work};
use super::writer::{Count, Settings, nanoseconds, wait_times};
use crate::sqlite::{Connection, Result, SqlError, Statement, Step};
use crate::subject::Subject;
use std::path::Path;
use std::time::{Duration, Instant};

const OLDEST: &str = "SELECT id FROM job WHERE state='new' ORDER BY id LIMIT 1";

/// A connection with its statements, ready to take jobs.
pub struct Worker {
    takes_at_once: bool,
    connection: Connection,
    begin: Statement,
    commit: Statement,
    rollback: Statement,
    oldest: Statement,
    delete: Statement,
    delete_oldest: Statement,
    count: Count,
}

/// Makes the queue: jobs `1..=jobs`, all of them new.
pub fn fill(connection: &Connection, jobs: i64) -> Result<()> {
    connection.execute(&format!(
        "CREATE TABLE job(id INTEGER PRIMARY KEY, state TEXT NOT NULL, payload BLOB NOT NULL);
         CREATE INDEX job_state ON job(state, id);
         WITH RECURSIVE i(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM i WHERE x<{jobs})
         INSERT INTO job SELECT x, 'new', randomblob(20) FROM i"
    ))
}

impl Worker {
    /// Connects and prepares.
    pub fn connect(subject: &Subject, database: &Path, load: &Load) -> Result<Self> {
        let connection = subject.open(database)?;
        connection.busy_timeout(Duration::from_secs(120))?;
        connection.execute(&format!("PRAGMA synchronous={}", load.synchronous.number()))?;
        Ok(Self {
            takes_at_once: load.work == Work::QueueReturning,
            begin: connection.prepare(subject.begin(load.begin))?,
            commit: connection.prepare("COMMIT")?,
            rollback: connection.prepare("ROLLBACK")?,
            oldest: connection.prepare(OLDEST)?,
            delete: connection.prepare("DELETE FROM job WHERE id=?1")?,
            delete_oldest: connection
                .prepare(&format!("DELETE FROM job WHERE id=({OLDEST}) RETURNING id"))?,
            connection,
            count: Count::default(),
        })
    }

    /// Settings of its connection.
    pub fn settings(&self) -> Result<Settings> {
        Settings::read(&self.connection)
    }

    /// Takes jobs until there are none. All of it is measured.
    pub fn run(&mut self, _: &dyn Fn() -> bool, _: &dyn Fn() -> bool) -> Result<Count> {
        let (mut times, mut each) = (wait_times(), Vec::new());
        let begun = Instant::now();
        loop {
            let start = Instant::now();
            let Some(job) = self.take_job()? else { break };
            each.push(nanoseconds(start.elapsed()));
            self.count.jobs.push(job);
        }
        self.count.jobs_ns = nanoseconds(begun.elapsed());
        each.iter().for_each(|time| times.saturating_record(*time));
        let tenth = each.len() / 10;
        let first: u64 = each[..tenth].iter().sum();
        let last: u64 = each[each.len() - tenth..].iter().sum();
        Ok(Count {
            measured: each.len() as u64,
            total: each.len() as u64,
            median_ns: times.value_at_quantile(0.5),
            max_ns: times.max(),
            steady: first as f64 / last.max(1) as f64,
            ..self.count.clone()
        })
    }

    /// One job, repeated as a whole until its end is committed.
    fn take_job(&mut self) -> Result<Option<i64>> {
        loop {
            let attempt =
                if self.takes_at_once { id(&mut self.delete_oldest) } else { self.attempt() };
            match attempt {
                Err(error) if error.is_busy() => self.give_up(&error)?,
                other => return other,
            }
        }
    }

    fn attempt(&mut self) -> Result<Option<i64>> {
        self.begin.run()?;
        let job = id(&mut self.oldest)?;
        if let Some(job) = job {
            self.delete.bind_i64(1, job)?;
            self.delete.run()?;
        }
        self.commit.run()?;
        Ok(job)
    }

    fn give_up(&mut self, error: &SqlError) -> Result<()> {
        self.count.note_repeated(error);
        if self.connection.autocommit() { Ok(()) } else { self.rollback.run() }
    }
}

/// The number in the one row that a statement has, if it has one. The statement runs to its end.
fn id(statement: &mut Statement) -> Result<Option<i64>> {
    let mut found = None;
    let outcome = loop {
        match statement.step() {
            Ok(Step::Row) => found = Some(statement.column_i64(0)),
            Ok(Step::Done) => break Ok(found),
            Err(error) => break Err(error),
        }
    };
    statement.reset();
    outcome
}
