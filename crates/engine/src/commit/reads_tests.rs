//! The read set against a list of everything that was read.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Read {
    Point(u32, Vec<u8>),
    Prefix(u32, Vec<u8>),
    Range(u32, Option<Vec<u8>>, Option<Vec<u8>>, bool),
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(b'b'), Just(0xff)];
    prop_oneof![
        9 => vec(byte.clone(), 0..5),
        1 => vec(byte, 0..3).prop_map(|tail| [vec![b'a'; KEY_LEN_MAX - 1], tail].concat()),
    ]
}

fn read() -> impl Strategy<Value = Read> {
    prop_oneof![
        6 => (1u32..4, key()).prop_map(|(root, key)| Read::Point(root, key)),
        2 => (1u32..4, key()).prop_map(|(root, key)| Read::Prefix(root, key)),
        2 => (1u32..4, prop::option::of(key()), prop::option::of(key()), any::<bool>())
            .prop_map(|(root, lo, hi, prefix)| Read::Range(root, lo, hi, prefix)),
    ]
}

fn hi_of(hi: &Option<Vec<u8>>, is_prefix: bool) -> Option<Hi<'_>> {
    hi.as_deref().map(|hi| if is_prefix { Hi::Prefix(hi) } else { Hi::Key(hi) })
}

fn add(set: &mut ReadSet, read: &Read) {
    match read {
        Read::Point(root, key) => set.point(Root::new(*root), key),
        Read::Prefix(root, prefix) => set.prefix(Root::new(*root), prefix),
        Read::Range(root, lo, hi, prefix) => {
            set.range(Root::new(*root), lo.as_deref(), hi_of(hi, *prefix))
        }
    }
}

fn covers(read: &Read, root: u32, key: &[u8]) -> bool {
    match read {
        Read::Point(r, k) => *r == root && k == key,
        Read::Prefix(r, p) => *r == root && key.starts_with(p),
        Read::Range(r, lo, hi, prefix) => {
            let above = lo.as_deref().is_none_or(|lo| lo <= key);
            *r == root && above && hi_of(hi, *prefix).is_none_or(|hi| hi.admits(key))
        }
    }
}

/// True for a reversed range: the set keeps it as the range between its ends.
fn is_reversed(read: &Read) -> bool {
    matches!(read, Read::Range(_, lo, Some(hi), prefix)
        if !hi_of(&Some(hi.clone()), *prefix).is_some_and(|hi| hi.admits(lo.as_deref().unwrap_or(b""))))
}

