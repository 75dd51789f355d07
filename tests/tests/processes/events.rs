//! What happens to a database is told: in SQLite's error log, and where PLAIT_EVENTS says. No statement fails for it.

use plait_tests::actor::{Actor, ERROR_LOG};
use plait_tests::crash::disk::SmallDisk;
use plait_tests::job::{Job, Work};
use plait_tests::jobs::events::EventsBesideFork;
use plait_tests::jobs::failing_log::{Ends, FailingLog, Met};
use plait_tests::os;
use plait_tests::place::Place;
use plait_tests::sqlite::{BUSY, FULL, IOERR};
use plait_tests::subject::{Fixture, Subject, real_plait};
use serde_json::Value as Json;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const SCHEMA: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, v)";
const PATIENCE: Duration = Duration::from_secs(60);
const ALWAYS: [&str; 8] =
    ["time", "severity", "event", "database", "pid", "process", "text", "docs"];
/// In the library with crash points an hour is a second, and a minute a sixtieth of it.
const HASTE: (&str, &str) = ("PLAIT_HASTE", "3600");
/// SQLite's codes.
const NOTICE: &str = "27";
const NOTICE_RECOVER_WAL: &str = "283";
const WARNING: &str = "28";
/// More than a transaction may have on the concurrent path: it goes to the base directly.
const LARGE: &str = "INSERT INTO t(v) SELECT zeroblob(1000000) FROM (VALUES(1),(2),(3),(4),(5),(6),(7),(8),(9),(10))";

/// A database, and where its processes tell what happens.
struct Scene {
    fixture: Fixture,
    events: PathBuf,
    log: PathBuf,
    more: Vec<(String, String)>,
}

impl Scene {
    fn new(subject: Subject) -> Scene {
        let fixture = Fixture::new(subject, SCHEMA);
        let (events, log) = (fixture.path("events.jsonl"), fixture.path("error.log"));
        Scene { fixture, events, log, more: Vec::new() }
    }

    /// One whose processes are in a hurry.
    fn in_haste() -> Scene {
        Scene::new(Subject::plait_with_crash_points()).with(HASTE)
    }

    fn with(mut self, (name, value): (&str, &str)) -> Scene {
        self.more.push((name.to_owned(), value.to_owned()));
        self
    }

    fn start(&self, name: &str) -> Actor {
        self.start_at(name, &self.fixture.database(), &[])
    }

    fn start_at(&self, name: &str, database: &Path, more: &[(&str, &str)]) -> Actor {
        let (events, log) = (self.events.to_str().unwrap(), self.log.to_str().unwrap());
        let mut environment = vec![("PLAIT_EVENTS", events), (ERROR_LOG, log)];
        environment.extend(self.more.iter().map(|(name, value)| (&**name, &**value)));
        environment.extend(more);
        let mut actor = Actor::in_process_with(name, &self.fixture.subject, &environment);
        actor.open(database).expect("it can be opened");
        actor.ok("SELECT count(*) FROM t");
        actor
    }

    /// All events so far, each of them whole.
    fn all(&self) -> Vec<Json> {
        let text = std::fs::read_to_string(&self.events).unwrap_or_default();
        let events: Vec<Json> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect();
        assert!(text.is_empty() || text.ends_with('\n'), "{text}");
        for event in &events {
            for name in ALWAYS {
                assert!(!event[name].is_null(), "{name} of {event}");
            }
            let docs = format!("docs/runbook.md#{}", event["event"].as_str().unwrap());
            assert_eq!(event["docs"], docs.as_str(), "{event}");
        }
        events
    }

    fn of(&self, kind: &str) -> Vec<Json> {
        self.all().into_iter().filter(|event| event["event"] == kind).collect()
    }

    /// The only event of its kind.
    #[track_caller]
    fn one(&self, kind: &str) -> Json {
        let mut events = self.of(kind);
        assert_eq!(events.len(), 1, "{kind}: {events:?} of {:?}", self.kinds());
        events.remove(0)
    }

