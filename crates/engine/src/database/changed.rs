//! Which b-trees the last exclusive transactions have changed, so that only those conflict with one that have to (EXCL-3 in txn/exclusive.rs).
//!
//! What an exclusive transaction changes is in the base and in no memtable: nobody can look for a key there. So it names the b-trees. A ring
//! in shared memory has the last of them, newest behind the others; each says which came before it. It counts on readers to have noted
//! every b-tree that they have looked into, also one that nobody but exclusive transactions writes (READSET-6 in readset.c).
//!
//! Maxima (commit/maximum.rs), which all tables with AUTOINCREMENT have in one b-tree, are named one by one: who has raised others, and done
//! nothing else there, has nothing to do with them.
//!
//! Invariants
//! - CHANGED-1 An exclusive transaction is in the ring, under the generation that it has stamped, before `exclusive_generation` says that there
//!   is one; where its author could not say what it has changed, as one of which nothing is known.
//! - CHANGED-2 Who asks has an answer for each that the base of his snapshot lacks, from the newest to the first: a place of the ring that was used
//!   again, or an author of which nothing is known, means that anything may have changed.
//! - CHANGED-3 Root pages are names of b-trees as long as no schema changes: what changes the schema, which is a b-tree itself, has changed anything.

use std::sync::atomic::Ordering::Relaxed;

use crate::ids::{Generation, Root};
use crate::shm::layout::{
    EXCLUSIVE_COMMITS, EXCLUSIVE_MAXIMA, EXCLUSIVE_ROOTS, ExclusiveCommit, ExclusiveRing,
};

/// The b-tree of the schema.
const SCHEMA: u32 = 1;
/// In place of a number of b-trees.
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
    /// Any of them, and the schema.
    pub const ANYTHING: Changed = Changed { len: ANY, ..Changed::NOTHING };

    /// Rows of these b-trees; too many, or the schema among them, are any.
    pub fn rows_of(roots: &[u32]) -> Changed {
        let mut changed = Changed { len: roots.len() as u32, ..Changed::NOTHING };
        match changed.roots.get_mut(..roots.len()) {
            Some(known) if !roots.contains(&SCHEMA) => known.copy_from_slice(roots),
            _ => return Changed::ANYTHING,
        }
        changed
    }

    /// The same, and in the b-tree `root` nothing but these maxima, which were raised or made; too many are anything.
    pub fn and_maxima(mut self, root: Root, keys: &[u64]) -> Changed {
        let Some(known) = self.maxima.get_mut(..keys.len()) else { return Changed::ANYTHING };
        known.copy_from_slice(keys);
        (self.maxima_root, self.maxima_len) = (root.get(), keys.len() as u32);
        self
    }

    /// Those that are known, but for maxima; none: it may be any.
    pub(crate) fn known(&self) -> Option<&[u32]> {
        self.roots.get(..self.len as usize)
    }
}

/// A part of what was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// Rows of this b-tree.
    Rows(Root),
    /// Of this b-tree the maxima under these keys alone.
    Maxima(Root, &'a [u64]),
}

/// What exclusive transactions have changed since a base was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangedSince {
    /// There was none.
    Nothing,
    /// Nothing of what was asked for.
    Elsewhere,
    /// This b-tree of it, or nobody knows what.
    Here(Option<Root>),
}

/// (M) CHANGED-1. `before`: what `exclusive_generation` says.
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

/// (M) What they have changed of that which `concerns` the caller since the base of generation `base`. `newest`: what
/// `exclusive_generation` says.
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
    // More than there is room for is damage: then it is all of them.
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
        // Its author was killed before he had said so; another one says it again.
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
