//! Auto-vacuum databases in concurrent mode: pages move, and nobody loses a row.

use plait_tests::in_threads_and_processes;
use plait_tests::job::{Job, Work};
use plait_tests::jobs::pairs::{Pairs, SCHEMA, verify};
use plait_tests::sqlite::Connection;
use plait_tests::subject::{Begin, Fixture, Subject};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const MODES: [&str; 2] = ["FULL", "INCREMENTAL"];

fn fixture(subject: Subject, mode: &str, sql: &str) -> Fixture {
    let fixture = Fixture::empty(subject);
    let connection = fixture.subject.open(&fixture.database()).expect("it opens");
    connection.execute(&format!("PRAGMA auto_vacuum={mode}")).expect("the pragma");
    connection.execute("CREATE TABLE first(a)").expect("the file is made");
    fixture.subject.convert(&connection).expect("the mode");
    connection.execute(sql).expect("the schema");
    let number = if mode == "FULL" { 1 } else { 2 };
    assert_eq!(connection.integer("PRAGMA auto_vacuum"), Ok(number), "{mode}");
    fixture
}

fn is_sound(connection: &Connection) {
    assert_eq!(connection.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

#[test]
fn pages_of_deleted_rows_are_given_back() {
    for mode in MODES {
        let sql =
            "CREATE TABLE t(id INTEGER PRIMARY KEY, data BLOB); CREATE INDEX t_data ON t(data)";
        let fixture = fixture(Subject::plait(), mode, sql);
        let connection = fixture.open();
        for begin in [Begin::Deferred, Begin::Immediate, Begin::Concurrent] {
            connection.execute(fixture.subject.begin(begin)).expect("it begins");
            connection
                .execute(
                    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<500)
                          INSERT INTO t(data) SELECT randomblob(3000) FROM n; COMMIT",
                )
                .expect("rows");
        }
        let full = connection.integer("PRAGMA page_count").expect("a count");
        connection.execute("DELETE FROM t WHERE id%10<>0").expect("a delete");
        assert_eq!(connection.integer("SELECT count(*) FROM t"), Ok(150));
        if mode == "INCREMENTAL" {
            assert!(connection.integer("PRAGMA freelist_count").expect("a count") > 100);
            connection.execute("PRAGMA incremental_vacuum(50)").expect("some");
            is_sound(&connection);
            connection.execute("PRAGMA incremental_vacuum").expect("the rest");
        }
        let left = connection.integer("PRAGMA page_count").expect("a count");
        assert!(left * 3 < full, "{mode}: {left} of {full} pages are left");
        assert_eq!(connection.integer("PRAGMA freelist_count"), Ok(0), "{mode}");
        is_sound(&connection);
        connection.close().expect("it closes");
        let stock = Subject::stock().open(&fixture.database()).expect("a plain file");
        is_sound(&stock);
        assert_eq!(stock.integer("SELECT count(*) FROM t"), Ok(150), "{mode}");
    }
}

/// Calls of the callback, which answers what `keep` says, and the size of the file afterwards.
fn asked(subject: Subject, keep: fn(u32) -> u32) -> (Vec<(u32, u32, u32)>, u64) {
    let fixture = fixture(subject, "FULL", "CREATE TABLE t(id INTEGER PRIMARY KEY, data)");
    let connection = fixture.open();
    connection
        .execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<300)
             INSERT INTO t(data) SELECT zeroblob(4000) FROM n; PRAGMA wal_checkpoint",
        )
        .expect("rows");
    let calls = Arc::new(Mutex::new(Vec::new()));
    let told = calls.clone();
    connection
        .autovacuum_pages(move |pages, free, bytes| {
            told.lock().expect("one thread").push((pages, free, bytes));
            keep(free)
        })
        .expect("it registers");
    for id in 1..40 {
        connection.execute(&format!("DELETE FROM t WHERE id={id}")).expect("a delete");
    }
    for begin in Begin::ALL {
        connection.execute(fixture.subject.begin(begin)).expect("it begins");
        connection
            .execute("DELETE FROM t WHERE id IN (SELECT id FROM t LIMIT 30); COMMIT")
            .expect("a larger delete");
    }
    is_sound(&connection);
    connection.close().expect("it closes");
    let calls = calls.lock().expect("one thread").clone();
    let stock = Subject::stock().open(&fixture.database()).expect("a plain file");
    is_sound(&stock);
    (calls, std::fs::metadata(fixture.database()).expect("the file").len())
}

