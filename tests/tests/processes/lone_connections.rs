//! A connection that nobody is beside works as with stock SQLite, and joins a session when somebody comes or it needs to.

use plait_tests::actor::Actor;
use plait_tests::crash::disk::{SmallDisk, as_nobody};
use plait_tests::in_threads_and_processes;
use plait_tests::job::{Job, Work};
use plait_tests::jobs::process_rules::{CHILD_REFUSED, Fork};
use plait_tests::place::Place;
use plait_tests::powercut::recording::{Operation, Recording};
use plait_tests::sqlite::{BUSY, BUSY_SNAPSHOT, Connection, FULL, Step};
use plait_tests::subject::{Fixture, Subject, real_plait};
use plait_tests::{os, paths};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

const ROWS: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, val TEXT); CREATE INDEX t_val ON t(val);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<500) INSERT INTO t SELECT i, 'v'||i FROM n;";
const COUNT: &str = "SELECT count(*) FROM t";
const INSERT: &str = "INSERT INTO t(val) VALUES('new')";

fn fixture() -> Option<Fixture> {
    os::allow_alone();
    real_plait("alone").map(|subject| Fixture::new(subject, ROWS))
}

fn has_session(fixture: &Fixture) -> bool {
    fixture.side_file("-plait-shm").exists()
}

fn actor(place: Place, name: &str, fixture: &Fixture) -> Actor {
    Actor::start(place, name, &fixture.subject, &fixture.database())
}

/// What each of two processes does from opening to closing, so often that they meet in every way.
const SHORT_WRITERS_TURNS: usize = 8_000;
/// `SQLITE_MISUSE`.
const MISUSE: i32 = 21;

/// One row of one column, whatever it is.
fn rows(connection: &Connection) -> i64 {
    connection.integer(COUNT).expect("it is counted")
}

