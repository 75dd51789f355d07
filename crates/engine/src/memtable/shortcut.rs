//! Shortcuts: from a key to its newest version without a search.
//!
//! A search of the list touches some twenty nodes, nearly all of them far from any cache. Most lookups know the whole key:
//! a table of node offsets, hashed by root and key, answers them with one node, or with none.
//!
//! A place of the table belongs to all keys of one hash. It leads to the newest version of the one that was inserted last,
//! or is 0 while none was inserted. A key that finds another one's version there is searched for in the list.
//!
//! Most keys that are looked up are in the base and in no memtable. A filter of a few bits for each inserted key says so of nearly all of
//! them, so that they are not searched for: a Bloom filter whose bits for a key lie in one word (Putze, Sanders, Singler, "Cache-, Hash- and
//! Space-Efficient Bloom Filters", 2007). It belongs to M5.
//!
//! Both are small while little is in the region, and grow with it to twice as much and twice as much ([`widen`]). Place `i` of what was one
//! of `n` becomes the two places `i` and `i + n`, with the same content: bits that say too much, and a node that is one of the keys of the other place
//! perhaps, which are searched for then. A reader that still looks into the smaller one finds there all that its snapshot sees: what was
//! inserted since, which may be in the new half alone, was published after the new size.

use super::arena::Arena;
use super::atomics::Ordering;
use super::layout::{HEAD, filter_words, key_bits, mix, shortcut_count};
use super::search::{Target, find, next_of};
use super::{Node, STEPS_BEFORE_SEARCH};
use crate::ids::{Root, SnapshotTs};

/// Partner of [`LOOKS_UP`].
pub(super) const LEADS: Ordering = Ordering::Release;
/// The node behind the shortcut is complete and linked: partner of [`LEADS`].
pub(super) const LOOKS_UP: Ordering = Ordering::Acquire;

/// What a shortcut says of a key.
pub(super) enum Way {
    /// To the newest version that the snapshot sees; 0 if there is none.
    To(u32),
    /// Nothing: search.
    Unknown,
}

/// Hash of a key: its eight-byte words, one after the other, through a mixing function.
pub(super) fn hash(root: u32, key: &[u8]) -> u64 {
    let mut words = key.chunks_exact(8);
    let mut h = mix(u64::from(root) << 32 | key.len() as u64);
    for word in words.by_ref() {
        h = mix(h ^ super::layout::key_prefix(word));
    }
    mix(h ^ super::layout::key_prefix(words.remainder()))
}

/// Looks a key up.
pub(super) fn look_up(arena: &Arena, root: Root, key: &[u8], at: SnapshotTs) -> Way {
    let hash = hash(root.get(), key);
    // Relaxed: a commit that the snapshot sees was published behind its bits, and that was looked at before.
    let bits = key_bits(hash);
    if arena.filter_word(hash).load(Ordering::Relaxed) & bits != bits {
        return Way::To(0);
    }
    let mut offset = arena.shortcut(hash).load(LOOKS_UP);
    for _ in 0..STEPS_BEFORE_SEARCH {
        if offset == 0 {
            return Way::To(0);
        }
        let node = Node { arena, offset };
        if !node.is_of(root, key) {
            break;
        }
        if at.sees(node.ts()) {
            return Way::To(offset);
        }
        // Older versions follow. Behind them other keys do, and then none is seen.
        offset = next_of(arena, offset, 0);
        if offset != 0 && !(Node { arena, offset }).is_of(root, key) {
            return Way::To(0);
        }
    }
    Way::Unknown
}

/// Enters a key into the filter, before it is linked. The caller is the only writer.
pub(super) fn enter(arena: &Arena, root: Root, key: &[u8]) {
    let hash = hash(root.get(), key);
    let word = arena.filter_word(hash);
    // Relaxed: the Release store of the first link publishes it with the node (M5).
    let bits = word.load(Ordering::Relaxed);
    word.store(bits | key_bits(hash), Ordering::Relaxed);
}

/// Lets the shortcut lead to the newest version of a key, one of which, at `offset` behind `prev`, has just been linked or
/// was found linked. The caller is the only writer.
pub(super) fn lead(arena: &Arena, root: Root, key: &[u8], prev: u32, offset: u32) {
    let is_newest = prev == HEAD || !(Node { arena, offset: prev }).is_of(root, key);
    let newest =
        if is_newest { offset } else { find(arena, &Target::version(root, key, u64::MAX)).1 };
    arena.shortcut(hash(root.get(), key)).store(newest, LEADS);
}

