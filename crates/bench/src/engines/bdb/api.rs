//! Berkeley DB's handles: made by the library found at run time, used through `csrc/bdb.c`.
//!
//! Every handle here is closed when it is dropped, a table before its environment, a cursor before its transaction;
//! whoever holds them keeps that order by the order of fields.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;

use anyhow::Context as _;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::engines::{Failure, Outcome, Refusal};

type RawEnvironment = *mut c_void;
type RawTable = *mut c_void;
type RawTransaction = *mut c_void;
type RawCursor = *mut c_void;

/// `struct bench_bdb_environment` of csrc/bdb.c.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentSettings {
    /// Cache of all tables; 0 as Berkeley DB has it.
    pub cache_bytes: u64,
    /// Log kept in memory before it is written; 0 as Berkeley DB has it.
    pub log_buffer_bytes: u32,
    /// Locks, lockers and locked objects; 0 as Berkeley DB has it.
    pub max_locks: u32,
    /// 0 sync, 1 `write_nosync`, 2 `nosync`.
    pub sync: u32,
    /// 0 none, 1 alone, 2 register.
    pub recover: u32,
}

/// `struct bench_bdb_buffer` of csrc/bdb.c.
#[repr(C)]
pub struct Buffer {
    data: *mut c_void,
    size: u32,
}

unsafe extern "C" {
    static bench_bdb_not_found: c_int;
    static bench_bdb_deadlock: c_int;
    fn bench_bdb_env_open(
        env: RawEnvironment,
        home: *const c_char,
        how: *const EnvironmentSettings,
    ) -> c_int;
    fn bench_bdb_env_settings(env: RawEnvironment, has: *mut EnvironmentSettings) -> c_int;
    fn bench_bdb_env_close(env: RawEnvironment) -> c_int;
    fn bench_bdb_open(
        db: RawTable,
        file: *const c_char,
        transactional: c_int,
        page_bytes: u32,
        cache_bytes: u64,
    ) -> c_int;
    fn bench_bdb_settings(db: RawTable, page_bytes: *mut u32, cache_bytes: *mut u64) -> c_int;
    fn bench_bdb_close(db: RawTable) -> c_int;
    fn bench_bdb_begin(env: RawEnvironment, txn: *mut RawTransaction) -> c_int;
    fn bench_bdb_commit(txn: RawTransaction) -> c_int;
    fn bench_bdb_abort(txn: RawTransaction) -> c_int;
    fn bench_bdb_get(
        db: RawTable,
        txn: RawTransaction,
        key: *const c_void,
        key_size: u32,
        value: *mut Buffer,
        for_update: c_int,
    ) -> c_int;
    fn bench_bdb_put(
        db: RawTable,
        txn: RawTransaction,
        key: *const c_void,
        key_size: u32,
        value: *const c_void,
        value_size: u32,
    ) -> c_int;
    fn bench_bdb_delete(
        db: RawTable,
        txn: RawTransaction,
        key: *const c_void,
        key_size: u32,
    ) -> c_int;
    fn bench_bdb_cursor_open(db: RawTable, txn: RawTransaction, cursor: *mut RawCursor) -> c_int;
    fn bench_bdb_cursor_close(cursor: RawCursor) -> c_int;
    fn bench_bdb_cursor_seek(
        cursor: RawCursor,
        from: *const c_void,
        from_size: u32,
        key: *mut Buffer,
        value: *mut Buffer,
    ) -> c_int;
    fn bench_bdb_cursor_next(cursor: RawCursor, key: *mut Buffer, value: *mut Buffer) -> c_int;
    fn bench_bdb_release(buffer: *mut Buffer);
}

type EnvCreate = unsafe extern "C" fn(*mut RawEnvironment, u32) -> c_int;
type Create = unsafe extern "C" fn(*mut RawTable, RawEnvironment, u32) -> c_int;
type Strerror = unsafe extern "C" fn(c_int) -> *const c_char;
type Version = unsafe extern "C" fn(*mut c_int, *mut c_int, *mut c_int) -> *const c_char;

