//! Cells of one-row commits by one worker.

use std::path::Path;

use plait_bench::engines::{Begin, Durability, Settings};
use plait_bench::studies::{Cell, Mode, Study, Tuning};
use plait_bench::workloads::{Workload, proof};

/// So many commits of an engine.
pub fn cell(id: String, engine: &str, commits: u64, medium: &Path) -> Cell {
    Cell {
        id,
        study: Study::Kv,
        mode: Mode::Modern,
        engine: engine.to_owned(),
        label: engine.to_owned(),
        settings: Settings::default(),
        durability: Durability::PowerCut,
        tuning: Tuning::Default,
        workload: Workload::Proof(proof::Load {
            workers: 1,
            commits_each: commits,
            begin: Begin::Immediate,
        }),
        medium: medium.to_owned(),
    }
}
