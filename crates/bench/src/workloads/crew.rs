//! Workers that do transactions at the same time, in a closed or an open loop.
//!
//! Closed loop: each worker begins its next transaction when the last has ended; what is measured is how many get done.
//! Open loop: transactions are due at times fixed beforehand, and each is timed from when it was due, so that a stall
//! is felt by all that it delays (Schroeder, Wierman, Harchol-Balter: Open Versus Closed, NSDI 2006).
//!
//! A refused transaction is rolled back and tried again with the same keys until it is done; it counts as one, timed
//! from its first begin. With a fixed time, only what was committed within it counts as work; what was begun within it and
//! committed later is kept apart, because it is in the store and its latency belongs to the distribution.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engines::{Failure, Outcome, Refusal, Store, Waits};
use crate::measure::phase::{Latency, Phase, Refusals, new_histogram};
use crate::measure::usage;

/// When a crew stops.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Amount {
    /// After so many transactions of each worker.
    Each(u64),
    /// After so many transactions of all workers together, each taking the next one when it is free.
    Together(u64),
    /// After a time.
    Seconds(f64),
}

/// How a crew works.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Shift {
    /// Workers at a time.
    pub workers: u32,
    /// When they stop.
    pub amount: Amount,
    /// Transactions a second of all workers together that are due, in an open loop.
    pub due_per_second: Option<f64>,
    /// Whether starting the threads, opening their connections and ending them is part of the measured time.
    pub count_start_and_stop: bool,
}

/// One worker of a crew, with a connection of its own.
pub trait Worker {
    /// Chooses the next transaction.
    fn choose(&mut self);

    /// Does the chosen transaction from its begin to its commit.
    ///
    /// # Errors
    /// A refusal, after which [`give_up`](Self::give_up) is called and the same transaction tried again; or worse.
    fn attempt(&mut self) -> Outcome<()>;

    /// Rolls back what a refused attempt left.
    ///
    /// # Errors
    /// Only when the engine is broken.
    fn give_up(&mut self) -> Outcome<()>;

    /// What its connection has waited so far.
    fn waits(&self) -> Waits;
}

/// Makes the workers of a crew, each in its own thread.
pub type Hire<'a> = dyn Fn(&'a dyn Store, u32) -> Outcome<Box<dyn Worker + 'a>> + Sync + 'a;

/// What one worker did.
struct Tally {
    commits: u64,
    late_commits: u64,
    refusals: Refusals,
    waits: Waits,
    cpu: Duration,
    latency: Histogram<u64>,
    ended: Instant,
}

/// When what begins and ends, the same for all workers.
#[derive(Clone, Copy)]
struct Times {
    start: Instant,
    deadline: Option<Instant>,
}

/// Lets a crew of threads work on a store and measures it.
///
/// # Errors
/// The first failure of a worker that is no refusal.
pub fn run<'a>(name: &str, store: &'a dyn Store, shift: &Shift, hire: &Hire<'a>) -> Outcome<Phase> {
    let taken = AtomicU64::new(0);
    let barrier = Barrier::new(shift.workers as usize + 1);
    let called = Instant::now();
    let usage_called = usage::so_far();
    let (tallies, times, usage) = std::thread::scope(|scope| {
        let (barrier, taken) = (&barrier, &taken);
        let threads: Vec<_> = (0..shift.workers)
            .map(|index| {
                scope.spawn(move || {
                    let hired = hire(store, index);
                    barrier.wait();
                    let times = begin(shift, called);
                    hired.and_then(|mut worker| work(worker.as_mut(), shift, index, times, taken))
                })
            })
            .collect();
        barrier.wait();
        let times = begin(shift, called);
        let before = if shift.count_start_and_stop { usage_called } else { usage::so_far() };
        let at_deadline = times.deadline.map(|deadline| {
            std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
            usage::between(before, usage::so_far())
        });
        let tallies: Outcome<Vec<Tally>> = threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|_| Err(anyhow!("a worker panicked").into())))
            .collect();
        let usage = at_deadline.unwrap_or_else(|| usage::between(before, usage::so_far()));
        (tallies, times, usage)
    });
    let tallies = tallies?;
    let end = if shift.count_start_and_stop {
        Instant::now()
    } else {
        tallies.iter().map(|t| t.ended).max().unwrap_or(times.start)
    };
    let seconds = match shift.amount {
        Amount::Seconds(seconds) => seconds,
        Amount::Each(_) | Amount::Together(_) => end.duration_since(times.start).as_secs_f64(),
    };
    Ok(Phase { usage, seconds, due_per_second: shift.due_per_second, ..sum(name, &tallies) })
}

