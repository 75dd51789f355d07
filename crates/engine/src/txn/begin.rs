//! When transactions take the writer's right early, try without it, or take turns.
//!
//! The first statement of a plain BEGIN: whether the transaction takes the writer's right there,
//! and whether that has paid (database/learned.rs). Until it writes it may lose the right again
//! (RIGHT-10 in database/right.rs).
//!
//! # Single writes
//!
//! A single write may be tried without the writer's right while others commit (`csrc/beside.c`).
//!
//! The right is passed from writer to writer, and each of them has to be woken first. Where no
//! other connection commits that costs nothing, and the one commit is not validated. Where others
//! commit all the time it costs two context switches a commit, more than the commit itself. An
//! optimistic transaction costs the record of a few reads and their validation.
//!
//! | this connection | its next single write |
//! |---|---|
//! | has met another's commit between its last [`COMPANY`] single writes | is tried |
//! | has met none, and is as good as alone | queues |
//! | was refused, in a try or in BEGIN CONCURRENT | queues, as often as it would ask for a turn |
//!
//! [`COMPANY`] is large, since a thread may run alone for its whole time slice while another, off
//! the processor, holds the right.
//!
//! Invariants
//! - TRY-1 A refused try reports that to its caller only: no conflict is recorded, since none comes
//!   to light.
//! - TRY-2 Others choose rowids as if the try only read: it takes none itself, and ends at once. An
//!   automatic rowid may so be the one that a try has named, and its transaction is refused.
//!
//! # Turns
//!
//! Optimistic transactions that keep losing against each other begin one after the other.
//!
//! Of overlapping BEGIN CONCURRENT transactions that change the same row, all but one are refused,
//! and their work is wasted. So a connection that has lost waits before it takes its next
//! snapshots, until the others of its process that have lost are through. A *turn* lasts from the
//! snapshot to the commit point, or to the transaction's end.
//!
//! A turn is a courtesy and no lock. Its owner keeps no connection from reading, writing or
//! committing. A connection that has waited for `PATIENCE` goes on without a turn, and asks for
//! none before it loses again. Validation decides, as always. So a turn may be known to one process
//! only, and a transaction may last as long as it likes.
//!
//! | event | the connection asks for a turn in its next |
//! |---|---|
//! | it is refused for a change of others | [`GRANTS`] transactions, four times as many each time |
//! | it commits without a turn | that number is halved for the next time |
//! | its wait for a turn times out | none |
//!
//! A single write asks for none: it waits for the right instead, as many times.
//!
//! Invariants
//! - TURN-1 A connection has at most one turn, and gives it back at its commit point, when it is
//!   refused, and at the end of its snapshot.
//! - TURN-2 A wait for a turn ends after `PATIENCE`, whatever the turn's owner does, and holds
//!   nothing but a pin.

use std::sync::atomic::Ordering::Relaxed;

use super::{Conn, WriteMode};
use crate::database::learned::{EARLY, Outcome, Standing};
use crate::database::right::Claim;
use crate::error::{Error, Result};
use crate::sync::wait::Wait;

/// How many of its changed rows a transaction looks up, to see whether they had been changed
/// before.
const ROWS_ASKED: usize = 16;

/// A transaction that has taken the right at its first statement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Early {
    first: u64,
    /// The newest commit when the transaction came.
    came_at: u64,
}

impl Conn {
    /// Before a transaction begins with the statement `first`, a read: takes the right early if
    /// that may pay (RIGHT-10). True if it has it: its snapshot is to be the newest.
    ///
    /// # Errors
    /// Interrupted. After any other failure it begins as a reader.
    pub fn begin_early(&mut self, first: u64, wait: &mut Wait<'_>) -> Result<bool> {
        let came_at = self.db.control().visible_ts.load(Relaxed);
        let Some(standing) = self.db.learned().wants_right(first) else { return Ok(false) };
        // While it waits it is named by what it is.
        self.start_transaction();
        self.comes_back();
        let claim = Claim { early: Some(EARLY), ..Claim::default() };
        let taken = match standing.waits() {
            None => self.db.acquire_right(self.slot, claim, wait),
            Some(most) => {
                let timeout = if wait.busy.is_some() { most } else { wait.timeout.min(most) };
                let mut wait = Wait { timeout, busy: None, interrupted: &mut *wait.interrupted };
                self.db.acquire_right(self.slot, claim, &mut wait)
            }
        };
        if let Err(e) = taken {
            self.db.learned().note_ended(first, Outcome::InVain);
            return if matches!(e, Error::Interrupted) { Err(e) } else { Ok(false) };
        }
        self.early = Some(Early { first, came_at });
        self.begins_in_a_run();
        self.db.control().begun_early.fetch_add(1, Relaxed);
        Ok(true)
    }

