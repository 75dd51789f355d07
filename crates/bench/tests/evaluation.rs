//! The rules by which results become figures: what is ranked, what is shown and not ranked, and what is never shown.

mod samples;

use std::path::PathBuf;

use plait_bench::engines::Durability;
use plait_bench::measure::machine::Medium;
use plait_bench::measure::trial::Answer;
use plait_bench::report::compare::{self, Difference, compare};
use plait_bench::report::evaluate::{Evaluated, Place, State, evaluate};
use plait_bench::report::results::Results;
use plait_bench::report::standing::{Verdict, standings};
use plait_bench::report::{markdown, page, terminal};
use plait_bench::studies::{Metric, Mode, X};
use plait_bench::workloads::dice::Dice;

fn chart<'a>(charts: &'a [Evaluated], id: &str) -> &'a Evaluated {
    charts.iter().find(|chart| chart.frame.id == id).unwrap_or_else(|| panic!("no chart {id}"))
}

fn place<'a>(chart: &'a Evaluated, engine: &str, x: &X) -> &'a Place {
    let line = chart.series.iter().find(|line| line.engine == engine).expect("a series");
    line.at(x).expect("a place")
}

#[test]
fn what_claims_a_power_cut_without_proof_is_listed_and_not_ranked() {
    let charts = evaluate(&samples::results(1));
    let threads = chart(&charts, "writers/modern/threads");
    let unproven = place(threads, "redb", &X::Number(1.0));
    assert!(unproven.value.is_some() && unproven.ranked().is_none());
    assert!(place(threads, "lmdb", &X::Number(1.0)).ranked().is_some());
    for standing in standings(&charts) {
        assert!(standing.rivals.iter().all(|rival| rival.engine != "redb"), "{standing:?}");
    }
}

#[test]
fn without_proofs_nothing_durable_is_ranked_ours_no_more_than_others() {
    let results = Results { proofs: Vec::new(), ..samples::results(1) };
    assert_eq!(standings(&evaluate(&results)), Vec::new());
}

#[test]
fn nothing_durable_is_ranked_on_a_medium_that_is_memory() {
    let on = |file_system: &str| {
        let mut results = samples::results(1);
        results.machine.media = vec![Medium {
            directory: PathBuf::from("/synthetic"),
            file_system: file_system.to_owned(),
            device: String::new(),
            options: String::new(),
            rotational: None,
            caution: None,
            free_bytes: 0,
            probes: Vec::new(),
        }];
        let charts = evaluate(&results);
        place(chart(&charts, "writers/modern/threads"), "lmdb", &X::Number(1.0)).clone()
    };
    assert!(on("ext4").ranked().is_some());
    let in_memory = on("tmpfs");
    assert!(in_memory.value.is_some() && in_memory.ranked().is_none(), "{in_memory:?}");
}

#[test]
fn one_failed_trial_of_five_takes_a_row_out_of_the_ranking() {
    let charts = evaluate(&samples::results(1));
    let failed =
        place(chart(&charts, "modes/modern/journal"), "lmdb", &X::Category("wal".to_owned()));
    assert_eq!((failed.state, failed.failed, failed.trials), (State::Measured, 1, 5));
    assert!(failed.ranked().is_none());
    assert!(failed.why.as_ref().is_some_and(|why| why.contains("9,998")));
}

#[test]
fn published_figures_and_cells_of_the_other_mode_stay_out_of_a_chart() {
    let mut results = samples::results(1);
    for chart in &mut results.charts {
        chart.frame.mode = match chart.frame.mode {
            Mode::Historical => Mode::Modern,
            Mode::Modern => Mode::Historical,
        };
    }
    for chart in evaluate(&results) {
        assert!(chart.frame.mode == Mode::Historical || chart.published.is_empty());
        let places = chart.series.iter().flat_map(|line| &line.places);
        assert!(places.into_iter().all(|place| place.value.is_none()), "{}", chart.frame.id);
    }
}

#[test]
fn a_rival_that_survives_less_does_not_compete() {
    let mut results = samples::results(1);
    let lmdb = results.cells.iter_mut().filter(|result| result.cell.engine == "lmdb");
    lmdb.for_each(|result| result.cell.durability = Durability::Process);
    for standing in standings(&evaluate(&results)) {
        assert!(standing.rivals.iter().all(|rival| rival.engine != "lmdb"), "{standing:?}");
    }
}

#[test]
fn losses_come_first_and_the_greatest_loss_before_all() {
    let standings = standings(&evaluate(&samples::results(1)));
    let verdicts: Vec<Verdict> =
        standings.iter().filter_map(|s| s.rivals.first().map(|rival| rival.verdict)).collect();
    assert!(verdicts.is_sorted(), "{verdicts:?}");
    let losses: Vec<f64> = standings
        .iter()
        .filter_map(|s| s.rivals.first())
        .filter(|rival| rival.verdict == Verdict::Loss)
        .map(|rival| rival.ratio.unwrap_or(f64::INFINITY))
        .collect();
    assert!(losses.len() > 1 && losses.is_sorted(), "{losses:?}");
}

