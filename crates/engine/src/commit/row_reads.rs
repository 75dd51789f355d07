//! The single rows of tables that a transaction has read: the part of its read set that grows
//! fastest.
//!
//! # Layout
//! The keys of tables are eight bytes, so numbers. Each root has a hash table of blocks. A block is
//! `2^shift` neighbouring keys, of which at least one was read. A table begins with single keys
//! (`shift` 0). When all roots together have too many blocks, those of the root with most blocks
//! are doubled in length until half as many are left.
//!
//! So a read costs one lookup, whatever was read before, and a million reads of random rows take
//! some ten thousand blocks.
//!
//! # Threads
//! Private to its transaction.
//!
//! # Invariants
//! - ROWS-1 Whatever was added is in a block until `clear`. Longer blocks only widen.
//! - ROWS-2 There are at most `blocks_max` blocks, or a few for each root.
//! - ROWS-3 At least half of the slots of a table are free, so that a search ends.
//!
//! # Deliberately absent
//! Keys of another length, the greatest key of all, and tables past [`ROOTS_MAX`]:
//! [`RowReads::add`] refuses them.

use crate::error::Result;
use crate::ids::Root;
use crate::memtable::Hi;

/// Most roots that have a table here; they are searched one by one.
const ROOTS_MAX: usize = 32;
/// Slots of a table at first, and kept from transaction to transaction.
const SLOTS_MIN: usize = 32;
/// Spreads the bits of a block over the upper half of a word (Knuth's multiplicative hashing, by
/// the golden ratio).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The blocks of one root.
#[derive(Debug)]
struct Table {
    root: Root,
    shift: u32,
    /// Block + 1 each; 0 is free. Their number is a power of two.
    slots: Vec<u64>,
    blocks: usize,
}

impl Table {
    fn new(root: Root) -> Table {
        Table { root, shift: 0, slots: vec![0; SLOTS_MIN], blocks: 0 }
    }

    /// Makes it a new table for `root`.
    fn begin_again(&mut self, root: Root) {
        (self.root, self.shift, self.blocks) = (root, 0, 0);
        self.slots.truncate(SLOTS_MIN);
        self.slots.shrink_to(SLOTS_MIN);
        self.slots.fill(0);
    }

    /// Returns the index of the slot that holds `word`, or else of a free slot for it.
    #[inline]
    fn find(&self, word: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = (word.wrapping_mul(SPREAD) >> 32) as usize & mask;
        while self.slots[at] != 0 && self.slots[at] != word {
            at = (at + 1) & mask;
        }
        at
    }

    /// Returns whether the block is new.
    #[inline]
    fn insert(&mut self, word: u64) -> Result<bool> {
        let at = self.find(word);
        if self.slots[at] == word {
            return Ok(false);
        }
        if (self.blocks + 1) * 2 > self.slots.len() {
            let blocks = self.sorted()?;
            self.rebuild(&blocks)?;
            return self.insert(word);
        }
        self.slots[at] = word;
        self.blocks += 1;
        Ok(true)
    }

    /// Returns block + 1 of each block, ascending.
    fn sorted(&self) -> Result<Vec<u64>> {
        let mut blocks = Vec::new();
        blocks.try_reserve_exact(self.blocks)?;
        blocks.extend(self.slots.iter().copied().filter(|word| *word != 0));
        blocks.sort_unstable();
        Ok(blocks)
    }

    /// Replaces the blocks. Without the memory for them nothing changes.
    fn rebuild(&mut self, blocks: &[u64]) -> Result<()> {
        let slots = (blocks.len() * 4).next_power_of_two().max(SLOTS_MIN);
        self.slots.try_reserve(slots.saturating_sub(self.slots.len()))?;
        self.blocks = blocks.len();
        self.slots.clear();
        self.slots.resize(slots, 0);
        for word in blocks {
            let at = self.find(*word);
            self.slots[at] = *word;
        }
        Ok(())
    }

    /// Makes the blocks longer, until at most half as many are left.
    fn widen(&mut self) -> Result<()> {
        let mut blocks = self.sorted()?;
        let most = (blocks.len() / 2).max(1);
        while blocks.len() > most && self.shift < u64::BITS - 1 {
            self.shift += 1;
            for word in &mut blocks {
                *word = ((*word - 1) >> 1) + 1;
            }
            blocks.dedup();
        }
        // There are fewer than before, so there is room for them.
        self.rebuild(&blocks)
    }
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct RowReads {
    /// The first `used` are in use; the others are kept for their memory.
    tables: Vec<Table>,
    used: usize,
    /// The table used last.
    last: usize,
    blocks: usize,
    blocks_max: usize,
}

impl RowReads {
    pub(super) fn with_limit(blocks_max: usize) -> RowReads {
        RowReads { tables: Vec::new(), used: 0, last: 0, blocks: 0, blocks_max }
    }

