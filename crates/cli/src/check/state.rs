//! What was found beside and in the database file, as lines.

use std::os::unix::fs::MetadataExt;
use std::path::{Display, Path};

use super::report::{Line, Verdict};
use crate::failure;
use crate::follows::Replica;
use crate::inspect::Inspection;
use crate::inspect::astray::Astray;
use crate::inspect::log::Log;
use crate::inspect::memory::Memory;
use crate::inspect::outlook::{Advice, Instead, Outlook};
use crate::inspect::pairing::Pairing;
use crate::quantity::{bytes, count, of};

/// What a line about a replica is about.
pub const REPLICA: &str = "replica";

/// All lines but those about the content.
pub fn lines(state: &Inspection, astray: &[Astray]) -> Vec<Line> {
    let mut lines =
        vec![mode(state), base(state), wal(state), log(state), memory(state), opening(state)];
    lines.extend(replica(state));
    lines.extend(astray.iter().map(gone));
    lines.extend(state.spare_strangers.iter().map(|s| Line::new("beside it", Verdict::Notice, s)));
    lines
}

/// A replica, which can only be read.
fn replica(state: &Inspection) -> Option<Line> {
    let replica = Replica::of(&state.path, state.header)?;
    let said = replica.said();
    Some(match replica.amiss(&state.path) {
        None => Line::fact(REPLICA, said),
        Some((what, _)) => Line::new(REPLICA, Verdict::Notice, format!("{said}; {what}")),
    })
}

/// A file that was removed or replaced beside living programs.
fn gone(astray: &Astray) -> Line {
    let then = match astray.suffix {
        "-plait" => {
            "nothing more is committed; what was committed is in shared memory, so do not restart the machine before all programs have \
             closed the database and it has been opened once"
        }
        "-wal" => {
            "commits that only it has are lost if these programs are killed; let them close the database, which brings those into the file, \
             then open it again"
        }
        _ => {
            "nobody else can open the database beside these programs; close all of them, then open it again"
        }
    };
    let what = if astray.is_replaced { "replaced" } else { "removed or renamed" };
    let text = format!(
        "{} was {what} while {} had the database open: {then}",
        astray.path.display(),
        crate::status::people(&astray.pids)
    );
    Line::new("files", Verdict::Damage, text)
}

fn mode(state: &Inspection) -> Line {
    let h = state.header;
    let versions = format!("bytes 18 and 19 are {} and {}", h.write_version, h.read_version);
    let text = match (h.is_concurrent(), h.is_fenced()) {
        (true, fenced) => format!(
            "concurrent, {}: {versions}, salt {:08x}, merged through generation {}",
            match fenced {
                true => "fenced against other SQLite libraries",
                false if h.is_resting_replica() => {
                    "at rest, and read-only for other SQLite libraries"
                }
                false => "at rest",
            },
            h.salt,
            h.generation
        ),
        (false, _) => format!("{}: {versions}, salt {:08x}", h.mode(), h.salt),
    };
    if h.write_version > 2 && !h.is_fenced() && !h.is_resting_replica() {
        return Line::new(
            "mode",
            Verdict::Damage,
            format!("{text}; with that in byte 18 nobody may write to it"),
        );
    }
    Line::fact("mode", text)
}

fn base(state: &Inspection) -> Line {
    let (h, size) = (state.header, state.base.bytes);
    if state.base.is_empty() {
        return Line::fact("file", "empty");
    }
    let text = format!(
        "{}: {} of {} bytes",
        bytes(size),
        of(u64::from(h.pages), "page", "pages"),
        count(u64::from(h.page_bytes))
    );
    if state.is_cut() {
        return Line::new(
            "file",
            Verdict::Damage,
            format!("{text}, but the file is shorter or longer than that"),
        );
    }
    Line::fact("file", text)
}

fn wal(state: &Inspection) -> Line {
    let Some(wal) = &state.wal else { return Line::fact("WAL", "none") };
    let text = format!(
        "{}: {} in {}",
        bytes(wal.bytes),
        of(wal.frames, "page", "pages"),
        of(wal.commits, "commit", "commits")
    );
    match &state.pairing {
        Pairing::Suspect(why) if is_applied(state) => Line::new(
            "WAL",
            Verdict::Notice,
            format!("{text}; it may be that of another database file: {why}; opening applies it"),
        ),
        _ => Line::fact("WAL", text),
    }
}

/// Nothing but SQLite itself, which asks nothing, decides whether the WAL counts.
fn is_applied(state: &Inspection) -> bool {
    matches!(state.outlook(), Outlook::Ordinary | Outlook::Starts { .. })
}

