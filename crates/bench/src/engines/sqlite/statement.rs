//! A prepared statement.

#![allow(unsafe_code)]

use std::ffi::{CString, c_int};
use std::ptr;
use std::sync::Arc;

use super::api::{self, Api, Prepared};
use super::connection::SqliteConnection;
use crate::engines::{Failure, Outcome, Row, Value};

/// A prepared statement; the connection finalizes its statements before it closes.
pub struct SqliteStatement {
    api: Arc<Api>,
    prepared: Prepared,
    text: String,
}

impl SqliteStatement {
    /// Prepares a single statement.
    pub fn prepare(connection: &SqliteConnection, text: &str) -> Outcome<Self> {
        let api = Arc::clone(&connection.api);
        let sql =
            CString::new(text).map_err(|_| Failure::broken("a statement with a zero byte"))?;
        let mut prepared = ptr::null_mut();
        // SAFETY: an open connection, a text that ends in a zero byte, a place for the statement.
        let code = unsafe {
            (api.prepare_v2)(
                connection.database,
                sql.as_ptr(),
                -1,
                &raw mut prepared,
                ptr::null_mut(),
            )
        };
        if code != api::OK {
            return Err(connection.failure(code, text));
        }
        Ok(Self { api, prepared, text: text.to_owned() })
    }

    /// Runs to the end, gives each row to `found` and tells how many there were.
    pub fn run(
        &self,
        connection: &SqliteConnection,
        values: &[Value<'_>],
        found: &mut dyn FnMut(&dyn Row),
    ) -> Outcome<u64> {
        for (index, value) in (1..).zip(values) {
            let code = self.bind(index, *value);
            if code != api::OK {
                return Err(connection.failure(code, &self.text));
            }
        }
        let mut rows = 0;
        loop {
            // SAFETY: a prepared statement of this connection; bound memory outlives this call.
            match unsafe { (self.api.step)(self.prepared) } {
                api::ROW => {
                    rows += 1;
                    found(&SqliteRow { statement: self });
                }
                api::DONE => break,
                code => {
                    let failure = connection.failure(code, &self.text);
                    self.reset();
                    return Err(failure);
                }
            }
        }
        match self.reset() {
            api::OK => Ok(rows),
            code => Err(connection.failure(code, &self.text)),
        }
    }

    fn reset(&self) -> c_int {
        // SAFETY: a prepared statement.
        unsafe { (self.api.reset)(self.prepared) }
    }

    /// Binds without copying (`SQLITE_STATIC`): the memory outlives [`run`](Self::run), which resets at its end.
    fn bind(&self, index: c_int, value: Value<'_>) -> c_int {
        let length = |bytes: &[u8]| c_int::try_from(bytes.len()).unwrap_or(c_int::MAX);
        match value {
            // SAFETY: a prepared statement that is reset.
            Value::Null => unsafe { (self.api.bind_null)(self.prepared, index) },
            // SAFETY: as above.
            Value::Int(value) => unsafe { (self.api.bind_int64)(self.prepared, index, value) },
            // SAFETY: as above, and the bytes stay where they are for as long as the statement runs.
            Value::Text(text) => unsafe {
                (self.api.bind_text)(
                    self.prepared,
                    index,
                    text.as_ptr().cast(),
                    length(text.as_bytes()),
                    ptr::null(),
                )
            },
            // SAFETY: as above.
            Value::Blob(bytes) => unsafe {
                (self.api.bind_blob)(
                    self.prepared,
                    index,
                    bytes.as_ptr().cast(),
                    length(bytes),
                    ptr::null(),
                )
            },
        }
    }
}

impl Drop for SqliteStatement {
    fn drop(&mut self) {
        // SAFETY: a prepared statement that nobody uses after this.
        unsafe { (self.api.finalize)(self.prepared) };
    }
}

/// The row that a statement stands on.
struct SqliteRow<'a> {
    statement: &'a SqliteStatement,
}

impl SqliteRow<'_> {
    fn column(column: usize) -> c_int {
        c_int::try_from(column).expect("SQLite has at most 32,767 columns")
    }
}

impl Row for SqliteRow<'_> {
    fn int(&self, column: usize) -> i64 {
        // SAFETY: the statement stands on a row.
        unsafe { (self.statement.api.column_int64)(self.statement.prepared, Self::column(column)) }
    }

    fn bytes(&self, column: usize) -> &[u8] {
        let (api, prepared) = (&self.statement.api, self.statement.prepared);
        // SAFETY: the statement stands on a row.
        let data = unsafe { (api.column_blob)(prepared, Self::column(column)) };
        // SAFETY: as above; asked after column_blob, as SQLite wants it.
        let length = unsafe { (api.column_bytes)(prepared, Self::column(column)) };
        match usize::try_from(length) {
            // SAFETY: SQLite keeps that many bytes there until the next step or reset, and the row is gone by then.
            Ok(length) if !data.is_null() => unsafe {
                std::slice::from_raw_parts(data.cast(), length)
            },
            _ => &[],
        }
    }

    fn is_null(&self, column: usize) -> bool {
        // SAFETY: the statement stands on a row.
        unsafe {
            (self.statement.api.column_type)(self.statement.prepared, Self::column(column))
                == api::NULL
        }
    }
}
