//! Study B past its publication: all journal modes, values of synchronous and ways to begin, page sizes, keys and hold
//! times, with what has no file as ceilings.
//!
//! One random of 10,000 counters is raised in each transaction, unless a chart says otherwise. In journal mode
//! CONCURRENT transactions begin with BEGIN CONCURRENT, in the others with BEGIN IMMEDIATE, unless it is the way to begin
//! that is compared. Combinations that an engine has not are measured as not applicable.

use super::{WORKERS, durability};
use crate::engines::catalogue::Entry;
use crate::engines::{Begin, Durability};
use crate::studies::draft::{Arm, Draft, LARGE_CACHE, Look, category, has_journals, series};
use crate::studies::{Metric, Mode, Plan, Request, Series, Shape, Study, X};
use crate::workloads::crew::{Amount, Shift};
use crate::workloads::{Workload, counter};

const JOURNALS: [&str; 6] = ["DELETE", "TRUNCATE", "PERSIST", "MEMORY", "WAL", "CONCURRENT"];
const SYNCHRONOUS: [&str; 4] = ["OFF", "NORMAL", "FULL", "EXTRA"];
const BEGINS: [Begin; 4] = [Begin::Deferred, Begin::Immediate, Begin::Exclusive, Begin::Concurrent];
const PAGES_KIB: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const HOLDS_MS: [u32; 4] = [0, 1, 10, 100];
const KEYS: [(&str, counter::Keys); 3] = [
    ("one key", counter::Keys::Existing(1)),
    ("10,000 keys", MANY),
    ("new keys", counter::Keys::New),
];

/// The counters that are there unless a chart says otherwise.
const MANY: counter::Keys = counter::Keys::Existing(10_000);
/// SQLite's default page size.
const DEFAULT_KIB: u32 = 4;

/// The sizes of a run.
struct Sizes {
    journals: Vec<&'static str>,
    synchronous: Vec<&'static str>,
    pages_kib: Vec<u32>,
    holds_ms: Vec<u32>,
    seconds: f64,
    /// Seconds of trials whose transactions sleep.
    hold_seconds: f64,
    /// Transactions of an engine that counts to a number.
    transactions: u64,
}

impl Sizes {
    fn of(request: &Request) -> Self {
        if request.quick {
            Self {
                journals: vec!["DELETE", "WAL", "CONCURRENT"],
                synchronous: vec!["NORMAL", "FULL"],
                pages_kib: vec![1, DEFAULT_KIB, 64],
                holds_ms: vec![0, 10],
                seconds: 0.2,
                hold_seconds: 0.2,
                transactions: 10_000,
            }
        } else {
            Self {
                journals: JOURNALS.to_vec(),
                synchronous: SYNCHRONOUS.to_vec(),
                pages_kib: PAGES_KIB.to_vec(),
                holds_ms: HOLDS_MS.to_vec(),
                seconds: 0.5,
                hold_seconds: 1.0,
                transactions: 100_000,
            }
        }
    }
}

/// How a journal mode's transactions begin where that is not compared.
fn usual_begin(journal: &str) -> Begin {
    if journal == "CONCURRENT" { Begin::Concurrent } else { Begin::Immediate }
}

/// What a cell does.
#[derive(Clone, Copy)]
struct Work {
    keys: counter::Keys,
    begin: Begin,
    hold_ms: u32,
    amount: Amount,
}

impl Work {
    /// Part of a cell's id: `10000-keys-immediate`, `new-keys-concurrent-hold-10`.
    fn id(self) -> String {
        let keys = match self.keys {
            counter::Keys::New => "new-keys".to_owned(),
            counter::Keys::Existing(keys) => format!("{keys}-keys"),
        };
        let hold = if self.hold_ms > 0 { format!("-hold-{}", self.hold_ms) } else { String::new() };
        format!("{keys}-{}{hold}", self.begin.word().to_lowercase())
    }

    fn workload(self) -> Workload {
        Workload::Counter(counter::Load {
            keys: self.keys,
            begin: self.begin,
            hold_s: f64::from(self.hold_ms) / 1000.0,
            shift: Shift {
                workers: WORKERS,
                amount: self.amount,
                due_per_second: None,
                count_start_and_stop: true,
            },
        })
    }
}

