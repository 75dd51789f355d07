//! A small set of gaps: adding gaps, and cutting rows out of them.

use crate::ids::Root;
use crate::memtable::key_prefix;
use crate::shm::layout::{GAP_BOUND_WORDS, GAP_SLOTS as GAPS_MAX};

/// Bytes of a key that a bound keeps. The last byte of the bound is their number.
pub(crate) const BOUND_KEY_BYTES: usize = GAP_BOUND_WORDS * 8 - 1;
/// Puts that are cut out of a gap; with more the rest of it is forgotten.
const CUTS_MAX: usize = 16;
/// See `GapSet::thin_out`.
const AGE_FACTOR: u64 = 4;
/// See `GapSet::thin_out`.
const AGE_LEAST: u64 = 16;
/// States of a gap that are older than this, in commits, are forgotten.
const AGE_MOST: u64 = 4096;

/// An end of a gap: the key itself, or a longer key cut so that the gap only becomes smaller.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bound {
    /// The bytes; the last one is their number.
    raw: [u8; BOUND_KEY_BYTES + 1],
}

impl Bound {
    const NOTHING: Bound = Bound { raw: [0; BOUND_KEY_BYTES + 1] };

    fn exactly(parts: [&[u8]; 2]) -> Bound {
        let mut bound = Bound::NOTHING;
        let len = parts[0].len() + parts[1].len();
        bound.raw[..parts[0].len()].copy_from_slice(parts[0]);
        bound.raw[parts[0].len()..len].copy_from_slice(parts[1]);
        bound.raw[BOUND_KEY_BYTES] = len as u8;
        bound
    }

    /// The greatest bound that is not above `key`.
    pub(crate) fn at_most(key: &[u8]) -> Bound {
        Bound::exactly([&key[..key.len().min(BOUND_KEY_BYTES)], &[]])
    }

    /// The least bound that is not below `key`; `None` if there is none.
    fn at_least(key: &[u8]) -> Option<Bound> {
        if key.len() <= BOUND_KEY_BYTES {
            return Some(Bound::exactly([key, &[]]));
        }
        let kept = &key[..BOUND_KEY_BYTES];
        let last = kept.iter().rposition(|byte| *byte != 0xff)?;
        Some(Bound::exactly([&kept[..last], &[kept[last] + 1]]))
    }

    /// As [`Bound::at_most`], of the key right behind `key`.
    fn at_most_behind(key: &[u8]) -> Bound {
        if key.len() < BOUND_KEY_BYTES {
            return Bound::exactly([key, &[0]]);
        }
        Bound::at_most(key)
    }

    /// As [`Bound::at_least`], of the key right behind `key`.
    pub(crate) fn at_least_behind(key: &[u8]) -> Option<Bound> {
        if key.len() < BOUND_KEY_BYTES {
            return Some(Bound::exactly([key, &[0]]));
        }
        let mut longer = [0xff; BOUND_KEY_BYTES + 1];
        longer[..BOUND_KEY_BYTES].copy_from_slice(&key[..BOUND_KEY_BYTES]);
        Bound::at_least(&longer)
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        let len = usize::from(self.raw[BOUND_KEY_BYTES]).min(BOUND_KEY_BYTES);
        &self.raw[..len]
    }

    /// The first eight bytes as an ordered number.
    #[inline]
    fn prefix(&self) -> u64 {
        self.raw.first_chunk::<8>().map_or(0, |first| u64::from_be_bytes(*first))
    }

    /// The bound as it is in shared memory.
    pub(crate) fn words(&self) -> [u64; GAP_BOUND_WORDS] {
        let (chunks, _) = self.raw.as_chunks::<8>();
        std::array::from_fn(|i| u64::from_ne_bytes(chunks[i]))
    }

    pub(crate) fn from_words(words: [u64; GAP_BOUND_WORDS]) -> Bound {
        let mut bound = Bound::NOTHING;
        for (to, word) in bound.raw.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bound
    }
}

/// A gap; see the head of gaps/.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) root: Root,
    pub(crate) lo: Bound,
    /// Exclusive.
    pub(crate) hi: Bound,
    pub(crate) ts: u64,
    /// Greater than `used` of a gap whose last use is longer ago.
    pub(crate) used: u64,
}

