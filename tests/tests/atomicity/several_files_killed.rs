//! A process is killed at each step of a commit over several files: every file has it or none has, for the living, for who comes
//! later, and after a restart of the machine.

use plait_tests::actor::Actor;
use plait_tests::crash::points::crash_points;
use plait_tests::os;
use plait_tests::place::Place;
use plait_tests::powercut::recording::Recording;
use plait_tests::sqlite::{BUSY, IOERR};
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What the other file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    Concurrent,
    Rollback(&'static str),
}

/// Who is there when the process dies, and what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scene {
    /// A process has main open, another the other file.
    Beside,
    /// Nobody has either open.
    Nobody,
    /// And shared memory is gone, as after a restart.
    Restart,
    /// Nobody has either open, and somebody has removed the logs.
    LogsLost,
}

/// What the transaction changes: a row of each file, and the schema of these. Those run exclusively in that file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Rows,
    SchemaOfMain,
    SchemaOfOther,
    SchemaOfBoth,
}

impl Work {
    fn is_of_schema(self) -> [bool; 2] {
        match self {
            Work::Rows => [false, false],
            Work::SchemaOfMain => [true, false],
            Work::SchemaOfOther => [false, true],
            Work::SchemaOfBoth => [true, true],
        }
    }

    fn sql(self) -> String {
        let mut sql = String::from("BEGIN;");
        for (schema, is_changed) in ["main", "other"].into_iter().zip(self.is_of_schema()) {
            sql += &format!("INSERT INTO {schema}.t VALUES(2, 'two');");
            if is_changed {
                sql += &format!(
                    "CREATE TABLE {schema}.made(v); INSERT INTO {schema}.made VALUES('made'); CREATE INDEX {schema}.mv ON made(v);"
                );
            }
        }
        sql + "COMMIT"
    }
}

const SCENES: [Scene; 4] = [Scene::Beside, Scene::Nobody, Scene::Restart, Scene::LogsLost];

/// The steps of the author of a commit, which come once for each concurrent file; and whether the transaction has happened by then,
/// where it is decided by the first passage.
const STEPS: [(&str, bool); 12] = [
    ("several.reference_written", false),
    ("several.referenced", false),
    ("several.appended", false),
    ("several.published", false),
    ("several.prepared", false),
    ("several.decided", true),
    ("several.resolution_appended", true),
    ("several.resolution_published", true),
    ("several.node_inserted", true),
    ("several.resolved", true),
    ("several.reference_removed", true),
    ("several.committed", true),
];
/// Those of the author of a part that runs exclusively, which come once for each such file, and how often they come for any file.
const STEPS_BY_PAGES: [(&str, bool, u64); 14] = [
    ("several.reference_written", false, 2),
    ("several.referenced", false, 2),
    ("several.pages_written", false, 1),
    ("several.pages_synced", false, 1),
    ("several.appended", false, 2),
    ("several.published", false, 2),
    ("several.prepared", false, 2),
    ("several.decided", true, 2),
    ("exclusive.committed", true, 1),
    ("several.resolved", true, 2),
    ("several.pages_removed", true, 1),
    ("several.reference_removed", true, 2),
    ("several.committed", true, 2),
    ("exclusive.settled", true, 1),
];
/// Those of who cleans up after him; and whether he comes there when it was committed, or not.
const OF_HEIRS_BY_PAGES: [(&str, [bool; 2]); 10] = [
    ("several.inherited", [true, true]),
    ("several.pages_putting", [true, false]),
    ("several.pages_put", [true, false]),
    ("several.resolution_appended", [false, true]),
    ("several.resolution_published", [false, true]),
    ("several.rolled_back", [false, true]),
    ("several.resolved", [true, true]),
    ("several.pages_removed", [true, true]),
    ("several.reference_removed", [true, true]),
    ("several.committed", [true, false]),
];
/// Those of who cleans up after him.
const OF_HEIRS: [&str; 7] = [
    "several.inherited",
    "several.resolution_appended",
    "several.resolution_published",
    "several.node_inserted",
    "several.resolved",
    "several.rolled_back",
    "several.reference_removed",
];
/// Those of who takes back what he has prepared.
const OF_ROLLBACK: [&str; 5] = [
    "several.rolling_back",
    "several.resolution_appended",
    "several.resolution_published",
    "several.resolved",
    "several.rolled_back",
];