    /// Kinds of all events in their order.
    fn kinds(&self) -> Vec<String> {
        self.all().iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect()
    }

    /// Lines of the error log about a kind.
    fn logged(&self, kind: &str) -> Vec<String> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let is_of = |line: &&str| line.contains(&format!("plait: {kind}"));
        text.lines().filter(is_of).map(str::to_owned).collect()
    }

    /// The only line of the error log about a kind, with its code.
    #[track_caller]
    fn logged_once(&self, kind: &str, code: &str) {
        let lines = self.logged(kind);
        assert_eq!(lines.len(), 1, "{kind}: {lines:?}");
        let database = self.fixture.database();
        let begin = format!("{code} plait: {kind}: {}: ", database.display());
        assert!(lines[0].starts_with(&begin), "{}", lines[0]);
        assert!(lines[0].ends_with(&format!("(plait explain {kind})")), "{}", lines[0]);
    }
}

/// Does something until it is told.
#[track_caller]
fn until(mut told: impl FnMut() -> bool, mut act: impl FnMut()) {
    let begun = Instant::now();
    while !told() {
        assert!(begun.elapsed() < PATIENCE, "it is never told");
        act();
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_session_that_begins_and_ends_is_told_by_the_first_and_the_last_process() {
    let Some(subject) = real_plait("events of a session") else { return };
    let scene = Scene::new(subject);
    let mut first = scene.start("first");
    let mut second = scene.start("second");
    first.ok("INSERT INTO t(v) VALUES(1)");
    second.ok("INSERT INTO t(v) VALUES(2)");
    first.close().expect("it closes");
    assert_eq!(scene.kinds(), ["session-began"]);
    second.close().expect("it closes");
    assert_eq!(scene.kinds(), ["session-began", "session-ended"]);
    let (began, ended) = (scene.one("session-began"), scene.one("session-ended"));
    assert_eq!((&began["pid"], &ended["pid"]), (&first.pid().into(), &second.pid().into()));
    assert_eq!(began["database"], scene.fixture.database().to_str().unwrap());
    assert_eq!((&began["process"], &began["severity"]), (&"worker".into(), &"notice".into()));
    scene.logged_once("session-began", NOTICE);
    scene.logged_once("session-ended", NOTICE);
}

#[test]
fn a_process_that_dies_is_told_once_by_whoever_cleans_up_and_what_it_held() {
    let Some(subject) = real_plait("events of a death") else { return };
    let scene = Scene::new(subject);
    let mut survivors = ["a", "b", "c"].map(|name| scene.start(name));
    survivors[0].ok("INSERT INTO t(v) VALUES(1)");
    let mut victim = scene.start("victim");
    victim.ok("BEGIN IMMEDIATE; INSERT INTO t(v) VALUES(2)");
    let dead = victim.pid();
    victim.kill();
    for survivor in &mut survivors {
        survivor.ok("BEGIN IMMEDIATE; INSERT INTO t(v) VALUES(3); COMMIT");
    }
    let died = scene.one("member-died");
    assert_eq!(died["dead_pid"], dead);
    assert_eq!(died["held"], "the writer's right");
    assert_eq!(died["transactions"], 1);
    assert!(survivors.iter().any(|survivor| died["pid"] == survivor.pid()), "{died}");
    scene.logged_once("member-died", WARNING);
}

// holds EVENT-1
#[test]
fn who_has_the_writers_right_writes_nothing_before_it_is_given_back() {
    let Some(subject) = real_plait("events of a holder") else { return };
    let scene = Scene::new(subject);
    let mut survivor = scene.start("survivor");
    survivor.ok("INSERT INTO t(v) VALUES(1)");
    let mut victim = scene.start("victim");
    victim.ok("BEGIN IMMEDIATE; INSERT INTO t(v) VALUES(2)");
    victim.kill();
    survivor.ok("BEGIN IMMEDIATE");
    survivor.ok("INSERT INTO t(v) VALUES(3); SELECT count(*) FROM t");
    assert_eq!(scene.kinds(), ["session-began"], "it has found the dead one, and holds the right");
    survivor.ok("COMMIT");
    assert_eq!(scene.kinds(), ["session-began", "member-died"]);
}

// holds EVENT-1
#[test]
fn a_callback_that_does_not_return_holds_up_its_own_connection_alone() {
    let Some(subject) = real_plait("a slow error log") else { return };
    let scene = Scene::new(subject);
    let pipe = scene.fixture.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let mut other = scene.start("other");
    other.ok("INSERT INTO t(v) VALUES(1)");
    let database = scene.fixture.database();
    let log = [(ERROR_LOG, pipe.to_str().unwrap())];
    let mut held_up = scene.start_at("held up", &database, &log);
    let mut victim = scene.start("victim");
    victim.ok("BEGIN IMMEDIATE");
    victim.kill();
    held_up.send("BEGIN IMMEDIATE; INSERT INTO t(v) VALUES(2); COMMIT");
    assert!(held_up.finish_within(Duration::from_secs(1)).is_none(), "nobody reads the pipe");
    for _ in 0..3 {
        other.ok("BEGIN IMMEDIATE; INSERT INTO t(v) VALUES(3); COMMIT");
    }
    assert_eq!(other.integer("SELECT count(*) FROM t"), 5, "with what the other has committed");
    let _reader = File::options().read(true).write(true).open(&pipe).expect("the pipe");
    assert_eq!(held_up.finish().error, None);
}

// holds EVENT-7
#[test]
fn a_child_writes_no_event_that_waited_in_its_parent() {
    let Some(subject) = real_plait("events beside a fork") else { return };
    let scene = Scene::new(subject.clone());
    let mut survivor = scene.start("survivor");
    survivor.ok("INSERT INTO t(v) VALUES(1)");
    let mut victim = scene.start("victim");
    victim.ok("BEGIN IMMEDIATE");
    victim.kill();
    let work = Work::EventsBesideFork(EventsBesideFork {});
    let job = Job { subject, database: scene.fixture.database(), work };
    let events = scene.events.to_str().unwrap();
    let running = job.start_with_environment(Place::Processes, &[("PLAIT_EVENTS", events)]);
    let result: Json = running.result(PATIENCE);
    assert_eq!(result["child"], 0, "{result}");
    assert_eq!(scene.one("member-died")["pid"], result["parent"]);
}

/// A session of two processes that were killed, with `rows` rows that the base lacks.
fn killed(scene: &Scene, rows: usize) {
    let mut actors = ["a", "b"].map(|name| scene.start(name));
    for n in 0..rows {
        actors[n % 2].ok("INSERT INTO t(v) VALUES(1)");
    }
    actors.into_iter().for_each(Actor::kill);
}

#[test]
fn what_dead_processes_have_left_is_recovered_from_memory_or_from_the_log() {
    let Some(subject) = real_plait("events of a recovery") else { return };
    for (removed, from) in
        [(None, "memory"), (Some("-plait"), "memory"), (Some("-plait-shm"), "log")]
    {
        let scene = Scene::new(subject.clone());
        killed(&scene, 7);
        if let Some(suffix) = removed {
            std::fs::remove_file(scene.fixture.side_file(suffix)).expect("it was there");
        }
        let mut next = scene.start("next");
        assert_eq!(next.integer("SELECT count(*) FROM t"), 7, "{from}");
        next.close().expect("it closes");
        assert_eq!(scene.one("recovered")["from"], from, "{removed:?}");
        let died = if removed.is_none() { 2 } else { 0 };
        assert_eq!(scene.of("member-died").len(), died, "{removed:?}: each slot is cleaned up");
        assert_eq!(scene.kinds().last().map(String::as_str), Some("session-ended"));
        scene.logged_once("recovered", NOTICE_RECOVER_WAL);
    }
}

#[test]
fn a_log_that_was_removed_is_told_once_by_each_process_with_the_page_in_its_error() {
    let Some(subject) = real_plait("events of a lost log") else { return };
    let scene = Scene::new(subject);
    let mut actors = ["a", "b"].map(|name| scene.start(name));
    actors[0].ok("INSERT INTO t(v) VALUES(1)");
    actors[1].ok("INSERT INTO t(v) VALUES(2)");
    std::fs::remove_file(scene.fixture.side_file("-plait")).expect("it is there");
    for actor in &mut actors {
        for _ in 0..3 {
            let error = actor.fails("INSERT INTO t(v) VALUES(3)", IOERR);
            assert!(error.message.ends_with(" (docs/runbook.md)"), "{error}");
            assert_eq!(error.message.matches("docs/").count(), 1, "{error}");
        }
    }
    let stopped = scene.of("log-stopped");
    assert_eq!(stopped.len(), 2, "{stopped:?}");
    for event in &stopped {
        assert_eq!(event["cause"], "log-removed", "{event}");
        assert_eq!(event["severity"], "error", "{event}");
        assert!(event["text"].as_str().unwrap().contains("was removed, renamed"), "{event}");
    }
    assert!(stopped[0]["pid"] != stopped[1]["pid"]);
    assert_eq!(scene.logged("log-stopped").len(), 2);
    for actor in &mut actors {
        actor.close().expect("it closes");
    }
    assert_eq!(scene.kinds().last().map(String::as_str), Some("session-ended"), "from memory");
}

#[test]
fn a_write_of_the_log_that_fails_is_told() {
    let Some(subject) = real_plait("events of a failing log") else { return };
    let mut scene = Scene::new(subject.clone());
    scene.fixture = Fixture::new(subject.clone(), "CREATE TABLE t(id INTEGER PRIMARY KEY)");
    scene.events = scene.fixture.path("events.jsonl");
    let work = FailingLog { synchronous: "FULL".into(), before: 5, ends: Ends::Closed };
    let database = scene.fixture.database();
    let job = Job { subject, database, work: Work::FailingLog(work) };
    let events = scene.events.to_str().unwrap();
    let mut running = job.start_with_environment(Place::Processes, &[("PLAIT_EVENTS", events)]);
    let met: Met = running.next_line(PATIENCE).expect("it meets the failure");
    let _ = running.wait::<Met>(PATIENCE);
    let stopped = scene.one("log-stopped");
    assert_eq!(stopped["cause"], "failed-write-or-sync", "{stopped}");
    assert_eq!(stopped["errno"], libc::EIO, "{stopped}");
    let said = stopped["met"].as_str().unwrap();
    assert!(met.error.starts_with(said), "{said} and {met:?}");
}

#[test]
fn a_full_disk_is_told_before_and_when_it_is_full() {
    let Some(subject) = real_plait("events of a full disk") else { return };
    let Some(disk) = SmallDisk::mount(160) else { return };
    let scene = Scene::new(subject.clone());
    subject.create(&disk.database()).and_then(|db| db.execute(SCHEMA)).expect("there is space");
    let mut writer = scene.start_at("writer", &disk.database(), &[]);
    writer.ok("PRAGMA synchronous=NORMAL; INSERT INTO t(v) VALUES(1)");
    disk.fill_but(0);
    let full =
        (0..2000).find_map(|_| writer.run("INSERT INTO t(v) VALUES(randomblob(100000))").error);
    let full = full.expect("the disk is full");
    assert_eq!(full.code, FULL, "{full}");
    for _ in 0..5 {
        let _ = writer.run("INSERT INTO t(v) VALUES(randomblob(100000))");
    }
    let failed = scene.one("failed");
    assert_eq!((&failed["code"], &failed["severity"]), (&"SQLITE_FULL".into(), &"error".into()));
    assert!(full.message.starts_with(failed["text"].as_str().unwrap()), "{full} and {failed}");
    assert!(scene.logged("failed").is_empty(), "SQLite logs the statement itself");
    let scarce = scene.one("disk-nearly-full");
    assert!(scarce["free_bytes"].as_u64().unwrap() < 256 << 20, "{scarce}");
    scene.logged_once_at("disk-nearly-full", &disk.database());
    disk.empty();
    writer.close().expect("it closes");
}

impl Scene {
    #[track_caller]
    fn logged_once_at(&self, kind: &str, database: &Path) {
        let lines = self.logged(kind);
        assert_eq!(lines.len(), 1, "{kind}: {lines:?}");
        assert!(lines[0].contains(database.to_str().unwrap()), "{}", lines[0]);
    }
}

#[test]
fn a_reader_that_keeps_the_wal_is_named_once_a_minute_by_all_processes() {
    if real_plait("events of a starved checkpoint").is_none() {
        return;
    }
    let scene = Scene::in_haste();
    let mut writers = ["a", "b"].map(|name| scene.start(name));
    writers[0].ok("INSERT INTO t(v) VALUES(1); PRAGMA wal_checkpoint");
    let mut reader = scene.start("reader");
    reader.ok("BEGIN; SELECT count(*) FROM t");
    let mut turns = 0;
    let begun = Instant::now();
    let told = || !scene.of("checkpoint-starved").is_empty();
    until(told, || {
        turns += 1;
        writers[turns % 2].ok("INSERT INTO t(v) VALUES(1); PRAGMA wal_checkpoint");
    });
    let starved = scene.of("checkpoint-starved").remove(0);
    assert_eq!(starved["reader_pid"], reader.pid(), "{starved}");
    assert_eq!(starved["reader"], "worker", "{starved}");
    assert!(starved["wal_bytes"].as_u64().unwrap() > 0, "{starved}");
    for turn in 0..200 {
        writers[turn % 2].ok("INSERT INTO t(v) VALUES(1); PRAGMA wal_checkpoint");
    }
    // A minute is 16 ms here.
    let most = begun.elapsed().as_millis() as usize / 16 + 1;
    let times = scene.of("checkpoint-starved").len();
    assert!(times <= most && times < 200, "{times} of {most}");
    reader.ok("COMMIT");
    writers[0].ok("INSERT INTO t(v) VALUES(1); PRAGMA wal_checkpoint");
    let after = scene.of("checkpoint-starved").len();
    writers[0].ok("INSERT INTO t(v) VALUES(1); PRAGMA wal_checkpoint");
    assert_eq!(scene.of("checkpoint-starved").len(), after, "nobody keeps it");
}

#[test]
fn a_transaction_that_is_open_for_an_hour_is_told_each_hour() {
    if real_plait("events of a long transaction").is_none() {
        return;
    }
    let scene = Scene::in_haste();
    let mut others = ["a", "b"].map(|name| scene.start(name));
    others[0].ok("INSERT INTO t(v) VALUES(1)");
    let mut reader = scene.start("reader");
    let begun = Instant::now();
    reader.ok("BEGIN; SELECT count(*) FROM t");
    let told = |n: usize| scene.of("long-transaction").len() >= n;
    for hours in 1..=2 {
        until(
            || told(hours),
            || {
                others.iter_mut().for_each(|other| {
                    other.ok("SELECT count(*) FROM t; INSERT INTO t(v) VALUES(1)");
                })
            },
        );
        // An hour is a second here.
        assert!(begun.elapsed() >= Duration::from_secs(hours as u64));
    }
    let long = scene.of("long-transaction");
    assert!(long.len() == 2, "{long:?}");
    assert_eq!(long[0]["transaction_pid"], reader.pid(), "{long:?}");
    assert_eq!(long[0]["transaction"], "worker", "{long:?}");
    assert_eq!((&long[0]["state"], &long[0]["seconds"]), (&"reading".into(), &1.into()));
    assert_eq!(scene.logged("long-transaction").len(), 2);
    reader.ok("COMMIT; BEGIN; SELECT count(*) FROM t");
    for _ in 0..20 {
        others[0].ok("INSERT INTO t(v) VALUES(1)");
    }
    assert_eq!(scene.of("long-transaction").len(), 2, "another one, which is young");
}

#[test]
fn a_merge_that_fails_is_told() {
    let Some(subject) = real_plait("events of a merge that fails") else { return };
    let scene = Scene::new(subject);
    let mut writer = scene.start("writer");
    writer.ok("PRAGMA synchronous=NORMAL; PRAGMA plait_wal_limit=4000000");
    let mut reader = scene.start("reader");
    reader.ok("BEGIN; SELECT count(*) FROM t");
    writer.ok(LARGE);
    until(
        || !scene.of("merge-failed").is_empty(),
        || {
            let _ = writer.run("INSERT INTO t(v) VALUES(randomblob(3000000))");
        },
    );
    let failed = scene.one("merge-failed");
    assert!(failed["text"].as_str().unwrap().contains("plait_wal_limit"), "{failed}");
    scene.logged_once("merge-failed", WARNING);
    reader.ok("COMMIT");
}

// holds EVENT-6
#[test]
fn a_process_that_stands_still_in_a_commit_is_named_once_by_all_who_wait_for_it() {
    if real_plait("events of a stopped process").is_none() {
        return;
    }
    let scene = Scene::new(Subject::plait_with_crash_points());
    let mut others = ["a", "b"].map(|name| scene.start(name));
    others[0].ok("INSERT INTO t(v) VALUES(1)");
    others.iter_mut().for_each(|other| other.busy_timeout(Duration::from_millis(10)));
    let stop = ("PLAIT_STOP_AT", "commit.locked");
    let mut stopped = scene.start_at("stopped", &scene.fixture.database(), &[stop]);
    stopped.send("INSERT INTO t(v) VALUES(2)");
    stopped.await_stop();
    for other in &mut others {
        other.fails("INSERT INTO t(v) VALUES(3)", BUSY);
    }
    let stalled = scene.one("process-stalled");
    assert_eq!(stalled["stalled_pid"], stopped.pid(), "{stalled}");
    assert_eq!(stalled["held"], "the commit mutex", "{stalled}");
    assert_eq!(stalled["stalled"], "worker", "{stalled}");
    scene.logged_once("process-stalled", WARNING);
    os::resume(stopped.pid()).expect("it goes on");
    assert_eq!(stopped.finish().error, None);
}

#[test]
fn a_log_that_is_put_aside_is_told() {
    let Some(subject) = real_plait("events of a restored backup") else { return };
    let scene = Scene::new(subject);
    let backup = std::fs::read(scene.fixture.database()).expect("at rest");
    killed(&scene, 3);
    for suffix in ["-wal", "-shm", "-plait-shm"] {
        let _ = std::fs::remove_file(scene.fixture.side_file(suffix));
    }
    std::fs::write(scene.fixture.database(), backup).expect("copied into place");
    let mut next = scene.start("next");
    next.ok("PRAGMA journal_mode=concurrent");
    assert_eq!(next.integer("SELECT count(*) FROM t"), 0);
    let text = scene.one("log-put-aside")["text"].as_str().unwrap().to_owned();
    assert!(text.contains("-plait-given-up-1"), "{text}");
}

/// Byte of the WAL-index that is SQLite's lock of the WAL's writer.
const WAL_WRITER: i64 = 120;

#[test]
fn a_last_close_that_brings_nothing_to_rest_is_told() {
    let Some(subject) = real_plait("events of a close that fails") else { return };
    let scene = Scene::new(subject);
    let mut only = scene.start("only");
    only.ok("INSERT INTO t(v) VALUES(1)");
    let index = File::options().read(true).write(true).open(scene.fixture.side_file("-shm"));
    let index = index.expect("the WAL-index");
    assert!(os::lock_byte(&index, WAL_WRITER));
    only.close().expect("the close itself does not fail");
    let left = scene.one("left-open");
    assert!(left["text"].as_str().unwrap().contains("locked"), "{left}");
    scene.logged_once("left-open", WARNING);
    drop(index);
    let mut next = scene.start("next");
    assert_eq!(next.integer("SELECT count(*) FROM t"), 1);
    next.close().expect("it closes");
    let kinds = scene.kinds();
    assert!(kinds.ends_with(&["recovered".into(), "session-ended".into()]), "{kinds:?}");
}

// holds EVENT-5
#[test]
fn many_processes_that_come_and_die_write_whole_lines_into_one_file() {
    let Some(subject) = real_plait("events of many processes") else { return };
    let scene = Scene::new(subject);
    let mut keeper = scene.start("keeper");
    keeper.ok("INSERT INTO t(v) VALUES(0)");
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for round in 0..8 {
                    let mut actor = scene.start("one of many");
                    actor.ok("BEGIN IMMEDIATE; INSERT INTO t(v) VALUES(1); COMMIT");
                    if round % 2 == 0 {
                        actor.ok("BEGIN IMMEDIATE");
                        actor.kill();
                    }
                }
            });
        }
    });
    keeper.ok("BEGIN IMMEDIATE; COMMIT");
    keeper.close().expect("it closes");
    // Some of the dead knew of others, and held the right.
    let died = scene.of("member-died");
    let pids: std::collections::BTreeSet<_> =
        died.iter().map(|event| event["dead_pid"].as_u64()).collect();
    assert!((12..=24).contains(&died.len()) && pids.len() == died.len(), "{died:?}");
    let kinds = scene.kinds();
    assert_eq!(kinds.iter().filter(|kind| *kind != "member-died").count(), 2, "{kinds:?}");
}