/// Returns whether the read set finds a conflict when exactly `key` of `root` has changed.
fn conflicts(set: &mut ReadSet, root: u32, key: &[u8]) -> bool {
    let hit = |r: Root, yes: bool| (r.get() == root && yes).then_some((Vec::new(), CommitTs::ZERO));
    let found = set.first_conflict(
        |r, point| hit(r, point == key),
        |r, lo, hi| hit(r, lo.is_none_or(|lo| lo <= key) && hi.is_none_or(|hi| hi.admits(key))),
    );
    found.unwrap().is_some()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    // holds READS-1
    #[test]
    fn without_a_limit_exactly_what_was_read_is_covered(reads in vec(read(), 0..40), probes in vec((1u32..5, key()), 0..40)) {
        let mut set = ReadSet::new();
        let reads: Vec<Read> = reads.into_iter().filter(|read| !is_reversed(read)).collect();
        reads.iter().for_each(|read| add(&mut set, read));
        for (root, key) in probes.iter().filter(|(_, key)| key.len() < KEY_LEN_MAX) {
            // A key cut to a prefix covers its neighbours, too, all of them at least as long as the
            // cut.
            let expected = reads.iter().any(|read| covers(read, *root, key));
            prop_assert_eq!(set.contains(Root::new(*root), key), expected);
        }
        set.sort_and_join().unwrap();
        for (root, key) in &probes {
            let expected = reads.iter().any(|read| covers(read, *root, key));
            let contains = set.contains(Root::new(*root), key);
            prop_assert_eq!(contains, conflicts(&mut set, *root, key));
            prop_assert!(contains || !expected);
            prop_assert!(contains == expected || key.len() >= KEY_LEN_MAX);
        }
        for root in 1..5 {
            let any = reads.iter().any(|r| matches!(r, Read::Point(x, _) | Read::Prefix(x, _) | Read::Range(x, ..) if *x == root));
            prop_assert_eq!(set.has_root(Root::new(root)), any);
        }
    }

    // holds READS-1
    #[test]
    fn joining_past_the_limit_forgets_nothing(
        reads in vec(read(), 0..120),
        probes in vec((1u32..5, key()), 0..40),
        entries_max in 2usize..12,
        settle_at in 0usize..120,
    ) {
        let mut set = ReadSet::with_limits(entries_max, 64);
        for (i, read) in reads.iter().enumerate() {
            add(&mut set, read);
            if i == settle_at {
                set.sort_and_join().unwrap();
            }
        }
        prop_assert!(set.len() <= set.entries_max);
        for read in &reads {
            if let Read::Point(root, key) = read {
                prop_assert!(set.contains(Root::new(*root), key));
            }
        }
        for (root, key) in &probes {
            if reads.iter().any(|read| covers(read, *root, key)) {
                prop_assert!(set.contains(Root::new(*root), key));
                prop_assert!(conflicts(&mut set, *root, key));
            }
        }
        set.sort_and_join().unwrap();
        for pair in set.entries.windows(2) {
            let apart = pair[0].root < pair[1].root || !set.hi(&pair[0]).admits(set.lo(&pair[1]));
            prop_assert!(apart, "READS-2");
        }
    }
}

// holds READS-3
#[test]
fn a_million_points_stay_within_the_limit() {
    let mut set = ReadSet::new();
    let mut x = 1u64;
    for _ in 0..1_000_000 {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        set.point(Root::new(2), &x.to_be_bytes());
    }
    assert!(set.len() <= ENTRIES_MAX);
    assert!(set.bytes() <= KEY_BYTES_MAX + ENTRIES_MAX * size_of::<Entry>());
    assert!(set.contains(Root::new(2), &x.to_be_bytes()));
    assert!(!set.contains(Root::new(3), &x.to_be_bytes()));
}

#[test]
fn the_same_point_again_and_again_takes_one_entry() {
    let mut set = ReadSet::new();
    for _ in 0..1000 {
        set.point(Root::new(2), b"key");
    }
    assert_eq!(set.len(), 1);
    let conflict =
        set.first_conflict(|_, key| Some((key.to_vec(), CommitTs::new(3))), |_, _, _| None);
    let expected = ChangedRead {
        root: Root::new(2),
        key: b"key".to_vec(),
        ts: CommitTs::new(3),
        is_range: false,
    };
    assert_eq!(conflict.unwrap(), Some(expected));
    assert!(set.is_small(1) && !set.is_small(0));
    set.clear();
    assert!(set.is_empty() && !set.contains(Root::new(2), b"key"));
}

#[test]
fn a_missing_name_is_told_from_others_and_not_from_what_was_written_by_hand() {
    let root = Root::new(3);
    let rec = |name: u8, value: i64| [&[3, 15, 6, name], &value.to_be_bytes()[..]].concat();
    let name = crate::commit::maximum::name_of;
    let mut set = ReadSet::new();
    for _ in 0..2 {
        set.missing_name(root, name(&rec(b'e', 1)).expect("a maximum")).expect("memory");
    }
    assert_eq!(set.roots_of_missing_names().count(), 1);
    assert!(!set.is_empty() && set.has_root(root) && !set.has_root(Root::new(4)));
    assert!(set.is_missing_name(root, &rec(b'e', 500)), "whatever its value is");
    assert!(!set.is_missing_name(root, &rec(b'f', 1)), "another one");
    assert!(set.is_missing_name(root, b"by hand"), "it may be of any name");
    assert!(!set.is_missing_name(Root::new(4), &rec(b'e', 1)), "another table");
    set.clear();
    assert!(set.is_empty() && !set.is_missing_name(root, &rec(b'e', 1)));
}
