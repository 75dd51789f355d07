//! A panic inside the engine, planted in one call after the other: the statement fails, nobody reads on, and what was
//! committed is there when all have closed.

use plait_tests::actor::{Actor, Reply};
use plait_tests::paths::repository;
use plait_tests::place::Place;
use plait_tests::sqlite::IOERR;
use plait_tests::subject::{Fixture, Subject, real_plait};
use plait_tests::value::Value;
use std::collections::BTreeSet;
use std::path::Path;

type Rows = Vec<Vec<Value>>;

/// Calls that end something, give it back or tell of it: they answer nothing.
const VOID: [&str; 14] = [
    "pl_base_sync_failed",
    "pl_commit_undo",
    "pl_disabled",
    "pl_exclusive_end",
    "pl_exclusive_not_committed",
    "pl_exclusive_wal",
    "pl_mark_unlock_exclusive",
    "pl_mark_unlock_shared",
    "pl_note_first",
    "pl_note_page_count",
    "pl_note_walk",
    "pl_rollback",
    "pl_snapshot_end",
    "pl_snapshot_put_off",
];
/// A commit over two files.
const PARTS: [&str; 5] =
    ["pl_order", "pl_part_begin", "pl_part_commit", "pl_part_prepare", "pl_stay_concurrent"];
/// A commit over two files of which one runs exclusively.
const PAGES: [&str; 2] = ["pl_part_decided", "pl_part_prepare_pages"];
/// What the script does not come to: the text of a conflict, a commit hook, a statement that is refused, what no connection has been made for yet, and what a
/// replica alone asks.
const ELSEWHERE: [&str; 26] = [
    "pl_accept_base",
    "pl_attach",
    "pl_belongs",
    "pl_beside",
    "pl_check_network",
    "pl_check_place",
    "pl_claim",
    "pl_commit_prepare",
    "pl_conflict",
    "pl_describe_key",
    "pl_enable_check",
    "pl_events_wait",
    "pl_events_write",
    "pl_failed",
    "pl_leave_disk",
    "pl_leave_processor",
    "pl_replica_ticket",
    "pl_replica_time",
    "pl_replica_wait",
    "pl_report_concurrent",
    "pl_report_loaded",
    "pl_report_opened",
    "pl_report_written",
    "pl_statement_rollback",
    "pl_wal_written",
    "pl_write_as_follower",
];

/// In the base.
const BASE: &str = "
    CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, v INT);
    CREATE INDEX t_name ON t(name);
    CREATE TABLE counted(id INTEGER PRIMARY KEY AUTOINCREMENT, v INT);
    INSERT INTO t VALUES(1,'n1',1), (2,'n2',2), (3,'n3',3), (4,'n4',4), (5,'n5',5);
    CREATE TABLE first(id INTEGER PRIMARY KEY AUTOINCREMENT, v INT);
    CREATE VIRTUAL TABLE words USING fts5(word);
    INSERT INTO counted(v) VALUES(1);
    INSERT INTO words VALUES('one'), ('two');
    CREATE TABLE gone(id INTEGER PRIMARY KEY);
    INSERT INTO gone VALUES(1), (2), (3), (4), (5), (6), (7);
    PRAGMA wal_checkpoint";
/// Over it: whoever takes the overlay for empty reads rows that are no more.
const OVERLAY: &str = "
    UPDATE t SET v = v + 100, name = 'm' || id WHERE id < 4;
    DELETE FROM t WHERE id = 5;
    DELETE FROM gone WHERE id < 7;
    INSERT INTO t VALUES(7, 'n7', 7);
    INSERT INTO counted(v) VALUES(2)";

/// What the panicking process does, statement by statement. It passes every call of the engine.
const SCRIPT: [&str; 47] = [
    "SELECT id FROM gone WHERE id > 0",
    "SELECT v FROM t WHERE id = 3",
    "SELECT v FROM t WHERE id = 5",
    "SELECT id, name, v FROM t ORDER BY id",
    "SELECT id, name, v FROM t ORDER BY id DESC",
    "SELECT count(*) FROM t",
    "SELECT id FROM t WHERE name = 'm2'",
    "SELECT id FROM t INDEXED BY t_name WHERE name >= 'm' ORDER BY name DESC",
    "SELECT max(id), min(id) FROM t",
    "PRAGMA data_version",
    "PRAGMA plait_begin = adaptive",
    "BEGIN",
    "SELECT v FROM t WHERE id = 3",
    "SELECT id FROM t WHERE name = 'n3'",
    "SELECT id FROM t WHERE id > 2",
    "COMMIT",
    "BEGIN CONCURRENT",
    "SELECT v FROM t WHERE id = 1",
    "SELECT id FROM t WHERE name = 'm2'",
    "SELECT id FROM t WHERE name > 'n'",
    "INSERT INTO t(name, v) VALUES('n8', 8)",
    "SAVEPOINT s",
    "DELETE FROM t WHERE id = 2",
    "ROLLBACK TO s",
    "RELEASE s",
    "INSERT INTO t VALUES(50, 'n50', 50)",
    "SELECT id, name, v FROM t ORDER BY id",
    "COMMIT",
    "INSERT INTO counted(v) VALUES(3)",
    "INSERT INTO first(v) VALUES(1)",
    // Statements that end inside of another.
    "SELECT rowid, word FROM words WHERE words MATCH 'two'",
    "DELETE FROM t WHERE v = 4",
    "SELECT count(*) > 10 FROM plait_status",
    "PRAGMA plait_background_merge",
    "SELECT plait_ticket() >= plait_durable(), plait_wait(plait_ticket())",
    "SELECT plait_notify_fd() > 2",
    "BEGIN; INSERT INTO t VALUES(60, 'n60', 60); CREATE TABLE made(x); COMMIT",
    "SELECT page_count > 1 FROM pragma_page_count",
    "PRAGMA max_page_count = 100000",
    "INSERT INTO t VALUES(61, 'n61', 61)",
    "PRAGMA integrity_check",
    "INSERT INTO t VALUES(62, 'n62', 62)",
    "PRAGMA wal_checkpoint",
    "PRAGMA journal_mode = delete",
    "SELECT id, name, v FROM t ORDER BY id",
    "SELECT * FROM counted",
    "SELECT * FROM first",
];
const CONTENT: &str =
    "SELECT id, name, v FROM t ORDER BY id; SELECT * FROM counted; SELECT * FROM first";

