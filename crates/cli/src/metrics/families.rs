//! The metrics: names, kinds, meanings and where each number comes from.
//!
//! Names are promised to dashboards and alert rules: one may be added, and none changed
//! (`examples/monitoring`).

use prometheus::TextEncoder;
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

use crate::live::{Doing, Session};

/// What was found at a database that is up.
pub enum Measured {
    /// Processes use it together.
    Session(Box<Session>),
    /// Nobody is in a session.
    Rest {
        /// Size of the WAL.
        wal_bytes: u64,
    },
    /// The same, and killed processes have left something to be brought in.
    Left {
        /// Size of the WAL.
        wal_bytes: u64,
    },
}

/// One number, with a label where a family has several.
struct Point(Option<(&'static str, &'static str)>, f64);

struct Family {
    name: &'static str,
    kind: MetricType,
    help: &'static str,
    points: fn(&Session) -> Vec<Point>,
}

fn one(value: u64) -> Vec<Point> {
    vec![Point(None, value as f64)]
}

fn seconds(ms: Option<u64>) -> Vec<Point> {
    vec![Point(None, ms.unwrap_or(0) as f64 / 1000.0)]
}

const fn counter(
    name: &'static str,
    help: &'static str,
    points: fn(&Session) -> Vec<Point>,
) -> Family {
    Family { name, kind: MetricType::COUNTER, help, points }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    points: fn(&Session) -> Vec<Point>,
) -> Family {
    Family { name, kind: MetricType::GAUGE, help, points }
}

/// What a session tells. At rest all of it but the WAL is 0: a counter begins at 0 with each session, as one
/// does with each process.
const FAMILIES: &[Family] = &[
    gauge("plait_processes", "Living processes in the session.", |s| one(s.processes.len() as u64)),
    gauge("plait_connections", "Connections in the session, of all processes.", |s| {
        one(s.sizes.connections)
    }),
    gauge("plait_transactions", "Transactions in progress, by what they do.", |s| {
        let point = |what: Doing| Point(Some(("state", what.word())), s.doing(what) as f64);
        Doing::ALL.map(point).into()
    }),
    gauge("plait_waiting_writers", "Transactions that wait for the writer's right.", |s| {
        one(s.doing(Doing::Queued))
    }),
    gauge(
        "plait_longest_transaction_seconds",
        "Age of the transaction in progress that began first.",
        |s| seconds(s.longest().map(|t| t.age_ms)),
    ),
    gauge(
        "plait_oldest_reader_seconds",
        "Age of the oldest snapshot, which keeps memory and WAL from being used again.",
        |s| seconds(s.oldest_reader.map(|(_, age)| age)),
    ),
    counter(
        "plait_commits_total",
        "Commits of transactions that wrote, without exclusive ones.",
        |s| one(s.counts.commits),
    ),
    counter(
        "plait_exclusive_commits_total",
        "Commits of exclusive transactions: schema changes, VACUUM, bulk loads.",
        |s| one(s.counts.exclusive_commits),
    ),
    counter("plait_conflicts_total", "Transactions refused by a conflict.", |s| {
        one(s.counts.conflicts)
    }),
    gauge(
        "plait_recent_conflicts",
        "The last conflicts, 64 at most, by what the loser had read, or by a winner that was exclusive.",
        |s| {
            let kinds =
                [("row", s.kinds.row), ("range", s.kinds.range), ("exclusive", s.kinds.exclusive)];
            kinds.map(|(kind, n)| Point(Some(("kind", kind)), n as f64)).into()
        },
    ),
    counter("plait_busy_total", "Waits that ended in SQLITE_BUSY.", |s| one(s.counts.busy)),
    counter(
        "plait_early_begins_total",
        "Transactions begun by a plain BEGIN that took the writer's right to read.",
        |s| one(s.counts.begun_early),
    ),
    counter(
        "plait_log_syncs_total",
        "Syncs of the log: fewer than commits when groups form.",
        |s| one(s.counts.log_syncs),
    ),
    counter(
        "plait_base_syncs_total",
        "Syncs of the WAL of the database file that the log had to wait for.",
        |s| one(s.counts.base_syncs),
    ),
    counter("plait_log_written_bytes_total", "Bytes of commits appended to the log.", |s| {
        one(s.counts.log_bytes)
    }),
    gauge("plait_log_unsynced_bytes", "Bytes of the log that are not on disk yet.", |s| {
        one(s.sizes.log_unsynced_bytes)
    }),
    gauge("plait_log_file_bytes", "Size of the log's file.", |s| one(s.sizes.log_file_bytes)),
    gauge("plait_memtable_bytes", "Memory of commits that are not merged yet.", |s| {
        one(s.sizes.memtable_bytes)
    }),
    gauge(
        "plait_memtables",
        "Memtables that wait to be merged, and merged ones that a reader needs.",
        |s| {
            vec![
                Point(Some(("state", "frozen")), s.sizes.memtables_frozen as f64),
                Point(Some(("state", "kept")), s.sizes.memtables_kept as f64),
            ]
        },
    ),
    gauge("plait_shared_memory_bytes", "Space that shared memory takes.", |s| {
        one(s.sizes.memory_bytes)
    }),
    gauge("plait_shared_memory_limit_bytes", "Space that shared memory may take.", |s| {
        one(s.sizes.memory_limit_bytes)
    }),
    counter("plait_merges_total", "Merges into the database file.", |s| one(s.counts.merges)),
    counter("plait_merged_entries_total", "Rows and deletions that merges have applied.", |s| {
        one(s.counts.merged_entries)
    }),
    gauge("plait_merging", "1 while a merge or an exclusive transaction runs.", |s| {
        one(s.merger.is_some().into())
    }),
    gauge("plait_base_generation", "Generation that the database file includes.", |s| {
        one(s.sizes.base_generation)
    }),
    gauge(
        "plait_wal_bytes",
        "Size of the WAL of the database file: after the last merge, or as it is where there is no session.",
        |s| one(s.sizes.wal_bytes),
    ),
    gauge("plait_wal_limit_bytes", "Size of that WAL at which commits fail.", |s| {
        one(s.sizes.wal_limit_bytes)
    }),
    counter("plait_reaped_processes_total", "Processes found dead and cleaned up after.", |s| {
        one(s.counts.reaped)
    }),
    gauge("plait_fenced", "1 while a copy of the database file alone may lack commits.", |s| {
        one(s.sizes.is_fenced.into())
    }),
    gauge(
        "plait_poisoned",
        "1 after a failed write or sync of the log: nothing is committed until all have closed.",
        |s| one(s.sizes.is_poisoned.into()),
    ),
];

