//! Study B as published: 10,000 transactions by 10 threads in each published setting.
//!
//! The publication's page size (1,024 bytes, the default then) and Python's busy timeout (5 s) are set. It found no
//! difference between one key and many, nor between the ways to begin; here transactions begin with BEGIN IMMEDIATE,
//! and both kinds of keys are measured.

use super::published::{self, ROWS};
use super::{WORKERS, durability};
use crate::engines::{Begin, Durability};
use crate::studies::draft::{Arm, Draft, Look, category, has_journals, series};
use crate::studies::{Metric, Mode, Plan, Request, Shape, Study};
use crate::workloads::crew::{Amount, Shift};
use crate::workloads::{Workload, counter};

/// Transactions of all threads together, as published.
const TRANSACTIONS: u64 = 10_000;
/// The same for a glance.
const TRANSACTIONS_QUICK: u64 = 500;

/// The kinds of keys: parts of ids, words, keys.
const KEYS: [(&str, &str, counter::Keys); 2] = [
    ("one-key", "one key raised", counter::Keys::Existing(1)),
    ("new-keys", "different keys created", counter::Keys::New),
];

/// The study's historical mode.
#[must_use]
pub fn plan(request: &Request) -> Plan {
    let transactions = if request.quick { TRANSACTIONS_QUICK } else { TRANSACTIONS };
    let mut draft = Draft::new(Study::Modes, Mode::Historical);
    for (number, medium) in request.media.iter().enumerate() {
        draft.on(number, medium);
        for (id, words, keys) in KEYS {
            let workload = Workload::Counter(counter::Load {
                keys,
                begin: Begin::Immediate,
                hold_s: 0.0,
                shift: Shift {
                    workers: WORKERS,
                    amount: Amount::Together(transactions),
                    due_per_second: None,
                    count_start_and_stop: true,
                },
            });
            charts(&mut draft, request, id, words, &workload);
        }
    }
    draft.finish()
}

/// Rate and seconds of one kind of keys.
fn charts(draft: &mut Draft<'_>, request: &Request, id: &str, words: &str, workload: &Workload) {
    let mut all = Vec::new();
    for entry in request.engines.iter().filter(|e| has_journals(e) || e.name == "dict") {
        let mut points = Vec::new();
        for row in ROWS.iter().filter(|row| row.disk != "HDD") {
            let arm = match (row.journal, entry.name.as_str()) {
                ("dict", "dict") => Arm::new(entry, "", &[], Durability::None),
                ("dict", _) | (_, "dict") => continue,
                (":memory:", _) => {
                    let settings = [("file", "memory"), ("page_size", "1024")];
                    Arm::new(entry, "memory", &settings, Durability::None)
                }
                (journal, _) => {
                    let (journal, synchronous) =
                        (journal.to_lowercase(), row.synchronous.to_lowercase());
                    let settings = [
                        ("journal_mode", journal.as_str()),
                        ("synchronous", &synchronous),
                        ("page_size", "1024"),
                        ("busy_timeout", "5000"),
                    ];
                    Arm::new(entry, &row.place(), &settings, durability(&synchronous))
                }
            };
            points.push(draft.point(&arm, id, category(&row.place()), workload));
        }
        all.push(series(&entry.title, &entry.name, points));
    }
    let note = format!(
        "10 threads, {} select-and-update transactions in all{}, {words}; start and end of the threads counted; pages \
         of 1,024 bytes; each thread has its own connection, in memory all share one behind a mutex. Published: a \
         blog of April 2014, Python 3.2; hard disk: NTFS, 7,200 rpm; SSD: ext4.",
        match workload {
            Workload::Counter(counter::Load {
                shift: Shift { amount: Amount::Together(n), .. },
                ..
            }) => *n,
            _ => TRANSACTIONS,
        },
        if request.quick { " (10,000 in the publication)" } else { "" },
    );
    let looks = [
        ("rate", "Transactions a second", Metric::PerSecond),
        ("seconds", "Seconds for all transactions", Metric::Seconds),
    ];
    for (part, what, metric) in looks {
        let look = Look {
            id: &format!("{id}-{part}"),
            title: &format!("{what}, {words}"),
            note: &note,
            shape: Shape::Bars,
            metric,
            x_title: "journal mode and synchronous",
            logarithmic: true,
        };
        draft.chart(look, all.clone(), published::ghosts(metric));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::studies::draft::tests::{assert_sound, request};

    #[test]
    fn the_plan_has_exactly_the_published_cells() {
        let mut request = request(Mode::Historical, &[]);
        request.media.truncate(1);
        let plan = plan(&request);
        assert_sound(&plan);
        let mut expected = BTreeSet::new();
        for keys in ["one-key", "new-keys"] {
            expected.insert(format!("modes/historical/{keys}/dict"));
            for engine in ["stock", "plait"] {
                for setting in [
                    "wal-off",
                    "wal-normal",
                    "delete-off",
                    "delete-normal",
                    "delete-full",
                    "memory",
                ] {
                    expected.insert(format!("modes/historical/{keys}/{engine}-{setting}"));
                }
            }
        }
        let found: BTreeSet<String> = plan.cells.iter().map(|c| c.id.clone()).collect();
        assert_eq!(found, expected);
        for cell in &plan.cells {
            let Workload::Counter(load) = &cell.workload else { panic!("{}", cell.id) };
            assert_eq!(load.shift.workers, 10);
            assert_eq!(load.shift.amount, Amount::Together(10_000));
            assert!(load.shift.count_start_and_stop);
        }
    }

    #[test]
    fn an_absent_engine_keeps_its_place() {
        let plan = plan(&request(Mode::Historical, &["plait", "dict"]));
        assert_sound(&plan);
        for name in ["plait", "dict"] {
            let absent = plan.charts[0].series.iter().find(|s| s.engine == name);
            assert!(absent.is_some_and(|s| s.points.is_empty()), "{name}");
        }
    }

    #[test]
    fn every_medium_has_charts_of_its_own() {
        let plan = plan(&request(Mode::Historical, &[]));
        assert_eq!(plan.charts.len(), 8);
        assert!(plan.charts[4].frame.title.ends_with("on /b"));
    }
}
