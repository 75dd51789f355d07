//! A failed call, with what SQLite says about it.

use std::fmt;
use std::path::Path;

use crate::failure::Failure;

/// `SQLITE_BUSY`.
pub const BUSY: i32 = 5;
/// `SQLITE_LOCKED`.
const LOCKED: i32 = 6;
/// `SQLITE_READONLY`.
const READONLY: i32 = 8;
/// `SQLITE_CORRUPT`.
const CORRUPT: i32 = 11;
/// `SQLITE_FULL`.
const FULL: i32 = 13;
/// `SQLITE_CANTOPEN`.
const CANTOPEN: i32 = 14;
/// `SQLITE_PROTOCOL`.
const PROTOCOL: i32 = 15;
/// `SQLITE_SCHEMA`.
const SCHEMA: i32 = 17;
/// `SQLITE_NOTADB`.
const NOTADB: i32 = 26;
/// `SQLITE_BUSY_SNAPSHOT`, an extended code: a conflict.
pub const BUSY_SNAPSHOT: i32 = 517;

/// An extended result code other than success, with the connection's message at that moment.
#[derive(Clone, Debug)]
pub struct SqlError {
    /// Extended result code.
    pub code: i32,
    /// `sqlite3_errmsg`.
    pub message: String,
}

impl SqlError {
    /// The primary code.
    pub fn primary(&self) -> i32 {
        self.code & 0xff
    }

    /// Any kind of BUSY but a conflict.
    pub fn is_busy(&self) -> bool {
        self.primary() == BUSY && self.code != BUSY_SNAPSHOT
    }

    /// A conflict: something that the transaction had read was changed by another.
    pub fn is_conflict(&self) -> bool {
        self.code == BUSY_SNAPSHOT
    }

    /// The file is damaged, or no database.
    pub fn is_damage(&self) -> bool {
        matches!(self.primary(), CORRUPT | NOTADB)
    }

    /// Others were in the way, or changed what was being read: it says nothing of the file.
    pub fn is_of_others(&self) -> bool {
        matches!(self.primary(), BUSY | LOCKED | PROTOCOL | SCHEMA)
    }

    /// A disk is full.
    pub fn is_full(&self) -> bool {
        self.primary() == FULL
    }

    /// As the failure of doing `what` to the database at `path`.
    pub fn about(&self, what: &str, path: &Path) -> Failure {
        let shown = path.display();
        let advice = match self.primary() {
            _ if self.message.contains("ermission denied") => {
                "check that you may write to the file and to its directory".into()
            }
            BUSY => "wait until the programs that use it are done, or close them, and run the command again".into(),
            READONLY => "check that you may write to the file and to its directory".into(),
            CORRUPT => format!("run `plait check {shown}` to see what is damaged"),
            FULL => "free some space on that disk and run the command again".into(),
            CANTOPEN => {
                format!("check the path and the permissions; `plait check {shown}` tells what stands beside it")
            }
            NOTADB => "check that this is the right file: it does not begin as an SQLite database does".into(),
            _ => format!("run `plait check {shown}` to see the state of the file"),
        };
        Failure::new(format!("cannot {what} {shown}: {self}"), advice)
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.message, self.code)
    }
}
