//! Full disks, read-only disks, directories and files that may not be written: clear errors, and nothing is lost.

use plait_tests::actor::Actor;
use plait_tests::crash::audit::{Acknowledged, Demand, audit, audit_book};
use plait_tests::crash::disk::{SmallDisk, as_nobody};
use plait_tests::jobs::ledger::schema;
use plait_tests::place::Place;
use plait_tests::sqlite::{CANTOPEN, Connection, FULL, READONLY, SqlError};
use plait_tests::subject::{Fixture, Subject, Synchronous, real_plait};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// Enters `filler` bytes as the next entry of worker 1.
fn enter(connection: &Connection, book: &mut Acknowledged, filler: u32) -> Result<(), SqlError> {
    let last = book.0.entry(1).or_default();
    let seq = *last + 1;
    connection.execute(&format!(
        "INSERT INTO entry(worker, seq, source, target, amount, filler) VALUES(1, {seq}, 1, 2, 3, randomblob({filler}))"
    ))?;
    *last = seq;
    Ok(())
}

/// Enters until it fails; the error.
fn enter_until_full(connection: &Connection, book: &mut Acknowledged, filler: u32) -> SqlError {
    for _ in 0..100_000 {
        if let Err(error) = enter(connection, book, filler) {
            return error;
        }
    }
    panic!("the disk is not full after {} entries", book.sum());
}

#[track_caller]
fn says_full(error: &SqlError) {
    assert_eq!(error.code, FULL, "{error}");
}

#[track_caller]
fn sound(connection: &Connection, book: &Acknowledged) {
    audit(connection, book, Demand::Everything).unwrap_or_else(|error| panic!("{error:#}"));
}

/// On a full disk: the book is sound, and an integrity_check that cannot be made says so.
#[track_caller]
fn sound_while_full(connection: &Connection, book: &Acknowledged) {
    audit_book(connection, book, Demand::Everything).unwrap_or_else(|error| panic!("{error:#}"));
    match connection.text("PRAGMA integrity_check") {
        Ok(answer) => assert_eq!(answer, "ok"),
        Err(error) => says_full(&error),
    }
}

#[track_caller]
fn sound_at_rest(database: &Path, book: &Acknowledged) {
    let stock = Subject::stock().open(database).expect("stock opens it");
    sound(&stock, book);
}

fn create(subject: &Subject, disk: &SmallDisk) -> Connection {
    let connection = subject.create(&disk.database()).expect("there is space");
    connection.execute(&schema(false)).expect("the schema");
    connection
}

#[test]
fn a_disk_that_fills_up_fails_commits_clearly_until_there_is_space_again() {
    let Some(subject) = real_plait("a full disk") else { return };
    for synchronous in [Synchronous::Full, Synchronous::Normal] {
        // The last three fail where the log, or memory, grows by little.
        let shapes = [
            (0, 100_000),
            (3 << 20, 20_000),
            (6 << 20, 700_000),
            (0, 300),
            (300 << 10, 3_000),
            (1 << 20, 300),
        ];
        for (free, filler) in shapes {
            let Some(disk) = SmallDisk::mount(110) else { return };
            let connection = create(&subject, &disk);
            connection
                .execute(&format!("PRAGMA synchronous={}", synchronous.number()))
                .expect("a pragma");
            let mut book = Acknowledged::default();
            for _ in 0..5 {
                enter(&connection, &mut book, filler).expect("there is space");
            }
            disk.fill_but(free);
            let error = enter_until_full(&connection, &mut book, filler);
            says_full(&error);
            // What was committed is there for everybody, also for those who come now.
            sound_while_full(&connection, &book);
            let other = subject.open(&disk.database()).expect("it opens beside");
            sound_while_full(&other, &book);
            says_full(&enter_until_full(&other, &mut book, filler));
            disk.empty();
            for _ in 0..5 {
                enter(&connection, &mut book, filler).expect("there is space again");
                enter(&other, &mut book, filler).expect("there is space again");
            }
            connection.execute("PRAGMA wal_checkpoint").expect("a merge");
            sound(&other, &book);
            connection.close().expect("it closes");
            other.close().expect("it closes");
            sound_at_rest(&disk.database(), &book);
        }
    }
}

