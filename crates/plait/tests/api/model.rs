//! A map against an ordered map: random operations, ranges in both directions, transactions that are rolled back.

use std::collections::BTreeMap;
use std::ops::Bound;

use plait::{Applied, Connection, Error, Map, MapDefinition, Prefix, Result};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::Place;

const TABLE: MapDefinition<&[u8], i64> = MapDefinition::new("t");

type Model = BTreeMap<Vec<u8>, i64>;
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

#[derive(Clone, Debug)]
enum Op {
    Put(Vec<u8>, i64),
    Insert(Vec<u8>, i64),
    Update(Vec<u8>, i64),
    Delete(Vec<u8>),
    Add(Vec<u8>, i64),
    Swap(Vec<u8>, Option<i64>, Option<i64>),
    Batch(Vec<u8>, Vec<u8>),
    Load(Vec<(Vec<u8>, i64)>),
    DeleteRange(Bounds),
    Get(Vec<u8>),
    Scan(Bounds),
    Ends(Bounds),
    Prefix(Vec<u8>),
    /// Operations in a transaction, and whether it commits.
    Transaction(Vec<Op>, bool),
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![Just(0_u8), Just(1), Just(0x7f), Just(0xff)], 0..4)
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        Just(Bound::Unbounded),
        key().prop_map(Bound::Included),
        key().prop_map(Bound::Excluded)
    ]
}

fn small() -> std::ops::Range<i64> {
    -3..4
}

fn simple() -> impl Strategy<Value = Op> {
    let maybe = || prop::option::of(small());
    prop_oneof![
        3 => (key(), small()).prop_map(|(k, v)| Op::Put(k, v)),
        1 => (key(), small()).prop_map(|(k, v)| Op::Insert(k, v)),
        1 => (key(), small()).prop_map(|(k, v)| Op::Update(k, v)),
        1 => key().prop_map(Op::Delete),
        1 => (key(), small()).prop_map(|(k, v)| Op::Add(k, v)),
        1 => (key(), maybe(), maybe()).prop_map(|(k, a, b)| Op::Swap(k, a, b)),
        1 => (key(), key()).prop_map(|(a, b)| Op::Batch(a, b)),
        1 => vec((key(), small()), 0..20).prop_map(Op::Load),
        1 => (bound(), bound()).prop_map(Op::DeleteRange),
        1 => key().prop_map(Op::Get),
        2 => (bound(), bound()).prop_map(Op::Scan),
        1 => (bound(), bound()).prop_map(Op::Ends),
        1 => key().prop_map(Op::Prefix),
    ]
}

fn any_op() -> impl Strategy<Value = Op> {
    let transaction = (vec(simple(), 1..6), any::<bool>())
        .prop_map(|(ops, commits)| Op::Transaction(ops, commits));
    prop_oneof![4 => simple(), 1 => transaction]
}

fn borrowed(bounds: &Bounds) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (bounds.0.as_ref().map(Vec::as_slice), bounds.1.as_ref().map(Vec::as_slice))
}

/// The rows of the model in a range; any bounds, where the standard library panics for some.
fn rows(model: &Model, (lo, hi): &Bounds) -> Vec<(Vec<u8>, i64)> {
    let is_above = |key: &Vec<u8>| match lo {
        Bound::Included(lo) => key >= lo,
        Bound::Excluded(lo) => key > lo,
        Bound::Unbounded => true,
    };
    let is_below = |key: &Vec<u8>| match hi {
        Bound::Included(hi) => key <= hi,
        Bound::Excluded(hi) => key < hi,
        Bound::Unbounded => true,
    };
    let inside = model.iter().filter(|(key, _)| is_above(key) && is_below(key));
    inside.map(|(key, value)| (key.clone(), *value)).collect()
}

fn set(model: &mut Model, key: &[u8], value: Option<i64>) {
    match value {
        Some(value) => model.insert(key.to_vec(), value),
        None => model.remove(key),
    };
}

