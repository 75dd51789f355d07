//! `plait check`: every state that a database can be found in.

mod plait;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use plait::{Scene, command, finish};

#[test]
fn an_ordinary_database_is_checked_and_left_alone() {
    for mode in ["delete", "wal"] {
        let Some(scene) = Scene::empty() else { return };
        scene.stock(&format!("PRAGMA journal_mode={mode}; CREATE TABLE t(x)")).done();
        let before = scene.contents();
        let ran = scene.plait(&["check"]).done().says(&["ordinary", mode]);
        assert!(ran.out.starts_with("app.db: no damage found\n"), "{ran:?}");
        assert_eq!(scene.contents(), before);
    }
}

#[test]
fn a_resting_concurrent_database_is_sound() {
    let Some(scene) = Scene::concurrent() else { return };
    let before = scene.contents();
    scene.plait(&["check"]).done().says(&[
        "at rest: bytes 18 and 19 are 2 and 2",
        "starts a new session",
        "integrity     ok",
        "foreign keys  ok",
    ]);
    assert_eq!(scene.contents(), before);
}

#[test]
fn a_database_in_use_is_checked_beside_its_users() {
    let Some(scene) = Scene::concurrent() else { return };
    let mut shell = scene.shell();
    shell.run("INSERT INTO t VALUES(2, 20);");
    scene.plait(&["check"]).done().says(&["fenced", "joins 1 process", "integrity     ok"]);
    shell.run("INSERT INTO t VALUES(3, 30);");
    shell.close();
}

