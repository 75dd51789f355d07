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
//! - N1 Who is refused in a try is told so, and nobody else: no conflict is recorded, since none comes to light.
//! - N2 Others choose rowids as if it waited for the right: it takes none itself, and ends at once.

use std::sync::atomic::Ordering::Relaxed;

use super::{Conn, WriteMode};
use crate::error::Result;
use crate::sync::wait::Wait;

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
