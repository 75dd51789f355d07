//! Queues in tables: where many rows were deleted and are not merged yet, everybody finds those that are there.

use plait_tests::actor::Actor;
use plait_tests::in_threads_and_processes;
use plait_tests::job::{Job, Running, Work};
use plait_tests::jobs::queue::{FIRST, Taker, Took, schema, verify};
use plait_tests::place::Place;
use plait_tests::planted::must_be_reported;
use plait_tests::sqlite::Connection;
use plait_tests::subject::{Begin, Fixture, Subject, Synchronous, real_plait};
use plait_tests::value::Value;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

fn start(fixture: &Fixture, place: Place, taker: Taker) -> Running {
    let (subject, database) = (fixture.subject.clone(), fixture.database());
    Job { subject, database, work: Work::Taker(taker) }.start(place)
}

/// Several workers empty a queue, each in its way.
fn empty(place: Place, begin: Option<Begin>, synchronous: Synchronous, moody: bool) {
    const JOBS: i64 = 240;
    let fixture = Fixture::new(Subject::plait(), &schema(JOBS));
    let old = fixture.open();
    old.execute("BEGIN").expect("it begins");
    let before = old.query(FIRST).expect("it reads");
    let workers = (0..4).map(|seed| Taker { seed, begin, synchronous, moody });
    let workers: Vec<Running> = workers.map(|taker| start(&fixture, place, taker)).collect();
    let mut reported = Vec::new();
    for worker in workers {
        let (lines, _) = worker.wait::<Took>(PATIENCE).expect("it ends");
        reported.extend(lines.iter().map(|took| took.job));
    }
    assert_eq!(old.query(FIRST).expect("it reads"), before, "a snapshot does not move");
    assert_eq!(old.integer("SELECT count(*) FROM job").expect("it reads"), JOBS);
    old.execute("COMMIT").expect("it ends");
    let what = format!("{place:?} {begin:?} {synchronous:?}");
    verify(&old, JOBS, &reported).unwrap_or_else(|error| panic!("{what}: {error:#}"));
    if !moody {
        assert_eq!(reported.len() as i64, JOBS, "{what}");
    }
}

