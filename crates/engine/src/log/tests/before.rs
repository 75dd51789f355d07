//! Unsynced commits of the base reach the disk before later frames.

use super::*;
use crate::storage::StorageFile;
use crate::storage::sim::SimOp;

/// A base's WAL to which transactions are appended without a sync, one sector each.
struct Wal {
    file: Box<dyn StorageFile>,
    commits: u64,
}

const SECTOR: u64 = 512;
/// Generation of the frames: newer than what is committed to the base.
const GENERATION: u32 = 1000;

impl Wal {
    fn create(storage: &SimStorage) -> Wal {
        let file = storage.create(Path::new(BASE_WAL), 0o644).expect("a WAL");
        Wal { file, commits: 0 }
    }

    /// Commits as an exclusive transaction under NORMAL does.
    fn commit(&mut self, bench: &Bench) -> u64 {
        self.commits += 1;
        let page = [self.commits as u8; SECTOR as usize];
        self.file.write_at(&page, (self.commits - 1) * SECTOR).expect("a write");
        bench.log.shared().note_base_commit(Generation::new(self.commits as u32));
        self.commits
    }
}

/// Returns how many transactions the WAL on `storage` holds, from the first on without a gap.
fn in_wal(storage: &SimStorage) -> u64 {
    let Ok(file) = storage.open_read_only(Path::new(BASE_WAL)) else { return 0 };
    (1..)
        .take_while(|&n| {
            let mut page = [0; SECTOR as usize];
            file.read_at(&mut page, (n - 1) * SECTOR).is_ok_and(|got| got == page.len())
                && page.iter().all(|b| *b == n as u8)
        })
        .count() as u64
}

// holds BEFORE-2, BEFORE-5, LOG-6
#[test]
fn no_frame_survives_a_power_cut_that_takes_a_commit_of_the_base_before_it() {
    for seed in 0..40 {
        let storage = SimStorage::new();
        let bench = Bench::new(&storage, SMALL);
        let mut wal = Wal::create(&storage);
        // Commits of the base before each frame, by the frame's timestamp.
        let relied_on = Arc::new(std::sync::Mutex::new(vec![0]));
        let known = relied_on.clone();
        let mut crashes = 0;
        storage.watch(move |storage| {
            crashes += 1;
            let after = storage.crash(seed * 10_007 + crashes);
            // No base that a power cut leaves is refused (BEFORE-5).
            let frames = recovered(&after, in_wal(&after) as u32).expect("a sound log");
            let newest = frames.last().copied().unwrap_or(0) as usize;
            let needed = known.lock().expect("lock").get(newest).copied().unwrap_or(0);
            assert!(
                in_wal(&after) >= needed,
                "seed {seed} crash {crashes}: frame {newest} relies on {needed} commits"
            );
        });
        for ts in 1..=30 {
            if (ts + seed) % 3 == 0 {
                wal.commit(&bench);
            }
            relied_on.lock().expect("lock").push(wal.commits);
            let end = bench.commit(ts, GENERATION, 100);
            match (ts + seed) % 4 {
                0 => bench.log.write_through(end).expect("a write"),
                1 => bench.log.sync_through(end).expect("a sync"),
                _ => {}
            }
        }
        storage.unwatch();
        assert!(bench.log.shared().base_syncs() > 0);
    }
}

// holds BEFORE-5, FILE-4
#[test]
fn a_full_commit_after_a_normal_one_of_the_base_makes_both_durable() {
    for seed in 0..20 {
        let storage = SimStorage::new();
        let bench = Bench::new(&storage, SMALL);
        let mut wal = Wal::create(&storage);
        let commits = wal.commit(&bench);
        assert!(bench.log.shared().base_is_unsynced());
        bench.commit_durably(1, GENERATION, 100);
        assert!(!bench.log.shared().base_is_unsynced());
        let after = storage.crash(seed);
        assert_eq!((recovered(&after, 1), in_wal(&after)), (Ok(vec![1]), commits));
        // The base without the commit that the frame relies on.
        let older =
            LogError::OlderBase { path: path(), noted: Generation::new(1), base: Generation::ZERO };
        assert_eq!(recovered(&after, 0), Err(older));
    }
}

#[test]
fn the_base_is_synced_once_and_only_if_something_is_written_after_it() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SMALL);
    let mut wal = Wal::create(&storage);
    bench.commit_durably(1, 1, 100);
    assert_eq!(bench.log.shared().base_syncs(), 0);
    wal.commit(&bench);
    wal.commit(&bench);
    bench.log.sync_through(bench.shared_end()).expect("nothing to do");
    assert_eq!(bench.log.shared().base_syncs(), 0);
    bench.commit_durably(2, 1, 100);
    bench.commit_durably(3, 1, 100);
    assert_eq!(bench.log.shared().base_syncs(), 1);
    // A synced commit to the same WAL covers the commits before it.
    wal.commit(&bench);
    let covered = bench.log.shared().base_commits();
    bench.log.shared().note_base_durable(covered);
    bench.commit_durably(4, 1, 100);
    assert_eq!(bench.log.shared().base_syncs(), 1);
    // A commit made during the sync does not count as synced.
    wal.commit(&bench);
    bench.log.shared().note_base_durable(covered);
    assert!(bench.log.shared().base_is_unsynced());
}

