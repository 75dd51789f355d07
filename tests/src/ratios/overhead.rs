//! What the spliced library costs on SQLite's own path: both libraries in one process, in alternating slices.
//!
//! Slices are short and their order alternates, so that a change of the machine's mood hits both alike. They are counted
//! in processor time of the thread: what other programs and the disk take is not the library's cost. The pair of
//! databases is made anew several times, in either order, because where their memory and pages lie matters by a few
//! percent. The ratio is the median over all pairs of neighbouring slices.

use super::writer::VALUE_BYTES;
use crate::os::thread_cpu_time;
use crate::sqlite::{Connection, Result, Statement};
use crate::subject::Subject;
use rand::rngs::StdRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant};

const ROWS: i64 = 10_000;
const SLICE: Duration = Duration::from_millis(40);

/// A prepared loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Loop {
    /// Selects by random key.
    Select,
    /// Inserts of consecutive keys, a thousand in a transaction.
    Insert,
    /// Updates by random key, a thousand in a transaction.
    Update,
}

impl Loop {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Select, Self::Insert, Self::Update];

    fn sql(self) -> &'static str {
        match self {
            Self::Select => "SELECT val FROM t WHERE id=?1 AND ?2 IS NOT NULL",
            Self::Insert => "INSERT INTO grow VALUES(?1, ?2)",
            Self::Update => "UPDATE t SET val=?2 WHERE id=?1",
        }
    }
}

/// Operations per second of either library, and the ratio of the library under test to stock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Overhead {
    /// Stock.
    pub stock: f64,
    /// The library under test.
    pub plait: f64,
    /// Median of the pairs.
    pub ratio: f64,
}

struct Runner {
    connection: Connection,
    statement: Statement,
    kind: Loop,
    random: StdRng,
    next: i64,
}

impl Runner {
    fn connect(subject: &Subject, path: &Path, kind: Loop) -> Result<Self> {
        let connection = subject.open(path)?;
        let mode = connection.text("PRAGMA journal_mode=wal")?;
        assert_eq!(mode, "wal");
        connection.execute(&format!(
            "PRAGMA synchronous=OFF; PRAGMA cache_size=-20000; PRAGMA wal_autocheckpoint=0;
             CREATE TABLE t(id INTEGER PRIMARY KEY, val BLOB); CREATE TABLE grow(id INTEGER PRIMARY KEY, val BLOB);
             WITH RECURSIVE i(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM i WHERE x<{ROWS})
             INSERT INTO t SELECT x, randomblob({VALUE_BYTES}) FROM i; PRAGMA wal_checkpoint(TRUNCATE)"
        ))?;
        let statement = connection.prepare(kind.sql())?;
        Ok(Self { connection, statement, kind, random: StdRng::seed_from_u64(1), next: 0 })
    }

    /// Operations per second over one slice.
    fn slice(&mut self) -> Result<f64> {
        let mut value = [0u8; VALUE_BYTES];
        let start = thread_cpu_time();
        let mut done = 0u32;
        while thread_cpu_time() - start < SLICE {
            self.connection.execute("BEGIN")?;
            for _ in 0..1000 {
                self.random.fill_bytes(&mut value[..32]);
                self.next += 1;
                let key = if self.kind == Loop::Insert {
                    self.next
                } else {
                    self.random.random_range(1..=ROWS)
                };
                self.statement.bind_i64(1, key)?;
                self.statement.bind_blob(2, &value)?;
                self.statement.run()?;
            }
            self.connection.execute("COMMIT")?;
            done += 1000;
        }
        let speed = f64::from(done) / (thread_cpu_time() - start).as_secs_f64();
        self.connection.execute("DELETE FROM grow; PRAGMA wal_checkpoint(TRUNCATE)")?;
        Ok(speed)
    }
}

/// Slices of both libraries, in pairs.
#[derive(Default)]
struct Slices {
    stock: Vec<f64>,
    plait: Vec<f64>,
}

impl Slices {
    /// Makes a fresh pair of databases and measures some pairs of slices on it.
    fn measure(
        &mut self,
        subjects: [&Subject; 2],
        directory: &Path,
        kind: Loop,
        round: usize,
    ) -> Result<()> {
        let names = ["stock", "plait"].map(|name| directory.join(format!("{name}-{round}.db")));
        let connect = |which: usize| Runner::connect(subjects[which], &names[which], kind);
        let (mut left, mut right) = if round.is_multiple_of(2) {
            let left = connect(0)?;
            (left, connect(1)?)
        } else {
            let right = connect(1)?;
            (connect(0)?, right)
        };
        left.slice()?;
        right.slice()?;
        for pair in 0..10 {
            if pair % 2 == 0 {
                self.stock.push(left.slice()?);
                self.plait.push(right.slice()?);
            } else {
                self.plait.push(right.slice()?);
                self.stock.push(left.slice()?);
            }
        }
        Ok(())
    }
}

/// Measures one loop for about `time`.
pub fn measure(
    stock: &Subject,
    plait: &Subject,
    directory: &Path,
    kind: Loop,
    time: Duration,
) -> Result<Overhead> {
    let end = Instant::now() + time;
    let mut slices = Slices::default();
    for round in 0usize.. {
        if round >= 4 && round.is_multiple_of(2) && Instant::now() >= end {
            break;
        }
        slices.measure([stock, plait], directory, kind, round)?;
    }
    let pairs = slices.plait.iter().zip(&slices.stock);
    let ratio = median(pairs.map(|(plait, stock)| plait / stock).collect());
    Ok(Overhead { stock: median(slices.stock), plait: median(slices.plait), ratio })
}

/// The median of some numbers.
///
/// # Panics
/// If there are none.
#[must_use]
pub fn median(mut numbers: Vec<f64>) -> f64 {
    assert!(!numbers.is_empty(), "a median needs numbers");
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    if numbers.len() % 2 == 1 {
        numbers[middle]
    } else {
        f64::midpoint(numbers[middle - 1], numbers[middle])
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }
}
