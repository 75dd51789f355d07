//! A workload beside a sidecar, which says of commits that they are shipped.
//!
//! What is shipped counts as acknowledged: a replica that has a commit which the power cut took back would be ahead
//! of the database (CHAIN-6, SHIP-2). Nobody but the sidecar syncs the commits under NORMAL.
//!
//! | commit | level | |
//! |---|---|---|
//! | 2, 3 | NORMAL | |
//! | - | - | a checkpoint |
//! | 4 | NORMAL | |
//! | 5 | NORMAL, exclusive | bridged by a snapshot |
//! | 6 | NORMAL | |

use super::explore::Explorer;
use super::recording::Recording;
use super::workload::{Recorded, begin, commit};
use crate::actor::Actor;
use crate::subject::Subject;
use crate::value::Value;
use anyhow::{Context as _, ensure};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const COMMITS: i64 = 6;
/// How long a commit may take to the replica on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const LAG: &str = "SELECT name, value FROM plait_status WHERE name IN
    ('replication_running', 'replication_lag_commits') ORDER BY name";

/// A sidecar whose operations are written down.
struct Sidecar(Child);

impl Sidecar {
    fn start(
        program: &Path,
        recording: &Recording,
        scratch: &Path,
        database: &Path,
    ) -> anyhow::Result<Self> {
        let copies = scratch.join("copies");
        std::fs::create_dir_all(&copies)?;
        let mut command = Command::new(program);
        command.envs(recording.environment()).arg("run").arg(scratch.join("replica")).arg(database);
        command.args(["--interval", "20ms", "--scratch"]).arg(copies);
        command.stdout(Stdio::null());
        Ok(Self(command.spawn().with_context(|| format!("{} starts", program.display()))?))
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until everything is shipped, by what the database is told.
fn await_shipped(actor: &mut Actor) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let reply = actor.run(LAG);
        reply.error.map_or(Ok(()), Err)?;
        let said: Vec<&Value> = reply.rows.iter().filter_map(|row| row.get(1)).collect();
        if said == [&Value::Integer(0), &Value::Integer(1)] {
            return Ok(());
        }
        ensure!(begun.elapsed() < PATIENCE, "nothing more is shipped: {said:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Snapshots that the replica has.
fn snapshots(program: &Path, scratch: &Path) -> anyhow::Result<usize> {
    let output = Command::new(program).arg("replicas").arg(scratch.join("replica")).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(said.lines().filter(|line| line.trim_start().starts_with("snapshot ")).count())
}

/// Waits until there are more than so many: an exclusive transaction is shipped by one.
fn await_snapshot(program: &Path, scratch: &Path, known: usize) -> anyhow::Result<()> {
    let begun = Instant::now();
    while snapshots(program, scratch)? <= known {
        ensure!(begun.elapsed() < PATIENCE, "there is no snapshot behind {known} others");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn record(subject: &Subject, program: &Path, scratch: &Path) -> anyhow::Result<Recorded> {
    let folder = scratch.join("shipped");
    let database = folder.join("app.db");
    let (before, recording) = begin(subject, &folder)?;
    recording.acknowledge(1)?;
    let mut actor = recording.actor("writer", subject, None);
    actor.open(&database)?;
    actor.ok("PRAGMA synchronous=NORMAL");
    actor.ok("SELECT count(*) FROM t");
    let sidecar = Sidecar::start(program, &recording, scratch, &database)?;
    await_snapshot(program, scratch, 0)?;
    for n in 2..=COMMITS {
        let (sql, known) = (commit(n, 0), snapshots(program, scratch)?);
        if n == 5 {
            actor.ok(&sql.replace("COMMIT", "CREATE TABLE x(y); COMMIT"));
            await_snapshot(program, scratch, known)?;
        } else {
            actor.ok(&sql);
            await_shipped(&mut actor)?;
        }
        recording.acknowledge(n)?;
        if n == 3 {
            actor.ok("PRAGMA wal_checkpoint");
        }
    }
    // It dies as all do in a power cut.
    drop(sidecar);
    actor.kill();
    let operations = recording.operations()?;
    let group_synced = operations.len();
    Ok(Recorded { before, operations, group_synced })
}

impl<'a> Explorer<'a> {
    /// Of this workload, with this sidecar.
    pub fn of_shipped(
        subject: &'a Subject,
        program: &Path,
        scratch: &'a Path,
    ) -> anyhow::Result<Self> {
        Ok(Self::new_of(subject, scratch, record(subject, program, scratch)?))
    }
}
