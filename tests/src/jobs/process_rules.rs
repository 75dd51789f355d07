//! What one process must not do: carry a connection over `fork()`, or hold two copies of the library.

use crate::job::Job;
use crate::os;
use crate::sqlite::Library;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

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

/// Opens the database, writes and closes it where a sandbox refuses a system call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InSandbox {
    /// Number of the call.
    pub refused: i64,
}

impl InSandbox {
    pub(crate) fn run(&self, job: &Job) -> anyhow::Result<Json> {
        os::refuse_call(self.refused)?;
        let (first, second) = (job.subject.open(&job.database)?, job.subject.open(&job.database)?);
        first.execute("BEGIN CONCURRENT; INSERT INTO t VALUES(1); COMMIT")?;
        second.execute("INSERT INTO t VALUES(2)")?;
        let rows = first.integer("SELECT count(*) FROM t")?;
        first.close()?;
        second.close()?;
        Ok(json!(rows))
    }
}

/// Forks again and again while a merge runs in a thread; each child uses the library for a database of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ForksBesideMerges {
    /// Forks that are to be made while the thread is there.
    pub forks: u32,
}

/// Rows of a transaction, few enough not to be made exclusive.
const SOME_ROWS: &str = "INSERT INTO forked(a) WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i<100) \
                           SELECT randomblob(500) FROM n";

impl ForksBesideMerges {
    pub(crate) fn run(&self, job: &Job) -> anyhow::Result<Json> {
        let connection = job.subject.open(&job.database)?;
        // Who is alone merges nothing: his large transactions go to the file directly.
        let other = job.subject.open(&job.database)?;
        connection.execute("PRAGMA synchronous=NORMAL; CREATE TABLE IF NOT EXISTS forked(a)")?;
        other.execute("INSERT INTO forked VALUES(1)")?;
        let (mut forks, mut rows, start) = (0, 1, Instant::now());
        while forks < self.forks {
            anyhow::ensure!(
                start.elapsed() < Duration::from_secs(120),
                "only {forks} forks beside a merge"
            );
            connection.execute(SOME_ROWS)?;
            rows += 100;
            if std::fs::read_dir("/proc/self/task")?.count() == 1 {
                continue;
            }
            forks += 1;
            let code = os::in_forked_child(|| u8::from(use_another(job, forks).is_err()))?;
            anyhow::ensure!(code == 0, "child {forks} ended with {code}");
        }
        let found = connection.integer("SELECT count(*) FROM forked")?;
        Ok(json!({ "forks": forks, "written": rows, "found": found }))
    }
}

/// Ends this process if it takes too long.
fn use_another(job: &Job, number: u32) -> anyhow::Result<()> {
    os::end_in(Duration::from_secs(20));
    let path = job.database.with_file_name(format!("of-child-{number}.db"));
    let connection = job.subject.library().open(&path)?;
    connection.execute("CREATE TABLE t(a); INSERT INTO t VALUES(1)")?;
    anyhow::ensure!(connection.integer("SELECT count(*) FROM t")? == 1);
    Ok(connection.close()?)
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
