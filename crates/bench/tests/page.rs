//! The report in a browser: it renders, its filter and theme work, it fits a telephone, and it fetches nothing.
//!
//! Needs Chromium. Where it is not installed, the tests that need it say so and pass, unless CI is set.
//! `PLAIT_BENCH_PICTURES=folder` keeps pictures of the pages, to be looked at.

mod browser;
mod samples;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use browser::Browser;
use plait_bench::measure::trial::Answer;
use plait_bench::report::evaluate::{Evaluated, State, evaluate};
use plait_bench::report::{failures, page};
use plait_bench::studies::Metric;
use serde_json::{Value, json};

/// The page of the made-up results in a file of its own, and a browser that shows it.
struct Shown {
    browser: Browser,
    address: String,
    _folder: tempfile::TempDir,
}

fn page_file(folder: &Path) -> PathBuf {
    let path = folder.join("report.html");
    page::write(&samples::results(1), &path).expect("the page is written");
    path
}

/// Opens the page; none if there is no browser.
fn show() -> Option<Shown> {
    let Some(program) = browser::program() else {
        assert!(std::env::var_os("CI").is_none(), "CI is set and Chromium is not installed");
        // Not by eprintln!, which is kept from who looks at passing tests.
        let _ = std::io::stderr()
            .write_all(b"\nSKIPPED: the report was NOT tested, Chromium is not installed\n");
        return None;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let address = format!("file://{}", page_file(folder.path()).display());
    let mut browser = Browser::start(program);
    browser.resize(1280, 900);
    browser.open(&address);
    Some(Shown { browser, address, _folder: folder })
}

fn keep_picture(browser: &mut Browser, name: &str) {
    if let Some(folder) = std::env::var_os("PLAIT_BENCH_PICTURES") {
        browser.picture(&PathBuf::from(folder).join(name));
    }
}

fn charts() -> Vec<Evaluated> {
    evaluate(&samples::results(1))
}

/// How many marks of each engine a chart shows.
fn marks_expected(chart: &Evaluated) -> Value {
    let mut counts = serde_json::Map::new();
    for line in &chart.series {
        let has_mark = |state: State| state == State::Measured;
        let count = line.places.iter().filter(|place| has_mark(place.state)).count() as u64;
        if count > 0 {
            let before = counts.get(&line.engine).and_then(Value::as_u64).unwrap_or(0);
            counts.insert(line.engine.clone(), json!(before + count));
        }
    }
    Value::Object(counts)
}

fn marks_shown(browser: &mut Browser, chart: &Evaluated) -> Value {
    browser.value(&format!(
        "(() => {{ const counts = {{}};
           const figure = [...document.querySelectorAll('figure.chart')].find(f => f.dataset.chart === {:?});
           for (const mark of figure.querySelectorAll('.plot .mark')) counts[mark.dataset.engine] = (counts[mark.dataset.engine] ?? 0) + 1;
           return counts; }})()",
        chart.frame.id
    ))
}

fn complaints(browser: &Browser) -> Vec<&Value> {
    browser.events(&["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"])
}

#[test]
fn every_chart_has_its_marks_and_the_console_is_silent() {
    let Some(mut shown) = show() else { return };
    for chart in charts() {
        assert_eq!(
            marks_shown(&mut shown.browser, &chart),
            marks_expected(&chart),
            "{}",
            chart.frame.id
        );
    }
    let ghosts = shown.browser.value("document.querySelectorAll('.plot .ghost').length");
    assert!(ghosts.as_u64() >= Some(10), "published figures: {ghosts}");
    assert_eq!(complaints(&shown.browser), Vec::<&Value>::new());
    keep_picture(&mut shown.browser, "wide-light.png");
}

#[test]
fn a_logarithmic_axis_keeps_every_mark() {
    let Some(mut shown) = show() else { return };
    shown.browser.value("document.querySelectorAll('.log').forEach(box => box.click())");
    for chart in charts() {
        // What is nought has no place on such an axis.
        if chart.frame.metric != Metric::BusyCalls {
            assert_eq!(
                marks_shown(&mut shown.browser, &chart),
                marks_expected(&chart),
                "{}",
                chart.frame.id
            );
        }
    }
    assert_eq!(complaints(&shown.browser), Vec::<&Value>::new());
}

