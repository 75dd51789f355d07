//! `plait backup`: a copy is whole, or it is not there.

mod plait;

use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plait::{Ran, Scene, command, finish};

const WRITERS: u64 = 4;
const AT_WORK: Duration = Duration::from_secs(4);

fn backup(scene: &Scene, arguments: &[&str]) -> Ran {
    let arguments = [&["backup"], arguments].concat();
    finish(command(&arguments).current_dir(scene.folder()))
}

/// Names in the folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.expect("it can be read").file_name().to_string_lossy().into_owned()
    };
    let mut names: Vec<_> = entries.map(name).collect();
    names.sort();
    names
}

/// What stock SQLite reads in the copy.
fn stock(scene: &Scene, copy: &str, sql: &str) -> String {
    scene.stock_on(&scene.folder().join(copy), sql).done().out
}

#[test]
fn a_copy_has_the_journal_mode_of_the_database_and_is_one_plain_file() {
    for mode in ["delete", "wal", "concurrent"] {
        let Some(scene) = Scene::empty() else { return };
        let sql =
            format!("PRAGMA journal_mode={mode}; CREATE TABLE t(x); INSERT INTO t VALUES('kept')");
        scene.ours(&sql).done();
        backup(&scene, &["app.db", "copy.db"]).done().says(&[
            "a copy of app.db",
            "quick_check ok",
            mode,
        ]);
        assert_eq!(names(scene.folder()), ["app.db", "copy.db"]);
        let copy = scene.folder().join("copy.db");
        assert_eq!(scene.ours_on(&copy, "PRAGMA journal_mode").done().out, format!("{mode}\n"));
        assert_eq!(stock(&scene, "copy.db", "SELECT x FROM t"), "kept\n");
        let salt = |path: &Path| std::fs::read(path).unwrap()[72..76].to_vec();
        assert_eq!(salt(&copy) == [0; 4], mode != "concurrent", "marked where the database is");
        assert!(mode != "concurrent" || salt(&copy) != salt(&scene.path), "by a mark of its own");
    }
}

#[test]
fn copies_beside_writers_are_of_one_moment_each() {
    for mode in ["concurrent", "wal", "delete"] {
        let Some(scene) = Scene::empty() else { return };
        scene
            .ours(&format!(
                "PRAGMA journal_mode={mode}; CREATE TABLE t(id INTEGER PRIMARY KEY, n INT, pad BLOB);
                 WITH s(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM s WHERE i<2000) INSERT INTO t SELECT i, 0, randomblob(900) FROM s"
            ))
            .done();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (scene, is_over) = (&scene, &is_over);
                scope.spawn(move || {
                    let mut shell = scene.shell();
                    shell.run("PRAGMA busy_timeout=60000;");
                    for n in 0.. {
                        let (from, to) = ((writer * 499 + n * 7) % 2000 + 1, (n * 13) % 2000 + 1);
                        shell.run(&format!(
                            "BEGIN IMMEDIATE; UPDATE t SET n=n-1 WHERE id={from}; UPDATE t SET n=n+1 WHERE id={to}; COMMIT;"
                        ));
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                    shell.close();
                });
            }
            let start = Instant::now();
            let mut copies = 0;
            while start.elapsed() < AT_WORK {
                let ran = backup(&scene, &["app.db", "copy.db", "--force", "--check", "full"]);
                if ran.code != 0 {
                    is_over.store(true, Ordering::Relaxed);
                }
                ran.done();
                assert_eq!(stock(&scene, "copy.db", "SELECT sum(n), count(*) FROM t"), "0|2000\n");
                copies += 1;
            }
            is_over.store(true, Ordering::Relaxed);
            assert!(copies > 1, "{mode}");
        });
        let left: Vec<_> =
            names(scene.folder()).into_iter().filter(|name| name.starts_with("copy")).collect();
        assert_eq!(left, ["copy.db"]);
    }
}

#[test]
fn a_copy_of_what_killed_programs_left_has_their_commits() {
    let Some(scene) = Scene::killed(4) else { return };
    backup(&scene, &["app.db", "copy.db"]).done();
    assert_eq!(stock(&scene, "copy.db", "SELECT count(*) FROM t"), "5\n");
    // And without the log it is refused, as by any program.
    let Some(scene) = Scene::killed(4) else { return };
    scene.remove("-plait-shm");
    scene.remove("-plait");
    backup(&scene, &["app.db", "copy.db"]).failed().says(&["log is missing", "plait check app.db"]);
    assert!(!scene.folder().join("copy.db").exists());
}