/// The library.
pub struct Api {
    env_create: EnvCreate,
    create: Create,
    strerror: Strerror,
    version: Version,
    /// Keeps the code mapped for as long as it can be called.
    _library: Library,
}

impl Api {
    /// Loads the library.
    ///
    /// # Errors
    /// If it cannot be loaded, lacks a function or is another version than the header that was compiled in.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let what = || format!("{} is no library of Berkeley DB", path.display());
        // SAFETY: running a library's initializers is what loading one means.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
            .with_context(|| format!("cannot load {}", path.display()))?;
        // SAFETY: the type is that of db.h for this name.
        let env_create =
            *unsafe { library.get::<EnvCreate>(b"db_env_create\0") }.with_context(what)?;
        // SAFETY: as above.
        let create = *unsafe { library.get::<Create>(b"db_create\0") }.with_context(what)?;
        // SAFETY: as above.
        let strerror = *unsafe { library.get::<Strerror>(b"db_strerror\0") }.with_context(what)?;
        // SAFETY: as above.
        let version = *unsafe { library.get::<Version>(b"db_version\0") }.with_context(what)?;
        let api = Self { env_create, create, strerror, version, _library: library };
        let version = api.version();
        if !version.starts_with("5.3.") {
            anyhow::bail!("{} is version {version}, not 5.3", path.display());
        }
        Ok(api)
    }

    /// The version, as the library tells it: `5.3.28`.
    #[must_use]
    pub fn version(&self) -> String {
        let (mut major, mut minor, mut patch) = (0, 0, 0);
        // SAFETY: three places of the right type.
        unsafe { (self.version)(&raw mut major, &raw mut minor, &raw mut patch) };
        format!("{major}.{minor}.{patch}")
    }

    /// What a code means; 0 is success.
    fn check(&self, code: c_int, doing: &str) -> Outcome<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: any number is allowed.
        let text = unsafe { (self.strerror)(code) };
        // SAFETY: a text that ends in a zero byte and lasts until the next call.
        let text = unsafe { CStr::from_ptr(text) };
        let text = format!("Berkeley DB, {doing}: {}", text.to_string_lossy());
        // SAFETY: a constant.
        if code == unsafe { bench_bdb_deadlock } {
            return Err(Failure::Refused(Refusal::Deadlock, text));
        }
        Err(Failure::broken(text))
    }

    /// As [`check`](Self::check), with false for a key that is not there.
    fn found(&self, code: c_int, doing: &str) -> Outcome<bool> {
        // SAFETY: a constant.
        if code == unsafe { bench_bdb_not_found } {
            return Ok(false);
        }
        self.check(code, doing).map(|()| true)
    }
}

/// An environment with transactions.
pub struct Environment(RawEnvironment);

// SAFETY: opened with DB_THREAD, a handle that any thread may use at any time.
unsafe impl Send for Environment {}
// SAFETY: as above.
unsafe impl Sync for Environment {}

impl Environment {
    /// Makes or joins the environment in a folder.
    pub fn open(api: &Api, home: &Path, how: &EnvironmentSettings) -> Outcome<Self> {
        let mut env = ptr::null_mut();
        // SAFETY: a place of the right type.
        api.check(unsafe { (api.env_create)(&raw mut env, 0) }, "db_env_create")?;
        let env = Self(env);
        let home = c_path(home)?;
        // SAFETY: a handle that is not opened yet, a text that ends in a zero byte, and the structure of csrc/bdb.c.
        let code = unsafe { bench_bdb_env_open(env.0, home.as_ptr(), how) };
        api.check(code, "opening the environment")?;
        Ok(env)
    }

    /// What it has.
    pub fn settings(&self, api: &Api) -> Outcome<EnvironmentSettings> {
        let mut has = EnvironmentSettings::default();
        // SAFETY: an open environment and a place of the right type.
        let code = unsafe { bench_bdb_env_settings(self.0, &raw mut has) };
        api.check(code, "asking the environment").map(|()| has)
    }

