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
    /// Those of the commit mutex.
    pub(crate) fn begin_following(&self) -> Result<()> {
        self.tell_of_follower(follows::FOLLOWS)
    }

    /// Who may write by the mark may commit again: it was removed.
    ///
    /// # Errors
    /// Those of the commit mutex.
    pub fn end_following(&self) -> Result<()> {
        self.tell_of_follower(follows::PROMOTED)
    }

    fn tell_of_follower(&self, word: u32) -> Result<()> {
        let _guard = self.lock_commit()?;
        self.control().follows.store(word, Relaxed);
        Ok(())
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
}
