//! `plait bench quick`: the wording and the size of its screen, and one short run of the program.
//!
//! No figure here is judged: those of the first tests are made up, those of the run only have to be
//! there.

mod samples;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use plait_bench::advise::show::Asked;
use plait_bench::engines::catalogue::{Entry, Kind, Presence};
use plait_bench::measure::durability::Proof;
use plait_bench::measure::machine::Medium;
use plait_bench::measure::trial::Answer;
use plait_bench::quick::plan::{CREWS, WAYS, plan};
use plait_bench::quick::screen::{answer, screen, words};
use plait_bench::quick::verdict::{Judgement, Row, draw, nothing};
use plait_bench::report::results::{CellResult, Results};

const ASKED: Asked = Asked { seconds: 0.2, repeats: 6 };

/// Commits a second of the trials of each way.
type Rates<'a> = [&'a [f64]; 3];

/// Results in which every crew has these rates, on a file system of this kind.
fn results(rates: Rates<'_>, file_system: &str) -> Results {
    let mut results = samples::results(1);
    let pattern = results.cells.iter().flat_map(|cell| &cell.trials);
    let done =
        pattern.clone().find(|trial| trial.answer.measured().is_some()).expect("one").clone();
    let entry = |name: &str| Entry {
        name: name.to_owned(),
        title: name.to_owned(),
        presence: Presence::Here {
            engine: Kind::Sqlite { library: "lib".into(), parameters: String::new() },
            version: "1".to_owned(),
        },
    };
    results.engines = ["stock", "plait"].map(entry).to_vec();
    let directory = Path::new("/where/the/data/lies");
    results.machine.media = vec![Medium {
        directory: directory.to_owned(),
        file_system: file_system.to_owned(),
        ..Medium::default()
    }];
    let plan = plan(&results.engines, directory, ASKED.seconds);
    let held = results.proofs.iter().find(|proof| proof.proven).expect("one").clone();
    results.proofs = plan
        .cells
        .iter()
        .map(|cell| Proof {
            engine: cell.engine.clone(),
            settings: cell.settings.clone(),
            ..held.clone()
        })
        .collect();
    let cells = plan.cells.into_iter().enumerate().map(|(index, cell)| {
        let mut trials = Vec::new();
        for rate in rates[index / CREWS.len()] {
            let mut trial = done.clone();
            let Answer::Done(measured) = &mut trial.answer else { unreachable!("found as done") };
            measured.phases[0].operations = *rate as u64;
            measured.phases[0].seconds = 1.0;
            trials.push(trial);
        }
        CellResult { cell, trials, traced: None }
    });
    results.cells = cells.collect();
    results.charts = plan.charts;
    results.interrupted = false;
    results
}

fn said(rates: Rates<'_>) -> String {
    screen(&draw(&results(rates, "ext4")), &results(rates, "ext4"), &ASKED)
}

fn assert_fits(text: &str) {
    assert!(text.lines().count() <= 24, "{} lines:\n{text}", text.lines().count());
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
        // Only the reason of a failure may be cut.
        assert!(!line.contains('…') || line.contains("no figures"), "{line}");
    }
}

const SLOW: &[f64] = &[990.0, 995.0, 1000.0, 1005.0, 1010.0];
const FAST: &[f64] = &[3080.0, 3090.0, 3100.0, 3110.0, 3120.0];
const WIDE: &[f64] = &[300.0, 900.0, 1100.0, 1500.0, 4000.0];

#[test]
fn a_win_a_loss_and_no_difference_are_said_in_words() {
    let text = said([SLOW, FAST, WIDE]);
    assert!(text.starts_with("Plait: 1, 2, 8 and 32 writers and 8 processes.\n"), "{text}");
    assert!(text.contains("Plait 3.1 times faster 3.0–3.2"), "{text}");
    assert!(text.contains("no difference 0.3–4.0"), "{text}");
    assert_fits(&text);
    let text = said([FAST, SLOW, SLOW]);
    assert!(text.starts_with("SQLite: 1, 2, 8 and 32 writers and 8 processes.\n"), "{text}");
    assert!(text.contains("SQLite 3.1 times faster 3.0–3.2"), "{text}");
    assert_fits(&text);
}

#[test]
fn a_ratio_far_below_one_is_turned_round() {
    let text = said([&[281_000.0; 5], &[1000.0; 5], &[1000.0; 5]]);
    assert!(text.contains("SQLite 281 times faster 281–281"), "{text}");
    assert!(!text.contains("0.00"), "{text}");
    assert_fits(&text);
}

#[test]
fn a_small_difference_keeps_the_digits_that_say_it() {
    let text = said([&[1000.0; 5], &[1040.0; 5], &[1000.0; 5]]);
    assert!(text.contains("Plait 1.04 times faster 1.04–1.04"), "{text}");
    assert_fits(&text);
}

#[test]
fn four_trials_give_no_verdict_and_one_gives_no_interval() {
    for (trials, words) in [(4, "4 trials: no verdict"), (1, "1 trial: no verdict")] {
        let text = said([&SLOW[..trials], &FAST[..trials], &FAST[..trials]]);
        assert!(text.starts_with("No verdict for any number of writers.\n"), "{text}");
        assert!(text.contains(words) && !text.contains("faster") && !text.contains('–'), "{text}");
        assert_fits(&text);
    }
}