fn begin(shift: &Shift, called: Instant) -> Times {
    let start = if shift.count_start_and_stop { called } else { Instant::now() };
    let deadline = match shift.amount {
        Amount::Seconds(seconds) => Some(start + Duration::from_secs_f64(seconds)),
        Amount::Each(_) | Amount::Together(_) => None,
    };
    Times { start, deadline }
}

fn work(
    worker: &mut dyn Worker,
    shift: &Shift,
    index: u32,
    times: Times,
    taken: &AtomicU64,
) -> Outcome<Tally> {
    let mut tally = Tally {
        commits: 0,
        late_commits: 0,
        refusals: Refusals::default(),
        waits: Waits::default(),
        cpu: Duration::ZERO,
        latency: new_histogram(),
        ended: times.start,
    };
    let waits_before = worker.waits();
    let cpu_before = usage::thread_cpu();
    // Relaxed: the counter hands out numbers and orders nothing else.
    let next = || match shift.amount {
        Amount::Together(all) => taken.fetch_add(1, Ordering::Relaxed) < all,
        Amount::Each(_) | Amount::Seconds(_) => true,
    };
    let mut chosen = 0;
    while !matches!(shift.amount, Amount::Each(each) if chosen == each) && next() {
        let begun = match shift.due_per_second {
            Some(rate) => {
                let due = due(shift, rate, index, chosen, times.start);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                due
            }
            None => Instant::now(),
        };
        if times.deadline.is_some_and(|deadline| begun >= deadline) {
            break;
        }
        chosen += 1;
        worker.choose();
        let done = until_done(worker, times.deadline, &mut tally.refusals)?;
        let ended = Instant::now();
        tally.latency.saturating_record(nanoseconds(ended.duration_since(begun)));
        let late = times.deadline.is_some_and(|deadline| ended > deadline);
        if !done || late {
            tally.late_commits = u64::from(done);
            break;
        }
        tally.commits += 1;
        tally.ended = ended;
    }
    tally.cpu = usage::thread_cpu().saturating_sub(cpu_before);
    let waits = worker.waits();
    tally.waits = Waits {
        busy_handler_calls: waits.busy_handler_calls - waits_before.busy_handler_calls,
        busy_handler_slept_s: waits.busy_handler_slept_s - waits_before.busy_handler_slept_s,
    };
    Ok(tally)
}

/// When a worker's transaction of a number is due: all workers' transactions follow each other evenly.
fn due(shift: &Shift, rate: f64, index: u32, number: u64, start: Instant) -> Instant {
    let position = number as f64 * f64::from(shift.workers) + f64::from(index);
    start + Duration::from_secs_f64(position / rate)
}

/// Tries until the transaction is done; false if the time is over before.
fn until_done(
    worker: &mut dyn Worker,
    deadline: Option<Instant>,
    refusals: &mut Refusals,
) -> Outcome<bool> {
    loop {
        match worker.attempt() {
            Ok(()) => return Ok(true),
            Err(Failure::Refused(refusal, _)) => match refusal {
                Refusal::Busy => refusals.busy += 1,
                Refusal::Conflict => refusals.conflict += 1,
                Refusal::Deadlock => refusals.deadlock += 1,
            },
            Err(worse) => return Err(worse),
        }
        worker.give_up()?;
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(false);
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Adds up what the workers did.
fn sum(name: &str, tallies: &[Tally]) -> Phase {
    let mut phase = Phase { name: name.to_owned(), ..Phase::default() };
    let mut latency = new_histogram();
    for tally in tallies {
        phase.commits += tally.commits;
        phase.late_commits += tally.late_commits;
        phase.refusals.add(tally.refusals);
        phase.waits.busy_handler_calls += tally.waits.busy_handler_calls;
        phase.waits.busy_handler_slept_s += tally.waits.busy_handler_slept_s;
        phase.transaction_cpu_s += tally.cpu.as_secs_f64();
        phase.thread_commits.push(tally.commits);
        latency.add(&tally.latency).expect("both have the same bounds");
    }
    phase.operations = phase.commits;
    phase.latency = (!latency.is_empty()).then(|| Latency::from(&latency));
    phase
}
