//! Read locks of the base's WAL, in shared memory.
//!
//! A reader of a WAL database holds a shared lock on one of the WAL-index's five read marks. The
//! lock shows checkpoints how far they may go, and writers whether the WAL may start over. SQLite
//! takes it by fcntl: two system calls a transaction, which get slower with each process that holds
//! locks. While the base is fenced only Plait's connections begin to read it, and their locks are
//! counts in shared memory.
//!
//! | connection | shared | exclusive (checkpoints, moving a mark) |
//! |---|---|---|
//! | attached, and the WAL-index shows the fence | a count (1) | owner word, then fcntl |
//! | the hidden connection, base at rest | fcntl | owner word, then fcntl |
//! | other connections of Plait, base at rest or not attached | fcntl | fcntl at rest (2) |
//! | stock SQLite | fcntl, before the fence | fcntl, before the fence |
//!
//! (1) By fcntl on a mark of an older position. (2) Never under the fence.
//!
//! The commit that raises the fence gives the WAL-index header a version of Plait's own. Stock
//! SQLite reads the version whenever it begins to read, to write or to checkpoint, and refuses
//! before it takes any lock. A stock transaction that has begun goes on. Its lock is in the file,
//! and the frames that it may copy are older than any that a counted reader needs (see
//! docs/locks.md).
//!
//! Invariants
//! - MARK-1 A mark is never locked shared and exclusively at once. A reader raises its count before
//!   it reads the owner, an owner stores itself before it reads the counts, and all four steps are
//!   sequentially consistent.
//! - MARK-2 A count belongs to a process. The count of a dead process counts for nothing, and a
//!   dead owner owns nothing: a thread that finds either tests whether the process lives, and needs
//!   no reaper. An owner's word names its slot and how often that was taken: the word of a dead
//!   process is never that of the next one in its slot, whose lock would be cleared with it.
//! - MARK-3 A process counts readers only while it holds its claim on the log (session.rs), so that
//!   no recovery can run at the same time with another shared memory file.
//! - MARK-4 A child made by fork neither takes nor releases any of these locks: all are its
//!   parent's.
//!
//! # The WAL-index of a session
//!
//! All members of a session have one WAL-index (`-shm`) open. Shared memory has its inode.
//!
//! SQLite makes the file anew for a connection that finds none. If the file is removed under live
//! programs, one WAL has two of them: two programs overwrite each other's frames, and a checkpoint
//! brings a part. So there must be one.
//!
//! Removing the file is right when no connection has it open. The last SQLite connection of any
//! program does so on closing, under a lock on the database file that excludes every open WAL. So
//! another inode alone means nothing; it is an error while a member has the first file open.
//!
//! Invariants
//! - WALINDEX-1 A connection is counted (`ProcessSlot::connections`) only while its handle has its
//!   WAL open: it attaches after a transaction that has opened the WAL, and ends
//!   ([`attach::end`](crate::attach::end)) before it closes the WAL. So while a connection is
//!   counted the file may not be removed.
//! - WALINDEX-2 The stored inode is that of all counted connections. A connection with another
//!   inode stores its own if none is counted, and is refused otherwise: when it attaches, and again
//!   in the first transaction on each WAL that it opens, since the file may have been replaced in
//!   between.
//! - WALINDEX-3 Hidden connections, which are not counted, are checked in the same way before they
//!   write, checkpoint or raise the fence.
//!
//! Deliberately absent: the inode is never cleared, since only the counts show whether it still
//! means anything. A killed process loses its locks one after the other. For a moment it may be
//! counted without SQLite's lock, so a refused connection tries again for as long as a death may
//! take. A handle without an index (0), which wants the file for itself alone, is not checked and
//! is counted for a moment. A member that is refused for another index has closed its own, and is
//! counted until its handle is closed.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use super::layout::{ProcessSlot, READ_MARKS};
use super::region::Region;
use super::{fork, process};
use crate::error::{Error, Result};
use crate::ids::{PROCESS_SLOTS, ProcessIndex};
use crate::sync::yielding::Yielding;

/// One process's access to the locks on the read marks.
pub struct ReadMarks {
    region: Arc<Region>,
    process: ProcessIndex,
    /// This process as an owner.
    word: u32,
    fork_generation: u64,
    yielding: Yielding,
}

