//! Runs a script on both sides and compares after every step.

use super::scan::Scan;
use super::{Hooks, Script, Step};
use crate::sqlite::{Blob, Connection, SqlError, Statement, Step as Stepped, TransactionState};
use crate::subject::{Begin, Subject};
use crate::value::Value;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Connections that only read.
pub const READERS: usize = 2;
/// Calls of hooks, and bytes of each, that are compared of one step.
const TOLD_MAX: (usize, usize) = (3000, 400);

/// Everything a caller can see of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    rows: Vec<Vec<Value>>,
    error: Option<(i32, String)>,
    changes: i64,
    total_changes: i64,
    last_insert_rowid: i64,
    autocommit: bool,
    told: Vec<String>,
}

/// Where the two sides parted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mismatch {
    /// Index of the step in the script; its length stands for the checks at rest.
    pub step: usize,
    /// What stock SQLite did.
    pub stock: String,
    /// What the library under test did.
    pub plait: String,
}

struct Side {
    subject: Subject,
    directory: PathBuf,
    main: Option<Connection>,
    second: Option<Connection>,
    readers: Vec<Connection>,
    cursors: BTreeMap<u8, Scan>,
    reader_cursors: BTreeMap<u8, Statement>,
    blob: Option<Blob>,
    /// It is for reading.
    blob_reads: bool,
    /// The schema has not been loaded anew since the handle was opened.
    blob_knows_schema: bool,
    hooks: Hooks,
    told: Arc<Mutex<Vec<String>>>,
    /// Another connection has committed while the main one was reading: that cannot write before it has ended.
    is_stale: bool,
    /// The transaction was begun with BEGIN CONCURRENT or, on stock SQLite, with BEGIN IMMEDIATE, whose COMMIT calls the hook in any case.
    is_optimistic: bool,
}

/// Collects what the hooks of a connection are told.
fn listen(connection: &Connection, hooks: Hooks, told: &Arc<Mutex<Vec<String>>>) {
    let note = |told: &Arc<Mutex<Vec<String>>>, text: String| {
        let mut told = told.lock().expect("one thread");
        if told.len() < TOLD_MAX.0 {
            told.push(text.chars().take(TOLD_MAX.1).collect());
        }
    };
    if hooks == Hooks::None {
        return;
    }
    let sink = told.clone();
    connection.commit_hook(move || {
        note(&sink, "commit".to_owned());
        true
    });
    let sink = told.clone();
    connection.rollback_hook(move || note(&sink, "rollback".to_owned()));
    let sink = told.clone();
    connection.update_hook(move |change| note(&sink, format!("{change:?}")));
    if hooks == Hooks::Values {
        let sink = told.clone();
        connection.preupdate_hook(move |row| note(&sink, format!("{row:?}")));
    }
}

impl Side {
    fn create(subject: &Subject, directory: PathBuf, script: &Script) -> Result<Self, SqlError> {
        let mut side = Self {
            subject: subject.clone(),
            directory,
            main: None,
            second: None,
            readers: Vec::new(),
            cursors: BTreeMap::new(),
            reader_cursors: BTreeMap::new(),
            blob: None,
            blob_reads: false,
            blob_knows_schema: false,
            hooks: script.hooks,
            told: Arc::default(),
            is_stale: false,
            is_optimistic: false,
        };
        for name in ["main.db", "aux.db"] {
            let connection = side.subject.open(&side.directory.join(name))?;
            connection.execute("PRAGMA synchronous=OFF")?;
            connection.execute(&script.birth)?;
            connection.execute("CREATE TABLE born(a); DROP TABLE born;")?;
            side.subject.convert(&connection)?;
            connection.close()?;
        }
        side.open()?;
        Ok(side)
    }

    fn database(&self) -> PathBuf {
        self.directory.join("main.db")
    }

    fn open(&mut self) -> Result<(), SqlError> {
        let connect = || -> Result<Connection, SqlError> {
            let connection = self.subject.open(&self.database())?;
            connection.busy_timeout(Duration::from_millis(200))?;
            connection.create_reversed_collation()?;
            connection.execute("PRAGMA synchronous=OFF; PRAGMA cache_size=50;")?;
            Ok(connection)
        };
        let (main, second) = (connect()?, connect()?);
        listen(&main, self.hooks, &self.told);
        self.readers = (0..READERS).map(|_| connect()).collect::<Result<_, _>>()?;
        self.main = Some(main);
        self.second = Some(second);
        Ok(())
    }

    fn close(&mut self) -> Result<(), SqlError> {
        self.cursors.clear();
        self.reader_cursors.clear();
        self.blob = None;
        let readers = std::mem::take(&mut self.readers).into_iter().map(Some);
        let all = [self.main.take(), self.second.take()].into_iter().chain(readers);
        for connection in all.flatten() {
            connection.close()?;
        }
        Ok(())
    }

