//! What counts as defaults and what as tuned: one rule for all engines and studies, ours among them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engines::Settings;

/// Defaults and best documented tuning are separate rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Tuning {
    /// As the engine comes, but for what the study itself sets.
    Default,
    /// As its documentation advises for this work.
    Tuned,
}

/// What says which promise a commit makes, where the data is, and what the study itself compares: none of it is tuning.
/// LMDB's map size is here since its own 10 MiB hold nothing.
const NO_TUNING: [&str; 19] = [
    "journal_mode",
    "synchronous",
    "synchronous_commit",
    "default_transaction_isolation",
    "sync",
    "durability",
    "persist",
    "wal",
    "environment",
    "locking_mode",
    "busy",
    "busy_timeout",
    "mutex",
    "file",
    "form",
    "layout",
    "page_size",
    "int_keys",
    "map_size",
];

impl Tuning {
    /// Defaults if nothing is set but the durability of a commit, the journal that goes with it, the place of the data
    /// and what a study compares; whatever else is set (caches, maps, buffers, filters) makes it tuned.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let is_tuning = |name: &str| !NO_TUNING.contains(&name);
        if settings.iter().any(|(name, _)| is_tuning(name)) { Self::Tuned } else { Self::Default }
    }

    /// `defaults`, `tuned`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Default => "defaults",
            Self::Tuned => "tuned",
        }
    }
}
