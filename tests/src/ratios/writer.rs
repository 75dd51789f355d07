//! The loops of writers: the same statements and the same path through the wrapper for both engines.

use super::case::{Load, Work};
use crate::sqlite::{Connection, Result, SqlError, Statement};
use crate::subject::Subject;
use hdrhistogram::Histogram;
use rand::rngs::StdRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant};

/// Rows of the tables that are selected from and updated, but for long runs.
pub const ROWS: i64 = 10_000;
/// Bytes of each value.
pub const VALUE_BYTES: usize = 400;
/// Rows of a bulk insert.
const BULK_ROWS: u64 = 1_000_000;
/// Rows of each of its transactions.
const BULK_TRANSACTION: u64 = 1000;
/// Reads that come before each write where there are many.
const READS_BEFORE_WRITE: i64 = 19;

/// Rows that a load inserts in all, in each transaction, and the bytes of their values.
#[must_use]
pub fn shape(load: &Load) -> (u64, u64, usize) {
    match load.work {
        Work::Values(bytes) => {
            let each = (1 << 20) / u64::from(bytes);
            (Load::BYTES_OF_VALUES / u64::from(bytes), each, bytes as usize)
        }
        _ => (BULK_ROWS, BULK_TRANSACTION, VALUE_BYTES),
    }
}

/// What one writer counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Count {
    /// Commits acknowledged in the measured time.
    pub measured: u64,
    /// Commits acknowledged in all, warm-up included.
    pub total: u64,
    /// SQLITE_BUSY that the caller saw and repeated.
    pub busy: u64,
    /// SQLITE_BUSY_SNAPSHOT that the caller saw and repeated.
    pub conflicts: u64,
    /// Median time of a transaction with its repetitions, in nanoseconds.
    pub median_ns: u64,
    /// Longest.
    pub max_ns: u64,
    /// Acknowledged operations of each kind, where there are several.
    pub kinds: Vec<u64>,
    /// Jobs taken from a queue.
    pub jobs: Vec<i64>,
    /// How long that took, in nanoseconds.
    pub jobs_ns: u64,
    /// The first tenth's time over the last tenth's.
    pub steady: f64,
}

impl Count {
    /// A transaction was refused with this, and will be repeated.
    pub(super) fn note_repeated(&mut self, error: &SqlError) {
        if error.is_conflict() {
            self.conflicts += 1;
        } else {
            self.busy += 1;
        }
    }
}

/// Settings as the engine reports them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// `sqlite3_libversion()`.
    pub version: String,
    /// `PRAGMA journal_mode`.
    pub journal_mode: String,
    /// `PRAGMA synchronous`.
    pub synchronous: i64,
    /// `PRAGMA page_size`.
    pub page_size: i64,
    /// `PRAGMA cache_size`.
    pub cache_size: i64,
}

impl Settings {
    /// Asks a connection.
    pub fn read(connection: &Connection) -> Result<Self> {
        Ok(Self {
            version: connection.library().version(),
            journal_mode: connection.text("PRAGMA journal_mode")?,
            synchronous: connection.integer("PRAGMA synchronous")?,
            page_size: connection.integer("PRAGMA page_size")?,
            cache_size: connection.integer("PRAGMA cache_size")?,
        })
    }
}

/// A connection with its statements, ready to write.
pub struct Writer {
    load: Load,
    connection: Connection,
    begin: Statement,
    commit: Statement,
    rollback: Statement,
    select: Statement,
    write: Statement,
    random: StdRng,
    value: Vec<u8>,
    inserted: i64,
    count: Count,
    times: Histogram<u64>,
}

impl Writer {
    /// Connects and prepares.
    pub fn connect(
        subject: &Subject,
        database: &Path,
        load: &Load,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let connection = subject.open(database)?;
        connection.busy_timeout(Duration::from_secs(120))?;
        connection.execute(&format!("PRAGMA synchronous={}", load.synchronous.number()))?;
        if let Some(size) = load.cache_size() {
            connection.execute(&format!("PRAGMA cache_size={size}"))?;
        }
        let settings = Settings::read(&connection)?;
        anyhow::ensure!(load.cache_size().is_none_or(|size| settings.cache_size == size));
        anyhow::ensure!(settings.journal_mode == subject.mode.name(), "{settings:?}");
        anyhow::ensure!(settings.synchronous == load.synchronous.number(), "{settings:?}");
        let write = match load.work {
            Work::Append => "INSERT INTO log(k, val) VALUES(?1, ?2)",
            Work::Bulk | Work::Values(_) => "INSERT INTO bulk VALUES(?1, ?2)",
            _ => "UPDATE t SET n=n+1, val=?2 WHERE id=?1",
        };
        let select = match load.work {
            Work::Append | Work::Bulk | Work::Values(_) => "SELECT NULL, NULL WHERE ?1",
            _ => "SELECT n, val FROM t WHERE id=?1",
        };
        Ok(Self {
            begin: connection.prepare(subject.begin(load.begin))?,
            commit: connection.prepare("COMMIT")?,
            rollback: connection.prepare("ROLLBACK")?,
            select: connection.prepare(select)?,
            write: connection.prepare(write)?,
            load: load.clone(),
            connection,
            random: StdRng::seed_from_u64(seed),
            value: vec![0; shape(load).2],
            inserted: 0,
            count: Count::default(),
            times: wait_times(),
        })
    }

