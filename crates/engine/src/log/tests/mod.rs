//! Tests of the log as a whole.
//!
//! [`Bench`] combines a ring in private memory, a commit mutex and a file, with small segments so
//! that a few kilobytes exercise every boundary.

#![allow(unsafe_code)]

use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::{MmapMut, MmapRaw};

use super::*;
use crate::ids::{CommitTs, Generation, Lsn, ProcessIndex, Root};
use crate::storage::Storage;
use crate::storage::sim::SimStorage;
use crate::sync::mutex::{Guard, Identity, Party, SharedMutex};

mod before;
mod commit;
mod crash;
mod damage;
mod failure;
mod group;
mod growth;
mod held;
mod hold;
mod hostile;
mod moment;
mod processes;
mod tail;

pub(crate) const SALT: u32 = 0x5a17;
const BASE_WAL: &str = "app.db-wal";
const SEGMENT: u64 = 1024;
const RING: u64 = 8192;
const WINDOW: u64 = 4096;

/// Memory for one session's log: private, or a file that several processes map.
struct Memory {
    map: MmapRaw,
    ring_bytes: u64,
}

/// A ring that is mapped whole.
struct WholeRing {
    at: NonNull<u8>,
    bytes: u64,
}

// SAFETY: a pointer to shared memory, used by the rules of ring.rs.
unsafe impl Send for WholeRing {}
// SAFETY: as above.
unsafe impl Sync for WholeRing {}

impl RingMemory for WholeRing {
    fn first(&self) -> NonNull<u8> {
        self.at
    }

    fn first_bytes(&self) -> u64 {
        self.bytes
    }

    fn whole(&self) -> Option<NonNull<u8>> {
        Some(self.at)
    }

    fn read(&self, _: u64, _: &mut [u8]) -> std::io::Result<()> {
        unreachable!("all of it is mapped")
    }
}

const STATE: usize = size_of::<LogShared>().next_multiple_of(4096);

impl Memory {
    fn size(ring_bytes: u64) -> usize {
        4096 + STATE + ring_bytes as usize
    }

    fn private(ring_bytes: u64) -> Memory {
        let map = MmapMut::map_anon(Memory::size(ring_bytes)).expect("memory");
        Memory { map: map.into(), ring_bytes }
    }

    fn of_file(file: &std::fs::File, ring_bytes: u64) -> Memory {
        let map = MmapRaw::map_raw(file).expect("a mapping");
        assert!(map.len() >= Memory::size(ring_bytes));
        Memory { map, ring_bytes }
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.map.len());
        // SAFETY: inside the mapping.
        let at = unsafe { self.map.as_mut_ptr().add(offset) };
        NonNull::new(at).expect("not at address 0")
    }

    fn parts(&self) -> LogMemory {
        LogMemory {
            commit_mutex: self.at(0).cast(),
            shared: self.at(4096).cast(),
            ring: Arc::new(WholeRing { at: self.at(4096 + STATE), bytes: self.ring_bytes }),
        }
    }

    fn initialise(&self, sizes: Sizes) {
        let parts = self.parts();
        let params = LogParams {
            salt: SALT,
            ring_bytes: self.ring_bytes,
            window_bytes: WINDOW.min(self.ring_bytes),
            segment_bytes: sizes.segment,
            ring_space: self.ring_bytes,
            prepared_bytes: sizes.prepared_bytes(),
            slot_limit: sizes.limit,
        };
        // SAFETY: the test has just made the memory, and nothing else knows of it. The commit mutex
        // in it is zero, and so free.
        unsafe { LogShared::init(parts.shared.as_ptr(), &params) };
    }
}

/// A session's log for tests.
struct Bench {
    log: Log,
    memory: Memory,
    party: Arc<Party>,
}

/// A process on its own.
fn alone() -> Arc<Party> {
    Arc::new(Party::new(Identity::new(ProcessIndex(0), 1), |_| true))
}

#[derive(Clone, Copy)]
struct Sizes {
    segment: u64,
    ring: u64,
    slots: u32,
    /// Bytes of one more slot.
    part: u64,
    limit: u32,
}

impl Sizes {
    fn prepared_bytes(&self) -> u64 {
        u64::from(self.slots) * self.segment + self.part
    }
}

const SMALL: Sizes = Sizes { segment: SEGMENT, ring: RING, slots: 2, part: 0, limit: 64 };

fn path() -> PathBuf {
    PathBuf::from("app.db-plait")
}

