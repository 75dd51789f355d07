//! Studies B and C run through the program, from the command line to the results.

use std::path::Path;
use std::process::Command;

use plait_bench::measure::trial::Answer;
use plait_bench::report::results::Results;
use plait_bench::studies::{Metric, Mode};

/// Runs the program for a glance and reads what it wrote.
fn glance(arguments: &[&str]) -> Results {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("results.json");
    let status = Command::new(env!("CARGO_BIN_EXE_plait-bench"))
        .args(arguments)
        .args(["--quick", "--repeats", "1", "--json"])
        .arg(&json)
        .arg("--dir")
        .arg(directory.path())
        .output()
        .unwrap();
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    read(&json)
}

fn read(json: &Path) -> Results {
    Results::read(json).unwrap()
}

/// Asserts that no trial failed, and that only what `may_lack` names is not applicable.
fn assert_measured(results: &Results, may_lack: impl Fn(&str) -> bool) {
    assert!(!results.cells.is_empty() && !results.charts.is_empty());
    for result in &results.cells {
        let id = &result.cell.id;
        assert_eq!(result.trials.len(), 1, "{id}");
        match &result.trials[0].answer {
            Answer::Done(measured) => {
                assert!(!measured.verified.is_empty(), "{id}");
                assert!(!measured.phases.is_empty(), "{id}");
            }
            Answer::NotApplicable { why } => assert!(may_lack(id), "{id}: {why}"),
            Answer::Failed { why } => panic!("{id}: {why}"),
        }
    }
    for point in results.charts.iter().flat_map(|c| &c.series).flat_map(|s| &s.points) {
        let cell = results.cell(&point.cell).unwrap_or_else(|| panic!("no cell {}", point.cell));
        let measured = cell.trials[0].answer.measured().is_some();
        let shown = cell.phases(point.phase.as_deref()).count();
        assert_eq!(shown, usize::from(measured), "{} {:?}", point.cell, point.phase);
    }
}

#[test]
fn the_modes_study_is_measured_and_names_what_stock_has_not() {
    let results = glance(&["modes", "--engines", "stock,map"]);
    // Neither the journal mode nor the way to begin.
    assert_measured(&results, |id| id.contains("concurrent"));
    let refused = results.charts.iter().find(|c| c.frame.metric == Metric::RefusedPercent);
    assert!(refused.is_some_and(|c| !c.series.is_empty()));
}

#[test]
fn the_modes_study_is_measured_as_published() {
    let results = glance(&["modes", "--historical", "--engines", "stock,dict"]);
    assert_measured(&results, |_| false);
    assert!(
        results.charts.iter().all(|c| c.frame.mode == Mode::Historical && c.published.len() == 4)
    );
}

#[test]
fn the_files_study_is_measured() {
    let results = glance(&["files", "--engines", "stock,files,map"]);
    assert_measured(&results, |_| false);
}

#[test]
fn the_files_study_is_measured_as_published() {
    let results = glance(&["files", "--historical", "--engines", "stock,files"]);
    assert_measured(&results, |_| false);
    let warm_up = results.charts.iter().find(|c| c.frame.id == "files/historical/warm-up").unwrap();
    assert_eq!(warm_up.published[0].points.len(), 6);
}
