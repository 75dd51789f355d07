//! A statement that stays open, and what may not happen beside it.
//!
//! SQLite finds the place of a moved cursor again by its entry. Of a WITHOUT ROWID table that is the key and the column
//! behind it, so that a row which is written again with another value there, while a scan stands on it, is visited a
//! second time or not. SQLite defines neither. So a scan of such a table is closed before a statement that may write
//! one of its rows again.
//!
//! That is decided when a script runs, not when it is generated: a script without some of its steps, which is what
//! shrinking tries, must not get there either. A table is known by its name in a text; a name within a longer one closes
//! more than it must. Foreign keys and triggers of the generated schemas write again only rows of tables with rowids.

use crate::sqlite::{Connection, SqlError, Statement};
use crate::value::Value;

/// An open statement.
pub struct Scan {
    /// The statement.
    pub statement: Statement,
    /// Names of the WITHOUT ROWID tables that it may read.
    without_rowid: Vec<String>,
    /// Whether something was deleted since it was opened: what is inserted now may be a row written again.
    deleted: bool,
}

/// Finds the WITHOUT ROWID tables of a query, also behind views.
const TABLES: &str = "
    WITH RECURSIVE text(sql) AS (
        SELECT ?1
        UNION
        SELECT view.sql FROM text JOIN sqlite_schema AS view
        WHERE view.type = 'view' AND instr(text.sql, view.name)
    )
    SELECT DISTINCT l.name FROM pragma_table_list AS l JOIN text ON instr(text.sql, l.name) WHERE l.wr";

impl Scan {
    /// Prepares a statement that will stay open.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn open(connection: &Connection, sql: &str) -> Result<Self, SqlError> {
        let statement = connection.prepare(sql)?;
        let tables = connection.query_with(TABLES, &[Value::from(sql.to_owned())])?;
        let name = |row: Vec<Value>| Some(row.first()?.as_text()?.to_owned());
        let without_rowid = tables.into_iter().filter_map(name).collect();
        Ok(Self { statement, without_rowid, deleted: false })
    }

    /// Whether it can stay open while a statement runs.
    pub fn may_stay_open(&mut self, sql: &str) -> bool {
        match Writing::of(sql) {
            Writing::Nothing => true,
            Writing::Inserts => !(self.deleted && self.is_named_in(sql)),
            Writing::Deletes => {
                self.deleted = true;
                true
            }
            Writing::Again => !self.is_named_in(sql),
            Writing::Back => self.without_rowid.is_empty(),
        }
    }

    fn is_named_in(&self, sql: &str) -> bool {
        self.without_rowid.iter().any(|table| sql.contains(table))
    }
}

/// What a statement may do to rows that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    /// No row is written.
    Nothing,
    /// New rows only.
    Inserts,
    /// Rows go.
    Deletes,
    /// Rows of a table that it names are written again.
    Again,
    /// Rows of any table get an earlier value.
    Back,
}

impl Writing {
    fn of(sql: &str) -> Self {
        let first = sql.split_whitespace().next().unwrap_or_default();
        match first {
            "ROLLBACK" => Self::Back,
            "INSERT" | "UPDATE" if sql.contains(" OR ROLLBACK ") => Self::Back,
            "UPDATE" | "REPLACE" | "ALTER" => Self::Again,
            "INSERT" if sql.contains(" OR REPLACE ") || sql.contains(" DO UPDATE ") => Self::Again,
            "INSERT" => Self::Inserts,
            "DELETE" => Self::Deletes,
            _ => Self::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Writing;

    #[test]
    fn what_writes_a_row_again_is_told_from_what_does_not() {
        for (sql, writing) in [
            ("SELECT 1", Writing::Nothing),
            ("SAVEPOINT s1", Writing::Nothing),
            ("ROLLBACK TO s1", Writing::Back),
            ("INSERT INTO t VALUES(1)", Writing::Inserts),
            ("INSERT OR IGNORE INTO t VALUES(1)", Writing::Inserts),
            ("INSERT INTO t VALUES(1) ON CONFLICT (c0) DO NOTHING", Writing::Inserts),
            ("INSERT INTO t VALUES(1) ON CONFLICT  DO UPDATE SET c1 = 2", Writing::Again),
            ("INSERT OR REPLACE INTO t VALUES(1)", Writing::Again),
            ("INSERT OR ROLLBACK INTO t VALUES(1)", Writing::Back),
            ("UPDATE OR IGNORE t SET c1 = 2", Writing::Again),
            ("UPDATE OR ROLLBACK t SET c1 = 2", Writing::Back),
            ("REPLACE INTO t VALUES(1)", Writing::Again),
            ("DELETE FROM t", Writing::Deletes),
        ] {
            assert_eq!(Writing::of(sql), writing, "{sql}");
        }
    }
}
