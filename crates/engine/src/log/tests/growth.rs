//! File and ring begin small, and have room before the frame that needs it.

use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::log::ring::Purpose;

const SHORT: Sizes = Sizes { segment: 4 * SEGMENT, ring: 2 * RING, slots: 0, part: 128, ..SMALL };

fn file_bytes(storage: &SimStorage) -> usize {
    bytes_of(storage).len()
}

#[test]
fn a_short_file_grows_before_the_frames_that_need_it_and_never_by_them() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SHORT);
    let first = file_bytes(&storage);
    assert!(first <= 2 * 4096 + 128, "{first}");
    let mut lengths = vec![first];
    for ts in 1..=120 {
        let end = bench.commit(ts, 1 + (ts / 50) as u32, (ts as usize * 37) % 300);
        let prepared = file_bytes(&storage);
        bench.log.sync_through(end).expect("a sync");
        assert_eq!(file_bytes(&storage), prepared, "commit {ts} has made the file longer");
        assert_eq!(bench.log.status().file_bytes, prepared as u64);
        assert_eq!(recovered(&storage, 0), Ok((1..=ts).collect()));
        if lengths.last() != Some(&prepared) {
            lengths.push(prepared);
        }
    }
    // The room doubles each time, up to the end of the first slot.
    assert!(lengths.len() >= 4 && lengths[1] <= 2 * 4096 + 1024, "{lengths:?}");
}

#[test]
fn the_part_of_a_slot_that_is_there_is_used_again_when_its_generation_is_merged() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SHORT);
    let mut longest = 0;
    for ts in 1..=40 {
        bench.commit_durably(ts, ts as u32, 10);
        bench.log.retire(Generation::new(ts as u32 - 1));
        longest = longest.max(file_bytes(&storage));
        assert_eq!(recovered(&storage, ts as u32 - 1), Ok(vec![ts]));
    }
    assert!(longest <= 3 * 4096 + 2 * SHORT.segment as usize, "{longest}");
}

// holds LOG-3
#[test]
fn a_full_disk_is_met_by_the_growth_and_not_by_a_frame() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SHORT);
    let end = bench.commit_durably(1, 1, 20);
    storage.set_capacity(Some(file_bytes(&storage) as u64));
    let full = bench.try_commit(2, 1, 400);
    assert!(matches!(full, Err(LogError::NoSpace { .. })), "{full:?}");
    assert_eq!(bench.shared_end(), end, "before the commit point");
    assert_eq!(bench.log.shared().poisoned(), None);
    storage.set_capacity(None);
    bench.commit_durably(2, 1, 400);
    assert_eq!(recovered(&storage, 0), Ok(vec![1, 2]));
}

#[test]
fn what_is_prepared_finds_whole_slots_and_all_of_the_window_for_what_resolves_it() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SHORT);
    let shared = bench.log.shared();
    shared.ring_space.store(256, Relaxed);
    let key = 1u64.to_be_bytes();
    let op = Op { root: Root::new(2), kind: OpKind::Put, key: &key, rec: &[1; 8] };
    let head = FrameHead { commit_ts: CommitTs::new(1), generation: Generation::new(1) };
    let mark = crate::log::Mark { name: b"name", pages: None };
    let len = frame_len([op]) + mark.encoded_len();
    let mut lacked = Vec::new();
    loop {
        let guard = bench.lock_commit();
        let purpose = Purpose::Prepare(mark, len);
        match bench.log.ring().append_for(&guard, purpose, &head, len, [op]) {
            Ok(_) => break,
            Err(lacking) => {
                drop(guard);
                match lacking {
                    AppendError::NeedsRing(bytes) => shared.note_ring_space(bytes),
                    other => bench.log.make_room(other).expect("room"),
                }
                lacked.push(lacking);
            }
        }
    }
    assert_eq!(
        lacked,
        [AppendError::NeedsBytes(SHORT.segment), AppendError::NeedsRing(shared.window_bytes())]
    );
}

// holds LOG-8
#[test]
fn a_frame_is_copied_only_where_the_ring_has_disk_space() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, Sizes { slots: 60, ..SMALL });
    let shared = bench.log.shared();
    shared.ring_space.store(64, Relaxed);
    let mut grown = 0;
    for ts in 1..=60 {
        loop {
            let key = u64::to_be_bytes(ts);
            let rec = vec![ts as u8; (ts as usize * 13) % 90];
            let op = Op { root: Root::new(2), kind: OpKind::Put, key: &key, rec: &rec };
            let head = FrameHead {
                commit_ts: CommitTs::new(ts),
                generation: Generation::new(1 + ts as u32 / 25),
            };
            let guard = bench.lock_commit();
            match bench.log.ring().append(&guard, &head, frame_len([op]), [op]) {
                Ok((start, end)) => {
                    let window = shared.window_bytes();
                    let within = start.get() % window + (end - start);
                    assert!(within.min(window) <= shared.ring_space(), "commit {ts}");
                    bench.log.ring().publish_end(&guard, end);
                    break;
                }
                Err(AppendError::NeedsRing(bytes)) => {
                    assert!(bytes > shared.ring_space() && bytes <= shared.window_bytes());
                    shared.note_ring_space(bytes);
                    grown += 1;
                }
                Err(lacking) => {
                    drop(guard);
                    bench.log.make_room(lacking).expect("room");
                }
            }
        }
        bench.log.sync_through(bench.shared_end()).expect("a sync");
    }
    assert!(grown > 3, "{grown}");
    assert_eq!(recovered(&storage, 0), Ok((1..=60).collect()));
}

#[test]
fn a_file_that_was_cut_short_is_noticed_by_the_growth_that_would_make_it_long_enough_again() {
    for left in [0, 100, 4096 + 64] {
        let storage = SimStorage::new();
        let bench = Bench::new(&storage, SHORT);
        let end = bench.commit_durably(1, 1, 20);
        storage.tamper(&path(), |bytes| bytes.truncate(left));
        let lost = bench.try_commit(2, 1, 400);
        assert!(matches!(lost, Err(LogError::Lost { .. })), "{left}: {lost:?}");
        assert_eq!(bench.shared_end(), end, "before the commit point");
        assert!(bench.log.shared().is_lost());
        assert_eq!(file_bytes(&storage), left, "nothing was written to it");
    }
}
