//! One engine, one load, a fresh directory: set up, run, verify.

use super::bare_log::{self, Appender};
use super::case::{Beside, LargeTable, Load, Work};
use super::idle::Footprint;
use super::keyed;
use super::members::{self, Together};
use super::paced::{self, Latency, Phases};
use super::passer::{self, Pass};
use super::remover;
use super::shipped::Sidecar;
use super::tpcc_tables;
use super::worker;
use super::writer::{Count, Settings, VALUE_BYTES, Writer, shape};
use super::written::bytes_written;
use super::ycsb;
use crate::place::Place;
use crate::sqlite::Connection;
use crate::subject::Subject;
use anyhow::{bail, ensure};
use plait_bare_log::{BareLog, ROOM_BYTES};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a trial counts what can be done, before it asks for half of it.
const CLOSED_LOOP: Duration = Duration::from_secs(4);

/// What to try.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trial {
    /// The engine.
    pub subject: Subject,
    /// The load.
    pub load: Load,
    /// An empty directory.
    pub directory: PathBuf,
    /// A database at rest with a million rows or more, for those that begin with one.
    pub million: Option<PathBuf>,
    /// Seed.
    pub seed: u64,
    /// The measured time.
    pub time: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Commits (reads for the reading loads, rows for a bulk load) per second.
    pub per_second: f64,
    /// Commits of writers per second where reads are what counts.
    pub writes_per_second: f64,
    /// Slowest writer's commits over the fastest's.
    pub fairness: f64,
    /// Conflicts over attempts.
    pub conflict_rate: f64,
    /// SQLITE_BUSY that callers saw.
    pub busy: u64,
    /// SQLITE_BUSY_SNAPSHOT that callers saw.
    pub conflicts: u64,
    /// Median wait of the median member, in nanoseconds.
    pub median_ns: u64,
    /// Longest wait of any member.
    pub max_ns: u64,
    /// Settings read back.
    pub settings: Settings,
    /// Time that closing the last connection took.
    pub close: Duration,
    /// The first tenth's time of a worker's jobs over that of its last tenth.
    pub steady: f64,
    /// Bytes that were sent to disk for each commit, those of the warm-up and of closing included.
    pub written_per_commit: f64,
    /// What lies beside the database, where that is what counts.
    pub footprint: Footprint,
    /// Waits from when transactions were due, where they are.
    pub latency: Latency,
    /// Processor time of the trial's process for each commit (or read), where its threads work for a time.
    pub cpu_each: Duration,
}

impl Trial {
    fn database(&self) -> PathBuf {
        self.directory.join("app.db")
    }

    /// Sets up, runs and verifies.
    pub fn run(&self) -> anyhow::Result<Outcome> {
        if self.load.work == Work::BareLog {
            return self.bare_log();
        }
        let mut keeper = Some(self.set_up()?);
        if self.load.beside == Beside::Nobody {
            keeper.take().map_or(Ok(()), Connection::close)?;
        }
        let sidecar = match &keeper {
            Some(keeper) if self.load.beside == Beside::Sidecar => {
                Some(Sidecar::start(&self.subject, &self.database(), keeper)?)
            }
            _ => None,
        };
        let written = bytes_written()?;
        let start = Instant::now();
        let (mut footprint, mut latency) = (Footprint::default(), Latency::default());
        let together = match self.load.work {
            work if work.is_bulk() => self.bulk()?,
            Work::Idle => self.idle(&mut footprint)?,
            Work::Paced => self.paced(&mut latency)?,
            _ => self.members()?,
        };
        let elapsed = start.elapsed();
        let keeper = keeper.map_or_else(|| self.subject.open(&self.database()), Ok)?;
        sidecar.map_or(Ok(()), Sidecar::end)?;
        self.verify(&keeper, &together)?;
        let close = Instant::now();
        keeper.close()?;
        let close = close.elapsed();
        let commits: u64 = together.writers.iter().map(|count| count.total).sum();
        let written_per_commit = (bytes_written()? - written) as f64 / commits.max(1) as f64;
        let outcome = self.outcome(&together, elapsed, close);
        Ok(Outcome { footprint, latency, written_per_commit, ..outcome })
    }

