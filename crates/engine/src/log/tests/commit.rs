//! Appending, syncing, reusing, redoing.

use super::*;

#[test]
fn what_was_committed_is_found_again_across_segments_and_generations() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SMALL);
    for ts in 1..=40 {
        bench.commit_durably(ts, 1 + (ts / 15) as u32, (ts as usize * 37) % 700);
    }
    assert_eq!(recovered(&storage, 0), Ok((1..=40).collect()));
    assert_eq!(recovered(&storage, 1), Ok((15..=40).collect()));
    assert_eq!(recovered(&storage, 2), Ok((30..=40).collect()));
    assert_eq!(recovered(&storage, 3), Ok(vec![]));
}

#[test]
fn an_empty_log_is_sound_and_holds_nothing() {
    let storage = SimStorage::new();
    drop(Bench::new(&storage, SMALL));
    assert_eq!(recovered(&storage, 0), Ok(vec![]));
    let ours = storage.identity_at(&path()).expect("it is there");
    LogFile::remove(&storage, &path(), ours).expect("removal");
    LogFile::remove(&storage, &path(), ours).expect("removal of nothing");
    assert!(!storage.exists(&path()).expect("a look"));
}

// holds COMMIT-2
#[test]
fn a_frame_that_was_copied_but_not_published_never_happened() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SMALL);
    bench.commit_durably(1, 1, 10);
    let key = 2u64.to_be_bytes();
    let op = Op { root: Root::new(2), kind: OpKind::Put, key: &key, rec: &[2; 3000] };
    let head = FrameHead { commit_ts: CommitTs::new(2), generation: Generation::new(2) };
    let guard = bench.lock_commit();
    let lacking = bench.log.ring().append(&guard, &head, frame_len([op]), [op]);
    assert!(matches!(lacking, Err(AppendError::NeedsSlots(_))));
    drop(guard);
    bench.log.make_room(lacking.expect_err("no slots")).expect("room");
    let guard = bench.lock_commit();
    bench.log.ring().append(&guard, &head, frame_len([op]), [op]).expect("room");
    drop(guard);
    bench.commit_durably(2, 1, 10);
    bench.commit_durably(3, 2, 10);
    assert_eq!(recovered(&storage, 0), Ok(vec![1, 2, 3]));
}

#[test]
fn redo_walks_the_frames_of_the_ring_across_wraps_and_generations() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SMALL);
    let mut from = bench.shared_end();
    for ts in 1..=200u64 {
        let before = bench.shared_end();
        bench.commit(ts, 1 + (ts / 9) as u32, (ts as usize * 91) % 500);
        if ts % 9 == 8 {
            bench.log.sync_through(bench.shared_end()).expect("a sync");
            bench.log.retire(Generation::new((ts / 9) as u32));
        }
        let guard = bench.lock_commit();
        let mut found = Vec::new();
        let end = bench.shared_end();
        let ring = bench.log.ring();
        ring.for_each_frame(&guard, before, end, |f| found.push(f.commit_ts.get()))
            .expect("in the ring");
        assert_eq!(found, vec![ts]);
        if ts % 5 == 0 {
            found.clear();
            ring.for_each_frame(&guard, from, end, |f| found.push(f.commit_ts.get()))
                .expect("in the ring");
            assert_eq!(found, (ts - 4..=ts).collect::<Vec<_>>());
            from = end;
        }
    }
}

// holds RING-1
#[test]
fn the_window_is_the_whole_ring_only_while_there_are_long_frames() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, Sizes { slots: 60, ..SMALL });
    let window = || bench.log.shared().window_bytes();
    let from = bench.shared_end();
    bench.commit(1, 1, 100);
    assert_eq!(window(), WINDOW);

    let key = 2u64.to_be_bytes();
    let op = Op { root: Root::new(2), kind: OpKind::Put, key: &key, rec: &[2; 3000] };
    let head = FrameHead { commit_ts: CommitTs::new(2), generation: Generation::new(1) };
    let append = || {
        let guard = bench.lock_commit();
        bench.log.ring().append(&guard, &head, frame_len([op]), [op]).map(drop)
    };
    assert_eq!(append(), Err(AppendError::RingFull), "the first frame is not in the file");
    assert_eq!(window(), WINDOW);
    bench.log.make_room(AppendError::RingFull).expect("a write");
    assert_eq!(append(), Ok(()));
    assert_eq!(window(), RING);
    // As if its committer had been killed before it published it.
    bench.commit(2, 1, 100);
    assert_eq!(window(), WINDOW);

    bench.commit(3, 1, 3000);
    assert_eq!(window(), RING);
    bench.commit(4, 1, 100);
    assert_eq!(window(), RING, "the long frame is not in the file");
    let moved_at = bench.commit_durably(5, 1, 100);
    bench.commit(6, 2, 100);
    assert_eq!(window(), WINDOW);

    let guard = bench.lock_commit();
    let ring = bench.log.ring();
    assert!(ring.for_each_frame(&guard, from, bench.shared_end(), |_| {}).is_err());
    let mut found = Vec::new();
    let end = bench.shared_end();
    ring.for_each_frame(&guard, moved_at, end, |f| found.push(f.commit_ts.get())).expect("there");
    assert_eq!(found, [6]);
    drop(guard);
    bench.log.sync_through(end).expect("a sync");
    assert_eq!(recovered(&storage, 0), Ok((1..=6).collect()));
}

