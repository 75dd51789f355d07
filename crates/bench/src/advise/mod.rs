//! `plait bench advise`: which engine, in which settings, for a workload that is described in a few answers.
//!
//! The [`Need`] is asked on the terminal or given by options; the [`candidates`] that can serve it are measured now, on
//! this machine, by [`transactions`](crate::workloads::transactions); the [`verdict`] is drawn from those measurements
//! alone and shows them all.

pub mod candidates;
mod questions;
pub mod show;
pub mod verdict;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use questions::{Answers, complete};

/// What is needed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Need {
    /// Rows in the table.
    pub rows: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Writers at the same time.
    pub writers: u32,
    /// Whether they are processes rather than threads of one.
    pub processes: bool,
    /// Rows that a transaction reads for each one that it updates.
    pub reads: u32,
    /// Whether a commit must survive a power cut. Surviving the death of the process is always required.
    pub survive_power_cut: bool,
}

/// Rows that are filled in at most: more take longer to write than advice is worth waiting for.
pub const MEASURED_ROWS_MAX: u64 = 200_000;
/// Bytes that are filled in at most.
const MEASURED_BYTES_MAX: u64 = 256 << 20;

impl Need {
    /// Rows that are measured with: as many as needed, if they are not too many.
    #[must_use]
    pub fn measured_rows(&self) -> u64 {
        let by_size = MEASURED_BYTES_MAX / (self.value_bytes.max(1) as u64);
        self.rows.min(MEASURED_ROWS_MAX).min(by_size).max(1)
    }
}
