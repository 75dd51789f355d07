//! Holds what was measured of a case against what is required of it: a line of the table for each requirement.

use super::case::{Case, Requirement};
use super::idle::Footprint;
use super::table::{Line, Median};
use super::trial::Outcome;
use std::time::Duration;

/// Lines of a case: `stock` (or what stands in its place) against `plait`, and `own`, the library under test's medians
/// over numbers of writers.
#[must_use]
pub fn judge(case: &Case, stock: Vec<Outcome>, plait: Vec<Outcome>, own: &[Median]) -> Vec<Line> {
    let (stock, plait) = (Median::of(stock), Median::of(plait));
    let line = |requirement: &Requirement| {
        let (required, measured, reached) = against_stock(requirement, &stock, &plait)
            .unwrap_or_else(|| alone(requirement, &plait, own));
        Line {
            title: case.title.to_owned(),
            stock: Some(stock.clone()),
            plait: Some(plait.clone()),
            required,
            measured,
            reached,
        }
    };
    case.requirements.iter().map(line).collect()
}

/// What is required, what was measured, and whether that is enough.
type Verdict = (String, String, bool);

/// For the requirements that name stock, or say its figure.
fn against_stock(requirement: &Requirement, stock: &Median, plait: &Median) -> Option<Verdict> {
    Some(match *requirement {
        Requirement::TimesStock(least) => {
            let ratio = plait.outcome.per_second / stock.outcome.per_second;
            (format!("{least:.2} x"), format!("{ratio:.2} x"), ratio >= least)
        }
        Requirement::WrittenTimesStock(most) => {
            let [stock, plait] = [stock, plait].map(|of| of.outcome.written_per_commit);
            let [kib, stock_kib] = [plait, stock].map(|bytes| bytes / 1024.0);
            (
                format!("{most:.2} x written"),
                format!("{:.2} x, {kib:.1} of {stock_kib:.1} KiB", plait / stock),
                plait <= stock * most,
            )
        }
        Requirement::CpuTimesStock(most) => {
            let [stock, plait] = [stock, plait].map(|of| of.outcome.cpu_each);
            let ratio = ratio(plait, stock);
            (
                format!("{most:.2} x cpu"),
                format!("{ratio:.2} x, {plait:.1?} of {stock:.1?}"),
                ratio <= most,
            )
        }
        Requirement::IdleMebibytes(most) => {
            let say = |of: &Median| {
                let Footprint { disk_bytes, mapped_bytes } = of.outcome.footprint;
                let [disk, mapped] = [disk_bytes, mapped_bytes].map(|b| b as f64 / 1048576.0);
                (format!("{disk:.2} + {mapped:.2}"), disk.max(mapped))
            };
            let ((text, larger), (stock, _)) = (say(plait), say(stock));
            (format!("{most} MiB"), format!("{text} MiB, stock {stock}"), larger <= most)
        }
        Requirement::Wait(quantile, most) => {
            let [stock, plait] = [stock, plait].map(|of| of.latency.at(quantile));
            (
                format!("{} <= {most:?}", quantile.name()),
                format!("{plait:.2?}, stock {stock:.2?}"),
                plait <= most,
            )
        }
        Requirement::WaitTimesStock(quantile, most) => {
            let [stock, plait] = [stock, plait].map(|of| of.latency.at(quantile));
            let ratio = ratio(plait, stock);
            (
                format!("{most:.2} x {}", quantile.name()),
                format!("{ratio:.2} x, {plait:.2?} of {stock:.2?}"),
                ratio <= most,
            )
        }
        _ => return None,
    })
}

fn ratio(part: Duration, of: Duration) -> f64 {
    part.as_secs_f64() / of.as_secs_f64().max(1e-9)
}

