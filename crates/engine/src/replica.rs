//! The mark of a replica: a small text file beside a database, which says that it follows a primary.
//!
//! A follower applies what a primary has committed to its database, as commits of its own, and
//! keeps the mark true: it replaces it in one rename, behind each commit that the mark tells of.
//! docs/format.md has the lines. Whoever opens the database while the mark is there can only read
//! it (csrc/follows.c), whatever the mark holds.
//!
//! Tickets are timestamps, which go on from session to session (txn/tickets.rs), so a number tells
//! how far a replica is. A ticket below `first` is of a session before the one that the mark tells
//! of: what became of its commit is not known, as on the primary.
//!
//! Handles look for the mark when they open the file and when they join. One that was a member before the
//! mark came, or has come since it was deleted, finds none. So the session says it as well:
//!
//! | `Control::follows` | who commits | becomes |
//! |---|---|---|
//! | 0 (UNTOLD), in a new session | anybody, but for handles that have seen a mark | 1 when a follower has joined, under the writer's right |
//! | 1 (FOLLOWS) | connections of followers | 2 by `plait promote`, when it has removed the mark |
//! | 2 (PROMOTED) | as 0, and no follower | nothing else: the session ends with it |
//!
//! Invariants
//! - REPLICA-1 A mark that cannot be read, is damaged or of another version is an error with a
//!   sentence, never taken for a missing one.
//! - REPLICA-2 A wait for a ticket returns true only behind a mark that was read in this call and
//!   holds it: what is read afterwards has the commit.
//! - REPLICA-3 Behind `begin_following` (database/following.rs) no connection but a follower's commits. Whoever has the writer's
//!   right when the word is set was waited for, exclusive and prepared transactions among them; who
//!   takes it later looks at the word then, and a commit without it does in its critical section.
//! - REPLICA-4 The last line of a mark is a checksum of the others: no other `record` or `place` is taken
//!   for the follower's.
//! - REPLICA-5 Promotion is final. A follower that runs on, because its lock was deleted, commits no more in that
//!   session, and writes no mark: it looks at the word under the commit mutex for both. A promotion takes the writer's
//!   right (`follower::promote`): an exclusive transaction of a follower's, which looks at its beginning, is over then.
//! - REPLICA-6 A follower that may not be the only one any more commits no more: it is asked for that in the critical
//!   section of each of its commits, and when it has the right for an exclusive transaction. Another one, which
//!   begins later, waits for that right.
//!
//! Deliberately absent: writing it. Only the follower does.

use std::fs::symlink_metadata;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::fault;
use crate::storage::names::follows_path;
use crate::storage::side;
use crate::sync::clock::exact_unix_ms;

const FIRST_LINE: &str = "plait replica 1";
/// The word of the last line.
const SUM: &str = "sum ";
/// No mark is longer.
const BYTES_MAX: u64 = 1 << 16;
/// Between two looks of a wait, which become rarer.
const NAP: Duration = Duration::from_millis(10);
const NAP_MAX: Duration = Duration::from_millis(50);

/// Names and values.
type Rows<T> = Vec<(&'static str, T)>;

/// What a mark says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mark {
    /// Where the chain is that is followed.
    pub place: String,
    /// Its name, in hexadecimal digits.
    pub chain: String,
    /// The last record that is applied; 0: none, the database has nothing yet.
    pub record: u64,
    /// Of the primary's session.
    pub salt: u32,
    /// Timestamp of the first commit of that session that is known; 0: of none.
    pub first: u64,
    /// Timestamp of the last commit of that session that is applied; 0: of none.
    pub commit: u64,
    /// When the primary wrote that record, in milliseconds since 1970, by its clock.
    pub written_ms: u64,
    /// What keeps its follower from going on; empty: nothing.
    pub trouble: String,
    /// Since when, in milliseconds since 1970.
    pub trouble_since_ms: u64,
}

/// Returns whether the mark lies beside the database; `None` if it cannot be found out. One system
/// call.
pub fn look(base: &Path) -> Option<bool> {
    match symlink_metadata(follows_path(base)) {
        Ok(_) => Some(true),
        // A name that is too long has no mark.
        Err(e) => match e.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG) => Some(false),
            _ => None,
        },
    }
}

/// Returns true if the mark lies beside the database, or it cannot be found out.
pub fn is_marked(base: &Path) -> bool {
    look(base).unwrap_or(true)
}

/// Reads the mark beside the database; `None` if there is none.
///
/// # Errors
/// `CantOpen` with a sentence if it cannot be read, is damaged or of another version.
pub fn read(base: &Path) -> Result<Option<Mark>> {
    let path = follows_path(base);
    let refused = |why: String| {
        let (base, path) = (base.display(), path.display());
        Error::CantOpen(format!("{base} is a replica, and its mark {path} cannot be used: {why}"))
    };
    let file = match side::open(&path, false) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(refused(e.to_string())),
        Ok(file) => file,
    };
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes).map_err(|e| refused(e.to_string()))?;
    parse(&bytes).map(Some).map_err(|why| refused(why.into()))
}

/// Returns the lines of a mark with the checksum behind them.
pub fn with_sum(lines: &str) -> String {
    format!("{lines}{SUM}{:08x}\n", crc32c::crc32c(lines.as_bytes()))
}

/// Returns the lines of a mark before its checksum; `None` if that is not theirs.
pub fn sound(text: &str) -> Option<&str> {
    let at = text.strip_suffix('\n')?.rfind('\n')? + 1;
    let lines = &text[..at];
    (with_sum(lines) == text).then_some(lines)
}

