//! The commands on a replica: a database beside which the mark of a follower lies.

mod plait;

use std::fs::File;
use std::path::{Path, PathBuf};

use plait::Scene;

const PLACE: &str = "s3://bucket/app";
const REFUSAL: &[&str] = &["follows s3://bucket/app", "write on the primary, or `plait promote "];

fn mark(scene: &Scene, text: &str) {
    std::fs::write(scene.beside("-plait-follows"), text).unwrap();
}

fn replica() -> Option<Scene> {
    let scene = Scene::concurrent()?;
    mark(&scene, &whole());
    Some(scene)
}

fn whole() -> String {
    plait_engine::replica::with_sum(&format!(
        "plait replica 1\nplace {PLACE}\nchain 00ff\nrecord 1234\nsalt 7\nfirst 1\ncommit 98\nwritten 1764380000000\n"
    ))
}

/// Holds the lock as a follower does.
fn follower(scene: &Scene) -> File {
    let lock = File::create(scene.beside("-plait-follows.lock")).unwrap();
    lock.lock().unwrap();
    lock
}

fn backup(scene: &Scene) -> PathBuf {
    let dest = scene.folder().join("copy.db");
    let mut backup = plait::command(&["backup"]);
    plait::finish(backup.arg(scene.beside("")).arg(&dest)).done();
    dest
}

const STANDS: &str = "follows s3://bucket/app: through record 1,234, written ";
const IDLE: &str = "its follower does not run";

#[test]
fn status_check_and_doctor_tell_how_far_it_is() {
    let Some(scene) = replica() else { return };
    scene.plait(&["status"]).done().says(&[STANDS, IDLE, "plait follow s3://bucket/app "]);
    scene.plait(&["check"]).done().says(&[STANDS, IDLE, "no damage found, 1 note"]);
    scene.plait(&["doctor"]).done().says(&[STANDS, IDLE, "plait follow s3://bucket/app "]);
    let json = |scene: &Scene| -> serde_json::Value {
        serde_json::from_str(&scene.plait(&["status", "--json"]).done().out).unwrap()
    };
    let told = json(&scene)["replica"].clone();
    assert_eq!((&told["place"], &told["record"]), (&PLACE.into(), &1234.into()), "{told}");
    assert_eq!((&told["commit"], &told["running"]), (&98.into(), &false.into()), "{told}");
    assert!(told["lag_ms"].as_u64().unwrap() > 1_000_000, "{told}");
    let lock = follower(&scene);
    for command in ["status", "check", "doctor"] {
        let said = scene.plait(&[command]).done().says(&[STANDS]);
        assert!(!said.out.contains(IDLE), "{said:?}");
    }
    assert_eq!(json(&scene)["replica"]["running"], true);
    drop(lock);
    // In a session.
    let mut shell = scene.shell();
    shell.run("SELECT * FROM plait_status;");
    scene.plait(&["status"]).done().says(&[STANDS, "open in process"]);
    assert_eq!(json(&scene)["status"]["replica_record"], 1234);
    shell.close();
}

#[test]
fn a_mark_that_says_nothing_is_told_with_what_mends_it() {
    let Some(scene) = replica() else { return };
    for (text, why) in [("", "it is empty"), ("plait replica 9\n", "another version of Plait")] {
        mark(&scene, text);
        for command in ["status", "check", "doctor"] {
            scene.plait(&[command]).done().says(&[why, "is a replica"]);
        }
        scene.plait(&["doctor"]).done().says(&["plait promote"]);
        scene.plait(&["disable"]).failed().says(&[why, "plait promote"]);
    }
    // Followers that were killed have left copies.
    let beside = ["", "-wal", "mynotes"].map(|of| format!(".copied.plait-replica-0123abcd{of}"));
    let first = ".plait-replica-0123abcd".to_owned();
    let others = ".copied.plait-replica-ABCDEF01".to_owned();
    let beside = [&beside[..], &[first, others]].concat();
    for file in &beside {
        std::fs::write(scene.beside(file), b"a copy").unwrap();
    }
    scene.plait(&["promote"]).done().says(&["how far it was is not known"]);
    let left: Vec<_> = beside.iter().map(|file| scene.beside(file).exists()).collect();
    assert_eq!(left, [false, false, true, false, true]);
    scene.ours("INSERT INTO t(n) VALUES(7)").done();
}