#[test]
fn bytes_that_have_left_the_ring_are_refused() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SMALL);
    let from = bench.shared_end();
    for ts in 1..=40 {
        bench.commit_durably(ts, 1, 400);
    }
    let guard = bench.lock_commit();
    let outcome = bench.log.ring().for_each_frame(&guard, from, bench.shared_end(), |_| {});
    assert!(outcome.is_err());
}

#[test]
fn relaxed_commits_write_only_when_a_quarter_of_the_window_waits() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SMALL);
    let start = bench.log.shared().written_through();
    let mut ts = 0;
    loop {
        ts += 1;
        let end = bench.commit(ts, 1, 100);
        bench.log.relaxed_commit(end).expect("a relaxed commit");
        if bench.log.shared().written_through() > start {
            assert!(end - start > WINDOW / 4);
            break;
        }
        assert!(end - start <= WINDOW / 4);
    }
    assert_eq!(bench.log.shared().durable_through(), start);
    assert_eq!(bench.log.status().syncs, 0);
}

#[test]
fn slots_are_used_again_and_the_file_stays_small() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SMALL);
    for ts in 1..=400u64 {
        let generation = 1 + (ts / 4) as u32;
        bench.commit_durably(ts, generation, 300);
        bench.log.retire(Generation::new(generation.saturating_sub(2)));
        if generation > 3 {
            let base = generation - 2;
            let first_kept = u64::from(base) * 4;
            assert_eq!(recovered(&storage, base), Ok((first_kept..=ts).collect()));
        }
    }
    assert!(bench.log.status().slots <= 8, "{:?}", bench.log.status());
}

#[test]
fn a_spare_slot_is_prepared_before_it_is_needed() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SMALL);
    for ts in 1..=100 {
        bench.log.prepare_spare().expect("a spare");
        let guard = bench.lock_commit();
        let rec = [0u8; 300];
        let op = Op { root: Root::new(2), kind: OpKind::Put, key: b"k", rec: &rec };
        let head = FrameHead { commit_ts: CommitTs::new(ts), generation: Generation::new(1) };
        match bench.log.ring().append(&guard, &head, frame_len([op]), [op]) {
            Ok((_, end)) => bench.log.ring().publish_end(&guard, end),
            Err(AppendError::LimitReached) => return,
            Err(e) => panic!("commit {ts} had to wait for {e:?}"),
        }
        drop(guard);
        bench.log.sync_through(bench.shared_end()).expect("a sync");
    }
}

// holds LOG-1
#[test]
fn committed_bytes_are_never_overwritten_in_the_ring_before_they_are_in_the_file() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, Sizes { slots: 60, ..SMALL });
    for ts in 1..=300 {
        bench.commit(ts, 1 + (ts / 100) as u32, (ts as usize * 31) % 240);
    }
    assert_eq!(bench.log.status().syncs, 0);
    bench.log.write_through(bench.shared_end()).expect("a write");
    assert_eq!(recovered(&storage, 0), Ok((1..=300).collect()));
}

#[test]
fn a_segment_that_is_not_in_the_file_yet_is_not_given_back() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SMALL);
    bench.commit(1, 1, 10);
    bench.log.retire(Generation::new(1));
    assert_eq!(bench.log.status().live_segments, 1);
    bench.commit_durably(2, 2, 10);
    bench.log.retire(Generation::new(1));
    assert_eq!(bench.log.status().live_segments, 1);
    assert_eq!(recovered(&storage, 1), Ok(vec![2]));
}
