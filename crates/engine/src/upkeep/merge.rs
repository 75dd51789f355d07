//! One merge, from freezing to reuse.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::base::{Base, BaseHeader, Checkpoint, WalState, Written};
use crate::crash_point;
use crate::database::Database;
use crate::database::merge_right::{BASE_NAP, MergeRight};
use crate::error::{Error, Result};
use crate::ids::{Generation, Lsn, SlotIndex};
use crate::memtable::{EntryKind, newest_of};
use crate::shm::shipping::Change;
use crate::sync::wait::{Patience, Wait};
use crate::sync::yielding::Yielding;

/// Some hundred microseconds of work; then commits that wait for the disk have the processor
/// (upkeep/leave.rs).
const ENTRIES_BETWEEN_YIELDS: u64 = 8;

impl MergeRight<'_> {
    /// Merges what can be merged. `checkpoint`: others may commit at the same time, and the WAL is
    /// brought into the file.
    pub(crate) fn merge(&self, checkpoint: bool) -> Result<()> {
        if checkpoint {
            self.db.prepare_next_generation()?;
        }
        self.freeze_for_merge()?;
        self.merge_frozen(checkpoint)
    }

    /// As [`MergeRight::merge`], for what is frozen already.
    fn merge_frozen(&self, checkpoint: bool) -> Result<()> {
        let frozen = self.db.generations.frozen();
        if let Some(&last) = frozen.last() {
            self.check_wal_limit()?;
            let used = |&(arena, _)| {
                self.db.generations.memtable(arena).map(|m| u64::from(m.used_bytes()))
            };
            let bytes = frozen.iter().map(used).sum::<Result<u64>>()?;
            let pace = self.db.begin_merge_pace(bytes);
            crash_point!("merge.frozen");
            self.make_durable(&frozen)?;
            let written = self.apply(&frozen, last.1)?;
            crash_point!("merge.committed");
            self.note_merged(&frozen, last.1, written)?;
            pace.merged(bytes);
            crash_point!("merge.settled");
        }
        self.db.prepare_arena(0)?;
        if checkpoint {
            self.checkpoint(Checkpoint::Passive)?;
        }
        Ok(())
    }

    /// Fails if the base's WAL is at its limit (SNAP-4). A slow reader keeps the WAL from being
    /// reused; past the configured size merges stop, and with them commits, once the memtables are
    /// full.
    pub(crate) fn check_wal_limit(&self) -> Result<()> {
        // The readers that held the last checkpoint back may have ended: a WAL that is entirely in
        // the file begins anew with this merge.
        if self.db.has_wal_to_bring() {
            self.checkpoint(Checkpoint::Passive)?;
        }
        if self.db.is_wal_at_limit() {
            return Err(self
                .db
                .slots
                .no_room("the database's WAL has reached its limit (PRAGMA plait_wal_limit)"));
        }
        Ok(())
    }

    fn freeze_for_merge(&self) -> Result<()> {
        self.db.prepare_arena(0)?;
        let _guard = self.db.lock_commit()?;
        if !self.db.generations.is_active_unused() {
            // Without a free arena the frozen generations are merged first; the active one follows
            // later.
            self.db.generations.try_freeze(0);
        }
        Ok(())
    }

    /// Brings the frames of these generations to disk before the base changes (GEN-2).
    fn make_durable(&self, frozen: &[(usize, u32)]) -> Result<()> {
        for &(arena, _) in frozen {
            let slot = &self.db.control().generations[arena];
            self.db.log()?.sync_through(Lsn::new(slot.log_end.load(Relaxed)))?;
            let max_ts = slot.max_ts.load(Relaxed);
            // SeqCst: a snapshot whose base includes the merge must find at least this timestamp
            // readable (SNAP-2).
            self.db.control().readable_ts.fetch_max(max_ts, SeqCst);
        }
        Ok(())
    }

    /// Says what it has written if a process has shipped the log in this session.
    fn apply(&self, frozen: &[(usize, u32)], through: u32) -> Result<Option<Written>> {
        let header = BaseHeader {
            marked: true,
            fenced: true,
            salt: self.db.control().salt.load(Relaxed),
            generation: Generation::new(through),
            cookie: 0,
            fence_in_wal_alone: false,
        };
        self.db.with_base(|base| {
            base.begin()?;
            let applied = (|| {
                self.db.refuse_older_base(base)?;
                let mut entries = 0;
                let yielding = Yielding::default();
                let memtables =
                    frozen.iter().map(|&(arena, _)| self.db.generations.memtable(arena));
                let memtables = memtables.collect::<Result<Vec<_>>>()?;
                for node in newest_of(&memtables) {
                    match node.kind() {
                        EntryKind::Put => base.put(node.root(), node.key(), node.rec())?,
                        EntryKind::Tombstone => base.delete(node.root(), node.key(), node.rec())?,
                    }
                    entries += 1;
                    if entries % ENTRIES_BETWEEN_YIELDS == 0 {
                        self.db.log_shared().leave_processor(&yielding);
                    }
                }
                crash_point!("merge.applied");
                base.stamp(&header)?;
                Ok::<u64, Error>(entries)
            })();
            match applied {
                Ok(entries) => {
                    let unsynced = self.db.log_shared().base_commits();
                    let written = match self.db.log_shared().was_held() {
                        true => base.commit_and_sum()?,
                        false => base.commit().map(|()| None)?,
                    };
                    // Before log space is used again, and before a checkpoint may bring a part of
                    // it into the file.
                    self.db.log()?.note_base(header.generation)?;
                    self.db.log_shared().note_base_durable(unsynced);
                    self.db.control().counters.merged_entries.fetch_add(entries, Relaxed);
                    Ok(written)
                }
                Err(e) => {
                    base.rollback();
                    Err(e)
                }
            }
        })
    }

    fn note_merged(
        &self,
        frozen: &[(usize, u32)],
        through: u32,
        written: Option<Written>,
    ) -> Result<()> {
        let header = BaseHeader { generation: Generation::new(through), ..BaseHeader::default() };
        let end_of =
            |&(arena, _): &(usize, u32)| self.db.control().generations[arena].log_end.load(Relaxed);
        let end = frozen.iter().map(end_of).max().unwrap_or_default();
        {
            let _guard = self.db.lock_commit()?;
            let change = Change::Merge(written);
            self.db.note_boundary(header.generation, change, Lsn::new(end));
            crash_point!("merge.noted");
            self.db.generations.settle_base(&header, None);
            self.db.generations.free_merged(true);
        }
        // GEN-3: the merge's transaction is durable, so its frames are no longer needed.
        self.db.log()?.retire(Generation::new(through));
        self.db.control().counters.merges.fetch_add(1, Relaxed);
        self.db.control().walked_steps.store(0, Relaxed);
        self.db.wake_merge_waiters();
        Ok(())
    }

    /// Brings the base's WAL into the file as far as `how` says and remembers its size (SNAP-4).
    pub(crate) fn checkpoint(&self, how: Checkpoint) -> Result<()> {
        let pace = self.db.begin_checkpoint_pace();
        let state = match self.db.with_base(|base| base.checkpoint(how)) {
            // Another process runs a checkpoint: that will do.
            Err(Error::Base { code, .. }) if matches!(code & 0xff, 5 | 6) => return Ok(()),
            other => other?,
        };
        self.db.note_checkpoint(state.bytes_to_bring());
        pace.checkpointed(state.bytes_to_bring() == 0);
        Ok(())
    }
}

