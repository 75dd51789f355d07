//! Instructions of statements, counted by valgrind's callgrind.
//!
//! Each figure is the difference between a run with many rounds of the statements and one with few, divided
//! by how many more they were. Statements are prepared once. A run is a process of the program that counts,
//! which has to answer to [`COMMAND`] with [`Rounds::run`].

use crate::sqlite::{Connection, Statement, Step};
use crate::subject::Subject;
use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// The first argument of a process that is counted; the second is [`Rounds`] as JSON.
pub const COMMAND: &str = "count";
/// Selects a row by its key.
pub const READ: &str = "SELECT v FROM t WHERE id=?1";
/// Gives a row another value.
pub const UPDATE: &str = "UPDATE t SET v='z' WHERE id=?1";

const ROWS: i64 = 2_000;
// No row is updated twice, for then nothing would change.
const FEW: i64 = 500;
const MANY: i64 = 1_500;

/// Hundredths of instructions by file.
pub type Counts = BTreeMap<String, i64>;

/// What a process does that is counted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rounds {
    subject: Subject,
    journal_mode: String,
    times: i64,
    sql: Vec<String>,
}

impl Rounds {
    /// Makes a database and runs the statements so many times.
    pub fn run(&self) -> Result<()> {
        let directory = tempfile::tempdir()?;
        let open = open(&self.subject, &self.journal_mode, &directory.path().join("app.db"))?;
        let mut statements = self
            .sql
            .iter()
            .map(|sql| Ok(open[0].prepare(sql)?))
            .collect::<Result<Vec<Statement>>>()?;
        for round in 0..self.times {
            for (statement, sql) in statements.iter_mut().zip(&self.sql) {
                if sql.contains("?1") {
                    statement.bind_i64(1, round * 7_919 % ROWS + 1)?;
                }
                while statement.step()? == Step::Row {}
                statement.reset();
            }
        }
        Ok(())
    }

    /// The instructions of a process of this program that does so.
    fn counted(&self) -> Result<Counts> {
        let directory = tempfile::tempdir()?;
        let told = directory.path().join("told");
        let output = Command::new("valgrind")
            .arg("--tool=callgrind")
            .arg(format!("--callgrind-out-file={}", told.display()))
            .arg(std::env::current_exe()?)
            .args([COMMAND, &serde_json::to_string(self)?])
            .stdin(Stdio::null())
            .output()
            .context("valgrind, which counts, cannot be run; install it")?;
        if !output.status.success() {
            bail!("{self:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(by_file(&std::fs::read_to_string(&told)?))
    }
}

/// Whether there is a valgrind.
#[must_use]
pub fn can_count() -> bool {
    let version = Command::new("valgrind").arg("--version").output();
    version.is_ok_and(|output| output.status.success())
}

/// Per round, in hundredths.
pub fn walk(subject: &Subject, journal_mode: &str, sql: &[&str]) -> Result<Counts> {
    let rounds = |times| Rounds {
        subject: subject.clone(),
        journal_mode: journal_mode.to_owned(),
        times,
        sql: sql.iter().map(|sql| (*sql).to_owned()).collect(),
    };
    let few = rounds(FEW).counted()?;
    let mut many = rounds(MANY).counted()?;
    for (file, count) in &mut many {
        *count = (*count - few.get(file).copied().unwrap_or(0)) * 100 / (MANY - FEW);
    }
    Ok(many)
}

/// All of them.
#[must_use]
pub fn instructions(walk: &Counts) -> i64 {
    walk.values().sum::<i64>() / 100
}

fn open(subject: &Subject, journal_mode: &str, database: &Path) -> Result<Vec<Connection>> {
    let path = if journal_mode == "memory" { Path::new(":memory:") } else { database };
    let connection = subject.open(path)?;
    connection
        .execute(&format!("PRAGMA journal_mode={journal_mode}; PRAGMA synchronous=NORMAL"))?;
    connection.execute(&format!(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v); WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<{ROWS}) \
         INSERT INTO t SELECT x, 'x' || x FROM c"
    ))?;
    let mut open = vec![connection];
    if journal_mode == "concurrent" {
        // A connection alone works as stock SQLite does. What merges do in their thread is no part of a
        // statement.
        open.push(subject.open(path)?);
        open[1].execute("PRAGMA plait_background_merge=off; UPDATE t SET v='y' WHERE id=1")?;
        open[0].execute("UPDATE t SET v='y' WHERE id=2")?;
    }
    Ok(open)
}

/// Reads what callgrind tells: lines of costs, each behind the file that it is in. The line behind `calls=`
/// is what was called.
fn by_file(told: &str) -> Counts {
    let (mut names, mut counts) = (BTreeMap::new(), Counts::new());
    let (mut file, mut is_callee) = (String::new(), false);
    for line in told.lines() {
        if let Some((kind, rest)) = line.split_once("=(") {
            let Some((number, name)) = rest.split_once(')') else { continue };
            if ["fl", "fi", "fe", "cfi", "cfl"].contains(&kind) {
                if !name.is_empty() {
                    names.insert(number.to_owned(), name.trim().to_owned());
                }
                if !kind.starts_with('c') {
                    file = names.get(number).cloned().unwrap_or_default();
                }
            }
        } else if line.starts_with("calls=") {
            is_callee = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<i64>().ok());
            if let (Some(cost), false) = (cost, is_callee) {
                *counts.entry(file.clone()).or_default() += cost;
            }
            is_callee = false;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_belong_to_the_file_before_them_and_what_was_called_to_none() {
        let told = "fl=(1) a.c\nfn=(1) f\n10 5\n+1 2\ncfi=(2) b.c\ncfn=(2) g\ncalls=1 3\n* 100\nfi=(2)\n3 7\nfe=(1)\n4 1\n";
        assert_eq!(by_file(told), Counts::from([("a.c".to_owned(), 8), ("b.c".to_owned(), 7)]));
    }
}
