//! What is asked of key-value stores today: batches and single operations, scans, deletes, mixes, value sizes, and many
//! keys. Classes of durability never share a chart.

use super::super::draft::{Draft, Look, series};
use super::super::{Metric, Point, Request, Shape, Tuning, X};
use super::variants::{self, Variant};
use super::{bar, thousands};
use crate::engines::{Durability, KeyKind, log};
use crate::workloads::Workload;
use crate::workloads::crew::Place;
use crate::workloads::key_value::{Load, Part, Step};

/// Threads of the chart of several.
const THREADS: u32 = 8;
/// Stores that one process opens alone.
const ONE_PROCESS: [&str; 4] = ["rocksdb", "redb", "fjall", log::NAME];
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

/// All on the medium that the draft is on.
pub fn add(draft: &mut Draft<'_>, request: &Request) {
    let variants = variants::all(request);
    let sizes = Sizes::of(request);
    add_operations(draft, &variants, &sizes);
    add_threads(draft, &variants, &sizes);
    add_value_sizes(draft, &variants, &sizes);
    if request.thorough {
        add_many(draft, &variants);
    }
}

/// The word for a class in ids, and what it means in titles.
fn class(durability: Durability) -> (&'static str, &'static str) {
    match durability {
        Durability::PowerCut => ("power-cut", "survives a power cut"),
        Durability::Process => ("process", "survives the process, the last commits no power cut"),
        Durability::None => ("none", "promises nothing"),
    }
}

/// What a variant does, without sizes and tables: of these steps those that are shown, after the filling.
fn load(variant: &Variant, rows: u64, value_bytes: usize, mut parts: Vec<Part>) -> Load {
    parts.retain(|part| part.steps.iter().any(|step| variant.shows(step)));
    for part in &mut parts {
        part.steps.retain(|step| *step == Step::Insert || variant.shows(step));
    }
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

/// A chart of bars over phases of one cell of each variant.
struct Bars<'a> {
    id: &'a str,
    title: &'a str,
    note: &'a str,
    keys: KeyKind,
    steps: &'a [Step],
}

/// Variants with their cells, which those that are absent have not.
type Shown<'a> = Vec<(&'a Variant, Option<String>)>;

/// A cell of each variant, for whatever charts.
fn cells<'a>(
    draft: &mut Draft<'_>,
    variants: impl IntoIterator<Item = &'a Variant>,
    work: &str,
    load: impl Fn(&Variant) -> Load,
) -> Shown<'a> {
    let mut cell = |variant: &Variant| {
        let workload = Workload::KeyValue(load(variant));
        draft.cell(&variant.arm, &format!("{work}/{}", variant.arm.id), &workload)
    };
    variants.into_iter().map(|variant| (variant, cell(variant))).collect()
}

/// One chart of one class; none of a class that no chosen engine has.
fn bars(draft: &mut Draft<'_>, durability: Durability, what: &Bars<'_>, shown: &Shown<'_>) {
    let (word, meaning) = class(durability);
    let of_class = shown.iter().filter(|(variant, _)| {
        variant.arm.durability == durability && what.steps.iter().any(|step| variant.shows(step))
    });
    let lines: Vec<_> = of_class
        .map(|(variant, cell)| {
            let steps = what.steps.iter().filter(|step| variant.shows(step));
            let points = steps.map(|step| bar(cell.as_ref(), &step.phase(what.keys)));
            series(&variant.arm.label, &variant.arm.engine, points)
        })
        .collect();
    if lines.is_empty() {
        return;
    }
    let look = Look {
        id: &format!("{word}/{}", what.id),
        title: &format!("{}: {meaning}", what.title),
        note: what.note,
        shape: Shape::Bars,
        metric: Metric::PerSecond,
        x_title: "operation",
        logarithmic: true,
    };
    draft.chart(look, lines, Vec::new());
}

