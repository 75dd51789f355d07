//! Attaching, detaching, converting.

use std::ffi::{CStr, CString, OsStr};
use std::os::raw::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use plait_engine::database::Database;
use plait_engine::error::{Error, Result};
use plait_engine::merge::BaseOpener;
use plait_engine::shm::cancel::Uncancelled;
use plait_engine::txn::Conn;
use plait_engine::{database, session};

use super::base::Opener;
use super::codes::{self, SQLITE_DONE, SQLITE_OK};
use super::types::{PlBaseOps, PlConn, PlWait, with_wait};
use super::{end, with, with_memory};

/// Runs `f` behind a guard; the thread cannot be cancelled meanwhile.
fn caught(f: impl FnOnce() -> Result<()>) -> Result<()> {
    let _uncancelled = Uncancelled::begin();
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| {
        Err(Error::Io {
            what: "internal error".into(),
            source_text: "the engine panicked".into(),
            errno: 0,
        })
    })
}

/// Runs `f` without a connection, putting an error's sentence into `*message`.
///
/// # Safety
/// `message` points to writable memory for one pointer.
unsafe fn without_conn(message: *mut *mut c_char, f: impl FnOnce() -> Result<()>) -> c_int {
    match caught(f) {
        Ok(()) => SQLITE_OK,
        Err(e) => {
            let text = CString::new(e.to_string()).unwrap_or_default();
            // SAFETY: strdup copies a C string; pl_free releases it. `message` is writable by contract.
            unsafe { *message = libc::strdup(text.as_ptr()) };
            codes::of(&e)
        }
    }
}

/// # Safety
/// `path` is a C string.
unsafe fn path_of<'a>(path: *const c_char) -> &'a Path {
    // SAFETY: the caller's contract.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    Path::new(OsStr::from_bytes(bytes))
}

/// See engine.h.
///
/// # Safety
/// As engine.h says; `ops` is a static table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_attach(
    ops: &'static PlBaseOps,
    path: *const c_char,
    _flags: u32,
    wait: *const PlWait,
    out: *mut *mut PlConn,
    message: *mut *mut c_char,
) -> c_int {
    // SAFETY: engine.h.
    let path = unsafe { path_of(path) };
    // SAFETY: `message` is writable by contract.
    unsafe {
        without_conn(message, || {
            session::refuse_network(path)?;
            let opener: Arc<dyn BaseOpener> = Arc::new(Opener { ops });
            let conn = with_wait(wait, |w| database::attach(path, &opener, w))?;
            let boxed = Box::new(PlConn {
                conn,
                error: CString::default(),
                is_conflict: false,
                is_broken: false,
            });
            *out = Box::into_raw(boxed);
            Ok(())
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says; `conn` is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_detach(conn: *mut PlConn) {
    let _uncancelled = Uncancelled::begin();
    // SAFETY: it came from Box::into_raw in pl_attach and is not used again.
    let conn = unsafe { Box::from_raw(conn) };
    let database = conn.conn.database().clone();
    if catch_unwind(AssertUnwindSafe(|| database::detach(conn.conn))).is_err() {
        database.poison();
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_check_fork(conn: *mut PlConn) -> c_int {
    let check = |c: &mut Conn| match c.database().is_forked() {
        false => Ok(SQLITE_OK),
        true => Err(Error::Misuse(
            "this connection was opened before fork(); open a new one in the child process".into(),
        )),
    };
    // SAFETY: engine.h.
    unsafe { with_memory(conn, "pl_check_fork", check) }
}

/// See engine.h.
///
/// # Safety
/// `p` came from this library's malloc'ed results, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_free(p: *mut c_void) {
    // SAFETY: strdup's memory, by contract.
    unsafe { libc::free(p) };
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_enable_check(
    path: *const c_char,
    salt: *mut u32,
    message: *mut *mut c_char,
) -> c_int {
    // SAFETY: engine.h.
    let path = unsafe { path_of(path) };
    // SAFETY: both results are writable by contract.
    unsafe {
        without_conn(message, || {
            *salt = session::enable_check(path)?;
            Ok(())
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_check_network(path: *const c_char) -> c_int {
    // SAFETY: engine.h.
    let path = unsafe { path_of(path) };
    caught(|| session::refuse_network(path)).map_or_else(|e| codes::of(&e), |()| SQLITE_OK)
}

/// See engine.h.
#[unsafe(no_mangle)]
pub extern "C" fn pl_wal_is_concurrent() -> c_int {
    static ASKED: OnceLock<bool> = OnceLock::new();
    let asked = ASKED
        .get_or_init(|| std::env::var_os("PLAIT_JOURNAL_MODE").is_some_and(|m| m == "concurrent"));
    if *asked { SQLITE_OK } else { SQLITE_DONE }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says; `ops` is a static table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_accept_base(
    ops: &'static PlBaseOps,
    path: *const c_char,
    message: *mut *mut c_char,
) -> c_int {
    // SAFETY: engine.h.
    let path = unsafe { path_of(path) };
    // SAFETY: `message` is writable by contract.
    unsafe {
        without_conn(message, || database::accept_base(path, &mut || Opener { ops }.open(path)))
    }
}

/// Fails when other living connections have the database open.
fn refuse_company(database: &Database) -> Result<()> {
    database.forget_dead()?;
    match database.connections().saturating_sub(1) {
        0 => Ok(()),
        others => Err(Error::Busy(format!(
            "{others} other connection(s) have the database open; close them before leaving concurrent mode"
        ))),
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_disable_begin(conn: *mut PlConn, wait: *const PlWait) -> c_int {
    // SAFETY: engine.h.
    unsafe {
        with(conn, "pl_disable_begin", |c| {
            refuse_company(c.database())?;
            with_wait(wait, |w| c.exclusive_begin(w))?;
            // Once more: someone may have come while everything was merged. Whoever comes now finds the mode left.
            if let Err(e) = refuse_company(c.database()) {
                c.exclusive_end(false);
                return Err(e);
            }
            if let Err(e) = c.database().retire_log() {
                c.exclusive_end(false);
                return Err(e);
            }
            Ok(SQLITE_OK)
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says; `conn` is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_disabled(conn: *mut PlConn) {
    let _uncancelled = Uncancelled::begin();
    // SAFETY: engine.h.
    unsafe {
        end(conn, "pl_disabled", |c| c.exclusive_end(true));
    }
    // SAFETY: engine.h.
    unsafe { pl_detach(conn) };
}