#[test]
fn commands_that_would_write_it_are_refused() {
    let Some(scene) = replica() else { return };
    scene.plait(&["disable"]).failed().says(REFUSAL);
    scene.plait(&["recover"]).done();
    scene.plait(&["enable"]).done().says(&["in concurrent mode already"]);
    assert_ne!(scene.ours("INSERT INTO t(n) VALUES(7)").says(REFUSAL).code, 0);
    std::fs::remove_file(scene.beside("-plait-follows")).unwrap();
    scene.plait(&["disable"]).done();
    mark(&scene, &whole());
    scene.plait(&["enable"]).failed().says(REFUSAL);
    // Nor is one sent from there to `plait enable` and back.
    let status = scene.plait(&["status"]).done().says(&["`plait promote ", "follow anew"]);
    assert!(!status.out.contains("switch with"), "{status:?}");
    scene.plait(&["promote"]).done();
    scene.plait(&["enable"]).done();
}

#[test]
fn what_is_in_the_way_of_its_follower_is_told() {
    let Some(scene) = replica() else { return };
    let lines = whole();
    let lines = lines.rsplit_once("sum ").unwrap().0;
    let trouble =
        "trouble_since 1764380000000\ntrouble the store denied access: check the credentials\n";
    mark(&scene, &plait_engine::replica::with_sum(&format!("{lines}{trouble}")));
    let what = "the store denied access: check the credentials";
    scene.plait(&["status"]).done().says(&[STANDS, IDLE, what]);
    let _lock = follower(&scene);
    scene.plait(&["check"]).done().says(&["its follower tries again"]);
    for command in ["status", "doctor"] {
        scene.plait(&[command]).done().says(&["its follower tries again", what]);
    }
    let told: serde_json::Value =
        serde_json::from_str(&scene.plait(&["status", "--json"]).done().out).unwrap();
    assert_eq!(told["replica"]["error"], what);
    let mut shell = scene.shell();
    shell.run("SELECT * FROM plait_status;");
    let told: serde_json::Value =
        serde_json::from_str(&scene.plait(&["status", "--json"]).done().out).unwrap();
    assert_eq!(told["status"]["replica_error"], what);
    assert_eq!(told["status"]["replica_error_since_ms"], 1_764_380_000_000_u64);
    shell.close();
}

#[test]
fn what_a_killed_program_has_left_is_recovered_and_not_given_up() {
    let Some(scene) = Scene::killed(4) else { return };
    mark(&scene, &whole());
    scene.remove("-plait-shm");
    let log = std::fs::read(scene.beside("-plait")).unwrap();
    scene.remove("-plait");
    scene.plait(&["recover", "--accept-base", "--yes"]).failed().says(REFUSAL);
    std::fs::write(scene.beside("-plait"), log).unwrap();
    scene.plait(&["recover"]).done().says(&["4 commits merged from the log"]);
    assert_eq!(scene.ours("SELECT count(*) FROM t").done().out, "5\n");
}

#[test]
fn a_backup_of_it_is_a_database_that_can_be_written() {
    let Some(scene) = replica() else { return };
    let dest = backup(&scene);
    scene.ours_on(&dest, "INSERT INTO t(n) VALUES(7)").done();
    // And none is put under the mark.
    let base = scene.beside("");
    let mut backup = plait::command(&["backup", "--force"]);
    let refused = plait::finish(backup.arg(&dest).arg(&base));
    refused.failed().says(&["-plait-follows is there"]);
}

#[test]
fn a_restore_puts_the_mark_aside_and_waits_for_no_follower() {
    let Some(scene) = replica() else { return };
    let dest = backup(&scene);
    let restore = || {
        let mut restore = plait::command(&["restore"]);
        plait::finish(restore.arg(&dest).arg(scene.beside("")))
    };
    let lock = follower(&scene);
    restore().failed().says(&["the follower of ", " runs"]);
    drop(lock);
    restore().done().says(&["before-restore-1", "-plait-follows"]);
    assert!(scene.beside("-before-restore-1-plait-follows").exists());
    assert!(!scene.beside("-plait-follows").exists());
    scene.ours("INSERT INTO t(n) VALUES(7)").done();
}