    /// Adds a key; false if such a key is not kept here.
    ///
    /// # Errors
    /// `NoMemory`: the key may be missing.
    #[inline]
    pub(super) fn add(&mut self, root: Root, key: &[u8]) -> Result<bool> {
        let Some(number) = number_of(key).filter(|number| *number != u64::MAX) else {
            return Ok(false);
        };
        let Some(index) = self.index_of(root).or_else(|| self.begin_table(root)) else {
            return Ok(false);
        };
        self.last = index;
        let table = &mut self.tables[index];
        if table.insert((number >> table.shift) + 1)? {
            self.blocks += 1;
            if self.blocks > self.blocks_max {
                self.widen()?;
            }
        }
        Ok(true)
    }

    #[inline]
    fn index_of(&self, root: Root) -> Option<usize> {
        let tables = &self.tables[..self.used];
        match tables.get(self.last) {
            Some(last) if last.root == root => Some(self.last),
            _ => tables.iter().position(|table| table.root == root),
        }
    }

    fn begin_table(&mut self, root: Root) -> Option<usize> {
        if self.used == ROOTS_MAX {
            return None;
        }
        match self.tables.get_mut(self.used) {
            Some(table) => table.begin_again(root),
            None => self.tables.push(Table::new(root)),
        }
        self.used += 1;
        Some(self.used - 1)
    }

