//! `plait check`: every state that a database can be found in.

mod plait;

use std::fs::File;
use std::os::unix::fs::FileExt;

use plait::{Dist, beside, contents, plait_in};

#[test]
fn an_ordinary_database_is_checked_and_left_alone() {
    let Some(dist) = Dist::find() else { return };
    for mode in ["delete", "wal"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("app.db");
        dist.stock(&path, &format!("PRAGMA journal_mode={mode}; CREATE TABLE t(x)")).done();
        let before = contents(dir.path());
        plait_in(dir.path(), &["check", "app.db"]).done().says(&[
            "ordinary",
            mode,
            "no damage found",
        ]);
        assert_eq!(contents(dir.path()), before);
    }
}

#[test]
fn a_resting_concurrent_database_is_sound() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    dist.concurrent(dir.path());
    let before = contents(dir.path());
    plait_in(dir.path(), &["check", "app.db"]).done().says(&[
        "at rest: bytes 18 and 19 are 2 and 2",
        "starts a new session",
        "integrity     ok",
        "foreign keys  ok",
    ]);
    assert_eq!(contents(dir.path()), before);
}

#[test]
fn a_database_in_use_is_checked_beside_its_users() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dist.concurrent(dir.path());
    let mut shell = dist.shell(&path);
    shell.run("INSERT INTO t VALUES(2, 20);");
    plait_in(dir.path(), &["check", "app.db"]).done().says(&[
        "fenced",
        "joins 1 process",
        "integrity     ok",
    ]);
    shell.run("INSERT INTO t VALUES(3, 30);");
    shell.close();
}

#[test]
fn shared_memory_removed_under_its_users_is_told() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dist.concurrent(dir.path());
    let mut shell = dist.shell(&path);
    shell.run("INSERT INTO t VALUES(2, 20);");
    std::fs::remove_file(beside(&path, "-plait-shm")).unwrap();
    let ran = plait_in(dir.path(), &["check", "app.db"])
        .says(&["DAMAGE", "in use without shared memory"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    shell.kill();
    plait_in(dir.path(), &["check", "app.db"]).done().says(&["merges 1 commit from the log"]);
}

#[test]
fn a_killed_session_is_checked_on_a_copy_and_not_changed() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dist.killed(dir.path(), 5);
    let before = contents(dir.path());
    plait_in(dir.path(), &["check", "app.db"]).done().says(&[
        "sound: 5 commits",
        "goes on where killed programs stopped",
        "checked on a copy",
        "integrity     ok",
    ]);
    assert_eq!(contents(dir.path()), before);

    std::fs::remove_file(beside(&path, "-plait-shm")).unwrap();
    let before = contents(dir.path());
    plait_in(dir.path(), &["check", "app.db"])
        .done()
        .says(&["merges 5 commits", "integrity     ok"]);
    assert_eq!(contents(dir.path()), before);
    assert_eq!(
        dist.ours(&path, "SELECT count(*) FROM t").done().out,
        "6\n",
        "and opening does what was said"
    );
}

#[test]
fn a_missing_log_is_damage() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dist.killed(dir.path(), 2);
    std::fs::remove_file(beside(&path, "-plait-shm")).unwrap();
    std::fs::remove_file(beside(&path, "-plait")).unwrap();
    let before = contents(dir.path());
    let ran = plait_in(dir.path(), &["check", "app.db"])
        .says(&["checked on a copy without the log", "integrity     ok"])
        .says(&["DAMAGE", "log is missing", "recover", "--accept-base"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(contents(dir.path()), before);
    assert_ne!(
        dist.ours(&path, "SELECT count(*) FROM t").code,
        0,
        "and opening fails, as was said"
    );
}

#[test]
fn a_damaged_log_is_damage_and_a_torn_end_is_not() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dist.killed(dir.path(), 6);
    std::fs::remove_file(beside(&path, "-plait-shm")).unwrap();
    let log = File::options().read(true).write(true).open(beside(&path, "-plait")).unwrap();
    // Stream bytes begin after the file's header page and the first slot's.
    let mut first_frame = [0; 8];
    log.read_exact_at(&mut first_frame, 8192).unwrap();
    log.write_all_at(&first_frame.map(|b| !b), 8192).unwrap();
    let ran =
        plait_in(dir.path(), &["check", "app.db"]).says(&["DAMAGE", "is damaged at position"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    log.write_all_at(&first_frame, 8192).unwrap();
    plait_in(dir.path(), &["check", "app.db"]).done();
}

#[test]
fn damaged_pages_and_missing_parents_are_damage() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.db");
    let sql = "CREATE TABLE p(id INTEGER PRIMARY KEY); CREATE TABLE c(p REFERENCES p); INSERT INTO c VALUES(7)";
    dist.stock(&path, sql).done();
    let ran =
        plait_in(dir.path(), &["check", "app.db"]).says(&["DAMAGE", "row 1 of table c", "table p"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(plait_in(dir.path(), &["check", "--quick", "app.db"]).code, 0);

    File::options().write(true).open(&path).unwrap().write_all_at(&[0xff; 64], 4096).unwrap();
    let ran = plait_in(dir.path(), &["check", "app.db"]).says(&["DAMAGE", "integrity"]);
    assert_eq!(ran.code, 1, "{ran:?}");
}

#[test]
fn a_file_cut_short_is_damage() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dist.concurrent(dir.path());
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() - 100).unwrap();
    let ran = plait_in(dir.path(), &["check", "app.db"]).says(&["DAMAGE", "shorter or longer"]);
    assert_eq!(ran.code, 1, "{ran:?}");
}

#[test]
fn an_unfinished_transaction_of_stock_sqlite_is_left_to_it() {
    let Some(dist) = Dist::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.db");
    dist.stock(&path, "CREATE TABLE t(x)").done();
    let mut shell = dist.shell(&path);
    // Spilling pages to the file makes the journal hot.
    shell.run("PRAGMA cache_size=1; PRAGMA cache_spill=1; BEGIN; INSERT INTO t SELECT randomblob(3000) FROM pragma_function_list;");
    shell.kill();
    if !beside(&path, "-journal").exists() {
        eprintln!("skipped: the journal was not written");
        return;
    }
    let before = contents(dir.path());
    plait_in(dir.path(), &["check", "app.db"]).done().says(&["roll back", "integrity     ok"]);
    assert_eq!(contents(dir.path()), before);
}
