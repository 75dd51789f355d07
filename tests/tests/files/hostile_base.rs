//! A database file made up by a stranger: its first page says that it is in concurrent mode, and anything else beside. It is
//! opened as stock SQLite would open it, or refused, and never ends the program or holds it up.
//!
//! The inputs are changes of the first hundred bytes, pairs of an offset and a value, in `tests/fuzz-corpus/base`. Long form:
//! `PLAIT_FUZZ_ROUNDS=100000 cargo test --release -p plait-tests --test hostile_base`.

use plait_tests::actor::Actor;
use plait_tests::differential::dice::Dice;
use plait_tests::hostile;
use plait_tests::place::Place;
use plait_tests::sqlite::{BUSY, CANTOPEN, CORRUPT, SqlError};
use plait_tests::subject::{Fixture, Subject, real_plait};
use plait_tests::value::Value;
use std::time::{Duration, Instant};

const ROWS: &str = "SELECT id, name FROM t";
/// Bytes that concurrent mode has a meaning for: versions, salt, generation (docs/format.md).
const OURS: [usize; 10] = [18, 19, 72, 73, 74, 75, 76, 77, 78, 79];
const HEADER_BYTES: usize = 100;
/// Far more than any of these files takes.
const PROMPT: Duration = Duration::from_secs(30);

type Change = Vec<(usize, u8)>;

/// A database at rest, or one that needs its log, as files.
struct Scene {
    fixture: Fixture,
    base: Vec<u8>,
    log: Option<Vec<u8>>,
}

impl Scene {
    fn new(needs_log: bool) -> Self {
        let schema =
            "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT); CREATE INDEX t_name ON t(name);
             INSERT INTO t VALUES(1, 'one'), (2, 'two'); PRAGMA user_version=7";
        let fixture = Fixture::new(Subject::plait(), schema);
        if needs_log {
            let (subject, database) = (&fixture.subject, fixture.database());
            let mut actor = Actor::start(Place::Processes, "writer", subject, &database);
            actor.ok("INSERT INTO t VALUES(3, 'three')");
            actor.kill();
        }
        let read = |path| std::fs::read(path).expect("it can be read");
        let base = read(fixture.database());
        let log = needs_log.then(|| read(fixture.side_file("-plait")));
        Self { fixture, base, log }
    }

    fn put(&self, change: &Change) {
        let mut base = self.base.clone();
        for &(at, value) in change {
            base[at] = value;
        }
        for suffix in ["-wal", "-shm", "-plait", "-plait-shm", "-journal"] {
            let _ = std::fs::remove_file(self.fixture.side_file(suffix));
        }
        std::fs::write(self.fixture.database(), base).expect("the database can be written");
        if let Some(log) = &self.log {
            std::fs::write(self.fixture.side_file("-plait"), log).expect("the log can be written");
        }
    }

    fn rows(&self, subject: &Subject) -> Result<Vec<Vec<Value>>, SqlError> {
        subject.open(&self.fixture.database())?.query(ROWS)
    }

    /// Everything that a program may do to such a file.
    fn use_it(&self, what: &str) {
        let begun = Instant::now();
        let connection = self.fixture.open();
        for sql in [
            "PRAGMA synchronous=off",
            ROWS,
            "PRAGMA integrity_check",
            "SELECT name FROM t WHERE name > 'a' ORDER BY name DESC",
            "BEGIN CONCURRENT; INSERT INTO t(name) VALUES('new'); COMMIT",
            "UPDATE t SET name = 'other' WHERE id = 1",
            "CREATE TABLE made(a)",
            "PRAGMA journal_mode=delete",
            "PRAGMA journal_mode=concurrent",
        ] {
            let Err(error) = connection.query(sql) else { continue };
            assert!(!error.message.contains("panicked"), "{what}: {sql}: {error}");
            assert_ne!(error.code, BUSY, "{what}: {sql}: nobody else is there: {error}");
            let _ = connection.execute("ROLLBACK");
        }
        let _ = connection.close();
        assert!(begun.elapsed() < PROMPT, "{what}: {:?}", begun.elapsed());
    }
}