    /// The same for a log, which is no database.
    fn bare_log(&self) -> anyhow::Result<Outcome> {
        let path = self.directory.join("log");
        let log = Arc::new(BareLog::create(&path, ROOM_BYTES)?);
        let writer = |number: u32| {
            let seed = self.seed.wrapping_mul(1009).wrapping_add(number.into());
            Appender::new(log.clone(), number, seed)
        };
        let writers = (0..self.load.writers).map(writer).collect();
        let together = members::append_in_threads(writers, self.time)?;
        bare_log::verify(&log, &path, &together.writers)?;
        Ok(self.outcome(&together, self.time, Duration::ZERO))
    }

    fn set_up(&self) -> anyhow::Result<Connection> {
        if self.load.work.begins_with_million() {
            let million = self.million.as_ref().expect("reads are given their rows");
            std::fs::copy(million, self.database())?;
            // So that writing it back does not go on beside the trial.
            File::open(self.database())?.sync_all()?;
        }
        let connection = self.subject.open(&self.database())?;
        connection.execute("PRAGMA page_size=4096")?;
        self.subject.convert(&connection)?;
        match self.load.work {
            Work::Read
            | Work::ReadMapped
            | Work::Long(_)
            | Work::Paced
            | Work::Passes(Pass::Million, _) => {}
            Work::Passes(_, percent) => {
                connection.execute("PRAGMA synchronous=NORMAL")?;
                passer::fill(&self.subject, &self.database(), &connection, percent)?;
                return Ok(connection);
            }
            Work::Keyed(work) => {
                connection.execute("PRAGMA synchronous=NORMAL")?;
                keyed::fill(&self.subject, &self.database(), &connection, work)?;
                return Ok(connection);
            }
            Work::Remove => remover::fill(&connection)?,
            Work::Ycsb(_) => ycsb::fill(&connection)?,
            Work::Tpcc => tpcc_tables::fill(&connection)?,
            Work::Append => connection.execute(
                "CREATE TABLE log(id INTEGER PRIMARY KEY, k INTEGER, val BLOB); CREATE INDEX log_k ON log(k)",
            )?,
            Work::Bulk | Work::Values(_) => {
                connection.execute("CREATE TABLE bulk(id INTEGER PRIMARY KEY, val BLOB)")?;
            }
            Work::BareLog => bail!("a bare log is no database"),
            Work::Queue | Work::QueueReturning => worker::fill(&connection, self.load.jobs())?,
            Work::Visit(0) => fill(&connection)?,
            Work::Visit(_) | Work::Make(_) | Work::Idle => {
                connection.execute("CREATE TABLE visit(id INTEGER PRIMARY KEY, val BLOB)")?;
            }
            Work::SelectUpdate
            | Work::HotRow
            | Work::HotRowInTransaction
            | Work::ReadBesideWriters
            | Work::MostlyReads => fill(&connection)?,
        }
        connection.execute("PRAGMA wal_checkpoint")?;
        if matches!(self.load.work, Work::Visit(_)) {
            connection.execute("CREATE TABLE other(id INTEGER PRIMARY KEY)")?;
        }
        if self.load.beside == Beside::Session {
            // Who has been alone joins when it finds somebody there.
            let second = self.subject.open(&self.database())?;
            second.execute("INSERT INTO other VALUES(1)")?;
            connection.execute("INSERT INTO other VALUES(2)")?;
            second.close()?;
        }
        if matches!(self.load.work, Work::Visit(_)) && self.load.beside == Beside::Idle {
            // Who has written so much may be a member of a session.
            connection.close()?;
            let idle = self.subject.open(&self.database())?;
            idle.execute("INSERT INTO other VALUES(3)")?;
            return Ok(idle);
        }
        Ok(connection)
    }

    fn members(&self) -> anyhow::Result<Together> {
        let members =
            members::of(&self.subject, &self.database(), &self.load, self.seed, self.time);
        match self.load.place {
            Place::Threads => members::in_threads(members),
            Place::Processes => members::in_processes(members),
        }
    }

    fn bulk(&self) -> anyhow::Result<Together> {
        let mut writer = Writer::connect(&self.subject, &self.database(), &self.load, self.seed)?;
        let count = writer.run_bulk()?;
        let settings = writer.settings()?;
        Ok(Together { writers: vec![count], readers: Vec::new(), settings, cpu: Duration::ZERO })
    }

