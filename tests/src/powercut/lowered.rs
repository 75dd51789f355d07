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
//! | - | - | and one before all close |

use super::explore::Explorer;
use super::workload::{Recorded, begin, commit};
use crate::subject::Subject;
use anyhow::ensure;
use std::path::Path;

const TRUNCATE: &str = "PRAGMA wal_checkpoint(TRUNCATE)";

/// Makes the database, runs the commits and reads what was recorded.
pub fn record(subject: &Subject, scratch: &Path) -> anyhow::Result<Recorded> {
    let folder = scratch.join("lowered");
    let database = folder.join("app.db");
    let (before, recording) = begin(subject, &folder)?;
    recording.acknowledge(1)?;
    let [mut a, mut b] = ["a", "b"].map(|name| recording.actor(name, subject, None));
    for actor in [&mut a, &mut b] {
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
    for mut actor in [a, b] {
        actor.close()?;
    }
    recording.acknowledge(7)?;
    let operations = recording.operations()?;
    let group_synced = operations.len();
    Ok(Recorded { before, operations, group_synced })
}

impl<'a> Explorer<'a> {
    /// Of this workload.
    pub fn of_lowered_fences(subject: &'a Subject, scratch: &'a Path) -> anyhow::Result<Self> {
        Ok(Self::new_of(subject, scratch, record(subject, scratch)?))
    }
}
