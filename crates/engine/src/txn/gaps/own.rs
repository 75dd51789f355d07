//! The gaps in the view of one transaction (G5), and what a walk asks and tells.

use super::set::{Bound, Gap, GapSet, farther};
use crate::ids::Root;
use crate::txn::Conn;
use crate::txn::write_set::WriteKind;

/// Own writes that are passed to see whether one of them is a row in a shared gap.
const OWN_WRITES_MAX: usize = 64;

/// A view: its number, its timestamp, and how often writes were taken back in it.
type View = (u32, u64, u64);

/// See the module's text.
#[derive(Default)]
pub(crate) struct OwnGaps {
    view: Option<View>,
    set: Option<Box<GapSet>>,
    /// Counts questions and answers.
    clock: u64,
}

impl OwnGaps {
    fn end(&mut self, view: Option<View>, root: Root, key: &[u8], forward: bool) -> Option<Bound> {
        if view.is_none() || self.view != view {
            return None;
        }
        self.clock += 1;
        self.set.as_mut()?.end(root, key, forward, self.clock)
    }

    fn add(&mut self, view: View, gap: Gap) {
        self.clock += 1;
        let gap = Gap { used: self.clock, ..gap };
        let set = self.set.get_or_insert_with(|| Box::new(GapSet::new()));
        if self.view != Some(view) {
            set.clear();
            self.view = Some(view);
        }
        set.add(gap);
    }

    /// The key gets a row.
    pub(crate) fn cut(&mut self, root: Root, key: &[u8]) {
        let Some(set) = &mut self.set else { return };
        if set.as_slice().iter().any(|gap| gap.covers(root, key)) {
            set.cut(|gap| gap.covers(root, key).then_some(key).into_iter());
        }
    }
}

impl Conn {
    fn gap_view(&self) -> Option<View> {
        let snapshot = self.snapshot.as_ref().filter(|_| !self.exclusive)?;
        Some((self.view, snapshot.ts.get(), self.writes.taken_back()))
    }

    /// How far, in one direction, there is known to be no row around a key that has none.
    pub(crate) fn end_of_known_gap(&self, root: Root, key: &[u8], forward: bool) -> Option<Bound> {
        let snapshot = self.snapshot.as_ref()?;
        let own = self.own_gaps.borrow_mut().end(self.gap_view(), root, key, forward);
        if snapshot.resting || self.exclusive {
            return own;
        }
        let shared = self
            .db
            .end_of_gap(root, key, forward, snapshot.ts)
            .and_then(|end| self.end_before_own_row(root, key, end, forward));
        match (own, shared) {
            (Some(own), Some(shared)) => Some(farther(own, shared, forward)),
            (own, shared) => own.or(shared),
        }
    }

    /// What an end of a gap of committed rows becomes by rows of this transaction.
    fn end_before_own_row(
        &self,
        root: Root,
        key: &[u8],
        end: Bound,
        forward: bool,
    ) -> Option<Bound> {
        let (lo, hi) = if forward { (key, end.bytes()) } else { (end.bytes(), key) };
        let mut writes = self.writes.between(root, lo, hi);
        for n in 0.. {
            let next = if forward { writes.next() } else { writes.next_back() };
            let Some((at, write)) = next else { break };
            if write.kind() != WriteKind::Tombstone || n == OWN_WRITES_MAX {
                return if forward { Some(Bound::at_most(at)) } else { Bound::at_least_behind(at) };
            }
        }
        Some(end)
    }

    /// A walk has met nothing but deleted rows from `first` to `last`, both inclusive.
    pub(crate) fn note_gap(&self, root: Root, first: &[u8], last: &[u8]) {
        let (Some(view), Some(snapshot)) = (self.gap_view(), self.snapshot.as_ref()) else {
            return;
        };
        let Some(gap) = Gap::of(root, first, last) else { return };
        self.own_gaps.borrow_mut().add(view, gap);
        if snapshot.resting {
            return;
        }
        // G1: from the first own write on it is not known what is there without this transaction.
        let own = self.writes.between(root, gap.lo.bytes(), gap.hi.bytes()).next();
        let committed = own.map_or(Some(gap), |(key, _)| gap.before(key));
        if let Some(gap) = committed {
            let ts = snapshot.ts.get();
            self.db.share_gap(&Gap { ts, used: ts, ..gap });
        }
    }
}
