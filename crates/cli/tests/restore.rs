//! `plait restore`: whatever stood there, and whoever was killed.

mod plait;

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use plait::{Ran, Scene, command, finish};

/// A database `app.db` and a backup that has another row.
fn with_backup(scene: Scene) -> Scene {
    let sql = "PRAGMA journal_mode=wal; CREATE TABLE t(id INTEGER PRIMARY KEY, n INT); INSERT INTO t VALUES(1, 77)";
    scene.stock_on(&backup(&scene), sql).done();
    scene
}

fn backup(scene: &Scene) -> PathBuf {
    scene.folder().join("backup.db")
}

fn restore(scene: &Scene, more: &[&str]) -> Ran {
    let arguments = [&["restore", "backup.db", "app.db"], more].concat();
    finish(command(&arguments).current_dir(scene.folder()))
}

/// Shared memory is mostly holes, and long.
const CONTENT_MAX: u64 = 1 << 20;

type Files = BTreeMap<String, Vec<u8>>;

/// The files whose names begin so, by the rest of their names.
fn files(scene: &Scene, begin: &str) -> Files {
    let of = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.strip_prefix(begin)?.to_owned();
        let mut content = Vec::new();
        File::open(path).ok()?.take(CONTENT_MAX).read_to_end(&mut content).ok()?;
        Some((name, content))
    };
    let entries = std::fs::read_dir(scene.folder()).expect("the folder is there");
    entries.filter_map(|entry| of(entry.expect("it can be read").path())).collect()
}

/// The database has the backup's row, nothing stands beside it, and it is sound.
#[track_caller]
fn is_restored(scene: &Scene, mode: &str) {
    let beside: Vec<_> = files(scene, "app.db")
        .into_keys()
        .filter(|name| !name.starts_with("-before") && !name.starts_with(".plait-restore-"))
        .collect();
    assert_eq!(beside, [""], "nothing stands beside it");
    scene.plait(&["check"]).done();
    assert_eq!(scene.ours("SELECT n FROM t").done().out, "77\n");
    assert_eq!(scene.ours("PRAGMA journal_mode").done().out, format!("{mode}\n"));
}

/// What may stand there, and the mode that the file has afterwards.
fn scenes() -> Option<Vec<(&'static str, Scene, &'static str)>> {
    let killed_in_wal = || {
        let scene = Scene::empty()?;
        let mut shell = scene.lone_shell();
        shell.run("PRAGMA journal_mode=wal; CREATE TABLE t(n); INSERT INTO t VALUES(1);");
        shell.kill();
        Some(scene)
    };
    let without = |scene: Scene, suffixes: &[&str]| {
        suffixes.iter().for_each(|suffix| scene.remove(suffix));
        scene
    };
    let garbage = |scene: Scene, bytes: &[u8]| {
        std::fs::write(&scene.path, bytes).unwrap();
        scene
    };
    Some(vec![
        ("nothing", Scene::empty()?, "wal"),
        ("a database at rest", Scene::concurrent()?, "concurrent"),
        ("a killed session", Scene::killed(3)?, "concurrent"),
        (
            "one without its log",
            without(Scene::killed(3)?, &["-plait", "-plait-shm"]),
            "concurrent",
        ),
        ("one without its file", without(Scene::killed(3)?, &[""]), "wal"),
        ("a log alone", without(Scene::killed(3)?, &["", "-wal", "-shm", "-plait-shm"]), "wal"),
        ("a WAL database with its WAL", killed_in_wal()?, "wal"),
        ("a WAL alone", without(killed_in_wal()?, &["", "-shm"]), "wal"),
        ("an empty file beside a WAL", garbage(killed_in_wal()?, b""), "wal"),
        ("no database beside a log", garbage(Scene::killed(3)?, b"no database"), "concurrent"),
        ("no database", garbage(Scene::empty()?, b"no database"), "wal"),
    ])
}

