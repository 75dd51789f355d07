//! Walks over the overlay that stay open while their transaction writes, against plain ordered
//! maps.

mod common;

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use common::{Client, TABLE, create};
use plait_engine::memtable::Seek;
use plait_engine::txn::Sync;
use plait_engine::txn::overlay::{Entry, OverlayIter};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// What is over the base: `None` is a deletion.
type Overlay = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A walk, and the place where it must be.
struct Walk {
    iter: OverlayIter,
    at: Option<Vec<u8>>,
}

/// A transaction with several walks.
struct Scene {
    client: Client,
    overlay: Overlay,
    saved: Vec<Overlay>,
    walks: Vec<Walk>,
    seed: u64,
}

fn key(random: &mut StdRng) -> Vec<u8> {
    let n: u8 = random.random_range(0..120);
    match n % 4 {
        0 => vec![n],
        1 => [&b"all alike, "[..], &[n]].concat(),
        _ => vec![7, 7, n / 8, n],
    }
}

fn rec(random: &mut StdRng) -> Vec<u8> {
    vec![random.random(); random.random_range(1..4)]
}

fn said(entry: Option<Entry<'_>>) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    entry.map(|e| (e.key.to_vec(), (!e.tombstone).then(|| e.rec.to_vec())))
}

impl Scene {
    fn walk(&mut self, random: &mut StdRng) {
        let walk = random.random_range(0..self.walks.len());
        for _ in 0..random.random_range(1..5) {
            match random.random_range(0..8) {
                0 => self.seek(walk, random),
                1..5 => self.step(walk, true),
                _ => self.step(walk, false),
            }
        }
    }

    fn seek(&mut self, walk: usize, random: &mut StdRng) {
        let conn = self.client.conn.as_ref().unwrap();
        let (key, walk) = (key(random), &mut self.walks[walk]);
        let (seek, expected) = match random.random_range(0..4) {
            0 => (Seek::First, self.overlay.iter().next()),
            1 => (Seek::Last, self.overlay.iter().next_back()),
            2 => (Seek::Ge(&key), self.overlay.range(key.clone()..).next()),
            _ => (Seek::Lt(&key), self.overlay.range(..key.clone()).next_back()),
        };
        let expected = expected.map(|(key, rec)| (key.clone(), rec.clone()));
        let found = said(walk.iter.seek(conn, seek));
        assert_eq!(found, expected, "seed {}: {seek:?}", self.seed);
        walk.at = found.map(|(key, _)| key);
    }

    fn step(&mut self, walk: usize, forward: bool) {
        let conn = self.client.conn.as_ref().unwrap();
        let walk = &mut self.walks[walk];
        let expected = walk.at.clone().and_then(|at| match forward {
            true => self.overlay.range((Excluded(at), Unbounded)).next(),
            false => self.overlay.range(..at).next_back(),
        });
        let expected = expected.map(|(key, rec)| (key.clone(), rec.clone()));
        let entry = if forward { walk.iter.next(conn) } else { walk.iter.prev(conn) };
        let found = said(entry);
        assert_eq!(found, expected, "seed {}: {forward} from {:?}", self.seed, walk.at);
        // Behind the last entry a walk stays where it is.
        if let Some((key, _)) = found {
            walk.at = Some(key);
        }
    }

    /// Writes at a random key, at the place of a walk, or right next to it.
    fn write(&mut self, random: &mut StdRng) {
        let near = &self.walks[random.random_range(0..self.walks.len())].at;
        let key = match (near, random.random_range(0..3)) {
            (Some(at), 0) => at.clone(),
            (Some(at), 1) => [&at[..], &[0]].concat(),
            _ => key(random),
        };
        let rec = random.random_bool(0.5).then(|| rec(random));
        match &rec {
            Some(rec) => self.client.put(&key, rec),
            None => self.client.conn().delete(TABLE, &key, b"gone").unwrap(),
        }
        self.overlay.insert(key, rec);
    }

    fn savepoint(&mut self, random: &mut StdRng) {
        let conn = self.client.conn();
        match self.saved.len() {
            depth if depth < 3 && random.random() => {
                conn.savepoint_open(depth + 1);
                self.saved.push(self.overlay.clone());
            }
            0 => {}
            depth => {
                let i = random.random_range(0..depth);
                if random.random() {
                    conn.savepoint_release(i);
                    self.saved.truncate(i);
                } else {
                    conn.savepoint_rollback(Some(i));
                    self.overlay = self.saved[i].clone();
                    self.saved.truncate(i + 1);
                }
            }
        }
    }
}

fn run(seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let mut random = StdRng::seed_from_u64(seed);
    let mut client = Client::open(&path);
    let mut committed = Overlay::new();
    for _ in 0..random.random_range(0..3) {
        client.begin_immediate(1000).unwrap();
        for _ in 0..random.random_range(1..40) {
            let (key, rec) = (key(&mut random), rec(&mut random));
            client.put(&key, &rec);
            committed.insert(key, Some(rec));
        }
        client.commit(Sync::Normal).unwrap();
    }
    client.begin_immediate(1000).unwrap();
    let walk = || Walk { iter: OverlayIter::new(TABLE), at: None };
    let walks = (0..3).map(|_| walk()).collect();
    let mut scene = Scene { client, overlay: committed, saved: Vec::new(), walks, seed };
    for _ in 0..1500 {
        match random.random_range(0..10) {
            0..5 => scene.walk(&mut random),
            5..9 => scene.write(&mut random),
            _ => scene.savepoint(&mut random),
        }
    }
    scene.client.rollback();
}

#[test]
fn a_walk_that_stays_open_sees_each_write_of_its_transaction_and_none_that_was_taken_back() {
    let first = std::env::var("PLAIT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    (first..first + 20).for_each(run);
}
