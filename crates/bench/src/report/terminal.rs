//! The summary on a terminal: 100 columns, colours only where they are understood (anstream takes them away).

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table};

use super::disturbance;
use super::evaluate::{Evaluated, State, evaluate};
use super::failures::failures;
use super::findings::findings;
use super::grid::{Grid, Text, Tone, grid};
use super::metric::Better;
use super::numbers::{bytes, figure, figure_or_dash, times};
use super::readings::readings;
use super::results::Results;
use super::standing::{Standing, Verdict, standings};
use crate::engines::catalogue::Presence;
use crate::studies::{Mode, Study};

/// Columns of the terminal that the summary fits.
pub const WIDTH: usize = 100;
/// Longest name of a row; longer ones wrap.
const NAME_WIDTH: usize = 34;
/// Wins and losses that are listed of each kind; the page has all.
const STANDINGS: usize = 8;

pub(super) const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const GOOD: Style = AnsiColor::Green.on_default();
pub(super) const BAD: Style = AnsiColor::Red.on_default();

/// The summary of a run. With `details` also what each figure cost.
#[must_use]
pub fn summary(results: &Results, details: bool) -> String {
    let charts = evaluate(results);
    let mut out = String::new();
    let disturbed = disturbance::of_run(results);
    let style = if disturbed.high > 0 { BAD } else { DIM };
    paragraph(&mut out, style, "", &disturbed.text);
    let mut note = "";
    for chart in &charts {
        // Charts of a study often share their note; once is enough.
        let repeated = note == chart.frame.note;
        note = &chart.frame.note;
        write_chart(&mut out, chart, if repeated { "" } else { note });
        if details {
            write_details(&mut out, chart);
        }
    }
    write_readings(&mut out, &charts);
    write_failures(&mut out, results);
    write_findings(&mut out, results);
    write_standings(&mut out, &standings(&charts));
    write_absent(&mut out, results);
    write_run(&mut out, results);
    out
}

pub(super) fn heading(out: &mut String, text: &str) {
    let _ = writeln!(out, "\n{BOLD}{text}{BOLD:#}");
}

