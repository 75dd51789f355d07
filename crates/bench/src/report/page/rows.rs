//! The rows of the page's tables, as text.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::engines::Durability;
use crate::report::evaluate::{Evaluated, Line, Place, State};
use crate::report::grid::{Text, Tone, grid};
use crate::report::numbers::{bytes, figure, figure_or_dash, interval};
use crate::report::results::Results;
use crate::studies::{Metric, Tuning};

/// A row of the table behind a chart.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Its engine, for the filter.
    pub engine: String,
    /// Its series.
    pub label: String,
    /// How it is to be read: `measured`, `unranked`, `failed`, `missing`, `published`.
    pub tone: &'static str,
    /// Its place and its figures.
    pub cells: Vec<String>,
    /// The settings as read back.
    pub settings: String,
    /// What must be known besides.
    pub remark: String,
}

/// The table of a distribution.
#[derive(Debug, Serialize)]
pub struct Percentiles {
    columns: Vec<String>,
    rows: Vec<(String, String, Vec<String>)>,
}

/// What the columns of [`Row::cells`] are.
pub fn head(chart: &Evaluated) -> Vec<String> {
    let figure = match chart.frame.metric {
        Metric::Latency => "p99, µs".to_owned(),
        _ => chart.unit.to_owned(),
    };
    let x = if chart.frame.x_title.is_empty() { "at" } else { &chart.frame.x_title };
    let fixed = [
        "interval",
        "trials",
        "failed",
        "busy /1,000",
        "conflicts /1,000",
        "deadlocks /1,000",
        "busy-handler calls /1,000",
        "slept ms /1,000",
        "user µs /op",
        "system µs /op",
        "written /commit",
        "writes /commit",
        "system calls /op",
        "p50 µs",
        "p99 µs",
        "fairness",
        "files at end",
        "files at work",
        "given to others, %",
        "survives",
        "tuning",
    ];
    [x.to_owned(), figure].into_iter().chain(fixed.map(str::to_owned)).collect()
}

/// A row for each place, absent engine and published figure.
pub fn of(chart: &Evaluated) -> Vec<Row> {
    let mut rows = Vec::new();
    for line in &chart.series {
        if let Some(absent) = &line.absent {
            rows.push(without_figures(line, format!("absent: {}; {}", absent.why, absent.install)));
        } else if line.places.is_empty() {
            rows.push(without_figures(line, "nothing measured".to_owned()));
        }
        rows.extend(line.places.iter().map(|place| row(line, place)));
        for published in chart.published.iter().filter(|p| p.engine == line.engine) {
            let is_first = chart.series.iter().find(|l| l.engine == line.engine) == Some(line);
            for (x, value) in published.points.iter().filter(|_| is_first) {
                rows.push(Row {
                    engine: line.engine.clone(),
                    label: published.label.clone(),
                    tone: "published",
                    cells: vec![x.to_string(), figure(*value)],
                    settings: String::new(),
                    remark: "published".to_owned(),
                });
            }
        }
    }
    let width = head(chart).len();
    for row in &mut rows {
        row.cells.resize(width, String::new());
    }
    rows
}

fn without_figures(line: &Line, remark: String) -> Row {
    Row {
        engine: line.engine.clone(),
        label: line.label.clone(),
        tone: "missing",
        cells: Vec::new(),
        settings: String::new(),
        remark,
    }
}

fn row(line: &Line, place: &Place) -> Row {
    let tone = match (place.state, &place.unranked) {
        (State::Measured, None) => "measured",
        (State::Measured, Some(_)) => "unranked",
        (State::Failed, _) => "failed",
        (State::NotApplicable | State::NotMeasured, _) => "missing",
    };
    let shown = match (place.state, &place.value) {
        (State::Measured, Some(value)) => figure(value.median),
        (State::Failed, _) => "failed".to_owned(),
        (State::NotApplicable, _) => "n/a".to_owned(),
        _ => "–".to_owned(),
    };
    let details = &place.details;
    let size = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), bytes);
    let cells = vec![
        place.x.to_string(),
        shown,
        place.value.as_ref().map(interval).unwrap_or_default(),
        place.trials.to_string(),
        place.failed.to_string(),
        figure_or_dash(details.busy),
        figure_or_dash(details.conflicts),
        figure_or_dash(details.deadlocks),
        figure_or_dash(details.busy_calls),
        figure_or_dash(details.busy_slept_ms),
        figure_or_dash(details.user_cpu_us),
        figure_or_dash(details.system_cpu_us),
        size(details.bytes_per_commit),
        figure_or_dash(details.writes_per_commit),
        figure_or_dash(details.system_calls),
        figure_or_dash(details.p50_us),
        figure_or_dash(details.p99_us),
        figure_or_dash(details.fairness),
        size(details.file_bytes),
        size(details.working_bytes),
        figure_or_dash(place.stolen.map(|part| 100.0 * part)),
        place.durability.map(survives).unwrap_or_default().to_owned(),
        place.tuning.map(Tuning::word).unwrap_or_default().to_owned(),
    ];
    Row {
        engine: line.engine.clone(),
        label: line.label.clone(),
        tone,
        cells,
        settings: details.settings.clone(),
        remark: remark(place),
    }
}