/// And of who takes back pages, behind those.
const OF_ROLLBACK_BY_PAGES: [&str; 2] = ["several.pages_removed", "several.reference_removed"];

const TABLE: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, v); CREATE INDEX tv ON t(v)";

struct Stage {
    fixture: Fixture,
    other: Other,
    work: Work,
    /// What is tried, for reports.
    name: String,
}

impl Stage {
    fn new(subject: &Subject, other: Other, name: String) -> Self {
        let fixture = Fixture::new(subject.clone(), TABLE);
        let connection = match other {
            Other::Concurrent => subject.create(&fixture.path("other.db")),
            Other::Rollback(mode) => {
                subject.open(&fixture.path("other.db")).inspect(|connection| {
                    assert_eq!(
                        connection.text(&format!("PRAGMA journal_mode={mode}")).as_deref(),
                        Ok(mode)
                    );
                })
            }
        };
        connection.and_then(|connection| connection.execute(TABLE)).expect("another database");
        Self { fixture, other, work: Work::Rows, name }
    }

    /// Who opens each of the files next is killed at a step, or has found done what leads there.
    fn heirs_die_at(&self, crash: &Subject, point: &str) {
        for path in [self.fixture.database(), self.other()] {
            let mut heir = Actor::in_process_with("heir", crash, &[("PLAIT_CRASH_AT", point)]);
            heir.send_open(&path);
            heir.await_death();
        }
    }

    fn with(self, work: Work) -> Self {
        Self { name: format!("{work:?} {}", self.name), work, ..self }
    }

    fn other(&self) -> PathBuf {
        self.fixture.path("other.db")
    }

    fn attach(&self) -> String {
        let mode = match self.other {
            Other::Rollback(mode) => format!("; PRAGMA other.journal_mode={mode}"),
            Other::Concurrent => String::new(),
        };
        format!("ATTACH '{}' AS other{mode}", self.other().display())
    }

    /// A process that dies at a passage of a point, with a row of its own in each file.
    fn author(&self, point: &str, passage: u64) -> Actor {
        let subject = Subject::plait_with_crash_points();
        let at = format!("{point}:{passage}");
        let at = ("PLAIT_CRASH_AT", at.as_str());
        let mut author =
            Actor::start_with_environment("author", &subject, &self.fixture.database(), at);
        author.ok(&self.attach());
        author.ok("INSERT OR IGNORE INTO main.t VALUES(1, 'one')");
        author.ok("INSERT OR IGNORE INTO other.t VALUES(1, 'one')");
        author
    }

    fn kill_at(&self, point: &str, passage: u64) {
        let mut author = self.author(point, passage);
        author.send(&self.work.sql());
        author.await_death();
    }

    fn restart(&self, scene: Scene) {
        let suffix = match scene {
            Scene::Restart => "-plait-shm",
            Scene::LogsLost => "-plait",
            Scene::Beside | Scene::Nobody => return,
        };
        for path in [self.fixture.database(), self.other()] {
            let mut name = path.into_os_string();
            name.push(suffix);
            let removed = std::fs::remove_file(name);
            assert!(removed.is_ok() || matches!(self.other, Other::Rollback(_)), "{removed:?}");
        }
    }

    fn process(&self, path: &Path) -> Actor {
        Actor::start(Place::Processes, "witness", &self.fixture.subject, path)
    }

