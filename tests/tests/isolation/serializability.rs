//! Random transactions in all ways of beginning have a serializable history that agrees with real time.
//!
//! Long form: `PLAIT_TORTURE_SECONDS`, or `cargo run -p plait-tests --bin torture -- isolation --seconds 600`.

use plait_tests::crash::disk::SmallDisk;
use plait_tests::in_threads_and_processes;
use plait_tests::isolation::torture::Round;
use plait_tests::jobs::history::Layout;
use plait_tests::os::can_have_own_pid_namespace;
use plait_tests::place::Place;
use plait_tests::planted::must_be_reported;
use plait_tests::subject::{Begin, Subject, Synchronous, real_plait};
use plait_tests::torture::{seed_or, time_or};
use std::time::{Duration, Instant};

fn rounds(place: Place, first: u64, time: Duration) {
    let end = Instant::now() + time_or(time);
    let mut seed = seed_or(first);
    while Instant::now() < end {
        let summary =
            Round::random(seed, place, Duration::from_millis(1500)).run(&Subject::plait());
        assert!(summary.committed > 0, "seed {seed}");
        seed += 1;
    }
}

fn contended_round(place: Place, begins: &[Begin]) -> Round {
    Round {
        seed: seed_or(77),
        place,
        workers: 4,
        keys: 12,
        layout: Layout::Rowid,
        begins: begins.to_vec(),
        pretend: false,
        levels: vec![Synchronous::Normal],
        merge_every: 50,
        empty_every: 0,
        two_files: false,
        registers: false,
        trouble: false,
        containers: false,
        small_disk: false,
        readers: 0,
        time: time_or(Duration::from_secs(2)),
        transactions: 2000,
    }
}

fn contended(place: Place, begins: &[Begin]) {
    let summary = contended_round(place, begins).run(&Subject::plait());
    assert!(summary.committed > 20, "{summary:?}");
}

in_threads_and_processes! {
    fn random_mixtures_of_transactions_are_serializable(place) {
        rounds(place, 1, Duration::from_secs(8));
    }

    fn contended_optimistic_transactions_are_serializable(place) {
        contended(place, &[Begin::Concurrent]);
    }

    fn optimistic_transactions_on_a_table_that_is_emptied_again_and_again_are_serializable(place) {
        let round = Round { keys: 6, empty_every: 4, merge_every: 0, ..contended_round(place, &[Begin::Concurrent]) };
        let summary = round.run(&Subject::plait());
        assert!(summary.committed > 20, "{summary:?}");
    }

    fn contended_deferred_transactions_are_serializable(place) {
        contended(place, &[Begin::Deferred]);
    }

    fn contended_transactions_of_all_kinds_are_serializable(place) {
        contended(place, &Begin::ALL);
    }

    /// Each of the files is, and those that change both have one order; whoever gets its rights in which order.
    fn transactions_over_two_files_are_serializable(place) {
        let some = &[Begin::Concurrent][..];
        for (begins, layout) in [(some, Layout::Rowid), (&Begin::ALL, Layout::WithoutRowid)] {
            let round = Round { layout, ..contended_round(place, begins) }.over_two_files();
            let summary = round.run(&Subject::plait());
            assert!(summary.committed > 20, "{summary:?}");
        }
    }

    /// Tables and indexes come and go, VACUUM and backups run, readers stand still; processes are stopped and killed.
    fn transactions_beside_everything_else_are_serializable(place) {
        let round = Round { trouble: true, registers: true, ..contended_round(place, &Begin::ALL) };
        let tally = round.run(&Subject::plait());
        assert!(tally.committed > 20 && tally.troubles > 0, "{tally:?}");
    }

    /// The disk is full now and then, also while all that goes on.
    fn transactions_on_a_disk_that_is_full_now_and_then_are_serializable(place) {
        let contended = contended_round(place, &Begin::ALL);
        let round = Round { trouble: true, small_disk: true, registers: true, ..contended };
        let tally = round.run(&Subject::plait());
        assert!(tally.committed > 20, "{tally:?}");
        assert!(tally.full_disks > 0 || SmallDisk::mount(1).is_none(), "{tally:?}");
    }

    // holds TRAIL-1, REPLICA-2
    /// Of a replica that follows: each of their transactions is a moment of the primary's history, never before an earlier one, and not before a
    /// commit that was waited for.
    fn reads_of_a_replica_are_moments_of_the_history(place) {
        if real_plait("replicas").is_none() {
            return;
        }
        let begins = [Begin::Concurrent, Begin::Deferred, Begin::Immediate];
        let contended = contended_round(place, &begins);
        let tally = Round { readers: 3, registers: true, ..contended }.run(&Subject::plait());
        assert!(tally.replica.seen.reads > 20 && tally.replica.seen.waits > 0, "{tally:?}");
    }

    /// Its follower and its sidecar are killed and stopped, the primary has other sessions and schemas.
    fn reads_of_a_replica_beside_everything_else_are_moments_of_the_history(place) {
        if real_plait("replicas").is_none() {
            return;
        }
        let begins = [Begin::Concurrent, Begin::Deferred, Begin::Immediate];
        let contended = contended_round(place, &begins);
        let time = contended.time.max(Duration::from_secs(4));
        let round = Round { readers: 2, registers: true, trouble: true, time, ..contended };
        let tally = round.run(&Subject::plait());
        assert!(tally.replica.seen.reads > 20 && tally.replica.followers_killed > 0, "{tally:?}");
    }

    fn calls_of_the_key_value_api_are_as_on_registers(place) {
        let round = Round { registers: true, keys: 4, ..contended_round(place, &[Begin::Concurrent]) };
        let tally = round.run(&Subject::plait());
        assert!(tally.committed > 20, "{tally:?}");
    }

    /// What was acknowledged or shown comes before whatever begins later, whoever waits for the disk and who does not.
    fn contended_transactions_of_all_levels_agree_with_real_time(place) {
        for levels in [vec![Synchronous::Full], vec![Synchronous::Full, Synchronous::Normal]] {
            let mut round = contended_round(place, &Begin::ALL);
            round.levels = levels;
            let summary = round.run(&Subject::plait());
            assert!(summary.committed > 20, "{summary:?}");
        }
    }
}

