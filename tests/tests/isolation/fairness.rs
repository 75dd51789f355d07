//! Many writers at once: nobody starves, nobody sees BUSY before the timeout, and every increment counts.

use plait_tests::in_threads_and_processes;
use plait_tests::job::{Job, Work};
use plait_tests::jobs::counter::{Counted, Counter, SCHEMA};
use plait_tests::place::Place;
use plait_tests::subject::{BUSY_TIMEOUT, Begin, Fixture, Subject, Synchronous, real_plait};
use std::time::Duration;

struct Crowd {
    writers: u64,
    begin: Option<Begin>,
    read_first: bool,
    rows: i64,
    time: Duration,
}

/// Runs the crowd, checks that the rows add up to the commits, and returns what each writer counted.
fn run(subject: &Subject, place: Place, crowd: &Crowd) -> Vec<Counted> {
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let connection = fixture.open();
    for id in 1..=crowd.rows {
        connection.execute(&format!("INSERT INTO counters VALUES({id}, 0, 'note')")).expect("rows");
    }
    let jobs: Vec<_> = (0..crowd.writers)
        .map(|seed| {
            let work = Work::Counter(Counter {
                seed,
                begin: crowd.begin,
                read_first: crowd.read_first,
                rows: crowd.rows,
                synchronous: Synchronous::Full,
                time: crowd.time,
                busy_timeout: BUSY_TIMEOUT,
            });
            Job { subject: subject.clone(), database: fixture.database(), work }.start(place)
        })
        .collect();
    let patience = crowd.time + Duration::from_secs(60);
    let counted: Vec<Counted> = jobs.into_iter().map(|job| job.result(patience)).collect();
    let commits: u64 = counted.iter().map(|writer| writer.commits).sum();
    let total = connection.integer("SELECT sum(n) FROM counters").expect("the sum can be read");
    assert_eq!(u64::try_from(total), Ok(commits), "every increment counts once");
    counted
}

#[track_caller]
fn assert_nobody_failed(counted: &[Counted]) {
    for writer in counted {
        assert_eq!((writer.busy, writer.conflicts), (0, 0), "{counted:#?}");
        assert!(writer.commits > 0, "{counted:#?}");
    }
}

/// Waits are bounded: the longest is no more than this many medians, or a second.
#[track_caller]
fn assert_no_starvation(counted: &[Counted], factor: u32) {
    let mut medians: Vec<Duration> = counted.iter().map(|writer| writer.median).collect();
    medians.sort();
    let median = medians[medians.len() / 2];
    let max = counted.iter().map(|writer| writer.max).max().unwrap_or_default();
    let bound = (median * factor).max(Duration::from_secs(1));
    assert!(max <= bound, "longest wait {max:?}, median {median:?}: {counted:#?}");
}

/// A crowd of transactions that ask for the right to write before they read.
#[track_caller]
fn nobody_fails_who_asks_at_begin(place: Place, begin: Begin, writers: u64) {
    let Some(subject) = real_plait("a crowd") else { return };
    let time = Duration::from_secs(2);
    let crowd = Crowd { writers, begin: Some(begin), read_first: true, rows: 5, time };
    let counted = run(&subject, place, &crowd);
    assert_nobody_failed(&counted);
    assert_no_starvation(&counted, 50);
}

in_threads_and_processes! {
    fn autocommit_writers_of_one_row_never_see_a_conflict(place) {
        let Some(subject) = real_plait("hot row") else { return };
        let crowd = Crowd { writers: 16, begin: None, read_first: false, rows: 1, time: Duration::from_secs(2) };
        let counted = run(&subject, place, &crowd);
        assert_nobody_failed(&counted);
        assert_no_starvation(&counted, 50);
        let commits: Vec<u64> = counted.iter().map(|writer| writer.commits).collect();
        let (slowest, fastest) = (commits.iter().min(), commits.iter().max());
        // Those that start first are alone for a while. The case `hot` of the ratios asks for a half.
        assert!(slowest.unwrap_or(&0) * 4 >= *fastest.unwrap_or(&0), "commits of each: {commits:?}");
    }

    fn autocommit_writers_of_many_rows_never_see_a_conflict(place) {
        let Some(subject) = real_plait("many rows") else { return };
        let writers = if place == Place::Threads { 64 } else { 24 };
        let crowd = Crowd { writers, begin: None, read_first: false, rows: 500, time: Duration::from_secs(2) };
        let counted = run(&subject, place, &crowd);
        assert_nobody_failed(&counted);
    }

    fn immediate_transactions_never_fail_in_a_crowd(place) {
        let writers = if place == Place::Threads { 64 } else { 24 };
        for begin in [Begin::Immediate, Begin::Exclusive] {
            nobody_fails_who_asks_at_begin(place, begin, writers);
        }
    }

    fn transactions_on_pages_never_fail_in_a_crowd(place) {
        nobody_fails_who_asks_at_begin(place, Begin::OnPages, 12);
    }

    fn deferred_transactions_on_separate_rows_seldom_conflict(place) {
        let Some(subject) = real_plait("deferred") else { return };
        let crowd = Crowd {
            writers: 8,
            begin: Some(Begin::Deferred),
            read_first: true,
            rows: 10_000,
            time: Duration::from_secs(2),
        };
        let counted = run(&subject, place, &crowd);
        let (commits, conflicts) = totals(&counted);
        assert!(conflicts * 20 <= commits, "{conflicts} conflicts in {commits} commits: {counted:#?}");
    }

    fn optimistic_transactions_on_a_hot_row_make_progress(place) {
        let crowd = Crowd {
            writers: 8,
            begin: Some(Begin::Concurrent),
            read_first: true,
            rows: 1,
            time: Duration::from_secs(2),
        };
        let counted = run(&Subject::plait(), place, &crowd);
        let (commits, _) = totals(&counted);
        assert!(commits > 50, "{counted:#?}");
    }

    fn a_crowd_of_all_kinds_loses_no_increment(place) {
        let subject = Subject::plait();
        for begin in Begin::ALL.map(Some).into_iter().chain([None]) {
            let crowd = Crowd { writers: 6, begin, read_first: true, rows: 3, time: Duration::from_millis(400) };
            run(&subject, place, &crowd);
        }
    }
}

fn totals(counted: &[Counted]) -> (u64, u64) {
    let sum = |field: fn(&Counted) -> u64| counted.iter().map(field).sum();
    (sum(|writer| writer.commits), sum(|writer| writer.conflicts))
}
