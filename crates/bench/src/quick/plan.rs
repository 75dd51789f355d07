//! Three ways to commit, each measured with five crews of writers.

use std::path::Path;

use crate::advise::{Need, candidates};
use crate::engines::catalogue::Entry;
use crate::engines::{Begin, Durability};
use crate::studies::draft::{Arm, Draft, Look, category, series};
use crate::studies::{Metric, Mode, Plan, Shape, Study};

/// An engine and how its transactions begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Name of the engine in the catalogue.
    pub engine: &'static str,
    /// Its name on the screen.
    pub name: &'static str,
    journal_mode: &'static str,
    begin: Begin,
}

/// SQLite first: the others are compared with it. The second runs the very program of the first.
pub const WAYS: [Way; 3] = [
    way("stock", "SQLite", "wal", Begin::Immediate),
    way("plait", "Plait IMMEDIATE", "concurrent", Begin::Immediate),
    way("plait", "Plait CONCURRENT", "concurrent", Begin::Concurrent),
];

const fn way(
    engine: &'static str,
    name: &'static str,
    journal_mode: &'static str,
    begin: Begin,
) -> Way {
    Way { engine, name, journal_mode, begin }
}

/// Writers at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crew {
    /// How many.
    pub writers: u32,
    /// Whether they are processes rather than threads of one.
    pub processes: bool,
}

/// In the order of the screen.
pub const CREWS: [Crew; 5] = [threads(1), threads(2), threads(8), threads(32), processes(8)];

const fn threads(writers: u32) -> Crew {
    Crew { writers, processes: false }
}

const fn processes(writers: u32) -> Crew {
    Crew { writers, processes: true }
}

impl std::fmt::Display for Crew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.processes, self.writers) {
            (true, writers) => write!(f, "{writers} processes"),
            (false, 1) => f.write_str("1 writer"),
            (false, writers) => write!(f, "{writers} writers"),
        }
    }
}

/// Few enough that most of a trial is work, many enough that two writers seldom want one row.
const ROWS: u64 = 10_000;
const VALUE_BYTES: usize = 400;

/// Milliseconds until a wait ends in BUSY, as a careful program sets it.
const BUSY_TIMEOUT_MS: &str = "5000";

/// The plan for a directory. Its chart has a series for each of [`WAYS`], a point for each of
/// [`CREWS`].
#[must_use]
pub fn plan(engines: &[Entry], medium: &Path, seconds: f64) -> Plan {
    let mut draft = Draft::new(Study::Quick, Mode::Modern);
    draft.on(0, medium);
    let mut lines = Vec::new();
    for way in WAYS {
        let Some(entry) = engines.iter().find(|entry| entry.name == way.engine) else { continue };
        let settings = [
            ("journal_mode", way.journal_mode),
            ("synchronous", "full"),
            ("busy", "timeout"),
            ("busy_timeout", BUSY_TIMEOUT_MS),
        ];
        let arm = Arm {
            label: way.name.to_owned(),
            ..Arm::new(entry, way.begin.word(), &settings, Durability::PowerCut)
        };
        let points: Vec<_> = CREWS
            .iter()
            .map(|crew| {
                let workload = candidates::workload(&need(*crew), way.begin, seconds);
                let work = crew.to_string().replace(' ', "-");
                draft.point(&arm, &work, category(&crew.to_string()), &workload)
            })
            .collect();
        lines.push(series(way.name, way.engine, points));
    }
    let look = Look {
        id: "",
        title: "Plait or SQLite",
        note: "A transaction reads a row by its key, updates it and commits; all counters verified.",
        shape: Shape::Bars,
        metric: Metric::PerSecond,
        x_title: "",
        logarithmic: true,
    };
    draft.chart(look, lines, Vec::new());
    draft.finish()
}

fn need(crew: Crew) -> Need {
    Need {
        rows: ROWS,
        value_bytes: VALUE_BYTES,
        writers: crew.writers,
        processes: crew.processes,
        // An update reads its row first.
        reads: 0,
        survive_power_cut: true,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::engines::catalogue::Kind;
    use crate::studies::draft::tests::{assert_sound, entries};

    #[test]
    fn every_crew_is_measured_in_every_way() {
        let library = || Kind::Sqlite { library: PathBuf::from("lib"), parameters: String::new() };
        let both = entries(&[("stock", library()), ("plait", library())], &[]);
        let plan = plan(&both, Path::new("/a"), 0.1);
        assert_sound(&plan);
        assert_eq!(plan.cells.len(), WAYS.len() * CREWS.len());
        assert!(plan.charts[0].series.iter().all(|series| series.points.len() == CREWS.len()));
        assert!(plan.cells.iter().all(|cell| cell.durability == Durability::PowerCut));
    }
}
