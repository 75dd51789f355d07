//! Memory for the memtable's tests.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc};

use super::Memtable;
use super::layout::LINE_BYTES;

/// A region as `mmap` would give it, filled with garbage first.
pub(super) struct Region {
    base: *mut u8,
    len: u32,
}

impl Region {
    pub(super) fn new(len: u32) -> Region {
        let layout = Region::layout(len);
        // SAFETY: the layout is not empty.
        let base = unsafe { alloc(layout) };
        assert!(!base.is_null());
        // SAFETY: `len` bytes were just allocated.
        unsafe { base.write_bytes(0xa5, len as usize) };
        Region { base, len }
    }

    /// Empties the region.
    pub(super) fn format(&mut self) -> Memtable {
        // SAFETY: aligned, initialised; tests keep the region alive and use no older node
        // afterwards.
        unsafe { Memtable::format(self.base, self.len, self.len) }
    }

    /// Empties the region; at first `reach` bytes are to be used at both ends.
    pub(super) fn format_to(&mut self, reach: u32) -> Memtable {
        // SAFETY: as in `format`.
        unsafe { Memtable::format(self.base, self.len, reach) }
    }

    /// Another view, as another process would have.
    pub(super) fn attach(&self) -> Memtable {
        // SAFETY: aligned, initialised; tests keep the region alive.
        unsafe { Memtable::attach(self.base, self.len) }
    }

    /// Overwrites four bytes, as damage would.
    pub(super) fn damage(&mut self, offset: u32, value: u32) {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len);
        // SAFETY: inside the region.
        let at = unsafe { self.base.add(offset as usize) }.cast::<u32>();
        // SAFETY: in bounds and aligned; no other view is in use.
        unsafe { at.write(value) };
    }

    fn layout(len: u32) -> Layout {
        Layout::from_size_align(len as usize, LINE_BYTES as usize).expect("layout")
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout.
        unsafe { dealloc(self.base, Region::layout(self.len)) };
    }
}
