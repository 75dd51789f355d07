//! A statement happens whole or not at all, whichever call of the engine fails in it.
//!
//! Long form: `PLAIT_TORTURE_SECONDS=600 cargo test -p plait-tests --test failing_calls`, or
//! `cargo run -p plait-tests --bin torture -- wholeness --seconds 600 --seed 1`.

use plait_tests::planted::must_be_reported;
use plait_tests::subject::real_plait;
use plait_tests::torture::{seed_or, time_or};
use plait_tests::wholeness::search::{replay, search};
use std::time::Duration;

// holds TXN-9
#[test]
fn whatever_fails_in_a_statement_takes_all_of_it_back() {
    if real_plait("calls that fail").is_none() {
        return;
    }
    let tally = search(seed_or(1), time_or(Duration::from_secs(15)));
    println!("{tally:?}");
    assert!(tally.failed > 0 && tally.kept > 0, "{tally:?}");
}

/// Cases in which something was found. A change of the generator changes what they are.
#[test]
fn cases_that_have_failed_before_do_not_fail_again() {
    if real_plait("calls that fail").is_none() {
        return;
    }
    for seed in [2, 17, 50, 107, 129, 138, 1121, 20_222, 30_167] {
        assert!(replay(seed).trials > 0, "seed {seed} has no trials");
    }
}

#[test]
fn a_statement_that_is_not_taken_back_is_caught() {
    must_be_reported(
        "statements.kept",
        "whatever_fails_in_a_statement_takes_all_of_it_back",
        &["it is not lost", "in the end, for others"],
    );
}
