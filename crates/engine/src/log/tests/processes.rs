//! Several processes on one log, killed at any moment (COMMIT-2, COMMIT-5); the survivors go on in
//! bounded time.
//!
//! The test starts itself again as worker processes (the ignored test [`worker`]). They share the
//! memory through a mapped file, and record each acknowledged commit there. The page cache survives
//! SIGKILL.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};

use super::*;
use crate::shm::locks;
use crate::storage::os::OsStorage;

const SIZES: Sizes = Sizes { segment: 64 << 10, ring: 256 << 10, slots: 2, part: 0, limit: 64 };
const COMMITS_PER_GENERATION: u64 = 500;
/// Commits that can be recorded; sparse.
const RECORDS: usize = 64 << 20;
const NOTES: usize = 512;
/// Processes that can take part, with dead ones that no process has noticed.
const PLACES: usize = 64;
/// Byte of the memory's file whose lock says that the process in the first place lives.
const LOCKS: i64 = 1 << 40;
const DIR: &str = "PLAIT_LOG_TEST_DIR";

/// In the page of the commit mutex: what the memtables and the base would know.
#[repr(C)]
struct Notes {
    last_ts: AtomicU64,
    applied_lsn: AtomicU64,
    acknowledged: AtomicU64,
    base_generation: AtomicU32,
    stop: AtomicU32,
    /// How often each place was taken. A process in a place holds a lock on a byte of the file.
    places: [AtomicU32; PLACES],
}

impl Notes {
    fn of(map: &MmapRaw) -> &Notes {
        assert!(map.len() >= NOTES + size_of::<Notes>());
        // SAFETY: inside the mapping.
        let at = unsafe { map.as_mut_ptr().add(NOTES) };
        // SAFETY: aligned in the first page, which is mapped as long as the borrow. All fields are
        // atomics, valid when zero.
        unsafe { &*at.cast::<Notes>() }
    }

    /// Takes a free place, as a real process takes a slot in shared memory.
    fn join(file: File) -> Arc<Party> {
        let map = memmap2::MmapOptions::new().len(4096).map_raw(&file).expect("a mapping");
        let byte = |index: ProcessIndex| LOCKS + i64::from(index.0);
        let free = |index: &ProcessIndex| locks::try_lock(&file, byte(*index)).expect("a lock");
        let index = (0..PLACES as u32).map(ProcessIndex).find(free).expect("a free place");
        let generation = Notes::of(&map).places[index.0 as usize].fetch_add(1, SeqCst) + 1;
        Arc::new(Party::new(Identity::new(index, generation), move |who| {
            let generation = Notes::of(&map).places[who.index().0 as usize].load(SeqCst);
            Identity::new(who.index(), generation) == who
                && locks::is_locked_elsewhere(&file, byte(who.index())).expect("a look at a lock")
        }))
    }
}

struct Node {
    bench: Bench,
    records: usize,
}

impl Node {
    fn open(dir: &Path, create: bool) -> Node {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(create)
            .truncate(false)
            .open(dir.join("memory"))
            .expect("the memory file");
        let records = Memory::size(SIZES.ring);
        if create {
            file.set_len((records + RECORDS) as u64).expect("space");
        }
        let memory = Memory::of_file(&file, SIZES.ring);
        let path = dir.join("app.db-plait");
        let log_file = if create {
            memory.initialise(SIZES);
            let params = LogFileParams {
                salt: SALT,
                base_identity: (1, 2),
                mode: 0o600,
                prepared_bytes: SIZES.prepared_bytes(),
                segment_bytes: SIZES.segment,
            };
            LogFile::create(&OsStorage, &path, &params, |_| ()).expect("a log")
        } else {
            LogFile::open(&OsStorage, &path, SALT).expect("the log")
        };
        // SAFETY: initialised above or by the creator. `memory` is dropped after the log.
        let ring = unsafe { Ring::new(memory.parts()) };
        let base_wal = BaseWal::new(Arc::new(OsStorage), dir.join(BASE_WAL));
        let party = Notes::join(file);
        let log = Log::new(ring, log_file, base_wal, party.clone());
        // As at the registration of a process: the previous process in this place is dead.
        log.shared().withdraw_intent(party.index());
        let node = Node { bench: Bench { log, memory, party }, records };
        if create {
            let start = node.bench.shared_end();
            node.notes().applied_lsn.store(start.get(), Relaxed);
        }
        node
    }

