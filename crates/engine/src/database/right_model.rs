//! The owner words of the writer's right in every order of their steps. It has one holder at a
//! time, which sees what the holder before did with it; and every waiter gets it, also while a
//! reaper runs, wherever a process has died.

#![allow(unsafe_code)]

use std::sync::atomic::Ordering::Relaxed;

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU32;
use loom::sync::{Arc, Mutex, MutexGuard};
use loom::thread;

use super::right::answer;
use crate::model::{Futex, Steps, explore, finds};

/// Slots of two living connections, and of one whose process has died.
const SLOTS: usize = 3;
const DEAD: u32 = 3;

/// The way of the code, or one that is weaker in one point.
#[derive(Clone, Copy)]
struct Ways {
    /// The right is passed on by reserving it for the first waiter, not by calling that one alone.
    reserves: bool,
    /// A reaper calls the first waiter, whichever waiter was called before.
    reaper_calls: bool,
    /// Waiters look before they sleep, as they do after each tick.
    looks_first: bool,
    /// Releases are in a run, and the queue was served of late: nothing is reserved.
    in_a_run: bool,
    /// A release in a run spares those alone that look by themselves.
    spares_few: bool,
}

const REAL: Ways = Ways {
    reserves: true,
    reaper_calls: true,
    looks_first: false,
    in_a_run: false,
    spares_few: true,
};

/// What changes under the commit mutex only: the queue of owner words, and which slots are in state
/// QUEUED.
#[derive(Clone, Default)]
struct Queue {
    entries: Vec<u32>,
    is_queued: [bool; SLOTS],
    /// They were called in vain, and sleep for a moment only (RIGHT-11).
    looks: [bool; SLOTS],
}

struct Right {
    commit: Mutex<Queue>,
    owner: AtomicU32,
    reserved: AtomicU32,
    granted: [Futex; SLOTS],
    steps: Steps,
    /// What the right protects.
    inside: UnsafeCell<u32>,
}

impl Right {
    /// `owner` has the right, and `waiters` wait for it in this order.
    fn held(owner: u32, waiters: &[u32]) -> Right {
        let mut queue = Queue { entries: waiters.to_vec(), ..Queue::default() };
        waiters.iter().for_each(|word| queue.is_queued[*word as usize - 1] = true);
        Right {
            commit: Mutex::new(queue),
            owner: AtomicU32::new(owner),
            reserved: AtomicU32::new(0),
            granted: Default::default(),
            steps: Steps::default(),
            inside: UnsafeCell::new(0),
        }
    }

    fn granted(&self, word: u32) -> &Futex {
        &self.granted[word as usize - 1]
    }

    /// (M) True if the right is free and not reserved for another slot.
    fn may_take(&self, me: u32) -> bool {
        let reserved = self.reserved.load(Relaxed);
        self.owner.load(Relaxed) == 0 && (reserved == 0 || reserved == me)
    }

    /// (M)
    fn take(&self, queue: &mut Queue, me: u32) {
        queue.entries.retain(|word| *word != me);
        queue.is_queued[me as usize - 1] = false;
        self.reserved.store(0, Relaxed);
        self.owner.store(me, Relaxed);
    }

    /// As `try_right` and `wait_for_right`.
    fn acquire(&self, me: u32, ways: Ways) {
        {
            let mut queue = self.commit.lock().unwrap();
            self.granted(me).word.store(answer::NONE, Relaxed);
            if self.may_take(me) {
                return self.take(&mut queue, me);
            }
            queue.is_queued[me as usize - 1] = true;
            queue.looks[me as usize - 1] = false;
            queue.entries.push(me);
        }
        self.wait(me, ways);
    }

    fn wait(&self, me: u32, ways: Ways) {
        let mut is_awake = ways.looks_first;
        let mut in_vain = false;
        loop {
            if in_vain && ways.in_a_run {
                thread::yield_now();
                // Whoever releases the right from here on finds that the time is over.
                self.commit.lock().unwrap().looks[me as usize - 1] = false;
            } else if !is_awake {
                self.granted(me).wait(answer::NONE);
            }
            is_awake = false;
            self.steps.step();
            let answered = self.granted(me).word.load(Relaxed);
            let is_free = self.owner.load(Relaxed) == 0;
            if (is_free || answered == answer::CALLED) && self.take_from_queue(me) {
                return;
            }
            in_vain = self.commit.lock().unwrap().looks[me as usize - 1];
        }
    }

