//! Random transactions in all ways of beginning have a serializable history that agrees with real time.
//!
//! Long form: `PLAIT_TORTURE_SECONDS`, or `cargo run -p plait-tests --bin torture -- isolation --seconds 600`.

use plait_tests::in_threads_and_processes;
use plait_tests::isolation::torture::Round;
use plait_tests::jobs::history::Layout;
use plait_tests::place::Place;
use plait_tests::subject::{Begin, Subject, Synchronous};
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

#[test]
fn an_engine_that_does_not_isolate_is_caught() {
    for two_files in [false, true] {
        let mut round = contended_round(Place::Threads, &[Begin::Deferred]);
        round.pretend = true;
        round.two_files = two_files;
        round.outcome(&Subject::stock()).expect_err("every statement stood alone");
    }
}
