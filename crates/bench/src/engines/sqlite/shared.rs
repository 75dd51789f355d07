//! One connection for all threads, for databases that only their own connection can find.
//!
//! A thread holds the connection for a whole transaction, or for one statement outside of one. Statements are prepared
//! once for all threads, found again by their text.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::connection::SqliteConnection;
use crate::engines::{Begin, Connection, Outcome, Row, Sql, Statement, Value, Waits};

/// The connection and the statements it has.
struct Inner {
    connection: SqliteConnection,
    statements: HashMap<String, Statement>,
}

/// A connection that threads take in turn.
pub struct Shared(Mutex<Inner>);

impl Shared {
    /// Shares a connection.
    pub fn new(connection: SqliteConnection) -> Self {
        Self(Mutex::new(Inner { connection, statements: HashMap::new() }))
    }

    /// A thread that panics in the middle ends the trial, so what it left behind is never used.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One thread's way to the shared connection.
pub struct SharedConnection<'a> {
    shared: &'a Shared,
    /// Held from BEGIN to COMMIT or ROLLBACK.
    transaction: Option<MutexGuard<'a, Inner>>,
}

impl<'a> SharedConnection<'a> {
    /// A way to the connection that holds nothing yet.
    pub fn new(shared: &'a Shared) -> Self {
        Self { shared, transaction: None }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Inner) -> Outcome<T>) -> Outcome<T> {
        match &mut self.transaction {
            Some(inner) => act(inner),
            None => act(&mut self.shared.lock()),
        }
    }
}

impl Connection for SharedConnection<'_> {
    fn begin(&mut self, begin: Begin) -> Outcome<()> {
        let mut inner = self.shared.lock();
        inner.connection.begin(begin)?;
        self.transaction = Some(inner);
        Ok(())
    }

    fn commit(&mut self) -> Outcome<()> {
        self.with(|inner| inner.connection.commit())?;
        self.transaction = None;
        Ok(())
    }

    fn rollback(&mut self) -> Outcome<()> {
        match self.transaction.take() {
            Some(mut inner) => inner.connection.rollback(),
            None => Ok(()),
        }
    }

    fn waits(&self) -> Waits {
        Waits::default()
    }
}

impl Sql for SharedConnection<'_> {
    fn prepare(&mut self, text: &str) -> Outcome<Statement> {
        self.with(|inner| {
            if let Some(statement) = inner.statements.get(text) {
                return Ok(*statement);
            }
            let statement = inner.connection.prepare(text)?;
            inner.statements.insert(text.to_owned(), statement);
            Ok(statement)
        })
    }

    fn execute(&mut self, statement: Statement, values: &[Value<'_>]) -> Outcome<u64> {
        self.with(|inner| inner.connection.execute(statement, values))
    }

    fn query(
        &mut self,
        statement: Statement,
        values: &[Value<'_>],
        found: &mut dyn FnMut(&dyn Row),
    ) -> Outcome<u64> {
        self.with(|inner| inner.connection.query(statement, values, found))
    }

    fn script(&mut self, text: &str) -> Outcome<()> {
        self.with(|inner| inner.connection.script(text))
    }
}
