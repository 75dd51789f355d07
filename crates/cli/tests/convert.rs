//! `plait enable` and `plait disable`.

mod plait;

use plait::{Dist, beside, contents, plait_in};

#[test]
fn a_database_goes_into_concurrent_mode_and_back() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.db");
    dist.stock(&path, "CREATE TABLE t(x); INSERT INTO t VALUES('kept')").done();

    plait_in(dir.path(), &["enable", "app.db"])
        .done()
        .says(&["is in concurrent mode now", "was in mode delete"]);
    assert_eq!(dist.ours(&path, "PRAGMA journal_mode").done().out, "concurrent\n");
    plait_in(dir.path(), &["enable", "app.db"]).done().says(&["already"]);
    assert_eq!(
        dist.stock(&path, "SELECT x FROM t").done().out,
        "kept\n",
        "at rest, stock SQLite reads it"
    );

    plait_in(dir.path(), &["disable", "app.db"]).done().says(&["mode wal now"]);
    assert_eq!(dist.stock(&path, "PRAGMA journal_mode; SELECT x FROM t").done().out, "wal\nkept\n");
    plait_in(dir.path(), &["disable", "app.db"]).done().says(&["already"]);
    plait_in(dir.path(), &["disable", "app.db", "--to", "delete"])
        .failed()
        .says(&["not in concurrent mode"]);

    plait_in(dir.path(), &["enable", "app.db"]).done().says(&["was in mode wal"]);
    plait_in(dir.path(), &["disable", "app.db", "--to", "delete"])
        .done()
        .says(&["mode delete now"]);
    assert_eq!(
        dist.stock(&path, "PRAGMA journal_mode; SELECT x FROM t").done().out,
        "delete\nkept\n"
    );
    assert_eq!(contents(dir.path()).len(), 1, "no side file stays");
}

#[test]
fn an_empty_file_becomes_a_concurrent_database() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new.db");
    std::fs::write(&path, b"").unwrap();
    plait_in(dir.path(), &["enable", "new.db"]).done();
    assert_eq!(
        dist.ours(&path, "CREATE TABLE t(x); PRAGMA journal_mode").done().out,
        "concurrent\n"
    );
}

#[test]
fn a_database_in_use_is_not_converted() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dist.concurrent(dir.path());
    let mut shell = dist.shell(&path);
    shell.run("INSERT INTO t VALUES(2, 20);");
    let pid = shell.pid().to_string();
    plait_in(dir.path(), &["disable", "app.db"]).failed().says(&[
        "open in process",
        &pid,
        "sqlite3",
    ]);
    shell.run("SELECT n FROM t;");
    shell.close();
    plait_in(dir.path(), &["disable", "app.db"]).done();
}

#[test]
fn a_database_that_stock_sqlite_is_writing_is_not_converted() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.db");
    dist.stock(&path, "CREATE TABLE t(x)").done();
    // Our shell on a file in another journal mode is stock SQLite.
    let mut shell = dist.shell(&path);
    shell.run("BEGIN IMMEDIATE; INSERT INTO t VALUES(1);");
    plait_in(dir.path(), &["enable", "app.db"]).failed().says(&["locked", "close"]);
    shell.run("COMMIT;");
    shell.close();
    plait_in(dir.path(), &["enable", "app.db"]).done();
}

#[test]
fn a_log_of_another_database_is_not_overwritten() {
    let Some(dist) = Dist::find() else { return };
    let (other, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let stranger = dist.killed(other.path(), 3);
    let path = dir.path().join("app.db");
    dist.stock(&path, "CREATE TABLE t(x)").done();
    std::fs::copy(beside(&stranger, "-plait"), beside(&path, "-plait")).unwrap();
    let before = contents(dir.path());
    plait_in(dir.path(), &["enable", "app.db"])
        .failed()
        .says(&["app.db-plait", "another database"]);
    assert_eq!(contents(dir.path()), before);
}