/// Their ids are equal and say nothing; some are stopped, killed, or meet limits.
#[test]
fn transactions_of_processes_in_containers_are_serializable() {
    if real_plait("containers").is_none() || !can_have_own_pid_namespace() {
        return;
    }
    let contended = contended_round(Place::Processes, &Begin::ALL);
    let round = Round { trouble: true, containers: true, registers: true, ..contended };
    let tally = round.run(&Subject::plait());
    assert!(tally.committed > 20 && tally.troubles > 0, "{tally:?}");
}

#[test]
fn an_engine_that_does_not_isolate_is_caught() {
    for two_files in [false, true] {
        let mut round = contended_round(Place::Threads, &[Begin::Deferred]);
        round.pretend = true;
        round.two_files = two_files;
        round.outcome(&Subject::stock()).expect_err("every statement stood alone");
    }
}

/// How a history is reported that no serial order explains, and a worker that saw half of one.
const REPORTS: &[&str] = &[
    "not serializable",
    "lost update",
    "where the row of",
    "no committed state",
    "of the same snapshot",
    "does not see its own",
    "malformed",
];

#[test]
fn write_skew_is_caught() {
    let suite = "contended_optimistic_transactions_are_serializable::in_processes";
    must_be_reported("conflicts.unchecked", suite, REPORTS);
}

#[test]
fn write_skew_through_rows_that_are_not_there_is_caught() {
    let suite = "optimistic_transactions_on_a_table_that_is_emptied_again_and_again_are_serializable::in_threads";
    must_be_reported("conflicts.unchecked_ranges", suite, REPORTS);
}

#[test]
fn a_commit_that_is_seen_by_half_is_caught() {
    let suite = "contended_transactions_of_all_kinds_are_serializable::in_threads";
    must_be_reported("shown.before_inserted", suite, REPORTS);
}

/// How one is reported whose order is not that of real time.
const NOT_IN_REAL_TIME: &[&str] = &["RealTime", "at that time"];

#[test]
fn a_read_that_misses_an_acknowledged_commit_is_caught() {
    let suite = "contended_deferred_transactions_are_serializable::in_threads";
    must_be_reported("readers.lag", suite, NOT_IN_REAL_TIME);
}

#[test]
fn a_call_that_misses_an_acknowledged_one_is_caught() {
    let suite = "calls_of_the_key_value_api_are_as_on_registers::in_processes";
    must_be_reported("readers.lag", suite, NOT_IN_REAL_TIME);
}

/// A test over a replica.
const WITH_REPLICA: &str = "reads_of_a_replica_are_moments_of_the_history::in_threads";

#[test]
fn a_replica_that_shows_half_of_a_commit_is_caught() {
    must_be_reported("follower.halved", WITH_REPLICA, REPORTS);
}

#[test]
fn a_replica_that_goes_back_is_caught() {
    must_be_reported("follower.repeated", WITH_REPLICA, REPORTS);
}

#[test]
fn a_wait_on_a_replica_that_returns_too_early_is_caught() {
    must_be_reported("replicas.waited_early", WITH_REPLICA, &["--Waited", "at that time"]);
}