    fn notes(&self) -> &Notes {
        Notes::of(&self.bench.memory.map)
    }

    fn record(&self, ts: u64) -> &AtomicU8 {
        let at = self.bench.memory.at(self.records + ts as usize).cast::<AtomicU8>();
        // SAFETY: `at` checks the bounds of the mapping, which lives as long as `self`. It is one
        // atomic byte.
        unsafe { at.as_ref() }
    }

    /// Takes the commit mutex and finishes what a dead owner has left.
    fn lock(&self) -> Guard<'_> {
        let guard = self.bench.lock_commit();
        if guard.previous_owner_died {
            let notes = self.notes();
            let end = self.bench.shared_end();
            let from = Lsn::new(notes.applied_lsn.load(Relaxed));
            self.bench
                .log
                .ring()
                .for_each_frame(&guard, from, end, |f| {
                    notes.last_ts.store(f.commit_ts.get(), Relaxed)
                })
                .expect("the frames to redo are in the ring");
            notes.applied_lsn.store(end.get(), Relaxed);
        }
        guard
    }

    fn commit(&self, rec: &[u8]) -> Result<(u64, Lsn), LogError> {
        let notes = self.notes();
        loop {
            let guard = self.lock();
            let ts = notes.last_ts.load(Relaxed) + 1;
            let generation = Generation::new(1 + (ts / COMMITS_PER_GENERATION) as u32);
            let key = ts.to_be_bytes();
            let op = Op { root: Root::new(2), kind: OpKind::Put, key: &key, rec };
            let head = FrameHead { commit_ts: CommitTs::new(ts), generation };
            match self.bench.log.ring().append(&guard, &head, frame_len([op]), [op]) {
                Ok((_, end)) => {
                    self.bench.log.ring().publish_end(&guard, end);
                    notes.last_ts.store(ts, Relaxed);
                    notes.applied_lsn.store(end.get(), Relaxed);
                    return Ok((ts, end));
                }
                Err(AppendError::LimitReached) => {
                    drop(guard);
                    std::thread::sleep(Duration::from_millis(1));
                    if notes.stop.load(Relaxed) == 1 {
                        return self
                            .bench
                            .log
                            .make_room(AppendError::LimitReached)
                            .map(|()| unreachable!());
                    }
                }
                Err(lacking) => {
                    drop(guard);
                    self.bench.log.make_room(lacking)?;
                }
            }
        }
    }

    fn work(&self, thread: u64) {
        let notes = self.notes();
        let mut rng =
            rand::rngs::StdRng::seed_from_u64(thread ^ u64::from(std::process::id()) << 8);
        while notes.stop.load(Relaxed) == 0 && !self.is_full() {
            let is_long = rng.random_range(0..40) == 0;
            let rec = vec![7; rng.random_range(if is_long { 2500..100_000 } else { 0..600 })];
            let Ok((ts, end)) = self.commit(&rec) else { return };
            let relaxed = rng.random_range(0..4) == 0;
            if relaxed {
                self.bench.log.relaxed_commit(end).expect("a relaxed commit");
            } else {
                self.bench.log.sync_through(end).expect("a sync");
            }
            self.record(ts).store(1, SeqCst);
            notes.acknowledged.fetch_add(1, SeqCst);
        }
    }

    /// Imitates a merge: older generations go to a base that is durable at once.
    fn merge(&self) {
        let notes = self.notes();
        let newest = notes.last_ts.load(Relaxed) / COMMITS_PER_GENERATION + 1;
        let through = (newest as u32).saturating_sub(2);
        if through > notes.base_generation.load(Relaxed) {
            self.bench.log.sync_through(self.bench.shared_end()).expect("a sync");
            notes.base_generation.store(through, SeqCst);
            self.bench.log.retire(Generation::new(through));
        }
    }

    fn is_full(&self) -> bool {
        self.notes().last_ts.load(Relaxed) >= RECORDS as u64 - 10_000
    }

    fn wait_for_progress(&self, what: &str) {
        let before = self.notes().acknowledged.load(SeqCst);
        let start = Instant::now();
        while self.notes().acknowledged.load(SeqCst) < before + 50 {
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "nobody commits any more after {what}, commit {}",
                self.notes().last_ts.load(Relaxed)
            );
            self.merge();
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn start_worker(dir: &Path, crash_at: Option<&str>) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", "log::tests::processes::worker", "--ignored", "--nocapture", "-q"])
        .env(DIR, dir)
        .stdout(Stdio::null())
        .stderr(if crash_at.is_some() { Stdio::null() } else { Stdio::inherit() });
    if let Some(at) = crash_at {
        command.env("PLAIT_CRASH_AT", at);
    }
    command.spawn().expect("a worker process")
}

