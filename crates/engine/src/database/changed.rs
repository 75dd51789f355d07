//! The b-trees that the last exclusive transactions have changed: only transactions that touched
//! these conflict with them (EXCL-3 in txn/exclusive.rs).
//!
//! What an exclusive transaction changes is in the base and in no memtable, so no validation can
//! look for a key there. So the transaction names the b-trees. A ring in shared memory has the last
//! such transactions, the newest last; each names the one before it. It relies on readers to note
//! every b-tree that they have looked into, also one that only exclusive transactions write
//! (READSET-6 in readset.c).
//!
//! Maxima (commit/maximum.rs), which all tables with AUTOINCREMENT have in one b-tree, are named
//! one by one: a transaction that has raised other maxima, and done nothing else there, does not
//! conflict.
//!
//! Invariants
//! - CHANGED-1 An exclusive transaction is in the ring, under the generation that it has stamped,
//!   before `exclusive_generation` says that there is one. If its author could not say what it has
//!   changed, its entry says that this is unknown.
//! - CHANGED-2 A lookup covers each exclusive transaction that the base of the snapshot lacks, from
//!   the newest to the first. If a place of the ring was used again, or an entry is unknown,
//!   anything may have changed.
//! - CHANGED-3 Root pages name b-trees as long as no schema changes. What changes the schema, which
//!   is a b-tree itself, has changed anything.

use std::sync::atomic::Ordering::Relaxed;

use crate::ids::{Generation, Root};
use crate::shm::layout::{
    EXCLUSIVE_COMMITS, EXCLUSIVE_MAXIMA, EXCLUSIVE_ROOTS, ExclusiveCommit, ExclusiveRing,
};

/// The b-tree of the schema.
const SCHEMA: u32 = 1;
/// Stands for any b-tree, in the place of a count.
const ANY: u32 = u32::MAX;

/// The b-trees that a transaction has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changed {
    len: u32,
    roots: [u32; EXCLUSIVE_ROOTS],
    maxima_root: u32,
    maxima_len: u32,
    maxima: [u64; EXCLUSIVE_MAXIMA],
}

impl Changed {
    const NOTHING: Changed = Changed {
        len: 0,
        roots: [0; EXCLUSIVE_ROOTS],
        maxima_root: 0,
        maxima_len: 0,
        maxima: [0; EXCLUSIVE_MAXIMA],
    };
    /// Any b-tree, and the schema.
    pub const ANYTHING: Changed = Changed { len: ANY, ..Changed::NOTHING };

    /// Rows of the b-trees `roots`. Too many, or the schema among them, are anything.
    pub fn rows_of(roots: &[u32]) -> Changed {
        let mut changed = Changed { len: roots.len() as u32, ..Changed::NOTHING };
        match changed.roots.get_mut(..roots.len()) {
            Some(known) if !roots.contains(&SCHEMA) => known.copy_from_slice(roots),
            _ => return Changed::ANYTHING,
        }
        changed
    }

    /// Adds, in the b-tree `root`, these maxima alone, which were raised or made. Too many are
    /// anything.
    pub fn and_maxima(mut self, root: Root, keys: &[u64]) -> Changed {
        let Some(known) = self.maxima.get_mut(..keys.len()) else { return Changed::ANYTHING };
        known.copy_from_slice(keys);
        (self.maxima_root, self.maxima_len) = (root.get(), keys.len() as u32);
        self
    }

    /// The known b-trees, without that of maxima; `None`: any may have changed.
    pub(crate) fn known(&self) -> Option<&[u32]> {
        self.roots.get(..self.len as usize)
    }
}

/// A part of what was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// Rows of this b-tree.
    Rows(Root),
    /// The maxima under these keys alone, in this b-tree.
    Maxima(Root, &'a [u64]),
}

/// What exclusive transactions have changed since a base was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangedSince {
    /// There was no exclusive transaction.
    Nothing,
    /// None of what concerns the caller.
    Elsewhere,
    /// A b-tree that concerns the caller, or `None`: anything may have changed.
    Here(Option<Root>),
}

/// (M) Adds an entry (CHANGED-1). `before`: the value of `exclusive_generation`.
pub(super) fn note(ring: &ExclusiveRing, before: u32, generation: u32, changed: &Changed) {
    let next = ring.next.load(Relaxed);
    let place = &ring.commits[next as usize % EXCLUSIVE_COMMITS];
    place.generation.store(generation, Relaxed);
    place.before.store(before, Relaxed);
    place.len.store(changed.len, Relaxed);
    place.maxima_root.store(changed.maxima_root, Relaxed);
    place.maxima_len.store(changed.maxima_len, Relaxed);
    for (to, root) in place.roots.iter().zip(changed.roots) {
        to.store(root, Relaxed);
    }
    for (to, key) in place.maxima.iter().zip(changed.maxima) {
        to.store(key, Relaxed);
    }
    ring.next.store(next.wrapping_add(1), Relaxed);
}

