//! The memtable against a `BTreeMap`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;

use super::test_region::Region;
use super::*;

/// (root, key, newest first) -> (kind, record).
type Model = BTreeMap<(u32, Vec<u8>, Reverse<u64>), (EntryKind, Vec<u8>)>;
type Found = Option<(Vec<u8>, u64)>;

fn key_strategy() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(0xff)];
    prop_oneof![
        4 => vec(byte.clone(), 0..4),
        2 => vec(byte.clone(), 6..11),
        1 => vec(byte, 0..12).prop_map(|tail| [vec![b'k'; 300], tail].concat()),
    ]
}

#[derive(Clone, Debug)]
struct Op {
    root: u32,
    key: usize,
    tombstone: bool,
    rec_len: usize,
    redo: bool,
}

fn op_strategy(keys: usize) -> impl Strategy<Value = Op> {
    (1u32..4, 0..keys, any::<bool>(), 0usize..40, prop::bool::weighted(0.1)).prop_map(
        |(root, key, tombstone, rec_len, redo)| Op { root, key, tombstone, rec_len, redo },
    )
}

fn cases() -> impl Strategy<Value = (Vec<Vec<u8>>, Vec<Op>)> {
    vec(key_strategy(), 1..12).prop_flat_map(|keys| {
        let len = keys.len();
        (Just(keys), vec(op_strategy(len), 0..80))
    })
}

fn found(node: Option<Node<'_>>) -> Found {
    node.map(|node| (node.key().to_vec(), node.ts().get()))
}

/// The newest visible version of each key of a root.
fn visible(model: &Model, root: u32, at: u64) -> BTreeMap<Vec<u8>, u64> {
    let mut seen = BTreeMap::new();
    for (r, key, Reverse(ts)) in model.keys() {
        if *r == root && *ts <= at {
            seen.entry(key.clone()).or_insert(*ts);
        }
    }
    seen
}

fn model_seek(seen: &BTreeMap<Vec<u8>, u64>, seek: Seek<'_>) -> Found {
    let mut keys = seen.iter().map(|(key, ts)| (key.clone(), *ts));
    match seek {
        Seek::First => keys.next(),
        Seek::Ge(k) => keys.find(|(key, _)| key.as_slice() >= k),
        Seek::Gt(k) => keys.find(|(key, _)| key.as_slice() > k),
        Seek::PrefixGt(k) => keys.find(|(key, _)| key.as_slice() > k && !key.starts_with(k)),
        Seek::Last => keys.next_back(),
        Seek::Le(k) => keys.rfind(|(key, _)| key.as_slice() <= k),
        Seek::Lt(k) => keys.rfind(|(key, _)| key.as_slice() < k),
        Seek::PrefixLe(k) => keys.rfind(|(key, _)| key.as_slice() <= k || key.starts_with(k)),
    }
}

fn fill(table: &Memtable, keys: &[Vec<u8>], ops: &[Op]) -> Model {
    let mut model = Model::new();
    let mut past: Vec<(u32, Vec<u8>, u64)> = Vec::new();
    for (i, op) in ops.iter().enumerate() {
        let ts = i as u64 + 1;
        let (root, key, ts) = match op.redo.then(|| past.get(i / 2)).flatten() {
            Some(again) => again.clone(),
            None => (op.root, keys[op.key].clone(), ts),
        };
        let kind = if op.tombstone { EntryKind::Tombstone } else { EntryKind::Put };
        let (kind, rec) = model
            .entry((root, key.clone(), Reverse(ts)))
            .or_insert_with(|| (kind, vec![ts as u8; op.rec_len]))
            .clone();
        table.insert(Root::new(root), &key, CommitTs::new(ts), kind, &rec).expect("room");
        past.push((root, key, ts));
    }
    model
}

