//! What is recorded before the first power cut.
//!
//! Commit `n` inserts row `n` and writes `n` into row 1, so that a prefix of the commits can be told from anything else.
//!
//! | commit | level | |
//! |---|---|---|
//! | 2 | FULL | the first of the session: it makes the log and the fence |
//! | 3 | NORMAL | |
//! | 4 | FULL | its sync is held until all others have been made |
//! | 5 | NORMAL | the last of its generation, 4 KB long |
//! | 6 | NORMAL | of the next generation, which a waiting checkpoint has begun |
//! | 7 | NORMAL | after the checkpoint |
//!
//! 5 and 6 are written by one group, which spans both generations. Then everybody closes.

use super::disk::{Disk, Image};
use super::recording::{Operation, Recording, await_file};
use crate::actor::Actor;
use crate::sqlite::Connection;
use crate::subject::Subject;
use crate::value::Value;
use anyhow::{Context as _, bail, ensure};
use std::path::Path;
use std::time::Duration;

/// The table, its index and commit 1.
pub(super) const SCHEMA: &str =
    "CREATE TABLE t(id INTEGER PRIMARY KEY, v INTEGER, pad TEXT); CREATE INDEX t_v ON t(v);
    INSERT INTO t VALUES(1, 1, '')";
/// The last commit.
const COMMITS: i64 = 7;
/// How often the group is tried for: it needs two processes to come in an order.
const ATTEMPTS: u32 = 20;
/// Longest time that a commit under NORMAL may take.
const PROMPT: Duration = Duration::from_millis(400);
/// Time in which a checkpoint begins a generation.
const FREEZE: Duration = Duration::from_millis(100);

/// Commit `n`, `pad` bytes longer than it has to be.
pub(super) fn commit(n: i64, pad: usize) -> String {
    format!(
        "BEGIN IMMEDIATE; INSERT INTO t VALUES({n}, {n}, printf('%.{pad}c','p')); UPDATE t SET v={n} WHERE id=1; COMMIT"
    )
}

/// What was recorded, and the files before it.
pub struct Recorded {
    /// The database at rest, with commit 1.
    pub before: Image,
    /// The operations.
    pub operations: Vec<Operation>,
    /// Number of the operation that ends the sync of the group over two generations.
    pub group_synced: usize,
}

/// A database at rest in a new folder, with commit 1, and who writes down what is done to it.
pub(super) fn begin(subject: &Subject, folder: &Path) -> anyhow::Result<(Image, Recording)> {
    std::fs::create_dir(folder)?;
    let connection: Connection = subject.create(&folder.join("app.db"))?;
    connection.execute(SCHEMA)?;
    connection.close()?;
    Ok((Image::of(folder)?, Recording::of(folder)))
}

/// Makes the database, runs the commits and reads what was recorded.
pub fn record(subject: &Subject, scratch: &Path) -> anyhow::Result<Recorded> {
    for attempt in 0..ATTEMPTS {
        let folder = scratch.join(format!("workload-{attempt}"));
        let (before, recording) = begin(subject, &folder)?;
        if !run(subject, &recording, &folder, &|_| {})? {
            continue;
        }
        let operations = recording.operations()?;
        if let Some(group_synced) = find_group(&before, &operations)? {
            return Ok(Recorded { before, operations, group_synced });
        }
    }
    bail!("no group over two generations came about in {ATTEMPTS} attempts")
}

/// False if it took too long for what it is to show. `tell`: how many commits are acknowledged, for who records something else.
pub(super) fn run(
    subject: &Subject,
    recording: &Recording,
    folder: &Path,
    tell: &dyn Fn(i64),
) -> anyhow::Result<bool> {
    let (database, hold) = (folder.join("app.db"), folder.with_extension("hold"));
    let acknowledge = |commits| {
        tell(commits);
        recording.acknowledge(commits)
    };
    acknowledge(1)?;
    let begin = |name: &str, hold: Option<&Path>| -> anyhow::Result<Actor> {
        let mut actor = recording.actor(name, subject, hold);
        actor.open(&database)?;
        actor.ok("SELECT count(*) FROM t");
        Ok(actor)
    };
    let mut full = begin("full", Some(&hold))?;
    let mut normal = begin("normal", None)?;
    let mut third = begin("third", None)?;
    full.ok(&commit(2, 0));
    acknowledge(2)?;
    normal.ok("PRAGMA synchronous=NORMAL");
    normal.ok(&commit(3, 0));
    std::fs::write(&hold, "")?;
    full.send(&commit(4, 0));
    await_file(&hold.with_extension("hold.inside"))?;
    normal.send(&commit(5, 4000));
    let mut answered = normal.finish_within(PROMPT).is_some();
    // Once a second a commit under NORMAL writes, and waits for the sync: then this attempt shows nothing.
    let late = !answered;
    third.send("PRAGMA wal_checkpoint");
    // It has begun a generation when it waits for the sync.
    std::thread::sleep(FREEZE);
    if !late {
        // It may wait for space in the log file, but it is in the ring by then.
        normal.send(&commit(6, 0));
        answered = normal.finish_within(FREEZE).is_some();
    }
    std::fs::remove_file(&hold)?;
    if !answered {
        normal.finish().error.map_or(Ok(()), Err)?;
    }
    full.finish().error.map_or(Ok(()), Err)?;
    acknowledge(4)?;
    third.finish().error.map_or(Ok(()), Err)?;
    if late {
        return Ok(false);
    }
    normal.ok(&commit(COMMITS, 0));
    for mut actor in [normal, third, full] {
        actor.close()?;
    }
    acknowledge(COMMITS)?;
    Ok(true)
}

/// The end of a sync of the log that covers commit 5 and the header of another segment.
fn find_group(before: &Image, operations: &[Operation]) -> anyhow::Result<Option<usize>> {
    let mut disk = Disk::new(before, 1);
    let (mut has_pad, mut has_segment) = (false, false);
    for (i, operation) in operations.iter().enumerate() {
        match operation {
            Operation::Write(name, _, data) if name.ends_with("-plait") => {
                has_pad |= data.windows(1000).any(|bytes| bytes.iter().all(|byte| *byte == b'p'));
                has_segment |= has_pad && data.starts_with(b"PLTS");
            }
            Operation::SyncEnded(name, _) if name.ends_with("-plait") => {
                if has_pad && has_segment {
                    return Ok(Some(i));
                }
                (has_pad, has_segment) = (false, false);
            }
            _ => {}
        }
        disk.apply(operation).with_context(|| format!("operation {i}: {operation:.200?}"))?;
    }
    Ok(None)
}

/// What is asked of every database that is opened.
pub const QUESTIONS: [&str; 3] = [
    "PRAGMA integrity_check",
    "SELECT id, v FROM t NOT INDEXED ORDER BY id",
    "SELECT id, v FROM t INDEXED BY t_v WHERE v>=0 ORDER BY id",
];

/// The number of commits that the answers show; an error if they show anything but a prefix.
pub fn commits_of(answers: &[Vec<Vec<Value>>]) -> anyhow::Result<i64> {
    let [integrity, table, index] = answers else { bail!("{} answers", answers.len()) };
    ensure!(integrity == &[vec![Value::from("ok")]], "integrity_check: {integrity:?}");
    ensure!(table == index, "the table has {table:?}, its index {index:?}");
    let commits = table.len() as i64;
    let expected: Vec<Vec<Value>> = (1..=commits)
        .map(|n| vec![Value::Integer(n), Value::Integer(if n == 1 { commits } else { n })])
        .collect();
    ensure!(table == &expected, "not the rows of a prefix of the commits: {table:?}");
    Ok(commits)
}
