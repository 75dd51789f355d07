//! The job of one writer: transactions of one random select and one random update, until the time is up.
//!
//! Every statement is prepared once, BEGIN and COMMIT too. A transaction that is refused is rolled back. A program that
//! says BEGIN CONCURRENT runs it again with the same keys, and its wait goes on. In the others it has failed, as a request
//! of a web server would have, and the next one begins. Only what COMMIT has acknowledged counts.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use plait_client::CORRUPT;

use super::dice::Dice;
use super::plan::{BUSY_TIMEOUT, ROWS, Spec, VALUE_BYTES};
use crate::os::monotonic;
use crate::sqlite::{Connection, Library, OpenFlags, SqlError, Statement, ValueRef, answer};

/// When the writers start and stop, as time since boot.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Window {
    /// Nobody begins before.
    pub start: Duration,
    /// Nobody begins a transaction after; one that has begun is finished.
    pub end: Duration,
}

/// What a writer did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Transactions that COMMIT acknowledged.
    pub commits: u64,
    /// Those of them before the window closed.
    pub commits_in_time: u64,
    /// Times that a transaction was run again after a conflict.
    pub retries: u64,
    /// Transactions that ended with an error, which is "database is locked" in each case.
    pub failed: u64,
    /// Microseconds from BEGIN to the return of COMMIT, one per acknowledged transaction.
    pub waits_us: Vec<u32>,
    /// `PRAGMA journal_mode` of its connection.
    pub journal_mode: String,
    /// `PRAGMA synchronous` of its connection.
    pub synchronous: String,
}

/// Makes the database of a trial, at rest, in the mode of its engine.
pub fn create(library: Library, spec: &Spec) -> Result<(), SqlError> {
    let db = open(library, &spec.database, OpenFlags::ReadWriteCreate)?;
    db.execute("CREATE TABLE item(id INTEGER PRIMARY KEY, n INTEGER NOT NULL, v BLOB NOT NULL)")?;
    db.execute("BEGIN")?;
    let mut insert = db.prepare("INSERT INTO item(id, n, v) VALUES(?1, 0, ?2)")?;
    let mut dice = Dice::new(spec.seed, u64::MAX);
    let mut value = [0; VALUE_BYTES];
    for id in 1..=i64::from(ROWS) {
        dice.fill(&mut value);
        insert.run_with([ValueRef::Integer(id), ValueRef::Blob(&value)], |_| ())?;
    }
    db.execute("COMMIT")?;
    db.execute(&format!("PRAGMA journal_mode={}", spec.engine.journal_mode()))
}

fn open(library: Library, path: &Path, flags: OpenFlags) -> Result<Connection, SqlError> {
    let db = library.open_with(path, flags)?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    Ok(db)
}

/// A writer with its connection and statements, ready to start.
pub struct Writer {
    dice: Dice,
    begin: Statement,
    select: Statement,
    update: Statement,
    commit: Statement,
    rollback: Statement,
    /// What is written next.
    value: [u8; VALUE_BYTES],
    outcome: Outcome,
    retries: bool,
    /// Last, so that the statements go first.
    _db: Connection,
}

impl Writer {
    /// Opens the database of `spec` for writer number `index`.
    pub fn new(library: Library, spec: &Spec, index: u32) -> Result<Writer, SqlError> {
        let db = open(library, &spec.database, OpenFlags::ReadWrite)?;
        db.execute("PRAGMA synchronous=FULL")?;
        let outcome = Outcome {
            journal_mode: answer(&db, "PRAGMA journal_mode")?,
            synchronous: answer(&db, "PRAGMA synchronous")?,
            ..Outcome::default()
        };
        Ok(Writer {
            dice: Dice::new(spec.seed, u64::from(index)),
            begin: db.prepare(spec.engine.begin())?,
            select: db.prepare("SELECT v FROM item WHERE id = ?1")?,
            update: db.prepare("UPDATE item SET n = n + 1, v = ?2 WHERE id = ?1")?,
            commit: db.prepare("COMMIT")?,
            rollback: db.prepare("ROLLBACK")?,
            value: [0; VALUE_BYTES],
            outcome,
            retries: spec.engine.retries(),
            _db: db,
        })
    }

