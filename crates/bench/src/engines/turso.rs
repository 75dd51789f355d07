//! Turso: SQLite rewritten, with many writers in one process (cargo feature `turso`).
//!
//! | setting | default | what |
//! |---|---|---|
//! | `journal_mode` | the library's (`wal`) | `wal`, or `mvcc` for BEGIN CONCURRENT |
//! | `synchronous` | the library's | `off`, `normal` or `full` |
//! | `busy_timeout` | 60000 | milliseconds |
//!
//! Its futures do input and output when they are polled, so that a thread can wait for each of them. A database is one
//! object that the threads of a process share; opening it in a second process is refused by Turso itself.

use std::path::Path;
use std::time::Duration;

use pollster::block_on;
use turso::{
    Builder, Connection as TursoConnection, Database, Error, Value as TursoValue, params_from_iter,
};

use super::key_value_sql::{self, KeyValueSql};
use super::sqlite::FILE_NAME;
use super::{
    Begin, Connection, Engine, Failure, KeyValue, Outcome, Refusal, Row, Settings, Sql, Statement,
    Store, Table, Value,
};

/// The version that `Cargo.toml` pins.
pub const VERSION: &str = "0.9.0-pre.2";

/// The library, linked into this program.
pub struct TursoEngine;

impl Engine for TursoEngine {
    fn open(&self, directory: &Path, settings: &Settings) -> Outcome<Box<dyn Store>> {
        settings.only(&["journal_mode", "synchronous", "busy_timeout"])?;
        let path = directory.join(FILE_NAME);
        let path = path.to_str().ok_or_else(|| Failure::broken("a path that is no UTF-8"))?;
        let database =
            block_on(Builder::new_local(path).build()).map_err(|e| failure(e, "open"))?;
        let store = TursoStore { database, settings: settings.clone() };
        store.connect()?;
        Ok(Box::new(store))
    }
}

struct TursoStore {
    database: Database,
    settings: Settings,
}

impl TursoStore {
    fn connect(&self) -> Outcome<Client> {
        let connection = self.database.connect().map_err(|e| failure(e, "connect"))?;
        let timeout_ms = self.settings.parse("busy_timeout")?.unwrap_or(60_000);
        connection
            .busy_timeout(Duration::from_millis(timeout_ms))
            .map_err(|e| failure(e, "busy_timeout"))?;
        for name in ["journal_mode", "synchronous"] {
            if let Some(value) = self.settings.get(name) {
                let quoted = format!("'{value}'");
                block_on(connection.pragma_update(name, quoted)).map_err(|e| failure(e, name))?;
            }
        }
        Ok(Client { connection, statements: Vec::new() })
    }
}

impl Store for TursoStore {
    fn create(&self, tables: &[Table]) -> Outcome<()> {
        key_value_sql::create(&mut self.connect()?, tables, key_value_sql::SQLITE)
    }

    fn key_value(&self, tables: &[Table]) -> Outcome<Box<dyn KeyValue + '_>> {
        Ok(Box::new(KeyValueSql::new(self.connect()?, tables)?))
    }

    fn sql(&self) -> Outcome<Box<dyn Sql + '_>> {
        Ok(Box::new(self.connect()?))
    }

    fn settings(&self) -> Outcome<Settings> {
        let client = self.connect()?;
        let mut told = Settings::default().with("version", VERSION);
        for name in ["journal_mode", "synchronous", "page_size", "cache_size"] {
            let read = async {
                let mut statement = client.connection.prepare(format!("PRAGMA {name}")).await?;
                statement.query_row(()).await?.get_value(0)
            };
            told.set(name, text(&block_on(read).map_err(|e| failure(e, name))?));
        }
        Ok(told)
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        Ok(())
    }
}

/// A connection with its statements.
struct Client {
    connection: TursoConnection,
    statements: Vec<(turso::Statement, String)>,
}

