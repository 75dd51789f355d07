//! What the publications themselves read from their figures, beside what the same charts say here.

use serde::Serialize;

use super::evaluate::{Evaluated, Line};
use super::numbers::figure;

/// A sentence of a publication and ours beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// Of what.
    pub of: &'static str,
    /// What was published.
    pub published: &'static str,
    /// What was measured here.
    pub here: String,
}

/// Tests of the file study: id of its chart, what it is called, and how many times as fast files are said to be.
const FILES: [(&str, &str, &str); 3] = [
    ("files/historical/linear", "Linear inserts", "files are 1.8 times as fast as SQLite"),
    ("files/historical/concurrent", "Concurrent inserts", "files are 2.4 times as fast as SQLite"),
    ("files/historical/tasks", "Tasks", "files are 3.3 times as fast as SQLite"),
];

/// All readings of which the charts are there, with figures of both sides.
#[must_use]
pub fn readings(charts: &[Evaluated]) -> Vec<Reading> {
    let chart = |id: &str| charts.iter().find(|chart| chart.frame.id == id);
    let mut all = Vec::new();
    for (id, of, published) in FILES {
        let Some(chart) = chart(id) else { continue };
        let (Some(sqlite), Some(files)) = (line(chart, "stock"), line(chart, "files")) else {
            continue;
        };
        let here = ratios(sqlite, files);
        if let Some(text) = range(here.iter().map(|(_, ratio)| *ratio)) {
            let here = format!("{text} times as fast, over {} runs", here.len());
            all.push(Reading { of, published, here });
        }
    }
    let (rate, cpu) = (chart("writers/historical/throughput"), chart("writers/historical/cpu"));
    if let (Some(rate), Some(cpu)) = (rate, cpu) {
        all.extend(more_work_for_more_cpu(rate, cpu));
    }
    all
}

/// Study D: how much more work Berkeley DB SQL does, and for how much more processor time.
fn more_work_for_more_cpu(rate: &Evaluated, cpu: &Evaluated) -> Option<Reading> {
    let more = |chart: &Evaluated| -> Option<Vec<(f64, f64)>> {
        Some(ratios(line(chart, "bdb-sql")?, line(chart, "stock")?))
    };
    let (work, time) = (more(rate)?, more(cpu)?);
    let says = |of: &[(f64, f64)], threads: &dyn Fn(f64) -> bool| {
        let percent = of.iter().filter(|(x, _)| threads(*x)).map(|(_, r)| 100.0 * (r - 1.0));
        range(percent).map(|text| format!("{text} %"))
    };
    let one = |x: f64| x <= 1.0;
    let many = |x: f64| x > 1.0;
    let part = |words: &str, threads: &dyn Fn(f64) -> bool| {
        let (work, time) = (says(&work, threads)?, says(&time, threads)?);
        Some(format!("{words}: {time} more processor time, {work} more transactions"))
    };
    let parts: Vec<String> =
        [part("1 thread", &one), part("more threads", &many)].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| Reading {
        of: "Berkeley DB SQL beside SQLite",
        published: "about 50 % more processor time for nearly 300 % more transactions",
        here: parts.join("; "),
    })
}

/// The first row of an engine that has figures.
fn line<'a>(chart: &'a Evaluated, engine: &str) -> Option<&'a Line> {
    chart.series.iter().find(|l| l.engine == engine && l.places.iter().any(|p| p.value.is_some()))
}

/// The medians of one row by those of another, where both have one.
fn ratios(above: &Line, below: &Line) -> Vec<(f64, f64)> {
    let pairs = above.places.iter().filter_map(|place| {
        let crate::studies::X::Number(x) = place.x else { return None };
        let (above, below) = (place.value?.median, below.at(&place.x)?.value?.median);
        (below > 0.0).then(|| (x, above / below))
    });
    pairs.collect()
}

/// `1.20 to 3.40`, or one figure; none of nothing.
fn range(values: impl Iterator<Item = f64>) -> Option<String> {
    let values: Vec<f64> = values.collect();
    let least = figure(values.iter().copied().reduce(f64::min)?);
    let most = figure(values.iter().copied().reduce(f64::max)?);
    Some(if least == most { least } else { format!("{least} to {most}") })
}
