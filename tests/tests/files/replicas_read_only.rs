//! A mark beside a database makes it a replica: nobody but its follower writes it, and tickets are the primary's. The marks are made by hand.

use plait_tests::actor::Actor;
use plait_tests::paths;
use plait_tests::place::Place;
use plait_tests::sqlite::{CANTOPEN, Connection, MISUSE, READONLY};
use plait_tests::subject::{Fixture, Subject, real_plait, refused};
use plait_tests::value::Value;
use std::process::Command;
use std::time::{Duration, Instant};

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, v); CREATE INDEX tv ON t(v); INSERT INTO t VALUES(1, x'00ff'), (2, 'two');
    CREATE TABLE m(k INTEGER PRIMARY KEY, v); INSERT INTO m SELECT * FROM t";
const PLACE: &str = "/mnt/back up/app";
const WORDS: &str = "follows /mnt/back up/app: write on the primary, or `plait promote ";
const COUNT: &str = "SELECT count(*) FROM t";
/// Every kind of statement that writes.
const WRITES: &[&str] = &[
    "INSERT INTO t VALUES(9, 9)",
    "INSERT INTO t VALUES(9, 9) RETURNING id",
    "UPDATE t SET v=1 WHERE id=1",
    "DELETE FROM t",
    "REPLACE INTO t VALUES(1, 1)",
    "CREATE TABLE u(x)",
    "CREATE VIRTUAL TABLE u USING fts5(x)",
    "CREATE VIEW u AS SELECT 1",
    "ALTER TABLE t ADD COLUMN w",
    "DROP TABLE t",
    "CREATE INDEX tw ON t(v, id)",
    "REINDEX",
    "ANALYZE",
    "VACUUM",
    "PRAGMA user_version=3",
    "PRAGMA application_id=3",
    "PRAGMA incremental_vacuum",
    "PRAGMA journal_mode=delete",
    "PRAGMA journal_mode=truncate",
    "PRAGMA journal_mode=memory",
    "PRAGMA journal_mode=off",
    "PRAGMA plait_wal_limit=1",
    "PRAGMA plait_background_merge=off",
    "UPDATE sqlite_dbpage SET data=data WHERE pgno=1",
    "BEGIN CONCURRENT; INSERT INTO t VALUES(9, 9)",
    "BEGIN IMMEDIATE; INSERT INTO t VALUES(9, 9)",
    "BEGIN EXCLUSIVE; INSERT INTO t VALUES(9, 9)",
    "BEGIN; SELECT * FROM t; INSERT INTO t VALUES(9, 9)",
    "SAVEPOINT s; INSERT INTO t VALUES(9, 9)",
    "PRAGMA plait_begin=immediate; BEGIN; INSERT INTO t VALUES(9, 9)",
];
/// What a replica can do as any database.
const READS: &[&str] = &[
    COUNT,
    "BEGIN; SELECT * FROM t; COMMIT",
    "BEGIN IMMEDIATE; SELECT * FROM t; COMMIT",
    "BEGIN EXCLUSIVE; SELECT * FROM t; COMMIT",
    "BEGIN CONCURRENT; SELECT * FROM t; COMMIT",
    "CREATE TEMP TABLE own(x); INSERT INTO own SELECT id FROM t; DROP TABLE own",
    "ATTACH ':memory:' AS m; CREATE TABLE m.x(y); INSERT INTO m.x SELECT id FROM t; DETACH m",
    "PRAGMA integrity_check",
    "PRAGMA plait_wal_limit",
    "PRAGMA plait_background_merge",
    "PRAGMA wal_checkpoint(TRUNCATE)",
    "PRAGMA journal_mode",
    "PRAGMA journal_mode=wal",
    "PRAGMA journal_mode=concurrent",
    "SELECT * FROM plait_status",
];

fn mark(record: u64, first: u64, commit: u64) -> String {
    written(record, first, commit, 1_764_380_000_000)
}