    /// Both files, looked at by others, agree; twice; then both can be changed again, in one transaction. True if they have it.
    #[track_caller]
    fn audit(&self, witnesses: Option<(Actor, Actor)>, main_first: bool) -> bool {
        let name = &self.name;
        let (mut main, mut other) = witnesses.unwrap_or_else(|| {
            // In this order they recover.
            let (main, other) = (self.fixture.database(), self.other());
            let count = |actor: &mut Actor| actor.integer("SELECT count(*) FROM t");
            if main_first {
                let mut first = self.process(&main);
                count(&mut first);
                (first, self.process(&other))
            } else {
                let mut first = self.process(&other);
                count(&mut first);
                (self.process(&main), first)
            }
        });
        let looks: Vec<(i64, i64)> = (0..2)
            .map(|_| {
                let sql = "SELECT count(*) FROM t WHERE v IN ('one', 'two')";
                (main.integer(sql), other.integer(sql))
            })
            .collect();
        assert_eq!(looks[0].0, looks[0].1, "{name}: they do not agree: {looks:?}");
        assert_eq!(looks[0], looks[1], "{name}: they have changed");
        assert!([1, 2].contains(&looks[0].0), "{name}: {looks:?}");
        main.ok("INSERT INTO t VALUES(10, 'main alone')");
        other.ok("INSERT INTO t VALUES(10, 'other alone')");
        main.ok(&self.attach());
        main.ok("BEGIN IMMEDIATE; INSERT INTO main.t VALUES(11, 'both'); INSERT INTO other.t VALUES(11, 'both'); COMMIT");
        assert_eq!(other.integer("SELECT count(*) FROM t WHERE v='both'"), 1, "{name}");
        main.close().expect("main closes");
        other.close().expect("the other closes");
        drop((main, other));
        self.at_rest(looks[0].0 + 2);
        let decided = looks[0].0 == 2;
        self.has_made(decided);
        decided
    }

    /// What the transaction was to make is there, whole, or is not.
    #[track_caller]
    fn has_made(&self, decided: bool) {
        let paths = [self.fixture.database(), self.other()];
        for (path, is_changed) in paths.iter().zip(self.work.is_of_schema()) {
            let stock = Subject::stock().open(path).expect("stock SQLite opens it");
            let made = "SELECT count(*) FROM sqlite_schema WHERE name IN ('made', 'mv')";
            let expected = if is_changed && decided { 2 } else { 0 };
            assert_eq!(stock.integer(made), Ok(expected), "{} {}", self.name, path.display());
            if expected > 0 {
                assert_eq!(stock.integer("SELECT count(*) FROM made WHERE v='made'"), Ok(1));
            }
        }
    }

    /// Everybody has closed: plain files with these rows, and nothing beside them.
    #[track_caller]
    fn at_rest(&self, rows: i64) {
        for path in [self.fixture.database(), self.other()] {
            let stock = Subject::stock().open(&path).expect("stock SQLite opens it");
            assert_eq!(
                stock.integer("SELECT count(*) FROM t NOT INDEXED"),
                Ok(rows),
                "{}",
                self.name
            );
            assert_eq!(stock.text("PRAGMA integrity_check").as_deref(), Ok("ok"), "{}", self.name);
        }
        let left = self.left_behind();
        assert!(left.is_empty(), "{}: left behind: {left:?}", self.name);
    }

    fn left_behind(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.fixture.directory()).expect("the folder");
        let names =
            entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned());
        names.filter(|name| name.contains("-plait") || name.contains("-mj")).collect()
    }
}

fn witnesses(stage: &Stage, scene: Scene) -> Option<(Actor, Actor)> {
    if scene != Scene::Beside {
        return None;
    }
    let (mut main, mut other) =
        (stage.process(&stage.fixture.database()), stage.process(&stage.other()));
    for actor in [&mut main, &mut other] {
        actor.integer("SELECT count(*) FROM t");
    }
    Some((main, other))
}

