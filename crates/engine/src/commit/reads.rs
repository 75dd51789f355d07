//! What one transaction has read: keys, prefixes and ranges that must not have changed when it
//! commits.
//!
//! # Layout
//! An entry is a closed range of one root; a point is a range of one key. The bytes of the bounds
//! are in one arena, so that a read costs no allocation. Reads append entries; `sort_and_join`
//! sorts them and joins those that overlap. Single rows of tables, possibly millions, are kept
//! apart (row_reads.rs).
//!
//! # Threads
//! Private to its transaction.
//!
//! # Invariants
//! - READS-1 (TXN-2, TXN-4) Whatever was added stays covered until `clear`. Joining neighbours and
//!   cutting long keys only widen.
//! - READS-2 The first `settled` entries are ascending and disjoint.
//! - READS-3 Memory is bounded: past the limit neighbours are joined until half of it is free, as
//!   far as a root has more than one entry.
//! - READS-4 A read for which there was no memory is not forgotten: the set is marked incomplete,
//!   and its transaction does not commit.

use std::cmp::Ordering;

use super::maximum::name_of;
use super::row_reads::RowReads;
use crate::error::{Error, Result};
use crate::ids::{CommitTs, Root};
use crate::memory;
use crate::memtable::{Hi, key_prefix};

/// Entries after which neighbours are joined.
pub const ENTRIES_MAX: usize = 64 * 1024;
/// Bytes of keys after which neighbours are joined.
pub const KEY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longer keys are remembered as the prefix of this length.
pub const KEY_LEN_MAX: usize = 1024;

/// A read whose content has changed since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedRead {
    /// The b-tree that was read.
    pub root: Root,
    /// The key that changed.
    pub key: Vec<u8>,
    /// The commit that changed it.
    pub ts: CommitTs,
    /// True if a range was read rather than one key.
    pub is_range: bool,
}

/// Place of a byte string in the arena.
#[derive(Clone, Copy, Debug)]
struct Span {
    at: u32,
    len: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// First eight bytes of the lower end: most comparisons end here.
    prefix: u64,
    root: Root,
    lo: Span,
    hi: Span,
    /// The upper end is the last key that starts with `hi`.
    hi_is_prefix: bool,
}

impl Entry {
    fn has_one_bound(&self) -> bool {
        self.lo.at == self.hi.at && self.lo.len == self.hi.len
    }

    fn is_point(&self) -> bool {
        self.has_one_bound() && !self.hi_is_prefix
    }
}

/// The reads of one transaction; see the module's text.
#[derive(Debug)]
pub struct ReadSet {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    settled: usize,
    /// A range, or the empty prefix, was added, or joining made one.
    has_range: bool,
    entries_max: usize,
    key_bytes_max: usize,
    /// Names of maxima that were looked for in all of a b-tree and not found.
    missing_names: Vec<(Root, Vec<u8>)>,
    rows: RowReads,
    /// READS-4
    is_incomplete: bool,
}

impl Default for ReadSet {
    fn default() -> ReadSet {
        ReadSet::new()
    }
}

impl ReadSet {
    /// Returns an empty read set.
    pub fn new() -> ReadSet {
        ReadSet::with_limits(ENTRIES_MAX, KEY_BYTES_MAX)
    }

    /// Returns an empty read set that joins neighbours past these limits.
    pub fn with_limits(entries_max: usize, key_bytes_max: usize) -> ReadSet {
        ReadSet {
            bytes: Vec::new(),
            entries: Vec::new(),
            settled: 0,
            has_range: false,
            entries_max,
            key_bytes_max,
            missing_names: Vec::new(),
            rows: RowReads::with_limit(entries_max),
            is_incomplete: false,
        }
    }

    /// Adds one key that was looked for, found or not.
    pub fn point(&mut self, root: Root, key: &[u8]) {
        match self.rows.add(root, key) {
            Ok(true) => return,
            Ok(false) => {}
            Err(_) => return self.is_incomplete = true,
        }
        if key.len() > KEY_LEN_MAX {
            return self.prefix(root, key);
        }
        self.push_one(root, key, false);
    }