#[test]
fn the_filter_takes_away_exactly_one_engine_and_gives_it_back() {
    let Some(mut shown) = show() else { return };
    let rows = "(() => { const counts = {}; for (const row of document.querySelectorAll('main tr[data-engine]'))
        if (row.getAttribute('hidden') === null) counts[row.dataset.engine] = (counts[row.dataset.engine] ?? 0) + 1; return counts; })()";
    let rivals = "[...document.querySelectorAll('.standing')].filter(row => row.dataset.rival === 'lmdb').length";
    let rows_before = shown.browser.value(rows);
    assert!(shown.browser.value(rivals).as_u64() > Some(0), "LMDB is the best rival somewhere");
    shown.browser.value("document.querySelector('input[value=lmdb]').click()");

    let mut rows_expected = rows_before.clone();
    rows_expected.as_object_mut().expect("counts").remove("lmdb").expect("LMDB has rows");
    assert_eq!(shown.browser.value(rows), rows_expected);
    assert_eq!(shown.browser.value(rivals), json!(0));
    for chart in charts() {
        let mut expected = marks_expected(&chart);
        expected.as_object_mut().expect("counts").remove("lmdb");
        assert_eq!(marks_shown(&mut shown.browser, &chart), expected, "{}", chart.frame.id);
    }
    assert_eq!(shown.browser.value("location.hash"), json!("#hide=lmdb"));

    shown.browser.value("document.querySelector('input[value=lmdb]').click()");
    assert_eq!(shown.browser.value(rows), rows_before);
    assert_eq!(complaints(&shown.browser), Vec::<&Value>::new());
}

#[test]
fn a_filtered_report_can_be_linked() {
    let Some(mut shown) = show() else { return };
    let address = format!("{}#hide=plait,redb", shown.address);
    shown.browser.open(&address);
    for chart in charts() {
        let mut expected = marks_expected(&chart);
        for engine in ["plait", "redb"] {
            expected.as_object_mut().expect("counts").remove(engine);
        }
        assert_eq!(marks_shown(&mut shown.browser, &chart), expected, "{}", chart.frame.id);
    }
    let unchecked = "[...document.querySelectorAll('input[name=engine]')].filter(b => !b.checked).map(b => b.value)";
    assert_eq!(shown.browser.value(unchecked), json!(["plait", "redb"]));
    assert_eq!(shown.browser.value("document.querySelectorAll('.standing').length"), json!(0));
}

#[test]
fn the_theme_follows_the_system_until_it_is_chosen() {
    let Some(mut shown) = show() else { return };
    let background = "getComputedStyle(document.body).backgroundColor";
    shown.browser.prefer("light");
    let light = shown.browser.value(background);
    shown.browser.prefer("dark");
    let dark = shown.browser.value(background);
    assert_ne!(light, dark);
    keep_picture(&mut shown.browser, "wide-dark.png");
    shown.browser.value("document.getElementById('theme').click()");
    assert_eq!(shown.browser.value(background), light);
    shown.browser.value("document.getElementById('theme').click()");
    assert_eq!(shown.browser.value(background), dark);
}

#[test]
fn a_mark_tells_its_figure_when_it_is_pointed_at() {
    let Some(mut shown) = show() else { return };
    shown.browser.point_at("figure[data-chart='writers/modern/threads'] .mark[data-engine=lmdb]");
    let told = shown.browser.value("document.getElementById('tip').innerText");
    let told = told.as_str().expect("a text");
    assert!(told.contains("LMDB") && told.contains("5 trials"), "{told}");
}

#[test]
fn nothing_is_fetched_from_outside() {
    let Some(shown) = show() else { return };
    for event in shown.browser.events(&["Network.requestWillBeSent"]) {
        let address = event["params"]["request"]["url"].as_str().expect("an address");
        let own = address == shown.address || address.starts_with("data:");
        assert!(own || address == "about:blank", "{address}");
    }
    let failed = shown.browser.events(&["Network.loadingFailed"]);
    assert_eq!(failed, Vec::<&Value>::new());
}

#[test]
fn the_page_names_no_address_but_that_of_a_namespace() {
    let html = page::html(&samples::results(1)).expect("a page");
    let addresses: Vec<&str> = html
        .match_indices("http")
        .map(|(at, _)| &html[at..])
        .filter(|text| text.starts_with("http://") || text.starts_with("https://"))
        .filter(|text| !text.starts_with("http://www.w3.org/2000/svg"))
        .collect();
    assert!(addresses.is_empty(), "{:.80}", addresses[0]);
    assert!(html.contains("default-src 'none'"));
}

#[test]
fn text_from_results_is_never_markup() {
    let html = page::html(&samples::results(1)).expect("a page");
    assert!(!html.contains("</script><b>"), "the reason of a failed trial came through as markup");
    assert_eq!(html.matches("<script").count(), 2);
}

#[test]
fn a_telephone_shows_the_page_without_scrolling_sideways() {
    let Some(mut shown) = show() else { return };
    for width in [320, 390] {
        shown.browser.resize(width, 800);
        let address = shown.address.clone();
        shown.browser.open(&address);
        shown
            .browser
            .value("document.querySelectorAll('details').forEach(d => { d.open = true; })");
        let wide = shown.browser.value("document.documentElement.scrollWidth");
        assert!(wide.as_u64() <= Some(u64::from(width)), "{wide} of {width} pixels");
        for chart in charts() {
            assert_eq!(
                marks_shown(&mut shown.browser, &chart),
                marks_expected(&chart),
                "{}",
                chart.frame.id
            );
        }
    }
    keep_picture(&mut shown.browser, "narrow.png");
}

