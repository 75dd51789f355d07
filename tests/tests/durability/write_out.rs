//! What a merge and a checkpoint write is on its way to the disk long before they sync it, and they sync it all the same.

use plait_tests::actor::Actor;
use plait_tests::powercut::recording::{Operation, Recording};
use plait_tests::sqlite::Value;
use plait_tests::subject::{Fixture, Subject, real_plait};
use std::collections::BTreeMap;
use std::time::Duration;

/// A disk that does not do what it should.
const IOERR: i32 = 10;
/// So often is tried what takes two at the same time.
const ROUNDS: u32 = 30;

/// The system is asked after so much, and what is written at once may go beyond it.
const PORTION: usize = 256 << 10;
const AT_ONCE: usize = 128 << 10;
/// What is written, at least.
const CHANGED: usize = 3 << 20;

/// Of one file: bytes that nobody has asked the system to write out yet, the most that ever were, how often it was asked, and whether all that
/// was written is synced.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    waiting: usize,
    most: usize,
    all: usize,
    portions: usize,
    is_synced: bool,
}

fn written(operations: &[Operation]) -> BTreeMap<&str, Written> {
    let mut files: BTreeMap<&str, Written> = BTreeMap::new();
    for operation in operations {
        match operation {
            Operation::Write(name, _, data) => {
                let file = files.entry(name).or_default();
                file.waiting += data.len();
                file.all += data.len();
                file.most = file.most.max(file.waiting);
                file.is_synced = false;
            }
            Operation::WriteOut(name, _, len) | Operation::WaitOut(name, _, len) => {
                let file = files.entry(name).or_default();
                assert!(*len >= file.waiting as u64, "{name}: {len} of {} bytes", file.waiting);
                file.waiting = 0;
                file.portions += 1;
            }
            Operation::SyncEnded(name, _) => {
                let file = files.entry(name).or_default();
                file.waiting = 0;
                file.is_synced = true;
            }
            _ => {}
        }
    }
    files
}

