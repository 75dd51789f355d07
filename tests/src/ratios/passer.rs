//! The loop of a connection that only reads: passes over a table of which a part is not merged yet, and selects by key
//! in transactions.

use super::writer::{Count, Settings};
use crate::sqlite::{Connection, Result, Statement, Step};
use crate::subject::Subject;
use rand::rngs::StdRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Rows of the tables that are passed over.
const ROWS: i64 = 20_000;
/// Rows that are changed in one transaction: few enough for all of them to stay out of the base until a merge.
const CHANGED_AT_ONCE: i64 = 40;
/// Bytes of a long key.
const KEY_BYTES: usize = 24;

/// What is read in one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pass {
    /// All rows in the order of their keys.
    Scan,
    /// A hundred rows from a random key on.
    Range,
    /// `count(*)`.
    Count,
    /// Each row with another, by key.
    Join,
    /// All entries of an index, in its order.
    Order,
    /// A random row by a key of 24 bytes, a thousand in a transaction.
    LongKey,
    /// A random row of a million by its number, a million in one deferred transaction.
    Million,
}

impl Pass {
    fn sql(self) -> &'static str {
        match self {
            Self::Scan => "SELECT id, k, val FROM passed",
            Self::Range => "SELECT id, val FROM passed WHERE id BETWEEN ?1 AND ?1+99",
            Self::Count => "SELECT count(*) FROM passed",
            Self::Join => "SELECT count(*), sum(b.k) FROM passed a JOIN passed b ON b.id=a.other",
            Self::Order => "SELECT k, id FROM passed ORDER BY k",
            Self::LongKey => "SELECT val FROM keyed WHERE k=?1",
            Self::Million => "SELECT val FROM million WHERE id=?1",
        }
    }

    /// Passes in a transaction; 0 means autocommit.
    fn passes_per_transaction(self) -> u32 {
        match self {
            Self::LongKey => 1000,
            Self::Million => 1_000_000,
            _ => 0,
        }
    }
}

/// Makes the tables, merged, and changes so many in a hundred of their rows; indexed columns as well.
pub fn fill(subject: &Subject, database: &Path, first: &Connection, percent: u32) -> Result<()> {
    first.execute(&format!(
        "CREATE TABLE passed(id INTEGER PRIMARY KEY, k INTEGER, other INTEGER, val BLOB);
         CREATE INDEX passed_k ON passed(k);
         CREATE TABLE keyed(k BLOB PRIMARY KEY, val BLOB); CREATE TABLE aside(x);
         WITH RECURSIVE i(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM i WHERE x<{ROWS})
         INSERT INTO passed SELECT x, x*7919%1000003, 1+x*104729%{ROWS}, randomblob(100) FROM i;
         INSERT INTO keyed SELECT randomblob({KEY_BYTES}), val FROM passed"
    ))?;
    // A connection alone would write to the base.
    let second = subject.open(database)?;
    second.execute("INSERT INTO aside VALUES(1)")?;
    first.execute("INSERT INTO aside VALUES(2); PRAGMA wal_checkpoint")?;
    let mut change =
        first.prepare("UPDATE passed SET k=k*31%1000003, val=randomblob(100) WHERE id=?1")?;
    let changed = ROWS * i64::from(percent) / 100;
    for group in 0..changed / CHANGED_AT_ONCE {
        first.execute("BEGIN IMMEDIATE")?;
        for i in 0..CHANGED_AT_ONCE {
            // Spread over the table: the changed part of each stretch is the same.
            change.bind_i64(1, 1 + (group * CHANGED_AT_ONCE + i) * ROWS / changed)?;
            change.run()?;
        }
        first.execute("COMMIT")?;
    }
    Ok(())
}

/// A connection with its statements, ready to read.
pub struct Passer {
    pass: Pass,
    connection: Connection,
    query: Statement,
    keys: Vec<Vec<u8>>,
    random: StdRng,
}

impl Passer {
    /// Connects and prepares.
    pub fn connect(subject: &Subject, database: &Path, pass: Pass, seed: u64) -> Result<Self> {
        let connection = subject.open(database)?;
        let mut keys = Vec::new();
        if pass == Pass::LongKey {
            let mut all = connection.prepare("SELECT k FROM keyed")?;
            while all.step()? == Step::Row {
                keys.push(all.column_bytes(0).to_vec());
            }
        }
        let query = connection.prepare(pass.sql())?;
        Ok(Self { pass, connection, query, keys, random: StdRng::seed_from_u64(seed) })
    }

    /// Settings of its connection.
    pub fn settings(&self) -> Result<Settings> {
        Settings::read(&self.connection)
    }

    /// Reads until `ended`; rows that are read while `measuring` holds are counted as measured.
    pub fn run(&mut self, ended: &dyn Fn() -> bool, measuring: &dyn Fn() -> bool) -> Result<Count> {
        let mut count = Count::default();
        let together = self.pass.passes_per_transaction();
        while !ended() {
            if together > 0 {
                self.connection.execute("BEGIN")?;
            }
            for _ in 0..together.max(1) {
                let rows = self.pass()?;
                count.total += rows;
                if measuring() {
                    count.measured += rows;
                }
                if ended() {
                    break;
                }
            }
            if together > 0 {
                self.connection.execute("COMMIT")?;
            }
        }
        Ok(count)
    }

    fn pass(&mut self) -> Result<u64> {
        match self.pass {
            Pass::Range => self.query.bind_i64(1, self.random.random_range(1..=ROWS - 99))?,
            Pass::Million => self.query.bind_i64(1, self.random.random_range(1..=1_000_000))?,
            Pass::LongKey => {
                let key = self.random.next_u64() as usize % self.keys.len();
                self.query.bind_blob(1, &self.keys[key])?;
            }
            Pass::Scan | Pass::Count | Pass::Join | Pass::Order => {}
        }
        let mut rows = 0;
        while self.query.step()? == Step::Row {
            rows += 1;
        }
        let expected = match self.pass {
            Pass::Scan | Pass::Order => ROWS.unsigned_abs(),
            Pass::Range => 100,
            _ => 1,
        };
        assert_eq!(rows, expected, "every row is there, once");
        self.query.reset();
        Ok(rows)
    }
}
