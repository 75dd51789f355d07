//! The part of libpq that is called, found in the library by name.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::path::Path;

use anyhow::Context as _;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// `PGconn*`
pub type Conn = *mut c_void;
/// `PGresult*`
pub type Answer = *mut c_void;

/// `CONNECTION_OK`
pub const CONNECTION_OK: c_int = 0;
/// `PGRES_COMMAND_OK`
pub const COMMAND_OK: c_int = 1;
/// `PGRES_TUPLES_OK`
pub const TUPLES_OK: c_int = 2;
/// `PG_DIAG_SQLSTATE`
pub const DIAG_SQLSTATE: c_int = b'C' as c_int;
/// `PQTRANS_IDLE`
pub const TRANSACTION_IDLE: c_int = 0;
/// The format of parameters and columns that is not text.
pub const BINARY: c_int = 1;

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident: fn($($argument:ty),*) -> $result:ty = $symbol:literal;)*) => {
        /// The functions of a loaded libpq.
        pub struct Api {
            $($(#[$doc])* pub $name: unsafe extern "C" fn($($argument),*) -> $result,)*
            /// Keeps the code mapped for as long as it can be called.
            _library: Library,
        }

        impl Api {
            /// Loads the library and finds its functions.
            ///
            /// # Errors
            /// If the library cannot be loaded or lacks one of them.
            pub fn load(path: &Path) -> anyhow::Result<Self> {
                // SAFETY: running a library's initializers is what loading one means.
                let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
                    .with_context(|| format!("cannot load {}", path.display()))?;
                $(
                    // SAFETY: the type is that of libpq's documentation for this name.
                    let $name = *unsafe { library.get::<unsafe extern "C" fn($($argument),*) -> $result>($symbol) }
                        .with_context(|| format!("{} is no libpq", path.display()))?;
                )*
                Ok(Self { $($name,)* _library: library })
            }
        }
    };
}

functions! {
    /// `PQconnectdb`
    connectdb: fn(*const c_char) -> Conn = b"PQconnectdb\0";
    /// `PQstatus`
    status: fn(Conn) -> c_int = b"PQstatus\0";
    /// `PQtransactionStatus`
    transaction_status: fn(Conn) -> c_int = b"PQtransactionStatus\0";
    /// `PQerrorMessage`
    error_message: fn(Conn) -> *const c_char = b"PQerrorMessage\0";
    /// `PQfinish`
    finish: fn(Conn) -> () = b"PQfinish\0";
    /// `PQexec`
    exec: fn(Conn, *const c_char) -> Answer = b"PQexec\0";
    /// `PQprepare`
    prepare: fn(Conn, *const c_char, *const c_char, c_int, *const c_uint) -> Answer = b"PQprepare\0";
    /// `PQexecPrepared`
    exec_prepared: fn(Conn, *const c_char, c_int, *const *const c_char, *const c_int, *const c_int, c_int) -> Answer = b"PQexecPrepared\0";
    /// `PQresultStatus`
    result_status: fn(Answer) -> c_int = b"PQresultStatus\0";
    /// `PQresultErrorField`
    result_error_field: fn(Answer, c_int) -> *const c_char = b"PQresultErrorField\0";
    /// `PQcmdTuples`
    cmd_tuples: fn(Answer) -> *const c_char = b"PQcmdTuples\0";
    /// `PQntuples`
    ntuples: fn(Answer) -> c_int = b"PQntuples\0";
    /// `PQgetvalue`
    getvalue: fn(Answer, c_int, c_int) -> *const c_char = b"PQgetvalue\0";
    /// `PQgetlength`
    getlength: fn(Answer, c_int, c_int) -> c_int = b"PQgetlength\0";
    /// `PQgetisnull`
    getisnull: fn(Answer, c_int, c_int) -> c_int = b"PQgetisnull\0";
    /// `PQftype`
    ftype: fn(Answer, c_int) -> c_uint = b"PQftype\0";
    /// `PQclear`
    clear: fn(Answer) -> () = b"PQclear\0";
}
