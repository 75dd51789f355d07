//! The tables of a run for a document: medians with their intervals, what failed, what is absent.

use std::fmt::Write as _;

use super::disturbance;
use super::evaluate::{Evaluated, evaluate};
use super::failures::{causes, failures};
use super::findings::findings;
use super::grid::{Extent, grid_with};
use super::numbers::{figure, interval, times};
use super::page::{date, facts};
use super::readings::readings;
use super::results::Results;
use super::standing::{Standing, Verdict, standings};
use super::terminal::{part, unit};
use crate::engines::catalogue::Presence;
use crate::measure::statistics::Median;
use crate::studies::Tuning;

/// The run as Markdown.
#[must_use]
pub fn markdown(results: &Results) -> String {
    let charts = evaluate(results);
    let mut out = String::new();
    write_run(&mut out, results);
    write_standings(&mut out, &standings(&charts));
    let mut before = None;
    for chart in &charts {
        let title = part(chart.frame.study, chart.frame.mode);
        if before.replace(title) != Some(title) {
            let _ = writeln!(out, "## {title}\n");
        }
        write_chart(&mut out, chart);
    }
    write_readings(&mut out, &charts);
    write_failures(&mut out, results);
    write_findings(&mut out, results);
    write_proofs(&mut out, results);
    out
}

/// Text that cannot end a cell of a table.
fn cell(text: &str) -> String {
    text.replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;").replace(['\n', '\r'], " ")
}

fn row(out: &mut String, cells: impl IntoIterator<Item = String>) {
    let cells: Vec<String> = cells.into_iter().map(|text| cell(&text)).collect();
    let _ = writeln!(out, "| {} |", cells.join(" | "));
}

fn head<const N: usize>(out: &mut String, titles: [&str; N]) {
    row(out, titles.map(str::to_owned));
    let _ = writeln!(out, "|{}", "---|".repeat(N));
}

fn write_run(out: &mut String, results: &Results) {
    let interrupted = if results.interrupted { " **The run was interrupted.**" } else { "" };
    let _ = writeln!(
        out,
        "`plait bench {}`, {}, {} trials of each cell, seed {}, {} s.{interrupted}\n",
        results.command.join(" "),
        date(results.started_unix_s),
        results.repeats,
        results.seed,
        figure(results.took_s),
    );
    let disturbed = disturbance::of_run(results);
    let mark = if disturbed.high > 0 { "**" } else { "" };
    let _ = writeln!(out, "{mark}{}{mark}\n", disturbed.text);
    head(out, ["machine", ""]);
    for (name, value) in facts(&serde_json::to_value(&results.machine).unwrap_or_default()) {
        row(out, [name, value]);
    }
    out.push('\n');
    head(out, ["engine", "version"]);
    for entry in &results.engines {
        let version = match &entry.presence {
            Presence::Here { version, .. } => version.clone(),
            Presence::Absent { why, install } => format!("absent: {why}; `{install}`"),
        };
        row(out, [entry.title.clone(), version]);
    }
    out.push('\n');
}

fn with_interval(median: &Median) -> String {
    let interval = interval(median);
    let value = figure(median.median);
    if interval.is_empty() { value } else { format!("{value} ({interval})") }
}

/// A row with what is set beside its durability, and its figure.
fn who(label: &str, tuning: Tuning, value: &Median) -> String {
    format!("{label} ({}): {}", tuning.word(), with_interval(value))
}

