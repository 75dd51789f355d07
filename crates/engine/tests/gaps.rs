//! Walks over deleted rows that skip gaps, against plain ordered maps.

mod common;

use std::collections::BTreeMap;

use common::{Client, TABLE, create, is_conflict};
use plait_engine::memtable::{Hi, Seek};
use plait_engine::txn::Sync;
use plait_engine::txn::overlay::OverlayIter;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
/// What a transaction has written: `None` is a deletion.
type Writes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;
/// Bounds of a range, both inclusive.
type Range = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Tombstones after which a walk looks for a gap: fewer than in the shim, so that small tables have
/// some.
const SKIP_STEP: u32 = 2;

/// Returns the first row from `from` on (`None`: from the end) in one direction, as the shim finds
/// it.
fn walk(client: &mut Client, from: Option<&[u8]>, forward: bool) -> Option<Vec<u8>> {
    let base: Vec<Vec<u8>> = client.base_keys();
    let conn = client.conn.as_ref().unwrap();
    let mut iter = OverlayIter::new(TABLE);
    let seek = match (from, forward) {
        (None, true) => Seek::First,
        (None, false) => Seek::Last,
        (Some(from), true) => Seek::Ge(from),
        (Some(from), false) => Seek::Le(from),
    };
    let beyond = |key: &[u8], place: &Option<Vec<u8>>, first: bool| match (place, forward) {
        (None, _) => true,
        (Some(at), true) => key > &at[..] || first && key == &at[..],
        (Some(at), false) => key < &at[..] || first && key == &at[..],
    };
    let (mut place, mut first) = (from.map(<[u8]>::to_vec), true);
    let mut over = iter.seek(conn, seek).map(|e| (e.key.to_vec(), e.tombstone));
    let mut skipped = 0;
    let found = loop {
        let mut ahead = base.iter().filter(|key| beyond(key, &place, first));
        let next = if forward { ahead.next() } else { ahead.next_back() };
        let is_base_nearer =
            |key: &[u8]| next.is_some_and(|next| (&next[..] < key) == forward && next != key);
        match &over {
            Some((key, tombstone)) if !is_base_nearer(key) => {
                if !tombstone {
                    break Some(key.clone());
                }
                (place, first) = (Some(key.clone()), false);
            }
            _ => break next.cloned(),
        }
        skipped += 1;
        if skipped % SKIP_STEP == 0
            && let Some(far) = iter.skip(conn, forward, skipped == SKIP_STEP)
        {
            assert!(far.tombstone, "a walk goes on at a tombstone");
            assert!(beyond(far.key, &place, false), "a walk does not go back");
            place = Some(far.key.to_vec());
        }
        let entry = if forward { iter.next(conn) } else { iter.prev(conn) };
        over = entry.map(|e| (e.key.to_vec(), e.tombstone));
    };
    if skipped >= SKIP_STEP {
        iter.skipped(conn);
    }
    found
}

fn expected(rows: &Rows, from: Option<&[u8]>, forward: bool) -> Option<Vec<u8>> {
    match (from, forward) {
        (None, true) => rows.keys().next(),
        (None, false) => rows.keys().next_back(),
        (Some(from), true) => rows.range(from.to_vec()..).next().map(|(key, _)| key),
        (Some(from), false) => rows.range(..=from.to_vec()).next_back().map(|(key, _)| key),
    }
    .cloned()
}

/// What a transaction sees and has done.
struct View {
    rows: Rows,
    at_begin: Rows,
    writes: Writes,
    /// The view and the writes at the savepoint.
    saved: Option<(Rows, Writes)>,
    reads: Vec<Range>,
    writes_at_all: bool,
    optimistic: bool,
}

impl View {
    fn of(rows: &Rows, writes_at_all: bool, optimistic: bool) -> View {
        View {
            rows: rows.clone(),
            at_begin: rows.clone(),
            writes: BTreeMap::new(),
            saved: None,
            reads: Vec::new(),
            writes_at_all,
            optimistic,
        }
    }

    fn write(&mut self, key: &[u8], rec: Option<&[u8]>) {
        match rec {
            Some(rec) => drop(self.rows.insert(key.to_vec(), rec.to_vec())),
            None => drop(self.rows.remove(key)),
        }
        self.writes.insert(key.to_vec(), rec.map(<[u8]>::to_vec));
    }

    /// True if anything that was read has changed.
    fn is_contradicted_by(&self, rows: &Rows) -> bool {
        let inside = |rows: &Rows, lo: &Option<Vec<u8>>, hi: &Option<Vec<u8>>| -> Vec<Vec<u8>> {
            let keys = rows.keys().filter(|key| {
                lo.as_ref().is_none_or(|lo| *key >= lo) && hi.as_ref().is_none_or(|hi| *key <= hi)
            });
            keys.cloned().collect()
        };
        self.reads.iter().any(|(lo, hi)| inside(rows, lo, hi) != inside(&self.at_begin, lo, hi))
    }
}

