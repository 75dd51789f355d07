//! A transaction's part in one of several files (several.rs tells the whole).
//!
//! | `Conn.part` | the writer's right | log | leaves by |
//! |---|---|---|---|
//! | none | as the transaction has it | - | `part_begin` |
//! | begun | held | - | `part_undo` (as it was before), `part_prepare`, `rollback` |
//! | prepared | held | P is the last frame | `part_commit`, `rollback` |
//!
//! An exclusive transaction has a part as well: see prepared_pages.rs.
//!
//! In shared memory a prepared transaction is *unresolved* while `prepared_end` is the end of the log. Everything about it follows from
//! that one comparison, and the frame that resolves it ends that in the moment in which it is published:
//!
//! | `prepared_end` | `right_owner` | meaning |
//! |---|---|---|
//! | 0 | any | nothing is prepared |
//! | the end of the log | a living slot | its author, or an heir of his, is about to resolve it |
//! | the end of the log | a dead slot | the next reaper turns it into the next line |
//! | the end of the log | `UNSETTLED_PREPARED` | whoever needs the right, or wants to read, resolves it |
//! | the end of the log | `UNSETTLED` | the same, of an exclusive transaction (estate.rs) |
//! | anything else | any | it is resolved, or its author died before it was published; cleared by the next frame |
//!
//! Invariants, beside J1 to J5 of several.rs
//! - K1 The right is given to nobody while a prepared transaction is unresolved (`right.rs` pass_right).
//! - K2 The frame that resolves it holds at most what P holds, goes to the same generation, and is inserted without a share: room in
//!   the memtable, in the file and in the ring was there when P was published, and nobody else takes any.
//! - K3 P makes nothing visible: `visible_ts` stays, P takes the next timestamp and what resolves it the one after that.
//! - K4 What resolves it for good is on disk before the reference goes, or the super-journal is gone for good (J3).
//! - K5 A failure between P and what resolves it stops the log: recovery finds P and the super-journal.
//! - K9 Once somebody knows that it is committed and has failed to apply it, nobody begins to read without it: `prepared_withheld`
//!   says so to all, and each tries before he gives up. So whoever was told of the commit, or has seen its other files, meets
//!   the whole transaction here or an error. Before that first failure it is as if its author were still at it.
//! - K10 Who begins to read after the death of its author waits for who resolves it, or is told BUSY: it is there for all who begin then, or
//!   for none. What resolves it is settled before it is seen to be resolved.

use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use super::commit::{PoisonOnPanic, Room};
use super::write_set::WriteKind;
use super::{Conn, Sync, WriteMode};
use crate::crash_point;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::ids::{CommitTs, Generation, Lsn, Root, SlotIndex};
use crate::log::ring::Purpose;
use crate::log::{AppendError, FrameHead, Mark, Op, OpKind, PagesId, damaged_ring, frame_len};
use crate::memtable::{EntryKind, Memtable};
use crate::merge::Room as Space;
use crate::several::{self, Verdict};
use crate::shm::layout::{fence, owner, txn_state};
use crate::sync::mutex::Guard;
use crate::sync::wait::Wait;

/// How long a reader waits for who resolves what a dead author has left; he is done in a moment if he is not stopped.
const HEIR_PATIENCE: Duration = Duration::from_secs(3);
/// Between two looks whether he is.
const HEIR_NAP: Duration = Duration::from_millis(1);

/// Room for the name of a super-journal in a frame that is not made yet.
const MARK_BYTES_MAX: u64 = 8192;

/// What a transaction has to know at the end of its part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    /// How it wrote before.
    mode: Option<WriteMode>,
    took_right: bool,
    pub(super) is_prepared: bool,
    /// Of an exclusive one: its author has removed the super-journal.
    pub(super) is_decided: bool,
}

/// A frame that resolved a prepared transaction.
pub(super) struct Resolved {
    pub(super) ts: CommitTs,
    end: Lsn,
    pub(super) needs: Lsn,
}

