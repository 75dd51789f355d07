//! One thing that was found, and what mends it.

use std::fmt;

use crate::check::report::Verdict;
use crate::console::{BAD, GOOD, NOTICE, styled};

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How it is to be taken.
    pub verdict: Verdict,
    /// What it is about.
    pub about: &'static str,
    /// What was found.
    pub what: String,
    /// A command or what else mends it; empty where nothing has to be.
    pub advice: String,
}

impl Finding {
    /// Something is wrong.
    pub fn problem(
        about: &'static str,
        what: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        let (what, advice) = (what.into(), advice.into());
        Finding { verdict: Verdict::Damage, about, what, advice }
    }

    /// Something is worth knowing.
    pub fn note(
        about: &'static str,
        what: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        Finding { verdict: Verdict::Notice, ..Finding::problem(about, what, advice) }
    }

    /// A fact.
    pub fn fact(about: &'static str, what: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Good, ..Finding::problem(about, what, "") }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = format!("{:<14}", self.about);
        match self.verdict {
            Verdict::Good => write!(f, "  {about}{}", self.what)?,
            Verdict::Notice => write!(f, "  {about}{} {}", styled(NOTICE, "note:"), self.what)?,
            Verdict::Damage => write!(f, "  {about}{} {}", styled(BAD, "PROBLEM:"), self.what)?,
        }
        if self.advice.is_empty() {
            return Ok(());
        }
        write!(f, "\n  {:<14}{} {}", "", styled(GOOD, "try:"), self.advice)
    }
}