/// An engine with a journal, and a page size if it is not the usual one.
fn arm(entry: &Entry, journal: &str, synchronous: &str, page_kib: u32) -> Arm {
    let (mode, sync) = (journal.to_lowercase(), synchronous.to_lowercase());
    let page_size = (page_kib * 1024).to_string();
    let settings =
        [("journal_mode", mode.as_str()), ("synchronous", &sync), ("page_size", &page_size)];
    let pages = if page_kib == DEFAULT_KIB { String::new() } else { format!(" {page_kib} KiB") };
    Arm::new(entry, &format!("{journal} {synchronous}{pages}"), &settings, durability(&sync))
}

/// The study's modern mode.
#[must_use]
pub fn plan(request: &Request) -> Plan {
    let sizes = Sizes::of(request);
    let mut draft = Draft::new(Study::Modes, Mode::Modern);
    for (number, medium) in request.media.iter().enumerate() {
        draft.on(number, medium);
        let mut study = Modern { draft, request, sizes: &sizes };
        study.journals();
        study.begins();
        study.pages();
        study.keys();
        study.holds();
        study.latencies();
        if request.thorough {
            study.all_combinations();
        }
        draft = study.draft;
    }
    draft.finish()
}

/// The charts of one medium.
struct Modern<'a> {
    draft: Draft<'a>,
    request: &'a Request,
    sizes: &'a Sizes,
}

impl<'a> Modern<'a> {
    fn engines(&self) -> impl Iterator<Item = &'a Entry> + use<'a> {
        self.request.engines.iter().filter(|entry| has_journals(entry))
    }

    fn work(&self, begin: Begin) -> Work {
        Work { keys: MANY, begin, hold_ms: 0, amount: Amount::Seconds(self.sizes.seconds) }
    }

    fn point(&mut self, arm: &Arm, work: Work, x: X) -> Option<crate::studies::Point> {
        self.draft.point(arm, &work.id(), x, &work.workload())
    }

    /// A series of an engine and a value of synchronous over the journal modes.
    fn grid(&mut self, begin: Option<Begin>, page_kib: u32) -> Vec<Series> {
        let mut all = Vec::new();
        for entry in self.engines() {
            for synchronous in &self.sizes.synchronous {
                let mut points = Vec::new();
                for journal in &self.sizes.journals {
                    let arm = arm(entry, journal, synchronous, page_kib);
                    let work = self.work(begin.unwrap_or(usual_begin(journal)));
                    points.push(self.point(&arm, work, category(journal)));
                }
                all.push(series(&format!("{} {synchronous}", entry.title), &entry.name, points));
            }
        }
        all
    }

    /// What has pages beside a log, with a cache that holds them all and reads through a map.
    fn large_caches(&mut self) -> Vec<Series> {
        let mut all = Vec::new();
        for entry in self.engines() {
            for synchronous in &self.sizes.synchronous {
                let mut points = Vec::new();
                for journal in ["WAL", "CONCURRENT"] {
                    if !self.sizes.journals.contains(&journal)
                        || journal == "CONCURRENT" && entry.name == "stock"
                    {
                        continue;
                    }
                    let mut arm = arm(entry, journal, synchronous, DEFAULT_KIB);
                    arm.id.push_str("-cache");
                    LARGE_CACHE.iter().for_each(|(name, value)| arm.settings.set(name, value));
                    points.push(self.point(
                        &arm,
                        self.work(usual_begin(journal)),
                        category(journal),
                    ));
                }
                let label = format!("{} {synchronous}, large cache and map", entry.title);
                all.push(series(&label, &entry.name, points));
            }
        }
        all
    }

    /// What has no file: `:memory:` of each library, the map, the dictionary.
    fn ceilings(&mut self) -> Vec<Series> {
        let mut all = Vec::new();
        let request = self.request;
        for entry in &request.engines {
            let (setting, settings): (&str, &[(&str, &str)]) = match entry.name.as_str() {
                "map" | "dict" => ("", &[]),
                _ if has_journals(entry) => ("memory", &[("file", "memory")]),
                _ => continue,
            };
            let mut work = self.work(Begin::Immediate);
            if entry.name == "dict" {
                work.keys = counter::Keys::New;
                work.amount = Amount::Together(self.sizes.transactions);
            }
            let arm = Arm::new(entry, setting, settings, Durability::None);
            let point = self.point(&arm, work, category("no file"));
            all.push(series(&arm.label, &entry.name, [point]));
        }
        all
    }

