//! What a hold keeps, and what it costs.

use std::sync::Arc;

use super::*;
use crate::base::{Base, BaseHeader, Checkpoint, WalState};
use crate::log::{Stretch, Unread};
use crate::replay::Replay;
use crate::shm::read_marks::ReadMarks;
use crate::storage::sim::SimStorage;

const ME: ProcessIndex = ProcessIndex(3);

/// A log with generations of one segment each, all of them merged but the last.
struct Held {
    storage: SimStorage,
    bench: Bench,
    ts: u64,
    generation: u32,
}

impl Held {
    fn new(slots: u32, limit: u32) -> Held {
        let storage = SimStorage::new();
        let bench = Bench::new(&storage, Sizes { slots, limit, ..SMALL });
        Held { storage, bench, ts: 0, generation: 0 }
    }

    fn hold(&self, from: Lsn, bytes: u64) -> HoldToken {
        let guard = self.bench.lock_commit();
        self.bench.log.shared().take_hold(&guard, ME, from, bytes)
    }

    /// One more generation, on disk, and the one before merged.
    fn generation(&mut self) -> Lsn {
        self.try_generation().expect("a generation")
    }

    fn try_generation(&mut self) -> Result<Lsn, LogError> {
        self.generation += 1;
        self.ts += 1;
        let end = self.bench.try_commit(self.ts, self.generation, 600)?;
        self.bench.log.sync_through(end)?;
        self.bench.log.retire(Generation::new(self.generation - 1));
        Ok(end)
    }

    fn slots(&self) -> u32 {
        self.bench.log.status().slots
    }

    fn read(&self, from: Lsn) -> Result<Option<Stretch>, Unread> {
        let log = &self.bench.log;
        log.read_durable(from, log.shared().durable_through(), 1 << 20)
    }

    /// The commits that can be read from a position on.
    fn commits_from(&self, mut from: Lsn) -> Vec<u64> {
        let mut found = Vec::new();
        while let Some(stretch) = self.read(from).expect("frames") {
            let mut at = stretch.from;
            let mut rest = &stretch.bytes[..];
            while !rest.is_empty() {
                let frame = Frame::parse(rest, SALT, at).expect("a frame");
                found.push(frame.commit_ts.get());
                assert_eq!(frame.generation, stretch.generation);
                rest = &rest[frame.len_bytes() as usize..];
                at = frame.end();
            }
            from = stretch.end();
        }
        found
    }
}

fn first(held: &Held) -> Lsn {
    held.bench.log.shared().first_lsn()
}

// holds HELD-1, TAILING-2
#[test]
fn what_is_held_can_be_read_long_after_it_was_merged() {
    let mut held = Held::new(2, 64);
    let token = held.hold(first(&held), 64 * SEGMENT);
    (0..20).for_each(|_| _ = held.generation());
    assert!(held.bench.log.shared().is_held_by(token));
    assert_eq!(held.commits_from(first(&held)), (1..=20).collect::<Vec<_>>());
    assert!(held.slots() >= 20, "no slot was used twice");
    assert_eq!(held.bench.log.status().live_segments, 1, "a hold makes nothing live");
}

#[test]
fn without_a_hold_slots_are_used_again() {
    let mut held = Held::new(2, 64);
    (0..20).for_each(|_| _ = held.generation());
    assert!(held.slots() < 5);
    assert!(matches!(held.read(first(&held)), Err(Unread::Gone(..))));
}

// holds HELD-2
#[test]
fn a_hold_at_its_limit_is_broken_and_no_commit_fails() {
    let mut held = Held::new(2, 6);
    let token = held.hold(first(&held), 8 * SEGMENT);
    (0..200).for_each(|_| _ = held.generation());
    let shared = held.bench.log.shared();
    assert!(!shared.is_held_by(token));
    assert_eq!(shared.hold_status(), (false, 0, 1));
    assert!(held.slots() <= 2 + 8 + 1, "{} slots", held.slots());
    assert!(matches!(held.read(first(&held)), Err(Unread::Gone(..))));
    assert!(!shared.move_hold(token, held.bench.shared_end()), "HELD-3");
}

// holds HELD-2
#[test]
fn a_file_that_cannot_grow_breaks_the_hold_and_no_commit_fails() {
    let mut held = Held::new(4, 64);
    let token = held.hold(first(&held), 64 * SEGMENT);
    (0..3).for_each(|_| _ = held.generation());
    let full = bytes_of(&held.storage).len() as u64;
    held.storage.set_capacity(Some(full));
    (0..20).for_each(|_| _ = held.generation());
    assert!(!held.bench.log.shared().is_held_by(token));
    assert_eq!(held.slots(), 4);
}

