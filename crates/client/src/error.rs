//! A failed call, with everything SQLite says about it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// `SQLITE_OK`.
pub const OK: i32 = 0;
/// `SQLITE_ERROR`.
pub const ERROR: i32 = 1;
/// `SQLITE_ABORT`.
pub const ABORT: i32 = 4;
/// `SQLITE_BUSY`.
pub const BUSY: i32 = 5;
/// `SQLITE_LOCKED`.
pub const LOCKED: i32 = 6;
/// `SQLITE_NOMEM`.
pub const NOMEM: i32 = 7;
/// `SQLITE_READONLY`.
pub const READONLY: i32 = 8;
/// `SQLITE_INTERRUPT`.
pub const INTERRUPT: i32 = 9;
/// `SQLITE_IOERR`.
pub const IOERR: i32 = 10;
/// `SQLITE_CORRUPT`.
pub const CORRUPT: i32 = 11;
/// `SQLITE_FULL`.
pub const FULL: i32 = 13;
/// `SQLITE_CANTOPEN`.
pub const CANTOPEN: i32 = 14;
/// `SQLITE_PROTOCOL`.
pub const PROTOCOL: i32 = 15;
/// `SQLITE_SCHEMA`.
pub const SCHEMA: i32 = 17;
/// `SQLITE_CONSTRAINT`.
pub const CONSTRAINT: i32 = 19;
/// `SQLITE_NOTADB`.
pub const NOTADB: i32 = 26;
/// `SQLITE_BUSY_SNAPSHOT`, an extended code.
pub const BUSY_SNAPSHOT: i32 = 517;
/// `SQLITE_MISUSE`.
pub const MISUSE: i32 = 21;
/// `SQLITE_ABORT_ROLLBACK`, an extended code.
pub const ABORT_ROLLBACK: i32 = 516;

/// A result code other than success, its extended form, and the connection's message at that moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SqlError {
    /// Primary code, for example 5 for `SQLITE_BUSY`.
    pub code: i32,
    /// Extended code, for example 517 for `SQLITE_BUSY_SNAPSHOT`.
    pub extended: i32,
    /// `sqlite3_errmsg` right after the failing call.
    pub message: String,
    /// The statement that failed, or the name of the call.
    pub context: String,
}

impl SqlError {
    /// An error with this extended code.
    pub fn new(extended: i32, message: impl Into<String>, context: &str) -> Self {
        let (message, context) = (message.into(), context.to_owned());
        Self { code: extended & 0xff, extended, message, context }
    }

    /// Any kind of BUSY.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.code == BUSY
    }

    /// A file could not be opened, or not be written: what a full disk and limits of a process are told by.
    #[must_use]
    pub fn is_want_of_room(&self) -> bool {
        [FULL, IOERR, CANTOPEN].contains(&self.code)
    }

    /// A conflict: something that the transaction read has changed.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.extended == BUSY_SNAPSHOT
    }

    /// The file is damaged, or no database.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self.code, CORRUPT | NOTADB)
    }

    /// Others were in the way, or changed what was being read: it says nothing of the file.
    #[must_use]
    pub fn is_of_others(&self) -> bool {
        matches!(self.code, BUSY | LOCKED | PROTOCOL | SCHEMA)
    }

    /// What SQLite says, without what was tried.
    #[must_use]
    pub fn said(&self) -> String {
        format!("{} (code {})", self.message, self.extended)
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut context: String = self.context.chars().take(200).collect();
        if context.len() < self.context.len() {
            context.push_str("...");
        }
        write!(f, "{} from: {context}", self.said())
    }
}

impl std::error::Error for SqlError {}

/// Result of a call into SQLite.
pub type Result<T> = std::result::Result<T, SqlError>;
