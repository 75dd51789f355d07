//! Made-up results of every shape, for the tests of the reports. No figure in them was measured.

// The machine's description grows; and not every test uses all that is here.
#![allow(clippy::needless_update, dead_code)]

use std::path::PathBuf;

use plait_bench::engines::catalogue::{Entry, Kind, Presence};
use plait_bench::engines::{Begin, Durability, Settings, Waits};
use plait_bench::measure::durability::Proof;
use plait_bench::measure::machine::{Disturbance, Machine};
use plait_bench::measure::phase::{Latency, Phase, Refusals, Usage, new_histogram};
use plait_bench::measure::trace::Traced;
use plait_bench::measure::trial::Answer;
use plait_bench::report::results::{CellResult, Results, SCHEMA, Trial};
use plait_bench::studies::{
    Cell, Chart, Frame, Metric, Mode, Point, Published, Series, Shape, Study, Tuning, X,
};
use plait_bench::workloads::dice::Dice;
use plait_bench::workloads::{Finding, Measured, Workload, proof};

/// What stands for the processor, so that nobody takes these figures for measured ones.
pub const SYNTHETIC: &str = "SYNTHETIC: made up for a test, not measured";

/// The trial that was disturbed.
pub const DISTURBED: u32 = 52;

/// Trials of each cell.
const REPEATS: u32 = 5;

/// A run with every shape of chart, failures, an absent engine, unproven durability, and an interruption.
pub fn results(seed: u64) -> Results {
    let mut sample =
        Sample { dice: Dice::new(seed, 0), position: 0, cells: Vec::new(), charts: Vec::new() };
    sample.historical_kv();
    sample.historical_writers();
    sample.modern_modes();
    sample.modern_threads();
    sample.open_loop();
    sample.behaviour();
    Results {
        schema: SCHEMA,
        version: "0.0.0-synthetic".to_owned(),
        command: vec!["synthetic".to_owned()],
        started_unix_s: 1_700_000_000,
        took_s: 321.5,
        interrupted: true,
        repeats: REPEATS,
        seed,
        machine: Machine {
            processor: SYNTHETIC.to_owned(),
            processors: 2,
            kernel: "0.0-synthetic".to_owned(),
            ..Machine::default()
        },
        engines: engines(),
        proofs: proofs(),
        cells: sample.cells,
        charts: sample.charts,
    }
}

fn engines() -> Vec<Entry> {
    let here = |name: &str, title: &str| Entry {
        name: name.to_owned(),
        title: title.to_owned(),
        presence: Presence::Here {
            engine: Kind::Sqlite {
                library: PathBuf::from("/synthetic/libsqlite3.so"),
                parameters: String::new(),
            },
            version: "0.0-synthetic".to_owned(),
        },
    };
    let absent = Entry {
        name: "bdb".to_owned(),
        title: "Berkeley DB".to_owned(),
        presence: Presence::Absent {
            why: "its library was not found".to_owned(),
            install: "make bench-peers".to_owned(),
        },
    };
    vec![
        here("stock", "SQLite"),
        here("plait", "Plait"),
        here("bdb-sql", "Berkeley DB SQL"),
        here("lmdb", "LMDB"),
        here("redb", "redb"),
        absent,
    ]
}

fn settings(engine: &str) -> Settings {
    Settings::default().with("synchronous", "full").with("of", engine)
}

fn proofs() -> Vec<Proof> {
    let proof = |engine: &str, proven: bool, why: &str| Proof {
        engine: engine.to_owned(),
        settings: settings(engine),
        begin: Begin::Immediate,
        workers: 4,
        commits: 400,
        syncs: [("fdatasync".to_owned(), if proven { 131 } else { 0 })].into(),
        system_calls: 5_000,
        system_calls_per_commit: 12.5,
        proven,
        why: why.to_owned(),
    };
    let held = "131 sync calls for 400 commits of 4 workers: each commit waited for one";
    vec![
        proof("stock", true, held),
        proof("plait", true, held),
        proof("lmdb", true, held),
        proof("bdb-sql", true, held),
        proof("redb", false, "0 sync calls for 400 commits: nothing waited for the disk"),
    ]
}

struct Sample {
    dice: Dice,
    position: u32,
    cells: Vec<CellResult>,
    charts: Vec<Chart>,
}

/// What is made up of a cell.
#[derive(Clone)]
struct Made {
    id: String,
    study: Study,
    mode: Mode,
    engine: &'static str,
    label: String,
    durability: Durability,
    rates: Vec<(&'static str, f64)>,
    threads: usize,
    due: Option<f64>,
}

impl Made {
    fn new(study: Study, mode: Mode, engine: &'static str, label: &str, place: &str) -> Self {
        let word = if mode == Mode::Historical { "historical" } else { "modern" };
        Self {
            id: format!("{study:?}/{word}/{label}/{place}").to_lowercase().replace(' ', "-"),
            study,
            mode,
            engine,
            label: label.to_owned(),
            durability: Durability::PowerCut,
            rates: Vec::new(),
            threads: 1,
            due: None,
        }
    }

