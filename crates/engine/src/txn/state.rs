//! The states of a connection's transaction, as far as writing goes.
//!
//! - Reading, or idle without a snapshot: has the writer's right only within a call, on the way to
//!   queued, or early, as a courtesy of which this state says nothing (RIGHT-10 in
//!   database/right.rs). Left by `write_begin`.
//! - Optimistic, by `write_begin(Optimistic)`: has the right while it commits, or from
//!   `commit_prepare` on. Left by `commit` and `rollback`; becomes queued for a part of several
//!   files, or to be exclusive.
//! - Queued, by `write_begin(Queued)`: holds the right until its commit passes it on. Left by
//!   `commit`, `rollback`, `exclusive_begin`.
//! - Exclusive, by `exclusive_begin`: holds the right, and the right to merge. Left by
//!   `exclusive_end`.
//! - Doomed, by a conflict after it has begun to write: has the right if it had it then. Left by
//!   `rollback`.
//!
//! Calls permitted in each state, in release builds too. Any other call is an error and changes
//! nothing.
//!
//! | call | reading | optimistic, queued | exclusive | doomed |
//! |---|---|---|---|---|
//! | `put`, `delete`, `put_max`, `make_max` | refused | yes | refused | Conflict |
//! | `commit_prepare`, `commit` | nothing to commit | yes | refused: SQLite commits | Conflict |
//! | `exclusive_replay`, `exclusive_header` | refused | refused | yes | refused |
//! | `write_begin`, `exclusive_begin`, `part_begin` | yes | yes | nothing to do | Conflict |
//! | savepoints, `rollback`, `exclusive_end`, `part_undo` | yes | yes | yes | yes |
//!
//! Writes to an exclusive transaction are refused because the base alone is the database. The last
//! calls do nothing where there is nothing to end.
//!
//! A part in a transaction over several files ([`part`](super::part)) is kept separately: its
//! author is queued or exclusive.
//!
//! The state says what the connection knows of the right. The owner word decides who holds it
//! (RIGHT-3 in database/right.rs); a slot gives it back whatever the state says.

use super::WriteMode;
use crate::error::{Error, Result};

/// See the module's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Reading { has_right: bool },
    Writing { mode: WriteMode, has_right: bool },
    Exclusive { has_right: bool },
    Doomed { mode: WriteMode, has_right: bool },
}

impl State {
    pub(crate) const IDLE: State = State::Reading { has_right: false };

    /// How it writes, or was going to; `None` while it only reads.
    pub(crate) fn mode(self) -> Option<WriteMode> {
        match self {
            State::Reading { .. } => None,
            State::Writing { mode, .. } | State::Doomed { mode, .. } => Some(mode),
            State::Exclusive { .. } => Some(WriteMode::Queued),
        }
    }

    pub(crate) fn has_right(self) -> bool {
        match self {
            State::Reading { has_right }
            | State::Writing { has_right, .. }
            | State::Exclusive { has_right }
            | State::Doomed { has_right, .. } => has_right,
        }
    }

    pub(crate) fn is_exclusive(self) -> bool {
        matches!(self, State::Exclusive { .. })
    }

    pub(crate) fn is_doomed(self) -> bool {
        matches!(self, State::Doomed { .. })
    }

    /// Refuses a put or delete that the write set must not take.
    #[inline]
    pub(crate) fn permits_writes(self) -> Result<()> {
        match self {
            State::Writing { .. } | State::Doomed { .. } => Ok(()),
            State::Reading { .. } | State::Exclusive { .. } => Err(self.refusal("a write")),
        }
    }

    /// Refuses a COMMIT of the write set where SQLite commits.
    pub(crate) fn permits_commit(self) -> Result<()> {
        if self.is_exclusive() { Err(self.refusal("a commit of the write set")) } else { Ok(()) }
    }

    /// Refuses the calls of SQLite's own path elsewhere.
    pub(crate) fn permits_exclusive_calls(self) -> Result<()> {
        if self.is_exclusive() { Ok(()) } else { Err(self.refusal("an exclusive step")) }
    }

    #[cold]
    fn refusal(self, what: &str) -> Error {
        Error::Misuse(format!("{what} in a transaction that is {self:?}; roll back"))
    }

    /// False if nothing that is read can matter to a commit: it cannot change (CONN-2), or no
    /// commit will follow.
    pub(crate) fn records_reads(self) -> bool {
        match self {
            State::Reading { has_right } | State::Writing { has_right, .. } => !has_right,
            State::Exclusive { .. } | State::Doomed { .. } => false,
        }
    }

    /// Notes that the right was taken, or given back.
    pub(crate) fn set_right(&mut self, held: bool) {
        match self {
            State::Reading { has_right }
            | State::Writing { has_right, .. }
            | State::Exclusive { has_right }
            | State::Doomed { has_right, .. } => *has_right = held,
        }
    }

