//! The report as one self-contained page: figures as JSON, drawn by a small script; tables ready made.
//!
//! 1. Nothing is fetched: style and script are in the page, and its content security policy forbids the rest.
//! 2. All text from results is escaped: by the template, and in the JSON by writing `<` as `\u003c`.
//! 3. Every mark of a chart and row of a table carries the name of its engine, on which the filter acts.

mod rows;

pub use rows::facts;

use std::path::Path;

use anyhow::Context as _;
use minijinja::{Environment, context};
use serde::Serialize;

use super::disturbance;
use super::evaluate::{Evaluated, evaluate};
use super::failures::{causes, failures};
use super::findings::{Answered, findings};
use super::grid::grid;
use super::readings::readings;
use super::results::Results;
use super::standing::{OURS, standings};
use super::terminal::{part, unit};
use crate::engines::catalogue::Presence;
use crate::studies::{Metric, Mode, Study};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");
const CHARTS: &str = include_str!("charts.js");
const CONTROLS: &str = include_str!("controls.js");

/// Colours that the style sheet has.
const COLOURS: usize = 16;

/// An engine in the filter.
#[derive(Debug, Serialize)]
struct Engine {
    name: String,
    title: String,
    /// Number of its colour and marker.
    colour: usize,
    version: Option<String>,
    absent: Option<String>,
    install: Option<String>,
}

/// The charts of a study in one mode.
#[derive(Debug, Serialize)]
struct Part {
    id: String,
    title: &'static str,
    says: &'static str,
    charts: Vec<Shown>,
    findings: Vec<Question>,
}

/// A chart with its tables.
#[derive(Debug, Serialize)]
struct Shown {
    id: String,
    anchor: String,
    title: String,
    note: String,
    unit: String,
    logarithmic: bool,
    wide: bool,
    remarks: Vec<String>,
    percentiles: Option<rows::Percentiles>,
    head: Vec<String>,
    rows: Vec<rows::Row>,
}

/// The answers to a question.
#[derive(Debug, Serialize)]
struct Question {
    question: String,
    answers: Vec<Answered>,
}

/// The page of a run.
///
/// # Errors
/// Only if the template is broken.
pub fn html(results: &Results) -> anyhow::Result<String> {
    let charts = evaluate(results);
    let engines = engines(results);
    let failed = failures(results);
    let disturbed = disturbance::of_run(results);
    let data = serde_json::json!({
        "charts": charts,
        "standings": standings(&charts),
        "engines": engines,
        "ours": OURS,
    });
    let mut environment = Environment::new();
    environment.add_template("page.html", PAGE)?;
    let page = environment.get_template("page.html")?.render(context! {
        style => STYLE,
        script => format!("{CHARTS}\n{CONTROLS}"),
        data => in_script(&data.to_string()),
        results => context! {
            version => results.version,
            command => results.command.join(" "),
            began => date(results.started_unix_s),
            took_s => super::numbers::figure(results.took_s),
            interrupted => results.interrupted,
            repeats => results.repeats,
            seed => results.seed,
            disturbance => disturbed.text,
            is_disturbed => disturbed.high > 0,
        },
        machine => rows::facts(&serde_json::to_value(&results.machine)?),
        proofs => rows::proofs(results),
        claims => rows::claims(results),
        causes => causes(&failed),
        failures => failed,
        readings => readings(&charts),
        engines => engines,
        parts => parts(results, &charts),
    })?;
    Ok(page)
}

/// Writes the page of a run, whole or not at all.
///
/// # Errors
/// If it cannot be written.
pub fn write(results: &Results, path: &Path) -> anyhow::Result<()> {
    super::write_whole(path, html(results)?.as_bytes()).with_context(|| "no report was made")
}

/// JSON that can stand in a script element: `<` can only be part of a string.
fn in_script(json: &str) -> String {
    json.replace('<', "\\u003c")
}