    fn main(&self) -> &Connection {
        self.main.as_ref().expect("the side is open")
    }

    fn is_idle(&self) -> bool {
        self.main().autocommit() && self.cursors.is_empty() && self.blob.is_none()
    }

    fn is_writing(&self) -> bool {
        self.main().transaction_state() == TransactionState::Write
    }

    /// Whether a step of the main connection may write although what it reads is not the newest state. Stock SQLite refuses that always,
    /// concurrent mode where what was read has changed.
    fn would_write_late(&self, step: &Step) -> bool {
        let may_write = match step {
            Step::Sql(sql) => !["SELECT", "COMMIT", "ROLLBACK", "RELEASE"]
                .iter()
                .any(|word| sql.starts_with(word)),
            Step::BlobOpen { write, .. } => *write,
            Step::Begin(_) | Step::BlobWrite(..) => true,
            _ => false,
        };
        may_write && self.is_stale && !self.is_idle()
    }

    /// Ends whatever the main connection reads.
    fn freshen(&mut self) -> Result<(), SqlError> {
        self.cursors.clear();
        self.blob = None;
        self.is_stale = false;
        if self.main().autocommit() { Ok(()) } else { self.main().execute("ROLLBACK") }
    }

    /// Whether a step names the attached file inside a transaction: one that a refused COMMIT left open, or that has lost
    /// its COMMIT to shrinking.
    fn would_mix_files(&self, step: &Step) -> bool {
        matches!(step, Step::Sql(sql) if sql.contains(" aux.")) && !self.main().autocommit()
    }

    fn perform(&mut self, step: &Step) -> Outcome {
        if let Step::Sql(sql) = step {
            self.cursors.retain(|_, scan| scan.may_stay_open(sql));
            // SQLite reads through it what is in the place of a row that is gone (`differences.rs`).
            if sql.starts_with("ROLLBACK TO") && self.blob_reads {
                self.blob = None;
            }
        }
        let mut rows = Vec::new();
        self.told.lock().expect("one thread").clear();
        let was_open = !self.main().autocommit();
        let error = self.attempt(step, &mut rows).err();
        self.blob_knows_schema &= keeps_schema(step) && !(was_open && self.main().autocommit());
        self.is_stale = !self.is_idle() && (self.is_stale || matches!(step, Step::Other(_)));
        self.is_optimistic |= matches!(step, Step::Begin(Begin::Concurrent));
        let mut told = self.told.lock().expect("one thread").clone();
        if self.is_optimistic {
            told.retain(|call| call != "commit");
        }
        self.is_optimistic &= !self.main().autocommit();
        let main = self.main();
        Outcome {
            rows,
            error: error.map(|error| (error.extended, error.message)),
            changes: main.changes(),
            total_changes: main.total_changes(),
            last_insert_rowid: main.last_insert_rowid(),
            autocommit: main.autocommit(),
            told,
        }
    }

    fn attempt(&mut self, step: &Step, rows: &mut Vec<Vec<Value>>) -> Result<(), SqlError> {
        match step {
            Step::Sql(sql) => run_sql(self.main(), &self.located(sql), rows),
            Step::Begin(begin) => run_sql(self.main(), self.subject.begin(*begin), rows),
            Step::Other(sql) => {
                let second = self.second.as_ref().expect("the side is open");
                run_sql(second, &self.located(sql), rows)
            }
            Step::Reader(number, sql) => run_sql(self.reader(*number), sql, rows),
            Step::ReaderOpen(number, sql) => {
                self.reader_cursors.remove(number);
                let cursor = self.reader(*number).prepare(sql)?;
                self.reader_cursors.insert(*number, cursor);
                Ok(())
            }
            Step::ReaderFetch(number, count) => match self.reader_cursors.get_mut(number) {
                Some(cursor) => fetch(cursor, *count, rows),
                None => Ok(()),
            },
            Step::Open(number, sql) => {
                self.cursors.remove(number);
                let scan = Scan::open(self.main(), &self.located(sql))?;
                self.cursors.insert(*number, scan);
                Ok(())
            }
            Step::Fetch(number, count) => {
                let Some(Scan { statement: cursor, .. }) = self.cursors.get_mut(number) else {
                    return Ok(());
                };
                fetch(cursor, *count, rows)
            }
            Step::Close(number) => {
                self.cursors.remove(number);
                Ok(())
            }
            Step::BlobOpen { table, column, rowid, write } => {
                self.blob = None;
                self.blob = Some(self.main().open_blob(table, column, *rowid, *write)?);
                (self.blob_reads, self.blob_knows_schema) = (!write, true);
                Ok(())
            }
            Step::BlobRead(offset, length) => {
                let Some(blob) = &mut self.blob else {
                    return Ok(());
                };
                rows.push(vec![Value::Integer(blob.len() as i64)]);
                rows.push(vec![Value::Blob(blob.read((*offset).into(), (*length).into())?)]);
                Ok(())
            }
            // sqlite3_blob_write() tells a preupdate hook of the table as it was when the handle was opened. If the schema was loaded anew since,
            // SQLite 3.54.1 itself reads memory that it has freed (seed 63076).
            Step::BlobWrite(..) if self.hooks == Hooks::Values && !self.blob_knows_schema => Ok(()),
            Step::BlobWrite(offset, length, value) => {
                let Some(blob) = &mut self.blob else {
                    return Ok(());
                };
                blob.write((*offset).into(), &vec![*value; (*length).into()])
            }
            Step::BlobReopen(rowid) => {
                self.blob.as_mut().map_or(Ok(()), |blob| blob.reopen(*rowid))
            }
            Step::BlobClose => self.blob.take().map_or(Ok(()), Blob::close),
            Step::Merge => {
                self.merge();
                Ok(())
            }
            Step::Reopen => {
                self.close()?;
                self.open()
            }
            Step::Compare => contents(self.main(), rows),
        }
    }