#[test]
fn whatever_stood_there_is_kept_as_it_was_and_the_backup_takes_its_place() {
    let Some(scenes) = scenes() else { return };
    for (what, scene, mode) in scenes {
        let scene = with_backup(scene);
        let (before, of_backup) = (files(&scene, "app.db"), files(&scene, "backup.db"));
        let ran =
            restore(&scene, &[]).done().says(&["restored from backup.db", "quick_check ok", mode]);
        assert_eq!(files(&scene, "app.db-before-restore-1"), before, "{what}");
        assert_eq!(
            ran.out.contains("is kept beside it as app.db-before-restore-1"),
            !before.is_empty(),
            "{what}: {ran:?}"
        );
        assert_eq!(files(&scene, "backup.db"), of_backup, "{what}: the backup is only read");
        is_restored(&scene, mode);
    }
}

#[test]
fn what_was_put_aside_is_a_database_that_can_be_restored_itself() {
    let Some(scene) = Scene::killed(3).map(with_backup) else { return };
    restore(&scene, &[]).done().says(&["with -wal", "-plait, -plait-shm"]);
    let back = ["restore", "app.db-before-restore-1", "app.db"];
    finish(command(&back).current_dir(scene.folder())).done().says(&["app.db-before-restore-2"]);
    assert_eq!(scene.ours("SELECT count(*) FROM t").done().out, "4\n", "killed commits included");
    is_kept(&scene, "app.db-before-restore-2", "77\n");
}

/// The database and all that stands beside it, under the name of the backup.
fn as_backup(scene: &Scene) {
    for suffix in files(scene, "app.db").into_keys() {
        let to = scene.folder().join(format!("backup.db{suffix}"));
        std::fs::rename(scene.beside(&suffix), to).unwrap();
    }
}

#[test]
fn a_backup_with_files_beside_it_is_only_read_and_all_of_it_is_restored() {
    let killed_by = |mode: &str, sql: &str| {
        let scene = Scene::empty()?;
        scene
            .ours(&format!(
                "PRAGMA journal_mode={mode}; CREATE TABLE t(n); INSERT INTO t VALUES(1)"
            ))
            .done();
        let mut shell = scene.lone_shell();
        shell.run(sql);
        shell.kill();
        Some(scene)
    };
    let normal = || {
        let scene = Scene::concurrent()?;
        let mut shell = scene.shell();
        shell.run("PRAGMA synchronous=normal; INSERT INTO t VALUES(2, 20); INSERT INTO t VALUES(3, 30); INSERT INTO t VALUES(4, 40);");
        shell.kill();
        Some(scene)
    };
    // So much that pages are written to the file before COMMIT.
    let spill = "PRAGMA cache_size=1; PRAGMA cache_spill=1; BEGIN; INSERT INTO t SELECT randomblob(3000) FROM pragma_function_list;";
    let cases: [(&str, Option<Scene>, &str); 4] = [
        ("log and shared memory", Scene::killed(3), "4\n"),
        ("commits in shared memory", normal(), "4\n"),
        ("a WAL", killed_by("wal", "INSERT INTO t VALUES(2);"), "2\n"),
        ("a hot journal", killed_by("delete", spill), "1\n"),
    ];
    for (what, scene, rows) in cases {
        let Some(scene) = scene else { return };
        as_backup(&scene);
        let before = files(&scene, "backup.db");
        assert!(before.len() > 1, "{what}: {:?}", before.keys());
        restore(&scene, &[]).done();
        assert!(files(&scene, "backup.db") == before, "{what}: the backup was changed");
        assert_eq!(scene.ours("SELECT count(*) FROM t").done().out, rows, "{what}");
        scene.plait(&["check"]).done();
    }
}

#[test]
fn a_backup_that_lives_in_shared_memory_alone_is_recovered_first() {
    let Some(scene) = Scene::killed(3) else { return };
    scene.remove("-plait");
    as_backup(&scene);
    let before = files(&scene, "backup.db");
    restore(&scene, &[])
        .failed()
        .says(&["the log of backup.db is missing", "plait recover backup.db"]);
    assert!(files(&scene, "backup.db") == before && !scene.path.exists());
    finish(command(&["recover", "backup.db"]).current_dir(scene.folder())).done();
    restore(&scene, &[]).done();
    assert_eq!(scene.ours("SELECT count(*) FROM t").done().out, "4\n");
}