    fn rate(mut self, phase: &'static str, rate: f64) -> Self {
        self.rates.push((phase, rate));
        self
    }
}

impl Sample {
    fn wobble(&mut self) -> f64 {
        0.96 + 0.08 * self.dice.below(1000) as f64 / 1000.0
    }

    fn phase(&mut self, made: &Made, name: &str, rate: f64) -> Phase {
        let seconds = 0.5;
        let rate = rate * self.wobble();
        let operations = (rate * seconds) as u64;
        let mut latency = new_histogram();
        let typical_ns = 1e9 * made.threads as f64 / rate;
        for i in 0..operations.clamp(100, 40_000) {
            let tail = if i % 1000 == 0 {
                30.0
            } else if i % 100 == 0 {
                6.0
            } else {
                1.0
            };
            let spread = 0.6 + self.dice.below(800) as f64 / 1000.0;
            latency.saturating_record((typical_ns * tail * spread) as u64);
        }
        let share = operations / made.threads as u64;
        Phase {
            name: name.to_owned(),
            operations,
            commits: operations,
            seconds,
            refusals: Refusals { busy: operations / 50, conflict: operations / 200, deadlock: 0 },
            waits: Waits {
                busy_handler_calls: operations * (made.threads as u64 - 1) / 10,
                busy_handler_slept_s: 0.01,
            },
            usage: Usage {
                user_cpu_s: 0.3 * self.wobble(),
                system_cpu_s: 0.2 * self.wobble(),
                written_bytes: operations * 4200,
                write_calls: operations * 2,
                context_switches: operations,
            },
            transaction_cpu_s: 0.4 * self.wobble(),
            thread_commits: (0..made.threads as u64).map(|i| share + i).collect(),
            latency: Some(Latency::from(&latency)),
            due_per_second: made.due,
            ..Phase::default()
        }
    }

    fn trial(&mut self, answer: Answer) -> Trial {
        self.position += 1;
        // One trial of one cell is disturbed, in the middle of the run.
        let stolen = if self.position == DISTURBED { 0.305 } else { 0.001 };
        let disturbance = Disturbance { load: 0.4, steal: 0.001, steal_during: Some(stolen) };
        Trial { position: self.position, disturbance, answer }
    }

    fn cell(&mut self, made: &Made, change: &dyn Fn(u32, Answer) -> Option<Answer>) -> String {
        let mut trials = Vec::new();
        for number in 0..REPEATS {
            let phases =
                made.rates.iter().map(|(name, rate)| self.phase(made, name, *rate)).collect();
            let answer = Answer::Done(Box::new(Measured {
                phases,
                settings: settings(made.engine).with("version", "0.0-synthetic"),
                verified: vec!["the sum of all rows".to_owned()],
                findings: Vec::new(),
                file_bytes: 4_100_000,
                ..Measured::default()
            }));
            if let Some(answer) = change(number, answer) {
                let trial = self.trial(answer);
                trials.push(trial);
            }
        }
        let traced = Traced {
            system_calls: 7_300 * made.threads as u64,
            operations: 1_000,
            ..Traced::default()
        };
        self.cells.push(CellResult {
            cell: Cell {
                id: made.id.clone(),
                study: made.study,
                mode: made.mode,
                engine: made.engine.to_owned(),
                label: made.label.clone(),
                settings: settings(made.engine),
                durability: made.durability,
                tuning: Tuning::Default,
                workload: Workload::Proof(proof::Load {
                    workers: made.threads as u32,
                    commits_each: 100,
                    begin: Begin::Immediate,
                }),
                medium: PathBuf::from("/synthetic"),
            },
            trials,
            traced: Some(traced),
        });
        made.id.clone()
    }

    fn done(&mut self, made: &Made) -> String {
        self.cell(made, &|_, answer| Some(answer))
    }

