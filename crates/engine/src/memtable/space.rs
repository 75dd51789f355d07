//! Where nodes and records go.
//!
//! Free space lies between the nodes, which grow upwards, and the records, which grow downwards. A writer takes what it
//! needs from its ends, or has taken a chunk of either ahead: a [`Share`].
//!
//! # Why shares
//! Among many processes nearly every insert comes from another one than the last. Without shares each would write to a page
//! that it has never touched: a page fault for its node and one for its record. With them it faults once for a chunk.
//!
//! # Invariants
//! - **A1** The chunks of shares, and what was placed outside of them, do not overlap: the ends are moved past all of it
//!   before anything in it is linked, under the commit mutex.
//! - **A2** A share belongs to one process and one formatting of one region. What it has left when its process dies, or
//!   goes on to another region, is lost until the region is formatted again.
//! - **A3** Inserts of nodes that need `n` bytes in all take at most [`Share::bytes_needed`]`(n)`: small pieces alone go into
//!   chunks, so that little is left of an exhausted one.

use std::ops::Range;

use super::ArenaFull;
use super::arena::Arena;
use super::atomics::Ordering;
use super::insert::bytes_needed;
use super::layout::{FIELDS_BYTES, LINE_BYTES, LINK_BYTES, REC_AT_BYTES, height_at};

/// Chunks are made of pages, and end where one does.
const PAGE_BYTES: u32 = 4096;
/// Bytes of records that a process takes at a time if it is one of few.
const RECORDS_MAX: u32 = 4 * PAGE_BYTES;
/// Processes together take so much of a region ahead: one part in so many.
const PART_AHEAD: u32 = 8;
/// A piece goes into a chunk if it is not more than one part of it in so many.
const SMALL: u32 = 8;

/// Space that one process has taken ahead in one memtable. Not in shared memory: nobody else needs to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    memtable: u64,
    sizes: Chunks,
    left: Left,
}

/// Bytes of a chunk of each kind; 0 while chunks are not worth it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Chunks {
    nodes: u32,
    records: u32,
}

/// What is left of the chunks: nodes take it from its start, records from its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Left {
    nodes: Range<u32>,
    records: Range<u32>,
}

impl Share {
    /// Makes it a share of the memtable that `memtable` names, in a region of `capacity` bytes which `processes` write to. What
    /// it holds of another one is given up.
    pub fn enter(&mut self, memtable: u64, capacity: u32, processes: u32) {
        if self.memtable != memtable {
            *self = Share { memtable, ..Share::default() };
        }
        let records = capacity / PART_AHEAD / processes.max(1);
        let records = (records - records % PAGE_BYTES).min(RECORDS_MAX);
        // A single writer's pieces follow each other anyway.
        self.sizes = match processes > 1 && records > 0 {
            true => Chunks { nodes: PAGE_BYTES, records },
            false => Chunks::default(),
        };
    }

    /// Most bytes that inserts can take from the region whose [`Memtable::bytes_needed`](super::Memtable::bytes_needed) sum up
    /// to `sum`.
    pub fn bytes_needed(&self, sum: u64) -> u64 {
        // A chunk is at least half of its size long, and a quarter of that may be left when a piece no longer fits.
        let ahead = u64::from(self.sizes.nodes + self.sizes.records);
        if ahead == 0 { sum } else { sum + sum.div_ceil(3) + 2 * ahead }
    }
}

/// Where a node and its record go, and what is free behind them.
pub(super) struct Place {
    pub(super) offset: u32,
    pub(super) height: usize,
    pub(super) rec_at: u32,
    ends: Range<u32>,
    left: Left,
}

impl Place {
    /// Takes the space.
    pub(super) fn take(&self, arena: &Arena, share: &mut Share) {
        let header = arena.header();
        // Relaxed: only writers move them, and the commit mutex orders writers.
        header.nodes_end.store(self.ends.start, Ordering::Relaxed);
        header.records_start.store(self.ends.end, Ordering::Relaxed);
        share.left = self.left.clone();
    }
}

/// Finds room for a node and its record; takes nothing yet.
pub(super) fn place(
    arena: &Arena,
    share: &Share,
    key_len: usize,
    rec_len: usize,
) -> Result<Place, ArenaFull> {
    let header = arena.header();
    // Relaxed: as in `Place::take`.
    let free =
        header.nodes_end.load(Ordering::Relaxed)..header.records_start.load(Ordering::Relaxed);
    let find = |sizes| {
        Finder { arena, free: free.clone(), left: share.left.clone() }.find(sizes, key_len, rec_len)
    };
    let mut place = find(share.sizes);
    if place.is_none() && share.sizes != Chunks::default() {
        // Too little for another chunk may still be enough for the piece.
        place = find(Chunks::default());
    }
    place.ok_or(ArenaFull { needed: bytes_needed(key_len, rec_len) })
}

/// The free space while a place is sought in it.
struct Finder<'a> {
    arena: &'a Arena,
    free: Range<u32>,
    left: Left,
}

impl Finder<'_> {
    fn find(mut self, sizes: Chunks, key_len: usize, rec_len: usize) -> Option<Place> {
        let (offset, height) = self.node(sizes.nodes, key_len)?;
        let rec_at = self.record(sizes.records, u32::try_from(rec_len).ok()?)?;
        let is_free = self.free.start <= self.free.end && self.arena.is_node_offset(offset);
        is_free.then_some(Place { offset, height, rec_at, ends: self.free, left: self.left })
    }

    fn node(&mut self, chunk: u32, key_len: usize) -> Option<(u32, usize)> {
        if bytes_needed(key_len, 0) > chunk / SMALL {
            let node = fit_node(&self.free, key_len)?;
            self.free.start = node.end;
            return Some((node.offset, node.height));
        }
        if fit_node(&self.left.nodes, key_len).is_none() {
            let end = self.free.start.checked_add(chunk / 2)?.checked_next_multiple_of(chunk)?;
            self.left.nodes = self.free.start..end;
            self.free.start = end;
        }
        let node = fit_node(&self.left.nodes, key_len)?;
        self.left.nodes.start = node.end;
        Some((node.offset, node.height))
    }

    fn record(&mut self, chunk: u32, len: u32) -> Option<u32> {
        if len == 0 || len > chunk / SMALL {
            self.free.end = self.free.end.checked_sub(len)?;
            return Some(self.free.end);
        }
        if self.left.records.end - self.left.records.start < len {
            let start = self.free.end.checked_sub(chunk / 2)?;
            let start = start - start % chunk;
            self.left.records = start..self.free.end;
            self.free.end = start;
        }
        self.left.records.end -= len;
        Some(self.left.records.end)
    }
}

struct NodePlace {
    offset: u32,
    height: usize,
    end: u32,
}

/// The place of a node at the start of `free`. Its fields and links share a cache line whenever they fit one.
fn fit_node(free: &Range<u32>, key_len: usize) -> Option<NodePlace> {
    let head_bytes = |height| FIELDS_BYTES + LINK_BYTES * height as u32;
    let (mut offset, mut height) = (free.start, height_at(free.start));
    if offset % LINE_BYTES + head_bytes(height) > LINE_BYTES {
        offset = offset.checked_next_multiple_of(LINE_BYTES)?;
        height = height_at(offset);
    }
    let end = u64::from(offset) + u64::from(head_bytes(height) + REC_AT_BYTES) + key_len as u64;
    let end = u32::try_from(end.next_multiple_of(8)).ok()?;
    (end <= free.end).then_some(NodePlace { offset, height, end })
}
