//! A lost log whose session, or whose restoring, ends in the middle: processes that were killed at a named step before the log was
//! lost, restorers that are killed at each of theirs, and power cuts through it.

use anyhow::{Context as _, ensure};
use plait_tests::actor::Actor;
use plait_tests::crash::points::crash_points;
use plait_tests::place::Place;
use plait_tests::powercut::disk::{Disk, Image, Keep};
use plait_tests::powercut::recording::Recording;
use plait_tests::sqlite::{CANTOPEN, Connection};
use plait_tests::subject::{Fixture, Subject, real_plait};
use plait_tests::value::Value;
use std::path::Path;

const ROWS: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, val TEXT); CREATE INDEX t_val ON t(val);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<300) INSERT INTO t SELECT i, 'v'||i FROM n;";
const CONTENT: &str = "SELECT id, val FROM t NOT INDEXED UNION ALL SELECT count(*), max(val) FROM t WHERE val>='' ORDER BY 1, 2";
/// The steps of who restores, and whether what memory has is in the database file by then.
const STEPS: [(&str, bool); 4] = [
    ("restore.begun", false),
    ("restore.applied", false),
    ("rest.committed", true),
    ("restore.rested", true),
];
/// Steps at which the last process of a session is killed before its log is lost: its last frame may be in the ring alone, a
/// generation, a merge or an exclusive transaction half done.
const LAST_STEPS: [&str; 15] = [
    "commit.appended",
    "commit.published",
    "commit.node_inserted",
    "commit.inserted",
    "commit.unlocked",
    "log.generation.recorded",
    "log.lead.written",
    "log.lead.synced",
    "merge.frozen",
    "merge.applied",
    "merge.committed",
    "merge.settled",
    "exclusive.begun",
    "exclusive.committed",
    "exclusive.settled",
];

type Rows = Vec<Vec<Value>>;

fn actor(subject: &Subject, database: &Path) -> Actor {
    Actor::start(Place::Processes, "member", subject, database)
}

fn change(writer: &mut Actor) {
    writer.ok("INSERT INTO t(val) VALUES('merged'); DELETE FROM t WHERE id=7");
    writer.ok("PRAGMA wal_checkpoint(TRUNCATE); UPDATE t SET val=val||'!' WHERE id%7=0");
    writer.ok("DELETE FROM t WHERE id%50=0; INSERT INTO t(val) VALUES('last')");
}

/// A session whose only process is dead and whose log is gone, and what it had.
fn lost(subject: &Subject) -> (Fixture, Rows) {
    let fixture = Fixture::new(subject.clone(), ROWS);
    let mut writer = actor(subject, &fixture.database());
    change(&mut writer);
    let rows = writer.ok(CONTENT);
    writer.kill();
    std::fs::remove_file(fixture.side_file("-plait")).expect("a log");
    (fixture, rows)
}

