//! Two runs, cell by cell: what differs, and what only seems to.
//!
//! A difference is claimed only where the intervals of both medians separate; everything else is `no
//! difference shown`. A limit ([`is_limit`]) is no store that could have become better, and is left out. What
//! makes two runs hard to compare (another machine, other settings, disturbance) is said first.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use comfy_table::{Attribute, Cell, CellAlignment, Color, ColumnConstraint, Table, Width};
use serde::Serialize;
use serde_json::Value;

use super::disturbance;
use super::evaluate::{Evaluated, Place, evaluate};
use super::metric::Better;
use super::numbers::{figure, spread, times};
use super::results::Results;
use super::standing::{self, Verdict};
use super::terminal;
use crate::engines::catalogue::is_limit;
use crate::measure::statistics::Median;
use crate::studies::Metric;

/// Percentiles at which distributions are compared.
const PERCENTILES: [f64; 3] = [50.0, 99.0, 99.99];

/// A figure of a cell in both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// Title of a chart that shows it.
    pub chart: String,
    /// Id of the cell.
    pub cell: String,
    /// Its row and place.
    pub place: String,
    /// Unit of the figures.
    pub unit: &'static str,
    /// Which way is better.
    pub better: Option<Better>,
    /// In the first run.
    pub a: Option<Median>,
    /// In the second run.
    pub b: Option<Median>,
    /// How many times as good the second is (as much, where neither way is better); none if that is infinite.
    pub ratio: Option<f64>,
    /// The least that the intervals allow.
    pub ratio_low: Option<f64>,
    /// The most that the intervals allow.
    pub ratio_high: Option<f64>,
    /// What it says of the second; more counts as better where neither way is. None where one of the two has no figure, or
    /// failed trials.
    pub verdict: Option<Verdict>,
    /// Why it is not comparable.
    pub why: Option<String>,
}

/// Two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// What makes them hard to compare.
    pub warnings: Vec<String>,
    /// Figures of cells that are in both.
    pub pairs: Vec<Pair>,
    /// Cells of the first only.
    pub only_in_a: Vec<String>,
    /// Cells of the second only.
    pub only_in_b: Vec<String>,
}

