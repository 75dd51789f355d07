//! `bench kv`: SQLite as a key-value database, against Berkeley DB as published and against today's stores.
//!
//! | module | what |
//! |---|---|
//! | [`published`] | the published figures |
//! | `historical` | the published sizes and configurations |
//! | `modern` | what is asked of key-value stores today |
//! | `variants` | the engines and settings of the modern mode |

mod historical;
mod modern;
pub mod published;
mod variants;

use super::draft::{Draft, category};
use super::{Mode, Plan, Point, Request, Study};
use crate::engines::catalogue::{Entry, Kind, Presence};

/// What is measured and shown.
#[must_use]
pub fn plan(request: &Request) -> Plan {
    let mut draft = Draft::new(Study::Kv, request.mode);
    for (number, medium) in request.media.iter().enumerate() {
        draft.on(number, medium);
        match request.mode {
            Mode::Historical => historical::add(&mut draft, request),
            Mode::Modern => modern::add(&mut draft, request),
        }
    }
    draft.finish()
}

/// The place of a phase in a group of bars; none without a cell, for an engine that is absent.
fn bar(cell: Option<&String>, phase: &str) -> Option<Point> {
    Some(Point { x: category(phase), cell: cell?.clone(), phase: Some(phase.to_owned()) })
}

/// Libraries of the command line: everything with SQLite's interface that the catalogue itself does not have.
fn is_named_library(entry: &Entry) -> bool {
    let known = ["stock", "plait", "bdb-sql"].contains(&entry.name.as_str());
    !known && matches!(&entry.presence, Presence::Here { engine: Kind::Sqlite { .. }, .. })
}

