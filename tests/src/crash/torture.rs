//! Crashes for as long as one likes: every point in every scene with changing passages, and storms between them.

use super::case::Reached;
use super::scene::{FAMILIES, cases, try_to_kill_at};
use super::storm::{Memory, Storm};
use crate::differential::dice::Dice;
use crate::subject::{Subject, Synchronous};
use std::time::{Duration, Instant};

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Rounds.
    pub rounds: u64,
    /// Processes that were killed at a named step.
    pub at_steps: u64,
    /// Processes that were killed at random.
    pub at_random: u64,
}

/// Runs rounds from consecutive seeds until the time is over.
///
/// # Panics
/// With a report at the first failure.
#[must_use]
pub fn run(subject: &Subject, first: u64, time: Duration) -> Tally {
    let end = Instant::now() + time;
    let mut tally = Tally::default();
    while Instant::now() < end {
        round(subject, first + tally.rounds, &mut tally);
        tally.rounds += 1;
    }
    tally
}

fn round(subject: &Subject, seed: u64, tally: &mut Tally) {
    let mut dice = Dice::new(seed);
    if dice.roll(10) > 0 {
        let (point, scene) = *dice.pick(&cases(&FAMILIES.concat()));
        println!("seed {seed}: {point}, {scene:?}");
        // On a busy machine others may come to a rare step each time: that is a case that was not, and is not counted.
        match try_to_kill_at(subject, point, scene, seed) {
            Reached::Yes => tally.at_steps += 1,
            Reached::No => println!("seed {seed}: nobody came to {point}"),
        }
        return;
    }
    let storm = Storm {
        seed,
        workers: dice.between(2, 6),
        threads: dice.between(1, 3),
        synchronous: *dice.pick(&[Synchronous::Full, Synchronous::Normal, Synchronous::Off]),
        memory: *dice.pick(&[Memory::Stays, Memory::Removed]),
    };
    println!("seed {seed}: {storm:?}");
    let time = Duration::from_secs(3);
    let (outcome, each) = if dice.one_in(4) {
        let full = Storm { synchronous: Synchronous::Full, ..storm.clone() };
        (full.kill_converters(subject, time), 1)
    } else if storm.memory == Memory::Stays && dice.roll(2) == 0 {
        (storm.kill_one_by_one(subject, time), 1)
    } else {
        (storm.kill_all_at_once(subject, time), storm.workers.unsigned_abs())
    };
    tally.at_random += each * outcome.unwrap_or_else(|error| panic!("{storm:?}: {error:#}"));
}