/// (M) Returns what exclusive transactions have changed since generation `base`, of the parts that
/// `concerns` the caller. `newest`: the value of `exclusive_generation`.
pub(super) fn since(
    ring: &ExclusiveRing,
    newest: u32,
    base: Generation,
    mut concerns: impl FnMut(Part<'_>) -> bool,
) -> ChangedSince {
    let mut wanted = newest;
    if wanted <= base.get() {
        return ChangedSince::Nothing;
    }
    let next = ring.next.load(Relaxed);
    for back in 1..=EXCLUSIVE_COMMITS as u32 {
        let place = &ring.commits[next.wrapping_sub(back) as usize % EXCLUSIVE_COMMITS];
        let known = place.roots.get(..place.len.load(Relaxed) as usize);
        let Some(roots) = known.filter(|_| place.generation.load(Relaxed) == wanted) else {
            return ChangedSince::Here(None);
        };
        let root = roots.iter().map(|root| Root::new(root.load(Relaxed)));
        let hit = root.into_iter().find(|&root| concerns(Part::Rows(root)));
        if hit.is_some() || maxima_concern(place, &mut concerns) {
            return ChangedSince::Here(hit.or(Some(Root::new(place.maxima_root.load(Relaxed)))));
        }
        wanted = place.before.load(Relaxed);
        if wanted <= base.get() {
            return ChangedSince::Elsewhere;
        }
    }
    ChangedSince::Here(None)
}

fn maxima_concern(place: &ExclusiveCommit, concerns: &mut impl FnMut(Part<'_>) -> bool) -> bool {
    let root = place.maxima_root.load(Relaxed);
    let keys: [u64; EXCLUSIVE_MAXIMA] = std::array::from_fn(|i| place.maxima[i].load(Relaxed));
    // A length beyond the array is damage: any maximum may have changed.
    match keys.get(..place.maxima_len.load(Relaxed) as usize) {
        Some(keys) => root != 0 && concerns(Part::Maxima(Root::new(root), keys)),
        None => concerns(Part::Rows(Root::new(root))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Ring(ExclusiveRing, u32);

    fn ring() -> Ring {
        let commits = std::array::from_fn(|_| ExclusiveCommit::default());
        Ring(ExclusiveRing { next: 0.into(), pad: 0.into(), commits }, 0)
    }

    fn commit(r: &mut Ring, generation: u32, changed: &Changed) {
        note(&r.0, r.1, generation, changed);
        r.1 = generation;
    }

    fn asked(r: &Ring, base: u32, roots: &[u32]) -> ChangedSince {
        let concerns =
            |part: Part<'_>| matches!(part, Part::Rows(root) if roots.contains(&root.get()));
        since(&r.0, r.1, Generation::new(base), concerns)
    }

    // holds CHANGED-2
    #[test]
    fn each_since_the_base_is_asked_and_none_before_it() {
        let mut r = ring();
        assert_eq!(asked(&r, 0, &[5]), ChangedSince::Nothing);
        commit(&mut r, 3, &Changed::rows_of(&[5, 6]));
        commit(&mut r, 9, &Changed::rows_of(&[7]));
        assert_eq!(asked(&r, 2, &[6]), ChangedSince::Here(Some(Root::new(6))));
        assert_eq!(asked(&r, 2, &[7]), ChangedSince::Here(Some(Root::new(7))));
        assert_eq!(asked(&r, 2, &[8]), ChangedSince::Elsewhere);
        assert_eq!(asked(&r, 3, &[6]), ChangedSince::Elsewhere);
        assert_eq!(asked(&r, 9, &[7]), ChangedSince::Nothing);
    }

    // holds CHANGED-3
    #[test]
    fn what_nobody_can_tell_is_anything() {
        let mut r = ring();
        let many: Vec<u32> = (2..3 + EXCLUSIVE_ROOTS as u32).collect();
        for changed in [Changed::ANYTHING, Changed::rows_of(&many), Changed::rows_of(&[4, 1])] {
            assert_eq!(changed.known(), None);
        }
        assert_eq!(Changed::rows_of(&many[1..]).known(), Some(&many[1..]));
        commit(&mut r, 3, &Changed::ANYTHING);
        commit(&mut r, 4, &Changed::rows_of(&[7]));
        assert_eq!(asked(&r, 3, &[5]), ChangedSince::Elsewhere);
        assert_eq!(asked(&r, 2, &[5]), ChangedSince::Here(None));
        // Its author was killed before `exclusive_generation` was stored; another process adds it
        // again.
        note(&r.0, r.1, 5, &Changed::rows_of(&[8]));
        commit(&mut r, 5, &Changed::ANYTHING);
        assert_eq!(asked(&r, 4, &[5]), ChangedSince::Here(None));
    }

    #[test]
    fn maxima_are_asked_for_one_by_one() {
        let mut r = ring();
        commit(&mut r, 3, &Changed::rows_of(&[5]).and_maxima(Root::new(4), &[1, 2]));
        let mut parts = Vec::new();
        let answer = since(&r.0, r.1, Generation::new(2), |part| {
            parts.push(format!("{part:?}"));
            matches!(part, Part::Maxima(..))
        });
        assert_eq!(answer, ChangedSince::Here(Some(Root::new(4))));
        let maxima = Part::Maxima(Root::new(4), &[1, 2]);
        assert_eq!(parts, [format!("{:?}", Part::Rows(Root::new(5))), format!("{maxima:?}")]);
        assert_eq!(asked(&r, 2, &[4]), ChangedSince::Elsewhere);
        let many = [0; EXCLUSIVE_MAXIMA + 1];
        assert_eq!(Changed::rows_of(&[5]).and_maxima(Root::new(4), &many), Changed::ANYTHING);
    }

    // holds CHANGED-2
    #[test]
    fn the_ring_forgets_the_oldest() {
        let mut r = ring();
        let last = 10 + EXCLUSIVE_COMMITS as u32;
        for generation in 10..=last {
            commit(&mut r, generation, &Changed::rows_of(&[7]));
        }
        assert_eq!(asked(&r, 10, &[5]), ChangedSince::Elsewhere);
        assert_eq!(asked(&r, 9, &[5]), ChangedSince::Here(None));
    }
}