/// Bits of an owner's word that hold its slot index + 1. The others count how often the slot was
/// taken.
const SLOT_BITS: u32 = u16::BITS;
const _: () = assert!(PROCESS_SLOTS < 1 << SLOT_BITS);

/// Returns the word under which the process of slot `index` owns marks.
fn owner_word(region: &Region, index: ProcessIndex) -> u32 {
    // Acquire pairs with the AcqRel in `register`: the former owner of the slot is dead.
    let taken = region.layout().processes[index.0 as usize].generation.load(Acquire);
    (index.0 + 1) | taken << SLOT_BITS
}

fn slot_of(owner: u32) -> Option<ProcessIndex> {
    (owner & ((1 << SLOT_BITS) - 1)).checked_sub(1).map(ProcessIndex)
}

impl ReadMarks {
    /// Returns the access of the process of slot `process`, which has registered.
    pub fn new(region: Arc<Region>, process: ProcessIndex) -> ReadMarks {
        ReadMarks {
            word: owner_word(&region, process),
            region,
            process,
            fork_generation: fork::fork_generation(),
            yielding: Yielding::default(),
        }
    }

    pub(crate) fn yielding(&self) -> &Yielding {
        &self.yielding
    }

    fn owner(&self, mark: usize) -> &AtomicU32 {
        &self.region.control().mark_owners[mark]
    }

    fn count(&self, mark: usize) -> &AtomicU32 {
        &self.slots()[self.process.0 as usize].readers[mark]
    }

