//! One who deletes all rows of a table and then, in the same transaction, inserts and looks for missing ones where
//! they were, while a reader is there.

use super::writer::{Count, Settings, nanoseconds};
use crate::sqlite::{Connection, Result, Statement, Step};
use crate::subject::Subject;
use std::path::Path;
use std::time::Instant;

/// Rows that are deleted.
const DELETED: i64 = 16_000;
/// Rows that are inserted, and looked for.
pub const OPERATIONS: i64 = 1000;

/// Makes the table.
pub fn fill(connection: &Connection) -> Result<()> {
    connection.execute(&format!(
        "CREATE TABLE removed(k TEXT PRIMARY KEY, val INTEGER);
         WITH RECURSIVE i(x) AS (SELECT 0 UNION ALL SELECT x+1 FROM i WHERE x<{DELETED}-1)
         INSERT INTO removed SELECT printf('k%08d', x), x FROM i"
    ))
}

/// A connection with its statements, and one that reads beside it.
pub struct Remover {
    reader: Connection,
    connection: Connection,
    insert: Statement,
    look: Statement,
}

impl Remover {
    /// Connects and prepares.
    pub fn connect(subject: &Subject, database: &Path) -> Result<Self> {
        let reader = subject.open(database)?;
        reader.execute("BEGIN; SELECT count(*) FROM removed")?;
        let connection = subject.open(database)?;
        connection.execute("PRAGMA synchronous=NORMAL")?;
        Ok(Self {
            insert: connection.prepare("INSERT INTO removed VALUES(?1, ?2)")?,
            look: connection.prepare("SELECT val FROM removed WHERE k=?1")?,
            reader,
            connection,
        })
    }

    /// Settings of its connection.
    pub fn settings(&self) -> Result<Settings> {
        Settings::read(&self.connection)
    }

    /// Does it once. What comes after the delete is measured.
    pub fn run(&mut self, _: &dyn Fn() -> bool, _: &dyn Fn() -> bool) -> Result<Count> {
        let key = |i: i64| format!("k{i:08}");
        self.connection.execute("BEGIN; DELETE FROM removed WHERE val>=0")?;
        let start = Instant::now();
        for i in 0..OPERATIONS {
            self.insert.bind_text(1, key(DELETED - 1 - i).as_bytes())?;
            self.insert.bind_i64(2, i)?;
            self.insert.run()?;
        }
        for i in 0..OPERATIONS {
            self.look.bind_text(1, key(i).as_bytes())?;
            assert!(self.look.step()? == Step::Done, "a deleted row is gone");
            self.look.reset();
        }
        let jobs_ns = nanoseconds(start.elapsed());
        self.connection.execute("COMMIT")?;
        self.reader.execute("COMMIT")?;
        let total = OPERATIONS.unsigned_abs();
        Ok(Count { total, measured: 2 * total, jobs_ns, ..Count::default() })
    }
}
