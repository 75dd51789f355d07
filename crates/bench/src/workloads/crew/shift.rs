//! The loop of one worker.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::{Amount, Shift, Worker};
use crate::engines::{Failure, Outcome, Refusal, Waits};
use crate::measure::phase::{Latency, Refusals, Usage, new_histogram};
use crate::measure::usage;

/// What one worker did: what a process answers to the trial that started it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tally {
    /// Transactions that changed something.
    pub writing: Part,
    /// Transactions that did not.
    pub reading: Part,
    /// Its connection's waits.
    pub waits: Waits,
    /// Processor seconds of its thread.
    pub cpu_s: f64,
    /// Of its process, where it is alone in one; else nothing.
    pub usage: Usage,
    /// Seconds from the start to the end of its last transaction.
    pub took_s: f64,
    /// See [`Worker::saw_file_bytes`].
    pub saw_file_bytes: Option<u64>,
}

/// Transactions of one worker.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Part {
    /// Done in time.
    pub done: u64,
    /// Done after the time was over.
    pub late: u64,
    /// Begun before the time that is measured.
    pub early: u64,
    /// What had to be repeated.
    pub refusals: Refusals,
    /// Nanoseconds of all that were begun in the time that is measured.
    pub latency: Option<Latency>,
}

impl Tally {
    /// Transactions that were begun in the time that is measured and done, in time or late.
    #[must_use]
    pub fn transactions(&self) -> u64 {
        let of = |part: &Part| part.done + part.late;
        of(&self.writing) + of(&self.reading)
    }
}

/// When what begins and ends, the same for all workers.
#[derive(Clone, Copy)]
pub struct Times {
    pub start: Instant,
    /// When the time that is measured begins.
    pub opening: Instant,
    pub deadline: Option<Instant>,
}

impl Times {
    pub fn from(start: Instant, shift: &Shift) -> Self {
        let (warm_up_s, seconds) = match shift.amount {
            Amount::Seconds(seconds) => (0.0, Some(seconds)),
            Amount::Steady { warm_up_s, seconds } => (warm_up_s, Some(seconds)),
            Amount::Each(_) | Amount::Together(_) => (0.0, None),
        };
        let opening = start + Duration::from_secs_f64(warm_up_s);
        let deadline = seconds.map(|seconds| opening + Duration::from_secs_f64(seconds));
        Self { start, opening, deadline }
    }

    fn is_over(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline)
    }
}

/// A [`Part`] in the making.
struct Count {
    done: u64,
    late: u64,
    early: u64,
    refusals: Refusals,
    latency: Histogram<u64>,
}

impl Count {
    fn new() -> Self {
        Self { done: 0, late: 0, early: 0, refusals: Refusals::default(), latency: new_histogram() }
    }

    fn part(&self) -> Part {
        Part {
            done: self.done,
            late: self.late,
            early: self.early,
            refusals: self.refusals,
            latency: (!self.latency.is_empty()).then(|| Latency::from(&self.latency)),
        }
    }
}

/// Works until the shift is over. `taken` counts the transactions that all workers have taken together; `opens` is called
/// when the first one in the time that is measured is about to begin, or at the end if there is none.
pub fn work(
    worker: &mut dyn Worker,
    shift: &Shift,
    index: u32,
    times: Times,
    taken: &AtomicU64,
    opens: &mut dyn FnMut(),
) -> Outcome<Tally> {
    let (mut writing, mut reading) = (Count::new(), Count::new());
    let mut last_end = times.opening;
    let mut before = None;
    let mut open = |worker: &dyn Worker| {
        opens();
        (worker.waits(), usage::thread_cpu())
    };
    // Relaxed: the counter hands out numbers and orders nothing else.
    let next = || match shift.amount {
        Amount::Together(all) => taken.fetch_add(1, Ordering::Relaxed) < all,
        Amount::Each(_) | Amount::Seconds(_) | Amount::Steady { .. } => true,
    };
    let mut chosen = 0;
    while !matches!(shift.amount, Amount::Each(each) if chosen == each) && next() {
        if before.is_none() && Instant::now() >= times.opening {
            before = Some(open(worker));
        }
        let begun = match shift.due_per_second {
            Some(rate) => {
                let due = due(shift, rate, index, chosen, times.start);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                due
            }
            None => Instant::now(),
        };
        if times.is_over(begun) {
            break;
        }
        chosen += 1;
        worker.choose();
        let count = if worker.writes() { &mut writing } else { &mut reading };
        if before.is_none() {
            let done = until_done(worker, times, &mut Refusals::default())?;
            count.early += u64::from(done);
            continue;
        }
        let done = until_done(worker, times, &mut count.refusals)?;
        let ended = Instant::now();
        count.latency.saturating_record(nanoseconds(ended.duration_since(begun)));
        if !done || times.deadline.is_some_and(|deadline| ended > deadline) {
            count.late += u64::from(done);
            break;
        }
        count.done += 1;
        last_end = ended;
    }
    let (waits_before, cpu_before) = before.unwrap_or_else(|| open(worker));
    let cpu = usage::thread_cpu().saturating_sub(cpu_before);
    let waits = worker.waits();
    Ok(Tally {
        usage: Usage::default(),
        writing: writing.part(),
        reading: reading.part(),
        waits: Waits {
            busy_handler_calls: waits.busy_handler_calls - waits_before.busy_handler_calls,
            busy_handler_slept_s: waits.busy_handler_slept_s - waits_before.busy_handler_slept_s,
        },
        cpu_s: cpu.as_secs_f64(),
        took_s: last_end.duration_since(times.opening).as_secs_f64(),
        saw_file_bytes: worker.saw_file_bytes(),
    })
}

/// When a worker's transaction of a number is due: all workers' transactions follow each other evenly.
fn due(shift: &Shift, rate: f64, index: u32, number: u64, start: Instant) -> Instant {
    let position = number as f64 * f64::from(shift.workers) + f64::from(index);
    start + Duration::from_secs_f64(position / rate)
}

/// Refusals of one transaction that are answered by trying again at once.
const AT_ONCE: u32 = 2;
/// The longest pause before another try.
const PAUSE_MAX: Duration = Duration::from_millis(10);

/// How long to wait before a transaction that was refused so often is tried again: engines that refuse instead of
/// waiting would otherwise be measured by how fast their callers can spin. The same for all engines.
fn pause(refused: u32) -> Duration {
    let doublings = refused.saturating_sub(AT_ONCE + 1).min(16);
    if refused <= AT_ONCE {
        Duration::ZERO
    } else {
        (Duration::from_micros(100) * (1 << doublings)).min(PAUSE_MAX)
    }
}

/// Tries until the transaction is done; false if the time is over before.
fn until_done(worker: &mut dyn Worker, times: Times, refusals: &mut Refusals) -> Outcome<bool> {
    for refused in 1.. {
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
        if times.is_over(Instant::now()) {
            return Ok(false);
        }
        std::thread::sleep(pause(refused));
    }
    unreachable!("4 billion refusals take longer than a trial may")
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
