//! The engines and settings of the modern mode: defaults, and the best tuning their documentation gives.
//!
//! A row is [`Tuning::Default`] if all it sets is how durable a commit is (for SQLite's libraries also the journal that
//! goes with it); whatever else is set makes it tuned. LMDB's map size is set everywhere, for its own 10 MiB hold
//! nothing. Without a sync it may lose its whole file in a power cut, and is counted among those that promise nothing,
//! as is SQLite without a journal. redb's documentation names no setting that would help here: its cache is 1 GiB from
//! the start.

use super::super::{Request, Tuning};
use super::is_named_library;
use crate::engines::catalogue::Entry;
use crate::engines::{Begin, Durability, Settings};

/// An engine in a setting.
pub struct Variant<'a> {
    /// The engine, here or absent.
    pub entry: &'a Entry,
    /// Its part of a cell's id.
    pub slug: String,
    /// What it is called in charts.
    pub label: String,
    pub settings: Settings,
    pub durability: Durability,
    pub tuning: Tuning,
    /// How its transactions that write begin.
    pub begin: Begin,
    /// Whether its table of blob keys is asked to be without rowid.
    pub without_rowid: bool,
    /// Whether it takes part in the series over value sizes and in the largest size.
    pub represents: bool,
}

/// A row of the table below.
struct Row {
    slug: &'static str,
    label: &'static str,
    settings: &'static [(&'static str, &'static str)],
    durability: Durability,
    tuning: Tuning,
    represents: bool,
}

const fn row(
    slug: &'static str,
    label: &'static str,
    durability: Durability,
    tuning: Tuning,
    settings: &'static [(&'static str, &'static str)],
) -> Row {
    Row { slug, label, settings, durability, tuning, represents: false }
}

impl Row {
    const fn representing(self) -> Self {
        Self { represents: true, ..self }
    }
}

use Durability::{None as Nothing, PowerCut, Process};
use Tuning::{Default, Tuned};

/// SQLite's own advice for speed: WAL, a cache that holds the working set, reads through a map, and tables without rowid
/// where the key is no integer.
const SQLITE: &[Row] = &[
    row("defaults", "defaults", PowerCut, Default, &[]),
    row(
        "wal-full",
        "WAL FULL",
        PowerCut,
        Default,
        &[("journal_mode", "wal"), ("synchronous", "full")],
    )
    .representing(),
    row(
        "wal-full-tuned",
        "WAL FULL, tuned",
        PowerCut,
        Tuned,
        &[
            ("journal_mode", "wal"),
            ("synchronous", "full"),
            ("cache_size", "-262144"),
            ("mmap_size", "1073741824"),
        ],
    ),
    row(
        "wal-normal",
        "WAL NORMAL",
        Process,
        Default,
        &[("journal_mode", "wal"), ("synchronous", "normal")],
    ),
    row(
        "wal-normal-tuned",
        "WAL NORMAL, tuned",
        Process,
        Tuned,
        &[
            ("journal_mode", "wal"),
            ("synchronous", "normal"),
            ("cache_size", "-262144"),
            ("mmap_size", "1073741824"),
        ],
    ),
    row(
        "off",
        "no journal, OFF",
        Nothing,
        Default,
        &[("journal_mode", "off"), ("synchronous", "off")],
    ),
];

const PLAIT: &[Row] = &[
    row(
        "concurrent-full",
        "concurrent FULL",
        PowerCut,
        Default,
        &[("journal_mode", "concurrent"), ("synchronous", "full")],
    )
    .representing(),
    row(
        "concurrent-full-tuned",
        "concurrent FULL, tuned",
        PowerCut,
        Tuned,
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
        Default,
        &[("journal_mode", "concurrent"), ("synchronous", "normal")],
    ),
    row(
        "concurrent-normal-tuned",
        "concurrent NORMAL, tuned",
        Process,
        Tuned,
        &[
            ("journal_mode", "concurrent"),
            ("synchronous", "normal"),
            ("cache_size", "-262144"),
            ("mmap_size", "1073741824"),
        ],
    ),
];

const BDB_SQL: &[Row] = &[row("full", "FULL", PowerCut, Default, &[("synchronous", "full")])];