    /// Adds all keys that start with `prefix`.
    pub fn prefix(&mut self, root: Root, prefix: &[u8]) {
        self.push_one(root, cut(prefix), true);
    }

    /// Adds all keys of the closed range; a bound of `None` is the end of the root.
    pub fn range(&mut self, root: Root, lo: Option<&[u8]>, hi: Option<Hi<'_>>) {
        let (lo, hi) = (lo.unwrap_or(b""), hi.unwrap_or(Hi::Prefix(b"")));
        if !hi.admits(lo) {
            // Reversed bounds: covering what lies between them is never too little.
            let (Hi::Key(end) | Hi::Prefix(end)) = hi;
            return self.range(root, Some(end), Some(Hi::Key(lo)));
        }
        let hi = match hi {
            Hi::Key(key) if key.len() <= KEY_LEN_MAX => hi,
            Hi::Key(key) | Hi::Prefix(key) => Hi::Prefix(cut(key)),
        };
        let (Hi::Key(hi_bytes) | Hi::Prefix(hi_bytes)) = hi;
        self.has_range = true;
        let (Ok(from), Ok(to)) = (self.store(cut(lo)), self.store(hi_bytes)) else {
            return self.is_incomplete = true;
        };
        self.push(Entry {
            prefix: key_prefix(lo),
            root,
            lo: from,
            hi: to,
            hi_is_prefix: matches!(hi, Hi::Prefix(_)),
        });
    }

    /// Adds the name of a maximum that was looked for in all of `root` and not found.
    ///
    /// # Errors
    /// `NoMemory`; nothing was noted.
    pub fn missing_name(&mut self, root: Root, name: &[u8]) -> Result<()> {
        if !self.missing_names.iter().any(|missing| (missing.0, &*missing.1) == (root, name)) {
            self.missing_names.try_reserve(1)?;
            self.missing_names.push((root, memory::copy(name)?));
        }
        Ok(())
    }

    /// Returns the b-trees in which a name was missing.
    pub fn roots_of_missing_names(&self) -> impl Iterator<Item = Root> {
        self.missing_names.iter().map(|missing| missing.0)
    }

    /// True if a record put into `root` may have a missing name. One written by hand may have any
    /// name.
    pub fn is_missing_name(&self, root: Root, rec: &[u8]) -> bool {
        self.missing_names
            .iter()
            .any(|(of, missing)| *of == root && name_of(rec).is_none_or(|name| name == missing))
    }

