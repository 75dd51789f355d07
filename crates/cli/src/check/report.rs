//! The lines of a check.

use std::fmt;

use crate::console::{BAD, GOOD, NOTICE, styled};

/// How a finding is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be, or merely a fact.
    Good,
    /// Worth knowing.
    Notice,
    /// Something is damaged or missing.
    Damage,
}

/// One finding.
#[derive(Clone, Debug)]
pub struct Line {
    /// What it is about.
    pub about: &'static str,
    /// How it is to be taken.
    pub verdict: Verdict,
    /// The finding.
    pub text: String,
}

impl Line {
    /// A finding.
    pub fn new(about: &'static str, verdict: Verdict, text: impl Into<String>) -> Line {
        Line { about, verdict, text: text.into() }
    }

    /// A fact.
    pub fn fact(about: &'static str, text: impl Into<String>) -> Line {
        Line::new(about, Verdict::Good, text)
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = format!("{:<14}", self.about);
        match self.verdict {
            Verdict::Good if self.text == "ok" => write!(f, "  {about}{}", styled(GOOD, "ok")),
            Verdict::Good => write!(f, "  {about}{}", self.text),
            Verdict::Notice => write!(f, "  {about}{} {}", styled(NOTICE, "note:"), self.text),
            Verdict::Damage => write!(f, "  {about}{} {}", styled(BAD, "DAMAGE:"), self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_worse_than_a_notice_and_a_notice_than_nothing() {
        assert!(Verdict::Damage > Verdict::Notice && Verdict::Notice > Verdict::Good);
    }

    #[test]
    fn a_line_says_damage_without_colours_too() {
        let line = Line::new("log", Verdict::Damage, "torn").to_string();
        assert_eq!(anstream::adapter::strip_str(&line).to_string(), "  log           DAMAGE: torn");
    }
}
