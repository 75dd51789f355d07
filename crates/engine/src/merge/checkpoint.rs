//! Checkpoints that an application asks for, in the lock order of docs/locks.md.
//!
//! SQLite's own FULL, RESTART and TRUNCATE wait for readers with the WAL's write lock held: merges, exclusive transactions and
//! with them all writers would wait for those readers too. So a checkpoint here is made of attempts that wait for nobody:
//!
//! ```text
//! the right to merge, as the busy timeout allows -> everything merged (the first time) -> attempt -> the right given back
//!     readers were in the way: sleep with nothing held, and again until the busy timeout ends
//! ```
//!
//! Invariants
//! - K1 Whoever waits here holds neither a right nor a lock of the WAL.
//! - K2 An attempt holds the right to merge, so that none of our connections writes to the WAL beside it.

use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::shm::read_marks::ReadMarks;
use crate::txn::Conn;
use crate::txn::right::{Patience, Wait};

/// Longest sleep between two attempts: readers wake nobody.
const NAP_MAX: Duration = Duration::from_millis(10);

impl Conn {
    /// Merges everything committed before the call, and calls `attempt` with the right to merge held until it says that it
    /// is through. It gets the locks on read marks that are in force, and waits for nobody.
    ///
    /// # Errors
    /// Busy when the right was not free, or readers were in the way, until the wait ended; Interrupted; those of merging and of
    /// `attempt`.
    pub fn checkpoint(
        &mut self,
        wait: &mut Wait<'_>,
        attempt: &mut dyn FnMut(Option<&ReadMarks>) -> Result<bool>,
    ) -> Result<()> {
        let mut patience = Patience::new(wait);
        let word = &self.db.control().merge_word;
        let mut merged = false;
        for attempts in 1u32.. {
            let seen = word.load(Acquire);
            let right = self.db.own_merge_patiently(self.slot, &mut patience)?;
            let outcome = if merged { Ok(()) } else { self.merge_beside_others() };
            let outcome = outcome.and_then(|()| {
                merged = true;
                attempt(self.db.read_marks())
            });
            drop(right);
            match outcome {
                Ok(true) => return Ok(()),
                Err(e) if !e.is_busy() => return Err(e),
                in_the_way => {
                    if patience.is_over() {
                        return Err(in_the_way.err().unwrap_or_else(|| self.readers_in_the_way()));
                    }
                }
            }
            let nap = Duration::from_millis(attempts.into());
            patience.sleep(word, seen, nap.min(NAP_MAX))?;
        }
        unreachable!("the loop ends by returning")
    }

    fn merge_beside_others(&self) -> Result<()> {
        self.db.prepare_next_generation()?;
        self.db.merge_owned(false)
    }

    fn readers_in_the_way(&self) -> Error {
        Error::Busy(format!(
            "readers need what is in the WAL of the database file{}; retry when they have ended, or raise the busy timeout",
            self.db.say_oldest_reader()
        ))
    }
}
