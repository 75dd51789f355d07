//! Read locks of the base's WAL, in shared memory.
//!
//! A reader of a WAL database holds a shared lock on one of the WAL-index's five read marks, which tells checkpoints how
//! far they may go and writers whether the WAL may start over. SQLite takes it by fcntl: two system calls a
//! transaction, each of them the slower the more processes hold locks. While the base is fenced only connections of
//! ours begin to read it, and for those the lock is a count here.
//!
//! | who | shared | exclusive (checkpoints, moving a mark) |
//! |---|---|---|
//! | attached, and the WAL-index says that the base is fenced | counted here; by fcntl on a mark of an older position | owner here, then by fcntl |
//! | the hidden connection, base at rest | by fcntl | owner here, then by fcntl |
//! | of ours, base at rest or not attached (yet) | by fcntl | by fcntl at rest; under the fence never |
//! | stock SQLite | by fcntl, before the fence | by fcntl, before the fence |
//!
//! Stock SQLite and the fence: the commit that raises the fence gives the WAL-index header a version of ours. Stock
//! SQLite looks at it whenever it begins to read, to write or to checkpoint, and refuses before it takes any lock.
//! One that has begun goes on, its lock stands in the file, and the frames that it may copy are older than any
//! that a reader counted here needs (see docs/locks.md).
//!
//! Invariants
//! - MARK-1 A mark is never locked shared and exclusively at once: a reader counts itself before it looks at the owner, the
//!   owner stands there before it looks at the counts, and all four steps are sequentially consistent.
//! - MARK-2 A count belongs to a process. One of a process that is dead counts for nothing, and a dead owner owns nothing:
//!   whoever meets them asks whether the process lives, and needs no reaper.
//! - MARK-3 A process counts readers here only while it holds its claim on the log (session.rs), so that no recovery can
//!   run beside it with another shared memory file.
//! - MARK-4 A child made by fork neither takes nor gives back anything here: it all is its parent's.
//!
//! # The WAL-index of a session
//!
//! Which WAL-index (`-shm`) the members of a session have open: shared memory remembers its inode.
//!
//! SQLite makes that file anew for whoever finds none. If somebody removes it under living programs, there are two of them for one WAL: two
//! programs write frames over each other's, and a checkpoint brings a part. So there is to be one.
//!
//! Removing it is right where nobody has it open: the last of SQLite's connections to close does, in whatever program, under a lock on the
//! database file that it gets only if nobody has the shared one, which goes with an open WAL. So another inode alone means nothing.
//! Another one while a member has the first open does.
//!
//! Invariants
//! - WALINDEX-1 A connection is counted (`ProcessSlot::connections`) only while its handle has its WAL open: it attaches behind a transaction that
//!   has opened it, and ends ([`attach::end`](crate::attach::end)) before it closes it. So while one is counted nobody removes the file by right.
//! - WALINDEX-2 The inode is that of all who are counted. Who comes with another one puts his in its place if nobody is counted, and is
//!   refused otherwise: when he attaches, and again in the first transaction on each WAL that he opens, since another may have come between.
//! - WALINDEX-3 Hidden connections, which are not counted, are asked in the same way before they write, checkpoint or raise the fence.
//!
//! Deliberately absent: the inode is never forgotten, for nothing but a look at who is counted says whether it still means anything. A process
//! that is killed loses its locks one after the other: for a moment it may be counted without SQLite's, and who is refused looks
//! again for as long as a death may take. A handle without an index (0), which wants the file for itself alone, is
//! asked nothing and is counted for a moment. A member that is told of another index has closed its own, and is counted until its handle is closed.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use super::layout::{ProcessSlot, READ_MARKS};
use super::region::Region;
use super::{fork, process};
use crate::error::{Error, Result};
use crate::ids::ProcessIndex;
use crate::sync::yielding::Yielding;

/// The read marks, as one process locks them.
pub struct ReadMarks {
    region: Arc<Region>,
    process: ProcessIndex,
    fork_generation: u64,
    yielding: Yielding,
}

