//! The part of an exclusive transaction in one over several files: its pages beside the base, then P (several.rs, pages.rs).
//!
//! On SQLite's own path what commits is a transaction of the base, and its stamp says that it has (EXCL-2). So nothing has to
//! follow P in the log: it is resolved as committed by the base, and as rolled back by an empty frame.
//!
//! | P, with pages, is the last frame; the base has | super-journal | then |
//! |---|---|---|
//! | the stamp of P's generation | - | committed, and there. Nothing is left to do but to sync it, to begin the next generation and to remove the files |
//! | not | there | rolled back: an empty frame |
//! | not | gone | committed: the pages are written into the base, in one transaction of SQLite's, and with them the stamp. While that fails readers are refused (PREP-9) |
//! | not | cannot be known (SEVERAL-5) | stays unsettled: readers go on |
//!
//! The author goes by the same table, but knows the decision: he commits through his own handle, and if that fails through
//! the hidden connection, by the pages.
//!
//! | the author dies, or fails | rights | next |
//! |---|---|---|
//! | before P | both, as of any exclusive transaction | buried (orphans.rs); the files go with the next transaction over several, or the last close |
//! | with P | both, as of any exclusive transaction: `UNSETTLED`, `UNSETTLED_EXCLUSIVE` | whoever needs one of them, or wants to read, settles by the table above |
//!
//! Invariants, beside PREP-1 to PREP-5
//! - PREP-6 With P the author has both rights until it is resolved, and then who settles it has: nobody else writes to the base or to the log. So the
//!   pages go over the base that they were made of (PAGES-2), however often it is begun.
//! - PREP-7 The base has the commit on disk before the pages and the reference go, whatever `synchronous` says.
//! - PREP-8 P is of the active generation, which has no rows. When the base has its stamp the next one begins, and P's log space is given
//!   back: a row of such transactions takes none.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::base::BaseHeader;
use crate::crash_point;
use crate::database::Database;
use crate::database::changed::Changed;
use crate::error::{Error, Result};
use crate::pages::{self};
use crate::several::{self, Verdict};

/// What is known of the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing: the author is dead.
    Nothing,
    /// By the author.
    Verdict(Verdict),
    /// The base has it, on disk.
    Done,
}

impl Database {
    /// Settles a prepared exclusive transaction, whose rights the caller has (PREP-6). The header of the base if it was committed.
    ///
    /// # Errors
    /// Everything is as it was, and may be tried again.
    pub(crate) fn settle_prepared_pages(&self, mut known: Known) -> Result<Option<BaseHeader>> {
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
            if !self.region().layout().has_unresolved() {
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
            // A small commit, which syncs this one (PREP-7).
            self.bury_unfinished_commit()?;
        }
        // Before anybody can append a frame after it (BEFORE-5 in log/before.rs). What is not noted now is noted by who does.
        let is_noted = self.log().is_ok_and(|log| log.note_base(header.generation).is_ok());
        if !is_noted {
            self.log_shared().note_base_commit(header.generation);
        }
        {
            let _guard = self.lock_commit_even_if_poisoned()?;
            let active = self.generations.active_generation().number.load(Acquire);
            let exclusive = header.generation.get() == active;
            self.generations.settle_base(&header, exclusive.then_some(&Changed::ANYTHING));
            // Last: until then a death makes the next one do this again. Release, for readers without the mutex.
            self.control().prepared_end.store(0, Release);
        }
        crash_point!("several.resolved");
        if is_noted {
            // PREP-8. The base has it on disk.
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
