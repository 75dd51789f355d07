//! The engine as the C shim sees it: `csrc/engine.h`, implemented.
//!
//! One shape for every function: a guard turns a panic into a poisoned database
//! and SQLITE_IOERR, never into success; an engine error becomes a SQLite result
//! code, and its sentence is kept for `pl_errmsg`.
//!
//! Threads: a `PlConn` is used by one thread at a time (SQLite's connection
//! mutex), which is what makes the `&mut` below sound.
//!
//! Cancellation (`pthread_cancel`) is off in every call that may write, wait or open files: `with`, and what says so itself.
//! Calls that touch only memory have no place where a thread could end, and are made once a row: `with_memory`, `read`.
//!
//! Most blocks hold two operations: the guarded call and, in its closure, a pointer of C's that engine.h
//! describes in the same sentence. They share one proof.
#![allow(unsafe_code)]
#![allow(clippy::multiple_unsafe_ops_per_block)]

mod attach;
mod base;
mod codes;
mod keys;
mod marks;
mod overlay;
pub mod report;
mod rows;
mod txn;
mod types;

use std::ffi::CString;
use std::os::raw::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use plait_engine::error::{Error, Result};
use plait_engine::shm::cancel::Uncancelled;
use plait_engine::txn::Conn;

pub use types::PlConn;

/// Runs `f` on the connection behind `conn`; the thread cannot be cancelled meanwhile.
///
/// # Safety
/// `conn` came from `pl_attach`, was not detached, and is used by this thread alone during the call.
unsafe fn with(conn: *mut PlConn, f: impl FnOnce(&mut Conn) -> Result<c_int>) -> c_int {
    let _uncancelled = Uncancelled::begin();
    // SAFETY: the caller's contract.
    unsafe { with_memory(conn, f) }
}

/// Runs `f`, which makes no system call that waits, on the connection behind `conn`.
///
/// # Safety
/// As for [`with`].
unsafe fn with_memory(conn: *mut PlConn, f: impl FnOnce(&mut Conn) -> Result<c_int>) -> c_int {
    // SAFETY: the caller's contract.
    let conn = unsafe { &mut *conn };
    match catch_unwind(AssertUnwindSafe(|| f(&mut conn.conn))) {
        Ok(Ok(code)) => code,
        Ok(Err(e)) => {
            let code = codes::of(&e);
            conn.is_conflict = matches!(e, Error::Conflict(_));
            conn.error = text(&e.to_string());
            code
        }
        Err(_) => {
            conn.conn.abandon();
            conn.error =
                text("internal error: the engine panicked; close every connection to recover");
            codes::SQLITE_IOERR
        }
    }
}

/// Runs `f` for its value; a panic poisons the database and yields `fallback`.
///
/// # Safety
/// As for [`with`].
unsafe fn read<T>(conn: *mut PlConn, fallback: T, f: impl FnOnce(&mut Conn) -> T) -> T {
    // SAFETY: the caller's contract.
    let conn = unsafe { &mut *conn };
    catch_unwind(AssertUnwindSafe(|| f(&mut conn.conn))).unwrap_or_else(|_| {
        // The next commit, snapshot or lock of any process reports it.
        conn.conn.abandon();
        fallback
    })
}

fn text(s: &str) -> CString {
    CString::new(s.replace('\0', " ")).unwrap_or_default()
}

/// Bytes behind a C pointer and length; empty for a null pointer.
///
/// # Safety
/// `p` is null or points to `n` readable bytes that stay unchanged while the result is used.
unsafe fn bytes<'a>(p: *const u8, n: u32) -> &'a [u8] {
    if p.is_null() || n == 0 {
        return &[];
    }
    // SAFETY: the caller's contract.
    unsafe { std::slice::from_raw_parts(p, n as usize) }
}
