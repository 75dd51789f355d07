//! Generations: freezing the active one, settling merged ones, reusing arenas.
//!
//! # Room for the next one
//!
//! What has to be freed, allocated or waited for before a freeze finds an arena for the next
//! generation.

use std::ops::Range;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Database;
use super::changed::{self, Changed, ChangedSince, Part};
use super::slots::{Slots, say_oldest};
use crate::base::BaseHeader;
use crate::crash_point;
use crate::error::{Error, Result};
use crate::ids::{Generation, Lsn, SlotIndex, SnapshotTs};
use crate::memtable::{Memtable, Share};
use crate::shm::layout::{
    ARENA_BYTES, ARENAS, Control, GenSlot, NO_PIN, RowidSlot, SMALL_ARENA_BYTES, SMALL_ARENAS,
    TxnSlot, generation, is_large,
};
use crate::shm::region::Region;
use crate::sync::mutex::Guard;
use crate::sync::wait::Patience;

/// The room in the active memtable for a transaction.
pub(crate) enum Room {
    /// The transaction fits.
    Enough,
    /// It fits once disk space is allocated through `reach` (`Region::grow_arena`).
    Unallocated { arena: usize, reach: u64 },
    /// It does not fit: the next generation begins.
    Full { bytes: u64 },
}

/// A generation with at most this much did not need a large arena. What processes have taken ahead
/// (`Share`) is at most a quarter of a small one.
const LITTLE_BYTES: u64 = SMALL_ARENA_BYTES as u64 / 2;
/// A transaction that needs at most this much fits into an empty small arena.
const FITS_SMALL_BYTES: u64 = SMALL_ARENA_BYTES as u64 / 4 * 3;

/// True if a transaction of `bytes` may not fit into a small arena.
pub(crate) fn needs_large(bytes: u64) -> bool {
    bytes > FITS_SMALL_BYTES
}

/// A freeze publishes what every commit into the generation has left: its last timestamp, its end
/// in the log, its nodes. The commit mutex orders the commits before it.
pub(crate) const FREEZES: Ordering = Release;
/// A merge reads the state without the commit mutex. If it is frozen the merge sees what
/// [`FREEZES`] has published: it syncs the log through that end before the base takes any of the
/// generation (GEN-2), and that timestamp becomes readable (SNAP-2).
pub(crate) const SEES_FROZEN: Ordering = Acquire;

/// Fences: a reader's, between its pin and its read of the base (PIN-1), and a freeing process's,
/// between the base and the scan of the pins.
pub(crate) const PINS_AND_FREES: Ordering = SeqCst;
/// A connection that drops or narrows a pin no longer uses anything outside it.
pub(crate) const UNPINS: Ordering = Release;
/// Partner of [`UNPINS`]: what no connection uses may be formatted.
pub(crate) const SEES_UNPINNED: Ordering = Acquire;

/// True if the snapshot of `s` needs the generation in `slot` to read (PIN-3).
pub(crate) fn is_read_by(slot: &GenSlot, s: &TxnSlot) -> bool {
    let number = slot.number.load(Relaxed);
    let low = s.pin_low.load(SEES_UNPINNED);
    low != NO_PIN && number > low && number <= s.pin_high.load(SEES_UNPINNED)
}

/// Whether disk space is scarce, as a process finds out once a generation.
#[derive(Debug, Default)]
pub(crate) struct DiskSpace {
    /// The generation in which it was found out, and bit 0: it is scarce.
    asked: AtomicU64,
}

impl DiskSpace {
    /// What was found out in this generation, if anything.
    fn known(&self, generation: u32) -> Option<bool> {
        // Relaxed, here and below: a hint.
        let known = self.asked.load(Relaxed);
        (known >> 1 == u64::from(generation)).then_some(known & 1 != 0)
    }

    pub(crate) fn is_scarce(&self, region: &Region, generation: u32) -> bool {
        if let Some(is_scarce) = self.known(generation) {
            return is_scarce;
        }
        let is_scarce = !region.has_space_to_spare();
        self.asked.store(u64::from(generation) << 1 | u64::from(is_scarce), Relaxed);
        is_scarce
    }
}

