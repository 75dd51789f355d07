//! Statements that run, begin or end inside of another one that is refused: it happens whole or not at all, whatever they leave behind.
//!
//! Holds WHOLE-1, WHOLE-2 and WHOLE-5 of `csrc/whole.c`. A collation of the application runs them. Savepoints that SQLite numbers do not end in the order
//! in which they were opened then.

use plait_tests::sqlite::{ABORT_ROLLBACK, BUSY, CONSTRAINT, Connection, Statement};
use plait_tests::subject::{Fixture, Subject, real_plait};
use plait_tests::value::Value;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TABLES: &str = "CREATE TABLE pad(x); CREATE TABLE other(x); CREATE TABLE t(a UNIQUE, b); CREATE TABLE u(x UNIQUE);
    CREATE VIRTUAL TABLE words USING fts5(word); INSERT INTO words VALUES('first')";
/// Calls the collation for each row.
const CALLS: &str = "('a'||value) < 'b' COLLATE called";
const MANY: &str = "INSERT INTO words VALUES('one two three four five six seven eight nine ten')";

/// What is done when the collation is called next.
type Next = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

struct Scene {
    fixture: Fixture,
    own: Connection,
    other: Connection,
    next: Next,
}

impl Scene {
    fn new(subject: &Subject) -> Self {
        let fixture = Fixture::new(subject.clone(), TABLES);
        let (own, other) = (fixture.open(), fixture.open());
        own.busy_timeout(Duration::ZERO).expect("a timeout");
        other.execute("SELECT count(*) FROM other").expect("a read");
        let next = Next::default();
        let slot = next.clone();
        let call = move || {
            let next = slot.lock().expect("one thread").take();
            if let Some(next) = next {
                next();
            }
        };
        own.create_called_collation(call).expect("a collation");
        Self { fixture, own, other, next }
    }

    fn then(&self, next: impl FnOnce() + Send + 'static) {
        *self.next.lock().expect("one thread") = Some(Box::new(next));
    }

    /// A transaction of which so many bytes are left until it has to become exclusive, and another connection has the right.
    fn nearly_full(&self, begin: &str, left: usize) {
        self.own.execute(begin).expect("a begin");
        let full = format!("INSERT INTO pad VALUES(zeroblob({}))", (7 << 20) - left);
        self.own.execute(&full).expect("a write");
        self.other.execute("BEGIN IMMEDIATE; INSERT INTO other VALUES(1)").expect("the right");
    }