/// Runs a worker process.
#[test]
#[ignore = "started by the other tests of this file"]
fn worker() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let node = Node::open(Path::new(&dir), false);
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let node = &node;
            scope.spawn(move || node.work(thread));
        }
    });
}

/// Ends the workers and checks the file against the record.
fn settle(dir: &Path, node: &Node, workers: Vec<Child>, context: &str) {
    node.notes().stop.store(1, SeqCst);
    for mut worker in workers {
        assert!(worker.wait().expect("the worker's end").success(), "{context}");
    }
    let guard = node.lock();
    let last = node.notes().last_ts.load(Relaxed);
    drop(guard);
    node.bench.log.sync_through(node.bench.shared_end()).expect("a sync");
    let base = node.notes().base_generation.load(Relaxed);
    let path = dir.join("app.db-plait");
    let mut scan = LogScan::open(&OsStorage, &path, SALT, Generation::new(base)).expect(context);
    let mut expected = if base == 0 { 1 } else { u64::from(base) * COMMITS_PER_GENERATION };
    scan.replay(|frame| {
        assert_eq!(frame.commit_ts.get(), expected, "{context}");
        expected += 1;
        Ok::<(), LogError>(())
    })
    .expect(context);
    assert_eq!(expected, last + 1, "{context}: every published commit is found, relaxed ones too");
    for ts in last + 1..(last + 100_000).min(RECORDS as u64) {
        assert_eq!(
            node.record(ts).load(SeqCst),
            0,
            "{context}: commit {ts} was acknowledged and is gone"
        );
    }
}

// holds LOG-9, COMMIT-2, COMMIT-5
#[test]
fn processes_killed_at_random_stop_nobody_and_lose_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let node = Node::open(dir.path(), true);
    let seconds =
        std::env::var("PLAIT_TEST_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(3);
    let mut workers: Vec<Child> = (0..3).map(|_| start_worker(dir.path(), None)).collect();
    let mut rng = rand::rng();
    let start = Instant::now();
    let mut kills = 0;
    while start.elapsed() < Duration::from_secs(seconds) && !node.is_full() {
        node.wait_for_progress(&format!("{kills} kills"));
        std::thread::sleep(Duration::from_micros(rng.random_range(0..60_000)));
        let mut victim = workers.swap_remove(rng.random_range(0..workers.len()));
        victim.kill().expect("a kill");
        kills += 1;
        workers.push(start_worker(dir.path(), None));
        victim.wait().expect("the victim's end");
    }
    settle(dir.path(), &node, workers, &format!("{kills} kills"));
}

// holds LOG-9, RING-3
#[cfg(feature = "crash-points")]
#[test]
fn a_process_killed_at_any_named_point_stops_nobody_and_loses_nothing() {
    use std::os::unix::process::ExitStatusExt;
    let points = crate::crash_point::CRASH_POINTS.iter().filter(|p| {
        p.starts_with("log.") && !p.starts_with("log.create") && **p != "log.retire.done"
    });
    for point in points {
        for nth in [1, 3, 40] {
            if nth == 40 && (point.starts_with("log.grow") || point.starts_with("log.segment")) {
                continue;
            }
            let dir = tempfile::tempdir().expect("a folder");
            let node = Node::open(dir.path(), true);
            let at = format!("{point}:{nth}");
            let mut victim = start_worker(dir.path(), Some(&at));
            let start = Instant::now();
            while victim.try_wait().expect("the victim").is_none() {
                assert!(start.elapsed() < Duration::from_secs(20), "{at} was never reached");
                node.merge();
                std::thread::sleep(Duration::from_millis(2));
            }
            let status = victim.wait().expect("the victim's end");
            assert_eq!(status.signal(), Some(libc::SIGKILL), "{at}: {status}");
            let workers = vec![start_worker(dir.path(), None)];
            node.wait_for_progress(&at);
            settle(dir.path(), &node, workers, &at);
        }
    }
}
