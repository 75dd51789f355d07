//! loom runs the steps on the mutex's word in every order: no thread sleeps for ever, and two never
//! hold the mutex.

#![allow(unsafe_code)]

use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::*;
use crate::model::explore;

/// The word, and the kernel's queue of its sleepers. A sleep ends only by a wake: a lost wake is a
/// deadlock, which loom reports.
struct Modelled {
    word: AtomicU32,
    queue: Mutex<()>,
    woken: Condvar,
    /// What the mutex protects.
    inside: loom::cell::UnsafeCell<u32>,
}

impl Modelled {
    fn new() -> Modelled {
        Modelled {
            word: AtomicU32::new(0),
            queue: Mutex::new(()),
            woken: Condvar::new(),
            inside: loom::cell::UnsafeCell::new(0),
        }
    }

    /// Takes the mutex as `lock_until` does, without spinning.
    fn lock(&self, me: u32) -> bool {
        if let Some(inherited) = take_free(self, me) {
            return inherited;
        }
        let mut slept = false;
        loop {
            if let Step::Taken { inherited } = take_or_sleep(self, me, slept, None) {
                return inherited;
            }
            slept = true;
        }
    }

    /// Counts. loom fails if another thread counts at the same time, or does not see this count.
    fn count(&self) -> u32 {
        self.inside.with_mut(|inside| {
            // SAFETY: the mutex is held, which loom checks here.
            let inside = unsafe { &mut *inside };
            *inside += 1;
            *inside
        })
    }
}

impl Word for Modelled {
    fn look(&self) -> u32 {
        self.word.load(Relaxed)
    }

    fn exchange(&self, from: u32, to: u32) -> bool {
        self.word.compare_exchange(from, to, AcqRel, Relaxed).is_ok()
    }

    fn replace(&self, to: u32) -> u32 {
        self.word.swap(to, Release)
    }

    fn sleep(&self, expected: u32, _: Option<Duration>) -> WaitResult {
        let queue = self.queue.lock().unwrap();
        if self.word.load(Acquire) != expected {
            return WaitResult::Changed;
        }
        drop(self.woken.wait(queue).unwrap());
        WaitResult::Woken
    }

    fn wake_one(&self) {
        let _queue = self.queue.lock().unwrap();
        self.woken.notify_one();
    }
}

fn owner(index: u32) -> u32 {
    Identity::new(ProcessIndex(index), 1).word()
}

// holds MUTEX-3
#[test]
fn no_order_of_steps_loses_a_wake_or_lets_two_in() {
    explore(3, || {
        let mutex = Arc::new(Modelled::new());
        let others: Vec<_> = (1..3)
            .map(|index| {
                let mutex = mutex.clone();
                thread::spawn(move || {
                    assert!(!mutex.lock(owner(index)));
                    mutex.count();
                    release(&*mutex, false);
                })
            })
            .collect();
        assert!(!mutex.lock(owner(0)));
        mutex.count();
        release(&*mutex, false);
        for other in others {
            other.join().unwrap();
        }
        assert!(!mutex.lock(owner(0)));
        assert_eq!(mutex.count(), 4);
    });
}

// holds MUTEX-1
#[test]
fn of_those_who_find_the_owner_dead_one_repairs() {
    explore(3, || {
        let mutex = Arc::new(Modelled::new());
        let dead = owner(7) | WAITERS;
        // Relaxed: the threads start later.
        mutex.word.store(dead, Relaxed);
        let heir = move |mutex: &Modelled, index| {
            let inherited = take_from_dead(mutex, dead, owner(index)) || mutex.lock(owner(index));
            let position = mutex.count();
            assert_eq!(inherited, position == 1, "the first repairs, and nobody after it");
            release(mutex, false);
        };
        let other = {
            let mutex = mutex.clone();
            thread::spawn(move || heir(&mutex, 1))
        };
        heir(&mutex, 0);
        other.join().unwrap();
    });
}

// holds MUTEX-2
#[test]
fn what_a_panic_left_is_repaired_once_in_any_order() {
    explore(3, || {
        let mutex = Arc::new(Modelled::new());
        let other = {
            let mutex = mutex.clone();
            thread::spawn(move || {
                let inherited = mutex.lock(owner(1));
                let position = mutex.count();
                release(&*mutex, false);
                inherited && position == 2
            })
        };
        let inherited = mutex.lock(owner(0));
        mutex.count();
        release(&*mutex, true);
        assert!(!inherited);
        let by_other = other.join().unwrap();
        let by_me = mutex.lock(owner(0));
        assert!(by_other != by_me, "the next owner repairs, whoever it is");
    });
}
