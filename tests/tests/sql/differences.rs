//! The differences from stock SQLite that docs/sql.md lists, as far as no other suite shows them, and what stays equal beside them.

use plait_tests::sqlite::{ABORT, Connection, ERROR, NOMEM, Step};
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::sync::{Arc, Mutex};

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, data BLOB);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<40) INSERT INTO t SELECT i, zeroblob(5000) FROM n;";

/// A database and two connections that have used it, so that neither works alone.
fn shared(subject: Subject) -> (Fixture, Connection, Connection) {
    let fixture = Fixture::new(subject, SCHEMA);
    let (one, two) = (fixture.open(), fixture.open());
    for connection in [&one, &two] {
        assert_eq!(connection.integer("SELECT count(*) FROM t"), Ok(40));
    }
    (fixture, one, two)
}

#[test]
fn statements_with_a_limit_are_syntax_errors() {
    for subject in [Subject::stock(), Subject::plait()] {
        let (_fixture, one, _two) = shared(subject);
        for sql in ["UPDATE t SET data=1 LIMIT 1", "DELETE FROM t ORDER BY id LIMIT 1"] {
            let refused = one.execute(sql).expect_err("it is no statement");
            assert_eq!(refused.code, ERROR, "{refused}");
        }
        one.execute("DELETE FROM t WHERE rowid IN (SELECT rowid FROM t ORDER BY id LIMIT 1)")
            .expect("the other way");
        assert_eq!(one.integer("SELECT min(id) FROM t"), Ok(2));
    }
}

#[test]
fn an_update_that_changes_nothing_is_a_commit() {
    for subject in [Subject::stock(), Subject::plait()] {
        let expected = subject.is_concurrent();
        let (_fixture, one, two) = shared(subject);
        two.execute("DELETE FROM t WHERE id=40").expect("a first write");
        let version = || one.integer("PRAGMA data_version").expect("a number");
        let before = version();
        two.execute("UPDATE t SET data=data WHERE id<5").expect("an update");
        assert_eq!(version() != before, expected);
    }
}

#[test]
fn a_blob_handle_whose_row_was_taken_back_reads_no_other_row() {
    for subject in [Subject::stock(), Subject::plait()] {
        let is_concurrent = subject.is_concurrent();
        let (_fixture, one, _two) = shared(subject);
        one.execute(
            "DELETE FROM t WHERE id=5; SAVEPOINT s; INSERT INTO t VALUES(5, zeroblob(5000))",
        )
        .expect("a row");
        let mut handle = one.open_blob("t", "data", 5, false).expect("a handle");
        one.execute("ROLLBACK TO s").expect("the row is gone");
        let read = handle.read(0, 10);
        if is_concurrent {
            assert_eq!(read.expect_err("no row").extended, ABORT);
        } else {
            assert_eq!(read, Ok(vec![0; 10]), "of the row behind it");
        }
    }
}

#[test]
fn a_blob_handle_whose_row_a_rollback_made_shorter_reads_nothing_behind_its_end() {
    for subject in [Subject::stock(), Subject::plait()] {
        let expected = if subject.is_concurrent() { ABORT } else { NOMEM };
        let (_fixture, one, _two) = shared(subject);
        one.execute("UPDATE t SET data=7 WHERE id=5").expect("a short row");
        one.execute("SAVEPOINT s; UPDATE t SET data=zeroblob(5000) WHERE id=5")
            .expect("a long one");
        let mut handle = one.open_blob("t", "data", 5, false).expect("a handle");
        one.execute("ROLLBACK").expect("the short one again");
        assert_eq!(handle.read(20, 10).expect_err("it ends before").extended, expected);
    }
}

#[test]
fn a_row_that_changes_under_the_cursor_on_it_is_not_shown_again() {
    for subject in [Subject::stock(), Subject::plait()] {
        let again = if subject.is_concurrent() { vec![] } else { vec!["c"] };
        let (_fixture, one, _two) = shared(subject);
        one.execute("CREATE TABLE w(k TEXT PRIMARY KEY, n) WITHOUT ROWID; INSERT INTO w VALUES('a', 1), ('b', 1), ('c', 3), ('d', 1)")
            .expect("a table");
        let mut cursor = one.prepare("SELECT k, n FROM w").expect("a query");
        let mut seen = Vec::new();
        while cursor.step() == Ok(Step::Row) {
            seen.push(String::from_utf8(cursor.column_bytes(0).to_vec()).expect("text"));
            if seen.len() == 3 {
                one.execute("UPDATE w SET n=18 WHERE k='c'").expect("an update");
            }
        }
        assert_eq!(seen, [vec!["a", "b", "c"], again, vec!["d"]].concat());
    }
}

