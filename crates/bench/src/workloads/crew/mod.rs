//! Workers that do transactions at the same time, in a closed or an open loop, as threads or as processes.
//!
//! Closed loop: each worker begins its next transaction when the last has ended; what is measured is how many get done.
//! Open loop: transactions are due at times fixed beforehand, and each is timed from when it was due, so that a stall
//! is felt by all that it delays (Schroeder, Wierman, Harchol-Balter: Open Versus Closed, NSDI 2006).
//!
//! A refused transaction is rolled back and tried again with the same keys until it is done, at once at first and after
//! growing pauses of up to 10 ms later; it counts as one, timed from its first begin. With a fixed time, only what was committed within it counts as work; what was begun within it and
//! committed later is kept apart, because it is in the store and its latency belongs to the distribution. What is begun
//! before the time that is measured ([`Amount::Steady`]) is kept apart too, because it is in the store.
//!
//! | module | what |
//! |---|---|
//! | [`shift`] | the loop of one worker, the same in every place |
//! | [`threads`] | workers in threads of the trial's process, on one store |
//! | `departure` | the end of their work, before anybody closes a connection |
//! | [`processes`] | workers in processes of their own, each with a store of its own: the trial's side |
//! | [`member`] | such a process |

mod departure;
pub mod member;
mod processes;
mod shift;
mod threads;

use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use shift::Tally;

use super::{Site, Workload};
use crate::engines::{Outcome, Store, Waits};
use crate::measure::phase::{Latency, Phase, Usage, new_histogram};
use crate::measure::usage;

/// When a crew stops.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Amount {
    /// After so many transactions of each worker.
    Each(u64),
    /// After so many transactions of all workers together, each taking the next one when it is free; processes are
    /// given equal shares instead.
    Together(u64),
    /// After a time.
    Seconds(f64),
    /// After a time that is measured and one before it that is not: what is begun in the latter is done and in the store,
    /// and counts as no work.
    Steady {
        /// The time before.
        warm_up_s: f64,
        /// The time that is measured.
        seconds: f64,
    },
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

/// Where the workers of a crew work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In one process, which has opened the store once.
    #[default]
    Threads,
    /// In a process of its own each, with the store opened there.
    Processes,
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

    /// Whether the chosen transaction changes something: only then is it a commit.
    fn writes(&self) -> bool {
        true
    }

    /// Bytes in the trial's directory, from a worker that looked.
    fn saw_file_bytes(&self) -> Option<u64> {
        None
    }
}

/// Makes the workers of a crew, each in its own thread.
pub type Hire<'a> = dyn Fn(&'a dyn Store, u32) -> Outcome<Box<dyn Worker + 'a>> + Sync + 'a;

/// Lets a crew of threads work on a store and measures it.
///
/// # Errors
/// The first failure of a worker that is no refusal.
pub fn run<'a>(name: &str, store: &'a dyn Store, shift: &Shift, hire: &Hire<'a>) -> Outcome<Phase> {
    Ok(threads::work(store, shift, hire)?.whole(name))
}

/// Lets the crew of a workload that has one ([`Workload::hire`]) work on its store, in threads or in processes.
///
/// # Errors
/// The first failure of a worker that is no refusal; of processes also that one of them died or did not answer.
pub fn run_in<'a>(
    place: Place,
    site: &'a Site<'a>,
    workload: &'a Workload,
    store: &'a dyn Store,
    shift: &Shift,
) -> Outcome<Done> {
    match place {
        Place::Threads => threads::work(store, shift, workload.hire(site)?.as_ref()),
        Place::Processes => processes::work(site, workload, shift),
    }
}

/// What a crew did.
pub struct Done {
    tallies: Vec<Tally>,
    usage: Usage,
    seconds: f64,
    due_per_second: Option<f64>,
    parted: Parting,
}

/// When the last worker had done its work, before any of them closed its connection, and what was used until then.
struct Parting {
    at: Instant,
    usage: Usage,
}

impl Parting {
    fn now() -> Self {
        Self { at: Instant::now(), usage: usage::so_far() }
    }
}

/// Which transactions of a crew are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Those {
    All,
    Writing,
    Reading,
}

impl Done {
    fn new(
        shift: &Shift,
        tallies: Vec<Tally>,
        usage: Usage,
        until_stop: Duration,
        parted: Parting,
    ) -> Self {
        let seconds = match shift.amount {
            Amount::Seconds(seconds) | Amount::Steady { seconds, .. } => seconds,
            _ if shift.count_start_and_stop => until_stop.as_secs_f64(),
            Amount::Each(_) | Amount::Together(_) => {
                tallies.iter().map(|t| t.took_s).fold(0.0, f64::max)
            }
        };
        Self { tallies, usage, seconds, due_per_second: shift.due_per_second, parted }
    }

    /// Closes the store and measures all that is left to be done after the last transaction: the closing of the workers'
    /// connections, and of the store.
    ///
    /// # Errors
    /// Whatever the closing ends with.
    pub fn close(&self, store: Box<dyn Store>, name: &str) -> Outcome<Phase> {
        store.close()?;
        Ok(Phase {
            name: name.to_owned(),
            seconds: self.parted.at.elapsed().as_secs_f64(),
            usage: usage::between(self.parted.usage, usage::so_far()),
            ..Phase::default()
        })
    }

    /// All transactions.
    #[must_use]
    pub fn whole(&self, name: &str) -> Phase {
        let mut phase = self.phase(name, Those::All);
        phase.usage = self.usage;
        for tally in &self.tallies {
            phase.waits.busy_handler_calls += tally.waits.busy_handler_calls;
            phase.waits.busy_handler_slept_s += tally.waits.busy_handler_slept_s;
            phase.transaction_cpu_s += tally.cpu_s;
        }
        phase
    }

    /// The transactions that changed something and those that did not, as phases of their own. Waits and processor
    /// time are not told apart and stand only in the whole.
    #[must_use]
    pub fn parts(&self, writing: &str, reading: &str) -> [Phase; 2] {
        [self.phase(writing, Those::Writing), self.phase(reading, Those::Reading)]
    }

    fn phase(&self, name: &str, those: Those) -> Phase {
        let mut phase = Phase {
            name: name.to_owned(),
            seconds: self.seconds,
            due_per_second: self.due_per_second.filter(|_| those == Those::All),
            ..Phase::default()
        };
        let mut latency = new_histogram();
        for tally in &self.tallies {
            let mut done = 0;
            for (part, writes) in [(&tally.writing, true), (&tally.reading, false)] {
                if (those == Those::Writing && !writes) || (those == Those::Reading && writes) {
                    continue;
                }
                done += part.done;
                phase.commits += if writes { part.done } else { 0 };
                phase.late_commits += if writes { part.late } else { 0 };
                phase.early_commits += if writes { part.early } else { 0 };
                phase.refusals.add(part.refusals);
                if let Some(histogram) = part.latency.as_ref().and_then(|l| l.histogram().ok()) {
                    latency.add(histogram).expect("both have the same bounds");
                }
            }
            phase.operations += done;
            phase.thread_commits.push(done);
            phase.file_bytes = phase.file_bytes.max(tally.saw_file_bytes);
        }
        phase.latency = (!latency.is_empty()).then(|| Latency::from(&latency));
        phase
    }
}
