//! Bringing commits to disk by their timestamps. What those tell, and T1 to T3: txn/tickets.rs.

use std::time::Instant;

use super::Database;
use crate::error::{Error, Result};
use crate::ids::Lsn;

impl Database {
    /// Commits through this timestamp are on disk.
    pub(crate) fn durable_ts(&self) -> u64 {
        self.log_shared().durable_ts()
    }

    /// Brings everything to disk that has been committed before this was called.
    pub(crate) fn sync_commits(&self) -> Result<()> {
        let newest = self.log_shared().newest_ts();
        if self.durable_ts() >= newest || !self.is_fenced() {
            return Ok(());
        }
        self.check_poison()?;
        self.bring_ticket_to_disk(newest, None, None, &mut || false).map(drop)
    }

    /// Returns true when the commit of `ticket`, of this session, is on disk; false if it is not at `until`. `end`: where it ends, if it is in the
    /// log and that is known.
    pub(crate) fn bring_ticket_to_disk(
        &self,
        ticket: u64,
        end: Option<Lsn>,
        until: Option<Instant>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<bool> {
        let shared = self.log_shared();
        let log = self.log()?;
        // In this order (T2).
        let newest = shared.newest_ts();
        let through = end.unwrap_or_else(|| shared.log_end());
        let mut is_interrupted = false;
        let is_synced = log.sync_while(through, |longest| {
            is_interrupted = interrupted();
            if let Some(until) = until {
                let left = until.saturating_duration_since(Instant::now());
                *longest = left.min(*longest);
                return !is_interrupted && !left.is_zero() && shared.durable_ts() < ticket;
            }
            !is_interrupted && shared.durable_ts() < ticket
        })?;
        if !is_synced {
            return if is_interrupted {
                Err(Error::Interrupted)
            } else {
                Ok(shared.durable_ts() >= ticket)
            };
        }
        if end.is_some() {
            // What lies before it in the base was synced before its frame was written (B2 in log/before.rs).
            shared.note_durable_ts(ticket);
        } else if shared.durable_ts() < ticket {
            log.sync_base_commits()?;
            shared.note_durable_ts(newest);
        }
        Ok(true)
    }
}