/// Which figure: cell, place and metric. A phase has its own place, so it needs no name here.
type Key = (String, String, &'static str);

/// Compares two runs.
#[must_use]
pub fn compare(a: &Results, b: &Results) -> Comparison {
    let (charts_a, charts_b) = (evaluate(a), evaluate(b));
    let in_b: BTreeMap<Key, &Place> =
        places(&charts_b).map(|(key, _, _, place)| (key, place)).collect();
    let mut seen = BTreeSet::new();
    let mut pairs = Vec::new();
    for (key, chart, label, place) in places(&charts_a) {
        if let Some(other) = in_b.get(&key).filter(|_| seen.insert(key.clone())) {
            pairs.extend(pair(chart, label, place, other));
        }
    }
    let ids = |results: &Results| {
        results.cells.iter().map(|c| c.cell.id.clone()).collect::<BTreeSet<String>>()
    };
    let (ids_a, ids_b) = (ids(a), ids(b));
    Comparison {
        warnings: warnings(a, b),
        pairs,
        only_in_a: ids_a.difference(&ids_b).cloned().collect(),
        only_in_b: ids_b.difference(&ids_a).cloned().collect(),
    }
}

fn places(charts: &[Evaluated]) -> impl Iterator<Item = (Key, &Evaluated, &str, &Place)> {
    charts.iter().flat_map(|chart| {
        let stores = chart.series.iter().filter(|line| !is_limit(&line.engine));
        stores.flat_map(move |line| {
            line.places.iter().map(move |place| {
                let key = (place.cell.clone(), place.x.to_string(), chart.unit);
                (key, chart, line.label.as_str(), place)
            })
        })
    })
}

/// One pair, or one for each percentile of a distribution.
fn pair(chart: &Evaluated, label: &str, a: &Place, b: &Place) -> Vec<Pair> {
    let name = format!("{label}, {}", a.x);
    if chart.frame.metric != Metric::Latency {
        return vec![compared(chart, name, a, b, (a.value, b.value))];
    }
    let at = |place: &Place, percentile: f64| {
        place.curve.iter().find(|at| at.percentile == percentile).map(|at| at.value)
    };
    PERCENTILES
        .into_iter()
        .filter(|p| at(a, *p).is_some() || at(b, *p).is_some())
        .map(|p| compared(chart, format!("{name}, p{p}"), a, b, (at(a, p), at(b, p))))
        .collect()
}

fn compared(
    chart: &Evaluated,
    place: String,
    a: &Place,
    b: &Place,
    (value_a, value_b): (Option<Median>, Option<Median>),
) -> Pair {
    let why = incomparable(a, value_a).map(|why| format!("first: {why}"));
    let why = why.or_else(|| incomparable(b, value_b).map(|why| format!("second: {why}")));
    let found = match (&why, value_a, value_b) {
        (None, Some(a), Some(b)) => {
            Some(standing::compare(chart.better.unwrap_or(Better::More), &b, &a))
        }
        _ => None,
    };
    Pair {
        chart: chart.frame.title.clone(),
        cell: a.cell.clone(),
        place,
        unit: chart.unit,
        better: chart.better,
        a: value_a,
        b: value_b,
        ratio: found.and_then(|f| f.ratio),
        ratio_low: found.and_then(|f| f.low),
        ratio_high: found.and_then(|f| f.high),
        verdict: found.map(|f| f.verdict),
        why,
    }
}

impl Pair {
    /// What it says, in words.
    #[must_use]
    pub fn words(&self) -> &'static str {
        match (self.verdict, self.better) {
            (None, _) => "not comparable",
            (Some(Verdict::NoDifference), _) => "no difference shown",
            (Some(Verdict::Win), Some(_)) => "better",
            (Some(Verdict::Loss), Some(_)) => "worse",
            (Some(Verdict::Win), None) => "more",
            (Some(Verdict::Loss), None) => "less",
        }
    }
}

fn incomparable(place: &Place, value: Option<Median>) -> Option<String> {
    if value.is_none() || place.failed > 0 {
        let why = place.why.clone().unwrap_or_else(|| "no figure".to_owned());
        return Some(why);
    }
    None
}

/// What makes two runs hard to compare.
fn warnings(a: &Results, b: &Results) -> Vec<String> {
    let mut warnings = Vec::new();
    let machines = [a, b].map(|r| texts(&serde_json::to_value(&r.machine).unwrap_or_default()));
    for (name, first) in &machines[0] {
        let second = machines[1].get(name).map_or("nothing", String::as_str);
        if first != second {
            warnings.push(format!("machines differ: {name} is {first} and {second}"));
        }
    }
    if a.seed != b.seed {
        warnings.push(format!("seeds differ: {} and {}", a.seed, b.seed));
    }
    if a.repeats != b.repeats {
        warnings.push(format!("trials of each cell differ: {} and {}", a.repeats, b.repeats));
    }
    if a.version != b.version {
        warnings.push(format!("versions of the suite differ: {} and {}", a.version, b.version));
    }
    for (name, results) in [("first", a), ("second", b)] {
        if results.interrupted {
            warnings.push(format!("the {name} run was interrupted"));
        }
        let disturbed = disturbance::of_a_compared_run(results);
        warnings.extend(disturbed.map(|how| format!("the {name} run was disturbed: {how}")));
    }
    warnings.extend(differing_cells(a, b));
    warnings
}

/// The texts and counts that a machine's description holds at its top; its probes are measured and differ anyway.
fn texts(machine: &Value) -> BTreeMap<String, String> {
    let fields = machine.as_object().into_iter().flatten();
    fields
        .filter_map(|(name, value)| match value {
            Value::String(text) => Some((name.clone(), text.clone())),
            Value::Number(number) if number.is_u64() => Some((name.clone(), number.to_string())),
            _ => None,
        })
        .collect()
}

