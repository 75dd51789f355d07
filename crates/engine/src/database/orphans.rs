//! What a dead holder of the right to merge leaves behind: a merge or an exclusive transaction that
//! may be in the base or not.
//!
//! Only the base tells. Reading it may fail, and so may burying what must never count: another
//! process has a lock, the disk is full, no descriptor is left. Such a failure says nothing about
//! the database. So what is left keeps its rights until a process has settled it, and every
//! connection that needs one of these rights tries to.
//!
//! | `merge_owner` | `right_owner` | meaning |
//! |---|---|---|
//! | a dead slot | that slot, or not | not looked at; a reaper makes it one of the next two lines |
//! | `UNSETTLED_MERGE` | `UNSETTLED`, or not | a merge, to be settled |
//! | `UNSETTLED_EXCLUSIVE` | `UNSETTLED` | an exclusive transaction, to be settled |
//! | a living slot | that slot, or not | its owner settles it, or has made it |
//! | any | `UNSETTLED_PREPARED` | a prepared transaction, to be resolved (below) |
//!
//! A prepared exclusive transaction is settled by the table under Prepared pages.
//!
//! Invariants
//! - ESTATE-1 The right to merge changes last when it is left behind and first when it is
//!   inherited. A death in between leaves a state of the table; the kind of what is left is in the
//!   word or in the state of the slot.
//! - ESTATE-2 While `right_owner` is `UNSETTLED` no transaction commits. While `merge_owner` is
//!   unsettled only the settling process writes to the base. So another try after a failure meets
//!   the same base.
//! - ESTATE-3 Readers need neither right and go on, unless a transaction is known to be committed,
//!   or is prepared and about to be resolved (PREP-9, PREP-10). A reader that finds a commit of the
//!   base without a living author settles it, if it can without a wait.
//! - ESTATE-4 A failure stops the log only if it leaves unknown what is on disk: a failed sync.
//!
//! # Prepared transactions
//!
//! A prepared transaction in shared memory: one file's part in a transaction over several files
//! (several.rs has the whole; its author's side: txn/part.rs). P is the prepared frame.
//!
//! P is *unresolved* while `prepared_end` is the end of the log. Everything follows from that one
//! comparison. The frame that resolves P ends it by being published:
//!
//! | `prepared_end` | `right_owner` | meaning |
//! |---|---|---|
//! | 0 | any | nothing is prepared |
//! | `log_end` | a living slot | its author, or a later resolver, is about to resolve it |
//! | `log_end` | a dead slot | the next reaper turns it into the next line |
//! | `log_end` | `UNSETTLED_PREPARED` | author dead or failed: the next writer or reader resolves |
//! | `log_end` | `UNSETTLED` | the same, of an exclusive transaction (Prepared pages) |
//! | before `log_end` | a living slot | it is resolved, and not settled yet: readers wait (PREP-10) |
//! | anything else | any | it is resolved, or its author died before it was published |
//!
//! The next frame clears the last state.
//!
//! Invariants, in addition to SEVERAL-1 to SEVERAL-5 of several.rs
//! - PREP-1 No connection gets the right while a prepared transaction is unresolved
//!   (`Right::pass`).
//! - PREP-2 The frame that resolves P holds at most what P holds, goes to the same generation, and
//!   is inserted without a share. Room in the memtable, in the file and in the ring was there when
//!   P was published, and no other transaction takes any.
//! - PREP-3 P makes nothing visible: `visible_ts` stays, P takes the next timestamp and the frame
//!   that resolves it the one after that.
//! - PREP-4 The frame that resolves P for good is on disk before the reference goes, or the
//!   super-journal is gone for good (SEVERAL-3).
//! - PREP-5 A failure after P leaves P unresolved with the right, as a death does: the next
//!   connection that needs one of them tries again. A failure that leaves in doubt what is on disk
//!   has stopped the log: recovery finds P and the super-journal.
//! - PREP-9 Once a process knows that P is committed and has failed to apply it, no transaction
//!   begins to read without it. `prepared_withheld` says so to all, and each tries to apply it
//!   before giving up. So a program that has heard of the commit, or has seen its other files,
//!   finds the whole transaction here or an error. Before the first failure P counts as if its
//!   author were still at work.
//! - PREP-10 A reader that begins after the death of the author waits for the process that resolves
//!   P, or gets BUSY: all that begin then see P, or none do. The frame that resolves P is settled
//!   before P is seen to be resolved.
//!
//! # Prepared pages
//!
//! The part of an exclusive transaction in one over several files: its pages in a file next to the
//! base, then P (several.rs, pages.rs).
//!
//! On SQLite's own path a transaction of the base commits, and its stamp shows that it has
//! (EXCL-2). So no frame has to follow P in the log: the base resolves P as committed, an empty
//! frame as rolled back. While P, with pages, is the last frame:
//!
//! | base has the stamp of P's generation | super-journal | then |
//! |---|---|---|
//! | yes | - | committed, and in the base |
//! | no | there | rolled back: an empty frame |
//! | no | gone | committed: the pages are written into the base |
//! | no | cannot be known (SEVERAL-5) | remains unsettled: readers go on |
//!
//! The pages and the stamp are written in one transaction of SQLite's; while that fails readers are
//! refused (PREP-9). Once the base has the commit it is synced, the next generation begins, and the
//! files are removed. The author goes by the same table, but knows the decision: it commits through
//! its own handle, and if that fails through the hidden connection, by the pages.
//!
//! | the author dies, or fails | rights | next |
//! |---|---|---|
//! | before P | both, as of any exclusive transaction | buried (above) |
//! | with P | both: `UNSETTLED`, `UNSETTLED_EXCLUSIVE` | the next writer or reader settles |
//!
//! The files of a buried transaction go with the next transaction over several files, or the last
//! close.
//!
//! Invariants, in addition to PREP-1 to PREP-5
//! - PREP-6 With P the author, and after it the settling process, has both rights until P is
//!   resolved: no other process writes to the base or to the log. So the pages go over the base
//!   that they were made of (PAGES-2), however often that is begun.
//! - PREP-7 The base has the commit on disk before the pages and the reference go, whatever
//!   `synchronous` says.
//! - PREP-8 P is of the active generation, which has no rows. Once the base has its stamp the next
//!   generation begins, and P's log space is given back: a series of such transactions takes none.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use super::lock::PoisonOnPanic;
use crate::base::BaseHeader;
use crate::database::Database;
use crate::database::changed::Changed;
use crate::error::{Error, Result, leaves_doubt};
use crate::ids::{CommitTs, Generation, Lsn, Root, SlotIndex};
use crate::log::ring::Purpose;
use crate::log::{AppendError, FrameHead, Op, OpKind, PagesId, damaged_ring, frame_len};
use crate::memtable::EntryKind;
use crate::pages;
use crate::several::{self, Verdict};
use crate::shm::layout::{Layout, fence, owes, owner, txn_state};
use crate::shm::shipping::Change;
use crate::sync::mutex::Guard;
use crate::sync::wait;
use crate::{crash_point, session};

