//! What one transaction has written; no other transaction can see it yet.
//!
//! # Layout
//! Per root the newest own write of each key, in order (write_map.rs), and an undo log with what
//! each key held when the open savepoints were opened. The bytes of a write stay in place until
//! that very write is changed or taken back.
//!
//! # Threads
//! Private to its transaction.
//!
//! # Memory
//! A connection has one write set, and its transactions are mostly alike. What a small one has
//! allocated serves the next.
//!
//! # Invariants
//! - WRITES-1 Without open savepoints the undo log is empty; with them it has at most one entry per
//!   key and savepoint.
//! - WRITES-2 `frame_bytes` is the sum of `op_frame_bytes` over all writes.
//! - WRITES-3 `root_version` of a root never returns to an earlier value.
//! - WRITES-4 `taken_back` changes whenever a write was taken back or forgotten.
//! - WRITES-5 A write whose row finds no memory changes nothing. The few bytes that lead to a row
//!   are allocated as everywhere in Rust: without them the process ends (memory.rs).
//! - WRITES-6 A statement's savepoint has no number, and is not replayed. Its statement alone
//!   closes it, perhaps before one that began later. When savepoints below it are closed it stays;
//!   when they are taken back it leads to what is left then.
//!
//! # Deliberately absent
//! Limits: the caller compares `frame_bytes` with the memory budget.

use std::collections::BTreeMap;

pub use super::write_map::Write;
use super::write_map::{Buffers, Place, WriteMap};
use crate::database::gaps::Puts;
use crate::error::Result;
use crate::ids::Root;
use crate::memory;
use crate::memtable::Seek;

/// Bytes that an operation takes in a log frame besides its key and record.
pub const OP_HEADER_BYTES: usize = 16;

/// Returns the bytes that an operation takes in a log frame.
pub const fn op_frame_bytes(key_len: usize, rec_len: usize) -> usize {
    (OP_HEADER_BYTES + key_len + rec_len).next_multiple_of(8)
}

/// What a write does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteKind {
    /// The key gets this record.
    Put,
    /// The key is deleted; the record, if any, is the deleted one.
    Tombstone,
    /// The key gets this record, but its last eight bytes, a big-endian signed integer, become the
    /// maximum of the committed ones and its own.
    PutMax,
}

/// A step of [`WriteSet::replay`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Open savepoints until this many are open (1 for the first).
    Savepoint(usize),
    /// Make this write.
    Write(Root, &'a [u8], &'a Write),
}

#[derive(Debug)]
struct RootWrites {
    root: Root,
    version: u64,
    writes: WriteMap,
}

/// What a key held before a write.
#[derive(Debug)]
struct Undo {
    root: Root,
    held: Held,
}

#[derive(Debug)]
enum Held {
    /// This write.
    Write(Write),
    /// Nothing. Most keys are short, and each row of a statement has an entry.
    Nothing { short: [u8; Held::SHORT_MAX], len: u8 },
    /// Nothing, and the key is long.
    NothingLong(Box<[u8]>),
}

impl Held {
    const SHORT_MAX: usize = 38;

    fn nothing(key: &[u8]) -> Result<Held> {
        if key.len() > Held::SHORT_MAX {
            return Ok(Held::NothingLong(memory::copy(key)?.into_boxed_slice()));
        }
        let mut short = [0; Held::SHORT_MAX];
        short[..key.len()].copy_from_slice(key);
        Ok(Held::Nothing { short, len: key.len() as u8 })
    }

    fn write(&self) -> Option<&Write> {
        match self {
            Held::Write(write) => Some(write),
            _ => None,
        }
    }
}

impl Undo {
    fn key(&self) -> &[u8] {
        match &self.held {
            Held::Write(write) => write.key(),
            Held::Nothing { short, len } => &short[..usize::from(*len)],
            Held::NothingLong(key) => key,
        }
    }
}

/// Where a walk is on an own write; valid while the root has the same version.
#[derive(Clone, Copy, Debug)]
pub struct OwnPlace(Place);

/// Names a statement, uniquely in the life of its connection.
pub type StatementId = u64;

#[derive(Clone, Copy, Debug)]
struct Savepoint {
    /// The statement that it belongs to; none: one that SQLite numbers.
    statement: Option<StatementId>,
    /// Length of the undo log when it was opened.
    undo_len: usize,
    /// The clock when it was opened: later writes have greater numbers.
    opened_at: u64,
}

