//! The skiplist: inserts, searches and shortcuts. An insert is safe to abandon after any step.
//!
//! # Searches
//!
//! A search walks down the towers to a cut (`Target`).
//!
//! # Shortcuts
//!
//! A shortcut leads from a key to its newest version without a search.
//!
//! A search of the list touches some twenty nodes, nearly all of them far from any cache. Most
//! lookups know the whole key: a table of node offsets, hashed by root and key, answers them with
//! one node, or with none.
//!
//! A shortcut belongs to all keys of one hash. It leads to the newest version of the key that was
//! inserted last, or is 0 while none was inserted. A lookup that finds another key there searches
//! the list.
//!
//! Most keys that are looked up are in the base and in no memtable. A filter of a few bits for each
//! inserted key rules nearly all of them out without a search: a Bloom filter whose bits for a key
//! are in one word (Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters",
//! 2007). It belongs to MEM-5.
//!
//! Table and filter are small while little is in the region, and double as it fills ([`widen`]).
//! Place `i` of `n` becomes the two places `i` and `i + n`, with the same content: filter bits that
//! say too much, and perhaps a node of a key of the other place, which leads to a search. A reader
//! that still uses the smaller table finds in it all that its snapshot sees: later inserts, which
//! may be in the new half alone, were published after the new size.

use std::ops::ControlFlow;

use super::arena::{Arena, Payload, damaged};
use super::arena::{Place, Share, place};
use super::atomics::Ordering;
use super::layout::{
    FIELDS_BYTES, HEAD, HEIGHT_MAX, LINE_BYTES, NODE_HEAD_BYTES_MAX, NodeFields, filter_words,
    key_bits, key_prefix, mix, root_bit, shortcut_count,
};
use super::{ArenaFull, EntryKind, Node, STEPS_BEFORE_SEARCH};
use crate::fault;
use crate::ids::{CommitTs, Root, SnapshotTs};

/// The node is complete before it is reachable: partner of [`FOLLOWS`](super::list::FOLLOWS).
pub(super) const LINKS: Ordering = Ordering::Release;

/// A version to add.
pub(super) struct Version<'a> {
    pub(super) root: Root,
    pub(super) key: &'a [u8],
    pub(super) ts: CommitTs,
    pub(super) kind: EntryKind,
    pub(super) rec: &'a [u8],
}

/// The step that has just been done; a test stops there as a killed process would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The hint no longer counts.
    HintDropped,
    /// Node and record are complete, in space that is still free.
    Written,
    /// Space is taken, counters and filters are raised; nothing leads to the node.
    Reserved,
    /// The node is linked at this level and all lower ones.
    Linked(usize),
    /// The shortcut leads to the newest version of the key.
    Led,
    /// The hint holds the new position.
    HintSet,
}

/// Returns the most bytes that one node can take from the region.
pub(super) fn bytes_needed(key_len: usize, rec_len: usize) -> u32 {
    let head = (LINE_BYTES + NODE_HEAD_BYTES_MAX) as usize;
    let total = head.saturating_add(key_len).saturating_add(rec_len).saturating_add(8);
    u32::try_from(total).unwrap_or(u32::MAX)
}

/// Adds versions one after the other, for one writer that keeps the commit mutex. Remembers the
/// position of the last one: ascending keys need hardly any search. The drop sets the hint for the
/// next writer.
pub struct Inserter<'a> {
    arena: &'a Arena,
    share: &'a mut Share,
    /// The links around the last version that was added or found, if `is_placed`.
    last: Splice,
    is_placed: bool,
    /// The hint is invalid, and has to be made anew.
    dropped_hint: bool,
}

