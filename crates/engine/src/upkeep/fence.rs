//! The fence (FILE-2): raised before the first commit of a session, taken down before the base leaves concurrent mode; and lowered in
//! between, in the database file alone, while that has everything, so that a copy of it is a whole database.
//!
//! Four places say whether the base is fenced. The WAL-index (its version, `csrc/marks.c`) speaks for all who have the WAL open, and keeps stock
//! SQLite off for as long as anybody has it; the file speaks for a copy of it, and for those who come when the WAL-index is gone.
//!
//! | `Control::fence` | page 1 in the WAL, WAL-index | the file, bytes 18 and 19 | note in the WAL-index | may commit | a copy of the file alone |
//! |---|---|---|---|---|---|
//! | RESTING | 2, or 3 if a dead author raised it | 2, or 3 likewise | none | nobody | a database, if the WAL is empty |
//! | FENCED | 3 | 3, on disk | none | all | refused |
//! | LOWERED, as before the file was written, or again | 3 | 3 | any | nobody | refused |
//! | LOWERED | 3, and the WAL has no page 1 | 2 | page 1 of the file | nobody | a whole database at rest |
//!
//! ```text
//! RESTING --raise_fence: log, stamp, checkpoint, file--> FENCED --lower_fence--> LOWERED --raise_lowered--> FENCED
//!    all of them --retire_log, the last close, a recovery: stamp 2 in a transaction of the base--> RESTING
//! ```
//!
//! Lowering: under the right to merge, behind a TRUNCATE that is through, LOWERED is stored under the commit mutex if the log has no frame that
//! the base lacks and nobody has the writer's right, who would have to wait for this one at his COMMIT; then the note, then the file. Raising: under
//! the right to merge the file, on disk; then a look for who has come before (FENCE-6); then the note goes; then FENCED is stored.
//! The note (`csrc/fits.c` `plNote()`) is a checksum of the file's page 1: who finds no fence in the file of a fenced WAL-index knows by it that
//! no other file was put there.
//!
//! Who dies or fails in between leaves LOWERED, with any of 2 and 3 in the file, and whoever commits next raises it. If all die:
//!
//! | left | the next opening |
//! |---|---|
//! | memory LOWERED, WAL-index gone, file 2 | a session that has ended: the log goes, a new session (`restore.rs` `has_ended`) |
//! | no memory (a power cut), file 2 | a resting base beside its own log without newer frames, which is removed |
//! | memory LOWERED, file 3, or the WAL-index still there | it is not gone on with, since it does not know what others have done meanwhile: the base is unfenced, with its log or without (`restore.rs` `has_it_all`); a new session |
//! | no memory, file 3, or the WAL-index still there | a fenced base with a log without newer frames: recovered, with nothing to do |
//! | an older copy, from behind a checkpoint of this session, in the file's place | refused: it has the salt of log and memory, and lacks what they say it has (session.rs) |
//! | the same, and nothing of this session beside it | a resting base, from which a new session begins |
//!
//! "The WAL-index gone" is as it is when all have died: the first to open it makes it anew, without a version of ours and without the note.
//!
//! Where that meets what stands beside the file:
//!
//! | what | with a lowered fence |
//! |---|---|
//! | a log that is put aside (`session/aside.rs` ASIDE-2) | the file is at rest beside a log with commits; but that has its salt, so it is never taken for another's. An older copy of the file has it too. That is refused, and not put aside: a file whose fence a disk has lost looks the same, and would go on without what was acknowledged |
//! | shared memory of another session (`is_of_another`) | memory that says LOWERED has no commits that its base lacks (FENCE-1); it is put aside with its log alone |
//! | another WAL-index (`shm/read_marks.rs`) | note and version are in the one of the members. Ours who come with another find files of a session, join, and are refused; of the others FENCE-6 speaks |
//! | a WAL-index made anew, file 3, and nothing to merge | no version of ours: who lowers writes it there first (`plTellIndex()`); who raises writes and syncs the file (FENCE-5) |
//! | the header that TRUNCATE leaves in the WAL under the fence | "emptied" is the header alone, under its name. Stock SQLite that heeds no WAL-index leaves frames, nothing, or no WAL (`plWalIsUntouched()`) |
//! | `plait check`, `plait status` | what the file says: at rest. Memory that says LOWERED does not miss the fence |
//!
//! Invariants
//! - FENCE-1 While the file says 2 the log has no frame that the file lacks, and no row is in memory alone. LOWERED is stored in the critical section
//!   that has seen this, and until FENCED is stored nobody appends a frame.
//! - FENCE-2 FENCED is stored when the file's 3 is on disk (SESSION-3 in session.rs). Whoever is about to append a frame asks for it in the same critical
//!   section, and raises the fence with nothing held but, perhaps, the writer's right.
//! - FENCE-3 Whoever writes to the WAL raises it before: exclusive transactions and the last close do so with the right to merge, which keeps others from
//!   lowering it; merges have something to merge, so that it is up. What buries an unseen commit need not: it changes nothing, and page 1 in the
//!   WAL says 3. A TRUNCATE that finds it lowered writes nothing.
//! - FENCE-4 To all who have the WAL open a lowered base is a fenced one: its header says so by the WAL-index (`plFenced()`). So nobody works on it
//!   alone, or by stock code, and read marks stay counts in shared memory.
//! - FENCE-5 What is written to the file to raise the fence is synced after it was written by who syncs it: of a sync that has failed nobody knows what
//!   it has left out. An empty WAL says nothing of that, whether the note is there or not.
//! - FENCE-6 Who has another WAL-index is kept off by the file alone, and has read page 1 without a fence if he has come while it said 2: he would go on to
//!   write. So who raises it looks for him when the file says 3, and does not store FENCED, nor does he stamp RESTING's, while there is one. It is
//!   another one because somebody has removed that of the members: CANTOPEN while that is open (and the fence is not lowered while theirs has no
//!   name). Or because SQLite in locking_mode=EXCLUSIVE has its own in memory: then it has the file locked, and the locks of the members were
//!   dropped, which is what POSIX does when a process copies the file. The locks are taken again: BUSY where that cannot be done,
//!   CANTOPEN where the WAL has lost its name, since he has closed the file as the last. What he has written in between is noticed as by anybody who heeds no
//!   WAL-index; but not what he has written to a resting base, where no note was made, and left by dying.
//!
//! Lowering need not reach the disk: 3 there, after a power cut, is a fenced base with its log.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use crate::base::{BaseHeader, Checkpoint};
use crate::database::Database;
use crate::database::merge_right::MergeRight;
use crate::error::{Error, Result};
use crate::ids::SlotIndex;
use crate::shm::layout::fence;
use crate::sync::wait::{Patience, Wait};
use crate::{crash_point, fault, session};

