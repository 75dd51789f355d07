//! Merges and checkpoints leave the disk and the processor to commits that wait for the disk.
//!
//! The checkpoint of a merge hands tens of thousands of scattered pages to the disk, and a disk
//! that works at all of them makes each sync of the log wait: commits at half the possible rate
//! were a hundred milliseconds late at its end. No commit waits for the checkpoint. So after each
//! portion (csrc/writeout.c) the checkpointer looks whether commits are syncing the log, and then
//! waits until the portion is on disk: a sync has no more before it.
//!
//! | commits sync the log | the next merge is due | the checkpoint |
//! |---|---|---|
//! | no: there are none, or they do not wait for the disk | any | goes on |
//! | yes | no | waits for each portion |
//! | yes | yes | goes on: else commits would wait for memory before long |
//!
//! A merge computes for a second. With no more processors than threads, a committer woken from its
//! sync waits for the end of the merge's time slice, and so do all that sleep for the same group:
//! commits came up to a hundred milliseconds late. So merge and checkpoint yield after every few
//! rows and each page while the log is being synced. With no other thread to run that costs a
//! system call. Where many wait for one sync they commit as fast as they can, and a merge that
//! gives way to each of them makes them wait for memory: a sixth fewer commits with 100 threads. So
//! it gives way to [`FEW`].
//!
//! It is a hint: nothing else relies on it.
//!
//! # Written little by little
//!
//! What memtables take goes to the disk little by little, if commits wait for the disk.
//!
//! Shared memory is a file, and twice a minute the system writes what has changed of a file: some
//! eighty megabytes at once, if a session commits all the time. No process needs them there, but
//! commits that sync the log wait behind them: a hundred milliseconds each, for a second. So a
//! committer that has waited for the disk, and has filled a portion of a memtable, makes the system
//! begin with that portion alone.
//!
//! Where many wait for one sync it is left to the system.
//!
//! It is a hint: nothing relies on it, and its errors are ignored.

use std::mem;
use std::ops::Range;

use crate::filesystem::begin_write_out;
use crate::log::LogShared;
use crate::memtable::Memtable;
use crate::shm::layout::arena_offset;
use crate::shm::read_marks::ReadMarks;
use crate::shm::region::Region;
use crate::sync::yielding::Yielding;

/// At most this many wait for one sync if commits do not come as fast as they can, or if there are
/// few writers.
const FEW: u32 = 8;

impl ReadMarks {
    /// Returns whether the disk should be left to commits now. `syncs` is what the previous call
    /// stored there, 0 at first: a count of the log's syncs.
    pub fn should_leave_disk(&self, syncs: &mut u64) -> bool {
        let log = self.region().log();
        let now = log.syncs();
        let are_made = mem::replace(syncs, now) != now || log.is_syncing();
        are_made && !self.region().control().are_memtables_due()
    }

    /// Lets commits run that wait for the disk.
    pub fn leave_processor(&self) {
        self.region().log().leave_processor(self.yielding());
    }
}

impl LogShared {
    /// True if few wait for the log to be synced: serving them soon matters more than serving many.
    pub(crate) fn has_few_sync_waiters(&self) -> bool {
        self.count_sleepers() <= FEW
    }

    /// Lets commits run that wait for the disk; `yielding` knows whether that has been worth it.
    pub(crate) fn leave_processor(&self, yielding: &Yielding) {
        if self.is_syncing() && self.has_few_sync_waiters() {
            let _ = yielding.once(|| self.log_end());
        }
    }
}

/// Written at a time: a few milliseconds of a slow disk. An arena is a multiple of it.
const PORTION_BYTES: u32 = 256 << 10;

/// Space that a commit has taken in its memtable.
#[derive(Debug)]
pub(crate) struct Taken {
    arena: usize,
    /// The free space of the memtable before and after.
    before: Range<u32>,
    after: Range<u32>,
}

impl Taken {
    /// Returns nothing taken yet of `memtable`, which is in this arena.
    pub(crate) fn begin(arena: usize, memtable: &Memtable) -> Taken {
        let free = memtable.free_space();
        Taken { arena, before: free.clone(), after: free }
    }

