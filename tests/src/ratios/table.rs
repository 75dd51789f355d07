//! What was required and what was measured, as a table, and the machine it was measured on.

use super::paced::Latency;
use super::trial::Outcome;
use comfy_table::{Cell, CellAlignment, Table, presets};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Line {
    /// What was measured.
    pub title: String,
    /// Stock's median, if it took part.
    pub stock: Option<Median>,
    /// The median of the library under test, if it took part.
    pub plait: Option<Median>,
    /// What is required, in words.
    pub required: String,
    /// What was measured, in the same terms.
    pub measured: String,
    /// Whether that is enough.
    pub reached: bool,
}

/// The median trial of several, by what it did per second.
#[derive(Clone, Debug)]
pub struct Median {
    /// The trial.
    pub outcome: Outcome,
    /// Slowest and fastest of all trials, per second.
    pub range: (f64, f64),
    /// Waits of all trials, where transactions were due at times.
    pub latency: Latency,
}

impl Median {
    /// Takes the median of some trials.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn of(mut outcomes: Vec<Outcome>) -> Self {
        assert!(!outcomes.is_empty(), "a median needs trials");
        outcomes.sort_by(|left, right| left.per_second.total_cmp(&right.per_second));
        let range = (outcomes[0].per_second, outcomes[outcomes.len() - 1].per_second);
        let latency = outcomes.iter().map(|outcome| outcome.latency).collect();
        let outcome = outcomes.swap_remove(outcomes.len() / 2);
        Self { outcome, range, latency: Latency::of_trials(latency) }
    }
}

fn per_second(median: Option<&Median>) -> String {
    median.map_or(String::new(), |median| {
        let (slow, fast) = median.range;
        format!("{:.0} [{slow:.0}..{fast:.0}]", median.outcome.per_second)
    })
}

fn waits(median: Option<&Median>) -> String {
    let show = |nanoseconds: u64| format!("{:.2?}", Duration::from_nanos(nanoseconds));
    median.map_or(String::new(), |median| {
        format!("{} / {}", show(median.outcome.median_ns), show(median.outcome.max_ns))
    })
}

fn retries(median: Option<&Median>) -> String {
    median.map_or(String::new(), |median| {
        format!("{} + {}", median.outcome.busy, median.outcome.conflicts)
    })
}

/// Prints all lines.
pub fn print(lines: &[Line]) {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header([
        "case",
        "stock /s",
        "plait /s",
        "required",
        "measured",
        "",
        "stock median / max",
        "plait median / max",
        "stock busy + 517",
        "plait busy + 517",
    ]);
    for line in lines {
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        let (stock, plait) = (line.stock.as_ref(), line.plait.as_ref());
        table.add_row([
            Cell::new(&line.title),
            right(per_second(stock)),
            right(per_second(plait)),
            right(line.required.clone()),
            right(line.measured.clone()),
            Cell::new(if line.reached { "ok" } else { "BELOW" }),
            right(waits(stock)),
            right(waits(plait)),
            right(retries(stock)),
            right(retries(plait)),
        ]);
    }
    println!("{table}");
}

/// Describes the machine: processor, kernel, load, file system, and what a small durable append costs there.
pub fn print_machine(directory: &Path) -> anyhow::Result<()> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let model =
        processors.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let count = std::thread::available_parallelism()?;
    println!("processor: {count} x {}", model.trim_start_matches([' ', '\t', ':']));
    println!("kernel: {}", read("/proc/sys/kernel/osrelease").trim());
    println!("load before: {}", read("/proc/loadavg").trim());
    println!("file system: {}", file_system(directory));
    let (append, overwrite) = probe(directory)?;
    println!("fdatasync of 4 KiB, median: {append:.0?} appending, {overwrite:.0?} overwriting");
    Ok(())
}

fn file_system(directory: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let holding = mounts.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (device, point, kind) = (fields.next()?, fields.next()?, fields.next()?);
        directory
            .starts_with(point)
            .then(|| (point.len(), format!("{kind} on {device} at {point}")))
    });
    holding.max_by_key(|(length, _)| *length).map_or_else(|| "unknown".to_owned(), |(_, text)| text)
}

/// Median times of a durable 4 KiB write that grows a file, and of one that overwrites it.
fn probe(directory: &Path) -> anyhow::Result<(Duration, Duration)> {
    use std::os::unix::fs::FileExt as _;
    let path = directory.join("probe");
    let mut file = File::create(&path)?;
    let mut block = [1u8; 4096];
    let mut appends = Vec::new();
    for round in 0..100u8 {
        block[0] = round;
        let start = Instant::now();
        file.write_all(&block)?;
        file.sync_data()?;
        appends.push(start.elapsed());
    }
    let mut overwrites = Vec::new();
    for round in 0..100u8 {
        block[0] = round.wrapping_add(7);
        let start = Instant::now();
        file.write_all_at(&block, u64::from(round) * 4096)?;
        file.sync_data()?;
        overwrites.push(start.elapsed());
    }
    std::fs::remove_file(&path)?;
    appends.sort();
    overwrites.sort();
    Ok((appends[50], overwrites[50]))
}
