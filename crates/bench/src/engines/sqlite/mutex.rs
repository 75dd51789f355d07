//! What many programs do so that SQLite's writers need not poll for its lock: one mutex of the program around whatever
//! writes.
//!
//! Each thread has a connection of its own. The mutex is held from BEGIN to COMMIT or ROLLBACK, and for one statement
//! that changes something outside of a transaction. Queries outside of one take no turn: in WAL mode they wait for nobody.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::connection::SqliteConnection;
use crate::engines::{Begin, Connection, Outcome, Row, Sql, Statement, Value, Waits};

/// A connection whose writers take turns behind a mutex.
pub struct InTurn<'a> {
    connection: SqliteConnection,
    turn: &'a Mutex<()>,
    /// Held from BEGIN to COMMIT or ROLLBACK.
    held: Option<MutexGuard<'a, ()>>,
}

impl<'a> InTurn<'a> {
    /// A connection that holds nothing yet.
    pub fn new(connection: SqliteConnection, turn: &'a Mutex<()>) -> Self {
        Self { connection, turn, held: None }
    }

    /// A thread that panics in the middle ends the trial, so what it left behind is never used.
    fn lock(&self) -> MutexGuard<'a, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection for InTurn<'_> {
    fn begin(&mut self, begin: Begin) -> Outcome<()> {
        let turn = self.lock();
        self.connection.begin(begin)?;
        self.held = Some(turn);
        Ok(())
    }

    fn commit(&mut self) -> Outcome<()> {
        self.connection.commit()?;
        self.held = None;
        Ok(())
    }

    fn rollback(&mut self) -> Outcome<()> {
        let done = self.connection.rollback();
        self.held = None;
        done
    }

    fn waits(&self) -> Waits {
        self.connection.waits()
    }
}

impl Sql for InTurn<'_> {
    fn prepare(&mut self, text: &str) -> Outcome<Statement> {
        self.connection.prepare(text)
    }

    fn execute(&mut self, statement: Statement, values: &[Value<'_>]) -> Outcome<u64> {
        let _turn = self.held.is_none().then(|| self.lock());
        self.connection.execute(statement, values)
    }

    fn query(
        &mut self,
        statement: Statement,
        values: &[Value<'_>],
        found: &mut dyn FnMut(&dyn Row),
    ) -> Outcome<u64> {
        self.connection.query(statement, values, found)
    }

    fn script(&mut self, text: &str) -> Outcome<()> {
        let _turn = self.held.is_none().then(|| self.lock());
        self.connection.script(text)
    }
}
