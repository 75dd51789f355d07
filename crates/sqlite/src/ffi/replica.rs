//! The mark of a replica.

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use plait_engine::replica;
use plait_engine::sync::caller::Uncancelled;

use super::attach::{path_of, without_conn};
use super::codes::{SQLITE_DONE, SQLITE_OK};
use super::types::{PlWait, with_wait};
use super::{text, unwound};

unsafe extern "C" {
    fn pl_shim_allow_replica_writes(db: *mut c_void);
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

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_is_replica(path: *const c_char) -> c_int {
    let _uncancelled = Uncancelled::begin();
    // SAFETY: engine.h.
    let path = unsafe { path_of(path) };
    // What cannot be found out is not written.
    let is_marked = unwound(|| replica::is_marked(path)).unwrap_or(true);
    if is_marked { SQLITE_OK } else { SQLITE_DONE }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_replica_refusal(path: *const c_char) -> *mut c_char {
    let _uncancelled = Uncancelled::begin();
    // SAFETY: engine.h.
    let path = unsafe { path_of(path) };
    let Some(why) = unwound(|| text(&replica::refusal(path))) else {
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
