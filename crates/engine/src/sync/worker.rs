//! A thread of the engine's own that lives as long as there is work: for merges (upkeep/pressure.rs).
//!
//! Invariants
//! - WORKER-1 At most one such thread of a process for each database, and none after [`Worker::stop`].
//! - WORKER-2 A call while the thread is there is heard by it, or finds that it is not there any more.
//! - WORKER-3 No signal of the program is handled in it (`sync/caller.rs`), and a fork leaves none of SQLite's mutexes held (`csrc/fork.c`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::sync::caller;

/// After work that failed.
const REST: Duration = Duration::from_millis(100);
/// For so long nobody waits for it then: longer than between two looks of those who do (`TICK` in sync/wait.rs).
const MISTRUST: Duration = REST.saturating_mul(3);

/// What the thread does, once for each time that it is called; it is told how to find out whether it has to end.
pub(crate) type Work = Box<dyn Fn(&dyn Fn() -> bool) -> Result<()> + Send>;

#[derive(Default)]
struct State {
    /// The thread is there, and will look at `called` once more.
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

/// The thread of this process for one database.
#[derive(Default)]
pub(crate) struct Worker {
    state: Arc<Mutex<State>>,
}

impl Worker {
    /// Has a thread do the work that `work` makes. False if there is none, and none can be started.
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
            // It has said that it ends. A panic in it was its own.
            let _ = before.join();
        }
        let (shared, work) = (self.state.clone(), work());
        let thread = caller::spawn("plait-merge", move || run(&shared, &work));
        let Ok(thread) = thread else { return false };
        state.thread = Some(thread);
        state.is_running = true;
        true
    }

    /// Its last work failed, a moment ago.
    pub(crate) fn has_just_failed(&self) -> bool {
        lock(&self.state).failed.is_some_and(|failed| failed.elapsed() < MISTRUST)
    }

    /// Ends the thread; returns when it is gone.
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
