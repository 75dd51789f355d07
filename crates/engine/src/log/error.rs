//! Errors of the log, by what the caller can do about them.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::frame::BadFrame;
use crate::error::{Error, say_system};
use crate::ids::{Generation, Lsn};
use crate::sync::mutex::Identity;

/// Why a frame was not appended. Nothing happened; see [`Log::make_room`](super::Log::make_room).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendError {
    /// The ring has no room until more of it is written to the file.
    RingFull,
    /// The file needs this many prepared slots first.
    NeedsSlots(u32),
    /// The file needs room for this many stream bytes first, counted from its first slot.
    NeedsBytes(u64),
    /// This many bytes of the ring need disk space behind them first.
    NeedsRing(u64),
    /// The configured limit of the log would be exceeded.
    LimitReached,
    /// The frame is longer than a frame can be.
    TooLong,
    /// The log is poisoned with this errno (COMMIT-4).
    Poisoned(i32),
}

/// Why an operation on the log failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// There is no log file.
    #[error("the log {path} is missing")]
    Missing {
        /// The file that was looked for.
        path: PathBuf,
    },
    /// The file does not start as a log does.
    #[error("{path} is not a readable log: {why}")]
    NotALog {
        /// The file.
        path: PathBuf,
        /// What is wrong with its first page.
        why: String,
    },
    /// The file was written by a version with another format.
    #[error(
        "the log {path} has format version {version}, this version reads {}",
        super::file::FORMAT_VERSION
    )]
    UnknownVersion {
        /// The file.
        path: PathBuf,
        /// The version that it states.
        version: u32,
    },
    /// The log belongs to another database file (FILE-3).
    #[error(
        "the log {path} belongs to another database (salt {log_salt:08x}, the database has \
         {base_salt:08x}), or the -wal of this one was removed, emptied or replaced: put back the \
         -wal and -plait files that were next to the database last"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Salt of the log.
        log_salt: u32,
        /// Salt of the base.
        base_salt: u32,
        /// True if the log holds a frame. An empty log may be replaced without loss.
        has_frames: bool,
    },
    /// The base lacks what it had when the log was written (FILE-4).
    #[error("{}", say_older(.path, *.noted, *.base))]
    OlderBase {
        /// The log.
        path: PathBuf,
        /// The generation through which the base was complete, as the log notes it.
        noted: Generation,
        /// The generation through which the base is complete.
        base: Generation,
    },
    /// Bytes that had been on disk are damaged or gone (FILE-5).
    #[error("the log {path} is damaged at position {at}: {why}")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Stream position of the damage.
        at: Lsn,
        /// What is wrong and how it is known.
        why: String,
    },
    /// The log is shorter than it was when it was written (FILE-5).
    #[error(
        "the log {path} was cut short: it is {len_bytes} bytes long, and was at least {least_bytes} when it was written"
    )]
    CutShort {
        /// The file.
        path: PathBuf,
        /// Its length.
        len_bytes: u64,
        /// The least length that the log states.
        least_bytes: u64,
    },
    /// The configured limit is reached; nothing was written.
    #[error(
        "the log {path} has reached its limit of {limit_bytes} bytes; a reader or a stalled merge \
         keeps it from being reused; end long transactions and retry"
    )]
    Full {
        /// The file.
        path: PathBuf,
        /// The limit.
        limit_bytes: u64,
    },
    /// The disk is full. Nothing was lost, and the operation may be repeated when there is space.
    #[error(
        "no space left on the disk to extend the log {path}; committed data is safe, free some space and retry"
    )]
    NoSpace {
        /// The file.
        path: PathBuf,
    },
    /// The process that makes the file longer is stopped; nothing happened.
    #[error("the process that is extending the log makes no progress")]
    GrowerStalled {
        /// That process.
        who: Option<Identity>,
        /// How long the caller has waited.
        waited: Duration,
    },
    /// The caller was interrupted while it waited for that process; nothing happened.
    #[error("interrupted while waiting")]
    Interrupted,
    /// The process may not write files as long as the log may become.
    #[error(
        "the file size limit of this process (RLIMIT_FSIZE, {limit_bytes} bytes) is below the {needed_bytes} bytes that the log {path} may grow to; raise it"
    )]
    FileSizeLimit {
        /// The file.
        path: PathBuf,
        /// The limit.
        limit_bytes: u64,
        /// The greatest length of the log.
        needed_bytes: u64,
    },
    /// A transaction is larger than one frame can be.
    #[error(
        "a transaction of {len_bytes} bytes does not fit the log, which takes {max_bytes}; \
        split it into smaller ones"
    )]
    TooLong {
        /// Bytes of the frame, 0 if not known.
        len_bytes: u64,
        /// Longest frame.
        max_bytes: u64,
    },
    /// An operation on the file failed.
    #[error("cannot {what} {}: {}", say_file(.path), say_system(&std::io::Error::from_raw_os_error(*.errno)))]
    Io {
        /// Verb.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error number.
        errno: i32,
    },
    /// The file is not where the next opening looks for it. What is committed would be lost with
    /// this machine's memory.
    #[error("{}: {LOST_HELP}", say_lost(.path))]
    Lost {
        /// Where it was.
        path: PathBuf,
    },
    /// A write or sync failed earlier, or the engine did, here or in another process (COMMIT-4).
    #[error("{}: {}", say_why_stopped(*.errno), say_stopped(*.errno))]
    Poisoned {
        /// The system's error number of the first failure, or [`INTERNAL`].
        errno: i32,
    },
}

