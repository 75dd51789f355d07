//! A process that forks while an event waits in it.

use crate::job::Job;
use crate::os;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

/// Begins to write in the place of a dead process, forks, and commits. The child opens the database anew and uses it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EventsBesideFork {}

impl EventsBesideFork {
    pub(crate) fn run(&self, job: &Job) -> anyhow::Result<Json> {
        let connection = job.subject.open(&job.database)?;
        connection.execute("BEGIN IMMEDIATE; INSERT INTO t(v) VALUES('parent')")?;
        let code = os::in_forked_child(|| {
            let own = job.subject.open(&job.database);
            let read = own.and_then(|own| own.integer("SELECT count(*) FROM t"));
            u8::from(read.is_err())
        })?;
        connection.execute("COMMIT")?;
        connection.close()?;
        Ok(json!({ "child": code, "parent": std::process::id() }))
    }
}
