//! Lines on standard error.

use std::io::{Write as _, stderr};

/// Writes a line to standard error. Where nobody can read it, as where a logger has ended or its disk is full, the line
/// is lost and the work goes on: `eprintln!` panics there, just when something is in the way.
pub fn note(line: &str) {
    let _ = stderr().lock().write_all(format!("{line}\n").as_bytes());
}
