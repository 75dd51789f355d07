//! Transactions of one connection.
//!
//! A [`Conn`] is one attached connection: its slot in shared memory, its snapshot, what it has read
//! and what it has written. One thread at a time uses it.
//!
//! Its states as a writer, and the transitions between them: [`state`]. A part in a transaction
//! over several files: [`part`].
//!
//! Invariants
//! - CONN-1 (TXN-4) What was read stays in the read set until the transaction ends, whatever
//!   savepoints do.
//! - CONN-2 While the right is held and the snapshot is `visible_ts`, nothing that is read can
//!   change: reads are not recorded and the commit is not validated. If the right is held for a
//!   COMMIT alone, which may fail, reads in the middle of it are recorded.
//! - CONN-3 A doomed transaction commits nothing, however often COMMIT is tried.

mod begin;
mod bulk;
pub mod checkpoint;
pub mod commit;
pub mod exclusive;
pub mod overlay;
mod own_gaps;
mod part;
mod room;
pub(crate) mod rowid;
mod runs;
pub mod snapshot;
mod state;
pub(crate) mod tickets;

use self::state::State;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use self::begin::Contention;
use self::bulk::Bulk;
pub use self::bulk::Size;
use self::own_gaps::OwnGaps;
pub use crate::commit::Sync;
use crate::commit::maximum::name_of;
use crate::commit::reads::ReadSet;
use crate::commit::writes::{self, WriteSet};
use crate::commit::{Candidate, Snapshot};
use crate::database::Database;
use crate::database::listed::Listed;
use crate::database::right::Claim;
use crate::error::{Conflict, Error, Result};
use crate::fault::is_planted;
use crate::ids::{Root, SlotIndex, TxnId};
use crate::memtable::Hi;
use crate::shm::layout::txn_state;
use crate::shm::process;
use crate::sync::caller;
use crate::sync::clock::unix_ms;
use crate::sync::wait::Wait;
use crate::upkeep::pressure::merge_beside;

/// Largest write set of a transaction that stays on the concurrent path, in bytes of its log frame
/// (TXN-7).
pub const WRITE_BUDGET_BYTES: usize = 7 << 20;
/// What a memtable node takes besides key and record, on top of the log's op header.
pub const NODE_OVERHEAD_BYTES: usize = 64;

/// How a transaction becomes a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMode {
    /// Takes the writer's right; cannot fail afterwards.
    Queued,
    /// BEGIN CONCURRENT: validates when it commits.
    Optimistic,
}

/// One attached connection.
pub struct Conn {
    pub(crate) db: Arc<Database>,
    pub(crate) slot: SlotIndex,
    pub(crate) snapshot: Option<Snapshot>,
    /// What its last snapshot had, for the next one.
    listed: Listed,
    /// The next snapshot replaces this one, without the right (PIN-6 in snapshot.rs).
    pub(crate) renews: bool,
    wal_wait: room::WalWait,
    /// One COMMIT's wait for a large memtable, over all the snapshots that it takes.
    large_wait: Option<room::RoomWait>,
    /// Its place in the queue for the right, kept while a refused COMMIT takes a newer snapshot
    /// (RIGHT-8 in database/right.rs).
    waits_since: Option<u64>,
    pub(crate) state: State,
    /// Set while becoming exclusive takes several calls.
    pub(crate) before_exclusive: Option<exclusive::Before>,
    /// The exclusive transaction may have written its commit.
    pub(crate) stamped: Option<exclusive::Stamped>,
    /// Own writes that were replayed when it became exclusive.
    pub(crate) replayed: Size,
    /// Its part in a transaction over several files, from the beginning of COMMIT on.
    pub(crate) part: Option<part::Part>,
    pub(crate) bulk: Bulk,
    /// Threads may be started for it.
    threads: bool,
    /// It applies what the primary of a replica has committed (REPLICA-3 in replica.rs).
    is_follower: bool,
    /// Bytes that it has committed since it last kept pace (upkeep/pressure.rs).
    unpaced: u64,
    pub(crate) contention: Contention,
    /// The transaction is a try that its caller repeats if it is refused (begin.rs).
    repeats: bool,
    /// For how many more single writes it remembers a commit of others (begin.rs).
    company: u32,
    /// A generation of the base, and the entries deleted while the base had it
    /// (upkeep/pressure.rs).
    deleted: (u32, u64),
    /// It takes the right at its first statement (begin.rs).
    early: Option<begin::Early>,
    /// It took the right early, and had lost it when it began to write.
    lost_early: bool,
    pub(crate) writes: WriteSet,
    pub(crate) reads: ReadSet,
    pub(crate) conflict: Option<Box<Conflict>>,
    pub(crate) view: u32,
    /// Timestamps that its own transactions have taken.
    pub(crate) own_timestamps: u64,
    last_commit: tickets::LastCommit,
    runs: runs::Runs,
    notify_fd: Option<std::os::fd::RawFd>,
    /// The last answer of `data_version`.
    pub(crate) data_version: u32,
    pub(crate) seen: Option<snapshot::Seen>,
    pub(crate) txn: TxnId,
    /// What the transaction has seen that readers may not see yet (snapshot.rs).
    pub(crate) shown: snapshot::Shown,
    level: Sync,
    own_gaps: RefCell<OwnGaps>,
    greatest: Option<rowid::Greatest>,
}