    /// Begins a transaction.
    pub fn begin(&self, api: &Api) -> Outcome<Transaction> {
        let mut transaction = ptr::null_mut();
        // SAFETY: an open environment and a place of the right type.
        let code = unsafe { bench_bdb_begin(self.0, &raw mut transaction) };
        api.check(code, "txn_begin").map(|()| Transaction(transaction))
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        // SAFETY: all tables and transactions are gone, and nobody uses the handle after this.
        unsafe { bench_bdb_env_close(self.0) };
    }
}

/// A transaction; one that is dropped is given up.
pub struct Transaction(RawTransaction);

impl Transaction {
    /// Commits as the environment is set.
    pub fn commit(self, api: &Api) -> Outcome<()> {
        let raw = self.0;
        std::mem::forget(self);
        // SAFETY: a transaction that has not ended; after this it has.
        api.check(unsafe { bench_bdb_commit(raw) }, "commit")
    }

    /// Gives it up.
    pub fn abort(self, api: &Api) -> Outcome<()> {
        let raw = self.0;
        std::mem::forget(self);
        // SAFETY: as above.
        api.check(unsafe { bench_bdb_abort(raw) }, "abort")
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // SAFETY: a transaction that has not ended.
        unsafe { bench_bdb_abort(self.0) };
    }
}

fn raw(transaction: Option<&Transaction>) -> RawTransaction {
    transaction.map_or(ptr::null_mut(), |t| t.0)
}

/// A table: a btree in a file of its own or nowhere.
pub struct Table(RawTable);

// SAFETY: in an environment it is opened with DB_THREAD and any thread may use it at any time; without one, only one
// connection exists at a time and it alone uses the table.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

/// How a table is opened.
#[derive(Clone, Copy)]
pub struct TableSettings<'a> {
    /// In which environment.
    pub environment: Option<&'a Environment>,
    /// In which file: below the environment's home, or by its path. None for a temporary table.
    pub file: Option<&'a Path>,
    /// 0 as Berkeley DB has it.
    pub page_bytes: u32,
    /// Only without an environment; 0 as Berkeley DB has it.
    pub cache_bytes: u64,
}

impl Table {
    /// Opens or makes it.
    pub fn open(api: &Api, how: TableSettings<'_>) -> Outcome<Self> {
        let env = how.environment.map_or(ptr::null_mut(), |e| e.0);
        let mut table = ptr::null_mut();
        // SAFETY: a place of the right type, and an open environment or none.
        api.check(unsafe { (api.create)(&raw mut table, env, 0) }, "db_create")?;
        let table = Self(table);
        let file = how.file.map(c_path).transpose()?;
        let file = file.as_ref().map_or(ptr::null(), |f| f.as_ptr());
        let transactional = c_int::from(how.environment.is_some());
        // SAFETY: a handle that is not opened yet and a text that ends in a zero byte, or none.
        let code = unsafe {
            bench_bdb_open(table.0, file, transactional, how.page_bytes, how.cache_bytes)
        };
        api.check(code, "opening a table")?;
        Ok(table)
    }

    /// Size of its pages in bytes.
    pub fn page_bytes(&self, api: &Api) -> Outcome<u32> {
        let mut page_bytes = 0;
        // SAFETY: an open table, a place of the right type, and none for what is not asked.
        let code = unsafe { bench_bdb_settings(self.0, &raw mut page_bytes, ptr::null_mut()) };
        api.check(code, "asking a table").map(|()| page_bytes)
    }

    /// Size of its own cache in bytes; a table in an environment has none.
    pub fn cache_bytes(&self, api: &Api) -> Outcome<u64> {
        let (mut page_bytes, mut cache_bytes) = (0, 0);
        // SAFETY: an open table and two places of the right types.
        let code = unsafe { bench_bdb_settings(self.0, &raw mut page_bytes, &raw mut cache_bytes) };
        api.check(code, "asking a table").map(|()| cache_bytes)
    }

    /// Writes its pages and closes it.
    pub fn close(self, api: &Api) -> Outcome<()> {
        let raw = self.0;
        std::mem::forget(self);
        // SAFETY: an open table that nobody uses after this.
        api.check(unsafe { bench_bdb_close(raw) }, "closing a table")
    }

