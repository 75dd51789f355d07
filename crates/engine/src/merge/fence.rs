//! The fence (F2): raised before the first commit of a session, taken down before the base leaves concurrent mode.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use crate::base::{BaseHeader, Checkpoint};
use crate::crash_point;
use crate::database::Database;
use crate::database::merge_right::MergeRight;
use crate::error::{Error, Result};
use crate::ids::SlotIndex;
use crate::session;
use crate::shm::layout::fence;
use crate::sync::wait::{Patience, Wait};

/// Longest wait for the base's WAL before the caller is asked whether it wants to go on.
const BASE_WAIT: Duration = Duration::from_millis(100);

impl MergeRight<'_> {
    /// `longest`: how long it waits for who writes to the base.
    fn raise_fence(&self, longest: Duration) -> Result<()> {
        let c = self.db.control();
        if c.fence.load(Relaxed) == fence::FENCED {
            return Ok(());
        }
        self.db.refuse_orphan()?;
        let at_rest = self.db.with_base(|base| base.header())?;
        self.db.refuse_other_session(&at_rest)?;
        if at_rest.fenced {
            // The author of this session's own fence died, or failed, before it could say so.
            return self.db.finish_own_fence(&at_rest);
        }
        self.db.create_log()?;
        crash_point!("fence.log_created");
        let raised = self.db.with_base(|base| {
            base.wait_at_most(Some(longest));
            let raised = session::in_transaction(base, |base| {
                let before = base.header()?;
                self.db.refuse_other_session(&before)?;
                let stamped = BaseHeader { marked: true, fenced: true, ..before };
                base.stamp(&BaseHeader { salt: c.salt.load(Relaxed), ..stamped })?;
                Ok((before, stamped))
            });
            base.wait_at_most(None);
            raised
        });
        if raised.is_err() && self.db.with_base(session::bury_unseen).is_err() {
            self.leave_behind();
        }
        let (before, stamped) = raised?;
        crash_point!("fence.committed");
        // The fence must not depend on the WAL file staying where it is (Y3 in session.rs). With the checkpoint there is
        // mostly nothing left to do for it.
        let brought = self.checkpoint(Checkpoint::Passive);
        self.db.with_base(|base| base.raise_fence())?;
        crash_point!("fence.raised");
        self.db.note_fence(&before, &stamped)?;
        brought
    }
}

impl Database {
    /// Makes sure that stock SQLite is fenced out and the log exists before the first commit (F2).
    /// Cheap once it is.
    pub(crate) fn ensure_fenced(&self, slot: SlotIndex, wait: &mut Wait<'_>) -> Result<()> {
        // Acquire pairs with the Release below: the log is there.
        if self.control().fence.load(Acquire) == fence::FENCED {
            return Ok(());
        }
        self.while_base_is_busy(&mut Patience::new(wait), |patience| {
            let right = self.own_merge_patiently(slot, patience)?;
            right.raise_fence(patience.left().min(BASE_WAIT))
        })
    }

    /// Raises in the database file a fence of this session that is in the base already, and says so. Nothing was committed.
    pub(crate) fn finish_own_fence(&self, header: &BaseHeader) -> Result<()> {
        self.with_base(|base| base.raise_fence())?;
        let _guard = self.lock_commit()?;
        self.note_own_fence(header);
        Ok(())
    }

    fn note_fence(&self, before: &BaseHeader, stamped: &BaseHeader) -> Result<()> {
        let c = self.control();
        let _guard = self.lock_commit()?;
        c.fence_cookie.store(before.cookie, Relaxed);
        let active = self.generations.active_generation().number.load(Relaxed);
        assert!(active > stamped.generation.get(), "a stock program cannot raise the generation");
        // Stock programs may have written until now (G4 in gaps/).
        self.gaps().forget();
        // Release pairs with the Acquire in `ensure_fenced`.
        c.fence.store(fence::FENCED, Release);
        Ok(())
    }

    /// Another session may fence the file only if two shared memory files stand beside one database.
    fn refuse_other_session(&self, header: &BaseHeader) -> Result<()> {
        if !header.marked {
            return Err(Error::Left);
        }
        if header.fenced && header.salt != self.control().salt.load(Relaxed) {
            return Err(Error::CantOpen(
                "the database is in use by another session: its -plait-shm file was removed, or it is open under another \
                 name (a hard link); close it everywhere and open it again"
                    .into(),
            ));
        }
        Ok(())
    }

    /// Fails if the shared memory file is not at its place any more.
    fn refuse_orphan(&self) -> Result<()> {
        if self.region().is_in_place() {
            return Ok(());
        }
        Err(Error::CantOpen(format!(
            "{} was removed or replaced while the database was open; close every connection and open it again",
            self.region().path().display()
        )))
    }

    /// (M) Notes a fence that is in the base, and in the database file, although its author did not live to say so here.
    pub(crate) fn note_own_fence(&self, header: &BaseHeader) {
        let c = self.control();
        if header.fenced
            && header.salt == c.salt.load(Relaxed)
            && c.fence.load(Relaxed) == fence::RESTING
        {
            // As in `note_fence`.
            self.gaps().forget();
            c.fence_cookie.store(header.cookie, Relaxed);
            // Release pairs with the Acquire in `ensure_fenced`.
            c.fence.store(fence::FENCED, Release);
        }
    }

    /// Before the base leaves concurrent mode, in an exclusive transaction: unfences it and removes the log, so that every
    /// state in between is one that start-up knows. Everything is merged.
    pub fn retire_log(&self) -> Result<()> {
        {
            let _guard = self.lock_commit()?;
            // From here on nobody commits: optimistic transactions find out in their critical section, others
            // when they become writers.
            self.control().fence.store(fence::RESTING, Release);
        }
        crash_point!("disable.resting");
        self.set_log_retired(true);
        if let Err(e) = self.with_base(session::unfence) {
            self.stay_fenced()?;
            return Err(e);
        }
        crash_point!("disable.unfenced");
        self.remove_log()?;
        crash_point!("disable.log_removed");
        Ok(())
    }

    /// The base could not be unfenced. If it still is fenced the session goes on as it was.
    fn stay_fenced(&self) -> Result<()> {
        let header = self.with_base(|base| {
            session::bury_unseen(base)?;
            base.header()
        })?;
        if header.fenced {
            let _guard = self.lock_commit()?;
            self.set_log_retired(false);
            self.note_own_fence(&header);
        }
        Ok(())
    }
}
