//! A chart as rows and columns of text, for the terminal and for documents.

use super::disturbance::STEAL_HIGH;
use super::evaluate::{Evaluated, Line, Place, State};
use super::metric::Better;
use super::numbers::{figure, interval, spread};
use super::standing::are_apart;
use crate::measure::statistics::Median;
use crate::studies::{Metric, Mode, Study, X};

/// How a cell of a grid is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// A figure.
    Plain,
    /// The best figure of its place, apart from all others by its interval.
    Best,
    /// Of a publication.
    Published,
    /// No figure, or one that is not ranked.
    Doubtful,
    /// Failed.
    Failed,
}

/// Text of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// What it says.
    pub text: String,
    /// How it is to be read.
    pub tone: Tone,
}

/// A chart as a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// What stands over the names of the rows.
    pub corner: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows with their names; as many cells as there are columns.
    pub rows: Vec<(String, Vec<Text>)>,
    /// What marks mean, failures and absent engines, in words.
    pub remarks: Vec<String>,
}

/// Mark of a figure that is not ranked.
const UNRANKED: &str = "?";
/// Mark of a figure with failed trials.
const SOME_FAILED: &str = "!";
/// Mark of an open loop that could not keep up.
const SATURATED: &str = "↓";

/// Mark of a figure in whose trials others got much of the processor.
const DISTURBED: &str = "~";

/// A row or column: its name and its cells, one for each x.
type Strip = (String, Vec<Text>);

/// How the extent of a median is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Half of the interval in percent: `9,612 ±2%`.
    Spread,
    /// The interval: `9,612 (9,480–9,790)`.
    Interval,
}

/// The table of a chart, its intervals in percent.
#[must_use]
pub fn grid(chart: &Evaluated) -> Grid {
    grid_with(chart, Extent::Spread)
}

/// The table of a chart. The first study's historical form has, as published, a line for each test.
#[must_use]
pub fn grid_with(chart: &Evaluated, extent: Extent) -> Grid {
    let mut strips: Vec<Strip> = Vec::new();
    if chart.frame.metric == Metric::Latency {
        return of_distribution(chart, extent);
    }
    let best: Vec<Option<f64>> = chart.xs.iter().map(|x| best(chart, x)).collect();
    for line in &chart.series {
        let cells = chart.xs.iter().zip(&best);
        let cells = cells.map(|(x, best)| cell(line, line.at(x), *best, extent)).collect();
        strips.push((line.label.clone(), cells));
    }
    for published in &chart.published {
        let value = |x: &X| published.points.iter().find(|(at, _)| at == x).map(|(_, v)| *v);
        let text =
            |x| Text { text: value(x).map_or_else(String::new, figure), tone: Tone::Published };
        let cells = chart.xs.iter().map(text).collect();
        strips.push((format!("published: {}", published.label), cells));
    }
    let columns: Vec<String> = chart.xs.iter().map(ToString::to_string).collect();
    let remarks = remarks(chart);
    if chart.frame.study == Study::Kv && chart.frame.mode == Mode::Historical {
        let rows = columns
            .into_iter()
            .enumerate()
            .map(|(i, name)| (name, strips.iter().map(|(_, cells)| cells[i].clone()).collect()))
            .collect();
        let columns = strips.into_iter().map(|(name, _)| name).collect();
        return Grid { corner: "n/sec".to_owned(), columns, rows, remarks };
    }
    Grid { corner: chart.frame.x_title.clone(), columns, rows: strips, remarks }
}

/// The best ranked figure at a place, if it is apart from those of all other rows.
fn best(chart: &Evaluated, x: &X) -> Option<f64> {
    let better = chart.better?;
    let ranked: Vec<&Median> =
        chart.series.iter().filter_map(|line| line.at(x)?.ranked()).collect();
    let first = ranked.iter().copied().max_by(|a, b| match better {
        Better::More => a.median.total_cmp(&b.median),
        Better::Less => b.median.total_cmp(&a.median),
    })?;
    let apart = |other: &&Median| std::ptr::eq(*other, first) || are_apart(first, other);
    (ranked.len() > 1 && ranked.iter().all(apart)).then_some(first.median)
}

fn cell(line: &Line, place: Option<&Place>, best: Option<f64>, extent: Extent) -> Text {
    let text = |text: &str, tone| Text { text: text.to_owned(), tone };
    if line.absent.is_some() {
        return text("absent", Tone::Doubtful);
    }
    let Some(place) = place else { return text("", Tone::Plain) };
    match (place.state, &place.value) {
        (State::Failed, _) => text("failed", Tone::Failed),
        (State::NotApplicable, _) => text("n/a", Tone::Doubtful),
        (State::Measured, Some(value)) => {
            let tone = match place.ranked() {
                None => Tone::Doubtful,
                Some(value) if Some(value.median) == best => Tone::Best,
                Some(_) => Tone::Plain,
            };
            Text { text: marked(place, value, extent), tone }
        }
        (State::Measured | State::NotMeasured, _) => text("–", Tone::Doubtful),
    }
}

