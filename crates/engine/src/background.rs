//! Merges beside commits: a thread that lives as long as there is something to merge.
//!
//! A merge of several generations takes seconds on a large table. The committer that finds one due has better things to do, and mostly
//! another processor, or the disk's waiting time, is free for it. Without a thread (`PRAGMA plait_background_merge=0`, a program that
//! configured SQLite for one thread, or none to be had) he merges himself.
//!
//! | the thread | when | and then |
//! |---|---|---|
//! | is not there | nothing is due, or somebody merges | the next commit looks again |
//! | merges | a commit of this process has found a merge due that nobody makes | again if another commit has called meanwhile, else it ends |
//! | looks every [`NAP`], [`LOOKS`] times | readers from before the merge held its checkpoint back | as after a merge; what is left the next merge brings |
//! | has failed, and ended | the merge ended with an error | nobody starts it for [`REST`]; who runs out of room merges himself, and is told why |
//!
//! Invariants
//! - B1 At most one such thread of a process for each database, and none after [`Background::stop`].
//! - B2 A call while the thread is there is heard by it, or finds that it is not there any more.
//! - B3 No signal of the program is handled in it (`sync/unsignalled.rs`), and a fork leaves none of SQLite's mutexes held (`csrc/fork.c`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::database::Database;
use crate::error::Result;
use crate::ids::SlotIndex;
use crate::sync::unsignalled;

/// After a merge that failed.
const REST: Duration = Duration::from_millis(100);
/// Between two looks for readers that hold back a checkpoint, and how often is looked.
const NAP: Duration = Duration::from_millis(5);
const LOOKS: u32 = 100;

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

/// The merge thread of this process for one database.
#[derive(Default)]
pub(crate) struct Background {
    state: Arc<Mutex<State>>,
}

impl Background {
    /// Has a thread merge what is due. False if there is none, and none can be started.
    pub(crate) fn call(&self, database: &Arc<Database>) -> bool {
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
        let (shared, database) = (self.state.clone(), database.clone());
        let thread = unsignalled::spawn("plait-merge", move || run(&shared, &database));
        let Ok(thread) = thread else { return false };
        state.thread = Some(thread);
        state.is_running = true;
        true
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

/// Transactions from before a merge keep its pages from the database file, and the next one would lengthen the WAL by as much again. They
/// end soon, mostly.
fn finish(shared: &Mutex<State>, database: &Database, slot: SlotIndex) -> Result<()> {
    for _ in 0..LOOKS {
        if database.finish_checkpoint(slot)? || database.merge_is_due() || lock(shared).stopped {
            break;
        }
        std::thread::sleep(NAP);
    }
    Ok(())
}

fn run(shared: &Mutex<State>, database: &Arc<Database>) {
    loop {
        // An error leaves the generations frozen. A panic has poisoned the database (O2 in merge/own.rs).
        let merged = catch_unwind(AssertUnwindSafe(|| {
            let slot = database.borrow_slot()?;
            database.merge_if_due(slot.index())?;
            finish(shared, database, slot.index())
        }));
        let mut state = lock(shared);
        let has_failed = !matches!(merged, Ok(Ok(())));
        state.failed = has_failed.then(Instant::now);
        let again = std::mem::take(&mut state.called);
        if !again || has_failed || state.stopped {
            state.is_running = false;
            return;
        }
    }
}
