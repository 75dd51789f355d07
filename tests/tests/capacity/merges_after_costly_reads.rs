//! What has been read from memtables at more cost than a merge takes is merged, by a thread, and by none where there is to be none.

use plait_tests::sqlite::Connection;
use plait_tests::subject::{Fixture, real_plait};
use std::time::{Duration, Instant};

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, k INTEGER, filler TEXT); CREATE INDEX t_k ON t(k);
    WITH RECURSIVE i(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM i WHERE x<4000) INSERT INTO t SELECT x, x*7919%4001, 'filler' FROM i;
    PRAGMA wal_checkpoint";
/// Few enough for each transaction to stay out of the base.
const CHANGED_AT_ONCE: i64 = 40;
/// Far more than it takes: each pass goes several thousand steps.
const PASSES_MAX: u32 = 20_000;
/// Longer than it takes to start a thread, and for it to merge.
const A_WHILE: Duration = Duration::from_millis(300);

fn status(connection: &Connection, name: &str) -> i64 {
    connection
        .integer(&format!("SELECT value FROM plait_status WHERE name='{name}'"))
        .expect("it is a row of plait_status")
}

/// A table of which all rows have changed since the merge, and a writer who is not alone.
fn changed(fixture: &Fixture) -> (Connection, Connection) {
    let (writer, reader) = (fixture.open(), fixture.open());
    reader.execute("SELECT * FROM t LIMIT 1").expect("a row");
    for first in (1..4000).step_by(usize::try_from(CHANGED_AT_ONCE).expect("a few")) {
        let last = first + CHANGED_AT_ONCE - 1;
        writer
            .execute(&format!("UPDATE t SET k=k+1 WHERE id BETWEEN {first} AND {last}"))
            .expect("an update");
    }
    assert!(status(&writer, "memtable_bytes") > 0, "nothing is unmerged");
    (writer, reader)
}

fn pass(reader: &Connection) -> i64 {
    reader.integer("SELECT sum(k*i) FROM (SELECT k, 1 AS i FROM t ORDER BY k)").expect("a sum")
}

/// Passes over the table until something is merged: whether that came.
fn read_until_merged(reader: &Connection, passes_max: u32) -> bool {
    let (before, expected) = (status(reader, "merges"), pass(reader));
    (0..passes_max).any(|_| {
        assert_eq!(pass(reader), expected, "a merge changes nothing");
        status(reader, "merges") > before
    })
}

#[test]
fn rows_that_are_read_over_and_over_are_merged_while_nobody_writes() {
    let Some(subject) = real_plait("merges for readers") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let (writer, reader) = changed(&fixture);
    assert!(read_until_merged(&reader, PASSES_MAX), "nobody has merged");
    let end = Instant::now() + Duration::from_secs(30);
    while status(&writer, "memtable_bytes") > 0 {
        assert!(Instant::now() < end, "a part stays unmerged");
    }
    assert_eq!(writer.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

#[test]
fn rows_that_are_counted_over_and_over_are_merged_too() {
    let Some(subject) = real_plait("merges for readers") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let (_writer, reader) = changed(&fixture);
    let before = status(&reader, "merges");
    let is_merged = (0..PASSES_MAX).any(|_| {
        assert_eq!(reader.integer("SELECT count(*) FROM t"), Ok(4000));
        status(&reader, "merges") > before
    });
    assert!(is_merged, "nobody has merged");
}

#[test]
fn a_reader_merges_nothing_where_no_thread_is_to_merge() {
    let Some(subject) = real_plait("merges for readers") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let (writer, reader) = changed(&fixture);
    writer.execute("PRAGMA plait_background_merge=0").expect("a pragma");
    assert!(!read_until_merged(&reader, 600), "the reader has merged");
    // The next commit does.
    let before = status(&writer, "merges");
    writer.execute("UPDATE t SET filler='' WHERE id=1").expect("an update");
    assert_eq!(status(&writer, "merges"), before + 1, "and brings all of it");
    assert_eq!(status(&writer, "memtable_bytes"), 0);
}

#[test]
fn nothing_is_merged_again_while_a_reader_holds_what_the_last_merge_brought() {
    let Some(subject) = real_plait("merges for readers") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let (writer, reader) = changed(&fixture);
    let old = fixture.open();
    old.execute("BEGIN; SELECT * FROM t LIMIT 1").expect("a row");
    writer.execute("UPDATE t SET filler='new' WHERE id=1; PRAGMA wal_checkpoint").expect("a merge");
    assert!(status(&writer, "base_wal_bytes") > 0, "nothing is held");
    writer.execute("UPDATE t SET filler='newer' WHERE id=2").expect("an update");
    assert!(!read_until_merged(&reader, 600), "the WAL grows for a reader");
    old.execute("COMMIT").expect("an end");
    std::thread::sleep(A_WHILE);
    writer.execute("PRAGMA wal_checkpoint").expect("a merge");
    assert_eq!(status(&writer, "base_wal_bytes"), 0);
}