/// Cells of one name that are not the same: counted, with the first as an example.
fn differing_cells(a: &Results, b: &Results) -> Vec<String> {
    let mut differing: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for first in &a.cells {
        let Some(second) = b.cell(&first.cell.id) else { continue };
        let mut add = |what, example: String| differing.entry(what).or_default().push(example);
        let (first, second) = (&first.cell, &second.cell);
        if first.workload != second.workload {
            add("sizes", first.id.clone());
        }
        if first.settings != second.settings {
            add("settings", format!("{}: {} and {}", first.id, first.settings, second.settings));
        }
        if first.durability != second.durability {
            add("claims of durability", first.id.clone());
        }
        if first.medium != second.medium {
            let (first, second) = (first.medium.display(), second.medium.display());
            add("media", format!("{first} and {second}"));
        }
    }
    let says = |(what, examples): (&str, Vec<String>)| {
        format!("{what} differ in {} cells, for instance {}", examples.len(), examples[0])
    };
    differing.into_iter().map(says).collect()
}

/// The comparison for a terminal of 100 columns.
#[must_use]
pub fn text(comparison: &Comparison) -> String {
    let mut out = String::new();
    for warning in &comparison.warnings {
        terminal::paragraph(&mut out, terminal::BAD, "", &format!("warning: {warning}"));
    }
    let mut chart = None;
    let mut table = table();
    for pair in &comparison.pairs {
        let heading = (&pair.chart, pair.unit);
        if chart != Some(heading) {
            if chart.is_some() {
                let _ = writeln!(out, "{}", std::mem::replace(&mut table, self::table()));
            }
            terminal::heading(&mut out, &format!("{} ({})", pair.chart, pair.unit));
            chart = Some(heading);
        }
        table.add_row(row(pair));
    }
    if chart.is_some() {
        let _ = writeln!(out, "{table}");
    }
    write_count(&mut out, comparison);
    out
}

fn table() -> Table {
    let mut table = terminal::plain_table();
    let titles = ["", "first", "second", "ratio", ""];
    table.set_header(titles.map(|title| Cell::new(title).add_attribute(Attribute::Dim)));
    let widths = [34, 16, 16, 10, 24];
    table.set_constraints(widths.map(|width| ColumnConstraint::Absolute(Width::Fixed(width))));
    table
}

fn row(pair: &Pair) -> Vec<Cell> {
    let value = |median: &Option<Median>| {
        let text = median
            .map_or_else(|| "–".to_owned(), |m| format!("{} {}", figure(m.median), spread(&m)));
        Cell::new(text.trim_end()).set_alignment(CellAlignment::Right)
    };
    let ratio = if pair.verdict.is_some() { times(pair.ratio) } else { String::new() };
    let verdict = Cell::new(pair.words());
    let verdict = match (pair.verdict, pair.better) {
        (Some(Verdict::Win), Some(_)) => verdict.fg(Color::Green),
        (Some(Verdict::Loss), Some(_)) => verdict.fg(Color::Red),
        (Some(Verdict::NoDifference), _) => verdict.add_attribute(Attribute::Dim),
        (None, _) => match &pair.why {
            Some(why) => Cell::new(why).add_attribute(Attribute::Dim),
            None => verdict,
        },
        (Some(_), None) => verdict,
    };
    let ratio = Cell::new(ratio).set_alignment(CellAlignment::Right);
    vec![Cell::new(&pair.place), value(&pair.a), value(&pair.b), ratio, verdict]
}

fn write_count(out: &mut String, comparison: &Comparison) {
    let count = |words| comparison.pairs.iter().filter(|pair| pair.words() == words).count();
    let text = format!(
        "{} figures in both: {} better, {} worse, {} without a difference shown; {} cells only in the first run, {} only \
         in the second",
        comparison.pairs.len(),
        count("better"),
        count("worse"),
        count("no difference shown"),
        comparison.only_in_a.len(),
        comparison.only_in_b.len(),
    );
    out.push('\n');
    terminal::paragraph(out, terminal::BOLD, "", &text);
}