const BDB: &[Row] = &[
    row("sync", "sync", PowerCut, Default, &[("sync", "sync")]).representing(),
    row(
        "sync-tuned",
        "sync, tuned",
        PowerCut,
        Tuned,
        &[("sync", "sync"), ("cache_size", "268435456"), ("log_buffer", "4194304")],
    ),
    row("write-nosync", "write_nosync", Process, Default, &[("sync", "write_nosync")]),
    row(
        "write-nosync-tuned",
        "write_nosync, tuned",
        Process,
        Tuned,
        &[("sync", "write_nosync"), ("cache_size", "268435456"), ("log_buffer", "4194304")],
    ),
    row("nosync", "nosync", Nothing, Default, &[("sync", "nosync")]),
    row(
        "no-environment-tuned",
        "no environment, tuned",
        Nothing,
        Tuned,
        &[("environment", "none"), ("cache_size", "268435456")],
    ),
];

const LMDB: &[Row] = &[
    row("sync", "sync", PowerCut, Default, &[("sync", "full"), ("map_size", "4294967296")])
        .representing(),
    row(
        "sync-tuned",
        "sync, tuned",
        PowerCut,
        Tuned,
        &[
            ("sync", "full"),
            ("map_size", "4294967296"),
            ("write_map", "true"),
            ("no_readahead", "true"),
        ],
    ),
    row(
        "nometasync",
        "NOMETASYNC",
        Process,
        Default,
        &[("sync", "nometasync"), ("map_size", "4294967296")],
    ),
    row(
        "nosync",
        "NOSYNC, outlives the process",
        Nothing,
        Default,
        &[("sync", "nosync"), ("map_size", "4294967296")],
    ),
];

const ROCKSDB: &[Row] = &[
    row("sync", "sync", PowerCut, Default, &[("sync", "true")]).representing(),
    row(
        "sync-tuned",
        "sync, tuned",
        PowerCut,
        Tuned,
        &[
            ("sync", "true"),
            ("block_cache", "268435456"),
            ("bloom_bits", "10"),
            ("parallelism", "2"),
        ],
    ),
    row("defaults", "defaults (no sync)", Process, Default, &[]),
    row("no-log", "no log", Nothing, Default, &[("wal", "false")]),
];

const REDB: &[Row] = &[
    row("immediate", "immediate", PowerCut, Default, &[("durability", "immediate")]).representing(),
    row("none", "none", Nothing, Default, &[("durability", "none")]),
];

const FJALL: &[Row] = &[
    row("sync-all", "SyncAll", PowerCut, Default, &[("persist", "sync-all")]).representing(),
    row(
        "sync-data-tuned",
        "SyncData, tuned",
        PowerCut,
        Tuned,
        &[("persist", "sync-data"), ("cache_size", "268435456")],
    ),
    row("defaults", "defaults (no sync)", Process, Default, &[]),
];

const MAP: &[Row] = &[row("map", "", Nothing, Default, &[])];

fn rows(entry: &Entry) -> &'static [Row] {
    match entry.name.as_str() {
        "stock" => SQLITE,
        "plait" => PLAIT,
        "bdb-sql" => BDB_SQL,
        "bdb" => BDB,
        "lmdb" => LMDB,
        "rocksdb" => ROCKSDB,
        "redb" => REDB,
        "fjall" => FJALL,
        "map" => MAP,
        _ if is_named_library(entry) => SQLITE,
        _ => &[],
    }
}

/// All variants of the chosen engines, those of one engine together.
pub fn all(request: &Request) -> Vec<Variant<'_>> {
    let of = |entry| rows(entry).iter().map(move |row| variant(entry, row));
    request.engines.iter().flat_map(of).collect()
}

fn variant<'a>(entry: &'a Entry, row: &Row) -> Variant<'a> {
    let settings: Settings = row.settings.iter().copied().collect();
    let concurrent = settings.get("journal_mode") == Some("concurrent");
    Variant {
        entry,
        slug: format!("{}-{}", entry.name, row.slug),
        label: format!("{} {}", entry.title, row.label).trim_end().to_owned(),
        durability: row.durability,
        tuning: row.tuning,
        begin: if concurrent { Begin::Concurrent } else { Begin::Immediate },
        without_rowid: row.tuning == Tuned && settings.get("journal_mode").is_some(),
        settings,
        represents: row.represents,
    }
}
