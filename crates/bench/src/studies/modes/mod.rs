//! Study B, `bench modes`: journal mode by synchronous, ten threads that select and update.
//!
//! | module | what |
//! |---|---|
//! | [`historical`] | the published settings and sizes, with [`published`] figures beside |
//! | [`modern`] | all journal modes, ways to begin, page sizes, hold times |

pub mod historical;
pub mod modern;
pub mod published;

use super::{Mode, Plan, Request};
use crate::engines::Durability;

/// Threads, as published.
const WORKERS: u32 = 10;

/// What the study measures and shows.
#[must_use]
pub fn plan(request: &Request) -> Plan {
    match request.mode {
        Mode::Historical => historical::plan(request),
        Mode::Modern => modern::plan(request),
    }
}

/// What a commit survives by the documentation of `PRAGMA synchronous`.
fn durability(synchronous: &str) -> Durability {
    match synchronous {
        "full" | "extra" => Durability::PowerCut,
        _ => Durability::Process,
    }
}