#[test]
fn it_stays_a_replica_where_a_file_beside_it_may_not_be_written() {
    let Some(scene) = replica() else { return };
    let shm = scene.beside("-shm");
    std::fs::write(&shm, []).unwrap();
    plait::set_rights(&shm, 0o444);
    plait::set_rights(&scene.path, 0o666);
    plait::set_rights(scene.folder(), 0o777);
    let mut promote = plait::command(&["promote"]);
    if !plait::unprivileged(promote.arg(scene.beside(""))) {
        return;
    }
    let refused = format!("you may not write {}: ", shm.display());
    plait::finish(&mut promote).failed().says(&[&refused, "stays a replica"]);
    assert!(scene.beside("-plait-follows").exists());
}

#[test]
fn promoted_it_can_be_written_and_not_while_its_follower_runs() {
    let Some(scene) = replica() else { return };
    let lock = follower(&scene);
    scene.plait(&["promote"]).failed().says(&["the follower of ", "end `plait follow`"]);
    assert!(scene.beside("-plait-follows").exists());
    drop(lock);
    scene.plait(&["promote"]).done().says(&[
        "can be written from its next opening on",
        "it followed s3://bucket/app, and was through record 1,234, written ",
        "write the primary no more",
    ]);
    for suffix in ["-plait-follows", "-plait-follows.lock"] {
        assert!(!scene.beside(suffix).exists(), "{suffix}");
    }
    scene.ours("INSERT INTO t(n) VALUES(7)").done();
    scene.plait(&["promote"]).failed().says(&["follows no primary"]);
    let status = scene.plait(&["status"]).done();
    assert!(!status.out.contains("follows"), "{status:?}");
}

/// A replica that has come to rest with its mark.
fn at_rest() -> Option<Scene> {
    let scene = Scene::concurrent()?;
    let mut shell = scene.shell();
    shell.run("BEGIN CONCURRENT; INSERT INTO t(n) VALUES(5); COMMIT;");
    mark(&scene, &whole());
    shell.close();
    assert_eq!(versions(&scene.beside("")), [3, 2]);
    Some(scene)
}

fn versions(path: &Path) -> [u8; 2] {
    std::fs::read(path).unwrap()[18..20].try_into().unwrap()
}

const COPY: &str = "a copy of a replica, without the mark of its follower";

#[test]
fn at_rest_sqlite_reads_it_and_promoted_writes_it() {
    let Some(scene) = at_rest() else { return };
    scene.plait(&["check"]).done().says(&[
        "bytes 18 and 19 are 3 and 2",
        "at rest, and read-only for other SQLite libraries",
        STANDS,
        "no damage found, 1 note",
    ]);
    scene.plait(&["status"]).done().says(&[STANDS]);
    scene.plait(&["recover"]).done();
    assert_eq!(versions(&scene.beside("")), [3, 2]);
    assert_ne!(scene.stock("INSERT INTO t(n) VALUES(7)").says(&["readonly"]).code, 0);
    assert!(!scene.stock("SELECT count(*) FROM t").done().out.is_empty());
    scene.plait(&["promote"]).done().says(&["it followed s3://bucket/app"]);
    assert_eq!(versions(&scene.beside("")), [2, 2]);
    scene.stock("INSERT INTO t(n) VALUES(7)").done();
    scene.ours("INSERT INTO t(n) VALUES(7)").done();
}

#[test]
fn a_promotion_beside_programs_that_read_lets_all_write_when_these_have_closed() {
    let Some(scene) = at_rest() else { return };
    let mut reader = scene.shell();
    reader.run("SELECT * FROM plait_status;");
    scene.plait(&["promote"]).done();
    scene.plait(&["status"]).done().says(&["was promoted in this session", "open it again"]);
    scene.ours("INSERT INTO t(n) VALUES(7)").done();
    reader.close();
    let status = scene.plait(&["status"]).done();
    assert!(!status.out.contains("promoted"), "{status:?}");
    assert_eq!(versions(&scene.beside("")), [2, 2]);
    scene.stock("INSERT INTO t(n) VALUES(8)").done();
}