#[test]
fn a_file_that_is_there_is_replaced_on_demand_alone_and_as_a_whole() {
    let Some(scene) = Scene::concurrent() else { return };
    let copy = scene.folder().join("copy.db");
    std::fs::write(&copy, b"notes").unwrap();
    std::fs::set_permissions(&copy, Permissions::from_mode(0o600)).unwrap();
    backup(&scene, &["app.db", "copy.db"]).failed().says(&["copy.db is there already", "--force"]);
    assert_eq!(std::fs::read(&copy).unwrap(), b"notes");
    let reader = File::open(&copy).unwrap();
    backup(&scene, &["app.db", "copy.db", "--force"]).failed().says(&["is open in process"]);
    drop(reader);
    backup(&scene, &["app.db", "copy.db", "--force"]).done();
    assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(stock(&scene, "copy.db", "SELECT n FROM t"), "10\n");
}

#[test]
fn a_copy_goes_nowhere_where_it_would_be_mixed_with_something() {
    let Some(scene) = Scene::concurrent() else { return };
    let at = |name: &str| scene.folder().join(name);
    std::fs::hard_link(&scene.path, at("hard.db")).unwrap();
    symlink("app.db", at("soft.db")).unwrap();
    symlink("nowhere", at("dangling.db")).unwrap();
    std::fs::create_dir(at("folder")).unwrap();
    std::fs::write(at("other.db-wal"), b"of another").unwrap();
    assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    let before = names(scene.folder());
    let cases: &[(&str, i32, &str)] = &[
        ("app.db", 2, "is the database itself"),
        ("hard.db", 2, "is the database itself"),
        ("soft.db", 2, "is the database itself"),
        ("dangling.db", 1, "is a symbolic link to nowhere"),
        ("folder", 1, "is a directory"),
        ("folder/", 2, "is the name of a directory"),
        ("pipe", 1, "is not a regular file"),
        ("other.db", 1, "other.db-wal is there, and belongs to another database"),
        ("app.db-wal", 2, "belongs to the database"),
        ("app.db-plait", 2, "belongs to the database"),
        ("no/such/copy.db", 1, "cannot find the folder no/such"),
    ];
    for (dest, code, words) in cases {
        for more in [&[][..], &["--force"]] {
            let ran = backup(&scene, &[&["app.db", dest], more].concat()).says(&[words, "try: "]);
            assert_eq!(ran.code, *code, "{ran:?}");
        }
    }
    assert_eq!(names(scene.folder()), before);
    assert_eq!(scene.ours("SELECT n FROM t").done().out, "10\n");
}

#[test]
fn a_damaged_database_is_told_and_copied_only_without_the_check() {
    let Some(scene) = Scene::empty() else { return };
    scene.stock("CREATE TABLE t(x); INSERT INTO t VALUES(1)").done();
    let file = File::options().write(true).open(&scene.path).unwrap();
    file.write_all_at(&[0xff; 64], 4096).unwrap();
    backup(&scene, &["app.db", "copy.db"]).failed().says(&[
        "is damaged",
        "plait check app.db",
        "--check none",
    ]);
    assert_eq!(names(scene.folder()), ["app.db"]);
    backup(&scene, &["app.db", "copy.db", "--check", "none"]).done().says(&["not checked"]);
    assert_eq!(names(scene.folder()), ["app.db", "copy.db"]);
}

#[test]
fn a_check_does_not_need_the_functions_of_the_application() {
    let Some(scene) = Scene::empty() else { return };
    let mut shell = scene.lone_shell();
    shell.run(".dbconfig defensive off");
    shell.run("CREATE TABLE t(x CHECK(x > 0)); INSERT INTO t VALUES(1); PRAGMA writable_schema=1;");
    shell.run("UPDATE sqlite_schema SET sql='CREATE TABLE t(x CHECK(of_the_application(x)))';");
    shell.close();
    assert_ne!(scene.stock("PRAGMA quick_check").out, "ok\n", "the function is missing");
    backup(&scene, &["app.db", "copy.db"]).done().says(&["quick_check ok"]);
}

