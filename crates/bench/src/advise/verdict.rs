//! What the measurements say.
//!
//! The candidates that were done, verified and, where a power cut must be survived, proven durable are ranked by the
//! median of their commits a second. The best is advised only if it is apart from every other: enough trials of both, and
//! intervals that do not overlap ([`are_apart`]). Otherwise nothing is advised: all that cannot be told from the best are
//! named as its equals, and what would have to be run to tell.

use crate::engines::Settings;
use crate::measure::statistics::Median;
use crate::report::results::{CellResult, Results};
use crate::report::standing::are_apart;

/// A candidate that can be advised.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// What it is called.
    pub label: String,
    /// How it is set up.
    pub settings: Settings,
    /// Commits a second.
    pub rate: Median,
    /// Median and 99th percentile of the time from begin to commit, in milliseconds, over all trials.
    pub latency_ms: Option<(f64, f64)>,
    /// Transactions that were repeated.
    pub refusals: u64,
    /// Repeated transactions by those that were done.
    pub refused: f64,
}

/// A candidate that cannot be, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excluded {
    /// What it is called.
    pub label: String,
    /// The reason.
    pub why: String,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// From the best down.
    pub ranked: Vec<Ranked>,
    /// How many of the first cannot be told apart from the best, itself included.
    pub equals: usize,
    /// What was measured and does not count.
    pub excluded: Vec<Excluded>,
}

/// Draws it.
#[must_use]
pub fn draw(results: &Results) -> Verdict {
    let mut verdict = Verdict::default();
    for result in &results.cells {
        match judge(results, result) {
            Ok(ranked) => verdict.ranked.push(ranked),
            Err(why) => verdict.excluded.push(Excluded { label: result.cell.label.clone(), why }),
        }
    }
    verdict.ranked.sort_by(|a, b| b.rate.median.total_cmp(&a.rate.median));
    if let Some(best) = verdict.ranked.first().map(|best| best.rate) {
        verdict.equals = apart_first(&mut verdict.ranked, &best);
    }
    verdict
}

/// Moves those that cannot be told from the best ahead of the others, both in the order of their medians; how many they
/// are. A wide interval further down reaches into the best's as well.
fn apart_first(ranked: &mut [Ranked], best: &Median) -> usize {
    let is_apart = |r: &Ranked| r.rate != *best && are_apart(&r.rate, best);
    ranked.sort_by_key(is_apart);
    ranked.iter().filter(|r| !is_apart(r)).count()
}

fn judge(results: &Results, result: &CellResult) -> Result<Ranked, String> {
    let figures = figures(result)?;
    match results.unranked(&result.cell) {
        Some(why) => Err(why),
        None => Ok(figures),
    }
}

/// The figures of a cell, whether or not its durability was shown.
///
/// # Errors
/// Why there is nothing: a trial that failed, or none that was done.
pub fn figures(result: &CellResult) -> Result<Ranked, String> {
    if let Some(why) = result.trials.iter().find_map(|trial| trial.answer.reason()) {
        return Err(why.to_owned());
    }
    let rates: Vec<f64> = result.phases(None).map(|phase| phase.rate()).collect();
    let rate = Median::of(&rates).ok_or_else(|| "interrupted before it was measured".to_owned())?;
    let (mut done, mut refused) = (0, 0);
    let mut latency: Option<hdrhistogram::Histogram<u64>> = None;
    for phase in result.phases(None) {
        done += phase.acknowledged();
        refused += phase.refusals.total();
        let Some(part) = phase.latency.as_ref().and_then(|text| text.histogram().ok()) else {
            continue;
        };
        match &mut latency {
            None => latency = Some(part),
            Some(sum) => sum.add(&part).map_err(|error| error.to_string())?,
        }
    }
    Ok(Ranked {
        label: result.cell.label.clone(),
        settings: result.cell.settings.clone(),
        rate,
        latency_ms: latency.map(|sum| {
            (sum.value_at_quantile(0.5) as f64 / 1e6, sum.value_at_quantile(0.99) as f64 / 1e6)
        }),
        refusals: refused,
        refused: if done > 0 { refused as f64 / done as f64 } else { 0.0 },
    })
}
