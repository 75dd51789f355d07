//! The workloads of studies B and C notice what a store loses.

mod forgetful;

use forgetful::Forgetful;
use plait_bench::engines::catalogue;
use plait_bench::engines::{Begin, Engine, Failure, Outcome, Settings};
use plait_bench::workloads::crew::{Amount, Shift};
use plait_bench::workloads::{Measured, Site, Workload, counter, records, tasks};

/// No write has this number.
const NEVER: u64 = u64::MAX;

fn load(engine: &str) -> Option<Box<dyn Engine>> {
    let entries = catalogue::all(&[]).unwrap();
    let entry = entries.iter().find(|e| e.name == engine).expect("a name of the catalogue");
    Some(entry.engine()?.load().unwrap())
}

/// Runs a workload on an engine that forgets the write of a number.
fn run(engine: &str, forgets: u64, workload: &Workload) -> Outcome<Measured> {
    let inner = load(engine).unwrap_or_else(|| panic!("{engine} is absent: run `make dist`"));
    let directory = tempfile::tempdir().unwrap();
    workload.run(&Site {
        engine: &Forgetful::new(inner, "", move |write| write == forgets),
        kind: None,
        settings: &Settings::default(),
        directory: directory.path().to_owned(),
        seed: 1,
    })
}

fn failure_of(engine: &str, forgets: u64, workload: &Workload) -> String {
    match run(engine, forgets, workload) {
        Err(Failure::Broken(error)) => format!("{error:#}"),
        other => panic!("{engine}, write {forgets} forgotten: {other:?}"),
    }
}

fn shift(workers: u32, amount: Amount) -> Shift {
    Shift { workers, amount, due_per_second: None, count_start_and_stop: true }
}

fn counters(keys: counter::Keys, amount: Amount) -> Workload {
    Workload::Counter(counter::Load {
        keys,
        begin: Begin::Immediate,
        hold_s: 0.0,
        shift: shift(3, amount),
    })
}

fn inserts() -> Workload {
    Workload::Records(records::Load { value_bytes: 40, runs: 2, shift: shift(3, Amount::Each(20)) })
}

fn lives() -> Workload {
    Workload::Tasks(tasks::Load {
        concurrency: 1,
        tasks_each: 3,
        outputs: 2,
        output_bytes: 30,
        runs: 2,
    })
}

#[test]
fn a_store_that_keeps_its_word_passes_every_verification() {
    for engine in ["stock", "map"] {
        let own = run(engine, NEVER, &counters(counter::Keys::New, Amount::Together(50))).unwrap();
        assert_eq!(own.phases[0].commits, 50);
        let one = counters(counter::Keys::Existing(1), Amount::Each(10));
        assert_eq!(run(engine, NEVER, &one).unwrap().phases[0].commits, 30);
        let timed = counters(counter::Keys::Existing(5), Amount::Seconds(0.05));
        run(engine, NEVER, &timed).unwrap();
        let added = run(engine, NEVER, &inserts()).unwrap();
        assert_eq!(added.phases.iter().map(|p| p.commits).collect::<Vec<_>>(), [60, 60]);
        let lived = run(engine, NEVER, &lives()).unwrap();
        assert_eq!(lived.phases[1].commits, 15);
        assert!(lived.verified[0].contains("6 updates of output, 3 deleted, none left"));
    }
}

#[test]
fn a_lost_increment_is_noticed() {
    for engine in ["stock", "map"] {
        let one = counters(counter::Keys::Existing(1), Amount::Each(10));
        let why = failure_of(engine, 7, &one);
        assert_eq!(why, "30 commits left counters that add up to 29");
    }
}

#[test]
fn a_counter_that_was_dropped_is_noticed() {
    let why = failure_of("map", 7, &counters(counter::Keys::New, Amount::Each(10)));
    assert_eq!(why, "29 counters are left of 30");
}

