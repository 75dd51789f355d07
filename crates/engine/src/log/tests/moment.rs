//! Log and shared memory of the same moment, and of different ones.

use super::*;
use crate::log::Moment;

/// Makes a session of `commits` commits and writes each, or every third. Sessions of one length are
/// equal.
fn after(commits: u64, written: bool) -> (SimStorage, Bench) {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, Sizes { slots: 4, ..SMALL });
    for ts in 1..=commits {
        let generation = generation_of(ts);
        let end = bench.commit(ts, generation, (ts as usize * 37) % 300);
        if written || ts % 3 == 0 {
            bench.log.sync_through(end).expect("a sync");
            bench.log.retire(Generation::new(generation.saturating_sub(2)));
        }
    }
    (storage, bench)
}

/// A generation may change at a written commit and at an unwritten one.
fn generation_of(ts: u64) -> u32 {
    1 + (ts / 4) as u32
}

fn compared(bench: &Bench, storage: &SimStorage, merged: u32) -> Moment {
    let merged = Generation::new(merged);
    bench.log.shared().compare(storage, &path(), merged).expect("it can be read")
}

#[test]
fn memory_knows_its_own_log_and_tells_older_and_newer_ones() {
    const MOST: u64 = 22;
    let sessions: Vec<_> = (0..=MOST).map(|n| after(n, true)).collect();
    for (n, (_, memory)) in sessions.iter().enumerate() {
        for (m, (file, _)) in sessions.iter().enumerate() {
            // Generations that were given back are merged.
            let merged = generation_of(n.min(m) as u64).saturating_sub(2);
            let expected = match n.cmp(&m) {
                std::cmp::Ordering::Equal => Moment::Same,
                std::cmp::Ordering::Less => Moment::LogIsNewer,
                std::cmp::Ordering::Greater => Moment::LogIsOlder,
            };
            assert_eq!(compared(memory, file, merged), expected, "memory of {n}, log of {m}");
        }
    }
}

#[test]
fn what_memory_has_not_written_is_missed_in_no_log() {
    for n in 0..=22 {
        let (file, memory) = after(n, false);
        let merged = generation_of(n).saturating_sub(2);
        assert_eq!(compared(&memory, &file, merged), Moment::Same, "{n} commits");
        // A write that was not counted, as if its writer had been killed.
        memory.log.write_through(memory.shared_end()).expect("a write");
        let (_, before) = after(n, false);
        let is_ahead = before.log.shared().written_through() < memory.shared_end();
        let compared = compared(&before, &file, merged);
        assert_eq!(compared, Moment::Same, "{n} commits, ahead: {is_ahead}");
    }
}

#[test]
fn a_frame_written_in_part_is_no_reason_to_doubt_the_log() {
    let storage = SimStorage::new();
    let bench = Bench::new(&storage, Sizes { slots: 8, ..SMALL });
    bench.commit_durably(1, 1, 100);
    let end = bench.commit_durably(2, 1, 700);
    let shared = bench.log.shared();
    let whole = bytes_of(&storage);
    for cut in (0..700).step_by(8) {
        // As if the writer had been killed `cut` bytes before the end.
        let written = Lsn::new(end.get() - cut);
        shared.group.written_through.store(written.get(), std::sync::atomic::Ordering::Relaxed);
        let file = storage.open(&path()).expect("the log");
        let within = written.get() % SEGMENT;
        let at = super::super::file::slot_offset(
            shared.slot_of(written.get() / SEGMENT).expect("its slot"),
            SEGMENT,
        ) + 4096
            + within;
        let zeros = vec![0; (cut as usize).min((SEGMENT - within) as usize)];
        file.write_at(&zeros, at).expect("a write");
        assert_eq!(compared(&bench, &storage, 0), Moment::Same, "{cut} bytes before its end");
        file.write_at(&whole, 0).expect("as it was");
    }
}

#[test]
fn a_log_that_was_written_over_is_an_older_one() {
    let (storage, bench) = after(9, true);
    let file = storage.open(&path()).expect("the log");
    let whole = bytes_of(&storage);
    let zeros = vec![0; whole.len() - 4096];
    file.write_at(&zeros, 4096).expect("a write");
    assert_eq!(compared(&bench, &storage, 0), Moment::LogIsOlder);
    file.write_at(&whole, 0).expect("as it was");
    assert_eq!(compared(&bench, &storage, 0), Moment::Same);
}
