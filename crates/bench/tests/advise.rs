//! `plait bench advise` through the program: answers as options, a verdict with the measurements behind it.

mod samples;

use std::process::{Command, Output, Stdio};

use plait_bench::advise::verdict;
use plait_bench::measure::trial::Answer;
use plait_bench::report::results::Results;

fn advise(arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_plait-bench"))
        .arg("advise")
        .args(arguments)
        .arg("--dir")
        .arg(folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

const NEED: [&str; 12] = [
    "--rows",
    "100",
    "--value-bytes",
    "64",
    "--writers",
    "3",
    "--reads",
    "1",
    "--survive-power-cut",
    "yes",
    "--engines",
    "stock,plait,redb,map,log",
];

#[test]
fn advice_is_about_one_medium() {
    let said = advise(&["--dir", "."]);
    assert_eq!(said.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&said.stderr).contains("give --dir once"), "{said:?}");
}

#[test]
fn missing_answers_are_asked_for_by_name_where_nobody_can_be_asked() {
    let said = advise(&["--rows", "100"]);
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(!said.status.success());
    assert!(text.contains("--value-bytes") && text.contains("--survive-power-cut"), "{text}");
}

#[test]
fn the_advice_names_settings_and_shows_what_was_measured() {
    let quick = ["--processes", "no", "--seconds", "0.1", "--repeats", "2"];
    let said = advise(&[&NEED[..], &quick].concat());
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success(), "{said:?}");
    for part in [
        "100 rows of 64 bytes, 3 writers in threads",
        "cannot tell which is best: 4 trials of each are the least that can tell, and there are 2",
        "--rows 100 --value-bytes 64 --writers 3 --processes no",
        "Plait: concurrent, FULL, BEGIN CONCURRENT",
        "SQLite: WAL, synchronous=FULL",
        "Not measured: BTreeMap behind a mutex: keeps nothing, or has no transactions",
        "Not measured: bare log, the limit: a limit, not a store",
    ] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    assert!(!text.contains("NORMAL"), "it was asked to survive a power cut:\n{text}");
}

#[test]
fn engines_of_one_process_are_not_advised_to_several() {
    let quick = ["--processes", "yes", "--seconds", "0.1", "--repeats", "1", "--no-trace"];
    let said = advise(&[&NEED[..], &quick].concat());
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(text.contains("Not measured: redb: a store belongs to one process"), "{text}");
    assert!(
        text.contains("Nothing that was measured serves this need."),
        "nothing was proven:\n{text}"
    );
}

/// Results of one made-up cell for each label: its rates, one for each trial.
fn results(rows: &[(&str, &[f64])]) -> Results {
    let mut results = samples::results(1);
    let pattern = results.cells.iter().find(|c| c.cell.engine == "lmdb").cloned().expect("a cell");
    let done = pattern.trials.iter().find(|t| t.answer.measured().is_some()).expect("one is done");
    results.cells.clear();
    for (label, rates) in rows {
        let mut cell = pattern.clone();
        cell.cell.id = (*label).to_owned();
        cell.cell.label = (*label).to_owned();
        cell.trials.clear();
        for rate in *rates {
            let mut trial = done.clone();
            let Answer::Done(measured) = &mut trial.answer else { unreachable!("found as done") };
            measured.phases[0].operations = *rate as u64;
            measured.phases[0].seconds = 1.0;
            cell.trials.push(trial);
        }
        results.cells.push(cell);
    }
    results
}

#[test]
fn one_trial_names_no_winner_however_far_apart_the_figures_are() {
    let verdict = verdict::draw(&results(&[("fast", &[9000.0]), ("slow", &[10.0])]));
    assert_eq!((verdict.ranked.len(), verdict.equals), (2, 2));
}

#[test]
fn a_winner_is_apart_from_all_others() {
    let fast = [900.0, 910.0, 920.0, 930.0];
    let apart = [800.0, 810.0, 820.0, 830.0];
    let wide = [100.0, 200.0, 300.0, 905.0];
    let verdict = verdict::draw(&results(&[("apart", &apart), ("fast", &fast)]));
    assert_eq!((verdict.ranked[0].label.as_str(), verdict.equals), ("fast", 1));
    let verdict = verdict::draw(&results(&[("apart", &apart), ("fast", &fast), ("wide", &wide)]));
    let labels: Vec<&str> = verdict.ranked.iter().map(|ranked| ranked.label.as_str()).collect();
    assert_eq!((labels, verdict.equals), (vec!["fast", "wide", "apart"], 2));
}
