//! A queue in a table: producers put jobs in, workers take the one that is due first.
//!
//! Whoever deletes a job enters it in `taken` by a trigger, where no job can stand twice.

use crate::job::{Job, Reporter};
use crate::os::monotonic_ns;
use crate::sqlite::{Connection, SqlError};
use crate::subject::{Begin, Synchronous};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

/// Tables of the queue, and jobs in it.
#[must_use]
pub fn schema(jobs: i64) -> String {
    format!(
        "CREATE TABLE job(id INTEGER PRIMARY KEY AUTOINCREMENT, state TEXT NOT NULL, due INTEGER NOT NULL);
         CREATE INDEX job_next ON job(state, due);
         CREATE TABLE taken(job INTEGER PRIMARY KEY);
         CREATE TRIGGER job_taken AFTER DELETE ON job BEGIN INSERT INTO taken VALUES(old.id); END;
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<{jobs})
           INSERT INTO job SELECT i, 'new', i FROM n;"
    )
}

/// The job that is due first.
pub const FIRST: &str = "SELECT id FROM job WHERE state='new' ORDER BY due LIMIT 1";

/// A worker that takes jobs until there is none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Taker {
    /// Seed for its moods.
    pub seed: u64,
    /// How it begins; `None`: one statement in autocommit.
    pub begin: Option<Begin>,
    /// Durability of its connection.
    pub synchronous: Synchronous,
    /// Now and then it puts a job back, takes one and thinks better of it, or puts a new one somewhere.
    pub moody: bool,
}

/// What a taker reports of each job.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Took {
    /// The job.
    pub job: i64,
    /// When the commit returned.
    pub at_ns: u64,
}

impl Taker {
    pub(crate) fn run(&self, job: &Job, reporter: &Reporter) -> anyhow::Result<Json> {
        let connection = job.subject.open(&job.database)?;
        connection.execute(&format!("PRAGMA synchronous={}", self.synchronous.number()))?;
        let begin = self.begin.map(|begin| job.subject.begin(begin));
        let mut random = StdRng::seed_from_u64(self.seed);
        let (mut conflicts, mut made) = (0u64, 0u64);
        while !reporter.should_stop() {
            let tried = if self.moody && random.random_bool(0.2) {
                made += 1;
                self.be_moody(&connection, begin.unwrap_or("BEGIN"), made, &mut random)
                    .map(|()| Some(None))
            } else {
                take(&connection, begin).map(|took| took.map(Some))
            };
            match tried {
                Ok(Some(Some(took))) => reporter.line(Took { job: took, at_ns: monotonic_ns() }),
                Ok(Some(None)) => {}
                Ok(None) => break,
                Err(error) => {
                    anyhow::ensure!(error.is_busy(), "a job could not be taken: {error}");
                    conflicts += 1;
                    if !connection.autocommit() {
                        connection.execute("ROLLBACK")?;
                    }
                }
            }
        }
        connection.close()?;
        Ok(json!({ "conflicts": conflicts }))
    }

    fn be_moody(
        &self,
        connection: &Connection,
        begin: &str,
        made: u64,
        random: &mut StdRng,
    ) -> Result<(), SqlError> {
        let first = format!("({FIRST})");
        match random.random_range(0..4) {
            0 => connection.execute(&format!(
                "{begin}; DELETE FROM job WHERE id={first}; DELETE FROM job WHERE id={first}; ROLLBACK"
            )),
            1 => connection.execute(&format!(
                "{begin}; SAVEPOINT s; DELETE FROM job WHERE id={first}; {FIRST}; ROLLBACK TO s; {FIRST}; COMMIT"
            )),
            2 => {
                // Between the two commits the entry of the index is a deleted one among others.
                connection.execute(begin)?;
                let rows = connection.query(FIRST)?;
                let Some(id) = rows.first().and_then(|row| row[0].as_i64()) else {
                    return connection.execute("COMMIT");
                };
                let set = |state| format!("UPDATE job SET state='{state}' WHERE id={id}");
                connection.execute(&set("held"))?;
                connection.execute("COMMIT")?;
                while let Err(error) = connection.execute(&set("new")) {
                    if !error.is_busy() {
                        return Err(error);
                    }
                }
                Ok(())
            }
            _ if made > 40 => Ok(()),
            _ => connection.execute(&format!(
                "INSERT INTO job(state, due) VALUES('new', {})",
                random.random_range(0..400)
            )),
        }
    }
}

/// Takes the first job in one transaction; none if there is none.
fn take(connection: &Connection, begin: Option<&str>) -> Result<Option<i64>, SqlError> {
    let first_of =
        |rows: Vec<Vec<crate::value::Value>>| rows.first().and_then(|row| row[0].as_i64());
    let Some(begin) = begin else {
        let sql = format!("DELETE FROM job WHERE id=({FIRST}) RETURNING id");
        return connection.query(&sql).map(first_of);
    };
    connection.execute(begin)?;
    let Some(id) = first_of(connection.query(FIRST)?) else {
        return connection.execute("COMMIT").map(|()| None);
    };
    connection.execute(&format!("DELETE FROM job WHERE id={id}"))?;
    connection.execute("COMMIT").map(|()| Some(id))
}

/// Checks a queue that was worked on: every job that ever was is in it or taken, never both, what was reported is taken, and
/// index and table agree.
pub fn verify(connection: &Connection, jobs: i64, reported: &[i64]) -> anyhow::Result<()> {
    let mut once = reported.to_vec();
    once.sort_unstable();
    once.dedup();
    anyhow::ensure!(once.len() == reported.len(), "a job was reported twice");
    let lost = connection.query(&format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<{jobs})
         SELECT i, i IN (SELECT id FROM job), i IN (SELECT job FROM taken), (SELECT state FROM job WHERE id=i) FROM n
         WHERE (i IN (SELECT id FROM job)) = (i IN (SELECT job FROM taken))"
    ))?;
    anyhow::ensure!(lost.is_empty(), "neither in the queue nor taken, or both: {lost:?}");
    for job in reported {
        let is_taken =
            connection.integer(&format!("SELECT count(*) FROM taken WHERE job={job}"))?;
        anyhow::ensure!(is_taken == 1, "job {job} was taken and is not");
    }
    let by_index =
        connection.query("SELECT id FROM job INDEXED BY job_next WHERE state>'' ORDER BY id")?;
    let by_table = connection.query("SELECT id FROM job NOT INDEXED ORDER BY id")?;
    anyhow::ensure!(by_index == by_table, "by the index {by_index:?}, by the table {by_table:?}");
    let check = connection.text("PRAGMA integrity_check")?;
    anyhow::ensure!(check == "ok", "{check}");
    Ok(())
}
