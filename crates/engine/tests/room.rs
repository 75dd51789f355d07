//! A commit that has found room for its writes keeps it, and one that has not waits for it.

#![allow(unsafe_code)]

mod common;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Client, Faults, TABLE, at_rest, create, is_conflict, wait_ms};
use memmap2::{MmapOptions, MmapRaw};
use plait_engine::database::shm_path;
use plait_engine::error::Error;
use plait_engine::ids::ProcessIndex;
use plait_engine::shm::layout::{Control, Layout};
use plait_engine::sync::mutex::{Identity, Party};
use plait_engine::sync::wait::Wait;
use plait_engine::txn::{Sync, WriteMode};

/// Rows of one transaction: more than a chunk of nodes.
const ROWS: u32 = 60;
/// Memtables that are filled. Each ends in a commit or two for which there is just room, or just
/// none.
const MEMTABLES: u32 = 6;

/// The fixed part of the shared memory of the database at `path`.
fn mapped(path: &Path) -> MmapRaw {
    let file = std::fs::File::options().read(true).write(true).open(shm_path(path)).unwrap();
    MmapOptions::new().len(size_of::<Layout>()).map_raw(&file).unwrap()
}

fn layout(map: &MmapRaw) -> &Layout {
    // SAFETY: the fixed part of shared memory, all atomics, mapped as long as the borrow.
    unsafe { &*map.as_ptr().cast::<Layout>() }
}

#[test]
fn processes_that_come_during_a_commit_take_no_room_from_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let mut client = Client::open(&path);
    client.write(b"first", b"1", Sync::Off).unwrap();
    let map = mapped(&path);
    let layout = layout(&map);
    let control: &Control = &layout.control;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // A second process does this all the time.
            while !stop.load(Relaxed) {
                for known in [1, 2] {
                    control.processes_high_water.store(known, Relaxed);
                    (0..20).for_each(|_| std::hint::spin_loop());
                }
            }
            control.processes_high_water.store(2, Relaxed);
        });
        let begun = control.base_generation.load(Relaxed);
        let mut last = Ok(());
        for round in 0u32.. {
            wait_ms(1000, |w| client.conn().write_begin(WriteMode::Queued, w)).unwrap();
            for row in 0..ROWS {
                let key = [round.to_be_bytes(), row.to_be_bytes()].concat();
                client.put(&key[2..], &[7; 150]);
            }
            last = client.commit(Sync::Off);
            let active = control.active_arena.load(Relaxed) as usize;
            let number =
                control.generations[active % control.generations.len()].number.load(Relaxed);
            if last.is_err() || number > begun + MEMTABLES {
                break;
            }
        }
        stop.store(true, Relaxed);
        last.expect("there is room for every commit");
    });
    assert_eq!(layout.log.poisoned(), None);
}

/// Runs a queued transaction of some MiB. Returns what its commit reports to a caller that does not
/// wait and may be interrupted.
fn write_much(client: &mut Client, round: u32) {
    wait_ms(1000, |w| client.conn().write_begin(WriteMode::Queued, w)).unwrap();
    for row in 0..ROWS {
        client.put(&[round.to_be_bytes(), row.to_be_bytes()].concat(), &[7; 60_000]);
    }
}

fn commit_at_once(client: &mut Client, interrupted: bool) -> plait_engine::error::Result<()> {
    let mut interrupted = || interrupted;
    let mut wait = Wait { timeout: Duration::ZERO, busy: None, interrupted: &mut interrupted };
    client.conn().commit(Sync::Off, false, &mut wait)
}

#[test]
fn a_commit_without_room_waits_for_who_merges_and_no_longer_than_it_must() {
    /// The least time that a commit waits, whatever its busy timeout (`ROOM_PATIENCE`).
    const PATIENCE: Duration = Duration::from_secs(5);
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let mut client = Client::open(&path);
    client.write(b"first", b"1", Sync::Off).unwrap();
    let mut merger = Client::open(&path);
    // In a transaction: a wait for the work of a connection at rest would have no end.
    wait_ms(1000, |w| merger.conn().write_begin(WriteMode::Optimistic, w)).unwrap();
    let map = mapped(&path);
    let owner = &layout(&map).control.merge_owner;
    // The second connection merges, and does not come to an end.
    owner.store(2, Relaxed);
    let mut round = 0;
    loop {
        write_much(&mut client, round);
        match commit_at_once(&mut client, true) {
            Ok(()) => client.conn().snapshot_end(),
            Err(Error::Interrupted) => break,
            Err(e) => panic!("{e}"),
        }
        round += 1;
        assert!(round < 100, "shared memory is never full");
    }
    // The transaction is what it was, and waits again.
    let begun = Instant::now();
    match commit_at_once(&mut client, false) {
        Err(Error::Full(why)) => assert!(why.contains("is merging"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(begun.elapsed() >= PATIENCE, "{:?}", begun.elapsed());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            owner.store(0, Relaxed);
        });
        commit_at_once(&mut client, false).expect("there is room again");
    });
    client.conn().snapshot_end();
    let last = [round.to_be_bytes(), (ROWS - 1).to_be_bytes()].concat();
    assert_eq!(client.read(&last), Some(vec![7; 60_000]));
    assert_eq!(layout(&map).log.poisoned(), None);
}