    /// Writes until the window closes.
    pub fn run(&mut self, window: Window) -> Result<Outcome, SqlError> {
        std::thread::sleep(window.start.saturating_sub(monotonic()));
        while monotonic() < window.end {
            let read = self.dice.key(ROWS);
            let written = self.dice.key(ROWS);
            self.dice.fill(&mut self.value);
            let begun = Instant::now();
            if !self.request(read, written)? {
                self.outcome.failed += 1;
                continue;
            }
            let us = begun.elapsed().as_micros();
            self.outcome.waits_us.push(u32::try_from(us).unwrap_or(u32::MAX));
            self.outcome.commits += 1;
            self.outcome.commits_in_time += u64::from(monotonic() <= window.end);
        }
        Ok(std::mem::take(&mut self.outcome))
    }

    /// Runs one transaction as the program of this trial does. True: it is committed.
    fn request(&mut self, read: i64, written: i64) -> Result<bool, SqlError> {
        while let Err(e) = self.transaction(read, written) {
            if !e.is_conflict() && !e.is_busy() {
                return Err(e);
            }
            // Fails where BEGIN was refused: then there is nothing to roll back.
            let _ = self.rollback.run();
            if !self.retries || !e.is_conflict() {
                return Ok(false);
            }
            self.outcome.retries += 1;
        }
        Ok(true)
    }

    fn transaction(&mut self, read: i64, written: i64) -> Result<(), SqlError> {
        self.begin.run()?;
        let mut len = 0;
        self.select.run_with([ValueRef::Integer(read)], |row| len = row.column_bytes(0).len())?;
        if len != VALUE_BYTES {
            let message = format!("a row of {len} bytes was read, where all have {VALUE_BYTES}");
            return Err(SqlError::new(CORRUPT, message, "SELECT"));
        }
        let values = [ValueRef::Integer(written), ValueRef::Blob(&self.value)];
        self.update.run_with(values, |_| ())?;
        self.commit.run()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::plan::{Engine, Place};

    fn spec(dir: &Path, engine: Engine) -> Spec {
        Spec {
            engine,
            place: Place::Threads,
            writers: 1,
            seconds: 0.05,
            seed: 1,
            library: "unused".into(),
            database: dir.join("a.db"),
        }
    }

    fn run_for_a_moment(writer: &mut Writer) -> Outcome {
        let start = monotonic();
        writer.run(Window { start, end: start + Duration::from_millis(50) }).unwrap()
    }

    #[test]
    fn a_writer_counts_what_it_has_committed() {
        let dir = tempfile::tempdir().unwrap();
        let spec = spec(dir.path(), Engine::Stock);
        let library = Library::linked();
        create(library, &spec).unwrap();
        let mut writer = Writer::new(library, &spec, 0).unwrap();
        let outcome = run_for_a_moment(&mut writer);
        assert_eq!((outcome.journal_mode.as_str(), outcome.synchronous.as_str()), ("wal", "2"));
        assert!(outcome.commits > 0);
        assert_eq!((outcome.failed, outcome.waits_us.len() as u64), (0, outcome.commits));
        drop(writer);
        let db = open(library, &spec.database, OpenFlags::ReadOnly).unwrap();
        assert_eq!(answer(&db, "SELECT sum(n) FROM item").unwrap(), outcome.commits.to_string());
    }

    #[test]
    fn a_plain_transaction_that_is_refused_has_failed() {
        let dir = tempfile::tempdir().unwrap();
        let spec = spec(dir.path(), Engine::StockDeferred);
        let library = Library::linked();
        create(library, &spec).unwrap();
        let mut writer = Writer::new(library, &spec, 0).unwrap();
        writer._db.busy_timeout(Duration::ZERO).unwrap();
        let other = open(library, &spec.database, OpenFlags::ReadWrite).unwrap();
        other.execute("BEGIN IMMEDIATE").unwrap();
        let outcome = run_for_a_moment(&mut writer);
        assert!(outcome.failed > 0);
        assert_eq!((outcome.commits, outcome.retries, outcome.waits_us.len()), (0, 0, 0));
    }
}