fn log(state: &Inspection) -> Line {
    match &state.log {
        Log::Absent => Line::fact("log", "none"),
        Log::InUse => Line::fact("log", "in use, not read"),
        Log::Sound(s) => {
            let range = if s.frames == 0 {
                "nothing that the file lacks".to_owned()
            } else {
                let (first, last) = s.generations;
                let which = if first == last {
                    format!("generation {first}")
                } else {
                    format!("generations {first} to {last}")
                };
                format!(
                    "{} with {} ({}, {which}) that the file lacks",
                    of(s.frames, "commit", "commits"),
                    of(s.ops, "change", "changes"),
                    bytes(s.bytes)
                )
            };
            let tail = if s.torn_tail {
                "; behind them remains of commits that were never acknowledged"
            } else {
                ""
            };
            let slots = of(u64::from(s.slots), "segment", "segments");
            Line::fact("log", format!("sound: {range}{tail}; {slots}"))
        }
        Log::Foreign { has_frames: false, text } => {
            Line::new("log", Verdict::Notice, format!("{text}; it holds nothing"))
        }
        Log::Foreign { text, .. } if matches!(state.outlook(), Outlook::SetsAside { .. }) => {
            Line::new("log", Verdict::Notice, text.clone())
        }
        Log::Foreign { text, .. } | Log::Ahead(text) | Log::Damaged(text) => {
            Line::new("log", Verdict::Damage, text.clone())
        }
    }
}

fn memory(state: &Inspection) -> Line {
    let Some(memory) = &state.memory else { return Line::fact("shared memory", "none") };
    if memory.in_use {
        return used(memory);
    }
    match (&memory.distrust, memory.poisoned) {
        (Some(why), _) if memory.salt == state.header.salt && memory.unwritten_bytes > 0 => {
            let rest = bytes(memory.unwritten_bytes);
            let text =
                format!("counts for nothing, but for {rest} that may continue the log: {why}");
            Line::fact("shared memory", text)
        }
        (Some(why), _) => Line::fact("shared memory", format!("counts for nothing: {why}")),
        (None, _) if matches!(state.outlook(), Outlook::Restores(Instead::Copy)) => Line::new(
            "shared memory",
            Verdict::Notice,
            "left by processes that died, with a log of which the file beside the database is a copy",
        ),
        (None, Some(errno)) if matches!(state.outlook(), Outlook::Restores(Instead::Failed)) => {
            Line::new(
                "shared memory",
                Verdict::Damage,
                format!(
                    "holds commits that its log may lack, since a write or sync of that has failed ({}): do not restart the \
                     machine before the database has been opened once",
                    failure::said(&std::io::Error::from_raw_os_error(errno))
                ),
            )
        }
        (None, _) if matches!(state.outlook(), Outlook::Restores(_)) => Line::new(
            "shared memory",
            Verdict::Damage,
            if memory.has_unmerged(state.header.generation) {
                "alone holds commits whose log was removed or replaced: do not restart the machine before the database has \
                 been opened once"
            } else {
                "holds no commit that the file lacks, but its log was removed or replaced"
            },
        ),
        (None, Some(errno)) => Line::new(
            "shared memory",
            Verdict::Notice,
            match errno {
                0 => {
                    "stopped after an error inside the library: only what is on disk counts".into()
                }
                errno => format!(
                    "stopped after a failed sync of the WAL ({}): only what is on disk counts",
                    failure::said(&std::io::Error::from_raw_os_error(errno))
                ),
            },
        ),
        (None, None) if memory.unwritten_bytes > 0 => Line::new(
            "shared memory",
            Verdict::Notice,
            format!(
                "holds {} of commits that are not in the log file yet: do not restart the machine before the database \
                 has been opened once",
                bytes(memory.unwritten_bytes)
            ),
        ),
        (None, None) => {
            Line::fact("shared memory", "left by processes that died, and good to go on with")
        }
    }
}

fn used(memory: &Memory) -> Line {
    let people = crate::status::people(&memory.alive);
    match memory.poisoned {
        None => Line::fact("shared memory", format!("in use by {people}")),
        Some(errno) => Line::new(
            "shared memory",
            Verdict::Damage,
            format!("in use by {people}, and stopped {}", stopped(errno, memory.is_lost)),
        ),
    }
}

/// Why no transaction is done any more, and what helps.
fn stopped(errno: i32, is_lost: bool) -> String {
    let why = match errno {
        _ if is_lost => "since its log was removed, renamed, replaced or cut short".to_owned(),
        0 => "after an error inside the library".to_owned(),
        errno => format!(
            "after a failed write or sync ({})",
            failure::said(&std::io::Error::from_raw_os_error(errno))
        ),
    };
    format!(
        "{why}: every transaction fails; close all programs that use the database, and open it once before the machine is restarted"
    )
}

