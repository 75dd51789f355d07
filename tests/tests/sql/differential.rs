//! Random SQL on stock SQLite and on the library under test gives the same results.
//!
//! Long form: `PLAIT_TORTURE_SECONDS=600 cargo test -p plait-tests --test differential`, or
//! `cargo run -p plait-tests --bin torture -- differential --seconds 600 --seed 1`.

use plait_tests::differential::shrink::{Bench, scratch, search};
use plait_tests::planted::must_be_reported;
use plait_tests::subject::{Begin, Fixture, Subject, real_plait};
use plait_tests::torture::{seed_or, time_or};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn run_seeds(plait: &Subject, first: u64, length: usize) {
    let scratch = scratch();
    let stock = Subject::stock();
    let bench = Bench { stock: &stock, plait, scratch: scratch.path() };
    let tally = search(&bench, seed_or(first), length, time_or(Duration::from_secs(12)));
    assert!(tally.scripts > 0);
}

#[test]
fn short_random_scripts_give_the_same_results_as_stock() {
    run_seeds(&Subject::plait(), 1, 60);
}

// holds TXN-1
#[test]
fn long_random_scripts_give_the_same_results_as_stock() {
    run_seeds(&Subject::plait(), 1_000_000, 400);
}

#[test]
fn random_scripts_in_wal_mode_give_the_same_results_as_stock() {
    run_seeds(&Subject::plait_in_wal_mode(), 2_000_000, 200);
}

/// What an authorizer is asked about, of every kind.
const AUTHORIZED: &[&str] = &[
    "SELECT a, b FROM t WHERE id BETWEEN 1 AND 3",
    "SELECT count(*), max(b) FROM t JOIN u ON u.x=t.id",
    "SELECT * FROM v WHERE a > 1",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<3) SELECT abs(i) FROM n",
    "INSERT INTO t(a, b) VALUES(7, 'seven')",
    "INSERT OR REPLACE INTO t(id, a, b) VALUES(1, 7, 'eight') RETURNING id",
    "INSERT INTO t(id, a, b) VALUES(1, 2, 'x') ON CONFLICT(id) DO UPDATE SET b=excluded.b",
    "UPDATE t SET b='changed' WHERE a=2",
    "UPDATE u SET x=x+100",
    "UPDATE v SET a=a WHERE a=2",
    "DELETE FROM t WHERE id=2",
    "DELETE FROM u",
    "INSERT INTO u SELECT id, b FROM t",
    "SAVEPOINT s",
    "INSERT INTO counted(v) VALUES(1)",
    "ROLLBACK TO s",
    "RELEASE s",
    "CREATE TABLE w(a PRIMARY KEY, b REFERENCES t(id)) WITHOUT ROWID",
    "INSERT INTO w VALUES(1, 1)",
    "CREATE INDEX wb ON w(b)",
    "ALTER TABLE w ADD COLUMN c DEFAULT 5",
    "ALTER TABLE w RENAME COLUMN c TO d",
    "CREATE TRIGGER wt AFTER INSERT ON w BEGIN DELETE FROM u WHERE x=new.a; END",
    "INSERT INTO w(a, b) VALUES(2, 1)",
    "CREATE TEMP TABLE tt AS SELECT * FROM w",
    "CREATE TEMP TRIGGER tr AFTER DELETE ON w BEGIN INSERT INTO tt(a) VALUES(old.a); END",
    "DELETE FROM w WHERE a=2",
    "CREATE VIEW vw AS SELECT d FROM w",
    "ANALYZE w",
    "REINDEX w",
    "PRAGMA table_info(w)",
    "PRAGMA user_version=7",
    "PRAGMA foreign_keys",
    "DROP VIEW vw",
    "DROP TABLE w",
    "VACUUM",
];

/// So many of them leave the schema as it is.
const ROWS_ALONE: usize = 17;

