//! Group commit in every order of its steps: every waiter is woken, without the look that sleepers
//! take on their own after a while, and then finds on disk what it waited for.

use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};

use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::group::{PARITY, SLEEPS_AND_WAKES};
use crate::model::{Futex, Steps, explore, finds};

/// Length of a frame: the lowest bit is the parity's.
const FRAME: u64 = 2;

/// The way of the code, or one thing weaker.
#[derive(Clone, Copy)]
struct Ways {
    sleeps: Ordering,
    wakes: Ordering,
    /// Both words change when a group ends, not only that of its members.
    changes_both: bool,
    /// A waiter that came too late for a group is woken at its end.
    calls_next: bool,
}

const REAL: Ways = Ways {
    sleeps: SLEEPS_AND_WAKES,
    wakes: SLEEPS_AND_WAKES,
    changes_both: true,
    calls_next: true,
};

#[derive(Default)]
struct Group {
    log_end: AtomicU64,
    durable_through: AtomicU64,
    run: AtomicU64,
    words: [Futex; 2],
    sleepers: [AtomicU32; 2],
    sync_mutex: Mutex<()>,
    steps: Steps,
}

/// Adds what loom lacks: SeqCst operations are in one order.
fn in_one_order(order: Ordering) {
    if order == SeqCst {
        fence(SeqCst);
    }
}

impl Group {
    /// As `publish_end`, and then `sync_through`.
    fn commit(&self, ways: Ways) {
        let lsn = self.log_end.fetch_add(FRAME, AcqRel) + FRAME;
        loop {
            self.steps.step();
            let run = self.run.load(Acquire);
            let parity = (run & PARITY) as usize;
            let mine = if lsn <= run & !PARITY { parity } else { 1 - parity };
            self.steps.step();
            let seen = self.words[mine].word.load(Acquire);
            self.steps.step();
            if self.durable_through.load(Acquire) >= lsn {
                return;
            }
            self.steps.step();
            if self.run.load(Acquire) != run {
                continue;
            }
            if let Ok(sync) = self.sync_mutex.try_lock() {
                self.lead(ways, sync);
                continue;
            }
            self.sleepers[mine].fetch_add(1, ways.sleeps);
            in_one_order(ways.sleeps);
            self.words[mine].wait(seen);
            self.sleepers[mine].fetch_sub(1, Relaxed);
        }
    }

    fn lead(&self, ways: Ways, sync: loom::sync::MutexGuard<'_, ()>) {
        let target = self.log_end.load(Acquire);
        let parity = (self.run.load(Relaxed) & PARITY) ^ PARITY;
        self.steps.step();
        self.run.store(target | parity, Release);
        self.steps.step();
        self.durable_through.fetch_max(target, Release);
        // As `end_group`.
        let (parity, next) = (parity as usize, 1 - parity as usize);
        drop(sync);
        self.steps.step();
        if ways.changes_both {
            self.words[next].word.fetch_add(1, ways.wakes);
        }
        self.words[parity].word.fetch_add(1, ways.wakes);
        in_one_order(ways.wakes);
        if ways.calls_next && self.sleepers[next].load(ways.wakes.for_loads()) > 0 {
            self.words[next].wake_one();
        }
        if self.sleepers[parity].load(ways.wakes.for_loads()) > 0 {
            self.words[parity].wake_all();
        }
    }
}

trait ForLoads {
    /// Returns the part of an ordering that a load can have.
    fn for_loads(self) -> Ordering;
}

impl ForLoads for Ordering {
    fn for_loads(self) -> Ordering {
        if self == AcqRel { Acquire } else { self }
    }
}

fn commits(committers: usize, ways: Ways) -> impl Fn() {
    move || {
        let group = Arc::new(Group::default());
        let others: Vec<_> = (1..committers)
            .map(|_| {
                let group = group.clone();
                thread::spawn(move || group.commit(ways))
            })
            .collect();
        group.commit(ways);
        for other in others {
            other.join().unwrap();
        }
        let end = group.log_end.load(Relaxed);
        assert_eq!((end, group.durable_through.load(Relaxed)), (committers as u64 * FRAME, end));
    }
}

#[test]
fn nobody_who_waits_for_a_group_sleeps_for_ever() {
    explore(3, commits(2, REAL));
    explore(1, commits(3, REAL));
}

#[test]
fn every_weaker_way_of_sleeping_and_waking_is_found() {
    assert!(finds(3, commits(2, Ways { sleeps: AcqRel, ..REAL })));
    assert!(finds(3, commits(2, Ways { wakes: AcqRel, ..REAL })));
    assert!(finds(2, commits(3, Ways { changes_both: false, ..REAL })));
    assert!(finds(2, commits(3, Ways { calls_next: false, ..REAL })));
}