fn opening(state: &Inspection) -> Line {
    let shown = state.path.display();
    if let Some(lost) = state.lost_by_opening() {
        let text = format!(
            "makes a new, empty database, since the file is empty{lost}; before anything opens it put the database file back, or copy \
             what is beside it to another place"
        );
        return Line::new("opening", Verdict::Damage, text);
    }
    let (verdict, text) = match state.outlook() {
        Outlook::Ordinary if state.has_journal => {
            (Verdict::Notice, "SQLite will roll back an unfinished transaction first".to_owned())
        }
        Outlook::Ordinary => (Verdict::Good, "as an ordinary SQLite database".to_owned()),
        Outlook::Joins(n) => {
            (Verdict::Good, format!("joins {}", of(n as u64, "process", "processes")))
        }
        Outlook::GoesOn => {
            (Verdict::Notice, "goes on where killed programs stopped; no commit is lost".to_owned())
        }
        Outlook::Restores(instead) => restores(shown, instead),
        Outlook::Starts { .. } if let Some(commits) = state.left_in_wal() => (
            Verdict::Notice,
            format!(
                "brings {} of the WAL into the file, which killed programs have left; no commit is lost",
                of(commits, "commit", "commits")
            ),
        ),
        Outlook::Starts { stale_log } => {
            let also = if stale_log { ", and removes a log that is no longer needed" } else { "" };
            (Verdict::Good, format!("starts a new session; there is nothing to recover{also}"))
        }
        Outlook::Mixes { why } => (
            Verdict::Damage,
            format!(
                "mixes the file with a WAL that belongs to another database file: {why}; put the right one of them back before anything opens it, \
                 or use the file alone with `plait recover {shown} --accept-base` (it asks; --yes answers), which keeps the WAL under another name"
            ),
        ),
        Outlook::SetsAside { why } => (
            Verdict::Notice,
            format!(
                "starts a new session with the file as it is, and gives what it does without another name first, {shown}-plait-given-up-1 or the \
                 like: {why}; if that is what you want, put back the database file that it belongs to"
            ),
        ),
        Outlook::Recovers { frames } => (
            Verdict::Notice,
            format!(
                "merges {} from the log into the file first; no commit is lost",
                of(frames, "commit", "commits")
            ),
        ),
        Outlook::Refuses { why, advice } => {
            let is_sound = matches!(advice, Advice::SameVersion);
            let verdict = if is_sound { Verdict::Notice } else { Verdict::Damage };
            (verdict, format!("fails: {why}; {}", what_to_do(state, advice)))
        }
    };
    Line::new("opening", verdict, text)
}

/// What shared memory holds is brought into the file.
fn restores(shown: Display<'_>, instead: Instead) -> (Verdict, String) {
    match instead {
        Instead::Copy => (
            Verdict::Notice,
            "brings what shared memory holds into the file first, since its log is a copy; no commit is lost".to_owned(),
        ),
        Instead::Failed => (
            Verdict::Damage,
            format!(
                "brings what shared memory holds into the file first, since its log has failed; do it now: `plait recover {shown}`"
            ),
        ),
        Instead::Nothing => (
            Verdict::Damage,
            format!(
                "brings what shared memory holds into the file, since the log is not there; do it now: `plait recover {shown}`"
            ),
        ),
        Instead::InTheWay(why) => (
            Verdict::Damage,
            format!(
                "brings what shared memory holds into the file, since the log is not there, and then fails: {why}; put that file away, \
                 and open the database, or run `plait recover {shown}`, before the machine is restarted"
            ),
        ),
    }
}

/// Side files go by the name, so what a file lacks may stand beside its other name.
const OTHER_NAME: &str = "the file has another name (a hard link): if programs use it by that one, nothing is lost, and this name is to be \
                          removed; else ";

fn has_other_name(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.nlink() > 1)
}

/// What helps.
pub fn what_to_do(state: &Inspection, advice: Advice) -> String {
    match advice {
        Advice::CloseOthers => "close all programs that use it".to_owned(),
        Advice::RestoreOrAccept if state.base.is_empty() => "put the database file back".to_owned(),
        Advice::RestoreOrAccept => format!(
            "{}put the right file back, or accept the database file as it is with `plait recover {} --accept-base` (it asks; --yes answers)",
            if has_other_name(&state.path) { OTHER_NAME } else { "" },
            state.path.display()
        ),
        Advice::OtherVersion => "use the version of the program that wrote it".to_owned(),
        Advice::SameVersion => "use theirs, or close them first".to_owned(),
        Advice::RecoverOrGiveUp => {
            let shown = state.path.display();
            format!(
                "run `plait recover {shown}` of that version, or give these commits up: remove {shown}-plait-shm alone, while no program has \
                 the database open"
            )
        }
    }
}
