//! A database with the connections of a case.

use super::inside::{Inside, Script};
use super::{Act, Case, MapCall};
use crate::sqlite::{Bound, Connection, Item, Map, Range, SqlError};
use crate::subject::Subject;
use crate::value::Value;
use anyhow::{Context as _, ensure};
use std::path::Path;
use std::time::Duration;

/// `SQLITE_ERROR`: of a query of a table that is not there.
const ERROR: i32 = 1;

/// The rows that a query gave, or that it cannot be asked, as its table is not there.
type Answer = Result<Vec<Vec<Value>>, String>;

/// Everything that a connection sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content(Vec<Answer>);

/// What came of an act.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Rows that were returned.
    pub rows: Vec<Vec<Value>>,
    /// How it failed.
    pub error: Option<SqlError>,
    /// It had happened, and failed only when it was put away.
    pub happened: bool,
}

/// A database, the connection whose transaction is tried, and another one.
pub struct Side {
    /// The connection that acts.
    pub main: Connection,
    /// What runs in the middle of its act.
    pub script: Script,
    /// One that looks on.
    pub other: Connection,
    directory: tempfile::TempDir,
}

fn names(case: &Case) -> &'static [&'static str] {
    if case.attached { &["main.db", "aux.db"] } else { &["main.db"] }
}

fn connect(subject: &Subject, case: &Case, directory: &Path) -> anyhow::Result<Connection> {
    let connection = subject.open(&directory.join("main.db"))?;
    connection.busy_timeout(Duration::ZERO)?;
    connection.create_reversed_collation()?;
    if case.attached {
        connection.execute(&format!("ATTACH '{}' AS aux", directory.join("aux.db").display()))?;
    }
    connection.execute("PRAGMA synchronous=OFF; PRAGMA foreign_keys=ON;")?;
    if case.attached {
        connection.execute("PRAGMA aux.synchronous=OFF")?;
    }
    Ok(connection)
}

/// Makes the files of a case, with what is to be in them, and leaves them at rest in this directory.
pub fn make_files(subject: &Subject, case: &Case, directory: &Path) -> anyhow::Result<()> {
    for name in names(case) {
        subject.create(&directory.join(name))?.close()?;
    }
    let connection = connect(subject, case, directory)?;
    for sql in case.schema.iter().chain(&case.merged) {
        connection.execute(sql).with_context(|| format!("make the files: {sql}"))?;
    }
    connection.close()?;
    Ok(())
}

impl Side {
    /// A copy of the files in `from`, opened, and with the recent rows in memory.
    pub fn open(
        subject: &Subject,
        case: &Case,
        from: &Path,
        within: &Path,
    ) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("case-").tempdir_in(within)?;
        for name in names(case) {
            std::fs::copy(from.join(name), directory.path().join(name))?;
        }
        let main = connect(subject, case, directory.path())?;
        let other = connect(subject, case, directory.path())?;
        let script = Script::of(&main)?;
        for sql in case.temporary.iter().chain(&case.recent) {
            main.execute(sql).with_context(|| format!("prepare: {sql}"))?;
        }
        other.execute("SELECT * FROM beside")?;
        Ok(Self { main, script, other, directory })
    }

    /// The act, and what runs in its middle, which ends with it.
    pub fn act(&self, case: &Case, by_sql: bool) -> Outcome {
        let outcome = perform(&self.main, &case.act, by_sql);
        self.script.end();
        outcome
    }

    /// The act once more.
    pub fn act_again(&self, case: &Case) -> Outcome {
        let steps = case.inside.iter().filter(|step| !matches!(step, Inside::Before(_)));
        self.script.begin(&self.main, &steps.cloned().collect::<Vec<_>>());
        self.act(case, false)
    }

    /// Another connection.
    pub fn connect_another(&self, subject: &Subject, case: &Case) -> anyhow::Result<Connection> {
        connect(subject, case, self.directory.path())
    }

    /// Checks all that is committed, from the other connection.
    pub fn check(&self, case: &Case) -> anyhow::Result<()> {
        let sound = |sql: &str| -> anyhow::Result<()> {
            let rows = self.other.query(sql).with_context(|| sql.to_owned())?;
            let found = rows.iter().flatten().find(|value| value.as_text() != Some("ok"));
            ensure!(found.is_none(), "{sql} says {rows:?}");
            Ok(())
        };
        sound("PRAGMA main.integrity_check")?;
        if case.attached {
            sound("PRAGMA aux.integrity_check")?;
        }
        case.checks.iter().try_for_each(|sql| sound(sql))
    }
}

