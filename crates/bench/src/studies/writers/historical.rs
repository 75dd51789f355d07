//! As published in 2010 and 2011: SQLite in its defaults and Berkeley DB SQL as configured there, five charts.

use super::load;
use super::rows::{Place, Row};
use crate::studies::draft::{Draft, Look};
use crate::studies::{Metric, Mode, Plan, Published, Request, Series, Shape, Study, X};

/// Threads of the published charts.
const THREADS: [u32; 11] = [1, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100];
/// Those of a glance, and of the traced passes.
const FEW_THREADS: [u32; 4] = [1, 10, 50, 100];

/// The published `DB_CONFIG`.
pub const DB_CONFIG: &str = "mutex_set_max 1000000; set_tx_max 500000; \
    set_lg_regionmax 524288; set_lg_bsize 4194304; set_lg_max 20971520; \
    set_lk_max_locks 10000; set_lk_max_lockers 10000; set_lk_max_objects 10000";

const NOTE: &str = "10,000 rows of about 400 bytes; a transaction is one random select and one random \
    update between BEGIN IMMEDIATE and COMMIT, repeated when refused. SQLite with its rollback journal and pages of \
    1 KiB; Berkeley DB SQL with pages of 16 KiB, a cache of 40,000 pages and the published DB_CONFIG. Published: Oracle \
    2010-11, Berkeley DB 11.1.5.0.26, SQLite 3.6.23, OpenSolaris in a virtual machine; of its charts only the levels \
    named in the text are known: SQLite 500 at any number of threads, Berkeley DB about 700 with one writer, levelling \
    at about 4,000. Its text reads them as about 50 % more processor time for nearly 300 % more \
    transactions. Processor time in system calls is the kernel's, of all processes of the trial. The rows with \
    synchronous=OFF are its relaxed ones.";

fn rows(request: &Request) -> Vec<Row> {
    let row = |id, engine, label, settings: &[_]| Row::new(request, id, engine, label, settings);
    let bdb = [("page_size", "16384"), ("cache_size", "40000"), ("db_config", DB_CONFIG)];
    let off = ("synchronous", "off");
    vec![
        row("stock", "stock", "SQLite", &[("page_size", "1024")]),
        row("bdb-sql", "bdb-sql", "Berkeley DB SQL", &bdb),
        row("stock-off", "stock", "SQLite, synchronous=OFF", &[("page_size", "1024"), off])
            .process_only(),
        row(
            "bdb-sql-off",
            "bdb-sql",
            "Berkeley DB SQL, synchronous=OFF",
            &[bdb[0], bdb[1], bdb[2], off],
        )
        // Its commits then wait in the buffer of their process.
        .without_promise(),
    ]
}

fn seconds(request: &Request) -> f64 {
    match (request.quick, request.thorough) {
        (true, _) => 0.2,
        (_, true) => 3.0,
        _ => 0.5,
    }
}

/// The published levels.
fn published() -> Vec<Published> {
    let level = |threads: &[u32], rate: f64| -> Vec<(X, f64)> {
        threads.iter().map(|t| (X::Number(f64::from(*t)), rate)).collect()
    };
    vec![
        Published {
            label: "SQLite 3.6.23, 2010".to_owned(),
            engine: "stock".to_owned(),
            points: level(&THREADS, 500.0),
        },
        Published {
            label: "Berkeley DB 11.1.5.0.26, 2010 (ends of its line)".to_owned(),
            engine: "bdb-sql".to_owned(),
            points: [level(&[1], 700.0), level(&[100], 4000.0)].concat(),
        },
    ]
}

pub fn plan(request: &Request) -> Plan {
    let rows = rows(request);
    let mut draft = Draft::new(Study::Writers, Mode::Historical);
    for (number, medium) in request.media.iter().enumerate() {
        draft.on(number, medium);
        threads(&mut draft, request, &rows);
        // What an engine does when transactions meet does not depend on the medium.
        if number == 0 {
            rows[..2].iter().for_each(|row| row.behaviour(&mut draft));
        }
    }
    draft.finish()
}

/// The published charts.
fn threads(draft: &mut Draft<'_>, request: &Request, rows: &[Row]) {
    let threads: &[u32] = if request.quick { &FEW_THREADS } else { &THREADS };
    let places = |threads: &[u32]| -> Vec<Place> {
        threads.iter().map(|t| Place::workers(load(*t, seconds(request)))).collect()
    };
    let all: Vec<Series> =
        rows.iter().filter_map(|row| row.series(draft, "threads", places(threads))).collect();
    // A traced pass takes many times as long: of default durability and few numbers of threads only.
    let traced: Vec<Series> = rows[..2]
        .iter()
        .filter_map(|row| row.series(draft, "threads", places(&FEW_THREADS)))
        .collect();
    for (id, title, metric) in [
        ("throughput", "Transactions a second", Metric::PerSecond),
        ("cpu", "Processor utilisation", Metric::CpuPercent),
        ("system-cpu", "Processor time in system calls", Metric::SystemCpu),
        ("transaction-cpu", "Processor time in transactions", Metric::TransactionCpu),
        ("busy", "Calls of the busy handler", Metric::BusyCalls),
        ("system-calls", "System calls, counted (not in the publication)", Metric::SystemCalls),
    ] {
        let look = Look {
            id,
            title,
            note: NOTE,
            shape: Shape::Lines,
            metric,
            x_title: "threads",
            logarithmic: metric == Metric::PerSecond,
        };
        let series = if metric == Metric::SystemCalls { traced.clone() } else { all.clone() };
        let ghosts = if metric == Metric::PerSecond { published() } else { Vec::new() };
        draft.chart(look, series, ghosts);
    }
}
