//! What a trial measured: the figures of its phases.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engines::Waits;

/// Transactions that had to be repeated, by what was answered. None of them is counted as work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Refusals {
    /// Somebody else held what was needed, until the busy timeout.
    pub busy: u64,
    /// Not serializable with a transaction that had committed.
    pub conflict: u64,
    /// Chosen to give way in a deadlock.
    pub deadlock: u64,
}

impl Refusals {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.busy + self.conflict + self.deadlock
    }

    /// Adds those of another thread.
    pub fn add(&mut self, other: Self) {
        self.busy += other.busy;
        self.conflict += other.conflict;
        self.deadlock += other.deadlock;
    }
}

/// Processor time and input and output of the trial's processes (the engine's server included).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Seconds in user mode.
    pub user_cpu_s: f64,
    /// Seconds in the kernel.
    pub system_cpu_s: f64,
    /// Bytes that writing system calls were given.
    pub written_bytes: u64,
    /// Writing system calls.
    pub write_calls: u64,
    /// Voluntary and involuntary context switches.
    pub context_switches: u64,
}

/// One measured part of a trial: "insert int", "select int", "transactions".
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Phase {
    /// Which part.
    pub name: String,
    /// Operations done: rows inserted, keys selected, transactions committed.
    pub operations: u64,
    /// Transactions committed that changed something.
    pub commits: u64,
    /// Transactions begun within a fixed time and committed after it: in the store, but not counted as work.
    #[serde(default)]
    pub late_commits: u64,
    /// Transactions begun in the time before the one that is measured: in the store, but not counted as work.
    #[serde(default)]
    pub early_commits: u64,
    /// Seconds from the first operation to the last, or as the study counts them.
    pub seconds: f64,
    /// What had to be repeated.
    pub refusals: Refusals,
    /// Waiting in busy handlers, all threads together.
    pub waits: Waits,
    /// Processor, input and output.
    pub usage: Usage,
    /// Processor seconds of the threads between BEGIN and the return of COMMIT, all threads together.
    pub transaction_cpu_s: f64,
    /// Commits of each thread.
    pub thread_commits: Vec<u64>,
    /// Time of each operation or transaction from its begin, or in an open loop from when it was due. In nanoseconds.
    pub latency: Option<Latency>,
    /// Bytes in the trial's directory while the work went on, where a worker looked.
    #[serde(default)]
    pub file_bytes: Option<u64>,
    /// In an open loop: operations a second that were due.
    pub due_per_second: Option<f64>,
}

impl Phase {
    /// Operations a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.operations as f64 / self.seconds } else { 0.0 }
    }

    /// All commits that were acknowledged, early and late ones among them: what the store must hold.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.early_commits + self.commits + self.late_commits
    }

    /// Commits of the slowest thread by those of the fastest; none with fewer than two threads.
    #[must_use]
    pub fn fairness(&self) -> Option<f64> {
        let (least, most) = (self.thread_commits.iter().min()?, self.thread_commits.iter().max()?);
        (self.thread_commits.len() > 1 && *most > 0).then(|| *least as f64 / *most as f64)
    }

    /// Whether an open loop could not keep up: fewer than 99 % of what was due was done.
    #[must_use]
    pub fn is_saturated(&self) -> bool {
        self.due_per_second.is_some_and(|due| self.rate() < 0.99 * due)
    }
}

/// A histogram of nanoseconds, as text: base64 of HdrHistogram's V2 format, which every HdrHistogram library reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Latency(String);

/// Values up to a minute at three digits.
#[must_use]
pub fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("constant bounds are valid")
}

impl From<&Histogram<u64>> for Latency {
    fn from(histogram: &Histogram<u64>) -> Self {
        use base64::Engine as _;
        let mut bytes = Vec::new();
        V2Serializer::new()
            .serialize(histogram, &mut bytes)
            .expect("a vector takes all that is written");
        Self(base64::engine::general_purpose::STANDARD.encode(bytes))
    }
}

impl Latency {
    /// The histogram.
    ///
    /// # Errors
    /// If the text is not what [`From`] makes.
    pub fn histogram(&self) -> anyhow::Result<Histogram<u64>> {
        use base64::Engine as _;
        let bytes = base64::engine::general_purpose::STANDARD.decode(&self.0)?;
        Ok(Deserializer::new().deserialize(&mut bytes.as_slice())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_survives_its_text() {
        let mut histogram = new_histogram();
        for value in [900, 80_000, 80_100, 3_000_000_000] {
            histogram.record(value).unwrap();
        }
        assert_eq!(Latency::from(&histogram).histogram().unwrap(), histogram);
    }

    #[test]
    fn fairness_needs_two_threads() {
        let alone = Phase { thread_commits: vec![5], ..Phase::default() };
        assert_eq!(alone.fairness(), None);
        let two = Phase { thread_commits: vec![5, 10], ..Phase::default() };
        assert_eq!(two.fairness(), Some(0.5));
    }
}
