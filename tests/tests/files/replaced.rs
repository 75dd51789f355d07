//! Another file in the place of a database in use, or of one whose processes were killed: a backup copied into it or moved
//! over it, while the files beside it stay. Nobody may read or write a mixture, and what the session has acknowledged stays.

use plait_tests::actor::Actor;
use plait_tests::crash::image::Image;
use plait_tests::place::Place;
use plait_tests::powercut::recording::{Recording, await_file};
use plait_tests::sqlite::{CANTOPEN, READONLY, SqlError};
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::path::{Path, PathBuf};
use std::time::Duration;

const ROWS: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, val TEXT); CREATE INDEX t_val ON t(val);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<500) INSERT INTO t SELECT i, 'v'||i FROM n;";
/// A member of the session looks at its file that often, at least.
const LOOK: Duration = Duration::from_millis(50);

fn actor(name: &str, subject: &Subject, database: &Path) -> Actor {
    Actor::start(Place::Processes, name, subject, database)
}

/// Counts the rows in a process of its own.
fn count(subject: &Subject, database: &Path) -> Result<i64, SqlError> {
    let mut reader = Actor::idle(Place::Processes, "reader", subject);
    reader.open(database)?;
    let outcome = reader.run("SELECT count(*) FROM t");
    match outcome.error {
        Some(error) => Err(error),
        None => Ok(reader.integer("SELECT count(*) FROM t")),
    }
}

/// The file that belongs here is back: all of its rows, and nothing damaged.
#[track_caller]
fn is_put_right(subject: &Subject, fixture: &Fixture, rows: i64, what: &str) {
    assert_eq!(count(subject, &fixture.database()), Ok(rows), "{what}");
    let checked = fixture.open().text("PRAGMA integrity_check");
    assert_eq!(checked.as_deref(), Ok("ok"), "{what}");
}

/// A session with rows that its base lacks, behind merges and a change of the schema.
fn session(subject: &Subject, fixture: &Fixture) -> Actor {
    let mut writer = actor("writer", subject, &fixture.database());
    writer.ok("INSERT INTO t(val) VALUES('merged')");
    writer.ok("CREATE TABLE more(a); PRAGMA wal_checkpoint(TRUNCATE)");
    writer.ok("UPDATE t SET val=val||'!' WHERE id%7=0; CREATE TABLE and_more(a)");
    writer.ok("INSERT INTO t(val) VALUES('only in the log')");
    writer
}

/// The same, with the base's WAL emptied or not.
fn session_with_wal(subject: &Subject, fixture: &Fixture, emptied: bool) -> Actor {
    let mut writer = session(subject, fixture);
    if emptied {
        writer.ok("PRAGMA wal_checkpoint(TRUNCATE)");
    }
    writer
}

/// Backups of every kind, of the state before the session.
fn backups(fixture: &Fixture) -> Vec<(&'static str, Vec<u8>)> {
    let resting = std::fs::read(fixture.database()).expect("at rest");
    let connection = fixture.open();
    let into = fixture.path("into.db");
    connection.execute(&format!("VACUUM INTO '{}'", into.display())).expect("a copy");
    connection.close().expect("closed");
    let rollback = std::fs::read(&into).expect("the copy");
    assert_eq!(rollback[18], 1, "in rollback mode");
    let mut wal = rollback.clone();
    wal[18..20].fill(2);
    vec![("rollback mode", rollback), ("WAL mode", wal), ("concurrent, at rest", resting)]
}

#[track_caller]
fn is_refused(subject: &Subject, database: &Path, what: &str) {
    let files = || {
        ["", "-wal", "-plait"].map(|suffix| {
            let mut name = database.as_os_str().to_owned();
            name.push(suffix);
            // An empty WAL goes with the last to close.
            std::fs::read(name).ok().filter(|bytes| !bytes.is_empty())
        })
    };
    let before = files();
    let error = count(subject, database).expect_err(what);
    assert_eq!(error.code, CANTOPEN, "{what}: {error}");
    assert!(files() == before, "{what}: something has changed");
}

