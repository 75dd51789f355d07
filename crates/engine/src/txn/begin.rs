//! The first statement of a plain BEGIN: whether the transaction takes the writer's right there, and whether that has paid
//! (database/learned.rs).
//!
//! Single writes beside each other: whether the next one should try without the writer's right (`csrc/beside.c`).
//!
//! The right is passed from writer to writer, and each of them has to be woken before it can go on. Where nobody else commits that costs
//! nothing, and the one commit is not validated. Where others commit all the time it costs two switches of the processor a commit, more
//! than the commit itself; an optimistic transaction costs the record of a few reads and their validation.
//!
//! | this connection | its next single write |
//! |---|---|
//! | has met a commit of somebody else's between its last [`COMPANY`] single writes | is tried |
//! | has met none, and is as good as alone | queues |
//! | was refused, in one of these or in BEGIN CONCURRENT | queues, as often as it would ask for a turn ([`turns`](super::turns)) |
//!
//! Many, since a thread may go on alone for as long as its time slice while another stands still with the right that it holds.
//!
//! Invariants
//! - TRY-1 Who is refused in a try is told so, and nobody else: no conflict is recorded, since none comes to light.
//! - TRY-2 Others choose rowids as if it waited for the right: it takes none itself, and ends at once.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::{Conn, WriteMode};
use crate::database::learned::{LONG, Outcome};
use crate::error::Result;
use crate::sync::wait::Wait;

/// Rows that a transaction has changed of which it is asked when they were changed before.
const ROWS_ASKED: usize = 16;

/// A transaction that takes the right at its first statement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Early {
    first: u64,
    /// The newest commit when it came.
    came_at: u64,
    /// Since when it has the right.
    since: Option<Instant>,
}

impl Conn {
    /// A transaction begins with the statement `first`, which reads: whether it had better take the right before.
    pub fn begins_early(&mut self, first: u64) -> bool {
        let early = self.db.learned().wants_right(first);
        let came_at = self.db.control().visible_ts.load(Relaxed);
        self.early = early.then_some(Early { first, came_at, since: None });
        early
    }

    /// It has not got it, and begins as one that reads.
    pub fn began_early_in_vain(&mut self) {
        if let Some(early) = self.early.take() {
            self.db.learned().note_ended(early.first, Outcome::InVain);
        }
    }

    /// A transaction that began with the statement `first` has begun to write: it was `refused`, or not.
    pub fn note_first(&mut self, first: u64, refused: bool) {
        if refused {
            self.db.learned().note_refused(first);
        } else {
            self.db.learned().note_passed(first);
        }
    }

    /// One that began so is going to change the schema: others would be refused. It may say so again, with each try.
    pub fn note_schema_change(&mut self, first: u64) {
        let learned = self.db.learned();
        if !learned.wants_right(first) {
            learned.note_refused(first);
        }
    }

    /// The right has been taken, perhaps for a first statement.
    pub(super) fn note_early_right(&mut self) {
        if let Some(early) = &mut self.early {
            early.since = Some(Instant::now());
            self.db.control().begun_early.fetch_add(1, Relaxed);
        }
    }

    /// The transaction is about to end, still with the right.
    pub(super) fn judge_early(&mut self) {
        let Some(early) = self.early.take() else { return };
        let is_long = early.since.is_some_and(|since| since.elapsed() > LONG);
        let outcome = if is_long {
            Outcome::InVain
        } else if self.writes.is_empty() && !self.state.is_exclusive() {
            Outcome::OnlyRead
        } else if self.changes_what_came_after(early.came_at) {
            Outcome::Paid
        } else {
            Outcome::Wrote
        };
        self.db.learned().note_ended(early.first, outcome);
    }

    /// Whether a row that it has changed had been changed after `ts`.
    fn changes_what_came_after(&self, ts: u64) -> bool {
        let Some(snapshot) = &self.snapshot else { return false };
        let is_newer = |(_, memtable): &(_, crate::memtable::Memtable), root, key: &[u8]| {
            memtable.newest_ts(root, key).is_some_and(|of_row| of_row.get() > ts)
        };
        self.writes
            .iter()
            .take(ROWS_ASKED)
            .any(|(root, key, _)| snapshot.memtables.iter().any(|m| is_newer(m, root, key)))
    }
}

/// For how many single writes a commit of somebody else's is remembered.
const COMPANY: u32 = 1000;

impl Conn {
    /// Whether a single write had better be tried ([`Conn::write_beside`]) than wait its turn.
    pub fn runs_beside(&mut self) -> bool {
        // Relaxed: a hint.
        let meets_others = self.db.control().visible_ts.load(Relaxed) != self.last_commit.ts();
        self.company = if meets_others { COMPANY } else { self.company.saturating_sub(1) };
        self.company > 0 && self.has_fence() && !self.contention.passes()
    }

    /// Becomes an optimistic writer, whose caller repeats the transaction with the right if it is refused.
    ///
    /// # Errors
    /// Those of [`Conn::write_begin`].
    pub fn write_beside(&mut self, wait: &mut Wait<'_>) -> Result<()> {
        self.repeats = true;
        let begun = self.write_begin(WriteMode::Optimistic, wait);
        // From here on it is so until the transaction ends as a writer.
        self.repeats = begun.is_ok();
        begun
    }
}
