//! Adding a node: the writer's side of the skiplist, safe to abandon after any step.

use std::ops::ControlFlow;

use super::arena::{Arena, Payload};
use super::atomics::Ordering;
use super::layout::{
    HEIGHT_MAX, LINE_BYTES, NODE_HEAD_BYTES_MAX, NodeFields, key_prefix, root_bit,
};
use super::search::{Splice, Target, find_splice};
use super::shortcut::lead;
use super::space::{Place, Share, place};
use super::{ArenaFull, EntryKind};
use crate::ids::{CommitTs, Root};

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
    /// Space is taken, counters and filter are raised; nothing leads to the node.
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

/// Adds a version; does nothing when it is there already. `go_on` is asked after each step.
pub(super) fn insert(
    arena: &Arena,
    share: &mut Share,
    version: &Version<'_>,
    mut go_on: impl FnMut(Step) -> ControlFlow<()>,
) -> Result<(), ArenaFull> {
    let target = Target::version(version.root, version.key, version.ts.get());
    let splice = find_splice(arena, &target);
    if splice.next[0] != 0 && is_version(arena, splice.next[0], version) {
        // A killed insert may not have come this far.
        lead(arena, version.root, version.key, splice.prev[0], splice.next[0]);
        return Ok(());
    }
    let place = place(arena, share, version.key.len(), version.rec.len())?;
    // An early return below is a simulated kill: what follows would not have run.
    let _ = run(arena, share, version, &splice, &place, &mut go_on);
    Ok(())
}

fn run(
    arena: &Arena,
    share: &mut Share,
    version: &Version<'_>,
    splice: &Splice,
    place: &Place,
    go_on: &mut impl FnMut(Step) -> ControlFlow<()>,
) -> ControlFlow<()> {
    // Release: the links below must not become visible to the next writer before this.
    arena.header().hint_valid.store(0, Ordering::Release);
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
    go_on(Step::Led)?;
    set_hint(arena, splice, place);
    go_on(Step::HintSet)
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
    // Release: partner of the Acquire load in `search::next_of`; the node is complete before it is reachable.
    arena.link(prev, level).store(node, Ordering::Release);
}

fn set_hint(arena: &Arena, splice: &Splice, place: &Place) {
    let header = arena.header();
    for level in 0..HEIGHT_MAX {
        let at = if level < place.height { place.offset } else { splice.prev[level] };
        // Relaxed: only writers look, and `hint_valid` below comes after.
        header.hint[level].store(at, Ordering::Relaxed);
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