impl<'a> Inserter<'a> {
    pub(super) fn new(arena: &'a Arena, share: &'a mut Share) -> Inserter<'a> {
        Inserter { arena, share, last: Splice::at_head(), is_placed: false, dropped_hint: false }
    }

    /// Adds a version of a key; does nothing when (root, key, ts) is there already.
    pub fn insert(
        &mut self,
        root: Root,
        key: &[u8],
        ts: CommitTs,
        kind: EntryKind,
        rec: &[u8],
    ) -> Result<(), ArenaFull> {
        let version = Version { root, key, ts, kind, rec };
        self.add(&version, &mut |_| ControlFlow::Continue(())).map(drop)
    }

    /// Adds a version as `insert` does, and calls `go_on` after each step. A break is a simulated
    /// kill: nothing after that step runs.
    pub(super) fn add(
        &mut self,
        version: &Version<'_>,
        go_on: &mut impl FnMut(Step) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, ArenaFull> {
        let arena = self.arena;
        let target = Target::version(version.root, version.key, version.ts.get());
        let was_placed = std::mem::replace(&mut self.is_placed, false);
        let before = self.last.prev[0];
        if was_placed && before != HEAD && target.is_after(arena, before) {
            move_splice(arena, &target, &mut self.last);
        } else {
            self.last = find_splice(arena, &target);
        }
        let splice = &mut self.last;
        if splice.next[0] != 0 && is_version(arena, splice.next[0], version) {
            // The killed insert that linked the version may have died before this.
            let hash = hash(version.root.get(), version.key);
            lead(arena, version, hash, splice.prev[0], splice.next[0]);
            self.is_placed = true;
            return Ok(ControlFlow::Continue(()));
        }
        let place = place(arena, self.share, version.key.len(), version.rec.len())?;
        if !self.dropped_hint {
            // Release: the next writer must not find the links below with the old hint. Their own
            // Release stores keep this store before them.
            arena.header().hint_valid.store(0, Ordering::Release);
            self.dropped_hint = true;
        }
        let done = link_in(arena, self.share, version, splice, &place, go_on);
        if done.is_continue() {
            splice.prev[..place.height].fill(place.offset);
            self.is_placed = true;
        }
        Ok(done)
    }

    fn set_hint(&mut self) {
        if std::mem::replace(&mut self.is_placed, false) && self.dropped_hint {
            set_hint(self.arena, &self.last);
        }
    }
}

impl Drop for Inserter<'_> {
    fn drop(&mut self) {
        self.set_hint();
    }
}

/// Adds one version. Calls `go_on` after each step.
pub(super) fn insert(
    arena: &Arena,
    share: &mut Share,
    version: &Version<'_>,
    mut go_on: impl FnMut(Step) -> ControlFlow<()>,
) -> Result<(), ArenaFull> {
    let mut inserter = Inserter::new(arena, share);
    if inserter.add(version, &mut go_on)?.is_continue() {
        inserter.set_hint();
        let _ = go_on(Step::HintSet);
    }
    Ok(())
}

fn link_in(
    arena: &Arena,
    share: &mut Share,
    version: &Version<'_>,
    splice: &Splice,
    place: &Place,
    go_on: &mut impl FnMut(Step) -> ControlFlow<()>,
) -> ControlFlow<()> {
    go_on(Step::HintDropped)?;
    // The space is taken last: a writer killed while it copies a large record has lost none.
    write(arena, version, splice, place);
    go_on(Step::Written)?;
    place.take(arena, share);
    let hash = hash(version.root.get(), version.key);
    announce(arena, version, place, hash);
    go_on(Step::Reserved)?;
    for level in 0..place.height {
        link(arena, splice.prev[level], level, place.offset);
        go_on(Step::Linked(level))?;
    }
    lead(arena, version, hash, splice.prev[0], place.offset);
    go_on(Step::Led)
}

/// Raises everything that must never lag behind a linked node.
fn announce(arena: &Arena, version: &Version<'_>, place: &Place, hash: u64) {
    let header = arena.header();
    // Relaxed throughout: one writer; the Release store of the first link publishes these with the
    // node.
    let count = header.node_count.load(Ordering::Relaxed);
    header.node_count.store(count.wrapping_add(1), Ordering::Relaxed);
    if version.ts.get() > header.ts_max.load(Ordering::Relaxed) {
        header.ts_max.store(version.ts.get(), Ordering::Relaxed);
    }
    if place.height > header.height.load(Ordering::Relaxed) as usize {
        header.height.store(place.height as u32, Ordering::Relaxed);
    }
    let (word, bit) = root_bit(version.root.get());
    let bits = header.roots[word].load(Ordering::Relaxed);
    if bits & bit == 0 {
        header.roots[word].store(bits | bit, Ordering::Relaxed);
    }
    enter(arena, hash);
}

