//! Locks on the base's read marks.

use std::os::raw::c_int;
use std::ptr;

use plait_engine::shm::read_marks::ReadMarks;

use super::read;
use super::types::PlConn;

/// The marks `first..first + n`.
fn range(first: c_int, n: c_int) -> std::ops::Range<usize> {
    first as usize..(first + n) as usize
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_read_marks(conn: *mut PlConn) -> *const ReadMarks {
    // SAFETY: engine.h.
    unsafe {
        read(conn, ptr::null(), |c| c.database().read_marks().map_or(ptr::null(), ptr::from_ref))
    }
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_mark_lock_shared(marks: *const ReadMarks, mark: c_int) -> c_int {
    // SAFETY: engine.h.
    c_int::from(unsafe { &*marks }.lock_shared(mark as usize))
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_mark_unlock_shared(marks: *const ReadMarks, mark: c_int) {
    // SAFETY: engine.h.
    unsafe { &*marks }.unlock_shared(mark as usize);
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
    c_int::from(unsafe { &*marks }.lock_exclusive(range(first, n)))
}

/// See engine.h.
///
/// # Safety
/// As engine.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_mark_unlock_exclusive(marks: *const ReadMarks, first: c_int, n: c_int) {
    // SAFETY: engine.h.
    unsafe { &*marks }.unlock_exclusive(range(first, n));
}