impl Conn {
    /// Returns a new connection to `db`.
    pub fn new(db: Arc<Database>) -> Result<Conn> {
        let slot = db.slots.claim_counted()?;
        let last_commit = tickets::LastCommit::of_others(&db);
        let begun_by_others = bulk::begun_in(&db, slot);
        Ok(Conn {
            db,
            slot,
            snapshot: None,
            listed: Listed::default(),
            renews: false,
            wal_wait: room::WalWait::default(),
            large_wait: None,
            waits_since: None,
            state: State::IDLE,
            before_exclusive: None,
            stamped: None,
            replayed: Size::default(),
            part: None,
            bulk: Bulk::new(begun_by_others),
            threads: false,
            is_follower: false,
            unpaced: 0,
            contention: Contention::default(),
            repeats: false,
            company: 0,
            deleted: (0, 0),
            early: None,
            lost_early: false,
            writes: WriteSet::new(),
            reads: ReadSet::new(),
            conflict: None,
            view: 1,
            own_timestamps: 0,
            last_commit,
            runs: runs::Runs::default(),
            notify_fd: None,
            data_version: 2,
            seen: None,
            txn: TxnId::ZERO,
            shown: snapshot::Shown::default(),
            level: Sync::Full,
            own_gaps: RefCell::default(),
            greatest: None,
        })
    }

    /// The database.
    pub fn database(&self) -> &Arc<Database> {
        &self.db
    }

    /// From here on this connection may write a replica: it is the follower's.
    pub fn write_as_follower(&mut self) {
        self.is_follower = true;
    }

    /// Fails if the database is a replica, and this is not its follower (REPLICA-3 in replica.rs), or is, and may not
    /// be so any more (REPLICA-5, REPLICA-6).
    ///
    /// # Errors
    /// Follows, Misuse.
    pub fn refuse_replica(&self) -> Result<()> {
        match self.is_follower {
            true => self.db.refuse_follower(),
            false => self.db.refuse_replica(),
        }
    }

    /// How this transaction writes; `None` while it only reads.
    pub fn write_mode(&self) -> Option<WriteMode> {
        self.state.mode()
    }

    /// True once the session has raised its fence.
    pub fn has_fence(&self) -> bool {
        self.db.is_fenced()
    }

    /// Returns one of [`fence`](crate::shm::layout::fence): fenced once the database file itself
    /// says so, lowered before the file ceases to.
    pub fn fence(&self) -> u32 {
        // Acquire pairs with the Release of the process that raises the fence: the file has it.
        self.db.control().fence.load(Acquire)
    }

    /// True after a conflict, until the rollback.
    pub fn is_doomed(&self) -> bool {
        self.state.is_doomed()
    }

    /// True on SQLite's own path.
    pub fn is_exclusive(&self) -> bool {
        self.state.is_exclusive()
    }

    /// Changes whenever the snapshot moved under open cursors.
    pub fn view(&self) -> u32 {
        self.view
    }

    /// Returns the conflict behind the last failure, if it was one.
    pub fn last_conflict(&self) -> Option<&Conflict> {
        self.conflict.as_deref()
    }