/// For those of the library under test alone.
fn alone(requirement: &Requirement, plait: &Median, own: &[Median]) -> Verdict {
    match *requirement {
        Requirement::PartOfOwnBest(least) => {
            let best = own.iter().map(|median| median.outcome.per_second).fold(0.0, f64::max);
            let at_hundred = own.last().map_or(0.0, |median| median.outcome.per_second);
            let part = at_hundred / best.max(1.0);
            let percent = |part: f64| format!("{:.0} %", part * 100.0);
            (format!("{} of own best", percent(least)), percent(part), part >= least)
        }
        Requirement::Fairness(least) => {
            let part = plait.outcome.fairness;
            (format!("slowest / fastest {least}"), format!("{part:.2}"), part >= least)
        }
        Requirement::Steady(least) => {
            let steady = plait.outcome.steady;
            (format!("last / first tenth {least}"), format!("{steady:.2}"), steady >= least)
        }
        Requirement::Conflicts(most) => {
            let rate = plait.outcome.conflict_rate;
            (
                format!("conflicts < {:.0} %", most * 100.0),
                format!("{:.2} %", rate * 100.0),
                rate < most,
            )
        }
        Requirement::TimesStock(_)
        | Requirement::WrittenTimesStock(_)
        | Requirement::CpuTimesStock(_)
        | Requirement::IdleMebibytes(_)
        | Requirement::Wait(..)
        | Requirement::WaitTimesStock(..) => unreachable!("it was held against stock"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::case::{Case, Requirement, own_best_load};
    use super::super::idle::Footprint;
    use super::super::paced::{Latency, Quantile};
    use super::super::trial::Outcome;
    use super::super::writer::Settings;
    use super::judge;
    use std::time::Duration;

    fn outcome(per_second: f64, p999_ms: u64, max_ms: u64) -> Outcome {
        let [p999, max] = [p999_ms, max_ms].map(Duration::from_millis);
        Outcome {
            per_second,
            writes_per_second: per_second,
            fairness: 1.0,
            conflict_rate: 0.0,
            busy: 0,
            conflicts: 0,
            median_ns: 0,
            max_ns: 0,
            settings: Settings {
                version: String::new(),
                journal_mode: String::new(),
                synchronous: 2,
                page_size: 4096,
                cache_size: -2000,
            },
            close: Duration::ZERO,
            steady: 1.0,
            written_per_commit: 4096.0,
            footprint: Footprint::default(),
            latency: Latency { p999, max },
            cpu_each: Duration::from_micros(10),
        }
    }

    fn reached(requirement: Requirement, stock: &Outcome, plait: &Outcome) -> bool {
        let (load, requirements) = (own_best_load(1), vec![requirement]);
        let case = Case { name: "case", title: "a case", load, against: None, requirements };
        let lines = judge(&case, vec![stock.clone()], vec![plait.clone()], &[]);
        assert_eq!(lines.len(), 1, "a requirement has a line");
        lines[0].reached
    }

    #[test]
    fn a_wait_is_held_against_its_bound_and_against_stock() {
        let (stock, plait) = (outcome(1.0, 12, 40), outcome(1.0, 9, 45));
        let bound = Duration::from_millis;
        let holds = |requirement| reached(requirement, &stock, &plait);
        assert!(holds(Requirement::Wait(Quantile::P999, bound(10))));
        assert!(!holds(Requirement::Wait(Quantile::P999, bound(8))));
        assert!(holds(Requirement::Wait(Quantile::Max, bound(50))));
        assert!(holds(Requirement::WaitTimesStock(Quantile::P999, 1.0)));
        assert!(!holds(Requirement::WaitTimesStock(Quantile::Max, 1.0)));
    }

    #[test]
    fn what_is_less_than_required_is_not_reached() {
        let (stock, plait) = (outcome(100.0, 1, 1), outcome(299.0, 1, 1));
        assert!(!reached(Requirement::TimesStock(3.0), &stock, &plait));
        assert!(reached(Requirement::TimesStock(2.9), &stock, &plait));
        assert!(reached(Requirement::WrittenTimesStock(1.0), &stock, &plait));
        let costly = Outcome { cpu_each: Duration::from_micros(19), ..plait.clone() };
        assert!(reached(Requirement::CpuTimesStock(2.0), &stock, &costly));
        assert!(!reached(Requirement::CpuTimesStock(1.8), &stock, &costly));
        assert!(!reached(Requirement::Conflicts(0.0), &stock, &plait));
        assert!(reached(Requirement::Fairness(1.0), &stock, &plait));
    }
}
