//! Large transactions of a lone writer, and what makes their commits durable, over a base that is a
//! map.

mod common;

use std::path::Path;

use common::{Client, TABLE, at_rest, create, is_conflict, wait_ms};
use plait_engine::base::BaseOpener;
use plait_engine::database::changed::Changed;
use plait_engine::error::Error;
use plait_engine::txn::exclusive::Replay;
use plait_engine::txn::{Size, Sync};

/// More than enough to be large.
const LARGE: usize = 1000;
/// Transactions that stay on the concurrent path after another connection came while one was
/// exclusive.
const HELD: usize = 4096;

fn key(i: usize) -> Vec<u8> {
    (i as u32).to_be_bytes().to_vec()
}

/// Writes until the engine asks for the exclusive path. Returns the number of entries that took.
fn write_until_asked(client: &mut Client, from: usize) -> Option<usize> {
    (0..LARGE).find(|i| match client.conn().put(TABLE, &key(from + i), b"v", 0) {
        Ok(()) => false,
        Err(Error::Escalate) => true,
        Err(e) => panic!("{e}"),
    })
}

/// Plays the shim's part of an exclusive transaction, from the replay to the commit; `more` entries
/// follow the replay.
fn go_exclusive(client: &mut Client, path: &Path, sync: Sync, from: usize, more: usize) {
    wait_ms(0, |w| client.conn().exclusive_begin(w)).expect("nobody is waited for");
    let mut base = common::Opener.open(path).unwrap();
    base.begin().unwrap();
    let replayed = client.conn().exclusive_replay(|step| match step {
        Replay::Put(root, key, rec) | Replay::Maximum(root, key, rec) => base.put(root, key, rec),
        other => panic!("{other:?}"),
    });
    replayed.unwrap();
    for i in 0..more {
        base.put(TABLE, &key(from + i), b"v").unwrap();
    }
    let header = client.conn().exclusive_header(
        sync,
        Size { entries: more as u64, bytes: 20 * more as u64 },
        Changed::ANYTHING,
    );
    base.stamp(&header).unwrap();
    base.commit().unwrap();
    client.conn().exclusive_end(true, false);
    client.conn().snapshot_end();
}

/// Runs a large transaction. Returns the number of entries after which it went straight to the
/// base, if it did.
fn load(client: &mut Client, path: &Path, sync: Sync, from: usize) -> Option<usize> {
    client.begin_immediate(1000).unwrap();
    let asked = write_until_asked(client, from);
    match asked {
        Some(n) => go_exclusive(client, path, sync, from + n, LARGE - n),
        None => client.commit(sync).unwrap(),
    }
    asked
}

fn counter(client: &mut Client, name: &str) -> i64 {
    let status = client.conn().database().status();
    status.iter().find(|(n, _)| *n == name).expect("a counter").1
}

#[test]
fn a_lone_writer_goes_straight_to_the_base_and_sooner_after_a_large_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    {
        let mut a = Client::open(&path);
        assert_eq!(load(&mut a, &path, Sync::Normal, 0), Some(256));
        for round in 1..5 {
            assert_eq!(load(&mut a, &path, Sync::Normal, round * LARGE), Some(16));
        }
        a.write(b"small", b"1", Sync::Normal).unwrap();
        // The small transaction is in memory now, and it was not large.
        assert_eq!(load(&mut a, &path, Sync::Normal, 5 * LARGE), None);
        assert_eq!(load(&mut a, &path, Sync::Normal, 6 * LARGE), Some(16));
        assert_eq!(a.read(b"small").as_deref(), Some(&b"1"[..]));
        assert_eq!(a.read(&key(5 * LARGE + 7)).as_deref(), Some(&b"v"[..]));
    }
    assert_eq!(at_rest(&path).1.len(), 7 * LARGE + 1);
}

// holds BULK-1
#[test]
fn who_is_not_alone_stays_on_the_concurrent_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let (mut a, mut b) = (Client::open(&path), Client::open(&path));
    a.begin_immediate(1000).unwrap();
    a.commit(Sync::Normal).unwrap();
    b.snapshot(false);
    assert_eq!(load(&mut a, &path, Sync::Normal, 0), None, "a snapshot is open");
    assert_eq!(load(&mut a, &path, Sync::Normal, LARGE), None, "and still is");
    b.conn().snapshot_end();
    assert_eq!(load(&mut a, &path, Sync::Normal, 2 * LARGE), Some(16), "and was ended");
    b.read(b"x");
    assert_eq!(load(&mut a, &path, Sync::Normal, 3 * LARGE), None, "somebody was there");
    for quiet in 0..HELD {
        assert_eq!(load(&mut a, &path, Sync::Normal, (4 + quiet % 8) * LARGE), None, "{quiet}");
    }
    assert_eq!(load(&mut a, &path, Sync::Normal, 12 * LARGE), Some(16));
    b.begin_concurrent();
    for i in 0..LARGE {
        b.put(&key(i), b"w");
    }
    b.commit(Sync::Normal).unwrap();
}

