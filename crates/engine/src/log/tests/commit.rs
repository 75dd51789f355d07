//! Appending, syncing, reusing.

use super::*;
use crate::storage::sim::SimStorage;

#[test]
fn what_was_committed_is_found_again_across_segments_and_generations() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SMALL);
    for ts in 1..=40 {
        bench.commit_durably(ts, 1 + (ts / 15) as u32, (ts as usize * 37) % 700);
    }
    assert_eq!(recovered(&storage, 0), Ok((1..=40).collect()));
    assert_eq!(recovered(&storage, 1), Ok((15..=40).collect()));
    assert_eq!(recovered(&storage, 2), Ok((30..=40).collect()));
    assert_eq!(recovered(&storage, 3), Ok(vec![]));
}

#[test]
fn an_empty_log_is_sound_and_holds_nothing() {
    let storage = SimStorage::new();
    drop(Bench::new(&storage, SMALL));
    assert_eq!(recovered(&storage, 0), Ok(vec![]));
}
