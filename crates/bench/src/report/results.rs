//! The results of a run: everything the reports are made of, as JSON.
//!
//! The schema is documented in docs/benchmark-results.md. [`SCHEMA`] grows when a reader of an older version would
//! misread a newer file.

use std::io::{Read as _, Write as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engines::Durability;
use crate::engines::catalogue::{self, Entry};
use crate::measure::durability::Proof;
use crate::measure::machine::{Disturbance, Machine, Medium};
use crate::measure::phase::Phase;
use crate::measure::trace::Traced;
use crate::measure::trial::Answer;
use crate::studies::{Cell, Chart};

/// Version of the schema.
pub const SCHEMA: u32 = 1;
/// What a file compressed by gzip begins with (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Results {
    /// [`SCHEMA`] of the program that wrote it.
    pub schema: u32,
    /// Version of that program.
    pub version: String,
    /// Its command line, without the name of the program.
    pub command: Vec<String>,
    /// Seconds since 1970 when it began.
    pub started_unix_s: u64,
    /// Seconds it took.
    pub took_s: f64,
    /// Whether it was interrupted: some cells then have fewer trials than others, or none.
    pub interrupted: bool,
    /// Trials of each cell that were asked for.
    pub repeats: u32,
    /// Seed of keys, values and order.
    pub seed: u64,
    /// What was measured on.
    pub machine: Machine,
    /// The chosen engines, absent ones among them.
    pub engines: Vec<Entry>,
    /// What the traced passes showed of settings that claim to survive a power cut; see [`Results::unranked`].
    #[serde(default)]
    pub proofs: Vec<Proof>,
    /// What was measured.
    pub cells: Vec<CellResult>,
    /// What is shown of it.
    pub charts: Vec<Chart>,
}

/// A cell with its trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellResult {
    /// What was measured.
    pub cell: Cell,
    /// How often, in the order in which it was done.
    pub trials: Vec<Trial>,
    /// System calls, from a pass that is never ranked; only of cells that a chart of
    /// [`Metric::SystemCalls`](crate::studies::Metric::SystemCalls) shows.
    #[serde(default)]
    pub traced: Option<Traced>,
}

/// A trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// Its number among all trials of the run.
    pub position: u32,
    /// What surrounded it.
    pub disturbance: Disturbance,
    /// What came of it.
    #[serde(flatten)]
    pub answer: Answer,
}

impl CellResult {
    /// A phase of each trial that was done; the first phase when no name is given.
    pub fn phases<'a>(&'a self, name: Option<&'a str>) -> impl Iterator<Item = &'a Phase> {
        self.trials.iter().filter_map(|trial| trial.answer.measured()).filter_map(move |measured| {
            match name {
                None => measured.phases.first(),
                Some(name) => measured.phases.iter().find(|phase| phase.name == name),
            }
        })
    }
}

impl Results {
    /// A cell by its id.
    #[must_use]
    pub fn cell(&self, id: &str) -> Option<&CellResult> {
        self.cells.iter().find(|result| result.cell.id == id)
    }

    /// Why a cell is listed but not ranked: it claims a durability that was not shown, or it is
    /// [a limit](catalogue::is_limit).
    #[must_use]
    pub fn unranked(&self, cell: &Cell) -> Option<String> {
        let limit = catalogue::is_limit(&cell.engine).then(|| catalogue::LIMIT.to_owned());
        self.unproven(cell).or(limit)
    }

    /// Why the durability of a cell counts for nothing: it claims to survive a power cut, and that was not
    /// shown, or its medium is memory, where counted sync calls prove nothing. None for cells that claim less
    /// or whose every proof holds.
    fn unproven(&self, cell: &Cell) -> Option<String> {
        if cell.durability != Durability::PowerCut {
            return None;
        }
        let on = |medium: &&Medium| medium.directory == cell.medium && medium.is_memory();
        if let Some(medium) = self.machine.media.iter().find(on) {
            return medium.caution.clone().or_else(|| Some("its medium is memory".to_owned()));
        }
        let mut proofs = self
            .proofs
            .iter()
            .filter(|proof| proof.engine == cell.engine && proof.settings == cell.settings)
            .peekable();
        if proofs.peek().is_none() {
            return Some("its durability was not put to the proof".to_owned());
        }
        proofs.find(|proof| !proof.proven).map(|proof| proof.why.clone())
    }

    /// Reads a file, compressed by gzip or not, whatever its name.
    ///
    /// # Errors
    /// If it is not there, is no result, or one of a newer version.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let cannot = || format!("cannot read {}", path.display());
        let mut text = std::fs::read(path).with_context(cannot)?;
        if text.starts_with(&GZIP) {
            let compressed = std::mem::take(&mut text);
            MultiGzDecoder::new(&compressed[..]).read_to_end(&mut text).with_context(cannot)?;
        }
        let value: serde_json::Value = serde_json::from_slice(&text)
            .with_context(|| format!("{} is no JSON", path.display()))?;
        match value.get("schema").and_then(serde_json::Value::as_u64) {
            Some(schema) if schema <= u64::from(SCHEMA) => {}
            Some(schema) => {
                bail!("{} has schema {schema}; this version reads up to {SCHEMA}", path.display())
            }
            None => bail!("{} is no result of plait bench", path.display()),
        }
        serde_json::from_value(value)
            .with_context(|| format!("{} is no result of plait bench", path.display()))
    }

    /// Writes a file, whole or not at all; compressed if its name ends in `.gz`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let cannot = "the results cannot be written";
        let mut text = serde_json::to_vec_pretty(self).context(cannot)?;
        if path.extension().is_some_and(|extension| extension == "gz") {
            let mut compressed = GzEncoder::new(Vec::new(), Compression::default());
            compressed.write_all(&text).context(cannot)?;
            text = compressed.finish().context(cannot)?;
        }
        super::write_whole(path, &text)
    }
}
