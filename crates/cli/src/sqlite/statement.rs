//! A prepared statement.

use std::fmt;
use std::ptr::NonNull;
use std::rc::Rc;

use super::connection::Handle;
use super::error::SqlError;
use super::library::{RawStatement, text};

const ROW: i32 = 100;
const DONE: i32 = 101;
const TYPE_INTEGER: i32 = 1;
const TYPE_NULL: i32 = 5;
/// `SQLITE_STATIC`: what is bound stays where it is until it is bound anew or the statement ends.
const STATIC: isize = 0;

/// A value of a row. Doubles and blobs come as their text, which is all that is needed here.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// NULL.
    Null,
    /// An integer.
    Integer(i64),
    /// Anything else.
    Text(String),
}

impl Value {
    /// The integer, or 0.
    pub fn integer(&self) -> i64 {
        match self {
            Value::Integer(n) => *n,
            _ => 0,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => Ok(()),
            Value::Integer(n) => n.fmt(f),
            Value::Text(s) => f.write_str(s),
        }
    }
}

/// A prepared statement. Columns are numbered from 0, parameters from 1.
pub struct Statement {
    handle: Rc<Handle>,
    raw: NonNull<RawStatement>,
    /// What is bound as a blob.
    blob: Vec<u8>,
}

impl Statement {
    pub(super) fn new(handle: Rc<Handle>, raw: NonNull<RawStatement>) -> Statement {
        Statement { handle, raw, blob: Vec::new() }
    }

    /// Binds an integer.
    pub fn bind_integer(&mut self, index: i32, value: i64) -> Result<(), SqlError> {
        // SAFETY: the statement is alive; a wrong index is an error code.
        let code = unsafe { (self.handle.functions.bind_int64)(self.raw.as_ptr(), index, value) };
        self.handle.check(code)
    }

    /// Binds a blob that `fill` writes; its length stays what it was at the first call.
    pub fn bind_blob(
        &mut self,
        index: i32,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SqlError> {
        self.blob.resize(len, 0);
        fill(&mut self.blob);
        // SAFETY: the bytes stay in this statement, which changes them only here, where they are bound anew.
        let code = unsafe {
            let (start, len) = (self.blob.as_ptr().cast(), len as u64);
            (self.handle.functions.bind_blob64)(self.raw.as_ptr(), index, start, len, STATIC)
        };
        self.handle.check(code)
    }

    /// Steps to the end, drops the rows and resets, also after an error.
    pub fn run(&mut self) -> Result<(), SqlError> {
        self.each(|_| ())
    }

    /// Steps to the end, returns the rows and resets.
    pub fn rows(&mut self) -> Result<Vec<Vec<Value>>, SqlError> {
        let mut rows = Vec::new();
        self.each(|statement| rows.push(statement.row()))?;
        Ok(rows)
    }

    /// Steps to the end and returns the bytes of the first column of the last row.
    pub fn bytes_of_column(&mut self) -> Result<usize, SqlError> {
        let mut bytes = 0;
        self.each(|statement| {
            // SAFETY: a row is at hand; a wrong index gives 0.
            let n = unsafe { (statement.handle.functions.column_bytes)(statement.raw.as_ptr(), 0) };
            bytes = n as usize;
        })?;
        Ok(bytes)
    }

    /// Names of the columns.
    pub fn columns(&self) -> Vec<String> {
        (0..self.column_count())
            .map(|i| {
                // SAFETY: the statement is alive and has this column.
                text(unsafe { (self.handle.functions.column_name)(self.raw.as_ptr(), i) })
            })
            .collect()
    }

    fn column_count(&self) -> i32 {
        // SAFETY: the statement is alive.
        unsafe { (self.handle.functions.column_count)(self.raw.as_ptr()) }
    }

    fn each(&mut self, mut visit: impl FnMut(&Statement)) -> Result<(), SqlError> {
        let outcome = loop {
            // SAFETY: the statement is alive.
            match unsafe { (self.handle.functions.step)(self.raw.as_ptr()) } {
                ROW => visit(self),
                DONE => break Ok(()),
                code => break Err(self.handle.error(code)),
            }
        };
        // SAFETY: the statement is alive. The code repeats that of the last step.
        unsafe { (self.handle.functions.reset)(self.raw.as_ptr()) };
        outcome
    }

    fn row(&self) -> Vec<Value> {
        (0..self.column_count()).map(|i| self.column(i)).collect()
    }

    fn column(&self, i: i32) -> Value {
        let (functions, raw) = (self.handle.functions, self.raw.as_ptr());
        // SAFETY: a row is at hand; a wrong index gives NULL.
        match unsafe { (functions.column_type)(raw, i) } {
            // SAFETY: as above.
            TYPE_INTEGER => Value::Integer(unsafe { (functions.column_int64)(raw, i) }),
            TYPE_NULL => Value::Null,
            _ => {
                // SAFETY: as above; the text ends in a zero byte and is copied before the next call.
                Value::Text(text(unsafe { (functions.column_text)(raw, i) }.cast()))
            }
        }
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        // SAFETY: the statement is alive and not used again.
        unsafe { (self.handle.functions.finalize)(self.raw.as_ptr()) };
    }
}
