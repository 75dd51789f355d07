//! Plait in two ways beside SQLite, for each crew.
//!
//! A difference is claimed by the rule of the studies ([`standing::compare`]), and only from
//! [`LEAST_TRIALS`] trials on both sides. A way whose commits were not shown to wait for the disk
//! is not judged. On a medium that is memory no commit waits: the figures are compared as they are,
//! and the screen says so.

use super::plan::{CREWS, Crew, WAYS, Way};
use crate::advise::verdict::{Ranked, figures};
use crate::report::metric::Better;
use crate::report::results::Results;
use crate::report::standing::{self, Comparison, Verdict};

/// Trials of each side that a verdict needs: one more than in the studies, since these are short.
pub const LEAST_TRIALS: usize = 5;

/// A crew with what each way gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The writers.
    pub crew: Crew,
    /// In the order of [`WAYS`].
    pub sides: Vec<Side>,
}

/// One way of one crew.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// Which.
    pub way: Way,
    /// Its figures, or why there are none.
    pub figures: Result<Ranked, String>,
    /// How it stands beside SQLite.
    pub judgement: Judgement,
}

/// How a way stands beside SQLite.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    /// It was compared.
    Compared(Comparison),
    /// There are only so many trials of one of the two.
    TooFew(usize),
    /// One of the two has no figures, or it is SQLite itself.
    None,
    /// It was not shown that commits of one of the two wait for the disk; the reason.
    Unproven(String),
}

impl Judgement {
    /// The claim, if one may be made.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        match self {
            Self::Compared(comparison) => Some(comparison.verdict),
            Self::TooFew(_) | Self::None | Self::Unproven(_) => None,
        }
    }
}

/// Draws it, crew by crew.
#[must_use]
pub fn draw(results: &Results) -> Vec<Row> {
    CREWS.iter().enumerate().map(|(index, crew)| row(results, *crew, index)).collect()
}

fn row(results: &Results, crew: Crew, index: usize) -> Row {
    let measured = WAYS.map(|way| measured(results, way, index));
    let (stock, stock_unproven) = &measured[0];
    let sides = WAYS.iter().zip(&measured).map(|(way, (figures, unproven))| {
        let judgement = match (stock, figures) {
            _ if *way == WAYS[0] => Judgement::None,
            (Ok(stock), Ok(ours)) => match stock_unproven.as_ref().or(unproven.as_ref()) {
                Some(why) => Judgement::Unproven(why.clone()),
                None => judge(ours, stock),
            },
            _ => Judgement::None,
        };
        Side { way: *way, figures: figures.clone(), judgement }
    });
    Row { crew, sides: sides.collect() }
}

/// The figures of a way with a crew, and why its durability counts for nothing, if it does.
fn measured(results: &Results, way: Way, crew: usize) -> (Result<Ranked, String>, Option<String>) {
    let lines = results.charts.iter().flat_map(|chart| &chart.series);
    let point = lines.filter(|line| line.label == way.name).find_map(|line| line.points.get(crew));
    let Some(result) = point.and_then(|point| results.cell(&point.cell)) else {
        return (Err("not measured".to_owned()), None);
    };
    let is_memory = results.machine.media.iter().any(|medium| medium.is_memory());
    let unproven = if is_memory { None } else { results.unranked(&result.cell) };
    (figures(result), unproven)
}

fn judge(ours: &Ranked, stock: &Ranked) -> Judgement {
    let trials = ours.rate.trials.min(stock.rate.trials);
    if trials < LEAST_TRIALS {
        return Judgement::TooFew(trials);
    }
    Judgement::Compared(standing::compare(Better::More, &ours.rate, &stock.rate))
}

/// Why no crew could be judged at all, if none could: a failure, or durability that was not shown.
/// Trials that are merely few are no such reason, because they were asked for.
#[must_use]
pub fn nothing(rows: &[Row]) -> Option<String> {
    let sides = || rows.iter().flat_map(|row| &row.sides);
    if sides().any(|s| matches!(s.judgement, Judgement::Compared(_) | Judgement::TooFew(_))) {
        return None;
    }
    let unproven = sides().find_map(|side| match &side.judgement {
        Judgement::Unproven(why) => {
            Some(format!("no commit was shown to wait for the disk: {why}"))
        }
        _ => None,
    });
    let failed = || {
        let why = sides()
            .find_map(|side| Some(format!("{}: {}", side.way.name, side.figures.as_ref().err()?)));
        why.unwrap_or_else(|| "nothing was measured".to_owned())
    };
    Some(unproven.unwrap_or_else(failed))
}
