//! A prepared statement.
//!
//! What the measured loops of the suite call is inlined into them: a binding that costs more would show in its numbers.

use crate::api::{Functions, RawStatement};
use crate::connection::{Inner, text};
use crate::error::Result;
use crate::value::{Value, ValueRef};
use std::ffi::c_int;
use std::sync::Arc;

const ROW: c_int = 100;
const DONE: c_int = 101;

/// `SQLITE_STATIC`: SQLite reads what is bound where it is.
const STATIC: isize = 0;
/// `SQLITE_TRANSIENT`: SQLite copies what is bound.
const TRANSIENT: isize = -1;

/// What a step gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A row is ready to be read.
    Row,
    /// The statement is done.
    Done,
}

/// A prepared statement. Columns are numbered from 0, parameters from 1.
pub struct Statement {
    connection: Arc<Inner>,
    raw: *mut RawStatement,
    sql: String,
    /// How many parameters point to what [`Statement::run_with`] has borrowed, and may be gone.
    lent: usize,
}

// SAFETY: SQLite in serialized mode allows a statement to be used from any thread.
unsafe impl Send for Statement {}

impl Statement {
    pub(crate) fn new(connection: Arc<Inner>, raw: *mut RawStatement, sql: &str) -> Self {
        Self { connection, raw, sql: sql.to_owned(), lent: 0 }
    }

