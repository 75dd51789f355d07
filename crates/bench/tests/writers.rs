//! Study D from end to end: threads, processes, an engine that loses an update, and what stock SQLite is known to do.

mod forgetful;

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use forgetful::Forgetful;
use plait_bench::engines::catalogue::{self, Kind};
use plait_bench::engines::{Begin, Settings};
use plait_bench::measure::trial::{Answer, Spec};
use plait_bench::workloads::crew::{Amount, Place, Shift};
use plait_bench::workloads::writers::{CLOSING, Load, Mix, WITH_CLOSING};
use plait_bench::workloads::{Measured, Site, Workload, behaviour};

fn kind(name: &str) -> Option<Kind> {
    catalogue::all(&[]).unwrap().iter().find(|e| e.name == name)?.engine().cloned()
}

fn stock() -> Kind {
    kind("stock").expect("the stock library: run `make dist`")
}

fn wal() -> Settings {
    Settings::default().with("journal_mode", "wal").with("synchronous", "off")
}

fn load(workers: u32, amount: Amount) -> Load {
    Load {
        rows: 200,
        value_bytes: 384,
        begin: Some(Begin::Immediate),
        mix: Mix::SelectUpdate,
        index: false,
        place: Place::Threads,
        shift: Shift { workers, amount, due_per_second: None, count_start_and_stop: false },
    }
}

fn spec(engine: Kind, settings: Settings, workload: Workload, directory: &Path) -> Spec {
    Spec { engine, settings, workload, directory: directory.to_owned(), seed: 1 }
}

/// Starts a trial the way the runner does.
fn start(spec: &Spec) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_plait-bench"))
        .arg("trial")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&serde_json::to_vec(spec).unwrap()).unwrap();
    child
}

fn answer(child: Child) -> Answer {
    let output = child.wait_with_output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

fn measured(answer: Answer) -> Measured {
    answer.measured().unwrap_or_else(|| panic!("{answer:?}")).clone()
}

/// Processes that a process has started.
fn children(of: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{of}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|ids| ids.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<_>>())
        .collect()
}

