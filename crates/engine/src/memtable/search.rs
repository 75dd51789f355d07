//! Finding a place in the skiplist: what is sought (`Target`) and the walk down the towers.

use super::arena::{Arena, damaged};
use super::atomics::Ordering;
use super::layout::{FIELDS_BYTES, HEAD, HEIGHT_MAX, NodeFields, key_prefix};
use crate::ids::Root;

/// Makes the fields and the payload of the node that a link leads to visible: partner of [`LINKS`](super::insert::LINKS).
pub(super) const FOLLOWS: Ordering = Ordering::Acquire;

/// A cut in the order of all nodes: each node lies before it or behind it.
pub(super) struct Target<'k> {
    root: u32,
    prefix: u64,
    /// The bits of a node's prefix that count.
    mask: u64,
    key: &'k [u8],
    edge: Edge,
}

/// Where the cut runs among the nodes that match the key.
#[derive(Clone, Copy)]
enum Edge {
    /// Before the newest version with `ts` or less.
    Version(u64),
    /// Behind all versions.
    AfterKey,
    /// Behind all versions of all keys that start with the key.
    AfterPrefix,
}

impl<'k> Target<'k> {
    /// The cut before the newest version of `key` that is `ts` or older.
    pub(super) fn version(root: Root, key: &'k [u8], ts: u64) -> Target<'k> {
        Target {
            root: root.get(),
            prefix: key_prefix(key),
            mask: u64::MAX,
            key,
            edge: Edge::Version(ts),
        }
    }

    /// The cut behind all versions of `key`.
    pub(super) fn after_key(root: Root, key: &'k [u8]) -> Target<'k> {
        Target {
            root: root.get(),
            prefix: key_prefix(key),
            mask: u64::MAX,
            key,
            edge: Edge::AfterKey,
        }
    }

    /// The cut behind everything that starts with `prefix`.
    pub(super) fn after_prefix(root: Root, prefix: &'k [u8]) -> Target<'k> {
        let mask = match prefix.len() {
            0 => 0,
            n @ 1..8 => u64::MAX << (64 - 8 * n),
            _ => u64::MAX,
        };
        Target {
            root: root.get(),
            prefix: key_prefix(prefix),
            mask,
            key: prefix,
            edge: Edge::AfterPrefix,
        }
    }

    /// Whether the node at `offset` lies before the cut.
    #[inline]
    pub(super) fn is_after(&self, arena: &Arena, offset: u32) -> bool {
        let fields = arena.fields(offset);
        if fields.root != self.root {
            return fields.root < self.root;
        }
        let prefix = fields.prefix & self.mask;
        if prefix != self.prefix {
            return prefix < self.prefix;
        }
        self.is_after_by_key(arena, offset, fields)
    }

    fn is_after_by_key(&self, arena: &Arena, offset: u32, fields: &NodeFields) -> bool {
        let order = if fields.key_len <= 8 && self.key.len() <= 8 && self.mask == u64::MAX {
            // Equal prefixes of short keys differ by trailing zero bytes at most.
            (fields.key_len as usize).cmp(&self.key.len())
        } else {
            arena.key(offset).cmp(self.key)
        };
        match self.edge {
            Edge::Version(ts) => order.is_lt() || (order.is_eq() && fields.ts > ts),
            Edge::AfterKey => order.is_le(),
            Edge::AfterPrefix => order.is_le() || arena.key(offset).starts_with(self.key),
        }
    }
}

/// The links around a cut, level by level.
pub(super) struct Splice {
    pub(super) prev: [u32; HEIGHT_MAX],
    pub(super) next: [u32; HEIGHT_MAX],
}

impl Splice {
    /// Where nothing is known.
    pub(super) fn at_head() -> Splice {
        Splice { prev: [HEAD; HEIGHT_MAX], next: [0; HEIGHT_MAX] }
    }
}

/// Counts the steps of one walk: more than the region could hold nodes means a cycle.
struct Steps(u32);

impl Steps {
    fn new(arena: &Arena) -> Steps {
        // A descent may pass each node once and turn once per level.
        Steps(arena.len() / FIELDS_BYTES + HEIGHT_MAX as u32)
    }

    #[inline]
    fn take(&mut self, offset: u32) {
        match self.0.checked_sub(1) {
            Some(left) => self.0 = left,
            None => damaged("links form a cycle", offset),
        }
    }
}

/// The node that `offset` (or the head) links to at `level`; 0 at the end.
#[inline]
pub(super) fn next_of(arena: &Arena, offset: u32, level: usize) -> u32 {
    arena.link(offset, level).load(FOLLOWS)
}

/// Height of the highest tower, at least 1.
pub(super) fn search_height(arena: &Arena) -> usize {
    // Relaxed: a hint. Starting too low costs steps and misses nothing, since level 0 holds every node.
    (arena.header().height.load(Ordering::Relaxed) as usize).clamp(1, HEIGHT_MAX)
}

/// The last node before the cut (the head if none) and the first one behind it (0 if none).
pub(super) fn find(arena: &Arena, target: &Target<'_>) -> (u32, u32) {
    find_down_to(arena, target, 0)
}

/// The same among the nodes that are higher than `lowest`.
#[inline(always)]
fn find_down_to(arena: &Arena, target: &Target<'_>, lowest: usize) -> (u32, u32) {
    let mut steps = Steps::new(arena);
    let mut level = (search_height(arena) - 1).max(lowest);
    let mut at = HEAD;
    // A node already known to lie behind the cut need not be compared again one level lower.
    let mut beyond = 0;
    loop {
        let next = next_of(arena, at, level);
        if next != 0 && next != beyond && target.is_after(arena, next) {
            steps.take(next);
            at = next;
            continue;
        }
        if level == lowest {
            return (at, next);
        }
        beyond = next;
        level -= 1;
    }
}

/// Level whose nodes are far enough apart for a walk from one to the next to be worth a search: sixteen on average.
const LEVEL_ABOVE: usize = 2;

/// A node some way before the cut; the head, or 0, if there is none.
pub(super) fn find_above(arena: &Arena, target: &Target<'_>) -> u32 {
    find_down_to(arena, target, LEVEL_ABOVE).0
}

/// Like `find`, for the writer: the links around the cut at every level, searched from the last insert's
/// position when the cut lies behind it.
pub(super) fn find_splice(arena: &Arena, target: &Target<'_>) -> Splice {
    let mut splice = Splice::at_head();
    match hinted_splice(arena, target) {
        Some(hinted) => {
            splice = hinted;
            move_splice(arena, target, &mut splice);
        }
        None => descend(arena, target, &mut splice, HEAD, search_height(arena)),
    }
    splice
}

/// From the links around one cut to those around another, which lies behind it.
pub(super) fn move_splice(arena: &Arena, target: &Target<'_>, splice: &mut Splice) {
    // Nodes of a level are nodes of the level below: once a link crosses the cut, those above it do.
    let top = search_height(arena);
    let is_passed = |next: u32| next != 0 && target.is_after(arena, next);
    let level = splice.next[..top].iter().take_while(|next| is_passed(**next)).count();
    if level > 0 {
        let at = splice.next[level - 1];
        descend(arena, target, splice, at, level);
    }
}

/// Fills a splice below `level`, from a node before the cut that is so high.
fn descend(arena: &Arena, target: &Target<'_>, splice: &mut Splice, mut at: u32, mut level: usize) {
    let mut steps = Steps::new(arena);
    let mut beyond = 0;
    while level > 0 {
        level -= 1;
        let mut next = next_of(arena, at, level);
        while next != 0 && next != beyond && target.is_after(arena, next) {
            steps.take(next);
            at = next;
            next = next_of(arena, at, level);
        }
        beyond = next;
        splice.prev[level] = at;
        splice.next[level] = next;
    }
}

/// The links around the last insert's position, if the cut lies behind it.
fn hinted_splice(arena: &Arena, target: &Target<'_>) -> Option<Splice> {
    let header = arena.header();
    // Relaxed, here and below: only writers touch the hint, and the commit mutex orders writers.
    if header.hint_valid.load(Ordering::Relaxed) != 1 {
        return None;
    }
    let prev = std::array::from_fn(|level| header.hint[level].load(Ordering::Relaxed));
    if prev[0] == HEAD || !target.is_after(arena, prev[0]) {
        return None;
    }
    let next = std::array::from_fn(|level| next_of(arena, prev[level], level));
    Some(Splice { prev, next })
}
