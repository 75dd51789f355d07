//! Ranges of keys, as arguments: those of the language, and prefixes.

use std::ffi::c_int;
use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use crate::datum::Datum;
use crate::ffi::{self, RawRange};
use crate::types::{Key, PrefixKey, Value};

/// All keys that begin with this text or these bytes.
#[derive(Clone, Copy, Debug)]
pub struct Prefix<T>(pub T);

/// The bounds of a range.
#[derive(Clone, Debug)]
pub struct Bounds<'a> {
    lo: Bound<Datum<'a>>,
    hi: Bound<Datum<'a>>,
    is_prefix: bool,
}

/// What can be said for a range of keys: `..`, `a..b`, `a..=b`, `a..`, `..b`, `..=b`, a pair of [`Bound`]s, or a [`Prefix`].
pub trait KeyRange<'a, K: Key> {
    /// Its bounds.
    fn bounds(self) -> Bounds<'a>;
}

impl Bounds<'_> {
    /// As an argument of `plait.h`. It points into these bounds.
    pub(crate) fn raw(&self) -> RawRange {
        let value = |bound: &Bound<Datum<'_>>| match bound {
            Bound::Included(datum) | Bound::Excluded(datum) => datum.raw(),
            Bound::Unbounded => ffi::NONE,
        };
        let flag = |holds: bool, flag: c_int| if holds { flag } else { 0 };
        RawRange {
            lo: value(&self.lo),
            hi: value(&self.hi),
            flags: flag(matches!(self.lo, Bound::Excluded(_)), ffi::LO_OPEN)
                | flag(matches!(self.hi, Bound::Excluded(_)), ffi::HI_OPEN)
                | flag(self.is_prefix, ffi::PREFIX),
        }
    }
}

fn bounds<'a, K: Key>(lo: Bound<K::In<'a>>, hi: Bound<K::In<'a>>) -> Bounds<'a> {
    Bounds { lo: lo.map(K::encode), hi: hi.map(K::encode), is_prefix: false }
}

impl<'a, K: Key> KeyRange<'a, K> for RangeFull {
    fn bounds(self) -> Bounds<'a> {
        bounds::<K>(Bound::Unbounded, Bound::Unbounded)
    }
}

impl<'a, K: Key> KeyRange<'a, K> for Range<<K as Value>::In<'a>> {
    fn bounds(self) -> Bounds<'a> {
        bounds::<K>(Bound::Included(self.start), Bound::Excluded(self.end))
    }
}

impl<'a, K: Key> KeyRange<'a, K> for RangeInclusive<<K as Value>::In<'a>> {
    fn bounds(self) -> Bounds<'a> {
        let (lo, hi) = self.into_inner();
        bounds::<K>(Bound::Included(lo), Bound::Included(hi))
    }
}

impl<'a, K: Key> KeyRange<'a, K> for RangeFrom<<K as Value>::In<'a>> {
    fn bounds(self) -> Bounds<'a> {
        bounds::<K>(Bound::Included(self.start), Bound::Unbounded)
    }
}

impl<'a, K: Key> KeyRange<'a, K> for RangeTo<<K as Value>::In<'a>> {
    fn bounds(self) -> Bounds<'a> {
        bounds::<K>(Bound::Unbounded, Bound::Excluded(self.end))
    }
}

impl<'a, K: Key> KeyRange<'a, K> for RangeToInclusive<<K as Value>::In<'a>> {
    fn bounds(self) -> Bounds<'a> {
        bounds::<K>(Bound::Unbounded, Bound::Included(self.end))
    }
}

impl<'a, K: Key> KeyRange<'a, K> for (Bound<<K as Value>::In<'a>>, Bound<<K as Value>::In<'a>>) {
    fn bounds(self) -> Bounds<'a> {
        bounds::<K>(self.0, self.1)
    }
}

impl<'a, K: PrefixKey> KeyRange<'a, K> for Prefix<<K as Value>::In<'a>> {
    fn bounds(self) -> Bounds<'a> {
        let lo = Bound::Included(K::encode(self.0));
        Bounds { lo, hi: Bound::Unbounded, is_prefix: true }
    }
}
