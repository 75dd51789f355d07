//! `plait doctor`: the verdict first, and what mends each thing.

mod plait;

use std::path::Path;
use std::process::{Child, Command, Stdio};

use plait::{Dist, Ran, Scene, command, finish, set_rights, unprivileged};

fn doctor(scene: &Scene) -> Ran {
    let dist = Dist::find().expect("the scene has found it");
    finish(dist.command(&["doctor", "app.db"]).current_dir(scene.folder()))
}

#[track_caller]
fn is_well(ran: Ran, verdict: &str) -> Ran {
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.out.lines().next(), Some(format!("app.db: {verdict}").as_str()), "{ran:?}");
    ran
}

#[track_caller]
fn is_ill(ran: Ran, verdict: &str) -> Ran {
    assert_eq!(ran.code, 1, "{ran:?}");
    let mut lines = ran.out.lines();
    assert_eq!(lines.next(), Some(format!("app.db: {verdict}").as_str()), "{ran:?}");
    assert!(
        lines.next().is_some_and(|line| line.contains("PROBLEM: ")),
        "the worst first: {ran:?}"
    );
    ran
}

#[test]
fn a_sound_database_is_left_alone_and_nothing_is_wrong_with_it() {
    let Some(scene) = Scene::concurrent() else { return };
    let before = scene.contents();
    let ran = is_well(doctor(&scene), "nothing is wrong");
    ran.says(&["concurrent, at rest", "file system", "library", "nobody is seen to have it open"]);
    assert_eq!(scene.contents(), before);
}

#[test]
fn what_killed_programs_left_is_a_note_and_a_lost_log_a_problem() {
    let Some(scene) = Scene::killed(3) else { return };
    let before = scene.contents();
    is_well(doctor(&scene), "nothing is wrong, 1 note").says(&["plait recover app.db"]);
    assert_eq!(scene.contents(), before);
    scene.remove("-plait");
    is_ill(doctor(&scene), "2 problems")
        .says(&["alone holds commits", "try: plait recover app.db"]);
    scene.remove("-plait-shm");
    is_ill(doctor(&scene), "1 problem")
        .says(&["log is missing", "try: plait restore BACKUP app.db"]);
}

#[test]
fn a_database_in_another_mode_is_told_how_to_come_into_it() {
    let Some(scene) = Scene::empty() else { return };
    scene.stock("PRAGMA journal_mode=wal; CREATE TABLE t(x)").done();
    is_well(doctor(&scene), "nothing is wrong, 1 note")
        .says(&["in journal mode wal", "try: plait enable app.db"]);
}

/// A program that has the database open, until it is dropped.
struct Reader(Child);

impl Reader {
    fn start(shell: &Path, scene: &Scene) -> Reader {
        Reader::begin(&mut Command::new(shell), scene)
    }

