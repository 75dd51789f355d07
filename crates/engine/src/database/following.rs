//! The session of a replica says that it is one: followers alone commit there (REPLICA-3 in replica.rs).

use std::sync::atomic::Ordering::Relaxed;

use super::Database;
use crate::error::{Error, Result};
use crate::replica::{Told, refusal};
use crate::shm::layout::follows;

impl Database {
    /// From here on followers alone commit (REPLICA-3). The caller's connection has the writer's right.
    ///
    /// # Errors
    /// Those of the commit mutex; Misuse if it was promoted (REPLICA-5).
    pub(crate) fn begin_following(&self) -> Result<()> {
        let _guard = self.lock_commit()?;
        self.refuse_promoted()?;
        self.control().follows.store(follows::FOLLOWS, Relaxed);
        Ok(())
    }

    /// Who may write by the mark may commit again: it was removed.
    ///
    /// # Errors
    /// Those of the commit mutex.
    pub fn end_following(&self) -> Result<()> {
        let _guard = self.lock_commit()?;
        self.control().follows.store(follows::PROMOTED, Relaxed);
        Ok(())
    }

    /// Does what only a follower of a replica may do beside the session, as to write its mark, so that no promotion
    /// comes between; `None` if the database was promoted (REPLICA-5). Commits wait so long.
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

    /// Fails if it was promoted: no follower commits from then on (REPLICA-5).
    pub(crate) fn refuse_promoted(&self) -> Result<()> {
        if self.was_promoted() {
            let base = self.path().display();
            Err(Error::Misuse(format!("{base} was promoted: nothing follows with it any more")))
        } else {
            Ok(())
        }
    }
}
