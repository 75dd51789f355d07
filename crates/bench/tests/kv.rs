//! `bench kv` through the program, from the command line to the results.

use std::path::Path;
use std::process::Command;

use plait_bench::measure::trial::Answer;
use plait_bench::report::results::Results;

fn run(arguments: &[&str], folder: &Path) -> Results {
    let json = folder.join("results.json");
    let output = Command::new(env!("CARGO_BIN_EXE_plait-bench"))
        .args(["kv", "--quick", "--repeats", "1", "--dir"])
        .arg(folder)
        .arg("--json")
        .arg(&json)
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Results::read(&json).unwrap()
}

/// Every cell was done, verified, and measured something in every phase.
fn assert_done(results: &Results) {
    assert!(!results.cells.is_empty());
    for result in &results.cells {
        for trial in &result.trials {
            let Answer::Done(measured) = &trial.answer else {
                panic!("{}: {:?}", result.cell.id, trial.answer);
            };
            assert!(!measured.verified.is_empty(), "{}", result.cell.id);
            for phase in &measured.phases {
                assert!(phase.operations > 0, "{}: {}", result.cell.id, phase.name);
            }
        }
        assert_eq!(result.trials.len(), 1, "{}", result.cell.id);
    }
}

#[test]
fn a_quick_modern_run_measures_and_verifies_every_cell() {
    let folder = tempfile::tempdir().unwrap();
    let results = run(&["--engines", "stock,map,redb"], folder.path());
    assert_done(&results);
    let engines: Vec<&str> = results.cells.iter().map(|r| r.cell.engine.as_str()).collect();
    for engine in ["stock", "map", "redb"] {
        assert!(engines.contains(&engine), "{engine}");
    }
}

#[test]
fn a_quick_historical_run_shows_the_published_figures_beside_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let results = run(&["--historical", "--engines", "stock,bdb"], folder.path());
    assert_done(&results);
    for chart in &results.charts {
        assert_eq!(chart.published.len(), 2, "{}", chart.frame.id);
        assert!(chart.series.iter().any(|s| s.engine == "stock" && s.points.len() == 4));
        assert!(chart.series.iter().any(|s| s.engine == "bdb"), "{}", chart.frame.id);
    }
}
