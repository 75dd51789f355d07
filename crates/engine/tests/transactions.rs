//! Transactions over a base that is a map: what docs/sql.md says of isolation, without SQLite.

mod common;

use common::{Client, TABLE, at_rest, create, is_conflict, wait_ms};
use plait_engine::database::changed::Changed;
use plait_engine::error::Error;
use plait_engine::memtable::Hi;
use plait_engine::txn::{Size, Sync};

// holds FILE-1
#[test]
fn a_commit_is_read_back_and_the_file_is_plain_at_rest() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    {
        let mut a = Client::open(&path);
        a.write(b"k", b"v", Sync::Full).unwrap();
        assert_eq!(a.read(b"k").as_deref(), Some(&b"v"[..]));
        assert!(at_rest(&path).0.fenced, "fenced while a row is not in the base");
        assert!(at_rest(&path).1.is_empty());
    }
    let (header, rows) = at_rest(&path);
    assert!(header.marked && !header.fenced);
    assert_eq!(rows.get(&b"k"[..]).map(Vec::as_slice), Some(&b"v"[..]));
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        1,
        "no file is left beside the database"
    );
}

// holds SNAP-1
#[test]
fn a_merge_moves_rows_to_the_base_and_readers_see_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let mut a = Client::open(&path);
    let mut old = Client::open(&path);
    a.write(b"k", b"1", Sync::Full).unwrap();
    old.snapshot(false);
    for i in 2..200u32 {
        a.write(b"k", i.to_string().as_bytes(), Sync::Full).unwrap();
        if i % 40 == 0 {
            a.merge();
            assert_eq!(a.read(b"k"), Some(i.to_string().into_bytes()));
        }
    }
    assert_eq!(old.get(b"k").as_deref(), Some(&b"1"[..]), "a snapshot does not move");
    old.conn().snapshot_end();
    assert_eq!(old.read(b"k").as_deref(), Some(&b"199"[..]));
}

#[test]
fn two_optimistic_writers_of_one_row_conflict_and_of_two_rows_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let (mut a, mut b) = (Client::open(&path), Client::open(&path));
    a.begin_concurrent();
    b.begin_concurrent();
    a.get(b"x");
    b.get(b"y");
    a.put(b"x", b"a");
    b.put(b"y", b"b");
    a.commit(Sync::Full).unwrap();
    b.commit(Sync::Full).unwrap();

    a.begin_concurrent();
    b.begin_concurrent();
    a.get(b"x");
    b.get(b"x");
    a.put(b"x", b"a2");
    b.put(b"x", b"b2");
    a.commit(Sync::Full).unwrap();
    assert!(is_conflict(&b.commit(Sync::Full).unwrap_err()));
    assert!(is_conflict(&b.commit(Sync::Full).unwrap_err()), "a doomed transaction stays doomed");
    b.rollback();
    assert_eq!(b.read(b"x").as_deref(), Some(&b"a2"[..]));
}

#[test]
fn write_skew_is_refused_also_across_a_merge() {
    for merge in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let path = create(dir.path());
        let (mut a, mut b) = (Client::open(&path), Client::open(&path));
        a.begin_concurrent();
        b.begin_concurrent();
        a.get(b"x");
        a.put(b"y", b"1");
        b.get(b"y");
        b.put(b"x", b"1");
        a.commit(Sync::Full).unwrap();
        if merge {
            a.merge();
            a.write(b"z", b"1", Sync::Full).unwrap();
            a.merge();
        }
        assert!(is_conflict(&b.commit(Sync::Full).unwrap_err()), "merge: {merge}");
        b.rollback();
    }
}

#[test]
fn an_upgrade_succeeds_unless_what_was_read_has_changed() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let (mut a, mut b) = (Client::open(&path), Client::open(&path));
    a.write(b"x", b"0", Sync::Full).unwrap();
    b.snapshot(false);
    b.get(b"x");
    a.write(b"other", b"1", Sync::Full).unwrap();
    b.upgrade().unwrap();
    assert_eq!(b.get(b"other").as_deref(), Some(&b"1"[..]), "the snapshot moved to now");
    b.put(b"x", b"b");
    b.commit(Sync::Full).unwrap();

    b.snapshot(false);
    b.get(b"x");
    a.write(b"x", b"a", Sync::Full).unwrap();
    assert!(is_conflict(&b.upgrade().unwrap_err()));
    b.rollback();
}