/// Most maps that are kept for the next transaction: a table and some indexes.
const MAPS_KEPT: usize = 4;
/// Most entries of the undo log for which room is kept.
const UNDO_KEPT: usize = 64;

/// The writes of one transaction; see the module's text.
#[derive(Debug, Default)]
pub struct WriteSet {
    /// Ascending by root. A root stays when its last write is taken back, for its version.
    roots: Vec<RootWrites>,
    /// Maps without writes, for roots to come: at most [`MAPS_KEPT`].
    maps: Vec<WriteMap>,
    buffers: Buffers,
    undo: Vec<Undo>,
    savepoints: Vec<Savepoint>,
    /// Counts changes.
    clock: u64,
    /// How often writes were taken back or forgotten.
    taken_back: u64,
    /// The clock at the last `clear`: the version of roots that are not listed.
    cleared_at: u64,
    len: usize,
    frame_bytes: usize,
    has_put_max: bool,
}

impl WriteSet {
    /// Returns an empty write set without savepoints.
    pub fn new() -> WriteSet {
        WriteSet::default()
    }

    /// Sets the record of a key: `rec` and `zero_tail` zero bytes after it.
    ///
    /// # Errors
    /// `NoMemory` (WRITES-5), here and in the next two.
    pub fn put(&mut self, root: Root, key: &[u8], rec: &[u8], zero_tail: usize) -> Result<()> {
        self.set(root, key, WriteKind::Put, rec, zero_tail)
    }

    /// Deletes a key; `rec` is the deleted record if the base needs it to find the entry, else
    /// empty.
    pub fn delete(&mut self, root: Root, key: &[u8], rec: &[u8]) -> Result<()> {
        self.set(root, key, WriteKind::Tombstone, rec, 0)
    }

    /// Sets a record whose last eight bytes only grow; see [`WriteKind::PutMax`]. Over an own put
    /// or delete of the key it is an ordinary put: this transaction has decided the value itself.
    pub fn put_max(&mut self, root: Root, key: &[u8], rec: &[u8], zero_tail: usize) -> Result<()> {
        let decided = self.is_decided(root, key);
        let kind = if decided { WriteKind::Put } else { WriteKind::PutMax };
        self.set(root, key, kind, rec, zero_tail)?;
        self.has_put_max |= !decided;
        Ok(())
    }

    /// True if this transaction has decided what is under the key, by a put or a delete.
    pub fn is_decided(&self, root: Root, key: &[u8]) -> bool {
        self.get(root, key).is_some_and(|write| write.kind() != WriteKind::PutMax)
    }

    /// True if a [`WriteKind::PutMax`] may be among the writes.
    pub fn has_put_max(&self) -> bool {
        self.has_put_max
    }

    /// Raises the last eight bytes of each [`WriteKind::PutMax`] record to what `committed` returns
    /// for its key. May be repeated: it only raises.
    pub fn resolve_maxima(&mut self, mut committed: impl FnMut(Root, &[u8], &[u8]) -> Option<i64>) {
        let mut raise = |root: Root, write: &mut Write| {
            if write.kind() != WriteKind::PutMax {
                return;
            }
            let value = committed(root, write.key(), write.rec());
            if let (Some(value), Some(own)) = (value, write.rec_mut().last_chunk_mut::<8>()) {
                *own = i64::from_be_bytes(*own).max(value).to_be_bytes();
            }
        };
        for of in &mut self.roots {
            for write in of.writes.iter_mut() {
                raise(of.root, write);
            }
        }
        // Also what a savepoint leads back to: it is replayed, and may become the newest again.
        for undo in &mut self.undo {
            if let Held::Write(old) = &mut undo.held {
                raise(undo.root, old);
            }
        }
    }

    /// Returns the own write of a key.
    pub fn get(&self, root: Root, key: &[u8]) -> Option<&Write> {
        self.map(root)?.get(key)
    }

    /// Returns the nearest own write in the direction of `seek`, tombstones included.
    pub fn seek(&self, root: Root, seek: Seek<'_>) -> Option<(&[u8], &Write)> {
        self.seek_place(root, seek).map(|(_, write)| (write.key(), write))
    }