    /// Becomes a writer. With a snapshot and `Queued`, what was read is validated and the snapshot
    /// moves to the newest commit: the call succeeds unless a row or range that was read has
    /// changed ("Isolation" in docs/sql.md).
    ///
    /// # Errors
    /// Busy, Conflict (the transaction may go on reading), Interrupted, Follows, Full and I/O errors of
    /// fencing; `RenewSnapshot` as for [`Conn::commit`], with the right, which `rollback` gives
    /// back.
    pub fn write_begin(&mut self, mode: WriteMode, wait: &mut Wait<'_>) -> Result<()> {
        self.refuse_doomed()?;
        if self.state.mode().is_some() {
            return Ok(());
        }
        self.db.check_fork()?;
        self.refuse_replica()?;
        self.start_transaction();
        self.take_back_lone_read();
        // A lowered fence is raised by the transaction that has something to commit (FENCE-2 in
        // upkeep/fence.rs).
        if !self.db.is_fenced() {
            self.db.ensure_fenced(self.slot, wait)?;
        }
        match mode {
            // TRY-2 in begin.rs.
            WriteMode::Optimistic if self.repeats => {}
            WriteMode::Optimistic => {
                self.db.slots.at(self.slot).state.store(txn_state::OPTIMISTIC, Relaxed);
            }
            // Nothing was written yet: after a conflict the transaction may go on reading, as in
            // stock SQLite.
            WriteMode::Queued => {
                self.write_from_now(wait)?;
            }
        }
        self.state.become_writer(mode);
        Ok(())
    }

    /// Names the transaction in shared memory, once; true if that began it.
    pub(crate) fn start_transaction(&mut self) -> bool {
        let begins = self.txn == TxnId::ZERO;
        if begins {
            let id = self.db.control().counters.next_txn.fetch_add(1, Relaxed) + 1;
            self.txn = TxnId::new(id);
            self.bulk.begin();
            let slot = self.db.slots.at(self.slot);
            slot.txn.store(id, Relaxed);
            slot.tid.store(process::tid(), Relaxed);
            slot.started_ms.store(unix_ms(), Relaxed);
        }
        begins
    }

    pub(crate) fn refuse_doomed(&self) -> Result<()> {
        match (&self.conflict, self.state.is_doomed()) {
            (Some(conflict), true) => Err(Error::Conflict(conflict.clone())),
            (None, true) => Err(Error::Conflict(Box::default())),
            _ => Ok(()),
        }
    }

    /// Remembers a conflict for error texts and `plait_conflicts`, and dooms a transaction that has
    /// begun to write (CONN-3).
    pub(crate) fn note_conflict(&mut self, e: Error) -> Error {
        if let Error::Conflict(conflict) = &e {
            self.state.doom();
            if self.state.mode() == Some(WriteMode::Optimistic) && !conflict.is_exclusive {
                self.note_turn_lost();
            }
            if !self.repeats {
                self.db.record_conflict(self.txn, conflict);
            }
            self.conflict = Some(conflict.clone());
            // A retry must see the commit that this transaction lost against.
            self.note_shown(conflict.winner_ts.get(), self.db.full_end());
        }
        e
    }

    /// Waits for the writer's right.
    pub(crate) fn take_right(&mut self, wait: &mut Wait<'_>) -> Result<()> {
        self.note_lost_right();
        self.comes_back();
        let claim = Claim { since_ns: self.waits_since.take(), early: None };
        match self.db.acquire_right(self.slot, claim, wait) {
            // RIGHT-10: nobody who writes is refused for one that has not written. Who is in the
            // way of an exclusive one is (RIGHT-5), and its caller asks for that.
            Err(Error::Busy(text)) => {
                if self.db.right.was_refused(self.slot) || !self.db.take_from_early(self.slot)? {
                    self.db.control().counters.busy.fetch_add(1, Relaxed);
                    return Err(Error::Busy(text));
                }
            }
            other => other?,
        }
        self.state.set_right(true);
        self.begins_in_a_run();
        Ok(())
    }

    /// Takes the writer's right if it is free.
    fn take_right_at_once(&mut self) -> bool {
        self.state.set_right(matches!(self.db.try_take_right(self.slot), Ok(true)));
        self.state.has_right()
    }