#[track_caller]
fn is_kept(scene: &Scene, name: &str, rows: &str) {
    assert_eq!(scene.ours_on(&scene.folder().join(name), "SELECT n FROM t").done().out, rows);
}

#[test]
fn the_mode_is_kept_or_that_which_was_told_and_so_are_the_rights() {
    for (before, told, after) in [
        ("delete", None, "delete"),
        ("wal", None, "wal"),
        ("concurrent", None, "concurrent"),
        ("concurrent", Some("wal"), "wal"),
        ("concurrent", Some("delete"), "delete"),
        ("delete", Some("concurrent"), "concurrent"),
    ] {
        let Some(scene) = Scene::empty().map(with_backup) else { return };
        scene.ours(&format!("PRAGMA journal_mode={before}; CREATE TABLE t(n)")).done();
        std::fs::set_permissions(&scene.path, Permissions::from_mode(0o662)).unwrap();
        let more: Vec<_> = told.iter().flat_map(|mode| ["--to", mode]).collect();
        let ran = restore(&scene, &more).done();
        assert_eq!(ran.out.contains("as before"), before == after, "{ran:?}");
        assert_eq!(std::fs::metadata(&scene.path).unwrap().permissions().mode() & 0o777, 0o662);
        is_restored(&scene, after);
    }
}

#[test]
fn a_database_that_is_open_stays_as_it_is_and_the_program_is_named() {
    for (mode, ours) in
        [("concurrent", true), ("concurrent", false), ("wal", false), ("delete", false)]
    {
        let Some(scene) = Scene::empty().map(with_backup) else { return };
        scene.ours(&format!("PRAGMA journal_mode={mode}; CREATE TABLE t(n)")).done();
        let mut shell = if ours { scene.shell() } else { scene.lone_shell() };
        shell.run("INSERT INTO t VALUES(5);");
        let person = format!("{} (sqlite3)", shell.pid());
        restore(&scene, &[]).failed().says(&[
            "is open in process",
            &person,
            "close these programs",
        ]);
        // What `plait-replicate restore --force` asks before it begins.
        let look = ["look-before-restore"];
        scene.plait(&look).failed().says(&["is open in process", &person]);
        shell.run("INSERT INTO t VALUES(6); SELECT * FROM t;");
        shell.close();
        assert_eq!(scene.ours("SELECT sum(n) FROM t").done().out, "11\n", "{mode}");
        assert!(files(&scene, "app.db-before").is_empty());
        scene.plait(&look).done();
        restore(&scene, &[]).done();
        is_restored(&scene, mode);
    }
}

#[test]
fn a_backup_that_is_none_changes_nothing() {
    let Some(scene) = Scene::killed(2).map(with_backup) else { return };
    let at = |name: &str| scene.folder().join(name);
    std::fs::copy(backup(&scene), at("damaged.db")).unwrap();
    let damaged = File::options().write(true).open(at("damaged.db")).unwrap();
    damaged.write_all_at(&[0xff; 64], 4096).unwrap();
    File::create(at("empty.db")).unwrap();
    std::fs::write(at("text.db"), [b'x'; 5000]).unwrap();
    // Of a live database, without its log.
    std::fs::copy(&scene.path, at("fenced.db")).unwrap();
    std::fs::hard_link(&scene.path, at("hard.db")).unwrap();
    std::fs::create_dir(at("folder")).unwrap();
    let before = files(&scene, "");
    for (name, code, words) in [
        ("damaged.db", 1, "is damaged"),
        ("empty.db", 1, "is empty"),
        ("text.db", 1, "is not an SQLite database"),
        ("fenced.db", 1, "log is missing"),
        ("hard.db", 2, "is the database itself"),
        ("app.db", 2, "is the database itself"),
        ("folder", 1, "is a directory"),
        ("missing.db", 1, "no such file"),
    ] {
        let ran = finish(command(&["restore", name, "app.db"]).current_dir(scene.folder()));
        assert_eq!(ran.code, code, "{ran:?}");
        ran.says(&[name, words, "try: "]);
        assert!(files(&scene, "") == before, "{name}");
    }
    for (file, words) in [
        ("folder", "is a directory"),
        ("app.db-wal", "belongs to the database"),
        ("no/app.db", "cannot find"),
    ] {
        let ran = finish(command(&["restore", "backup.db", file]).current_dir(scene.folder()));
        assert_ne!(ran.code, 0, "{ran:?}");
        ran.says(&[words]);
    }
    std::fs::remove_file(at("hard.db")).unwrap();
    assert_eq!(scene.ours("SELECT count(*) FROM t").done().out, "3\n");
}

