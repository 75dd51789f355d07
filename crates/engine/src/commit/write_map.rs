//! The own writes of one b-tree, in the order of their keys.
//!
//! # Layout
//! One list of leaves with up to [`LEAF_MAX`] writes each, ascending, and the first eight bytes of
//! each leaf's first key. A write is one allocation, its key followed by its record, and stays in
//! place while writes around it come and go.
//!
//! # Memory
//! Most transactions write a row or two, and then the next transaction of the connection does. So
//! [`WriteMap::clear`] keeps a leaf, and gives the allocations of a few small writes to [`Buffers`],
//! from which the next writes take theirs.
//!
//! # Places
//! A [`Place`] leads to a write without a search, until a write comes or goes. The map remembers
//! the place of the last search: a transaction that writes rows in order, or looks a row up and
//! then writes it, needs a neighbour of that place.
//!
//! # Threads
//! Private to its transaction.
//!
//! # Invariants
//! - LEAF-1 Keys ascend strictly, within a leaf and from leaf to leaf. No leaf is empty.
//! - LEAF-2 `firsts[i]` is the prefix of the first key of leaf `i`.
//! - LEAF-3 The remembered place is a hint: it may lead anywhere, or nowhere.
//!
//! # Deliberately absent
//! Joining leaves that have become small: writes are taken back together, and mostly all of them.

use std::cell::Cell;
use std::cmp::Ordering;

use super::writes::WriteKind;
use crate::error::Result;
use crate::memtable::key_prefix;

/// Most writes of a leaf.
const LEAF_MAX: usize = 64;

/// Most leaves for which a map without writes keeps room in its list.
const LEAVES_KEPT: usize = 8;
/// Most buffers that are kept, and most bytes of each.
const BUFFERS_KEPT: usize = 8;
const BUFFER_BYTES_KEPT: usize = 1024;

/// Allocations of writes that are gone, for those to come.
#[derive(Debug, Default)]
pub(super) struct Buffers(Vec<Vec<u8>>);

impl Buffers {
    fn keep(&mut self, mut bytes: Vec<u8>) {
        if self.0.len() < BUFFERS_KEPT && bytes.capacity() <= BUFFER_BYTES_KEPT {
            bytes.clear();
            self.0.push(bytes);
        }
    }

    fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_default()
    }
}

/// An own write.
#[derive(Debug, PartialEq, Eq)]
pub struct Write {
    /// The first eight bytes of the key: most comparisons end here.
    prefix: u64,
    /// Key and record.
    bytes: Vec<u8>,
    key_len: u32,
    pub(super) kind: WriteKind,
    /// The clock when this write was made.
    pub(super) changed_at: u64,
}

impl Write {
    /// Returns a write of `rec` followed by `zero_tail` zero bytes.
    ///
    /// # Errors
    /// `NoMemory`.
    pub(super) fn new(
        buffers: &mut Buffers,
        kind: WriteKind,
        key: &[u8],
        rec: &[u8],
        zero_tail: usize,
        changed_at: u64,
    ) -> Result<Write> {
        let mut bytes = buffers.take();
        bytes.try_reserve_exact(key.len() + rec.len() + zero_tail)?;
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(rec);
        bytes.resize(bytes.len() + zero_tail, 0);
        let key_len = u32::try_from(key.len()).expect("a key is shorter than the budget");
        Ok(Write { prefix: key_prefix(key), bytes, key_len, kind, changed_at })
    }

    /// Its key.
    pub fn key(&self) -> &[u8] {
        &self.bytes[..self.key_len as usize]
    }

    /// What it does to its key.
    pub fn kind(&self) -> WriteKind {
        self.kind
    }

    /// Its record.
    pub fn rec(&self) -> &[u8] {
        &self.bytes[self.key_len as usize..]
    }

    pub(super) fn rec_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.key_len as usize..]
    }
}

/// Where a write is, or would be inserted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    leaf: u32,
    at: u32,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct WriteMap {
    leaves: Vec<Vec<Write>>,
    firsts: Vec<u64>,
    /// An empty leaf, for the first write.
    spare: Vec<Write>,
    /// Where the last search ended.
    last: Cell<Place>,
}

/// The key of a search.
#[derive(Clone, Copy)]
struct Sought<'k> {
    prefix: u64,
    key: &'k [u8],
}

impl Sought<'_> {
    #[inline]
    fn cmp(&self, write: &Write) -> Ordering {
        self.prefix.cmp(&write.prefix).then_with(|| {
            if self.key.len() <= 8 && write.key_len <= 8 {
                // Equal prefixes of short keys differ by trailing zero bytes at most.
                return self.key.len().cmp(&(write.key_len as usize));
            }
            self.key.cmp(write.key())
        })
    }
}