/// A slot of this process that settles. Dropped for whatever reason, it leaves what is not settled
/// to the next.
struct Settler<'a> {
    db: &'a Database,
    slot: SlotIndex,
}

impl Drop for Settler<'_> {
    fn drop(&mut self) {
        self.db.leave_behind(self.slot);
        self.db.slots.free(self.slot);
    }
}

impl Database {
    /// Settles what a dead process left, if anything, unless another process is at it.
    ///
    /// # Errors
    /// What kept it from being settled; the next call may try again.
    pub(crate) fn settle_dead_work(&self) -> Result<()> {
        // One says nothing about the other.
        let prepared = self.settle_prepared();
        self.settle_dead_base_work().and(prepared)
    }

    fn settle_dead_base_work(&self) -> Result<()> {
        let word = &self.control().merge_owner;
        // Relaxed: read again under the commit mutex.
        if !owner::is_unsettled(word.load(Relaxed)) {
            return Ok(());
        }
        let settler = Settler { db: self, slot: self.slots.claim()? };
        if !self.inherit(settler.slot)? {
            return Ok(());
        }
        let settled = self.settle_dead_merge(settler.slot);
        if settled.as_ref().is_err_and(leaves_doubt) {
            self.stop_in_doubt();
        }
        if settled.is_ok() || self.log_shared().is_in_doubt() {
            self.disown_merge(settler.slot);
            self.release_right(settler.slot);
        }
        settled
    }

