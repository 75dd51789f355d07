//! The summary on a terminal.

mod samples;

use plait_bench::report::terminal;

/// Without the escapes of colours.
fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[test]
fn the_summary_fits_100_columns() {
    for details in [false, true] {
        let text = plain(&terminal::summary(&samples::results(1), details));
        for line in text.lines() {
            assert!(line.trim_end().chars().count() <= terminal::WIDTH, "{line}");
        }
    }
}

#[test]
fn the_summary_names_what_failed_is_absent_or_not_ranked() {
    let text = plain(&terminal::summary(&samples::results(1), false));
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for needed in [
        "absent: Berkeley DB: its library was not found; make bench-peers",
        "n/a: SQLite FULL: journal_mode=concurrent is not one of this library",
        "failed: redb: killed after 600 s",
        "! LMDB, not ranked: 1 of 5 trials failed: the sum of all counters is 9,998",
        "? redb, not ranked: 0 sync calls for 400 commits",
        "–: Berkeley DB SQL: the run ended before its turn",
        "INTERRUPTED",
        "↓ redb, saturated",
        "two immediate transactions on different",
    ] {
        assert!(flat.contains(needed), "{needed}\n{text}");
    }
}

#[test]
fn the_first_study_prints_a_line_for_each_test_with_the_published_figures() {
    let text = plain(&terminal::summary(&samples::results(1), false));
    let line =
        text.lines().find(|line| line.trim_start().starts_with("insert int")).expect("a line");
    assert!(line.contains("51,874") && line.contains("444,168"), "{line}");
}
