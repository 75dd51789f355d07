//! Why a database lets its sidecar go on no more.

use std::path::Path;

use plait_engine::error::Error;

/// An end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The database was deleted, or has left the mode: there is nothing to ship.
    Over,
    /// A new start goes on: the database was replaced, or its session has to end so that the next
    /// one recovers.
    Again,
}

impl End {
    /// The end that an error of the engine means; `None`: the call may be repeated.
    pub fn of(error: &Error, path: &Path) -> Option<End> {
        match error {
            Error::Left => Some(End::Over),
            Error::Replaced(_) if !path.exists() => Some(End::Over),
            Error::Busy(_) | Error::Full(_) | Error::NoMemory | Error::Interrupted => None,
            Error::Base { .. } => None,
            // Whatever else it is: this process is better off with a new start, and so is a session
            // whose log has stopped.
            _ => Some(End::Again),
        }
    }
}
