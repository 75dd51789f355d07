//! What one process must not do: carry a connection over `fork()`, or hold two copies of the library.

use crate::job::{Job, Reporter};
use crate::os;
use crate::sqlite::{Library, SqlError};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Writes, reads its own files, which drops its POSIX locks on them, forks a child that writes and closes, and goes on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ForkWithoutLocks {
    /// It is in no session.
    pub alone: bool,
}

impl ForkWithoutLocks {
    pub(crate) fn run(&self, job: &Job) -> anyhow::Result<Json> {
        if self.alone {
            os::allow_alone();
        }
        let library = job.subject.library();
        let connection = library.open(&job.database)?;
        connection.execute("INSERT INTO t VALUES(1)")?;
        let beside = ["-wal", "-shm"].map(|end| format!("{}{end}", job.database.display()));
        let files = || beside.iter().map(|file| Ok(std::fs::metadata(file)?.ino())).collect();
        let before: anyhow::Result<Vec<u64>> = files();
        std::fs::read(&job.database)?;
        for file in &beside {
            std::fs::read(file)?;
        }
        let code = os::in_forked_child(|| {
            os::end_in(Duration::from_secs(20));
            u8::from(write_and_close(&library, &job.database).is_err())
        })?;
        let after = files();
        connection.execute("INSERT INTO t VALUES(2)")?;
        let rows = connection.integer("SELECT count(*) FROM t")?;
        connection.close()?;
        Ok(json!({ "child": code, "kept": before? == after?, "rows": rows }))
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

/// Opens the database as root and writes, becomes another user or goes below another root directory, says so, and writes on until it is
/// refused, or has written so many rows more; then, without a descriptor left, more than small memtables take. Its result is what it was
/// refused with, if it was, and how many bytes of shared memory it has mapped.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Daemon {
    /// An empty folder to be its root directory; `None`: it becomes another user.
    pub root: Option<PathBuf>,
    /// Rows to be written then.
    pub rows: u32,
}

/// What a [`Daemon`] has met.
#[derive(Debug, Deserialize)]
pub struct Met {
    /// What it was refused with.
    pub refused: Option<SqlError>,
    /// Bytes of shared memory that it has mapped.
    pub mapped: u64,
}

impl Daemon {
    /// Rows of 300 kB that it writes at its end.
    pub const LARGE_ROWS: u32 = 30;

    pub(crate) fn run(&self, job: &Job, reporter: &Reporter) -> anyhow::Result<Json> {
        let connection = job.subject.open(&job.database)?;
        connection.execute("INSERT INTO t VALUES(1)")?;
        let list = std::fs::File::open("/proc/self/maps")?;
        match &self.root {
            Some(empty) => os::leave_all_names(empty)?,
            None => os::give_up_root()?,
        }
        reporter.line("changed");
        let mut refused = None;
        for _ in 0..self.rows {
            refused = connection.execute("INSERT INTO t VALUES(2)").err();
            if refused.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        if refused.is_none() {
            os::limit(std::process::id(), os::Limited::Descriptors, Some(0))?;
            refused = (0..Self::LARGE_ROWS)
                .find_map(|_| connection.execute("INSERT INTO t VALUES(randomblob(300000))").err());
        }
        let memory = format!("{}-plait-shm", job.database.display());
        Ok(json!({ "refused": refused, "mapped": os::mapped_bytes_in(list, &memory)? }))
    }
}

/// Has many databases open at a time, as a program with one for each tenant, and reads and writes in each. Its result is the sum of their rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ManyFiles {
    /// Databases, beside the job's own.
    pub files: u32,
    /// Descriptors that the process may have.
    pub descriptors: u64,
}

impl ManyFiles {
    pub(crate) fn run(&self, job: &Job) -> anyhow::Result<Json> {
        os::limit(std::process::id(), os::Limited::Descriptors, Some(self.descriptors))?;
        let mut open = Vec::new();
        for number in 0..self.files {
            let connection =
                job.subject.create(&job.database.with_file_name(format!("{number}.db")))?;
            connection.execute("CREATE TABLE t(a)")?;
            for _ in 0..3 {
                connection
                    .execute("BEGIN; SELECT count(*) FROM t; INSERT INTO t VALUES(1); COMMIT")?;
            }
            open.push(connection);
        }
        let counts = open.iter().map(|connection| connection.integer("SELECT count(*) FROM t"));
        let rows = counts.sum::<Result<i64, _>>()?;
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

/// Forks again and again while threads open the database, write and close it; each child does the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ForksBesideOpenings {
    /// Forks.
    pub forks: u32,
    /// Threads.
    pub threads: u32,
}

impl ForksBesideOpenings {
    pub(crate) fn run(&self, job: &Job) -> anyhow::Result<Json> {
        // Once: to look for it takes a mutex, which a thread might have when the other forks.
        let library = job.subject.library();
        let write_and_close = || write_and_close(&library, &job.database);
        write_and_close()?;
        let over = AtomicBool::new(false);
        let (mut of_children, of_threads) = std::thread::scope(|scope| {
            let write = || -> anyhow::Result<i64> {
                let mut written = 0;
                while !over.load(Ordering::Relaxed) {
                    written += write_and_close()?;
                }
                Ok(written)
            };
            let threads: Vec<_> = (0..self.threads).map(|_| scope.spawn(write)).collect();
            let of_children = self.fork(&write_and_close);
            over.store(true, Ordering::Relaxed);
            let ended = threads.into_iter().map(|thread| thread.join().expect("no panic"));
            (of_children, ended.sum::<anyhow::Result<i64>>())
        });
        of_children = of_children.map(|written| written + 1);
        let found = library.open(&job.database)?.integer("SELECT count(*) FROM t")?;
        let (of_children, of_threads) = match (of_children, of_threads) {
            (Ok(of_children), Ok(of_threads)) => (of_children, of_threads),
            (of_children, of_threads) => {
                anyhow::bail!("children {of_children:?}, threads {of_threads:?}, found {found}")
            }
        };
        let written = of_children + of_threads;
        Ok(json!({ "written": written, "of_threads": of_threads, "found": found }))
    }

    /// How many rows the children have written.
    fn fork(&self, write_and_close: &dyn Fn() -> anyhow::Result<i64>) -> anyhow::Result<i64> {
        let mut written = 0;
        for number in 1..=self.forks {
            let code = os::in_forked_child(|| {
                os::end_in(Duration::from_secs(20));
                let done = write_and_close().and_then(|_| write_and_close());
                done.map_or_else(|error| said_code(&error), |_| 0)
            })?;
            anyhow::ensure!(code == 0, "child {number} ended with {code}");
            written += 2;
        }
        Ok(written)
    }
}

/// An exit code that tells what SQLite has said.
fn said_code(error: &anyhow::Error) -> u8 {
    error.downcast_ref::<SqlError>().map_or(u8::MAX, |error| error.code as u8)
}

fn write_and_close(library: &Library, database: &Path) -> anyhow::Result<i64> {
    let connection = library.open(database)?;
    connection.busy_timeout(Duration::from_secs(15))?;
    connection.execute("INSERT INTO t VALUES(1)")?;
    connection.close()?;
    Ok(1)
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
