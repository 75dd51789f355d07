//! Disks that are full, and files that cannot be read: real ones, where the machine lets a test make
//! them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use plait_client::Value;
use plait_tests::crash::disk::SmallDisk;

use crate::processes::{Process, open};
use crate::stage::Stage;

const FILL: &str = "INSERT INTO t WITH RECURSIVE n(i) AS
    (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
    SELECT i + 900000000, hex(randomblob(500)) FROM n";

/// What is told of a snapshot that is waited for, until more is known.
const WAITING: &str = "the newest commits cannot be restored before a snapshot is complete";

/// What is in the way of a sidecar, once there is something.
pub fn trouble(stage: &Stage) -> String {
    let db = open(&stage.database);
    db.query("SELECT count(*) FROM t").expect("it joins");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        let sql = "SELECT value FROM plait_status WHERE name = 'replication_error'";
        let rows = db.query(sql).unwrap_or_default();
        match rows.first().and_then(|row| row.first()) {
            Some(Value::Text(said)) if !said.is_empty() && said != WAITING.as_bytes() => {
                return String::from_utf8_lossy(said).into_owned();
            }
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
    panic!("nothing is in the way");
}

#[test]
fn a_store_without_space_costs_a_lag_and_no_commit() {
    let Some(disk) = SmallDisk::mount(40) else { return };
    let stage = Stage { url: disk.path().join("replica"), ..Stage::new() };
    stage.execute(FILL);
    let sidecar = stage.sidecar(&[]);
    stage.agrees();
    disk.fill_but(0);
    // Records, and the parts of a snapshot.
    assert!(stage.writer(1, Some(300), "FULL").ended().success());
    stage.execute("CREATE TABLE u(a)");
    assert!(stage.writer(2, Some(50), "FULL").ended().success());
    let said = trouble(&stage);
    assert!(said.contains("no space left: free some"), "{said}");
    assert!(said.contains(&*stage.url.to_string_lossy()) && !said.contains("/proc/"), "{said}");
    disk.empty();
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
}

/// Follows to a database until it is told to end, a moment later; returns its code and what it has said.
fn follows(stage: &Stage, to: &Path, user: Option<u32>) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plait-replicate"));
    command.arg("follow").arg(&stage.url).arg(to).args(["--interval", "20ms"]);
    if let Some(user) = user {
        std::os::unix::process::CommandExt::uid(&mut command, user);
    }
    let said = stage.folder.path().join("said");
    let log = std::fs::File::create(&said).expect("a file");
    let mut child = command.stdout(Stdio::null()).stderr(log).spawn().expect("a process");
    let begun = Instant::now();
    let text = || std::fs::read_to_string(&said).expect("it is read");
    while text().is_empty() && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_child(&child);
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    (child.wait().expect("a status").code(), text())
}

#[test]
fn a_follower_names_the_disk_that_is_full() {
    let Some(disk) = SmallDisk::mount(40) else { return };
    let stage = Stage::new();
    stage.execute(FILL);
    let sidecar = stage.sidecar(&[]);
    stage.agrees();
    let to = disk.path().join("replica.db");
    let length = std::fs::metadata(&stage.database).expect("a file").len();
    disk.fill_but(length / 2);
    let (code, said) = follows(&stage, &to, None);
    assert_eq!(code, Some(0), "{said}");
    let folder = format!("(a copy is made in {};", disk.path().display());
    assert!(said.contains("no space left: free some") && said.contains(&folder), "{said}");
    disk.empty();
    for mark in ["replica.db-plait-follows", "replica.db-plait-follows.new"] {
        std::fs::remove_file(disk.path().join(mark)).expect("it is there");
    }
    disk.fill_but(0);
    let (code, said) = follows(&stage, &to, None);
    assert_eq!(code, Some(1), "a new start may find room: {said}");
    let mark = format!("cannot write its mark {}-plait-follows: ", to.display());
    assert!(said.contains(&mark) && said.contains("free some space on that disk"), "{said}");
    disk.empty();
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn a_follower_whose_disk_was_full_goes_on_without_the_room_for_a_copy() {
    let Some(disk) = SmallDisk::mount(80) else { return };
    let stage = Stage::new();
    let sidecar = stage.sidecar(&[]);
    // More than what the log of the replica needs for a few rows.
    stage.execute(&FILL.replace("3000", "15000"));
    stage.agrees();
    let to = disk.path().join("replica.db");
    let follows = Process::follower(&stage.url, &to, None);
    let has = |rows: i64| {
        let begun = Instant::now();
        let asks = || open(&to).integer("SELECT count(*) FROM t").ok();
        while !to.exists() || asks() != Some(rows) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{rows}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let rows = || stage.rows().len() as i64;
    has(rows());
    let mark = |of: &Path| plait_replicate::following::mark::Mark::read(of).ok().flatten();
    let length = std::fs::metadata(&to).expect("a file").len();
    // Less than a copy needs, and enough for one, but not to put it as well.
    for (id, room) in [(5, length / 2), (6, length * 13 / 10)] {
        disk.fill_but(0);
        // More than what the log has room for already, and much less than a copy needs.
        stage.execute(&format!("INSERT INTO t VALUES({id}, hex(randomblob(100000)))"));
        stage.agrees();
        let begun = Instant::now();
        // Some tries, behind which a copy would be made.
        while begun.elapsed() < Duration::from_secs(8) {
            assert!(mark(&to).is_some_and(|mark| mark.seeding.is_none()), "no copy is put");
            std::thread::sleep(Duration::from_millis(50));
        }
        // The mark has its room.
        let told = mark(&to).and_then(|mark| mark.trouble).map_or(String::new(), |told| told.what);
        assert!(told.contains("disk is full") || told.contains("no space"), "{told}");
        disk.fill_but(room);
        has(rows());
        assert!(mark(&to).is_some_and(|mark| mark.seeding.is_none()), "without a copy");
        disk.empty();
    }
    assert_eq!(follows.terminated(), 0);
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn a_mark_that_may_not_be_read_or_written_is_named() {
    use std::os::unix::fs::PermissionsExt as _;
    const NOBODY: u32 = 65534;
    let mut runs = Command::new(env!("CARGO_BIN_EXE_plait-replicate"));
    std::os::unix::process::CommandExt::uid(runs.arg("--version").stdout(Stdio::null()), NOBODY);
    if runs.status().is_err() {
        eprintln!("skipped: this cannot run the program as another user");
        return;
    }
    let stage = Stage::new();
    let sidecar = stage.sidecar(&[]);
    stage.agrees();
    let rights = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("rights");
    };
    let to = stage.folder.path().join("elsewhere.db");
    let [mark, lock] = ["-plait-follows", "-plait-follows.lock"]
        .map(|end| PathBuf::from(format!("{}{end}", to.display())));
    rights(stage.folder.path(), 0o755);
    std::fs::write(&lock, b"").expect("a file");
    rights(&lock, 0o666);
    let (code, said) = follows(&stage, &to, Some(NOBODY));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!("cannot write its mark {}: ", mark.display())), "{said}");
    assert!(said.contains("give the file and its folder to the user"), "{said}");
    std::fs::write(&mark, b"").expect("a file");
    rights(&mark, 0o000);
    let (code, said) = follows(&stage, &to, Some(NOBODY));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains(&format!("cannot read {}: ", mark.display())), "{said}");
    assert_eq!(sidecar.terminated(), 0);
}

