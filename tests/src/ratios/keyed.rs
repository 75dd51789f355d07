//! The loop of a program that knows only keys and values: by the key-value API on the library under test, and on stock by
//! the prepared statements that do the same.

use super::writer::{Count, Settings};
use crate::sqlite::{Connection, Map, MapCursor, Range, Result, Statement, Step};
use crate::subject::{Subject, Synchronous};
use crate::value::Value;
use rand::rngs::StdRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::path::Path;

/// Rows of the tables.
const ROWS: i64 = 40_000;
/// Bytes of a long key, and of a value.
const KEY_BYTES: usize = 24;
const VALUE_BYTES: usize = 100;
/// Gets in a transaction: as good as all of a trial.
const GETS_TOGETHER: u64 = 500_000;
const PUTS_TOGETHER: u64 = 1000;
/// Commits in flight while a ticket is waited for.
const IN_FLIGHT: usize = 1000;

/// What is done with keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keyed {
    /// Random gets by number in one deferred transaction, with so many rows in a hundred not merged.
    Gets(u32),
    /// The same by keys of 24 bytes in a table without rowids.
    LongGets,
    /// Random gets by number, each a transaction.
    SingleGets,
    /// Random puts by number, a thousand a transaction.
    Puts,
    /// Random puts by number, each a transaction.
    SinglePuts,
    /// The same under NORMAL, acknowledged when their tickets say that they are on disk.
    Tickets,
    /// All rows in the order of their keys.
    Scan,
    /// One is added to a counter that all share.
    Add,
}

impl Keyed {
    fn table(self) -> &'static str {
        match self {
            Self::LongGets => "long",
            Self::Add => "counter",
            _ => "short",
        }
    }

    fn sql(self) -> String {
        let table = self.table();
        match self {
            Self::Gets(_) | Self::LongGets | Self::SingleGets => {
                format!("SELECT v FROM {table} WHERE k=?1")
            }
            Self::Puts | Self::SinglePuts | Self::Tickets => {
                format!("INSERT OR REPLACE INTO {table}(k, v) VALUES(?1, ?2)")
            }
            Self::Scan => format!("SELECT k, v FROM {table} ORDER BY k"),
            Self::Add => format!("UPDATE {table} SET v=v+1 WHERE k=?1"),
        }
    }

    /// Operations in a transaction; 0 means autocommit.
    fn together(self) -> u64 {
        match self {
            Self::Gets(_) | Self::LongGets => GETS_TOGETHER,
            Self::Puts => PUTS_TOGETHER,
            _ => 0,
        }
    }
}

/// Makes the tables, merged, and changes so many in a hundred of the rows.
pub fn fill(subject: &Subject, database: &Path, first: &Connection, work: Keyed) -> Result<()> {
    first.execute(&format!(
        "CREATE TABLE short(k INTEGER PRIMARY KEY, v); CREATE TABLE long(k BLOB PRIMARY KEY, v) WITHOUT ROWID;
         CREATE TABLE counter(k INTEGER PRIMARY KEY, v); INSERT INTO counter VALUES(1, 0); CREATE TABLE aside(x);
         WITH RECURSIVE i(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM i WHERE x<{ROWS})
         INSERT INTO short SELECT x, randomblob({VALUE_BYTES}) FROM i;
         INSERT INTO long SELECT randomblob({KEY_BYTES}), v FROM short"
    ))?;
    // A connection alone would write to the base.
    let second = subject.open(database)?;
    second.execute("INSERT INTO aside VALUES(1)")?;
    first.execute("INSERT INTO aside VALUES(2); PRAGMA wal_checkpoint")?;
    let percent = if let Keyed::Gets(percent) = work { i64::from(percent) } else { 0 };
    let mut change =
        first.prepare(&format!("UPDATE short SET v=randomblob({VALUE_BYTES}) WHERE k=?1"))?;
    let changed: Vec<i64> = (1..=ROWS).filter(|k| k * 7919 % 100 < percent).collect();
    for some in changed.chunks(40) {
        first.execute("BEGIN IMMEDIATE")?;
        for k in some {
            change.bind_i64(1, *k)?;
            change.run()?;
        }
        first.execute("COMMIT")?;
    }
    Ok(())
}

/// Every row is there and whole, and every acknowledged addition counts.
pub fn verify(connection: &Connection, work: Keyed, total: u64) -> anyhow::Result<()> {
    let whole = format!("SELECT count(*) FROM short WHERE length(v)={VALUE_BYTES}");
    anyhow::ensure!(connection.integer(&whole)? == ROWS, "rows are lost or changed");
    let sum = connection.integer("SELECT v FROM counter")?.unsigned_abs();
    let expected = if work == Keyed::Add { total } else { 0 };
    anyhow::ensure!(sum == expected, "the counter is {sum}, but {expected} were acknowledged");
    Ok(())
}

/// How it is done.
enum Way {
    Sql(Statement),
    Map(Map),
    Cursor(Map),
}

/// A connection, ready.
pub struct KeyedLoop {
    work: Keyed,
    connection: Connection,
    way: Way,
    keys: Vec<Value>,
    value: Value,
    random: StdRng,
    tickets: VecDeque<i64>,
}

