//! The engines and settings of the modern mode: defaults, and the best tuning their documentation gives.
//!
//! Which rows are defaults and which are tuned follows from their settings ([`Tuning::of`]). LMDB's map size is set
//! everywhere, for its own 10 MiB hold nothing. Without a sync it may lose its whole file in a power cut, and is counted among those that promise nothing,
//! as is SQLite without a journal. redb's documentation names no setting that would help here: its cache is 1 GiB from
//! the start.

use super::super::draft::Arm;
use super::super::{Request, Tuning};
use super::is_named_library;
use crate::engines::catalogue::{Entry, is_limit};
use crate::engines::log;
use crate::engines::{Begin, Durability, Settings};
use crate::workloads::key_value::Step;

/// An engine in a setting.
pub struct Variant {
    pub arm: Arm,
    pub tuning: Tuning,
    /// How its transactions that write begin.
    pub begin: Begin,
    /// Whether its table of blob keys is asked to be without rowid.
    pub without_rowid: bool,
    /// Whether it takes part in the series over value sizes and in the largest size.
    pub represents: bool,
}

impl Variant {
    /// Whether it is a limit: of commits, each of which waits for the disk. Of reads it is none, nor of transactions
    /// of many rows, where its map has more to do than its log.
    pub fn is_limit(&self) -> bool {
        is_limit(&self.arm.engine)
    }

    /// Whether a chart of this step shows it.
    pub fn shows(&self, step: &Step) -> bool {
        !self.is_limit() || step.is_of_commits()
    }
}

/// A row of the table below.
struct Row {
    slug: &'static str,
    label: &'static str,
    settings: &'static [(&'static str, &'static str)],
    durability: Durability,
    represents: bool,
}

const fn row(
    slug: &'static str,
    label: &'static str,
    durability: Durability,
    settings: &'static [(&'static str, &'static str)],
) -> Row {
    Row { slug, label, settings, durability, represents: false }
}

impl Row {
    const fn representing(self) -> Self {
        Self { represents: true, ..self }
    }
}

use Durability::{None as Nothing, PowerCut, Process};

/// SQLite's own advice for speed: WAL, a cache that holds the working set, reads through a map, and tables without rowid
/// where the key is no integer.
const SQLITE: &[Row] = &[
    row("defaults", "defaults", PowerCut, &[]),
    row("wal-full", "WAL FULL", PowerCut, &[("journal_mode", "wal"), ("synchronous", "full")])
        .representing(),
    row(
        "wal-full-tuned",
        "WAL FULL, tuned",
        PowerCut,
        &[
            ("journal_mode", "wal"),
            ("synchronous", "full"),
            ("cache_size", "-262144"),
            ("mmap_size", "1073741824"),
        ],
    ),
    row("wal-normal", "WAL NORMAL", Process, &[("journal_mode", "wal"), ("synchronous", "normal")]),
    row(
        "wal-normal-tuned",
        "WAL NORMAL, tuned",
        Process,
        &[
            ("journal_mode", "wal"),
            ("synchronous", "normal"),
            ("cache_size", "-262144"),
            ("mmap_size", "1073741824"),
        ],
    ),
    row("off", "no journal, OFF", Nothing, &[("journal_mode", "off"), ("synchronous", "off")]),
];

const PLAIT: &[Row] = &[
    row(
        "concurrent-full",
        "concurrent FULL",
        PowerCut,
        &[("journal_mode", "concurrent"), ("synchronous", "full")],
    )
    .representing(),
    row(
        "concurrent-full-tuned",
        "concurrent FULL, tuned",
        PowerCut,
        &[
            ("journal_mode", "concurrent"),
            ("synchronous", "full"),
            ("cache_size", "-262144"),
            ("mmap_size", "1073741824"),
        ],
    ),
    row(
        "concurrent-normal",
        "concurrent NORMAL",
        Process,
        &[("journal_mode", "concurrent"), ("synchronous", "normal")],
    ),
    row(
        "concurrent-normal-tuned",
        "concurrent NORMAL, tuned",
        Process,
        &[
            ("journal_mode", "concurrent"),
            ("synchronous", "normal"),
            ("cache_size", "-262144"),
            ("mmap_size", "1073741824"),
        ],
    ),
];

/// Outside of a transaction an operation by keys never conflicts, and inside of one it belongs to BEGIN CONCURRENT.
const PLAIT_KV: &[Row] = PLAIT;

