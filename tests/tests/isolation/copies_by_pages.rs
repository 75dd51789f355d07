//! A copy by pages has everything that was committed when it was begun, or it is refused: also while some of that cannot be merged,
//! beside a commit over two files that is not decided, and beside readers that hold every memtable.

use plait_tests::actor::Actor;
use plait_tests::os::resume;
use plait_tests::place::Place;
use plait_tests::sqlite::{BUSY, Connection, SqlError};
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::time::Duration;

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, v); INSERT INTO t VALUES(1, 'merged')";
const COUNT: &str = "SELECT count(*) FROM t";
/// More readers than there are memtables.
const READERS: usize = 16;

/// Rows of a copy by the backup interface, in one step or in several.
fn backup(from: &Connection, pages: i32) -> Result<i64, SqlError> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("copy.db");
    let to = from.library().open(&path)?;
    let mut backup = plait_tests::sqlite::Backup::start(from, &to)?;
    while backup.step(pages)? == plait_tests::sqlite::BackupProgress::More {}
    drop(backup);
    to.close()?;
    Subject::stock().open(&path)?.integer(COUNT)
}

fn serialized(from: &Connection) -> Result<i64, SqlError> {
    let image = from.serialize()?;
    let to = from.library().open(std::path::Path::new(":memory:"))?;
    to.deserialize(&image)?;
    to.integer(COUNT)
}

/// Rows in the file alone after a checkpoint, which answers that it was kept from being complete, or is.
fn checkpointed(from: &Connection, fixture: &Fixture) -> Result<i64, SqlError> {
    let answer = from.query("PRAGMA wal_checkpoint(TRUNCATE)")?;
    if answer[0][0].as_i64() == Some(1) {
        let (message, context) = ("it says so".to_owned(), "wal_checkpoint".to_owned());
        return Err(SqlError { code: BUSY, extended: BUSY, message, context });
    }
    // As a plain file in rollback mode, without the mark.
    let mut bytes = std::fs::read(fixture.database()).expect("the file");
    (bytes[18], bytes[19]) = (1, 1);
    bytes[72..80].fill(0);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file.db");
    std::fs::write(&path, bytes).expect("a copy");
    Subject::stock().open(&path)?.integer(COUNT)
}

/// What each way of copying came to, all at once: one that has to wait does so for a while.
fn copies(fixture: &Fixture, timeout: Duration) -> Vec<(&'static str, Result<i64, SqlError>)> {
    let with = |copy: &dyn Fn(&Connection) -> Result<i64, SqlError>| {
        let connection = fixture.open();
        connection.busy_timeout(timeout).expect("a timeout");
        copy(&connection)
    };
    std::thread::scope(|scope| {
        let ways = [
            ("a backup", scope.spawn(|| with(&|from| backup(from, -1)))),
            ("a backup in steps", scope.spawn(|| with(&|from| backup(from, 1)))),
            ("serialize", scope.spawn(|| with(&serialized))),
            ("a checkpoint", scope.spawn(|| with(&|from| checkpointed(from, fixture)))),
        ];
        ways.into_iter().map(|(how, thread)| (how, thread.join().expect("no panic"))).collect()
    })
}

/// Each is whole, or refused; returns how many were refused.
fn whole_or_refused(fixture: &Fixture, rows: i64, name: &str) -> usize {
    let mut refused = 0;
    for (how, outcome) in copies(fixture, Duration::from_millis(100)) {
        match outcome {
            Ok(copied) => assert_eq!(copied, rows, "{name}: {how}"),
            Err(error) => {
                assert!(error.is_busy(), "{name}: {how}: {error}");
                refused += 1;
            }
        }
    }
    // Looking at pages is never refused.
    fixture.open().execute("PRAGMA page_count; PRAGMA integrity_check").expect("a look");
    refused
}

#[track_caller]
fn whole(fixture: &Fixture, rows: i64, name: &str) {
    for (how, outcome) in copies(fixture, Duration::from_secs(30)) {
        assert_eq!(outcome, Ok(rows), "{name}: {how}");
    }
}

/// Two files, one who has the first open, and a process that is stopped or killed in a commit over both. One more row of the first is
/// committed, and not merged.
fn beside(variable: &str, point: &str) -> Option<([Fixture; 2], Actor, Actor)> {
    real_plait("copies beside a commit over two files")?;
    let crash = Subject::plait_with_crash_points();
    let files = [(); 2].map(|()| Fixture::new(crash.clone(), SCHEMA));
    let database = files[0].database();
    let mut witness = Actor::start(Place::Processes, "witness", &crash, &database);
    let mut author = Actor::start_with_environment("author", &crash, &database, (variable, point));
    author.ok(&format!("ATTACH '{}' AS other", files[1].database().display()));
    witness.ok("INSERT INTO t VALUES(2, 'in memory')");
    let both = "INSERT INTO main.t VALUES(3, 'both'); INSERT INTO other.t VALUES(3, 'both')";
    author.send(&format!("BEGIN; {both}; COMMIT"));
    if variable == "PLAIT_STOP_AT" {
        author.await_stop();
    }
    Some((files, witness, author))
}

