//! Study D: Berkeley DB's SQL interface against SQLite, 1 to 100 threads.
//!
//! | module | what |
//! |---|---|
//! | [`historical`] | the published five charts, and both engines' behaviour when transactions meet |
//! | [`modern`] | today's journal modes, Plait, PostgreSQL and Turso; processes, other loads, latency at given rates |
//! | [`rows`] | engines in a setting with a way to begin, and the cells that measure them |
//! | [`steady`] | study E: some of the modern rows over a larger table and for longer |

mod historical;
mod modern;
mod rows;
mod steady;

use super::{Mode, Plan, Request};
use crate::workloads::crew::{Amount, Place, Shift};
use crate::workloads::writers::{Load, Mix};

pub use steady::plan as steady_plan;

/// What this study measures and shows.
#[must_use]
pub fn plan(request: &Request) -> Plan {
    match request.mode {
        Mode::Historical => historical::plan(request),
        Mode::Modern => modern::plan(request),
    }
}

/// Rows of the published table.
const ROWS: u64 = 10_000;
/// With id, counter and tag about 400 bytes a row, as published.
const VALUE_BYTES: usize = 384;

/// The published transactions in a closed loop; how they begin is the row's.
fn load(workers: u32, seconds: f64) -> Load {
    Load {
        rows: ROWS,
        value_bytes: VALUE_BYTES,
        begin: None,
        mix: Mix::SelectUpdate,
        index: false,
        place: Place::Threads,
        shift: Shift {
            workers,
            amount: Amount::Seconds(seconds),
            due_per_second: None,
            count_start_and_stop: false,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::engines::catalogue::{Entry, Kind, Presence};
    use crate::engines::{Begin, Durability, log};
    use crate::studies::draft::tests::assert_sound;
    use crate::studies::{Cell, Chart, Metric, X};
    use crate::workloads::Workload;
    use crate::workloads::writers::{CLOSING, WITH_CLOSING};

    fn request(mode: Mode, quick: bool, thorough: bool) -> Request {
        let entry = |name: &str| Entry {
            name: name.to_owned(),
            title: name.to_owned(),
            presence: Presence::Here {
                engine: Kind::Sqlite { library: "lib".into(), parameters: String::new() },
                version: "1".to_owned(),
            },
        };
        let engines = ["stock", "plait", "bdb-sql", "postgres", "turso", "mine"].map(entry);
        Request { mode, quick, thorough, engines: engines.into(), media: vec!["/tmp".into()] }
    }

    fn writers(cell: &Cell) -> Option<&Load> {
        match &cell.workload {
            Workload::Writers(load) => Some(load),
            _ => None,
        }
    }

    #[test]
    fn every_cell_has_a_name_of_its_own_and_every_point_a_cell() {
        for mode in [Mode::Historical, Mode::Modern] {
            for (quick, thorough) in [(true, false), (false, false), (false, true)] {
                let plan = plan(&request(mode, quick, thorough));
                let ids: HashSet<&str> = plan.cells.iter().map(|c| c.id.as_str()).collect();
                assert_eq!(ids.len(), plan.cells.len());
                let charts: HashSet<&str> =
                    plan.charts.iter().map(|c| c.frame.id.as_str()).collect();
                assert_eq!(charts.len(), plan.charts.len());
                for chart in &plan.charts {
                    assert!(mode == Mode::Historical || chart.published.is_empty());
                    for point in chart.series.iter().flat_map(|s| &s.points) {
                        assert!(ids.contains(point.cell.as_str()), "{point:?} has no cell");
                    }
                }
            }
        }
    }

    #[test]
    fn the_historical_cells_are_the_published_ones() {
        let plan = plan(&request(Mode::Historical, false, false));
        let cells: Vec<(&Cell, &Load)> =
            plan.cells.iter().filter_map(|c| Some((c, writers(c)?))).collect();
        for engine in ["stock", "bdb-sql"] {
            let threads: HashSet<u32> = cells
                .iter()
                .filter(|(cell, _)| cell.engine == engine)
                .map(|(_, load)| load.shift.workers)
                .collect();
            assert_eq!(threads, HashSet::from([1, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]));
        }
        for (cell, load) in cells {
            assert_eq!((load.rows, load.mix, load.index), (10_000, Mix::SelectUpdate, false));
            let get = |name| cell.settings.get(name);
            if cell.engine == "bdb-sql" {
                assert_eq!((get("page_size"), get("cache_size")), (Some("16384"), Some("40000")));
                let config = get("db_config").expect("as published");
                for line in [
                    "mutex_set_max 1000000",
                    "set_tx_max 500000",
                    "set_lg_regionmax 524288",
                    "set_lg_bsize 4194304",
                    "set_lg_max 20971520",
                    "set_lk_max_locks 10000",
                    "set_lk_max_lockers 10000",
                    "set_lk_max_objects 10000",
                ] {
                    assert!(config.contains(line), "{line}");
                }
            } else {
                assert_eq!((get("page_size"), get("journal_mode")), (Some("1024"), None));
            }
        }
        let ghosts: Vec<_> = plan.charts.iter().flat_map(|c| &c.published).collect();
        assert!(
            ghosts.iter().any(|p| p.engine == "stock" && p.points.iter().all(|x| x.1 == 500.0))
        );
        assert!(ghosts.iter().any(|p| p.engine == "bdb-sql"
            && p.points.contains(&(X::Number(100.0), 4000.0))
            && p.points.contains(&(X::Number(1.0), 700.0))));
    }

    #[test]
    fn the_five_published_charts_are_all_there() {
        let plan = plan(&request(Mode::Historical, false, false));
        for metric in [
            Metric::PerSecond,
            Metric::CpuPercent,
            Metric::SystemCpu,
            Metric::TransactionCpu,
            Metric::BusyCalls,
        ] {
            let chart = plan.charts.iter().find(|c| c.frame.metric == metric);
            let chart = chart.unwrap_or_else(|| panic!("no chart of {metric:?}"));
            assert!(chart.series.iter().all(|s| s.points.len() > 2), "{}", chart.frame.id);
        }
    }

    #[test]
    fn an_absent_engine_keeps_its_series_without_points() {
        let mut request = request(Mode::Modern, true, false);
        for entry in request.engines.iter_mut().filter(|e| e.name == "bdb-sql") {
            entry.presence =
                Presence::Absent { why: "not found".to_owned(), install: String::new() };
        }
        let plan = plan(&request);
        assert!(plan.cells.iter().all(|c| c.engine != "bdb-sql"));
        let mut series =
            plan.charts.iter().flat_map(|c| &c.series).filter(|s| s.engine == "bdb-sql");
        assert!(series.next().is_some_and(|s| s.points.is_empty()));
    }

    #[test]
    fn every_medium_has_all_charts_and_only_the_first_tells_behaviour() {
        for mode in [Mode::Historical, Mode::Modern] {
            let one = plan(&request(mode, false, false));
            let media = vec!["/tmp".into(), "/var/tmp".into()];
            let two = plan(&Request { media, ..request(mode, false, false) });
            let figures = one.cells.iter().filter(|cell| writers(cell).is_some()).count();
            assert_eq!(two.cells.len(), one.cells.len() + figures);
            assert_eq!(two.charts.len(), 2 * one.charts.len());
            let second: Vec<&Cell> =
                two.cells.iter().filter(|cell| cell.medium.ends_with("var/tmp")).collect();
            assert_eq!(second.len(), figures);
            assert!(second.iter().all(|cell| cell.id.ends_with(" on /var/tmp")));
        }
    }

    #[test]
    fn steady_cells_are_measured_for_half_a_minute_after_a_warm_up_and_show_their_closing() {
        for (quick, least) in [(true, (0.3, 1.0)), (false, (10.0, 30.0))] {
            let plan = steady_plan(&request(Mode::Modern, quick, false));
            assert_sound(&plan);
            for engine in ["stock", "plait", "bdb-sql"] {
                assert!(plan.cells.iter().any(|cell| cell.engine == engine), "{engine}");
            }
            for cell in &plan.cells {
                let load = writers(cell).expect("only of writers");
                let Amount::Steady { warm_up_s, seconds } = load.shift.amount else {
                    panic!("{}: {:?}", cell.id, load.shift)
                };
                assert!((warm_up_s, seconds) >= least, "{}: {warm_up_s}, {seconds}", cell.id);
            }
            let series = plan.charts.iter().flat_map(|chart| &chart.series);
            let points = series.flat_map(|series| &series.points);
            let phases: HashSet<_> = points.map(|point| point.phase.as_deref()).collect();
            assert_eq!(phases, HashSet::from([None, Some(WITH_CLOSING), Some(CLOSING)]));
        }
        assert_eq!(steady_plan(&request(Mode::Historical, false, false)), Plan::default());
    }

    #[test]
    fn the_limit_is_a_line_of_every_chart_of_durable_writes_of_threads_and_of_no_other() {
        for (quick, thorough) in [(true, false), (false, false), (false, true)] {
            let mut request = request(Mode::Modern, quick, thorough);
            let here = Presence::Here { engine: Kind::Log, version: String::new() };
            let name = log::NAME.to_owned();
            request.engines.push(Entry { title: name.clone(), name, presence: here });
            let plan = plan(&request);
            let shows = |chart: &&Chart| chart.series.iter().any(|s| s.engine == log::NAME);
            let charts: Vec<&str> =
                plan.charts.iter().filter(shows).map(|chart| chart.frame.id.as_str()).collect();
            let rates = plan.charts.iter().filter(|c| c.frame.metric == Metric::Latency).count();
            let has = |name: &str| charts.contains(&format!("writers/modern/{name}").as_str());
            assert!(has("threads") && has("threads-cpu-each") && has("loads"), "{charts:?}");
            assert_eq!(charts.iter().filter(|id| id.contains("/rate-")).count(), rates);
            assert!(!has("processes") && !has("reduced") && !has("begin"), "{charts:?}");
            for cell in plan.cells.iter().filter(|cell| cell.engine == log::NAME) {
                let load = writers(cell).expect("no behaviour is asked of a limit");
                assert!(!load.index && load.place == Place::Threads && load.begin.is_some());
                assert!(!matches!(load.mix, Mix::MostlyReads(_)), "{}", cell.id);
                assert_eq!(cell.durability, Durability::PowerCut);
            }
        }
    }

    #[test]
    fn a_library_named_by_the_user_takes_part() {
        let plan = plan(&request(Mode::Modern, true, false));
        let mine: Vec<&Cell> = plan.cells.iter().filter(|c| c.engine == "mine").collect();
        assert!(mine.iter().any(|c| writers(c).is_some()));
        // A handler of ours would switch the blocking locks of such a library off.
        assert!(mine.iter().all(|c| c.settings.get("busy") == Some("timeout")));
        for begin in [Begin::Immediate, Begin::Concurrent] {
            assert!(mine.iter().filter_map(|c| writers(c)).any(|load| load.begin == Some(begin)));
        }
    }
}
