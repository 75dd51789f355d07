//! A database connection.

use crate::api::{Functions, MoreFunctions, RawDb};
use crate::error::{BUSY, CANTOPEN, NOMEM, Result, SqlError};
use crate::hooks::Hooks;
use crate::library::Library;
use crate::statement::{Statement, Step};
use crate::value::Value;
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How to open a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenFlags {
    /// Read and write, create when absent.
    ReadWriteCreate,
    /// Read and write an existing file.
    ReadWrite,
    /// Read only.
    ReadOnly,
    /// Read and write in shared-cache mode.
    SharedCache,
    /// The path is a `file:` URI.
    Uri,
}

impl OpenFlags {
    pub(crate) fn bits(self) -> c_int {
        match self {
            Self::ReadWriteCreate => 0x2 | 0x4,
            Self::ReadWrite => 0x2,
            Self::ReadOnly => 0x1,
            Self::SharedCache => 0x2 | 0x4 | 0x0002_0000,
            Self::Uri => 0x2 | 0x4 | 0x40,
        }
    }
}

/// `sqlite3_txn_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionState {
    /// No transaction is open.
    None,
    /// A read transaction is open.
    Read,
    /// A write transaction is open.
    Write,
}

/// What a connection and the objects made from it share. Closed when the last of them is dropped.
pub(crate) struct Inner {
    pub library: Library,
    pub raw: *mut RawDb,
    pub hooks: Mutex<Hooks>,
}

// SAFETY: SQLite in serialized mode allows a connection to be used from any thread.
unsafe impl Send for Inner {}
// SAFETY: SQLite in serialized mode locks the connection's mutex in every call.
unsafe impl Sync for Inner {}

impl Inner {
    #[inline]
    pub fn functions(&self) -> &'static Functions {
        &self.library.0.functions
    }

    pub fn more(&self) -> &'static MoreFunctions {
        self.library.more()
    }

    /// The error that the last call on this connection left behind.
    #[cold]
    pub fn error(&self, extended: i32, context: &str) -> SqlError {
        // SAFETY: the connection is open for as long as `self` lives.
        let message = unsafe { (self.functions().errmsg)(self.raw) };
        // SAFETY: null, or a C string that is there until the next call.
        SqlError::new(extended, unsafe { text(message) }, context)
    }

    #[inline]
    pub fn check(&self, code: c_int, context: &str) -> Result<()> {
        if code == 0 { Ok(()) } else { Err(self.error(code, context)) }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the last owner drops the connection, and every statement, blob and backup owns it: none is left.
        unsafe { (self.functions().close)(self.raw) };
    }
}

/// A connection to one database.
#[derive(Clone)]
pub struct Connection {
    pub(crate) inner: Arc<Inner>,
}

impl Connection {
    pub(crate) fn open(library: Library, path: &Path, flags: c_int) -> Result<Self> {
        let context = || format!("open {}", path.display());
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| SqlError::new(CANTOPEN, "the path holds a zero byte", &context()))?;
        let mut raw = ptr::null_mut();
        let functions = &library.0.functions;
        // SAFETY: the name is NUL-terminated and `raw` is a valid place for the result.
        let code = unsafe { (functions.open_v2)(name.as_ptr(), &raw mut raw, flags, ptr::null()) };
        if raw.is_null() {
            return Err(SqlError::new(NOMEM, "out of memory", &context()));
        }
        let inner = Inner { library, raw, hooks: Mutex::default() };
        inner.check(code, &context())?;
        // SAFETY: the connection was opened just above.
        unsafe { (functions.extended_result_codes)(raw, 1) };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Closes the connection now; an error if a statement, blob or backup made from it is still alive.
    pub fn close(self) -> Result<()> {
        let context = "close";
        match Arc::try_unwrap(self.inner) {
            Ok(inner) => {
                let inner = std::mem::ManuallyDrop::new(inner);
                // SAFETY: nothing else owns the connection, and `ManuallyDrop` keeps it from being closed twice.
                let code = unsafe { (inner.functions().close)(inner.raw) };
                inner.check(code, context)
            }
            Err(inner) => {
                let message = format!("{} owners are left", Arc::strong_count(&inner));
                Err(SqlError::new(BUSY, message, context))
            }
        }
    }