fn compare_seeks(
    table: &Memtable,
    model: &Model,
    keys: &[Vec<u8>],
    at: u64,
) -> Result<(), TestCaseError> {
    let snapshot = SnapshotTs::new(at);
    for root in 1..5 {
        let seen = visible(model, root, at);
        let root = Root::new(root);
        let mut seeks = vec![Seek::First, Seek::Last];
        for key in keys {
            let cut = &key[..key.len().saturating_sub(1)];
            for k in [key.as_slice(), cut] {
                seeks.extend([
                    Seek::Ge(k),
                    Seek::Gt(k),
                    Seek::PrefixGt(k),
                    Seek::Le(k),
                    Seek::Lt(k),
                    Seek::PrefixLe(k),
                ]);
            }
        }
        for seek in seeks {
            prop_assert_eq!(
                found(table.seek(root, seek, snapshot)),
                model_seek(&seen, seek),
                "{:?} {:?} {}",
                root,
                seek,
                at
            );
        }
        let mut walked = Vec::new();
        let mut node = table.seek(root, Seek::First, snapshot);
        while let Some(n) = node {
            walked.push((n.key().to_vec(), n.ts().get()));
            node = table.next_key(&n, snapshot);
        }
        prop_assert_eq!(walked, seen.clone().into_iter().collect::<Vec<_>>());
        for key in keys {
            prop_assert_eq!(
                found(table.get(root, key, snapshot)),
                seen.get_key_value(key).map(|(k, t)| (k.clone(), *t))
            );
        }
    }
    Ok(())
}

fn compare_ranges(
    table: &Memtable,
    model: &Model,
    keys: &[Vec<u8>],
    since: u64,
) -> Result<(), TestCaseError> {
    for root in 1..5 {
        for lo in keys {
            for hi in keys {
                for hi in [None, Some(Hi::Key(hi)), Some(Hi::Prefix(hi))] {
                    let expected = model.keys().any(|(r, key, Reverse(ts))| {
                        *r == root && key >= lo && *ts > since && hi.is_none_or(|hi| hi.admits(key))
                    });
                    let node = table.range_newer_than(
                        Root::new(root),
                        Some(lo),
                        hi,
                        SnapshotTs::new(since),
                        &mut { usize::MAX },
                    );
                    prop_assert_eq!(
                        node.is_some(),
                        expected,
                        "root {} {:?}..={:?} since {}",
                        root,
                        lo,
                        hi,
                        since
                    );
                }
            }
        }
        let any = model.keys().any(|(r, _, Reverse(ts))| *r == root && *ts > since);
        prop_assert_eq!(
            table
                .range_newer_than(Root::new(root), None, None, SnapshotTs::new(since), &mut {
                    usize::MAX
                })
                .is_some(),
            any
        );
        let exists = model.keys().any(|(r, _, _)| *r == root);
        prop_assert!(!exists || table.may_hold_root(Root::new(root)));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_read_agrees_with_an_ordered_map((keys, ops) in cases()) {
        let mut region = Region::new(1 << 18);
        let table = region.format();
        let model = fill(&table, &keys, &ops);
        prop_assert_eq!(table.check(), Ok(()));
        let table = region.attach();
        let newest = ops.len() as u64;
        for at in [0, newest / 3, newest / 2, newest, u64::MAX] {
            compare_seeks(&table, &model, &keys, at)?;
            compare_ranges(&table, &model, &keys, at)?;
            for root in model.keys().map(|(root, ..)| *root).collect::<BTreeSet<_>>() {
                let (there, back) = walks(&table, Root::new(root), SnapshotTs::new(at));
                prop_assert_eq!(there, back);
            }
        }
        let mut expected = Vec::new();
        for ((root, key, Reverse(ts)), (kind, rec)) in &model {
            if expected.last().is_none_or(|(r, k, ..): &(u32, Vec<u8>, _, _, _)| (r, k) != (root, key)) {
                expected.push((*root, key.clone(), *ts, *kind, rec.clone()));
            }
        }
        let merged: Vec<_> = table
            .iter_newest()
            .map(|n| (n.root().get(), n.key().to_vec(), n.ts().get(), n.kind(), n.rec().to_vec()))
            .collect();
        prop_assert_eq!(merged, expected);
        prop_assert_eq!(table.node_count() as usize, model.len());
        prop_assert_eq!(table.is_empty(), model.is_empty());
    }
}

/// Returns the keys of a root by steps forward, and by runs backward in reverse.
fn walks(table: &Memtable, root: Root, at: SnapshotTs) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let first = table.seek(root, Seek::First, at);
    let there = std::iter::successors(first, |node| table.next_key(node, at));
    let (mut back, mut run) = (Vec::new(), Vec::new());
    let mut node = table.seek(root, Seek::Last, at);
    while let Some(now) = node {
        back.push(now.key().to_vec());
        if run.is_empty() {
            table.keys_before(&now, at, &mut run);
        }
        node = run.pop().map(|offset| table.node_at(offset));
    }
    back.reverse();
    (there.map(|node| node.key().to_vec()).collect(), back)
}

