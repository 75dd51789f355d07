//! Reads: the overlay over the base, and the read set.

use std::os::raw::c_int;

use plait_engine::ids::Root;
use plait_engine::memtable::{Hi, Seek};
use plait_engine::txn::Conn;
use plait_engine::txn::overlay::{Entry, OverlayIter};

use super::codes::{SQLITE_DONE, SQLITE_NOMEM, SQLITE_OK};
use super::types::{PlConn, PlEntry, PlIter, PlRowid};
use super::{bytes, look};
use crate::key::encode_rowid;

/// Returns SQLITE_OK or SQLITE_DONE.
fn found(is_there: bool) -> c_int {
    if is_there { SQLITE_OK } else { SQLITE_DONE }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_root_overlay(conn: *mut PlConn, root: u32) -> c_int {
    // SAFETY: engine.h.
    unsafe { look(conn, "pl_root_overlay", |c| found(c.root_has_overlay(Root::new(root)))) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_has_overlay(conn: *mut PlConn) -> c_int {
    // SAFETY: engine.h.
    unsafe { look(conn, "pl_has_overlay", |c| found(c.has_overlay())) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_get(
    conn: *mut PlConn,
    root: u32,
    key: *const u8,
    n_key: u32,
    out: *mut PlEntry,
) -> c_int {
    // SAFETY: engine.h: the key is readable during the call.
    let k = unsafe { bytes(key, n_key) };
    // SAFETY: engine.h: `out` is writable.
    unsafe {
        look(conn, "pl_get", |c| match c.get(Root::new(root), k) {
            Some(entry) => {
                *out = PlEntry { key, n_key, ..PlEntry::from(entry) };
                SQLITE_OK
            }
            None => SQLITE_DONE,
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says; the iterator is freed before the connection is detached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_iter_new(conn: *mut PlConn, root: u32, out: *mut *mut PlIter) -> c_int {
    let root = Root::new(root);
    // SAFETY: engine.h: `out` is writable, and holds null or an iterator that is not in use.
    unsafe {
        look(conn, "pl_iter_new", |_| {
            match (*out).as_mut() {
                Some(again) => {
                    again.conn = conn;
                    again.iter.begin_again(root);
                }
                None => {
                    *out = Box::into_raw(Box::new(PlIter { conn, iter: OverlayIter::new(root) }));
                }
            }
            SQLITE_OK
        })
    }
}

/// See engine.h.
///
/// # Safety
/// `iter` came from `pl_iter_new` and is not used afterwards, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_iter_free(iter: *mut PlIter) {
    if !iter.is_null() {
        // SAFETY: by contract.
        drop(unsafe { Box::from_raw(iter) });
    }
}

/// Moves an iterator and stores the entry that it is on.
///
/// # Safety As engine.h says: `iter` and its connection are alive and used by this thread alone;
/// `out` is writable.
unsafe fn step(
    iter: *mut PlIter,
    name: &'static str,
    out: *mut PlEntry,
    f: impl for<'c> FnOnce(&mut OverlayIter, &'c Conn) -> Option<Entry<'c>>,
) -> c_int {
    // SAFETY: by contract.
    let iter = unsafe { &mut *iter };
    // SAFETY: by contract.
    unsafe {
        look(iter.conn, name, |c| match f(&mut iter.iter, c) {
            Some(entry) => {
                *out = PlEntry::from(entry);
                SQLITE_OK
            }
            None if iter.iter.take_lack_of_memory() => SQLITE_NOMEM,
            None => SQLITE_DONE,
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_iter_seek(
    iter: *mut PlIter,
    mode: c_int,
    key: *const u8,
    n_key: u32,
    out: *mut PlEntry,
) -> c_int {
    // SAFETY: engine.h: the key is readable during the call.
    let key = unsafe { bytes(key, n_key) };
    let seek = match mode {
        0 if key.is_empty() => Seek::First,
        0 => Seek::Ge(key),
        1 => Seek::Gt(key),
        2 => Seek::Le(key),
        3 => Seek::Lt(key),
        4 => Seek::PrefixGt(key),
        _ => Seek::PrefixLe(key),
    };
    // SAFETY: engine.h.
    unsafe { step(iter, "pl_iter_seek", out, |i, c| i.seek(c, seek)) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_iter_last(iter: *mut PlIter, out: *mut PlEntry) -> c_int {
    // SAFETY: engine.h.
    unsafe { step(iter, "pl_iter_last", out, |i, c| i.seek(c, Seek::Last)) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_iter_next(iter: *mut PlIter, out: *mut PlEntry) -> c_int {
    // SAFETY: engine.h.
    unsafe { step(iter, "pl_iter_next", out, |i, c| i.next(c)) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_iter_prev(iter: *mut PlIter, out: *mut PlEntry) -> c_int {
    // SAFETY: engine.h.
    unsafe { step(iter, "pl_iter_prev", out, |i, c| i.prev(c)) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_iter_skip(
    iter: *mut PlIter,
    dir: c_int,
    first: c_int,
    out: *mut PlEntry,
) -> c_int {
    // SAFETY: engine.h.
    unsafe { step(iter, "pl_iter_skip", out, |i, c| i.skip(c, dir > 0, first != 0)) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_iter_skipped(iter: *mut PlIter) -> c_int {
    // SAFETY: engine.h: `iter` and its connection are alive and used by this thread alone.
    let iter = unsafe { &mut *iter };
    let end = |c: &mut Conn| {
        iter.iter.skipped(c);
        SQLITE_OK
    };
    // SAFETY: engine.h.
    unsafe { look(iter.conn, "pl_iter_skipped", end) }
}

/// Records a read.
///
/// # Safety
/// As engine.h says.
unsafe fn told(conn: *mut PlConn, name: &'static str, f: impl FnOnce(&mut Conn)) -> c_int {
    let note = |c: &mut Conn| {
        f(c);
        if c.lacks_reads() { SQLITE_NOMEM } else { SQLITE_OK }
    };
    // SAFETY: by contract.
    unsafe { look(conn, name, note) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_read_point(
    conn: *mut PlConn,
    root: u32,
    key: *const u8,
    n_key: u32,
) -> c_int {
    // SAFETY: engine.h: the key is readable during the call.
    let key = unsafe { bytes(key, n_key) };
    // SAFETY: engine.h.
    unsafe { told(conn, "pl_read_point", |c| c.read_point(Root::new(root), key)) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_read_rowids(conn: *mut PlConn, rows: *const PlRowid, n: u32) -> c_int {
    // SAFETY: engine.h: they are readable during the call, and `n` is not 0.
    let rows = unsafe { std::slice::from_raw_parts(rows, n as usize) };
    let note = |c: &mut Conn| {
        for row in rows {
            c.read_point(Root::new(row.root), &encode_rowid(row.rowid));
        }
    };
    // SAFETY: engine.h.
    unsafe { told(conn, "pl_read_rowids", note) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_read_prefix(
    conn: *mut PlConn,
    root: u32,
    key: *const u8,
    n_key: u32,
) -> c_int {
    // SAFETY: engine.h: the key is readable during the call.
    let key = unsafe { bytes(key, n_key) };
    // SAFETY: engine.h.
    unsafe { told(conn, "pl_read_prefix", |c| c.read_prefix(Root::new(root), key)) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_read_range(
    conn: *mut PlConn,
    root: u32,
    lo: *const u8,
    n_lo: u32,
    hi: *const u8,
    n_hi: u32,
) -> c_int {
    // SAFETY: engine.h: both keys are null or readable during the call.
    let (low, high) = unsafe { (bytes(lo, n_lo), bytes(hi, n_hi)) };
    let low = (!lo.is_null()).then_some(low);
    let high = (!hi.is_null()).then_some(Hi::Key(high));
    // SAFETY: engine.h.
    unsafe { told(conn, "pl_read_range", |c| c.read_range(Root::new(root), low, high)) }
}
