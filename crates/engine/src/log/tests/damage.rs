//! A log cut or flipped at every byte, and what the end of a log may look like (FILE-5).

use super::*;

/// A small log of three generations over several segments, every frame synced by itself.
fn synced_log() -> (SimStorage, u64) {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SMALL);
    let frames = 18;
    for ts in 1..=frames {
        bench.commit_durably(ts, 1 + (ts / 7) as u32, (ts as usize * 53) % 300);
    }
    (storage, frames)
}

fn recovered_from(bytes: Vec<u8>, base: u32) -> Result<Vec<u64>, LogError> {
    let storage = SimStorage::new();
    storage.create(&path(), 0o644).expect("create");
    storage.tamper(&path(), |b| *b = bytes);
    recovered(&storage, base)
}

#[test]
fn a_log_cut_at_any_byte_is_refused() {
    let (storage, frames) = synced_log();
    let whole = bytes_of(&storage);
    for len in 0..whole.len() {
        let refused = recovered_from(whole[..len].to_vec(), 0);
        let is_said = matches!(refused, Err(LogError::NotALog { .. } | LogError::CutShort { .. }));
        assert!(is_said, "cut at {len}: {refused:?}");
    }
    assert_eq!(recovered_from(whole, 0), Ok((1..=frames).collect()));
}

#[test]
fn a_log_that_does_not_say_how_long_it_was_gives_a_prefix_or_an_error_cut_at_any_byte() {
    let (storage, frames) = synced_log();
    let mut whole = bytes_of(&storage);
    whole[1024..1536].fill(0);
    let (mut prefixes, mut errors) = (0, 0);
    for len in 0..=whole.len() {
        match recovered_from(whole[..len].to_vec(), 0) {
            Ok(found) => {
                assert_eq!(found, (1..=found.len() as u64).collect::<Vec<_>>(), "cut at {len}");
                assert!(found.len() as u64 <= frames);
                prefixes += 1;
            }
            Err(
                LogError::NotALog { .. } | LogError::CutShort { .. } | LogError::Corrupt { .. },
            ) => errors += 1,
            Err(other) => panic!("cut at {len}: {other}"),
        }
    }
    assert!(prefixes > 0 && errors > 0);
}

#[test]
fn a_log_says_how_long_it_is_before_it_is_used_so_far() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SMALL);
    let first = bytes_of(&storage).len();
    for ts in 1..=60 {
        bench.commit_durably(ts, 1, 200);
        let bytes = bytes_of(&storage);
        let cut = recovered_from(bytes[..bytes.len() - 1].to_vec(), 0);
        assert!(matches!(cut, Err(LogError::CutShort { .. })), "{ts}: {cut:?}");
    }
    assert!(bytes_of(&storage).len() > first, "it has not grown");
}

// holds FILE-5
#[test]
fn a_flipped_byte_loses_at_most_the_last_frame_or_is_reported() {
    let (storage, frames) = synced_log();
    let whole = bytes_of(&storage);
    let (mut sound, mut reported) = (0, 0);
    for at in 0..whole.len() {
        for flip in [1u8 << (at % 8), 0xFF] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            match recovered_from(bytes, 0) {
                Ok(found) => {
                    assert_eq!(found, (1..=found.len() as u64).collect::<Vec<_>>(), "byte {at}");
                    assert!(found.len() as u64 >= frames - 1, "byte {at} silently lost frames");
                    sound += 1;
                }
                Err(LogError::Corrupt { .. } | LogError::NotALog { .. }) => reported += 1,
                Err(other) => panic!("byte {at}: {other}"),
            }
        }
    }
    assert!(sound > 0 && reported > 0);
}

#[test]
fn a_flipped_byte_in_a_merged_generation_does_not_matter() {
    let (storage, frames) = synced_log();
    let whole = bytes_of(&storage);
    let expected: Vec<u64> = (7..=frames).collect();
    assert_eq!(recovered_from(whole.clone(), 1), Ok(expected.clone()));
    let first_slot = file::slot_offset(0, SEGMENT) + file::PAGE_BYTES;
    for at in first_slot..first_slot + SEGMENT {
        let mut bytes = whole.clone();
        bytes[at as usize] ^= 0x10;
        assert_eq!(recovered_from(bytes, 1), Ok(expected.clone()), "byte {at}");
    }
}