/// All of it as text; a database that is not up has nothing but that.
pub fn text(databases: &[(String, Option<Measured>)]) -> String {
    let mut families = vec![built()];
    families.push(state("plait_up", "1 if the database could be looked at.", databases, |m| {
        Some(m.is_some())
    }));
    families.push(state(
        "plait_session",
        "1 while processes use the database together.",
        databases,
        |m| m.map(|m| matches!(m, Measured::Session(_))),
    ));
    families.push(state(
        "plait_recovery_pending",
        "1 if killed processes have left commits that the next to open the database brings into it.",
        databases,
        |m| m.map(|m| matches!(m, Measured::Left { .. })),
    ));
    for family in FAMILIES {
        let of_one = |(name, measured): &(String, Option<Measured>)| {
            let points = match measured.as_ref()? {
                Measured::Session(session) => (family.points)(session),
                Measured::Rest { wal_bytes } | Measured::Left { wal_bytes } => {
                    let mut at_rest = Session::default();
                    at_rest.sizes.wal_bytes = *wal_bytes;
                    (family.points)(&at_rest)
                }
            };
            Some(points.into_iter().map(|p| metric(family.kind, name, p)).collect::<Vec<_>>())
        };
        let metrics = databases.iter().filter_map(of_one).flatten().collect();
        families.push(self::family(family.name, family.kind, family.help, metrics));
    }
    // One without a metric has no place in the text.
    families.retain(|family| !family.get_metric().is_empty());
    TextEncoder::new().encode_to_string(&families).expect("each family has a name and a metric")
}

fn built() -> MetricFamily {
    let mut version = Metric::default();
    version.set_label(vec![label("version", env!("CARGO_PKG_VERSION"))]);
    version.set_gauge(gauge_of(1.0));
    let help = "1, with the version of the command.";
    family("plait_build_info", MetricType::GAUGE, help, vec![version])
}

fn state(
    name: &str,
    help: &str,
    databases: &[(String, Option<Measured>)],
    is_so: fn(Option<&Measured>) -> Option<bool>,
) -> MetricFamily {
    let of_one = |(database, measured): &(String, Option<Measured>)| {
        let value = is_so(measured.as_ref())?;
        Some(metric(MetricType::GAUGE, database, Point(None, f64::from(u8::from(value)))))
    };
    family(name, MetricType::GAUGE, help, databases.iter().filter_map(of_one).collect())
}

fn family(name: &str, kind: MetricType, help: &str, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}

fn metric(kind: MetricType, database: &str, Point(inner, value): Point) -> Metric {
    let mut labels = vec![label("database", database)];
    labels.extend(inner.map(|(name, value)| label(name, value)));
    let mut metric = Metric::default();
    metric.set_label(labels);
    if kind == MetricType::COUNTER {
        let mut counter = Counter::default();
        counter.set_value(value);
        metric.set_counter(counter);
    } else {
        metric.set_gauge(gauge_of(value));
    }
    metric
}

fn gauge_of(value: f64) -> Gauge {
    let mut gauge = Gauge::default();
    gauge.set_value(value);
    gauge
}

fn label(name: &str, value: &str) -> LabelPair {
    let mut label = LabelPair::default();
    label.set_name(name.to_owned());
    label.set_value(value.to_owned());
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_unit_and_a_counter_its_ending() {
        for family in FAMILIES {
            let name = family.name;
            assert!(name.starts_with("plait_"), "{name}");
            assert_eq!(name.ends_with("_total"), family.kind == MetricType::COUNTER, "{name}");
            assert!(
                !["_ms", "_kib", "_kb", "_mib"].iter().any(|unit| name.contains(unit)),
                "{name}"
            );
            assert!(family.help.ends_with('.'), "{name}");
        }
    }

    #[test]
    fn a_path_with_quotes_and_line_ends_is_one_label() {
        let text = text(&[("a\"b\\c\nd".to_owned(), Some(Measured::Rest { wal_bytes: 0 }))]);
        assert!(text.contains("plait_up{database=\"a\\\"b\\\\c\\nd\"} 1\n"), "{text}");
    }

    #[test]
    fn a_database_that_is_not_up_has_nothing_else() {
        let text = text(&[
            ("a".to_owned(), None),
            ("b".to_owned(), Some(Measured::Left { wal_bytes: 0 })),
        ]);
        let of = |label: &str| text.lines().filter(|line| line.contains(label)).count();
        assert_eq!(of("database=\"a\""), 1, "{text}");
        assert!(text.contains("plait_recovery_pending{database=\"b\"} 1\n"), "{text}");
        assert!(text.contains("plait_commits_total{database=\"b\"} 0\n"), "{text}");
    }
}