    /// Makes `mine` the owner of what is to be settled. False if there is nothing.
    fn inherit(&self, mine: SlotIndex) -> Result<bool> {
        let _guard = self.lock_commit_even_if_poisoned()?;
        let c = self.control();
        let word = c.merge_owner.load(Relaxed);
        if !owner::is_unsettled(word) {
            return Ok(false);
        }
        let exclusive = word == owner::UNSETTLED_EXCLUSIVE;
        let state = if exclusive { txn_state::EXCLUSIVE } else { txn_state::IDLE };
        // The state first: with the word it says what is left if this process dies here (ESTATE-1).
        self.slots.at(mine).state.store(state, Relaxed);
        c.merge_owner.store(mine.word(), Relaxed);
        if c.right_owner.load(Relaxed) == owner::UNSETTLED {
            self.right.give_to(mine, None);
        }
        Ok(true)
    }

    /// Leaves the rights of `slot` to be settled, if it holds the right to merge.
    pub(crate) fn leave_behind(&self, slot: SlotIndex) {
        if self.control().merge_owner.load(Relaxed) != slot.word() {
            return;
        }
        let exclusive = self.is_exclusive(slot);
        match self.lock_commit_to_give_back() {
            Some(_guard) => _ = self.leave_behind_as(slot, exclusive),
            None => self.slots.owe(slot, if exclusive { owes::EXCLUSIVE } else { owes::MERGE }),
        }
    }

    /// True if an exclusive transaction has the right to merge, and not one that is to be settled.
    pub(crate) fn has_exclusive(&self) -> bool {
        let word = self.control().merge_owner.load(Acquire);
        SlotIndex::from_word(word).is_some_and(|slot| self.is_exclusive(slot))
    }

    pub(crate) fn is_exclusive(&self, slot: SlotIndex) -> bool {
        self.slots.at(slot).state.load(Relaxed) == txn_state::EXCLUSIVE
    }

    /// (M) True if an exclusive transaction is running, or has left something to settle (GAP-4).
    pub(crate) fn is_base_being_changed(&self) -> bool {
        let holder = self.control().merge_owner.load(Relaxed);
        let is_exclusive = |index| self.slots.at(index).state.load(Relaxed) == txn_state::EXCLUSIVE;
        owner::is_unsettled(holder) || SlotIndex::from_word(holder).is_some_and(is_exclusive)
    }

    /// (M) As [`Database::leave_behind`]; true if `slot` held the right to merge.
    pub(crate) fn leave_behind_locked(&self, slot: SlotIndex) -> bool {
        self.leave_behind_as(slot, self.is_exclusive(slot))
    }

    /// (M) The same, of an exclusive transaction or of a merge.
    pub(crate) fn leave_behind_as(&self, slot: SlotIndex, exclusive: bool) -> bool {
        let c = self.control();
        if c.merge_owner.load(Relaxed) != slot.word() {
            return false;
        }
        if c.right_owner.load(Relaxed) == slot.word() {
            c.right_owner.store(owner::UNSETTLED, Relaxed);
        }
        let word = if exclusive { owner::UNSETTLED_EXCLUSIVE } else { owner::UNSETTLED_MERGE };
        // Last (ESTATE-1).
        c.merge_owner.store(word, Relaxed);
        true
    }

    /// Returns the error of a connection that did not get a right: why what a dead process left
    /// cannot be settled, or else `busy`.
    pub(crate) fn unsettled_or(&self, busy: Error) -> Error {
        match self.settle_dead_work() {
            Err(e) if self.is_withheld() && !e.is_busy() => self.say_withheld(Some(e)),
            Err(e) if !e.is_busy() => e,
            _ => busy,
        }
    }

