//! Past the publication: journal modes of today, other engines, processes, other loads, latency at given rates.

use super::historical::DB_CONFIG;
use super::load;
use super::rows::{Place, Row};
use crate::engines::Begin;
use crate::engines::catalogue::Kind;
use crate::engines::log;
use crate::studies::draft::{Draft, LARGE_CACHE, Look};
use crate::studies::{Metric, Mode, Plan, Request, Series, Shape, Study, X};
use crate::workloads::crew;
use crate::workloads::writers::{Load, Mix};

/// Threads of the loads whose number of threads is not what is looked at.
const WORKERS: u32 = 8;

const NOTE: &str = "10,000 rows of about 400 bytes; a transaction is one random select and one random \
    update, repeated when refused. BEGIN CONCURRENT where the row says so, else BEGIN IMMEDIATE, which any program for \
    SQLite can use unchanged. The bare log is no store: it appends the new rows of a map in memory, with one sync for each \
    group of commits. Processor time and system calls are of the whole trial, servers included.";

/// Stock SQLite's and Berkeley DB's files, Plait's log, a server's cluster.
const CONCURRENT_FULL: [(&str, &str); 2] =
    [("journal_mode", "concurrent"), ("synchronous", "full")];
const CONCURRENT_NORMAL: [(&str, &str); 2] =
    [("journal_mode", "concurrent"), ("synchronous", "normal")];
const WAL_FULL: [(&str, &str); 2] = [("journal_mode", "wal"), ("synchronous", "full")];
const WAL_NORMAL: [(&str, &str); 2] = [("journal_mode", "wal"), ("synchronous", "normal")];
/// As its documentation advises for readers beside writers; the rest as in the publication.
const BDB: [(&str, &str); 3] =
    [("page_size", "16384"), ("cache_size", "40000"), ("db_config", DB_CONFIG)];
const BDB_SNAPSHOTS: [(&str, &str); 5] =
    [BDB[0], BDB[1], BDB[2], ("multiversion", "1"), ("snapshot_isolation", "1")];

/// A way with a cache that holds the table.
fn cached(way: [(&'static str, &'static str); 2]) -> [(&'static str, &'static str); 4] {
    [way[0], way[1], LARGE_CACHE[0], LARGE_CACHE[1]]
}

/// The rows by what they are for.
pub struct Rows {
    /// Stock in WAL, Plait in both ways, Berkeley DB as published: one of each kind, all durable.
    pub main: Vec<Row>,
    /// Further durable ones: defaults, other settings, servers, libraries named by the user.
    pub further: Vec<Row>,
    /// With reduced durability.
    pub reduced: Vec<Row>,
    /// The bare log: in charts of durable writes, and of threads only.
    limit: Row,
    postgres: Row,
}

pub fn rows(request: &Request) -> Rows {
    let row = |id: &str, engine: &str, label: &str, settings: &[_]| {
        Row::new(request, id, engine, label, settings)
    };
    let concurrent = Some(Begin::Concurrent);
    let postgres = row("postgres", "postgres", "PostgreSQL, serializable", &[]).begin(concurrent);
    let turso_settings = [("journal_mode", "mvcc"), ("synchronous", "full")];
    let mutex = [WAL_FULL[0], WAL_FULL[1], ("mutex", "application")];
    let mut further = vec![
        row("stock-default", "stock", "SQLite, defaults", &[]),
        row("stock-wal-mutex", "stock", "SQLite WAL, one mutex of the program", &mutex),
        row("stock-wal-cache", "stock", "SQLite WAL, large cache and map", &cached(WAL_FULL)),
        row(
            "plait-concurrent-cache",
            "plait",
            "Plait, CONCURRENT, large cache and map",
            &cached(CONCURRENT_FULL),
        )
        .begin(concurrent),
        row("bdb-sql-default", "bdb-sql", "Berkeley DB SQL, defaults", &[]),
        row("bdb-sql-snapshots", "bdb-sql", "Berkeley DB SQL, snapshots", &BDB_SNAPSHOTS),
        row("turso", "turso", "Turso MVCC, CONCURRENT", &turso_settings).begin(concurrent),
        postgres.clone(),
    ];
    let known = ["stock", "plait", "bdb-sql", "postgres", "turso"];
    // SQLite's own busy timeout, not a handler that counts: with one a library built with blocking locks polls instead.
    let way = [WAL_FULL[0], WAL_FULL[1], ("busy", "timeout")];
    for entry in &request.engines {
        if matches!(entry.engine(), Some(Kind::Sqlite { .. })) && !known.contains(&&*entry.name) {
            let label = format!("{}, WAL", entry.title);
            further.push(row(&entry.name, &entry.name, &label, &way));
            // A library that does not know it says so, in each trial.
            let id = format!("{}-concurrent", entry.name);
            let label = format!("{}, WAL, CONCURRENT", entry.title);
            further.push(row(&id, &entry.name, &label, &way).begin(concurrent));
        }
    }
    Rows {
        main: vec![
            row("stock-wal", "stock", "SQLite WAL", &WAL_FULL),
            row("plait-immediate", "plait", "Plait, IMMEDIATE", &CONCURRENT_FULL),
            row("plait-concurrent", "plait", "Plait, CONCURRENT", &CONCURRENT_FULL)
                .begin(concurrent),
            row("bdb-sql", "bdb-sql", "Berkeley DB SQL", &BDB),
        ],
        further,
        reduced: reduced(request),
        limit: row("log", log::NAME, log::TITLE, &[]),
        postgres,
    }
}