    /// As [`Conn::take_right`], for a transaction that is about to commit. If it is refused because
    /// the holder waits for the end of its snapshot (RIGHT-5), it takes a newer one.
    ///
    /// # Errors
    /// `RenewSnapshot` in that case: the caller must take the snapshot.
    pub(super) fn take_right_to_commit(&mut self, wait: &mut Wait<'_>) -> Result<()> {
        let taken = self.take_right(wait);
        if taken.is_err() && self.snapshot.is_some() && self.db.right.was_refused(self.slot) {
            self.waits_since = Some(self.db.slots.at(self.slot).queued_ns.load(Relaxed));
            return Err(self.renew());
        }
        taken
    }

    /// Takes the right and moves the snapshot to now, so that nothing can conflict (CONN-2).
    ///
    /// # Errors
    /// Those of both steps, after which the right is not held; except `RenewSnapshot`: the caller
    /// must take the snapshot before it calls this again.
    pub(crate) fn write_from_now(&mut self, wait: &mut Wait<'_>) -> Result<()> {
        if !self.state.has_right() {
            self.take_right(wait)?;
        }
        self.go_on_from_now()
    }

    /// Moves the snapshot to now. The right is held; it is given back on failure.
    pub(super) fn go_on_from_now(&mut self) -> Result<()> {
        let moved = self.refuse_replica().and_then(|()| self.move_snapshot_to_now());
        if let Err(e) = moved {
            if matches!(e, Error::RenewSnapshot) {
                return Err(e);
            }
            self.relax_pin();
            self.give_right_back();
            return Err(self.note_conflict(e));
        }
        Ok(())
    }

    pub(crate) fn give_right_back(&mut self) {
        self.state.set_right(false);
        // The owner word decides (RIGHT-3), also if an error or a panic came before the flag was
        // set.
        self.db.release_right(self.slot);
        if self.state.mode() == Some(WriteMode::Optimistic) {
            // The transaction goes on, and others choose rowids by this state (rowid.rs).
            self.db.slots.at(self.slot).state.store(txn_state::OPTIMISTIC, Relaxed);
        }
    }

    /// Stops the database and gives back both rights, after a panic in a call: no connection must
    /// wait for a transaction that may never end.
    pub fn abandon(&mut self) {
        self.db.poison();
        if self.db.check_fork().is_ok() {
            self.db.disown_merge(self.slot);
            self.give_right_back();
            self.end_turn();
        }
    }

    /// True if reads are recorded: they need not be while nothing can change (CONN-2).
    fn records_reads(&self) -> bool {
        self.state.records_reads() || (self.has_right_for_commit() && !self.state.is_doomed())
    }

    /// True if an optimistic transaction has taken the right for its COMMIT. It gives the right
    /// back if the COMMIT fails; what hooks of the application have read until then may change
    /// after that.
    fn has_right_for_commit(&self) -> bool {
        let mode = self.part.map_or(self.state.mode(), |part| part.mode);
        mode == Some(WriteMode::Optimistic)
    }