    /// The holder in an owner word, for error texts.
    pub(crate) fn describe_owner(&self, word: u32) -> String {
        if owner::is_unsettled(word) {
            return "a process that died and is being cleaned up after".into();
        }
        format!("process {}", self.slots.who_owns(word))
    }

    /// Settles a merge or an exclusive transaction by the header of the base.
    fn settle_dead_merge(&self, mine: SlotIndex) -> Result<()> {
        // The dead process's locks on the base are gone with it, so the header is settled.
        let header = self.with_base(|base| base.header())?;
        // EXCL-6: the active generation may have been switched already.
        let committed = header.generation.get() > self.control().base_generation.load(Acquire);
        let exclusive = self.is_exclusive(mine);
        if exclusive && self.region().layout().has_unresolved() {
            return self.settle_prepared_pages(Known::Nothing).map(drop);
        }
        if exclusive && !committed {
            self.bury_unfinished_commit()?;
        } else {
            // This may be the commit of a fence whose author died while raising it.
            self.with_base(session::bury_unseen)?;
            if committed {
                // It may have been made without a sync, and is not noted (BEFORE-1, BEFORE-5 in
                // log/before.rs).
                self.log_shared().note_base_commit(header.generation);
            }
        }
        let _guard = self.lock_commit_even_if_poisoned()?;
        let exclusive = exclusive && self.generations.is_stamp(header.generation);
        // Whatever it was, it may have buried something as well.
        self.note_unknown_boundary(header.generation);
        self.generations.settle_base(&header, exclusive.then_some(&Changed::ANYTHING));
        // A fence that the dead process was raising is raised by the next writer.
        self.note_rest(&header);
        Ok(())
    }

    /// (M) Records that the base is at rest: the process that unfenced it may have died before it
    /// could.
    pub(crate) fn note_rest(&self, header: &BaseHeader) {
        if !header.fenced {
            // Relaxed: a session at rest promises nothing.
            self.control().fence.store(fence::RESTING, Relaxed);
        }
    }

    /// Makes sure that an exclusive transaction which did not commit never will.
    ///
    /// SQLite writes all frames of a commit to the WAL and syncs them before it says in the
    /// WAL-index that they count. A kill or a failure in between leaves a complete commit that no
    /// reader sees, until the WAL-index is rebuilt: the rebuild takes it for real, on top of what
    /// was committed since. A small transaction of our own overwrites the same frames. The caller
    /// has the right to merge, and leaves it behind if this fails: until the burial is done nothing
    /// commits, and a commit that comes back then is one that was made.
    pub(crate) fn bury_unfinished_commit(&self) -> Result<()> {
        self.with_base(session::bury)?;
        self.note_burial()
    }
}

/// How long a reader waits for the process that resolves what a dead author has left: a moment is
/// enough unless that process is stopped.
const RESOLVER_PATIENCE: Duration = Duration::from_secs(3);
/// Nap between two checks.
const RESOLVER_NAP: Duration = Duration::from_millis(1);

/// A frame that resolved a prepared transaction.
pub(crate) struct Resolved {
    pub(crate) ts: CommitTs,
    pub(crate) end: Lsn,
    pub(crate) needs: Lsn,
    /// [`Generations::must_write`](super::generations::Generations::must_write).
    pub(crate) must_write: bool,
}

impl Resolved {
    /// Timestamps that a resolved transaction has taken (PREP-3).
    pub(crate) const TIMESTAMPS: u64 = 2;
}

/// A prepared transaction, read from the ring.
pub(crate) struct Found {
    pub(crate) name: Vec<u8>,
    pub(crate) generation: Generation,
    /// The pages, if the transaction is exclusive.
    pub(crate) pages: Option<PagesId>,
    rows: Vec<(Root, OpKind, Vec<u8>, Vec<u8>)>,
}

