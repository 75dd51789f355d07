//! System calls of a trial, counted in a traced pass that is never ranked.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What was counted between the begin and the end of the measured sections of a traced trial: all phases together, all
/// threads and processes of the trial, its server included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Traced {
    /// System calls.
    pub system_calls: u64,
    /// The same by name.
    pub by_name: BTreeMap<String, u64>,
    /// Calls that returned only when the disk had what they were given, by name: `fdatasync`, `pwrite64 (O_DSYNC)`.
    /// Only of files in the trial's directory.
    pub syncs: BTreeMap<String, u64>,
    /// Operations of the measured phases.
    pub operations: u64,
    /// What could not be counted or must be known to read the counts.
    pub notes: Vec<String>,
}

impl Traced {
    /// System calls for each operation; none without operations.
    #[must_use]
    pub fn per_operation(&self) -> Option<f64> {
        (self.operations > 0).then(|| self.system_calls as f64 / self.operations as f64)
    }
}