impl WriteMap {
    /// True if there is no write.
    pub(super) fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// Forgets all writes.
    pub(super) fn clear(&mut self, buffers: &mut Buffers) {
        if let Some(mut leaf) = self.leaves.pop() {
            leaf.drain(..).for_each(|write| buffers.keep(write.bytes));
            self.spare = leaf;
        }
        if self.leaves.capacity() > LEAVES_KEPT {
            self.leaves = Vec::new();
            self.firsts = Vec::new();
        }
        self.leaves.clear();
        self.firsts.clear();
        self.last.set(Place::default());
    }

    /// Returns the write at a place; none after the last.
    #[inline]
    pub(super) fn at(&self, place: Place) -> Option<&Write> {
        self.leaves.get(place.leaf as usize)?.get(place.at as usize)
    }

    /// Returns the place of the write of `key`, or else of the first write after it; and whether it
    /// is of `key`.
    pub(super) fn find(&self, key: &[u8]) -> (Place, bool) {
        let sought = Sought { prefix: key_prefix(key), key };
        let found = self.find_near(&sought).unwrap_or_else(|| self.find_anywhere(&sought));
        self.last.set(found.0);
        found
    }

    /// As `find`, if the place is that of the last search or next to it.
    fn find_near(&self, sought: &Sought<'_>) -> Option<(Place, bool)> {
        let last = self.last.get();
        match self.at(last) {
            Some(write) => match sought.cmp(write) {
                Ordering::Equal => Some((last, true)),
                Ordering::Less => self.is_after(sought, self.before(last)).then_some((last, false)),
                Ordering::Greater => {
                    let next = self.after(last);
                    match self.at(next).map_or(Ordering::Less, |write| sought.cmp(write)) {
                        Ordering::Greater => None,
                        order => Some((next, order.is_eq())),
                    }
                }
            },
            // After the last write, where ascending keys go.
            None => {
                let end = self.end();
                self.is_after(sought, self.before(end)).then_some((end, false))
            }
        }
    }

    /// True if the key comes after the write at a place, or there is none.
    fn is_after(&self, sought: &Sought<'_>, place: Option<Place>) -> bool {
        place.and_then(|place| self.at(place)).is_none_or(|write| sought.cmp(write).is_gt())
    }

    fn find_anywhere(&self, sought: &Sought<'_>) -> (Place, bool) {
        let (mut lo, mut hi) = (0, self.firsts.len());
        // The last leaf that does not begin after the key.
        while lo < hi {
            let mid = lo.midpoint(hi);
            let order = sought.prefix.cmp(&self.firsts[mid]).then_with(|| {
                self.leaves[mid].first().map_or(Ordering::Greater, |write| sought.cmp(write))
            });
            if order.is_lt() { hi = mid } else { lo = mid + 1 }
        }
        let Some(leaf) = lo.checked_sub(1) else { return (Place::default(), false) };
        let found = self.leaves[leaf].binary_search_by(|write| sought.cmp(write).reverse());
        let place = |at: usize| Place { leaf: leaf as u32, at: at as u32 };
        match found {
            Ok(at) => (place(at), true),
            Err(at) => (self.to_next_leaf(place(at)), false),
        }
    }

    /// Turns the end of a leaf into the beginning of the next.
    #[inline]
    fn to_next_leaf(&self, place: Place) -> Place {
        match self.leaves.get(place.leaf as usize) {
            Some(leaf) if leaf.len() <= place.at as usize => Place { leaf: place.leaf + 1, at: 0 },
            _ => place,
        }
    }

    /// Returns the place after that of a write.
    #[inline]
    pub(super) fn after(&self, place: Place) -> Place {
        self.to_next_leaf(Place { at: place.at + 1, ..place })
    }

    /// Returns the place before one; none before the first.
    #[inline]
    pub(super) fn before(&self, place: Place) -> Option<Place> {
        if place.at > 0 {
            return Some(Place { at: place.at - 1, ..place });
        }
        let leaf = place.leaf.checked_sub(1)?;
        let at = self.leaves.get(leaf as usize)?.len().checked_sub(1)?;
        Some(Place { leaf, at: at as u32 })
    }

    /// Returns the place after the last write.
    pub(super) fn end(&self) -> Place {
        Place { leaf: self.leaves.len() as u32, at: 0 }
    }

    /// Returns the write of a key.
    pub(super) fn get(&self, key: &[u8]) -> Option<&Write> {
        let (place, is_there) = self.find(key);
        self.at(place).filter(|_| is_there)
    }

