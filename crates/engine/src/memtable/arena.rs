//! Bounds-checked access to a memtable's region: the only unsafe code of the memtable.
//!
//! Every offset that comes out of shared memory passes `checked_node` before it is used. A value
//! that cannot be right panics with "memtable damaged"; the caller of the engine turns that into a
//! poisoned database. Links are atomics. Everything else of a node is written once, before the
//! Release store that links it, and read only behind an Acquire load of a link: so plain reads of
//! it race with nothing.
//!
//! # Space
//!
//! Free space is between the nodes, which grow upwards, and the records, which grow downwards. A
//! writer takes what it needs from the ends of the free space, or from a chunk of either kind that
//! it has taken ahead: a [`Share`].
//!
//! # Why shares
//! With many processes nearly every insert comes from another process than the last. Without shares
//! each insert would write to a page that its process has never touched: a page fault for its node
//! and one for its record. With shares a process faults once for a chunk.
//!
//! # Invariants
//! - SPACE-1 The chunks of shares, and what was placed outside of them, do not overlap: the ends
//!   are moved past all of it before anything in it is linked, under the commit mutex.
//! - SPACE-2 A share belongs to one process and one formatting of one region. What is left of it
//!   when its process dies, or moves to another region, is lost until the region is formatted
//!   again.
//! - SPACE-3 Inserts of nodes that need `n` bytes in all take at most [`Share::bytes_needed`]`(n)`:
//!   only small pieces go into chunks, so that little is left of an exhausted one.
#![allow(unsafe_code)]

use std::ops::Range;
use std::ptr::NonNull;

use super::ArenaFull;
use super::atomics::{AtomicU32, AtomicU64, Ordering};
use super::layout::{
    FIELDS_BYTES, HEIGHT_MAX, Header, LINE_BYTES, LINK_BYTES, MAGIC, NODE_HEAD_BYTES_MAX,
    NodeFields, REC_AT_BYTES, SHORTCUTS, WORD_BYTES, filter_at, filter_words, first_node,
    height_at, shortcut_count,
};
use super::list::bytes_needed;

/// A region of shared memory laid out as `layout` says.
#[derive(Clone, Copy)]
pub(super) struct Arena {
    base: NonNull<u8>,
    len: u32,
    first_node: u32,
}

// SAFETY: the region stays mapped while the view is in use (contract of `Arena::new`), and what
// several threads may touch at once is atomic or immutable (module text).
unsafe impl Send for Arena {}
// SAFETY: as for Send; no method hands out exclusive access.
unsafe impl Sync for Arena {}