    fn reader(&self, number: u8) -> &Connection {
        &self.readers[usize::from(number) % READERS]
    }

    fn located(&self, sql: &str) -> String {
        sql.replace("{dir}", &self.directory.to_string_lossy())
    }

    /// A merge may have to wait for what this script holds open, and then gives up: both is fine.
    fn merge(&self) {
        if self.subject.is_concurrent() {
            let connection =
                self.subject.open(&self.database()).expect("a third connection can open");
            connection.busy_timeout(Duration::from_millis(50)).expect("a timeout can be set");
            if let Err(error) = connection.execute("PRAGMA wal_checkpoint") {
                assert!(
                    error.is_busy() || error.code == crate::sqlite::LOCKED,
                    "a merge failed: {error}"
                );
            }
        }
    }
}

/// Whether no connection loads the schema anew because of this step, unless it ends a transaction.
fn keeps_schema(step: &Step) -> bool {
    match step {
        Step::Sql(sql) | Step::Other(sql) => {
            ["SELECT", "INSERT", "UPDATE", "DELETE"].iter().any(|word| sql.starts_with(word))
        }
        Step::Reopen => false,
        _ => true,
    }
}

fn fetch(cursor: &mut Statement, count: u8, rows: &mut Vec<Vec<Value>>) -> Result<(), SqlError> {
    for _ in 0..count {
        if cursor.step()? == Stepped::Done {
            break;
        }
        rows.push(cursor.row());
    }
    Ok(())
}

fn run_sql(connection: &Connection, sql: &str, rows: &mut Vec<Vec<Value>>) -> Result<(), SqlError> {
    connection.each_row(sql, &mut |statement| {
        if rows.len() < 5000 {
            rows.push(statement.row());
        }
    })
}

/// Every row of every table, and the schema, in an order that does not depend on where pages lie.
pub fn contents(connection: &Connection, rows: &mut Vec<Vec<Value>>) -> Result<(), SqlError> {
    let databases = connection.query("SELECT name FROM pragma_database_list ORDER BY seq")?;
    for database in databases {
        let schema = database[0].as_text().unwrap_or("main").to_owned();
        let master = if schema == "temp" {
            "temp.sqlite_schema".to_owned()
        } else {
            format!("{schema}.sqlite_schema")
        };
        let listed = connection
            .query(&format!("SELECT type, name, tbl_name, sql FROM {master} ORDER BY rowid"))?;
        rows.extend(listed.iter().cloned());
        let tables = connection.query(&format!(
            "SELECT name, sql LIKE 'CREATE VIRTUAL%', (SELECT max(wr) FROM pragma_table_list AS l WHERE l.name=m.name AND l.schema='{schema}')
             FROM {master} AS m WHERE type='table' ORDER BY name"
        ))?;
        for table in tables {
            let name = table[0].as_text().unwrap_or_default().to_owned();
            let has_rowid = table[2].as_i64() == Some(0) && table[1].as_i64() != Some(1);
            let select = if has_rowid { "rowid, *" } else { "*" };
            rows.push(vec![Value::from(format!("{schema}.{name}"))]);
            run_sql(connection, &format!("SELECT {select} FROM {schema}.\"{name}\""), rows)?;
        }
    }
    rows.extend(connection.query("PRAGMA user_version; PRAGMA application_id; PRAGMA encoding")?);
    Ok(())
}