impl Gap {
    pub(crate) const NOTHING: Gap =
        Gap { root: Root::new(0), lo: Bound::NOTHING, hi: Bound::NOTHING, ts: 0, used: 0 };

    /// The gap from the first to the last of deleted keys, both inclusive; `None` if bounds leave
    /// nothing of it.
    pub(crate) fn of(root: Root, first: &[u8], last: &[u8]) -> Option<Gap> {
        let (lo, hi) = (Bound::at_least(first)?, Bound::at_most_behind(last));
        Gap { root, lo, hi, ..Gap::NOTHING }.unless_empty()
    }

    /// The part of the gap before `end`, exclusive.
    pub(crate) fn before(&self, end: &[u8]) -> Option<Gap> {
        let end = Bound::at_most(end);
        let hi = if end.bytes() < self.hi.bytes() { end } else { self.hi };
        Gap { hi, ..*self }.unless_empty()
    }

    /// The part of the gap behind `key`.
    fn behind(&self, key: &[u8]) -> Option<Gap> {
        let lo = Bound::at_least_behind(key)?;
        let lo = if lo.bytes() > self.lo.bytes() { lo } else { self.lo };
        Gap { lo, ..*self }.unless_empty()
    }

    fn unless_empty(self) -> Option<Gap> {
        (self.lo.bytes() < self.hi.bytes()).then_some(self)
    }

    /// True if the gap covers `key` of b-tree `root`.
    pub(crate) fn covers(&self, root: Root, key: &[u8]) -> bool {
        if self.root != root {
            return false;
        }
        let prefix = key_prefix(key);
        // Most keys end here, before bytes are compared.
        self.lo.prefix() <= prefix
            && prefix <= self.hi.prefix()
            && self.lo.bytes() <= key
            && key < self.hi.bytes()
    }

    /// The end of the gap in one direction.
    pub(crate) fn end(&self, forward: bool) -> Bound {
        if forward { self.hi } else { self.lo }
    }

    /// True if the gap lies between a number and the next one, as keys of eight bytes. Each row
    /// appended to a table would leave such a gap, in which no walk passes anything.
    fn is_between_numbers(&self) -> bool {
        let (lo, hi) = (self.lo.bytes(), self.hi.bytes());
        lo.len() == 9
            && lo[8] == 0
            && hi.len() == 8
            && self.lo.prefix().checked_add(1) == Some(self.hi.prefix())
    }

    fn contains(&self, other: &Gap) -> bool {
        self.lo.bytes() <= other.lo.bytes() && other.hi.bytes() <= self.hi.bytes()
    }

    fn touches(&self, other: &Gap) -> bool {
        self.lo.bytes() <= other.hi.bytes() && other.lo.bytes() <= self.hi.bytes()
    }
}

/// At most [`GAPS_MAX`] gaps. Those of one b-tree may overlap: the larger are the newer.
#[derive(Clone)]
pub(crate) struct GapSet {
    list: [Gap; GAPS_MAX],
    len: usize,
}

impl GapSet {
    pub(crate) const fn new() -> GapSet {
        GapSet { list: [Gap::NOTHING; GAPS_MAX], len: 0 }
    }

