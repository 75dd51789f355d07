//! `plait recover`.

mod plait;

use std::fs::Permissions;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::process::Command;

use plait::{Scene, command, finish};

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
fn nothing_of_a_wal_is_brought_into_the_file_that_another_one_has_replaced() {
    let Some(scene) = Scene::killed(4) else { return };
    let other = scene.folder().join("other.db");
    // In as many steps as the one before, so that its counter of changes fits the WAL.
    scene.ours_on(&other, "CREATE TABLE z(a); INSERT INTO z VALUES(9)").done();
    finish(command(&["enable"]).arg(&other)).done();
    std::fs::rename(&other, scene.beside("")).unwrap();
    let wal = std::fs::read(scene.beside("-wal")).unwrap();
    assert!(!wal.is_empty(), "it has a page of the one before");
    scene.plait(&["recover"]).failed().says(&["belong to another database file"]);
    scene.plait(&["check"]).says(&["integrity     ok"]);
    let ran = scene.plait(&["recover", "--accept-base", "--yes"]).done();
    ran.says(&["accepted as it is", "app.db-plait-given-up-1", "app.db-wal-given-up-1"]);
    assert_eq!(std::fs::read(scene.beside("-wal-given-up-1")).unwrap(), wal);
    assert_eq!(scene.stock("SELECT a FROM z").done().out, "9\n");
    assert_eq!(scene.ours("INSERT INTO z VALUES(8); SELECT sum(a) FROM z").done().out, "17\n");
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

/// Left by a connection that was alone and was killed after this many commits: all of them are in the WAL.
fn left_in_wal(commits: u32) -> Option<Scene> {
    let scene = Scene::concurrent()?;
    let mut shell = scene.lone_shell();
    for n in 0..commits {
        shell.run(&format!("INSERT INTO t(n) VALUES({n});"));
    }
    shell.kill();
    assert!(!scene.beside("-plait").exists(), "it was alone");
    Some(scene)
}

#[test]
fn what_a_lone_connection_has_left_in_the_wal_is_told_and_brought_into_the_file() {
    let Some(scene) = left_in_wal(4) else { return };
    let told = ["left by programs that were killed", "4 commits in its WAL", "plait recover"];
    scene.plait(&["status"]).done().says(&told);
    scene.plait(&["check", "--quick"]).done().says(&["brings 4 commits of the WAL into the file"]);
    scene.plait(&["doctor"]).says(&["note: brings 4 commits", "plait recover app.db"]);
    let measured = scene.plait(&["metrics"]).done().out;
    let wal_bytes = std::fs::metadata(scene.beside("-wal")).unwrap().len();
    let value = |name: &str| {
        let line = measured.lines().find(|line| line.starts_with(name)).expect("it is measured");
        line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()
    };
    assert!(value("plait_recovery_pending{") == 1.0, "{measured}");
    assert!(value("plait_wal_bytes{") == wal_bytes as f64, "{measured}");
    scene.plait(&["recover"]).done().says(&["4 commits brought into the file", "at rest"]);
    let rest = scene.plait(&["status"]).done().says(&["at rest", "nobody has it open"]);
    assert!(!rest.out.contains("WAL"), "{rest:?}");
    std::fs::copy(&scene.path, scene.folder().join("copy.db")).unwrap();
    let count = "SELECT count(*) FROM t";
    assert_eq!(scene.stock_on(&scene.folder().join("copy.db"), count).done().out, "5\n");
    scene.plait(&["recover"]).done().says(&["nothing to recover"]);
}

#[test]
fn a_file_whose_commits_stay_in_the_wal_is_not_said_to_be_recovered() {
    let Some(scene) = left_in_wal(4) else { return };
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("skipped: only root can become somebody else");
        return;
    }
    let plait = scene.folder().join("plait");
    std::fs::copy(command(&[]).get_program(), &plait).unwrap();
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    open(scene.folder(), 0o755);
    for suffix in ["", "-wal", "-shm"] {
        open(&scene.beside(suffix), 0o644);
    }
    let mut other = Command::new("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&plait);
    other.args(["recover", "app.db"]).current_dir(scene.folder());
    let said =
        ["is not recovered: 4 commits are in", "app.db-wal", "you may not write", "copy both"];
    finish(&mut other).failed().says(&said);
    // The same for whoever is root where nothing can be written.
    let shut = scene.folder().join("shut");
    std::fs::create_dir(&shut).unwrap();
    let script =
        r#"mount --bind . shut && mount -o remount,bind,ro shut && cd shut && "$0" recover app.db"#;
    let mut apart = Command::new("unshare");
    apart.args(["--mount", "sh", "-c", script]).arg(&plait).current_dir(scene.folder());
    let ran = finish(&mut apart);
    if ran.err.contains("unshare") || ran.err.contains("mount:") {
        eprintln!("skipped: nothing can be mounted here");
    } else {
        ran.failed().says(&said);
    }
    scene.plait(&["recover"]).done().says(&["4 commits brought into the file"]);
    assert_eq!(scene.stock("SELECT count(*) FROM t").done().out, "5\n");
}

#[test]
fn a_lone_connection_that_lives_keeps_its_commits_in_the_wal_and_is_named() {
    let Some(scene) = Scene::concurrent() else { return };
    let mut shell = scene.lone_shell();
    shell.run("INSERT INTO t VALUES(2, 20);");
    let person = format!("process {} (sqlite3)", shell.pid());
    let ran = scene.plait(&["recover"]).failed();
    ran.says(&["is open in", &person, "1 commit in the WAL", "plait backup app.db"]);
    shell.run("INSERT INTO t VALUES(3, 30);");
    assert!(!scene.beside("-plait").exists(), "looking begins no session");
    shell.close();
    scene.plait(&["recover"]).done().says(&["nothing to recover"]);
    assert_eq!(scene.stock("SELECT count(*) FROM t").done().out, "3\n");
}