impl Arena {
    /// # Safety
    /// `base` points to `len` initialised bytes that stay mapped, readable and writable, as long as
    /// this view, a copy of it or anything borrowed from one is in use, and that are touched only
    /// through an `Arena`.
    ///
    /// # Panics
    /// When `base` is not aligned to a cache line or the region is too small for one node.
    #[inline(always)]
    pub(super) unsafe fn new(base: *mut u8, len: u32) -> Arena {
        assert!(
            (base as usize).is_multiple_of(LINE_BYTES as usize),
            "memtable region is not aligned"
        );
        assert!(
            len >= first_node(len) + NODE_HEAD_BYTES_MAX,
            "memtable region of {len} bytes is too small"
        );
        let base = NonNull::new(base).expect("memtable region is null");
        Arena { base, len, first_node: first_node(len) }
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn header(&self) -> &Header {
        // SAFETY: `new` checked that the region is aligned and longer than a header; everything
        // written in it after `format` is atomic.
        unsafe { self.base.cast::<Header>().as_ref() }
    }

    /// True if `offset` can be a node's: aligned, behind the header, its head inside the region.
    #[inline]
    pub(super) fn is_node_offset(&self, offset: u32) -> bool {
        offset.is_multiple_of(8)
            && offset >= self.first_node
            && offset <= self.len - NODE_HEAD_BYTES_MAX
    }

    #[inline]
    fn checked_node(&self, offset: u32) -> usize {
        if !self.is_node_offset(offset) {
            damaged("a link leads nowhere", offset);
        }
        offset as usize
    }

    /// The fixed part of the node at `offset`.
    #[inline]
    pub(super) fn fields(&self, offset: u32) -> &NodeFields {
        let at = self.checked_node(offset);
        // SAFETY: `checked_node` leaves room for a node's head inside the region.
        let fields = unsafe { self.base.add(at) }.cast::<NodeFields>();
        // SAFETY: in bounds and 8-aligned; every bit pattern is a valid `NodeFields`; immutable
        // once linked.
        unsafe { fields.as_ref() }
    }

    /// The link of `level` of the node at `offset`, which may be the head.
    #[inline]
    pub(super) fn link(&self, offset: u32, level: usize) -> &AtomicU32 {
        assert!(level < HEIGHT_MAX);
        if offset == super::layout::HEAD {
            return &self.header().head_links[level];
        }
        let at = self.checked_node(offset) + FIELDS_BYTES as usize + level * LINK_BYTES as usize;
        // SAFETY: `checked_node` leaves room for the highest tower inside the region.
        let link = unsafe { self.base.add(at) }.cast::<AtomicU32>();
        // SAFETY: in bounds and 4-aligned. If the node is lower than `level` (damage only) these
        // are bytes of a key, to which nothing is written any more.
        unsafe { link.as_ref() }
    }

    /// Returns how many bytes of the region shortcuts and filter serve now.
    #[inline]
    pub(super) fn covers(&self) -> u32 {
        // Acquire pairs with the Release in `widen`: the parts in use are filled in.
        self.header().covers.load(Ordering::Acquire).min(self.len)
    }

    /// The shortcut of all keys with this hash.
    #[inline]
    pub(super) fn shortcut(&self, hash: u64) -> &AtomicU32 {
        self.shortcut_at(hash as u32 & (shortcut_count(self.covers()) - 1))
    }

    /// Shortcut `index`, in use or not.
    #[inline]
    pub(super) fn shortcut_at(&self, index: u32) -> &AtomicU32 {
        assert!(index < shortcut_count(self.len));
        // SAFETY: the shortcuts end where the first node begins, inside the region (`new`).
        let shortcut = unsafe { self.base.add((SHORTCUTS + index * LINK_BYTES) as usize) };
        // SAFETY: in bounds and 4-aligned; only ever used as an atomic.
        unsafe { shortcut.cast::<AtomicU32>().as_ref() }
    }

    /// The word of the filter of all keys with this hash.
    #[inline]
    pub(super) fn filter_word(&self, hash: u64) -> &AtomicU64 {
        self.filter_word_at((hash >> 24) as u32 & (filter_words(self.covers()) - 1))
    }

    /// Word `index` of the filter, in use or not.
    #[inline]
    pub(super) fn filter_word_at(&self, index: u32) -> &AtomicU64 {
        assert!(index < filter_words(self.len));
        // SAFETY: the words end where the first node begins, inside the region (`new`).
        let word = unsafe { self.base.add((filter_at(self.len) + index * WORD_BYTES) as usize) };
        // SAFETY: in bounds and 8-aligned; only ever used as an atomic.
        unsafe { word.cast::<AtomicU64>().as_ref() }
    }

    /// The filter words that serve `covers` bytes.
    pub(super) fn filter(&self, covers: u32) -> impl Iterator<Item = &AtomicU64> {
        (0..filter_words(covers.min(self.len))).map(|i| self.filter_word_at(i))
    }

    /// True if the region was formatted to serve `covers` bytes and nothing was inserted since: all
    /// shortcuts and words are 0 (an insert takes its space before it sets one).
    pub(super) fn is_clean(&self, covers: u32) -> bool {
        let header = self.header();
        // Relaxed: the caller has the region to itself.
        header.magic.load(Ordering::Relaxed) == MAGIC
            && header.len.load(Ordering::Relaxed) == self.len
            && header.covers.load(Ordering::Relaxed) == covers
            && header.nodes_end.load(Ordering::Relaxed) == self.first_node
            && header.records_start.load(Ordering::Relaxed) == self.len
    }

    /// The shortcuts that serve `covers` bytes.
    pub(super) fn shortcuts(&self, covers: u32) -> impl Iterator<Item = &AtomicU32> {
        (0..shortcut_count(covers.min(self.len))).map(|i| self.shortcut_at(i))
    }

    /// Offset of the first node that a region of this size can hold.
    pub(super) fn first_node(&self) -> u32 {
        self.first_node
    }

    /// Offset of the key of the node at `offset`; None when it leaves the region.
    #[inline]
    pub(super) fn key_at(&self, offset: u32, fields: &NodeFields) -> Option<u32> {
        if usize::from(fields.height) > HEIGHT_MAX {
            return None;
        }
        let links = LINK_BYTES * u32::from(fields.height);
        let key_at = offset + FIELDS_BYTES + links + REC_AT_BYTES;
        self.is_inside(key_at, fields.key_len).then_some(key_at)
    }

    /// Offset of the record of the node at `offset`; None when it leaves the region.
    pub(super) fn rec_at(&self, offset: u32, fields: &NodeFields) -> Option<u32> {
        let key_at = self.key_at(offset, fields)?;
        let rec_at = self.bytes(key_at - REC_AT_BYTES, REC_AT_BYTES);
        let rec_at = u32::from_ne_bytes(rec_at.try_into().ok()?);
        self.is_inside(rec_at, fields.rec_len).then_some(rec_at)
    }

    /// Prefetches the node at `offset`, if it is one.
    #[inline]
    pub(super) fn fetch(&self, offset: u32) {
        if self.is_node_offset(offset) {
            self.fetch_line(offset);
            // Its key is mostly in the next line.
            self.fetch_line(offset + LINE_BYTES);
        }
    }

    /// Prefetches the record of a node.
    #[inline]
    pub(super) fn fetch_record(&self, offset: u32) {
        if let Some(rec_at) = self.rec_at(offset, self.fields(offset)) {
            self.fetch_line(rec_at);
        }
    }

    #[inline]
    fn fetch_line(&self, at: u32) {
        #[cfg(target_arch = "x86_64")]
        if at < self.len {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: `at` is inside the region.
            let line = unsafe { self.base.add(at as usize) };
            // SAFETY: a hint; it has no effect that the program could notice.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast_const().cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    fn is_inside(&self, at: u32, len: u32) -> bool {
        u64::from(at) + u64::from(len) <= u64::from(self.len)
    }

    #[inline]
    pub(super) fn key(&self, offset: u32) -> &[u8] {
        let fields = self.fields(offset);
        match self.key_at(offset, fields) {
            Some(key_at) => self.bytes(key_at, fields.key_len),
            None => damaged("a key leaves the region", offset),
        }
    }

    /// Returns key and record, at three quarters of the cost of two calls.
    #[inline]
    pub(super) fn key_and_rec(&self, offset: u32) -> (&[u8], &[u8]) {
        let fields = self.fields(offset);
        let Some(key_at) = self.key_at(offset, fields) else {
            damaged("a key leaves the region", offset);
        };
        let rec_at = self.bytes(key_at - REC_AT_BYTES, REC_AT_BYTES);
        let rec_at = rec_at.first_chunk().map_or(u32::MAX, |at| u32::from_ne_bytes(*at));
        if !self.is_inside(rec_at, fields.rec_len) {
            damaged("a record leaves the region", offset);
        }
        (self.bytes(key_at, fields.key_len), self.bytes(rec_at, fields.rec_len))
    }

    pub(super) fn rec(&self, offset: u32) -> &[u8] {
        let fields = self.fields(offset);
        match self.rec_at(offset, fields) {
            Some(rec_at) => self.bytes(rec_at, fields.rec_len),
            None => damaged("a record leaves the region", offset),
        }
    }

    fn bytes(&self, at: u32, len: u32) -> &[u8] {
        // The callers have checked this; repeated here so that the proof below is local.
        assert!(self.is_inside(at, len));
        // SAFETY: `at` is inside the region.
        let start = unsafe { self.base.add(at as usize) };
        // SAFETY: in bounds and initialised; key and record of a linked node are immutable.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), len as usize) }
    }

    /// Writes a node and its record, which no link reaches yet.
    ///
    /// # Safety
    /// The caller is the only writer, and no link leads to a node that shares bytes with this one
    /// or its record.
    ///
    /// # Panics
    /// When either would leave the region.
    pub(super) unsafe fn write_node(
        &self,
        offset: u32,
        fields: &NodeFields,
        links: &[u32],
        payload: &Payload<'_>,
    ) {
        let key_at = self.key_at(offset, fields).expect("node inside the region");
        assert!(links.len() == usize::from(fields.height));
        assert!(fields.key_len as usize == payload.key.len());
        let at = self.checked_node(offset);
        // SAFETY: `checked_node` leaves room for a node's head inside the region.
        let node = unsafe { self.base.add(at) }.cast::<NodeFields>();
        // SAFETY: in bounds, aligned, unreachable for everyone else (contract).
        unsafe { node.write(*fields) };
        for (level, link) in links.iter().enumerate() {
            // Relaxed: the store that links the node publishes these as well.
            self.link(offset, level).store(*link, Ordering::Relaxed);
        }
        // SAFETY: unreachable for everyone else (contract).
        unsafe { self.write_bytes(key_at - REC_AT_BYTES, &payload.rec_at.to_ne_bytes()) };
        // SAFETY: as above.
        unsafe { self.write_bytes(key_at, payload.key) };
        // SAFETY: as above.
        unsafe { self.write_bytes(payload.rec_at, payload.rec) };
    }

    /// # Safety
    /// No link leads to what is overwritten.
    ///
    /// # Panics
    /// When the bytes would leave the region.
    unsafe fn write_bytes(&self, at: u32, bytes: &[u8]) {
        let len = u32::try_from(bytes.len()).expect("lengths are of 32 bits");
        assert!(self.is_inside(at, len));
        // SAFETY: in bounds.
        let to = unsafe { self.base.add(at as usize) };
        // SAFETY: in bounds and unreachable (contract), so `bytes`, which are reachable, are
        // elsewhere.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }
}

/// The content of a node.
pub(super) struct Payload<'a> {
    pub(super) key: &'a [u8],
    pub(super) rec: &'a [u8],
    /// Offset of the record.
    pub(super) rec_at: u32,
}

/// Panics because of shared memory that cannot be right.
#[cold]
#[inline(never)]
pub(super) fn damaged(what: &str, offset: u32) -> ! {
    panic!("memtable damaged: {what} (offset {offset})")
}

/// Chunks are made of pages, and end where a page does.
const PAGE_BYTES: u32 = 4096;
/// Bytes of records that one of few processes takes at a time.
const RECORDS_MAX: u32 = 4 * PAGE_BYTES;
/// All processes together take ahead one part in so many of a region.
const PART_AHEAD: u32 = 8;
/// A piece goes into a chunk if it takes at most one part in so many of it.
const SMALL: u32 = 8;

/// Space that one process has taken ahead in one memtable. Not in shared memory: no other process
/// needs to know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    memtable: u64,
    sizes: Chunks,
    left: Left,
}

/// Bytes of a chunk of each kind; 0 while chunks do not pay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Chunks {
    nodes: u32,
    records: u32,
}

