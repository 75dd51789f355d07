//! Key-value work in SQL: the statements that an application would prepare.

use super::{
    Begin, Connection, Failure, Key, KeyKind, KeyValue, Outcome, Sql, Statement, Table, Value,
    Waits,
};

/// The words in which dialects of SQL differ.
#[derive(Clone, Copy, Debug)]
pub struct Dialect {
    /// The type of an integer key.
    pub int: &'static str,
    /// The type of bytes.
    pub blob: &'static str,
    /// What stands after the columns of a table without rowid.
    pub without_rowid: &'static str,
    /// Type and constraint of an integer primary key for which the engine finds values that the program leaves out.
    pub automatic_key: &'static str,
}

/// SQLite and all that follow it.
pub const SQLITE: Dialect = Dialect {
    int: "INTEGER",
    blob: "BLOB",
    without_rowid: " WITHOUT ROWID",
    automatic_key: "INTEGER PRIMARY KEY",
};

/// Makes the tables `name(k PRIMARY KEY, v)`.
///
/// # Errors
/// See [`Failure`].
pub fn create(sql: &mut dyn Sql, tables: &[Table], dialect: Dialect) -> Outcome<()> {
    for Table { name, keys, without_rowid } in tables {
        let Dialect { int, blob, .. } = dialect;
        let key = if *keys == KeyKind::Int { int } else { blob };
        let tail = if *without_rowid { dialect.without_rowid } else { "" };
        sql.script(&format!("CREATE TABLE {name}(k {key} PRIMARY KEY, v {blob}){tail}"))?;
    }
    Ok(())
}

/// The prepared statements of one table.
struct Statements {
    get: Statement,
    insert: Statement,
    update: Statement,
    delete: Statement,
    scan: Statement,
    scan_from: Statement,
}

impl Statements {
    fn prepare(sql: &mut impl Sql, table: &str) -> Outcome<Self> {
        Ok(Self {
            get: sql.prepare(&format!("SELECT v FROM {table} WHERE k=?1"))?,
            insert: sql.prepare(&format!("INSERT INTO {table}(k,v) VALUES(?1,?2)"))?,
            update: sql.prepare(&format!("UPDATE {table} SET v=?2 WHERE k=?1"))?,
            delete: sql.prepare(&format!("DELETE FROM {table} WHERE k=?1"))?,
            scan: sql.prepare(&format!("SELECT v FROM {table} ORDER BY k LIMIT ?1"))?,
            scan_from: sql
                .prepare(&format!("SELECT v FROM {table} WHERE k>=?2 ORDER BY k LIMIT ?1"))?,
        })
    }
}

/// A connection for SQL that speaks key-value.
pub struct KeyValueSql<S> {
    sql: S,
    tables: Vec<Statements>,
}

impl<S: Sql> KeyValueSql<S> {
    /// Prepares the statements for tables that are there.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn new(mut sql: S, tables: &[Table]) -> Outcome<Self> {
        let tables = tables
            .iter()
            .map(|t| Statements::prepare(&mut sql, &t.name))
            .collect::<Outcome<_>>()?;
        Ok(Self { sql, tables })
    }
}

impl<S: Sql> Connection for KeyValueSql<S> {
    fn begin(&mut self, begin: Begin) -> Outcome<()> {
        self.sql.begin(begin)
    }

    fn commit(&mut self) -> Outcome<()> {
        self.sql.commit()
    }

    fn rollback(&mut self) -> Outcome<()> {
        self.sql.rollback()
    }

    fn waits(&self) -> Waits {
        self.sql.waits()
    }
}

fn value(key: Key<'_>) -> Value<'_> {
    match key {
        Key::Int(int) => Value::Int(int),
        Key::Blob(bytes) => Value::Blob(bytes),
    }
}

impl<S: Sql> KeyValue for KeyValueSql<S> {
    fn get(&mut self, table: usize, key: Key<'_>, found: &mut dyn FnMut(&[u8])) -> Outcome<bool> {
        let statement = self.tables[table].get;
        let rows = self.sql.query(statement, &[value(key)], &mut |row| found(row.bytes(0)))?;
        Ok(rows > 0)
    }

    fn insert(&mut self, table: usize, key: Key<'_>, new: &[u8]) -> Outcome<()> {
        let statement = self.tables[table].insert;
        self.sql.execute(statement, &[value(key), Value::Blob(new)]).map(drop)
    }

    fn update(&mut self, table: usize, key: Key<'_>, new: &[u8]) -> Outcome<()> {
        let statement = self.tables[table].update;
        match self.sql.execute(statement, &[value(key), Value::Blob(new)])? {
            1 => Ok(()),
            changed => {
                Err(Failure::broken(format!("an update changed {changed} rows instead of one")))
            }
        }
    }

    fn delete(&mut self, table: usize, key: Key<'_>) -> Outcome<bool> {
        let statement = self.tables[table].delete;
        Ok(self.sql.execute(statement, &[value(key)])? > 0)
    }

    fn scan(
        &mut self,
        table: usize,
        from: Option<Key<'_>>,
        count: u64,
        found: &mut dyn FnMut(&[u8]),
    ) -> Outcome<u64> {
        let limit = Value::Int(i64::try_from(count).unwrap_or(i64::MAX));
        let statements = &self.tables[table];
        match from {
            None => self.sql.query(statements.scan, &[limit], &mut |row| found(row.bytes(0))),
            Some(key) => self
                .sql
                .query(statements.scan_from, &[limit, value(key)], &mut |row| found(row.bytes(0))),
        }
    }
}
