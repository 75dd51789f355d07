//! A log made up by a stranger, with the right salt and right checksums, beside a fenced database: an error or rows, and
//! nothing else.
//!
//! The random test starts from the entries in `tests/fuzz-corpus/entries`. Long form:
//! `PLAIT_FUZZ_ROUNDS=100000 cargo test --release -p plait-tests --test hostile_log`.

use plait_tests::actor::Actor;
use plait_tests::differential::dice::Dice;
use plait_tests::hostile;
use plait_tests::place::Place;
use plait_tests::sqlite::{CORRUPT, SqlError};
use plait_tests::subject::{Fixture, Subject, real_plait};
use plait_tests::value::Value;

/// Where the first frame of the first slot stands in the file (docs/format.md).
const SLOT: usize = 4096;
const STREAM: usize = 8192;

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().expect("four bytes"))
}

fn put_u32(b: &mut [u8], at: usize, v: u32) {
    b[at..at + 4].copy_from_slice(&v.to_le_bytes());
}

/// One write of a made-up transaction.
#[derive(Clone)]
struct Op {
    root: u32,
    is_tombstone: bool,
    key: Vec<u8>,
    rec: Vec<u8>,
}

fn put(root: u32, key: &[u8], rec: &[u8]) -> Vec<Op> {
    vec![Op { root, is_tombstone: false, key: key.to_vec(), rec: rec.to_vec() }]
}

fn delete(root: u32, key: &[u8], rec: &[u8]) -> Vec<Op> {
    vec![Op { root, is_tombstone: true, key: key.to_vec(), rec: rec.to_vec() }]
}

fn key_of(rowid: i64) -> [u8; 8] {
    ((rowid as u64) ^ (1 << 63)).to_be_bytes()
}

/// A fenced database whose processes are dead and whose shared memory is gone; its log has one frame.
struct Scene {
    fixture: Fixture,
    log: Vec<u8>,
    table: u32,
    index: u32,
}

impl Scene {
    fn new() -> Self {
        Self::with("")
    }

    /// With more in the schema.
    fn with(more: &str) -> Self {
        let schema =
            "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT); CREATE INDEX t_name ON t(name);
             INSERT INTO t VALUES(1, 'one');";
        let fixture = Fixture::new(Subject::plait(), &format!("{schema}{more}"));
        let mut actor =
            Actor::start(Place::Processes, "writer", &fixture.subject, &fixture.database());
        let mut root_of = |name: &str| {
            let sql = format!("SELECT rootpage FROM sqlite_schema WHERE name = '{name}'");
            u32::try_from(actor.integer(&sql)).expect("a page")
        };
        let (table, index) = (root_of("t"), root_of("t_name"));
        actor.ok("INSERT INTO t VALUES(2, 'two')");
        actor.kill();
        std::fs::remove_file(fixture.side_file("-plait-shm")).expect("as after a restart");
        let log = std::fs::read(fixture.side_file("-plait")).expect("the log");
        Self { fixture, log, table, index }
    }

    /// The log with another first frame in place of all that it had.
    fn log_with(&self, ops: &[Op]) -> Vec<u8> {
        let mut log = self.log.clone();
        let mut frame = log[STREAM..STREAM + 48].to_vec();
        for op in ops {
            for word in [op.root, op.key.len() as u32, op.rec.len() as u32] {
                frame.extend(word.to_le_bytes());
            }
            frame.extend([u8::from(op.is_tombstone), 0, 0, 0]);
            frame.extend(&op.key);
            frame.extend(&op.rec);
            frame.resize(frame.len().next_multiple_of(8), 0);
        }
        let len = frame.len() as u32 + 8;
        put_u32(&mut frame, 4, len);
        put_u32(&mut frame, 36, ops.len() as u32);
        frame.extend(len.to_le_bytes());
        let salt = u32_at(&log, 12).to_le_bytes();
        let crc = crc32c::crc32c_append(crc32c::crc32c(&salt), &frame);
        frame.extend(crc.to_le_bytes());
        log[STREAM..].fill(0);
        log[STREAM..STREAM + frame.len()].copy_from_slice(&frame);
        log
    }