    /// The library that opened it.
    #[must_use]
    pub fn library(&self) -> Library {
        self.inner.library
    }

    /// Its `sqlite3 *`, for what no library exports. Open as long as this connection.
    #[must_use]
    pub fn raw(&self) -> *mut std::ffi::c_void {
        self.inner.raw.cast()
    }

    pub(crate) fn functions(&self) -> &'static Functions {
        self.inner.functions()
    }

    pub(crate) fn more(&self) -> &'static MoreFunctions {
        self.inner.more()
    }

    pub(crate) fn check(&self, code: c_int, context: &str) -> Result<()> {
        self.inner.check(code, context)
    }

    /// Prepares the first statement of `sql`. An empty statement is an error of the caller.
    pub fn prepare(&self, sql: &str) -> Result<Statement> {
        let (statement, _) = self.prepare_first(sql)?;
        Ok(statement.unwrap_or_else(|| panic!("no statement in {sql:?}")))
    }

    /// Prepares the first statement of `sql` and returns how many bytes it took; `None` for a comment or white space.
    pub fn prepare_first(&self, sql: &str) -> Result<(Option<Statement>, usize)> {
        let mut raw = ptr::null_mut();
        let mut tail = ptr::null();
        let start = sql.as_ptr().cast();
        let length = c_int::try_from(sql.len()).expect("a statement of less than 2 GiB");
        // SAFETY: the text is given with its length, and both results have a valid place.
        let code = unsafe {
            (self.functions().prepare_v2)(
                self.inner.raw,
                start,
                length,
                &raw mut raw,
                &raw mut tail,
            )
        };
        self.check(code, sql)?;
        let used = (tail as usize).checked_sub(start as usize).expect("the tail lies in the text");
        let statement =
            (!raw.is_null()).then(|| Statement::new(self.inner.clone(), raw, &sql[..used]));
        Ok((statement, used))
    }

    /// Runs every statement of `sql` and drops the rows.
    pub fn execute(&self, sql: &str) -> Result<()> {
        self.each_row(sql, &mut |_| ())
    }

    /// Runs every statement of `sql` and returns all rows.
    pub fn query(&self, sql: &str) -> Result<Vec<Vec<Value>>> {
        let mut rows = Vec::new();
        self.each_row(sql, &mut |statement| rows.push(statement.row()))?;
        Ok(rows)
    }

    /// Runs every statement of `sql`, handing each row to `visit`; stops at the first error.
    pub fn each_row(&self, sql: &str, visit: &mut dyn FnMut(&Statement)) -> Result<()> {
        let mut rest = sql;
        while !rest.is_empty() {
            let (statement, used) = self.prepare_first(rest)?;
            rest = &rest[used..];
            if let Some(mut statement) = statement {
                while statement.step()? == Step::Row {
                    visit(&statement);
                }
            }
        }
        Ok(())
    }

    /// Runs one statement with parameters and returns its rows.
    pub fn query_with(&self, sql: &str, parameters: &[Value]) -> Result<Vec<Vec<Value>>> {
        let mut statement = self.prepare(sql)?;
        statement.bind_all(parameters)?;
        statement.collect_rows()
    }

    /// First column of the first row; `Null` if there is no row.
    pub fn value(&self, sql: &str) -> Result<Value> {
        let rows = self.query(sql)?;
        Ok(rows.into_iter().next().and_then(|row| row.into_iter().next()).unwrap_or(Value::Null))
    }

    /// An integer from the first column of the first row.
    ///
    /// # Panics
    /// If there is no such row or it holds no integer.
    pub fn integer(&self, sql: &str) -> Result<i64> {
        let value = self.value(sql)?;
        Ok(value
            .as_i64()
            .unwrap_or_else(|| panic!("{sql} gave {value:?} where an integer was due")))
    }

    /// Text from the first column of the first row.
    ///
    /// # Panics
    /// If there is no such row or it holds no text.
    pub fn text(&self, sql: &str) -> Result<String> {
        let value = self.value(sql)?;
        let text = value.as_text().unwrap_or_else(|| panic!("{sql} gave {value:?}, not text"));
        Ok(text.to_owned())
    }

    /// `sqlite3_busy_timeout`.
    pub fn busy_timeout(&self, timeout: Duration) -> Result<()> {
        let millis = c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX);
        // SAFETY: the connection is open.
        let code = unsafe { (self.functions().busy_timeout)(self.inner.raw, millis) };
        self.check(code, "busy_timeout")
    }

    /// Primary code of the last call.
    #[must_use]
    pub fn errcode(&self) -> i32 {
        // SAFETY: the connection is open.
        unsafe { (self.functions().errcode)(self.inner.raw) & 0xff }
    }

    /// Extended code of the last call.
    #[must_use]
    pub fn extended_errcode(&self) -> i32 {
        // SAFETY: the connection is open.
        unsafe { (self.functions().extended_errcode)(self.inner.raw) }
    }

    /// Message of the last call.
    #[must_use]
    pub fn errmsg(&self) -> String {
        self.inner.error(0, "").message
    }

    /// Makes whatever runs on this connection return `SQLITE_INTERRUPT`. May be called from any thread.
    pub fn interrupt(&self) {
        // SAFETY: the connection is open for as long as `self` lives, which is all the call asks for.
        unsafe { (self.more().interrupt)(self.inner.raw) }
    }

    /// Rows changed by the last statement.
    #[must_use]
    #[inline]
    pub fn changes(&self) -> i64 {
        let inner = &self.inner;
        match &inner.library.0.more {
            // SAFETY: the connection is open.
            Some(more) => unsafe { (more.changes64)(inner.raw) },
            // SAFETY: as above.
            None => unsafe { (inner.functions().changes)(inner.raw) }.into(),
        }
    }

    /// Rows changed since the connection was opened.
    #[must_use]
    pub fn total_changes(&self) -> i64 {
        // SAFETY: the connection is open.
        unsafe { (self.more().total_changes64)(self.inner.raw) }
    }

    /// Bytes that its prepared statements take (`SQLITE_DBSTATUS_STMT_USED`).
    #[must_use]
    pub fn statement_bytes(&self) -> i32 {
        const STMT_USED: c_int = 3;
        let (mut now, mut most) = (0, 0);
        // SAFETY: the connection is open, and both places are writable.
        let code = unsafe {
            (self.more().db_status)(self.inner.raw, STMT_USED, &raw mut now, &raw mut most, 0)
        };
        assert_eq!(code, 0, "the library knows this figure");
        now
    }

    /// Rowid of the last insert.
    #[must_use]
    pub fn last_insert_rowid(&self) -> i64 {
        // SAFETY: the connection is open.
        unsafe { (self.more().last_insert_rowid)(self.inner.raw) }
    }

    /// Whether no transaction is open.
    #[must_use]
    pub fn autocommit(&self) -> bool {
        // SAFETY: the connection is open.
        unsafe { (self.functions().get_autocommit)(self.inner.raw) != 0 }
    }

    /// `sqlite3_txn_state` of all attached databases together.
    #[must_use]
    pub fn transaction_state(&self) -> TransactionState {
        // SAFETY: the connection is open; a null schema name means all of them.
        match unsafe { (self.more().txn_state)(self.inner.raw, ptr::null()) } {
            0 => TransactionState::None,
            1 => TransactionState::Read,
            _ => TransactionState::Write,
        }
    }

    /// Asks for the WAL to stay after the last close (`SQLITE_FCNTL_PERSIST_WAL`).
    pub fn persist_wal(&self) -> Result<()> {
        let mut on: c_int = 1;
        let (file, on) = (c"main".as_ptr(), (&raw mut on).cast());
        // SAFETY: the connection is open, and the argument of this control is an int.
        let code = unsafe { (self.more().file_control)(self.inner.raw, file, 10, on) };
        self.check(code, "file_control")
    }

    /// `SQLITE_FCNTL_DATA_VERSION` of the main database.
    pub fn file_data_version(&self) -> Result<u32> {
        let mut version = 0u32;
        let (file, out) = (c"main".as_ptr(), (&raw mut version).cast());
        // SAFETY: the connection is open, and the argument of this control is an unsigned int.
        let code = unsafe { (self.more().file_control)(self.inner.raw, file, 35, out) };
        self.check(code, "file_control").map(|()| version)
    }

    /// `sqlite3_db_cacheflush`.
    pub fn cache_flush(&self) -> Result<()> {
        // SAFETY: the connection is open.
        let code = unsafe { (self.more().db_cacheflush)(self.inner.raw) };
        self.check(code, "db_cacheflush")
    }

    /// `sqlite3_wal_checkpoint_v2` on the main database: mode 0 passive to 3 truncate; frames in the log and checkpointed.
    pub fn checkpoint(&self, mode: i32) -> Result<(i32, i32)> {
        let (mut log, mut done) = (0, 0);
        // SAFETY: the connection is open and both results have a valid place.
        let code = unsafe {
            (self.more().wal_checkpoint_v2)(
                self.inner.raw,
                c"main".as_ptr(),
                mode,
                &raw mut log,
                &raw mut done,
            )
        };
        self.check(code, "wal_checkpoint_v2")?;
        Ok((log, done))
    }

    /// `sqlite3_serialize`: the main database as one image.
    pub fn serialize(&self) -> Result<Vec<u8>> {
        let mut size = 0i64;
        // SAFETY: the connection is open and `size` is a valid place.
        let image =
            unsafe { (self.more().serialize)(self.inner.raw, c"main".as_ptr(), &raw mut size, 0) };
        if image.is_null() {
            return Err(self.inner.error(self.extended_errcode().max(1), "serialize"));
        }
        let length = usize::try_from(size).expect("a size is not negative");
        // SAFETY: the call returned an allocation of `size` bytes that is ours until freed.
        let copy = unsafe { std::slice::from_raw_parts(image, length) }.to_vec();
        // SAFETY: the image came from this library's allocator and is freed once.
        unsafe { (self.more().free)(image.cast()) };
        Ok(copy)
    }

    /// `sqlite3_deserialize`: replaces the main database by an image in memory.
    pub fn deserialize(&self, image: &[u8]) -> Result<()> {
        let length = image.len();
        // SAFETY: the allocator may be asked for any size.
        let copy = unsafe { (self.more().malloc64)(length as u64) }.cast::<u8>();
        assert!(!copy.is_null(), "out of memory for an image of {length} bytes");
        // SAFETY: `copy` was allocated with `length` bytes and cannot overlap the borrowed image.
        unsafe { ptr::copy_nonoverlapping(image.as_ptr(), copy, length) };
        let size = i64::try_from(length).expect("an image fits in memory");
        // SAFETY: FREEONCLOSE and RESIZEABLE (1 | 2) hand the allocation over to SQLite.
        let code = unsafe {
            (self.more().deserialize)(self.inner.raw, c"main".as_ptr(), copy, size, size, 3)
        };
        self.check(code, "deserialize")
    }
}

/// A C string as a text of our own; empty for null.
///
/// # Safety
/// It is null, or ends with a zero byte and does not change during the call.
pub(crate) unsafe fn text(c_string: *const c_char) -> String {
    if c_string.is_null() {
        return String::new();
    }
    // SAFETY: the caller's contract.
    unsafe { CStr::from_ptr(c_string) }.to_string_lossy().into_owned()
}
