//! The optional merge thread (`PRAGMA plait_background_merge`): the committer
//! that crosses the threshold wakes it instead of merging itself.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use crate::database::Database;

#[derive(Default)]
struct State {
    wanted: bool,
    stopping: bool,
    thread: Option<JoinHandle<()>>,
}

/// At most one merge thread of this process for one database.
#[derive(Default)]
pub(crate) struct Background {
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl Background {
    /// Has the thread merge if a merge is due, starting it when there is none.
    pub(crate) fn wake(&self, database: &Arc<Database>) {
        if !database.merge_is_due() {
            return;
        }
        let (state, signal) = &*self.shared;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.wanted = true;
        if state.thread.is_none() && !state.stopping {
            let shared = self.shared.clone();
            let database = Arc::downgrade(database);
            let spawned = std::thread::Builder::new()
                .name("plait-merge".into())
                .spawn(move || run(&shared, &database));
            // Without a thread the next committer past the limit merges by itself (make_memtable_room).
            state.thread = spawned.ok();
        }
        signal.notify_one();
    }

    /// Ends the thread; returns when it is gone.
    pub(crate) fn stop(&self) {
        let (state, signal) = &*self.shared;
        let thread = {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.stopping = true;
            signal.notify_all();
            state.thread.take()
        };
        if let Some(thread) = thread {
            // It holds no strong reference while it sleeps, and a panic in it was its own.
            let _ = thread.join();
        }
    }
}

fn run(shared: &(Mutex<State>, Condvar), database: &Weak<Database>) {
    let (state, signal) = shared;
    loop {
        {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            while !state.wanted && !state.stopping {
                state = signal.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.stopping {
                return;
            }
            state.wanted = false;
        }
        let Some(database) = database.upgrade() else { return };
        // An error leaves the generations frozen; a committer that runs out of room reports it. A panic has poisoned the
        // database (O2), and the thread goes on for whoever stops it.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            if let Ok(slot) = database.borrow_slot() {
                let _ = database.merge_if_due(slot.index());
            }
        }));
    }
}
