//! Where Plait wins and where it loses: at each place of each chart, its best row against the best row of each rival.
//!
//! 1. Only ranked places compete ([`Place::ranked`](super::evaluate::Place::ranked)): no limit does.
//! 2. A rival's row competes with Plait's if it claims to survive at least as much.
//! 3. A rival enters with the better of all its rows, tuned or not, against the row of ours that stands for the place:
//!    our tuned one, or defaults where we have no other. Only where both stand there do our defaults also meet a rival's
//!    defaults, beside that, and a rival without any again the better of all. What is tuned is told by one rule for all
//!    ([`Tuning::of`]) and written beside both rows.
//! 4. A difference is claimed only where the intervals of enough trials separate ([`are_apart`]).

use serde::Serialize;

use super::evaluate::{Evaluated, Line, Place};
use super::metric::Better;
use crate::engines::Durability;
use crate::measure::statistics::Median;
use crate::studies::{Metric, Mode, Study, Tuning, X};

/// The engine whose standing it is.
pub const OURS: &str = "plait";

/// The same by keys, with a standing of its own.
const OURS_BY_KEYS: &str = "plait-kv";

/// The percentiles at which distributions are compared.
const PERCENTILES: [f64; 3] = [50.0, 99.0, 99.99];

/// What rounds to `1.00×` is no difference, however narrow the intervals are.
const LEAST_DIFFERENCE: f64 = 0.005;

/// What a comparison says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Worse, and the intervals separate.
    Loss,
    /// The intervals overlap, or there are too few trials.
    NoDifference,
    /// Better, and the intervals separate.
    Win,
}

/// Plait at one place of one chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Standing {
    /// Id of the chart.
    pub chart: String,
    /// Its study.
    pub study: Study,
    /// Its mode.
    pub mode: Mode,
    /// Its title.
    pub title: String,
    /// Which place: `threads 8`, `select int`, `p99`.
    pub place: String,
    /// Unit of the figures.
    pub unit: &'static str,
    /// Which way is better.
    pub better: Better,
    /// What a commit of Plait's row survives.
    pub durability: Durability,
    /// Plait's row.
    pub label: String,
    /// Defaults or tuned.
    pub tuning: Tuning,
    /// Its figure.
    pub value: Median,
    /// The best row of each rival, the best of them first. None without rivals.
    pub rivals: Vec<Rival>,
}

/// A rival's best row beside Plait's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rival {
    /// Its engine.
    pub engine: String,
    /// Its row.
    pub label: String,
    /// Defaults or tuned.
    pub tuning: Tuning,
    /// Its figure.
    pub value: Median,
    /// How many times as good Plait is; none if that is infinite.
    pub ratio: Option<f64>,
    /// The least that the intervals allow.
    pub ratio_low: Option<f64>,
    /// The most that the intervals allow.
    pub ratio_high: Option<f64>,
    /// What it says.
    pub verdict: Verdict,
}

/// How many times as good a figure is as another; none if infinitely.
#[must_use]
pub fn times_as_good(better: Better, ours: f64, theirs: f64) -> Option<f64> {
    let (above, below) = match better {
        Better::More => (ours, theirs),
        Better::Less => (theirs, ours),
    };
    if above == below { Some(1.0) } else { Some(above / below).filter(|ratio| ratio.is_finite()) }
}

/// Trials of each of two rows from which on a difference between them is claimed: the whole ranges of four and four
/// equal rows separate by chance in 1 of 35 cases, those of three and three in 1 of 10.
pub const LEAST_TRIALS: usize = 4;

/// Whether two figures differ: their intervals separate, and come from enough trials to mean something.
#[must_use]
pub fn are_apart(a: &Median, b: &Median) -> bool {
    a.trials.min(b.trials) >= LEAST_TRIALS && a.is_apart_from(b)
}

