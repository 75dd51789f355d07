//! What failed: every failed trial with its text and, where it was looked into, its cause.
//!
//! Causes that are known stand here and, at more length, under "Known causes" in docs/benchmark-results.md.

use serde::Serialize;

use super::results::Results;
use crate::measure::trial::Answer;

/// Why trials fail that fail in this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// Its part of an address.
    pub id: &'static str,
    /// Engine whose trials have it.
    #[serde(skip)]
    engine: &'static str,
    /// What stands in the texts of such trials, any of these.
    #[serde(skip)]
    texts: &'static [&'static str],
    /// Its name: a heading of the document.
    pub title: &'static str,
    /// In short.
    pub says: &'static str,
}

/// All that are known.
pub const KNOWN: &[Cause] = &[
    Cause {
        id: "bdb-sql-lost-row",
        engine: "bdb-sql",
        texts: &["acknowledged commits on"],
        title: "Berkeley DB SQL loses an acknowledged row",
        says: "Its library acknowledged a commit whose row a scan of the table does not find afterwards. It happens \
               among concurrent inserts into a table with a second index, not in each trial. The suite \
               counts acknowledged commits and compares; the row is lost in the library.",
    },
    Cause {
        id: "bdb-sql-snapshots",
        engine: "bdb-sql",
        texts: &[
            "Must enable read write concurrency before enabling snapshot isolation",
            "Cannot set multiversion after accessing the database",
        ],
        title: "Berkeley DB SQL refuses snapshots",
        says: "Several connections of one process opened at once, and the setting is refused to all but the first. \
               Since then the suite lets one connection set it. Nothing was verified wrongly: these trials did not \
               begin.",
    },
];

/// The failed trials of one row that fail in the same way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failed {
    /// Its engine.
    pub engine: String,
    /// Its row.
    pub label: String,
    /// Ids of its cells.
    pub cells: Vec<String>,
    /// How many trials of these cells failed.
    pub failed: usize,
    /// How many were begun.
    pub trials: usize,
    /// What went wrong, each text once.
    pub texts: Vec<String>,
    /// Why, if it is known.
    pub cause: Option<Cause>,
}

/// All failures of a run, in the order of its cells.
#[must_use]
pub fn failures(results: &Results) -> Vec<Failed> {
    let mut all: Vec<Failed> = Vec::new();
    for result in &results.cells {
        for trial in &result.trials {
            let Answer::Failed { why } = &trial.answer else { continue };
            let (engine, label) = (&result.cell.engine, &result.cell.label);
            let cause = cause(engine, why);
            let same = |f: &&mut Failed| {
                f.engine == *engine
                    && f.label == *label
                    && f.cause == cause
                    && (cause.is_some() || f.texts.contains(why))
            };
            let failed = match all.iter_mut().find(same) {
                Some(failed) => failed,
                None => {
                    all.push(Failed {
                        engine: engine.clone(),
                        label: label.clone(),
                        cells: Vec::new(),
                        failed: 0,
                        trials: 0,
                        texts: Vec::new(),
                        cause,
                    });
                    all.last_mut().expect("pushed just now")
                }
            };
            failed.failed += 1;
            if !failed.texts.contains(why) {
                failed.texts.push(why.clone());
            }
            if !failed.cells.contains(&result.cell.id) {
                failed.cells.push(result.cell.id.clone());
                failed.trials += result.trials.len();
            }
        }
    }
    all
}

/// The cause of a failure, if it is known.
#[must_use]
pub fn cause(engine: &str, why: &str) -> Option<Cause> {
    let fits = |c: &&Cause| c.engine == engine && c.texts.iter().any(|text| why.contains(text));
    KNOWN.iter().find(fits).copied()
}

/// The causes that some failures have, each once.
#[must_use]
pub fn causes(failures: &[Failed]) -> Vec<Cause> {
    let has = |cause: &&Cause| failures.iter().any(|f| f.cause.as_ref() == Some(cause));
    KNOWN.iter().filter(has).copied().collect()
}
