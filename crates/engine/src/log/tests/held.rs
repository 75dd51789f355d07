//! A process is stopped in its sync or its write, or has a slow disk: the other processes go on.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use super::*;
use crate::storage::sim::SimOp;
use crate::storage::{FileIdentity, Folder, StorageFile};

/// A simulated file system on which the syncs, or the writes, of one handle can be held.
#[derive(Debug, Clone)]
struct Held {
    inner: SimStorage,
    /// While set, syncs of the files opened through this do not return.
    hold: Arc<AtomicBool>,
    /// The same for writes.
    hold_writes: Arc<AtomicBool>,
    /// A held operation has begun.
    begun: Arc<AtomicBool>,
    /// An operation was held for [`AT_MOST`]: another process waited for it.
    waited_for: Arc<AtomicBool>,
}

/// How long an operation is held at most: generous for anything but a hang.
const AT_MOST: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct HeldFile {
    inner: Box<dyn StorageFile>,
    held: Held,
}

impl Held {
    fn of(storage: &SimStorage) -> Held {
        Held {
            inner: storage.clone(),
            hold: Arc::default(),
            hold_writes: Arc::default(),
            begun: Arc::default(),
            waited_for: Arc::default(),
        }
    }

    fn stand_while(&self, stands: &AtomicBool) {
        self.begun.store(true, SeqCst);
        let begun = Instant::now();
        while stands.load(SeqCst) {
            if begun.elapsed() > AT_MOST {
                self.waited_for.store(true, SeqCst);
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn wrap(&self, inner: Box<dyn StorageFile>) -> Box<dyn StorageFile> {
        Box::new(HeldFile { inner, held: self.clone() })
    }
}

impl Storage for Held {
    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn StorageFile>> {
        Ok(self.wrap(self.inner.create(path, mode)?))
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn StorageFile>> {
        Ok(self.wrap(self.inner.open(path)?))
    }
    fn open_read_only(&self, path: &Path) -> io::Result<Box<dyn StorageFile>> {
        self.inner.open_read_only(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }
    fn identity_at(&self, path: &Path) -> io::Result<Option<FileIdentity>> {
        self.inner.identity_at(path)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }
    fn open_dir_of(&self, path: &Path) -> io::Result<Box<dyn Folder>> {
        self.inner.open_dir_of(path)
    }
}

impl StorageFile for HeldFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.inner.read_at(buf, at)
    }
    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        if self.held.hold_writes.load(SeqCst) {
            self.held.stand_while(&self.held.hold_writes);
        }
        self.inner.write_at(buf, at)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.held.stand_while(&self.held.hold);
        self.inner.sync_data()
    }
    fn len_at(&self, path: &Path) -> io::Result<Option<u64>> {
        self.inner.len_at(path)
    }
    fn identity(&self) -> io::Result<FileIdentity> {
        self.inner.identity()
    }
    fn len_bytes(&self) -> io::Result<u64> {
        self.inner.len_bytes()
    }
}

/// Two processes on one log, as far as the log can tell: two handles on the file, and two of
/// everything that is not shared.
struct Two {
    storage: SimStorage,
    held: Held,
    first: Bench,
    second: Log,
}

impl Two {
    fn new() -> Two {
        Two::with(SMALL)
    }

    fn with(sizes: Sizes) -> Two {
        let storage = SimStorage::new();
        let held = Held::of(&storage);
        let first = Bench::try_new(held.clone(), &path(), sizes).expect("a log");
        // SAFETY: initialised by the bench. The other log is dropped after it, but not used after
        // it.
        let ring = unsafe { Ring::new(first.memory.parts()) };
        let file = LogFile::open(&storage, &path(), SALT).expect("the same log");
        let base_wal = BaseWal::new(Arc::new(storage.clone()), PathBuf::from(BASE_WAL));
        let party = Arc::new(Party::new(Identity::new(ProcessIndex(1), 1), |_| true));
        let second = Log::new(ring, file, base_wal, party);
        Two { storage, held, first, second }
    }

    /// Commits in the second process.
    fn commit(&self, ts: u64, rec_len: usize) -> Lsn {
        self.commit_into(1, ts, rec_len)
    }

    fn commit_into(&self, generation: u32, ts: u64, rec_len: usize) -> Lsn {
        let rec = vec![ts as u8; rec_len];
        let key = ts.to_be_bytes();
        let op = Op { root: Root::new(2), kind: OpKind::Put, key: &key, rec: &rec };
        let generation = Generation::new(generation);
        let head = FrameHead { commit_ts: CommitTs::new(ts), generation };
        loop {
            let guard = self.first.lock_commit();
            let appended = self.second.ring().append(&guard, &head, frame_len([op]), [op]);
            if let Ok((_, end)) = appended {
                self.second.ring().publish_end(&guard, end);
                return end;
            }
            drop(guard);
            self.second.make_room(appended.expect_err("looked at")).expect("room");
        }
    }

    /// Runs `others` while the first process is stopped in the sync of its first commit.
    fn while_the_first_syncs(&self, others: impl FnOnce(Lsn)) {
        self.while_the_first_stands(&self.held.hold, others);
    }

    /// As [`Two::while_the_first_syncs`], but stopped in its write, with the write mutex.
    fn while_the_first_writes(&self, others: impl FnOnce(Lsn)) {
        self.while_the_first_stands(&self.held.hold_writes, others);
    }

    fn while_the_first_stands(&self, hold: &AtomicBool, others: impl FnOnce(Lsn)) {
        hold.store(true, SeqCst);
        self.held.begun.store(false, SeqCst);
        std::thread::scope(|scope| {
            let end = self.first.try_commit(1, 1, 100).expect("a commit");
            let leader = scope.spawn(move || self.first.log.sync_through(end));
            while !self.held.begun.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| others(end)));
            // Also after a failure, so that the test ends.
            hold.store(false, SeqCst);
            let led = leader.join().expect("no panic");
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            assert!(!self.held.waited_for.load(SeqCst), "the others waited for it");
            assert_eq!(led.is_ok(), self.first.log.shared().poisoned().is_none());
        });
    }
}