in_threads_and_processes! {
    fn every_job_is_taken_once_and_none_is_lost(place) {
        for (begin, synchronous) in [
            (Some(Begin::Immediate), Synchronous::Normal),
            (Some(Begin::Immediate), Synchronous::Full),
            (Some(Begin::Deferred), Synchronous::Normal),
            (Some(Begin::Concurrent), Synchronous::Full),
            (Some(Begin::Concurrent), Synchronous::Normal),
            (None, Synchronous::Full),
        ] {
            empty(place, begin, synchronous, false);
        }
    }

    fn no_job_is_lost_where_some_are_put_back_and_others_come_in_between(place) {
        for (begin, synchronous) in [
            (Some(Begin::Immediate), Synchronous::Normal),
            (Some(Begin::Concurrent), Synchronous::Normal),
            (None, Synchronous::Full),
        ] {
            empty(place, begin, synchronous, true);
        }
    }

    // holds GAP-2
    fn a_job_that_comes_before_inside_or_behind_deleted_ones_is_found_by_all(place) {
        let fixture = Fixture::new(Subject::plait(), &schema(300));
        let actor = |name: &str| Actor::start(place, name, &fixture.subject, &fixture.database());
        let (mut worker, mut other, mut producer) = (actor("worker"), actor("other"), actor("producer"));
        let first = |actor: &mut Actor| actor.ok(FIRST).first().map(|row| row[0].clone());
        let (mut at_first, mut between) = (actor("at first"), actor("between"));
        at_first.ok("BEGIN");
        assert_eq!(first(&mut at_first), Some(Value::Integer(1)));
        for job in 1..=200 {
            worker.ok("BEGIN IMMEDIATE");
            assert_eq!(first(&mut worker), Some(Value::Integer(job)));
            worker.ok(&format!("DELETE FROM job WHERE id={job}; COMMIT"));
        }
        between.ok("BEGIN");
        assert_eq!(first(&mut between), Some(Value::Integer(201)));
        // Places among those that are gone, one of them that of a job that was there.
        for (id, due) in [(1001, 150), (1002, 100), (1003, 0), (77, 77), (1004, -5)] {
            producer.ok(&format!(
                "DELETE FROM taken WHERE job={id}; INSERT INTO job VALUES({id}, 'new', {due})"
            ));
            for actor in [&mut worker, &mut other, &mut producer] {
                let found = actor.ok("SELECT id FROM job WHERE state='new' ORDER BY due LIMIT 1");
                let expected = match id {
                    77 => 1003,
                    id => id,
                };
                assert_eq!(found, [[Value::Integer(expected)]], "due {due}");
            }
            other.ok("BEGIN CONCURRENT");
            let all = other.ok("SELECT due FROM job WHERE state='new' AND due<=200 ORDER BY due DESC LIMIT 1");
            assert_eq!(all, [[Value::Integer(150)]]);
            other.ok("COMMIT");
        }
        assert_eq!(first(&mut at_first), Some(Value::Integer(1)));
        assert_eq!(first(&mut between), Some(Value::Integer(201)));
        producer.ok("DELETE FROM job WHERE due<200");
        assert_eq!(first(&mut other), Some(Value::Integer(201)));
        assert_eq!(first(&mut between), Some(Value::Integer(201)));
        between.ok("COMMIT");
        at_first.ok("COMMIT");
    }

    // holds GAP-5
    fn rows_that_a_transaction_deletes_and_puts_back_are_seen_in_it_as_they_are(place) {
        let fixture = Fixture::new(Subject::plait(), &schema(200));
        let mut worker = Actor::start(place, "worker", &fixture.subject, &fixture.database());
        let mut reader = Actor::start(place, "reader", &fixture.subject, &fixture.database());
        reader.ok("BEGIN; SELECT count(*) FROM job");
        worker.ok("BEGIN IMMEDIATE");
        for job in 1..=100 {
            assert_eq!(worker.integer(FIRST), job);
            worker.ok(&format!("DELETE FROM job WHERE id={job}"));
        }
        worker.ok("SAVEPOINT s");
        worker.ok("DELETE FROM job WHERE id BETWEEN 101 AND 150");
        assert_eq!(worker.integer(FIRST), 151);
        worker.ok("INSERT INTO job VALUES(40, 'new', 40)");
        assert_eq!(worker.integer(FIRST), 40);
        worker.ok("ROLLBACK TO s");
        assert_eq!(worker.integer(FIRST), 101);
        worker.ok("DELETE FROM job WHERE id=101; ROLLBACK");
        assert_eq!(worker.integer(FIRST), 1);
        reader.ok("COMMIT");
    }
}

/// B-trees of every kind, each with the order in which its first and last rows are looked for.
const TREES: &str = "
    CREATE TABLE plain(id INTEGER PRIMARY KEY, v);
    CREATE TABLE word(k TEXT PRIMARY KEY, v) WITHOUT ROWID;
    CREATE TABLE long(id INTEGER PRIMARY KEY, k TEXT);
    CREATE INDEX long_k ON long(k);
    CREATE TABLE mixed(id INTEGER PRIMARY KEY, a TEXT COLLATE NOCASE, b, UNIQUE(a, b));
    CREATE INDEX mixed_down ON mixed(b DESC, a);
";

