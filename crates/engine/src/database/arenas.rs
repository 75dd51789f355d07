//! Room for the next generation: what has to be freed, allocated or waited for before a freeze finds an arena.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use super::Database;
use super::generations::{is_read_by, needs_large};
use super::slots::say_oldest;
use crate::error::{Error, Result};
use crate::ids::{Generation, SlotIndex};
use crate::shm::layout::TxnSlot;
use crate::sync::wait::Patience;

/// What came of waiting for an arena.
pub(crate) enum ArenaWait {
    /// One is ready, or commits go into another one, or another transaction holds the writer's right and comes first.
    LookAgain,
    /// The caller's own snapshot holds one of them.
    HeldByOwnSnapshot,
    /// The wait is over; the oldest of those who hold them, for an error text.
    HeldByReaders(String),
}

/// Longest sleep between two looks whether a reader has ended: readers wake nobody.
const NAP_MAX: Duration = Duration::from_millis(10);
/// Every so many looks someone dead may be among those who hold memtables.
const LOOKS_PER_SWEEP: u32 = 10;

impl Database {
    /// Makes sure that a freeze for a transaction of so many bytes will find an arena: frees merged ones, allocates disk space, and maps it.
    pub(crate) fn prepare_arena(&self, bytes: u64) -> Result<bool> {
        // So that it is known to all who choose.
        let _ = self.generations.is_disk_space_scarce();
        if self.generations.wants_large(bytes) && self.region().is_whole_refused() {
            // There may be address space by now; if not, small ones will do.
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
        // Dead processes pin nothing; the living give up history that only validation would want.
        self.reap_dead()?;
        let found = {
            let _guard = self.lock_commit()?;
            self.generations.free_merged(false);
            self.generations.candidates(bytes)
        };
        self.allocate_one_of(found)
    }

    /// Allocates disk space behind one of these arenas, if none has it yet, and maps it.
    fn allocate_one_of(&self, mut arenas: Vec<usize>) -> Result<bool> {
        let gens = &self.control().generations;
        arenas.sort_by_key(|&i| gens[i].allocated.load(Acquire) == 0);
        for index in arenas {
            // Where another process is at it, which may be stopped, the next will do.
            if self.region().allocate_arena(index)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits until the end of a reader's snapshot has freed an arena, for the caller in `me` or for others who wait: what one of them finds
    /// freed all may use, and where the generation `full`, which has no room for `bytes`, no longer takes commits, the next one has been begun. If the
    /// caller holds the writer's right, what is freed stays free, and readers that wait for that right are sent away (R5).
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
