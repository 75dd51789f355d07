//! Merges are waited for by what needs everything in the file, whatever the busy timeout: in stock SQLite there is nothing that a
//! program would have to wait for.

use plait_tests::actor::Actor;
use plait_tests::os;
use plait_tests::sqlite::{BUSY, Connection};
use plait_tests::subject::{Fixture, Subject, real_plait};
use plait_tests::value::Value;
use std::time::{Duration, Instant};

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, data BLOB)";
/// What a program without a busy timeout waits for others who merge, at least.
const PATIENCE: Duration = Duration::from_secs(3);

fn merger(connection: &Connection) -> i64 {
    connection
        .integer("SELECT value FROM plait_status WHERE name='merger_pid'")
        .expect("its status")
}

/// Writes until this process's own thread is in the midst of a merge.
fn write_until_merging(connection: &Connection) {
    for _ in 0..2000 {
        connection.execute("INSERT INTO t(data) VALUES(randomblob(100000))").expect("a row");
        if merger(connection) != 0 {
            return;
        }
    }
    panic!("nobody merges");
}

// holds MERGE-3
#[test]
fn a_program_with_one_connection_and_no_timeout_never_waits_in_vain_for_its_own_merges() {
    let Some(subject) = real_plait("own merges") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let connection = fixture.open();
    connection.busy_timeout(Duration::ZERO).expect("none");
    connection.execute("PRAGMA synchronous=NORMAL; PRAGMA page_count").expect("it joins");
    for sql in [
        "CREATE TABLE u(a); DROP TABLE u",
        "BEGIN IMMEDIATE; PRAGMA application_id=7; COMMIT",
        "BEGIN; INSERT INTO t(data) VALUES(1); CREATE TABLE u(a); ROLLBACK",
        "PRAGMA user_version=7",
    ] {
        write_until_merging(&connection);
        connection.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    for mode in ["PASSIVE", "FULL", "RESTART", "TRUNCATE"] {
        write_until_merging(&connection);
        let sql = format!("PRAGMA wal_checkpoint({mode})");
        assert_eq!(connection.query(&sql).expect("an answer")[0][0], Value::Integer(0), "{sql}");
    }
    write_until_merging(&connection);
    let destination = fixture.subject.open(&fixture.path("copy.db")).expect("another database");
    connection.backup_to(&destination).expect("a backup");
    assert_eq!(destination.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

#[test]
fn somebody_else_who_is_stopped_in_a_merge_is_waited_for_a_while_and_then_named() {
    if real_plait("a stopped merge").is_none() {
        return;
    }
    let fixture = Fixture::new(Subject::plait_with_crash_points(), SCHEMA);
    let connection = fixture.open();
    connection.busy_timeout(Duration::ZERO).expect("none");
    connection.execute("INSERT INTO t VALUES(1, NULL)").expect("a row");
    let at = ("PLAIT_STOP_AT", "merge.frozen");
    let mut stopped =
        Actor::start_with_environment("stopped", &fixture.subject, &fixture.database(), at);
    stopped.send("SELECT count(*) FROM t; PRAGMA wal_checkpoint");
    stopped.await_stop();
    assert_eq!(merger(&connection), i64::from(stopped.pid()));
    let passive = connection.query("PRAGMA wal_checkpoint(PASSIVE)").expect("an answer");
    assert_eq!(passive[0][0], Value::Integer(1), "as beside a checkpoint of somebody else's");
    for sql in ["PRAGMA user_version=7", "CREATE TABLE u(a)"] {
        let begun = Instant::now();
        let refused = connection.execute(sql).expect_err("it is stopped");
        assert!(begun.elapsed() >= PATIENCE, "{:?}", begun.elapsed());
        assert_eq!(refused.code, BUSY, "{refused}");
        let who = format!("process {} is merging", stopped.pid());
        assert!(refused.message.contains(&who), "{refused}");
    }
    os::resume(stopped.pid()).expect("it goes on");
    connection.execute("CREATE TABLE u(a)").expect("it waits for the end of the merge");
    assert_eq!(stopped.finish().error, None);
}
