//! Exclusive transactions: schema changes, VACUUM, bulk writes past the budget (TXN-7) or of a lone
//! writer (bulk.rs).
//!
//! ```text
//! the right, with validation -> the right to merge -> everything merged ->
//! own writes replayed on SQLite's own path -> header stamped with the empty
//! active generation -> SQLite's commit -> a new generation starts
//! ```
//!
//! What may be missing on the way there, what may be in the way, and what the transaction does:
//!
//! - The right. Another writer has it: waits in the queue (right.rs).
//! - The right to merge. A merge is running: waits as the busy timeout or handler allows, then
//!   Busy.
//! - A free memtable, for the rows not merged yet or to start the next generation in. Readers hold
//!   all of them by their snapshots: waits for the first of them to end, as long as the busy
//!   timeout or handler allows, then Busy.
//! - Room in the base's WAL, which is at its limit (SNAP-4). Readers need what a checkpoint has to
//!   bring into the file: waits likewise, with a checkpoint after each look.
//! - One of the last two, held by its own snapshot of an old base: `RenewSnapshot`. The caller
//!   takes it again over the newest base, which holds nothing old.
//!
//! A waiting transaction keeps both rights, so that no new generation takes what becomes free:
//! readers can only give up what they hold, and new ones hold nothing that is waited for. After
//! Busy the transaction is what it was before.
//!
//! A part in a transaction over several files is prepared before SQLite's commit: orphans.rs.
//!
//! SQLite syncs a commit under FULL. Under NORMAL and OFF the commit is in the page cache on
//! return, and is synced before anything later reaches the log's file (log/before.rs).
//!
//! Invariants
//! - EXCL-1 While a transaction is exclusive no other transaction commits, no merge runs, and every
//!   memtable is merged: the base alone is the database.
//! - EXCL-2 (FILE-4) The stamp is part of SQLite's own transaction: if the process dies around its
//!   commit, the base's header tells the next process whether it happened. Its author knows when
//!   SQLite's commit succeeds. For a prepared transaction the header tells whether it is in the
//!   base; the super-journal has decided before whether it happened.
//! - EXCL-3 What it changed is in no memtable. A transaction with a snapshot of an older base
//!   conflicts with the exclusive one when it writes, unless that is known to have changed no
//!   b-tree that the transaction has read or written (database/changed.rs). Then it reads on over a
//!   newer base.
//! - EXCL-4 The transactions that it waits for can end without it: readers need neither right, and
//!   a reader that waits for the right is refused (RIGHT-5).
//! - EXCL-5 From the moment a transaction is exclusive until it is settled, there is a prepared
//!   arena for the generation after it. `merge_everything` has seen one, under both rights, and
//!   every taker of an arena needs one of them: a freeze by a commit or a part needs the writer's
//!   right, one by a merge the other. If the author dies, both rights pass to the process that
//!   settles it (ESTATE-2 in database/orphans.rs).
//! - EXCL-6 While the header of the base is newer than `base_generation`, a merge or an exclusive
//!   commit is not settled. It is exclusive if its author was, and had said that it would stamp this
//!   generation (`stamped_generation`): before that an exclusive transaction merges, and may die in
//!   it. The process that settles an exclusive commit gives it a timestamp, whatever a dead one has
//!   done before: without one the gaps and the snapshots of others would pass for those of the new
//!   base.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Instant;

use super::room::WAL_NAP;

use super::{Conn, Size, Sync, WriteMode};
use crate::base::{BaseHeader, Checkpoint, WalState};
use crate::commit::writes::{Step, WriteKind};
use crate::crash_point;
use crate::database::changed::Changed;
use crate::database::generations::ArenaWait;
use crate::database::merge_right::MergeRight;
use crate::error::{Error, Result, leaves_doubt};
use crate::ids::{CommitTs, Generation, Lsn, Root};
use crate::shm::layout::{NO_PIN, txn_state};
use crate::shm::shipping::Change;
use crate::sync::wait::{Patience, Wait};

/// A step of replaying a transaction's own writes.
#[derive(Debug, Clone, Copy)]
pub enum Replay<'a> {
    /// Open savepoints until this many are open.
    Savepoint(usize),
    /// Insert or replace.
    Put(Root, &'a [u8], &'a [u8]),
    /// As `Put`, for a maximum (maximum.rs).
    Maximum(Root, &'a [u8], &'a [u8]),
    /// Delete; the last slice is the deleted record of an index.
    Delete(Root, &'a [u8], &'a [u8]),
}