impl Database {
    /// Merges if that is due and no other process is merging.
    pub(crate) fn merge_if_due(&self, slot: SlotIndex) -> Result<()> {
        if !self.merge_is_due() {
            return Ok(());
        }
        let Some(right) = self.try_own_merge(slot)? else { return Ok(()) };
        match self.generations.frozen().is_empty() || self.is_read_cost_high() {
            true => right.merge(true),
            false => right.merge_frozen(true),
        }
    }

    /// Merges what can be merged of what was committed before the call; all of it if `whole`.
    ///
    /// # Errors
    /// Busy also if a part has to stay in memory for as long as the wait lasts.
    pub(crate) fn merge_all(
        &self,
        slot: SlotIndex,
        whole: bool,
        wait: &mut Wait<'_>,
    ) -> Result<()> {
        let newest = self.newest_generation()?;
        let mut patience = match whole {
            true => Patience::with_minimum(wait),
            false => Patience::new(wait),
        };
        loop {
            let merged = self.while_base_is_busy(&mut patience, |patience| {
                self.own_merge_patiently(slot, patience)?.merge(true)
            });
            if matches!(merged, Err(Error::Full(_))) && self.is_wal_at_limit() {
                if patience.is_over() {
                    return Err(self.wal_is_held());
                }
                patience.nap(BASE_NAP)?;
                continue;
            }
            merged?;
            if !whole || self.generations.is_merged_through(newest) {
                return Ok(());
            }
            if patience.is_over() {
                return Err(self.stays_in_memory());
            }
            patience.nap(BASE_NAP)?;
            self.settle_prepared_of_dead()?;
        }
    }

