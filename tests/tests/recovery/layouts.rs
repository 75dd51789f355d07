//! Killed processes with another layout of shared memory: nothing that was acknowledged is lost without a word.

use plait_tests::actor::Actor;
use plait_tests::place::Place;
use plait_tests::sqlite::CANTOPEN;
use plait_tests::subject::{Fixture, real_plait, refused};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

const COMMITS: i64 = 20;
const LEFT: &str = "has the newest commits under synchronous=NORMAL or OFF, which the log lacks";
/// Where the header has the number of its layout (docs/format.md).
const LAYOUT_AT: u64 = 8;

/// Two processes, one of which commits, and which are killed.
fn killed(fixture: &Fixture, synchronous: &str) {
    let start = |name| Actor::start(Place::Processes, name, &fixture.subject, &fixture.database());
    let (mut one, mut two) = (start("one"), start("two"));
    for actor in [&mut one, &mut two] {
        actor.ok(&format!("PRAGMA synchronous={synchronous}; UPDATE t SET n=n WHERE id=0"));
    }
    for _ in 0..COMMITS {
        one.ok("INSERT INTO t(n) VALUES(1)");
    }
    one.kill();
    two.kill();
}

/// Gives the shared memory another layout, and returns the one that it had.
fn relabel(memory: &Path, layout: u32) -> u32 {
    let file = OpenOptions::new().read(true).write(true).open(memory).expect("it was left");
    let mut before = [0; 4];
    file.read_exact_at(&mut before, LAYOUT_AT).expect("a header");
    file.write_all_at(&layout.to_ne_bytes(), LAYOUT_AT).expect("written");
    u32::from_ne_bytes(before)
}

fn fixture(test: &str) -> Option<Fixture> {
    Some(Fixture::new(real_plait(test)?, "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER)"))
}

// holds LEFT-1
#[test]
fn commits_that_memory_of_another_layout_has_alone_are_not_given_up() {
    for another in [1, u32::MAX] {
        let Some(fixture) = fixture("killed under NORMAL") else { return };
        killed(&fixture, "NORMAL");
        let memory = fixture.side_file("-plait-shm");
        let own = relabel(&memory, another);
        for _ in 0..2 {
            let opened = fixture.subject.open(&fixture.database());
            refused(opened.and_then(|c| c.integer("SELECT count(*) FROM t")), CANTOPEN, LEFT);
        }
        assert_eq!(relabel(&memory, own), another, "it is as it was");
        let connection = fixture.open();
        assert_eq!(connection.integer("SELECT count(*) FROM t"), Ok(COMMITS));
    }
}

#[test]
fn without_that_memory_the_log_has_what_was_written() {
    let Some(fixture) = fixture("memory that was given up") else { return };
    killed(&fixture, "NORMAL");
    std::fs::remove_file(fixture.side_file("-plait-shm")).expect("as the message says");
    let connection = fixture.open();
    let found = connection.integer("SELECT count(*) FROM t").expect("a number");
    assert!((0..=COMMITS).contains(&found), "{found}");
    assert_eq!(connection.text("PRAGMA integrity_check").as_deref(), Ok("ok"));
}

#[test]
fn what_is_on_disk_is_found_whatever_the_layout() {
    let Some(fixture) = fixture("killed under FULL") else { return };
    killed(&fixture, "FULL");
    relabel(&fixture.side_file("-plait-shm"), u32::MAX);
    let connection = fixture.open();
    assert_eq!(connection.integer("SELECT count(*) FROM t"), Ok(COMMITS));
}