// holds HELD-2
#[test]
fn the_logs_own_limit_is_that_of_live_segments_alone() {
    let held = Held::new(2, 4);
    let token = held.hold(first(&held), 64 * SEGMENT);
    let mut generation = 0;
    let full = loop {
        generation += 1;
        match held.bench.try_commit(u64::from(generation), generation, 600) {
            Ok(end) => held.bench.log.sync_through(end).expect("a sync"),
            Err(full) => break full,
        }
    };
    assert!(matches!(full, LogError::Full { .. }), "{full}");
    assert_eq!(generation, 5, "nothing was merged");
    assert!(held.bench.log.shared().is_held_by(token), "the hold is not why");
    held.bench.log.retire(Generation::new(2));
    let after = held.bench.try_commit(u64::from(generation), generation, 600);
    assert!(after.is_ok(), "the merge has made room, and the hold takes none of it");
}

// holds HELD-1
#[test]
fn the_hold_moves_on_with_what_is_shipped() {
    let mut held = Held::new(2, 64);
    let token = held.hold(first(&held), 64 * SEGMENT);
    let mut ends = Vec::new();
    for _ in 0..200 {
        let end = held.generation();
        ends.push(end);
        if let Some(shipped) = ends.len().checked_sub(4) {
            assert!(held.bench.log.shared().move_hold(token, ends[shipped]));
            let next = held.ts - 2;
            assert_eq!(held.commits_from(ends[shipped]), (next..=held.ts).collect::<Vec<_>>());
        }
    }
    assert!(held.slots() < 10, "{} slots", held.slots());
}

// holds HELD-3, HELD-4
#[test]
fn a_hold_ends_with_its_process_and_not_with_another() {
    let held = Held::new(2, 64);
    let shared = held.bench.log.shared();
    let old = held.hold(first(&held), SEGMENT);
    let new = held.hold(first(&held), SEGMENT);
    assert!(!shared.is_held_by(old));
    shared.end_hold(old);
    shared.end_hold_of(ProcessIndex(9));
    assert!(shared.is_held_by(new));
    shared.end_hold_of(ME);
    assert!(!shared.is_held_by(new));
    assert_eq!(shared.hold_status().2, 0, "it was not broken");
}

// holds HELD-1
#[test]
fn a_hold_knows_whether_what_it_begins_with_is_there() {
    let mut held = Held::new(2, 64);
    let ends: Vec<Lsn> = (0..6).map(|_| held.generation()).collect();
    let guard = held.bench.lock_commit();
    let shared = held.bench.log.shared();
    assert!(!shared.has_from(&guard, first(&held)), "its slot was used again");
    assert!(shared.has_from(&guard, ends[5]) && shared.has_from(&guard, ends[4]));
    let next = Lsn::new(ends[5].get().next_multiple_of(SEGMENT));
    assert!(shared.has_from(&guard, next));
    assert!(!shared.has_from(&guard, next + 2 * SEGMENT), "that is not there yet");
    drop(guard);
    assert_eq!(held.bench.log.start_above(Generation::new(5)), Some(Lsn::new(6 * SEGMENT)));
    assert_eq!(held.bench.log.start_above(Generation::new(6)), Some(next));
}

// holds TAILING-1
#[test]
fn what_is_not_on_disk_is_not_given() {
    let mut held = Held::new(2, 64);
    held.hold(first(&held), 64 * SEGMENT);
    let end = held.generation();
    held.bench.commit(2, 1, 20);
    held.bench.log.write_through(held.bench.shared_end()).expect("a write");
    assert_eq!(held.commits_from(first(&held)), [1]);
    assert_eq!(held.bench.log.crc_of_frame_before(held.bench.shared_end()), Ok(None));
    let crc = held.read(first(&held)).expect("frames").expect("some").crc;
    assert_eq!(held.bench.log.crc_of_frame_before(end), Ok(Some(crc)));
}