    fn take_from_queue(&self, me: u32) -> bool {
        let mut queue = self.commit.lock().unwrap();
        if !self.may_take(me) {
            if self.granted(me).word.load(Relaxed) == answer::CALLED {
                self.granted(me).word.store(answer::NONE, Relaxed);
                queue.looks[me as usize - 1] = true;
            }
            return false;
        }
        self.take(&mut queue, me);
        true
    }

    /// (M) As `Right::pass`; returns the slot to wake. `until`: how many of its steps are made
    /// before a death.
    fn pass(&self, queue: &mut Queue, ways: Ways, until: usize) -> Option<u32> {
        self.steps.step();
        self.owner.store(0, Relaxed);
        if until > 0 {
            let next = first(queue).filter(|_| ways.reserves);
            self.reserved.store(next.unwrap_or(0), Relaxed);
        }
        let is_spared = |next: u32| {
            let is_called = self.granted(next).word.load(Relaxed) == answer::CALLED;
            !is_called && (queue.looks[next as usize - 1] || !ways.spares_few)
        };
        if ways.in_a_run && first(&mut queue.clone()).is_some_and(is_spared) {
            return None;
        }
        if until > 1 { self.call_first(queue) } else { None }
    }

    /// As `call_in_vain`.
    fn call_in_vain(&self, me: u32) {
        let mut queue = self.commit.lock().unwrap();
        let next = first(&mut queue).filter(|_| self.owner.load(Relaxed) == me);
        let called = next.filter(|next| {
            let word = &self.granted(*next).word;
            let is_asleep = !queue.looks[*next as usize - 1];
            is_asleep && word.swap(answer::CALLED, Relaxed) != answer::CALLED
        });
        self.wake(queue, called);
    }

    /// (M)
    fn call_first(&self, queue: &mut Queue) -> Option<u32> {
        self.steps.step();
        if self.owner.load(Relaxed) != 0 {
            return None;
        }
        let next = first(queue)?;
        if self.granted(next).word.load(Relaxed) == answer::CALLED {
            return None;
        }
        self.granted(next).word.store(answer::CALLED, Relaxed);
        Some(next)
    }

    fn release(&self, me: u32, ways: Ways) {
        let mut queue = self.commit.lock().unwrap();
        queue.is_queued[me as usize - 1] = false;
        queue.entries.retain(|word| *word != me);
        let next = self.pass(&mut queue, ways, usize::MAX);
        self.wake(queue, next);
    }

    /// As `reap`.
    fn reap(&self, ways: Ways) {
        let mut queue = self.commit.lock().unwrap();
        queue.entries.retain(|word| *word != DEAD);
        if self.reserved.load(Relaxed) == DEAD {
            self.reserved.store(0, Relaxed);
        }
        let mut wake = Vec::new();
        if self.owner.load(Relaxed) == DEAD {
            wake.extend(self.pass(&mut queue, ways, usize::MAX));
        }
        queue.is_queued[DEAD as usize - 1] = false;
        if ways.reaper_calls {
            wake.extend(self.call_first(&mut queue));
        }
        self.wake(queue, wake);
    }

    fn wake(&self, queue: MutexGuard<'_, Queue>, answered: impl IntoIterator<Item = u32>) {
        drop(queue);
        answered.into_iter().for_each(|word| self.granted(word).wake_one());
    }

    /// loom fails if another holder is here, or if what an earlier one did is not seen.
    fn use_it(&self) {
        self.inside.with_mut(|inside| {
            // SAFETY: the right is held, which is what loom checks here.
            unsafe { *inside += 1 };
        });
    }
}

/// The first slot of the queue in state QUEUED. Drops the entries before it.
fn first(queue: &mut Queue) -> Option<u32> {
    let is_queued = queue.is_queued;
    let at = queue.entries.iter().position(|word| is_queued[*word as usize - 1]);
    queue.entries.drain(..at.unwrap_or(queue.entries.len()));
    queue.entries.first().copied()
}

