//! SQL beside maps, on the same connection and in the same transaction: small, and enough to have no need of another crate.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::ptr::{self, NonNull};

use crate::datum::{Datum, Stored};
use crate::error::{Error, Mismatch, Result};
use crate::ffi::{self, RawStatement};
use crate::session::Session;
use crate::types::Value;

/// Characters of a statement that an error shows.
const SHOWN_MAX: usize = 60;

/// A prepared statement. It ends with the value.
struct Statement<'s> {
    session: &'s Session,
    raw: NonNull<RawStatement>,
    sql: &'s str,
}

/// A row of a query.
pub struct Row<'r> {
    statement: &'r Statement<'r>,
}

impl Session {
    /// Runs one statement; answers how many rows it has changed.
    ///
    /// ```
    /// # fn main() -> plait::Result<()> {
    /// use plait::params;
    /// let connection = plait::Connection::open_in_memory()?;
    /// connection.execute("CREATE TABLE t(a, b)", &[])?;
    /// assert_eq!(connection.execute("INSERT INTO t VALUES(?1, ?2)", params![1, "x"])?, 1);
    /// let rows = connection.query("SELECT a, b FROM t", &[], |row| Ok((row.get::<i64>(0)?, row.get::<String>(1)?)))?;
    /// assert_eq!(rows, [(1, "x".to_owned())]);
    /// # Ok(()) }
    /// ```
    pub fn execute(&self, sql: &str, params: &[Datum<'_>]) -> Result<u64> {
        self.may_write()?;
        let statement = self.prepare_one(sql)?;
        statement.bind(params)?;
        let before = self.total_changes();
        while statement.step()? {}
        drop(statement);
        if self.total_changes() == before {
            return Ok(0);
        }
        // SAFETY: the connection is open.
        let changed = unsafe { ffi::sqlite3_changes64(self.raw()) };
        Ok(changed.unsigned_abs())
    }

    /// Runs statements without parameters, one after the other, until one fails.
    pub fn execute_batch(&self, sql: &str) -> Result<()> {
        let mut rest = sql;
        while !rest.is_empty() {
            self.may_write()?;
            let (statement, after) = self.prepare(rest)?;
            if let Some(statement) = statement {
                while statement.step()? {}
            }
            rest = after;
        }
        Ok(())
    }

    /// The rows of one query, each as what `read` makes of it.
    pub fn query<T>(
        &self,
        sql: &str,
        params: &[Datum<'_>],
        mut read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.may_write()?;
        let statement = self.prepare_one(sql)?;
        statement.rows(params, &mut read, usize::MAX)
    }

    /// The first row of one query, if there is one.
    pub fn query_row<T>(
        &self,
        sql: &str,
        params: &[Datum<'_>],
        mut read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        self.may_write()?;
        let statement = self.prepare_one(sql)?;
        Ok(statement.rows(params, &mut read, 1)?.pop())
    }

    /// As [`Session::query`], and refuses statements that write.
    pub(crate) fn query_only<T>(
        &self,
        sql: &str,
        params: &[Datum<'_>],
        mut read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.may_write()?;
        let statement = self.prepare_one(sql)?;
        // SAFETY: the statement is prepared.
        if unsafe { ffi::sqlite3_stmt_readonly(statement.raw.as_ptr()) } == 0 {
            return Err(Error::Refused(format!(
                "{} writes, in a transaction that reads",
                doing(sql)
            )));
        }
        statement.rows(params, &mut read, usize::MAX)
    }

    fn total_changes(&self) -> i64 {
        // SAFETY: the connection is open.
        unsafe { ffi::sqlite3_total_changes64(self.raw()) }
    }

    /// The first statement, if it is one and no comment, and what follows it.
    fn prepare<'s>(&'s self, sql: &'s str) -> Result<(Option<Statement<'s>>, &'s str)> {
        let len = c_int::try_from(sql.len())
            .map_err(|_| Error::Refused("a statement is longer than 2 GiB".into()))?;
        // SQLite would end there, without a word, and what follows would be neither run nor refused.
        if let Some(at) = sql.find('\0') {
            return Err(Error::Refused(format!(
                "{}: there is a zero byte at {at}, which no SQL text can hold; a value may, as a parameter",
                doing(&sql.replace('\0', "\\0"))
            )));
        }
        let start = sql.as_ptr().cast::<c_char>();
        let (mut raw, mut tail) = (ptr::null_mut(), ptr::null());
        // SAFETY: the connection is open, the text is passed with its length, the others take the answers.
        let code =
            unsafe { ffi::sqlite3_prepare_v2(self.raw(), start, len, &raw mut raw, &raw mut tail) };
        self.check(code, || doing(sql))?;
        let used = tail.addr().saturating_sub(start.addr());
        let rest = sql.get(used..).unwrap_or_default();
        Ok((NonNull::new(raw).map(|raw| Statement { session: self, raw, sql }), rest))
    }

    fn prepare_one<'s>(&'s self, sql: &'s str) -> Result<Statement<'s>> {
        let (statement, mut rest) = self.prepare(sql)?;
        let statement = statement.ok_or_else(|| {
            Error::Refused(format!("{}: there is no statement in it", doing(sql)))
        })?;
        while !rest.is_empty() {
            let (next, after) = self.prepare(rest)?;
            if next.is_some() {
                return Err(Error::Refused(format!(
                    "{}: one statement is wanted, for several there is execute_batch",
                    doing(sql)
                )));
            }
            rest = after;
        }
        Ok(statement)
    }
}

impl Statement<'_> {
    fn bind(&self, params: &[Datum<'_>]) -> Result<()> {
        // SAFETY: the statement is prepared.
        let wanted = unsafe { ffi::sqlite3_bind_parameter_count(self.raw.as_ptr()) };
        if usize::try_from(wanted).ok() != Some(params.len()) {
            return Err(Error::Refused(format!(
                "{} has {wanted} parameters, and {} are given",
                doing(self.sql),
                params.len()
            )));
        }
        (1..).zip(params).try_for_each(|(index, param)| self.bind_one(index, param))
    }

    /// Binds bytes where they are: the parameters are borrowed for longer than the statement lives.
    fn bind_one(&self, index: c_int, param: &Datum<'_>) -> Result<()> {
        let raw = self.raw.as_ptr();
        let code = match param {
            // SAFETY: the statement is prepared and not stepped.
            Datum::Null => unsafe { ffi::sqlite3_bind_null(raw, index) },
            // SAFETY: as above.
            Datum::Integer(value) => unsafe { ffi::sqlite3_bind_int64(raw, index, *value) },
            Datum::Real(value) if value.is_nan() => {
                return Err(Error::Refused(format!(
                    "parameter {index} of {} is a real that is not a number",
                    doing(self.sql)
                )));
            }
            // SAFETY: as above.
            Datum::Real(value) => unsafe { ffi::sqlite3_bind_double(raw, index, *value) },
            Datum::Text(text) => {
                let (data, len) = (text.as_ptr().cast(), text.len() as u64);
                // SAFETY: so many bytes lie there, and stay as long as the statement.
                unsafe { ffi::sqlite3_bind_text64(raw, index, data, len, None, ffi::UTF8) }
            }
            Datum::Bytes(bytes) => {
                let (data, len) = (bytes.as_ptr().cast(), bytes.len() as u64);
                // SAFETY: as above.
                unsafe { ffi::sqlite3_bind_blob64(raw, index, data, len, None) }
            }
        };
        self.session.check(code, || doing(self.sql))
    }

    /// Whether there is a row.
    fn step(&self) -> Result<bool> {
        // SAFETY: the statement is prepared, and nobody holds anything of its last row: rows are borrowed for shorter.
        match unsafe { ffi::sqlite3_step(self.raw.as_ptr()) } {
            ffi::ROW => Ok(true),
            ffi::DONE => Ok(false),
            code => Err(self.session.error(code, doing(self.sql))),
        }
    }

    fn rows<T>(
        &self,
        params: &[Datum<'_>],
        read: &mut dyn FnMut(&Row<'_>) -> Result<T>,
        max: usize,
    ) -> Result<Vec<T>> {
        self.bind(params)?;
        let mut rows = Vec::new();
        while rows.len() < max && self.step()? {
            rows.push(read(&Row { statement: self })?);
        }
        Ok(rows)
    }
}

impl Drop for Statement<'_> {
    fn drop(&mut self) {
        // SAFETY: it was prepared, and ends here.
        unsafe { ffi::sqlite3_finalize(self.raw.as_ptr()) };
    }
}

impl Row<'_> {
    /// A column, counted from 0, as a type: `row.get::<&str>(0)`.
    pub fn get<V: Value>(&self, column: usize) -> Result<V::Out<'_>> {
        let of = || format!("column {column} of {}", doing(self.statement.sql));
        let stored = self.stored(column).map_err(|mismatch| mismatch.about(of()))?;
        V::decode(stored).map_err(|mismatch| mismatch.about(of()))
    }

    /// How many columns there are.
    pub fn len(&self) -> usize {
        // SAFETY: the statement is prepared.
        let count = unsafe { ffi::sqlite3_column_count(self.statement.raw.as_ptr()) };
        usize::try_from(count).unwrap_or(0)
    }

    /// Whether there is no column.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn stored(&self, column: usize) -> Result<Stored<'_>, Mismatch> {
        if column >= self.len() {
            return Err(Mismatch::new("not there: the query has fewer columns"));
        }
        let (raw, column) = (self.statement.raw.as_ptr(), column as c_int);
        // SAFETY: the statement is on a row, and the column exists.
        Ok(match unsafe { ffi::sqlite3_column_type(raw, column) } {
            // SAFETY: as above.
            ffi::INTEGER => Stored::Integer(unsafe { ffi::sqlite3_column_int64(raw, column) }),
            // SAFETY: as above.
            ffi::FLOAT => Stored::Real(unsafe { ffi::sqlite3_column_double(raw, column) }),
            ffi::TEXT => {
                // SAFETY: as above. Asked for before its size, since it may have to be converted.
                let data = unsafe { ffi::sqlite3_column_text(raw, column) };
                let text = std::str::from_utf8(self.bytes(data.cast(), column));
                Stored::Text(text.map_err(|_| Mismatch::new("text that is not UTF-8"))?)
            }
            ffi::BLOB => {
                // SAFETY: as above.
                let data = unsafe { ffi::sqlite3_column_blob(raw, column) };
                Stored::Bytes(self.bytes(data.cast(), column))
            }
            _ => Stored::Null,
        })
    }

    fn bytes(&self, data: *const u8, column: c_int) -> &[u8] {
        // SAFETY: the statement is on a row, and the column exists.
        let len = unsafe { ffi::sqlite3_column_bytes(self.statement.raw.as_ptr(), column) };
        match usize::try_from(len) {
            // SAFETY: so many bytes lie there until the next step, for which the row's borrow has to end; asking again in the
            // same way converts nothing anew.
            Ok(len) if len > 0 && !data.is_null() => unsafe {
                std::slice::from_raw_parts(data, len)
            },
            _ => &[],
        }
    }
}

/// A statement as errors show it.
fn doing(sql: &str) -> String {
    let shown: String = sql.trim().chars().take(SHOWN_MAX).collect();
    if shown.len() < sql.trim().len() { format!("{shown}...") } else { shown }
}
