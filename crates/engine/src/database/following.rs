//! The session of a replica says that it is one: followers alone commit there (REPLICA-3 in replica.rs).

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use super::Database;
use crate::error::{Error, Result};
use crate::replica::{Told, refusal};
use crate::shm::layout::follows;

/// Tells whether the follower of this process still is the database's only one, as far as it knows.
pub type StillFollows = Box<dyn Fn() -> bool + Send + Sync>;

/// What the follower of this process follows by, if one does.
#[derive(Default)]
pub(super) struct Warrant(Mutex<Option<StillFollows>>);

impl Database {
    /// Has each commit of the follower of this process ask first (REPLICA-6). It is asked under the commit mutex.
    pub(crate) fn follow_while(&self, still: StillFollows) {
        *self.warrant.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(still);
    }

    /// From here on followers alone commit (REPLICA-3). The caller's connection has the writer's right.
    ///
    /// # Errors
    /// Those of the commit mutex; Misuse if it was promoted (REPLICA-5).
    pub(crate) fn begin_following(&self) -> Result<()> {
        let _guard = self.lock_commit()?;
        self.refuse_follower()?;
        self.control().follows.store(follows::FOLLOWS, Relaxed);
        Ok(())
    }

    /// Who may write by the mark may commit again: it was removed. The caller's connection has the writer's right, so
    /// that no transaction of a follower is under way (REPLICA-5).
    ///
    /// # Errors
    /// Those of the commit mutex.
    pub(crate) fn end_following(&self) -> Result<()> {
        let _guard = self.lock_commit()?;
        self.control().follows.store(follows::PROMOTED, Relaxed);
        Ok(())
    }

    /// Does what only a follower of a replica may do beside the session, as to write its mark, so that no promotion
    /// and no commit comes between; `None` if the database was promoted (REPLICA-5). Commits wait so long.
    ///
    /// # Errors
    /// Those of the commit mutex.
    pub fn unless_promoted<T>(&self, does: impl FnOnce() -> T) -> Result<Option<T>> {
        let _guard = self.lock_commit()?;
        Ok((!self.was_promoted()).then(does))
    }

    /// True if a follower has joined this session, and the database was not promoted since.
    pub fn is_followed(&self) -> bool {
        // Relaxed: changes under the commit mutex, and where it decides the caller has that, or has taken
        // the writer's right under it.
        self.control().follows.load(Relaxed) == follows::FOLLOWS
    }

    /// True if it was promoted in this session: connections that are older can only read.
    pub fn was_promoted(&self) -> bool {
        self.control().follows.load(Relaxed) == follows::PROMOTED
    }

    /// Fails if followers alone commit.
    pub(crate) fn refuse_replica(&self) -> Result<()> {
        if self.is_followed() {
            Err(Error::Follows(refusal(self.path(), Told::BySession)))
        } else {
            Ok(())
        }
    }

    /// Fails if the follower of this process commits no more: the database was promoted (REPLICA-5), or another follower
    /// may have it (REPLICA-6).
    ///
    /// # Errors
    /// Misuse.
    pub fn refuse_follower(&self) -> Result<()> {
        let base = self.path().display();
        let still = self.warrant.0.lock().unwrap_or_else(PoisonError::into_inner);
        if self.was_promoted() {
            Err(Error::Misuse(format!("{base} was promoted: nothing follows with it any more")))
        } else if still.as_ref().is_some_and(|still| !still()) {
            Err(Error::Misuse(format!("another follower may have {base} by now")))
        } else {
            Ok(())
        }
    }
}
