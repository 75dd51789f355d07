//! The first statement of a plain BEGIN: whether the transaction takes the writer's right there, and whether that has paid
//! (database/learned.rs).
//!
//! # Single writes
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
//! | was refused, in one of these or in BEGIN CONCURRENT | queues, as often as it would ask for a turn (below) |
//!
//! Many, since a thread may go on alone for as long as its time slice while another stands still with the right that it holds.
//!
//! Invariants
//! - TRY-1 Who is refused in a try is told so, and nobody else: no conflict is recorded, since none comes to light.
//! - TRY-2 Others choose rowids as if it waited for the right: it takes none itself, and ends at once.
//!
//! # Turns
//!
//! Taking turns: optimistic transactions that keep losing against each other begin one after the other.
//!
//! Transactions of BEGIN CONCURRENT that change the same row are refused but for one of those that overlap, and each refused one is work for
//! nothing. A connection that has lost so waits, before it takes the snapshot of its next transactions, until those of its
//! process that have lost as well are through: a *turn*, from the snapshot to the commit point, or to the transaction's end.
//!
//! A turn is a courtesy and no lock. Nobody who has it keeps anybody from reading, writing or committing; who has waited for
//! `PATIENCE` goes on without and does not ask again before it loses again; and validation decides, as always. So it does not matter
//! that only one process knows of it, or how long a transaction lasts.
//!
//! | event | the connection asks for a turn in its next |
//! |---|---|
//! | it is refused for a change of others | [`GRANTS`] transactions, four times as many each time |
//! | it commits without a turn | that number is halved for the next time |
//! | it has waited in vain | none |
//!
//! A single write asks for none: it waits for the right instead, as many times (begin.rs).
//!
//! Invariants
//! - TURN-1 A connection has at most one turn, and gives it back at its commit point, when it is refused, and at the end of its snapshot.
//! - TURN-2 Waiting for one ends after `PATIENCE`, whatever the one who has it does, and holds nothing but a pin.

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

/// For how many transactions turns are asked for after a conflict, at first and at most.
const GRANTS: std::ops::RangeInclusive<u32> = 32..=512;
/// What a connection knows of how often it loses.
#[derive(Debug, Default)]
pub(crate) struct Contention {
    /// Transactions that still ask for a turn.
    due: u32,
    /// How many they were at first, or would be.
    grant: u32,
    has_turn: bool,
}

impl Contention {
    fn lost(&mut self) {
        self.grant = (self.grant * 4).clamp(*GRANTS.start(), *GRANTS.end());
        self.due = self.grant;
    }

    /// Whether a single write had better wait its turn (begin.rs); counts it.
    pub(super) fn passes(&mut self) -> bool {
        let passes = self.due > 0;
        self.due = self.due.saturating_sub(1);
        passes
    }

    fn committed(&mut self, had_turn: bool) {
        if had_turn {
            self.due = self.due.saturating_sub(1);
        } else {
            self.grant /= 2;
        }
    }

    fn waited_in_vain(&mut self) {
        self.due = 0;
    }
}

impl Conn {
    /// Before an optimistic transaction takes its snapshot.
    pub(crate) fn await_turn(&mut self) {
        if self.contention.due == 0 || self.contention.has_turn || self.state.has_right() {
            return;
        }
        let db = &self.db;
        self.contention.has_turn =
            db.turns().take(|| db.yielding().once(|| db.log_shared().log_end()));
        if !self.contention.has_turn {
            self.contention.waited_in_vain();
        }
    }

    /// TURN-1. True if there was one.
    pub(crate) fn end_turn(&mut self) -> bool {
        let had = std::mem::take(&mut self.contention.has_turn);
        if had {
            self.db.turns().give_back();
        }
        had
    }

    /// An optimistic transaction is behind its commit point.
    pub(crate) fn note_turn_committed(&mut self) {
        let had_turn = self.end_turn();
        self.contention.committed(had_turn);
    }

    /// An optimistic transaction was refused for a change of others.
    pub(crate) fn note_turn_lost(&mut self) {
        self.end_turn();
        self.contention.lost();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_loses_again_and_again_asks_for_more_and_more_turns_and_who_does_not_for_fewer() {
        let mut contention = Contention::default();
        let mut grants = Vec::new();
        for _ in 0..4 {
            contention.lost();
            grants.push(contention.due);
        }
        assert_eq!(grants, [32, 128, 512, 512]);
        for _ in 0..512 {
            assert!(contention.due > 0);
            contention.committed(true);
        }
        assert_eq!(contention.due, 0);
        for _ in 0..20 {
            contention.committed(false);
        }
        contention.lost();
        assert_eq!(contention.due, 32);
        contention.waited_in_vain();
        assert_eq!(contention.due, 0);
    }
}
