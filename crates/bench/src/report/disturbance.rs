//! What disturbed a run: processor time that the hypervisor gave to others, trial by trial.

use super::numbers::figure;
use super::results::{CellResult, Results};

/// Part of the processor time given to others, from which on a trial is called disturbed.
pub const STEAL_HIGH: f64 = 0.05;

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
    let all = || results.cells.iter().flat_map(|c| &c.trials).map(|t| &t.disturbance);
    let load = all().map(|d| d.load).fold(0.0, f64::max);
    let mut stolen: Vec<f64> = all().map(|d| d.stolen()).collect();
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