#[test]
fn a_run_compared_with_itself_shows_no_difference() {
    let results = samples::results(1);
    let comparison = compare(&results, &results);
    assert!(comparison.pairs.len() > 30);
    let claims = [Difference::Better, Difference::Worse, Difference::More, Difference::Less];
    for pair in &comparison.pairs {
        assert!(!claims.contains(&pair.difference), "{pair:?}");
    }
    assert_eq!(comparison.only_in_a.len() + comparison.only_in_b.len(), 0);
}

#[test]
fn a_run_that_is_twice_as_fast_is_claimed_as_better_and_other_seeds_are_warned_of() {
    let (before, mut after) = (samples::results(1), samples::results(2));
    for trial in after.cells.iter_mut().flat_map(|result| &mut result.trials) {
        if let Answer::Done(measured) = &mut trial.answer {
            measured.phases.iter_mut().for_each(|phase| phase.seconds /= 2.0);
        }
    }
    let comparison = compare(&before, &after);
    let rates: Vec<_> =
        comparison.pairs.iter().filter(|p| p.unit == Metric::PerSecond.unit()).collect();
    assert!(rates.iter().any(|pair| pair.difference == Difference::Better));
    for pair in rates {
        let expected = [Difference::Better, Difference::NotComparable];
        assert!(expected.contains(&pair.difference), "{pair:?}");
    }
    assert!(comparison.warnings.iter().any(|w| w == "seeds differ: 1 and 2"));
    let text = anstream::adapter::strip_str(&compare::text(&comparison)).to_string();
    for line in text.lines() {
        assert!(line.trim_end().chars().count() <= terminal::WIDTH, "{line}");
    }
}

#[test]
fn what_makes_two_runs_hard_to_compare_is_said() {
    let first = samples::results(1);
    let mut second = samples::results(1);
    second.machine.kernel = "another".to_owned();
    second.cells[0].cell.settings.set("synchronous", "off");
    second.cells[1].trials[0].disturbance.steal = 0.3;
    let warnings = compare(&first, &second).warnings.join("\n");
    for needed in ["kernel", "settings differ in 1 cells", "second run was disturbed", "30.0 %"] {
        assert!(warnings.contains(needed), "{needed}: {warnings}");
    }
}

#[test]
fn the_tables_for_documents_hold_medians_intervals_and_what_is_missing() {
    let text = markdown::markdown(&samples::results(1));
    for needed in
        ["51,874", "absent: Berkeley DB", "| redb | **no** |", "not ranked", "&lt;/script>"]
    {
        assert!(text.contains(needed), "{needed}\n{text}");
    }
    let columns = |line: &str| line.replace("\\|", "").matches('|').count();
    let mut before: Option<usize> = None;
    for line in text.lines() {
        if line.starts_with('|') {
            assert_eq!(*before.get_or_insert(columns(line)), columns(line), "{line}");
        } else {
            before = None;
        }
    }
}

/// Takes away, spoils and empties parts of a result at random.
fn spoil(results: &mut Results, dice: &mut Dice) {
    results.cells.retain(|_| dice.below(5) > 0);
    results.proofs.retain(|_| dice.below(3) > 0);
    results.engines.retain(|_| dice.below(4) > 0);
    for result in &mut results.cells {
        result.trials.retain(|_| dice.below(3) > 0);
        if dice.below(3) == 0 {
            result.traced = None;
        }
        for trial in &mut result.trials {
            if dice.below(8) == 0 {
                trial.answer = Answer::Failed { why: String::new() };
            } else if let Answer::Done(measured) = &mut trial.answer {
                measured.phases.retain(|_| dice.below(6) > 0);
                for phase in &mut measured.phases {
                    spoil_phase(phase, dice);
                }
            }
        }
    }
    for chart in &mut results.charts {
        chart.series.retain(|_| dice.below(5) > 0);
        chart.series.iter_mut().for_each(|series| series.points.retain(|_| dice.below(4) > 0));
        chart.published.retain(|_| dice.below(2) > 0);
    }
}

fn spoil_phase(phase: &mut plait_bench::measure::phase::Phase, dice: &mut Dice) {
    match dice.below(6) {
        0 => phase.seconds = 0.0,
        1 => (phase.operations, phase.commits) = (0, 0),
        2 => phase.latency = None,
        3 => phase.latency = serde_json::from_str("\"bm90IGEgaGlzdG9ncmFt\"").ok(),
        4 => phase.thread_commits.clear(),
        _ => phase.usage.user_cpu_s = 1e300,
    }
}

#[test]
fn whatever_is_missing_from_results_every_report_is_made() {
    let whole = samples::results(1);
    for seed in 0..40 {
        let mut results = whole.clone();
        spoil(&mut results, &mut Dice::new(seed, 7));
        let made = std::panic::catch_unwind(|| {
            let _ = terminal::summary(&results, true);
            let _ = markdown::markdown(&results);
            let _ = compare::text(&compare(&whole, &results));
            page::html(&results).map(drop)
        });
        assert!(made.is_ok_and(|page| page.is_ok()), "seed {seed}");
    }
}