/// A table whose rows are all in the base, and changed all over, in pages of this size.
fn changed(fixture: &Fixture, recording: &Recording, page_size: usize) -> Actor {
    let mut actor = recording.actor("actor", &fixture.subject, None);
    actor.open(&fixture.database()).expect("it opens");
    actor.ok(&format!("PRAGMA page_size={page_size}; PRAGMA journal_mode=concurrent"));
    actor.ok("CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB);
         WITH RECURSIVE i(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM i WHERE x<8000)
         INSERT INTO t SELECT x, randomblob(500) FROM i;
         PRAGMA wal_checkpoint(TRUNCATE)");
    change_all(&mut actor, "randomblob(500)");
    actor
}

/// A transaction of more would go to the base at once.
fn change_all(actor: &mut Actor, value: &str) {
    for first in (1..=8000).step_by(100) {
        let last = first + 99;
        actor.ok(&format!("UPDATE t SET v={value} WHERE id BETWEEN {first} AND {last}"));
    }
}

/// A value for all rows that is another each time.
fn value_of(round: u32) -> String {
    format!("CAST(printf('%0500d', {round}) AS BLOB)")
}

#[test]
fn what_a_merge_and_its_checkpoint_write_is_written_out_in_portions_and_synced() {
    let Some(subject) = real_plait("merges") else { return };
    for page_size in [4096, 16384] {
        let fixture = Fixture::empty(subject.clone());
        let recording = Recording::of(fixture.directory());
        let mut actor = changed(&fixture, &recording, page_size);
        let before = recording.operations().expect("it was written down").len();
        actor.ok("PRAGMA wal_checkpoint");
        let operations = recording.operations().expect("it was written down");
        let files = written(&operations[before..]);
        let name = fixture.database();
        let name = name.file_name().and_then(|name| name.to_str()).expect("a name");
        for name in [name.to_owned(), format!("{name}-wal")] {
            let file = files.get(name.as_str()).copied().unwrap_or_default();
            assert!(file.all >= CHANGED, "{page_size}: {name}: {file:?}");
            assert!(
                file.portions >= CHANGED / (PORTION + AT_ONCE),
                "{page_size}: {name}: {file:?}"
            );
            assert!(file.most < PORTION + AT_ONCE, "{page_size}: {name}: {file:?}");
            assert!(file.is_synced, "{page_size}: {name}: {file:?}");
        }
        actor.close().expect("closing works");
    }
}

/// The system would write all of shared memory at once.
#[test]
fn commits_that_wait_for_the_disk_and_no_others_write_out_what_memtables_take() {
    let Some(subject) = real_plait("commits") else { return };
    for (synchronous, wait) in [("FULL", true), ("NORMAL", false)] {
        let fixture = Fixture::empty(subject.clone());
        let recording = Recording::of(fixture.directory());
        let mut actor = changed(&fixture, &recording, 4096);
        actor.ok(&format!("PRAGMA synchronous={synchronous}"));
        recording.forget().expect("it is emptied");
        change_all(&mut actor, &value_of(1));
        let operations = recording.operations().expect("it was written down");
        let portions = operations.iter().filter_map(|operation| match operation {
            Operation::WriteOut(name, at, len) if name.ends_with("-plait-shm") => Some((*at, *len)),
            _ => None,
        });
        let portions: BTreeMap<_, _> = portions.collect();
        let bytes: u64 = portions.values().sum();
        assert!(portions.values().all(|len| len.is_multiple_of(PORTION as u64)), "{portions:?}");
        match wait {
            true => assert!(bytes >= CHANGED as u64, "{portions:?}"),
            false => assert!(portions.is_empty(), "{portions:?}"),
        }
        actor.close().expect("closing works");
    }
}

/// Its users did not ask for it.
#[test]
fn a_plain_wal_is_written_as_sqlite_writes_it() {
    let Some(subject) = real_plait("merges") else { return };
    let fixture = Fixture::empty(subject);
    let recording = Recording::of(fixture.directory());
    let mut actor = recording.actor("actor", &fixture.subject, None);
    actor.open(&fixture.database()).expect("it opens");
    actor.ok("PRAGMA journal_mode=wal; CREATE TABLE t(v); INSERT INTO t VALUES(zeroblob(4000000)); PRAGMA wal_checkpoint");
    let operations = recording.operations().expect("it was written down");
    assert!(operations.iter().any(|operation| matches!(operation, Operation::Write(..))));
    assert!(!operations.iter().any(|operation| matches!(operation, Operation::WriteOut(..))));
    actor.close().expect("closing works");
}

/// So many portions of the database file and of the WAL were waited for.
fn waited(operations: &[Operation]) -> (usize, usize) {
    let names = operations.iter().filter_map(|operation| match operation {
        Operation::WaitOut(name, ..) => Some(name),
        _ => None,
    });
    let (of_wal, of_file): (Vec<_>, Vec<_>) = names.partition(|name| name.ends_with("-wal"));
    (of_file.len(), of_wal.len())
}

/// Another process whose commits follow each other, each with a sync, until its table is gone.
fn syncing(fixture: &Fixture) -> Actor {
    let mut other = Actor::in_process_with("other", &fixture.subject, &[]);
    other.open(&fixture.database()).expect("it opens");
    other.ok("CREATE TABLE u(v)");
    other.send(&"INSERT INTO u VALUES(1);".repeat(200_000));
    other
}

#[test]
fn beside_commits_that_sync_a_checkpoint_waits_for_its_portions() {
    let Some(subject) = real_plait("merges") else { return };
    let fixture = Fixture::empty(subject);
    let recording = Recording::of(fixture.directory());
    let mut actor = changed(&fixture, &recording, 4096);
    actor.busy_timeout(Duration::from_secs(20));
    actor.ok("PRAGMA wal_checkpoint(FULL)");
    let alone = recording.operations().expect("it was written down");
    assert!(waited(&alone).0 <= 1, "its own commits were synced before");
    let mut other = syncing(&fixture);
    // The other one is served when the system likes.
    let (_, of_wal) = (0..ROUNDS)
        .map(|round| {
            change_all(&mut actor, &value_of(round));
            recording.forget().expect("it is emptied");
            actor.ok("PRAGMA wal_checkpoint(FULL)");
            waited(&recording.operations().expect("it was written down"))
        })
        .find(|&(of_file, _)| of_file > 3)
        .expect("more are waited for than the first");
    assert_eq!(of_wal, 0, "those of the WAL lie behind each other");
    actor.ok("DROP TABLE u");
    assert!(other.finish().error.is_some(), "it was at it");
    other.close().expect("closing works");
    actor.close().expect("closing works");
}

/// The system tells of a page that it could not write once: whoever waited has been told, and no later sync.
#[test]
fn what_is_told_to_who_waits_is_a_sync_that_failed() {
    let Some(subject) = real_plait("merges") else { return };
    let fixture = Fixture::empty(subject);
    let recording = Recording::of(fixture.directory());
    let fail = fixture.directory().with_extension("fail");
    changed(&fixture, &recording, 4096).close().expect("closing works");
    let mut actor = recording.actor_without_waits("actor", &fixture.subject, &fail);
    actor.open(&fixture.database()).expect("it opens");
    actor.busy_timeout(Duration::from_secs(20));
    change_all(&mut actor, "zeroblob(500)");
    std::fs::write(&fail, "").expect("a file");
    recording.forget().expect("it is emptied");
    // Its own commits have synced since the last checkpoint.
    let failed = actor.fails("PRAGMA wal_checkpoint(FULL)", IOERR);
    let operations = recording.operations().expect("it was written down");
    assert!(waited(&operations).0 > 0, "that was why: {failed:?}");
    let is_of_file = |name: &str| name.ends_with(".db");
    let syncs = operations
        .iter()
        .filter(|operation| matches!(operation, Operation::SyncEnded(name, _) if is_of_file(name)));
    assert_eq!(syncs.count(), 0, "and syncs no more");
    std::fs::remove_file(&fail).expect("a file");
    let brought = actor.ok("PRAGMA wal_checkpoint(TRUNCATE)");
    assert_eq!(brought[0][0], Value::Integer(0), "all is written anew");
    actor.close().expect("closing works");
    let stock = Subject::stock().open(&fixture.database()).expect("it opens");
    let written = stock.integer("SELECT count(*) FROM t WHERE v=zeroblob(500)");
    assert_eq!(written.expect("it reads"), 8000);
    assert_eq!(stock.text("PRAGMA integrity_check").expect("it reads"), "ok");
}
