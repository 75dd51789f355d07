//! The gaps in the view of one transaction (GAP-5), as walks use and extend them.

use std::sync::atomic::Ordering::Relaxed;

use crate::commit::writes::WriteKind;
use crate::database::gaps::{Bound, Gap, GapSet, farther};
use crate::ids::Root;
use crate::memory;
use crate::txn::Conn;

/// Own writes that are passed to see whether one of them is a row in a shared gap.
const OWN_WRITES_MAX: usize = 64;

/// This many rows deleted one after the other make a gap.
const RUN_MIN: u32 = 4;

/// A view: its number, its timestamp, and how often writes were taken back in it.
type View = (u32, u64, u64);

/// See the module's text.
#[derive(Default)]
pub(crate) struct OwnGaps {
    view: Option<View>,
    set: Option<Box<GapSet>>,
    /// Counts lookups and additions.
    clock: u64,
    run: Run,
}

/// Rows of one b-tree that a walk has deleted as it passed them, with nothing else between them: a
/// gap that no walk has looked up yet (GAP-7).
#[derive(Default)]
struct Run {
    /// 0: there is none.
    count: u32,
    /// The number that the walk gave the run.
    number: u32,
    root: u32,
    view: View,
    first: Vec<u8>,
    last: Vec<u8>,
}

impl Run {
    fn covers(&self, root: Root, key: &[u8]) -> bool {
        self.count >= RUN_MIN
            && self.root == root.get()
            && *self.first <= *key
            && *key <= *self.last
    }
}

impl OwnGaps {
    fn end(&mut self, view: Option<View>, root: Root, key: &[u8], forward: bool) -> Option<Bound> {
        let view = view?;
        let known = self.known_end(view, root, key, forward);
        if known.is_none() && self.run.covers(root, key) {
            self.note_run(view);
            return self.known_end(view, root, key, forward);
        }
        known
    }

    fn known_end(&mut self, view: View, root: Root, key: &[u8], forward: bool) -> Option<Bound> {
        if self.view != Some(view) {
            return None;
        }
        self.clock += 1;
        self.set.as_mut()?.end(root, key, forward, self.clock)
    }

    /// Notes that a walk has deleted the row that it is on. Deletions with one `number` are one
    /// run: between two of them the walk has met no row.
    fn deleted(&mut self, view: View, root: Root, key: &[u8], number: u32) {
        let run = &mut self.run;
        let goes_on =
            run.count > 0 && run.number == number && run.root == root.get() && run.view == view;
        if !goes_on {
            self.note_run(view);
            let run = &mut self.run;
            (run.count, run.number, run.root, run.view) = (1, number, root.get(), view);
            let ends = [&mut run.first, &mut run.last].map(|end| memory::replace(end, key));
            if ends.iter().any(Result::is_err) {
                run.count = 0;
            }
            return;
        }
        run.count += 1;
        let end = if *key < *run.first { &mut run.first } else { &mut run.last };
        if memory::replace(end, key).is_err() {
            run.count = 0;
        }
    }

    /// Makes a gap of the run, if it is of this view and long enough.
    fn note_run(&mut self, view: View) {
        let run = &self.run;
        if run.count >= RUN_MIN
            && run.view == view
            && let Some(gap) = Gap::of(Root::new(run.root), &run.first, &run.last)
        {
            self.add(view, gap);
        }
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

    /// Cuts the key, which gets a row, out of the gaps. A run of its b-tree ends.
    fn cut(&mut self, view: Option<View>, root: Root, key: &[u8]) {
        if self.run.count > 0 && self.run.root == root.get() {
            if let Some(view) = view {
                self.note_run(view);
            }
            self.run.count = 0;
        }
        if let Some(set) = &mut self.set {
            set.cut_key(root, key);
        }
    }
}

impl Conn {
    fn gap_view(&self) -> Option<View> {
        let snapshot = self.snapshot.as_ref().filter(|_| !self.state.is_exclusive())?;
        Some((self.view, snapshot.ts.get(), self.writes.taken_back()))
    }

    /// Cuts the key out of the gaps: it gets a row of this transaction.
    pub(crate) fn cut_own_gaps(&mut self, root: Root, key: &[u8]) {
        let view = self.gap_view();
        self.own_gaps.get_mut().cut(view, root, key);
    }

    /// Notes that the row of this key, on which a walk is, was deleted. Between it and the previous
    /// one of the same `run` there is no row.
    pub(crate) fn note_deleted(&mut self, root: Root, key: &[u8], run: u32) {
        if let Some(view) = self.gap_view() {
            self.own_gaps.get_mut().deleted(view, root, key, run);
        }
    }

    /// Returns how far, in one direction, no row is known to be around a key that has none.
    pub(crate) fn end_of_known_gap(&self, root: Root, key: &[u8], forward: bool) -> Option<Bound> {
        let snapshot = self.snapshot.as_ref()?;
        let own = self.own_gaps.borrow_mut().end(self.gap_view(), root, key, forward);
        if snapshot.resting || self.state.is_exclusive() {
            return own;
        }
        let shared = self
            .db
            .gaps()
            .end_of(root, key, forward, snapshot.ts)
            .and_then(|end| self.end_before_own_row(root, key, end, forward));
        match (own, shared) {
            (Some(own), Some(shared)) => Some(farther(own, shared, forward)),
            (own, shared) => own.or(shared),
        }
    }

    /// Shortens a gap of committed rows to end before a row of this transaction.
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

    /// Notes that a walk has met only deleted rows from `first` to `last`, both inclusive.
    pub(crate) fn note_gap(&self, root: Root, first: &[u8], last: &[u8]) {
        let (Some(view), Some(snapshot)) = (self.gap_view(), self.snapshot.as_ref()) else {
            return;
        };
        let Some(gap) = Gap::of(root, first, last) else { return };
        self.own_gaps.borrow_mut().add(view, gap);
        if snapshot.resting {
            return;
        }
        // GAP-1: from the first own write on, it is not known what is there without this
        // transaction.
        let own = self.writes.between(root, gap.lo.bytes(), gap.hi.bytes()).next();
        let committed = own.map_or(Some(gap), |(key, _)| gap.before(key));
        if let Some(gap) = committed {
            let ts = snapshot.ts.get();
            self.share_gap(&Gap { ts, used: ts, ..gap });
        }
    }

    /// Shares a gap that was walked in the snapshot `gap.ts`, if that is the newest state (GAP-1).
    fn share_gap(&self, gap: &Gap) {
        let c = self.db.control();
        // Relaxed: read again with the mutex held.
        if c.visible_ts.load(Relaxed) != gap.ts {
            return;
        }
        let Some(_guard) = self.db.try_lock_commit() else { return };
        if c.visible_ts.load(Relaxed) != gap.ts || self.db.is_base_being_changed() {
            return;
        }
        self.db.gaps().add(gap);
    }
}