#[allow(unsafe_code)]
fn write(arena: &Arena, version: &Version<'_>, splice: &Splice, place: &Place) {
    let fields = NodeFields {
        prefix: key_prefix(version.key),
        ts: version.ts.get(),
        root: version.root.get(),
        key_len: version.key.len() as u32,
        rec_len: version.rec.len() as u32,
        kind: version.kind as u8,
        height: place.height as u8,
        pad: 0,
    };
    let links = &splice.next[..place.height];
    let payload = Payload { key: version.key, rec: version.rec, rec_at: place.rec_at };
    // SAFETY: one writer at a time (contract of `Memtable::insert`); `place` found this space in
    // the free space or in the share, so no link leads into it (SPACE-1).
    unsafe { arena.write_node(place.offset, &fields, links, &payload) };
}

fn link(arena: &Arena, prev: u32, level: usize, node: u32) {
    let order =
        if fault::is_planted("memtable.linked_unordered") { Ordering::Relaxed } else { LINKS };
    arena.link(prev, level).store(node, order);
}

fn set_hint(arena: &Arena, last: &Splice) {
    let header = arena.header();
    for (hint, at) in header.hint.iter().zip(last.prev) {
        // Relaxed: only writers look, and `hint_valid` is stored after it.
        hint.store(at, Ordering::Relaxed);
    }
    // Release: a writer that finds 1 after a kill finds all of the hint.
    header.hint_valid.store(1, Ordering::Release);
}

fn is_version(arena: &Arena, offset: u32, version: &Version<'_>) -> bool {
    let fields = arena.fields(offset);
    fields.root == version.root.get()
        && fields.ts == version.ts.get()
        && arena.key(offset) == version.key
}

/// Makes fields and payload of a linked node visible: partner of [`LINKS`](super::list::LINKS).
pub(super) const FOLLOWS: Ordering = Ordering::Acquire;

/// A cut in the order of all nodes: each node is before it or behind it.
pub(super) struct Target<'k> {
    root: u32,
    prefix: u64,
    /// The bits of a node's prefix that count.
    mask: u64,
    key: &'k [u8],
    edge: Edge,
}