// holds CONN-2
#[test]
fn while_the_right_is_held_nobody_commits_and_its_holder_cannot_fail() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let (mut a, mut b, mut c) = (Client::open(&path), Client::open(&path), Client::open(&path));
    b.begin_concurrent();
    b.get(b"x");
    b.put(b"x", b"b");
    a.begin_immediate(0).unwrap();
    a.get(b"x");
    assert!(matches!(c.begin_immediate(20), Err(Error::Busy(_))), "bounded by the timeout");
    assert!(matches!(b.commit(Sync::Full), Err(Error::Busy(_))), "and may be repeated");
    a.put(b"y", b"a");
    a.commit(Sync::Full).unwrap();
    b.commit(Sync::Full).unwrap();
    assert_eq!(c.read(b"x").as_deref(), Some(&b"b"[..]));
}

#[test]
fn a_thousand_increments_from_eight_threads_are_a_thousand() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let _keep = Client::open(&path);
    std::thread::scope(|s| {
        for t in 0..8 {
            let path = path.clone();
            s.spawn(move || {
                let mut c = Client::open(&path);
                let mut done = 0;
                while done < 125 {
                    if t % 2 == 0 {
                        c.begin_immediate(60_000).unwrap();
                    } else {
                        c.begin_concurrent();
                    }
                    let n: u64 =
                        c.get(b"n").map_or(0, |v| String::from_utf8(v).unwrap().parse().unwrap());
                    c.put(b"n", (n + 1).to_string().as_bytes());
                    match c.commit(if t % 3 == 0 { Sync::Normal } else { Sync::Full }) {
                        Ok(()) => done += 1,
                        Err(e) => {
                            assert!(t % 2 == 1, "the right's holder cannot fail: {e}");
                            c.rollback();
                        }
                    }
                }
            });
        }
    });
    let mut c = Client::open(&path);
    assert_eq!(c.read(b"n").as_deref(), Some(&b"1000"[..]));
}

// holds EXCL-3, TXN-8
#[test]
fn an_exclusive_transaction_conflicts_with_snapshots_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let (mut a, mut b) = (Client::open(&path), Client::open(&path));
    a.write(b"x", b"1", Sync::Full).unwrap();
    b.begin_concurrent();
    b.get(b"x");
    b.put(b"y", b"b");
    a.begin_immediate(1000).unwrap();
    a.put(b"z", b"1");
    common::wait_ms(1000, |w| a.conn().exclusive_begin(w)).unwrap();
    let mut replayed = 0;
    a.conn()
        .exclusive_replay(|_| {
            replayed += 1;
            Ok::<(), ()>(())
        })
        .unwrap();
    assert_eq!(replayed, 1);
    let header = a.conn().exclusive_header(Sync::Full, Size::default(), Changed::ANYTHING);
    let opener: &dyn plait_engine::base::BaseOpener = &common::Opener;
    let mut base = opener.open(&path).unwrap();
    base.begin().unwrap();
    base.put(common::TABLE, b"z", b"1").unwrap();
    base.stamp(&header).unwrap();
    base.commit().unwrap();
    a.conn().exclusive_end(true, false);
    a.conn().snapshot_end();
    assert!(is_conflict(&b.commit(Sync::Full).unwrap_err()));
    b.rollback();
    assert_eq!(b.read(b"z").as_deref(), Some(&b"1"[..]));
    b.write(b"y", b"2", Sync::Full).unwrap();
    assert_eq!(a.read(b"y").as_deref(), Some(&b"2"[..]));
}

