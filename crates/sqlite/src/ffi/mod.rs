//! The engine as the C shim sees it: `csrc/engine.h`, implemented.
//!
//! One shape for every function. What can fail returns a SQLite result code and puts what it found behind
//! a pointer: SQLITE_OK, SQLITE_DONE if there is nothing, or an error, whose sentence is kept for `pl_errmsg`.
//! What ends or gives back returns nothing.
//!
//! Invariant: a panic is never an answer. The guard turns it into SQLITE_IOERR, poisons the database for everybody,
//! and marks the connection as broken: what the panic left half done is not looked at again. From then on
//! every call on it fails alike, except those that end things.
//!
//! Threads: a `PlConn` is used by one thread at a time (SQLite's connection
//! mutex), which is what makes the `&mut` below sound.
//!
//! Forks: a child ends nothing and gives nothing back of what it has inherited, which is its parent's, and is refused all that may write
//! or wait: `end` and `with` see to it.
//!
//! Cancellation (`pthread_cancel`) is off in every call that may write, wait or open files: `with`, `end`, and what says so itself.
//! Calls that touch only memory have no place where a thread could end, and are made once a row: `with_memory`, `look`.
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
mod savepoints;
mod several;
mod tickets;
mod txn;
mod types;

use std::ffi::CString;
use std::os::raw::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use plait_engine::crash_point::panic_point;
use plait_engine::error::{Error, Result};
use plait_engine::fail_point::planted_code;
use plait_engine::sync::caller::Uncancelled;
use plait_engine::txn::Conn;

pub use types::PlConn;

/// What is said of a panic.
const PANICKED: &str = "internal error: the engine panicked; close every connection to recover";

/// The guard: `None` if `f` panicked. Whoever calls it sees to it that nobody looks again at what the panic may have left half done.
#[inline(always)]
fn unwound<T>(f: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(f)).ok()
}

/// The same for the C function `name`, in which tests let it panic.
#[inline(always)]
fn caught<T>(name: &'static str, f: impl FnOnce() -> T) -> Option<T> {
    unwound(|| {
        panic_point(name);
        f()
    })
}

/// Runs `f` behind the guard, on the connection behind `conn`.
///
/// # Safety
/// `conn` came from `pl_attach`, was not detached, and is used by this thread alone during the call.
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

/// Runs `f` on the connection behind `conn`, and keeps the sentence of its error; the thread cannot be cancelled
/// meanwhile.
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

/// The same for an `f` that makes no system call that waits.
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

/// Runs `f`, which looks something up and knows no errors: the calls of every row.
///
/// # Safety
/// As for [`guard`].
#[inline(always)]
unsafe fn look(conn: *mut PlConn, name: &'static str, f: impl FnOnce(&mut Conn) -> c_int) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { guard(conn, name, |c| f(&mut c.conn)) }
}

/// Runs `f`, which ends something or gives it back: also on a broken connection. What fails in it is reported by
/// the next call. The thread cannot be cancelled meanwhile.
///
/// # Safety
/// As for [`guard`].
unsafe fn end(conn: *mut PlConn, name: &'static str, f: impl FnOnce(&mut Conn)) {
    let _uncancelled = Uncancelled::begin();
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
    /// Keeps what is to be said of an error, and returns its code.
    #[cold]
    fn fail(&mut self, e: &Error) -> c_int {
        self.is_conflict = matches!(e, Error::Conflict(_));
        self.error = text(&e.to_string());
        codes::of(e)
    }

    /// A test lets the call fail with this code.
    #[cold]
    fn fail_as_planted(&mut self, code: c_int) -> c_int {
        self.is_conflict = false;
        self.error = c"a test lets this call fail".into();
        code
    }

    /// After a panic: everybody is told, and nobody waits for what this connection holds.
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
