//! The workloads of studies B and C notice what a store loses.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use plait_bench::engines::catalogue;
use plait_bench::engines::{
    Begin, Connection, Engine, Failure, Key, KeyValue, Outcome, Row, Settings, Sql, Statement,
    Store, Table, Value, Waits,
};
use plait_bench::workloads::crew::{Amount, Shift};
use plait_bench::workloads::{Measured, Site, Workload, counter, records, tasks};

/// An engine whose stores say that a write is done and forget it, once.
struct Forgetful {
    inner: Box<dyn Engine>,
    /// Number of the write that is forgotten; the first is 0.
    forgets: u64,
}

struct ForgetfulStore {
    inner: Box<dyn Store>,
    forgets: u64,
    writes: AtomicU64,
}

struct ForgetfulConnection<'a, C: ?Sized> {
    inner: Box<C>,
    store: &'a ForgetfulStore,
}

impl ForgetfulStore {
    fn forgets_now(&self) -> bool {
        self.writes.fetch_add(1, Ordering::Relaxed) == self.forgets
    }
}

impl Engine for Forgetful {
    fn open(&self, directory: &Path, settings: &Settings) -> Outcome<Box<dyn Store>> {
        Ok(Box::new(ForgetfulStore {
            inner: self.inner.open(directory, settings)?,
            forgets: self.forgets,
            writes: AtomicU64::new(0),
        }))
    }
}

impl Store for ForgetfulStore {
    fn create(&self, tables: &[Table]) -> Outcome<()> {
        self.inner.create(tables)
    }

    fn key_value(&self, tables: &[Table]) -> Outcome<Box<dyn KeyValue + '_>> {
        Ok(Box::new(ForgetfulConnection { inner: self.inner.key_value(tables)?, store: self }))
    }

    fn sql(&self) -> Outcome<Box<dyn Sql + '_>> {
        Ok(Box::new(ForgetfulConnection { inner: self.inner.sql()?, store: self }))
    }

    fn settings(&self) -> Outcome<Settings> {
        self.inner.settings()
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        self.inner.close()
    }
}

impl<C: Connection + ?Sized> Connection for ForgetfulConnection<'_, C> {
    fn begin(&mut self, begin: Begin) -> Outcome<()> {
        self.inner.begin(begin)
    }

    fn commit(&mut self) -> Outcome<()> {
        self.inner.commit()
    }

    fn rollback(&mut self) -> Outcome<()> {
        self.inner.rollback()
    }

    fn waits(&self) -> Waits {
        self.inner.waits()
    }
}

impl KeyValue for ForgetfulConnection<'_, dyn KeyValue + '_> {
    fn get(&mut self, table: usize, key: Key<'_>, found: &mut dyn FnMut(&[u8])) -> Outcome<bool> {
        self.inner.get(table, key, found)
    }

    fn insert(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        if self.store.forgets_now() { Ok(()) } else { self.inner.insert(table, key, value) }
    }

    fn update(&mut self, table: usize, key: Key<'_>, value: &[u8]) -> Outcome<()> {
        if self.store.forgets_now() { Ok(()) } else { self.inner.update(table, key, value) }
    }

    fn delete(&mut self, table: usize, key: Key<'_>) -> Outcome<bool> {
        if self.store.forgets_now() { Ok(true) } else { self.inner.delete(table, key) }
    }

    fn scan(
        &mut self,
        table: usize,
        from: Option<Key<'_>>,
        count: u64,
        found: &mut dyn FnMut(&[u8]),
    ) -> Outcome<u64> {
        self.inner.scan(table, from, count, found)
    }
}

impl Sql for ForgetfulConnection<'_, dyn Sql + '_> {
    fn prepare(&mut self, text: &str) -> Outcome<Statement> {
        self.inner.prepare(text)
    }

    fn execute(&mut self, statement: Statement, values: &[Value<'_>]) -> Outcome<u64> {
        if self.store.forgets_now() { Ok(1) } else { self.inner.execute(statement, values) }
    }

    fn query(
        &mut self,
        statement: Statement,
        values: &[Value<'_>],
        found: &mut dyn FnMut(&dyn Row),
    ) -> Outcome<u64> {
        self.inner.query(statement, values, found)
    }

    fn script(&mut self, text: &str) -> Outcome<()> {
        self.inner.script(text)
    }
}

/// No write has this number.
const NEVER: u64 = u64::MAX;

fn load(engine: &str) -> Option<Box<dyn Engine>> {
    let entries = catalogue::all(&[]).unwrap();
    let entry = entries.iter().find(|e| e.name == engine).expect("a name of the catalogue");
    Some(entry.engine()?.load().unwrap())
}

/// Runs a workload on an engine that forgets a write.
fn run(engine: &str, forgets: u64, workload: &Workload) -> Outcome<Measured> {
    let inner = load(engine).unwrap_or_else(|| panic!("{engine} is absent: run `make dist`"));
    let directory = tempfile::tempdir().unwrap();
    workload.run(&Site {
        engine: &Forgetful { inner, forgets },
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
