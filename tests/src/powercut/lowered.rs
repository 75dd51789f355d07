//! A workload of checkpoints that empty the WAL, behind which the file has no fence until the next commit.
//!
//! | commit | level | |
//! |---|---|---|
//! | 2, 3 | FULL, of two processes | the first of the session, and one behind it |
//! | - | - | a checkpoint that empties the WAL |
//! | 4 | FULL | raises the fence again |
//! | - | - | two of them |
//! | 5 | FULL, exclusive | likewise |
//! | - | - | one more |
//! | 6, 7 | NORMAL, then FULL | likewise, and one behind it |
//! | - | - | and one before the end |
//!
//! At the end all close, last a process that has only read; or all are killed, and one comes that only reads.

use super::explore::Explorer;
use super::workload::{Recorded, begin, commit};
use crate::subject::Subject;
use anyhow::ensure;
use std::path::Path;

const TRUNCATE: &str = "PRAGMA wal_checkpoint(TRUNCATE)";

/// How the session ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// All close.
    Closed,
    /// All are killed, and another process comes and closes.
    Killed,
}

/// Makes the database, runs the commits and reads what was recorded.
pub fn record(subject: &Subject, scratch: &Path, end: End) -> anyhow::Result<Recorded> {
    let folder = scratch.join("lowered");
    let database = folder.join("app.db");
    let (before, recording) = begin(subject, &folder)?;
    recording.acknowledge(1)?;
    let [mut a, mut b, mut reader] =
        ["a", "b", "reader"].map(|name| recording.actor(name, subject, None));
    for actor in [&mut a, &mut b, &mut reader] {
        actor.open(&database)?;
        actor.ok("SELECT count(*) FROM t");
    }
    let is_at_rest = || std::fs::read(&database).map(|bytes| bytes[18..20] == [2, 2]);
    a.ok(&commit(2, 0));
    b.ok(&commit(3, 0));
    recording.acknowledge(3)?;
    a.ok(TRUNCATE);
    ensure!(is_at_rest()?, "the fence is still up behind 3");
    b.ok(&commit(4, 0));
    recording.acknowledge(4)?;
    ensure!(!is_at_rest()?, "the fence is down behind 4");
    a.ok(TRUNCATE);
    b.ok(TRUNCATE);
    a.ok(&commit(5, 0).replace("COMMIT", "CREATE TABLE x(y); COMMIT"));
    recording.acknowledge(5)?;
    b.ok(TRUNCATE);
    ensure!(is_at_rest()?, "the fence is still up behind 5");
    a.ok("PRAGMA synchronous=NORMAL");
    a.ok(&commit(6, 0));
    b.ok(&commit(7, 0));
    recording.acknowledge(7)?;
    b.ok(TRUNCATE);
    let all = [a, b, reader];
    if end == End::Killed {
        for actor in all {
            actor.kill();
        }
        let mut heir = recording.actor("heir", subject, None);
        heir.open(&database)?;
        heir.ok("SELECT count(*) FROM t");
        heir.close()?;
    } else {
        for mut actor in all {
            actor.close()?;
        }
    }
    ensure!(!folder.join("app.db-plait").exists(), "the log is still there");
    recording.acknowledge(7)?;
    let operations = recording.operations()?;
    let group_synced = operations.len();
    Ok(Recorded { before, operations, group_synced })
}

impl<'a> Explorer<'a> {
    /// Of this workload.
    pub fn of_lowered_fences(
        subject: &'a Subject,
        scratch: &'a Path,
        end: End,
    ) -> anyhow::Result<Self> {
        Ok(Self::new_of(subject, scratch, record(subject, scratch, end)?))
    }
}