impl Client {
    fn control(&mut self, text: &str) -> Outcome<()> {
        let mut statement =
            block_on(self.connection.prepare_cached(text)).map_err(|e| failure(e, text))?;
        block_on(statement.execute(())).map(drop).map_err(|e| failure(e, text))
    }
}

impl Connection for Client {
    fn begin(&mut self, begin: Begin) -> Outcome<()> {
        self.control(&format!("BEGIN {}", begin.word()))
    }

    fn commit(&mut self) -> Outcome<()> {
        self.control("COMMIT")
    }

    fn rollback(&mut self) -> Outcome<()> {
        match self.connection.is_autocommit() {
            Ok(true) => Ok(()),
            Ok(false) => self.control("ROLLBACK"),
            Err(error) => Err(failure(error, "ROLLBACK")),
        }
    }
}

impl Sql for Client {
    fn prepare(&mut self, text: &str) -> Outcome<Statement> {
        let statement = block_on(self.connection.prepare(text)).map_err(|e| failure(e, text))?;
        self.statements.push((statement, text.to_owned()));
        Ok(Statement(self.statements.len() - 1))
    }

    fn execute(&mut self, statement: Statement, values: &[Value<'_>]) -> Outcome<u64> {
        let (statement, text) = &mut self.statements[statement.0];
        block_on(statement.execute(params_from_iter(values.iter().map(owned))))
            .map_err(|e| failure(e, text))
    }

    fn query(
        &mut self,
        statement: Statement,
        values: &[Value<'_>],
        found: &mut dyn FnMut(&dyn Row),
    ) -> Outcome<u64> {
        let (statement, text) = &mut self.statements[statement.0];
        let run = async {
            let mut rows = statement.query(params_from_iter(values.iter().map(owned))).await?;
            let mut count = 0;
            while let Some(row) = rows.next().await? {
                let values = (0..row.column_count()).map(|i| row.get_value(i));
                found(&TursoRow(values.collect::<Result<_, _>>()?));
                count += 1;
            }
            Ok(count)
        };
        block_on(run).map_err(|e: Error| failure(e, text))
    }

    fn script(&mut self, text: &str) -> Outcome<()> {
        block_on(self.connection.execute_batch(text)).map_err(|e| failure(e, text))
    }
}

/// What Turso keeps of a parameter.
fn owned(value: &Value<'_>) -> TursoValue {
    match value {
        Value::Null => TursoValue::Null,
        Value::Int(int) => TursoValue::Integer(*int),
        Value::Text(text) => TursoValue::Text((*text).to_owned()),
        Value::Blob(bytes) => TursoValue::Blob(bytes.to_vec()),
    }
}

fn text(value: &TursoValue) -> String {
    match value {
        TursoValue::Null => String::new(),
        TursoValue::Integer(int) => int.to_string(),
        TursoValue::Real(real) => real.to_string(),
        TursoValue::Text(text) => text.clone(),
        TursoValue::Blob(bytes) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// A row, which Turso hands out as its own copy.
struct TursoRow(Vec<TursoValue>);

impl Row for TursoRow {
    fn int(&self, column: usize) -> i64 {
        self.0[column].as_integer().copied().unwrap_or(0)
    }

    fn bytes(&self, column: usize) -> &[u8] {
        match &self.0[column] {
            TursoValue::Text(text) => text.as_bytes(),
            TursoValue::Blob(bytes) => bytes,
            _ => &[],
        }
    }

    fn is_null(&self, column: usize) -> bool {
        self.0[column].is_null()
    }
}

/// What an error means. A write conflict under BEGIN CONCURRENT is a plain error that says so.
fn failure(error: Error, doing: &str) -> Failure {
    let text = format!("{doing}: {error}");
    match error {
        Error::Busy(_) => Failure::Refused(Refusal::Busy, text),
        Error::BusySnapshot(_) => Failure::Refused(Refusal::Conflict, text),
        Error::Error(said) if said.to_lowercase().contains("conflict") => {
            Failure::Refused(Refusal::Conflict, text)
        }
        _ => Failure::broken(text),
    }
}