/// For every chart of bars that is shown: whether each of its bars begins where the axis has nought, how many symbols
/// stand for bars, and the greatest value of a tick, as a text.
const BARS: &str = "CHARTS.filter(({ chart }) => chart.shape === 'bars').map(({ chart, element }) => {
    const ticks = [...element.querySelectorAll('.plot .tick')];
    const nought = ticks.find((tick) => tick.textContent === '0');
    const bars = [...element.querySelectorAll('.plot rect.mark')];
    return { id: chart.id, bars: bars.length, symbols: element.querySelectorAll('.plot .mark.symbol').length,
      nought: nought !== undefined,
      begin: nought !== undefined && bars.every((bar) => Math.abs(bar.getAttribute('x') - nought.getAttribute('x')) < 0.6) };
  })";

#[test]
fn bars_begin_at_nought_and_are_symbols_on_a_logarithmic_axis() {
    let Some(mut shown) = show() else { return };
    let logarithmic = "document.querySelectorAll('.log').forEach(box => { if (box.checked !== WANTED) box.click(); })";
    shown.browser.value(&logarithmic.replace("WANTED", "false"));
    let linear = shown.browser.value(BARS);
    let charts = linear.as_array().expect("charts of bars");
    assert!(charts.len() >= 2, "{linear}");
    for chart in charts {
        assert_eq!((&chart["symbols"], &chart["begin"]), (&json!(0), &json!(true)), "{chart}");
        assert!(chart["bars"].as_u64() > Some(0), "{chart}");
    }
    shown.browser.value(&logarithmic.replace("WANTED", "true"));
    for chart in shown.browser.value(BARS).as_array().expect("charts of bars") {
        assert_eq!((&chart["bars"], &chart["nought"]), (&json!(0), &json!(false)), "{chart}");
        assert!(chart["symbols"].as_u64() > Some(0), "{chart}");
    }
    assert_eq!(complaints(&shown.browser), Vec::<&Value>::new());
    keep_picture(&mut shown.browser, "logarithmic.png");
}

#[test]
fn every_axis_has_a_text_at_its_end() {
    let Some(mut shown) = show() else { return };
    // At several widths and spans the scale ends with a tick, and the last of places in a row is never left out.
    let ends =
        "[1, 9, 99, 950, 12345, 9.9e6, 3e9, 8e13].every((high) => [true, false].every((log) => {
        const axis = scale([0.7, high], 0, 300, log, true);
        return Math.abs(axis.place(axis.ticks.at(-1)) - 300) < 0.01 && axis.high >= high; }))";
    assert_eq!(shown.browser.value(ends), json!(true));
    for width in [320, 700, 1280] {
        shown.browser.resize(width, 900);
        let lines = "CHARTS.filter(({ chart }) => chart.shape === 'lines').every(({ chart, element }) => {
            const last = brief(Math.max(...chart.xs));
            const below = [...element.querySelectorAll('.plot .tick')].filter((t) => t.getAttribute('text-anchor') === 'middle');
            return below.length > 1 && below.at(-1).textContent === last; })";
        assert_eq!(shown.browser.value(lines), json!(true), "{width}");
    }
}

#[test]
fn a_disturbed_trial_is_told_at_the_head_at_its_figure_and_in_the_table() {
    let html = page::html(&samples::results(1)).expect("a page");
    let head = &html[html.find("id=\"disturbance\"").expect("a line at the head")..];
    let head = &head[..head.find("</p>").expect("its end")];
    assert!(head.contains("more than 5.00 % of the processor time"), "{head}");
    assert!(head.contains("at most 30.5 %") && head.contains("in 1 of "), "{head}");
    assert!(html.contains("here at most 30.5 %"), "the chart has no remark");
    assert!(html.contains("<td class=\"n\">30.5</td>"), "the table has no figure");
    let disturbed: usize = charts()
        .iter()
        .flat_map(|chart| &chart.series)
        .flat_map(|line| &line.places)
        .filter(|place| place.stolen.is_some())
        .count();
    assert!(disturbed > 0);
}

#[test]
fn every_failed_trial_stands_on_the_page_with_its_text_and_its_cause_as_far_as_it_is_known() {
    let mut results = samples::results(1);
    let lost = "1451 acknowledged commits on 10000 rows left 11450 rows with 1450 of them";
    let cell = results.cells.iter_mut().find(|c| c.cell.engine == "bdb-sql").expect("a cell");
    cell.trials[1].answer = Answer::Failed { why: lost.to_owned() };
    let html = page::html(&results).expect("a page");
    let section = &html[html.find("<section id=\"failures\">").expect("a section")..];
    let section = &section[..section.find("</section>").expect("its end")];
    assert!(section.contains(lost) && section.contains("#cause-bdb-sql-lost-row"), "{section}");
    assert!(section.contains("id=\"cause-bdb-sql-lost-row\""), "{section}");
    assert!(section.contains("killed after 600 s") && section.contains("not known"), "{section}");
    let explained = include_str!("../../../docs/benchmark-results.md");
    for cause in failures::KNOWN {
        let heading = format!("### {}\n", cause.title);
        assert!(explained.contains(&heading), "{heading} is explained nowhere");
    }
}