/// Kills the author at each of his steps, in each file's turn.
fn kill_the_author(subject: &Subject, other: Other, steps: &[(&str, bool)]) {
    let files = if other == Other::Concurrent { 2 } else { 1 };
    for &(point, decided) in steps {
        for passage in 1..=files {
            let first = [true, false, passage == 1, passage == 2];
            for (scene, main_first) in SCENES.into_iter().zip(first) {
                let stage =
                    Stage::new(subject, other, format!("{other:?} {point}:{passage} {scene:?}"));
                let there = witnesses(&stage, scene);
                stage.kill_at(point, passage);
                stage.restart(scene);
                assert_eq!(stage.audit(there, main_first), decided, "{}", stage.name);
            }
        }
    }
}

// holds TXN-6
#[test]
fn two_concurrent_files_agree_after_a_kill_at_any_step() {
    let Some(subject) = real_plait("kills") else { return };
    kill_the_author(&subject, Other::Concurrent, &STEPS);
}

#[test]
fn a_concurrent_file_and_one_in_a_rollback_mode_agree_after_a_kill_at_any_step() {
    let Some(subject) = real_plait("kills") else { return };
    kill_the_author(&subject, Other::Rollback("delete"), &STEPS);
    for mode in ["truncate", "persist"] {
        let steps = STEPS.into_iter().filter(|(point, _)| {
            ["several.referenced", "several.prepared", "several.decided"].contains(point)
        });
        kill_the_author(&subject, Other::Rollback(mode), &steps.collect::<Vec<_>>());
    }
}

// holds PREP-10
#[test]
fn a_reader_waits_for_the_process_that_settles_a_transaction_of_the_dead() {
    let Some(subject) = real_plait("a stopped heir") else { return };
    let stage = Stage::new(&subject, Other::Concurrent, "a stopped heir".into());
    let (mut main, mut other) = witnesses(&stage, Scene::Beside).expect("both are open");
    let count = "SELECT count(*) FROM t WHERE v IN ('one', 'two')";
    stage.kill_at("several.decided", 1);
    let stop = [("PLAIT_STOP_AT", "several.resolution_published")];
    let crash = Subject::plait_with_crash_points();
    let mut heir = Actor::in_process_with("heir", &crash, &stop);
    heir.send_open(&stage.fixture.database());
    heir.await_stop();
    assert_eq!(other.integer(count), 2, "the other file has the transaction");
    main.fails(count, BUSY);
    os::resume(heir.pid()).expect("it goes on");
    assert_eq!(main.integer(count), 2);
}

/// The same, of work that runs exclusively in a file or in both.
fn kill_the_author_of_pages(subject: &Subject, other: Other, work: Work) {
    let exclusive = work.is_of_schema().into_iter().filter(|is| *is).count() as u64;
    let files = if other == Other::Concurrent { 2 } else { 1 };
    for (i, (point, decided, passages)) in STEPS_BY_PAGES.into_iter().enumerate() {
        let last = if passages == 2 { files } else { exclusive };
        for passage in 1..=last {
            for (j, scene) in SCENES.into_iter().enumerate() {
                let name = format!("{other:?} {point}:{passage} {scene:?}");
                let stage = Stage::new(subject, other, name).with(work);
                let there = witnesses(&stage, scene);
                stage.kill_at(point, passage);
                stage.restart(scene);
                assert_eq!(stage.audit(there, (i + j) % 2 == 0), decided, "{}", stage.name);
            }
        }
    }
}

#[test]
fn a_schema_and_rows_of_two_files_agree_after_a_kill_at_any_step() {
    let Some(subject) = real_plait("kills") else { return };
    kill_the_author_of_pages(&subject, Other::Concurrent, Work::SchemaOfMain);
}

#[test]
fn rows_and_a_schema_of_two_files_agree_after_a_kill_at_any_step() {
    let Some(subject) = real_plait("kills") else { return };
    kill_the_author_of_pages(&subject, Other::Concurrent, Work::SchemaOfOther);
}

#[test]
fn the_schemas_of_two_files_agree_after_a_kill_at_any_step() {
    let Some(subject) = real_plait("kills") else { return };
    kill_the_author_of_pages(&subject, Other::Concurrent, Work::SchemaOfBoth);
}