    /// Ends it: the last entry is inserted.
    pub(crate) fn end(&mut self, memtable: &Memtable) {
        self.after = memtable.free_space();
    }

    /// Returns the portions that are newly full: of nodes, which grow upwards, and of records,
    /// which grow downwards.
    fn filled(&self) -> [Range<u32>; 2] {
        let start_of = |at: u32| at - at % PORTION_BYTES;
        let end_of = |at: u32| at.next_multiple_of(PORTION_BYTES);
        [
            start_of(self.before.start)..start_of(self.after.start),
            end_of(self.after.end)..end_of(self.before.end),
        ]
    }
}

impl Region {
    /// Starts writing the portions that are newly full.
    pub(crate) fn write_out(&self, taken: &Taken) {
        if !self.log().has_few_sync_waiters() {
            return;
        }
        for portion in taken.filled().into_iter().filter(|portion| !portion.is_empty()) {
            let at = arena_offset(taken.arena) + portion.start as usize;
            begin_write_out(self.file(), at as u64, portion.len() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::shm::layout::generation;
    use crate::shm::layout::{ARENA_BYTES, SMALL_ARENA_BYTES};
    use crate::shm::read_marks::tests::join;

    #[test]
    fn it_is_left_to_commits_that_sync_until_the_next_merge_is_due() {
        let dir = tempfile::tempdir().unwrap();
        let marks = join(&dir.path().join("shm"), 1);
        let mut seen = 0;
        assert!(!marks.should_leave_disk(&mut seen), "nobody syncs");
        marks.region().log().note_sync();
        assert!(marks.should_leave_disk(&mut seen));
        assert!(!marks.should_leave_disk(&mut seen), "nobody has synced since");
        let control = marks.region().control();
        let generations = &control.generations;
        control.active_arena.store(3, Relaxed);
        generations[3].number.store(4, Relaxed);
        for slot in &generations[..3] {
            marks.region().log().note_sync();
            assert!(marks.should_leave_disk(&mut seen));
            slot.state.store(generation::FROZEN, Relaxed);
        }
        marks.region().log().note_sync();
        assert!(!marks.should_leave_disk(&mut seen), "they are to be merged");
        generations[0].state.store(generation::FREE, Relaxed);
        marks.region().log().note_sync();
        assert!(marks.should_leave_disk(&mut seen));
    }

    const KIB: u32 = 1024;

    fn filled(before: Range<u32>, after: Range<u32>) -> [Range<u32>; 2] {
        Taken { arena: 0, before, after }.filled()
    }

    #[test]
    fn a_portion_is_written_when_it_is_full_and_once() {
        let whole = 16 * 1024 * KIB;
        let [nodes, records] = filled(300 * KIB..whole, 400 * KIB..whole - 255 * KIB);
        assert!(nodes.is_empty() && records.is_empty());
        let [nodes, records] = filled(400 * KIB..whole - 255 * KIB, 520 * KIB..whole - 257 * KIB);
        assert_eq!(nodes, 256 * KIB..512 * KIB);
        assert_eq!(records, whole - 256 * KIB..whole);
        let [nodes, records] = filled(520 * KIB..whole - 257 * KIB, 530 * KIB..whole - 500 * KIB);
        assert!(nodes.is_empty() && records.is_empty());
    }

    #[test]
    fn all_that_one_commit_has_filled_is_written() {
        let whole = 16 * 1024 * KIB;
        let [nodes, records] = filled(0..whole, 1_100 * KIB..whole - 3_000 * KIB);
        assert_eq!(nodes, 0..1_024 * KIB);
        assert_eq!(records, whole - 2_816 * KIB..whole);
    }

    const _: () = assert!(
        (ARENA_BYTES as u32).is_multiple_of(PORTION_BYTES)
            && (SMALL_ARENA_BYTES as u32).is_multiple_of(PORTION_BYTES)
    );
}
