//! Statements that run, begin or end in the middle of the act: its collation `called` runs them.

use crate::sqlite::{Connection, SqlError, Statement, Step};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

/// One thing that is done in the middle of the act, or just before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Inside {
    /// A statement that gives rows is stepped once before the act, and stays open.
    Before(String),
    /// The same in the middle of the act.
    Half(String),
    /// The statement that was left open first ends.
    End,
    /// Statements. Their failure is swallowed.
    Run(String),
}

#[derive(Default)]
struct State {
    ahead: VecDeque<Inside>,
    /// Statements that are open.
    open: VecDeque<Statement>,
    connection: Option<Connection>,
}

/// What a connection does when its collation is called next.
#[derive(Clone, Default)]
pub struct Script(Arc<Mutex<State>>);

impl Script {
    /// The script of this connection, which gets the collation.
    pub fn of(connection: &Connection) -> Result<Self, SqlError> {
        let script = Self::default();
        let own = script.clone();
        connection.create_called_collation(move || own.step())?;
        Ok(script)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("one thread")
    }

    /// Does what comes before the act. From now on the collation goes through the rest, a step at each call.
    pub fn begin(&self, connection: &Connection, steps: &[Inside]) {
        for step in steps {
            match step {
                Inside::Before(sql) => self.leave_open(connection, sql),
                other => self.state().ahead.push_back(other.clone()),
            }
        }
        self.state().connection = Some(connection.clone());
    }

    /// The act is over: everything ends.
    pub fn end(&self) {
        let State { ahead, open, connection } = std::mem::take(&mut *self.state());
        drop((ahead, open, connection));
    }

    fn leave_open(&self, connection: &Connection, sql: &str) {
        if let Ok(mut statement) = connection.prepare(sql)
            && statement.step() == Ok(Step::Row)
        {
            self.state().open.push_back(statement);
        }
    }

    fn step(&self) {
        // Not while it is locked: what runs may call the collation again.
        let (step, connection) = {
            let mut state = self.state();
            (state.ahead.pop_front(), state.connection.clone())
        };
        let (Some(step), Some(connection)) = (step, connection) else { return };
        match step {
            Inside::Before(_) => {}
            Inside::Half(sql) => self.leave_open(&connection, &sql),
            Inside::End => {
                let first = self.state().open.pop_front();
                drop(first);
            }
            Inside::Run(sql) => drop(connection.execute(&sql)),
        }
    }
}