    /// What opening the database beside this log gives: the names in the table, in the order of each of its b-trees.
    fn open_with(&self, log: &[u8]) -> Result<Vec<Value>, SqlError> {
        std::fs::write(self.fixture.side_file("-plait"), log).expect("the log is replaced");
        let connection = self.fixture.open();
        let by_row = connection.query("SELECT name FROM t NOT INDEXED ORDER BY id")?;
        connection.query("SELECT name FROM t INDEXED BY t_name ORDER BY name")?;
        Ok(by_row.into_iter().flatten().collect())
    }
}

// holds APPLY-2
#[test]
fn entries_that_fit_no_b_tree_are_refused_and_nothing_of_their_log_is_applied() {
    if real_plait("made-up logs").is_none() {
        return;
    }
    let scene = Scene::new();
    let (t, i) = (scene.table, scene.index);
    let row = [2, 0]; // one NULL
    let cases = [
        ("a short key", put(t, &[0x80, 0, 1], &row)),
        ("no key", delete(t, &[], &[])),
        ("a long key", put(t, &[0x80; 100], &row)),
        ("an index entry without a byte", put(i, b"k", &[])),
        ("a header beyond the record", put(i, b"k", &[200, 1, 0])),
        ("a field beyond the record", put(i, b"k", &[3, 0x8f, 0x7f, b'x'])),
        ("a number that does not end", delete(i, b"k", &[3, 0xff, 0xff])),
        ("the schema table", put(1, &key_of(1), &row)),
        ("page 0", put(0, &key_of(1), &row)),
        ("a page that is no root", put(t.max(i) + 1, &key_of(1), &row)),
        ("a page beyond the file", delete(u32::MAX, &key_of(1), &row)),
    ];
    for (what, hostile) in cases {
        // A good entry comes first: it must not stay.
        let mut ops = put(t, &key_of(5), &[2, 0]);
        ops.extend(hostile);
        let error = scene.open_with(&scene.log_with(&ops)).expect_err(what);
        assert_eq!(error.code, CORRUPT, "{what}: {error}");
    }
    let names = scene.open_with(&scene.log).expect("its own log");
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(scene.fixture.open().text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

#[test]
fn an_impossible_generation_is_refused() {
    if real_plait("made-up logs").is_none() {
        return;
    }
    let scene = Scene::new();
    let mut log = scene.log.clone();
    for at in [SLOT + 16, STREAM + 32] {
        put_u32(&mut log, at, u32::MAX);
    }
    let crc = crc32c::crc32c(&log[SLOT..SLOT + 60]);
    put_u32(&mut log, SLOT + 60, crc);
    let scene = Scene { log, ..scene };
    let log = scene.log_with(&put(scene.table, &key_of(5), &[2, 0]));
    let error = scene.open_with(&log).expect_err("it must be refused");
    assert_eq!(error.code, CORRUPT, "{error}");
}

#[test]
fn a_made_up_log_that_fits_is_replayed() {
    if real_plait("made-up logs").is_none() {
        return;
    }
    let scene = Scene::new();
    // A row without its index entry: what a stranger can do is what any database file can be.
    let log = scene.log_with(&put(scene.table, &key_of(5), &[3, 0, 19, b'o', b'w', b'n']));
    let names = scene.open_with(&log).expect("it is a log of this database");
    assert_eq!(names.len(), 2, "{names:?}");
}

/// B-trees of every kind: roots 2 to 5 with those of the scene itself.
const KINDS: &str =
    "CREATE TABLE w(a TEXT COLLATE NOCASE, b REAL, c BLOB, PRIMARY KEY(a, b)) WITHOUT ROWID;
    CREATE INDEX t_down ON t(name COLLATE RTRIM DESC, id);
    INSERT INTO w VALUES('a', 1.5, x'00ff'), ('B', 2, NULL)";
const ROOTS: u32 = 5;

/// The entries of a corpus file, as they stand in a frame (docs/format.md).
fn entries_of(bytes: &[u8]) -> Vec<Op> {
    let mut ops = Vec::new();
    let mut at = 0;
    while at + 16 <= bytes.len() {
        let (key_len, rec_len) = (u32_at(bytes, at + 4) as usize, u32_at(bytes, at + 8) as usize);
        let (key, end) = (at + 16 + key_len, at + 16 + key_len + rec_len);
        ops.push(Op {
            root: u32_at(bytes, at),
            is_tombstone: bytes[at + 12] == 1,
            key: bytes[at + 16..key].to_vec(),
            rec: bytes[key..end].to_vec(),
        });
        at = end.next_multiple_of(8);
    }
    ops
}

/// Changes entries: the bytes of keys and records, where types and lengths stand above all, and what they belong to.
fn mutate(ops: &mut Vec<Op>, dice: &mut Dice) {
    for _ in 0..=dice.roll(4) {
        let index = dice.roll(ops.len());
        let op = &mut ops[index];
        match dice.roll(8) {
            0 => op.root = 2 + dice.roll(ROOTS as usize) as u32,
            1 => op.is_tombstone = !op.is_tombstone,
            2 => hostile::change_bytes(&mut op.key, dice),
            3 => op.key = key_of(*dice.pick(&[0, -1, 5, i64::MIN, i64::MAX])).to_vec(),
            4 => {
                let copy = op.clone();
                ops.push(copy);
            }
            _ => hostile::change_bytes(&mut op.rec, dice),
        }
    }
}

#[test]
fn entries_changed_at_random_are_replayed_or_refused() {
    if real_plait("made-up logs").is_none() {
        return;
    }
    let scene = Scene::with(KINDS);
    let base = std::fs::read(scene.fixture.database()).expect("the database");
    let wal = std::fs::read(scene.fixture.side_file("-wal")).expect("its WAL");
    let corpus: Vec<Vec<Op>> =
        hostile::corpus("entries").iter().map(|bytes| entries_of(bytes)).collect();
    let rounds = hostile::rounds(60);
    let mut dice = Dice::new(1);
    let (mut replayed, mut refused) = (0, 0);
    for round in 0..rounds + corpus.len() {
        let mut ops = match corpus.get(round) {
            Some(ops) => ops.clone(),
            None => dice.pick(&corpus).clone(),
        };
        if round >= corpus.len() {
            mutate(&mut ops, &mut dice);
        }
        // In place: a log goes with the file of its salt.
        std::fs::write(scene.fixture.database(), &base).expect("the database");
        std::fs::write(scene.fixture.side_file("-wal"), &wal).expect("its WAL");
        match scene.open_with(&scene.log_with(&ops)) {
            Ok(_) => {
                replayed += 1;
                let connection = scene.fixture.open();
                // Rows without entries it may have, and rows that no table has; no b-tree that is out of order, and no page that is lost.
                let found = connection.query("PRAGMA quick_check").expect("it can be read");
                let found = format!("{found:?}");
                assert!(
                    !found.contains("Tree") && !found.contains("never used"),
                    "{round}: {found}"
                );
                if let Err(error) = connection.query("SELECT * FROM t, w") {
                    assert_eq!(error.code, CORRUPT, "{round}: {error}");
                }
            }
            Err(error) => {
                refused += 1;
                assert_eq!(error.code, CORRUPT, "{round}: {error}");
            }
        }
        let _ = std::fs::remove_file(scene.fixture.side_file("-shm"));
    }
    assert!(replayed > rounds / 10 && refused > rounds / 10, "{replayed} {refused} of {rounds}");
}