const BDB_SQL: &[Row] = &[row("full", "FULL", PowerCut, &[("synchronous", "full")])];

const BDB: &[Row] = &[
    row("sync", "sync", PowerCut, &[("sync", "sync")]).representing(),
    row(
        "sync-tuned",
        "sync, tuned",
        PowerCut,
        &[("sync", "sync"), ("cache_size", "268435456"), ("log_buffer", "4194304")],
    ),
    row("write-nosync", "write_nosync", Process, &[("sync", "write_nosync")]),
    row(
        "write-nosync-tuned",
        "write_nosync, tuned",
        Process,
        &[("sync", "write_nosync"), ("cache_size", "268435456"), ("log_buffer", "4194304")],
    ),
    row("nosync", "nosync", Nothing, &[("sync", "nosync")]),
    row(
        "no-environment-tuned",
        "no environment, tuned",
        Nothing,
        &[("environment", "none"), ("cache_size", "268435456")],
    ),
];

const LMDB: &[Row] = &[
    row("sync", "sync", PowerCut, &[("sync", "full"), ("map_size", "4294967296")]).representing(),
    row(
        "sync-tuned",
        "sync, tuned",
        PowerCut,
        &[
            ("sync", "full"),
            ("map_size", "4294967296"),
            ("write_map", "true"),
            ("no_readahead", "true"),
        ],
    ),
    row("nometasync", "NOMETASYNC", Process, &[("sync", "nometasync"), ("map_size", "4294967296")]),
    row(
        "nosync",
        "NOSYNC, outlives the process",
        Nothing,
        &[("sync", "nosync"), ("map_size", "4294967296")],
    ),
];

const ROCKSDB: &[Row] = &[
    row("sync", "sync", PowerCut, &[("sync", "true")]).representing(),
    row(
        "sync-tuned",
        "sync, tuned",
        PowerCut,
        &[
            ("sync", "true"),
            ("block_cache", "268435456"),
            ("bloom_bits", "10"),
            ("parallelism", "2"),
        ],
    ),
    row("defaults", "defaults (no sync)", Process, &[]),
    row("no-log", "no log", Nothing, &[("wal", "false")]),
];

const REDB: &[Row] = &[
    row("immediate", "immediate", PowerCut, &[("durability", "immediate")]).representing(),
    row("none", "none", Nothing, &[("durability", "none")]),
];

const FJALL: &[Row] = &[
    row("sync-all", "SyncAll", PowerCut, &[("persist", "sync-all")]).representing(),
    row(
        "sync-data-tuned",
        "SyncData, tuned",
        PowerCut,
        &[("persist", "sync-data"), ("cache_size", "268435456")],
    ),
    row("defaults", "defaults (no sync)", Process, &[]),
];

const MAP: &[Row] = &[row("map", "", Nothing, &[])];

/// See [`Variant::is_limit`].
const LOG: &[Row] = &[row("limit", "", PowerCut, &[]).representing()];

fn rows(entry: &Entry) -> &'static [Row] {
    match entry.name.as_str() {
        "stock" => SQLITE,
        "plait" => PLAIT,
        "plait-kv" => PLAIT_KV,
        "bdb-sql" => BDB_SQL,
        "bdb" => BDB,
        "lmdb" => LMDB,
        "rocksdb" => ROCKSDB,
        "redb" => REDB,
        "fjall" => FJALL,
        "map" => MAP,
        log::NAME => LOG,
        _ if is_named_library(entry) => SQLITE,
        _ => &[],
    }
}

/// All variants of the chosen engines, those of one engine together.
pub fn all(request: &Request) -> Vec<Variant> {
    let of = |entry| rows(entry).iter().map(move |row| variant(entry, row));
    request.engines.iter().flat_map(of).collect()
}

fn variant(entry: &Entry, row: &Row) -> Variant {
    let settings: Settings = row.settings.iter().copied().collect();
    let concurrent = settings.get("journal_mode") == Some("concurrent");
    let tuning = Tuning::of(&settings);
    Variant {
        tuning,
        begin: if concurrent { Begin::Concurrent } else { Begin::Immediate },
        without_rowid: tuning == Tuning::Tuned && settings.get("journal_mode").is_some(),
        represents: row.represents,
        arm: Arm {
            engine: entry.name.clone(),
            here: entry.engine().is_some(),
            id: format!("{}-{}", entry.name, row.slug),
            label: format!("{} {}", entry.title, row.label).trim_end().to_owned(),
            settings,
            durability: row.durability,
        },
    }
}