    fn slots(&self) -> &[ProcessSlot] {
        &self.region.layout().processes
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    fn is_forked(&self) -> bool {
        fork::fork_generation() != self.fork_generation
    }

    /// Stops the database for every process: a call here has panicked (COMMIT-4).
    pub fn poison(&self) {
        self.region.log().set_broken();
    }

    /// True if the session has another WAL-index than this one: see [`has_other_wal_index`].
    pub fn is_strange_index(&self, inode: u64) -> bool {
        has_other_wal_index(&self.region, Some(self.process), inode)
    }

    /// Locks `mark` shared; false if another thread has it exclusively.
    pub fn lock_shared(&self, mark: usize) -> bool {
        if self.is_forked() {
            return false;
        }
        self.count(mark).fetch_add(1, SeqCst);
        if self.disown_dead(mark) {
            return true;
        }
        self.unlock_shared(mark);
        false
    }

    /// Releases one shared lock on `mark`.
    pub fn unlock_shared(&self, mark: usize) {
        if !self.is_forked() {
            // Release: an owner that finds no reader may overwrite what was read.
            let before = self.count(mark).fetch_sub(1, Release);
            debug_assert!(before > 0, "MARK-1: mark {mark} was not locked");
        }
    }

    /// Locks all of `marks` exclusively. False, with none locked, if another thread has one of
    /// them.
    pub fn lock_exclusive(&self, marks: Range<usize>) -> bool {
        if self.is_forked() {
            return false;
        }
        let mine = self.word;
        for mark in marks.clone() {
            let is_free = self.disown_dead(mark)
                && self.owner(mark).compare_exchange(0, mine, SeqCst, SeqCst).is_ok();
            if !is_free {
                self.unlock_exclusive(marks.start..mark);
                return false;
            }
        }
        if self.is_read(&marks) {
            self.unlock_exclusive(marks);
            return false;
        }
        true
    }

    /// Releases exclusive locks.
    pub fn unlock_exclusive(&self, marks: Range<usize>) {
        if !self.is_forked() {
            for mark in marks {
                // Release: changes made under the lock come first.
                self.owner(mark).store(0, Release);
            }
        }
    }

    /// True if a live process, this one included, counts a reader on any of `marks`.
    fn is_read(&self, marks: &Range<usize>) -> bool {
        // SeqCst: a reader that was counted before `owner` was ours has raised this word before.
        let used = self.region.control().processes_high_water.load(SeqCst) as usize;
        self.slots().iter().enumerate().take(used).any(|(i, slot)| {
            slot.readers[marks.clone()].iter().any(|count| count.load(SeqCst) != 0)
                && process::is_alive(&self.region, self.process, ProcessIndex(i as u32))
        })
    }

    /// True if no process has `mark` exclusively. Takes it from a dead owner (MARK-2).
    fn disown_dead(&self, mark: usize) -> bool {
        let owner = self.owner(mark).load(SeqCst);
        owner == 0 || self.is_dead(owner) && self.disown(mark, owner)
    }

    fn is_dead(&self, owner: u32) -> bool {
        let Some(index) = slot_of(owner).filter(|index| (index.0 as usize) < PROCESS_SLOTS) else {
            return true;
        };
        owner != owner_word(&self.region, index)
            || !process::is_alive(&self.region, self.process, index)
    }

    /// Clears a dead `owner`. False if another thread did so first, and perhaps owns the mark by
    /// now.
    fn disown(&self, mark: usize, owner: u32) -> bool {
        self.owner(mark).compare_exchange(owner, 0, SeqCst, SeqCst).is_ok()
    }
}

/// Clears the locks of a slot whose process is dead or just registers. The slot is not free yet, or
/// already taken.
pub(super) fn forget(region: &Region, process: ProcessIndex) {
    for count in &region.layout().processes[process.0 as usize].readers {
        count.store(0, Release);
    }
    for owner in &region.control().mark_owners {
        let word = owner.load(SeqCst);
        if slot_of(word) == Some(process) {
            // Failure: another thread has found that owner dead.
            let _ = owner.compare_exchange(word, 0, SeqCst, SeqCst);
        }
    }
}

const _: () = assert!(READ_MARKS == 5, "WAL_NREADER of wal.c");

/// True if a member of the session has another WAL-index than `inode` open; an `inode` of 0 means
/// none. `own`: the slot of this process, if it has one.
pub fn has_other_wal_index(region: &Region, own: Option<ProcessIndex>, inode: u64) -> bool {
    // Relaxed: the word publishes only itself. A connection is counted after it has stored its
    // inode, and the counts are read last.
    let known = region.header().wal_index_ino.load(Relaxed);
    known != inode && known != 0 && inode != 0 && process::any_connected(region, own)
}

/// Checks and stores the WAL-index of a connection that is about to be counted (WALINDEX-2).
///
/// # Errors
/// `StrangeIndex`.
pub fn agree(
    region: &Region,
    own: Option<ProcessIndex>,
    inode: u64,
    database: &Path,
) -> Result<()> {
    if has_other_wal_index(region, own, inode) {
        return Err(Error::StrangeIndex(database.to_owned()));
    }
    let known = &region.header().wal_index_ino;
    // Most find it there. A first store to a page costs a process a fault.
    if inode != 0 && known.load(Relaxed) != inode {
        known.store(inode, Relaxed);
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::fork::LockFile;
    use super::super::region::BaseIdentity;
    use super::*;
    use std::fs::File;
    use std::path::Path;

    /// Joins as one process of several: a mapping with its own locks.
    pub(crate) fn join(path: &Path, nonce: u64) -> ReadMarks {
        let file = LockFile::open(|| {
            File::options().read(true).write(true).create(true).truncate(false).open(path)
        });
        let file = file.unwrap();
        let len = file.metadata().unwrap().len();
        let region = Region::map(Arc::new(file), len, path).unwrap();
        if !region.is_trusted(BaseIdentity { dev: 1, ino: 2 }) {
            region.reset().unwrap();
            region.publish(BaseIdentity { dev: 1, ino: 2 }).unwrap();
        }
        let slots = &region.layout().processes;
        // Two processes with one pid may not register: different namespaces make them two.
        for slot in slots {
            slot.pid_namespace.store(nonce, std::sync::atomic::Ordering::Relaxed);
        }
        let me = process::register(&region, nonce).unwrap();
        ReadMarks::new(Arc::new(region), me.index())
    }

    #[test]
    fn readers_share_a_mark_and_shut_an_owner_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shm");
        let (a, b) = (join(&path, 1), join(&path, 2));
        assert!(a.lock_shared(2) && a.lock_shared(2) && b.lock_shared(2));
        assert!(!a.lock_exclusive(2..3) && !b.lock_exclusive(0..5));
        assert!(b.lock_exclusive(3..5), "the other marks are free, also after a refusal");
        b.unlock_exclusive(3..5);
        a.unlock_shared(2);
        b.unlock_shared(2);
        assert!(!b.lock_exclusive(2..3), "one reader is left");
        a.unlock_shared(2);
        assert!(b.lock_exclusive(2..3));
    }

    #[test]
    fn an_owner_shuts_readers_and_other_owners_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shm");
        let (a, b) = (join(&path, 1), join(&path, 2));
        assert!(a.lock_exclusive(1..5));
        assert!(!b.lock_shared(1) && !a.lock_shared(4) && b.lock_shared(0));
        assert!(!b.lock_exclusive(1..2) && !a.lock_exclusive(4..5));
        a.unlock_exclusive(1..5);
        assert!(b.lock_shared(1) && a.lock_shared(4));
    }

