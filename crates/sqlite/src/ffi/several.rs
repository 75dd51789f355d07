//! Transactions over several files.

use std::os::raw::{c_char, c_int};

use super::attach::path_of;
use super::codes::SQLITE_OK;
use super::txn::sync_of;
use super::types::{PlConn, PlWait, with_wait};
use super::{end, look, with};

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_part_begin(conn: *mut PlConn, wait: *const PlWait) -> c_int {
    // SAFETY: engine.h.
    unsafe {
        with(conn, "pl_part_begin", |c| with_wait(wait, |w| c.part_begin(w)).map(|()| SQLITE_OK))
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_part_undo(conn: *mut PlConn) {
    // SAFETY: engine.h.
    unsafe { end(conn, "pl_part_undo", |c| c.part_undo()) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_part_prepare(conn: *mut PlConn, name: *const c_char) -> c_int {
    // SAFETY: engine.h: a string.
    let super_journal = unsafe { path_of(name) };
    // SAFETY: engine.h.
    unsafe { with(conn, "pl_part_prepare", |c| c.part_prepare(super_journal).map(|()| SQLITE_OK)) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_part_commit(
    conn: *mut PlConn,
    sync: c_int,
    keep_reading: c_int,
) -> c_int {
    // SAFETY: engine.h.
    unsafe {
        with(conn, "pl_part_commit", |c| {
            c.part_commit(sync_of(sync), keep_reading != 0).map(|()| SQLITE_OK)
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_order(conn: *mut PlConn, out: *mut u64) -> c_int {
    // SAFETY: engine.h: two numbers are writable.
    unsafe {
        look(conn, "pl_order", |c| {
            let (device, inode) = c.database().identity();
            *out = device;
            *out.add(1) = inode;
            SQLITE_OK
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_stay_concurrent(conn: *mut PlConn) -> c_int {
    // SAFETY: engine.h.
    unsafe {
        look(conn, "pl_stay_concurrent", |c| {
            c.stay_concurrent();
            SQLITE_OK
        })
    }
}
