//! Processes come, go and die on one database; second copies of the library are refused.

use plait_tests::actor::Actor;
use plait_tests::job::{Job, Running, Work};
use plait_tests::jobs::pairs::{Acknowledged, Pairs, SCHEMA, verify};
use plait_tests::jobs::process_rules::{InSandbox, TwoCopies};
use plait_tests::place::Place;
use plait_tests::powercut::recording::{Operation, Recording};
use plait_tests::subject::{Begin, Fixture, Subject, Synchronous, real_plait};
use std::collections::BTreeMap;
use std::time::Duration;

fn start_pairs(fixture: &Fixture, place: Place, pairs: Pairs) -> Running {
    let (subject, database) = (fixture.subject.clone(), fixture.database());
    Job { subject, database, work: Work::Pairs(pairs) }.start(place)
}

fn collect(running: Running, acknowledged: &mut BTreeMap<i64, i64>) {
    let (lines, _) = running.wait::<Acknowledged>(Duration::from_secs(60)).expect("it ends");
    for line in lines {
        let last = acknowledged.entry(line.worker).or_default();
        *last = (*last).max(line.seq);
    }
}

#[test]
fn connections_open_and_close_while_others_write() {
    for place in [Place::Threads, Place::Processes] {
        let fixture = Fixture::new(Subject::plait(), SCHEMA);
        let jobs: Vec<Running> = (1..=5)
            .map(|worker| {
                let begin = Begin::ALL[usize::try_from(worker - 1).expect("small")];
                let commits = Some(40);
                let reopen_every = if worker == 1 { 0 } else { 1 };
                start_pairs(
                    &fixture,
                    place,
                    Pairs { worker, begin, commits, reopen_every, ..Default::default() },
                )
            })
            .collect();
        let mut acknowledged = BTreeMap::new();
        for job in jobs {
            collect(job, &mut acknowledged);
        }
        assert_eq!(acknowledged.values().sum::<i64>(), 200);
        verify(&fixture.open(), &acknowledged)
            .unwrap_or_else(|error| panic!("{place:?}: {error:#}"));
    }
}

/// All connections close now and then, so that last closes meet first opens.
#[test]
fn the_last_close_may_meet_the_first_open() {
    for place in [Place::Threads, Place::Processes] {
        let fixture = Fixture::new(Subject::plait(), SCHEMA);
        let jobs: Vec<Running> = (1..=2)
            .map(|worker| {
                let pairs = Pairs {
                    worker,
                    commits: Some(60),
                    reopen_every: 1,
                    pause: Duration::from_millis(1),
                    synchronous: Synchronous::Off,
                    ..Default::default()
                };
                start_pairs(&fixture, place, pairs)
            })
            .collect();
        let mut acknowledged = BTreeMap::new();
        for job in jobs {
            collect(job, &mut acknowledged);
        }
        assert_eq!(acknowledged.values().sum::<i64>(), 120);
        verify(&fixture.open(), &acknowledged)
            .unwrap_or_else(|error| panic!("{place:?}: {error:#}"));
    }
}

// holds SLOT-2, COMMIT-5
#[test]
fn slots_of_killed_processes_are_used_again() {
    let Some(subject) = real_plait("slots") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let survivor = fixture.open();
    for round in 0..60 {
        let mut actor =
            Actor::start(Place::Processes, "victim", &fixture.subject, &fixture.database());
        actor.ok("BEGIN; SELECT count(*) FROM pair_a");
        if round % 2 == 0 {
            actor.ok("INSERT INTO pair_a VALUES(99, 1, NULL)");
        }
        actor.kill();
        survivor
            .execute(&format!("INSERT INTO pair_b VALUES({}, 7, {round}, NULL)", round + 1))
            .expect("it goes on");
    }
    survivor.execute("PRAGMA wal_checkpoint").expect("dead snapshots hold no merge up");
    assert_eq!(survivor.integer("SELECT count(*) FROM pair_b").expect("a count"), 60);
    assert_eq!(survivor.integer("SELECT count(*) FROM pair_a").expect("a count"), 0);
}

