//! Committed rows that are not in the base yet: a skiplist in shared memory.
//!
//! # Purpose
//! A memtable maps (root, key, commit timestamp descending) to a record or a tombstone. It is in a
//! region that the caller owns and that processes map at different addresses, so it holds offsets,
//! never pointers (`layout`). Nodes are only added; `format` empties the whole region at once.
//!
//! # Threads and processes
//! One writer at a time: the caller holds the commit mutex. Any number of readers, in any process,
//! take no lock and never wait. The writer may be killed after any instruction; its successor
//! repeats the insert, which does nothing if the node is linked. A region may be formatted only
//! when no reader can be in it (SNAP-3).
//!
//! # Invariants, checked by [`Memtable::check`]
//! - MEM-1 Level 0 is strictly ordered: root ascending, key ascending (memcmp, shorter first),
//!   timestamp descending.
//! - MEM-2 A linked node and its record are complete and immutable; the node is before the free
//!   space, the record behind it.
//! - MEM-3 Each upper level is a part of the level below. It may lack nodes of its height, which a
//!   kill may have lost.
//! - MEM-4 A node is in the memtable if and only if level 0 links it: that one Release store is the
//!   insert.
//! - MEM-5 The filters of roots and keys, newest timestamp and node count are raised before the
//!   link: they may say too much, never too little.
//! - MEM-6 A shortcut is 0, or leads to a linked node of one of its keys, or of a key that shared
//!   it when there were fewer (list.rs `widen`). Once an insert or its repetition has returned, the
//!   shortcut of its key is not 0; if it leads to that key, it leads to the newest version.
//!
//! A reader that got its snapshot after the writer published it sees every node up to that
//! timestamp, and skips the newer ones that it may meet.
//!
//! # Deliberately absent
//! Removal, backward links (a walk back is made of short walks forward, see `keys_before`), and any
//! knowledge of what keys mean.

mod arena;
mod atomics;
mod check;
mod layout;
mod list;
mod newest;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod link_model;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod reader_tests;
#[cfg(test)]
mod space_tests;
#[cfg(test)]
mod test_region;

use std::cmp::Ordering as Order;
use std::fmt;
use std::ops::{ControlFlow, Range};

pub use self::arena::Share;
use self::arena::{Arena, damaged};
use self::atomics::Ordering;
pub(crate) use self::layout::key_prefix;
use self::layout::{HEAD, MAGIC, root_bit};
pub use self::list::Inserter;
use self::list::Way;
use self::list::{Target, find, find_above, next_of};
pub use self::newest::newest_of;
use crate::ids::{CommitTs, Root, SnapshotTs};

/// The state of a key in one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EntryKind {
    /// The key has this record.
    Put = 0,
    /// The key is deleted; the record, if any, is the deleted one.
    Tombstone = 1,
}

/// The region has no room for a node: freeze it and continue in the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("memtable is full: no room for {needed} more bytes")]
pub struct ArenaFull {
    /// Most bytes that the insert could have taken.
    pub needed: u32,
}

