//! What a session counts, from a copy of the fixed part of shared memory. Relaxed throughout: the
//! words are a private copy.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use plait_engine::shm::layout::{ConflictSlot, Layout, TOTAL_BYTES, fence, generation};

/// Numbers that begin at 0 with each session, and grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Transactions with writes that committed.
    pub commits: u64,
    /// Exclusive ones.
    pub exclusive_commits: u64,
    /// Transactions refused.
    pub conflicts: u64,
    /// Waits that ended in BUSY.
    pub busy: u64,
    /// Transactions begun by a plain BEGIN that took the writer's right to read.
    pub begun_early: u64,
    /// Syncs of the log.
    pub log_syncs: u64,
    /// Syncs of the base's WAL that the log had to wait for.
    pub base_syncs: u64,
    /// Bytes of the log's stream.
    pub log_bytes: u64,
    /// Merges.
    pub merges: u64,
    /// Rows and tombstones that they have applied.
    pub merged_entries: u64,
    /// Dead processes that were cleaned up after.
    pub reaped: u64,
}

/// How large things are, and in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Connections of living members.
    pub connections: u64,
    /// Bytes of the log that are not on disk.
    pub log_unsynced_bytes: u64,
    /// Size of the log's file.
    pub log_file_bytes: u64,
    /// Bytes of commits that are not merged.
    pub memtable_bytes: u64,
    /// Memtables that wait to be merged.
    pub memtables_frozen: u64,
    /// Merged ones that a snapshot needs.
    pub memtables_kept: u64,
    /// What shared memory takes.
    pub memory_bytes: u64,
    /// What it may take.
    pub memory_limit_bytes: u64,
    /// Generation that the database file includes.
    pub base_generation: u64,
    /// Size of the base's WAL after the last merge.
    pub wal_bytes: u64,
    /// Commits fail at this size.
    pub wal_limit_bytes: u64,
    /// A copy of the database file alone is refused.
    pub is_fenced: bool,
    /// The log has stopped after a failed write or sync.
    pub is_poisoned: bool,
}

/// How many of the recent conflicts, of which a session keeps 64, were of which kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    /// A row had been read.
    pub row: u64,
    /// A range had been read.
    pub range: u64,
    /// An exclusive transaction won.
    pub exclusive: u64,
}

impl Counts {
    pub(super) fn of(layout: &Layout) -> Counts {
        let (control, log) = (&layout.control, &layout.log);
        let n = &control.counters;
        let v = |word: &AtomicU64| word.load(Relaxed);
        Counts {
            commits: v(&n.commits),
            exclusive_commits: v(&n.exclusive_commits),
            conflicts: v(&n.conflicts),
            busy: v(&n.busy),
            begun_early: v(&control.begun_early),
            log_syncs: log.syncs(),
            base_syncs: log.base_syncs(),
            log_bytes: log.log_end().get().saturating_sub(log.first_lsn().get()),
            merges: v(&n.merges),
            merged_entries: v(&n.merged_entries),
            reaped: v(&n.reaped),
        }
    }
}

impl Sizes {
    /// Without those of files.
    pub(super) fn of(layout: &Layout, alive: &[usize]) -> Sizes {
        let (control, log) = (&layout.control, &layout.log);
        let connections = |&i: &usize| u64::from(layout.processes[i].connections.load(Relaxed));
        let arenas = |state| control.count_generations(state) as u64;
        Sizes {
            connections: alive.iter().map(connections).sum(),
            log_unsynced_bytes: log.log_end().get().saturating_sub(log.durable_through().get()),
            memtables_frozen: arenas(generation::FROZEN),
            memtables_kept: arenas(generation::MERGED),
            memory_limit_bytes: TOTAL_BYTES as u64,
            base_generation: u64::from(control.base_generation.load(Relaxed)),
            wal_bytes: control.wal_bytes.load(Relaxed),
            wal_limit_bytes: control.wal_limit_bytes.load(Relaxed),
            is_fenced: control.fence.load(Relaxed) == fence::FENCED,
            is_poisoned: log.poisoned().is_some(),
            ..Sizes::default()
        }
    }
}

impl Kinds {
    pub(super) fn of(layout: &Layout) -> Kinds {
        let mut kinds = Kinds::default();
        // One that was being written when it was copied has an odd number.
        let is_whole = |slot: &&ConflictSlot| match slot.seq.load(Relaxed) {
            0 => false,
            seq => seq.is_multiple_of(2),
        };
        for slot in layout.control.conflicts.iter().filter(is_whole) {
            match slot.flags.load(Relaxed) {
                flags if flags & 2 != 0 => kinds.exclusive += 1,
                flags if flags & 1 != 0 => kinds.range += 1,
                _ => kinds.row += 1,
            }
        }
        kinds
    }
}

/// Arenas with commits that are not merged.
pub(super) fn unmerged_arenas(layout: &Layout) -> impl Iterator<Item = usize> {
    let generations = layout.control.generations.iter().enumerate();
    let is_unmerged = |state| matches!(state, generation::ACTIVE | generation::FROZEN);
    generations.filter(move |(_, slot)| is_unmerged(slot.state.load(Relaxed))).map(|(i, _)| i)
}

/// The salt of the session.
pub(super) fn salt(layout: &Layout) -> u32 {
    layout.control.salt.load(Relaxed)
}
