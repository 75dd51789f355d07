//! Transactions of several connections, a statement of the one and a statement of the other: those that committed, carried out again one
//! after the other on stock SQLite, answer the same and leave the same tables.
//!
//! One thread does it all, so the order of the commits is known. Every transaction changes a row, so that it stands where it
//! committed; what only reads would stand where it began.
//!
//! Long form: `PLAIT_TORTURE_SECONDS=600 cargo test -p plait-tests --test replayed`.

use plait_tests::differential::dice::Dice;
use plait_tests::differential::run::contents;
use plait_tests::sqlite::Connection;
use plait_tests::subject::{Begin, Fixture, Subject, real_plait};
use plait_tests::torture::{seed_or, time_or};
use plait_tests::value::Value;
use std::time::{Duration, Instant};

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, a UNIQUE, b); CREATE INDEX tb ON t(b);
    CREATE TABLE u(id INTEGER PRIMARY KEY, tid REFERENCES t(id) ON DELETE CASCADE, n);
    CREATE INDEX un ON u(n); CREATE INDEX ut ON u(tid);
    CREATE TABLE w(k TEXT PRIMARY KEY, v) WITHOUT ROWID;
    CREATE TABLE mark(id INTEGER PRIMARY KEY, n);
    CREATE TRIGGER tw AFTER UPDATE OF b ON t BEGIN
      INSERT OR REPLACE INTO w VALUES('t'||new.b, (SELECT count(*) FROM t WHERE b=old.b)); END;
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+2 FROM n WHERE i<29) INSERT INTO t SELECT i, i*3, i%5 FROM n;
    INSERT INTO u SELECT id*10, id, b FROM t WHERE b<3;";

/// Rows, or a code.
type Answer = Result<Vec<Vec<Value>>, i32>;
/// The statements of a transaction and what they answered.
type Transaction = Vec<(String, Answer)>;

fn statement(dice: &mut Dice) -> String {
    let (id, other) = (1 + dice.roll(30), 1 + dice.roll(30));
    let (low, high) = (id.min(other), id.max(other));
    let (small, few) = (dice.roll(6), low + dice.roll(4));
    match dice.roll(16) {
        0 => format!("INSERT OR IGNORE INTO t VALUES({id}, {}, {small}) RETURNING id", other * 3),
        1 => format!("INSERT OR REPLACE INTO t VALUES({id}, {}, {small})", other * 3),
        2 => format!(
            "INSERT INTO t VALUES({id}, {}, {small}) ON CONFLICT(a) DO UPDATE SET b=b+1 RETURNING *",
            other * 3
        ),
        3 => format!(
            "UPDATE t SET b=(SELECT count(*) FROM u WHERE n={small}) WHERE id BETWEEN {low} AND {few}"
        ),
        4 => format!("UPDATE OR IGNORE t SET a=a+3 WHERE b={small}"),
        5 => format!("DELETE FROM t WHERE id={id} RETURNING a, b"),
        6 => format!("DELETE FROM t WHERE b={small} AND id > {high}"),
        7 => format!(
            "INSERT OR IGNORE INTO u SELECT id*10+{small}, id, b FROM t WHERE a BETWEEN {low} AND {high}"
        ),
        8 => format!("INSERT INTO u VALUES({}, {other}, {small})", id * 10 + small),
        9 => format!(
            "UPDATE u SET n=(SELECT max(b) FROM t WHERE t.id=u.tid) WHERE tid={id} RETURNING n"
        ),
        10 => format!(
            "DELETE FROM u WHERE n={small} AND id > (SELECT avg(id) FROM u WHERE n={small})"
        ),
        11 => format!(
            "INSERT OR REPLACE INTO w SELECT 's'||b, sum(a) FROM t WHERE id < {few} GROUP BY b"
        ),
        12 => format!("SELECT count(*), sum(b) FROM t WHERE a BETWEEN {low} AND {high}"),
        13 => format!("SELECT k, v FROM w WHERE k >= 's{small}' ORDER BY k LIMIT 2"),
        14 => format!("SELECT EXISTS(SELECT 1 FROM u JOIN t ON t.id=u.tid WHERE n={small})"),
        _ => format!(
            "SELECT t.id, u.id FROM t LEFT JOIN u ON u.tid=t.id WHERE t.id={id} ORDER BY u.id"
        ),
    }
}

fn answer(connection: &Connection, sql: &str) -> Answer {
    connection.query(sql).map_err(|error| error.extended)
}

/// One connection and the transaction that it is in.
struct Worker {
    connection: Connection,
    open: Option<Transaction>,
}

