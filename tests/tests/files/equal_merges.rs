//! A merge is a function of the base and the generations that it brings in: two sessions that make the same commits and
//! merge them at the same places have equal bases, byte for byte but for the salt. It does not matter how many processes
//! commit, how large their caches are, how they sync, or how long they pause.
//!
//! What runs on SQLite's own path (changes of the schema, VACUUM) is part of it: both sides run it at the same place.
//! SQLite clears what it frees (`secure_delete`, on in this library). An application that switches that off leaves bytes of its
//! changes of the schema in unused parts of pages, which depend on its cache: equal rows, other bytes. Merges run on
//! a connection of the library's own, which clears always.
//!
//! Deliberately absent: a load that is large and alone, which may go straight to the base (txn/bulk.rs), so that there
//! is no generation to merge. Here a connection begins a transaction before each step, and nobody is alone.

use plait_tests::actor::Actor;
use plait_tests::differential::dice::Dice;
use plait_tests::differential::schema::Schema;
use plait_tests::differential::statements::{change, rows_at_once, schema_change};
use plait_tests::place::Place;
use plait_tests::sqlite::Connection;
use plait_tests::subject::{Subject, real_plait};
use plait_tests::torture::{seed_or, time_or};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of page 1 that may differ: the mark of the session.
const SALT: std::ops::Range<usize> = 72..76;
/// Below what may go straight to the base.
const ROWS_AT_ONCE: i64 = 60;
const LENGTH: usize = 120;

/// A step that both sides do.
#[derive(Debug)]
enum Step {
    Sql(String),
    /// Everything that is committed goes into the base.
    Merge,
}

struct Program {
    birth: String,
    steps: Vec<Step>,
}

fn program(seed: u64) -> Program {
    let mut dice = Dice::new(seed);
    let mut schema = Schema::default();
    let page_size = *dice.pick(&[512, 1024, 4096, 4096, 8192, 65536]);
    let encoding = *dice.pick(&["UTF-8", "UTF-8", "UTF-16le"]);
    let auto_vacuum = *dice.pick(&[0, 0, 1, 2]);
    let birth = format!(
        "PRAGMA encoding='{encoding}'; PRAGMA page_size={page_size}; PRAGMA auto_vacuum={auto_vacuum}"
    );
    let mut made = Vec::new();
    for _ in 0..3 {
        made.extend(schema.create_table(&mut dice, ""));
    }
    made.extend(schema.create_full_text(&mut dice));
    made.extend(schema.create_rtree(&mut dice));
    let mut steps: Vec<Step> = made.into_iter().map(Step::Sql).collect();
    for _ in 0..LENGTH {
        match dice.roll(30) {
            0 => steps.extend(schema_change(&mut dice, &mut schema).into_iter().map(Step::Sql)),
            1 => steps.push(Step::Sql("VACUUM".to_owned())),
            2..5 => steps.push(Step::Merge),
            5..10 => steps.push(Step::Sql(rows_at_once(
                &mut dice,
                &schema,
                ROWS_AT_ONCE,
                "hex(zeroblob(i % 300)) || i",
            ))),
            10..15 => {
                let (one, other) = (change(&mut dice, &schema), change(&mut dice, &schema));
                let begin = *dice.pick(&["BEGIN CONCURRENT", "BEGIN IMMEDIATE", "BEGIN"]);
                steps.extend([begin.into(), one, other, "COMMIT".into()].map(Step::Sql));
            }
            _ => steps.push(Step::Sql(change(&mut dice, &schema))),
        }
    }
    Program { birth, steps }
}

fn create(subject: &Subject, database: &Path, program: &Program) -> Connection {
    let connection = subject.library().open(database).expect("a new file");
    connection.execute(&program.birth).expect("an empty file takes it");
    let mode = connection.text("PRAGMA journal_mode=concurrent").expect("the mode");
    assert_eq!(mode, "concurrent");
    connection.execute("PRAGMA plait_background_merge=off").expect("a pragma");
    connection
}

/// True if the statement begins a transaction that goes on in the next step.
fn opens(sql: &str) -> bool {
    sql.starts_with("BEGIN")
}

/// What keeps the others from being alone.
const BESIDE: &str = "BEGIN; SELECT 1 FROM sqlite_schema; COMMIT";

/// One process does all of it: large caches, no pauses. The error codes of the steps.
fn alone(subject: &Subject, database: &Path, program: &Program) -> Vec<i32> {
    let keeper = create(subject, database, program);
    let connection = subject.open(database).expect("it opens");
    connection.execute("PRAGMA synchronous=NORMAL; PRAGMA cache_size=5000").expect("pragmas");
    let done = |sql: &str| {
        keeper.execute(BESIDE).expect("it reads");
        connection.execute(sql).err().map_or(0, |error| error.code)
    };
    let codes = program.steps.iter().map(|step| match step {
        Step::Sql(sql) => done(sql),
        Step::Merge => done("PRAGMA wal_checkpoint"),
    });
    let codes = codes.collect();
    connection.close().expect("it closes");
    keeper.close().expect("it closes");
    codes
}

