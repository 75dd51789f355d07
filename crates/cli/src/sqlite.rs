//! SQLite's C interface as this program uses it: `plait-client`, on the spliced copy that is linked in or on a library that is loaded by path,
//! and one door of the engine that is not part of it.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use plait_client::{BUSY, CANTOPEN, CORRUPT, FULL, IOERR, NOTADB, READONLY};
pub use plait_client::{
    Backup, Connection, Library, OpenFlags, SqlError, Statement, Value, ValueRef,
};
// The spliced amalgamation that `Library::linked` is about.
use plait_sqlite as _;

use crate::failure::{Failure, LIMIT, quoted};
use crate::os;

/// A cell as people read it: the text, the number, nothing for NULL.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Integer(n) => n.to_string(),
        Value::Real(x) => x.to_string(),
        Value::Text(bytes) | Value::Blob(bytes) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// The integer in a cell, or 0.
pub fn integer(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

/// What a query answers first, as people read it; empty if it answers nothing.
pub fn answer(db: &Connection, sql: &str) -> Result<String, SqlError> {
    Ok(shown(&db.value(sql)?))
}

/// `SQLITE_IOERR_SHMSIZE`, an extended code: the WAL-index cannot be made as long as it has to be.
const IOERR_SHMSIZE: i32 = 4874;

/// The longest path that SQLite opens: it wants room for a suffix within 512 bytes.
const PATH_MAX: usize = 504;

/// The length of a path from the root, with its links followed as far as it is there.
fn full_length(path: &Path) -> Option<usize> {
    let full = path.canonicalize().or_else(|_| std::path::absolute(path)).ok()?;
    Some(full.as_os_str().len())
}

/// The failure of doing `what` to the database at `path`.
pub fn failure(e: &SqlError, what: &str, path: &Path) -> Failure {
    let (shown, quoted) = (path.display(), quoted(path));
    if e.extended == IOERR_SHMSIZE && os::limit(libc::RLIMIT_FSIZE) == libc::RLIM_INFINITY {
        return Failure::new(
            format!(
                "cannot {what} {shown}: the disk is full, and has no room for {shown}-shm, which SQLite needs even to read (code {})",
                e.extended
            ),
            format!(
                "free some space on that disk and run the command again; a copy on another disk all the same: `plait backup {quoted} DEST`"
            ),
        );
    }
    if e.code == CANTOPEN
        && let Some(bytes) = full_length(path).filter(|&bytes| bytes > PATH_MAX)
    {
        return Failure::new(
            format!(
                "cannot {what} {shown}: its full path has {bytes} bytes, and SQLite opens paths of {PATH_MAX} at most (code {})",
                e.extended
            ),
            "give it or its folders shorter names",
        );
    }
    let advice = match e.code {
        _ if e.message.contains("ermission denied") => {
            "check that you may write to the file and to its directory".into()
        }
        BUSY => {
            "wait until the programs that use it are done, or close them, and run the command again"
                .into()
        }
        READONLY => "check that you may write to the file and to its directory".into(),
        CORRUPT => format!("run `plait check {quoted}` to see what is damaged"),
        IOERR if os::limit(libc::RLIMIT_FSIZE) != libc::RLIM_INFINITY => LIMIT.into(),
        FULL => "free some space on that disk and run the command again".into(),
        CANTOPEN if e.message.contains("would be too long") => "give it a shorter name".into(),
        CANTOPEN => {
            format!(
                "check the path and the permissions; `plait check {quoted}` tells what stands beside it"
            )
        }
        NOTADB => {
            "check that this is the right file: it does not begin as an SQLite database does".into()
        }
        _ => format!("run `plait check {quoted}` to see the state of the file"),
    };
    Failure::new(format!("cannot {what} {shown}: {}", e.said()), advice)
}

unsafe extern "C" {
    fn pl_shim_accept_base(path: *const c_char, message: *mut *mut c_char) -> c_int;
    fn pl_free(p: *mut c_void);
}

/// Accepts the database file at the absolute `path` as it is, for `plait recover --accept-base`; what is only in the log or in shared memory is
/// lost. The engine's own door: not part of SQLite's interface, and not exported from the shared library.
pub fn accept_base(path: &Path) -> Result<(), SqlError> {
    const CONTEXT: &str = "accept_base";
    let c_path = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| SqlError::new(CANTOPEN, "the path holds a zero byte", CONTEXT))?;
    let mut message = std::ptr::null_mut();
    // SAFETY: the path is a C string and `message` takes a sentence.
    let code = unsafe { pl_shim_accept_base(c_path.as_ptr(), &raw mut message) };
    let said = if message.is_null() {
        String::new()
    } else {
        // SAFETY: a sentence of the engine, which ends in a zero byte.
        unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
    };
    // SAFETY: null or a sentence of the engine, copied above.
    unsafe { pl_free(message.cast()) };
    if code == 0 { Ok(()) } else { Err(SqlError::new(code, said, CONTEXT)) }
}
