//! What a transaction was shown before readers may see it, and who settles that (database/readable.rs V1).

use std::sync::atomic::Ordering::Acquire;

use super::{Conn, Sync};
use crate::error::Result;
use crate::ids::Lsn;

/// The newest commits that a transaction was shown.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Shown {
    ts: u64,
    /// How far the log has to be on disk for the FULL ones of them.
    needs: u64,
}

impl Conn {
    /// The transaction is shown commits through `ts`, perhaps newer than readers see.
    pub(crate) fn note_shown(&mut self, ts: u64, needs: Lsn) {
        self.shown.ts = self.shown.ts.max(ts);
        self.shown.needs = self.shown.needs.max(needs.get());
    }

    /// The transaction has ended, though statements may go on reading in its snapshot: settles what it was shown (V1).
    ///
    /// # Errors
    /// The failure of a sync, which poisons the database.
    pub fn settle_shown(&mut self) -> Result<()> {
        self.settle_shown_as(self.level)
    }

    pub(crate) fn settle_shown_as(&mut self, level: Sync) -> Result<()> {
        let shown = std::mem::take(&mut self.shown);
        let needs = Lsn::new(shown.needs);
        // What was reported as read must not be lost.
        let synced = if level == Sync::Full { self.db.bring_to_disk(needs) } else { Ok(()) };
        // Also after a failure: then those who read next sync, or fail.
        if shown.ts > self.db.control().readable_ts.load(Acquire) {
            self.db.settle(shown.ts, needs);
        }
        synced
    }

    /// How durable is what this connection reports, from its next transaction on.
    pub fn set_level(&mut self, level: Sync) {
        self.level = level;
    }
}
