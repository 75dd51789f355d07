//! Commit.
//!
//! ```text
//! room in memtable, ring and log file          (may merge, write or wait: room.rs; no mutex)
//! large read sets: validated once              (no mutex)
//! -- commit mutex -------------------------------------------------
//! right free or ours; validate (all, or what was committed since the first pass)
//! next timestamp, told in the process's slot; frame into the ring; log_end   <- the commit point
//! nodes into the memtable; gaps cut; full_end (FULL); visible_ts; right passed on
//! -----------------------------------------------------------------
//! wake the next writer; wait for the disk (FULL); readable_ts (visibility.rs); what is full of the memtable to the disk (leave.rs)
//! ```
//!
//! What a COMMIT takes before its commit point, and who gives it back. `optimistic` and `queued` as in [`state`](super::state); the table of
//! the calls around it is at the head of `csrc/transaction.c`.
//!
//! | exit | the writer's right of an optimistic one | its snapshot | what was read |
//! |---|---|---|---|
//! | `commit_prepare`: Ok | taken | at now, or to be renewed | validated through it, and kept: it may have to be validated again (X1) |
//! | Busy, Interrupted, Full, Io | given back, or never had | where it was, or at now | kept |
//! | Conflict | given back | where it was | kept; doomed |
//! | `RenewSnapshot`, of any | kept if it was taken, until the call that follows ends | about to be newer (S6) | validated by the renewal |
//! | `commit`: Ok | passed on | at the commit, if somebody reads on | forgotten |
//! | `commit`: Busy, Interrupted, Full, Io before the commit point | given back, whoever took it: `commit_prepare`, this call, or one before a renewal | where it was | kept |
//! | `commit`: Io after the commit point | passed on | at the commit | forgotten |
//! | `commit_undo`, after whatever else kept the COMMIT from being made | given back | where it is | kept |
//!
//! A queued transaction has the right from before, and keeps it in all of them but the three that pass it on.
//!
//! Invariants
//! - C1 Nothing between lock and unlock makes a system call, but for the unlocking itself.
//! - C3 A COMMIT under FULL returns when it is on disk, and no reader sees it before; see visibility.rs.
//! - An error before the commit point leaves the transaction as it was; after it the only
//!   possible error is a failed sync, which poisons the database (C4).

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::room::RoomWait;
use super::validate::Base;
use super::write_set::WriteKind;
use super::{Conn, Sync};
use crate::crash_point;
use crate::database::generations::Room;
use crate::database::lock::PoisonOnPanic;
use crate::error::{Error, Result};
use crate::fault;
use crate::ids::{CommitTs, Generation, Lsn, SlotIndex, SnapshotTs};
use crate::log::{AppendError, FrameHead, LogError, frame_len};
use crate::memtable::{ArenaFull, EntryKind, Memtable, Share};
use crate::shm::layout::{NO_PIN, fence};
use crate::shm::witness::{self, Witness};
use crate::sync::clock::unix_ms;
use crate::sync::mutex::Guard;
use crate::sync::wait::Wait;
use crate::upkeep::leave::Taken;

/// Read sets up to this many points, without ranges, are validated in one go under the mutex.
const SMALL_READ_SET: usize = 64;
/// Keys that such a validation may pass there: a prefix of an index may have any number, deleted ones too.
const KEYS_IN_MUTEX: usize = 256;
/// Commits that may slip in between the first validation and the mutex, in bytes of log, before it is repeated.
const FRAMES_TO_RECHECK: u64 = 256 << 10;

/// Longest time that commits under NORMAL or OFF stay out of the log file while others follow them. Who commits at intervals longer than
/// that has written each.
const RELAXED_WRITE_MS: u64 = 10;
/// The same while the base's WAL has to be synced before, which NORMAL and OFF do not promise.
const RELAXED_SYNC_MS: u64 = 1000;
/// Validations outside the mutex before the right is taken for the next.
const PASSES_BESIDE_OTHERS: u32 = 2;
/// Writes of the log for one commit that finds the ring full, or not written as a long frame needs it, before others wait.
const WRITES_BESIDE_OTHERS: u32 = 8;