#[test]
fn a_walk_backward_meets_what_a_walk_forward_met() {
    let mut region = Region::new(1 << 20);
    let table = region.format();
    for i in 0..6000u64 {
        let (root, key) = (Root::new(1 + i as u32 % 3), (i * 7919 % 2003).to_be_bytes());
        let kind = if i % 5 == 0 { EntryKind::Tombstone } else { EntryKind::Put };
        table.insert(root, &key, CommitTs::new(1 + i), kind, b"").expect("room");
    }
    for root in 0..5 {
        for at in [0, 1, 2, 100, 3000, 6000] {
            let (there, back) = walks(&table, Root::new(root), SnapshotTs::new(at));
            assert_eq!(there, back, "root {root} at {at}");
            assert_eq!(there.is_empty(), at < u64::from(root) || !(1..4).contains(&root));
        }
    }
}

#[test]
fn a_key_of_many_versions_is_read_at_each_of_them() {
    let mut region = Region::new(1 << 18);
    let table = region.format();
    let root = Root::new(9);
    table.insert(root, b"a", CommitTs::new(1), EntryKind::Put, b"first").expect("room");
    table.insert(root, b"z", CommitTs::new(2), EntryKind::Put, b"last").expect("room");
    for ts in 10..500u64 {
        table
            .insert(root, b"hot", CommitTs::new(ts), EntryKind::Put, &ts.to_le_bytes())
            .expect("room");
    }
    for ts in 10..500u64 {
        let at = SnapshotTs::new(ts);
        assert_eq!(table.get(root, b"hot", at).expect("seen").rec(), ts.to_le_bytes());
        let first = table.seek(root, Seek::First, at).expect("first");
        let hot = table.next_key(&first, at).expect("hot");
        assert_eq!(hot.ts().get(), ts);
        assert_eq!(table.next_key(&hot, at).expect("last").key(), b"z");
        assert_eq!(table.seek(root, Seek::Lt(b"z"), at).expect("hot").ts().get(), ts);
    }
    let before = SnapshotTs::new(5);
    let first = table.seek(root, Seek::First, before).expect("first");
    assert_eq!(table.next_key(&first, before).expect("last").key(), b"z");
    assert_eq!(table.seek(root, Seek::Lt(b"z"), before).expect("first").key(), b"a");
    assert_eq!(table.iter_newest().map(|n| n.ts().get()).collect::<Vec<_>>(), [1, 499, 2]);
}

#[test]
fn an_empty_key_and_the_prefixes_of_a_key_are_keys_of_their_own() {
    let mut region = Region::new(1 << 16);
    let table = region.format();
    let root = Root::new(1);
    let keys: [&[u8]; 6] = [b"", b"\0", b"\0\0", b"a", b"a\0", b"a\0\0\0\0\0\0\0\0"];
    for (i, key) in keys.iter().enumerate().rev() {
        table.insert(root, key, CommitTs::new(1), EntryKind::Put, &[i as u8]).expect("room");
    }
    let order: Vec<u8> = table.iter_newest().map(|n| n.rec()[0]).collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 5]);
    assert_eq!(
        table.seek(root, Seek::PrefixLe(b"\0"), SnapshotTs::MAX).expect("node").key(),
        b"\0\0"
    );
    assert_eq!(table.check(), Ok(()));
}

#[test]
fn a_full_memtable_refuses_and_keeps_what_it_has() {
    let mut region = Region::new(1 << 14);
    let table = region.format();
    let mut inserted = 0u64;
    loop {
        let fits = table.capacity_bytes() - table.used_bytes() >= Memtable::bytes_needed(8, 100);
        let key = inserted.to_be_bytes();
        match table.insert(
            Root::new(1),
            &key,
            CommitTs::new(inserted + 1),
            EntryKind::Put,
            &[7; 100],
        ) {
            Ok(()) => inserted += 1,
            Err(full) => {
                assert!(!fits, "{full}");
                break;
            }
        }
    }
    assert!(inserted > 50);
    assert_eq!(table.iter_newest().count() as u64, inserted);
    assert_eq!(table.check(), Ok(()));
    assert!(
        table.insert(Root::new(1), &[0; 1 << 20], CommitTs::new(1), EntryKind::Put, b"").is_err()
    );
    let empty = region.format();
    assert!(empty.is_empty() && !empty.may_hold_root(Root::new(1)));
    assert_eq!(empty.check(), Ok(()));
    assert!(empty.seek(Root::new(1), Seek::Last, SnapshotTs::MAX).is_none());
}