#[test]
fn a_bulk_load_that_meets_a_full_disk_fails_clearly_and_goes_on_when_there_is_space() {
    let Some(subject) = real_plait("a full disk") else { return };
    for synchronous in [Synchronous::Full, Synchronous::Normal] {
        for free in [0, 50_000, 4 << 20, 25 << 20] {
            let Some(disk) = SmallDisk::mount(110) else { return };
            let connection = subject.create(&disk.database()).expect("there is space");
            connection
                .execute(&format!(
                    "PRAGMA synchronous={}; CREATE TABLE bulk(id INTEGER PRIMARY KEY, filler)",
                    synchronous.number()
                ))
                .expect("a table");
            let mut rows = 0;
            let mut load = || {
                let outcome = connection.execute(&format!(
                    "BEGIN; WITH RECURSIVE n(i) AS (SELECT {rows}+1 UNION ALL SELECT i+1 FROM n WHERE i<{rows}+1000)
                     INSERT INTO bulk SELECT i, randomblob(300) FROM n; COMMIT"
                ));
                if outcome.is_err() && !connection.autocommit() {
                    connection.execute("ROLLBACK").expect("it rolls back");
                }
                outcome.map(|()| rows += 1000)
            };
            for _ in 0..5 {
                load().expect("there is space");
            }
            disk.fill_but(free);
            let error = (0..1000).find_map(|_| load().err()).expect("the disk is full");
            says_full(&error);
            for _ in 0..3 {
                // It may fit after all: the WAL may be used again from its start.
                load().err().iter().for_each(says_full);
            }
            disk.empty();
            for _ in 0..5 {
                load().unwrap_or_else(|error| panic!("{synchronous:?}, {free}: {error}"));
            }
            let other = subject.open(&disk.database()).expect("it opens beside");
            assert_eq!(other.integer("SELECT count(*) FROM bulk"), Ok(rows));
            assert_eq!(other.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
            connection.close().expect("it closes");
            other.close().expect("it closes");
            let stock = Subject::stock().open(&disk.database()).expect("stock opens it");
            assert_eq!(stock.integer("SELECT max(id) FROM bulk"), Ok(rows));
        }
    }
}

#[test]
fn reads_beside_memtables_take_no_room_from_commits_on_a_full_disk() {
    let Some(subject) = real_plait("a full disk") else { return };
    let Some(disk) = SmallDisk::mount(110) else { return };
    let writer = subject.create(&disk.database()).expect("there is space");
    writer
        .execute(
            "PRAGMA synchronous=NORMAL; CREATE TABLE t(id INTEGER PRIMARY KEY, k INTEGER); CREATE INDEX t_k ON t(k);
             WITH RECURSIVE i(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM i WHERE x<20000) INSERT INTO t SELECT x, x*7 FROM i",
        )
        .expect("a table");
    let reader = subject.open(&disk.database()).expect("it opens beside");
    reader.execute("SELECT * FROM t LIMIT 1").expect("a row");
    for first in (1..2000).step_by(40) {
        let sql = format!("UPDATE t SET k=k+1 WHERE id BETWEEN {first} AND {first}+39");
        writer.execute(&sql).expect("an update");
    }
    disk.fill_but(0);
    // Ten times what makes a merge due where there is space.
    let sum = reader.integer("SELECT sum(k) FROM t").expect("a sum");
    for _ in 0..1000 {
        assert_eq!(reader.integer("SELECT sum(k) FROM t"), Ok(sum));
    }
    // Memory that is allocated already has room for a few more.
    for id in 1..=10 {
        writer
            .execute(&format!("UPDATE t SET k=k+1 WHERE id={id}"))
            .expect("there was room for it before");
    }
    disk.empty();
    assert_eq!(writer.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    assert_eq!(reader.integer("SELECT sum(k) FROM t"), Ok(sum + 10));
}

#[test]
fn closing_on_a_full_disk_leaves_everything_for_the_next_to_open() {
    let Some(subject) = real_plait("a full disk") else { return };
    let Some(disk) = SmallDisk::mount(110) else { return };
    let connection = create(&subject, &disk);
    let mut book = Acknowledged::default();
    disk.fill_but(0);
    says_full(&enter_until_full(&connection, &mut book, 50_000));
    connection.close().expect("it closes");
    let again = subject.open(&disk.database()).expect("it opens on the full disk");
    sound_while_full(&again, &book);
    again.close().expect("it closes");
    disk.empty();
    let again = subject.open(&disk.database()).expect("it opens");
    enter(&again, &mut book, 100).expect("there is space again");
    again.close().expect("it closes");
    sound_at_rest(&disk.database(), &book);
}

#[test]
fn recovery_on_a_full_disk_fails_clearly_and_succeeds_when_there_is_space() {
    let Some(subject) = real_plait("a full disk") else { return };
    let Some(disk) = SmallDisk::mount(110) else { return };
    let connection = create(&subject, &disk);
    let mut book = Acknowledged::default();
    disk.fill_but(0);
    enter_until_full(&connection, &mut book, 50_000);
    connection.close().expect("it closes");
    let memory = disk.path().join("app.db-plait-shm");
    assert!(memory.exists(), "the close could not merge");
    std::fs::remove_file(memory).expect("it can be removed");
    disk.fill_but(0);
    let error = subject
        .open(&disk.database())
        .and_then(|connection| connection.integer("SELECT count(*) FROM entry"))
        .expect_err("there is no space to recover in");
    assert_eq!(error.code, FULL, "{error}");
    disk.empty();
    let again = subject.open(&disk.database()).expect("it opens");
    sound(&again, &book);
    enter(&again, &mut book, 100).expect("it goes on");
    again.close().expect("it closes");
    sound_at_rest(&disk.database(), &book);
}

#[test]
fn leaving_the_mode_on_a_full_disk_leaves_a_database_that_goes_on() {
    let Some(subject) = real_plait("a full disk") else { return };
    let mut failed = 0;
    // The merge needs space in the WAL, then the checkpoint the same once more in the file: it is full in each step.
    for free in (0..20).map(|step| step * 60_000) {
        let Some(disk) = SmallDisk::mount(110) else { return };
        let connection = create(&subject, &disk);
        let mut book = Acknowledged::default();
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").expect("a merge");
        for _ in 0..50 {
            enter(&connection, &mut book, 8_000).expect("there is space");
        }
        disk.fill_but(free);
        match connection.text("PRAGMA journal_mode=delete") {
            Ok(mode) => assert_eq!(mode, "delete", "{free}"),
            Err(error) => {
                says_full(&error);
                failed += 1;
            }
        }
        sound_while_full(&connection, &book);
        disk.empty();
        enter(&connection, &mut book, 100).unwrap_or_else(|error| panic!("{free}: {error}"));
        let mut other = Actor::start(Place::Processes, "another", &subject, &disk.database());
        other.ok("INSERT INTO entry(worker, seq, source, target, amount, filler) VALUES(2, 1, 1, 2, 3, 'x')");
        book.0.insert(2, 1);
        sound(&connection, &book);
        drop(other);
        assert_eq!(connection.text("PRAGMA journal_mode=delete").as_deref(), Ok("delete"));
        connection.close().expect("it closes");
        sound_at_rest(&disk.database(), &book);
    }
    assert!(failed > 2, "the disk was large enough {failed}");
}

/// A file that cannot be removed, since another is mounted there.
struct Pinned(std::path::PathBuf);

impl Pinned {
    fn pin(path: std::path::PathBuf) -> Option<Pinned> {
        let mounted = Command::new("mount").arg("--bind").args([&path, &path]).status();
        mounted.is_ok_and(|status| status.success()).then_some(Pinned(path))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_log_that_cannot_be_removed_is_named_and_removed_when_it_can_be() {
    let Some(subject) = real_plait("a file that cannot be removed") else { return };
    let Some(disk) = SmallDisk::mount(110) else { return };
    let connection = create(&subject, &disk);
    let mut book = Acknowledged::default();
    enter(&connection, &mut book, 100).expect("there is space");
    let Some(pinned) = Pinned::pin(disk.path().join("app.db-plait")) else { return };
    let says_why = |outcome: Result<String, SqlError>| {
        let error = outcome.expect_err("the log cannot be removed");
        assert!(error.message.contains("app.db-plait"), "{error}");
    };
    says_why(connection.text("PRAGMA journal_mode=delete"));
    says_why(connection.text("SELECT count(*) FROM entry"));
    says_why(connection.text("PRAGMA journal_mode=delete"));
    drop(pinned);
    enter(&connection, &mut book, 100).expect("it goes on");
    sound(&connection, &book);
    assert_eq!(connection.text("PRAGMA journal_mode=delete").as_deref(), Ok("delete"));
    connection.close().expect("it closes");
    sound_at_rest(&disk.database(), &book);
}

#[test]
fn a_disk_too_small_for_the_mode_keeps_the_database_in_its_old_mode() {
    let Some(subject) = real_plait("a small disk") else { return };
    for free in [0, 100_000, 4 << 20, 12 << 20, 20 << 20] {
        let Some(disk) = SmallDisk::mount(40) else { return };
        let connection = subject.open(&disk.database()).expect("it opens");
        connection.execute(&schema(false)).expect("the schema");
        let mut book = Acknowledged::default();
        enter(&connection, &mut book, 100).expect("in its old mode");
        disk.fill_but(free);
        let answer = connection.text("PRAGMA journal_mode=concurrent");
        if let Err(error) = &answer {
            assert_eq!(error.code, FULL, "{free}: {error}");
        }
        let outcome = enter(&connection, &mut book, 100);
        if let Err(error) = &outcome {
            assert_eq!(error.code, FULL, "{free}, after {answer:?}: {error}");
        }
        sound_while_full(&connection, &book);
        disk.empty();
        enter(&connection, &mut book, 100).unwrap_or_else(|error| panic!("{free}: {error}"));
        connection.close().expect("it closes");
        sound_at_rest(&disk.database(), &book);
        let again = subject.open(&disk.database()).expect("it opens");
        sound(&again, &book);
    }
}

#[test]
fn a_disk_that_is_mounted_read_only_gives_no_commit_and_loses_none() {
    let Some(subject) = real_plait("a read-only disk") else { return };
    let Some(disk) = SmallDisk::mount(110) else { return };
    let connection = create(&subject, &disk);
    let mut book = Acknowledged::default();
    for _ in 0..5 {
        enter(&connection, &mut book, 1000).expect("it can be written");
    }
    connection.close().expect("it closes");
    disk.remount("ro");
    match subject.open(&disk.database()) {
        Ok(reader) => {
            match reader.integer("SELECT count(*) FROM entry") {
                Ok(entries) => assert_eq!(entries, 5),
                Err(error) => assert!(matches!(error.code, CANTOPEN | READONLY), "{error}"),
            }
            let error = enter(&reader, &mut book, 10).expect_err("nothing can be written");
            assert!(matches!(error.code, CANTOPEN | READONLY), "{error}");
        }
        Err(error) => assert!(matches!(error.code, CANTOPEN | READONLY), "{error}"),
    }
    disk.remount("rw");
    let again = subject.open(&disk.database()).expect("it opens");
    sound(&again, &book);
    enter(&again, &mut book, 10).expect("it can be written again");
    again.close().expect("it closes");
    sound_at_rest(&disk.database(), &book);
}

fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .expect("a mode can be set");
}

/// SQLite's own words where it cannot make its WAL, ours where we cannot make a file.
fn speaks_of_writing(complaint: &str) -> bool {
    ["readonly database", "unable to open database file", "app.db-plait"]
        .iter()
        .any(|words| complaint.contains(words))
}

#[test]
fn in_a_directory_that_may_not_be_written_the_mode_is_refused_clearly() {
    let Some(subject) = real_plait("permissions") else { return };
    let fixture = Fixture::empty(subject);
    let connection = fixture.open();
    connection.execute("CREATE TABLE t(a); INSERT INTO t VALUES(1)").expect("rows");
    connection.close().expect("it closes");
    allow(fixture.directory(), 0o755);
    allow(&fixture.database(), 0o666);
    let database = fixture.database();
    let Some(answer) = as_nobody(&database, "PRAGMA journal_mode=concurrent") else { return };
    let complaint = answer.expect_err("no file can be made beside it");
    assert!(speaks_of_writing(&complaint), "{complaint}");
    assert_eq!(as_nobody(&database, "SELECT a FROM t"), Some(Ok("1".to_owned())));
    let reader = fixture.open();
    assert_ne!(reader.text("PRAGMA journal_mode").as_deref(), Ok("concurrent"));
}

#[test]
fn a_concurrent_database_in_a_directory_that_may_not_be_written_loses_nothing() {
    let Some(subject) = real_plait("permissions") else { return };
    let fixture = Fixture::new(subject, "CREATE TABLE t(a); INSERT INTO t VALUES(1)");
    allow(fixture.directory(), 0o755);
    allow(&fixture.database(), 0o666);
    let database = fixture.database();
    let Some(answer) = as_nobody(&database, "INSERT INTO t VALUES(2)") else { return };
    let complaint = answer.expect_err("no file can be made beside it");
    assert!(speaks_of_writing(&complaint), "{complaint}");
    let connection = fixture.open();
    assert_eq!(connection.integer("SELECT count(*) FROM t"), Ok(1));
    connection.execute("INSERT INTO t VALUES(3)").expect("root goes on");
    // While it is live, nobody shares its files: they have the database's own permissions.
    assert_eq!(
        as_nobody(&database, "INSERT INTO t VALUES(4); SELECT count(*) FROM t"),
        Some(Ok("3".to_owned()))
    );
    assert_eq!(connection.integer("SELECT count(*) FROM t"), Ok(3));
}

#[test]
fn a_file_that_may_only_be_read_is_not_converted_and_not_written() {
    let Some(subject) = real_plait("permissions") else { return };
    let fixture = Fixture::new(subject, "CREATE TABLE t(a); INSERT INTO t VALUES(1)");
    let plain = fixture.path("plain.db");
    let connection = fixture.subject.open(&plain).expect("it opens");
    connection.execute("CREATE TABLE t(a); INSERT INTO t VALUES(1)").expect("rows");
    connection.close().expect("it closes");
    for path in [fixture.directory(), &fixture.database(), &plain] {
        allow(path, if path.is_dir() { 0o777 } else { 0o644 });
    }
    let Some(answer) = as_nobody(&plain, "PRAGMA journal_mode=concurrent") else { return };
    answer.expect_err("it may not be written");
    let answer = as_nobody(&fixture.database(), "INSERT INTO t VALUES(2)");
    assert!(matches!(answer, Some(Err(_))), "it was written: {answer:?}");
    let connection = fixture.open();
    assert_eq!(connection.integer("SELECT count(*) FROM t"), Ok(1));
    connection.execute("INSERT INTO t VALUES(3)").expect("its owner goes on");
    match as_nobody(&fixture.database(), "SELECT count(*) FROM t") {
        Some(Ok(text)) => assert_eq!(text, "2"),
        Some(Err(complaint)) => assert!(complaint.contains("app.db-plait"), "{complaint}"),
        None => {}
    }
    assert_eq!(fixture.open().integer("SELECT count(*) FROM t"), Ok(2));
}