#[test]
fn a_database_behind_a_link_is_restored_where_it_is() {
    let Some(scene) = Scene::concurrent().map(with_backup) else { return };
    std::fs::create_dir(scene.folder().join("data")).unwrap();
    let real = scene.folder().join("data/real.db");
    std::fs::rename(&scene.path, &real).unwrap();
    symlink("data/real.db", &scene.path).unwrap();
    let kept = real.canonicalize().unwrap().display().to_string() + "-before-restore-1";
    restore(&scene, &[]).done().says(&[&format!("is kept as {kept}")]);
    assert!(scene.path.is_symlink());
    assert_eq!(scene.ours("SELECT n FROM t").done().out, "77\n");
    assert!(scene.folder().join("data/real.db-before-restore-1").exists());
}

#[test]
fn two_restores_do_not_meet() {
    let Some(scene) = Scene::concurrent().map(with_backup) else { return };
    scene.stock_on(&backup(&scene), "PRAGMA journal_mode=delete").done();
    // The first waits for the lock on its backup, and has its temporary file meanwhile.
    let mut shell = scene.lone_shell_on(&backup(&scene));
    shell.run("BEGIN EXCLUSIVE;");
    let mut first = command(&["restore", "backup.db", "app.db"]);
    let mut first = first.current_dir(scene.folder()).stdout(Stdio::null()).spawn().unwrap();
    while files(&scene, "app.db.plait-restore-").is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::write(scene.folder().join("other.db"), std::fs::read(backup(&scene)).unwrap())
        .unwrap();
    let mut second = command(&["restore", "other.db", "app.db"]);
    finish(second.current_dir(scene.folder()))
        .failed()
        .says(&["another `plait restore`", "is at work"]);
    assert_eq!(scene.ours("SELECT n FROM t").done().out, "10\n");
    shell.close();
    assert!(first.wait().unwrap().success());
    is_restored(&scene, "concurrent");
}

/// Ends the process before one of its calls that change a folder or sync.
const KILLER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
static void step(void){
  static int calls;
  const char *at = getenv("TEST_KILL_AT");
  if( at && ++calls==atoi(at) ) raise(SIGKILL);
}
#define OVER1(NAME, A) int NAME(A a){ step(); return ((int(*)(A))dlsym(RTLD_NEXT, #NAME))(a); }
#define OVER2(NAME) int NAME(const char *a, const char *b){ \
  step(); return ((int(*)(const char*, const char*))dlsym(RTLD_NEXT, #NAME))(a, b); }
OVER1(fsync, int)
OVER1(fdatasync, int)
OVER1(unlink, const char*)
OVER2(rename)
OVER2(link)
OVER2(symlink)
int linkat(int i, const char *a, int j, const char *b, int f){
  step(); return ((int(*)(int, const char*, int, const char*, int))dlsym(RTLD_NEXT, "linkat"))(i, a, j, b, f);
}
"#;

fn killer(folder: &Path) -> Option<PathBuf> {
    let (source, object) = (folder.join("killer.c"), folder.join("killer.so"));
    std::fs::write(&source, KILLER).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let made = Command::new(compiler)
        .args(["-shared", "-fPIC", "-o"])
        .arg(&object)
        .arg(&source)
        .arg("-ldl")
        .output();
    match made {
        Ok(made) if made.status.success() => Some(object),
        other => {
            eprintln!("skipped: cannot compile: {other:?}");
            None
        }
    }
}

/// What a killed restore has left: the old database, the new one, or one that nothing opens and that everybody tells of.
fn look(scene: &Scene, old: &str) -> &'static str {
    let read = "SELECT group_concat(n) FROM t";
    // Not a program's look, which would change what lies there.
    let is_closed = scene.path.is_symlink();
    if is_closed {
        for shell in [scene.ours(read), scene.stock("CREATE TABLE IF NOT EXISTS made(x)")] {
            assert!(shell.code != 0 && shell.err.contains("unable to open"), "{shell:?}");
        }
        for looks in ["check", "status", "recover", "enable", "disable"] {
            scene.plait(&[looks]).failed().says(&["was cut off", "plait restore BACKUP app.db"]);
        }
        assert!(scene.path.is_symlink());
        return "closed";
    }
    let copy = scene.folder().join("look");
    std::fs::create_dir(&copy).unwrap();
    let mut files: Vec<_> =
        std::fs::read_dir(scene.folder()).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        ["", "-wal", "-plait", "-plait-pages"]
            .iter()
            .any(|suffix| name == format!("app.db{suffix}"))
    });
    for path in files {
        std::fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
    }
    let rows = scene.ours_on(&copy.join("app.db"), read).done().out;
    std::fs::remove_dir_all(&copy).unwrap();
    match rows.trim_end() {
        "77" => "new",
        rows if rows == old => "old",
        other => panic!("neither the old database nor the new one: {other}"),
    }
}