const QUESTIONS: [&str; 12] = [
    "SELECT min(id), max(id), count(*) FROM plain",
    "SELECT id FROM plain WHERE id>20 LIMIT 2",
    "SELECT id FROM plain WHERE id<130 ORDER BY id DESC LIMIT 2",
    "SELECT k FROM word ORDER BY k LIMIT 1",
    "SELECT k FROM word WHERE k<'k9' ORDER BY k DESC LIMIT 1",
    "SELECT id FROM long INDEXED BY long_k WHERE k>'' ORDER BY k LIMIT 1",
    "SELECT id FROM long INDEXED BY long_k WHERE k>'' ORDER BY k DESC LIMIT 1",
    "SELECT id FROM mixed WHERE a='ROW' ORDER BY b LIMIT 1",
    "SELECT id FROM mixed WHERE a='row' AND b=60",
    "SELECT max(b), min(b) FROM mixed",
    "SELECT id FROM mixed INDEXED BY mixed_down WHERE b<100 ORDER BY b DESC LIMIT 3",
    "SELECT count(*) FROM mixed WHERE a='row' AND b BETWEEN 20 AND 90",
];

fn insert(i: i64) -> String {
    format!(
        "INSERT OR IGNORE INTO plain VALUES({i}, {i});
         INSERT OR IGNORE INTO word VALUES(printf('k%03d', {i}), {i});
         INSERT OR IGNORE INTO long VALUES({i}, printf('%.120c%03d', 'x', {i}));
         INSERT OR IGNORE INTO mixed VALUES({i}, iif({i}%2, 'row', 'Row'), {i})"
    )
}

fn delete(i: i64) -> String {
    format!(
        "DELETE FROM plain WHERE id={i}; DELETE FROM word WHERE k=printf('k%03d', {i});
         DELETE FROM long WHERE id={i}; DELETE FROM mixed WHERE id={i}"
    )
}

/// The answers after each of a row of changes, every third of them inside its transaction as well.
fn answers(subject: Subject) -> Vec<Vec<Vec<Vec<Value>>>> {
    let fixture = Fixture::new(subject, TREES);
    let (writer, reader) = (fixture.open(), fixture.open());
    let ask = |connection: &Connection| -> Vec<Vec<Vec<Value>>> {
        QUESTIONS.map(|sql| connection.query(sql).expect(sql)).to_vec()
    };
    writer.execute("BEGIN").expect("it begins");
    (1..=150).for_each(|i| writer.execute(&insert(i)).expect("it inserts"));
    writer.execute("COMMIT").expect("it commits");
    // From both ends, from the middle, and back again.
    let from_ends = (1..=50).flat_map(|i| [delete(i), delete(151 - i)]);
    let middle = (60..=90).map(delete);
    let again =
        [55, 3, 148, 75, 61, 20].into_iter().flat_map(|i| [insert(i), delete(i), insert(i)]);
    let rest = (1..=150).rev().step_by(3).map(delete);
    let mut all = Vec::new();
    for (n, change) in from_ends.chain(middle).chain(again).chain(rest).enumerate() {
        writer.execute("BEGIN IMMEDIATE").expect("it begins");
        writer.execute(&change).expect("it changes");
        if n % 3 == 0 {
            all.push(ask(&writer));
        }
        writer.execute(if n % 10 == 9 { "ROLLBACK" } else { "COMMIT" }).expect("it ends");
        all.push(ask(if n % 2 == 0 { &reader } else { &writer }));
    }
    all
}

#[test]
fn trees_of_every_kind_answer_over_deleted_rows_as_stock_sqlite_does() {
    let (stock, plait) = (answers(Subject::stock()), answers(Subject::plait()));
    for (n, (expected, found)) in stock.iter().zip(&plait).enumerate() {
        for (question, (expected, found)) in QUESTIONS.iter().zip(expected.iter().zip(found)) {
            assert_eq!(found, expected, "after step {n}: {question}");
        }
    }
}