#[test]
fn a_right_to_merge_that_was_reserved_and_not_used_is_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let (mut a, mut b) = (Client::open(&path), Client::open(&path));
    for end in ["rollback", "commit"] {
        a.begin_immediate(1000).unwrap();
        assert_eq!(write_until_asked(&mut a, 0), Some(256));
        match end {
            "rollback" => a.rollback(),
            _ => a.commit(Sync::Normal).unwrap(),
        }
        b.merge();
        assert_eq!(counter(&mut b, "merger_pid"), 0);
    }
    assert_eq!(b.read(&key(255)).as_deref(), Some(&b"v"[..]));
}

// holds BEFORE-1, BEFORE-2
#[test]
fn a_frame_after_an_unsynced_commit_of_the_base_waits_for_its_sync() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let mut a = Client::open(&path);
    for (round, sync) in [Sync::Normal, Sync::Off, Sync::Normal].into_iter().enumerate() {
        load(&mut a, &path, sync, round * LARGE);
        load(&mut a, &path, sync, (10 + round) * LARGE);
        let syncs = counter(&mut a, "base_syncs");
        a.write(b"x", b"1", Sync::Full).unwrap();
        assert_eq!(counter(&mut a, "base_syncs"), syncs + 1);
        a.write(b"x", b"2", Sync::Full).unwrap();
        assert_eq!(counter(&mut a, "base_syncs"), syncs + 1);
    }
}

#[test]
fn a_synced_commit_of_the_base_is_not_synced_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let mut a = Client::open(&path);
    assert_eq!(load(&mut a, &path, Sync::Full, 0), Some(256));
    a.write(b"x", b"1", Sync::Full).unwrap();
    assert_eq!(counter(&mut a, "base_syncs"), 0);
    // A merge syncs its own commit.
    load(&mut a, &path, Sync::Normal, LARGE);
    assert_eq!(load(&mut a, &path, Sync::Normal, 2 * LARGE), Some(16));
    a.write(b"x", b"2", Sync::Normal).unwrap();
    a.merge();
    let syncs = counter(&mut a, "base_syncs");
    a.write(b"x", b"3", Sync::Full).unwrap();
    assert_eq!(counter(&mut a, "base_syncs"), syncs);
}

#[test]
fn who_begins_to_read_beside_it_conflicts_when_it_writes_and_only_then() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let (mut a, mut b) = (Client::open(&path), Client::open(&path));
    a.begin_immediate(1000).unwrap();
    let asked = write_until_asked(&mut a, 0).expect("it is alone");
    b.snapshot(false);
    assert_eq!(b.get(&key(0)), None);
    go_exclusive(&mut a, &path, Sync::Normal, asked, LARGE - asked);
    assert_eq!(b.get(&key(0)), None, "a snapshot does not move");
    assert!(is_conflict(&b.upgrade().unwrap_err()));
    b.rollback();
    b.snapshot(false);
    assert_eq!(b.get(&key(0)).as_deref(), Some(&b"v"[..]));
    b.upgrade().unwrap();
    b.put(&key(0), b"w");
    b.commit(Sync::Normal).unwrap();
    assert_eq!(a.read(&key(0)).as_deref(), Some(&b"w"[..]));
}

/// A transaction keeps what it has reserved for as long as its application thinks: other
/// connections of the process must not wait for that without end.
#[test]
fn the_right_to_merge_that_a_transaction_has_reserved_is_waited_for_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let mut b = Client::open(&path);
    let mut a = Client::open(&path);
    a.begin_immediate(1000).unwrap();
    assert!(write_until_asked(&mut a, 0).is_some(), "it has reserved it");
    let begun = std::time::Instant::now();
    let refused = wait_ms(0, |w| b.conn().merge_all(true, w)).expect_err("it is not given back");
    assert!(refused.is_busy(), "{refused}");
    assert!(begun.elapsed() >= std::time::Duration::from_secs(3), "{:?}", begun.elapsed());
    a.conn().rollback().unwrap();
    a.conn().snapshot_end();
    wait_ms(0, |w| b.conn().merge_all(true, w)).expect("it is free");
}
