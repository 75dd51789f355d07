//! All trials of a plan, in random order, with progress, interruption and time limits.
//!
//! In each round every cell is measured once, in an order of its own, so that a slow minute of the machine falls on all
//! engines alike. Ctrl-C ends the trial that runs and keeps what was measured.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};

use super::machine::Disturbance;
use super::trial::{self, Answer, Spec};
use crate::engines::catalogue::Entry;
use crate::report::results::{CellResult, Trial};
use crate::studies::Cell;
use crate::workloads::dice::Dice;

/// Set by Ctrl-C.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// How a plan is run.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Trials of each cell.
    pub repeats: u32,
    /// Seed of everything random.
    pub seed: u64,
    /// A trial that takes longer is killed and has failed.
    pub limit: Duration,
}

/// What came of a plan.
pub struct Run {
    /// The cells with their trials.
    pub cells: Vec<CellResult>,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
}

/// Measures all cells whose engine is here.
///
/// # Errors
/// If directories cannot be made or this program cannot be started again.
pub fn run(cells: Vec<Cell>, engines: &[Entry], rules: &Rules) -> anyhow::Result<Run> {
    // Relaxed: a flag that orders nothing else.
    ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed))
        .context("cannot watch for Ctrl-C")?;
    let mut results: Vec<CellResult> = cells
        .into_iter()
        .map(|cell| CellResult { cell, trials: Vec::new(), traced: None })
        .collect();
    let bar = progress_bar(results.len() as u64 * u64::from(rules.repeats));
    let mut position = 0;
    let mut order: Vec<usize> = (0..results.len()).collect();
    'rounds: for round in 0..rules.repeats {
        Dice::new(rules.seed, u64::from(round)).shuffle(&mut order);
        for &index in &order {
            let result = &mut results[index];
            bar.set_message(format!("{}, {}", result.cell.label, result.cell.id));
            let disturbance = Disturbance::default();
            let Some(answer) = measure(&result.cell, engines, rules)? else { break 'rounds };
            result.trials.push(Trial { position, disturbance, answer });
            position += 1;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(Run { cells: results, interrupted: INTERRUPTED.load(Ordering::Relaxed) })
}

fn progress_bar(trials: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:20} {pos}/{len}, {eta} left  {wide_msg}")
        .expect("the template is a constant");
    ProgressBar::new(trials).with_style(style)
}

/// One trial in a process of its own; none when interrupted.
fn measure(cell: &Cell, engines: &[Entry], rules: &Rules) -> anyhow::Result<Option<Answer>> {
    let engine = engines.iter().find(|e| e.name == cell.engine).and_then(Entry::engine);
    let Some(engine) = engine else {
        return Ok(Some(Answer::NotApplicable { why: format!("{} is absent", cell.engine) }));
    };
    let directory = fresh_directory(&cell.medium)?;
    let spec = Spec {
        engine: engine.clone(),
        settings: cell.settings.clone(),
        workload: cell.workload.clone(),
        directory: directory.path().to_owned(),
        seed: rules.seed,
    };
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let mut child = Command::new(program)
        .arg(trial::COMMAND)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start a trial")?;
    let mut input = child.stdin.take().expect("standard input is a pipe");
    input.write_all(&serde_json::to_vec(&spec)?).context("cannot talk to a trial")?;
    drop(input);
    await_answer(child, rules.limit)
}

/// A new directory on a medium.
fn fresh_directory(medium: &Path) -> anyhow::Result<tempfile::TempDir> {
    tempfile::Builder::new()
        .prefix("plait-bench-")
        .tempdir_in(medium)
        .with_context(|| format!("cannot make a directory in {}", medium.display()))
}

/// Waits for a trial to end, or ends it.
fn await_answer(mut child: Child, limit: Duration) -> anyhow::Result<Option<Answer>> {
    let begun = Instant::now();
    let mut output = child.stdout.take().expect("standard output is a pipe");
    let mut errors = child.stderr.take().expect("standard error is a pipe");
    let read_output = std::thread::spawn(move || std::io::read_to_string(&mut output));
    let read_errors = std::thread::spawn(move || std::io::read_to_string(&mut errors));
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let interrupted = INTERRUPTED.load(Ordering::Relaxed);
        if interrupted || begun.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            let why = format!("killed after {} s", limit.as_secs());
            return Ok((!interrupted).then_some(Answer::Failed { why }));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let output = read_output.join().expect("reading does not panic")?;
    let errors = read_errors.join().expect("reading does not panic").unwrap_or_default();
    Ok(Some(serde_json::from_str(&output).unwrap_or_else(|_| Answer::Failed {
        why: format!("the trial's process ended with {status}: {}", errors.trim()),
    })))
}