#[test]
fn a_snapshot_object_cannot_be_had_and_a_read_transaction_can() {
    let Some(subject) = real_plait("sqlite3_snapshot_get") else { return };
    let (_fixture, one, two) = shared(subject);
    two.execute("DELETE FROM t WHERE id=1").expect("a delete");
    one.execute("BEGIN").expect("it begins");
    assert_eq!(one.integer("SELECT count(*) FROM t"), Ok(39));
    let refused = one.has_snapshot_object().expect_err("it names a place in the WAL");
    assert_eq!(refused.code, ERROR, "{refused}");
    two.execute("DELETE FROM t").expect("a delete");
    assert_eq!(one.integer("SELECT count(*) FROM t"), Ok(39), "this is its snapshot");
    one.execute("COMMIT").expect("it ends");
}

/// After which statements the hook was called.
fn told(subject: Subject) -> Vec<bool> {
    let (_fixture, one, two) = shared(subject);
    two.execute("UPDATE t SET data=1 WHERE id=1").expect("somebody else writes");
    let calls = Arc::new(Mutex::new(Vec::new()));
    let sink = calls.clone();
    one.wal_hook(move |frames| {
        sink.lock().expect("one thread").push(frames);
        0
    });
    let statements = [
        "INSERT INTO t(data) VALUES(1)",
        "SELECT count(*) FROM t",
        "BEGIN",
        "UPDATE t SET data=2 WHERE id<5",
        "SELECT count(*) FROM t",
        "COMMIT",
        "BEGIN IMMEDIATE",
        "COMMIT",
        "SELECT 1",
        "BEGIN; DELETE FROM t WHERE id=7",
        "ROLLBACK",
        "CREATE TABLE made(a)",
        "DELETE FROM t WHERE id=-1",
        "SAVEPOINT s",
        "DELETE FROM t WHERE id=8",
        "RELEASE s",
        "SELECT 1",
        "CREATE TABLE bare(a)",
        "CREATE TABLE keyed(k PRIMARY KEY, v) WITHOUT ROWID",
        "DELETE FROM bare",
        "DELETE FROM keyed",
        "DELETE FROM bare WHERE a=1",
        "UPDATE bare SET a=1",
        "UPDATE t SET data=1 WHERE id=-1",
        "INSERT OR IGNORE INTO t(id) SELECT id FROM t",
        "INSERT INTO bare SELECT a FROM made",
        "BEGIN EXCLUSIVE",
        "COMMIT",
        "BEGIN; DELETE FROM bare",
        "COMMIT",
        "BEGIN; DELETE FROM bare",
        "ROLLBACK",
        "BEGIN IMMEDIATE; SAVEPOINT s; DELETE FROM bare; ROLLBACK TO s",
        "COMMIT",
        "BEGIN IMMEDIATE",
        "COMMIT",
        "CREATE INDEX of_bare ON bare(a)",
        "REINDEX bare",
    ];
    let was_called = |sql: &&str| {
        calls.lock().expect("one thread").clear();
        one.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let calls = calls.lock().expect("one thread");
        assert!(calls.len() <= 1 && calls.iter().all(|&frames| frames > 0), "{sql}: {calls:?}");
        !calls.is_empty()
    };
    statements.iter().map(was_called).collect()
}

#[test]
fn the_wal_hook_is_called_for_the_same_statements_as_in_stock() {
    let expected = told(Subject::stock());
    assert_eq!(expected.iter().filter(|&&called| called).count(), 12);
    assert_eq!(told(Subject::plait()), expected);
}

