//! The sum of a merge is that of the pages in the WAL, read by other code.

use std::collections::BTreeMap;
use std::sync::Arc;

use plait_engine::base::sum_page;
use plait_engine::ids::Generation;
use plait_engine::ship::{Happened, Shipper};
use plait_engine::sync::wait::Wait;

use crate::processes::{commit, open};
use crate::stage::Stage;

/// The last transaction in a WAL: pages by number, and pages of the database behind it.
fn last_transaction(wal: &[u8]) -> (BTreeMap<u32, Vec<u8>>, u32) {
    let word = |at: usize| u32::from_be_bytes(wal[at..at + 4].try_into().expect("four"));
    let page_bytes = word(8) as usize;
    let salts = (word(16), word(20));
    let (mut pages, mut found) = (BTreeMap::new(), None);
    let mut at = 32;
    while at + 24 + page_bytes <= wal.len() && (word(at + 8), word(at + 12)) == salts {
        pages.insert(word(at), wal[at + 24..at + 24 + page_bytes].to_vec());
        if word(at + 4) != 0 {
            found = Some((std::mem::take(&mut pages), word(at + 4)));
        }
        at += 24 + page_bytes;
    }
    found.expect("a transaction")
}

// holds BOUND-1
#[test]
fn the_sum_of_a_merge_is_that_of_the_pages_that_it_wrote() {
    let stage = Stage::new();
    let db = open(&stage.database);
    // More pages than the merging connection's cache has.
    for spills in [false, true] {
        db.query("SELECT count(*) FROM plait_status").expect("it is asked");
        db.query("SELECT count(*) FROM t").expect("it joins");
        let database = Shipper::joined(&stage.database).expect("joined");
        let begun = Wait::forever(|wait| Shipper::begin(&database, None, 1 << 30, wait));
        let (begun, mut shipper) = begun.expect("a shipper");
        assert!(begun.anew.is_some());
        let rows = if spills { 9000 } else { 300 };
        for n in 0..rows {
            let id = (n * 7919) % 1_000_000;
            let v = format!("INSERT OR REPLACE INTO t VALUES({id}, hex(randomblob(1500)))");
            commit(&db, &[v]);
        }
        let reader = open(&stage.database);
        reader.execute("PRAGMA wal_checkpoint").expect("a merge");
        let events = shipper.read(usize::MAX).expect("events");
        let merges: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Happened::Merge { through, written, .. } => Some((*through, *written)),
                _ => None,
            })
            .collect();
        let lost = events.iter().any(|event| matches!(event, Happened::Lost { .. }));
        assert!(!lost && !merges.is_empty(), "{} merges", merges.len());
        let &(through, written) = merges.last().expect("one");
        let wal = std::fs::read(stage.folder.path().join("app.db-wal")).expect("a WAL");
        let (pages, page_count) = last_transaction(&wal);
        let sum = pages.iter().fold(0, |sum, (number, page)| sum_page(sum, *number, page));
        assert_eq!((written.page_count, written.sum), (page_count, sum), "of {}", pages.len());
        let first = &pages[&1];
        let generation = u32::from_be_bytes(first[76..80].try_into().expect("four"));
        assert_eq!(Generation::new(generation), through);
        drop(shipper);
        assert!(Arc::strong_count(&database) > 1);
    }
}
