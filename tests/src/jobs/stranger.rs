//! A user who may read a database but write neither it nor what is beside it.

use crate::job::Job;
use crate::os;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// Gives up the rights of root, opens the database and serializes and checks it. Its result is a [`Told`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Stranger;

/// What the stranger met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// The database is sound and has this many rows in table `t`.
    Rows(i64),
    /// An error with this code and text.
    Refused(i32, String),
}

impl Stranger {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "as every other kind of work")]
    pub(crate) fn run(&self, job: &Job) -> anyhow::Result<Json> {
        let library = job.subject.library();
        os::give_up_root()?;
        let connection = library.open(&job.database)?;
        let rows = connection.integer("SELECT count(*) FROM t").and_then(|rows| {
            connection.serialize()?;
            connection.integer("PRAGMA page_count")?;
            let sound = connection.text("PRAGMA integrity_check")? == "ok";
            Ok(if sound { rows } else { -1 })
        });
        let told = match rows {
            Ok(rows) => Told::Rows(rows),
            Err(error) => Told::Refused(error.code, error.message),
        };
        Ok(serde_json::to_value(told)?)
    }
}