#[test]
fn commits_that_do_not_wait_for_the_disk_go_on_while_a_leader_stands_still() {
    let two = Two::new();
    two.while_the_first_syncs(|end| {
        // Many times the ring, so that it is overwritten again and again, and more segments than
        // slots, so that the file grows.
        for ts in 2..160 {
            let end = two.commit(ts, 200);
            two.second.relaxed_commit(end).expect("no wait");
        }
        two.second.write_if_free().expect("a write");
        let shared = two.second.shared();
        assert_eq!(shared.written_through(), shared.log_end());
        assert!(shared.log_end() - end > 4 * RING);
        assert!(shared.durable_through() < end, "nobody has synced a frame");
    });
    let shared = two.second.shared();
    assert!(
        shared.durable_through() < shared.log_end(),
        "the leader vouches for its own group alone"
    );
    two.second.sync_through(shared.log_end()).expect("a sync");
    let mut scan = LogScan::open(&two.storage, &path(), SALT, Generation::ZERO).expect("a log");
    assert_eq!(scan.summary().frames, 159);
    scan.replay(|_| Ok::<(), LogError>(())).expect("sound frames");
}

#[test]
fn a_growth_of_the_file_that_stands_still_stops_nobody_who_needs_a_slot() {
    let two = Two::new();
    two.held.hold.store(true, SeqCst);
    std::thread::scope(|scope| {
        let grower = scope.spawn(|| two.first.log.make_room(AppendError::NeedsSlots(4)));
        while !two.held.begun.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        two.second.make_room(AppendError::NeedsSlots(4)).expect("slots");
        two.second.make_room(AppendError::NeedsSlots(5)).expect("slots");
        for ts in 1..30 {
            two.commit(ts, 100);
        }
        two.second.write_through(two.second.shared().log_end()).expect("a write");
        assert!(!two.held.waited_for.load(SeqCst));
        assert!(two.second.status().slots > 4);
        two.held.hold.store(false, SeqCst);
        grower.join().expect("no panic").expect("its slots are there, too");
    });
    assert!(two.second.status().slots > 4, "a late grower takes no slot back");
    two.second.sync_through(two.second.shared().log_end()).expect("a sync");
    let scan = LogScan::open(&two.storage, &path(), SALT, Generation::ZERO).expect("a log");
    assert_eq!(scan.summary().frames, 29, "and overwrites none");
}

#[test]
fn others_sync_by_themselves_while_a_leader_stands_still() {
    let two = Two::new();
    two.while_the_first_syncs(|first| {
        for ts in 2..5 {
            let end = two.commit(ts, 100);
            two.second.sync_through(end).expect("a sync");
            assert!(two.second.shared().durable_through() >= end && end > first);
        }
    });
    // After a power cut everything that was acknowledged is there.
    let image = two.storage.crash(7);
    let scan = LogScan::open(&image, &path(), SALT, Generation::ZERO).expect("a log");
    assert_eq!(scan.summary().frames, 4);
}