/// The functions of the engine's C interface that a panic can be planted in.
fn calls() -> BTreeSet<String> {
    let folder = repository().join("crates/sqlite/src/ffi");
    let files = std::fs::read_dir(folder).expect("the sources are there");
    let names = files.flat_map(|file| {
        let text = std::fs::read_to_string(file.expect("a source").path()).expect("a source");
        let pieces = text.split('"').skip(1).step_by(2);
        pieces.filter(|p| p.starts_with("pl_")).map(str::to_owned).collect::<Vec<_>>()
    });
    let names: BTreeSet<String> = names.collect();
    assert!(names.contains("pl_get") && names.contains("pl_iter_next"), "{names:?}");
    names
}

/// A database with rows in its base and others over them, and one that has it open.
fn scene() -> (Fixture, Actor) {
    let fixture = Fixture::new(Subject::plait_with_crash_points(), BASE);
    let mut other = Actor::start(Place::Processes, "other", &fixture.subject, &fixture.database());
    other.ok(OVERLAY);
    (fixture, other)
}

/// What the script's statements answer without a panic, and what is committed after each.
fn undisturbed() -> Vec<(Reply, Rows)> {
    let (fixture, mut other) = scene();
    let mut actor = Actor::start(Place::Processes, "actor", &fixture.subject, &fixture.database());
    SCRIPT.iter().map(|sql| (actor.run(sql), other.ok(CONTENT))).collect()
}

fn panic_in(name: &str, passage: u32, expected: &[(Reply, Rows)]) -> bool {
    let (fixture, mut other) = scene();
    let mut committed = vec![other.ok(CONTENT)];
    let at = format!("{name}:{passage}");
    let environment = [("PLAIT_PANIC_AT", at.as_str()), ("RUST_BACKTRACE", "0")];
    let mut actor = Actor::in_process_with("panicking", &fixture.subject, &environment);
    actor.open(&fixture.database()).expect("opening touches nothing");
    let mut failed_at = None;
    for (i, (sql, (reply, content))) in SCRIPT.iter().zip(expected).enumerate() {
        let got = actor.run(sql);
        let Some(error) = got.error else {
            if !sql.contains("data_version") {
                assert_eq!(got.rows, reply.rows, "{at}: {sql} succeeds with rows that are not so");
            }
            committed = vec![content.clone()];
            continue;
        };
        if reply.error.as_ref().is_some_and(|usual| usual.code == error.code) {
            continue;
        }
        assert_eq!(error.code, IOERR, "{at}: {sql}: {error}");
        // It may or may not have committed.
        committed.push(content.clone());
        failed_at = Some(i);
        break;
    }
    let reached = failed_at.is_some();
    if reached && !name.starts_with("pl_encode") {
        for sql in ["ROLLBACK", "SELECT v FROM t WHERE id = 3"] {
            let again = actor.run(sql);
            assert!(sql == "ROLLBACK" || again.error.is_some(), "{at}: {sql} gives {again:?}");
        }
        let error = other.fails("SELECT count(*) FROM t", IOERR);
        assert!(error.message.contains("close"), "{at}: {error}");
    }
    actor.close().expect("closing works");
    other.close().expect("closing works");
    let left = fixture.open();
    let content = left.query(CONTENT).unwrap_or_else(|e| panic!("{at}: {e}"));
    assert!(committed.contains(&content), "{at}, {failed_at:?}: {content:?} of {committed:?}");
    left.close().expect("closing works");
    let stock = Subject::stock().open(&fixture.database()).expect("a plain file");
    assert_eq!(stock.text("PRAGMA integrity_check").as_deref(), Ok("ok"), "{at}");
    reached
}