/// What has to be done before the critical section can be tried again.
enum Blocked {
    RightTaken,
    FenceLowered,
    MemtableFull { generation: Generation, bytes: u64 },
    Unallocated { arena: usize, reach: u64 },
    Log(AppendError),
    ValidateAgain,
}

/// A finished critical section.
struct Committed {
    ts: CommitTs,
    end: Lsn,
    /// How far the log must be on disk before readers see it.
    needs: Lsn,
    /// See [`Generations::must_write`](crate::database::generations::Generations::must_write).
    must_write: bool,
    wake: Option<SlotIndex>,
    /// Until it is settled.
    witness: Option<Witness>,
    /// In its memtable.
    taken: Taken,
}

/// Result of validating outside the mutex: everything before `lsn` has been checked.
#[derive(Clone, Copy)]
struct FirstPass {
    lsn: Lsn,
    ts: SnapshotTs,
}

impl Conn {
    /// Takes the right and validates, so that the commit that follows cannot conflict.
    pub fn commit_prepare(&mut self, wait: &mut Wait<'_>) -> Result<()> {
        if self.writes.is_empty() {
            return Ok(());
        }
        self.commit_prepare_always(wait)
    }

    /// As [`Conn::commit_prepare`], also for a transaction that has written nothing yet.
    pub(crate) fn commit_prepare_always(&mut self, wait: &mut Wait<'_>) -> Result<()> {
        self.state.permits_commit()?;
        self.refuse_doomed()?;
        if self.state.has_right() {
            return Ok(());
        }
        self.take_right_to_commit(wait)?;
        self.go_on_from_now()
    }

    /// The COMMIT has ended without having been made, for whatever reason, of this file or of another: gives back what [`Conn::part_begin`]
    /// has taken, and the right of an optimistic transaction, which does not keep it while its caller thinks. It goes on as it was, in the
    /// snapshot that it has now.
    pub fn commit_undo(&mut self) {
        if self.part.is_some_and(|part| part.is_prepared) {
            return;
        }
        self.part_undo();
        self.give_back_for_commit();
    }

    fn give_back_for_commit(&mut self) {
        if self.state.mode() == Some(super::WriteMode::Optimistic) {
            self.give_right_back();
            self.relax_pin();
        }
    }

    /// Commits. `keep_reading`: open readers go on at a snapshot that includes this commit.
    ///
    /// # Errors
    /// Busy and Interrupted may be repeated, and so must `RenewSnapshot`; Conflict dooms the transaction; Full wrote
    /// nothing; I/O errors after the commit point poison the database.
    pub fn commit(&mut self, sync: Sync, keep_reading: bool, wait: &mut Wait<'_>) -> Result<()> {
        self.state.permits_commit()?;
        self.refuse_doomed()?;
        self.db.check_fork()?;
        self.judge_early();
        if self.writes.is_empty() {
            return self.commit_nothing(sync);
        }
        let committed = match self.commit_writes(sync, keep_reading, wait) {
            Ok(committed) => committed,
            Err(e) => {
                if matches!(e, Error::RenewSnapshot) {
                    self.view = self.view.wrapping_add(1);
                } else {
                    self.large_wait = None;
                }
                if !self.renews {
                    self.relax_pin();
                }
                return Err(self.note_conflict(e));
            }
        };
        self.large_wait = None;
        self.db.right.wake(committed.wake);
        self.state.set_right(false);
        if self.state.mode() == Some(super::WriteMode::Optimistic) {
            self.note_turn_committed();
        }
        self.note_own_commit(committed.ts, Some(committed.end), 1);
        let written = self.written();
        self.note_size(written, None);
        self.unpaced += written.bytes;
        self.writes.clear();
        let synced = self.acknowledge(&committed, sync);
        self.db.notifier().wake();
        if sync == Sync::Full {
            self.db.region().write_out(&committed.taken);
        }
        self.db.region().extend_recent(committed.ts.get());
        drop(committed.witness);
        // It lies before the own commit.
        self.shown = super::snapshot::Shown::default();
        self.end_writing();
        if keep_reading {
            self.continue_reading_at(committed.ts);
        }
        synced
    }