/// Runs a script in `directory` on both sides; `None` when they agreed throughout and the file at rest is sound, or when stock
/// SQLite does not agree with itself either. A table whose largest rowid is the largest there is gets random ones, for instance.
pub fn run(
    script: &Script,
    stock: &Subject,
    plait: &Subject,
    directory: &Path,
) -> anyhow::Result<Option<Mismatch>> {
    let Some(found) = compare(script, stock, plait, &directory.join("pair"))? else {
        return Ok(None);
    };
    let same = compare(script, stock, stock, &directory.join("again"))?;
    Ok(if same.is_some_and(|own| own.step <= found.step) { None } else { Some(found) })
}

fn compare(
    script: &Script,
    stock: &Subject,
    plait: &Subject,
    directory: &Path,
) -> anyhow::Result<Option<Mismatch>> {
    let make = |subject: &Subject, name: &str| -> anyhow::Result<Side> {
        let path = directory.join(name);
        std::fs::create_dir_all(&path)?;
        Ok(Side::create(subject, path, script)?)
    };
    let (mut left, mut right) = (make(stock, "left")?, make(plait, "right")?);
    for (index, step) in script.steps.iter().enumerate() {
        if (matches!(step, Step::Other(_)) && left.is_writing()) || left.would_mix_files(step) {
            continue;
        }
        if left.would_write_late(step) {
            left.freshen()?;
            right.freshen()?;
        }
        let (expected, got) = (left.perform(step), right.perform(step));
        if is_read_of_what_was_taken_back(step, &expected, &got) {
            (left.blob, right.blob) = (None, None);
        } else if expected != got {
            let (stock, plait) = describe(&expected, &got);
            return Ok(Some(Mismatch { step: index, stock, plait }));
        }
    }
    at_rest(script, &mut left, &mut right, stock)
}

/// True if a handle read behind the end of a row that a ROLLBACK has made shorter: SQLite says that it is out of memory,
/// or that the database is malformed, and Plait SQLITE_ABORT (`differences.rs`).
fn is_read_of_what_was_taken_back(step: &Step, stock: &Outcome, plait: &Outcome) -> bool {
    let code = |outcome: &Outcome| outcome.error.as_ref().map(|(code, _)| code & 0xff);
    matches!(step, Step::BlobRead(..))
        && matches!(code(stock), Some(7 | 11))
        && code(plait) == Some(4)
}

/// Closes both sides and reads what they left with stock SQLite.
fn at_rest(
    script: &Script,
    left: &mut Side,
    right: &mut Side,
    stock: &Subject,
) -> anyhow::Result<Option<Mismatch>> {
    left.close()?;
    right.close()?;
    let read = |side: &Side| -> Result<Vec<Vec<Value>>, SqlError> {
        let connection = stock.open(&side.database())?;
        connection.create_reversed_collation()?;
        let mut rows = connection.query("PRAGMA integrity_check")?;
        contents(&connection, &mut rows)?;
        Ok(rows)
    };
    let (expected, got) = (read(left), read(right));
    if expected.is_ok() && expected == got {
        return Ok(None);
    }
    let wrap = |result: Result<Vec<Vec<Value>>, SqlError>| {
        let (rows, error) = match result {
            Ok(rows) => (rows, None),
            Err(error) => (Vec::new(), Some((error.extended, error.message))),
        };
        Outcome {
            rows,
            error,
            changes: 0,
            total_changes: 0,
            last_insert_rowid: 0,
            autocommit: true,
            told: Vec::new(),
        }
    };
    let (stock, plait) = describe(&wrap(expected), &wrap(got));
    Ok(Some(Mismatch { step: script.steps.len(), stock, plait }))
}

/// The difference of two outcomes in words, short even when there are many rows.
fn describe(expected: &Outcome, got: &Outcome) -> (String, String) {
    let first = (0..expected.rows.len().max(got.rows.len()))
        .find(|index| expected.rows.get(*index) != got.rows.get(*index));
    let first_told = (0..expected.told.len().max(got.told.len()))
        .find(|index| expected.told.get(*index) != got.told.get(*index));
    let tell = |outcome: &Outcome| {
        let Outcome { rows, error, changes, total_changes, last_insert_rowid, autocommit, told } =
            outcome;
        let mut text = format!(
            "{} rows, error {error:?}, changes {changes}, total {total_changes}, last rowid {last_insert_rowid}, autocommit {autocommit}",
            rows.len()
        );
        if let Some(index) = first {
            match rows.get(index) {
                Some(row) => text.push_str(&format!("; row {index}: {row:?}")),
                None => text.push_str(&format!("; no row {index}")),
            }
            let around: Vec<_> = rows.iter().skip(index.saturating_sub(2)).take(6).collect();
            text.push_str(&format!("; around it: {around:?}"));
        }
        if let Some(index) = first_told {
            text.push_str(&format!(
                "; {} calls of hooks, number {index}: {:?}",
                told.len(),
                told.get(index)
            ));
        }
        text
    };
    (tell(expected), tell(got))
}