    fn journals(&mut self) {
        let mut all = self.grid(None, DEFAULT_KIB);
        all.extend(self.large_caches());
        all.extend(self.ceilings());
        let look = Look {
            id: "journals",
            title: "Transactions a second by journal mode and synchronous",
            note: "10 threads raise random ones of 10,000 counters: select, update, commit. BEGIN CONCURRENT in \
                   journal mode CONCURRENT, BEGIN IMMEDIATE in the others. FULL and EXTRA are meant to survive a power \
                   cut, NORMAL and OFF the death of the process, no file nothing. The dictionary creates keys.",
            shape: Shape::Bars,
            metric: Metric::PerSecond,
            x_title: "journal mode",
            logarithmic: true,
        };
        self.draft.chart(look, all, Vec::new());
    }

    fn begins(&mut self) {
        let mut all = Vec::new();
        for entry in self.engines() {
            for journal in &self.sizes.journals {
                let arm = arm(entry, journal, "FULL", DEFAULT_KIB);
                let points: Vec<_> = BEGINS
                    .into_iter()
                    .map(|begin| self.point(&arm, self.work(begin), category(begin.word())))
                    .collect();
                all.push(series(&format!("{} {journal}", entry.title), &entry.name, points));
            }
        }
        let note = "10 threads raise random ones of 10,000 counters at synchronous FULL. A deferred transaction reads \
                    before it asks for the right to write; if another has written meanwhile it is refused, rolled \
                    back and repeated. Refused attempts are never counted as work.";
        let charts = [
            ("begin", "Transactions a second by way to begin", Metric::PerSecond, true),
            (
                "begin-refused",
                "Refused transactions by way to begin",
                Metric::RefusedPercent,
                false,
            ),
            ("begin-busy", "Calls of the busy handler by way to begin", Metric::BusyCalls, false),
        ];
        for (id, title, metric, logarithmic) in charts {
            let look =
                Look { id, title, note, shape: Shape::Bars, metric, x_title: "BEGIN", logarithmic };
            self.draft.chart(look, all.clone(), Vec::new());
        }
    }

    fn pages(&mut self) {
        let mut all = Vec::new();
        for entry in self.engines() {
            for journal in ["DELETE", "WAL", "CONCURRENT"] {
                let points: Vec<_> = self
                    .sizes
                    .pages_kib
                    .iter()
                    .map(|&kib| {
                        let arm = arm(entry, journal, "FULL", kib);
                        let work = self.work(usual_begin(journal));
                        self.point(&arm, work, X::Number(f64::from(kib)))
                    })
                    .collect();
                all.push(series(&format!("{} {journal}", entry.title), &entry.name, points));
            }
        }
        let look = Look {
            id: "pages",
            title: "Transactions a second by page size",
            note: "10 threads raise random ones of 10,000 counters at synchronous FULL.",
            shape: Shape::Lines,
            metric: Metric::PerSecond,
            x_title: "KiB in a page",
            logarithmic: true,
        };
        self.draft.chart(look, all, Vec::new());
    }

    fn keys(&mut self) {
        let mut all = Vec::new();
        for entry in self.engines() {
            for journal in ["WAL", "CONCURRENT"] {
                let arm = arm(entry, journal, "FULL", DEFAULT_KIB);
                let points: Vec<_> = KEYS
                    .into_iter()
                    .map(|(name, keys)| {
                        let work = Work { keys, ..self.work(usual_begin(journal)) };
                        self.point(&arm, work, category(name))
                    })
                    .collect();
                all.push(series(&format!("{} {journal}", entry.title), &entry.name, points));
            }
        }
        let note = "10 threads at synchronous FULL. One key: all transactions raise the same counter, so that of \
                    concurrent ones only the first to commit is right and the others are repeated.";
        let charts = [
            ("keys", "Transactions a second by keys", Metric::PerSecond),
            ("keys-refused", "Refused transactions by keys", Metric::RefusedPercent),
        ];
        for (id, title, metric) in charts {
            let look = Look {
                id,
                title,
                note,
                shape: Shape::Bars,
                metric,
                x_title: "keys",
                logarithmic: metric == Metric::PerSecond,
            };
            self.draft.chart(look, all.clone(), Vec::new());
        }
    }

