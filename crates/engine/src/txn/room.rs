//! Makes room for a COMMIT: in a memtable, in the log, or in the base's WAL. No mutex is held.
//!
//! | no room | what makes it | if that fails, the COMMIT waits for |
//! |---|---|---|
//! | in the ring | writing it to the file | - |
//! | in the log | a longer file; a merge, if the log is at its limit | the merging process (1) |
//! | in the memtable | a free arena; a merge (2) | the merging process, then readers (3) |
//! | in the base's WAL, which a merge needs | a checkpoint | readers from before it (4) |
//!
//! 1. Or the process that makes the file longer and does not run.
//! 2. In a thread if one may be started.
//! 3. Of old generations.
//! 4. And renews its own snapshot.
//!
//! A wait lasts for [`ROOM_PATIENCE`], and for merges of the own process until they end. A
//! transaction whose own snapshot holds what it waits for takes a newer snapshot (PIN-6 in
//! snapshot.rs).

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use super::Conn;
use crate::database::generations::ArenaWait;
use crate::database::generations::needs_large;
use crate::error::{Error, Result};
use crate::ids::Generation;
use crate::log::{AppendError, LogError};
use crate::sync::futex;
use crate::sync::wait::{Awaited, Patience, TICK, Wait};
use crate::upkeep::pressure::background_merge_will_run;

/// How long a commit waits for room that a merge of another process makes: its busy timeout, but at
/// least this. A transaction that holds the right does not expect its COMMIT to fail while merges
/// go on.
const ROOM_PATIENCE: Duration = Duration::from_secs(5);

/// Between two merges for room in the log.
const LOG_NAP: Duration = Duration::from_millis(10);

/// Between two looks at the base's WAL, whose readers send no wake-up.
pub(super) const WAL_NAP: Duration = Duration::from_millis(10);

/// When a COMMIT that waits for the WAL first takes a newer snapshot; each later time is twice the
/// one before.
const WAL_RENEWAL: Duration = Duration::from_millis(50);

/// One COMMIT's wait for the base's WAL, over all the snapshots that it takes.
///
/// A snapshot over the newest base may hold the WAL as well: if others held all four read marks
/// when it began, or were just moving them, it reads at a mark older than itself, and no checkpoint
/// goes beyond that (PIN-6).
#[derive(Debug, Default)]
pub(super) struct WalWait {
    start: Option<Instant>,
    renewals: u32,
}

impl WalWait {
    /// Begins the wait, unless it began before the snapshot was renewed.
    pub(super) fn begin(&mut self) -> Instant {
        *self.start.get_or_insert_with(Instant::now)
    }

    pub(super) fn end(&mut self) {
        *self = WalWait::default();
    }

    /// True at a bounded number of times, so that waiting for a reader that does not end costs
    /// little.
    pub(super) fn is_renewal_due(&mut self) -> bool {
        let due = WAL_RENEWAL.saturating_mul(1 << self.renewals.min(20));
        let is_due = self.start.is_some_and(|start| start.elapsed() >= due);
        self.renewals += u32::from(is_due);
        is_due
    }
}

/// A commit's wait for room.
pub(super) struct RoomWait {
    start: Instant,
    calls: u32,
    /// It has merged because the log has no room.
    merged: bool,
}

impl RoomWait {
    pub(super) fn begin() -> RoomWait {
        RoomWait::since(Instant::now())
    }

    fn since(start: Instant) -> RoomWait {
        RoomWait { start, calls: 0, merged: false }
    }

    /// True if the wait is over. A custom handler is called only after [`ROOM_PATIENCE`].
    fn is_over(&mut self, wait: &mut Wait<'_>) -> bool {
        let Some(busy) = wait.busy.as_mut() else {
            return self.start.elapsed() >= wait.timeout.max(ROOM_PATIENCE);
        };
        if self.start.elapsed() < ROOM_PATIENCE {
            return false;
        }
        self.calls += 1;
        !busy(self.calls - 1)
    }
}

