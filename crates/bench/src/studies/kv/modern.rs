//! What is asked of key-value stores today: batches and single operations, scans, deletes, mixes, value sizes, and many
//! keys. Classes of durability never share a chart.

use super::super::{
    Cell, Chart, Frame, Metric, Mode, Plan, Point, Request, Series, Shape, Study, Tuning, X,
};
use super::variants::{self, Variant};
use super::{Medium, thousands};
use crate::engines::{Durability, KeyKind};
use crate::workloads::Workload;
use crate::workloads::key_value::{Load, Part, Step};

/// Threads of the chart of several.
const THREADS: u32 = 8;
/// Commits in flight where they are not waited for one by one.
const IN_FLIGHT: u64 = 1_000;
/// Rows in each transaction of a batch.
const BATCH: u64 = 1000;
/// Length of the values, where it is not what is varied.
const VALUE_BYTES: usize = 100;
/// Lengths of values that are compared.
const VALUE_SIZES: [usize; 4] = [16, 1024, 8192, 65_536];
/// Bytes of all values in a cell of value sizes, and in one of its transactions.
const SIZED_BYTES: usize = 16 << 20;
const SIZED_BATCH_BYTES: usize = 1 << 20;
/// Rows of a thorough run.
const MANY_ROWS: u64 = 10_000_000;

/// How much is done.
struct Sizes {
    rows: u64,
    /// Of each step that takes a time.
    seconds: f64,
    ranges: u64,
    value_sizes: &'static [usize],
    sized_bytes: usize,
}

impl Sizes {
    fn of(request: &Request) -> Self {
        if request.quick {
            Self {
                rows: 5_000,
                seconds: 0.1,
                ranges: 100,
                value_sizes: &[1024, 65_536],
                sized_bytes: SIZED_BYTES / 8,
            }
        } else {
            Self {
                rows: 50_000,
                seconds: 0.3,
                ranges: 1_000,
                value_sizes: &VALUE_SIZES,
                sized_bytes: SIZED_BYTES,
            }
        }
    }
}

/// Rows in a range that is scanned.
const RANGE: u64 = 100;

const CLASSES: [Durability; 3] = [Durability::PowerCut, Durability::Process, Durability::None];

/// All on one medium.
pub fn plan(request: &Request, medium: Medium<'_>) -> Plan {
    let variants = variants::all(request);
    let sizes = Sizes::of(request);
    let mut plan = Plan::default();
    add_operations(&mut plan, &variants, &sizes, medium);
    add_threads(&mut plan, &variants, &sizes, medium);
    add_value_sizes(&mut plan, &variants, &sizes, medium);
    if request.thorough {
        add_many(&mut plan, &variants, medium);
    }
    // A class that no chosen engine has makes no chart.
    plan.charts.retain(|chart| !chart.series.is_empty());
    plan
}

/// The word for a class in ids, and what it means in titles.
fn class(durability: Durability) -> (&'static str, &'static str) {
    match durability {
        Durability::PowerCut => ("power-cut", "survives a power cut"),
        Durability::Process => ("process", "survives the process, the last commits no power cut"),
        Durability::None => ("none", "promises nothing"),
    }
}

/// What a variant does, without sizes and tables.
fn load(variant: &Variant<'_>, rows: u64, value_bytes: usize, parts: Vec<Part>) -> Load {
    Load {
        rows,
        value_bytes,
        rows_per_transaction: Some(BATCH),
        select_in_transactions: true,
        begin: variant.begin,
        without_rowid: variant.without_rowid,
        parts,
    }
}

fn cell(variant: &Variant<'_>, id: String, load: Load, medium: Medium<'_>) -> Cell {
    Cell {
        id,
        study: Study::Kv,
        mode: Mode::Modern,
        engine: variant.entry.name.clone(),
        label: variant.label.clone(),
        settings: variant.settings.clone(),
        durability: variant.durability,
        tuning: variant.tuning,
        workload: Workload::KeyValue(load),
        medium: medium.path(),
    }
}

