//! The ring and its writers to the file, in every order of their steps: INTENT-1 and INTENT-2 of
//! write.rs, while a writer that others have overtaken goes on.

#![allow(unsafe_code)]

use std::sync::atomic::Ordering::{self, AcqRel, Relaxed, Release};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::thread;

use super::ring::{OVERWRITES, PUBLISHES};
use super::shared::{ENDS, INTENDS_AND_ASSIGNS, SEES_ENDED};
use super::shared::{SEES_PUBLISHED, SEES_WRITTEN};
use super::write::WRITES_THROUGH;
use crate::model::{Steps, explore, finds};

/// The orderings of the code, or one of them weaker.
#[derive(Clone, Copy)]
struct Orders {
    publishes: Ordering,
    sees_published: Ordering,
    writes_through: Ordering,
    sees_written: Ordering,
    /// Fence of a committer that overwrites bytes of the ring.
    overwrites: Option<Ordering>,
    /// Fence of a writer with an intent for a slot, after its copy.
    intends: Ordering,
    /// Fence of a committer that takes a slot.
    assigns: Ordering,
    ends: Ordering,
    sees_ended: Ordering,
}

const REAL: Orders = Orders {
    publishes: PUBLISHES,
    sees_published: SEES_PUBLISHED,
    writes_through: WRITES_THROUGH,
    sees_written: SEES_WRITTEN,
    overwrites: Some(OVERWRITES),
    intends: INTENDS_AND_ASSIGNS,
    assigns: INTENDS_AND_ASSIGNS,
    ends: ENDS,
    sees_ended: SEES_ENDED,
};

/// A ring that holds one frame; frame `n` is the number `n + 1`.
#[derive(Default)]
struct Stream {
    ring: AtomicU64,
    log_end: AtomicU64,
    written_through: AtomicU64,
    steps: Steps,
}

impl Stream {
    /// Appends two frames, the second over the first. Returns false if the first is not yet
    /// written.
    fn append(&self, orders: Orders) -> bool {
        for frame in 0..2 {
            if frame > self.written(orders) {
                return false;
            }
            if let Some(overwrites) = orders.overwrites {
                fence(overwrites);
            }
            self.ring.store(frame + 1, Relaxed);
            self.log_end.store(frame + 1, orders.publishes);
        }
        true
    }

    /// As `write_range`: writes what is published, unless another writer has.
    fn write(&self, orders: Orders) {
        let at = self.written(orders);
        if at >= self.log_end.load(orders.sees_published) {
            return;
        }
        let copy = self.ring.load(Relaxed);
        fence(orders.intends);
        if self.written(orders) != at {
            return;
        }
        assert_eq!(
            copy,
            at + 1,
            "INTENT-1: what is written to the file is not what was committed there"
        );
        self.steps.step();
        self.written_through.fetch_max(at + 1, orders.writes_through);
    }

    fn written(&self, orders: Orders) -> u64 {
        self.steps.step();
        self.written_through.load(orders.sees_written)
    }
}

fn two_writers_beside_a_committer(orders: Orders) -> impl Fn() {
    move || {
        let stream = Arc::new(Stream::default());
        let writer = {
            let stream = stream.clone();
            thread::spawn(move || stream.write(orders))
        };
        let committer = {
            let stream = stream.clone();
            thread::spawn(move || stream.append(orders))
        };
        stream.write(orders);
        committer.join().unwrap();
        writer.join().unwrap();
    }
}

/// A slot of the file that holds segment 1, all of which is published.
struct Slot {
    written_through: AtomicU64,
    first_live: AtomicU32,
    intent: AtomicU32,
    bytes: UnsafeCell<u32>,
}

impl Slot {
    /// Steps 3 to 6 of a writer that has copied the end of segment 1.
    fn write_late(&self, orders: Orders) {
        self.intent.store(1, Relaxed);
        fence(orders.intends);
        if self.written_through.load(orders.sees_written) == 0 {
            self.bytes.with_mut(|bytes| {
                // SAFETY: loom fails if another thread is here.
                unsafe { *bytes = 1 };
            });
        }
        self.intent.store(0, orders.ends);
    }

    /// Another writer has written the same bytes. The segment is given back, and segment 2 gets the
    /// slot if there is no intent for it.
    fn reuse(&self, orders: Orders) {
        self.written_through.fetch_max(1, orders.writes_through);
        self.first_live.store(2, Release);
        fence(orders.assigns);
        if self.intent.load(orders.sees_ended) == 0 {
            self.bytes.with_mut(|bytes| {
                // SAFETY: loom fails if another thread is here.
                unsafe { *bytes = 2 };
            });
        }
    }
}

fn a_slot_that_is_used_again(orders: Orders) -> impl Fn() {
    move || {
        let slot = Arc::new(Slot {
            written_through: AtomicU64::new(0),
            first_live: AtomicU32::new(1),
            intent: AtomicU32::new(0),
            bytes: UnsafeCell::new(0),
        });
        let late = {
            let slot = slot.clone();
            thread::spawn(move || slot.write_late(orders))
        };
        slot.reuse(orders);
        late.join().unwrap();
    }
}

// holds INTENT-1, INTENT-2
#[test]
fn what_is_written_to_the_file_is_what_was_committed_there_whoever_comes_late() {
    explore(4, two_writers_beside_a_committer(REAL));
    explore(4, a_slot_that_is_used_again(REAL));
}

/// Except those of `written_through`. Without them a copy could take bytes that are stored later
/// because of it, and in loom no load returns what is stored later.
#[test]
fn every_weaker_ordering_of_the_ring_is_found() {
    let stream = two_writers_beside_a_committer;
    assert!(finds(4, stream(Orders { publishes: Relaxed, ..REAL })));
    assert!(finds(4, stream(Orders { sees_published: Relaxed, ..REAL })));
    assert!(finds(4, stream(Orders { overwrites: None, ..REAL })));
    assert!(finds(4, stream(Orders { intends: Release, ..REAL })));
    let slot = a_slot_that_is_used_again;
    assert!(finds(4, slot(Orders { intends: AcqRel, ..REAL })));
    assert!(finds(4, slot(Orders { assigns: AcqRel, ..REAL })));
    assert!(finds(4, slot(Orders { ends: Relaxed, ..REAL })));
    assert!(finds(4, slot(Orders { sees_ended: Relaxed, ..REAL })));
}