/// A copy that waits, because a shell has the database locked.
fn waiting(scene: &Scene) -> (plait::Shell, std::process::Child) {
    let mut shell = scene.lone_shell();
    shell.run("PRAGMA journal_mode=delete; BEGIN EXCLUSIVE;");
    let mut backup = command(&["backup", "app.db", "copy.db"]);
    backup.current_dir(scene.folder()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = backup.spawn().expect("it can be started");
    while names(scene.folder()).iter().all(|name| !name.starts_with("copy.db.plait-backup-")) {
        std::thread::sleep(Duration::from_millis(5));
    }
    (shell, child)
}

#[test]
fn an_interrupted_copy_leaves_nothing_and_a_killed_one_is_told_of() {
    let Some(scene) = Scene::empty() else { return };
    scene.ours("CREATE TABLE t(x)").done();
    for signal in ["-INT", "-TERM", "-HUP", "-KILL"] {
        let (shell, child) = waiting(&scene);
        let pid = child.id().to_string();
        let start = Instant::now();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        let ended = child.wait_with_output().expect("a child can be waited for");
        assert!(start.elapsed() < Duration::from_secs(5), "it went on waiting");
        shell.close();
        if signal == "-KILL" {
            break;
        }
        assert_eq!(ended.status.code(), Some(130), "{ended:?}");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains("interrupted") && said.contains("nothing was left"), "{said}");
        assert_eq!(names(scene.folder()), ["app.db"], "{signal}");
    }
    let left: Vec<_> =
        names(scene.folder()).into_iter().filter(|name| name.starts_with("copy")).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    backup(&scene, &["app.db", "copy.db"]).done().says(&[
        "warning:",
        &left[0],
        "was killed",
        "rm ",
    ]);
    std::fs::remove_file(scene.folder().join(&left[0])).unwrap();
    let again = backup(&scene, &["app.db", "copy.db", "--force"]).done();
    assert_eq!(again.err, "");
}

/// Rows of 3000 bytes.
fn filled(rows: u32) -> String {
    format!(
        "CREATE TABLE t(x); WITH s(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM s WHERE i<{rows})
         INSERT INTO t SELECT randomblob(3000) FROM s"
    )
}