#[test]
fn a_schema_and_a_file_in_a_rollback_mode_agree_after_a_kill_at_any_step() {
    let Some(subject) = real_plait("kills") else { return };
    kill_the_author_of_pages(&subject, Other::Rollback("delete"), Work::SchemaOfMain);
}

#[test]
fn who_cleans_up_after_an_exclusive_part_may_die_at_any_step_too() {
    let Some(subject) = real_plait("kills") else { return };
    let crash = Subject::plait_with_crash_points();
    for (death, decided) in [("several.prepared", false), ("several.decided", true)] {
        let comes = |when: &[bool; 2]| if decided { when[0] } else { when[1] };
        for (point, _) in OF_HEIRS_BY_PAGES.into_iter().filter(|(_, when)| comes(when)) {
            for scene in SCENES {
                let name = format!("after {death} at {point} {scene:?}");
                let stage = Stage::new(&subject, Other::Concurrent, name).with(Work::SchemaOfBoth);
                let there = witnesses(&stage, scene);
                stage.kill_at(death, if decided { 1 } else { 2 });
                stage.heirs_die_at(&crash, point);
                stage.restart(scene);
                assert_eq!(stage.audit(there, true), decided, "{}", stage.name);
            }
        }
    }
}

// holds PAGES-3
#[test]
fn a_recovery_that_brings_pages_may_be_killed_at_any_step_and_again() {
    let Some(subject) = real_plait("kills") else { return };
    let crash = Subject::plait_with_crash_points();
    // What is left to be done after the first is not come to again by the second.
    for (i, points) in [
        ["recovery.applied", "recovery.applied"],
        ["recovery.applied", "recovery.merged"],
        ["recovery.merged", "rest.committed"],
        ["rest.committed", "several.pages_removed"],
        ["recovery.unfenced", "several.pages_removed"],
        ["several.pages_removed", "several.reference_removed"],
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("recovery at {points:?}");
        let stage = Stage::new(&subject, Other::Concurrent, name).with(Work::SchemaOfBoth);
        stage.kill_at("several.decided", 1);
        stage.restart(Scene::Restart);
        for point in points {
            for path in [stage.fixture.database(), stage.other()] {
                let mut heir = Actor::in_process_with("heir", &crash, &[("PLAIT_CRASH_AT", point)]);
                heir.send_open(&path);
                heir.await_death();
                let mut memory = path.into_os_string();
                memory.push("-plait-shm");
                let _ = std::fs::remove_file(memory);
            }
        }
        assert!(stage.audit(None, i % 2 == 0), "{}", stage.name);
    }
}

#[test]
fn who_cleans_up_may_die_at_any_step_too() {
    let Some(subject) = real_plait("kills") else { return };
    for (death, decided) in [("several.prepared", false), ("several.decided", true)] {
        // A rollback has no rows to insert.
        let steps = OF_HEIRS.iter().filter(|point| match **point {
            "several.node_inserted" => decided,
            "several.rolled_back" => !decided,
            _ => true,
        });
        for point in steps {
            for scene in SCENES {
                let name = format!("after {death} at {point} {scene:?}");
                let stage = Stage::new(&subject, Other::Concurrent, name);
                let there = witnesses(&stage, scene);
                // Nobody looks before the heir does.
                stage.kill_at(death, if decided { 1 } else { 2 });
                stage.heirs_die_at(&Subject::plait_with_crash_points(), point);
                stage.restart(scene);
                assert_eq!(stage.audit(there, true), decided, "{}", stage.name);
            }
        }
    }
}

