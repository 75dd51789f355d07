//! `PRAGMA max_page_count` in concurrent mode: the statement that would make the file larger fails, as in stock SQLite, and nothing that was
//! acknowledged is lost.

use plait_tests::differential::dice::Dice;
use plait_tests::sqlite::{Connection, FULL, SqlError};
use plait_tests::subject::{Begin, Fixture, Subject, real_plait};
use plait_tests::value::Value;
use std::path::Path;

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, data BLOB); CREATE INDEX t_size ON t(length(data), id);
    CREATE TABLE w(k TEXT PRIMARY KEY, v) WITHOUT ROWID;
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<20) INSERT INTO t SELECT i, zeroblob(i*70) FROM n;
    INSERT INTO w SELECT 'key '||id, data FROM t;";

type Answer = Result<Vec<Vec<Value>>, (i32, String)>;

fn answer(connection: &Connection, sql: &str) -> Answer {
    connection.query(sql).map_err(|SqlError { extended, message, .. }| (extended, message))
}

/// The same file for both, so that pages lie alike.
fn pair(dice: &mut Dice) -> [Fixture; 2] {
    let (stock, plait) = (Fixture::empty(Subject::stock()), Fixture::empty(Subject::plait()));
    let maker = stock.open();
    let page_size = *dice.pick(&[512, 1024, 4096]);
    let auto_vacuum = *dice.pick(&[0, 0, 1, 2]);
    maker
        .execute(&format!(
            "PRAGMA page_size={page_size}; PRAGMA auto_vacuum={auto_vacuum}; {SCHEMA}"
        ))
        .expect("the schema");
    maker.close().expect("it closes");
    std::fs::copy(stock.database(), plait.database()).expect("a copy");
    [stock, plait]
}

fn statement(dice: &mut Dice, pages: i64) -> String {
    let id = dice.between(1, 60);
    let bytes = *dice.pick(&[0, 10, 60, 300, 900, 1500, 4000, 9000, 30_000]);
    let name = *dice.pick(&["a", "b", "c", "d"]);
    match dice.roll(22) {
        0..=3 => format!("INSERT OR IGNORE INTO t VALUES({id}, zeroblob({bytes}))"),
        4..=6 => format!("INSERT OR REPLACE INTO w VALUES('key {id}', zeroblob({bytes}))"),
        7 => format!(
            "WITH RECURSIVE n(i) AS (SELECT {id} UNION ALL SELECT i+1 FROM n WHERE i<{id}+20)
             INSERT OR IGNORE INTO t SELECT i, zeroblob({bytes}/4) FROM n"
        ),
        8 | 9 => format!("UPDATE t SET data = zeroblob({bytes}) WHERE id % 7 = {id} % 7"),
        10 => format!("DELETE FROM t WHERE id % 5 = {id} % 5"),
        11 => (*dice.pick(&["DELETE FROM t", "DELETE FROM w", "DELETE FROM w WHERE k < 'key 3'"]))
            .to_owned(),
        12 | 13 => format!("PRAGMA max_page_count = {}", pages + dice.between(-5, 30)),
        14 => (*dice.pick(&["PRAGMA max_page_count", "PRAGMA page_count"])).to_owned(),
        15 | 16 => "COMMIT".to_owned(),
        17 => (*dice.pick(&["ROLLBACK", "ROLLBACK TO s", "RELEASE s"])).to_owned(),
        18 => "SAVEPOINT s".to_owned(),
        19 => format!("CREATE TABLE x{name}(a); INSERT INTO x{name} VALUES(zeroblob({bytes}))"),
        20 => (*dice.pick(&["VACUUM", "PRAGMA incremental_vacuum(3)", "DROP TABLE IF EXISTS xa"]))
            .to_owned(),
        _ => "SELECT count(*), sum(length(data)) FROM t".to_owned(),
    }
}

fn contents(path: &Path) -> Vec<Vec<Value>> {
    let connection = Subject::stock().open(path).expect("a plain file");
    connection.query("PRAGMA integrity_check; SELECT * FROM t; SELECT * FROM w; SELECT name FROM sqlite_schema").expect("rows")
}

