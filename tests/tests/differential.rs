//! Random SQL on stock SQLite and on the library under test gives the same results.
//!
//! Long form: `PLAIT_TORTURE_SECONDS=600 cargo test -p plait-tests --test differential`, or
//! `cargo run -p plait-tests --bin torture -- differential --seconds 600 --seed 1`.

use plait_tests::differential::shrink::{Bench, scratch, search};
use plait_tests::subject::Subject;
use plait_tests::torture::{seed_or, time_or};
use std::time::Duration;

fn run_seeds(plait: &Subject, first: u64, length: usize) {
    let scratch = scratch();
    let stock = Subject::stock();
    let bench = Bench { stock: &stock, plait, scratch: scratch.path() };
    let seeds = search(&bench, seed_or(first), length, time_or(Duration::from_secs(12)));
    assert!(seeds > 0);
}

#[test]
fn short_random_scripts_give_the_same_results_as_stock() {
    run_seeds(&Subject::plait(), 1, 60);
}

#[test]
fn long_random_scripts_give_the_same_results_as_stock() {
    run_seeds(&Subject::plait(), 1_000_000, 400);
}

#[test]
fn random_scripts_in_wal_mode_give_the_same_results_as_stock() {
    run_seeds(&Subject::plait_in_wal_mode(), 2_000_000, 200);
}
