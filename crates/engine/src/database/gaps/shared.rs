//! The gaps that all processes know: a table in shared memory behind a sequence lock (GAP-1 to
//! GAP-4, GAP-6).

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use super::set::{Bound, Gap, GapSet, farther};
use crate::crash_point;
use crate::fault;
use crate::ids::{Root, SnapshotTs};
use crate::shm::layout::{GAP_BOUND_WORDS, GapSlot, GapTable};

/// Tries to read a table that is changing: a change takes a microsecond, and a walk can do without
/// a gap.
const LOOKS: u32 = 4;

/// A gap's last use is marked once in so many commits: others read the same words.
const COMMITS_PER_USE: u64 = 64;

/// True if `slot` is a gap of this b-tree that is right for this snapshot.
fn is_for(slot: &GapSlot, root: Root, at: SnapshotTs) -> bool {
    slot.root.load(Relaxed) == root.get() && slot.ts.load(Relaxed) <= at.get()
}

fn load(slot: &GapSlot) -> Gap {
    // Relaxed, here and in `store`: the sequence lock says whether what was read belongs together.
    let words =
        |from: &[AtomicU64; GAP_BOUND_WORDS]| from.each_ref().map(|word| word.load(Relaxed));
    Gap {
        root: Root::new(slot.root.load(Relaxed)),
        lo: Bound::from_words(words(&slot.lo)),
        hi: Bound::from_words(words(&slot.hi)),
        ts: slot.ts.load(Relaxed),
        used: slot.used.load(Relaxed),
    }
}

fn store(slot: &GapSlot, gap: &Gap) {
    slot.root.store(gap.root.get(), Relaxed);
    slot.ts.store(gap.ts, Relaxed);
    slot.used.store(gap.used, Relaxed);
    for (to, word) in slot.lo.iter().zip(gap.lo.words()) {
        to.store(word, Relaxed);
    }
    for (to, word) in slot.hi.iter().zip(gap.hi.words()) {
        to.store(word, Relaxed);
    }
}

impl GapTable {
    fn in_use(&self) -> &[GapSlot] {
        let used = (self.used.load(Relaxed) as usize).min(self.slots.len());
        &self.slots[..used]
    }

    /// Returns what `look` finds in a table that stays as it is; `None` if each try meets a change,
    /// or the table is empty.
    fn read<'t, T>(&'t self, look: impl Fn(&'t [GapSlot]) -> Option<T>) -> Option<T> {
        if self.used.load(Relaxed) == 0 {
            return None;
        }
        for _ in 0..LOOKS {
            // Acquire pairs with the last Release in `replace`.
            let before = self.seq.load(Acquire);
            if before & 1 == 0 {
                let found = look(self.in_use());
                // Acquire: the reads come before the second load of the number.
                fence(Acquire);
                if self.seq.load(Relaxed) == before {
                    return found;
                }
            }
            std::hint::spin_loop();
        }
        None
    }

    /// (M) Replaces all gaps. A death in here leaves an odd number, and a repair (GAP-3).
    fn replace(&self, gaps: &[Gap]) {
        let odd = self.seq.load(Relaxed) | 1;
        self.seq.store(odd, Relaxed);
        // Release: a reader that sees any of what follows sees the odd number.
        fence(Release);
        crash_point!("gaps.begun");
        for (slot, gap) in self.slots.iter().zip(gaps) {
            store(slot, gap);
        }
        self.used.store(gaps.len() as u32, Relaxed);
        crash_point!("gaps.stored");
        // Release pairs with the Acquire in `read`.
        self.seq.store(odd.wrapping_add(1), Release);
    }

    /// (M, or no other process is there) Forgets all gaps (GAP-3, GAP-4).
    pub(crate) fn forget(&self) {
        if self.used.load(Relaxed) != 0 || self.seq.load(Relaxed) & 1 != 0 {
            self.replace(&[]);
        }
    }

    /// (M) All gaps.
    fn all(&self) -> GapSet {
        let mut set = GapSet::new();
        for slot in self.in_use() {
            set.push(load(slot));
        }
        set
    }

    /// (M) Adds a gap that was walked in the newest state (GAP-1).
    pub(crate) fn add(&self, gap: &Gap) {
        let mut set = self.all();
        if set.add(*gap) {
            self.replace(set.as_slice());
        }
    }

    /// The farthest end, in one direction, of the gaps around a key that are right for a snapshot.
    pub(crate) fn end_of(
        &self,
        root: Root,
        key: &[u8],
        forward: bool,
        at: SnapshotTs,
    ) -> Option<Bound> {
        let (slot, end) = self.read(|slots| {
            let fitting = slots.iter().filter(|slot| is_for(slot, root, at));
            let loaded = fitting.map(|slot| (slot, load(slot)));
            let around = loaded.filter(|(_, gap)| gap.covers(root, key));
            around
                .map(|(slot, gap)| (slot, gap.end(forward)))
                .reduce(|a, b| if farther(a.1, b.1, forward) == a.1 { a } else { b })
        })?;
        // Relaxed: a hint, whatever gap is in the slot by now.
        if slot.used.load(Relaxed) + COMMITS_PER_USE < at.get() {
            slot.used.store(at.get(), Relaxed);
        }
        Some(end)
    }

    /// Of the gaps that end behind `from` and are right for a snapshot, the one that begins first.
    pub(crate) fn first_behind(&self, root: Root, from: &[u8], at: SnapshotTs) -> Option<Gap> {
        self.read(|slots| {
            let fitting = slots.iter().filter(|slot| is_for(slot, root, at)).map(load);
            let behind = fitting.filter(|gap| gap.hi.bytes() > from);
            behind.min_by(|a, b| {
                a.lo.bytes().cmp(b.lo.bytes()).then_with(|| b.hi.bytes().cmp(a.hi.bytes()))
            })
        })
    }

    /// (M) Cuts the puts of a commit out of the gaps (GAP-2).
    pub(crate) fn cut(&self, writes: &impl Puts) {
        if fault::is_planted("gaps.uncut") {
            return;
        }
        let is_hit = |slot: &GapSlot| {
            // Most commits end here: they have no put in a b-tree with gaps.
            if !writes.has_root(Root::new(slot.root.load(Relaxed))) {
                return false;
            }
            puts_in(writes, &load(slot)).next().is_some()
        };
        if self.in_use().iter().any(is_hit) {
            let mut set = self.all();
            set.cut(|gap| puts_in(writes, gap));
            self.replace(set.as_slice());
        }
    }
}

/// The puts of a transaction.
pub(crate) trait Puts {
    /// True if the transaction has written into this b-tree.
    fn has_root(&self, root: Root) -> bool;
    /// Keys of puts in `lo..hi`.
    fn puts_between<'w>(
        &'w self,
        root: Root,
        lo: &[u8],
        hi: &[u8],
    ) -> impl Iterator<Item = &'w [u8]> + use<'w, Self>;
}

fn puts_in<'w, P: Puts>(writes: &'w P, gap: &Gap) -> impl Iterator<Item = &'w [u8]> + use<'w, P> {
    writes.puts_between(gap.root, gap.lo.bytes(), gap.hi.bytes())
}
