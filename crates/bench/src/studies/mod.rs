//! The studies: which cells are measured, and which charts and tables they make.
//!
//! A study is a function from a [`Request`] to a [`Plan`]. It measures nothing itself.
//!
//! | module | study |
//! |---|---|
//! | [`kv`] | A: SQLite as a key-value database, against Berkeley DB and today's stores |
//! | [`modes`] | B: journal mode by synchronous |
//! | [`files`] | C: SQLite against the file system |
//! | [`writers`] | D: many writers, Berkeley DB SQL against SQLite; E: the same for longer, and the closing |
//!
//! [`draft`] keeps cells that several charts of a study share, [`tuning`] tells defaults from tuned settings, [`written`]
//! reads a plan from a file.

pub mod draft;
pub mod files;
pub mod kv;
pub mod modes;
pub mod tuning;
pub mod writers;
pub mod written;

use std::path::PathBuf;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engines::catalogue::Entry;
use crate::engines::{Durability, Settings};
use crate::workloads::Workload;

pub use tuning::Tuning;

/// The studies by name.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Study {
    /// SQLite as a key-value database against Berkeley DB
    Kv,
    /// Journal mode x synchronous
    Modes,
    /// SQLite against the file system
    Files,
    /// Berkeley DB SQL against SQLite
    Writers,
    /// Long runs, closing included
    Steady,
    /// What `advise` measures: one need, all engines that can serve it
    #[value(skip)]
    Advise,
    /// Of `quick`: Plait beside SQLite, with a few crews of writers
    #[value(skip)]
    Quick,
}

/// As published, or past it. The two never share a chart.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Sizes, threads, transactions and tables exactly as published, with the published figures beside.
    Historical,
    /// What today's users ask.
    Modern,
}

/// One engine in one setting doing one piece of work: what is measured several times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// Unique and stable from run to run: `writers/modern/threads/plait-full-concurrent/100`.
    pub id: String,
    /// Of which study.
    pub study: Study,
    /// In which mode.
    pub mode: Mode,
    /// Name of the engine in the catalogue.
    pub engine: String,
    /// What the row or line is called: `Plait FULL, BEGIN CONCURRENT`.
    pub label: String,
    /// How the engine is set up.
    pub settings: Settings,
    /// What a commit is claimed to survive.
    pub durability: Durability,
    /// Defaults or tuned, by [`Tuning::of`] its settings.
    pub tuning: Tuning,
    /// What is done.
    #[serde(flatten)]
    pub workload: Workload,
    /// The medium: which of the given directories.
    pub medium: PathBuf,
}

/// What a chart shows of its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// [`rate`](crate::measure::phase::Phase::rate).
    PerSecond,
    /// Seconds of the phase.
    Seconds,
    /// Processor seconds by seconds, in percent of one processor.
    CpuPercent,
    /// Processor microseconds for each operation.
    CpuPerOperation,
    /// Processor seconds between begin and commit, for each thousand transactions.
    TransactionCpu,
    /// Processor seconds in the kernel (system calls, faults, interrupts of their own) for each thousand transactions.
    SystemCpu,
    /// Calls of busy handlers for each thousand transactions.
    BusyCalls,
    /// System calls for each operation, from the traced pass; every cell in such a chart gets one.
    SystemCalls,
    /// Repeated transactions in percent.
    RefusedPercent,
    /// Bytes in the trial's directory while the work went on.
    FileBytes,
    /// The whole distribution of latencies.
    Latency,
}

/// Shape of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// A line for each series over a number.
    Lines,
    /// A group of bars for each category, a bar for each series.
    Bars,
    /// A curve for each series: latency over percentile.
    Distribution,
}

/// Where a point stands: a number (threads), or a category ("select int").
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum X {
    /// On a line.
    Number(f64),
    /// In a group.
    Category(String),
}

/// A point that is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    /// Where it stands.
    pub x: X,
    /// The cell's id.
    pub cell: String,
    /// The phase of the cell; the first when left out.
    pub phase: Option<String>,
}

/// A line, or the bars of one colour.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// What it is called.
    pub label: String,
    /// The engine it belongs to, for the filter.
    pub engine: String,
    /// Its points. None for an engine that is absent.
    pub points: Vec<Point>,
}

/// A line or bars from a publication.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Published {
    /// What it is called: `SQLite 3.6.19, 2009`.
    pub label: String,
    /// Which measured engine it is the ghost of.
    pub engine: String,
    /// Places and values.
    pub points: Vec<(X, f64)>,
}

/// What a chart is, but for its figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Frame {
    /// Unique and stable: `writers/modern/threads`.
    pub id: String,
    /// Of which study.
    pub study: Study,
    /// In which mode.
    pub mode: Mode,
    /// What it shows.
    pub title: String,
    /// What a reader must know to read it: sizes, settings, source of the published figures.
    pub note: String,
    /// Its shape.
    pub shape: Shape,
    /// What its points show.
    pub metric: Metric,
    /// What stands under the horizontal axis: `threads`.
    pub x_title: String,
    /// Whether the vertical axis is better logarithmic.
    pub logarithmic: bool,
}

/// A chart with its table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Chart {
    /// What it is.
    #[serde(flatten)]
    pub frame: Frame,
    /// Measured.
    pub series: Vec<Series>,
    /// Published; only in historical mode.
    pub published: Vec<Published>,
}

/// What a study measures and shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// What is measured.
    pub cells: Vec<Cell>,
    /// What is shown.
    pub charts: Vec<Chart>,
}

/// What is asked of a study.
#[derive(Clone, Debug)]
pub struct Request {
    /// As published or past it.
    pub mode: Mode,
    /// Small sizes and few cells, to be done within a minute or so.
    pub quick: bool,
    /// The largest sizes and all combinations, however long they take.
    pub thorough: bool,
    /// The chosen engines, absent ones among them: they keep their place as series without points.
    pub engines: Vec<Entry>,
    /// Directories on the media to be measured; at least one.
    pub media: Vec<PathBuf>,
}

impl Request {
    /// A chosen engine by name, here or absent.
    #[must_use]
    pub fn engine(&self, name: &str) -> Option<&Entry> {
        self.engines.iter().find(|entry| entry.name == name)
    }
}

impl Study {
    /// All that are asked for by name, in the order in which they are shown.
    pub const ALL: [Self; 5] = [Self::Kv, Self::Modes, Self::Files, Self::Writers, Self::Steady];

    /// Whether there is a publication that it repeats.
    #[must_use]
    pub fn is_published(self) -> bool {
        !matches!(self, Self::Steady | Self::Advise | Self::Quick)
    }

    /// What it measures and shows.
    #[must_use]
    pub fn plan(self, request: &Request) -> Plan {
        match self {
            Self::Kv => kv::plan(request),
            Self::Modes => modes::plan(request),
            Self::Files => files::plan(request),
            Self::Writers => writers::plan(request),
            Self::Steady => writers::steady_plan(request),
            // Their plans depend on a need and on a directory, not on a request.
            Self::Advise | Self::Quick => Plan::default(),
        }
    }
}
