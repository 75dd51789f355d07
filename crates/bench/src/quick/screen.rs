//! The verdict on one screen: 24 lines of 80 columns, the answer in the first.

use std::path::Path;

use super::plan::{Crew, WAYS};
use super::verdict::{Judgement, Row, Side};
use crate::advise::show::Asked;
use crate::measure::disk::Access;
use crate::measure::machine::Medium;
use crate::report::disturbance;
use crate::report::numbers::figure;
use crate::report::results::Results;
use crate::report::standing::{Comparison, Verdict};

/// Columns of the screen.
const WIDTH: usize = 80;

/// Everything that is said.
#[must_use]
pub fn screen(rows: &[Row], results: &Results, run: &Asked) -> String {
    let mut lines = vec![answer(rows)];
    lines.push(
        "Both ran one program: BEGIN IMMEDIATE, read a row, update it, COMMIT (FULL).".into(),
    );
    let medium = results.machine.media.first();
    lines.extend(medium.map(disk));
    lines.push(String::new());
    lines.push(line("", ["commits/s", "p50", "p99", "busy"], "beside SQLite, interval"));
    lines.extend(rows.iter().flat_map(|row| row.sides.iter().map(|side| of_side(row.crew, side))));
    lines.push(format!(
        "{} trials of {} s; p50, p99 in ms; busy: refused, repeated; {}.",
        run.repeats,
        run.seconds,
        sums(rows)
    ));
    lines.extend(disturbance::of_a_compared_run(results).map(|text| format!("Disturbed: {text}.")));
    let place = medium.map(|medium| directory(&medium.directory)).unwrap_or_default();
    let (repeats, seconds) = ((2 * run.repeats).max(10), (4.0 * run.seconds).max(1.0));
    lines.push(format!("More: plait bench quick{place} --repeats {repeats} --seconds {seconds}"));
    lines.push(format!("All:  plait bench writers{place} --html report.html"));
    lines.iter().map(|line| clipped(line) + "\n").collect()
}

/// How the same program does on both: `Plait: 8 and 32 writers and 8 processes; no difference: 1.`
#[must_use]
pub fn answer(rows: &[Row]) -> String {
    let of = |row: &Row| row.sides.get(1).and_then(|side| side.judgement.verdict());
    let mut parts = Vec::new();
    for (word, verdict) in [
        ("Plait", Verdict::Win),
        ("SQLite", Verdict::Loss),
        ("no difference", Verdict::NoDifference),
    ] {
        let crews = rows.iter().filter(|row| of(row) == Some(verdict)).map(|row| row.crew);
        let crews: Vec<Crew> = crews.collect();
        if !crews.is_empty() {
            let is_first = !parts.iter().any(|part: &String| part.contains("writer"));
            parts.push(format!("{word}: {}", places(&crews, is_first)));
        }
    }
    let unknown = rows.iter().filter(|row| of(row).is_none()).count();
    match (unknown, parts.is_empty()) {
        (_, true) => return "No verdict for any number of writers.".to_owned(),
        (0, false) => {}
        (_, false) => parts.push("others unknown".to_owned()),
    }
    let text = parts.join("; ");
    // Only a word can come first that is written small within the sentence.
    format!("{}{}.", text[..1].to_uppercase(), &text[1..])
}

/// `8 and 32 writers and 8 processes`; what the numbers are of is said once.
fn places(crews: &[Crew], with_noun: bool) -> String {
    let (processes, threads): (Vec<Crew>, Vec<Crew>) =
        crews.iter().partition(|crew| crew.processes);
    let mut numbers: Vec<String> = threads.iter().map(|c| c.writers.to_string()).collect();
    if let (true, Some(number), Some(last)) = (with_noun, numbers.last_mut(), threads.last()) {
        *number = last.to_string();
    }
    let listed = Some(listed(&numbers)).filter(|text| !text.is_empty());
    let places: Vec<String> =
        listed.into_iter().chain(processes.iter().map(Crew::to_string)).collect();
    places.join(" and ")
}

/// `1, 2 and 8`.
fn listed(items: &[String]) -> String {
    match items {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => items.concat(),
    }
}

/// The disk decides, because each commit waits for it.
fn disk(medium: &Medium) -> String {
    let kind = &medium.file_system;
    if medium.is_memory() {
        return format!(
            "{kind} is memory: FULL costs nothing there. Give the directory of the data."
        );
    }
    let idle = medium.probes.iter().find(|p| p.access == Access::Overwrite && !p.under_load);
    match (idle, &medium.caution) {
        (Some(probe), _) => format!(
            "The disk ({kind}) syncs 4 KiB in {} ms, p99 {} ms: each commit waits for it.",
            milliseconds(probe.p50_us / 1000.0),
            milliseconds(probe.p99_us / 1000.0)
        ),
        (None, Some(caution)) => format!("The disk was not timed: {caution}."),
        (None, None) => format!("The disk ({kind}) was not timed."),
    }
}

