//! The part of an exclusive transaction in one over several files: its pages beside the base, then P (several.rs, pages.rs).
//!
//! On SQLite's own path what commits is a transaction of the base, and its stamp says that it has (E2). So nothing has to
//! follow P in the log: it is resolved as committed by the base, and as rolled back by an empty frame.
//!
//! | P, with pages, is the last frame; the base has | super-journal | then |
//! |---|---|---|
//! | the stamp of P's generation | - | committed, and there. Nothing is left to do but to sync it, to begin the next generation and to remove the files |
//! | not | there | rolled back: an empty frame |
//! | not | gone | committed: the pages are written into the base, in one transaction of SQLite's, and with them the stamp. While that fails readers are refused (K9) |
//! | not | cannot be known (J5) | stays unsettled: readers go on |
//!
//! The author goes by the same table, but knows the decision: he commits through his own handle, and if that fails through
//! the hidden connection, by the pages.
//!
//! | the author dies, or fails | rights | next |
//! |---|---|---|
//! | before P | both, as of any exclusive transaction | buried (estate.rs); the files go with the next transaction over several, or the last close |
//! | with P | both, as of any exclusive transaction: `UNSETTLED`, `UNSETTLED_EXCLUSIVE` | whoever needs one of them, or wants to read, settles by the table above |
//!
//! Invariants, beside K1 to K5
//! - K6 With P the author has both rights until it is resolved, and then his heir has: nobody else writes to the base or to the log. So the
//!   pages go over the base that they were made of (G2), however often it is begun.
//! - K7 The base has the commit on disk before the pages and the reference go, whatever `synchronous` says.
//! - K8 P is of the active generation, which has no rows. When the base has its stamp the next one begins, and P's log space is given
//!   back: a row of such transactions takes none.

use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::Conn;
use super::exclusive::Stamped;
use crate::base::BaseHeader;
use crate::crash_point;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::ids::Generation;
use crate::log::{AppendError, Mark};
use crate::pages::{self, Changed, EachPage, Place};
use crate::several::{self, Verdict};

/// Room for P and the empty frame behind it.
const FRAMES_BYTES: u64 = 16384;

/// What is known of the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Nothing: the author is dead.
    Nothing,
    /// By the author.
    Verdict(Verdict),
    /// The base has it, on disk.
    Done,
}

impl Conn {
    /// Room in the log; both rights are held, so that what there is stays.
    pub(super) fn reserve_for_pages(&self) -> Result<()> {
        let db = &self.db;
        let mut retired = false;
        loop {
            let lacking = {
                let _guard = db.lock_commit()?;
                let generation = Generation::new(db.active_generation().number.load(Relaxed));
                db.ring().check_space(generation, FRAMES_BYTES).err()
            };
            match lacking {
                None => return Ok(()),
                // Everything is merged (E1). No byte is written to the log before the base is on disk (B2).
                Some(AppendError::LimitReached) if !retired => {
                    retired = true;
                    let merged = db.control().base_generation.load(Acquire);
                    db.log()?.retire(Generation::new(merged));
                }
                Some(e) => db.log()?.make_room(e)?,
            }
        }
    }

    /// Prepares: when this returns the pages and P are on disk, and the transaction happens or not as the super-journal says.
    /// The stamped header is among the pages.
    ///
    /// # Errors
    /// None that may be repeated: roll back.
    pub fn part_prepare_pages(
        &mut self,
        super_journal: &Path,
        changed: &Changed,
        each: &mut EachPage<'_>,
    ) -> Result<()> {
        self.refuse_doomed()?;
        self.db.check_fork()?;
        let begun = self.part.filter(|part| !part.is_prepared && self.exclusive && self.has_right);
        let Some(mut part) = begun else {
            return Err(Error::Misuse("a part that has not been begun cannot be prepared".into()));
        };
        let name = self.refer_to(super_journal)?;
        let c = self.db.control();
        let place = Place {
            salt: c.salt.load(Relaxed),
            generation: Generation::new(self.db.active_generation().number.load(Acquire)),
            before: Generation::new(c.base_generation.load(Acquire)),
        };
        let id = pages::write(self.db.path(), &place, changed, each)?;
        crash_point!("several.pages_synced");
        let end = self.publish_prepared(&Mark { name: &name, pages: Some(id) })?;
        part.is_prepared = true;
        self.part = Some(part);
        self.sync_prepared(end)
    }

    /// The super-journal is gone: what is prepared is committed. SQLite's own commit comes next, synced, then `exclusive_end`.
    pub fn part_decided(&mut self) {
        if let Some(part) = self.part.as_mut().filter(|part| part.is_prepared) {
            part.is_decided = true;
            crash_point!("several.decided");
        }
    }