impl ReadMarks {
    /// For the process of slot `process`, which has registered.
    pub fn new(region: Arc<Region>, process: ProcessIndex) -> ReadMarks {
        ReadMarks {
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

    /// Whether the session has another WAL-index than this one: see [`is_strange`].
    pub fn is_strange_index(&self, inode: u64) -> bool {
        is_strange(&self.region, Some(self.process), inode)
    }

    /// Locks `mark` shared; false if somebody has it exclusively.
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

    /// Gives one shared lock on `mark` back.
    pub fn unlock_shared(&self, mark: usize) {
        if !self.is_forked() {
            // Release: whoever finds nobody here may overwrite what was read.
            let before = self.count(mark).fetch_sub(1, Release);
            debug_assert!(before > 0, "MARK-1: mark {mark} was not locked");
        }
    }

    /// Locks all of `marks` exclusively; false, and none of them, if somebody has one.
    pub fn lock_exclusive(&self, marks: Range<usize>) -> bool {
        if self.is_forked() {
            return false;
        }
        let mine = self.process.0 + 1;
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

    /// Gives exclusive locks back.
    pub fn unlock_exclusive(&self, marks: Range<usize>) {
        if !self.is_forked() {
            for mark in marks {
                // Release: what was changed under the lock comes before it.
                self.owner(mark).store(0, Release);
            }
        }
    }

    /// True if a living process, this one included, counts a reader on any of `marks`.
    fn is_read(&self, marks: &Range<usize>) -> bool {
        // SeqCst: whoever counted itself before `owner` was ours has raised this before.
        let used = self.region.control().processes_high_water.load(SeqCst) as usize;
        self.slots().iter().enumerate().take(used).any(|(i, slot)| {
            slot.readers[marks.clone()].iter().any(|count| count.load(SeqCst) != 0)
                && process::is_alive(&self.region, self.process, ProcessIndex(i as u32))
        })
    }

    /// True if nobody has `mark` exclusively; a dead owner (MARK-2) has it no more.
    fn disown_dead(&self, mark: usize) -> bool {
        let owner = self.owner(mark).load(SeqCst);
        owner == 0 || self.is_dead(owner) && self.disown(mark, owner)
    }

    fn is_dead(&self, owner: u32) -> bool {
        !process::is_alive(&self.region, self.process, ProcessIndex(owner - 1))
    }

    /// False if somebody else was faster, and perhaps has it by now.
    fn disown(&self, mark: usize, owner: u32) -> bool {
        self.owner(mark).compare_exchange(owner, 0, SeqCst, SeqCst).is_ok()
    }
}

/// Forgets what a process held that is gone or is only coming. Its slot is not free yet, or already taken.
pub(super) fn forget(region: &Region, process: ProcessIndex) {
    for count in &region.layout().processes[process.0 as usize].readers {
        count.store(0, Release);
    }
    for owner in &region.control().mark_owners {
        // Failure: it belongs to somebody else.
        let _ = owner.compare_exchange(process.0 + 1, 0, SeqCst, SeqCst);
    }
}

const _: () = assert!(READ_MARKS == 5, "WAL_NREADER of wal.c");

/// Whether a member of the session has another WAL-index than this one open, 0 standing for none. `own`: the slot of this process, if it has one.
pub fn is_strange(region: &Region, own: Option<ProcessIndex>, inode: u64) -> bool {
    // Relaxed: the number is all that is told. Whoever has stored it was counted later, which is read behind it.
    let known = region.header().wal_index_ino.load(Relaxed);
    known != inode && known != 0 && inode != 0 && process::any_connected(region, own)
}

/// WALINDEX-2, of who is about to be counted.
///
/// # Errors
/// `StrangeIndex`.
pub fn agree(
    region: &Region,
    own: Option<ProcessIndex>,
    inode: u64,
    database: &Path,
) -> Result<()> {
    if is_strange(region, own, inode) {
        return Err(Error::StrangeIndex(database.to_owned()));
    }
    if inode != 0 {
        region.header().wal_index_ino.store(inode, Relaxed);
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

    /// One process of several: a mapping with locks of its own.
    pub(crate) fn join(path: &Path, nonce: u64) -> ReadMarks {
        let file = LockFile::open(|| {
            File::options().read(true).write(true).create(true).truncate(false).open(path)
        });
        let region = Region::map(Arc::new(file.unwrap()), path).unwrap();
        if !region.is_trusted(BaseIdentity { dev: 1, ino: 2 }) {
            region.reset().unwrap();
            region.publish(BaseIdentity { dev: 1, ino: 2 }).unwrap();
        }
        let slots = &region.layout().processes;
        // Two of one pid may not register: a different namespace makes them two.
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
        // Its file closes with it, and with the file the lock that says it lives.
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
            // Owners can keep all readers out for as long as a time slice.
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