fn write(map: &mut Map<'_, &[u8], i64>, model: &mut Model, op: &Op) -> Result<()> {
    match op {
        Op::Put(key, value) => {
            map.put(key, *value)?;
            set(model, key, Some(*value));
        }
        Op::Insert(key, value) => {
            assert_eq!(map.insert(key, *value)?, !model.contains_key(key));
            model.entry(key.clone()).or_insert(*value);
        }
        Op::Update(key, value) => {
            assert_eq!(map.update(key, *value)?, model.contains_key(key));
            model.entry(key.clone()).and_modify(|old| *old = *value);
        }
        Op::Delete(key) => assert_eq!(map.delete(key)?, model.remove(key).is_some()),
        Op::Add(key, delta) => {
            let sum = model.get(key).unwrap_or(&0) + delta;
            assert_eq!(map.add(key, *delta)?, sum);
            set(model, key, Some(sum));
        }
        Op::Swap(key, expected, value) => {
            let holds = model.get(key).copied() == *expected;
            assert_eq!(map.compare_and_swap(key, *expected, *value)?, holds);
            if holds {
                set(model, key, *value);
            }
        }
        Op::Batch(a, b) => {
            let mut batch = map.batch();
            batch.put(a, 1).expect(b, None).add(a, 1).delete(b);
            let holds = !model.contains_key(b);
            let applied = if holds { Applied::All } else { Applied::Unmet(1) };
            assert_eq!(map.apply(&batch)?, applied);
            if holds {
                set(model, a, Some(2));
                set(model, b, None);
            }
        }
        Op::Load(rows) => {
            let given = rows.iter().map(|(key, value)| (key.as_slice(), *value));
            assert_eq!(map.load(given)?, rows.len() as u64);
            rows.iter().for_each(|(key, value)| set(model, key, Some(*value)));
        }
        Op::DeleteRange(bounds) => {
            let gone = rows(model, bounds);
            assert_eq!(map.delete_range(borrowed(bounds))?, gone.len() as u64);
            gone.iter().for_each(|(key, _)| set(model, key, None));
        }
        _ => read(map, model, op)?,
    }
    Ok(())
}

fn read(map: &mut Map<'_, &[u8], i64>, model: &Model, op: &Op) -> Result<()> {
    match op {
        Op::Get(key) => {
            assert_eq!(map.get(key)?, model.get(key).copied());
            assert_eq!(map.contains(key)?, model.contains_key(key));
        }
        Op::Scan(bounds) => {
            let mut expected = rows(model, bounds);
            assert_eq!(map.count(borrowed(bounds))?, expected.len() as u64);
            assert_eq!(map.range(borrowed(bounds))?.collect::<Result<Vec<_>>>()?, expected);
            expected.reverse();
            assert_eq!(map.range(borrowed(bounds))?.rev().collect::<Result<Vec<_>>>()?, expected);
        }
        Op::Ends(bounds) => {
            let all = rows(model, bounds);
            let row = |row: &(Vec<u8>, i64)| (row.0.clone(), row.1);
            let first = map.first(borrowed(bounds))?.map(|(key, value)| (key.to_vec(), value));
            assert_eq!(first, all.first().map(row));
            let last = map.last(borrowed(bounds))?.map(|(key, value)| (key.to_vec(), value));
            assert_eq!(last, all.last().map(row));
        }
        Op::Prefix(prefix) => {
            let expected = model.iter().filter(|(key, _)| key.starts_with(prefix));
            let expected: Vec<_> = expected.map(|(key, value)| (key.clone(), *value)).collect();
            let found = map.range(Prefix(prefix.as_slice()))?.collect::<Result<Vec<_>>>()?;
            assert_eq!(found, expected);
        }
        other => unreachable!("{other:?} writes"),
    }
    Ok(())
}

fn run(connection: &mut Connection, ops: &[Op]) -> Result<()> {
    let mut model = Model::new();
    for op in ops {
        let Op::Transaction(inner, commits) = op else {
            write(&mut connection.map(TABLE)?, &mut model, op)?;
            continue;
        };
        let stop = || Error::Refused("rolled back".into());
        let done = connection.write(|tx| {
            let (mut map, mut inside) = (tx.map(TABLE)?, model.clone());
            inner.iter().try_for_each(|op| write(&mut map, &mut inside, op))?;
            if *commits { Ok(inside) } else { Err(stop()) }
        });
        match done {
            Ok(inside) => model = inside,
            Err(error) => assert_eq!(error, stop()),
        }
    }
    let found = connection.map(TABLE)?.iter()?.collect::<Result<Vec<_>>>()?;
    assert_eq!(found, rows(&model, &(Bound::Unbounded, Bound::Unbounded)));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_map_in_memory_does_what_an_ordered_map_does(ops in vec(any_op(), 1..40)) {
        run(&mut Connection::open_in_memory().expect("it opens"), &ops).expect("no call fails");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 15, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_map_in_concurrent_mode_does_what_an_ordered_map_does(ops in vec(any_op(), 1..40)) {
        let place = Place::new();
        // A second member keeps the first one off the paths of a connection that is alone.
        let beside = place.connect();
        beside.ticket().expect("it joins");
        run(&mut place.connect(), &ops).expect("no call fails");
    }
}
