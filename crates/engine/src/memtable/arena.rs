//! Bounds-checked access to a memtable's region: the only unsafe code of the memtable.
//!
//! Every offset that comes out of shared memory passes `checked_node` before it is used. A value that cannot be
//! right panics with "memtable damaged"; whoever called the engine turns that into a poisoned database.
//! Links are atomics. Everything else of a node is written once, before the Release store that links it, and
//! read only behind an Acquire load of a link: so plain reads of it race with nothing.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use super::atomics::{AtomicU32, AtomicU64, Ordering};
use super::layout::{
    FIELDS_BYTES, HEIGHT_MAX, Header, LINE_BYTES, LINK_BYTES, MAGIC, NODE_HEAD_BYTES_MAX,
    NodeFields, REC_AT_BYTES, SHORTCUTS, WORD_BYTES, filter_at, filter_words, first_node,
    shortcut_count,
};

/// A region of shared memory laid out as `layout` says.
#[derive(Clone, Copy)]
pub(super) struct Arena {
    base: NonNull<u8>,
    len: u32,
    first_node: u32,
}

// SAFETY: the region stays mapped while the view is in use (contract of `Arena::new`), and what several threads
// may touch at once is atomic or immutable (module text).
unsafe impl Send for Arena {}
// SAFETY: as for Send; no method hands out exclusive access.
unsafe impl Sync for Arena {}

impl Arena {
    /// # Safety
    /// `base` points to `len` initialised bytes that stay mapped, readable and writable, as long as this view, a
    /// copy of it or anything borrowed from one is in use, and that nobody touches but through an `Arena`.
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
        // SAFETY: `new` checked that the region is aligned and longer than a header; all that is ever written
        // in it after `format` is atomic.
        unsafe { self.base.cast::<Header>().as_ref() }
    }

    /// Whether `offset` can be a node's: aligned, behind the header, its head inside the region.
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
        // SAFETY: in bounds and 8-aligned; every bit pattern is a valid `NodeFields`; immutable once linked.
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
        // SAFETY: in bounds and 4-aligned. If the node is lower than `level` (damage only) these are bytes
        // of a key, which nobody writes any more.
        unsafe { link.as_ref() }
    }

    /// How many bytes of the region shortcuts and filter serve now.
    #[inline]
    pub(super) fn covers(&self) -> u32 {
        // Acquire pairs with the Release in `widen`: what is in use of both is filled in.
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

    /// The words of the filter that serve so many bytes.
    pub(super) fn filter(&self, covers: u32) -> impl Iterator<Item = &AtomicU64> {
        (0..filter_words(covers.min(self.len))).map(|i| self.filter_word_at(i))
    }

    /// Formatted to serve so many bytes, and nothing inserted since: all shortcuts and words are 0 (an insert takes its space before it sets one).
    pub(super) fn is_clean(&self, covers: u32) -> bool {
        let header = self.header();
        // Relaxed: the caller has the region to itself.
        header.magic.load(Ordering::Relaxed) == MAGIC
            && header.len.load(Ordering::Relaxed) == self.len
            && header.covers.load(Ordering::Relaxed) == covers
            && header.nodes_end.load(Ordering::Relaxed) == self.first_node
            && header.records_start.load(Ordering::Relaxed) == self.len
    }

    /// The shortcuts that serve so many bytes.
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

    /// Tells the processor that the node at `offset`, if it is one, will be read soon.
    #[inline]
    pub(super) fn fetch(&self, offset: u32) {
        if self.is_node_offset(offset) {
            self.fetch_line(offset);
            // Its key mostly lies in the line behind.
            self.fetch_line(offset + LINE_BYTES);
        }
    }

    /// The same of the record of a node.
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
            // SAFETY: a hint; it reads nothing that the program could notice.
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

    /// Both, for the price of one and a half.
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
        // Already so by the callers; checked again here so that the proof below needs nothing from afar.
        assert!(self.is_inside(at, len));
        // SAFETY: `at` is inside the region.
        let start = unsafe { self.base.add(at as usize) };
        // SAFETY: in bounds and initialised; key and record of a linked node are immutable.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), len as usize) }
    }

    /// Writes a node and its record that nobody can reach yet.
    ///
    /// # Safety
    /// The caller is the only writer, and no link leads to a node that shares bytes with this one or its record.
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
        // SAFETY: in bounds and unreachable (contract), so `bytes`, which somebody can reach, lie elsewhere.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }
}

/// What a node carries.
pub(super) struct Payload<'a> {
    pub(super) key: &'a [u8],
    pub(super) rec: &'a [u8],
    /// Where the record goes.
    pub(super) rec_at: u32,
}

/// Reports shared memory that cannot be right.
#[cold]
#[inline(never)]
pub(super) fn damaged(what: &str, offset: u32) -> ! {
    panic!("memtable damaged: {what} (offset {offset})")
}