// holds EVENT-4
#[test]
fn a_file_that_cannot_be_written_fails_nothing_and_is_told_once() {
    let Some(subject) = real_plait("events that cannot be written") else { return };
    let precious = "somebody's\n";
    for (name, why) in [
        ("nowhere/events.jsonl", "No such file"),
        ("taken", "does not begin with an event"),
        ("app.db", "it is the database"),
        ("app.db-wal", "belongs to it"),
    ] {
        let mut scene = Scene::new(subject.clone());
        std::fs::write(scene.fixture.path("taken"), precious).expect("a file");
        scene.events = scene.fixture.path(name);
        let mut actor = scene.start("only");
        actor.ok("INSERT INTO t(v) VALUES(1)");
        actor.ok("INSERT INTO t(v) VALUES(1)");
        actor.close().expect("it closes");
        let said = scene.logged("events are not written");
        assert_eq!(said.len(), 1, "{name}: {said:?}");
        assert!(said[0].starts_with(WARNING) && said[0].contains(why), "{name}: {said:?}");
        assert_eq!(scene.logged("session-ended").len(), 1, "{name}: the error log has it all");
        assert_eq!(std::fs::read_to_string(scene.fixture.path("taken")).unwrap(), precious);
        let stock = Subject::stock().open(&scene.fixture.database()).expect("stock opens it");
        assert_eq!(stock.integer("SELECT count(*) FROM t"), Ok(2), "{name}");
    }
}