fn corpus() -> Vec<Change> {
    let pairs = |bytes: Vec<u8>| bytes.chunks_exact(2).map(|p| (usize::from(p[0]), p[1])).collect();
    hostile::corpus("base").into_iter().map(pairs).collect()
}

fn random(dice: &mut Dice) -> Change {
    const ODD: [u8; 7] = [0, 1, 2, 3, 4, 0x7f, 0xff];
    let mut change = Vec::new();
    for _ in 0..=dice.roll(3) {
        let at = if dice.one_in(2) { *dice.pick(&OURS) } else { dice.roll(HEADER_BYTES) };
        let value = if dice.one_in(2) { *dice.pick(&ODD) } else { dice.roll(256) as u8 };
        change.push((at, value));
    }
    change
}

#[test]
fn a_first_page_changed_at_random_is_opened_or_refused() {
    if real_plait("made-up databases").is_none() {
        return;
    }
    let scenes = [Scene::new(false), Scene::new(true)];
    let corpus = corpus();
    let rounds = hostile::rounds(15);
    let mut dice = Dice::new(3);
    let mut opened = 0;
    for round in 0..corpus.len() + rounds {
        let change = corpus.get(round).cloned().unwrap_or_else(|| random(&mut dice));
        for (scene, kind) in scenes.iter().zip(["at rest", "with a log"]) {
            let what = format!("{kind}, {change:?}");
            if scene.log.is_none() && change.iter().all(|(at, _)| !OURS.contains(at)) {
                scene.put(&change);
                let stock = scene.rows(&Subject::stock()).map_err(|error| error.code);
                scene.put(&change);
                let ours = scene.rows(&scene.fixture.subject).map_err(|error| error.code);
                assert_eq!(ours, stock, "{what}");
                opened += usize::from(ours.is_ok());
            }
            scene.put(&change);
            scene.use_it(&what);
        }
    }
    assert!(opened > 0, "not one is opened");
}

#[test]
fn what_a_first_page_says_of_the_mode_and_cannot_be_is_refused_by_name() {
    if real_plait("made-up databases").is_none() {
        return;
    }
    let scene = Scene::new(false);
    let refused = |change: &[(usize, u8)], code: i32, why: &str| {
        scene.put(&change.to_vec());
        let error = scene.rows(&scene.fixture.subject).expect_err(why);
        assert!(error.code == code && error.message.contains(why), "{error}");
    };
    refused(&[(76, 0xff)], CORRUPT, "generation");
    refused(&[(76, 0x80), (77, 0), (78, 0), (79, 0)], CORRUPT, "generation");
    refused(&[(18, 3), (19, 3)], CANTOPEN, "-plait is missing");
    // The largest that can be.
    scene.put(&vec![(76, 0x7f), (77, 0xff), (78, 0xff), (79, 0xfe)]);
    assert_eq!(scene.rows(&scene.fixture.subject).map(|rows| rows.len()), Ok(2));
    // Without the salt it is a plain file in WAL mode.
    scene.put(&vec![(72, 0), (73, 0), (74, 0), (75, 0)]);
    let connection = scene.fixture.open();
    assert_eq!(connection.text("PRAGMA journal_mode").as_deref(), Ok("wal"));
    assert_eq!(connection.query(ROWS).map(|rows| rows.len()), Ok(2));
}

#[test]
fn a_database_file_that_was_cut_short_is_refused_and_its_log_is_kept() {
    if real_plait("made-up databases").is_none() {
        return;
    }
    let whole = Scene::new(true);
    for pages in 1..3 {
        let mut scene = Scene::new(true);
        scene.base = whole.base[..pages * 4096].to_vec();
        scene.log.clone_from(&whole.log);
        scene.put(&Vec::new());
        for _ in 0..2 {
            let error = scene.rows(&scene.fixture.subject).expect_err("pages are missing");
            assert_eq!(error.code, CORRUPT, "{pages} pages: {error}");
        }
        let read = |path| std::fs::read(path).ok();
        assert_eq!(read(scene.fixture.database()), Some(scene.base), "{pages} pages");
        assert_eq!(read(scene.fixture.side_file("-plait")), scene.log, "{pages} pages");
    }
}
