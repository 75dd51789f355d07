//! The fence (FILE-2). It is raised before the first commit of a session, and taken down before the
//! base leaves concurrent mode. In between it may be lowered, in the database file alone, while the
//! file has everything, so that a copy of the file is a whole database.
//!
//! Four places say whether the base is fenced. The WAL-index (its version, `csrc/marks.c`) speaks
//! for all processes that have the WAL open, and keeps stock SQLite off as long as any has. The
//! file speaks for a copy of it, and for processes that come when the WAL-index is gone.
//!
//! Below, *WAL* is page 1 in the WAL and the version in the WAL-index; *file* is bytes 18 and 19 of
//! the file; the note is in the WAL-index; *copy* is a copy of the file alone.
//!
//! | `Control::fence` | WAL | file | note | may commit | copy |
//! |---|---|---|---|---|---|
//! | RESTING | 2 (1) | 2 (1) | none | none | a database, if the WAL is empty |
//! | FENCED | 3 | 3, on disk | none | all | refused |
//! | LOWERED (2) | 3 | 3 | any | none | refused |
//! | LOWERED | 3; no page 1 in the WAL | 2 | of page 1 | none | a whole database at rest |
//!
//! 2 stands for what the two bytes are at rest: 2 and 2, or 3 and 2 of a replica (`csrc/follows.c`). The
//! hidden connection knows which; here a base is fenced or it is not.
//!
//! 1. Or 3 if an author raised it and died.
//! 2. As before the file was written, or raised again.
//!
//! ```text
//! RESTING --raise_fence: log, stamp, checkpoint, file--> FENCED
//! FENCED --lower_fence--> LOWERED --raise_lowered--> FENCED
//! all --retire_log, the last close, a recovery: stamp 2 in a transaction of the base--> RESTING
//! ```
//!
//! The session is over when the stamp of 2 is committed, whatever fails behind that. A checkpoint
//! that finds no space leaves a base at rest with a WAL; a log that cannot be removed is left to
//! the next to attach.
//!
//! Lowering, under the right to merge, after a TRUNCATE that is complete: LOWERED is stored under
//! the commit mutex if the log has no frame that the base lacks and no transaction has the writer's
//! right, since its COMMIT would have to wait for this right; then the note, then the file.
//! Raising, under the right to merge: the file, on disk; then a look for rivals that came before
//! (FENCE-6); then the note is cleared; then FENCED is stored.
//!
//! The note (`csrc/fits.c` `plNote()`) is a checksum of the file's page 1. A process that finds no
//! fence in the file, but a fenced WAL-index, learns from the note that no other file was put
//! there.
//!
//! A process that dies or fails in between leaves LOWERED, with any of 2 and 3 in the file; the
//! next committer raises the fence. If all die, the next opening finds one of these:
//!
//! - Memory LOWERED, WAL-index gone, file 2: a session that has ended. The log goes, and a new
//!   session begins (`restore.rs` `has_ended`). The last close finds it so, too, if its process had
//!   no hidden connection to keep the WAL open (`attach.rs`).
//! - No memory (a power cut), file 2: a resting base next to its own log without newer frames,
//!   which is removed.
//! - Memory LOWERED, file 3 or the WAL-index still there: the session is not continued, since it
//!   does not know what others have done since. The base is unfenced, with its log or without
//!   (`restore.rs` `has_it_all`), and a new session begins.
//! - No memory, file 3 or the WAL-index still there: a fenced base with a log without newer frames.
//!   It is recovered, with nothing to do.
//! - An older copy, from after a checkpoint of this session, in the file's place: refused. It has
//!   the salt of log and memory, and lacks what they say it has (session.rs).
//! - Such a copy, and nothing of this session next to it: a resting base, from which a new session
//!   begins.
//!
//! The WAL-index is gone when all have died: the first process to open it makes it anew, without a
//! version of ours and without the note.
//!
//! How a lowered fence meets what is next to the file:
//!
//! - A log that is put aside (`session/aside.rs` ASIDE-2): the file is at rest next to a log with
//!   commits, but the log has the file's salt, so it is never taken for another's. An older copy of
//!   the file has that salt, too. It is refused, and its log not put aside: a file whose fence a
//!   disk has lost looks the same, and would go on without what was acknowledged.
//! - Shared memory of another session (`is_of_another`): memory that says LOWERED has no commits
//!   that its base lacks (FENCE-1), and is put aside with its log alone.
//! - Another WAL-index (`shm/read_marks.rs`): note and version are in the members' WAL-index.
//!   Processes of ours that come with another find files of a session, join, and are refused; for
//!   others see FENCE-6.
//! - A WAL-index made anew, file 3, and nothing to merge: it has no version of ours. Lowering
//!   writes that version first (`plTellIndex()`); raising writes and syncs the file (FENCE-5).
//! - The header that TRUNCATE leaves in the WAL under the fence: "emptied" means the header alone,
//!   under its name. Stock SQLite that heeds no WAL-index leaves frames, nothing, or no WAL
//!   (`plWalIsUntouched()`).
//! - `plait check` and `plait status`: they report what the file says, at rest. Memory that says
//!   LOWERED does not miss the fence.
//!
//! Invariants
//! - FENCE-1 While the file says 2 the log has no frame that the file lacks, and no row is in
//!   memory alone. LOWERED is stored in the critical section that has checked this, and until
//!   FENCED is stored no frame is appended.
//! - FENCE-2 FENCED is stored when the file's 3 is on disk (SESSION-3 in session.rs). A committer
//!   checks for it in the critical section that appends the frame. It raises the fence with nothing
//!   held but, perhaps, the writer's right.
//! - FENCE-3 A writer to the WAL raises the fence first. Exclusive transactions and the last close
//!   do so with the right to merge, which keeps others from lowering it. A merge has something to
//!   merge, so the fence is up. Burying an unseen commit is exempt: it changes nothing, and page 1
//!   in the WAL says 3. A TRUNCATE that finds the fence lowered writes nothing.
//! - FENCE-4 To all processes that have the WAL open a lowered base is a fenced one: its header
//!   says so by the WAL-index (`plFenced()`). So none works on it alone, or by stock code, and read
//!   marks stay counts in shared memory.
//! - FENCE-5 The process that syncs the file to raise the fence has itself written the fence
//!   before: what a failed sync has left out is unknown. An empty WAL says nothing of that, with or
//!   without the note.
//! - FENCE-6 A *rival* is a process with another WAL-index: the file alone keeps it off. A rival
//!   that came while the file said 2 has read page 1 without a fence, and would go on to write. So
//!   raising looks for a rival when the file says 3, and while there is one neither stores FENCED
//!   nor stamps the base back to RESTING. The first fence of a session is not begun while there is
//!   one: a base at rest has no log from which a half-raised fence would be recovered. It waits for
//!   a process of ours, which is no member by that index, to be refused. A rival has another WAL-index for one of two reasons. The members' WAL-index was removed: CANTOPEN while
//!   the rival's is open (and the fence is not lowered while the members' has no name). Or the
//!   rival is SQLite in locking_mode=EXCLUSIVE, with the index in its own memory: it has locked the
//!   file, and the members' locks were dropped, which POSIX does when a process copies the file.
//!   The locks are taken again: BUSY if that fails, CANTOPEN if the WAL has lost its name, since
//!   the rival has closed the file as the last. What the rival has written in between is noticed as
//!   from any process that heeds no WAL-index. One thing is not noticed: what it wrote to a resting
//!   base, for which no note was made, if it has died since.
//! - FENCE-7 The log of a lowered session is removed when the file's 2 and the end of its WAL are on
//!   disk. Lowering itself need not reach the disk, nor need the truncation of the WAL, whose frames
//!   have a fenced page 1: a fenced base, after a power cut, has its log. But without the log it
//!   would be refused. A last close raises the fence first, and takes it down in a transaction. A
//!   process that finds the session ended, at its own last close or at an opening, syncs both
//!   (`sync_lowered`).

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use crate::base::{BaseHeader, Checkpoint};
use crate::database::Database;
use crate::database::merge_right::MergeRight;
use crate::error::{Error, Result};
use crate::ids::{Generation, SlotIndex};
use crate::shm::layout::fence;
use crate::sync::wait::{Patience, Wait};
use crate::{crash_point, fault, session};

