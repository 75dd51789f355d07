//! The result as tables of at most 100 columns.

use std::time::Duration;

use comfy_table::{CellAlignment, Row, Table, presets};

use super::plan::{Engine, Place};
use super::trial::Measured;
use crate::quantity::{count, wait};

/// A finished trial.
pub struct Finished {
    /// Where its writers were.
    pub place: Place,
    /// How many there were.
    pub writers: u32,
    /// What was measured.
    pub engine: Engine,
    /// What it gave.
    pub measured: Measured,
}

const COLUMNS: [&str; 8] =
    ["writers", "engine", "commits/s", "ratio", "median", "worst", "BUSY", "retries"];

/// The table of one place; empty without trials there.
pub fn lines(place: Place, finished: &[Finished]) -> Vec<String> {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(COLUMNS);
    for (i, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if i != 1 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut here: Vec<&Finished> = finished.iter().filter(|f| f.place == place).collect();
    here.sort_by_key(|f| (f.writers, Engine::ALL.iter().position(|&e| e == f.engine)));
    for (i, one) in here.iter().enumerate() {
        let first = i == 0 || here[i - 1].writers != one.writers;
        table.add_row(row(one, first, base(&here, one.writers)));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Commits per second of stock SQLite with as many writers.
fn base(here: &[&Finished], writers: u32) -> Option<f64> {
    let stock = here.iter().find(|f| f.writers == writers && f.engine == Engine::Stock)?;
    Some(stock.measured.commits_per_second).filter(|&rate| rate > 0.0)
}

fn row(one: &Finished, first: bool, base: Option<f64>) -> Row {
    let m = &one.measured;
    let us = |us: u32| wait(Duration::from_micros(u64::from(us)));
    Row::from(vec![
        if first { one.writers.to_string() } else { String::new() },
        one.engine.name().to_owned(),
        count(m.commits_per_second.round() as u64),
        base.map_or(String::new(), |base| ratio(m.commits_per_second / base)),
        us(m.median_us),
        us(m.worst_us),
        count(m.busy),
        count(m.conflicts),
    ])
}

fn ratio(x: f64) -> String {
    if x < 0.95 { format!("{x:.2}x") } else { format!("{x:.1}x") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(engine: Engine, writers: u32, commits_per_second: f64) -> Finished {
        let measured = Measured {
            commits_per_second,
            median_us: 4_321,
            worst_us: 59_876_543,
            busy: 1_234_567,
            conflicts: 1_234_567,
            ..Measured::default()
        };
        Finished { place: Place::Threads, writers, engine, measured }
    }

    #[test]
    fn ratios_are_to_stock_sqlite_with_as_many_writers() {
        let all = [
            finished(Engine::Concurrent, 10, 45_000.0),
            finished(Engine::Stock, 10, 10_000.0),
            finished(Engine::Stock, 1, 9_000.0),
        ];
        let lines = lines(Place::Threads, &all);
        assert_eq!(lines.len(), 4);
        assert!(
            lines[1].contains("SQLite WAL")
                && lines[1].contains("9,000")
                && lines[1].contains("1.0x")
        );
        assert!(lines[3].contains("CONCURRENT") && lines[3].contains("4.5x"), "{lines:?}");
        assert_eq!(super::lines(Place::Processes, &all).len(), 1, "a header alone");
    }

    #[test]
    fn a_ratio_below_one_has_two_digits() {
        assert_eq!(
            [ratio(0.04), ratio(0.9), ratio(1.0), ratio(31.27)],
            ["0.04x", "0.90x", "1.0x", "31.3x"]
        );
    }

    #[test]
    fn even_large_numbers_fit_100_columns() {
        let all = Engine::ALL.map(|engine| finished(engine, 10_000, 1_234_567.0));
        for line in lines(Place::Threads, &all) {
            assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
        }
    }
}
