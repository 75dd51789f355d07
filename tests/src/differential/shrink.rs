//! Runs scripts in worker processes, and makes a failing one smaller.

use super::Script;
use super::generate::generate;
use super::run::Mismatch;
use crate::job::{Ending, Job, Work};
use crate::jobs::differential::{Report, Seeds, Source};
use crate::place::Place;
use crate::subject::Subject;
use std::path::Path;
use std::time::{Duration, Instant};

/// A directory for scripts: in memory where the system has one, because scripts test no durability.
///
/// # Panics
/// If no directory can be made.
#[must_use]
pub fn scratch() -> tempfile::TempDir {
    let prefix = "plait-differential-";
    let in_memory = tempfile::Builder::new().prefix(prefix).tempdir_in("/dev/shm");
    let made = in_memory.or_else(|_| tempfile::Builder::new().prefix(prefix).tempdir());
    made.expect("a temporary directory can be made")
}

/// How a script failed.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The two sides differed.
    Mismatch(Mismatch),
    /// The worker died, hung, or could not go on.
    Broken(String),
}

impl Failure {
    fn is_like(&self, other: &Self) -> bool {
        matches!(
            (self, other),
            (Self::Mismatch(_), Self::Mismatch(_)) | (Self::Broken(_), Self::Broken(_))
        )
    }
}

/// Both sides of a differential run and a place for their files.
#[derive(Clone, Debug)]
pub struct Bench<'a> {
    /// The oracle.
    pub stock: &'a Subject,
    /// The library under test.
    pub plait: &'a Subject,
    /// Scratch directory.
    pub scratch: &'a Path,
}

impl Bench<'_> {
    /// Runs consecutive seeds in one worker; the first failure and its seed.
    #[must_use]
    pub fn seeds(
        &self,
        first: u64,
        count: u64,
        length: usize,
        patience: Duration,
    ) -> Option<(u64, Failure)> {
        self.run(Source::Seeds { first, count, length }, first, patience)
    }

    /// Runs one script in a worker.
    #[must_use]
    pub fn script(&self, script: &Script, patience: Duration) -> Option<Failure> {
        self.run(Source::Scripts(vec![script.clone()]), script.seed, patience)
            .map(|(_, failure)| failure)
    }

    /// Runs several scripts in one worker; the first failure, with the place of its script.
    #[must_use]
    pub fn scripts(&self, scripts: &[Script], patience: Duration) -> Option<(usize, Failure)> {
        let numbered =
            scripts.iter().zip(0..).map(|(script, seed)| Script { seed, ..script.clone() });
        let source = Source::Scripts(numbered.collect());
        let (seed, failure) = self.run(source, 0, patience)?;
        Some((usize::try_from(seed).expect("a place in a list"), failure))
    }

    fn run(&self, source: Source, first: u64, patience: Duration) -> Option<(u64, Failure)> {
        let work = Work::Differential(Seeds { stock: self.stock.clone(), source });
        let job = Job { subject: self.plait.clone(), database: self.scratch.to_owned(), work };
        let mut current = first;
        let (reports, ending) = match job.start(Place::Processes).wait::<Report>(patience) {
            Ok(outcome) => outcome,
            Err(error) => return Some((current, Failure::Broken(format!("{error:#}")))),
        };
        for report in reports {
            match report {
                Report::Running(seed) => current = seed,
                Report::Failed(seed, mismatch) => return Some((seed, Failure::Mismatch(mismatch))),
            }
        }
        match ending {
            Ending::Done(_) => None,
            Ending::Failed(message) => Some((current, Failure::Broken(message))),
            Ending::Died(status) => {
                Some((current, Failure::Broken(format!("the worker died: {status}"))))
            }
        }
    }

    /// Whether a script that breaks the worker does so with stock SQLite on both sides.
    fn stock_breaks_too(&self, seed: u64, length: usize, failure: &Failure) -> bool {
        let both = Bench { plait: self.stock, ..self.clone() };
        matches!(failure, Failure::Broken(_))
            && both.script(&generate(seed, length), Duration::from_secs(60)).is_some()
    }

    /// Makes a failing script smaller for as long as `budget` lasts, and returns it with how it fails now.
    #[must_use]
    pub fn shrink(&self, script: &Script, failure: Failure, budget: Duration) -> (Script, Failure) {
        let end = Instant::now() + budget;
        let (mut best, mut how) = (script.clone(), failure);
        if let Failure::Mismatch(mismatch) = &how {
            let kept = (mismatch.step + 1).min(best.steps.len());
            let mut cut = best.clone();
            cut.steps.truncate(kept);
            if let Some(failure) = self.script(&cut, Duration::from_secs(60)) {
                (best, how) = (cut, failure);
            }
        }
        let mut piece = best.steps.len().div_ceil(2).max(1);
        loop {
            let mut position = 0;
            let mut removed = false;
            while position < best.steps.len() && Instant::now() < end {
                let mut smaller = best.clone();
                let stop = (position + piece).min(smaller.steps.len());
                smaller.steps.drain(position..stop);
                match self.script(&smaller, Duration::from_secs(30)) {
                    Some(failure) if failure.is_like(&how) => {
                        (best, how) = (smaller, failure);
                        removed = true;
                    }
                    _ => position += piece,
                }
            }
            if Instant::now() >= end || (piece == 1 && !removed) {
                return (best, how);
            }
            piece = if removed { piece } else { piece.div_ceil(2) }.max(1);
        }
    }
}

/// What was run on both sides with equal results.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Scripts.
    pub scripts: u64,
    /// Their steps: statements, and what goes with them.
    pub steps: u64,
}

/// Runs seeds one batch after the other until `time` is over; panics with a small script at the first failure.
///
/// # Panics
/// At the first failure, with the seed, the shrunk script and what each side did.
#[must_use]
pub fn search(bench: &Bench<'_>, first: u64, length: usize, time: Duration) -> Tally {
    const BATCH: u64 = 10;
    let end = Instant::now() + time;
    let mut seed = first;
    let mut tally = Tally::default();
    while Instant::now() < end {
        let found = bench.seeds(seed, BATCH, length, Duration::from_secs(240));
        let Some((failed, failure)) = found else {
            let steps = |seed| generate(seed, length).steps.len() as u64;
            tally.steps += (seed..seed + BATCH).map(steps).sum::<u64>();
            tally.scripts += BATCH;
            seed += BATCH;
            continue;
        };
        if !bench.stock_breaks_too(failed, length, &failure) {
            panic!("{}", report(bench, failed, length, failure));
        }
        eprintln!("seed {failed}, length {length}: stock SQLite breaks on it too: {failure:?}");
        seed = failed + 1;
    }
    tally
}

/// Shrinks a failing seed and tells everything about it; saves the script for replay.
#[must_use]
pub fn report(bench: &Bench<'_>, seed: u64, length: usize, failure: Failure) -> String {
    let script = generate(seed, length);
    let (small, how) = bench.shrink(&script, failure, Duration::from_secs(120));
    let saved = std::env::temp_dir().join(format!("plait-differential-{seed}-{length}.json"));
    let json = serde_json::to_string(&small).expect("a script can be written");
    let place = match std::fs::write(&saved, json) {
        Ok(()) => format!("torture differential --replay {}", saved.display()),
        Err(error) => format!("(not saved: {error})"),
    };
    let story = match how {
        Failure::Mismatch(Mismatch { step, stock, plait }) => {
            format!("at step {step}\nstock: {stock}\nplait: {plait}")
        }
        Failure::Broken(message) => message,
    };
    format!("seed {seed}, length {length}: {story}\n{}\nreplay: {place}", small.render())
}
