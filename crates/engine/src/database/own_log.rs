//! The file of this session's log, and whether it is still the file under its name.

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
    /// Removes the log, which the base no longer needs.
    pub(crate) fn remove_log(&self) -> Result<()> {
        let held = self.log.get().map(Log::file);
        session::restore::remove_own_log(&self.region, &self.path, held)
    }

    /// Opens the file of the log. If it is missing, or another has its name, processes that have it
    /// open write to nothing that a recovery would find: all are stopped.
    pub(super) fn open_log(&self) -> Result<LogFile> {
        let open = || session::open_log(&self.region, &self.path, self.log_claim.get());
        let mut opened = open();
        if opened.is_err() && self.is_fenced() {
            // The mode may have been left and entered between the two tries.
            opened = open();
        }
        match opened {
            Err(LogError::Io { .. }) | Ok(_) => {}
            // A process that ends a session unfences before it removes the log.
            Err(_) if self.is_fenced() && self.check_place().is_ok() => {
                self.log_shared().set_lost();
                self.check_poison()?;
            }
            Err(_) => {}
        }
        opened.map_err(Error::from)
    }

    /// Fails, and stops the log for all processes, if it is no longer in its place.
    pub(crate) fn look_at_log(&self) -> Result<()> {
        if self.is_fenced() {
            self.log()?.look()?;
        }
        Ok(())
    }

    /// Returns true once this process is known to use the log of this session.
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

    /// True if the database file has lost its last name.
    pub(crate) fn is_deleted(&self) -> bool {
        aside::is_nameless(self.base_identity())
    }

    /// Removes the names of log and shared memory (DELETED-2 in session/aside.rs).
    pub(crate) fn let_go_of_names(&self) {
        // If a name remains the caller, which looks for a log in use, finds it.
        let region = self.region.file();
        let _ = side::remove(region, self.region.path());
        if let Some(log) = self.log_claim.get() {
            let _ = side::remove(log, &log_path(&self.path));
        }
    }

    /// Stops the use of the log by this process; `false` allows it again.
    pub(crate) fn set_log_retired(&self, is_retired: bool) {
        self.log_retired.store(is_retired, Release);
    }
}