/// A small disk; `None`, with a word about it, where none can be mounted.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path, bytes: u64) -> Option<SmallDisk> {
        std::fs::create_dir(at).expect("a folder can be made");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "plait-test"]).arg(at);
        if !mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            eprintln!("skipped: a small disk cannot be mounted here");
            return None;
        }
        Some(SmallDisk(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

#[test]
fn a_disk_without_room_is_told_before_it_is_filled() {
    let Some(scene) = Scene::empty() else { return };
    let fill =
        "CREATE TABLE t(x); WITH s(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM s WHERE i<1000)
        INSERT INTO t SELECT randomblob(3000) FROM s";
    scene.ours(fill).done();
    let disk = scene.folder().join("disk");
    let Some(_disk) = SmallDisk::mount(&disk, 2 << 20) else { return };
    backup(&scene, &["app.db", "disk/copy.db"])
        .failed()
        .says(&["there is no room", "free some space"]);
    assert_eq!(names(&disk), [""; 0]);
}

/// Fills the disk that this folder is on.
fn fill(folder: &Path) {
    let mut file = std::fs::File::create(folder.join("fill")).expect("a file can be made");
    while std::io::Write::write_all(&mut file, &[7; 512]).is_ok() {}
}

#[test]
fn a_database_on_a_full_disk_is_copied_and_checked_and_what_needs_room_says_so() {
    let Some(scene) = Scene::concurrent() else { return };
    let disk = scene.folder().join("disk");
    let Some(_disk) = SmallDisk::mount(&disk, 2 << 20) else { return };
    let path = disk.join("full.db");
    std::fs::copy(&scene.path, &path).unwrap();
    fill(&disk);
    for copy in ["a.db", "b.db"] {
        backup(&scene, &["disk/full.db", copy]).done().says(&["quick_check ok"]);
        let copy = scene.folder().join(copy);
        assert_eq!(scene.stock_on(&copy, "SELECT n FROM t").done().out, "10\n");
        finish(command(&["check"]).arg(&path)).done().says(&["integrity     ok"]);
        for what in ["recover", "disable"] {
            let ran = finish(command(&[what]).arg(&path)).failed();
            ran.says(&["the disk is full", "full.db-shm", "free some space", "plait backup"]);
        }
    }
}

#[test]
fn what_killed_programs_have_left_on_a_full_disk_is_copied_whole() {
    let Some(scene) = Scene::killed(4) else { return };
    let disk = scene.folder().join("disk");
    let Some(_disk) = SmallDisk::mount(&disk, 2 << 20) else { return };
    for suffix in ["", "-wal", "-plait"] {
        let to = disk.join(format!("full.db{suffix}"));
        std::fs::copy(scene.beside(suffix), to).expect("it is there");
    }
    fill(&disk);
    backup(&scene, &["disk/full.db", "copy.db"]).done();
    let copy = scene.folder().join("copy.db");
    assert_eq!(scene.stock_on(&copy, "SELECT count(*) FROM t").done().out, "5\n");
    let mut recover = command(&["recover", "disk/full.db"]);
    let ran = finish(recover.current_dir(scene.folder())).failed();
    ran.says(&["the disk is full", "free some space"]);
    std::fs::remove_file(disk.join("fill")).unwrap();
}

#[test]
fn a_write_that_fails_in_the_middle_is_told_and_nothing_stays() {
    let Some(scene) = Scene::empty() else { return };
    scene.ours(&filled(1000)).done();
    // So many blocks of 512 or 1024 bytes are less than the database has, whichever the shell counts in.
    let script = r#"trap "" XFSZ; ulimit -f 1000; exec "$0" backup app.db copy.db"#;
    let mut limited = Command::new("sh");
    limited.args(["-c", script]).arg(command(&[]).get_program()).current_dir(scene.folder());
    finish(&mut limited).failed().says(&["cannot copy app.db to", "copy.db"]);
    assert_eq!(names(scene.folder()), ["app.db"]);
}

#[test]
fn a_folder_that_may_not_be_written_is_told() {
    let Some(scene) = Scene::concurrent() else { return };
    let plait = scene.folder().join("plait");
    std::fs::copy(command(&[]).get_program(), &plait).expect("a copy of the program");
    let open = Permissions::from_mode(0o755);
    std::fs::set_permissions(scene.folder(), open).expect("its mode");
    let mut other = Command::new("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&plait);
    other.args(["backup", "app.db", "copy.db"]).current_dir(scene.folder());
    if std::fs::symlink_metadata("/proc/self").is_ok_and(|_| !is_root()) {
        eprintln!("skipped: only root can become somebody else");
        return;
    }
    finish(&mut other).failed().says(&["permission denied", "check the permissions"]);
    assert_eq!(names(scene.folder()), ["app.db", "plait"]);
    // What lies there at rest can be read all the same, though nothing can be made beside it.
    let elsewhere = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(elsewhere.path(), Permissions::from_mode(0o777)).expect("its mode");
    std::fs::set_permissions(&scene.path, Permissions::from_mode(0o644)).expect("its mode");
    let copy = elsewhere.path().join("copy.db");
    let mut other = Command::new("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&plait);
    finish(other.arg("backup").arg(&scene.path).arg(&copy)).done().says(&["mode concurrent"]);
    assert_eq!(scene.stock_on(&copy, "SELECT n FROM t").done().out, "10\n");
    assert_eq!(names(scene.folder()), ["app.db", "plait"]);
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|said| said.stdout == b"0\n")
}

#[test]
fn a_disk_without_room_for_the_switch_of_the_mode_is_told_as_that() {
    let Some(scene) = Scene::empty() else { return };
    scene.ours(&format!("PRAGMA journal_mode=concurrent; {}", filled(1000))).done();
    let size = std::fs::metadata(&scene.path).unwrap().len();
    let disk = scene.folder().join("disk");
    // From a little less than the file to a little more than it and what stands beside it for a moment.
    for more in [0, 8 << 10, 64 << 10, 512 << 10] {
        let Some(_disk) = SmallDisk::mount(&disk, size + more) else { return };
        let ran = backup(&scene, &["app.db", "disk/copy.db"]).failed();
        ran.says(&["there is no room for a copy of app.db: it takes", "free some space"]);
        assert_eq!(names(&disk), [""; 0]);
        drop(_disk);
        std::fs::remove_dir(&disk).unwrap();
    }
}

#[test]
fn a_limit_of_the_size_of_files_is_no_end_of_the_process() {
    let Some(scene) = Scene::empty() else { return };
    scene.ours(&filled(1000)).done();
    let script = r#"ulimit -f 1000; exec "$0" backup app.db copy.db"#;
    let mut limited = Command::new("sh");
    limited.args(["-c", script]).arg(command(&[]).get_program()).current_dir(scene.folder());
    finish(&mut limited).failed().says(&["the copy takes", "ulimit -f unlimited"]);
    assert_eq!(names(scene.folder()), ["app.db"]);
}

#[test]
fn a_name_that_a_restore_has_closed_and_a_link_are_told_with_what_to_do() {
    let Some(scene) = Scene::concurrent() else { return };
    let at = |name: &str| scene.folder().join(name);
    symlink(
        "copy.db/a-restore-was-cut-off,run-plait-restore-again/copy.db-before-restore-1",
        at("copy.db"),
    )
    .unwrap();
    backup(&scene, &["app.db", "copy.db"])
        .failed()
        .says(&["a restore of copy.db was cut off", "plait restore BACKUP copy.db"]);
    std::fs::write(at("real.db"), b"").unwrap();
    symlink("real.db", at("link.db")).unwrap();
    let real = at("real.db").canonicalize().unwrap().display().to_string();
    backup(&scene, &["app.db", "link.db", "--force"])
        .failed()
        .says(&["symbolic link to real.db", &real]);
}