// holds FILE-5
#[test]
fn damage_before_a_later_synced_frame_is_corruption_and_says_where() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SMALL);
    bench.commit_durably(1, 1, 10);
    let second = bench.shared_end();
    bench.commit_durably(2, 1, 10);
    bench.commit_durably(3, 1, 10);
    let offset = file::PAGE_BYTES * 2 + (second.get() & (SEGMENT - 1)) + 60;
    storage.tamper(&path(), |b| b[offset as usize] ^= 1);
    match recovered(&storage, 0) {
        Err(LogError::Corrupt { at, why, .. }) => {
            assert_eq!(at, second);
            assert!(why.contains("damaged"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn damage_in_a_group_that_was_never_synced_ends_the_log() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SMALL);
    bench.commit_durably(1, 1, 10);
    let second = bench.shared_end();
    for ts in 2..=8 {
        bench.commit(ts, 1, 100);
    }
    bench.log.write_through(bench.shared_end()).expect("a write");
    assert_eq!(recovered(&storage, 0), Ok((1..=8).collect()));
    let offset = file::PAGE_BYTES * 2 + (second.get() & (SEGMENT - 1)) + 60;
    storage.tamper(&path(), |b| b[offset as usize] ^= 1);
    assert_eq!(recovered(&storage, 0), Ok(vec![1]));
    let scan = LogScan::open(&storage, &path(), SALT, Generation::ZERO).expect("a sound log");
    assert!(scan.summary().torn_tail);
}

#[test]
fn a_lost_slot_header_is_corruption_when_its_frames_were_synced() {
    let (storage, _) = synced_log();
    let whole = bytes_of(&storage);
    let slots = (whole.len() as u64 - file::PAGE_BYTES) / (file::PAGE_BYTES + SEGMENT);
    let mut reported = 0;
    for slot in 0..slots {
        let mut bytes = whole.clone();
        let at = file::slot_offset(slot as u32, SEGMENT) as usize;
        bytes[at..at + file::HEADER_BYTES].fill(0);
        match recovered_from(bytes, 0) {
            Err(LogError::Corrupt { .. }) => reported += 1,
            Ok(found) => assert!(found.len() >= 17, "slot {slot} silently lost frames"),
            Err(other) => panic!("{other}"),
        }
    }
    assert!(reported >= 3);
}

// holds FILE-4
#[test]
fn a_base_older_than_the_log_is_refused() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SMALL);
    for ts in 1..=20 {
        bench.commit_durably(ts, ts as u32, 900);
        // Generations through ts-1 are merged, so their slots are reused again and again.
        bench.log.retire(Generation::new(ts as u32 - 1));
    }
    assert_eq!(recovered(&storage, 19), Ok(vec![20]));
    assert_eq!(recovered(&storage, 20), Ok(vec![]));
    for base in 0..15 {
        assert!(matches!(recovered(&storage, base), Err(LogError::Corrupt { .. })), "base {base}");
    }
}

// holds FILE-3
#[test]
fn a_log_of_another_database_or_version_is_refused() {
    let (storage, _) = synced_log();
    match LogScan::open(&storage, &path(), SALT + 1, Generation::ZERO) {
        Err(LogError::Foreign { has_frames: true, log_salt: SALT, .. }) => {}
        other => panic!("{other:?}"),
    }
    let empty = SimStorage::new();
    drop(Bench::new(&empty, SMALL));
    match LogScan::open(&empty, &path(), SALT + 1, Generation::ZERO) {
        Err(LogError::Foreign { has_frames: false, .. }) => {}
        other => panic!("{other:?}"),
    }
    storage.tamper(&path(), |b| {
        b[8] = 9;
        let crc = crc32c::crc32c(&b[..60]);
        b[60..64].copy_from_slice(&crc.to_le_bytes());
    });
    match LogScan::open(&storage, &path(), SALT, Generation::ZERO) {
        Err(LogError::UnknownVersion { version: 9, .. }) => {}
        other => panic!("{other:?}"),
    }
    match LogScan::open(&storage, std::path::Path::new("absent"), SALT, Generation::ZERO) {
        Err(LogError::Missing { .. }) => {}
        other => panic!("{other:?}"),
    }
}
