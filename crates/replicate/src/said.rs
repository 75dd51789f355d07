//! What is printed as the answer of a command.

use std::io::{ErrorKind, Write as _, stdout};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

// Relaxed: a flag that orders nothing.
static IS_UNREAD: AtomicBool = AtomicBool::new(false);

/// What a shell says of a program that SIGPIPE has ended, as it ends the command `plait`.
pub const UNREAD: u8 = 141;

/// Prints. Where the reader has gone away, as `head` does, what the command does it does all the same.
///
/// # Errors
/// In words: as where the output goes to a full disk.
pub fn say(text: &str) -> Result<(), String> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(format!(
            "cannot write to the standard output: {error}; what the command was asked for may have been done"
        )),
        Err(_) => {
            IS_UNREAD.store(true, Relaxed);
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// The reader of an answer has gone away.
pub fn is_unread() -> bool {
    IS_UNREAD.load(Relaxed)
}