    fn paced(&self, latency: &mut Latency) -> anyhow::Result<Together> {
        let members =
            members::of(&self.subject, &self.database(), &self.load, self.seed, self.time);
        let warm_up = self.load.work.warm_up();
        let phases = Phases { warm_up, closed: CLOSED_LOOP, open: self.time };
        let (together, of_all) = paced::run(&members, phases)?;
        *latency = of_all;
        Ok(together)
    }

    /// Two connections write a row each and stay open while their files are looked at.
    fn idle(&self, footprint: &mut Footprint) -> anyhow::Result<Together> {
        let connections =
            [self.subject.open(&self.database())?, self.subject.open(&self.database())?];
        for connection in &connections {
            connection.execute("INSERT INTO visit(val) VALUES(randomblob(400))")?;
        }
        *footprint = Footprint::of(&self.database())?;
        let settings = Settings::read(&connections[0])?;
        let count = Count { total: 2, measured: 2, ..Count::default() };
        Ok(Together { writers: vec![count], readers: Vec::new(), settings, cpu: Duration::ZERO })
    }

    /// Rows and counters must say what was acknowledged: a lost or doubled update, or a lost row, fails the trial.
    fn verify(&self, connection: &Connection, together: &Together) -> anyhow::Result<()> {
        let commits: u64 = together.writers.iter().map(|count| count.total).sum();
        let (rows, sum, expected_rows) = match self.load.work {
            Work::Read | Work::ReadMapped | Work::Passes(..) | Work::Visit(0) | Work::Make(_) => {
                return Ok(());
            }
            Work::Remove => {
                ("SELECT count(*) FROM removed", "SELECT count(val) FROM removed", commits)
            }
            Work::Queue | Work::QueueReturning => return self.verify_jobs(connection, together),
            Work::Ycsb(_) => return ycsb::verify(connection, together),
            Work::Tpcc => return tpcc_tables::verify(connection, together),
            Work::Keyed(work) => return keyed::verify(connection, work, commits),
            Work::Visit(rows) => {
                let rows = commits * u64::from(rows);
                let (found, last) = (
                    connection.integer("SELECT count(*) FROM visit")?,
                    connection.integer("SELECT max(id) FROM visit")?,
                );
                ensure!(found.unsigned_abs() == rows, "{found} rows, {rows} acknowledged");
                ensure!(last >= found, "{found} rows cannot have {last} as their last");
                return Ok(());
            }
            Work::Append => ("SELECT count(*) FROM log", "SELECT count(k) FROM log", commits),
            Work::Idle => ("SELECT count(*) FROM visit", "SELECT count(val) FROM visit", commits),
            work if work.is_bulk() => {
                let rows = shape(&self.load).0;
                ("SELECT count(*) FROM bulk", "SELECT max(id) FROM bulk", rows)
            }
            work => {
                let rows = work.rows().unsigned_abs();
                ("SELECT count(*) FROM t", "SELECT sum(n) FROM t", rows)
            }
        };
        let (rows, sum) = (connection.integer(rows)?, connection.integer(sum)?);
        ensure!(rows.unsigned_abs() == expected_rows, "{rows} rows instead of {expected_rows}");
        ensure!(sum.unsigned_abs() == commits, "the sum is {sum}, but {commits} were acknowledged");
        let is_updated = matches!(
            self.load.work,
            Work::SelectUpdate
                | Work::Long(_)
                | Work::Paced
                | Work::HotRow
                | Work::HotRowInTransaction
                | Work::ReadBesideWriters
        );
        if is_updated {
            let short = connection
                .integer(&format!("SELECT count(*) FROM t WHERE length(val)<>{VALUE_BYTES}"))?;
            ensure!(short == 0, "{short} rows have a value of another length");
        }
        Ok(())
    }

    /// Every job was taken, by one worker, once, and none is left.
    fn verify_jobs(&self, connection: &Connection, together: &Together) -> anyhow::Result<()> {
        let left = connection.integer("SELECT count(*) FROM job")?;
        ensure!(left == 0, "{left} jobs are left");
        let mut taken: Vec<i64> =
            together.writers.iter().flat_map(|count| &count.jobs).copied().collect();
        taken.sort_unstable();
        for pair in taken.windows(2) {
            ensure!(pair[0] != pair[1], "job {} was taken twice", pair[0]);
        }
        let jobs = self.load.jobs();
        ensure!(
            taken.iter().copied().eq(1..=jobs),
            "{} jobs were taken of {jobs}: some are lost",
            taken.len()
        );
        let check = connection.text("PRAGMA integrity_check")?;
        ensure!(check == "ok", "{check}");
        Ok(())
    }

