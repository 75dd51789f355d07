//! Study C past its publication: files in four forms and two layouts, SQLite in the durability classes of these forms,
//! Plait's concurrent mode, PostgreSQL as the third arm and the map as ceiling.

use super::{READ_COMMITTED, records, tasks};
use crate::engines::Durability::{self, PowerCut, Process};
use crate::studies::draft::{Arm, Draft, LARGE_CACHE, Look, category, has_journals, series};
use crate::studies::{Metric, Mode, Plan, Request, Series, Shape, Study, X};
use crate::workloads::crew::Amount;
use crate::workloads::records::phase_name;

/// The sizes of a run.
struct Sizes {
    writers: &'static [u32],
    seconds: f64,
    concurrency: u32,
    tasks_each: u64,
    /// Runs of the task simulation after each other.
    runs: u32,
}

const QUICK: Sizes =
    Sizes { writers: &[1, 10], seconds: 0.2, concurrency: 10, tasks_each: 1, runs: 2 };
const USUAL: Sizes =
    Sizes { writers: &[1, 10, 100], seconds: 0.5, concurrency: 100, tasks_each: 1, runs: 6 };
const THOROUGH: Sizes = Sizes {
    writers: &[1, 3, 10, 30, 100],
    seconds: 3.0,
    concurrency: 100,
    tasks_each: 100,
    runs: 6,
};

/// Writers in the charts that compare something else.
const WRITERS: u32 = 10;

const FORMS: [(&str, Durability); 4] =
    [("plain", Process), ("rename", Process), ("fsync-plain", PowerCut), ("fsync", PowerCut)];
const LAYOUTS: [&str; 2] = ["flat", "sharded"];

/// All engines in all settings; of files only these layouts.
fn arms(request: &Request, layouts: &[&str]) -> Vec<Arm> {
    let mut all = Vec::new();
    for entry in &request.engines {
        let mut add = |setting: &str, settings: &[(&str, &str)], durability| {
            all.push(Arm::new(entry, setting, settings, durability));
        };
        match entry.name.as_str() {
            "files" => {
                for (form, durability) in FORMS {
                    for layout in layouts {
                        let setting = match *layout {
                            "flat" => form.to_owned(),
                            layout => format!("{form} {layout}"),
                        };
                        add(&setting, &[("form", form), ("layout", layout)], durability);
                    }
                }
            }
            "postgres" => {
                add("", &[READ_COMMITTED], PowerCut);
                add("no sync", &[READ_COMMITTED, ("synchronous_commit", "off")], Process);
                if !request.quick {
                    add("serializable", &[], PowerCut);
                }
            }
            "map" => add("", &[], Durability::None),
            _ if has_journals(entry) => {
                for journal in ["WAL", "CONCURRENT"] {
                    // Stock SQLite has no concurrent mode; any other library may.
                    if journal == "CONCURRENT" && entry.name == "stock" {
                        continue;
                    }
                    for (synchronous, durability) in [("NORMAL", Process), ("FULL", PowerCut)] {
                        let (mode, sync) = (journal.to_lowercase(), synchronous.to_lowercase());
                        let settings = [("journal_mode", mode.as_str()), ("synchronous", &sync)];
                        add(&format!("{journal} {synchronous}"), &settings, durability);
                        let cached = [settings[0], settings[1], LARGE_CACHE[0], LARGE_CACHE[1]];
                        // One of each journal: the tables of this study are small.
                        if synchronous == "NORMAL" && !request.quick {
                            let setting = format!("{journal} {synchronous} large cache and map");
                            add(&setting, &cached, durability);
                        }
                    }
                }
            }
            _ => {}
        }
    }
    all
}

/// The study's modern mode.
#[must_use]
pub fn plan(request: &Request) -> Plan {
    let sizes = match (request.quick, request.thorough) {
        (true, _) => &QUICK,
        (_, true) => &THOROUGH,
        _ => &USUAL,
    };
    let mut draft = Draft::new(Study::Files, Mode::Modern);
    for (number, medium) in request.media.iter().enumerate() {
        draft.on(number, medium);
        inserts(&mut draft, request, sizes);
        layouts(&mut draft, request, sizes);
        lives(&mut draft, request, sizes);
    }
    draft.finish()
}

/// Series over the number of writers.
fn over_writers(draft: &mut Draft<'_>, arms: &[Arm], sizes: &Sizes) -> Vec<Series> {
    let mut all = Vec::new();
    for arm in arms {
        let points: Vec<_> = sizes
            .writers
            .iter()
            .map(|&writers| {
                let workload = records(writers, Amount::Seconds(sizes.seconds), 1);
                draft.point(arm, &inserts_by(writers), X::Number(writers.into()), &workload)
            })
            .collect();
        all.push(series(&arm.label, &arm.engine, points));
    }
    all
}

/// Part of the ids of cells.
fn inserts_by(writers: u32) -> String {
    format!("inserts-by-{writers}")
}

