//! System calls of a trial, counted in a traced pass that is never ranked.
//!
//! `plait-bench trace` starts `plait-bench trial`, follows it and everything it starts with ptrace(2), and counts system
//! calls while a measured section is open. A trial opens and closes sections with [`mark`], so that neither making
//! tables nor closing the store is counted. Tracing costs some ten microseconds for each call: the times of a traced
//! trial mean nothing.
//!
//! | module | what |
//! |---|---|
//! | [`mark`] | begin and end of a measured section, as a system call that only the tracer understands |
//! | `tracer` | follows threads and processes from stop to stop |
//! | `stops` | waiting for a stop, looking at it, going on |
//! | `calls` | which calls wait for the disk |

mod calls;
pub mod mark;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod stops;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod tracer;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::process;
use super::trial::{Answer, Spec};

/// The hidden command that is a tracer.
pub const COMMAND: &str = "trace";

/// What was counted between the begin and the end of the measured sections of a traced trial: all phases together, all
/// threads and processes of the trial, its server included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Traced {
    /// System calls.
    pub system_calls: u64,
    /// The same by name.
    pub by_name: BTreeMap<String, u64>,
    /// Calls that returned only when the disk had what they were given, by name: `fdatasync`, `pwrite64 (O_DSYNC)`.
    /// Only of files in the trial's directory.
    pub syncs: BTreeMap<String, u64>,
    /// Operations of the measured sections.
    pub operations: u64,
    /// What could not be counted or must be known to read the counts.
    pub notes: Vec<String>,
}

impl Traced {
    /// System calls for each operation; none without operations.
    #[must_use]
    pub fn per_operation(&self) -> Option<f64> {
        (self.operations > 0).then(|| self.system_calls as f64 / self.operations as f64)
    }

    /// Adds a note, once.
    pub(crate) fn note(&mut self, text: &str) {
        if !self.notes.iter().any(|note| note == text) {
            self.notes.push(text.to_owned());
        }
    }
}

/// What a tracer answers on its standard output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "tracing")]
pub enum Report {
    /// The trial was followed from before its work to its end.
    Followed {
        /// What came of the trial.
        #[serde(flatten)]
        answer: Answer,
        /// What was counted.
        traced: Traced,
    },
    /// Nothing can be traced here.
    Refused {
        /// Why.
        why: String,
    },
}

/// Is the tracer of the trial that standard input describes.
///
/// # Errors
/// If what stands there is no [`Spec`], or the trial cannot be started.
pub fn be_tracer() -> anyhow::Result<()> {
    process::die_with_parent()?;
    let mut text = Vec::new();
    std::io::stdin().lock().read_to_end(&mut text)?;
    let spec: Spec = serde_json::from_slice(&text)?;
    let report = follow(&std::env::current_exe()?, &text, &spec.directory)?;
    serde_json::to_writer(std::io::stdout().lock(), &report)?;
    Ok(())
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn follow(program: &Path, spec: &[u8], directory: &Path) -> anyhow::Result<Report> {
    tracer::follow(program, spec, directory)
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn follow(_: &Path, _: &[u8], _: &Path) -> anyhow::Result<Report> {
    Ok(Report::Refused { why: "system calls cannot be counted on this platform".to_owned() })
}