fn written(record: u64, first: u64, commit: u64, ms: u64) -> String {
    let lines = format!(
        "plait replica 1\nplace {PLACE}\nchain {}\nrecord {record}\nsalt 305419896\nfirst {first}\ncommit {commit}\nwritten {ms}\nlater words\n",
        "0f".repeat(16)
    );
    format!("{lines}sum {:08x}\n", crc32c::crc32c(lines.as_bytes()))
}

/// As a follower does: whole or not at all.
fn put(fixture: &Fixture, text: &str) {
    let draft = fixture.path("draft");
    std::fs::write(&draft, text).expect("it is written");
    std::fs::rename(draft, fixture.side_file("-plait-follows")).expect("it is renamed");
}

fn replica() -> Option<Fixture> {
    let fixture = Fixture::new(real_plait("replicas_read_only")?, SCHEMA);
    put(&fixture, &mark(1234, 40, 98));
    Some(fixture)
}

fn everything_is_refused(mut run: impl FnMut(&str) -> Result<(), (i32, String)>, after: &[&str]) {
    for sql in WRITES {
        let (code, said) = run(sql).expect_err(sql);
        assert_eq!(code, READONLY, "{sql}: {said}");
        assert!(said.contains(WORDS), "{sql}: {said}");
        let _ = run("ROLLBACK");
        let _ = run("PRAGMA plait_begin=deferred");
    }
    for sql in READS.iter().chain(after) {
        run(sql).unwrap_or_else(|(_, said)| panic!("{sql}: {said}"));
    }
}

fn of(connection: &Connection, sql: &str) -> Result<(), (i32, String)> {
    connection.execute(sql).map_err(|e| (e.code, e.message))
}

fn integer(connection: &Connection, sql: &str) -> i64 {
    connection.integer(sql).unwrap_or_else(|e| panic!("{sql}: {e}"))
}

// holds FOLLOWS-1
#[test]
fn every_write_is_refused_in_a_session_with_another_process() {
    let Some(fixture) = replica() else { return };
    let mut other = Actor::start(Place::Processes, "other", &fixture.subject, &fixture.database());
    other.ok("BEGIN CONCURRENT; SELECT * FROM t; COMMIT");
    let connection = fixture.open();
    connection.execute("SELECT * FROM plait_status").expect("it joins");
    assert!(fixture.side_file("-plait-shm").exists());
    everything_is_refused(|sql| of(&connection, sql), &[]);
    let said = other.fails("INSERT INTO t VALUES(9, 9)", READONLY).message;
    assert!(said.contains(WORDS), "{said}");
    assert_eq!(integer(&connection, COUNT), 2);
    assert_eq!(other.integer("SELECT count(*) FROM pragma_table_info('t')"), 2);
}

// holds FOLLOWS-1
#[test]
fn every_write_is_refused_to_who_is_alone() {
    let Some(fixture) = replica() else { return };
    let join = ("PLAIT_JOIN", "when needed");
    let (subject, database) = (&fixture.subject, fixture.database());
    let mut lone = Actor::start_with_environment("lone", subject, &database, join);
    lone.ok(COUNT);
    assert!(!fixture.side_file("-plait-shm").exists(), "it is alone");
    let run = |sql: &str| lone.run(sql).error.map_or(Ok(()), |e| Err((e.code, e.message)));
    everything_is_refused(run, &[COUNT]);
    assert_eq!(lone.integer(COUNT), 2);
}