/// A prepared transaction as it stands in the ring.
pub(super) struct Found {
    pub(super) name: Vec<u8>,
    pub(super) generation: Generation,
    /// Of an exclusive one.
    pub(super) pages: Option<PagesId>,
    rows: Vec<(Root, OpKind, Vec<u8>, Vec<u8>)>,
}

/// A slot that resolves what a dead author has prepared. Whatever ends it, what is not resolved is left for the next.
struct Heir<'a> {
    db: &'a Database,
    slot: SlotIndex,
}

impl Drop for Heir<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.db.poison();
        }
        self.db.release_right(self.slot);
        self.db.free_slot(self.slot);
    }
}

impl Conn {
    pub(super) fn ops(&self) -> impl Iterator<Item = Op<'_>> + Clone {
        self.writes.iter().map(|(root, key, w)| Op {
            root,
            kind: if w.kind() == WriteKind::Tombstone { OpKind::Tombstone } else { OpKind::Put },
            key,
            rec: w.rec(),
        })
    }

    /// Takes the writer's right, with validation, and makes all the room that the rest of the commit needs: what may wait or be
    /// refused comes first. Nothing to do for a transaction without writes.
    ///
    /// # Errors
    /// As for [`Conn::commit`]. After `RenewSnapshot` it has to be called again; else the transaction is what it was before.
    pub fn part_begin(&mut self, wait: &mut Wait<'_>) -> Result<()> {
        self.refuse_doomed()?;
        self.db.check_fork()?;
        if self.part.is_some_and(|part| part.is_prepared) {
            return Ok(());
        }
        let now = Part {
            mode: self.mode,
            took_right: !self.has_right,
            is_prepared: false,
            is_decided: false,
        };
        if self.exclusive {
            self.part = Some(now);
            return self.reserve_for_pages();
        }
        if self.writes.is_empty() {
            return Ok(());
        }
        self.start_transaction();
        let part = *self.part.get_or_insert(now);
        let begun = self.commit_prepare_always(wait).and_then(|()| {
            self.mode = Some(WriteMode::Queued);
            // Nothing of a bulk load's: merges must go on.
            self.db.disown_merge(self.slot);
            self.db.log()?;
            self.resolve_maxima()?;
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
        begun.map_err(|e| self.note_conflict(e))
    }

    /// Gives back what [`Conn::part_begin`] has taken; the transaction goes on as it was.
    pub fn part_undo(&mut self) {
        let Some(part) = self.part else { return };
        if part.is_prepared {
            return;
        }
        self.part = None;
        if self.exclusive {
            // It has its rights from before.
            return;
        }
        if self.mode.is_some() {
            self.mode = part.mode;
        }
        if part.took_right {
            self.give_right_back();
        }
        self.relax_pin();
    }

    /// Until there is room for P and what resolves it (K2). The right is held, so that what there is stays.
    fn reserve(&mut self, wait: &mut Wait<'_>) -> Result<()> {
        let mut room = Room::begin();
        let bytes = 2 * (frame_len(self.ops()) + MARK_BYTES_MAX);
        loop {
            let (fits, space) = {
                let _guard = self.db.lock_commit()?;
                if self.db.control().fence.load(Acquire) != fence::FENCED {
                    return Err(Error::Left);
                }
                let mut fits = self.fits();
                if matches!(fits, Space::Full) && self.db.try_freeze() {
                    fits = self.fits();
                }
                let generation = self.db.active_number();
                ((fits, generation), self.db.ring().check_space(generation, bytes))
            };
            match (fits, space) {
                ((Space::Enough, _), Ok(())) => return Ok(()),
                ((Space::Full, full), _) => self.make_memtable_room(full, &mut room, wait)?,
                ((Space::Unallocated { arena, reach }, _), _) => {
                    self.db.region().grow_arena(arena, reach)?;
                }
                ((Space::Enough, _), Err(e)) => self.make_log_room(e, &mut room, wait)?,
            }
        }
    }

    /// (M) The active memtable has room for the rows, and for a node lost to a kill while they are inserted.
    fn fits(&self) -> Space {
        let needs = self
            .writes
            .iter()
            .map(|(_, key, w)| u64::from(Memtable::bytes_needed(key.len(), w.rec().len())));
        let (sum, largest) = needs.fold((0, 0), |(sum, largest), n| (sum + n, n.max(largest)));
        self.db.room_for(sum + largest)
    }

    /// Prepares: when this returns the transaction is on disk, and happens or not as the super-journal says.
    ///
    /// # Errors
    /// None that may be repeated: roll back.
    pub fn part_prepare(&mut self, super_journal: &Path) -> Result<()> {
        self.refuse_doomed()?;
        self.db.check_fork()?;
        if self.writes.is_empty() {
            return Ok(());
        }
        let Some(mut part) = self.part.filter(|part| !part.is_prepared && self.has_right) else {
            return Err(Error::Misuse("a part that has not been begun cannot be prepared".into()));
        };
        let name = self.refer_to(super_journal)?;
        let end = self.publish_prepared(&Mark { name: &name, pages: None })?;
        part.is_prepared = true;
        self.part = Some(part);
        self.sync_prepared(end)
    }

    /// Writes the reference; returns the super-journal's name for P.
    pub(super) fn refer_to(&self, super_journal: &Path) -> Result<Vec<u8>> {
        let db = &self.db;
        let name = several::relative_name(super_journal, db.path())?;
        several::check_visible(super_journal)?;
        if several::has_reference(db.path()) {
            // What it stood for is resolved in the log, which need not be on disk (K4).
            db.log()?.sync_through(db.log_shared().log_end())?;
        }
        several::write_reference(db.path(), super_journal)?;
        crash_point!("several.referenced");
        Ok(name)
    }

    /// J1.
    pub(super) fn sync_prepared(&self, end: Lsn) -> Result<()> {
        crash_point!("several.published");
        self.db.log()?.sync_through(end)?;
        crash_point!("several.prepared");
        Ok(())
    }

    /// Appends P; returns its end.
    pub(super) fn publish_prepared(&self, mark: &Mark<'_>) -> Result<Lsn> {
        let db = &self.db;
        let c = db.control();
        let rows = frame_len(self.ops());
        loop {
            // Not BUSY: SQLite would take that for a COMMIT that may be repeated, with a part prepared already.
            let guard = db.lock_commit_however_long()?;
            let _poison_on_panic = PoisonOnPanic(db);
            if c.right_owner.load(Relaxed) != self.slot.word() || db.has_unresolved() {
                return Err(Error::Misuse("a transaction is prepared without the right".into()));
            }
            let ts = c.visible_ts.load(Relaxed) + 1;
            if mark.pages.is_none() {
                // Before the frames are published (V3): of the one that resolves it, which comes next. Pages are seen in the base.
                db.announce_without_witness(ts + 1);
            }
            let generation = db.active_generation();
            let head = FrameHead {
                commit_ts: CommitTs::new(ts),
                generation: Generation::new(generation.number.load(Relaxed)),
            };
            let purpose = Purpose::Prepare(*mark, rows);
            let len = rows + mark.encoded_len();
            match db.ring().append_for(&guard, purpose, &head, len, self.ops()) {
                Ok((start, end)) => {
                    c.prepared_start.store(start.get(), Relaxed);
                    // Before it is published: from that moment on it is unresolved. Release, for readers without the mutex.
                    c.prepared_end.store(end.get(), Release);
                    crash_point!("several.appended");
                    db.ring().publish_end(&guard, end);
                    generation.log_end.store(end.get(), Relaxed);
                    c.applied_lsn.store(end.get(), Release);
                    return Ok(end);
                }
                Err(e) => {
                    drop(guard);
                    db.make_room_in_log(e)?;
                }
            }
        }
    }

    /// The super-journal is gone: what was prepared is committed. `keep_reading` as in [`Conn::commit`].
    ///
    /// # Errors
    /// A log that has stopped (K5): the transaction is committed all the same, and seen after a recovery.
    pub fn part_commit(&mut self, sync: Sync, keep_reading: bool) -> Result<()> {
        let Some(part) = self.part.take().filter(|part| part.is_prepared) else {
            return self.commit_nothing(sync);
        };
        debug_assert!(part.is_prepared && self.has_right, "K1");
        crash_point!("several.decided");
        let db = self.db.clone();
        let resolved = db.resolve(self.ops(), self.txn.get());
        let resolved = match resolved {
            Ok(resolved) => resolved,
            Err(e) => {
                db.poison();
                self.writes.clear();
                self.end_writing();
                self.give_right_back();
                return Err(e);
            }
        };
        self.note_own_commit(resolved.ts, Some(resolved.end));
        self.note_size(self.written(), false);
        self.writes.clear();
        // It counts whether its frame is on disk or not: P is, and the decision.
        db.settle(resolved.ts.get(), resolved.needs);
        self.shown = super::readable::Shown::default();
        several::forget(db.path());
        self.end_writing();
        self.give_right_back();
        crash_point!("several.committed");
        if keep_reading {
            self.continue_reading_at(resolved.ts);
        }
        db.log()?.relaxed_commit(resolved.end)?;
        db.notifier().wake();
        self.write_now_and_then()
    }

    /// The end of a part in a transaction that is rolled back: P, if there is one, is resolved on disk before this returns (K4).
    pub(super) fn part_rollback(&mut self) {
        let Some(part) = self.part.take() else { return };
        let db = self.db.clone();
        if !part.is_prepared {
            if self.has_right {
                db.forget_unprepared();
            }
            return;
        }
        crash_point!("several.rolling_back");
        match db.resolve_as_rolled_back(self.txn.get()) {
            Ok(resolved) => db.settle(resolved.ts.get(), resolved.needs),
            Err(_) => db.poison(),
        }
    }
}

impl Database {
    /// Of a preparation that failed half way there may be a reference, and pages; of one before, nothing that is unresolved. The
    /// caller holds the right.
    pub(super) fn forget_unprepared(&self) {
        if !several::has_reference(self.path()) {
            return;
        }
        let synced = self
            .log()
            .and_then(|log| log.sync_through(self.log_shared().log_end()).map_err(Error::from));
        if synced.is_ok() && !self.has_unresolved() {
            several::forget(self.path());
        }
    }

    /// A prepared transaction is the last frame of the log (J2). Exact with the commit mutex held.
    pub(crate) fn has_unresolved(&self) -> bool {
        let end = self.control().prepared_end.load(Acquire);
        end != 0 && end == self.log_shared().log_end().get()
    }

    /// Resolves it as committed, with these rows, or as rolled back, with none. The caller holds the right.
    ///
    /// # Errors
    /// Nothing was appended, unless the log has stopped.
    fn resolve<'a>(&self, ops: impl Iterator<Item = Op<'a>> + Clone, txn: u64) -> Result<Resolved> {
        let c = self.control();
        loop {
            let guard = self.lock_commit_however_long()?;
            let _poison_on_panic = PoisonOnPanic(self);
            if !self.has_unresolved() {
                return Err(Error::Corrupt("a prepared transaction has been lost".into()));
            }
            // K3.
            let ts = CommitTs::new(c.visible_ts.load(Relaxed) + 2);
            // Before the frame is published (V3).
            self.announce_without_witness(ts.get());
            let generation = self.active_generation();
            let number = Generation::new(generation.number.load(Relaxed));
            let head = FrameHead { commit_ts: ts, generation: number };
            let len = frame_len(ops.clone());
            let end = match self.append_resolution(&guard, &head, len, ops.clone()) {
                Ok(end) => end,
                Err(e) => {
                    drop(guard);
                    self.make_room_in_log(e)?;
                    continue;
                }
            };
            self.insert_resolved(ts, ops.clone())?;
            // G2 in gaps/.
            self.forget_gaps();
            generation.max_ts.store(ts.get(), Release);
            generation.log_end.store(end.get(), Relaxed);
            self.remember_author(ts.get(), txn);
            let needs = Lsn::new(c.full_end.load(Relaxed));
            // The order of a commit (commit.rs).
            c.visible_ts.store(ts.get(), Release);
            self.log_shared().note_newest_ts(ts.get());
            // K10: before anybody finds it resolved.
            self.settle(ts.get(), needs);
            c.prepared_end.store(0, Release);
            c.applied_lsn.store(end.get(), Release);
            if ops.clone().next().is_some() {
                c.counters.commits.fetch_add(1, Relaxed);
            }
            drop(guard);
            crash_point!("several.resolved");
            return Ok(Resolved { ts, end, needs });
        }
    }

    /// (M) Says that a commit is about to be published. Whether its author lives the kernel is asked (V5): the parts of one transaction
    /// are published over several calls, which no word of the thread can stand for.
    fn announce_without_witness(&self, ts: u64) {
        let process = self.process_slot();
        process.author.store(0, Relaxed);
        // Release: before the frame is published (V3).
        process.commit_ts.store(ts, Release);
    }

    /// What is decided cannot be given up: behind an owner of the mutex that is stopped this waits until he goes on, or is killed.
    pub(super) fn lock_commit_however_long(&self) -> Result<Guard<'_>> {
        loop {
            if let Some(guard) = self.lock_commit_to_give_back() {
                self.check_poison()?;
                return Ok(guard);
            }
        }
    }

    fn append_resolution<'a>(
        &self,
        guard: &Guard<'_>,
        head: &FrameHead,
        len: u64,
        ops: impl Iterator<Item = Op<'a>>,
    ) -> Result<Lsn, AppendError> {
        let (_, end) = self.ring().append_for(guard, Purpose::Resolve, head, len, ops)?;
        crash_point!("several.resolution_appended");
        self.ring().publish_end(guard, end);
        crash_point!("several.resolution_published");
        Ok(end)
    }

    /// (M) Inserts the nodes; the room was there when P was published (K2).
    fn insert_resolved<'a>(&self, ts: CommitTs, ops: impl Iterator<Item = Op<'a>>) -> Result<()> {
        let memtable = self.memtable(self.active_arena());
        for op in ops {
            let kind =
                if op.kind == OpKind::Tombstone { EntryKind::Tombstone } else { EntryKind::Put };
            if memtable.insert(op.root, op.key, ts, kind, op.rec).is_err() {
                self.poison();
                return Err(Error::Corrupt(
                    "a committed transaction does not fit its memtable".into(),
                ));
            }
            crash_point!("several.node_inserted");
        }
        Ok(())
    }

    /// Resolves it as rolled back, on disk, and lets go of the super-journal (K4).
    pub(super) fn resolve_as_rolled_back(&self, txn: u64) -> Result<Resolved> {
        let resolved = self.resolve(std::iter::empty(), txn)?;
        self.log()?.sync_through(resolved.end)?;
        crash_point!("several.rolled_back");
        several::forget(self.path());
        Ok(resolved)
    }

    /// Before a reader looks: what a dead author has left prepared is resolved, so that it is there for all who begin after his
    /// death, or for none. Where it cannot be known readers go on (N3 in estate.rs).
    ///
    /// # Errors
    /// K9.
    pub(crate) fn settle_prepared_of_dead(&self) -> Result<()> {
        // Acquire pairs with the Release of who prepares. Not 0 for the moment between P and what resolves it.
        if self.control().prepared_end.load(Acquire) == 0 {
            return Ok(());
        }
        let begun = Instant::now();
        let mut tried = Ok(());
        while self.has_unresolved() {
            let owner = self.control().right_owner.load(Acquire);
            if !self.is_owner_alive(owner) {
                tried = self.reap_and_settle().and_then(|(_, settled)| settled);
                if tried.is_err() || !self.has_unresolved() {
                    break;
                }
            } else if !self.is_heir(owner) || self.is_withheld() {
                // Its author lives, and nobody was told of it; or it is known that it fails.
                break;
            }
            // K10: somebody else is at it.
            if begun.elapsed() >= HEIR_PATIENCE {
                return Err(self.say_inherited(owner));
            }
            std::thread::sleep(HEIR_NAP);
        }
        if self.is_withheld() { Err(self.say_withheld(tried.err())) } else { Ok(()) }
    }

    /// Whether the holder of the right resolves, or settles, what somebody dead has left: it has no transaction of its own.
    fn is_heir(&self, owner: u32) -> bool {
        SlotIndex::from_word(owner).is_some_and(|slot| self.slot(slot).txn.load(Relaxed) == 0)
    }

    fn say_inherited(&self, owner: u32) -> Error {
        Error::Busy(format!(
            "{} brings in, or takes back, a transaction over several files of a process that died, and what others read depends on it; retry",
            self.say_owner(owner)
        ))
    }

    /// What is prepared is committed, and could not be applied (K9). The caller has its right.
    pub(super) fn withhold(&self) {
        let c = self.control();
        // Release, for readers without the mutex.
        c.prepared_withheld.store(c.prepared_end.load(Relaxed), Release);
    }

    pub(super) fn is_withheld(&self) -> bool {
        let c = self.control();
        let withheld = c.prepared_withheld.load(Acquire);
        withheld != 0 && withheld == c.prepared_end.load(Acquire) && self.has_unresolved()
    }

    /// What is told to who needs a transaction that is withheld. `why`: his own attempt to apply it; none if another was at it.
    pub(super) fn say_withheld(&self, why: Option<Error>) -> Error {
        let what = format!(
            "a committed transaction over several files could not be brought into {} yet, and is not to be seen by half",
            self.path().display()
        );
        let help = "mend that, then use the file again: who does brings it in first";
        match why {
            Some(e) if e.is_busy() => Error::Busy(format!("{what}: {e}; retry")),
            Some(e) => Error::Io { what, source_text: format!("{e}; {help}"), errno: libc::EIO },
            None => Error::Busy(format!("{what}: another connection tries to; retry")),
        }
    }

    /// Resolves what a dead author has left, if there is something and nobody else is at it.
    ///
    /// # Errors
    /// What kept it from being resolved; the next may try.
    pub(super) fn settle_prepared(&self) -> Result<()> {
        let word = &self.control().right_owner;
        // Relaxed: looked at again under the commit mutex.
        if word.load(Relaxed) != owner::UNSETTLED_PREPARED {
            return Ok(());
        }
        let heir = Heir { db: self, slot: self.claim_slot()? };
        let found = {
            let guard = self.lock_commit()?;
            if word.load(Relaxed) != owner::UNSETTLED_PREPARED {
                return Ok(());
            }
            word.store(heir.slot.word(), Relaxed);
            self.slot(heir.slot).state.store(txn_state::WRITER, Relaxed);
            if !self.has_unresolved() {
                return Ok(());
            }
            self.read_prepared(&guard)?
        };
        crash_point!("several.inherited");
        if found.pages.is_some() {
            // An exclusive one leaves both rights, to whoever settles the base (estate.rs).
            return Err(Error::Corrupt("a prepared transaction has lost its right".into()));
        }
        let verdict = several::verdict(self.path(), &found.name)?;
        let resolved = match verdict {
            Verdict::RolledBack => self.resolve_as_rolled_back(0),
            Verdict::Committed => {
                let ops = found.rows.iter().map(|(root, kind, key, rec)| Op {
                    root: *root,
                    kind: *kind,
                    key,
                    rec,
                });
                let resolved = self.resolve(ops, 0).inspect(|_| several::forget(self.path()));
                resolved.inspect_err(|_| self.withhold())
            }
        }?;
        self.settle(resolved.ts.get(), resolved.needs);
        Ok(())
    }

    /// (M) The prepared transaction at the end of the log, which is in the ring.
    pub(super) fn read_prepared(&self, guard: &Guard<'_>) -> Result<Found> {
        let from = Lsn::new(self.control().prepared_start.load(Relaxed));
        let mut found = None;
        let read = self.ring().for_each_frame(guard, from, self.log_shared().log_end(), |frame| {
            found = frame.prepared().map(|(mark, rows)| Found {
                name: mark.name.to_vec(),
                generation: frame.generation,
                pages: mark.pages,
                rows: rows.map(|op| (op.root, op.kind, op.key.to_vec(), op.rec.to_vec())).collect(),
            });
        });
        read.map_err(|(at, why)| damaged_ring(at, why))?;
        found.ok_or_else(|| Error::Corrupt("the log ring in shared memory is damaged".into()))
    }
}
