//! `plait check`: whether a database, its log and its shared memory are sound, and what opening it will do.
//!
//! What a crash has left is not changed: where opening would change something (recovery, a rollback), the content is checked on a
//! private copy on which the same recovery runs. Elsewhere the database is opened, as by any reader. When others open, write or close
//! it meanwhile so that it is in another state than was seen, all of it is looked at again.

pub mod content;
pub mod report;
pub mod state;

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use plait_client::FULL;

use crate::console::{BAD, GOOD, HEADING, styled};
use crate::copy;
use crate::copy::scratch::{self, Scratch};
use crate::failure::{self, Result};
use crate::inspect::astray::{self, Astray};
use crate::inspect::log::Log;
use crate::inspect::moment::PAUSE;
use crate::inspect::outlook::{Advice, Instead, Outlook};
use crate::inspect::pairing::Pairing;
use crate::inspect::{self, Inspection};
use crate::quantity;
use crate::sqlite::{self, OpenFlags, SqlError};
use report::{Line, Verdict};

/// Arguments of `plait check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The database
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Look at headers, log and shared memory only, not at the content
    #[arg(long)]
    quick: bool,
}

/// Where the content can be looked at without changing anything.
enum Place {
    Here(OpenFlags),
    /// On a copy that is recovered.
    Copy,
    /// On a copy that does without its log.
    CopyOfBase,
    /// On a copy of the file alone.
    CopyOfFile,
    Nowhere(&'static str),
}

/// Checks a database. The verdict is the first line that is said.
pub fn run(args: &CheckArgs) -> Result<u8> {
    let start = Instant::now();
    let mut state = Inspection::of(&args.file)?;
    let lines = loop {
        let astray = astray::look(&state);
        let lines = state::lines(&state, &astray);
        if args.quick {
            break lines;
        }
        let (e, is_certain) = match content(&state, &astray) {
            Ok(Checked::Told(content)) => break [lines, content].concat(),
            Ok(Checked::Moved(refused)) => {
                let refused =
                    refused.map(|e| sqlite::failure(&e, "check the content of", &args.file));
                (refused.unwrap_or_else(|| inspect::unsettled(&args.file)), false)
            }
            Err(e) => (e, true),
        };
        if is_certain || start.elapsed() >= inspect::PATIENCE {
            anstream::println!(
                "{}: the content could not be checked",
                styled(HEADING, args.file.display())
            );
            told(&lines);
            return Err(e);
        }
        std::thread::sleep(PAUSE);
        state = Inspection::of(&args.file)?;
    };
    let (verdict, code) = verdict(&lines);
    anstream::println!("{}: {verdict}", styled(HEADING, args.file.display()));
    told(&lines);
    Ok(code)
}

/// What all findings come to, and the exit code.
fn verdict(lines: &[Line]) -> (String, u8) {
    let of = |verdict| lines.iter().filter(move |line| line.verdict == verdict);
    let mut damaged: Vec<_> = of(Verdict::Damage).map(|line| line.about).collect();
    damaged.dedup();
    if !damaged.is_empty() {
        let text = format!("damage found: {}", damaged.join(", "));
        return (styled(BAD, text), failure::FAILED);
    }
    let good = styled(GOOD, "no damage found");
    match of(Verdict::Notice).count() {
        0 => (good, failure::OK),
        n => (format!("{good}, {}", quantity::of(n as u64, "note", "notes")), failure::OK),
    }
}

fn told(lines: &[Line]) {
    for line in lines {
        anstream::println!("{line}");
    }
}

/// What came of checking the content.
enum Checked {
    Told(Vec<Line>),
    /// It is in another state than was seen, or who opens it is refused for now.
    Moved(Option<SqlError>),
}

fn place(state: &Inspection, astray: &[Astray]) -> Place {
    // Another WAL or WAL-index would come beside that of the programs.
    if astray.iter().any(|file| file.suffix != "-plait") {
        return Place::Nowhere("nobody else may open it until these programs have closed it");
    }
    match state.outlook() {
        Outlook::Ordinary if state.has_journal => Place::Copy,
        // SQLite removes the WAL of an empty file.
        Outlook::Ordinary if state.base.is_empty() && state.wal.is_some() => Place::Copy,
        Outlook::Mixes { .. } => Place::CopyOfFile,
        // Whoever closes it last would bring the WAL into the file, which may be that of another.
        Outlook::Ordinary | Outlook::Starts { .. } if state.pairing != Pairing::Fits => Place::Copy,
        Outlook::Ordinary | Outlook::Starts { stale_log: false }
            if !state.lone.is_open && copy::lacks_room(state) =>
        {
            Place::Copy
        }
        // A reader alone would leave a WAL behind that was not there.
        Outlook::Ordinary | Outlook::Starts { stale_log: false } if state.wal.is_none() => {
            Place::Here(OpenFlags::ReadWrite)
        }
        Outlook::Ordinary | Outlook::Starts { stale_log: false } => {
            Place::Here(OpenFlags::ReadOnly)
        }
        Outlook::Starts { stale_log: true }
        | Outlook::SetsAside { .. }
        | Outlook::Recovers { .. }
        | Outlook::Restores(Instead::Copy) => Place::Copy,
        Outlook::Joins(_) => Place::Here(OpenFlags::ReadWrite),
        Outlook::GoesOn if matches!(state.log, Log::Sound(_)) => Place::Copy,
        Outlook::GoesOn => {
            Place::Nowhere("it can only be checked once a program has opened it and gone on")
        }
        Outlook::Refuses { .. } if state.base.is_empty() => Place::Nowhere("the file is empty"),
        Outlook::Restores(_) | Outlook::Refuses { advice: Advice::RestoreOrAccept, .. } => {
            Place::CopyOfBase
        }
        Outlook::Refuses { .. } => Place::Nowhere("the database cannot be opened as it is"),
    }
}

fn content(state: &Inspection, astray: &[Astray]) -> Result<Checked> {
    match place(state, astray) {
        Place::Here(flags) => match content::check(&state.path, flags) {
            Ok(lines) => Ok(Checked::Told(lines)),
            Err(e) if e.is_damage() => {
                let line = Line::new("content", Verdict::Damage, e.said());
                Ok(Checked::Told(vec![line]))
            }
            Err(e) if e.is_of_others() && state.has_moved() => Ok(Checked::Moved(Some(e))),
            Err(e) if e.is_of_others() => {
                Err(sqlite::failure(&e, "check the content of", &state.path))
            }
            // Perhaps it may be read but not opened: SQLite writes beside a database even to read it.
            Err(e) => match on_a_copy(state, Without::Nothing) {
                Ok(Checked::Moved(None)) => Ok(Checked::Moved(Some(e))),
                other => other,
            },
        },
        Place::Copy => on_a_copy(state, Without::Nothing),
        Place::CopyOfBase => on_a_copy(state, Without::Log),
        Place::CopyOfFile => on_a_copy(state, Without::Everything),
        Place::Nowhere(why) => {
            let line = Line::new("content", Verdict::Notice, format!("not checked: {why}"));
            Ok(Checked::Told(vec![line]))
        }
    }
}

/// What a copy does without.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    /// As `plait recover --accept-base` would leave it.
    Log,
    /// All that stands beside the file: the same, where a WAL of another is there.
    Everything,
}