/// One cell of each variant does all operations; three charts of each class show them.
fn add_operations(draft: &mut Draft<'_>, variants: &[Variant], sizes: &Sizes) {
    let seconds = sizes.seconds;
    let many = [
        Step::Insert,
        Step::Select,
        Step::Scan { ranges: sizes.ranges, length: RANGE },
        Step::Delete,
    ];
    let one = [
        Step::InsertOne { seconds },
        mix(50, seconds, 1, Place::Threads),
        mix(95, seconds, 1, Place::Threads),
    ];
    let blob = [Step::Insert, Step::Select];
    // Deleting comes last, for the others want all rows.
    let steps = many[..3].iter().chain(&one).chain(&many[3..]).copied().collect();
    let parts = vec![
        Part { keys: KeyKind::Int, steps },
        Part { keys: KeyKind::Blob, steps: blob.to_vec() },
    ];
    let shown = cells(draft, variants, "operations", |variant| {
        load(variant, sizes.rows, VALUE_BYTES, parts.clone())
    });
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
                keys: int,
                steps: &many,
            },
            Bars {
                id: "one",
                title: "Integer keys, one operation a transaction",
                note: &of_one,
                keys: int,
                steps: &one,
            },
            Bars {
                id: "blob",
                title: "24-byte keys, many rows a transaction",
                note: &of_many,
                keys: blob_keys,
                steps: &blob,
            },
        ];
        for what in &charts {
            bars(draft, durability, what, &shown);
        }
    }
}

/// A further chart: the steps of one part of the variants after their table has been filled.
struct Further<'a> {
    id: &'a str,
    title: &'a str,
    note: String,
    steps: Vec<Step>,
    durability: Durability,
    takes: fn(&Variant) -> bool,
}

fn mix(read_percent: u64, seconds: f64, workers: u32, place: Place) -> Step {
    Step::Mix { read_percent, seconds, workers, place }
}

/// The durable setting of each engine with several threads or processes, and commits in flight of the engine that gives
/// tickets.
fn add_threads(draft: &mut Draft<'_>, variants: &[Variant], sizes: &Sizes) {
    let seconds = sizes.seconds;
    let by_threads = |read_percent, workers| mix(read_percent, seconds, workers, Place::Threads);
    let promised = |in_flight| Step::Promised { in_flight, seconds };
    let threads = Further {
        id: "threads",
        title: "Integer keys, several threads",
        note: format!(
            "One operation a transaction, by {THREADS} threads with a connection each, for {seconds} s, on {} rows of \
             100 bytes: reads and updates.",
            thousands(sizes.rows)
        ),
        steps: vec![by_threads(50, THREADS), by_threads(95, THREADS)],
        durability: Durability::PowerCut,
        takes: |variant| variant.represents,
    };
    let processes = Further {
        id: "processes",
        title: "Integer keys, several processes",
        note: format!(
            "As by several threads, but by {THREADS} processes, each of which opens the store. Stores that belong to one \
             process are not in this chart."
        ),
        steps: [50, 95, 0].map(|reads| mix(reads, seconds, THREADS, Place::Processes)).to_vec(),
        durability: Durability::PowerCut,
        takes: |variant| variant.represents && !ONE_PROCESS.contains(&&*variant.arm.engine),
    };
    let tickets = Further {
        id: "tickets",
        title: "Commits in flight",
        note: format!(
            "Updates of random rows by one thread, each a transaction of its own, for {seconds} s: not waited for (0/100), \
             each waited for, and {IN_FLIGHT} in flight, where one counts when its ticket is on disk. What is not waited \
             for survives the death of the process, and a power cut from when its ticket has been passed."
        ),
        steps: vec![by_threads(0, 1), promised(1), promised(IN_FLIGHT)],
        durability: Durability::Process,
        takes: |variant| variant.arm.engine == "plait-kv" && variant.tuning == Tuning::Default,
    };
    add_further(draft, variants, &threads, sizes);
    add_further(draft, variants, &processes, sizes);
    add_further(draft, variants, &tickets, sizes);
}

