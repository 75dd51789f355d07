//! What a merge and a checkpoint write is on its way to the disk long before they sync it, and they sync it all the same.

use plait_tests::actor::Actor;
use plait_tests::powercut::recording::{Operation, Recording};
use plait_tests::subject::{Fixture, real_plait};
use std::collections::BTreeMap;

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
            Operation::WriteOut(name, _, len) => {
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
    // A transaction of more would go to the base at once.
    for first in (0..8000).step_by(100) {
        let rows = first..first + 100;
        actor.ok(&format!(
            "UPDATE t SET v=randomblob(500) WHERE id BETWEEN {} AND {}",
            rows.start, rows.end
        ));
    }
    actor
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
