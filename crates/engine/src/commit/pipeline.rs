//! A commit, from its validation to the moment in which readers see it.
//!
//! ```text
//! -- commit mutex -------------------------------------------------------- Candidate::commit
//! right free or ours; validate (all, or what was committed since the first pass)
//! next timestamp into the process's slot; frame into the ring; log_end    <- the commit point
//! nodes into the memtable; gaps cut; full_end (FULL); visible_ts; right passed on
//! ----------------------------------------------------------------------------------------
//! wake the next writer                                                    Committed::wake_next
//! wait for the disk (FULL); readable_ts (visibility.rs);                  Committed::finish
//!   full portions of the memtable to the disk (leave.rs)
//! ```
//!
//! A [`Blocked`] keeps a candidate from being committed. Nothing has changed then: it may try
//! again.
//!
//! Invariants
//! - PIPE-1 (COMMIT-1) Nothing between lock and unlock makes a system call, except the unlock
//!   itself.
//! - PIPE-3 (COMMIT-3) A COMMIT under FULL returns when it is on disk, and no reader sees it
//!   before; see visibility.rs.
//! - PIPE-2 An error before the commit point leaves everything as it was. After it every error
//!   stops the database (COMMIT-4), or says that the commit is published and not known to be on
//!   disk: whether it is committed shows later.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::validate::Base;
use super::writes::{WriteKind, WriteSet};
use super::{Candidate, Sync};
use crate::crash_point;
use crate::database::Database;
use crate::database::generations::Room;
use crate::database::lock::PoisonOnPanic;
use crate::error::{Error, Result};
use crate::fault;
use crate::ids::{CommitTs, Generation, Lsn, SlotIndex, SnapshotTs};
use crate::log::{AppendError, FrameHead, LogError, Op, OpKind, frame_len};
use crate::memtable::{ArenaFull, EntryKind, Memtable, Share};
use crate::shm::layout::{NO_PIN, fence};
use crate::shm::process::Witness;
use crate::sync::clock::{tick_ms, unix_ms};
use crate::sync::mutex::Guard;
use crate::upkeep::leave::Taken;

/// Read sets of at most so many entries, without ranges, are validated in one go under the mutex.
const SMALL_READ_SET: usize = 64;
/// Keys that such a validation may pass: a prefix of an index may have any number, deleted ones
/// too.
const KEYS_IN_MUTEX: usize = 256;
/// Bytes of log that may be committed between the first pass and the mutex before it is repeated.
const FRAMES_TO_RECHECK: u64 = 256 << 10;

/// Longest time for which commits under NORMAL or OFF stay out of the log file while others follow
/// them. A committer whose commits are further apart has written each of them.
const RELAXED_WRITE_MS: u64 = 10;
/// The same limit while the base's WAL has to be synced first, which NORMAL and OFF do not promise.
const RELAXED_SYNC_MS: u64 = 1000;

/// What has to be done before a candidate can try again.
pub(crate) enum Blocked {
    /// Another connection has the writer's right.
    RightTaken,
    /// A checkpoint has lowered the fence (FENCE-2 in upkeep/fence.rs).
    FenceLowered,
    /// Its statements read on after the commit, but the base lacks an exclusive commit: it needs a
    /// newer snapshot.
    BaseIsOlder,
    MemtableFull {
        generation: Generation,
        bytes: u64,
    },
    Unallocated {
        arena: usize,
        reach: u64,
    },
    Log(AppendError),
    /// There is too much to validate under the mutex: a first pass without it is needed.
    ValidateAgain,
}

/// A committed candidate, and what is left to do for it.
pub(crate) struct Committed {
    pub(crate) ts: CommitTs,
    pub(crate) end: Lsn,
    /// How far the log must be on disk before readers see it.
    needs: Lsn,
    /// See [`Generations::must_write`](crate::database::generations::Generations::must_write).
    must_write: bool,
    wake: Option<SlotIndex>,
    /// Lives until the commit is settled.
    witness: Option<Witness>,
    /// Space taken in its memtable.
    taken: Taken,
}

/// Result of validating without the mutex: everything before `lsn` has been checked.
#[derive(Clone, Copy)]
pub(crate) struct FirstPass {
    lsn: Lsn,
    ts: SnapshotTs,
}

/// How a candidate is to be committed.
#[derive(Clone, Copy)]
pub(crate) struct How {
    /// It has held the right since its snapshot: nothing that it read can have changed.
    pub(crate) is_queued: bool,
    /// It may write a replica.
    pub(crate) is_follower: bool,
    pub(crate) sync: Sync,
    /// Its connection comes back for the right at once (txn/runs.rs).
    pub(crate) in_a_run: bool,
    /// Its statements read on after the commit.
    pub(crate) keep_reading: bool,
    pub(crate) first_pass: Option<FirstPass>,
}