/// A place among the keys of one root, and the direction in which to look from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek<'a> {
    /// The first key.
    First,
    /// The first key that is this one or greater.
    Ge(&'a [u8]),
    /// The first greater key.
    Gt(&'a [u8]),
    /// The first key greater than all that start with this prefix.
    PrefixGt(&'a [u8]),
    /// The last key.
    Last,
    /// The last key that is this one or less.
    Le(&'a [u8]),
    /// The last lesser key.
    Lt(&'a [u8]),
    /// The last key that starts with this prefix or is less.
    PrefixLe(&'a [u8]),
}

/// The inclusive upper end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hi<'a> {
    /// Up to this key.
    Key(&'a [u8]),
    /// Up to the last key that starts with this prefix.
    Prefix(&'a [u8]),
}

impl Hi<'_> {
    /// True if `key` is at or below this end.
    pub fn admits(&self, key: &[u8]) -> bool {
        match self {
            Hi::Key(hi) => key <= *hi,
            Hi::Prefix(hi) => key <= *hi || key.starts_with(hi),
        }
    }
}

/// A view of a memtable's region. Copies are views of the same memtable.
#[derive(Clone, Copy)]
pub struct Memtable {
    arena: Arena,
}

/// One version of one key, alive as long as the region is not formatted again.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    arena: &'a Arena,
    offset: u32,
}

/// Steps over unwanted versions after which a search is faster.
const STEPS_BEFORE_SEARCH: u32 = 8;

impl Memtable {
    /// Bytes at either end that every memtable may use at once, with the shortcuts and filter for
    /// them.
    pub const FIRST_REACH: u32 = layout::FIRST_REACH;

    /// Makes the region an empty memtable that at first uses `reach` bytes at either end
    /// ([`Memtable::widen`]). Writes only header, shortcuts and filter, whatever the region held,
    /// and the header alone if nothing was inserted since the last format.
    ///
    /// # Safety
    /// As for [`Memtable::attach`]; moreover no thread uses the region during this call, and no
    /// node of its former content is used after it.
    ///
    /// # Panics
    /// When `base` is not aligned to 64 bytes or `len` is too small for one node.
    #[allow(unsafe_code)]
    pub unsafe fn format(base: *mut u8, len: u32, reach: u32) -> Memtable {
        // SAFETY: forwarded contract.
        let arena = unsafe { Arena::new(base, len) };
        let header = arena.header();
        let covers = layout::covers(reach.max(Memtable::FIRST_REACH), len);
        // Relaxed throughout: no reader looks before the caller publishes the region.
        let is_clean = arena.is_clean(covers);
        // Release, here and at the end: a format that was killed in between leaves a region that is
        // not clean.
        header.magic.store(0, Ordering::Release);
        for link in header.head_links.iter().chain(&header.hint) {
            link.store(0, Ordering::Relaxed);
        }
        if !is_clean {
            for shortcut in arena.shortcuts(covers) {
                shortcut.store(0, Ordering::Relaxed);
            }
            for word in arena.filter(covers) {
                word.store(0, Ordering::Relaxed);
            }
        }
        for word in &header.roots {
            word.store(0, Ordering::Relaxed);
        }
        header.hint_valid.store(0, Ordering::Relaxed);
        header.node_count.store(0, Ordering::Relaxed);
        header.height.store(1, Ordering::Relaxed);
        header.ts_max.store(0, Ordering::Relaxed);
        header.nodes_end.store(arena.first_node(), Ordering::Relaxed);
        header.records_start.store(len, Ordering::Relaxed);
        header.len.store(len, Ordering::Relaxed);
        header.covers.store(covers, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Memtable { arena }
    }

    /// Returns a view of a region that was formatted, here or in another process.
    ///
    /// # Safety
    /// `base` points to `len` initialised bytes that stay mapped, readable and writable, as long as
    /// this view, a copy of it or anything borrowed from one is in use; only memtable code touches
    /// them.
    ///
    /// # Panics
    /// When `base` is not aligned to 64 bytes or `len` is too small for one node.
    #[allow(unsafe_code)]
    #[inline(always)]
    pub unsafe fn attach(base: *mut u8, len: u32) -> Memtable {
        // SAFETY: forwarded contract.
        let arena = unsafe { Arena::new(base, len) };
        Memtable { arena }
    }

    /// Bytes allocated, the header's included.
    pub fn used_bytes(&self) -> u32 {
        // Relaxed: a writer under the commit mutex reads its own or its predecessor's values; for
        // others this is a gauge.
        let header = self.arena.header();
        let free =
            header.records_start.load(Ordering::Relaxed) - header.nodes_end.load(Ordering::Relaxed);
        self.arena.len() - free
    }

    /// Returns the free space: nodes are before it, records behind it.
    pub fn free_space(&self) -> Range<u32> {
        // Relaxed: as in `used_bytes`.
        let header = self.arena.header();
        header.nodes_end.load(Ordering::Relaxed)..header.records_start.load(Ordering::Relaxed)
    }

    /// Bytes that nodes take.
    pub fn node_bytes(&self) -> u32 {
        self.used_bytes().saturating_sub(self.arena.first_node())
    }

    /// Bytes at the start of a region that [`Memtable::node_bytes_in`] reads.
    pub const HEADER_BYTES: usize = layout::HEADER_BYTES;

    /// As [`Memtable::node_bytes`] of a region of `len` bytes, for a reader outside that has copied
    /// its header; 0 unless a region of that length was formatted there.
    pub fn node_bytes_in(header: &[u8; Memtable::HEADER_BYTES], len: u32) -> u32 {
        layout::used_bytes_in(header, len)
    }

    /// Returns the offset of the first node in a region of `len` bytes.
    pub fn first_node(len: u32) -> u32 {
        layout::first_node(len)
    }

    /// Returns how far nodes reach from the first one, or records from the end of the region,
    /// whichever is more, when inserts have taken `bytes` more.
    pub fn reach_with(&self, bytes: u64) -> u64 {
        // Relaxed: as in `used_bytes`.
        let header = self.arena.header();
        let nodes =
            header.nodes_end.load(Ordering::Relaxed).saturating_sub(self.arena.first_node());
        let records = self.arena.len().saturating_sub(header.records_start.load(Ordering::Relaxed));
        u64::from(nodes.max(records)) + bytes
    }

    /// Makes shortcuts and filter serve `reach` bytes at either end, which may be used from now on.
    /// The caller is the only writer. Does nothing if they already do.
    pub fn widen(&self, reach: u32) {
        let covers = layout::covers(reach, self.arena.len());
        if covers > self.arena.covers() {
            list::widen(&self.arena, covers);
        }
    }

    /// Returns the parts of a region of `len` bytes that are touched while at most `reach` bytes
    /// are used at either end.
    pub fn parts(len: u32, reach: u32) -> [Range<u32>; 4] {
        let first_node = layout::first_node(len);
        let covers = layout::covers(reach, len);
        let filter = layout::filter_at(len);
        let nodes_end = first_node.saturating_add(reach).min(len);
        [
            0..layout::SHORTCUTS + layout::shortcut_count(covers) * layout::LINK_BYTES,
            filter..filter + layout::filter_words(covers) * layout::WORD_BYTES,
            first_node..nodes_end,
            len - reach.min(len - nodes_end)..len,
        ]
    }

    /// Bytes of the whole region.
    pub fn capacity_bytes(&self) -> u32 {
        self.arena.len()
    }

    /// True if no node is linked.
    pub fn is_empty(&self) -> bool {
        next_of(&self.arena, HEAD, 0) == 0
    }

    /// Returns the number of nodes, all versions counted, perhaps with one that a killed insert did
    /// not link.
    pub fn node_count(&self) -> u32 {
        // Relaxed: a gauge.
        self.arena.header().node_count.load(Ordering::Relaxed)
    }

    /// Returns the most bytes that one insert can take: it succeeds when
    /// `capacity_bytes - used_bytes` is not less.
    pub fn bytes_needed(key_len: usize, rec_len: usize) -> u32 {
        list::bytes_needed(key_len, rec_len)
    }

    /// Adds a version of a key. Does nothing when (root, key, ts) is there already.
    ///
    /// The caller is the only writer (it holds the commit mutex). Ascending keys are the fastest.
    pub fn insert(
        &self,
        root: Root,
        key: &[u8],
        ts: CommitTs,
        kind: EntryKind,
        rec: &[u8],
    ) -> Result<(), ArenaFull> {
        let version = list::Version { root, key, ts, kind, rec };
        let go_on = |_| ControlFlow::Continue(());
        list::insert(&self.arena, &mut Share::default(), &version, go_on)
    }

    /// Adds versions one after the other, into the share of the process if they fit.
    ///
    /// The caller is the only writer as long as the inserter lives.
    pub fn inserter<'a>(&'a self, share: &'a mut Share) -> Inserter<'a> {
        Inserter::new(&self.arena, share)
    }

    /// Returns the newest version of a key that the snapshot sees.
    pub fn get(&self, root: Root, key: &[u8], at: SnapshotTs) -> Option<Node<'_>> {
        if let Way::To(offset) = list::look_up(&self.arena, root, key, at) {
            return self.node(offset);
        }
        let (_, next) = find(&self.arena, &Target::version(root, key, at.get()));
        self.node(next).filter(|node| node.is_of(root, key))
    }

    /// Returns the timestamp of the newest version of a key.
    pub fn newest_ts(&self, root: Root, key: &[u8]) -> Option<CommitTs> {
        self.get(root, key, SnapshotTs::MAX).map(|node| node.ts())
    }

    /// Returns the newest timestamp of any version, perhaps a killed insert's.
    pub fn ts_max(&self) -> CommitTs {
        // Relaxed: a reader that must not miss a commit has synchronised with its writer already.
        CommitTs::new(self.arena.header().ts_max.load(Ordering::Relaxed))
    }

    /// Returns the newest visible version of the nearest key, in the direction of `seek`, that has
    /// one.
    pub fn seek(&self, root: Root, seek: Seek<'_>, at: SnapshotTs) -> Option<Node<'_>> {
        match seek {
            Seek::First => self.forward(&Target::version(root, b"", at.get()), root, at),
            Seek::Ge(key) => self.forward(&Target::version(root, key, at.get()), root, at),
            Seek::Gt(key) => self.forward(&Target::after_key(root, key), root, at),
            Seek::PrefixGt(prefix) => self.forward(&Target::after_prefix(root, prefix), root, at),
            Seek::Last => self.backward(&Target::after_prefix(root, b""), root, at),
            Seek::Le(key) => self.backward(&Target::after_key(root, key), root, at),
            Seek::Lt(key) => self.backward(&Target::version(root, key, u64::MAX), root, at),
            Seek::PrefixLe(prefix) => self.backward(&Target::after_prefix(root, prefix), root, at),
        }
    }

    /// Returns the newest visible version of the next key of the same root that has one.
    pub fn next_key(&self, node: &Node<'_>, at: SnapshotTs) -> Option<Node<'_>> {
        let mut next = self.node(next_of(&self.arena, node.offset, 0))?;
        let (from, to) = (self.arena.fields(node.offset), self.arena.fields(next.offset));
        // Mostly `next` is the only version of the next key, and the prefixes show it.
        let is_it = from.root == to.root && from.prefix < to.prefix && at.sees(next.ts());
        if !is_it {
            next = self.node(self.skip_versions(node.offset))?;
            next = self.visible_from(next, node.root(), at)?;
        }
        self.look_ahead(&next);
        Some(next)
    }

    /// Prefetches what a walk reads after a node: neighbours in the list are anywhere in memory.
    fn look_ahead(&self, node: &Node<'_>) {
        let next = next_of(&self.arena, node.offset, 0);
        if next != 0 {
            // The step to `node` fetched it, but not its record, nor the node behind it.
            self.arena.fetch_record(next);
            self.arena.fetch(next_of(&self.arena, next, 0));
        }
    }

    /// Appends the nearest keys before that of a node, of its root, ascending: for each the newest
    /// version that the snapshot sees. At least one if there is one.
    pub fn keys_before(&self, node: &Node<'_>, at: SnapshotTs, to: &mut Vec<u32>) {
        let root = node.root();
        let end = Target::version(root, node.key(), u64::MAX);
        let above = find_above(&self.arena, &end);
        let above = self.node(above).filter(|n| n.offset != HEAD && n.root() == root);
        let mut next = match &above {
            Some(above) => self.next_key(above, at),
            None => self.forward(&Target::version(root, b"", at.get()), root, at),
        };
        while let Some(before) = next.filter(|n| end.is_after(&self.arena, n.offset)) {
            to.push(before.offset);
            next = self.next_key(&before, at);
        }
        if to.is_empty() && above.is_some() {
            to.extend(self.backward(&end, root, at).map(|n| n.offset));
        }
    }

    /// Returns some version newer than `since` of a key in the closed range; `None` as a bound is
    /// the end of the root. Each key that is passed takes one of `steps`. If `steps` is 0
    /// afterwards, `None` says nothing.
    pub fn range_newer_than(
        &self,
        root: Root,
        lo: Option<&[u8]>,
        hi: Option<Hi<'_>>,
        since: SnapshotTs,
        steps: &mut usize,
    ) -> Option<Node<'_>> {
        if since.sees(self.ts_max()) || !self.may_hold_root(root) {
            return None;
        }
        let (_, first) = find(&self.arena, &Target::version(root, lo.unwrap_or(b""), u64::MAX));
        let mut node = self.node(first)?;
        loop {
            if node.root() != root || hi.is_some_and(|hi| !hi.admits(node.key())) {
                return None;
            }
            if !since.sees(node.ts()) {
                return Some(node);
            }
            *steps = steps.checked_sub(1)?;
            // The newest version of a key comes first: the others are older.
            node = self.node(self.skip_versions(node.offset))?;
        }
    }

    /// Visits each key of a root that has a version newer than `since`, at its newest version,
    /// until `visit` returns false.
    pub fn each_newer_than(
        &self,
        root: Root,
        since: SnapshotTs,
        mut visit: impl FnMut(&Node<'_>) -> bool,
    ) {
        let mut from = Vec::new();
        while let Some(node) =
            self.range_newer_than(root, Some(&from), None, since, &mut { usize::MAX })
        {
            if !visit(&node) {
                return;
            }
            // The smallest greater key.
            from = [node.key(), &[0]].concat();
        }
    }

    /// False when the root has no node; true says little.
    pub fn may_hold_root(&self, root: Root) -> bool {
        let (word, bit) = root_bit(root.get());
        // Relaxed: raised before the link (MEM-5), and a reader that must see a node has
        // synchronised with its writer.
        self.arena.header().roots[word].load(Ordering::Relaxed) & bit != 0
    }

    /// Iterates over the newest version of every key of every root, in order.
    pub fn iter_newest(&self) -> impl Iterator<Item = Node<'_>> {
        let first = self.node(next_of(&self.arena, HEAD, 0));
        std::iter::successors(first, |node| self.node(self.skip_versions(node.offset)))
    }

    /// Returns the node at an offset that [`Node::offset`] gave.
    ///
    /// # Panics
    /// When no node can be there.
    pub fn node_at(&self, offset: u32) -> Node<'_> {
        if !self.arena.is_node_offset(offset) {
            damaged("no node can be there", offset);
        }
        Node { arena: &self.arena, offset }
    }

    /// Checks the invariants MEM-1 to MEM-6 by walking everything; no insert may run at the same
    /// time.
    pub fn check(&self) -> Result<(), String> {
        check::check(&self.arena)
    }

    fn node(&self, offset: u32) -> Option<Node<'_>> {
        (offset != 0).then_some(Node { arena: &self.arena, offset })
    }

    /// Returns the offset of the first node of the key after the one at `offset`; 0 at the end.
    fn skip_versions(&self, offset: u32) -> u32 {
        let from = Node { arena: &self.arena, offset };
        let mut at = offset;
        for _ in 0..STEPS_BEFORE_SEARCH {
            let next = next_of(&self.arena, at, 0);
            if next == 0 {
                return 0;
            }
            match from.cmp_key(&Node { arena: &self.arena, offset: next }) {
                Order::Less => return next,
                Order::Equal => at = next,
                Order::Greater => damaged("keys are out of order", next),
            }
        }
        find(&self.arena, &Target::after_key(from.root(), from.key())).1
    }

    fn forward(&self, target: &Target<'_>, root: Root, at: SnapshotTs) -> Option<Node<'_>> {
        let (_, next) = find(&self.arena, target);
        self.visible_from(self.node(next)?, root, at)
    }

    /// Returns the first node from `node` on that the snapshot sees, in `root`. The nodes before
    /// `node` are of other keys or not seen, so the first seen is the newest of its key.
    fn visible_from<'a>(
        &'a self,
        mut node: Node<'a>,
        root: Root,
        at: SnapshotTs,
    ) -> Option<Node<'a>> {
        let mut steps = 0;
        loop {
            if node.root() != root {
                return None;
            }
            if at.sees(node.ts()) {
                return Some(node);
            }
            steps += 1;
            let next = if steps < STEPS_BEFORE_SEARCH {
                next_of(&self.arena, node.offset, 0)
            } else {
                steps = 0;
                find(&self.arena, &Target::version(root, node.key(), at.get())).1
            };
            let next = self.node(next)?;
            if node.cmp_node(&next).is_ge() {
                damaged("nodes are out of order", next.offset);
            }
            node = next;
        }
    }

    fn backward(&self, target: &Target<'_>, root: Root, at: SnapshotTs) -> Option<Node<'_>> {
        let (mut prev, _) = find(&self.arena, target);
        loop {
            if prev == HEAD {
                return None;
            }
            // The oldest version of its key. Nodes that a writer has added behind it since are not
            // seen.
            let oldest = Node { arena: &self.arena, offset: prev };
            if oldest.root() != root {
                return None;
            }
            if at.sees(oldest.ts()) {
                return self.get(root, oldest.key(), at);
            }
            prev = find(&self.arena, &Target::version(root, oldest.key(), u64::MAX)).0;
            if prev != HEAD && (Node { arena: &self.arena, offset: prev }).cmp_key(&oldest).is_ge()
            {
                damaged("keys are out of order", prev);
            }
        }
    }
}

impl fmt::Debug for Memtable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nodes, used, len) = (self.node_count(), self.used_bytes(), self.arena.len());
        write!(f, "Memtable({nodes} nodes, {used} of {len} bytes)")
    }
}

