//! The loop of a reader: single selects by random key, in autocommit.

use super::writer::{Count, Repeated, Settings};
use crate::sqlite::{Connection, Result, Statement, Step};
use crate::subject::Subject;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use std::path::Path;

/// A connection with its statement, ready to read.
pub struct Reader {
    connection: Connection,
    select: Statement,
    rows: i64,
    random: StdRng,
    count: Count,
}

impl Reader {
    /// Connects and prepares a select from a table, whose keys are `1..=rows`, perhaps with a large cache and through a map.
    pub fn connect(
        subject: &Subject,
        database: &Path,
        (table, rows): (&str, i64),
        is_mapped: bool,
        seed: u64,
    ) -> Result<Self> {
        let connection = subject.open(database)?;
        if is_mapped {
            connection.execute("PRAGMA cache_size=-262144; PRAGMA mmap_size=1073741824")?;
        }
        let select = connection.prepare(&format!("SELECT val FROM {table} WHERE id=?1"))?;
        let (random, count) = (StdRng::seed_from_u64(seed), Count::default());
        Ok(Self { connection, select, rows, random, count })
    }

    /// Settings of its connection.
    pub fn settings(&self) -> Result<Settings> {
        Settings::read(&self.connection)
    }
}

impl Repeated for Reader {
    fn count(&mut self) -> &mut Count {
        &mut self.count
    }

    /// Every read must find its row.
    fn once(&mut self) -> Result<Option<usize>> {
        self.select.bind_i64(1, self.random.random_range(1..=self.rows))?;
        let found = self.select.step()? == Step::Row;
        let length = self.select.column_bytes(0).len();
        self.select.reset();
        assert!(found && length > 0, "every key has a row");
        Ok(None)
    }
}