/// Runs all of `what` in parallel, the last one in this thread.
fn together<const N: usize>(right: Right, what: [fn(&Right, Ways); N], ways: Ways) {
    let right = Arc::new(right);
    let [others @ .., mine] = what.as_slice() else { return };
    let others: Vec<_> = others
        .iter()
        .map(|&other| {
            let right = right.clone();
            thread::spawn(move || other(&right, ways))
        })
        .collect();
    mine(&right, ways);
    others.into_iter().for_each(|other| other.join().unwrap());
}

fn work_as(right: &Right, me: u32, ways: Ways) {
    right.use_it();
    right.release(me, ways);
}

/// The holder releases the right while another connection comes.
fn one_who_comes(ways: Ways) -> impl Fn() {
    let comes: fn(&Right, Ways) = |right, ways| {
        right.acquire(2, ways);
        work_as(right, 2, ways);
    };
    move || together(Right::held(1, &[]), [comes, |right, ways| work_as(right, 1, ways)], ways)
}

/// The dead slot is the first in the queue when the right is released, or holds the right; another
/// connection comes.
fn a_dead_one(holder: u32, waiters: &'static [u32], ways: Ways) -> impl Fn() {
    let comes: fn(&Right, Ways) = |right, ways| {
        right.acquire(2, ways);
        work_as(right, 2, ways);
    };
    let first: fn(&Right, Ways) = |right, ways| {
        if right.owner.load(Relaxed) == DEAD {
            right.acquire(1, ways);
        }
        work_as(right, 1, ways);
    };
    move || together(Right::held(holder, waiters), [comes, Right::reap, first], ways)
}

/// The holder has died while passing the right on to the first of two waiters.
fn a_death_in_passing(until: usize, ways: Ways) -> impl Fn() {
    let waits: fn(&Right, Ways) = |right, ways| {
        right.wait(2, ways);
        work_as(right, 2, ways);
    };
    let first: fn(&Right, Ways) = |right, ways| {
        right.wait(1, ways);
        work_as(right, 1, ways);
    };
    move || {
        let right = Right::held(DEAD, &[1, 2]);
        right.pass(&mut right.commit.lock().unwrap(), ways, until);
        together(right, [waits, Right::reap, first], ways);
    }
}

/// The holder of a run calls a waiter in vain, releases the right, and comes back once or never.
fn a_run(comes_back: bool, ways: Ways) -> impl Fn() {
    let waits: fn(&Right, Ways) = |right, ways| {
        right.acquire(2, ways);
        work_as(right, 2, ways);
    };
    let runs: fn(&Right, Ways) = |right, ways| {
        right.call_in_vain(1);
        work_as(right, 1, ways);
    };
    let runs_again: fn(&Right, Ways) = |right, ways| {
        right.call_in_vain(1);
        work_as(right, 1, ways);
        right.acquire(1, ways);
        right.call_in_vain(1);
        work_as(right, 1, ways);
    };
    let mine = if comes_back { runs_again } else { runs };
    move || together(Right::held(1, &[]), [waits, mine], ways)
}

// holds RIGHT-1, RIGHT-11
#[test]
fn a_waiter_gets_the_right_behind_a_run_wherever_that_ends() {
    let ways = Ways { in_a_run: true, reserves: false, ..REAL };
    explore(3, a_run(false, ways));
    explore(5, a_run(true, ways));
    explore(2, a_dead_one(1, &[DEAD], ways));
}

#[test]
fn a_run_that_spares_those_who_sleep_is_found() {
    let ways = Ways { in_a_run: true, reserves: false, spares_few: false, ..REAL };
    assert!(finds(3, a_run(false, ways)));
}

// holds RIGHT-1, RIGHT-3
#[test]
fn the_right_has_one_holder_at_a_time_and_passes_on_beside_deaths_in_any_order() {
    for reserves in [true, false] {
        let ways = Ways { reserves, ..REAL };
        explore(3, one_who_comes(ways));
        explore(2, a_dead_one(1, &[DEAD], ways));
        explore(2, a_dead_one(DEAD, &[], ways));
    }
    let looks = Ways { looks_first: true, ..REAL };
    explore(3, one_who_comes(looks));
    explore(2, a_death_in_passing(0, looks));
    explore(2, a_death_in_passing(1, looks));
}

#[test]
fn a_reaper_that_calls_nobody_is_found() {
    for reserves in [true, false] {
        let ways = Ways { reserves, reaper_calls: false, ..REAL };
        assert!(finds(2, a_dead_one(1, &[DEAD], ways)));
    }
}
