//! Faults planted in the library, which the suites must report.
//!
//! The engine names its faults in `fault.rs`; the library with crash points makes the one that `PLAIT_FAULT` names. A test runs another test
//! of its own program again, over that library and with that variable, and looks at how it fails.

use crate::paths;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a suite may take to find a fault.
const PATIENCE: Duration = Duration::from_secs(60);

/// The names of all faults, from the engine's source.
///
/// # Panics
/// If the source does not look as expected.
#[must_use]
pub fn faults() -> Vec<&'static str> {
    let source = include_str!("../../crates/engine/src/fault.rs");
    let (_, list) = source.split_once("FAULTS: &[(&str, &str)] = &[").expect("there is a list");
    let (list, _) = list.split_once("\n];").expect("the list ends");
    list.split("(\"").skip(1).filter_map(|entry| entry.split('"').next()).collect()
}

/// How often a suite is started at least that works beside the fault by chance, until it meets it.
const ATTEMPTS: usize = 6;
/// For so long it is started again in any case: one that meets it in one run of four would be missed by six now and then.
const PERSEVERANCE: Duration = Duration::from_secs(120);

/// Runs the test of this program again with the fault planted: it must fail, and say one of these words.
///
/// Whether workers meet a fault is chance for some suites, and how it shows: some faults let the workers wait for ever now and then. So a
/// suite that has not said it is started again, and fails this test only if it never does.
///
/// # Panics
/// If it passes each time, says nothing of the kind, or does not come to an end.
pub fn must_be_reported(fault: &str, test: &str, words: &[&str]) {
    if paths::stand_in() {
        return eprintln!("skipped: {fault}: stock SQLite stands in and has no faults planted");
    }
    assert!(faults().contains(&fault), "there is no fault {fault}");
    let library = paths::crash_library().unwrap_or_else(|error| panic!("{error:#}"));
    let mut last = String::new();
    let started = Instant::now();
    let mut attempts = 0;
    while attempts < ATTEMPTS || started.elapsed() < PERSEVERANCE {
        attempts += 1;
        let run = run_with(fault, test, &library);
        if !run.passed && words.iter().any(|word| run.said.contains(word)) {
            return;
        }
        let how = if run.passed { "does not notice it" } else { "fails in another way" };
        // Marked, or who reads the outer output takes the inner tests for failures of their own.
        let quoted: String = run.said.lines().map(|line| format!("  | {line}\n")).collect();
        last = format!("{how}:\n{quoted}");
    }
    panic!(
        "{test} with {fault} planted does not say any of {words:?} in {attempts} runs; the last one {last}"
    );
}

struct Run {
    passed: bool,
    said: String,
}

fn run_with(fault: &str, test: &str, library: &Path) -> Run {
    let program = std::env::current_exe().expect("this program has a path");
    let mut child = Command::new(program)
        .args(["--exact", test, "--include-ignored", "--nocapture"])
        .env("PLAIT_LIB", library)
        .env("PLAIT_FAULT", fault)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this program can be started again");
    let mut error = child.stderr.take().expect("it is piped");
    let mut output = child.stdout.take().expect("it is piped");
    let readers = [
        std::thread::spawn(move || read(&mut error)),
        std::thread::spawn(move || read(&mut output)),
    ];
    let ended = wait(&mut child);
    if ended.is_none() {
        // With its workers, which would hold the pipes open.
        crate::os::kill_group(child.id());
        let _ = child.wait();
    }
    let mut said: String = readers.map(|reader| reader.join().expect("no panic")).concat();
    assert!(said.contains("running 1 test"), "there is no test {test}:\n{said}");
    if ended.is_none() {
        said.push_str("it does not come to an end\n");
    }
    Run { passed: ended.is_some_and(|status| status.success()), said }
}

/// How it ended, if it did within `PATIENCE`.
fn wait(child: &mut Child) -> Option<ExitStatus> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

fn read(from: &mut impl std::io::Read) -> String {
    let mut bytes = Vec::new();
    let _ = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}