    pub(super) fn commit_nothing(&mut self, sync: Sync) -> Result<()> {
        self.give_right_back();
        self.end_writing();
        self.settle_shown_as(sync)
    }

    fn acknowledge(&self, committed: &Committed, sync: Sync) -> Result<()> {
        let mut synced = Ok(());
        if sync == Sync::Full {
            synced = self.db.log().and_then(|log| Ok(log.sync_through(committed.end)?));
        }
        // Also if that failed: it is published, and another process may bring it to disk. Who reads from now on has to, or fails (V1).
        self.db.settle(committed.ts.get(), committed.needs);
        synced.map_err(say_published)?;
        if sync == Sync::Full {
            self.note_own_durable();
            return Ok(());
        }
        self.write_relaxed(committed.end, committed.must_write).map_err(say_published)
    }

    /// What a commit under NORMAL or OFF, which counts already, does for itself and those before it. What only this process cannot do
    /// is left to others, or to its own next commits, which fail before they count once there is no room left.
    pub(super) fn write_relaxed(&self, end: Lsn, must_write: bool) -> Result<()> {
        let log = self.db.log()?;
        left_to_others(if must_write { log.write_through(end) } else { log.relaxed_commit(end) })?;
        self.write_now_and_then()
    }

    /// A power cut loses what is not in the file, and so does a copy of the files without shared memory: now and then a committer
    /// writes it there.
    fn write_now_and_then(&self) -> Result<()> {
        let last = &self.db.control().relaxed_write_ms;
        let (now, before) = (unix_ms(), last.load(Relaxed));
        let needs_sync = self.db.log_shared().base_is_unsynced();
        let longest = if needs_sync { RELAXED_SYNC_MS } else { RELAXED_WRITE_MS };
        let due = now.abs_diff(before) >= longest;
        // Relaxed: one of those who meet here writes; who it is does not matter.
        if due && last.compare_exchange(before, now, Relaxed, Relaxed).is_ok() {
            left_to_others(self.db.log()?.write_if_free())?;
            // What is written there must be found after a crash.
            self.db.log()?.look()?;
        }
        Ok(())
    }

    fn commit_writes(
        &mut self,
        sync: Sync,
        keep_reading: bool,
        wait: &mut Wait<'_>,
    ) -> Result<Committed> {
        self.start_transaction();
        // Whatever can fail about the log file fails before the commit point.
        self.db.log()?;
        witness::prepare();
        let mut room = RoomWait::begin();
        let mut first_pass = None;
        let mut passes = 0;
        let result = loop {
            match self.try_commit(sync, keep_reading, first_pass) {
                Ok(Ok(committed)) => break Ok(committed),
                Ok(Err(blocked)) => {
                    let unblocked =
                        self.unblock(blocked, &mut first_pass, &mut passes, &mut room, wait);
                    if let Err(e) = unblocked {
                        break Err(e);
                    }
                }
                Err(e) => break Err(e),
            }
        };
        if result.as_ref().is_err_and(|e| !matches!(e, Error::RenewSnapshot)) {
            self.give_back_for_commit();
        }
        result
    }

