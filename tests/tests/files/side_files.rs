//! What stands under the names of the files beside a database, put there by whoever can write in the folder.

use plait_tests::actor::Actor;
use plait_tests::os::is_root;
use plait_tests::place::Place;
use plait_tests::sqlite::CANTOPEN;
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

const SECRET: &[u8] = b"root:x:0:0:root:/root:/bin/sh\n";

/// A file of somebody else, which nobody may change, read or give away.
struct Victim {
    path: PathBuf,
    seen: (u32, u32, u32, u64),
}

impl Victim {
    fn new(fixture: &Fixture) -> Self {
        let path = fixture.path("victim");
        std::fs::write(&path, SECRET).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("its mode");
        let seen = Self::look(&path);
        Self { path, seen }
    }

    fn look(path: &Path) -> (u32, u32, u32, u64) {
        let meta = std::fs::metadata(path).expect("it is there");
        (meta.uid(), meta.gid(), meta.mode(), meta.len())
    }

    #[track_caller]
    fn is_untouched(&self) {
        assert_eq!(Self::look(&self.path), self.seen);
        assert_eq!(std::fs::read(&self.path).expect("readable"), SECRET);
    }
}

/// A resting database that belongs to another user than the one who opens it, where that can be had.
fn of_a_user() -> Fixture {
    let fixture = Fixture::new(Subject::plait(), "CREATE TABLE t(x); INSERT INTO t VALUES(1)");
    if is_root() {
        chown(fixture.database(), Some(1001), Some(1001)).expect("root gives it away");
    }
    fixture
}

fn plant_pipe(path: &Path) {
    let status = std::process::Command::new("mkfifo").arg(path).status().expect("mkfifo");
    assert!(status.success());
}

/// Opens and reads; the error's text.
#[track_caller]
fn is_refused(fixture: &Fixture) -> String {
    let connection = fixture.open();
    let error = connection.integer("SELECT count(*) FROM t").expect_err("it must be refused");
    assert_eq!(error.code, CANTOPEN, "{error}");
    error.message
}

#[test]
fn links_in_place_of_side_files_are_refused_and_what_they_lead_to_stays_as_it_is() {
    if real_plait("side files").is_none() {
        return;
    }
    for suffix in ["-plait-shm", "-plait"] {
        let fixture = of_a_user();
        let victim = Victim::new(&fixture);
        let side = fixture.side_file(suffix);
        symlink(&victim.path, &side).expect("a link");
        let message = is_refused(&fixture);
        assert!(message.contains("symbolic link"), "{suffix}: {message}");
        victim.is_untouched();
        std::fs::remove_file(&side).expect("removed");
        std::fs::hard_link(&victim.path, &side).expect("a second name");
        let message = is_refused(&fixture);
        let why = if suffix == "-plait" { "not a readable log" } else { "hard link" };
        assert!(message.contains(why), "{suffix}: {message}");
        std::fs::remove_file(&side).expect("it is still there");
        victim.is_untouched();
        assert_eq!(fixture.open().integer("SELECT count(*) FROM t"), Ok(1), "{suffix}");
    }
}

#[test]
fn a_link_in_place_of_the_drafted_log_is_removed_and_not_followed() {
    if real_plait("side files").is_none() {
        return;
    }
    let fixture = of_a_user();
    let victim = Victim::new(&fixture);
    symlink(&victim.path, fixture.side_file("-plait-new")).expect("a link");
    let connection = fixture.open();
    connection.execute("INSERT INTO t VALUES(2)").expect("the log is created");
    let (log, base) = (fixture.side_file("-plait"), fixture.database());
    let (log, base) = (std::fs::symlink_metadata(log), std::fs::metadata(base));
    let (log, base) = (log.expect("a log"), base.expect("a base"));
    assert!(log.is_file());
    assert_eq!((log.uid(), log.gid()), (base.uid(), base.gid()));
    victim.is_untouched();
    connection.close().expect("closed");
    victim.is_untouched();
    assert_eq!(fixture.open().integer("SELECT count(*) FROM t"), Ok(2));
}

#[test]
fn a_database_whose_folder_was_backed_up_by_hard_links_opens_during_the_session_and_after_a_crash()
{
    if real_plait("side files").is_none() {
        return;
    }
    let fixture = of_a_user();
    let mut writer =
        Actor::start(Place::Processes, "writer", &fixture.subject, &fixture.database());
    writer.ok("INSERT INTO t VALUES(2)");
    std::fs::create_dir(fixture.path("backup")).expect("a folder");
    for suffix in ["", "-plait", "-plait-shm", "-wal", "-shm"] {
        let file = fixture.side_file(suffix);
        if file.exists() {
            let name = file.file_name().expect("a name");
            std::fs::hard_link(&file, fixture.path("backup").join(name)).expect("a second name");
        }
    }
    let second = fixture.open();
    assert_eq!(second.integer("SELECT count(*) FROM t"), Ok(2));
    second.execute("INSERT INTO t VALUES(3)").expect("a member of the session");
    second.close().expect("closed");
    writer.kill();
    assert_eq!(fixture.open().integer("SELECT count(*) FROM t"), Ok(3));
}

#[test]
fn pipes_and_folders_in_place_of_side_files_are_refused_at_once() {
    if real_plait("side files").is_none() {
        return;
    }
    for suffix in ["-plait-shm", "-plait"] {
        let fixture = of_a_user();
        let side = fixture.side_file(suffix);
        plant_pipe(&side);
        let message = is_refused(&fixture);
        assert!(message.contains("regular file"), "{suffix}: {message}");
        std::fs::remove_file(&side).expect("removed");
        std::fs::create_dir(&side).expect("a folder");
        let message = is_refused(&fixture);
        assert!(message.contains("regular file"), "{suffix}: {message}");
    }
}