/// The right was taken in an earlier call of the same COMMIT, which had to be repeated.
#[test]
fn an_optimistic_commit_that_ends_without_room_gives_back_the_right_that_it_had_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let (mut filler, mut merger) = (Client::open(&path), Client::open(&path));
    filler.write(b"first", b"1", Sync::Off).unwrap();
    wait_ms(1000, |w| merger.conn().write_begin(WriteMode::Optimistic, w)).unwrap();
    let mut client = Client::open(&path);
    let map = mapped(&path);
    let owner = &layout(&map).control.merge_owner;
    // The second connection merges, and does not come to an end.
    owner.store(2, Relaxed);
    fill_memory(&mut filler);
    client.begin_concurrent();
    for row in 0..ROWS {
        client.put(&row.to_be_bytes(), &[7; 60_000]);
    }
    wait_ms(0, |wait| client.conn().commit_prepare(wait)).unwrap();
    let refused = commit_at_once(&mut client, true);
    assert!(matches!(refused, Err(Error::Interrupted)), "{refused:?}");
    filler.begin_immediate(0).expect("the right is free while the other one thinks");
    filler.rollback();
    owner.store(0, Relaxed);
    while let Err(e) = client.commit(Sync::Off) {
        assert!(matches!(e, Error::RenewSnapshot), "the transaction is what it was: {e}");
        client.snapshot(true);
    }
    assert_eq!(client.read(&0u32.to_be_bytes()), Some(vec![7; 60_000]));
}

/// Fills memory until a commit of `filler` finds no room.
fn fill_memory(filler: &mut Client) {
    for round in 0u32.. {
        assert!(round < 100, "shared memory is never full");
        write_much(filler, round);
        match commit_at_once(filler, true) {
            Ok(()) => filler.conn().snapshot_end(),
            Err(_) => break,
        }
    }
    filler.rollback();
}

/// A process that is stopped while it has the commit mutex is in the way of a renewal. It goes on
/// before the renewal is tried again.
#[test]
fn a_renewal_that_was_put_off_validates_what_was_read_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let mut filler = Client::open(&path);
    filler.write(b"read", b"1", Sync::Off).unwrap();
    let (mut client, mut merger) = (Client::open(&path), Client::open(&path));
    wait_ms(1000, |w| merger.conn().write_begin(WriteMode::Optimistic, w)).unwrap();
    let map = mapped(&path);
    let owner = &layout(&map).control.merge_owner;
    // The merger merges and does not come to an end, so the snapshot of the client holds all of
    // memory.
    owner.store(3, Relaxed);
    fill_memory(&mut filler);
    client.begin_concurrent();
    assert_eq!(client.get(b"read"), Some(b"1".to_vec()));
    for row in 0..ROWS {
        client.put(&row.to_be_bytes(), &[7; 60_000]);
    }
    owner.store(0, Relaxed);
    let renews = client.commit(Sync::Off);
    assert!(matches!(renews, Err(Error::RenewSnapshot)), "{renews:?}");
    let generation = layout(&map).processes[0].generation.load(Relaxed);
    let stopped = Party::new(Identity::new(ProcessIndex(0), generation), |_| true);
    let mutex = layout(&map).control.commit_mutex.lock(&stopped);
    let header = at_rest(&path).0;
    client.conn().pin(false).unwrap();
    let busy = client.conn().take(&header, true);
    assert!(matches!(busy, Err(Error::Busy(_))), "{busy:?}");
    client.conn().put_off();
    drop(mutex);
    filler.write(b"read", b"2", Sync::Off).expect("there is room for little");
    client.conn().pin(false).unwrap();
    let header = at_rest(&path).0;
    let taken = client.conn().take(&header, true);
    assert!(taken.as_ref().is_err_and(is_conflict), "{taken:?}");
    client.rollback();
}

/// A call of the base: its name, its thread, and whether commits were to keep pace with it.
type Call = (String, Option<String>, bool);