/// Longest wait for the base's WAL before the caller is asked whether it wants to go on.
const BASE_WAIT: Duration = Duration::from_millis(100);

impl MergeRight<'_> {
    /// `longest`: how long it waits for who writes to the base.
    fn raise_fence(&self, longest: Duration) -> Result<()> {
        let c = self.db.control();
        match c.fence.load(Relaxed) {
            fence::FENCED => return Ok(()),
            fence::LOWERED => return self.raise_lowered(),
            _ => {}
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
        // The fence must not depend on the WAL file staying where it is (SESSION-3 in session.rs). With the checkpoint there is
        // mostly nothing left to do for it.
        let brought = self.checkpoint(Checkpoint::Passive);
        self.db.with_base(|base| base.raise_fence())?;
        crash_point!("fence.raised");
        self.db.note_fence(&before, &stamped)?;
        brought
    }

    /// Takes the fence from the database file, whose WAL was emptied with this right, if nobody has committed since (FENCE-1), or is about to with
    /// the writer's right. False: it is up.
    ///
    /// # Errors
    /// Busy while somebody looks how far a checkpoint is; I/O errors. It is up, or lowered, or will be with the next commit.
    pub(crate) fn lower_fence(&self) -> Result<bool> {
        let c = self.db.control();
        {
            let _guard = self.db.lock_commit()?;
            match c.fence.load(Relaxed) {
                // Who has been granted the writer's right shall not wait for this right at his COMMIT.
                fence::FENCED
                    if self.db.generations.is_log_merged() && c.right_owner.load(Relaxed) == 0 => {}
                // Before the file's was lowered its author died, or failed.
                fence::LOWERED => {}
                left => return Ok(left == fence::RESTING),
            }
            // Relaxed: looked at under the mutex by all who rely on it.
            c.fence.store(fence::LOWERED, Relaxed);
        }
        crash_point!("fence.lowering");
        let lowered = self.db.with_base(|base| {
            self.db.refuse_older_base(base)?;
            base.lower_fence()
        })?;
        crash_point!("fence.lowered");
        Ok(lowered)
    }

    /// Says that the session has its fence if its author died, or failed, before he could.
    pub(crate) fn adopt_fence(&self) -> Result<()> {
        let c = self.db.control();
        if c.fence.load(Relaxed) != fence::RESTING {
            return Ok(());
        }
        let header = self.db.with_base(|base| base.header())?;
        if header.fenced && header.salt == c.salt.load(Relaxed) {
            self.db.finish_own_fence(&header)?;
        }
        Ok(())
    }

    /// Raises it again in the database file, if it is lowered (FENCE-2, FENCE-3).
    ///
    /// # Errors
    /// Busy while somebody looks how far a checkpoint is; `Replaced`, I/O errors. It is lowered as before.
    pub(crate) fn raise_lowered(&self) -> Result<()> {
        let c = self.db.control();
        // Relaxed: with this right nobody else raises or lowers it.
        if c.fence.load(Relaxed) != fence::LOWERED {
            return Ok(());
        }
        self.db.refuse_orphan()?;
        self.db.with_base(|base| {
            self.db.refuse_older_base(base)?;
            match fault::is_planted("fence.left_lowered") {
                true => Ok(()),
                false => base.raise_fence(),
            }
        })?;
        crash_point!("fence.raised_again");
        let _guard = self.db.lock_commit()?;
        // As in `note_fence`.
        self.db.gaps().forget();
        // Release pairs with the Acquire in `ensure_fenced`.
        c.fence.store(fence::FENCED, Release);
        Ok(())
    }
}

impl Database {
    /// The session has raised its fence, lowered or not: it has a log, and its read marks are counts (FENCE-4).
    pub(crate) fn is_fenced(&self) -> bool {
        // Acquire: see `ensure_fenced`.
        self.control().fence.load(Acquire) != fence::RESTING
    }

    /// Makes sure that stock SQLite is fenced out and the log exists before a commit (FILE-2). Cheap while it is.
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
        // Stock programs may have written until now (GAP-4 in gaps/).
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
