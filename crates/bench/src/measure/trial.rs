//! One cell measured once, in a process and directory of its own.
//!
//! The parent writes a [`Spec`] as JSON to the standard input of this program started as `plait-bench trial`, and reads
//! an [`Answer`] from its standard output. What the engine's library prints goes to standard error and is shown when a
//! trial fails.

use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::process;
use crate::engines::catalogue::Kind;
use crate::engines::{Failure, Settings};
use crate::workloads::{Measured, Site, Workload};

/// The hidden command that is a trial.
pub const COMMAND: &str = "trial";

/// What a trial is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spec {
    /// The engine.
    pub engine: Kind,
    /// Its settings.
    pub settings: Settings,
    /// The work.
    pub workload: Workload,
    /// An empty directory.
    pub directory: PathBuf,
    /// Seed of keys, values and order.
    pub seed: u64,
}

/// What came of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum Answer {
    /// Done and verified.
    Done(Box<Measured>),
    /// The engine has no such operation or setting.
    NotApplicable {
        /// Which one.
        why: String,
    },
    /// Not done, or done wrongly. Never counted.
    Failed {
        /// What went wrong.
        why: String,
    },
}

impl Answer {
    /// Why there are no figures.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Done(_) => None,
            Self::NotApplicable { why } | Self::Failed { why } => Some(why),
        }
    }

    /// The figures of a trial that was done.
    #[must_use]
    pub fn measured(&self) -> Option<&Measured> {
        match self {
            Self::Done(measured) => Some(measured),
            Self::NotApplicable { .. } | Self::Failed { .. } => None,
        }
    }
}

impl Spec {
    /// Does the trial in this process.
    #[must_use]
    pub fn run(&self) -> Answer {
        let measured = self.engine.load().and_then(|engine| {
            let site = Site {
                engine: engine.as_ref(),
                kind: Some(&self.engine),
                settings: &self.settings,
                directory: self.directory.clone(),
                seed: self.seed,
            };
            self.workload.run(&site)
        });
        match measured {
            Ok(measured) => Answer::Done(Box::new(Measured {
                file_bytes: size_of(&self.directory),
                ..measured
            })),
            Err(Failure::Unsupported(why)) => Answer::NotApplicable { why },
            Err(failure) => Answer::Failed { why: failure.to_string() },
        }
    }
}

/// Bytes that all files below a directory take on disk: a file that is preallocated and mostly a hole counts what it
/// holds. What cannot be read counts nothing.
#[must_use]
pub fn size_of(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => size_of(&entry.path()),
            Ok(kind) if kind.is_file() => entry.metadata().map_or(0, |m| m.blocks() * 512),
            _ => 0,
        })
        .sum()
}

/// Is the trial that standard input describes.
///
/// # Errors
/// If what stands there is no [`Spec`].
pub fn be_trial() -> anyhow::Result<()> {
    process::die_with_parent()?;
    fail_at_panic();
    let spec: Spec = serde_json::from_reader(std::io::stdin().lock())?;
    // What a library prints must not stand in the answer.
    let answers = std::fs::File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    nix::unistd::dup2_stdout(std::io::stderr())?;
    serde_json::to_writer(answers, &spec.run())?;
    Ok(())
}

/// A thread that panics takes the process with it: others might wait for it until the trial's time is over.
fn fail_at_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::{Begin, catalogue};
    use crate::workloads::proof;

    fn proof_on(name: &str, settings: Settings) -> Measured {
        let entries = catalogue::all(&[]).unwrap();
        let entry = entries.iter().find(|e| e.name == name).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let spec = Spec {
            engine: entry.engine().unwrap_or_else(|| panic!("{entry:?}")).clone(),
            settings,
            workload: Workload::Proof(proof::Load {
                workers: 2,
                commits_each: 5,
                begin: Begin::Immediate,
            }),
            directory: directory.path().to_owned(),
            seed: 1,
        };
        let answer = spec.run();
        let measured = answer.measured().unwrap_or_else(|| panic!("{answer:?}")).clone();
        assert_eq!(measured.phases[0].commits, 10);
        assert!(measured.file_bytes > 0);
        measured
    }

    #[test]
    fn a_trial_on_stock_sqlite_is_done_and_verified() {
        let wal = Settings::default().with("journal_mode", "wal").with("synchronous", "full");
        assert_eq!(proof_on("stock", wal).settings.get("journal_mode"), Some("wal"));
    }

    #[test]
    fn a_trial_on_berkeley_db_sql_is_done_and_configured_where_it_is_installed() {
        let Some(_) = catalogue::shared_library("libdb_sql-5.3.so") else {
            println!("skipped: Berkeley DB SQL is not installed");
            return;
        };
        let settings = Settings::default()
            .with("page_size", 16384)
            .with("cache_size", 40_000)
            .with("db_config", "set_lg_bsize 4194304; set_lg_max 20971520");
        let told = proof_on("bdb-sql", settings).settings;
        assert_eq!(told.get("page_size"), Some("16384"));
        assert_eq!(told.get("cache_size"), Some("40000"));
        let log_bytes: u64 = told.parse("log_file_bytes").unwrap().unwrap();
        assert!((20_000_000..21_000_000).contains(&log_bytes), "set_lg_max did not take: {told}");
    }

    #[test]
    fn a_trial_on_postgres_is_done_and_verified_where_it_is_installed() {
        if crate::engines::postgres::find().is_none() {
            println!("skipped: PostgreSQL is not installed");
            return;
        }
        let measured = proof_on("postgres", Settings::default().with("synchronous_commit", "off"));
        assert_eq!(measured.settings.get("synchronous_commit"), Some("off"));
        assert_eq!(measured.settings.get("default_transaction_isolation"), Some("serializable"));
    }
}
