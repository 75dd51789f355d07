//! Study C as published: linear and concurrent inserts, and the task simulation, in seconds for each run.
//!
//! The publication's tests with tasks are the same work run anew: three runs beside plain files, three beside renamed
//! ones, six of SQLite alone, six on a server. Here they share trials: six runs after each other in one store, of which
//! the charts with three show the first three. PostgreSQL has no published figures ("like SQLite's worst") and does one
//! run, at its default isolation.

use super::published::{self, Runs};
use super::{READ_COMMITTED, records, tasks};
use crate::engines::Durability;
use crate::studies::draft::{Arm, Draft, Look, has_journals, series};
use crate::studies::{Metric, Mode, Plan, Request, Series, Shape, Study, X};
use crate::workloads::Workload;
use crate::workloads::crew::Amount;
use crate::workloads::records::phase_name;

/// The sizes of the three kinds of work.
struct Sizes {
    linear: u64,
    writers: u32,
    records_each: u64,
    concurrency: u32,
    tasks_each: u64,
}

const PUBLISHED: Sizes =
    Sizes { linear: 10_000, writers: 100, records_each: 1_000, concurrency: 100, tasks_each: 100 };
const QUICK: Sizes =
    Sizes { linear: 1_000, writers: 20, records_each: 50, concurrency: 20, tasks_each: 2 };

/// The settings of the publication.
const SQLITE: [(&str, &str); 3] =
    [("journal_mode", "wal"), ("synchronous", "normal"), ("busy_timeout", "5000")];

/// A form of the file arm.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Files {
    None,
    Plain,
    Rename,
}

/// A published test: its chart, its work (part of the cells' ids) and how many runs a trial does.
struct Test {
    runs: Runs,
    title: &'static str,
    work: &'static str,
    files: Files,
    postgres: bool,
}

const TESTS: [Test; 6] = [
    Test {
        runs: published::LINEAR,
        title: "Linear inserts",
        work: "linear",
        files: Files::Plain,
        postgres: true,
    },
    Test {
        runs: published::CONCURRENT,
        title: "Concurrent inserts",
        work: "concurrent",
        files: Files::Plain,
        postgres: true,
    },
    Test {
        runs: published::TASKS,
        title: "Tasks, files written plainly",
        work: "tasks",
        files: Files::Plain,
        postgres: true,
    },
    Test {
        runs: published::TASKS_RENAME,
        title: "Tasks, files by temporary file and rename",
        work: "tasks",
        files: Files::Rename,
        postgres: false,
    },
    Test {
        runs: published::WARM_UP,
        title: "Tasks, six runs: warming up",
        work: "tasks",
        files: Files::None,
        postgres: false,
    },
    Test {
        runs: published::SERVER,
        title: "Tasks, as on the cloud server",
        work: "tasks",
        files: Files::Rename,
        postgres: false,
    },
];

/// The study's historical mode.
#[must_use]
pub fn plan(request: &Request) -> Plan {
    let sizes = if request.quick { &QUICK } else { &PUBLISHED };
    let mut draft = Draft::new(Study::Files, Mode::Historical);
    for (number, medium) in request.media.iter().enumerate() {
        draft.on(number, medium);
        for test in &TESTS {
            let all = all_series(&mut draft, request, test, sizes);
            let look = Look {
                id: test.runs.test,
                title: test.title,
                note: &note(test, sizes),
                shape: Shape::Lines,
                metric: Metric::Seconds,
                x_title: "run",
                logarithmic: false,
            };
            draft.chart(look, all, test.runs.ghosts());
        }
    }
    draft.finish()
}

/// The engines of a test.
fn arms(request: &Request, test: &Test) -> Vec<Arm> {
    let mut all = Vec::new();
    for entry in &request.engines {
        all.extend(match (entry.name.as_str(), test.files) {
            ("files", Files::Plain) => {
                Some(Arm::new(entry, "plain", &[("form", "plain")], Durability::Process))
            }
            ("files", Files::Rename) => {
                Some(Arm::new(entry, "rename", &[("form", "rename")], Durability::Process))
            }
            ("postgres", _) if test.postgres => {
                Some(Arm::new(entry, "", &[READ_COMMITTED], Durability::PowerCut))
            }
            _ if has_journals(entry) => Some(Arm::new(entry, "", &SQLITE, Durability::Process)),
            _ => None,
        });
    }
    all
}