#[test]
fn a_second_copy_of_the_library_in_one_process_is_refused() {
    let Some(subject) = real_plait("two copies") else { return };
    let fixture = Fixture::new(subject.clone(), "CREATE TABLE u(a)");
    let copy = fixture.path("libcopy.so");
    std::fs::copy(&subject.library, &copy).expect("the library can be copied");
    let work = Work::TwoCopies(TwoCopies { copy });
    let job = Job { subject, database: fixture.database(), work };
    let result: serde_json::Value = job.start(Place::Processes).result(Duration::from_secs(30));
    let refusal = result["refusal"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(
        refusal.contains("copy") || refusal.contains("copies") || refusal.contains("twice"),
        "{result}"
    );
    assert_eq!(result["rows"], 2, "the first copy goes on");
}

#[test]
fn many_processes_share_one_database() {
    let fixture = Fixture::new(Subject::plait(), SCHEMA);
    let jobs: Vec<Running> = (1..=40)
        .map(|worker| {
            let pairs =
                Pairs { worker, commits: Some(10), filler_bytes: 1000, ..Default::default() };
            start_pairs(&fixture, Place::Processes, pairs)
        })
        .collect();
    let mut acknowledged = BTreeMap::new();
    for job in jobs {
        collect(job, &mut acknowledged);
    }
    assert_eq!(acknowledged.values().sum::<i64>(), 400);
    verify(&fixture.open(), &acknowledged).unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn a_database_in_use_by_threads_and_processes_at_once_stays_whole() {
    let fixture = Fixture::new(Subject::plait(), SCHEMA);
    let mut jobs = Vec::new();
    for worker in 1..=6 {
        let place = if worker % 2 == 0 { Place::Threads } else { Place::Processes };
        let pairs = Pairs { worker, commits: Some(100), merge_every: 25, ..Default::default() };
        jobs.push(start_pairs(&fixture, place, pairs));
    }
    let mut acknowledged = BTreeMap::new();
    for job in jobs {
        collect(job, &mut acknowledged);
    }
    verify(&fixture.open(), &acknowledged).unwrap_or_else(|error| panic!("{error:#}"));
}

/// The first names sessions, with the second it is asked how long a file may be: where neither may be asked the database works all the same.
#[test]
fn what_a_sandbox_refuses_and_is_not_needed_is_missed_by_nobody() {
    let Some(subject) = real_plait("a sandbox") else { return };
    for refused in [libc::SYS_getrandom, libc::SYS_prlimit64] {
        let fixture = Fixture::new(subject.clone(), "CREATE TABLE t(id INTEGER PRIMARY KEY)");
        let work = Work::InSandbox(InSandbox { refused });
        let job = Job { subject: subject.clone(), database: fixture.database(), work };
        let rows: i64 = job.start(Place::Processes).result(Duration::from_secs(60));
        assert_eq!(rows, 2, "without call {refused}");
    }
}

/// Under NORMAL nothing is promised: who comes to write a row beside another process waits for no disk.
#[test]
fn a_process_that_comes_to_write_a_row_syncs_nothing_under_normal() {
    let Some(subject) = real_plait("processes") else { return };
    let fixture = Fixture::new(subject, "CREATE TABLE t(a)");
    let there = fixture.open();
    there.execute("INSERT INTO t VALUES(1)").expect("a session that is fenced");
    let recording = Recording::of(fixture.directory());
    let mut actor = recording.actor("visitor", &fixture.subject, None);
    for (synchronous, syncs) in [("NORMAL", 0), ("FULL", 1)] {
        // A process that has answered writes down what it does.
        actor.open(&fixture.database()).expect("it opens");
        recording.forget().expect("it is emptied");
        actor.ok(&format!("PRAGMA synchronous={synchronous}; INSERT INTO t VALUES(2)"));
        actor.close().expect("closing works");
        let operations = recording.operations().expect("it was written down");
        let synced = operations.iter().filter_map(|operation| match operation {
            Operation::SyncEnded(name, _) => Some(name.as_str()),
            _ => None,
        });
        assert_eq!(synced.collect::<Vec<_>>(), ["app.db-plait"; 1][..syncs], "{synchronous}");
    }
}