    /// As [`WriteSet::seek`], with the place of the write.
    pub fn seek_place(&self, root: Root, seek: Seek<'_>) -> Option<(OwnPlace, &Write)> {
        let map = self.map(root)?;
        let from = |key: &[u8]| map.find(key).0;
        let behind = |key: &[u8]| match map.find(key) {
            (place, true) => map.after(place),
            (place, false) => place,
        };
        let place = match seek {
            Seek::First => Place::default(),
            Seek::Ge(key) => from(key),
            Seek::Gt(key) => behind(key),
            Seek::PrefixGt(prefix) => from(&after_prefix(prefix)?),
            Seek::Last => map.before(map.end())?,
            Seek::Le(key) => map.before(behind(key))?,
            Seek::Lt(key) => map.before(from(key))?,
            Seek::PrefixLe(prefix) => {
                let end = after_prefix(prefix);
                map.before(end.map_or_else(|| map.end(), |end| from(&end)))?
            }
        };
        map.at(place).map(|write| (OwnPlace(place), write))
    }

    /// Returns the own write at a place.
    pub fn at(&self, root: Root, place: OwnPlace) -> Option<&Write> {
        self.map(root)?.at(place.0)
    }

    /// Returns the own write after the one at a place, or before it.
    pub fn step(&self, root: Root, from: OwnPlace, forward: bool) -> Option<(OwnPlace, &Write)> {
        let map = self.map(root)?;
        let place = if forward { map.after(from.0) } else { map.before(from.0)? };
        map.at(place).map(|write| (OwnPlace(place), write))
    }