/// The rest of the chunks. Nodes take space from the start, records from the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Left {
    nodes: Range<u32>,
    records: Range<u32>,
}

impl Share {
    /// Makes this a share of the memtable `memtable`, in a region of `capacity` bytes to which
    /// `processes` write. Gives up what the share holds of another memtable.
    pub fn enter(&mut self, memtable: u64, capacity: u32, processes: u32) {
        if self.memtable != memtable {
            *self = Share { memtable, ..Share::default() };
        }
        let records = capacity / PART_AHEAD / processes.max(1);
        let records = (records - records % PAGE_BYTES).min(RECORDS_MAX);
        // The pieces of a single writer follow each other anyway.
        self.sizes = match processes > 1 && records > 0 {
            true => Chunks { nodes: PAGE_BYTES, records },
            false => Chunks::default(),
        };
    }

    /// Returns the most bytes that inserts can take if their
    /// [`Memtable::bytes_needed`](super::Memtable::bytes_needed) add up to `sum`.
    pub fn bytes_needed(&self, sum: u64) -> u64 {
        // A chunk is at least half of its size long. A quarter of that may be left when a piece no
        // longer fits.
        let ahead = u64::from(self.sizes.nodes + self.sizes.records);
        if ahead == 0 { sum } else { sum + sum.div_ceil(3) + 2 * ahead }
    }
}

/// The places of a node and its record, and the free space after them.
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
        // Space too small for another chunk may be enough for the piece.
        place = find(Chunks::default());
    }
    place.ok_or(ArenaFull { needed: bytes_needed(key_len, rec_len) })
}

/// The free space while a place is searched in it.
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

/// Finds the place of a node at the start of `free`. Fields and links share a cache line if they
/// fit into one.
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
