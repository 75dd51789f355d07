//! An engine whose stores say that a write is done and forget it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plait_bench::engines::{
    Begin, Connection, Engine, Key, KeyValue, Outcome, Row, Settings, Sql, Statement, Store, Table,
    Value, Waits,
};

/// Which writes are forgotten, by their number; the first is 0.
type Which = Arc<dyn Fn(u64) -> bool + Send + Sync>;

/// The engine.
pub struct Forgetful {
    inner: Box<dyn Engine>,
    /// How the statements begin that are counted.
    statements: &'static str,
    which: Which,
}

impl Forgetful {
    /// Lets an engine forget some of its writes by keys and of its statements that begin so.
    pub fn new(
        inner: Box<dyn Engine>,
        statements: &'static str,
        which: impl Fn(u64) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { inner, statements, which: Arc::new(which) }
    }
}

struct ForgetfulStore {
    inner: Box<dyn Store>,
    statements: &'static str,
    which: Which,
    writes: AtomicU64,
}

struct ForgetfulConnection<'a, C: ?Sized> {
    inner: Box<C>,
    store: &'a ForgetfulStore,
    /// Statements that are counted.
    counted: Vec<Statement>,
}

impl ForgetfulStore {
    fn forgets_now(&self) -> bool {
        // Relaxed: the counter hands out numbers and orders nothing else.
        (self.which)(self.writes.fetch_add(1, Ordering::Relaxed))
    }

    fn connection<C: ?Sized>(&self, inner: Box<C>) -> ForgetfulConnection<'_, C> {
        ForgetfulConnection { inner, store: self, counted: Vec::new() }
    }
}

impl Engine for Forgetful {
    fn open(&self, directory: &Path, settings: &Settings) -> Outcome<Box<dyn Store>> {
        Ok(Box::new(ForgetfulStore {
            inner: self.inner.open(directory, settings)?,
            statements: self.statements,
            which: Arc::clone(&self.which),
            writes: AtomicU64::new(0),
        }))
    }
}

impl Store for ForgetfulStore {
    fn create(&self, tables: &[Table]) -> Outcome<()> {
        self.inner.create(tables)
    }

    fn key_value(&self, tables: &[Table]) -> Outcome<Box<dyn KeyValue + '_>> {
        Ok(Box::new(self.connection(self.inner.key_value(tables)?)))
    }

    fn sql(&self) -> Outcome<Box<dyn Sql + '_>> {
        Ok(Box::new(self.connection(self.inner.sql()?)))
    }

    fn settings(&self) -> Outcome<Settings> {
        self.inner.settings()
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        self.inner.close()
    }
}

impl<C: Connection + ?Sized> Connection for ForgetfulConnection<'_, C> {
    fn begin(&mut self, begin: Begin) -> Outcome<()> {
        self.inner.begin(begin)
    }

    fn commit(&mut self) -> Outcome<()> {
        self.inner.commit()
    }

    fn rollback(&mut self) -> Outcome<()> {
        self.inner.rollback()
    }

    fn waits(&self) -> Waits {
        self.inner.waits()
    }
}

impl KeyValue for ForgetfulConnection<'_, dyn KeyValue + '_> {
    fn get(&mut self, table: usize, key: Key<'_>, found: &mut dyn FnMut(&[u8])) -> Outcome<bool> {
        self.inner.get(table, key, found)
    }

    fn insert(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        if self.store.forgets_now() { Ok(()) } else { self.inner.insert(table, key, value) }
    }

    fn update(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        if self.store.forgets_now() { Ok(()) } else { self.inner.update(table, key, value) }
    }

    fn delete(&mut self, table: usize, key: Key<'_>) -> Outcome<bool> {
        if self.store.forgets_now() { Ok(true) } else { self.inner.delete(table, key) }
    }

    fn scan(
        &mut self,
        table: usize,
        from: Option<Key<'_>>,
        count: u64,
        found: &mut dyn FnMut(&[u8]),
    ) -> Outcome<u64> {
        self.inner.scan(table, from, count, found)
    }
}

impl Sql for ForgetfulConnection<'_, dyn Sql + '_> {
    fn prepare(&mut self, text: &str) -> Outcome<Statement> {
        let statement = self.inner.prepare(text)?;
        if text.starts_with(self.store.statements) {
            self.counted.push(statement);
        }
        Ok(statement)
    }

    fn execute(&mut self, statement: Statement, values: &[Value<'_>]) -> Outcome<u64> {
        if self.counted.contains(&statement) && self.store.forgets_now() {
            return Ok(1);
        }
        self.inner.execute(statement, values)
    }

    fn query(
        &mut self,
        statement: Statement,
        values: &[Value<'_>],
        found: &mut dyn FnMut(&dyn Row),
    ) -> Outcome<u64> {
        self.inner.query(statement, values, found)
    }

    fn script(&mut self, text: &str) -> Outcome<()> {
        self.inner.script(text)
    }
}
