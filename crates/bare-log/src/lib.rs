//! A bare log, the limit of durable writes: records one behind the other in one file, and one fdatasync for
//! each group of commits that wait for it.
//!
//! A store whose commits survive a power cut does this and more, so none can be faster by much. Nothing reads
//! the log again: it is what stores are measured against, and no store.
//!
//! Layout: the file gets its room when it is made, as zeros that are written and synced. Where the room ends,
//! records go on at its beginning. A file that grew would have its metadata synced with each group, which
//! takes half as long again; stores that prepare their log would then be above the limit.
//!
//! Threads: any number of one process. The first commit that finds nobody leading leads: for a moment it lets
//! those commit whom the last sync woke, then it writes and syncs all that is there. The others sleep. Groups
//! alternate between two futex words, so that a finished sync wakes the members of its own group and one of
//! the next, which leads that.
//!
//! 1. A commit that returned has its record on disk.
//! 2. One thread leads at a time, so records of a later group stand behind those of an earlier one.
//! 3. After a failed write or sync no commit succeeds: what is on disk is unknown.
//!
//! Deliberately absent: checksums, headers, a second process, recovery.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::thread::futex;

/// Room of a log that is measured: so much that no record meets the write of the one in whose place it comes.
pub const ROOM_BYTES: u64 = 16 << 20;

/// A leader waits for company at most this part of the time that the last sync took.
const PATIENCE: u32 = 2;

/// All sleepers on a word.
const ALL: u32 = i32::MAX.cast_unsigned();

/// The log.
#[derive(Debug)]
pub struct BareLog {
    file: File,
    room_bytes: u64,
    state: Mutex<State>,
    /// The newest group on disk. Release, the partner of Acquire in [`commit`](Self::commit): a member that
    /// sees its group returns.
    synced: AtomicU64,
    /// What the members of even and of odd groups sleep on.
    words: [AtomicU32; 2],
}

#[derive(Debug)]
struct State {
    /// The group that gathers; the first is 1.
    group: u64,
    /// Its records, and how many they are.
    records: Vec<u8>,
    members: u64,
    /// Memory of the group before, to be used again.
    spare: Vec<u8>,
    /// Whether a thread leads: it waits for company, or writes and syncs the group before.
    is_led: bool,
    /// How many were in a group or waited for the next one when the last sync ended.
    active: u64,
    /// What that write and sync took.
    last_sync: Duration,
    /// Bytes that are on disk, counted from the first record.
    synced_bytes: u64,
    /// Why nothing can be committed any more.
    failure: Option<String>,
}

impl BareLog {
    /// Makes a log at `path` with room for so many bytes until it goes on at its beginning. What was there is
    /// lost.
    ///
    /// # Errors
    /// If the file cannot be made, filled and synced.
    pub fn create(path: &Path, room_bytes: u64) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
        let zeros = [0; 64 << 10];
        let mut at = 0;
        while at < room_bytes {
            let length = within(zeros.len(), room_bytes - at);
            file.write_all_at(&zeros[..length], at)?;
            at += length as u64;
        }
        file.sync_all()?;
        Ok(Self::over(file, room_bytes))
    }

    /// A log in a file that has its room.
    fn over(file: File, room_bytes: u64) -> Self {
        let state = State {
            group: 1,
            records: Vec::new(),
            members: 0,
            spare: Vec::new(),
            is_led: false,
            active: 0,
            last_sync: Duration::ZERO,
            synced_bytes: 0,
            failure: None,
        };
        let (synced, words) = (AtomicU64::new(0), [AtomicU32::new(0), AtomicU32::new(0)]);
        Self { file, room_bytes, state: Mutex::new(state), synced, words }
    }

    /// Appends a record and waits until it is on disk.
    ///
    /// # Errors
    /// If the log cannot be written or synced, or could not be before.
    pub fn commit(&self, record: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        let own = state.group;
        state.records.extend_from_slice(record);
        state.members += 1;
        loop {
            if self.has_synced(own) {
                return Ok(());
            }
            if let Some(why) = &state.failure {
                return Err(io::Error::other(why.clone()));
            }
            if !state.is_led {
                self.lead(state);
                state = self.lock();
                continue;
            }
            // Relaxed: the leader changes the word after it has taken the mutex again, so this is an older
            // value.
            let seen = self.word(own).load(Ordering::Relaxed);
            drop(state);
            // However it ends, the sleeper looks again.
            let _ = futex::wait(self.word(own), futex::Flags::PRIVATE, seen, None);
            if self.has_synced(own) {
                return Ok(());
            }
            state = self.lock();
        }
    }

    /// Bytes of all records that are on disk, from the first one on.
    #[must_use]
    pub fn synced_bytes(&self) -> u64 {
        self.lock().synced_bytes
    }

    /// Groups that are on disk: as many syncs were made.
    #[must_use]
    pub fn groups(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// Writes and syncs the group that has gathered, and wakes whom that concerns.
    fn lead<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        state.is_led = true;
        let mut state = self.await_company(state);
        let spare = std::mem::take(&mut state.spare);
        let mut records = std::mem::replace(&mut state.records, spare);
        let members = std::mem::take(&mut state.members);
        let (own, at) = (state.group, state.synced_bytes);
        state.group += 1;
        drop(state);
        let begun = Instant::now();
        let written = self.write(&records, at).and_then(|()| self.file.sync_data());
        let last_sync = begun.elapsed();
        let mut state = self.lock();
        state.is_led = false;
        state.active = members + state.members;
        state.last_sync = last_sync;
        match written {
            Ok(()) => {
                state.synced_bytes += records.len() as u64;
                self.synced.store(own, Ordering::Release);
            }
            Err(error) => state.failure = Some(format!("the log cannot be written: {error}")),
        }
        records.clear();
        state.spare = records;
        let (is_next_there, has_failed) = (state.members > 0, state.failure.is_some());
        drop(state);
        if members > 1 {
            self.wake(own, ALL);
        }
        if is_next_there {
            self.wake(own + 1, if has_failed { ALL } else { 1 });
        }
    }

    /// Lets those commit who were just woken, or two half groups would take turns, and a sync that takes long
    /// would serve half as many as it can. With nobody else there is nothing to wait for.
    fn await_company<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let begun = Instant::now();
        while state.members < state.active && begun.elapsed() < state.last_sync / PATIENCE {
            drop(state);
            std::thread::yield_now();
            state = self.lock();
        }
        state
    }

    /// Writes records behind the first `at` bytes.
    fn write(&self, mut records: &[u8], mut at: u64) -> io::Result<()> {
        while !records.is_empty() {
            let place = at % self.room_bytes;
            let (now, later) = records.split_at(within(records.len(), self.room_bytes - place));
            self.file.write_all_at(now, place)?;
            at += now.len() as u64;
            records = later;
        }
        Ok(())
    }

    fn has_synced(&self, group: u64) -> bool {
        self.synced.load(Ordering::Acquire) >= group
    }

    fn word(&self, group: u64) -> &AtomicU32 {
        &self.words[usize::from(!group.is_multiple_of(2))]
    }

    fn wake(&self, group: u64, sleepers: u32) {
        let word = self.word(group);
        // Relaxed: it only keeps who is about to sleep from it. What a sleeper acts on comes with the mutex,
        // or with `synced`.
        word.fetch_add(1, Ordering::Relaxed);
        futex::wake(word, futex::Flags::PRIVATE, sleepers).expect("a word of our own can be waked");
    }

    /// Nothing in here panics while it holds the mutex.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A length, or what there is room for.
