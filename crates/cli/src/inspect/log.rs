//! The log beside a database, read through without changing it.

use std::path::Path;

use plait_engine::ids::Generation;
use plait_engine::log::{LogError, LogScan, LogSummary};
use plait_engine::shm::layout::LOG_IN_USE_LOCK;
use plait_engine::shm::locks;
use plait_engine::storage::os::OsStorage;
use plait_engine::storage::side;

/// What is known about the log.
#[derive(Clone, Debug)]
pub enum Log {
    /// There is none.
    Absent,
    /// It belongs to the database and is sound.
    Sound(LogSummary),
    /// It belongs to another database.
    Foreign {
        /// Whether it holds commits.
        has_frames: bool,
        /// What the engine says.
        text: String,
    },
    /// It is that of a newer state of the database: the file with its WAL lacks what it had.
    Ahead(String),
    /// It cannot be read, or bytes that had been on disk are damaged.
    Damaged(String),
    /// Somebody is writing it, so that it was not read.
    InUse,
}

impl Log {
    /// Reads the log at `path` for a database with this salt that holds everything through `generation`.
    pub fn read(path: &Path, salt: u32, generation: u32) -> Log {
        let locked =
            side::open(path, false).and_then(|f| locks::is_locked_elsewhere(&f, LOG_IN_USE_LOCK));
        if locked.unwrap_or(false) {
            return Log::InUse;
        }
        match LogScan::open(&OsStorage, path, salt, Generation::new(generation)) {
            Ok(scan) => Log::Sound(*scan.summary()),
            Err(LogError::Missing { .. }) => Log::Absent,
            Err(e) => match &e {
                LogError::Foreign { has_frames, .. } => {
                    Log::Foreign { has_frames: *has_frames, text: e.to_string() }
                }
                LogError::OlderBase { .. } => Log::Ahead(e.to_string()),
                LogError::NotALog { .. } if is_empty(path) => {
                    Log::Foreign { has_frames: false, text: e.to_string() }
                }
                _ => Log::Damaged(e.to_string()),
            },
        }
    }
}

fn is_empty(path: &Path) -> bool {
    side::open(path, false).and_then(|file| file.metadata()).is_ok_and(|meta| meta.len() == 0)
}