    /// Returns what this transaction brings to its COMMIT.
    pub(crate) fn candidate(&mut self) -> Candidate<'_> {
        Candidate {
            db: &self.db,
            slot: self.slot,
            id: self.txn,
            snapshot: self.snapshot.as_ref(),
            reads: &mut self.reads,
            writes: &mut self.writes,
        }
    }

    /// True if there was no memory for a read: the transaction can only be rolled back.
    pub fn lacks_reads(&self) -> bool {
        self.reads.is_incomplete()
    }

    /// Records that `key` was looked up, whether it was there or not.
    pub fn read_point(&mut self, root: Root, key: &[u8]) {
        if self.records_reads() {
            self.reads.point(root, key);
        }
    }

    /// Records that everything starting with `prefix` was looked at.
    pub fn read_prefix(&mut self, root: Root, prefix: &[u8]) {
        if self.records_reads() {
            self.reads.prefix(root, prefix);
        }
    }

    /// Records that the closed range was looked at; `None` is unbounded.
    pub fn read_range(&mut self, root: Root, lo: Option<&[u8]>, hi: Option<Hi<'_>>) {
        if self.records_reads() {
            self.reads.range(root, lo, hi);
        }
    }

    /// Refuses writes outside a write transaction, past the budget (TXN-7), and those of a lone
    /// bulk load (bulk.rs).
    fn admit(&mut self, key: &[u8], rec_len: usize) -> Result<()> {
        self.state.permits_writes()?;
        self.refuse_doomed()?;
        let ops = self.writes.frame_bytes() + writes::OP_HEADER_BYTES + key.len() + rec_len;
        // Many small entries cost more in a memtable than in the log.
        let bytes = ops + self.writes.len() * NODE_OVERHEAD_BYTES;
        if bytes > WRITE_BUDGET_BYTES || self.try_become_exclusive() {
            return Err(Error::Escalate);
        }
        Ok(())
    }

    /// Writes an entry: `rec` followed by `zeros` zero bytes.
    ///
    /// # Errors
    /// Escalate past the budget or in a lone bulk load (nothing was written), Conflict when doomed.
    pub fn put(&mut self, root: Root, key: &[u8], rec: &[u8], zeros: usize) -> Result<()> {
        self.admit(key, rec.len() + zeros)?;
        self.cut_own_gaps(root, key);
        self.write_noting_greatest(root, key, true, |writes| writes.put(root, key, rec, zeros))
    }

    /// Deletes an entry; `rec` is the deleted record of an index.
    pub fn delete(&mut self, root: Root, key: &[u8], rec: &[u8]) -> Result<()> {
        self.admit(key, rec.len())?;
        self.deleted.1 += 1;
        self.write_noting_greatest(root, key, false, |writes| writes.delete(root, key, rec))
    }

    /// As [`Conn::delete`], for the row that a walk is on. Since it deleted the previous row of
    /// this `run`, the walk has met no row.
    pub fn delete_in_passing(
        &mut self,
        root: Root,
        key: &[u8],
        rec: &[u8],
        run: u32,
    ) -> Result<()> {
        self.delete(root, key, rec)?;
        self.note_deleted(root, key, run);
        Ok(())
    }

    /// As [`Conn::put`], but at commit the record's last 8 bytes become the maximum of the
    /// committed ones and its own.
    pub fn put_max(&mut self, root: Root, key: &[u8], rec: &[u8]) -> Result<()> {
        self.admit(key, rec.len())?;
        self.cut_own_gaps(root, key);
        if self.writes.is_decided(root, key) {
            self.read_range(root, None, None);
        }
        self.writes.put_max(root, key, rec, 0)
    }

    /// As [`Conn::put_max`], for a maximum that this transaction has looked for in all of `root`
    /// and not found.
    pub fn make_max(&mut self, root: Root, key: &[u8], rec: &[u8]) -> Result<()> {
        // First, since the transaction may have to become exclusive.
        self.read_point(root, key);
        if self.records_reads() {
            match name_of(rec) {
                Some(name) => self.reads.missing_name(root, name)?,
                None => self.reads.range(root, None, None),
            }
        }
        self.put_max(root, key, rec)
    }

    /// Opens savepoints until `n` are open.
    pub fn savepoint_open(&mut self, n: usize) {
        self.writes.savepoint_open(n);
    }

    /// Releases savepoint `i` and those inside it.
    pub fn savepoint_release(&mut self, i: usize) {
        self.writes.savepoint_release(i);
    }

    /// Undoes what was written since savepoint `i` (`None`: since the start). Forgets no reads
    /// (CONN-1).
    pub fn savepoint_rollback(&mut self, i: Option<usize>) {
        self.writes.savepoint_rollback(i.map_or(-1, |i| i as i32));
        self.view = self.view.wrapping_add(1);
    }

    /// Begins a statement that writes: its writes can be taken back.
    pub fn statement_open(&mut self, id: writes::StatementId) {
        self.writes.statement_open(id);
    }

    /// Ends a statement that has succeeded.
    pub fn statement_close(&mut self, id: writes::StatementId) {
        self.writes.statement_close(id);
    }

    /// Undoes the writes of a refused statement. Forgets no reads (CONN-1). False if the statement
    /// is not known.
    pub fn statement_rollback(&mut self, id: writes::StatementId) -> bool {
        if is_planted("statements.kept") {
            self.writes.statement_close(id);
            return true;
        }
        let is_known = self.writes.statement_rollback(id);
        self.view = self.view.wrapping_add(u32::from(is_known));
        is_known
    }

    /// Discards all writes and gives the right back; the snapshot stays.
    pub fn rollback(&mut self) -> Result<()> {
        if self.state.is_exclusive() {
            // `exclusive_end` gives back what it holds, once its outcome is known.
            return Ok(());
        }
        self.part_rollback();
        self.judge_early();
        let had_writes = !self.writes.is_empty();
        self.writes.clear();
        self.end_writing();
        if had_writes {
            self.view = self.view.wrapping_add(1);
        }
        self.give_right_back();
        Ok(())
    }

    /// Ends the transaction as a writer, and forgets what it read.
    pub(crate) fn end_writing(&mut self) {
        self.state.end_writing();
        self.before_exclusive = None;
        self.waits_since = None;
        self.repeats = false;
        self.early = None;
        // A right to merge that was reserved and never used.
        self.db.disown_merge(self.slot);
        self.reads.clear();
        let slot = self.db.slots.at(self.slot);
        if !self.state.has_right() {
            slot.state.store(slot.resting_state(), Relaxed);
        }
        self.txn = TxnId::ZERO;
        slot.txn.store(0, Relaxed);
    }

    /// Allows threads of the engine's own: the program has configured SQLite for more than one
    /// thread.
    pub fn allow_threads(&mut self) {
        self.threads = true;
    }

    /// True if merges that it finds due are made in a thread.
    pub(crate) fn merges_in_background(&self) -> bool {
        self.threads && self.db.control().background_merge.load(Relaxed) != 0
    }

    /// False if [`Conn::maintain`] would find nothing to do, as it does after nearly all commits.
    /// Makes no system call that waits.
    pub fn is_upkeep_due(&mut self) -> bool {
        if !self.db.paces_commits() {
            self.unpaced = 0;
        }
        self.unpaced > 0 || self.db.is_upkeep_due()
    }

    /// Merges if that is due, in a thread unless threads are turned off or none can be started.
    /// Called outside any transaction.
    pub fn maintain(&mut self) -> Result<()> {
        // The caller's transaction is done: the call must not wait for others.
        caller::briefly(|| {
            self.db.keep_pace(std::mem::take(&mut self.unpaced));
            self.db.prepare_log_space()?;
            self.db.prepare_next_arena();
            if self.merges_in_background() && merge_beside(&self.db) {
                return Ok(());
            }
            self.db.merge_if_due(self.slot)
        })
        .inspect_err(|e| self.db.note_merge_failure(e))
    }

    /// Counts `steps` past memtables, gone since the last call: a merge may pay by now. Called
    /// outside any transaction.
    pub fn note_walk(&self, steps: u32) {
        self.db.note_walk(steps, self.merges_in_background());
    }

    /// Notes that a program was given the number of pages of the base, `base_bytes` in all. Called
    /// outside any transaction.
    pub fn note_page_count(&mut self, base_bytes: u64) {
        // Relaxed: a gauge.
        let base = self.db.control().base_generation.load(Relaxed);
        if self.deleted.0 != base {
            self.deleted = (base, 0);
        }
        self.db.note_page_count(base_bytes, self.deleted.1, self.merges_in_background());
    }

    /// True if no other connection has the database open in this session.
    pub fn is_lone(&self) -> bool {
        self.db.connections() <= 1
    }

    /// Merges what was committed before the call: all of it if `whole`, for which it may wait for
    /// others; else as much as is possible without waiting. Called outside any transaction of this
    /// connection.
    pub fn merge_all(&mut self, whole: bool, wait: &mut Wait<'_>) -> Result<()> {
        self.db.merge_all(self.slot, whole, wait)
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        if self.db.check_fork().is_err() {
            // The child of a fork owns nothing of its parent's.
            return;
        }
        let db = self.db.clone();
        let _slot = db.give_back_later(self.slot);
        self.end_notify();
        if self.state.is_exclusive() {
            self.exclusive_end(false, false);
        }
        self.writes.clear();
        let _ = self.rollback();
        self.snapshot_end();
    }
}
