//! The published sizes and configurations, for SQLite, Berkeley DB and Plait.
//!
//! A block of the published output is a chart, a line of it a group of bars, and a column a series. What is not known
//! of the original is done as follows: outside the transactional configuration nothing is begun, so that every insert is
//! a transaction of its own where there are any; selects never are in one. Berkeley DB's handles are opened with
//! DB_THREAD where there is an environment, and a deadlock detector is set that a single user never needs.

use super::super::draft::{Arm, Draft, Look, category, series};
use super::super::{Metric, Published, Request, Shape};
use super::published::{BLOCKS, Block, Configuration, TESTS};
use super::{bar, is_named_library, thousands};
use crate::engines::catalogue::Entry;
use crate::engines::{Begin, Durability, KeyKind, Settings};
use crate::workloads::Workload;
use crate::workloads::key_value::{Load, Part, Step};

/// Length of the values.
const VALUE_BYTES: usize = 100;
/// Inserts in each transaction of the transactional configuration.
const INSERTS_PER_TRANSACTION: u64 = 1000;
/// The largest size of a quick run.
const QUICK_ROWS_MAX: u64 = 5_000;

/// All blocks on the medium that the draft is on.
pub fn add(draft: &mut Draft<'_>, request: &Request) {
    for block in &BLOCKS {
        if !request.quick || block.rows <= QUICK_ROWS_MAX {
            add_block(draft, request, block);
        }
    }
}

fn add_block(draft: &mut Draft<'_>, request: &Request, block: &Block) {
    let (name, title) = match block.configuration {
        Configuration::Transient => ("transient", "Transient"),
        Configuration::Persistent => ("persistent", "Persistent, single user"),
        Configuration::Transactional => ("transactional", "Transactional, multi user"),
    };
    let (id, rows) = (format!("{name}-{}", block.rows), thousands(block.rows));
    let workload = Workload::KeyValue(load(block));
    let mut lines = Vec::new();
    for entry in &request.engines {
        let Some(settings) = settings(entry, block.configuration) else { continue };
        let arm = Arm {
            engine: entry.name.clone(),
            here: entry.engine().is_some(),
            id: entry.name.clone(),
            label: format!("{}, {rows} rows, {name}", entry.title),
            settings,
            durability: match block.configuration {
                Configuration::Transient | Configuration::Persistent => Durability::None,
                Configuration::Transactional => Durability::PowerCut,
            },
        };
        let cell = draft.cell(&arm, &format!("{id}/{}", arm.id), &workload);
        let points = TESTS.iter().map(|test| bar(cell.as_ref(), test));
        lines.push(series(&entry.title, &entry.name, points));
    }
    let look = Look {
        id: &id,
        title: &format!("{rows} rows, {title}"),
        note: &note(block.configuration),
        shape: Shape::Bars,
        metric: Metric::PerSecond,
        x_title: "test",
        logarithmic: true,
    };
    let published = vec![
        published("SQLite 3.6.19, 2009", "stock", &block.sqlite),
        published("Berkeley DB 4.8.24, 2009", "bdb", &block.bdb),
    ];
    draft.chart(look, lines, published);
}

/// How an engine is set up; none for engines that have no part in the study.
fn settings(entry: &Entry, configuration: Configuration) -> Option<Settings> {
    let pairs: &[(&str, &str)] = match (entry.name.as_str(), configuration) {
        ("bdb", Configuration::Transient) => {
            &[("environment", "none"), ("file", "temporary"), ("int_keys", "native")]
        }
        ("bdb", Configuration::Persistent) => {
            &[("environment", "none"), ("file", "disk"), ("int_keys", "native")]
        }
        ("bdb", Configuration::Transactional) => {
            &[("environment", "transactional"), ("int_keys", "native")]
        }
        // Temporary databases and other journals say nothing about it; where the publication has all defaults, its own mode is meant.
        ("plait-kv", Configuration::Transactional) => {
            &[("journal_mode", "concurrent"), ("synchronous", "full")]
        }
        (name, configuration) if ["stock", "plait"].contains(&name) || is_named_library(entry) => {
            match configuration {
                Configuration::Transient => &[("file", "temporary"), ("journal_mode", "off")],
                Configuration::Persistent => &[
                    ("journal_mode", "off"),
                    ("synchronous", "off"),
                    ("locking_mode", "exclusive"),
                ],
                Configuration::Transactional => &[],
            }
        }
        _ => return None,
    };
    Some(pairs.iter().copied().collect())
}

fn load(block: &Block) -> Load {
    let steps = || vec![Step::Insert, Step::Select];
    let transactional = block.configuration == Configuration::Transactional;
    Load {
        rows: block.rows,
        value_bytes: VALUE_BYTES,
        rows_per_transaction: transactional.then_some(INSERTS_PER_TRANSACTION),
        select_in_transactions: false,
        begin: Begin::Deferred,
        without_rowid: false,
        parts: vec![
            Part { keys: KeyKind::Int, steps: steps() },
            Part { keys: KeyKind::Blob, steps: steps() },
        ],
    }
}

fn published(label: &str, engine: &str, figures: &[u32; 4]) -> Published {
    let points = TESTS
        .iter()
        .zip(figures)
        .map(|(test, figure)| (category(test), f64::from(*figure)))
        .collect();
    Published { label: label.to_owned(), engine: engine.to_owned(), points }
}

fn note(configuration: Configuration) -> String {
    let how = match configuration {
        Configuration::Transient => {
            "SQLite: an unnamed temporary file, journal_mode=off. Berkeley DB: no environment, no file name."
        }
        Configuration::Persistent => {
            "SQLite: a file, journal_mode=off, synchronous=off, locking_mode=exclusive. Berkeley DB: a file, no \
             environment."
        }
        Configuration::Transactional => {
            "SQLite: a file, all defaults. Berkeley DB: an environment with lock, log, mpool and txn. 1,000 inserts a \
             transaction."
        }
    };
    format!(
        "{how} Random 64-bit integer keys and 24-byte blob keys, values of 100 random bytes, unsorted; every key is \
         selected in the order of insertion. Published: SQLite's wiki, August 2009, on 32-bit Linux 2.6.27 with ext3."
    )
}