    /// Settings of its connection.
    pub fn settings(&self) -> Result<Settings> {
        Settings::read(&self.connection)
    }

    /// Runs transactions until `end` says so; those that end while `measuring` holds are counted as measured.
    pub fn run(&mut self, ended: &dyn Fn() -> bool, measuring: &dyn Fn() -> bool) -> Result<Count> {
        while !ended() {
            let start = Instant::now();
            self.transaction()?;
            self.count.total += 1;
            if measuring() {
                self.count.measured += 1;
                self.times.saturating_record(nanoseconds(start.elapsed()));
            }
        }
        Ok(self.result())
    }

    /// Runs a transaction at each of these times, and measures how long it took from then on.
    pub fn run_due(
        &mut self,
        due_times: impl Iterator<Item = Instant>,
    ) -> Result<(Count, Histogram<u64>)> {
        self.count.measured = 0;
        self.times.reset();
        for due in due_times {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            self.transaction()?;
            self.count.total += 1;
            self.count.measured += 1;
            self.times.saturating_record(nanoseconds(due.elapsed()));
        }
        Ok((self.result(), self.times.clone()))
    }

    /// Inserts all rows of a bulk load.
    pub fn run_bulk(&mut self) -> Result<Count> {
        let (rows, each, _) = shape(&self.load);
        for _ in 0..rows / each {
            let start = Instant::now();
            self.transaction()?;
            self.times.saturating_record(nanoseconds(start.elapsed()));
            self.count.measured += each;
            self.count.total += each;
        }
        Ok(self.result())
    }

    fn result(&self) -> Count {
        let mut count = self.count.clone();
        count.median_ns = self.times.value_at_quantile(0.5);
        count.max_ns = self.times.max();
        count
    }

    /// One transaction, repeated as a whole until it is committed.
    fn transaction(&mut self) -> Result<()> {
        let (read, write) = match self.load.work {
            Work::HotRowInTransaction => (1, 1),
            work => {
                let rows = 1..=work.rows();
                (self.random.random_range(rows.clone()), self.random.random_range(rows))
            }
        };
        self.random.fill_bytes(&mut self.value);
        let inserted = self.inserted;
        loop {
            self.inserted = inserted;
            match self.attempt(read, write) {
                Ok(()) => return Ok(()),
                Err(error) if error.is_busy() => self.give_up(&error)?,
                Err(error) => return Err(error),
            }
        }
    }

    fn give_up(&mut self, error: &SqlError) -> Result<()> {
        self.count.note_repeated(error);
        if self.connection.autocommit() { Ok(()) } else { self.rollback.run() }
    }

    fn attempt(&mut self, read: i64, write: i64) -> Result<()> {
        match self.load.work {
            Work::HotRow => self.write_row(1),
            Work::Append => {
                self.begin.run()?;
                self.write_row(write)?;
                self.commit.run()
            }
            Work::Bulk | Work::Values(_) => {
                self.begin.run()?;
                for _ in 0..shape(&self.load).1 {
                    self.inserted += 1;
                    self.random.fill_bytes(&mut self.value[..32]);
                    self.write_row(self.inserted)?;
                }
                self.commit.run()
            }
            Work::MostlyReads => {
                for n in 0..READS_BEFORE_WRITE {
                    // Any row, of which `read` is the first.
                    self.read_row(1 + (read + n * 7919) % self.load.work.rows())?;
                }
                self.write_row(write)
            }
            _ => {
                self.begin.run()?;
                self.read_row(read)?;
                self.write_row(write)?;
                self.commit.run()
            }
        }
    }

    fn read_row(&mut self, key: i64) -> Result<()> {
        self.select.bind_i64(1, key)?;
        self.select.step()?;
        let found = self.select.column_bytes(1).len();
        self.select.reset();
        assert_eq!(found, VALUE_BYTES, "row {key} has its value");
        Ok(())
    }

    fn write_row(&mut self, key: i64) -> Result<()> {
        self.write.bind_i64(1, key)?;
        self.write.bind_blob(2, &self.value)?;
        self.write.run()
    }
}

/// Whoever does the same thing over and over.
pub trait Repeated {
    /// What it has done so far.
    fn count(&mut self) -> &mut Count;

    /// Does it once: its kind in [`Count::kinds`], where they are told apart.
    fn once(&mut self) -> Result<Option<usize>>;

    /// Goes on until `ended`; what ends while `measuring` holds is counted as measured.
    fn repeat(&mut self, ended: &dyn Fn() -> bool, measuring: &dyn Fn() -> bool) -> Result<Count> {
        let mut times = wait_times();
        while !ended() {
            let start = Instant::now();
            let kind = self.once()?;
            let count = self.count();
            if let Some(kind) = kind {
                count.kinds[kind] += 1;
            }
            count.total += 1;
            if measuring() {
                count.measured += 1;
                times.saturating_record(nanoseconds(start.elapsed()));
            }
        }
        let count = self.count();
        count.median_ns = times.value_at_quantile(0.5);
        count.max_ns = times.max();
        Ok(count.clone())
    }
}

/// A histogram of waits up to ten minutes.
#[must_use]
pub fn wait_times() -> Histogram<u64> {
    Histogram::new_with_max(600_000_000_000, 3).expect("these bounds are allowed")
}

/// A duration as a number of nanoseconds.
#[must_use]
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