// holds SCRATCH-3
#[test]
fn a_snapshot_waits_for_room_beside_commits() {
    let Some(disk) = SmallDisk::mount(300) else { return };
    let stage = Stage::new();
    stage.execute(FILL);
    disk.fill_but(100 << 20);
    let scratch = disk.path().to_str().expect("UTF-8");
    let sidecar = stage.sidecar(&["--scratch", scratch]);
    let said = trouble(&stage);
    assert!(said.contains("bytes left, and a copy of the database takes"), "{said}");
    assert!(stage.writer(1, Some(100), "FULL").ended().success());
    assert!(stage.restored().is_err(), "there is no snapshot yet");
    disk.empty();
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn a_restore_to_a_full_disk_leaves_nothing_and_says_so() {
    let Some(disk) = SmallDisk::mount(40) else { return };
    let stage = Stage::new();
    stage.execute(FILL);
    let sidecar = stage.sidecar(&[]);
    stage.writer(1, Some(500), "FULL").ended();
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
    let to = disk.path().join("new.db");
    let restore = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plait-replicate"));
        command.arg("restore").arg(&stage.url).arg("-o").arg(&to).output().expect("it runs")
    };
    let names = || {
        let entries = std::fs::read_dir(disk.path()).expect("a folder").flatten();
        entries.filter(|entry| entry.file_name() != "ballast").count()
    };
    let length = std::fs::metadata(&stage.database).expect("a file").len();
    // In the midst of the snapshot, at its end, in a merge.
    for free in [0, 64 << 10, length / 2, length - 4096, length + (16 << 10)] {
        disk.fill_but(free);
        let output = restore();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{free}: {said}");
        assert!(said.contains("no space left"), "{free}: {said}");
        assert_eq!(names(), 0, "{free}");
        disk.empty();
    }
    assert!(restore().status.success());
    let rows = crate::model::rows_of(&to);
    assert!(rows == stage.rows(), "other rows");
}