    fn begin(shell: &mut Command, scene: &Scene) -> Reader {
        let child =
            shell.arg("-batch").arg(&scene.path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn().expect("the shell can be started");
        let input = child.stdin.as_mut().expect("it is piped");
        std::io::Write::write_all(input, b"SELECT count(*) FROM t;\n").expect("it listens");
        let mut answer = [0; 1];
        let output = child.stdout.as_mut().expect("it is piped");
        std::io::Read::read_exact(output, &mut answer).expect("it speaks");
        Reader(child)
    }

    fn name(&self) -> String {
        format!("process {} (sqlite3)", self.0.id())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.kill().expect("a running child can be killed");
        self.0.wait().expect("a child can be waited for");
    }
}

#[test]
fn the_copy_of_sqlite_in_each_program_is_told() {
    let Some(scene) = Scene::concurrent() else { return };
    let dist = Dist::find().expect("the scene has found it");
    let ours = Reader::start(&dist.path("bin/sqlite3"), &scene);
    let ran = is_well(doctor(&scene), "nothing is wrong");
    ran.says(&[&format!("{} has it open by Plait, ", ours.name())]);
    drop(ours);
    let other = Reader::start(&dist.path("stock/bin/sqlite3"), &scene);
    let words = format!("{} has it open by another SQLite, ", other.name());
    is_ill(doctor(&scene), "1 problem").says(&[
        &words,
        "plait run -- PROGRAM",
        "plait disable app.db",
    ]);
    drop(other);
    // Under the name that the driver of Java has for it.
    let drivers = scene.folder().join("sqlite-3.53.4.0-0be1-libsqlitejdbc.so");
    std::fs::copy(dist.path("stock/lib/libsqlite3.so.0"), &drivers).unwrap();
    let java =
        Reader::begin(Command::new(dist.path("bin/sqlite3")).env("LD_PRELOAD", &drivers), &scene);
    is_ill(doctor(&scene), "1 problem").says(&[
        "-libsqlitejdbc.so: it cannot write beside others",
        "try: start Java with -Dorg.sqlite.lib.path=FOLDER",
        "plait disable app.db",
    ]);
    drop(java);
    std::fs::remove_file(drivers).unwrap();
    let by_hand = std::fs::File::open(&scene.path).unwrap();
    let mut tail = Command::new("sleep").arg("60").stdin(by_hand).spawn().unwrap();
    let words = format!("process {} (sleep) has it open, and no SQLite is seen in it", tail.id());
    is_well(doctor(&scene), "nothing is wrong, 1 note").says(&[&words, "plait backup app.db DEST"]);
    tail.kill().unwrap();
    tail.wait().unwrap();
    // In another mode any SQLite will do.
    scene.plait(&["disable"]).done();
    let other = Reader::start(&dist.path("stock/bin/sqlite3"), &scene);
    is_well(doctor(&scene), "nothing is wrong, 1 note").says(&[&other.name()]);
}

#[test]
fn what_commands_have_left_is_named_with_what_removes_it() {
    let Some(scene) = Scene::concurrent() else { return };
    for suffix in [
        ".plait-backup-abcdef",
        ".plait-restore-ghijkl",
        ".plait-restore-ghijkl-wal",
        ".plait-restore-ghijkl-shm",
        // What is left by `rm` of the file alone.
        ".plait-restore-mnopqr-wal",
        "-plait-given-up-1",
        "-before-restore-1",
        "-before-restore-1-wal",
    ] {
        std::fs::write(scene.beside(suffix), [7; 9000]).unwrap();
    }
    let ran = is_well(doctor(&scene), "nothing is wrong, 5 notes");
    let at = scene.path.canonicalize().unwrap().display().to_string();
    for left in [
        ".plait-backup-abcdef*",
        ".plait-restore-ghijkl*",
        ".plait-restore-mnopqr*",
        "-plait-given-up-1",
    ] {
        assert!(ran.out.contains(&format!("try: rm {at}{left}\n")), "{ran:?}");
    }
    assert!(!ran.out.contains("newest commits"), "{ran:?}");
    ran.says(&[&format!("try: rm {at}-before-restore-1 {at}-before-restore-1-wal"), "(24 KiB)"]);
}

#[test]
fn limits_names_and_rights_that_are_in_the_way_are_told() {
    let Some(scene) = Scene::concurrent() else { return };
    let plait = command(&[]).get_program().to_owned();
    let limited = |limit: &str| {
        let script = format!(r#"ulimit {limit}; exec "$0" doctor app.db"#);
        let mut shell = Command::new("sh");
        let dist = Dist::find().expect("the scene has found it");
        shell.args(["-c", &script]).arg(&plait).env("PLAIT_LIB", dist.path("lib"));
        finish(shell.current_dir(scene.folder()))
    };
    is_ill(limited("-f 1000"), "1 problem").says(&["ulimit -f", "a COMMIT fails"]);
    is_ill(limited("-n 20"), "1 problem").says(&["20 in programs", "ulimit -n"]);
    std::fs::hard_link(&scene.path, scene.folder().join("second.db")).unwrap();
    is_well(doctor(&scene), "nothing is wrong, 1 note")
        .says(&["2 names (hard links)", "use one name alone"]);
}

#[test]
fn a_file_beside_the_database_that_may_not_be_written_is_a_problem() {
    let Some(scene) = Scene::concurrent() else { return };
    let shm = scene.beside("-shm");
    std::fs::write(&shm, []).unwrap();
    set_rights(&shm, 0o444);
    set_rights(&scene.path, 0o666);
    set_rights(scene.folder(), 0o777);
    let dist = Dist::find().expect("the scene has found it");
    let mut doctor = dist.command(&["doctor", "app.db"]);
    if !unprivileged(&mut doctor) {
        return;
    }
    let ran = finish(doctor.current_dir(scene.folder()));
    let problem = format!("but not {} beside it", shm.display());
    is_ill(ran, "1 problem").says(&[&problem, "chmod --reference=app.db ", "-shm"]);
}

#[test]
fn a_file_that_was_taken_away_from_living_programs_is_a_problem_and_they_are_named() {
    for suffix in ["-plait", "-plait-shm", "-shm", "-wal"] {
        for is_replaced in [false, true] {
            let Some(scene) = Scene::concurrent() else { return };
            let mut shell = scene.shell();
            shell.run(".bail off");
            shell.run("INSERT INTO t VALUES(2, 20); SELECT count(*) FROM t;");
            let content = std::fs::read(scene.beside(suffix)).unwrap();
            scene.remove(suffix);
            if is_replaced {
                std::fs::write(scene.beside(suffix), content).unwrap();
            }
            let name = format!("app.db{suffix} was ");
            let person = format!("process {} (sqlite3)", shell.pid());
            let what = if is_replaced { "replaced while" } else { "removed or renamed while" };
            let before = scene.contents();
            let ran =
                doctor(&scene).says(&["PROBLEM: ", &name, what, &person, "close these programs"]);
            assert_eq!(ran.code, 1, "{ran:?}");
            assert_eq!(scene.contents(), before);
            let start = std::time::Instant::now();
            let ran = scene.plait(&["check"]).says(&["DAMAGE: ", &name, what, &person]);
            assert_eq!(ran.code, 1, "{ran:?}");
            assert!(start.elapsed().as_secs() < 3, "app.db{suffix}: it waited for nothing");
            shell.kill();
        }
    }
}

#[test]
fn programs_whose_wal_was_removed_lose_nothing_when_they_close() {
    let Some(scene) = Scene::concurrent() else { return };
    let mut shell = scene.shell();
    shell.run("INSERT INTO t VALUES(2, 20);");
    scene.remove("-wal");
    shell.run("INSERT INTO t VALUES(3, 30); CREATE TABLE more(x); INSERT INTO more VALUES(1);");
    is_ill(doctor(&scene), "1 problem")
        .says(&["are lost if these programs are killed", "let them close"]);
    shell.close();
    is_well(doctor(&scene), "nothing is wrong");
    let sql = "SELECT count(*) FROM t; SELECT count(*) FROM more";
    assert_eq!(scene.ours(sql).done().out, "3\n1\n");
}

#[test]
fn a_log_that_was_renamed_is_a_problem_and_so_is_a_session_that_has_stopped() {
    let Some(scene) = Scene::concurrent() else { return };
    let mut shell = scene.shell();
    shell.run(".bail off");
    shell.run("INSERT INTO t VALUES(2, 20);");
    std::fs::rename(scene.beside("-plait"), scene.folder().join("elsewhere")).unwrap();
    is_ill(doctor(&scene), "1 problem")
        .says(&["app.db-plait was removed or renamed", "do not restart"]);
    shell.run("INSERT INTO t VALUES(3, 30);");
    is_ill(doctor(&scene), "2 problems")
        .says(&["stopped since its log was removed", "every transaction fails"]);
    let ran = scene.plait(&["check"]).says(&["DAMAGE: ", "stopped since its log was removed"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    shell.close();
    is_well(doctor(&scene), "nothing is wrong");
    assert_eq!(scene.ours("SELECT count(*) FROM t").done().out, "3\n");
}

#[test]
fn versions_that_nobody_knows_are_a_problem() {
    use std::os::unix::fs::FileExt;
    for (bytes, words) in
        [([2, 4], "byte 19 of its header is 4"), ([4, 2], "nobody may write to it")]
    {
        for is_marked in [false, true] {
            let Some(scene) = Scene::concurrent() else { return };
            if !is_marked {
                scene.plait(&["disable"]).done();
            }
            let file = std::fs::File::options().write(true).open(&scene.path).unwrap();
            file.write_all_at(&bytes, 18).unwrap();
            drop(file);
            is_ill(doctor(&scene), "1 problem").says(&[words, "plait restore BACKUP app.db"]);
        }
    }
}

#[test]
fn what_another_name_has_left_is_a_note() {
    let Some(scene) = Scene::concurrent() else { return };
    std::fs::write(scene.folder().join("old.db-wal"), [7; 100]).unwrap();
    std::fs::write(scene.folder().join("old.db-plait-shm"), [7; 100]).unwrap();
    std::fs::write(scene.folder().join("empty.db-wal"), []).unwrap();
    is_well(doctor(&scene), "nothing is wrong, 1 note")
        .says(&["old.db-wal belongs to a database ", "old.db that is not there"]);
    std::fs::write(scene.folder().join("old.db"), []).unwrap();
    is_well(doctor(&scene), "nothing is wrong");
}
