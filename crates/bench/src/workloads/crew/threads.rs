//! A crew of threads.

use std::sync::Barrier;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use anyhow::anyhow;

use super::departure::Departure;
use super::shift::{self, Times};
use super::{Done, Hire, Shift, Tally};
use crate::engines::{Outcome, Store};
use crate::measure::usage;

/// Works with threads of this process on one store.
pub fn work<'a>(store: &'a dyn Store, shift: &Shift, hire: &Hire<'a>) -> Outcome<Done> {
    let taken = AtomicU64::new(0);
    let barrier = Barrier::new(shift.workers as usize + 1);
    let departure = Departure::new(shift.workers);
    let called = Instant::now();
    let usage_called = usage::so_far();
    let begin =
        || Times::from(if shift.count_start_and_stop { called } else { Instant::now() }, shift);
    let (tallies, usage) = std::thread::scope(|scope| {
        let (barrier, departure, taken, begin) = (&barrier, &departure, &taken, &begin);
        let threads: Vec<_> = (0..shift.workers)
            .map(|index| {
                scope.spawn(move || {
                    let leaving = departure.worker();
                    let hired = hire(store, index);
                    // Twice: all are ready, and the measured section has begun.
                    barrier.wait();
                    barrier.wait();
                    let times = begin();
                    let mut worker = hired?;
                    let tally = shift::work(worker.as_mut(), shift, index, times, taken)?;
                    leaving.leave(tally.transactions());
                    departure.wait();
                    Ok(tally)
                })
            })
            .collect();
        barrier.wait();
        let before = if shift.count_start_and_stop { usage_called } else { usage::so_far() };
        departure.begin_section();
        barrier.wait();
        let times = begin();
        let at_deadline = times.deadline.map(|deadline| {
            std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
            usage::between(before, usage::so_far())
        });
        departure.wait();
        let at_departure = usage::between(before, usage::so_far());
        let tallies: Outcome<Vec<Tally>> = threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|_| Err(anyhow!("a worker panicked").into())))
            .collect();
        let usage = match at_deadline {
            Some(usage) => usage,
            None if shift.count_start_and_stop => usage::between(before, usage::so_far()),
            None => at_departure,
        };
        (tallies, usage)
    });
    Ok(Done::new(shift, tallies?, usage, called.elapsed()))
}