fn add_further(draft: &mut Draft<'_>, variants: &[Variant], what: &Further<'_>, sizes: &Sizes) {
    let taking = |v: &&Variant| v.arm.durability == what.durability && (what.takes)(v);
    let shown = cells(draft, variants.iter().filter(taking), what.id, |variant| {
        let steps = std::iter::once(Step::Insert).chain(what.steps.iter().copied()).collect();
        load(variant, sizes.rows, VALUE_BYTES, vec![Part { keys: KeyKind::Int, steps }])
    });
    let Further { id, title, note, steps, .. } = what;
    let chart = Bars { id, title, note, keys: KeyKind::Int, steps };
    bars(draft, what.durability, &chart, &shown);
}

/// Lines over the length of values, for one durable setting of each engine.
fn add_value_sizes(draft: &mut Draft<'_>, variants: &[Variant], sizes: &Sizes) {
    let steps = [Step::Insert, Step::Select];
    let parts = || vec![Part { keys: KeyKind::Int, steps: steps.to_vec() }];
    let mut shown = Vec::new();
    for variant in variants.iter().filter(|variant| variant.represents && !variant.is_limit()) {
        let mut cell = |&bytes: &usize| {
            let rows = (sizes.sized_bytes / bytes).min(50_000) as u64;
            let each = (SIZED_BATCH_BYTES / bytes) as u64;
            let load = Load {
                rows_per_transaction: Some(each.min(BATCH)),
                ..load(variant, rows, bytes, parts())
            };
            let place = format!("value-size/{}/{bytes}", variant.arm.id);
            (bytes, draft.cell(&variant.arm, &place, &Workload::KeyValue(load)))
        };
        shown.push((&variant.arm, sizes.value_sizes.iter().map(&mut cell).collect::<Vec<_>>()));
    }
    if shown.is_empty() {
        return;
    }
    let (word, meaning) = class(Durability::PowerCut);
    for step in steps {
        let phase = step.phase(KeyKind::Int);
        let point = |(bytes, cell): &(usize, Option<String>)| {
            let cell = cell.clone()?;
            Some(Point { x: X::Number(*bytes as f64), cell, phase: Some(phase.clone()) })
        };
        let lines = shown
            .iter()
            .map(|(arm, cells)| series(&arm.label, &arm.engine, cells.iter().map(point)))
            .collect();
        let note = format!(
            "Integer keys; {} MiB of values in all, at most 50,000 rows; transactions of 1 MiB, at most {BATCH} rows.",
            sizes.sized_bytes >> 20
        );
        let look = Look {
            id: &format!("{word}/value-size-{}", phase.replace(' ', "-")),
            title: &format!("Size of values, {phase}: {meaning}"),
            note: &note,
            shape: Shape::Lines,
            metric: Metric::PerSecond,
            x_title: "bytes of a value",
            logarithmic: true,
        };
        draft.chart(look, lines, Vec::new());
    }
}

/// Ten million keys: most of them are in no cache but the kernel's.
fn add_many(draft: &mut Draft<'_>, variants: &[Variant]) {
    let steps = vec![Step::Insert, Step::Select, Step::Scan { ranges: 10_000, length: RANGE }];
    let taking = variants.iter().filter(|variant| takes_many(variant));
    let shown = cells(draft, taking, "many-keys", |variant| {
        let parts = vec![Part { keys: KeyKind::Int, steps: steps.clone() }];
        Load {
            rows_per_transaction: Some(10 * BATCH),
            ..load(variant, MANY_ROWS, VALUE_BYTES, parts)
        }
    });
    let note = format!(
        "{} rows of 100 bytes with random keys, {} a transaction; ranges of {RANGE} rows.",
        thousands(MANY_ROWS),
        thousands(10 * BATCH)
    );
    let (keys, steps) = (KeyKind::Int, &steps[..]);
    let what =
        Bars { id: "many-keys", title: "Ten million integer keys", note: &note, keys, steps };
    bars(draft, Durability::PowerCut, &what, &shown);
}

/// Durable settings, as they come or tuned, without those that are there for another comparison.
fn takes_many(variant: &Variant) -> bool {
    variant.arm.durability == Durability::PowerCut
        && !variant.is_limit()
        && (variant.represents || variant.tuning == Tuning::Tuned)
}
