//! From results to what charts and tables show: the one place that turns trials into figures.
//!
//! The terminal, the page, the comparison and the tables for documents all show what is made here.
//!
//! 1. A place (a series at an x) with a failed trial, or with a durability that was claimed and not proven, is listed
//!    with the reason and never ranked.
//! 2. A cell of another mode than its chart's is not shown in it, nor are published figures in a modern chart.
//! 3. An absent engine keeps its series, with the reason and the command that installs it.

use serde::Serialize;

use super::details::Details;
use super::disturbance;
use super::metric::Better;
use super::results::{CellResult, Results};
use crate::engines::Durability;
use crate::engines::catalogue::Presence;
use crate::measure::phase::Phase;
use crate::measure::statistics::Median;
use crate::measure::trial::Answer;
use crate::studies::{Chart, Frame, Metric, Mode, Point, Published, Series, Tuning, X};

/// A chart with its figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluated {
    /// What it is.
    #[serde(flatten)]
    pub frame: Frame,
    /// Unit of the figures.
    pub unit: &'static str,
    /// Which way is better.
    pub better: Option<Better>,
    /// All places on the horizontal axis: numbers in their order, categories in that of their first appearance.
    pub xs: Vec<X>,
    /// Measured.
    pub series: Vec<Line>,
    /// Published.
    pub published: Vec<Published>,
}

/// A series with its figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// What it is called.
    pub label: String,
    /// Its engine.
    pub engine: String,
    /// Why there is nothing of it, if its engine is not here.
    pub absent: Option<Absent>,
    /// Its figures.
    pub places: Vec<Place>,
}

/// Why an engine was not measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Absent {
    /// What was looked for and not found.
    pub why: String,
    /// The one command that helps.
    pub install: String,
}

/// What came of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// There are figures.
    Measured,
    /// Every trial failed.
    Failed,
    /// The engine has no such operation or setting.
    NotApplicable,
    /// No trial was done: the run was interrupted, or the cell or its phase is not in the results.
    NotMeasured,
}

/// A series at an x.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Place {
    /// Where.
    pub x: X,
    /// Id of its cell.
    pub cell: String,
    /// Whether there are figures.
    pub state: State,
    /// Why there are none, or which trials failed.
    pub why: Option<String>,
    /// The figure in the chart's unit; of a distribution, its 99th percentile.
    pub value: Option<Median>,
    /// Of a distribution: the figure at each percentile.
    pub curve: Vec<AtPercentile>,
    /// Trials that were begun.
    pub trials: usize,
    /// How many of them failed.
    pub failed: usize,
    /// Why it is listed and not ranked.
    pub unranked: Option<String>,
    /// Whether an open loop could not keep up in any trial.
    pub saturated: bool,
    /// The greatest part of the processor time that others got in one of its trials, if that was much.
    pub stolen: Option<f64>,
    /// What a commit is claimed to survive; none if the cell is not in the results.
    pub durability: Option<Durability>,
    /// Defaults or tuned, by the rule of today: results of older versions were tagged by hand.
    pub tuning: Option<Tuning>,
    /// What else was measured.
    pub details: Details,
}

/// A point of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AtPercentile {
    /// 0 to 100; 100 is the slowest.
    pub percentile: f64,
    /// Microseconds.
    pub value: Median,
}

/// Percentiles of the curves.
const PERCENTILES: [f64; 13] =
    [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99, 100.0];

/// The percentile that stands for a distribution where one figure must.
pub const TYPICAL_PERCENTILE: f64 = 99.0;

/// All charts of a run, in its order.
#[must_use]
pub fn evaluate(results: &Results) -> Vec<Evaluated> {
    results.charts.iter().map(|chart| one(chart, results)).collect()
}

fn one(chart: &Chart, results: &Results) -> Evaluated {
    let series: Vec<Line> = chart.series.iter().map(|s| line(chart, s, results)).collect();
    let published = match chart.frame.mode {
        Mode::Historical => chart.published.clone(),
        Mode::Modern => Vec::new(),
    };
    Evaluated {
        frame: chart.frame.clone(),
        unit: chart.frame.metric.unit(),
        better: chart.frame.metric.better(),
        xs: places_on_axis(&series, &published),
        series,
        published,
    }
}

fn places_on_axis(series: &[Line], published: &[Published]) -> Vec<X> {
    let measured = series.iter().flat_map(|line| &line.places).map(|place| &place.x);
    let mut xs: Vec<X> = Vec::new();
    for x in measured.chain(published.iter().flat_map(|p| &p.points).map(|(x, _)| x)) {
        if !xs.contains(x) {
            xs.push(x.clone());
        }
    }
    // Stable, so that categories stay as they came, behind all numbers.
    xs.sort_by(|a, b| match (a, b) {
        (X::Number(a), X::Number(b)) => a.total_cmp(b),
        (X::Number(_), X::Category(_)) => std::cmp::Ordering::Less,
        (X::Category(_), X::Number(_)) => std::cmp::Ordering::Greater,
        (X::Category(_), X::Category(_)) => std::cmp::Ordering::Equal,
    });
    xs
}

