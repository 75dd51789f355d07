//! When to merge.
//!
//! A merge costs a page of the base the same whether one of its rows has changed or ten, and afterwards every reader
//! reads that page again. So merges wait for several full memtables, as long as that costs nobody anything:
//!
//! | free arenas | disk space | a merge is due |
//! |---|---|---|
//! | enough | enough | with three frozen generations (`MERGED_TOGETHER` in shm/layout.rs) |
//! | few: old snapshots hold the others | any | with one frozen generation |
//! | any | scarce | with one frozen generation or a half-full active one: memory, log and the base's WAL stay small |
//! | any | any | with whatever there is, once reading beside it has cost more than the merge will |
//! | any | any | with whatever there is, once that is 1 MiB, and a sixteenth of the base, and a program has asked how many pages there are |
//!
//! The last line but one is the rule of who rents skis and may buy them (Karlin, Manasse, Rudolph and Sleator, 1988): nobody knows how much will
//! still be read, and who pays for a merge when he has lost as much by not merging never pays more than twice what was needed. So a
//! table that is written once and then read is soon read at the base's speed, and one that is written all the time is merged
//! no more often for being read. Whoever reads counts what it costs him (csrc/step.c, seek.c) and tells it from time to time;
//! what a merge takes is known from those before (pace.rs).
//!
//! The last line is for programs that keep a limit by `PRAGMA page_count`, each time that they write: they are told the base's pages and nothing is
//! merged for it (csrc/pages.c), so that number has to follow what they write, and what they delete to keep the limit.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::background::merge_beside;
use crate::database::Database;
use crate::shm::layout::{fence, generation};

/// What a step costs (`PlBtree.nWalk`): the least that a walk pays for having memtables beside it.
const STEP_NS: u64 = 25;
/// What a merge costs besides its rows: some syncs, pages that readers read again.
const MERGE_NS: u64 = 20_000_000;
/// What a KiB of memtables takes to be merged, as long as nobody knows.
const KIB_NS: u64 = 20_000;
/// The number of pages is far off with so many bytes of memtables over the base, and with such a part of it.
const COUNT_OFF_BYTES: u64 = 1 << 20;
const COUNT_OFF_PART: u64 = 16;
/// What a deleted entry counts for: its memtable has the key alone, and nobody knows how long the row was.
const DELETED_BYTES: u64 = 1 << 10;
/// So many times the cost of a merge is lost to reading before it: the merge's estimate leaves out what others pay for it.
const LOST_BEFORE_MERGE: u64 = 2;

impl Database {
    /// True when a committer, or the background thread, should merge now.
    pub(crate) fn merge_is_due(&self) -> bool {
        let is_any = || {
            self.control().count_generations(generation::FROZEN) > 0
                || self.generations.is_half_full()
        };
        self.control().are_memtables_due()
            || (is_any() && self.generations.is_disk_space_scarce())
            || self.is_read_dearly()
    }

    /// A connection has gone so many steps beside memtables since it told last. It does not merge itself, and has it done
    /// in a thread alone (`beside`).
    pub(crate) fn note_walk(self: &Arc<Self>, steps: u32, beside: bool) {
        // Relaxed, here and below: a gauge, and who merges looks at the generations again.
        self.control().walked_steps.fetch_add(steps.into(), Relaxed);
        if beside && self.is_read_dearly() {
            merge_beside(self);
        }
    }

    /// A program was told how many pages the base has, `base_bytes`, and is told an old number as long as nothing is merged. Once that is far
    /// off, to be told it has cost as much as a merge. `deleted`: entries that its connection has deleted since the last one.
    pub(crate) fn note_page_count(self: &Arc<Self>, base_bytes: u64, deleted: u64, beside: bool) {
        let bytes = self.generations.unmerged_bytes();
        let off = bytes.saturating_add(deleted.saturating_mul(DELETED_BYTES));
        if bytes > 0 && off >= COUNT_OFF_BYTES.max(base_bytes / COUNT_OFF_PART) {
            let lost = self.merge_cost_ns(bytes).saturating_mul(LOST_BEFORE_MERGE);
            self.note_walk((lost / STEP_NS + 1).min(u64::from(u32::MAX)) as u32, beside);
        }
    }

    /// What it takes to merge so many bytes of memtables.
    fn merge_cost_ns(&self, bytes: u64) -> u64 {
        let known = self.control().merge_ns_per_kib.load(Relaxed);
        let each = if known == 0 { KIB_NS } else { known };
        each.saturating_mul(bytes >> 10).saturating_add(MERGE_NS)
    }

    /// Reading beside the memtables has cost more than merging them would.
    pub(super) fn is_read_dearly(&self) -> bool {
        let c = self.control();
        let lost = c.walked_steps.load(Relaxed).saturating_mul(STEP_NS);
        // Most never come so far, and need not add up what there is.
        if lost < LOST_BEFORE_MERGE * MERGE_NS {
            return false;
        }
        let bytes = self.generations.unmerged_bytes();
        let merge = self.merge_cost_ns(bytes);
        // While readers hold back what the last merge has brought, another one would only lengthen the base's WAL. And where disk space is
        // scarce it might fail, with the generation frozen that still had room for commits: nobody needs it so much.
        bytes > 0
            && lost >= merge.saturating_mul(LOST_BEFORE_MERGE)
            && c.fence.load(Relaxed) == fence::FENCED
            && !self.has_wal_to_bring()
            && self.region().has_space_to_spare()
    }

    /// Has an arena ready by the time that the active one is full, so that no commit waits for disk space.
    pub(crate) fn prepare_next_arena(&self) {
        if self.generations.is_half_full()
            && !self.generations.has_prepared_arena()
            && !self.generations.is_disk_space_scarce()
        {
            // Whoever needs it will say why there is none.
            let _ = self.prepare_arena(0);
        }
    }
}
