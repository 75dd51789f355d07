//! Rows: engines in a setting with a way to begin, and the cells that measure them.

use crate::engines::{Begin, Durability};
use crate::studies::draft::{Arm, Draft};
use crate::studies::{Point, Request, Series, X};
use crate::workloads::writers::Load;
use crate::workloads::{Workload, behaviour};

/// An engine in one setting, with a way to begin its transactions.
#[derive(Clone)]
pub struct Row {
    /// The engine; its id is short and unique.
    pub arm: Arm,
    /// How transactions begin; none when each statement is one of its own.
    pub begin: Option<Begin>,
    /// Whether its engine was asked for.
    is_chosen: bool,
}

impl Row {
    /// A row with the settings of a list, which claims to survive a power cut.
    pub fn new(
        request: &Request,
        id: &str,
        engine: &str,
        label: &str,
        settings: &[(&str, &str)],
    ) -> Self {
        let entry = request.engine(engine);
        Self {
            arm: Arm {
                engine: engine.to_owned(),
                here: entry.is_some_and(|entry| entry.engine().is_some()),
                id: id.to_owned(),
                label: label.to_owned(),
                settings: settings.iter().copied().collect(),
                durability: Durability::PowerCut,
            },
            begin: Some(Begin::Immediate),
            is_chosen: entry.is_some(),
        }
    }

    pub fn begin(self, begin: Option<Begin>) -> Self {
        Self { begin, ..self }
    }

    pub fn labelled(mut self, label: &str) -> Self {
        label.clone_into(&mut self.arm.label);
        self
    }

    /// The same with a weaker promise.
    pub fn process_only(mut self) -> Self {
        self.arm.durability = Durability::Process;
        self
    }

    /// The same without any promise.
    pub fn without_promise(mut self) -> Self {
        self.arm.durability = Durability::None;
        self
    }

    /// Measures it in several places; none when its engine was not chosen, without points when it is absent.
    pub fn series(&self, draft: &mut Draft<'_>, group: &str, places: Vec<Place>) -> Option<Series> {
        let mut point = |place: Place| {
            let load = Load { begin: self.begin, ..place.load.clone() };
            let id = format!("{group}/{}/{}", self.arm.id, place.word());
            let cell = draft.cell(&self.arm, &id, &Workload::Writers(load))?;
            Some(Point { x: place.x, cell, phase: place.phase.map(str::to_owned) })
        };
        self.is_chosen.then(|| Series {
            label: self.arm.label.clone(),
            engine: self.arm.engine.clone(),
            points: places.into_iter().filter_map(&mut point).collect(),
        })
    }

    /// Measures what its engine does when transactions meet.
    pub fn behaviour(&self, draft: &mut Draft<'_>) {
        let workload = Workload::Behaviour(behaviour::Load { rows: 100 });
        draft.cell(&self.arm, &format!("behaviour/{}", self.arm.id), &workload);
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