// holds FILE-3
#[test]
fn a_backup_copied_over_a_dead_session_is_refused_until_somebody_decides() {
    let Some(subject) = real_plait("a restored backup") else { return };
    let fixture = Fixture::new(subject.clone(), ROWS);
    let database = fixture.database();
    let backups = backups(&fixture);
    session(&subject, &fixture).kill();
    let dead = Image::of(&database);
    for (what, backup) in &backups {
        for memory in [true, false] {
            let image = if memory { dead.clone() } else { dead.clone().without("-plait-shm") };
            image.without("-shm").put(&database);
            std::fs::write(&database, backup).expect("copied over it");
            is_refused(&subject, &database, what);
            let error = count(&subject, &database).expect_err(what);
            for word in ["-wal", "-plait", "newest", "plait recover --accept-base"] {
                assert!(error.message.contains(word), "{what}: {word:?} is missing in: {error}");
            }
        }
        let Some(mut command) = subject.command() else { continue };
        let check = command.arg("check").arg(&database).output().expect("it runs");
        let text = String::from_utf8_lossy(&check.stdout).into_owned();
        assert!(!check.status.success() && text.contains("replaced"), "{what}: {text}");
        let mut command = subject.command().expect("as before");
        let accept = command.args(["recover", "--accept-base", "--yes"]).arg(&database);
        let accept = accept.output().expect("it runs");
        assert!(accept.status.success(), "{what}: {accept:?}");
        assert_eq!(count(&subject, &database), Ok(500), "{what}: the backup and nothing else");
        let fine = fixture.open().text("PRAGMA integrity_check").expect("checked");
        assert_eq!(fine, "ok", "{what}");
        let kept = |suffix: &str| fixture.side_file(&format!("{suffix}-given-up-1"));
        assert!(kept("-wal").exists() && kept("-plait").exists(), "{what}: nothing is lost");
        std::fs::remove_file(kept("-wal")).expect("removed");
        std::fs::remove_file(kept("-plait")).expect("removed");
    }
    dead.put(&database);
    assert_eq!(count(&subject, &database), Ok(502), "with the newest file everything is there");
}

/// Two databases that were made alike cannot be told apart by the counters of their first pages.
#[test]
fn a_database_of_the_same_history_is_refused_as_often_as_it_is_opened() {
    let Some(subject) = real_plait("a restored backup") else { return };
    let (fixture, like) =
        (Fixture::new(subject.clone(), ROWS), Fixture::new(subject.clone(), ROWS));
    let database = fixture.database();
    let mut writer = actor("writer", &subject, &database);
    writer.ok("INSERT INTO t(val) VALUES('only in the log')");
    writer.kill();
    let dead = Image::of(&database);
    let twin = std::fs::read(like.database()).expect("a resting file");
    for (memory, index) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut image = dead.clone();
        for (kept, suffix) in [(memory, "-plait-shm"), (index, "-shm")] {
            image = if kept { image } else { image.without(suffix) };
        }
        image.put(&database);
        std::fs::write(&database, &twin).expect("copied over it");
        for time in 0..3 {
            is_refused(&subject, &database, &format!("memory {memory}, index {index}, {time}"));
        }
    }
    dead.put(&database);
    assert_eq!(count(&subject, &database), Ok(501));
}

#[test]
fn an_older_state_of_the_session_itself_does_not_go_with_its_newer_wal() {
    let Some(subject) = real_plait("a restored backup") else { return };
    let fixture = Fixture::new(subject.clone(), ROWS);
    let database = fixture.database();
    let mut writer = session(&subject, &fixture);
    let old = std::fs::read(&database).expect("copied while live");
    writer.ok("PRAGMA wal_checkpoint(TRUNCATE); CREATE TABLE later(a)");
    writer.ok("INSERT INTO t(val) VALUES('only in the log')");
    writer.kill();
    let dead = Image::of(&database);
    for memory in [true, false] {
        let image = if memory { dead.clone() } else { dead.clone().without("-plait-shm") };
        image.without("-shm").put(&database);
        std::fs::write(&database, &old).expect("copied over it");
        is_refused(&subject, &database, "an older state");
    }
    dead.put(&database);
    assert_eq!(count(&subject, &database), Ok(503));
}