    /// Puts a write, and returns the one that the key had.
    pub(super) fn put(&mut self, write: Write) -> Option<Write> {
        let (place, is_there) = self.find(write.key());
        if is_there {
            return Some(std::mem::replace(self.at_mut(place)?, write));
        }
        self.insert(place, write);
        None
    }

    fn at_mut(&mut self, place: Place) -> Option<&mut Write> {
        self.leaves.get_mut(place.leaf as usize)?.get_mut(place.at as usize)
    }

    /// Removes the write of a key, and returns it.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<Write> {
        let (Place { leaf, at }, is_there) = self.find(key);
        if !is_there {
            return None;
        }
        let leaf = leaf as usize;
        let gone = self.leaves[leaf].remove(at as usize);
        match self.leaves[leaf].first() {
            Some(first) => self.firsts[leaf] = first.prefix,
            None => {
                self.leaves.remove(leaf);
                self.firsts.remove(leaf);
            }
        }
        Some(gone)
    }

    /// Inserts before the write at `place`.
    fn insert(&mut self, place: Place, write: Write) {
        // Instead of the beginning of a leaf, the end of the one before, if that has room or
        // neither has.
        let len = |leaf: u32| self.leaves.get(leaf as usize).map_or(LEAF_MAX, Vec::len);
        let mut to = place;
        if to.at == 0
            && let Some(before) = self.before(to)
            && (len(before.leaf) < LEAF_MAX || len(to.leaf) == LEAF_MAX)
        {
            to = Place { at: before.at + 1, ..before };
        }
        if self.leaves.is_empty() {
            let mut leaf = std::mem::take(&mut self.spare);
            leaf.push(write);
            self.add_leaf(0, leaf);
            to = Place::default();
        } else if self.leaves[to.leaf as usize].len() < LEAF_MAX {
            self.insert_into(to, write);
        } else {
            to = self.insert_with_split(to, write);
        }
        self.last.set(to);
    }

    fn insert_into(&mut self, to: Place, write: Write) {
        let leaf = to.leaf as usize;
        if to.at == 0 {
            self.firsts[leaf] = write.prefix;
        }
        self.leaves[leaf].insert(to.at as usize, write);
    }

    /// Inserts into a full leaf, which becomes two: where keys ascend, a full one and one with this
    /// write; elsewhere two halves.
    fn insert_with_split(&mut self, to: Place, write: Write) -> Place {
        let (leaf, at) = (to.leaf as usize, to.at as usize);
        if at == LEAF_MAX {
            self.add_leaf(leaf + 1, vec![write]);
            return Place { leaf: to.leaf + 1, at: 0 };
        }
        let half = self.leaves[leaf].split_off(LEAF_MAX / 2);
        self.add_leaf(leaf + 1, half);
        let to = match at.checked_sub(LEAF_MAX / 2) {
            Some(at) if at > 0 => Place { leaf: to.leaf + 1, at: at as u32 },
            _ => to,
        };
        self.insert_into(to, write);
        to
    }

    fn add_leaf(&mut self, at: usize, leaf: Vec<Write>) {
        self.firsts.insert(at, leaf[0].prefix);
        self.leaves.insert(at, leaf);
    }

    /// Returns all writes, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Write> + Clone {
        self.leaves.iter().flatten()
    }

    /// As `iter`, to change the writes, but not their keys.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Write> {
        self.leaves.iter_mut().flatten()
    }

    /// Returns the writes from one place up to another, exclusive, ascending.
    pub(super) fn between(&self, from: Place, to: Place) -> Between<'_> {
        Between { map: self, from, to }
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        assert_eq!(self.leaves.len(), self.firsts.len(), "LEAF-2");
        for (leaf, first) in self.leaves.iter().zip(&self.firsts) {
            assert!(!leaf.is_empty() && leaf.len() <= LEAF_MAX, "LEAF-1");
            assert_eq!(leaf[0].prefix, *first, "LEAF-2");
        }
        let keys: Vec<_> = self.iter().map(Write::key).collect();
        assert!(keys.is_sorted_by(|a, b| a < b), "LEAF-1");
    }
}

/// Writes between two places.
pub(super) struct Between<'m> {
    map: &'m WriteMap,
    from: Place,
    to: Place,
}

impl<'m> Iterator for Between<'m> {
    type Item = &'m Write;

    fn next(&mut self) -> Option<&'m Write> {
        if self.from >= self.to {
            return None;
        }
        let write = self.map.at(self.from)?;
        self.from = self.map.after(self.from);
        Some(write)
    }
}