/// Waits until a trial has started so many members.
fn await_members(trial: &Child, count: usize) -> Vec<u32> {
    let begun = Instant::now();
    loop {
        let members = children(trial.id());
        if members.len() == count {
            return members;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "members do not start");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_alive(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn processes_do_what_threads_do_and_every_commit_is_found() {
    for place in [Place::Threads, Place::Processes] {
        let folder = tempfile::tempdir().unwrap();
        let load = Load { place, ..load(3, Amount::Together(50)) };
        let workload = Workload::Writers(load);
        let measured = measured(answer(start(&spec(stock(), wal(), workload, folder.path()))));
        let phase = &measured.phases[0];
        assert_eq!((phase.commits, phase.thread_commits.len()), (50, 3), "{place:?}");
        let latency = phase.latency.as_ref().unwrap().histogram().unwrap();
        assert_eq!(latency.len(), 50);
        assert!(phase.usage.user_cpu_s + phase.usage.system_cpu_s > 0.0);
        assert!(measured.verified[0].contains("hold the 50 commits"), "{:?}", measured.verified);
    }
}

#[test]
fn a_steady_shift_counts_what_comes_after_the_warm_up_and_is_verified_after_the_closing() {
    let mut engines = vec![(stock(), wal())];
    engines.extend(kind("plait").map(|plait| (plait, wal().with("journal_mode", "concurrent"))));
    for (engine, settings) in engines {
        for place in [Place::Threads, Place::Processes] {
            let folder = tempfile::tempdir().unwrap();
            let amount = Amount::Steady { warm_up_s: 0.2, seconds: 0.3 };
            let workload = Workload::Writers(Load { place, ..load(2, amount) });
            let spec = spec(engine.clone(), settings.clone(), workload, folder.path());
            let measured = measured(answer(start(&spec)));
            let [whole, with_closing, closing] = &measured.phases[..] else {
                panic!("{:?}", measured.phases)
            };
            assert_eq!((&*with_closing.name, &*closing.name), (WITH_CLOSING, CLOSING));
            assert!(whole.early_commits > 0 && whole.commits > 0, "{place:?}: {whole:?}");
            assert_eq!((whole.seconds, whole.acknowledged()), (0.3, with_closing.acknowledged()));
            assert!(closing.seconds > 0.0 && closing.operations == 0);
            // As far as a number survives JSON.
            let apart = with_closing.seconds - (whole.seconds + closing.seconds);
            assert!(apart.abs() < 1e-9, "{with_closing:?} {closing:?}");
            let all = format!("hold the {} commits", whole.acknowledged());
            assert!(measured.verified[0].contains(&all), "{all}: {:?}", measured.verified);
        }
    }
}

#[test]
fn a_member_that_is_killed_fails_the_trial_by_name_and_nothing_is_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let load = Load { place: Place::Processes, ..load(3, Amount::Seconds(60.0)) };
    let trial = start(&spec(stock(), wal(), Workload::Writers(load), folder.path()));
    let begun = Instant::now();
    let members = await_members(&trial, 3);
    assert!(Command::new("kill").arg("-9").arg(members[1].to_string()).status().unwrap().success());
    let Answer::Failed { why } = answer(trial) else { panic!("the trial was counted") };
    assert!(begun.elapsed() < Duration::from_secs(45), "the others were waited for");
    assert!(why.starts_with("member ") && why.contains("of 3 ended before its answer"), "{why}");
    assert!(why.contains("signal: 9"), "{why}");
    for member in members {
        assert!(!is_alive(member), "a member is left behind");
    }
}

#[test]
fn members_end_with_a_trial_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let load = Load { place: Place::Processes, ..load(2, Amount::Seconds(60.0)) };
    let mut trial = start(&spec(stock(), wal(), Workload::Writers(load), folder.path()));
    let begun = Instant::now();
    let members = await_members(&trial, 2);
    trial.kill().unwrap();
    trial.wait().unwrap();
    while members.iter().any(|m| is_alive(*m)) {
        assert!(begun.elapsed() < Duration::from_secs(45), "a member outlives its trial");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn every_load_verifies_on_stock_and_on_plait() {
    let mut engines = vec![(stock(), wal(), Begin::Immediate)];
    if let Some(plait) = kind("plait") {
        let settings = wal().with("journal_mode", "concurrent");
        engines.push((plait, settings, Begin::Concurrent));
    }
    let mixes = [
        Mix::Hot(1),
        Mix::Hot(10),
        Mix::Inserts,
        Mix::MostlyReads(80),
        Mix::BesideReaders(2),
        Mix::BesideLongReader,
    ];
    for (engine, settings, begin) in engines {
        for mix in mixes {
            let folder = tempfile::tempdir().unwrap();
            let load = Load {
                mix,
                begin: Some(begin),
                index: mix == Mix::Inserts,
                ..load(4, Amount::Seconds(0.2))
            };
            let workload = Workload::Writers(load);
            let spec = spec(engine.clone(), settings.clone(), workload, folder.path());
            let measured = measured(spec.run());
            assert!(measured.phases[0].commits > 0, "{mix:?}");
            match mix {
                Mix::MostlyReads(_) | Mix::BesideReaders(_) => {
                    let [whole, writes, reads] = &measured.phases[..] else { panic!("{mix:?}") };
                    assert!(reads.operations > 0 && reads.commits == 0);
                    assert_eq!(writes.operations, whole.commits);
                    assert_eq!(whole.operations, writes.operations + reads.operations);
                }
                Mix::BesideLongReader => assert!(measured.phases[0].file_bytes > Some(0)),
                _ => assert_eq!(measured.phases.len(), 1),
            }
        }
    }
}

#[test]
fn berkeley_db_sql_repeats_what_it_refuses_and_loses_nothing() {
    let Some(berkeley) = kind("bdb-sql") else {
        println!("skipped: Berkeley DB SQL is not installed");
        return;
    };
    let settings = Settings::default().with("page_size", 16384).with("synchronous", "off");
    for begin in [Some(Begin::Immediate), Some(Begin::Deferred), None] {
        for place in [Place::Threads, Place::Processes] {
            let folder = tempfile::tempdir().unwrap();
            let load = Load { begin, place, ..load(4, Amount::Seconds(0.3)) };
            let workload = Workload::Writers(load);
            let spec = spec(berkeley.clone(), settings.clone(), workload, folder.path());
            let measured = measured(answer(start(&spec)));
            assert!(measured.phases[0].commits > 0, "{begin:?} {place:?}");
        }
    }
}

#[test]
fn connections_to_berkeley_db_sql_that_open_together_all_get_snapshots() {
    let Some(berkeley) = kind("bdb-sql") else {
        println!("skipped: Berkeley DB SQL is not installed");
        return;
    };
    let settings = Settings::default().with("multiversion", 1).with("snapshot_isolation", 1);
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let workload = Workload::Writers(load(16, Amount::Each(1)));
        // Version 5.3.28 may crash under concurrent writers with snapshots, which is not in question here.
        let answer =
            answer(start(&spec(berkeley.clone(), settings.clone(), workload, folder.path())));
        if let Answer::Failed { why } = answer {
            assert!(!why.contains("PRAGMA"), "{why}");
        }
    }
}

#[test]
fn an_open_loop_has_as_many_transactions_as_were_due() {
    let folder = tempfile::tempdir().unwrap();
    let mut load = load(2, Amount::Seconds(0.5));
    load.shift.due_per_second = Some(100.0);
    let measured = measured(spec(stock(), wal(), Workload::Writers(load), folder.path()).run());
    let phase = &measured.phases[0];
    assert!((45..=50).contains(&phase.acknowledged()), "{} commits", phase.acknowledged());
}

/// What is said of twenty commits in this engine, which loses some of them.
fn what_is_caught(engine: &Forgetful, settings: &Settings, folder: &Path) -> String {
    let directory = folder.to_owned();
    let site = Site { engine, kind: None, settings, directory, seed: 1 };
    let error = Workload::Writers(load(2, Amount::Each(10))).run(&site).expect_err("lost updates");
    error.to_string()
}

#[test]
fn an_engine_that_loses_an_update_is_caught() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Forgetful::new(stock().load().unwrap(), "UPDATE", |update| update % 7 == 6);
    let text = what_is_caught(&engine, &wal(), folder.path());
    assert!(text.contains("20 acknowledged commits on 200 rows left 200 rows with 18"), "{text}");
}

#[test]
fn an_engine_without_sql_does_the_same_by_keys_and_every_commit_is_found() {
    for mix in [Mix::SelectUpdate, Mix::Hot(1), Mix::Inserts, Mix::MostlyReads(50)] {
        let folder = tempfile::tempdir().unwrap();
        let workload = Workload::Writers(Load { mix, ..load(4, Amount::Together(200)) });
        let answer = spec(Kind::Log, Settings::default(), workload, folder.path()).run();
        let measured = measured(answer);
        let commits = measured.phases[0].commits;
        let rows = if mix == Mix::Inserts { 400 } else { 200 };
        let expected = format!("{rows} rows hold the {commits} commits acknowledged");
        assert_eq!(measured.verified, [expected], "{mix:?}");
        assert!(commits == 200 || mix == Mix::MostlyReads(50), "{mix:?}: {commits}");
    }
}

#[test]
fn by_keys_a_lost_update_is_caught() {
    let folder = tempfile::tempdir().unwrap();
    // The first 200 writes fill the table.
    let engine = Forgetful::new(Kind::Log.load().unwrap(), "", |write| write == 207);
    let text = what_is_caught(&engine, &Settings::default(), folder.path());
    assert!(text.contains("20 acknowledged commits on 200 rows left 200 rows with 19"), "{text}");
}

#[test]
fn by_keys_there_is_no_index_and_no_change_of_a_row_without_a_transaction() {
    for load in [
        Load { index: true, mix: Mix::Inserts, ..load(1, Amount::Each(1)) },
        Load { begin: None, ..load(1, Amount::Each(1)) },
    ] {
        let folder = tempfile::tempdir().unwrap();
        let workload = Workload::Writers(load);
        let answer = spec(Kind::Log, Settings::default(), workload, folder.path()).run();
        assert!(matches!(&answer, Answer::NotApplicable { .. }), "{answer:?}");
    }
}

#[test]
fn writers_behind_a_mutex_of_the_program_never_poll_for_the_lock() {
    for begin in [Some(Begin::Immediate), None] {
        let folder = tempfile::tempdir().unwrap();
        let workload = Workload::Writers(Load { begin, ..load(4, Amount::Together(200)) });
        let settings = wal().with("mutex", "application");
        let measured = measured(answer(start(&spec(stock(), settings, workload, folder.path()))));
        let phase = &measured.phases[0];
        assert_eq!((phase.commits, phase.refusals.total()), (200, 0), "{begin:?}");
        assert_eq!(phase.waits.busy_handler_calls, 0, "{begin:?}");
    }
}

#[test]
fn a_library_of_the_command_line_opens_databases_under_uris_with_its_parameters() {
    let stock = catalogue::all(&[]).unwrap().into_iter().find(|e| e.name == "stock").unwrap();
    let Some(Kind::Sqlite { library, .. }) = stock.engine() else { panic!("{stock:?}") };
    let with = |parameters: &str| {
        let named = format!("mine={}{parameters}", library.display()).parse().unwrap();
        let entries = catalogue::all(&[named]).unwrap();
        let engine = entries.last().and_then(|entry| entry.engine()).cloned().unwrap();
        let folder = tempfile::Builder::new().prefix("a b?").tempdir().unwrap();
        let workload = Workload::Writers(load(1, Amount::Each(3)));
        spec(engine, wal(), workload, folder.path()).run()
    };
    for good in ["", "?psow=1"] {
        assert!(with(good).measured().is_some(), "{good}");
    }
    let Answer::Failed { why } = with("?vfs=nowhere") else { panic!("a VFS that is not there") };
    assert!(why.contains("no such vfs: nowhere"), "{why}");
}

/// The answer to the question that begins so.
fn answer_to<'a>(measured: &'a Measured, question: &str) -> &'a str {
    let finding = measured.findings.iter().find(|f| f.question.starts_with(question));
    &finding.unwrap_or_else(|| panic!("{question}: {:?}", measured.findings)).answer
}

