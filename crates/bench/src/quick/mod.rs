//! `plait bench quick`: Plait or SQLite, for so many writers, on one screen and within a minute.
//!
//! The [`plan`] is one small transaction with a few crews of writers, measured as every other plan
//! is. The [`verdict`] is drawn from its trials by the rule of the studies. The [`screen`] says it.
//!
//! Deliberately absent: other engines, other settings, other transactions. The studies have them.

pub mod plan;
pub mod screen;
pub mod verdict;

use anyhow::bail;

use crate::engines::catalogue::{Entry, Presence};

/// The two engines that are compared, of those that were chosen.
///
/// # Errors
/// Which of them is not here, and what helps.
pub fn both(engines: Vec<Entry>) -> anyhow::Result<Vec<Entry>> {
    let is_side = |entry: &Entry| plan::WAYS.iter().any(|way| way.engine == entry.name);
    let sides: Vec<Entry> = engines.into_iter().filter(is_side).collect();
    for way in plan::WAYS {
        match sides.iter().find(|entry| entry.name == way.engine).map(|entry| &entry.presence) {
            None => bail!("quick compares stock and plait, and {} was left out", way.engine),
            Some(Presence::Absent { why, install }) => {
                bail!("{} is not here: {why}; what helps: {install}", way.engine)
            }
            Some(Presence::Here { .. }) => {}
        }
    }
    Ok(sides)
}