#[test]
fn a_restore_that_is_killed_at_any_step_leaves_the_old_the_new_or_a_closed_database_and_can_be_repeated()
 {
    let mut seen = BTreeMap::new();
    for step in 1.. {
        let Some(scene) = Scene::killed(3).map(with_backup) else { return };
        let Some(killer) = killer(scene.folder()) else { return };
        let before = files(&scene, "app.db");
        let mut cut_off = command(&["restore", "backup.db", "app.db"]);
        cut_off.current_dir(scene.folder()).env("LD_PRELOAD", &killer);
        let ran = finish(cut_off.env("TEST_KILL_AT", step.to_string()));
        if ran.code == 0 {
            break;
        }
        assert_eq!(ran.code, -1, "it was killed: {ran:?}");
        *seen.entry(look(&scene, "10,0,1,2")).or_insert(0) += 1;
        if scene.path.is_symlink() {
            let back = ["restore", "app.db-before-restore-1", "app.db"];
            let ran = finish(command(&back).current_dir(scene.folder()));
            ran.failed().says(&["was cut off", "may miss files", "end it first"]);
        }
        // A second one, killed as well, after as many steps or fewer.
        let mut cut_off = command(&["restore", "backup.db", "app.db"]);
        cut_off.current_dir(scene.folder()).env("LD_PRELOAD", &killer);
        finish(cut_off.env("TEST_KILL_AT", (step * 7 % 11 + step / 2 + 1).to_string()));
        look(&scene, "10,0,1,2");
        restore(&scene, &[]).done();
        is_restored(&scene, "concurrent");
        // Nothing is lost: each file has its content under a name of what was put aside.
        let kept: Vec<Vec<u8>> = files(&scene, "app.db-before-restore-").into_values().collect();
        for (suffix, content) in before {
            assert!(kept.contains(&content), "app.db{suffix} is lost by a kill at step {step}");
        }
        let aside = std::fs::metadata(scene.beside("-before-restore-1")).unwrap();
        assert_eq!(aside.nlink(), 1, "it has one name");
        let barriers = files(&scene, "app.db.plait-restore-barrier");
        assert!(barriers.is_empty() && !scene.beside(".plait-restore-barrier").is_symlink());
        assert!(step < 100, "it never ends");
    }
    assert!(["old", "closed", "new"].iter().all(|state| seen.contains_key(state)), "{seen:?}");
}

#[test]
fn a_killed_restore_is_told_of_by_the_next() {
    let Some(scene) = Scene::concurrent().map(with_backup) else { return };
    std::fs::write(scene.beside(".plait-restore-abcdef"), [7; 2048]).unwrap();
    restore(&scene, &[]).done().says(&[
        "warning:",
        "app.db.plait-restore-abcdef",
        "was killed (2.0 KiB)",
    ]);
}