#[test]
fn who_is_alone_needs_no_session_for_what_stock_sqlite_can_do() {
    let Some(fixture) = fixture() else { return };
    let lone = fixture.open();
    for sql in [
        COUNT,
        "PRAGMA journal_mode",
        "PRAGMA journal_mode=wal",
        "PRAGMA journal_mode=concurrent",
        INSERT,
        "BEGIN IMMEDIATE; INSERT INTO t(val) VALUES('a'); SAVEPOINT s; DELETE FROM t WHERE id<5; ROLLBACK TO s; COMMIT",
        "BEGIN; INSERT INTO t(val) VALUES('b'); ROLLBACK",
        "BEGIN EXCLUSIVE; INSERT INTO t(val) VALUES('c'); ROLLBACK",
        "CREATE TABLE u(x); DROP TABLE u",
        "PRAGMA user_version=7",
        "PRAGMA integrity_check",
        "PRAGMA wal_checkpoint(TRUNCATE)",
    ] {
        lone.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert!(!has_session(&fixture), "{sql}");
        assert!(!fixture.side_file("-plait").exists(), "{sql}");
    }
    for ask in ["PRAGMA journal_mode", "PRAGMA journal_mode=wal", "PRAGMA journal_mode=concurrent"]
    {
        assert_eq!(lone.text(ask).as_deref(), Ok("concurrent"), "{ask}");
    }
    assert_eq!(rows(&lone), 502);
    drop(lone);
    let stock = Subject::stock().open(&fixture.database()).expect("it is a plain file");
    assert_eq!(rows(&stock), 502);
    assert_eq!(stock.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

#[test]
fn what_only_a_member_can_do_makes_it_one() {
    for sql in [
        "BEGIN CONCURRENT; INSERT INTO t(val) VALUES('c'); COMMIT",
        "PRAGMA plait_begin=concurrent; BEGIN; INSERT INTO t(val) VALUES('c'); COMMIT",
        "BEGIN; SELECT count(*) FROM t; INSERT INTO t(val) VALUES('d'); COMMIT",
        "SAVEPOINT s; SELECT count(*) FROM t; INSERT INTO t(val) VALUES('d'); RELEASE s",
        "ATTACH ':memory:' AS m; INSERT INTO t(val) VALUES('f')",
        "SELECT * FROM plait_status; INSERT INTO t(val) VALUES('g')",
        "PRAGMA plait_background_merge; INSERT INTO t(val) VALUES('h')",
    ] {
        let Some(fixture) = fixture() else { return };
        let lone = fixture.open();
        lone.execute(INSERT).expect("it inserts alone");
        assert!(!has_session(&fixture), "{sql}");
        lone.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert!(has_session(&fixture), "{sql}");
        assert_eq!(rows(&lone), 502, "{sql}");
        assert_eq!(fixture.open().integer(COUNT), Ok(502), "{sql}");
    }
}

#[test]
fn who_writes_or_reads_for_long_joins() {
    for (sql, few, new) in [(INSERT, 100, 1), ("SELECT val FROM t WHERE id=7", 500, 0)] {
        let Some(fixture) = fixture() else { return };
        let lone = fixture.open();
        lone.execute("PRAGMA synchronous=OFF").expect("a level");
        let mut done = 0;
        while !has_session(&fixture) {
            lone.execute(sql).expect("it inserts or reads");
            done += 1;
            assert!(done < 2000, "no session was begun: {sql}");
        }
        assert!(done > few, "a few transactions are not worth it: {sql}");
        assert_eq!(rows(&lone), 500 + new * done);
        drop(lone);
        assert_eq!(rows(&fixture.open()), 500 + new * done);
    }
}

in_threads_and_processes! {
    fn a_second_one_makes_both_members(place) {
        let Some(fixture) = fixture() else { return };
        let mut first = actor(place, "first", &fixture);
        let mut second = actor(place, "second", &fixture);
        first.ok(INSERT);
        assert_eq!(second.integer(COUNT), 501);
        first.ok(INSERT);
        assert_eq!(second.integer(COUNT), 502);
        assert!(has_session(&fixture));
        first.ok("BEGIN CONCURRENT; UPDATE t SET val='x' WHERE id=1");
        second.ok("BEGIN CONCURRENT; UPDATE t SET val='y' WHERE id=2");
        first.ok("COMMIT");
        second.ok("COMMIT");
        assert_eq!(first.integer("SELECT count(*) FROM t WHERE val IN ('x', 'y')"), 2);
    }

    fn who_comes_to_an_idle_one_and_does_little_needs_no_session(place) {
        let Some(fixture) = fixture() else { return };
        let mut first = actor(place, "first", &fixture);
        first.ok(INSERT);
        let mut visitor = actor(place, "visitor", &fixture);
        assert_eq!(visitor.integer(COUNT), 501);
        visitor.ok(INSERT);
        visitor.ok("BEGIN IMMEDIATE; INSERT INTO t(val) VALUES('visiting'); COMMIT");
        visitor.ok("BEGIN; UPDATE t SET val='seen' WHERE id=1; COMMIT");
        assert!(!has_session(&fixture));
        visitor.close().expect("it closes");
        assert_eq!(first.integer(COUNT), 503);
        first.ok(INSERT);
        assert!(!has_session(&fixture));
        first.close().expect("it closes");
        assert_eq!(rows(&fixture.open()), 504);
    }

    fn who_comes_to_an_idle_one_and_stays_joins(place) {
        let Some(fixture) = fixture() else { return };
        let mut first = actor(place, "first", &fixture);
        first.ok(INSERT);
        let mut second = actor(place, "second", &fixture);
        let mut done = 0;
        while !has_session(&fixture) {
            second.ok(INSERT);
            done += 1;
            assert!(done < 100, "no session was begun");
        }
        assert!(done > 5, "a few transactions are no stay");
        assert_eq!(first.integer(COUNT), 501 + done);
        assert_eq!(second.integer(COUNT), 501 + done);
    }

    fn who_comes_to_an_idle_one_joins_for_what_only_a_member_can_do(place) {
        for sql in ["BEGIN CONCURRENT; INSERT INTO t(val) VALUES('c'); COMMIT", "BEGIN; SELECT count(*) FROM t; COMMIT"] {
            let Some(fixture) = fixture() else { return };
            let mut first = actor(place, "first", &fixture);
            first.ok(INSERT);
            let mut second = actor(place, "second", &fixture);
            second.ok(INSERT);
            assert!(!has_session(&fixture), "{sql}");
            second.ok(sql);
            assert!(has_session(&fixture), "{sql}");
            first.ok(INSERT);
        }
    }

    fn a_transaction_written_alone_keeps_the_second_one_waiting(place) {
        let Some(fixture) = fixture() else { return };
        let mut first = actor(place, "first", &fixture);
        let mut second = actor(place, "second", &fixture);
        first.ok("BEGIN IMMEDIATE; INSERT INTO t(val) VALUES('first')");
        assert!(!has_session(&fixture));
        assert_eq!(second.integer(COUNT), 500, "reading waits for nobody");
        second.busy_timeout(Duration::from_millis(200));
        let writer = if place == Place::Processes { first.pid() } else { std::process::id() };
        let told = second.fails(INSERT, BUSY).message;
        assert!(told.starts_with("database is locked: "), "{told}");
        assert!(told.contains(&format!("process {writer}, which works alone")), "{told}");
        assert!(told.contains("(waited "), "{told}");
        second.ok("BEGIN CONCURRENT");
        second.fails(INSERT, BUSY);
        second.ok("ROLLBACK");
        second.busy_timeout(Duration::from_secs(30));
        second.send(INSERT);
        assert!(second.still_waits_after(Duration::from_millis(100)));
        first.ok("COMMIT");
        assert_eq!(second.finish().error, None);
        assert_eq!(first.integer(COUNT), 502);
        assert_eq!(second.integer(COUNT), 502);
    }

    // holds ALONE-2
    fn who_has_begun_to_read_alone_is_told_when_somebody_has_committed_since(place) {
        let Some(fixture) = fixture() else { return };
        let mut first = actor(place, "first", &fixture);
        let mut second = actor(place, "second", &fixture);
        first.open_cursor("c", "SELECT id FROM t");
        first.step_cursor("c", 1);
        second.ok(INSERT);
        let error = first.fails(INSERT, BUSY_SNAPSHOT & 0xff);
        assert_eq!(error.extended, BUSY_SNAPSHOT);
        for word in ["no other connection was open", "retry"] {
            assert!(error.message.contains(word), "{error}");
        }
        first.close_cursor("c");
        first.ok(INSERT);
        assert_eq!(second.integer(COUNT), 502);
    }

    fn who_reads_alone_and_writes_with_nobody_between_loses_nothing(place) {
        let Some(fixture) = fixture() else { return };
        let mut first = actor(place, "first", &fixture);
        first.open_cursor("c", "SELECT id FROM t");
        first.step_cursor("c", 1);
        first.ok(INSERT);
        let mut second = actor(place, "second", &fixture);
        assert_eq!(second.integer(COUNT), 501);
        first.ok(INSERT);
        first.close_cursor("c");
        assert_eq!(second.integer(COUNT), 502);
        second.ok(INSERT);
        assert_eq!(first.integer(COUNT), 503);
    }

    fn leaving_the_mode_alone_works_and_keeps_everything(place) {
        let Some(fixture) = fixture() else { return };
        let mut lone = actor(place, "lone", &fixture);
        lone.ok(INSERT);
        assert_eq!(lone.ok("PRAGMA journal_mode=delete").len(), 1);
        assert_eq!(lone.integer(COUNT), 501);
        lone.close().expect("it closes");
        let stock = Subject::stock().open(&fixture.database()).expect("it is a plain file");
        assert_eq!(stock.text("PRAGMA journal_mode").as_deref(), Ok("delete"));
        assert_eq!(rows(&stock), 501);
    }
}

#[test]
fn what_one_that_was_killed_alone_had_committed_is_there() {
    let Some(fixture) = fixture() else { return };
    let mut doomed = actor(Place::Processes, "doomed", &fixture);
    doomed.ok(INSERT);
    doomed.ok("BEGIN IMMEDIATE; DELETE FROM t");
    assert!(!has_session(&fixture));
    doomed.kill();
    let next = fixture.open();
    assert_eq!(rows(&next), 501);
    assert_eq!(next.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

#[test]
fn a_second_copy_of_the_library_in_the_process_is_refused_beside_a_lone_connection() {
    let Some(fixture) = fixture() else { return };
    let lone = fixture.open();
    lone.execute("BEGIN IMMEDIATE; INSERT INTO t(val) VALUES('new')").expect("it writes alone");
    let library = fixture.path("copy-of-libsqlite3.so.0");
    std::fs::copy(&fixture.subject.library, &library).expect("it can be copied");
    let copy = Subject { library, ..fixture.subject.clone() };
    let second = copy.open(&fixture.database()).expect("nothing is read yet");
    let error =
        second.integer(COUNT).expect_err("its locks mean nothing beside those of the first");
    assert_eq!(error.code, MISUSE, "{error}");
    assert!(error.message.contains("another copy of the library"), "{error}");
    lone.execute("COMMIT").expect("it commits");
    drop(second);
    drop(lone);
    assert_eq!(rows(&fixture.open()), 501);
}

// holds ALONE-3
#[test]
fn checkpoints_of_who_is_alone_are_synced_under_off_too() {
    let Some(fixture) = fixture() else { return };
    for sql in [
        "PRAGMA synchronous=OFF; INSERT INTO t(val) VALUES('off')",
        "INSERT INTO t(val) VALUES('full'); PRAGMA synchronous=OFF",
        "SELECT * FROM t; PRAGMA synchronous=OFF; INSERT INTO t(val) VALUES('off'); PRAGMA wal_checkpoint",
    ] {
        let recording = Recording::of(fixture.directory());
        let mut lone = recording.actor("lone", &fixture.subject, None);
        lone.open(&fixture.database()).expect("it opens");
        lone.ok(sql);
        assert!(!has_session(&fixture), "{sql}");
        lone.close().expect("it closes");
        let operations = recording.operations().expect("a record");
        let is = |name: &str, suffix: &str| name.ends_with(&format!("app.db{suffix}"));
        let first_write = operations
            .iter()
            .position(|operation| matches!(operation, Operation::Write(name, ..) if is(name, "")));
        let (before, after) =
            operations.split_at(first_write.expect("the last to close checkpoints"));
        let synced = |operations: &[Operation], suffix: &str| {
            operations.iter().any(
                |operation| matches!(operation, Operation::SyncEnded(name, _) if is(name, suffix)),
            )
        };
        assert!(synced(before, "-wal"), "{sql}: the WAL comes first");
        assert!(synced(after, ""), "{sql}: the file is synced before the WAL goes");
    }
}

// holds ALONE-5, CHILD-1
#[test]
fn the_child_of_a_fork_is_refused_and_its_parent_goes_on() {
    let Some(fixture) = fixture() else { return };
    for sql in ["INSERT INTO forked VALUES(100)", "SELECT * FROM forked", "BEGIN IMMEDIATE"] {
        let work = Work::Fork(Fork { sql: sql.to_owned() });
        let job = Job { subject: fixture.subject.clone(), database: fixture.database(), work };
        let result: serde_json::Value = job.start(Place::Processes).result(Duration::from_secs(30));
        assert_eq!(result["child"], CHILD_REFUSED, "{sql}");
        assert_eq!(result["rows"], 2, "{sql}");
        fixture.open().execute("DROP TABLE forked").expect("for the next");
    }
    assert!(!has_session(&fixture));
}

/// Which of these change the `data_version` of the first connection, which joins and leaves the session among them.
fn changes_of_data_version(subject: &Subject, page_size: u32) -> Vec<(String, bool)> {
    let fixture = Fixture::empty(subject.clone());
    let new = fixture.open();
    new.execute(&format!("PRAGMA page_size={page_size}")).expect("of a new file");
    subject.convert(&new).expect("the mode");
    new.execute(ROWS).expect("a table");
    drop(new);
    let first = fixture.open();
    let ask = || first.integer("PRAGMA data_version").expect("a number");
    let mut changes = Vec::new();
    let mut last = ask();
    let mut look = |what: String| {
        let now = ask();
        changes.push((what, now != last));
        last = now;
    };
    look("itself".into());
    first.execute(INSERT).expect("it inserts alone");
    look("an own write, alone".into());
    let by_first = |sql: &str| first.execute(sql).expect("the first one's");
    let other = || fixture.open();
    for round in 0..2 {
        by_first("BEGIN; SELECT * FROM t; COMMIT");
        look(format!("{round}: joining"));
        let second = other();
        look(format!("{round}: company"));
        second.execute(INSERT).expect("it inserts");
        look(format!("{round}: the other's write"));
        by_first(INSERT);
        look(format!("{round}: an own write, as a member"));
        drop(second);
        look(format!("{round}: the other has gone"));
        by_first("PRAGMA journal_mode=delete");
        subject.convert(&first).expect("the mode");
        look(format!("{round}: out of the mode and back"));
    }
    drop(other());
    look("seen".into());
    let second = other();
    second.execute(INSERT).expect("it inserts");
    second.execute("PRAGMA journal_mode=delete").expect_err("beside the first");
    look("the other's write before anything was read beside it".into());
    changes
}

#[test]
fn data_version_goes_on_when_its_connection_joins_or_leaves_a_session() {
    os::allow_alone();
    for page_size in [512, 4096] {
        let stock = changes_of_data_version(&Subject::stock(), page_size);
        assert!(stock.iter().any(|(_, changed)| *changed));
        let plait = changes_of_data_version(&Subject::plait(), page_size);
        assert_eq!(plait, stock, "{page_size}");
    }
}

#[test]
fn who_wants_to_write_beside_a_lone_writer_waits_for_its_busy_timeout_once() {
    let Some(fixture) = fixture() else { return };
    let lone = fixture.open();
    lone.execute("BEGIN IMMEDIATE; INSERT INTO t(val) VALUES('lone')").expect("it writes");
    for sql in ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", INSERT] {
        let second = fixture.open();
        second.busy_timeout(Duration::from_secs(4)).expect("a timeout");
        let begun = Instant::now();
        let error = second.execute(sql).expect_err("the other one holds the lock");
        assert_eq!(error.code & 0xff, BUSY, "{sql}: {error}");
        let waited = begun.elapsed();
        assert!(
            waited > Duration::from_secs(3) && waited < Duration::from_secs(7),
            "{sql}: {waited:?}"
        );
    }
    // Without a timeout not at all: the shortest of some tries, however busy the machine is.
    let second = fixture.open();
    second.busy_timeout(Duration::ZERO).expect("none");
    let tried = |_| {
        let begun = Instant::now();
        second.execute(INSERT).expect_err("the other one holds the lock");
        begun.elapsed()
    };
    assert!((0..20).map(tried).min() < Some(Duration::from_millis(50)));
    lone.execute("COMMIT").expect("it commits");
    assert_eq!(rows(&lone), 501);
}

#[test]
fn who_may_not_write_in_the_folder_reads_beside_a_lone_connection_as_in_stock() {
    let Some(fixture) = fixture() else { return };
    for (path, mode) in [(fixture.directory().to_owned(), 0o755), (fixture.database(), 0o666)] {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("permissions");
    }
    let lone = fixture.open();
    lone.execute(INSERT).expect("it inserts alone");
    let Some(answer) = as_nobody(&fixture.database(), COUNT) else { return };
    assert_eq!(answer.as_deref(), Ok("501"));
    assert!(!has_session(&fixture));
    assert_eq!(rows(&lone), 501);
}

#[test]
fn what_a_killed_process_has_left_of_a_session_goes_with_the_next_connection() {
    let Some(fixture) = fixture() else { return };
    let mut reader = actor(Place::Processes, "reader", &fixture);
    reader.ok("BEGIN; SELECT * FROM t");
    assert!(has_session(&fixture));
    reader.kill();
    assert!(has_session(&fixture));
    drop_after(&fixture, INSERT);
    assert!(!has_session(&fixture));
    // Half made.
    std::fs::write(fixture.side_file("-plait-new"), b"").expect("a file");
    drop_after(&fixture, COUNT);
    assert!(!fixture.side_file("-plait-new").exists());
    assert_eq!(rows(&fixture.open()), 501);
}

/// Opens, runs a statement and closes.
fn drop_after(fixture: &Fixture, sql: &str) {
    fixture.open().execute(sql).expect("it runs");
}

#[test]
fn a_file_with_a_second_name_is_not_worked_on_alone() {
    let Some(fixture) = fixture() else { return };
    std::fs::hard_link(fixture.database(), fixture.path("second.db")).expect("a second name");
    let first = fixture.open();
    first.execute(INSERT).expect("it inserts");
    assert!(has_session(&fixture), "whoever comes by the other name is to be kept out");
    let second = fixture.subject.open(&fixture.path("second.db")).expect("nothing is read yet");
    assert!(second.integer(COUNT).is_err());
    assert_eq!(rows(&first), 501);
}

#[test]
fn a_backup_onto_a_lone_database_keeps_its_mode() {
    let Some(fixture) = fixture() else { return };
    let source = fixture.subject.library().open(fixture.path("source.db")).expect("it opens");
    source.execute("CREATE TABLE s(x); INSERT INTO s VALUES(1)").expect("a source");
    let lone = fixture.open();
    lone.execute(INSERT).expect("it inserts alone");
    source.backup_to(&lone).expect("it is copied");
    assert_eq!(lone.integer("SELECT x FROM s"), Ok(1));
    assert_eq!(lone.text("PRAGMA journal_mode").as_deref(), Ok("concurrent"));
    drop(lone);
    assert_eq!(fixture.open().integer("SELECT x FROM s"), Ok(1));
}

/// Opens, adds one in one of many ways, now and then a few times, and closes: returns how often it was told that it had worked.
fn come_and_go(subject: &Subject, database: &std::path::Path, seed: u64, stop: &AtomicBool) -> i64 {
    const WAYS: [&str; 6] = [
        "UPDATE c SET n=n+1",
        "BEGIN; UPDATE c SET n=n+1; COMMIT",
        "BEGIN; SELECT n FROM c; UPDATE c SET n=n+1; COMMIT",
        "BEGIN IMMEDIATE; SELECT n FROM c; UPDATE c SET n=n+1; COMMIT",
        "BEGIN CONCURRENT; SELECT n FROM c; UPDATE c SET n=n+1; COMMIT",
        "BEGIN EXCLUSIVE; UPDATE c SET n=n+1; COMMIT",
    ];
    let mut dice = seed;
    let mut roll = |sides: u64| {
        dice = dice.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (dice >> 33) % sides
    };
    let mut done = 0;
    while !stop.load(Ordering::Relaxed) {
        let connection = subject.open(database).expect("it opens");
        let mut seen = 0;
        for _ in 0..=roll(4) {
            let sql = WAYS[usize::try_from(roll(WAYS.len() as u64)).expect("small")];
            match connection.execute(sql) {
                Ok(()) => done += 1,
                Err(error) => {
                    assert!(error.is_busy(), "{sql}: {error}");
                    if !connection.autocommit() {
                        connection.execute("ROLLBACK").expect("it can be rolled back");
                    }
                }
            }
            let now = connection.integer("SELECT n FROM c").expect("a reader is never busy");
            assert!(now >= seen, "reads of one connection went back from {seen} to {now}");
            seen = now;
        }
        connection.close().expect("it closes");
        if roll(3) == 0 {
            std::thread::sleep(Duration::from_millis(roll(20)));
        }
    }
    done
}

#[test]
fn nothing_is_lost_while_several_come_and_go() {
    os::allow_alone();
    let Some(subject) = real_plait("alone") else { return };
    let fixture = Fixture::new(subject, "CREATE TABLE c(n); INSERT INTO c VALUES(0);");
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::new(AtomicI64::new(0));
    let crew: Vec<_> = (0..3)
        .map(|seed| {
            let (stop, told) = (stop.clone(), told.clone());
            let (subject, database) = (fixture.subject.clone(), fixture.database());
            std::thread::spawn(move || {
                told.fetch_add(come_and_go(&subject, &database, seed, &stop), Ordering::Relaxed);
            })
        })
        .collect();
    // The same from processes, which die now and then.
    let end = Instant::now() + Duration::from_secs(6);
    let mut others = 0;
    let mut in_doubt = 0;
    while Instant::now() < end {
        let mut actor = actor(Place::Processes, "visitor", &fixture);
        for sql in ["UPDATE c SET n=n+1", "BEGIN IMMEDIATE; UPDATE c SET n=n+1; COMMIT"] {
            let reply = actor.run(sql);
            assert!(reply.error.as_ref().is_none_or(|e| e.is_busy()), "{:?}", reply.error);
            others += i64::from(reply.error.is_none());
        }
        actor.send("UPDATE c SET n=n+1");
        in_doubt += 1;
        actor.kill();
    }
    stop.store(true, Ordering::Relaxed);
    for thread in crew {
        thread.join().expect("nobody failed");
    }
    let total = fixture.open().integer("SELECT n FROM c").expect("a total");
    let told = told.load(Ordering::Relaxed) + others;
    assert!(told > 0);
    assert!(
        (told..=told + in_doubt).contains(&total),
        "{told} acknowledged, {in_doubt} in doubt, {total} there"
    );
}

/// To join takes space, to read does not.
#[test]
fn who_only_reads_needs_no_space_to_join() {
    os::allow_alone();
    let Some(subject) = real_plait("alone") else { return };
    let Some(disk) = SmallDisk::mount(90) else { return };
    subject.create(&disk.database()).expect("a database").execute(ROWS).expect("rows");
    let lone = subject.open(&disk.database()).expect("it opens");
    lone.execute(INSERT).expect("it inserts alone");
    let second = subject.open(&disk.database()).expect("it opens");
    assert_eq!(rows(&second), 501);
    disk.fill_but(0);
    let third = subject.open(&disk.database()).expect("it opens");
    for connection in [&lone, &second, &third] {
        assert_eq!(rows(connection), 501);
        connection.execute("BEGIN").expect("it begins");
        assert_eq!(rows(connection), 501);
        connection.execute("COMMIT").expect("it has read");
    }
    let error = lone.execute(INSERT).expect_err("there is no space");
    assert_eq!(error.code, FULL, "{error}");
    assert_eq!(rows(&lone), 501);
    disk.empty();
    for connection in [&lone, &second, &third] {
        connection.execute(INSERT).expect("there is space");
        connection.execute("BEGIN; SELECT count(*) FROM t").expect("a read");
        connection.execute("INSERT INTO t(val) VALUES('more'); COMMIT").expect("there is space");
    }
    assert_eq!(rows(&third), 507);
}

/// A SELECT that was begun alone and is still open keeps its handle alone, and what that writes then as well.
#[test]
fn what_was_read_alone_is_not_changed_with_a_file_that_is_attached_later() {
    for mode in ["delete", "concurrent"] {
        let Some(fixture) = fixture() else { return };
        let other = fixture.path("other.db");
        let made = fixture.subject.library().open(&other).expect("another database");
        made.execute(&format!("PRAGMA journal_mode={mode}; CREATE TABLE o(x)")).expect("a table");
        made.close().expect("closed");
        let lone = fixture.open();
        let mut reading = lone.prepare("SELECT id FROM t").expect("a query");
        assert_eq!(reading.step(), Ok(Step::Row));
        lone.execute(&format!("ATTACH '{}' AS other", other.display())).expect("attached");
        lone.execute("BEGIN; INSERT INTO t(val) VALUES('alone')").expect("a change");
        assert!(!has_session(&fixture), "it is alone");
        let error = lone.execute("INSERT INTO other.o VALUES(1)").expect_err("not in one commit");
        assert_eq!(error.code, 1, "{mode}: {error}");
        let words = "began before the other file was attached; roll back and begin again";
        assert!(error.message.contains(words), "{mode}: {error}");
        lone.execute("COMMIT").expect("it ends");
        drop(reading);
        lone.execute(
            "BEGIN; INSERT INTO main.t(val) VALUES('b'); INSERT INTO other.o VALUES(1); COMMIT",
        )
        .expect("the next may change both");
        assert_eq!(rows(&fixture.open()), 502, "{mode}");
        assert_eq!(lone.integer("SELECT count(*) FROM other.o"), Ok(1), "{mode}");
    }
}

#[test]
fn what_was_begun_alone_is_not_joined_by_a_file_that_is_attached_later_and_says_what_to_do() {
    for ends in ["ROLLBACK", "COMMIT"] {
        let Some(fixture) = fixture() else { return };
        let other = fixture.path("other.db");
        let made = fixture.subject.create(&other).expect("another database");
        made.execute("CREATE TABLE o(x)").expect("a table");
        made.close().expect("closed");
        let lone = fixture.open();
        assert_eq!(rows(&lone), 500);
        lone.execute("BEGIN; INSERT INTO t(val) VALUES('alone')").expect("a change");
        assert!(!has_session(&fixture), "it is alone");
        lone.execute(&format!("ATTACH '{}' AS other", other.display())).expect("attached");
        let error = lone.execute("INSERT INTO other.o VALUES(1)").expect_err("not in one commit");
        assert_eq!(error.code, 1, "{error}");
        let words = "began before the other file was attached; roll back and begin again";
        assert!(error.message.contains(words), "{error}");
        assert!(!lone.autocommit(), "the transaction is as it was");
        lone.execute("INSERT INTO t(val) VALUES('more')").expect("and goes on in its file");
        lone.execute(ends).expect("it ends");
        let kept = if ends == "COMMIT" { 502 } else { 500 };
        assert_eq!(rows(&lone), kept, "{ends}");
        lone.execute(
            "BEGIN; INSERT INTO main.t(val) VALUES('b'); INSERT INTO other.o VALUES(1); COMMIT",
        )
        .expect("the next may change both");
        let beside = fixture.open();
        assert_eq!(rows(&beside), kept + 1, "{ends}");
        assert_eq!(lone.integer("SELECT count(*) FROM other.o"), Ok(1), "{ends}");
    }
}

/// Each opens, writes and closes: now beside somebody, now alone. Whichever of the two a writer finds himself to be, he waits for the other.
#[test]
fn short_writers_that_meet_wait_for_each_other() {
    os::allow_alone();
    let Some(subject) = real_plait("short writers") else { return };
    // In memory, where they meet more often.
    let memory = tempfile::Builder::new().prefix("plait-test-").tempdir_in("/dev/shm");
    let place = memory.as_ref().ok().map(|folder| folder.path().join("app.db"));
    let schema = "CREATE TABLE t(id INTEGER PRIMARY KEY, n)";
    let fixture = Fixture::new_at(subject, schema, place);
    let library = paths::plait_library().expect("the library");
    let turn = format!(
        ".open {}\n.timeout 10000\nINSERT INTO t(n) VALUES(1);\nBEGIN IMMEDIATE; INSERT INTO t(n) VALUES(2); COMMIT;\n",
        fixture.database().display()
    );
    let script = fixture.path("script.sql");
    std::fs::write(&script, turn.repeat(SHORT_WRITERS_TURNS)).expect("a script");
    let writers = [0, 1].map(|_| {
        Command::new(paths::shell().expect("the shell"))
            .env("LD_LIBRARY_PATH", library.parent().expect("its folder"))
            .stdin(std::fs::File::open(&script).expect("the script"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the shell starts")
    });
    for writer in writers {
        let output = writer.wait_with_output().expect("it ends");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "nobody is refused");
    }
    let rows = 2 * 2 * SHORT_WRITERS_TURNS as i64;
    assert_eq!(fixture.open().integer("SELECT count(*) FROM t"), Ok(rows));
}

/// It tries, and waits, and tries again. Who begins a session meanwhile needs a lock that SQLite's own waiting would hold.
#[test]
fn a_checkpoint_outside_of_a_session_that_waits_for_a_reader_keeps_nobody_from_beginning_one() {
    let Some(fixture) = fixture() else { return };
    let start = |name| actor(Place::Processes, name, &fixture);
    let (mut reader, mut writer, mut checkpoint) =
        (start("reader"), start("writer"), start("checkpoint"));
    reader.open_cursor("scan", "SELECT id FROM t");
    assert_eq!(reader.step_cursor("scan", 1).error, None);
    writer.ok(INSERT);
    checkpoint.busy_timeout(Duration::from_secs(3));
    checkpoint.send("PRAGMA wal_checkpoint(TRUNCATE)");
    assert!(checkpoint.still_waits_after(Duration::from_millis(300)));
    assert!(!has_session(&fixture));
    let begun = Instant::now();
    writer.busy_timeout(Duration::from_secs(3));
    writer.ok("BEGIN CONCURRENT; INSERT INTO t(val) VALUES('first'); COMMIT");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    reader.close_cursor("scan");
    assert_eq!(checkpoint.finish().error, None);
    assert_eq!(checkpoint.integer(COUNT), 502);
}

/// A connection that is forgotten, or not collected yet, has the old file open.
#[test]
fn a_database_that_is_deleted_beside_a_lone_connection_can_be_made_anew() {
    let Some(fixture) = fixture() else { return };
    let forgotten = fixture.open();
    forgotten.execute(INSERT).expect("it writes alone");
    std::fs::remove_file(fixture.database()).expect("it is deleted");
    let made = fixture.subject.create(&fixture.database()).expect("it is made anew");
    made.execute(ROWS).expect("rows");
    let other = fixture.open();
    other.execute(INSERT).expect("another one writes");
    made.execute("BEGIN CONCURRENT; INSERT INTO t(val) VALUES('more'); COMMIT")
        .expect("it goes on");
    assert_eq!(other.integer(COUNT), Ok(502));
    made.close().expect("it closes");
    other.close().expect("it closes");
    let last = fixture.open();
    assert_eq!(last.integer(COUNT), Ok(502));
    assert_eq!(last.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    drop(forgotten);
}

#[test]
fn a_checkpoint_of_who_has_not_joined_is_made_as_a_member_beside_others() {
    for mode in ["FULL", "RESTART", "TRUNCATE"] {
        let Some(fixture) = fixture() else { return };
        let (idle, writer) = (fixture.open(), fixture.open());
        idle.busy_timeout(Duration::ZERO).expect("none");
        assert!(idle.integer(COUNT).expect("it has looked at the file") >= 500);
        for _ in 0..60 {
            writer.execute(INSERT).expect("nobody is in the way");
        }
        let sql = format!("PRAGMA wal_checkpoint({mode})");
        assert_eq!(idle.integer(&sql), Ok(0), "{mode}: nobody reads");
    }
}
