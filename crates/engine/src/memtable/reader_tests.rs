//! Readers in parallel with a writer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering as Atomic};
use std::thread;

use super::test_region::Region;
use super::*;

const ROOT: Root = Root::new(5);
const KEYS: u64 = 512;
const COMMITS: u64 = 6_000;

/// Commit `ts` writes this key and its own number.
fn key_of(ts: u64) -> [u8; 8] {
    (ts.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).wrapping_rem(KEYS).to_be_bytes()
}

/// The newest commit up to `at` of every key.
fn expected(at: u64) -> Vec<([u8; 8], u64)> {
    let mut newest = vec![0; KEYS as usize];
    for ts in 1..=at {
        newest[u64::from_be_bytes(key_of(ts)) as usize] = ts;
    }
    (0..KEYS).map(|k| (k.to_be_bytes(), newest[k as usize])).filter(|(_, ts)| *ts != 0).collect()
}

fn read_forward(table: &Memtable, at: SnapshotTs) -> Vec<([u8; 8], u64)> {
    let mut seen = Vec::new();
    let mut node = table.seek(ROOT, Seek::First, at);
    while let Some(n) = node {
        assert_eq!(n.rec(), n.ts().get().to_le_bytes());
        seen.push((n.key().try_into().expect("eight bytes"), n.ts().get()));
        node = table.next_key(&n, at);
    }
    seen
}

fn read_backward(table: &Memtable, at: SnapshotTs) -> Vec<([u8; 8], u64)> {
    let mut seen = Vec::new();
    let mut node = table.seek(ROOT, Seek::Last, at);
    while let Some(n) = node {
        seen.push((n.key().try_into().expect("eight bytes"), n.ts().get()));
        node = table.seek(ROOT, Seek::Lt(n.key()), at);
    }
    seen.reverse();
    seen
}

#[test]
fn readers_see_exactly_the_published_commits_while_a_writer_inserts() {
    let mut region = Region::new(1 << 20);
    let table = region.format();
    let published = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for reader in 0..3 {
            let (published, done) = (&published, &done);
            scope.spawn(move || {
                let mut rounds = 0;
                while !done.load(Atomic::Acquire) || rounds == 0 {
                    let at = published.load(Atomic::Acquire);
                    let snapshot = SnapshotTs::new(at);
                    let seen = if (reader + rounds) % 2 == 0 {
                        read_forward(&table, snapshot)
                    } else {
                        read_backward(&table, snapshot)
                    };
                    assert_eq!(seen, expected(at), "at {at}");
                    if at > 0 {
                        let node = table.get(ROOT, &key_of(at), snapshot).expect("published");
                        assert_eq!(node.ts().get(), at);
                        let before = SnapshotTs::new(at - 1);
                        let key = key_of(at);
                        assert!(
                            table
                                .range_newer_than(
                                    ROOT,
                                    Some(&key),
                                    Some(Hi::Key(&key)),
                                    before,
                                    &mut { usize::MAX }
                                )
                                .is_some()
                        );
                    }
                    rounds += 1;
                }
            });
        }
        for ts in 1..=COMMITS {
            table
                .insert(ROOT, &key_of(ts), CommitTs::new(ts), EntryKind::Put, &ts.to_le_bytes())
                .expect("room");
            published.store(ts, Atomic::Release);
            if ts % 64 == 0 {
                thread::yield_now();
            }
        }
        done.store(true, Atomic::Release);
    });
    assert_eq!(table.check(), Ok(()));
    assert_eq!(read_forward(&table, SnapshotTs::MAX), expected(COMMITS));
}
