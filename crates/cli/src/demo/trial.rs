//! One trial, in a process and a directory of its own, and its verification, in other processes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::crew::Crew;
use super::job::{self, Outcome, Window};
use super::plan::{Engine, ROWS, Spec, VALUE_BYTES};
use crate::os::monotonic;
use crate::sqlite::{Library, OpenFlags, SqlError, answer, integer};

/// Time for all writers to learn when they start.
const NOTICE: Duration = Duration::from_millis(50);

/// What a trial gave.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Acknowledged within the window, per second.
    pub commits_per_second: f64,
    /// Acknowledged, also after the window.
    pub acknowledged: u64,
    /// Median microseconds from BEGIN to the return of COMMIT, of what was acknowledged.
    pub median_us: u32,
    /// 99 of 100 take no longer.
    pub p99_us: u32,
    /// The longest.
    pub worst_us: u32,
    /// Times that a transaction was run again after a conflict.
    pub retries: u64,
    /// Transactions that ended with an error.
    pub failed: u64,
    /// Milliseconds until all had closed the database.
    pub close_ms: u64,
    /// Settings as every connection read them back.
    pub settings: String,
    /// Version of the library.
    pub library: String,
}

/// Runs the trial. Errors are sentences: they cross process borders.
pub fn run(spec: &Spec) -> Result<Measured, String> {
    let say = |e: SqlError| e.said();
    let library = Library::load(&spec.library).map_err(|e| e.to_string())?;
    job::create(library, spec).map_err(say)?;
    let mut crew = Crew::ready(library, spec)?;
    let start = monotonic() + NOTICE;
    let window = Window { start, end: start + Duration::from_secs_f64(spec.seconds) };
    let outcomes = crew.run(window)?;
    let closing = Instant::now();
    crew.close()?;
    let close_ms = closing.elapsed().as_millis() as u64;
    let settings = settings(spec.engine, &outcomes)?;
    let library = version(library).map_err(say)?;
    Ok(Measured { close_ms, settings, library, ..summed(outcomes, spec.seconds) })
}

fn summed(outcomes: Vec<Outcome>, seconds: f64) -> Measured {
    let sum = |f: fn(&Outcome) -> u64| outcomes.iter().map(f).sum::<u64>();
    let mut all = Measured {
        commits_per_second: sum(|o| o.commits_in_time) as f64 / seconds,
        acknowledged: sum(|o| o.commits),
        retries: sum(|o| o.retries),
        failed: sum(|o| o.failed),
        ..Measured::default()
    };
    let mut waits: Vec<u32> = outcomes.into_iter().flat_map(|o| o.waits_us).collect();
    waits.sort_unstable();
    if let Some(&worst) = waits.last() {
        all.worst_us = worst;
        all.median_us = waits[waits.len() / 2];
        all.p99_us = waits[waits.len() * 99 / 100];
    }
    all
}

/// What all connections read back; an error if it is not what the trial is about.
fn settings(engine: Engine, outcomes: &[Outcome]) -> Result<String, String> {
    let wanted = (engine.journal_mode(), "2");
    for outcome in outcomes {
        if (outcome.journal_mode.as_str(), outcome.synchronous.as_str()) != wanted {
            return Err(format!(
                "a connection is in journal_mode={} with synchronous={}, where journal_mode={} and synchronous={} were asked for",
                outcome.journal_mode, outcome.synchronous, wanted.0, wanted.1
            ));
        }
    }
    Ok(format!("journal_mode={} synchronous={} (FULL)", wanted.0, wanted.1))
}

fn version(library: Library) -> Result<String, SqlError> {
    let db = library.open(":memory:")?;
    let sqlite = format!("SQLite {}", library.version());
    // Stock SQLite has no such function.
    Ok(match answer(&db, "SELECT plait_version()") {
        Ok(plait) => format!("{plait} ({sqlite})"),
        Err(_) => sqlite,
    })
}

/// A database to verify after a trial.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Proof {
    /// The library to read it with.
    pub library: PathBuf,
    /// The database.
    pub database: PathBuf,
    /// Commits that were acknowledged: what the counters of all rows must add up to.
    pub acknowledged: u64,
}

/// Verifies a database; an error says what is wrong with it.
pub fn verify(proof: &Proof) -> Result<(), String> {
    let library = Library::load(&proof.library).map_err(|e| e.to_string())?;
    let (found, integrity) = look(library, &proof.database)
        .map_err(|e| format!("cannot read the result: {}", e.said()))?;
    let wanted = [u64::from(ROWS), proof.acknowledged, VALUE_BYTES as u64, VALUE_BYTES as u64];
    let names = ["rows", "updates", "bytes in the shortest value", "bytes in the longest value"];
    for ((found, wanted), name) in found.iter().zip(wanted).zip(names) {
        if *found != wanted as i64 {
            return Err(format!("it holds {found} {name} where {wanted} were acknowledged"));
        }
    }
    if integrity != "ok" {
        return Err(format!("integrity_check says: {integrity}"));
    }
    Ok(())
}

fn look(library: Library, database: &Path) -> Result<([i64; 4], String), SqlError> {
    let db = library.open_with(database, OpenFlags::ReadWrite)?;
    let rows = db.query("SELECT count(*), sum(n), min(length(v)), max(length(v)) FROM item")?;
    let mut found = [0; 4];
    for (to, from) in found.iter_mut().zip(rows.iter().flatten()) {
        *to = integer(from);
    }
    Ok((found, answer(&db, "PRAGMA integrity_check")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(mode: &str, waits_us: &[u32]) -> Outcome {
        Outcome {
            commits: waits_us.len() as u64,
            commits_in_time: waits_us.len() as u64,
            waits_us: waits_us.to_vec(),
            journal_mode: mode.into(),
            synchronous: "2".into(),
            ..Outcome::default()
        }
    }

    #[test]
    fn the_writers_are_added_up() {
        let all = summed(vec![outcome("wal", &[10, 30]), outcome("wal", &[20])], 0.5);
        assert_eq!((all.commits_per_second, all.acknowledged), (6.0, 3));
        assert_eq!((all.median_us, all.p99_us, all.worst_us), (20, 30, 30));
    }

    #[test]
    fn a_trial_in_another_mode_than_asked_for_is_no_trial() {
        let outcomes = [outcome("wal", &[1]), outcome("delete", &[1])];
        assert!(settings(Engine::Stock, &outcomes[..1]).is_ok());
        assert!(settings(Engine::Stock, &outcomes).unwrap_err().contains("journal_mode=delete"));
        assert!(settings(Engine::Concurrent, &outcomes[..1]).is_err());
    }
}