/// A slot that resolves what a dead author has prepared. Dropped for whatever reason, it leaves
/// what is not resolved to the next.
struct Resolver<'a> {
    db: &'a Database,
    slot: SlotIndex,
}

impl Drop for Resolver<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.db.poison();
        }
        self.db.release_right(self.slot);
        self.db.slots.free(self.slot);
    }
}

impl Layout {
    /// True if a prepared transaction is the last frame of the log (SEVERAL-2). Exact with the
    /// commit mutex held.
    pub(crate) fn has_unresolved(&self) -> bool {
        let end = self.control.prepared_end.load(Acquire);
        end != 0 && end == self.log.log_end().get()
    }

    /// True from the frame that resolves a prepared transaction until that is settled.
    pub(crate) fn is_being_settled(&self) -> bool {
        // Acquire: as above.
        let end = self.control.prepared_end.load(Acquire);
        end != 0 && end < self.log.log_end().get()
    }
}

impl Database {
    /// Removes the reference and the pages that a failed preparation may have left, once an earlier
    /// transaction is resolved on disk. The caller holds the right.
    pub(crate) fn forget_unprepared(&self) {
        if !several::has_reference(self.path()) {
            return;
        }
        let synced = self
            .log()
            .and_then(|log| log.sync_through(self.log_shared().log_end()).map_err(Error::from));
        if synced.is_ok() && !self.region().layout().has_unresolved() {
            several::forget(self.path());
        }
    }

