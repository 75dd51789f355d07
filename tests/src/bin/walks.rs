//! How long a statement's way through the library is: the instructions that it takes, and the files of ours that they are in; beside stock
//! SQLite, in each journal mode.
//!
//! `cargo run --release -p plait-tests --bin walks`; `walks COMMIT` says the files of a COMMIT by name. It
//! needs `valgrind`, which counts ([`walks`]). Of a transaction the COMMIT alone is the difference to one
//! that is rolled back.

use anyhow::{Result, bail};
use plait_tests::subject::Subject;
use plait_tests::walks::{self, Counts, READ, Rounds, UPDATE, instructions, walk};

/// A name, and the statements of one round.
type Case = (&'static str, &'static [&'static str]);

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

/// Files of ours with an instruction a round or more, named from `crates/` on.
fn ours(walk: &Counts) -> impl Iterator<Item = (&str, i64)> {
    walk.iter().filter(|(_, count)| **count >= 100).filter_map(|(file, count)| {
        let (_, name) = file.rsplit_once("crates/")?;
        let is_ours = name.starts_with("engine/") || name.starts_with("sqlite/");
        is_ours.then_some((name, *count / 100))
    })
}

fn commit(plait: &Subject) -> Result<Counts> {
    let undone = walk(plait, "concurrent", &UNDONE)?;
    let mut commit = walk(plait, "concurrent", &DONE)?;
    for (file, count) in &mut commit {
        *count -= undone.get(file).copied().unwrap_or(0);
    }
    Ok(commit)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (stock, plait) = match &words[..] {
        [walks::COMMAND, rounds] => return serde_json::from_str::<Rounds>(rounds)?.run(),
        [] | ["COMMIT"] => (Subject::stock(), Subject::plait()),
        _ => bail!("say nothing, or COMMIT"),
    };
    if words == ["COMMIT"] {
        for (file, count) in ours(&commit(&plait)?) {
            println!("{count:>6}  {file}");
        }
        return Ok(());
    }
    println!("| statement | journal mode | stock | Plait | files of ours |\n|---|---|---|---|---|");
    for (name, sql) in CASES {
        for mode in MODES {
            let concurrent: Vec<&str> = sql
                .iter()
                .map(|sql| if *sql == "BEGIN" { "BEGIN CONCURRENT" } else { *sql })
                .collect();
            let sql = if mode == "concurrent" { &concurrent } else { sql };
            let walked = walk(&plait, mode, sql)?;
            let stock = if mode == "concurrent" {
                "-".to_owned()
            } else {
                instructions(&walk(&stock, mode, sql)?).to_string()
            };
            let files = ours(&walked).count();
            println!("| {name} | {mode} | {stock} | {} | {files} |", instructions(&walked));
        }
    }
    let commit = commit(&plait)?;
    let files = ours(&commit).count();
    println!(
        "| its COMMIT, above a ROLLBACK | concurrent | - | {} | {files} |",
        instructions(&commit)
    );
    Ok(())
}
