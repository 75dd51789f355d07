//! A connection and its busy handler.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plait_client::{
    self as client, BUSY, BUSY_SNAPSHOT, LOCKED, Library, OpenFlags, SqlError, ValueRef,
};

use crate::engines::{
    Begin, Connection, Failure, Outcome, Refusal, Row, Sql, Statement, Value, Waits,
};

/// The delays of SQLite's own busy handler in milliseconds, for the first calls; the last one from then on.
const DELAYS_MS: [u64; 12] = [1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50, 100];

/// What the busy handler counts.
#[derive(Default)]
struct BusyCounter {
    timeout: Duration,
    slept: Duration,
    /// Of the wait that is going on.
    slept_now: Duration,
    calls: u64,
}

impl BusyCounter {
    /// Waits a little; tells whether to try again. `before` counts the calls of this wait so far.
    fn wait(&mut self, before: i32) -> bool {
        if before == 0 {
            self.slept_now = Duration::ZERO;
        }
        self.calls += 1;
        let index = usize::try_from(before).unwrap_or(0).min(DELAYS_MS.len() - 1);
        let left = self.timeout.saturating_sub(self.slept_now);
        let delay = Duration::from_millis(DELAYS_MS[index]).min(left);
        if delay.is_zero() {
            return false;
        }
        let begun = Instant::now();
        std::thread::sleep(delay);
        self.slept += begun.elapsed();
        self.slept_now += delay;
        true
    }
}

/// A connection of a loaded library.
pub struct SqliteConnection {
    pub(super) inner: client::Connection,
    statements: Vec<client::Statement>,
    /// BEGIN in each of its ways, COMMIT and ROLLBACK, prepared when first needed.
    control: [Option<Statement>; 6],
    /// Shared with the busy handler, which this connection's own thread runs.
    busy: Arc<Mutex<BusyCounter>>,
}

impl SqliteConnection {
    /// Opens or makes the database at a path, or under a `file:` URI.
    #[allow(unsafe_code)]
    pub fn open(library: Library, path: &Path, flags: OpenFlags) -> Outcome<Self> {
        // SAFETY: what is in here is reached through `&mut self` alone, but for `waits`, which asks SQLite nothing.
        let inner = unsafe { library.open_without_mutex(path, flags) }.map_err(|error| {
            SqlError { context: format!("cannot open {}", path.display()), ..error }
        })?;
        Ok(Self { inner, statements: Vec::new(), control: [None; 6], busy: Arc::default() })
    }

    fn counter(busy: &Mutex<BusyCounter>) -> MutexGuard<'_, BusyCounter> {
        busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits with SQLite's delays in a handler that counts.
    pub fn count_busy_handler_calls(&mut self, timeout_ms: u64) -> Outcome<()> {
        Self::counter(&self.busy).timeout = Duration::from_millis(timeout_ms);
        let busy = Arc::clone(&self.busy);
        Ok(self.inner.busy_handler(move |before| Self::counter(&busy).wait(before))?)
    }

    /// Leaves the waiting to the library.
    pub fn set_busy_timeout(&mut self, timeout_ms: u64) -> Outcome<()> {
        Ok(self.inner.busy_timeout(Duration::from_millis(timeout_ms))?)
    }

    fn control(&mut self, slot: usize, text: &str) -> Outcome<()> {
        let statement = match self.control[slot] {
            Some(statement) => statement,
            None => {
                let statement = self.prepare(text)?;
                *self.control[slot].insert(statement)
            }
        };
        self.query(statement, &[], &mut |_| ()).map(drop)
    }
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        let text = format!("{}: {}", error.context, error.said());
        match error.code {
            // SNAPSHOT and what Plait answers at COMMIT: repeating the statement cannot help.
            BUSY if error.extended == BUSY_SNAPSHOT => Self::Refused(Refusal::Conflict, text),
            BUSY => Self::Refused(Refusal::Busy, text),
            LOCKED => Self::Refused(Refusal::Deadlock, text),
            _ => Self::broken(text),
        }
    }
}

impl Connection for SqliteConnection {
    fn begin(&mut self, begin: Begin) -> Outcome<()> {
        let slot = begin as usize;
        let text = format!("BEGIN {}", begin.word());
        match self.control(slot, &text) {
            Err(Failure::Broken(error)) if begin == Begin::Concurrent => {
                Err(Failure::unsupported(format!("BEGIN CONCURRENT: {error:#}")))
            }
            done => done,
        }
    }

    fn commit(&mut self) -> Outcome<()> {
        self.control(4, "COMMIT")
    }

    fn rollback(&mut self) -> Outcome<()> {
        if self.inner.autocommit() { Ok(()) } else { self.control(5, "ROLLBACK") }
    }

    fn waits(&self) -> Waits {
        let busy = Self::counter(&self.busy);
        Waits { busy_handler_calls: busy.calls, busy_handler_slept_s: busy.slept.as_secs_f64() }
    }
}

impl Sql for SqliteConnection {
    fn prepare(&mut self, text: &str) -> Outcome<Statement> {
        self.statements.push(self.inner.prepare(text)?);
        Ok(Statement(self.statements.len() - 1))
    }

    fn execute(&mut self, statement: Statement, values: &[Value<'_>]) -> Outcome<u64> {
        self.query(statement, values, &mut |_| ())?;
        Ok(u64::try_from(self.inner.changes()).unwrap_or(0))
    }

    fn query(
        &mut self,
        statement: Statement,
        values: &[Value<'_>],
        found: &mut dyn FnMut(&dyn Row),
    ) -> Outcome<u64> {
        let values = values.iter().map(|value| match *value {
            Value::Null => ValueRef::Null,
            Value::Int(value) => ValueRef::Integer(value),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Blob(bytes) => ValueRef::Blob(bytes),
        });
        Ok(self.statements[statement.0].run_with(values, |row| found(row))?)
    }

    fn script(&mut self, text: &str) -> Outcome<()> {
        Ok(self.inner.execute(text)?)
    }
}

fn index(column: usize) -> i32 {
    i32::try_from(column).expect("SQLite has at most 32,767 columns")
}

impl Row for client::Statement {
    fn int(&self, column: usize) -> i64 {
        self.column_i64(index(column))
    }

    fn bytes(&self, column: usize) -> &[u8] {
        self.column_bytes(index(column))
    }

    fn is_null(&self, column: usize) -> bool {
        self.column_is_null(index(column))
    }
}
