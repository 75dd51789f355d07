//! The ratios that the key-value API is promised to have to Berkeley DB and LMDB, measured by the evaluation suite.
//!
//! The suite can load these stores, do the same work with each, verify what is left, and take turns. So these cases are
//! cells of a plan of ours, which `plait-bench plan` measures in one run; what is asked is held against the medians of
//! its trials. All commits survive a power cut. Each store has the best settings that its documentation names, as in
//! `plait bench kv`. A store that is absent, or that failed, is named and counts as not reached: silence would read as success.

use super::table::Line;
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};

/// Rows, each of which is got once.
const ROWS: u64 = 500_000;
/// Operations in a transaction.
const TOGETHER: u64 = 1_000;
const API: &str = "plait-kv";

/// What a case is held against.
#[derive(Clone, Copy, Debug)]
enum Against {
    /// At least so many times each of these engines.
    Each(&'static [(&'static str, f64)]),
    /// At least so many times the better of Berkeley DB and LMDB.
    Better(f64),
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct PeerCase {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it says.
    pub title: &'static str,
    /// The suite's name of what is measured.
    phase: &'static str,
    against: Against,
}

const fn case(
    name: &'static str,
    title: &'static str,
    phase: &'static str,
    against: Against,
) -> PeerCase {
    PeerCase { name, title, phase, against }
}

/// All rows, in the order of the table.
pub const ALL: [PeerCase; 8] = [
    case(
        "peers-gets",
        "gets by number, 1,000 a transaction",
        "select int",
        Against::Each(&[("bdb", 1.2), ("lmdb", 0.8)]),
    ),
    case(
        "peers-gets-long",
        "gets by 24-byte keys, 1,000 a transaction",
        "select blob",
        Against::Each(&[("bdb", 1.0), ("lmdb", 0.6)]),
    ),
    case("peers-gets-single", "gets, each alone", "100/0 int", Against::Each(&[("bdb", 1.0)])),
    case(
        "peers-puts",
        "random puts, 1,000 a transaction, durable",
        "insert int",
        Against::Each(&[("bdb", 1.0)]),
    ),
    case("peers-durable-1", "durable puts, 1 thread", "0/100 int", Against::Better(1.0)),
    case("peers-durable-10", "durable puts, 10 threads", "0/100 int by 10", Against::Better(2.0)),
    case(
        "peers-durable-100",
        "durable puts, 100 threads",
        "0/100 int by 100",
        Against::Better(5.0),
    ),
    case(
        "peers-durable-processes",
        "durable puts, 10 processes",
        "0/100 int by 10 processes",
        Against::Each(&[("bdb", 1.5)]),
    ),
];

/// How a run is done.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Trials of each engine.
    pub repeats: u32,
    /// Measured seconds of what takes a time.
    pub seconds: f64,
    /// Seed of keys, values and order.
    pub seed: u64,
}

/// Measures these cases below `directory` with the suite at `suite`, and judges them.
///
/// # Errors
/// If the suite is not there or says nothing that can be read.
pub fn measure(
    suite: &Path,
    directory: &Path,
    cases: &[PeerCase],
    rules: Rules,
) -> anyhow::Result<Vec<Line>> {
    ensure!(suite.is_file(), "{} is not there: run `make bench-peers`", suite.display());
    let engines = json!([API, "bdb", "lmdb"]);
    let plan = json!({ "cells": cells(directory, cases, rules.seconds), "charts": [] });
    let (asked, told) = (directory.join("peers-plan.json"), directory.join("peers.json"));
    std::fs::write(&asked, plan.to_string()).context("the plan cannot be written")?;
    let names: Vec<&str> =
        engines.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let status = Command::new(suite)
        .args(["plan", "--no-trace", "--verbose", "lines", "--engines", &names.join(",")])
        .args(["--repeats", &rules.repeats.to_string(), "--seed", &rules.seed.to_string()])
        .arg("--dir")
        .arg(directory)
        .arg("--json")
        .arg(&told)
        .arg(&asked)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("start {}", suite.display()))?;
    // A trial that failed is in the results, and judged there.
    let text =
        std::fs::read_to_string(&told).with_context(|| format!("the suite ended with {status}"))?;
    let results: Value = serde_json::from_str(&text).context("results are JSON")?;
    for file in [asked, told] {
        std::fs::remove_file(file)?;
    }
    Ok(cases.iter().flat_map(|case| judge(case, &results)).collect())
}

/// A cell of each engine with all that these cases look at.
fn cells(directory: &Path, cases: &[PeerCase], seconds: f64) -> Value {
    let wants = |phase: &str| cases.iter().any(|case| case.phase == phase);
    let mix = |read_percent, workers: u32| json!({ "mix": { "read_percent": read_percent, "seconds": seconds, "workers": workers } });
    let mut by_processes = mix(0, 10);
    by_processes["mix"]["place"] = json!("processes");
    let mut steps = vec![json!("insert")];
    let more = [
        ("select int", json!("select")),
        ("100/0 int", mix(100, 1)),
        ("0/100 int", mix(0, 1)),
        ("0/100 int by 10", mix(0, 10)),
        ("0/100 int by 100", mix(0, 100)),
        ("0/100 int by 10 processes", by_processes),
    ];
    steps.extend(more.into_iter().filter(|(phase, _)| wants(phase)).map(|(_, step)| step));
    let mut parts = vec![json!({ "keys": "int", "steps": steps })];
    if wants("select blob") {
        parts.push(json!({ "keys": "blob", "steps": ["insert", "select"] }));
    }
    let cell = |engine: &str, settings: Value| {
        json!({
            "id": format!("ratios/{engine}"), "study": "kv", "mode": "modern", "engine": engine, "label": engine,
            "settings": settings, "durability": "power-cut", "tuning": "tuned", "workload": "key-value",
            "rows": ROWS, "value_bytes": 100, "rows_per_transaction": TOGETHER, "select_in_transactions": true,
            "begin": "concurrent", "without_rowid": true, "parts": parts, "medium": directory,
        })
    };
    let memory = "268435456";
    json!([
        cell(
            API,
            json!({ "journal_mode": "concurrent", "synchronous": "full", "cache_size": "-262144", "mmap_size": "1073741824" })
        ),
        cell("bdb", json!({ "sync": "sync", "cache_size": memory, "log_buffer": "4194304" })),
        cell(
            "lmdb",
            json!({ "sync": "full", "map_size": "4294967296", "write_map": "true", "no_readahead": "true" })
        ),
    ])
}

