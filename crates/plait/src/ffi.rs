//! The functions of `sqlite3.h` and `plait.h` that this crate calls, and the layouts that they share with it.
//!
//! Linked are those of `plait-sqlite`, the spliced SQLite of this workspace.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};

// Its library holds the functions below.
use plait_sqlite as _;

/// `sqlite3`.
#[repr(C)]
pub struct RawDb {
    _opaque: [u8; 0],
}

/// `sqlite3_stmt`.
#[repr(C)]
pub struct RawStatement {
    _opaque: [u8; 0],
}

/// `plait_map`.
#[repr(C)]
pub struct RawMap {
    _opaque: [u8; 0],
}

/// `plait_cursor`.
#[repr(C)]
pub struct RawCursor {
    _opaque: [u8; 0],
}

/// `plait_value`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawValue {
    pub kind: c_int,
    pub integer: i64,
    pub real: f64,
    pub data: *const c_void,
    pub size_bytes: i64,
}

/// `plait_range`.
#[repr(C)]
pub struct RawRange {
    pub lo: RawValue,
    pub hi: RawValue,
    pub flags: c_int,
}

/// `plait_batch_item`.
#[repr(C)]
pub struct RawItem {
    pub op: c_int,
    pub key: RawValue,
    pub value: RawValue,
}

/// `PLAIT_NONE` as a value.
pub const NONE: RawValue =
    RawValue { kind: 0, integer: 0, real: 0.0, data: std::ptr::null(), size_bytes: 0 };

pub const OK: c_int = 0;
pub const ERROR: c_int = 1;
pub const ABORT: c_int = 4;
pub const BUSY: c_int = 5;
pub const MISMATCH: c_int = 20;
pub const MISUSE: c_int = 21;
pub const ROW: c_int = 100;
pub const DONE: c_int = 101;
pub const BUSY_SNAPSHOT: c_int = 517;

pub const INTEGER: c_int = 1;
pub const FLOAT: c_int = 2;
pub const TEXT: c_int = 3;
pub const BLOB: c_int = 4;
pub const NULL: c_int = 5;

pub const OPEN_READONLY: c_int = 0x1;
pub const OPEN_READWRITE: c_int = 0x2;
pub const OPEN_CREATE: c_int = 0x4;
pub const OPEN_NOMUTEX: c_int = 0x8000;

pub const MAP_READONLY: c_int = 0x01;
pub const MAP_CREATE_INTEGER: c_int = 0x10;
pub const MAP_CREATE_BYTES: c_int = 0x20;
pub const MAP_CREATE_TEXT: c_int = 0x40;

pub const LO_OPEN: c_int = 0x1;
pub const HI_OPEN: c_int = 0x2;
pub const PREFIX: c_int = 0x4;

pub const BATCH_PUT: c_int = 1;
pub const BATCH_DELETE: c_int = 2;
pub const BATCH_ADD: c_int = 3;
pub const BATCH_EXPECT: c_int = 4;

pub const LOAD_SORTED: c_int = 1;

/// `SQLITE_UTF8`, as `sqlite3_bind_text64` takes it.
pub const UTF8: u8 = 1;

/// What `plait_load` asks for rows.
pub type NextRow = unsafe extern "C" fn(*mut c_void, *mut RawValue, *mut RawValue) -> c_int;
/// What frees bound bytes; none for those that stay.
pub type Destructor = Option<unsafe extern "C" fn(*mut c_void)>;