/// It is there for all who begin after the death, and who cleans up is not through: they wait for him, or are told so.
// holds PREP-10
#[test]
fn who_begins_to_read_waits_for_who_cleans_up() {
    let Some(subject) = real_plait("kills") else { return };
    for (point, is_through) in [("several.inherited", false), ("several.resolved", true)] {
        let stage = Stage::new(&subject, Other::Concurrent, format!("heir at {point}"));
        let there = witnesses(&stage, Scene::Beside);
        stage.kill_at("several.decided", 1);
        let crash = Subject::plait_with_crash_points();
        let mut heir = Actor::in_process_with("heir", &crash, &[("PLAIT_STOP_AT", point)]);
        heir.send_open(&stage.fixture.database());
        heir.await_stop();
        let count = "SELECT count(*) FROM t WHERE id=2";
        let mut newcomer = Actor::idle(Place::Processes, "newcomer", &subject);
        newcomer.open(&stage.fixture.database()).expect("it opens");
        newcomer.busy_timeout(std::time::Duration::from_secs(60));
        if is_through {
            assert_eq!(newcomer.integer(count), 1, "{point}: it is missing at first");
            os::resume(heir.pid()).expect("it goes on");
        } else {
            newcomer.send(count);
            assert!(newcomer.still_waits_after(std::time::Duration::from_millis(300)), "{point}");
            os::resume(heir.pid()).expect("it goes on");
            let reply = newcomer.finish();
            assert_eq!(reply.rows, [[1.into()]], "{point}: {:?}", reply.error);
        }
        assert_eq!(heir.finish().error, None, "{point}");
        drop((heir, newcomer));
        assert!(stage.audit(there, true), "{}", stage.name);
    }
}

#[test]
fn who_takes_back_what_is_prepared_may_die_at_any_step() {
    let Some(subject) = real_plait("kills") else { return };
    let by_pages = OF_ROLLBACK.into_iter().chain(OF_ROLLBACK_BY_PAGES);
    let rows = OF_ROLLBACK.into_iter().map(|point| (Work::Rows, point));
    for (work, point) in rows.chain(by_pages.map(|point| (Work::SchemaOfMain, point))) {
        for scene in SCENES {
            let name = format!("{work:?} {point} {scene:?}");
            let stage = Stage::new(&subject, Other::Concurrent, name).with(work);
            let there = witnesses(&stage, scene);
            // The second file cannot be prepared.
            let in_the_way = stage.fixture.path("other.db-plait-super");
            std::fs::create_dir(&in_the_way).expect("a folder");
            stage.kill_at(point, 1);
            std::fs::remove_dir(&in_the_way).expect("removed");
            stage.restart(scene);
            // The super-journal lists a reference that could not be looked at.
            let kept: Vec<_> =
                stage.left_behind().into_iter().filter(|name| name.contains("-mj")).collect();
            let is_resolved = ["several.rolled_back", "several.pages_removed"].contains(&point)
                || point == "several.reference_removed";
            for name in kept.iter().filter(|_| is_resolved) {
                std::fs::remove_file(stage.fixture.path(name)).expect("removed");
            }
            assert!(!stage.audit(there, true), "{}", stage.name);
        }
    }
}

#[test]
fn stock_sqlite_may_recover_its_file_first_and_leaves_the_decision_to_the_other() {
    let Some(subject) = real_plait("kills") else { return };
    for (point, decided) in [("several.prepared", false), ("several.decided", true)] {
        for scene in [Scene::Nobody, Scene::Restart] {
            let name = format!("{point} {scene:?}, stock first");
            let stage = Stage::new(&subject, Other::Rollback("delete"), name);
            stage.kill_at(point, 1);
            let stock = Subject::stock().library().open(stage.other()).expect("it opens");
            let rows = if decided { 2 } else { 1 };
            assert_eq!(stock.integer("SELECT count(*) FROM t"), Ok(rows), "{}", stage.name);
            drop(stock);
            stage.restart(scene);
            assert_eq!(stage.audit(None, true), decided, "{}", stage.name);
        }
    }
}

