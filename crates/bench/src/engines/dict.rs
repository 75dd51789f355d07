//! A dictionary in a Python process: the ceiling that study B was published with.
//!
//! Threads and dictionary live in Python, so this engine has no connections: a workload that it knows runs as a script
//! of its own, see [`run`]. It has no settings.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use super::{Engine, Failure, Outcome, Settings, Store};

/// The script of the workload with counters.
const COUNTERS: &str = include_str!("../../scripts/dict_counters.py");

/// The interpreter that is looked for.
pub const PYTHON: &str = "python3";

/// A Python interpreter.
pub struct DictEngine {
    python: PathBuf,
}

impl DictEngine {
    /// An engine that uses this interpreter.
    #[must_use]
    pub fn new(python: &Path) -> Self {
        Self { python: python.to_owned() }
    }

    /// The interpreter's version.
    ///
    /// # Errors
    /// If it cannot be run.
    pub fn version(&self) -> anyhow::Result<String> {
        let said = Command::new(&self.python).arg("--version").output();
        let said = said.with_context(|| format!("cannot run {}", self.python.display()))?;
        let text = String::from_utf8_lossy(&said.stdout);
        let version = text.split_whitespace().nth(1);
        version.map(str::to_owned).context("it does not tell its version")
    }
}

impl Engine for DictEngine {
    fn open(&self, _directory: &Path, _settings: &Settings) -> Outcome<Box<dyn Store>> {
        Err(Failure::unsupported("a dictionary in a Python process only counts"))
    }

    fn python(&self) -> Option<&Path> {
        Some(&self.python)
    }
}

/// What the script is to do.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Counters {
    /// Threads of the pool.
    pub threads: u32,
    /// Transactions of all threads together.
    pub transactions: u64,
    /// Whether each has a key of its own; all raise one otherwise.
    pub distinct_keys: bool,
    /// Seconds to sleep in each.
    pub hold_s: f64,
}

/// What the script answers.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Counted {
    /// Seconds, start and end of the threads included.
    pub seconds: f64,
    /// Sum of all counters.
    pub sum: u64,
    /// Number of keys.
    pub keys: u64,
}

/// Runs the script.
///
/// # Errors
/// If the interpreter cannot be run or does not answer; its messages are in the error.
pub fn run(python: &Path, load: Counters) -> anyhow::Result<Counted> {
    let mut child = Command::new(python)
        .args(["-I", "-c", COUNTERS])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", python.display()))?;
    let mut input = child.stdin.take().expect("standard input is a pipe");
    input.write_all(&serde_json::to_vec(&load)?).context("cannot talk to the script")?;
    drop(input);
    let said = child.wait_with_output().context("cannot wait for the script")?;
    if !said.status.success() {
        bail!("the script ended with {}: {}", said.status, String::from_utf8_lossy(&said.stderr));
    }
    serde_json::from_slice(&said.stdout).context("the script did not answer in JSON")
}