#[test]
fn a_copy_beside_an_undecided_commit_over_two_files_is_whole_or_refused() {
    for point in ["several.prepared", "several.decided"] {
        let Some((files, _witness, mut author)) = beside("PLAIT_STOP_AT", point) else { return };
        assert!(whole_or_refused(&files[0], 2, point) > 0, "{point}: nothing was in the way");
        resume(author.pid()).expect("it goes on");
        assert_eq!(author.finish().error, None, "{point}");
        whole(&files[0], 3, point);
    }
}

#[test]
fn a_copy_behind_the_death_of_who_commits_over_two_files_is_whole() {
    for (point, rows) in [("several.prepared", 2), ("several.decided", 3)] {
        let Some((files, _witness, author)) = beside("PLAIT_CRASH_AT", point) else { return };
        author.await_death();
        whole(&files[0], rows, point);
    }
}

#[test]
fn a_copy_beside_readers_that_hold_every_memtable_is_whole_or_refused() {
    let Some(subject) = real_plait("copies beside readers") else { return };
    let fixture = Fixture::new(subject, SCHEMA);
    let writer = fixture.open();
    let mut readers = Vec::new();
    for _ in 0..READERS {
        writer.execute("INSERT INTO t(v) VALUES('in memory')").expect("a row");
        let reader = fixture.open();
        reader.execute("BEGIN; SELECT * FROM t").expect("it reads");
        readers.push(reader);
        writer.execute("PRAGMA quick_check").expect("a merge, where that can be");
    }
    let rows = 1 + READERS as i64;
    assert!(whole_or_refused(&fixture, rows, "beside readers") > 0, "nothing was in the way");
    drop(readers);
    whole(&fixture, rows, "without readers");
}

/// A transaction that finds a memtable without rows too small begins the next one. What follows such a memtable counts after a move only if
/// the log has its beginning, however far the log has been written by then: here its writer stands still.
#[test]
fn a_large_commit_behind_a_memtable_without_rows_is_in_what_is_moved() {
    if real_plait("crash points").is_none() {
        return;
    }
    let subject = Subject::plait_with_crash_points();
    for with_part in [false, true] {
        let fixture = Fixture::new(subject.clone(), "CREATE TABLE t(id INTEGER PRIMARY KEY, val)");
        let database = fixture.database();
        let second = fixture.path("second.db");
        let made = subject.create(&second).expect("a second file");
        made.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, val)").expect("its table");
        let start = |name| Actor::start(Place::Processes, name, &subject, &database);
        let mut holder = start("holder");
        holder.ok("SELECT * FROM t");
        let at = ("PLAIT_STOP_AT", "log.write.intended:2");
        let mut stopped = Actor::start_with_environment("stopped", &subject, &database, at);
        stopped.ok("PRAGMA synchronous=NORMAL; INSERT INTO t VALUES(5, 1)");
        std::thread::sleep(std::time::Duration::from_millis(1200));
        stopped.send("INSERT INTO t VALUES(6, 1)");
        stopped.await_stop();
        holder.ok("PRAGMA wal_checkpoint");
        if with_part {
            let at = ("PLAIT_CRASH_AT", "several.prepared");
            let mut victim = Actor::start_with_environment("victim", &subject, &database, at);
            victim.ok(&format!("ATTACH '{}' AS second", second.display()));
            victim.send(
                "BEGIN; INSERT INTO t VALUES(1, 1); INSERT INTO second.t VALUES(1, 1); COMMIT",
            );
            victim.await_death();
            assert_eq!(holder.integer("SELECT count(*) FROM t"), 2, "it is taken back");
        }
        let mut large = start("large");
        large.ok("PRAGMA synchronous=NORMAL");
        large.ok("WITH RECURSIVE n(i) AS (SELECT 100 UNION ALL SELECT i+1 FROM n WHERE i<2599)
             INSERT INTO t SELECT i, zeroblob(1000) FROM n");
        for actor in [large, stopped, holder] {
            actor.kill();
        }
        drop(made);
        let moved = tempfile::tempdir().expect("a folder");
        for entry in std::fs::read_dir(fixture.directory()).expect("its files") {
            let entry = entry.expect("a file");
            std::fs::copy(entry.path(), moved.path().join(entry.file_name())).expect("copied");
        }
        let found = subject.open(&moved.path().join("app.db")).expect("it is recovered");
        assert_eq!(found.integer("SELECT count(*) FROM t"), Ok(2502), "{with_part}");
        assert_eq!(found.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    }
}