#[test]
fn a_failed_sync_beside_a_leader_stops_the_log_for_both() {
    let two = Two::new();
    two.while_the_first_syncs(|_| {
        let end = two.commit(2, 100);
        two.storage.fail(SimOp::Sync, 1, libc::EIO, false);
        assert!(two.second.sync_through(end).is_err());
        assert!(two.second.shared().poisoned().is_some());
        assert!(two.second.shared().durable_through() < end);
    });
}

/// The kernel reports a lost page once to each open file: the second of two threads that sync
/// through one must not take silence for success.
#[test]
fn of_one_process_nobody_syncs_beside_its_own_leader() {
    let two = Two::new();
    two.while_the_first_syncs(|_| {
        let end = two.first.try_commit(2, 1, 100).expect("a commit");
        let waited = std::thread::scope(|scope| {
            let follower = scope.spawn(|| two.first.log.sync_through(end));
            std::thread::sleep(Duration::from_millis(700));
            let waits = !follower.is_finished();
            two.held.hold.store(false, SeqCst);
            follower.join().expect("no panic").expect("a sync");
            waits
        });
        assert!(waited);
    });
}

/// Returns how many sound frames the file has above a generation.
fn frames(storage: &SimStorage, above: u32) -> u64 {
    let mut scan =
        LogScan::open(storage, &path(), SALT, Generation::new(above)).expect("a sound log");
    scan.replay(|_| Ok::<(), LogError>(())).expect("sound frames");
    scan.summary().frames
}

// holds LOG-2
#[test]
fn commits_go_on_while_a_writer_of_the_log_stands_still() {
    let two = Two::new();
    two.while_the_first_writes(|end| {
        for ts in 2..160 {
            let end = two.commit(ts, 200);
            two.second.relaxed_commit(end).expect("no wait");
        }
        let last = two.commit(160, 200);
        two.second.sync_through(last).expect("a sync");
        assert!(last - end > 4 * RING, "the ring was used again and again");
        // The bytes that it is about to write are in the file already.
        assert_eq!(frames(&two.storage.crash(1), 0), 160);
    });
    // And the late write has written them again.
    assert_eq!(frames(&two.storage, 0), 160);
    let end = two.first.try_commit(161, 1, 100).expect("a commit");
    two.first.log.sync_through(end).expect("it goes on like everybody");
    assert_eq!(frames(&two.storage, 0), 161);
}

// holds INTENT-2
#[test]
fn a_late_write_meets_no_slot_that_holds_something_newer() {
    let two = Two::with(Sizes { slots: 3, limit: 8, ..SMALL });
    let mut ts = 1;
    let mut last = Lsn::new(0);
    two.while_the_first_writes(|_| {
        // Generations are retired one after the other, so that all slots but one are reused again
        // and again.
        for generation in 1..20 {
            for _ in 0..8 {
                ts += 1;
                last = two.commit_into(generation, ts, 200);
            }
            two.second.sync_through(last).expect("a sync");
            if generation > 1 {
                two.second.retire(Generation::new(generation - 1));
            }
        }
        assert_eq!(frames(&two.storage, 18), 8);
        assert!(two.second.status().slots <= 8);
    });
    assert_eq!(frames(&two.storage, 18), 8, "the late write has gone to its own slot");
    // After the late write that slot is used like the others.
    for generation in 20..30 {
        for _ in 0..8 {
            ts += 1;
            last = two.commit_into(generation, ts, 200);
        }
        two.second.sync_through(last).expect("a sync");
        two.second.retire(Generation::new(generation - 1));
        assert_eq!(frames(&two.storage, generation - 1), 8);
    }
    assert!(two.second.status().slots <= 8);
}

// holds INTENT-2
#[test]
fn a_slot_is_not_used_while_somebody_may_write_to_it() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, Sizes { slots: 2, limit: 2, ..SMALL });
    let shared = bench.log.shared();
    let end = bench.commit_durably(1, 1, 100);
    let slot = shared.slot_of(shared.segment_of(Lsn::new(end.get() - 1))).expect("a slot");
    // Another process has an intent for it, and goes no further.
    shared.intend(ProcessIndex(7), slot);
    bench.commit_durably(2, 2, 100);
    bench.log.retire(Generation::new(1));
    assert!(matches!(bench.try_commit(3, 3, 100), Err(LogError::Full { .. })));
    shared.withdraw_intent(ProcessIndex(7));
    bench.commit_durably(3, 3, 100);
}