/// A figure beside another: ratio, its least and its most, and what it says.
#[must_use]
pub fn compare(better: Better, ours: &Median, theirs: &Median) -> Comparison {
    let ratio = times_as_good(better, ours.median, theirs.median);
    let alike = ratio.is_some_and(|ratio| (ratio - 1.0).abs() < LEAST_DIFFERENCE);
    let verdict = if alike || !are_apart(ours, theirs) {
        Verdict::NoDifference
    } else if (ours.median > theirs.median) == (better == Better::More) {
        Verdict::Win
    } else {
        Verdict::Loss
    };
    let (worst, best) = match better {
        Better::More => ((ours.low, theirs.high), (ours.high, theirs.low)),
        Better::Less => ((ours.high, theirs.low), (ours.low, theirs.high)),
    };
    Comparison {
        ratio,
        low: times_as_good(better, worst.0, worst.1),
        high: times_as_good(better, best.0, best.1),
        verdict,
    }
}

/// What [`compare`] says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// How many times as good; none if infinitely.
    pub ratio: Option<f64>,
    /// The least that the intervals allow.
    pub low: Option<f64>,
    /// The most that the intervals allow.
    pub high: Option<f64>,
    /// What it says.
    pub verdict: Verdict,
}

/// All of them, losses first, the greatest first; then where no difference is shown, then wins, the greatest last.
#[must_use]
pub fn standings(charts: &[Evaluated]) -> Vec<Standing> {
    let mut all: Vec<Standing> = charts.iter().flat_map(of_chart).collect();
    all.sort_by(|a, b| {
        let key = |s: &Standing| {
            s.rivals.first().map_or((Verdict::Win, f64::INFINITY), |rival| {
                (rival.verdict, rival.ratio.unwrap_or(f64::INFINITY))
            })
        };
        let ((a_verdict, a_ratio), (b_verdict, b_ratio)) = (key(a), key(b));
        a_verdict.cmp(&b_verdict).then(a_ratio.total_cmp(&b_ratio))
    });
    all
}

/// A row that competes.
struct Entrant<'a> {
    line: &'a Line,
    durability: Durability,
    tuning: Tuning,
    value: Median,
}

fn of_chart(chart: &Evaluated) -> Vec<Standing> {
    let Some(better) = chart.better else { return Vec::new() };
    let mut found = Vec::new();
    for x in &chart.xs {
        if chart.frame.metric == Metric::Latency {
            for percentile in PERCENTILES {
                let entrants = entrants(chart, x, &|place| at(place, percentile));
                let place = if chart.xs.len() > 1 {
                    format!("{}, p{percentile}", name(chart, x))
                } else {
                    format!("p{percentile}")
                };
                found.extend(at_place(chart, better, &place, &entrants));
            }
        } else {
            let entrants = entrants(chart, x, &|place| place.ranked().copied());
            found.extend(at_place(chart, better, &name(chart, x), &entrants));
        }
    }
    found
}

fn name(chart: &Evaluated, x: &X) -> String {
    match x {
        X::Number(number) => format!("{} {number}", chart.frame.x_title).trim_start().to_owned(),
        X::Category(name) => name.clone(),
    }
}

fn at(place: &Place, percentile: f64) -> Option<Median> {
    place.ranked()?;
    place.curve.iter().find(|at| at.percentile == percentile).map(|at| at.value)
}

fn entrants<'a>(
    chart: &'a Evaluated,
    x: &X,
    figure: &dyn Fn(&Place) -> Option<Median>,
) -> Vec<Entrant<'a>> {
    let lines = chart.series.iter();
    lines
        .filter_map(|line| {
            let place = line.at(x)?;
            let (durability, tuning) = (place.durability?, place.tuning?);
            Some(Entrant { line, durability, tuning, value: figure(place)? })
        })
        .collect()
}

