//! A plan in the making: cells that several charts share are kept once.

use std::path::Path;

use super::{
    Cell, Chart, Frame, Metric, Mode, Plan, Point, Published, Series, Shape, Study, Tuning, X,
};
use crate::engines::catalogue::{Entry, Kind};
use crate::engines::{Durability, Settings};
use crate::workloads::Workload;

/// An engine in a setting: what becomes a line or the bars of one colour.
#[derive(Clone, Debug)]
pub struct Arm {
    /// Name of the engine in the catalogue.
    pub engine: String,
    /// Whether it is here; one that is absent keeps its series, without points.
    pub here: bool,
    /// Its part of the ids of cells: `plait-wal-full`.
    pub id: String,
    /// What it is called: `Plait WAL FULL`.
    pub label: String,
    /// How the engine is set up.
    pub settings: Settings,
    /// What a commit is claimed to survive.
    pub durability: Durability,
}

impl Arm {
    /// An engine of the catalogue in a setting; `setting` is added to name and label.
    #[must_use]
    pub fn new(
        entry: &Entry,
        setting: &str,
        settings: &[(&str, &str)],
        durability: Durability,
    ) -> Self {
        let slug = setting.to_lowercase().replace([' ', ','], "-");
        let parts = |first: &str, second: &str, between| match second {
            "" => first.to_owned(),
            _ => format!("{first}{between}{second}"),
        };
        Self {
            engine: entry.name.clone(),
            here: entry.engine().is_some(),
            id: parts(&entry.name, &slug, "-"),
            label: parts(&entry.title, setting, " "),
            settings: settings.iter().copied().collect(),
            durability,
        }
    }
}

/// A cache that holds the tables of the studies, and reads through a map: what tunes SQLite for them.
pub const LARGE_CACHE: [(&str, &str); 2] = [("cache_size", "-262144"), ("mmap_size", "1073741824")];

/// Whether an entry is a library with SQLite's C interface and SQLite's journals, be it here or absent. Berkeley DB SQL
/// is none of these: it answers `delete` whatever journal mode is asked for.
#[must_use]
pub fn has_journals(entry: &Entry) -> bool {
    entry.name != "bdb-sql"
        && match entry.engine() {
            Some(kind) => matches!(kind, Kind::Sqlite { .. }),
            None => ["stock", "plait"].contains(&entry.name.as_str()),
        }
}

/// What is drawn of a chart besides its series.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// Last part of its id; empty for a plan's only chart.
    pub id: &'a str,
    /// See [`Chart::title`].
    pub title: &'a str,
    /// See [`Chart::note`].
    pub note: &'a str,
    /// See [`Chart::shape`].
    pub shape: Shape,
    /// See [`Chart::metric`].
    pub metric: Metric,
    /// See [`Chart::x_title`].
    pub x_title: &'a str,
    /// See [`Chart::logarithmic`].
    pub logarithmic: bool,
}

/// A plan in the making, for one medium at a time.
pub struct Draft<'a> {
    study: Study,
    mode: Mode,
    /// What is added to ids and titles for this medium: nothing for the first.
    suffix: String,
    medium: &'a Path,
    plan: Plan,
}

impl<'a> Draft<'a> {
    /// An empty plan.
    #[must_use]
    pub fn new(study: Study, mode: Mode) -> Self {
        Self { study, mode, suffix: String::new(), medium: Path::new("."), plan: Plan::default() }
    }

    /// Lets everything from here on be measured on a medium; only the first one adds nothing to ids and titles.
    pub fn on(&mut self, number: usize, medium: &'a Path) {
        self.medium = medium;
        self.suffix = if number == 0 { String::new() } else { format!(" on {}", medium.display()) };
    }

    /// Adds a cell, unless it is there, and gives its id, which ends in `place`; none for an engine that is absent.
    ///
    /// # Panics
    /// If there is a cell of the same id that does something else: a mistake in a study.
    pub fn cell(&mut self, arm: &Arm, place: &str, workload: &Workload) -> Option<String> {
        if !arm.here {
            return None;
        }
        let id = format!("{}/{place}{}", self.prefix(), self.suffix);
        let cell = Cell {
            id: id.clone(),
            study: self.study,
            mode: self.mode,
            engine: arm.engine.clone(),
            label: arm.label.clone(),
            settings: arm.settings.clone(),
            durability: arm.durability,
            tuning: Tuning::of(&arm.settings),
            workload: workload.clone(),
            medium: self.medium.to_owned(),
        };
        match self.plan.cells.iter().find(|c| c.id == id) {
            None => self.plan.cells.push(cell),
            Some(there) => assert_eq!(
                (&there.settings, &there.workload),
                (&cell.settings, &cell.workload),
                "two cells are called {id}"
            ),
        }
        Some(id)
    }