    pub(crate) fn as_slice(&self) -> &[Gap] {
        &self.list[..self.len]
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds a gap. If the set is full it replaces the gap whose last use is longest ago.
    pub(crate) fn push(&mut self, gap: Gap) {
        if let Some(free) = self.list.get_mut(self.len) {
            *free = gap;
            self.len += 1;
        } else if let Some(least) = self.list.iter_mut().min_by_key(|gap| gap.used)
            && least.used <= gap.used
        {
            *least = gap;
        }
    }

    fn push_some(&mut self, gap: Option<Gap>) {
        if let Some(gap) = gap {
            self.push(gap);
        }
    }

    /// Adds a gap, joined with those that it touches, and keeps some older states that the joined
    /// gap contains. False if the gap was known.
    pub(crate) fn add(&mut self, gap: Gap) -> bool {
        let mut new = gap;
        let mut grows = false;
        for old in self.as_slice().iter().filter(|old| old.root == gap.root) {
            if old.contains(&gap) {
                return false;
            }
            if old.touches(&new) {
                grows = true;
                new.lo = if old.lo.bytes() < new.lo.bytes() { old.lo } else { new.lo };
                new.hi = if old.hi.bytes() > new.hi.bytes() { old.hi } else { new.hi };
            }
        }
        if grows {
            self.thin_out(&new);
        }
        self.push(new);
        true
    }

    /// Removes most gaps that `new` contains, which are its older states: a reader that lags by n
    /// commits finds one that is not older than [`AGE_FACTOR`] * n + [`AGE_LEAST`].
    fn thin_out(&mut self, new: &Gap) {
        let before = self.clone();
        self.len = 0;
        let (mut states, mut count) = ([Gap::NOTHING; GAPS_MAX], 0);
        for gap in before.as_slice() {
            if gap.root == new.root && new.contains(gap) {
                states[count] = *gap;
                count += 1;
            } else {
                self.push(*gap);
            }
        }
        let states = &mut states[..count];
        states.sort_unstable_by_key(|gap| std::cmp::Reverse(gap.ts));
        let age = |gap: &Gap| new.ts.saturating_sub(gap.ts);
        let mut younger = 0;
        for (i, gap) in states.iter().enumerate() {
            let older = states.get(i + 1).map_or(u64::MAX, age);
            let is_spare = older <= AGE_FACTOR * younger + AGE_LEAST;
            if age(gap) > 0 && age(gap) <= AGE_MOST && !is_spare {
                self.push(*gap);
                younger = age(gap);
            }
        }
    }

    /// Cuts the keys that got a row out of each gap. `puts` returns those inside a gap, ascending.
    pub(crate) fn cut<'k, I: Iterator<Item = &'k [u8]>>(&mut self, puts: impl Fn(&Gap) -> I) {
        let before = self.clone();
        self.len = 0;
        for gap in before.as_slice() {
            let mut rest = Some(*gap);
            for (i, key) in puts(gap).enumerate() {
                if i == CUTS_MAX {
                    rest = None;
                }
                let Some(whole) = rest else { break };
                self.push_some(whole.before(key).filter(|piece| !piece.is_between_numbers()));
                rest = whole.behind(key);
            }
            self.push_some(rest);
        }
    }

    /// As [`GapSet::cut`], for one key.
    pub(crate) fn cut_key(&mut self, root: Root, key: &[u8]) {
        // Backwards: what is added, or moved to the place of a removed gap, does not cover the key.
        for i in (0..self.len).rev() {
            let gap = &mut self.list[i];
            if !gap.covers(root, key) {
                continue;
            }
            // Mostly the key is the first of a gap: rows come in order.
            let rest = match Bound::at_least_behind(key).filter(|lo| lo.bytes() < gap.hi.bytes()) {
                Some(lo) if gap.lo.bytes() == key => {
                    gap.lo = lo;
                    continue;
                }
                lo => lo.map(|lo| Gap { lo, ..*gap }),
            };
            let before = gap.before(key).filter(|piece| !piece.is_between_numbers());
            match (before, rest) {
                (Some(before), rest) => {
                    *gap = before;
                    self.push_some(rest);
                }
                (None, Some(rest)) => *gap = rest,
                (None, None) => {
                    self.len -= 1;
                    self.list.swap(i, self.len);
                }
            }
        }
    }

    /// The farthest end, in one direction, of the gaps around a key. That gap is of use `now`.
    pub(crate) fn end(&mut self, root: Root, key: &[u8], forward: bool, now: u64) -> Option<Bound> {
        let around = self.list[..self.len].iter_mut().filter(|gap| gap.covers(root, key));
        let gap = around.reduce(|a, b| {
            if farther(a.end(forward), b.end(forward), forward) == a.end(forward) { a } else { b }
        })?;
        gap.used = now;
        Some(gap.end(forward))
    }
}

/// The farther of two ends.
pub(crate) fn farther(a: Bound, b: Bound, forward: bool) -> Bound {
    if (a.bytes() > b.bytes()) == forward { a } else { b }
}
