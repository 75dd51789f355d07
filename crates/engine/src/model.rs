//! Models of the orderings, explored by loom: every order of the steps of a few threads, and every value that a load may return.
//!
//! A model is a small likeness of what stands beside it. What it shares with the code is the orderings: constants that both use. Each
//! model is told how strong each of them is, and a test runs it again with one that is weaker; there loom has to find something.
//!
//! loom knows no total order of operations that are SeqCst, only of fences: where the code has the former, a model has the latter.

#![allow(unsafe_code)]

use loom::sync::Mutex;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread::{self, Thread};

/// Explores a model with so many preemptions at most.
pub(crate) fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Whether exploring finds anything: a panic, a race on a cell, or threads that sleep for ever.
pub(crate) fn finds(preemptions: usize, model: impl Fn() + Sync + Send + 'static) -> bool {
    // In a process of its own: having found something, loom cannot always unwind.
    // SAFETY: the child explores and ends; it needs no lock that another thread of this process may hold.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no process for a model");
    if child == 0 {
        std::panic::set_hook(Box::new(|_| end(FOUND)));
        explore(preemptions, model);
        end(0);
    }
    let mut status = 0;
    // SAFETY: `status` is a place for the answer.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == FOUND
}

/// Exit code of a process that has found something.
const FOUND: i32 = 42;

fn end(code: i32) -> ! {
    // SAFETY: ends the process, without what others have registered for that.
    unsafe { libc::_exit(code) }
}

/// Where another thread may go on. loom tries the other order of two steps only if nothing of its own stands between them at the same
/// word: a thread that has looked at a word and then changes it is not interrupted in between. A step of this kind before each of its accesses
/// to such a word makes loom try that too; it orders nothing.
#[derive(Default)]
pub(crate) struct Steps(AtomicU32);

impl Steps {
    pub(crate) fn step(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// A futex: its word, and the kernel's queue of those who sleep on it. A sleep has no end but a wake, so that a lost one is a
/// deadlock, which loom reports.
#[derive(Default)]
pub(crate) struct Futex {
    /// What is compared.
    pub(crate) word: AtomicU32,
    sleepers: Mutex<Vec<Thread>>,
}

impl Futex {
    /// Sleeps until it is woken, unless the word is no longer what it was.
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