#[test]
fn a_value_that_means_nothing_is_told() {
    let Some(subject) = real_plait("events without meaning") else { return };
    let mut scene = Scene::new(subject);
    scene.events = "jounald".into();
    let mut actor = scene.start("only");
    actor.ok("INSERT INTO t(v) VALUES(1)");
    actor.close().expect("it closes");
    let said = scene.logged("events are not written");
    assert!(said.len() == 1 && said[0].contains("jounald is neither"), "{said:?}");
}

/// Far more than the log may become.
const LIMIT: u64 = 400_000_000;

#[test]
fn a_file_as_long_as_the_program_may_write_ends_no_program() {
    let Some(subject) = real_plait("events past a limit") else { return };
    let scene = Scene::new(subject);
    let mut actor = scene.start("limited");
    assert_eq!(scene.kinds(), ["session-began"]);
    os::limit(actor.pid(), os::Limited::FileSize, Some(LIMIT)).expect("a limit");
    let events = File::options().append(true).open(&scene.events).expect("it is there");
    events.set_len(LIMIT - 10).expect("a file with a hole");
    actor.close().expect("it closes");
    let said = scene.logged("events are not written");
    assert!(said.len() == 1 && said[0].contains("File too large"), "{said:?}");
    assert_eq!(std::fs::metadata(&scene.events).expect("it is there").len(), LIMIT - 10);
}
