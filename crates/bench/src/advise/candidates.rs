//! Which engines, in which settings, can serve a need.

use std::path::Path;

use super::Need;
use crate::engines::catalogue::{self, Entry, Kind};
use crate::engines::{Begin, Durability};
use crate::studies::draft::{Arm, Draft, Look, category, series};
use crate::studies::{Metric, Mode, Plan, Point, Shape, Study};
use crate::workloads::Workload;
use crate::workloads::crew::{Amount, Place, Shift};
use crate::workloads::transactions::Load;

/// A way to set an engine up.
struct Option {
    /// What follows the engine's name in the table.
    label: &'static str,
    settings: &'static [(&'static str, &'static str)],
    begin: Begin,
    durability: Durability,
}

/// A way whose commits survive a power cut.
const fn safe(
    label: &'static str,
    begin: Begin,
    settings: &'static [(&'static str, &'static str)],
) -> Option {
    Option { label, settings, begin, durability: Durability::PowerCut }
}

/// A way whose commits survive the death of the process, the newest not always a power cut.
const fn quick(
    label: &'static str,
    begin: Begin,
    settings: &'static [(&'static str, &'static str)],
) -> Option {
    Option { label, settings, begin, durability: Durability::Process }
}

/// A library with SQLite's interface.
const SQLITE: &[Option] = &[
    safe("rollback journal, as it comes", Begin::Immediate, &[("busy", "timeout")]),
    safe(
        "WAL, synchronous=FULL",
        Begin::Immediate,
        &[("journal_mode", "wal"), ("synchronous", "full"), ("busy", "timeout")],
    ),
    quick(
        "WAL, synchronous=NORMAL",
        Begin::Immediate,
        &[("journal_mode", "wal"), ("synchronous", "normal"), ("busy", "timeout")],
    ),
];

/// Berkeley DB SQL has one journal mode, whatever is asked for.
const BDB_SQL: &[Option] = &[
    safe("as it comes", Begin::Immediate, &[("busy", "timeout")]),
    quick(
        "synchronous=NORMAL",
        Begin::Immediate,
        &[("synchronous", "normal"), ("busy", "timeout")],
    ),
];

const PLAIT: &[Option] = &[
    safe(
        "concurrent, FULL, BEGIN IMMEDIATE",
        Begin::Immediate,
        &[("journal_mode", "concurrent"), ("synchronous", "full"), ("busy", "timeout")],
    ),
    safe(
        "concurrent, FULL, BEGIN CONCURRENT",
        Begin::Concurrent,
        &[("journal_mode", "concurrent"), ("synchronous", "full"), ("busy", "timeout")],
    ),
    quick(
        "concurrent, NORMAL, BEGIN IMMEDIATE",
        Begin::Immediate,
        &[("journal_mode", "concurrent"), ("synchronous", "normal"), ("busy", "timeout")],
    ),
    quick(
        "concurrent, NORMAL, BEGIN CONCURRENT",
        Begin::Concurrent,
        &[("journal_mode", "concurrent"), ("synchronous", "normal"), ("busy", "timeout")],
    ),
];

const POSTGRES: &[Option] = &[
    safe("as it comes, serializable", Begin::Immediate, &[]),
    quick("synchronous_commit=off", Begin::Immediate, &[("synchronous_commit", "off")]),
];

const TURSO: &[Option] = &[
    safe("WAL", Begin::Immediate, &[("journal_mode", "wal"), ("synchronous", "full")]),
    safe(
        "MVCC, BEGIN CONCURRENT",
        Begin::Concurrent,
        &[("journal_mode", "mvcc"), ("synchronous", "full")],
    ),
];

/// Berkeley DB by keys. Its own cache of 256 KiB would hold none of the tables.
const BDB: &[Option] = &[
    safe("as it comes", Begin::Immediate, &[]),
    safe(
        "cache of 256 MiB, 16 MiB of log buffer",
        Begin::Immediate,
        &[("cache_size", "268435456"), ("log_buffer", "16777216")],
    ),
    quick(
        "cache of 256 MiB, write_nosync",
        Begin::Immediate,
        &[("cache_size", "268435456"), ("sync", "write_nosync")],
    ),
];