    /// The end of a prepared exclusive transaction: nothing is left undecided, or everything to who settles it. `committed`: by
    /// SQLite's own commit, synced.
    pub(super) fn settle_prepared_part(
        &mut self,
        stamped: Option<Stamped>,
        committed: bool,
    ) -> Result<()> {
        let is_decided = self.part.take().is_some_and(|part| part.is_decided);
        let known = match (committed, is_decided) {
            (true, _) => Known::Done,
            (false, true) => Known::Verdict(Verdict::Committed),
            (false, false) => {
                crash_point!("several.rolling_back");
                Known::Verdict(Verdict::RolledBack)
            }
        };
        let header = self.db.settle_prepared_pages(known)?;
        if let (Some(stamped), Some(header)) = (stamped, header) {
            self.note_committed(&stamped, &header);
        }
        Ok(())
    }
}

impl Database {
    /// Settles a prepared exclusive transaction, whose rights the caller has (K6). The header of the base if it was committed.
    ///
    /// # Errors
    /// Everything is as it was, and may be tried again.
    pub(super) fn settle_prepared_pages(&self, mut known: Known) -> Result<Option<BaseHeader>> {
        let settled = self.try_to_settle_pages(&mut known);
        if settled.is_err() && known == Known::Verdict(Verdict::Committed) {
            self.withhold();
        }
        settled
    }

    /// What is learned of the decision is left in `known`.
    fn try_to_settle_pages(&self, known: &mut Known) -> Result<Option<BaseHeader>> {
        let found = {
            let guard = self.lock_commit()?;
            if !self.has_unresolved() {
                return Err(Error::Corrupt("a prepared transaction has been lost".into()));
            }
            self.read_prepared(&guard)?
        };
        let Some(id) = found.pages else {
            return Err(Error::Corrupt("a prepared transaction has lost its pages".into()));
        };
        if *known == Known::Nothing {
            crash_point!("several.inherited");
        }
        let mut header = self.with_base(|base| base.header())?;
        let is_there = header.generation >= found.generation;
        if !is_there {
            let verdict = match *known {
                Known::Verdict(verdict) => verdict,
                Known::Nothing => several::verdict(self.path(), &found.name)?,
                Known::Done => return Err(Error::Replaced(self.path().to_owned())),
            };
            *known = Known::Verdict(verdict);
            if verdict == Verdict::RolledBack {
                let resolved = self.resolve_as_rolled_back(0)?;
                self.settle(resolved.ts.get(), resolved.needs);
                return Ok(None);
            }
            let salt = self.control().salt.load(Relaxed);
            let pages = pages::open(self.path(), &id, salt, found.generation)?;
            header = BaseHeader { generation: found.generation, ..header };
            self.write_pages(&pages, &header)?;
            crash_point!("several.pages_put");
        } else if *known != Known::Done {
            // A small commit, which syncs this one (K7).
            self.bury_unfinished_commit()?;
        }
        // Before anybody can append a frame after it (B5 in log/before.rs). What is not noted now is noted by who does.
        let is_noted = self.log().is_ok_and(|log| log.note_base(header.generation).is_ok());
        if !is_noted {
            self.log_shared().note_base_commit(header.generation);
        }
        {
            let _guard = self.lock_commit_even_if_poisoned()?;
            let active = self.active_generation().number.load(Acquire);
            self.settle_base(&header, header.generation.get() == active);
            // Last: until then a death makes the heir do this again. Release, for readers without the mutex.
            self.control().prepared_end.store(0, Release);
        }
        crash_point!("several.resolved");
        if is_noted {
            // K8. The base has it on disk.
            self.log()?.retire(found.generation);
        }
        several::forget(self.path());
        crash_point!("several.committed");
        Ok(Some(header))
    }

    fn write_pages(&self, pages: &pages::Pages, stamp: &BaseHeader) -> Result<()> {
        self.with_base(|base| {
            base.begin()?;
            let put = (|| {
                pages.put(self.path(), base)?;
                crash_point!("several.pages_putting");
                base.stamp(stamp)
            })();
            match put {
                Ok(()) => {
                    let unsynced = self.log_shared().base_commits();
                    base.commit()?;
                    self.log_shared().note_base_durable(unsynced);
                    Ok(())
                }
                Err(e) => {
                    base.rollback();
                    Err(e)
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::frame_len;

    #[test]
    fn an_empty_frame_and_the_longest_mark_fit_into_the_room_that_is_made() {
        let name = vec![b'n'; 4096];
        let mark = Mark { name: &name, pages: Some([0; 16]) };
        assert!(2 * frame_len(std::iter::empty()) + mark.encoded_len() <= FRAMES_BYTES);
    }
}