    fn historical_kv(&mut self) {
        const TESTS: [&str; 4] = ["insert int", "select int", "insert blob", "select blob"];
        let mut series = Vec::new();
        for (engine, label, scale) in [("stock", "SQLite", 1.0), ("plait", "Plait", 0.7)] {
            let made = Made::new(Study::Kv, Mode::Historical, engine, label, "5000-persistent")
                .rate(TESTS[0], 900_000.0 * scale)
                .rate(TESTS[1], 1_900_000.0 * scale)
                .rate(TESTS[2], 700_000.0 * scale)
                .rate(TESTS[3], 1_500_000.0 * scale);
            let id = self.done(&made);
            let points = TESTS.map(|test| point(X::Category(test.to_owned()), &id, Some(test)));
            series.push(named(label, engine, points.to_vec()));
        }
        series.push(named("Berkeley DB", "bdb", Vec::new()));
        let figures = |label: &str, engine: &str, values: [f64; 4]| Published {
            label: label.to_owned(),
            engine: engine.to_owned(),
            points: TESTS.map(|t| X::Category(t.to_owned())).into_iter().zip(values).collect(),
        };
        let mut chart = chart(
            Study::Kv,
            Mode::Historical,
            "5000-persistent",
            "5,000 keys, persistent, single user",
            Shape::Bars,
            Metric::PerSecond,
            series,
        );
        chart.frame.logarithmic = true;
        chart.published = vec![
            figures("SQLite 3.6.19, 2009", "stock", [51874.0, 334_470.0, 46093.0, 183_634.0]),
            figures(
                "Berkeley DB 4.8.24, 2009",
                "bdb",
                [444_168.0, 684_088.0, 425_061.0, 590_737.0],
            ),
        ];
        self.charts.push(chart);
    }

    fn historical_writers(&mut self) {
        let threads = [1.0, 5.0, 10.0, 50.0, 100.0];
        let mut series = Vec::new();
        for (engine, label, rates) in [
            ("stock", "SQLite", [9000.0, 8000.0, 6500.0, 3100.0, 2000.0]),
            ("bdb-sql", "Berkeley DB SQL", [3000.0, 5000.0, 6100.0, 6000.0, 5600.0]),
            ("plait", "Plait", [8700.0, 14000.0, 21000.0, 30000.0, 29000.0]),
        ] {
            let points = threads.iter().zip(rates).map(|(threads, rate)| {
                let place = format!("{threads}");
                let mut made = Made::new(Study::Writers, Mode::Historical, engine, label, &place)
                    .rate("transactions", rate);
                made.threads = *threads as usize;
                point(X::Number(*threads), &self.done(&made), None)
            });
            let points = points.collect();
            series.push(named(label, engine, points));
        }
        for (name, title, metric) in [
            ("throughput", "Transactions per second", Metric::PerSecond),
            ("cpu", "Processor use", Metric::CpuPercent),
            ("system-cpu", "Processor time in system calls", Metric::SystemCpu),
            ("inside", "Processor time in transactions", Metric::TransactionCpu),
            ("busy", "Busy-handler calls", Metric::BusyCalls),
        ] {
            let mut chart = chart(
                Study::Writers,
                Mode::Historical,
                name,
                title,
                Shape::Lines,
                metric,
                series.clone(),
            );
            if metric == Metric::PerSecond {
                let line = |values: [f64; 2]| {
                    vec![(X::Number(1.0), values[0]), (X::Number(100.0), values[1])]
                };
                for (label, engine, values) in [
                    ("SQLite 3.6.23, 2010", "stock", [500.0, 500.0]),
                    ("Berkeley DB 11.1, 2010", "bdb-sql", [700.0, 4000.0]),
                ] {
                    chart.published.push(Published {
                        label: label.to_owned(),
                        engine: engine.to_owned(),
                        points: line(values),
                    });
                }
            }
            self.charts.push(chart);
        }
    }

    fn modern_modes(&mut self) {
        let modes = ["delete", "wal", "concurrent"];
        let mut series = Vec::new();
        for (engine, label, rates) in [
            ("stock", "SQLite FULL", [900.0, 9600.0, 0.0]),
            ("plait", "Plait FULL", [880.0, 9500.0, 31000.0]),
        ] {
            let mut points = Vec::new();
            for (mode, rate) in modes.iter().zip(rates) {
                let made = Made::new(Study::Modes, Mode::Modern, engine, label, mode)
                    .rate("updates", f64::max(rate, 1.0));
                let missing = rate == 0.0;
                let id = self.cell(&made, &|_, answer| {
                    let why = "journal_mode=concurrent is not one of this library".to_owned();
                    Some(if missing { Answer::NotApplicable { why } } else { answer })
                });
                points.push(point(X::Category((*mode).to_owned()), &id, None));
            }
            series.push(named(label, engine, points));
        }
        let made =
            Made::new(Study::Modes, Mode::Modern, "lmdb", "LMDB", "all").rate("updates", 14000.0);
        let id = self.cell(&made, &|number, answer| {
            let why = "the sum of all counters is 9,998 and should be 10,000".to_owned();
            Some(if number == 2 { Answer::Failed { why } } else { answer })
        });
        series.push(named("LMDB", "lmdb", vec![point(X::Category("wal".to_owned()), &id, None)]));
        let made =
            Made::new(Study::Modes, Mode::Modern, "redb", "redb", "all").rate("updates", 1.0);
        let id = self.cell(&made, &|_, _| {
            Some(Answer::Failed { why: "killed after 600 s </script><b>".to_owned() })
        });
        series.push(named(
            "redb",
            "redb",
            vec![point(X::Category("delete".to_owned()), &id, None)],
        ));
        self.charts.push(chart(
            Study::Modes,
            Mode::Modern,
            "journal",
            "Read and update one of 10,000 rows",
            Shape::Bars,
            Metric::PerSecond,
            series,
        ));
    }

