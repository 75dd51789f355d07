//! A transaction's part in one of several files (several.rs has the whole; PREP-1 to PREP-10:
//! database/orphans.rs).
//!
//! | `Conn.part` | the writer's right | log | left by |
//! |---|---|---|---|
//! | none | as the transaction has it | - | `part_begin` |
//! | begun | held | - | `commit_undo` (as it was before), `part_prepare`, `rollback` |
//! | prepared | held | P is the last frame | `part_commit`, `rollback` |
//!
//! # An exclusive part
//!
//! An exclusive transaction has a part as well. This is its author's side of database/orphans.rs.

use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use super::exclusive::Stamped;
use super::room::RoomWait;
use super::{Conn, Sync, WriteMode};
use crate::commit::pipeline::{self, ops};
use crate::database::generations::Room;
use crate::database::lock::PoisonOnPanic;
use crate::database::orphans::Known;
use crate::database::orphans::Resolved;
use crate::error::{Error, Result};
use crate::ids::{CommitTs, Generation, Lsn};
use crate::log::ring::Purpose;
use crate::log::{AppendError, FrameHead, Mark, frame_len};
use crate::pages::{self, Changed, EachPage, Place};
use crate::several::Verdict;
use crate::shm::layout::fence;
use crate::sync::wait::Wait;
use crate::{crash_point, several};

/// Room for the name of a super-journal in a future frame.
const MARK_BYTES_MAX: u64 = 8192;
/// How long a part that is about to be prepared waits for the right to merge, to raise a fence that
/// a checkpoint has just lowered.
const RAISE_PATIENCE: Duration = Duration::from_secs(3);

/// What a transaction has to know at the end of its part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    /// How it wrote before.
    pub(super) mode: Option<WriteMode>,
    took_right: bool,
    pub(crate) is_prepared: bool,
    /// Of an exclusive part: its author has removed the super-journal.
    pub(crate) is_decided: bool,
}

/// Makes an error final: after any error a COMMIT over several files, one of them prepared, is
/// rolled back, and cannot be repeated.
fn say_final(e: Error) -> Error {
    match e {
        Error::Busy(what) => Error::Io {
            what,
            source_text: "the transaction is rolled back in all of its files; begin it again"
                .into(),
            errno: 0,
        },
        other => other,
    }
}

impl Conn {
    /// Takes the writer's right, with validation, and makes all the room that the rest of the
    /// commit needs: whatever may wait or be refused comes first. Does nothing for a transaction
    /// without writes.
    ///
    /// # Errors
    /// As for [`Conn::commit`]. After `RenewSnapshot` it has to be called again; after any other
    /// error the transaction is what it was before.
    pub fn part_begin(&mut self, wait: &mut Wait<'_>) -> Result<()> {
        self.refuse_doomed()?;
        self.db.check_fork()?;
        if self.part.is_some_and(|part| part.is_prepared) {
            return Ok(());
        }
        let now = Part {
            mode: self.state.mode(),
            took_right: !self.state.has_right(),
            is_prepared: false,
            is_decided: false,
        };
        if self.state.is_exclusive() {
            self.part = Some(now);
            return self.reserve_for_pages();
        }
        if self.writes.is_empty() {
            return Ok(());
        }
        self.start_transaction();
        let part = *self.part.get_or_insert(now);
        let begun = self.commit_prepare_always(wait).and_then(|()| {
            self.state.become_writer(WriteMode::Queued);
            // Gives back what a bulk load has reserved: merges must go on.
            self.db.disown_merge(self.slot);
            self.db.log()?;
            self.candidate().resolve_maxima()?;
            self.reserve(wait)
        });
        match begun {
            Err(Error::RenewSnapshot) => self.view = self.view.wrapping_add(1),
            Err(_) => {
                self.part = Some(part);
                self.part_undo();
            }
            Ok(()) => {}
        }
        if !matches!(begun, Err(Error::RenewSnapshot)) {
            self.large_wait = None;
        }
        begun.map_err(|e| self.note_conflict(e))
    }

    /// Gives back what [`Conn::part_begin`] has taken; the transaction goes on as it was.
    pub(super) fn part_undo(&mut self) {
        let Some(part) = self.part else { return };
        if part.is_prepared {
            return;
        }
        self.part = None;
        if self.state.is_exclusive() {
            // It had its rights before.
            return;
        }
        if self.state.mode().is_some() {
            self.state.go_back_to(part.mode);
        }
        if part.took_right {
            self.give_right_back();
        }
        self.relax_pin();
    }

