//! A run that is interrupted keeps what it measured and leaves nothing behind.

mod proofs;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plait_bench::engines::fake::LEFT_SLEEPS_S;
use plait_bench::report::results::Results;
use plait_bench::studies::{Cell, Plan};
use plait_bench::workloads::dice::Dice;

/// A run of the program on some fakes.
struct Started {
    folder: tempfile::TempDir,
    child: Child,
}

impl Started {
    /// Measures one cell for each fake in the given order.
    fn run(fakes: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let medium = folder.path().join("medium");
        std::fs::create_dir(&medium).unwrap();
        let plan = Plan { cells: in_order(fakes, &medium, SEED), charts: Vec::new() };
        let file = folder.path().join("plan.json");
        std::fs::write(&file, serde_json::to_vec(&plan).unwrap()).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_plait-bench"))
            .arg("plan")
            .arg(&file)
            .args(["--quick", "--no-trace", "--verbose", "none"])
            .args(["--seed", &SEED.to_string(), "--engines", &fakes.join(",")])
            .arg("--dir")
            .arg(&medium)
            .arg("--json")
            .arg(folder.path().join("results.json"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { folder, child }
    }

    fn results(&self) -> PathBuf {
        self.folder.path().join("results.json")
    }

    fn left_on_medium(&self) -> usize {
        std::fs::read_dir(self.folder.path().join("medium")).unwrap().count()
    }

    /// Waits until the first of the cells is saved and the next one is in its trial.
    fn await_second_trial(&self) {
        let is_measured = |results: &Results| results.cells.iter().any(|c| !c.trials.is_empty());
        until("the first trial is saved", || {
            Results::read(&self.results()).is_ok_and(|results| is_measured(&results))
        });
        until("the second trial runs", || self.left_on_medium() > 0);
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }
}

const SEED: u64 = 1;

/// Cells that the first round measures in the given order.
fn in_order(fakes: &[&str], medium: &Path, seed: u64) -> Vec<Cell> {
    let mut order: Vec<usize> = (0..fakes.len()).collect();
    Dice::new(seed, 0).shuffle(&mut order);
    let places: BTreeMap<usize, &str> =
        order.iter().zip(fakes).map(|(place, fake)| (*place, *fake)).collect();
    let cell = |fake: &str| proofs::cell(fake.to_owned(), fake, 25, medium);
    places.into_values().map(cell).collect()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(120), "waited two minutes until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process runs of which a file in /proc holds a text.
fn runs(file: &str, text: &[u8]) -> bool {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| std::fs::read(entry.path().join(file)).ok())
        .any(|content| content.windows(text.len()).any(|part| part == text))
}

#[test]
fn an_interruption_keeps_what_was_measured() {
    let mut started = Started::run(&["fake-honest", "fake-hangs"]);
    started.await_second_trial();
    started.signal(Signal::SIGTERM);
    assert_eq!(started.child.wait().unwrap().code(), Some(130));
    let results = Results::read(&started.results()).unwrap();
    assert!(results.interrupted);
    assert_eq!(results.cell("fake-honest").unwrap().trials.len(), 1);
    assert_eq!(results.cell("fake-hangs").unwrap().trials.len(), 0);
    assert_eq!(started.left_on_medium(), 0, "directories are removed");
    let mine = format!("PLAIT_BENCH_PARENT={}\0", started.child.id());
    assert!(!runs("environ", mine.as_bytes()), "a trial outlived the run");
}

#[test]
fn a_run_that_is_killed_leaves_its_last_save_and_no_process() {
    let mut started = Started::run(&["fake-honest", "fake-hangs"]);
    started.await_second_trial();
    started.signal(Signal::SIGKILL);
    started.child.wait().unwrap();
    let results = Results::read(&started.results()).unwrap();
    assert!(results.interrupted);
    assert_eq!(results.cell("fake-honest").unwrap().trials.len(), 1);
    let mine = format!("PLAIT_BENCH_PARENT={}\0", started.child.id());
    until("the trial has died with its parent", || !runs("environ", mine.as_bytes()));
}

#[test]
fn what_leaves_a_trial_s_group_does_not_outlive_it() {
    let mut started = Started::run(&["fake-leaves-process"]);
    assert_eq!(started.child.wait().unwrap().code(), Some(0));
    let left = format!("sleep\0{LEFT_SLEEPS_S}\0");
    assert!(!runs("cmdline", left.as_bytes()), "the process that the trial left behind still runs");
}

#[test]
fn a_failed_trial_is_told_by_the_exit_code() {
    let mut started = Started::run(&["fake-crashes", "fake-honest"]);
    assert_eq!(started.child.wait().unwrap().code(), Some(1));
    let results = Results::read(&started.results()).unwrap();
    assert!(!results.interrupted);
    assert!(results.cell("fake-honest").unwrap().trials[0].answer.measured().is_some());
}
