//! What the random suites have run, for a person and as a line of JSON.

use crate::paths;
use anyhow::Context as _;
use serde_json::{Value as Json, json};
use std::io::Write as _;
use std::path::Path;

/// How many cases of each kind a suite ran.
#[derive(Clone, Debug)]
pub struct Tally {
    /// The suite.
    pub suite: String,
    /// The first seed.
    pub seed: u64,
    /// How long it ran.
    pub seconds: f64,
    /// Kinds of cases, and how many of each.
    pub counts: Vec<(&'static str, u64)>,
}

impl Tally {
    /// Prints it, and appends it to a file if there is one.
    pub fn tell(&self, file: Option<&Path>) -> anyhow::Result<()> {
        println!("{}", self.text());
        let Some(path) = file else { return Ok(()) };
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
        let written = opened.and_then(|mut file| writeln!(file, "{}", self.json(&commit())));
        written.with_context(|| format!("append to {}", path.display()))
    }

    fn text(&self) -> String {
        let one = |(kind, n): &(&str, u64)| format!("{n} {kind} ({:.1}/s)", self.rate(*n));
        let all: Vec<String> = self.counts.iter().map(one).collect();
        format!("{} from seed {}: {}; all sound", self.suite, self.seed, all.join(", "))
    }

    fn rate(&self, n: u64) -> f64 {
        n as f64 / self.seconds.max(0.001)
    }

    fn json(&self, commit: &str) -> Json {
        let pairs = |value: &dyn Fn(u64) -> Json| -> serde_json::Map<String, Json> {
            self.counts.iter().map(|(kind, n)| (kind.replace(' ', "_"), value(*n))).collect()
        };
        json!({
            "suite": self.suite,
            "commit": commit,
            "seed": self.seed,
            "seconds": (self.seconds * 10.0).round() / 10.0,
            "counts": pairs(&|n| json!(n)),
            "per_second": pairs(&|n| json!((self.rate(n) * 10.0).round() / 10.0)),
        })
    }
}

/// Of the sources that lie here; with a `+` if they were changed since.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let mut command = std::process::Command::new("git");
        let output = command.arg("-C").arg(paths::repository()).args(arguments).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    };
    let head = git(&["rev-parse", "--short=12", "HEAD"]);
    let is_clean = git(&["status", "--porcelain"]).is_none_or(|text| text.is_empty());
    head.map_or("unknown".into(), |head| head + if is_clean { "" } else { "+" })
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    fn a_tally_says_how_many_of_each_and_how_fast() {
        let counts = vec![("states", 30), ("states opened", 15)];
        let tally = Tally { suite: "powercut".to_owned(), seed: 7, seconds: 10.0, counts };
        assert_eq!(
            tally.text(),
            "powercut from seed 7: 30 states (3.0/s), 15 states opened (1.5/s); all sound"
        );
        let line = tally.json("abc");
        assert_eq!(line["counts"]["states_opened"], 15);
        assert_eq!(line["per_second"]["states"], 3.0);
        assert_eq!(line["commit"], "abc");
    }
}
