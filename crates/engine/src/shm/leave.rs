//! Who merges and checkpoints leaves the disk and the processor to commits that wait for the disk.
//!
//! The checkpoint of a merge hands tens of thousands of scattered pages to the disk, and a disk that works at all of them makes each sync of
//! the log wait: commits that came at half the rate that they could were a hundred milliseconds behind at its end. Nobody waits for the
//! checkpoint. So who writes for it asks after each portion (csrc/writeout.c) whether commits sync the log meanwhile, and then waits until the
//! portion is on disk: a sync has no more before it.
//!
//! | commits sync the log | the next merge is due | the checkpoint |
//! |---|---|---|
//! | no: there are none, or they do not wait for the disk | any | goes on |
//! | yes | no | waits for each portion |
//! | yes | yes | goes on: else commits would wait for memory before long |
//!
//! A merge computes for a second, and where there are no more processors than threads, whoever has slept for its sync waits for the end of a
//! time slice of the merge, with all who sleep for the same group: commits came up to a hundred milliseconds late. So merge and checkpoint
//! yield for each few rows and each page while the log is being synced. If nobody else is to run that costs a system call. Where many wait
//! for one sync they commit as fast as they can, and a merge that gives way to each of them makes them wait for memory: a sixth fewer commits
//! with 100 threads. So it gives way to [`FEW`].
//!
//! It is a hint: whatever is answered, nothing else relies on it.

use std::mem;

use super::read_marks::ReadMarks;
use crate::log::LogShared;
use crate::sync::yielding::Yielding;

/// As many wait for one sync where commits do not come as fast as they can, or where there are few writers.
const FEW: u32 = 8;

impl ReadMarks {
    /// Whether the disk should be left to commits now. `syncs` is what this call has left there before, 0 at first: it counts those of the log.
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
    /// Few wait for the log to be synced: they are to be served soon rather than as many as can be.
    pub(crate) fn do_few_wait(&self) -> bool {
        self.count_sleepers() <= FEW
    }

    /// Lets commits run that wait for the disk; `yielding` knows whether that has been worth it.
    pub(crate) fn leave_processor(&self, yielding: &Yielding) {
        if self.is_syncing() && self.do_few_wait() {
            let _ = yielding.once(|| self.log_end());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::super::layout::generation;
    use super::super::read_marks::tests::join;

    #[test]
    fn it_is_left_to_commits_that_sync_until_the_next_merge_is_due() {
        let dir = tempfile::tempdir().unwrap();
        let marks = join(&dir.path().join("shm"), 1);
        let mut seen = 0;
        assert!(!marks.should_leave_disk(&mut seen), "nobody syncs");
        marks.region().log().note_sync();
        assert!(marks.should_leave_disk(&mut seen));
        assert!(!marks.should_leave_disk(&mut seen), "nobody has synced since");
        let generations = &marks.region().control().generations;
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
}
