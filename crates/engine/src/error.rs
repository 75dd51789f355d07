//! Errors of the engine, one variant per thing a caller can do about it.
//!
//! Corruption, I/O failure and conflict are different things and never share a variant. Texts are
//! lower case, without a full stop, and say what failed, where, and what to do.

use crate::ids::{CommitTs, Root, TxnId};

/// SQLite's primary code for a lock that another connection has.
const SQLITE_BUSY: i32 = 5;
const SQLITE_CORRUPT: i32 = 11;
const SQLITE_NOTADB: i32 = 26;

/// A result of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The read of a refused transaction, and the transaction that changed what was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conflict {
    /// B-tree whose entry or range changed.
    pub root: Root,
    /// Encoded key that the winner changed (empty when unknown).
    pub key: Vec<u8>,
    /// The transaction had read a range, not a point.
    pub is_range: bool,
    /// An exclusive transaction (schema change, VACUUM, bulk) committed since.
    pub is_exclusive: bool,
    /// The history needed for validation is no longer in memory.
    pub history_gone: bool,
    /// Process that committed the change (0 when unknown).
    pub winner_pid: u32,
    /// Number of that process's pid namespace if it is not this one's, else 0.
    pub winner_namespace: u32,
    /// Transaction that committed the change (0 when unknown).
    pub winner: TxnId,
    /// Commit that made the change.
    pub winner_ts: CommitTs,
}

/// Why an engine call failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A wait ended by its timeout or its handler; may be repeated.
    #[error("{0}")]
    Busy(String),
    /// Something that this transaction read has changed; roll back and retry.
    #[error("conflict with transaction {} of process {}", .0.winner.get(), .0.winner_pid)]
    Conflict(Box<Conflict>),
    /// The caller's interrupt flag was raised during a wait.
    #[error("interrupted while waiting")]
    Interrupted,
    /// A configured limit or the disk is full; nothing was written.
    #[error("{0}")]
    Full(String),
    /// The process may not have the memory that a row, or what is kept of a row, needs; nothing was
    /// done.
    #[error("out of memory")]
    NoMemory,
    /// Reading or writing a file failed.
    #[error("{what}: {source_text}")]
    Io {
        /// The operation and its file.
        what: String,
        /// The system's error text.
        source_text: String,
        /// The system's error number, 0 if none.
        errno: i32,
    },
    /// A file holds bytes that no crash can explain.
    #[error("{0}")]
    Corrupt(String),
    /// The file cannot be opened in this mode; the text says what to do.
    #[error("{0}")]
    CantOpen(String),
    /// The files next to the database file at this path belong to another one.
    #[error("{}", replaced(.0))]
    Replaced(std::path::PathBuf),
    /// The WAL-index at its path is not the one that the members of the session have.
    #[error(
        "{}-shm was removed or replaced while processes have the database open, and this \
         connection found another file than theirs: close every connection to the database, in \
         all programs, then open it again; never remove that file while one of them \
         runs", .0.display()
    )]
    StrangeIndex(std::path::PathBuf),
    /// A stock program, or another connection, has taken the file out of concurrent mode since the
    /// transaction began; roll back and retry.
    #[error(
        "the database has left concurrent mode since this transaction began; roll back and retry"
    )]
    Left,
    /// The database is a replica, and the transaction is not its follower's: the sentence of `replica::refusal`.
    #[error("{0}")]
    Follows(String),
    /// The call is wrong in this state (fork, second copy of the library, mode).
    #[error("{0}")]
    Misuse(String),
    /// The transaction outgrew its memory budget and has to become exclusive.
    #[error("the transaction outgrew its memory budget")]
    Escalate,
    /// The transaction's own snapshot, of an old base, holds memtables that the transaction needs.
    /// Nothing has changed: save all positions, end the base read transaction, take the snapshot
    /// anew from `Conn::pin` on (what was read is unchanged, PIN-6), and call again.
    #[error("the snapshot has to be taken anew")]
    RenewSnapshot,
    /// A call on the base database failed with this SQLite result code.
    #[error("{text}")]
    Base {
        /// SQLite's extended result code.
        code: i32,
        /// SQLite's error text, with what was being done.
        text: String,
    },
}

/// SQLite's code for a failed sync.
pub(crate) const SQLITE_IOERR_FSYNC: i32 = 10 | 4 << 8;

/// True for a failed sync: what is on disk is unknown, and no later sync would tell (ESTATE-4 in
/// database/orphans.rs).
pub(crate) fn leaves_doubt(e: &Error) -> bool {
    matches!(e, Error::Base { code, .. } if *code == SQLITE_IOERR_FSYNC)
}

/// Returns the system's error text, with what to do if the file is not the cause.
pub(crate) fn say_system(e: &std::io::Error) -> String {
    match e.raw_os_error() {
        Some(libc::EMFILE) => format!(
            "{e}; raise the limit of open files of this process (`ulimit -n`), or close files that it does not need"
        ),
        Some(libc::ENOMEM) => {
            format!("{e}; raise the limit of memory of this process (`ulimit -v`), or free some")
        }
        Some(libc::ENFILE) => {
            format!("{e}; raise the limit of open files of this machine (fs.file-max)")
        }
        _ => e.to_string(),
    }
}

fn replaced(path: &std::path::Path) -> String {
    let path = path.display();
    format!(
        "{path} was replaced or overwritten while {path}-wal and {path}-plait, which belong to \
         the former file, were kept; close every program that uses it, then put the newest file \
         back, or use this one without them: `plait recover --accept-base {path}` (it asks; --yes \
         answers)"
    )
}

impl Error {
    /// True if another connection has what was needed, here or in the base: the call may be
    /// repeated.
    pub fn is_busy(&self) -> bool {
        match self {
            Error::Busy(_) => true,
            Error::Base { code, .. } => code & 0xff == SQLITE_BUSY,
            _ => false,
        }
    }

    /// True for a failed checkpoint that left the WAL as it was, and the WAL sound: beside a
    /// reader, or on a full disk.
    pub(crate) fn spares_wal(&self) -> bool {
        match self {
            Error::Busy(_) => true,
            Error::Base { .. } => !leaves_doubt(self) && !self.finds_no_database(),
            _ => false,
        }
    }

    /// True if what was read of the base is no database.
    pub(crate) fn finds_no_database(&self) -> bool {
        matches!(self, Error::Base { code, .. } if matches!(code & 0xff, SQLITE_CORRUPT | SQLITE_NOTADB))
    }

    /// Adds to the error of a lock of the base how long the call waited for it.
    pub(crate) fn after_waiting(self, waited: std::time::Duration) -> Error {
        match self {
            Error::Base { code, text } => Error::Base {
                code,
                text: format!(
                    "{text} (waited {} ms); retry or raise the busy timeout",
                    waited.as_millis()
                ),
            },
            other => other,
        }
    }

    /// Makes an I/O error that says what was being done.
    pub fn io(what: impl Into<String>, source: &std::io::Error) -> Error {
        Error::Io {
            what: what.into(),
            source_text: say_system(source),
            errno: source.raw_os_error().unwrap_or(0),
        }
    }
}
