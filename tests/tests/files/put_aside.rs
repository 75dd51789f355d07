//! A database file at rest beside the log of another one, or of a later state of itself: as a restore leaves it, for which the program is killed,
//! `-wal` and `-shm` are removed and a backup is copied into place. The program starts with the backup, and the log is kept under another name.

use plait_tests::actor::Actor;
use plait_tests::place::Place;
use plait_tests::sqlite::CANTOPEN;
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::path::{Path, PathBuf};

const ROWS: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, val TEXT); CREATE INDEX t_val ON t(val);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<500) INSERT INTO t SELECT i, 'v'||i FROM n;";
const COUNT: &str = "SELECT count(*) FROM t";
/// Passages of the step between the names: memory, pages, log.
const NAMES: u32 = 3;

/// A backup of every kind, of the state before the session.
fn backups(fixture: &Fixture) -> Vec<(&'static str, Vec<u8>)> {
    let at_rest = std::fs::read(fixture.database()).expect("at rest");
    let db = fixture.open();
    let into = fixture.path("into.db");
    db.execute(&format!("VACUUM INTO '{}'", into.display())).expect("a copy");
    db.close().expect("it closes");
    let rollback = std::fs::read(into).expect("the copy");
    let mut wal = rollback.clone();
    wal[18..20].fill(2);
    vec![("the closed file", at_rest), ("VACUUM INTO", rollback), (".backup", wal)]
}

/// A session that was killed, with rows that no file but the log has, one of them perhaps only shared memory; and its files: database, WAL, log and
/// shared memory.
fn killed_session(subject: &Subject, fixture: &Fixture) -> Vec<(PathBuf, Vec<u8>)> {
    let mut writer = Actor::start(Place::Processes, "writer", subject, &fixture.database());
    writer.ok("INSERT INTO t(val) VALUES('merged'); PRAGMA wal_checkpoint");
    writer.ok("INSERT INTO t(val) VALUES('in the log')");
    writer.ok("PRAGMA synchronous=NORMAL; INSERT INTO t(val) VALUES('in memory, perhaps')");
    writer.kill();
    let paths = ["", "-wal", "-plait", "-plait-shm"].map(|suffix| fixture.side_file(suffix));
    paths.map(|path| (path.clone(), std::fs::read(path).expect("it is there"))).into()
}

/// As people restore.
fn restore(fixture: &Fixture, backup: &[u8], memory: bool, moved: bool) {
    for suffix in ["-wal", "-shm", "-plait-shm"] {
        if suffix != "-plait-shm" || !memory {
            let _ = std::fs::remove_file(fixture.side_file(suffix));
        }
    }
    if moved {
        std::fs::remove_file(fixture.database()).expect("removed");
    }
    std::fs::write(fixture.database(), backup).expect("copied into place");
}

/// What programs do as they start.
fn start(subject: &Subject, database: &Path) -> Actor {
    let mut program = Actor::start(Place::Processes, "program", subject, database);
    assert_eq!(program.ok("PRAGMA journal_mode=concurrent"), [["concurrent".into()]]);
    program.ok("BEGIN; SELECT count(*) FROM t; INSERT INTO t(val) VALUES('new'); COMMIT");
    program
}

// holds ASIDE-1
#[test]
fn a_backup_that_is_put_in_the_place_of_a_killed_database_is_used_and_the_log_is_kept() {
    let Some(subject) = real_plait("a restore") else { return };
    for kind in 0..3 {
        for (memory, moved) in [(true, false), (true, true), (false, false), (false, true)] {
            let fixture = Fixture::new(subject.clone(), ROWS);
            let database = fixture.database();
            let (what, backup) = backups(&fixture).swap_remove(kind);
            let what = format!("{what}, memory {memory}, moved {moved}");
            let killed = killed_session(&subject, &fixture);
            restore(&fixture, &backup, memory, moved);
            for times in 1..3 {
                let mut program = start(&subject, &database);
                assert_eq!(program.integer(COUNT), 500 + times, "{what}");
                assert_eq!(program.ok("PRAGMA integrity_check"), [["ok".into()]], "{what}");
                program.close().expect("it closes");
            }
            says_so(&subject, &database, &what);
            // With the newest file in its place and all names given back nothing is lost.
            for suffix in ["-plait", "-plait-shm"] {
                let aside = fixture.side_file(&format!("{suffix}-given-up-1"));
                assert_eq!(aside.exists(), memory || suffix == "-plait", "{what}");
                let was = killed.iter().find(|(path, _)| *path == fixture.side_file(suffix));
                if aside.exists() {
                    let kept = std::fs::read(&aside).expect("it was kept");
                    assert!(was.is_some_and(|(_, was)| *was == kept), "{what}: {suffix}");
                    std::fs::rename(aside, fixture.side_file(suffix)).expect("its name again");
                }
            }
            for (path, bytes) in &killed[..2] {
                std::fs::write(path, bytes).expect("put back");
            }
            let newest = subject.open(&database).and_then(|db| db.integer(COUNT));
            let least = if memory { 503 } else { 502 };
            assert!(newest.as_ref().is_ok_and(|n| *n >= least), "{what}: {newest:?}");
        }
    }
}