fn inserts(draft: &mut Draft<'_>, request: &Request, sizes: &Sizes) {
    let arms = arms(request, &["flat"]);
    let all = over_writers(draft, &arms, sizes);
    let note = "Records of 100 bytes, each a transaction or a file of its own. FULL, fsync and PostgreSQL's default are \
                meant to survive a power cut; NORMAL, plain and rename the death of the process; the map nothing. \
                PostgreSQL is at read committed, its default, unless serializable stands beside.";
    let look = Look {
        id: "inserts",
        title: "Inserts a second by number of writers",
        note,
        shape: Shape::Lines,
        metric: Metric::PerSecond,
        x_title: "writers",
        logarithmic: true,
    };
    draft.chart(look, all.clone(), Vec::new());
    let look = Look {
        id: "inserts-cpu",
        title: "Processor time of an insert",
        shape: Shape::Lines,
        metric: Metric::CpuPerOperation,
        ..look
    };
    draft.chart(look, all, Vec::new());
    let workload = records(WRITERS, Amount::Seconds(sizes.seconds), 1);
    let latencies = arms
        .iter()
        .map(|arm| {
            let point = draft.point(arm, &inserts_by(WRITERS), category("latency"), &workload);
            series(&arm.label, &arm.engine, [point])
        })
        .collect();
    let look = Look {
        id: "inserts-latency",
        title: "Time of an insert with 10 writers",
        shape: Shape::Distribution,
        metric: Metric::Latency,
        x_title: "percentile",
        ..look
    };
    draft.chart(look, latencies, Vec::new());
}

/// Flat folders against sharded ones.
fn layouts(draft: &mut Draft<'_>, request: &Request, sizes: &Sizes) {
    let Some(entry) = request.engine("files") else { return };
    let workload = records(WRITERS, Amount::Seconds(sizes.seconds), 1);
    let of_files: Vec<Arm> =
        arms(request, &LAYOUTS).into_iter().filter(|arm| arm.engine == "files").collect();
    let all = FORMS.map(|(form, _)| {
        let points =
            of_files.iter().filter(|arm| arm.settings.get("form") == Some(form)).map(|arm| {
                let layout = arm.settings.get("layout").unwrap_or("flat");
                draft.point(arm, &inserts_by(WRITERS), category(layout), &workload)
            });
        let points: Vec<_> = points.collect();
        series(&format!("{} {form}", entry.title), &entry.name, points)
    });
    let look = Look {
        id: "layouts",
        title: "Files a second in flat and sharded folders",
        note: "10 writers, 100 bytes a file. Flat: all in one folder. Sharded: in 256 folders by the last byte of the \
               key.",
        shape: Shape::Bars,
        metric: Metric::PerSecond,
        x_title: "layout",
        logarithmic: true,
    };
    draft.chart(look, all.to_vec(), Vec::new());
}

/// The task simulation.
fn lives(draft: &mut Draft<'_>, request: &Request, sizes: &Sizes) {
    let workload = tasks(sizes.concurrency, sizes.tasks_each, sizes.runs);
    let (mut over_runs, mut last) = (Vec::new(), Vec::new());
    for arm in arms(request, &["flat"]) {
        let mut point = |run: u32, x| {
            let mut point = draft.point(&arm, "tasks", x, &workload)?;
            point.phase = Some(phase_name(run));
            Some(point)
        };
        let points: Vec<_> =
            (1..=sizes.runs).map(|run| point(run, X::Number(run.into()))).collect();
        let warm = point(sizes.runs, category("last run"));
        over_runs.push(series(&arm.label, &arm.engine, points));
        last.push(series(&arm.label, &arm.engine, [warm]));
    }
    let note = format!(
        "{} threads with {} tasks each: create, change status, update output 10 times, delete; a step is a transaction \
         of its own, or a file written anew; SQL with indexes on status and scheduled_at. {} runs after each other in \
         the same store.",
        sizes.concurrency, sizes.tasks_each, sizes.runs
    );
    let look = Look {
        id: "tasks",
        title: "Steps of tasks a second, run after run",
        note: &note,
        shape: Shape::Lines,
        metric: Metric::PerSecond,
        x_title: "run",
        logarithmic: true,
    };
    draft.chart(look, over_runs, Vec::new());
    let charts = [
        ("tasks-latency", "Time of a step", Shape::Distribution, Metric::Latency, "percentile"),
        ("tasks-busy", "Calls of the busy handler", Shape::Bars, Metric::BusyCalls, ""),
        ("tasks-refused", "Steps refused and repeated", Shape::Bars, Metric::RefusedPercent, ""),
    ];
    for (id, title, shape, metric, x_title) in charts {
        let look = Look {
            id,
            title,
            shape,
            metric,
            x_title,
            logarithmic: metric == Metric::Latency,
            ..look
        };
        draft.chart(look, last.clone(), Vec::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::studies::draft::tests::{assert_sound, request};

    #[test]
    fn plans_of_all_sizes_are_sound() {
        for (quick, thorough) in [(false, false), (true, false), (false, true)] {
            for absent in [&[][..], &["plait", "postgres", "files"]] {
                let request = Request { quick, thorough, ..request(Mode::Modern, absent) };
                assert_sound(&plan(&request));
            }
        }
    }

    #[test]
    fn every_form_of_files_meets_sqlite_of_the_same_class() {
        let request = request(Mode::Modern, &[]);
        let chart =
            plan(&request).charts.into_iter().find(|c| c.frame.id == "files/modern/inserts");
        let series = chart.expect("the chart of inserts").series;
        let engines = |name: &str| series.iter().filter(|s| s.engine == name).count();
        assert_eq!((engines("files"), engines("stock"), engines("plait")), (4, 3, 6));
        assert_eq!((engines("postgres"), engines("map")), (3, 1));
    }
}