    /// Makes room for P and what resolves it (PREP-2). The right is held, so no other transaction
    /// takes the room. A merge that begins another generation may, so `publish_prepared` checks
    /// again.
    fn reserve(&mut self, wait: &mut Wait<'_>) -> Result<()> {
        let mut room = RoomWait::begin();
        let bytes = 2 * (frame_len(ops(&self.writes)) + MARK_BYTES_MAX);
        loop {
            let (fits, space) = {
                let _guard = self.db.lock_commit()?;
                if !self.db.is_fenced() {
                    return Err(Error::Left);
                }
                let mut fits = self.fits();
                if let Room::Full { bytes } = fits
                    && self.db.generations.try_freeze(bytes)
                {
                    fits = self.fits();
                }
                let generation = self.db.generations.active_number();
                ((fits, generation), self.db.ring().check_space(generation, bytes))
            };
            match (fits, space) {
                ((Room::Enough, _), Ok(())) => return Ok(()),
                ((Room::Full { bytes }, full), _) => {
                    self.make_memtable_room(full, bytes, &mut room, wait)?;
                }
                ((Room::Unallocated { arena, reach }, _), _) => {
                    self.db.region().grow_arena(arena, reach)?;
                }
                ((Room::Enough, _), Err(e)) => self.make_log_room(e, &mut room, wait)?,
            }
        }
    }

    /// (M) Returns whether the active memtable has room for the rows, and for a node lost to a kill
    /// while they are inserted.
    fn fits(&self) -> Room {
        let (sum, largest) = pipeline::node_bytes(&self.writes);
        self.db.generations.room_for(sum + largest)
    }

    /// Prepares: on return the transaction is on disk, and the super-journal decides whether it
    /// happens.
    ///
    /// # Errors
    /// None that may be repeated: roll back.
    pub fn part_prepare(&mut self, super_journal: &Path) -> Result<()> {
        self.refuse_doomed()?;
        self.db.check_fork()?;
        if self.writes.is_empty() {
            return Ok(());
        }
        let Some(mut part) = self.part.filter(|part| !part.is_prepared && self.state.has_right())
        else {
            return Err(Error::Misuse("a part that has not been begun cannot be prepared".into()));
        };
        let name = self.refer_to(super_journal)?;
        let end = self.publish_prepared(&Mark { name: &name, pages: None })?;
        part.is_prepared = true;
        self.part = Some(part);
        self.sync_prepared(end)
    }

    /// Writes the reference; returns the super-journal's name for P.
    pub(crate) fn refer_to(&self, super_journal: &Path) -> Result<Vec<u8>> {
        let db = &self.db;
        let name = several::relative_name(super_journal, db.path())?;
        several::check_visible(super_journal)?;
        if several::has_reference(db.path()) {
            // The transaction it belonged to is resolved in the log, which need not be on disk
            // (PREP-4).
            db.log()?.sync_through(db.log_shared().log_end())?;
        }
        several::write_reference(db.path(), super_journal)?;
        crash_point!("several.referenced");
        Ok(name)
    }

    /// Brings P to disk (SEVERAL-1).
    pub(crate) fn sync_prepared(&self, end: Lsn) -> Result<()> {
        crash_point!("several.published");
        self.db.log()?.sync_through(end)?;
        crash_point!("several.prepared");
        Ok(())
    }

    /// Appends P; returns its end.
    pub(crate) fn publish_prepared(&self, mark: &Mark<'_>) -> Result<Lsn> {
        let db = &self.db;
        let c = db.control();
        let rows = frame_len(ops(&self.writes));
        loop {
            // Not BUSY: SQLite would take that for a COMMIT that may be repeated, with a part
            // prepared already.
            let guard = db.lock_commit_forever()?;
            let _poison_on_panic = PoisonOnPanic(db);
            if c.right_owner.load(Relaxed) != self.slot.word()
                || db.region().layout().has_unresolved()
            {
                return Err(Error::Misuse("a transaction is prepared without the right".into()));
            }
            if c.fence.load(Acquire) == fence::LOWERED {
                // A checkpoint has lowered it (FENCE-2 in upkeep/fence.rs).
                drop(guard);
                let mut wait =
                    Wait { timeout: RAISE_PATIENCE, busy: None, interrupted: &mut || false };
                db.ensure_fenced(self.slot, &mut wait).map_err(say_final)?;
                continue;
            }
            // A merge may have begun another generation since there was room (PREP-2).
            match self.fits() {
                Room::Enough => {}
                Room::Unallocated { arena, reach } => {
                    drop(guard);
                    db.region().grow_arena(arena, reach)?;
                    continue;
                }
                Room::Full { bytes } if db.generations.try_freeze(bytes) => continue,
                Room::Full { bytes } => {
                    drop(guard);
                    if !db.prepare_arena(bytes).map_err(say_final)? {
                        return Err(db
                            .slots
                            .no_room("the transaction cannot be kept in shared memory"));
                    }
                    continue;
                }
            }
            let ts = c.visible_ts.load(Relaxed) + 1;
            if mark.pages.is_none() {
                // Before the frames are published (VISIBLE-3). The timestamp is that of the frame
                // that resolves P, which comes next. Pages are seen in the base.
                db.announce_without_witness(ts + 1);
            }
            let generation = db.generations.active_generation();
            let head = FrameHead {
                commit_ts: CommitTs::new(ts),
                generation: Generation::new(generation.number.load(Relaxed)),
            };
            let purpose = Purpose::Prepare(*mark, rows);
            let len = rows + mark.encoded_len();
            match db.ring().append_for(&guard, purpose, &head, len, ops(&self.writes)) {
                Ok((start, end)) => {
                    c.prepared_start.store(start.get(), Relaxed);
                    // Before P is published: from then on it is unresolved. Release, for readers
                    // without the mutex.
                    c.prepared_end.store(end.get(), Release);
                    crash_point!("several.appended");
                    db.ring().publish_end(&guard, end);
                    generation.log_end.store(end.get(), Relaxed);
                    c.applied_lsn.store(end.get(), Release);
                    return Ok(end);
                }
                Err(e) => {
                    drop(guard);
                    db.make_room_in_log(e).map_err(say_final)?;
                }
            }
        }
    }

