//! Tickets: which commits are on disk, for programs that do not wait for the disk in each COMMIT.
//!
//! A commit under NORMAL returns when it is in shared memory. Its *ticket* is its timestamp:
//! commits are on disk in the order of their timestamps, so one number says how far the disk has
//! come.
//!
//! | commit | is on disk when | found out by |
//! |---|---|---|
//! | in the log | a sync of the log, begun after it was published, has ended | (1) |
//! | of a part of several files | the same, for the frame that resolves it | (1) |
//! | exclusive, under FULL | SQLite's commit returns | its author |
//! | exclusive, else | the base's WAL has been synced after it | (2) |
//! | of a connection alone, before the session | the fence is up | the process that waits for it |
//!
//! 1. The leader of the sync; its author under FULL.
//! 2. The leader of the next sync of the log, before which the WAL is synced (log/before.rs), or
//!    the process that waits for the commit.
//!
//! Timestamps of a session begin above those of all earlier sessions, unless the clock is put back
//! (`first_timestamp` in session.rs), so that numbers kept by a program stay in order. Their
//! meaning ends with their session: after a power cut it is unknown which of its commits were lost.
//! So a wait refuses tickets of earlier sessions, and those not given out yet.
//!
//! Invariants
//! - TICKET-1 Every commit through `durable_ts` is on disk, and `durable_ts` never goes back within
//!   a session.
//! - TICKET-2 A commit is in the log, or counted as one of the base, before `newest_ts` shows it.
//!   So a process that loads `newest_ts`, then the end of the log and the count of the base's
//!   commits, and brings those to disk, has brought all commits through it.
//! - TICKET-3 Tickets of one session are in the order of its commits, whichever connection made
//!   them.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Acquire;
use std::time::{Duration, Instant};

use super::Conn;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::ids::{CommitTs, Lsn};
use crate::sync::wait::Wait;

/// The last commit of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastCommit {
    ts: u64,
    /// How far the log has to be on disk for it; `None` if it is in the base.
    end: Option<Lsn>,
}

impl LastCommit {
    /// Returns what stands for it before the first one: everything committed so far.
    pub(super) fn of_others(db: &Database) -> LastCommit {
        LastCommit { ts: db.log_shared().newest_ts(), end: None }
    }

    /// Its timestamp.
    pub(super) fn ts(&self) -> u64 {
        self.ts
    }
}

impl Conn {
    /// Returns the ticket of this connection's last commit (if it has made none, of the newest
    /// commit when it joined), and the newest ticket through which every commit is on disk.
    ///
    /// # Errors
    /// Misuse in the child of a fork.
    pub fn tickets(&self) -> Result<(u64, u64)> {
        self.db.check_fork()?;
        Ok((self.last_commit.ts, self.db.durable_ts()))
    }

    /// Notes a commit of this connection; `end` as in [`LastCommit`]. `taken`: timestamps that it
    /// took.
    pub(super) fn note_own_commit(&mut self, ts: CommitTs, end: Option<Lsn>, taken: u64) {
        self.own_timestamps += taken;
        self.last_commit = LastCommit { ts: ts.get(), end };
    }

    /// Notes that its last commit is on disk, and all before it (BEFORE-2 in log/before.rs,
    /// EXCL-1).
    pub(super) fn note_own_durable(&self) {
        self.db.log_shared().note_durable_ts(self.last_commit.ts);
    }

    /// Returns true when the commit of `ticket` is on disk; leads the sync for it if no other
    /// thread does. Returns false if it is not after `patience`, which a sync that it leads may
    /// outlast. `None` waits as long as it takes.
    ///
    /// # Errors
    /// Misuse for a ticket of another session; Interrupted; those of raising the fence; the failure
    /// that has stopped the log.
    pub fn wait_durable(
        &mut self,
        ticket: u64,
        patience: Option<Duration>,
        wait: &mut Wait<'_>,
    ) -> Result<bool> {
        self.db.check_fork()?;
        let shared = self.db.log_shared();
        if ticket == 0 || (shared.first_ts()..=shared.durable_ts()).contains(&ticket) {
            return Ok(true);
        }
        self.refuse_foreign(ticket)?;
        if patience == Some(Duration::ZERO) {
            self.db.check_poison()?;
            return Ok(false);
        }
        if !self.db.is_fenced() {
            // Nothing is in the log. The fence is a commit of the base that is synced, with
            // everything before it.
            self.db.ensure_fenced(self.slot, wait)?;
        }
        let until = patience.and_then(|patience| Instant::now().checked_add(patience));
        let end = self.last_commit.end.filter(|_| ticket == self.last_commit.ts);
        self.db.bring_ticket_to_disk(ticket, end, until, wait.interrupted)
    }

    /// Returns an eventfd that becomes readable whenever more is on disk, or the log has failed.
    /// From now on a thread of this process syncs what is committed, until this connection is
    /// closed. The caller closes the descriptor; each call returns another one.
    ///
    /// # Errors
    /// No descriptor or thread is available; those of raising the fence.
    pub fn notify_fd(&mut self, wait: &mut Wait<'_>) -> Result<RawFd> {
        self.db.check_fork()?;
        if !self.db.is_fenced() {
            self.db.ensure_fenced(self.slot, wait)?;
        }
        let kept = match self.notify_fd {
            Some(fd) => fd,
            None => *self.notify_fd.insert(self.db.notifier().watch(&self.db)?),
        };
        self.db.notifier().another(kept)
    }

    /// Ends the notifications, before the connection lets go of its database.
    pub(super) fn end_notify(&mut self) {
        let Some(fd) = self.notify_fd.take() else { return };
        self.db.notifier().unwatch(fd);
    }

    fn refuse_foreign(&self, ticket: u64) -> Result<()> {
        let shared = self.db.log_shared();
        // Acquire: every ticket that was given out is included.
        let newest = self.db.control().visible_ts.load(Acquire);
        if (shared.first_ts()..=newest).contains(&ticket) {
            return Ok(());
        }
        let path = self.db.path().display();
        Err(Error::Misuse(if ticket > newest {
            format!("ticket {ticket} is not a ticket of {path}, whose newest is {newest}")
        } else {
            format!(
                "ticket {ticket} belongs to an earlier session of {path}: look in the data \
                 whether its commit is there"
            )
        }))
    }
}