    /// True if the transaction has taken the right early.
    pub fn began_early(&self) -> bool {
        self.early.is_some()
    }

    /// Whether the transaction, which takes the right to write, has lost the one that it took
    /// early.
    pub(super) fn note_lost_right(&mut self) {
        if self.early.is_some() && self.db.right.owner() != self.slot.word() {
            self.lost_early = true;
            self.judge_early();
        }
    }

    /// Notes that a transaction that began with the statement `first` was refused.
    pub fn note_refused(&mut self, first: u64) {
        if !self.lost_early {
            self.db.learned().note_refused(first);
        }
    }

    /// Notes that a transaction that began with `first` will change the schema: others would be
    /// refused. May be repeated with each try.
    pub fn note_schema_change(&mut self, first: u64) {
        let learned = self.db.learned();
        if learned.wants_right(first) != Some(Standing::Granted) {
            learned.note_refused(first);
        }
    }

    /// Gives back the right that a transaction took early which has not written, at its end.
    pub fn end_early(&mut self) {
        if self.early.is_some() {
            self.judge_early();
            self.db.release_right(self.slot);
        }
        self.lost_early = false;
    }

    /// Decides whether taking the right early has paid. The transaction is about to end.
    pub(super) fn judge_early(&mut self) {
        let Some(early) = self.early.take() else { return };
        let outcome = if self.db.right.owner() != self.slot.word() {
            Outcome::InVain
        } else if self.writes.is_empty() && !self.state.is_exclusive() {
            Outcome::OnlyRead
        } else if self.changes_what_came_after(early.came_at) {
            Outcome::Paid
        } else if self.db.right.has_waiters() {
            Outcome::Wrote
        } else {
            Outcome::WroteAlone
        };
        self.db.learned().note_ended(early.first, outcome);
    }

    /// True if a row that it has changed had been changed after `ts`.
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

/// For how many single writes a commit of another connection is remembered.
const COMPANY: u32 = 1000;

impl Conn {
    /// Returns whether a single write should be tried ([`Conn::write_beside`]) rather than wait its
    /// turn.
    pub fn runs_beside(&mut self) -> bool {
        // Relaxed: a hint.
        let meets_others = self.db.control().visible_ts.load(Relaxed) != self.last_commit.ts();
        self.company = if meets_others { COMPANY } else { self.company.saturating_sub(1) };
        self.company > 0 && self.has_fence() && !self.contention.passes()
    }

    /// Becomes an optimistic writer. If it is refused, its caller repeats the transaction with the
    /// right.
    ///
    /// # Errors
    /// Those of [`Conn::write_begin`].
    pub fn write_beside(&mut self, wait: &mut Wait<'_>) -> Result<()> {
        self.repeats = true;
        let begun = self.write_begin(WriteMode::Optimistic, wait);
        // Stays set until the transaction ends as a writer.
        self.repeats = begun.is_ok();
        begun
    }
}

/// For how many transactions a connection asks for a turn after a conflict, at first and at most.
const GRANTS: std::ops::RangeInclusive<u32> = 32..=512;
/// What a connection knows of how often it loses.
#[derive(Debug, Default)]
pub(crate) struct Contention {
    /// Transactions that still ask for a turn.
    due: u32,
    /// How many there were at first, or would be next time.
    grant: u32,
    has_turn: bool,
}

impl Contention {
    fn lost(&mut self) {
        self.grant = (self.grant * 4).clamp(*GRANTS.start(), *GRANTS.end());
        self.due = self.grant;
    }

    /// Returns whether a single write should wait its turn, and counts it.
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

    fn turn_timed_out(&mut self) {
        self.due = 0;
    }
}

impl Conn {
    /// Waits for a turn, if one is due, before an optimistic transaction takes its snapshot.
    pub(crate) fn await_turn(&mut self) {
        let has_right = self.state.has_right() || self.early.is_some();
        if self.contention.due == 0 || self.contention.has_turn || has_right {
            return;
        }
        let db = &self.db;
        self.contention.has_turn =
            db.turns().take(|| db.yielding().once(|| db.log_shared().log_end()));
        if !self.contention.has_turn {
            self.contention.turn_timed_out();
        }
    }

    /// Gives the turn back (TURN-1). True if there was one.
    pub(crate) fn end_turn(&mut self) -> bool {
        let had = std::mem::take(&mut self.contention.has_turn);
        if had {
            self.db.turns().give_back();
        }
        had
    }

    /// Notes that an optimistic transaction is past its commit point.
    pub(crate) fn note_turn_committed(&mut self) {
        let had_turn = self.end_turn();
        self.contention.committed(had_turn);
    }

    /// Notes that an optimistic transaction was refused for a change of others.
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
        contention.turn_timed_out();
        assert_eq!(contention.due, 0);
    }
}