    /// Returns the own writes from `lo` up to `hi`, exclusive, ascending.
    pub fn between(
        &self,
        root: Root,
        lo: &[u8],
        hi: &[u8],
    ) -> impl DoubleEndedIterator<Item = (&[u8], &Write)> + use<'_> {
        let map = self.map(root).filter(|_| lo < hi);
        let writes = map.map(|map| map.between(map.find(lo).0, map.find(hi).0));
        writes.into_iter().flatten().map(|write| (write.key(), write))
    }

    /// Returns a number that changes whenever a write was taken back or forgotten.
    pub fn taken_back(&self) -> u64 {
        self.taken_back
    }

    /// True if the root has an own write.
    pub fn has_root(&self, root: Root) -> bool {
        self.map(root).is_some_and(|map| !map.is_empty())
    }

    /// True if every write to this root is a maximum under a key that is not in `keys`, as a
    /// big-endian number.
    pub fn only_raises_other_maxima(&self, root: Root, keys: &[u64]) -> bool {
        self.map(root).is_none_or(|map| {
            map.iter().all(|write| {
                let key = <[u8; 8]>::try_from(write.key()).map(u64::from_be_bytes);
                write.kind() == WriteKind::PutMax && key.is_ok_and(|key| !keys.contains(&key))
            })
        })
    }

    /// Returns a number that changes whenever a write of this root is made or taken back.
    pub fn root_version(&self, root: Root) -> u64 {
        self.find_root(root).map_or(self.cleared_at, |i| self.roots[i].version)
    }

    /// True if nothing is written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of written keys.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes that the writes take in a log frame.
    pub fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// Opens savepoints until `n` are open.
    pub fn savepoint_open(&mut self, n: usize) {
        while self.savepoint_depth() < n {
            self.open(None);
        }
    }

    fn open(&mut self, statement: Option<StatementId>) {
        let undo_len = self.undo.len();
        self.savepoints.push(Savepoint { statement, undo_len, opened_at: self.clock });
    }

    /// Closes savepoint `i` (from 0) and the numbered ones opened after it; their writes stay. Does
    /// nothing if it is not open.
    pub fn savepoint_release(&mut self, i: usize) {
        if let Some(at) = self.numbered(i) {
            self.close_numbered_from(at);
        }
    }

    fn close_numbered_from(&mut self, at: usize) {
        for at in (at..self.savepoints.len()).rev() {
            if self.savepoints[at].statement.is_none() {
                self.close(at);
            }
        }
    }

    /// Closes one savepoint; the writes since it was opened stay.
    fn close(&mut self, at: usize) {
        let closed = self.savepoints.remove(at);
        if self.savepoints.is_empty() {
            // WRITES-1
            self.undo.clear();
            return;
        }
        let end = self.savepoints.get(at).map_or(self.undo.len(), |later| later.undo_len);
        let before = self.undo.len();
        if let Some(below) = at.checked_sub(1) {
            let opened_at = self.savepoints[below].opened_at;
            let of_later = self.undo.split_off(end);
            let of_closed = self.undo.split_off(closed.undo_len);
            // WRITES-1: an entry is dropped if the savepoint below has one for its key.
            let is_first =
                |undo: &Undo| undo.held.write().is_none_or(|old| old.changed_at <= opened_at);
            self.undo.extend(of_closed.into_iter().filter(is_first));
            self.undo.extend(of_later);
        } else {
            self.undo.drain(closed.undo_len..end);
        }
        let gone = before - self.undo.len();
        for later in &mut self.savepoints[at..] {
            later.undo_len -= gone;
        }
    }

    /// Takes back everything written since savepoint `i` (from 0) was opened, and closes the ones
    /// opened after it; `i` stays open. -1 takes back everything and closes all. Does nothing if it
    /// is not open.
    pub fn savepoint_rollback(&mut self, i: i32) {
        let Ok(i) = usize::try_from(i) else {
            self.clear();
            return;
        };
        if let Some(at) = self.numbered(i) {
            self.take_back_to(at);
        }
    }

    /// Takes back everything written since this savepoint was opened, and closes the numbered ones
    /// opened after it (WRITES-6).
    fn take_back_to(&mut self, at: usize) {
        self.taken_back += 1;
        let left = self.savepoints[at].undo_len;
        while self.undo.len() > left {
            let Some(undo) = self.undo.pop() else { break };
            self.take_back(undo);
        }
        let later = self.savepoints.split_off(at + 1);
        let statements = later.into_iter().filter(|savepoint| savepoint.statement.is_some());
        self.savepoints
            .extend(statements.map(|savepoint| Savepoint { undo_len: left, ..savepoint }));
    }

    /// Number of open savepoints that SQLite numbers.
    pub fn savepoint_depth(&self) -> usize {
        self.savepoints.iter().filter(|savepoint| savepoint.statement.is_none()).count()
    }

    fn numbered(&self, i: usize) -> Option<usize> {
        let mut at = self.savepoints.iter().enumerate().filter(|(_, s)| s.statement.is_none());
        at.nth(i).map(|(at, _)| at)
    }

    /// Opens the savepoint of a statement (WRITES-6).
    pub fn statement_open(&mut self, id: StatementId) {
        self.open(Some(id));
    }

    /// Closes the savepoint of a statement that has succeeded, if it is open. Those opened after it
    /// stay.
    pub fn statement_close(&mut self, id: StatementId) {
        if let Some(at) = self.of_statement(id) {
            self.close(at);
        }
    }

    /// Takes back everything written since the statement began, and closes its savepoint. False if
    /// that is not open.
    pub fn statement_rollback(&mut self, id: StatementId) -> bool {
        let Some(at) = self.of_statement(id) else { return false };
        self.take_back_to(at);
        self.close(at);
        true
    }

    fn of_statement(&self, id: StatementId) -> Option<usize> {
        self.savepoints.iter().rposition(|savepoint| savepoint.statement == Some(id))
    }

    /// Returns all writes, ascending by root and key.
    pub fn iter(&self) -> impl Iterator<Item = (Root, &[u8], &Write)> + Clone {
        self.roots.iter().flat_map(|of| of.writes.iter().map(|write| (of.root, write.key(), write)))
    }

    /// Replays the writes, savepoint by savepoint: what was there when each open savepoint was
    /// opened, then the savepoint, then what came after. Ascending by root and key between two
    /// savepoints.
    pub fn replay<E>(&self, mut step: impl FnMut(Step<'_>) -> Result<(), E>) -> Result<(), E> {
        let (before, layers) = self.layers();
        for (root, key, write) in self.iter() {
            match before.get(&(root, key)) {
                None => step(Step::Write(root, key, write))?,
                Some(Some(old)) => step(Step::Write(root, key, old))?,
                Some(None) => {}
            }
        }
        for (i, layer) in layers.iter().rev().enumerate() {
            step(Step::Savepoint(i + 1))?;
            for (&(root, key), write) in layer {
                step(Step::Write(root, key, write))?;
            }
        }
        Ok(())
    }

    /// Forgets all writes and savepoints.
    pub fn clear(&mut self) {
        self.clock += 1;
        self.taken_back += 1;
        self.cleared_at = self.clock;
        for mut of in self.roots.drain(..) {
            if self.maps.len() < MAPS_KEPT {
                of.writes.clear(&mut self.buffers);
                self.maps.push(of.writes);
            }
        }
        self.undo.clear();
        self.undo.shrink_to(UNDO_KEPT);
        self.savepoints.clear();
        self.len = 0;
        self.frame_bytes = 0;
        self.has_put_max = false;
    }

    fn find_root(&self, root: Root) -> Result<usize, usize> {
        self.roots.binary_search_by_key(&root, |of| of.root)
    }

    fn map(&self, root: Root) -> Option<&WriteMap> {
        self.find_root(root).ok().map(|i| &self.roots[i].writes)
    }

    fn root_mut(&mut self, root: Root) -> &mut RootWrites {
        let i = self.find_root(root).unwrap_or_else(|i| {
            let writes = self.maps.pop().unwrap_or_default();
            self.roots.insert(i, RootWrites { root, version: 0, writes });
            i
        });
        &mut self.roots[i]
    }

    fn set(
        &mut self,
        root: Root,
        key: &[u8],
        kind: WriteKind,
        rec: &[u8],
        zero_tail: usize,
    ) -> Result<()> {
        let clock = self.clock + 1;
        let write = Write::new(&mut self.buffers, kind, key, rec, zero_tail, clock)?;
        let mut long = None;
        if !self.savepoints.is_empty() {
            self.undo.try_reserve(1)?;
            if key.len() > Held::SHORT_MAX && self.get(root, key).is_none() {
                long = Some(Held::nothing(key)?);
            }
        }
        self.clock = clock;
        let bytes = frame_bytes_of(&write);
        let of = self.root_mut(root);
        of.version = clock;
        let old = of.writes.put(write);
        self.frame_bytes += bytes;
        match &old {
            Some(old) => self.frame_bytes -= frame_bytes_of(old),
            None => self.len += 1,
        }
        let Some(top) = self.savepoints.last() else { return Ok(()) };
        let held = match old {
            Some(old) if old.changed_at > top.opened_at => None,
            Some(old) => Some(Held::Write(old)),
            // A short key takes no memory.
            None => long.or_else(|| Held::nothing(key).ok()),
        };
        if let Some(held) = held {
            self.undo.push(Undo { root, held });
        }
        Ok(())
    }

    fn take_back(&mut self, undo: Undo) {
        self.clock += 1;
        let clock = self.clock;
        let of = self.root_mut(undo.root);
        of.version = clock;
        let restored = undo.held.write().map(frame_bytes_of);
        let gone = match undo.held {
            Held::Write(old) => of.writes.put(old),
            _ => of.writes.remove(undo.key()),
        };
        match gone {
            Some(gone) => self.frame_bytes -= frame_bytes_of(&gone),
            None => self.len += 1,
        }
        match restored {
            Some(bytes) => self.frame_bytes += bytes,
            None => self.len -= 1,
        }
    }

    /// Returns what the changed keys held before the first savepoint, and for each savepoint, last
    /// first, what they held at its end.
    #[allow(clippy::type_complexity)]
    fn layers(
        &self,
    ) -> (BTreeMap<(Root, &[u8]), Option<&Write>>, Vec<BTreeMap<(Root, &[u8]), &Write>>) {
        let mut before: BTreeMap<(Root, &[u8]), Option<&Write>> = BTreeMap::new();
        let mut layers = Vec::with_capacity(self.savepoints.len());
        let mut end = self.undo.len();
        for savepoint in self.savepoints.iter().rev().filter(|s| s.statement.is_none()) {
            let entries = &self.undo[savepoint.undo_len..end];
            end = savepoint.undo_len;
            let mut layer = BTreeMap::new();
            for undo in entries {
                let at = (undo.root, undo.key());
                let after =
                    before.get(&at).copied().unwrap_or_else(|| self.get(undo.root, undo.key()));
                if let Some(after) = after {
                    layer.insert(at, after);
                }
            }
            for undo in entries.iter().rev() {
                before.insert((undo.root, undo.key()), undo.held.write());
            }
            layers.push(layer);
        }
        (before, layers)
    }
}

impl Puts for WriteSet {
    fn has_root(&self, root: Root) -> bool {
        WriteSet::has_root(self, root)
    }

    fn puts_between<'w>(
        &'w self,
        root: Root,
        lo: &[u8],
        hi: &[u8],
    ) -> impl Iterator<Item = &'w [u8]> + use<'w> {
        let is_put =
            |(key, write): (_, &Write)| (write.kind() != WriteKind::Tombstone).then_some(key);
        self.between(root, lo, hi).filter_map(is_put)
    }
}

fn frame_bytes_of(write: &Write) -> usize {
    op_frame_bytes(write.key().len(), write.rec().len())
}

/// Returns the least byte string greater than all that start with `prefix`, if there is one.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
#[path = "writes_tests.rs"]
mod tests;
