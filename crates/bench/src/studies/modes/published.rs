//! The figures of study B: a blog of April 2014, Python 3.2's sqlite3 module, 10,000 transactions by 10 threads.

use crate::studies::draft::category;
use crate::studies::{Metric, Published};

/// A row of the published table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// `WAL`, `DELETE` (the publication calls it normal), `:memory:` or `dict`.
    pub journal: &'static str,
    /// PRAGMA synchronous; nothing in memory.
    pub synchronous: &'static str,
    /// `HDD` (NTFS, Windows 7), `SSD` (ext4, Ubuntu); nothing in memory.
    pub disk: &'static str,
    /// Seconds for all transactions.
    pub seconds: f64,
    /// Transactions a second.
    pub per_second: f64,
}

const fn row(
    journal: &'static str,
    synchronous: &'static str,
    disk: &'static str,
    seconds: f64,
    per_second: f64,
) -> Row {
    Row { journal, synchronous, disk, seconds, per_second }
}

/// The table.
pub const ROWS: [Row; 12] = [
    row("WAL", "OFF", "HDD", 9.3, 1_075.0),
    row("WAL", "NORMAL", "HDD", 36.0, 277.0),
    row("DELETE", "OFF", "HDD", 13.0, 769.0),
    row("DELETE", "NORMAL", "HDD", 99.0, 101.0),
    row("DELETE", "FULL", "HDD", 128.0, 78.0),
    row("WAL", "OFF", "SSD", 1.8, 5_555.0),
    row("WAL", "NORMAL", "SSD", 6.5, 1_538.0),
    row("DELETE", "OFF", "SSD", 3.0, 3_333.0),
    row("DELETE", "NORMAL", "SSD", 69.0, 145.0),
    row("DELETE", "FULL", "SSD", 85.0, 118.0),
    row(":memory:", "", "", 0.1, 100_000.0),
    row("dict", "", "", 0.01, 1_000_000.0),
];

impl Row {
    /// Where it stands in a chart: `WAL OFF`.
    #[must_use]
    pub fn place(&self) -> String {
        format!("{} {}", self.journal, self.synchronous).trim_end().to_owned()
    }
}

/// The table as ghosts: a disk each, and what was in memory.
#[must_use]
pub fn ghosts(metric: Metric) -> Vec<Published> {
    let figure = |row: &Row| if metric == Metric::Seconds { row.seconds } else { row.per_second };
    let some = |label: &str, engine: &str, chosen: &dyn Fn(&Row) -> bool| Published {
        label: label.to_owned(),
        engine: engine.to_owned(),
        points: ROWS
            .iter()
            .filter(|row| chosen(row))
            .map(|row| (category(&row.place()), figure(row)))
            .collect(),
    };
    vec![
        some("2014, hard disk", "stock", &|row| row.disk == "HDD"),
        some("2014, SSD", "stock", &|row| row.disk == "SSD"),
        some("2014, in memory", "stock", &|row| row.journal == ":memory:"),
        some("2014, Python dict", "dict", &|row| row.journal == "dict"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table as it was published.
    const TEXT: &str = "\
        | WAL | OFF | HDD | 9.3 | 1075 |
        | WAL | NORMAL | HDD | 36 | 277 |
        | DELETE | OFF | HDD | 13 | 769 |
        | DELETE | NORMAL | HDD | 99 | 101 |
        | DELETE | FULL | HDD | 128 | 78 |
        | WAL | OFF | SSD | 1.8 | 5555 |
        | WAL | NORMAL | SSD | 6.5 | 1538 |
        | DELETE | OFF | SSD | 3.0 | 3333 |
        | DELETE | NORMAL | SSD | 69 | 145 |
        | DELETE | FULL | SSD | 85 | 118 |
        | :memory: | - | - | 0.1 | 100000 |
        | dict | - | - | 0.01 | 1000000 |";

    #[test]
    fn the_figures_are_those_of_the_publication() {
        let named = |field: &str| if field == "-" { String::new() } else { field.to_owned() };
        let lines: Vec<&str> = TEXT.lines().collect();
        assert_eq!(lines.len(), ROWS.len());
        for (line, row) in lines.iter().zip(ROWS) {
            let fields: Vec<&str> =
                line.trim().trim_matches('|').split('|').map(str::trim).collect();
            assert_eq!(named(fields[0]), row.journal);
            assert_eq!(named(fields[1]), row.synchronous);
            assert_eq!(named(fields[2]), row.disk);
            assert_eq!(fields[3].parse(), Ok(row.seconds), "{line}");
            assert_eq!(fields[4].parse(), Ok(row.per_second), "{line}");
        }
    }

    #[test]
    fn seconds_and_rates_are_of_the_same_ten_thousand_transactions() {
        for row in ROWS {
            let transactions = row.seconds * row.per_second;
            assert!((transactions - 10_000.0).abs() < 50.0, "{row:?}");
        }
    }

    #[test]
    fn every_row_has_its_ghost() {
        let points: usize = ghosts(Metric::PerSecond).iter().map(|g| g.points.len()).sum();
        assert_eq!(points, ROWS.len());
    }
}
