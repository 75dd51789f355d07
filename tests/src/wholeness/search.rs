//! Runs cases in worker processes, and makes a failing one smaller.

use super::Case;
use super::generate::generate;
use super::switch::{Switch, VARIABLE};
use super::trial::Tally;
use crate::differential::shrink::scratch;
use crate::job::{Ending, Job, Work};
use crate::jobs::wholeness::{Cases, Report, Source};
use crate::place::Place;
use crate::subject::Subject;
use std::path::Path;
use std::time::{Duration, Instant};

/// A case takes at most so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a worker has come to: its tally, and the seed that failed, with what is wrong.
type Found = (Tally, Option<(u64, String)>);

fn run(source: Source, scratch: &Path, patience: Duration) -> Found {
    let switch = scratch.join("switch");
    Switch::create(&switch).unwrap_or_else(|error| panic!("{error:#}"));
    let work = Work::Wholeness(Cases { stock: Subject::stock(), source });
    let plait = Subject::plait_with_crash_points();
    let job = Job { subject: plait, database: scratch.to_owned(), work };
    let switch = switch.to_str().expect("a path of this machine");
    let running = job.start_with_environment(Place::Processes, &[(VARIABLE, switch)]);
    let (mut tally, mut seed) = (Tally::default(), 0);
    let (reports, ending) = match running.wait::<Report>(patience) {
        Ok(outcome) => outcome,
        Err(error) => return (tally, Some((seed, format!("{error:#}")))),
    };
    let mut wrong = None;
    for report in reports {
        match report {
            Report::Running(now) => seed = now,
            Report::Sound(more) => tally += more,
            Report::Failed(what) => wrong = Some(what),
        }
    }
    let wrong = wrong.or(match ending {
        Ending::Done(_) => None,
        Ending::Failed(message) => Some(message),
        Ending::Died(status) => Some(format!("the worker died: {status}")),
    });
    (tally, wrong.map(|wrong| (seed, wrong)))
}

/// Runs cases one after the other until `time` is over.
///
/// # Panics
/// At the first failure, with the seed, the shrunk case and what is wrong.
#[must_use]
pub fn search(first: u64, time: Duration) -> Tally {
    judged(Source::Seeds { first, time }, time + PATIENCE)
}

/// Runs the case of one seed.
///
/// # Panics
/// As [`search`].
#[must_use]
pub fn replay(seed: u64) -> Tally {
    judged(Source::Case(Box::new(generate(seed))), PATIENCE)
}

fn judged(source: Source, patience: Duration) -> Tally {
    let scratch = scratch();
    let (tally, failed) = run(source, scratch.path(), patience);
    if let Some((seed, wrong)) = failed {
        let (case, wrong) = shrink(generate(seed), wrong, scratch.path());
        panic!("seed {seed}: {wrong}\n{}", case.render());
    }
    tally
}

/// All cases that have one thing less.
fn smaller(case: &Case) -> Vec<Case> {
    let mut all = Vec::new();
    for index in 0..case.before.len() {
        let mut less = case.clone();
        if !less.before.remove(index).is("SAVEPOINT s") {
            all.push(less);
        }
    }
    for index in 0..case.recent.len() {
        let mut less = case.clone();
        less.recent.remove(index);
        all.push(less);
    }
    for index in 0..case.merged.len() {
        let mut less = case.clone();
        less.merged.remove(index);
        all.push(less);
    }
    all
}

/// Takes one thing after the other away as long as something is wrong.
fn shrink(mut case: Case, mut wrong: String, scratch: &Path) -> (Case, String) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let still_wrong = smaller(&case).into_iter().find_map(|less| {
            let source = Source::Case(Box::new(less.clone()));
            let found = (Instant::now() < end).then(|| run(source, scratch, PATIENCE).1)?;
            found.map(|(_, wrong)| (less, wrong))
        });
        let Some(less) = still_wrong else { return (case, wrong) };
        (case, wrong) = less;
    }
}