#[test]
fn a_database_opened_through_a_link_has_its_side_files_beside_the_file() {
    if real_plait("side files").is_none() {
        return;
    }
    let fixture = of_a_user();
    let link = fixture.path("link.db");
    symlink(fixture.database(), &link).expect("a link");
    let (through, straight) = (fixture.subject.open(&link).expect("opened"), fixture.open());
    through.execute("INSERT INTO t VALUES(2)").expect("written");
    assert_eq!(straight.integer("SELECT count(*) FROM t"), Ok(2));
    assert!(fixture.side_file("-plait").exists() && !fixture.path("link.db-plait").exists());
}

// holds SIDE-4
#[test]
fn the_last_to_close_leaves_a_file_that_has_taken_the_name_of_its_own() {
    if real_plait("side files").is_none() {
        return;
    }
    let fixture = of_a_user();
    let victim = Victim::new(&fixture);
    let connection = fixture.open();
    assert_eq!(connection.integer("SELECT count(*) FROM t"), Ok(1));
    std::fs::rename(&victim.path, fixture.side_file("-plait-shm")).expect("replaced");
    connection.close().expect("closed");
    let moved = Victim { path: fixture.side_file("-plait-shm"), ..victim };
    moved.is_untouched();
}

/// What is told of a file that nothing of ours wrote.
const ELSE: &[u8] = b"somebody's notes, which are nowhere else\n";

/// A database that a killed process has left with commits in its log, and those of `gone` removed.
fn killed(gone: &[&str]) -> Fixture {
    let fixture = of_a_user();
    let mut writer =
        Actor::start(Place::Processes, "writer", &fixture.subject, &fixture.database());
    writer.ok("BEGIN CONCURRENT; INSERT INTO t VALUES(2); COMMIT");
    writer.kill();
    for suffix in gone {
        let _ = std::fs::remove_file(fixture.side_file(suffix));
    }
    fixture
}

#[test]
fn what_holds_something_else_is_neither_written_over_nor_removed() {
    if real_plait("side files").is_none() {
        return;
    }
    for suffix in ["-plait-shm", "-plait-new", "-plait-pages", "-plait-super"] {
        for make in [of_a_user as fn() -> Fixture, || killed(&["-plait-shm", "-shm"])] {
            let fixture = make();
            let side = fixture.side_file(suffix);
            std::fs::write(&side, ELSE).expect("notes");
            let other = fixture.path("other.db");
            let made = fixture.subject.create(&other).expect("another database");
            made.execute("CREATE TABLE o(x)").expect("a table");
            drop(made);
            let connection = fixture.open();
            let attach = format!("ATTACH '{}' AS other", other.display());
            let statements = [
                "SELECT count(*) FROM t",
                "BEGIN CONCURRENT; INSERT INTO t VALUES(3); COMMIT",
                &attach,
                "BEGIN; INSERT INTO main.t VALUES(4); INSERT INTO other.o VALUES(4); COMMIT",
                "BEGIN; CREATE TABLE main.z(a); INSERT INTO other.o VALUES(5); COMMIT",
            ];
            let refused: Vec<_> = statements
                .iter()
                .filter_map(|sql| {
                    let error = connection.execute(sql).err()?;
                    if !connection.autocommit() {
                        connection.execute("ROLLBACK").expect("nothing keeps that");
                    }
                    Some(error)
                })
                .collect();
            for error in &refused {
                assert_eq!(error.code, CANTOPEN, "{suffix}: {error}");
                assert!(error.message.contains(suffix), "{error}");
                assert!(error.message.contains("move it away"), "{error}");
            }
            // A recovery makes no log before the first commit after it.
            assert!(!refused.is_empty(), "{suffix} is needed by some of them");
            connection.close().expect("closed");
            assert_eq!(std::fs::read(&side).expect("still there"), ELSE, "{suffix}");
            std::fs::remove_file(&side).expect("removed");
            let connection = fixture.open();
            connection.execute(&attach).expect("attached");
            for sql in &statements[3..] {
                connection.execute(sql).expect("nothing is in the way");
            }
            connection.close().expect("closed");
        }
    }
}

#[test]
fn empty_files_under_these_names_are_in_nobodys_way() {
    if real_plait("side files").is_none() {
        return;
    }
    type Make = fn() -> Fixture;
    let states: [(&str, Make, i64); 3] = [
        ("at rest", of_a_user, 1),
        ("killed", || killed(&[]), 2),
        ("restarted", || killed(&["-plait-shm", "-shm"]), 2),
    ];
    for suffix in ["-plait", "-plait-shm", "-plait-new", "-plait-pages", "-plait-super"] {
        for (state, make, rows) in states {
            let fixture = make();
            std::fs::write(fixture.side_file(suffix), b"").expect("an empty file");
            let connection = fixture.open();
            let count = connection.integer("SELECT count(*) FROM t");
            if (suffix, state) == ("-plait", "restarted") {
                // It was the log.
                let error = count.expect_err("commits are gone");
                assert_eq!(error.code, CANTOPEN, "{error}");
                continue;
            }
            assert_eq!(count, Ok(rows), "{suffix} {state}");
            connection
                .execute("BEGIN CONCURRENT; INSERT INTO t VALUES(3); COMMIT")
                .unwrap_or_else(|error| panic!("{suffix} {state}: {error}"));
            connection.close().expect("closed");
            let stock = Subject::stock().open(&fixture.database()).expect("a plain file");
            assert_eq!(stock.integer("SELECT count(*) FROM t"), Ok(rows + 1), "{suffix} {state}");
        }
    }
}
