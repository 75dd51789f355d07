//! Settings of a session: who merges, and what an old reader may cost.

use plait_tests::actor::{Actor, ONE_THREAD};
use plait_tests::in_threads_and_processes;
use plait_tests::os::thread_names;
use plait_tests::sqlite::{Connection, ERROR, FULL};
use plait_tests::subject::{Fixture, Subject, real_plait};
use plait_tests::value::Value;
use std::time::{Duration, Instant};

const SCHEMA: &str =
    "CREATE TABLE t(id INTEGER PRIMARY KEY, data BLOB); INSERT INTO t VALUES(1, NULL)";
/// A commit of about 4 MiB.
const COMMIT: &str = "INSERT INTO t(data) VALUES(zeroblob(4000000))";
/// More such commits than shared memory holds.
const TOO_MANY: usize = 60;

fn status(connection: &Connection, name: &str) -> i64 {
    let sql = format!("SELECT value FROM plait_status WHERE name='{name}'");
    connection.integer(&sql).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn setting(connection: &Connection, name: &str) -> i64 {
    connection.integer(&format!("PRAGMA {name}")).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn fixture(test: &str) -> Option<Fixture> {
    real_plait(test).map(|subject: Subject| Fixture::new(subject, SCHEMA))
}

in_threads_and_processes! {
    fn past_the_wal_limit_commits_fail_until_the_reader_has_gone(place) {
        let Some(fixture) = fixture("plait_wal_limit") else { return };
        let writer = fixture.open();
        writer.busy_timeout(Duration::from_millis(50)).expect("a timeout");
        writer.execute("PRAGMA synchronous=NORMAL; PRAGMA plait_wal_limit=20000000").expect("settings");
        let mut reader = Actor::start(place, "reader", &fixture.subject, &fixture.database());
        assert_eq!(reader.ok("PRAGMA plait_wal_limit"), [[20_000_000.into()]], "it holds for the session");
        reader.ok("BEGIN");
        assert_eq!(reader.integer("SELECT count(*) FROM t"), 1);
        let mut committed = 0;
        let refused = loop {
            assert!(committed < TOO_MANY, "the limit does not hold");
            match writer.execute(COMMIT) {
                Ok(()) => committed += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.code, FULL, "{refused}");
        for word in ["plait_wal_limit", "oldest reader"] {
            assert!(refused.message.contains(word), "it does not name {word}: {refused}");
        }
        assert!(committed > 10, "shared memory is used first: {committed}");
        let wal = std::fs::metadata(fixture.side_file("-wal")).expect("there is a WAL").len();
        // The merge that crosses the limit still counts.
        assert!(wal < 20_000_000 + 100_000_000, "the WAL has {wal} bytes");
        assert_eq!(reader.integer("SELECT count(*) FROM t"), 1, "the reader keeps its snapshot");
        reader.ok("COMMIT");
        writer.execute(COMMIT).expect("nobody is in the way");
        let rows = i64::try_from(committed).expect("few") + 2;
        assert_eq!(reader.integer("SELECT count(*) FROM t"), rows);
        assert_eq!(writer.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    }

    // holds CKPT-4, SNAP-4
    fn what_checkpoints_that_are_asked_for_leave_in_the_wal_counts_against_its_limit(place) {
        let Some(fixture) = fixture("plait_wal_limit") else { return };
        let writer = fixture.open();
        writer.busy_timeout(Duration::from_millis(50)).expect("a timeout");
        writer.execute("PRAGMA synchronous=NORMAL; PRAGMA plait_wal_limit=3000000").expect("settings");
        let mut reader = Actor::start(place, "reader", &fixture.subject, &fixture.database());
        reader.ok("BEGIN");
        assert_eq!(reader.integer("SELECT count(*) FROM t"), 1);
        let busy = |mode: &str| writer.integer(&format!("PRAGMA wal_checkpoint({mode})")).expect("a checkpoint");
        for _ in 0..12 {
            writer.execute(COMMIT).expect("there is room in memory");
            assert_eq!(busy("PASSIVE"), 0, "as in SQLite");
        }
        let wal = std::fs::metadata(fixture.side_file("-wal")).expect("there is a WAL").len();
        assert!((3_000_000..6_000_000).contains(&wal), "the WAL has {wal} bytes");
        assert!(status(&writer, "memtable_bytes") > 6_000_000, "the rest stays in memory");
        assert_eq!(busy("FULL"), 1, "the reader is in the way");
        reader.ok("COMMIT");
        assert_eq!(busy("TRUNCATE"), 0);
        assert_eq!((status(&writer, "memtable_bytes"), status(&writer, "base_wal_bytes")), (0, 0));
        assert_eq!(reader.integer("SELECT count(*) FROM t"), 13);
    }

    fn in_the_background_merges_are_made_without_the_committer(place) {
        let Some(fixture) = fixture("plait_background_merge") else { return };
        let writer = fixture.open();
        assert_eq!(setting(&writer, "plait_background_merge"), 1);
        writer.execute("PRAGMA synchronous=NORMAL").expect("a setting");
        let mut other = Actor::start(place, "other", &fixture.subject, &fixture.database());
        assert_eq!(other.ok("PRAGMA plait_background_merge"), [[1.into()]], "it holds for the session");
        let before = status(&writer, "merges");
        // Merges wait for three full memtables of 16 MiB.
        for _ in 0..16 {
            writer.execute(COMMIT).expect("a commit");
        }
        // No statement runs on either connection: only the thread can do it.
        std::thread::sleep(Duration::from_secs(2));
        let deadline = Instant::now() + Duration::from_secs(20);
        while status(&writer, "merges") == before {
            assert!(Instant::now() < deadline, "nobody merges");
            std::thread::sleep(Duration::from_millis(20));
        }
        for _ in 0..TOO_MANY {
            other.ok(COMMIT);
        }
        assert_eq!(writer.integer("SELECT count(*) FROM t"), Ok(17 + 60));
        assert_eq!(writer.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
        drop(writer);
        other.close().expect("the thread ends with its process's last connection");
        assert!(!fixture.side_file("-plait").exists());
        let stock = Subject::stock().open(&fixture.database()).expect("a plain file");
        assert_eq!(stock.integer("SELECT count(*) FROM t"), Ok(17 + 60));
    }
}

#[test]
fn a_program_configured_for_one_thread_merges_by_itself_whatever_the_session_wishes() {
    let Some(fixture) = fixture("one thread") else { return };
    let keeper = fixture.open();
    let start = |variable| {
        let (subject, database) = (&fixture.subject, fixture.database());
        let mut actor = Actor::start_with_environment("writer", subject, &database, variable);
        actor.ok("PRAGMA synchronous=NORMAL");
        assert_eq!(actor.integer("PRAGMA plait_background_merge"), 1);
        actor
    };
    let mut alone = start((ONE_THREAD, "1"));
    let before = status(&keeper, "merges");
    for _ in 0..TOO_MANY / 2 {
        alone.ok(COMMIT);
        assert_eq!(thread_names(alone.pid()).len(), 1, "{:?}", thread_names(alone.pid()));
    }
    assert!(status(&keeper, "merges") > before, "its commits merge");
    alone.close().expect("it closes");
    let mut usual = start(("PLAIT_TEST_NOTHING", "1"));
    let mut has_had_one = false;
    for _ in 0..TOO_MANY / 2 {
        usual.ok(COMMIT);
        has_had_one |= thread_names(usual.pid()).iter().any(|name| name == "plait-merge");
    }
    assert!(has_had_one, "others have the thread");
    let deadline = Instant::now() + Duration::from_secs(20);
    while thread_names(usual.pid()).len() > 1 {
        assert!(
            Instant::now() < deadline,
            "it ends with the merge: {:?}",
            thread_names(usual.pid())
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(usual.integer("SELECT count(*) FROM t"), 1 + TOO_MANY as i64 / 2 * 2);
}

#[test]
fn settings_of_a_session_end_with_it_and_refuse_nonsense() {
    let Some(fixture) = fixture("session settings") else { return };
    let connection = fixture.open();
    connection
        .execute("PRAGMA plait_wal_limit=5000000; PRAGMA plait_background_merge=0")
        .expect("settings");
    for wrong in ["plait_wal_limit='much'", "plait_background_merge='perhaps'", "plait_nonsense=1"]
    {
        let error = connection.execute(&format!("PRAGMA {wrong}")).expect_err(wrong);
        assert_eq!(error.code, ERROR, "{wrong}: {error}");
    }
    assert_eq!(setting(&connection, "plait_wal_limit"), 5_000_000);
    connection.close().expect("it closes");
    let again = fixture.open();
    assert_eq!(setting(&again, "plait_wal_limit"), 1 << 30);
    assert_eq!(setting(&again, "plait_background_merge"), 1);
}

#[test]
fn numbers_are_integers_and_words_are_text() {
    let Some(fixture) = fixture("types of pragmas") else { return };
    let connection = fixture.open();
    for (pragma, value) in [
        ("plait_wal_limit", Value::Integer(1 << 30)),
        ("plait_wal_limit=5000000", Value::Integer(5_000_000)),
        ("plait_wal_limit=0x10000000000", Value::Integer(1 << 40)),
        ("plait_background_merge", Value::Integer(1)),
        ("plait_background_merge=off", Value::Integer(0)),
        ("plait_begin", "deferred".into()),
        ("plait_begin=concurrent", "concurrent".into()),
    ] {
        let answer = connection.query(&format!("PRAGMA {pragma}"));
        assert_eq!(answer.as_deref(), Ok(&[vec![value]][..]), "{pragma}");
    }
}

/// What two connections are answered, and which statements change it.
fn data_versions(subject: &Subject) -> Vec<(bool, bool)> {
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let (first, second) = (fixture.open(), fixture.open());
    let ask = |connection: &Connection| setting(connection, "data_version");
    let mut before = (ask(&first), ask(&second));
    let mut changes = Vec::new();
    for (connection, sql) in [
        (&first, "SELECT * FROM t"),
        (&first, "INSERT INTO t VALUES(2, 'the first write')"),
        (&first, "UPDATE t SET data='x'"),
        (&second, "SELECT * FROM t"),
        (&second, "DELETE FROM t WHERE id=2"),
        (&first, "CREATE TABLE u(a)"),
        (&first, "PRAGMA wal_checkpoint"),
        (&second, "PRAGMA wal_checkpoint"),
        (&second, "BEGIN; INSERT INTO u VALUES(1); ROLLBACK"),
        (&second, "PRAGMA user_version=5"),
        (&first, "BEGIN; INSERT INTO u VALUES(1); INSERT INTO t DEFAULT VALUES; COMMIT"),
        (&second, "VACUUM"),
    ] {
        connection.execute(sql).expect("it runs");
        let after = (ask(&first), ask(&second));
        changes.push((after.0 != before.0, after.1 != before.1));
        before = after;
    }
    changes
}

#[test]
fn data_version_changes_by_the_writes_of_others_alone() {
    let (stock, plait) = (data_versions(&Subject::stock()), data_versions(&Subject::plait()));
    assert_eq!(stock, plait);
    assert!(stock.contains(&(false, true)) && stock.contains(&(true, false)), "{stock:?}");
}

/// After which statements the number that `SQLITE_FCNTL_DATA_VERSION` tells each of two connections is another one.
fn file_data_versions(subject: &Subject) -> Vec<(&'static str, bool, bool)> {
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let (first, second) = (fixture.open(), fixture.open());
    let ask = |connection: &Connection| connection.file_data_version().expect("a number");
    for connection in [&first, &second] {
        connection.execute("SELECT * FROM t").expect("both have read");
    }
    let mut before = (ask(&first), ask(&second));
    let mut changes = Vec::new();
    for (connection, sql) in [
        (&first, "SELECT * FROM t"),
        (&second, "INSERT INTO t VALUES(2, 'not yet seen by the first')"),
        (&second, "UPDATE t SET data='nor this'"),
        (&first, "SELECT * FROM t"),
        (&first, "SELECT * FROM t"),
        (&first, "BEGIN; SELECT * FROM t"),
        (&second, "DELETE FROM t WHERE id=2"),
        (&first, "SELECT * FROM t"),
        (&first, "COMMIT"),
        (&first, "UPDATE t SET data='upon what it has not read'"),
        (&second, "BEGIN IMMEDIATE"),
        (&second, "INSERT INTO t DEFAULT VALUES"),
        (&second, "COMMIT"),
        (&first, "BEGIN EXCLUSIVE; INSERT INTO t DEFAULT VALUES; COMMIT"),
        (&second, "SELECT 1"),
        (&second, "SELECT * FROM t"),
        (&first, "CREATE TABLE u(a)"),
        (&second, "SELECT * FROM t"),
        (&first, "BEGIN; CREATE TABLE w(a); ROLLBACK"),
        (&first, "SELECT * FROM t"),
        (&second, "SELECT * FROM t"),
    ] {
        connection.execute(sql).expect("it runs");
        let after = (ask(&first), ask(&second));
        changes.push((sql, after.0 != before.0, after.1 != before.1));
        before = after;
    }
    changes
}

#[test]
fn the_data_version_of_a_file_changes_when_a_change_is_met_not_when_it_is_made() {
    let (stock, plait) =
        (file_data_versions(&Subject::stock()), file_data_versions(&Subject::plait()));
    assert_eq!(plait, stock);
    assert_eq!(stock[1], ("INSERT INTO t VALUES(2, 'not yet seen by the first')", false, true));
}

#[test]
fn data_version_does_not_change_by_the_first_write_when_that_is_a_change_of_the_schema() {
    let (fixture, subject) = (Fixture::new(Subject::plait(), SCHEMA), Subject::plait());
    for (index, sql) in
        ["CREATE TABLE u(a)", "PRAGMA user_version=7", "INSERT INTO t DEFAULT VALUES"]
            .iter()
            .enumerate()
    {
        let connection = subject.open(&fixture.database()).expect("it opens");
        let before = setting(&connection, "data_version");
        connection.execute(sql).expect("it runs");
        assert_eq!(setting(&connection, "data_version"), before, "{index}: {sql}");
        connection.close().expect("it closes");
    }
}

#[test]
fn data_version_changes_when_stock_sqlite_has_written_the_file_at_rest() {
    let Some(fixture) = fixture("data_version") else { return };
    let connection = fixture.open();
    let before = setting(&connection, "data_version");
    let stock = Subject::stock().open(&fixture.database()).expect("a file at rest");
    stock.execute("INSERT INTO t VALUES(9, 'stock')").expect("a write");
    stock.close().expect("it closes");
    let after = setting(&connection, "data_version");
    assert_ne!(before, after, "a stock program wrote");
    connection.execute("INSERT INTO t VALUES(10, 'ours')").expect("a write");
    assert_eq!(setting(&connection, "data_version"), after);
}

/// Breaks a row of the schema, goes on beside it, and mends it.
fn break_and_mend(
    subject: &Subject,
    broken: &str,
    mend: &str,
) -> Vec<Result<Vec<Vec<Value>>, i32>> {
    let fixture = Fixture::new(subject.clone(), SCHEMA);
    let connection = fixture.open();
    connection.execute("PRAGMA writable_schema=1").expect("a pragma");
    connection.execute(broken).expect("the schema can be written");
    connection.close().expect("it closes");
    let connection = fixture.open();
    let mut seen = Vec::new();
    for sql in [
        "SELECT * FROM t",
        "PRAGMA writable_schema=1",
        "SELECT name FROM sqlite_schema",
        "INSERT INTO t VALUES(5, 'beside it')",
        "PRAGMA wal_checkpoint",
        "SELECT * FROM t",
        mend,
        "CREATE TABLE more(x)",
    ] {
        let answer = connection.query(sql).map_err(|error| error.code);
        seen.push(if sql.contains("checkpoint") { Ok(Vec::new()) } else { answer });
    }
    connection.close().expect("it closes");
    let connection = fixture.open();
    for sql in ["SELECT * FROM t", "SELECT name FROM sqlite_schema", "PRAGMA integrity_check"] {
        seen.push(connection.query(sql).map_err(|error| error.code));
    }
    seen
}

#[test]
fn a_broken_row_of_the_schema_keeps_nobody_from_mending_it() {
    for (broken, mend) in [
        (
            "INSERT INTO sqlite_schema VALUES('table', 'x', 'x', 77, 'CREATE TABLE x(a INTEGER PRIMARY KEY)')",
            "DELETE FROM sqlite_schema WHERE name='x'",
        ),
        (
            "INSERT INTO sqlite_schema VALUES('index', 'x', 't', 0, 'no SQL at all')",
            "DELETE FROM sqlite_schema WHERE name='x'",
        ),
        (
            "INSERT INTO sqlite_schema VALUES('trigger', 'x', 't', 0, 'CREATE TRIGGER x AFTER INSERT ON gone BEGIN SELECT 1; END')",
            "DELETE FROM sqlite_schema WHERE name='x'",
        ),
    ] {
        let expected = break_and_mend(&Subject::stock(), broken, mend);
        let got = break_and_mend(&Subject::plait(), broken, mend);
        assert_eq!(expected, got, "{broken}");
        assert!(expected[0].is_err() && expected.iter().skip(1).all(Result::is_ok), "{expected:?}");
    }
}