fn marked(place: &Place, value: &Median, extent: Extent) -> String {
    let mut text = figure(value.median);
    if place.saturated {
        text.push_str(SATURATED);
    }
    if place.failed > 0 {
        text.push_str(SOME_FAILED);
    } else if place.unranked.is_some() {
        text.push_str(UNRANKED);
    }
    if place.stolen.is_some() {
        text.push_str(DISTURBED);
    }
    match extent {
        Extent::Spread if value.trials > 1 => format!("{text} {}", spread(value)),
        Extent::Interval if value.trials > 1 => format!("{text} ({})", interval(value)),
        Extent::Spread | Extent::Interval => text,
    }
}

/// A row for each series, columns for percentiles.
fn of_distribution(chart: &Evaluated, extent: Extent) -> Grid {
    const SHOWN: [f64; 6] = [50.0, 90.0, 99.0, 99.9, 99.99, 100.0];
    let mut rows = Vec::new();
    for line in &chart.series {
        let places: Vec<Option<&Place>> = match line.places.len() {
            0 => vec![None],
            _ => line.places.iter().map(Some).collect(),
        };
        for place in places {
            let name = match place {
                Some(place) if chart.xs.len() > 1 => format!("{}, {}", line.label, place.x),
                _ => line.label.clone(),
            };
            let cells = SHOWN.map(|percentile| {
                let at = place.and_then(|p| p.curve.iter().find(|at| at.percentile == percentile));
                match (place, at) {
                    (Some(place), Some(at)) => Text {
                        text: marked(place, &at.value, extent),
                        tone: if place.unranked.is_some() { Tone::Doubtful } else { Tone::Plain },
                    },
                    // Measured, but too few operations for this percentile.
                    (Some(place), None) if !place.curve.is_empty() => {
                        Text { text: "–".to_owned(), tone: Tone::Doubtful }
                    }
                    _ => cell(line, place, None, extent),
                }
            });
            rows.push((name, cells.to_vec()));
        }
    }
    let name = |p: &f64| if *p == 100.0 { "max".to_owned() } else { format!("p{p}") };
    let columns = SHOWN.iter().map(name).collect();
    Grid { corner: "microseconds".to_owned(), columns, rows, remarks: remarks(chart) }
}

/// What stands before the rows, the rows, and what is true of them.
type Remark<'a> = (&'static str, Vec<&'a str>, String);

fn note<'a>(found: &mut Vec<Remark<'a>>, before: &'static str, label: &'a str, after: String) {
    match found.iter_mut().find(|(b, _, a)| *b == before && *a == after) {
        Some((_, labels, _)) if labels.contains(&label) => {}
        Some((_, labels, _)) => labels.push(label),
        None => found.push((before, vec![label], after)),
    }
}

/// What marks mean, and everything that is missing, each thing once with all rows that it is true of.
fn remarks(chart: &Evaluated) -> Vec<String> {
    let mut found: Vec<Remark<'_>> = Vec::new();
    let mut add = |before, label, after| note(&mut found, before, label, after);
    let places = || chart.series.iter().flat_map(|l| l.places.iter().map(move |p| (l, p)));
    for (line, place) in places() {
        let label = line.label.as_str();
        match (place.state, &place.unranked, &place.why) {
            (State::Failed, _, Some(why)) => add("failed: ", label, format!(": {why}")),
            (State::NotApplicable, _, Some(why)) => add("n/a: ", label, format!(": {why}")),
            (State::NotMeasured, _, Some(why)) => add("–: ", label, format!(": {why}")),
            (State::Measured, Some(unranked), Some(why)) => {
                add("! ", label, format!(", not ranked: {unranked}: {why}"));
            }
            (State::Measured, Some(unranked), None) => {
                add("? ", label, format!(", not ranked: {unranked}"));
            }
            _ => {}
        }
        if place.saturated {
            let after = ", saturated: less was done than was due, so latencies only grow";
            add("↓ ", label, after.to_owned());
        }
    }
    let most = places().filter_map(|(_, place)| place.stolen).fold(0.0, f64::max);
    for (line, _) in places().filter(|(_, place)| place.stolen.is_some()) {
        let after = format!(
            ", disturbed: in one of the trials or more others got over {} % of the processor time, here at most {} %",
            figure(100.0 * STEAL_HIGH),
            figure(100.0 * most)
        );
        add("~ ", line.label.as_str(), after);
    }
    for line in &chart.series {
        if let Some(absent) = &line.absent {
            add("absent: ", &line.label, format!(": {}; {}", absent.why, absent.install));
        } else if line.places.is_empty() {
            add("nothing measured: ", &line.label, String::new());
        }
    }
    let text =
        |(before, labels, after): Remark<'_>| format!("{before}{}{after}", labels.join("; "));
    found.into_iter().map(text).collect()
}
