//! The suite's tests of itself: engines that lie, lose, stall, crash and hang are caught.

mod proofs;

use std::path::PathBuf;
use std::time::Duration;

use plait_bench::engines::catalogue::{self, Entry};
use plait_bench::engines::{Begin, Key, KeyKind, KeyValue, Outcome, Settings, Table, Waits};
use plait_bench::measure::machine::Machine;
use plait_bench::measure::phase::Phase;
use plait_bench::measure::progress::Verbosity;
use plait_bench::measure::runner::{self, Rules, Run, Tracing};
use plait_bench::measure::trial::Answer;
use plait_bench::report::results::{Results, SCHEMA};
use plait_bench::studies::Plan;
use plait_bench::workloads::crew::{self, Amount, Shift, Worker};

fn entry(name: &str) -> Entry {
    let mut all = catalogue::fakes();
    all.extend(catalogue::all(&[]).expect("the catalogue"));
    all.into_iter().find(|entry| entry.name == name).expect("it is there")
}

fn rules(tracing: Tracing) -> Rules {
    Rules {
        repeats: 1,
        quick: true,
        seed: 1,
        limit: Duration::from_secs(600),
        program: PathBuf::from(env!("CARGO_BIN_EXE_plait-bench")),
        tracing,
        verbosity: Verbosity::None,
    }
}

/// Runs one cell for each of some engines; the results as they are stored.
fn results(names: &[&str], commits: u64, rules: &Rules) -> Results {
    let medium = tempfile::tempdir().unwrap();
    let id = |name| format!("fakes/{name}");
    let cells =
        names.iter().map(|name| proofs::cell(id(name), name, commits, medium.path())).collect();
    let plan = Plan { cells, charts: Vec::new() };
    let engines: Vec<Entry> = names.iter().map(|name| entry(name)).collect();
    let Run { proofs, cells, interrupted } =
        runner::run(&plan, &engines, rules, &mut |_| Ok(())).unwrap();
    let left: Vec<_> = std::fs::read_dir(medium.path()).unwrap().flatten().collect();
    assert!(left.is_empty(), "trials left {left:?}");
    Results {
        schema: SCHEMA,
        version: String::new(),
        command: Vec::new(),
        started_unix_s: 0,
        took_s: 0.0,
        interrupted,
        repeats: rules.repeats,
        seed: rules.seed,
        machine: Machine::default(),
        engines,
        proofs,
        cells,
        charts: Vec::new(),
    }
}

fn unranked(results: &Results, name: &str) -> Option<String> {
    results.unranked(&results.cell(&format!("fakes/{name}")).expect("measured").cell)
}

fn answers<'a>(results: &'a Results, name: &str) -> Vec<&'a Answer> {
    let cell = results.cell(&format!("fakes/{name}")).expect("measured");
    cell.trials.iter().map(|trial| &trial.answer).collect()
}

#[test]
fn an_engine_that_does_not_wait_for_the_disk_is_not_ranked() {
    let liars = ["fake-no-sync", "fake-seldom-sync", "fake-sync-elsewhere"];
    let all = ["fake-honest", liars[0], liars[1], liars[2]];
    let results = results(&all, 20, &rules(Tracing::Wanted));
    assert_eq!(unranked(&results, "fake-honest"), None, "{:?}", results.proofs);
    for liar in liars {
        let why = unranked(&results, liar).unwrap_or_else(|| panic!("{liar} is ranked"));
        assert!(why.contains("too few"), "{liar}: {why}");
        assert!(answers(&results, liar)[0].measured().is_some(), "{liar} is listed all the same");
    }
}

#[test]
fn the_bare_log_waits_for_the_disk_as_a_store_must_and_is_not_ranked() {
    let results = results(&["log"], 20, &rules(Tracing::Wanted));
    assert_eq!(results.proofs.len(), 3, "alone, and ten at a time in both ways to begin");
    for proof in &results.proofs {
        assert!(proof.proven, "{proof:?}");
        // Alone each commit is a group; and no more is synced than there are commits.
        let syncs: u64 = proof.syncs.values().sum();
        assert!(syncs <= proof.commits, "{proof:?}");
        assert!(proof.workers > 1 || syncs == proof.commits, "{proof:?}");
        assert_eq!(proof.syncs.keys().collect::<Vec<_>>(), ["fdatasync"]);
    }
    assert!(answers(&results, "log")[0].measured().is_some());
    assert_eq!(unranked(&results, "log").as_deref(), Some("a limit, not a store"));
}

