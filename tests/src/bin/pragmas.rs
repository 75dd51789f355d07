//! How many instructions the pragmas take that programs say often, beside another connection that writes: on stock SQLite in WAL mode and in
//! concurrent mode.
//!
//! `cargo run --release -p plait-tests --bin pragmas`; a table of `docs/sql.md` is its output. It needs `valgrind`, which counts: each figure
//! is the difference between a run with the pragma and one without it, divided by how often it was said. What threads of the library do
//! beside it counts too.

use anyhow::{Context as _, Result, bail};
use plait_tests::sqlite::Connection;
use plait_tests::subject::{Fixture, Subject};
use std::collections::HashMap;
use std::process::Command;

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, who, n); CREATE INDEX i ON t(who, n);
    WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<1000) INSERT INTO t SELECT x, x%10, x FROM c; ANALYZE";
/// What the other connection commits before each round.
const WRITE: &str = "UPDATE t SET n=n+1 WHERE id=7";
const ROUNDS: u32 = 100;

/// A pragma in what surrounds it; `{}` is its place.
const CASES: [(&str, &str, &str); 11] = [
    ("`page_count`", "{}", "PRAGMA page_count"),
    (
        "`page_count` in a transaction that has written",
        "BEGIN IMMEDIATE; INSERT INTO t(who) VALUES(1); {}; COMMIT",
        "PRAGMA page_count",
    ),
    ("`freelist_count`", "{}", "PRAGMA freelist_count"),
    ("`data_version`", "{}", "PRAGMA data_version"),
    ("`user_version`", "{}", "PRAGMA user_version"),
    ("`table_info(t)`", "{}", "PRAGMA table_info(t)"),
    (
        "`table_info(t)` in a transaction",
        "BEGIN; SELECT n FROM t WHERE id=1; {}; COMMIT",
        "PRAGMA table_info(t)",
    ),
    ("`optimize`, with nothing to do", "SELECT count(*) FROM t WHERE who=1; {}", "PRAGMA optimize"),
    ("`quick_check` of 1,000 rows", "{}", "PRAGMA quick_check"),
    ("`integrity_check` of 1,000 rows", "{}", "PRAGMA integrity_check"),
    ("`wal_checkpoint`", "{}", "PRAGMA wal_checkpoint"),
];

fn rounds(subject: &Subject, sql: &str) -> Result<()> {
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let (asker, other) = (fixture.open(), fixture.open());
    let run = |connection: &Connection, sql: &str| -> Result<()> {
        // As `sqlite3_exec` does: the statement is prepared each time.
        connection.execute(sql).with_context(|| sql.to_owned())
    };
    for connection in [&asker, &other] {
        run(connection, "PRAGMA synchronous=NORMAL; UPDATE t SET n=n+1 WHERE id=8")?;
    }
    for _ in 0..ROUNDS {
        run(&other, WRITE)?;
        run(&asker, sql)?;
    }
    Ok(())
}

/// The instructions of a process of this program that does so.
fn counted(subject: &str, sql: &str) -> Result<i64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args([subject, sql])
        .output()
        .context("valgrind, which counts, cannot be run; install it")?;
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    match collected {
        Some((_, count)) if output.status.success() => Ok(count.trim().parse()?),
        _ => bail!("{subject}, {sql}: {said}"),
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [subject, sql] = &arguments[..] {
        let subject = if subject == "stock" { Subject::stock() } else { Subject::plait() };
        return rounds(&subject, sql);
    }
    println!("| pragma | WAL mode | concurrent mode |\n|---|---|---|");
    let mut around_it = HashMap::new();
    for (name, around, pragma) in CASES {
        let mut figures = Vec::new();
        for subject in ["stock", "plait"] {
            let without = match around_it.get(&(subject, around)) {
                Some(&known) => known,
                None => counted(subject, &around.replace("{}", ""))?,
            };
            around_it.insert((subject, around), without);
            let with = counted(subject, &around.replace("{}", pragma))?;
            figures.push(((with - without) / i64::from(ROUNDS)).to_string());
        }
        println!("| {name} | {} |", figures.join(" | "));
    }
    Ok(())
}
