//! What engines did in behaviour tests: answers that are no figures.

use std::collections::BTreeSet;

use serde::Serialize;

use super::results::Results;
use crate::engines::catalogue::is_limit;
use crate::studies::{Mode, Study};

/// What one row answered to one question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answered {
    /// Of which study.
    pub study: Study,
    /// In which mode.
    pub mode: Mode,
    /// The test.
    pub question: String,
    /// The engine.
    pub engine: String,
    /// The row.
    pub label: String,
    /// What happened; several answers if trials differ.
    pub answers: Vec<String>,
}

/// All findings of a run, question by question in the order in which they came; none of a limit, which is no
/// store.
#[must_use]
pub fn findings(results: &Results) -> Vec<Answered> {
    let mut all: Vec<Answered> = Vec::new();
    for result in results.cells.iter().filter(|result| !is_limit(&result.cell.engine)) {
        let cell = &result.cell;
        let measured = result.trials.iter().filter_map(|trial| trial.answer.measured());
        for finding in measured.flat_map(|measured| &measured.findings) {
            let same = all.iter_mut().find(|a| {
                (a.study, a.mode) == (cell.study, cell.mode)
                    && a.question == finding.question
                    && a.label == cell.label
            });
            match same {
                Some(before) if before.answers.contains(&finding.answer) => {}
                Some(before) => before.answers.push(finding.answer.clone()),
                None => all.push(Answered {
                    study: cell.study,
                    mode: cell.mode,
                    question: finding.question.clone(),
                    engine: cell.engine.clone(),
                    label: cell.label.clone(),
                    answers: vec![finding.answer.clone()],
                }),
            }
        }
    }
    let mut seen = BTreeSet::new();
    let keys: Vec<_> = all.iter().map(|a| (a.study, a.mode, a.question.clone())).collect();
    let order: Vec<_> = keys.into_iter().filter(|key| seen.insert(key.clone())).collect();
    all.sort_by_key(|a| order.iter().position(|key| *key == (a.study, a.mode, a.question.clone())));
    all
}