/// The median of an engine's trials per second, or why there is none.
fn per_second(results: &Value, engine: &str, phase: &str) -> Result<f64, String> {
    let cells = results["cells"].as_array().into_iter().flatten();
    let trials = cells
        .filter(|result| result["cell"]["engine"] == engine)
        .flat_map(|result| result["trials"].as_array().into_iter().flatten());
    let mut rates = Vec::new();
    for trial in trials {
        if trial["outcome"] != "done" {
            return Err(format!(
                "{engine} failed: {}",
                trial["why"].as_str().unwrap_or("no reason")
            ));
        }
        let mut phases = trial["phases"].as_array().into_iter().flatten();
        let Some(found) = phases.find(|found| found["name"] == phase) else {
            return Err(format!("{engine} has no {phase}"));
        };
        let (done, seconds) = (found["operations"].as_f64(), found["seconds"].as_f64());
        rates.push(done.unwrap_or(0.0) / seconds.unwrap_or(f64::INFINITY));
    }
    rates.sort_by(f64::total_cmp);
    rates
        .get(rates.len() / 2)
        .copied()
        .ok_or_else(|| format!("{engine} is absent: `make bench-peers` installs it"))
}

fn judge(case: &PeerCase, results: &Value) -> Vec<Line> {
    let rate = |engine| per_second(results, engine, case.phase);
    let line = |name: &str, least: f64, other: Result<f64, String>| {
        let measured = rate(API).and_then(|api| other.map(|other| (api, other)));
        let (measured, reached) = match measured {
            Ok((api, other)) => {
                let ratio = api / other;
                (format!("{ratio:.2} x, {api:.0} of {other:.0} /s"), ratio >= least)
            }
            Err(why) => (why, false),
        };
        let title = case.title.to_owned();
        Line {
            title,
            stock: None,
            plait: None,
            required: format!("{least:.2} x {name}"),
            measured,
            reached,
        }
    };
    match case.against {
        Against::Each(peers) => {
            peers.iter().map(|(engine, least)| line(engine, *least, rate(engine))).collect()
        }
        Against::Better(least) => {
            let better = rate("bdb").and_then(|bdb| rate("lmdb").map(|lmdb| bdb.max(lmdb)));
            vec![line("the better of bdb and lmdb", least, better)]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ALL, cells, judge};
    use serde_json::{Value, json};
    use std::path::Path;

    fn results(rates: &[(&str, &[f64])]) -> Value {
        let phases = |rate: f64| -> Vec<Value> {
            ALL.iter()
                .map(|case| json!({ "name": case.phase, "operations": rate, "seconds": 1.0 }))
                .collect()
        };
        let cell = |(engine, rates): &(&str, &[f64])| {
            let trial = |rate: &f64| json!({ "outcome": "done", "phases": phases(*rate) });
            json!({ "cell": { "engine": engine }, "trials": rates.iter().map(trial).collect::<Vec<_>>() })
        };
        json!({ "cells": rates.iter().map(cell).collect::<Vec<_>>() })
    }

    #[test]
    fn medians_are_held_against_what_is_asked() {
        let told =
            results(&[("plait-kv", &[1.0, 120.0, 900.0]), ("bdb", &[100.0]), ("lmdb", &[160.0])]);
        let reached =
            |at: usize| judge(&ALL[at], &told).iter().map(|line| line.reached).collect::<Vec<_>>();
        assert_eq!(reached(0), [true, false], "1.2 of 1.2, 0.75 of 0.8");
        assert_eq!(reached(1), [true, true], "1.2 of 1.0, 0.75 of 0.6");
        assert_eq!(reached(4), [false], "0.75 times the better one");
    }

    #[test]
    fn a_store_that_is_absent_or_failed_is_named_and_not_reached() {
        let mut told = results(&[("plait-kv", &[100.0]), ("lmdb", &[1.0])]);
        told["cells"][1]["trials"][0] = json!({ "outcome": "failed", "why": "it was full" });
        let lines: Vec<_> = ALL.iter().flat_map(|case| judge(case, &told)).collect();
        assert!(lines.iter().all(|line| !line.reached));
        assert!(lines[0].measured.contains("bdb is absent"), "{}", lines[0].measured);
        assert!(lines[1].measured.contains("it was full"), "{}", lines[1].measured);
    }

    #[test]
    fn only_what_is_asked_for_is_done() {
        let one = cells(Path::new("/"), &ALL[..1], 1.0);
        assert_eq!(one[0]["parts"], json!([{ "keys": "int", "steps": ["insert", "select"] }]));
        let all = cells(Path::new("/"), &ALL, 1.0);
        assert_eq!(all[2]["parts"].as_array().map(Vec::len), Some(2));
        assert_eq!(all[0]["parts"][0]["steps"].as_array().map(Vec::len), Some(7));
    }
}
