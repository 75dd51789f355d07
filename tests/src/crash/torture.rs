//! Crashes for as long as one likes: every point in every scene with changing passages, and storms between them.

use super::points::crash_points;
use super::scene::{Scene, kill_at};
use super::storm::{Memory, Storm};
use crate::differential::dice::Dice;
use crate::subject::{Subject, Synchronous};
use std::time::{Duration, Instant};

/// Runs rounds from consecutive seeds until the time is over; returns how many.
///
/// # Panics
/// With a report at the first failure.
pub fn run(subject: &Subject, first: u64, time: Duration) -> u64 {
    let end = Instant::now() + time;
    let mut seed = first;
    while Instant::now() < end {
        round(subject, seed);
        seed += 1;
    }
    seed - first
}

fn round(subject: &Subject, seed: u64) {
    let mut dice = Dice::new(seed);
    if dice.roll(10) > 0 {
        let points = crash_points();
        let point = *dice.pick(&points);
        let scene = *dice.pick(Scene::of(point));
        println!("seed {seed}: {point}, {scene:?}");
        kill_at(subject, point, scene, seed);
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
    if dice.one_in(4) {
        let full = Storm { synchronous: Synchronous::Full, ..storm };
        full.kill_converters(subject, time).unwrap_or_else(|error| panic!("{full:?}: {error:#}"));
        return;
    }
    let outcome = if storm.memory == Memory::Stays && dice.roll(2) == 0 {
        storm.kill_one_by_one(subject, time)
    } else {
        storm.kill_all_at_once(subject, time)
    };
    outcome.unwrap_or_else(|error| panic!("{storm:?}: {error:#}"));
}