    /// Begins to write, or continues with the right that it now has.
    pub(crate) fn become_writer(&mut self, mode: WriteMode) {
        let has_right = self.has_right();
        debug_assert!(
            matches!(self, State::Reading { .. } | State::Writing { .. }),
            "{self:?} becomes {mode:?}"
        );
        debug_assert!(has_right || mode == WriteMode::Optimistic, "queued without the right");
        *self = State::Writing { mode, has_right };
    }

    /// Returns to `mode` after a failed attempt to become something else; stays doomed after a
    /// conflict.
    pub(crate) fn go_back_to(&mut self, mode: Option<WriteMode>) {
        let has_right = self.has_right();
        debug_assert!(!self.is_exclusive(), "an exclusive transaction goes back to {mode:?}");
        *self = match (mode, self.is_doomed()) {
            (Some(mode), true) => State::Doomed { mode, has_right },
            (Some(mode), false) => State::Writing { mode, has_right },
            (None, is_doomed) => {
                debug_assert!(!is_doomed, "who only reads is not doomed");
                State::Reading { has_right }
            }
        };
    }

    /// Becomes exclusive: both rights are held, and the base alone is the database.
    pub(crate) fn become_exclusive(&mut self) {
        let queued = State::Writing { mode: WriteMode::Queued, has_right: true };
        debug_assert_eq!(*self, queued, "becomes exclusive");
        *self = State::Exclusive { has_right: self.has_right() };
    }

    /// Ends it as exclusive, after SQLite's own commit or rollback; false if it was not.
    pub(crate) fn end_exclusive(&mut self) -> bool {
        let State::Exclusive { has_right } = *self else { return false };
        *self = State::Writing { mode: WriteMode::Queued, has_right };
        true
    }

    /// Notes a conflict: a transaction that has begun to write commits nothing more (CONN-3); one
    /// that only reads goes on.
    pub(crate) fn doom(&mut self) {
        debug_assert!(!self.is_exclusive(), "an exclusive transaction is refused");
        if let State::Writing { mode, has_right } = *self {
            *self = State::Doomed { mode, has_right };
        }
    }

    /// Ends it as a writer. The right, if held, is given back next.
    pub(crate) fn end_writing(&mut self) {
        debug_assert!(!self.is_exclusive(), "an exclusive transaction ends by `exclusive_end`");
        *self = State::Reading { has_right: self.has_right() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds CONN-3
    #[test]
    fn a_conflict_dooms_who_has_begun_to_write_and_nobody_else() {
        let mut state = State::IDLE;
        state.doom();
        assert_eq!(state, State::IDLE);
        state.become_writer(WriteMode::Optimistic);
        state.set_right(true);
        state.doom();
        assert!(state.is_doomed() && state.has_right() && !state.records_reads());
        assert_eq!(state.mode(), Some(WriteMode::Optimistic));
        state.end_writing();
        state.set_right(false);
        assert_eq!(state, State::IDLE);
    }

    #[test]
    fn who_fails_to_become_exclusive_is_what_it_was_and_stays_doomed() {
        let mut state = State::IDLE;
        state.become_writer(WriteMode::Optimistic);
        state.set_right(true);
        state.become_writer(WriteMode::Queued);
        state.go_back_to(Some(WriteMode::Optimistic));
        assert_eq!(state, State::Writing { mode: WriteMode::Optimistic, has_right: true });
        state.doom();
        state.go_back_to(Some(WriteMode::Optimistic));
        assert!(state.is_doomed());
    }

    #[test]
    fn a_call_that_a_state_does_not_have_is_refused() {
        let reading = State::IDLE;
        let writing = State::Writing { mode: WriteMode::Queued, has_right: true };
        let exclusive = State::Exclusive { has_right: true };
        let permitted = |state: State| {
            let asked =
                [state.permits_writes(), state.permits_commit(), state.permits_exclusive_calls()];
            asked.map(|answer| answer.is_ok())
        };
        assert_eq!(permitted(reading), [false, true, false]);
        assert_eq!(permitted(writing), [true, true, false]);
        assert_eq!(permitted(exclusive), [false, false, true]);
        assert!(matches!(reading.permits_writes(), Err(Error::Misuse(_))));
    }

    #[test]
    fn only_who_has_both_rights_becomes_exclusive() {
        let mut state = State::IDLE;
        state.set_right(true);
        state.become_writer(WriteMode::Queued);
        state.become_exclusive();
        assert!(state.is_exclusive() && state.mode() == Some(WriteMode::Queued));
        assert!(state.end_exclusive() && !state.end_exclusive());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "queued without the right")]
    fn nobody_is_queued_without_the_right() {
        let mut state = State::IDLE;
        state.become_writer(WriteMode::Queued);
    }
}