/// The position of the cut among the nodes that match the key.
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
    /// Returns the cut before the newest version of `key` that is `ts` or older.
    pub(super) fn version(root: Root, key: &'k [u8], ts: u64) -> Target<'k> {
        Target {
            root: root.get(),
            prefix: key_prefix(key),
            mask: u64::MAX,
            key,
            edge: Edge::Version(ts),
        }
    }

    /// Returns the cut behind all versions of `key`.
    pub(super) fn after_key(root: Root, key: &'k [u8]) -> Target<'k> {
        Target {
            root: root.get(),
            prefix: key_prefix(key),
            mask: u64::MAX,
            key,
            edge: Edge::AfterKey,
        }
    }

    /// Returns the cut behind everything that starts with `prefix`.
    pub(super) fn after_prefix(root: Root, prefix: &'k [u8]) -> Target<'k> {
        if prefix.is_empty()
            && let Some(next) = root.get().checked_add(1)
        {
            // Behind all of a root is before all of the next one, which takes no look at keys.
            return Target::version(Root::new(next), prefix, u64::MAX);
        }
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

    /// True if the cut is after the node at `offset`. A search asks for each node that it passes: a
    /// call would be a third of that.
    #[inline(always)]
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
    /// Returns a splice that knows no node.
    pub(super) fn at_head() -> Splice {
        Splice { prev: [HEAD; HEIGHT_MAX], next: [0; HEIGHT_MAX] }
    }
}

/// Counts the steps of one walk: more than the region can hold nodes means a cycle.
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

/// Returns the node that `offset` (or the head) links to at `level`; 0 at the end.
#[inline]
pub(super) fn next_of(arena: &Arena, offset: u32, level: usize) -> u32 {
    arena.link(offset, level).load(FOLLOWS)
}

/// Returns the height of the highest tower, at least 1.
pub(super) fn search_height(arena: &Arena) -> usize {
    // Relaxed: a hint. Starting too low costs steps and misses nothing, since level 0 holds every
    // node.
    (arena.header().height.load(Ordering::Relaxed) as usize).clamp(1, HEIGHT_MAX)
}

/// Returns the last node before the cut (the head if none) and the first one behind it (0 if none).
pub(super) fn find(arena: &Arena, target: &Target<'_>) -> (u32, u32) {
    find_down_to(arena, target, 0)
}

/// Finds the cut among the nodes that are higher than `lowest`.
#[inline(always)]
fn find_down_to(arena: &Arena, target: &Target<'_>, lowest: usize) -> (u32, u32) {
    let mut steps = Steps::new(arena);
    let mut level = (search_height(arena) - 1).max(lowest);
    let mut at = HEAD;
    // A node known to be behind the cut is not compared again one level lower.
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

/// A level whose nodes are sixteen apart on average: far enough for a walk between two to be worth
/// a search.
const LEVEL_ABOVE: usize = 2;

/// Returns a node some way before the cut; the head if there is none.
pub(super) fn find_above(arena: &Arena, target: &Target<'_>) -> u32 {
    find_down_to(arena, target, LEVEL_ABOVE).0
}

/// Returns the links around the cut at every level. The writer's search starts at the last insert's
/// position if the cut is behind it.
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

/// Moves a splice from one cut to another behind it.
pub(super) fn move_splice(arena: &Arena, target: &Target<'_>, splice: &mut Splice) {
    // Nodes of a level are nodes of the level below: once a link crosses the cut, those above it
    // do.
    let top = search_height(arena);
    let is_passed = |next: u32| next != 0 && target.is_after(arena, next);
    let level = splice.next[..top].iter().take_while(|next| is_passed(**next)).count();
    if level > 0 {
        let at = splice.next[level - 1];
        descend(arena, target, splice, at, level);
    }
}

/// Fills a splice below `level`, from a node before the cut that has this height.
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

/// Returns the links around the last insert's position, if the cut is behind it.
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

/// Partner of [`LOOKS_UP`].
pub(super) const LEADS: Ordering = Ordering::Release;
/// The node behind the shortcut is complete and linked: partner of [`LEADS`].
pub(super) const LOOKS_UP: Ordering = Ordering::Acquire;

/// The answer of a shortcut.
pub(super) enum Way {
    /// The newest version that the snapshot sees; 0 if there is none.
    To(u32),
    /// None: search.
    Unknown,
}

/// Hashes a key: its eight-byte words, one after the other, through a mixing function.
pub(super) fn hash(root: u32, key: &[u8]) -> u64 {
    let mut words = key.chunks_exact(8);
    let mut h = mix(u64::from(root) << 32 | key.len() as u64);
    for word in words.by_ref() {
        h = mix(h ^ super::layout::key_prefix(word));
    }
    mix(h ^ super::layout::key_prefix(words.remainder()))
}

/// Looks a key up in filter and shortcuts.
pub(super) fn look_up(arena: &Arena, root: Root, key: &[u8], at: SnapshotTs) -> Way {
    let hash = hash(root.get(), key);
    // Relaxed: a commit that the snapshot sees was published after its bits, and the snapshot was
    // read before.
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
        // Older versions follow, then other keys: if one of these is next, no version is seen.
        offset = next_of(arena, offset, 0);
        if offset != 0 && !(Node { arena, offset }).is_of(root, key) {
            return Way::To(0);
        }
    }
    Way::Unknown
}

/// Enters a key with this hash into the filter, before it is linked. The caller is the only writer.
fn enter(arena: &Arena, hash: u64) {
    let word = arena.filter_word(hash);
    // Relaxed: the Release store of the first link publishes the bits with the node (MEM-5).
    let bits = word.load(Ordering::Relaxed);
    word.store(bits | key_bits(hash), Ordering::Relaxed);
}

/// Makes the shortcut of a key with this hash lead to its newest version. `version`, at `offset`
/// behind `prev`, has just been linked or was found linked. The caller is the only writer.
fn lead(arena: &Arena, version: &Version<'_>, hash: u64, prev: u32, offset: u32) {
    let (root, key) = (version.root, version.key);
    let is_newest = prev == HEAD || !(Node { arena, offset: prev }).is_of(root, key);
    let newest =
        if is_newest { offset } else { find(arena, &Target::version(root, key, u64::MAX)).1 };
    arena.shortcut(hash).store(newest, LEADS);
}

/// Makes shortcuts and filter large enough to serve `covers` bytes. The caller is the only writer;
/// if it dies in between, nothing has changed.
pub(super) fn widen(arena: &Arena, covers: u32) {
    let before = arena.covers();
    // Relaxed: published with the new size; before that no reader looks there. Both sizes are
    // powers of two.
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
        // The smallest rows are the most numerous.
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
                    // Each third key gets an older version too.
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
        assert!(table.check().expect_err("MEM-5").contains("not in the filter"));
    }
}