#[test]
fn a_wal_that_is_gone_was_brought_into_the_database_file() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SMALL);
    bench.log.shared().note_base_commit(Generation::ZERO);
    bench.commit_durably(1, 1, 100);
    assert!(!bench.log.shared().base_is_unsynced());
}

/// A process created the WAL and died before a sync. What another process then brings to disk must
/// not be lost with the name.
// holds BEFORE-6
#[test]
fn a_sync_of_the_base_brings_its_name_to_disk() {
    for seed in 0..20 {
        let storage = SimStorage::new();
        let bench = Bench::new(&storage, SMALL);
        for ts in [1, 2] {
            let mut wal = Wal::create(&storage);
            bench.log.prepare(None).expect("opened");
            let is_there = |seed| storage.crash(seed).exists(Path::new(BASE_WAL)).expect("a look");
            assert!((0..200).any(|seed| !is_there(seed)), "preparing syncs nothing");
            wal.commit(&bench);
            bench.commit_durably(ts, GENERATION, 100);
            assert_eq!(in_wal(&storage.crash(seed)), 1);
            // The next round puts another file in its place.
            storage.remove(Path::new(BASE_WAL)).expect("removed");
            storage.sync_dir_of(Path::new(BASE_WAL)).expect("a sync");
        }
    }
}

#[test]
fn a_name_of_the_base_that_cannot_be_synced_stops_the_log_before_a_frame_is_written() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SMALL);
    let mut wal = Wal::create(&storage);
    wal.commit(&bench);
    let end = bench.commit(1, 1, 100);
    storage.fail(SimOp::Dir, 1, libc::EIO, false);
    assert!(bench.log.sync_through(end).is_err());
    assert_eq!(bench.log.shared().poisoned(), Some(libc::EIO));
    assert_eq!(recovered(&storage, 0), Ok(vec![]));
}

// holds BEFORE-3, COMMIT-4
#[test]
fn a_failed_sync_of_the_base_stops_the_log_before_a_frame_is_written() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SMALL);
    let mut wal = Wal::create(&storage);
    bench.commit_durably(1, 1, 100);
    wal.commit(&bench);
    let end = bench.commit(2, 1, 100);
    storage.fail(SimOp::Sync, 1, libc::EIO, false);
    assert!(bench.log.sync_through(end).is_err());
    assert_eq!(bench.log.shared().poisoned(), Some(libc::EIO));
    assert!(bench.log.write_through(end).is_err());
    assert_eq!(recovered(&storage, 0), Ok(vec![1]));
}

// holds BEFORE-3
#[test]
fn a_checkpoint_that_cannot_sync_stops_the_log_only_while_frames_may_rely_on_the_base() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SMALL);
    let mut wal = Wal::create(&storage);
    bench.log.shared().note_base_sync_failed(libc::EIO);
    assert_eq!(bench.log.shared().poisoned(), None);
    wal.commit(&bench);
    bench.log.shared().note_base_sync_failed(libc::EIO);
    assert_eq!(bench.log.shared().poisoned(), Some(libc::EIO));
}

#[test]
fn a_note_that_is_torn_or_of_another_log_asks_for_nothing() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SMALL);
    bench.commit_durably(1, GENERATION, 100);
    bench.log.note_base(Generation::new(7)).expect("noted");
    // An older note does not replace it.
    bench.log.note_base(Generation::new(6)).expect("nothing to do");
    assert_eq!(LogScan::noted(&storage, &path(), SALT), Ok(Generation::new(7)));
    assert_eq!(LogScan::noted(&storage, &path(), SALT + 1), Ok(Generation::ZERO));
    assert!(recovered(&storage, 6).is_err());
    assert_eq!(recovered(&storage, 7), Ok(vec![1]));
    let newest = LogScan::newest_generation(&storage, &path(), SALT);
    assert_eq!(newest, Ok(Generation::new(GENERATION)));
    let file = storage.open(&path()).expect("the log");
    for at in SECTOR..SECTOR + 16 {
        let mut byte = [0];
        file.read_at(&mut byte, at).expect("read");
        file.write_at(&[byte[0] ^ 0x10], at).expect("write");
        assert_eq!(recovered(&storage, 0), Ok(vec![1]), "byte {at}");
        file.write_at(&byte, at).expect("write");
    }
    assert!(recovered(&storage, 6).is_err());
}

#[test]
fn accepting_an_older_base_counts_what_its_log_asks_for_as_included() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SMALL);
    bench.log.note_base(Generation::new(7)).expect("noted");
    let newest = LogScan::newest_generation(&storage, &path(), SALT);
    assert_eq!(newest, Ok(Generation::new(7)));
    // No session comes to this number.
    bench.log.note_base(Generation::new(u32::MAX)).expect("noted");
    assert_eq!(recovered(&storage, 0), Ok(vec![]));
}