/// Everything that this connection sees.
pub fn content(connection: &Connection, case: &Case) -> Result<Content, SqlError> {
    let answer = |sql: &String| match connection.query(sql) {
        Ok(rows) => Ok(Ok(rows)),
        Err(error) if error.extended == ERROR && error.message.contains("no such") => {
            Ok(Err(error.message))
        }
        Err(error) => Err(error),
    };
    case.shown.iter().map(answer).collect::<Result<_, _>>().map(Content)
}

impl Content {
    /// The first query that shows something else, and what.
    #[must_use]
    pub fn difference(&self, wanted: &Self, case: &Case) -> Option<String> {
        self.difference_of(wanted, case, "")
    }

    /// The same of the queries in whose text this is.
    #[must_use]
    pub fn difference_of(&self, wanted: &Self, case: &Case, part: &str) -> Option<String> {
        let differs = |i: usize| self.0[i] != wanted.0[i] && case.shown[i].contains(part);
        let place = (0..self.0.len()).find(|&i| differs(i))?;
        let sql = &case.shown[place];
        Some(format!("{sql}\nis     {:?}\nshould be {:?}", self.0[place], wanted.0[place]))
    }
}

/// Does it with the library under test, or by SQL alone.
#[must_use]
pub fn perform(connection: &Connection, act: &Act, by_sql: bool) -> Outcome {
    let mut outcome = Outcome { rows: Vec::new(), error: None, happened: false };
    let result = match act {
        Act::Sql(sql) => run(connection, sql, &mut outcome.rows),
        Act::Map { sql, .. } if by_sql => run(connection, sql, &mut outcome.rows),
        Act::Map { table, call, .. } => {
            let called = connection.open_map(table, 0).and_then(|map| call_map(&map, call));
            called.map(|told| outcome.rows.push(vec![told]))
        }
        Act::Blob { table, column, rowid, offset, bytes } => {
            let opened = connection.open_blob(table, column, *rowid, true);
            opened.and_then(|mut blob| {
                blob.write(*offset, bytes)?;
                outcome.happened = true;
                blob.close()
            })
        }
    };
    outcome.error = result.err();
    outcome
}

fn run(connection: &Connection, sql: &str, rows: &mut Vec<Vec<Value>>) -> Result<(), SqlError> {
    connection.each_row(sql, &mut |statement| rows.push(statement.row()))
}

fn call_map(map: &Map, call: &MapCall) -> Result<Value, SqlError> {
    let told = |done: bool| Value::Integer(i64::from(done));
    Ok(match call {
        MapCall::Put(key, value) => {
            map.put(key, value)?;
            Value::Null
        }
        MapCall::Insert(key, value) => told(map.insert(key, value)?),
        MapCall::Update(key, value) => told(map.update(key, value)?),
        MapCall::Delete(key) => told(map.delete(key)?),
        MapCall::Add(key, delta) => Value::Integer(map.add(key, *delta)?),
        MapCall::Append(key, tail) => Value::Integer(map.append(key, tail)?),
        MapCall::Batch(items) => {
            let item = |(key, value): &(Value, Option<Value>)| match value {
                Some(value) => Item::Put(key.clone(), value.clone()),
                None => Item::Delete(key.clone()),
            };
            let items: Vec<Item> = items.iter().map(item).collect();
            told(map.batch(&items)?.is_none())
        }
        MapCall::DeleteRange(low, high) => {
            let range = Range::Between(Bound::Closed(low.clone()), Bound::Closed(high.clone()));
            Value::Integer(map.delete_range(&range)?)
        }
    })
}