/// Text wrapped at the width, each line indented.
pub(super) fn paragraph(out: &mut String, style: Style, indent: &str, text: &str) {
    let mut line = String::new();
    let mut lines = Vec::new();
    for word in text.split_whitespace() {
        let needed = indent.chars().count() + line.chars().count() + 1 + word.chars().count();
        if !line.is_empty() && needed > WIDTH {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    for line in lines {
        let _ = writeln!(out, "{indent}{style}{line}{style:#}");
    }
}

/// `kv, historical`.
#[must_use]
pub fn part(study: Study, mode: Mode) -> &'static str {
    match (study, mode) {
        (Study::Kv, Mode::Historical) => "kv, as published",
        (Study::Kv, Mode::Modern) => "kv",
        (Study::Modes, Mode::Historical) => "modes, as published",
        (Study::Modes, Mode::Modern) => "modes",
        (Study::Files, Mode::Historical) => "files, as published",
        (Study::Files, Mode::Modern) => "files",
        (Study::Writers, Mode::Historical) => "writers, as published",
        (Study::Writers, Mode::Modern) => "writers",
        (Study::Steady, _) => "steady",
        (Study::Advise, _) => "advise",
        (Study::Quick, _) => "quick",
    }
}

/// `per second, more is better`.
#[must_use]
pub fn unit(chart: &Evaluated) -> String {
    let better = match chart.better {
        None => return chart.unit.to_owned(),
        Some(Better::More) => "more is better",
        Some(Better::Less) => "less is better",
    };
    format!("{}, {better}", chart.unit)
}

fn write_chart(out: &mut String, chart: &Evaluated, note: &str) {
    heading(out, &format!("{} ({})", chart.frame.title, part(chart.frame.study, chart.frame.mode)));
    let below = if chart.frame.x_title.is_empty() {
        String::new()
    } else {
        format!(" by {}", chart.frame.x_title)
    };
    paragraph(out, DIM, "", &format!("{}{below}. {}", unit(chart), note));
    let grid = grid(chart);
    for table in tables(&grid) {
        let _ = writeln!(out, "{table}");
    }
    for remark in &grid.remarks {
        paragraph(out, DIM, "  ", remark);
    }
}

/// A table without lines, as wide as it needs to be.
pub(super) fn plain_table() -> Table {
    let mut table = Table::new();
    table
        .load_preset(comfy_table::presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic);
    // Colours are forced here and taken away where they are not understood.
    table.enforce_styling().set_width(WIDTH as u16);
    table
}

/// The columns of a grid, as many beside each other as fit.
fn tables(grid: &Grid) -> Vec<Table> {
    let width = |text: &str| text.chars().count();
    let names = grid.rows.iter().map(|(name, _)| width(name)).chain([width(&grid.corner)]);
    // comfy-table puts a space on each side of a cell.
    let name_width = names.max().unwrap_or(0).min(NAME_WIDTH) + 2;
    let widths: Vec<usize> = (0..grid.columns.len())
        .map(|i| {
            let cells = grid.rows.iter().map(|(_, cells)| width(&cells[i].text)).max().unwrap_or(0);
            let longest_word = grid.columns[i].split(' ').map(width).max().unwrap_or(0);
            cells.max(longest_word).max(width(&grid.columns[i]).min(16)) + 2
        })
        .collect();
    let mut tables = Vec::new();
    let mut first = 0;
    while first < widths.len() {
        let mut used = name_width;
        let fitting = widths[first..]
            .iter()
            .take_while(|w| {
                used += **w;
                used <= WIDTH
            })
            .count()
            .max(1);
        tables.push(table(grid, name_width, &widths, first..first + fitting));
        first += fitting;
    }
    tables
}

fn table(
    grid: &Grid,
    name_width: usize,
    widths: &[usize],
    columns: std::ops::Range<usize>,
) -> Table {
    use comfy_table::{ColumnConstraint, Width};
    let mut table = plain_table();
    let head = |text: &str| Cell::new(text).add_attribute(Attribute::Dim);
    let titles = grid.columns[columns.clone()].iter();
    let titles = titles.map(|title| head(title).set_alignment(CellAlignment::Right));
    table.set_header(std::iter::once(head(&grid.corner)).chain(titles));
    for (name, cells) in &grid.rows {
        let cells = cells[columns.clone()].iter().map(toned);
        table.add_row(std::iter::once(Cell::new(name)).chain(cells));
    }
    let widths = std::iter::once(name_width).chain(widths[columns].iter().copied());
    let constraints = widths.map(|w| ColumnConstraint::Absolute(Width::Fixed(w as u16)));
    table.set_constraints(constraints);
    table
}

fn toned(text: &Text) -> Cell {
    let cell = Cell::new(&text.text).set_alignment(CellAlignment::Right);
    match text.tone {
        Tone::Plain => cell,
        Tone::Best => cell.fg(Color::Green).add_attribute(Attribute::Bold),
        Tone::Published => cell.fg(Color::Cyan),
        Tone::Doubtful => cell.add_attribute(Attribute::Dim),
        Tone::Failed => cell.fg(Color::Red),
    }
}

fn write_details(out: &mut String, chart: &Evaluated) {
    let mut table = plain_table();
    let titles = [
        "row",
        "failed",
        "retries /1000",
        "busy calls /1000",
        "user µs/op",
        "system µs/op",
        "bytes /commit",
        "fair",
        "file",
    ];
    table.set_header(titles.map(|title| Cell::new(title).add_attribute(Attribute::Dim)));
    for line in &chart.series {
        for place in line.places.iter().filter(|p| p.state != State::NotMeasured) {
            let d = &place.details;
            let retries =
                [d.busy, d.conflicts, d.deadlocks].into_iter().flatten().reduce(|a, b| a + b);
            table.add_row([
                format!("{}, {}", line.label, place.x),
                format!("{}/{}", place.failed, place.trials),
                figure_or_dash(retries),
                figure_or_dash(d.busy_calls),
                figure_or_dash(d.user_cpu_us),
                figure_or_dash(d.system_cpu_us),
                d.bytes_per_commit.map_or_else(|| "–".to_owned(), bytes),
                figure_or_dash(d.fairness),
                d.file_bytes.map_or_else(|| "–".to_owned(), bytes),
            ]);
        }
    }
    let name = comfy_table::ColumnConstraint::LowerBoundary(comfy_table::Width::Fixed(30));
    table.column_mut(0).expect("the header has columns").set_constraint(name);
    let _ = writeln!(out, "{table}");
}

fn write_readings(out: &mut String, charts: &[Evaluated]) {
    let readings = readings(charts);
    if !readings.is_empty() {
        heading(out, "What the publications read from their figures");
    }
    for reading in readings {
        let text =
            format!("{}: published: {}; here: {}", reading.of, reading.published, reading.here);
        paragraph(out, Style::new(), "  ", &text);
    }
}

fn write_failures(out: &mut String, results: &Results) {
    let failures = failures(results);
    if !failures.is_empty() {
        heading(out, "What failed, and why");
    }
    for failed in failures {
        let text = format!(
            "{}: {} of {} trials, {}: {}",
            failed.label,
            failed.failed,
            failed.trials,
            failed.cells.join(", "),
            failed.texts.join("; ")
        );
        paragraph(out, Style::new(), "  ", &text);
        let cause = match failed.cause {
            Some(cause) => {
                format!("cause: {} (docs/benchmark-results.md): {}", cause.title, cause.says)
            }
            None => "cause: not known".to_owned(),
        };
        paragraph(out, DIM, "    ", &cause);
    }
}

fn write_findings(out: &mut String, results: &Results) {
    let findings = findings(results);
    let mut before = None;
    let mut table = plain_table();
    for answered in &findings {
        if before.is_none() {
            heading(out, "What each engine does");
        }
        let question = if before == Some(&answered.question) { "" } else { &answered.question };
        before = Some(&answered.question);
        let question = Cell::new(question).add_attribute(Attribute::Bold);
        let answers = answered.answers.join(" / or: ");
        table.add_row([question, Cell::new(&answered.label), Cell::new(answers)]);
    }
    if before.is_some() {
        let _ = writeln!(out, "{table}");
    }
}

fn write_standings(out: &mut String, standings: &[Standing]) {
    let of = |verdict| {
        let chosen =
            standings.iter().filter(move |s| s.rivals.first().map(|r| r.verdict) == Some(verdict));
        chosen.collect::<Vec<_>>()
    };
    let (losses, ties, mut wins) = (of(Verdict::Loss), of(Verdict::NoDifference), of(Verdict::Win));
    if losses.is_empty() && ties.is_empty() && wins.is_empty() {
        return;
    }
    heading(out, "Plait against the best rival that survives as much");
    let counts = format!(
        "{} losses, {} without a difference, {} wins; a difference is claimed only where intervals separate.",
        losses.len(),
        ties.len(),
        wins.len()
    );
    paragraph(out, DIM, "", &counts);
    wins.reverse();
    for (style, word, chosen) in [(BAD, "loss", losses), (GOOD, "win", wins)] {
        for standing in chosen.iter().take(STANDINGS) {
            let rival = &standing.rivals[0];
            let text = format!(
                "{} · {}: {} ({}) {} against {} ({}) {} ({}..{})",
                standing.title,
                standing.place,
                standing.label,
                standing.tuning.word(),
                figure(standing.value.median),
                rival.label,
                rival.tuning.word(),
                figure(rival.value.median),
                times(rival.ratio_low),
                times(rival.ratio_high),
            );
            let _ = writeln!(out, "{style}{word:4} {:>7}{style:#}", times(rival.ratio));
            paragraph(out, Style::new(), "     ", &text);
        }
        if chosen.len() > STANDINGS {
            let more = format!("and {} more of this kind: see the page", chosen.len() - STANDINGS);
            paragraph(out, DIM, "     ", &more);
        }
    }
}

fn write_absent(out: &mut String, results: &Results) {
    let mut first = true;
    for entry in &results.engines {
        if let Presence::Absent { why, install } = &entry.presence {
            if std::mem::take(&mut first) {
                heading(out, "Absent");
            }
            paragraph(out, Style::new(), "  ", &format!("{}: {why}; {install}", entry.title));
        }
    }
}

fn write_run(out: &mut String, results: &Results) {
    let machine = &results.machine;
    let interrupted =
        if results.interrupted { ", INTERRUPTED: what was measured until then" } else { "" };
    let text = format!(
        "{} × {}, Linux {}; {} trials of each cell, seed {}, {} s{interrupted}",
        machine.processors,
        machine.processor,
        machine.kernel,
        results.repeats,
        results.seed,
        figure(results.took_s),
    );
    out.push('\n');
    paragraph(out, DIM, "", &text);
}
