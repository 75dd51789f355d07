//! Works on a map, one acknowledged call at a time: counts, swaps, writes batches.

use crate::job::{Job, Reporter};
use crate::sqlite::Item;
use crate::subject::{Mode, Synchronous};
use crate::value::Value;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::time::Duration;

/// Between two calls where SQLite's own locks decide who is next.
const PAUSE: Duration = Duration::from_millis(1);

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// Adds one to the key 0.
    Add,
    /// Counts the key 0 up by compare and swap; one that fails is tried again with what is there.
    Swap,
    /// Writes its number to two keys of its own and adds one to the key 0, in a batch, if both still hold the number before.
    Batch,
}

/// A worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Maps {
    /// Its number, from 1.
    pub worker: i64,
    /// What it does.
    pub task: Task,
    /// How often; `None`: until it is stopped or killed.
    pub calls: Option<i64>,
    /// Durability.
    pub synchronous: Synchronous,
}

/// A call that has returned, reported at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Called {
    /// The worker.
    pub worker: i64,
    /// Its calls that had an effect so far.
    pub seq: i64,
}

/// The table.
pub const SCHEMA: &str = "CREATE TABLE m(k INTEGER PRIMARY KEY, v)";

/// The two keys of a worker.
#[must_use]
pub fn keys_of(worker: i64) -> (Value, Value) {
    (Value::Integer(worker * 2), Value::Integer(1_000_000 + worker * 2))
}

impl Maps {
    pub(crate) fn run(&self, job: &Job, reporter: &Reporter) -> anyhow::Result<Json> {
        let connection = job.subject.open(&job.database)?;
        connection.execute(&format!("PRAGMA synchronous={}", self.synchronous.number()))?;
        let map = connection.open_map("m", 0)?;
        let counter = Value::Integer(0);
        let (a, b) = keys_of(self.worker);
        let mut seq = 0;
        while self.calls.is_none_or(|calls| seq < calls) && !reporter.should_stop() {
            let before = (seq > 0).then_some(Value::Integer(seq));
            let worked = match self.task {
                Task::Add => map.add(&counter, 1).map(|_| true)?,
                Task::Swap => {
                    let now = map.get(&counter)?;
                    let next = now.as_ref().and_then(Value::as_i64).unwrap_or(0) + 1;
                    map.swap(&counter, now.as_ref(), Some(&Value::Integer(next)))?
                }
                Task::Batch => {
                    let failed = map.batch(&[
                        Item::Expect(a.clone(), before.clone()),
                        Item::Put(a.clone(), Value::Integer(seq + 1)),
                        Item::Add(counter.clone(), 1),
                        Item::Put(b.clone(), Value::Integer(seq + 1)),
                        Item::Expect(b.clone(), before),
                    ])?;
                    anyhow::ensure!(failed.is_none(), "own keys were changed by another");
                    true
                }
            };
            if worked {
                seq += 1;
                reporter.line(Called { worker: self.worker, seq });
            }
            if job.subject.mode == Mode::Wal {
                // Waiting is polling there: beside those who never pause one of them waits in vain for half a minute now and then.
                std::thread::sleep(PAUSE);
            }
        }
        Ok(serde_json::to_value(seq)?)
    }
}