/// Fills memory more than once; only the commits that find no room merge. Returns the calls of the
/// base.
fn calls_of_those_without_room(threads: bool) -> Vec<Call> {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let faults = Faults::default();
    let mut client = Client::try_open_with(&path, Arc::new(faults.clone())).unwrap();
    client.write(b"first", b"1", Sync::Off).unwrap();
    let map = mapped(&path);
    let calls = Arc::new(Mutex::new(Vec::new()));
    let (watched, seen) = (mapped(&path), calls.clone());
    faults.watch(move |call| {
        let name = std::thread::current().name().map(str::to_owned);
        let is_paced = layout(&watched).control.work_due_ns.load(Relaxed) != 0;
        seen.lock().unwrap().push((call.to_owned(), name, is_paced));
    });
    if threads {
        client.conn().allow_threads();
    }
    // Each is too small to go straight to the base.
    for round in 0..2_000u32 {
        wait_ms(1000, |w| client.conn().write_begin(WriteMode::Queued, w)).unwrap();
        for row in 0..ROWS {
            client.put(&[(round % 50).to_be_bytes(), row.to_be_bytes()].concat(), &[7; 2_000]);
        }
        wait_ms(60_000, |w| client.conn().commit(Sync::Off, false, w)).expect("there is room");
        client.conn().snapshot_end();
    }
    let calls = calls.lock().unwrap().clone();
    wait_ms(60_000, |w| client.conn().merge_all(true, w)).expect("all is merged");
    let control = &layout(&map).control;
    assert_eq!(control.work_due_ns.load(Relaxed), 0, "nobody merges any more");
    assert!(control.merge_ns_per_kib.load(Relaxed) > 0, "what a merge takes is known");
    assert_eq!(
        (control.uncheckpointed_kib.load(Relaxed), control.checkpoints_ns.load(Relaxed)),
        (0, 0)
    );
    calls
}

#[test]
fn a_commit_without_room_has_a_thread_merge_and_does_so_itself_where_there_is_to_be_none() {
    for threads in [true, false] {
        let calls = calls_of_those_without_room(threads);
        let merges = calls.iter().filter(|(call, ..)| call == "begin");
        let beside = merges.clone().filter(|(_, name, _)| name.as_deref() == Some("plait-merge"));
        let (merges, beside) = (merges.count(), beside.count());
        assert!(merges > 0, "memory was never full");
        assert_eq!(beside, if threads { merges } else { 0 }, "of {merges}");
    }
}

#[test]
fn commits_keep_pace_with_merges_and_with_the_checkpoints_behind_them() {
    let calls = calls_of_those_without_room(true);
    let is_paced = |wanted: &str| {
        let mut of_those = calls.iter().filter(|(call, ..)| call == wanted).peekable();
        assert!(of_those.peek().is_some(), "no {wanted}");
        of_those.all(|&(.., is_paced)| is_paced)
    };
    assert!(is_paced("begin") && is_paced("checkpoint"));
}

// holds MERGE-3
#[test]
fn a_commit_without_room_does_not_fail_for_a_slow_merge_of_its_own_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let faults = Faults::default();
    let mut client = Client::try_open_with(&path, Arc::new(faults.clone())).unwrap();
    client.write(b"first", b"1", Sync::Off).unwrap();
    client.conn().allow_threads();
    let slow = Arc::new(AtomicBool::new(false));
    let met = slow.clone();
    faults.watch(move |call| {
        if call == "commit" && !met.swap(true, Relaxed) {
            // Longer than a commit waits for others.
            std::thread::sleep(Duration::from_secs(7));
        }
    });
    for round in 0..2_000u32 {
        wait_ms(1000, |w| client.conn().write_begin(WriteMode::Queued, w)).unwrap();
        for row in 0..ROWS {
            client.put(&[(round % 50).to_be_bytes(), row.to_be_bytes()].concat(), &[7; 2_000]);
        }
        commit_at_once(&mut client, false).expect("it waits");
        client.conn().snapshot_end();
    }
    assert!(slow.load(Relaxed), "memory was never full");
}

/// A process that died in a merge or a checkpoint has left its guess behind.
// holds PACE-2
#[test]
fn whoever_takes_the_right_to_merge_holds_nobody_up_by_the_guess_of_a_dead_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let mut client = Client::open(&path);
    client.write(b"first", b"1", Sync::Off).unwrap();
    let map = mapped(&path);
    let control = &layout(&map).control;
    wait_ms(1000, |w| client.conn().merge_all(true, w)).expect("all is merged");
    control.work_due_ns.store(1, Relaxed);
    // A large transaction that is alone reserves the right, and merges nothing.
    client.begin_immediate(1000).unwrap();
    let put = |i: u32| client.conn().put(TABLE, &i.to_be_bytes(), &[7; 9000], 0);
    assert!((0..100).map(put).any(|put| put.is_err()), "it goes straight to the base");
    assert_ne!(control.merge_owner.load(Relaxed), 0);
    assert_eq!(control.work_due_ns.load(Relaxed), 0);
}