/// Runs all of that with an authorizer that answers with a code to its call of this number for each statement, and gives what it was
/// asked and what each statement came to.
fn asked(
    subject: &Subject,
    is_alone: bool,
    begin: Option<Begin>,
    answer: (usize, i32),
) -> Vec<String> {
    let schema = "CREATE TABLE t(id INTEGER PRIMARY KEY, a, b); CREATE INDEX ta ON t(a);
        CREATE TABLE u(x, y); CREATE TABLE counted(id INTEGER PRIMARY KEY AUTOINCREMENT, v);
        CREATE VIEW v AS SELECT a, b FROM t;
        CREATE TRIGGER vi INSTEAD OF UPDATE ON v BEGIN UPDATE t SET b=new.b WHERE a=old.a; END;
        CREATE TRIGGER td AFTER DELETE ON t BEGIN INSERT INTO u VALUES(old.id, 'gone'); END;
        INSERT INTO t VALUES(1, 1, 'one'), (2, 2, 'two'), (3, 3, 'three')";
    let fixture = Fixture::new(subject.clone(), schema);
    let connection = fixture.open();
    let beside = (!is_alone).then(|| {
        let beside = fixture.open();
        beside.execute("UPDATE t SET b='beside' WHERE id=3").expect("it writes");
        beside
    });
    let said = Arc::new(Mutex::new(Vec::new()));
    let calls = Arc::new(AtomicUsize::new(0));
    let (sink, counter) = (said.clone(), calls.clone());
    connection
        .authorizer(move |action, words| {
            // VACUUM names its database at random.
            let words = words.map(|word| match word {
                Some(word) if word.starts_with("vacuum_") => Some("vacuum".to_owned()),
                word => word,
            });
            sink.lock().expect("one thread").push(format!("{action} {words:?}"));
            let number = counter.fetch_add(1, Ordering::Relaxed);
            if number == answer.0 { answer.1 } else { 0 }
        })
        .expect("an authorizer");
    // Denied a part of a change of the schema, stock SQLite itself may crash; told to ignore a part of a query, too.
    let statements = if answer.1 == 0 { AUTHORIZED } else { &AUTHORIZED[..ROWS_ALONE] };
    for &sql in statements {
        for sql in begin.iter().map(|begin| subject.begin(*begin)).chain([sql]) {
            calls.store(0, Ordering::Relaxed);
            let outcome = connection.query(sql).map_err(|error| (error.extended, error.message));
            // How a transaction begins has a name of its own.
            let name = if sql.starts_with("BEGIN") { "BEGIN" } else { sql };
            said.lock().expect("one thread").push(format!("{name}: {outcome:?}"));
        }
        if !connection.autocommit() && begin.is_some() {
            calls.store(0, Ordering::Relaxed);
            let outcome = connection.execute("COMMIT").map_err(|error| error.extended);
            said.lock().expect("one thread").push(format!("COMMIT: {outcome:?}"));
        }
    }
    drop(beside);
    said.lock().expect("one thread").clone()
}

#[test]
fn an_authorizer_is_asked_the_same_as_by_stock_and_its_answers_do_the_same() {
    let Some(plait) = real_plait("an authorizer") else { return };
    const DENY: i32 = 1;
    let never = (usize::MAX, 0);
    let answers = [never, (0, DENY), (1, DENY), (2, DENY), (4, DENY)];
    for answer in answers {
        for begin in [None, Some(Begin::Immediate), Some(Begin::Concurrent)] {
            for is_alone in [true, false] {
                let stock = asked(&Subject::stock(), is_alone, begin, answer);
                let got = asked(&plait, is_alone, begin, answer);
                let first = stock.iter().zip(&got).find(|(stock, got)| stock != got);
                assert_eq!(first, None, "{answer:?} {begin:?} {is_alone}");
                assert_eq!(stock.len(), got.len(), "{answer:?} {begin:?} {is_alone}");
            }
        }
    }
}

#[test]
fn a_library_that_shows_deleted_rows_is_caught() {
    must_be_reported(
        "deletes.unseen",
        "short_random_scripts_give_the_same_results_as_stock",
        &["\nplait: "],
    );
}
