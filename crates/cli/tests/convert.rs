//! `plait enable` and `plait disable`.

mod plait;

use plait::Scene;

#[test]
fn a_database_goes_into_concurrent_mode_and_back() {
    let Some(scene) = Scene::empty() else { return };
    scene.stock("CREATE TABLE t(x); INSERT INTO t VALUES('kept')").done();

    scene.plait(&["enable"]).done().says(&["is in concurrent mode now", "was in mode delete"]);
    assert_eq!(scene.ours("PRAGMA journal_mode").done().out, "concurrent\n");
    scene.plait(&["enable"]).done().says(&["already"]);
    assert_eq!(
        scene.stock("SELECT x FROM t").done().out,
        "kept\n",
        "at rest, stock SQLite reads it"
    );

    scene.plait(&["disable"]).done().says(&["mode wal now"]);
    assert_eq!(scene.stock("PRAGMA journal_mode; SELECT x FROM t").done().out, "wal\nkept\n");
    scene.plait(&["disable"]).done().says(&["already"]);
    scene.plait(&["disable", "--to", "delete"]).failed().says(&["not in concurrent mode"]);

    scene.plait(&["enable"]).done().says(&["was in mode wal"]);
    scene.plait(&["disable", "--to", "delete"]).done().says(&["mode delete now"]);
    assert_eq!(scene.stock("PRAGMA journal_mode; SELECT x FROM t").done().out, "delete\nkept\n");
    assert_eq!(scene.contents().len(), 1, "no side file stays");
}

#[test]
fn an_empty_file_becomes_a_concurrent_database() {
    let Some(scene) = Scene::empty() else { return };
    std::fs::write(&scene.path, b"").unwrap();
    scene.plait(&["enable"]).done();
    assert_eq!(scene.ours("CREATE TABLE t(x); PRAGMA journal_mode").done().out, "concurrent\n");
}

#[test]
fn a_database_in_use_is_not_converted() {
    let Some(scene) = Scene::concurrent() else { return };
    let mut shell = scene.shell();
    shell.run("INSERT INTO t VALUES(2, 20);");
    let pid = shell.pid().to_string();
    scene.plait(&["disable"]).failed().says(&["open in process", &pid, "sqlite3"]);
    shell.run("SELECT n FROM t;");
    shell.close();
    scene.plait(&["disable"]).done();
}

#[test]
fn a_database_that_stock_sqlite_is_writing_is_not_converted() {
    let Some(scene) = Scene::empty() else { return };
    scene.stock("CREATE TABLE t(x)").done();
    // Our shell on a file in another journal mode is stock SQLite.
    let mut shell = scene.shell();
    shell.run("BEGIN IMMEDIATE; INSERT INTO t VALUES(1);");
    scene.plait(&["enable"]).failed().says(&["locked", "close"]);
    shell.run("COMMIT;");
    shell.close();
    scene.plait(&["enable"]).done();
}

#[test]
fn a_log_of_another_database_is_kept_under_another_name() {
    let Some(other) = Scene::killed(3) else { return };
    let Some(scene) = Scene::empty() else { return };
    scene.stock("CREATE TABLE t(x)").done();
    std::fs::copy(other.beside("-plait"), scene.beside("-plait")).unwrap();
    let log = std::fs::read(scene.beside("-plait")).unwrap();
    scene.plait(&["enable"]).done().says(&["app.db-plait-given-up-1", "another database"]);
    assert_eq!(std::fs::read(scene.beside("-plait-given-up-1")).unwrap(), log);
    assert_eq!(scene.contents().len(), 2, "nothing else stays beside the file");
    scene.plait(&["status"]).done().says(&["at rest", "app.db-plait-given-up-1"]);
    scene.plait(&["disable"]).done();
    let enabled_again = scene.plait(&["enable"]).done();
    assert!(!enabled_again.out.contains("given-up"), "{enabled_again:?}: it is told once");
}

#[test]
fn a_database_that_is_not_there_is_made_on_demand_alone() {
    let Some(scene) = Scene::empty() else { return };
    scene
        .plait(&["enable"])
        .failed()
        .says(&["there is no file app.db", "plait enable --create app.db"]);
    scene.plait(&["disable"]).failed().says(&["there is no file app.db", "check the path"]);
    assert!(!scene.path.exists());
    scene.plait(&["enable", "--create"]).done().says(&["is a new database in concurrent mode"]);
    assert_eq!(scene.contents().len(), 1, "one plain file");
    scene.plait(&["check"]).done().says(&["concurrent, at rest"]);
    let sql = "PRAGMA journal_mode; CREATE TABLE t(x); INSERT INTO t VALUES(1); SELECT * FROM t";
    assert_eq!(scene.ours(sql).done().out, "concurrent\n1\n");
    scene.plait(&["enable", "--create"]).done().says(&["in concurrent mode already"]);
    assert_eq!(scene.ours("SELECT * FROM t").done().out, "1\n", "one that is there is left alone");
}

#[test]
fn no_database_is_made_where_another_one_has_left_something_or_nothing_can_be() {
    let Some(scene) = Scene::killed(2) else { return };
    std::fs::rename(&scene.path, scene.folder().join("away")).unwrap();
    let before = scene.contents();
    scene
        .plait(&["enable", "--create"])
        .failed()
        .says(&["app.db-wal is there", "plait restore BACKUP app.db"]);
    assert_eq!(scene.contents(), before);
    std::fs::rename(scene.folder().join("away"), &scene.path).unwrap();
    assert_eq!(scene.ours("SELECT count(*) FROM t").done().out, "3\n");
    for (name, code, words) in [
        ("app.db-wal", 2, "belongs to the database"),
        ("no/such/new.db", 1, "no such file"),
        ("/proc/new.db", 1, "cannot make /proc/new.db"),
    ] {
        let ran = plait::finish(
            plait::command(&["enable", "--create", name]).current_dir(scene.folder()),
        );
        assert_eq!(ran.code, code, "{ran:?}");
        ran.says(&[words, "try: "]);
    }
    // A file that cannot come into the mode is not left there.
    let long = format!("{}.db", "x".repeat(250));
    let ran =
        plait::finish(plait::command(&["enable", "--create", &long]).current_dir(scene.folder()));
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(!scene.folder().join(&long).exists(), "{ran:?}");
}
