//! The last changes of the base: which generations each merge has merged, and what that has
//! written. Whoever ships the log elsewhere needs them: a merge is a function of base and
//! generations, so there the same generations give the same base.
//!
//! Invariants
//! - BOUND-1 Each change of the base has an entry before `base_generation` says so, in the critical
//!   section that settles it. If its author dies before, the process that settles makes one of the
//!   kind `UNKNOWN`. So between the entries of a reader and the present base nothing is missing.
//! - BOUND-2 What may change bytes of the base and no generation, a burial (`session::bury`) or the
//!   time until the fence is raised, has an entry of the kind `UNKNOWN` too.
//! - BOUND-3 An entry is read without a lock, and counts only if it was not the next one to be
//!   written, nor an earlier one, when its reading ended.

use std::sync::atomic::Ordering::Relaxed;

use super::Database;
use crate::error::Result;
use crate::ids::{Generation, Lsn};
use crate::shm::shipping::{Boundaries, Boundary, Change};

impl Database {
    /// The last changes of the base.
    pub(crate) fn boundaries(&self) -> &Boundaries {
        &self.region().layout().shipping.boundaries
    }

    /// (M) Notes that the base is complete through a later generation, unless that is noted: its
    /// author may have died behind that.
    pub(crate) fn note_boundary(&self, through: Generation, change: Change, end: Lsn) {
        let before = Generation::new(self.control().base_generation.load(Relaxed));
        if through > before && self.boundaries().last_through() != Some(through) {
            self.boundaries().note(&Boundary { before, through, change, end });
        }
    }

    /// (M) Notes a change that nobody can tell, which may have left the generation as it was
    /// (BOUND-2).
    pub(crate) fn note_unknown_boundary(&self, through: Generation) {
        let base = Generation::new(self.control().base_generation.load(Relaxed));
        self.boundaries().note_unknown(base, through);
    }

    /// As [`Database::note_unknown_boundary`], for the present generation.
    ///
    /// # Errors
    /// Those of the commit mutex.
    pub fn note_burial(&self) -> Result<()> {
        let _guard = self.lock_commit_even_if_poisoned()?;
        self.note_unknown_boundary(Generation::ZERO);
        Ok(())
    }
}
