//! `test`: every test program of the workspace, a few at once.
//!
//! Most of their time they wait: for timeouts, for processes that they have stopped, for the disk.
//! `cargo test` runs one program after the other, and leaves half of the processors idle. Here one
//! more runs than there are processors. What a program prints is shown in one piece when it ends; until then
//! it is in `target/tests`.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::toolchain::run_visibly;
use crate::workspace::Workspace;

/// A test program.
struct Suite {
    name: String,
    executable: PathBuf,
    /// Where cargo runs it: its package.
    directory: PathBuf,
}

/// A test program that has ended.
struct Ended {
    name: String,
    took: Duration,
    passed: bool,
}

/// Builds all test programs, runs `jobs` at once, and then the examples in the documentation.
///
/// # Errors
/// What failed, by name, after all have run.
pub fn run(jobs: Option<usize>) -> Result<()> {
    let workspace = Workspace::locate()?;
    let suites = build(&workspace)?;
    ensure!(!suites.is_empty(), "cargo has built no test program");
    let outputs = workspace.target.join("tests");
    fs::create_dir_all(&outputs)?;
    let jobs = match jobs {
        Some(jobs) => jobs,
        None => thread::available_parallelism()?.get() + 1,
    };
    let ended = run_all(suites, jobs, &outputs)?;
    summarize(&ended);
    let mut examples = cargo(&workspace, &["test", "--workspace", "--doc", "--quiet"]);
    let examples = run_visibly(&mut examples);
    let failed: Vec<_> = ended.iter().filter(|one| !one.passed).map(|one| &*one.name).collect();
    ensure!(failed.is_empty(), "{} failed: {}", failed.len(), failed.join(", "));
    examples
}

fn cargo(workspace: &Workspace, arguments: &[&str]) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&workspace.root).args(arguments);
    cargo
}

fn build(workspace: &Workspace) -> Result<Vec<Suite>> {
    let format = "--message-format=json-render-diagnostics";
    let mut tests = cargo(workspace, &["test", "--workspace", "--no-run", format]);
    let built = tests.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    ensure!(built.status.success(), "the test programs cannot be built");
    let messages = String::from_utf8(built.stdout)?;
    let mut suites = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line)?;
        let (Some(executable), Some(true)) =
            (message["executable"].as_str(), message["profile"]["test"].as_bool())
        else {
            continue;
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let manifest = text(&message["manifest_path"]).context("a program has no package")?;
        let directory = Path::new(&manifest).parent().context("a manifest has no folder")?;
        let package = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let target = text(&message["target"]["name"]).context("a program has no name")?;
        let name = if package == "tests" { target } else { format!("{package}-{target}") };
        suites.push(Suite { name, executable: executable.into(), directory: directory.into() });
    }
    Ok(suites)
}

fn run_all(suites: Vec<Suite>, jobs: usize, outputs: &Path) -> Result<Vec<Ended>> {
    let waiting = Mutex::new(VecDeque::from(suites));
    let ended = Mutex::new(Vec::new());
    let next = || waiting.lock().expect("no thread panics with it").pop_front();
    let work = || -> Result<()> {
        while let Some(suite) = next() {
            // If one hangs, this is its last line.
            println!("---- {} begins", suite.name);
            let output = outputs.join(suite.executable.file_name().unwrap_or_default());
            let one = run_one(&suite, &output)?;
            let mut ended = ended.lock().expect("no thread panics with it");
            let text = fs::read(&output)?;
            let verdict = if one.passed { "passed" } else { "FAILED" };
            println!(
                "---- {} {verdict} in {:.1} s\n{}",
                one.name,
                one.took.as_secs_f64(),
                String::from_utf8_lossy(&text)
            );
            ended.push(one);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("it does not panic"))
    })?;
    Ok(ended.into_inner().expect("no thread panics with it"))
}

fn run_one(suite: &Suite, output: &Path) -> Result<Ended> {
    let begun = Instant::now();
    let stdout = File::create(output)?;
    let stderr = stdout.try_clone()?;
    let status = Command::new(&suite.executable)
        // As cargo does.
        .current_dir(&suite.directory)
        .env("CARGO_MANIFEST_DIR", &suite.directory)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .status()
        .with_context(|| format!("cannot start {}", suite.executable.display()))?;
    let took = begun.elapsed();
    Ok(Ended { name: suite.name.clone(), took, passed: status.success() })
}

/// The longest first: where the time went.
fn summarize(ended: &[Ended]) {
    let mut longest: Vec<_> = ended.iter().collect();
    longest.sort_by_key(|one| std::cmp::Reverse(one.took));
    println!("{} test programs; the longest:", ended.len());
    for one in longest.iter().take(10) {
        println!("{:8.1} s  {}", one.took.as_secs_f64(), one.name);
    }
}