/// What a transaction was before it tried to become exclusive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before {
    mode: Option<WriteMode>,
    had_right: bool,
    /// When it began: all its waits together take no longer than one may.
    since: Instant,
}

/// An exclusive transaction that is about to be committed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamped {
    synced: bool,
    size: Size,
    changed: Changed,
    /// Bytes of pages written to the WAL; 0 while unknown.
    page_bytes: u64,
}

impl Conn {
    /// Becomes exclusive. Then end the base read transaction, start a stock write transaction and
    /// replay.
    ///
    /// # Errors
    /// As for [`Conn::write_begin`]; Busy also when readers hold the memtables it needs. The
    /// transaction is then what it was before. `RenewSnapshot`.
    pub fn exclusive_begin(&mut self, wait: &mut Wait<'_>) -> Result<()> {
        if self.state.is_exclusive() {
            return Ok(());
        }
        let now = Before {
            mode: self.state.mode(),
            had_right: self.state.has_right(),
            since: Instant::now(),
        };
        let before = *self.before_exclusive.get_or_insert(now);
        let timeout = wait.timeout;
        wait.timeout = timeout.saturating_sub(before.since.elapsed());
        let begun = self.become_writer(wait).and_then(|()| {
            wait.timeout = timeout.saturating_sub(before.since.elapsed());
            // While what others have committed is still in memory: the replay only puts.
            self.candidate().resolve_maxima()?;
            self.become_exclusive(wait)
        });
        if let Err(Error::RenewSnapshot) = begun {
            self.view = self.view.wrapping_add(1);
            return begun;
        }
        self.before_exclusive = None;
        if begun.is_err() {
            // What was read has been validated up to the snapshot, which has moved with it.
            self.state.go_back_to(before.mode);
            if !before.had_right {
                self.give_right_back();
            }
            self.relax_pin();
            return begun;
        }
        self.state.become_exclusive();
        self.stamped = None;
        self.replayed = Size::default();
        if let Some(snapshot) = &mut self.snapshot {
            // EXCL-1: the base alone is the database.
            snapshot.memtables = Vec::new().into();
            snapshot.last_nodes.get_mut().clear();
        }
        self.view = self.view.wrapping_add(1);
        crash_point!("exclusive.begun");
        begun
    }

    /// Takes the right, turning an optimistic transaction into a queued one.
    fn become_writer(&mut self, wait: &mut Wait<'_>) -> Result<()> {
        if self.state.mode() != Some(WriteMode::Optimistic) {
            return self.write_begin(WriteMode::Queued, wait);
        }
        self.commit_prepare_always(wait)?;
        self.state.become_writer(WriteMode::Queued);
        Ok(())
    }

    /// Takes the right to merge and empties the overlay.
    fn become_exclusive(&mut self, wait: &mut Wait<'_>) -> Result<()> {
        self.refuse_replica()?;
        let db = self.db.clone();
        let right = db.own_merge(self.slot, wait)?;
        // EXCL-6: until it stamps the base, what is new there comes from its merge.
        self.db.control().stamped_generation.store(0, Relaxed);
        self.db.slots.at(self.slot).state.store(txn_state::EXCLUSIVE, Relaxed);
        // Opened now, so that the end of the transaction needs nothing that may be lacking.
        let opened = self.db.with_base(|_| Ok(()));
        let merged = opened.and_then(|()| {
            // FENCE-3 in upkeep/fence.rs.
            self.db.while_base_is_busy(&mut Patience::new(wait), |_| right.raise_lowered())?;
            // What it changes from here on is cut out of no gap (GAP-4 in gaps/).
            let guard = self.db.lock_commit()?;
            self.db.gaps().forget();
            drop(guard);
            self.db.look_at_log()?;
            self.merge_everything(&right, wait)
        });
        match merged {
            Ok(()) => right.keep(),
            Err(_) => db.slots.at(self.slot).state.store(txn_state::WRITER, Relaxed),
        }
        if !matches!(merged, Err(Error::RenewSnapshot)) {
            self.wal_wait.end();
        }
        merged
    }