/// Rows that promise less.
fn reduced(request: &Request) -> Vec<Row> {
    let row = |id: &str, engine: &str, label: &str, settings: &[_]| {
        Row::new(request, id, engine, label, settings)
    };
    let concurrent = Some(Begin::Concurrent);
    let normal = ("synchronous", "normal");
    vec![
        row("stock-wal-normal", "stock", "SQLite WAL NORMAL", &WAL_NORMAL).process_only(),
        row("plait-immediate-normal", "plait", "Plait NORMAL, IMMEDIATE", &CONCURRENT_NORMAL)
            .process_only(),
        row("plait-concurrent-normal", "plait", "Plait NORMAL, CONCURRENT", &CONCURRENT_NORMAL)
            .begin(concurrent)
            .process_only(),
        row(
            "stock-wal-normal-cache",
            "stock",
            "SQLite WAL NORMAL, large cache and map",
            &cached(WAL_NORMAL),
        )
        .process_only(),
        row(
            "plait-concurrent-normal-cache",
            "plait",
            "Plait NORMAL, CONCURRENT, large cache and map",
            &cached(CONCURRENT_NORMAL),
        )
        .begin(concurrent)
        .process_only(),
        row(
            "bdb-sql-normal",
            "bdb-sql",
            "Berkeley DB SQL NORMAL",
            &[BDB[0], BDB[1], BDB[2], normal],
        )
        .process_only(),
        row(
            "postgres-off",
            "postgres",
            "PostgreSQL, synchronous_commit=off",
            &[("synchronous_commit", "off")],
        )
        .begin(concurrent)
        .process_only(),
    ]
}

/// How long, and how much.
struct Scale {
    seconds: f64,
    threads: &'static [u32],
    reduced_threads: &'static [u32],
    processes: &'static [u32],
    rates: &'static [f64],
    quick: bool,
}

impl Scale {
    fn of(request: &Request) -> Self {
        match (request.quick, request.thorough) {
            (true, _) => Self {
                seconds: 0.15,
                threads: &[1, 16],
                reduced_threads: &[16],
                processes: &[4],
                rates: &[2_000.0],
                quick: true,
            },
            (_, true) => Self {
                seconds: 2.0,
                threads: &[1, 2, 4, 8, 16, 32, 64, 100],
                reduced_threads: &[1, 2, 4, 8, 16, 32, 64, 100],
                processes: &[1, 2, 4, 8, 16, 32, 100],
                rates: &[1_000.0, 2_000.0, 5_000.0, 10_000.0, 20_000.0],
                quick: false,
            },
            _ => Self {
                seconds: 0.4,
                threads: &[1, 8, 32, 100],
                reduced_threads: &[1, 32],
                processes: &[1, 4, 16],
                rates: &[1_000.0, 5_000.0, 20_000.0],
                quick: false,
            },
        }
    }

    fn over(&self, workers: &[u32], place: crew::Place) -> Vec<Place> {
        let at = |count: &u32| Place::workers(Load { place, ..load(*count, self.seconds) });
        workers.iter().map(at).collect()
    }
}

pub fn plan(request: &Request) -> Plan {
    let (rows, scale) = (rows(request), Scale::of(request));
    let mut draft = Draft::new(Study::Writers, Mode::Modern);
    for (number, medium) in request.media.iter().enumerate() {
        draft.on(number, medium);
        threads(&mut draft, &rows, &scale);
        processes(&mut draft, &rows, &scale);
        loads(&mut draft, &rows, &scale);
        begins(&mut draft, &rows, &scale);
        rates(&mut draft, &rows, &scale);
        // What an engine does then does not depend on the medium.
        if number == 0 {
            behaviours(&mut draft, &rows, &scale);
        }
    }
    draft.finish()
}

