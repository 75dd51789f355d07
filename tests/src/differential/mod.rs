//! Random SQL on stock SQLite and on the library under test, which must behave alike.
//!
//! A [`Script`] is generated whole from a seed ([`generate`]), then run on both sides step by step ([`run`]); every
//! result, code, message, counter and finally the whole contents are compared. A script that fails is made smaller
//! ([`shrink`]) and printed, and can be saved and run again.
//!
//! What is deliberately absent: anything whose result SQLite does not define (random numbers, times, plans that depend
//! on the size of the file, rows rewritten under a [`scan`] of a WITHOUT ROWID table), and statements over several
//! attached databases in one transaction. While the main connection reads, others may commit; before it writes after that, which SQLite refuses always
//! and concurrent mode where what was read has changed, it ends what it reads.

pub mod dice;
pub mod generate;
pub mod queries;
pub mod run;
pub mod scan;
pub mod schema;
pub mod shrink;
pub mod statements;

use crate::subject::Begin;
use serde::{Deserialize, Serialize};

/// One step of a script. `{dir}` in a statement is the side's own directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Statements on the main connection.
    Sql(String),
    /// Begins a transaction on the main connection.
    Begin(Begin),
    /// Statements on a second connection; skipped while the main one has written something. What the main one reads then is older.
    Other(String),
    /// A statement on one of the readers, connections that never write: their transactions last across what the others do.
    Reader(u8, String),
    /// Prepares a statement on a reader and leaves it open.
    ReaderOpen(u8, String),
    /// Steps the open statement of a reader so many times.
    ReaderFetch(u8, u8),
    /// Prepares a statement under a number and leaves it open.
    Open(u8, String),
    /// Steps an open statement so many times.
    Fetch(u8, u8),
    /// Resets and drops an open statement.
    Close(u8),
    /// Opens an incremental blob.
    BlobOpen {
        /// Table.
        table: String,
        /// Column.
        column: String,
        /// Row.
        rowid: i64,
        /// For writing.
        write: bool,
    },
    /// Reads some of the open blob.
    BlobRead(u16, u16),
    /// Writes so many bytes of one value at an offset of the open blob.
    BlobWrite(u16, u16, u8),
    /// Moves the open blob to another row.
    BlobReopen(i64),
    /// Closes the open blob.
    BlobClose,
    /// Merges the library under test from a connection of its own.
    Merge,
    /// Closes every connection and opens them again.
    Reopen,
    /// Compares all contents.
    Compare,
}

/// What a connection is told of its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hooks {
    /// Nothing.
    None,
    /// Commits, rollbacks and changed rows.
    Changes,
    /// The same, and the values before each change.
    Values,
}

/// A whole program for both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// The seed it came from.
    pub seed: u64,
    /// Which hooks the main connection has.
    pub hooks: Hooks,
    /// Pragmas that must run on the empty file: encoding, page size, auto-vacuum.
    pub birth: String,
    /// The steps.
    pub steps: Vec<Step>,
}

impl Script {
    /// The script as text for a person: SQL, with the other steps as comments.
    #[must_use]
    pub fn render(&self) -> String {
        use std::fmt::Write as _;
        let mut text = format!("-- seed {}, hooks: {:?}\n{}\n", self.seed, self.hooks, self.birth);
        for (index, step) in self.steps.iter().enumerate() {
            let _ = match step {
                Step::Sql(sql) => writeln!(text, "/* {index} */ {sql};"),
                Step::Begin(begin) => writeln!(text, "/* {index} */ BEGIN /* {begin:?} */;"),
                Step::Other(sql) => writeln!(text, "/* {index}, second connection */ {sql};"),
                Step::Reader(reader, sql) => {
                    writeln!(text, "/* {index}, reader {reader} */ {sql};")
                }
                Step::Open(cursor, sql) => {
                    writeln!(text, "/* {index} */ -- cursor {cursor} prepares: {sql}")
                }
                other => writeln!(text, "/* {index} */ -- {other:?}"),
            };
        }
        text
    }
}
