//! What memtables take goes to the disk little by little, where commits wait for the disk.
//!
//! Shared memory is a file, and twice a minute the system writes what has changed of a file: of a session that commits all the time some
//! eighty megabytes at once. Nobody needs them there, but commits that sync the log meanwhile wait behind them: a hundred milliseconds each,
//! for a second. So who has waited for the disk, and has filled a portion of a memtable's records, asks the system to begin with that portion
//! alone. Nodes change with each insert near them until the memtable is frozen: they are written while it is merged, a part after each few rows.
//!
//! Where many wait for one sync (shm/leave.rs) it is left to the system.
//!
//! It is a hint: nothing relies on it, and what it fails with is not looked at.
#![allow(unsafe_code)]

use std::ops::Range;
use std::os::fd::AsRawFd;

use super::layout::{ARENA_BYTES, ARENAS_OFFSET};
use super::region::Region;
use crate::memtable::Memtable;

/// Written at a time: a few milliseconds of a slow disk. An arena is a multiple of it.
const PORTION_BYTES: u32 = 256 << 10;
/// So many parts of frozen memtables, if they are not smaller than this: a merge of many rows comes to the last, and the system may write what
/// one of a few leaves.
const PARTS: usize = 64;
const LEAST_PART_BYTES: usize = 64 << 10;

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

    /// Which portions of records are full now and were not before.
    fn filled(&self) -> Range<u32> {
        let end_of = |at: u32| at.next_multiple_of(PORTION_BYTES);
        end_of(self.after.end)..end_of(self.before.end)
    }
}

/// What is left to be written of frozen memtables.
pub(crate) struct Frozen<'a> {
    region: &'a Region,
    /// In the file of shared memory.
    left: Vec<Range<usize>>,
    part_bytes: usize,
    /// Of the log, at the last part.
    syncs: u64,
}

impl Frozen<'_> {
    /// The next part, if commits wait for the disk.
    pub(crate) fn write_part(&mut self) {
        let log = self.region.log();
        if std::mem::replace(&mut self.syncs, log.syncs()) == log.syncs() || !log.do_few_wait() {
            return;
        }
        if let Some(part) = self.next_part() {
            self.region.begin_to_write(part);
        }
    }

    fn next_part(&mut self) -> Option<Range<usize>> {
        let range = self.left.pop()?;
        let end = range.end.min(range.start + self.part_bytes);
        if end < range.end {
            self.left.push(end..range.end);
        }
        Some(range.start..end)
    }
}

impl Region {
    /// Asks for the portions that are full now.
    pub(crate) fn write_out(&self, taken: &Taken) {
        let filled = taken.filled();
        if !filled.is_empty() && self.log().do_few_wait() {
            self.begin_to_write(in_file(taken.arena, filled));
        }
    }

    /// For [`Frozen::write_part`]: what commits have not written of these memtables, each with its arena.
    pub(crate) fn left_of<'a>(
        &self,
        memtables: impl Iterator<Item = (usize, &'a Memtable)>,
    ) -> Frozen<'_> {
        let left_of_one = |(arena, memtable): (usize, &Memtable)| {
            let free = memtable.free_space();
            let records = free.end..free.end.next_multiple_of(PORTION_BYTES);
            [in_file(arena, 0..free.start), in_file(arena, records)]
        };
        let left: Vec<_> =
            memtables.flat_map(left_of_one).filter(|range| !range.is_empty()).collect();
        let bytes: usize = left.iter().map(ExactSizeIterator::len).sum();
        let part_bytes = bytes.div_ceil(PARTS).next_multiple_of(LEAST_PART_BYTES);
        Frozen { region: self, left, part_bytes, syncs: self.log().syncs() }
    }

    fn begin_to_write(&self, part: Range<usize>) {
        let (file, begin) = (self.file().as_raw_fd(), libc::SYNC_FILE_RANGE_WRITE);
        // SAFETY: a file that is open as long as the region; no memory is passed.
        unsafe { libc::sync_file_range(file, part.start as i64, part.len() as i64, begin) };
    }
}

/// Where a part of an arena is in the file.
fn in_file(arena: usize, part: Range<u32>) -> Range<usize> {
    let start = ARENAS_OFFSET + arena * ARENA_BYTES;
    start + part.start as usize..start + part.end as usize
}

#[cfg(test)]
mod tests {
    use super::super::read_marks::tests::join;
    use super::*;

    const KIB: u32 = 1024;

    fn filled(before: Range<u32>, after: Range<u32>) -> Range<u32> {
        Taken { arena: 0, before, after }.filled()
    }

    #[test]
    fn a_portion_is_written_when_it_is_full_and_once() {
        let whole = 16 * 1024 * KIB;
        assert!(filled(0..whole, 0..whole - 255 * KIB).is_empty());
        let portion = filled(0..whole - 255 * KIB, 0..whole - 257 * KIB);
        assert_eq!(portion, whole - 256 * KIB..whole);
        assert!(filled(0..whole - 257 * KIB, 0..whole - 500 * KIB).is_empty());
    }

    #[test]
    fn all_that_one_commit_has_filled_is_written() {
        let whole = 16 * 1024 * KIB;
        assert_eq!(filled(0..whole, 9..whole - 3_000 * KIB), whole - 2_816 * KIB..whole);
    }

    #[test]
    fn what_is_left_of_frozen_memtables_is_written_in_parts_and_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let marks = join(&dir.path().join("shm"), 1);
        let left = vec![0..150_000, 300_000..300_001, 400_000..460_000];
        let mut frozen = Frozen { region: marks.region(), left, part_bytes: 64 << 10, syncs: 0 };
        let mut parts: Vec<_> = std::iter::from_fn(|| frozen.next_part()).collect();
        assert!(parts.iter().all(|part| (1..=64 << 10).contains(&part.len())), "{parts:?}");
        parts.sort_by_key(|part| part.start);
        let bytes: Vec<usize> = parts.into_iter().flatten().collect();
        let all: Vec<usize> = (0..150_000).chain([300_000]).chain(400_000..460_000).collect();
        assert!(bytes == all);
    }

    const _: () = assert!((ARENA_BYTES as u32).is_multiple_of(PORTION_BYTES));
}
