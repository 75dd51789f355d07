//! Which sums count, and what they tell.

use super::*;
use crate::simulation::shelf::Memory;

const PAGE: usize = 512;

fn about(serial: u32) -> About {
    About {
        chain: ChainId([1; 16]),
        upload: Upload { begun: RecordNumber(4), nonce: Nonce([2; 16]), serial },
        page_bytes: PAGE as u32,
        page_count: 3,
        key: [serial as u8; 16],
    }
}

fn parts(serial: u32) -> Vec<Part> {
    vec![Part { stored_bytes: 1, raw_bytes: 516, hash: Hash([serial as u8; 32]) }]
}

/// The snapshot of an upload.
fn snapshot(serial: u32) -> SnapshotRef {
    let About { upload, page_bytes, page_count, .. } = about(serial);
    SnapshotRef {
        generation: Default::default(),
        salt: Default::default(),
        page_bytes,
        page_count,
        as_of: RecordNumber(3),
        first: RecordNumber(3),
        stream: Default::default(),
        parent: RecordNumber::NONE,
        earlier: RecordNumber::NONE,
        taken_ms: 0,
        parts: crate::record::Parts { upload, each: parts(serial) },
    }
}

/// Sums three pages, and returns which have changed.
fn sum(shelf: &Memory, serial: u32, parent: Option<Known>, pages: [u8; 3]) -> Vec<u32> {
    let mut summing = Summing::begin(Some(shelf), about(serial), parent);
    let changed =
        (1..).zip(pages).filter(|(number, byte)| summing.is_changed(*number, &[*byte; PAGE]));
    let changed = changed.map(|(number, _)| number).collect();
    summing.end(&parts(serial)).expect("all pages").put().expect("it is put");
    changed
}

fn counts(shelf: &Memory, chain: u8, snapshot: &SnapshotRef) -> bool {
    known(shelf, ChainId([chain; 16]), snapshot).expect("it is read").is_some()
}

#[test]
fn pages_that_are_as_they_were_are_not_changed() {
    let shelf = Memory::default();
    assert_eq!(sum(&shelf, 1, None, [1, 2, 3]), [1, 2, 3]);
    let parent = known(&shelf, ChainId([1; 16]), &snapshot(1)).expect("it is read");
    assert_eq!(sum(&shelf, 2, parent, [1, 7, 3]), [2]);
    let parent = known(&shelf, ChainId([1; 16]), &snapshot(2)).expect("it is read");
    assert_eq!(sum(&shelf, 3, parent, [1, 2, 3]), [2]);
}

// holds SUMS-1
#[test]
fn sums_of_another_snapshot_do_not_count() {
    let shelf = Memory::default();
    sum(&shelf, 1, None, [1, 2, 3]);
    assert!(counts(&shelf, 1, &snapshot(1)));
    assert!(!counts(&shelf, 9, &snapshot(1)), "another chain");
    assert!(!counts(&shelf, 1, &snapshot(2)), "another upload");
    let mut other = snapshot(1);
    other.parts.each[0].hash = Hash([9; 32]);
    assert!(!counts(&shelf, 1, &other), "another part");
    let mut other = snapshot(1);
    other.parts.upload.nonce = Nonce([3; 16]);
    assert!(!counts(&shelf, 1, &other), "another writer");
    let mut other = snapshot(1);
    other.page_count = 4;
    assert!(!counts(&shelf, 1, &other), "another length");
}

// holds SUMS-1
#[test]
fn a_file_that_is_cut_off_or_damaged_does_not_count() {
    let shelf = Memory::default();
    sum(&shelf, 1, None, [1, 2, 3]);
    let whole = shelf.now().expect("it was put");
    assert_eq!(whole.len(), HEADER_BYTES + 3 * SUM_BYTES + END_BYTES);
    for length in 0..whole.len() {
        shelf.set(Some(whole[..length].to_vec()));
        assert!(!counts(&shelf, 1, &snapshot(1)), "{length} bytes");
    }
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        shelf.set(Some(damaged));
        assert!(!counts(&shelf, 1, &snapshot(1)), "byte {at}");
    }
    shelf.set(Some([&whole[..], &[0]].concat()));
    assert!(!counts(&shelf, 1, &snapshot(1)), "more bytes");
    shelf.set(Some(whole));
    assert!(counts(&shelf, 1, &snapshot(1)));
}

#[test]
fn sums_that_lack_a_page_are_not_put() {
    let shelf = Memory::default();
    let of = |numbers: &[u32]| {
        let mut summing = Summing::begin(Some(&shelf), about(1), None);
        numbers.iter().for_each(|number| _ = summing.is_changed(*number, &[0; PAGE]));
        summing.end(&parts(1)).is_some()
    };
    assert!(of(&[1, 2, 3]));
    assert!(!of(&[1, 2]) && !of(&[1, 3]) && !of(&[2, 3]));
}

#[test]
fn two_keys_make_other_sums() {
    let page = [7; PAGE];
    assert_ne!(sum_of(&[1; 16], &page), sum_of(&[2; 16], &page));
}
