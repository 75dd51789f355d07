//! A statement happens whole or not at all, whichever call of the engine fails in it.
//!
//! A [`Case`] is made from a seed ([`generate`]) out of a few kinds of tables ([`tables`]): rows in the file and in memory, a transaction that has
//! done something, and one act in it. It is run undisturbed first, on stock SQLite too ([`model`]), which tells what is there before and after the act and
//! how many calls of the engine it makes. Then the same is done again and again, each time with another of these calls failing with another
//! code ([`switch`]), or beside a connection that is in the way, and ends in another way ([`trial`]). After a failure everything that the transaction sees, row by row
//! and index by index, has to be what it was before the act, or the transaction must be lost: no write and no COMMIT succeeds until ROLLBACK. What
//! is committed has to be what the model says, to all others, and sound ([`side`]). A case that fails is made smaller ([`search`]).
//!
//! What is deliberately absent: conflicts, failures while a database is opened or closed, panics, and the moments of a COMMIT over several
//! files behind the first that is committed (`conflicts.rs`, `panics.rs`, `several_files_killed.rs`).

pub mod generate;
pub mod inside;
pub mod model;
pub mod search;
pub mod side;
pub mod switch;
pub mod tables;
pub mod trial;

use crate::subject::Begin;
use crate::value::Value;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// A call on a map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MapCall {
    /// `plait_put`.
    Put(Value, Value),
    /// `plait_insert`.
    Insert(Value, Value),
    /// `plait_update`.
    Update(Value, Value),
    /// `plait_delete`.
    Delete(Value),
    /// `plait_add`.
    Add(Value, i64),
    /// `plait_append`.
    Append(Value, Value),
    /// `plait_batch`: a value is put, none deletes.
    Batch(Vec<(Value, Option<Value>)>),
    /// `plait_delete_range`, both bounds included.
    DeleteRange(Value, Value),
}

/// One thing that a transaction does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// Statements.
    Sql(String),
    /// Opens a blob, writes bytes of one value, and closes it.
    Blob {
        /// Table.
        table: String,
        /// Column.
        column: String,
        /// Row.
        rowid: i64,
        /// Where the bytes go.
        offset: usize,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A call of the key-value API, and the SQL that does the same.
    Map {
        /// The table.
        table: String,
        /// The call.
        call: MapCall,
        /// The same for stock SQLite.
        sql: String,
    },
}

/// What is in the way while the act runs. Calls do not fail then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Beside {
    /// Nothing: calls fail.
    Nobody,
    /// A connection that has the right to write.
    Writer,
    /// A connection that reads what is older.
    Reader,
}

/// A transaction and its act; see the module's text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Case {
    /// The seed it came from.
    pub seed: u64,
    /// A second file is attached as `aux`.
    pub attached: bool,
    /// The schema of both files.
    pub schema: Vec<String>,
    /// What is temporary.
    pub temporary: Vec<String>,
    /// Rows that are in the file.
    pub merged: Vec<String>,
    /// Rows that are in memory.
    pub recent: Vec<String>,
    /// How the transaction begins; none: the act is one of its own.
    pub begin: Option<Begin>,
    /// What it does before the act. One of it is `SAVEPOINT s`.
    pub before: Vec<Act>,
    /// The act.
    pub act: Act,
    /// What runs in its middle.
    pub inside: Vec<inside::Inside>,
    /// Counters of changes are compared: nothing hangs on its tables that counts by itself.
    pub counted: bool,
    /// There are virtual tables.
    pub virtual_tables: bool,
    /// What is in the way.
    pub beside: Beside,
    /// Queries that show everything.
    pub shown: Vec<String>,
    /// Statements that must succeed on what is committed, and answer nothing, `ok` or 0.
    pub checks: Vec<String>,
}

impl Act {
    /// A statement.
    #[must_use]
    pub fn sql(text: impl Into<String>) -> Self {
        Self::Sql(text.into())
    }

    /// Whether it is this statement.
    #[must_use]
    pub fn is(&self, text: &str) -> bool {
        matches!(self, Self::Sql(sql) if sql == text)
    }
}

impl Case {
    /// As text for a person: SQL, with the other steps as comments.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = format!("-- seed {}\nPRAGMA journal_mode=concurrent;\n", self.seed);
        text.push_str("PRAGMA foreign_keys=ON;\n");
        if self.attached {
            text.push_str("ATTACH 'aux.db' AS aux; PRAGMA aux.journal_mode=concurrent;\n");
        }
        let mut lines = |name: &str, all: &[String]| {
            let _ = writeln!(text, "-- {name}");
            for sql in all {
                let _ = writeln!(text, "{sql};");
            }
        };
        lines("schema", &self.schema);
        lines("temporary", &self.temporary);
        lines("in the file", &self.merged);
        lines("in memory", &self.recent);
        let _ = writeln!(text, "-- beside: {:?}; the transaction: {:?}", self.beside, self.begin);
        for act in self.before.iter().chain([&self.act]) {
            let _ = match act {
                Act::Sql(sql) => writeln!(text, "{sql};"),
                other => writeln!(text, "-- {other:?}"),
            };
        }
        for step in &self.inside {
            let _ = writeln!(text, "-- inside: {step:?}");
        }
        text
    }
}
