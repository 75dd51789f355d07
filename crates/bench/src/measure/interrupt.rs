//! Ctrl-C, SIGTERM and SIGHUP: the trial that runs is ended, what was measured is kept.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Watches for signals that ask this program to end; to be called once.
///
/// # Errors
/// If it was called before.
pub fn watch() -> anyhow::Result<()> {
    // Relaxed, here and below: a flag that orders nothing else.
    ctrlc::set_handler(|| REQUESTED.store(true, Ordering::Relaxed))
        .context("cannot watch for Ctrl-C")
}

/// Whether such a signal came.
#[must_use]
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
