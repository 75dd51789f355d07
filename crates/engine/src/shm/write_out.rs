//! What memtables take goes to the disk little by little, where commits wait for the disk.
//!
//! Shared memory is a file, and twice a minute the system writes what has changed of a file: of a session that commits all the time some
//! eighty megabytes at once. Nobody needs them there, but commits that sync the log meanwhile wait behind them: a hundred milliseconds each,
//! for a second. So who has waited for the disk, and has filled a portion of a memtable, asks the system to begin with that portion alone.
//!
//! Where many wait for one sync (shm/leave.rs) it is left to the system.
//!
//! It is a hint: nothing relies on it, and what it fails with is not looked at.
#![allow(unsafe_code)]

use std::ops::Range;
use std::os::fd::AsRawFd;

use super::layout::arena_offset;
use super::region::Region;
use crate::memtable::Memtable;

/// Written at a time: a few milliseconds of a slow disk. An arena is a multiple of it.
const PORTION_BYTES: u32 = 256 << 10;

/// What a commit has taken in its memtable.
#[derive(Debug)]
pub(crate) struct Taken {
    arena: usize,
    /// What was free in it before, and afterwards.
    before: Range<u32>,
    after: Range<u32>,
}

impl Taken {
    /// Nothing yet of `memtable`, which stands in this arena.
    pub(crate) fn begin(arena: usize, memtable: &Memtable) -> Taken {
        let free = memtable.free_space();
        Taken { arena, before: free.clone(), after: free }
    }

    /// The last entry is inserted.
    pub(crate) fn end(&mut self, memtable: &Memtable) {
        self.after = memtable.free_space();
    }

    /// Which portions are full now and were not before: of nodes, which grow upwards, and of records, which grow downwards.
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
    /// Asks for the portions that are full now.
    pub(crate) fn write_out(&self, taken: &Taken) {
        if !self.log().do_few_wait() {
            return;
        }
        for portion in taken.filled().into_iter().filter(|portion| !portion.is_empty()) {
            let at = arena_offset(taken.arena) + portion.start as usize;
            let (file, begin) = (self.file().as_raw_fd(), libc::SYNC_FILE_RANGE_WRITE);
            // SAFETY: a file that is open as long as the region; no memory is passed.
            unsafe { libc::sync_file_range(file, at as i64, portion.len() as i64, begin) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::layout::{ARENA_BYTES, SMALL_ARENA_BYTES};

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