/// The generations in memory: the arena of each, and what may be done with it. Its methods take no
/// lock; (M) marks those that are called with the commit mutex held.
pub(crate) struct Generations {
    region: Arc<Region>,
    slots: Arc<Slots>,
    disk_space: DiskSpace,
    share: Mutex<Share>,
}

impl Generations {
    pub(crate) fn new(region: Arc<Region>, slots: Arc<Slots>) -> Generations {
        Generations { region, slots, disk_space: DiskSpace::default(), share: Mutex::default() }
    }

    fn control(&self) -> &Control {
        self.region.control()
    }

    /// This process's share of a memtable; see [`Generations::enter_memtable`].
    pub(crate) fn share(&self, _: &Guard<'_>) -> MutexGuard<'_, Share> {
        // At worst a panic left some space unused: the share gives space away before any link leads
        // there (SPACE-1).
        self.share.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The memtable in arena `index`.
    ///
    /// # Errors
    /// NoMemory: there is no address space to map it.
    #[inline]
    pub(crate) fn memtable(&self, index: usize) -> Result<Memtable> {
        self.region.memtable(index)
    }

    /// (M) The memtable in arena `index`. The session uses that arena, so it is mapped (MAPPING-3).
    pub(crate) fn memtable_in_use(&self, index: usize) -> Memtable {
        self.memtable(index).expect("whoever has the commit mutex has mapped what is in use")
    }

    /// The memtable that takes commits.
    fn active(&self) -> Result<Memtable> {
        self.memtable(self.active_arena())
    }

    /// Index of the arena that takes commits.
    pub(crate) fn active_arena(&self) -> usize {
        // Acquire pairs with the Release in `switch_active`: the arena is formatted.
        self.control().active_arena.load(Acquire) as usize % ARENAS
    }

    /// Slot of the generation that takes commits.
    pub(crate) fn active_generation(&self) -> &GenSlot {
        &self.control().generations[self.active_arena()]
    }

    /// Number of the generation that takes commits. A hint without the commit mutex.
    pub(crate) fn active_number(&self) -> Generation {
        Generation::new(self.active_generation().number.load(Relaxed))
    }

    /// (M) Returns the memtable that takes commits; `share` becomes a share of it.
    pub(crate) fn enter_memtable(&self, share: &mut Share) -> Memtable {
        let arena = self.active_arena();
        let memtable = self.memtable_in_use(arena);
        // Two arenas may be given one number, if the committer that gave it first died.
        let number = self.active_generation().number.load(Relaxed);
        let name = u64::from(number) << 32 | arena as u64;
        let processes = self.control().processes_high_water.load(Relaxed);
        share.enter(name, memtable.capacity_bytes(), processes);
        memtable
    }

    /// (M) Returns whether `bytes` more fit into the memtable that takes commits, and have disk
    /// space there.
    pub(crate) fn room_for(&self, bytes: u64) -> Room {
        let arena = self.active_arena();
        let memtable = self.memtable_in_use(arena);
        if bytes > u64::from(memtable.capacity_bytes() - memtable.used_bytes()) {
            return Room::Full { bytes };
        }
        // Acquire pairs with the Release in `grow_arena`.
        let allocated = self.control().generations[arena].allocated.load(Acquire);
        let reach = memtable.reach_with(bytes);
        // If either end has the whole capacity no byte is without disk space.
        if reach <= u64::from(allocated) || allocated >= memtable.capacity_bytes() {
            memtable.widen(allocated);
            Room::Enough
        } else {
            Room::Unallocated { arena, reach }
        }
    }

    /// (M) Makes arena `index`, which is FREE and allocated, the active one, with generation
    /// `number`. `follows_empty`: see [`GenSlot::follows_empty`].
    fn switch_active(&self, index: usize, number: u32, follows_empty: bool) {
        let c = self.control();
        let old = self.active_arena();
        let slot = &c.generations[index];
        self.region.format_arena(index);
        slot.max_ts.store(0, Relaxed);
        slot.log_end.store(0, Relaxed);
        slot.follows_empty.store(u32::from(follows_empty), Relaxed);
        slot.state.store(generation::ACTIVE, Relaxed);
        // Release pairs with the Acquire of snapshots that find the number: the arena is formatted.
        slot.number.store(number, Release);
        // Release pairs with the Acquire in `active_arena`. From here on the new generation takes
        // commits (GEN-1).
        c.active_arena.store(index as u32, Release);
        if old != index && c.generations[old].state.load(Relaxed) == generation::ACTIVE {
            c.generations[old].state.store(generation::FROZEN, FREEZES);
        }
    }

    /// (M) Finishes or undoes a switch of generations whose author died in the middle (GEN-1).
    pub(crate) fn repair_generations(&self) {
        let c = self.control();
        let active = self.active_arena();
        let number = c.generations[active].number.load(Relaxed);
        for (i, slot) in c.generations.iter().enumerate() {
            if i != active && slot.state.load(Relaxed) == generation::ACTIVE {
                let died_before =
                    slot.number.load(Relaxed) > number || slot.number.load(Relaxed) == 0;
                slot.state.store(
                    if died_before { generation::FREE } else { generation::FROZEN },
                    FREEZES,
                );
                if died_before {
                    slot.number.store(0, Relaxed);
                }
            }
        }
    }

    /// (M) Starts a new generation, for a transaction that needs `bytes` of it. False if no
    /// prepared arena is free, or a prepared transaction is unresolved.
    pub(crate) fn try_freeze(&self, bytes: u64) -> bool {
        if self.region.layout().has_unresolved() {
            // SEVERAL-2: the frame that resolves it goes to this generation.
            return false;
        }
        let number = self.active_generation().number.load(Relaxed);
        let Some(index) = self.free_arena(bytes) else { return false };
        let has_rows = !self.memtable_in_use(self.active_arena()).is_empty();
        // Frames of this generation, which follows an empty one, that the file lacks are missing to
        // what follows them.
        let log = self.region.log();
        let is_missed = self.active_generation().follows_empty.load(Relaxed) != 0
            && log.written_through() < log.log_end();
        self.switch_active(index, number + 1, !has_rows || is_missed);
        true
    }

    /// (M) True if the frame that ends at `end`, in the generation that takes commits, must be in
    /// the file before its COMMIT returns, at every level.
    pub(crate) fn must_write(&self, end: Lsn) -> bool {
        // Relaxed: changes under the commit mutex.
        let follows_empty = self.active_generation().follows_empty.load(Relaxed) != 0;
        follows_empty && self.region.log().begins_unwritten(end)
    }

    /// True if an arena is FREE, with disk space or without. A hint without the commit mutex.
    pub(crate) fn has_free_arena(&self) -> bool {
        self.control().generations.iter().any(|g| g.state.load(Relaxed) == generation::FREE)
    }

    /// True if an arena of the wanted kind could be formatted now. A hint without the commit mutex.
    pub(crate) fn has_prepared_arena(&self) -> bool {
        let wants_large = self.wants_large(0);
        let is_wanted = |&i: &usize| is_large(i) || !wants_large;
        (0..ARENAS).filter(is_wanted).any(|i| self.is_free(i) && self.is_ready(i))
    }

    fn is_free(&self, index: usize) -> bool {
        self.control().generations[index].state.load(Relaxed) == generation::FREE
    }

    /// True if the arena has disk space, and this process has it mapped.
    fn is_ready(&self, index: usize) -> bool {
        // Acquire pairs with the Release in `allocate_arena`.
        self.control().generations[index].allocated.load(Acquire) != 0
            && (!is_large(index) || self.region.reaches_whole())
    }

    /// True if the next generation, whose first transaction needs `bytes`, should have a large
    /// arena: that transaction is large, or the last generation had more than a little; and disk
    /// space is not scarce. A hint without the commit mutex.
    pub(crate) fn wants_large(&self, bytes: u64) -> bool {
        if self.disk_space.known(self.active_generation().number.load(Relaxed)) == Some(true) {
            return false;
        }
        let used = self.active().map_or(u64::MAX, |memtable| memtable.used_bytes().into());
        bytes.max(used) > LITTLE_BYTES
    }

    /// The FREE arenas for a generation whose first transaction needs `bytes`, the best first. A
    /// small one stands in for a large one only if this process has no address space for more, or
    /// all large ones are in use. A hint without the commit mutex.
    pub(crate) fn candidates(&self, bytes: u64) -> Vec<usize> {
        let free = |arenas: Range<usize>| arenas.filter(|&i| self.is_free(i)).collect::<Vec<_>>();
        let mut large = free(SMALL_ARENAS..ARENAS);
        if needs_large(bytes) {
            return large;
        }
        if self.region.is_whole_refused() && !self.region.reaches_whole() {
            large.clear();
        }
        let mut small = free(0..SMALL_ARENAS);
        if !self.wants_large(bytes) {
            small.extend(large);
            return small;
        }
        if large.is_empty() { small } else { large }
    }

    /// (M) An arena that can be formatted now, for a generation whose first transaction needs
    /// `bytes`.
    fn free_arena(&self, bytes: u64) -> Option<usize> {
        self.candidates(bytes).into_iter().find(|&index| self.is_ready(index))
    }

    /// (M) Frees the arenas of merged generations that no snapshot reads; true if it freed any.
    /// `keep_history` spares those that a running transaction needs for validation.
    pub(crate) fn free_merged(&self, keep_history: bool) -> bool {
        // Either this scan sees a pin, or the pinning snapshot starts after the merge's commit and
        // does not need the generation.
        fence(PINS_AND_FREES);
        let mut freed = false;
        for slot in &self.control().generations {
            if slot.state.load(Relaxed) != generation::MERGED {
                continue;
            }
            let max_ts = slot.max_ts.load(Relaxed);
            let needed = self.slots.in_use().any(|(_, s)| {
                let pinned = s.pin_low.load(Acquire) != NO_PIN;
                let validates = pinned && max_ts > s.snapshot.load(Relaxed);
                is_read_by(slot, s) || (keep_history && validates)
            });
            if !needed {
                self.control().freed_ts.fetch_max(max_ts, Relaxed);
                slot.number.store(0, Relaxed);
                slot.state.store(generation::FREE, Relaxed);
                freed = true;
            }
        }
        freed
    }

    /// True if readers or validations hold all large arenas, so that no merge frees one. A hint
    /// without the commit mutex.
    pub(crate) fn are_large_held(&self) -> bool {
        let large = &self.control().generations[SMALL_ARENAS..];
        large.iter().all(|slot| slot.state.load(Relaxed) == generation::MERGED)
    }

    /// (M) True if all that was committed after `since` is in memory.
    pub(crate) fn has_history(&self, since: SnapshotTs) -> bool {
        self.control().freed_ts.load(Relaxed) <= since.get()
    }

    /// (M) Returns what exclusive transactions have changed since generation `base`, of the parts
    /// that `concerns` the caller.
    pub(crate) fn changed_since(
        &self,
        base: Generation,
        concerns: impl FnMut(Part<'_>) -> bool,
    ) -> ChangedSince {
        let c = self.control();
        changed::since(&c.exclusive, c.exclusive_generation.load(Relaxed), base, concerns)
    }

    pub(crate) fn merged(&self) -> impl Iterator<Item = &GenSlot> {
        self.control().generations.iter().filter(|g| g.state.load(Relaxed) == generation::MERGED)
    }

    /// True if the snapshot of `me` holds a merged generation. A newer one would not: the base has
    /// it.
    pub(crate) fn is_held_by_snapshot_of(&self, me: SlotIndex) -> bool {
        self.merged().any(|slot| is_read_by(slot, self.slots.at(me)))
    }

    /// (M) Brings the generations in line with what the base's header says it includes.
    /// `exclusive`: the last transaction on the base was exclusive, stamped the (empty) active
    /// generation, and changed this.
    ///
    /// `base_generation` changes last: a process that is killed before leaves all of this to the
    /// next one (EXCL-6).
    pub(crate) fn settle_base(&self, header: &BaseHeader, exclusive: Option<&Changed>) {
        let c = self.control();
        let merged = header.generation.get();
        if merged <= c.base_generation.load(Relaxed) {
            return;
        }
        if let Some(changed) = exclusive {
            let noted = c.exclusive_generation.load(Relaxed);
            if noted != merged {
                changed::note(&c.exclusive, noted, merged, changed);
                // Before the timestamp of the exclusive commit: a snapshot that has the timestamp
                // finds this (EXCL-3).
                c.exclusive_generation.store(merged, Release);
            }
            self.start_after_exclusive(merged + 1, changed);
        }
        for slot in &c.generations {
            let number = slot.number.load(Relaxed);
            if slot.state.load(Relaxed) == generation::FROZEN && number <= merged {
                slot.state.store(generation::MERGED, Relaxed);
            }
        }
        // SeqCst: ordered before the scan of pins in `free_merged`.
        c.base_generation.store(merged, SeqCst);
    }

    /// True if an exclusive transaction, and not the merge before it, has stamped the base with
    /// `generation` (EXCL-6).
    pub(crate) fn is_stamp(&self, generation: Generation) -> bool {
        // Relaxed: the caller has inherited the rights of the author.
        self.control().stamped_generation.load(Relaxed) == generation.get()
    }

    /// (M) Starts generation `number` after an exclusive commit, unless it has begun (EXCL-6), and
    /// gives that commit a timestamp.
    fn start_after_exclusive(&self, number: u32, changed: &Changed) {
        let c = self.control();
        if self.active_generation().number.load(Relaxed) < number {
            let Some(index) = self.free_arena(0) else {
                // The active one cannot take the new number: a snapshot that lists it under the old
                // one pins it by that.
                debug_assert!(false, "EXCL-5: an exclusive transaction has left no prepared arena");
                return self.region.log().set_broken();
            };
            self.switch_active(index, number, false);
            crash_point!("exclusive.switched");
        }
        forget_rowids(&c.rowids, changed);
        let ts = c.visible_ts.load(Relaxed) + 1;
        // Release: as for any commit.
        c.visible_ts.store(ts, Release);
        crash_point!("exclusive.visible");
        self.region.log().note_newest_ts(ts);
        // As `Database::settle` does: what was committed under FULL before it is on disk before it
        // is shown.
        c.readable_needs.fetch_max(c.full_end.load(Relaxed), AcqRel);
        c.readable_ts.fetch_max(ts, AcqRel);
        c.counters.exclusive_commits.fetch_add(1, Relaxed);
    }

    /// Bytes of nodes in memtables that are not merged.
    pub(crate) fn unmerged_bytes(&self) -> u64 {
        let gens = self.control().generations.iter().enumerate();
        gens.filter(|(_, g)| {
            matches!(g.state.load(Relaxed), generation::ACTIVE | generation::FROZEN)
        })
        .filter_map(|(i, _)| self.memtable(i).ok())
        .map(|memtable| u64::from(memtable.node_bytes()))
        .sum()
    }

    /// True if more than half of the active memtable is used.
    pub(crate) fn is_half_full(&self) -> bool {
        self.active().is_ok_and(|active| active.used_bytes() > active.capacity_bytes() / 2)
    }

    /// True if disk space is scarce: then what is dispensable may take none.
    pub(crate) fn is_disk_space_scarce(&self) -> bool {
        let generation = self.active_generation().number.load(Relaxed);
        self.disk_space.is_scarce(&self.region, generation)
    }

    /// True if the base includes `generation`.
    pub(crate) fn is_merged_through(&self, generation: Generation) -> bool {
        // Acquire pairs with the store in `settle_base`: a base read transaction that begins now
        // includes it.
        self.control().base_generation.load(Acquire) >= generation.get()
    }

    /// Arena and number of the FROZEN generations, oldest first.
    pub(crate) fn frozen(&self) -> Vec<(usize, u32)> {
        let gens = self.control().generations.iter().enumerate();
        let mut frozen: Vec<_> = gens
            .filter(|(_, g)| g.state.load(SEES_FROZEN) == generation::FROZEN)
            .map(|(i, g)| (i, g.number.load(Relaxed)))
            .collect();
        frozen.sort_by_key(|&(_, number)| number);
        frozen
    }

    /// True if the base includes everything that is committed.
    pub(crate) fn is_memory_empty(&self) -> bool {
        let gens = &self.control().generations;
        self.active().is_ok_and(|active| active.is_empty())
            && gens.iter().all(|g| g.state.load(Relaxed) != generation::FROZEN)
    }

    /// (M) True if no frame is in the active generation: neither one with rows nor one that has
    /// undone a prepared transaction.
    pub(crate) fn is_active_unused(&self) -> bool {
        // Relaxed: set under the commit mutex.
        let has_frames = self.active_generation().max_ts.load(Relaxed) > 0;
        self.memtable_in_use(self.active_arena()).is_empty() && !has_frames
    }

    /// (M) True if the base has everything that all frames of the log have.
    pub(crate) fn is_log_merged(&self) -> bool {
        self.is_memory_empty() && self.is_active_unused() && !self.region.layout().has_unresolved()
    }

    /// Bytes that memtables can still take before a merge.
    pub(crate) fn room_left(&self) -> u64 {
        let free = self.control().count_free_large();
        let in_active = self
            .active()
            .map_or(0, |active| active.capacity_bytes().saturating_sub(active.used_bytes()));
        (free * ARENA_BYTES) as u64 + u64::from(in_active)
    }

    /// The generations in memory above `base`, newest first: all that a snapshot of that base
    /// needs.
    ///
    /// # Errors
    /// NoMemory.
    pub(crate) fn memtables_above(&self, base: Generation) -> Result<Vec<(Generation, Memtable)>> {
        let found = self.memtables_since(base)?;
        debug_assert!(is_complete(&found, base), "PIN-1: a generation above {base} is missing");
        Ok(found)
    }

    /// As [`Generations::memtables_above`], for a base that is older than an exclusive transaction.
    /// Generations that no snapshot reads may have been freed since.
    ///
    /// # Errors
    /// NoMemory.
    pub(crate) fn memtables_since(&self, base: Generation) -> Result<Vec<(Generation, Memtable)>> {
        let mut found = Vec::with_capacity(2);
        self.each_since(base, |number, arena| {
            found.push((number, self.memtable(arena)?));
            Ok(())
        })?;
        found.sort_by_key(|m| std::cmp::Reverse(m.0));
        Ok(found)
    }

    /// As [`Generations::memtables_since`], without those for which there is no address space. A
    /// snapshot that this process has committed lacks none: all that was in use then is mapped
    /// (MAPPING-3).
    pub(crate) fn memtables_that_can_be_mapped(
        &self,
        base: Generation,
    ) -> Vec<(Generation, Memtable)> {
        let mut found = Vec::with_capacity(2);
        let all = self.each_since(base, |number, arena| {
            found.extend(self.memtable(arena).ok().map(|memtable| (number, memtable)));
            Ok(())
        });
        debug_assert!(all.is_ok());
        found.sort_by_key(|m| std::cmp::Reverse(m.0));
        found
    }

    /// Visits the generations in memory above `base`, with their arenas.
    #[inline]
    fn each_since(
        &self,
        base: Generation,
        mut visit: impl FnMut(Generation, usize) -> Result<()>,
    ) -> Result<()> {
        // Read first: a generation that is still being prepared is not listed.
        let active = self.active_generation().number.load(Acquire);
        for (arena, slot) in self.control().generations.iter().enumerate() {
            // Acquire pairs with the Release in `switch_active`: the arena of this number is
            // formatted.
            let number = slot.number.load(Acquire);
            if number > base.get()
                && number <= active
                && slot.state.load(Relaxed) != generation::FREE
            {
                visit(Generation::new(number), arena)?;
            }
        }
        Ok(())
    }
}

/// True if `found`, newest first, has every generation above `base`. Above generation 0 some may be
/// missing.
fn is_complete(found: &[(Generation, Memtable)], base: Generation) -> bool {
    let in_order = found.windows(2).all(|pair| pair[0].0 == pair[1].0.next());
    base == Generation::ZERO
        || found.last().is_none_or(|oldest| oldest.0 == base.next() && in_order)
}

/// Resets the rowid counters of what was changed; after a schema change all of them, since a root
/// page may belong to another table. The caller is exclusive.
fn forget_rowids(slots: &[RowidSlot], changed: &Changed) {
    // Relaxed, here and below: ordered by the commit mutex that ends the exclusive transaction.
    for slot in slots {
        match changed.known() {
            // The entry remains: searches for others pass it.
            Some(roots) if roots.contains(&slot.root.load(Relaxed)) => slot.high.store(0, Relaxed),
            Some(_) => {}
            None => {
                slot.root.store(0, Relaxed);
                slot.high.store(0, Relaxed);
            }
        }
    }
}

/// The result of a wait for an arena.
pub(crate) enum ArenaWait {
    /// An arena is ready, or commits go into another one, or another transaction holds the writer's
    /// right and comes first.
    LookAgain,
    /// The caller's own snapshot holds an arena.
    HeldByOwnSnapshot,
    /// The wait is over. Names the oldest reader that holds an arena, for an error text.
    HeldByReaders(String),
}

/// Longest nap between two checks whether a reader has ended: readers wake no waiter.
const NAP_MAX: Duration = Duration::from_millis(10);
/// Every so many checks the waiter reaps: a dead process may hold memtables.
const LOOKS_PER_SWEEP: u32 = 10;

impl Database {
    /// Makes sure that a freeze for a transaction of `bytes` will find an arena: frees merged ones,
    /// allocates disk space, and maps it. False if there is none now.
    pub(crate) fn prepare_arena(&self, bytes: u64) -> Result<bool> {
        // Finds it out for all that choose an arena.
        let _ = self.is_disk_space_scarce();
        if self.generations.wants_large(bytes) && self.region().is_whole_refused() {
            // There may be address space by now. If not, small arenas will do.
            let _ = self.region().reach_whole();
        }
        let found = {
            let _guard = self.lock_commit()?;
            self.generations.free_merged(true);
            self.generations.candidates(bytes)
        };
        match self.allocate_one_of(found) {
            Ok(true) => return Ok(true),
            // Now that this is known others are candidates, if small ones will do.
            Err(Error::NoMemory) if !needs_large(bytes) => {
                if self.allocate_one_of(self.generations.candidates(bytes))? {
                    return Ok(true);
                }
            }
            Ok(false) if self.generations.candidates(bytes).is_empty() => {}
            done => return done,
        }
        // Dead processes pin nothing. The living give up history that only validation would need.
        self.reap_dead()?;
        let found = {
            let _guard = self.lock_commit()?;
            self.generations.free_merged(false);
            self.generations.candidates(bytes)
        };
        self.allocate_one_of(found)
    }

    /// Allocates disk space behind one of `arenas`, if none has it yet, and maps it.
    fn allocate_one_of(&self, mut arenas: Vec<usize>) -> Result<bool> {
        let gens = &self.control().generations;
        arenas.sort_by_key(|&i| gens[i].allocated.load(Acquire) == 0);
        for index in arenas {
            // If another process is allocating it, which may be stopped, the next will do.
            if self.region().allocate_arena(index)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits until the end of a snapshot frees an arena. Several callers may wait: an arena that
    /// one of them frees is free for all, and once generation `full`, which has no room for
    /// `bytes`, no longer takes commits the next one has begun. If the caller holds the writer's
    /// right what is freed stays free, and readers that wait for that right are refused (RIGHT-5).
    pub(crate) fn wait_for_arena(
        &self,
        me: SlotIndex,
        full: Generation,
        bytes: u64,
        patience: &mut Patience<'_, '_>,
    ) -> Result<ArenaWait> {
        let waited = self.wait_for_arena_while(me, full, bytes, patience);
        self.slots.at(me).waiting_for.store(0, Relaxed);
        waited
    }

    fn wait_for_arena_while(
        &self,
        me: SlotIndex,
        full: Generation,
        bytes: u64,
        patience: &mut Patience<'_, '_>,
    ) -> Result<ArenaWait> {
        let word = &self.control().merge_word;
        let is_in_the_way = |s: &TxnSlot| self.generations.merged().any(|slot| is_read_by(slot, s));
        let mut over = false;
        for look in 1u32.. {
            let seen = word.load(Acquire);
            let refused = {
                let _guard = self.lock_commit()?;
                let owner = self.control().right_owner.load(Relaxed);
                self.generations.free_merged(false);
                let is_full = self.generations.active_number() == full;
                if !is_full || (owner != 0 && owner != me.word()) {
                    return Ok(ArenaWait::LookAgain);
                }
                if self.generations.is_held_by_snapshot_of(me) {
                    return Ok(ArenaWait::HeldByOwnSnapshot);
                }
                if owner == 0 { Vec::new() } else { self.right.refuse_waiters(is_in_the_way) }
            };
            self.right.wake(refused);
            if self.generations.has_free_arena() && self.prepare_arena(bytes)? {
                return Ok(ArenaWait::LookAgain);
            }
            let oldest = self.slots.oldest_of(is_in_the_way);
            if over {
                return Ok(ArenaWait::HeldByReaders(say_oldest(oldest)));
            }
            self.slots.at(me).waiting_for.store(oldest.map_or(0, |(who, _)| who.pid), Relaxed);
            let nap = Duration::from_millis(look.into());
            patience.sleep(word, seen, nap.min(NAP_MAX))?;
            if look % LOOKS_PER_SWEEP == 0 {
                self.reap_dead()?;
            }
            over = patience.is_over();
        }
        unreachable!("the loop ends by returning")
    }
}

#[cfg(test)]
mod tests {
    use loom::sync::atomic::{AtomicU32, AtomicU64};
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    use super::*;

    /// Two processes commit into a generation, the second of which then freezes it; a merge looks
    /// at it in parallel.
    #[test]
    fn whoever_finds_a_generation_frozen_finds_where_it_ends() {
        struct Slot {
            commits: Mutex<u64>,
            state: AtomicU32,
            log_end: AtomicU64,
            max_ts: AtomicU64,
        }
        loom::model(|| {
            let slot = Arc::new(Slot {
                commits: Mutex::new(0),
                state: AtomicU32::new(generation::ACTIVE),
                log_end: AtomicU64::new(0),
                max_ts: AtomicU64::new(0),
            });
            let committers = (0..2).map(|_| {
                let slot = slot.clone();
                thread::spawn(move || {
                    let mut commits = slot.commits.lock().unwrap();
                    *commits += 1;
                    slot.max_ts.store(*commits, Release);
                    slot.log_end.store(*commits * 8, Relaxed);
                    if *commits == 2 {
                        slot.state.store(generation::FROZEN, FREEZES);
                    }
                })
            });
            let committers: Vec<_> = committers.collect();
            if slot.state.load(SEES_FROZEN) == generation::FROZEN {
                assert_eq!(slot.log_end.load(Relaxed), 16, "GEN-2");
                assert_eq!(slot.max_ts.load(Relaxed), 2, "SNAP-2");
            }
            for committer in committers {
                committer.join().unwrap();
            }
        });
    }
}