// holds PREP-1, PREP-3
#[test]
fn a_process_that_stands_still_in_between_holds_up_writers_and_nobody_else() {
    let Some(subject) = real_plait("a stopped process") else { return };
    for point in ["several.prepared", "several.decided"] {
        let stage = Stage::new(&subject, Other::Concurrent, point.to_owned());
        let (mut main, mut other) = witnesses(&stage, Scene::Beside).expect("witnesses");
        let crash = Subject::plait_with_crash_points();
        let at = ("PLAIT_STOP_AT", point);
        let database = stage.fixture.database();
        let mut author = Actor::start_with_environment("author", &crash, &database, at);
        author.ok(&stage.attach());
        author.ok("INSERT INTO main.t VALUES(1, 'one'); INSERT INTO other.t VALUES(1, 'one')");
        author.send(&stage.work.sql());
        author.await_stop();
        for witness in [&mut main, &mut other] {
            assert_eq!(witness.integer("SELECT count(*) FROM t"), 1, "not before it is finished");
            witness.busy_timeout(std::time::Duration::from_millis(50));
            // What is merged and what is not changes nothing of that.
            witness.ok("PRAGMA wal_checkpoint");
        }
        let error = main.fails("INSERT INTO t VALUES(3, 'three')", plait_tests::sqlite::BUSY);
        assert!(error.message.contains("holds the writer's right"), "{error}");
        plait_tests::os::resume(author.pid()).expect("it goes on");
        assert_eq!(author.finish().error, None);
        drop(author);
        assert!(stage.audit(Some((main, other)), true));
    }
}

/// A process that stands still at a step of a commit by pages, or of its rollback, costs the others their busy timeout at most, and no read.
// holds PREP-6
#[test]
fn a_process_that_stands_still_with_its_pages_prepared_holds_up_writers_and_nobody_else() {
    let Some(subject) = real_plait("a stopped process") else { return };
    // How long the others wait, and what they may need for it on a busy machine.
    let (timeout, bound) =
        (std::time::Duration::from_millis(300), std::time::Duration::from_secs(8));
    for (point, ..) in STEPS_BY_PAGES {
        let name = format!("stopped at {point}");
        let stage = Stage::new(&subject, Other::Concurrent, name.clone()).with(Work::SchemaOfBoth);
        let (mut main, mut other) = witnesses(&stage, Scene::Beside).expect("witnesses");
        let crash = Subject::plait_with_crash_points();
        let database = stage.fixture.database();
        let at = ("PLAIT_STOP_AT", point);
        let mut author = Actor::start_with_environment("author", &crash, &database, at);
        author.ok(&stage.attach());
        author.ok("BEGIN CONCURRENT; INSERT INTO main.t VALUES(1, 'one'); COMMIT");
        author.ok("BEGIN CONCURRENT; INSERT INTO other.t VALUES(1, 'one'); COMMIT");
        author.send(&stage.work.sql());
        author.await_stop();
        let mut refused = 0;
        for witness in [&mut main, &mut other] {
            witness.busy_timeout(timeout);
            for sql in [
                "SELECT count(*) FROM t",
                "DELETE FROM t WHERE v='nobody'",
                "BEGIN CONCURRENT; SELECT 1; COMMIT",
            ] {
                let reply = witness.run(sql);
                assert!(reply.took < bound, "{name}: {sql} took {:?}", reply.took);
                let Some(error) = reply.error else { continue };
                assert_eq!(error.code, BUSY, "{name}: {sql}: {error}");
                assert!(sql.starts_with("DELETE"), "{name}: reading waits for nobody: {error}");
                refused += 1;
            }
            witness.busy_timeout(std::time::Duration::from_secs(30));
        }
        // The other file's rights are held until its own part is settled, after this one's.
        assert!(refused > 0, "{name}: nobody waits");
        plait_tests::os::resume(author.pid()).expect("it goes on");
        assert_eq!(author.finish().error, None, "{name}");
        author.close().expect("it closes");
        assert!(stage.audit(Some((main, other)), true), "{name}");
    }
}

/// Everything in a folder.
fn files_of(folder: &Path) -> BTreeSet<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).expect("the folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.map(|path| (path.clone(), std::fs::read(path).expect("a file"))).collect()
}

