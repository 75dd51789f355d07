//! What `plait run` wants to know: which programs took the library in, and whether it opened a database in any of them.
//!
//! PLAIT_RUN_REPORT names a file. Each process that loads the library appends the path of its program, and, once, that it has
//! opened a database; see [`LOADED`] and [`OPENED`]. Each record is one write and ends in a zero byte. Without the variable, and where
//! the file cannot be written, nothing happens. Nor does a panic here end a program: it may come before its `main`.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::sync::Once;

use super::caught;

/// Names the file.
pub const VARIABLE: &str = "PLAIT_RUN_REPORT";
/// Begins the record of a program; its path follows.
pub const LOADED: &[u8] = b"loaded ";
/// A database was opened.
pub const OPENED: &[u8] = b"opened";

fn append(what: impl FnOnce() -> Option<Vec<u8>>) {
    let Some(path) = std::env::var_os(VARIABLE) else { return };
    let (Some(mut line), Ok(mut file)) = (what(), File::options().append(true).open(path)) else {
        return;
    };
    line.push(0);
    // Nobody can be told, and nothing depends on it.
    let _ = file.write_all(&line);
}

fn record(name: &'static str, what: impl FnOnce() -> Option<Vec<u8>>) {
    // After a panic a record is missing.
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
