//! What stands beside a figure: what it cost, what had to be repeated, and in which settings.

use serde::Serialize;

use super::results::CellResult;
use crate::measure::phase::Phase;
use crate::measure::statistics::Median;

/// Medians over the trials of a place. What was not measured is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Details {
    /// Repeated because somebody else held what was needed, for each 1,000 operations.
    pub busy: Option<f64>,
    /// Repeated because of a conflict, for each 1,000 operations.
    pub conflicts: Option<f64>,
    /// Repeated because of a deadlock, for each 1,000 operations.
    pub deadlocks: Option<f64>,
    /// Calls of the busy handler for each 1,000 operations.
    pub busy_calls: Option<f64>,
    /// Milliseconds slept in the busy handler for each 1,000 operations.
    pub busy_slept_ms: Option<f64>,
    /// Processor microseconds in user mode for each operation.
    pub user_cpu_us: Option<f64>,
    /// Processor microseconds in the kernel for each operation.
    pub system_cpu_us: Option<f64>,
    /// Bytes given to writing system calls for each commit.
    pub bytes_per_commit: Option<f64>,
    /// Writing system calls for each commit.
    pub writes_per_commit: Option<f64>,
    /// System calls for each operation, from the traced pass.
    pub system_calls: Option<f64>,
    /// Commits of the slowest thread by those of the fastest.
    pub fairness: Option<f64>,
    /// Bytes of all files at the end.
    pub file_bytes: Option<f64>,
    /// Bytes of all files while the work went on, where that was looked at.
    pub working_bytes: Option<f64>,
    /// Median latency in microseconds.
    pub p50_us: Option<f64>,
    /// 99th percentile of the latency in microseconds.
    pub p99_us: Option<f64>,
    /// The settings as the engine told them; of the first trial, with a remark if another differs.
    pub settings: String,
    /// What was verified, in words.
    pub verified: String,
}

impl Details {
    /// Of the trials of a cell and one phase of each.
    #[must_use]
    pub fn of(result: &CellResult, phases: &[&Phase]) -> Self {
        let median = |figure: &dyn Fn(&Phase) -> Option<f64>| {
            let values: Vec<f64> = phases.iter().filter_map(|phase| figure(phase)).collect();
            Median::of(&values).map(|m| m.median)
        };
        let each = |figure: &dyn Fn(&Phase) -> f64| {
            median(&|p| (p.operations > 0).then(|| figure(p) / p.operations as f64))
        };
        let each_commit = |figure: &dyn Fn(&Phase) -> f64| {
            median(&|p| (p.commits > 0).then(|| figure(p) / p.commits as f64))
        };
        let latency = |percentile: f64| {
            median(&|p| {
                let histogram = p.latency.as_ref()?.histogram().ok()?;
                let value = histogram.value_at_percentile(percentile);
                (!histogram.is_empty()).then_some(value as f64 / 1e3)
            })
        };
        let measured: Vec<_> = result.trials.iter().filter_map(|t| t.answer.measured()).collect();
        let sizes: Vec<f64> = measured.iter().map(|m| m.file_bytes as f64).collect();
        Self {
            busy: each(&|p| 1e3 * p.refusals.busy as f64),
            conflicts: each(&|p| 1e3 * p.refusals.conflict as f64),
            deadlocks: each(&|p| 1e3 * p.refusals.deadlock as f64),
            busy_calls: each(&|p| 1e3 * p.waits.busy_handler_calls as f64),
            busy_slept_ms: each(&|p| 1e6 * p.waits.busy_handler_slept_s),
            user_cpu_us: each(&|p| 1e6 * p.usage.user_cpu_s),
            system_cpu_us: each(&|p| 1e6 * p.usage.system_cpu_s),
            bytes_per_commit: each_commit(&|p| p.usage.written_bytes as f64),
            writes_per_commit: each_commit(&|p| p.usage.write_calls as f64),
            system_calls: result.traced.as_ref().and_then(|traced| traced.per_operation()),
            fairness: median(&Phase::fairness),
            file_bytes: Median::of(&sizes).map(|m| m.median),
            working_bytes: median(&|p| p.file_bytes.map(|bytes| bytes as f64)),
            p50_us: latency(50.0),
            p99_us: latency(99.0),
            settings: settings(result),
            verified: measured.first().map(|m| m.verified.join("; ")).unwrap_or_default(),
        }
    }
}

fn settings(result: &CellResult) -> String {
    let mut told = result.trials.iter().filter_map(|t| t.answer.measured()).map(|m| &m.settings);
    let Some(first) = told.next() else { return String::new() };
    let remark =
        if told.all(|other| other == first) { "" } else { " (not the same in each trial)" };
    format!("{first}{remark}")
}