    fn outcome(&self, together: &Together, elapsed: Duration, close: Duration) -> Outcome {
        let sum =
            |counts: &[Count], field: fn(&Count) -> u64| counts.iter().map(field).sum::<u64>();
        let jobs_ns = together.writers.iter().map(|count| count.jobs_ns).max().unwrap_or(0);
        let seconds = match self.load.work {
            work if work.is_bulk() || work == Work::Idle => elapsed,
            Work::Queue | Work::QueueReturning | Work::Remove => Duration::from_nanos(jobs_ns),
            _ => self.time,
        }
        .as_secs_f64();
        let writes = sum(&together.writers, |count| count.measured);
        let reads = sum(&together.readers, |count| count.measured);
        let counted =
            if together.readers.is_empty() { &together.writers } else { &together.readers };
        let (busy, conflicts) = (
            sum(&together.writers, |count| count.busy),
            sum(&together.writers, |count| count.conflicts),
        );
        let attempts = sum(&together.writers, |count| count.total) + conflicts;
        let fastest = counted.iter().map(|count| count.measured).max().unwrap_or(0);
        let slowest = counted.iter().map(|count| count.measured).min().unwrap_or(0);
        let mut medians: Vec<u64> = counted.iter().map(|count| count.median_ns).collect();
        medians.sort_unstable();
        let measured = if together.readers.is_empty() { writes } else { reads };
        Outcome {
            per_second: measured as f64 / seconds,
            writes_per_second: writes as f64 / seconds,
            fairness: slowest as f64 / fastest.max(1) as f64,
            conflict_rate: conflicts as f64 / attempts.max(1) as f64,
            busy,
            conflicts,
            median_ns: medians.get(medians.len() / 2).copied().unwrap_or(0),
            max_ns: counted.iter().map(|count| count.max_ns).max().unwrap_or(0),
            settings: together.settings.clone(),
            close,
            written_per_commit: 0.0,
            steady: together.writers.first().map_or(0.0, |count| count.steady),
            footprint: Footprint::default(),
            latency: Latency::default(),
            cpu_each: together.cpu.div_f64(measured.max(1) as f64),
        }
    }
}

/// Makes the table of [`Work::SelectUpdate`].
pub(super) fn fill(connection: &Connection) -> anyhow::Result<()> {
    fill_rows(connection, Work::SelectUpdate.rows())
}

fn fill_rows(connection: &Connection, rows: i64) -> anyhow::Result<()> {
    connection.execute(&format!(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER NOT NULL, val BLOB NOT NULL);
         WITH RECURSIVE i(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM i WHERE x<{rows})
         INSERT INTO t SELECT x, 0, randomblob({VALUE_BYTES}) FROM i"
    ))?;
    Ok(())
}

/// Makes a database with a large table, at rest, with stock SQLite.
pub fn make_large(stock: &Subject, path: &Path, table: LargeTable) -> anyhow::Result<()> {
    let connection = stock.open(path)?;
    // No journal: in a WAL every page would be written twice.
    connection.execute("PRAGMA page_size=4096; PRAGMA journal_mode=off; PRAGMA synchronous=OFF")?;
    match table {
        LargeTable::Updated(_) => fill_rows(&connection, table.rows())?,
        LargeTable::Read => connection.execute(&format!(
            "CREATE TABLE million(id INTEGER PRIMARY KEY, val BLOB NOT NULL);
             WITH RECURSIVE i(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM i WHERE x<{})
             INSERT INTO million SELECT x, randomblob({VALUE_BYTES}) FROM i;",
            table.rows()
        ))?,
    }
    connection.execute("PRAGMA journal_mode=wal")?;
    Ok(connection.close()?)
}

#[cfg(test)]
mod tests {
    use super::super::case::{Load, Work, own_best_load};
    use super::super::ycsb::Ycsb;
    use super::{Together, Trial};
    use crate::sqlite::Connection;
    use crate::subject::Subject;
    use std::time::Duration;

