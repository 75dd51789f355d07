//! `count(*)` is what a walk over the rows counts, whatever has changed since the last one.

use plait_tests::sqlite::Connection;
use plait_tests::subject::{Fixture, real_plait};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const TABLES: &str = "
    CREATE TABLE t(id INTEGER PRIMARY KEY, val INTEGER);
    CREATE TABLE w(k TEXT PRIMARY KEY, n) WITHOUT ROWID;
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<60) INSERT INTO t SELECT i, i FROM n;
    INSERT INTO w SELECT 'k'||id, -id FROM t WHERE id<30;
    PRAGMA wal_checkpoint";

/// Counted by SQLite's opcode for it, and row by row.
const COUNTS: [&str; 2] = [
    "SELECT (SELECT count(*) FROM t) - (SELECT count(+id) FROM t)",
    "SELECT (SELECT count(*) FROM w) - (SELECT count(+n) FROM w)",
];

fn assert_counts_are_right(connection: &Connection, after: &str) {
    for sql in COUNTS {
        let difference = connection.integer(sql).expect("rows can be counted");
        assert_eq!(difference, 0, "{sql} after {after}");
    }
}

fn write(random: &mut StdRng) -> String {
    let id = random.random_range(1..100);
    match random.random_range(0..7) {
        0 => format!("INSERT OR IGNORE INTO t VALUES({id}, 1)"),
        1 => format!("REPLACE INTO w VALUES('k{id}', 2)"),
        2 => format!("DELETE FROM t WHERE id BETWEEN {id} AND {id}+5"),
        3 => format!("DELETE FROM w WHERE k='k{id}'"),
        4 => format!("UPDATE OR REPLACE t SET id=id+1 WHERE id={id}"),
        5 => "INSERT INTO t(val) VALUES(3), (4)".to_owned(),
        _ => format!("REPLACE INTO t VALUES({id}, 5)"),
    }
}

/// Something that may change what a connection sees, or the place where it sees it.
fn step(random: &mut StdRng) -> String {
    match random.random_range(0..20) {
        0..8 => write(random),
        8 => "BEGIN".to_owned(),
        9 | 10 => "BEGIN CONCURRENT".to_owned(),
        11 => "SAVEPOINT s".to_owned(),
        12 => "ROLLBACK TO s".to_owned(),
        13 => "RELEASE s".to_owned(),
        14 | 15 => "COMMIT".to_owned(),
        16 => "ROLLBACK".to_owned(),
        17 => "PRAGMA wal_checkpoint".to_owned(),
        18 => {
            "CREATE TABLE made(x); INSERT INTO made SELECT val FROM t; DROP TABLE made".to_owned()
        }
        _ => "DELETE FROM w WHERE n>0; INSERT INTO w SELECT 'n'||id, 1 FROM t WHERE id%7=0"
            .to_owned(),
    }
}

#[test]
fn a_count_is_right_whatever_has_changed_since_the_last_one() {
    let Some(subject) = real_plait("counts") else { return };
    for seed in 0..6 {
        let mut random = StdRng::seed_from_u64(seed);
        let fixture = Fixture::new(subject.clone(), TABLES);
        let connections: Vec<Connection> = (0..3).map(|_| fixture.open()).collect();
        for connection in &connections {
            connection.execute("PRAGMA busy_timeout=1").expect("a pragma");
        }
        for _ in 0..250 {
            let i = random.random_range(0..connections.len());
            let sql = step(&mut random);
            if connections[i].execute(&sql).is_err() && random.random_bool(0.3) {
                // Out of place, in conflict, or in somebody's way.
                let _ = connections[i].execute("ROLLBACK");
            }
            for connection in &connections {
                assert_counts_are_right(connection, &format!("{sql} of {i} (seed {seed})"));
            }
        }
    }
}

#[test]
fn a_count_is_right_after_stock_programs_have_written_the_file_at_rest() {
    let Some(subject) = real_plait("counts") else { return };
    let fixture = Fixture::new(subject, TABLES);
    let stock = plait_tests::subject::Subject::stock();
    for round in 0..3 {
        let first = fixture.open();
        let second = fixture.open();
        second.execute(&format!("INSERT INTO t(val) VALUES({round})")).expect("an insert");
        first.execute("DELETE FROM t WHERE id%10=3; INSERT INTO t(val) VALUES(1)").expect("writes");
        assert_counts_are_right(&first, "writes of two");
        drop((first, second));
        let outside = stock.open(&fixture.database()).expect("a file at rest");
        outside.execute("DELETE FROM t WHERE id%4=1").expect("stock SQLite writes it");
    }
}
