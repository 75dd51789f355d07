//! Sets of gaps against a history of rows.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;

use super::set::{BOUND_KEY_BYTES, Bound, Gap, GapSet};
use crate::ids::Root;

const ROOT: Root = Root::new(2);

/// Keys with rows, per commit.
type History = Vec<BTreeSet<Vec<u8>>>;

fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0u8), Just(b'a'), Just(b'b'), Just(0xff)];
    prop_oneof![
        6 => vec(byte.clone(), 0..4),
        2 => (vec(byte.clone(), 0..2), vec(byte, 0..4)).prop_map(|(head, tail)| {
            [head, vec![b'k'; BOUND_KEY_BYTES - 2], tail].concat()
        }),
    ]
}

#[derive(Clone, Debug)]
enum Op {
    Put(Vec<Vec<u8>>),
    Delete(Vec<Vec<u8>>),
    /// Walks on from a key, up to the next row.
    Walk(Vec<u8>, bool),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => vec(key(), 0..3).prop_map(Op::Put),
        1 => vec(key(), 0..20).prop_map(Op::Put),
        3 => vec(key(), 0..9).prop_map(Op::Delete),
        6 => (key(), any::<bool>()).prop_map(|(key, forward)| Op::Walk(key, forward)),
    ]
}

/// The first and the last, both inclusive, of the keys ever used between `from` and the next row.
fn run(
    used: &BTreeSet<Vec<u8>>,
    rows: &BTreeSet<Vec<u8>>,
    from: &[u8],
    forward: bool,
) -> Option<(Vec<u8>, Vec<u8>)> {
    let dead = |key: &&Vec<u8>| !rows.contains(*key);
    let run: Vec<&Vec<u8>> = if forward {
        used.range(from.to_vec()..).take_while(dead).collect()
    } else {
        used.range(..=from.to_vec()).rev().take_while(dead).collect()
    };
    Some(((*run.iter().min()?).clone(), (*run.iter().max()?).clone()))
}

fn no_row_in_any_gap(set: &GapSet, history: &History) -> Result<(), TestCaseError> {
    for gap in set.as_slice() {
        let inside = gap.lo.bytes().to_vec()..gap.hi.bytes().to_vec();
        for (ts, rows) in history.iter().enumerate().skip(gap.ts as usize) {
            let row = rows.range(inside.clone()).next();
            prop_assert!(row.is_none(), "since {}, but at {ts} there is {row:?}", gap.ts);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn no_row_has_been_in_a_gap_since_its_timestamp(ops in vec(op(), 0..40)) {
        let mut set = GapSet::new();
        let mut used: BTreeSet<Vec<u8>> = BTreeSet::new();
        let mut history: History = vec![BTreeSet::new()];
        for op in ops {
            let mut rows = history.last().expect("never empty").clone();
            let ts = history.len() as u64 - 1;
            match op {
                Op::Walk(from, forward) => {
                    let run = run(&used, &rows, &from, forward);
                    let gap = run.and_then(|(first, last)| Gap::of(ROOT, &first, &last));
                    if let Some(gap) = gap {
                        set.add(Gap { ts, used: ts, ..gap });
                    }
                    continue;
                }
                Op::Put(keys) => {
                    let keys: BTreeSet<Vec<u8>> = keys.into_iter().collect();
                    if keys.len() < 3 {
                        keys.iter().for_each(|key| set.cut_key(ROOT, key));
                    } else {
                        set.cut(|gap| keys.iter().map(Vec::as_slice).filter(|key| gap.covers(ROOT, key)).collect::<Vec<_>>().into_iter());
                    }
                    used.extend(keys.clone());
                    rows.extend(keys);
                }
                Op::Delete(keys) => keys.iter().for_each(|key| {
                    rows.remove(key);
                }),
            }
            history.push(rows);
            no_row_in_any_gap(&set, &history)?;
        }
    }

    #[test]
    fn a_bound_of_a_long_key_makes_a_gap_smaller_never_greater(first in key(), last in key(), probe in key()) {
        if let Some(gap) = Gap::of(ROOT, &first, &last) {
            prop_assert!(!gap.covers(ROOT, &probe) || first <= probe && probe <= last);
        }
        prop_assert!(Bound::at_most(&probe).bytes() <= probe.as_slice());
        let behind = Bound::at_least_behind(&probe);
        prop_assert!(behind.is_none_or(|behind| behind.bytes() > probe.as_slice()));
    }
}

fn number(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

fn gap(first: u64, last: u64, ts: u64) -> Gap {
    let gap = Gap::of(ROOT, &number(first), &number(last)).expect("a gap");
    Gap { ts, used: ts, ..gap }
}

#[test]
fn a_gap_that_grows_keeps_a_state_for_snapshots_that_lag_behind() {
    let mut set = GapSet::new();
    for n in 1..5000 {
        set.add(gap(1, 4 * n, n));
        assert!(set.as_slice().len() <= 12, "{} states of one gap", set.as_slice().len());
        for lag in [0, 3, 30, 300] {
            let at = n.saturating_sub(lag);
            let fits = set.as_slice().iter().filter(|gap| gap.ts <= at);
            let longest = fits.map(|gap| gap.hi).max_by_key(|hi| hi.bytes().to_vec());
            let reached = longest.map_or(0, |hi| {
                u64::from_be_bytes(*hi.bytes().first_chunk().expect("a whole number"))
            });
            assert!(4 * at - reached <= 16 * (lag + 8), "lag {lag} at {n}: {reached}");
        }
    }
}

#[test]
fn neighbours_are_joined_and_a_put_parts_them_again() {
    let mut set = GapSet::new();
    assert!(set.add(gap(10, 20, 1)) && set.add(gap(30, 40, 1)));
    assert!(set.add(gap(20, 30, 2)), "it touches both");
    let end = |set: &mut GapSet, at, forward| {
        set.end(ROOT, &number(at), forward, 0).map(|end| end.bytes().to_vec())
    };
    assert_eq!(end(&mut set, 15, true), Some([&number(40)[..], &[0]].concat()));
    assert_eq!(end(&mut set, 35, false), Some(number(10).to_vec()));
    assert!(!set.add(gap(12, 38, 3)), "known");

    let put = number(25);
    set.cut(|gap| gap.covers(ROOT, &put).then_some(&put[..]).into_iter());
    assert_eq!(end(&mut set, 15, true), Some(put.to_vec()));
    assert_eq!(end(&mut set, 35, false), Some([&put[..], &[0]].concat()));
    assert_eq!(end(&mut set, 25, true), None);
}

#[test]
fn rows_that_are_appended_leave_no_gaps_between_them() {
    let mut set = GapSet::new();
    set.add(gap(10, 1_000_000, 0));
    for n in 10..1000u64 {
        set.cut_key(ROOT, &number(n));
        assert_eq!(set.as_slice().len(), 1, "after {n}");
    }
    set.cut_key(ROOT, &number(2000));
    assert_eq!(set.as_slice().len(), 2, "there may be deleted rows on both sides");
}

#[test]
fn a_set_that_is_full_forgets_what_was_of_no_use_for_longest() {
    let mut set = GapSet::new();
    set.add(gap(0, 1_000_000, 0));
    let mut rows = BTreeMap::new();
    for n in 1..1000u64 {
        assert!(set.end(ROOT, &number(5000), true, n).is_some(), "of use until {n}");
        // A row at the low end leaves an empty piece before it.
        let put = number(2 * n);
        rows.insert(put, n);
        set.cut_key(ROOT, &put);
    }
    assert!(rows.keys().all(|row| !set.as_slice().iter().any(|gap| gap.covers(ROOT, row))));
}