/// Returns the entries of a log frame.
pub(crate) fn ops(writes: &WriteSet) -> impl Iterator<Item = Op<'_>> + Clone {
    writes.iter().map(|(root, key, w)| Op {
        root,
        kind: if w.kind() == WriteKind::Tombstone { OpKind::Tombstone } else { OpKind::Put },
        key,
        rec: w.rec(),
    })
}

/// Returns how many bytes the nodes can take in a memtable: the sum, and the largest alone. A
/// committer killed while it inserts may lose the space of one node, and the redo must still fit
/// (COMMIT-2).
pub(crate) fn node_bytes(writes: &WriteSet) -> (u64, u64) {
    writes.iter().fold((0, 0), |(sum, largest), (_, key, w)| {
        let bytes = u64::from(Memtable::bytes_needed(key.len(), w.rec().len()));
        (sum + bytes, bytes.max(largest))
    })
}

impl Candidate<'_> {
    /// Validates without the mutex; returns from where the rest has to be checked.
    pub(crate) fn first_pass(&mut self) -> Result<FirstPass> {
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
    pub(crate) fn commit(&mut self, how: How) -> Result<Result<Committed, Blocked>> {
        let db = self.db;
        let c = db.control();
        let guard = db.lock_commit()?;
        let _poison_on_panic = PoisonOnPanic(db);
        // All generations stay pinned until the commit is settled: open readers of this connection
        // go on after it, and a blocked candidate keeps the history that validates it.
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
        match how.is_follower {
            true => db.refuse_follower()?,
            false => db.refuse_replica()?,
        }
        if let Err(blocked) = self.validate_in_mutex(&guard, how)? {
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
        // Set by a preparation whose author was killed before publishing it: this frame may end
        // where that one would have.
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
        db.gaps().cut(self.writes);
        let generation = db.generations.active_generation();
        generation.max_ts.store(ts.get(), Release);
        generation.log_end.store(end.get(), Relaxed);
        db.remember_author(ts.get(), self.id.get());
        crash_point!("commit.inserted");
        if how.sync == Sync::Full {
            // Release: before any process can see the commit (VISIBLE-4).
            c.full_end.store(end.get(), Release);
        }
        let needs = Lsn::new(c.full_end.load(Relaxed));
        // Release pairs with the Acquire of snapshots: the nodes are there.
        c.visible_ts.store(ts.get(), Release);
        db.log_shared().note_newest_ts(ts.get());
        if fault::is_planted("tickets.early") {
            db.log_shared().note_durable_ts(ts.get());
        }
        // Last: until then a death makes the next owner redo the frame, and with it the timestamp
        // (COMMIT-2). Release keeps the compiler from moving it up.
        c.applied_lsn.store(end.get(), Release);
        c.counters.commits.fetch_add(1, Relaxed);
        let wake = if owner == 0 { None } else { db.right.pass(how.in_a_run) };
        let must_write = db.generations.must_write(end);
        drop(guard);
        crash_point!("commit.unlocked");
        Ok(Ok(Committed { ts, end, needs, must_write, wake, witness, taken }))
    }

    /// (M) Records that a commit with this timestamp is about to be published, and by whom
    /// (VISIBLE-3, VISIBLE-5).
    fn announce(&self, ts: CommitTs) -> Option<Witness> {
        let witness = Witness::begin(self.db.shared_region(), |region| {
            &region.layout().slots[self.slot.0 as usize].author
        });
        let process = self.db.process_slot();
        // Relaxed: published by the next store.
        process.author.store(self.slot.word(), Relaxed);
        process.author_ms.store(tick_ms(), Relaxed);
        // Release: before the frame is published (VISIBLE-3).
        process.commit_ts.store(ts.get(), Release);
        witness
    }

    /// (M) Validates nothing (CONN-2), or a small read set, or the rest after a first pass.
    fn validate_in_mutex(&mut self, guard: &Guard<'_>, how: How) -> Result<Result<(), Blocked>> {
        let Some(snapshot) = self.snapshot else { return Ok(Ok(())) };
        if how.is_queued {
            return Ok(Ok(()));
        }
        let since = snapshot.ts;
        if self.check_history()? == Base::Older && how.keep_reading {
            return Ok(Err(Blocked::BaseIsOlder));
        }
        if self.db.control().visible_ts.load(Relaxed) == since.get() {
            return Ok(Ok(()));
        }
        match how.first_pass {
            Some(pass) if self.can_recheck(pass.lsn) => {
                self.validate_frames(guard, pass.lsn, pass.ts).map(Ok)
            }
            _ if self.reads.is_small(SMALL_READ_SET) && self.validate_within(KEYS_IN_MUTEX)? => {
                Ok(Ok(()))
            }
            _ => Ok(Err(Blocked::ValidateAgain)),
        }
    }

    /// (M) True if the commits since a first pass are few and still in the ring. While the right is
    /// held there are none.
    fn can_recheck(&self, from: Lsn) -> bool {
        let end = self.db.log_shared().log_end();
        from == end || end - from <= FRAMES_TO_RECHECK && from >= self.db.ring().oldest()
    }

    /// (M) Returns the memtable that takes the writes, if there is room, and makes `share` a share
    /// of it. How space is shared out changes as processes come, at any time. So the share is
    /// computed once, for this check and for the inserts that follow, which must not fail.
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

    /// Bytes of the nodes, and of one that is lost (`node_bytes`).
    fn memtable_bytes(&self, share: &Share) -> u64 {
        let (sum, largest) = node_bytes(self.writes);
        share.bytes_needed(sum) + largest
    }

    /// (M) Copies the frame into the ring.
    fn append_frame(&self, guard: &Guard<'_>, ts: CommitTs) -> Result<Lsn, AppendError> {
        let generation = self.db.generations.active_number();
        let head = FrameHead { commit_ts: ts, generation };
        let ops = ops(self.writes);
        self.db.ring().append(guard, &head, frame_len(ops.clone()), ops).map(|(_, end)| end)
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
}

impl Committed {
    /// Wakes the connection that the right was passed to, if it sleeps.
    pub(crate) fn wake_next(&self, db: &Database) {
        db.right.wake(self.wake);
    }

    /// Makes the commit as durable as `sync` says, and shows it to readers.
    ///
    /// # Errors
    /// The transaction is committed all the same, and could not be brought to disk.
    pub(crate) fn finish(self, db: &Database, sync: Sync) -> Result<()> {
        let synced = self.acknowledge(db, sync);
        db.notifier().wake();
        if sync == Sync::Full {
            db.region().write_out(&self.taken);
        }
        db.region().extend_recent(self.ts.get());
        drop(self.witness);
        synced
    }

    fn acknowledge(&self, db: &Database, sync: Sync) -> Result<()> {
        let mut synced = Ok(());
        if sync == Sync::Full {
            synced = db.log().and_then(|log| Ok(log.sync_through(self.end)?));
        }
        // Also after a failed sync: the commit is published, and another process may bring it to
        // disk. Later readers have to, or fail (VISIBLE-1).
        db.settle(self.ts.get(), self.needs);
        synced.map_err(say_published)?;
        if sync == Sync::Full {
            // All before it are on disk, too (BEFORE-2 in log/before.rs).
            db.log_shared().note_durable_ts(self.ts.get());
            return Ok(());
        }
        write_relaxed(db, self.end, self.must_write).map_err(say_published)
    }
}

/// Writes the log as a commit under NORMAL or OFF does, which counts already. A write that only
/// this process cannot do is left to others, or to its own next commits; those fail before they
/// count once there is no room left.
pub(crate) fn write_relaxed(db: &Database, end: Lsn, must_write: bool) -> Result<()> {
    let log = db.log()?;
    left_to_others(if must_write { log.write_through(end) } else { log.relaxed_commit(end) })?;
    write_now_and_then(db)
}

/// Writes the log file now and then: a power cut loses what is not in it, and a copy of the files
/// without shared memory lacks it.
fn write_now_and_then(db: &Database) -> Result<()> {
    let last = &db.control().relaxed_write_ms;
    let (now, before) = (unix_ms(), last.load(Relaxed));
    let needs_sync = db.log_shared().base_is_unsynced();
    let longest = if needs_sync { RELAXED_SYNC_MS } else { RELAXED_WRITE_MS };
    let due = now.abs_diff(before) >= longest;
    // Relaxed: one of the committers that meet here writes; it does not matter which.
    if due && last.compare_exchange(before, now, Relaxed, Relaxed).is_ok() {
        left_to_others(db.log()?.write_if_free())?;
        // The written frames must be found after a crash.
        db.log()?.look()?;
    }
    Ok(())
}

fn left_to_others(written: std::result::Result<(), LogError>) -> Result<()> {
    match written {
        Err(e) if e.is_of_this_process() => Ok(()),
        other => Ok(other?),
    }
}

/// Returns the error of a COMMIT that is published and could not be brought to disk.
fn say_published(e: Error) -> Error {
    match e {
        Error::Io { what, source_text, errno } => Error::Io {
            what,
            source_text: format!(
                "{source_text}; whether this transaction is committed is known when the log can \
                 be written or the database is opened again: look before you repeat it"
            ),
            errno,
        },
        other => other,
    }
}