fn line(chart: &Chart, series: &Series, results: &Results) -> Line {
    let entry = results.engines.iter().find(|entry| entry.name == series.engine);
    let absent = entry.and_then(|entry| match &entry.presence {
        Presence::Here { .. } => None,
        Presence::Absent { why, install } => {
            Some(Absent { why: why.clone(), install: install.clone() })
        }
    });
    let places = match absent {
        Some(_) => Vec::new(),
        None => series.points.iter().map(|point| place(chart, point, results)).collect(),
    };
    Line { label: series.label.clone(), engine: series.engine.clone(), absent, places }
}

fn place(chart: &Chart, point: &Point, results: &Results) -> Place {
    let nothing = |why: String| Place {
        x: point.x.clone(),
        cell: point.cell.clone(),
        state: State::NotMeasured,
        why: Some(why),
        value: None,
        curve: Vec::new(),
        trials: 0,
        failed: 0,
        unranked: None,
        saturated: false,
        stolen: None,
        durability: None,
        tuning: None,
        details: Details::default(),
    };
    let Some(result) = results.cell(&point.cell) else {
        return nothing(format!("{} is not in the results", point.cell));
    };
    if result.cell.mode != chart.frame.mode {
        return nothing("its cell is of another mode than the chart".to_owned());
    }
    let phases: Vec<&Phase> = result.phases(point.phase.as_deref()).collect();
    let curve = if chart.frame.metric == Metric::Latency { curve(&phases) } else { Vec::new() };
    let value = value(chart.frame.metric, result, &phases, &curve);
    let failures: Vec<&str> = result.trials.iter().filter_map(|t| failure(&t.answer)).collect();
    let (state, why) = state(result, value.is_some(), &failures);
    let unranked = match failures.len() {
        0 => results.unranked(&result.cell),
        some => Some(format!("{some} of {} trials failed", result.trials.len())),
    };
    Place {
        state,
        why,
        value,
        curve,
        trials: result.trials.len(),
        failed: failures.len(),
        unranked,
        saturated: phases.iter().any(|phase| phase.is_saturated()),
        stolen: disturbance::of_cell(result),
        durability: Some(result.cell.durability),
        tuning: Some(Tuning::of(&result.cell.settings)),
        details: Details::of(result, &phases),
        ..nothing(String::new())
    }
}

fn failure(answer: &Answer) -> Option<&str> {
    match answer {
        Answer::Failed { why } => Some(why),
        Answer::Done(_) | Answer::NotApplicable { .. } => None,
    }
}

/// What came of the trials, and why.
fn state(result: &CellResult, has_value: bool, failures: &[&str]) -> (State, Option<String>) {
    let not_applicable = result.trials.iter().find_map(|trial| match &trial.answer {
        Answer::NotApplicable { why } => Some(why.clone()),
        Answer::Done(_) | Answer::Failed { .. } => None,
    });
    let failed = (!failures.is_empty()).then(|| different(failures).join("; "));
    if has_value {
        (State::Measured, failed)
    } else if failed.is_some() {
        (State::Failed, failed)
    } else if not_applicable.is_some() {
        (State::NotApplicable, not_applicable)
    } else if result.trials.is_empty() {
        (State::NotMeasured, Some("the run ended before its turn".to_owned()))
    } else {
        (State::NotMeasured, Some("its trials have no such figure".to_owned()))
    }
}

/// Each text once, in order.
fn different<'a>(texts: &[&'a str]) -> Vec<&'a str> {
    let mut seen: Vec<&str> = Vec::new();
    for text in texts {
        if !seen.contains(text) {
            seen.push(text);
        }
    }
    seen
}

fn value(
    metric: Metric,
    result: &CellResult,
    phases: &[&Phase],
    curve: &[AtPercentile],
) -> Option<Median> {
    match metric {
        Metric::SystemCalls => Median::of(&[result.traced.as_ref()?.per_operation()?]),
        Metric::Latency => {
            curve.iter().rfind(|at| at.percentile <= TYPICAL_PERCENTILE).map(|at| at.value)
        }
        _ => {
            let values: Vec<f64> = phases.iter().filter_map(|phase| metric.of(phase)).collect();
            Median::of(&values)
        }
    }
}

/// The distribution of latencies: at each percentile the median of the trials. Percentiles that too few operations
/// reach are left out, but for the slowest operation.
fn curve(phases: &[&Phase]) -> Vec<AtPercentile> {
    let histograms: Vec<_> =
        phases.iter().filter_map(|p| p.latency.as_ref()?.histogram().ok()).collect();
    let fewest = histograms.iter().map(hdrhistogram::Histogram::len).min().unwrap_or(0) as f64;
    PERCENTILES
        .into_iter()
        .filter(|percentile| *percentile == 100.0 || fewest * (100.0 - percentile) >= 100.0)
        .filter_map(|percentile| {
            let microseconds: Vec<f64> = histograms
                .iter()
                .filter(|histogram| !histogram.is_empty())
                .map(|histogram| histogram.value_at_percentile(percentile) as f64 / 1e3)
                .collect();
            Some(AtPercentile { percentile, value: Median::of(&microseconds)? })
        })
        .collect()
}

impl Place {
    /// Its figure, if it may be ranked.
    #[must_use]
    pub fn ranked(&self) -> Option<&Median> {
        self.value.as_ref().filter(|_| self.unranked.is_none())
    }
}

impl Line {
    /// The place at an x, if there is one.
    #[must_use]
    pub fn at(&self, x: &X) -> Option<&Place> {
        self.places.iter().find(|place| place.x == *x)
    }
}

impl std::fmt::Display for X {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Category(name) => f.write_str(name),
        }
    }
}
