//! The follower's own connection writes a replica, which any other of the same program cannot.
#![allow(unsafe_code)]

use std::path::{Path, PathBuf};

use plait_client::{Connection, Library, OpenFlags, READONLY};
use plait_sqlite::{allow_replica_writes, heed_mark};

const LINES: &str = "plait replica 1\nplace /mnt/backup\nrecord 1\ncommit 1\nwritten 1\n";

fn marked() -> String {
    plait_engine::replica::with_sum(LINES)
}

fn count(connection: &Connection) -> i64 {
    connection.integer("SELECT count(*) FROM t").expect("it is counted")
}

// holds FOLLOWS-3
#[test]
fn the_follower_writes_and_nobody_else() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("replica.db");
    let open = || Library::linked().open_with(&path, OpenFlags::ReadWriteCreate).expect("it opens");
    open()
        .execute("PRAGMA journal_mode=concurrent; CREATE TABLE t(x); INSERT INTO t VALUES(1)")
        .expect("it is made");
    std::fs::write(dir.path().join("replica.db-plait-follows"), marked()).expect("it is written");
    let (reader, follower) = (open(), open());
    let insert = "INSERT INTO t VALUES(2)";
    assert_eq!(follower.execute(insert).expect_err("a replica").code, READONLY);
    // SAFETY: an open connection of the linked library, on which nothing runs.
    unsafe { allow_replica_writes(follower.raw()) };
    for sql in [
        insert,
        "BEGIN IMMEDIATE; INSERT INTO t VALUES(3); COMMIT",
        "BEGIN CONCURRENT; INSERT INTO t VALUES(4); COMMIT",
        "CREATE TABLE u(x)",
        "VACUUM",
    ] {
        follower.execute(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
        let refused = reader.execute(insert).expect_err("a replica");
        assert_eq!(refused.code, READONLY, "{sql}");
        assert!(refused.message.contains("follows /mnt/backup"), "{refused}");
    }
    assert_eq!((count(&reader), count(&follower)), (4, 4));
}

const REPLICA: [u8; 2] = [3, 2];
const PLAIN: [u8; 2] = [2, 2];
const FENCED: [u8; 2] = [3, 3];

/// A database at rest in a folder, and the name of its mark.
fn at_rest() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("replica.db");
    let made = "PRAGMA journal_mode=concurrent; CREATE TABLE t(x); INSERT INTO t VALUES(1)";
    open(&path).execute(made).expect("it is made");
    let mark = dir.path().join("replica.db-plait-follows");
    (dir, path, mark)
}

fn open(path: &Path) -> Connection {
    Library::linked().open_with(path, OpenFlags::ReadWriteCreate).expect("it opens")
}

fn follower(path: &Path) -> Connection {
    let follower = open(path);
    // SAFETY: an open connection of the linked library, on which nothing runs.
    unsafe { allow_replica_writes(follower.raw()) };
    follower
}

/// Bytes 18 and 19 of the file. Nothing of it may be open in this process but by a session, whose locks are not the file's.
fn versions(path: &Path) -> [u8; 2] {
    let said =
        std::process::Command::new("od").args(["-An", "-tu1", "-j18", "-N2"]).arg(path).output();
    let text = String::from_utf8(said.expect("it runs").stdout).expect("numbers");
    let numbers: Vec<u8> = text.split_whitespace().map(|n| n.parse().expect("a byte")).collect();
    numbers.try_into().expect("two bytes")
}

