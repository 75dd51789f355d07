//! Attaching, detaching, converting.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::raw::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use plait_engine::base::BaseOpener;
use plait_engine::belongs::{FIRST_BYTES, FirstPage, belongs};
use plait_engine::database::Database;
use plait_engine::error::{Error, Result};
use plait_engine::shm::locks;
use plait_engine::shm::region::BaseIdentity;
use plait_engine::sync::caller::Uncancelled;
use plait_engine::txn::Conn;
use plait_engine::{attach, session};

use super::base::Opener;
use super::codes::{self, PL_MISFIT, SQLITE_BUSY, SQLITE_IOERR, SQLITE_MISUSE, SQLITE_OK};
use super::types::{PlBaseOps, PlConn, PlWait, with_wait};
use super::{caught, end, text, unwound, with, with_memory};

/// Runs `f` behind the guard, where there is no database to poison yet. The thread cannot be
/// cancelled during the call.
fn told<T>(name: &'static str, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let _uncancelled = Uncancelled::begin();
    caught(name, f).unwrap_or_else(|| {
        Err(Error::Io {
            what: "internal error".into(),
            source_text: "the engine panicked".into(),
            errno: 0,
        })
    })
}

/// Runs `f` without a connection, and stores an error's sentence in `*message`.
///
/// # Safety
/// `message` points to writable memory for one pointer.
pub(super) unsafe fn without_conn(
    message: *mut *mut c_char,
    name: &'static str,
    f: impl FnOnce() -> Result<()>,
) -> c_int {
    match told(name, f) {
        Ok(()) => SQLITE_OK,
        Err(e) => {
            let text = text(&e.to_string());
            // SAFETY: strdup copies a C string; pl_free releases it. `message` is writable
            // by contract.
            unsafe { *message = libc::strdup(text.as_ptr()) };
            codes::of(&e)
        }
    }
}

/// `PL_ATTACH_THREADS` of engine.h.
const ATTACH_THREADS: u32 = 0x01;
/// `PL_ATTACH_LOCAL` of engine.h.
const ATTACH_LOCAL: u32 = 0x02;

