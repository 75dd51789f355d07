//! The follower's own connection writes a replica, which any other of the same program cannot.
#![allow(unsafe_code)]

use plait_client::{Connection, Library, OpenFlags, READONLY};
use plait_sqlite::allow_replica_writes;

const MARK: &str = "plait replica 1\nplace /mnt/backup\nrecord 1\n";

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
    std::fs::write(dir.path().join("replica.db-plait-follows"), MARK).expect("it is written");
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
