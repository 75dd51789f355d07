//! The end of a crew's work: nobody closes a connection while others still work.
//!
//! Closing the last connection of a store may write all of it (a checkpoint), and closing any of them makes system
//! calls. Neither belongs to the measured section, which ends when the last worker leaves. A worker that panics has left
//! too, so that the others do not wait for it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::measure::trace::mark::{self, Section};

/// Where workers wait for each other when they have done their work.
pub struct Departure {
    state: Mutex<State>,
    all_left: Condvar,
}

struct State {
    working: u32,
    operations: u64,
    section: Option<Section>,
}

impl Departure {
    /// For so many workers.
    pub fn new(workers: u32) -> Self {
        let state = Mutex::new(State { working: workers, operations: 0, section: None });
        Self { state, all_left: Condvar::new() }
    }

    /// Begins the measured section; the last worker that leaves ends it.
    pub fn begin_section(&self) {
        self.lock().section = Some(mark::section());
    }

    /// For one worker, before it begins.
    pub fn worker(&self) -> Leaving<'_> {
        Leaving { departure: self }
    }

    /// Waits until all workers have left.
    pub fn wait(&self) {
        let mut state = self.lock();
        while state.working > 0 {
            state = self.all_left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Nothing in here panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker that has not left yet. Dropped, it has, and has done nothing.
pub struct Leaving<'a> {
    departure: &'a Departure,
}

impl Leaving<'_> {
    /// Leaves with so many operations done.
    pub fn leave(self, operations: u64) {
        self.departure.lock().operations += operations;
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut state = self.departure.lock();
        state.working -= 1;
        if state.working == 0 {
            if let Some(section) = state.section.take() {
                section.end(state.operations);
            }
            self.departure.all_left.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_a_worker_that_panicked() {
        let departure = Departure::new(2);
        let panicked = std::thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let _leaving = departure.worker();
                panic!("on purpose");
            });
            let leaves = scope.spawn(|| {
                departure.worker().leave(1);
                departure.wait();
            });
            leaves.join().expect("it came through");
            panics.join().is_err()
        });
        assert!(panicked);
    }
}