    /// Copies the value of a key; tells whether there was one.
    pub fn get(
        &self,
        api: &Api,
        transaction: Option<&Transaction>,
        key: &[u8],
        value: &mut Buffer,
        for_update: bool,
    ) -> Outcome<bool> {
        let (data, size) = parts(key);
        let for_update = c_int::from(for_update);
        // SAFETY: an open table, a transaction of its environment or none, and memory of the told size.
        let code =
            unsafe { bench_bdb_get(self.0, raw(transaction), data, size, value, for_update) };
        api.found(code, "get")
    }

    /// Gives a key a value.
    pub fn put(
        &self,
        api: &Api,
        transaction: Option<&Transaction>,
        key: &[u8],
        value: &[u8],
    ) -> Outcome<()> {
        let (key, key_size) = parts(key);
        let (value, value_size) = parts(value);
        // SAFETY: an open table, a transaction of its environment or none, and memory of the told sizes.
        let code =
            unsafe { bench_bdb_put(self.0, raw(transaction), key, key_size, value, value_size) };
        api.check(code, "put")
    }

    /// Removes a key; tells whether it was there.
    pub fn delete(
        &self,
        api: &Api,
        transaction: Option<&Transaction>,
        key: &[u8],
    ) -> Outcome<bool> {
        let (data, size) = parts(key);
        // SAFETY: an open table, a transaction of its environment or none, and memory of the told size.
        let code = unsafe { bench_bdb_delete(self.0, raw(transaction), data, size) };
        api.found(code, "del")
    }

    /// Opens a cursor.
    pub fn cursor(&self, api: &Api, transaction: Option<&Transaction>) -> Outcome<Cursor> {
        let mut cursor = ptr::null_mut();
        // SAFETY: an open table, a transaction of its environment or none, and a place of the right type.
        let code = unsafe { bench_bdb_cursor_open(self.0, raw(transaction), &raw mut cursor) };
        api.check(code, "cursor").map(|()| Cursor(cursor))
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: a handle that nobody uses after this.
        unsafe { bench_bdb_close(self.0) };
    }
}

/// A place among the rows of a table.
pub struct Cursor(RawCursor);

impl Cursor {
    /// Goes to the first row from a key on; tells whether there is one.
    pub fn seek(
        &mut self,
        api: &Api,
        from: &[u8],
        key: &mut Buffer,
        value: &mut Buffer,
    ) -> Outcome<bool> {
        let (data, size) = parts(from);
        // SAFETY: an open cursor, memory of the told size that is none of the buffers.
        let code = unsafe { bench_bdb_cursor_seek(self.0, data, size, key, value) };
        api.found(code, "cursor get")
    }

    /// Goes to the next row, at first to the first; tells whether there is one.
    pub fn next(&mut self, api: &Api, key: &mut Buffer, value: &mut Buffer) -> Outcome<bool> {
        // SAFETY: an open cursor.
        let code = unsafe { bench_bdb_cursor_next(self.0, key, value) };
        api.found(code, "cursor get")
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        // SAFETY: an open cursor that nobody uses after this.
        unsafe { bench_bdb_cursor_close(self.0) };
    }
}

impl Buffer {
    /// Nothing yet.
    pub fn new() -> Self {
        Self { data: ptr::null_mut(), size: 0 }
    }

    /// What was copied here last.
    pub fn bytes(&self) -> &[u8] {
        if self.data.is_null() {
            return &[];
        }
        // SAFETY: Berkeley DB has copied that many bytes there, and nothing is copied as long as the slice lives.
        unsafe { std::slice::from_raw_parts(self.data.cast(), self.size as usize) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: memory from realloc, or none.
        unsafe { bench_bdb_release(self) };
    }
}

fn parts(bytes: &[u8]) -> (*const c_void, u32) {
    (bytes.as_ptr().cast(), u32::try_from(bytes.len()).expect("keys and values are below 4 GiB"))
}

fn c_path(path: &Path) -> Outcome<CString> {
    use std::os::unix::ffi::OsStrExt as _;
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Failure::broken("a path with a zero byte"))
}