/// A number with commas, as the publication has them.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::{Chart, Series, Study};
    use super::*;
    use crate::engines::{Durability, Settings, catalogue, log};
    use crate::measure::trial::{Answer, Spec};
    use crate::workloads::Workload;
    use crate::workloads::crew::Place;
    use crate::workloads::key_value::Step;

    fn request(mode: Mode, quick: bool) -> Request {
        Request {
            mode,
            quick,
            thorough: false,
            engines: catalogue::all(&[]).unwrap(),
            media: vec!["/tmp".into()],
        }
    }

    fn all_plans() -> Vec<Plan> {
        let mut requests = Vec::new();
        for mode in [Mode::Historical, Mode::Modern] {
            for (quick, thorough) in [(true, false), (false, false), (false, true)] {
                let media = vec!["/tmp".into(), "/var/tmp".into()];
                requests.push(Request { thorough, media, ..request(mode, quick) });
            }
        }
        requests.iter().map(|request| Study::Kv.plan(request)).collect()
    }

    #[test]
    fn ids_are_unique_and_points_name_cells_and_phases_that_are_there() {
        for plan in all_plans() {
            let cells: HashSet<&str> = plan.cells.iter().map(|c| c.id.as_str()).collect();
            assert_eq!(cells.len(), plan.cells.len());
            let charts: HashSet<&str> = plan.charts.iter().map(|c| c.frame.id.as_str()).collect();
            assert_eq!(charts.len(), plan.charts.len());
            for point in plan.charts.iter().flat_map(|c| &c.series).flat_map(|s| &s.points) {
                let cell = plan.cells.iter().find(|c| c.id == point.cell).expect(&point.cell);
                let Workload::KeyValue(load) = &cell.workload else { panic!("{}", cell.id) };
                let phases: Vec<String> = load
                    .parts
                    .iter()
                    .flat_map(|part| part.steps.iter().map(|step| step.phase(part.keys)))
                    .collect();
                let phase = point.phase.as_ref().expect("every point names its phase");
                assert!(phases.contains(phase), "{} has no {phase}", cell.id);
            }
        }
    }

    #[test]
    fn a_chart_never_mixes_classes_of_durability() {
        for plan in all_plans() {
            for chart in &plan.charts {
                let classes: HashSet<String> = chart
                    .series
                    .iter()
                    .flat_map(|series| &series.points)
                    .filter_map(|point| plan.cells.iter().find(|c| c.id == point.cell))
                    .map(|cell| format!("{:?}", cell.durability))
                    .collect();
                assert!(classes.len() <= 1, "{}: {classes:?}", chart.frame.id);
            }
        }
    }

    #[test]
    fn the_limit_is_shown_beside_durable_commits_and_nowhere_else() {
        for (quick, thorough) in [(true, false), (false, true)] {
            let plan = Study::Kv.plan(&Request { thorough, ..request(Mode::Modern, quick) });
            let points = |chart: &Chart| -> Vec<(String, Option<String>)> {
                let of_limit = chart.series.iter().filter(|s| s.engine == log::NAME);
                let points = of_limit.flat_map(|s| &s.points);
                points.map(|p| (p.cell.clone(), p.phase.clone())).collect()
            };
            let mut shown = Vec::new();
            for chart in &plan.charts {
                for (cell, phase) in points(chart) {
                    let cell = plan.cells.iter().find(|c| c.id == cell).expect("a cell");
                    assert_eq!(cell.durability, Durability::PowerCut);
                    shown.push((chart.frame.id.clone(), phase.expect("every point has a phase")));
                }
            }
            let expected =
                [("one", "insert one int"), ("one", "50/50 int"), ("threads", "50/50 int by 8")];
            let expected = expected
                .map(|(chart, phase)| (format!("kv/modern/power-cut/{chart}"), phase.to_owned()));
            assert_eq!(shown, expected);
            let lines = plan.charts.iter().flat_map(|c| &c.series);
            assert!(lines.filter(|s| s.engine == log::NAME).all(|s| !s.points.is_empty()));
        }
    }

    #[test]
    fn the_historical_plan_has_exactly_the_published_cells() {
        let mut request = request(Mode::Historical, false);
        request.engines.retain(|e| e.name == "stock" || e.name == "bdb");
        let here = request.engines.iter().filter(|e| e.engine().is_some()).count();
        let plan = Study::Kv.plan(&request);
        assert_eq!(plan.cells.len(), published::BLOCKS.len() * here);
        assert_eq!(plan.charts.len(), published::BLOCKS.len());
        for (chart, block) in plan.charts.iter().zip(&published::BLOCKS) {
            let ghosts: Vec<f64> =
                chart.published.iter().flat_map(|p| &p.points).map(|(_, value)| *value).collect();
            let expected: Vec<f64> =
                block.sqlite.iter().chain(&block.bdb).map(|v| f64::from(*v)).collect();
            assert_eq!(ghosts, expected, "{}", chart.frame.id);
        }
    }

    #[test]
    fn an_absent_engine_keeps_its_series_without_points_and_has_no_cells() {
        for mode in [Mode::Historical, Mode::Modern] {
            let mut request = request(mode, true);
            for entry in &mut request.engines {
                entry.presence =
                    Presence::Absent { why: "gone".to_owned(), install: "get it".to_owned() };
            }
            let plan = Study::Kv.plan(&request);
            assert_eq!(plan.cells.len(), 0);
            let series: Vec<&Series> = plan.charts.iter().flat_map(|c| &c.series).collect();
            assert!(series.iter().any(|s| s.engine == "bdb"));
            assert!(series.iter().all(|s| s.points.is_empty()));
        }
    }

    /// Makes a cell small enough for a test.
    fn shrink(workload: &Workload) -> Workload {
        let Workload::KeyValue(load) = workload else { panic!("{workload:?}") };
        let mut load = load.clone();
        load.rows = load.rows.min(600);
        for step in load.parts.iter_mut().flat_map(|part| &mut part.steps) {
            match step {
                // A test is not the program that could be started again as one of them.
                Step::Mix { seconds, place, .. } => (*seconds, *place) = (0.02, Place::Threads),
                Step::InsertOne { seconds } | Step::Promised { seconds, .. } => *seconds = 0.02,
                Step::Scan { ranges, .. } => *ranges = 5,
                Step::Insert | Step::Select | Step::Delete => {}
            }
        }
        Workload::KeyValue(load)
    }

    /// Runs every cell of a plan in this process, small.
    fn try_all(request: &Request) {
        let mut told = Vec::new();
        for cell in Study::Kv.plan(request).cells {
            let directory = tempfile::tempdir().unwrap();
            let spec = Spec {
                engine: request.engine(&cell.engine).unwrap().engine().unwrap().clone(),
                settings: cell.settings.clone(),
                workload: shrink(&cell.workload),
                directory: directory.path().to_owned(),
                seed: 3,
            };
            match spec.run() {
                Answer::Done(measured) => told.push((cell, measured.settings)),
                other => panic!("{}: {other:?}", cell.id),
            }
        }
        for (cell, settings) in &told {
            assert_took(&cell.id, &cell.settings, settings);
        }
    }

    /// What was asked for and can be read back is what is told.
    fn assert_took(id: &str, asked: &Settings, told: &Settings) {
        let words = [
            ("synchronous", "off", "0"),
            ("synchronous", "normal", "1"),
            ("synchronous", "full", "2"),
        ];
        for (name, value) in asked.iter() {
            let Some(has) = told.get(name) else { continue };
            let meant = words.iter().find(|w| w.0 == name && w.1 == value).map_or(value, |w| w.2);
            assert!(is_about(meant, has), "{id}: {name}={value} was asked for and is {has}");
        }
    }

    /// Whether two values are equal; Berkeley DB raises a cache by a quarter for its own needs.
    fn is_about(asked: &str, has: &str) -> bool {
        match (asked.parse::<f64>(), has.parse::<f64>()) {
            (Ok(asked), Ok(has)) => {
                has == asked || (asked > 0.0 && (1.0..1.3).contains(&(has / asked)))
            }
            _ => asked == has,
        }
    }

    #[test]
    fn every_historical_cell_runs_and_keeps_its_settings() {
        try_all(&request(Mode::Historical, false));
    }

    #[test]
    fn every_modern_cell_runs_and_keeps_its_settings() {
        try_all(&request(Mode::Modern, false));
    }

    #[test]
    fn durable_means_what_the_method_says() {
        let request = request(Mode::Modern, false);
        let must = [
            ("bdb", "sync", "sync"),
            ("lmdb", "sync", "full"),
            ("rocksdb", "sync", "true"),
            ("redb", "durability", "immediate"),
        ];
        for cell in Study::Kv.plan(&request).cells {
            if cell.durability != Durability::PowerCut {
                continue;
            }
            if let Some((_, name, value)) = must.iter().find(|m| m.0 == cell.engine) {
                assert_eq!(cell.settings.get(name), Some(*value), "{}", cell.id);
            }
        }
    }

    #[test]
    fn numbers_have_commas() {
        assert_eq!(
            [5, 999, 5_000, 500_000, 10_000_000].map(thousands),
            ["5", "999", "5,000", "500,000", "10,000,000"]
        );
    }
}
