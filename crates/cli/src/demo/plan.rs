//! What is measured: one trial per engine, number of writers and place.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Rows of the database.
pub const ROWS: u32 = 10_000;
/// Bytes of the value in each row.
pub const VALUE_BYTES: usize = 400;

/// How long a statement waits for others, as a careful program sets it.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// A library and a way to begin its transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Engine {
    /// Stock SQLite in WAL mode, in a program that was changed to BEGIN IMMEDIATE: what the others are compared with.
    Stock,
    /// Stock SQLite in WAL mode, in a program that says BEGIN, as most do.
    StockDeferred,
    /// Plait in the same program.
    Deferred,
    /// Plait in a program that says BEGIN IMMEDIATE.
    Immediate,
    /// Plait in a program that says BEGIN CONCURRENT and runs a refused transaction again.
    Concurrent,
}

impl Engine {
    /// Name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Stock => "SQLite WAL, BEGIN IMMEDIATE",
            Engine::StockDeferred => "SQLite WAL, BEGIN",
            Engine::Deferred => "Plait, BEGIN",
            Engine::Immediate => "Plait, BEGIN IMMEDIATE",
            Engine::Concurrent => "Plait, BEGIN CONCURRENT",
        }
    }

    /// How a transaction begins.
    pub fn begin(self) -> &'static str {
        match self {
            Engine::Stock | Engine::Immediate => "BEGIN IMMEDIATE",
            Engine::StockDeferred | Engine::Deferred => "BEGIN",
            Engine::Concurrent => "BEGIN CONCURRENT",
        }
    }

    /// Its `PRAGMA journal_mode`.
    pub fn journal_mode(self) -> &'static str {
        if self.is_stock() { "wal" } else { "concurrent" }
    }

    /// True for stock SQLite.
    pub fn is_stock(self) -> bool {
        matches!(self, Engine::Stock | Engine::StockDeferred)
    }

    /// True if the program runs a transaction again that met another one. The others report an error to their user.
    pub fn retries(self) -> bool {
        self == Engine::Concurrent
    }
}

/// Whether the writers are threads of one process or processes of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// Threads of one process, each with a connection of its own.
    Threads,
    /// Processes with one connection each.
    Processes,
}

impl Place {
    /// Both, in the order of the tables.
    pub const ALL: [Place; 2] = [Place::Processes, Place::Threads];

    /// What is measured here, in the order of the table. A program with threads is one that knows what it does:
    /// plain BEGIN is measured where web servers and job queues are, in processes.
    pub fn engines(self) -> &'static [Engine] {
        use Engine as E;
        match self {
            Place::Processes => {
                &[E::Stock, E::StockDeferred, E::Deferred, E::Immediate, E::Concurrent]
            }
            Place::Threads => &[E::Stock, E::Immediate, E::Concurrent],
        }
    }

    /// Name in a heading.
    pub fn name(self) -> &'static str {
        match self {
            Place::Threads => "threads",
            Place::Processes => "processes",
        }
    }
}

/// One trial, as the process that runs it is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// What is measured.
    pub engine: Engine,
    /// Where the writers are.
    pub place: Place,
    /// How many there are.
    pub writers: u32,
    /// How long they write.
    pub seconds: f64,
    /// What keys and values follow from.
    pub seed: u64,
    /// The library to load.
    pub library: PathBuf,
    /// The database to create.
    pub database: PathBuf,
}

/// What runs, in this order: the lines of the tables.
pub fn order(writers: &[u32]) -> Vec<(Place, u32, Engine)> {
    let cells = Place::ALL.iter().flat_map(|&place| writers.iter().map(move |&n| (place, n)));
    cells.flat_map(|(place, n)| place.engines().iter().map(move |&e| (place, n, e))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stock_sqlite_comes_first_in_every_case_for_the_others_to_be_compared_with() {
        let order = order(&[1, 10, 100]);
        assert_eq!(order.len(), 3 * 5 + 3 * 3);
        let mut cases = order.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1));
        assert!(cases.all(|case| case[0].2 == Engine::Stock), "{order:?}");
    }
}