    fn unblock(
        &mut self,
        blocked: Blocked,
        first_pass: &mut Option<FirstPass>,
        passes: &mut u32,
        room: &mut RoomWait,
        wait: &mut Wait<'_>,
    ) -> Result<()> {
        match blocked {
            Blocked::RightTaken => self.take_right_to_commit(wait),
            // A checkpoint has come between (L2 in upkeep/fence.rs).
            Blocked::FenceLowered => self.db.ensure_fenced(self.slot, wait),
            Blocked::ValidateAgain => {
                self.pass_again(passes, PASSES_BESIDE_OTHERS, wait)?;
                *first_pass = Some(self.first_pass()?);
                Ok(())
            }
            Blocked::Log(AppendError::RingFull) => {
                self.pass_again(passes, WRITES_BESIDE_OTHERS, wait)?;
                self.db.log()?.make_room(AppendError::RingFull).map_err(Error::from)
            }
            Blocked::Log(e) => self.make_log_room(e, room, wait),
            Blocked::MemtableFull { generation, bytes } => {
                self.make_memtable_room(generation, bytes, room, wait)
            }
            Blocked::Unallocated { arena, reach } => self.db.region().grow_arena(arena, reach),
        }
    }

    /// Counts a vain try. When others commit faster than this one gets through, it takes the right: while it holds that they
    /// wait.
    fn pass_again(&mut self, passes: &mut u32, most: u32, wait: &mut Wait<'_>) -> Result<()> {
        *passes += 1;
        if *passes > most && !self.state.has_right() {
            self.take_right_to_commit(wait)?;
        }
        Ok(())
    }

    /// Validates without the mutex, remembering from where the rest has to be checked.
    fn first_pass(&mut self) -> Result<FirstPass> {
        let pass = {
            let _guard = self.db.lock_commit()?;
            let slot = self.db.slots.at(self.slot);
            slot.pin_high.store(NO_PIN, Relaxed);
            self.check_history()?;
            FirstPass {
                lsn: self.db.log_shared().log_end(),
                ts: SnapshotTs::new(self.db.control().visible_ts.load(Relaxed)),
            }
        };
        self.validate_all()?;
        Ok(pass)
    }