#[test]
fn plait_check_looks_at_an_undecided_log_as_the_super_journal_decides_it_and_changes_nothing() {
    let Some(subject) = real_plait("kills") else { return };
    // What the transaction adds to either file refers to nothing, which the check tells where it has happened.
    let refer = "CREATE TABLE child(parent REFERENCES t(id))";
    for (point, decided) in [("several.prepared", false), ("several.decided", true)] {
        for scene in [Scene::Nobody, Scene::Restart] {
            let stage = Stage::new(&subject, Other::Concurrent, format!("{point} {scene:?}"));
            for path in [stage.fixture.database(), stage.other()] {
                subject.open(&path).and_then(|file| file.execute(refer)).expect("another table");
            }
            let mut author = stage.author(point, 1);
            author.send("BEGIN; INSERT INTO main.child VALUES(99); INSERT INTO other.child VALUES(99); COMMIT");
            author.await_death();
            stage.restart(scene);
            let before = files_of(stage.fixture.directory());
            // The one that the super-journal is named after, and the other. The author of a decided one had prepared both.
            let prepared = [stage.fixture.database(), stage.other()].into_iter().filter(|path| {
                let mut reference = path.clone().into_os_string();
                reference.push("-plait-super");
                Path::new(&reference).exists()
            });
            for path in prepared {
                let Some(mut command) = subject.command() else { return };
                let check = command.arg("check").arg(&path).output().expect("it runs");
                let text = String::from_utf8_lossy(&check.stdout).into_owned();
                let name = format!("{} {}: {text}", stage.name, path.display());
                assert_eq!(check.status.success(), !decided, "{name}");
                let refers = "refers to a row that table t does not have";
                assert_eq!(text.contains(refers), decided, "{name}");
                assert_eq!(files_of(stage.fixture.directory()), before, "{name}");
            }
            for path in [stage.fixture.database(), stage.other()] {
                let rows = stage.process(&path).integer("SELECT count(*) FROM child");
                assert_eq!(rows, i64::from(decided), "{}", stage.name);
            }
        }
    }
}

#[test]
fn a_super_journal_whose_removal_cannot_be_synced_has_committed_and_commit_says_so() {
    let Some(subject) = real_plait("a failing disk") else { return };
    for other in [Other::Concurrent, Other::Rollback("delete")] {
        let stage = Stage::new(&subject, other, format!("{other:?}"));
        let fail = stage.fixture.directory().with_extension("fail");
        let recording = Recording::of(stage.fixture.directory());
        let mut author = recording.failing_actor("author", &subject, &fail);
        author.open(&stage.fixture.database()).expect("it opens");
        author.ok(&stage.attach());
        author.ok("INSERT INTO main.t VALUES(1, 'one'); INSERT INTO other.t VALUES(1, 'one')");
        std::fs::write(&fail, b"").expect("a file");
        let error = author.fails(&stage.work.sql(), IOERR);
        std::fs::remove_file(&fail).expect("removed");
        assert!(author.fails("COMMIT", 1).message.contains("no transaction"), "{error}");
        for path in [stage.fixture.database(), stage.other()] {
            let rows = stage.process(&path).integer("SELECT count(*) FROM t");
            assert_eq!(rows, 2, "{}: {error}", stage.name);
        }
        author.ok(
            "BEGIN; INSERT INTO main.t VALUES(3, 'x'); INSERT INTO other.t VALUES(3, 'x'); COMMIT",
        );
        author.close().expect("it closes");
        stage.at_rest(3);
        let _ = std::fs::remove_file(stage.fixture.directory().with_extension("record"));
    }
}

#[test]
fn every_crash_point_of_commits_over_several_files_is_tried_here() {
    let rows = STEPS.iter().map(|(point, _)| *point).chain(OF_HEIRS).chain(OF_ROLLBACK);
    let pages = STEPS_BY_PAGES.iter().map(|(point, ..)| *point);
    let pages = pages.chain(OF_HEIRS_BY_PAGES.iter().map(|(point, _)| *point));
    let tried: BTreeSet<&str> =
        rows.chain(pages).filter(|point| point.starts_with("several.")).collect();
    let known = crash_points().into_iter().filter(|point| point.starts_with("several."));
    assert_eq!(tried, known.collect());
}