impl<'a> Node<'a> {
    /// The b-tree that the key belongs to.
    pub fn root(&self) -> Root {
        Root::new(self.arena.fields(self.offset).root)
    }

    /// The encoded key.
    pub fn key(&self) -> &'a [u8] {
        self.arena.key(self.offset)
    }

    /// Key and record.
    pub fn key_and_rec(&self) -> (&'a [u8], &'a [u8]) {
        self.arena.key_and_rec(self.offset)
    }

    /// The record: of a tombstone, the deleted one if it is known.
    pub fn rec(&self) -> &'a [u8] {
        self.arena.rec(self.offset)
    }

    /// The commit that wrote this version.
    pub fn ts(&self) -> CommitTs {
        CommitTs::new(self.arena.fields(self.offset).ts)
    }

    /// Returns whether this is a record or a tombstone.
    pub fn kind(&self) -> EntryKind {
        match self.arena.fields(self.offset).kind {
            0 => EntryKind::Put,
            1 => EntryKind::Tombstone,
            _ => damaged("unknown kind of node", self.offset),
        }
    }

    /// Returns the position of the node, for [`Memtable::node_at`].
    pub fn offset(&self) -> u32 {
        self.offset
    }

    /// True if this is a version of the key.
    fn is_of(&self, root: Root, key: &[u8]) -> bool {
        let fields = self.arena.fields(self.offset);
        fields.root == root.get() && fields.prefix == key_prefix(key) && self.key() == key
    }

    fn cmp_key(&self, other: &Node<'_>) -> Order {
        let (a, b) = (self.arena.fields(self.offset), other.arena.fields(other.offset));
        let order = a.root.cmp(&b.root).then(a.prefix.cmp(&b.prefix));
        order.then_with(|| match a.key_len <= 8 && b.key_len <= 8 {
            true => a.key_len.cmp(&b.key_len),
            false => self.key().cmp(other.key()),
        })
    }

    fn cmp_node(&self, other: &Node<'_>) -> Order {
        self.cmp_key(other).then_with(|| other.ts().cmp(&self.ts()))
    }
}

impl fmt::Debug for Node<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:02x?} {:?} {:?}", self.root(), self.key(), self.ts(), self.kind())
    }
}