#[test]
fn a_dropped_record_is_noticed() {
    for engine in ["stock", "map"] {
        assert_eq!(failure_of(engine, 70, &inserts()), "119 records are left of 120");
    }
}

#[test]
fn every_forgotten_step_of_a_task_that_can_be_seen_is_noticed() {
    for engine in ["stock", "map"] {
        // Steps of a task: create, start, output, output, delete. A record is written whole each time, so that only
        // its first and last writes and its deletion can be missed there.
        assert!(failure_of(engine, 3, &lives()).contains("is not what was last written"));
        assert!(failure_of(engine, 4, &lives()).contains("1 deleted tasks are still there"));
        assert!(run(engine, NEVER, &lives()).is_ok());
    }
    assert!(failure_of("stock", 0, &lives()).contains("changed 0 tasks"));
    assert!(failure_of("stock", 1, &lives()).contains("is not what was last written"));
}

#[test]
fn files_refuse_to_count_without_transactions() {
    let one = counters(counter::Keys::Existing(1), Amount::Each(10));
    assert!(matches!(run("files", NEVER, &one), Err(Failure::Unsupported(_))));
    let own = run("files", NEVER, &counters(counter::Keys::New, Amount::Each(10))).unwrap();
    assert_eq!(own.phases[0].commits, 30);
}

#[test]
fn files_keep_tasks_with_their_status_in_the_record() {
    let lived = run("files", NEVER, &lives()).unwrap();
    assert_eq!(lived.phases[0].commits, 15);
    assert!(lived.verified[1].ends_with("none left"));
}

#[test]
fn a_journal_mode_that_does_not_take_is_not_measured() {
    let inner = load("stock").expect("the stock library: run `make dist`");
    let directory = tempfile::tempdir().unwrap();
    let answer = counters(counter::Keys::New, Amount::Each(1)).run(&Site {
        engine: inner.as_ref(),
        kind: None,
        settings: &Settings::default().with("journal_mode", "concurrent"),
        directory: directory.path().to_owned(),
        seed: 1,
    });
    let Err(Failure::Unsupported(why)) = answer else { panic!("{answer:?}") };
    assert_eq!(why, "asked for journal_mode=concurrent, it says delete");
}

#[test]
fn deferred_transactions_that_read_first_are_refused_and_repeated() {
    let inner = load("stock").expect("the stock library: run `make dist`");
    let directory = tempfile::tempdir().unwrap();
    let load = counter::Load {
        keys: counter::Keys::Existing(1),
        begin: Begin::Deferred,
        // Long enough for all to read before the first one writes.
        hold_s: 0.02,
        shift: shift(4, Amount::Each(3)),
    };
    let measured = Workload::Counter(load).run(&Site {
        engine: inner.as_ref(),
        kind: None,
        settings: &Settings::default().with("journal_mode", "wal"),
        directory: directory.path().to_owned(),
        seed: 1,
    });
    let phase = &measured.unwrap().phases[0];
    assert_eq!(phase.commits, 12);
    assert!(phase.refusals.conflict > 0, "{:?}", phase.refusals);
}

#[test]
fn a_dictionary_counts_in_its_own_process() {
    let Some(dict) = load("dict") else { return };
    let site = |amount, keys| {
        counters(keys, amount).run(&Site {
            engine: dict.as_ref(),
            kind: None,
            settings: &Settings::default(),
            directory: std::env::temp_dir(),
            seed: 1,
        })
    };
    let measured = site(Amount::Together(1000), counter::Keys::Existing(1)).unwrap();
    assert_eq!(measured.verified, ["1 counters that add up to the 1000 commits"]);
    let measured = site(Amount::Each(100), counter::Keys::New).unwrap();
    assert_eq!(measured.verified, ["300 counters that add up to the 300 commits"]);
    assert!(matches!(site(Amount::Seconds(0.1), counter::Keys::New), Err(Failure::Unsupported(_))));
}