    // holds MARK-2, PROC-2
    #[test]
    fn the_dead_hold_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shm");
        let (a, dead) = (join(&path, 1), join(&path, 2));
        assert!(dead.lock_shared(1) && dead.lock_exclusive(2..4));
        assert!(!a.lock_exclusive(1..2) && !a.lock_shared(2));
        // Its file closes with it, and so its process lock ends.
        drop(dead);
        assert!(a.lock_exclusive(1..2), "a reader");
        assert!(a.lock_shared(2), "an owner, met by a reader");
        assert!(a.lock_exclusive(3..4), "an owner, met by another");
    }

    // holds MARK-2
    #[test]
    fn a_slot_is_taken_over_without_what_its_last_owner_held() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shm");
        let (a, dead) = (join(&path, 1), join(&path, 2));
        assert!(dead.lock_shared(1) && dead.lock_exclusive(2..4));
        let index = dead.process;
        drop(dead);
        process::clear_dead(&a.region, index);
        let heir = join(&path, 3);
        assert_eq!(heir.process, index);
        assert!(a.lock_exclusive(1..4));
    }

    // holds MARK-2
    #[test]
    fn a_thread_that_saw_a_dead_owner_does_not_clear_the_lock_of_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shm");
        let (a, dead) = (join(&path, 1), join(&path, 2));
        assert!(dead.lock_exclusive(2..3));
        let (index, seen) = (dead.process, a.owner(2).load(SeqCst));
        drop(dead);
        assert!(a.is_dead(seen));
        process::clear_dead(&a.region, index);
        let heir = join(&path, 3);
        assert_eq!(heir.process, index);
        assert!(heir.lock_exclusive(2..3));
        assert!(!a.disown(2, seen));
        assert!(!a.lock_shared(2));
    }

    // holds MARK-1
    #[test]
    fn readers_and_owners_exclude_each_other_at_any_moment() {
        use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shm");
        let (a, b) = (join(&path, 1), join(&path, 2));
        // Above 0: readers. -1: an owner.
        let (inside, stop) = (AtomicI32::new(0), AtomicBool::new(false));
        let has_read = AtomicBool::new(false);
        let read = |marks: &ReadMarks| {
            while !stop.load(SeqCst) {
                if marks.lock_shared(3) {
                    has_read.store(true, SeqCst);
                    assert!(inside.fetch_add(1, SeqCst) >= 0, "MARK-1");
                    inside.fetch_sub(1, SeqCst);
                    marks.unlock_shared(3);
                }
            }
        };
        let own = |marks: &ReadMarks| {
            let mut times = 0;
            // Owners may keep all readers out for a whole time slice.
            while times < 500 || !has_read.load(SeqCst) {
                if marks.lock_exclusive(2..4) {
                    assert_eq!(inside.fetch_sub(1, SeqCst), 0, "MARK-1");
                    inside.fetch_add(1, SeqCst);
                    marks.unlock_exclusive(2..4);
                    times += 1;
                }
            }
        };
        std::thread::scope(|s| {
            s.spawn(|| read(&a));
            s.spawn(|| read(&b));
            let owners = [s.spawn(|| own(&a)), s.spawn(|| own(&b))];
            for owner in owners {
                owner.join().unwrap();
            }
            stop.store(true, SeqCst);
        });
    }
}