impl Worker {
    fn give_up(&mut self) {
        self.open = None;
        if !self.connection.autocommit() {
            self.connection.execute("ROLLBACK").expect("it rolls back");
        }
    }

    /// Carries a statement out; false if the transaction could not go on.
    fn perform(&mut self, sql: String) -> bool {
        let outcome = self.connection.query(&sql);
        if outcome.as_ref().is_err_and(|error| error.is_busy()) {
            self.give_up();
            return false;
        }
        let outcome = outcome.map_err(|error| error.extended);
        self.open.as_mut().expect("one is open").push((sql, outcome));
        true
    }
}

/// What came of a run: the transactions in the order of their commits, how many were refused, and the tables.
struct History {
    committed: Vec<Transaction>,
    refused: usize,
    tables: Vec<Vec<Value>>,
}

/// `pretend`: every statement stands alone, and counts as a part of a transaction all the same.
fn run(subject: &Subject, seed: u64, steps: usize, pretend: bool) -> History {
    let mut dice = Dice::new(seed);
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let mut workers: Vec<Worker> = (0..4)
        .map(|_| {
            let connection = fixture.open();
            connection.busy_timeout(Duration::ZERO).expect("no waiting");
            connection.execute("PRAGMA foreign_keys=ON; PRAGMA synchronous=OFF").expect("settings");
            Worker { connection, open: None }
        })
        .collect();
    let mut history = History { committed: Vec::new(), refused: 0, tables: Vec::new() };
    for step in 0..steps {
        let number = dice.roll(4);
        let worker = &mut workers[number];
        if worker.open.is_none() {
            worker.open = Some(Vec::new());
            let begin = if dice.roll(4) == 0 { Begin::Deferred } else { Begin::Concurrent };
            if !pretend {
                worker.connection.execute(subject.begin(begin)).expect("it begins");
            }
            continue;
        }
        if dice.roll(40) == 0 {
            // A merge, or nothing while somebody is in the way.
            let _ = fixture.open().query("PRAGMA wal_checkpoint");
        }
        match dice.roll(24) {
            0 => worker.give_up(),
            1..=5 => {
                let mark = format!("INSERT OR REPLACE INTO mark VALUES({number}, {step})");
                if !worker.perform(mark) {
                    history.refused += 1;
                } else if pretend || worker.connection.execute("COMMIT").is_ok() {
                    history.committed.extend(worker.open.take());
                } else {
                    history.refused += 1;
                    worker.give_up();
                }
            }
            _ => history.refused += usize::from(!worker.perform(statement(&mut dice))),
        }
    }
    for worker in &mut workers {
        worker.give_up();
    }
    contents(&workers[0].connection, &mut history.tables).expect("the tables can be read");
    history
}

/// Carries the transactions out again, one after the other.
fn replay(history: &History) -> Result<(), String> {
    let fixture = Fixture::new(Subject::stock(), SCHEMA);
    let connection = fixture.open();
    connection.execute("PRAGMA foreign_keys=ON; PRAGMA synchronous=OFF").expect("settings");
    for (number, transaction) in history.committed.iter().enumerate() {
        connection.execute("BEGIN").expect("it begins");
        for (sql, expected) in transaction {
            let got = answer(&connection, sql);
            if got != *expected {
                return Err(format!(
                    "transaction {number}: {sql}\n  answered {expected:?}\n  one after the other {got:?}\n{transaction:#?}"
                ));
            }
        }
        connection.execute("COMMIT").expect("it commits");
    }
    let mut tables = Vec::new();
    contents(&connection, &mut tables).expect("the tables can be read");
    let differs = tables.iter().zip(&history.tables).find(|(stock, plait)| stock != plait);
    if differs.is_some() || tables.len() != history.tables.len() {
        return Err(format!("the tables differ: {differs:?}"));
    }
    Ok(())
}

#[test]
fn committed_transactions_answer_and_leave_what_they_would_one_after_the_other() {
    let Some(subject) = real_plait("concurrent transactions") else { return };
    let end = Instant::now() + time_or(Duration::from_secs(8));
    let (mut committed, mut refused) = (0, 0);
    let mut seed = seed_or(1);
    while Instant::now() < end || committed == 0 {
        let history = run(&subject, seed, 600, false);
        replay(&history).unwrap_or_else(|report| panic!("seed {seed}: {report}"));
        committed += history.committed.len();
        refused += history.refused;
        seed += 1;
    }
    assert!(refused > 0, "none of {committed} met another");
}

#[test]
fn statements_that_stand_alone_are_not_taken_for_transactions() {
    let caught = (1..20).any(|seed| replay(&run(&Subject::stock(), seed, 600, true)).is_err());
    assert!(caught);
}
