//! The thread that merges for a database: it lives as long as there is work (upkeep/pressure.rs).
//!
//! Invariants
//! - WORKER-1 A process has at most one worker thread for each database, and none after
//!   [`Worker::stop`].
//! - WORKER-2 The thread sees a call made while it runs, or the call finds that the thread has
//!   ended.
//! - WORKER-3 The thread handles no signal of the program (`sync/caller.rs`), and a fork leaves
//!   none of SQLite's mutexes held (`csrc/fork.c`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::sync::caller;

/// How long no thread is started after work that failed.
const REST: Duration = Duration::from_millis(100);
/// How long no connection waits for the thread after work that failed: longer than a waiter sleeps
/// between two looks (`TICK` in sync/wait.rs).
const MISTRUST: Duration = REST.saturating_mul(3);

/// The work of the thread. Its argument returns true once the thread must end.
pub(crate) type Work = Box<dyn Fn(&dyn Fn() -> bool) -> Result<()> + Send>;

#[derive(Default)]
struct State {
    /// The thread runs and will look at `called` once more.
    is_running: bool,
    called: bool,
    stopped: bool,
    failed: Option<Instant>,
    thread: Option<JoinHandle<()>>,
}

impl State {
    fn rests(&self) -> bool {
        self.failed.is_some_and(|failed| failed.elapsed() < REST)
    }
}

/// The worker thread of this process for one database.
#[derive(Default)]
pub(crate) struct Worker {
    state: Arc<Mutex<State>>,
}

impl Worker {
    /// Has the thread do the work that `work` makes. False only if no thread can be started. True
    /// without a thread after [`Worker::stop`] and for [`REST`] after a failure.
    pub(crate) fn call(&self, work: impl FnOnce() -> Work) -> bool {
        let mut state = lock(&self.state);
        if state.is_running {
            state.called = true;
            return true;
        }
        if state.stopped || state.rests() {
            return true;
        }
        if let Some(before) = state.thread.take() {
            // The thread is about to end. A panic in it was its own.
            let _ = before.join();
        }
        let (shared, work) = (self.state.clone(), work());
        let thread = caller::spawn("plait-merge", move || run(&shared, &work));
        let Ok(thread) = thread else { return false };
        state.thread = Some(thread);
        state.is_running = true;
        true
    }

    /// True if the last work failed less than [`MISTRUST`] ago.
    pub(crate) fn has_just_failed(&self) -> bool {
        lock(&self.state).failed.is_some_and(|failed| failed.elapsed() < MISTRUST)
    }

    /// Stops the thread and waits for its end.
    pub(crate) fn stop(&self) {
        let thread = {
            let mut state = lock(&self.state);
            state.stopped = true;
            state.thread.take()
        };
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(shared: &Mutex<State>, work: &Work) {
    loop {
        let done = catch_unwind(AssertUnwindSafe(|| work(&|| lock(shared).stopped)));
        let mut state = lock(shared);
        let has_failed = !matches!(done, Ok(Ok(())));
        state.failed = has_failed.then(Instant::now);
        let again = std::mem::take(&mut state.called);
        if !again || has_failed || state.stopped {
            state.is_running = false;
            return;
        }
    }
}