#[test]
fn the_answer_fits_a_line_however_the_crews_differ() {
    let compared = |rates: Rates<'_>| draw(&results(rates, "ext4"))[0].sides.clone();
    let kinds = [
        compared([SLOW, FAST, FAST]),
        compared([FAST, SLOW, SLOW]),
        compared([SLOW, WIDE, WIDE]),
        compared([&SLOW[..1], FAST, FAST]),
    ];
    for mut number in 0..kinds.len().pow(CREWS.len() as u32) {
        let mut rows = Vec::new();
        for crew in CREWS {
            rows.push(Row { crew, sides: kinds[number % kinds.len()].clone() });
            number /= kinds.len();
        }
        assert_fits(&answer(&rows));
    }
}

#[test]
fn the_answer_names_each_crew_with_what_does_best_for_it() {
    let mut rows = draw(&results([SLOW, FAST, FAST], "ext4"));
    rows[0].sides = draw(&results([FAST, SLOW, SLOW], "ext4"))[0].sides.clone();
    rows[4].sides = draw(&results([SLOW, WIDE, WIDE], "ext4"))[4].sides.clone();
    assert_eq!(answer(&rows), "Plait: 2, 8 and 32 writers; SQLite: 1; no difference: 8 processes.");
    rows[1].sides[1].judgement = Judgement::None;
    rows[2].sides[1].judgement = Judgement::None;
    rows[3].sides[1].judgement = Judgement::None;
    assert!(
        answer(&rows).starts_with("SQLite: 1 writer; no difference: 8 processes; others unknown.")
    );
}

#[test]
fn memory_is_said_to_be_memory_and_compared_all_the_same() {
    let results = results([SLOW, FAST, FAST], "tmpfs");
    let text = screen(&draw(&results), &results, &ASKED);
    assert!(text.contains("tmpfs is memory: FULL costs nothing there"), "{text}");
    assert!(text.contains("Plait 3.1 times faster"), "{text}");
    assert_fits(&text);
}

#[test]
fn a_way_that_was_not_shown_to_be_durable_is_not_judged() {
    let mut results = results([SLOW, FAST, FAST], "ext4");
    for proof in results.proofs.iter_mut().filter(|proof| proof.engine == "plait") {
        proof.proven = false;
        proof.why = "0 sync calls for 400 commits".to_owned();
    }
    let rows = draw(&results);
    assert_eq!(words(&rows[0].sides[1].judgement), "durability not shown");
    let why = nothing(&rows).expect("nothing is judged");
    assert!(why.contains("0 sync calls for 400 commits"), "{why}");
}

#[test]
fn a_failed_trial_leaves_its_crew_unjudged_and_says_why() {
    let mut results = results([SLOW, FAST, FAST], "ext4");
    let why = "10000 rows with 500 acknowledged updates became 10000 rows with 499".to_owned();
    let broken = results.cells.iter_mut().find(|c| c.cell.label == WAYS[1].name).expect("a cell");
    broken.trials[2].answer = Answer::Failed { why };
    let text = screen(&draw(&results), &results, &ASKED);
    assert!(text.contains("no figures: 10000 rows with 500 acknow"), "{text}");
    assert!(text.starts_with("Plait: 2, 8 and 32 writers and 8 processes; others unknown.\n"));
    assert!(text.contains("a trial failed") && !text.contains("all sums right"), "{text}");
    assert_fits(&text);
}

fn quick(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plait-bench"))
        .arg("quick")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn a_short_run_verifies_every_sum_and_leaves_the_database_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (file, json) = (folder.path().join("app.db"), folder.path().join("results.json"));
    std::fs::write(&file, "not even a database").unwrap();
    let paths = [file.to_str().unwrap(), "--json", json.to_str().unwrap()];
    let run = quick(&[&paths[..], &["--seconds", "0.05", "--repeats", "1"]].concat());
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let text = String::from_utf8_lossy(&run.stdout);
    assert_fits(&text);
    assert!(text.contains("1 trial: no verdict") && text.contains("all sums right"), "{text}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "not even a database");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "trials leave nothing");
    let results = Results::read(&json).unwrap();
    assert_eq!(results.cells.len(), WAYS.len() * CREWS.len());
    for trial in results.cells.iter().flat_map(|cell| &cell.trials) {
        let measured = trial.answer.measured().expect("done");
        assert!(measured.verified[0].contains("updates that were acknowledged"), "{measured:?}");
        assert!(measured.phases[0].acknowledged() > 0, "{measured:?}");
    }
}

#[test]
fn a_run_that_cannot_measure_ends_with_one_and_says_what_to_do() {
    for (arguments, reason) in [
        (&["--dir", "/nowhere/at/all"][..], "give a directory that is there"),
        (&["/nowhere/at/all/app.db"], "give a directory that is there"),
        (&["--engines", "plait"], "quick compares stock and plait, and stock was left out"),
    ] {
        let run = quick(arguments);
        let text = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(1), "{run:?}");
        assert!(text.contains(reason) && text.lines().count() == 1, "{text}");
    }
}
