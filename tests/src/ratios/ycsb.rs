//! Three of the Yahoo! Cloud Serving Benchmark's core workloads (B. Cooper et al., "Benchmarking cloud serving systems with
//! YCSB", SoCC 2010): A, half reads and half updates; B, 95 % reads; F, half reads and half read-modify-writes.
//!
//! One table of 100,000 rows with ten fields of 100 bytes, keys by Zipf's law with exponent 0.99. A read takes all
//! fields, an update gives one of them a new value; each is one statement in autocommit. A read-modify-write is a
//! transaction: it reads all fields and gives one a value that depends on what was read. It differs from the original in
//! that keys are numbers, and in a counter of changes in each row, which an update raises and a read-modify-write computes
//! from what it read: a lost change shows as a sum that is too small.

use super::case::Load;
use super::members::Together;
use super::writer::{Count, Repeated, Settings};
use super::zipf::Zipf;
use crate::sqlite::{Connection, Result, SqlError, Statement, Step};
use crate::subject::Subject;
use rand::rngs::StdRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// Rows of the table.
const ROWS: u64 = 100_000;
/// Fields of a row.
const FIELDS: usize = 10;
/// Bytes of a field.
const FIELD_BYTES: usize = 100;
/// The exponent of Zipf's law.
const THETA: f64 = 0.99;

/// Which workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ycsb {
    /// Half reads, half updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Half reads, half read-modify-writes.
    F,
}

impl Ycsb {
    /// Reads among a hundred operations.
    fn reads_percent(self) -> u32 {
        match self {
            Self::A | Self::F => 50,
            Self::B => 95,
        }
    }
}

/// Names of the fields, and of the row's counter.
fn columns() -> String {
    (0..FIELDS).map(|field| format!("f{field}, ")).chain(["n".to_owned()]).collect()
}

/// Makes the table.
pub fn fill(connection: &Connection) -> Result<()> {
    let blob = format!("randomblob({FIELD_BYTES}), ");
    connection.execute(&format!(
        "CREATE TABLE usertable(id INTEGER PRIMARY KEY, {});
         WITH RECURSIVE i(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM i WHERE x<{ROWS})
         INSERT INTO usertable SELECT x, {} 0 FROM i",
        columns(),
        blob.repeat(FIELDS)
    ))
}

/// Every row and field is there, and every acknowledged change counts once.
pub fn verify(connection: &Connection, together: &Together) -> anyhow::Result<()> {
    let changes: u64 = together.writers.iter().map(|count| count.kinds[CHANGES]).sum();
    let whole: Vec<String> =
        (0..FIELDS).map(|field| format!("length(f{field})={FIELD_BYTES}")).collect();
    let whole = whole.join(" AND ");
    let rows = connection.integer(&format!("SELECT count(*) FROM usertable WHERE {whole}"))?;
    anyhow::ensure!(rows.unsigned_abs() == ROWS, "{rows} rows are whole instead of {ROWS}");
    let sum = connection.integer("SELECT sum(n) FROM usertable")?.unsigned_abs();
    anyhow::ensure!(sum == changes, "the sum is {sum}, but {changes} changes were acknowledged");
    Ok(())
}

/// Kinds of operations in [`Count::kinds`].
const READS: usize = 0;
const CHANGES: usize = 1;

/// A connection with its statements, ready for requests.
pub struct Client {
    work: Ycsb,
    connection: Connection,
    begin: Statement,
    commit: Statement,
    rollback: Statement,
    read: Statement,
    /// One for each field; the counter is raised.
    updates: Vec<Statement>,
    /// One for each field; the counter is given.
    changes: Vec<Statement>,
    zipf: Zipf,
    random: StdRng,
    value: Vec<u8>,
    count: Count,
}

impl Client {
    /// Connects and prepares.
    pub fn connect(
        subject: &Subject,
        database: &Path,
        load: &Load,
        work: Ycsb,
        seed: u64,
    ) -> Result<Self> {
        let connection = subject.open(database)?;
        connection.busy_timeout(Duration::from_secs(120))?;
        connection.execute(&format!("PRAGMA synchronous={}", load.synchronous.number()))?;
        let of_each_field = |counter| {
            let sql = |field| format!("UPDATE usertable SET f{field}=?2, n={counter} WHERE id=?1");
            (0..FIELDS).map(|field| connection.prepare(&sql(field))).collect::<Result<Vec<_>>>()
        };
        Ok(Self {
            work,
            begin: connection.prepare(subject.begin(load.begin))?,
            commit: connection.prepare("COMMIT")?,
            rollback: connection.prepare("ROLLBACK")?,
            read: connection
                .prepare(&format!("SELECT {} FROM usertable WHERE id=?1", columns()))?,
            updates: of_each_field("n+1")?,
            changes: of_each_field("?3")?,
            connection,
            zipf: Zipf::new(ROWS, THETA),
            random: StdRng::seed_from_u64(seed),
            value: vec![0; FIELD_BYTES],
            count: Count { kinds: vec![0; 2], ..Count::default() },
        })
    }

    /// Settings of its connection.
    pub fn settings(&self) -> Result<Settings> {
        Settings::read(&self.connection)
    }

    /// One operation, repeated as a whole until it is done: its kind.
    fn operation(&mut self) -> Result<usize> {
        let key = self.zipf.key(&mut self.random);
        let reads = self.random.random_range(0..100) < self.work.reads_percent();
        let field = self.random.random_range(0..FIELDS);
        self.random.fill_bytes(&mut self.value);
        loop {
            let attempt = match (reads, self.work) {
                (true, _) => self.read(key, field).map(|_| READS),
                (false, Ycsb::F) => self.read_and_change(key, field).map(|()| CHANGES),
                (false, _) => self.update(key, field).map(|()| CHANGES),
            };
            match attempt {
                Err(error) if error.is_busy() => self.give_up(&error)?,
                other => return other,
            }
        }
    }

    fn give_up(&mut self, error: &SqlError) -> Result<()> {
        self.count.note_repeated(error);
        if self.connection.autocommit() { Ok(()) } else { self.rollback.run() }
    }

    /// Reads a row: the first byte of a field, and the counter.
    fn read(&mut self, key: i64, field: usize) -> Result<(u8, i64)> {
        self.read.bind_i64(1, key)?;
        let step = self.read.step();
        let found = step.map(|step| {
            assert_eq!(step, Step::Row, "row {key} is there");
            let column = |column| self.read.column_bytes(column as i32);
            let bytes: usize = (0..FIELDS).map(|field| column(field).len()).sum();
            assert_eq!(bytes, FIELDS * FIELD_BYTES, "row {key} has its fields");
            (column(field)[0], self.read.column_i64(FIELDS as i32))
        });
        self.read.reset();
        found
    }

    fn update(&mut self, key: i64, field: usize) -> Result<()> {
        let update = &mut self.updates[field];
        update.bind_i64(1, key)?;
        update.bind_blob(2, &self.value)?;
        update.run()
    }

    fn read_and_change(&mut self, key: i64, field: usize) -> Result<()> {
        self.begin.run()?;
        let (byte, n) = self.read(key, field)?;
        self.value[0] = byte.wrapping_add(1);
        let change = &mut self.changes[field];
        change.bind_i64(1, key)?;
        change.bind_blob(2, &self.value)?;
        change.bind_i64(3, n + 1)?;
        change.run()?;
        self.commit.run()
    }
}

impl Repeated for Client {
    fn count(&mut self) -> &mut Count {
        &mut self.count
    }

    fn once(&mut self) -> Result<Option<usize>> {
        self.operation().map(Some)
    }
}
