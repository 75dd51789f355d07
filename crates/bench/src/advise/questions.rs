//! The questions, for those answers that were not given as options.

use std::io::{IsTerminal as _, Write as _};
use std::str::FromStr;

use anyhow::{Context as _, bail};

use super::Need;

/// Answers that were given as options.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Answers {
    /// Rows in the table
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    rows: Option<u64>,
    /// Bytes of a value
    #[arg(long, value_parser = clap::value_parser!(u32).range(8..=16_777_216))]
    value_bytes: Option<u32>,
    /// Writers at the same time
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=200))]
    writers: Option<u32>,
    /// Whether the writers are processes (yes) or threads of one (no)
    #[arg(long, value_name = "YES|NO")]
    processes: Option<YesNo>,
    /// Rows that a transaction reads for each one that it updates
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=1000))]
    reads: Option<u32>,
    /// Whether a commit must survive a power cut
    #[arg(long, value_name = "YES|NO")]
    survive_power_cut: Option<YesNo>,
}

/// An answer to a question that can be answered with yes or no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct YesNo(pub bool);

impl FromStr for YesNo {
    type Err = std::io::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_lowercase().as_str() {
            "y" | "yes" => Ok(Self(true)),
            "n" | "no" => Ok(Self(false)),
            _ => Err(std::io::Error::other("answer yes or no")),
        }
    }
}

/// Asks on the terminal for what was not given.
///
/// # Errors
/// If standard input is no terminal and an answer is missing: the options are named.
pub fn complete(answers: &Answers) -> anyhow::Result<Need> {
    let missing = answers.missing();
    let somebody = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !missing.is_empty() && !somebody {
        bail!("nobody is there to ask: give {} as well", missing.join(", "));
    }
    Ok(Need {
        rows: ask(answers.rows, "How many rows does the table have?", 100_000, |rows| *rows > 0)?,
        value_bytes: ask(answers.value_bytes, "How many bytes has a value?", 400, |b| {
            (8..=16_777_216).contains(b)
        })? as usize,
        writers: ask(answers.writers, "How many writers are there at the same time?", 10, |w| {
            (1..=200).contains(w)
        })?,
        processes: ask(
            answers.processes,
            "Are the writers processes (yes), or threads of one (no)?",
            YesNo(false),
            |_| true,
        )?
        .0,
        reads: ask(
            answers.reads,
            "How many rows does a transaction read for each one that it updates?",
            1,
            |r| *r <= 1000,
        )?,
        survive_power_cut: ask(
            answers.survive_power_cut,
            "Must a commit survive a power cut?",
            YesNo(true),
            |_| true,
        )?
        .0,
    })
}

impl Answers {
    /// Names of the options that were not given.
    fn missing(&self) -> Vec<&'static str> {
        let given = [
            ("--rows", self.rows.is_some()),
            ("--value-bytes", self.value_bytes.is_some()),
            ("--writers", self.writers.is_some()),
            ("--processes", self.processes.is_some()),
            ("--reads", self.reads.is_some()),
            ("--survive-power-cut", self.survive_power_cut.is_some()),
        ];
        given.into_iter().filter(|(_, given)| !given).map(|(name, _)| name).collect()
    }
}

impl std::fmt::Display for YesNo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0 { "yes" } else { "no" })
    }
}

/// What was given, or what the user types; an empty line means what stands in brackets.
fn ask<T: FromStr + std::fmt::Display>(
    given: Option<T>,
    question: &str,
    usual: T,
    valid: impl Fn(&T) -> bool,
) -> anyhow::Result<T> {
    if let Some(given) = given {
        return Ok(given);
    }
    loop {
        anstream::eprint!("{question} [{usual}] ");
        std::io::stderr().flush()?;
        let mut line = String::new();
        if std::io::stdin().read_line(&mut line).context("cannot read the answer")? == 0 {
            bail!("the questions were not answered");
        }
        let line = line.trim();
        if line.is_empty() {
            return Ok(usual);
        }
        match line.replace([',', '_'], "").parse() {
            Ok(answer) if valid(&answer) => return Ok(answer),
            _ => anstream::eprintln!("  {line:?} is no answer to that"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_answers_are_named_as_options() {
        let some = Answers { rows: Some(5), writers: Some(1), ..Answers::default() };
        assert_eq!(
            some.missing(),
            ["--value-bytes", "--processes", "--reads", "--survive-power-cut"]
        );
    }

    #[test]
    fn yes_and_no_are_read_in_any_case() {
        assert_eq!("Yes".parse::<YesNo>().unwrap(), YesNo(true));
        assert_eq!("n".parse::<YesNo>().unwrap(), YesNo(false));
        assert!("perhaps".parse::<YesNo>().is_err());
    }
}