    /// A point that shows a cell of an arm at some work, which is added if it is not there; see [`cell`](Self::cell).
    pub fn point(&mut self, arm: &Arm, work: &str, x: X, workload: &Workload) -> Option<Point> {
        let cell = self.cell(arm, &format!("{work}/{}", arm.id), workload)?;
        Some(Point { x, cell, phase: None })
    }

    /// Adds a chart.
    pub fn chart(&mut self, look: Look<'_>, series: Vec<Series>, published: Vec<Published>) {
        let id = format!("{}/{}", self.prefix(), look.id);
        self.plan.charts.push(Chart {
            frame: Frame {
                id: format!("{}{}", id.trim_end_matches('/'), self.suffix),
                study: self.study,
                mode: self.mode,
                title: format!("{}{}", look.title, self.suffix),
                note: look.note.to_owned(),
                shape: look.shape,
                metric: look.metric,
                x_title: look.x_title.to_owned(),
                logarithmic: look.logarithmic,
            },
            series,
            published,
        });
    }

    /// The plan.
    #[must_use]
    pub fn finish(self) -> Plan {
        self.plan
    }

    fn prefix(&self) -> String {
        let study = match self.study {
            Study::Kv => "kv",
            Study::Modes => "modes",
            Study::Files => "files",
            Study::Writers => "writers",
            Study::Steady => "steady",
            // These have one mode.
            Study::Advise => return "advise".to_owned(),
            Study::Quick => return "quick".to_owned(),
        };
        let mode = match self.mode {
            Mode::Historical => "historical",
            Mode::Modern => "modern",
        };
        format!("{study}/{mode}")
    }
}

/// A place in a group.
#[must_use]
pub fn category(name: &str) -> X {
    X::Category(name.to_owned())
}

/// A series of the points that are there.
#[must_use]
pub fn series(
    label: &str,
    engine: &str,
    points: impl IntoIterator<Item = Option<Point>>,
) -> Series {
    Series {
        label: label.to_owned(),
        engine: engine.to_owned(),
        points: points.into_iter().flatten().collect(),
    }
}

#[cfg(test)]
pub mod tests {
    //! What every plan must keep.

    use std::collections::HashSet;
    use std::path::PathBuf;

    use super::*;
    use crate::engines::catalogue::Presence;
    use crate::studies::Request;

    /// A catalogue in which these are here and no other is.
    pub fn entries(here: &[(&str, Kind)], absent: &[&str]) -> Vec<Entry> {
        let here = here.iter().map(|(name, engine)| Entry {
            name: (*name).to_owned(),
            title: (*name).to_owned(),
            presence: Presence::Here { engine: engine.clone(), version: "1".to_owned() },
        });
        let absent = absent.iter().map(|name| Entry {
            name: (*name).to_owned(),
            title: (*name).to_owned(),
            presence: Presence::Absent { why: "not found".to_owned(), install: String::new() },
        });
        here.chain(absent).collect()
    }

    /// A request for all engines of these studies.
    pub fn request(mode: Mode, absent: &[&str]) -> Request {
        let library = || Kind::Sqlite { library: PathBuf::from("lib"), parameters: String::new() };
        let all = [
            ("stock", library()),
            ("plait", library()),
            ("bdb-sql", library()),
            ("map", Kind::Map),
            ("files", Kind::Files),
            ("dict", Kind::Dict { python: PathBuf::from("python3") }),
            ("postgres", Kind::Postgres { programs: PathBuf::new(), library: PathBuf::new() }),
        ];
        let here: Vec<_> = all.into_iter().filter(|(name, _)| !absent.contains(name)).collect();
        Request {
            mode,
            quick: false,
            thorough: false,
            engines: entries(&here, absent),
            media: vec![PathBuf::from("/a"), PathBuf::from("/b")],
        }
    }

    /// Asserts that ids are unique, that every point stands for a cell and every cell is shown.
    pub fn assert_sound(plan: &Plan) {
        let ids: HashSet<&str> = plan.cells.iter().map(|c| c.id.as_str()).collect();
        assert_eq!(ids.len(), plan.cells.len(), "ids of cells are unique");
        let charts: HashSet<&str> = plan.charts.iter().map(|c| c.frame.id.as_str()).collect();
        assert_eq!(charts.len(), plan.charts.len(), "ids of charts are unique");
        let points = plan.charts.iter().flat_map(|c| &c.series).flat_map(|s| &s.points);
        let shown: HashSet<&str> = points.map(|p| p.cell.as_str()).collect();
        assert_eq!(ids, shown, "cells are those that charts show");
    }
}