/// In place of an errno: an error inside the engine, not of a file.
pub(crate) const INTERNAL: i32 = 0;

/// Says why the log has stopped.
pub(crate) fn say_why_stopped(errno: i32) -> &'static str {
    match errno {
        INTERNAL => "the log stopped after an internal error",
        _ => "the log stopped after a failed write or sync",
    }
}

/// Says the rest: the cause, and the cure.
pub(crate) fn say_stopped(errno: i32) -> String {
    let why = match errno {
        INTERNAL => "a call in this or another process did not finish".into(),
        _ => std::io::Error::from_raw_os_error(errno).to_string(),
    };
    format!("{why}; close every connection, and open the database again to have it recovered")
}

/// Names a file that log code works on: the log, or the base's WAL, which must be on disk before
/// the log (before.rs).
pub(crate) fn say_file(path: &Path) -> String {
    let is_wal = path.as_os_str().as_bytes().ends_with(b"-wal");
    format!("{} {}", if is_wal { "the WAL" } else { "the log" }, path.display())
}

/// What to do about a lost log.
pub(crate) const LOST_HELP: &str = "close every connection, and do not restart the machine before \
    the database has been opened once: that copies the commits from shared memory into it";

pub(crate) fn say_lost(path: &Path) -> String {
    format!(
        "the log {} was removed, renamed, replaced or cut short while processes had the database \
         open, so nothing more can be committed",
        path.display()
    )
}

fn say_older(log: &Path, noted: Generation, base: Generation) -> String {
    format!(
        "the log {} says that the database held everything through generation {noted}, but the \
         file and its -wal hold it through {base} only: the -wal was removed, emptied or replaced \
         by an older one, or the database file was; put back the newest of both, or accept the \
         older state with `plait recover --accept-base` (it asks; --yes answers), which gives up \
         the commits in the log",
        log.display()
    )
}

/// The verb of a failed open, after which nothing was tried with the file's content.
pub(super) const OPEN: &str = "open";

impl LogError {
    /// True if only this process cannot do it: nothing has happened to what is on disk. A write
    /// past the limit of file sizes is such a failure: bytes of a stream never change, and a
    /// process that can write them writes them again.
    pub fn is_of_this_process(&self) -> bool {
        match self {
            LogError::FileSizeLimit { .. } => true,
            LogError::Io { what, errno, .. } => *what == OPEN || *errno == libc::EFBIG,
            _ => false,
        }
    }

    pub(super) fn io(what: &'static str, path: &Path, error: &std::io::Error) -> LogError {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        LogError::Io { what, path: path.to_owned(), errno }
    }

    /// The system's error number, 0 if there is none.
    pub fn errno(&self) -> i32 {
        match self {
            LogError::Io { errno, .. } | LogError::Poisoned { errno } => *errno,
            LogError::NoSpace { .. } => libc::ENOSPC,
            LogError::Missing { .. } | LogError::Lost { .. } => libc::ENOENT,
            _ => 0,
        }
    }
}

impl From<LogError> for Error {
    fn from(e: LogError) -> Error {
        use LogError as L;
        let text = e.to_string();
        match e {
            L::Full { .. } | L::NoSpace { .. } | L::TooLong { .. } | L::FileSizeLimit { .. } => {
                Error::Full(text)
            }
            L::Corrupt { .. } | L::CutShort { .. } => Error::Corrupt(text),
            L::GrowerStalled { .. } => Error::Busy(text),
            L::Interrupted => Error::Interrupted,
            L::Missing { .. }
            | L::NotALog { .. }
            | L::UnknownVersion { .. }
            | L::Foreign { .. }
            | L::OlderBase { .. } => Error::CantOpen(text),
            L::Lost { path } => Error::Io {
                what: say_lost(&path),
                source_text: LOST_HELP.into(),
                errno: libc::ENOENT,
            },
            L::Io { what, path, errno } => {
                let what = format!("cannot {what} {}", say_file(&path));
                Error::io(what, &std::io::Error::from_raw_os_error(errno))
            }
            L::Poisoned { errno } => Error::Io {
                what: say_why_stopped(errno).into(),
                source_text: say_stopped(errno),
                errno,
            },
        }
    }
}

/// Returns the error of a ring with wrong content: something overwrote shared memory.
pub(crate) fn damaged_ring(at: Lsn, why: BadFrame) -> Error {
    Error::Corrupt(format!(
        "the log ring in shared memory is damaged at position {at}: {}",
        why.why()
    ))
}
