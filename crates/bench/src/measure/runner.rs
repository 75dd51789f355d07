//! All trials of a plan: the proofs first, then the trials in random order, then the traced passes.
//!
//! In each round every cell is measured once, in an order of its own, so that a slow minute of the machine falls on all
//! engines alike. Proofs and traced passes are never ranked. A trial that fails fails alone; one that hung is not tried
//! again. An interruption ends the trial that runs and keeps what was measured.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tempfile::TempDir;

use super::durability::{self, Claim, Proof};
use super::interrupt;
use super::machine::Watch;
use super::preflight;
use super::process::{Ending, Start};
use super::progress::{Estimate, Progress, Verbosity, in_brief};
use super::trace::{self, Traced};
use super::trial::{self, Answer, Spec};
use crate::engines::Settings;
use crate::engines::catalogue::{Entry, Kind};
use crate::report::results::{CellResult, Trial};
use crate::studies::{Cell, Metric, Plan};
use crate::workloads::dice::Dice;
use crate::workloads::{Workload, proof};

/// Whether system calls are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tracing {
    /// As far as ptrace(2) is permitted.
    Wanted,
    /// Not at all, with the reason that stands in the results: nothing that claims to survive a power cut is ranked.
    Refused(String),
}

/// How a plan is run.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Trials of each cell.
    pub repeats: u32,
    /// Whether proofs are as short as they may be.
    pub quick: bool,
    /// Seed of everything random.
    pub seed: u64,
    /// A trial that takes longer is killed and has failed.
    pub limit: Duration,
    /// The program `plait-bench`.
    pub program: PathBuf,
    /// Whether system calls are counted.
    pub tracing: Tracing,
    /// What is shown meanwhile.
    pub verbosity: Verbosity,
}

impl Rules {
    /// Five trials of each cell, ten minutes at most for each, with everything counted and shown as it fits.
    ///
    /// # Errors
    /// If this program cannot tell where it is.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self {
            repeats: 5,
            quick: false,
            seed: 1,
            limit: Duration::from_secs(600),
            program: std::env::current_exe().context("cannot tell where this program is")?,
            tracing: Tracing::Wanted,
            verbosity: Verbosity::fitting(),
        })
    }
}

/// What came of a plan.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// What the traced passes showed of settings that claim to survive a power cut.
    pub proofs: Vec<Proof>,
    /// The cells with their trials.
    pub cells: Vec<CellResult>,
    /// Whether an interruption ended it.
    pub interrupted: bool,
}

impl Run {
    /// Whether any trial failed, proofs aside.
    #[must_use]
    pub fn has_failures(&self) -> bool {
        let mut trials = self.cells.iter().flat_map(|cell| &cell.trials);
        trials.any(|trial| matches!(trial.answer, Answer::Failed { .. }))
    }
}

/// Measures all cells whose engine is here. `save` is given what there is so far now and then, and at the end.
///
/// # Errors
/// Only of `save`: what goes wrong in a trial is a result.
pub fn run(
    plan: &Plan,
    engines: &[Entry],
    rules: &Rules,
    save: &mut dyn FnMut(&Run) -> anyhow::Result<()>,
) -> anyhow::Result<Run> {
    let claims: Vec<Claim> = durability::claims(&plan.cells)
        .into_iter()
        .filter(|claim| find(engines, &claim.engine).is_some())
        .collect();
    let traced = traced_cells(plan, engines);
    let trials = plan.cells.len() * rules.repeats as usize;
    let passes =
        claims.iter().map(|claim| durability::passes(claim, rules.quick).len()).sum::<usize>()
            + traced.len();
    let cells = plan
        .cells
        .iter()
        .map(|cell| CellResult { cell: cell.clone(), trials: Vec::new(), traced: None })
        .collect();
    let mut runner = Runner {
        engines,
        rules,
        progress: Progress::begin(rules.verbosity, (trials + passes) as u64),
        estimate: Estimate::new(&plan.cells, rules.repeats),
        watch: Watch::begin(),
        run: Run { cells, ..Run::default() },
        save,
        saved: None,
    };
    let all_done = runner.prove(&claims)? && runner.measure()? && runner.trace(&traced)?;
    runner.progress.finish();
    runner.run.interrupted = !all_done;
    (runner.save)(&runner.run)?;
    Ok(runner.run)
}

fn find<'a>(engines: &'a [Entry], name: &str) -> Option<&'a Kind> {
    engines.iter().find(|entry| entry.name == name).and_then(Entry::engine)
}

/// The cells of which a chart shows system calls, as far as their engine is here.
fn traced_cells(plan: &Plan, engines: &[Entry]) -> Vec<usize> {
    let shown: Vec<&str> = plan
        .charts
        .iter()
        .filter(|chart| chart.frame.metric == Metric::SystemCalls)
        .flat_map(|chart| &chart.series)
        .flat_map(|series| &series.points)
        .map(|point| point.cell.as_str())
        .collect();
    let is_shown = |cell: &Cell| shown.contains(&cell.id.as_str());
    let is_here = |cell: &Cell| find(engines, &cell.engine).is_some();
    (0..plan.cells.len())
        .filter(|&index| is_shown(&plan.cells[index]) && is_here(&plan.cells[index]))
        .collect()
}

