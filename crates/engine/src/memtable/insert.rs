//! Adding a node: the writer's side of the skiplist, safe to abandon after any step.

use std::ops::ControlFlow;

use super::arena::{Arena, Payload};
use super::atomics::Ordering;
use super::layout::{HEAD, LINE_BYTES, NODE_HEAD_BYTES_MAX, NodeFields, key_prefix, root_bit};
use super::search::{Splice, Target, find_splice, move_splice};
use super::shortcut::{enter, lead};
use super::space::{Place, Share, place};
use super::{ArenaFull, EntryKind};
use crate::fault;
use crate::ids::{CommitTs, Root};

/// The node is complete before it is reachable: partner of [`FOLLOWS`](super::search::FOLLOWS).
pub(super) const LINKS: Ordering = Ordering::Release;

/// A version to be added.
pub(super) struct Version<'a> {
    pub(super) root: Root,
    pub(super) key: &'a [u8],
    pub(super) ts: CommitTs,
    pub(super) kind: EntryKind,
    pub(super) rec: &'a [u8],
}

/// What has just been done; a test stops there as a killed process would.
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

/// Most bytes that one node can take from the region.
pub(super) fn bytes_needed(key_len: usize, rec_len: usize) -> u32 {
    let head = (LINE_BYTES + NODE_HEAD_BYTES_MAX) as usize;
    let total = head.saturating_add(key_len).saturating_add(rec_len).saturating_add(8);
    u32::try_from(total).unwrap_or(u32::MAX)
}

/// Adds versions one after the other, by one writer who keeps the commit mutex meanwhile. It remembers where the last one went:
/// keys in ascending order are hardly searched for. The hint of the next writer is made when it is dropped.
pub struct Inserter<'a> {
    arena: &'a Arena,
    share: &'a mut Share,
    /// Around the last version that was added, or found, if `is_placed`.
    last: Splice,
    is_placed: bool,
    /// The hint does not count: it has to be made anew.
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

    /// The same. `go_on` is asked after each step; an early return is a simulated kill: what follows would not have run.
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
            // A killed insert may not have come this far.
            lead(arena, version.root, version.key, splice.prev[0], splice.next[0]);
            self.is_placed = true;
            return Ok(ControlFlow::Continue(()));
        }
        let place = place(arena, self.share, version.key.len(), version.rec.len())?;
        if !self.dropped_hint {
            // Release: the links below must not become visible to the next writer before this.
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

/// Adds one version. `go_on` is asked after each step.
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
    // The space is taken last: a writer killed while it copies a large record has lost none of it.
    write(arena, version, splice, place);
    go_on(Step::Written)?;
    place.take(arena, share);
    announce(arena, version, place);
    go_on(Step::Reserved)?;
    for level in 0..place.height {
        link(arena, splice.prev[level], level, place.offset);
        go_on(Step::Linked(level))?;
    }
    lead(arena, version.root, version.key, splice.prev[0], place.offset);
    go_on(Step::Led)
}

/// Raises everything that must never lag behind a linked node.
fn announce(arena: &Arena, version: &Version<'_>, place: &Place) {
    let header = arena.header();
    // Relaxed throughout: one writer; the Release store of the first link publishes these with the node.
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
    enter(arena, version.root, version.key);
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
    // SAFETY: one writer at a time (contract of `Memtable::insert`); `place` found this space in the free one or in the share,
    // so no link leads into it (A1).
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
        // Relaxed: only writers look, and `hint_valid` below comes after.
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
