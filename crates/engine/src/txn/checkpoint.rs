//! Checkpoints that an application runs, in the lock order of docs/locks.md.
//!
//! SQLite's own FULL, RESTART and TRUNCATE wait for readers with the WAL's write lock held: merges,
//! exclusive transactions and with them all writers would wait for those readers, too. So a
//! checkpoint here is made of attempts that do not wait:
//!
//! ```text
//! the right to merge, as the busy timeout allows -> everything merged (the first time) -> attempt
//!     -> the right given back
//! readers were in the way: sleep with nothing held, and again until the busy timeout ends
//! ```
//!
//! Invariants
//! - CKPT-1 A checkpoint that waits for readers holds neither a right nor a lock of the WAL.
//! - CKPT-2 An attempt holds the right to merge, so that no other of our connections writes to the
//!   WAL. Only PASSIVE, which SQLite runs while another writes to the WAL, does without: if an
//!   exclusive transaction has the right and has left nothing to merge.
//! - CKPT-3 A checkpoint other than PASSIVE is complete only when everything committed before it is
//!   in the base. It also waits for what a commit over several files, or readers that hold every
//!   memtable, keep in memory.
//! - CKPT-4 What an attempt has left in the WAL counts against its limit (SNAP-4). Past the limit
//!   nothing more is merged, and the attempt meets the readers that cause this: PASSIVE is complete
//!   then, as in SQLite; the others wait for them.
//! - CKPT-5 TRUNCATE leaves the file unfenced, so that a copy of it is a whole database
//!   (upkeep/fence.rs), unless a transaction has committed since or has the writer's right. It is
//!   complete in that case, too, since it waits for no writer, but does not report that by three
//!   zeros.

use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

use crate::base::Checkpoint;
use crate::database::merge_right::MergeRight;
use crate::error::{Error, Result};
use crate::shm::read_marks::ReadMarks;
use crate::sync::wait::{Patience, Wait};
use crate::txn::Conn;

/// The checkpoint that an application asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// What can be done at once.
    Passive,
    /// Everything into the database file: SQLite's FULL and RESTART.
    Whole,
    /// As `Whole`, and the WAL becomes empty. Then the file is at rest until the next commit
    /// (CKPT-5).
    Truncate,
}

/// Longest sleep between two attempts: readers send no wake-up.
const NAP_MAX: Duration = Duration::from_millis(10);

impl Conn {
    /// Merges everything committed before the call. Then calls `attempt`, with the right to merge
    /// held, until that returns that it is complete. `attempt` gets the locks on read marks that
    /// are in force, and must not wait. Returns true after a TRUNCATE that has left the file at
    /// rest.
    ///
    /// # Errors
    /// Busy when the right was not free, or readers were in the way, until the wait ended;
    /// Interrupted; those of merging and of `attempt`.
    pub fn checkpoint(
        &mut self,
        wait: &mut Wait<'_>,
        asked: Asked,
        attempt: &mut dyn FnMut(Option<&ReadMarks>) -> Result<bool>,
    ) -> Result<bool> {
        let passive = asked == Asked::Passive;
        let mut patience = match passive {
            true => Patience::own_work_only(wait),
            false => Patience::new(wait),
        };
        let word = &self.db.control().merge_word;
        let mut merged = false;
        let mut at_rest = false;
        let newest = self.db.newest_generation()?;
        for attempts in 1u32.. {
            let right = match self.db.own_merge_patiently(self.slot, &mut patience) {
                Ok(right) => Some(right),
                Err(e) if !(passive && e.is_busy() && self.is_beside_exclusive()) => return Err(e),
                Err(_) => None,
            };
            let outcome = match &right {
                Some(right) if !merged => {
                    // Without the fence the read marks are not known to be counts.
                    right.adopt_fence().and_then(|()| self.merge_beside_others(right))
                }
                _ => Ok(()),
            };
            let outcome = outcome.and_then(|()| {
                merged = passive || self.db.generations.is_merged_through(newest);
                attempt(self.db.read_marks()).map(|is_through| is_through && merged)
            });
            let mut outcome = outcome;
            if let Some(right) = &right {
                let copied = right.checkpoint(Checkpoint::Passive);
                // What was asked for is done, if it is: a failure here says nothing about that.
                if !matches!(outcome, Ok(true)) {
                    copied?;
                }
                if asked == Asked::Truncate && matches!(outcome, Ok(true)) {
                    // Frees the writer's right of a dead process.
                    self.db.reap_dead()?;
                    outcome = right.lower_fence().map(|lowered| {
                        at_rest = lowered;
                        true
                    });
                }
            }
            drop(right);
            // Read after the right was given back, which changes the word; an earlier value would
            // prevent the sleep.
            let seen = word.load(Acquire);
            match outcome {
                Ok(true) => return Ok(at_rest),
                Err(e) if !e.is_busy() => return Err(e),
                in_the_way => {
                    if patience.is_over() {
                        return Err(in_the_way.err().unwrap_or_else(|| match merged {
                            true => self.readers_in_the_way(),
                            false => self.db.stays_in_memory(),
                        }));
                    }
                }
            }
            let nap = Duration::from_millis(attempts.into());
            patience.sleep(word, seen, nap.min(NAP_MAX))?;
            self.db.settle_prepared_of_dead()?;
        }
        unreachable!("the loop ends by returning")
    }

    /// True if an exclusive transaction has begun: it changes the base alone, and no other
    /// transaction commits.
    fn is_beside_exclusive(&self) -> bool {
        self.db.has_exclusive() && self.db.generations.is_memory_empty()
    }

    fn merge_beside_others(&self, right: &MergeRight<'_>) -> Result<()> {
        match right.check_wal_limit() {
            Err(Error::Full(_)) if self.db.is_wal_at_limit() => return Ok(()),
            checked => checked?,
        }
        self.db.prepare_next_generation()?;
        right.merge(false)
    }

    fn readers_in_the_way(&self) -> Error {
        Error::Busy(format!(
            "readers still need the WAL of the database file{}; retry when they have ended, or \
             raise the busy timeout",
            self.db.slots.say_oldest_reader()
        ))
    }
}
