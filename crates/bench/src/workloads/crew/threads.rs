//! A crew of threads.
//!
//! A worker that panics, be it while it is hired or later, fails the crew like one that says that it failed: nobody
//! waits for it at the start ([`hired`]) or at the end ([`Departure`]).

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use super::departure::Departure;
use super::shift::{self, Times};
use super::{Done, Hire, Shift, Tally, Worker};
use crate::engines::{Failure, Outcome, Store};
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
                    let hired = hired(store, hire, index);
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
            .map(|t| t.join().unwrap_or_else(|panic| Err(panicked("a worker", panic.as_ref()))))
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

/// Hires a worker; a panic in there is a failure, so that the worker still comes to the start and the others need not
/// wait for ever.
fn hired<'a>(store: &'a dyn Store, hire: &Hire<'a>, index: u32) -> Outcome<Box<dyn Worker + 'a>> {
    // Unwind safe: nothing of a crew whose worker panicked is used again.
    catch_unwind(AssertUnwindSafe(|| hire(store, index))).unwrap_or_else(|panic| {
        Err(panicked(&format!("worker {index}, before it began,"), panic.as_ref()))
    })
}

fn panicked(who: &str, panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    match text.or_else(|| panic.downcast_ref::<&str>().copied()) {
        Some(text) => Failure::broken(format!("{who} panicked: {text}")),
        None => Failure::broken(format!("{who} panicked")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::map::MapEngine;
    use crate::engines::{Engine as _, Settings, Waits};
    use crate::workloads::crew::Amount;

    /// Does nothing.
    struct Idle;

    impl Worker for Idle {
        fn choose(&mut self) {}

        fn attempt(&mut self) -> Outcome<()> {
            Ok(())
        }

        fn give_up(&mut self) -> Outcome<()> {
            Ok(())
        }

        fn waits(&self) -> Waits {
            Waits::default()
        }
    }

    #[test]
    fn a_worker_that_panics_while_it_is_hired_fails_the_crew() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = MapEngine.open(folder.path(), &Settings::default()).expect("a map");
        let shift = Shift {
            workers: 3,
            amount: Amount::Each(1),
            due_per_second: None,
            count_start_and_stop: false,
        };
        let hire = |_: &dyn Store, index: u32| -> Outcome<Box<dyn Worker>> {
            assert!(index != 1, "on purpose");
            Ok(Box::new(Idle))
        };
        let error = work(store.as_ref(), &shift, &hire).err().expect("no crew");
        assert_eq!(error.to_string(), "worker 1, before it began, panicked: on purpose");
    }
}