fn parse(bytes: &[u8]) -> Result<Mark, &'static str> {
    const DAMAGED: &str = "it is damaged";
    let text = std::str::from_utf8(bytes).map_err(|_| DAMAGED)?;
    let mut lines = text.lines();
    match lines.next() {
        None => return Err("it is empty"),
        Some(FIRST_LINE) => {}
        Some(first) if first.starts_with("plait replica ") => {
            return Err("another version of Plait has written it");
        }
        Some(_) => return Err(DAMAGED),
    }
    let lines = sound(text).ok_or(DAMAGED)?.lines().skip(1);
    let mut mark = Mark::default();
    let (mut record, mut commit, mut written) = (None, None, None);
    for line in lines {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        match name {
            "place" => value.clone_into(&mut mark.place),
            "chain" => value.clone_into(&mut mark.chain),
            "trouble" => value.clone_into(&mut mark.trouble),
            "trouble_since" => mark.trouble_since_ms = value.parse().map_err(|_| DAMAGED)?,
            "record" | "salt" | "first" | "commit" | "written" => {
                let value: u64 = value.parse().map_err(|_| DAMAGED)?;
                match name {
                    "record" => record = Some(value),
                    "salt" => mark.salt = u32::try_from(value).map_err(|_| DAMAGED)?,
                    "first" => mark.first = value,
                    "commit" => commit = Some(value),
                    _ => written = Some(value),
                }
            }
            _ => {}
        }
    }
    match (record, commit, written) {
        (Some(record), Some(commit), Some(written_ms)) if !mark.place.is_empty() => {
            Ok(Mark { record, commit, written_ms, ..mark })
        }
        _ => Err(DAMAGED),
    }
}

/// What has told a handle that its database is a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The mark, when it was opened.
    ByMark,
    /// Page 1, at rest.
    AtRest,
    /// The session, when it was to write.
    BySession,
}

/// A path as one word of a command.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    shlex::try_quote(&text).map_or_else(|_| text.clone(), Into::into)
}

/// Returns why the database can only be read, and what to do.
pub fn refusal(base: &Path, told: Told) -> String {
    let (name, word) = (base.display(), quoted(base));
    let why = match (read(base), told) {
        (Ok(Some(mark)), _) => format!("{name} follows {}", mark.place),
        (Ok(None), Told::AtRest) => {
            return format!(
                "{name} is a copy of a replica, without the mark of its follower: `plait promote \
                 {word}` makes it a database of its own; if that was done, open it again"
            );
        }
        (Ok(None), Told::BySession) => {
            return format!(
                "{name} follows a primary, though its mark {} was removed: write on the primary, or \
                 `plait promote {word}`",
                follows_path(base).display()
            );
        }
        (Ok(None), Told::ByMark) => {
            return format!(
                "{name} followed a primary when this connection opened it: open it again"
            );
        }
        (Err(e), _) => e.to_string(),
    };
    format!("{why}: write on the primary, or `plait promote {word}`")
}

/// Returns name and value of what `plait_status` tells of a replica; nothing of another database.
/// `is_followed`: its session says that it is one.
pub fn status(base: &Path, is_followed: bool) -> (Rows<i64>, Rows<String>) {
    let mark = match read(base) {
        Ok(None) if is_followed => {
            return (Vec::new(), vec![("replica_error", refusal(base, Told::BySession))]);
        }
        Ok(None) => return Default::default(),
        Err(e) => return (Vec::new(), vec![("replica_error", e.to_string())]),
        Ok(Some(mark)) => mark,
    };
    let mut texts = vec![("replica_place", mark.place)];
    let mut trouble = Vec::new();
    if !mark.trouble.is_empty() {
        texts.push(("replica_error", mark.trouble));
        trouble.push(("replica_error_since_ms", mark.trouble_since_ms as i64));
    }
    if mark.record == 0 {
        return ([vec![("replica_record", 0)], trouble].concat(), texts);
    }
    let lag_ms = exact_unix_ms().saturating_sub(mark.written_ms);
    let numbers = vec![
        ("replica_record", mark.record as i64),
        ("replica_commit", mark.commit as i64),
        ("replica_written_ms", mark.written_ms as i64),
        ("replica_lag_ms", lag_ms as i64),
    ];
    ([numbers, trouble].concat(), texts)
}

fn no_longer(base: &Path) -> Error {
    Error::Misuse(format!("{} follows no primary any more: open it again", base.display()))
}

/// Returns the mark of a replica.
///
/// # Errors
/// Those of [`read`]; Misuse if the mark is gone.
pub fn of(base: &Path) -> Result<Mark> {
    read(base)?.ok_or_else(|| no_longer(base))
}

/// Returns true when the primary's commit of `ticket` is applied, false if it is not after
/// `patience`; `None` waits as long as it takes.
///
/// # Errors
/// Misuse for a ticket of an earlier session; Interrupted; those of [`of`].
pub fn wait(
    base: &Path,
    ticket: u64,
    patience: Option<Duration>,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<bool> {
    let until = patience.and_then(|patience| Instant::now().checked_add(patience));
    let mut nap = NAP;
    loop {
        let mark = of(base)?;
        if ticket == 0 {
            return Ok(true);
        }
        if ticket < mark.first {
            return Err(Error::Misuse(format!(
                "nobody knows here what became of ticket {ticket}: it is older than what is known of the session of the primary \
                 that {} follows, from an earlier session, from before its sidecar has started, or of another database: look \
                 in the data whether its commit is there",
                base.display()
            )));
        }
        if ticket <= mark.commit || fault::is_planted("replicas.waited_early") {
            return Ok(true);
        }
        let left = until.map_or(nap, |until| until.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Ok(false);
        }
        if interrupted() {
            return Err(Error::Interrupted);
        }
        std::thread::sleep(nap.min(left));
        nap = (nap * 2).min(NAP_MAX);
    }
}

#[cfg(test)]
mod tests;
