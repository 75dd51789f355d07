//! No durability without proof: commits of one row each, traced, and their sync calls counted.
//!
//! At most as many commits as there are workers can share one sync call, so fewer than commits / workers of them show
//! that some commit was acknowledged before the disk had it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::trace::Traced;
use super::trial::Answer;
use crate::engines::{Begin, Durability, Settings};
use crate::studies::Cell;
use crate::workloads::{Workload, proof};

/// What one traced pass showed of an engine in settings that claim to survive a power cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// Name of the engine in the catalogue.
    pub engine: String,
    /// Its settings.
    pub settings: Settings,
    /// How the transactions began.
    pub begin: Begin,
    /// Threads that committed at the same time.
    pub workers: u32,
    /// Commits of all of them.
    pub commits: u64,
    /// Sync calls by name, as in [`Traced::syncs`](super::trace::Traced::syncs).
    pub syncs: BTreeMap<String, u64>,
    /// System calls of all kinds.
    pub system_calls: u64,
    /// System calls for each commit.
    pub system_calls_per_commit: f64,
    /// Whether there were at least commits / workers sync calls.
    pub proven: bool,
    /// What was counted and what that means, in words; the reason where nothing could be counted.
    pub why: String,
}

/// Settings of an engine that a plan claims to survive a power cut.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Name of the engine in the catalogue.
    pub engine: String,
    /// Its settings.
    pub settings: Settings,
    /// A medium on which the plan uses them.
    pub medium: PathBuf,
}

/// The claims of some cells, each once.
#[must_use]
pub fn claims(cells: &[Cell]) -> Vec<Claim> {
    let mut claims: Vec<Claim> = Vec::new();
    for cell in cells.iter().filter(|cell| cell.durability == Durability::PowerCut) {
        if !claims.iter().any(|c| c.engine == cell.engine && c.settings == cell.settings) {
            claims.push(Claim {
                engine: cell.engine.clone(),
                settings: cell.settings.clone(),
                medium: cell.medium.clone(),
            });
        }
    }
    claims
}

/// The passes in which a claim is put to the proof: alone, where no commit can share a sync call with another, and ten
/// at a time, beginning as engines with one writer do and as those with several do. Settings with which a connection
/// keeps all others out have the first pass only.
#[must_use]
pub fn passes(claim: &Claim, quick: bool) -> Vec<proof::Load> {
    let (alone, each_of_ten) = if quick { (20, 5) } else { (50, 20) };
    let pass = |workers, commits_each, begin| proof::Load { workers, commits_each, begin };
    let mut passes = vec![pass(1, alone, Begin::Immediate)];
    if claim.settings.get("locking_mode").is_none_or(|mode| !mode.eq_ignore_ascii_case("exclusive"))
    {
        passes.push(pass(10, each_of_ten, Begin::Immediate));
        passes.push(pass(10, each_of_ten, Begin::Concurrent));
    }
    passes
}

/// The workload of a pass.
#[must_use]
pub fn workload(pass: &proof::Load) -> Workload {
    Workload::Proof(pass.clone())
}

impl Proof {
    /// Judges a pass that was followed. None if the engine has no such pass: an engine without BEGIN CONCURRENT.
    #[must_use]
    pub fn of(claim: &Claim, pass: &proof::Load, answer: &Answer, traced: &Traced) -> Option<Self> {
        let why = match answer {
            Answer::Done(_) => None,
            Answer::NotApplicable { .. } if pass.begin == Begin::Concurrent => return None,
            Answer::NotApplicable { why } => Some(format!("the proof does not apply: {why}")),
            Answer::Failed { why } => Some(format!("the trial of the proof failed: {why}")),
        };
        Some(match why {
            Some(why) => Self::refused(claim, pass, &why),
            None => Self::judged(claim, pass, traced),
        })
    }

    /// What stands where nothing could be counted.
    #[must_use]
    pub fn refused(claim: &Claim, pass: &proof::Load, why: &str) -> Self {
        Self {
            engine: claim.engine.clone(),
            settings: claim.settings.clone(),
            begin: pass.begin,
            workers: pass.workers,
            commits: 0,
            syncs: BTreeMap::new(),
            system_calls: 0,
            system_calls_per_commit: 0.0,
            proven: false,
            why: why.to_owned(),
        }
    }

    fn judged(claim: &Claim, pass: &proof::Load, traced: &Traced) -> Self {
        let commits = traced.operations;
        let needed = commits.div_ceil(u64::from(pass.workers));
        let syncs: u64 = traced.syncs.values().sum();
        let proven = commits > 0 && syncs >= needed;
        let counted = if traced.syncs.is_empty() {
            "no sync call".to_owned()
        } else {
            let each: Vec<String> =
                traced.syncs.iter().map(|(name, calls)| format!("{calls} {name}")).collect();
            each.join(", ")
        };
        let verdict = if proven { "which is enough" } else { "which is too few" };
        let mut why = format!(
            "{counted} in {commits} commits of {} at a time, {verdict}: at least {needed} are needed",
            pass.workers
        );
        for note in &traced.notes {
            why.push_str("; ");
            why.push_str(note);
        }
        Self {
            commits,
            syncs: traced.syncs.clone(),
            system_calls: traced.system_calls,
            system_calls_per_commit: traced.per_operation().unwrap_or(0.0),
            proven,
            ..Self::refused(claim, pass, &why)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> Claim {
        Claim { engine: "e".to_owned(), settings: Settings::default(), medium: "/".into() }
    }

    fn judge(workers: u32, commits: u64, syncs: &[(&str, u64)]) -> Proof {
        let pass = proof::Load { workers, commits_each: 1, begin: Begin::Immediate };
        let traced = Traced {
            operations: commits,
            syncs: syncs.iter().map(|(name, calls)| ((*name).to_owned(), *calls)).collect(),
            ..Traced::default()
        };
        let answer = Answer::Done(Box::default());
        Proof::of(&claim(), &pass, &answer, &traced).unwrap()
    }

    #[test]
    fn one_worker_needs_a_sync_for_each_commit() {
        assert!(judge(1, 50, &[("fdatasync", 50)]).proven);
        assert!(!judge(1, 50, &[("fdatasync", 49)]).proven);
    }

    #[test]
    fn workers_may_share_a_sync() {
        assert!(judge(10, 201, &[("fsync", 20), ("pwrite64 (O_DSYNC)", 1)]).proven);
        assert!(!judge(10, 201, &[("fsync", 20)]).proven);
    }

    #[test]
    fn nothing_committed_proves_nothing() {
        assert!(!judge(1, 0, &[]).proven);
    }

    #[test]
    fn nobody_works_beside_a_connection_that_keeps_others_out() {
        let alone = Settings::default().with("locking_mode", "EXCLUSIVE");
        let passes = passes(&Claim { settings: alone, ..claim() }, true);
        assert!(passes.iter().all(|pass| pass.workers == 1), "{passes:?}");
    }

    #[test]
    fn an_engine_without_concurrent_transactions_has_no_such_pass() {
        let pass = proof::Load { workers: 10, commits_each: 1, begin: Begin::Concurrent };
        let answer = Answer::NotApplicable { why: "no such BEGIN".to_owned() };
        assert_eq!(Proof::of(&claim(), &pass, &answer, &Traced::default()), None);
        let immediate = proof::Load { begin: Begin::Immediate, ..pass };
        let proof = Proof::of(&claim(), &immediate, &answer, &Traced::default()).unwrap();
        assert!(!proof.proven);
    }
}