fn within(length: usize, room_bytes: u64) -> usize {
    length.min(usize::try_from(room_bytes).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// Threads that commit at the same time, so many records each; `record` says what stands in one.
    fn commit_all(log: &BareLog, threads: u64, each: u64, record: impl Fn(u64) -> Vec<u8> + Sync) {
        let start = Barrier::new(usize::try_from(threads).expect("a few"));
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (start, record) = (&start, &record);
                scope.spawn(move || {
                    start.wait();
                    for number in 0..each {
                        log.commit(&record(thread * each + number)).expect("a commit");
                        assert!(log.synced_bytes() > 0, "it returned before it was synced");
                    }
                });
            }
        });
    }

    #[test]
    fn every_record_stands_whole_in_the_file_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let log = BareLog::create(&path, 1 << 20).expect("a log");
        commit_all(&log, 8, 200, |number| number.to_le_bytes().to_vec());
        assert_eq!(log.synced_bytes(), 8 * 200 * 8);
        assert!((1..=8 * 200).contains(&log.groups()), "{}", log.groups());
        let file = std::fs::read(&path).expect("the file");
        assert_eq!(file.len(), 1 << 20, "it has its room and does not grow");
        let mut found: Vec<u64> = file[..8 * 200 * 8]
            .chunks(8)
            .map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight")))
            .collect();
        found.sort_unstable();
        assert!(found.into_iter().eq(0..8 * 200));
        assert!(file[8 * 200 * 8..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn records_go_on_at_the_beginning_of_the_room() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let log = BareLog::create(&path, 10).expect("a log");
        for record in ["abcdef", "ghijkl", "mnopqrstuvwxyz"] {
            log.commit(record.as_bytes()).expect("a commit");
        }
        assert_eq!((log.synced_bytes(), log.groups()), (26, 3));
        assert_eq!(std::fs::read(&path).expect("the file"), b"uvwxyzqrst");
    }

    #[test]
    fn after_a_write_that_failed_no_commit_succeeds() {
        let file = OpenOptions::new().write(true).open("/dev/full").expect("it is always there");
        let log = BareLog::over(file, 1 << 20);
        let failures = std::thread::scope(|scope| {
            let commit = || scope.spawn(|| (0..20).filter(|_| log.commit(b"x").is_err()).count());
            let threads: Vec<_> = (0..8).map(|_| commit()).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<usize>()
        });
        assert_eq!((failures, log.synced_bytes(), log.groups()), (8 * 20, 0, 0));
        let error = log.commit(b"x").expect_err("it stays so").to_string();
        assert!(error.contains("the log cannot be written: No space left"), "{error}");
    }
}
