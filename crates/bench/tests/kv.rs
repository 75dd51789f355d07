//! `bench kv` through the program, from the command line to the results.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use plait_bench::engines::{Begin, KeyKind, catalogue};
use plait_bench::measure::phase::Phase;
use plait_bench::measure::trial::{Answer, Spec};
use plait_bench::report::results::Results;
use plait_bench::studies::{Mode, Request, Study};
use plait_bench::workloads::Workload;
use plait_bench::workloads::crew::Place;
use plait_bench::workloads::key_value::{Load, Part, Step};

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

/// One made trial of a key-value engine that is here.
fn trial(name: &str, settings: &[(&str, &str)], steps: Vec<Step>) -> Option<Answer> {
    let folder = tempfile::tempdir().unwrap();
    Some(spec(name, settings, steps, folder.path())?.run())
}

/// The same in the program, which can start itself again as one of several processes.
fn in_a_program(name: &str, settings: &[(&str, &str)], steps: Vec<Step>) -> Option<Answer> {
    let folder = tempfile::tempdir().unwrap();
    let spec = spec(name, settings, steps, folder.path())?;
    let mut child = Command::new(env!("CARGO_BIN_EXE_plait-bench"))
        .arg("trial")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&serde_json::to_vec(&spec).unwrap()).unwrap();
    drop(input);
    Some(serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap())
}

fn spec(name: &str, settings: &[(&str, &str)], steps: Vec<Step>, folder: &Path) -> Option<Spec> {
    let entries = catalogue::all(&[]).unwrap();
    let engine = entries.iter().find(|e| e.name == name)?.engine()?.clone();
    let load = Load {
        rows: 500,
        value_bytes: 100,
        rows_per_transaction: Some(100),
        select_in_transactions: true,
        begin: Begin::Immediate,
        without_rowid: false,
        parts: vec![Part { keys: KeyKind::Int, steps }],
    };
    Some(Spec {
        engine,
        settings: settings.iter().copied().collect(),
        workload: Workload::KeyValue(load),
        directory: folder.to_owned(),
        seed: 1,
    })
}

#[test]
fn a_mix_by_processes_is_measured_and_every_update_is_found() {
    let concurrent = [("journal_mode", "concurrent"), ("synchronous", "off")];
    for (name, settings) in [
        ("stock", &[("journal_mode", "wal"), ("synchronous", "off")][..]),
        ("plait", &concurrent),
        ("plait-kv", &concurrent),
        ("bdb", &[("sync", "nosync")]),
        ("lmdb", &[("sync", "nosync")]),
    ] {
        let mix = |read_percent, place| Step::Mix { read_percent, seconds: 0.2, workers: 3, place };
        let (threads, processes) = (Place::Threads, Place::Processes);
        let steps = vec![Step::Insert, mix(50, threads), mix(0, processes), mix(50, processes)];
        let Some(answer) = in_a_program(name, settings, steps) else {
            println!("skipped: {name} is not here");
            continue;
        };
        let measured = answer.measured().unwrap_or_else(|| panic!("{name}: {answer:?}"));
        let names: Vec<&str> = measured.phases.iter().map(|phase| phase.name.as_str()).collect();
        let by_processes = ["0/100 int by 3 processes", "50/50 int by 3 processes"];
        assert_eq!(names, ["insert int", "50/50 int by 3", by_processes[0], by_processes[1]]);
        let mixes = &measured.phases[1..];
        assert!(mixes.iter().all(|p| p.commits > 0 && p.thread_commits.len() == 3), "{name}");
        let updates: u64 = mixes.iter().map(Phase::acknowledged).sum();
        let verified = format!("with {updates} updates");
        assert!(measured.verified[0].ends_with(&verified), "{name}, {verified}: {measured:?}");
    }
}

#[test]
fn a_store_of_one_process_says_that_it_is_one() {
    let mix = Step::Mix { read_percent: 0, seconds: 0.1, workers: 2, place: Place::Processes };
    let answer = in_a_program("map", &[], vec![Step::Insert, mix]).expect("the map is always here");
    assert!(
        matches!(&answer, Answer::NotApplicable { why } if why.contains("one process")),
        "{answer:?}"
    );
}

#[test]
fn commits_in_flight_are_counted_and_timed_when_their_tickets_are_on_disk() {
    let promised = |in_flight| Step::Promised { in_flight, seconds: 0.2 };
    let steps = vec![Step::Insert, promised(1), promised(1000)];
    let normal = [("journal_mode", "concurrent"), ("synchronous", "normal")];
    let Some(answer) = trial("plait-kv", &normal, steps) else {
        println!("skipped: Plait's library is not built");
        return;
    };
    let measured = answer.measured().unwrap_or_else(|| panic!("{answer:?}"));
    let names: Vec<&str> = measured.phases.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(names, ["insert int", "update int, 1 in flight", "update int, 1000 in flight"]);
    let mut updates = 0;
    for phase in &measured.phases[1..] {
        let histogram = phase.latency.as_ref().expect("each is timed").histogram().unwrap();
        assert!(phase.operations > 0);
        assert_eq!((histogram.len(), phase.commits), (phase.operations, phase.operations));
        updates += phase.operations;
    }
    // None was counted that is not there, and none is there that was not counted.
    let verified = format!("with {updates} updates");
    assert!(measured.verified[0].contains(&verified), "{verified}: {:?}", measured.verified);
}

#[test]
fn an_engine_without_tickets_says_so() {
    let steps = vec![Step::Insert, Step::Promised { in_flight: 10, seconds: 0.1 }];
    let answer = trial("map", &[], steps).expect("the map is always here");
    assert!(
        matches!(&answer, Answer::NotApplicable { why } if why.contains("ticket")),
        "{answer:?}"
    );
}

#[test]
fn threads_processes_and_tickets_of_the_key_value_api_are_part_of_the_study() {
    let request = Request {
        mode: Mode::Modern,
        quick: false,
        thorough: false,
        engines: catalogue::all(&[]).unwrap(),
        media: vec!["/tmp".into()],
    };
    let plan = Study::Kv.plan(&request);
    let charts = ["power-cut/threads", "power-cut/processes", "process/tickets"];
    for id in charts.map(|chart| format!("kv/modern/{chart}")) {
        let chart = plan.charts.iter().find(|c| c.frame.id == id);
        let chart = chart.unwrap_or_else(|| {
            panic!("{id}: {:?}", plan.charts.iter().map(|c| &c.frame.id).collect::<Vec<_>>())
        });
        assert!(chart.series.iter().any(|s| s.engine == "plait-kv"), "{id}");
    }
}
