//! Models of the memory orderings, explored by loom: every order of the steps of a few threads, and
//! every value that a load may return.
//!
//! A model is a small copy of the code next to it, and shares the orderings with it: constants that
//! both use. A test runs each model again with one ordering weaker; there loom has to find
//! something.
//!
//! loom has no total order of SeqCst operations, only of fences: where the code has such
//! operations, a model has fences.

#![allow(unsafe_code)]

use loom::sync::Mutex;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread::{self, Thread};

/// Explores a model with at most so many preemptions.
pub(crate) fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// True if exploring finds something: a panic, a race on a cell, or threads that sleep for ever.
pub(crate) fn finds(preemptions: usize, model: impl Fn() + Sync + Send + 'static) -> bool {
    // In a process of its own: after a finding, loom cannot always unwind.
    // SAFETY: the child explores and ends; it needs no lock that another thread of this process may
    // hold.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no process for a model");
    if child == 0 {
        std::panic::set_hook(Box::new(|_| end(FOUND)));
        explore(preemptions, model);
        end(0);
    }
    let mut status = 0;
    // SAFETY: `status` is valid for the result.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == FOUND
}

/// Exit code of a process that has found something.
const FOUND: i32 = 42;

fn end(code: i32) -> ! {
    // SAFETY: ends the process without the exit handlers of others.
    unsafe { libc::_exit(code) }
}

/// A point where another thread may run. loom does not interrupt a thread between reading a word
/// and changing it: it tries the other order of two steps only if the thread has no step at that
/// word in between. A `step` before each access to such a word makes loom try that order too; it
/// orders nothing.
#[derive(Default)]
pub(crate) struct Steps(AtomicU32);

impl Steps {
    pub(crate) fn step(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// A futex: its word, and the kernel's queue of sleepers. Only a wake ends a sleep, so that a lost
/// wake is a deadlock, which loom reports.
#[derive(Default)]
pub(crate) struct Futex {
    /// The word that `wait` compares.
    pub(crate) word: AtomicU32,
    sleepers: Mutex<Vec<Thread>>,
}

impl Futex {
    /// Sleeps until a wake, unless the word has changed.
    pub(crate) fn wait(&self, expected: u32) {
        {
            let mut sleepers = self.sleepers.lock().unwrap();
            // Relaxed: only the kernel's lock is relied on, not the barriers that it has today.
            if self.word.load(Relaxed) != expected {
                return;
            }
            sleepers.push(thread::current());
        }
        thread::park();
    }

    /// Wakes one sleeper.
    pub(crate) fn wake_one(&self) {
        let sleeper = self.sleepers.lock().unwrap().pop();
        sleeper.inspect(Thread::unpark);
    }

    /// Wakes all sleepers.
    pub(crate) fn wake_all(&self) {
        let sleepers = std::mem::take(&mut *self.sleepers.lock().unwrap());
        sleepers.iter().for_each(Thread::unpark);
    }
}