/// What engines do when transactions meet.
fn behaviours(draft: &mut Draft<'_>, rows: &Rows, scale: &Scale) {
    let all = rows.main.iter().chain(&rows.further);
    // One of each engine's ways; a glance leaves out those that take seconds to set up.
    // A cache changes nothing of that, and a mutex of the program keeps both from meeting.
    let cached = ["stock-wal-cache", "plait-concurrent-cache", "stock-wal-mutex"];
    let mut left_out = vec!["plait-immediate", "bdb-sql-default"];
    left_out.extend(cached);
    if scale.quick {
        left_out.extend(["stock-default", "bdb-sql-snapshots", "postgres", "turso"]);
    }
    all.filter(|row| !left_out.contains(&&*row.arm.id)).for_each(|row| row.behaviour(draft));
}

fn lines<'a>(id: &'a str, title: &'a str, metric: Metric, x_title: &'a str) -> Look<'a> {
    let logarithmic = metric == Metric::PerSecond;
    Look { id, title, note: NOTE, shape: Shape::Lines, metric, x_title, logarithmic }
}

fn threads(draft: &mut Draft<'_>, rows: &Rows, scale: &Scale) {
    let over = |workers| scale.over(workers, crew::Place::Threads);
    let full: Vec<Series> = rows
        .main
        .iter()
        .chain(&rows.further)
        .chain([&rows.limit])
        .filter_map(|row| {
            // A glance looks closely at the main rows only.
            let counts =
                if scale.quick && row.arm.engine == "postgres" { &[16] } else { scale.threads };
            row.series(draft, "threads", over(counts))
        })
        .collect();
    let reduced: Vec<Series> = rows
        .reduced
        .iter()
        .filter(|row| !(scale.quick && row.arm.engine == "postgres"))
        .filter_map(|row| row.series(draft, "threads-reduced", over(scale.reduced_threads)))
        .collect();
    for (id, title, metric) in [
        ("threads", "Transactions a second, durable", Metric::PerSecond),
        ("threads-cpu", "Processor utilisation", Metric::CpuPercent),
        ("threads-cpu-each", "Processor time of a transaction", Metric::CpuPerOperation),
        ("threads-busy", "Calls of the busy handler", Metric::BusyCalls),
        ("threads-refused", "Transactions that had to be repeated", Metric::RefusedPercent),
    ] {
        draft.chart(lines(id, title, metric, "threads"), full.clone(), Vec::new());
    }
    let title = "Transactions a second, reduced durability";
    draft.chart(lines("reduced", title, Metric::PerSecond, "threads"), reduced, Vec::new());
    let traced: Vec<Series> = rows
        .main
        .iter()
        .filter_map(|row| row.series(draft, "threads", over(&scale.threads[..2])))
        .collect();
    let look = lines("system-calls", "System calls", Metric::SystemCalls, "threads");
    draft.chart(look, traced, Vec::new());
}

fn processes(draft: &mut Draft<'_>, rows: &Rows, scale: &Scale) {
    let mut series: Vec<Series> = rows
        .main
        .iter()
        .filter_map(|row| {
            row.series(draft, "processes", scale.over(scale.processes, crew::Place::Processes))
        })
        .collect();
    if !scale.quick {
        let places = scale.over(&[16], crew::Place::Processes);
        series.extend(rows.postgres.series(draft, "processes", places));
    }
    let title = "Transactions a second, a process for each writer";
    let look = lines("processes", title, Metric::PerSecond, "processes");
    draft.chart(look, series, Vec::new());
}