// holds FOLLOWS-2, FOLLOWS-3
#[test]
fn the_follower_writes_it_at_rest_and_it_comes_to_rest_again() {
    let (_dir, path, mark) = at_rest();
    std::fs::write(&mark, marked()).expect("it is written");
    heed_mark(&path).expect("it is at rest");
    assert_eq!(versions(&path), REPLICA);
    for sql in [
        "INSERT INTO t VALUES(2)",
        "CREATE TABLE u(x)",
        "BEGIN CONCURRENT; INSERT INTO t VALUES(3); COMMIT",
        "VACUUM",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "DROP TABLE u",
    ] {
        let alone = follower(&path);
        alone.execute(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
        drop(alone);
        assert_eq!(versions(&path), REPLICA, "{sql}");
    }
    // Also where it is a copy's, without a mark.
    std::fs::remove_file(&mark).expect("it is removed");
    assert_eq!(open(&path).execute("INSERT INTO t VALUES(4)").expect_err("a copy").code, READONLY);
    follower(&path).execute("INSERT INTO t VALUES(4)").expect("it is let through");
    assert_eq!(count(&open(&path)), 4);
}

// holds FOLLOWS-5
#[test]
fn the_file_says_what_the_mark_says() {
    let (_dir, path, mark) = at_rest();
    heed_mark(&path).expect("nothing is to be done");
    assert_eq!(versions(&path), PLAIN);
    let others = [open(&path), open(&path)];
    // At rest, beside connections that read alone, and in a session.
    for sql in ["SELECT * FROM t", "SELECT * FROM plait_status"] {
        others.iter().for_each(|other| other.execute(sql).expect("it reads"));
        std::fs::write(&mark, marked()).expect("it is written");
        heed_mark(&path).expect("it is at rest");
        let reads = open(&path).execute("INSERT INTO t VALUES(2)");
        assert_eq!(reads.expect_err("a replica").code, READONLY);
        std::fs::remove_file(&mark).expect("it is removed");
        heed_mark(&path).expect("it is at rest");
        open(&path).execute("INSERT INTO t VALUES(2)").expect("it is written");
    }
    drop(others);
    assert_eq!(versions(&path), PLAIN);
    // Under the fence, and while that is lowered.
    let writes = follower(&path);
    writes.execute("BEGIN CONCURRENT; INSERT INTO t VALUES(3); COMMIT").expect("a commit");
    for lowered in [false, true] {
        let (with, without) = if lowered { (REPLICA, PLAIN) } else { (FENCED, FENCED) };
        if lowered {
            writes.execute("PRAGMA wal_checkpoint(TRUNCATE)").expect("a checkpoint");
        }
        std::fs::write(&mark, marked()).expect("it is written");
        heed_mark(&path).expect("a fence");
        assert_eq!(versions(&path), with, "{lowered}");
        std::fs::remove_file(&mark).expect("it is removed");
        heed_mark(&path).expect("a fence");
        assert_eq!(versions(&path), without, "{lowered}");
    }
    writes.execute("INSERT INTO t VALUES(4)").expect("the session goes on");
    drop(writes);
    assert_eq!(versions(&path), PLAIN);
    assert_eq!(count(&open(&path)), 5);
    assert!(heed_mark(&path.with_file_name("none.db")).is_err());
}

// holds FOLLOWS-5
#[test]
fn of_a_last_close_and_a_promotion_the_later_one_has_seen_the_mark_as_it_is() {
    for round in 0..60 {
        let (_dir, path, mark) = at_rest();
        let last = follower(&path);
        last.execute("BEGIN CONCURRENT; INSERT INTO t VALUES(2); COMMIT").expect("a commit");
        std::fs::write(&mark, marked()).expect("it is written");
        let closes = std::thread::spawn(move || drop(last));
        std::thread::sleep(std::time::Duration::from_micros(round * 150));
        std::fs::remove_file(&mark).expect("it is removed");
        heed_mark(&path).expect("at rest, or before");
        closes.join().expect("it closes");
        assert_eq!(versions(&path), PLAIN, "{round}");
        open(&path).execute("INSERT INTO t VALUES(3)").expect("it is written");
    }
}

// holds FOLLOWS-6
#[test]
fn where_no_mark_can_be_looked_for_all_may_write() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, path, _) = at_rest();
    let last = open(&path);
    last.execute("BEGIN CONCURRENT; INSERT INTO t VALUES(2); COMMIT").expect("a commit");
    assert_eq!(versions(&path), FENCED);
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).expect("it is set");
    // As a service that gives up its rights: of this thread alone.
    let become_user = |id: libc::uid_t| {
        // SAFETY: it takes a number.
        unsafe { libc::setfsuid(id) };
        // SAFETY: -1 is no user; it returns who this thread is.
        (unsafe { libc::setfsuid(libc::uid_t::MAX) }) as libc::uid_t == id
    };
    if !become_user(65534) {
        eprintln!("skipped: only root can become another user");
        return;
    }
    assert!(std::fs::symlink_metadata(&path).is_err(), "the folder cannot be searched");
    drop(last);
    assert!(become_user(0), "and back");
    assert_eq!(versions(&path), PLAIN);
    open(&path).execute("INSERT INTO t VALUES(3)").expect("it is written");
}