#[test]
fn a_backup_copied_over_a_live_database_stops_its_members_and_newcomers_until_it_is_put_right() {
    let Some(subject) = real_plait("a restored backup") else { return };
    for emptied in [false, true] {
        let fixture = Fixture::new(subject.clone(), ROWS);
        let database = fixture.database();
        for (what, backup) in backups(&fixture) {
            let before = count(&subject, &database).expect("it opens");
            let mut writer = session_with_wal(&subject, &fixture, emptied);
            let newest = std::fs::read(&database).expect("the newest");
            std::fs::write(&database, &backup).expect("copied over it");
            is_refused(&subject, &database, what);
            std::thread::sleep(LOOK);
            for sql in
                ["SELECT count(*) FROM t", "INSERT INTO t(val) VALUES('lost')", "DELETE FROM t"]
            {
                let error = writer.fails(sql, CANTOPEN);
                assert!(error.message.contains("overwritten"), "{what}, {sql}: {error}");
            }
            writer.close().expect("it closes");
            assert!(fixture.side_file("-plait").exists(), "{what}: what was acknowledged stays");
            // Beside a log alone an ordinary database is one, and a concurrent one at rest puts it aside.
            if !emptied {
                is_refused(&subject, &database, what);
            } else if what.starts_with("concurrent") {
                assert_eq!(count(&subject, &database), Ok(500), "{what}: the backup");
                for suffix in ["-plait", "-plait-shm"] {
                    let aside = fixture.side_file(&format!("{suffix}-given-up-1"));
                    std::fs::rename(aside, fixture.side_file(suffix)).expect("put right");
                }
            }
            std::fs::write(&database, &newest).expect("put right");
            is_put_right(&subject, &fixture, before + 2, what);
            fixture.open().execute("DROP TABLE more; DROP TABLE and_more").expect("for the next");
        }
    }
}

/// A member that has looked at nothing since, and that closes as the last, after everything in the WAL was brought into the file that stood there.
#[test]
fn the_last_to_close_leaves_the_wal_beside_a_file_that_was_copied_over_its_own() {
    let Some(subject) = real_plait("a restored backup") else { return };
    let fixture = Fixture::new(subject.clone(), ROWS);
    let database = fixture.database();
    for (what, backup) in backups(&fixture) {
        let before = count(&subject, &database).expect("it opens");
        let mut writer = session(&subject, &fixture);
        let mut reader = actor("reader", &subject, &database);
        assert_eq!(reader.integer("SELECT count(*) FROM t"), before + 2);
        writer.ok("PRAGMA wal_checkpoint");
        writer.kill();
        let newest = std::fs::read(&database).expect("the newest");
        let wal = std::fs::read(fixture.side_file("-wal")).expect("the WAL");
        assert!(!wal.is_empty());
        std::fs::write(&database, &backup).expect("copied over it");
        let _ = reader.close();
        let left = std::fs::read(fixture.side_file("-wal")).ok();
        assert!(left == Some(wal), "{what}: the WAL is another one, or gone");
        assert!(std::fs::read(&database).ok() == Some(backup), "{what}: it was written into");
        is_refused(&subject, &database, what);
        std::fs::write(&database, &newest).expect("put right");
        is_put_right(&subject, &fixture, before + 2, what);
        fixture.open().execute("DROP TABLE more; DROP TABLE and_more").expect("for the next");
    }
}

/// A checkpoint merges, and syncs the WAL before it writes pages: meanwhile somebody may have put another file there.
#[test]
fn a_checkpoint_that_was_waiting_for_a_sync_writes_nothing_into_a_file_that_was_copied_over_its_own()
 {
    let Some(subject) = real_plait("a restored backup") else { return };
    for (sql, syncs) in [("PRAGMA wal_checkpoint(TRUNCATE)", 2), ("PRAGMA wal_checkpoint", 1)] {
        let fixture = Fixture::new(subject.clone(), ROWS);
        let database = fixture.database();
        let recording = Recording::of(fixture.directory());
        let (hold, inside) = (fixture.path("hold"), fixture.path("hold.inside"));
        for (what, backup) in backups(&fixture) {
            for sync in 0..syncs {
                let before = count(&subject, &database).expect("it opens");
                let mut writer = recording.actor_held_at_wal("writer", &subject, &hold);
                writer.open(&database).expect("it opens");
                writer.ok("UPDATE t SET val=val||'!' WHERE id%7=0; CREATE TABLE more(a)");
                writer.ok("INSERT INTO t(val) VALUES('only in the log')");
                std::fs::write(&hold, sync.to_string()).expect("held");
                writer.send(sql);
                await_file(&inside).expect("it syncs the WAL");
                let newest = std::fs::read(&database).expect("the newest");
                std::fs::write(&database, &backup).expect("copied over it");
                std::fs::remove_file(&hold).expect("it goes on");
                let error = writer.finish().error;
                let error = error.unwrap_or_else(|| panic!("{what}: {sql} succeeds"));
                assert_eq!(error.code, CANTOPEN, "{what}: {error}");
                assert!(error.message.contains("overwritten"), "{what}: {error}");
                let _ = writer.close();
                let now = std::fs::read(&database).expect("the backup");
                assert!(now == backup, "{what}: it was written into");
                std::fs::remove_file(&inside).expect("for the next");
                std::fs::write(&database, &newest).expect("put right");
                is_put_right(&subject, &fixture, before + 1, what);
                fixture.open().execute("DROP TABLE more").expect("for the next");
            }
        }
    }
}