fn all_series(draft: &mut Draft<'_>, request: &Request, test: &Test, sizes: &Sizes) -> Vec<Series> {
    let mut all = Vec::new();
    for arm in arms(request, test) {
        let runs = match (test.work, arm.id.as_str()) {
            (_, "postgres") => 1,
            // What only tests with three runs show.
            ("tasks", "files-plain") | ("linear" | "concurrent", _) => 3,
            _ => 6,
        };
        let workload = workload(test.work, sizes, runs);
        let points: Vec<_> = (1..=test.runs.count().min(runs))
            .map(|run| {
                let mut point = draft.point(&arm, test.work, X::Number(run.into()), &workload)?;
                point.phase = Some(phase_name(run));
                Some(point)
            })
            .collect();
        all.push(series(&arm.label, &arm.engine, points));
    }
    all
}

fn workload(work: &str, sizes: &Sizes, runs: u32) -> Workload {
    match work {
        "linear" => records(1, Amount::Each(sizes.linear), runs),
        "concurrent" => records(sizes.writers, Amount::Each(sizes.records_each), runs),
        _ => tasks(sizes.concurrency, sizes.tasks_each, runs),
    }
}

fn note(test: &Test, sizes: &Sizes) -> String {
    let what = match test.work {
        "linear" => format!("{} inserts in a tight loop.", sizes.linear),
        "concurrent" => {
            format!("{} writers with {} records each.", sizes.writers, sizes.records_each)
        }
        _ => format!(
            "{} threads with {} tasks each: create, change status, update output 10 times, delete; indexes on status \
             and scheduled_at; read once before the deletion, which is ours, for verification.",
            sizes.concurrency, sizes.tasks_each
        ),
    };
    format!(
        "{what} Runs after each other in the same store; less is better. Journal mode WAL, synchronous NORMAL, busy \
         timeout 5 s; every step a transaction of its own, of 100 bytes. Published: Go, mattn/go-sqlite3; btrfs on a \
         laptop's SSD, ext4 on a cloud server. Its text reads the figures as: files 1.8 times as fast as SQLite in \
         linear inserts, 2.4 times in concurrent ones, 3.3 times in tasks written plainly."
    )
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
        let found: BTreeSet<&str> = plan.cells.iter().map(|c| c.id.as_str()).collect();
        let expected = [
            "files/historical/linear/stock",
            "files/historical/linear/plait",
            "files/historical/linear/files-plain",
            "files/historical/linear/postgres",
            "files/historical/concurrent/stock",
            "files/historical/concurrent/plait",
            "files/historical/concurrent/files-plain",
            "files/historical/concurrent/postgres",
            "files/historical/tasks/stock",
            "files/historical/tasks/plait",
            "files/historical/tasks/files-plain",
            "files/historical/tasks/files-rename",
            "files/historical/tasks/postgres",
        ];
        assert_eq!(found, expected.into_iter().collect());
    }

    #[test]
    fn sizes_and_settings_are_those_of_the_publication() {
        let plan = plan(&request(Mode::Historical, &[]));
        let cell = |id: &str| plan.cells.iter().find(|c| c.id == id).expect(id);
        let linear = records(1, Amount::Each(10_000), 3);
        assert_eq!(cell("files/historical/linear/stock").workload, linear);
        let concurrent = records(100, Amount::Each(1_000), 3);
        assert_eq!(cell("files/historical/concurrent/files-plain").workload, concurrent);
        assert_eq!(cell("files/historical/tasks/stock").workload, tasks(100, 100, 6));
        let settings = cell("files/historical/tasks/stock").settings.to_string();
        assert_eq!(settings, "busy_timeout=5000 journal_mode=wal synchronous=normal");
    }

    #[test]
    fn every_published_figure_has_a_measured_point_of_its_run() {
        for chart in plan(&request(Mode::Historical, &[])).charts {
            for ghost in &chart.published {
                let series = chart.series.iter().find(|s| s.engine == ghost.engine).unwrap();
                for (x, _) in &ghost.points {
                    assert!(series.points.iter().any(|p| p.x == *x), "{} {x:?}", chart.frame.id);
                }
            }
        }
    }
}