fn behaviour_of(engine: Kind, settings: Settings) -> Measured {
    let folder = tempfile::tempdir().unwrap();
    let workload = Workload::Behaviour(behaviour::Load { rows: 100 });
    let begun = Instant::now();
    let measured = measured(answer(start(&spec(engine, settings, workload, folder.path()))));
    assert!(begun.elapsed() < Duration::from_secs(300), "a test waited for what never comes");
    measured
}

#[test]
fn stock_sqlite_behaves_as_its_documentation_says() {
    for settings in [Settings::default(), wal()] {
        let rollback = settings.is_empty();
        let stock = behaviour_of(stock(), settings);
        let is = |question: &str, start: &str| {
            let answer = answer_to(&stock, question);
            assert!(answer.starts_with(start), "{question}: {answer}");
        };
        is("Open, write", "works");
        is("Two BEGIN IMMEDIATE", "the second BEGIN waits; after the first COMMIT: done");
        is("A writer blocked by another, busy timeout 0", "BUSY at once, “database is locked");
        is("A writer blocked by another, busy timeout 500 ms", "BUSY after the busy handler");
        is("After that refusal", "yes");
        is("A writer blocked by another that commits", "waits, then goes on");
        is(
            "A reader that wants to write beside a writer: the reader",
            "BUSY at once without the busy",
        );
        let beside = if rollback { "BUSY after the busy handler" } else { "done" };
        is("A reader that wants to write beside a writer: the writer", beside);
        is("The same, after the reader's ROLLBACK", "done");
        is("A select of a row", "sees the state before");
        is("The refused session of that: does ROLLBACK and all of it again help", "yes");
        is("Two BEGIN CONCURRENT that update one row", "has no BEGIN CONCURRENT");
    }
}