fn moved_over(fixture: &Fixture, backup: &[u8]) -> PathBuf {
    let (new, aside) = (fixture.path("new.db"), fixture.path("aside.db"));
    std::fs::write(&new, backup).expect("a backup");
    let _ = std::fs::remove_file(&aside);
    std::fs::hard_link(fixture.database(), &aside).expect("kept under another name");
    std::fs::rename(&new, fixture.database()).expect("moved over it");
    aside
}

#[test]
fn a_backup_moved_over_a_live_database_is_not_let_in_and_members_read_on_without_writing() {
    let Some(subject) = real_plait("a restored backup") else { return };
    for emptied in [false, true] {
        let fixture = Fixture::new(subject.clone(), ROWS);
        let database = fixture.database();
        for (what, backup) in backups(&fixture) {
            let before = count(&subject, &database).expect("it opens");
            let mut writer = session_with_wal(&subject, &fixture, emptied);
            let aside = moved_over(&fixture, &backup);
            is_refused(&subject, &database, what);
            std::thread::sleep(LOOK);
            let error = writer.fails("INSERT INTO t(val) VALUES('lost')", READONLY);
            assert!(error.message.contains("VACUUM INTO"), "{what}: {error}");
            assert_eq!(writer.integer("SELECT count(*) FROM t"), before + 2, "{what}");
            let saved = fixture.path("saved.db");
            let _ = std::fs::remove_file(&saved);
            writer.ok(&format!("VACUUM INTO '{}'", saved.display()));
            assert_eq!(count(&Subject::stock(), &saved), Ok(before + 2), "{what}: saved");
            writer.close().expect("it closes");
            assert!(fixture.side_file("-plait").exists(), "{what}: what was acknowledged stays");
            assert_eq!(
                std::fs::read(&database).expect("there"),
                backup,
                "{what}: as it was put there"
            );
            std::fs::rename(&aside, &database).expect("put right");
            is_put_right(&subject, &fixture, before + 2, what);
            fixture.open().execute("DROP TABLE more; DROP TABLE and_more").expect("for the next");
        }
    }
}

/// What a member knows of the WAL from its transactions before is as good as what it would find now.
#[test]
fn a_member_tells_its_file_from_an_older_state_whatever_has_become_of_the_wal_meanwhile() {
    let Some(subject) = real_plait("a restored backup") else { return };
    let meanwhile = [
        ("brought in part", "BEGIN; SELECT * FROM t", "PRAGMA wal_checkpoint"),
        ("brought", "SELECT 1", "PRAGMA wal_checkpoint"),
        ("started over", "SELECT 1", "PRAGMA wal_checkpoint(RESTART)"),
        ("cut off", "SELECT 1", "PRAGMA wal_checkpoint(TRUNCATE)"),
    ];
    for (what, reader_does, checkpoint) in meanwhile {
        for after in [0, 20] {
            let fixture = Fixture::new(subject.clone(), ROWS);
            let database = fixture.database();
            let mut writer = actor("writer", &subject, &database);
            let exclusive = |writer: &mut Actor, times: u32| {
                for _ in 0..times {
                    writer.ok("BEGIN IMMEDIATE; PRAGMA application_id=7; UPDATE t SET val=val||'!' WHERE id=1; COMMIT");
                }
            };
            writer.ok("PRAGMA wal_autocheckpoint=0; PRAGMA synchronous=NORMAL");
            exclusive(&mut writer, 3);
            let old = std::fs::read(&database).expect("copied while live");
            writer.ok("PRAGMA wal_checkpoint(TRUNCATE)");
            exclusive(&mut writer, 9);
            let reader = fixture.open();
            reader.execute(reader_does).expect("a reader");
            exclusive(&mut writer, 9);
            let mut other = actor("other", &subject, &database);
            other.ok(checkpoint);
            drop(reader);
            exclusive(&mut other, after);
            exclusive(&mut writer, 2);
            let newest = std::fs::read(&database).expect("the newest");
            let case = format!("{what}, {after} by another");
            let marks = writer.integer("SELECT length(val) FROM t WHERE id=1");
            assert_eq!(marks, i64::from(2 + 23 + after), "{case}");
            std::fs::write(&database, &old).expect("copied over it");
            let error = writer.fails("PRAGMA user_version=7", CANTOPEN);
            assert!(error.message.contains("overwritten"), "{case}: {error}");
            std::fs::write(&database, &newest).expect("put right");
            exclusive(&mut writer, 1);
        }
    }
}
