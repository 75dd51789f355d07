//! The part of SQLite's C interface that the tests call, resolved by name from one shared object.
//!
//! Several libraries may be loaded in one process: each is opened with `RTLD_LOCAL`, so their symbols never mix.

use std::ffi::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

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

macro_rules! functions {
    ($name:ident: $( $field:ident = $symbol:literal : fn($($arg:ty),*) $(-> $ret:ty)?; )*) => {
        /// Function pointers of one loaded library, named as in C without the prefix.
        pub struct $name { $( pub $field: unsafe extern "C" fn($($arg),*) $(-> $ret)?, )* }

        impl $name {
            fn resolve(library: &libloading::os::unix::Library) -> Result<Self, libloading::Error> {
                Ok(Self { $(
                    $field: {
                        type Signature = unsafe extern "C" fn($($arg),*) $(-> $ret)?;
                        // SAFETY: the symbol is part of SQLite's documented, stable C interface and has this signature.
                        let symbol = unsafe { library.get::<Signature>($symbol) }?;
                        *symbol
                    },
                )* })
            }
        }
    };
}

functions! {
    Functions:
    libversion = b"sqlite3_libversion\0": fn() -> *const c_char;
    sourceid = b"sqlite3_sourceid\0": fn() -> *const c_char;
    compileoption_get = b"sqlite3_compileoption_get\0": fn(c_int) -> *const c_char;
    // With an option that takes no further arguments.
    config = b"sqlite3_config\0": fn(c_int) -> c_int;
    auto_extension = b"sqlite3_auto_extension\0": fn(Option<ExtensionFn>) -> c_int;
    malloc64 = b"sqlite3_malloc64\0": fn(u64) -> *mut c_void;
    free = b"sqlite3_free\0": fn(*mut c_void);
    vfs_find = b"sqlite3_vfs_find\0": fn(*const c_char) -> *mut RawVfs;
    vfs_register = b"sqlite3_vfs_register\0": fn(*mut RawVfs, c_int) -> c_int;
    open_v2 = b"sqlite3_open_v2\0": fn(*const c_char, *mut *mut RawDb, c_int, *const c_char) -> c_int;
    close = b"sqlite3_close\0": fn(*mut RawDb) -> c_int;
    close_v2 = b"sqlite3_close_v2\0": fn(*mut RawDb) -> c_int;
    extended_result_codes = b"sqlite3_extended_result_codes\0": fn(*mut RawDb, c_int) -> c_int;
    errcode = b"sqlite3_errcode\0": fn(*mut RawDb) -> c_int;
    extended_errcode = b"sqlite3_extended_errcode\0": fn(*mut RawDb) -> c_int;
    errmsg = b"sqlite3_errmsg\0": fn(*mut RawDb) -> *const c_char;
    busy_timeout = b"sqlite3_busy_timeout\0": fn(*mut RawDb, c_int) -> c_int;
    busy_handler = b"sqlite3_busy_handler\0": fn(*mut RawDb, Option<BusyFn>, *mut c_void) -> c_int;
    set_authorizer = b"sqlite3_set_authorizer\0": fn(*mut RawDb, Option<AuthorizerFn>, *mut c_void) -> c_int;
    commit_hook = b"sqlite3_commit_hook\0": fn(*mut RawDb, Option<CommitFn>, *mut c_void) -> *mut c_void;
    rollback_hook = b"sqlite3_rollback_hook\0": fn(*mut RawDb, Option<RollbackFn>, *mut c_void) -> *mut c_void;
    update_hook = b"sqlite3_update_hook\0": fn(*mut RawDb, Option<UpdateFn>, *mut c_void) -> *mut c_void;
    preupdate_hook = b"sqlite3_preupdate_hook\0": fn(*mut RawDb, Option<PreupdateFn>, *mut c_void) -> *mut c_void;
    preupdate_count = b"sqlite3_preupdate_count\0": fn(*mut RawDb) -> c_int;
    preupdate_depth = b"sqlite3_preupdate_depth\0": fn(*mut RawDb) -> c_int;
    preupdate_blobwrite = b"sqlite3_preupdate_blobwrite\0": fn(*mut RawDb) -> c_int;
    preupdate_old = b"sqlite3_preupdate_old\0": fn(*mut RawDb, c_int, *mut *mut RawValue) -> c_int;
    preupdate_new = b"sqlite3_preupdate_new\0": fn(*mut RawDb, c_int, *mut *mut RawValue) -> c_int;
    value_type = b"sqlite3_value_type\0": fn(*mut RawValue) -> c_int;
    value_int64 = b"sqlite3_value_int64\0": fn(*mut RawValue) -> i64;
    value_double = b"sqlite3_value_double\0": fn(*mut RawValue) -> f64;
    value_blob = b"sqlite3_value_blob\0": fn(*mut RawValue) -> *const c_void;
    value_bytes = b"sqlite3_value_bytes\0": fn(*mut RawValue) -> c_int;
    wal_checkpoint_v2 = b"sqlite3_wal_checkpoint_v2\0": fn(*mut RawDb, *const c_char, c_int, *mut c_int, *mut c_int) -> c_int;
    create_collation_v2 = b"sqlite3_create_collation_v2\0": fn(*mut RawDb, *const c_char, c_int, *mut c_void, Option<CompareFn>, DestructorFn) -> c_int;
    autovacuum_pages = b"sqlite3_autovacuum_pages\0": fn(*mut RawDb, Option<AutovacuumFn>, *mut c_void, DestructorFn) -> c_int;
    wal_hook = b"sqlite3_wal_hook\0": fn(*mut RawDb, Option<WalFn>, *mut c_void) -> *mut c_void;
    snapshot_get = b"sqlite3_snapshot_get\0": fn(*mut RawDb, *const c_char, *mut *mut c_void) -> c_int;
    snapshot_free = b"sqlite3_snapshot_free\0": fn(*mut c_void);
    // With an option that takes an int and a place for the answer.
    db_config = b"sqlite3_db_config\0": fn(*mut RawDb, c_int, c_int, *mut c_int) -> c_int;
    limit = b"sqlite3_limit\0": fn(*mut RawDb, c_int, c_int) -> c_int;
    interrupt = b"sqlite3_interrupt\0": fn(*mut RawDb);
    changes64 = b"sqlite3_changes64\0": fn(*mut RawDb) -> i64;
    total_changes64 = b"sqlite3_total_changes64\0": fn(*mut RawDb) -> i64;
    last_insert_rowid = b"sqlite3_last_insert_rowid\0": fn(*mut RawDb) -> i64;
    get_autocommit = b"sqlite3_get_autocommit\0": fn(*mut RawDb) -> c_int;
    txn_state = b"sqlite3_txn_state\0": fn(*mut RawDb, *const c_char) -> c_int;
    file_control = b"sqlite3_file_control\0": fn(*mut RawDb, *const c_char, c_int, *mut c_void) -> c_int;
    db_cacheflush = b"sqlite3_db_cacheflush\0": fn(*mut RawDb) -> c_int;
    prepare_v2 = b"sqlite3_prepare_v2\0": fn(*mut RawDb, *const c_char, c_int, *mut *mut RawStatement, *mut *const c_char) -> c_int;
    finalize = b"sqlite3_finalize\0": fn(*mut RawStatement) -> c_int;
    reset = b"sqlite3_reset\0": fn(*mut RawStatement) -> c_int;
    step = b"sqlite3_step\0": fn(*mut RawStatement) -> c_int;
    stmt_readonly = b"sqlite3_stmt_readonly\0": fn(*mut RawStatement) -> c_int;
    bind_null = b"sqlite3_bind_null\0": fn(*mut RawStatement, c_int) -> c_int;
    bind_int64 = b"sqlite3_bind_int64\0": fn(*mut RawStatement, c_int, i64) -> c_int;
    bind_double = b"sqlite3_bind_double\0": fn(*mut RawStatement, c_int, f64) -> c_int;
    bind_text = b"sqlite3_bind_text\0": fn(*mut RawStatement, c_int, *const c_char, c_int, isize) -> c_int;
    bind_blob64 = b"sqlite3_bind_blob64\0": fn(*mut RawStatement, c_int, *const c_void, u64, isize) -> c_int;
    bind_zeroblob64 = b"sqlite3_bind_zeroblob64\0": fn(*mut RawStatement, c_int, u64) -> c_int;
    column_count = b"sqlite3_column_count\0": fn(*mut RawStatement) -> c_int;
    column_type = b"sqlite3_column_type\0": fn(*mut RawStatement, c_int) -> c_int;
    column_int64 = b"sqlite3_column_int64\0": fn(*mut RawStatement, c_int) -> i64;
    column_double = b"sqlite3_column_double\0": fn(*mut RawStatement, c_int) -> f64;
    column_text = b"sqlite3_column_text\0": fn(*mut RawStatement, c_int) -> *const u8;
    column_blob = b"sqlite3_column_blob\0": fn(*mut RawStatement, c_int) -> *const c_void;
    column_bytes = b"sqlite3_column_bytes\0": fn(*mut RawStatement, c_int) -> c_int;
    blob_open = b"sqlite3_blob_open\0": fn(*mut RawDb, *const c_char, *const c_char, *const c_char, i64, c_int, *mut *mut RawBlob) -> c_int;
    blob_close = b"sqlite3_blob_close\0": fn(*mut RawBlob) -> c_int;
    blob_reopen = b"sqlite3_blob_reopen\0": fn(*mut RawBlob, i64) -> c_int;
    blob_bytes = b"sqlite3_blob_bytes\0": fn(*mut RawBlob) -> c_int;
    blob_read = b"sqlite3_blob_read\0": fn(*mut RawBlob, *mut c_void, c_int, c_int) -> c_int;
    blob_write = b"sqlite3_blob_write\0": fn(*mut RawBlob, *const c_void, c_int, c_int) -> c_int;
    backup_init = b"sqlite3_backup_init\0": fn(*mut RawDb, *const c_char, *mut RawDb, *const c_char) -> *mut RawBackup;
    backup_step = b"sqlite3_backup_step\0": fn(*mut RawBackup, c_int) -> c_int;
    backup_remaining = b"sqlite3_backup_remaining\0": fn(*mut RawBackup) -> c_int;
    backup_finish = b"sqlite3_backup_finish\0": fn(*mut RawBackup) -> c_int;
    serialize = b"sqlite3_serialize\0": fn(*mut RawDb, *const c_char, *mut i64, u32) -> *mut u8;
    deserialize = b"sqlite3_deserialize\0": fn(*mut RawDb, *const c_char, *mut u8, i64, i64, u32) -> c_int;
    session_create = b"sqlite3session_create\0": fn(*mut RawDb, *const c_char, *mut *mut RawSession) -> c_int;
    session_attach = b"sqlite3session_attach\0": fn(*mut RawSession, *const c_char) -> c_int;
    session_changeset = b"sqlite3session_changeset\0": fn(*mut RawSession, *mut c_int, *mut *mut c_void) -> c_int;
    session_delete = b"sqlite3session_delete\0": fn(*mut RawSession);
    changeset_apply = b"sqlite3changeset_apply\0": fn(*mut RawDb, c_int, *mut c_void, Option<FilterFn>, Option<ConflictFn>, *mut c_void) -> c_int;
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
    pub size: i64,
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
    MapFunctions:
    ticket = b"plait_ticket\0": fn(*mut RawDb, *const c_char, *mut i64) -> c_int;
    durable = b"plait_durable\0": fn(*mut RawDb, *const c_char, *mut i64) -> c_int;
    wait = b"plait_wait\0": fn(*mut RawDb, *const c_char, i64, c_int, *mut c_int) -> c_int;
    map_open = b"plait_map_open\0": fn(*mut RawDb, *const c_char, *const c_char, c_int, *mut *mut RawMap) -> c_int;
    map_close = b"plait_map_close\0": fn(*mut RawMap) -> c_int;
    get = b"plait_get\0": fn(*mut RawMap, RawKeyValue, Out) -> c_int;
    contains = b"plait_contains\0": fn(*mut RawMap, RawKeyValue, *mut c_int) -> c_int;
    get_many = b"plait_get_many\0": fn(*mut RawMap, c_int, *const RawKeyValue, Out) -> c_int;
    put = b"plait_put\0": fn(*mut RawMap, RawKeyValue, RawKeyValue) -> c_int;
    insert = b"plait_insert\0": fn(*mut RawMap, RawKeyValue, RawKeyValue, *mut c_int) -> c_int;
    update = b"plait_update\0": fn(*mut RawMap, RawKeyValue, RawKeyValue, *mut c_int) -> c_int;
    delete = b"plait_delete\0": fn(*mut RawMap, RawKeyValue, *mut c_int) -> c_int;
    compare_and_swap = b"plait_compare_and_swap\0": fn(*mut RawMap, RawKeyValue, RawKeyValue, RawKeyValue, *mut c_int) -> c_int;
    add = b"plait_add\0": fn(*mut RawMap, RawKeyValue, i64, *mut i64) -> c_int;
    append = b"plait_append\0": fn(*mut RawMap, RawKeyValue, RawKeyValue, *mut i64) -> c_int;
    count_range = b"plait_count_range\0": fn(*mut RawMap, *const RawRange, *mut i64) -> c_int;
    delete_range = b"plait_delete_range\0": fn(*mut RawMap, *const RawRange, *mut i64) -> c_int;
    first = b"plait_first\0": fn(*mut RawMap, *const RawRange, Out, Out) -> c_int;
    last = b"plait_last\0": fn(*mut RawMap, *const RawRange, Out, Out) -> c_int;
    cursor_open = b"plait_cursor_open\0": fn(*mut RawMap, *const RawRange, *mut *mut RawCursor) -> c_int;
    cursor_first = b"plait_cursor_first\0": fn(*mut RawCursor, Out, Out) -> c_int;
    cursor_last = b"plait_cursor_last\0": fn(*mut RawCursor, Out, Out) -> c_int;
    cursor_next = b"plait_cursor_next\0": fn(*mut RawCursor, Out, Out) -> c_int;
    cursor_prev = b"plait_cursor_prev\0": fn(*mut RawCursor, Out, Out) -> c_int;
    cursor_seek = b"plait_cursor_seek\0": fn(*mut RawCursor, RawKeyValue, c_int, Out, Out) -> c_int;
    cursor_close = b"plait_cursor_close\0": fn(*mut RawCursor) -> c_int;
    batch = b"plait_batch\0": fn(*mut RawMap, c_int, *const RawItem, *mut c_int) -> c_int;
    load = b"plait_load\0": fn(*mut RawMap, c_int, NextFn, *mut c_void, *mut i64) -> c_int;
}