// holds FOLLOWS-1
#[test]
fn blob_handles_maps_and_backups_do_not_write_either() {
    let Some(fixture) = replica() else { return };
    let connection = fixture.open();
    refused(connection.open_blob("m", "v", 1, true).map(drop), READONLY, WORDS);
    let mut blob = connection.open_blob("m", "v", 1, false).expect("it is read");
    assert_eq!(blob.read(0, 2).as_deref(), Ok(&[0, 0xff][..]));
    let map = connection.open_map("m", 0).expect("a map");
    assert_eq!(map.get(&Value::from(2)), Ok(Some(Value::from("two"))));
    refused(map.put(&Value::from(3), &Value::from(3)), READONLY, WORDS);
    refused(map.delete(&Value::from(1)).map(drop), READONLY, WORDS);
    refused(map.add(&Value::from(3), 1).map(drop), READONLY, WORDS);
    drop((blob, map));
    let source = fixture.subject.open(&fixture.path("source.db")).expect("it opens");
    source.execute("CREATE TABLE other(x)").expect("a table");
    refused(source.backup_to(&connection).map(drop), READONLY, "");
    let said = connection.errmsg();
    assert!(said.contains(WORDS), "sqlite3_backup_finish() says it: {said}");
    assert_eq!(integer(&connection, "SELECT count(*) FROM m"), 2);
    let copy = fixture.subject.open(&fixture.path("copy.db")).expect("it opens");
    connection.backup_to(&copy).expect("a replica can be copied");
    copy.execute("INSERT INTO t VALUES(9, 9)").expect("and the copy written");
    connection
        .execute(&format!("VACUUM INTO '{}'", fixture.path("into.db").display()))
        .expect("as well");
}

#[test]
fn attached_databases_are_written_and_an_attached_replica_is_not() {
    let Some(fixture) = replica() else { return };
    let own = fixture.path("own.db");
    let connection = fixture.subject.create(&own).expect("it is made");
    connection.execute("CREATE TABLE o(x)").expect("a table");
    connection
        .execute(&format!("ATTACH '{}' AS r", fixture.database().display()))
        .expect("it is attached");
    connection.execute("INSERT INTO o SELECT id FROM r.t").expect("it is copied out");
    for sql in ["INSERT INTO r.t VALUES(9, 9)", "BEGIN; INSERT INTO o VALUES(1); DELETE FROM r.t"] {
        refused(connection.execute(sql), READONLY, WORDS);
    }
    connection.execute("COMMIT").expect("what was refused is not in it");
    assert_eq!(integer(&connection, "SELECT count(*) FROM o"), 3);
    assert_eq!(integer(&connection, "SELECT count(*) FROM r.t"), 2);
    assert_eq!(integer(&connection, "SELECT plait_replica_time('r')"), 1_764_380_000_000);
    assert_eq!(connection.value("SELECT plait_replica_time()"), Ok(Value::Null));
}

#[test]
fn the_shell_shows_it_as_one_that_is_read_and_says_why() {
    let Some(fixture) = replica() else { return };
    let shell = paths::shell().expect("it is built");
    let run = |sql: &str| {
        let mut command = Command::new(&shell);
        let output = command.arg(fixture.database()).arg(sql).output().expect("it starts");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    };
    let (_, listed) = run(".databases");
    assert!(listed.contains("app.db r/o"), "{listed}");
    for sql in ["INSERT INTO t VALUES(9, 9)", "CREATE TABLE u(x)"] {
        let (is_done, said) = run(sql);
        assert!(!is_done && said.contains(WORDS), "{said}");
    }
    assert_eq!(run(COUNT), (true, "2\n".to_owned()));
}

// holds FOLLOWS-2
#[test]
fn what_a_killed_writer_has_left_is_recovered_and_the_last_one_to_close_merges() {
    let Some(subject) = real_plait("replicas_read_only") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let (subject, database) = (&fixture.subject, fixture.database());
    let mut writer = Actor::start(Place::Processes, "writer", subject, &database);
    writer.ok("INSERT INTO t VALUES(3, 3)");
    writer.kill();
    assert!(fixture.side_file("-plait").exists());
    put(&fixture, &mark(1, 0, 3));
    let mut reader = Actor::start(Place::Processes, "reader", subject, &database);
    assert_eq!(reader.integer(COUNT), 3);
    reader.fails("DELETE FROM t", READONLY);
    assert!(fixture.side_file("-plait-shm").exists(), "it is a member");
    reader.close().expect("it closes");
    for suffix in ["-plait", "-plait-shm", "-wal", "-shm"] {
        assert!(!fixture.side_file(suffix).exists(), "{suffix} is left");
    }
    let bytes = std::fs::read(&database).expect("it is read");
    assert_eq!(&bytes[18..20], [3, 2], "it is at rest, and a replica");
    let stock = Subject::stock().open(&database).expect("it is a plain file");
    assert_eq!(integer(&stock, COUNT), 3);
}

