//! Long runs over a larger table: what stays when merges, checkpoints and full caches are part of every second.
//!
//! A trial of less than a second ends before an engine does what it has put off. Here a part that is not measured comes
//! first, the measured part holds many merges and checkpoints, and what is still put off at its end, the closing of the
//! store, is measured and shown beside it.

use super::modern;
use super::rows::{Place, Row};
use super::{VALUE_BYTES, load};
use crate::studies::draft::{Draft, Look};
use crate::studies::{Metric, Mode, Plan, Request, Series, Shape, Study};
use crate::workloads::crew::{Amount, Shift};
use crate::workloads::writers::{CLOSING, Load, WITH_CLOSING};

/// What a configuration of Berkeley DB says of its locks.
const LOCKS: [&str; 3] = ["set_lk_max_locks", "set_lk_max_lockers", "set_lk_max_objects"];

/// How long, and how much.
struct Scale {
    rows: u64,
    warm_up_s: f64,
    seconds: f64,
    threads: &'static [u32],
}

impl Scale {
    fn of(request: &Request) -> Self {
        match (request.quick, request.thorough) {
            (true, _) => Self { rows: 20_000, warm_up_s: 0.3, seconds: 1.0, threads: &[8] },
            (_, true) => {
                Self { rows: 1_000_000, warm_up_s: 20.0, seconds: 60.0, threads: &[1, 10, 100] }
            }
            _ => Self { rows: 1_000_000, warm_up_s: 10.0, seconds: 30.0, threads: &[1, 100] },
        }
    }

    fn load(&self, workers: u32) -> Load {
        let amount = Amount::Steady { warm_up_s: self.warm_up_s, seconds: self.seconds };
        let base = load(workers, self.seconds);
        Load { rows: self.rows, shift: Shift { amount, ..base.shift }, ..base }
    }

    fn places(&self, phase: Option<&'static str>) -> Vec<Place> {
        let at = |workers: &u32| Place { phase, ..Place::workers(self.load(*workers)) };
        self.threads.iter().map(at).collect()
    }

    fn note(&self) -> String {
        format!(
            "{} rows of about {} bytes; a transaction is one random select and one random update, repeated when refused. \
             {} s are measured, after {} s of the same that are not. Berkeley DB SQL as configured in study D, with room for \
             100,000 locks. Closing is from the last transaction until the store \
             is closed; then it is opened again, and must hold every commit.",
            self.rows,
            VALUE_BYTES + 16,
            self.seconds,
            self.warm_up_s
        )
    }
}

/// What this study measures and shows; it has no historical part.
#[must_use]
pub fn plan(request: &Request) -> Plan {
    let mut draft = Draft::new(Study::Steady, Mode::Modern);
    if request.mode == Mode::Modern {
        let (rows, scale) = (modern::rows(request), Scale::of(request));
        // Half of this table fits the large cache, and all of it the map.
        let cached =
            rows.further.into_iter().filter(|row| row.arm.settings.get("mmap_size").is_some());
        let main: Vec<Row> = rows.main.into_iter().chain(cached).collect();
        let reduced: Vec<Row> =
            rows.reduced.into_iter().filter(|row| row.arm.engine != "postgres").collect();
        let [main, reduced] =
            [main, reduced].map(|rows| rows.into_iter().map(with_locks).collect::<Vec<_>>());
        for (number, medium) in request.media.iter().enumerate() {
            draft.on(number, medium);
            charts(&mut draft, &scale, "durable", "durable", &main);
            charts(&mut draft, &scale, "reduced", "reduced durability", &reduced);
        }
    }
    draft.finish()
}

/// Berkeley DB locks every page that a statement reads, and the published configuration has room for 10,000 locks: a scan of
/// this table needs more.
fn with_locks(mut row: Row) -> Row {
    if let Some(config) = row.arm.settings.get("db_config") {
        let config = LOCKS.iter().fold(config.to_owned(), |config, what| {
            config.replace(&format!("{what} 10000"), &format!("{what} 100000"))
        });
        row.arm.settings.set("db_config", config);
    }
    row
}

fn charts(draft: &mut Draft<'_>, scale: &Scale, group: &str, promise: &str, rows: &[Row]) {
    let note = scale.note();
    let mut chart = |id: &str, title: &str, shape, metric, places: &dyn Fn() -> Vec<Place>| {
        let series = rows.iter().filter_map(|row| row.series(draft, group, places()));
        let series: Vec<Series> = series.collect();
        let look = Look {
            id: &format!("{group}{id}"),
            title: &format!("{title}, {promise}"),
            note: &note,
            shape,
            metric,
            x_title: if shape == Shape::Distribution { "percentile" } else { "threads" },
            logarithmic: matches!(metric, Metric::PerSecond | Metric::Latency),
        };
        draft.chart(look, series, Vec::new());
    };
    let over = |phase| move || scale.places(phase);
    let (lines, rate) = (Shape::Lines, Metric::PerSecond);
    chart("", "Transactions a second", lines, rate, &over(None));
    let title = "Transactions a second, the time of closing counted";
    chart("-with-closing", title, lines, rate, &over(Some(WITH_CLOSING)));
    chart("-closing", "Time of closing", lines, Metric::Seconds, &over(Some(CLOSING)));
    for workers in scale.threads {
        let one = || vec![Place::workers(scale.load(*workers))];
        let (id, title) =
            (format!("-latency-{workers}"), format!("Latency with {workers} threads"));
        chart(&id, &title, Shape::Distribution, Metric::Latency, &one);
    }
}