/// Three processes take turns, with caches of a few pages, syncs and pauses.
fn together(subject: &Subject, database: &Path, program: &Program, seed: u64) -> Vec<i32> {
    let keeper = create(subject, database, program);
    let mut dice = Dice::new(!seed);
    let mut actors: Vec<Actor> = (0..3)
        .map(|i| Actor::start(Place::Processes, &format!("process {i}"), subject, database))
        .collect();
    for (actor, sync) in actors.iter_mut().zip(["FULL", "NORMAL", "OFF"]) {
        actor.ok(&format!("PRAGMA synchronous={sync}; PRAGMA cache_size=8"));
    }
    let (mut turn, mut is_inside) = (0, false);
    let mut codes = Vec::new();
    for step in &program.steps {
        if !is_inside {
            turn = dice.roll(actors.len());
            if dice.one_in(10) {
                std::thread::sleep(Duration::from_millis(dice.roll(4) as u64));
            }
        }
        let sql = match step {
            Step::Sql(sql) => sql,
            Step::Merge => "PRAGMA wal_checkpoint",
        };
        keeper.execute(BESIDE).expect("it reads");
        codes.push(actors[turn].run(sql).error.map_or(0, |error| error.code));
        is_inside = (is_inside || opens(sql)) && sql != "COMMIT";
    }
    actors.iter_mut().for_each(|actor| actor.close().expect("it closes"));
    drop(actors);
    keeper.close().expect("it closes");
    codes
}

fn file(path: &Path) -> Vec<u8> {
    let mut bytes = std::fs::read(path).expect("a file at rest");
    bytes[SALT].fill(0);
    bytes
}

/// Runs the program of a seed on both sides, the second with these of its steps.
fn files(subject: &Subject, seed: u64, keeps: impl Fn(&Step) -> bool) -> [Vec<u8>; 2] {
    let dir = tempfile::tempdir().expect("a folder");
    let whole = program(seed);
    let paths = ["alone.db", "together.db"].map(|name| dir.path().join(name));
    let expected = alone(subject, &paths[0], &whole);
    let expected = whole.steps.iter().zip(expected).filter(|(step, _)| keeps(step));
    let expected: Vec<i32> = expected.map(|(_, code)| code).collect();
    let part = Program { steps: whole.steps.into_iter().filter(&keeps).collect(), ..whole };
    let codes = together(subject, &paths[1], &part, seed);
    for (i, step) in part.steps.iter().enumerate() {
        assert_eq!(codes[i], expected[i], "seed {seed}, step {i}: {step:?}");
    }
    paths.map(|path| {
        let stock = Subject::stock().open(&path).expect("a file at rest");
        assert_eq!(stock.text("PRAGMA integrity_check").as_deref(), Ok("ok"), "seed {seed}");
        stock.close().expect("it closes");
        file(&path)
    })
}

/// Says where two files differ, if they do.
fn difference(one: &[u8], other: &[u8]) -> Option<String> {
    let page_bytes = match u16::from_be_bytes([one[16], one[17]]) {
        1 => 65536,
        bytes => usize::from(bytes),
    };
    let at: Vec<usize> = (0..one.len().min(other.len())).filter(|&i| one[i] != other[i]).collect();
    let pages: BTreeSet<usize> = at.iter().map(|i| i / page_bytes + 1).collect();
    let (lens, count, first) = ([one.len(), other.len()], at.len(), at.first());
    (one != other).then(|| {
        format!("{lens:?} bytes long; {count} differ, the first at {first:?}, in pages {pages:?}")
    })
}

#[test]
fn equal_commits_and_merges_make_equal_files() {
    let Some(subject) = real_plait("equal merges") else { return };
    let (first, until) = (seed_or(1), Instant::now() + time_or(Duration::from_secs(12)));
    let mut seed = first;
    while seed < first + 3 || Instant::now() < until {
        let [one, other] = files(&subject, seed, |_| true);
        assert_eq!(difference(&one, &other), None, "seed {seed}");
        seed += 1;
    }
}

#[test]
fn merges_at_other_places_are_caught() {
    let Some(subject) = real_plait("other merges") else { return };
    let [one, other] = files(&subject, 1, |step| !matches!(step, Step::Merge));
    let difference = difference(&one, &other).expect("they have merged at other places");
    assert!(difference.contains("differ"), "{difference}");
}