    fn merge_everything(&mut self, right: &MergeRight<'_>, wait: &mut Wait<'_>) -> Result<()> {
        self.wal_wait.begin();
        let mut patience = Patience::new(wait);
        loop {
            self.wait_for_wal_with_rights(right, &mut patience)?;
            let full = self.db.generations.active_number();
            match self.db.while_base_is_busy(&mut patience, |_| right.merge(false)) {
                Err(Error::Full(_)) if self.db.is_wal_at_limit() => continue,
                merged => merged?,
            }
            if self.db.prepare_arena(0)? {
                if self.db.generations.is_memory_empty() {
                    return Ok(());
                }
                // The active generation found no arena to be frozen for; now there is one.
                continue;
            }
            match self.db.wait_for_arena(self.slot, full, 0, &mut patience)? {
                ArenaWait::LookAgain => {}
                ArenaWait::HeldByOwnSnapshot => return Err(Error::RenewSnapshot),
                ArenaWait::HeldByReaders(who) => {
                    self.db.control().counters.busy.fetch_add(1, Relaxed);
                    return Err(Error::Busy(format!(
                        "readers hold all memory for commits{who}; end long transactions, retry \
                         or raise the busy timeout"
                    )));
                }
            }
        }
    }

    /// Waits while snapshots hold the base's WAL at its limit, perhaps its own too (PIN-6). Both
    /// rights are held.
    fn wait_for_wal_with_rights(
        &mut self,
        right: &MergeRight<'_>,
        patience: &mut Patience<'_, '_>,
    ) -> Result<()> {
        while self.db.is_wal_at_limit() {
            right.checkpoint(Checkpoint::Passive)?;
            if !self.db.is_wal_at_limit() {
                break;
            }
            let newest = self.db.control().base_generation.load(Acquire);
            let is_due = self.wal_wait.is_renewal_due();
            // EXCL-4: a transaction that reads an older base and waits for the right would wait for
            // this one. So may one that reads the newest base, by an older read mark: those are
            // refused as often as this transaction takes a newer snapshot itself.
            let refused = {
                let _guard = self.db.lock_commit()?;
                self.db.right.refuse_waiters(|s| {
                    let base = s.pin_low.load(Acquire);
                    base < newest || (is_due && base != NO_PIN)
                })
            };
            self.db.right.wake(refused);
            if self.reads_base_before(newest) || (self.snapshot.is_some() && is_due) {
                return Err(self.renew());
            }
            if patience.is_over() {
                return Err(self.db.wal_is_held());
            }
            patience.nap(WAL_NAP)?;
        }
        Ok(())
    }

    /// Notes what the committed transaction has left in the base's WAL (SNAP-4), and how many pages
    /// it has written there.
    pub fn note_exclusive_wal(&mut self, state: WalState, written_pages: u32) {
        self.db.note_exclusive_wal(state);
        if let Some(stamped) = &mut self.stamped {
            stamped.page_bytes = u64::from(written_pages) * u64::from(state.page_bytes);
        }
    }

    /// Takes what becoming exclusive needs, if it can be had at once: the right to merge, and an
    /// empty memory. Then [`Conn::exclusive_begin`] need not wait. What is not used is given back
    /// at the end of the transaction.
    pub(super) fn reserve_exclusive(&self) -> bool {
        let Ok(Some(right)) = self.db.try_own_merge(self.slot) else { return false };
        // Such a failure is not this transaction's: the next merge meets it again.
        let ready = !self.db.is_wal_at_limit()
            && self.db.with_base(|_| Ok(())).is_ok()
            && right.raise_lowered().is_ok()
            && right.merge(false).is_ok()
            && matches!(self.db.prepare_arena(0), Ok(true))
            && self.db.generations.is_memory_empty();
        if ready {
            right.keep();
        }
        ready
    }

    /// Checks that the exclusive transaction has begun, for each step on SQLite's own path.
    ///
    /// # Errors
    /// Misuse (state.rs).
    pub fn expect_exclusive(&self) -> Result<()> {
        self.state.permits_exclusive_calls()
    }