/// Kills a process at a point while it takes jobs or puts one among those that are gone; the others go on and find every row.
fn killed_at(point: &str, passage: u32, sql: &str) {
    let Some(_) = real_plait("queues") else { return };
    let subject = Subject::plait_with_crash_points();
    let fixture = Fixture::new(subject, &schema(200));
    let survivor = fixture.open();
    let take = format!("BEGIN IMMEDIATE; DELETE FROM job WHERE id=({FIRST}); COMMIT");
    (0..60).for_each(|_| survivor.execute(&take).expect("it takes"));
    let at = format!("{point}:{passage}");
    let mut victim = Actor::start_with_environment(
        "victim",
        &fixture.subject,
        &fixture.database(),
        ("PLAIT_CRASH_AT", &at),
    );
    victim.send(sql);
    victim.await_death();
    let first = survivor.integer(FIRST).expect("it reads");
    let by_table = survivor.integer("SELECT id FROM job NOT INDEXED ORDER BY due LIMIT 1");
    assert_eq!(first, by_table.expect("it reads"), "{at}: {sql}");
    (0..20).for_each(|_| survivor.execute(&take).expect("it takes"));
    verify(&survivor, 200, &[]).unwrap_or_else(|error| panic!("{at}: {error:#}"));
}

// holds GAP-3
#[test]
fn a_worker_that_is_killed_while_it_notes_deleted_rows_harms_nobody() {
    let take = format!("BEGIN IMMEDIATE; DELETE FROM job WHERE id=({FIRST}); COMMIT;").repeat(40);
    for point in ["gaps.begun", "gaps.stored"] {
        for passage in [1, 2] {
            killed_at(point, passage, &take);
        }
    }
}

#[test]
fn a_job_of_a_killed_producer_is_found_among_deleted_ones_once_it_is_committed() {
    let put = "INSERT INTO job VALUES(900, 'new', 30)";
    for point in [
        "commit.appended",
        "commit.published",
        "commit.node_inserted",
        "gaps.begun",
        "gaps.stored",
        "commit.inserted",
    ] {
        killed_at(point, 1, put);
    }
}

// holds EXCL-6
#[test]
fn a_row_of_a_killed_exclusive_transaction_is_found_among_deleted_ones_once_it_is_committed() {
    let Some(_) = real_plait("deleted rows and an exclusive transaction") else { return };
    const FIRST_LEFT: &str = "SELECT id FROM t WHERE id>10 ORDER BY id LIMIT 1";
    let points = ["exclusive.committed", "exclusive.switched", "exclusive.visible"];
    for (point, by_reader) in points.into_iter().flat_map(|p| [(p, true), (p, false)]) {
        let schema = "CREATE TABLE t(id INTEGER PRIMARY KEY, v);
            WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i<400) INSERT INTO t SELECT i, i FROM c";
        let fixture = Fixture::new(Subject::plait_with_crash_points(), schema);
        let survivor = fixture.open();
        survivor
            .execute("PRAGMA page_count; DELETE FROM t WHERE id BETWEEN 11 AND 300")
            .expect("rows go");
        let mut victim = Actor::start_with_environment(
            "victim",
            &fixture.subject,
            &fixture.database(),
            ("PLAIT_CRASH_AT", point),
        );
        victim.ok("BEGIN EXCLUSIVE; PRAGMA application_id=7; INSERT INTO t VALUES(150, 0)");
        // The gap that is known from here on has no row 150 in it, and is of the last commit.
        for _ in 0..3 {
            assert_eq!(survivor.integer(FIRST_LEFT), Ok(301), "{point}");
        }
        let before = survivor.integer("PRAGMA data_version").expect("a number");
        victim.send("COMMIT");
        victim.await_death();
        // A writer settles what the victim has left, and commits nothing; or the reader does.
        if !by_reader {
            fixture.open().execute("BEGIN IMMEDIATE; ROLLBACK").expect("it goes on");
        }
        assert_eq!(survivor.integer(FIRST_LEFT), Ok(150), "{point}");
        // A reader settles nothing while another process has the commit mutex.
        let is_told = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            survivor.integer("PRAGMA data_version") != Ok(before)
        });
        assert!(is_told, "{point}, by a reader: {by_reader}");
        assert_eq!(survivor.integer("SELECT count(*) FROM t"), Ok(111), "{point}");
    }
}

#[test]
fn a_job_that_is_not_found_among_deleted_ones_is_caught() {
    let suite = "a_job_that_comes_before_inside_or_behind_deleted_ones_is_found_by_all::in_threads";
    must_be_reported("gaps.uncut", suite, &["due "]);
}