    /// ROWS-2: widens until half of the limit is free, as far as a root has more than one block.
    fn widen(&mut self) -> Result<()> {
        let tables = &mut self.tables[..self.used];
        while self.blocks > self.blocks_max / 2 {
            let largest = tables.iter_mut().max_by_key(|table| table.blocks);
            let Some(largest) = largest.filter(|table| table.blocks > 1) else { break };
            let before = largest.blocks;
            largest.widen()?;
            self.blocks -= before - largest.blocks;
            if largest.blocks == before {
                // Two blocks, of the greatest length.
                break;
            }
        }
        // If a few blocks for each root exceed the limit, the limit is raised.
        self.blocks_max = self.blocks_max.max(self.blocks * 2);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// Number of blocks.
    pub(super) fn len(&self) -> usize {
        self.blocks
    }

    /// True if a block is longer than one key.
    pub(super) fn has_range(&self) -> bool {
        self.tables[..self.used].iter().any(|table| table.shift > 0)
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> usize {
        self.tables.iter().map(|table| table.slots.len() * size_of::<u64>()).sum()
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.used = 0;
        self.last = 0;
        self.blocks = 0;
    }

    /// True if the key is in a block.
    pub(super) fn contains(&self, root: Root, key: &[u8]) -> bool {
        let Some(number) = number_of(key).filter(|number| *number != u64::MAX) else {
            return false;
        };
        self.index_of(root).is_some_and(|index| {
            let table = &self.tables[index];
            table.slots[table.find((number >> table.shift) + 1)] != 0
        })
    }

    /// True if anything of this root was read.
    pub(super) fn has_root(&self, root: Root) -> bool {
        self.index_of(root).is_some()
    }

    /// Calls `point_changed` for each key, and `range_changed` for each run of longer blocks, in
    /// order, until one returns an answer. Returns that answer, its root, and whether it is from a
    /// range.
    pub(super) fn first_answer<T>(
        &self,
        point_changed: &mut impl FnMut(Root, &[u8]) -> Option<T>,
        range_changed: &mut impl FnMut(Root, Option<&[u8]>, Option<Hi<'_>>) -> Option<T>,
    ) -> Result<Option<(Root, bool, T)>> {
        let tables = &self.tables[..self.used];
        for table in tables {
            let blocks = table.sorted()?;
            let root = table.root;
            let first = if table.shift == 0 {
                let changed = |word: &u64| point_changed(root, &(word - 1).to_be_bytes());
                blocks.iter().find_map(changed)
            } else {
                let stretches = blocks.chunk_by(|a, b| a + 1 == *b);
                let mut ends =
                    stretches.filter_map(|run| Some((run.first()? - 1, run.last()? - 1)));
                ends.find_map(|(first, last)| {
                    let lo = (first << table.shift).to_be_bytes();
                    let hi = (last << table.shift | ((1 << table.shift) - 1)).to_be_bytes();
                    range_changed(root, Some(&lo), Some(Hi::Key(&hi)))
                })
            };
            if let Some(answer) = first {
                return Ok(Some((root, table.shift != 0, answer)));
            }
        }
        Ok(None)
    }
}

/// Returns a key of eight bytes as a number that sorts as its bytes do.
#[inline]
fn number_of(key: &[u8]) -> Option<u64> {
    key.try_into().ok().map(u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn keys() -> impl Strategy<Value = Vec<(u32, u64)>> {
        // Adjacent rows, distant ones, and those at the ends of what there is.
        let number = prop_oneof![
            6 => 0u64..400,
            3 => any::<u64>(),
            1 => (0u64..3).prop_map(|n| u64::MAX - n),
            1 => (0u64..3).prop_map(|n| (1 << 63) - 1 + n),
        ];
        vec((1u32..4, number), 0..300)
    }

    /// Returns whether a change of exactly this key is found.
    fn finds(reads: &RowReads, root: u32, number: u64) -> bool {
        let key = number.to_be_bytes();
        let hit = |r: Root, yes: bool| (r.get() == root && yes).then_some(());
        let answer =
            reads.first_answer(&mut |r, point: &[u8]| hit(r, point == key), &mut |r,
                                                                                  lo: Option<
                &[u8],
            >,
                                                                                  hi: Option<
                Hi<'_>,
            >| {
                hit(r, lo.is_none_or(|lo| lo <= &key[..]) && hi.is_none_or(|hi| hi.admits(&key)))
            });
        answer.unwrap().is_some()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn without_a_limit_exactly_what_was_read_is_found(added in keys(), probes in keys()) {
            let mut reads = RowReads::with_limit(1000);
            let mut model = BTreeSet::new();
            for (root, number) in added {
                let is_kept = reads.add(Root::new(root), &number.to_be_bytes()).unwrap();
                prop_assert_eq!(is_kept, number != u64::MAX);
                if is_kept {
                    model.insert((root, number));
                }
            }
            prop_assert_eq!(reads.len(), model.len());
            prop_assert!(!reads.has_range());
            let all: Vec<_> = model.iter().copied().collect();
            for (root, number) in probes.into_iter().chain(all) {
                let expected = model.contains(&(root, number));
                prop_assert_eq!(reads.contains(Root::new(root), &number.to_be_bytes()), expected);
                prop_assert_eq!(finds(&reads, root, number), expected);
            }
        }

        #[test]
        fn past_the_limit_nothing_that_was_read_is_missed_and_memory_is_bounded(added in keys(), limit in 1usize..40) {
            let mut reads = RowReads::with_limit(limit);
            let mut model = BTreeSet::new();
            for (root, number) in added.into_iter().filter(|(_, number)| *number != u64::MAX) {
                reads.add(Root::new(root), &number.to_be_bytes()).unwrap();
                model.insert((root, number));
                prop_assert!(reads.len() <= limit.max(4 * 3), "ROWS-2: {} blocks", reads.len());
            }
            for (root, number) in model {
                prop_assert!(reads.contains(Root::new(root), &number.to_be_bytes()), "ROWS-1");
                prop_assert!(finds(&reads, root, number), "ROWS-1");
            }
        }
    }

    #[test]
    fn neighbours_are_known_by_few_blocks_and_what_lies_apart_stays_apart() {
        let mut reads = RowReads::with_limit(64);
        let root = Root::new(7);
        for number in 0..10_000u64 {
            assert!(reads.add(root, &number.to_be_bytes()).unwrap());
        }
        assert!(reads.contains(root, &9_999u64.to_be_bytes()));
        assert!(!reads.contains(root, &20_000u64.to_be_bytes()), "the blocks are short");
        assert!(!reads.contains(Root::new(8), &1u64.to_be_bytes()));
    }

    #[test]
    fn what_is_cleared_is_forgotten_and_more_roots_than_there_is_room_for_are_refused() {
        let mut reads = RowReads::with_limit(1000);
        for _ in 0..2 {
            for root in 0..ROOTS_MAX as u32 {
                assert!(reads.add(Root::new(root + 1), &5u64.to_be_bytes()).unwrap());
            }
            assert!(!reads.add(Root::new(1000), &5u64.to_be_bytes()).unwrap());
            assert!(
                !reads.add(Root::new(1), b"short").unwrap()
                    && !reads.add(Root::new(1), b"longer than it").unwrap()
            );
            reads.clear();
            assert!(reads.is_empty() && !reads.contains(Root::new(1), &5u64.to_be_bytes()));
        }
    }
}
