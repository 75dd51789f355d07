//! Gaps: stretches of a b-tree without a row, known so that walks do not pass their tombstones one
//! by one.
//!
//! A row that is deleted leaves a tombstone in a memtable, and mostly the row itself in the base,
//! until the next merge. A walk has to pass both. Where rows are deleted at one end, as in a queue,
//! each walk passes all that were deleted before: without gaps a queue gets slower with every job.
//!
//! # What a gap says
//! "From timestamp `ts` until now `root` has had no row in `lo..hi`" (keys, `hi` exclusive). A gap
//! says nothing of tombstones, memtables or generations: merges do not change it, and it may cover
//! a stretch where there is nothing to pass. To make it smaller, older or to forget it is always
//! right.
//!
//! | kept in | says it of | ends |
//! |---|---|---|
//! | `txn/own_gaps.rs`, private | a view: snapshot, own writes | with the view; a put cuts it |
//! | `shared.rs`, in shared memory | committed rows | by GAP-3 and GAP-4; a commit's puts cut it |
//!
//! Each walk over several deleted rows makes an own gap, and so does each walk that deletes the
//! rows it comes to. If the snapshot is the newest commit the walk also makes a shared gap.
//!
//! # Use
//! A walk that is at a tombstone inside a gap goes on at the last tombstone of its own view in the
//! gap (`OverlayIter::skip`). Validation of a range leaves out gaps that are older than the
//! snapshot: what was absent then is still absent, so a read of it has not changed.
//!
//! # Invariants
//! - GAP-1 A shared gap is added only under the commit mutex, by a connection that has walked it in
//!   a snapshot of `visible_ts` and has no write of its own in it. The rows of that snapshot are
//!   those of now.
//! - GAP-2 A commit cuts its puts out of the shared gaps before `visible_ts` moves to it; a commit
//!   over several files forgets them all. So every gap that is not newer than a snapshot is right
//!   for that snapshot, and remains right for it.
//! - GAP-3 A repair after a dead owner of the commit mutex forgets all gaps before it redoes
//!   anything: the dead owner may have left half of a change, or puts that were not cut out.
//! - GAP-4 What changes rows without the memtable finds no gaps and lets none be added: an
//!   exclusive transaction from before its first change of the base until it is settled, and stock
//!   programs while the file is at rest.
//! - GAP-5 An own gap is right for the view that it was made in. A put cuts it, a delete cannot
//!   harm it, and everything else that changes the view (its number, its timestamp, writes that
//!   were taken back) ends it.
//! - GAP-7 A run that a walk deletes becomes a gap on the first lookup in it. It is as right as an
//!   own gap from its first row on: a put into its b-tree ends it, wherever the put is, since the
//!   walk may come to that row before the next row of the run; so does a change of the view.
//! - GAP-6 Readers take no lock for gaps and wait for no process: a reader that meets a change of
//!   the table finds no gap.
//!
//! # Old snapshots
//! A gap that grows gets the timestamp of its growth, and readers under FULL lag some commits
//! behind. So the table keeps some older, smaller states of each gap (`set.rs`).
//!
//! # Deliberately absent
//! Gaps that a commit makes of what it deletes: the next walk finds them.

mod set;
mod shared;
#[cfg(test)]
mod tests;

pub(crate) use self::set::{Bound, Gap, GapSet, farther};
pub(crate) use self::shared::Puts;