    /// Commits what was prepared: the super-journal is gone. `keep_reading` as in [`Conn::commit`].
    ///
    /// # Errors
    /// What kept it from being applied (PREP-5): the transaction is committed all the same. It is
    /// seen when another connection has applied it, or after the recovery of a log that has
    /// stopped.
    pub fn part_commit(&mut self, sync: Sync, keep_reading: bool) -> Result<()> {
        let Some(part) = self.part.take().filter(|part| part.is_prepared) else {
            return self.commit_nothing(sync);
        };
        debug_assert!(part.is_prepared && self.state.has_right(), "PREP-1");
        crash_point!("several.decided");
        let db = self.db.clone();
        let resolved = db.resolve(ops(&self.writes), self.txn.get());
        let resolved = match resolved {
            Ok(resolved) => resolved,
            Err(e) => {
                db.withhold();
                self.writes.clear();
                self.end_writing();
                self.give_right_back();
                return Err(if db.is_withheld() { db.say_withheld(Some(e)) } else { e });
            }
        };
        self.note_own_commit(resolved.ts, Some(resolved.end), Resolved::TIMESTAMPS);
        db.region().extend_recent(resolved.ts.get());
        self.note_size(self.written(), None);
        self.writes.clear();
        // It counts whether its frame is on disk or not: P is, and the decision.
        db.settle(resolved.ts.get(), resolved.needs);
        self.shown = super::snapshot::Shown::default();
        several::forget(db.path());
        self.end_writing();
        self.give_right_back();
        crash_point!("several.committed");
        if keep_reading {
            self.continue_reading_at(resolved.ts);
        }
        let written = pipeline::write_relaxed(&db, resolved.end, resolved.must_write);
        db.notifier().wake();
        written
    }

    /// Ends a part in a transaction that is rolled back. P, if there is one, is resolved before
    /// this returns (PREP-4), unless this process cannot write the log (PREP-5).
    pub(crate) fn part_rollback(&mut self) {
        let Some(part) = self.part.take() else { return };
        let db = self.db.clone();
        if !part.is_prepared {
            if self.state.has_right() {
                db.forget_unprepared();
            }
            return;
        }
        crash_point!("several.rolling_back");
        // On failure it is left to others (PREP-5).
        if let Ok(resolved) = db.resolve_as_rolled_back(self.txn.get()) {
            self.own_timestamps += Resolved::TIMESTAMPS;
            db.settle(resolved.ts.get(), resolved.needs);
        }
    }
}

/// Room for P and the empty frame after it.
const FRAMES_BYTES: u64 = 16384;

impl Conn {
    /// Makes room in the log. Both rights are held, so the room remains.
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
                // Everything is merged (EXCL-1). No byte is written to the log before the base is
                // on disk (BEFORE-2).
                Some(AppendError::LimitReached) if !retired => {
                    retired = true;
                    let merged = db.control().base_generation.load(Acquire);
                    db.log()?.retire(Generation::new(merged));
                }
                Some(e) => db.log()?.make_room(e)?,
            }
        }
    }

    /// Prepares: on return the pages and P are on disk, and the super-journal decides whether the
    /// transaction happens. The stamped header is among the pages.
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

    /// Notes that the super-journal is gone: what is prepared is committed. SQLite's own commit
    /// comes next, synced, then `exclusive_end`.
    pub fn part_decided(&mut self) {
        if let Some(part) = self.part.as_mut().filter(|part| part.is_prepared) {
            part.is_decided = true;
            crash_point!("several.decided");
        }
    }

    /// Ends a prepared exclusive transaction: it is settled, or left as a whole to a later settler.
    /// `committed`: by SQLite's own commit, synced.
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

    // holds PREP-2
    #[test]
    fn an_empty_frame_and_the_longest_mark_fit_into_the_room_that_is_made() {
        let name = vec![b'n'; 4096];
        let mark = Mark { name: &name, pages: Some([0; 16]) };
        assert!(2 * frame_len(std::iter::empty()) + mark.encoded_len() <= FRAMES_BYTES);
    }
}
