//! `plait recover`.

mod plait;

use std::os::unix::fs::FileExt as _;

use plait::Scene;

#[test]
fn recovery_merges_the_log_and_leaves_a_plain_file() {
    let Some(scene) = Scene::killed(4) else { return };
    scene.remove("-plait-shm");
    assert_ne!(scene.stock("SELECT 1 FROM t").code, 0, "fenced while the log holds commits");
    scene.plait(&["recover"]).done().says(&["4 commits merged from the log"]);
    assert_eq!(scene.stock("SELECT count(*) FROM t").done().out, "5\n");
    assert_eq!(scene.contents().len(), 1, "no side file stays");
    scene.plait(&["recover"]).done().says(&["nothing to recover"]);
}

#[test]
fn recovery_goes_on_with_shared_memory_of_killed_programs() {
    let Some(scene) = Scene::killed(4) else { return };
    scene.plait(&["recover"]).done().says(&["shared memory"]);
    assert_eq!(scene.stock("SELECT count(*) FROM t").done().out, "5\n");
}

#[test]
fn a_database_without_its_log_is_accepted_only_on_demand() {
    let Some(scene) = Scene::killed(4) else { return };
    scene.remove("-plait-shm");
    scene.remove("-plait");
    scene.plait(&["recover"]).failed().says(&["log is missing", "--accept-base"]);
    let asked = scene.plait(&["recover", "--accept-base"]);
    assert_eq!(asked.code, 2, "without a terminal nobody can agree: {asked:?}");
    scene.plait(&["recover", "--accept-base", "--yes"]).done().says(&["accepted as it is"]);
    assert_eq!(scene.stock("SELECT count(*) FROM t").done().out, "1\n");
    assert_eq!(scene.ours("INSERT INTO t(n) VALUES(1); SELECT count(*) FROM t").done().out, "2\n");
}

#[test]
fn accepting_what_cannot_be_accepted_leaves_nothing_behind() {
    let Some(scene) = Scene::killed(4) else { return };
    scene.remove("-plait-shm");
    let database = std::fs::OpenOptions::new().write(true).open(scene.beside("")).unwrap();
    // A page size that there is not.
    database.write_all_at(&[0xff, 0xff], 16).unwrap();
    scene.remove("-wal");
    let ours = ["", "-plait"].map(|suffix| std::fs::read(scene.beside(suffix)).unwrap());
    scene.plait(&["recover", "--accept-base", "--yes"]).failed();
    // One that its owner may not use would keep him out of his database.
    assert!(!scene.beside("-plait-shm").exists());
    for (suffix, was) in ["", "-plait"].into_iter().zip(ours) {
        assert!(std::fs::read(scene.beside(suffix)).unwrap() == was, "app.db{suffix} has changed");
    }
}

#[test]
fn a_log_that_is_gone_is_restored_from_shared_memory_and_not_given_up_by_mistake() {
    let Some(scene) = Scene::killed(4) else { return };
    scene.remove("-plait");
    let before = scene.contents();
    let ran = scene.plait(&["check"]).says(&["DAMAGE", "alone holds commits", "plait recover"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    scene.plait(&["recover", "--accept-base", "--yes"]).failed().says(&["shared memory holds"]);
    assert_eq!(scene.contents(), before);
    scene.plait(&["recover"]).done().says(&["shared memory brought into the file"]);
    assert_eq!(scene.stock("SELECT count(*) FROM t").done().out, "5\n");
    assert_eq!(scene.contents().len(), 1, "no side file stays");
    scene.plait(&["check"]).done();
}

#[test]
fn a_log_that_is_given_up_is_kept_under_another_name() {
    let Some(scene) = Scene::killed(4) else { return };
    let log = std::fs::read(scene.beside("-plait")).unwrap();
    let accept = ["recover", "--accept-base", "--yes"];
    scene.plait(&accept).failed().says(&["shared memory holds commits", "--force"]);
    scene.plait(&[&accept[..], &["--force"]].concat()).done().says(&["app.db-plait-given-up-1"]);
    assert_eq!(std::fs::read(scene.beside("-plait-given-up-1")).unwrap(), log);
    assert!(!scene.beside("-plait").exists());
    assert_eq!(scene.stock("SELECT count(*) FROM t").done().out, "1\n");
}

#[test]
fn a_database_in_use_needs_no_recovery() {
    let Some(scene) = Scene::concurrent() else { return };
    let mut shell = scene.shell();
    shell.run("INSERT INTO t VALUES(2, 20);");
    for more in [&[][..], &["--accept-base", "--yes"]] {
        scene.plait(&[&["recover"], more].concat()).failed().says(&["is open in process"]);
    }
    shell.run("INSERT INTO t VALUES(3, 30);");
    shell.close();
    assert_eq!(scene.ours("SELECT count(*) FROM t").done().out, "3\n");
}

#[test]
fn users_whose_shared_memory_was_removed_come_first() {
    let Some(scene) = Scene::concurrent() else { return };
    let mut shell = scene.shell();
    shell.run("INSERT INTO t VALUES(2, 20);");
    scene.remove("-plait-shm");
    let before = scene.contents();
    for more in [&[][..], &["--accept-base", "--yes"]] {
        scene
            .plait(&[&["recover"], more].concat())
            .failed()
            .says(&["removed or replaced", "close the programs"]);
    }
    assert_eq!(scene.contents(), before);
    shell.kill();
    scene.plait(&["recover"]).done().says(&["1 commit merged"]);
}

#[test]
fn an_ordinary_database_is_left_to_sqlite() {
    let Some(scene) = Scene::empty() else { return };
    scene.stock("CREATE TABLE t(x)").done();
    scene.plait(&["recover"]).done().says(&["mode delete"]);
}

#[test]
fn accepting_a_healthy_file_gives_nothing_up_and_says_so() {
    let Some(scene) = Scene::concurrent() else { return };
    let before = scene.contents();
    let ran = scene.plait(&["recover", "--accept-base", "--yes"]).done();
    ran.says(&["nothing was wrong with it, and nothing was given up"]);
    assert_eq!(scene.contents(), before);
}
