//! The newest version of every key of several memtables, in order.
//!
//! So a merge of several generations goes over the pages of the base once, as the merges of a
//! log-structured tree do (O'Neil et al., "The Log-Structured Merge-Tree", 1996).

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::{Memtable, Node};

/// The current key of one of the memtables.
struct Head<'a, I> {
    node: Node<'a>,
    /// Larger for a newer memtable.
    age: usize,
    rest: I,
}

/// The least key is the greatest head; of equal keys, that of the newest memtable.
impl<I> Ord for Head<'_, I> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.node.cmp_key(&self.node).then(self.age.cmp(&other.age))
    }
}

impl<I> PartialOrd for Head<'_, I> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<I> PartialEq for Head<'_, I> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<I> Eq for Head<'_, I> {}

/// Iterates over the newest version of every key of every root in these memtables, in order.
/// `memtables` is oldest first, and a newer one has newer versions.
pub fn newest_of(memtables: &[Memtable]) -> impl Iterator<Item = Node<'_>> {
    let mut heads: BinaryHeap<_> = memtables
        .iter()
        .enumerate()
        .filter_map(|(age, memtable)| {
            let mut rest = memtable.iter_newest();
            rest.next().map(|node| Head { node, age, rest })
        })
        .collect();
    std::iter::from_fn(move || {
        let newest = heads.peek()?.node;
        while let Some(mut head) = heads.peek_mut() {
            if head.node.cmp_key(&newest).is_ne() {
                break;
            }
            match head.rest.next() {
                Some(next) => head.node = next,
                None => drop(PeekMut::pop(head)),
            }
        }
        Some(newest)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::test_region::Region;
    use super::*;
    use crate::ids::{CommitTs, Root};
    use crate::memtable::EntryKind;

    proptest! {
        #[test]
        fn several_memtables_are_passed_as_one_map_would_be(
            tables in prop::collection::vec(prop::collection::vec((1u32..4, 0u16..40, any::<bool>()), 0..60), 0..6)
        ) {
            let mut regions: Vec<Region> = tables.iter().map(|_| Region::new(1 << 16)).collect();
            let mut expected = BTreeMap::new();
            let mut ts = 0;
            let memtables: Vec<Memtable> = regions
                .iter_mut()
                .zip(&tables)
                .map(|(region, writes)| {
                    let memtable = region.format();
                    for &(root, key, put) in writes {
                        ts += 1;
                        // Some keys differ in their length alone.
                        let key = vec![b'k'; usize::from(key)];
                        let kind = if put { EntryKind::Put } else { EntryKind::Tombstone };
                        memtable.insert(Root::new(root), &key, CommitTs::new(ts), kind, b"rec").expect("room");
                        expected.insert((root, key), ts);
                    }
                    memtable
                })
                .collect();
            let found: Vec<_> = newest_of(&memtables)
                .map(|node| ((node.root().get(), node.key().to_vec()), node.ts().get()))
                .collect();
            prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        }
    }
}
