//! A replica at rest is a file that SQLite without Plait reads, and cannot write; so is a copy of it without the mark, for Plait too. No other
//! database is such a file. The marks are made by hand.

use plait_tests::actor::Actor;
use plait_tests::place::Place;
use plait_tests::sqlite::{Connection, NOTADB, READONLY};
use plait_tests::subject::{Fixture, Subject, real_plait, refused};
use std::path::{Path, PathBuf};

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, v); CREATE INDEX tv ON t(v); INSERT INTO t VALUES(1, 'one')";
const LINES: &str = "plait replica 1\nplace /mnt/backup/app\nchain 00ff\nrecord 7\nsalt 5\nfirst 1\ncommit 9\nwritten 1764380000000\n";

fn whole_mark() -> String {
    format!("{LINES}sum {:08x}\n", crc32c::crc32c(LINES.as_bytes()))
}
const FOLLOWS: &str = "follows /mnt/backup/app: write on the primary, or `plait promote ";
const IS_COPY: &str = "is a copy of a replica, without the mark of its follower: `plait promote ";
const ROW: &str = "INSERT INTO t(v) VALUES('new')";
const COUNT: &str = "SELECT count(*) FROM t";
const REPLICA: [u8; 2] = [3, 2];
const FENCED: [u8; 2] = [3, 3];
const PLAIN: [u8; 2] = [2, 2];
/// What SQLite begins to write with, in each way.
const WRITES: &[&str] = &[
    ROW,
    "UPDATE t SET v='other'",
    "DELETE FROM t",
    "CREATE TABLE u(x)",
    "DROP TABLE t",
    "VACUUM",
    "REINDEX",
    "PRAGMA user_version=3",
    "PRAGMA journal_mode=delete",
    "PRAGMA journal_mode=truncate",
    "BEGIN; SELECT * FROM t; INSERT INTO t(v) VALUES('new')",
    "BEGIN IMMEDIATE; INSERT INTO t(v) VALUES('new')",
];

/// Bytes 18 and 19 of the file itself.
fn versions(database: &Path) -> [u8; 2] {
    let bytes = std::fs::read(database).expect("the database can be read");
    [bytes[18], bytes[19]]
}

fn count(connection: &Connection) -> i64 {
    connection.integer(COUNT).unwrap_or_else(|e| panic!("{e}"))
}

fn mark(fixture: &Fixture) {
    std::fs::write(fixture.side_file("-plait-follows"), whole_mark()).expect("it is written");
}

/// A replica with two rows that has come to rest: its writer, which was there before the mark, stands for the follower.
fn replica() -> Option<Fixture> {
    let fixture = Fixture::new(real_plait("replicas_at_rest")?, SCHEMA);
    let writer = fixture.open();
    writer.execute("BEGIN CONCURRENT; INSERT INTO t(v) VALUES('two'); COMMIT").expect("a commit");
    mark(&fixture);
    drop(writer);
    assert_eq!(versions(&fixture.database()), REPLICA);
    is_alone(&fixture.database());
    Some(fixture)
}

/// Nothing is beside it but the mark.
#[track_caller]
fn is_alone(database: &Path) {
    for suffix in ["-plait", "-plait-shm", "-wal", "-shm", "-journal"] {
        let beside = PathBuf::from(format!("{}{suffix}", database.display()));
        assert!(!beside.exists(), "{suffix} is left");
    }
}

/// A copy of the file alone.
fn copy(fixture: &Fixture) -> PathBuf {
    let copy = fixture.path("copy.db");
    std::fs::copy(fixture.database(), &copy).expect("it is copied");
    copy
}

