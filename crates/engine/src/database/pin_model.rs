//! A merge that frees a generation while a snapshot pins it, in every order of their steps (PIN-1,
//! PIN-3 in snapshot.rs).

#![allow(unsafe_code)]

use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, fence};
use loom::thread;

use super::generations::{PINS_AND_FREES, SEES_UNPINNED, UNPINS};
use crate::model::{explore, finds};
use crate::shm::layout::{NO_PIN, generation};

/// The generation that is merged; the next one takes commits.
const OLD: u32 = 1;
const ACTIVE: u32 = 2;

/// The orderings of the code, or one of them weaker.
#[derive(Clone, Copy)]
struct Orders {
    /// Fence of the pinning reader.
    pins: Ordering,
    /// Fence of the freeing merge.
    frees: Ordering,
    unpins: Ordering,
    sees_unpinned: Ordering,
}

const REAL: Orders = Orders {
    pins: PINS_AND_FREES,
    frees: PINS_AND_FREES,
    unpins: UNPINS,
    sees_unpinned: SEES_UNPINNED,
};

struct Shared {
    /// The generation in the newest header of the base. Readers and the merge reach it without a
    /// common lock.
    base: AtomicU32,
    base_generation: AtomicU32,
    pin_low: AtomicU32,
    pin_high: AtomicU32,
    number: AtomicU32,
    state: AtomicU32,
    /// The arena: the number of the generation whose rows it has.
    arena: UnsafeCell<u32>,
}

impl Shared {
    fn new() -> Shared {
        Shared {
            base: AtomicU32::new(0),
            base_generation: AtomicU32::new(0),
            pin_low: AtomicU32::new(NO_PIN),
            pin_high: AtomicU32::new(NO_PIN),
            number: AtomicU32::new(OLD),
            state: AtomicU32::new(generation::FROZEN),
            arena: UnsafeCell::new(OLD),
        }
    }

    /// The merge's commit, `settle_base`, `free_merged`, and the formatting of the arena for a
    /// later generation.
    fn merge(&self, orders: Orders) {
        self.base.store(OLD, Release);
        self.state.store(generation::MERGED, Relaxed);
        self.base_generation.store(OLD, Release);
        fence(orders.frees);
        let low = self.pin_low.load(orders.sees_unpinned);
        let is_read = low != NO_PIN && OLD > low && OLD <= self.pin_high.load(orders.sees_unpinned);
        if is_read {
            return;
        }
        self.number.store(0, Relaxed);
        self.state.store(generation::FREE, Relaxed);
        self.arena.with_mut(|rows| {
            // SAFETY: loom fails if a reader reads it at the same time.
            unsafe { *rows = 0 };
        });
    }

    /// `pin`, the base read transaction, `take`, one read, `snapshot_end`.
    fn read(&self, orders: Orders) {
        self.pin_high.store(NO_PIN, Relaxed);
        let low = self.base_generation.load(Acquire);
        self.pin_low.store(low, Release);
        fence(orders.pins);
        let base = self.base.load(Acquire);
        assert!(base >= low, "a newer base is read than the one pinned for");
        let number = self.number.load(Acquire);
        let is_listed = number > base && self.state.load(Relaxed) != generation::FREE;
        assert!(is_listed || base == OLD, "PIN-1: a generation above {base} is missing");
        self.pin_low.store(base, orders.unpins);
        self.pin_high.store(ACTIVE, Release);
        if is_listed {
            self.arena.with(|rows| {
                // SAFETY: loom fails if the merge formats it at the same time.
                assert_eq!(unsafe { *rows }, OLD, "PIN-3");
            });
        }
        self.pin_high.store(NO_PIN, Relaxed);
        self.pin_low.store(NO_PIN, orders.unpins);
    }
}

fn a_merge_beside_a_reader(orders: Orders) -> impl Fn() {
    move || {
        let shared = Arc::new(Shared::new());
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || shared.read(orders))
        };
        shared.merge(orders);
        reader.join().unwrap();
    }
}

// holds PIN-1, PIN-3, SNAP-3, GEN-4
#[test]
fn a_generation_that_a_snapshot_needs_is_not_freed_in_any_order() {
    explore(5, a_merge_beside_a_reader(REAL));
}

#[test]
fn every_weaker_pin_is_found() {
    assert!(finds(5, a_merge_beside_a_reader(Orders { pins: AcqRel, ..REAL })));
    assert!(finds(5, a_merge_beside_a_reader(Orders { frees: AcqRel, ..REAL })));
    assert!(finds(5, a_merge_beside_a_reader(Orders { unpins: Relaxed, ..REAL })));
    assert!(finds(5, a_merge_beside_a_reader(Orders { sees_unpinned: Relaxed, ..REAL })));
}
