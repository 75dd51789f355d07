//! SQL scripts one after the other, with opening and closing as steps of their own.

use crate::job::{Job, Reporter};
use crate::sqlite::{Connection, SqlError};
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::time::Duration;

/// One step of a script.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Step {
    /// Opens a connection to the job's database under this number.
    Open(usize),
    /// Runs statements on a connection.
    Run(usize, String),
    /// Closes a connection.
    Close(usize),
    /// Waits.
    Sleep(Duration),
}

/// Steps and what to do when one fails.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Script {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Go on after a failed statement.
    pub keep_going: bool,
    /// How often to go through all steps.
    pub rounds: u32,
}

/// What a script reports after each step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepDone {
    /// Its place in the script.
    pub index: usize,
    /// The error, if it failed.
    pub error: Option<SqlError>,
}

impl Script {
    /// One connection that runs these statements and closes.
    #[must_use]
    pub fn of(statements: &[&str]) -> Self {
        let run = statements.iter().map(|sql| Step::Run(0, (*sql).to_owned()));
        let steps = std::iter::once(Step::Open(0)).chain(run).chain([Step::Close(0)]).collect();
        Self { steps, keep_going: false, rounds: 1 }
    }

    pub(crate) fn run(&self, job: &Job, reporter: &Reporter) -> anyhow::Result<Json> {
        let mut connections: Vec<Option<Connection>> = Vec::new();
        for _ in 0..self.rounds {
            for (index, step) in self.steps.iter().enumerate() {
                if reporter.should_stop() {
                    return Ok(Json::Null);
                }
                let outcome = perform(step, job, &mut connections);
                reporter.line(StepDone { index, error: outcome.clone().err() });
                if !self.keep_going {
                    outcome.with_context(|| format!("step {index}"))?;
                }
            }
        }
        Ok(Json::Null)
    }
}

fn perform(step: &Step, job: &Job, open: &mut Vec<Option<Connection>>) -> Result<(), SqlError> {
    match step {
        Step::Open(number) => {
            if open.len() <= *number {
                open.resize_with(number + 1, || None);
            }
            open[*number] = Some(job.subject.open(&job.database)?);
            Ok(())
        }
        Step::Run(number, sql) => {
            let connection = open.get(*number).and_then(Option::as_ref);
            connection.expect("the script opened this connection").execute(sql)
        }
        Step::Close(number) => match open.get_mut(*number).and_then(Option::take) {
            Some(connection) => connection.close(),
            None => Ok(()),
        },
        Step::Sleep(time) => {
            std::thread::sleep(*time);
            Ok(())
        }
    }
}
