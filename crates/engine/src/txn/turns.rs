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

use super::Conn;

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
