//! The commands that read stored results: `compare`, `report`, and the hidden `schema`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::results::Results;
use super::{compare, markdown, page, terminal};
use crate::commands::UsageError;

/// Two stored results.
#[derive(Args, Debug)]
pub struct CompareArgs {
    /// The first result, to which the second is compared
    first: PathBuf,
    /// The second result
    second: PathBuf,
    /// Print the comparison as JSON
    #[arg(long)]
    json: bool,
}

/// A stored result to be shown again.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// The result
    result: PathBuf,
    /// Write a report as one HTML file
    #[arg(long)]
    html: Option<PathBuf>,
    /// Write the tables as Markdown
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// Also print what each figure cost: retries, processor time, bytes written, fairness
    #[arg(long)]
    details: bool,
}

fn read(path: &Path) -> anyhow::Result<Results> {
    Results::read(path).map_err(|error| UsageError(format!("{error:#}")).into())
}

impl CompareArgs {
    /// Compares.
    ///
    /// # Errors
    /// A [`UsageError`] if one of the files is no result.
    pub fn run(&self) -> anyhow::Result<()> {
        let comparison = compare::compare(&read(&self.first)?, &read(&self.second)?);
        if self.json {
            anstream::println!("{}", serde_json::to_string_pretty(&comparison)?);
        } else {
            anstream::print!("{}", compare::text(&comparison));
        }
        Ok(())
    }
}

impl ReportArgs {
    /// Writes what is asked for, and prints the summary.
    ///
    /// # Errors
    /// A [`UsageError`] if the file is no result; otherwise if something cannot be written.
    pub fn run(&self) -> anyhow::Result<()> {
        let results = read(&self.result)?;
        if let Some(path) = &self.html {
            page::write(&results, path)?;
        }
        if let Some(path) = &self.markdown {
            super::write_whole(path, markdown::markdown(&results).as_bytes())?;
        }
        if self.details || (self.html.is_none() && self.markdown.is_none()) {
            anstream::print!("{}", terminal::summary(&results, self.details));
        }
        Ok(())
    }
}

/// The schema of results, as JSON with a line feed at its end.
#[must_use]
pub fn schema() -> String {
    let schema = serde_json::to_string_pretty(&schemars::schema_for!(Results));
    format!("{}\n", schema.expect("a schema is made of texts and numbers"))
}
