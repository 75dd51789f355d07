//! Tickets: which of a connection's commits are on disk.

use std::os::raw::c_int;
use std::time::Duration;

use super::codes::{SQLITE_DONE, SQLITE_OK};
use super::types::{PlConn, PlWait, with_wait};
use super::{with, with_memory};

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_ticket(conn: *mut PlConn, own: *mut u64, durable: *mut u64) -> c_int {
    // SAFETY: engine.h: both are writable.
    unsafe {
        with_memory(conn, "pl_ticket", |c| {
            (*own, *durable) = c.tickets()?;
            Ok(SQLITE_OK)
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_wait_durable(
    conn: *mut PlConn,
    ticket: u64,
    ms: c_int,
    wait: *const PlWait,
) -> c_int {
    let patience = u64::try_from(ms).ok().map(Duration::from_millis);
    // SAFETY: engine.h.
    unsafe {
        with(conn, "pl_wait_durable", |c| {
            let is_there = with_wait(wait, |w| c.wait_durable(ticket, patience, w))?;
            Ok(if is_there { SQLITE_OK } else { SQLITE_DONE })
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_notify_fd(
    conn: *mut PlConn,
    wait: *const PlWait,
    out: *mut c_int,
) -> c_int {
    // SAFETY: engine.h: `out` is writable.
    unsafe {
        with(conn, "pl_notify_fd", |c| {
            *out = with_wait(wait, |w| c.notify_fd(w))?;
            Ok(SQLITE_OK)
        })
    }
}
