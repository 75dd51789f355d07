//! Processes die by SIGKILL at random moments, alone and all together.
//!
//! Long form: `cargo run -p plait-tests --bin torture -- crash --seconds 600`, or `PLAIT_TORTURE_SECONDS`.

use plait_tests::crash::storm::{Memory, Storm};
use plait_tests::planted::must_be_reported;
use plait_tests::subject::{Subject, Synchronous, real_plait};
use plait_tests::torture::{seed_or, time_or};
use std::time::Duration;

fn all_at_once(synchronous: Synchronous, memory: Memory, seed: u64) {
    massacre(3, synchronous, memory, seed);
}

fn massacre(workers: i64, synchronous: Synchronous, memory: Memory, seed: u64) {
    let Some(subject) = real_plait("kills") else { return };
    let storm = Storm { seed: seed_or(seed), workers, threads: 1, synchronous, memory };
    storm
        .kill_all_at_once(&subject, time_or(Duration::from_secs(3)))
        .unwrap_or_else(|error| panic!("{storm:?}: {error:#}"));
}

fn one_by_one(subject: &Subject, synchronous: Synchronous, workers: i64, threads: i64) {
    let storm = Storm { seed: seed_or(3), workers, threads, synchronous, memory: Memory::Stays };
    let deaths = storm
        .kill_one_by_one(subject, time_or(Duration::from_secs(4)))
        .unwrap_or_else(|error| panic!("{storm:?}: {error:#}"));
    assert!(deaths > 0);
}

// holds COMMIT-5
#[test]
fn workers_that_are_killed_one_by_one_never_stop_the_others() {
    let Some(subject) = real_plait("kills") else { return };
    for synchronous in [Synchronous::Full, Synchronous::Normal] {
        one_by_one(&subject, synchronous, 4, 1);
    }
}

#[test]
fn processes_with_several_writing_threads_that_are_killed_never_stop_the_others() {
    let Some(subject) = real_plait("kills") else { return };
    for synchronous in [Synchronous::Full, Synchronous::Normal] {
        one_by_one(&subject, synchronous, 3, 4);
    }
}

#[test]
fn workers_that_are_killed_while_they_change_the_mode_lose_nothing() {
    let Some(subject) = real_plait("kills") else { return };
    for memory in [Memory::Stays, Memory::Removed] {
        let storm = Storm {
            seed: seed_or(5),
            workers: 1,
            threads: 1,
            synchronous: Synchronous::Full,
            memory,
        };
        storm
            .kill_converters(&subject, time_or(Duration::from_secs(3)))
            .unwrap_or_else(|error| panic!("{storm:?}: {error:#}"));
    }
}

#[test]
fn killing_all_at_once_loses_nothing_in_full() {
    all_at_once(Synchronous::Full, Memory::Stays, 11);
}

#[test]
fn killing_all_at_once_loses_nothing_in_normal() {
    all_at_once(Synchronous::Normal, Memory::Stays, 12);
}

#[test]
fn killing_all_at_once_loses_nothing_in_off() {
    all_at_once(Synchronous::Off, Memory::Stays, 13);
}

#[test]
fn without_shared_memory_nothing_acknowledged_is_lost_in_full() {
    all_at_once(Synchronous::Full, Memory::Removed, 14);
}

#[test]
fn without_shared_memory_a_prefix_of_the_commits_is_left_in_normal() {
    all_at_once(Synchronous::Normal, Memory::Removed, 15);
}

#[test]
fn without_shared_memory_a_prefix_of_the_commits_is_left_in_off() {
    all_at_once(Synchronous::Off, Memory::Removed, 16);
}

#[test]
fn a_lone_bulk_load_that_is_killed_loses_nothing() {
    for synchronous in [Synchronous::Full, Synchronous::Normal, Synchronous::Off] {
        massacre(1, synchronous, Memory::Stays, 21);
    }
}

#[test]
fn a_lone_bulk_load_that_is_killed_without_shared_memory_leaves_a_prefix_or_everything() {
    massacre(1, Synchronous::Full, Memory::Removed, 22);
    massacre(1, Synchronous::Normal, Memory::Removed, 23);
}

#[test]
fn an_acknowledged_commit_that_was_never_written_is_caught() {
    let suite = "without_shared_memory_nothing_acknowledged_is_lost_in_full";
    must_be_reported("log.unwritten", suite, &["was acknowledged, but only"]);
}
