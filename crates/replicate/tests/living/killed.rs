//! A process is killed at each step of the engine's that has to do with a sidecar; the others go on.

use rustix::process::Signal;

use crate::processes::Process;
use crate::stage::Stage;

fn is_killed(process: crate::processes::Process) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
    process.ended().signal() == Some(9)
}

// holds HELD-4
#[test]
fn a_sidecar_that_dies_while_it_takes_the_hold_leaves_none() {
    let stage = Stage::new();
    stage.writer(1, Some(50), "FULL").ended();
    let keeper = crate::processes::open(&stage.database);
    keeper.execute("INSERT INTO t VALUES(3, 'a session that stays')").expect("a commit");
    let sidecar = stage.sidecar(&[]);
    stage.agrees();
    sidecar.kill();
    assert!(is_killed(stage.sidecar_killed_at("hold.taking")));
    stage.writer(2, Some(300), "NORMAL").ended();
    let sidecar = stage.sidecar(&[]);
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
}

// holds HELD-2
#[test]
fn a_writer_that_dies_while_it_breaks_the_hold_stops_nobody() {
    let stage = Stage::new();
    let sidecar = stage.sidecar(&["--max-lag", "4MiB"]);
    stage.writer(1, Some(100), "NORMAL").ended();
    stage.agrees();
    sidecar.signal(Signal::STOP);
    let mut died = false;
    for round in 0..20 {
        let writer = stage.writer_killed_at(2 + round, Some(300), "NORMAL", Some("hold.broken"));
        if is_killed(writer) {
            died = true;
            break;
        }
        stage.execute("PRAGMA wal_checkpoint");
    }
    assert!(died, "nobody has come to that step");
    stage.writer(90, Some(300), "NORMAL").ended();
    sidecar.signal(Signal::CONT);
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
}

/// A process in a role dies at each of these steps, between writers; the words are for the round.
fn dies_at_each(points: &[&str], role: &str, word: impl Fn(usize) -> Option<String>) {
    let stage = Stage::new();
    let sidecar = stage.sidecar(&[]);
    stage.agrees();
    for (round, point) in points.iter().enumerate() {
        let name = 1 + 2 * round as u64;
        stage.writer(name, Some(100), "NORMAL").ended();
        let more = word(round);
        let words: Vec<&str> = stage.database.to_str().into_iter().chain(more.as_deref()).collect();
        let author = crate::processes::Process::in_role(role, &words, Some(point));
        assert!(is_killed(author), "{point}");
        stage.writer(name + 1, Some(100), "NORMAL").ended();
        stage.agrees();
    }
    assert_eq!(sidecar.terminated(), 0);
}

// holds BOUND-1, BOUND-2
#[test]
fn a_merge_whose_author_dies_at_any_step_is_followed_or_bridged() {
    let points =
        ["merge.frozen", "merge.applied", "merge.committed", "merge.noted", "merge.settled"];
    dies_at_each(&points, "merger", |_| None);
}

// holds BOUND-2, SHIP-5
#[test]
fn an_exclusive_transaction_whose_author_dies_at_any_step_is_bridged() {
    let points =
        ["exclusive.begun", "exclusive.committed", "exclusive.switched", "exclusive.visible"];
    dies_at_each(&points, "schema", |round| Some(format!("u{round}")));
}

// holds SCRATCH-2
#[test]
fn a_copy_between_a_merge_and_its_settling_has_the_streams_place() {
    let stage = Stage::new();
    let keeper = crate::processes::open(&stage.database);
    keeper.query("SELECT count(*) FROM plait_status").expect("it is asked");
    keeper.execute("INSERT INTO t VALUES(3, 'a session that stays')").expect("a commit");
    stage.writer(1, Some(100), "NORMAL").ended();
    let merger = crate::processes::Process::in_role_stopped(
        "merger",
        &[stage.database.to_str().expect("UTF-8")],
        "merge.committed",
    );
    std::thread::sleep(std::time::Duration::from_millis(1500));
    // A writer may have to wait for the merger.
    let mut writers = vec![stage.writer(2, Some(100), "NORMAL")];
    std::thread::sleep(std::time::Duration::from_millis(500));
    let sidecar = stage.sidecar(&[]);
    // The base has more than the session knows of; the copy is made now, and named later.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    writers.push(stage.writer(3, Some(100), "NORMAL"));
    std::thread::sleep(std::time::Duration::from_millis(500));
    merger.signal(Signal::CONT);
    assert!(merger.ended().success());
    writers.into_iter().for_each(|writer| assert!(writer.ended().success()));
    stage.writer(4, Some(100), "NORMAL").ended();
    stage.agrees();
    assert_eq!(sidecar.terminated(), 0);
}

// holds SUMS-2, SHELF-1
#[test]
fn a_sidecar_that_dies_while_it_puts_its_sums_takes_a_snapshot_that_is_right() {
    for (point, is_whole) in [("shelf.written", true), ("shelf.renamed", false)] {
        let stage = Stage::new();
        stage.writer(1, Some(700), "FULL").ended();
        assert!(is_killed(stage.sidecar_killed_at(point)));
        stage.agrees();
        stage.execute("CREATE TABLE u(a)");
        let sidecar = stage.sidecar(&[]);
        stage.writer(2, Some(50), "FULL").ended();
        stage.agrees();
        assert_eq!(sidecar.terminated(), 0);
        let snapshots = crate::changes::snapshots(&stage);
        let second = snapshots.get(1).expect("behind a change of the schema");
        assert_eq!(second.is_whole, is_whole, "{point}");
    }
}

// holds PLACE-2
#[test]
fn a_start_removes_what_a_killed_follower_has_left_of_a_copy() {
    let (stage, sidecar) = crate::following::begun();
    stage.agrees();
    let replica = crate::following::replica(&stage);
    let dies = Process::follower(&stage.url, &replica, Some("replica.settled"));
    assert!(!dies.ended().success());
    let left = || {
        let entries = std::fs::read_dir(stage.folder.path()).expect("a folder").flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.contains(".plait-replica-")).collect::<Vec<_>>()
    };
    assert!(!left().is_empty());
    let others = "elsewhere.db.copied.plait-replica-ABCDEF01";
    std::fs::write(stage.folder.path().join(others), b"somebody's").expect("a file");
    assert_eq!(sidecar.terminated(), 0);
    // Nothing can be copied now.
    std::fs::rename(&stage.url, stage.folder.path().join("away")).expect("it goes");
    let follows = crate::following::follower(&stage);
    crate::following::is_told(&stage, "there is no folder ");
    assert_eq!(left(), [others]);
    assert_eq!(follows.terminated(), 0);
}
