//! Maps in threads and processes, some of them killed: counters are exact, swaps happen once, batches are whole, and no call
//! fails because of another.

use plait_tests::job::{Job, Running, Work};
use plait_tests::jobs::maps::{Called, Maps, SCHEMA, Task, keys_of};
use plait_tests::place::Place;
use plait_tests::sqlite::{Range, create};
use plait_tests::subject::{Fixture, Subject, Synchronous, real_plait};
use plait_tests::value::Value;
use std::sync::{Barrier, Mutex};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

fn start(fixture: &Fixture, place: Place, work: Maps) -> Running {
    let (subject, database) = (fixture.subject.clone(), fixture.database());
    Job { subject, database, work: Work::Maps(work) }.start(place)
}

fn count_up(subject: Subject, task: Task, workers: i64, calls: i64) {
    for place in [Place::Threads, Place::Processes] {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        let jobs: Vec<Running> = (1..=workers)
            .map(|worker| {
                let synchronous = Synchronous::Normal;
                start(&fixture, place, Maps { worker, task, calls: Some(calls), synchronous })
            })
            .collect();
        let mut sum = 0;
        for job in jobs {
            sum += job.result::<i64>(PATIENCE);
        }
        assert_eq!(sum, workers * calls);
        let map = fixture.open().open_map("m", 0).expect("it is there");
        let total = map.get(&Value::Integer(0)).expect("it is read");
        assert_eq!(total, Some(Value::Integer(sum)), "{task:?} in {place:?}");
    }
}

#[test]
fn every_addition_counts_once_and_none_fails() {
    let Some(subject) = real_plait("maps") else { return };
    count_up(subject, Task::Add, 8, 150);
}

#[test]
fn every_addition_counts_once_in_wal_mode_too() {
    let Some(_) = real_plait("maps") else { return };
    count_up(Subject::plait_in_wal_mode(), Task::Add, 4, 60);
}

#[test]
fn every_swap_that_answered_yes_happened_once() {
    let Some(subject) = real_plait("maps") else { return };
    count_up(subject, Task::Swap, 6, 80);
}

#[test]
fn batches_of_many_workers_all_count() {
    let Some(subject) = real_plait("maps") else { return };
    count_up(subject, Task::Batch, 6, 80);
}

/// What was reported happened, and at most one call more per killed worker; batches are there as a whole.
#[test]
fn killed_workers_leave_whole_calls_behind() {
    let Some(subject) = real_plait("maps") else { return };
    for (task, mode) in [
        (Task::Batch, subject.clone()),
        (Task::Add, subject),
        (Task::Batch, Subject::plait_in_wal_mode()),
    ] {
        let fixture = Fixture::new(mode, SCHEMA);
        let (mut least, mut most) = (0, 0);
        for round in 0..3 {
            let mut jobs: Vec<Running> = (1..=3)
                .map(|worker| {
                    let worker = worker + round * 3;
                    let synchronous = Synchronous::Full;
                    start(
                        &fixture,
                        Place::Processes,
                        Maps { worker, task, calls: None, synchronous },
                    )
                })
                .collect();
            let mut seen = vec![0; jobs.len()];
            while seen.iter().any(|seq| *seq < 15) {
                for (job, seq) in jobs.iter_mut().zip(&mut seen) {
                    let line = job.next_line::<Called>(PATIENCE).expect("it goes on");
                    *seq = line.seq;
                }
            }
            for job in &mut jobs {
                job.kill();
            }
            for (job, seq) in jobs.iter_mut().zip(&mut seen) {
                while let Some(line) = job.next_line::<Called>(Duration::from_secs(5)) {
                    *seq = line.seq;
                }
                least += *seq;
                most += *seq + 1;
            }
            let db = fixture.open();
            let map = db.open_map("m", 0).expect("it is there");
            let total = map.get(&Value::Integer(0)).expect("it is read");
            let total = total.and_then(|value| value.as_i64()).expect("an integer");
            assert!((least..=most).contains(&total), "{total} of {least} to {most} ({task:?})");
            if task == Task::Batch {
                let mut sum = 0;
                for worker in 1..=(round + 1) * 3 {
                    let (a, b) = keys_of(worker);
                    let a = map.get(&a).expect("it is read");
                    assert_eq!(a, map.get(&b).expect("it is read"), "worker {worker}");
                    sum += a.and_then(|value| value.as_i64()).unwrap_or(0);
                }
                assert_eq!(sum, total);
            }
            assert_eq!(db.text("PRAGMA integrity_check").expect("it runs"), "ok");
        }
    }
}

/// Each finds no table and means to make it; all but one are too late for that.
#[test]
fn a_map_that_several_create_at_once_is_opened_by_all() {
    const THREADS: usize = 4;
    let Some(subject) = real_plait("maps") else { return };
    let fixture = Fixture::new(subject, "");
    let together = Barrier::new(THREADS);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let connection = fixture.open();
                connection.execute("PRAGMA synchronous=off").unwrap();
                for round in 0..300 {
                    // All go on after a failure: the others would wait for a thread that has left.
                    together.wait();
                    let map = connection.open_map(&format!("m{round}"), create::TEXT);
                    failures.lock().unwrap().extend(map.err().map(|e| format!("{round}: {e}")));
                }
            });
        }
    });
    assert_eq!(failures.into_inner().unwrap(), [""; 0]);
}

/// Each looks at one snapshot: the sum over all accounts never changes, while others move money.
#[test]
fn a_walk_sees_one_snapshot_while_batches_move_values() {
    let Some(subject) = real_plait("maps") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let db = fixture.open();
    db.execute("WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i<49) INSERT INTO m SELECT i, 100 FROM n")
        .expect("it is filled");
    std::thread::scope(|scope| {
        for worker in 0..3_i64 {
            let db = fixture.open();
            scope.spawn(move || {
                use plait_tests::sqlite::Item;
                let map = db.open_map("m", 0).expect("it opens");
                for n in 0..200 {
                    let (from, to) = ((n * 7 + worker) % 50, (n * 11 + worker * 3) % 50);
                    let items = [Item::Add(from.into(), -n), Item::Add(to.into(), n)];
                    assert_eq!(map.batch(&items).expect("no conflict"), None);
                }
            });
        }
        let map = db.open_map("m", 0).expect("it opens");
        for _ in 0..100 {
            let mut cursor = map.cursor(&Range::ALL).expect("it opens");
            let (mut sum, mut rows) = (0, 0);
            while let Some((_, value)) = cursor.next().expect("it moves") {
                sum += value.as_i64().expect("an integer");
                rows += 1;
            }
            assert_eq!((rows, sum), (50, 5000));
        }
    });
}
