//! Reports for `plait run`: which programs loaded the library, whether it opened a database in any
//! of them, and which databases it wrote in another mode than concurrent.
//!
//! PLAIT_RUN_REPORT names a file. Each process that loads the library appends records there: the
//! path of its program; once, that it has opened a database; once, that it has closed one in
//! concurrent mode; and, as it closes it, the path of a database that it has written in another
//! mode. See [`LOADED`], [`OPENED`], [`CONCURRENT`] and [`WRITTEN`]. A program that ends without
//! closing a database reports nothing of that database. Each record is one write and ends in a zero
//! byte. Without the variable, and where the file cannot be written, nothing happens. Nor does a
//! panic here end a program: it may come before its `main`.

use std::ffi::{CStr, c_char};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, Once};

use plait_engine::events::has_raised_rights;

use super::caught;

/// The variable that names the file.
pub const VARIABLE: &str = "PLAIT_RUN_REPORT";
/// Begins the record of a program; its path follows.
pub const LOADED: &[u8] = b"loaded ";
/// A database was opened.
pub const OPENED: &[u8] = b"opened";
/// A database in concurrent mode was closed.
pub const CONCURRENT: &[u8] = b"concurrent";
/// Begins the record of a database that was written in another mode; its path follows.
pub const WRITTEN: &[u8] = b"written ";
/// Databases that one process reports at most.
const WRITTEN_MAX: usize = 8;

fn append(what: impl FnOnce() -> Option<Vec<u8>>) {
    // The caller of a program with raised rights would choose a file that the caller may not write.
    if has_raised_rights() {
        return;
    }
    let Some(path) = std::env::var_os(VARIABLE) else { return };
    let (Some(mut line), Ok(mut file)) = (what(), File::options().append(true).open(path)) else {
        return;
    };
    line.push(0);
    // A failure cannot be reported, and nothing depends on it.
    let _ = file.write_all(&line);
}

fn record(name: &'static str, what: impl FnOnce() -> Option<Vec<u8>>) {
    // A panic costs one record.
    let _ = caught(name, || append(what));
}

/// See engine.h.
#[unsafe(no_mangle)]
pub extern "C" fn pl_report_loaded() {
    record("pl_report_loaded", || {
        let program = std::fs::read_link("/proc/self/exe").ok()?;
        Some([LOADED, program.as_os_str().as_bytes()].concat())
    });
}

/// See engine.h.
#[unsafe(no_mangle)]
pub extern "C" fn pl_report_opened() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| record("pl_report_opened", || Some(OPENED.to_vec())));
}

/// See engine.h.
#[unsafe(no_mangle)]
pub extern "C" fn pl_report_concurrent() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| record("pl_report_concurrent", || Some(CONCURRENT.to_vec())));
}

/// See engine.h.
///
/// # Safety
/// `path` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pl_report_written(path: *const c_char) {
    static TOLD: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
    if path.is_null() {
        return;
    }
    // SAFETY: the caller's contract.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    record("pl_report_written", || {
        // Does not wait: a fork may have left the lock taken.
        let mut told = TOLD.try_lock().ok()?;
        if told.len() >= WRITTEN_MAX || told.iter().any(|other| other == path) {
            return None;
        }
        told.push(path.to_vec());
        Some([WRITTEN, path].concat())
    });
}
