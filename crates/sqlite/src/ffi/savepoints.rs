//! Savepoints: those that SQLite numbers, and those of statements.

use std::os::raw::c_int;

use super::codes::{SQLITE_DONE, SQLITE_OK};
use super::types::PlConn;
use super::with_memory;

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_savepoint_open(conn: *mut PlConn, n: c_int) -> c_int {
    // SAFETY: engine.h.
    unsafe {
        with_memory(conn, "pl_savepoint_open", |c| {
            c.savepoint_open(n.max(0) as usize);
            Ok(SQLITE_OK)
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_savepoint_release(conn: *mut PlConn, i: c_int) -> c_int {
    // SAFETY: engine.h.
    unsafe {
        with_memory(conn, "pl_savepoint_release", |c| {
            c.savepoint_release(i.max(0) as usize);
            Ok(SQLITE_OK)
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_savepoint_rollback(conn: *mut PlConn, i: c_int) -> c_int {
    // SAFETY: engine.h.
    unsafe {
        with_memory(conn, "pl_savepoint_rollback", |c| {
            c.savepoint_rollback(usize::try_from(i).ok());
            Ok(SQLITE_OK)
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_statement_open(conn: *mut PlConn, id: u64) -> c_int {
    // SAFETY: engine.h.
    unsafe {
        with_memory(conn, "pl_statement_open", |c| {
            c.statement_open(id);
            Ok(SQLITE_OK)
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_statement_close(conn: *mut PlConn, id: u64) -> c_int {
    // SAFETY: engine.h.
    unsafe {
        with_memory(conn, "pl_statement_close", |c| {
            c.statement_close(id);
            Ok(SQLITE_OK)
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_statement_rollback(conn: *mut PlConn, id: u64) -> c_int {
    // SAFETY: engine.h.
    unsafe {
        with_memory(conn, "pl_statement_rollback", |c| {
            Ok(if c.statement_rollback(id) { SQLITE_OK } else { SQLITE_DONE })
        })
    }
}