/// Makes shortcuts and filter large enough to serve so many bytes. The caller is the only writer; who dies in between has done nothing.
pub(super) fn widen(arena: &Arena, covers: u32) {
    let before = arena.covers();
    // Relaxed: published with the new size, and before that nobody looks there. There are powers of two of both.
    let (used, wanted) = (shortcut_count(before), shortcut_count(covers));
    for i in used..wanted {
        let from = arena.shortcut_at(i & (used - 1)).load(Ordering::Relaxed);
        arena.shortcut_at(i).store(from, Ordering::Relaxed);
    }
    let (used, wanted) = (filter_words(before), filter_words(covers));
    for i in used..wanted {
        let from = arena.filter_word_at(i & (used - 1)).load(Ordering::Relaxed);
        arena.filter_word_at(i).store(from, Ordering::Relaxed);
    }
    // Release pairs with the Acquire in `Arena::covers`.
    arena.header().covers.store(covers, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::super::test_region::Region;
    use super::super::{EntryKind, layout};
    use super::*;
    use crate::ids::CommitTs;

    const REGION_BYTES: u32 = 4 << 20;
    const ROOT: Root = Root::new(3);

    fn key(i: u64) -> [u8; 8] {
        i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
    }

    #[test]
    fn keys_that_are_not_there_are_hardly_ever_searched_for() {
        let mut region = Region::new(REGION_BYTES);
        let table = region.format();
        let mut n = 0;
        // The smallest rows are the most.
        while table.insert(ROOT, &key(n), CommitTs::new(n + 1), EntryKind::Put, b"r").is_ok() {
            n += 1;
        }
        assert!(
            n > u64::from(layout::shortcut_count(REGION_BYTES)),
            "more keys than shortcuts: {n}"
        );
        let searched = (n..2 * n)
            .filter(|i| {
                let way = look_up(&table.arena, ROOT, &key(*i), SnapshotTs::MAX);
                assert!(!matches!(way, Way::To(offset) if offset != 0), "key {i} is not there");
                matches!(way, Way::Unknown)
            })
            .count() as u64;
        assert!(searched * 5 < n, "{searched} of {n} keys are searched for");
        assert!((0..n).all(|i| table.get(ROOT, &key(i), SnapshotTs::MAX).is_some()));
        assert_eq!(table.check(), Ok(()));
    }

    /// The region is full of garbage where nothing is in use yet.
    #[test]
    fn what_was_inserted_is_found_however_often_there_was_more_room_since() {
        let mut region = Region::new(REGION_BYTES);
        for first in [0, 100 << 10, REGION_BYTES / 8] {
            let table = region.format_to(first);
            let (mut n, mut reach) = (0, first.max(layout::FIRST_REACH));
            while reach < REGION_BYTES / 2 {
                while table.reach_with(100) < u64::from(reach) {
                    // Of each third key there is an older version, from before.
                    let ts = CommitTs::new(n + 1);
                    table.insert(ROOT, &key(n), ts, EntryKind::Put, b"r").expect("room");
                    if n % 3 == 0 {
                        table.insert(ROOT, &key(n / 2), ts, EntryKind::Put, b"s").expect("room");
                    }
                    n += 1;
                }
                assert_eq!(table.check(), Ok(()));
                reach *= 2;
                table.widen(reach);
                table.widen(reach / 2);
                assert_eq!(
                    table.arena.covers(),
                    layout::covers(reach, REGION_BYTES).max(layout::covers(first, REGION_BYTES))
                );
                assert_eq!(table.check(), Ok(()));
                for i in 0..n {
                    let newest =
                        table.get(ROOT, &key(i), SnapshotTs::MAX).expect("it was inserted");
                    assert!(newest.ts() > CommitTs::new(i));
                    assert_eq!(
                        table.get(ROOT, &key(i), SnapshotTs::new(i + 1)).map(|node| node.ts()),
                        Some(CommitTs::new(i + 1))
                    );
                    let way = look_up(&table.arena, ROOT, &key(n + i), SnapshotTs::MAX);
                    assert!(matches!(way, Way::To(0) | Way::Unknown), "key {} is not there", n + i);
                }
            }
            assert!(n > 1000, "{n}");
        }
    }

    #[test]
    fn a_filter_that_lacks_a_key_is_noticed() {
        let mut region = Region::new(REGION_BYTES);
        let table = region.format();
        table.insert(ROOT, &key(1), CommitTs::new(1), EntryKind::Put, b"r").expect("room");
        assert_eq!(table.check(), Ok(()));
        table.arena.filter_word(hash(ROOT.get(), &key(1))).store(0, Ordering::Relaxed);
        assert!(table.check().expect_err("M5").contains("not in the filter"));
    }
}