const LMDB: &[Option] = &[
    safe("as it comes", Begin::Immediate, &[]),
    quick("without syncs", Begin::Immediate, &[("sync", "nosync")]),
];

/// Without a sync at commit, redb keeps commits in memory, where they do not survive the process.
const REDB: &[Option] = &[safe("as it comes", Begin::Immediate, &[])];

/// By its transaction database, which locks the rows that a transaction reads for update.
const ROCKSDB: &[Option] = &[
    safe("sync at each commit", Begin::Immediate, &[("sync", "true")]),
    quick("as it comes", Begin::Immediate, &[]),
];

const FJALL: &[Option] = &[
    safe("sync_all at each commit", Begin::Concurrent, &[("persist", "sync-all")]),
    quick("as it comes", Begin::Concurrent, &[]),
];

/// The ways of an engine; none for what no need is served by (memory alone, plain files without transactions).
fn options(entry: &Entry, kind: &Kind) -> &'static [Option] {
    match kind {
        Kind::Sqlite { .. } if entry.name == "plait" => PLAIT,
        Kind::Sqlite { .. } if entry.name == "bdb-sql" => BDB_SQL,
        Kind::Sqlite { .. } => SQLITE,
        Kind::Postgres { .. } => POSTGRES,
        Kind::Turso => TURSO,
        Kind::Bdb { .. } => BDB,
        Kind::Lmdb => LMDB,
        Kind::Redb => REDB,
        Kind::Rocksdb { .. } => ROCKSDB,
        Kind::Fjall => FJALL,
        // What Plait is advised for is SQL; its key-value API works on the same tables.
        Kind::PlaitKv { .. }
        | Kind::Map
        | Kind::Log
        | Kind::Files
        | Kind::Dict { .. }
        | Kind::Fake { .. } => &[],
    }
}

/// What is measured to answer a need, with a chart of it, and who cannot serve it and why.
#[must_use]
pub fn plan(need: &Need, engines: &[Entry], medium: &Path, seconds: f64) -> (Plan, Vec<String>) {
    let mut draft = Draft::new(Study::Advise, Mode::Modern);
    draft.on(0, medium);
    let (mut lines, mut others) = (Vec::new(), Vec::new());
    for entry in engines {
        let Some(kind) = entry.engine() else {
            others.push(format!("{}: absent", entry.title));
            continue;
        };
        if catalogue::is_limit(&entry.name) {
            others.push(format!("{}: {}", entry.title, catalogue::LIMIT));
            continue;
        }
        if need.processes && !kind.serves_processes() {
            others.push(format!("{}: a store belongs to one process", entry.title));
            continue;
        }
        if options(entry, kind).is_empty() {
            others.push(format!("{}: keeps nothing, or has no transactions", entry.title));
            continue;
        }
        let fit = |o: &&Option| !need.survive_power_cut || o.durability == Durability::PowerCut;
        for option in options(entry, kind).iter().filter(fit) {
            let arm = Arm {
                engine: entry.name.clone(),
                here: true,
                id: format!("{}/{}", entry.name, option.label),
                label: format!("{}: {}", entry.title, option.label),
                settings: option.settings.iter().copied().collect(),
                durability: option.durability,
            };
            let cell = draft.cell(&arm, &arm.id, &workload(need, option.begin, seconds));
            let point = cell.map(|cell| Point { x: category("commits"), cell, phase: None });
            lines.push(series(&arm.label, &arm.engine, [point]));
        }
    }
    let look = Look {
        id: "",
        title: "What can serve the need",
        note: "Transactions of random reads and one update, all counters verified.",
        shape: Shape::Bars,
        metric: Metric::PerSecond,
        x_title: "",
        logarithmic: true,
    };
    draft.chart(look, lines, Vec::new());
    (draft.finish(), others)
}

/// The transactions of a need, begun in one way.
#[must_use]
pub fn workload(need: &Need, begin: Begin, seconds: f64) -> Workload {
    Workload::Transactions(Load {
        rows: need.measured_rows(),
        value_bytes: need.value_bytes,
        reads: need.reads,
        updates: 1,
        begin,
        shift: Shift {
            workers: need.writers,
            amount: Amount::Seconds(seconds),
            due_per_second: None,
            count_start_and_stop: false,
        },
        place: if need.processes { Place::Processes } else { Place::Threads },
    })
}
