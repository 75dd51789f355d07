//! Study C, `bench files`: SQLite against the file system.
//!
//! | module | what |
//! |---|---|
//! | [`historical`] | the published tests, with [`published`] figures beside |
//! | [`modern`] | more ways to write a file, more writers, PostgreSQL as the third arm |

pub mod historical;
pub mod modern;
pub mod published;

use super::{Mode, Plan, Request};
use crate::workloads::crew::{Amount, Shift};
use crate::workloads::{Workload, records, tasks};

/// Bytes of a record and of a task's output; the publication does not tell its own.
const RECORD_BYTES: usize = 100;
/// How often a task's output is updated, as published.
const OUTPUTS: u32 = 10;

/// PostgreSQL's default isolation, enough for steps of one statement; the engine asks for serializable otherwise.
const READ_COMMITTED: (&str, &str) = ("default_transaction_isolation", "read committed");

/// What the study measures and shows.
#[must_use]
pub fn plan(request: &Request) -> Plan {
    match request.mode {
        Mode::Historical => historical::plan(request),
        Mode::Modern => modern::plan(request),
    }
}

/// Inserts, each a transaction of its own.
fn records(writers: u32, amount: Amount, runs: u32) -> Workload {
    let shift =
        Shift { workers: writers, amount, due_per_second: None, count_start_and_stop: false };
    Workload::Records(records::Load { value_bytes: RECORD_BYTES, runs, shift })
}

/// Lives of tasks.
fn tasks(concurrency: u32, tasks_each: u64, runs: u32) -> Workload {
    Workload::Tasks(tasks::Load {
        concurrency,
        tasks_each,
        outputs: OUTPUTS,
        output_bytes: RECORD_BYTES,
        runs,
    })
}
