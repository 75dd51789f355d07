//! What is printed as the answer of a command.

use std::io::{ErrorKind, Write as _, stdout};

/// Prints. A reader that has gone away, as `head` does, is nobody's trouble.
///
/// # Errors
/// In words: as where the output goes to a full disk.
pub fn say(text: &str) -> Result<(), String> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(format!(
            "cannot write to the standard output: {error}; what the command was asked for may have been done"
        )),
        _ => Ok(()),
    }
}