#[test]
fn a_copy_without_the_mark_is_told_of_and_promoted() {
    let Some(scene) = at_rest() else { return };
    // As a promotion that was killed leaves it.
    std::fs::remove_file(scene.beside("-plait-follows")).unwrap();
    for command in ["status", "check", "doctor"] {
        scene.plait(&[command]).done().says(&[COPY, "nobody can write it"]);
    }
    scene.plait(&["doctor"]).done().says(&["plait promote"]);
    scene.plait(&["disable"]).failed().says(&[COPY, "plait promote"]);
    assert_ne!(scene.ours("INSERT INTO t(n) VALUES(7)").says(&[COPY, "plait promote"]).code, 0);
    let dest = backup(&scene);
    assert_eq!(versions(&dest), [2, 2]);
    scene.ours_on(&dest, "INSERT INTO t(n) VALUES(7)").done();
    let copied = scene.folder().join("copied.db");
    std::fs::copy(scene.beside(""), &copied).unwrap();
    scene.plait(&["promote"]).done().says(&["it was a copy of a replica"]);
    scene.ours("INSERT INTO t(n) VALUES(7)").done();
    scene.plait(&["promote"]).failed().says(&["follows no primary"]);
    // As a backup it is put in place as what can be written.
    let mut restore = plait::command(&["restore"]);
    plait::finish(restore.arg(&copied).arg(scene.beside(""))).done();
    assert_eq!(versions(&scene.beside("")), [2, 2]);
    scene.stock("INSERT INTO t(n) VALUES(7)").done();
}

#[test]
fn a_follower_that_waits_for_its_place_is_told_where_no_database_is_yet() {
    let Some(scene) = Scene::concurrent() else { return };
    for suffix in ["", "-wal", "-shm", "-plait", "-plait-shm"] {
        let _ = std::fs::remove_file(scene.beside(suffix));
    }
    let why = "there is no folder /mnt/place";
    mark(
        &scene,
        &plait_engine::replica::with_sum(&format!(
            "plait replica 1\nplace /mnt/place\nchain 00\nrecord 0\nsalt 0\nfirst 1\ncommit 0\nwritten 0\n\
             trouble_since 1764380000000\ntrouble {why}\n"
        )),
    );
    let nothing = "follows /mnt/place: nothing is there yet";
    scene.plait(&["status"]).done().says(&[nothing, IDLE, "plait follow /mnt/place ", why]);
    let lock = follower(&scene);
    let said = scene.plait(&["status"]).done().says(&[nothing, "its follower waits", why]);
    assert!(!said.out.contains("missing"), "{said:?}");
    let told: serde_json::Value =
        serde_json::from_str(&scene.plait(&["status", "--json"]).done().out).unwrap();
    assert_eq!(
        (&told["replica"]["running"], &told["replica"]["error"]),
        (&true.into(), &why.into())
    );
    assert!(told["replica"]["lag_ms"].is_null(), "{told}");
    for command in ["check", "doctor"] {
        scene.plait(&[command]).failed().says(&[nothing, "its follower waits", why]);
    }
    drop(lock);
    // One that was there is another matter.
    mark(&scene, &whole());
    scene.plait(&["status"]).done().says(&["its database is not there any more", IDLE]);
}

#[test]
fn an_empty_replica_is_filled_by_its_follower_and_not_promoted() {
    let Some(scene) = Scene::concurrent() else { return };
    for suffix in ["-wal", "-shm", "-plait", "-plait-shm"] {
        let _ = std::fs::remove_file(scene.beside(suffix));
    }
    let nothing = "plait replica 1\nplace /mnt/place\nchain 00\nrecord 0\nsalt 0\nfirst 1\ncommit 0\nwritten 0\n";
    mark(&scene, &plait_engine::replica::with_sum(nothing));
    // As a program leaves it that has opened the name too early.
    std::fs::write(scene.beside(""), b"").unwrap();
    let lock = follower(&scene);
    let said =
        scene.plait(&["status"]).done().says(&["an empty replica, which its follower fills"]);
    assert!(!said.out.contains("promote"), "{said:?}");
    let said = scene.plait(&["doctor"]).done();
    assert!(!said.out.contains("plait enable"), "{said:?}");
    drop(lock);
    let refused = ["nothing has arrived yet", "`plait replicas /mnt/place`", "remove its mark "];
    scene.plait(&["promote"]).failed().says(&refused);
    assert!(scene.beside("-plait-follows").exists());
    // A database that somebody else has made there is freed of the mark.
    scene.stock("CREATE TABLE own(x)").done();
    scene.plait(&["promote"]).done().says(&["of which nothing had arrived"]);
    // Nor is there anything to promote where not even the file is.
    mark(&scene, &plait_engine::replica::with_sum(nothing));
    std::fs::remove_file(scene.beside("")).unwrap();
    scene.plait(&["promote"]).failed().says(&["is missing", "nothing is there yet"]);
}