/// Compiles what lets calls fail, or wait; `None` without a compiler.
fn preloaded(folder: &Path, name: &str) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/living/{name}.c"));
    let library = folder.join(format!("{name}.so"));
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl");
    let is_made = compiler.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    if !is_made {
        eprintln!("skipped: no compiler for what lets calls fail");
    }
    is_made.then_some(library)
}

#[test]
fn reads_that_fail_cost_time_or_a_new_start_and_nothing_that_was_committed() {
    let stage = Stage::new();
    let Some(library) = preloaded(stage.folder.path(), "unreadable") else { return };
    stage.execute(FILL);
    let keeper = open(&stage.database);
    keeper.query("SELECT count(*) FROM plait_status").expect("it is asked");
    keeper.execute("INSERT INTO t VALUES(3, 'a session that stays')").expect("a commit");
    let mut name = 0;
    // The log, the base and its WAL, and the copy of it, which has no name.
    for of in ["app.db-plait", "app.db", "(deleted)"] {
        for from in [1, 2, 9] {
            name += 1;
            let log = stage.folder.path().join("said");
            let said = std::fs::File::create(&log).expect("a file");
            let mut command = Command::new(env!("CARGO_BIN_EXE_plait-replicate"));
            command.env("LD_PRELOAD", &library).env("UNREADABLE", of);
            command.env("UNREADABLE_FROM", from.to_string()).env("UNREADABLE_COUNT", "2");
            command.arg("run").arg(&stage.url).arg(&stage.database).args(["--interval", "50ms"]);
            command.stdout(Stdio::null()).stderr(said);
            let mut sidecar = command.spawn().expect("a process");
            stage.writer(name, Some(60), "FULL").ended();
            keeper.execute(&format!("CREATE TABLE u{name}(a)")).expect("a table");
            stage.writer(100 + name, Some(60), "FULL").ended();
            std::thread::sleep(Duration::from_millis(300));
            let text = || std::fs::read_to_string(&log).expect("what it said");
            let has_failed = || text().contains("a read has failed");
            let begun = Instant::now();
            while from <= 2 && !has_failed() && begun.elapsed() < Duration::from_secs(30) {
                std::thread::sleep(Duration::from_millis(20));
            }
            // It may have ended, for a new start.
            let _ = sidecar.kill();
            let _ = sidecar.wait();
            assert!(from > 2 || has_failed(), "{of} {from}: {}", text());
            let sound: Process = stage.sidecar(&[]);
            // It has shipped something when it is told to end.
            stage.execute(&format!("INSERT INTO t VALUES({}, 'sound')", 2_000_000_000 + name));
            stage.agrees();
            assert_eq!(sound.terminated(), 0);
        }
    }
}

#[test]
fn what_begins_at_a_place_that_does_not_answer_ends_when_it_is_told() {
    let stage = Stage::new();
    let Some(library) = preloaded(stage.folder.path(), "silent") else { return };
    let place = stage.folder.path().join("dead-mount");
    for (role, code) in [("run", 1), ("follow", 0)] {
        let log = stage.folder.path().join("said");
        let said = std::fs::File::create(&log).expect("a file");
        let text = || std::fs::read_to_string(&log).expect("it is read");
        let database = match role {
            "run" => stage.database.clone(),
            _ => stage.folder.path().join("replica.db"),
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_plait-replicate"));
        command.env("LD_PRELOAD", &library).env("SILENT", "dead-mount");
        command.arg(role).arg(&place).arg(&database).stdout(Stdio::null()).stderr(said);
        let process = Process::of(command.spawn().expect("a process"));
        let begun = Instant::now();
        while !text().contains("it is waited for") {
            assert!(begun.elapsed() < Duration::from_secs(30), "{role}: {}", text());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(text().contains("a call does not answer\n"), "{}", text());
        assert_eq!(process.terminated(), code, "{role}: {}", text());
    }
}