    /// Resolves P as committed, with the rows `ops`, or as rolled back, without rows. The caller
    /// holds the right.
    ///
    /// # Errors
    /// Nothing was appended, unless the log has stopped.
    pub(crate) fn resolve<'a>(
        &self,
        ops: impl Iterator<Item = Op<'a>> + Clone,
        txn: u64,
    ) -> Result<Resolved> {
        let c = self.control();
        loop {
            let guard = self.lock_commit_forever()?;
            let _poison_on_panic = PoisonOnPanic(self);
            if !self.region().layout().has_unresolved() {
                return Err(Error::Corrupt("a prepared transaction has been lost".into()));
            }
            // PREP-3.
            let ts = CommitTs::new(c.visible_ts.load(Relaxed) + Resolved::TIMESTAMPS);
            // Before the frame is published (VISIBLE-3).
            self.announce_without_witness(ts.get());
            let generation = self.generations.active_generation();
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
            // GAP-2 in gaps/.
            self.gaps().forget();
            generation.max_ts.store(ts.get(), Release);
            generation.log_end.store(end.get(), Relaxed);
            self.remember_author(ts.get(), txn);
            let needs = Lsn::new(c.full_end.load(Relaxed));
            // The order of a commit (commit/pipeline.rs).
            c.visible_ts.store(ts.get(), Release);
            self.log_shared().note_newest_ts(ts.get());
            // PREP-10: before any process finds it resolved.
            self.settle(ts.get(), needs);
            c.prepared_end.store(0, Release);
            c.applied_lsn.store(end.get(), Release);
            if ops.clone().next().is_some() {
                c.counters.commits.fetch_add(1, Relaxed);
            }
            let must_write = self.generations.must_write(end);
            drop(guard);
            crash_point!("several.resolved");
            return Ok(Resolved { ts, end, needs, must_write });
        }
    }

    /// (M) Records that a commit is about to be published, without a word of its thread: the parts
    /// of one transaction are published over several calls, which no such word can cover. Readers
    /// ask the kernel whether the author lives (VISIBLE-5).
    pub(crate) fn announce_without_witness(&self, ts: u64) {
        let process = self.process_slot();
        process.author.store(0, Relaxed);
        // Release: before the frame is published (VISIBLE-3).
        process.commit_ts.store(ts, Release);
    }

    /// Takes the commit mutex for a decided commit, which cannot be given up: waits until a stopped
    /// owner goes on or is killed.
    ///
    /// # Errors
    /// That of a poisoned database; NoMemory (MAPPING-3), and then others finish the commit
    /// (PREP-5).
    pub(crate) fn lock_commit_forever(&self) -> Result<Guard<'_>> {
        loop {
            if let Some(guard) = self.lock_commit_to_give_back() {
                self.check_poison()?;
                return Ok(guard);
            }
            self.region().reach_used()?;
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

    /// (M) Inserts the nodes; the room was there when P was published (PREP-2).
    fn insert_resolved<'a>(&self, ts: CommitTs, ops: impl Iterator<Item = Op<'a>>) -> Result<()> {
        let memtable = self.generations.memtable_in_use(self.generations.active_arena());
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

    /// Resolves P as rolled back, on disk, and lets go of the super-journal (PREP-4). If this
    /// process may not write the log another one does, and the reference remains until a
    /// transaction makes the next one, or the last close: until then the file may still end with P,
    /// and the super-journal says that it did not happen.
    ///
    /// # Errors
    /// P is not resolved.
    pub(crate) fn resolve_as_rolled_back(&self, txn: u64) -> Result<Resolved> {
        let resolved = self.resolve(std::iter::empty(), txn)?;
        // A failure that leaves in doubt what is on disk has stopped the log.
        let synced = self.log().and_then(|log| Ok(log.sync_through(resolved.end)?));
        crash_point!("several.rolled_back");
        if synced.is_ok() {
            several::forget(self.path());
        }
        Ok(resolved)
    }

    /// Resolves what a dead author has left prepared, before a reader looks: all that begin after
    /// the death see it, or none do. If the decision cannot be known readers go on (ESTATE-3).
    ///
    /// # Errors
    /// PREP-9.
    pub(crate) fn settle_prepared_of_dead(&self) -> Result<()> {
        // Acquire pairs with the Release of the preparing process. Not 0 for the moment between P
        // and the frame that resolves it.
        if self.control().prepared_end.load(Acquire) == 0 {
            return Ok(());
        }
        // PREP-10: another process may be resolving it.
        let settled = wait::until(RESOLVER_PATIENCE, RESOLVER_NAP, || {
            Ok::<_, Error>(self.try_settle_prepared_of_dead())
        })?;
        let Some(tried) = settled else {
            return Err(self.say_inherited(self.control().right_owner.load(Acquire)));
        };
        if self.is_withheld() { Err(self.say_withheld(tried.err())) } else { Ok(()) }
    }

    /// `None` while another process resolves it, else what came of this process's try, if there was
    /// one.
    fn try_settle_prepared_of_dead(&self) -> Option<Result<()>> {
        if !self.region().layout().has_unresolved() {
            return (!self.is_being_settled_for_dead()).then_some(Ok(()));
        }
        let owner = self.control().right_owner.load(Acquire);
        if self.slots.is_owner_alive(owner) {
            // The author lives, and no program has heard of the commit; or applying it is known to
            // fail.
            let is_left = !self.resolves_for_dead(owner) || self.is_withheld();
            return is_left.then_some(Ok(()));
        }
        let tried = self.reap_and_settle().and_then(|(_, settled)| settled);
        (tried.is_err() || !self.region().layout().has_unresolved()).then_some(tried)
    }

    /// PREP-10: true if a living process has published the frame that resolves what a dead author
    /// left, and has not settled it yet. If it dies, what it has announced is settled as any commit
    /// is.
    fn is_being_settled_for_dead(&self) -> bool {
        let owner = self.control().right_owner.load(Acquire);
        self.region().layout().is_being_settled()
            && self.slots.is_owner_alive(owner)
            && self.resolves_for_dead(owner)
    }

    /// True if the holder of the right resolves or settles for a dead process: it has no
    /// transaction of its own.
    fn resolves_for_dead(&self, owner: u32) -> bool {
        SlotIndex::from_word(owner).is_some_and(|slot| self.slots.at(slot).txn.load(Relaxed) == 0)
    }

    fn say_inherited(&self, owner: u32) -> Error {
        Error::Busy(format!(
            "{} is completing or undoing a transaction over several files that a killed process \
             left, and readers depend on the outcome; retry",
            self.describe_owner(owner)
        ))
    }

    /// Withholds P from readers: it is committed, and could not be applied (PREP-9). The caller has
    /// its right.
    pub(crate) fn withhold(&self) {
        let c = self.control();
        // Release, for readers without the mutex.
        c.prepared_withheld.store(c.prepared_end.load(Relaxed), Release);
    }

    pub(crate) fn is_withheld(&self) -> bool {
        let c = self.control();
        let withheld = c.prepared_withheld.load(Acquire);
        withheld != 0
            && withheld == c.prepared_end.load(Acquire)
            && self.region().layout().has_unresolved()
    }

    /// The error of a reader that needs P while it is withheld. `why`: what came of its own try;
    /// `None` if another process was at it.
    pub(crate) fn say_withheld(&self, why: Option<Error>) -> Error {
        let what = format!(
            "a transaction over several files is committed but could not be completed in {} yet, \
             and a read now could see half of it",
            self.path().display()
        );
        let help = "correct that, then use the file again: the next connection completes the \
            transaction first";
        match why {
            Some(e) if e.is_busy() => Error::Busy(format!("{what}: {e}; retry")),
            Some(e) => Error::Io { what, source_text: format!("{e}; {help}"), errno: libc::EIO },
            None => Error::Busy(format!("{what}: another connection is completing it; retry")),
        }
    }

    /// Resolves what a dead author has left, if anything, unless another process is at it.
    ///
    /// # Errors
    /// What kept it from being resolved; the next call may try again.
    pub(crate) fn settle_prepared(&self) -> Result<()> {
        let word = &self.control().right_owner;
        // Relaxed: read again under the commit mutex.
        if word.load(Relaxed) != owner::UNSETTLED_PREPARED {
            return Ok(());
        }
        let resolver = Resolver { db: self, slot: self.slots.claim()? };
        let found = {
            let guard = self.lock_commit()?;
            if word.load(Relaxed) != owner::UNSETTLED_PREPARED {
                return Ok(());
            }
            self.right.give_to(resolver.slot, None);
            self.slots.at(resolver.slot).state.store(txn_state::WRITER, Relaxed);
            if !self.region().layout().has_unresolved() {
                return Ok(());
            }
            self.read_prepared(&guard)?
        };
        crash_point!("several.inherited");
        if found.pages.is_some() {
            // An exclusive one leaves both rights, and `settle_dead_base_work` settles it.
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

    /// (M) Reads P, the last frame of the log, which is in the ring.
    pub(crate) fn read_prepared(&self, guard: &Guard<'_>) -> Result<Found> {
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

/// What the caller knows of the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing: the author is dead.
    Nothing,
    /// The decision of the author.
    Verdict(Verdict),
    /// The base has it, on disk.
    Done,
}

impl Database {
    /// Settles a prepared exclusive transaction, whose rights the caller has (PREP-6). Returns the
    /// header of the base if it was committed.
    ///
    /// # Errors
    /// Nothing has changed, and the call may be repeated.
    pub(crate) fn settle_prepared_pages(&self, mut known: Known) -> Result<Option<BaseHeader>> {
        let settled = self.try_to_settle_pages(&mut known);
        if settled.is_err() && known == Known::Verdict(Verdict::Committed) {
            self.withhold();
        }
        settled
    }

    /// Stores what it learns of the decision in `known`.
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
        // Before another frame can be appended (BEFORE-5 in log/before.rs). If this fails the
        // process that appends it writes the note.
        let is_noted = self.log().is_ok_and(|log| log.note_base(header.generation).is_ok());
        if !is_noted {
            self.log_shared().note_base_commit(header.generation);
        }
        {
            let _guard = self.lock_commit_even_if_poisoned()?;
            self.note_boundary(header.generation, Change::Exclusive, Lsn::new(0));
            self.generations.settle_base(&header, Some(&Changed::ANYTHING));
            // Last: after an earlier death the next process does this again. Release, for readers
            // without the mutex.
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