#[test]
fn shared_memory_removed_under_its_users_is_told() {
    let Some(scene) = Scene::concurrent() else { return };
    let mut shell = scene.shell();
    shell.run("INSERT INTO t VALUES(2, 20);");
    scene.remove("-plait-shm");
    let ran = scene.plait(&["check"]).says(&["DAMAGE", "in use without shared memory"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    shell.kill();
    scene.plait(&["check"]).done().says(&["merges 1 commit from the log"]);
}

/// Gives the shared memory the number of another layout (docs/format.md), and returns the one that it had.
fn relabel(memory: &Path, layout: u32) -> u32 {
    let file = File::options().read(true).write(true).open(memory).expect("it is there");
    let mut before = [0; 4];
    file.read_exact_at(&mut before, 8).expect("a header");
    file.write_all_at(&layout.to_ne_bytes(), 8).expect("written");
    u32::from_ne_bytes(before)
}

// holds LEFT-1
#[test]
fn another_version_beside_the_database_is_told() {
    let Some(scene) = Scene::concurrent() else { return };
    let (mut shell, mut other) = (scene.shell(), scene.shell());
    other.run("UPDATE t SET n=n;");
    shell.run("PRAGMA synchronous=NORMAL; INSERT INTO t VALUES(2, 20);");
    let memory = scene.beside("-plait-shm");
    let own = relabel(&memory, 1);
    scene.plait(&["check"]).says(&["another version of the library have it open; use theirs"]);
    relabel(&memory, own);
    for n in 0..20 {
        shell.run(&format!("INSERT INTO t(n) VALUES({n});"));
    }
    shell.kill();
    other.kill();
    relabel(&memory, 1);
    let before = scene.contents();
    let ran = scene.plait(&["check"]).says(&["DAMAGE", "which the log lacks", "plait recover"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    scene.plait(&["recover"]).failed().says(&["by this version", "which the log lacks"]);
    assert_eq!(scene.contents(), before);
    relabel(&memory, own);
    scene.plait(&["check"]).done().says(&["no commit is lost"]);
    assert_eq!(scene.ours("SELECT count(*) FROM t").done().out, "22\n");
}

#[test]
fn a_killed_session_is_checked_on_a_copy_and_not_changed() {
    let Some(scene) = Scene::killed(5) else { return };
    let before = scene.contents();
    scene.plait(&["check"]).done().says(&[
        "sound: 5 commits",
        "goes on where killed programs stopped",
        "checked on a copy",
        "integrity     ok",
    ]);
    assert_eq!(scene.contents(), before);

    scene.remove("-plait-shm");
    let before = scene.contents();
    scene.plait(&["check"]).done().says(&["merges 5 commits", "integrity     ok"]);
    assert_eq!(scene.contents(), before);
    assert_eq!(
        scene.ours("SELECT count(*) FROM t").done().out,
        "6\n",
        "and opening does what was said"
    );
}

#[test]
fn a_missing_log_is_damage() {
    let Some(scene) = Scene::killed(2) else { return };
    scene.remove("-plait-shm");
    scene.remove("-plait");
    let before = scene.contents();
    let ran = scene
        .plait(&["check"])
        .says(&["checked on a copy without the log", "integrity     ok"])
        .says(&["DAMAGE", "log is missing", "recover", "--accept-base"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.starts_with("app.db: damage found: opening\n"), "{ran:?}");
    assert!(ran.out.contains("--accept-base` (it asks; --yes answers)"), "{ran:?}");
    assert_eq!(scene.contents(), before);
    assert_ne!(scene.ours("SELECT count(*) FROM t").code, 0, "and opening fails, as was said");
}

#[test]
fn another_name_of_a_file_in_use_is_told() {
    let Some(scene) = Scene::concurrent() else { return };
    let mut shell = scene.shell();
    shell.run("INSERT INTO t VALUES(2, 20);");
    let other = scene.folder().join("other.db");
    std::fs::hard_link(&scene.path, &other).expect("a second name");
    let check = || finish(command(&["check", "other.db"]).current_dir(scene.folder()));
    let hint = "another name (a hard link): if programs use it by that one, nothing is lost";
    check().says(&["log is missing", hint]);
    shell.close();
    std::fs::remove_file(&scene.path).expect("the first name");
    assert!(!check().out.contains("another name"));
}

#[test]
fn a_damaged_log_is_damage_and_a_torn_end_is_not() {
    let Some(scene) = Scene::killed(6) else { return };
    scene.remove("-plait-shm");
    let log = File::options().read(true).write(true).open(scene.beside("-plait")).unwrap();
    // Stream bytes begin after the file's header page and the first slot's.
    let mut first_frame = [0; 8];
    log.read_exact_at(&mut first_frame, 8192).unwrap();
    log.write_all_at(&first_frame.map(|b| !b), 8192).unwrap();
    let ran = scene.plait(&["check"]).says(&["DAMAGE", "is damaged at position"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    log.write_all_at(&first_frame, 8192).unwrap();
    scene.plait(&["check"]).done();
}

#[test]
fn damaged_pages_and_missing_parents_are_damage() {
    let Some(scene) = Scene::empty() else { return };
    let sql = "CREATE TABLE p(id INTEGER PRIMARY KEY); CREATE TABLE c(p REFERENCES p); INSERT INTO c VALUES(7)";
    scene.stock(sql).done();
    let ran = scene.plait(&["check"]).says(&["DAMAGE", "row 1 of table c", "table p"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(scene.plait(&["check", "--quick"]).code, 0);

    File::options().write(true).open(&scene.path).unwrap().write_all_at(&[0xff; 64], 4096).unwrap();
    let ran = scene.plait(&["check"]).says(&["DAMAGE", "integrity"]);
    assert_eq!(ran.code, 1, "{ran:?}");
}

#[test]
fn a_file_cut_short_is_damage() {
    let Some(scene) = Scene::concurrent() else { return };
    let file = File::options().write(true).open(&scene.path).unwrap();
    file.set_len(file.metadata().unwrap().len() - 100).unwrap();
    let ran = scene.plait(&["check"]).says(&["DAMAGE", "shorter or longer"]);
    assert_eq!(ran.code, 1, "{ran:?}");
}

#[test]
fn an_unfinished_transaction_of_stock_sqlite_is_left_to_it() {
    let Some(scene) = Scene::empty() else { return };
    scene.stock("CREATE TABLE t(x)").done();
    let mut shell = scene.shell();
    // Spilling pages to the file makes the journal hot.
    shell.run("PRAGMA cache_size=1; PRAGMA cache_spill=1; BEGIN; INSERT INTO t SELECT randomblob(3000) FROM pragma_function_list;");
    shell.kill();
    if !scene.beside("-journal").exists() {
        eprintln!("skipped: the journal was not written");
        return;
    }
    // As of a larger transaction, which has made the file longer before its header told.
    let file = File::options().write(true).open(&scene.path).unwrap();
    for more in [0, 100] {
        file.set_len(file.metadata().unwrap().len() + more).unwrap();
        let before = scene.contents();
        scene.plait(&["check"]).done().says(&["roll back", "integrity     ok"]);
        assert_eq!(scene.contents(), before);
    }
}

#[test]
fn what_only_the_application_has_is_no_damage() {
    for (table, code) in [
        ("CREATE TABLE t(x CHECK(of_the_application(x)))", 0),
        // What can be checked without it is.
        ("CREATE TABLE t(x NOT NULL CHECK(of_the_application(x)))", 1),
    ] {
        let Some(scene) = Scene::empty() else { return };
        let mut shell = scene.lone_shell();
        shell.run(".dbconfig defensive off");
        shell.run("CREATE TABLE t(x CHECK(x > 0)); INSERT INTO t VALUES(1), (NULL); PRAGMA writable_schema=1;");
        shell.run(&format!("UPDATE sqlite_schema SET sql='{table}';"));
        shell.close();
        let ran =
            scene.plait(&["check"]).says(&["without CHECK constraints", "of_the_application"]);
        assert_eq!(ran.code, code, "{ran:?}");
    }
}