#[test]
fn plait_lets_concurrent_transactions_on_two_tables_commit_and_refuses_one_on_one_row() {
    let Some(plait) = kind("plait") else {
        println!("skipped: Plait's library is not built");
        return;
    };
    let plait = behaviour_of(plait, wal().with("journal_mode", "concurrent"));
    assert_eq!(answer_to(&plait, "Two BEGIN CONCURRENT that update two tables"), "both commit");
    let one_row = answer_to(&plait, "Two BEGIN CONCURRENT that update one row");
    assert!(one_row.starts_with("the second: conflict"), "{one_row}");
}

#[test]
fn berkeley_db_sql_never_says_busy_and_nothing_hangs() {
    let Some(berkeley) = kind("bdb-sql") else {
        println!("skipped: Berkeley DB SQL is not installed");
        return;
    };
    let berkeley = behaviour_of(berkeley, Settings::default());
    assert_eq!(answer_to(&berkeley, "A writer blocked by another, busy timeout 0"), "waits");
    assert_eq!(answer_to(&berkeley, "Open, write"), "works");
}

#[test]
fn quick_runs_from_end_to_end_measure_stock_and_plait() {
    quick_run("writers", 10);
    quick_run("steady", 5);
}

#[test]
fn a_study_without_a_publication_has_no_historical_run() {
    let run = Command::new(env!("CARGO_BIN_EXE_plait-bench"))
        .args(["steady", "--historical", "--quick"])
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&run.stderr).contains("leave --historical out"));
}

fn quick_run(study: &str, more_cells_than: usize) {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("results.json");
    let run = Command::new(env!("CARGO_BIN_EXE_plait-bench"))
        .args([study, "--quick", "--repeats", "1", "--engines", "stock,plait", "--dir"])
        .arg(folder.path())
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let results = plait_bench::report::results::Results::read(&json).unwrap();
    assert!(results.cells.len() > more_cells_than, "{study}: {}", results.cells.len());
    for result in &results.cells {
        for trial in &result.trials {
            assert!(trial.answer.measured().is_some(), "{}: {:?}", result.cell.id, trial.answer);
        }
    }
}
