//! What disturbed a run: processor time that the hypervisor gave to others, trial by trial, and load.

use super::numbers::figure;
use super::results::{CellResult, Results};
use crate::measure::machine::Disturbance;

/// Part of the processor time given to others, from which on a trial is called disturbed.
pub const STEAL_HIGH: f64 = 0.05;
/// The same, from which on a run that is compared with another is called disturbed.
const COMPARED_STEAL_HIGH: f64 = 0.02;
/// Load for each processor, from which on such a run is called disturbed.
const COMPARED_LOAD_HIGH: f64 = 2.0;

fn all(results: &Results) -> impl Iterator<Item = &Disturbance> {
    results.cells.iter().flat_map(|c| &c.trials).map(|t| &t.disturbance)
}

fn highest_load(results: &Results) -> f64 {
    all(results).map(|d| d.load).fold(0.0, f64::max)
}

/// The greatest part given to others in any trial of a cell, if one was disturbed.
#[must_use]
pub fn of_cell(result: &CellResult) -> Option<f64> {
    let greatest = result.trials.iter().map(|t| t.disturbance.stolen()).fold(0.0, f64::max);
    (greatest > STEAL_HIGH).then_some(greatest)
}

/// What disturbed a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Trials that were disturbed.
    pub high: usize,
    /// The line for the head of a report.
    pub text: String,
}

/// The disturbance of all trials of a run.
#[must_use]
pub fn of_run(results: &Results) -> Summary {
    let load = highest_load(results);
    let mut stolen: Vec<f64> = all(results).map(|d| d.stolen()).collect();
    stolen.sort_by(f64::total_cmp);
    let (high, trials) = (stolen.iter().filter(|s| **s > STEAL_HIGH).count(), stolen.len());
    let percent = |part: Option<&f64>| figure(100.0 * part.copied().unwrap_or(0.0));
    let text = format!(
        "Disturbance: in {high} of {trials} trials the hypervisor gave more than {} % of the processor time to others \
         (median {} %, at most {} %); load at most {} before a trial.",
        figure(100.0 * STEAL_HIGH),
        percent(stolen.get(trials / 2)),
        percent(stolen.last()),
        figure(load),
    );
    Summary { high, text }
}

/// What makes a run hard to compare with another, if anything does.
#[must_use]
pub fn of_a_compared_run(results: &Results) -> Option<String> {
    let load = highest_load(results);
    let steal = all(results).map(|d| d.stolen()).fold(0.0, f64::max);
    let most = COMPARED_LOAD_HIGH * results.machine.processors.max(1) as f64;
    (steal > COMPARED_STEAL_HIGH || load > most).then(|| {
        let steal = 100.0 * steal;
        format!("load up to {load:.1}, {steal:.1} % of the processor time given to others")
    })
}
