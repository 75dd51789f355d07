//! The engine's own door for `plait recover --accept-base`: not part of SQLite's interface, and not exported from
//! the shared library.

use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::error::SqlError;
use super::library::text;

unsafe extern "C" {
    fn pl_shim_accept_base(path: *const c_char, message: *mut *mut c_char) -> c_int;
    fn pl_free(p: *mut c_void);
}

/// Accepts the database file at the absolute `path` as it is; what is only in the log or in shared memory is lost.
pub fn accept_base(path: &Path) -> Result<(), SqlError> {
    let c_path = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| SqlError { code: 14, message: "the path holds a zero byte".into() })?;
    let mut message = std::ptr::null_mut();
    // SAFETY: the path is a C string and `message` takes a sentence.
    let code = unsafe { pl_shim_accept_base(c_path.as_ptr(), &raw mut message) };
    let said = text(message);
    // SAFETY: null or a sentence of the engine, copied above.
    unsafe { pl_free(message.cast()) };
    if code == 0 { Ok(()) } else { Err(SqlError { code, message: said }) }
}
