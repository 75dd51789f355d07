//! The C structs of `csrc/engine.h`.

use std::ffi::CString;
use std::os::raw::{c_char, c_int, c_void};
use std::time::Duration;

use plait_engine::base::BaseHeader;
use plait_engine::database::changed::Changed;
use plait_engine::ids::{Generation, Root};
use plait_engine::shm::layout::{EXCLUSIVE_MAXIMA, EXCLUSIVE_ROOTS};
use plait_engine::shm::read_marks::ReadMarks;
use plait_engine::sync::caller;
use plait_engine::sync::wait::Wait;
use plait_engine::txn::Conn;
use plait_engine::txn::overlay::{Entry, OverlayIter};

use crate::key::encode_rowid;

/// One Btree attached to a concurrent database.
pub struct PlConn {
    pub(super) conn: Conn,
    pub(super) error: CString,
    pub(super) is_conflict: bool,
    /// A call on the connection has panicked: only calls that end things still run.
    pub(super) is_broken: bool,
}

/// An ordered walk over the overlay of one root.
pub struct PlIter {
    pub(super) conn: *mut PlConn,
    pub(super) iter: OverlayIter,
}

/// See engine.h.
#[repr(C)]
pub struct PlEntry {
    pub key: *const u8,
    pub n_key: u32,
    pub n_rec: u32,
    pub rec: *const u8,
    pub tombstone: u8,
    pub maximum: u8,
}

/// See engine.h.
#[repr(C)]
pub struct PlTouched {
    pub n_root: i32,
    pub roots: [u32; EXCLUSIVE_ROOTS],
    pub maxima_root: u32,
    pub n_maximum: i32,
    pub maxima: [i64; EXCLUSIVE_MAXIMA],
}

impl From<&PlTouched> for Changed {
    fn from(c: &PlTouched) -> Changed {
        let roots = usize::try_from(c.n_root).ok().and_then(|n| c.roots.get(..n));
        let maxima = usize::try_from(c.n_maximum).ok().and_then(|n| c.maxima.get(..n));
        let (Some(roots), Some(maxima)) = (roots, maxima) else { return Changed::ANYTHING };
        if roots.is_empty() && maxima.is_empty() {
            return Changed::ANYTHING;
        }
        let changed = Changed::rows_of(roots);
        if c.maxima_root == 0 {
            return changed;
        }
        let keys: Vec<u64> =
            maxima.iter().map(|row| u64::from_be_bytes(encode_rowid(*row))).collect();
        changed.and_maxima(Root::new(c.maxima_root), &keys)
    }
}

/// See engine.h.
#[repr(C)]
pub struct PlRowid {
    pub rowid: i64,
    pub root: u32,
}

impl From<Entry<'_>> for PlEntry {
    fn from(e: Entry<'_>) -> PlEntry {
        PlEntry {
            key: e.key.as_ptr(),
            n_key: e.key.len() as u32,
            n_rec: e.rec.len() as u32,
            rec: e.rec.as_ptr(),
            tombstone: u8::from(e.tombstone),
            maximum: 0,
        }
    }
}

/// See engine.h.
#[repr(C)]
#[derive(Default)]
pub struct PlHeader {
    pub marked: u8,
    pub fenced: u8,
    pub empty: u8,
    pub text_encoding: u8,
    pub fence_in_wal_alone: u8,
    pub salt: u32,
    pub generation: u32,
    pub cookie: u64,
}

impl From<&BaseHeader> for PlHeader {
    fn from(h: &BaseHeader) -> PlHeader {
        PlHeader {
            marked: u8::from(h.marked),
            fenced: u8::from(h.fenced),
            salt: h.salt,
            generation: h.generation.get(),
            cookie: h.cookie,
            ..PlHeader::default()
        }
    }
}

impl From<&PlHeader> for BaseHeader {
    fn from(h: &PlHeader) -> BaseHeader {
        BaseHeader {
            marked: h.marked != 0,
            fenced: h.fenced != 0,
            salt: h.salt,
            generation: Generation::new(h.generation),
            cookie: h.cookie,
            fence_in_wal_alone: h.fence_in_wal_alone != 0,
        }
    }
}

/// See engine.h.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PlWait {
    pub timeout_ms: c_int,
    pub x_busy: Option<unsafe extern "C" fn(*mut c_void, c_int) -> c_int>,
    pub x_interrupted: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    pub ctx: *mut c_void,
}

