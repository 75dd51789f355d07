//! SQLite's C interface and `plait.h`, as their callers need them: types, tables of functions, and the functions as they are linked.
//!
//! Nothing is called here. `plait-client` finds the functions in libraries by path; the crate `plait` is linked with them.

#![allow(unsafe_code)]
// What the names of C mean stands in `sqlite3.h` and `plait.h`.
#![allow(missing_docs)]

use std::ffi::{CStr, c_char, c_int, c_void};

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

/// `sqlite3_value`.
#[repr(C)]
pub struct RawValue {
    _opaque: [u8; 0],
}

/// `sqlite3_blob`.
#[repr(C)]
pub struct RawBlob {
    _opaque: [u8; 0],
}

/// `sqlite3_backup`.
#[repr(C)]
pub struct RawBackup {
    _opaque: [u8; 0],
}

/// `sqlite3_session`.
#[repr(C)]
pub struct RawSession {
    _opaque: [u8; 0],
}

/// `sqlite3_vfs` of version 3.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RawVfs {
    pub numbers: [c_int; 3],
    pub next: *mut RawVfs,
    pub name: *const c_char,
    pub data: *mut c_void,
    pub methods: [*const c_void; 18],
}

pub type BusyFn = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
pub type AuthorizerFn = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *const c_char,
    *const c_char,
    *const c_char,
    *const c_char,
) -> c_int;
/// What `sqlite3_auto_extension` takes under the type of a function without arguments.
pub type ExtensionFn =
    unsafe extern "C" fn(*mut c_void, *mut *const c_char, *const c_void) -> c_int;
pub type CommitFn = unsafe extern "C" fn(*mut c_void) -> c_int;
pub type RollbackFn = unsafe extern "C" fn(*mut c_void);
pub type UpdateFn = unsafe extern "C" fn(*mut c_void, c_int, *const c_char, *const c_char, i64);
pub type PreupdateFn =
    unsafe extern "C" fn(*mut c_void, *mut RawDb, c_int, *const c_char, *const c_char, i64, i64);
pub type AutovacuumFn = unsafe extern "C" fn(*mut c_void, *const c_char, u32, u32, u32) -> u32;
pub type WalFn = unsafe extern "C" fn(*mut c_void, *mut RawDb, *const c_char, c_int) -> c_int;
pub type ConflictFn = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int;
pub type FilterFn = unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int;
pub type CompareFn =
    unsafe extern "C" fn(*mut c_void, c_int, *const c_void, c_int, *const c_void) -> c_int;
pub type DestructorFn = Option<unsafe extern "C" fn(*mut c_void)>;

