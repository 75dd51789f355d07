//! `plait recover`.

mod plait;

use plait::{Dist, beside, contents, plait_in};

#[test]
fn recovery_merges_the_log_and_leaves_a_plain_file() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dist.killed(dir.path(), 4);
    std::fs::remove_file(beside(&path, "-plait-shm")).unwrap();
    assert_ne!(dist.stock(&path, "SELECT 1 FROM t").code, 0, "fenced while the log holds commits");
    plait_in(dir.path(), &["recover", "app.db"]).done().says(&["4 commits merged from the log"]);
    assert_eq!(dist.stock(&path, "SELECT count(*) FROM t").done().out, "5\n");
    assert_eq!(contents(dir.path()).len(), 1, "no side file stays");
    plait_in(dir.path(), &["recover", "app.db"]).done().says(&["nothing to recover"]);
}

#[test]
fn recovery_goes_on_with_shared_memory_of_killed_programs() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dist.killed(dir.path(), 4);
    plait_in(dir.path(), &["recover", "app.db"]).done().says(&["shared memory"]);
    assert_eq!(dist.stock(&path, "SELECT count(*) FROM t").done().out, "5\n");
}

#[test]
fn a_database_without_its_log_is_accepted_only_on_demand() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dist.killed(dir.path(), 4);
    std::fs::remove_file(beside(&path, "-plait-shm")).unwrap();
    std::fs::remove_file(beside(&path, "-plait")).unwrap();
    plait_in(dir.path(), &["recover", "app.db"])
        .failed()
        .says(&["log is missing", "--accept-base"]);
    let asked = plait_in(dir.path(), &["recover", "app.db", "--accept-base"]);
    assert_eq!(asked.code, 2, "without a terminal nobody can agree: {asked:?}");
    plait_in(dir.path(), &["recover", "app.db", "--accept-base", "--yes"])
        .done()
        .says(&["accepted as it is"]);
    assert_eq!(dist.stock(&path, "SELECT count(*) FROM t").done().out, "1\n");
    assert_eq!(
        dist.ours(&path, "INSERT INTO t(n) VALUES(1); SELECT count(*) FROM t").done().out,
        "2\n"
    );
}

#[test]
fn a_log_that_is_given_up_is_kept_under_another_name() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dist.killed(dir.path(), 4);
    let log = std::fs::read(beside(&path, "-plait")).unwrap();
    plait_in(dir.path(), &["recover", "app.db", "--accept-base", "--yes"])
        .done()
        .says(&["app.db-plait-given-up-1"]);
    assert_eq!(std::fs::read(beside(&path, "-plait-given-up-1")).unwrap(), log);
    assert!(!beside(&path, "-plait").exists());
    assert_eq!(dist.stock(&path, "SELECT count(*) FROM t").done().out, "1\n");
}

#[test]
fn a_database_in_use_needs_no_recovery() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dist.concurrent(dir.path());
    let mut shell = dist.shell(&path);
    shell.run("INSERT INTO t VALUES(2, 20);");
    for more in [&[][..], &["--accept-base", "--yes"]] {
        let args = [&["recover", "app.db"], more].concat();
        plait_in(dir.path(), &args).failed().says(&["is open in process"]);
    }
    shell.run("INSERT INTO t VALUES(3, 30);");
    shell.close();
    assert_eq!(dist.ours(&path, "SELECT count(*) FROM t").done().out, "3\n");
}

#[test]
fn users_whose_shared_memory_was_removed_come_first() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dist.concurrent(dir.path());
    let mut shell = dist.shell(&path);
    shell.run("INSERT INTO t VALUES(2, 20);");
    std::fs::remove_file(beside(&path, "-plait-shm")).unwrap();
    let before = contents(dir.path());
    for more in [&[][..], &["--accept-base", "--yes"]] {
        let args = [&["recover", "app.db"], more].concat();
        plait_in(dir.path(), &args).failed().says(&["removed or replaced", "close the programs"]);
    }
    assert_eq!(contents(dir.path()), before);
    shell.kill();
    plait_in(dir.path(), &["recover", "app.db"]).done().says(&["1 commit merged"]);
}

#[test]
fn an_ordinary_database_is_left_to_sqlite() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    dist.stock(&dir.path().join("app.db"), "CREATE TABLE t(x)").done();
    plait_in(dir.path(), &["recover", "app.db"]).done().says(&["mode delete"]);
}
