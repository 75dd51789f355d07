//! How long a statement's way through the library is: the instructions that it takes, and the files of ours that they are in; beside stock
//! SQLite, in each journal mode.
//!
//! `cargo run --release -p plait-tests --bin walks`; `walks COMMIT` says the files of a COMMIT by name. It needs `valgrind`, which counts: each
//! figure is the difference between a run with many of the statement and one with few, divided by how many more they were. Statements are
//! prepared once. Of a transaction the COMMIT alone is the difference to one that is rolled back.

use anyhow::{Context as _, Result, bail};
use plait_tests::sqlite::{Connection, Statement, Step};
use plait_tests::subject::Subject;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const ROWS: i64 = 2_000;
const FEW: i64 = 500;
const MANY: i64 = 1_500;

/// A name, and the statements of one round.
type Case = (&'static str, &'static [&'static str]);

const READ: &str = "SELECT v FROM t WHERE id=?1";
const UPDATE: &str = "UPDATE t SET v='z' WHERE id=?1";
const CASES: [Case; 4] = [
    ("point read", &[READ]),
    ("update", &[UPDATE]),
    ("insert", &["INSERT INTO t(v) VALUES('x')"]),
    ("BEGIN; read; update; COMMIT", &["BEGIN", READ, UPDATE, "COMMIT"]),
];
/// Of one that is rolled back, to leave the COMMIT over.
const UNDONE: [&str; 4] = ["BEGIN CONCURRENT", READ, UPDATE, "ROLLBACK"];
const DONE: [&str; 4] = ["BEGIN CONCURRENT", READ, UPDATE, "COMMIT"];

const MODES: [&str; 4] = ["memory", "delete", "wal", "concurrent"];

/// Instructions by file.
type Counts = BTreeMap<String, i64>;

fn open(subject: &Subject, mode: &str, database: &Path) -> Result<Vec<Connection>> {
    let path = if mode == "memory" { Path::new(":memory:") } else { database };
    let connection = subject.open(path)?;
    connection.execute(&format!("PRAGMA journal_mode={mode}; PRAGMA synchronous=NORMAL"))?;
    connection.execute(&format!(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v); WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<{ROWS}) \
         INSERT INTO t SELECT x, 'x' || x FROM c"
    ))?;
    let mut open = vec![connection];
    if mode == "concurrent" {
        // A connection alone works as stock SQLite does. What merges do in their thread is no part of a statement.
        open.push(subject.open(path)?);
        open[1].execute("PRAGMA plait_background_merge=off; UPDATE t SET v='y' WHERE id=1")?;
        open[0].execute("UPDATE t SET v='y' WHERE id=2")?;
    }
    Ok(open)
}

fn rounds(subject: &Subject, mode: &str, times: i64, sql: &[&str]) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let open = open(subject, mode, &directory.path().join("app.db"))?;
    let mut statements =
        sql.iter().map(|sql| Ok(open[0].prepare(sql)?)).collect::<Result<Vec<Statement>>>()?;
    for round in 0..times {
        for (statement, sql) in statements.iter_mut().zip(sql) {
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
fn counted(subject: &str, mode: &str, times: i64, sql: &[&str]) -> Result<Counts> {
    let directory = tempfile::tempdir()?;
    let told = directory.path().join("told");
    let output = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", told.display()))
        .arg(std::env::current_exe()?)
        .args(["--count", subject, mode, &times.to_string()])
        .args(sql)
        .output()
        .context("valgrind, which counts, cannot be run; install it")?;
    if !output.status.success() {
        bail!("{subject}, {mode}, {sql:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(by_file(&std::fs::read_to_string(&told)?))
}

/// Reads what callgrind tells: lines of costs, each behind the file that it is in. The line behind `calls=` is what was called.
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

/// Per round, in hundredths.
fn walk(subject: &str, mode: &str, sql: &[&str]) -> Result<Counts> {
    let few = counted(subject, mode, FEW, sql)?;
    let mut many = counted(subject, mode, MANY, sql)?;
    for (file, count) in &mut many {
        *count = (*count - few.get(file).copied().unwrap_or(0)) * 100 / (MANY - FEW);
    }
    Ok(many)
}

/// Files of ours with an instruction a round or more, named from `crates/` on.
fn ours(walk: &Counts) -> impl Iterator<Item = (&str, i64)> {
    walk.iter().filter(|(_, count)| **count >= 100).filter_map(|(file, count)| {
        let (_, name) = file.rsplit_once("crates/")?;
        let is_ours = name.starts_with("engine/") || name.starts_with("sqlite/");
        is_ours.then_some((name, *count / 100))
    })
}

fn instructions(walk: &Counts) -> i64 {
    walk.values().sum::<i64>() / 100
}

fn commit() -> Result<Counts> {
    let undone = walk("plait", "concurrent", &UNDONE)?;
    let mut commit = walk("plait", "concurrent", &DONE)?;
    for (file, count) in &mut commit {
        *count -= undone.get(file).copied().unwrap_or(0);
    }
    Ok(commit)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match &words[..] {
        ["--count", subject, mode, times, sql @ ..] => {
            let subject = if *subject == "stock" { Subject::stock() } else { Subject::plait() };
            return rounds(&subject, mode, times.parse()?, sql);
        }
        ["COMMIT"] => {
            for (file, count) in ours(&commit()?) {
                println!("{count:>6}  {file}");
            }
            return Ok(());
        }
        [] => {}
        _ => bail!("say nothing, or COMMIT"),
    }
    println!("| statement | journal mode | stock | Plait | files of ours |\n|---|---|---|---|---|");
    for (name, sql) in CASES {
        for mode in MODES {
            let concurrent: Vec<&str> = sql
                .iter()
                .map(|sql| if *sql == "BEGIN" { "BEGIN CONCURRENT" } else { *sql })
                .collect();
            let sql = if mode == "concurrent" { &concurrent } else { sql };
            let plait = walk("plait", mode, sql)?;
            let stock = if mode == "concurrent" {
                "-".to_owned()
            } else {
                instructions(&walk("stock", mode, sql)?).to_string()
            };
            let files = ours(&plait).count();
            println!("| {name} | {mode} | {stock} | {} | {files} |", instructions(&plait));
        }
    }
    let commit = commit()?;
    let files = ours(&commit).count();
    println!(
        "| its COMMIT, above a ROLLBACK | concurrent | - | {} | {files} |",
        instructions(&commit)
    );
    Ok(())
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