#[test]
fn the_wal_hook_is_called_for_an_update_that_leaves_its_rows_as_they_are_unlike_in_stock() {
    let calls = |subject: Subject| {
        let (_fixture, one, two) = shared(subject);
        two.execute("UPDATE t SET data=1").expect("somebody else writes");
        let calls = Arc::new(Mutex::new(0));
        let sink = calls.clone();
        one.wal_hook(move |_| {
            *sink.lock().expect("one thread") += 1;
            0
        });
        one.execute("UPDATE t SET data=data WHERE id=1").expect("an update");
        let calls = calls.lock().expect("one thread");
        *calls
    };
    let Some(subject) = real_plait("wal_hook") else { return };
    assert_eq!((calls(Subject::stock()), calls(subject)), (0, 1));
}

#[test]
fn free_pages_are_those_of_the_file_which_a_merge_makes() {
    let Some(subject) = real_plait("freelist_count") else { return };
    let (_fixture, one, two) = shared(subject);
    assert_eq!(one.integer("PRAGMA freelist_count"), Ok(0));
    two.execute("DELETE FROM t WHERE id>10; PRAGMA wal_checkpoint").expect("a delete");
    let free = one.integer("PRAGMA freelist_count").expect("a count");
    assert!(free >= 30, "{free} pages are free");
    one.execute("BEGIN; DELETE FROM t WHERE id>5").expect("an own delete");
    assert_eq!(one.integer("PRAGMA freelist_count"), Ok(free));
    one.execute("ROLLBACK").expect("a rollback");
    assert_eq!(one.integer("PRAGMA freelist_count"), Ok(free));
}

#[test]
fn automatic_checkpoints_wait_for_four_times_as_many_pages() {
    let Some(subject) = real_plait("wal_autocheckpoint") else { return };
    let (_fixture, one, _two) = shared(subject);
    one.execute("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA wal_autocheckpoint=10").expect("pragmas");
    let load = |pages: i64| {
        let sql = format!(
            "BEGIN IMMEDIATE; PRAGMA application_id=7; INSERT INTO t(data) VALUES(zeroblob({pages}*4096)); COMMIT"
        );
        one.execute(&sql).expect("an exclusive transaction");
        // Mode -1 only asks.
        one.checkpoint(-1).expect("what is in the WAL")
    };
    let (log, done) = load(20);
    assert!((20..40).contains(&log) && done == 0, "{done} of {log} pages");
    let (log, done) = load(30);
    assert!(log > 40 && done == log, "{done} of {log} pages");
}

#[test]
fn automatic_checkpoints_come_after_as_many_small_exclusive_transactions_as_in_sqlite() {
    let Some(subject) = real_plait("wal_autocheckpoint") else { return };
    let (_fixture, one, _two) = shared(subject);
    one.execute("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA wal_autocheckpoint=10").expect("pragmas");
    one.execute("INSERT INTO t(id, data) VALUES(1000, 'a')").expect("a row");
    one.execute("PRAGMA wal_checkpoint(TRUNCATE)").expect("a checkpoint");
    for transaction in 1..=10 {
        // Page 1, which is stamped, and the page of the row.
        let sql = format!(
            "BEGIN IMMEDIATE; PRAGMA application_id=7; UPDATE t SET data={transaction} WHERE id=1000; COMMIT"
        );
        one.execute(&sql).expect("a row");
        let (log, done) = one.checkpoint(-1).expect("what is in the WAL");
        assert_eq!(log, 2 * transaction);
        assert_eq!(done, if transaction == 10 { log } else { 0 });
    }
}

#[test]
fn a_full_checkpoint_waits_for_an_open_select_that_sees_the_newest_rows() {
    for subject in [Subject::stock(), Subject::plait()] {
        let is_concurrent = subject.is_concurrent();
        let (_fixture, one, two) = shared(subject);
        one.busy_timeout(std::time::Duration::ZERO).expect("none");
        one.execute("INSERT INTO t VALUES(100, NULL)").expect("a row");
        let mut select = two.prepare("SELECT id FROM t").expect("a statement");
        assert_eq!(select.step(), Ok(Step::Row));
        let busy = || one.integer("PRAGMA wal_checkpoint(FULL)").expect("an answer");
        assert_eq!(busy(), i64::from(is_concurrent));
        select.reset();
        assert_eq!(busy(), 0);
    }
}
