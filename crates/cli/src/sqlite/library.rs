//! One library with SQLite's C interface: a table of its functions.
//!
//! The demo loads libraries by path and with `RTLD_LOCAL`, so that their symbols neither mix with each other
//! nor with the copy that is linked into this program. A loaded library stays to the end of the
//! process, because connections point into it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;

use crate::failure::{Failure, Result};

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

macro_rules! functions {
    ($( $symbol:ident as $field:ident ( $($arg:ty),* ) -> $ret:ty; )*) => {
        /// Pointers to the functions of one library.
        pub struct Functions { $( pub $field: unsafe extern "C" fn($($arg),*) -> $ret, )* }

        mod linked {
            use super::*;
            // The spliced amalgamation that this program is linked with.
            use plait_sqlite as _;
            unsafe extern "C" { $( pub fn $symbol($(_: $arg),*) -> $ret; )* }
        }

        static LINKED: Functions = Functions { $( $field: linked::$symbol, )* };

        impl Functions {
            fn resolve(from: &libloading::os::unix::Library) -> Result<Functions, libloading::Error> {
                Ok(Functions { $(
                    $field: {
                        let name = concat!(stringify!($symbol), "\0").as_bytes();
                        // SAFETY: the symbol is part of SQLite's documented, stable C interface and has this type.
                        *unsafe { from.get::<unsafe extern "C" fn($($arg),*) -> $ret>(name) }?
                    },
                )* })
            }
        }
    };
}

functions! {
    sqlite3_libversion as libversion() -> *const c_char;
    sqlite3_sourceid as sourceid() -> *const c_char;
    sqlite3_open_v2 as open_v2(*const c_char, *mut *mut RawDb, c_int, *const c_char) -> c_int;
    sqlite3_close as close(*mut RawDb) -> c_int;
    sqlite3_extended_result_codes as extended_result_codes(*mut RawDb, c_int) -> c_int;
    sqlite3_errmsg as errmsg(*mut RawDb) -> *const c_char;
    sqlite3_busy_timeout as busy_timeout(*mut RawDb, c_int) -> c_int;
    sqlite3_prepare_v2 as prepare_v2(*mut RawDb, *const c_char, c_int, *mut *mut RawStatement, *mut *const c_char) -> c_int;
    sqlite3_finalize as finalize(*mut RawStatement) -> c_int;
    sqlite3_reset as reset(*mut RawStatement) -> c_int;
    sqlite3_step as step(*mut RawStatement) -> c_int;
    sqlite3_bind_int64 as bind_int64(*mut RawStatement, c_int, i64) -> c_int;
    sqlite3_bind_blob64 as bind_blob64(*mut RawStatement, c_int, *const c_void, u64, isize) -> c_int;
    sqlite3_column_count as column_count(*mut RawStatement) -> c_int;
    sqlite3_column_name as column_name(*mut RawStatement, c_int) -> *const c_char;
    sqlite3_column_type as column_type(*mut RawStatement, c_int) -> c_int;
    sqlite3_column_int64 as column_int64(*mut RawStatement, c_int) -> i64;
    sqlite3_column_text as column_text(*mut RawStatement, c_int) -> *const u8;
    sqlite3_column_bytes as column_bytes(*mut RawStatement, c_int) -> c_int;
}

/// A library. Copies are handles on the same one.
#[derive(Clone, Copy)]
pub struct Library(pub(super) &'static Functions);

impl Library {
    /// The one that is linked into this program: ours.
    pub fn linked() -> Library {
        Library(&LINKED)
    }

    /// Loads the shared object at `path`, for the rest of the process.
    pub fn load(path: &Path) -> Result<Library> {
        use libloading::os::unix::{Library as Object, RTLD_LOCAL, RTLD_NOW};
        let fail = |e: libloading::Error| {
            Failure::new(
                format!("cannot load the SQLite library {}: {e}", path.display()),
                "give the path of a libsqlite3.so.0 that was built for this machine; `make dist` builds ours",
            )
        };
        // SAFETY: libsqlite3 runs no initialiser; the handle is leaked below with the pointers into it.
        let object = unsafe { Object::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(fail)?;
        let functions = Functions::resolve(&object).map_err(fail)?;
        std::mem::forget(object);
        Ok(Library(Box::leak(Box::new(functions))))
    }

    /// `sqlite3_libversion()`, for example `3.54.1`.
    pub fn version(self) -> String {
        // SAFETY: it takes nothing and returns a static string.
        text(unsafe { (self.0.libversion)() })
    }

    /// `sqlite3_sourceid()`.
    pub fn source_id(self) -> String {
        // SAFETY: it takes nothing and returns a static string.
        text(unsafe { (self.0.sourceid)() })
    }
}

/// A static or still valid C string of SQLite as a text of our own.
pub(super) fn text(s: *const c_char) -> String {
    if s.is_null() {
        return String::new();
    }
    // SAFETY: SQLite's strings end in a zero byte, and callers pass only ones that are valid now.
    unsafe { CStr::from_ptr(s) }.to_string_lossy().into_owned()
}