/// A log with commit 1, a prepared commit 2, and with commit 3 that resolves it. Calls `between`
/// before that.
fn with_a_prepared_frame(between: impl FnOnce(&Held)) -> Held {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, SMALL);
    let held = Held { storage, bench, ts: 0, generation: 1 };
    held.hold(first(&held), 64 * SEGMENT);
    held.bench.commit(1, 1, 40);
    let head = |ts| FrameHead { commit_ts: CommitTs::new(ts), generation: Generation::new(1) };
    let op = Op { root: Root::new(2), kind: OpKind::Put, key: b"k", rec: b"v" };
    let mark = Mark { name: b"app.db-mj01", pages: None };
    let len = frame_len([op]) + mark.encoded_len();
    let append = |purpose, ts, len, ops: &[Op<'_>]| {
        let guard = held.bench.lock_commit();
        let ring = held.bench.log.ring();
        let (_, end) =
            ring.append_for(&guard, purpose, &head(ts), len, ops.to_vec()).expect("room");
        ring.publish_end(&guard, end);
        end
    };
    let end = append(ring::Purpose::Prepare(mark, 200), 2, len, &[op]);
    held.bench.log.sync_through(end).expect("a sync");
    between(&held);
    let end = append(ring::Purpose::Resolve, 3, frame_len([op]), &[op]);
    held.bench.log.sync_through(end).expect("a sync");
    held
}

// holds TAILING-3
#[test]
fn a_prepared_frame_is_given_with_the_one_behind_it() {
    let held = with_a_prepared_frame(|held| {
        assert_eq!(held.commits_from(first(held)), [1], "nobody knows what becomes of it");
    });
    assert_eq!(held.commits_from(first(&held)), [1, 2, 3]);
}

/// A base that counts what is put into it.
#[derive(Default)]
struct Counting {
    header: BaseHeader,
    puts: u32,
}

impl Base for Counting {
    fn use_read_marks(&mut self, _: &Arc<ReadMarks>) {}
    fn header(&mut self) -> crate::error::Result<BaseHeader> {
        Ok(self.header)
    }
    fn begin(&mut self) -> crate::error::Result<()> {
        Ok(())
    }
    fn put(&mut self, _: Root, _: &[u8], _: &[u8]) -> crate::error::Result<()> {
        self.puts += 1;
        Ok(())
    }
    fn delete(&mut self, _: Root, _: &[u8], _: &[u8]) -> crate::error::Result<()> {
        Ok(())
    }
    fn stamp(&mut self, header: &BaseHeader) -> crate::error::Result<()> {
        self.header = *header;
        Ok(())
    }
    fn commit(&mut self) -> crate::error::Result<()> {
        Ok(())
    }
    fn rollback(&mut self) {}
    fn raise_fence(&mut self) -> crate::error::Result<()> {
        Ok(())
    }
    fn checkpoint(&mut self, _: Checkpoint) -> crate::error::Result<WalState> {
        Ok(WalState::default())
    }
}

// holds REPLAY-3
#[test]
fn a_replay_merges_no_commit_that_is_not_decided() {
    let held = with_a_prepared_frame(|_| ());
    let stretch = held.read(first(&held)).expect("frames").expect("some");
    let end_of = |at: usize| {
        let frame = Frame::parse(&stretch.bytes[at..], SALT, stretch.from + at as u64);
        at + frame.expect("a frame").len_bytes() as usize
    };
    let behind_prepared = end_of(end_of(0));
    let (undecided, rest) = stretch.bytes.split_at(behind_prepared);
    let through = Generation::new(1);
    let begun = || {
        let mut replay = Replay::new(SALT);
        replay.take(undecided, stretch.from).expect("sound frames");
        assert!(replay.is_undecided());
        replay
    };
    let base = &mut Counting::default();
    let mut replay = begun();
    replay.merge(base, through).expect_err("nothing tells whether it happened");
    replay.renew(SALT + 1).expect_err("nor what the base has of it");
    assert_eq!(base.puts, 0);
    replay.take(rest, stretch.from + behind_prepared as u64).expect("sound frames");
    replay.merge(base, through).expect("it is decided");
    assert_eq!((base.puts, base.header.generation), (2, through));
    // At the end of the stream it is left out.
    let base = &mut Counting::default();
    begun().settle(base).expect("it is left out");
    assert_eq!((base.puts, base.header.generation), (1, through));
}

// holds TAILING-2
#[test]
fn a_damaged_length_is_told_and_not_waited_for() {
    let mut held = Held::new(2, 64);
    held.hold(first(&held), 64 * SEGMENT);
    held.generation();
    held.generation();
    let bytes = held.read(first(&held)).expect("frames").expect("some").bytes;
    let path = held.bench.log.file().path().to_owned();
    held.storage.tamper(&path, |file| {
        let at = file.windows(bytes.len()).position(|found| found == bytes).expect("it is there");
        // A frame begins with its magic and its length.
        file[at + 4 + 2] = 0x10;
    });
    let read = held.read(first(&held));
    assert!(matches!(read, Err(Unread::Gone(at, _)) if at == first(&held)), "{read:?}");
}