/// The series of one class, each with the points that `points` makes of a variant that is here.
fn series(
    variants: &[Variant<'_>],
    durability: Durability,
    points: impl Fn(&Variant<'_>) -> Vec<Point>,
) -> Vec<Series> {
    let of_class = variants.iter().filter(|variant| variant.durability == durability);
    of_class
        .map(|variant| Series {
            label: variant.label.clone(),
            engine: variant.entry.name.clone(),
            points: if variant.entry.engine().is_some() { points(variant) } else { Vec::new() },
        })
        .collect()
}

/// A chart of bars over phases of one cell of each variant.
struct Bars<'a> {
    id: &'a str,
    title: &'a str,
    note: &'a str,
    phases: Vec<String>,
}

fn bars(
    variants: &[Variant<'_>],
    durability: Durability,
    what: &Bars<'_>,
    cell_id: impl Fn(&Variant<'_>) -> String,
    medium: Medium<'_>,
) -> Chart {
    let (word, meaning) = class(durability);
    let points = |variant: &Variant<'_>| {
        let point = |phase: &String| Point {
            x: X::Category(phase.clone()),
            cell: cell_id(variant),
            phase: Some(phase.clone()),
        };
        what.phases.iter().map(point).collect()
    };
    Chart {
        frame: Frame {
            id: medium.id(format!("kv/modern/{word}/{}", what.id)),
            study: Study::Kv,
            mode: Mode::Modern,
            title: medium.title(format!("{}: {meaning}", what.title)),
            note: what.note.to_owned(),
            shape: Shape::Bars,
            metric: Metric::PerSecond,
            x_title: "operation".to_owned(),
            logarithmic: true,
        },
        series: series(variants, durability, points),
        published: Vec::new(),
    }
}

/// One cell of each variant does all operations; three charts of each class show them.
fn add_operations(plan: &mut Plan, variants: &[Variant<'_>], sizes: &Sizes, medium: Medium<'_>) {
    let seconds = sizes.seconds;
    let many = [
        Step::Insert,
        Step::Select,
        Step::Scan { ranges: sizes.ranges, length: RANGE },
        Step::Delete,
    ];
    let one = [
        Step::InsertOne { seconds },
        Step::Mix { read_percent: 50, seconds, workers: 1 },
        Step::Mix { read_percent: 95, seconds, workers: 1 },
    ];
    let blob = [Step::Insert, Step::Select];
    // Deleting comes last, for the others want all rows.
    let steps = many[..3].iter().chain(&one).chain(&many[3..]).copied().collect();
    let parts = vec![
        Part { keys: KeyKind::Int, steps },
        Part { keys: KeyKind::Blob, steps: blob.to_vec() },
    ];
    let id = |variant: &Variant<'_>| medium.id(format!("kv/modern/operations/{}", variant.slug));
    for variant in variants.iter().filter(|variant| variant.entry.engine().is_some()) {
        let load = load(variant, sizes.rows, VALUE_BYTES, parts.clone());
        plan.cells.push(cell(variant, id(variant), load, medium));
    }
    let names = |steps: &[Step], keys| steps.iter().map(|step| step.phase(keys)).collect();
    let rows = thousands(sizes.rows);
    let of_many = format!(
        "{rows} rows with random keys and values of 100 bytes, unsorted, {BATCH} a transaction, selects too; ranges of \
         {RANGE} rows, counted in rows; every other row deleted."
    );
    let of_one = format!(
        "One operation a transaction, by one client, for {seconds} s each, on {rows} rows of 100 bytes and those that \
         were added; 50/50 and 95/5 are reads and updates."
    );
    for durability in CLASSES {
        let (int, blob_keys) = (KeyKind::Int, KeyKind::Blob);
        let charts = [
            Bars {
                id: "many",
                title: "Integer keys, many rows a transaction",
                note: &of_many,
                phases: names(&many, int),
            },
            Bars {
                id: "one",
                title: "Integer keys, one operation a transaction",
                note: &of_one,
                phases: names(&one, int),
            },
            Bars {
                id: "blob",
                title: "24-byte keys, many rows a transaction",
                note: &of_many,
                phases: names(&blob, blob_keys),
            },
        ];
        plan.charts.extend(charts.iter().map(|what| bars(variants, durability, what, id, medium)));
    }
}

/// A further chart: the steps of one part of the variants after their table has been filled.
struct Further<'a> {
    id: &'a str,
    title: &'a str,
    note: String,
    steps: Vec<Step>,
    durability: Durability,
    takes: fn(&Variant<'_>) -> bool,
}

/// The durable setting of each engine with several threads, and commits in flight of the engine that gives tickets.
fn add_threads(plan: &mut Plan, variants: &[Variant<'_>], sizes: &Sizes, medium: Medium<'_>) {
    let seconds = sizes.seconds;
    let mix = |read_percent, workers| Step::Mix { read_percent, seconds, workers };
    let promised = |in_flight| Step::Promised { in_flight, seconds };
    let threads = Further {
        id: "threads",
        title: "Integer keys, several threads",
        note: format!(
            "One operation a transaction, by {THREADS} threads with a connection each, for {seconds} s, on {} rows of \
             100 bytes: reads and updates.",
            thousands(sizes.rows)
        ),
        steps: vec![mix(50, THREADS), mix(95, THREADS)],
        durability: Durability::PowerCut,
        takes: |variant| variant.represents,
    };
    let tickets = Further {
        id: "tickets",
        title: "Commits in flight",
        note: format!(
            "Updates of random rows by one thread, each a transaction of its own, for {seconds} s: not waited for (0/100), \
             each waited for, and {IN_FLIGHT} in flight, where one counts when its ticket is on disk. What is not waited \
             for survives the death of the process, and a power cut from when its ticket has been passed."
        ),
        steps: vec![mix(0, 1), promised(1), promised(IN_FLIGHT)],
        durability: Durability::Process,
        takes: |variant| variant.entry.name == "plait-kv" && variant.tuning == Tuning::Default,
    };
    add_further(plan, variants, &threads, sizes, medium);
    add_further(plan, variants, &tickets, sizes, medium);
}

fn add_further(
    plan: &mut Plan,
    variants: &[Variant<'_>],
    what: &Further<'_>,
    sizes: &Sizes,
    medium: Medium<'_>,
) {
    let id = |variant: &Variant<'_>| medium.id(format!("kv/modern/{}/{}", what.id, variant.slug));
    let taking = |v: &&Variant<'_>| v.durability == what.durability && (what.takes)(v);
    for variant in variants.iter().filter(taking).filter(|v| v.entry.engine().is_some()) {
        let steps = std::iter::once(Step::Insert).chain(what.steps.iter().copied()).collect();
        let parts = vec![Part { keys: KeyKind::Int, steps }];
        let load = load(variant, sizes.rows, VALUE_BYTES, parts);
        plan.cells.push(cell(variant, id(variant), load, medium));
    }
    let phases = what.steps.iter().map(|step| step.phase(KeyKind::Int)).collect();
    let shown = Bars { id: what.id, title: what.title, note: &what.note, phases };
    let mut chart = bars(variants, what.durability, &shown, id, medium);
    chart.series.retain(|s| variants.iter().filter(taking).any(|v| v.label == s.label));
    plan.charts.push(chart);
}

/// Lines over the length of values, for one durable setting of each engine.
fn add_value_sizes(plan: &mut Plan, variants: &[Variant<'_>], sizes: &Sizes, medium: Medium<'_>) {
    let id = |variant: &Variant<'_>, bytes: usize| {
        medium.id(format!("kv/modern/value-size/{}/{bytes}", variant.slug))
    };
    let steps = [Step::Insert, Step::Select];
    let taking_part =
        |variant: &&Variant<'_>| variant.represents && variant.entry.engine().is_some();
    for variant in variants.iter().filter(taking_part) {
        for &bytes in sizes.value_sizes {
            let rows = (sizes.sized_bytes / bytes).min(50_000) as u64;
            let parts = vec![Part { keys: KeyKind::Int, steps: steps.to_vec() }];
            let each = (SIZED_BATCH_BYTES / bytes) as u64;
            let load = Load {
                rows_per_transaction: Some(each.min(BATCH)),
                ..load(variant, rows, bytes, parts)
            };
            plan.cells.push(cell(variant, id(variant, bytes), load, medium));
        }
    }
    for step in steps {
        let phase = step.phase(KeyKind::Int);
        let points = |variant: &Variant<'_>| {
            let point = |bytes: &usize| Point {
                x: X::Number(*bytes as f64),
                cell: id(variant, *bytes),
                phase: Some(phase.clone()),
            };
            sizes.value_sizes.iter().map(point).collect()
        };
        let (word, meaning) = class(Durability::PowerCut);
        let mut series = series(variants, Durability::PowerCut, points);
        let represents = |label: &str| variants.iter().any(|v| v.represents && v.label == label);
        series.retain(|one| represents(&one.label));
        plan.charts.push(Chart {
            frame: Frame {
            id: medium.id(format!("kv/modern/{word}/value-size-{}", phase.replace(' ', "-"))),
            study: Study::Kv,
            mode: Mode::Modern,
            title: medium.title(format!("Size of values, {phase}: {meaning}")),
            note: format!(
                "Integer keys; {} MiB of values in all, at most 50,000 rows; transactions of 1 MiB, at most {BATCH} \
                 rows.",
                sizes.sized_bytes >> 20
            ),
            shape: Shape::Lines,
            metric: Metric::PerSecond,
            x_title: "bytes of a value".to_owned(),
            logarithmic: true,
            },
            series,
            published: Vec::new(),
        });
    }
}

/// Ten million keys: most of them are in no cache but the kernel's.
fn add_many(plan: &mut Plan, variants: &[Variant<'_>], medium: Medium<'_>) {
    let id = |variant: &Variant<'_>| medium.id(format!("kv/modern/many-keys/{}", variant.slug));
    let steps = vec![Step::Insert, Step::Select, Step::Scan { ranges: 10_000, length: RANGE }];
    let phases = steps.iter().map(|step| step.phase(KeyKind::Int)).collect();
    for variant in variants.iter().filter(|v| takes_many(v) && v.entry.engine().is_some()) {
        let parts = vec![Part { keys: KeyKind::Int, steps: steps.clone() }];
        let load = Load {
            rows_per_transaction: Some(10 * BATCH),
            ..load(variant, MANY_ROWS, VALUE_BYTES, parts)
        };
        plan.cells.push(cell(variant, id(variant), load, medium));
    }
    let note = format!(
        "{} rows of 100 bytes with random keys, {} a transaction; ranges of {RANGE} rows.",
        thousands(MANY_ROWS),
        thousands(10 * BATCH)
    );
    let what = Bars { id: "many-keys", title: "Ten million integer keys", note: &note, phases };
    let mut chart = bars(variants, Durability::PowerCut, &what, id, medium);
    let takes = |label: &str| variants.iter().any(|v| takes_many(v) && v.label == label);
    chart.series.retain(|series| takes(&series.label));
    plan.charts.push(chart);
}

/// Durable settings, as they come or tuned, without those that are there for another comparison.
fn takes_many(variant: &Variant<'_>) -> bool {
    variant.durability == Durability::PowerCut
        && (variant.represents || variant.tuning == Tuning::Tuned)
}
