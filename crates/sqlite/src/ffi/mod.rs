//! The engine as the C shim sees it: `csrc/engine.h`, implemented.
//!
//! Every function has one shape. A function that can fail returns a SQLite result code and stores
//! what it found behind a pointer: SQLITE_OK, SQLITE_DONE if there is nothing, or an error, whose
//! sentence is kept for `pl_errmsg`. A function that ends or releases something returns nothing.
//!
//! Invariant: a panic is never taken for a result. The guard turns it into SQLITE_IOERR, poisons
//! the database for all connections, and marks the connection as broken: no call looks at what the
//! panic left half done. From then on every call on the connection fails alike, except those that
//! end things.
//!
//! Threads: one thread at a time uses a `PlConn` (SQLite's connection mutex), which makes the
//! `&mut` below sound.
//!
//! Forks: what a child has inherited is its parent's. The child ends and releases none of it, and
//! calls that may write or wait are refused: `end` and `with` check that.
//!
//! Cancellation (`pthread_cancel`) is off in every call that may write, wait or open files: `with`,
//! `end`, and functions that turn it off themselves. Calls that touch only memory have no
//! cancellation point, and run once a row or several times a transaction: `with_memory`, `look`,
//! `end_in_memory`. What they do seldom that has one switches cancellation off for itself.
//!
//! Most blocks hold two operations: the guarded call and, in its closure, a pointer of C's that
//! engine.h describes in the same sentence. They share one proof.
#![allow(unsafe_code)]
#![allow(clippy::multiple_unsafe_ops_per_block)]

mod attach;
mod base;
mod codes;
mod events;
mod keys;
mod marks;
mod overlay;
pub mod replica;
pub mod report;
mod rows;
mod savepoints;
mod several;
mod tickets;
mod txn;
mod types;
pub mod wishes;

use std::ffi::CString;
use std::os::raw::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use plait_engine::crash_point::panic_point;
use plait_engine::error::{Error, Result};
use plait_engine::fail_point::planted_code;
use plait_engine::sync::caller::Uncancelled;
use plait_engine::txn::Conn;

pub use types::PlConn;

/// See `crate::base_opener`.
pub(crate) fn base_opener() -> Option<base::Opener> {
    base::Opener::linked()
}

/// The error text of a panic.
const PANICKED: &str = "internal error: the engine panicked; close every connection to recover";

/// The guard: `None` if `f` panicked. Its caller makes sure that no later call looks at what the
/// panic may have left half done.
#[inline(always)]
fn unwound<T>(f: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(f)).ok()
}

/// The guard for the C function `name`, in which tests let it panic.
#[inline(always)]
fn caught<T>(name: &'static str, f: impl FnOnce() -> T) -> Option<T> {
    unwound(|| {
        panic_point(name);
        f()
    })
}

/// Runs `f` behind the guard, on the connection behind `conn`.
///
/// # Safety `conn` came from `pl_attach`, was not detached, and is used by this thread alone during
/// the call.
#[inline(always)]
unsafe fn guard(
    conn: *mut PlConn,
    name: &'static str,
    f: impl FnOnce(&mut PlConn) -> c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    let conn = unsafe { &mut *conn };
    if conn.is_broken {
        return codes::SQLITE_IOERR;
    }
    match caught(name, || f(conn)) {
        Some(code) => code,
        None => conn.break_down(),
    }
}

/// Runs `f` on the connection behind `conn`, and keeps the sentence of its error. The thread cannot
/// be cancelled during the call.
///
/// # Safety
/// As for [`guard`].
unsafe fn with(
    conn: *mut PlConn,
    name: &'static str,
    f: impl FnOnce(&mut Conn) -> Result<c_int>,
) -> c_int {
    let _uncancelled = Uncancelled::begin();
    // SAFETY: the caller's contract.
    unsafe { with_memory(conn, name, |c| c.database().check_fork().and_then(|()| f(c))) }
}

/// Like [`with`], for an `f` that makes no system call that waits.
///
/// # Safety
/// As for [`guard`].
unsafe fn with_memory(
    conn: *mut PlConn,
    name: &'static str,
    f: impl FnOnce(&mut Conn) -> Result<c_int>,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        guard(conn, name, |c| match planted_code(name) {
            Some(code) => c.fail_as_planted(code),
            None => f(&mut c.conn).unwrap_or_else(|e| c.fail(&e)),
        })
    }
}

/// Runs `f`, which looks something up and cannot fail: the calls of every row.
///
/// # Safety
/// As for [`guard`].
#[inline(always)]
unsafe fn look(conn: *mut PlConn, name: &'static str, f: impl FnOnce(&mut Conn) -> c_int) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { guard(conn, name, |c| f(&mut c.conn)) }
}

/// Runs `f`, which ends or releases something, also on a broken connection. The next call reports
/// its failure. The thread cannot be cancelled during the call.
///
/// # Safety
/// As for [`guard`].
unsafe fn end(conn: *mut PlConn, name: &'static str, f: impl FnOnce(&mut Conn)) {
    let _uncancelled = Uncancelled::begin();
    // SAFETY: the caller's contract.
    unsafe { end_in_memory(conn, name, f) }
}

/// Like [`end`], for an `f` that makes no system call that waits.
///
/// # Safety
/// As for [`guard`].
unsafe fn end_in_memory(conn: *mut PlConn, name: &'static str, f: impl FnOnce(&mut Conn)) {
    // SAFETY: the caller's contract.
    let conn = unsafe { &mut *conn };
    if conn.conn.database().is_forked() {
        return;
    }
    if caught(name, || f(&mut conn.conn)).is_none() {
        conn.break_down();
    }
}

impl PlConn {
    /// Keeps the sentence of an error, and returns its code.
    #[cold]
    fn fail(&mut self, e: &Error) -> c_int {
        self.is_conflict = matches!(e, Error::Conflict(_));
        self.error = text(&e.to_string());
        codes::of(e)
    }

    /// Fails the call with this code, for a test.
    #[cold]
    fn fail_as_planted(&mut self, code: c_int) -> c_int {
        self.is_conflict = false;
        self.error = c"a test lets this call fail".into();
        code
    }

    /// After a panic: informs all connections, and no connection waits for what this one holds.
    #[cold]
    fn break_down(&mut self) -> c_int {
        self.is_broken = true;
        self.is_conflict = false;
        self.conn.abandon();
        self.error = text(PANICKED);
        codes::SQLITE_IOERR
    }
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
