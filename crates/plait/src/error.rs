//! What can go wrong: one enum.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::fmt;

use crate::ffi;

/// The result of what this crate does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed call.
///
/// ```
/// # fn main() -> plait::Result<()> {
/// let connection = plait::Connection::open_in_memory()?;
/// let error = connection.execute("SELECT a FROM nowhere", &[]).unwrap_err();
/// assert_eq!(error.code(), 1); // SQLITE_ERROR
/// assert!(!error.is_conflict());
/// assert!(error.to_string().contains("no such table: nowhere"), "{error}");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// SQLite has refused.
    Sqlite {
        /// The extended result code; the primary one is its low byte.
        extended_code: i32,
        /// `sqlite3_errmsg`.
        text: String,
        /// What was being done: with which map and key, or which SQL.
        doing: String,
    },
    /// A key or value that is stored has another type than the one that was asked for.
    Type {
        /// Which one: the map and its key, or the column.
        of: String,
        /// What it is, and what it should be.
        mismatch: String,
    },
    /// This crate has refused, before SQLite was asked.
    Refused(String),
}

impl Error {
    /// The same error, as a part of something larger.
    pub(crate) fn while_doing(self, what: &str) -> Error {
        match self {
            Error::Sqlite { extended_code, text, doing } => {
                Error::Sqlite { extended_code, text, doing: format!("{what}: {doing}") }
            }
            Error::Refused(text) => Error::Refused(format!("{what}: {text}")),
            other @ Error::Type { .. } => other,
        }
    }

    /// SQLite's primary result code; `SQLITE_MISMATCH` and `SQLITE_MISUSE` for the other two variants.
    pub fn code(&self) -> i32 {
        self.extended_code() & 0xff
    }

    /// SQLite's extended result code.
    pub fn extended_code(&self) -> i32 {
        match self {
            Error::Sqlite { extended_code, .. } => *extended_code,
            Error::Type { .. } => ffi::MISMATCH,
            Error::Refused(_) => ffi::MISUSE,
        }
    }

    /// Something that the transaction had read was changed by another one: run again it may succeed
    /// (`SQLITE_BUSY_SNAPSHOT`).
    pub fn is_conflict(&self) -> bool {
        self.extended_code() == ffi::BUSY_SNAPSHOT
    }

    /// A wait for others has lasted longer than the busy timeout.
    pub fn is_busy(&self) -> bool {
        self.code() == ffi::BUSY && !self.is_conflict()
    }

    /// SQLite's own text for a code.
    pub(crate) fn of_code(code: c_int, doing: impl Into<String>) -> Error {
        // SAFETY: it takes any number.
        let text = unsafe { ffi::sqlite3_errstr(code) };
        // SAFETY: it answers static strings.
        let text = unsafe { ffi::owned_text(text) };
        Error::Sqlite { extended_code: code, text, doing: doing.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Sqlite { extended_code, text, doing } if doing.is_empty() => {
                write!(f, "{text} (code {extended_code})")
            }
            Error::Sqlite { extended_code, text, doing } => {
                write!(f, "{doing}: {text} (code {extended_code})")
            }
            Error::Type { of, mismatch } => write!(f, "{of} is {mismatch}"),
            Error::Refused(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

/// Why a stored value is none of a type; see [`Value::decode`](crate::Value::decode).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch(String);

impl Mismatch {
    /// What it is, and what it should be: "text, where an integer is asked for".
    pub fn new(what: impl Into<String>) -> Mismatch {
        Mismatch(what.into())
    }

    /// As the error of `of`, such as "the value of 'ada' in map \"users\"".
    pub(crate) fn about(self, of: String) -> Error {
        Error::Type { of, mismatch: self.0 }
    }
}
