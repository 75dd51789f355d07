//! The part of SQLite's C interface that is called, found in a library by name.
//!
//! Only functions that SQLite 3.7.6 had are required, for Berkeley DB's SQL interface is that old.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;

use anyhow::Context as _;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::maps::MapFunctions;

/// `sqlite3*`
pub type Database = *mut c_void;
/// `sqlite3_stmt*`
pub type Prepared = *mut c_void;

/// `SQLITE_OK`
pub const OK: c_int = 0;
/// `SQLITE_BUSY`
pub const BUSY: c_int = 5;
/// `SQLITE_LOCKED`
pub const LOCKED: c_int = 6;
/// `SQLITE_ROW`
pub const ROW: c_int = 100;
/// `SQLITE_DONE`
pub const DONE: c_int = 101;
/// `SQLITE_NULL`
pub const NULL: c_int = 5;
/// `SQLITE_BUSY_SNAPSHOT`
pub const BUSY_SNAPSHOT: c_int = BUSY | (2 << 8);
/// `SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX`
pub const OPEN_FLAGS: c_int = 0x2 | 0x4 | 0x8000;

/// The callback of `sqlite3_busy_handler`.
pub type BusyHandler = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;

/// `db_version` of Berkeley DB: three numbers, where they are wanted, and a text.
type BerkeleyVersion = unsafe extern "C" fn(*mut c_int, *mut c_int, *mut c_int) -> *const c_char;

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident: fn($($argument:ty),*) -> $result:ty = $symbol:literal;)*) => {
        /// The functions of one loaded library.
        pub struct Api {
            $($(#[$doc])* pub $name: unsafe extern "C" fn($($argument),*) -> $result,)*
            /// `db_version`, which only Berkeley DB's library has.
            berkeley_version: Option<BerkeleyVersion>,
            maps: Option<MapFunctions>,
            /// Keeps the code mapped for as long as it can be called.
            _library: Library,
        }

        impl Api {
            /// Loads a library and finds its functions.
            ///
            /// # Errors
            /// If the library cannot be loaded or lacks one of them.
            pub fn load(path: &Path) -> anyhow::Result<Self> {
                // SAFETY: running a library's initializers is what loading one means; the user named it.
                let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
                    .with_context(|| format!("cannot load {}", path.display()))?;
                $(
                    // SAFETY: the type is that of SQLite's documentation for this name.
                    let $name = *unsafe { library.get::<unsafe extern "C" fn($($argument),*) -> $result>($symbol) }
                        .with_context(|| format!("{} is no SQLite library", path.display()))?;
                )*
                // SAFETY: the type is that of Berkeley DB's documentation for this name.
                let berkeley_version = unsafe { library.get::<BerkeleyVersion>(b"db_version\0") }.ok().map(|f| *f);
                let maps = MapFunctions::find(&library);
                Ok(Self { $($name,)* berkeley_version, maps, _library: library })
            }
        }
    };
}

functions! {
    /// `sqlite3_libversion`
    libversion: fn() -> *const c_char = b"sqlite3_libversion\0";
    /// `sqlite3_open_v2`
    open_v2: fn(*const c_char, *mut Database, c_int, *const c_char) -> c_int = b"sqlite3_open_v2\0";
    /// `sqlite3_close`
    close: fn(Database) -> c_int = b"sqlite3_close\0";
    /// `sqlite3_errmsg`
    errmsg: fn(Database) -> *const c_char = b"sqlite3_errmsg\0";
    /// `sqlite3_extended_result_codes`
    extended_result_codes: fn(Database, c_int) -> c_int = b"sqlite3_extended_result_codes\0";
    /// `sqlite3_busy_handler`
    busy_handler: fn(Database, Option<BusyHandler>, *mut c_void) -> c_int = b"sqlite3_busy_handler\0";
    /// `sqlite3_busy_timeout`
    busy_timeout: fn(Database, c_int) -> c_int = b"sqlite3_busy_timeout\0";
    /// `sqlite3_get_autocommit`
    get_autocommit: fn(Database) -> c_int = b"sqlite3_get_autocommit\0";
    /// `sqlite3_changes`
    changes: fn(Database) -> c_int = b"sqlite3_changes\0";
    /// `sqlite3_prepare_v2`
    prepare_v2: fn(Database, *const c_char, c_int, *mut Prepared, *mut *const c_char) -> c_int = b"sqlite3_prepare_v2\0";
    /// `sqlite3_finalize`
    finalize: fn(Prepared) -> c_int = b"sqlite3_finalize\0";
    /// `sqlite3_step`
    step: fn(Prepared) -> c_int = b"sqlite3_step\0";
    /// `sqlite3_reset`
    reset: fn(Prepared) -> c_int = b"sqlite3_reset\0";
    /// `sqlite3_bind_null`
    bind_null: fn(Prepared, c_int) -> c_int = b"sqlite3_bind_null\0";
    /// `sqlite3_bind_int64`
    bind_int64: fn(Prepared, c_int, i64) -> c_int = b"sqlite3_bind_int64\0";
    /// `sqlite3_bind_blob`
    bind_blob: fn(Prepared, c_int, *const c_void, c_int, *const c_void) -> c_int = b"sqlite3_bind_blob\0";
    /// `sqlite3_bind_text`
    bind_text: fn(Prepared, c_int, *const c_char, c_int, *const c_void) -> c_int = b"sqlite3_bind_text\0";
    /// `sqlite3_column_type`
    column_type: fn(Prepared, c_int) -> c_int = b"sqlite3_column_type\0";
    /// `sqlite3_column_int64`
    column_int64: fn(Prepared, c_int) -> i64 = b"sqlite3_column_int64\0";
    /// `sqlite3_column_blob`
    column_blob: fn(Prepared, c_int) -> *const c_void = b"sqlite3_column_blob\0";
    /// `sqlite3_column_bytes`
    column_bytes: fn(Prepared, c_int) -> c_int = b"sqlite3_column_bytes\0";
}

impl Api {
    /// Plait's key-value API, where the library has it.
    #[must_use]
    pub fn maps(&self) -> Option<MapFunctions> {
        self.maps
    }

    /// The version, as the library tells it.
    #[must_use]
    pub fn version(&self) -> String {
        // SAFETY: takes nothing.
        let text = unsafe { (self.libversion)() };
        // SAFETY: a text that ends in a zero byte and lasts as long as the library.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// The version of the Berkeley DB below the SQL, where that is what stores: `5.3.28`.
    #[must_use]
    pub fn berkeley_version(&self) -> Option<String> {
        let (mut major, mut minor, mut patch) = (0, 0, 0);
        // SAFETY: three places of the right type.
        unsafe { (self.berkeley_version?)(&raw mut major, &raw mut minor, &raw mut patch) };
        Some(format!("{major}.{minor}.{patch}"))
    }
}
