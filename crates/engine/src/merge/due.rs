//! When to merge.
//!
//! A merge costs a page of the base the same whether one of its rows has changed or ten, and afterwards every reader
//! reads that page again. So merges wait for several full memtables, as long as that costs nobody anything:
//!
//! | free arenas | disk space | a merge is due |
//! |---|---|---|
//! | enough | enough | with [`MERGED_TOGETHER`] frozen generations |
//! | few: old snapshots hold the others | any | with one frozen generation |
//! | any | scarce | with one frozen generation or a half-full active one: memory, log and the base's WAL stay small |

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::database::Database;
use crate::shm::layout::{ARENAS, generation};
use crate::shm::region::Region;

/// Frozen generations that are merged at a time.
const MERGED_TOGETHER: usize = 3;
/// Fewer free arenas than these are few.
const ARENAS_IN_RESERVE: usize = ARENAS / 2;

/// What a process knows of the disk: asked for once a generation.
#[derive(Debug, Default)]
pub(crate) struct DiskSpace {
    /// Number of the generation in which it was asked, and bit 0: it is scarce.
    asked: AtomicU64,
}

impl DiskSpace {
    fn is_scarce(&self, region: &Region, generation: u32) -> bool {
        // Relaxed, here and below: a hint.
        let known = self.asked.load(Relaxed);
        if known >> 1 == u64::from(generation) {
            return known & 1 != 0;
        }
        let is_scarce = !region.has_space_to_spare();
        self.asked.store(u64::from(generation) << 1 | u64::from(is_scarce), Relaxed);
        is_scarce
    }
}

impl Database {
    /// True when a committer, or the background thread, should merge now.
    pub(crate) fn merge_is_due(&self) -> bool {
        let count = |state| {
            let gens = self.control().generations.iter();
            gens.filter(|g| g.state.load(Relaxed) == state).count()
        };
        let frozen = count(generation::FROZEN);
        frozen >= MERGED_TOGETHER
            || (frozen > 0 && count(generation::FREE) < ARENAS_IN_RESERVE)
            || ((frozen > 0 || self.is_half_full()) && self.is_disk_space_scarce())
    }

    /// Has an arena ready by the time that the active one is full, so that no commit waits for disk space.
    pub(crate) fn prepare_next_arena(&self) {
        if self.is_half_full() && !self.has_prepared_arena() && !self.is_disk_space_scarce() {
            // Whoever needs it will say why there is none.
            let _ = self.prepare_arena();
        }
    }

    fn is_half_full(&self) -> bool {
        let memtable = self.memtable(self.active_arena());
        memtable.used_bytes() > memtable.capacity_bytes() / 2
    }

    fn is_disk_space_scarce(&self) -> bool {
        let generation = self.active_generation().number.load(Relaxed);
        self.disk_space().is_scarce(self.region(), generation)
    }
}
