//! Shared memory that is foreign, damaged, cut short or of another layout: it is not read, and
//! committed rows come from the log. A session continues only from a file that is whole and has the
//! right boot and base.
//!
//! The inputs are heads of such files, in `crates/engine/fuzz-corpus/memory`; the content of a real
//! file follows each. Long form: `PLAIT_FUZZ_ROUNDS=10000 cargo test --release -p plait-engine
//! --test hostile_memory`.

mod common;

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use common::{Client, create};
use plait_engine::database::{log_path, shm_path};
use plait_engine::shm::layout::{
    LAYOUT_END, LAYOUT_VERSION, MAPPED_FIRST, RING_OFFSET, TOTAL_BYTES, arena_offset,
};
use plait_engine::txn::Sync;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// Offsets in the header (docs/format.md).
const LAYOUT: usize = 8;
const BOOT: std::ops::Range<usize> = 16..56;
const DEVICE: usize = 56;
const INODE: usize = 64;
const HEADER_BYTES: usize = 80;
const ROWS: u32 = 20;

/// The files of a session whose processes are all gone, copied under another name: base, log, and
/// the used part of the memory.
struct Left {
    base: Vec<u8>,
    log: Vec<u8>,
    memory: Vec<u8>,
    dir: tempfile::TempDir,
}

impl Left {
    fn by_a_session() -> Left {
        let dir = tempfile::tempdir().unwrap();
        let path = create(dir.path());
        let mut client = Client::open(&path);
        for row in 0..ROWS {
            client.write(&row.to_be_bytes(), b"acknowledged", Sync::Full).unwrap();
        }
        let mut memory = vec![0; MAPPED_FIRST];
        File::open(shm_path(&path)).unwrap().read_exact(&mut memory).unwrap();
        let (base, log) = (std::fs::read(&path).unwrap(), std::fs::read(log_path(&path)).unwrap());
        Left { base, log, memory, dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("app.db")
    }

    /// Writes the files, with the shared memory as `change` leaves it. `change` gets the first
    /// bytes of the memory and its length. Returns true if the memory neither begins as such a file
    /// does nor has its length: then it may be another program's file.
    fn put(&self, change: impl FnOnce(&mut [u8], &mut u64)) -> bool {
        let path = self.path();
        std::fs::write(&path, &self.base).unwrap();
        std::fs::write(log_path(&path), &self.log).unwrap();
        let _ = std::fs::remove_file(shm_path(&path));
        let file = File::create_new(shm_path(&path)).unwrap();
        let mut head = self.memory[..4096].to_vec();
        fit(&mut head, &path);
        let mut len = TOTAL_BYTES as u64;
        change(&mut head, &mut len);
        file.write_all_at(&head, 0).unwrap();
        file.write_all_at(&self.memory[4096..], 4096).unwrap();
        file.set_len(len).unwrap();
        let n = (len as usize).min(LAYOUT);
        let begins_well = head[..n] == self.memory[..n] || head[..n].iter().all(|byte| *byte == 0);
        !begins_well && len != TOTAL_BYTES as u64
    }

    /// Opening is refused, and nothing is lost: once the file in the way has been put away the
    /// database opens.
    fn is_refused_until_it_is_put_away(&self, what: &str) {
        let path = self.path();
        let before = std::fs::read(shm_path(&path)).unwrap();
        let error = Client::try_open(&path).err().unwrap_or_else(|| panic!("{what}: it opens"));
        assert!(error.to_string().contains("move it away"), "{what}: {error}");
        assert_eq!(std::fs::read(shm_path(&path)).unwrap(), before, "{what}: it was changed");
        std::fs::remove_file(shm_path(&path)).unwrap();
        self.opens(what);
    }

    /// Opening gives every acknowledged row, and leaves a plain file with one more.
    fn opens(&self, what: &str) {
        let path = self.path();
        let mut client = Client::try_open(&path).unwrap_or_else(|e| panic!("{what}: {e}"));
        for row in 0..ROWS {
            let found = client.read(&row.to_be_bytes());
            assert_eq!(found.as_deref(), Some(&b"acknowledged"[..]), "{what}: row {row}");
        }
        client.write(b"new", b"1", Sync::Off).unwrap_or_else(|e| panic!("{what}: {e}"));
        drop(client);
        let (header, rows) = common::at_rest(&path);
        assert!(!header.fenced && !shm_path(&path).exists(), "{what}: not at rest");
        assert_eq!(rows.len(), ROWS as usize + 1, "{what}");
    }
}

/// Makes a header one of this boot and of this base.
fn fit(head: &mut [u8], base: &Path) {
    let about = std::fs::metadata(base).unwrap();
    let mut boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap();
    boot.resize(BOOT.len(), 0);
    head[BOOT].copy_from_slice(&boot);
    head[DEVICE..DEVICE + 8].copy_from_slice(&about.dev().to_le_bytes());
    head[INODE..INODE + 8].copy_from_slice(&about.ino().to_le_bytes());
}

fn corpus() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz-corpus/memory");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the corpus")
        .map(|entry| {
            let path = entry.expect("an entry").path();
            (path.display().to_string(), std::fs::read(&path).expect("a readable file"))
        })
        .collect();
    files.sort();
    assert!(!files.is_empty(), "the corpus is empty");
    files
}

