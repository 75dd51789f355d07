//! Transactions over several files.

use std::os::raw::{c_char, c_int};

use plait_engine::error::{Error, Result};
use plait_engine::pages::{Changed, TakePage};

use super::attach::path_of;
use super::codes::SQLITE_OK;
use super::txn::sync_of;
use super::types::{PlConn, PlPages, PlWait, with_wait};
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
pub unsafe extern "C" fn pl_part_prepare_pages(
    conn: *mut PlConn,
    name: *const c_char,
    pages: *const PlPages,
) -> c_int {
    // SAFETY: engine.h: a string.
    let super_journal = unsafe { path_of(name) };
    // SAFETY: engine.h: readable during the call.
    let pages = unsafe { *pages };
    let changed = Changed {
        change_counter: pages.change_counter,
        page_bytes: pages.page_bytes,
        page_count: pages.page_count,
        count: pages.count,
    };
    let mut each = |put: &mut TakePage<'_>| -> Result<()> {
        for _ in 0..pages.count {
            let (mut number, mut content) = (0, std::ptr::null());
            // SAFETY: engine.h: the function may be called with its context, and fills both.
            let code = unsafe { (pages.x_next)(pages.ctx, &raw mut number, &raw mut content) };
            if code != SQLITE_OK {
                let text = "cannot read a page that the transaction has changed".into();
                return Err(Error::Base { code, text });
            }
            // SAFETY: engine.h: a page, until the next call.
            let content = unsafe { std::slice::from_raw_parts(content, pages.page_bytes as usize) };
            put(number, content)?;
        }
        Ok(())
    };
    // SAFETY: engine.h.
    unsafe {
        with(conn, "pl_part_prepare_pages", |c| {
            c.part_prepare_pages(super_journal, &changed, &mut each).map(|()| SQLITE_OK)
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_part_decided(conn: *mut PlConn) {
    // SAFETY: engine.h.
    unsafe { end(conn, "pl_part_decided", |c| c.part_decided()) }
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
