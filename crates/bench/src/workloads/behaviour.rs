//! What an engine does when transactions meet: not how fast, but who waits, who is refused and what helps then.
//!
//! Each test has a directory and two sessions of its own. A session is a thread with a connection; it is asked to do a
//! step and either answers or is seen to wait for somebody ([`waiting`]). How long it takes says nothing: on a slow
//! machine the answers are the same. A session that never answers is left behind, so nothing can hang; the process ends
//! with the trial.

mod session;
mod tests_of_engines;
mod waiting;

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Finding, Measured, Site};
use crate::engines::catalogue::Kind;
use crate::engines::{Failure, Outcome, Settings};

use session::Session;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Load {
    /// Rows in each of the two tables.
    pub rows: u32,
}

/// A test and the place where it is done.
struct Ground<'a> {
    kind: &'a Kind,
    settings: &'a Settings,
    directory: PathBuf,
    /// Tables `a0` and `b0` of the first test, `a1` and `b1` of the second: several tests may share a server.
    number: usize,
}

impl Ground<'_> {
    /// Two sessions whose waits end in a refusal after so many milliseconds, where the engine has such a setting.
    fn sessions(&self, timeout_ms: u64) -> Outcome<(Session, Session)> {
        let settings = match self.kind {
            Kind::Sqlite { .. } => self.settings.clone().with("busy_timeout", timeout_ms),
            _ => self.settings.clone(),
        };
        let open = || Session::start(self.kind, &self.directory, &settings, self.number);
        Ok((open()?, open()?))
    }
}

impl Load {
    /// Does all tests, at the same time where each can have a store of its own.
    pub(super) fn run(&self, site: &Site<'_>) -> Outcome<Measured> {
        let Some(kind) = site.kind else {
            return Err(Failure::unsupported("sessions open the engine by themselves"));
        };
        let tests = tests_of_engines::ALL;
        let mut measured = Measured::default();
        let findings: Vec<Outcome<Vec<Finding>>> = if matches!(kind, Kind::Sqlite { .. }) {
            let grounds = (0..tests.len())
                .map(|number| {
                    let directory = site.directory.join(number.to_string());
                    std::fs::create_dir(&directory)?;
                    self.prepare(site, &directory, number..number + 1)?;
                    Ok(Ground { kind, settings: site.settings, directory, number })
                })
                .collect::<Outcome<Vec<_>>>()?;
            measured.settings =
                site.engine.open(&grounds[0].directory, site.settings)?.settings()?;
            std::thread::scope(|scope| {
                let running: Vec<_> = tests
                    .iter()
                    .zip(&grounds)
                    .map(|(test, ground)| scope.spawn(move || test(ground)))
                    .collect();
                running.into_iter().map(|t| t.join().expect("tests do not panic")).collect()
            })
        } else {
            let store = site.engine.open(&site.directory, site.settings)?;
            measured.settings = store.settings()?;
            self.make_tables(store.as_ref(), 0..tests.len())?;
            let directory = &site.directory;
            let ground = |number| {
                let directory = directory.clone();
                Ground { kind, settings: site.settings, directory, number }
            };
            let findings =
                tests.iter().enumerate().map(|(number, test)| test(&ground(number))).collect();
            store.close()?;
            findings
        };
        for found in findings {
            measured.findings.extend(found?);
        }
        Ok(measured)
    }

    fn prepare(
        &self,
        site: &Site<'_>,
        directory: &Path,
        numbers: std::ops::Range<usize>,
    ) -> Outcome<()> {
        let store = site.engine.open(directory, site.settings)?;
        self.make_tables(store.as_ref(), numbers)?;
        store.close()
    }

    fn make_tables(
        &self,
        store: &dyn crate::engines::Store,
        numbers: std::ops::Range<usize>,
    ) -> Outcome<()> {
        let mut sql = store.sql()?;
        let int = sql.dialect().int;
        for table in numbers.flat_map(|number| [format!("a{number}"), format!("b{number}")]) {
            sql.script(&format!("CREATE TABLE {table}(id {int} PRIMARY KEY, n {int} NOT NULL)"))?;
            sql.begin(crate::engines::Begin::Deferred)?;
            let insert = sql.prepare(&format!("INSERT INTO {table}(id, n) VALUES(?1, 0)"))?;
            for id in 1..=self.rows {
                sql.execute(insert, &[crate::engines::Value::Int(id.into())])?;
            }
            sql.commit()?;
        }
        Ok(())
    }
}