    fn modern_threads(&mut self) {
        let threads = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0];
        let mut series = Vec::new();
        let lines = [
            ("stock", "SQLite WAL FULL", 9000.0, -0.15),
            ("plait", "Plait FULL, BEGIN CONCURRENT", 8200.0, 0.5),
            ("bdb-sql", "Berkeley DB SQL", 3000.0, 0.1),
            ("lmdb", "LMDB", 12000.0, 0.0),
            ("redb", "redb", 15000.0, 0.05),
        ];
        for (engine, label, rate, slope) in lines {
            let mut points = Vec::new();
            for threads in threads {
                let mut made =
                    Made::new(Study::Writers, Mode::Modern, engine, label, &format!("{threads}"))
                        .rate("transactions", rate * f64::powf(threads, slope));
                made.threads = threads as usize;
                // The run was interrupted before the last cell's turn.
                let never = engine == "bdb-sql" && threads > 99.0;
                let id = self.cell(&made, &|_, answer| (!never).then_some(answer));
                points.push(point(X::Number(threads), &id, None));
            }
            series.push(named(label, engine, points));
        }
        series.push(named("Berkeley DB", "bdb", Vec::new()));
        self.charts.push(chart(
            Study::Writers,
            Mode::Modern,
            "threads",
            "Transactions over threads",
            Shape::Lines,
            Metric::PerSecond,
            series,
        ));
    }

    fn open_loop(&mut self) {
        let mut series = Vec::new();
        for (engine, label, rate) in [
            ("stock", "SQLite WAL FULL", 9000.0),
            ("plait", "Plait FULL, BEGIN CONCURRENT", 20000.0),
            ("redb", "redb", 5000.0),
        ] {
            let mut made = Made::new(Study::Writers, Mode::Modern, engine, label, "open")
                .rate("transactions", rate);
            made.due = Some(8000.0);
            made.threads = 8;
            let id = self.done(&made);
            series.push(named(label, engine, vec![point(X::Number(8000.0), &id, None)]));
        }
        self.charts.push(chart(
            Study::Writers,
            Mode::Modern,
            "open",
            "Latency at 8,000 transactions a second",
            Shape::Distribution,
            Metric::Latency,
            series,
        ));
    }

    fn behaviour(&mut self) {
        for (engine, label, answer) in [
            (
                "stock",
                "SQLite",
                "the second BEGIN IMMEDIATE answers SQLITE_BUSY at once; it may be repeated",
            ),
            (
                "plait",
                "Plait",
                "both proceed; the second commit of the same row answers SQLITE_BUSY_SNAPSHOT, and all of it must be repeated",
            ),
        ] {
            let made = Made::new(Study::Writers, Mode::Historical, engine, label, "behaviour");
            let findings = vec![
                Finding {
                    question: "two immediate transactions on different tables".to_owned(),
                    answer: answer.to_owned(),
                },
                Finding {
                    question: "the two-table deadlock".to_owned(),
                    answer: "does not happen".to_owned(),
                },
            ];
            self.cell(&made, &|number, answer| match answer {
                Answer::Done(measured) if number == 0 => {
                    let findings = findings.clone();
                    Some(Answer::Done(Box::new(Measured { findings, ..*measured })))
                }
                _ => None,
            });
        }
    }
}

fn point(x: X, cell: &str, phase: Option<&str>) -> Point {
    Point { x, cell: cell.to_owned(), phase: phase.map(str::to_owned) }
}

fn named(label: &str, engine: &str, points: Vec<Point>) -> Series {
    Series { label: label.to_owned(), engine: engine.to_owned(), points }
}

fn chart(
    study: Study,
    mode: Mode,
    name: &str,
    title: &str,
    shape: Shape,
    metric: Metric,
    series: Vec<Series>,
) -> Chart {
    let x_title = match shape {
        Shape::Lines => "threads",
        Shape::Bars => "",
        Shape::Distribution => "due per second",
    };
    let word = if mode == Mode::Historical { "historical" } else { "modern" };
    Chart {
        frame: Frame {
            id: format!("{study:?}/{word}/{name}").to_lowercase(),
            study,
            mode,
            title: title.to_owned(),
            note: "Made-up figures of a test: nothing here was measured.".to_owned(),
            shape,
            metric,
            x_title: x_title.to_owned(),
            logarithmic: false,
        },
        series,
        published: Vec::new(),
    }
}
