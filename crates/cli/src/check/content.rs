//! The content of a database, checked by SQLite itself.

use std::path::Path;
use std::time::Duration;

use plait_client::ERROR;

use super::report::{Line, Verdict};
use crate::console;
use crate::quantity::of;
use crate::sqlite::{Connection, Library, OpenFlags, SqlError, Value, shown};

/// Problems that SQLite is asked for.
const PROBLEMS_ASKED: usize = 100;
/// Problems of one kind that are told one by one.
const PROBLEMS_MAX: usize = 10;

/// Opens the database at `path` and checks its pages, its rows and its references. An error if it cannot be opened.
pub fn check(path: &Path, flags: OpenFlags) -> Result<Vec<Line>, SqlError> {
    let spinner = console::spinner();
    let lines = open(path, flags).and_then(|db| {
        spinner.set_message("integrity_check");
        let mut lines = integrity(&db)?;
        spinner.set_message("foreign_key_check");
        let rows = db.query("PRAGMA foreign_key_check");
        lines.extend(told("foreign keys", rows.map(reference_problems))?);
        Ok(lines)
    });
    spinner.finish_and_clear();
    lines
}

fn open(path: &Path, flags: OpenFlags) -> Result<Connection, SqlError> {
    let db = Library::linked().open_with(path, flags)?;
    db.busy_timeout(Duration::from_secs(30))?;
    db.query("SELECT count(*) FROM sqlite_schema")?;
    Ok(db)
}

fn integrity(db: &Connection) -> Result<Vec<Line>, SqlError> {
    let found = match problems(db, "integrity_check") {
        Err(e) if e.code == ERROR => e,
        found => return told("integrity", found),
    };
    // A CHECK constraint, or an index, with a function or a collation that only the application has.
    let note = |what| Line::new("integrity", Verdict::Notice, format!("{what}: {}", found.said()));
    db.execute("PRAGMA ignore_check_constraints=on")?;
    match problems(db, "integrity_check") {
        Err(e) if e.code == ERROR => {
            Ok(vec![note("not checked, it needs what only the application has")])
        }
        found => {
            let mut lines = told("integrity", found)?;
            lines.push(note("without CHECK constraints, which need what only the application has"));
            Ok(lines)
        }
    }
}

type Rows = Vec<Vec<Value>>;

fn told(
    what: &'static str,
    problems: Result<Vec<String>, SqlError>,
) -> Result<Vec<Line>, SqlError> {
    let problems = match problems {
        Err(e) if e.is_of_others() => return Err(e),
        // The tables that could be read say nothing about the rest.
        Err(e) => vec![e.said()],
        Ok(problems) => problems,
    };
    if problems.is_empty() {
        return Ok(vec![Line::new(what, Verdict::Good, "ok")]);
    }
    let more = problems.len().saturating_sub(PROBLEMS_MAX);
    let mut lines: Vec<Line> = problems
        .into_iter()
        .take(PROBLEMS_MAX)
        .map(|p| Line::new(what, Verdict::Damage, p))
        .collect();
    if more > 0 {
        lines.push(Line::new(
            what,
            Verdict::Damage,
            format!("and {}", of(more as u64, "more problem", "more problems")),
        ));
    }
    Ok(lines)
}

/// What `quick_check` or `integrity_check` finds; nothing if all is well.
pub fn problems(db: &Connection, pragma: &str) -> Result<Vec<String>, SqlError> {
    db.query(&format!("PRAGMA {pragma}({PROBLEMS_ASKED})")).map(integrity_problems)
}

fn integrity_problems(rows: Rows) -> Vec<String> {
    let texts = rows.into_iter().filter_map(|row| row.into_iter().next());
    texts.map(|text| shown(&text)).filter(|text| text != "ok").collect()
}

fn reference_problems(rows: Rows) -> Vec<String> {
    rows.iter()
        .map(|row| match row.as_slice() {
            [table, rowid, parent, ..] => {
                let row = match rowid {
                    Value::Integer(rowid) => format!("row {rowid}"),
                    _ => "a row".to_owned(),
                };
                let (table, parent) = (shown(table), shown(parent));
                format!("{row} of table {table} refers to a row that table {parent} does not have")
            }
            _ => "a row refers to one that is not there".to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sound_database_has_two_good_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let db = Library::linked().open_with(&path, OpenFlags::ReadWriteCreate).unwrap();
        db.execute("CREATE TABLE t(x)").unwrap();
        drop(db);
        let lines = check(&path, OpenFlags::ReadOnly).unwrap();
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.verdict == Verdict::Good), "{lines:?}");
    }

    #[test]
    fn a_missing_parent_is_told_by_row() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let db = Library::linked().open_with(&path, OpenFlags::ReadWriteCreate).unwrap();
        db.execute("CREATE TABLE p(id INTEGER PRIMARY KEY)").unwrap();
        db.execute("CREATE TABLE c(p REFERENCES p)").unwrap();
        db.execute("INSERT INTO c VALUES(5)").unwrap();
        drop(db);
        let lines = check(&path, OpenFlags::ReadOnly).unwrap();
        assert_eq!(lines[1].verdict, Verdict::Damage);
        assert!(lines[1].text.contains("row 1 of table c"), "{lines:?}");
    }
}
