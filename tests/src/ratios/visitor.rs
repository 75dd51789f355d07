//! The loops of short sessions: open the database, insert some rows or read one, close it; or make one and remove it.

use super::writer::{Count, ROWS, Repeated, Settings, VALUE_BYTES};
use crate::sqlite::{Connection, Result};
use crate::subject::{Subject, Synchronous};
use rand::rngs::StdRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Who comes and goes.
pub struct Visitor {
    subject: Subject,
    database: PathBuf,
    /// Rows of a visit; none: it reads.
    rows: u32,
    synchronous: Synchronous,
    random: StdRng,
    settings: Settings,
    count: Count,
}

impl Visitor {
    /// Opens and closes for the first time.
    pub fn connect(
        subject: &Subject,
        database: &Path,
        rows: u32,
        synchronous: Synchronous,
        seed: u64,
    ) -> Result<Self> {
        let connection = open(subject, database, synchronous)?;
        let settings = Settings::read(&connection)?;
        connection.close()?;
        Ok(Self {
            subject: subject.clone(),
            database: database.to_owned(),
            rows,
            synchronous,
            random: StdRng::seed_from_u64(seed),
            settings,
            count: Count::default(),
        })
    }

    /// Settings of its connections.
    pub fn settings(&self) -> Result<Settings> {
        Ok(self.settings.clone())
    }

    fn visit(&mut self) -> Result<()> {
        let connection = open(&self.subject, &self.database, self.synchronous)?;
        if self.rows == 0 {
            let mut select = connection.prepare("SELECT val FROM t WHERE id=?1")?;
            select.bind_i64(1, self.random.random_range(1..=ROWS))?;
            let rows = select.collect_rows()?;
            assert_eq!(rows.len(), 1, "every key has a row");
        } else {
            let mut insert = connection.prepare("INSERT INTO visit(val) VALUES(?1)")?;
            let mut value = [0; VALUE_BYTES];
            for _ in 0..self.rows {
                self.random.fill_bytes(&mut value);
                insert.bind_blob(1, &value)?;
                while let Err(error) = insert.run() {
                    if !error.is_busy() {
                        return Err(error);
                    }
                    self.count.busy += 1;
                }
            }
        }
        connection.close()
    }
}

impl Repeated for Visitor {
    fn count(&mut self) -> &mut Count {
        &mut self.count
    }

    fn once(&mut self) -> Result<Option<usize>> {
        self.visit().map(|()| None)
    }
}

/// Who makes a database, again and again.
pub struct Maker {
    subject: Subject,
    database: PathBuf,
    rows: u32,
    settings: Settings,
    count: Count,
}

impl Maker {
    /// Looks at the settings of who makes one.
    pub fn connect(subject: &Subject, beside: &Path, rows: u32) -> Result<Self> {
        let settings = Settings::read(&open(subject, beside, Synchronous::Full)?)?;
        let database = beside.with_extension("made");
        Ok(Self { subject: subject.clone(), database, rows, settings, count: Count::default() })
    }

    /// Settings of its connections.
    pub fn settings(&self) -> Result<Settings> {
        Ok(self.settings.clone())
    }
}

impl Repeated for Maker {
    fn count(&mut self) -> &mut Count {
        &mut self.count
    }

    fn once(&mut self) -> Result<Option<usize>> {
        let connection = self.subject.create(&self.database)?;
        connection.execute("CREATE TABLE made(id INTEGER PRIMARY KEY, val BLOB)")?;
        for _ in 0..self.rows {
            connection.execute("INSERT INTO made(val) VALUES(randomblob(400))")?;
        }
        assert_eq!(connection.integer("SELECT count(*) FROM made")?, i64::from(self.rows));
        connection.close()?;
        std::fs::remove_file(&self.database).expect("all of it is in one file");
        Ok(None)
    }
}

fn open(subject: &Subject, database: &Path, synchronous: Synchronous) -> Result<Connection> {
    let connection = subject.open(database)?;
    connection.busy_timeout(Duration::from_secs(120))?;
    // FULL is what a connection begins with, and most programs say nothing.
    if synchronous != Synchronous::Full {
        connection.execute(&format!("PRAGMA synchronous={}", synchronous.number()))?;
    }
    Ok(connection)
}