impl Conn {
    /// Writes ring bytes to the file or prepares space in it; merges when the log is at its limit.
    pub(super) fn make_log_room(
        &mut self,
        e: AppendError,
        room: &mut RoomWait,
        wait: &mut Wait<'_>,
    ) -> Result<()> {
        if matches!(e, AppendError::NeedsRing(_)) {
            return self.db.make_room_in_log(e);
        }
        if self.db.gives_up_hold(&e) {
            return Ok(());
        }
        let full = self.db.generations.active_number();
        let merged = std::mem::replace(&mut room.merged, true);
        if e == AppendError::LimitReached && !merged {
            return self.merge_for_room(full, 0, room, wait);
        }
        match self.db.log()?.make_room(e) {
            // Once everything is merged, only a process that is stopped while writing to old
            // segments is in the way.
            Err(LogError::Full { .. }) if !room.is_over(wait) => {
                Patience::with_minimum(wait).nap(LOG_NAP)?;
                self.merge_for_room(full, 0, room, wait)
            }
            // The process that makes the log longer does not run: a merge makes room in the log as
            // it is.
            Err(LogError::GrowerStalled { .. }) if !merged => {
                self.merge_for_room(full, 0, room, wait)
            }
            Err(LogError::GrowerStalled { who, waited }) => {
                Err(self.db.stalled_owner_error(who, "the end of the log", waited))
            }
            Err(e) => Err(e.into()),
            Ok(()) => {
                room.merged = merged;
                Ok(())
            }
        }
    }

    /// Merges, or waits for the process that merges, so that an arena becomes free (SNAP-4): the
    /// generation `full` has no room for `bytes`. A transaction that holds an arena by its snapshot
    /// takes a newer snapshot first: others that wait here may hold the same arenas, and they would
    /// wait for each other (PIN-6).
    pub(super) fn make_memtable_room(
        &mut self,
        full: Generation,
        bytes: u64,
        room: &mut RoomWait,
        wait: &mut Wait<'_>,
    ) -> Result<()> {
        // Read before looking for an arena: a merge that ends after the look has changed the word
        // then.
        let seen = self.db.control().merge_word.load(Acquire);
        if self.db.prepare_arena(bytes)? {
            return Ok(());
        }
        // Others may commit into small memtables, where this one finds no room, and merge them for
        // ever.
        if needs_large(bytes) && self.db.generations.are_large_held() {
            let mut waits = self.large_wait.take().unwrap_or_else(RoomWait::begin);
            if waits.is_over(wait) {
                return Err(self.held_by_readers());
            }
            self.large_wait = Some(waits);
        }
        if self.db.generations.is_held_by_snapshot_of(self.slot) {
            return Err(self.renew());
        }
        // A transaction that has the right to merge already, reserved and unused, would wait for
        // itself.
        let has_right = self.db.control().merge_owner.load(Relaxed) == self.slot.word();
        if !has_right && self.merges_in_background() && background_merge_will_run(&self.db) {
            let holder = self.db.control().merge_owner.load(Relaxed);
            return self.wait_for_merge(holder, seen, room, wait);
        }
        self.merge_for_room(full, bytes, room, wait)
    }

    /// Tries once; the commit is tried again after it.
    fn merge_for_room(
        &mut self,
        full: Generation,
        bytes: u64,
        room: &mut RoomWait,
        wait: &mut Wait<'_>,
    ) -> Result<()> {
        let mut seen = self.db.control().merge_word.load(Acquire);
        let mut holder = self.db.control().merge_owner.load(Relaxed);
        let db = self.db.clone();
        if let Some(right) = db.try_own_merge(self.slot)? {
            let result = right.merge(true);
            drop(right);
            match result {
                // Another process has a lock of the base, and may be stopped. Giving the right back
                // has changed the word.
                Err(e) if e.is_busy() => {
                    holder = 0;
                    seen = self.db.control().merge_word.load(Acquire);
                }
                Err(e) if self.db.is_wal_at_limit() => return self.wait_for_wal(e, wait),
                Err(e) => return Err(e),
                Ok(()) if self.db.prepare_arena(bytes)? => return Ok(()),
                Ok(()) => return self.wait_for_readers(full, bytes, wait),
            }
        }
        self.wait_for_merge(holder, seen, room, wait)
    }

    /// Waits while another process merges: until `merge_word` is no longer `seen`, for a [`TICK`]
    /// at most.
    fn wait_for_merge(
        &self,
        holder: u32,
        seen: u32,
        room: &mut RoomWait,
        wait: &mut Wait<'_>,
    ) -> Result<()> {
        // MERGE-3 in merge_right.rs: a lone program does not fail for the merges of its own
        // process.
        let is_own_work = self.db.awaited_of(holder) == Awaited::OwnWork;
        if !is_own_work && room.is_over(wait) {
            let who = match holder {
                0 => "the database file is locked".into(),
                word => format!(
                    "{} is merging or runs an exclusive transaction",
                    self.db.describe_owner(word)
                ),
            };
            let waited = room.start.elapsed().as_millis();
            // The error names no reader: the wait is not for readers.
            let full = Error::Full(format!(
                "shared memory or the log is full, and {who} (waited {waited} ms); retry when that has ended"
            ));
            return Err(self.db.unsettled_or(full));
        }
        futex::wait(&self.db.control().merge_word, seen, Some(TICK));
        if (wait.interrupted)() {
            return Err(Error::Interrupted);
        }
        self.db.reap_dead()?;
        Ok(())
    }

