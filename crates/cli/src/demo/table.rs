//! The result as tables of at most 100 columns, a line at a time.

use std::time::Duration;

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

impl Finished {
    /// Transactions of a hundred that ended with an error.
    pub fn failed_percent(&self) -> f64 {
        let m = &self.measured;
        100.0 * m.failed as f64 / (m.failed + m.acknowledged).max(1) as f64
    }
}

/// The heads of the columns.
pub fn head() -> String {
    line(["writers", "program", "served/s", "ratio", "failed", "median", "99 %", "worst"])
}

/// The line of the last of `finished`. Those before it tell what it is compared with, and whether its number of writers is said.
pub fn last(finished: &[Finished]) -> String {
    let Some((one, before)) = finished.split_last() else { return String::new() };
    let same = |f: &Finished| f.place == one.place && f.writers == one.writers;
    let m = &one.measured;
    let us = |us: u32| wait(Duration::from_micros(u64::from(us)));
    let writers = if before.iter().any(same) { String::new() } else { one.writers.to_string() };
    let stock = finished.iter().rfind(|f| same(f) && f.engine == Engine::Stock);
    let base = stock.map_or(0.0, |f| f.measured.commits_per_second);
    line([
        &writers,
        one.engine.name(),
        &count(m.commits_per_second.round() as u64),
        &if base > 0.0 { ratio(m.commits_per_second / base) } else { String::new() },
        &percent(one.failed_percent()),
        &us(m.median_us),
        &us(m.p99_us),
        &us(m.worst_us),
    ])
}

fn line(cells: [&str; 8]) -> String {
    let [writers, program, rate, ratio, failed, median, p99, worst] = cells;
    let line = format!(
        "{writers:>7}  {program:<27}  {rate:>9}  {ratio:>6}  {failed:>7}  {median:>8}  {p99:>8}  {worst:>8}"
    );
    line.trim_end().to_owned()
}

/// Below a tenth as a fraction, which says how much slower it is.
fn ratio(x: f64) -> String {
    match x {
        x if x < 0.1 => format!("1/{:.0}", 1.0 / x),
        x if x < 0.95 => format!("{x:.2}x"),
        x => format!("{x:.1}x"),
    }
}

/// A share that is not nothing, or not all, is never shown as that.
pub fn percent(x: f64) -> String {
    match x {
        0.0 => "0 %".to_owned(),
        x if x < 0.1 => "<0.1 %".to_owned(),
        x if x < 100.0 && x > 99.9 => ">99.9 %".to_owned(),
        x => format!("{x:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(engine: Engine, writers: u32, commits_per_second: f64, failed: u64) -> Finished {
        let measured = Measured {
            commits_per_second,
            acknowledged: 1_000,
            median_us: 4_321,
            p99_us: 999_499,
            worst_us: 59_876_543,
            failed,
            ..Measured::default()
        };
        Finished { place: Place::Processes, writers, engine, measured }
    }

    #[test]
    fn ratios_are_to_stock_sqlite_with_as_many_writers() {
        let all = [
            finished(Engine::Stock, 1, 9_000.0, 0),
            finished(Engine::Stock, 10, 10_000.0, 0),
            finished(Engine::Concurrent, 10, 45_000.0, 0),
        ];
        assert!(last(&all[..2]).trim_start().starts_with("10 "), "{}", last(&all[..2]));
        let last = last(&all);
        assert!(last.trim_start().starts_with("Plait, BEGIN CONCURRENT"), "{last}");
        assert!(last.contains(" 4.5x "), "{last}");
    }

    #[test]
    fn a_ratio_says_how_much_slower_or_faster() {
        let ratios = [0.004, 0.9, 1.0, 31.27].map(ratio);
        assert_eq!(ratios, ["1/250", "0.90x", "1.0x", "31.3x"]);
    }

    #[test]
    fn failures_are_a_share_of_all_transactions_and_one_is_not_none() {
        let share = |failed| percent(finished(Engine::Deferred, 1, 1.0, failed).failed_percent());
        assert_eq!([0, 2, 9_000].map(share), ["0 %", "0.2 %", "90.0 %"]);
        assert_eq!([0.001, 99.99, 100.0].map(percent), ["<0.1 %", ">99.9 %", "100.0 %"]);
    }

    #[test]
    fn even_large_numbers_fit_100_columns() {
        let one = [finished(Engine::Stock, 10_000, 1_234_567.0, 999_999)];
        for line in [head(), last(&one)] {
            assert!(line.chars().count() <= 98, "{} columns: {line}", line.chars().count());
        }
    }
}