    /// True if nothing was read.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.missing_names.is_empty() && self.rows.is_empty()
    }

    /// True if there was no memory for a read (READS-4).
    pub fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// Number of entries held now.
    pub fn len(&self) -> usize {
        self.entries.len() + self.rows.len()
    }

    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<Entry>() + self.rows.bytes()
    }

    /// Forgets everything, but keeps the memory for the next transaction.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.settled = 0;
        self.has_range = false;
        self.missing_names.clear();
        self.rows.clear();
        self.is_incomplete = false;
    }

    /// True if a key is covered by anything that was read. Fast after `sort_and_join`.
    pub fn contains(&self, root: Root, key: &[u8]) -> bool {
        let covers = |entry: &Entry| {
            entry.root == root && self.lo(entry) <= key && self.hi(entry).admits(key)
        };
        let sorted = &self.entries[..self.settled];
        let after = sorted.partition_point(|entry| (entry.root, self.lo(entry)) <= (root, key));
        sorted[..after].last().is_some_and(covers)
            || self.entries[self.settled..].iter().any(covers)
            || self.rows.contains(root, key)
            || self.is_incomplete
    }

    /// True if anything of this root was read.
    pub fn has_root(&self, root: Root) -> bool {
        let sorted = &self.entries[..self.settled];
        let first = sorted.partition_point(|entry| entry.root < root);
        sorted.get(first).is_some_and(|entry| entry.root == root)
            || self.entries[self.settled..].iter().any(|entry| entry.root == root)
            || self.rows.has_root(root)
            || self.missing_names.iter().any(|missing| missing.0 == root)
            || self.is_incomplete
    }

    /// True if checking every read takes little: few entries, and no range among them.
    pub fn is_small(&self, entries_max: usize) -> bool {
        self.len() <= entries_max && !self.has_range && !self.rows.has_range()
    }

    /// Calls one of the functions for each read, until one returns a change. Returns the first
    /// changed key and the commit that changed it.
    ///
    /// # Errors
    /// `NoMemory` for sorting, or READS-4.
    pub fn first_conflict(
        &mut self,
        mut point_changed: impl FnMut(Root, &[u8]) -> Option<(Vec<u8>, CommitTs)>,
        mut range_changed: impl FnMut(
            Root,
            Option<&[u8]>,
            Option<Hi<'_>>,
        ) -> Option<(Vec<u8>, CommitTs)>,
    ) -> Result<Option<ChangedRead>> {
        self.sort_and_join()?;
        if self.is_incomplete {
            return Err(Error::NoMemory);
        }
        let row = self.rows.first_answer(&mut point_changed, &mut range_changed)?;
        if let Some((root, is_range, (key, ts))) = row {
            return Ok(Some(ChangedRead { root, key, ts, is_range }));
        }
        let first = self.entries.iter().find_map(|entry| {
            let (lo, hi) = (self.lo(entry), self.hi(entry));
            let is_range = hi != Hi::Key(lo);
            let changed = if is_range {
                range_changed(
                    entry.root,
                    (!lo.is_empty()).then_some(lo),
                    (hi != Hi::Prefix(b"")).then_some(hi),
                )
            } else {
                point_changed(entry.root, lo)
            };
            changed.map(|(key, ts)| ChangedRead { root: entry.root, key, ts, is_range })
        });
        Ok(first)
    }

    /// Sorts the entries and joins those that overlap.
    ///
    /// # Errors
    /// `NoMemory` for the sorting.
    pub fn sort_and_join(&mut self) -> Result<()> {
        if self.settled == self.entries.len() {
            return Ok(());
        }
        memory::expect::<Entry>(self.entries.len())?;
        let mut entries = std::mem::take(&mut self.entries);
        let start = |entry: &Entry| (entry.root, entry.prefix);
        // The settled entries are one ascending run, which this sort detects: only the later ones
        // are sorted.
        entries.sort_by(|a, b| start(a).cmp(&start(b)).then_with(|| self.lo(a).cmp(self.lo(b))));
        self.join(&mut entries, |set, last, next| {
            let is_apart = last.is_point() && last.prefix != next.prefix;
            !is_apart && set.hi(last).admits(set.lo(next))
        });
        self.entries = entries;
        self.settled = self.entries.len();
        Ok(())
    }

    /// Replaces runs of neighbours of one root by the range over them, where `joins` returns true.
    fn join(
        &self,
        entries: &mut Vec<Entry>,
        mut joins: impl FnMut(&ReadSet, &Entry, &Entry) -> bool,
    ) {
        entries.dedup_by(|next, last| {
            let joined = next.root == last.root && joins(self, last, next);
            if joined && cmp_hi(self.hi(next), self.hi(last)).is_gt() {
                (last.hi, last.hi_is_prefix) = (next.hi, next.hi_is_prefix);
            }
            joined
        });
    }

    fn push_one(&mut self, root: Root, key: &[u8], is_prefix: bool) {
        let prefix = key_prefix(key);
        if let Some(last) = self.entries.last()
            && last.prefix == prefix
        {
            let same = if is_prefix { Hi::Prefix(key) } else { Hi::Key(key) };
            if last.root == root && self.lo(last) == key && self.hi(last) == same {
                return;
            }
        }
        self.has_range |= is_prefix && key.is_empty();
        match self.store(key) {
            Ok(span) => {
                self.push(Entry { prefix, root, lo: span, hi: span, hi_is_prefix: is_prefix });
            }
            Err(_) => self.is_incomplete = true,
        }
    }

    fn store(&mut self, bytes: &[u8]) -> Result<Span> {
        let span = Span { at: self.bytes.len() as u32, len: bytes.len() as u32 };
        memory::append(&mut self.bytes, bytes)?;
        Ok(span)
    }

    fn push(&mut self, entry: Entry) {
        if self.entries.try_reserve(1).is_err() {
            self.is_incomplete = true;
            return;
        }
        self.entries.push(entry);
        let is_full =
            self.entries.len() > self.entries_max || self.bytes.len() > self.key_bytes_max;
        if is_full && self.shrink().is_err() {
            self.is_incomplete = true;
        }
    }

    /// READS-3: settles, then joins every second neighbour until half of the limit is free.
    fn shrink(&mut self) -> Result<()> {
        self.sort_and_join()?;
        self.compact_if_large()?;
        self.has_range = true;
        while self.entries.len() > self.entries_max / 2 || self.bytes.len() > self.key_bytes_max / 2
        {
            let before = self.entries.len();
            let mut entries = std::mem::take(&mut self.entries);
            let mut joined_before = true;
            self.join(&mut entries, |_, _, _| {
                joined_before = !joined_before;
                !joined_before
            });
            self.entries = entries;
            self.settled = self.entries.len();
            self.compact_if_large()?;
            if self.entries.len() == before {
                // One entry per root is left: if they exceed a limit, the limit is raised.
                self.entries_max = self.entries_max.max(before * 2);
                self.key_bytes_max = self.key_bytes_max.max(self.bytes.len() * 2);
            }
        }
        Ok(())
    }

    /// Drops bytes that no entry needs, if they may be many.
    fn compact_if_large(&mut self) -> Result<()> {
        if self.bytes.len() <= self.key_bytes_max / 2 {
            return Ok(());
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(self.bytes.len())?;
        for entry in &mut self.entries {
            let shared = entry.has_one_bound();
            entry.lo = copy_span(&mut bytes, &self.bytes, entry.lo);
            entry.hi = if shared { entry.lo } else { copy_span(&mut bytes, &self.bytes, entry.hi) };
        }
        self.bytes = bytes;
        Ok(())
    }

    fn span(&self, span: Span) -> &[u8] {
        &self.bytes[span.at as usize..][..span.len as usize]
    }

    fn lo(&self, entry: &Entry) -> &[u8] {
        self.span(entry.lo)
    }

    fn hi(&self, entry: &Entry) -> Hi<'_> {
        let bytes = self.span(entry.hi);
        if entry.hi_is_prefix { Hi::Prefix(bytes) } else { Hi::Key(bytes) }
    }
}