    /// Waits while snapshots hold the base's WAL, perhaps its own too (PIN-6). Returns `full` when
    /// the wait is over.
    fn wait_for_wal(&mut self, full: Error, wait: &mut Wait<'_>) -> Result<()> {
        let result = self.wait_for_wal_or_renew(full, wait);
        if !matches!(result, Err(Error::RenewSnapshot)) {
            self.wal_wait.end();
        }
        result
    }

    /// True if the own snapshot reads an older base than the one with this generation.
    pub(super) fn reads_base_before(&self, generation: u32) -> bool {
        self.snapshot.as_ref().is_some_and(|own| own.base_generation.get() < generation)
    }

    fn wait_for_wal_or_renew(&mut self, full: Error, wait: &mut Wait<'_>) -> Result<()> {
        let start = self.wal_wait.begin();
        let mut patience = Patience::with_minimum(wait).since(start);
        while self.db.is_wal_at_limit() {
            if self.reads_base_before(self.db.control().base_generation.load(Acquire)) {
                return Err(self.renew());
            }
            if patience.is_over() {
                return Err(full);
            }
            if self.snapshot.is_some() && self.wal_wait.is_renewal_due() {
                return Err(self.renew());
            }
            patience.nap(WAL_NAP)?;
            self.db.finish_checkpoint(self.slot)?;
        }
        Ok(())
    }

    fn held_by_readers(&self) -> Error {
        self.db.slots.no_room("commits cannot be kept in shared memory any longer")
    }

    /// Waits for readers: everything is merged, and snapshots hold all of it.
    fn wait_for_readers(
        &mut self,
        full: Generation,
        bytes: u64,
        wait: &mut Wait<'_>,
    ) -> Result<()> {
        match self.db.wait_for_arena(self.slot, full, bytes, &mut Patience::new(wait))? {
            ArenaWait::LookAgain => Ok(()),
            ArenaWait::HeldByOwnSnapshot => Err(self.renew()),
            ArenaWait::HeldByReaders(_) => Err(self.held_by_readers()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds_ago(seconds: u64) -> Instant {
        let ago = Duration::from_secs(seconds);
        Instant::now().checked_sub(ago).expect("the machine has run that long")
    }

    #[test]
    fn a_commit_waits_for_room_as_long_as_its_timeout_and_five_seconds_at_least() {
        for (waited, timeout, over) in [(4, 0, false), (6, 0, true), (6, 10, false), (11, 10, true)]
        {
            let mut room = RoomWait::since(seconds_ago(waited));
            let timeout = Duration::from_secs(timeout);
            let mut wait = Wait { timeout, busy: None, interrupted: &mut || false };
            let is_over = room.is_over(&mut wait);
            assert_eq!(is_over, over, "waited {waited} s of {timeout:?}");
        }
    }

    #[test]
    fn who_waits_for_the_wal_takes_newer_snapshots_at_distances_that_double() {
        let mut wait = WalWait { start: Some(seconds_ago(1)), renewals: 0 };
        let at_once = (0..100).take_while(|_| wait.is_renewal_due()).count();
        // 50, 100, 200, 400 and 800 ms.
        assert_eq!(at_once, 5, "of one second");
        assert!(!WalWait::default().is_renewal_due(), "it has not begun");
    }

    #[test]
    fn a_busy_handler_decides_about_what_goes_beyond_that() {
        let mut asked = Vec::new();
        let mut busy = |prior| {
            asked.push(prior);
            prior < 2
        };
        let mut room = RoomWait::since(Instant::now());
        let mut wait =
            Wait { timeout: Duration::ZERO, busy: Some(&mut busy), interrupted: &mut || false };
        assert!(!room.is_over(&mut wait) && !room.is_over(&mut wait));
        room.start = seconds_ago(6);
        let answers = [(); 3].map(|()| room.is_over(&mut wait));
        assert_eq!(answers, [false, false, true]);
        assert_eq!(asked, [0, 1, 2], "the number of prior calls");
    }
}
