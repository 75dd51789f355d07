//! What one process must not do: carry a connection over `fork()`, or hold two copies of the library.

use crate::job::Job;
use crate::os;
use crate::sqlite::Library;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::path::PathBuf;

/// Opens the database, forks, uses the connection in the child, then goes on in the parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fork {
    /// What the child runs on the inherited connection.
    pub sql: String,
}

/// What the child of [`Fork`] met.
pub const CHILD_REFUSED: i32 = 3;
/// The child's statement went through.
pub const CHILD_SUCCEEDED: i32 = 4;

impl Fork {
    pub(crate) fn run(&self, job: &Job) -> anyhow::Result<Json> {
        let connection = job.subject.open(&job.database)?;
        connection.execute("CREATE TABLE IF NOT EXISTS forked(a); INSERT INTO forked VALUES(1)")?;
        let code = os::in_forked_child(|| match connection.execute(&self.sql) {
            Err(_) => CHILD_REFUSED as u8,
            Ok(()) => CHILD_SUCCEEDED as u8,
        })?;
        connection.execute("INSERT INTO forked VALUES(2)")?;
        let rows = connection.integer("SELECT count(*) FROM forked")?;
        connection.close()?;
        Ok(json!({ "child": code, "rows": rows }))
    }
}

/// Opens the job's database with its own library and then with a second copy of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TwoCopies {
    /// The second shared object: another file with the same contents.
    pub copy: PathBuf,
}

impl TwoCopies {
    pub(crate) fn run(&self, job: &Job) -> anyhow::Result<Json> {
        let first = job.subject.open(&job.database)?;
        first.execute("CREATE TABLE IF NOT EXISTS t(a); INSERT INTO t VALUES(1)")?;
        let second = Library::load(&self.copy)?;
        let refusal = second
            .open(&job.database)
            .and_then(|connection| connection.execute("INSERT INTO t VALUES(2)"))
            .err();
        first.execute("INSERT INTO t VALUES(3)")?;
        let rows = first.integer("SELECT count(*) FROM t")?;
        Ok(json!({ "refusal": refusal, "rows": rows }))
    }
}