impl KeyedLoop {
    /// Connects and prepares.
    pub fn connect(
        subject: &Subject,
        database: &Path,
        work: Keyed,
        synchronous: Synchronous,
        seed: u64,
    ) -> Result<Self> {
        let connection = subject.open(database)?;
        connection.execute(&format!(
            "PRAGMA cache_size=-65536; PRAGMA synchronous={}",
            synchronous.number()
        ))?;
        connection.busy_timeout(std::time::Duration::from_secs(120))?;
        let keys = match work {
            Keyed::Add => vec![Value::Integer(1)],
            Keyed::LongGets => {
                connection.query("SELECT k FROM long")?.into_iter().flatten().collect()
            }
            _ => (1..=ROWS).map(Value::Integer).collect(),
        };
        let way = match (subject.is_concurrent(), work) {
            (false, _) => Way::Sql(connection.prepare(&work.sql())?),
            (true, Keyed::Scan) => Way::Cursor(connection.open_map(work.table(), 0)?),
            (true, _) => Way::Map(connection.open_map(work.table(), 0)?),
        };
        let value = Value::Blob(vec![0; VALUE_BYTES]);
        let random = StdRng::seed_from_u64(seed);
        Ok(Self { work, connection, way, keys, value, random, tickets: VecDeque::new() })
    }

    /// Settings of its connection.
    pub fn settings(&self) -> Result<Settings> {
        Settings::read(&self.connection)
    }

    /// Works until `ended`; what is acknowledged while `measuring` holds is counted as measured.
    pub fn run(&mut self, ended: &dyn Fn() -> bool, measuring: &dyn Fn() -> bool) -> Result<Count> {
        let mut count = Count::default();
        let together = self.work.together();
        while !ended() {
            if together > 0 {
                self.connection.execute("BEGIN")?;
            }
            for _ in 0..together.max(1) {
                let done = self.once()?;
                count.total += done;
                if measuring() {
                    count.measured += done;
                }
                // A transaction of puts is acknowledged as a whole.
                if self.work != Keyed::Puts && ended() {
                    break;
                }
            }
            if together > 0 {
                self.connection.execute("COMMIT")?;
            }
        }
        if let Some(last) = self.tickets.back() {
            self.connection.wait_for_ticket(*last)?;
        }
        Ok(count)
    }

    /// One operation: how much of it counts.
    fn once(&mut self) -> Result<u64> {
        if let Value::Blob(bytes) = &mut self.value {
            self.random.fill_bytes(&mut bytes[..8]);
        }
        let key = &self.keys[self.random.random_range(0..self.keys.len())];
        match (&mut self.way, self.work) {
            (Way::Sql(statement), Keyed::Scan) => return scan(statement),
            (Way::Cursor(map), _) => return walk(&mut map.cursor(&Range::ALL)?),
            (Way::Sql(statement), work) => {
                statement.bind(1, key)?;
                match work {
                    Keyed::Gets(_) | Keyed::LongGets | Keyed::SingleGets => {
                        let found = statement.step()? == Step::Row;
                        assert!(
                            found && statement.column_bytes(0).len() == VALUE_BYTES,
                            "it has its value"
                        );
                        statement.reset();
                    }
                    Keyed::Add => statement.run()?,
                    _ => {
                        statement.bind(2, &self.value)?;
                        statement.run()?;
                    }
                }
            }
            (Way::Map(map), Keyed::Gets(_) | Keyed::LongGets | Keyed::SingleGets) => {
                assert_eq!(map.size_of(key)?, Some(VALUE_BYTES), "it has its value");
            }
            (Way::Map(map), Keyed::Add) => drop(map.add(key, 1)?),
            (Way::Map(map), _) => map.put(key, &self.value)?,
        }
        if self.work == Keyed::Tickets { self.acknowledged() } else { Ok(1) }
    }

    /// Puts the commit just made behind those in flight: how many are safe now.
    fn acknowledged(&mut self) -> Result<u64> {
        self.tickets.push_back(self.connection.ticket()?);
        if self.tickets.len() < IN_FLIGHT {
            return Ok(0);
        }
        self.connection.wait_for_ticket(self.tickets[0])?;
        let durable = self.connection.durable_ticket()?;
        let safe = self.tickets.iter().take_while(|ticket| **ticket <= durable).count();
        self.tickets.drain(..safe);
        Ok(safe as u64)
    }
}

fn scan(statement: &mut Statement) -> Result<u64> {
    let mut rows = 0;
    let mut bytes = 0;
    while statement.step()? == Step::Row {
        rows += statement.column_i64(0).signum();
        bytes += statement.column_bytes(1).len();
    }
    statement.reset();
    counted(rows, bytes)
}

fn walk(cursor: &mut MapCursor) -> Result<u64> {
    let mut rows = 0;
    let mut bytes = 0;
    while let Some((key, size)) = cursor.next_size()? {
        rows += key.signum();
        bytes += size;
    }
    counted(rows, bytes)
}

fn counted(rows: i64, bytes: usize) -> Result<u64> {
    assert_eq!(
        (rows, bytes),
        (ROWS, ROWS.unsigned_abs() as usize * VALUE_BYTES),
        "all rows are met"
    );
    Ok(rows.unsigned_abs())
}
