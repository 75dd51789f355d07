//! Screens of several sizes, as they are drawn.

use std::path::Path;
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::facts::Order;
use super::super::monitor::Monitor;
use super::*;
use crate::failure::Failure;
use crate::live::{Counts, Doing, Look, Session, State, Transaction, Who};

fn top(transactions: usize) -> Top {
    let transaction = |i: usize| Transaction {
        who: Who { pid: 100 + i as u32, is_foreign: true },
        doing: if i == 0 { Doing::Writing } else { Doing::Queued },
        is_committing: false,
        age_ms: 100_000 - i as u64,
        waits_for: 0,
    };
    let session = Session {
        processes: vec![Who::default(); 2],
        transactions: (0..transactions).map(transaction).collect(),
        counts: Counts { commits: 1_234_567, ..Counts::default() },
        ..Session::default()
    };
    let look = Look { at: Instant::now(), state: State::Session(Box::new(session)), wal_bytes: 0 };
    Top {
        monitor: Monitor::of(Path::new("app.db"), look),
        order: Order::Age,
        skipped: 0,
        interval: Duration::from_secs(1),
        is_paused: false,
    }
}

fn drawn(top: &mut Top, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, top)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_owned()).collect()
}

#[test]
fn all_of_it_fits_on_an_ordinary_terminal() {
    let lines = drawn(&mut top(3), 80, 24);
    assert_eq!(lines[0], "app.db: concurrent mode, 2 processes, 0 connections");
    assert!(lines[1].starts_with("commits/s -   conflicts/s -"), "{lines:#?}");
    let text = lines.join("\n");
    for word in ["waiting 2 writers", "in all 1,234,567 commits", "longest 1 min 40 s by 100"] {
        assert!(text.contains(word), "{word} is missing in\n{text}");
    }
    let head = lines.iter().position(|line| line.starts_with("PID")).unwrap();
    assert!(head < 14, "{text}");
    assert!(lines[head + 1].starts_with("100     1 min 40 s  writing"), "{text}");
    assert!(lines[head + 2].starts_with("101     1 min 39 s  queued     writer nobody"), "{text}");
    assert_eq!(lines[23], "q quit  s sort: age  p pause  +/- every 1 s");
}

#[test]
fn any_size_can_be_drawn_and_a_low_one_keeps_the_table() {
    for width in [1, 2, 7, 20, 40, 79, 200] {
        for height in [1, 2, 3, 5, 8, 23, 60] {
            drawn(&mut top(30), width, height);
        }
    }
    let lines = drawn(&mut top(30), 40, 8);
    assert!(lines[1].starts_with("commits/s"), "{lines:#?}");
    assert!(lines[3].starts_with("PID") && lines[4].starts_with("100"), "{lines:#?}");
}

#[test]
fn the_list_is_moved_through_no_farther_than_its_end() {
    let mut top = top(30);
    top.skipped = 1000;
    let lines = drawn(&mut top, 80, 24);
    assert!(lines[22].starts_with("129"), "{lines:#?}");
    assert!(top.skipped < 30);
}

#[test]
fn a_file_that_is_gone_is_told_in_place_of_the_table() {
    let mut top = top(3);
    top.monitor.take(Err(Failure::new("cannot open app.db: no such file", "check the path")));
    top.is_paused = true;
    let lines = drawn(&mut top, 60, 10);
    assert!(lines[0].contains("the session has ended 1 s ago"), "{lines:#?}");
    assert_eq!(lines[1], "cannot open app.db: no such file; check the path");
    assert!(lines[9].ends_with("PAUSED"), "{lines:#?}");
}
