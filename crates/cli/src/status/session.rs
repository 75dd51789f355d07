//! What the virtual tables of a live session say.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::sqlite::{Connection, Library, OpenFlags, SqlError, Value, integer, shown};

/// A live session at one moment.
#[derive(Default)]
pub struct Session {
    /// `plait_status`: counters and sizes by name.
    pub status: BTreeMap<String, i64>,
    /// The texts in it.
    pub texts: BTreeMap<String, String>,
    /// `plait_transactions`, without the one that asks.
    pub transactions: Rows,
    /// `plait_conflicts`, newest first.
    pub conflicts: Rows,
}

impl Session {
    /// Joins the session of the database at `path` and asks.
    pub fn read(path: &Path) -> Result<Session, SqlError> {
        let db = Library::linked().open_with(path, OpenFlags::ReadWrite)?;
        db.busy_timeout(Duration::from_secs(5))?;
        // The tables have rows only once the connection has joined, which the first read does.
        db.query("SELECT count(*) FROM sqlite_schema")?;
        let status = Rows::of(&db, "SELECT name, value FROM plait_status")?;
        let asking = i64::from(std::process::id());
        let mut transactions = Rows::of(&db, "SELECT * FROM plait_transactions")?;
        // The same number in another pid namespace is somebody else.
        transactions.retain(&["pid", "pid_namespace"], |cells| {
            integer(cells[0]) != asking || *cells[1] != Value::Null
        });
        let (texts, numbers): (Vec<_>, Vec<_>) =
            status.rows.iter().partition(|row| matches!(row[1], Value::Text(_)));
        let texts = texts.iter().map(|row| (shown(&row[0]), shown(&row[1]))).collect();
        let mut status: BTreeMap<String, i64> =
            numbers.iter().map(|row| (shown(&row[0]), integer(&row[1]))).collect();
        // Not counting the one that asks.
        if let Some(connections) = status.get_mut("connections") {
            *connections = (*connections - 1).max(0);
        }
        Ok(Session {
            status,
            texts,
            transactions,
            conflicts: Rows::of(&db, "SELECT * FROM plait_conflicts")?,
        })
    }

    /// A text of `plait_status`; empty when there is none of that name.
    pub fn text(&self, name: &str) -> &str {
        self.texts.get(name).map_or("", |text| text)
    }

    /// A value of `plait_status`; 0 when this version has none of that name.
    pub fn value(&self, name: &str) -> u64 {
        self.status.get(name).map_or(0, |&value| value.max(0) as u64)
    }
}

/// The rows of a query with the names of its columns.
#[derive(Default)]
pub struct Rows {
    columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<Value>>,
}

impl Rows {
    fn of(db: &Connection, sql: &str) -> Result<Rows, SqlError> {
        let mut statement = db.prepare(sql)?;
        Ok(Rows { columns: statement.column_names(), rows: statement.collect_rows()? })
    }

    fn position(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|name| name == column)
    }

    /// A cell; NULL when there is no such column.
    pub fn cell<'a>(&self, row: &'a [Value], column: &str) -> &'a Value {
        self.position(column).and_then(|i| row.get(i)).unwrap_or(&Value::Null)
    }

    fn retain(&mut self, columns: &[&str], keep: impl Fn(&[&Value]) -> bool) {
        let positions: Vec<_> = columns.iter().map(|column| self.position(column)).collect();
        self.rows.retain(|row| {
            let cell = |at: &Option<usize>| at.and_then(|i| row.get(i)).unwrap_or(&Value::Null);
            keep(&positions.iter().map(cell).collect::<Vec<_>>())
        });
    }

    /// An array of objects.
    pub fn as_json(&self) -> Json {
        let object = |row: &Vec<Value>| -> Json {
            let cells = self.columns.iter().cloned().zip(row.iter().map(|value| match value {
                Value::Null => Json::Null,
                Value::Integer(n) => json!(n),
                text => json!(shown(text)),
            }));
            Json::Object(cells.collect())
        };
        self.rows.iter().map(object).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Rows {
        Rows {
            columns: vec!["pid".into(), "state".into()],
            rows: vec![
                vec![Value::Integer(7), Value::Text("reading".into())],
                vec![Value::Integer(8), Value::Null],
            ],
        }
    }

    #[test]
    fn rows_become_objects() {
        let expected = json!([{"pid": 7, "state": "reading"}, {"pid": 8, "state": null}]);
        assert_eq!(rows().as_json(), expected);
    }

    #[test]
    fn the_one_that_asks_is_left_out() {
        let mut rows = rows();
        rows.retain(&["pid", "no such column"], |cells| {
            integer(cells[0]) != 7 || *cells[1] != Value::Null
        });
        assert_eq!(rows.rows.len(), 1);
        assert_eq!(rows.cell(&rows.rows[0], "pid"), &Value::Integer(8));
        assert_eq!(rows.cell(&rows.rows[0], "no such column"), &Value::Null);
    }
}
