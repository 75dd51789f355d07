//! Logs as an attacker would make them: fields changed at random, with valid checksums. Reading one
//! ends, in frames or in an error, and returns nothing that was not in the file.
//!
//! The inputs are the logs of a bench and the files of `crates/engine/fuzz-corpus/log`. Long form:
//! `PLAIT_FUZZ_ROUNDS=1000000 cargo test --release -p plait-engine hostile`.

use super::*;

/// A small random number generator: rounds must be the same on every machine.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

fn bench_log() -> Vec<u8> {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SMALL);
    for ts in 1..=18 {
        bench.commit_durably(ts, 1 + (ts / 7) as u32, (ts as usize * 53) % 300);
    }
    let file = storage.open(&path()).expect("the log");
    let mut bytes = vec![0; file.len_bytes().expect("length") as usize];
    file.read_at(&mut bytes, 0).expect("read");
    bytes
}

fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz-corpus/log");
    let files = std::fs::read_dir(folder).expect("the corpus");
    let read = |f: std::io::Result<std::fs::DirEntry>| std::fs::read(f.expect("an entry").path());
    let files: Vec<_> = files.map(|f| read(f).expect("a readable file")).collect();
    assert!(!files.is_empty(), "the corpus is empty");
    files
}

fn word_at(b: &[u8], at: usize) -> u32 {
    b.get(at..at + 4).map_or(0, |w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]))
}

fn set_word(b: &mut [u8], at: usize, word: u32) {
    if let Some(place) = b.get_mut(at..at + 4) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

/// Repairs the checksums of headers and frames, so that the reader gets past them.
fn seal_all(b: &mut [u8]) {
    let salt = word_at(b, 12);
    for at in (0..b.len()).step_by(8) {
        let is_header = b[at..].starts_with(&file::FILE_MAGIC)
            || b[at..].starts_with(&file::SLOT_MAGIC.to_le_bytes());
        if is_header && at + file::HEADER_BYTES <= b.len() {
            let crc = crc32c::crc32c(&b[at..at + file::HEADER_BYTES - 4]);
            set_word(b, at + file::HEADER_BYTES - 4, crc);
        }
        let len = word_at(b, at + 4) as usize;
        if b[at..].starts_with(&frame::FRAME_MAGIC.to_le_bytes())
            && len >= frame::FRAME_HEADER_BYTES + frame::FRAME_TRAILER_BYTES
            && at.checked_add(len).is_some_and(|end| end <= b.len())
        {
            set_word(b, at + len - 8, len as u32);
            let crc =
                crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), &b[at..at + len - 4]);
            set_word(b, at + len - 4, crc);
        }
    }
}

/// Changes a few fields. Most are in the headers of the file, of slots, of frames and of ops, where
/// the numbers are.
fn mutate(b: &mut Vec<u8>, dice: &mut Dice) {
    const ODD: [u32; 10] =
        [0, 1, 7, 8, 0x7f, 0xff, 0x7fff_ffff, 0x8000_0000, 0xffff_fff8, u32::MAX];
    let starts: Vec<usize> = (0..b.len())
        .step_by(8)
        .filter(|at| b[*at..].starts_with(b"PL") || b[*at..].starts_with(b"Plait"))
        .collect();
    for _ in 0..=dice.below(4) {
        let at = match starts.get(dice.below(starts.len() + 1)) {
            Some(start) => start + 4 * dice.below(24),
            None => dice.below(b.len().max(1)) & !3,
        };
        let word = match dice.below(3) {
            0 => ODD[dice.below(ODD.len())],
            1 => dice.next() as u32,
            _ => word_at(b, at).wrapping_add(dice.below(33) as u32).wrapping_sub(16),
        };
        set_word(b, at, word);
    }
    if dice.below(8) == 0 {
        let len = dice.below(b.len() + 1);
        b.truncate(len);
    }
}

/// Reads a log as recovery does, through to the bytes of every op.
fn read_through(bytes: &[u8]) -> bool {
    let storage = SimStorage::new();
    storage.create(&path(), 0o644).expect("create");
    storage.tamper(&path(), |b| *b = bytes.to_vec());
    let salt = word_at(bytes, 12);
    let mut frames = 0;
    for base in [0, 1, 2] {
        let Ok(mut scan) = LogScan::open(&storage, &path(), salt, Generation::new(base)) else {
            continue;
        };
        let done = scan.replay(|frame| {
            frames += 1;
            let carried: usize = frame.ops().map(|op| op.key.len() + op.rec.len()).sum();
            assert!(carried <= bytes.len(), "ops hold more than the file");
            Ok::<(), LogError>(())
        });
        assert!(done.is_ok(), "what was found sound is read again: {done:?}");
    }
    frames > 0
}

#[test]
fn a_hostile_log_is_read_to_an_end() {
    let rounds = std::env::var("PLAIT_FUZZ_ROUNDS").ok().and_then(|n| n.parse().ok());
    let rounds: u64 = rounds.unwrap_or(1500);
    let mut inputs = corpus();
    inputs.push(bench_log());
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut with_frames = 0;
    for input in &inputs {
        read_through(input);
    }
    for _ in 0..rounds {
        let mut bytes = inputs[dice.below(inputs.len())].clone();
        mutate(&mut bytes, &mut dice);
        if dice.below(8) != 0 {
            seal_all(&mut bytes);
        }
        with_frames += u64::from(read_through(&bytes));
    }
    assert!(with_frames > rounds / 20, "{with_frames} of {rounds}: hardly anything is reached");
}