fn of_side(crew: Crew, side: &Side) -> String {
    let is_first = side.way == WAYS[0];
    let name =
        if is_first { format!("{crew} {}", side.way.name) } else { format!("  {}", side.way.name) };
    let ranked = match &side.figures {
        Ok(ranked) => ranked,
        Err(why) => return format!("{name:<18} no figures: {why}"),
    };
    let (p50, p99) = ranked.latency_ms.map_or_else(
        || ("-".to_owned(), "-".to_owned()),
        |(median, tail)| (milliseconds(median), milliseconds(tail)),
    );
    let cells = [&whole(ranked.rate.median), &p50, &p99, &count(ranked.refusals)];
    line(&name, cells.map(String::as_str), &words(&side.judgement))
}

/// The first column of figures reaches into the name's, where the head of the table has none.
fn line(name: &str, [rate, p50, p99, busy]: [&str; 4], verdict: &str) -> String {
    let left = 26_usize.saturating_sub(name.chars().count());
    format!("{name}{rate:>left$}{p50:>6}{p99:>7}{busy:>6} {verdict}").trim_end().to_owned()
}

/// `Plait 3.1 times faster 2.2–4.5`.
#[must_use]
pub fn words(judgement: &Judgement) -> String {
    let compared = match judgement {
        Judgement::Compared(comparison) => comparison,
        Judgement::TooFew(1) => return "1 trial: no verdict".to_owned(),
        Judgement::TooFew(trials) => return format!("{trials} trials: no verdict"),
        Judgement::None => return String::new(),
        Judgement::Unproven(_) => return "durability not shown".to_owned(),
    };
    let Comparison { ratio, low, high, verdict } = *compared;
    // The slower side's share turned round, so that every ratio is of the faster one.
    let turned = |ratio: Option<f64>| ratio.map_or(Some(0.0), |r| (r > 0.0).then(|| 1.0 / r));
    let faster = |name: &str, ratio, low, high| {
        format!("{name} {} times faster {}–{}", times(ratio), times(low), times(high))
    };
    match verdict {
        Verdict::Win => faster("Plait", ratio, low, high),
        Verdict::Loss => faster("SQLite", turned(ratio), turned(high), turned(low)),
        Verdict::NoDifference => format!("no difference {}–{}", part(low), part(high)),
    }
}

/// `0.08`, `12.7`, `2,066`: no more places than a sync is worth.
fn milliseconds(value: f64) -> String {
    match value {
        ..0.01 => "<0.01".to_owned(),
        ..9.995 => format!("{value:.2}"),
        _ => figure(value),
    }
}

/// Thousands are enough of many.
fn count(number: u64) -> String {
    if number < 10_000 { whole(number as f64) } else { format!("{}k", number / 1000) }
}

fn whole(value: f64) -> String {
    if value < 99.5 { format!("{value:.0}") } else { figure(value) }
}

/// A ratio of one or more; none is infinite.
fn times(ratio: Option<f64>) -> String {
    match ratio {
        None => "∞".to_owned(),
        // One decimal would say that nothing differs.
        Some(ratio) if ratio < 1.095 => format!("{ratio:.2}"),
        Some(ratio) if ratio < 9.95 => format!("{ratio:.1}"),
        Some(ratio) => format!("{ratio:.0}"),
    }
}

/// An end of an interval around one: a small part is a fraction.
fn part(ratio: Option<f64>) -> String {
    match ratio {
        Some(ratio) if ratio <= 0.0 => "0".to_owned(),
        Some(ratio) if ratio < 0.1 => format!("1/{:.0}", 1.0 / ratio),
        Some(ratio) if ratio < 0.95 => format!("{ratio:.1}"),
        _ => times(ratio),
    }
}

/// A trial whose sum is wrong has failed.
fn sums(rows: &[Row]) -> &'static str {
    let all_done = rows.iter().flat_map(|row| &row.sides).all(|side| side.figures.is_ok());
    if all_done { "all sums right" } else { "a trial failed" }
}

/// As an option, where a shell takes it as it is; nothing for the current directory.
fn directory(path: &Path) -> String {
    let is_current = std::env::current_dir().is_ok_and(|current| current == path);
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    match () {
        () if is_current => String::new(),
        () if text.len() <= 24 && text.chars().all(is_plain) => format!(" --dir {text}"),
        () => " --dir DIR".to_owned(),
    }
}

fn clipped(line: &str) -> String {
    if line.chars().count() <= WIDTH {
        return line.to_owned();
    }
    line.chars().take(WIDTH - 1).chain(['…']).collect()
}
