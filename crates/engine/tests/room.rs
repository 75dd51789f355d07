//! A commit that has found room for its writes keeps it.

#![allow(unsafe_code)]

mod common;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use common::{Client, create, wait_ms};
use memmap2::MmapOptions;
use plait_engine::database::shm_path;
use plait_engine::shm::layout::{Control, Layout};
use plait_engine::txn::{Sync, WriteMode};

/// Rows of one transaction: more than a chunk of nodes.
const ROWS: u32 = 60;
/// Memtables that are filled. Each ends in a commit or two for which there is just room, or just none.
const MEMTABLES: u32 = 6;

#[test]
fn processes_that_come_during_a_commit_take_no_room_from_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let mut client = Client::open(&path);
    client.write(b"first", b"1", Sync::Off).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(shm_path(&path)).unwrap();
    let map = MmapOptions::new().len(size_of::<Layout>()).map_raw(&file).unwrap();
    // SAFETY: the fixed part of shared memory, all atomics, mapped as long as the borrow.
    let layout = unsafe { &*map.as_ptr().cast::<Layout>() };
    let control: &Control = &layout.control;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // What a second process does, all the time.
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
