//! What is measured: one trial per engine, number of writers and place.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Rows of the database.
pub const ROWS: u32 = 10_000;
/// Bytes of the value in each row.
pub const VALUE_BYTES: usize = 400;

/// A library and a way to begin its transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Engine {
    /// Stock SQLite in WAL mode.
    Stock,
    /// Plait as an unmodified program uses it.
    Immediate,
    /// Plait as a program uses it that knows of it.
    Concurrent,
}

impl Engine {
    /// All, in the order of the table.
    pub const ALL: [Engine; 3] = [Engine::Stock, Engine::Immediate, Engine::Concurrent];

    /// Name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Stock => "SQLite WAL, BEGIN IMMEDIATE",
            Engine::Immediate => "Plait, BEGIN IMMEDIATE",
            Engine::Concurrent => "Plait, BEGIN CONCURRENT",
        }
    }

    /// How a transaction begins.
    pub fn begin(self) -> &'static str {
        match self {
            Engine::Stock | Engine::Immediate => "BEGIN IMMEDIATE",
            Engine::Concurrent => "BEGIN CONCURRENT",
        }
    }

    /// Its `PRAGMA journal_mode`.
    pub fn journal_mode(self) -> &'static str {
        match self {
            Engine::Stock => "wal",
            Engine::Immediate | Engine::Concurrent => "concurrent",
        }
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
    pub const ALL: [Place; 2] = [Place::Threads, Place::Processes];

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

/// Engines, places and numbers of writers in the order in which they run: the engines take turns, and which of
/// them goes first changes.
pub fn order(writers: &[u32]) -> Vec<(Place, u32, Engine)> {
    let cells = Place::ALL.iter().flat_map(|&place| writers.iter().map(move |&n| (place, n)));
    cells
        .enumerate()
        .flat_map(|(turn, (place, n))| {
            let mut engines = Engine::ALL;
            engines.rotate_left(turn % Engine::ALL.len());
            engines.map(|engine| (place, n, engine))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_meets_every_case_once_and_none_always_goes_first() {
        let order = order(&[1, 10, 100]);
        assert_eq!(order.len(), 2 * 3 * 3);
        for engine in Engine::ALL {
            assert_eq!(order.iter().filter(|trial| trial.2 == engine).count(), 6);
            assert_eq!(order.iter().step_by(3).filter(|trial| trial.2 == engine).count(), 2);
        }
    }
}
