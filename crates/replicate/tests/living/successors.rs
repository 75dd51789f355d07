//! What takes the place of a primary, and what is said of it.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::following::{PATIENCE, nap, says};
use crate::processes::{Process, open};
use crate::stage::Stage;

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_plait-replicate"))
}

#[test]
fn what_a_restore_says_last_continues_the_chain() {
    let stage = Stage::new();
    let stage = Stage { url: stage.folder.path().join("a place"), ..stage };
    stage.execute("INSERT INTO t VALUES(1, 'of the lost one')");
    let sidecar = stage.sidecar(&[]);
    let before = stage.agrees().record;
    sidecar.kill();
    let new = stage.folder.path().join("new one.db");
    let made = program().arg("restore").arg(&stage.url).arg("-o").arg(&new).output();
    let said = String::from_utf8(made.expect("it runs").stdout).expect("UTF-8");
    let last = said.lines().last().expect("lines");
    let (_, command) = last.split_once("start once: plait replicate ").expect("a command");
    let words = shlex::split(command).expect("words of a shell");
    let sidecar = program().arg("run").args(&words).stdout(Stdio::null()).spawn().expect("it runs");
    let sidecar = Process::of(sidecar);
    let stage = Stage { database: new, ..stage };
    stage.execute("INSERT INTO t VALUES(2, 'of the new one')");
    assert!(stage.agrees().record > before, "it goes on in the same chain");
    assert_eq!(sidecar.terminated(), 0);
}

#[test]
fn a_database_that_was_made_anew_with_all_its_files_is_said_to_be_another() {
    let stage = Stage::new();
    let said = stage.folder.path().join("said");
    let log = std::fs::File::create(&said).expect("a file");
    let mut command = program();
    command.arg("run").arg(&stage.url).arg(&stage.database).args(["--interval", "20ms"]);
    let mut sidecar = command.stdout(Stdio::null()).stderr(log).spawn().expect("it runs");
    stage.execute("INSERT INTO t VALUES(1, 'first')");
    stage.agrees();
    // Between two looks of the sidecar's.
    let pid = rustix::process::Pid::from_child(&sidecar);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it is there");
    for end in ["", "-wal", "-shm", "-plait", "-plait-shm"] {
        let _ = std::fs::remove_file(format!("{}{end}", stage.database.display()));
    }
    let anew = Stage::in_folder(stage.folder);
    let kept = open(&anew.database);
    kept.execute("INSERT INTO t VALUES(2, 'another')").expect("it commits");
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("it is there");
    let begun = Instant::now();
    let status = loop {
        match sidecar.try_wait().expect("a status") {
            Some(status) => break status,
            None => nap(20),
        }
        assert!(begun.elapsed() < PATIENCE, "it does not end");
    };
    let said = std::fs::read_to_string(&said).expect("it is read");
    assert_eq!((status.code(), status.signal()), (Some(1), None), "{said}");
    for part in
        ["is another file than the one that was shipped", "start once with --take-over", "stays"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("--accept-base"), "{said}");
    drop(kept);
    // The next start judges it, where the file system tells when a file was made.
    if std::fs::metadata(&anew.database).is_ok_and(|there| there.created().is_ok()) {
        let said = says(&[Path::new("run"), &anew.url, &anew.database], 2);
        assert!(said.contains("it is another database"), "{said}");
    }
    // As the words have it.
    let taker = anew.sidecar(&["--take-over"]);
    anew.agrees();
    assert_eq!(taker.terminated(), 0);
}

#[test]
fn files_that_a_replaced_database_has_left_are_told_by_the_start_that_takes_over() {
    let stage = Stage::new();
    let sidecar = stage.sidecar(&[]);
    stage.agrees();
    // The log alone has it: the snapshot is there.
    stage.execute("INSERT INTO t VALUES(1, 'first')");
    stage.agrees();
    let other = Stage::new();
    std::fs::copy(&other.database, stage.folder.path().join("other.db")).expect("a copy");
    std::fs::rename(stage.folder.path().join("other.db"), &stage.database).expect("it replaces");
    assert_eq!(sidecar.ended().code(), Some(1));
    let start = [Path::new("run"), &stage.url, &stage.database, Path::new("--take-over")];
    let said = says(&start, 1);
    assert!(said.contains("plait recover --accept-base") && said.contains("former"), "{said}");
    assert!(said.contains("close every program"), "{said}");
}