#[test]
fn a_range_of_more_keys_than_are_passed_under_the_mutex_is_validated_to_its_end() {
    const KEYS: u32 = 2000;
    let key = |i: u32| i.to_be_bytes();
    let (dir, commits) = (tempfile::tempdir().unwrap(), [Some(0), Some(KEYS - 1), Some(255), None]);
    let path = create(dir.path());
    let (mut a, mut b) = (Client::open(&path), Client::open(&path));
    // Each is too small for a bulk load.
    for chunk in 0..KEYS / 100 {
        a.begin_immediate(1000).unwrap();
        for i in chunk * 100..(chunk + 1) * 100 {
            if i % 2 == 0 {
                a.put(&key(i), b"v");
            } else {
                a.conn().delete(common::TABLE, &key(i), b"v").unwrap();
            }
        }
        a.commit(Sync::Off).unwrap();
    }
    for changed in commits {
        a.begin_concurrent();
        a.conn().read_range(common::TABLE, Some(&key(0)), Some(Hi::Key(&key(KEYS - 1))));
        a.put(b"elsewhere", b"a");
        // In the range, or right behind it.
        b.write(&key(changed.unwrap_or(KEYS)), b"w", Sync::Off).unwrap();
        match changed {
            None => a.commit(Sync::Off).expect("nothing in the range has changed"),
            Some(_) => {
                assert!(is_conflict(&a.commit(Sync::Off).unwrap_err()), "{changed:?}");
                a.rollback();
            }
        }
    }
}

#[test]
fn many_merges_under_load_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let mut a = Client::open(&path);
    let big = vec![7u8; 25_000];
    for i in 0..12_000u32 {
        a.begin_concurrent();
        a.put(&(i % 500).to_be_bytes(), &[&i.to_be_bytes()[..], &big].concat());
        a.commit(Sync::Normal).unwrap();
    }
    for k in 0..500u32 {
        let v = a.read(&k.to_be_bytes()).unwrap();
        assert_eq!(v[..4], (11_500 + k).to_be_bytes());
    }
    let merges = a.conn().database().status().into_iter().find(|(n, _)| *n == "merges").unwrap().1;
    assert!(merges > 3, "{merges} merges");
}

#[test]
fn who_waits_for_the_right_is_served_though_others_never_pause() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let stop = std::sync::atomic::AtomicBool::new(false);
    let stopped = || stop.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        for name in [b"a", b"b", b"c"] {
            let mut busy = Client::open(&path);
            scope.spawn(move || {
                while !stopped() {
                    busy.begin_immediate(5000).unwrap();
                    busy.put(name, b"v");
                    busy.commit(Sync::Off).unwrap();
                }
            });
        }
        let mut late = Client::open(&path);
        let served = (0..200).all(|_| {
            late.begin_immediate(2000).is_ok_and(|()| {
                late.put(b"late", b"v");
                late.commit(Sync::Off).is_ok()
            })
        });
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(served);
    });
}

// holds MAX-2
#[test]
fn a_maximum_is_raised_before_its_transaction_moves_to_a_newer_base() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let (mut a, mut b) = (Client::open(&path), Client::open(&path));
    let record = |n: i64| [&[3, 15, 6, b'e'], &n.to_be_bytes()[..]].concat();
    a.write(b"k", &record(1), Sync::Full).unwrap();
    a.begin_concurrent();
    a.conn().put_max(TABLE, b"k", &record(5)).unwrap();
    b.write(b"k", &record(50), Sync::Full).unwrap();
    // A commit does this when it needs the memory that its own snapshot holds.
    wait_ms(1000, |wait| a.conn().commit_prepare(wait)).unwrap();
    b.merge();
    a.snapshot(true);
    a.commit(Sync::Full).unwrap();
    assert_eq!(b.read(b"k"), Some(record(50)), "nobody's number is lowered");
}

/// Another file, or the application, may have kept the commit from being made.
#[test]
fn a_commit_that_was_prepared_and_is_not_made_keeps_no_right_and_forgets_no_read() {
    for in_the_middle in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let path = create(dir.path());
        let (mut a, mut b) = (Client::open(&path), Client::open(&path));
        a.write(b"x", b"0", Sync::Full).unwrap();
        a.begin_concurrent();
        if !in_the_middle {
            a.get(b"x");
        }
        a.put(b"y", b"1");
        b.write(b"z", b"0", Sync::Full).unwrap();
        wait_ms(0, |wait| a.conn().commit_prepare(wait)).unwrap();
        assert_eq!(a.get(b"z").as_deref(), Some(&b"0"[..]), "it has moved to the newest commit");
        if in_the_middle {
            a.get(b"x");
        }
        a.conn().commit_undo();
        b.begin_immediate(0).expect("the right is free");
        b.put(b"x", b"1");
        b.commit(Sync::Full).unwrap();
        let refused = a.commit(Sync::Full).expect_err("what it has read has changed");
        assert!(is_conflict(&refused), "in the middle: {in_the_middle}, {refused}");
        a.rollback();
    }
}
