//! The verdict in words and as a table that fits 100 columns.

use std::fmt::Write as _;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};

use super::Need;
use super::verdict::{Ranked, Verdict};
use crate::report::standing::LEAST_TRIALS;

/// Columns that the table may fill.
const WIDTH: u16 = 100;

/// How much was measured.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Seconds of each trial.
    pub seconds: f64,
    /// Trials of each candidate.
    pub repeats: u32,
}

/// Everything that is said: what was needed, what is advised, and the measurements behind it.
#[must_use]
pub fn advice(need: &Need, verdict: &Verdict, others: &[String], run: &Asked) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}\n", needed(need));
    match verdict.ranked.first() {
        None => text.push_str("Nothing that was measured serves this need.\n\n"),
        Some(best) => {
            let _ = writeln!(text, "{}\n", advised(best, verdict, need, run));
        }
    }
    if !verdict.ranked.is_empty() {
        let _ = writeln!(text, "{}\n", table(verdict));
    }
    for excluded in &verdict.excluded {
        let _ = writeln!(text, "Not ranked: {}: {}", excluded.label, excluded.why);
    }
    for other in others {
        let _ = writeln!(text, "Not measured: {other}");
    }
    text
}

fn needed(need: &Need) -> String {
    let who = if need.processes { "processes" } else { "threads" };
    let survive = if need.survive_power_cut { "a power cut" } else { "the death of the process" };
    let rows = match need.measured_rows() {
        rows if rows == need.rows => format!("{rows} rows"),
        rows => format!("{rows} rows (of {}: more would take too long to fill in)", need.rows),
    };
    format!(
        "{rows} of {} bytes, {} writers in {who}, {} rows read for each updated; a commit must survive {survive}.",
        need.value_bytes, need.writers, need.reads
    )
}

fn advised(best: &Ranked, verdict: &Verdict, need: &Need, run: &Asked) -> String {
    if verdict.equals > 1 {
        return undecided(verdict, need, run);
    }
    let mut text = match verdict.ranked.get(1) {
        None => format!("The only one that was measured and serves: {}.", best.label),
        Some(_) => format!("Best measured here: {}.", best.label),
    };
    if !best.settings.is_empty() {
        let _ = write!(text, "\n  settings: {}", best.settings);
    }
    if let Some(next) = verdict.ranked.get(1) {
        let ratio = best.rate.median / next.rate.median;
        let _ = write!(
            text,
            "\n  {ratio:.1} times the commits of the next, {}; the intervals of {} trials do not overlap.",
            next.label, best.rate.trials
        );
    }
    text
}

/// What is said when no candidate is apart from all others, with the command that may tell.
fn undecided(verdict: &Verdict, need: &Need, run: &Asked) -> String {
    let equals: Vec<&str> =
        verdict.ranked[..verdict.equals].iter().map(|ranked| ranked.label.as_str()).collect();
    let fewest = verdict.ranked[..verdict.equals].iter().map(|r| r.rate.trials).min().unwrap_or(0);
    let why = if fewest < LEAST_TRIALS {
        format!("{LEAST_TRIALS} trials of each are the least that can tell, and there are {fewest}")
    } else {
        format!("their intervals overlap after {fewest} trials of {} s", run.seconds)
    };
    let yes = |is| if is { "yes" } else { "no" };
    let (repeats, seconds) = ((2 * run.repeats).max(8), (4.0 * run.seconds).max(2.0));
    format!(
        "These measurements cannot tell which is best: {why}.\n  not told apart: {}.\n  Run, when the machine is \
         quiet:\n  plait bench advise --rows {} --value-bytes {} --writers {} --processes {} \\\n    --reads {} \
         --survive-power-cut {} --repeats {repeats} --seconds {seconds}",
        equals.join("; "),
        need.rows,
        need.value_bytes,
        need.writers,
        yes(need.processes),
        need.reads,
        yes(need.survive_power_cut),
    )
}

fn table(verdict: &Verdict) -> Table {
    let mut table = Table::new();
    table
        .load_preset(NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH);
    table.set_header([
        "engine and settings",
        "commits/s",
        "interval",
        "median ms",
        "99 % ms",
        "repeated",
    ]);
    for ranked in &verdict.ranked {
        let (median, tail) = match ranked.latency_ms {
            Some((median, tail)) => (format!("{median:.2}"), format!("{tail:.1}")),
            None => ("-".to_owned(), "-".to_owned()),
        };
        table.add_row([
            ranked.label.clone(),
            format!("{:.0}", ranked.rate.median),
            format!("{:.0} to {:.0}", ranked.rate.low, ranked.rate.high),
            median,
            tail,
            format!("{:.1} %", 100.0 * ranked.refused),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::verdict::Excluded;
    use crate::engines::Settings;
    use crate::measure::statistics::Median;

    const RUN: Asked = Asked { seconds: 0.5, repeats: 5 };

    fn ranked(label: &str, rate: f64) -> Ranked {
        let rate = Median { median: rate, low: 0.9 * rate, high: 1.1 * rate, trials: 5 };
        Ranked {
            label: label.to_owned(),
            settings: Settings::default(),
            rate,
            latency_ms: Some((0.5, 12.25)),
            refusals: 1,
            refused: 0.001,
        }
    }

    fn need() -> Need {
        Need {
            rows: 1000,
            value_bytes: 100,
            writers: 10,
            processes: true,
            reads: 1,
            survive_power_cut: true,
        }
    }

    #[test]
    fn the_advice_says_what_was_needed_and_why_it_is_given() {
        let verdict = Verdict {
            ranked: vec![ranked("Fast: FULL", 6000.0), ranked("Slow: FULL", 2000.0)],
            equals: 1,
            excluded: vec![Excluded {
                label: "Liar: FULL".into(),
                why: "0 syncs for 50 commits".into(),
            }],
        };
        let text =
            advice(&need(), &verdict, &["redb: a store belongs to one process".into()], &RUN);
        for part in [
            "1000 rows of 100 bytes, 10 writers in processes",
            "survive a power cut",
            "Best measured here: Fast: FULL.",
            "3.0 times the commits of the next, Slow: FULL; the intervals of 5 trials do not overlap.",
            "5400 to 6600",
            "Not ranked: Liar: FULL: 0 syncs for 50 commits",
            "Not measured: redb: a store belongs to one process",
        ] {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    }

    #[test]
    fn nothing_is_named_best_that_cannot_be_told_from_another() {
        let verdict = Verdict {
            ranked: vec![ranked("A", 1000.0), ranked("B", 990.0), ranked("C", 10.0)],
            equals: 2,
            excluded: Vec::new(),
        };
        let text = advice(&need(), &verdict, &[], &RUN);
        assert!(!text.contains("Best"), "{text}");
        assert!(text.contains("cannot tell which is best: their intervals overlap"), "{text}");
        assert!(text.contains("not told apart: A; B."), "{text}");
        assert!(
            text.contains("--processes yes") && text.contains("--repeats 10 --seconds 2"),
            "{text}"
        );
    }

    #[test]
    fn nothing_is_advised_when_nothing_serves() {
        let text = advice(&need(), &Verdict::default(), &[], &RUN);
        assert!(text.contains("Nothing that was measured serves this need."), "{text}");
    }
}
