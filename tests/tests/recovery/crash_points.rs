//! A process is killed at each named step; the others go on at once, and nothing acknowledged is lost or done twice.
//!
//! Long form: `cargo run -p plait-tests --bin torture -- crash --seconds 600`.

use plait_tests::crash::points::crash_points;
use plait_tests::crash::scene::{FAMILIES, cases, kill_at};
use plait_tests::planted::must_be_reported;
use plait_tests::subject::real_plait;
use plait_tests::torture::seed_or;
use std::collections::BTreeSet;

fn kill_at_each(families: &[&str]) {
    let Some(subject) = real_plait("crash points") else { return };
    for (index, (point, scene)) in cases(families).into_iter().enumerate() {
        kill_at(&subject, point, scene, seed_or(1).wrapping_mul(1000) + index as u64);
    }
}

#[test]
fn every_crash_point_has_a_scene_in_which_it_is_passed() {
    let known: BTreeSet<_> =
        FAMILIES.iter().flat_map(|families| cases(families)).map(|(point, _)| point).collect();
    let elsewhere = |point: &str| {
        ["aside", "follower", "gaps", "hold", "several", "rest"]
            .iter()
            .any(|family| point.starts_with(family))
    };
    let others = crash_points().into_iter().filter(|point| !elsewhere(point));
    assert_eq!(known, others.collect());
}

// holds COMMIT-2, COMMIT-5
#[test]
fn others_go_on_when_a_committer_is_killed_at_any_step() {
    kill_at_each(FAMILIES[0]);
}

#[test]
fn others_go_on_when_a_writer_of_the_log_is_killed_at_any_step() {
    kill_at_each(FAMILIES[1]);
}

#[test]
fn others_go_on_when_a_merge_or_the_first_write_is_killed_at_any_step() {
    kill_at_each(FAMILIES[2]);
}

#[test]
fn others_go_on_when_an_exclusive_transaction_or_a_change_of_mode_is_killed_at_any_step() {
    kill_at_each(FAMILIES[3]);
}

#[test]
fn others_go_on_when_a_recovery_or_the_last_close_is_killed_at_any_step() {
    kill_at_each(FAMILIES[4]);
}

#[test]
fn a_commit_of_a_killed_process_that_is_redone_by_half_is_caught() {
    let suite = "others_go_on_when_a_committer_is_killed_at_any_step";
    let words =
        ["what the book says", "by its index", "by the totals", "entries, but", "integrity_check"];
    must_be_reported("dead.half_redone", suite, &words);
}