/// One loaded shared object. It stays loaded to the end of the process: connections point into it.
pub struct Loaded {
    pub functions: Functions,
    /// The key-value interface, which stock libraries have not.
    pub maps: Option<MapFunctions>,
    pub path: PathBuf,
    _library: libloading::os::unix::Library,
}

static LOADED: Mutex<Vec<&'static Loaded>> = Mutex::new(Vec::new());

/// Loads a library once per path and process.
pub fn load(path: &Path) -> Result<&'static Loaded, libloading::Error> {
    let mut loaded = LOADED.lock().expect("no test panics while a library loads");
    if let Some(found) = loaded.iter().find(|candidate| candidate.path == path) {
        return Ok(found);
    }
    crate::os::join_unless_said();
    let flags = libloading::os::unix::RTLD_NOW | libloading::os::unix::RTLD_LOCAL;
    // SAFETY: libsqlite3 runs no initialisers that could be unsound; the handle is kept for the life of the process.
    let library = unsafe { libloading::os::unix::Library::open(Some(path), flags) }?;
    let functions = Functions::resolve(&library)?;
    let maps = MapFunctions::resolve(&library).ok();
    let entry: &'static Loaded =
        Box::leak(Box::new(Loaded { functions, maps, path: path.to_owned(), _library: library }));
    loaded.push(entry);
    Ok(entry)
}