/// Checks a copy.
fn on_a_copy(state: &Inspection, without: Without) -> Result<Checked> {
    let copied = match without {
        Without::Everything => Scratch::copy(&state.path, &scratch::FILE_ALONE),
        Without::Nothing | Without::Log => Scratch::copy(&state.path, &scratch::ON_DISK),
    };
    if state.has_moved() {
        return Ok(Checked::Moved(None));
    }
    let scratch = copied?;
    let copy = scratch.database();
    let accepted = if without == Without::Log { sqlite::accept_base(&copy) } else { Ok(()) };
    let checked = accepted.and_then(|()| content::check(&copy, OpenFlags::ReadWrite));
    let missing = state.memory.as_ref().is_some_and(|m| m.is_trusted() && m.unwritten_bytes > 0);
    let without = match (without, missing) {
        (Without::Log, _) => {
            " without the log, as `plait recover --accept-base` would leave the database"
        }
        (Without::Everything, _) => {
            " of the file alone, as `plait recover --accept-base` would leave the database"
        }
        (Without::Nothing, true) => {
            " without what is only in shared memory; the database itself was not opened"
        }
        (Without::Nothing, false) => "; the database itself was not opened",
    };
    match checked {
        Ok(lines) => {
            let copied = Line::fact("content", format!("checked on a copy{without}"));
            Ok(Checked::Told([vec![copied], lines].concat()))
        }
        Err(e) if e.code == FULL => Err(sqlite::failure(&e, "check a copy of", &state.path)),
        Err(e) => {
            let text = format!("a copy cannot be opened: {}", e.said());
            Ok(Checked::Told(vec![Line::new("content", Verdict::Damage, text)]))
        }
    }
}
