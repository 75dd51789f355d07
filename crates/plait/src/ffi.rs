//! The functions of `sqlite3.h` and `plait.h` that this crate calls, and their constants.
//!
//! Linked are those of `plait-sqlite`, the spliced SQLite of this workspace. Declared here is what no other caller has.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};

// Its library holds the functions below.
use plait_sqlite as _;

pub use plait_raw::common::{
    sqlite3_bind_double, sqlite3_bind_int64, sqlite3_bind_null, sqlite3_busy_timeout,
    sqlite3_column_blob, sqlite3_column_bytes, sqlite3_column_count, sqlite3_column_double,
    sqlite3_column_int64, sqlite3_column_text, sqlite3_column_type, sqlite3_errmsg,
    sqlite3_extended_errcode, sqlite3_extended_result_codes, sqlite3_finalize,
    sqlite3_get_autocommit, sqlite3_open_v2, sqlite3_prepare_v2, sqlite3_step,
};
// Where it lies tells one copy of SQLite from another.
#[cfg(feature = "rusqlite")]
pub use plait_raw::common::sqlite3_libversion;
pub use plait_raw::maps::*;
pub use plait_raw::more::{sqlite3_changes64, sqlite3_stmt_readonly, sqlite3_total_changes64};
pub use plait_raw::{
    DestructorFn, RawCursor, RawDb, RawItem, RawKeyValue as RawValue, RawMap, RawRange,
    RawStatement,
};

/// `PLAIT_NONE` as a value.
pub const NONE: RawValue =
    RawValue { kind: 0, integer: 0, real: 0.0, data: std::ptr::null(), size_bytes: 0 };

pub const OK: c_int = 0;
pub const ERROR: c_int = 1;
pub const ABORT: c_int = 4;
pub const BUSY: c_int = 5;
pub const MISMATCH: c_int = 20;
pub const MISUSE: c_int = 21;
pub const AUTH: c_int = 23;
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

unsafe extern "C" {
    pub fn sqlite3_close_v2(db: *mut RawDb) -> c_int;
    pub fn sqlite3_errstr(code: c_int) -> *const c_char;
    pub fn sqlite3_table_column_metadata(
        db: *mut RawDb,
        schema: *const c_char,
        table: *const c_char,
        column: *const c_char,
        declared: *mut *const c_char,
        collation: *mut *const c_char,
        is_not_null: *mut c_int,
        is_key: *mut c_int,
        is_autoincrement: *mut c_int,
    ) -> c_int;
    pub fn sqlite3_bind_parameter_count(statement: *mut RawStatement) -> c_int;
    pub fn sqlite3_bind_text64(
        statement: *mut RawStatement,
        index: c_int,
        data: *const c_char,
        len_bytes: u64,
        destructor: DestructorFn,
        encoding: u8,
    ) -> c_int;
    pub fn sqlite3_bind_blob64(
        statement: *mut RawStatement,
        index: c_int,
        data: *const c_void,
        len_bytes: u64,
        destructor: DestructorFn,
    ) -> c_int;
    pub fn plait_version() -> *const c_char;
    pub fn plait_notify_fd(db: *mut RawDb, schema: *const c_char, fd: *mut c_int) -> c_int;
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
