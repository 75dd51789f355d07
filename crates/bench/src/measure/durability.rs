//! No durability without proof: commits of one row each, traced, and their sync calls counted.
//!
//! At most as many commits as there are workers can share one sync call, so fewer than commits / workers of them show
//! that some commit was acknowledged before the disk had it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engines::{Begin, Settings};

/// What one traced pass showed of an engine in settings that claim to survive a power cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// Name of the engine in the catalogue.
    pub engine: String,
    /// Its settings.
    pub settings: Settings,
    /// How the transactions began.
    pub begin: Begin,
    /// Threads that committed at the same time.
    pub workers: u32,
    /// Commits of all of them.
    pub commits: u64,
    /// Sync calls by name, as in [`Traced::syncs`](super::trace::Traced::syncs).
    pub syncs: BTreeMap<String, u64>,
    /// System calls of all kinds.
    pub system_calls: u64,
    /// System calls for each commit.
    pub system_calls_per_commit: f64,
    /// Whether there were at least commits / workers sync calls.
    pub proven: bool,
    /// What was counted and what that means, in words; the reason where nothing could be counted.
    pub why: String,
}