    fn holds(&mut self) {
        let request = self.request;
        let mut all = Vec::new();
        for entry in request.engines.iter().filter(|e| has_journals(e) || e.name == "map") {
            let journals: &[&str] =
                if entry.name == "map" { &[""] } else { &["WAL", "CONCURRENT"] };
            for journal in journals {
                let arm = match *journal {
                    "" => Arm::new(entry, "", &[], Durability::None),
                    journal => arm(entry, journal, "FULL", DEFAULT_KIB),
                };
                let points: Vec<_> = self
                    .sizes
                    .holds_ms
                    .iter()
                    .map(|&hold_ms| {
                        let work = self.work(usual_begin(journal));
                        let seconds =
                            if hold_ms > 0 { self.sizes.hold_seconds } else { self.sizes.seconds };
                        let work = Work { hold_ms, amount: Amount::Seconds(seconds), ..work };
                        self.point(&arm, work, X::Number(f64::from(hold_ms)))
                    })
                    .collect();
                let label = format!("{} {journal}", entry.title);
                all.push(series(label.trim_end(), &entry.name, points));
            }
        }
        let look = Look {
            id: "hold",
            title: "Transactions a second by time slept inside the transaction",
            note: "10 threads raise random ones of 10,000 counters at synchronous FULL and sleep between select and \
                   update. The original slept 0.1 s and published no figure; here a trial lasts a second or less \
                   whatever the sleep.",
            shape: Shape::Lines,
            metric: Metric::PerSecond,
            x_title: "milliseconds slept",
            logarithmic: true,
        };
        self.draft.chart(look, all, Vec::new());
    }

    fn latencies(&mut self) {
        let mut all = Vec::new();
        for entry in self.engines() {
            for journal in ["DELETE", "WAL", "CONCURRENT"] {
                let arm = arm(entry, journal, "FULL", DEFAULT_KIB);
                let work = self.work(usual_begin(journal));
                let point = self.point(&arm, work, category("latency"));
                all.push(series(&format!("{} {journal}", entry.title), &entry.name, [point]));
            }
        }
        let look = Look {
            id: "latency",
            title: "Time of a transaction, retries included",
            note: "10 threads in a closed loop at synchronous FULL, from the first BEGIN to the COMMIT that succeeded.",
            shape: Shape::Distribution,
            metric: Metric::Latency,
            x_title: "percentile",
            logarithmic: true,
        };
        self.draft.chart(look, all, Vec::new());
    }

    /// A chart for each page size and way to begin.
    fn all_combinations(&mut self) {
        for kib in PAGES_KIB {
            for begin in BEGINS {
                let all = self.grid(Some(begin), kib);
                let look = Look {
                    id: &format!("all-{kib}-kib-{}", begin.word().to_lowercase()),
                    title: &format!(
                        "Transactions a second, BEGIN {}, pages of {kib} KiB",
                        begin.word()
                    ),
                    note: "10 threads raise random ones of 10,000 counters: select, update, commit.",
                    shape: Shape::Bars,
                    metric: Metric::PerSecond,
                    x_title: "journal mode",
                    logarithmic: true,
                };
                self.draft.chart(look, all, Vec::new());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::studies::draft::tests::{assert_sound, request};

    #[test]
    fn plans_of_all_sizes_are_sound() {
        for (quick, thorough) in [(false, false), (true, false), (false, true)] {
            for absent in [&[][..], &["plait", "map"]] {
                let request = Request { quick, thorough, ..request(Mode::Modern, absent) };
                assert_sound(&plan(&request));
            }
        }
    }

    #[test]
    fn a_thorough_plan_has_every_combination() {
        let mut request = Request { thorough: true, ..request(Mode::Modern, &[]) };
        request.media.truncate(1);
        let plan = plan(&request);
        let of_stock = plan.cells.iter().filter(|cell| {
            let Workload::Counter(load) = &cell.workload else { return false };
            cell.engine == "stock"
                && cell.settings.get("file").is_none()
                && cell.settings.get("cache_size").is_none()
                && load.keys == MANY
                && load.hold_s == 0.0
        });
        let all = JOURNALS.len() * SYNCHRONOUS.len() * BEGINS.len() * PAGES_KIB.len();
        assert_eq!(of_stock.count(), all);
    }

    #[test]
    fn a_quick_plan_is_done_within_half_a_minute() {
        let mut request = Request { quick: true, ..request(Mode::Modern, &[]) };
        request.media.truncate(1);
        // A trial is a process that starts, fills and verifies in some 0.2 s besides.
        let seconds = plan(&request).cells.len() as f64 * 0.4;
        assert!(seconds < 30.0, "{seconds} s");
    }

    #[test]
    fn only_what_waits_for_the_disk_claims_to_survive_a_power_cut() {
        for cell in plan(&request(Mode::Modern, &[])).cells {
            let claim = match cell.settings.get("synchronous") {
                Some("full" | "extra") => Durability::PowerCut,
                Some(_) => Durability::Process,
                None => Durability::None,
            };
            assert_eq!(cell.durability, claim, "{}", cell.id);
        }
    }
}
