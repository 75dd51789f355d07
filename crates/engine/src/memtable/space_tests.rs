//! Space: shares of several processes in one region.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::test_region::Region;
use super::*;

const REGION_BYTES: u32 = 1 << 20;
const ROOT: Root = Root::new(3);

/// The lengths of the keys and records that one process commits at once.
#[derive(Clone, Debug)]
struct Commit {
    process: usize,
    /// The process dies after so many inserts, and another one repeats all of them.
    dies_after: Option<usize>,
    lengths: Vec<(usize, usize)>,
}

fn commits(processes: usize) -> impl Strategy<Value = Vec<Commit>> {
    let key_len = prop_oneof![4 => 8usize..40, 1 => 340usize..370, 1 => 600usize..5000];
    let rec_len =
        prop_oneof![1 => Just(0), 4 => 1usize..600, 1 => 2000usize..2100, 1 => 4000usize..20_000];
    let commit =
        (0..processes, prop::option::weighted(0.1, 0usize..6), vec((key_len, rec_len), 1..6))
            .prop_map(|(process, dies_after, lengths)| Commit { process, dies_after, lengths });
    vec(commit, 1..150)
}

/// The n-th key and record, of these lengths.
fn row(n: u64, (key_len, rec_len): (usize, usize)) -> (Vec<u8>, Vec<u8>) {
    // Neighbours in time are not neighbours in the list.
    let mut key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec();
    key.resize(key_len, n as u8);
    (key, (0..rec_len).map(|i| (n as usize + i) as u8).collect())
}

proptest! {
    // holds SPACE-1, SPACE-3
    #[test]
    fn pieces_of_all_shares_stay_apart_and_take_no_more_than_promised(
        (processes, commits) in (1usize..12).prop_flat_map(|n| (Just(n), commits(n)))
    ) {
        let mut region = Region::new(REGION_BYTES);
        let table = region.format();
        let mut shares = vec![Share::default(); processes];
        let mut rows = Vec::new();
        for commit in &commits {
            let share = &mut shares[commit.process];
            share.enter(1, REGION_BYTES, processes as u32);
            let needed = commit.lengths.iter().map(|(key, rec)| Memtable::bytes_needed(*key, *rec));
            let largest = needed.clone().max().unwrap_or_default();
            let promised = share.bytes_needed(needed.map(u64::from).sum()) + u64::from(largest);
            let free = u64::from(table.capacity_bytes() - table.used_bytes());
            if promised > free {
                break;
            }
            let new: Vec<_> =
                (0..).map(|i| rows.len() as u64 + i).zip(&commit.lengths).map(|(n, l)| row(n, *l)).collect();
            let insert = |share: &mut Share, (key, rec): &(Vec<u8>, Vec<u8>)| {
                table.inserter(share).insert(ROOT, key, CommitTs::new(1), EntryKind::Put, rec).expect("promised")
            };
            match commit.dies_after {
                None => new.iter().for_each(|row| insert(share, row)),
                Some(n) => {
                    new.iter().take(n).for_each(|row| insert(share, row));
                    *share = Share::default();
                    new.iter().for_each(|row| insert(&mut Share::default(), row));
                }
            }
            let left = u64::from(table.capacity_bytes() - table.used_bytes());
            prop_assert!(free - left <= promised, "{} bytes taken, {promised} promised", free - left);
            rows.extend(new);
        }
        prop_assert_eq!(table.check(), Ok(()));
        for (key, rec) in &rows {
            let found = table.get(ROOT, key, SnapshotTs::MAX);
            prop_assert_eq!(found.map(|node| node.rec()), Some(rec.as_slice()));
        }
    }
}

/// Inserts small rows by `shares` in turn. Returns the pages with the nodes and records of each.
fn pages_of_each(table: &Memtable, shares: &mut [Share], rows: u64) -> Vec<BTreeSet<u32>> {
    let mut pages = vec![BTreeSet::new(); shares.len()];
    for n in 0..rows {
        let process = n as usize % shares.len();
        let (key, rec) = row(n, (8, 400));
        let at = CommitTs::new(1);
        table
            .inserter(&mut shares[process])
            .insert(ROOT, &key, at, EntryKind::Put, &rec)
            .expect("room");
        let node = table.get(ROOT, &key, SnapshotTs::MAX).expect("inserted").offset();
        let fields = table.arena.fields(node);
        let record = table.arena.rec_at(node, fields).expect("inside");
        pages[process].extend([node / 4096, record / 4096, (record + 399) / 4096]);
    }
    pages
}

#[test]
fn processes_write_to_pages_of_their_own() {
    let mut region = Region::new(REGION_BYTES);
    let table = region.format();
    let mut shares = vec![Share::default(); 4];
    shares.iter_mut().for_each(|share| share.enter(1, REGION_BYTES, 4));
    let pages = pages_of_each(&table, &mut shares, 800);
    for (i, mine) in pages.iter().enumerate() {
        for theirs in &pages[i + 1..] {
            // The first chunk of nodes starts where the shortcuts end, inside a page.
            assert!(mine.is_disjoint(theirs), "{mine:?} and {theirs:?}");
        }
        // 200 records of 400 bytes fill 20 pages, 200 nodes four.
        assert!(mine.len() <= 32, "{} pages", mine.len());
    }
}

#[test]
fn a_lone_process_takes_nothing_ahead() {
    let mut region = Region::new(REGION_BYTES);
    let table = region.format();
    let mut share = Share::default();
    share.enter(1, REGION_BYTES, 1);
    let before = table.used_bytes();
    let (key, rec) = row(1, (8, 400));
    table
        .inserter(&mut share)
        .insert(ROOT, &key, CommitTs::new(1), EntryKind::Put, &rec)
        .expect("room");
    let taken = table.used_bytes() - before;
    assert!(taken <= Memtable::bytes_needed(8, 400), "{taken} bytes");
}

#[test]
fn a_crowd_takes_nothing_ahead() {
    let mut share = Share::default();
    share.enter(1, REGION_BYTES, 1000);
    assert_eq!(share.bytes_needed(5000), 5000);
}

// holds SPACE-2
#[test]
fn a_share_of_another_memtable_is_given_up() {
    let mut region = Region::new(REGION_BYTES);
    let mut share = Share::default();
    for generation in 1..4 {
        let table = region.format();
        share.enter(generation, REGION_BYTES, 2);
        let mut other = Share::default();
        other.enter(generation, REGION_BYTES, 2);
        pages_of_each(&table, &mut [other, share.clone()], 50);
        let (key, rec) = row(1000, (8, 400));
        table
            .inserter(&mut share)
            .insert(ROOT, &key, CommitTs::new(2), EntryKind::Put, &rec)
            .expect("room");
        assert_eq!(table.check(), Ok(()));
        for n in 0..50 {
            let (key, rec) = row(n, (8, 400));
            let found = table.get(ROOT, &key, SnapshotTs::MAX);
            assert_eq!(
                found.map(|node| node.rec()),
                Some(rec.as_slice()),
                "generation {generation}"
            );
        }
    }
}