#[test]
fn statements_near_the_limit_succeed_and_fail_as_in_stock() {
    let (mut refused, mut done) = (0, 0);
    for seed in 0..12 {
        let mut dice = Dice::new(seed);
        let [stock, plait] = pair(&mut dice);
        let connections = [&stock, &plait].map(|fixture| {
            let connection = fixture.open();
            fixture.subject.convert(&connection).expect("the mode");
            connection
        });
        let [left, right] = &connections;
        let mut pages = left.integer("PRAGMA page_count").expect("a count");
        for step in 0..70 {
            let both = match dice.roll(9) {
                // The limit comes first: what is committed beside SQLite's own path lies elsewhere when it is merged.
                _ if step == 0 => {
                    [9, 9].map(|more| format!("PRAGMA max_page_count = {}", pages + more))
                }
                0 => {
                    let begin = *dice.pick(&Begin::ALL);
                    [&stock, &plait].map(|fixture| fixture.subject.begin(begin).to_owned())
                }
                _ => {
                    let sql = statement(&mut dice, pages);
                    [sql.clone(), sql]
                }
            };
            let [expected, got] = [answer(left, &both[0]), answer(right, &both[1])];
            assert_eq!(got, expected, "seed {seed}, step {step}: {}", both[1]);
            assert_eq!(
                right.autocommit(),
                left.autocommit(),
                "seed {seed}, step {step}: {}",
                both[1]
            );
            match &expected {
                Err((code, _)) if code & 0xff == FULL => refused += 1,
                Err(_) => {}
                Ok(_) => done += 1,
            }
            if left.autocommit() {
                pages = left.integer("PRAGMA page_count").expect("a count");
            }
        }
        drop(connections);
        assert_eq!(contents(&plait.database()), contents(&stock.database()), "seed {seed}");
    }
    assert!(refused > 30 && done > 300, "{refused} statements were refused, {done} were not");
}

#[test]
fn transactions_beside_each_other_stay_within_the_limit_together() {
    let Some(subject) = real_plait("max_page_count") else { return };
    for begin in [None, Some(Begin::Immediate), Some(Begin::Concurrent)] {
        let fixture = Fixture::new(subject.clone(), SCHEMA);
        let connections = [fixture.open(), fixture.open(), fixture.open()];
        for connection in &connections {
            assert_eq!(connection.integer("PRAGMA max_page_count=600"), Ok(600));
        }
        let mut acknowledged = 20;
        let mut dice = Dice::new(7);
        let refused = (0..5000).any(|round| {
            let connection = &connections[round % 3];
            let bytes = dice.between(10, 6000);
            let insert = format!("INSERT INTO t(data) VALUES(zeroblob({bytes}))");
            let sql = match begin {
                Some(begin) => format!("{}; {insert}; COMMIT", fixture.subject.begin(begin)),
                None => insert,
            };
            match connection.execute(&sql) {
                Ok(()) => acknowledged += 1,
                Err(error) => {
                    assert_eq!(error.code, FULL, "{begin:?}: {error}");
                    assert_eq!(error.message, "database or disk is full");
                    if !connection.autocommit() {
                        connection.execute("ROLLBACK").expect("a rollback");
                    }
                    return true;
                }
            }
            false
        });
        assert!(refused, "{begin:?}: the limit does not hold");
        let connection = &connections[0];
        let pages = connection.integer("PRAGMA page_count").expect("a count");
        assert!((550..=600).contains(&pages), "{begin:?}: {pages} pages");
        assert_eq!(connection.integer("SELECT count(*) FROM t"), Ok(acknowledged), "{begin:?}");
        assert_eq!(connection.text("PRAGMA integrity_check").as_deref(), Ok("ok"), "{begin:?}");
        assert_eq!(
            connection.integer("PRAGMA max_page_count=10"),
            Ok(pages),
            "never less than there are"
        );
        connection.execute("PRAGMA max_page_count=700").expect("a larger limit");
        connection
            .execute("INSERT INTO t(data) VALUES(zeroblob(30000))")
            .expect("there is room again");
    }
}

#[test]
fn what_others_have_committed_and_nobody_merged_counts_when_the_limit_is_set() {
    let Some(subject) = real_plait("max_page_count") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let (one, two) = (fixture.open(), fixture.open());
    for _ in 0..50 {
        two.execute("INSERT INTO t(data) VALUES(zeroblob(9000))").expect("a row");
    }
    let limit = one.integer("PRAGMA max_page_count=1").expect("the limit");
    assert!(limit > 100, "{limit}");
    assert_eq!(one.integer("PRAGMA page_count"), Ok(limit));
    let refused = one.execute("INSERT INTO t(data) VALUES(zeroblob(50000))").expect_err("too much");
    assert_eq!(refused.code, FULL, "{refused}");
    two.execute("INSERT INTO t(data) VALUES(zeroblob(50000))")
        .expect("it is a limit of the connection");
    assert_eq!(two.integer("SELECT count(*) FROM t"), Ok(71));
}

#[test]
fn far_from_the_limit_transactions_run_beside_each_other() {
    let Some(subject) = real_plait("max_page_count") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let (one, two) = (fixture.open(), fixture.open());
    for connection in [&one, &two] {
        connection.execute("PRAGMA max_page_count=100000; BEGIN CONCURRENT").expect("it begins");
    }
    one.execute("INSERT INTO t VALUES(1000, zeroblob(100)); DELETE FROM w WHERE k='key 1'")
        .expect("writes");
    two.execute("INSERT INTO t VALUES(2000, zeroblob(100)); DELETE FROM w WHERE k='key 2'")
        .expect("writes");
    one.execute("COMMIT").expect("a commit");
    two.execute("COMMIT").expect("a commit beside it");
}
