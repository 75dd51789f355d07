//! The thread that brings commits to disk for programs that wait on a descriptor.
//!
//! A program with one thread that serves many clients cannot wait for the disk in each COMMIT. It
//! commits under NORMAL, keeps the ticket (txn/tickets.rs), and watches an eventfd in its event
//! loop. This thread syncs for it; there is one for each database and process that has such a
//! descriptor.
//!
//! | the thread | when | then |
//! |---|---|---|
//! | sleeps | all commits that it knows of are on disk | a commit of this process wakes it |
//! | syncs, or waits for a sync | a commit is not on disk | it writes to every descriptor |
//! | sleeps | a sync has failed | it tries again after [`LOOK_AGAIN`] |
//! | ends | the last connection with a descriptor is closed | |
//!
//! It sleeps for [`LOOK_AGAIN`] at most, and then looks for commits of other processes. After a
//! failed sync a program that reads its descriptor gets the reason from its next wait.
//!
//! A program gets descriptors of its own for the same eventfd. What it does with them, and when it
//! closes them, does not concern this thread.
//!
//! Invariants
//! - NOTIFY-1 A descriptor is written to after `durable_ts` has moved, a sync has failed, or its
//!   connection has let go of it. So a program that empties it first and then reads `durable_ts`
//!   misses nothing.
//! - NOTIFY-2 The thread is gone before the connection that had the last descriptor lets go of its
//!   database.
//! - NOTIFY-3 A commit after which `wake` has been called is on disk, or has failed to be, after
//!   one sync that began later.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, IntoRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use crate::database::Database;
use crate::error::{Error, Result};
use crate::sync::caller;

/// How late the thread notices what other processes have synced.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

#[derive(Default)]
struct State {
    descriptors: Vec<File>,
    wanted: bool,
    thread: Option<JoinHandle<()>>,
    /// Changes when the thread has to end.
    era: u64,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    signal: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Descriptors of this process for one database, and the thread behind them.
#[derive(Default)]
pub(crate) struct Notifier {
    shared: Arc<Shared>,
    /// There is a descriptor. Without one a commit pays for nothing but this load.
    is_watched: AtomicBool,
}

impl Notifier {
    /// Makes an eventfd that becomes readable whenever more is on disk, and returns its number
    /// here. Starts the thread if there is none.
    ///
    /// # Errors
    /// No descriptor, or no thread, can be had.
    pub(crate) fn watch(&self, database: &Arc<Database>) -> Result<RawFd> {
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let descriptor =
            File::from(made.map_err(|e| Error::io("cannot make an eventfd", &e.into()))?);
        let fd = descriptor.as_raw_fd();
        let mut state = self.shared.lock();
        if state.thread.is_none() {
            let (shared, database, era) =
                (self.shared.clone(), Arc::downgrade(database), state.era);
            let spawned = caller::spawn("plait-sync", move || run(&shared, &database, era));
            let cannot = |e: &std::io::Error| Error::io("cannot start a thread that syncs", e);
            state.thread = Some(spawned.map_err(|e| cannot(&e))?);
        }
        state.descriptors.push(descriptor);
        state.wanted = true;
        // Release: a commit from now on wakes the thread.
        self.is_watched.store(true, Release);
        self.shared.signal.notify_all();
        Ok(fd)
    }

    /// Returns another descriptor of an eventfd that [`Notifier::watch`] has made.
    ///
    /// # Errors
    /// No descriptor can be had.
    pub(crate) fn another(&self, fd: RawFd) -> Result<RawFd> {
        let state = self.shared.lock();
        let kept = state.descriptors.iter().find(|descriptor| descriptor.as_raw_fd() == fd);
        let kept = kept.ok_or_else(|| Error::Misuse("the descriptor is closed".into()))?;
        let another = kept.try_clone();
        another.map(IntoRawFd::into_raw_fd).map_err(|e| Error::io("cannot copy an eventfd", &e))
    }

    /// Closes a descriptor that [`Notifier::watch`] has made. With the last one the thread ends
    /// before this returns (NOTIFY-2).
    pub(crate) fn unwatch(&self, fd: RawFd) {
        let thread = {
            let mut state = self.shared.lock();
            // Wakes a program that waits on the descriptor, so that it learns of the end.
            let mut ended = state.descriptors.extract_if(.., |kept| kept.as_raw_fd() == fd);
            tell(&ended.by_ref().collect::<Vec<_>>());
            drop(ended);
            if !state.descriptors.is_empty() {
                return;
            }
            self.is_watched.store(false, Release);
            state.era += 1;
            self.shared.signal.notify_all();
            state.thread.take()
        };
        if let Some(thread) = thread {
            // A panic of the thread is its own.
            let _ = thread.join();
        }
    }

    /// Wakes the thread after a commit that has not waited for the disk.
    pub(crate) fn wake(&self) {
        // Acquire pairs with the Release in `watch`.
        if !self.is_watched.load(Acquire) {
            return;
        }
        let mut state = self.shared.lock();
        if !state.wanted {
            state.wanted = true;
            self.shared.signal.notify_all();
        }
    }
}

fn run(shared: &Shared, database: &Weak<Database>, era: u64) {
    let mut told = 0;
    let mut has_failed = false;
    loop {
        {
            let mut state = shared.lock();
            if state.era == era && (!state.wanted || has_failed) {
                let waited = shared.signal.wait_timeout(state, LOOK_AGAIN);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            if state.era != era {
                return;
            }
            // Before the newest commit is read (NOTIFY-3).
            state.wanted = false;
        }
        // This is never the last reference: `unwatch` waits for this thread (NOTIFY-2).
        let Some(database) = database.upgrade() else { return };
        let synced = catch_unwind(AssertUnwindSafe(|| database.sync_commits()));
        if synced.is_err() {
            // As after a panic in any call. The thread goes on until it is ended.
            database.poison();
        }
        let durable = database.durable_ts();
        drop(database);
        let failed = !matches!(synced, Ok(Ok(())));
        if durable != told || failed != has_failed {
            (told, has_failed) = (durable, failed);
            tell(&shared.lock().descriptors);
        }
    }
}

/// Makes the descriptors readable (NOTIFY-1).
fn tell(descriptors: &[File]) {
    for mut descriptor in descriptors {
        // A full counter is readable as well. Nothing else can fail.
        let _ = descriptor.write(&1_u64.to_ne_bytes());
    }
}