fn cut(key: &[u8]) -> &[u8] {
    &key[..key.len().min(KEY_LEN_MAX)]
}

fn copy_span(to: &mut Vec<u8>, from: &[u8], span: Span) -> Span {
    let at = to.len() as u32;
    to.extend_from_slice(&from[span.at as usize..][..span.len as usize]);
    Span { at, len: span.len }
}

/// Orders upper ends by the keys that they admit.
fn cmp_hi(a: Hi<'_>, b: Hi<'_>) -> Ordering {
    match (a, b) {
        (Hi::Key(a), Hi::Key(b)) => a.cmp(b),
        (Hi::Key(a), Hi::Prefix(b)) => {
            if a.starts_with(b) {
                Ordering::Less
            } else {
                a.cmp(b)
            }
        }
        (Hi::Prefix(_), Hi::Key(_)) => cmp_hi(b, a).reverse(),
        (Hi::Prefix(a), Hi::Prefix(b)) if a.starts_with(b) => b.len().cmp(&a.len()),
        (Hi::Prefix(a), Hi::Prefix(b)) if b.starts_with(a) => Ordering::Greater,
        (Hi::Prefix(a), Hi::Prefix(b)) => a.cmp(b),
    }
}

#[cfg(test)]
#[path = "reads_tests.rs"]
mod tests;
