//! The rules by which results become figures: what is ranked, what is shown and not ranked, and what is never shown.

mod samples;

use std::path::PathBuf;

use plait_bench::advise::verdict;
use plait_bench::engines::{Durability, Settings, catalogue};
use plait_bench::measure::durability::Proof;
use plait_bench::measure::machine::Medium;
use plait_bench::measure::trial::Answer;
use plait_bench::report::compare::{self, compare};
use plait_bench::report::evaluate::{Evaluated, Place, State, evaluate};
use plait_bench::report::grid::{self, Tone};
use plait_bench::report::results::{CellResult, Results};
use plait_bench::report::standing::{Verdict, standings};
use plait_bench::report::{findings, markdown, numbers, page, readings, terminal};
use plait_bench::studies::{Metric, Mode, Point, Request, Series, Study, Tuning, X};
use plait_bench::workloads::Finding;
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
    for pair in &comparison.pairs {
        assert!(["no difference shown", "not comparable"].contains(&pair.words()), "{pair:?}");
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
    assert!(rates.iter().any(|pair| pair.words() == "better"));
    for pair in rates {
        assert!(["better", "not comparable"].contains(&pair.words()), "{pair:?}");
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
    for result in &mut second.cells {
        result.trials.iter_mut().for_each(|trial| trial.disturbance.steal_during = None);
    }
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

/// Made-up results of one chart: rows of an engine with a setting and a rate.
fn with_rows(rows: &[(&str, &str, Settings, f64)]) -> Results {
    let mut results = samples::results(1);
    let chart = results.charts.iter().find(|c| c.frame.id == "writers/modern/threads").cloned();
    let mut chart = chart.expect("a chart");
    chart.series.clear();
    let is_pattern = |c: &&CellResult| c.cell.engine == "lmdb" && c.cell.study == Study::Writers;
    let pattern = results.cells.iter().find(is_pattern).cloned().expect("a cell");
    let proof = results.proofs[0].clone();
    results.cells.clear();
    for (engine, label, settings, rate) in rows {
        let mut cell = pattern.clone();
        cell.cell.id = (*label).to_owned();
        cell.cell.engine = (*engine).to_owned();
        cell.cell.label = (*label).to_owned();
        cell.cell.settings = settings.clone();
        for (number, trial) in (0_i32..).zip(&mut cell.trials) {
            let Answer::Done(measured) = &mut trial.answer else { panic!("{label} is done") };
            let phase = &mut measured.phases[0];
            phase.operations = (rate * phase.seconds) as u64 + number.unsigned_abs() as u64;
        }
        results.proofs.push(Proof {
            engine: (*engine).to_owned(),
            settings: settings.clone(),
            ..proof.clone()
        });
        chart.series.push(Series {
            label: (*label).to_owned(),
            engine: (*engine).to_owned(),
            points: vec![Point {
                x: X::Number(8.0),
                cell: (*label).to_owned(),
                phase: cell.trials[0].answer.measured().map(|m| m.phases[0].name.clone()),
            }],
        });
        results.cells.push(cell);
    }
    results.charts = vec![chart];
    results
}

fn journal(mode: &str) -> Settings {
    Settings::default().with("journal_mode", mode).with("synchronous", "full")
}

#[test]
fn a_rival_enters_with_the_better_of_its_rows_tuned_or_not() {
    let tuned = |settings: Settings| settings.with("cache_size", "40000");
    let results = with_rows(&[
        ("plait", "Plait", journal("concurrent"), 33_000.0),
        ("stock", "SQLite, defaults", Settings::default(), 1_000.0),
        ("stock", "SQLite WAL", journal("wal"), 4_000.0),
        ("bdb-sql", "Berkeley DB SQL, defaults", Settings::default(), 8_000.0),
        ("bdb-sql", "Berkeley DB SQL, tuned", tuned(Settings::default()), 12_000.0),
    ]);
    let standings = standings(&evaluate(&results));
    let [standing] = &standings[..] else { panic!("one place, one row of ours: {standings:?}") };
    let rivals: Vec<(&str, Tuning)> =
        standing.rivals.iter().map(|rival| (rival.label.as_str(), rival.tuning)).collect();
    let expected = [("Berkeley DB SQL, tuned", Tuning::Tuned), ("SQLite WAL", Tuning::Default)];
    assert_eq!(rivals, expected);
    assert!((8.0..8.5).contains(&standing.rivals[1].ratio.expect("a ratio")), "{standing:?}");
}

/// Plait, a rival, and the bare log above both; with a finding of the log.
fn beside_the_limit() -> Results {
    let mut results = with_rows(&[
        ("plait", "Plait", journal("concurrent"), 33_000.0),
        ("stock", "SQLite WAL", journal("wal"), 4_000.0),
        ("log", "bare log, the limit", Settings::default(), 60_000.0),
    ]);
    for trial in &mut results.cells[2].trials {
        let Answer::Done(measured) = &mut trial.answer else { panic!("it is done") };
        let (question, answer) = ("Can it be asked".to_owned(), "yes".to_owned());
        measured.findings.push(Finding { question, answer });
    }
    results
}

#[test]
fn a_limit_is_shown_as_one_and_nothing_is_compared_with_it() {
    let results = beside_the_limit();
    let charts = evaluate(&results);
    let limit = place(&charts[0], "log", &X::Number(8.0));
    assert!(limit.value.is_some_and(|value| value.median > 59_000.0), "{limit:?}");
    assert_eq!(limit.unranked.as_deref(), Some("a limit, not a store"));
    let standings = standings(&charts);
    let [standing] = &standings[..] else { panic!("one place, one row of ours: {standings:?}") };
    assert_eq!(standing.rivals.len(), 1, "{standing:?}");
    assert_eq!(standing.rivals[0].label, "SQLite WAL");
    let grid = grid::grid(&charts[0]);
    let tones: Vec<_> = grid.rows.iter().map(|(_, cells)| cells[0].tone).collect();
    assert_eq!(tones, [Tone::Best, Tone::Plain, Tone::Doubtful]);
    let compared = compare(&results, &results);
    let cells: Vec<&str> = compared.pairs.iter().map(|pair| pair.cell.as_str()).collect();
    assert_eq!(cells, ["Plait", "SQLite WAL"]);
    assert_eq!(findings::findings(&results), Vec::new());
    assert!(
        verdict::draw(&results).ranked.iter().all(|ranked| ranked.label != "bare log, the limit")
    );
}

#[test]
fn a_limit_is_named_as_one_on_the_page_on_the_terminal_and_in_tables() {
    let results = beside_the_limit();
    let flat = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let terminal = terminal::summary(&results, false);
    for (name, text) in [
        ("terminal", flat(anstream::adapter::strip_str(&terminal).to_string())),
        ("tables", flat(markdown::markdown(&results))),
        ("page", flat(page::html(&results).expect("a page"))),
    ] {
        for part in ["bare log, the limit", "not ranked: a limit, not a store"] {
            assert!(text.contains(part), "{part:?} is missing on the {name}:\n{text}");
        }
    }
}

#[test]
fn a_limit_that_was_not_shown_to_wait_for_the_disk_says_so_first() {
    let mut results = beside_the_limit();
    results.proofs.retain(|proof| proof.engine != "log");
    let why = results.unranked(&results.cells[2].cell).expect("it is not ranked");
    assert_eq!(why, "its durability was not put to the proof");
}

#[test]
fn defaults_meet_defaults_only_beside_our_own_tuned_row() {
    let tuned = |settings: Settings| settings.with("mmap_size", "1073741824");
    let results = with_rows(&[
        ("plait", "Plait", journal("concurrent"), 900.0),
        ("plait", "Plait, map", tuned(journal("concurrent")), 1_000.0),
        ("stock", "SQLite WAL", journal("wal"), 1_200.0),
        ("stock", "SQLite WAL, map", tuned(journal("wal")), 2_000.0),
    ]);
    let mut pairs: Vec<(String, String)> = standings(&evaluate(&results))
        .into_iter()
        .map(|standing| (standing.label, standing.rivals[0].label.clone()))
        .collect();
    pairs.sort();
    let expected = [("Plait", "SQLite WAL"), ("Plait, map", "SQLite WAL, map")];
    assert_eq!(pairs, expected.map(|(ours, theirs)| (ours.to_owned(), theirs.to_owned())));
}

#[test]
fn rows_with_the_same_settings_beside_the_journal_have_the_same_tag_in_every_study() {
    let entries = catalogue::all(&[]).unwrap();
    for study in [Study::Kv, Study::Modes, Study::Files, Study::Writers] {
        for mode in [Mode::Historical, Mode::Modern] {
            let request = Request {
                mode,
                quick: false,
                thorough: true,
                engines: entries.clone(),
                media: vec!["/tmp".into()],
            };
            for cell in study.plan(&request).cells {
                assert_eq!(cell.tuning, Tuning::of(&cell.settings), "{}", cell.id);
                let large = cell.settings.iter().any(|(name, _)| name.contains("cache"));
                let journal_alone =
                    cell.settings.iter().all(|(n, _)| ["journal_mode", "synchronous"].contains(&n));
                assert!(!large || cell.tuning == Tuning::Tuned, "{}", cell.id);
                assert!(!journal_alone || cell.tuning == Tuning::Default, "{}", cell.id);
            }
        }
    }
}

#[test]
fn the_tags_of_older_results_are_read_anew() {
    let mut results = with_rows(&[("stock", "SQLite WAL", journal("wal"), 4_000.0)]);
    results.cells[0].cell.tuning = Tuning::Tuned;
    let charts = evaluate(&results);
    let found = &charts[0].series[0].places[0];
    assert_eq!(found.tuning, Some(Tuning::Default));
}

#[test]
fn disturbance_failures_and_readings_stand_in_the_markdown_and_on_the_terminal() {
    let results = samples::results(1);
    let flat = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let terminal = terminal::summary(&results, false);
    let terminal = flat(anstream::adapter::strip_str(&terminal).to_string());
    let markdown = flat(markdown::markdown(&results));
    for (name, text) in [("terminal", terminal), ("markdown", markdown)] {
        for part in [
            "the hypervisor gave more than 5.00 % of the processor time to others (median 0.1",
            "here at most 30.5 %",
            "What failed, and why",
            "the sum of all counters is 9,998 and should be 10,000",
            "What the publications read from their figures",
            "about 50 % more processor time for nearly 300 % more transactions",
        ] {
            assert!(text.contains(part), "{part:?} is missing in the {name}:\n{text}");
        }
    }
}

#[test]
fn the_readings_of_the_publications_stand_beside_the_same_ratios_of_ours() {
    let charts = evaluate(&samples::results(1));
    let readings = readings::readings(&charts);
    let [reading] = &readings[..] else { panic!("{readings:?}") };
    // Made up: 3,000 against 9,000 with one thread, 0.6 to 2.8 times with more, the same processor time at all.
    assert!(reading.here.starts_with("1 thread: "), "{reading:?}");
    let median = |chart: &str, engine: &str, x: f64| {
        let found = charts.iter().find(|c| c.frame.id == chart).expect("a chart");
        place(found, engine, &X::Number(x)).value.expect("measured").median
    };
    let rates = "writers/historical/throughput";
    let more = 100.0 * (median(rates, "bdb-sql", 1.0) / median(rates, "stock", 1.0) - 1.0);
    let text = format!("{} % more transactions", numbers::figure(more));
    assert!(reading.here.contains(&text), "{text} is not in {reading:?}");
}