fn key(random: &mut StdRng) -> Vec<u8> {
    let n: u8 = random.random_range(0..60);
    match n % 10 {
        9 => [&[n / 8][..], &[b'k'; 120], &[n]].concat(),
        _ => vec![n / 8, n],
    }
}

/// Several connections in one process, and all that is committed.
struct World {
    clients: Vec<Client>,
    views: Vec<Option<View>>,
    rows: Rows,
    seed: u64,
    walks: u64,
    runs: u32,
}

impl World {
    fn is_right_taken(&self) -> bool {
        self.views.iter().flatten().any(|view| view.writes_at_all && !view.optimistic)
    }

    fn begin(&mut self, i: usize, random: &mut StdRng) {
        let (writes, optimistic) = match random.random_range(0..4) {
            0 => (false, false),
            1 if !self.is_right_taken() => (true, false),
            _ => (true, true),
        };
        match (writes, optimistic) {
            (false, _) => self.clients[i].snapshot(random.random()),
            (true, false) => self.clients[i].begin_immediate(1000).unwrap(),
            (true, true) => self.clients[i].begin_concurrent(),
        }
        self.views[i] = Some(View::of(&self.rows, writes, optimistic));
    }

    fn walk(&mut self, i: usize, random: &mut StdRng) {
        let forward = random.random();
        let from = random.random_bool(0.6).then(|| key(random));
        let found = walk(&mut self.clients[i], from.as_deref(), forward);
        let view = self.views[i].as_mut().unwrap();
        let seed = self.seed;
        assert_eq!(
            found,
            expected(&view.rows, from.as_deref(), forward),
            "seed {seed}, {from:?} {forward}"
        );
        let (lo, hi) = if forward { (from, found) } else { (found, from) };
        self.clients[i].conn().read_range(TABLE, lo.as_deref(), hi.as_deref().map(Hi::Key));
        view.reads.push((lo, hi));
        self.walks += 1;
    }

    fn write(&mut self, i: usize, random: &mut StdRng) {
        let view = self.views[i].as_mut().unwrap();
        if !view.writes_at_all {
            return;
        }
        for _ in 0..random.random_range(1..6) {
            let key = key(random);
            if random.random_bool(0.2) {
                let rec = [random.random::<u8>()];
                self.clients[i].put(&key, &rec);
                view.write(&key, Some(&rec));
            } else {
                self.clients[i].conn().delete(TABLE, &key, b"gone").unwrap();
                view.write(&key, None);
            }
        }
    }

    /// Walks, and deletes the rows which the walk comes to; now and then puts or deletes another
    /// row in between.
    fn delete_in_passing(&mut self, i: usize, random: &mut StdRng) {
        let view = self.views[i].as_mut().unwrap();
        if !view.writes_at_all {
            return;
        }
        self.runs += 1;
        let forward: bool = random.random();
        let mut from = key(random);
        for _ in 0..random.random_range(1..30) {
            let Some(next) = expected(&view.rows, Some(&from), forward) else { return };
            if random.random_bool(0.1) {
                let (key, rec) = (key(random), [random.random::<u8>()]);
                self.clients[i].put(&key, &rec);
                view.write(&key, Some(&rec));
            } else if random.random_bool(0.1) {
                let key = key(random);
                self.clients[i].conn().delete(TABLE, &key, b"gone").unwrap();
                view.write(&key, None);
            }
            let conn = self.clients[i].conn();
            conn.delete_in_passing(TABLE, &next, b"gone", self.runs).unwrap();
            view.write(&next, None);
            from = next;
        }
    }

    fn savepoint(&mut self, i: usize) {
        let view = self.views[i].as_mut().unwrap();
        let conn = self.clients[i].conn();
        match view.saved.take() {
            None => {
                conn.savepoint_open(1);
                view.saved = Some((view.rows.clone(), view.writes.clone()));
            }
            Some((rows, writes)) => {
                conn.savepoint_rollback(Some(0));
                conn.savepoint_release(0);
                (view.rows, view.writes) = (rows, writes);
            }
        }
    }

    fn commit(&mut self, i: usize) {
        let view = self.views[i].take().unwrap();
        if !view.writes_at_all {
            return self.clients[i].rollback();
        }
        if view.optimistic && self.is_right_taken() {
            return self.clients[i].rollback();
        }
        self.clients[i].conn().savepoint_release(0);
        match self.clients[i].commit(Sync::Normal) {
            Ok(()) => {
                let stale = !view.writes.is_empty() && view.is_contradicted_by(&self.rows);
                assert!(!stale, "seed {}: what was read has changed", self.seed);
                for (key, rec) in view.writes {
                    match rec {
                        Some(rec) => drop(self.rows.insert(key, rec)),
                        None => drop(self.rows.remove(&key)),
                    }
                }
            }
            Err(e) => {
                assert!(view.optimistic && is_conflict(&e), "seed {}: {e}", self.seed);
                self.clients[i].rollback();
            }
        }
    }
}

