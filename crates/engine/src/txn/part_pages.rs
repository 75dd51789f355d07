//! The part of an exclusive transaction in one over several files: its author's side of database/prepared_pages.rs.

use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::Conn;
use super::exclusive::Stamped;
use crate::crash_point;
use crate::database::prepared::Resolved;
use crate::database::prepared_pages::Known;
use crate::error::{Error, Result};
use crate::ids::Generation;
use crate::log::{AppendError, Mark};
use crate::pages::{self, Changed, EachPage, Place};
use crate::several::Verdict;

/// Room for P and the empty frame behind it.
const FRAMES_BYTES: u64 = 16384;

impl Conn {
    /// Room in the log; both rights are held, so that what there is stays.
    pub(crate) fn reserve_for_pages(&self) -> Result<()> {
        let db = &self.db;
        let mut retired = false;
        loop {
            let lacking = {
                let _guard = db.lock_commit()?;
                let generation =
                    Generation::new(db.generations.active_generation().number.load(Relaxed));
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
        let begun = self.part.filter(|part| {
            !part.is_prepared && self.state.is_exclusive() && self.state.has_right()
        });
        let Some(mut part) = begun else {
            return Err(Error::Misuse("a part that has not been begun cannot be prepared".into()));
        };
        let name = self.refer_to(super_journal)?;
        let c = self.db.control();
        let place = Place {
            salt: c.salt.load(Relaxed),
            generation: Generation::new(
                self.db.generations.active_generation().number.load(Acquire),
            ),
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
    pub(crate) fn settle_prepared_part(
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
        match (stamped, self.db.settle_prepared_pages(known)?) {
            (Some(stamped), Some(header)) => self.note_committed(&stamped, &header),
            (_, None) => self.own_timestamps += Resolved::TIMESTAMPS,
            (None, Some(_)) => {}
        }
        Ok(())
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