/// # Safety
/// `path` is a C string.
pub(super) unsafe fn path_of<'a>(path: *const c_char) -> &'a Path {
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
    file: *const u64,
    wal_index: u64,
    flags: u32,
    wait: *const PlWait,
    out: *mut *mut PlConn,
    message: *mut *mut c_char,
) -> c_int {
    // SAFETY: engine.h.
    let path = unsafe { path_of(path) };
    // SAFETY: `message` is writable by contract.
    unsafe {
        without_conn(message, "pl_attach", || {
            if flags & ATTACH_LOCAL == 0 {
                session::refuse_network(path)?;
            }
            let opener: Arc<dyn BaseOpener> = Arc::new(Opener { ops });
            // SAFETY: two numbers, by contract.
            let (dev, ino) = (*file, *file.add(1));
            let file = (ino != 0).then_some(BaseIdentity { dev, ino });
            let mut conn = with_wait(wait, |w| attach::attach(path, file, wal_index, &opener, w))?;
            if flags & ATTACH_THREADS != 0 {
                conn.allow_threads();
            }
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
    if unwound(|| attach::detach(conn.conn)).is_none() {
        database.poison();
    }
}

/// A database that this process leaves, after the connection has ended.
pub struct PlLeaving(Arc<Database>);

/// See engine.h.
///
/// # Safety
/// As engine.h says; `conn` is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_end(conn: *mut PlConn) -> *mut PlLeaving {
    let _uncancelled = Uncancelled::begin();
    // SAFETY: it came from Box::into_raw in pl_attach and is not used again.
    let conn = unsafe { Box::from_raw(conn) };
    let database = conn.conn.database().clone();
    if unwound(|| attach::end(conn.conn)).is_none() {
        database.poison();
    }
    Box::into_raw(Box::new(PlLeaving(database)))
}

/// See engine.h.
///
/// # Safety
/// As engine.h says; `leaving` is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_leave(leaving: *mut PlLeaving) {
    let _uncancelled = Uncancelled::begin();
    // SAFETY: it came from Box::into_raw in pl_end and is not used again.
    let PlLeaving(database) = *unsafe { Box::from_raw(leaving) };
    if unwound(|| attach::leave(database.clone())).is_none() {
        database.poison();
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_check_fork(conn: *mut PlConn) -> c_int {
    let check = |c: &mut Conn| c.database().check_fork().map(|()| SQLITE_OK);
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
        without_conn(message, "pl_enable_check", || {
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
pub unsafe extern "C" fn pl_check_network(path: *const c_char, message: *mut *mut c_char) -> c_int {
    // SAFETY: engine.h.
    let path = unsafe { path_of(path) };
    // SAFETY: the result is writable by contract.
    unsafe { without_conn(message, "pl_check_network", || session::refuse_network(path)) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_check_place(path: *const c_char, message: *mut *mut c_char) -> c_int {
    // SAFETY: engine.h.
    let path = unsafe { path_of(path) };
    // SAFETY: the result is writable by contract.
    unsafe { without_conn(message, "pl_check_place", || session::refuse_place(path)) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_belongs(
    file: *const u8,
    wal: *const u8,
    wal_pages: u32,
    brought: c_int,
) -> c_int {
    let bytes = wal_pages as usize * FIRST_BYTES;
    // SAFETY: engine.h; there may be no page in the WAL, and then no memory.
    let wal = if bytes == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(wal, bytes) } };
    // SAFETY: engine.h.
    let file = unsafe { std::slice::from_raw_parts(file, FIRST_BYTES) };
    let fits = told("pl_belongs", || {
        let pages: Option<Vec<_>> = wal.chunks_exact(FIRST_BYTES).map(FirstPage::parse).collect();
        // An invalid page 1 in the WAL: SQLite reports that itself.
        Ok(pages.is_none_or(|pages| belongs(FirstPage::parse(file), &pages, brought != 0)))
    });
    fits.map_or_else(|e| codes::of(&e), |fits| if fits { SQLITE_OK } else { PL_MISFIT })
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_misfit(path: *const c_char) -> *mut c_char {
    // SAFETY: engine.h.
    let path = unsafe { path_of(path) };
    let text = CString::new(Error::Replaced(path.to_owned()).to_string()).unwrap_or_default();
    // SAFETY: strdup copies a C string; pl_free releases it.
    unsafe { libc::strdup(text.as_ptr()) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_beside(path: *const c_char, message: *mut *mut c_char) -> c_int {
    // SAFETY: engine.h.
    let path = unsafe { path_of(path) };
    // SAFETY: the result is writable by contract.
    unsafe { without_conn(message, "pl_beside", || attach::check_beside(path)) }
}

/// See engine.h.
///
/// # Safety
/// The descriptor is open, and stays so during the call; `is_held` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_claim(wal_index: c_int, is_held: *mut c_int) -> c_int {
    // SAFETY: open, by contract; it is not closed here.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(wal_index) });
    let company = || -> std::io::Result<c_int> {
        if !locks::claim(&file)? {
            return Ok(if locks::is_open_twice(&file)? { SQLITE_MISUSE } else { SQLITE_BUSY });
        }
        // SAFETY: writable, by contract.
        unsafe { *is_held = 1 };
        Ok(if locks::is_claimed_elsewhere(&file)? { SQLITE_BUSY } else { SQLITE_OK })
    };
    // On a system without these locks joining reports it.
    told("pl_claim", || Ok(company().unwrap_or(SQLITE_IOERR))).unwrap_or(SQLITE_IOERR)
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
        without_conn(message, "pl_accept_base", || {
            attach::accept_base(path, &mut || Opener { ops }.open(path))
        })
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
pub unsafe extern "C" fn pl_disable_begin(
    conn: *mut PlConn,
    wait: *const PlWait,
    is_over: *mut c_int,
) -> c_int {
    // SAFETY: engine.h.
    unsafe {
        with(conn, "pl_disable_begin", |c| {
            refuse_company(c.database())?;
            with_wait(wait, |w| c.exclusive_begin(w))?;
            // A connection may have joined during the merge; from here on none joins until the mode
            // is left.
            let left = attach::begin_leaving(c.database()).and_then(|()| c.database().retire_log());
            if left.is_err() && c.database().is_fenced() {
                c.exclusive_end(false, false);
                attach::stay(c.database());
            } else {
                *is_over = 1;
            }
            left.map(|()| SQLITE_OK)
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
        end(conn, "pl_disabled", |c| c.exclusive_end(true, false));
    }
    // SAFETY: engine.h.
    unsafe { pl_detach(conn) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(f: impl FnOnce() -> Result<()>) -> (c_int, String) {
        let mut message = std::ptr::null_mut();
        // SAFETY: room for one pointer.
        let code = unsafe { without_conn(&raw mut message, "pl_accept_base", f) };
        if message.is_null() {
            return (code, String::new());
        }
        // SAFETY: a C string, by its contract.
        let sentence = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
        // SAFETY: as C does with it.
        unsafe { pl_free(message.cast()) };
        (code, sentence)
    }

    #[test]
    fn a_panic_in_a_call_without_a_connection_is_an_error_with_a_sentence() {
        let (code, sentence) = said(|| panic!("on purpose"));
        assert_eq!(code, codes::SQLITE_IOERR);
        assert!(sentence.contains("the engine panicked"), "{sentence}");
        assert_eq!(said(|| Ok(())), (SQLITE_OK, String::new()));
        let (code, sentence) = said(|| Err(Error::CantOpen("a zero \0 in a name".into())));
        assert_eq!((code, sentence.as_str()), (codes::SQLITE_CANTOPEN, "a zero   in a name"));
    }
}