/// Runs `f` with the wait that C described; a null pointer means: do not wait.
///
/// # Safety `wait` is null or points to a PlWait whose callbacks may be called with its context
/// during the call.
pub(super) unsafe fn with_wait<T>(wait: *const PlWait, f: impl FnOnce(&mut Wait<'_>) -> T) -> T {
    // SAFETY: the caller's contract.
    let Some(w) = (unsafe { wait.as_ref() }) else {
        return f(&mut Wait { timeout: Duration::ZERO, busy: None, interrupted: &mut || false });
    };
    let w = *w;
    // SAFETY: the caller's contract.
    let is_interrupted = || w.x_interrupted.is_some_and(|x| unsafe { x(w.ctx) } != 0);
    let call = |n: u32| {
        // SAFETY: the caller's contract.
        w.x_busy.is_some_and(|x| unsafe { x(w.ctx, n as c_int) } != 0)
    };
    let custom = w.timeout_ms < 0 && w.x_busy.is_some();
    let timeout = Duration::from_millis(w.timeout_ms.max(0) as u64);
    let handler: Option<&dyn Fn(u32) -> bool> = if custom { Some(&call) } else { None };
    caller::waits(timeout, handler, &is_interrupted, || {
        let (mut interrupted, mut call) = (is_interrupted, call);
        let busy: Option<&mut dyn FnMut(u32) -> bool> = if custom { Some(&mut call) } else { None };
        f(&mut Wait { timeout, busy, interrupted: &mut interrupted })
    })
}

/// See engine.h.
#[repr(C)]
pub struct PlBaseOps {
    pub x_open: unsafe extern "C" fn(*const c_char, *mut *mut c_void, *mut *mut c_char) -> c_int,
    pub x_close: unsafe extern "C" fn(*mut c_void),
    pub x_read_marks: unsafe extern "C" fn(*mut c_void, *const ReadMarks),
    pub x_errmsg: unsafe extern "C" fn(*mut c_void) -> *const c_char,
    pub x_header: unsafe extern "C" fn(*mut c_void, *mut PlHeader) -> c_int,
    pub x_begin: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub x_put: unsafe extern "C" fn(*mut c_void, u32, *const PlEntry) -> c_int,
    pub x_delete: unsafe extern "C" fn(*mut c_void, u32, *const PlEntry) -> c_int,
    pub x_replace_pages: unsafe extern "C" fn(*mut c_void, u32, u32) -> c_int,
    pub x_put_page: unsafe extern "C" fn(*mut c_void, u32, *const u8) -> c_int,
    pub x_set_page_count: unsafe extern "C" fn(*mut c_void, u32) -> c_int,
    pub x_stamp: unsafe extern "C" fn(*mut c_void, *const PlHeader) -> c_int,
    pub x_commit: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub x_commit_sum: unsafe extern "C" fn(*mut c_void, *mut c_int, *mut u32, *mut u32) -> c_int,
    pub x_rollback: unsafe extern "C" fn(*mut c_void),
    pub x_begin_read: unsafe extern "C" fn(*mut c_void, *mut PlHeader, *mut u32, *mut u32) -> c_int,
    pub x_read_page: unsafe extern "C" fn(*mut c_void, u32, *mut u8) -> c_int,
    pub x_end_read: unsafe extern "C" fn(*mut c_void),
    pub x_has_unseen: unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int,
    pub x_wait_at_most: unsafe extern "C" fn(*mut c_void, c_int),
    pub x_raise_fence: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub x_lower_fence: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub x_sync_lowered: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub x_checkpoint:
        unsafe extern "C" fn(*mut c_void, c_int, *mut u32, *mut u32, *mut u32) -> c_int,
    pub x_borrow: unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int,
    pub x_sync_lent: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub x_give_back: unsafe extern "C" fn(*mut c_void),
    pub x_tell: unsafe extern "C" fn(c_int, *const c_char),
}

/// See engine.h.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PlPages {
    pub change_counter: u32,
    pub page_bytes: u32,
    pub page_count: u32,
    pub count: u32,
    pub x_next: unsafe extern "C" fn(*mut c_void, *mut u32, *mut *const u8) -> c_int,
    pub ctx: *mut c_void,
}

/// See engine.h.
#[repr(C)]
pub struct PlConflict {
    pub root: u32,
    pub n_key: u32,
    pub key: [u8; 64],
    pub is_range: u8,
    pub is_schema: u8,
    pub loser_pid: i32,
    pub winner_pid: i32,
    pub loser_txn: u64,
    pub winner_txn: u64,
    pub unix_ms: i64,
    pub n_alike: i32,
    pub n_recent: i32,
}

/// See engine.h.
#[repr(C)]
pub struct PlCell {
    pub kind: u8,
    pub i: i64,
    pub z: *const c_char,
}

/// See engine.h.
#[repr(C)]
pub struct PlBuf {
    pub p: *mut u8,
    pub n: u32,
    pub n_alloc: u32,
}

/// See engine.h.
#[repr(C)]
pub struct PlValue {
    pub kind: u8,
    pub n: u32,
    pub n_zero: u32,
    pub z: *const u8,
    pub i: i64,
    pub r: f64,
}