impl Bench {
    fn try_new(
        storage: impl Storage + 'static,
        path: &Path,
        sizes: Sizes,
    ) -> Result<Bench, LogError> {
        let params = LogFileParams {
            salt: SALT,
            base_identity: (1, 2),
            mode: 0o644,
            prepared_bytes: sizes.prepared_bytes(),
            segment_bytes: sizes.segment,
        };
        let file = LogFile::create(&storage, path, &params, |_| ())?;
        let memory = Memory::private(sizes.ring);
        memory.initialise(sizes);
        let parts = memory.parts();
        // SAFETY: initialised above. `memory` outlives the log: it is dropped after it.
        let ring = unsafe { Ring::new(parts) };
        let base_wal = BaseWal::new(Arc::new(storage), path.with_file_name(BASE_WAL));
        let party = alone();
        Ok(Bench { log: Log::new(ring, file, base_wal, party.clone()), memory, party })
    }

    fn new(storage: &SimStorage, sizes: Sizes) -> Bench {
        Bench::try_new(storage.clone(), &path(), sizes).expect("a new log")
    }

    fn shared_end(&self) -> Lsn {
        self.log.shared().log_end()
    }

    fn commit_mutex(&self) -> &SharedMutex {
        // SAFETY: initialised in `try_new`, lives as long as `self`.
        unsafe { self.memory.parts().commit_mutex.as_ref() }
    }

    fn lock_commit(&self) -> Guard<'_> {
        self.commit_mutex().lock(&self.party)
    }

    /// Appends and publishes a frame of one put; returns its end.
    fn try_commit(&self, ts: u64, generation: u32, rec_len: usize) -> Result<Lsn, LogError> {
        let rec = vec![ts as u8; rec_len];
        let key = ts.to_be_bytes();
        let op = Op { root: Root::new(2), kind: OpKind::Put, key: &key, rec: &rec };
        let head =
            FrameHead { commit_ts: CommitTs::new(ts), generation: Generation::new(generation) };
        loop {
            let guard = self.lock_commit();
            match self.log.ring().append(&guard, &head, frame_len([op]), [op]) {
                Ok((_, end)) => {
                    self.log.ring().publish_end(&guard, end);
                    return Ok(end);
                }
                Err(lacking) => {
                    drop(guard);
                    self.log.make_room(lacking)?;
                }
            }
        }
    }

    fn commit(&self, ts: u64, generation: u32, rec_len: usize) -> Lsn {
        self.try_commit(ts, generation, rec_len).expect("a commit")
    }

    fn commit_durably(&self, ts: u64, generation: u32, rec_len: usize) -> Lsn {
        let end = self.commit(ts, generation, rec_len);
        self.log.sync_through(end).expect("a sync");
        end
    }
}

/// Returns the bytes of a log before and after the write of one group that was not synced. Commit 1
/// is durable. The group holds 2 to 9: the end of generation 1, all of 2, and the beginning of 3.
/// Each commit puts its number, as a key, into root 2.
pub(crate) fn group_over_generations() -> (Vec<u8>, Vec<u8>) {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, Sizes { slots: 6, ..SMALL });
    bench.commit_durably(1, 1, 40);
    let before = bytes_of(&storage);
    for (ts, generation, len) in [
        (2, 1, 700),
        (3, 1, 900),
        (4, 2, 30),
        (5, 2, 600),
        (6, 2, 50),
        (7, 3, 20),
        (8, 3, 400),
        (9, 3, 10),
    ] {
        bench.commit(ts, generation, len);
    }
    bench.log.write_through(bench.shared_end()).expect("a write");
    (before, bytes_of(&storage))
}

fn bytes_of(storage: &SimStorage) -> Vec<u8> {
    let file = storage.open(&path()).expect("the log");
    let mut bytes = vec![0; file.len_bytes().expect("length") as usize];
    file.read_at(&mut bytes, 0).expect("read");
    bytes
}

/// Returns the commits that recovery would replay.
fn recovered(storage: &dyn Storage, base: u32) -> Result<Vec<u64>, LogError> {
    let mut scan = LogScan::open(storage, &path(), SALT, Generation::new(base))?;
    let mut found = Vec::new();
    scan.replay(|frame| {
        let ts = frame.commit_ts.get();
        for op in frame.ops() {
            assert_eq!(op.key, ts.to_be_bytes());
            assert!(op.rec.iter().all(|b| *b == ts as u8));
        }
        found.push(ts);
        Ok::<(), LogError>(())
    })?;
    assert_eq!(scan.summary().frames as usize, found.len());
    Ok(found)
}