/// Stock SQLite and Plait write it.
#[track_caller]
fn is_plain(fixture: &Fixture, database: &Path) {
    for subject in [Subject::stock(), fixture.subject.clone()] {
        let user = subject.open(database).expect("it opens");
        let before = count(&user);
        user.execute(ROW).expect("it is written");
        assert_eq!(count(&user), before + 1);
        assert_eq!(user.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    }
}

// holds FOLLOWS-4, FOLLOWS-5
#[test]
fn sqlite_without_plait_reads_it_and_changes_nothing() {
    let Some(fixture) = replica() else { return };
    let before = std::fs::read(fixture.database()).expect("it is read");
    let stock = || Subject::stock().open(&fixture.database()).expect("it opens");
    for sql in WRITES {
        let user = stock();
        let error = user.execute(sql).expect_err(sql);
        assert_eq!((error.code, error.message.contains("readonly")), (READONLY, true), "{sql}");
        let _ = user.execute("ROLLBACK");
        assert_eq!(count(&user), 2, "{sql}");
    }
    let user = stock();
    for sql in ["PRAGMA wal_checkpoint", "PRAGMA wal_checkpoint(TRUNCATE)"] {
        user.execute(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    }
    assert_eq!(user.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    let other = Subject::stock().open(&fixture.path("other.db")).expect("it opens");
    other.execute("CREATE TABLE other(x)").expect("a table");
    refused(other.backup_to(&user), READONLY, "");
    user.backup_to(&other).expect("a copy by pages");
    user.execute(&format!("VACUUM INTO '{}'", fixture.path("into.db").display()))
        .expect("a copy by statements");
    drop((user, other));
    for subject in [Subject::stock(), fixture.subject.clone()] {
        let copied = subject.open(&fixture.path("other.db")).expect("it opens");
        assert_eq!(count(&copied), 2);
        refused(copied.execute(ROW), READONLY, "");
    }
    let written = Subject::stock().open(&fixture.path("into.db")).expect("it opens");
    written.execute(ROW).expect("is a database of its own");
    is_alone(&fixture.database());
    assert_eq!(std::fs::read(fixture.database()).expect("it is read"), before);
    refused(fixture.open().execute(ROW), READONLY, FOLLOWS);
}

// holds FOLLOWS-2, FOLLOWS-5
#[test]
fn it_comes_to_rest_so_behind_each_session_and_whoever_is_killed() {
    let Some(fixture) = replica() else { return };
    let (subject, database) = (&fixture.subject, fixture.database());
    let actor = |name: &str| Actor::start(Place::Processes, name, subject, &database);
    for kills in [false, true] {
        let (mut a, mut b) = (actor("a"), actor("b"));
        a.ok("SELECT * FROM plait_status");
        b.ok("BEGIN CONCURRENT; SELECT * FROM t; COMMIT");
        assert!(fixture.side_file("-plait-shm").exists(), "a session of readers");
        a.fails(ROW, READONLY);
        if kills {
            a.kill();
            b.kill();
            let mut next = actor("next");
            assert_eq!(next.integer(COUNT), 2);
            next.close().expect("it closes");
        } else {
            a.close().expect("it closes");
            b.close().expect("it closes");
        }
        assert_eq!(versions(&database), REPLICA);
    }
    // A follower that is killed among readers that are killed.
    std::fs::remove_file(fixture.side_file("-plait-follows")).expect("it is removed");
    let unmarked = Fixture::new(subject.clone(), SCHEMA);
    let database = unmarked.database();
    let actor = |name: &str| Actor::start(Place::Processes, name, subject, &database);
    let mut follower = actor("follower");
    follower.ok("BEGIN CONCURRENT; INSERT INTO t(v) VALUES('two'); COMMIT");
    mark(&unmarked);
    let mut reader = actor("reader");
    assert_eq!(reader.integer(COUNT), 2);
    follower.ok(ROW);
    follower.kill();
    assert_eq!(reader.integer(COUNT), 3);
    reader.kill();
    assert_eq!(versions(&database), FENCED);
    let stock = Subject::stock().open(&database).and_then(|stock| stock.integer(COUNT));
    refused(stock, NOTADB, "");
    let mut next = actor("next");
    assert_eq!(next.integer(COUNT), 3);
    next.close().expect("it closes");
    assert_eq!(versions(&database), REPLICA);
    is_alone(&database);
    refused(Subject::stock().open(&database).expect("it opens").execute(ROW), READONLY, "");
}

// holds FOLLOWS-4, FOLLOWS-5
#[test]
fn a_copy_behind_a_checkpoint_of_its_session_can_only_be_read() {
    let Some(subject) = real_plait("replicas_at_rest") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let follower = fixture.open();
    follower.execute("BEGIN CONCURRENT; INSERT INTO t(v) VALUES('two'); COMMIT").expect("a commit");
    mark(&fixture);
    follower.execute("PRAGMA wal_checkpoint(TRUNCATE)").expect("everything is in the file");
    assert_eq!(versions(&fixture.database()), REPLICA, "the fence is lowered");
    let copied = copy(&fixture);
    for subject in [Subject::stock(), fixture.subject.clone()] {
        let user = subject.open(&copied).expect("it opens");
        assert_eq!(count(&user), 2);
        refused(user.execute(ROW), READONLY, "");
    }
    follower.execute(ROW).expect("the session goes on");
    assert_eq!(versions(&fixture.database()), FENCED);
    assert_eq!(count(&fixture.open()), 3);
    drop(follower);
    assert_eq!(versions(&fixture.database()), REPLICA);
}

// holds FOLLOWS-4
#[test]
fn a_copy_without_the_mark_can_only_be_read_and_says_why() {
    let Some(fixture) = replica() else { return };
    let copied = copy(&fixture);
    let before = std::fs::read(&copied).expect("it is read");
    let plait = &fixture.subject;
    for sql in WRITES {
        let user = plait.open(&copied).expect("it opens");
        refused(user.execute(sql), READONLY, IS_COPY);
        let _ = user.execute("ROLLBACK");
        refused(user.execute("BEGIN CONCURRENT; DELETE FROM t"), READONLY, IS_COPY);
        let _ = user.execute("ROLLBACK");
        assert_eq!(count(&user), 2, "{sql}");
    }
    let exclusive = plait.open(&copied).expect("it opens");
    refused(exclusive.execute(&format!("PRAGMA locking_mode=exclusive; {ROW}")), READONLY, IS_COPY);
    drop(exclusive);
    let mut member = Actor::start(Place::Processes, "member", plait, &copied);
    member.ok("BEGIN CONCURRENT; SELECT * FROM t; COMMIT");
    let said = member.fails(ROW, READONLY).message;
    assert!(said.contains(IS_COPY), "{said}");
    let user = plait.open(&copied).expect("it opens");
    for sql in ["PRAGMA journal_mode=wal", "PRAGMA journal_mode=concurrent"] {
        assert_eq!(user.text(sql).as_deref(), Ok("concurrent"), "it is so already");
    }
    let source = plait.open(&fixture.path("source.db")).expect("it opens");
    source.execute("CREATE TABLE other(x)").expect("a table");
    refused(source.backup_to(&user), READONLY, "");
    let attached = fixture.path("own.db");
    let own = Subject::stock().open(&attached).expect("it opens");
    own.execute("CREATE TABLE o(x)").expect("a table");
    drop(own);
    user.execute(&format!("ATTACH '{}' AS o; INSERT INTO o SELECT id FROM t", attached.display()))
        .expect("others are written beside it");
    drop(user);
    member.close().expect("it closes");
    assert_eq!(std::fs::read(&copied).expect("it is read"), before);
    is_alone(&copied);
}

#[test]
fn what_is_copied_out_of_it_is_a_database_like_any_other() {
    let Some(fixture) = replica() else { return };
    let copied = copy(&fixture);
    for (round, of) in [fixture.database(), copied].iter().enumerate() {
        let user = fixture.subject.open(of).expect("it opens");
        let mut member = Actor::start(Place::Processes, "member", &fixture.subject, of);
        for in_session in [false, true] {
            let name = |kind: &str| fixture.path(&format!("{kind}-{round}-{in_session}.db"));
            if in_session {
                member.ok("SELECT * FROM plait_status");
                user.execute("SELECT * FROM plait_status").expect("it joins");
            }
            let to = fixture.subject.open(&name("backup")).expect("it opens");
            user.backup_to(&to).expect("a backup");
            drop(to);
            assert_eq!(versions(&name("backup")), PLAIN);
            is_plain(&fixture, &name("backup"));
            user.execute(&format!("VACUUM INTO '{}'", name("into").display())).expect("a copy");
            is_plain(&fixture, &name("into"));
            let image = user.serialize().expect("an image");
            assert_eq!(image[18..20], [1, 1]);
            let memory = Subject::stock().library().open(":memory:").expect("it opens");
            memory.deserialize(&image).expect("it is taken");
            memory.execute(ROW).expect("it is written");
            assert_eq!(count(&memory), 3);
        }
        member.close().expect("it closes");
        drop(user);
        assert_eq!(versions(of), REPLICA);
    }
}

// holds FOLLOWS-4
#[test]
fn who_opened_it_before_the_mark_came_is_refused_once_it_is_at_rest() {
    let Some(subject) = real_plait("replicas_at_rest") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let before = fixture.open();
    let mut follower =
        Actor::start(Place::Processes, "follower", &fixture.subject, &fixture.database());
    follower.ok("BEGIN CONCURRENT; INSERT INTO t(v) VALUES('two'); COMMIT");
    mark(&fixture);
    follower.close().expect("it closes");
    assert_eq!(versions(&fixture.database()), REPLICA);
    refused(before.execute(ROW), READONLY, FOLLOWS);
    refused(before.execute("PRAGMA journal_mode=delete"), READONLY, FOLLOWS);
    assert_eq!(count(&before), 2);
    drop(before);
    assert_eq!(versions(&fixture.database()), REPLICA);
}

// holds FOLLOWS-5
#[test]
fn no_other_database_is_such_a_file() {
    let Some(subject) = real_plait("replicas_at_rest") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let database = fixture.database();
    assert_eq!(versions(&database), PLAIN);
    for sql in [
        ROW,
        "BEGIN CONCURRENT; INSERT INTO t(v) VALUES('new'); COMMIT",
        "CREATE TABLE u(x)",
        "BEGIN CONCURRENT; INSERT INTO u VALUES(1); COMMIT; VACUUM",
    ] {
        let user = fixture.open();
        user.execute(sql).expect("it is written");
        user.execute("PRAGMA wal_checkpoint(TRUNCATE)").expect("a checkpoint");
        assert_eq!(versions(&database), PLAIN, "{sql}");
        drop(user);
        assert_eq!(versions(&database), PLAIN, "{sql}");
    }
    let mut killed = Actor::start(Place::Processes, "killed", &fixture.subject, &database);
    killed.ok("BEGIN CONCURRENT; INSERT INTO t(v) VALUES('new'); COMMIT");
    killed.kill();
    assert_eq!(versions(&database), FENCED);
    assert_eq!(count(&fixture.open()), 4);
    assert_eq!(versions(&database), PLAIN);
    is_plain(&fixture, &database);
    // Such a file that is in no session's mode is what it is to SQLite.
    let user = Subject::stock().open(&database).expect("it opens");
    user.execute("PRAGMA journal_mode=delete; VACUUM; PRAGMA journal_mode=wal").expect("it leaves");
    drop(user);
    let mut bytes = std::fs::read(&database).expect("it is read");
    assert_eq!(bytes[72..76], [0; 4], "it has no salt");
    bytes[18..20].copy_from_slice(&REPLICA);
    std::fs::write(&database, &bytes).expect("it is written");
    let ours = fixture.subject.open(&database).expect("it opens");
    let error = ours.execute(ROW).expect_err("a version of the future");
    assert_eq!(
        (error.code, error.message.as_str()),
        (READONLY, "attempt to write a readonly database")
    );
}