fn loads(draft: &mut Draft<'_>, rows: &Rows, scale: &Scale) {
    let base = || load(WORKERS, scale.seconds);
    let mix = |mix| Load { mix, ..base() };
    let places = |quick: bool| {
        let mut places = vec![
            Place::category("inserts", mix(Mix::Inserts)),
            Place::category("inserts, index", Load { index: true, ..mix(Mix::Inserts) }),
            Place::category("one hot row", mix(Mix::Hot(1))),
        ];
        if !quick {
            places.push(Place::category("ten hot rows", mix(Mix::Hot(10))));
        }
        places.push(Place::category("95 % reads", mix(Mix::MostlyReads(95))));
        places
    };
    let writes_only = |quick: bool| {
        let names =
            ["inserts", "one hot row", "ten hot rows"].map(|name| X::Category(name.to_owned()));
        places(quick).into_iter().filter(|place| names.contains(&place.x)).collect()
    };
    let mut all: Vec<Series> = rows
        .main
        .iter()
        .filter_map(|row| row.series(draft, "loads", places(scale.quick)))
        .collect();
    if !scale.quick {
        all.extend(rows.postgres.series(draft, "loads", places(false)));
    }
    all.extend(rows.limit.series(draft, "loads", writes_only(scale.quick)));
    let bars = |id, title, metric| Look {
        shape: Shape::Bars,
        ..lines(id, title, metric, "load, 8 threads")
    };
    draft.chart(bars("loads", "Other loads", Metric::PerSecond), all.clone(), Vec::new());
    let title = "Other loads: transactions that had to be repeated";
    draft.chart(bars("loads-refused", title, Metric::RefusedPercent), all, Vec::new());

    let beside = |phase: &'static str, quick: bool| {
        let mut places = vec![
            Place::category("readers", mix(Mix::BesideReaders(WORKERS / 2))),
            Place::category("a long reader", mix(Mix::BesideLongReader)),
        ];
        places.truncate(if quick { 1 } else { 2 });
        places.iter_mut().for_each(|place| place.phase = Some(phase));
        places
    };
    for (phase, title) in [
        ("writes", "Four writers beside four readers, seven beside a long one: writes"),
        ("reads", "Four writers beside four readers: reads"),
    ] {
        let quick = scale.quick || phase == "reads";
        let series =
            rows.main.iter().filter_map(|row| row.series(draft, "beside", beside(phase, quick)));
        let series: Vec<Series> = series.collect();
        draft.chart(bars(phase, title, Metric::PerSecond), series, Vec::new());
    }
    if !scale.quick {
        let long = || vec![Place::category("a long reader", mix(Mix::BesideLongReader))];
        let series = rows.main.iter().filter_map(|row| row.series(draft, "beside", long()));
        let series: Vec<Series> = series.collect();
        let title = "All files while a long reader still reads";
        draft.chart(bars("long-reader-files", title, Metric::FileBytes), series, Vec::new());
    }
}

/// The ways to begin.
fn begins(draft: &mut Draft<'_>, rows: &Rows, scale: &Scale) {
    if scale.quick {
        return;
    }
    let ways = [
        ("DEFERRED", Some(Begin::Deferred)),
        ("IMMEDIATE", Some(Begin::Immediate)),
        ("CONCURRENT", Some(Begin::Concurrent)),
        ("no BEGIN", None),
    ];
    let engines = [
        ("stock-wal", "SQLite WAL"),
        ("plait-concurrent", "Plait"),
        ("bdb-sql", "Berkeley DB SQL"),
    ];
    let mut all = Vec::new();
    for (key, label) in engines {
        let row = rows.main.iter().find(|row| row.arm.id == key).expect("one of the main rows");
        let mut joined: Option<Series> = None;
        for (word, begin) in ways {
            // Only Plait has it; the others would say so in every trial.
            if begin == Some(Begin::Concurrent) && row.arm.engine != "plait" {
                continue;
            }
            let row = row.clone().labelled(label).begin(begin);
            let places = vec![Place::category(word, load(WORKERS, scale.seconds))];
            match (row.series(draft, "begin", places), &mut joined) {
                (Some(part), Some(series)) => series.points.extend(part.points),
                (part, none) => *none = part,
            }
        }
        all.extend(joined);
    }
    let look = Look {
        shape: Shape::Bars,
        ..lines("begin", "Ways to begin", Metric::PerSecond, "BEGIN, 8 threads")
    };
    draft.chart(look, all.clone(), Vec::new());
    let title = "Ways to begin: transactions that had to be repeated";
    let look = Look { id: "begin-refused", title, metric: Metric::RefusedPercent, ..look };
    draft.chart(Look { logarithmic: false, ..look }, all, Vec::new());
}

fn rates(draft: &mut Draft<'_>, rows: &Rows, scale: &Scale) {
    // The tail of a distribution needs more transactions than a rate does.
    let seconds = if scale.quick { 0.3 } else { scale.seconds.max(0.5) };
    for rate in scale.rates {
        let mut base = load(WORKERS, seconds);
        base.shift.due_per_second = Some(*rate);
        let series: Vec<Series> = rows
            .main
            .iter()
            .chain([&rows.limit])
            .filter_map(|row| {
                let place = Place { x: X::Number(*rate), load: base.clone(), phase: None };
                row.series(draft, "rate", vec![place])
            })
            .collect();
        let (id, title) =
            (format!("rate-{rate}"), format!("Latency with {rate} transactions due a second"));
        let look = Look {
            shape: Shape::Distribution,
            logarithmic: true,
            note: "An open loop: each transaction is due at a time fixed beforehand and timed from then, so that a stall \
                is felt by all that it delays. 8 threads. A rate that could not be kept is marked as saturated.",
            ..lines(&id, &title, Metric::Latency, "percentile")
        };
        draft.chart(look, series, Vec::new());
    }
}
