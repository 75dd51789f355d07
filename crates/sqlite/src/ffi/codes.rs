//! SQLite's result codes for the engine's errors.

use std::os::raw::c_int;

use plait_engine::error::Error;

pub const SQLITE_OK: c_int = 0;
pub const SQLITE_ERROR: c_int = 1;
pub const SQLITE_BUSY: c_int = 5;
pub const SQLITE_NOMEM: c_int = 7;
pub const SQLITE_INTERRUPT: c_int = 9;
pub const SQLITE_IOERR: c_int = 10;
pub const SQLITE_CORRUPT: c_int = 11;
pub const SQLITE_FULL: c_int = 13;
pub const SQLITE_CANTOPEN: c_int = 14;
pub const SQLITE_MISUSE: c_int = 21;
pub const SQLITE_DONE: c_int = 101;
pub const SQLITE_BUSY_SNAPSHOT: c_int = SQLITE_BUSY | (2 << 8);
/// `PL_RETRY` of engine.h.
pub const PL_RETRY: c_int = 0x7fff_0001;
/// `PL_ESCALATE` of engine.h.
pub const PL_ESCALATE: c_int = 0x7fff_0002;

/// `PL_MISFIT` of engine.h.
pub const PL_MISFIT: c_int = 0x7fff_0003;
/// `PL_FENCED_STILL` of engine.h.
pub const PL_FENCED_STILL: c_int = 0x7fff_0004;
/// `PL_FOLLOWS` of engine.h.
pub const PL_FOLLOWS: c_int = 0x7fff_0005;

/// The result code of an engine error.
pub fn of(e: &Error) -> c_int {
    match e {
        Error::Busy(_) => SQLITE_BUSY,
        Error::Conflict(_) | Error::Left => SQLITE_BUSY_SNAPSHOT,
        Error::Interrupted => SQLITE_INTERRUPT,
        Error::Full(_) => SQLITE_FULL,
        Error::NoMemory => SQLITE_NOMEM,
        Error::Io { .. } => SQLITE_IOERR,
        Error::Corrupt(_) => SQLITE_CORRUPT,
        Error::CantOpen(_) | Error::Replaced(_) | Error::StrangeIndex(_) => SQLITE_CANTOPEN,
        Error::Misuse(_) => SQLITE_MISUSE,
        Error::Follows(_) => PL_FOLLOWS,
        Error::Escalate => PL_ESCALATE,
        Error::RenewSnapshot => PL_RETRY,
        Error::Base { code, .. } => *code,
    }
}
