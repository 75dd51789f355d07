//! Writers in an open loop: first each transaction follows the last one, which says how many the engine can do, and then
//! they are due at half that rate, at times fixed beforehand. A transaction is timed from when it was due, so a stall
//! counts for all that should have begun in it, and what is due is done even when the time is over.
//!
//! Each engine has the rate that it reached itself, moments before in the same trial. The writers' transactions follow
//! each other evenly: with ten of them each tenth is the same writer's.

use super::members::{Member, Together};
use super::writer::{Count, Settings, Writer, wait_times};
use crate::sqlite::Result;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// The part of its best rate at which transactions are due.
const PART_OF_BEST: f64 = 0.5;

/// Which wait is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantile {
    /// Of a thousand transactions 999 waited no longer.
    P999,
    /// None waited longer.
    Max,
}

impl Quantile {
    /// Its name in the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::P999 => "p99.9",
            Self::Max => "max",
        }
    }
}

/// Waits from when transactions were due, of all writers together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// [`Quantile::P999`].
    pub p999: Duration,
    /// [`Quantile::Max`].
    pub max: Duration,
}

impl Latency {
    /// One of the two.
    #[must_use]
    pub fn at(&self, quantile: Quantile) -> Duration {
        match quantile {
            Quantile::P999 => self.p999,
            Quantile::Max => self.max,
        }
    }

    fn of(times: &Histogram<u64>) -> Self {
        Self {
            p999: Duration::from_nanos(times.value_at_quantile(0.999)),
            max: Duration::from_nanos(times.max()),
        }
    }

    /// Of several trials: the median of their p99.9, and the longest wait of all.
    #[must_use]
    pub fn of_trials(mut trials: Vec<Self>) -> Self {
        trials.sort_by_key(|latency| latency.p999);
        Self {
            p999: trials.get(trials.len() / 2).map_or(Duration::ZERO, |latency| latency.p999),
            max: trials.iter().map(|latency| latency.max).max().unwrap_or_default(),
        }
    }
}

/// How long each part takes.
#[derive(Clone, Copy, Debug)]
pub struct Phases {
    /// Of the closed loop, before it is counted.
    pub warm_up: Duration,
    /// Of the closed loop that is counted.
    pub closed: Duration,
    /// Of the open loop.
    pub open: Duration,
}

/// Runs the members, who must be writers in threads.
pub fn run(members: &[Member], phases: Phases) -> anyhow::Result<(Together, Latency)> {
    let connect = |member: &Member| {
        Writer::connect(&member.subject, &member.database, &member.load, member.seed)
    };
    let mut writers = members.iter().map(connect).collect::<anyhow::Result<Vec<_>>>()?;
    let settings: Settings = writers[0].settings()?;
    let begin = Instant::now() + phases.warm_up;
    let end = begin + phases.closed;
    let measuring = || (begin..end).contains(&Instant::now());
    let closed =
        in_threads(&mut writers, |_, writer| writer.run(&|| Instant::now() >= end, &measuring))?;
    let done: u64 = closed.iter().map(|count| count.measured).sum();
    anyhow::ensure!(done > 0, "nothing was done in {:?}", phases.closed);
    let rate = done as f64 / phases.closed.as_secs_f64() * PART_OF_BEST;
    let schedule =
        Schedule { start: Instant::now(), rate, writers: members.len(), time: phases.open };
    let open = in_threads(&mut writers, |index, writer| writer.run_due(schedule.due_times(index)))?;
    let mut all = wait_times();
    open.iter().try_for_each(|(_, times)| all.add(times))?;
    let counts: Vec<Count> = open.into_iter().map(|(count, _)| count).collect();
    let cpu = Duration::ZERO;
    Ok((Together { writers: counts, readers: Vec::new(), settings, cpu }, Latency::of(&all)))
}

/// Does the same with each writer at a time.
fn in_threads<T: Send>(
    writers: &mut [Writer],
    work: impl Fn(usize, &mut Writer) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = writers
            .iter_mut()
            .enumerate()
            .map(|(index, writer)| scope.spawn(move || work(index, writer)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// When transactions are due.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    start: Instant,
    /// Of all writers together, per second.
    rate: f64,
    writers: usize,
    time: Duration,
}

impl Schedule {
    /// Those of one writer, in order.
    fn due_times(self, writer: usize) -> impl Iterator<Item = Instant> {
        let number = (writer..).step_by(self.writers);
        let after = number.map(move |number| Duration::from_secs_f64(number as f64 / self.rate));
        after.take_while(move |after| *after < self.time).map(move |after| self.start + after)
    }
}

#[cfg(test)]
mod tests {
    use super::super::case::own_best_load;
    use super::super::members;
    use super::{Latency, Phases, Quantile, Schedule, run};
    use crate::subject::{Fixture, Subject};
    use std::time::{Duration, Instant};

    #[test]
    fn transactions_of_all_writers_are_due_evenly() {
        let start = Instant::now();
        let time = Duration::from_secs(1);
        let schedule = Schedule { start, rate: 100.0, writers: 3, time };
        let mut all: Vec<Instant> = (0..3).flat_map(|index| schedule.due_times(index)).collect();
        all.sort();
        assert_eq!(all.len(), 100);
        for (number, due) in all.iter().enumerate() {
            let expected = Duration::from_millis(10) * u32::try_from(number).expect("few");
            let difference = (*due - start).abs_diff(expected);
            assert!(difference < Duration::from_micros(1), "{number}: {:?}", *due - start);
        }
    }

    #[test]
    fn of_several_trials_the_median_and_the_longest_wait_count() {
        let trial = |p999, max| Latency {
            p999: Duration::from_millis(p999),
            max: Duration::from_millis(max),
        };
        let of = Latency::of_trials(vec![trial(9, 10), trial(1, 70), trial(3, 20)]);
        assert_eq!(of, trial(3, 70));
        assert_eq!(of.at(Quantile::P999), Duration::from_millis(3));
        assert_eq!(of.at(Quantile::Max), Duration::from_millis(70));
    }

    #[test]
    fn a_stall_counts_for_all_that_was_due_in_it() {
        let rows = "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER NOT NULL, val BLOB NOT NULL);
             WITH RECURSIVE i(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM i WHERE x<10000)
             INSERT INTO t SELECT x, 0, randomblob(400) FROM i";
        let fixture = Fixture::new(Subject::stock(), rows);
        let time = Duration::from_millis(600);
        let load = own_best_load(2);
        let members = members::of(&fixture.subject, &fixture.database(), &load, 1, time);
        let blocker = fixture.open();
        let stall = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(500));
            blocker.execute("BEGIN IMMEDIATE").expect("it waits for its turn");
            // So long that most of it is within the trial, on a busy machine too.
            std::thread::sleep(Duration::from_millis(500));
            blocker.execute("ROLLBACK").expect("it ends");
        });
        let closed = Duration::from_millis(200);
        let phases = Phases { warm_up: Duration::from_millis(50), closed, open: time };
        let (together, latency) = run(&members, phases).expect("it runs");
        stall.join().expect("it ended");
        assert!(latency.p999 > Duration::from_millis(100), "{latency:?}");
        let total: u64 = together.writers.iter().map(|count| count.total).sum();
        let sum = fixture.open().integer("SELECT sum(n) FROM t").expect("it is there");
        assert_eq!(total, sum.unsigned_abs());
    }
}