unsafe extern "C" {
    // Where it lies tells one copy of SQLite from another.
    #[cfg(feature = "rusqlite")]
    pub fn sqlite3_libversion() -> *const c_char;
    pub fn sqlite3_open_v2(
        path: *const c_char,
        db: *mut *mut RawDb,
        flags: c_int,
        vfs: *const c_char,
    ) -> c_int;
    pub fn sqlite3_close_v2(db: *mut RawDb) -> c_int;
    pub fn sqlite3_extended_result_codes(db: *mut RawDb, on: c_int) -> c_int;
    pub fn sqlite3_busy_timeout(db: *mut RawDb, ms: c_int) -> c_int;
    pub fn sqlite3_errmsg(db: *mut RawDb) -> *const c_char;
    pub fn sqlite3_errstr(code: c_int) -> *const c_char;
    pub fn sqlite3_extended_errcode(db: *mut RawDb) -> c_int;
    pub fn sqlite3_get_autocommit(db: *mut RawDb) -> c_int;
    pub fn sqlite3_total_changes64(db: *mut RawDb) -> i64;
    pub fn sqlite3_changes64(db: *mut RawDb) -> i64;
    pub fn sqlite3_prepare_v2(
        db: *mut RawDb,
        sql: *const c_char,
        len_bytes: c_int,
        statement: *mut *mut RawStatement,
        tail: *mut *const c_char,
    ) -> c_int;
    pub fn sqlite3_finalize(statement: *mut RawStatement) -> c_int;
    pub fn sqlite3_step(statement: *mut RawStatement) -> c_int;
    pub fn sqlite3_stmt_readonly(statement: *mut RawStatement) -> c_int;
    pub fn sqlite3_bind_parameter_count(statement: *mut RawStatement) -> c_int;
    pub fn sqlite3_bind_null(statement: *mut RawStatement, index: c_int) -> c_int;
    pub fn sqlite3_bind_int64(statement: *mut RawStatement, index: c_int, value: i64) -> c_int;
    pub fn sqlite3_bind_double(statement: *mut RawStatement, index: c_int, value: f64) -> c_int;
    pub fn sqlite3_bind_text64(
        statement: *mut RawStatement,
        index: c_int,
        data: *const c_char,
        len_bytes: u64,
        destructor: Destructor,
        encoding: u8,
    ) -> c_int;
    pub fn sqlite3_bind_blob64(
        statement: *mut RawStatement,
        index: c_int,
        data: *const c_void,
        len_bytes: u64,
        destructor: Destructor,
    ) -> c_int;
    pub fn sqlite3_column_count(statement: *mut RawStatement) -> c_int;
    pub fn sqlite3_column_type(statement: *mut RawStatement, column: c_int) -> c_int;
    pub fn sqlite3_column_int64(statement: *mut RawStatement, column: c_int) -> i64;
    pub fn sqlite3_column_double(statement: *mut RawStatement, column: c_int) -> f64;
    pub fn sqlite3_column_text(statement: *mut RawStatement, column: c_int) -> *const c_void;
    pub fn sqlite3_column_blob(statement: *mut RawStatement, column: c_int) -> *const c_void;
    pub fn sqlite3_column_bytes(statement: *mut RawStatement, column: c_int) -> c_int;

    pub fn plait_version() -> *const c_char;
    pub fn plait_ticket(db: *mut RawDb, schema: *const c_char, ticket: *mut i64) -> c_int;
    pub fn plait_durable(db: *mut RawDb, schema: *const c_char, ticket: *mut i64) -> c_int;
    pub fn plait_wait(
        db: *mut RawDb,
        schema: *const c_char,
        ticket: i64,
        ms: c_int,
        durable: *mut c_int,
    ) -> c_int;
    pub fn plait_notify_fd(db: *mut RawDb, schema: *const c_char, fd: *mut c_int) -> c_int;

    pub fn plait_map_open(
        db: *mut RawDb,
        schema: *const c_char,
        table: *const c_char,
        flags: c_int,
        map: *mut *mut RawMap,
    ) -> c_int;
    pub fn plait_map_close(map: *mut RawMap) -> c_int;
    pub fn plait_get(map: *mut RawMap, key: RawValue, value: *mut RawValue) -> c_int;
    pub fn plait_contains(map: *mut RawMap, key: RawValue, found: *mut c_int) -> c_int;
    pub fn plait_get_many(
        map: *mut RawMap,
        n: c_int,
        keys: *const RawValue,
        values: *mut RawValue,
    ) -> c_int;
    pub fn plait_put(map: *mut RawMap, key: RawValue, value: RawValue) -> c_int;
    pub fn plait_insert(
        map: *mut RawMap,
        key: RawValue,
        value: RawValue,
        done: *mut c_int,
    ) -> c_int;
    pub fn plait_update(
        map: *mut RawMap,
        key: RawValue,
        value: RawValue,
        done: *mut c_int,
    ) -> c_int;
    pub fn plait_delete(map: *mut RawMap, key: RawValue, done: *mut c_int) -> c_int;
    pub fn plait_compare_and_swap(
        map: *mut RawMap,
        key: RawValue,
        expected: RawValue,
        value: RawValue,
        done: *mut c_int,
    ) -> c_int;
    pub fn plait_add(map: *mut RawMap, key: RawValue, delta: i64, new: *mut i64) -> c_int;
    pub fn plait_append(
        map: *mut RawMap,
        key: RawValue,
        tail: RawValue,
        size_bytes: *mut i64,
    ) -> c_int;
    pub fn plait_count_range(map: *mut RawMap, range: *const RawRange, n: *mut i64) -> c_int;
    pub fn plait_delete_range(map: *mut RawMap, range: *const RawRange, n: *mut i64) -> c_int;
    pub fn plait_first(
        map: *mut RawMap,
        range: *const RawRange,
        key: *mut RawValue,
        value: *mut RawValue,
    ) -> c_int;
    pub fn plait_last(
        map: *mut RawMap,
        range: *const RawRange,
        key: *mut RawValue,
        value: *mut RawValue,
    ) -> c_int;
    pub fn plait_cursor_open(
        map: *mut RawMap,
        range: *const RawRange,
        cursor: *mut *mut RawCursor,
    ) -> c_int;
    pub fn plait_cursor_first(
        cursor: *mut RawCursor,
        key: *mut RawValue,
        value: *mut RawValue,
    ) -> c_int;
    pub fn plait_cursor_last(
        cursor: *mut RawCursor,
        key: *mut RawValue,
        value: *mut RawValue,
    ) -> c_int;
    pub fn plait_cursor_next(
        cursor: *mut RawCursor,
        key: *mut RawValue,
        value: *mut RawValue,
    ) -> c_int;
    pub fn plait_cursor_prev(
        cursor: *mut RawCursor,
        key: *mut RawValue,
        value: *mut RawValue,
    ) -> c_int;
    pub fn plait_cursor_seek(
        cursor: *mut RawCursor,
        key: RawValue,
        how: c_int,
        key_found: *mut RawValue,
        value: *mut RawValue,
    ) -> c_int;
    pub fn plait_cursor_close(cursor: *mut RawCursor) -> c_int;
    pub fn plait_batch(
        map: *mut RawMap,
        n: c_int,
        items: *const RawItem,
        failed: *mut c_int,
    ) -> c_int;
    pub fn plait_load(
        map: *mut RawMap,
        flags: c_int,
        next: NextRow,
        context: *mut c_void,
        n: *mut i64,
    ) -> c_int;
}

/// A static or still valid C string as a text of our own.
///
/// # Safety
/// `text` is null or points to a string that ends with a zero byte and does not change during the call.
pub unsafe fn owned_text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's contract.
    unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// `plait_version`.
pub fn version() -> String {
    // SAFETY: it takes nothing and answers a static string.
    let version = unsafe { plait_version() };
    // SAFETY: as above.
    unsafe { owned_text(version) }
}