    /// The critical section.
    fn try_commit(
        &mut self,
        sync: Sync,
        keep_reading: bool,
        first_pass: Option<FirstPass>,
    ) -> Result<Result<Committed, Blocked>> {
        let db = self.db.clone();
        let c = db.control();
        let guard = db.lock_commit()?;
        let _poison_on_panic = PoisonOnPanic(&db);
        // Kept until the commit is settled: open readers of this connection go on behind it. And who waits keeps what it will validate by.
        db.slots.at(self.slot).pin_high.store(NO_PIN, Relaxed);
        let owner = c.right_owner.load(Relaxed);
        if owner != 0 && owner != self.slot.word() {
            return Ok(Err(Blocked::RightTaken));
        }
        match c.fence.load(Acquire) {
            fence::FENCED => {}
            fence::LOWERED => return Ok(Err(Blocked::FenceLowered)),
            _ => return Err(Error::Left),
        }
        if let Err(blocked) = self.validate_in_mutex(&guard, keep_reading, first_pass)? {
            return Ok(Err(blocked));
        }
        let mut share = db.generations.share(&guard);
        let memtable = match self.find_room(&mut share) {
            Ok(memtable) => memtable,
            Err(blocked) => return Ok(Err(blocked)),
        };
        self.resolve_maxima()?;
        let ts = CommitTs::new(c.visible_ts.load(Relaxed) + 1);
        crash_point!("commit.locked");
        // Of a preparation whose author was killed before it was published: this frame may end where that one would have.
        c.prepared_end.store(0, Release);
        let witness = self.announce(ts);
        let end = match self.append_frame(&guard, ts) {
            Ok(end) => end,
            Err(e) => return Ok(Err(Blocked::Log(e))),
        };
        crash_point!("commit.appended");
        db.ring().publish_end(&guard, end);
        crash_point!("commit.published");
        if fault::is_planted("shown.before_inserted") {
            c.visible_ts.store(ts.get(), Release);
            c.readable_ts.store(ts.get(), Release);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let mut taken = Taken::begin(db.generations.active_arena(), &memtable);
        self.insert_nodes(&memtable, &mut share, ts)?;
        taken.end(&memtable);
        drop(share);
        debug_assert!(guard.holds(&c.commit_mutex), "gaps change under the mutex");
        db.gaps().cut(&self.writes);
        let generation = db.generations.active_generation();
        generation.max_ts.store(ts.get(), Release);
        generation.log_end.store(end.get(), Relaxed);
        db.remember_author(ts.get(), self.txn.get());
        crash_point!("commit.inserted");
        if sync == Sync::Full {
            // Release: before anybody can see it (V4).
            c.full_end.store(end.get(), Release);
        }
        let needs = Lsn::new(c.full_end.load(Relaxed));
        // Release pairs with the Acquire of snapshots: the nodes are there.
        c.visible_ts.store(ts.get(), Release);
        db.log_shared().note_newest_ts(ts.get());
        if fault::is_planted("tickets.early") {
            db.log_shared().note_durable_ts(ts.get());
        }
        // Last: until then a death makes the next owner redo the frame, and with it the timestamp (C2). Release keeps
        // the compiler from moving it up.
        c.applied_lsn.store(end.get(), Release);
        c.counters.commits.fetch_add(1, Relaxed);
        let wake = if owner == 0 { None } else { db.right.pass() };
        let must_write = db.generations.must_write(end);
        drop(guard);
        crash_point!("commit.unlocked");
        Ok(Ok(Committed { ts, end, needs, must_write, wake, witness, taken }))
    }

    /// (M) Says that a commit with this timestamp is about to be published, and by whom (V3, V5).
    fn announce(&self, ts: CommitTs) -> Option<Witness> {
        let witness = Witness::begin(self.db.shared_region(), |region| {
            &region.layout().slots[self.slot.0 as usize].author
        });
        let process = self.db.process_slot();
        // Relaxed: published by the next store.
        process.author.store(self.slot.word(), Relaxed);
        process.author_ms.store(witness::now_ms(), Relaxed);
        // Release: before the frame is published (V3).
        process.commit_ts.store(ts.get(), Release);
        witness
    }

    /// (M) X2, or a full validation of a small read set, or the rest after a first pass.
    fn validate_in_mutex(
        &mut self,
        guard: &Guard<'_>,
        keep_reading: bool,
        first_pass: Option<FirstPass>,
    ) -> Result<Result<(), Blocked>> {
        let Some(snapshot) = &self.snapshot else { return Ok(Ok(())) };
        if self.state.mode() == Some(super::WriteMode::Queued) {
            return Ok(Ok(()));
        }
        let since = snapshot.ts;
        if self.check_history()? == Base::Older && keep_reading {
            // What goes on reading behind this commit sees what came before it.
            return Err(self.renew_and_validate());
        }
        if self.db.control().visible_ts.load(Relaxed) == since.get() {
            return Ok(Ok(()));
        }
        match first_pass {
            Some(pass) if self.can_recheck(pass.lsn) => {
                self.validate_frames(guard, pass.lsn, pass.ts).map(Ok)
            }
            _ if self.reads.is_small(SMALL_READ_SET) && self.validate_within(KEYS_IN_MUTEX)? => {
                Ok(Ok(()))
            }
            _ => Ok(Err(Blocked::ValidateAgain)),
        }
    }

    /// (M) Whether the commits since a first pass are few and still in the ring. With the right there are none.
    fn can_recheck(&self, from: Lsn) -> bool {
        let end = self.db.log_shared().log_end();
        from == end || end - from <= FRAMES_TO_RECHECK && from >= self.db.ring().oldest()
    }

    /// (M) The memtable that takes the writes, with `share` a share of it, unless there is no room. How space is shared
    /// out changes as processes come, and they come at any time: so it is looked at once, for this and for the
    /// inserts that follow, which nothing may stop any more.
    fn find_room(&self, share: &mut Share) -> std::result::Result<Memtable, Blocked> {
        for is_fresh in [false, true] {
            let memtable = self.db.generations.enter_memtable(share);
            match self.db.generations.room_for(self.memtable_bytes(share)) {
                Room::Enough => return Ok(memtable),
                Room::Unallocated { arena, reach } => {
                    return Err(Blocked::Unallocated { arena, reach });
                }
                Room::Full { bytes } if !is_fresh && self.db.generations.try_freeze(bytes) => {}
                Room::Full { bytes } => {
                    let generation = self.db.generations.active_number();
                    return Err(Blocked::MemtableFull { generation, bytes });
                }
            }
        }
        unreachable!("the second round returns")
    }

    /// Bytes that the nodes can take in a memtable, and the largest once more: a committer killed while it inserts
    /// may lose the space of one node, and the redo must still fit (C2).
    fn memtable_bytes(&self, share: &Share) -> u64 {
        let (sum, largest) = self.writes.iter().fold((0, 0), |(sum, largest), (_, key, w)| {
            let bytes = u64::from(Memtable::bytes_needed(key.len(), w.rec().len()));
            (sum + bytes, bytes.max(largest))
        });
        share.bytes_needed(sum) + largest
    }

    /// (M) Copies the frame into the ring.
    fn append_frame(&self, guard: &Guard<'_>, ts: CommitTs) -> Result<Lsn, AppendError> {
        let generation = self.db.generations.active_number();
        let head = FrameHead { commit_ts: ts, generation };
        let len = frame_len(self.ops());
        self.db.ring().append(guard, &head, len, self.ops()).map(|(_, end)| end)
    }

    /// (M) Inserts the nodes; the room was checked.
    fn insert_nodes(&self, memtable: &Memtable, share: &mut Share, ts: CommitTs) -> Result<()> {
        let mut inserter = memtable.inserter(share);
        let inserted = self.writes.iter().try_for_each(|(root, key, w)| {
            let kind = if w.kind() == WriteKind::Tombstone {
                EntryKind::Tombstone
            } else {
                EntryKind::Put
            };
            inserter.insert(root, key, ts, kind, w.rec())?;
            crash_point!("commit.node_inserted");
            Ok(())
        });
        inserted.map_err(|_: ArenaFull| {
            self.db.log_shared().set_broken();
            Error::Corrupt("a committed transaction does not fit its memtable".into())
        })
    }

    /// Open readers of this connection go on: everything that they have read is still so at `ts`.
    pub(super) fn continue_reading_at(&mut self, ts: CommitTs) {
        let Some(mut snapshot) = self.snapshot.take() else { return };
        let slot = self.db.slots.at(self.slot);
        // The pin has covered everything above the base's generation, so nothing it needs has gone.
        snapshot.memtables =
            self.db.generations.memtables_that_can_be_mapped(snapshot.base_generation);
        snapshot.last_nodes.get_mut().clear();
        snapshot.ts = ts.snapshot();
        snapshot.resting = false;
        slot.snapshot.store(ts.get(), Relaxed);
        self.snapshot = Some(snapshot);
        self.relax_pin();
        self.view = self.view.wrapping_add(1);
    }

    /// Pins no more than what is needed to read (S4).
    pub(crate) fn relax_pin(&self) {
        if let Some(snapshot) = &self.snapshot {
            let high = snapshot.newest_generation().get();
            // Release: nothing above is used after this.
            self.db.slots.at(self.slot).pin_high.store(high, Release);
        }
    }
}

fn left_to_others(written: std::result::Result<(), LogError>) -> Result<()> {
    match written {
        Err(e) if e.is_of_this_process() => Ok(()),
        other => Ok(other?),
    }
}

/// What a COMMIT says that is published and could not be brought to disk.
fn say_published(e: Error) -> Error {
    match e {
        Error::Io { what, source_text, errno } => Error::Io {
            what,
            source_text: format!(
                "{source_text}; whether this transaction is committed shows when the log can be written or the database is opened again: look \
                 before it is repeated"
            ),
            errno,
        },
        other => other,
    }
}