#[test]
fn what_is_left_of_shared_memory_that_was_cut_short_is_not_trusted() {
    let left = Left::by_a_session();
    let ends = [0, 1, 79, 80, 4096, LAYOUT_END, arena_offset(1), RING_OFFSET, MAPPED_FIRST];
    for end in ends.into_iter().chain([TOTAL_BYTES - 1]) {
        left.put(|_, len| *len = end as u64);
        left.opens(&format!("cut at {end}"));
    }
    left.put(|_, _| {});
    left.opens("whole");
}

// holds FILE-6
#[test]
fn a_foreign_head_of_shared_memory_is_never_taken_for_a_session() {
    let left = Left::by_a_session();
    let rounds = std::env::var("PLAIT_FUZZ_ROUNDS").ok().and_then(|n| n.parse().ok());
    let rounds: usize = rounds.unwrap_or(25);
    let corpus = corpus();
    for (name, bytes) in &corpus {
        let n = bytes.len().min(HEADER_BYTES);
        left.put(|head, _| head[..n].copy_from_slice(&bytes[..n]));
        left.opens(name);
        left.put(|head, _| {
            head[..n].copy_from_slice(&bytes[..n]);
            fit(head, &left.path());
        });
        left.opens(&format!("{name}, made to fit"));
    }
    let mut rng = StdRng::seed_from_u64(11);
    for round in 0..rounds {
        let has_other_wal_index = left.put(|head, len| {
            let (_, bytes) = &corpus[rng.random_range(0..corpus.len())];
            if rng.random_bool(0.3) {
                let n = bytes.len().min(HEADER_BYTES);
                head[..n].copy_from_slice(&bytes[..n]);
            }
            for _ in 0..rng.random_range(1..4) {
                let at = rng.random_range(0..HEADER_BYTES);
                head[at] = if rng.random_bool(0.5) { rng.random() } else { head[at] ^ 1 };
            }
            if rng.random_bool(0.3) {
                *len = rng.random_range(0..TOTAL_BYTES as u64 + 4096);
            }
        });
        let what = format!("round {round}");
        if has_other_wal_index {
            left.is_refused_until_it_is_put_away(&what);
        } else {
            left.opens(&what);
        }
    }
}

// holds FILE-6
#[test]
fn shared_memory_of_another_layout_is_made_anew() {
    let left = Left::by_a_session();
    for version in [0, 1, LAYOUT_VERSION - 1, LAYOUT_VERSION + 1, u32::MAX] {
        left.put(|head, _| head[LAYOUT..LAYOUT + 4].copy_from_slice(&version.to_le_bytes()));
        left.opens(&format!("layout {version}"));
    }
}
