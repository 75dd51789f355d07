//! Words about a process that ships the database elsewhere: what became of the base, and how far it
//! is. The layout is part of that of shared memory (layout.rs); database/boundaries.rs and
//! database/shipping.rs have the rules.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, fence};

use crate::ids::{Generation, Lsn};

/// Changes of the base that are kept.
pub const BOUNDARIES: usize = 64;
/// Bytes of a place where a database is shipped to.
pub const PLACE_BYTES: usize = 256;
/// Bytes of what is in the way.
pub const TROUBLE_BYTES: usize = 512;

/// Kinds of changes in [`BoundarySlot::kind`].
pub mod kind {
    /// Generations were merged, and `page_count` and `sum` say what that has written.
    pub const MERGE: u32 = 1;
    /// An exclusive transaction.
    pub const EXCLUSIVE: u32 = 2;
    /// Something that nobody can tell: its author died, or did not look.
    pub const UNKNOWN: u32 = 3;
}

/// One change of the base.
#[repr(C)]
pub struct BoundarySlot {
    /// Generation of the base before.
    pub before: AtomicU32,
    /// Generation of the base behind it.
    pub through: AtomicU32,
    /// One of [`kind`].
    pub kind: AtomicU32,
    /// Pages of the database behind it.
    pub page_count: AtomicU32,
    /// CRC-32C over the pages that it wrote.
    pub sum: AtomicU32,
    /// Keeps the struct's size explicit.
    pub pad: AtomicU32,
    /// Log position behind the last frame that it merged; 0: there was none.
    pub end: AtomicU64,
}

/// The last changes of the base.
#[repr(C)]
pub struct Boundaries {
    /// (M) How many there were: the place of the next, modulo the length.
    pub next: AtomicU64,
    /// (M) See [`BoundarySlot`].
    pub slots: [BoundarySlot; BOUNDARIES],
}

/// How far a process has shipped the database. Aligned for the fields after it.
#[repr(C, align(128))]
pub struct Shipping {
    /// See [`Boundaries`].
    pub boundaries: Boundaries,
    /// Sequence lock of what follows: odd while it changes.
    pub seq: AtomicU32,
    /// The session.
    pub salt: AtomicU32,
    /// Generation of the base that was shipped.
    pub base: AtomicU32,
    /// Frames through this generation were not all shipped; 0: they were.
    pub incomplete: AtomicU32,
    /// Changes of the base that were shipped.
    pub boundary: AtomicU64,
    /// Name of the chain; zeros: none is known.
    pub chain: [AtomicU64; 2],
    /// Log position that was shipped.
    pub stream: AtomicU64,
    /// Commit that was shipped.
    pub commit: AtomicU64,
    /// Checksum of the last frame that was shipped; 0: none.
    pub crc: AtomicU32,
    /// Bytes of `place`.
    pub place_len: AtomicU32,
    /// When the chain was last known to have all of it, in milliseconds of the wall clock.
    pub known_ms: AtomicU64,
    /// Since when something is in the way, by the same clock; 0: nothing is.
    pub trouble_since_ms: AtomicU64,
    /// Bytes of `trouble`.
    pub trouble_len: AtomicU32,
    /// Keeps the struct's size explicit.
    pub pad: AtomicU32,
    /// The first 16 bytes of the hash of the last record that is known.
    pub record: [AtomicU64; 2],
    /// The nonce of the writer that may have opened the chain since.
    pub opening: [AtomicU64; 2],
    /// Where the database is shipped to, as its user names it: UTF-8.
    pub place: [AtomicU8; PLACE_BYTES],
    /// What is in the way: UTF-8.
    pub trouble: [AtomicU8; TROUBLE_BYTES],
}

const _: () = assert!(size_of::<BoundarySlot>() == 32);
const _: () = assert!(size_of::<Shipping>().is_multiple_of(128));

/// What a transaction has written to the base.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// Pages of the database behind it.
    pub page_count: u32,
    /// CRC-32C over the pages that it wrote, ascending: the number of each, little-endian, and its
    /// content, with zeros in place of the salt (bytes 72 to 75 of page 1).
    pub sum: u32,
}

/// What a change of the base was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Generations were merged. With what that has written, if anybody has looked.
    Merge(Option<Written>),
    /// An exclusive transaction.
    Exclusive,
    /// Something that nobody can tell.
    Unknown,
}

/// A change of the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boundary {
    /// Generation of the base before.
    pub before: Generation,
    /// Generation of the base behind it.
    pub through: Generation,
    /// What it was.
    pub change: Change,
    /// Log position behind the last frame that it merged.
    pub end: Lsn,
}

impl Boundaries {
    /// How many changes there were.
    pub(crate) fn count(&self) -> u64 {
        // Acquire pairs with the Release in `note`.
        self.next.load(Acquire)
    }

    /// (M), or alone. Notes a change.
    pub(crate) fn note(&self, boundary: &Boundary) {
        // Relaxed: changes under the commit mutex.
        let next = self.next.load(Relaxed);
        let slot = &self.slots[(next % BOUNDARIES as u64) as usize];
        let (number, written) = match boundary.change {
            Change::Merge(Some(written)) => (kind::MERGE, written),
            Change::Exclusive => (kind::EXCLUSIVE, Written::default()),
            Change::Merge(None) | Change::Unknown => (kind::UNKNOWN, Written::default()),
        };
        // A reader that finds one of the stores below finds `next` as it was before (BOUND-3).
        fence(Release);
        slot.before.store(boundary.before.get(), Relaxed);
        slot.through.store(boundary.through.get(), Relaxed);
        slot.kind.store(number, Relaxed);
        slot.page_count.store(written.page_count, Relaxed);
        slot.sum.store(written.sum, Relaxed);
        slot.end.store(boundary.end.get(), Relaxed);
        self.next.store(next + 1, Release);
    }

    /// Returns change `number`, counted from 0; none if it is not kept any more.
    pub(crate) fn get(&self, number: u64) -> Option<Boundary> {
        let slot = &self.slots[(number % BOUNDARIES as u64) as usize];
        let written =
            Written { page_count: slot.page_count.load(Relaxed), sum: slot.sum.load(Relaxed) };
        let boundary = Boundary {
            before: Generation::new(slot.before.load(Relaxed)),
            through: Generation::new(slot.through.load(Relaxed)),
            change: match slot.kind.load(Relaxed) {
                kind::MERGE => Change::Merge(Some(written)),
                kind::EXCLUSIVE => Change::Exclusive,
                _ => Change::Unknown,
            },
            end: Lsn::new(slot.end.load(Relaxed)),
        };
        // Pairs with the fence in `note`.
        fence(Acquire);
        let next = self.next.load(Relaxed);
        let is_kept = number < next && number + BOUNDARIES as u64 > next;
        is_kept.then_some(boundary)
    }

    /// (M) The generation of the base behind the last change.
    pub(crate) fn last_through(&self) -> Option<Generation> {
        self.count().checked_sub(1).and_then(|last| self.get(last)).map(|last| last.through)
    }

    /// (M), or alone. Notes a change that nobody can tell, over a base of generation `base`, which it
    /// may have left as it was.
    pub(crate) fn note_unknown(&self, base: Generation, through: Generation) {
        let through = through.max(base);
        let end = Lsn::new(0);
        self.note(&Boundary { before: base, through, change: Change::Unknown, end });
    }
}
