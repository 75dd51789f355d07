//! Locks on the base's read marks.

use std::os::raw::c_int;
use std::ptr;

use plait_engine::shm::read_marks::ReadMarks;

use super::codes::{SQLITE_BUSY, SQLITE_IOERR, SQLITE_OK};
use super::types::PlConn;
use super::{caught, with_memory};

/// The marks `first..first + n`.
fn range(first: c_int, n: c_int) -> std::ops::Range<usize> {
    first as usize..(first + n) as usize
}

/// Runs `f` on `marks`, which belong to no connection; a panic poisons the database.
///
/// # Safety
/// `marks` came from `pl_read_marks` or the engine's `use_read_marks`, and still live.
unsafe fn on(
    marks: *const ReadMarks,
    name: &'static str,
    f: impl FnOnce(&ReadMarks) -> bool,
) -> c_int {
    // SAFETY: by contract.
    let marks = unsafe { &*marks };
    match caught(name, || f(marks)) {
        Some(true) => SQLITE_OK,
        Some(false) => SQLITE_BUSY,
        None => {
            marks.poison();
            SQLITE_IOERR
        }
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_read_marks(conn: *mut PlConn, out: *mut *const ReadMarks) -> c_int {
    // SAFETY: engine.h: `out` is writable.
    unsafe {
        with_memory(conn, "pl_read_marks", |c| {
            *out = c.database().read_marks().map_or(ptr::null(), ptr::from_ref);
            Ok(SQLITE_OK)
        })
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_marks_index(marks: *const ReadMarks, inode: u64) -> c_int {
    // SAFETY: engine.h.
    unsafe { on(marks, "pl_marks_index", |m| !m.is_strange_index(inode)) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_mark_lock_shared(marks: *const ReadMarks, mark: c_int) -> c_int {
    // SAFETY: engine.h.
    unsafe { on(marks, "pl_mark_lock_shared", |m| m.lock_shared(mark as usize)) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_mark_unlock_shared(marks: *const ReadMarks, mark: c_int) {
    let unlock = |m: &ReadMarks| {
        m.unlock_shared(mark as usize);
        true
    };
    // SAFETY: engine.h.
    unsafe { on(marks, "pl_mark_unlock_shared", unlock) };
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_mark_lock_exclusive(
    marks: *const ReadMarks,
    first: c_int,
    n: c_int,
) -> c_int {
    // SAFETY: engine.h.
    unsafe { on(marks, "pl_mark_lock_exclusive", |m| m.lock_exclusive(range(first, n))) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_mark_unlock_exclusive(marks: *const ReadMarks, first: c_int, n: c_int) {
    let unlock = |m: &ReadMarks| {
        m.unlock_exclusive(range(first, n));
        true
    };
    // SAFETY: engine.h.
    unsafe { on(marks, "pl_mark_unlock_exclusive", unlock) };
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_leave_disk(marks: *const ReadMarks, syncs: *mut u64) -> c_int {
    // SAFETY: engine.h, also that `syncs` is the caller's.
    unsafe { on(marks, "pl_leave_disk", |m| m.should_leave_disk(&mut *syncs)) }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_leave_processor(marks: *const ReadMarks) {
    let leave = |m: &ReadMarks| {
        m.leave_processor();
        true
    };
    // SAFETY: engine.h.
    unsafe { on(marks, "pl_leave_processor", leave) };
}