fn content(connection: &Connection) -> Rows {
    assert_eq!(connection.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
    connection.query(CONTENT).expect("the content")
}

#[track_caller]
fn is_whole(subject: &Subject, database: &Path, rows: &Rows, what: &str) {
    let connection = subject.open(database).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(content(&connection) == *rows, "{what}");
    connection.execute("UPDATE t SET val=val WHERE id=1").unwrap_or_else(|e| panic!("{what}: {e}"));
    connection.close().expect("it closes");
    let stock = Subject::stock().open(database).expect("stock opens it");
    assert!(content(&stock) == *rows, "{what}: for stock");
}

/// A process that dies at a step, when it opens the database, or else at these statements.
fn dies(point: &str, passage: u32, database: &Path, sql: &[&str]) {
    let at = format!("{point}:{passage}");
    let subject = Subject::plait_with_crash_points();
    let mut victim = Actor::in_process_with("victim", &subject, &[("PLAIT_CRASH_AT", &at)]);
    match sql {
        [] => victim.send_open(database),
        [before @ .., last] => {
            victim.open(database).expect("it opens");
            before.iter().for_each(|sql| drop(victim.ok(sql)));
            victim.send(last);
        }
    }
    victim.await_death();
}

#[test]
fn every_step_of_the_restoring_is_tried() {
    let known = crash_points();
    let of_it = known.iter().filter(|point| point.starts_with("rest"));
    let mut steps: Vec<&str> = STEPS.iter().map(|(point, _)| *point).collect();
    steps.sort_unstable();
    assert_eq!(of_it.copied().collect::<Vec<_>>(), steps);
}

// holds RESTORE-1
#[test]
fn a_restoring_that_is_killed_at_any_step_is_done_again() {
    let Some(subject) = real_plait("crash points") else { return };
    for (i, (point, is_done)) in STEPS.iter().enumerate() {
        let (fixture, rows) = lost(&subject);
        dies(point, 1, &fixture.database(), &[]);
        is_whole(&subject, &fixture.database(), &rows, &format!("killed at {point}"));
        // And the next one dies at the same step or a later one, unless there is nothing left to do.
        for (next, _) in STEPS[i..].iter().filter(|_| !is_done) {
            let (fixture, rows) = lost(&subject);
            dies(point, 1, &fixture.database(), &[]);
            dies(next, 1, &fixture.database(), &[]);
            let what = format!("killed at {point}, then at {next}");
            is_whole(&subject, &fixture.database(), &rows, &what);
        }
    }
}

#[test]
fn a_restart_in_the_middle_of_the_restoring_finds_all_or_is_told_what_is_missing() {
    let Some(subject) = real_plait("crash points") else { return };
    for (point, is_done) in STEPS {
        let (fixture, rows) = lost(&subject);
        dies(point, 1, &fixture.database(), &[]);
        std::fs::remove_file(fixture.side_file("-plait-shm")).expect("memory");
        if is_done {
            is_whole(&subject, &fixture.database(), &rows, point);
        } else {
            let refused = subject.open(&fixture.database()).and_then(|db| db.query(CONTENT));
            let error = refused.expect_err(point);
            assert!(
                error.code == CANTOPEN && error.message.contains("missing"),
                "{point}: {error}"
            );
        }
    }
}

#[test]
fn the_last_to_close_may_be_killed_while_it_restores() {
    let Some(subject) = real_plait("crash points") else { return };
    for (point, _) in STEPS {
        let fixture = Fixture::new(subject.clone(), ROWS);
        let crashing = Subject::plait_with_crash_points();
        let mut victim = Actor::in_process_with("victim", &crashing, &[("PLAIT_CRASH_AT", point)]);
        victim.open(&fixture.database()).expect("it opens");
        change(&mut victim);
        let rows = victim.ok(CONTENT);
        std::fs::remove_file(fixture.side_file("-plait")).expect("a log");
        let error = victim.run("UPDATE t SET val=val WHERE id=1").error.expect("nothing more");
        assert!(error.message.contains("was removed"), "{point}: {error}");
        victim.send_close();
        victim.await_death();
        is_whole(&subject, &fixture.database(), &rows, point);
    }
}

#[test]
fn a_log_that_is_lost_after_a_kill_at_any_step_costs_nothing_that_was_there() {
    let Some(subject) = real_plait("crash points") else { return };
    for point in LAST_STEPS {
        let family = point.split('.').next().expect("a family");
        let last: &[&str] = match family {
            "merge" => &["UPDATE t SET val='x' WHERE id=1", "PRAGMA wal_checkpoint"],
            "exclusive" => &["UPDATE t SET val='x' WHERE id=1", "CREATE TABLE made(a)"],
            _ => &[
                "BEGIN; INSERT INTO t VALUES(1001, 'a'); UPDATE t SET val='b' WHERE id=2; DELETE FROM t WHERE id=3; COMMIT",
            ],
        };
        for level in ["FULL", "NORMAL"] {
            if level == "NORMAL" && point.starts_with("log.lead") {
                continue;
            }
            let what = format!("{level}, killed at {point}");
            let level = format!("PRAGMA synchronous={level}");
            // What a session goes on with that has kept its log is what one has that has lost it.
            let left: Vec<(Rows, i64)> = [false, true]
                .into_iter()
                .map(|is_lost| {
                    let fixture = Fixture::new(subject.clone(), ROWS);
                    let sql: Vec<&str> = [&[level.as_str()][..], last].concat();
                    dies(point, 1, &fixture.database(), &sql);
                    if is_lost {
                        std::fs::remove_file(fixture.side_file("-plait")).expect("a log");
                    }
                    let connection =
                        subject.open(&fixture.database()).unwrap_or_else(|e| panic!("{what}: {e}"));
                    let rows = content(&connection);
                    let made = "SELECT count(*) FROM sqlite_schema WHERE name='made'";
                    let made = connection.integer(made).expect("a count");
                    connection.close().expect("it closes");
                    is_whole(&subject, &fixture.database(), &rows, &what);
                    (rows, made)
                })
                .collect();
            assert!(left[0] == left[1], "{what}");
        }
    }
}

/// What opening the files that a power cut left shows.
fn opened(subject: &Subject, folder: &Path, image: &Image) -> anyhow::Result<Option<Rows>> {
    let _ = std::fs::remove_dir_all(folder);
    image.put(folder)?;
    let mut opener = Actor::idle(Place::Processes, "opener", subject);
    opener.open(&folder.join("app.db"))?;
    let reply = opener.run("PRAGMA integrity_check");
    if let Some(error) = reply.error {
        ensure!(error.code == CANTOPEN && error.message.contains("missing"), "{error}");
        return Ok(None);
    }
    ensure!(reply.rows == [vec![Value::from("ok")]], "integrity_check: {:?}", reply.rows);
    let rows = opener.ok(CONTENT);
    opener.close()?;
    Ok(Some(rows))
}

#[test]
fn a_power_cut_at_any_operation_of_the_restoring_leaves_all_or_is_told_what_is_missing() {
    let Some(subject) = real_plait("power cuts") else { return };
    let (fixture, rows) = lost(&subject);
    let before = Image::of(fixture.directory()).expect("the files");
    let recording = Recording::of(fixture.directory());
    let mut opener = recording.actor("opener", &subject, None);
    opener.open(&fixture.database()).expect("it opens");
    assert!(opener.ok(CONTENT) == rows);
    recording.acknowledge(1).expect("it was seen");
    opener.close().expect("it closes");
    drop(opener);
    let operations = recording.operations().expect("a record");
    let scratch = tempfile::tempdir().expect("a folder");
    let folder = scratch.path().join("left");
    let mut disk = Disk::new(&before, 0);
    let (mut refused, mut whole) = (0, 0);
    for (i, operation) in operations.iter().enumerate() {
        for keep in [Keep::All, Keep::None, Keep::Random(i as u64)] {
            let name = format!("at {i} of {} {operation:.60?} {keep:?}", operations.len());
            let found = opened(&subject, &folder, &disk.cut(keep)).context(name.clone());
            match found.unwrap_or_else(|error| panic!("{error:#}")) {
                None => {
                    assert_eq!(disk.acknowledged, 0, "{name}: it was seen");
                    refused += 1;
                }
                Some(found) => {
                    assert!(found == rows, "{name}");
                    whole += 1;
                }
            }
        }
        disk.apply(operation).expect("they go together");
    }
    println!("{refused} refused, {whole} whole");
    assert!(refused > 3 && whole > 3, "{refused} refused, {whole} whole");
}