#[track_caller]
fn says_so(subject: &Subject, database: &Path, what: &str) {
    let Some(mut command) = subject.command() else { return };
    let status = command.arg("status").arg(database).output().expect("it runs");
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(text.contains("-plait-given-up-1"), "{what}: {text}");
}

#[test]
fn a_file_whose_log_was_put_aside_says_where_it_is() {
    let Some(subject) = real_plait("a restore") else { return };
    let fixture = Fixture::new(subject.clone(), ROWS);
    let backup = backups(&fixture).swap_remove(0).1;
    let killed = killed_session(&subject, &fixture);
    restore(&fixture, &backup, true, false);
    start(&subject, &fixture.database()).close().expect("it closes");
    for (path, bytes) in &killed {
        if *path == fixture.database() || *path == fixture.side_file("-wal") {
            std::fs::write(path, bytes).expect("put back, without its log");
        }
    }
    let error = subject
        .open(&fixture.database())
        .and_then(|db| db.integer(COUNT))
        .expect_err("it lacks commits");
    assert_eq!(error.code, CANTOPEN, "{error}");
    assert!(error.message.contains("-plait-given-up-1"), "{error}");
}

#[test]
fn shared_memory_alone_of_another_session_is_put_aside_as_well() {
    let Some(subject) = real_plait("a restore") else { return };
    let fixture = Fixture::new(subject.clone(), ROWS);
    let backup = backups(&fixture).swap_remove(0).1;
    killed_session(&subject, &fixture);
    std::fs::remove_file(fixture.side_file("-plait")).expect("somebody removes the log");
    restore(&fixture, &backup, true, false);
    let mut program = start(&subject, &fixture.database());
    assert_eq!(program.integer(COUNT), 501);
    program.close().expect("it closes");
    assert!(fixture.side_file("-plait-shm-given-up-1").exists());
}

// holds ASIDE-3
#[test]
fn who_is_killed_in_putting_aside_leaves_the_rest_to_the_next() {
    let Some(subject) = real_plait("crash points") else { return };
    for passage in 1..=NAMES {
        let fixture = Fixture::new(subject.clone(), ROWS);
        let backup = backups(&fixture).swap_remove(0).1;
        killed_session(&subject, &fixture);
        let log = std::fs::read(fixture.side_file("-plait")).expect("the log");
        restore(&fixture, &backup, true, false);
        let crashing = Subject::plait_with_crash_points();
        let at = format!("aside.renamed:{passage}");
        let mut victim = Actor::in_process_with("victim", &crashing, &[("PLAIT_CRASH_AT", &at)]);
        victim.send_open(&fixture.database());
        victim.await_death();
        let mut program = start(&subject, &fixture.database());
        assert_eq!(program.integer(COUNT), 501, "killed at {at}");
        program.close().expect("it closes");
        let kept = (1..3)
            .filter_map(|n| std::fs::read(fixture.side_file(&format!("-plait-given-up-{n}"))).ok());
        assert!(kept.eq([log]), "killed at {at}");
        let memory =
            (1..3).filter(|n| fixture.side_file(&format!("-plait-shm-given-up-{n}")).exists());
        assert_eq!(memory.count(), 1, "killed at {at}");
    }
}