    fn is_sound(&self) {
        for connection in [&self.own, &self.other] {
            assert_eq!(connection.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
        }
        let check = "INSERT INTO words(words) VALUES('integrity-check')";
        self.own.execute(check).expect("the index is sound");
    }

    /// Attaches another concurrent database as `x`; a connection to it.
    fn attach(&self, schema: &str) -> Connection {
        let path = self.fixture.path("x.db");
        let there = self.fixture.subject.open(&path).expect("it opens");
        there.execute(&format!("PRAGMA journal_mode=concurrent; {schema}")).expect("a file");
        self.own.execute(&format!("ATTACH '{}' AS x", path.display())).expect("attached");
        there
    }

    fn numbers(&self, sql: &str) -> Vec<Value> {
        self.other.query(sql).expect(sql).concat()
    }
}

fn begun(connection: &Connection, sql: &str) -> Statement {
    let mut statement = connection.prepare(sql).expect(sql);
    statement.step().expect(sql);
    statement
}

// holds WHOLE-1
#[test]
fn a_refused_statement_is_taken_back_though_one_that_began_before_has_ended_in_its_middle() {
    let Some(subject) = real_plait("statements inside of others") else { return };
    let (four, one) = (
        format!(
            "INSERT INTO t SELECT value, zeroblob(200000) FROM json_each('[1,2,3,4]') WHERE {CALLS}"
        ),
        "INSERT INTO t SELECT 1, zeroblob(300000) WHERE 'a' < 'b' COLLATE called",
    );
    for (sql, rows, left) in [(four.as_str(), 4, 500_000), (one, 1, 250_000)] {
        let scene = Scene::new(&subject);
        scene.nearly_full("BEGIN CONCURRENT", left);
        let half = begun(&scene.own, "INSERT INTO u VALUES(1), (2) RETURNING x");
        scene.then(move || drop(half));
        let refused = scene.own.execute(sql).expect_err("the right is taken");
        assert_eq!(refused.extended, BUSY, "{refused}");
        assert_eq!(scene.own.integer("SELECT count(*) FROM t"), Ok(0), "{sql}");
        assert_eq!(scene.own.integer("SELECT count(*) FROM u"), Ok(2), "{sql}");
        scene.other.execute("COMMIT").expect("a commit");
        scene.own.execute(sql).expect("it is repeated");
        scene.own.execute("COMMIT").expect("a commit");
        assert_eq!(scene.other.integer("SELECT count(*) FROM t"), Ok(rows), "{sql}");
        scene.is_sound();
    }
}

/// Savepoints of two statements that end in the order in which they began leave a number behind.
#[test]
fn a_refused_statement_takes_back_nothing_of_those_before_it() {
    let Some(subject) = real_plait("statements inside of others") else { return };
    let scene = Scene::new(&subject);
    scene.own.execute("BEGIN CONCURRENT").expect("a begin");
    let one = begun(&scene.own, "INSERT INTO u VALUES(1), (2) RETURNING x");
    let two = begun(&scene.own, "INSERT INTO u VALUES(3), (4) RETURNING x");
    drop(one);
    let three = begun(&scene.own, "INSERT INTO u VALUES(5), (6) RETURNING x");
    drop(three);
    drop(two);
    scene.own.execute("INSERT INTO u VALUES(7)").expect("a row");
    let full = format!("INSERT INTO pad VALUES(zeroblob({}))", (7 << 20) - 500_000);
    scene.own.execute(&full).expect("a write");
    scene.other.execute("BEGIN IMMEDIATE; INSERT INTO other VALUES(1)").expect("the right");
    let sql = "INSERT INTO t SELECT value, zeroblob(200000) FROM json_each('[1,2,3,4]')";
    assert_eq!(scene.own.execute(sql).expect_err("the right is taken").extended, BUSY);
    scene.other.execute("COMMIT").expect("a commit");
    scene.own.execute("COMMIT").expect("a commit");
    assert_eq!(
        scene.numbers("SELECT x FROM u ORDER BY x"),
        [1, 2, 3, 4, 5, 6, 7].map(Value::Integer)
    );
    assert_eq!(scene.numbers("SELECT count(*) FROM t"), [Value::Integer(0)]);
    scene.is_sound();
}

#[test]
fn a_statement_that_is_not_all_of_its_transaction_any_more_is_not_committed_in_part() {
    let Some(subject) = real_plait("statements inside of others") else { return };
    for inside in ["BEGIN", "half", "SELECT 1"] {
        let scene = Scene::new(&subject);
        let wal = scene.fixture.path("wal.db");
        let file = Subject::stock().open(&wal).expect("it opens");
        file.execute("PRAGMA journal_mode=wal; CREATE TABLE wf(x)").expect("a file");
        let setup = format!(
            "ATTACH '{}' AS w; CREATE TEMP TRIGGER g AFTER INSERT ON main.t WHEN new.a=3
             BEGIN INSERT INTO wf VALUES(3); END",
            wal.display()
        );
        scene.own.execute(&setup).expect("a trigger");
        let (within, kept) = (scene.own.clone(), Arc::new(Mutex::new(None)));
        let keep = kept.clone();
        scene.then(move || {
            if inside == "half" {
                *keep.lock().expect("one thread") =
                    Some(begun(&within, "INSERT INTO u VALUES(7), (8) RETURNING x"));
            } else {
                within.execute(inside).expect(inside);
            }
        });
        let sql = format!("INSERT INTO t SELECT value, 1 FROM json_each('[1,2,3]') WHERE {CALLS}");
        let refused = scene.own.execute(&sql).expect_err("a file that cannot take part");
        let is_whole = inside == "SELECT 1";
        assert_eq!(refused.extended == ABORT_ROLLBACK, !is_whole, "{inside}: {refused}");
        drop(kept);
        assert!(scene.own.autocommit(), "{inside}: rolled back");
        assert_eq!(scene.own.integer("SELECT count(*) FROM t"), Ok(0), "{inside}");
        assert_eq!(scene.other.integer("SELECT count(*) FROM t"), Ok(0), "{inside}");
        scene.is_sound();
    }
}

#[test]
fn a_full_text_index_that_cannot_be_written_before_a_statement_on_another_file_takes_the_transaction_back()
 {
    let Some(subject) = real_plait("statements inside of others") else { return };
    let mut codes = Vec::new();
    for left in [400, 600, 800, 1000] {
        let scene = Scene::new(&subject);
        scene.own.execute("CREATE TEMP TABLE tu(x UNIQUE)").expect("a table");
        scene.nearly_full("BEGIN CONCURRENT", left);
        if scene.own.execute(MANY).is_err() {
            continue;
        }
        let refused = scene.own.execute("INSERT INTO tu VALUES(1), (2)");
        codes.extend(refused.err().map(|error| error.extended));
        scene.other.execute("COMMIT").expect("a commit");
        if !scene.own.autocommit() {
            scene.own.execute("COMMIT").expect("a commit");
        }
        scene.is_sound();
    }
    assert!(codes.contains(&ABORT_ROLLBACK), "{codes:?}");
}

/// An R-Tree whose row could not be deleted goes on to write its node: with a statement that does not even begin, and that it resets. That one is inside of
/// the application's, although nothing of it runs when it ends.
#[test]
fn a_statement_that_is_reset_inside_of_another_one_ends_no_transaction() {
    let Some(subject) = real_plait("statements inside of others") else { return };
    let scene = Scene::new(&subject);
    scene.other.execute("CREATE VIRTUAL TABLE r USING rtree(id, a, b)").expect("a table");
    scene.other.execute("INSERT INTO r VALUES(1, 1, 2), (2, 8, 9)").expect("rows");
    let pages = scene.own.integer("PRAGMA page_count").expect("a figure");
    scene.own.execute(&format!("PRAGMA max_page_count={pages}")).expect("a setting");
    scene.own.execute("BEGIN CONCURRENT; INSERT INTO words SELECT 1 WHERE 0").expect("a begin");
    assert_eq!(scene.own.integer("SELECT count(*) FROM u"), Ok(0));
    scene.other.execute("INSERT INTO u VALUES(5)").expect("it is none that waits");
    for _ in 0..2 {
        let refused = scene.own.execute("DELETE FROM r WHERE a > 6").expect_err("a conflict");
        assert_eq!(refused.code, BUSY, "{refused}");
        assert!(!scene.own.autocommit(), "{refused}");
    }
    scene.own.execute("ROLLBACK").expect("the transaction is there");
    scene.own.execute("DELETE FROM r WHERE a > 6").expect("it is repeated");
    assert_eq!(scene.other.integer("SELECT count(*) FROM r"), Ok(1));
    scene.is_sound();
}

// holds WHOLE-2
#[test]
fn what_was_torn_before_a_statement_is_not_made_good_by_its_own_failure() {
    let Some(subject) = real_plait("statements inside of others") else { return };
    let mut codes = Vec::new();
    for left in [200, 300, 400, 600, 800] {
        let scene = Scene::new(&subject);
        scene.nearly_full("BEGIN CONCURRENT", left);
        let within = scene.own.clone();
        let refused = Arc::new(Mutex::new(None));
        let told = refused.clone();
        scene.then(move || *told.lock().expect("one thread") = within.execute(MANY).err());
        scene.own.query("SELECT 'a' < 'b' COLLATE called").expect("it swallows the error");
        let twice = scene.own.execute("INSERT INTO u VALUES(1), (1)");
        codes.push(twice.expect_err("a row twice, or worse").extended);
        scene.other.execute("COMMIT").expect("a commit");
        if !scene.own.autocommit() {
            codes.extend(scene.own.execute("COMMIT").err().map(|error| error.extended));
        }
        assert!(scene.own.autocommit(), "{left}: {refused:?}");
        scene.is_sound();
    }
    assert!(codes.contains(&ABORT_ROLLBACK), "{codes:?}");
}

// holds WHOLE-5
#[test]
fn a_refusal_that_a_function_has_swallowed_is_none_of_the_statement_that_called_it() {
    let Some(subject) = real_plait("statements inside of others") else { return };
    let scene = Scene::new(&subject);
    let log = scene.fixture.path("log.db");
    let writer = subject.open(&log).expect("it opens");
    writer.execute("PRAGMA journal_mode=concurrent; CREATE TABLE log(x)").expect("a file");
    scene.own.execute(&format!("ATTACH '{}' AS l", log.display())).expect("attached");
    scene.own.execute("BEGIN; INSERT INTO words VALUES('second')").expect("a write");
    writer.execute("BEGIN IMMEDIATE; INSERT INTO log VALUES(1)").expect("the right");
    let within = scene.own.clone();
    scene.then(move || {
        let refused = within.execute("INSERT INTO log VALUES(2)").expect_err("the right is taken");
        assert_eq!(refused.code, BUSY, "{refused}");
    });
    let twice = "INSERT INTO words(rowid, word) VALUES(1, 'a' < 'b' COLLATE called)";
    let refused = scene.own.execute(twice).expect_err("a row twice");
    assert_eq!(refused.code, CONSTRAINT, "{refused}");
    writer.execute("COMMIT").expect("a commit");
    scene.own.execute("COMMIT").expect("the transaction is there");
    let found = scene.other.integer("SELECT count(*) FROM words WHERE words MATCH 'second'");
    assert_eq!(found, Ok(1));
    scene.is_sound();
}

#[test]
fn what_was_torn_stays_so_when_another_file_is_closed() {
    let Some(subject) = real_plait("statements inside of others") else { return };
    for close in ["DETACH x", "ATTACH ':memory:' AS y; DETACH y"] {
        let mut codes = Vec::new();
        for left in [200, 300, 400, 600, 800] {
            let scene = Scene::new(&subject);
            let _there = scene.attach("CREATE TABLE y(a)");
            scene.nearly_full("BEGIN CONCURRENT", left);
            let within = scene.own.clone();
            scene.then(move || drop(within.execute(MANY)));
            scene.own.query("SELECT 'a' < 'b' COLLATE called").expect("it swallows the error");
            scene.own.execute(close).expect(close);
            scene.other.execute("COMMIT").expect("a commit");
            codes.extend(scene.own.execute("COMMIT").err().map(|error| error.extended));
            assert!(scene.own.autocommit(), "{close}: {left}");
            scene.is_sound();
        }
        assert!(codes.contains(&ABORT_ROLLBACK), "{close}: {codes:?}");
    }
}

#[test]
fn a_full_text_index_goes_back_to_no_journal_that_has_ended_out_of_order() {
    let Some(subject) = real_plait("statements inside of others") else { return };
    for is_crossed in [false, true] {
        let scene = Scene::new(&subject);
        scene.nearly_full("BEGIN CONCURRENT", 600_000);
        let half = begun(&scene.own, "INSERT INTO u VALUES(1), (2) RETURNING x");
        if is_crossed {
            scene.then(move || drop(half));
        } else {
            drop(half);
        }
        let sql = format!(
            "INSERT INTO words SELECT 'w'||value||' '||hex(zeroblob(150000)) FROM json_each('[1,2,3,4]') WHERE {CALLS}"
        );
        let refused = scene.own.execute(&sql).expect_err("the right is taken");
        assert!([BUSY, ABORT_ROLLBACK].contains(&refused.extended), "{refused}");
        scene.other.execute("COMMIT").expect("a commit");
        if !scene.own.autocommit() {
            scene.own.execute("COMMIT").expect("a commit");
        }
        scene.is_sound();
        let found = scene.other.integer("SELECT count(*) FROM words WHERE words MATCH 'w1 OR w2'");
        assert_eq!(found, Ok(0), "crossed: {is_crossed}");
    }
}

#[test]
fn a_begin_that_waits_for_its_second_file_takes_nothing_back_of_others() {
    let Some(subject) = real_plait("statements inside of others") else { return };
    let scene = Scene::new(&subject);
    let there = scene.attach("CREATE TABLE y(a)");
    there.execute("BEGIN IMMEDIATE").expect("the right");
    scene.own.execute("INSERT INTO u VALUES(100)").expect("a row");
    let _reader = begun(&scene.own, "SELECT x FROM u");
    let mut begin = scene.own.prepare("BEGIN IMMEDIATE").expect("a statement");
    assert_eq!(begin.step().expect_err("the right is taken").code, BUSY);
    let rows = begun(&scene.own, "INSERT INTO u VALUES(1), (2) RETURNING x");
    begin.reset();
    drop(rows);
    drop(begin);
    assert_eq!(scene.own.integer("SELECT count(*) FROM u"), Ok(3));
    drop(_reader);
    there.execute("COMMIT").expect("a commit");
    assert_eq!(scene.other.integer("SELECT count(*) FROM u"), Ok(3));
}

#[test]
fn a_deferred_constraint_of_another_file_is_not_forgotten_with_a_refused_statement() {
    let Some(subject) = real_plait("statements inside of others") else { return };
    let scene = Scene::new(&subject);
    let there = scene.attach(
        "CREATE TABLE p(id INTEGER PRIMARY KEY); CREATE TABLE c(up REFERENCES p DEFERRABLE INITIALLY DEFERRED)",
    );
    scene.own.execute("PRAGMA foreign_keys=1").expect("a setting");
    scene.nearly_full("BEGIN CONCURRENT", 250_000);
    let within = scene.own.clone();
    scene.then(move || within.execute("INSERT INTO c VALUES(7)").expect("an orphan for now"));
    let one = "INSERT INTO t VALUES('a' < 'b' COLLATE called, zeroblob(300000))";
    let refused = scene.own.execute(one).expect_err("the right is taken");
    assert!([BUSY, ABORT_ROLLBACK].contains(&refused.extended), "{refused}");
    scene.other.execute("COMMIT").expect("a commit");
    if !scene.own.autocommit() {
        let refused = scene.own.execute("COMMIT").expect_err("an orphan");
        assert_eq!(refused.code, CONSTRAINT, "{refused}");
        scene.own.execute("ROLLBACK").expect("it ends");
    }
    let orphans = there.query("PRAGMA foreign_key_check").expect("a check");
    assert_eq!(orphans, Vec::<Vec<Value>>::new());
}

#[test]
fn journals_out_of_order_in_one_transaction_are_forgotten_in_the_next() {
    let Some(subject) = real_plait("statements inside of others") else { return };
    let scene = Scene::new(&subject);
    scene.own.execute("CREATE TEMP TABLE tu(x UNIQUE); CREATE TEMP TABLE seen(x)").expect("tables");
    let trigger =
        "CREATE TEMP TRIGGER g AFTER INSERT ON main.t BEGIN INSERT INTO seen VALUES(new.a); END";
    scene.own.execute(trigger).expect("a trigger");
    scene.own.execute("BEGIN").expect("a begin");
    let one = begun(&scene.own, "INSERT INTO tu VALUES(1), (2) RETURNING x");
    let two = begun(&scene.own, "INSERT INTO tu VALUES(3), (4) RETURNING x");
    drop(one);
    drop(two);
    let twice = scene.own.execute("INSERT OR ROLLBACK INTO tu VALUES(5), (5)");
    assert_eq!(twice.expect_err("a row twice").code, CONSTRAINT);
    scene.nearly_full("BEGIN CONCURRENT", 500_000);
    let sql = "INSERT INTO t SELECT value, zeroblob(200000) FROM json_each('[1,2,3,4]')";
    let refused = scene.own.execute(sql).expect_err("the right is taken");
    assert_eq!(refused.extended, BUSY, "{refused}");
    assert_eq!(scene.own.integer("SELECT count(*) FROM seen"), Ok(0), "and the trigger's rows");
    scene.other.execute("COMMIT").expect("a commit");
    scene.own.execute(sql).expect("it is repeated");
    scene.own.execute("COMMIT").expect("a commit");
    assert_eq!(scene.numbers("SELECT count(*) FROM t"), [Value::Integer(4)]);
    scene.is_sound();
}
