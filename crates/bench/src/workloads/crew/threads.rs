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
use super::{Amount, Done, Hire, Parting, Shift, Tally, Worker};
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
    let (tallies, usage, parted) = std::thread::scope(|scope| {
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
                    let worker = worker.as_mut();
                    let tally = shift::work(worker, shift, index, times, taken, &mut || ())?;
                    leaving.leave(tally.transactions());
                    departure.wait();
                    Ok(tally)
                })
            })
            .collect();
        barrier.wait();
        let mut before = if shift.count_start_and_stop { usage_called } else { usage::so_far() };
        let is_steady = matches!(shift.amount, Amount::Steady { .. });
        if !is_steady {
            departure.begin_section();
        }
        barrier.wait();
        let times = begin();
        if is_steady {
            std::thread::sleep(times.opening.saturating_duration_since(Instant::now()));
            before = usage::so_far();
            departure.begin_section();
        }
        let at_deadline = times.deadline.map(|deadline| {
            std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
            usage::between(before, usage::so_far())
        });
        departure.wait();
        let parted = Parting::now();
        let at_departure = usage::between(before, parted.usage);
        let tallies: Outcome<Vec<Tally>> = threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|panic| Err(panicked("a worker", panic.as_ref()))))
            .collect();
        let usage = match at_deadline {
            Some(usage) => usage,
            None if shift.count_start_and_stop => usage::between(before, usage::so_far()),
            None => at_departure,
        };
        (tallies, usage, parted)
    });
    Ok(Done::new(shift, tallies?, usage, called.elapsed(), parted))
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
    use std::time::Duration;

    use crate::engines::{Engine as _, KeyValue, Settings, Table, Waits};

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

    /// Puts everything off until it is closed.
    struct PutsOff;

    impl Store for PutsOff {
        fn create(&self, _: &[Table]) -> Outcome<()> {
            Ok(())
        }

        fn key_value(&self, _: &[Table]) -> Outcome<Box<dyn KeyValue + '_>> {
            Err(Failure::unsupported("nobody asks for it"))
        }

        fn settings(&self) -> Outcome<Settings> {
            Ok(Settings::default())
        }

        fn close(self: Box<Self>) -> Outcome<()> {
            std::thread::sleep(Duration::from_millis(200));
            Ok(())
        }
    }

    #[test]
    fn what_is_put_off_until_the_store_is_closed_is_measured_and_what_came_before_the_opening_is_not()
     {
        let shift = Shift {
            workers: 2,
            amount: Amount::Steady { warm_up_s: 0.1, seconds: 0.05 },
            due_per_second: None,
            count_start_and_stop: false,
        };
        let hire = |_: &dyn Store, _: u32| -> Outcome<Box<dyn Worker>> { Ok(Box::new(Idle)) };
        let done = work(&PutsOff, &shift, &hire).expect("idle workers do not fail");
        let whole = done.whole("idle");
        assert!(whole.early_commits > 0 && whole.commits > 0, "{whole:?}");
        assert_eq!(whole.seconds, 0.05, "the time before was measured");
        let timed = whole.latency.as_ref().expect("each is timed").histogram().expect("as written");
        assert_eq!(timed.len(), whole.commits + whole.late_commits, "what came before was timed");
        let closing = done.close(Box::new(PutsOff), "closing").expect("it closes");
        assert!(closing.seconds >= 0.2, "{closing:?}");
    }
}
