//! What a ring has after the file's end continues the log, and nothing else does.

use super::super::moment::Tail;
use super::super::shared::Segment;
use super::*;
use crate::shm::layout::RING_BYTES;

const SIZES: Sizes = Sizes { slots: 6, ..SMALL };

fn tail_of(bench: &Bench) -> Option<Tail> {
    Tail::copy_from(bench.log.ring(), SEGMENT, RING)
}

fn continued(storage: &SimStorage, base: u32, tail: Option<Tail>) -> Result<Vec<u64>, LogError> {
    let base = Generation::new(base);
    let mut scan = LogScan::open_continued(storage, &path(), SALT, base, tail)?;
    let mut found = Vec::new();
    scan.replay(|frame| {
        found.push(frame.commit_ts.get());
        Ok::<(), LogError>(())
    })?;
    Ok(found)
}

/// Commits of many sizes, in shared and in separate generations.
const COMMITS: [(u64, u32, usize); 8] = [
    (2, 1, 700),
    (3, 1, 900),
    (4, 2, 30),
    (5, 2, 600),
    (6, 2, 50),
    (7, 3, 20),
    (8, 3, 400),
    (9, 3, 10),
];

#[test]
fn it_goes_on_wherever_the_file_ends() {
    for written in 0..COMMITS.len() {
        let storage = SimStorage::new();
        let bench = Bench::new(&storage, SIZES);
        bench.commit_durably(1, 1, 40);
        for (i, (ts, generation, len)) in COMMITS.into_iter().enumerate() {
            let end = bench.commit(ts, generation, len);
            if i + 1 == written {
                bench.log.write_through(end).expect("a write");
            }
        }
        let of_file = recovered(&storage, 0).expect("a sound log");
        assert_eq!(of_file, (1..=1 + written as u64).collect::<Vec<_>>());
        let tail = tail_of(&bench).expect("commits that are not written");
        assert_eq!(continued(&storage, 0, Some(tail.clone())), Ok((1..=9).collect()));
        // Over a base that has the first commits.
        assert_eq!(continued(&storage, 1, Some(tail.clone())), Ok((4..=9).collect()));
        assert_eq!(continued(&storage, 3, Some(tail)), Ok(vec![]));
    }
}

/// After an exclusive transaction the log goes on in another segment.
#[test]
fn a_gap_is_no_content_that_would_have_to_fit_into_the_window() {
    const LONG: u64 = WINDOW;
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, Sizes { segment: LONG, ..SIZES });
    bench.commit_durably(1, 1, 40);
    bench.commit(2, 3, 40);
    bench.commit(3, 3, 400);
    let tail = Tail::copy_from(bench.log.ring(), LONG, RING).expect("commits that are not written");
    assert_eq!(continued(&storage, 1, Some(tail.clone())), Ok(vec![]));
    assert_eq!(continued(&storage, 2, Some(tail)), Ok(vec![2, 3]));
}

#[test]
fn nothing_is_left_when_all_is_written() {
    let bench = Bench::new(&SimStorage::new(), SIZES);
    bench.commit_durably(1, 1, 40);
    assert!(tail_of(&bench).is_none());
    // Nor from a ring of another size, or another version.
    bench.commit(2, 1, 40);
    assert!(Tail::copy_from(bench.log.ring(), SEGMENT * 2, RING).is_none());
    assert!(Tail::copy_from(bench.log.ring(), SEGMENT, RING_BYTES as u64).is_none());
}

/// An exclusive transaction that a power cut has taken from the base must be missed, not skipped.
// holds TAIL-1
#[test]
fn it_ends_where_an_exclusive_transaction_is_missing_from_the_base() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SIZES);
    bench.commit_durably(1, 1, 40);
    bench.commit(2, 1, 40);
    // Generation 2 belongs to an exclusive transaction, and has no frames.
    bench.commit(3, 3, 40);
    bench.commit(4, 4, 40);
    let tail = tail_of(&bench).expect("commits that are not written");
    assert_eq!(continued(&storage, 0, Some(tail.clone())), Ok(vec![1, 2]));
    assert_eq!(continued(&storage, 1, Some(tail.clone())), Ok(vec![]));
    assert_eq!(continued(&storage, 2, Some(tail)), Ok(vec![3, 4]));
}

/// A missing exclusive transaction whose generation has frames, those of a rolled back transaction
/// over several files.
#[test]
fn frames_without_rows_do_not_stand_for_an_exclusive_transaction() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SIZES);
    bench.commit_durably(1, 1, 40);
    let head = FrameHead { commit_ts: CommitTs::new(2), generation: Generation::new(2) };
    let guard = bench.lock_commit();
    let appended = bench.log.ring().append(&guard, &head, frame_len([]), []);
    let (_, end) = appended.expect("an empty frame");
    bench.log.ring().publish_end(&guard, end);
    drop(guard);
    bench.commit(3, 3, 40);
    let tail = tail_of(&bench).expect("frames that are not written");
    assert_eq!(continued(&storage, 0, Some(tail.clone())), Ok(vec![1, 2]));
    assert_eq!(continued(&storage, 1, Some(tail.clone())), Ok(vec![2]));
    assert_eq!(continued(&storage, 2, Some(tail)), Ok(vec![3]));
}

/// Damage as in copies made one after the other, or in shared memory torn by a power cut.
// holds TAIL-2
#[test]
fn damage_of_it_costs_nothing_that_the_file_has() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SIZES);
    for ts in 1..=3 {
        bench.commit_durably(ts, 1, 200);
    }
    let file = storage.crash(0);
    for ts in 4..=6 {
        bench.commit_durably(ts, 1, 200);
    }
    bench.commit(7, 1, 200);
    bench.commit(8, 2, 200);
    let tail = tail_of(&bench).expect("commits that are not written");
    // The file is older than the ring, whose frames say that more was on disk.
    assert_eq!(continued(&file, 0, Some(tail.clone())), Ok(vec![1, 2, 3]));
    for at in 0..tail.bytes.len() {
        let mut torn = tail.clone();
        torn.bytes[at] ^= 0x40;
        let found = continued(&storage, 0, Some(torn)).expect("the file is sound");
        assert!((6..=8).any(|n| found == (1..=n).collect::<Vec<_>>()), "byte {at}: {found:?}");
    }
    for len in (0..tail.bytes.len()).step_by(8) {
        let mut short = tail.clone();
        short.bytes.truncate(len);
        let found = continued(&storage, 0, Some(short)).expect("the file is sound");
        assert!((6..=7).any(|n| found == (1..=n).collect::<Vec<_>>()), "{len} bytes: {found:?}");
    }
    for change in [
        |s: &mut Segment| s.generation = Generation::new(9),
        |s: &mut Segment| s.previous_generation = Generation::new(7),
        |s: &mut Segment| s.generation_start = Lsn::new(8),
        |s: &mut Segment| s.previous_end = Lsn::new(u64::MAX),
        |s: &mut Segment| s.number = u64::MAX,
    ] {
        for i in 0..tail.segments.len() {
            let mut other = tail.clone();
            change(&mut other.segments[i]);
            let found = continued(&storage, 0, Some(other)).expect("the file is sound");
            assert!((6..=8).any(|n| found == (1..=n).collect::<Vec<_>>()), "{found:?}");
        }
    }
}