/// One standing for each durability and tuning in which Plait has a row.
fn at_place(
    chart: &Evaluated,
    better: Better,
    place: &str,
    entrants: &[Entrant<'_>],
) -> Vec<Standing> {
    let is_ours = |e: &&Entrant<'_>| [OURS, OURS_BY_KEYS].contains(&e.line.engine.as_str());
    let (both, theirs): (Vec<_>, Vec<_>) = entrants.iter().partition(is_ours);
    let (sql, keys): (Vec<_>, Vec<_>) = both.into_iter().partition(|e| e.line.engine == OURS);
    let mut found = Vec::new();
    for ours in [sql, keys] {
        found.extend(of_one(chart, better, place, &ours, &theirs));
    }
    found
}

fn of_one(
    chart: &Evaluated,
    better: Better,
    place: &str,
    ours: &[&Entrant<'_>],
    theirs: &[&Entrant<'_>],
) -> Vec<Standing> {
    let mut found = Vec::new();
    for durability in [Durability::None, Durability::Process, Durability::PowerCut] {
        let of_class: Vec<_> = ours.iter().filter(|e| e.durability == durability).collect();
        let has_tuned = of_class.iter().any(|e| e.tuning == Tuning::Tuned);
        for tuning in [Tuning::Default, Tuning::Tuned] {
            let rows = of_class.iter().map(|e| **e).filter(|e| e.tuning == tuning);
            let only_defaults = has_tuned && tuning == Tuning::Default;
            let Some(best) = rows.min_by(|a, b| order(better, &a.value, &b.value)) else {
                continue;
            };
            found.push(Standing {
                chart: chart.frame.id.clone(),
                study: chart.frame.study,
                mode: chart.frame.mode,
                title: chart.frame.title.clone(),
                place: place.to_owned(),
                unit: chart.unit,
                better,
                durability,
                label: best.line.label.clone(),
                tuning,
                value: best.value,
                rivals: rivals(better, best, theirs, only_defaults),
            });
        }
    }
    found
}

/// The better one first.
fn order(better: Better, a: &Median, b: &Median) -> std::cmp::Ordering {
    match better {
        Better::More => b.median.total_cmp(&a.median),
        Better::Less => a.median.total_cmp(&b.median),
    }
}

/// The best row of each engine, of its defaults as far as it has any where only these are to meet ours.
fn rivals(
    better: Better,
    ours: &Entrant<'_>,
    theirs: &[&Entrant<'_>],
    only_defaults: bool,
) -> Vec<Rival> {
    let mut best: Vec<&Entrant<'_>> = Vec::new();
    let eligible = theirs.iter().filter(|e| e.durability >= ours.durability);
    for entrant in eligible {
        let other_kind = |e: &Entrant<'_>| only_defaults && e.tuning != Tuning::Default;
        match best.iter_mut().find(|e| e.line.engine == entrant.line.engine) {
            None => best.push(entrant),
            Some(before) => {
                let kinds = other_kind(entrant).cmp(&other_kind(before));
                if kinds.then(order(better, &entrant.value, &before.value)).is_lt() {
                    *before = entrant;
                }
            }
        }
    }
    best.sort_by(|a, b| order(better, &a.value, &b.value));
    best.into_iter()
        .map(|entrant| {
            let Comparison { ratio, low, high, verdict } =
                compare(better, &ours.value, &entrant.value);
            Rival {
                engine: entrant.line.engine.clone(),
                label: entrant.line.label.clone(),
                tuning: entrant.tuning,
                value: entrant.value,
                ratio,
                ratio_low: low,
                ratio_high: high,
                verdict,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn median(low: f64, median: f64, high: f64) -> Median {
        Median { median, low, high, trials: 5 }
    }

    #[test]
    fn more_seconds_are_a_loss() {
        let compared = compare(Better::Less, &median(18.0, 20.0, 22.0), &median(9.0, 10.0, 11.0));
        assert_eq!(compared.verdict, Verdict::Loss);
        assert_eq!(compared.ratio, Some(0.5));
        assert_eq!((compared.low, compared.high), (Some(9.0 / 22.0), Some(11.0 / 18.0)));
    }

    #[test]
    fn overlapping_intervals_show_no_difference() {
        let compared = compare(Better::More, &median(5.0, 20.0, 30.0), &median(9.0, 10.0, 11.0));
        assert_eq!(compared.verdict, Verdict::NoDifference);
    }

    #[test]
    fn single_trials_show_no_difference() {
        let single = |value| Median { trials: 1, ..median(value, value, value) };
        let compared = compare(Better::More, &single(900.0), &single(10.0));
        assert_eq!(compared.verdict, Verdict::NoDifference);
    }

    #[test]
    fn nothing_against_something_has_no_ratio_and_is_still_a_win() {
        let none = median(0.0, 0.0, 0.0);
        let compared = compare(Better::Less, &none, &median(3.0, 4.0, 5.0));
        assert_eq!((compared.verdict, compared.ratio), (Verdict::Win, None));
        assert_eq!(compare(Better::Less, &none, &none).ratio, Some(1.0));
    }
}