#[test]
fn who_had_it_open_before_goes_on_and_without_the_mark_it_is_written_again() {
    let Some(subject) = real_plait("replicas_read_only") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let before = fixture.open();
    before.execute("INSERT INTO t VALUES(3, 3)").expect("it writes");
    put(&fixture, &mark(1, 0, 3));
    let replica = fixture.open();
    refused(replica.execute("DELETE FROM t"), READONLY, WORDS);
    before.execute("INSERT INTO t VALUES(4, 4)").expect("the mark is looked for in opening");
    assert_eq!(integer(&replica, COUNT), 4, "a member sees what another commits");
    std::fs::remove_file(fixture.side_file("-plait-follows")).expect("it is removed");
    refused(replica.execute("DELETE FROM t"), READONLY, "open it again");
    refused(replica.value("SELECT plait_wait(1)"), MISUSE, "open it again");
    assert_eq!(replica.value("SELECT plait_replica_time()"), Ok(Value::Null));
    fixture.open().execute("INSERT INTO t VALUES(5, 5)").expect("it is written");
}

#[test]
fn a_replica_is_not_brought_into_concurrent_mode() {
    let Some(subject) = real_plait("replicas_read_only") else { return };
    for mode in ["wal", "delete"] {
        let fixture = Fixture::empty(subject.clone());
        let made = fixture.open();
        made.execute(&format!("PRAGMA journal_mode={mode}; {SCHEMA}")).expect("it is made");
        drop(made);
        put(&fixture, &mark(1, 0, 3));
        let connection = fixture.open();
        let other = if mode == "wal" { "delete" } else { "wal" };
        for sql in ["PRAGMA journal_mode=concurrent", &format!("PRAGMA journal_mode={other}")] {
            refused(connection.execute(sql), READONLY, WORDS);
        }
        refused(connection.execute("INSERT INTO t VALUES(9, 9)"), READONLY, WORDS);
        let asked = format!("PRAGMA journal_mode={mode}");
        assert_eq!(connection.text(&asked).as_deref(), Ok(mode), "what it has it may ask for");
        assert_eq!(integer(&connection, COUNT), 2);
    }
}

#[test]
fn a_mark_that_says_nothing_makes_it_read_only_all_the_same() {
    let Some(fixture) = replica() else { return };
    for (text, why) in [
        ("", "it is empty"),
        ("plait replica 2\nplace x\n", "another version of Plait has written it"),
        ("something else\n", "it is damaged"),
        ("plait replica 1\nplace x\nrecord\n", "it is damaged"),
    ] {
        put(&fixture, text);
        let connection = fixture.open();
        let said = connection.execute("DELETE FROM t").expect_err(text);
        assert_eq!(said.code, READONLY, "{said}");
        assert!(said.message.contains(why) && said.message.contains("plait promote"), "{said}");
        assert_eq!(integer(&connection, COUNT), 2);
        for sql in
            ["SELECT plait_replica_time()", "SELECT plait_wait(3, 0)", "SELECT plait_ticket()"]
        {
            refused(connection.value(sql), CANTOPEN, why);
        }
        let row = "SELECT value FROM plait_status WHERE name='replica_error'";
        assert!(connection.text(row).expect("a row").contains(why));
    }
    std::fs::remove_file(fixture.side_file("-plait-follows")).expect("it is removed");
    std::fs::create_dir(fixture.side_file("-plait-follows")).expect("a folder");
    refused(fixture.open().execute("DELETE FROM t"), READONLY, "cannot be used");
}