impl DoubleEndedIterator for Between<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.from >= self.to {
            return None;
        }
        self.to = self.map.before(self.to)?;
        self.map.at(self.to)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Ascending and descending runs, and single keys: short ones, so that prefixes are equal, and
    /// long ones.
    #[derive(Clone, Debug)]
    enum Op {
        Put(Vec<u8>),
        Ascending(u16, u8),
        Descending(u16, u8),
        Remove(Vec<u8>),
        RemoveRun(u16, u8),
        Clear,
    }

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            vec(prop_oneof![Just(0u8), Just(7), Just(0xff)], 0..11),
            (0u16..2000).prop_map(number),
        ]
    }

    fn number(n: u16) -> Vec<u8> {
        format!("long enough {n:05}").into_bytes()
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => key().prop_map(Op::Put),
            3 => (0u16..2000, any::<u8>()).prop_map(|(n, len)| Op::Ascending(n, len)),
            2 => (0u16..2000, any::<u8>()).prop_map(|(n, len)| Op::Descending(n, len)),
            2 => key().prop_map(Op::Remove),
            2 => (0u16..2000, any::<u8>()).prop_map(|(n, len)| Op::RemoveRun(n, len)),
            1 => Just(Op::Clear),
        ]
    }

    fn run(from: u16, len: u8) -> impl DoubleEndedIterator<Item = Vec<u8>> {
        (from..from + u16::from(len)).map(number)
    }

    fn apply(
        (map, buffers): (&mut WriteMap, &mut Buffers),
        model: &mut BTreeMap<Vec<u8>, u64>,
        op: Op,
        stamp: u64,
    ) {
        let mut put = |map: &mut WriteMap, key: Vec<u8>| {
            let write = Write::new(buffers, WriteKind::Put, &key, b"rec", 2, stamp).unwrap();
            let old = map.put(write);
            assert_eq!(old.map(|write| write.changed_at), model.insert(key, stamp));
        };
        match op {
            Op::Put(key) => put(map, key),
            Op::Ascending(from, len) => run(from, len).for_each(|key| put(map, key)),
            Op::Descending(from, len) => run(from, len).rev().for_each(|key| put(map, key)),
            Op::Remove(key) => {
                assert_eq!(map.remove(&key).map(|write| write.changed_at), model.remove(&key));
            }
            Op::RemoveRun(from, len) => run(from, len).for_each(|key| {
                assert_eq!(map.remove(&key).map(|write| write.changed_at), model.remove(&key));
            }),
            Op::Clear => {
                map.clear(buffers);
                model.clear();
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        // holds LEAF-3
        #[test]
        fn a_write_map_is_an_ordered_map(ops in vec(op(), 0..30), probes in vec(key(), 1..20)) {
            let (mut map, mut model) = (WriteMap::default(), BTreeMap::new());
            let mut buffers = Buffers::default();
            for (stamp, op) in ops.into_iter().enumerate() {
                apply((&mut map, &mut buffers), &mut model, op, stamp as u64);
                map.check();
                let all: Vec<_> = map.iter().map(|w| (w.key().to_vec(), w.changed_at)).collect();
                prop_assert!(all.iter().map(|(k, at)| (k, at)).eq(&model));
                prop_assert_eq!(map.is_empty(), model.is_empty());
                for key in &probes {
                    let (place, is_there) = map.find(key);
                    prop_assert_eq!(is_there, model.contains_key(key));
                    let behind = model.range(key.clone()..).next().map(|(key, _)| key.as_slice());
                    prop_assert_eq!(map.at(place).map(Write::key), behind);
                    let before = model.range(..key.clone()).next_back().map(|(key, _)| key.as_slice());
                    let place = map.before(place);
                    prop_assert_eq!(place.and_then(|place| map.at(place)).map(Write::key), before);
                }
            }
        }

        #[test]
        fn writes_between_two_places_come_from_both_ends(
            ops in vec(op(), 0..10), lo in key(), hi in key(), backwards in vec(any::<bool>(), 300),
        ) {
            let (mut map, mut model) = (WriteMap::default(), BTreeMap::new());
            for op in ops {
                apply((&mut map, &mut Buffers::default()), &mut model, op, 0);
            }
            let mut between = map.between(map.find(&lo).0, map.find(&hi).0);
            let mut expected: std::collections::VecDeque<_> =
                model.into_keys().filter(|key| *key >= lo && *key < hi).collect();
            for back in backwards {
                let (got, key) = if back {
                    (between.next_back(), expected.pop_back())
                } else {
                    (between.next(), expected.pop_front())
                };
                prop_assert_eq!(got.map(|write| write.key().to_vec()), key);
            }
        }
    }
}
