//! What the C side notes, and when events are written (engine/src/events.rs).

use std::ffi::CStr;
use std::os::raw::{c_char, c_int};
use std::sync::Arc;

use plait_engine::base::BaseOpener;
use plait_engine::database::happenings::note_failure;
use plait_engine::events;
use plait_engine::sync::caller::is_in_call;

use super::attach::path_of;
use super::base::Opener;
use super::caught;
use super::types::{PlBaseOps, PlConn};

/// See engine.h.
///
/// # Safety
/// As engine.h says; `ops` is a static table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_failed(
    ops: &'static PlBaseOps,
    path: *const c_char,
    conn: *mut PlConn,
    code: c_int,
    text: *const c_char,
) {
    // SAFETY: engine.h.
    let path = unsafe { path_of(path) };
    // SAFETY: engine.h.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    // A callback of a call that uses the connection may have failed.
    let conn = if is_in_call() { std::ptr::null() } else { conn.cast_const() };
    // SAFETY: engine.h: null, or a connection; no call uses it.
    let conn = unsafe { conn.as_ref() };
    // A panic costs the event.
    let _ = caught("pl_failed", || match conn {
        Some(c) => c.conn.database().note_failure(code, &text),
        None => {
            let opener: Arc<dyn BaseOpener> = Arc::new(Opener { ops });
            note_failure(path, &opener, code, &text);
        }
    });
}

/// See engine.h.
#[unsafe(no_mangle)]
pub extern "C" fn pl_events_wait() -> c_int {
    c_int::from(events::are_waiting())
}

/// See engine.h.
#[unsafe(no_mangle)]
pub extern "C" fn pl_events_write() {
    // A panic costs the events.
    let _ = caught("pl_events_write", events::write);
}