    /// Replays the transaction's own writes in order, savepoint by savepoint; they leave the write
    /// set.
    pub fn exclusive_replay<E>(
        &mut self,
        mut step: impl FnMut(Replay<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.writes.replay(|s| {
            step(match s {
                Step::Savepoint(n) => Replay::Savepoint(n),
                Step::Write(root, key, w) => match w.kind() {
                    WriteKind::Tombstone => Replay::Delete(root, key, w.rec()),
                    WriteKind::PutMax => Replay::Maximum(root, key, w.rec()),
                    WriteKind::Put => Replay::Put(root, key, w.rec()),
                },
            })
        })?;
        self.replayed = self.written();
        self.writes.clear();
        Ok(())
    }

    /// Returns the header to be stamped before the stock commit (EXCL-2), which is synced under
    /// FULL alone. `size`: what was written since the transaction became exclusive. `changed`: by
    /// all of it (EXCL-3).
    pub fn exclusive_header(&mut self, sync: Sync, size: Size, changed: Changed) -> BaseHeader {
        let size = self.replayed.plus(size);
        self.stamped = Some(Stamped { synced: sync == Sync::Full, size, changed, page_bytes: 0 });
        let stamp = self.stamp();
        self.db.control().stamped_generation.store(stamp.generation.get(), Relaxed);
        stamp
    }

    /// Notes that the stock commit failed before it was complete: there is nothing to bury.
    pub fn exclusive_not_committed(&mut self) {
        self.stamped = None;
    }

    fn stamp(&self) -> BaseHeader {
        let c = self.db.control();
        BaseHeader {
            marked: true,
            fenced: true,
            salt: c.salt.load(Relaxed),
            generation: Generation::new(
                self.db.generations.active_generation().number.load(Acquire),
            ),
            cookie: 0,
            fence_in_wal_alone: false,
        }
    }

    /// Ends it after the stock commit or rollback: others go on. Unless it is `committed` for sure,
    /// the header of the base decides (EXCL-2); a stamped transaction that is not in the base is
    /// buried. `keeps_right`: the right is held until [`Conn::rollback`], so that a snapshot taken
    /// before that shows this very state.
    pub fn exclusive_end(&mut self, committed: bool, keeps_right: bool) {
        if self.state.is_exclusive() {
            self.judge_early();
        }
        if !self.state.end_exclusive() {
            return;
        }
        crash_point!("exclusive.committed");
        let is_prepared = self.part.is_some_and(|part| part.is_prepared);
        let settled = match self.stamped.take() {
            stamped if is_prepared => self.settle_prepared_part(stamped, committed),
            Some(stamped) => self.settle_exclusive(stamped, committed),
            None => Ok(()),
        };
        if self.part.take().is_some_and(|part| !part.is_prepared) && settled.is_ok() {
            self.db.forget_unprepared();
        }
        match &settled {
            Ok(()) => {}
            Err(e) if leaves_doubt(e) => self.db.stop_in_doubt(),
            // The next transaction that needs the rights settles it.
            Err(_) => {
                self.db.leave_behind(self.slot);
                self.state.set_right(false);
            }
        }
        crash_point!("exclusive.settled");
        self.db.disown_merge(self.slot);
        self.writes.clear();
        self.end_writing();
        self.view = self.view.wrapping_add(1);
        if !keeps_right {
            self.give_right_back();
        }
    }

    /// Notes that it is in the base, with this header.
    pub(super) fn note_committed(&mut self, stamped: &Stamped, header: &BaseHeader) {
        self.note_size(stamped.size, Some(stamped.page_bytes));
        // No other transaction has committed since: the right is held.
        let ts = self.db.control().visible_ts.load(Acquire);
        self.note_own_commit(CommitTs::new(ts), None, 1);
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.base_generation = header.generation;
            snapshot.ts = crate::ids::SnapshotTs::new(ts);
            snapshot.resting = false;
        }
    }

    fn settle_exclusive(&mut self, stamped: Stamped, committed: bool) -> Result<()> {
        let stamp = self.stamp();
        let header = if committed {
            debug_assert!(
                self.db.with_base(|base| base.header())?.generation == stamp.generation,
                "a commit of SQLite's that its own header does not show"
            );
            stamp
        } else {
            self.db.with_base(|base| base.header())?
        };
        if header.marked && header.generation < stamp.generation {
            return self.db.bury_unfinished_commit();
        }
        let is_noted = stamped.synced
            && self.db.log().is_ok_and(|log| log.note_base(header.generation).is_ok());
        if !is_noted {
            // Before any frame can be appended after it (BEFORE-1 in log/before.rs).
            self.db.log_shared().note_base_commit(header.generation);
        }
        {
            let _guard = self.db.lock_commit_even_if_poisoned()?;
            let changed = if header.generation == stamp.generation {
                stamped.changed
            } else {
                Changed::ANYTHING
            };
            self.db.note_boundary(header.generation, Change::Exclusive, Lsn::new(0));
            self.db.generations.settle_base(&header, Some(&changed));
        }
        self.note_committed(&stamped, &header);
        if committed && stamped.synced {
            // SQLite has synced the WAL, and everything before it: the base had all of that
            // (EXCL-1).
            self.note_own_durable();
        }
        self.db.notifier().wake();
        Ok(())
    }
}
