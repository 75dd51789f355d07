//! Shortcuts: from a key to its newest version without a search.
//!
//! A search of the list touches some twenty nodes, nearly all of them far from any cache. Most lookups know the whole key:
//! a table of node offsets, hashed by root and key, answers them with one node, or with none.
//!
//! A place of the table belongs to all keys of one hash. It leads to the newest version of the one that was inserted last,
//! or is 0 while none was inserted. A key that finds another one's version there is searched for in the list.

use super::arena::Arena;
use super::atomics::Ordering;
use super::layout::{HEAD, mix};
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
    let mut offset = arena.shortcut(hash(root.get(), key)).load(LOOKS_UP);
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

/// Lets the shortcut lead to the newest version of a key, one of which, at `offset` behind `prev`, has just been linked or
/// was found linked. The caller is the only writer.
pub(super) fn lead(arena: &Arena, root: Root, key: &[u8], prev: u32, offset: u32) {
    let is_newest = prev == HEAD || !(Node { arena, offset: prev }).is_of(root, key);
    let newest =
        if is_newest { offset } else { find(arena, &Target::version(root, key, u64::MAX)).1 };
    arena.shortcut(hash(root.get(), key)).store(newest, LEADS);
}