/// Runs random transactions of several connections. Returns the number of walks.
fn run(seed: u64, steps: u32) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let mut random = StdRng::seed_from_u64(seed);
    let clients: Vec<Client> = (0..4).map(|_| Client::open(&path)).collect();
    let views = clients.iter().map(|_| None).collect();
    let mut world = World { clients, views, rows: Rows::new(), seed, walks: 0, runs: 0 };
    // The first write fences the base; transactions that began before conflict with nothing then.
    world.clients[0].write(&[0, 0], b"0", Sync::Normal).unwrap();
    world.rows.insert(vec![0, 0], b"0".to_vec());
    for _ in 0..steps {
        let i = random.random_range(0..world.clients.len());
        if world.views[i].is_none() {
            world.begin(i, &mut random);
            continue;
        }
        match random.random_range(0..20) {
            0..10 => world.walk(i, &mut random),
            10..13 => world.write(i, &mut random),
            13 => world.delete_in_passing(i, &mut random),
            14 => world.savepoint(i),
            15 => {
                world.views[i] = None;
                world.clients[i].rollback();
            }
            16 if !world.is_right_taken() && random.random_bool(0.2) => {
                world.views[i] = None;
                world.clients[i].rollback();
                world.clients[i].merge();
            }
            _ => world.commit(i),
        }
    }
    world.walks
}

// holds GAP-1, GAP-2, GAP-5, GAP-7, WRITES-4
#[test]
fn walks_that_skip_gaps_find_what_walks_over_a_map_find() {
    let first = std::env::var("PLAIT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let walks: u64 = (first..first + 30).map(|seed| run(seed, 1500)).sum();
    assert!(walks > 1000, "{walks} walks");
}

#[test]
fn a_queue_is_walked_in_a_few_steps_however_many_were_taken() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let mut worker = Client::open(&path);
    let mut other = Client::open(&path);
    for n in 0..2000u32 {
        worker.write(&n.to_be_bytes(), b"job", Sync::Normal).unwrap();
    }
    worker.merge();
    for n in 0..2000u32 {
        worker.begin_immediate(1000).unwrap();
        assert_eq!(walk(&mut worker, None, true), Some(n.to_be_bytes().to_vec()));
        worker.conn().delete(TABLE, &n.to_be_bytes(), b"job").unwrap();
        worker.commit(Sync::Normal).unwrap();
        if n % 100 == 99 {
            other.snapshot(false);
            let steps = steps_over_tombstones(&mut other);
            other.conn().snapshot_end();
            assert!(steps < 40, "{steps} steps over {n} tombstones");
        }
    }
}

// holds GAP-7
#[test]
fn rows_that_a_walk_has_deleted_are_passed_in_a_few_steps_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = create(dir.path());
    let mut client = Client::open(&path);
    client.begin_immediate(1000).unwrap();
    client.conn().stay_concurrent();
    for n in 0..2000u32 {
        client.conn().delete_in_passing(TABLE, &n.to_be_bytes(), b"row", 1).unwrap();
    }
    let steps = steps_over_tombstones(&mut client);
    assert!(steps < 10, "{steps} steps over the rows that were deleted");
    // A row that is put between two rows of a run ends the run: it is not known on which side the
    // walk goes on.
    client.conn().delete_in_passing(TABLE, &[5, 0], b"row", 2).unwrap();
    client.put(&[5, 1], b"new");
    for n in 2..20u8 {
        client.conn().delete_in_passing(TABLE, &[5, n], b"row", 2).unwrap();
    }
    assert_eq!(walk(&mut client, Some(&[5, 0]), true), Some(vec![5, 1]));
    assert_eq!(walk(&mut client, None, false), Some(vec![5, 1]));
    client.rollback();
}

/// Returns the steps of a walk from the first entry to the first row.
fn steps_over_tombstones(client: &mut Client) -> u32 {
    let conn = client.conn.as_ref().unwrap();
    let mut iter = OverlayIter::new(TABLE);
    let mut entry = iter.seek(conn, Seek::First);
    let mut steps = 0;
    while entry.is_some_and(|e| e.tombstone) {
        steps += 1;
        if steps % SKIP_STEP == 0 {
            iter.skip(conn, true, steps == SKIP_STEP);
        }
        entry = iter.next(conn);
    }
    steps
}
