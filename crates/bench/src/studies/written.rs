//! A plan that was written as JSON.

use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::Plan;

/// Reads a plan in which everything means something: what a workload does not know, as a place for one that is done by
/// threads only, would otherwise be left out without a word.
///
/// # Errors
/// If the file cannot be read, is no plan, or names something that no plan has.
pub fn read(path: &Path) -> anyhow::Result<Plan> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text).with_context(|| format!("{} is no plan", path.display()))
}

fn parse(text: &str) -> anyhow::Result<Plan> {
    let plan: Plan = serde_json::from_str(text)?;
    let (given, known) = (serde_json::from_str(text)?, serde_json::to_value(&plan)?);
    if let Some(place) = unknown(&given, &known, "") {
        bail!("{place} is unknown there and would be left out");
    }
    Ok(plan)
}

/// Where something stands in one value that the other has not.
fn unknown(given: &Value, known: &Value, place: &str) -> Option<String> {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => given.iter().find_map(|(name, value)| {
            let place = format!("{place}/{name}");
            match known.get(name) {
                Some(known) => unknown(value, known, &place),
                None => Some(place),
            }
        }),
        (Value::Array(given), Value::Array(known)) => {
            let pairs = given.iter().zip(known).enumerate();
            pairs
                .into_iter()
                .find_map(|(i, (given, known))| unknown(given, known, &format!("{place}/{i}")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::studies::draft::tests::request;
    use crate::studies::{Mode, Study};
    use crate::workloads::Workload;

    #[test]
    fn what_a_study_plans_is_read_as_it_was() {
        for study in Study::ALL {
            let plan = study.plan(&request(Mode::Modern, &["plait"]));
            let text = serde_json::to_string(&plan).expect("a plan can be written");
            assert_eq!(parse(&text).expect("a plan"), plan);
        }
    }

    #[test]
    fn work_that_is_done_by_threads_only_refuses_a_place() {
        let cells = [Study::Modes, Study::Files, Study::Writers]
            .map(|study| study.plan(&request(Mode::Modern, &[])).cells)
            .concat();
        let is = [
            |w: &Workload| matches!(w, Workload::Counter(_)),
            |w: &Workload| matches!(w, Workload::Records(_)),
            |w: &Workload| matches!(w, Workload::Tasks(_)),
            |w: &Workload| matches!(w, Workload::Writers(_)),
        ];
        let read = is.map(|is| {
            let cell = cells.iter().find(|cell| is(&cell.workload)).expect("a cell");
            let mut cell = serde_json::to_value(cell).expect("a cell can be written");
            cell["place"] = json!("processes");
            parse(&json!({ "cells": [cell], "charts": [] }).to_string())
        });
        let [refused @ .., writers] = read;
        writers.expect("many writers may be processes");
        for refused in refused {
            let error = refused.expect_err("a place").to_string();
            assert_eq!(error, "/cells/0/place is unknown there and would be left out");
        }
    }
}