fn engines(results: &Results) -> Vec<Engine> {
    let mut next = 0;
    results
        .engines
        .iter()
        .map(|entry| {
            let colour = if entry.name == OURS {
                0
            } else {
                next = next % (COLOURS - 1) + 1;
                next
            };
            let (version, absent, install) = match &entry.presence {
                Presence::Here { version, .. } => (Some(version.clone()), None, None),
                Presence::Absent { why, install } => {
                    (None, Some(why.clone()), Some(install.clone()))
                }
            };
            Engine {
                name: entry.name.clone(),
                title: entry.title.clone(),
                colour,
                version,
                absent,
                install,
            }
        })
        .collect()
}

fn parts(results: &Results, charts: &[Evaluated]) -> Vec<Part> {
    let answered = findings(results);
    let mut parts = Vec::new();
    for study in Study::ALL {
        for mode in [Mode::Historical, Mode::Modern] {
            let charts: Vec<Shown> = charts
                .iter()
                .filter(|chart| (chart.frame.study, chart.frame.mode) == (study, mode))
                .map(shown)
                .collect();
            let answered = answered.iter().filter(|a| (a.study, a.mode) == (study, mode));
            let findings = questions(answered);
            if charts.is_empty() && findings.is_empty() {
                continue;
            }
            let id = anchor(part(study, mode));
            parts.push(Part { id, title: part(study, mode), says: says(study), charts, findings });
        }
    }
    parts
}

fn says(study: Study) -> &'static str {
    match study {
        Study::Kv => "SQLite as a key-value database against Berkeley DB",
        Study::Modes => "Journal mode × synchronous",
        Study::Files => "SQLite against the file system",
        Study::Writers => "Berkeley DB SQL against SQLite",
        Study::Steady => "Long runs, closing included",
        Study::Advise => "What can serve a need",
        Study::Quick => "Plait or SQLite",
    }
}

fn shown(chart: &Evaluated) -> Shown {
    let bars = chart.xs.len() * (chart.series.len() + chart.published.len());
    Shown {
        id: chart.frame.id.clone(),
        anchor: anchor(&chart.frame.id),
        title: chart.frame.title.clone(),
        note: chart.frame.note.clone(),
        unit: unit(chart),
        logarithmic: chart.frame.logarithmic || chart.frame.metric == Metric::Latency,
        wide: bars > 60,
        remarks: grid(chart).remarks,
        percentiles: rows::percentiles(chart),
        head: rows::head(chart),
        rows: rows::of(chart),
    }
}

fn questions<'a>(answered: impl Iterator<Item = &'a Answered>) -> Vec<Question> {
    let mut questions: Vec<Question> = Vec::new();
    for answer in answered {
        match questions.last_mut() {
            Some(last) if last.question == answer.question => last.answers.push(answer.clone()),
            _ => questions.push(Question {
                question: answer.question.clone(),
                answers: vec![answer.clone()],
            }),
        }
    }
    questions
}

/// A name that an address can point to.
fn anchor(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// `2026-11-21 06:41 UTC`, of seconds since 1970.
#[must_use]
pub fn date(unix_s: u64) -> String {
    let moment = i64::try_from(unix_s).map(jiff::Timestamp::from_second);
    let Ok(Ok(moment)) = moment else { return format!("{unix_s} s after 1970") };
    moment.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_399), "2000-02-28 23:59 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_735_689_600), "2025-01-01 00:00 UTC");
    }

    #[test]
    fn every_engine_of_the_catalogue_has_a_colour_of_its_own() {
        let style = include_str!("style.css");
        let engines = crate::engines::catalogue::all(&[]).unwrap().len();
        assert!(engines <= COLOURS, "{engines} engines, {COLOURS} colours");
        for colour in 0..COLOURS {
            assert!(
                style.contains(&format!(".c{colour} {{ --c: var(--c{colour}); }}")),
                "{colour}"
            );
            // For a light page, a dark one by the system, and a dark one by choice.
            assert_eq!(style.matches(&format!("--c{colour}: #")).count(), 3, "{colour}");
        }
    }

    #[test]
    fn nothing_ends_the_script_early() {
        assert_eq!(in_script(r#"{"a":"</script>"}"#), r#"{"a":"\u003c/script>"}"#);
    }
}
