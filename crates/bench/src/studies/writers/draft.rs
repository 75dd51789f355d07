//! A plan in the making: cells and charts of rows.

use crate::engines::catalogue::{Entry, Presence};
use crate::engines::{Begin, Durability, Settings};
use crate::studies::{
    Cell, Chart, Metric, Plan, Point, Published, Request, Series, Shape, Study, Tuning, X,
};
use crate::workloads::Workload;
use crate::workloads::behaviour;
use crate::workloads::writers::Load;

/// An engine in one setting, with a way to begin its transactions.
#[derive(Clone)]
pub struct Row {
    /// Short and unique: part of ids.
    pub key: String,
    /// Name in the catalogue.
    pub engine: String,
    /// What it is called in tables.
    pub label: String,
    /// How it is set up.
    pub settings: Settings,
    /// How transactions begin; none when each statement is one of its own.
    pub begin: Option<Begin>,
    /// What a commit is claimed to survive.
    pub durability: Durability,
    /// Defaults or tuned.
    pub tuning: Tuning,
}

impl Row {
    /// A row with the settings of a list, which claims to survive a power cut.
    pub fn new(key: &str, engine: &str, label: &str, settings: &[(&str, &str)]) -> Self {
        Self {
            key: key.to_owned(),
            engine: engine.to_owned(),
            label: label.to_owned(),
            settings: settings.iter().copied().collect(),
            begin: Some(Begin::Immediate),
            durability: Durability::PowerCut,
            tuning: Tuning::Tuned,
        }
    }

    pub fn begin(self, begin: Option<Begin>) -> Self {
        Self { begin, ..self }
    }

    pub fn default_tuning(self) -> Self {
        Self { tuning: Tuning::Default, ..self }
    }

    /// The same with a weaker promise.
    pub fn process_only(self) -> Self {
        Self { durability: Durability::Process, ..self }
    }
}

/// Where a point of a series stands, what is done for it, and which phase it shows.
pub struct Place {
    pub x: X,
    pub load: Load,
    pub phase: Option<&'static str>,
}

impl Place {
    /// A point over a number of threads or processes.
    pub fn workers(load: Load) -> Self {
        Self { x: X::Number(load.shift.workers.into()), load, phase: None }
    }

    /// A bar of a category.
    pub fn category(name: &str, load: Load) -> Self {
        Self { x: X::Category(name.to_owned()), load, phase: None }
    }

    fn word(&self) -> String {
        match &self.x {
            X::Number(number) => number.to_string(),
            X::Category(name) => {
                let words = name.split(|c: char| !c.is_ascii_alphanumeric());
                words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
            }
        }
    }
}

/// What a chart looks like, but for its series.
pub struct Frame<'a> {
    pub id: &'a str,
    pub title: &'a str,
    pub note: &'a str,
    pub shape: Shape,
    pub metric: Metric,
    pub x_title: &'a str,
    pub logarithmic: bool,
}

/// A plan in the making.
pub struct Draft<'a> {
    request: &'a Request,
    plan: Plan,
}

impl<'a> Draft<'a> {
    pub fn new(request: &'a Request) -> Self {
        Self { request, plan: Plan::default() }
    }

    pub fn done(self) -> Plan {
        self.plan
    }

    fn mode_word(&self) -> &'static str {
        match self.request.mode {
            crate::studies::Mode::Historical => "historical",
            crate::studies::Mode::Modern => "modern",
        }
    }

    fn id(&self, rest: &str) -> String {
        format!("writers/{}/{rest}", self.mode_word())
    }

    /// The row's engine, if it was chosen.
    fn chosen(&self, row: &Row) -> Option<&'a Entry> {
        self.request.engine(&row.engine)
    }

    /// Measures a row in several places; none when its engine was not chosen, without points when it is absent.
    pub fn series(&mut self, group: &str, row: &Row, places: Vec<Place>) -> Option<Series> {
        let is_here = matches!(self.chosen(row)?.presence, Presence::Here { .. });
        let mut points = Vec::new();
        for place in places.into_iter().filter(|_| is_here) {
            let id = self.id(&format!("{group}/{}/{}", row.key, place.word()));
            let load = Load { begin: row.begin, ..place.load };
            if !self.plan.cells.iter().any(|cell| cell.id == id) {
                self.cell(id.clone(), row, Workload::Writers(load));
            }
            points.push(Point { x: place.x, cell: id, phase: place.phase.map(str::to_owned) });
        }
        Some(Series { label: row.label.clone(), engine: row.engine.clone(), points })
    }

    /// What the row's engine does when transactions meet.
    pub fn behaviour(&mut self, row: &Row) {
        if self.chosen(row).is_some_and(|e| matches!(e.presence, Presence::Here { .. })) {
            let id = self.id(&format!("behaviour/{}", row.key));
            self.cell(id, row, Workload::Behaviour(behaviour::Load { rows: 100 }));
        }
    }

    fn cell(&mut self, id: String, row: &Row, workload: Workload) {
        self.plan.cells.push(Cell {
            id,
            study: Study::Writers,
            mode: self.request.mode,
            engine: row.engine.clone(),
            label: row.label.clone(),
            settings: row.settings.clone(),
            durability: row.durability,
            tuning: row.tuning,
            workload,
            medium: self.request.media[0].clone(),
        });
    }

    /// Shows series, and published figures beside them.
    pub fn chart(&mut self, frame: &Frame<'_>, series: Vec<Series>, published: Vec<Published>) {
        self.plan.charts.push(Chart {
            id: self.id(frame.id),
            study: Study::Writers,
            mode: self.request.mode,
            title: frame.title.to_owned(),
            note: frame.note.to_owned(),
            shape: frame.shape,
            metric: frame.metric,
            x_title: frame.x_title.to_owned(),
            logarithmic: frame.logarithmic,
            series,
            published,
        });
    }
}