    /// Returns the newest generation that holds something committed, or else the last one not in
    /// memory.
    pub(crate) fn newest_generation(&self) -> Result<Generation> {
        // With the mutex: every commit that a program knows of is in a memtable.
        let _guard = self.lock_commit()?;
        let active = self.generations.active_generation().number.load(Relaxed);
        let is_empty = self.generations.memtable_in_use(self.generations.active_arena()).is_empty();
        Ok(Generation::new(if is_empty { active.saturating_sub(1) } else { active }))
    }

    /// Returns why a freeze has failed: a commit over several files is undecided (SEVERAL-2), or no
    /// arena was free.
    pub(crate) fn stays_in_memory(&self) -> Error {
        let why = match self.region().layout().has_unresolved() {
            true => "a commit over several files is being made".into(),
            false => {
                format!("readers hold all memory for commits{}", self.slots.say_oldest_reader())
            }
        };
        self.control().counters.busy.fetch_add(1, Relaxed);
        Error::Busy(format!(
            "commits cannot be merged into the database file yet: {why}; retry or raise the busy \
             timeout"
        ))
    }

    /// Returns why a task that needs everything in the base has to wait, though commits that stay
    /// in memory need no WAL.
    pub(crate) fn wal_is_held(&self) -> Error {
        self.control().counters.busy.fetch_add(1, Relaxed);
        Error::Busy(format!(
            "the database's WAL has reached its limit (PRAGMA plait_wal_limit) and readers still \
             need it{}; retry when they have ended, or raise the busy timeout",
            self.slots.say_oldest_reader()
        ))
    }

    /// Notes how many pages an exclusive transaction has left in the WAL, and how many of them are
    /// in the file. The next merge finds what is below the limit.
    pub(crate) fn note_exclusive_wal(&self, state: WalState) {
        let c = self.control();
        let bytes = state.bytes_to_bring();
        if bytes > c.wal_limit_bytes.load(Relaxed) {
            c.wal_bytes.store(bytes, Relaxed);
        }
    }

    /// True if a checkpoint has not brought all of the base's WAL into the file.
    pub(super) fn has_wal_to_bring(&self) -> bool {
        self.control().wal_bytes.load(Relaxed) > 0
    }

    /// True if merges have to wait until the readers of what is in the base's WAL have ended.
    pub(crate) fn is_wal_at_limit(&self) -> bool {
        let c = self.control();
        c.wal_bytes.load(Relaxed) > c.wal_limit_bytes.load(Relaxed)
    }

    /// True if the base's WAL has half of what it may have: what holds it for work of its own should
    /// let go.
    pub(crate) fn is_wal_half_full(&self) -> bool {
        let c = self.control();
        c.wal_bytes.load(Relaxed) > c.wal_limit_bytes.load(Relaxed) / 2
    }

    /// Brings into the file what readers have held back; true if nothing is left, or another
    /// process has the right to merge.
    pub(crate) fn finish_checkpoint(&self, slot: SlotIndex) -> Result<bool> {
        if !self.has_wal_to_bring() {
            return Ok(true);
        }
        let Some(right) = self.try_own_merge(slot)? else { return Ok(true) };
        right.checkpoint(Checkpoint::Passive)?;
        Ok(!self.has_wal_to_bring())
    }

    /// Prepares room for the generation that a merge begins: others commit into it during the
    /// merge.
    pub(crate) fn prepare_next_generation(&self) -> Result<()> {
        if self.generations.memtable(self.generations.active_arena())?.is_empty() {
            return Ok(());
        }
        self.prepare_next_segment()
    }

    /// Fails if the base is not this session's, or an older state of it.
    pub(crate) fn refuse_older_base(&self, base: &mut dyn Base) -> Result<()> {
        let c = self.control();
        let is = base.header()?;
        let is_ours = is.fenced && is.salt == c.salt.load(Relaxed);
        if is_ours && is.generation.get() >= c.base_generation.load(Relaxed) {
            return Ok(());
        }
        Err(Error::Replaced(self.path().to_owned()))
    }
}
