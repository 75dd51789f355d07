//! The mark of a replica.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use plait_engine::replica::{self, Told};
use plait_engine::sync::caller::Uncancelled;
use plait_engine::txn::Conn;

use super::attach::{path_of, without_conn};
use super::codes::{SQLITE_CANTOPEN, SQLITE_DONE, SQLITE_OK};
use super::types::{PlConn, PlWait, with_wait};
use super::{end, text, unwound};

unsafe extern "C" {
    fn pl_shim_allow_replica_writes(db: *mut c_void);
    fn pl_shim_heed_mark(path: *const c_char, message: *mut *mut c_char) -> c_int;
    fn sqlite3_free(p: *mut c_void);
}

/// Lets a connection write the database that it has as `main` though that is a replica: for the
/// follower, which applies what the primary has committed. Where it is none nothing changes.
///
/// # Safety
/// `db` is an open connection (`sqlite3 *`) of the library that this program is linked with, and no
/// statement runs on it.
pub unsafe fn allow_replica_writes(db: *mut c_void) {
    // SAFETY: the caller's contract.
    unsafe { pl_shim_allow_replica_writes(db) }
}

/// Makes the file of the database at `path`, at rest, say whether SQLite without Plait may write it:
/// not if the mark of a replica lies beside it. On disk when it returns. For the follower, and for
/// who has removed the mark.
///
/// # Errors
/// In words: a lock that others keep for 20 seconds, the file's.
pub fn heed_mark(path: &Path) -> Result<(), String> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
    let mut message = std::ptr::null_mut();
    // SAFETY: a C string, and a place for a sentence.
    let code = unsafe { pl_shim_heed_mark(path.as_ptr(), &raw mut message) };
    if code == SQLITE_OK {
        return Ok(());
    }
    if message.is_null() {
        return Err(format!("code {code}"));
    }
    // SAFETY: a sentence of SQLite's, which ends in a zero byte.
    let said = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    // SAFETY: it was made by SQLite's allocator, and copied above.
    unsafe { sqlite3_free(message.cast()) };
    Err(said)
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_write_as_follower(conn: *mut PlConn) {
    // SAFETY: engine.h.
    unsafe { end(conn, "pl_write_as_follower", Conn::write_as_follower) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_is_replica(path: *const c_char) -> c_int {
    let _uncancelled = Uncancelled::begin();
    // SAFETY: engine.h.
    let path = unsafe { path_of(path) };
    match unwound(|| replica::look(path)).flatten() {
        Some(true) => SQLITE_OK,
        Some(false) => SQLITE_DONE,
        None => SQLITE_CANTOPEN,
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_replica_refusal(path: *const c_char, rests: c_int) -> *mut c_char {
    let told = if rests != 0 { Told::AtRest } else { Told::ByMark };
    let _uncancelled = Uncancelled::begin();
    // SAFETY: engine.h.
    let path = unsafe { path_of(path) };
    let Some(why) = unwound(|| text(&replica::refusal(path, told))) else {
        return std::ptr::null_mut();
    };
    // SAFETY: strdup copies a C string; pl_free releases it.
    unsafe { libc::strdup(why.as_ptr()) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_replica_time(
    path: *const c_char,
    out: *mut i64,
    message: *mut *mut c_char,
) -> c_int {
    let mut is_there = false;
    // SAFETY: engine.h: all three.
    let code = unsafe {
        without_conn(message, "pl_replica_time", || {
            let mark = replica::read(path_of(path))?;
            if let Some(mark) = mark.filter(|mark| mark.record > 0) {
                is_there = true;
                *out = i64::try_from(mark.written_ms).unwrap_or(i64::MAX);
            }
            Ok(())
        })
    };
    if code == SQLITE_OK && !is_there { SQLITE_DONE } else { code }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_replica_ticket(
    path: *const c_char,
    out: *mut u64,
    message: *mut *mut c_char,
) -> c_int {
    // SAFETY: engine.h: all three.
    unsafe {
        without_conn(message, "pl_replica_ticket", || {
            *out = replica::of(path_of(path))?.commit;
            Ok(())
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_replica_wait(
    path: *const c_char,
    ticket: u64,
    ms: c_int,
    wait: *const PlWait,
    message: *mut *mut c_char,
) -> c_int {
    let patience = u64::try_from(ms).ok().map(Duration::from_millis);
    let mut is_there = false;
    // SAFETY: engine.h: path, wait and message.
    let code = unsafe {
        without_conn(message, "pl_replica_wait", || {
            is_there =
                with_wait(wait, |w| replica::wait(path_of(path), ticket, patience, w.interrupted))?;
            Ok(())
        })
    };
    if code == SQLITE_OK && !is_there { SQLITE_DONE } else { code }
}
