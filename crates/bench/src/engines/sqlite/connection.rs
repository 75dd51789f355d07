//! A connection and its busy handler.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::api::{self, Api, Database};
use super::statement::SqliteStatement;
use crate::engines::{
    Begin, Connection, Failure, Outcome, Refusal, Row, Sql, Statement, Value, Waits,
};

/// The delays of SQLite's own busy handler in milliseconds, for the first calls; the last one from then on.
const DELAYS_MS: [u64; 12] = [1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50, 100];

/// What the busy handler counts; SQLite holds its address.
struct BusyCounter {
    timeout: Duration,
    slept: Duration,
    /// Of the wait that is going on.
    slept_now: Duration,
    calls: u64,
}

impl BusyCounter {
    /// Waits a little; tells whether to try again. `before` counts the calls of this wait so far.
    fn wait(&mut self, before: c_int) -> bool {
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

unsafe extern "C" fn busy_handler(counter: *mut c_void, before: c_int) -> c_int {
    // SAFETY: the address of the connection's own counter, which SQLite passes from the thread that uses the
    // connection, and nobody else looks at it during a call.
    let counter = unsafe { &mut *counter.cast::<BusyCounter>() };
    c_int::from(counter.wait(before))
}

/// A connection of a loaded library.
pub struct SqliteConnection {
    pub(super) api: Arc<Api>,
    pub(super) database: Database,
    statements: Vec<SqliteStatement>,
    /// BEGIN in each of its ways, COMMIT and ROLLBACK, prepared when first needed.
    control: [Option<Statement>; 6],
    /// Boxed twice over: SQLite keeps the address.
    busy: Box<BusyCounter>,
}

// SAFETY: the libraries are built so that a connection may be used by any thread, one at a time; all pointers in here
// belong to this connection alone.
unsafe impl Send for SqliteConnection {}

impl SqliteConnection {
    /// Opens or makes the database at a path.
    pub fn open(api: &Arc<Api>, path: &str) -> Outcome<Self> {
        let name = CString::new(path).map_err(|_| Failure::broken("a path with a zero byte"))?;
        let mut database = ptr::null_mut();
        // SAFETY: the name ends in a zero byte, and the connection's address is written to a place of its type.
        let code = unsafe {
            (api.open_v2)(name.as_ptr(), &raw mut database, api::OPEN_FLAGS, ptr::null())
        };
        let busy = BusyCounter {
            timeout: Duration::ZERO,
            slept: Duration::ZERO,
            slept_now: Duration::ZERO,
            calls: 0,
        };
        let connection = Self {
            api: Arc::clone(api),
            database,
            statements: Vec::new(),
            control: [None; 6],
            busy: Box::new(busy),
        };
        if code != api::OK {
            return Err(connection.failure(code, &format!("cannot open {path}")));
        }
        // SAFETY: an open connection.
        unsafe { (api.extended_result_codes)(database, 1) };
        Ok(connection)
    }

    /// Waits with SQLite's delays in a handler that counts.
    pub fn count_busy_handler_calls(&mut self, timeout_ms: u64) {
        self.busy.timeout = Duration::from_millis(timeout_ms);
        let counter: *mut BusyCounter = &raw mut *self.busy;
        // SAFETY: the counter is boxed and lives until the connection is closed in `drop`.
        unsafe { (self.api.busy_handler)(self.database, Some(busy_handler), counter.cast()) };
    }

    /// Leaves the waiting to the library.
    pub fn set_busy_timeout(&mut self, timeout_ms: u64) {
        let timeout_ms = c_int::try_from(timeout_ms).unwrap_or(c_int::MAX);
        // SAFETY: an open connection.
        unsafe { (self.api.busy_timeout)(self.database, timeout_ms) };
    }

    /// What a result code and the connection's message mean.
    pub(super) fn failure(&self, code: c_int, doing: &str) -> Failure {
        // SAFETY: errmsg takes an open connection or none.
        let text = unsafe { (self.api.errmsg)(self.database) };
        // SAFETY: a text that ends in a zero byte and lasts until the connection's next call.
        let text = unsafe { CStr::from_ptr(text) };
        let text = format!("{doing}: {} (code {code})", text.to_string_lossy());
        match code & 0xff {
            // SNAPSHOT and what Plait answers at COMMIT: repeating the statement cannot help.
            api::BUSY if code == api::BUSY_SNAPSHOT => Failure::Refused(Refusal::Conflict, text),
            api::BUSY => Failure::Refused(Refusal::Busy, text),
            api::LOCKED => Failure::Refused(Refusal::Deadlock, text),
            _ => Failure::broken(text),
        }
    }

    fn control(&mut self, slot: usize, text: &str) -> Outcome<()> {
        let statement = match self.control[slot] {
            Some(statement) => statement,
            None => {
                let statement = self.prepare(text)?;
                *self.control[slot].insert(statement)
            }
        };
        self.execute(statement, &[]).map(drop)
    }

    fn in_transaction(&self) -> bool {
        // SAFETY: an open connection.
        unsafe { (self.api.get_autocommit)(self.database) == 0 }
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
        if self.in_transaction() { self.control(5, "ROLLBACK") } else { Ok(()) }
    }

    fn waits(&self) -> Waits {
        Waits {
            busy_handler_calls: self.busy.calls,
            busy_handler_slept_s: self.busy.slept.as_secs_f64(),
        }
    }
}

impl Sql for SqliteConnection {
    fn prepare(&mut self, text: &str) -> Outcome<Statement> {
        let statement = SqliteStatement::prepare(self, text)?;
        self.statements.push(statement);
        Ok(Statement(self.statements.len() - 1))
    }

    fn execute(&mut self, statement: Statement, values: &[Value<'_>]) -> Outcome<u64> {
        self.statements[statement.0].run(self, values, &mut |_| ())?;
        // SAFETY: an open connection.
        let changed = unsafe { (self.api.changes)(self.database) };
        Ok(u64::try_from(changed).unwrap_or(0))
    }

    fn query(
        &mut self,
        statement: Statement,
        values: &[Value<'_>],
        found: &mut dyn FnMut(&dyn Row),
    ) -> Outcome<u64> {
        self.statements[statement.0].run(self, values, found)
    }

    fn script(&mut self, text: &str) -> Outcome<()> {
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            SqliteStatement::prepare(self, part)?.run(self, &[], &mut |_| ())?;
        }
        Ok(())
    }
}

impl Drop for SqliteConnection {
    fn drop(&mut self) {
        self.statements.clear();
        // SAFETY: all statements are finalized and nobody uses the connection after this.
        unsafe { (self.api.close)(self.database) };
    }
}
