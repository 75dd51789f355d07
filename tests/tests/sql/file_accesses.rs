//! In SQLite's own journal modes the library reads and writes files as often as stock SQLite, also for programs that wait
//! for locks: every write is a transaction of its own here, larger than the page cache together.

use plait_tests::sqlite::Connection;
use plait_tests::subject::{Subject, real_plait};
use std::path::{Path, PathBuf};
use std::time::Duration;

const ROWS: u32 = 600;
/// What an opening may look at more.
const MORE: u64 = 40;

/// Calls of this thread that read and that write, or none where the kernel does not count them.
fn calls() -> Option<[u64; 2]> {
    let told = std::fs::read_to_string("/proc/thread-self/io").ok()?;
    let of = |name| told.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some([of("syscr:")?, of("syscw:")?])
}

fn work(connection: &Connection, mode: &str) {
    connection.busy_timeout(Duration::from_secs(5)).expect("a timeout");
    let set = format!("PRAGMA cache_size=10; PRAGMA synchronous=off; PRAGMA journal_mode={mode}");
    connection.execute(&set).expect("the settings");
    connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, v)").expect("a table");
    for id in 0..ROWS {
        // Scattered keys.
        let key = u64::from(id) * 7919 % 10_007;
        let insert = format!("INSERT INTO t VALUES({key}, zeroblob(500))");
        connection.execute(&insert).expect("a row");
    }
    for id in 0..ROWS {
        connection.integer(&format!("SELECT count(*) FROM t WHERE id={id}")).expect("a read");
    }
}

/// The calls of a run.
fn run(subject: &Subject, database: &Path, mode: &str) -> Option<[u64; 2]> {
    let connection = subject.open(database).expect("it opens");
    let before = calls()?;
    work(&connection, mode);
    let after = calls()?;
    connection.close().expect("it closes");
    Some([after[0] - before[0], after[1] - before[1]])
}

#[test]
fn files_are_read_and_written_as_often_as_by_stock_sqlite() {
    let Some(plait) = real_plait("counts of calls") else { return };
    let stock = Subject::stock();
    let directory = tempfile::tempdir().expect("a directory");
    for (name, mode) in [
        ("", "off"),
        ("", "delete"),
        (":memory:", "memory"),
        ("file", "delete"),
        ("file", "truncate"),
        ("file", "persist"),
        ("file", "memory"),
        ("file", "off"),
        ("file", "wal"),
    ] {
        let place = |who: &str| match name {
            "file" => directory.path().join(format!("{who}-{mode}.db")),
            _ => PathBuf::from(name),
        };
        let Some(ours) = run(&plait, &place("plait"), mode) else {
            eprintln!("not run: the kernel does not count the calls of a thread");
            return;
        };
        let theirs = run(&stock, &place("stock"), mode).expect("counted a moment ago");
        for (which, (ours, theirs)) in ["read", "write"].iter().zip(ours.into_iter().zip(theirs)) {
            let is_alike = ours <= theirs + MORE;
            assert!(is_alike, "{name:?}, {mode}: {ours} calls that {which}, {theirs} in stock");
        }
    }
}
