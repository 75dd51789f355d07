//! The session of a replica says that it is one: followers alone commit there (REPLICA-3 in replica.rs).

use std::sync::atomic::Ordering::Relaxed;

use super::Database;
use crate::error::{Error, Result};
use crate::replica::{Told, refusal};

impl Database {
    /// From here on followers alone commit (REPLICA-3). The caller's connection has the writer's right.
    ///
    /// # Errors
    /// Those of the commit mutex.
    pub(crate) fn begin_following(&self) -> Result<()> {
        self.tell_whether_it_follows(true)
    }

    /// Who may write by the mark may commit again: it was removed.
    ///
    /// # Errors
    /// Those of the commit mutex.
    pub fn end_following(&self) -> Result<()> {
        self.tell_whether_it_follows(false)
    }

    fn tell_whether_it_follows(&self, follows: bool) -> Result<()> {
        let _guard = self.lock_commit()?;
        self.control().follows.store(u32::from(follows), Relaxed);
        Ok(())
    }

    /// True if a follower has joined this session, and the database was not promoted since.
    pub fn is_followed(&self) -> bool {
        // Relaxed: changes under the commit mutex, and where it decides the caller has that, or has taken
        // the writer's right under it.
        self.control().follows.load(Relaxed) != 0
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
