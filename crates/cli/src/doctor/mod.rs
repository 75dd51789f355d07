//! `plait doctor`: what is wrong with a database and around it, in plain words, and the command that mends it.
//!
//! | module | concept |
//! |---|---|
//! | [`finding`] | one thing that was found |
//! | [`place`] | the file, its folder, the disk, the limits of this process |
//! | [`left`] | what commands and dead processes have left beside it |
//! | [`programs`] | who has it open, and by which copy of SQLite |
//!
//! What `plait check` says of the files it says here too, by the same code. The content is not looked at: that may take long.
//! Nothing is opened with SQLite, locked or changed.

mod finding;
mod left;
mod place;
mod programs;

use std::path::{Path, PathBuf};

use clap::Args;
use plait_engine::replica::is_marked;

use crate::check::report::Verdict;
use crate::check::state;
use crate::console::{BAD, GOOD, HEADING, styled};
use crate::failure::{self, Result, quoted};
use crate::follows::{self, Replica};
use crate::inspect::Inspection;
use crate::inspect::astray;
use crate::inspect::outlook::{Advice, Outlook};
use crate::quantity::of;
use finding::Finding;

/// Arguments of `plait doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// The database
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Looks, and says what is wrong first.
pub fn run(args: &DoctorArgs) -> Result<u8> {
    let state = Inspection::of(&args.file)?;
    let mut findings = of_files(&state, &args.file);
    findings.extend(place::look(&state, &args.file));
    findings.extend(left::look(&state));
    findings.extend(programs::look(&state, &args.file));
    // The worst first, and each kind in the order in which it was found.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
    let (verdict, code) = verdict(&findings);
    anstream::println!("{}: {verdict}", styled(HEADING, args.file.display()));
    for finding in &findings {
        anstream::println!("{finding}");
    }
    Ok(code)
}

fn verdict(findings: &[Finding]) -> (String, u8) {
    let count = |verdict| findings.iter().filter(|f| f.verdict == verdict).count() as u64;
    let notes = match count(Verdict::Notice) {
        0 => String::new(),
        n => format!(", {}", of(n, "note", "notes")),
    };
    match count(Verdict::Damage) {
        0 => (format!("{}{notes}", styled(GOOD, "nothing is wrong")), failure::OK),
        n => (format!("{}{notes}", styled(BAD, of(n, "problem", "problems"))), failure::FAILED),
    }
}

/// What a check says of the files.
fn of_files(state: &Inspection, shown: &Path) -> Vec<Finding> {
    let shown = quoted(shown);
    let is_left = matches!(
        state.outlook(),
        Outlook::GoesOn | Outlook::Recovers { .. } | Outlook::Restores(_)
    ) || state.left_in_wal().is_some();
    let is_used = matches!(
        state.outlook(),
        Outlook::Refuses { advice: Advice::CloseOthers | Advice::SameVersion, .. }
    );
    let needs_another =
        matches!(state.outlook(), Outlook::Refuses { advice: Advice::RecoverOrGiveUp, .. });
    let astray = astray::look(state);
    let lines = state::lines(state, &astray).into_iter();
    let found = lines.map(|line| {
        let advice = match (line.about, line.verdict) {
            (_, Verdict::Good) => String::new(),
            ("opening", Verdict::Damage) if matches!(state.outlook(), Outlook::Mixes { .. }) => {
                format!("plait restore BACKUP {shown}, which puts both aside")
            }
            ("WAL", _) => format!(
                "plait restore BACKUP {shown}, if a copy was put in the place of the file; nothing, if file and WAL were brought here together"
            ),
            (state::REPLICA, _) => Replica::of(&state.path, state.header)
                .and_then(|replica| replica.amiss(&state.path))
                .map_or_else(String::new, |(_, advice)| advice),
            ("mode", Verdict::Damage) => format!("plait restore BACKUP {shown}"),
            ("files", _) => format!("close these programs, then run `plait recover {shown}`"),
            ("shared memory", Verdict::Damage) if state.is_in_use() => {
                format!("close these programs, then run `plait recover {shown}`")
            }
            ("opening", _) if is_used => {
                "close the programs that have it open, which are named below".to_owned()
            }
            // It says so itself.
            ("opening", _) if needs_another => String::new(),
            ("opening", _) if is_left => format!("plait recover {shown}"),
            ("opening", Verdict::Damage) => format!("plait restore BACKUP {shown}"),
            _ => String::new(),
        };
        Finding { verdict: line.verdict, about: line.about, what: line.text, advice }
    });
    let mut findings: Vec<_> = found.collect();
    let is_sound = findings.iter().all(|finding| finding.verdict != Verdict::Damage);
    let is_ordinary = !state.header.is_concurrent() && matches!(state.outlook(), Outlook::Ordinary);
    if is_sound && is_ordinary && !follows::is_empty_replica(&state.path) {
        // Of a replica `plait enable` is refused.
        let command = if is_marked(&state.path) { "promote" } else { "enable" };
        findings.push(Finding::note(
            "mode",
            format!(
                "it is in journal mode {}, where one connection writes at a time",
                state.header.mode()
            ),
            format!("plait {command} {shown}"),
        ));
    }
    findings
}
