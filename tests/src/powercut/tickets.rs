//! A workload of tickets: a commit whose ticket was said to be on disk counts as acknowledged.
//!
//! | commit | what it is | when it is acknowledged |
//! |---|---|---|
//! | 2, 3 | of two processes, NORMAL | 2 after a wait for its ticket, 3 if `plait_durable()` says so then |
//! | 4 | exclusive, NORMAL | after 5, by a wait for its own ticket |
//! | 5 | on top of it | with 4, if `plait_durable()` says so |
//! | 6 | exclusive, NORMAL, with nothing behind it | after a wait for its ticket |
//! | 7, 8 | NORMAL, while a descriptor has the thread sync | when `plait_durable()` has come to them, which nobody waits for |
//! | 9 | NORMAL | when everybody has closed |

use super::explore::Explorer;
use super::workload::{Recorded, begin, commit};
use crate::actor::Actor;
use crate::subject::Subject;
use crate::value::Value;
use anyhow::ensure;
use std::path::Path;
use std::time::{Duration, Instant};

/// Far longer than a sync.
const PATIENCE: Duration = Duration::from_secs(20);

fn integer(actor: &mut Actor, sql: &str) -> anyhow::Result<i64> {
    let reply = actor.run(sql);
    reply.error.map_or(Ok(()), Err)?;
    match reply.rows.first().and_then(|row| row.first()) {
        Some(Value::Integer(n)) => Ok(*n),
        other => anyhow::bail!("{sql}: {other:?}"),
    }
}

fn is_durable(actor: &mut Actor) -> anyhow::Result<bool> {
    Ok(integer(actor, "SELECT plait_ticket() <= plait_durable()")? == 1)
}

fn exclusive(n: i64) -> String {
    commit(n, 0).replace("COMMIT", &format!("CREATE TABLE x{n}(y); COMMIT"))
}

/// Makes the database, runs the commits and reads what was recorded.
pub fn record(subject: &Subject, scratch: &Path) -> anyhow::Result<Recorded> {
    let folder = scratch.join("tickets");
    let database = folder.join("app.db");
    let (before, recording) = begin(subject, &folder)?;
    recording.acknowledge(1)?;
    let [mut a, mut b] = ["a", "b"].map(|name| recording.actor(name, subject, None));
    for actor in [&mut a, &mut b] {
        actor.open(&database)?;
        actor.ok("PRAGMA synchronous=NORMAL");
        actor.ok("SELECT count(*) FROM t");
    }
    a.ok(&commit(2, 0));
    b.ok(&commit(3, 0));
    ensure!(!is_durable(&mut b)?, "nobody has synced");
    ensure!(integer(&mut a, "SELECT plait_wait(plait_ticket())")? == 1, "there is no end to it");
    recording.acknowledge(2)?;
    if is_durable(&mut b)? {
        recording.acknowledge(3)?;
    }
    b.ok(&exclusive(4));
    a.ok(&commit(5, 0));
    ensure!(integer(&mut b, "SELECT plait_wait(plait_ticket())")? == 1, "there is no end to it");
    recording.acknowledge(4)?;
    if is_durable(&mut a)? {
        recording.acknowledge(5)?;
    }
    a.ok(&exclusive(6));
    ensure!(integer(&mut a, "SELECT plait_wait(plait_ticket())")? == 1, "there is no end to it");
    recording.acknowledge(6)?;
    integer(&mut b, "SELECT plait_notify_fd()")?;
    for n in 7..=8 {
        b.ok(&commit(n, 0));
        let start = Instant::now();
        while !is_durable(&mut b)? {
            ensure!(start.elapsed() < PATIENCE, "nobody syncs");
        }
        recording.acknowledge(n)?;
    }
    a.ok(&commit(9, 0));
    for mut actor in [a, b] {
        actor.close()?;
    }
    recording.acknowledge(9)?;
    let operations = recording.operations()?;
    let group_synced = operations.len();
    Ok(Recorded { before, operations, group_synced })
}

impl<'a> Explorer<'a> {
    /// Of this workload.
    pub fn of_tickets(subject: &'a Subject, scratch: &'a Path) -> anyhow::Result<Self> {
        Ok(Self::new_of(subject, scratch, record(subject, scratch)?))
    }
}