fn write_standings(out: &mut String, standings: &[Standing]) {
    let _ = writeln!(out, "## Where Plait wins and where it loses\n");
    let _ = writeln!(
        out,
        "Plait's best row against the better of a rival's rows that claims to survive as much, tuned or not; where Plait \
         has tuned rows and others, its defaults also meet defaults. The ratio says how many times as good Plait is. A \
         difference is claimed only where the intervals separate. Losses come first.\n"
    );
    head(out, ["", "ratio", "where", "Plait", "best rival"]);
    for standing in standings {
        let Some(rival) = standing.rivals.first() else { continue };
        let verdict = match rival.verdict {
            Verdict::Loss => "loss",
            Verdict::NoDifference => "no difference shown",
            Verdict::Win => "win",
        };
        let ratio = format!(
            "{} ({}–{})",
            times(rival.ratio),
            times(rival.ratio_low),
            times(rival.ratio_high)
        );
        let place = format!(
            "{}: {}, {} ({})",
            part(standing.study, standing.mode),
            standing.title,
            standing.place,
            standing.unit
        );
        let ours = who(&standing.label, standing.tuning, &standing.value);
        let theirs = who(&rival.label, rival.tuning, &rival.value);
        row(out, [verdict.to_owned(), ratio, place, ours, theirs]);
    }
    out.push('\n');
}

fn write_chart(out: &mut String, chart: &Evaluated) {
    let _ = writeln!(
        out,
        "### {}\n\n{}. {}\n",
        cell(&chart.frame.title),
        unit(chart),
        cell(&chart.frame.note)
    );
    let grid = grid_with(chart, Extent::Interval);
    let titles = std::iter::once(grid.corner).chain(grid.columns);
    let titles: Vec<String> = titles.collect();
    let columns = titles.len();
    row(out, titles);
    let _ = writeln!(out, "|---|{}", "---:|".repeat(columns - 1));
    for (name, cells) in grid.rows {
        row(out, std::iter::once(name).chain(cells.into_iter().map(|cell| cell.text)));
    }
    out.push('\n');
    for remark in &grid.remarks {
        let _ = writeln!(out, "- {}", cell(remark));
    }
    if !grid.remarks.is_empty() {
        out.push('\n');
    }
}

/// What the publications read from their figures.
fn write_readings(out: &mut String, charts: &[Evaluated]) {
    let readings = readings(charts);
    if readings.is_empty() {
        return;
    }
    let _ = writeln!(out, "## What the publications read from their figures\n");
    head(out, ["of", "published", "here"]);
    for reading in readings {
        row(out, [reading.of.to_owned(), reading.published.to_owned(), reading.here]);
    }
    out.push('\n');
}

/// What failed, with its causes.
fn write_failures(out: &mut String, results: &Results) {
    let failures = failures(results);
    if failures.is_empty() {
        return;
    }
    let _ = writeln!(out, "## What failed, and why\n");
    head(out, ["row", "cells", "failed", "what", "cause"]);
    for failed in &failures {
        let cause = failed.cause.map_or("not known", |cause| cause.title);
        row(
            out,
            [
                failed.label.clone(),
                failed.cells.join("; "),
                format!("{} of {}", failed.failed, failed.trials),
                failed.texts.join("; "),
                cause.to_owned(),
            ],
        );
    }
    out.push('\n');
    for cause in causes(&failures) {
        let link = "../benchmark-results.md#known-causes";
        let _ = writeln!(out, "- [{}]({link}): {}", cause.title, cause.says);
    }
    if !causes(&failures).is_empty() {
        out.push('\n');
    }
}

fn write_findings(out: &mut String, results: &Results) {
    let findings = findings(results);
    if findings.is_empty() {
        return;
    }
    let _ = writeln!(out, "## What each engine does\n");
    head(out, ["test", "row", "what happened"]);
    for found in findings {
        row(out, [found.question, found.label, found.answers.join(" / or: ")]);
    }
    out.push('\n');
}

fn write_proofs(out: &mut String, results: &Results) {
    if results.proofs.is_empty() {
        return;
    }
    let _ = writeln!(out, "## Durability, counted\n");
    head(out, ["engine", "proven", "settings", "begin", "in words"]);
    for proof in &results.proofs {
        let proven = if proof.proven { "yes" } else { "**no**" };
        row(
            out,
            [
                proof.engine.clone(),
                proven.to_owned(),
                proof.settings.to_string(),
                proof.begin.word().to_owned(),
                proof.why.clone(),
            ],
        );
    }
}