#[test]
fn the_callback_of_a_connection_is_asked_at_its_commits_and_heeded() {
    let answers: [fn(u32) -> u32; 4] = [|_| 0, |free| free, |free| free / 2, |_| u32::MAX];
    for (number, keep) in answers.into_iter().enumerate() {
        let expected = asked(Subject::stock(), keep);
        assert!(expected.0.len() > 40, "it is asked at each commit");
        assert_eq!(asked(Subject::plait(), keep), expected, "answer {number}");
    }
}

#[test]
fn roots_that_move_take_their_rows_with_them() {
    for mode in MODES {
        let fixture = fixture(Subject::plait(), mode, "");
        let (one, two) = (fixture.open(), fixture.open());
        for table in 0..8 {
            one.execute(&format!(
                "CREATE TABLE t{table}(id INTEGER PRIMARY KEY, data); CREATE INDEX i{table} ON t{table}(data)"
            ))
            .expect("a table");
        }
        for round in 0..6 {
            for table in (round + 1)..8 {
                two.execute(&format!("INSERT INTO t{table}(data) VALUES('round {round}')"))
                    .expect("a row that is not merged");
            }
            // The last roots move to where these were; memtables hold rows under the old numbers.
            one.execute(&format!("DROP TABLE t{round}")).expect("a drop");
            for table in (round + 1)..8 {
                let count = format!("SELECT count(*) FROM t{table} WHERE data>='round 0'");
                assert_eq!(two.integer(&count), Ok(i64::from(round) + 1), "{mode}, t{table}");
            }
            is_sound(&two);
        }
    }
}

in_threads_and_processes! {
    fn writers_lose_nothing_while_pages_move(place) {
        for mode in MODES {
            let fixture = fixture(Subject::plait(), mode, SCHEMA);
            let start = |worker| {
                let work = Work::Pairs(Pairs { worker, filler_bytes: 2000, merge_every: 20, ..Pairs::default() });
                Job { subject: fixture.subject.clone(), database: fixture.database(), work }.start(place)
            };
            let mut jobs: Vec<_> = (1..=3).map(start).collect();
            let connection = fixture.open();
            for round in 0..6 {
                connection
                    .execute(&format!(
                        "CREATE TABLE scratch(a); INSERT INTO scratch VALUES(zeroblob(300000)); DROP TABLE scratch;
                         PRAGMA incremental_vacuum({})", round * 10
                    ))
                    .unwrap_or_else(|error| panic!("{mode}, round {round}: {error}"));
                std::thread::sleep(Duration::from_millis(50));
            }
            jobs.iter_mut().for_each(plait_tests::job::Running::stop);
            let mut acknowledged = BTreeMap::new();
            for job in jobs {
                let (lines, ending) = job
                    .wait::<plait_tests::jobs::pairs::Acknowledged>(Duration::from_secs(60))
                    .expect("it ends");
                assert!(matches!(ending, plait_tests::job::Ending::Done(_)), "{mode}: {ending:?}");
                for line in lines {
                    acknowledged.insert(line.worker, line.seq);
                }
            }
            assert_eq!(acknowledged.len(), 3);
            verify(&connection, &acknowledged).unwrap_or_else(|error| panic!("{mode}: {error:#}"));
            drop(connection);
            let stock = Subject::stock().open(&fixture.database()).expect("a plain file");
            verify(&stock, &acknowledged).unwrap_or_else(|error| panic!("{mode}, stock: {error:#}"));
        }
    }
}