    #[inline]
    fn functions(&self) -> &'static Functions {
        self.connection.functions()
    }

    #[inline]
    fn check(&self, code: c_int) -> Result<()> {
        self.connection.check(code, &self.sql)
    }

    /// Its text.
    #[must_use]
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// Goes to the next row.
    ///
    /// # Panics
    /// If it has been run with borrowed parameters before.
    pub fn step(&mut self) -> Result<Step> {
        assert_eq!(self.lent, 0, "its parameters were borrowed: {}", self.sql);
        match self.go() {
            ROW => Ok(Step::Row),
            DONE => Ok(Step::Done),
            code => Err(self.connection.error(code, &self.sql)),
        }
    }

    #[inline]
    fn go(&mut self) -> c_int {
        // SAFETY: the statement is alive, and so is what is bound to it: `step` and `run_with` see to that.
        unsafe { (self.functions().step)(self.raw) }
    }

    /// Runs to the end with parameters 1, 2, ... that SQLite reads where they are; shows each row, says how many there were, and resets.
    ///
    /// # Panics
    /// If it was run with more of them before: the others point to what may be gone.
    #[inline]
    pub fn run_with<'a>(
        &mut self,
        parameters: impl IntoIterator<Item = ValueRef<'a>>,
        mut visit: impl FnMut(&Self),
    ) -> Result<u64> {
        let mut bound = 0;
        for parameter in parameters {
            bound += 1;
            self.lent = self.lent.max(bound);
            let index = c_int::try_from(bound).expect("not that many");
            self.bind_where(index, parameter, STATIC)?;
        }
        assert!(bound >= self.lent, "it was run with more parameters before: {}", self.sql);
        let mut rows = 0;
        loop {
            match self.go() {
                ROW => {
                    rows += 1;
                    visit(self);
                }
                DONE => break,
                code => {
                    let error = self.connection.error(code, &self.sql);
                    self.reset();
                    return Err(error);
                }
            }
        }
        // SAFETY: the statement is alive.
        self.check(unsafe { (self.functions().reset)(self.raw) })?;
        Ok(rows)
    }

    /// Back to before the first row. Returns nothing: the code of `sqlite3_reset` repeats that of the last step.
    pub fn reset(&mut self) {
        // SAFETY: the statement is alive.
        unsafe { (self.functions().reset)(self.raw) };
    }

    /// Steps to the end, drops the rows and resets. On an error it is reset as well.
    pub fn run(&mut self) -> Result<()> {
        let outcome = loop {
            match self.step() {
                Ok(Step::Row) => {}
                Ok(Step::Done) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.reset();
        outcome
    }

    /// Steps to the end and returns the rows; resets.
    pub fn collect_rows(&mut self) -> Result<Vec<Vec<Value>>> {
        let mut rows = Vec::new();
        let outcome = loop {
            match self.step() {
                Ok(Step::Row) => rows.push(self.row()),
                Ok(Step::Done) => break Ok(rows),
                Err(error) => break Err(error),
            }
        };
        self.reset();
        outcome
    }

    /// Whether it makes no direct change to the database.
    #[must_use]
    pub fn is_readonly(&self) -> bool {
        // SAFETY: the statement is alive.
        unsafe { (self.connection.more().stmt_readonly)(self.raw) != 0 }
    }

    /// Binds an integer.
    pub fn bind_i64(&mut self, index: i32, value: i64) -> Result<()> {
        // SAFETY: the statement is alive; a wrong index is an error code.
        let code = unsafe { (self.functions().bind_int64)(self.raw, index, value) };
        self.check(code)
    }

    /// Binds text.
    pub fn bind_text(&mut self, index: i32, value: &[u8]) -> Result<()> {
        self.bind_where(index, ValueRef::Text(value), TRANSIENT)
    }

    /// Binds a blob.
    pub fn bind_blob(&mut self, index: i32, value: &[u8]) -> Result<()> {
        self.bind_where(index, ValueRef::Blob(value), TRANSIENT)
    }

    /// Binds a blob of zeros.
    pub fn bind_zeroblob(&mut self, index: i32, length: u64) -> Result<()> {
        // SAFETY: the statement is alive; a wrong index is an error code.
        let code = unsafe { (self.connection.more().bind_zeroblob64)(self.raw, index, length) };
        self.check(code)
    }

    /// Binds any value.
    pub fn bind(&mut self, index: i32, value: &Value) -> Result<()> {
        self.bind_where(index, value.into(), TRANSIENT)
    }

    #[inline]
    fn bind_where(&mut self, index: i32, value: ValueRef<'_>, place: isize) -> Result<()> {
        let (functions, raw) = (self.functions(), self.raw);
        let length = |bytes: &[u8]| c_int::try_from(bytes.len()).expect("less than 2 GiB");
        let code = match value {
            // SAFETY: the statement is alive; a wrong index is an error code.
            ValueRef::Null => unsafe { (functions.bind_null)(raw, index) },
            // SAFETY: as above.
            ValueRef::Integer(value) => unsafe { (functions.bind_int64)(raw, index, value) },
            // SAFETY: as above.
            ValueRef::Real(value) => unsafe { (functions.bind_double)(raw, index, value) },
            ValueRef::Text(text) => {
                let (start, length) = (text.as_ptr().cast(), length(text));
                // SAFETY: as above; the bytes are given with their length, and SQLite copies them, or they stay while it runs.
                unsafe { (functions.bind_text)(raw, index, start, length, place) }
            }
            ValueRef::Blob(bytes) => {
                let (start, length) = (bytes.as_ptr().cast(), length(bytes));
                // SAFETY: as above.
                unsafe { (functions.bind_blob)(raw, index, start, length, place) }
            }
        };
        self.check(code)
    }

    /// Binds parameters 1, 2, ... in order.
    pub fn bind_all(&mut self, values: &[Value]) -> Result<()> {
        (1..).zip(values).try_for_each(|(index, value)| self.bind(index, value))
    }

    /// Number of result columns.
    #[must_use]
    pub fn column_count(&self) -> i32 {
        // SAFETY: the statement is alive.
        unsafe { (self.functions().column_count)(self.raw) }
    }

    /// Names of the result columns.
    #[must_use]
    pub fn column_names(&self) -> Vec<String> {
        let name = |index| {
            // SAFETY: the statement is alive and has this column.
            let name = unsafe { (self.functions().column_name)(self.raw, index) };
            // SAFETY: null, or a C string that is there until the next call.
            unsafe { text(name) }
        };
        (0..self.column_count()).map(name).collect()
    }

    /// Whether a column is NULL.
    #[must_use]
    #[inline]
    pub fn column_is_null(&self, index: i32) -> bool {
        // SAFETY: the statement is alive; outside a row the type is NULL.
        unsafe { (self.functions().column_type)(self.raw, index) == 5 }
    }

    /// A column as an integer, converted as SQLite converts.
    #[must_use]
    #[inline]
    pub fn column_i64(&self, index: i32) -> i64 {
        // SAFETY: the statement is alive; outside a row the result is 0.
        unsafe { (self.functions().column_int64)(self.raw, index) }
    }

    /// The bytes of a column as text or blob, valid until the next call on the statement.
    #[must_use]
    #[inline]
    pub fn column_bytes(&self, index: i32) -> &[u8] {
        // SAFETY: the statement is alive.
        let bytes = unsafe { (self.functions().column_blob)(self.raw, index) };
        self.borrow_bytes(index, bytes.cast())
    }

    fn column_text(&self, index: i32) -> &[u8] {
        // SAFETY: the statement is alive.
        let bytes = unsafe { (self.functions().column_text)(self.raw, index) };
        self.borrow_bytes(index, bytes)
    }

    #[inline]
    fn borrow_bytes(&self, index: i32, bytes: *const u8) -> &[u8] {
        // SAFETY: asked right after the bytes, so no conversion happens between.
        let length = unsafe { (self.functions().column_bytes)(self.raw, index) };
        if bytes.is_null() {
            return &[];
        }
        let length = usize::try_from(length).expect("a length is not negative");
        // SAFETY: SQLite guarantees `length` bytes there until the next step, reset or conversion; stepping and
        // resetting borrow the statement mutably, so the slice cannot outlive them.
        unsafe { std::slice::from_raw_parts(bytes, length) }
    }

    /// A column as a value of its own storage class.
    #[must_use]
    pub fn column(&self, index: i32) -> Value {
        // SAFETY: the statement is alive; outside a row the type is NULL.
        match unsafe { (self.functions().column_type)(self.raw, index) } {
            1 => Value::Integer(self.column_i64(index)),
            // SAFETY: as above.
            2 => Value::Real(unsafe { (self.functions().column_double)(self.raw, index) }),
            3 => Value::Text(self.column_text(index).to_vec()),
            4 => Value::Blob(self.column_bytes(index).to_vec()),
            _ => Value::Null,
        }
    }

    /// All columns of the current row.
    #[must_use]
    pub fn row(&self) -> Vec<Value> {
        (0..self.column_count()).map(|index| self.column(index)).collect()
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        // SAFETY: finalized once, and the connection is still open because the statement owns a share of it.
        unsafe { (self.functions().finalize)(self.raw) };
    }
}
