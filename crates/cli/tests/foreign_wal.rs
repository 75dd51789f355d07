//! A WAL beside a database file that it does not belong to: a backup that was copied over a database whose `-wal` stayed.

mod plait;

use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime};

use plait::{Dist, Ran, Scene, command, finish};

/// A database that was killed with a commit in its WAL alone, by `sql`.
fn killed(mode: &str, sql: &str) -> Option<Scene> {
    let scene = Scene::empty()?;
    scene
        .ours(&format!(
            "PRAGMA journal_mode={mode}; CREATE TABLE t(id INTEGER PRIMARY KEY, x); INSERT INTO t VALUES(1,'old')"
        ))
        .done();
    let mut shell = scene.lone_shell();
    shell.run("SELECT count(*) FROM t;");
    shell.run(sql);
    shell.kill();
    assert!(scene.beside("-wal").exists() && !scene.beside("-plait").exists(), "{mode}: {sql}");
    scene.remove("-shm");
    Some(scene)
}

/// A copy of a database that has grown since, or is another one.
fn backup(scene: &Scene, mode: &str, how: &str) -> std::path::PathBuf {
    let (other, copy) = (scene.folder().join("other.db"), scene.folder().join("backup.db"));
    let rows = "WITH s(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM s WHERE i<390) INSERT INTO t SELECT i, hex(randomblob(20)) FROM s";
    let sql =
        format!("PRAGMA journal_mode={mode}; CREATE TABLE t(id INTEGER PRIMARY KEY, x); {rows}");
    scene.ours_on(&other, &sql).done();
    match how {
        "plait" => {
            let args = ["backup", "other.db", "backup.db"];
            finish(command(&args).current_dir(scene.folder())).done();
        }
        "vacuum" => {
            let into = format!("VACUUM INTO '{}'", copy.display());
            scene.ours_on(&other, &into).done();
        }
        _ => drop(std::fs::copy(&other, &copy).unwrap()),
    }
    std::fs::remove_file(&other).unwrap();
    copy
}

fn doctor(scene: &Scene) -> Ran {
    let dist = Dist::find().expect("the scene has found it");
    finish(dist.command(&["doctor", "app.db"]).current_dir(scene.folder()))
}

const IN_WAL: [&str; 3] = [
    // Pages of the table alone.
    "UPDATE t SET x='new';",
    // Page 1 as well.
    "CREATE TABLE more(x);",
    "UPDATE t SET x='new'; INSERT INTO t SELECT NULL, hex(randomblob(3000)) FROM pragma_function_list; CREATE TABLE more(x);",
];

#[test]
fn a_backup_beside_the_wal_of_the_database_of_before_is_told_and_left_alone() {
    for mode in ["wal", "concurrent"] {
        for how in ["copy", "plait", "vacuum"] {
            for sql in IN_WAL {
                let Some(scene) = killed(mode, sql) else { return };
                // The pair that belongs together is sound.
                scene.plait(&["check"]).done();
                assert_eq!(doctor(&scene).code, 0);
                let copy = backup(&scene, mode, how);
                std::fs::copy(&copy, &scene.path).unwrap();
                let before = scene.contents();
                for looks in
                    [doctor(&scene), scene.plait(&["check"]), scene.plait(&["check", "--quick"])]
                {
                    assert_eq!(looks.code, 1, "{mode}, {how}, {sql}: {looks:?}");
                    assert!(
                        looks.out.contains("belongs to another database file")
                            || looks.out.contains("was replaced or overwritten"),
                        "{mode}, {how}, {sql}: {looks:?}"
                    );
                }
                scene.plait(&["recover"]).failed();
                let to = ["backup", "app.db", "copy.db"];
                finish(command(&to).current_dir(scene.folder())).failed().says(&["next to"]);
                assert_eq!(scene.contents(), before, "{mode}, {how}, {sql}");
                scene
                    .plait(&["recover", "--accept-base", "--yes"])
                    .done()
                    .says(&["-wal-given-up-1"]);
                assert_eq!(scene.ours("SELECT count(*) FROM t").done().out, "390\n");
                scene.plait(&["check"]).done();
            }
        }
    }
}

#[test]
fn a_restore_puts_both_aside() {
    let Some(scene) = killed("wal", IN_WAL[0]) else { return };
    let copy = backup(&scene, "wal", "copy");
    std::fs::copy(&copy, &scene.path).unwrap();
    let args = ["restore", "backup.db", "app.db"];
    finish(command(&args).current_dir(scene.folder())).done().says(&["with -wal"]);
    assert_eq!(scene.ours("SELECT count(*) FROM t").done().out, "390\n");
    assert_eq!(doctor(&scene).code, 0);
}

/// Says that the file was written so long after its WAL.
fn age(path: &Path, seconds: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(seconds)).unwrap();
}

#[test]
fn an_older_state_that_nothing_tells_from_the_right_one_is_a_warning_by_its_time() {
    for mode in ["wal", "concurrent"] {
        let Some(scene) = killed(mode, IN_WAL[0]) else { return };
        let before = std::fs::read(&scene.path).unwrap();
        assert!(!scene.plait(&["check"]).done().out.contains("may be that of another"));
        std::fs::write(&scene.path, before).unwrap();
        age(&scene.path, 1);
        scene.plait(&["check"]).done().says(&[
            "note: ",
            "may be that of another",
            "written after the WAL",
        ]);
        let ran = doctor(&scene).says(&["may be that of another", "plait restore BACKUP app.db"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(scene.beside("-wal").exists(), "it was checked on a copy");
        assert_eq!(scene.ours("SELECT x FROM t").done().out, "new\n");
    }
}

#[test]
fn a_wal_that_a_checkpoint_has_brought_goes_with_its_file() {
    for mode in ["wal", "concurrent"] {
        for sql in IN_WAL {
            let Some(scene) = killed(mode, &format!("{sql} PRAGMA wal_checkpoint(PASSIVE);"))
            else {
                return;
            };
            age(&scene.path, 1);
            let ran = doctor(&scene);
            assert_eq!(ran.code, 0, "{ran:?}");
            assert!(!ran.out.contains("may be that of another"), "{ran:?}");
            scene.plait(&["check"]).done();
        }
    }
}

#[test]
fn what_is_open_is_not_given_up() {
    for mode in ["wal", "concurrent"] {
        let Some(scene) = killed(mode, IN_WAL[0]) else { return };
        let copy = backup(&scene, mode, "copy");
        let mut shell = scene.lone_shell();
        shell.run("SELECT count(*) FROM t;");
        std::fs::copy(&copy, &scene.path).unwrap();
        let person = format!("{} (sqlite3)", shell.pid());
        let ran = scene.plait(&["recover", "--accept-base", "--yes"]).failed();
        ran.says(&["is open in process", &person, "close these programs"]);
        assert!(scene.beside("-wal").exists());
        shell.kill();
    }
}