/// A table of functions, and the same functions declared for programs that are linked with them.
macro_rules! functions {
    ($(#[$doc:meta])* $name:ident, $linked:ident: $( $field:ident = $symbol:ident: fn($($arg:ty),*) $(-> $ret:ty)?; )*) => {
        $(#[$doc])*
        ///
        /// Named as in C without the prefix.
        pub struct $name { $( pub $field: unsafe extern "C" fn($($arg),*) $(-> $ret)?, )* }

        impl $name {
            /// Those of a library in which `find` looks for a symbol.
            ///
            /// # Errors
            /// The first of `find`.
            ///
            /// # Safety
            /// What `find` finds are the functions of SQLite and `plait.h`, and stays.
            pub unsafe fn found<E>(find: impl Fn(&CStr) -> Result<*const c_void, E>) -> Result<Self, E> {
                Ok(Self { $(
                    $field: {
                        type Signature = unsafe extern "C" fn($($arg),*) $(-> $ret)?;
                        let symbol = concat!(stringify!($symbol), "\0").as_bytes();
                        let name = CStr::from_bytes_with_nul(symbol).expect("a symbol's name has no other zero");
                        // SAFETY: by the caller's contract it is this function of a documented, stable C interface, which
                        // has this signature; it was found, so it is not null.
                        unsafe { std::mem::transmute::<*const c_void, Signature>(find(name)?) }
                    },
                )* })
            }

            /// Those that the program is linked with. Compiled only into crates that call it: the others need not be.
            #[must_use]
            #[inline]
            pub fn linked() -> Self {
                Self { $( $field: $linked::$symbol, )* }
            }
        }

        /// The same, as they are linked.
        pub mod $linked {
            use super::*;

            unsafe extern "C" { $( pub fn $symbol($(_: $arg),*) $(-> $ret)?; )* }
        }
    };
}

functions! {
    /// What every program needs. SQLite 3.7.6 had all of them: Berkeley DB's SQL interface is that old.
    Functions, common:
    libversion = sqlite3_libversion: fn() -> *const c_char;
    sourceid = sqlite3_sourceid: fn() -> *const c_char;
    open_v2 = sqlite3_open_v2: fn(*const c_char, *mut *mut RawDb, c_int, *const c_char) -> c_int;
    close = sqlite3_close: fn(*mut RawDb) -> c_int;
    extended_result_codes = sqlite3_extended_result_codes: fn(*mut RawDb, c_int) -> c_int;
    errcode = sqlite3_errcode: fn(*mut RawDb) -> c_int;
    extended_errcode = sqlite3_extended_errcode: fn(*mut RawDb) -> c_int;
    errmsg = sqlite3_errmsg: fn(*mut RawDb) -> *const c_char;
    busy_timeout = sqlite3_busy_timeout: fn(*mut RawDb, c_int) -> c_int;
    busy_handler = sqlite3_busy_handler: fn(*mut RawDb, Option<BusyFn>, *mut c_void) -> c_int;
    get_autocommit = sqlite3_get_autocommit: fn(*mut RawDb) -> c_int;
    changes = sqlite3_changes: fn(*mut RawDb) -> c_int;
    prepare_v2 = sqlite3_prepare_v2: fn(*mut RawDb, *const c_char, c_int, *mut *mut RawStatement, *mut *const c_char) -> c_int;
    finalize = sqlite3_finalize: fn(*mut RawStatement) -> c_int;
    reset = sqlite3_reset: fn(*mut RawStatement) -> c_int;
    step = sqlite3_step: fn(*mut RawStatement) -> c_int;
    bind_null = sqlite3_bind_null: fn(*mut RawStatement, c_int) -> c_int;
    bind_int64 = sqlite3_bind_int64: fn(*mut RawStatement, c_int, i64) -> c_int;
    bind_double = sqlite3_bind_double: fn(*mut RawStatement, c_int, f64) -> c_int;
    bind_text = sqlite3_bind_text: fn(*mut RawStatement, c_int, *const c_char, c_int, isize) -> c_int;
    bind_blob = sqlite3_bind_blob: fn(*mut RawStatement, c_int, *const c_void, c_int, isize) -> c_int;
    column_count = sqlite3_column_count: fn(*mut RawStatement) -> c_int;
    column_name = sqlite3_column_name: fn(*mut RawStatement, c_int) -> *const c_char;
    column_type = sqlite3_column_type: fn(*mut RawStatement, c_int) -> c_int;
    column_int64 = sqlite3_column_int64: fn(*mut RawStatement, c_int) -> i64;
    column_double = sqlite3_column_double: fn(*mut RawStatement, c_int) -> f64;
    column_text = sqlite3_column_text: fn(*mut RawStatement, c_int) -> *const u8;
    column_blob = sqlite3_column_blob: fn(*mut RawStatement, c_int) -> *const c_void;
    column_bytes = sqlite3_column_bytes: fn(*mut RawStatement, c_int) -> c_int;
}

functions! {
    /// The rest, which today's SQLite has if it is built with sessions, snapshots and the pre-update hook.
    MoreFunctions, more:
    compileoption_get = sqlite3_compileoption_get: fn(c_int) -> *const c_char;
    // With an option that takes no further arguments.
    config = sqlite3_config: fn(c_int) -> c_int;
    auto_extension = sqlite3_auto_extension: fn(Option<ExtensionFn>) -> c_int;
    malloc64 = sqlite3_malloc64: fn(u64) -> *mut c_void;
    free = sqlite3_free: fn(*mut c_void);
    vfs_find = sqlite3_vfs_find: fn(*const c_char) -> *mut RawVfs;
    vfs_register = sqlite3_vfs_register: fn(*mut RawVfs, c_int) -> c_int;
    progress_handler = sqlite3_progress_handler: fn(*mut RawDb, c_int, Option<CommitFn>, *mut c_void);
    set_authorizer = sqlite3_set_authorizer: fn(*mut RawDb, Option<AuthorizerFn>, *mut c_void) -> c_int;
    commit_hook = sqlite3_commit_hook: fn(*mut RawDb, Option<CommitFn>, *mut c_void) -> *mut c_void;
    rollback_hook = sqlite3_rollback_hook: fn(*mut RawDb, Option<RollbackFn>, *mut c_void) -> *mut c_void;
    update_hook = sqlite3_update_hook: fn(*mut RawDb, Option<UpdateFn>, *mut c_void) -> *mut c_void;
    preupdate_hook = sqlite3_preupdate_hook: fn(*mut RawDb, Option<PreupdateFn>, *mut c_void) -> *mut c_void;
    preupdate_count = sqlite3_preupdate_count: fn(*mut RawDb) -> c_int;
    preupdate_depth = sqlite3_preupdate_depth: fn(*mut RawDb) -> c_int;
    preupdate_blobwrite = sqlite3_preupdate_blobwrite: fn(*mut RawDb) -> c_int;
    preupdate_old = sqlite3_preupdate_old: fn(*mut RawDb, c_int, *mut *mut RawValue) -> c_int;
    preupdate_new = sqlite3_preupdate_new: fn(*mut RawDb, c_int, *mut *mut RawValue) -> c_int;
    value_type = sqlite3_value_type: fn(*mut RawValue) -> c_int;
    value_int64 = sqlite3_value_int64: fn(*mut RawValue) -> i64;
    value_double = sqlite3_value_double: fn(*mut RawValue) -> f64;
    value_blob = sqlite3_value_blob: fn(*mut RawValue) -> *const c_void;
    value_bytes = sqlite3_value_bytes: fn(*mut RawValue) -> c_int;
    wal_checkpoint_v2 = sqlite3_wal_checkpoint_v2: fn(*mut RawDb, *const c_char, c_int, *mut c_int, *mut c_int) -> c_int;
    create_collation_v2 = sqlite3_create_collation_v2: fn(*mut RawDb, *const c_char, c_int, *mut c_void, Option<CompareFn>, DestructorFn) -> c_int;
    autovacuum_pages = sqlite3_autovacuum_pages: fn(*mut RawDb, Option<AutovacuumFn>, *mut c_void, DestructorFn) -> c_int;
    wal_hook = sqlite3_wal_hook: fn(*mut RawDb, Option<WalFn>, *mut c_void) -> *mut c_void;
    snapshot_get = sqlite3_snapshot_get: fn(*mut RawDb, *const c_char, *mut *mut c_void) -> c_int;
    snapshot_free = sqlite3_snapshot_free: fn(*mut c_void);
    // With an option that takes an int and a place for the answer.
    db_config = sqlite3_db_config: fn(*mut RawDb, c_int, c_int, *mut c_int) -> c_int;
    db_status = sqlite3_db_status: fn(*mut RawDb, c_int, *mut c_int, *mut c_int, c_int) -> c_int;
    memory_used = sqlite3_memory_used: fn() -> i64;
    limit = sqlite3_limit: fn(*mut RawDb, c_int, c_int) -> c_int;
    interrupt = sqlite3_interrupt: fn(*mut RawDb);
    changes64 = sqlite3_changes64: fn(*mut RawDb) -> i64;
    total_changes64 = sqlite3_total_changes64: fn(*mut RawDb) -> i64;
    last_insert_rowid = sqlite3_last_insert_rowid: fn(*mut RawDb) -> i64;
    txn_state = sqlite3_txn_state: fn(*mut RawDb, *const c_char) -> c_int;
    file_control = sqlite3_file_control: fn(*mut RawDb, *const c_char, c_int, *mut c_void) -> c_int;
    db_cacheflush = sqlite3_db_cacheflush: fn(*mut RawDb) -> c_int;
    stmt_readonly = sqlite3_stmt_readonly: fn(*mut RawStatement) -> c_int;
    bind_zeroblob64 = sqlite3_bind_zeroblob64: fn(*mut RawStatement, c_int, u64) -> c_int;
    blob_open = sqlite3_blob_open: fn(*mut RawDb, *const c_char, *const c_char, *const c_char, i64, c_int, *mut *mut RawBlob) -> c_int;
    blob_close = sqlite3_blob_close: fn(*mut RawBlob) -> c_int;
    blob_reopen = sqlite3_blob_reopen: fn(*mut RawBlob, i64) -> c_int;
    blob_bytes = sqlite3_blob_bytes: fn(*mut RawBlob) -> c_int;
    blob_read = sqlite3_blob_read: fn(*mut RawBlob, *mut c_void, c_int, c_int) -> c_int;
    blob_write = sqlite3_blob_write: fn(*mut RawBlob, *const c_void, c_int, c_int) -> c_int;
    backup_init = sqlite3_backup_init: fn(*mut RawDb, *const c_char, *mut RawDb, *const c_char) -> *mut RawBackup;
    backup_step = sqlite3_backup_step: fn(*mut RawBackup, c_int) -> c_int;
    backup_remaining = sqlite3_backup_remaining: fn(*mut RawBackup) -> c_int;
    backup_finish = sqlite3_backup_finish: fn(*mut RawBackup) -> c_int;
    serialize = sqlite3_serialize: fn(*mut RawDb, *const c_char, *mut i64, u32) -> *mut u8;
    deserialize = sqlite3_deserialize: fn(*mut RawDb, *const c_char, *mut u8, i64, i64, u32) -> c_int;
    session_create = sqlite3session_create: fn(*mut RawDb, *const c_char, *mut *mut RawSession) -> c_int;
    session_attach = sqlite3session_attach: fn(*mut RawSession, *const c_char) -> c_int;
    session_changeset = sqlite3session_changeset: fn(*mut RawSession, *mut c_int, *mut *mut c_void) -> c_int;
    session_delete = sqlite3session_delete: fn(*mut RawSession);
    changeset_apply = sqlite3changeset_apply: fn(*mut RawDb, c_int, *mut c_void, Option<FilterFn>, Option<ConflictFn>, *mut c_void) -> c_int;
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
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RawKeyValue {
    pub kind: c_int,
    pub integer: i64,
    pub real: f64,
    pub data: *const c_void,
    pub size_bytes: i64,
}

/// `plait_range`.
#[repr(C)]
pub struct RawRange {
    pub lo: RawKeyValue,
    pub hi: RawKeyValue,
    pub flags: c_int,
}

/// `plait_batch_item`.
#[repr(C)]
pub struct RawItem {
    pub op: c_int,
    pub key: RawKeyValue,
    pub value: RawKeyValue,
}

pub type NextFn = unsafe extern "C" fn(*mut c_void, *mut RawKeyValue, *mut RawKeyValue) -> c_int;
type Out = *mut RawKeyValue;

functions! {
    /// The key-value interface and the tickets of `plait.h`.
    MapFunctions, maps:
    ticket = plait_ticket: fn(*mut RawDb, *const c_char, *mut i64) -> c_int;
    durable = plait_durable: fn(*mut RawDb, *const c_char, *mut i64) -> c_int;
    wait = plait_wait: fn(*mut RawDb, *const c_char, i64, c_int, *mut c_int) -> c_int;
    map_open = plait_map_open: fn(*mut RawDb, *const c_char, *const c_char, c_int, *mut *mut RawMap) -> c_int;
    map_close = plait_map_close: fn(*mut RawMap) -> c_int;
    get = plait_get: fn(*mut RawMap, RawKeyValue, Out) -> c_int;
    contains = plait_contains: fn(*mut RawMap, RawKeyValue, *mut c_int) -> c_int;
    get_many = plait_get_many: fn(*mut RawMap, c_int, *const RawKeyValue, Out) -> c_int;
    put = plait_put: fn(*mut RawMap, RawKeyValue, RawKeyValue) -> c_int;
    insert = plait_insert: fn(*mut RawMap, RawKeyValue, RawKeyValue, *mut c_int) -> c_int;
    update = plait_update: fn(*mut RawMap, RawKeyValue, RawKeyValue, *mut c_int) -> c_int;
    delete = plait_delete: fn(*mut RawMap, RawKeyValue, *mut c_int) -> c_int;
    compare_and_swap = plait_compare_and_swap: fn(*mut RawMap, RawKeyValue, RawKeyValue, RawKeyValue, *mut c_int) -> c_int;
    add = plait_add: fn(*mut RawMap, RawKeyValue, i64, *mut i64) -> c_int;
    append = plait_append: fn(*mut RawMap, RawKeyValue, RawKeyValue, *mut i64) -> c_int;
    count_range = plait_count_range: fn(*mut RawMap, *const RawRange, *mut i64) -> c_int;
    delete_range = plait_delete_range: fn(*mut RawMap, *const RawRange, *mut i64) -> c_int;
    first = plait_first: fn(*mut RawMap, *const RawRange, Out, Out) -> c_int;
    last = plait_last: fn(*mut RawMap, *const RawRange, Out, Out) -> c_int;
    cursor_open = plait_cursor_open: fn(*mut RawMap, *const RawRange, *mut *mut RawCursor) -> c_int;
    cursor_first = plait_cursor_first: fn(*mut RawCursor, Out, Out) -> c_int;
    cursor_last = plait_cursor_last: fn(*mut RawCursor, Out, Out) -> c_int;
    cursor_next = plait_cursor_next: fn(*mut RawCursor, Out, Out) -> c_int;
    cursor_prev = plait_cursor_prev: fn(*mut RawCursor, Out, Out) -> c_int;
    cursor_seek = plait_cursor_seek: fn(*mut RawCursor, RawKeyValue, c_int, Out, Out) -> c_int;
    cursor_close = plait_cursor_close: fn(*mut RawCursor) -> c_int;
    batch = plait_batch: fn(*mut RawMap, c_int, *const RawItem, *mut c_int) -> c_int;
    load = plait_load: fn(*mut RawMap, c_int, NextFn, *mut c_void, *mut i64) -> c_int;
}
