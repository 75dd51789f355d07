//! How long the random suites run: a slice in `make test`, longer when asked.

use std::time::Duration;

/// The time for one random test: `PLAIT_TORTURE_SECONDS`, or the given slice.
#[must_use]
pub fn time_or(slice: Duration) -> Duration {
    let asked = std::env::var("PLAIT_TORTURE_SECONDS").ok().and_then(|text| text.parse().ok());
    asked.map_or(slice, Duration::from_secs)
}

/// The first seed of a random test: `PLAIT_TORTURE_SEED`, or the given one, which is fixed so that `make test` repeats.
#[must_use]
pub fn seed_or(fixed: u64) -> u64 {
    std::env::var("PLAIT_TORTURE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(fixed)
}