    /// A trial that was run, and what its members did. The directory goes with the first.
    fn tried(load: Load) -> (tempfile::TempDir, Trial, Connection, Together) {
        let directory = tempfile::tempdir().expect("a directory");
        let trial = Trial {
            subject: Subject::stock(),
            load,
            directory: directory.path().to_owned(),
            million: None,
            seed: 1,
            time: Duration::from_millis(50),
        };
        let keeper = trial.set_up().expect("it sets up");
        let together = trial.members().expect("it runs");
        trial.verify(&keeper, &together).expect("nothing was lost");
        (directory, trial, keeper, together)
    }

    #[test]
    fn a_lost_update_fails_the_trial() {
        let (_directory, trial, keeper, together) = tried(own_best_load(3));
        keeper.execute("UPDATE t SET n=n-1 WHERE id=(SELECT id FROM t WHERE n>0)").expect("a loss");
        let error = trial.verify(&keeper, &together).expect_err("an update is lost").to_string();
        assert!(error.contains("acknowledged"), "{error}");
    }

    #[test]
    fn a_job_that_is_taken_twice_or_by_nobody_fails_the_trial() {
        let (_directory, trial, keeper, mut together) =
            tried(Load { work: Work::Queue, ..own_best_load(1) });
        let jobs = &mut together.writers[0].jobs;
        let (first, last) = (jobs[0], jobs.pop().expect("there were jobs"));
        let error = trial.verify(&keeper, &together).expect_err("one is lost").to_string();
        assert!(error.contains("lost"), "{error}");
        together.writers[0].jobs.extend([last, first]);
        let error = trial.verify(&keeper, &together).expect_err("one is doubled").to_string();
        assert!(error.contains("twice"), "{error}");
        together.writers[0].jobs.pop();
        keeper.execute("INSERT INTO job VALUES(1, 'new', x'')").expect("it comes back");
        let error = trial.verify(&keeper, &together).expect_err("one is left").to_string();
        assert!(error.contains("left"), "{error}");
    }

    #[test]
    fn a_row_of_a_visit_that_is_not_there_fails_the_trial() {
        let (_directory, trial, keeper, together) =
            tried(Load { work: Work::Visit(2), ..own_best_load(2) });
        keeper.execute("DELETE FROM visit WHERE id=1").expect("a loss");
        trial.verify(&keeper, &together).expect_err("a row is lost");
    }

    #[test]
    fn a_lost_change_of_a_mixed_load_fails_the_trial() {
        let (_directory, trial, keeper, together) =
            tried(Load { work: Work::Ycsb(Ycsb::F), ..own_best_load(3) });
        let lose = "UPDATE usertable SET n=n-1 WHERE id=(SELECT id FROM usertable WHERE n>0)";
        keeper.execute(lose).expect("a loss");
        let error = trial.verify(&keeper, &together).expect_err("a change is lost").to_string();
        assert!(error.contains("acknowledged"), "{error}");
    }

    #[test]
    fn a_wholesaler_whose_books_do_not_agree_fails_the_trial() {
        let (_directory, trial, keeper, together) =
            tried(Load { work: Work::Tpcc, ..own_best_load(3) });
        for (change, says) in [
            ("UPDATE district SET ytd=ytd+1 WHERE w=3 AND d=4", "condition 1"),
            ("DELETE FROM history WHERE id=1", "condition 1"),
            ("UPDATE district SET next_o=next_o+1 WHERE w=3 AND d=4", "condition 2"),
            ("DELETE FROM order_line WHERE w=3 AND d=4 AND o=5 AND line=1", "condition 4"),
            ("UPDATE orders SET carrier=NULL WHERE w=3 AND d=4 AND o=5", "condition 5"),
        ] {
            keeper.execute(&format!("BEGIN; {change}")).expect("a change");
            let error = trial.verify(&keeper, &together).expect_err(change).to_string();
            assert!(error.contains(says), "{change}: {error}");
            keeper.execute("ROLLBACK").expect("it is undone");
        }
    }

    #[test]
    fn a_lost_row_fails_the_trial() {
        let (_directory, trial, keeper, together) =
            tried(Load { work: Work::Append, ..own_best_load(2) });
        keeper.execute("DELETE FROM log WHERE id=1").expect("a loss");
        trial.verify(&keeper, &together).expect_err("a row is lost");
    }
}
