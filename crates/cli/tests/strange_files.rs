//! The commands over what is no file of a database: they never wait for it, never follow it, and say what it is.

mod plait;

use std::fs::{File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use plait::{Ran, Scene, command, finish};

/// What looks at a database before it does anything.
const COMMANDS: &[&[&str]] = &[
    &["check"],
    &["check", "--quick"],
    &["status"],
    &["status", "--json"],
    &["recover"],
    &["recover", "--accept-base", "--yes"],
    &["enable"],
    &["disable"],
];
/// What opening the database opens as well.
const NEEDED: &[&str] = &["-wal", "-shm", "-journal", "-plait", "-plait-shm"];
/// Far more than a look takes, and less than a test should hang.
const PATIENCE_SECONDS: &str = "60";

/// Runs a command that must end by itself.
fn look(scene: &Scene, args: &[&str], file: &Path) -> Ran {
    let plait = command(args);
    let mut bounded = Command::new("timeout");
    bounded.arg(PATIENCE_SECONDS).arg(plait.get_program()).args(args).arg(file);
    let ran = finish(bounded.current_dir(scene.folder()).stdin(std::process::Stdio::null()));
    assert_ne!(ran.code, 124, "it hangs: {args:?} {}", file.display());
    ran
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo runs").success());
}

/// What stands under a name, and what puts it there.
type Stranger = (&'static str, Box<dyn Fn(&Path)>);

/// What can stand under a name, by its name in messages, and what leads nowhere good.
fn strangers(scene: &Scene) -> Vec<Stranger> {
    let victim = scene.folder().join("victim");
    std::fs::write(&victim, [7; 100_000]).expect("a file of somebody else");
    let nothing = scene.folder().join("nothing");
    vec![
        ("a pipe", Box::new(pipe)),
        ("a directory", Box::new(|path| std::fs::create_dir(path).expect("a directory"))),
        ("a symbolic link", Box::new(|path| symlink("/dev/null", path).expect("a link"))),
        ("a symbolic link", Box::new(move |path| symlink(&victim, path).expect("a link"))),
        ("a symbolic link", Box::new(move |path| symlink(&nothing, path).expect("a link"))),
    ]
}

fn remove(path: &Path) {
    let gone = if path.is_dir() { std::fs::remove_dir(path) } else { std::fs::remove_file(path) };
    gone.expect("it is there");
}

#[test]
fn what_is_no_file_is_told_where_a_database_was_named() {
    let Some(scene) = Scene::concurrent() else { return };
    let other = scene.folder().join("other.db");
    for (kind, make) in strangers(&scene) {
        make(&other);
        let words: &[&str] = match kind {
            "a directory" => &["is a directory", "give the path of a database file"],
            "a pipe" => &["it is not a regular file", "give the path of a database file"],
            // To the null device, to a file that is no database, and to nothing.
            _ => &["other.db"],
        };
        for args in COMMANDS {
            look(&scene, args, &other).failed().says(words);
        }
        remove(&other);
    }
    for args in COMMANDS {
        look(&scene, args, Path::new("/dev/null")).failed().says(&["not a regular file"]);
    }
    assert_eq!(std::fs::read(scene.folder().join("victim")).unwrap(), [7; 100_000]);
}

#[test]
fn a_stranger_under_the_name_of_a_side_file_is_neither_waited_for_nor_followed() {
    let Some(scene) = Scene::killed(2) else { return };
    for (kind, make) in strangers(&scene) {
        for suffix in NEEDED {
            let side = scene.beside(suffix);
            let kept = side.with_extension("kept");
            let was_there = std::fs::rename(&side, &kept).is_ok();
            make(&side);
            for args in COMMANDS {
                let name = format!("app.db{suffix}");
                look(&scene, args, &scene.path).failed().says(&[&name, kind, "remove it"]);
            }
            remove(&side);
            if was_there {
                std::fs::rename(&kept, &side).expect("it is put back");
            }
        }
    }
    assert_eq!(std::fs::read(scene.folder().join("victim")).unwrap(), [7; 100_000]);
    // Nothing was done to the database meanwhile.
    scene.plait(&["check"]).done().says(&["sound: 2 commits", "integrity     ok"]);
}

/// What is nowhere else.
const NOTES: &[u8] = b"somebody's notes, which are nowhere else";

#[test]
fn a_file_with_something_else_in_it_is_told_of_and_left_alone() {
    for scene in [Scene::concurrent(), Scene::killed(2)] {
        let Some(scene) = scene else { return };
        for suffix in ["-plait-shm", "-plait-new", "-plait-super", "-plait-pages"] {
            let side = scene.beside(suffix);
            let kept = side.with_extension("kept");
            let was_there = std::fs::rename(&side, &kept).is_ok();
            std::fs::write(&side, NOTES).unwrap();
            let name = format!("app.db{suffix}");
            for args in [&["check"][..], &["recover"]] {
                let ran = look(&scene, args, &scene.path);
                assert_eq!(std::fs::read(&side).unwrap(), NOTES, "{args:?} {suffix}: {ran:?}");
                if suffix == "-plait-shm" || args == ["check"] {
                    ran.says(&[&name, "a file that holds something else", "remove it"]);
                }
            }
            remove(&side);
            if was_there {
                std::fs::rename(&kept, &side).expect("it is put back");
            }
        }
    }
}

#[test]
fn what_stands_under_the_name_of_a_lost_log_is_told_before_and_after_the_restoring() {
    let Some(scene) = Scene::killed(3) else { return };
    std::fs::write(scene.beside("-plait"), NOTES).unwrap();
    let ran = scene.plait(&["check"]);
    let words =
        ["brings what shared memory holds into the file", "and then fails", "put that file away"];
    assert_eq!(ran.says(&words).code, 1);
    scene.plait(&["recover"]).failed().says(&[
        "everything that was committed is in",
        "app.db-plait",
        "put that file away",
    ]);
    assert_eq!(std::fs::read(scene.beside("-plait")).unwrap(), NOTES);
    scene.remove("-plait");
    scene.plait(&["check"]).done();
    assert_eq!(scene.ours("SELECT count(*) FROM t").done().out, "4\n");
    // Empty, it is in nobody's way.
    let Some(scene) = Scene::killed(3) else { return };
    File::create(scene.beside("-plait")).unwrap();
    scene.plait(&["recover"]).done();
    assert_eq!(scene.ours("SELECT count(*) FROM t").done().out, "4\n");
    File::create(scene.beside("-plait")).unwrap();
    scene.plait(&["check"]).done().says(&["starts a new session", "no longer needed"]);
    assert_eq!(scene.ours("INSERT INTO t(n) VALUES(1); SELECT count(*) FROM t").done().out, "5\n");
}

#[test]
fn a_copy_of_the_log_in_its_place_is_no_damage_while_shared_memory_is_there() {
    let Some(scene) = Scene::killed(3) else { return };
    // Another inode, as of a file that was copied back.
    let copy = scene.folder().join("copy");
    std::fs::copy(scene.beside("-plait"), &copy).unwrap();
    std::fs::rename(&copy, scene.beside("-plait")).unwrap();
    scene
        .plait(&["check"])
        .done()
        .says(&["its log is a copy; no commit is lost", "integrity     ok"]);
    scene.plait(&["status"]).done().says(&["brings what they have committed into the file"]);
    scene.plait(&["recover"]).done();
    assert_eq!(scene.ours("SELECT count(*) FROM t").done().out, "4\n");
}

#[test]
fn a_stranger_that_only_some_transactions_meet_is_a_note() {
    let Some(scene) = Scene::concurrent() else { return };
    for suffix in ["-plait-new", "-plait-super", "-plait-pages"] {
        pipe(&scene.beside(suffix));
        let name = format!("app.db{suffix} is a pipe");
        look(&scene, &["check"], &scene.path).done().says(&["note", &name, "remove it"]);
        scene.remove(suffix);
    }
}

#[test]
fn a_file_without_permissions_is_named() {
    let Some(scene) = Scene::killed(1) else { return };
    if !Command::new("setpriv").arg("--version").output().is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: there is no setpriv");
        return;
    }
    if std::os::unix::fs::chown(&scene.path, Some(65_534), None).is_err() {
        eprintln!("skipped: only root can become somebody else");
        return;
    }
    // The program itself must be reachable for the other user.
    let plait = scene.folder().join("plait");
    std::fs::copy(command(&[]).get_program(), &plait).expect("a copy of the program");
    let nobody = 65_534;
    for entry in std::fs::read_dir(scene.folder()).expect("the folder is there") {
        let path = entry.expect("it can be read").path();
        std::os::unix::fs::chown(path, Some(nobody), Some(nobody)).expect("given away");
    }
    std::os::unix::fs::chown(scene.folder(), Some(nobody), Some(nobody)).expect("given away");
    for suffix in ["", "-wal", "-shm", "-plait-shm"] {
        let path = scene.beside(suffix);
        std::fs::set_permissions(&path, Permissions::from_mode(0o000)).expect("its mode");
        for args in COMMANDS {
            let mut other = Command::new("setpriv");
            other
                .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
                .arg(&plait)
                .args(*args);
            let words = [&*format!("app.db{suffix}: permission denied"), "check the permissions"];
            finish(other.arg(&scene.path).current_dir(scene.folder())).failed().says(&words);
        }
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("its mode");
    }
}

#[test]
fn side_files_that_are_empty_or_cut_short_are_looked_at_without_harm() {
    for suffix in ["-wal", "-plait", "-plait-shm"] {
        for part in [0, 1, 2] {
            let Some(scene) = Scene::killed(3) else { return };
            let side = File::options().write(true).open(scene.beside(suffix)).unwrap();
            let bytes = side.metadata().unwrap().len();
            side.set_len(if part == 0 { 0 } else { bytes / 3 * part - 5 }).unwrap();
            drop(side);
            let before = scene.contents();
            let ran = look(&scene, &["check"], &scene.path);
            assert!([0, 1].contains(&ran.code), "{ran:?}");
            assert_eq!(ran.code == 1, ran.out.contains("DAMAGE"), "{suffix} {part}: {ran:?}");
            look(&scene, &["status"], &scene.path).done();
            assert_eq!(scene.contents(), before, "{suffix} {part}");
        }
    }
}

#[test]
fn a_log_that_is_empty_is_damage_once_shared_memory_is_gone() {
    let Some(scene) = Scene::killed(3) else { return };
    scene.remove("-plait-shm");
    File::create(scene.beside("-plait")).unwrap();
    let ran = scene.plait(&["check"]).says(&["DAMAGE", "shorter than a log's first page"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    scene.plait(&["recover"]).failed().says(&["--accept-base"]);
}

/// SQLite removes the WAL of an empty file as soon as it opens it.
#[test]
fn an_empty_database_file_does_not_cost_what_lies_beside_it() {
    let Some(scene) = Scene::killed(3) else { return };
    let content = std::fs::read(&scene.path).unwrap();
    File::create(&scene.path).unwrap();
    let before = scene.contents();
    for args in [&["check"][..], &["status"], &["recover"], &["recover", "--accept-base", "--yes"]]
    {
        let ran = look(&scene, args, &scene.path);
        assert_eq!(scene.contents(), before, "{args:?}: {ran:?}");
        assert_eq!(ran.code, i32::from(args[0] != "status"), "{ran:?}");
        ran.says(&["put the database file back"]);
    }
    std::fs::write(&scene.path, content).unwrap();
    assert_eq!(scene.ours("SELECT count(*) FROM t").done().out, "4\n");
}

#[test]
fn an_empty_file_beside_a_wal_of_stock_sqlite_is_checked_on_a_copy() {
    let Some(scene) = Scene::empty() else { return };
    let mut shell = scene.lone_shell();
    shell.run("PRAGMA journal_mode=wal; CREATE TABLE t(x);");
    shell.kill();
    File::create(&scene.path).unwrap();
    let before = scene.contents();
    assert!(before.iter().any(|(name, bytes)| name.ends_with("-wal") && !bytes.is_empty()));
    let words = [
        "makes a new, empty database",
        "SQLite removes the WAL, with",
        "put the database file back, or copy",
    ];
    assert_eq!(look(&scene, &["check"], &scene.path).says(&words).code, 1);
    look(&scene, &["recover"], &scene.path).failed().says(&["put the database file back"]);
    assert_eq!(scene.contents(), before);
    // What it says is so.
    assert_eq!(scene.stock("SELECT count(*) FROM sqlite_schema").done().out, "0\n");
    assert!(!scene.beside("-wal").exists());
}

#[test]
fn a_script_whose_interpreter_is_a_pipe_is_not_waited_for() {
    let Some(scene) = Scene::empty() else { return };
    let interpreter: PathBuf = scene.folder().join("interpreter");
    pipe(&interpreter);
    let script = scene.folder().join("script");
    plait::executable(&script, format!("#!{}\n", interpreter.display()).as_bytes());
    let ran = look(&scene, &["run", "--"], &script);
    assert_ne!(ran.code, 0, "{ran:?}");
}

#[test]
fn a_database_that_is_missing_beside_its_files_is_told_in_the_same_words_by_all() {
    for suffix in ["-plait", "-wal", "-plait-shm"] {
        let Some(scene) = Scene::killed(2) else { return };
        std::fs::remove_file(&scene.path).unwrap();
        for other in
            ["-plait", "-wal", "-shm", "-plait-shm"].iter().filter(|other| **other != suffix)
        {
            scene.remove(other);
        }
        let before = scene.contents();
        let file = Path::new("app.db");
        let name = format!("app.db is missing, but app.db{suffix} is there");
        let words = [name.as_str(), "put the database file back", "plait restore BACKUP app.db"];
        for args in COMMANDS.iter().chain(&[&["doctor"][..], &["enable", "--create"]]) {
            look(&scene, args, file).failed().says(&words);
        }
        finish(command(&["backup", "app.db", "copy.db"]).current_dir(scene.folder()))
            .failed()
            .says(&words);
        finish(command(&["restore", "app.db", "new.db"]).current_dir(scene.folder()))
            .failed()
            .says(&words);
        assert_eq!(scene.contents(), before);
    }
}

#[test]
fn a_side_file_of_another_user_is_to_be_given_back_and_nothing_is_given_up() {
    for suffix in ["-plait", "-plait-shm"] {
        let Some(scene) = Scene::killed(4) else { return };
        if std::os::unix::fs::chown(scene.beside(suffix), Some(65_534), None).is_err() {
            eprintln!("skipped: only root can give a file away");
            return;
        }
        let before = scene.contents();
        for command in ["doctor", "recover", "check", "status", "backup"] {
            let more: &[&str] =
                if command == "backup" { &["app.db", "copy.db"] } else { &["app.db"] };
            let mut ran = plait::command(&[&[command], more].concat());
            let ran = plait::finish(ran.current_dir(scene.folder())).failed();
            let cure = format!("app.db{suffix}`");
            ran.says(&["belongs to user 65534", "`chown --reference=", &cure]);
        }
        assert_eq!(scene.contents(), before);
        let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&scene.path).unwrap());
        std::os::unix::fs::chown(scene.beside(suffix), Some(owner), None).unwrap();
        scene.plait(&["recover"]).done();
        assert_eq!(scene.stock("SELECT count(*) FROM t").done().out, "5\n");
    }
}

#[test]
fn names_that_are_too_long_are_told_as_that() {
    let Some(scene) = Scene::concurrent() else { return };
    let root = scene.folder().canonicalize().unwrap();
    let mut deep = root.clone();
    while deep.as_os_str().len() < 400 {
        deep.push("d".repeat(60));
    }
    std::fs::create_dir_all(&deep).unwrap();
    let at = |bytes: usize| {
        let name = "n".repeat(bytes - deep.as_os_str().len() - 1);
        deep.join(name)
    };
    let enable = |path: &Path| finish(command(&["enable", "--create"]).arg(path));
    enable(&at(504)).done();
    for bytes in [505, 512, 520] {
        enable(&at(bytes)).failed().says(&[
            &format!("its full path has {bytes} bytes, and SQLite opens paths of 504"),
            "shorter names",
        ]);
        assert!(!at(bytes).exists(), "nothing stays");
    }
    let long = "c".repeat(240);
    let mut backup = command(&["backup", "app.db", &long]);
    finish(backup.current_dir(&root)).failed().says(&["name too long", "take a shorter name"]);
    let longer = "c".repeat(250);
    let ran = finish(command(&["enable", "--create", &longer]).current_dir(&root)).failed();
    ran.says(&["too long", "short"]);
    assert!(!root.join(longer).exists(), "nothing stays");
}
