//! The file of this session's log, and whether it is still that which stands under its name.

use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

use super::Database;
use crate::error::{Error, Result};
use crate::log::{Log, LogError, LogFile};
use crate::session;
use crate::session::aside;
use crate::storage::names::log_path;
use crate::storage::side;
use crate::sync::caller::Uncancelled;

impl Database {
    /// Removes the log, which the base needs no more.
    pub(crate) fn remove_log(&self) -> Result<()> {
        let held = self.log.get().map(Log::file);
        session::restore::remove_own_log(&self.region, &self.path, held)
    }

    /// The file of the log. If it is not there, or another stands in its place, those who have it open write to nothing that a
    /// recovery would find, and all are stopped.
    pub(super) fn open_log(&self) -> Result<LogFile> {
        let open = || session::open_log(&self.region, &self.path, self.log_claim.get());
        let mut opened = open();
        if opened.is_err() && self.is_fenced() {
            // Between the two looks the mode may have been left and entered.
            opened = open();
        }
        match opened {
            Err(LogError::Io { .. }) | Ok(_) => {}
            // Whoever ends a session says so before it removes the log.
            Err(_) if self.is_fenced() && self.check_place().is_ok() => {
                self.log_shared().set_lost();
                self.check_poison()?;
            }
            Err(_) => {}
        }
        opened.map_err(Error::from)
    }

    /// Fails, and stops everybody, if the log is not in its place any more.
    pub(crate) fn look_at_log(&self) -> Result<()> {
        if self.is_fenced() {
            self.log()?.look()?;
        }
        Ok(())
    }

    /// True once this process is known to use the log of this session.
    pub(super) fn claim_log(&self) -> Result<bool> {
        if self.log_claim.get().is_none() {
            let _uncancelled = Uncancelled::begin();
            let claim = session::claim_log(&self.path, false)?;
            let ours = Some(self.log_shared().file_identity());
            if let Some(claim) = claim.filter(|claim| session::identity_of(claim) == ours) {
                // Another thread may have been faster: its claim is as good.
                let _ = self.log_claim.set(Arc::new(claim));
            }
        }
        Ok(self.log_claim.get().is_some())
    }

    /// Whether the database file has lost its last name.
    pub(crate) fn is_deleted(&self) -> bool {
        aside::is_nameless(self.base_identity())
    }

    /// Removes the names of log and shared memory (DELETED-2 in session/aside.rs).
    pub(crate) fn let_go_of_names(&self) {
        // A name that stays is met again by the caller, who looks for a log that is in use.
        let region = self.region.file();
        let _ = side::remove(region, self.region.path());
        if let Some(log) = self.log_claim.get() {
            let _ = side::remove(log, &log_path(&self.path));
        }
    }

    /// From now on this process uses the log no more; or again.
    pub(crate) fn set_log_retired(&self, is_retired: bool) {
        self.log_retired.store(is_retired, Release);
    }
}