#[test]
fn the_status_has_what_the_mark_says() {
    let Some(fixture) = replica() else { return };
    let connection = fixture.open();
    let value = |name: &str| {
        let sql = format!("SELECT value FROM plait_status WHERE name='replica_{name}'");
        connection.value(&sql).expect(name)
    };
    assert_eq!(value("place"), Value::from(PLACE));
    assert_eq!(value("record"), Value::from(1234));
    assert_eq!(value("commit"), Value::from(98));
    assert_eq!(value("written_ms"), Value::from(1_764_380_000_000_i64));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
    let lag = i64::try_from(now.as_millis()).expect("it fits") - 1_764_380_000_000;
    let said = value("lag_ms").as_i64().expect("a number");
    assert!((lag - said).abs() < 30_000, "{said} of {lag}");
    assert_eq!(integer(&connection, "SELECT plait_replica_time()"), 1_764_380_000_000);
    put(&fixture, &written(1235, 40, 99, 7));
    assert_eq!(integer(&connection, "SELECT plait_replica_time()"), 7, "it is read at each call");
    assert_eq!(value("record"), Value::from(1235));
}

// holds REPLICA-2
#[test]
fn a_ticket_of_the_primary_is_waited_for() {
    let Some(fixture) = replica() else { return };
    let connection = fixture.open();
    let wait =
        |ticket: i64, ms: i64| connection.integer(&format!("SELECT plait_wait({ticket}, {ms})"));
    for ticket in [0, 40, 98] {
        assert_eq!(wait(ticket, 0), Ok(1), "{ticket}");
    }
    assert_eq!(wait(99, 0), Ok(0));
    let start = Instant::now();
    assert_eq!(wait(99, 80), Ok(0));
    assert!(start.elapsed() >= Duration::from_millis(80));
    refused(wait(39, 1000), MISUSE, "look in the data whether its commit is there");
    refused(wait(-1, 0), MISUSE, "no ticket is negative");
    for function in ["plait_ticket()", "plait_durable()"] {
        assert_eq!(integer(&connection, &format!("SELECT {function}")), 98, "{function}");
    }
    assert_eq!(connection.wait_for_ticket(98), Ok(true), "in C");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for commit in 99..104 {
                std::thread::sleep(Duration::from_millis(30));
                put(&fixture, &mark(1235, 40, commit));
            }
        });
        assert_eq!(connection.integer("SELECT plait_wait(103)"), Ok(1));
        let text = std::fs::read_to_string(fixture.side_file("-plait-follows"));
        assert!(text.expect("it is read").contains("commit 103"));
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(30));
            put(&fixture, &mark(1300, 200, 0));
        });
        refused(wait(104, 30_000), MISUSE, "earlier session");
    });
}

#[test]
fn a_wait_can_be_interrupted() {
    let Some(fixture) = replica() else { return };
    let connection = fixture.open();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            connection.interrupt();
        });
        let error = connection.integer("SELECT plait_wait(1000)").expect_err("interrupted");
        assert_eq!(error.code, plait_tests::sqlite::INTERRUPT, "{error}");
    });
}

#[test]
fn to_open_a_database_costs_one_look_for_the_mark() {
    let Some(fixture) = replica() else { return };
    let trace = fixture.path("trace");
    let shell = paths::shell().expect("it is built");
    let traced = Command::new("strace")
        .args(["-f", "-o"])
        .arg(&trace)
        .arg(shell)
        .arg(fixture.database())
        .arg("SELECT 1 FROM t; BEGIN; SELECT 2 FROM t; COMMIT; SELECT 3 FROM t")
        .status();
    if !traced.is_ok_and(|status| status.success()) {
        eprintln!("skipped: strace cannot trace here");
        return;
    }
    let text = std::fs::read_to_string(&trace).expect("it is written");
    let looks = text.lines().filter(|line| line.contains("app.db-plait-follows\"")).count();
    assert_eq!(looks, 1, "{text}");
}
