//! An open database.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::Duration;

use super::error::SqlError;
use super::library::{Functions, Library, RawDb, text};
use super::statement::{Statement, Value};

/// How to open a database.
#[derive(Clone, Copy)]
pub enum OpenFlags {
    /// It must exist and is not written.
    ReadOnly,
    /// It must exist.
    ReadWrite,
    /// It is created if it does not exist.
    Create,
}

impl OpenFlags {
    fn bits(self) -> i32 {
        match self {
            OpenFlags::ReadOnly => 1,
            OpenFlags::ReadWrite => 2,
            OpenFlags::Create => 2 | 4,
        }
    }
}

/// The raw handle; closed when the connection and all its statements are gone.
pub(super) struct Handle {
    pub(super) functions: &'static Functions,
    pub(super) raw: NonNull<RawDb>,
}

impl Handle {
    pub(super) fn error(&self, code: i32) -> SqlError {
        // SAFETY: the handle is open.
        let message = text(unsafe { (self.functions.errmsg)(self.raw.as_ptr()) });
        SqlError { code, message }
    }

    pub(super) fn check(&self, code: i32) -> Result<(), SqlError> {
        if code == 0 { Ok(()) } else { Err(self.error(code)) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is open and every statement on it, each of which shares it, is finalized.
        unsafe { (self.functions.close)(self.raw.as_ptr()) };
    }
}

/// An open database, used by the thread that opened it.
pub struct Connection {
    handle: Rc<Handle>,
}

impl Connection {
    /// Opens the database at `path`.
    pub fn open(library: Library, path: &Path, flags: OpenFlags) -> Result<Connection, SqlError> {
        let functions = library.0;
        let c_path = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| SqlError { code: 14, message: "the path holds a zero byte".into() })?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the path is a C string, `raw` takes the handle, and a null VFS name means the default.
        let code = unsafe {
            (functions.open_v2)(c_path.as_ptr(), &raw mut raw, flags.bits(), std::ptr::null())
        };
        let raw = NonNull::new(raw)
            .ok_or_else(|| SqlError { code: 7, message: "out of memory".into() })?;
        let handle = Handle { functions, raw };
        // SAFETY: the handle is open, if only to be asked for the error and closed.
        unsafe { (functions.extended_result_codes)(handle.raw.as_ptr(), 1) };
        handle.check(code)?;
        Ok(Connection { handle: Rc::new(handle) })
    }

    /// How long a call waits for others before it fails with BUSY.
    pub fn busy_timeout(&self, timeout: Duration) -> Result<(), SqlError> {
        let ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the handle is open.
        self.handle
            .check(unsafe { (self.handle.functions.busy_timeout)(self.handle.raw.as_ptr(), ms) })
    }

    /// Compiles one statement.
    pub fn prepare(&self, sql: &str) -> Result<Statement, SqlError> {
        let (start, len) = (sql.as_ptr().cast(), sql.len() as i32);
        let mut raw = std::ptr::null_mut();
        // SAFETY: the handle is open, the text is passed with its length, `raw` takes the statement, and the
        // rest of the text is not asked for.
        let code = unsafe {
            let functions = self.handle.functions;
            (functions.prepare_v2)(
                self.handle.raw.as_ptr(),
                start,
                len,
                &raw mut raw,
                std::ptr::null_mut(),
            )
        };
        self.handle.check(code)?;
        let raw = NonNull::new(raw)
            .ok_or_else(|| SqlError { code: 21, message: "an empty statement".into() })?;
        Ok(Statement::new(Rc::clone(&self.handle), raw))
    }

    /// Runs one statement to its end.
    pub fn execute(&self, sql: &str) -> Result<(), SqlError> {
        self.prepare(sql)?.run()
    }

    /// The rows of a query.
    pub fn rows(&self, sql: &str) -> Result<Vec<Vec<Value>>, SqlError> {
        self.prepare(sql)?.rows()
    }

    /// The first column of the first row as text; empty if there is none.
    pub fn text(&self, sql: &str) -> Result<String, SqlError> {
        Ok(self
            .rows(sql)?
            .first()
            .and_then(|row| row.first())
            .map(Value::to_string)
            .unwrap_or_default())
    }
}