fn remark(place: &Place) -> String {
    let unranked = place.unranked.as_ref().filter(|_| place.state == State::Measured);
    let saturated = place.saturated.then(|| "saturated: less was done than was due".to_owned());
    let parts = [unranked.map(|why| format!("not ranked: {why}")), place.why.clone(), saturated];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// What a commit survives, in words.
pub fn survives(durability: Durability) -> &'static str {
    match durability {
        Durability::None => "nothing",
        Durability::Process => "a crash of the process",
        Durability::PowerCut => "a power cut",
    }
}

/// The percentiles of a distribution, a row for each curve; none for other charts.
pub fn percentiles(chart: &Evaluated) -> Option<Percentiles> {
    if chart.frame.metric != Metric::Latency {
        return None;
    }
    let grid = grid(chart);
    let engines = chart
        .series
        .iter()
        .flat_map(|line| std::iter::repeat_n(line.engine.clone(), line.places.len().max(1)));
    let text = |cell: Text| if cell.tone == Tone::Failed { "failed".to_owned() } else { cell.text };
    let rows = grid.rows.into_iter().zip(engines);
    let rows = rows
        .map(|((name, cells), engine)| (engine, name, cells.into_iter().map(text).collect()))
        .collect();
    Some(Percentiles { columns: grid.columns, rows })
}

/// A proof of durability.
#[derive(Debug, Serialize)]
pub struct ProofRow {
    engine: String,
    proven: bool,
    settings: String,
    begin: &'static str,
    workers: u32,
    commits: u64,
    syncs: String,
    why: String,
}

/// All proofs.
pub fn proofs(results: &Results) -> Vec<ProofRow> {
    results
        .proofs
        .iter()
        .map(|proof| ProofRow {
            engine: proof.engine.clone(),
            proven: proof.proven,
            settings: proof.settings.to_string(),
            begin: proof.begin.word(),
            workers: proof.workers,
            commits: proof.commits,
            syncs: syncs(&proof.syncs),
            why: proof.why.clone(),
        })
        .collect()
}

fn syncs(counts: &BTreeMap<String, u64>) -> String {
    let parts: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

/// Rows that are listed and not ranked, failed trials aside: engine, row, why; each once.
pub fn claims(results: &Results) -> Vec<(String, String, String)> {
    let mut claims = Vec::new();
    for result in &results.cells {
        if let Some(why) = results.unranked(&result.cell) {
            let claim = (result.cell.engine.clone(), result.cell.label.clone(), why);
            if !claims.contains(&claim) {
                claims.push(claim);
            }
        }
    }
    claims
}

/// All that a value holds, as names and texts: `disk append p99 us` and `812`.
#[must_use]
pub fn facts(value: &Value) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    collect(String::new(), value, &mut facts);
    facts
}

fn collect(name: String, value: &Value, facts: &mut Vec<(String, String)>) {
    let below = |key: &str| format!("{name} {}", key.replace('_', " ")).trim_start().to_owned();
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (key, value) in fields {
                collect(below(key), value, facts);
            }
        }
        Value::Array(values) => {
            for (i, value) in values.iter().enumerate() {
                let name =
                    if values.len() > 1 { below(&(i + 1).to_string()) } else { name.clone() };
                collect(name, value, facts);
            }
        }
        Value::String(text) => facts.push((name, text.clone())),
        Value::Number(number) => {
            let text = match number.as_f64() {
                Some(value) if number.is_f64() => figure(value),
                _ => number.to_string(),
            };
            facts.push((name, text));
        }
        Value::Bool(is) => facts.push((name, if *is { "yes" } else { "no" }.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_named_by_their_path() {
        let value = serde_json::json!({"disk": {"append_us": 12.5}, "cpu": ["a", "b"], "no": null});
        let expected = [("cpu 1", "a"), ("cpu 2", "b"), ("disk append us", "12.5")];
        let expected: Vec<_> = expected.map(|(a, b)| (a.to_owned(), b.to_owned())).to_vec();
        let mut found = facts(&value);
        found.sort();
        assert_eq!(found, expected);
    }
}