#[test]
fn a_call_of_the_engine_that_panics_fails_the_statement_and_loses_nothing() {
    if real_plait("planted panics").is_none() {
        return;
    }
    let expected = undisturbed();
    for name in calls() {
        if [&VOID[..], &ELSEWHERE, &PARTS, &PAGES].concat().contains(&name.as_str()) {
            continue;
        }
        assert!(panic_in(&name, 1, &expected), "{name} is never called, or its panic is ignored");
        panic_in(&name, 4, &expected);
    }
}

/// Runs `sql` in a new process, twice, with a panic planted in `name`. The first is to end with `code`, if any; the second succeeds.
fn alone(name: &str, database: &Path, sql: &str, code: Option<i32>) -> Reply {
    let subject = Subject::plait_with_crash_points();
    let environment = [
        ("PLAIT_PANIC_AT", name),
        ("PLAIT_RUN_REPORT", "/dev/null"),
        ("PLAIT_JOURNAL_MODE", "concurrent"),
        // As programs are: who is alone does not join.
        ("PLAIT_JOIN", "when needed"),
        ("RUST_BACKTRACE", "0"),
    ];
    let mut actor = Actor::in_process_with(name, &subject, &environment);
    let mut error = actor.open(database).err();
    if error.is_some() {
        actor.open(database).unwrap_or_else(|e| panic!("{name}: {e}"));
    } else {
        error = actor.run(sql).error;
    }
    assert_eq!(error.as_ref().map(|e| e.code), code, "{name}: {error:?}");
    assert!(error.is_none_or(|e| e.message.contains("panicked")), "{name}: it says what happened");
    let again = actor.run(sql);
    assert_eq!(again.error, None, "{name}: only that call failed");
    actor.close().expect("closing works");
    again
}

#[test]
fn a_panic_while_a_database_is_joined_fails_that_alone() {
    if real_plait("planted panics").is_none() {
        return;
    }
    let (fixture, mut other) = scene();
    let content = other.ok(CONTENT);
    for (name, code) in [
        ("pl_attach", Some(IOERR)),
        ("pl_claim", None),
        ("pl_report_concurrent", None),
        ("pl_report_loaded", None),
        ("pl_report_opened", None),
    ] {
        assert_eq!(alone(name, &fixture.database(), CONTENT, code).rows, content, "{name}");
        assert_eq!(other.ok(CONTENT), content, "{name}: nobody else notices");
    }
    // In another mode, as it is closed.
    let plain = fixture.path("plain.db");
    alone("pl_report_written", &plain, "CREATE TABLE IF NOT EXISTS u(x)", None);
}

#[test]
fn a_panic_in_a_conversion_leaves_the_database_as_it_was() {
    if real_plait("planted panics").is_none() {
        return;
    }
    let concurrent = [[Value::Text(b"concurrent".to_vec())]];
    // The check for WAL by another name is made again by the conversion itself.
    for (name, mode, code) in
        [("pl_enable_check", "concurrent", Some(IOERR)), ("pl_check_place", "wal", None)]
    {
        let fixture = Fixture::empty(Subject::stock());
        let sql = format!("PRAGMA journal_mode={mode}");
        assert_eq!(alone(name, &fixture.database(), &sql, code).rows, concurrent, "{name}");
        let stock = Subject::stock().open(&fixture.database()).expect("a plain file");
        assert_eq!(stock.text("PRAGMA integrity_check").as_deref(), Ok("ok"), "{name}");
    }
}

#[test]
fn a_panic_in_a_commit_over_two_files_leaves_it_in_both_or_in_neither() {
    if real_plait("planted panics").is_none() {
        return;
    }
    const TABLE: &str = "CREATE TABLE t(x)";
    let parts = PARTS.map(|name| (name, ""));
    let pages = PAGES.map(|name| (name, "CREATE TABLE second.u(x);"));
    for (name, schema) in parts.into_iter().chain(pages) {
        for passage in 1..=2 {
            let at = format!("{name}:{passage}");
            let fixture = Fixture::new(Subject::plait_with_crash_points(), TABLE);
            let files = [fixture.database(), fixture.path("second.db")];
            let second = fixture.subject.create(&files[1]).expect("a second file");
            second.execute(TABLE).expect("a table");
            second.close().expect("it closes");
            let environment = [("PLAIT_PANIC_AT", at.as_str()), ("RUST_BACKTRACE", "0")];
            let mut actor = Actor::in_process_with("panicking", &fixture.subject, &environment);
            actor.open(&files[0]).expect("opening touches nothing");
            let reply = actor.run(&format!(
                "ATTACH '{}' AS second; BEGIN; {schema} INSERT INTO main.t VALUES(1); INSERT INTO second.t VALUES(1); COMMIT",
                files[1].display()
            ));
            actor.close().expect("closing works");
            let rows = files.map(|file| {
                let left = fixture.subject.open(&file).expect("it opens");
                left.integer("SELECT count(*) FROM t").unwrap_or_else(|e| panic!("{at}: {e}"))
            });
            assert_eq!(rows[0], rows[1], "{at}: {reply:?}");
            assert!(reply.error.is_some() || rows[0] == 1, "{at}: it was acknowledged");
        }
    }
}