/// What one trial or pass does.
struct Task<'a> {
    engine: &'a str,
    settings: &'a Settings,
    workload: &'a Workload,
    medium: &'a Path,
}

/// How one trial or pass ended.
enum Outcome<T> {
    Done(T),
    Failed { why: String, hung: bool },
    Interrupted,
}

/// A proof is a few hundred commits: one that takes longer than this does not end.
const PROOF_LIMIT: Duration = Duration::from_secs(120);

/// How often results are saved while a plan is run.
const SAVE_EVERY: Duration = Duration::from_secs(10);

struct Runner<'a> {
    engines: &'a [Entry],
    rules: &'a Rules,
    progress: Progress,
    estimate: Estimate,
    watch: Watch,
    run: Run,
    save: &'a mut dyn FnMut(&Run) -> anyhow::Result<()>,
    /// When results were last saved.
    saved: Option<Instant>,
}

impl Runner<'_> {
    /// Puts claims to the proof; false if interrupted.
    fn prove(&mut self, claims: &[Claim]) -> anyhow::Result<bool> {
        for claim in claims {
            for pass in durability::passes(claim, self.rules.quick) {
                let what = format!("proof of {} {}", claim.engine, claim.settings);
                self.progress.begins(&what, self.estimate.left());
                let Some(proof) = self.prove_once(claim, &pass) else { return Ok(false) };
                let outcome = match &proof {
                    None => "not applicable",
                    Some(proof) => &proof.why,
                };
                self.progress.ends(&what, outcome, self.estimate.left());
                self.run.proofs.extend(proof);
                self.save_now_and_then()?;
            }
        }
        Ok(true)
    }

    /// One pass: none if interrupted, nothing in it if the pass does not apply.
    fn prove_once(&self, claim: &Claim, pass: &proof::Load) -> Option<Option<Proof>> {
        let workload = durability::workload(pass);
        let task = Task {
            engine: &claim.engine,
            settings: &claim.settings,
            workload: &workload,
            medium: &claim.medium,
        };
        match self.follow(&task, self.rules.limit.min(PROOF_LIMIT)) {
            Outcome::Done((answer, traced)) => Some(Proof::of(claim, pass, &answer, &traced)),
            Outcome::Failed { why, .. } => Some(Some(Proof::refused(claim, pass, &why))),
            Outcome::Interrupted => None,
        }
    }

    /// Measures every cell as often as asked; false if interrupted.
    fn measure(&mut self) -> anyhow::Result<bool> {
        let mut order: Vec<usize> = (0..self.run.cells.len()).collect();
        let mut hung = vec![false; order.len()];
        let mut position = 0;
        // The first trial is saved at once: a file that cannot be written is noticed early.
        self.saved = None;
        for round in 0..self.rules.repeats {
            Dice::new(self.rules.seed, u64::from(round)).shuffle(&mut order);
            for &index in &order {
                if hung[index] {
                    self.progress.skip(1);
                    continue;
                }
                let cell = self.run.cells[index].cell.clone();
                let what = format!("{} ({})", cell.label, cell.id);
                self.progress.begins(&what, self.estimate.left());
                let mut disturbance = self.watch.look();
                let begun = Instant::now();
                let answer = match self.try_cell(&cell, index) {
                    Outcome::Done(answer) => answer,
                    Outcome::Failed { why, hung: it_hung } => {
                        hung[index] = it_hung;
                        Answer::Failed { why }
                    }
                    Outcome::Interrupted => return Ok(false),
                };
                disturbance.steal_during = Some(self.watch.look().steal);
                self.estimate.record(index, begun.elapsed());
                if hung[index] {
                    self.estimate.give_up(index);
                }
                self.progress.ends(&what, &in_brief(&answer), self.estimate.left());
                self.run.cells[index].trials.push(Trial { position, disturbance, answer });
                position += 1;
                self.save_now_and_then()?;
            }
        }
        Ok(true)
    }

    /// Traces cells once each; false if interrupted.
    fn trace(&mut self, cells: &[usize]) -> anyhow::Result<bool> {
        for &index in cells {
            let cell = self.run.cells[index].cell.clone();
            let what = format!("system calls of {} ({})", cell.label, cell.id);
            self.progress.begins(&what, self.estimate.left());
            let outcome = match self.follow(&Task::of(&cell), self.rules.limit) {
                Outcome::Done((Answer::Done(_), traced)) => {
                    let calls = format!("{:.1} each", traced.per_operation().unwrap_or(0.0));
                    self.run.cells[index].traced = Some(traced);
                    calls
                }
                Outcome::Done((answer, _)) => in_brief(&answer),
                Outcome::Failed { why, .. } => why,
                Outcome::Interrupted => return Ok(false),
            };
            self.progress.ends(&what, &outcome, self.estimate.left());
            self.save_now_and_then()?;
        }
        Ok(true)
    }

    /// One trial of a cell.
    fn try_cell(&self, cell: &Cell, index: usize) -> Outcome<Answer> {
        if find(self.engines, &cell.engine).is_none() {
            let why = format!("{} is absent", cell.engine);
            return Outcome::Done(Answer::NotApplicable { why });
        }
        // A cell that was measured before and now takes ten times as long is not going to end.
        let limit = match self.estimate.longest(index) {
            Some(longest) => self.rules.limit.min((longest * 10).max(Duration::from_secs(60))),
            None => self.rules.limit,
        };
        match self.start(trial::COMMAND, &Task::of(cell), limit) {
            Outcome::Done(text) => match serde_json::from_str(&text) {
                Ok(Answer::Failed { why }) => {
                    Outcome::Done(Answer::Failed { why: with_fullness(why, &cell.medium) })
                }
                Ok(answer) => Outcome::Done(answer),
                Err(_) => Outcome::Failed { why: unreadable(&text), hung: false },
            },
            Outcome::Failed { why, hung } => {
                Outcome::Failed { why: with_fullness(why, &cell.medium), hung }
            }
            Outcome::Interrupted => Outcome::Interrupted,
        }
    }

    /// One traced trial.
    fn follow(&self, task: &Task<'_>, limit: Duration) -> Outcome<(Answer, Traced)> {
        if let Tracing::Refused(why) = &self.rules.tracing {
            return Outcome::Failed { why: why.clone(), hung: false };
        }
        match self.start(trace::COMMAND, task, limit) {
            Outcome::Done(text) => match serde_json::from_str(&text) {
                Ok(trace::Report::Followed { answer, traced }) => Outcome::Done((answer, traced)),
                Ok(trace::Report::Refused { why }) => Outcome::Failed { why, hung: false },
                Err(_) => Outcome::Failed { why: unreadable(&text), hung: false },
            },
            Outcome::Failed { why, hung } => Outcome::Failed { why, hung },
            Outcome::Interrupted => Outcome::Interrupted,
        }
    }

    /// Starts one of the hidden commands in a fresh directory; what it wrote to its standard output.
    fn start(&self, command: &str, task: &Task<'_>, limit: Duration) -> Outcome<String> {
        if interrupt::requested() {
            return Outcome::Interrupted;
        }
        match self.try_start(command, task, limit) {
            Ok(Ending::Answered(text)) => Outcome::Done(text),
            Ok(Ending::Failed { why, hung }) => Outcome::Failed { why, hung },
            Ok(Ending::Interrupted) => Outcome::Interrupted,
            Err(error) => Outcome::Failed { why: format!("{error:#}"), hung: false },
        }
    }

    fn try_start(&self, command: &str, task: &Task<'_>, limit: Duration) -> anyhow::Result<Ending> {
        let engine = find(self.engines, task.engine)
            .with_context(|| format!("{} is absent", task.engine))?;
        let directory = fresh_directory(task.medium)?;
        let temporary = fresh_directory(&std::env::temp_dir())?;
        let spec = Spec {
            engine: engine.clone(),
            settings: task.settings.clone(),
            workload: task.workload.clone(),
            directory: directory.path().canonicalize()?,
            seed: self.rules.seed,
        };
        let start = Start {
            program: &self.rules.program,
            command,
            input: &serde_json::to_vec(&spec)?,
            temporary: temporary.path(),
            directory: &spec.directory,
            limit,
        };
        let ending = start.run();
        for folder in [directory, temporary] {
            let path = folder.path().to_owned();
            folder.close().with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(ending)
    }

    fn save_now_and_then(&mut self) -> anyhow::Result<()> {
        if self.saved.is_some_and(|saved| saved.elapsed() < SAVE_EVERY) {
            return Ok(());
        }
        // Until the end it counts as interrupted: that is what a file left by a kill -9 is.
        self.run.interrupted = true;
        (self.save)(&self.run)?;
        self.run.interrupted = false;
        self.saved = Some(Instant::now());
        Ok(())
    }
}

impl<'a> Task<'a> {
    fn of(cell: &'a Cell) -> Self {
        Self {
            engine: &cell.engine,
            settings: &cell.settings,
            workload: &cell.workload,
            medium: &cell.medium,
        }
    }
}

fn unreadable(text: &str) -> String {
    let begin: String = text.chars().take(200).collect();
    format!("its answer cannot be read; an engine may have written to standard output: {begin}")
}

/// What went wrong, with the likely reason where the medium is full.
fn with_fullness(why: String, medium: &Path) -> String {
    match preflight::fullness(medium) {
        Some(fullness) => format!("{why}; {fullness}"),
        None => why,
    }
}

/// A new directory, which a server that runs as another user may enter.
fn fresh_directory(medium: &Path) -> anyhow::Result<TempDir> {
    let what = || format!("cannot make a directory in {}", medium.display());
    let directory =
        tempfile::Builder::new().prefix("plait-bench-").tempdir_in(medium).with_context(what)?;
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o711))
        .with_context(what)?;
    Ok(directory)
}