/// Longest wait for the base's WAL before the caller decides whether to go on.
const BASE_WAIT: Duration = Duration::from_millis(100);

impl MergeRight<'_> {
    /// Raises the fence. `longest`: how long it waits for a writer to the base.
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
            // The author of this session's own fence died, or failed, before it recorded the fence.
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
        // The fence must not depend on the WAL file staying where it is (SESSION-3 in session.rs).
        // After the checkpoint little is left to do for that.
        let brought = self.checkpoint(Checkpoint::Passive);
        self.db.with_base(|base| base.raise_fence())?;
        crash_point!("fence.raised");
        self.db.note_fence(&before, &stamped)?;
        brought
    }

    /// Takes the fence from the database file, whose WAL was emptied with this right, unless a
    /// transaction has committed since (FENCE-1), or is about to with the writer's right. False:
    /// the fence is up.
    ///
    /// # Errors
    /// Busy while another process looks how far a checkpoint is; I/O errors. The fence is up, or
    /// lowered, or will be up with the next commit.
    pub(crate) fn lower_fence(&self) -> Result<bool> {
        let c = self.db.control();
        // RIGHT-10: it has written nothing, and may never write.
        self.db.end_early(true)?;
        {
            let _guard = self.db.lock_commit()?;
            match c.fence.load(Relaxed) {
                // A transaction that was granted the writer's right must not wait for this right at
                // its COMMIT.
                fence::FENCED
                    if self.db.generations.is_log_merged() && c.right_owner.load(Relaxed) == 0 => {}
                // The author died, or failed, before it lowered the file's fence.
                fence::LOWERED => {}
                left => return Ok(left == fence::RESTING),
            }
            // Relaxed: all that rely on it look under the mutex.
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

    /// Records the session's fence if its author died, or failed, before it did so.
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

    /// Raises the fence again in the database file, if it is lowered (FENCE-2, FENCE-3).
    ///
    /// # Errors
    /// Busy while another process looks how far a checkpoint is; `Replaced`, I/O errors. The fence
    /// is lowered as before.
    pub(crate) fn raise_lowered(&self) -> Result<()> {
        let c = self.db.control();
        // Relaxed: only the holder of this right raises or lowers it.
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
    /// True if the session has raised its fence, lowered since or not: it has a log, and its read
    /// marks are counts (FENCE-4).
    pub fn is_fenced(&self) -> bool {
        // Acquire: see `ensure_fenced`.
        self.control().fence.load(Acquire) != fence::RESTING
    }

    /// Makes sure, before a commit, that stock SQLite is fenced out and the log exists (FILE-2).
    /// One load if so.
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

    /// Raises in the database file a fence of this session that is in the base already, and records
    /// it. Nothing was committed.
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
        // Stock programs may have written until now (GAP-4 in gaps/, BOUND-2 in
        // database/boundaries.rs).
        self.gaps().forget();
        self.note_unknown_boundary(Generation::ZERO);
        // Release pairs with the Acquire in `ensure_fenced`.
        c.fence.store(fence::FENCED, Release);
        Ok(())
    }

    /// Fails if another session has fenced the base: possible only with two shared memory files for
    /// one database.
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

    /// Fails if the shared memory file is no longer in its place.
    fn refuse_orphan(&self) -> Result<()> {
        if self.region().is_in_place() {
            return Ok(());
        }
        Err(Error::CantOpen(format!(
            "{} was removed or replaced while the database was open; close every connection and open it again",
            self.region().path().display()
        )))
    }

    /// (M) Records a fence that is in the base and in the database file, whose author died before
    /// it did so.
    pub(crate) fn note_own_fence(&self, header: &BaseHeader) {
        let c = self.control();
        if header.fenced
            && header.salt == c.salt.load(Relaxed)
            && c.fence.load(Relaxed) == fence::RESTING
        {
            // As in `note_fence`.
            self.gaps().forget();
            self.note_unknown_boundary(Generation::ZERO);
            c.fence_cookie.store(header.cookie, Relaxed);
            // This process may have tried to end the session.
            self.set_log_retired(false);
            // Release pairs with the Acquire in `ensure_fenced`.
            c.fence.store(fence::FENCED, Release);
        }
    }

    /// Unfences the base and removes the log, in an exclusive transaction, before the base leaves
    /// concurrent mode: start-up knows every state in between. Everything is merged.
    ///
    /// # Errors
    /// The session goes on if [`Database::is_fenced`] says so. Otherwise the base is at rest, or
    /// nobody knows: the caller leaves, and the next to attach settles what is left.
    pub fn retire_log(&self) -> Result<()> {
        {
            let _guard = self.lock_commit()?;
            // From here on no transaction commits: optimistic ones find out in their critical
            // section, others when they become writers.
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

    /// Restores the session if the base could not be unfenced and still is fenced.
    fn stay_fenced(&self) -> Result<()> {
        let header = self.with_base(|base| {
            session::bury_unseen(base)?;
            base.header()
        })?;
        let _guard = self.lock_commit()?;
        self.note_own_fence(&header);
        Ok(())
    }
}