#[test]
fn where_nothing_can_be_traced_nothing_durable_is_ranked() {
    let refused = Tracing::Refused("ptrace is not permitted here".to_owned());
    let results = results(&["fake-honest"], 5, &rules(refused));
    assert!(answers(&results, "fake-honest")[0].measured().is_some());
    let why = unranked(&results, "fake-honest").expect("not ranked");
    assert_eq!(why, "ptrace is not permitted here");
}

#[test]
fn an_engine_that_loses_a_value_fails_its_trial() {
    let results = results(&["fake-drops"], 50, &rules(Tracing::Wanted));
    let [Answer::Failed { why }] = answers(&results, "fake-drops")[..] else {
        panic!("{:?}", answers(&results, "fake-drops"));
    };
    assert!(why.contains("50 commits left 48 rows"), "{why}");
    assert!(unranked(&results, "fake-drops").is_some());
}

#[test]
fn a_crash_and_a_hang_fail_their_trials_alone() {
    let no_trace = Tracing::Refused("not for this test".to_owned());
    let rules = Rules { repeats: 2, limit: Duration::from_secs(15), ..rules(no_trace) };
    let results = results(&["fake-crashes", "fake-hangs", "fake-honest"], 25, &rules);
    let crashes = answers(&results, "fake-crashes");
    for answer in &crashes {
        let Answer::Failed { why } = answer else { panic!("{answer:?}") };
        assert!(why.contains("SIGABRT") && why.contains("about to crash"), "{why}");
    }
    let [Answer::Failed { why }] = answers(&results, "fake-hangs")[..] else {
        panic!("what hung once is not tried again: {:?}", answers(&results, "fake-hangs"));
    };
    assert!(why.contains("killed after 15 s"), "{why}");
    let honest = answers(&results, "fake-honest");
    assert!(honest.len() == 2 && honest.iter().all(|a| a.measured().is_some()), "{honest:?}");
    assert_eq!(crashes.len(), 2);
}

fn one_table() -> [Table; 1] {
    [Table { name: "t".to_owned(), keys: KeyKind::Int, without_rowid: false }]
}

/// Inserts rows.
struct Inserter<'a>(Box<dyn KeyValue + 'a>, i64);

impl Worker for Inserter<'_> {
    fn choose(&mut self) {
        self.1 += 1;
    }

    fn attempt(&mut self) -> Outcome<()> {
        self.0.begin(Begin::Immediate)?;
        self.0.insert(0, Key::Int(self.1), &self.1.to_le_bytes())?;
        self.0.commit()
    }

    fn give_up(&mut self) -> Outcome<()> {
        self.0.rollback()
    }

    fn waits(&self) -> Waits {
        Waits::default()
    }
}

/// A thousand commits of the engine that sleeps 200 ms at every 500th.
fn of_a_stalling_engine(due_per_second: Option<f64>) -> Phase {
    let directory = tempfile::tempdir().unwrap();
    let engine = entry("fake-stalls").engine().expect("built in").load().unwrap();
    let store = engine.open(directory.path(), &Settings::default()).unwrap();
    store.create(&one_table()).unwrap();
    let amount = Amount::Each(1000);
    let shift = Shift { workers: 1, amount, due_per_second, count_start_and_stop: false };
    crew::run("commits", store.as_ref(), &shift, &|store, _| {
        Ok(Box::new(Inserter(store.key_value(&one_table())?, 0)))
    })
    .unwrap()
}

#[test]
fn an_open_loop_shows_a_stall_that_the_median_of_a_closed_loop_hides() {
    let quantile = |phase: &Phase, quantile| {
        let histogram = phase.latency.as_ref().expect("latencies").histogram().unwrap();
        Duration::from_nanos(histogram.value_at_quantile(quantile))
    };
    let closed = of_a_stalling_engine(None);
    assert!(quantile(&closed, 0.5) < Duration::from_millis(100), "only two of 1,000 stall");
    // Of 2,000 a second, 200 are due in the first half of each of the two stalls and wait for the other half.
    let open = of_a_stalling_engine(Some(2000.0));
    assert!(quantile(&open, 0.99) >= Duration::from_millis(95), "{:?}", quantile(&open, 0.99));
}
