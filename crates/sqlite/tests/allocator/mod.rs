//! Functions of a test in the place of SQLite's allocator.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

const CONFIG_MALLOC: c_int = 4;
const CONFIG_GETMALLOC: c_int = 5;

/// SQLite's `sqlite3_mem_methods`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemoryMethods {
    pub malloc: unsafe extern "C" fn(c_int) -> *mut c_void,
    pub free: unsafe extern "C" fn(*mut c_void),
    pub realloc: unsafe extern "C" fn(*mut c_void, c_int) -> *mut c_void,
    pub rest: [*mut c_void; 5],
}

unsafe extern "C" {
    fn sqlite3_config(op: c_int, ...) -> c_int;
}

/// Puts what `watched` makes of SQLite's functions in their place. No thread may use the library meanwhile.
pub fn replace(watched: impl FnOnce(MemoryMethods) -> MemoryMethods) {
    let mut methods = MaybeUninit::<MemoryMethods>::uninit();
    // SAFETY: no thread uses the library, and SQLite writes all fields.
    let rc = unsafe { sqlite3_config(CONFIG_GETMALLOC, methods.as_mut_ptr()) };
    assert_eq!(rc, 0);
    // SAFETY: as said.
    let watched = watched(unsafe { methods.assume_init() });
    // SAFETY: no thread uses the library, which copies the table.
    let rc = unsafe { sqlite3_config(CONFIG_MALLOC, &raw const watched) };
    assert_eq!(rc, 0);
}
