//! What is measured on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The machine, as far as it bears on the figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Model of the processor.
    pub processor: String,
    /// Processors that this program may use.
    pub processors: usize,
    /// Kernel release.
    pub kernel: String,
}

/// What disturbs a trial: read just before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Disturbance {
    /// Load average over one minute.
    pub load: f64,
    /// Part of the processor time since the last reading that the hypervisor gave to others, 0 to 1.
    pub steal: f64,
}

/// Describes this machine.
#[must_use]
pub fn describe() -> Machine {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let processor = read("/proc/cpuinfo")
        .lines()
        .find_map(|line| {
            Some(line.strip_prefix("model name")?.split_once(':')?.1.trim().to_owned())
        })
        .unwrap_or_else(|| "unknown".to_owned());
    Machine {
        processor,
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
    }
}
